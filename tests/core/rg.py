# SPDX-License-Identifier: Apache-2.0
"""A 5G residential gateway (TR-456): EAP-5G and NAS over PPPoE, and the user plane of RFC 8822. Nothing of it is the
agent's."""

import struct

from lab import frames
from lab.frames import Frame
from lab.pppoe import ACK, IP4, IP6, LCP, REQUEST, TERMINATE, Host

from core.mobile import FAILURE, IPV4, SUCCESS, Mobile

EAP, VSNCP, VSNP = 0xC227, 0x805B, 0x005B
BROADBAND_FORUM = b"\x00\x25\x6d"
# Frames (RFC 3518), here without FCS.
BRIDGED, BRIDGED_ETHERNET = 0x0031, b"\x00\x01"
NAS, SET_UP, MODIFY, RELEASE, ANSWER = 1, 2, 3, 4, 5
VERSION_2 = 0x21


class Rg(Host, Mobile):
    """Its state and events: `registered`, `addresses` and `resources` by PDU session, `sessions_released`, `events`."""

    def __init__(self, wire, mac, *vlans, supi, plmn="00101", guami=""):
        self.plmn, self.supi, self.guami = plmn, supi, guami
        # The message of each EAP-5G response; the cause of answers; whether messages about resources are answered.
        self.mangle, self.cause, self.mute = "", 0, False
        super().__init__(wire, mac, *vlans, method="eap")

    def reset(self):
        super().reset()
        self.security, self.aka, self.registered, self.deregistered = None, None, False, False
        self.tmsi, self.idle = None, False
        self.vsncp, self.events, self.addresses, self.resources = set(), [], {}, {}
        self.sessions_released, self.user_plane, self.marks, self.nas_sizes = [], None, [], []
        self.bridged = []
        # The identifier of the last EAP request, and the answer to it.
        self.answered = None, b""

    def say(self, event, **more):
        self.events.append((event, more))

    # ---- Received packets

    def receive(self, raw):
        frame = Frame.parse(raw)
        mine = frame.destination == self.mac and frame.tags == self.tags
        if mine and frame.ethertype == frames.PPPOE_SESSION and frame.payload[:1] == bytes([VERSION_2]):
            _, marks, session, length, protocol = struct.unpack_from("!BBHHH", frame.payload)
            self.marks.append((session, marks >> 2, marks >> 1 & 1))
            self.receive_ppp(protocol, frame.payload[8 : 6 + length])
            return
        super().receive(raw)

    def receive_ppp(self, protocol, payload):
        if protocol == EAP:
            self.receive_eap(payload)
        elif protocol == VSNCP:
            code, number, length = struct.unpack_from("!BBH", payload)
            assert payload[4:7] == BROADBAND_FORUM and length == 7, payload.hex()
            if code == REQUEST:
                self.ppp(VSNCP, bytes([ACK]) + payload[1:7])
            self.vsncp.add(code)
        elif protocol == VSNP:
            self.receive_message(payload)
        elif protocol == BRIDGED:
            assert payload[:2] == BRIDGED_ETHERNET, payload.hex()
            self.bridged.append(payload[2:])
        else:
            super().receive_ppp(protocol, payload)

    def receive_eap(self, payload):
        if payload[0] in (SUCCESS, FAILURE):
            self.authenticated = payload[0] == SUCCESS
            if self.authenticated:
                self.control(REQUEST, 1)
            return
        # A request that comes again has the same answer (RFC 3748 section 4.1).
        if payload[1] != self.answered[0]:
            self.answered = payload[1], self.eap_response(payload, self.mangle)
        self.ppp(EAP, self.answered[1])

    def control(self, code, number, vendor=BROADBAND_FORUM):
        self.ppp(VSNCP, struct.pack("!BBH", code, number, 7) + vendor)

    def receive_message(self, payload):
        kind = payload[0]
        if kind == NAS:
            self.downlink(self.security.open(payload[3 : 3 + int.from_bytes(payload[1:3], "big")]))
            return
        transaction, session = payload[1], payload[2]
        if kind in (SET_UP, MODIFY):
            count = payload[6]
            assert len(payload) == 7 + count, payload.hex()
            self.resources[session] = (int.from_bytes(payload[4:6], "big"), payload[3], list(payload[7:]))
            self.say("set-up" if kind == SET_UP else "modified", session=session)
        else:
            assert kind == RELEASE, payload.hex()
            self.resources.pop(session, None)
        if not self.mute:
            self.ppp(VSNP, bytes([ANSWER, transaction, session, self.cause]))

    def downlink(self, message):
        kind = message[2]
        self.nas_sizes.append(len(message))
        if kind == 0x42:
            # The 5G-GUTI is the last element.
            self.registered, self.tmsi = True, message[-4:]
            self.send_nas(bytes([0x7E, 0, 0x43]))
        elif kind == 0x4E:
            self.registered = True
        elif kind == 0x46:
            self.deregistered = True
        elif kind == 0x68:
            inner = self.session_message(message)
            if inner[3] == 0xC2:
                assert inner[1] in self.resources, "NAS came before its resource"
                self.addresses[inner[1]] = self.session_address(inner)
            elif inner[3] == 0xD3:
                self.sessions_released.append(inner[1])
                self.send_nas(self.transport(bytes([0x2E, inner[1], inner[2], 0xD4])))

    # ---- Sent packets

    def send_nas(self, message):
        octets = self.security.protect(message)
        self.ppp(VSNP, bytes([NAS]) + struct.pack("!H", len(octets)) + octets)

    def ppp(self, protocol, payload):
        if protocol in (IP4, IP6, BRIDGED) and self.user_plane:
            session, qfi = self.user_plane
            number = self.resources[session][0]
            header = struct.pack("!BBHHH", VERSION_2, qfi << 2, number, len(payload) + 2, protocol)
            self.wire.send(self.ethernet(frames.PPPOE_SESSION, header + payload))
            return
        super().ppp(protocol, payload)

    def send_frame(self, frame):
        self.ppp(BRIDGED, BRIDGED_ETHERNET + frame)

    # ---- Actions of a test

    def attach(self):
        """From PADI until the core has authenticated it or has not."""
        self.reset()
        self.discover()
        self.link()
        self.until(lambda: self.authenticated is not None or self.ended, "authenticated or not")
        return bool(self.authenticated)

    def register(self):
        assert self.attach(), self.events
        self.until(lambda: self.registered, "registered")

    def initial_message(self):
        """A registered 5G-RG that was idle requests its PDU sessions."""
        if not self.idle:
            return super().initial_message()
        status = bytes([sum(1 << session for session in self.wanted), 0])
        identity = bytes([0xF4, 0, 0x41]) + self.tmsi
        message = bytes([0x7E, 0, 0x4C, 0x10]) + struct.pack("!H", len(identity)) + identity
        message += bytes([0x40, 2]) + status + bytes([0x50, 2]) + status
        return self.security.protect(message, 1)

    def request_service(self):
        """Dial in again with the registration, and request the PDU sessions."""
        security, tmsi, self.wanted = self.security, self.tmsi, list(self.addresses)
        addresses = self.addresses
        self.reset()
        self.security, self.tmsi, self.idle = security, tmsi, True
        self.discover()
        self.link()
        self.until(lambda: self.registered or self.ended, "service")
        assert self.registered, self.events
        self.idle, self.addresses = False, addresses

    def establish(self, session, kind=IPV4, request=1):
        self.send_nas(self.session_request(session, kind, request))
        self.until(lambda: session in self.addresses, f"PDU session {session}")
        return self.resources[session]

    def deregister(self):
        self.send_nas(self.deregistration())
        self.until(lambda: self.ended, "the link ends")

    def ping_by(self, session, qfi, target, number, seconds=20):
        """One echo through the user plane. The marks of the reply: 5WE session, QFI and RQI."""
        self.user_plane, self.address, self.marks = (session, qfi), self.addresses[session], []
        self.ping(target, number, seconds)
        return self.marks[-1]

    def end_link(self):
        """LCP Terminate-Request."""
        self.packet(LCP, TERMINATE, 9)
