# SPDX-License-Identifier: Apache-2.0
"""Forwarding (RFC 1812, RFC 8200): checks, ICMP, routes, VRFs, fragments."""

from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from lab import frames, thing
from lab.frames import Frame
from lab.laboratory import wait_until
from pop import (
    ACCESS_MAC,
    CORE4,
    CORE6,
    CORE_MAC,
    GATEWAY4,
    GATEWAY6,
    HOST4,
    HOST6,
    HOST_MAC,
    IPOE,
    PPPOE,
    SERVER4,
    SERVER6,
    Pop,
    session,
    udp_down,
    udp_up,
)
from scapy.all import (
    ICMP,
    IP,
    UDP,
    Ether,
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6PacketTooBig,
    ICMPv6TimeExceeded,
    IPerror,
    IPerror6,
    IPOption_RR,
    IPv6,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    Raw,
    fragment,
    fragment6,
)


@pytest.fixture(scope="module")
def pop(lab):
    made = Pop(lab, session(IPOE), session(PPPOE))
    made.learn(IPOE, PPPOE)
    return made


def ip4(**fields):
    return IP(src=IPOE.ip4, dst=SERVER4, **fields) / UDP(sport=1, dport=2) / Raw(b"x" * 32)


def corrupt(packet, at, value):
    raw = bytearray(bytes(packet))
    raw[at] = value
    return bytes(raw)


BAD4 = {
    "ip4-checksum": corrupt(ip4(), 10, 0xAA),
    "ip4-version": corrupt(ip4(), 0, 0x55),
    "ip4-header-length": corrupt(ip4(), 0, 0x44),
    "ip4-truncated": bytes(IP(src=IPOE.ip4, dst=SERVER4, len=200) / Raw(b"x" * 32)),
    "ip4-martian-source": bytes(IP(src="127.0.0.1", dst=SERVER4) / UDP()),
    "this-network": bytes(IP(src=IPOE.ip4, dst="0.1.2.3") / UDP()),
    "loopback-destination": bytes(IP(src=IPOE.ip4, dst="127.0.0.1") / UDP()),
    "class-e": bytes(IP(src=IPOE.ip4, dst="245.0.0.1") / UDP()),
    "multicast-not-for-us": bytes(IP(src=IPOE.ip4, dst="239.1.2.3", ttl=64) / UDP()),
    "ip4-source-route": bytes(ip4(options=[b"\x83\x07\x04\xc0\x00\x02\x09\x00"])),
}
BAD6 = {
    "ip6-version": corrupt(udp_up(IPOE, 6), 0, 0x50),
    "ip6-truncated": bytes(IPv6(src=IPOE.ip6, dst=SERVER6, plen=200) / Raw(b"x" * 32)),
    "ip6-martian-source": bytes(IPv6(src="::1", dst=SERVER6) / UDP()),
    "loopback-destination": bytes(IPv6(src=IPOE.ip6, dst="::1") / UDP()),
    "multicast-not-for-us": bytes(IPv6(src=IPOE.ip6, dst="ff0e::1234") / UDP()),
    "link-local-destination": bytes(IPv6(src=IPOE.ip6, dst="fe80::1234") / UDP()),
}


@pytest.mark.parametrize("reason", BAD4)
def test_a_bad_ipv4_packet_is_a_named_drop(pop, reason):
    frame = Ether(src=IPOE.mac, dst=ACCESS_MAC, type=0x8100)
    tagged = bytes(frame) + bytes.fromhex("006481000001") + b"\x08\x00"
    with pop.dropping(reason):
        pop.access.send(tagged + BAD4[reason])
    pop.not_at_core()


@pytest.mark.parametrize("reason", BAD6)
def test_a_bad_ipv6_packet_is_a_named_drop(pop, reason):
    tagged = bytes(Ether(src=IPOE.mac, dst=ACCESS_MAC, type=0x8100)) + bytes.fromhex("006481000001") + b"\x86\xdd"
    with pop.dropping(reason):
        pop.access.send(tagged + BAD6[reason])
    pop.not_at_core()


def test_a_packet_with_record_route_is_forwarded_with_our_address_in_it(pop):
    pop.send_up(IPOE, ip4(options=[IPOption_RR(routers=["0.0.0.0"] * 2)]))
    recorded = pop.at_core(lambda packet: UDP in packet)[IP].options[0]
    assert (recorded.pointer, recorded.routers) == (8, [CORE4, "0.0.0.0"])


