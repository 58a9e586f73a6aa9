# SPDX-License-Identifier: Apache-2.0
"""Objects of the gateway and streams of the generator for each chain that two processes measure.

    generator port 0 == access | gateway | core == generator port 1

Uplink frames enter by access and leave by core, downlink frames the other way round. Sizes count the FCS.
"""

import itertools
import random
import struct
from dataclasses import dataclass, field

from generator import Stream
from lab import thing

ACCESS, CORE = 0, 1
GATEWAY_MAC = [bytes.fromhex("020000000001"), bytes.fromhex("020000000002")]
PEER_MAC = bytes.fromhex("020000000100")
NEIGHBORS, INNER_VLANS, PPPOE_IDS = 16, 1000, 60000
LOCAL_TEID, REMOTE_TEID, QFI = 0x10000, 0x20000, 9
ACCESS_ADDRESS, CORE_ADDRESS = 0xC0000201, 0xC0000281
BLOCK_RULES = 150
SUBSCRIBER_PORT, SERVER_PORT = 5000, 443


def ip_text(address):
    return ".".join(str(byte) for byte in address.to_bytes(4, "big"))


def neighbor_address(number):
    return CORE_ADDRESS + 16 + number % NEIGHBORS


def subscriber_address(flow):
    return 0x64400000 + flow + 1


def server_address(flow):
    return 0x08080000 + flow % 97


def subscriber_mac(flow):
    return b"\x02\x01\x00" + flow.to_bytes(3, "big")


def tags(flow):
    """Outer and inner VLAN."""
    return 100 + flow // INNER_VLANS, 1 + flow % INNER_VLANS


def pppoe_id(flow):
    return 1 + flow % PPPOE_IDS


def ether(to, source, ethertype):
    return to + source + struct.pack("!H", ethertype)


def ip4_udp(source, destination, source_port, destination_port, length):
    """Headers of an IPv4 packet of `length` bytes."""
    words = [0x4500, length, 0, 0, 64 << 8 | 17, 0]
    words += [source >> 16, source & 0xFFFF, destination >> 16, destination & 0xFFFF]
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    words[5] = ~total & 0xFFFF
    return struct.pack("!14H", *words, source_port, destination_port, length - 20, 0)


def routed_address(number):
    """In the route of this number."""
    return (number + 256 << 8) + 7


def access_frame(flow, size, pppoe, destination):
    """The start of a subscriber's frame, QinQ or QinQ with PPPoE."""
    outer, inner = tags(flow)
    header = ether(GATEWAY_MAC[ACCESS], subscriber_mac(flow), 0x88A8)
    header += struct.pack("!HHHH", outer, 0x8100, inner, 0x8864 if pppoe else 0x0800)
    length = size - 4 - len(header)
    if pppoe:
        length -= 8
        header += struct.pack("!HHHH", 0x1100, pppoe_id(flow), length + 2, 0x0021)
    return header + ip4_udp(subscriber_address(flow), destination, SUBSCRIBER_PORT, SERVER_PORT, length)


def core_frame(flow, size, gtpu):
    """The start of a frame to a subscriber, as IPv4 or inside GTP-U (TS 29.281) with a PDU session container."""
    header = ether(GATEWAY_MAC[CORE], PEER_MAC, 0x0800)
    length = size - 4 - len(header)
    if gtpu:
        header += ip4_udp(neighbor_address(flow), CORE_ADDRESS, 2152, 2152, length)
        length -= 36
        header += struct.pack("!BBHIHBBBBBB", 0x34, 255, length, LOCAL_TEID + flow, 0, 0, 0x85, 1, 0, QFI, 0)
        length -= 8
    return header + ip4_udp(server_address(flow), subscriber_address(flow), SERVER_PORT, SUBSCRIBER_PORT, length)


def routed_frame(flow, size):
    header = ether(GATEWAY_MAC[ACCESS], PEER_MAC, 0x0800)
    return header + ip4_udp(0xC0000202, routed_address(flow), 1000, 2000, size - 4 - len(header))


