# SPDX-License-Identifier: Apache-2.0
"""GTP-U sessions (TS 29.281) with PDU session containers (TS 38.415), against a peer on the kernel's UDP."""

import socket
import struct
from dataclasses import replace

import pytest
from lab import Line, Upf, thing
from lab.frames import Frame
from lab.laboratory import wait_until
from lab.upf import (
    ECHO_REQUEST,
    ECHO_RESPONSE,
    END_MARKER,
    ERROR_INDICATION,
    GPDU,
    Message,
    downlink_container,
)
from pop import CORE4, CORE6, HOST4, HOST6, SERVER4, Pop, session, tunnel, udp_down, udp_up
from scapy.all import ESP, IP, UDP, IPv6

PLAIN = Line("plain", "02:00:00:00:02:01", "100.64.1.1", "2001:db8:2:1::1", (300, 1), teid_up=2001, teid_down=1001)
QOS = Line("qos", "02:00:00:00:02:02", "100.64.1.2", "2001:db8:2:2::1", (300, 2), pppoe=5, teid_up=2002, teid_down=1002)
REFLECT = Line("reflect", "02:00:00:00:02:03", "100.64.1.3", "2001:db8:2:3::1", (300, 3), teid_up=2003, teid_down=1003)
OVER6 = Line("over6", "02:00:00:00:02:04", "100.64.1.4", "2001:db8:2:4::1", (300, 4), teid_up=2004, teid_down=1004)
LINES = [PLAIN, QOS, REFLECT, OVER6]


SESSIONS = {
    PLAIN.name: tunnel(PLAIN),
    QOS.name: tunnel(QOS, pduSessionContainer=True, qfi=9),
    REFLECT.name: tunnel(REFLECT, pduSessionContainer=True, qfi=1, reflectiveQos=True),
    OVER6.name: tunnel(OVER6, 6, pduSessionContainer=True, qfi=5),
}


@pytest.fixture(scope="module")
def pop(lab):
    base = [each for each in Pop.base if each["kind"] not in ("Neighbor", "Route")]
    made = Pop(lab, *(session(line, gtpu=SESSIONS[line.name]) for line in LINES), base=base)
    # Here the core is a kernel host: the peer is an ordinary UDP server.
    made.outside.run("sysctl", "-qw", "net.ipv6.conf.uplink.disable_ipv6=0")
    made.outside.ip("address", "add", f"{HOST4}/24", "dev", "uplink")
    made.outside.ip("-6", "address", "add", f"{HOST6}/64", "dev", "uplink", "nodad")
    return made


@pytest.fixture(scope="module")
def upfs(lab, pop):
    return {4: Upf(lab, pop.outside, HOST4, "n6a"), 6: Upf(lab, pop.outside, HOST6, "n6b")}


@pytest.fixture
def upf(upfs):
    for each in upfs.values():
        each.drain()
    return upfs[4]


def end_of(line, upfs):
    return (upfs[6], CORE6) if line is OVER6 else (upfs[4], CORE4)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
class TestTunnels:
    def test_an_uplink_packet_arrives_whole_with_the_remote_teid(self, pop, upfs, line, version):
        upf, _ = end_of(line, upfs)
        packet = bytes(udp_up(line, version))
        pop.send_up(line, packet)
        message = upf.expect(lambda message: message.kind == GPDU and message.teid == line.teid_up)
        assert message.payload == packet
        container = {PLAIN.name: None, QOS.name: (1, 9), REFLECT.name: (1, 1), OVER6.name: (1, 5)}[line.name]
        assert message.container == container

    def test_a_downlink_packet_reaches_its_line_whole(self, pop, upfs, line, version):
        upf, gateway = end_of(line, upfs)
        pop.send_up(line, udp_up(line, version))
        packet = udp_down(line, version)
        for qfi in (None, 9):
            upf.send(upf.gpdu(line, bytes(packet), qfi), gateway)
            got = pop.at_line(line, lambda packet: UDP in packet)
            assert bytes(got) == bytes(packet)