def test_ethernet_padding_does_not_become_part_of_the_packet(pop):
    pop.access.send(
        IPOE.frame(bytes.fromhex(ACCESS_MAC.replace(":", "")), bytes(udp_up(IPOE, payload=b"a"))) + bytes(17)
    )
    got = pop.at_core(lambda packet: UDP in packet)
    assert got[IP].len == 29
    assert got[UDP].len == 9


class TestIcmp:
    @pytest.mark.parametrize("address", [GATEWAY4, CORE4])
    def test_our_addresses_answer_echo_requests(self, pop, address):
        pop.send_up(IPOE, IP(src=IPOE.ip4, dst=address) / ICMP(id=7, seq=3) / Raw(b"question"))
        got = pop.at_line(IPOE, lambda packet: ICMP in packet)
        assert (got[IP].src, got[ICMP].type, got[ICMP].id, got[ICMP].seq) == (address, 0, 7, 3)
        assert bytes(got[Raw]) == b"question"
        got = type(got)(bytes(got))
        chksum = got[ICMP].chksum
        del got[ICMP].chksum
        assert IP(bytes(got))[ICMP].chksum == chksum

    @pytest.mark.parametrize("address", [GATEWAY6, CORE6])
    def test_our_addresses_answer_icmpv6_echo_requests(self, pop, address):
        pop.send_up(PPPOE, IPv6(src=PPPOE.ip6, dst=address) / ICMPv6EchoRequest(id=7, seq=3, data=b"question"))
        got = pop.at_line(PPPOE, lambda packet: ICMPv6EchoReply in packet)
        assert (got[IPv6].src, got[ICMPv6EchoReply].id, got[ICMPv6EchoReply].data) == (address, 7, b"question")

    def test_the_core_host_gets_an_echo_reply_too(self, pop):
        pop.send_down(IP(src=HOST4, dst=CORE4) / ICMP(id=9))
        assert pop.at_core(lambda packet: ICMP in packet)[ICMP].type == 0
        pop.send_down(IPv6(src=HOST6, dst=CORE6) / ICMPv6EchoRequest(id=9))
        assert pop.at_core(lambda packet: ICMPv6EchoReply in packet)[ICMPv6EchoReply].id == 9

    def test_an_expired_ttl_is_reported_with_the_packet_that_expired(self, pop):
        sent = udp_up(IPOE, ttl=1)
        pop.send_up(IPOE, sent)
        got = pop.at_line(IPOE, lambda packet: ICMP in packet)
        assert (got[ICMP].type, got[ICMP].code, got[IP].dst) == (11, 0, IPOE.ip4)
        assert got[IPerror].dst == SERVER4
        pop.send_up(IPOE, udp_up(IPOE, 6, hlim=1))
        got = pop.at_line(IPOE, lambda packet: ICMPv6TimeExceeded in packet)
        assert got[IPerror6].dst == SERVER6

    def test_an_expired_ttl_on_the_way_down_is_reported_to_the_sender(self, pop):
        pop.send_down(udp_down(IPOE, ttl=1))
        assert pop.at_core(lambda packet: ICMP in packet)[ICMP].type == 11
        pop.send_down(udp_down(PPPOE, 6, hlim=1))
        assert pop.at_core(lambda packet: ICMPv6TimeExceeded in packet)[IPv6].dst == SERVER6

    def test_a_closed_udp_port_of_ours_is_reported(self, pop):
        pop.send_up(IPOE, IP(src=IPOE.ip4, dst=GATEWAY4) / UDP(dport=9999))
        got = pop.at_line(IPOE, lambda packet: ICMP in packet)
        assert (got[ICMP].type, got[ICMP].code) == (3, 3)
        pop.send_up(IPOE, IPv6(src=IPOE.ip6, dst=GATEWAY6) / UDP(dport=9999))
        got = pop.at_line(IPOE, lambda packet: ICMPv6DestUnreach in packet)
        assert got[ICMPv6DestUnreach].code == 4

    def test_an_unknown_protocol_is_reported(self, pop):
        pop.send_up(IPOE, IP(src=IPOE.ip4, dst=GATEWAY4, proto=200) / Raw(b"x" * 20))
        got = pop.at_line(IPOE, lambda packet: ICMP in packet)
        assert (got[ICMP].type, got[ICMP].code) == (3, 2)

    def test_an_icmp_error_is_never_answered_with_an_error(self, pop):
        inner = IP(src=SERVER4, dst=IPOE.ip4) / UDP()
        pop.send_up(IPOE, IP(src=IPOE.ip4, dst=SERVER4, ttl=1) / ICMP(type=3, code=3) / inner)
        pop.access.expect_none(lambda raw: pop.from_line(IPOE, raw) is not None)

    def test_a_flood_of_expired_packets_gets_a_limited_number_of_reports(self, pop):
        frame, sent = IPOE.frame(bytes.fromhex(ACCESS_MAC.replace(":", "")), bytes(udp_up(IPOE, ttl=1))), 30_000
        for _ in range(sent):
            pop.access.send(frame)
        reports = sum(pop.from_line(IPOE, raw) is not None for raw in pop.access.burst())
        assert 0 < reports < sent
        assert pop.passes(IPOE)

    @pytest.mark.parametrize("version", [4, 6])
    def test_a_flood_of_expired_packets_from_the_core_gets_few_reports_and_other_traffic_goes_on(self, pop, version):
        old = {"ttl": 1} if version == 4 else {"hlim": 1}
        expired = bytes(Ether(src=HOST_MAC, dst=CORE_MAC) / udp_down(IPOE, version, **old))
        rounds, of_each = 300, 100
        for number in range(rounds):
            for _ in range(of_each):
                pop.core.send(expired)
            pop.send_down(udp_down(IPOE, version, payload=b"%d" % number))
            pop.at_line(IPOE, lambda packet, mark=b"%d" % number: UDP in packet and bytes(packet[UDP].payload) == mark)
        error = ICMP if version == 4 else ICMPv6TimeExceeded
        reports = sum((packet := pop.from_core(raw)) is not None and error in packet for raw in pop.core.burst())
        assert 0 < reports < rounds * of_each


