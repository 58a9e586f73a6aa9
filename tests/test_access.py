# SPDX-License-Identifier: Apache-2.0
"""Access circuits: tags of each TPID and number, several access ports, PPPoE and IPoE on one VLAN, several subscribers
on one VLAN, subscribers with IPv6 alone, and why sessions end."""

import contextlib
import ipaddress
import random
import re
import struct
import threading

import pytest
from lab import Gateway, Wire, frames, thing
from lab.dhcp import Client, options_of
from lab.gateway import METRICS
from lab.laboratory import wait_until
from lab.pppoe import (
    COOKIE,
    IP6,
    IPCP,
    IPV6CP,
    LCP,
    PADI,
    PADR,
    PADT,
    PAP,
    REQUEST,
    SERVICE_NAME,
    Host,
    option,
    tag,
)
from scapy.all import (
    ARP,
    BOOTP,
    DHCP,
    ICMP,
    IP,
    UDP,
    Ether,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RS,
    ICMPv6NDOptDstLLAddr,
    IPv6,
)
from scapy.layers.dhcp6 import DHCP6_Renew, DHCP6_Solicit, DHCP6OptClientId, DHCP6OptIA_NA, DHCP6OptIAAddress

ACCESS_MAC, SECOND_MAC, CORE_MAC, TAP_MAC = (f"02:00:00:00:aa:0{number}" for number in (1, 2, 3, 4))
GATEWAY4, GATEWAY6 = "100.64.0.1", "2001:db8:64::1"
CORE4, CORE6, SERVER4, SERVER6 = "192.0.2.1", "2001:db8:0:2::1", "192.0.2.2", "2001:db8:0:2::2"

# A subscriber of each protocol with an address of its own that changes its VLAN.
MOVER, MOVER_MAC, MOVED = "mover", "02:00:00:00:0f:10", {"IPoE": "100.64.9.9", "PPPoE": "100.64.9.10"}

# The same circuits for both protocols. AF_PACKET sends 0x88a8 as 0x8100 in the outer tag, but not in the inner one. A
# TAP device leaves both.
CIRCUITS = [
    ("access", (100, 7), (0x8100, 0x8100)),
    ("access", (101, 8), (0x9100, 0x88A8)),
    ("access", (102, 9), (0x9100, 0x9100)),
    ("access", (200,), (0x8100,)),
    ("access", (201,), (0x9100,)),
    ("second", (), ()),
    ("tap", (103, 7), (0x88A8, 0x8100)),
    ("tap", (104, 8), (0x88A8, 0x88A8)),
    ("tap", (202,), (0x88A8,)),
]
MACS = {"access": ACCESS_MAC, "second": SECOND_MAC, "tap": TAP_MAC}


def servers(name, profile="home", **where):
    # All limits are the default ones.
    yield thing("PppoeServer", name, profile=profile, **where)
    yield thing("IpoeServer", name, profile=profile, **where)


