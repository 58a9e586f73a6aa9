# SPDX-License-Identifier: Apache-2.0
"""Changes of objects of each kind under traffic: no other session loses a packet, and a peer sees the change.

All sessions have an access list and meters, and share both ports, the core interface and its neighbours; two are in
GTP-U. A third port, `spare`, leads to a wire of its own.
"""

import contextlib
import time
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import pytest
from contract import Connection, api
from lab import Line, Wire, frames, thing
from lab.frames import Frame
from lab.load import DOWN, MAGIC, UP
from lab.upf import GPDU, Message
from lab.upf import PORT as GTPU_PORT
from pop import CORE4, CORE6, CORE_MAC, GATEWAY4, GATEWAY6, HOST4, HOST_MAC, Pop, session, tunnel, udp_down, udp_up
from scapy.all import ICMP, IP, TCP, UDP, IPv6

# Packets of this line, one of those under load, observe the change.
PROBE = Line("probe", "02:00:00:00:07:01", "100.64.7.1", "2001:db8:7:1::1", (700, 1))
TUNNEL = Line("tunnel", "02:00:00:00:07:02", "100.64.7.2", "2001:db8:7:2::1", (700, 2), teid_up=72, teid_down=71)
LINES = [
    PROBE,
    TUNNEL,
    Line("other-1", "02:00:00:00:07:03", "100.64.7.3", "2001:db8:7:3::1", (700, 3)),
    Line("other-2", "02:00:00:00:07:04", "100.64.7.4", "2001:db8:7:4::1", (700, 4), pppoe=4),
    Line("other-3", "02:00:00:00:07:05", "100.64.7.5", "2001:db8:7:5::1", (700, 5), teid_up=75, teid_down=74),
    Line("other-4", "02:00:00:00:07:06", "100.64.7.6", "2001:db8:7:6::1", (700, 6), pppoe=6, teid_up=78, teid_down=77),
]
SECOND4, SECOND_MAC, NEW_MAC, SPARE_MAC = "192.0.2.3", "02:00:00:00:cc:03", "02:00:00:00:cc:04", "02:00:00:00:aa:03"
# A network that is only beyond the spare port.
AWAY = "198.18.0.1"
POLICY = {"aclUp": "filter", "aclDown": "filter", "meterUp": "wide", "meterDown": "wide"}


def subscriber(line, policy=None, **spec):
    """A line's session with the common policy, except the given fields."""
    core = {"gtpu": tunnel(line, pduSessionContainer=True, qfi=9)} if line.teid_down else {}
    policy = {field: name for field, name in (POLICY | (policy or {})).items() if name}
    return session(line, **({"policy": policy} | core | spec))


def interface(**spec):
    return thing("Interface", "core", **({"port": "core", "addresses": [f"{CORE4}/24", f"{CORE6}/64"]} | spec))


def loopback(*more):
    return thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32", f"{GATEWAY6}/128", *more])


def port(name="core", **spec):
    device = {"core": "net_af_packet1,iface=core0,framecnt=4096", "spare": "net_af_packet2,iface=oth0"}[name]
    return thing("Port", name, **({"device": device, "mac": {"core": CORE_MAC, "spare": SPARE_MAC}[name]} | spec))


def default(*hops, **spec):
    return thing(
        "Route", "default4", prefix="0.0.0.0/0", nextHops=[{"address": a, "weight": w} for a, w in hops], **spec
    )


def neighbor(mac):
    return thing("Neighbor", "host4", interface="core", address=HOST4, mac=mac)


def acl(*denied):
    return thing("Acl", "filter", otherwise="permit", rules=[{"action": "deny"} | rule for rule in denied])


def wide(**spec):
    return thing("Meter", "wide", **({"algorithm": "srtcm", "committedRate": "1G", "committedBurst": "1MB"} | spec))


def spare(vrf="default", **more):
    """The spare port's interface in this VRF, its neighbour, and the way to AWAY."""
    return [
        thing("Vrf", "red"),
        port("spare", **more),
        thing("Interface", "spare", port="spare", addresses=["203.0.113.1/24"], vrf=vrf),
        thing("Neighbor", "beyond", interface="spare", address="203.0.113.2", mac=SECOND_MAC),
        thing("Route", "away", prefix="198.18.0.0/15", nextHops=[{"address": "203.0.113.2"}], vrf=vrf),
    ]


def no_mail(port=9):
    return {"protocol": "udp", "destinationPorts": str(port)}


# ---- Observations of a peer: each function sends a packet and returns its fate.


