# SPDX-License-Identifier: Apache-2.0
"""ESP (RFC 4303) with a peer that is written here from the RFCs.

Its ciphers are OpenSSL's, by way of `cryptography`; CCM is made of its parts (RFC 3610).
"""

import contextlib
import functools
import random
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from contract import Connection, api
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes
from lab import thing
from lab.frames import IP4, Frame, checksum, ip_bytes, mac_bytes
from lab.frames import udp as udp_packet
from lab.laboratory import wait_until
from pop import CORE4, CORE_MAC, HOST4, HOST_MAC, IPOE, Pop, base_of, same, session
from scapy.all import ESP, IP, UDP, IPv6, Raw

NEXT_IP4, NEXT_IP6, NEXT_DUMMY = 4, 41, 59
ICV = 16


class Forged(Exception):
    pass


class Gcm:
    """RFC 4106: 4 bytes of salt, 8 of IV."""

    align, iv, salt = 4, 8, 4

    def __init__(self, cipher, length):
        self.cipher, self.length = cipher, length

    def seal(self, key, iv, aad, plain):
        encryptor = Cipher(self.cipher(key[:-4]), modes.GCM(key[-4:] + iv)).encryptor()
        encryptor.authenticate_additional_data(aad)
        return encryptor.update(plain) + encryptor.finalize() + encryptor.tag

    def open(self, key, iv, aad, sealed):
        decryptor = Cipher(self.cipher(key[:-4]), modes.GCM(key[-4:] + iv, sealed[-ICV:])).decryptor()
        decryptor.authenticate_additional_data(aad)
        try:
            return decryptor.update(sealed[:-ICV]) + decryptor.finalize()
        except InvalidTag:
            raise Forged from None


class Ccm:
    """RFC 4309: 3 bytes of salt, 8 of IV; RFC 3610 with L = 4 and M = 16."""

    align, iv, salt = 4, 8, 3

    def __init__(self, cipher, length):
        self.cipher, self.length = cipher, length

    def crypt(self, key, iv, text):
        """The first block of the key stream, and the text encrypted or decrypted with the others."""
        context = Cipher(self.cipher(key[:-3]), modes.CTR(b"\3" + key[-3:] + iv + bytes(4))).encryptor()
        return context.update(bytes(16)), context.update(text)

    def mac(self, key, iv, aad, plain):
        start = b"\x7b" + key[-3:] + iv + struct.pack("!I", len(plain))
        blocks = [start, struct.pack("!H", len(aad)) + aad, plain]
        whole = b"".join(block + bytes(-len(block) % 16) for block in blocks)
        return Cipher(self.cipher(key[:-3]), modes.CBC(bytes(16))).encryptor().update(whole)[-16:]

    def seal(self, key, iv, aad, plain):
        first, sealed = self.crypt(key, iv, plain)
        return sealed + bytes(a ^ b for a, b in zip(first, self.mac(key, iv, aad, plain), strict=True))

    def open(self, key, iv, aad, sealed):
        first, plain = self.crypt(key, iv, sealed[:-ICV])
        if bytes(a ^ b for a, b in zip(first, self.mac(key, iv, aad, plain), strict=True)) != sealed[-ICV:]:
            raise Forged
        return plain


class ChaCha20:
    """RFC 7634."""

    align, iv, salt, length = 4, 8, 4, 32

    def seal(self, key, iv, aad, plain):
        return aead.ChaCha20Poly1305(key[:-4]).encrypt(key[-4:] + iv, plain, aad)

    def open(self, key, iv, aad, sealed):
        try:
            return aead.ChaCha20Poly1305(key[:-4]).decrypt(key[-4:] + iv, sealed, aad)
        except InvalidTag:
            raise Forged from None