class Site:
    def __init__(self, lab):
        self.clients, self.inside, self.core = (lab.namespace(each) for each in ("clients", "inside", "core"))
        for ours, other, theirs in (
            ("acc0", self.clients, "line"),
            ("acc1", self.clients, "line2"),
            ("core0", self.core, "uplink"),
        ):
            self.inside.link(ours, other, theirs)
            self.inside.silent(ours)
        for address in (f"{SERVER4}/24", f"{SERVER6}/64"):
            self.core.ip("addr", "add", address, "dev", "uplink", *(["nodad"] if ":" in address else []))
        self.core.ip("route", "add", "default", "via", CORE4)
        self.core.ip("-6", "route", "add", "default", "via", CORE6)
        metrics = {"type": "metrics", "name": "metrics", "listen": METRICS}
        self.gateway = Gateway(lab, self.inside, northbounds=[metrics])
        pools = {"ipv6Pools": ["hosts"], "delegatedPools": ["homes"]}
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC),
            thing("Port", "second", device="net_af_packet1,iface=acc1,framecnt=4096", mac=SECOND_MAC),
            thing("Port", "tap", device="net_tap0,iface=acc2", mac=TAP_MAC),
            thing("Port", "core", device="net_af_packet2,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32", f"{GATEWAY6}/128"]),
            thing("Interface", "core", port="core", addresses=[f"{CORE4}/24", f"{CORE6}/64"]),
            thing("AddressPool", "home", ranges=["100.64.1.0/24"], gateway=GATEWAY4),
            thing("AddressPool", "hosts", ranges=["2001:db8:64::/64"], excluded=[GATEWAY6]),
            thing("AddressPool", "homes", ranges=["2001:db8:6400::/40"], prefixLength=56),
            thing("SubscriberProfile", "home", authentication=["local", "none"], ipv4Pools=["home"], **pools),
            thing("SubscriberProfile", "six", authentication=["none"], **pools),
            thing("SubscriberProfile", "short", authentication=["none"], ipv4Pools=["home"], sessionTimeout="2s"),
            thing("SubscriberProfile", "idle", authentication=["none"], ipv4Pools=["home"], idleTimeout="2s"),
            thing("SubscriberProfile", "fixed", authentication=["local"], gateway=GATEWAY4),
            thing("LocalUser", "mover", username=MOVER, password="secret", ipv4Address=MOVED["PPPoE"]),
            thing("LocalUser", "mover-mac", username=MOVER_MAC, ipv4Address=MOVED["IPoE"]),
            *servers("moving", "fixed", port="access", outerVlans=["500-501"], innerVlans=["1-9"]),
            *servers("double-tap", port="tap", outerVlans=["100-199"], innerVlans=["1-4094"]),
            *servers("single-tap", port="tap", outerVlans=["200-209"]),
            *servers("double", port="access", outerVlans=["100-199"], innerVlans=["1-4094"]),
            *servers("single", port="access", outerVlans=["200-209"]),
            *servers("untagged", port="second"),
            *servers("six", "six", port="access", outerVlans=["300"]),
            *servers("short", "short", port="access", outerVlans=["400"]),
            *servers("idle", "idle", port="access", outerVlans=["401"]),
            wait=False,
        )
        # A PppoeServer makes two Punts: discovery, and PPP of sessions that do not exist yet.
        wait_until(lambda: len(self.gateway.json("get", "punts") or []) == 27)
        self.inside.silent("acc2")
        self.inside.ip("link", "set", "acc2", "up")
        self.wires = {"access": Wire(self.clients, "line"), "second": Wire(self.clients, "line2")}
        self.wires["tap"] = Wire(self.inside, "acc2")
        for wire in self.wires.values():
            lab.on_close(wire.close)
        wait_until(Client(self.wires["access"], "02:00:00:00:0f:01", 199, 1).offered4, 60, "the agent answers")

    def host(self, number, *vlans, port="access", tpids=None):
        mac = f"02:00:00:00:05:{number:02x}"
        return Host(self.wires[port], mac, *vlans, tpids=tpids, username=f"user-{number}", password="secret")

    def sessions(self):
        """Specs by MAC. A session that is being deleted has no spec."""
        found = [each.get("spec", {}) for each in self.gateway.json("get", "sessions") or []]
        return {each["access"]["mac"]: each for each in found if each.get("access", {}).get("mac")}

    def lacks(self, mac):
        wait_until(lambda: mac not in self.sessions(), 30, lambda: f"{mac}: {self.sessions()}")

    def pings(self, client, address, gateway_mac):
        six = ":" in address
        echo = IPv6(src=address, dst=SERVER6) / ICMPv6EchoRequest(id=77) if six else IP(src=address, dst=SERVER4)
        client.wire.send(client.frame(echo if six else echo / ICMP(id=77), gateway_mac))

        def answer(raw):
            packet = client.mine(raw)
            if packet is None:
                return False
            return ICMPv6EchoReply in packet if six else ICMP in packet and packet[ICMP].type == 0

        return client.wire.expect(answer)

    def cause(self, username):
        """Cause of the end of a user's session, from the log."""

        def found():
            log = self.gateway.agent.log.read_text()
            return re.search(rf"a subscriber's session ends.* username={username} cause=(\S+)", log)

        return wait_until(found, 30, f"the session of {username} ends")[1]


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