def test_an_outer_header_has_the_addresses_of_the_path(pop, upf):
    pop.send_up(PLAIN, udp_up(PLAIN))
    outer = pop.gpdu_at_core()
    assert (outer[IP].src, outer[IP].dst) == (CORE4, HOST4)
    assert outer[UDP].len == outer[IP].len - 20


def test_an_outer_ipv6_header_has_a_udp_checksum_that_holds_or_none(pop, upfs):
    pop.send_up(OVER6, udp_up(OVER6))
    assert upfs[6].expect(lambda message: message.teid == OVER6.teid_up)


def test_the_gateway_answers_an_echo_request(upf):
    upf.send(Message(ECHO_REQUEST, 0, sequence=4711), CORE4)
    answer = upf.expect(lambda message: message.kind == ECHO_RESPONSE)
    assert (answer.teid, answer.sequence) == (0, 4711)
    assert answer.payload[:1] == b"\x0e", "the recovery information element is mandatory"


def test_the_gateway_answers_an_echo_request_over_ipv6(upf, upfs):
    upfs[6].send(Message(ECHO_REQUEST, 0, sequence=7), CORE6)
    assert upfs[6].expect(lambda message: message.kind == ECHO_RESPONSE).sequence == 7


def test_an_unknown_teid_gets_an_error_indication_with_teid_and_address(upf, pop):
    upf.send(Message(GPDU, 0xDEAD, payload=bytes(udp_down(PLAIN))), CORE4)
    message = upf.expect(lambda message: message.kind == ERROR_INDICATION)
    assert message.teid == 0
    # TEID Data I (type 16) and GTP-U Peer Address (type 133), TS 29.281 section 7.3.1.
    assert message.payload[:5] == b"\x10" + struct.pack("!I", 0xDEAD)
    assert message.payload[5:8] == b"\x85\0\4"
    assert message.payload[8:12] == bytes([192, 0, 2, 1])


def test_an_unknown_teid_is_a_named_drop(upf, pop):
    before = sum(count for name, count in pop.gateway.drops().items() if name.startswith("gtpu"))
    upf.send(Message(GPDU, 0xBEEF, payload=bytes(udp_down(PLAIN))), CORE4)
    upf.expect(lambda message: message.kind == ERROR_INDICATION)
    assert sum(count for name, count in pop.gateway.drops().items() if name.startswith("gtpu")) > before


def test_an_error_indication_is_not_answered(upf):
    payload = b"\x10" + struct.pack("!I", PLAIN.teid_up) + b"\x85\0\4" + bytes([192, 0, 2, 2])
    upf.send(Message(ERROR_INDICATION, 0, sequence=0, payload=payload), CORE4)
    with pytest.raises(AssertionError, match="not seen"):
        upf.expect(lambda message: message.kind in (ERROR_INDICATION, ECHO_RESPONSE), 0.4)


STRANGER4 = "192.0.2.77"
ROUTED = Line("routed", "02:00:00:00:02:0b", "100.64.1.11", "2001:db8:2:11::1", (300, 11))


def test_a_packet_from_another_host_of_the_core_passes_only_if_the_session_accepts_its_source(lab, pop, upf):
    pop.outside.ip("address", "add", f"{STRANGER4}/24", "dev", "uplink")
    stranger = Upf(lab, pop.outside, STRANGER4, "n6s")
    packet = udp_down(PLAIN)
    pop.send_up(PLAIN, udp_up(PLAIN))
    with pop.dropping("gtpu-wrong-peer"):
        stranger.send(stranger.gpdu(PLAIN, bytes(packet)), CORE4)
    pop.apply(session(PLAIN, gtpu=tunnel(PLAIN) | {"acceptedSources": ["192.0.2.64/26"]}))
    for sender in (stranger, upf):
        sender.send(sender.gpdu(PLAIN, bytes(packet)), CORE4)
        assert bytes(pop.at_line(PLAIN, lambda packet: UDP in packet)) == bytes(packet)
    pop.apply(session(PLAIN, gtpu=tunnel(PLAIN)))
    with pop.dropping("gtpu-wrong-peer"):
        stranger.send(stranger.gpdu(PLAIN, bytes(packet)), CORE4)


