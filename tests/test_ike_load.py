# SPDX-License-Identifier: Apache-2.0
"""Many tunnels of IKE, and kills of processes under traffic.

IKE_PEERS is the number of connections of strongSwan (200), IKE_TUNNELS the number of tunnels (100; `make soak`:
10,000), IKE_SECONDS how long processes are killed (3 kills; `make soak`: 300)."""

import json
import os
import random
import socket
import subprocess
import sys
import time

import pytest
import vici
from lab import Lab, thing
from lab.gateway import Refused
from lab.laboratory import TREE, wait_until
from lab.strongswan import StrongSwan
from pop import CORE4, HOST4
from test_ike import HERE, Site

sys.path.insert(0, str(TREE / "bench"))

pytestmark = pytest.mark.long(reason="`make soak` does it for longer")
PEERS = int(os.environ.get("IKE_PEERS", "200"))
TUNNELS = int(os.environ.get("IKE_TUNNELS", "100"))
SECONDS = float(os.environ.get("IKE_SECONDS", "0"))


@pytest.fixture
def lab():
    """One for each test."""
    with Lab() as made:
        yield made


def test_tunnels_come_up_get_new_keys_and_go_down():
    subprocess.run(["go", "build", "-o", TREE / "build/ike-load", "./bench/ike"], cwd=TREE, check=True)
    import ike

    rows = {row["phase"]: row for row in ike.ours(TUNNELS, 16)}
    assert set(rows) == {"up", "rekey", "down"}
    for row in rows.values():
        assert (row["count"], row["failed"]) == (TUNNELS, 0), row


def test_a_strongswan_with_hundreds_of_connections_gets_a_tunnel_for_each(lab):
    """strongSwan is loaded by its control interface (vici). Each connection is an IkePeer of the gateway."""
    site, numbers = Many(lab), range(1, PEERS + 1)
    site.gateway.apply(
        thing("IpsecPolicy", "sites", dpdDelay="600s"),
        *(
            thing(
                "IkePeer",
                f"site-{number}",
                localAddress=CORE4,
                remoteAddress=HOST4,
                passive=True,
                localIdentity=HERE,
                remoteIdentity=f"site-{number}.example",
                localNetworks=["10.1.0.0/16"],
                remoteNetworks=[f"{site.network(number)}.0/24"],
                credential="office",
                policy="sites",
            )
            for number in numbers
        ),
    )
    site.load(numbers)
    site.each(numbers, "initiate", child="net")
    tunnels = []

    def all_up():
        tunnels[:] = site.gateway.json("get", "tunnels", "--limit", "10000")
        return sum(each["state"] == "up" for each in tunnels) == PEERS

    wait_until(all_up, 120, "all tunnels are up")
    assert {each["remoteIdentity"] for each in tunnels if "connection" in each} == {
        f"site-{number}.example" for number in numbers
    }

    def reached():
        """Sites that a host of the gateway's network reaches: each packet goes through the site's own tunnel."""
        script = 'for to; do ping -q -c 1 -W 5 "$to" >/dev/null && echo "$to"; done'
        hosts = [f"{site.network(number)}.1" for number in numbers]
        return len(site.lan.run("sh", "-c", script, "sh", *hosts, check=False, timeout=600).stdout.split())

    assert reached() == PEERS
    keys = set(site.associations())
    site.each(numbers, "rekey", child="net")
    wait_until(lambda: not keys & set(site.associations()) and site.up() == PEERS, 120, "new keys for all")
    assert reached() == PEERS
    site.each(numbers, "rekey", ike=None)
    for number in numbers:
        site.gateway.sluice("ike", "rekey", f"site-{number}")
    wait_until(lambda: site.up() == PEERS and len(site.associations()) == 2 * PEERS, 120, "one child for each")
    assert reached() == PEERS
    site.each(numbers, "terminate", ike=None)
    wait_until(lambda: not site.associations(), 120, "all are down")


class Many(Site):
    """A strongSwan with a connection and an address for each number."""

    CONFIGURATION = """
secrets {
  ike-all {
    secret = "a secret"
  }
}
"""

    def other_end(self, lab):
        peer = StrongSwan(lab, self.outside, self.CONFIGURATION)
        self.session = self.outside.inside(lambda: vici.Session(connect(f"{peer.directory}/vici")))
        return peer

    @staticmethod
    def network(number):
        return f"10.2.{number}" if number < 256 else f"10.3.{number - 256}"

    def load(self, numbers):
        for number in numbers:
            self.outside.ip("addr", "add", f"{self.network(number)}.1/32", "dev", "lo")
            child = {
                "local_ts": [f"{self.network(number)}.0/24"],
                "remote_ts": ["10.1.0.0/16"],
                "esp_proposals": ["aes256gcm16-x25519"],
            }
            connection = {
                "version": "2",
                "local_addrs": [HOST4],
                "remote_addrs": [CORE4],
                "proposals": ["aes256gcm16-prfsha256-x25519"],
                "local": {"auth": "psk", "id": f"site-{number}.example"},
                "remote": {"auth": "psk", "id": HERE},
                "children": {"net": child},
            }
            self.session.load_conn({f"site-{number}": connection})

    def each(self, numbers, command, **what):
        """initiate, rekey or terminate, without waiting for the result."""
        for number in numbers:
            order = {key: value or f"site-{number}" for key, value in what.items()}
            if "ike" not in order:
                order["ike"] = f"site-{number}"
            done = getattr(self.session, command)(order | ({} if command == "rekey" else {"timeout": "-1"}))
            for _ in done if command != "rekey" else ():
                pass

    def up(self):
        return len(self.peer.children())


def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    return s


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