@pytest.mark.parametrize(("port", "vlans", "tpids"), CIRCUITS, ids=lambda each: str(each))
def test_two_subscribers_of_each_protocol_share_a_circuit(site, port, vlans, tpids):
    number = 10 * CIRCUITS.index((port, vlans, tpids))
    gateway_mac = MACS[port]
    hosts = [site.host(number + each, *vlans, port=port, tpids=tpids) for each in (1, 2)]
    clients = [
        Client(site.wires[port], f"02:00:00:00:06:{number + each:02x}", *vlans, tpids=list(tpids)) for each in (1, 2)
    ]
    for host in hosts:
        assert host.dial()
    addresses = [client.ask4()[BOOTP].yiaddr for client in clients]
    # All four at the same time, each with an address of its own, and each in the tags that it sent.
    for count, host in enumerate(hosts):
        host.ping(SERVER4, count + 1)
    for client, address in zip(clients, addresses, strict=True):
        assert site.pings(client, address, gateway_mac)
    assert len({host.ip4() for host in hosts} | set(addresses)) == 4
    sessions = site.sessions()
    access = {"port": port} | dict(zip(("outerVlan", "innerVlan"), vlans, strict=False))
    for mac in [frames.mac_text(host.mac) for host in hosts] + [client.mac for client in clients]:
        assert access.items() <= sessions[mac]["access"].items()
    for host in hosts:
        host.hang_up()
    for client, address in zip(clients, addresses, strict=True):
        server = ("server_id", GATEWAY4)
        client.send4("release", server, source=address, destination=GATEWAY4, to=gateway_mac, ciaddr=address)
    for mac in [frames.mac_text(host.mac) for host in hosts] + [client.mac for client in clients]:
        site.lacks(mac)


def test_a_subscriber_with_ipv6_alone_is_up_and_gets_no_ipv4(site):
    client = Client(site.wires["access"], "02:00:00:00:07:01", 300)
    reply = client.ask6(DHCP6OptIA_NA(iaid=1))
    address = reply[DHCP6OptIAAddress].addr
    assert f"{address}/128" in site.sessions()[client.mac]["addresses"]
    assert site.pings(client, address, ACCESS_MAC)
    client.send4("discover")
    client.wire.expect_none(lambda raw: (packet := client.mine(raw)) is not None and BOOTP in packet)
    assert all(":" in each for each in site.sessions()[client.mac]["addresses"])

    host = site.host(0x81, 300)
    assert host.dial(IPV6CP)
    # IPCP is rejected as a protocol (RFC 1661 section 5.7), and the link stays up.
    rejected = []
    negotiate = host.negotiate
    host.negotiate = lambda protocol, code, *rest: (
        rejected.append(rest[1][:2]) if (protocol, code) == (LCP, 8) else negotiate(protocol, code, *rest)
    )
    host.packet(IPCP, REQUEST, 99, option(3, b"\0" * 4))
    host.until(lambda: rejected, "IPCP is rejected")
    assert rejected == [IPCP.to_bytes(2, "big")]
    host.until(lambda: host.advertisement is not None, "a router advertisement")
    assert all(":" in each for each in site.sessions()[frames.mac_text(host.mac)]["addresses"])
    host.hang_up()


