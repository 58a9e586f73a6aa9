# SPDX-License-Identifier: Apache-2.0
"""Security of a 5G core for the tests, in Python of its own: MILENAGE, keys of TS 33.501, NAS algorithms, EAP-AKA'."""

import hashlib
import hmac
import os
import struct

from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.cmac import CMAC

NETWORK = "5G:mnc001.mcc001.3gppnetwork.org"


def xor(*all_of):
    out = bytearray(all_of[0])
    for one in all_of[1:]:
        for i, octet in enumerate(one):
            out[i] ^= octet
    return bytes(out)


def aes(key, block):
    done = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return done.update(block) + done.finalize()


class Milenage:
    """TS 35.206, with OPc."""

    def __init__(self, k, opc):
        self.k, self.opc = k, opc

    def out(self, temp, turn, constant):
        value = xor(temp, self.opc)
        value = value[turn:] + value[:turn]
        return xor(aes(self.k, xor(value, bytes(15) + bytes([constant]))), self.opc)

    def f1(self, rand, sqn, amf):
        temp = aes(self.k, xor(rand, self.opc))
        value = xor((sqn + amf) * 2, self.opc)
        out = xor(aes(self.k, xor(temp, value[8:] + value[:8])), self.opc)
        return out[:8], out[8:]

    def f2345(self, rand):
        temp = aes(self.k, xor(rand, self.opc))
        first = self.out(temp, 0, 1)
        return first[8:], self.out(temp, 4, 2), self.out(temp, 8, 4), first[:6]

    def f5star(self, rand):
        return self.out(aes(self.k, xor(rand, self.opc)), 12, 8)[:6]


def kdf(key, fc, *parameters):
    text = bytes([fc]) + b"".join(one + struct.pack(">H", len(one)) for one in parameters)
    return hmac.new(key, text, hashlib.sha256).digest()


def kamf_of(kausf, supi, abba=b"\0\0"):
    kseaf = kdf(kausf, 0x6C, NETWORK.encode())
    return kdf(kseaf, 0x6D, supi.encode(), abba)


class Vector:
    """An authentication vector of a subscriber: 5G-AKA and EAP-AKA'."""

    def __init__(self, k, opc, sqn, amf=b"\x80\x00"):
        self.milenage, self.rand = Milenage(k, opc), os.urandom(16)
        self.sqn = struct.pack(">Q", sqn)[2:]
        res, ck, ik, ak = self.milenage.f2345(self.rand)
        mac, _ = self.milenage.f1(self.rand, self.sqn, amf)
        self.concealed = xor(self.sqn, ak)
        self.autn = self.concealed + amf + mac
        network = NETWORK.encode()
        self.res = res
        self.res_star = kdf(ck + ik, 0x6B, network, self.rand, res)[16:]
        self.kausf = kdf(ck + ik, 0x6A, network, self.concealed)
        prime = kdf(ck + ik, 0x20, network, self.concealed)
        self.ck_prime, self.ik_prime = prime[:16], prime[16:]

    def resynchronized(self, auts):
        """The greatest sequence number that the subscriber has."""
        sqn = xor(auts[:6], self.milenage.f5star(self.rand))
        _, mac = self.milenage.f1(self.rand, sqn, b"\0\0")
        assert mac == auts[6:], "AUTS"
        return int.from_bytes(sqn, "big")


