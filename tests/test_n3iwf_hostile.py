# SPDX-License-Identifier: Apache-2.0
"""Messages that made other N3IWFs end: malformed messages of a UE that holds the keys, over the wire. Another UE is
served throughout."""

import re
import struct

import pytest
from lab.laboratory import wait_until
from lab.n3iwf import USER_PLANE, Site, connected, fresh, having, nothing_left, register

METRICS = "127.0.0.1:9464"
SA, KE, NONCE, NOTIFY, DELETE, TSI = 33, 34, 40, 41, 42, 44
CHILD, INFORMATIONAL = 36, 37
INVALID_SYNTAX = 7
IKE, ESP = 1, 3


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab, gateway={"northbounds": [{"type": "metrics", "name": "metrics", "listen": METRICS}]})


@pytest.fixture(scope="module")
def all_ues(site):
    return site.ues(count=2)


class Pair:
    """UE 0 is hostile, and UE 1 has a PDU session all the time."""

    def __init__(self, site, ues):
        self.site, self.ues = site, ues
        self.agent, self.dataplane = site.gateway.agent.pid, site.gateway.dataplane.pid
        self.number, self.address = connected(site, ues, 1)

    def probe(self, exchange, payloads=(), **more):
        """The gateway's answer: the types of notifications; None: no answer."""
        before = len(self.ues.events("probed", ue=0))
        self.ues.do("probe", ue=0, exchange=exchange, payloads=[[kind, body.hex()] for kind, body in payloads], **more)
        probed = self.ues.wait("probed", before + 1, ue=0)[-1]
        return probed["notes"] if probed["answered"] else None

    def alive(self):
        """An INFORMATIONAL request without payloads is answered."""
        return self.probe(INFORMATIONAL) == []

    def esp(self, packets, **more):
        before = len(self.ues.events("esp"))
        self.ues.do("esp", ue=0, session=1, packets=[packet.hex() for packet in packets], **more)
        self.ues.wait("esp", before + 1)

    def spi(self, session=1):
        return bytes.fromhex(self.children()["spis"][str(session)])

    def children(self):
        before = len(self.ues.events("children", ue=0))
        self.ues.do("children", ue=0)
        return self.ues.wait("children", before + 1, ue=0)[-1]

    def ike_drops(self, reason):
        read = self.site.inside.run("curl", "-sf", f"http://{METRICS}/metrics").stdout
        found = re.search(rf'^sluice_ike_drops_total{{.*reason="{reason}".*}} (\d+)$', read, re.MULTILINE)
        return int(found[1]) if found else 0

    def refused(self, words):
        """UE 0 does not get in."""
        before = len(self.ues.events("refused", ue=0))
        self.ues.do("register", ue=0)
        assert words in self.ues.wait("refused", before + 1, ue=0)[-1]["why"]

    def others_are_served(self):
        assert self.site.reaches(self.address)
        assert (self.agent, self.dataplane) == (self.site.gateway.agent.pid, self.site.gateway.dataplane.pid)
        log = self.site.gateway.logs()["gateway-agent.log"]
        assert "panic" not in log


@pytest.fixture
def pair(site, all_ues):
    if site.left():
        site.gateway.sluice("ike", "terminate", "n3iwf-wifi")
        nothing_left(site)
    fresh(site, all_ues)
    made = Pair(site, all_ues)
    yield made
    made.others_are_served()


def inside(children, octets):
    """An IPv4 packet with these octets of GRE, between the ends of the tunnel."""
    source, far = bytes.fromhex(children["inner"]), bytes(map(int, USER_PLANE.split(".")))
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(octets), 0, 0, 64, 47, 0) + source + far
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack("!H", 0xFFFF & ~total) + head[12:] + octets


@pytest.mark.parametrize("kind", [1, 2, 4])
def test_an_an_parameter_of_no_length_refuses_its_ue(site, all_ues, pair, kind):
    """GUAMI, selected PLMN and establishment cause have a length of their own (TS 24.502 section 9.3.2.2.2)."""
    having(all_ues, an=f"{kind:02x}00")
    pair.refused("EAP-Failure")
    assert len(site.amf.events("initial")) == 1


def test_an_an_parameter_of_no_length_and_no_meaning_is_left_out(site, all_ues, pair):
    # Requested NSSAI without slices, and unknown types.
    having(all_ues, an="03007f00ff00")
    register(all_ues)
    assert len(site.amf.events("initial")) == 2