def test_a_routed_subscriber_sends_nothing_into_a_tunnel_for_any_accepted_source(pop, upf):
    message = Message(GPDU, QOS.teid_down, payload=bytes(udp_down(QOS)))
    packet = IP(src=ROUTED.ip4, dst=CORE4) / UDP(sport=2152, dport=2152) / message.pack()
    with pop.having(session(ROUTED)):
        pop.apply(session(QOS, gtpu=SESSIONS[QOS.name] | {"acceptedSources": ["0.0.0.0/0"]}))
        with pop.dropping("gtpu-from-subscriber"):
            pop.send_up(ROUTED, packet)
        pop.access.expect_none(lambda raw: pop.from_line(QOS, raw) is not None)
        pop.apply(session(QOS, gtpu=SESSIONS[QOS.name]))


def test_a_congestion_mark_of_the_core_reaches_the_subscriber(pop, upf):
    pop.send_up(PLAIN, udp_up(PLAIN, tos=2))
    outer = pop.gpdu_at_core()
    assert outer[IP].tos == 2
    upf.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 3)
    try:
        for tos in (2, 1, 3):
            upf.send(upf.gpdu(PLAIN, bytes(udp_down(PLAIN, tos=tos))), CORE4)
            got = pop.at_line(PLAIN, lambda packet: UDP in packet)
            assert bytes(got) == bytes(udp_down(PLAIN, tos=3))
        with pop.dropping("gtpu-ecn-illegal"):
            upf.send(upf.gpdu(PLAIN, bytes(udp_down(PLAIN))), CORE4)
    finally:
        upf.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0)


def test_an_end_marker_is_taken_and_the_session_goes_on(pop, upf):
    upf.send(Message(END_MARKER, PLAIN.teid_down), CORE4)
    upf.send(upf.gpdu(PLAIN, bytes(udp_down(PLAIN))), CORE4)
    assert UDP in pop.at_line(PLAIN, lambda packet: UDP in packet)


def test_sequence_numbers_are_tolerated(pop, upf):
    for sequence in (5, 3, 0xFFFF):
        upf.send(upf.gpdu(PLAIN, bytes(udp_down(PLAIN)), sequence=sequence), CORE4)
        assert UDP in pop.at_line(PLAIN, lambda packet: UDP in packet)


@pytest.mark.parametrize("kind", [0x03, 0x20, 0x40, 0x32])
def test_an_unknown_extension_header_that_need_not_be_understood_is_skipped(pop, upf, kind):
    packet = udp_down(PLAIN)
    message = Message(GPDU, PLAIN.teid_down, extensions=[(kind, b"\0\0"), downlink_container(9)], payload=bytes(packet))
    upf.send(message, CORE4)
    assert bytes(pop.at_line(PLAIN, lambda packet: UDP in packet)) == bytes(packet)


@pytest.mark.parametrize("kind", [0xC1, 0xFE])
def test_an_unknown_extension_header_that_must_be_understood_is_refused(pop, upf, kind):
    upf.send(Message(GPDU, PLAIN.teid_down, extensions=[(kind, b"\0\0")], payload=bytes(udp_down(PLAIN))), CORE4)
    assert upf.expect(lambda message: message.kind == 31), "Supported Extension Headers Notification"
    pop.access.expect_none(lambda raw: pop.from_line(PLAIN, raw) is not None)