def ports(devices):
    """Ports, interfaces, neighbours on the core side and the way out."""
    for number, (name, device) in enumerate(zip(("access", "core"), devices, strict=True)):
        yield thing("Port", name, device=device, mac=GATEWAY_MAC[number].hex(":"))
        yield thing("Interface", name, port=name, addresses=[f"{ip_text((ACCESS_ADDRESS, CORE_ADDRESS)[number])}/25"])
    for number in range(NEIGHBORS):
        mac = f"02:00:00:00:02:{number:02x}"
        address = ip_text(neighbor_address(number))
        yield thing("Neighbor", f"neighbor-{number}", interface="core", address=address, mac=mac)
    yield route("default", "0.0.0.0/0", 0)


def routes(count):
    for number in range(count):
        yield route(f"route-{number}", f"{ip_text(routed_address(number) & ~0xFF)}/24", number)


def route(name, prefix, number):
    return thing("Route", name, prefix=prefix, nextHops=[{"address": ip_text(neighbor_address(number))}])


def block_list():
    """Random 5-tuples, of which none matches."""
    numbers = random.Random(42)
    rules = []
    for number in range(BLOCK_RULES):
        low = numbers.randrange(60000)
        rules.append(
            {
                "action": "DENY",
                "source": f"{ip_text(0xC8000000 | numbers.getrandbits(24))}/32",
                "destination": f"{ip_text(numbers.getrandbits(32) | 0xE0)}/32",
                "protocol": ("tcp", "udp")[number % 2],
                "sourcePorts": f"{low}-{low + numbers.randrange(5000)}",
                "destinationPorts": str(numbers.randrange(65536)),
            }
        )
    return thing("Acl", "block", rules=rules, otherwise="PERMIT")


def allow_list(flows):
    """One 5-tuple for each flow to the subscribers."""
    rules = [
        {
            "action": "PERMIT",
            "source": f"{ip_text(server_address(flow))}/32",
            "destination": f"{ip_text(subscriber_address(flow))}/32",
            "protocol": "udp",
            "sourcePorts": str(SERVER_PORT),
            "destinationPorts": str(SUBSCRIBER_PORT),
        }
        for flow in range(flows)
    ]
    return thing("Acl", "allow", rules=rules)


def meter():
    """Rates are high, so that all packets pass: the bench measures metering."""
    rates = {"committedRate": 10**12, "committedBurst": 1 << 30, "peakRate": 2 * 10**12, "excessBurst": 1 << 30}
    return thing("Meter", "meter", algorithm="TRTCM", **rates)


def group(flow):
    """The OLT that a subscriber is behind: all of an outer VLAN."""
    return f"olt-{flow // INNER_VLANS}"


def schedulers(flows):
    """Four levels without a limit that is reached: the bench measures scheduling."""
    matches = {"voice": "ef", "video": "af41", "critical": "af31"}
    classes = [
        {"name": name, "priority": priority, "queueLength": 256, "match": {"dscp": [dscp]}}
        for priority, (name, dscp) in enumerate(matches.items())
    ]
    classes.append({"name": "data", "priority": len(classes), "queueLength": 256})
    yield thing("QosScheduler", "access", port="access", rate=400 * 10**9, overhead=24)
    yield thing("QosProfile", "home", committedRate=10**7, peakRate=10**9, overhead=16, classes=classes)
    for name in sorted({group(flow) for flow in range(flows)}):
        yield thing("QosGroup", name, scheduler="access", committedRate=10**9, peakRate=400 * 10**9, overhead=24)


def session(flow, pppoe, gtpu, policy):
    outer, inner = tags(flow)
    access = {"port": "access", "outerVlan": outer, "innerVlan": inner, "mac": subscriber_mac(flow).hex(":")}
    if pppoe:
        access["pppoeSessionId"] = pppoe_id(flow)
    core = {}
    if gtpu:
        core["gtpu"] = {
            "localAddress": ip_text(CORE_ADDRESS),
            "localTeid": LOCAL_TEID + flow,
            "remoteAddress": ip_text(neighbor_address(flow)),
            "remoteTeid": REMOTE_TEID + flow,
            "pduSessionContainer": True,
            "qfi": QFI,
        }
    address = f"{ip_text(subscriber_address(flow))}/32"
    return thing("Session", f"session-{flow}", access=access, addresses=[address], policy=policy, **core)