def test_a_subscriber_that_moves_to_another_vlan_is_back_at_once_with_its_address(site):
    """Without a word to its old circuit: the gateway ends that session."""
    for vlans in ((500, 1), (501, 2), (500, 1)):
        client = Client(site.wires["access"], MOVER_MAC, *vlans)
        host = Host(site.wires["access"], "02:00:00:00:0f:11", *vlans, username=MOVER, password="secret")
        assert client.ask4()[BOOTP].yiaddr == MOVED["IPoE"]
        assert host.dial(IPCP)
        assert host.ip4() == MOVED["PPPoE"]
        assert site.pings(client, MOVED["IPoE"], ACCESS_MAC)
        host.ping(SERVER4, 1)
        sessions = site.sessions()
        for mac in (client.mac, frames.mac_text(host.mac)):
            assert (sessions[mac]["access"]["outerVlan"], sessions[mac]["access"]["innerVlan"]) == vlans
            assert len(site.gateway.json("subscriber", "list", "--mac", mac)) == 1
    for address in MOVED.values():
        site.gateway.sluice("subscriber", "disconnect", "--address", address)


def test_a_neighbour_on_a_vlan_does_not_get_another_ones_packets(site):
    """ARP, neighbour discovery and DHCP in the name of another subscriber."""
    victim, thief = (Client(site.wires["access"], f"02:00:00:00:0f:2{number}", 140, 1) for number in (1, 2))
    addresses = []
    for client in (victim, thief):
        four, six = client.ask4()[BOOTP].yiaddr, client.ask6(DHCP6OptIA_NA(iaid=1))[DHCP6OptIAAddress].addr
        assert site.pings(client, four, ACCESS_MAC) and site.pings(client, six, ACCESS_MAC)
        addresses.append((four, six))
    (four, six), (own, _) = addresses
    before = site.gateway.drops().get("arp-sender", 0)
    advertisement = ICMPv6ND_NA(tgt=six, R=0, S=0, O=1) / ICMPv6NDOptDstLLAddr(lladdr=thief.mac)
    release = BOOTP(chaddr=frames.mac_bytes(victim.mac), xid=7, ciaddr=four)
    release = release / DHCP(options=[("message-type", "release"), ("server_id", GATEWAY4), "end"])
    for packet, destination in (
        (ARP(op=1, hwsrc=thief.mac, psrc=four, pdst=four), "ff:ff:ff:ff:ff:ff"),
        (ARP(op=2, hwsrc=thief.mac, psrc=four, hwdst=ACCESS_MAC, pdst=GATEWAY4), ACCESS_MAC),
        (IPv6(src=six, dst="ff02::1", hlim=255) / advertisement, "33:33:00:00:00:01"),
        (IPv6(src=thief.link_local, dst=GATEWAY6, hlim=255) / advertisement, ACCESS_MAC),
        (IP(src=four, dst=SERVER4) / ICMP(id=78), ACCESS_MAC),
        (IPv6(src=six, dst=SERVER6) / ICMPv6EchoRequest(id=78), ACCESS_MAC),
        (IP(src=own, dst=GATEWAY4) / UDP(sport=68, dport=67) / release, ACCESS_MAC),
    ):
        thief.wire.send(thief.frame(packet, destination))
    wait_until(lambda: site.gateway.drops().get("arp-sender", 0) >= before + 2, 20, "drop arp-sender")
    assert site.pings(thief, own, ACCESS_MAC)
    assert site.pings(victim, four, ACCESS_MAC) and site.pings(victim, six, ACCESS_MAC)
    # From the other side, too.
    for address in (four, six):
        victim.wire.drain()
        site.core.run("ping", "-c", "1", "-W", "1", address, check=False)
        echo = (lambda packet: ICMPv6EchoRequest in packet) if ":" in address else (lambda packet: ICMP in packet)
        victim.wire.expect(lambda raw, echo=echo: (packet := victim.mine(raw)) is not None and echo(packet))
        assert not any(raw[:6] == frames.mac_bytes(thief.mac) for raw in thief.wire.frames(0.2))
    site.gateway.sluice("subscriber", "disconnect", "--circuit", "access:140.1")


