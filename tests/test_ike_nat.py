# SPDX-License-Identifier: Apache-2.0
"""strongSwan behind an address translator, which forgets it under traffic.

lan host == gateway == outside = translator = between == home, where strongSwan and its network are"""

import select
import socket
import threading

import pytest
from lab import Gateway, thing
from lab.laboratory import wait_until
from lab.strongswan import StrongSwan
from pop import CORE4, CORE_MAC, HOST4
from test_ike import CONNECTION, FAR, HERE, HOST, LAN, THERE

HOME, INNER = "192.168.7.2", "192.168.7.1"
PORTS = (500, 4500)


class Translator:
    """UDP between home and the gateway, which sees ports of the translator. Home's side has the gateway's address."""

    def __init__(self, lab, outside, between):
        self.outside, self.clients, self.outer, self.ended = outside, {}, {}, False
        self.inner = {port: self.socket(between, CORE4, port) for port in PORTS}
        self.renew()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        lab.on_close(self.close)

    def socket(self, namespace, address, port):
        made = namespace.inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((address, port))
        return made

    def renew(self):
        """Other ports outside: what comes for those of before is lost."""
        before, self.outer = self.outer, {port: self.socket(self.outside, HOST4, 0) for port in PORTS}
        for each in before.values():
            each.close()

    def port(self, port):
        return self.outer[port].getsockname()[1]

    def run(self):
        while not self.ended:
            outer = self.outer
            ways = {each: (port, True) for port, each in self.inner.items()}
            ways |= {each: (port, False) for port, each in outer.items()}
            try:
                ready, _, _ = select.select(list(ways), [], [], 0.05)
                for each in ready:
                    port, out = ways[each]
                    data, sender = each.recvfrom(65536)
                    if out:
                        self.clients[port] = sender
                        self.outer[port].sendto(data, (CORE4, port))
                    elif port in self.clients:
                        self.inner[port].sendto(data, self.clients[port])
            except (OSError, ValueError):
                continue  # the ports are others now

    def close(self):
        self.ended = True
        self.thread.join()
        for each in (*self.inner.values(), *self.outer.values()):
            each.close()


class Site:
    def __init__(self, lab):
        names = ("inside", "outside", "lan", "between", "home")
        self.inside, self.outside, self.lan, self.between, self.home = (lab.namespace(name) for name in names)
        self.inside.link("core0", self.outside, "uplink")
        self.inside.link("lan0", self.lan, "eth0")
        self.between.link("down0", self.home, "eth0")
        for ours in ("core0", "lan0"):
            self.inside.silent(ours)
        for namespace, device, address in (
            (self.outside, "uplink", f"{HOST4}/24"),
            (self.between, "lo", f"{CORE4}/32"),
            (self.between, "down0", f"{INNER}/24"),
            (self.home, "eth0", f"{HOME}/24"),
            (self.home, "lo", f"{FAR}/16"),
            (self.lan, "eth0", f"{HOST}/16"),
        ):
            namespace.ip("addr", "add", address, "dev", device)
        self.home.ip("route", "add", CORE4, "via", INNER)
        self.lan.ip("route", "add", "default", "via", LAN)
        self.gateway = Gateway(lab, self.inside)
        child = {"name": "net", "tunnel": "users", "local": ["10.1.0.0/16"], "remote": ["10.2.0.0/16"]}
        self.gateway.apply(
            thing("Port", "core", device="net_af_packet0,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Port", "lan", device="net_af_packet1,iface=lan0,framecnt=4096"),
            thing("Interface", "core", port="core", addresses=[f"{CORE4}/24"]),
            thing("Interface", "lan", port="lan", addresses=[f"{LAN}/16"]),
            thing("IpsecTunnel", "users", localAddress=CORE4),
            thing("Interface", "users", ipsecTunnel="users"),
            thing("Route", "users", prefix="10.2.0.0/16", nextHops=[{"interface": "users"}]),
            thing("IkeCredential", "users", sharedKey="a secret"),
            thing(
                "IkeConnection",
                "users",
                localAddress=CORE4,
                localIdentity=HERE,
                remoteIdentity=THERE,
                credential="users",
                dpdDelay="1s",
                children=[child],
            ),
        )
        self.translator = Translator(lab, self.outside, self.between)
        here = CONNECTION.replace("local_addrs = 192.0.2.2", f"local_addrs = {HOME}")
        self.peer = StrongSwan(lab, self.home, here)

    def remotes(self):
        return {each["remote"] for each in self.gateway.json("ike", "list")}

    def associations(self):
        return [each["spec"] for each in self.gateway.json("get", "securityassociations")]

    def ping(self, count=5, wait=5):
        command = ("ping", "-c", str(count), "-i", "0.1", "-W", str(wait), "-I", FAR, HOST)
        return self.home.run(*command, check=False).stdout

    def at(self):
        """Where the gateway shall send."""
        return f"{HOST4}:{self.translator.port(4500)}"


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


def test_a_peer_behind_a_translator_keeps_its_tunnel_when_the_translator_forgets_it(site):
    wait_until(lambda: site.peer.swanctl("--initiate", "--child", "net", check=False).returncode == 0, what="a tunnel")
    wait_until(lambda: len(site.associations()) == 2, what="the tunnel is up")
    assert site.remotes() == {site.at()} and site.translator.port(4500) != 4500
    assert {each["udp"]["remotePort"] for each in site.associations()} == {site.translator.port(4500)}
    assert " 0% packet loss" in site.ping()
    assert " 0% packet loss" in site.lan.run("ping", "-c", "3", "-i", "0.1", "-W", "5", FAR).stdout
    before = site.peer.children()
    site.translator.renew()
    # An ESP packet of the peer shows the gateway its new port, and the gateway's IKE messages go there as well.
    wait_until(lambda: "1 received" in site.ping(1, wait=1), what="the gateway sends to the new port")
    assert " 0% packet loss" in site.ping()
    wait_until(lambda: site.remotes() == {site.at()}, what="IKE goes to the new port")
    assert " 0% packet loss" in site.lan.run("ping", "-c", "3", "-i", "0.1", "-W", "5", FAR).stdout
    assert site.peer.children() == before
    site.gateway.sluice("ike", "rekey", "users", "--child", "net")
    wait_until(lambda: len(site.associations()) == 2 and site.peer.children() != before, what="new keys")
    assert " 0% packet loss" in site.ping()
    # With the next one the peer's IKE message comes first.
    site.translator.renew()
    site.peer.swanctl("--rekey", "--ike", "peer")
    wait_until(lambda: site.remotes() == {site.at()}, what="IKE goes to the new port")
    assert " 0% packet loss" in site.lan.run("ping", "-c", "3", "-i", "0.1", "-W", "5", FAR).stdout
