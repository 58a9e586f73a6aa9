# SPDX-License-Identifier: Apache-2.0
"""A point of presence for tests that look at single packets: a gateway, a raw wire on each side, and scapy.

access wire == port "access" [gateway] port "core" == core wire, whose host is 192.0.2.2 / 2001:db8:0:2::2
"""

import contextlib
import copy
from typing import ClassVar

from lab import CoreHost, Gateway, Line, Load, Wire, frames, thing
from lab.frames import Frame
from lab.load import DOWN, PORT, UP, marked, udp_payload
from lab.upf import GPDU, Message, downlink_container
from lab.upf import PORT as GTPU_PORT
from scapy.all import IP, UDP, Ether, IPv6, Raw

ACCESS_MAC, CORE_MAC, HOST_MAC = "02:00:00:00:aa:01", "02:00:00:00:aa:02", "02:00:00:00:cc:02"
GATEWAY4, GATEWAY6 = "100.64.0.1", "2001:db8:0:1::1"
CORE4, CORE6 = "192.0.2.1", "2001:db8:0:2::1"
HOST4, HOST6 = "192.0.2.2", "2001:db8:0:2::2"
# Beyond the core.
SERVER4, SERVER6 = "198.51.100.1", "2001:db8:0:9::1"

IPOE = Line("ipoe", "02:00:00:00:01:01", "100.64.0.11", "2001:db8:1:1::1", vlans=(100, 1))
PPPOE = Line("pppoe", "02:00:00:00:01:02", "100.64.0.12", "2001:db8:1:2::1", vlans=(100, 2), pppoe=7)


def session(line, access=None, **spec):
    """The session object of a line on port "access"."""
    where = {"port": "access"}
    if line.vlans:
        where["outerVlan"] = line.vlans[0]
    if len(line.vlans) > 1:
        where["innerVlan"] = line.vlans[1]
    if line.pppoe:
        where |= {"pppoeSessionId": line.pppoe, "mac": line.mac}
    addresses = [f"{line.ip4}/32"] if line.ip4 else []
    if line.ip6:
        addresses.append(line.ip6.rsplit("::", 1)[0] + "::/64")
    return thing("Session", line.name, **({"access": where | (access or {}), "addresses": addresses} | spec))


def tunnel(line, version=4, **more):
    """The session's GTP-U tunnel to the core host."""
    ours, theirs = (CORE4, HOST4) if version == 4 else (CORE6, HOST6)
    ends = {"localAddress": ours, "localTeid": line.teid_down, "remoteAddress": theirs, "remoteTeid": line.teid_up}
    return ends | more


def udp_up(line, version=4, payload=b"payload", **ip):
    """UDP from a line to the server; `ip` are further fields of its IP header."""
    header = IP(src=line.ip4, dst=SERVER4) if version == 4 else IPv6(src=line.ip6, dst=SERVER6)
    for name, value in ip.items():
        setattr(header, name, value)
    return header / UDP(sport=1024, dport=7) / Raw(payload)


def udp_down(line, version=4, payload=b"payload", **ip):
    header = IP(src=SERVER4, dst=line.ip4) if version == 4 else IPv6(src=SERVER6, dst=line.ip6)
    for name, value in ip.items():
        setattr(header, name, value)
    return header / UDP(sport=7, dport=1024) / Raw(payload)


def ip_of(payload):
    """An IP packet from bytes that may be padded behind its end."""
    if payload[0] >> 4 == 4:
        return IP(payload[: int.from_bytes(payload[2:4])])
    return IPv6(payload[: 40 + int.from_bytes(payload[4:6])])


