# SPDX-License-Identifier: Apache-2.0
"""Corpora for the harnesses: seeds.py DIRECTORY writes valid packets of each kind into DIRECTORY/frames, a file being an
input of frames.c, and valid requests into DIRECTORY/requests, for requests.c."""

import importlib.util
import pathlib
import struct
import subprocess
import sys

from scapy.contrib.gtp import GTP_U_Header, GTPEchoRequest, GTPPDUSessionContainer
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_RR
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    ICMPv6PacketTooBig,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
)
from scapy.layers.ipsec import ESP
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.ppp import PPP, PPPoE, PPPoED
from scapy.packet import Raw

ACCESS, CORE = 0, 1
GATEWAY_MAC, CORE_MAC, UPF_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:01:02"


def cpe(number):
    return f"02:01:00:00:00:0{number}"


def qinq(number, outer=100, to=GATEWAY_MAC):
    return Ether(src=cpe(number), dst=to) / Dot1AD(vlan=outer) / Dot1Q(vlan=number)


def pppoe(number, protocol):
    return qinq(number) / PPPoE(sessionid=number) / PPP(proto=protocol)


def from_subscriber(number, **fields):
    return IP(src=f"100.64.0.{number}", dst="8.8.8.8", **fields)


def from_subscriber6(number):
    return IPv6(src=f"2001:db8:1:{number}::5", dst="2001:4860::8888")


def core(packet):
    return Ether(src=UPF_MAC, dst=CORE_MAC) / packet


def tunnel(inner, teid=4, outer=None, **fields):
    outer = outer or IP(src="192.0.2.2", dst="192.0.2.1")
    gtp = GTP_U_Header(teid=teid, E=1, next_ex=0x85, **fields) / GTPPDUSessionContainer(type=0, QFI=9, RQI=1)
    return core(outer / UDP(sport=2152, dport=2152) / gtp / inner)