class TestRoute:
    def test_the_longest_prefix_wins(self, pop):
        routes = [
            thing("Route", "wide", prefix="203.0.0.0/16", action="blackhole"),
            thing("Route", "narrow", prefix="203.0.113.0/24", nextHops=[{"address": HOST4}]),
            thing("Route", "single", prefix="203.0.113.9/32", action="blackhole"),
        ]
        with pop.having(*routes):
            pop.send_up(IPOE, udp_up(IPOE, dst="203.0.113.8"))
            assert pop.at_core(lambda packet: UDP in packet)[IP].dst == "203.0.113.8"
            with pop.dropping("blackhole", 2):
                pop.send_up(IPOE, udp_up(IPOE, dst="203.0.113.9"))
                pop.send_up(IPOE, udp_up(IPOE, dst="203.0.1.1"))
            pop.not_at_core()

    @pytest.mark.parametrize("version", [4, 6])
    def test_a_blackhole_sends_no_error(self, pop, version):
        prefix, target = ("203.0.113.0/24", "203.0.113.1") if version == 4 else ("2001:db8:b::/48", "2001:db8:b::1")
        with pop.having(thing("Route", "hole", prefix=prefix, action="blackhole")):
            with pop.dropping("blackhole"):
                pop.send_up(IPOE, udp_up(IPOE, version, dst=target))
            pop.access.expect_none(lambda raw: pop.from_line(IPOE, raw) is not None)

    def test_a_prohibit_route_tells_the_sender(self, pop):
        routes = [
            thing("Route", "no4", prefix="203.0.113.0/24", action="prohibit"),
            thing("Route", "no6", prefix="2001:db8:b::/48", action="prohibit"),
        ]
        with pop.having(*routes), pop.dropping("prohibited", 2):
            pop.send_up(IPOE, udp_up(IPOE, dst="203.0.113.1"))
            got = pop.at_line(IPOE, lambda packet: ICMP in packet)
            assert (got[ICMP].type, got[ICMP].code) == (3, 13)
            pop.send_up(IPOE, udp_up(IPOE, 6, dst="2001:db8:b::1"))
            got = pop.at_line(IPOE, lambda packet: ICMPv6DestUnreach in packet)
            assert got[ICMPv6DestUnreach].code == 1

    def test_without_a_route_the_sender_gets_an_error(self, pop):
        pop.gateway.delete("route", "default4", "default6")
        try:
            with pop.dropping("no-route", 2):
                pop.send_up(IPOE, udp_up(IPOE))
                got = pop.at_line(IPOE, lambda packet: ICMP in packet)
                assert (got[ICMP].type, got[ICMP].code) == (3, 0)
                pop.send_up(IPOE, udp_up(IPOE, 6))
                assert pop.at_line(IPOE, lambda packet: ICMPv6DestUnreach in packet)[ICMPv6DestUnreach].code == 0
        finally:
            pop.apply(*[each for each in Pop.base if each["metadata"]["name"].startswith("default")])

    @pytest.mark.parametrize("version", [4, 6])
    def test_flows_are_spread_over_next_hops_by_weight_and_each_keeps_its_way(self, pop, version):
        hops = [
            ("192.0.2.31", "2001:db8:0:2::31", "02:00:00:00:cc:31", 3),
            ("192.0.2.32", "2001:db8:0:2::32", "02:00:00:00:cc:32", 1),
        ]
        at = version == 6
        objects = [
            thing("Neighbor", f"hop{i}", interface="core", address=hop[at], mac=hop[2]) for i, hop in enumerate(hops)
        ]
        prefix, target = ("203.0.113.0/24", "203.0.113.1") if version == 4 else ("2001:db8:b::/48", "2001:db8:b::1")
        nexthops = [{"address": hop[at], "weight": hop[3]} for hop in hops]
        with pop.having(*objects, thing("Route", "spread", prefix=prefix, nextHops=nexthops)):
            chosen = {}
            for sport in list(range(2000, 2200)) * 2:
                packet = udp_up(IPOE, version, dst=target)
                packet[UDP].sport = sport
                pop.send_up(IPOE, packet)
            for raw in pop.core.burst():
                packet = pop.from_core(raw)
                if packet is not None and UDP in packet:
                    assert chosen.setdefault(packet[UDP].sport, raw[:6]) == raw[:6]
            share = Counter(mac.hex(":") for mac in chosen.values())
            assert sum(share.values()) == 200
            assert share[hops[0][2]] > 1.5 * share[hops[1][2]] > 0

    def test_a_route_goes_with_the_interface_of_its_next_hop_and_comes_back_with_it(self, pop):
        def status():
            return pop.gateway.sluice("describe", "route", "away").stdout

        branch = thing("Interface", "leaving", port="core", outerVlan=31, addresses=["192.0.4.1/24"])
        away = thing("Route", "away", prefix="203.0.113.0/24", nextHops=[{"address": "192.0.4.2"}])
        with pop.having(branch, away):
            assert "applied" in status().lower()
            pop.gateway.delete("Interface", "leaving")
            assert "an interface whose network holds 192.0.4.2 (nextHops[0].address)" in status()
            # The default route takes its packets.
            pop.send_up(IPOE, udp_up(IPOE, dst="203.0.113.1"))
            assert pop.at_core(lambda packet: UDP in packet)[IP].dst == "203.0.113.1"
            pop.apply(branch)
            assert "applied" in status().lower()

    def test_an_interface_that_has_anothers_network_or_no_hosts_address_is_refused_before_it_is_applied(self, pop):
        second = thing("Interface", "second", port="core", outerVlan=32, addresses=["192.0.2.77/24"])
        refused = pop.gateway.apply(second, check=False)
        assert refused.returncode == 1
        assert "addresses[0]: Interface/core already has VRF default, 192.0.2.0/24" in refused.stderr
        refused = pop.gateway.apply(second | {"spec": second["spec"] | {"addresses": ["192.0.5.0/24"]}}, check=False)
        assert refused.returncode == 1
        assert "the network's own address" in refused.stderr

    def test_a_directly_connected_destination_needs_no_route(self, pop):
        pop.send_up(IPOE, udp_up(IPOE, dst=HOST4))
        assert pop.at_core(lambda packet: UDP in packet)[IP].dst == HOST4