def test_reflective_qos_copies_the_downlink_qfi_into_the_uplink(pop, upf):
    def uplink_qfi():
        pop.send_up(REFLECT, udp_up(REFLECT))
        return upf.expect(lambda message: message.teid == REFLECT.teid_up).container[1]

    upf.send(upf.gpdu(REFLECT, bytes(udp_down(REFLECT)), 7), CORE4)
    pop.at_line(REFLECT, lambda packet: UDP in packet)
    assert uplink_qfi() == 1
    upf.send(upf.gpdu(REFLECT, bytes(udp_down(REFLECT)), 33, reflective=True), CORE4)
    pop.at_line(REFLECT, lambda packet: UDP in packet)
    assert uplink_qfi() == 33


def test_reflective_qos_is_ignored_where_it_is_not_asked_for(pop, upf):
    upf.send(upf.gpdu(QOS, bytes(udp_down(QOS)), 33, reflective=True), CORE4)
    pop.send_up(QOS, udp_up(QOS))
    assert upf.expect(lambda message: message.teid == QOS.teid_up).container == (1, 9)


def esp(source, destination, spi):
    return IP(src=source, dst=destination) / ESP(spi=spi, seq=1, data=b"sluice" * 4)


def test_reflective_qos_tells_esp_by_its_spi(pop, upf):
    def uplink_qfi(spi):
        pop.send_up(REFLECT, esp(REFLECT.ip4, SERVER4, spi))
        return upf.expect(lambda message: message.teid == REFLECT.teid_up).container[1]

    upf.send(upf.gpdu(REFLECT, bytes(esp(SERVER4, REFLECT.ip4, 0x01020304)), 34, reflective=True), CORE4)
    pop.at_line(REFLECT, lambda packet: IP in packet and packet[IP].proto == 50)
    assert uplink_qfi(0x01020304) == 34
    assert uplink_qfi(0x01020305) == 1
    assert uplink_qfi(0x03040102) == 1


# One subscriber's sessions: IPv4, IPv6, and both with another address, selected by the source.
MANY = Line("many", "02:00:00:00:02:05", "100.64.1.5", "2001:db8:2:5::1", (300, 5))
MANY_PPPOE = Line("many-pppoe", "02:00:00:00:02:06", "100.64.1.6", "2001:db8:2:6::1", (300, 6), pppoe=6)


def pdu_session(line, number, *addresses):
    ends = tunnel(line, pduSessionContainer=True, qfi=number) | {
        "localTeid": 9000 + number,
        "remoteTeid": 8000 + number,
    }
    made = session(line, {"pduSessionId": number}, gtpu=ends)
    made["metadata"]["name"] = f"{line.name}-{number}"
    made["spec"]["addresses"] = list(addresses)
    return made


@pytest.mark.parametrize("line", [MANY, MANY_PPPOE], ids=lambda line: line.name)
def test_packets_of_a_subscriber_with_several_pdu_sessions_find_theirs(pop, upf, line):
    other = replace(line, ip4=line.ip4.replace("100.64.1.", "100.64.2."), ip6=line.ip6.replace(":2:", ":3:"))
    sessions = [
        pdu_session(line, 1, f"{line.ip4}/32"),
        pdu_session(line, 2, line.ip6.replace("::1", "::/64")),
        pdu_session(line, 3, f"{other.ip4}/32", other.ip6.replace("::1", "::/64")),
    ]
    cases = [(line, 4, 1), (line, 6, 2), (other, 4, 3), (other, 6, 3)]

    def all_pass(cases):
        for source, version, number in cases:
            packet = bytes(udp_up(source, version))
            pop.send_up(line, packet)
            message = upf.expect(lambda message: message.kind == GPDU and message.teid > 8000)
            assert (message.teid, message.container, message.payload) == (8000 + number, (1, number), packet)
            down = udp_down(source, version)
            upf.send(Message(GPDU, 9000 + number, payload=bytes(down)), CORE4)
            assert bytes(pop.at_line(line, lambda packet: UDP in packet)) == bytes(down)

    with pop.having(*sessions):
        all_pass(cases)
        all_pass(cases)
        with pop.dropping("gtpu-wrong-destination"):
            upf.send(Message(GPDU, 9001, payload=bytes(udp_down(other))), CORE4)
        with pop.dropping("session-source"):
            pop.send_up(line, udp_up(replace(line, ip4="100.64.9.9")))
        # The one that frames lead to goes; the others stay.
        pop.gateway.delete("Session", f"{line.name}-1")
        all_pass(cases[1:])
        pop.apply(sessions[0])
        all_pass(cases)
        taken = pdu_session(line, 4, "100.64.0.0/16")
        done = pop.gateway.apply(taken, check=False)
        assert done.returncode == 1
        assert f"Session/{line.name}-4: addresses[0]: Session/{line.name}-1 has" in done.stderr
        assert "on the same access" in done.stderr