class WireHost(CoreHost):
    """The core's end on the raw wire of a Pop: packets of lines that have TEIDs are in GTP-U there, others bare."""

    def __init__(self, wire, lines):
        self.wire, self.lines, self.addresses = wire, lines, {4: SERVER4, 6: SERVER6}
        self.made = {}

    def frame(self, line, version, payload):
        target = line.ip4 if version == 4 else line.ip6
        packet = frames.udp(self.addresses[version], target, PORT, PORT, payload)
        if line.teid_down:
            message = Message(GPDU, line.teid_down, extensions=[downlink_container(9)], payload=packet)
            packet, version = frames.udp(HOST4, CORE4, GTPU_PORT, GTPU_PORT, message.pack()), 4
        ethertype = frames.IP4 if version == 4 else frames.IP6
        return Frame(frames.mac_bytes(CORE_MAC), frames.mac_bytes(HOST_MAC), (), ethertype, packet).pack()

    def send(self, line, version, payload):
        key = line.name, version, payload, line.teid_down
        if key not in self.made:
            self.made[key] = self.frame(line, version, payload)
        self.wire.send(self.made[key])
        return True

    def readable(self):
        return [self.wire]

    def receive(self, source):
        raw = source.read()
        if raw is None:
            return None
        if raw[12:14] not in (b"\x08\x00", b"\x86\xdd"):
            return None, 4
        packet, teid = raw[14:], 0
        if packet[0] >> 4 == 4 and packet[9] == 17 and int.from_bytes(packet[22:24]) == GTPU_PORT:
            message = Message.parse(packet[28 : 20 + int.from_bytes(packet[24:26])])
            if message.kind != GPDU:
                return None, 4
            packet, teid = message.payload, message.teid
        found = marked(udp_payload(packet), UP)
        if found and self.lines[found[0]].teid_up != teid:
            found = None
        return found, packet[0] >> 4

    def close(self):
        pass