class CbcHmac:
    """RFC 3602 and RFC 4868: the ICV covers all that is before it, and the high half of an extended sequence number."""

    align, iv, salt = 16, 16, 0

    def __init__(self, cipher, length, digest):
        self.cipher, self.length, self.digest = cipher, length, digest

    def context(self, key, iv):
        return Cipher(self.cipher(key[: self.length]), modes.CBC(iv))

    def mac(self, key, text):
        made = hmac.HMAC(key[self.length :], self.digest())
        made.update(text)
        return made.finalize()[:ICV]


class Association:
    """One direction of an SA, at the peer."""

    def __init__(self, suite, spi, esn):
        self.suite, self.spi, self.esn = suite, spi, esn
        self.random = random.Random(spi)
        length = suite.length + suite.salt
        if isinstance(suite, CbcHmac):
            length += suite.digest.digest_size
        self.key = self.random.randbytes(length)

    def authenticated(self, sequence):
        """The additional authenticated data of AEAD ciphers: RFC 4106 section 5."""
        return struct.pack("!IQ" if self.esn else "!II", self.spi, sequence)

    def seal(self, sequence, payload, following=NEXT_IP4, padding=None):
        """The ESP packet with this whole sequence number. `padding`: with its length, if not the shortest right one."""
        suite, iv = self.suite, self.random.randbytes(self.suite.iv)
        if padding is None:
            pad = -(len(payload) + 2) % suite.align
            padding = bytes(range(1, pad + 1)) + bytes([pad])
        plain = payload + padding + bytes([following])
        header = struct.pack("!II", self.spi, sequence & 0xFFFFFFFF)
        if not isinstance(suite, CbcHmac):
            return header + iv + suite.seal(self.key, iv, self.authenticated(sequence), plain)
        text = header + iv + suite.context(self.key, iv).encryptor().update(plain)
        return text + suite.mac(self.key, text + self.high(sequence))

    def high(self, sequence):
        return struct.pack("!I", sequence >> 32) if self.esn else b""

    def open(self, esp, sequence):
        """Payload and next header of an ESP packet with this whole sequence number; Forged if the ICV is wrong."""
        suite, iv = self.suite, esp[8 : 8 + self.suite.iv]
        if isinstance(suite, CbcHmac):
            if suite.mac(self.key, esp[:-ICV] + self.high(sequence)) != esp[-ICV:]:
                raise Forged
            plain = suite.context(self.key, iv).decryptor().update(esp[8 + suite.iv : -ICV])
        else:
            plain = suite.open(self.key, iv, self.authenticated(sequence), esp[8 + suite.iv :])
        end = len(plain) - 2 - plain[-2]
        # RFC 4303 section 2.4: 1, 2, 3 ..., up to the next whole block.
        assert plain[end:-2] == bytes(range(1, plain[-2] + 1)) and plain[-2] < suite.align
        return plain[:end], plain[-1]