class Fate(NamedTuple):
    """Where a packet came out (`line`, `core`, `spare`, or the name of its drop) and how."""

    where: str
    frame: Frame = None
    packet: object = None


def at_core(eye, raw):
    """The IP packet in a frame at the core; None: the load's, neighbour discovery, a GTP-U echo request."""
    packet = eye.from_core(raw) if MAGIC not in raw else None
    if packet is None or (IPv6 in packet and packet[IPv6].hlim == 255):
        return None
    if UDP in packet and packet[UDP].dport == GTPU_PORT and Message.parse(bytes(packet[UDP].payload)).kind != GPDU:
        return None
    return packet


def at_line(eye, raw):
    packet = eye.from_line(PROBE, raw) if MAGIC not in raw else None
    return None if packet is None or (IPv6 in packet and packet[IPv6].hlim == 255) else packet


def fate(eye, send, drop=None):
    """The first packet of a test on any wire, or else the drop of this name."""
    before = eye.gateway.drops().get(drop, 0) if drop else 0
    for wire in (eye.access, eye.core, eye.spare):
        wire.drain()
    send()
    end, look = time.monotonic() + 20, time.monotonic() + 0.1
    while time.monotonic() < end:
        for where, wire, parse in (
            ("line", eye.access, at_line),
            ("core", eye.core, at_core),
            ("spare", eye.spare, at_core),
        ):
            while (raw := wire.read()) is not None:
                if packet := parse(eye, raw):
                    return Fate(where, Frame.parse(raw), packet)
        if drop and time.monotonic() > look:
            if eye.gateway.drops().get(drop, 0) > before:
                return Fate(drop)
            look = time.monotonic() + 0.1
        time.sleep(0.001)
    raise AssertionError(f"neither came out nor was dropped; drops are {eye.gateway.drops()}")


def up(eye, packet, drop=None, line=PROBE):
    return fate(eye, lambda: eye.send_up(line, packet), drop)


def down(eye, packet, drop=None):
    return fate(eye, lambda: eye.send_down(packet), drop)


def mtu_of_core(eye):
    """The MTU in the ICMP error for a packet of 1,450 bytes, or 0 if it passes."""
    packet = up(eye, udp_up(PROBE, payload=bytes(1422), flags="DF")).packet
    return packet[ICMP].nexthopmtu if ICMP in packet else 0


def mtu_of_session(eye):
    packet = down(eye, udp_down(PROBE, payload=bytes(1422), flags="DF")).packet
    return packet[ICMP].nexthopmtu if ICMP in packet else 0


def answers(address):
    """Whether a ping of this address from the core is answered; else it is sent on, by the default route."""

    def ping(eye):
        packet = down(eye, IP(src=HOST4, dst=address) / ICMP(id=7)).packet
        return packet[ICMP].type == 0

    return ping


def next_hop(eye):
    return frames.mac_text(up(eye, udp_up(PROBE)).frame.destination)


def share_of_second(eye):
    """How 100 flows are spread over two next hops."""
    eye.core.drain()
    for number in range(100):
        packet = udp_up(PROBE)
        packet[UDP].sport = 2000 + number
        eye.send_up(PROBE, packet)
    seen = Counter()
    for raw in eye.core.frames(20):
        if at_core(eye, raw):
            seen[frames.mac_text(raw[:6])] += 1
        if seen.total() == 100:
            break
    assert seen.total() == 100
    return next(
        name for least, name in ((75, "most"), (25, "half"), (1, "some"), (0, "none")) if seen[SECOND_MAC] >= least
    )


def mail_up(eye):
    return up(eye, IP(src=PROBE.ip4, dst="198.51.100.1") / UDP(sport=9, dport=9), "acl-denied").where


def mail_down(eye):
    return down(eye, IP(src="198.51.100.1", dst=PROBE.ip4) / UDP(sport=9, dport=9), "acl-denied").where


def limited(eye):
    """Whether a burst of 10,000 bytes is more than the meter passes: looked at when a packet behind it comes out."""
    eye.core.drain()
    for _ in range(20):
        eye.send_up(PROBE, udp_up(PROBE, payload=bytes(472)))
    eye.send_up(LINES[2], udp_up(LINES[2], payload=b"behind"))
    passed = 0
    for raw in eye.core.frames(20):
        if b"behind" in raw:
            return passed < 20
        passed += at_core(eye, raw) is not None
    raise AssertionError(f"{passed} of 20 packets passed, and none behind them")