FLOWS = range(3000, 3060)
ECMP = [
    thing("Interface", "branch", port="core", outerVlan=30, addresses=["192.0.3.1/24"]),
    thing("Neighbor", "hop1", interface="core", address="192.0.2.31", mac="02:00:00:00:cc:31"),
    thing("Neighbor", "hop2", interface="core", address="192.0.2.32", mac="02:00:00:00:cc:32"),
    thing("Neighbor", "hop3", interface="branch", address="192.0.3.33", mac="02:00:00:00:cc:33"),
]
WAYS = ["192.0.2.31", "192.0.2.32", "192.0.3.33"]


def towards(*hops, name="ways", prefix="203.0.113.0/24"):
    return thing("Route", name, prefix=prefix, nextHops=[{"address": hop} for hop in hops])


def by_flow(raw):
    """Of a UDP packet that left by the core: its flow, and the last byte of its next hop's Ethernet address."""
    frame = Frame.parse(raw)
    if frame.ethertype != frames.IP4 or frame.payload[9] != 17:
        return None
    return int.from_bytes(frame.payload[20:22]), f"{raw[5]:02x}"


class Flows:
    """Flows that send one packet each, round after round, during a change."""

    def __init__(self, pop, *targets, flows=FLOWS):
        self.pop, self.rounds, self.went = pop, 0, defaultdict(list)
        self.packets = {}
        for number, sport in enumerate(flows):
            packet = udp_up(IPOE, dst=targets[number % len(targets)])
            packet[UDP].sport = sport
            self.packets[sport] = IPOE.frame(frames.mac_bytes(ACCESS_MAC), bytes(packet))

    def round(self):
        """One packet of each; where they went this time."""
        now, self.rounds = {}, self.rounds + 1
        for frame in self.packets.values():
            self.pop.access.send(frame)
        for raw in self.pop.core.frames(20, quiet=1):
            if (found := by_flow(raw)) and found[0] in self.packets:
                now[found[0]] = found[1]
                self.went[found[0]].append(found[1])
                if len(now) == len(self.packets):
                    break
        return now

    def during(self, change):
        with ThreadPoolExecutor(1) as pool:
            doing = pool.submit(change)
            while not doing.done():
                self.round()
            doing.result()

    def unharmed(self, flows=None):
        """All packets of these flows have arrived, by one way each."""
        return all(len(self.went[flow]) == self.rounds and len(set(self.went[flow])) == 1 for flow in flows)

    def arrived(self):
        return all(len(self.went[flow]) == self.rounds for flow in self.packets)