class Site:
    """A tunnel of the gateway, and its other end. Both SAs begin behind the sequence number `sequence`."""

    def __init__(self, number, name, suite, sequence=0, **spec):
        self.number, self.name, self.sequence, self.suite = number, name, sequence, suite
        self.network4, self.network6 = f"10.{number}.0.0/16", f"2001:db8:100:{number:x}::/64"
        self.host4, self.host6 = f"10.{number}.0.9", f"2001:db8:100:{number:x}::9"
        esn = spec.get("esn", False)
        self.outbound, self.inbound = (Association(suite, first + number, esn) for first in (0x1000, 0x2000))
        self.spec = {"tunnel": name, "sequence": sequence, "localAddress": CORE4, "remoteAddress": HOST4} | spec
        self.sent = sequence

    def objects(self):
        made = [
            thing("IpsecTunnel", self.name, localAddress=CORE4, remoteAddress=HOST4),
            thing("Interface", f"i-{self.name}", ipsecTunnel=self.name),
            thing("Route", f"r4-{self.name}", prefix=self.network4, nextHops=[{"interface": f"i-{self.name}"}]),
            thing("Route", f"r6-{self.name}", prefix=self.network6, nextHops=[{"interface": f"i-{self.name}"}]),
        ]
        for direction, sa in (("outbound", self.outbound), ("inbound", self.inbound)):
            length = self.suite.length + self.suite.salt
            keys = {"encryptionKey": sa.key[:length].hex()}
            if sa.key[length:]:
                keys["integrityKey"] = sa.key[length:].hex()
            spec = {"direction": direction, "spi": sa.spi} | keys | self.spec
            made.append(thing("SecurityAssociation", f"{self.name}-{direction}", **spec))
        return made

    def up(self, inside, payload):
        header = IP(src=IPOE.ip4, dst=self.host4) if inside == 4 else IPv6(src=IPOE.ip6, dst=self.host6)
        return header / UDP(sport=1024, dport=7) / Raw(payload)

    def down(self, inside, payload=b"payload"):
        header = IP(src=self.host4, dst=IPOE.ip4) if inside == 4 else IPv6(src=self.host6, dst=IPOE.ip6)
        return header / UDP(sport=7, dport=1024) / Raw(payload)

    @functools.cached_property
    def front(self):
        packet = self.down(4, b"0" * 10)
        packet[UDP].chksum = 0
        return bytes(packet)[:-10]

    def numbered(self, number):
        """A frame of the peer with this sequence number, which is the payload, too."""
        return outer(self.inbound.seal(number, self.front + b"%010d" % number))

    def seal(self, payload, following=NEXT_IP4, **more):
        """The next ESP packet of the peer."""
        self.sent += 1
        return self.inbound.seal(self.sent, bytes(payload), following, **more)

    def esp_at_core(self, pop):
        found = pop.at_core(lambda packet: ESP in packet and packet[ESP].spi == self.outbound.spi)
        assert (found.src, found.dst, found.proto) == (CORE4, HOST4, 50)
        return bytes(found.payload)


AES_GCM, SM4_GCM = Gcm(algorithms.AES, 16), Gcm(algorithms.SM4, 16)
SM4_CCM, CHACHA20 = Ccm(algorithms.SM4, 16), ChaCha20()
AES_SHA256 = CbcHmac(algorithms.AES, 32, hashes.SHA256)
SM4_SM3 = CbcHmac(algorithms.SM4, 16, hashes.SM3)
SHA256, SM3 = {"integrity": "hmac_sha256"}, {"integrity": "hmac_sm3"}

SM4 = [
    Site(1, "sm4-gcm", SM4_GCM, encryption="sm4_gcm"),
    Site(2, "sm4-cbc-sm3", SM4_SM3, encryption="sm4_cbc", **SM3),
    Site(3, "sm4-ccm", SM4_CCM, encryption="sm4_ccm"),
]
# The low half begins anew with the 21st packet: behind a high half of 1, and of 0.
SECOND, FIRST = (2 << 32) - 21, (1 << 32) - 21
ESN = [
    Site(11, "gcm-second", AES_GCM, encryption="aes_gcm", sequence=SECOND, esn=True),
    Site(12, "gcm-first", AES_GCM, encryption="aes_gcm", sequence=FIRST, esn=True, replayWindow=4096),
    Site(13, "cbc-second", AES_SHA256, encryption="aes_cbc", **SHA256, sequence=SECOND, esn=True),
    Site(14, "cbc-first", AES_SHA256, encryption="aes_cbc", **SHA256, sequence=FIRST, esn=True, replayWindow=1024),
    Site(15, "chacha20-second", CHACHA20, encryption="chacha20_poly1305", sequence=SECOND, esn=True),
    Site(16, "sm4-gcm-second", SM4_GCM, encryption="sm4_gcm", sequence=SECOND, esn=True),
    Site(17, "sm4-cbc-second", SM4_SM3, encryption="sm4_cbc", **SM3, sequence=SECOND, esn=True),
    Site(18, "sm4-ccm-second", SM4_CCM, encryption="sm4_ccm", sequence=SECOND, esn=True),
]
# Both begin in the middle of what they are sent.
WIDE = Site(21, "wide", AES_GCM, encryption="aes_gcm", sequence=70_000, replayWindow=4096)
WIDE_ESN = Site(22, "wide-esn", AES_GCM, encryption="aes_gcm", sequence=(2 << 32) - 2000, replayWindow=4096, esn=True)
OLD = Site(41, "old", AES_GCM, encryption="aes_gcm", sequence=FIRST, esn=True, replayWindow=1024)
NEW = Site(42, "new", AES_GCM, tunnel="old", precedence=1, sequence=SECOND, esn=True, replayWindow=1024)
PLAIN = Site(31, "plain", AES_GCM, encryption="aes_gcm")
DF_SET = Site(32, "df-set", AES_GCM, encryption="aes_gcm", outer={"df": "df_set"})
DF_CLEAR = Site(33, "df-clear", AES_GCM, encryption="aes_gcm", outer={"df": "df_clear"})


