# SPDX-License-Identifier: Apache-2.0
"""5WE (RFC 8822): the user plane of a 5G residential gateway, whose PPPoE header of version 2 carries QFI and RQI."""

import struct

import pytest
from lab import Line
from lab.upf import GPDU, Message, downlink_container
from lab.upf import PORT as GTPU_PORT
from pop import ACCESS_MAC, CORE4, HOST4, PPPOE, Pop, ip_of, session, tunnel, udp_down, udp_up
from scapy.all import IP, UDP, Dot1AD, Dot1Q, Ether, Raw

ID, DEFAULT_QFI = 0x2A01, 9
GATEWAY = Line("5g-rg", "02:00:00:00:01:02", "100.64.4.1", "2001:db8:4:1::1", (100, 2), teid_up=5001, teid_down=6001)
# Its control plane: PPPoE of version 1 with the same id on the same VLANs, routed.
CONTROL = Line("control", GATEWAY.mac, PPPOE.ip4, PPPOE.ip6, (100, 2), pppoe=ID)
ETHERTYPE, PROTOCOLS = 0x8864, {4: 0x0021, 6: 0x0057}


@pytest.fixture(scope="module")
def pop(lab):
    gtpu = tunnel(GATEWAY, pduSessionContainer=True, qfi=DEFAULT_QFI)
    access = {"fiveWeSessionId": ID, "mac": GATEWAY.mac}
    return Pop(lab, session(GATEWAY, access, gtpu=gtpu), session(CONTROL))


def header(qfi, version, length, rqi=0, number=ID):
    return struct.pack("!BBHHH", 0x21, qfi << 2 | rqi << 1, number, length + 2, PROTOCOLS[version])


def send_up(pop, packet, version, qfi, **more):
    tags = Dot1AD(vlan=GATEWAY.vlans[0]) / Dot1Q(vlan=GATEWAY.vlans[1], type=ETHERTYPE)
    inside = header(qfi, version, len(packet), **more) + bytes(packet)
    pop.access.send(bytes(Ether(src=GATEWAY.mac, dst=ACCESS_MAC, type=0x88A8) / tags / Raw(inside)))


def tunnelled(pop):
    packet = pop.gpdu_at_core()
    return Message.parse(bytes(packet[UDP].payload))


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("qfi", [1, 63])
def test_an_uplink_packet_is_tunnelled_with_the_qfi_of_its_header(pop, version, qfi):
    packet = bytes(udp_up(GATEWAY, version))
    send_up(pop, packet, version, qfi)
    message = tunnelled(pop)
    assert (message.kind, message.teid, message.payload) == (GPDU, GATEWAY.teid_up, packet)
    assert message.container == (1, qfi)


def test_an_uplink_packet_without_a_qfi_has_the_one_of_the_tunnel(pop):
    send_up(pop, udp_up(GATEWAY), 4, 0, rqi=1)
    assert tunnelled(pop).container == (1, DEFAULT_QFI)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("rqi", [0, 1])
def test_a_downlink_packet_has_the_qfi_and_the_rqi_of_its_container(pop, version, rqi):
    send_up(pop, udp_up(GATEWAY), 4, 1)
    packet = bytes(udp_down(GATEWAY, version))
    message = Message(GPDU, GATEWAY.teid_down, extensions=[downlink_container(37, bool(rqi))], payload=packet)
    pop.send_down(IP(src=HOST4, dst=CORE4) / UDP(sport=GTPU_PORT, dport=GTPU_PORT) / Raw(message.pack()))

    def five_we(raw):
        frame = Ether(raw)
        return raw if frame.dst == GATEWAY.mac and raw[20:22] == struct.pack("!H", ETHERTYPE) else None

    raw = pop.access.expect(five_we)
    assert raw[22:30] == header(37, version, len(packet), rqi)
    assert bytes(ip_of(raw[30:])) == packet


def test_pppoe_of_version_1_is_a_session_of_its_own(pop):
    pop.send_up(CONTROL, udp_up(CONTROL))
    assert pop.at_core(lambda packet: UDP in packet and packet[IP].src == CONTROL.ip4 and packet[UDP].dport == 7)


def test_malformed_packets_are_named_drops(pop):
    before = pop.gateway.drops()
    send_up(pop, udp_up(GATEWAY), 4, 1, number=ID + 1)
    inside = struct.pack("!BBHHH", 0x21, 4, ID, 6, 0xC021) + b"\1\1\0\4"
    tags = Dot1AD(vlan=GATEWAY.vlans[0]) / Dot1Q(vlan=GATEWAY.vlans[1], type=ETHERTYPE)
    pop.access.send(bytes(Ether(src=GATEWAY.mac, dst=ACCESS_MAC, type=0x88A8) / tags / Raw(inside)))
    send_up(pop, udp_up(GATEWAY), 4, 1)
    tunnelled(pop)
    after = pop.gateway.drops()
    assert [after[name] - before.get(name, 0) for name in ("5we-unknown-session", "5we-protocol")] == [1, 1]
