# SPDX-License-Identifier: Apache-2.0
"""UDP in IPv4 (RFC 791) and IPv6 (RFC 8200), in an Ethernet frame with VLAN tags and perhaps PPPoE. Every length is
checked before it is used."""

import struct
from typing import NamedTuple

VLANS, PPPOE, UDP = (0x8100, 0x88A8), 0x8864, 17


class Datagram(NamedTuple):
    source: bytes
    destination: bytes
    source_port: int
    destination_port: int
    payload: bytes


def ip_packet(frame):
    """The IP packet in a frame, b"" if there is none."""
    at = 12
    while len(frame) >= at + 2:
        (kind,) = struct.unpack_from("!H", frame, at)
        at += 2
        if kind in VLANS:
            at += 2
        elif kind == PPPOE:
            return frame[at + 8 :]  # 6 of PPPoE, 2 of PPP
        else:
            return frame[at:]
    return b""


def read(frame):
    """The datagram in a frame; None: there is none, or it is a fragment."""
    packet = ip_packet(frame)
    if len(packet) >= 20 and packet[0] >> 4 == 4:
        head = (packet[0] & 15) * 4
        length, _, fragment = struct.unpack_from("!HHH", packet, 2)
        if packet[9] != UDP or fragment & 0x3FFF or not 20 <= head <= length <= len(packet):
            return None
        source, destination, body = packet[12:16], packet[16:20], packet[head:length]
    elif len(packet) >= 40 and packet[0] >> 4 == 6:
        (length,) = struct.unpack_from("!H", packet, 4)
        if packet[6] != UDP or 40 + length > len(packet):
            return None
        source, destination, body = packet[8:24], packet[24:40], packet[40 : 40 + length]
    else:
        return None
    if len(body) < 8:
        return None
    source_port, destination_port, length = struct.unpack_from("!HHH", body)
    if not 8 <= length <= len(body):
        return None
    return Datagram(source, destination, source_port, destination_port, body[8:length])


def checksum(data):
    """RFC 1071."""
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def write(d):
    """The IP packet with a datagram in it."""
    length = 8 + len(d.payload)
    pseudo = d.source + d.destination + struct.pack("!II", length, UDP)
    udp = struct.pack("!HHHH", d.source_port, d.destination_port, length, 0)
    total = checksum(pseudo + udp + d.payload) or 0xFFFF
    udp = struct.pack("!HHHH", d.source_port, d.destination_port, length, total) + d.payload
    if len(d.source) == 16:
        return struct.pack("!IHBB", 6 << 28, length, UDP, 64) + d.source + d.destination + udp
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, 64, UDP, 0) + d.source + d.destination
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + udp


def reply(d, payload):
    """A datagram back to where one came from."""
    return Datagram(d.destination, d.source, d.destination_port, d.source_port, payload)