@pytest.fixture(scope="module")
def pop(lab):
    sites = [*SM4, *ESN, WIDE, WIDE_ESN, OLD, PLAIN, DF_SET, DF_CLEAR]
    made = Pop(lab, session(IPOE), *(each for site in sites for each in site.objects()), base=base_of(), workers=2)
    made.learn(IPOE)
    return made


def outer(esp):
    """A frame of the peer."""
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(esp), 0, 0, 64, 50, 0) + ip_bytes(HOST4) + ip_bytes(CORE4)
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    return Frame(mac_bytes(CORE_MAC), mac_bytes(HOST_MAC), (), IP4, ip + esp).pack()


def received(pop, count):
    """The UDP payloads of the next packets at the line. Each has its length in the IP header."""

    def match(raw):
        frame = Frame.parse(raw)
        if frame.tags != IPOE.tags or frame.payload[0] != 0x45 or frame.payload[9] != 17:
            return None
        return frame.payload[28 : int.from_bytes(frame.payload[2:4])]

    return [pop.access.expect(match) for _ in range(count)]


def counters(pop):
    with Connection(pop.gateway.dataplane_socket) as connection:
        found = connection.read(api.DropCountersQuery())
    dropped, consumed = ({each.reason: each.packets for each in some} for some in (found.drops, found.consumed))
    return dropped, consumed


@contextlib.contextmanager
def counting(pop, consumed=None, **dropped):
    """The block inside causes exactly these drops and consumed packets, and nothing reaches the line."""
    before = counters(pop)
    expected = [{name.replace("_", "-"): n for name, n in some.items() if n} for some in (dropped, consumed or {})]
    yield

    def grown():
        return [
            {name: n - old.get(name, 0) for name, n in new.items() if n != old.get(name, 0)}
            for new, old in zip(counters(pop), before, strict=True)
        ]

    wait_until(lambda: grown() == expected, 10, lambda: f"drops and consumed packets are {grown()}, not {expected}")
    assert pop.access.read() is None


