# SPDX-License-Identifier: Apache-2.0
"""PPPoE sessions (RFC 2516, RFC 4638), and PPP in the data plane."""

import struct

import pytest
from lab import Line, frames, thing
from lab.frames import Frame
from pop import ACCESS_MAC, PPPOE, Pop, session, udp_down, udp_up
from scapy.all import IP, UDP

TWO = Line("two", "02:00:00:00:01:42", "100.64.0.52", "2001:db8:1:52::1", vlans=(100, 2), pppoe=8)
JUMBO = Line("jumbo", "02:00:00:00:01:43", "100.64.0.53", vlans=(100, 3), pppoe=9)


@pytest.fixture(scope="module")
def pop(lab):
    # RFC 4638: room for PPPoE's own eight bytes, so that 1,500 bytes fit inside.
    access = thing("Port", "access", device="net_af_packet0,iface=acc0", mac=ACCESS_MAC, mtu=1508)
    sessions = [session(PPPOE), session(TWO), session(JUMBO, policy={"mtu": 1500})]
    return Pop(lab, *sessions, base=[access, *Pop.base[1:]])


def raw_session(line, payload, tags=None):
    gateway = frames.mac_bytes(ACCESS_MAC)
    return Frame(gateway, line.raw_mac, line.tags if tags is None else tags, frames.PPPOE_SESSION, payload).pack()


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("line", [PPPOE, TWO], ids=lambda line: line.name)
def test_several_sessions_share_a_vlan_by_session_id(pop, line, version):
    assert pop.passes(line, version)


def test_the_length_field_of_sent_packets_is_right(pop):
    pop.send_down(udp_down(PPPOE, payload=b"12345"))
    raw = pop.access.expect(lambda raw: raw if Frame.parse(raw).ethertype == frames.PPPOE_SESSION else None)
    version, code, session_id, length, protocol = struct.unpack_from("!BBHHH", Frame.parse(raw).payload)
    assert (version, code, session_id, protocol) == (0x11, 0, PPPOE.pppoe, frames.PPP_IP4)
    assert length == 2 + 33


def test_bytes_behind_the_length_are_padding(pop):
    packet = bytes(udp_up(PPPOE, payload=b"1"))
    pop.access.send(raw_session(PPPOE, frames.pppoe(PPPOE.pppoe, packet) + bytes(20)))
    assert pop.at_core(lambda got: UDP in got)[IP].len == len(packet)


def test_a_1500_byte_packet_passes_where_the_session_allows_it(pop):
    assert pop.passes(JUMBO, 4, payload=bytes(1472), flags="DF")


PACKET = bytes(udp_up(PPPOE))
MALFORMED = {
    "too short for its header": b"\x11\x00\x00\x07",
    "no protocol": b"\x11\x00\x00\x07\x00\x00",
    "another version": b"\x21" + frames.pppoe(7, PACKET)[1:],
    "a length beyond the frame": frames.pppoe(7, PACKET)[:4] + b"\x7f\xff" + frames.pppoe(7, PACKET)[6:],
    "a length without a protocol": frames.pppoe(7, PACKET)[:4] + b"\x00\x01" + frames.pppoe(7, PACKET)[6:],
    "a code in a session frame": b"\x11\x09" + frames.pppoe(7, PACKET)[2:],
    "a session that nobody has": frames.pppoe(4711, PACKET),
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_session_frame_is_a_named_drop(pop, payload):
    before = sum(pop.gateway.drops().values())
    pop.access.send(raw_session(PPPOE, payload))
    pop.not_at_core()
    assert sum(pop.gateway.drops().values()) > before


def test_a_frame_from_another_mac_is_a_named_drop(pop):
    thief = Line("thief", "02:00:00:00:01:66", PPPOE.ip4, vlans=PPPOE.vlans, pppoe=PPPOE.pppoe)
    before = sum(pop.gateway.drops().values())
    pop.send_up(thief, udp_up(thief))
    pop.not_at_core()
    assert sum(pop.gateway.drops().values()) > before


def test_plain_ip_on_the_vlan_of_pppoe_sessions_is_a_named_drop(pop):
    plain = Line("plain", PPPOE.mac, PPPOE.ip4, vlans=PPPOE.vlans)
    before = sum(pop.gateway.drops().values())
    pop.send_up(plain, udp_up(plain))
    pop.not_at_core()
    assert sum(pop.gateway.drops().values()) > before
