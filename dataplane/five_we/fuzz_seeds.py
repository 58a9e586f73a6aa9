# SPDX-License-Identifier: Apache-2.0
"""Packets of 5G residential gateways."""

import struct

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

OBJECTS = [
    (
        "Session",
        'access { port: "access" outer_vlan: 101 inner_vlan: 9 five_we_session_id: 9 } addresses: "100.64.1.8/32"',
    ),
]


def five_we(seeds, number, protocol, payload, session=None):
    """RFC 8822: version 2, QFI 5."""
    header = Raw(struct.pack("!BBHHH", 0x21, 5 << 2, session or number, len(payload) + 2, protocol))
    return (
        Ether(src=seeds.cpe(number), dst=seeds.GATEWAY_MAC)
        / Dot1AD(vlan=100)
        / Dot1Q(vlan=number, type=0x8864)
        / header
        / payload
    )


def frames(seeds):
    payload = Raw(b"sluice" * 6)
    yield (
        "5we-udp",
        seeds.ACCESS,
        five_we(seeds, 3, 0x0021, IP(src="100.64.0.10", dst="8.8.8.8") / UDP(dport=443) / payload),
    )
    yield (
        "5we-udp6",
        seeds.ACCESS,
        five_we(seeds, 3, 0x0057, IPv6(src="2001:db8:1:10::5", dst="2001:4860::8888") / UDP() / payload),
    )
    yield "5we-ethernet", seeds.ACCESS, five_we(seeds, 3, 0x0031, payload)
    frame = (
        Ether(src=seeds.cpe(8), dst=seeds.cpe(7)) / Dot1Q(vlan=7) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / payload
    )
    yield "5we-frame", seeds.ACCESS, five_we(seeds, 3, 0x0031, Raw(b"\0\1") / frame, 4)
    yield "5we-frame-down", seeds.CORE, seeds.tunnel(frame, 14)
    yield "5we-unknown", seeds.ACCESS, five_we(seeds, 9, 0x0021, seeds.from_subscriber(9) / payload)
    yield "5we-down", seeds.CORE, seeds.tunnel(IP(src="8.8.8.8", dst="100.64.0.10") / UDP(dport=5000) / payload, 12)