@pytest.mark.parametrize("inside", [4, 6])
@pytest.mark.parametrize("site", SM4, ids=lambda site: site.name)
class TestSm4:
    """GB/T 32907 and 32905, as in RFC 4106, RFC 4309, RFC 3602 and RFC 4868."""

    def lengths(self, site, inside):
        some = random.Random(site.number * inside)
        return [1, *(some.randint(1, 1400) for _ in range(16)), 1400 if inside == 4 else 1380]

    def test_the_peer_decrypts_the_gateways_packets(self, pop, site, inside):
        last, ivs = None, set()
        for length in self.lengths(site, inside):
            sent = site.up(inside, random.Random(length).randbytes(min(length, 1380)))
            pop.send_up(IPOE, sent)
            esp = site.esp_at_core(pop)
            (sequence,) = struct.unpack_from("!I", esp, 4)
            assert last is None or sequence == last + 1
            last, payload, ivs = sequence, esp, ivs | {esp[8 : 8 + site.suite.iv]}
            payload, following = site.outbound.open(esp, sequence)
            assert following == (NEXT_IP4 if inside == 4 else NEXT_IP6)
            same(sent, type(sent)(payload))
        assert len(ivs) == len(self.lengths(site, inside)), "an IV came twice"

    def test_the_gateway_decrypts_the_peers_packets(self, pop, site, inside):
        for length in self.lengths(site, inside):
            sent = site.down(inside, random.Random(length).randbytes(min(length, 1380)))
            pop.core.send(outer(site.seal(sent, NEXT_IP4 if inside == 4 else NEXT_IP6)))
            same(sent, pop.at_line(IPOE, lambda packet: UDP in packet))

    def test_a_bit_that_changed_on_its_way_is_found(self, pop, site, inside):
        sealed = site.seal(site.down(4))
        with counting(pop, esp_icv=4):
            # Sequence number, IV, ciphertext, ICV.
            for at in (6, 9, 40, len(sealed) - 1):
                pop.core.send(outer(sealed[:at] + bytes([sealed[at] ^ 0x10]) + sealed[at + 1 :]))


@pytest.mark.parametrize("site", ESN, ids=lambda site: site.name)
class TestExtendedSequenceNumbers:
    """RFC 4303 section 2.2.1: 64 bits, of which the low half is in the packet and the ICV covers both."""

    COUNT = 40

    def test_the_gateway_counts_on_behind_the_low_half(self, pop, site):
        for sequence in range(site.sequence + 1, site.sequence + 1 + self.COUNT):
            sent = site.up(4, b"%010d" % sequence)
            pop.send_up(IPOE, sent)
            esp = site.esp_at_core(pop)
            assert esp[4:8] == struct.pack("!I", sequence & 0xFFFFFFFF)
            same(sent, IP(site.outbound.open(esp, sequence)[0]))
            with pytest.raises(Forged):
                site.outbound.open(esp, sequence ^ 1 << 32)

    def test_the_gateway_finds_the_high_half_of_packets_out_of_order(self, pop, site):
        numbers = list(range(site.sequence + 1, site.sequence + 1 + self.COUNT))
        random.Random(site.number).shuffle(numbers)
        sealed = {number: site.numbered(number) for number in numbers}
        # In the window, and with the high half of another.
        with counting(pop, esp_icv=2):
            for high in (1, 3):
                pop.core.send(site.numbered(numbers[0] ^ high << 32))
        for number in numbers:
            pop.core.send(sealed[number])
        assert received(pop, self.COUNT) == [b"%010d" % number for number in numbers]
        with counting(pop, esp_replay=self.COUNT):
            for number in numbers:
                pop.core.send(sealed[number])


class TestWindow:
    """RFC 4303 section 3.4.3, with the largest window."""

    WINDOW = 4096

    @pytest.mark.parametrize("site", [WIDE, WIDE_ESN], ids=lambda site: site.name)
    def test_each_packet_of_a_window_is_accepted_once_in_any_order(self, pop, site):
        numbers = list(range(site.sequence + 1, site.sequence + 1 + self.WINDOW))
        random.Random(1).shuffle(numbers)
        sealed = [site.numbered(number) for number in numbers]
        for first in range(0, self.WINDOW, 256):
            for each in sealed[first : first + 256]:
                pop.core.send(each)
            expected = [b"%010d" % number for number in numbers[first : first + 256]]
            assert received(pop, len(expected)) == expected
        top = site.sequence + self.WINDOW
        with counting(pop, esp_replay=self.WINDOW):
            for first in range(0, self.WINDOW, 256):
                before = counters(pop)[0].get("esp-replay", 0)
                for each in sealed[first : first + 256]:
                    pop.core.send(each)
                wait_until(lambda before=before: counters(pop)[0].get("esp-replay", 0) == before + 256)
        # The window moves on by 10, of which one packet comes: it holds the other nine, and is behind ten old ones.
        pop.core.send(site.numbered(top + 10))
        assert received(pop, 1) == [b"%010d" % (top + 10)]
        older = [site.numbered(top - self.WINDOW + n) for n in range(1, 11)]
        # RFC 4303 appendix A2.2: an extended number behind the window is taken for one of the next high half.
        with counting(pop, **{"esp_icv" if site is WIDE_ESN else "esp_replay": 10}):
            for each in older:
                pop.core.send(each)
        for number in range(top + 9, top, -1):
            pop.core.send(site.numbered(number))
        assert received(pop, 9) == [b"%010d" % number for number in range(top + 9, top, -1)]

    def test_sequence_number_zero_is_never_accepted(self, pop):
        with counting(pop, esp_replay=1):
            pop.core.send(outer(PLAIN.inbound.seal(0, bytes(PLAIN.down(4)))))