def test_each_end_of_a_session_has_its_cause(lab, site):
    # Each with a user name of its own, all of them at once.
    ends = {
        "session-timeout": site.host(0x91, 400),
        "idle-timeout": site.host(0x92, 401),
        "user-request": site.host(0x93, 110, 1),
        "admin-reset": site.host(0x94, 110, 2),
        "lost-carrier": site.host(0x95, 110, 3),
    }
    for host in ends.values():
        # None takes the frames of another from the wire.
        host.wire = Wire(site.clients, "line")
        lab.on_close(host.wire.close)
        assert host.dial(IPCP)
    ends["user-request"].hang_up()
    site.gateway.sluice("subscriber", "disconnect", "--username", ends["admin-reset"].username.decode())
    # It lost power and dials in again.
    assert ends["lost-carrier"].dial(IPCP)
    for cause, host in ends.items():
        assert site.cause(host.username.decode()) == cause
    for cause in ("session-timeout", "idle-timeout", "admin-reset"):
        host = ends[cause]
        host.until(lambda host=host: host.ended, f"the host hears of the end by {cause}")


ALL = frames.mac_bytes("ff:ff:ff:ff:ff:ff")
# Each type of packet that goes to the agent, as a host with this MAC sends it.
FLOODS = {
    "padi": lambda h, c: discovery(h, PADI, tag(SERVICE_NAME), ALL),
    "padr": lambda h, c: discovery(h, PADR, tag(SERVICE_NAME) + tag(COOKIE, bytes(16))),
    "padt": lambda h, c: discovery(h, PADT, b"", session=4711),
    "lcp": lambda h, c: ppp(h, LCP, b"\x01\x01\0\x04"),
    "pap": lambda h, c: ppp(h, PAP, b"\x01\x01\0\x06\0\0"),
    "discover": lambda h, c: c.frame(dhcp4(c, "discover")),
    "request": lambda h, c: c.frame(dhcp4(c, "request", ("requested_addr", "100.64.1.250"))),
    "release": lambda h, c: c.frame(dhcp4(c, "release", ("server_id", GATEWAY4))),
    "solicit": lambda h, c: c.frame(dhcp6(c, DHCP6_Solicit() / DHCP6OptIA_NA(iaid=1)), "33:33:00:01:00:02"),
    "renew": lambda h, c: c.frame(dhcp6(c, DHCP6_Renew() / DHCP6OptIA_NA(iaid=1)), "33:33:00:01:00:02"),
    "router-solicitation": lambda h, c: c.frame(
        IPv6(src=c.link_local, dst="ff02::2", hlim=255) / ICMPv6ND_RS(), "33:33:00:00:00:02"
    ),
    "arp": lambda h, c: c.frame(ARP(op=1, hwsrc=c.mac, psrc="100.64.1.250", pdst=GATEWAY4)),
    "ip": lambda h, c: c.frame(IP(src="100.64.1.250", dst=SERVER4) / UDP(dport=9), ACCESS_MAC),
}


def discovery(host, code, tags, destination=None, session=0):
    header = struct.pack("!BBHH", 0x11, code, session, len(tags))
    return host.ethernet(frames.PPPOE_DISCOVERY, header + tags, destination or frames.mac_bytes(ACCESS_MAC))