FRAMES = Line("frames", "02:00:00:00:02:07", "", vlans=(300, 7), teid_up=2007, teid_down=1007)
STRANGER = bytes.fromhex("020909090909")
CARRIED = {
    "ARP": Frame(b"\xff" * 6, FRAMES.raw_mac, (), 0x0806, bytes(46)),
    "IPv4 to somebody else": Frame(STRANGER, FRAMES.raw_mac, (), 0x0800, bytes(udp_up(PLAIN))),
    "a tag of the subscriber's own": Frame(STRANGER, FRAMES.raw_mac, ((0x8100, 77),), 0x0800, bytes(udp_up(PLAIN))),
    "LLDP": Frame(bytes.fromhex("0180c200000e"), FRAMES.raw_mac, (), 0x88CC, bytes(60)),
    "no IP at all": Frame(STRANGER, FRAMES.raw_mac, (), 0x9000, b"sluice" * 10),
}


@pytest.fixture(scope="module")
def frames_session(pop):
    ends = tunnel(FRAMES, pduSessionContainer=True, qfi=3, ethernet=True)
    made = session(FRAMES, gtpu=ends)
    made["spec"]["addresses"] = []
    with pop.having(made):
        yield made


@pytest.mark.parametrize("frame", CARRIED.values(), ids=CARRIED.keys())
def test_frames_of_an_ethernet_pdu_session_pass_whole_without_the_tags_of_the_access(pop, upf, frames_session, frame):
    pop.access.send(frame._replace(tags=FRAMES.tags + frame.tags).pack())
    message = upf.expect(lambda message: message.kind == GPDU)
    assert (message.teid, message.container, message.payload) == (2007, (1, 3), frame.pack())
    upf.send(Message(GPDU, FRAMES.teid_down, extensions=[downlink_container(3)], payload=frame.pack()), CORE4)
    back = frame._replace(tags=FRAMES.tags + frame.tags).pack()
    assert pop.access.expect(lambda raw: raw if raw == back else None, 20)


LAN = thing(
    "FlowProfile",
    "lan",
    rules=[
        {
            "precedence": 10,
            "qfi": 5,
            "filters": [
                {"cVlan": 77, "cPriorities": [2], "cDropEligible": "clear"},
                {"remoteMac": "02:09:09:09:09:08"},
            ],
        },
        {"precedence": 20, "qfi": 6, "filters": [{"etherType": 2048, "protocol": "udp", "remotePorts": "7"}]},
        {"precedence": 30, "qfi": 7, "filters": [{"etherType": 0x88CC, "direction": "uplink"}]},
    ],
    flows=[{"qfi": 5, "priority": 6}],
)