def packets():
    payload = Raw(b"sluice" * 6)
    tcp_syn = TCP(sport=5000, dport=443, flags="S", options=[("MSS", 1460), ("NOP", None), ("WScale", 7), ("SAckOK", b"")])
    downlink = IP(src="8.8.8.8", dst="100.64.0.4") / UDP(sport=443, dport=5000) / payload
    yield "ipoe-udp", ACCESS, qinq(1) / from_subscriber(1) / UDP(sport=5000, dport=443) / payload
    yield "ipoe-mac-tcp-syn", ACCESS, qinq(2) / from_subscriber(2) / tcp_syn
    yield "ipoe-options", ACCESS, qinq(1) / from_subscriber(1, options=[IPOption_RR()]) / UDP(dport=443) / payload
    yield "ipoe-icmp", ACCESS, qinq(1) / from_subscriber(1) / ICMP() / payload
    yield "ipoe-ttl-1", ACCESS, qinq(1) / from_subscriber(1, ttl=1) / UDP() / payload
    yield "ipoe-prohibited", ACCESS, qinq(1) / IP(src="100.64.0.1", dst="203.0.113.9") / UDP() / payload
    yield "ipoe-ping-gateway", ACCESS, qinq(1) / IP(src="100.64.0.1", dst="100.64.255.1") / ICMP() / payload
    yield "ipoe-udp6", ACCESS, qinq(1) / from_subscriber6(1) / UDP(dport=443) / payload
    yield "ipoe-tcp6-syn", ACCESS, qinq(1) / from_subscriber6(1) / tcp_syn
    yield "ipoe-extensions", ACCESS, qinq(1) / from_subscriber6(1) / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / UDP() / payload
    yield "ipoe-ping6-gateway", ACCESS, qinq(1) / IPv6(src="2001:db8:1:1::5", dst="2001:db8:1::1") / ICMPv6EchoRequest()
    yield "ipoe-arp", ACCESS, qinq(1, to="ff:ff:ff:ff:ff:ff") / ARP(
        hwsrc=cpe(1), psrc="100.64.0.1", pdst="100.64.255.1")
    yield "proxy-arp", ACCESS, qinq(4, to="ff:ff:ff:ff:ff:ff") / ARP(hwsrc=cpe(4), psrc="100.64.0.4", pdst="100.64.9.9")
    yield "ipoe-ns", ACCESS, qinq(1, to="33:33:ff:00:00:01") / IPv6(
        src="2001:db8:1:1::5", dst="ff02::1:ff00:1", hlim=255) / ICMPv6ND_NS(tgt="2001:db8:1::1") / ICMPv6NDOptSrcLLAddr(lladdr=cpe(1))
    yield "ipoe-rs", ACCESS, qinq(1, to="33:33:00:00:00:02") / IPv6(src="fe80::5", dst="ff02::2", hlim=255) / ICMPv6ND_RS()
    yield "ipoe-dhcp", ACCESS, qinq(1, to="ff:ff:ff:ff:ff:ff") / IP(src="0.0.0.0", dst="255.255.255.255") / UDP(
        sport=68, dport=67) / BOOTP(chaddr=b"\2\1\0\0\0\1") / DHCP(options=[("message-type", "discover"), "end"])
    yield "pppoe-udp", ACCESS, pppoe(3, 0x0021) / from_subscriber(3) / UDP(sport=5000, dport=443) / payload
    yield "pppoe-udp6", ACCESS, pppoe(3, 0x0057) / from_subscriber6(3) / UDP(dport=443) / payload
    yield "pppoe-lcp", ACCESS, pppoe(3, 0xC021) / Raw(bytes.fromhex("01010008" "01040594"))
    yield "pppoe-lcp-echo", ACCESS, pppoe(3, 0xC021) / Raw(bytes.fromhex("0901000c" "01020304" "68656c6c"))
    yield "pppoe-lcp-unknown", ACCESS, pppoe(9, 0xC021) / Raw(bytes.fromhex("01010008" "01040594"))
    yield "pppoe-padi", ACCESS, Ether(src=cpe(3), dst="ff:ff:ff:ff:ff:ff", type=0x88A8) / Dot1AD(vlan=100) / Dot1Q(
        vlan=3) / PPPoED(code=0x09) / Raw(bytes.fromhex("01010000"))
    yield "pppoe-gtpu", ACCESS, pppoe(5, 0x0021) / from_subscriber(5) / UDP(sport=5000, dport=443) / payload
    yield "ipoe-gtpu", ACCESS, qinq(4) / from_subscriber(4) / UDP(sport=5000, dport=443) / payload
    yield "ipoe-gtpu6", ACCESS, qinq(4) / from_subscriber6(4) / tcp_syn
    yield "lan", ACCESS, Ether(src=cpe(9), dst=GATEWAY_MAC) / Dot1Q(vlan=200) / IP(src="198.51.100.9", dst="8.8.4.4") / UDP() / payload
    yield "lan-arp", ACCESS, Ether(src=cpe(9), dst="ff:ff:ff:ff:ff:ff") / Dot1Q(vlan=200) / ARP(
        hwsrc=cpe(9), psrc="198.51.100.9", pdst="198.51.100.1")
    yield "down-udp", CORE, core(IP(src="8.8.8.8", dst="100.64.0.2") / UDP(dport=5000) / payload)
    yield "down-pppoe-udp6", CORE, core(IPv6(src="2001:4860::8888", dst="2001:db8:1:3::5") / UDP(dport=5000) / payload)
    yield "down-syn", CORE, core(IP(src="8.8.8.8", dst="100.64.0.3") / tcp_syn)
    yield "down-large", CORE, core(IP(src="8.8.8.8", dst="100.64.0.3") / UDP() / Raw(bytes(1490)))
    yield "down-large-df", CORE, core(IP(src="8.8.8.8", dst="100.64.0.3", flags="DF") / UDP() / Raw(bytes(1490)))
    yield "gtpu", CORE, tunnel(downlink)
    yield "gtpu-sequence", CORE, tunnel(downlink, S=1, seq=7)
    yield "gtpu-inner6", CORE, tunnel(IPv6(src="2001:4860::8888", dst="2001:db8:1:4::5") / UDP() / payload)
    yield "gtpu-outer6", CORE, tunnel(
        IP(src="8.8.8.8", dst="100.64.0.5") / UDP() / payload, 6, IPv6(src="2001:db8:c::2", dst="2001:db8:c::1"))
    yield "gtpu-unknown-teid", CORE, tunnel(downlink, 4444)
    yield "gtpu-echo", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / UDP(sport=2152, dport=2152) / GTP_U_Header(
        gtp_type=1, S=1) / GTPEchoRequest())
    yield "gtpu-end-marker", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / UDP(sport=2152, dport=2152) / GTP_U_Header(
        teid=4, gtp_type=254))
    yield "gtpu-error-indication", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / UDP(sport=2152, dport=2152) / Raw(
        bytes.fromhex("361a001000000000" "00000000" "1000000005" "850004c0000201")))
    yield "gtpu-unknown-extension", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / UDP(sport=2152, dport=2152) / Raw(
        bytes.fromhex("34ff002400000004" "000000c0" "01ffff00")) / downlink)
    yield "gtpu-marked", CORE, tunnel(downlink, outer=IP(src="192.0.2.2", dst="192.0.2.1", tos=3))
    yield "gtpu-too-big", CORE, core(IPv6(src="2001:db8:77::1", dst="2001:db8:c::1") / ICMPv6PacketTooBig(mtu=1300) / IPv6(
        src="2001:db8:c::1", dst="2001:db8:c::2") / UDP(sport=50000, dport=2152) / GTP_U_Header(
        teid=7, E=1, next_ex=0x85) / GTPPDUSessionContainer(type=1, QFI=9) / from_subscriber(5) / UDP() / Raw(bytes(1300)))
    yield "pdu-1", ACCESS, qinq(6) / from_subscriber(6) / UDP(sport=5000, dport=443) / payload
    yield "pdu-2", ACCESS, qinq(6) / from_subscriber6(7) / UDP(sport=5000, dport=443) / payload
    yield "frame-arp", ACCESS, qinq(8, to="ff:ff:ff:ff:ff:ff") / ARP(psrc="10.0.0.1", pdst="10.0.0.2")
    yield "frame-tagged", ACCESS, qinq(9, outer=300, to="02:09:09:09:09:09") / IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / payload
    yield "frame-down", CORE, tunnel(Ether(src=cpe(8), dst="02:09:09:09:09:09") / Dot1Q(vlan=5) / ARP(), 10)
    yield "frame-down6", CORE, tunnel(
        Ether(src=cpe(8), dst=cpe(9)) / IP() / UDP() / payload, 11, IPv6(src="2001:db8:c::2", dst="2001:db8:c::1"))
    yield "esp", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / ESP(spi=5000, seq=1, data=bytes(64)))
    yield "esp-cbc", CORE, core(IPv6(src="2001:db8:c::2", dst="2001:db8:c::1") / ESP(spi=5001, seq=1, data=bytes(64)))
    yield "esp-unknown", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / ESP(spi=9999, seq=1, data=bytes(64)))
    yield "esp-udp", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / UDP(sport=4500, dport=4500) / ESP(spi=5002, seq=1, data=bytes(64)))
    yield "esp-keepalive", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / UDP(sport=4500, dport=4500) / Raw(b"\xff"))
    yield "ike", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / UDP(sport=500, dport=500) / Raw(bytes(28)))
    yield "ike-udp", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / UDP(sport=4500, dport=4500) / Raw(bytes(32)))
    yield "into-tunnel", ACCESS, qinq(1) / IP(src="100.64.0.1", dst="10.9.9.9") / tcp_syn
    yield "esp-fragmentation-needed", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / ICMP(type=3, code=4, nexthopmtu=1300) / IP(
        src="192.0.2.1", dst="192.0.2.2", len=1400) / ESP(spi=5003, seq=1, data=bytes(16)))
    yield "ping-core", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / ICMP() / payload)
    yield "fragment-first", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1", id=7, flags="MF") / ICMP() / Raw(bytes(32)))
    yield "fragment-last", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1", id=7, frag=5, proto=1) / Raw(bytes(24)))
    yield "fragment6", CORE, core(IPv6(src="2001:db8:c::2", dst="2001:db8:c::1") / IPv6ExtHdrFragment(
        id=7, m=1, nh=58) / Raw(bytes(32)))
    yield "na", CORE, core(IPv6(src="2001:db8:c::2", dst="2001:db8:c::1", hlim=255) / ICMPv6ND_NA(
        tgt="2001:db8:c::2", S=1) / ICMPv6NDOptDstLLAddr(lladdr=UPF_MAC))
    yield "arp-reply", CORE, core(ARP(op=2, hwsrc=UPF_MAC, psrc="192.0.2.3", hwdst=CORE_MAC, pdst="192.0.2.1"))
    yield "port-unreachable", CORE, core(IP(src="192.0.2.2", dst="192.0.2.1") / UDP(dport=9) / payload)
    for what, packet in unclaimed(payload):
        yield f"unclaimed-{what}-untagged", ACCESS, Ether(src=cpe(9), dst=GATEWAY_MAC) / packet
        yield f"unclaimed-{what}-double", ACCESS, qinq(9, outer=400) / packet


