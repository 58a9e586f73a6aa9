# SPDX-License-Identifier: Apache-2.0
"""Sessions: matching of access frames, permitted sources, and changes under traffic."""

import pytest
from lab import Gateway, Line, Wire, frames, thing
from lab.frames import Frame
from lab.gateway import Refused
from pop import ACCESS_MAC, IPOE, PPPOE, SERVER4, Pop, session, udp_down, udp_up
from scapy.all import IP, TCP, UDP, ICMPv6DestUnreach, IPv6

UNTAGGED = Line("untagged", "02:00:00:00:01:03", "100.64.0.13", "2001:db8:1:3::1")
SINGLE = Line("single", "02:00:00:00:01:04", "100.64.0.14", "2001:db8:1:4::1", vlans=(300,))
SHARED_A = Line("shared-a", "02:00:00:00:01:05", "100.64.0.15", "2001:db8:1:5::1", vlans=(100, 5))
SHARED_B = Line("shared-b", "02:00:00:00:01:06", "100.64.0.16", "2001:db8:1:6::1", vlans=(100, 5))
LINES = [IPOE, PPPOE, UNTAGGED, SINGLE, SHARED_A, SHARED_B]
TPIDS = [(outer, inner) for outer in frames.TPIDS for inner in frames.TPIDS]


@pytest.fixture(scope="module")
def pop(lab):
    made = Pop(lab)
    with_mac = {line.name: {"mac": line.mac} for line in (SHARED_A, SHARED_B)}
    made.apply(*(session(line, with_mac.get(line.name)) for line in LINES))
    return made


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_a_packet_passes_up_and_down_in_its_own_encapsulation(pop, line, version):
    assert pop.passes(line, version)


def test_two_subscribers_of_one_vlan_are_distinguished_by_mac(pop):
    pop.learn(SHARED_A, SHARED_B)
    pop.send_down(udp_down(SHARED_B))
    assert pop.at_line(SHARED_B)[IP].dst == SHARED_B.ip4
    counters = pop.gateway.json("get", "session", "shared-a", "shared-b")
    assert {each["metadata"]["name"] for each in counters} == {"shared-a", "shared-b"}


def test_a_frame_from_a_third_mac_of_a_shared_vlan_is_a_named_drop(pop):
    stranger = Line("stranger", "02:00:00:00:01:77", SHARED_A.ip4, vlans=(100, 5))
    with pop.dropping("unknown-circuit"):
        pop.send_up(stranger, udp_up(stranger))
        pop.not_at_core()


def test_an_unknown_vlan_pair_is_a_named_drop(pop):
    stranger = Line("stranger", "02:00:00:00:01:78", "100.64.0.99", vlans=(100, 99))
    with pop.dropping("unknown-circuit"):
        pop.send_up(stranger, udp_up(stranger))
        pop.not_at_core()


def test_a_third_tag_is_a_named_drop(pop):
    inside = Frame.parse(IPOE.frame(frames.mac_bytes(ACCESS_MAC), bytes(udp_up(IPOE))))
    with pop.dropping("too-many-tags"):
        pop.access.send(inside._replace(tags=(*inside.tags, (0x8100, 3))).pack())
        pop.not_at_core()


def test_a_frame_for_another_mac_is_a_named_drop(pop):
    with pop.dropping("not-our-mac"):
        pop.send_up(IPOE, udp_up(IPOE), destination="02:00:00:00:ff:ff")
        pop.not_at_core()


@pytest.mark.parametrize("version", [4, 6])
def test_a_source_that_is_not_the_sessions_is_a_named_drop(pop, version):
    with pop.dropping("session-source"):
        pop.send_up(IPOE, udp_up(PPPOE, version))
        pop.not_at_core()


def test_any_source_passes_if_the_policy_allows_it(pop):
    pop.apply(session(UNTAGGED, policy={"anySource": True}))
    packet = udp_up(UNTAGGED, src="203.0.113.77")
    pop.send_up(UNTAGGED, packet)
    assert pop.at_core()[IP].src == "203.0.113.77"
    pop.apply(session(UNTAGGED))
    with pop.dropping("session-source"):
        pop.send_up(UNTAGGED, packet)


