# SPDX-License-Identifier: Apache-2.0
"""Packets for a UE in a GRE tunnel (fuzz.c), and GreTunnels."""

from scapy.layers.inet import IP, UDP
from scapy.packet import Raw

OBJECTS = [
    (
        "GreTunnel",
        'local_address: "2001:db8:200::1" remote_address: "2001:db8:201::7" children { tunnel: "esp" } children { tunnel: "gre" qfis: 1 qfis: 5 }',
    ),
    ("GreTunnel", 'local_address: "10.200.0.1" remote_address: "10.201.0.8" children { tunnel: "esp" qfis: 63 }'),
    ("Session", 'access { gre_tunnel: "ue" } addresses: "100.64.0.21/32"'),
]


def frames(seeds):
    payload = Raw(b"sluice" * 6)
    yield "gtpu-to-gre", seeds.CORE, seeds.tunnel(IP(src="8.8.8.8", dst="100.64.0.20") / UDP(dport=5000) / payload, 20)