class Pop:
    base: ClassVar[list] = [
        thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC),
        thing("Port", "core", device="net_af_packet1,iface=core0,framecnt=4096", mac=CORE_MAC),
        thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32", f"{GATEWAY6}/128"]),
        thing("Interface", "core", port="core", addresses=[f"{CORE4}/24", f"{CORE6}/64"]),
        thing("Neighbor", "host4", interface="core", address=HOST4, mac=HOST_MAC),
        thing("Neighbor", "host6", interface="core", address=HOST6, mac=HOST_MAC),
        thing("Route", "default4", prefix="0.0.0.0/0", nextHops=[{"address": HOST4}]),
        thing("Route", "default6", prefix="::/0", nextHops=[{"address": HOST6}]),
    ]

    def __init__(self, lab, *objects, base=None, **gateway):
        self.lab = lab
        self.outside, self.inside = lab.namespace("outside"), lab.namespace("inside")
        for ours, theirs in (("acc0", "line"), ("core0", "uplink")):
            self.inside.link(ours, self.outside, theirs)
            self.inside.silent(ours)
            self.outside.silent(theirs)
        self.gateway = Gateway(lab, self.inside, **gateway)
        self.apply(*(self.base if base is None else base), *objects)
        self.access, self.core = Wire(self.outside, "line"), Wire(self.outside, "uplink")
        lab.on_close(self.access.close)
        lab.on_close(self.core.close)

    def apply(self, *objects):
        return self.gateway.apply(*objects)

    @contextlib.contextmanager
    def having(self, *objects):
        """Objects for as long as a test needs them."""
        try:
            self.apply(*objects)
            yield
        finally:
            for each in reversed(objects):
                self.gateway.delete(each["kind"], each["metadata"]["name"])

    def drain(self):
        self.access.drain()
        self.core.drain()

    def load(self, lines, rate, size=64):
        """Steady traffic of these lines, seen on both wires."""
        return Load(lines, self.access, ACCESS_MAC, WireHost(self.core, lines), rate, size)

    @contextlib.contextmanager
    def losing_nothing(self, lines, rate):
        """Steady traffic of these lines, none of which is lost during the block."""
        load = self.load(lines, rate)
        try:
            assert load.warm_up() == []
            before = self.gateway.drops()
            yield load
            assert load.has_sent(100)
            load.pause()
            lost = load.lost(UP), load.lost(DOWN)
            dropped = {
                name: n - before.get(name, 0) for name, n in self.gateway.drops().items() if n != before.get(name, 0)
            }
            assert lost == (0, 0), f"lost up and down: {lost}; the gateway dropped {dropped}"
        finally:
            load.close()

    def beside(self):
        """The same place through wires of their own, for looking at single packets while a load reads the others."""
        other = copy.copy(self)
        other.access, other.core = Wire(self.outside, "line"), Wire(self.outside, "uplink")
        self.lab.on_close(other.access.close)
        self.lab.on_close(other.core.close)
        return other

    # The access side.

    def send_up(self, line, packet, destination=ACCESS_MAC):
        self.access.send(line.frame(frames.mac_bytes(destination), bytes(packet)))

    def from_line(self, line, raw):
        """The IP packet in a frame, if the frame is in the line's encapsulation and for its MAC."""
        frame = Frame.parse(raw)
        if frame.tags != line.tags or frame.destination != line.raw_mac:
            return None
        if line.pppoe:
            if frame.ethertype != frames.PPPOE_SESSION:
                return None
            found, packet = frames.un_pppoe(frame.payload)
            return ip_of(packet) if found == line.pppoe and packet else None
        return ip_of(frame.payload) if frame.ethertype in (frames.IP4, frames.IP6) else None

    def at_line(self, line, wanted=lambda packet: True, seconds=20):
        """The next such IP packet that reaches the line, in its own encapsulation."""

        def match(raw):
            packet = self.from_line(line, raw)
            return packet if packet is not None and wanted(packet) else None

        return self.access.expect(match, seconds)

    # The core side.

    def send_down(self, packet):
        self.core.send(bytes(Ether(src=HOST_MAC, dst=CORE_MAC) / packet))

    def from_core(self, raw):
        frame = Frame.parse(raw)
        return ip_of(frame.payload) if not frame.tags and frame.ethertype in (frames.IP4, frames.IP6) else None

    def at_core(self, wanted=lambda packet: True, seconds=20):
        """The next such IP packet that leaves by the core port."""

        def match(raw):
            packet = self.from_core(raw)
            return packet if packet is not None and wanted(packet) else None

        return self.core.expect(match, seconds)

    def gpdu_at_core(self):
        """The next packet in a GTP-U tunnel, with its outer headers, and no echo request of the gateway."""

        def wanted(packet):
            return UDP in packet and packet[UDP].dport == GTPU_PORT and bytes(packet[UDP].payload)[1] == GPDU

        return self.at_core(wanted)

    def not_at_core(self, wanted=lambda packet: UDP in packet, seconds=0.3):
        def match(raw):
            packet = self.from_core(raw)
            return packet is not None and wanted(packet)

        self.core.expect_none(match, seconds)

    # Both.

    @contextlib.contextmanager
    def dropping(self, reason, count=1, *arguments):
        """The block inside causes at least this many drops of this name."""
        before = self.gateway.drops(*arguments).get(reason, 0)
        yield
        self.gateway.dropped(reason, 20, before + count - 1, *arguments)

    def learn(self, *lines):
        """Each line sends a packet, so that the gateway knows its MAC and tags."""
        for line in lines:
            self.core.drain()
            version = 4 if line.ip4 else 6
            self.send_up(line, udp_up(line, version))
            self.at_core(lambda packet: UDP in packet)
        self.drain()

    def passes(self, line, version=4, **fields):
        """Whether a packet passes up and one passes down, whole and with one hop less; both are looked at."""
        sent = udp_up(line, version, **fields)
        self.send_up(line, sent)
        got = self.at_core(lambda packet: UDP in packet and packet[UDP].dport == 7)
        same(sent, got)
        sent = udp_down(line, version, **fields)
        self.send_down(sent)
        got = self.at_line(line, lambda packet: UDP in packet and packet[UDP].dport == 1024)
        same(sent, got)
        return True


# The same with two queues at each port, so that each of two workers has one of each.
def base_of(access=2, core=2):
    """Pop.base with so many queues at each port."""
    ports = [
        thing("Port", "access", device=f"net_af_packet0,iface=acc0,framecnt=4096,qpairs={access}", mac=ACCESS_MAC),
        thing("Port", "core", device=f"net_af_packet1,iface=core0,framecnt=4096,qpairs={core}", mac=CORE_MAC),
    ]
    return ports + [each for each in Pop.base if each["kind"] != "Port"]


def same(sent, got, hops=1):
    """The packet that came is the one that was sent, its hop limit counted down."""
    sent = type(sent)(bytes(sent))
    if IP in sent:
        sent.ttl -= hops
        del sent.chksum
    else:
        sent.hlim -= hops
    assert bytes(sent) == bytes(got), f"{sent.show(dump=True)}\n{got.show(dump=True)}"