def test_a_session_has_several_prefixes_of_each_family(pop):
    line = Line("many", "02:00:00:00:01:09", "100.64.0.19", "2001:db8:1:9::1", vlans=(100, 9))
    prefixes = ["100.64.0.19/32", "203.0.113.0/29", "203.0.113.64/32", "2001:db8:1:9::/64", "2001:db8:f000::/56"]
    with pop.having(session(line, addresses=prefixes)):
        for source in ("100.64.0.19", "203.0.113.5", "203.0.113.64"):
            pop.send_up(line, udp_up(line, src=source))
            assert pop.at_core(lambda packet: IP in packet)[IP].src == source
            pop.send_down(udp_down(line, dst=source))
            assert pop.at_line(line, lambda packet: IP in packet)[IP].dst == source
        for source in ("2001:db8:1:9::77", "2001:db8:f000:ff::1"):
            pop.send_up(line, udp_up(line, 6, src=source))
            assert pop.at_core(lambda packet: IPv6 in packet)[IPv6].src == source
            pop.send_down(udp_down(line, 6, dst=source))
            assert pop.at_line(line, lambda packet: IPv6 in packet)[IPv6].dst == source
        with pop.dropping("session-source"):
            pop.send_up(line, udp_up(line, src="203.0.113.8"))


@pytest.mark.parametrize(("version", "announced"), [(4, 1400), (6, 1380)])
def test_the_mss_that_either_side_announces_is_clamped(pop, version, announced):
    pop.apply(session(SINGLE, policy={"mss": 1400}))
    pop.learn(SINGLE)
    up = udp_up(SINGLE, version)
    up.remove_payload()
    up = up / TCP(sport=1024, dport=80, flags="S", options=[("MSS", 1460), ("NOP", None), ("WScale", 7)])
    pop.send_up(SINGLE, up)
    got = pop.at_core(lambda packet: TCP in packet)
    assert dict(got[TCP].options)["MSS"] == announced
    assert good_checksum(got)
    down = udp_down(SINGLE, version)
    down.remove_payload()
    down = down / TCP(sport=80, dport=1024, flags="SA", options=[("MSS", 1460)])
    pop.send_down(down)
    got = pop.at_line(SINGLE, lambda packet: TCP in packet)
    assert dict(got[TCP].options)["MSS"] == announced
    assert good_checksum(got)
    pop.apply(session(SINGLE))


def test_an_mss_below_the_clamp_stays(pop):
    pop.apply(session(SINGLE, policy={"mss": 1400}))
    packet = IP(src=SINGLE.ip4, dst=SERVER4) / TCP(dport=80, flags="S", options=[("MSS", 1200)])
    pop.send_up(SINGLE, packet)
    assert dict(pop.at_core(lambda packet: TCP in packet)[TCP].options)["MSS"] == 1200
    pop.apply(session(SINGLE))


def good_checksum(packet):
    again = packet.copy()
    del again[TCP].chksum
    return type(again)(bytes(again))[TCP].chksum == packet[TCP].chksum


def test_a_packet_above_the_sessions_mtu_is_fragmented_or_reported(pop):
    pop.apply(session(SINGLE, policy={"mtu": 1300}))
    pop.learn(SINGLE)
    pop.send_down(udp_down(SINGLE, payload=bytes(1350)))
    first = pop.at_line(SINGLE)
    second = pop.at_line(SINGLE)
    assert first[IP].flags.MF
    assert not second[IP].flags.MF
    assert max(first.len, second.len) <= 1300
    pop.send_down(udp_down(SINGLE, payload=bytes(1350), flags="DF"))
    report = pop.at_core(lambda packet: IP in packet and packet[IP].proto == 1)
    assert (report["ICMP"].type, report["ICMP"].code, report["ICMP"].nexthopmtu) == (3, 4, 1300)
    pop.send_down(udp_down(SINGLE, 6, payload=bytes(1350)))
    report = pop.at_core(lambda packet: IPv6 in packet and packet[IPv6].nh == 58)
    assert report["ICMPv6PacketTooBig"].mtu == 1300
    pop.apply(session(SINGLE))


def test_full_sized_packets_pass_through_qinq(pop):
    pop.learn(IPOE, PPPOE)
    for line, size in ((IPOE, 1500), (PPPOE, 1492)):
        assert pop.passes(line, 4, payload=bytes(size - 28), flags="DF")
        assert pop.passes(line, 6, payload=bytes(size - 48))