@dataclass(frozen=True)
class Chain:
    """`up` and `down`: frame sizes, or None for no traffic; `down_bytes`: the downlink's part of all bytes."""

    name: str
    flows: int
    up: int | None = None
    down: int | None = None
    down_bytes: float = 0.5
    sessions: bool = True
    pppoe: bool = False
    agf: bool = False
    metered: bool = False
    hqos: bool = False
    routes: int = 0
    # The agent configures the gateway.
    agent: bool = False
    about: str = ""
    seed: int = field(default=1, repr=False)

    def objects(self, devices):
        yield from ports(devices)
        yield from routes(self.routes)
        if not self.sessions:
            return
        policy = {}
        if self.agf or self.metered:
            yield meter()
            policy |= {"meterUp": "meter", "meterDown": "meter"}
        if self.agf:
            yield from (block_list(), allow_list(self.flows))
            policy |= {"aclUp": "block", "aclDown": "allow"}
        if self.hqos:
            yield from schedulers(self.flows)
        for flow in range(self.flows):
            queues = {"qosProfile": "home", "qosGroup": group(flow)} if self.hqos else {}
            yield session(flow, self.pppoe, self.agf, policy | queues)

    def in_turn(self, frame):
        """A frame's start for each flow, in random order."""
        order = list(range(self.flows))
        random.Random(self.seed).shuffle(order)
        return [frame(flow) for flow in order]

    def down_packets(self):
        """The downlink's part of all packets."""
        if not self.up or not self.down:
            return 1.0 if self.down else 0.0
        down, up = self.down_bytes / self.down, (1 - self.down_bytes) / self.up
        return down / (down + up)

    def up_frame(self, flow):
        if not self.sessions:
            return routed_frame(flow, self.up)
        to = routed_address(flow * 7919 % self.routes) if self.routes else server_address(flow)
        return access_frame(flow, self.up, self.pppoe, to)

    def down_frame(self, flow):
        return core_frame(flow, self.down, self.agf)

    def streams(self):
        down = self.down_packets()
        if self.up:
            headers = self.in_turn(self.up_frame)
            yield Stream("up", ACCESS, CORE, self.up, headers, 1 - down)
        if self.down:
            yield Stream("down", CORE, ACCESS, self.down, self.in_turn(self.down_frame), down)


def agf(name, **options):
    """With QinQ and with PPPoE; those with a downlink without and with the scheduler."""
    for hqos, pppoe in itertools.product((False, True) if "down" in options else (False,), (False, True)):
        whole = name + ("-hqos" if hqos else "") + ("-pppoe" if pppoe else "")
        yield Chain(whole, 4000, agf=True, pppoe=pppoe, hqos=hqos, **options)


CHAINS = list(
    itertools.chain(
        [
            Chain("ip4-10k", 10000, up=64, sessions=False, routes=10000, about="IPv4, 10,000 routes"),
            Chain("qinq-up-4k", 4096, up=128, about="QinQ to IPv4"),
            Chain("pppoe-4k", 4096, up=128, down=650, about="PPPoE both ways, half of the bytes each way"),
        ],
        agf("agf-up-4k", up=128, about="AGF uplink"),
        agf("agf-down-4k", down=504, about="AGF downlink"),
        agf("agf-symmetric", up=650, down=650, about="AGF both ways, 650 B each"),
        agf("agf-asymmetric", up=128, down=504, down_bytes=0.89, about="AGF, 504 B down, 128 B up, bytes 89:11"),
        (
            Chain(
                f"bng-{subscribers}k",
                subscribers * 1000,
                up=1024,
                down=1024,
                pppoe=True,
                metered=True,
                routes=prefixes * 1000,
                about=f"BNG both ways, PPPoE, {prefixes},000 routes, 1,024 B each",
            )
            for subscribers, prefixes in ((128, 100), (192, 150))
        ),
    )
)