class TestOuterHeader:
    """RFC 4301 section 8.1: the DF bit is copied, set or cleared."""

    @pytest.mark.parametrize(
        "site, df, inner, expected",
        [
            (PLAIN, 1, 4, 1),
            (PLAIN, 0, 4, 0),
            # Routers do not cut packets of IPv6.
            (PLAIN, 0, 6, 1),
            (DF_SET, 0, 4, 1),
            (DF_SET, 1, 4, 1),
            (DF_SET, 0, 6, 1),
            (DF_CLEAR, 0, 4, 0),
            (DF_CLEAR, 1, 4, 0),
            (DF_CLEAR, 0, 6, 0),
        ],
    )
    def test_df_on_the_wire(self, pop, site, df, inner, expected):
        sent = site.up(inner, b"payload")
        if df:
            sent.flags = "DF"
        pop.send_up(IPOE, sent)
        got = pop.at_core(lambda packet: ESP in packet)
        assert (got.flags.DF, got.flags.MF, got.frag) == (expected, 0, 0)
        right = IP(bytes(got))
        del right.chksum
        assert bytes(right) == bytes(got), "the checksum is wrong"
        # The packet inside has the bit that it had.
        same(sent, type(sent)(site.outbound.open(bytes(got.payload), got[ESP].seq)[0]))