class TestChange:
    @pytest.fixture(scope="class", autouse=True)
    def hops(self, pop):
        pop.apply(*ECMP)
        yield
        for each in reversed(ECMP):
            pop.gateway.delete(each["kind"], each["metadata"]["name"])

    @pytest.fixture
    def flows(self, pop):
        with pop.having(towards(*WAYS)):
            pop.drain()
            made = Flows(pop, "203.0.113.1")
            assert set(made.round().values()) == {"31", "32", "33"}
            yield made

    def test_a_next_hop_taken_from_a_route_in_use_loses_no_packet(self, pop, flows):
        flows.during(lambda: pop.apply(towards("192.0.2.31", "192.0.3.33")))
        assert set(flows.round().values()) == {"31", "33"}
        assert flows.arrived()

    def test_routes_follow_their_next_hop_group_without_a_packet_lost(self, pop):
        def group(*hops):
            return thing("NextHopGroup", "shared", nextHops=[{"address": hop} for hop in hops])

        targets = ["203.0.113.1", "198.18.0.1"]
        routes = [
            thing("Route", f"by-group-{i}", prefix=f"{t}/32", nextHopGroup="shared") for i, t in enumerate(targets)
        ]
        with pop.having(group(*WAYS), *routes):
            pop.drain()
            flows = Flows(pop, *targets)
            first = flows.round()
            assert set(first.values()) == {"31", "32", "33"}
            stay = [flow for flow in FLOWS if first[flow] != "32"]
            flows.during(lambda: pop.apply(group("192.0.3.33", "192.0.2.31")))
            assert set(flows.round().values()) == {"31", "33"}
            assert flows.arrived()
            assert flows.unharmed(stay)
            # The routes are as they were.
            assert "applied" in pop.gateway.sluice("describe", "route", "by-group-0").stdout.lower()

    def test_a_next_hop_that_answers_no_more_leaves_its_flows_to_the_others_and_gets_them_back(self, pop, flows):
        first = flows.round()
        others = [flow for flow in FLOWS if first[flow] != "32"]
        flows.during(lambda: pop.gateway.delete("Neighbor", "hop2"))
        assert wait_until(lambda: len(now := flows.round()) == len(FLOWS) and "32" not in now.values(), 20)
        assert flows.unharmed(others)
        flows.during(lambda: pop.apply(ECMP[2]))
        assert wait_until(lambda: flows.round() == first, 20)
        assert flows.unharmed(others)

    def test_a_next_hop_whose_interface_goes_leaves_its_flows_to_the_others(self, pop, flows):
        first = flows.round()
        others = [flow for flow in FLOWS if first[flow] != "33"]

        def go():
            pop.gateway.delete("Neighbor", "hop3")
            pop.gateway.delete("Interface", "branch")

        flows.during(go)
        assert wait_until(lambda: set(flows.round().values()) == {"31", "32"}, 20)
        assert len(flows.round()) == len(FLOWS)
        assert flows.unharmed(others)
        flows.during(lambda: pop.apply(ECMP[0], ECMP[3]))
        assert wait_until(lambda: flows.round() == first, 20)
        assert flows.unharmed(others)

    def test_a_route_and_a_next_hop_in_use_change_without_a_packet_lost(self, pop):
        other, mac = "198.18.0.1", "02:00:00:00:cc:"

        def change():
            for number in range(4):
                pop.apply(towards(WAYS[number % 2], name="moving"))
                pop.apply(ECMP[1] | {"spec": ECMP[1]["spec"] | {"mac": f"{mac}4{number}"}})
            pop.apply(ECMP[1])

        with pop.having(towards(WAYS[0], name="moving"), towards(WAYS[2], name="still", prefix="198.18.0.0/24")):
            pop.drain()
            flows = Flows(pop, "203.0.113.1", other)
            flows.during(change)
            assert set(flows.round().values()) == {"32", "33"}
            assert flows.arrived()
            assert flows.unharmed(flow for number, flow in enumerate(FLOWS) if number % 2)


