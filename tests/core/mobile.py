# SPDX-License-Identifier: Apache-2.0
"""A UE of the test core: NAS (TS 24.501) above a USIM, and EAP-5G (TS 24.502 section 9.3.2)."""

import struct

from core.usim import UPLINK, Keys, Security

EAP_5G = bytes([254, 0, 0x28, 0xAF, 0, 0, 0, 3])
START, NAS, STOP = 1, 2, 4
REQUEST, RESPONSE, SUCCESS, FAILURE = 1, 2, 3, 4
IPV4, IPV6, IPV4V6, ETHERNET = 1, 2, 3, 5


def plmn_octets(plmn):
    plmn = plmn if len(plmn) == 6 else plmn + "f"
    return bytes.fromhex(plmn[1] + plmn[0] + plmn[5] + plmn[2] + plmn[4] + plmn[3])


class Mobile:
    """A subclass has `plmn`, `supi`, `guami` (hexadecimal, "": none), `security` (None at first), and `say`."""

    # Establishment cause (TS 24.502 section 9.2.2): mo-Signalling. SST of the requested slice.
    cause, sst = 3, 1

    def parameters(self):
        """AN parameters: GUAMI, selected PLMN, requested NSSAI and establishment cause."""
        plmn = plmn_octets(self.plmn)
        found = bytes([2, 3]) + plmn + bytes([3, 2, 1, self.sst]) + bytes([4, 1, self.cause])
        return (bytes([1, 6]) + plmn + bytes.fromhex(self.guami) if self.guami else b"") + found

    def initial_message(self):
        return self.registration()

    def registration(self):
        digits = self.supi[len(self.plmn) :]
        digits += "f" * (len(digits) % 2)
        msin = bytes(int(digits[n + 1], 16) << 4 | int(digits[n], 16) for n in range(0, len(digits), 2))
        identity = b"\x01" + plmn_octets(self.plmn) + b"\xf0\xff\0\0" + msin
        return bytes([0x7E, 0, 0x41, 0x79]) + struct.pack("!H", len(identity)) + identity + bytes([0x2E, 2, 0xA0, 0x20])

    def eap_response(self, packet, mangle=""):
        """The answer to an EAP-5G request. `mangle`: the message in it, whatever the request is."""
        _, identifier, size = struct.unpack_from("!BBH", packet)
        assert packet[4:12] == EAP_5G, packet.hex()
        body = packet[14:size]
        if packet[12] == START:
            answer, sent = self.initial_message(), self.parameters()
        else:
            answer, sent = self.nas_answer(body[2 : 2 + int.from_bytes(body[:2], "big")]), b""
        response = bytes([STOP, 0])
        if answer is not None:
            response = bytes([NAS, 0]) + struct.pack("!H", len(sent)) + sent
            response += struct.pack("!H", len(answer)) + answer
        data = EAP_5G + (bytes.fromhex(mangle) if mangle else response)
        return struct.pack("!BBH", RESPONSE, identifier, len(data) + 4) + data

    def nas_answer(self, message):
        """The answer to a NAS message before registration; None: the UE gives up."""
        kind = message[2] if message[1] & 15 == 0 else message[9]
        if kind == 0x56:
            at = 5 + message[4]
            rand, autn = message[at + 1 : at + 17], message[at + 19 : at + 35]
            self.aka = Keys.answer(self.plmn, self.supi, rand, autn)
            return bytes([0x7E, 0, 0x57, 0x2D, 16]) + self.aka.res
        if kind == 0x5D:
            self.security = Security(self.aka, UPLINK)
            self.security.open(message)
            return self.security.protect(bytes([0x7E, 0, 0x5E]), 4)
        self.say("nas-rejected", kind=kind, cause=message[3] if len(message) > 3 else 0)
        return None

    @staticmethod
    def transport(message, more=b""):
        """UL NAS TRANSPORT of a 5GSM message."""
        payload = struct.pack("!H", len(message)) + message
        return bytes([0x7E, 0, 0x67, 1]) + payload + bytes([0x12, message[1]]) + more

    def session_request(self, session, kind=IPV4, request=1):
        """PDU SESSION ESTABLISHMENT REQUEST. `request`: its type, initial or MA PDU request (6)."""
        message = bytes([0x2E, session, 1, 0xC1, 0xFF, 0xFF, 0x90 | kind, 0xA1])
        return self.transport(message, bytes([0x80 | request]))

    @staticmethod
    def session_message(message):
        """The 5GSM message of DL NAS TRANSPORT."""
        return message[6 : 6 + int.from_bytes(message[4:6], "big")]

    @staticmethod
    def session_address(message):
        """The PDU address of PDU SESSION ESTABLISHMENT ACCEPT: behind QoS rules and session AMBR."""
        at = 7 + int.from_bytes(message[5:7], "big")
        at += 1 + message[at]
        assert message[at] == 0x29, message.hex()
        return message[at + 3 : at + 2 + message[at + 1]]

    def deregistration(self):
        guti = b"\xf2" + bytes(10)
        return bytes([0x7E, 0, 0x45, 0x0A]) + struct.pack("!H", len(guti)) + guti
