# SPDX-License-Identifier: Apache-2.0
"""Many tunnels of IKE, and kills of processes under traffic.

IKE_TUNNELS is the number of tunnels (100; `make soak`: 10,000), IKE_SECONDS how long processes are killed (3 kills;
`make soak`: 300)."""

import json
import os
import random
import subprocess
import sys
import time

import pytest
from lab.gateway import Refused
from lab.laboratory import TREE, wait_until
from test_ike import Site

sys.path.insert(0, str(TREE / "bench"))

pytestmark = pytest.mark.long(reason="`make soak` does it for longer")
TUNNELS = int(os.environ.get("IKE_TUNNELS", "100"))
SECONDS = float(os.environ.get("IKE_SECONDS", "0"))


def test_tunnels_come_up_get_new_keys_and_go_down():
    subprocess.run(["go", "build", "-o", TREE / "build/ike-load", "./bench/ike"], cwd=TREE, check=True)
    import ike

    rows = {row["phase"]: row for row in ike.ours(TUNNELS, 16)}
    assert set(rows) == {"up", "rekey", "down"}
    for row in rows.values():
        assert (row["count"], row["failed"]) == (TUNNELS, 0), row


def answered(question):
    """False while there is no agent that answers: it was killed, and its supervisor starts another one."""
    try:
        return question()
    except (Refused, json.JSONDecodeError):
        return False


def test_traffic_goes_on_after_each_kill_of_agent_and_data_plane(lab):
    site = Site(lab, supervised=True, agent_too=True)
    site.gateway.apply(site.connection("AT_ONCE", child={"onDeadPeer": "AT_ONCE", "onClose": "AT_ONCE"}))
    wait_until(lambda: answered(site.up), what="the tunnel is up")
    choice, end, kills = random.Random(1), time.monotonic() + SECONDS, 0
    while time.monotonic() < end or kills < 3:
        which = ("agent", "dataplane", "agent")[kills] if kills < 3 else choice.choice(("agent", "dataplane"))
        # More packets than a look takes afterwards: sequence numbers that begin anew would be replays.
        site.ping(400, "0.002", check=False)
        process = getattr(site.gateway, which)
        process.kill()
        kills += 1
        wait_until(lambda w=which, p=process: getattr(site.gateway, w) is not p, what=f"another {which}")
        wait_until(
            lambda: " 0% packet loss" in site.ping(2, check=False, wait=1), 60, f"traffic after a kill of {which}"
        )
    wait_until(lambda: answered(site.up), what="one tunnel")
    assert " 0% packet loss" in site.ping(10)