class TestVrf:
    @pytest.fixture(scope="class", autouse=True)
    def red(self, pop):
        objects = [
            thing("Vrf", "red"),
            thing(
                "Interface",
                "red",
                port="core",
                outerVlan=20,
                vrf="red",
                addresses=["192.0.2.1/24", "2001:db8:0:2::1/64"],
            ),
            thing("Neighbor", "red4", interface="red", address=HOST4, mac="02:00:00:00:cc:20"),
            thing("Route", "red4", vrf="red", prefix="0.0.0.0/0", nextHops=[{"address": HOST4}]),
            # The very same addresses as another session has in the default VRF.
            session(PPPOE, {"innerVlan": 22}, vrf="red") | {"metadata": {"name": "red"}},
        ]
        pop.apply(*objects)
        yield
        for each in reversed(objects):
            pop.gateway.delete(each["kind"], each["metadata"]["name"])

    def test_the_same_addresses_in_two_vrfs_do_not_meet(self, pop):
        from lab import Line

        red = Line("red", PPPOE.mac, PPPOE.ip4, PPPOE.ip6, (100, 22), pppoe=7)
        pop.send_up(red, udp_up(red))
        raw = pop.core.expect(lambda raw: raw if raw[12:14] == b"\x81\x00" else None)
        assert raw[:6].hex(":") == "02:00:00:00:cc:20"
        assert int.from_bytes(raw[14:16]) & 0xFFF == 20
        pop.send_up(PPPOE, udp_up(PPPOE))
        assert pop.core.expect(lambda raw: raw if raw[:6].hex(":") == HOST_MAC else None)[12:14] == b"\x08\x00"

    def test_a_packet_down_reaches_the_session_of_its_own_vrf(self, pop):
        from lab import Line

        red = Line("red", PPPOE.mac, PPPOE.ip4, PPPOE.ip6, (100, 22), pppoe=7)
        down = Ether(src="02:00:00:00:cc:20", dst=CORE_MAC, type=0x8100) / Raw(
            b"\x00\x14\x08\x00" + bytes(udp_down(red))
        )
        pop.core.send(bytes(down))
        assert pop.at_line(red)[IP].dst == red.ip4
        pop.send_down(udp_down(PPPOE))
        assert pop.at_line(PPPOE)[IP].dst == PPPOE.ip4