# The same of hosts whose session is up: a client with leases of both families, and a PPPoE host.
FLOODS_UP = {
    "discover": lambda h, c, ip4: c.frame(dhcp4(c, "discover")),
    "request": lambda h, c, ip4: c.frame(dhcp4(c, "request", ("requested_addr", "100.64.1.250"))),
    "renewal": lambda h, c, ip4: c.frame(dhcp4(c, "request", source=ip4), ACCESS_MAC),
    "inform": lambda h, c, ip4: c.frame(dhcp4(c, "inform", source=ip4), ACCESS_MAC),
    "decline": lambda h, c, ip4: c.frame(dhcp4(c, "decline", ("requested_addr", "100.64.1.250"))),
    "solicit": lambda h, c, ip4: c.frame(dhcp6(c, DHCP6_Solicit() / DHCP6OptIA_NA(iaid=1)), "33:33:00:01:00:02"),
    "renew": lambda h, c, ip4: c.frame(dhcp6(c, DHCP6_Renew() / DHCP6OptIA_NA(iaid=1)), "33:33:00:01:00:02"),
    "router-solicitation": lambda h, c, ip4: c.frame(
        IPv6(src=c.link_local, dst="ff02::2", hlim=255) / ICMPv6ND_RS(), "33:33:00:00:00:02"
    ),
    "neighbor-solicitation": lambda h, c, ip4: c.frame(
        IPv6(src=c.link_local, dst="ff02::1:ff00:1", hlim=255) / ICMPv6ND_NS(tgt=GATEWAY6), "33:33:ff:00:00:01"
    ),
    "arp": lambda h, c, ip4: c.frame(ARP(op=1, hwsrc=c.mac, psrc=ip4, pdst=GATEWAY4)),
    "padi": lambda h, c, ip4: discovery(h, PADI, tag(SERVICE_NAME), ALL),
    "padr": lambda h, c, ip4: discovery(h, PADR, tag(SERVICE_NAME) + tag(COOKIE, bytes(16))),
    # Rejected by code, and by protocol.
    "lcp": lambda h, c, ip4: ppp(h, LCP, b"\x4d\x01\0\x04", h.session),
    "ppp": lambda h, c, ip4: ppp(h, 0x80FD, b"\x01\x01\0\x04", h.session),
    "ppp-solicit": lambda h, c, ip4: ppp(
        h, IP6, bytes(dhcp6(c, DHCP6_Solicit() / DHCP6OptIA_NA(iaid=1), link_local(h))), h.session
    ),
}
# Those that the agent's DHCP server counts.
SERVED = {"discover", "request", "renewal", "inform", "solicit", "renew"}


def ppp(host, protocol, packet, session=4711):
    """Of a session that there is not, unless one is given."""
    header = struct.pack("!BBHHH", 0x11, 0, session, len(packet) + 2, protocol)
    return host.ethernet(frames.PPPOE_SESSION, header + packet)


def dhcp4(client, kind, *options, source="0.0.0.0"):
    """`source`: the address of a client that has one."""
    bootp = BOOTP(chaddr=frames.mac_bytes(client.mac), xid=7, ciaddr=source)
    options = [("message-type", kind), *options, "end"]
    header = IP(src=source, dst="255.255.255.255" if source == "0.0.0.0" else GATEWAY4)
    return header / UDP(sport=68, dport=67) / bootp / DHCP(options=options)


def link_local(host):
    return str(ipaddress.ip_address(b"\xfe\x80" + bytes(6) + host.identifier))


def dhcp6(client, message, source=None):
    udp = IPv6(src=source or client.link_local, dst="ff02::1:2", hlim=1) / UDP(sport=546, dport=547)
    return udp / message / DHCP6OptClientId(duid=client.duid)


@contextlib.contextmanager
def flooding(site, packets):
    """About 10,000 of them a second, for as long as the block takes."""
    wire, done = Wire(site.clients, "line"), threading.Event()

    def send():
        while not done.wait(0.003):
            for packet in random.choices(packets, k=32):
                with contextlib.suppress(OSError):
                    wire.send(packet)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        wire.close()


