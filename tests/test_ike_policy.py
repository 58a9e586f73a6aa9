# SPDX-License-Identifier: Apache-2.0
"""IKEv2 and security policies (RFC 4301 section 4.4.1) with strongSwan as the peer: no tunnel is an interface here."""

import socket

import pytest
from lab import thing
from lab.laboratory import wait_until
from lab.ping import lost
from pop import CORE4, CORE_MAC, HOST4
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import Ether
from test_ike import FAR, HERE, HOST, THERE, Site

LOCAL, REMOTE = "10.1.0.0/16", "10.2.0.0/16"


@pytest.fixture(scope="module")
def site(lab):
    made = Site(lab)
    made.outside.ip("route", "add", "203.0.113.0/24", "via", CORE4)
    both = [{"local": LOCAL, "remote": REMOTE}]
    made.gateway.apply(
        # Packets leave by the interface to the peer; the policies decide about them there.
        thing("Route", "office", prefix=REMOTE, nextHops=[{"address": HOST4}]),
        thing(
            "SecurityPolicy",
            "discard",
            interface="core",
            priority=10,
            action="DISCARD",
            selectors=[{"local": LOCAL, "remote": REMOTE, "protocol": "udp", "remotePorts": "9"}],
        ),
        thing("SecurityPolicy", "office", interface="core", priority=20, selectors=both),
    )
    return made


@pytest.fixture(autouse=True)
def nothing_left(site):
    yield
    site.gateway.delete("IkeConnection", "policy")
    wait_until(lambda: not site.associations() and not site.peer.children(), what="the tunnel is down")


def connection(start, **child):
    net = {"name": "net", "policy": "office", "local": [LOCAL], "remote": [REMOTE], "start": start} | child
    return thing(
        "IkeConnection",
        "policy",
        localAddress=CORE4,
        remoteAddress=HOST4,
        localIdentity=HERE,
        remoteIdentity=THERE,
        credential="office",
        children=[net],
    )


def connect(site, start, **child):
    site.gateway.apply(connection(start, **child), wait=start == "AT_ONCE")
    if start == "NOTHING":
        initiate = ("--initiate", "--child", "net")
        wait_until(lambda: site.peer.swanctl(*initiate, check=False).returncode == 0, what="a tunnel")
    if start != "ON_TRAFFIC":
        wait_until(site.up, what="the tunnel is up")


@pytest.mark.parametrize("start", ["AT_ONCE", "NOTHING", "ON_TRAFFIC"])
def test_a_policy_protects_packets_by_keys_of_ike(site, start):
    connect(site, start)
    wait_until(lambda: " 0% packet loss" in site.ping(1, check=False, wait=1), what="a packet passes")
    assert not lost(site.ping(5))
    assert site.up()
    for spec in site.associations().values():
        assert spec["policy"] == "office" and not spec.get("tunnel")
        assert spec["selectors"] == [{"local": LOCAL, "remote": REMOTE}]


def test_no_packet_of_a_policy_is_lost_while_either_end_rekeys(site):
    connect(site, "AT_ONCE")
    for rekey in (
        lambda: site.gateway.sluice("ike", "rekey", "policy", "--child", "net"),
        lambda: site.peer.swanctl("--rekey", "--child", "net"),
        lambda: site.gateway.sluice("ike", "rekey", "policy"),
        lambda: site.peer.swanctl("--rekey", "--ike", "peer"),
    ):
        before = site.peer.keys()
        rekey()
        said = site.ping(60, "0.02")
        assert not lost(said), said
        wait_until(lambda before=before: site.up() and site.peer.keys() != before, what="new keys")


def test_a_policy_drops_clear_text_and_discards_what_it_is_told(site):
    connect(site, "AT_ONCE")
    assert not lost(site.ping(1))
    wire = site.outside.inside(socket.socket, socket.AF_PACKET, socket.SOCK_RAW)
    frame = Ether(dst=CORE_MAC, src=site.outside.mac("uplink")) / IP(src=FAR, dst=HOST) / ICMP()
    before = site.gateway.drops().get("ipsec-unprotected", 0)
    with wire:
        wire.bind(("uplink", 0))
        for _ in range(10):
            wire.send(bytes(frame))
    site.gateway.dropped("ipsec-unprotected", 20, before + 9)
    before = site.gateway.drops().get("ipsec-policy-discard", 0)
    line = site.lan.inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    with line:
        for _ in range(10):
            line.sendto(b"discard", (FAR, 9))
    site.gateway.dropped("ipsec-policy-discard", 20, before + 9)
    # A packet that no policy selects is in clear text.
    frame = Ether(dst=CORE_MAC, src=site.outside.mac("uplink")) / IP(src=HOST4, dst=HOST) / UDP(dport=7777)
    target = site.lan.inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    with target, site.outside.inside(socket.socket, socket.AF_PACKET, socket.SOCK_RAW) as wire:
        site.lan.inside(target.bind, (HOST, 7777))
        target.settimeout(10)
        wire.bind(("uplink", 0))
        wire.send(bytes(frame))
        assert target.recvfrom(2048)[1][0] == HOST4