class TestReplacement:
    """Make before break on two workers. Both pairs come to the end of the low half of their sequence numbers."""

    FLOWS, AHEAD, BURST = 24, 240, 48

    def test_associations_are_replaced_under_traffic_and_nothing_is_lost_or_reordered(self, pop):
        outbound, inbound = NEW.objects()[-2:]
        by_spi = {site.outbound.spi: site for site in (OLD, NEW)}
        enough = threading.Event()
        up, down, numbers = [], [], {OLD: [], NEW: []}

        def encrypted(raw):
            frame = Frame.parse(raw)
            if frame.ethertype != IP4 or frame.payload[9] != 50:
                return False
            esp = frame.payload[20 : int.from_bytes(frame.payload[2:4])]
            site = by_spi[int.from_bytes(esp[:4])]
            # The whole number that is next to the last one.
            last = numbers[site][-1] if numbers[site] else site.sequence
            low = int.from_bytes(esp[4:8])
            whole = last + (low - last + (1 << 31)) % (1 << 32) - (1 << 31)
            packet, _ = site.outbound.open(esp, whole)
            numbers[site].append(whole)
            up.append((site, int.from_bytes(packet[20:22]), int(packet[28:])))
            return True

        def decrypted(raw):
            frame = Frame.parse(raw)
            if frame.tags != IPOE.tags or frame.payload[9] != 17:
                return False
            ip = frame.payload[: int.from_bytes(frame.payload[2:4])]
            down.append((OLD if ip[28:29] == b"o" else NEW, int.from_bytes(ip[22:24]), int(ip[29:])))
            return True

        def traffic():
            """So many packets are on their way at any time, in both directions. How many they were."""
            sent = 0
            while not enough.is_set() or len(up) < sent or len(down) < sent:
                if not enough.is_set() and sent - min(len(up), len(down)) < self.AHEAD:
                    # The peer begins to send with the new SA when it gets the first packet of it.
                    site, mark = (NEW, b"n") if numbers[NEW] else (OLD, b"o")
                    for number in range(sent, sent + self.BURST):
                        port, text = 2000 + number % self.FLOWS, b"%06d" % number
                        pop.send_up(IPOE, udp_packet(IPOE.ip4, OLD.host4, port, 7, text))
                        pop.core.send(outer(site.seal(udp_packet(OLD.host4, IPOE.ip4, 7, port, mark + text))))
                    sent += self.BURST
                for wire, got, match in ((pop.core, up, encrypted), (pop.access, down, decrypted)):
                    for _ in range(min(self.BURST, sent - len(got))):
                        wire.expect(match)
            return sent

        with counting(pop), ThreadPoolExecutor(1) as pool:
            running = pool.submit(traffic)

            def wait_for(packets):
                count = len(up) + packets
                wait_until(lambda: len(up) >= count or running.done(), what=f"{packets} packets more")

            try:
                wait_for(200)
                pop.apply(inbound)
                pop.apply(outbound)
                wait_until(lambda: numbers[NEW] or running.done(), what="a packet of the new association")
                # All that the peer sent with the old one has arrived.
                wait_for(2 * self.AHEAD)
                pop.gateway.delete("SecurityAssociation", "old-outbound", "old-inbound")
                wait_for(200)
            finally:
                enough.set()
            sent = running.result()
        for got in (up, down):
            assert sorted(number for _, _, number in got) == list(range(sent))
        for flow in range(self.FLOWS):
            of_flow = [(site, number) for site, port, number in up if port == 2000 + flow]
            assert [number for _, number in of_flow] == list(range(flow, sent, self.FLOWS))
            # It changes to the new SA once.
            sites = [site for site, _ in of_flow]
            assert sites == [OLD] * sites.count(OLD) + [NEW] * sites.count(NEW) and set(sites) == {OLD, NEW}
            # The two SPIs may come in by different queues, each in its order.
            for site in (OLD, NEW):
                in_order = [number for by, port, number in down if by is site and port == 2000 + flow]
                assert in_order == sorted(in_order)
        for site, used in numbers.items():
            assert sorted(used) == list(range(site.sequence + 1, site.sequence + 1 + len(used)))
            assert used[0] >> 32 != used[-1] >> 32