def announced_mss(eye):
    syn = IP(src=PROBE.ip4, dst="198.51.100.1") / TCP(dport=80, flags="S", options=[("MSS", 1460)])
    return dict(up(eye, syn).packet[TCP].options)["MSS"]


def foreign_source(eye):
    return up(eye, udp_up(PROBE, src="100.64.77.1"), "session-source").where


def foreign_target(eye):
    return down(eye, udp_down(PROBE, dst="100.64.77.1")).where


def core_of_probe(eye):
    """The TEID of an uplink packet, 0 if it is in no tunnel."""
    return teid(up(eye, udp_up(PROBE)).packet)


def teid_of_tunnel(eye):
    return teid(up(eye, udp_up(TUNNEL), line=TUNNEL).packet)


def container_of_tunnel(eye):
    return Message.parse(bytes(up(eye, udp_up(TUNNEL), line=TUNNEL).packet[UDP].payload)).container


def teid(packet):
    return Message.parse(bytes(packet[UDP].payload)).teid if packet[UDP].dport == 2152 else 0


def ways(eye):
    """Where packets for AWAY and for the rest of the world come out; on the line, because there is no way to it."""
    return up(eye, udp_up(PROBE, dst=AWAY)).where, up(eye, udp_up(PROBE)).where


def source_of_spare(eye):
    found = up(eye, udp_up(PROBE, dst=AWAY))
    return found.where, frames.mac_text(found.frame.source)


def from_another_vlan(eye):
    return up(eye, udp_up(PROBE), "unknown-circuit", replace(PROBE, vlans=(700, 77))).where


class Change(NamedTuple):
    """From objects to others and back; the observations of a peer; lines whose own packets may be lost."""

    before: list
    after: list
    effect: object
    sees: tuple
    disturbs: tuple = ()


