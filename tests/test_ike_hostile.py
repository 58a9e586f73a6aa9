# SPDX-License-Identifier: Apache-2.0
"""IKE and ESP among packets of attackers, and rekeys from both ends at once: strongSwan's traffic goes on."""

import random
import re
import socket
import struct
import threading

import pytest
from lab import thing
from lab.laboratory import wait_until
from lab.ping import lost
from pop import CORE4, HOST4
from test_ike import Site

METRICS = "127.0.0.1:9464"
FLOOD, SCAN = 4000, 4000
# Packets a second that the peer's are among: the data plane passes on 5,000 of IKE.
PASSED_ON = 4000
IKE_SA_INIT, REQUEST = 34, 0x08


@pytest.fixture(scope="module")
def site(lab):
    made = Site(lab, northbounds=[{"type": "metrics", "name": "metrics", "listen": METRICS}])
    # The pool of addresses that the flood claims is behind the peer's link.
    made.gateway.apply(thing("Route", "anywhere", prefix="198.18.0.0/15", nextHops=[{"address": HOST4}]))
    made.gateway.apply(
        made.connection(
            "NOTHING", peerNetworks=["192.0.2.0/24", "198.18.0.0/15"], proposals=["aes256gcm16-prfsha256-x25519"]
        ),
        wait=False,
    )
    connect(made)
    return made


def connect(site):
    wait_until(lambda: site.peer.swanctl("--initiate", "--child", "net", check=False).returncode == 0, what="a tunnel")
    wait_until(site.up, what="the tunnel is up")


def metrics(site):
    """Values by name and labels."""
    said = site.inside.run("curl", "-sf", f"http://{METRICS}/metrics").stdout
    return {name: float(value) for name, value in re.findall(r"^(sluice_ike_\S+) (\S+)$", said, re.MULTILINE)}


class Ping:
    """Pings that run beside something else. `lost` is their number when they are over."""

    def __init__(self, site, count, interval):
        self.said = ""
        self.thread = threading.Thread(target=self.run, args=(site, count, interval))

    def run(self, site, count, interval):
        self.said = site.ping(count, interval, check=False)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join()

    @property
    def running(self):
        return self.thread.is_alive()


def payload(following, body):
    return struct.pack("!BBH", following, 0, 4 + len(body)) + body


def opening(numbers):
    """IKE_SA_INIT with the proposal of the connection, and a new SPI."""

    def transform(last, kind, number, attributes=b""):
        return struct.pack("!BBHBBH", 0 if last else 3, 0, 8 + len(attributes), kind, 0, number) + attributes

    transforms = (
        transform(False, 1, 20, struct.pack("!HH", 0x800E, 256)) + transform(False, 2, 5) + transform(True, 4, 31)
    )
    proposal = struct.pack("!BBHBBBB", 0, 0, 8 + len(transforms), 1, 1, 0, 3) + transforms
    body = payload(34, proposal)
    body += payload(40, struct.pack("!HH", 31, 0) + numbers.randbytes(32))
    body += payload(0, numbers.randbytes(32))
    header = numbers.randbytes(8) + bytes(8) + struct.pack("!BBBBII", 33, 0x20, IKE_SA_INIT, REQUEST, 0, 28 + len(body))
    return header + body


def udp_from(source, data):
    """An IPv4 packet of UDP port 500 without a checksum."""
    udp = struct.pack("!HHHH", 500, 500, 8 + len(data), 0) + data
    addresses = socket.inet_aton(source) + socket.inet_aton(CORE4)
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + addresses + udp