def test_frames_are_of_the_flow_that_filters_of_frames_say(pop, upf, frames_session):
    udp, other = bytes(udp_up(PLAIN)), bytes.fromhex("020909090908")
    flows = {
        5: Frame(STRANGER, FRAMES.raw_mac, ((0x8100, 2 << 13 | 77),), 0x9000, bytes(60)),
        6: Frame(STRANGER, FRAMES.raw_mac, ((0x8100, 3 << 13 | 77),), 0x0800, udp),
        7: Frame(STRANGER, FRAMES.raw_mac, (), 0x88CC, bytes(60)),
        3: Frame(STRANGER, FRAMES.raw_mac, (), 0x9000, bytes(60)),
    }
    frames_session["spec"].setdefault("policy", {})["flowProfile"] = "lan"
    pop.apply(LAN, frames_session)
    for qfi, frame in flows.items():
        pop.access.send(frame._replace(tags=FRAMES.tags + frame.tags).pack())
        message = upf.expect(lambda message: message.kind == GPDU)
        assert (message.container, message.payload) == ((1, qfi), frame.pack())
    # Downlink the far end's address is the source; tags of the access alone have the flow's priority.
    frame = Frame(FRAMES.raw_mac, other, ((0x8100, 77),), 0x9000, bytes(60))
    upf.send(Message(GPDU, FRAMES.teid_down, extensions=[downlink_container(3)], payload=frame.pack()), CORE4)
    tags = tuple((tpid, 6 << 13 | vlan) for tpid, vlan in FRAMES.tags)
    back = frame._replace(tags=tags + frame.tags).pack()
    assert pop.access.expect(lambda raw: raw if raw == back else None, 20)


LEARNS = Line("learns", "02:00:00:00:02:0a", "", vlans=(300, 10), teid_up=2010, teid_down=1010)


@pytest.fixture
def learns_session(pop):
    made = session(LEARNS, gtpu=tunnel(LEARNS, pduSessionContainer=True, qfi=3, ethernet=True, reflectiveQos=True))
    made["spec"]["addresses"] = []
    with pop.having(made):
        yield made


def sent_down(pop, upf, frame, qfi, tags=LEARNS.tags, reflective=True):
    upf.send(upf.gpdu(LEARNS, frame.pack(), qfi, reflective), CORE4)
    back = frame._replace(tags=tags + frame.tags).pack()
    assert pop.access.expect(lambda raw: raw if raw == back else None, 20)


def uplink_qfi(pop, upf, frame):
    pop.access.send(frame._replace(tags=LEARNS.tags + frame.tags).pack())
    message = upf.expect(lambda message: message.teid == LEARNS.teid_up)
    assert message.payload == frame.pack()
    return message.container[1]


def other_port(packet):
    packet[UDP].sport += 1
    return packet


C_TAG, S_TAG = (0x8100, 5 << 13 | 77), (0x88A8, 2 << 13 | 9)
# A downlink frame, an uplink frame of the same flow, and one of another.
ANSWERED = {
    "no IP at all": ((), 0x9000, b"down" * 12, b"up  " * 12, None),
    "LLC": ((), 38, bytes(46), b"\1" * 46, None),
    "UDP": ((), 0x0800, udp_down(PLAIN), udp_up(PLAIN), other_port(udp_up(PLAIN))),
    "UDP over IPv6": ((), 0x86DD, udp_down(PLAIN, 6), udp_up(PLAIN, 6), other_port(udp_up(PLAIN, 6))),
    "UDP in the subscriber's own tag": ((C_TAG,), 0x0800, udp_down(PLAIN), udp_up(PLAIN), other_port(udp_up(PLAIN))),
    "two tags of the subscriber's own": ((S_TAG, C_TAG), 0x9000, bytes(46), b"\1" * 46, None),
    "ESP": ((), 0x0800, esp(SERVER4, PLAIN.ip4, 7), esp(PLAIN.ip4, SERVER4, 7), esp(PLAIN.ip4, SERVER4, 8)),
}