def test_an_ike_auth_request_without_payloads_is_refused(all_ues, pair):
    having(all_ues, bare=1)
    all_ues.do("register", ue=0)
    probed = all_ues.wait("probed", ue=0)[-1]
    assert probed["notes"] == [INVALID_SYNTAX]


def test_requests_without_payloads_are_answered(all_ues, pair):
    register(all_ues)
    assert pair.alive()
    # Neither is there anything in front of the encrypted payload, nor the encrypted payload.
    before = pair.ike_drops("syntax")
    assert pair.probe(INFORMATIONAL, unsealed=True) is None
    assert pair.ike_drops("syntax") == before + 1
    assert pair.alive()
    assert pair.probe(CHILD) == [INVALID_SYNTAX]


@pytest.mark.parametrize("value", ["0a", "0ac9", "0ac900", "0ac9000101", "0ac90001" * 8])
def test_an_internal_ip4_address_of_another_length_gets_an_address_all_the_same(all_ues, pair, value):
    value = bytes.fromhex(value)
    having(all_ues, asked=(struct.pack("!B3xHH", 1, 1, len(value)) + value).hex())
    register(all_ues)
    given = all_ues.events("connected", ue=0)[-1]["inner"]
    assert re.fullmatch(r"10\.201\.\d+\.\d+", given)
    assert given != all_ues.events("connected", ue=1)[-1]["inner"]


def test_an_internal_ip4_address_that_ends_early_refuses_its_ue(all_ues, pair):
    for asked in ("01000000" + "0001000401", "01000000" + "0001ffff", "01000000" + "00", "01"):
        having(all_ues, asked=asked)
        before = len(all_ues.events("refused", ue=0))
        all_ues.do("register", ue=0)
        all_ues.wait("refused", before + 1, ue=0)
        assert pair.site.reaches(pair.address)


def test_the_padding_of_cbc_is_read_after_authentication(site, all_ues, pair):
    having(all_ues, cipher="cbc")
    register(all_ues)
    site.attach(all_ues)
    children = pair.children()
    packet = inside(children, bytes.fromhex("200000000900000045"))[:30].ljust(30, b"\0")
    drops = site.gateway.drops()

    def counted(reason, number):
        wanted = drops.get(reason, 0) + number
        wait_until(lambda: site.gateway.drops().get(reason, 0) == wanted, what=f"{number} {reason}")

    # The ICV, and each bit of the last block, where the padding and its length are.
    pair.esp([packet], flips=[-1])
    for at in range(17, 33):
        pair.esp([packet], flips=[-at])
    counted("esp-icv", 17)
    counted("esp-padding", 0)
    # With the right ICV: a length of the padding that is beyond the packet, and padding that is not 1, 2, 3 ...
    pair.esp([packet], padding="ff04")
    pair.esp([packet], padding="09090909090909090909090909090909" + "1004")
    counted("esp-padding", 2)
    # The ciphertext is no number of blocks, or there is none.
    for size in (8 + 16 + 15 + 16, 8 + 16 + 16, 8 + 15, 9):
        pair.esp([packet], size=size)

    def of_another_length():
        after = site.gateway.drops()
        return sum(after.get(name, 0) - drops.get(name, 0) for name in ("esp-length", "esp-truncated"))

    wait_until(lambda: of_another_length() == 4, what="four packets of another length")
    # IKE: the same of the encrypted payload.
    integrity = pair.ike_drops("integrity")
    for at in (1, 17, 32):
        assert pair.probe(INFORMATIONAL, flips=[-at]) is None
    assert pair.ike_drops("integrity") == integrity + 3
    assert pair.probe(INFORMATIONAL, inner=(bytes(15) + b"\xff").hex()) is None
    assert pair.alive()


def test_an_spi_of_another_size_ends_its_ike_sa_alone(site, all_ues, pair):
    foreign = ((ESP, 8, 1), (ESP, 0, 1), (ESP, 255, 1), (ESP, 3, 2), (IKE, 4, 1), (IKE, 8, 1), (9, 4, 1))
    for protocol, size, count in foreign:
        register(all_ues)
        number, _ = site.attach(all_ues)
        body = struct.pack("!BBH", protocol, size, count) + bytes(min(size, 64) * count)
        assert pair.probe(INFORMATIONAL, [(DELETE, body)]) == [INVALID_SYNTAX], (protocol, size)
        site.amf.wait("release-complete", amf=number)
        assert site.reaches(pair.address)