class Prime:
    """EAP-AKA' on the server's side (RFC 9048)."""

    def __init__(self, vector, identity):
        self.vector = vector
        key, seed, out, last = vector.ik_prime + vector.ck_prime, b"EAP-AKA'" + identity.encode(), b"", b""
        for counter in range(1, 8):
            last = hmac.new(key, last + seed + bytes([counter]), hashlib.sha256).digest()
            out += last
        self.aut, self.emsk = out[16:48], out[144:208]
        self.kausf = self.emsk[:32]

    def attribute(self, kind, value):
        value += bytes(-(2 + len(value)) % 4)
        return bytes([kind, (2 + len(value)) // 4]) + value

    def mac(self, packet):
        return hmac.new(self.aut, packet, hashlib.sha256).digest()[:16]

    def challenge(self, identifier=1, functions=(1,)):
        name = NETWORK.encode()
        body = self.attribute(1, b"\0\0" + self.vector.rand) + self.attribute(2, b"\0\0" + self.vector.autn)
        for one in functions:
            body += self.attribute(24, struct.pack(">H", one))
        body += self.attribute(23, struct.pack(">H", len(name)) + name) + self.attribute(11, bytes(18))
        packet = bytes([1, identifier]) + struct.pack(">H", 8 + len(body)) + bytes([50, 1, 0, 0]) + body
        return packet[:-16] + self.mac(packet)

    def answered(self, packet):
        """Whether the answer authenticates the subscriber."""
        if packet[0] != 2 or packet[4] != 50 or packet[5] != 1:
            return False
        return self.mac(packet[:-16] + bytes(16)) == packet[-16:] and self.vector.res in packet


# ---- SNOW 3G and ZUC, word by word as the specifications have them


def field(a, b, polynomial):
    out = 0
    while b:
        if b & 1:
            out ^= a
        a <<= 1
        if a & 0x100:
            a ^= polynomial
        b >>= 1
    return out


def power(x, exponent, polynomial):
    out = 1
    for _ in range(exponent):
        out = field(out, x, polynomial)
    return out


def rijndael(x):
    inverse = power(x, 254, 0x11B)
    out = 0x63
    for turn in range(5):
        out ^= (inverse << turn | inverse >> (8 - turn)) & 255
    return out


def dickson(x):
    out = 0x25
    for exponent in (1, 9, 13, 15, 33, 41, 45, 47, 49):
        out ^= power(x, exponent, 0x169)
    return out


class Snow3G:
    SR = [rijndael(x) for x in range(256)]
    SQ = [dickson(x) for x in range(256)]

    @staticmethod
    def scaled(x, exponent):
        for _ in range(exponent):
            x = (x << 1 ^ (0xA9 if x & 0x80 else 0)) & 255
        return x

    @classmethod
    def word(cls, x, exponents):
        return int.from_bytes(bytes(cls.scaled(x, e) for e in exponents), "big")

    @staticmethod
    def mix(box, polynomial, w):
        s = [box[octet] for octet in w.to_bytes(4, "big")]
        d = [field(one, 2, polynomial) for one in s]
        out = (d[0] ^ s[1] ^ s[2] ^ d[3] ^ s[3], d[0] ^ s[0] ^ d[1] ^ s[2] ^ s[3])
        out += (s[0] ^ d[1] ^ s[1] ^ d[2] ^ s[3], s[0] ^ s[1] ^ d[2] ^ s[2] ^ d[3])
        return int.from_bytes(bytes(out), "big")

    def __init__(self, k, iv):
        ones = 0xFFFFFFFF
        self.s = [one ^ ones for one in k] + list(k) + [one ^ ones for one in k] + list(k)
        self.s[15] ^= iv[0]
        self.s[12] ^= iv[1]
        self.s[10] ^= iv[2]
        self.s[9] ^= iv[3]
        self.r = [0, 0, 0]
        for _ in range(32):
            self.shift(self.clock())
        self.clock()
        self.shift(0)

    def clock(self):
        f = (self.s[15] + self.r[0] & 0xFFFFFFFF) ^ self.r[1]
        r = self.r[1] + (self.r[2] ^ self.s[5]) & 0xFFFFFFFF
        self.r = [r, self.mix(self.SR, 0x11B, self.r[0]), self.mix(self.SQ, 0x169, self.r[1])]
        return f

    def shift(self, f):
        s = self.s
        v = (s[0] << 8 & 0xFFFFFFFF) ^ self.word(s[0] >> 24, (23, 245, 48, 239)) ^ s[2]
        v ^= s[11] >> 8 ^ self.word(s[11] & 255, (16, 39, 6, 64)) ^ f
        self.s = [*s[1:], v]

    def next(self):
        z = self.clock() ^ self.s[0]
        self.shift(0)
        return z


def words(octets):
    return struct.unpack(">4I", octets)


def snow_cipher(key, count, bearer, downlink, data):
    fresh = bearer << 27 | downlink << 26
    g = Snow3G(words(key)[::-1], (fresh, count, fresh, count))
    stream = b"".join(struct.pack(">I", g.next()) for _ in range((len(data) + 3) // 4))
    return xor(data, stream[: len(data)])


def snow_code(key, count, bearer, downlink, message):
    fresh = bearer << 27
    g = Snow3G(words(key)[::-1], (fresh ^ downlink << 15, count ^ downlink << 31, fresh, count))
    p, q = g.next() << 32 | g.next(), g.next() << 32 | g.next()

    def multiply(v, by):
        out = 0
        for i in range(64):
            if by >> i & 1:
                out ^= v
            v = (v << 1 ^ (0x1B if v >> 63 else 0)) & 0xFFFFFFFFFFFFFFFF
        return out

    total = 0
    for at in range(0, len(message), 8):
        total = multiply(total ^ int.from_bytes(message[at : at + 8].ljust(8, b"\0"), "big"), p)
    total = multiply(total ^ 8 * len(message), q)
    return struct.pack(">I", total >> 32 ^ g.next())


class Code:
    """128-NIA and 128-NEA by number; those of AES by another library."""

    @staticmethod
    def head(count, bearer, downlink):
        return struct.pack(">IB3x", count, bearer << 3 | downlink << 2)

    @classmethod
    def code(cls, algorithm, key, count, bearer, downlink, message):
        if algorithm == 1:
            return snow_code(key, count, bearer, downlink, message)
        if algorithm == 2:
            done = CMAC(algorithms.AES(key))
            done.update(cls.head(count, bearer, downlink) + message)
            return done.finalize()[:4]
        assert algorithm == 0, algorithm
        return bytes(4)

    @classmethod
    def cipher(cls, algorithm, key, count, bearer, downlink, data):
        if algorithm == 1:
            return snow_cipher(key, count, bearer, downlink, data)
        if algorithm == 2:
            done = Cipher(algorithms.AES(key), modes.CTR(cls.head(count, bearer, downlink) + bytes(8))).encryptor()
            return done.update(data) + done.finalize()
        assert algorithm == 0, algorithm
        return data


BEARER = 2


class Context:
    """A NAS security context on the network's side. `algorithms` is the octet of SECURITY MODE COMMAND."""

    def __init__(self, kamf, algorithms_octet, ksi):
        self.kamf, self.octet, self.ksi = kamf, algorithms_octet, ksi
        self.ciphering, self.integrity = algorithms_octet >> 4, algorithms_octet & 15
        self.enc = kdf(kamf, 0x69, b"\x01", bytes([self.ciphering]))[16:]
        self.int = kdf(kamf, 0x69, b"\x02", bytes([self.integrity]))[16:]
        self.up, self.down = 0, 0

    def protect(self, header, plain):
        payload = plain
        if header in (2, 4):
            payload = Code.cipher(self.ciphering, self.enc, self.down, BEARER, 1, plain)
        body = bytes([self.down & 255]) + payload
        code = Code.code(self.integrity, self.int, self.down, BEARER, 1, body)
        self.down += 1
        return bytes([0x7E, header]) + code + body

    def open(self, octets):
        """The plain message of an uplink message; None: its code is false, or it was received before."""
        header, sequence = octets[1] & 15, octets[6]
        count = self.up & ~255 | sequence
        if count < self.up:
            count += 256
        if Code.code(self.integrity, self.int, count, BEARER, 0, octets[6:]) != octets[2:6]:
            return None
        self.up, plain = count + 1, octets[7:]
        if header in (2, 4):
            plain = Code.cipher(self.ciphering, self.enc, count, BEARER, 0, plain)
        return plain

    def container(self, octets):
        """The value of a NAS message container of the message that was opened last."""
        return Code.cipher(self.ciphering, self.enc, self.up - 1, BEARER, 0, octets)


# ---- SUCI (TS 33.501 annex C)


def revealed(scheme, output, key):
    """The digits of a concealed MSIN. `key` is the home network's private key, raw."""
    if scheme == 0:
        text = output
    else:
        size = 32 if scheme == 1 else 33
        public, rest, tag = output[:size], output[size:-8], output[-8:]
        if scheme == 1:
            shared = x25519.X25519PrivateKey.from_private_bytes(key).exchange(
                x25519.X25519PublicKey.from_public_bytes(public)
            )
        else:
            private = ec.derive_private_key(int.from_bytes(key, "big"), ec.SECP256R1())
            shared = private.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public))
        keys = b"".join(hashlib.sha256(shared + struct.pack(">I", i) + public).digest() for i in (1, 2))
        assert hmac.new(keys[32:], rest, hashlib.sha256).digest()[:8] == tag, "MAC tag of a SUCI"
        done = Cipher(algorithms.AES(keys[:16]), modes.CTR(keys[16:32])).decryptor()
        text = done.update(rest) + done.finalize()
    return "".join(f"{octet & 15:x}{octet >> 4:x}" for octet in text).rstrip("f")


def supi_of(suci, key):
    """The IMSI of a SUCI as the 5GS mobile identity has it."""
    assert suci[0] & 0x77 == 1, suci.hex()
    home = "".join(f"{octet & 15:x}{octet >> 4:x}" for octet in suci[1:4])
    mcc, mnc = home[:3], home[4:6] + home[3].replace("f", "")
    return mcc + mnc + revealed(suci[6], suci[8:], key)
