# SPDX-License-Identifier: Apache-2.0
"""Packets of a session in a walled garden (fuzz.c)."""

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.packet import Raw


def frames(seeds):
    payload = Raw(b"sluice" * 6)
    yield "garden-http", seeds.ACCESS, seeds.qinq(9) / seeds.from_subscriber(9) / TCP(dport=80, flags="S")
    yield "garden-dns", seeds.ACCESS, seeds.qinq(9) / IP(src="100.64.0.9", dst="192.0.2.53") / UDP(dport=53) / payload
    yield (
        "garden-extensions",
        seeds.ACCESS,
        seeds.qinq(9) / seeds.from_subscriber6(9) / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / TCP(dport=80),
    )
    yield (
        "garden-fragment",
        seeds.ACCESS,
        seeds.qinq(9) / seeds.from_subscriber6(9) / IPv6ExtHdrFragment(nh=6, m=1) / TCP(dport=80) / payload,
    )
    yield "garden-error", seeds.CORE, seeds.core(IP(src="8.8.8.8", dst="100.64.0.9") / ICMP(type=3, code=1) / payload)