def unclaimed(payload):
    """Packets of a circuit without a session."""
    yield "dhcp4", IP(src="0.0.0.0", dst="255.255.255.255", options=[IPOption_RR()]) / UDP(sport=68, dport=67) / BOOTP()
    yield "dhcp6", IPv6(src="fe80::9", dst="ff02::1:2") / UDP(sport=546, dport=547) / payload
    yield "arp", ARP(psrc="10.0.0.1", pdst="10.0.0.2")
    yield "nd", IPv6(src="fe80::9", dst="ff02::2", hlim=255) / ICMPv6ND_RS()
    yield "first-packet", IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / payload
    yield "pppoe", PPPoED(code=0x09) / Raw(bytes.fromhex("01010000"))


def reflected():
    """A frame in the tunnel of a session of type Ethernet that asks for a rule, and the subscriber's of the same flow behind it."""
    payload, secret = Raw(b"sluice" * 4), ESP(spi=7, data=b"x" * 16)
    there, here = {"src": "10.0.0.1", "dst": "10.0.0.2"}, {"src": "10.0.0.2", "dst": "10.0.0.1"}
    there6, here6 = {"src": "2001:db8::1", "dst": "2001:db8::2"}, {"src": "2001:db8::2", "dst": "2001:db8::1"}
    both = Dot1AD(vlan=9, prio=2) / Dot1Q(vlan=7, prio=5)
    flows = {
        "udp": (both, IP(**there) / UDP(sport=7, dport=1024) / payload, IP(**here) / UDP(sport=1024, dport=7) / payload),
        "tcp6": (Dot1Q(vlan=7), IPv6(**there6) / TCP(sport=7, dport=1024), IPv6(**here6) / TCP(sport=1024, dport=7)),
        "esp": (Dot1AD(vlan=9), IP(**there) / secret, IP(**here) / secret),
        "cut": (Dot1Q(vlan=7, type=0x0800), Raw(bytes(IP(**there, proto=17))[:19]), IP(**here) / UDP()),
        "twice": (Dot1Q(vlan=7) / Dot1Q(vlan=8), ARP(), ARP()),
    }
    for name, (tags, down, up) in flows.items():
        far = "02:09:09:09:09:09"
        yield f"reflected-{name}", (
            (CORE, tunnel(Ether(src=far, dst=cpe(8)) / tags / down, 10)),
            (ACCESS, qinq(8, to=far) / tags / up),
        )


