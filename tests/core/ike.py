# SPDX-License-Identifier: Apache-2.0
"""IKEv2 (RFC 7296) of an initiator whose gateway opens the child SAs, with MOBIKE (RFC 4555), and ESP, with AES-GCM
(RFC 4106, RFC 5282) or AES-CBC and HMAC-SHA2-256 (RFC 3602, RFC 4868). Nothing of it is the agent's."""

import asyncio
import hashlib
import hmac
import ipaddress
import os
import socket
import struct
import traceback
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SA, KE, IDI, IDR, CERT, AUTH, NONCE, NOTIFY, DELETE, TSI, TSR, SK, CP, EAP = (
    33, 34, 35, 36, 37, 39, 40, 41, 42, 44, 45, 46, 47, 48,
)  # fmt: skip
INIT, IKE_AUTH, CHILD, INFORMATIONAL = 34, 35, 36, 37
RESPONSE, INITIATOR = 0x20, 0x08
NO_PROPOSAL_CHOSEN, REKEY_SA = 14, 16393
SHARED_KEY, SIGNATURE = 2, 14


def prf(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def prf_plus(key, seed, size):
    out, last = b"", b""
    while len(out) < size:
        last = prf(key, last + seed + bytes([len(out) // 32 + 1]))
        out += last
    return out[:size]


def chain(payloads):
    """Payloads with their generic headers."""
    following = [*(kind for kind, _ in payloads[1:]), 0][: len(payloads)]
    return b"".join(
        struct.pack("!BBH", after, 0, len(body) + 4) + body
        for (_, body), after in zip(payloads, following, strict=True)
    )


def parse_chain(kind, data):
    found = []
    while kind:
        after, _, size = struct.unpack_from("!BBH", data)
        assert 4 <= size <= len(data), "a payload ends early"
        found.append((kind, data[4:size]))
        kind, data = after, data[size:]
    return found


def proposal(number, protocol, spi, transforms):
    body = b""
    for index, (kind, identifier, bits) in enumerate(transforms):
        attribute = struct.pack("!HH", 0x800E, bits) if bits else b""
        more = 3 if index < len(transforms) - 1 else 0
        body += struct.pack("!BBHBBH", more, 0, 8 + len(attribute), kind, 0, identifier) + attribute
    return (
        struct.pack("!BBHBBBB", 0, 0, 8 + len(spi) + len(body), number, protocol, len(spi), len(transforms))
        + spi
        + body
    )


def first_proposal(body, encryption=None):
    """Number, protocol, SPI and transforms of the first proposal, or of the first one with an encryption algorithm."""
    more, _, size, number, protocol, spi_size, count = struct.unpack_from("!BBHBBBB", body)
    at, transforms = 8 + spi_size, {}
    for _ in range(count):
        _, _, length, kind, _, identifier = struct.unpack_from("!BBHBBH", body, at)
        bits = struct.unpack_from("!H", body, at + 10)[0] if length > 8 else 0
        transforms.setdefault(kind, (identifier, bits))
        at += length
    if encryption and transforms[1][0] != encryption:
        assert more, "no proposal has the encryption algorithm"
        return first_proposal(body[size:], encryption)
    return number, protocol, body[8 : 8 + spi_size], transforms


def notify(kind, data=b"", protocol=0, spi=b""):
    return NOTIFY, struct.pack("!BBH", protocol, len(spi), kind) + spi + data


def selectors(*networks):
    body = struct.pack("!B3x", len(networks))
    for network in networks:
        network = ipaddress.ip_network(network)
        kind, size = (7, 16) if network.version == 4 else (8, 40)
        body += struct.pack("!BBHHH", kind, 0, size, 0, 65535) + network[0].packed + network[-1].packed
    return body


MOBIKE, UPDATE_ADDRESSES = notify(16396), notify(16400)


class Gcm:
    """`head`: what is authenticated in front of the IV; `high`: the high half of an ESP sequence number."""

    number, iv, icv, block = 20, 8, 16, 4

    @staticmethod
    def size(bits):
        return bits // 8 + 4

    def __init__(self, key):
        self.aead, self.salt = AESGCM(key[:-4]), key[-4:]

    def seal(self, head, plain, count, high=b""):
        iv = struct.pack("!Q", count)
        return iv + self.aead.encrypt(self.salt + iv, plain, head[:4] + high + head[4:])

    def open(self, head, body, high=b""):
        return self.aead.decrypt(self.salt + body[:8], body[8:], head[:4] + high + head[4:])


class Cbc:
    number, iv, icv, block = 12, 16, 16, 16

    @staticmethod
    def size(bits):
        return bits // 8 + 32

    def __init__(self, key):
        self.key, self.secret = key[:-32], key[-32:]

    def tag(self, *parts):
        return hmac.new(self.secret, b"".join(parts), hashlib.sha256).digest()[:16]

    def seal(self, head, plain, _, high=b""):
        iv = os.urandom(16)
        cipher = Cipher(algorithms.AES(self.key), modes.CBC(iv)).encryptor()
        body = iv + cipher.update(plain) + cipher.finalize()
        return body + self.tag(head, body, high)

    def open(self, head, body, high=b""):
        body, tag = body[:-16], body[-16:]
        if not hmac.compare_digest(tag, self.tag(head, body, high)):
            raise InvalidTag
        cipher = Cipher(algorithms.AES(self.key), modes.CBC(body[:16])).decryptor()
        return cipher.update(body[16:]) + cipher.finalize()


CIPHERS = {"gcm": Gcm, "cbc": Cbc}


def esp_offer(cipher, esn=None):
    """Transforms of a child SA. esn None: either."""
    integrity = [(3, 12, 0)] if cipher is Cbc else []
    return [(1, cipher.number, 128), *integrity, *((5, n, 0) for n in ((1, 0) if esn is None else (int(esn),)))]


def ike_offer(cipher):
    integrity = [(3, 12, 0)] if cipher is Cbc else []
    return [(1, cipher.number, 256), *integrity, (2, 5, 0), (4, 31, 0)]


class Child:
    """A child SA of one generation. `material`: keys of packets in and out."""

    def __init__(self, cipher, spi_in, spi_out, material_in, material_out, esn):
        self.spi_in, self.spi_out, self.esn, self.cipher = spi_in, spi_out, esn, cipher
        self.inwards, self.outwards = cipher(material_in), cipher(material_out)
        self.sequence, self.highest = 0, 0
        self.session = self.qfis = self.default = self.dscp = self.far = None
        # Sends nothing until the gateway deletes this one.
        self.predecessor = None
        # Selectors: of this end, and of the gateway.
        self.own = self.theirs = b""

    def high(self):
        return bytes(4) if self.esn else b""

    def seal(self, packet, padding=None):
        """`padding`: in place of the padding, its length and the next header, which RFC 4303 wants."""
        self.sequence += 1
        pad = -(len(packet) + 2) % self.cipher.block
        if padding is None:
            padding = bytes(range(1, pad + 1)) + bytes([pad, 4 if packet[0] >> 4 == 4 else 41])
        head = self.spi_out + struct.pack("!I", self.sequence)
        return head + self.outwards.seal(head, packet + padding, self.sequence, self.high())

    def open(self, esp):
        sequence = int.from_bytes(esp[4:8], "big")
        plain = self.inwards.open(esp[:8], esp[8:], self.high())
        self.highest = max(self.highest, sequence)
        return plain[: len(plain) - 2 - plain[-2]]

    def replaces(self, old):
        """A rekey has made it."""
        self.session, self.qfis, self.default, self.dscp, self.far = (
            old.session, old.qfis, old.default, old.dscp, old.far
        )  # fmt: skip
        self.own, self.theirs = old.own, old.theirs


class Refused(Exception):
    pass


class Initiator:
    """A subclass has `world` with the loop and the options, `outer`, and:

    say(event, ...)
    esp(data, dscp): a packet of a child SA, and the DSCP in front of it, None if it is not known
    takes(): whether it takes a child SA that the gateway opens
    offered(child, kind, data): a notification about such a child SA
    informed(kind, data): a notification of INFORMATIONAL, its data with the SPI; the error that refuses it
    ended(): the IKE SA is gone
    """

    def hears(self, exchange):
        """Whether a request of the gateway arrives."""
        return True

    def begin(self):
        """Another IKE SA."""
        self.message_id, self.expected, self.port = 0, 0, 500
        self.waiting, self.answers, self.children = {}, {}, {}  # children by inbound SPI
        self.old = self.signalling = None

    def family(self):
        return socket.AF_INET6 if ":" in self.outer else socket.AF_INET

    def open_sockets(self):
        self.sockets = {}
        for port in (500, 4500):
            s = socket.socket(self.family(), socket.SOCK_DGRAM)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            s.bind((self.outer, port))
            s.setblocking(False)
            self.sockets[port] = s
            self.world.loop.add_reader(s, self.readable, s, port)
        raw = socket.socket(self.family(), socket.SOCK_RAW, 50)
        raw.bind((self.outer, 0))
        raw.setblocking(False)
        self.sockets["esp"] = raw
        self.world.loop.add_reader(raw, self.readable_esp, raw)

    def close(self):
        for s in getattr(self, "sockets", {}).values():
            self.world.loop.remove_reader(s)
            s.close()
        self.sockets = {}

    def readable(self, s, port):
        try:
            data = s.recv(65536)
        except OSError:
            return
        if port == 4500 and data[:4] != bytes(4):
            if len(data) > 8:
                self.esp(data)
            return
        try:
            self.ike(data[4:] if port == 4500 else data)
        except Exception:
            self.say("failure", error=traceback.format_exc())

    def readable_esp(self, s):
        try:
            data = s.recv(65536)
        except OSError:
            return
        # With IPv6, the kernel takes the header away.
        if s.family == socket.AF_INET6:
            self.esp(data)
        else:
            self.esp(data[(data[0] & 15) * 4 :], data[1] >> 2)

    def transmit(self, data):
        try:
            marker = bytes(4) if self.port == 4500 else b""
            self.sockets[self.port].sendto(marker + data, (self.world.options.gateway, self.port))
        except (OSError, KeyError):
            pass

    def header(self, exchange, flags, message_id, first, size):
        return self.spi_i + self.spi_r + struct.pack("!BBBBII", first, 0x20, exchange, flags, message_id, 28 + size)

    def seal(self, exchange, flags, message_id, payloads):
        inner = chain(payloads)
        pad = -(len(inner) + 1) % self.cipher.block if self.cipher is Cbc else 0
        first = payloads[0][0] if payloads else 0
        return self.seal_plain(exchange, flags, message_id, first, inner + bytes(pad) + bytes([pad]))

    def seal_plain(self, exchange, flags, message_id, first, inner):
        size = 4 + self.cipher.iv + len(inner) + self.cipher.icv
        head = self.header(exchange, flags, message_id, SK, size) + struct.pack("!BBH", first, 0, size)
        return head + self.cipher(self.sk_e_own).seal(head, inner, int.from_bytes(os.urandom(8), "big"))

    def unseal(self, data):
        first = data[28]
        plain = self.cipher(self.sk_e_far).open(data[:32], data[32:])
        return parse_chain(first, plain[: len(plain) - 1 - plain[-1]])

    async def exchange(self, exchange, payloads):
        message_id = self.message_id
        self.message_id += 1
        data = self.seal(exchange, self.role, message_id, payloads)
        return self.unseal(await self.ask(message_id, data))

    async def probe(self, exchange, payloads, skip=0, inner=None, unsealed=False, flips=(), patience=1.0):
        """Sends a request once, and says what comes back: the types of notifications and payloads. `skip`: message IDs
        that are left out; `inner`: the decrypted content with its padding, in place of payloads; `unsealed`: without
        encryption; `flips`: bytes of the message with one bit flipped.
        """
        message_id = (self.message_id + skip) & 0xFFFFFFFF
        first = payloads[0][0] if payloads else 0
        if unsealed:
            body = chain(payloads)
            data = self.header(exchange, self.role, message_id, first, len(body)) + body
        elif inner is not None:
            data = self.seal_plain(exchange, self.role, message_id, first, inner)
        else:
            data = self.seal(exchange, self.role, message_id, payloads)
        data = bytearray(data)
        for at in flips:
            data[at] ^= 1
        future = self.waiting[message_id] = self.world.loop.create_future()
        self.transmit(bytes(data))
        try:
            found = self.unseal(await asyncio.wait_for(future, patience))
        except TimeoutError:
            self.say("probed", answered=False)
            return
        finally:
            self.waiting.pop(message_id, None)
        if not skip:
            self.message_id += 1
        notes = [struct.unpack_from("!H", body, 2)[0] for kind, body in found if kind == NOTIFY]
        bodies = [[kind, body.hex()] for kind, body in found if kind != NOTIFY]
        self.say("probed", answered=True, notes=notes, payloads=bodies)

    async def ask(self, message_id, data):
        future = self.waiting[message_id] = self.world.loop.create_future()
        try:
            for wait in (1, 2, 4, 8, 16):
                self.transmit(data)
                try:
                    return await asyncio.wait_for(asyncio.shield(future), wait)
                except TimeoutError:
                    continue
            raise Refused("the gateway does not answer")
        finally:
            self.waiting.pop(message_id, None)

    def ike(self, data):
        message_id = int.from_bytes(data[20:24], "big")
        if data[19] & RESPONSE:
            if message_id in self.waiting and not self.waiting[message_id].done():
                self.waiting[message_id].set_result(data)
            return
        if self.old and data[:8] == self.old[0]:
            self.answer_old(data[18], message_id)
            return
        if message_id < self.expected:
            if message_id in self.answers:
                self.transmit(self.answers[message_id])
            return
        if message_id > self.expected or data[:8] != self.spi_i:
            return
        try:
            payloads = self.unseal(data)
        except InvalidTag:
            return
        if not self.hears(data[18]):
            return
        self.expected += 1
        answer, after = self.request(data[18], payloads)
        answer = self.seal(data[18], self.role | RESPONSE, message_id, answer)
        self.answers = {message_id: answer}
        self.transmit(answer)
        if after:
            after()

    def answer_old(self, exchange, message_id):
        """The gateway deletes the IKE SA that was rekeyed."""
        now = (self.spi_i, self.spi_r, self.sk_e_own, self.sk_e_far, self.role)
        self.spi_i, self.spi_r, self.sk_e_own, self.sk_e_far, self.role = self.old
        self.transmit(self.seal(exchange, self.role | RESPONSE, message_id, []))
        self.spi_i, self.spi_r, self.sk_e_own, self.sk_e_far, self.role = now

    def request(self, exchange, payloads):
        """The answer to a request of the gateway, and what to do then."""
        kinds = dict(payloads)
        if exchange == CHILD:
            _, protocol, _, _ = first_proposal(kinds[SA])
            if protocol == 1:
                return self.rekeyed(kinds)
            return self.opened(payloads, kinds) if self.takes() else ([notify(NO_PROPOSAL_CHOSEN)], None)
        answer, after = [], None
        for kind, body in payloads:
            if kind == DELETE:
                protocol, size, count = struct.unpack_from("!BBH", body)
                if protocol == 1:
                    self.say("released")
                    after = self.ended
                    continue
                ours = []
                for at in range(4, 4 + size * count, size):
                    for child in list(self.children.values()):
                        if child.spi_out == body[at : at + size]:
                            ours.append(child.spi_in)
                            del self.children[child.spi_in]
                            self.succeed(child)
                            self.say("child-closed", session=child.session)
                if ours:
                    answer.append((DELETE, struct.pack("!BBH", 3, 4, len(ours)) + b"".join(ours)))
            elif kind == NOTIFY:
                refusal = self.informed(struct.unpack_from("!H", body, 2)[0], body[4:])
                answer += [notify(refusal)] if refusal else []
        return answer, after

    def opened(self, payloads, kinds):
        """The gateway opens a child SA, or rekeys one."""
        cipher = self.cipher
        number, _, far_spi, transforms = first_proposal(kinds[SA], cipher.number)
        spi, nonce = os.urandom(4), os.urandom(32)
        wanted = [(kind, *transforms[kind]) for kind in (1, 3) if kind in transforms]
        wanted.append((5, *transforms.get(5, (0, 0))))
        shared, answer_ke = b"", []
        if KE in kinds:
            own = X25519PrivateKey.generate()
            shared = own.exchange(X25519PublicKey.from_public_bytes(kinds[KE][4:]))
            answer_ke = [(KE, struct.pack("!HH", 31, 0) + own.public_key().public_bytes_raw())]
            wanted.append((4, 31, 0))
        size = cipher.size(transforms[1][1])
        material = prf_plus(self.sk_d, shared + kinds[NONCE] + nonce, 2 * size)
        child = Child(cipher, spi, far_spi, material[:size], material[size:], transforms.get(5, (0, 0))[0] == 1)
        child.own, child.theirs = kinds[TSR], kinds[TSI]
        old = None
        for kind, body in payloads:
            if kind == NOTIFY and struct.unpack_from("!H", body, 2)[0] == REKEY_SA:
                old = next(c for c in self.children.values() if c.spi_out == body[4:8])
            elif kind == NOTIFY:
                self.offered(child, struct.unpack_from("!H", body, 2)[0], body[4:])
        if old:
            child.replaces(old)
            child.predecessor = old
        self.children[spi] = child
        self.say(
            "rekeyed" if old else "child",
            session=child.session,
            qfis=child.qfis,
            default=child.default,
            dscp=child.dscp,
        )
        sa = proposal(number, 3, spi, wanted)
        return [(SA, sa), (NONCE, nonce), *answer_ke, (TSI, kinds[TSI]), (TSR, kinds[TSR])], None

    def succeed(self, old):
        """The gateway can receive from the child SA that replaces an old one (RFC 7296 section 2.8)."""
        for child in self.children.values():
            if child.predecessor is old:
                child.predecessor = None
                if old is self.signalling:
                    self.signalling = child

    def rekeyed(self, kinds):
        """The gateway rekeys the IKE SA."""
        number, _, far_spi, transforms = first_proposal(kinds[SA], self.cipher.number)
        own, spi, nonce = X25519PrivateKey.generate(), os.urandom(8), os.urandom(32)
        shared = own.exchange(X25519PublicKey.from_public_bytes(kinds[KE][4:]))
        seed = prf(self.sk_d, shared + kinds[NONCE] + nonce)
        wanted = [(kind, *transforms[kind]) for kind in (1, 3) if kind in transforms] + [(2, 5, 0), (4, 31, 0)]

        def switch():
            self.old = (self.spi_i, self.spi_r, self.sk_e_own, self.sk_e_far, self.role)
            self.spi_i, self.spi_r, self.role = far_spi, spi, 0
            self.derive(seed, kinds[NONCE] + nonce, flipped=True)
            self.message_id, self.expected, self.answers = 0, 0, {}
            self.say("ike-rekeyed")

        answer = [(SA, proposal(number, 1, spi, wanted)), (NONCE, nonce)]
        answer.append((KE, struct.pack("!HH", 31, 0) + own.public_key().public_bytes_raw()))
        return answer, switch

    async def rekey(self, child):
        """Rekeys a child SA, and deletes the old one."""
        spi, nonce = os.urandom(4), os.urandom(32)
        offer = proposal(1, 3, spi, esp_offer(child.cipher, child.esn))
        which = notify(REKEY_SA, b"", 3, child.spi_in)
        found = dict(
            await self.exchange(CHILD, [which, (SA, offer), (NONCE, nonce), (TSI, child.own), (TSR, child.theirs)])
        )
        if SA not in found:
            raise Refused("the gateway does not rekey a child SA")
        _, _, far_spi, transforms = first_proposal(found[SA])
        size = child.cipher.size(transforms[1][1])
        material = prf_plus(self.sk_d, nonce + found[NONCE], 2 * size)
        new = Child(child.cipher, spi, far_spi, material[size:], material[:size], transforms.get(5, (0, 0))[0] == 1)
        new.replaces(child)
        self.children[spi] = new
        if child is self.signalling:
            self.signalling = new
        await self.delete_child(child)
        # ESP has a socket of its own: packets sent before the gateway's answer may be read after it.
        self.world.loop.call_later(0.5, self.children.pop, child.spi_in, None)
        self.say("own-rekey", session=new.session)

    async def delete_child(self, child):
        await self.exchange(INFORMATIONAL, [(DELETE, struct.pack("!BBH", 3, 4, 1) + child.spi_in)])

    async def close_child(self, child):
        await self.delete_child(child)
        del self.children[child.spi_in]

    async def rekey_ike(self):
        """Rekeys the IKE SA, and deletes the old one."""
        own, spi, nonce = X25519PrivateKey.generate(), os.urandom(8), os.urandom(32)
        offer = proposal(1, 1, spi, ike_offer(self.cipher))
        mine = (KE, struct.pack("!HH", 31, 0) + own.public_key().public_bytes_raw())
        found = dict(await self.exchange(CHILD, [(SA, offer), (NONCE, nonce), mine]))
        if SA not in found:
            raise Refused("the gateway does not rekey the IKE SA")
        shared = own.exchange(X25519PublicKey.from_public_bytes(found[KE][4:]))
        seed = prf(self.sk_d, shared + nonce + found[NONCE])
        await self.exchange(INFORMATIONAL, [(DELETE, struct.pack("!BBH", 1, 0, 0))])
        self.spi_i, self.spi_r, self.role = spi, first_proposal(found[SA])[2], INITIATOR
        self.derive(seed, nonce + found[NONCE])
        self.message_id, self.expected, self.answers = 0, 0, {}
        self.say("own-ike-rekey")

    def derive(self, seed, nonces, flipped=False):
        # SK_ai and SK_ar are in front of SK_ei and SK_er, and behind them in the keys of a cipher.
        mac, key = (32, 32) if self.cipher is Cbc else (0, 36)
        material = prf_plus(seed, nonces + self.spi_i + self.spi_r, 32 + 2 * mac + 2 * key + 2 * 32)
        parts, at = [], 0
        for size in (32, mac, mac, key, key, 32, 32):
            parts.append(material[at : at + size])
            at += size
        self.sk_d, ai, ar, ei, er, self.sk_pi, self.sk_pr = parts
        ei, er = ei + ai, er + ar
        self.sk_e_own, self.sk_e_far = (er, ei) if flipped else (ei, er)

    async def init(self):
        self.role, self.cipher = INITIATOR, CIPHERS[self.world.options.cipher]
        self.spi_i, self.spi_r = os.urandom(8), bytes(8)
        own, nonce = X25519PrivateKey.generate(), os.urandom(32)
        o = self.world.options
        far = ipaddress.ip_address(o.gateway).packed + struct.pack("!H", 500)
        near = ipaddress.ip_address("203.0.113.99" if o.nat else self.outer).packed + struct.pack("!H", 500)
        payloads = [
            (SA, proposal(1, 1, b"", ike_offer(self.cipher))),
            (KE, struct.pack("!HH", 31, 0) + own.public_key().public_bytes_raw()),
            (NONCE, nonce),
            notify(16388, hashlib.sha1(self.spi_i + self.spi_r + near).digest()),
            notify(16389, hashlib.sha1(self.spi_i + self.spi_r + far).digest()),
            notify(16431, struct.pack("!HHH", 2, 3, 4)),
        ]
        cookie = []
        while True:
            body = chain(cookie + payloads)
            first = (cookie + payloads)[0][0]
            self.first = self.header(INIT, INITIATOR, 0, first, len(body)) + body
            self.second = await self.ask(0, self.first)
            found = parse_chain(self.second[16], self.second[28:])
            asked = [b for k, b in found if k == NOTIFY and struct.unpack_from("!H", b, 2)[0] == 16390]
            if not asked:
                break
            cookie = [notify(16390, asked[0][4:])]
        kinds = dict(found)
        if SA not in kinds:
            raise Refused(f"IKE_SA_INIT: {[struct.unpack_from('!H', b, 2)[0] for k, b in found if k == NOTIFY]}")
        self.spi_r = self.second[8:16]
        shared = own.exchange(X25519PublicKey.from_public_bytes(kinds[KE][4:]))
        self.nonces = nonce, kinds[NONCE]
        self.derive(prf(nonce + kinds[NONCE], shared), nonce + kinds[NONCE])
        self.message_id = 1
        if o.nat:
            self.port = 4500

    def verify(self, kinds, certificates):
        """The gateway is who the operator's authority says (RFC 7427)."""
        certificate = x509.load_der_x509_certificate(certificates[0])
        authority = x509.load_pem_x509_certificate(Path(self.world.options.authority).read_bytes())
        certificate.verify_directly_issued_by(authority)
        signed = self.second + self.nonces[0] + prf(self.sk_pr, kinds[IDR])
        body = kinds[AUTH]
        assert body[0] == SIGNATURE, f"authentication method {body[0]}"
        signature = body[5 + body[4] :]
        certificate.public_key().verify(signature, signed, ec.ECDSA(hashes.SHA256()))

    async def auth(self, payloads):
        """An exchange IKE_AUTH: payloads by kind, `notes` by type, and `certificates`."""
        found = await self.exchange(IKE_AUTH, payloads)
        kinds = dict(found)
        kinds["notes"] = {struct.unpack_from("!H", b, 2)[0]: b[4:] for k, b in found if k == NOTIFY}
        kinds["certificates"] = [b[1:] for k, b in found if k == CERT]
        return kinds

    async def move(self, outer):
        """The UE gets another address (RFC 4555)."""
        for s in self.sockets.values():
            self.world.loop.remove_reader(s)
            s.close()
        self.outer = outer
        self.open_sockets()
        try:
            await self.exchange(INFORMATIONAL, [UPDATE_ADDRESSES])
            self.say("moved")
        except Refused:
            self.close()
            self.say("dead")