def test_two_sessions_with_one_access_key_are_refused(pop):
    twin = Line("second", "02:00:00:00:01:08", "100.64.0.18", vlans=IPOE.vlans)
    with pytest.raises(Refused, match="(?s)second.*ipoe"):
        pop.apply(session(twin))
    assert pop.passes(IPOE)


def test_a_removed_session_forwards_nothing_and_others_go_on(pop):
    pop.gateway.delete("session", "single")
    with pop.dropping("unknown-circuit"):
        pop.send_up(SINGLE, udp_up(SINGLE))
    assert pop.passes(IPOE)
    pop.apply(session(SINGLE))
    assert pop.passes(SINGLE)


def test_a_sessions_counters_have_forwarded_and_dropped_packets(pop):
    line = Line("counted", "02:00:00:00:01:0a", "100.64.0.20", vlans=(100, 10))
    with pop.having(session(line)):
        for _ in range(3):
            pop.send_up(line, udp_up(line, payload=bytes(72)))
            pop.at_core()
        pop.send_down(udp_down(line, payload=bytes(172)))
        pop.at_line(line)
        pop.send_up(line, udp_up(PPPOE))
        pop.gateway.dropped("session-source", 20, 0, "--session", "counted")
        described = pop.gateway.sluice("describe", "session", "counted").stdout
        assert "counted" in described
        assert line.mac in described


def test_a_session_whose_address_is_no_longer_its_own_does_not_get_it(pop):
    line = Line("moving", "02:00:00:00:01:0b", "100.64.0.21", vlans=(100, 11))
    with pop.having(session(line)):
        assert pop.passes(line)
        pop.apply(session(line, addresses=["100.64.0.22/32"]))
        with pop.dropping("session-source"):
            pop.send_up(line, udp_up(line))
        pop.send_down(udp_down(line, dst="100.64.0.22"))
        assert pop.at_line(line)[IP].dst == "100.64.0.22"


class TestTpids:
    """On a TAP device, which leaves the outer TPID as it is."""

    @pytest.fixture(scope="class")
    def tap(self, lab, pop):
        inside = lab.namespace("tpids")
        gateway = Gateway(lab, inside, name="tpids")
        base = [dict(each) for each in Pop.base if each["kind"] != "Port"]
        gateway.apply(
            thing("Port", "access", device="net_tap0,iface=acc", mac=ACCESS_MAC),
            thing("Port", "core", device="net_tap1,iface=core", mac="02:00:00:00:aa:02"),
            *base,
            *(session(line) for line in (IPOE, PPPOE)),
        )
        for name in ("acc", "core"):
            inside.silent(name)
            inside.ip("link", "set", name, "up", "mtu", "2000")
        yield Wire(inside, "acc"), Wire(inside, "core")
        gateway.close()

    @pytest.mark.parametrize("tpids", TPIDS, ids=lambda pair: f"{pair[0]:04x}-{pair[1]:04x}")
    @pytest.mark.parametrize("line", [IPOE, PPPOE], ids=lambda line: line.name)
    def test_the_tpids_that_came_in_are_answered_with(self, tap, line, tpids):
        access, core = tap
        line = Line(line.name, line.mac, line.ip4, line.ip6, line.vlans, tpids, line.pppoe)
        access.drain()
        core.drain()
        access.send(line.frame(frames.mac_bytes(ACCESS_MAC), bytes(udp_up(line))))
        core.expect(lambda raw: UDP in IP(raw[14:]) if raw[12:14] == b"\x08\x00" else None)
        down = bytes(udp_down(line))
        core.send(frames.mac_bytes("02:00:00:00:aa:02") + frames.mac_bytes("02:00:00:00:cc:02") + b"\x08\x00" + down)
        tags = access.expect(lambda raw: raw[:6] == line.raw_mac and Frame.parse(raw).tags)
        assert tags == line.tags


def test_an_unreachable_server_is_reported_to_the_subscriber(pop):
    with pop.having(thing("Route", "nowhere", prefix="2001:db8:dead::/48", action="prohibit")):
        pop.send_up(IPOE, udp_up(IPOE, 6, dst="2001:db8:dead::1"))
        report = pop.at_line(IPOE, lambda packet: ICMPv6DestUnreach in packet)
        assert report[ICMPv6DestUnreach].code == 1