API = pathlib.Path(__file__).resolve().parents[2] / "api"

# Specs in protobuf's text form.
OBJECTS = [
    ("Port", 'device: "net_null7,no-rx=1" mtu: 1500 mac: "02:00:00:00:00:77" promiscuous: true'),
    ("Vrf", 'description: "another"'),
    ("Interface", 'port: "core" outer_vlan: 7 inner_vlan: 8 vrf: "default" addresses: "203.0.113.1/24" acl_in: "acl" proxy_arp: true'),
    ("Interface", 'addresses: "203.0.113.9/32" addresses: "2001:db8:99::1/128"'),
    ("Route", 'prefix: "10.0.0.0/8" next_hops { address: "192.0.2.9" weight: 3 } next_hops { address: "192.0.2.10" interface: "core" }'),
    ("Route", 'prefix: "2001:db8:77::/48" action: BLACKHOLE'),
    ("NextHopGroup", 'next_hops { address: "192.0.2.9" weight: 3 } next_hops { address: "192.0.2.10" interface: "core" }'),
    ("Neighbor", 'interface: "core" address: "192.0.2.77" mac: "02:00:00:00:00:78"'),
    ("Acl", 'rules { action: PERMIT source: "10.0.0.0/8" protocol: "tcp" destination_ports: "80-90" tcp_flags: "syn,!ack" dscp: "af11" }'
     ' rules { protocol: "icmp" icmp_type: "3/4" } otherwise: PERMIT'),
    ("Meter", 'algorithm: TRTCM committed_rate: 1000000 committed_burst: 9000 peak_rate: 2000000 excess_burst: 9000 color_aware: true'
     ' yellow { verdict: REMARK dscp: "af12" } red { verdict: DROP }'),
    ("FlowProfile", 'rules { precedence: 10 qfi: 5 filters { direction: UPLINK protocol: "udp" remote: "198.51.100.0/24" remote_ports: "5060" dscp: "ef" }'
     ' filters { flow_label: 99 local: "2001:db8::/32" } filters { spi: 77 } } rules { precedence: 255 qfi: 9 } flows { qfi: 5 dscp: "ef" class: 1 priority: 5 }'),
    ("GtpuPeer", 'address: "192.0.2.2" echo_interval: 1000000000 response_time: 500000000 requests: 3'),
    ("Meter", 'committed_rate: 1000000 committed_burst: 9000 scope: FLOW flows: 1024'),
    ("Port", 'device: "net_null8" spread: ATOMIC'),
    ("Punt", 'port: "access" outer_vlans: "500-599" outer_vlans: "700" inner_vlans: "1-4094" protocols: DHCP4 protocols: FIRST_PACKET rate: 5'),
    ("QosScheduler", 'port: "core" rate: 1000000000 overhead: 24 burst_time: 1000000'),
    ("QosGroup", 'scheduler: "queues" committed_rate: 1000000 peak_rate: 2000000 weight: 3 overhead: 24'),
    ("QosProfile", 'committed_rate: 1000000 peak_rate: 9000000 overhead: 16 atm_cells: true classes { name: "voice" peak_rate: 64000'
     ' match { dscp: "ef" qfis: 1 vlan_priorities: 5 acl: "acl" } mark { dscp: "cs5" vlan_priority: 5 qfi: 1 } }'
     ' classes { name: "data" priority: 1 queue_length: 32 drop_policy: WRED wred { min: 8 max: 24 percent: 50 } }'
     ' classes { name: "rest" priority: 1 weight: 2 drop_policy: CODEL codel { target: 5000000 interval: 100000000 } }'),
    ("IpsecTunnel", 'local_address: "192.0.2.1" remote_address: "192.0.2.2" mss: 1300 selectors { local: "10.1.0.0/16" remote: "10.2.0.0/16"'
     ' protocol: "tcp" local_ports: "80" remote_ports: "1024-65535" }'),
    ("SecurityAssociation", 'direction: OUTBOUND spi: 7000 local_address: "192.0.2.1" remote_address: "192.0.2.9" udp { remote_port: 40000 keepalive: 20000000000 }'
     ' encryption_key: "000102030405060708090a0b0c0d0e0f10111213" esn: true replay_window: 128 sequence: 5 hard_bytes: 9000000 soft_packets: 5'
     ' tunnel: "esp" precedence: 3 peer: "esp-0" selectors { local: "10.1.0.0/16" } outer { dscp: DSCP_SET dscp_value: "af41" df: DF_SET } path_mtu: 1400'),
    ("SecurityAssociation", 'spi: 7001 local_address: "2001:db8:c::1" remote_address: "2001:db8:c::9" encryption: AES_CBC'
     ' encryption_key: "000102030405060708090a0b0c0d0e0f" integrity: HMAC_SHA256'
     ' integrity_key: "000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f" replay_window: 4096 tunnel: "esp"'),
    ("Session", 'access { port: "access" outer_vlan: 101 inner_vlan: 9 mac: "02:01:00:00:00:99" pppoe_session_id: 9 }'
     ' addresses: "100.64.9.9/32" addresses: "2001:db8:9::/56" policy { acl_up: "acl" meter_down: "meter" mss: 1400 mtu: 1480 flow_profile: "flows" }'),
    ("Session", 'access { port: "access" outer_vlan: 102 } addresses: "100.64.9.10/32" gtpu { local_address: "192.0.2.1" local_teid: 99'
     ' remote_address: "192.0.2.2" remote_teid: 98 pdu_session_container: true qfi: 5 reflective_qos: true }'),
    ("Session", 'access { port: "access" outer_vlan: 103 } gtpu { local_address: "192.0.2.1" local_teid: 199'
     ' remote_address: "192.0.2.2" remote_teid: 198 ethernet: true }'),
    ("Session", 'access { port: "access" outer_vlan: 100 inner_vlan: 6 pdu_session_id: 3 } addresses: "100.64.0.60/32"'),
]
REQUESTS = [
    "hello { version: 2 }",
    'delete { names { kind: "Session" name: "ipoe" } names { kind: "Port" name: "core" } }',
    'list { limit: 3 } ',
    'list { kind: "Session" limit: 2 page: "5.2" }',
    'watch { punts: "pppoe-discovery" punts: "ppp-control" }',
    'trace { filter: "vlan 100 and vlan 1 and host 100.64.0.1" count: 2 }',
    'capture { filter: "udp port 53" node: "ip4-lookup" snap_length: 64 count: 1 }',
    'capture { session: "ipoe" count: 1 }',
    "cancel { id: 2 }",
    'packet_out { port: "core" packet: "aaaaaaaaaaaaaaaaaaaaaaaa" }',
    'packet_out { interface: "lan" packet: "aaaaaaaaaaaaaaaaaaaaaaaa" }',
    'packet_out { vrf: "default" packet: "E\\000\\000\\024aaaaaaaaaaaaaaaa" }',
    'packet_out { session: "ipoe" packet: "E\\000\\000\\024aaaaaaaaaaaaaaaa" }',
]
STATE_QUERIES = [
    ("SecurityAssociationStatesQuery", 'names: "esp-0" limit: 5'),
    ("NodeCountersQuery", "graph: true"),
    ("PortCountersQuery", ""),
    ("InterfaceCountersQuery", ""),
    ("SessionCountersQuery", 'sessions: "ipoe" sessions: "nobody"'),
    ("SessionCountersQuery", "limit: 2"),
    ("DropCountersQuery", 'session: "ipoe"'),
    ("NeighborStatesQuery", "limit: 5"),
    ("GtpuPathsQuery", "limit: 5"),
    ("QueueCountersQuery", ""),
    ("SchedulerCountersQuery", ""),
    ("SchedulerCountersQuery", 'group: "g"'),
]
# Objects that exist for one request and are gone in the next.
BRIEF = [
    [("Port", "p", 'device: "net_null9,no-rx=1"'), ("QosScheduler", "s", 'port: "p"'), ("QosGroup", "g", 'scheduler: "s"')],
    [("FlowProfile", "f", "rules { qfi: 9 }"), ("Session", "e", 'access { port: "access" outer_vlan: 104 } addresses: "100.64.9.11/32"'
      ' policy { flow_profile: "f" }')],
    [("Port", "d", 'device: "net_null9" spread: ATOMIC')],
    # A group that changes under a route: to a larger table, and to where no network is.
    [("NextHopGroup", "n", 'next_hops { address: "192.0.2.9" }'), ("Route", "r", 'prefix: "10.2.0.0/16" next_hop_group: "n"'),
     ("NextHopGroup", "n", 'next_hops { address: "192.0.2.9" weight: 3 } next_hops { address: "192.0.2.10" weight: 200 }'),
     ("NextHopGroup", "n", 'next_hops { address: "10.9.9.9" }')],
]


