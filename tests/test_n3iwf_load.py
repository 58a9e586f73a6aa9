# SPDX-License-Identifier: Apache-2.0
"""UEs on untrusted access that register, move and go at random, while agent and data plane are killed.

N3IWF_UES is the number of UEs (10; `make soak`: 1000), N3IWF_SECONDS how long they do so (a kill of each; `make soak`:
60). The test prints the seed; N3IWF_SEED repeats it."""

import os
import random
import time

import pytest
from lab.laboratory import wait_until
from lab.n3iwf import Site, nothing_left

pytestmark = pytest.mark.long(reason="`make soak` does it for longer")
UES = int(os.environ.get("N3IWF_UES", "10"))
SECONDS = float(os.environ.get("N3IWF_SECONDS", "0"))
SEED = int(os.environ.get("N3IWF_SEED", str(random.SystemRandom().randrange(1 << 32))))

# By the last event of a UE: connected or not. Between a command and its event it is neither.
CONNECTED = {"registered", "session", "moved", "child", "rekeyed", "session-released", "child-closed", "nas"}
AWAY = {"refused", "released", "closed", "dead"}


class Crowd:
    def __init__(self, site, choice):
        self.site, self.choice = site, choice
        self.ues = site.ues(count=UES)
        self.state = {}
        self.read = 0

    def look(self):
        events = self.ues.events()
        for event in events[self.read :]:
            if "ue" in event and event["event"] in CONNECTED | AWAY:
                self.state[event["ue"]] = event["event"]
        self.read = len(events)

    def do(self, ue, what, **more):
        self.state[ue] = "busy"
        self.ues.do(what, ue=ue, **more)

    def act(self):
        ue = self.choice.randrange(UES)
        state = self.state.get(ue, "closed")
        if state in AWAY:
            self.do(ue, "register")
        elif state in CONNECTED:
            what = self.choice.choice(("session", "session", "deregister", "move", "close"))
            if what == "session":
                # Refused by the core, or the connection is lost meanwhile: no event comes. So it counts as connected.
                self.ues.do("session", ue=ue, session=self.choice.randrange(1, 4), kind=self.choice.randrange(1, 4))
            elif what == "move":
                self.ues.do("move", ue=ue, to=self.spare(ue))
            else:
                self.do(ue, what)

    def spare(self, ue):
        return f"192.0.{100 + ue // 250}.{1 + ue % 250}"


def test_ues_come_move_and_go_while_processes_are_killed_and_nothing_is_left(lab):
    print(f"N3IWF_SEED={SEED}")
    choice = random.Random(SEED)
    site = Site(lab, ues=UES, gateway={"supervised": True, "agent_too": True}, quiet=1)
    site.gateway.apply(site.n3iwf(dpdDelay="2s"))
    crowd = Crowd(site, choice)
    for ue in range(UES):
        site.wifi.ip("addr", "add", f"{crowd.spare(ue)}/16", "dev", "wlan")
    end, kills, acts = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end or kills < 2:
        for _ in range(max(5, UES // 10)):
            crowd.look()
            crowd.act()
            acts += 1
        if acts % (20 * max(5, UES // 10)) == 0:
            which = ("agent", "dataplane")[kills % 2]
            process = getattr(site.gateway, which)
            process.kill()
            kills += 1
            wait_until(lambda w=which, p=process: getattr(site.gateway, w) is not p, 60, f"another {which}")
        time.sleep(0.1)
    # All that still can go.
    wait_until(
        lambda: site.gateway.sluice("ike", "terminate", "n3iwf-wifi", check=False).returncode == 0, 60, "an agent"
    )
    nothing_left(site, 200)
    # Everything works as at the start.
    crowd.ues.kill()
    crowd.ues.start()
    crowd.ues.mark()
    site.amf.mark()
    crowd.ues.do("register")
    seconds = max(120, UES // 2)
    wait_until(lambda: len(crowd.ues.events("registered")) == UES, seconds, f"all UEs register: {crowd.ues.log}")
    _, address = site.attach(crowd.ues, ue=0)
    assert site.reaches(address)
    crowd.ues.do("deregister")
    nothing_left(site, 60)