class TestFragmentation:
    @pytest.fixture(scope="class", autouse=True)
    def narrow(self, pop):
        pop.apply(thing("Interface", "core", port="core", addresses=[f"{CORE4}/24", f"{CORE6}/64"], mtu=1300))
        yield
        pop.apply(thing("Interface", "core", port="core", addresses=[f"{CORE4}/24", f"{CORE6}/64"]))

    def test_an_ipv4_packet_that_may_be_is_fragmented(self, pop):
        payload = bytes(range(256)) * 5 + b"tail" * 15
        pop.send_up(IPOE, udp_up(IPOE, payload=payload, id=77))
        pieces = [pop.at_core(lambda packet: IP in packet and packet[IP].id == 77) for _ in range(2)]
        assert all(piece.len <= 1300 for piece in pieces)
        whole = b"".join(bytes(piece)[20:] for piece in sorted(pieces, key=lambda piece: piece.frag))
        assert whole[8:] == payload
        for piece in pieces:
            before = piece.chksum
            del piece.chksum
            assert IP(bytes(piece)).chksum == before

    def test_one_that_must_not_be_is_reported(self, pop):
        with pop.dropping("fragmentation-needed"):
            pop.send_up(IPOE, udp_up(IPOE, payload=bytes(1400), flags="DF"))
            got = pop.at_line(IPOE, lambda packet: ICMP in packet)
            assert (got[ICMP].type, got[ICMP].code, got[ICMP].nexthopmtu) == (3, 4, 1300)

    def test_an_ipv6_packet_is_reported_with_the_mtu(self, pop):
        with pop.dropping("packet-too-big"):
            pop.send_up(IPOE, udp_up(IPOE, 6, payload=bytes(1400)))
            assert pop.at_line(IPOE, lambda packet: ICMPv6PacketTooBig in packet)[ICMPv6PacketTooBig].mtu == 1300


class TestReassembly:
    @pytest.mark.parametrize("order", ["forwards", "backwards"])
    def test_an_echo_request_in_fragments_is_answered(self, pop, order):
        question = bytes(range(256)) * 8
        pieces = fragment(IP(src=IPOE.ip4, dst=GATEWAY4, id=99) / ICMP(id=5) / Raw(question), 600)
        for piece in pieces if order == "forwards" else reversed(pieces):
            pop.send_up(IPOE, piece)
        answer = {}
        for raw in pop.access.burst():
            packet = pop.from_line(IPOE, raw)
            if packet is not None and IP in packet and packet[IP].proto == 1:
                answer[packet[IP].frag] = bytes(packet)[20:]
        whole = b"".join(answer[at] for at in sorted(answer))
        assert whole[0] == 0
        assert whole[8:] == question

    def test_an_icmpv6_echo_request_in_fragments_is_answered(self, pop):
        question = bytes(range(256)) * 8
        packet = IPv6(src=IPOE.ip6, dst=GATEWAY6) / IPv6ExtHdrFragment(id=5) / ICMPv6EchoRequest(data=question)
        for piece in fragment6(packet, 900):
            pop.send_up(IPOE, piece)
        got = pop.at_line(IPOE, lambda packet: IPv6 in packet and packet[IPv6].src == GATEWAY6)
        assert got[IPv6].dst == IPOE.ip6
        assert b"\x81\x00" in bytes(got[IPv6].payload)[:10], "an echo reply, in the first fragment"

    def test_overlapping_fragments_are_a_named_drop(self, pop):
        first = IPv6(src=IPOE.ip6, dst=GATEWAY6) / IPv6ExtHdrFragment(id=6, m=1, nh=58) / Raw(bytes(64))
        second = IPv6(src=IPOE.ip6, dst=GATEWAY6) / IPv6ExtHdrFragment(id=6, m=0, offset=4, nh=58) / Raw(bytes(64))
        with pop.dropping("fragment-not-whole", 2):
            pop.send_up(IPOE, first)
            pop.send_up(IPOE, second)

    def test_fragments_that_are_not_for_us_pass_as_they_are(self, pop):
        pieces = fragment(udp_up(IPOE, payload=bytes(2000), id=55), 1000)
        for piece in pieces:
            pop.send_up(IPOE, piece)
        got = [pop.at_core(lambda packet: IP in packet and packet[IP].id == 55) for _ in pieces]
        assert [piece.frag for piece in got] == [piece.frag for piece in pieces]


def test_an_ipv6_packet_with_hop_by_hop_options_is_forwarded(pop):
    pop.send_up(IPOE, IPv6(src=IPOE.ip6, dst=SERVER6) / IPv6ExtHdrHopByHop() / UDP(dport=7) / Raw(b"x"))
    assert pop.at_core(lambda packet: IPv6 in packet and packet[IPv6].dst == SERVER6)[IPv6].nh == 0