@pytest.mark.parametrize(("tags", "kind", "down", "up", "other"), ANSWERED.values(), ids=ANSWERED.keys())
def test_reflective_qos_of_an_ethernet_pdu_session_is_by_the_frame(
    pop, upf, learns_session, tags, kind, down, up, other
):
    frame = Frame(STRANGER, LEARNS.raw_mac, tags, kind, bytes(up))
    answered = frame._replace(destination=LEARNS.raw_mac, source=STRANGER, payload=bytes(down))
    sent_down(pop, upf, answered, 32, reflective=False)
    assert uplink_qfi(pop, upf, frame) == 3
    sent_down(pop, upf, answered, 33)
    assert uplink_qfi(pop, upf, frame) == 33
    sent_down(pop, upf, answered, 34)
    assert uplink_qfi(pop, upf, frame) == 34
    for changed in (
        {"destination": bytes.fromhex("020909090908")},
        {"source": bytes.fromhex("020909090908")},
        {"ethertype": 0x9001},
        {"tags": ((0x8100, 5 << 13 | 78),)},
        {"tags": ((0x8100, 4 << 13 | 77),)},
        {"tags": ((0x88A8, 5 << 13 | 77),)},
    ):
        assert uplink_qfi(pop, upf, frame._replace(**changed)) == 3
    if other:
        assert uplink_qfi(pop, upf, frame._replace(payload=bytes(other))) == 3


def test_a_rule_of_reflective_qos_is_between_the_rules_of_a_profile(pop, upf, learns_session):
    frame = Frame(STRANGER, LEARNS.raw_mac, (C_TAG,), 0x0800, bytes(udp_up(PLAIN)))
    answered = frame._replace(destination=LEARNS.raw_mac, source=STRANGER, payload=bytes(udp_down(PLAIN)))
    learns_session["spec"].setdefault("policy", {})["flowProfile"] = "between"
    for precedence, qfi in ((81, 33), (79, 5)):
        rule = {"precedence": precedence, "qfi": 5, "filters": [{"cVlan": 77, "direction": "uplink"}]}
        pop.apply(thing("FlowProfile", "between", rules=[rule]), learns_session)
        sent_down(pop, upf, answered, 33)
        assert uplink_qfi(pop, upf, frame) == qfi


CUT = {
    "a group": Frame(b"\xff" * 6, STRANGER, (), 0x0806, bytes(46)),
    "half a tag": Frame(LEARNS.raw_mac, STRANGER, (), 0x8100, b"\0"),
    "a tag and half another": Frame(LEARNS.raw_mac, STRANGER, (S_TAG,), 0x8100, b"\0\7"),
    "two tags and nothing": Frame(LEARNS.raw_mac, STRANGER, (S_TAG, C_TAG), 0x0800, b""),
    "three tags": Frame(LEARNS.raw_mac, STRANGER, (S_TAG, C_TAG, C_TAG), 0x0800, bytes(udp_down(PLAIN))),
    "half an IPv4 header": Frame(LEARNS.raw_mac, STRANGER, (), 0x0800, bytes(udp_down(PLAIN))[:10]),
    "an IPv4 header of no length": Frame(LEARNS.raw_mac, STRANGER, (), 0x0800, b"\x40" + bytes(40)),
    "an IPv4 header without ports": Frame(LEARNS.raw_mac, STRANGER, (), 0x0800, bytes(udp_down(PLAIN))[:20]),
    "IPv6 where IPv4 is said": Frame(LEARNS.raw_mac, STRANGER, (), 0x0800, bytes(udp_down(PLAIN, 6))),
    "half an IPv6 header": Frame(LEARNS.raw_mac, STRANGER, (), 0x86DD, bytes(udp_down(PLAIN, 6))[:39]),
    "ESP without an SPI": Frame(LEARNS.raw_mac, STRANGER, (), 0x0800, bytes(esp(SERVER4, PLAIN.ip4, 7))[:22]),
}


@pytest.mark.parametrize("frame", CUT.values(), ids=CUT.keys())
def test_a_frame_that_is_cut_asks_for_nothing_of_whole_ones(pop, upf, learns_session, frame):
    sent_down(pop, upf, frame, 33)
    for kind, up in ((0x0800, udp_up(PLAIN)), (0x86DD, udp_up(PLAIN, 6)), (0x0800, esp(PLAIN.ip4, SERVER4, 7))):
        for tags in ((), (C_TAG,), (S_TAG, C_TAG)):
            assert uplink_qfi(pop, upf, Frame(STRANGER, LEARNS.raw_mac, tags, kind, bytes(up))) == 3