def encode(message, text):
    command = ["protoc", f"-I{API}", f"--encode=sluice.v1.{message}", *map(str, API.glob("*.proto"))]
    return subprocess.run(command, input=text.encode(), check=True, capture_output=True).stdout


def packed(message, text):
    return "".join(f"\\{byte:03o}" for byte in encode(message, text))


def object_of(kind, name, text):
    return f'objects {{ kind: "{kind}" name: "{name}" spec: "{packed(kind, text)}" }}'


def frames_of(*requests):
    return b"".join(struct.pack("!I", len(each)) + each for each in requests)


def brief():
    """Whole frames: all put at once, and all deleted at once."""
    for objects in BRIEF:
        put = " ".join(object_of(*each) for each in objects)
        names = " ".join(f'names {{ kind: "{kind}" name: "{name}" }}' for kind, name, _ in reversed(objects))
        yield frames_of(encode("Request", f"id: 5 put {{ {put} }}"), encode("Request", f"id: 6 delete {{ {names} }}"))


def requests():
    for number, (kind, text) in enumerate(OBJECTS):
        yield encode("Request", f"id: {number} put {{ {object_of(kind, f'new-{number}', text)} }}")
    states = (f'state {{ type: "{query}" query: "{packed(query, text)}" }}' for query, text in STATE_QUERIES)
    for number, text in enumerate((*REQUESTS, *states)):
        yield encode("Request", f"id: {100 + number} {text}")


