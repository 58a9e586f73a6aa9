# SPDX-License-Identifier: Apache-2.0
"""RADIUS servers with the same address in two VRFs of the agent's host: each has a source address and a device."""

import pytest
from lab import Gateway, Wire, thing
from lab.laboratory import wait_until
from lab.pppoe import IPCP, Host
from lab.radius import SECRET, FreeRadius

ACCESS_MAC, GATEWAY4 = "02:00:00:00:aa:01", "100.64.0.1"
SERVER, NOWHERE = "10.9.9.2", "10.9.9.3"
# Addresses of the gateway in each VRF, whose networks are the same.
SOURCES = {"blue": "10.9.9.10", "green": "10.9.9.20"}
ADDRESSES = {"blue": "100.64.7.1", "green": "100.64.7.2"}


class Site:
    def __init__(self, lab):
        self.clients, self.inside = lab.namespace("clients"), lab.namespace("inside")
        self.inside.link("acc0", self.clients, "line")
        self.inside.silent("acc0")
        self.servers, self.devices = {}, {}
        for table, (name, source) in enumerate(SOURCES.items(), start=10):
            far, link = lab.namespace(name), f"to-{name}"
            self.inside.link(link, far, "nas")
            self.devices[name] = self.vrf(name, table, link)
            self.inside.ip("addr", "add", f"{source}/24", "dev", link)
            far.ip("addr", "add", f"{SERVER}/24", "dev", "nas")
            users = f'alice Cleartext-Password := "wonderland"\n\tFramed-IP-Address = {ADDRESSES[name]}\n'
            self.servers[name] = FreeRadius(lab, far, SERVER, users)
            # This one is in the first VRF alone.
            if name == "blue":
                far.ip("addr", "add", f"{NOWHERE}/24", "dev", "nas")
                self.servers["reserve"] = FreeRadius(lab, far, NOWHERE, users)
        self.gateway = Gateway(lab, self.inside)
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC),
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32"]),
            self.server("blue", SERVER, "blue"),
            self.server("green", SERVER, "green"),
            # A server of the first VRF by the second one's device.
            self.server("astray", NOWHERE, "green"),
            *(each for name in SOURCES for each in self.lines(name, [{"server": name}])),
            *self.lines("both", [{"server": "astray"}, {"server": "blue"}]),
            wait=False,
        )
        wait_until(lambda: len(self.gateway.json("get", "punts") or []) == 6, 30, "the Punts of the PppoeServers")
        self.wire = Wire(self.clients, "line")
        lab.on_close(self.wire.close)

    def vrf(self, name, table, link):
        """The device of a VRF; in a kernel without VRFs the interface itself, to which sockets are bound in the same
        way: they use its routes alone."""
        if self.inside.run("ip", "link", "add", name, "type", "vrf", "table", str(table), check=False).returncode:
            return link
        self.inside.ip("link", "set", name, "up")
        self.inside.ip("link", "set", link, "master", name)
        return name

    def server(self, name, address, vrf):
        where = {"sourceAddress": SOURCES[vrf], "device": self.devices[vrf]}
        return thing("RadiusServer", name, address=address, secret=SECRET, timeout="1s", transmissions=1, **where)

    @staticmethod
    def lines(name, servers):
        vlan = {"blue": "100", "green": "200", "both": "300"}[name]
        yield thing("RadiusPolicy", name, profiles=[name], authentication=servers, accounting=servers[-1:])
        yield thing("SubscriberProfile", name, authentication=["radius"], accounting=["radius"], gateway=GATEWAY4)
        yield thing("PppoeServer", name, port="access", outerVlans=[vlan], profile=name, echoInterval="300s")

    def dialed(self, number, vlan):
        host = Host(self.wire, f"02:00:00:00:01:{number:02x}", vlan, username="alice", password="wonderland")
        assert host.dial(IPCP)
        return host

    def requests(self, server, source):
        log = self.servers[server].process.log.read_text()
        return sum("Received Access-Request" in line and f"from {source}:" in line for line in log.splitlines())


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


def test_servers_with_one_address_in_two_vrfs_are_told_apart_by_device_and_source(site):
    hosts = {"blue": site.dialed(1, 100), "green": site.dialed(2, 200)}
    for name, host in hosts.items():
        assert host.ip4() == ADDRESSES[name]
    for name, host in hosts.items():
        host.hang_up()

        def stopped(name=name):
            return site.servers[name].records(Acct_Status_Type="Stop")

        (stop,) = wait_until(stopped, 30, f"a Stop record of {name}")
        assert stop["Framed-IP-Address"] == ADDRESSES[name]
        # Each has its own address as the client, and heard of its own subscriber alone.
        other = SOURCES["green" if name == "blue" else "blue"]
        assert site.requests(name, SOURCES[name]) == 1 and site.requests(name, other) == 0


def test_a_server_that_its_vrf_does_not_reach_is_dead_and_the_next_one_serves(site):
    host = site.dialed(3, 300)
    assert host.ip4() == ADDRESSES["blue"]

    def dead(name):
        (found,) = site.gateway.json("get", "radius-servers", name)
        (ready,) = (each for each in found["status"]["conditions"] if each["type"] == "Ready")
        return ready["status"] == "False" and ready["reason"] == "ServerDead"

    wait_until(lambda: dead("astray"), 20, "the server is dead")
    assert not dead("blue") and not dead("green")
    # It is there, and would have answered: it heard nothing by any address.
    assert all(site.requests("reserve", source) == 0 for source in SOURCES.values())
    host.hang_up()