ANY_SOURCE = {"anySource": True}
MORE = [f"{PROBE.ip4}/32", "2001:db8:7:1::/64", "100.64.77.0/24"]
CHANGES = {
    "an interface's MTU": Change([interface()], [interface(mtu=1400)], mtu_of_core, (0, 1400)),
    "an interface's addresses": Change(
        [interface()],
        [interface(addresses=[f"{CORE4}/24", "203.0.113.1/24", f"{CORE6}/64"])],
        answers("203.0.113.1"),
        (False, True),
    ),
    "a loopback's addresses": Change([loopback()], [loopback("203.0.113.9/32")], answers("203.0.113.9"), (False, True)),
    "an interface's list on the way in": Change(
        [thing("Acl", "mail", otherwise="permit", rules=[{"action": "deny"} | no_mail()]), interface()],
        [interface(aclIn="mail")],
        mail_down,
        ("line", "acl-denied"),
    ),
    "an interface's list on the way out": Change(
        [thing("Acl", "mail", otherwise="permit", rules=[{"action": "deny"} | no_mail()]), interface()],
        [interface(aclOut="mail")],
        mail_up,
        ("core", "acl-denied"),
    ),
    "a port's MTU": Change([port()], [port(mtu=1400)], mtu_of_core, (0, 1400)),
    "a port's MAC": Change(spare(), spare(mac=NEW_MAC), source_of_spare, (("spare", SPARE_MAC), ("spare", NEW_MAC))),
    "a port that is replaced with all that is on it": Change(
        spare(), spare(device="net_af_packet3,iface=oth0"), ways, (("spare", "core"), ("spare", "core"))
    ),
    "a session that moves to a new VRF with an interface": Change(
        [*spare(), subscriber(PROBE)],
        [*spare("red"), subscriber(PROBE, vrf="red")],
        ways,
        (("spare", "core"), ("spare", "line")),
        (PROBE,),
    ),
    "a route's next hop": Change(
        [thing("Neighbor", "second", interface="core", address=SECOND4, mac=SECOND_MAC), default((HOST4, 1))],
        [default((SECOND4, 1))],
        next_hop,
        (HOST_MAC, SECOND_MAC),
    ),
    "a route's second next hop": Change(
        [thing("Neighbor", "second", interface="core", address=SECOND4, mac=SECOND_MAC), default((HOST4, 1))],
        [default((HOST4, 1), (SECOND4, 1))],
        share_of_second,
        ("none", "half"),
    ),
    "a next hop's weight": Change(
        [
            thing("Neighbor", "second", interface="core", address=SECOND4, mac=SECOND_MAC),
            default((HOST4, 1), (SECOND4, 1)),
        ],
        [default((HOST4, 1), (SECOND4, 9))],
        share_of_second,
        ("half", "most"),
    ),
    "a neighbour's address": Change([neighbor(HOST_MAC)], [neighbor(NEW_MAC)], next_hop, (HOST_MAC, NEW_MAC)),
    "a list's rules": Change([acl(no_mail(99))], [acl(no_mail(99), no_mail())], mail_up, ("core", "acl-denied")),
    "a meter's algorithm and rates": Change(
        [wide()],
        [wide(algorithm="trtcm", committedRate="500M", peakRate="2G", excessBurst="2MB")],
        limited,
        (False, False),
    ),
    "a meter's rates that are too small": Change(
        [thing("Meter", "own", committedRate="1G", committedBurst="1MB"), subscriber(PROBE, {"meterUp": "own"})],
        [thing("Meter", "own", committedRate="8K", committedBurst="1KB")],
        limited,
        (False, True),
        (PROBE,),
    ),
    "a session's meter": Change(
        [thing("Meter", "own", committedRate="8K", committedBurst="1KB"), subscriber(PROBE)],
        [subscriber(PROBE, {"meterUp": "own"})],
        limited,
        (False, True),
        (PROBE,),
    ),
    "a session's list": Change(
        [thing("Acl", "mail", otherwise="permit", rules=[{"action": "deny"} | no_mail()]), subscriber(PROBE)],
        [subscriber(PROBE, {"aclUp": "mail"})],
        mail_up,
        ("core", "acl-denied"),
    ),
    "a session's policy that goes": Change(
        [acl(no_mail()), subscriber(PROBE)],
        [subscriber(PROBE, dict.fromkeys(POLICY))],
        mail_up,
        ("acl-denied", "core"),
    ),
    "a session's MSS": Change([subscriber(PROBE)], [subscriber(PROBE, {"mss": 1300})], announced_mss, (1460, 1300)),
    "a session's MTU": Change([subscriber(PROBE)], [subscriber(PROBE, {"mtu": 1400})], mtu_of_session, (0, 1400)),
    "a session's sources": Change(
        [subscriber(PROBE)], [subscriber(PROBE, ANY_SOURCE)], foreign_source, ("session-source", "core")
    ),
    "a session's addresses": Change(
        [subscriber(PROBE)], [subscriber(PROBE, addresses=MORE)], foreign_target, ("core", "line")
    ),
    "a session's VLAN": Change(
        [subscriber(PROBE)],
        [subscriber(PROBE, access={"innerVlan": 77})],
        from_another_vlan,
        ("unknown-circuit", "core"),
        (PROBE,),
    ),
    "a session's core, from routed to GTP-U": Change(
        [subscriber(PROBE)],
        [subscriber(PROBE, gtpu=tunnel(PROBE, localTeid=8, remoteTeid=9))],
        core_of_probe,
        (0, 9),
        (PROBE,),
    ),
    "a tunnel's TEID": Change(
        [subscriber(TUNNEL)],
        [subscriber(TUNNEL, gtpu=tunnel(TUNNEL, remoteTeid=7777))],
        teid_of_tunnel,
        (72, 7777),
        (TUNNEL,),
    ),
    "a tunnel's QFI": Change(
        [subscriber(TUNNEL)],
        [subscriber(TUNNEL, gtpu=tunnel(TUNNEL, pduSessionContainer=True, qfi=5))],
        container_of_tunnel,
        ((1, 9), (1, 5)),
    ),
}


# The core host answers no echo request, so that requests are on the wire among the packets of each test.
ECHO = thing("GtpuPeer", "host", address=HOST4, echoInterval="100ms", responseTime="50ms", requests=1)
BASE = {(each["kind"], each["metadata"]["name"]): each for each in [
    *Pop.base, ECHO, acl(), wide(), *(subscriber(line) for line in LINES)]}  # fmt: skip


@pytest.fixture(scope="module")
def pop(lab):
    return Pop(lab, base=[*BASE.values()])


@pytest.fixture(scope="module")
def load(pop):
    made = pop.load(LINES, 1000)
    yield made
    made.close()


@pytest.fixture(scope="module")
def eye(lab, pop, load):
    other = pop.beside()
    pop.inside.link("oth0", pop.outside, "spare")
    pop.inside.silent("oth0")
    pop.outside.silent("spare")
    other.spare = Wire(pop.outside, "spare")
    lab.on_close(other.spare.close)
    return other