def test_fields_of_ip_are_refused_in_an_ethernet_pdu_session(pop):
    wrong = session(replace(FRAMES, name="wrong", vlans=(300, 8), ip4="100.64.1.8"), gtpu=tunnel(FRAMES, ethernet=True))
    done = pop.gateway.apply(wrong, check=False)
    assert done.returncode != 0
    assert "Session/wrong: addresses: not used by sessions of type Ethernet" in done.stdout + done.stderr


MALFORMED = {
    "too short": b"\x30\xff\0",
    "another version": b"\x50\xff\0\0" + struct.pack("!I", PLAIN.teid_down),
    "GTP prime": b"\x20\xff\0\0" + struct.pack("!I", PLAIN.teid_down),
    "a length beyond the datagram": b"\x30\xff\x7f\xff" + struct.pack("!I", PLAIN.teid_down) + bytes(20),
    "an extension of no length": b"\x34\xff\0\x08" + struct.pack("!I", PLAIN.teid_down) + b"\0\0\0\x85\0\0\0\0",
    "an extension beyond the datagram": b"\x34\xff\0\x08"
    + struct.pack("!I", PLAIN.teid_down)
    + b"\0\0\0\x85\x7f\0\0\0",
    "no packet inside": b"\x30\xff\0\0" + struct.pack("!I", PLAIN.teid_down),
    "no IP inside": b"\x30\xff\0\x14" + struct.pack("!I", PLAIN.teid_down) + b"\xff" * 20,
}


@pytest.mark.parametrize("datagram", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_message_is_a_named_drop(pop, upf, datagram):
    before = sum(pop.gateway.drops().values())
    upf.send(datagram, CORE4)
    wait_until(lambda: sum(pop.gateway.drops().values()) > before, 20, "a drop")
    pop.access.expect_none(lambda raw: pop.from_line(PLAIN, raw) is not None)


def test_a_packet_that_is_too_large_for_the_tunnel_is_fragmented_or_reported(pop, upf):
    """1,500 bytes within GTP-U exceed the core's MTU: the subscriber set DF, so it gets the ICMP error."""
    pop.send_up(PLAIN, udp_up(PLAIN, payload=bytes(1472), flags="DF"))
    report = pop.at_line(PLAIN, lambda packet: IP in packet and packet[IP].proto == 1)
    assert (report["ICMP"].type, report["ICMP"].code) == (3, 4)
    assert 1400 <= report["ICMP"].nexthopmtu <= 1464
    pop.send_up(PLAIN, udp_up(PLAIN, 6, payload=bytes(1452)))
    assert pop.at_line(PLAIN, lambda packet: IPv6 in packet and packet[IPv6].nh == 58)["ICMPv6PacketTooBig"].mtu <= 1464


def test_a_tunnels_far_end_changes_without_a_lost_packet_of_another(pop, upf):
    pop.apply(session(PLAIN, gtpu=tunnel(PLAIN) | {"remoteTeid": 7777}))
    pop.send_up(PLAIN, udp_up(PLAIN))
    assert upf.expect(lambda message: message.teid == 7777)
    pop.send_up(QOS, udp_up(QOS))
    assert upf.expect(lambda message: message.teid == QOS.teid_up)
    pop.apply(session(PLAIN, gtpu=tunnel(PLAIN)))


def test_two_sessions_with_one_local_teid_are_refused(pop):
    other = Line("other", "02:00:00:00:02:09", "100.64.1.9", vlans=(300, 9))
    done = pop.gateway.apply(session(other, gtpu=tunnel(PLAIN)), check=False)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "other" in text
    pop.gateway.sluice("delete", "session", "other", check=False)