def concepts():
    """The seeds of each concept's own, dataplane/CONCEPT/fuzz_seeds.py. frames(seeds) yields as packets() does, from the parts of this
    module; OBJECTS, REQUESTS and STATE_QUERIES are as here. All are optional."""
    for path in sorted(pathlib.Path(__file__).parent.parent.glob("*/fuzz_seeds.py")):
        spec = importlib.util.spec_from_file_location(f"seeds_of_{path.parent.name}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def main():
    own = list(concepts())
    for module in own:
        OBJECTS.extend(getattr(module, "OBJECTS", ()))
        REQUESTS.extend(getattr(module, "REQUESTS", ()))
        STATE_QUERIES.extend(getattr(module, "STATE_QUERIES", ()))
    directory = pathlib.Path(sys.argv[1])
    for part in ("crypto", "esp", "frames", "keys", "requests"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    frames = [*packets(), *(row for module in own if hasattr(module, "frames") for row in module.frames(sys.modules[__name__]))]
    rows = [(name, [(side, packet)]) for name, side, packet in frames]
    for name, row in (*rows, *reflected()):
        frames = [(side, bytes(packet)) for side, packet in row]
        made = b"".join(struct.pack("!BH", side, len(frame)) + frame for side, frame in frames)
        (directory / "frames" / name).write_bytes(made)
    for number, request in enumerate(requests()):
        # After a hello, with a whole frame around the request.
        (directory / "requests" / f"{number}").write_bytes(b"\3" + request)
    # The plaintext of an authenticated peer, by an SA (esp.c): a packet, padding, pad length, next header.
    inner4 = bytes(IP(src="10.9.9.9", dst="100.64.0.1") / UDP() / Raw(bytes(20)))
    inner6 = bytes(from_subscriber6(9) / UDP() / Raw(bytes(8)))
    gre = bytes(IP(src="10.201.0.7", dst="10.200.0.1") / GRE(key_present=1, proto=0, key=5 << 24)
                / from_subscriber(20) / UDP(dport=443) / Raw(bytes(16)))
    plains = ((3, gre + b"\1\2\2\4"), (3, gre[:27] + b"\1\1\4"), (0, inner4 + b"\1\2\2\4"), (4, inner6 + b"\1\2\2\x29"), (1, inner4 + b"\1\2\2\4"), (2, inner6 + b"\0\x29"),
              (0, b"\1\2\2\x3b"), (2, inner4 + b"\x09\4"), (0, b"\x45\0\4"))
    for number, (sa, plain) in enumerate(plains):
        (directory / "esp" / f"{number}").write_bytes(bytes([sa]) + plain)
    # Batches for the crypto engine: eight bytes for each operation (crypto.c).
    for flags in range(16):
        batch = [struct.pack("<BBBHBH", number, flags, number, 97 * number % 2048, 8, 13 * number) for number in range(36)]
        (directory / "crypto" / f"{flags}").write_bytes(b"".join(batch[flags:] + batch[:flags]))
    # Sessions that are put, put elsewhere, asked after, and deleted: three bytes for each step (keys.c).
    for number, what in enumerate((0, 5, 25, 30)):
        steps = [(session + what, 27 * session + step, step % 2) for step in range(4) for session in range(5)]
        (directory / "keys" / f"{number}").write_bytes(bytes(byte for step in steps for byte in step))
    for number, sequence in enumerate(brief()):
        (directory / "requests" / f"brief-{number}").write_bytes(b"\1" + sequence)


if __name__ == "__main__":
    main()