@pytest.mark.parametrize("kind", FLOODS)
# More MACs than the pool has addresses.
@pytest.mark.parametrize("macs", [1, 300], ids=["of-a-mac", "of-a-vlan"])
def test_others_dial_in_beside_a_flood(site, kind, macs):
    # Beside one MAC on its VLAN; beside many MACs on another one.
    number, inner = 0x20 + list(FLOODS).index(kind), 1 if macs == 1 else 2
    packets = []
    for each in range(macs):
        mac = f"02:00:00:{0xE0 + each // 256:02x}:{each % 256:02x}:{number:02x}"
        host = Host(site.wires["access"], mac, 120, 1)
        host.server = frames.mac_bytes(ACCESS_MAC)
        packets.append(bytes(FLOODS[kind](host, Client(site.wires["access"], mac, 120, 1))))

    def lost():
        return sum(site.gateway.drops().values())

    before = lost()
    with flooding(site, packets):
        wait_until(lambda: lost() > before + 1000, 20, "the flood is noticed")
        host = site.host(number + 0x40 * (macs == 1), 120, inner)
        client = Client(site.wires["access"], f"02:00:00:00:0a:{number:02x}", 120, inner)
        assert host.dial(IPCP)
        host.ping(SERVER4, 1)
        wait_until(client.offered4, 20, "an offer")
        assert client.ask4()[BOOTP].yiaddr.startswith("100.64.1.")
        reply = client.ask6(DHCP6OptIA_NA(iaid=1))
        assert site.pings(client, reply[DHCP6OptIAAddress].addr, ACCESS_MAC)
        host.hang_up()
    site.gateway.sluice("subscriber", "disconnect", "--circuit", f"access:120.{inner}")


@pytest.mark.parametrize("kind", FLOODS_UP)
def test_others_dial_in_beside_a_flood_of_a_host_that_is_up(site, kind):
    # All on one VLAN.
    number, vlans = 0x60 + list(FLOODS_UP).index(kind), (130, 1)
    up = Client(site.wires["access"], f"02:00:00:00:0b:{number:02x}", *vlans)
    address = up.ask4()[BOOTP].yiaddr
    up.ask6(DHCP6OptIA_NA(iaid=1))
    host_up = Host(site.wires["access"], f"02:00:00:00:0c:{number:02x}", *vlans, username="up", password="secret")
    assert host_up.dial()
    packet = bytes(FLOODS_UP[kind](host_up, up, address))

    def lost():
        return sum(site.gateway.drops().values())

    before, served = lost(), site.gateway.metric("sluice_ipoe_messages_total")
    with flooding(site, [packet]):
        wait_until(lambda: lost() > before + 1000, 20, "the flood is noticed")
        host = Host(site.wires["access"], f"02:00:00:00:0d:{number:02x}", *vlans, username="new", password="secret")
        client = Client(site.wires["access"], f"02:00:00:00:0e:{number:02x}", *vlans)
        assert host.dial(IPCP)
        host.ping(SERVER4, 1)
        assert client.ask4()[BOOTP].yiaddr.startswith("100.64.1.")
        reply = client.ask6(DHCP6OptIA_NA(iaid=1))
        assert site.pings(client, reply[DHCP6OptIAAddress].addr, ACCESS_MAC)
        host.hang_up()
    # The agent got a small part of the flood.
    if kind in SERVED:
        assert 10 * (site.gateway.metric("sluice_ipoe_messages_total") - served) < lost() - before
    # Neither session suffered, and the flooder is served again.
    renewed = up.renew4(address, GATEWAY4, ACCESS_MAC)
    assert options_of(renewed)["message-type"] == 5 and renewed[BOOTP].yiaddr == address
    host_up.ping(SERVER4, 2)
    site.gateway.sluice("subscriber", "disconnect", "--circuit", "access:{}.{}".format(*vlans))


def test_requests_without_a_server_are_not_answered(site):
    before = site.gateway.drops().get("unknown-circuit", 0)
    client = Client(site.wires["second"], "02:00:00:00:08:01", 100, 7)
    client.send4("discover")
    wait_until(lambda: site.gateway.drops().get("unknown-circuit", 0) > before, 20, "drop unknown-circuit")
    client.wire.expect_none(lambda raw: (packet := client.mine(raw)) is not None and UDP in packet and Ether in packet)