class TestPayload:
    def send(self, pop, *args, **more):
        pop.core.send(outer(PLAIN.seal(*args, **more)))

    def test_dummy_packets_are_discarded_and_are_no_drop(self, pop):
        """RFC 4303 section 2.6: with any content."""
        with counting(pop, consumed={"esp-dummy": 4}):
            self.send(pop, b"", NEXT_DUMMY)
            self.send(pop, bytes(1000), NEXT_DUMMY)
            self.send(pop, PLAIN.down(4), NEXT_DUMMY)
            self.send(pop, random.Random(1).randbytes(335), NEXT_DUMMY, padding=bytes(range(1, 200)) + b"\xc7")
        # Its sequence number was used.
        with counting(pop, esp_replay=1):
            PLAIN.sent -= 1
            self.send(pop, PLAIN.down(4))

    @pytest.mark.parametrize("inside", [4, 6])
    def test_padding_behind_the_packet_hides_its_length_and_is_not_delivered(self, pop, inside):
        """RFC 4303 section 2.7: the receiver finds the end in the IP header."""
        following = NEXT_IP4 if inside == 4 else NEXT_IP6
        for tfc in (b"\0", bytes(3), random.Random(2).randbytes(500), b"\xff" * 1300):
            for payload in (b"", b"short", b"p" * 60):
                sent = PLAIN.down(inside, payload)
                self.send(pop, bytes(sent) + tfc, following)
                got = pop.at_line(IPOE, lambda packet: UDP in packet)
                same(sent, got)
        # A frame's own padding is zeros: the end of the longer one shows that nothing is behind the packet.
        sent = PLAIN.down(inside, b"q" * 100)
        self.send(pop, bytes(sent) + b"\xff" * 700, following)

        def length(raw):
            frame = Frame.parse(raw)
            return len(frame.payload) if frame.tags == IPOE.tags and b"q" * 100 in frame.payload else None

        assert pop.access.expect(length) == len(sent)

    def test_padding_of_any_length_is_accepted_if_it_counts_up(self, pop):
        """RFC 4303 section 2.4: 0 to 255 bytes, aligned to 4."""
        sent = PLAIN.down(4, b"12")
        for pad in (0, 4, 8, 252):
            self.send(pop, sent, padding=bytes(range(1, pad + 1)) + bytes([pad]))
            same(sent, pop.at_line(IPOE, lambda packet: UDP in packet))
        wrong = [bytes(4), b"\2\3\4\5", b"\1\2\3\5", b"\x04\x03\x02\x01"]
        with counting(pop, esp_padding=len(wrong) + 1):
            for each in wrong:
                self.send(pop, sent, padding=each + b"\4")
            # It is longer than all that is before it.
            self.send(pop, b"", padding=b"\1\2\xff")

    def test_a_packet_that_is_not_what_the_next_header_says_is_dropped(self, pop):
        four, six = bytes(PLAIN.down(4)), bytes(PLAIN.down(6))
        cases = [(six, NEXT_IP4), (four, NEXT_IP6), (b"", NEXT_IP4), (b"", NEXT_IP6)]
        cases += [(four, other) for other in (0, 6, 17, 47, 50, 58, 97, 137, 255)]
        with counting(pop, esp_next_header=len(cases)):
            for payload, following in cases:
                self.send(pop, payload, following)

    @pytest.mark.parametrize(
        "drop, inside, changes",
        [
            ("ip4-truncated", 4, {2: b"\0\xff"}),
            ("ip4-truncated", 4, {2: b"\xff\xff"}),
            ("ip4-header-length", 4, {0: b"\x44"}),
            ("ip4-header-length", 4, {0: b"\x4f"}),
            ("ip4-header-length", 4, {2: b"\0\x13"}),
            ("ip4-checksum", 4, {8: b"\0"}),
            ("ip6-truncated", 6, {4: b"\1\0"}),
            ("ip6-truncated", 6, {4: b"\xff\xff"}),
        ],
    )
    def test_an_inner_header_that_lies_is_dropped(self, pop, drop, inside, changes):
        payload = bytearray(bytes(PLAIN.down(inside)))
        for at, value in changes.items():
            payload[at : at + len(value)] = value
        with counting(pop, **{drop: 1}):
            self.send(pop, payload, NEXT_IP4 if inside == 4 else NEXT_IP6)

    def test_each_beginning_of_a_packet_is_dropped(self, pop):
        four, six = bytes(PLAIN.down(4)), bytes(PLAIN.down(6))
        with counting(pop, **{"ip4-truncated": len(four) - 1, "ip6-truncated": len(six) - 1}):
            for packet, following in ((four, NEXT_IP4), (six, NEXT_IP6)):
                for length in range(1, len(packet)):
                    self.send(pop, packet[:length], following)

    def test_an_esp_packet_that_is_too_short_or_no_number_of_words_is_dropped(self, pop):
        sealed = PLAIN.seal(PLAIN.down(4))
        # SPI and sequence number, IV, pad length and next header, ICV.
        least = 8 + 8 + 2 + ICV
        with counting(pop, local_truncated=7, esp_truncated=least - 8, esp_length=1):
            for length in range(1, least):
                pop.core.send(outer(sealed[:length]))
            pop.core.send(outer(sealed[:least]))
