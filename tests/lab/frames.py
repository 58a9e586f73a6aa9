# SPDX-License-Identifier: Apache-2.0
"""Frames and packets as bytes, quick enough for thousands a second. Tests that look at every bit use scapy instead."""

import ipaddress
import struct
from typing import NamedTuple

TPIDS = (0x8100, 0x88A8, 0x9100)
IP4, IP6, ARP, PPPOE_DISCOVERY, PPPOE_SESSION = 0x0800, 0x86DD, 0x0806, 0x8863, 0x8864
PPP_IP4, PPP_IP6 = 0x0021, 0x0057
BROADCAST = b"\xff" * 6


def mac_bytes(text):
    return bytes.fromhex(text.replace(":", ""))


def mac_text(raw):
    return raw.hex(":")


def ip_bytes(text):
    return ipaddress.ip_address(text).packed


class Frame(NamedTuple):
    """An Ethernet frame taken apart: tags are (TPID, VLAN id), outermost first."""

    destination: bytes
    source: bytes
    tags: tuple
    ethertype: int
    payload: bytes

    @classmethod
    def parse(cls, raw):
        at, tags = 12, []
        (ethertype,) = struct.unpack_from("!H", raw, at)
        while ethertype in TPIDS and len(raw) >= at + 6:
            tci, following = struct.unpack_from("!HH", raw, at + 2)
            tags.append((ethertype, tci & 0xFFF))
            ethertype, at = following, at + 4
        return cls(raw[0:6], raw[6:12], tuple(tags), ethertype, raw[at + 2 :])

    def pack(self):
        tags = b"".join(struct.pack("!HH", tpid, vlan) for tpid, vlan in self.tags)
        return self.destination + self.source + tags + struct.pack("!H", self.ethertype) + self.payload


def checksum(data):
    """RFC 1071."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp(source, destination, source_port, destination_port, payload):
    """An IPv4 or IPv6 packet, by the addresses' family."""
    source, destination = ip_bytes(source), ip_bytes(destination)
    length = 8 + len(payload)
    pseudo = source + destination + struct.pack("!IHBB", length, 0, 0, 17)
    header = struct.pack("!HHHH", source_port, destination_port, length, 0)
    if len(source) == 4:
        pseudo = source + destination + struct.pack("!BBH", 0, 17, length)
    total = checksum(pseudo + header + payload) or 0xFFFF
    datagram = header[:6] + struct.pack("!H", total) + payload
    if len(source) == 16:
        return struct.pack("!IHBB", 6 << 28, length, 17, 64) + source + destination + datagram
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, 17, 0) + source + destination
    return ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + datagram


def pppoe(session, packet):
    """RFC 2516 section 4 and RFC 1661 section 2: an IP packet in a PPPoE session frame's payload."""
    protocol = PPP_IP4 if packet[0] >> 4 == 4 else PPP_IP6
    return struct.pack("!BBHHH", 0x11, 0, session, len(packet) + 2, protocol) + packet


def un_pppoe(payload):
    """Session id and IP packet of a PPPoE session frame, or (session id, None) when it carries something else."""
    version, code, session, length, protocol = struct.unpack_from("!BBHHH", payload)
    if version != 0x11 or code != 0 or protocol not in (PPP_IP4, PPP_IP6):
        return session, None
    return session, payload[8 : 6 + length]


def arp_reply(request, mac):
    """The answer (RFC 826) that the owner of the address asked for gives."""
    sender, sender_ip, target_ip = request.payload[8:14], request.payload[14:18], request.payload[24:28]
    answer = request.payload[:6] + b"\0\2" + mac + target_ip + sender + sender_ip
    return Frame(sender, mac, request.tags, ARP, answer).pack()


def arp_request(mac, source_ip, target_ip, tags):
    body = struct.pack("!HHBBH", 1, IP4, 6, 4, 1) + mac + ip_bytes(source_ip) + bytes(6) + ip_bytes(target_ip)
    return Frame(BROADCAST, mac, tuple(tags), ARP, body).pack()


def icmp6(source, destination, kind, body):
    """An ICMPv6 packet of code 0 with hop limit 255, as neighbour discovery requires (RFC 4861 section 7.1)."""
    message = struct.pack("!BBH", kind, 0, 0) + body
    total = checksum(source + destination + struct.pack("!IHBB", len(message), 0, 0, 58) + message)
    message = message[:2] + struct.pack("!H", total) + message[4:]
    return struct.pack("!IHBB", 6 << 28, len(message), 58, 255) + source + destination + message


def advertisement(solicitation, mac):
    """The neighbour advertisement (RFC 4861 section 4.4) that answers a solicitation, or None for another frame."""
    packet = solicitation.payload
    if len(packet) < 64 or packet[6] != 58 or packet[40] != 135:
        return None
    asker, target = packet[8:24], packet[48:64]
    body = struct.pack("!I", 0x60000000) + target + b"\2\1" + mac
    return Frame(solicitation.source, mac, solicitation.tags, IP6, icmp6(target, asker, 136, body)).pack()


def solicitation(mac, source_ip, target_ip, tags):
    source, target = ip_bytes(source_ip), ip_bytes(target_ip)
    group = bytes.fromhex("ff0200000000000000000001ff") + target[13:]
    packet = icmp6(source, group, 135, bytes(4) + target + b"\1\1" + mac)
    return Frame(b"\x33\x33" + group[12:], mac, tuple(tags), IP6, packet).pack()