def test_half_open_ike_sas_of_a_flood_do_not_keep_peers_out(site):
    """Initiators without number whose addresses are forged, and the peer connects among them."""
    numbers, before = random.Random(1), metrics(site)
    raw = site.outside.inside(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    with raw, Ping(site, 400, "0.01") as ping:

        def flood(packets):
            for _ in range(packets):
                source = f"198.{numbers.choice((18, 19))}.{numbers.randrange(256)}.{numbers.randrange(1, 255)}"
                raw.sendto(udp_from(source, opening(numbers)), (CORE4, 0))

        flood(FLOOD)
        assert ping.running
    # The tunnel that was up before carried all packets.
    assert not lost(ping.said), ping.said
    wait_until(lambda: metrics(site).get('sluice_ike_packets_total{type="cookie"}', 0) > 0, what="cookies are needed")
    site.peer.swanctl("--terminate", "--ike", "peer")
    wait_until(lambda: not site.associations(), what="the tunnel is down")
    over = threading.Event()

    # As many as the data plane passes on: of more, those of peers would be lost as well, as often as not.
    def on():
        while not over.wait(20 / PASSED_ON):
            flood(20)

    attacker = threading.Thread(target=on)
    raw = site.outside.inside(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    with raw:
        attacker.start()
        try:
            connect(site)
            assert not lost(site.ping())
        finally:
            over.set()
            attacker.join()
    after = metrics(site)
    assert after['sluice_ike_sas{state="half-open"}'] <= 110
    assert after['sluice_ike_packets_total{type="cookie"}'] > FLOOD / 4
    assert before.get('sluice_ike_packets_total{type="cookie"}', 0) == 0


def test_a_scan_of_spis_neither_disturbs_a_tunnel_nor_finds_it(site):
    """ESP with any SPI from the peer's own address, as it is and in UDP."""
    numbers = random.Random(2)
    real = {spec["spi"] for spec in site.associations().values()}
    dropped = site.gateway.drops().get("esp-unknown-spi", 0)
    invalid = metrics(site).get('sluice_ike_packets_total{type="invalid-spi"}', 0)
    esp = site.outside.inside(socket.socket, socket.AF_INET, socket.SOCK_RAW, 50)
    udp = site.outside.inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    with esp, udp, Ping(site, 300, "0.01") as ping:
        for number in range(SCAN):
            spi = numbers.randrange(256, 1 << 32)
            if spi in real:
                continue
            data = struct.pack("!II", spi, number + 1) + numbers.randbytes(64)
            if number % 2:
                udp.sendto(data, (CORE4, 4500))
            else:
                esp.sendto(data, (CORE4, 0))
        assert ping.running
    assert not lost(ping.said), ping.said
    wait_until(lambda: site.gateway.drops()["esp-unknown-spi"] - dropped >= SCAN * 0.9, what="the scan is over")
    # With the SPI of a tunnel a packet without the key is dropped, and moves nothing.
    before = site.gateway.drops().get("esp-icv", 0)
    (inbound,) = (spec for name, spec in site.associations().items() if name.endswith("-in"))
    with site.outside.inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for number in range(100):
            udp.sendto(struct.pack("!II", inbound["spi"], 1 << 30 | number) + numbers.randbytes(64), (CORE4, 4500))
    wait_until(lambda: site.gateway.drops().get("esp-icv", 0) >= before + 100, what="forged packets are dropped")
    assert not lost(site.ping(20, "0.02"))
    assert site.up() and {spec["spi"] for spec in site.associations().values()} == real
    # INVALID_SPI goes through the IKE SA, once in a while: a scan makes no flood of it.
    assert metrics(site).get('sluice_ike_packets_total{type="invalid-spi"}', 0) - invalid <= 3


def test_junk_for_the_ports_of_ike_ends_nothing(site):
    """Random bytes, and packets of the tunnel's own IKE SA without its keys."""
    numbers = random.Random(3)
    listed = site.peer.swanctl("--list-sas", "--raw").stdout
    spis = [bytes.fromhex(spi) for spi in re.findall(r"(?:initiator|responder)-spi=(\w{16})", listed)]
    with site.outside.inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for number in range(2000):
            exchange, flags = numbers.choice((34, 35, 36, 37, 38, 43, 44)), numbers.choice((0, 0x08, 0x20, 0x28))
            body = payload(numbers.choice((0, 33, 41, 42, 46, 53)), numbers.randbytes(numbers.randrange(200)))
            header = b"".join(spis) + struct.pack(
                "!BBBBII",
                numbers.choice((0, 33, 41, 42, 46, 53)),
                0x20,
                exchange,
                flags,
                numbers.randrange(8),
                28 + len(body),
            )
            data = numbers.choice((header + body, numbers.randbytes(numbers.randrange(300))))
            if number % 2:
                udp.sendto(b"\0\0\0\0" + data, (CORE4, 4500))
            else:
                udp.sendto(data, (CORE4, 500))
    assert not lost(site.ping(20, "0.02"))
    assert site.up()
    before = site.peer.children()
    site.peer.swanctl("--rekey", "--ike", "peer")
    site.peer.swanctl("--rekey", "--child", "net")
    wait_until(lambda: site.up() and site.peer.children() != before, what="another child")
    assert not lost(site.ping(5))


MORE = pytest.mark.long(reason="one collision is in every run; each takes 10 to 20 seconds")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (("--child", "net"), ("--child", "net")),
        pytest.param((), ("--ike", "peer"), marks=MORE),
        pytest.param(("--child", "net"), ("--ike", "peer"), marks=MORE),
        pytest.param((), ("--child", "net"), marks=MORE),
    ],
    ids=["child-child", "ike-ike", "child-ike", "ike-child"],
)
def test_no_packet_is_lost_while_both_ends_rekey_at_once(site, ours, theirs):
    for _ in range(3):
        before, drops = site.peer.keys(), site.gateway.drops()
        with Ping(site, 150, "0.01") as ping:
            other = threading.Thread(target=site.peer.swanctl, args=("--rekey", *theirs), kwargs={"check": False})
            other.start()
            site.gateway.sluice("ike", "rekey", "office", *ours)
            other.join()
        after = {name: n for name, n in site.gateway.drops().items() if n != drops.get(name, 0)}
        assert not lost(ping.said), (ping.said, drops, after)
        wait_until(lambda: site.up() and len(site.gateway.json("ike", "list")) == 1, what="one IKE SA with one child")
        # A child may wait for another time while the IKE SA gets new keys (RFC 7296 section 2.25.2).
        wait_until(lambda before=before: site.peer.keys() != before, what="new keys")
    assert not lost(site.ping(5))