def test_a_proposal_or_a_rekey_with_an_spi_of_another_size_is_refused(site, all_ues, pair):
    register(all_ues)
    _, address = site.attach(all_ues)
    rekey = NOTIFY, struct.pack("!BBH", ESP, 2, 16393) + b"\1\2"
    other = NOTIFY, struct.pack("!BBH", ESP, 4, 16393) + b"\1\2\3\4"
    selectors = struct.pack("!B3xBBHHH", 1, 7, 0, 16, 0, 65535) + bytes(4) + b"\xff" * 4
    for size in (0, 3, 8, 64):
        transform = struct.pack("!BBHBBHHH", 3, 0, 12, 1, 0, 20, 0x800E, 128) + struct.pack("!BBHBBH", 0, 0, 8, 5, 0, 0)
        offer = struct.pack("!BBHBBBB", 0, 0, 8 + size + len(transform), 1, ESP, size, 2) + bytes(size) + transform
        for first in ([], [other]):
            payloads = [*first, (SA, offer), (NONCE, bytes(32)), (TSI, selectors), (TSI + 1, selectors)]
            notes = pair.probe(CHILD, payloads)
            assert notes and notes[0] < 16384, notes
    assert pair.alive() and site.reaches(address)
    notes = pair.probe(CHILD, [rekey, (SA, offer), (NONCE, bytes(32)), (TSI, selectors), (TSI + 1, selectors)])
    assert notes and notes[0] < 16384, notes


def test_a_message_id_that_jumps_is_dropped(site, all_ues, pair):
    register(all_ues)
    _, address = site.attach(all_ues)
    before = pair.ike_drops("message-id")
    jumps = (1, 2, 100, 1 << 31, -3 & 0xFFFFFFFF, -50 & 0xFFFFFFFF)
    for skip in jumps:
        assert pair.probe(INFORMATIONAL, skip=skip) is None
    assert pair.ike_drops("message-id") == before + len(jumps)
    assert pair.alive() and site.reaches(address)


def test_gre_that_is_shorter_than_its_header_is_dropped(site, all_ues, pair):
    register(all_ues)
    _, address = site.attach(all_ues)
    children, before = pair.children(), site.gateway.drops().get("gre-truncated", 0)
    # GRE with the flag of a key has 8 bytes.
    whole = bytes.fromhex("2000000009000000")
    pair.esp([inside(children, whole[:size]) for size in range(8)])
    wait_until(lambda: site.gateway.drops().get("gre-truncated", 0) == before + 8, what="eight packets are dropped")
    # Nothing behind it; and bytes that are no packet.
    drops = site.gateway.drops()
    pair.esp([inside(children, whole + b"\x45" * size) for size in (0, 1, 19)])
    for reason, count in (("gre-inner-not-ip", 1), ("ip4-truncated", 2)):
        total = drops.get(reason, 0) + count
        wait_until(lambda r=reason, n=total: site.gateway.drops().get(r, 0) == n, what=f"{count} are {reason}")
    assert site.reaches(address)


def test_an_sa_that_is_deleted_twice_ends_once(site, all_ues, pair):
    register(all_ues)
    number, _ = site.attach(all_ues)
    _, other = site.attach(all_ues, session=2)
    spi = pair.spi()
    # Twice in a payload, in two payloads, and in two requests.
    twice = DELETE, struct.pack("!BBH", ESP, 4, 2) + spi + spi
    assert pair.probe(INFORMATIONAL, [twice, twice]) == []
    assert pair.probe(INFORMATIONAL, [twice]) == []
    site.amf.wait("given-up", amf=number, session=1)
    assert site.reaches(other)
    # The core releases what is gone, and the UE does once more.
    site.amf.do("leg", amf=number, session=1, up=False)
    site.amf.wait("message", name="PDUSessionResourceReleaseResponse")
    assert pair.probe(INFORMATIONAL, [twice]) == []
    assert len(site.amf.events("given-up", amf=number)) == 1
    assert site.reaches(other)
    # The IKE SA twice in a request, and then once more.
    gone = DELETE, struct.pack("!BBH", IKE, 0, 0)
    assert pair.probe(INFORMATIONAL, [gone, gone]) == []
    assert pair.probe(INFORMATIONAL, [gone]) is None
    site.amf.wait("release-complete", amf=number)
    # A message to another UE has passed through the gateway since.
    site.amf.do("nas", amf=pair.number, count=1)
    all_ues.wait("nas", ue=1)
    assert len(site.amf.events("release-complete", amf=number)) == len(site.amf.events("release-request")) == 1
    wait_until(lambda: site.gateway.holds("Session") and len(site.gateway.holds("Session")) == 1, what="one is left")
