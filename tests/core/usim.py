# SPDX-License-Identifier: Apache-2.0
"""5G-AKA and NAS security, for both ends of tests: MILENAGE (TS 35.206), key derivation (TS 33.501 annex A), 128-NIA2
and 128-NEA2 (TS 33.401 annex B). Nothing of it is the agent's."""

import hashlib
import hmac
import os
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.cmac import CMAC

K = bytes.fromhex("465b5ce8b199b49faa5f0a2ee238a6bc")
OPC = bytes.fromhex("cd63cb71954a9f4e48a5994e37a02baf")
AMF_FIELD = b"\x80\x00"
UPLINK, DOWNLINK = 0, 1
# TS 24.501 section 4.4.3.1: of NAS over non-3GPP access.
BEARER = 2


def aes(key, block):
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def turn(block, bits):
    number = int.from_bytes(block, "big")
    return ((number << bits | number >> (128 - bits)) & ((1 << 128) - 1)).to_bytes(16, "big")


def milenage(key, opc, rand, sequence, field=AMF_FIELD):
    """MAC-A, RES, CK, IK, AK."""
    temp = aes(key, xor(rand, opc))
    in1 = (sequence + field) * 2
    out1 = xor(aes(key, xor(temp, turn(xor(in1, opc), 64))), opc)

    def f(bits, constant):
        mixed = turn(xor(temp, opc), bits)
        return xor(aes(key, mixed[:15] + bytes([mixed[15] ^ constant])), opc)

    out2 = f(0, 1)
    return out1[:8], out2[8:], f(32, 2), f(64, 4), out2[:6]


def kdf(key, code, *parameters):
    text = bytes([code]) + b"".join(p + struct.pack("!H", len(p)) for p in parameters)
    return hmac.new(key, text, hashlib.sha256).digest()


def network_name(plmn):
    return f"5G:mnc{plmn[3:].zfill(3)}.mcc{plmn[:3]}.3gppnetwork.org".encode()


class Keys:
    """Of one authentication."""

    def __init__(self, plmn, supi, rand, sequence, key=K, opc=OPC):
        mac, res, ck, ik, ak = milenage(key, opc, rand, sequence)
        name, both = network_name(plmn), ck + ik
        self.autn = xor(sequence, ak) + AMF_FIELD + mac
        self.res = kdf(both, 0x6B, name, rand, res)[16:]
        seaf = kdf(kdf(both, 0x6A, name, xor(sequence, ak)), 0x6C, name)
        self.amf = kdf(seaf, 0x6D, supi.encode(), b"\0\0")

    @classmethod
    def challenge(cls, plmn, supi, **more):
        rand = os.urandom(16)
        return rand, cls(plmn, supi, rand, os.urandom(6), **more)

    @classmethod
    def answer(cls, plmn, supi, rand, autn, key=K, opc=OPC):
        """The USIM's answer to a challenge."""
        ak = milenage(key, opc, rand, bytes(6))[4]
        keys = cls(plmn, supi, rand, xor(autn[:6], ak), key, opc)
        assert keys.autn == autn, "the network cannot be believed"
        return keys


class Security:
    """A NAS security context with 128-NIA2 and 128-NEA2. `own` is the direction that this end sends in."""

    def __init__(self, keys, own):
        self.amf, self.own = keys.amf, own
        self.integrity = kdf(keys.amf, 0x69, b"\x02", b"\x02")[16:]
        self.cipher = kdf(keys.amf, 0x69, b"\x01", b"\x02")[16:]
        self.counts = [0, 0]

    def mac(self, count, direction, message):
        cmac = CMAC(algorithms.AES(self.integrity))
        cmac.update(struct.pack("!IB3x", count, BEARER << 3 | direction << 2) + message)
        return cmac.finalize()[:4]

    def crypt(self, count, direction, message):
        nonce = struct.pack("!IB11x", count, BEARER << 3 | direction << 2)
        return Cipher(algorithms.AES(self.cipher), modes.CTR(nonce)).encryptor().update(message)

    def protect(self, message, header=2):
        count = self.counts[self.own]
        self.counts[self.own] += 1
        body = bytes([count & 255]) + (message if header in (1, 3) else self.crypt(count, self.own, message))
        return bytes([0x7E, header]) + self.mac(count, self.own, body) + body

    def open(self, octets):
        other = 1 - self.own
        count = self.counts[other]
        assert octets[6] == count & 255, f"NAS count {octets[6]} instead of {count}: messages were reordered or lost"
        assert self.mac(count, other, octets[6:]) == octets[2:6], "wrong message authentication code"
        self.counts[other] += 1
        return octets[7:] if octets[1] & 15 in (1, 3) else self.crypt(count, other, octets[7:])

    def n3iwf_key(self, uplink_count):
        """TS 33.501 annex A.9, access type non-3GPP."""
        return kdf(self.amf, 0x6E, struct.pack("!I", uplink_count), b"\x02")


class NoSecurity(Security):
    """Emergency registration without authentication (TS 33.501 section 10.2.2): null algorithms, and K_AMF is 0."""

    def __init__(self):
        self.amf, self.counts = bytes(32), [0, 0]

    def protect(self, message, header=2):
        return message

    def open(self, octets):
        return octets


def vectors():
    """TS 35.207 test set 1."""
    rand, sequence = bytes.fromhex("23553cbe9637a89d218ae64dae47bf35"), bytes.fromhex("ff9bb4d0b607")
    mac, res, ck, ik, ak = milenage(K, OPC, rand, sequence, bytes.fromhex("b9b9"))
    assert (mac.hex(), res.hex()) == ("4a9ffac354dfafb3", "a54211d5e3ba50bf")
    assert (ck.hex(), ik.hex()) == ("b40ba9a3c58b2a05bbf0d987b21bf8cb", "f769bcd751044604127672711c6d3441")
    assert ak.hex() == "aa689c648370"