@contextlib.contextmanager
def losing_nothing(load, disturbed=()):
    load.forget()
    assert load.warm_up() == []
    yield
    assert load.has_sent(200)
    others = [number for number, line in enumerate(LINES) if line not in disturbed]
    load.pause(others)
    lost = {LINES[number].name: (load.lost(UP, [number]), load.lost(DOWN, [number])) for number in others}
    assert all(each == (0, 0) for each in lost.values()), lost


def put_back(pop, change):
    """Restores the state before the test, in whatever state it ended."""
    touched = dict.fromkeys((each["kind"], each["metadata"]["name"]) for each in (*change.before, *change.after))
    if base := [BASE[key] for key in touched if key in BASE]:
        pop.apply(*base)
    for kind, name in reversed([key for key in touched if key not in BASE]):
        pop.gateway.delete(kind, name)


@pytest.mark.parametrize("name", CHANGES)
def test_a_peer_sees_the_change_and_no_other_loses_a_packet(pop, load, eye, name):
    change = CHANGES[name]
    before, after = change.sees
    try:
        pop.apply(*change.before)
        with losing_nothing(load, change.disturbs):
            assert change.effect(eye) == before
            pop.apply(*change.after)
            assert change.effect(eye) == after
            pop.apply(*change.before)
            assert change.effect(eye) == before
    finally:
        put_back(pop, change)


NEW = Line("other", "02:00:00:00:08:01", "100.64.8.1", vlans=(500, 1), teid_up=82, teid_down=81)
OTHERS = {
    "a session": [session(replace(NEW, teid_up=0, teid_down=0))],
    "a session in GTP-U": [
        session(NEW, gtpu=tunnel(NEW)),
    ],
    "a route": [thing("Route", "other", prefix="203.0.113.0/24", action="blackhole")],
    "an interface": [thing("Interface", "other", port="access", outerVlan=600, addresses=["203.0.113.1/24"])],
    "a VRF with a route": [
        thing("Vrf", "other"),
        thing("Route", "inside", vrf="other", prefix="::/0", action="prohibit"),
    ],
    "an access list": [thing("Acl", "other", otherwise="deny", rules=[{"action": "permit", "protocol": "tcp"}])],
    "a meter": [thing("Meter", "other", algorithm="srtcm", committedRate="1M", committedBurst="64KB")],
    "a neighbour": [thing("Neighbor", "other", interface="core", address="192.0.2.200", mac="02:00:00:00:cc:99")],
    "a port": [thing("Port", "other", device="net_null0")],
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_object_comes_and_goes_without_a_lost_packet_of_another(pop, load, name):
    with losing_nothing(load):
        for _ in range(3):
            with pop.having(*OTHERS[name]):
                time.sleep(0.1)


def test_changes_in_quick_succession_lose_nothing(pop, load):
    """Harmless changes, over and over by the data plane's own API; then the agent restores its state."""
    calm = [each for each in CHANGES.values() if not each.disturbs and named(each.before).isdisjoint(named(spare()))]
    with Connection(pop.gateway.dataplane_socket) as connection:
        states = []
        for change in calm:
            pop.apply(*change.before)
            pop.apply(*change.after)
            states.append(connection.ask(list=api.List(limit=1000)).objects.objects)
        pop.gateway.agent.kill()
        with losing_nothing(load):
            count, end = 0, time.monotonic() + 3
            while time.monotonic() < end or count <= 100:
                for state in states:
                    results = connection.ask(put=api.Put(objects=state)).results.results
                    assert all(each.code == 0 for each in results), results
                    count += 1
    with losing_nothing(load):
        pop.gateway.start_agent()
        pop.apply(*BASE.values())
    for kind, name in named(pop.gateway.json("get", "all")) - set(BASE):
        pop.gateway.delete(kind, name)


def test_a_neighbours_changes_send_no_packet_round_by_the_main_thread(pop, load):
    """It may be too busy with changes to take them all."""
    pop.gateway.agent.kill()
    with Connection(pop.gateway.dataplane_socket) as connection:

        def resolved():
            nodes = connection.read(api.NodeCountersQuery()).nodes
            return sum(each.packets for each in nodes if each.node == "neighbor-glean")

        with losing_nothing(load):
            before, end = resolved(), time.monotonic() + 1
            while time.monotonic() < end:
                connection.put(neighbor(NEW_MAC))
                connection.put(neighbor(HOST_MAC))
            assert resolved() == before
    pop.gateway.start_agent()


def named(objects):
    return {(each["kind"], each["metadata"]["name"]) for each in objects}
