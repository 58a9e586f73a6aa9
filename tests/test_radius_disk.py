# SPDX-License-Identifier: Apache-2.0
"""Accounting of PPPoE subscribers while the agent's disk is full, the server is away and the agent is killed."""

from collections import Counter

import pytest
from lab import Gateway, Wire, thing
from lab.disk import Disk
from lab.gateway import METRICS
from lab.laboratory import wait_until
from lab.pppoe import IPCP, Host
from lab.radius import SECRET, FreeRadius

ACCESS_MAC, GATEWAY4 = "02:00:00:00:aa:01", "100.64.0.1"
NAS, SERVER, RESERVE = "10.9.9.1", "10.9.9.2", "10.9.9.3"
USERS = 'alice Cleartext-Password := "wonderland"\n\tFramed-Pool = "pool"\n'


class Site:
    def __init__(self, lab):
        self.clients, self.inside, self.aaa = (lab.namespace(each) for each in ("clients", "inside", "aaa"))
        self.inside.link("acc0", self.clients, "line")
        self.inside.silent("acc0")
        self.inside.link("aaa0", self.aaa, "nas")
        self.inside.ip("addr", "add", f"{NAS}/24", "dev", "aaa0")
        for address in (SERVER, RESERVE):
            self.aaa.ip("addr", "add", f"{address}/24", "dev", "nas")
        # One accounts, the other authenticates.
        self.server, self.reserve = (FreeRadius(lab, self.aaa, each, USERS) for each in (SERVER, RESERVE))
        self.disk = Disk(lab, self.inside, 64 << 20)
        metrics = {"type": "metrics", "name": "metrics", "listen": METRICS}
        self.gateway = Gateway(lab, self.inside, northbounds=[metrics], disk=self.disk)
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC),
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32"]),
            thing("AddressPool", "pool", ranges=["100.64.1.0/24"], gateway=GATEWAY4),
            *(
                thing("RadiusServer", name, address=address, secret=SECRET, timeout="2s", statusInterval="500ms")
                for name, address in (("aaa", SERVER), ("reserve", RESERVE))
            ),
            thing(
                "RadiusPolicy",
                "home",
                authentication=[{"server": "reserve"}],
                accounting=[{"server": "aaa"}],
                nasIdentifier="bng-1",
            ),
            thing("SubscriberProfile", "home", authentication=["radius"], accounting=["radius"], gateway=GATEWAY4),
            thing("PppoeServer", "home", port="access", outerVlans=["100-199"], profile="home", echoInterval="300s"),
            wait=False,
        )
        wait_until(lambda: len(self.gateway.json("get", "punts") or []) == 2, what="the Punts of the PppoeServer")
        self.wire = Wire(self.clients, "line")
        lab.on_close(self.wire.close)

    def dialed(self, number):
        host = Host(self.wire, f"02:00:00:00:01:{number:02x}", 100 + number, username="alice", password="wonderland")
        assert host.dial(IPCP)
        return host

    def records(self, *hosts):
        macs = [each.mac.hex(":") for each in hosts]
        return [each for each in self.server.records() if each.get("Calling-Station-Id") in macs]

    def said(self, *hosts):
        """How many records of each type the server has of hosts."""
        return Counter(each["Acct-Status-Type"] for each in self.records(*hosts))

    def restart(self):
        self.gateway.agent.kill()
        self.gateway.start_agent()


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


def test_each_session_is_accounted_for_once_though_the_agent_is_killed_on_a_full_disk(site):
    known = site.dialed(1)
    ending = [site.dialed(2 + number) for number in range(20)]
    wait_until(lambda: site.said(known, *ending) == {"Start": 21}, what="Start records")
    site.server.stop()
    # Its Start is on the disk, and no server has it.
    waiting = site.dialed(40)
    wait_until(lambda: site.gateway.metric("sluice_radius_spool_records") == 1, what="a record waits")
    site.disk.fill()
    # The page that the log wrote last has room for some Stops, and the disk refuses the others.
    for each in ending:
        each.hang_up()
    wait_until(lambda: site.gateway.metric("sluice_radius_spool_records") == 21, what="the records wait")
    wait_until(lambda: site.gateway.metric("sluice_records_waiting_bytes") > 0, what="the disk refuses records")
    for _ in range(2):
        site.restart()
    site.server.start()
    site.disk.free()
    # The ends that the disk refused are lost: these sessions are up until their hosts are there again, or are silent.
    later = site.dialed(41)
    for each in ending:
        each.reset()
        assert each.dial(IPCP)
    for each in (known, *ending, waiting, later):
        each.hang_up()
    hosts = [known, *ending, waiting, later]
    wait_until(lambda: site.said(*hosts) == {"Start": 43, "Stop": 43}, 60, lambda: f"{site.said(*hosts)}")
    sessions = Counter((each["Acct-Session-Id"], each["Acct-Status-Type"]) for each in site.records(*hosts))
    assert len(sessions) == 86, [each for each, count in sessions.items() if count > 1]
    assert site.gateway.json("subscriber", "list") == []
    wait_until(lambda: site.gateway.metric("sluice_radius_spool_records") == 0, what="no record waits")
