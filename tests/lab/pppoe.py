# SPDX-License-Identifier: Apache-2.0
"""A PPPoE host in user space: discovery, PPP and its payload, each step by itself."""

import hashlib
import ipaddress
import os
import struct
import time

from . import frames
from .frames import Frame

ALL = b"\xff" * 6
PADI, PADO, PADR, PADS, PADT = 0x09, 0x07, 0x19, 0x65, 0xA7
SERVICE_NAME, AC_NAME, HOST_UNIQ, COOKIE, VENDOR, MAX_PAYLOAD = 0x0101, 0x0102, 0x0103, 0x0104, 0x0105, 0x0120
RELAY_SESSION_ID = 0x0110
IP4, IP6, LCP, PAP, CHAP, IPCP, IPV6CP = 0x0021, 0x0057, 0xC021, 0xC023, 0xC223, 0x8021, 0x8057
# Seconds until a request without an answer is sent again.
RESTART = 3
REQUEST, ACK, NAK, REJECT, TERMINATE, TERMINATED, ECHO, ECHOED = 1, 2, 3, 4, 5, 6, 9, 10


def tag(kind, value=b""):
    return struct.pack("!HH", kind, len(value)) + value


def tags_of(payload):
    found, at = [], 0
    while at + 4 <= len(payload):
        kind, length = struct.unpack_from("!HH", payload, at)
        found.append((kind, payload[at + 4 : at + 4 + length]))
        at += 4 + length
    return found


def options_of(data):
    found, at = [], 0
    while at + 2 <= len(data):
        found.append((data[at], data[at + 2 : at + data[at + 1]]))
        at += data[at + 1]
    return found


def option(kind, value):
    return bytes([kind, 2 + len(value)]) + value


class Host:
    """`method`: "pap", "chap" or "eap". It has `address`, `dns`, `gateway`, `advertisement`, whether it `ended` and
    `why`."""

    def __init__(self, wire, mac, *vlans, tpids=None, username="", password="", method="pap", mru=1492):
        self.wire, self.mac, self.mru = wire, frames.mac_bytes(mac), mru
        self.tags = tuple(zip(tpids or (0x8100, 0x8100), vlans, strict=False))
        self.username, self.password, self.method = username.encode(), password.encode(), method
        self.reset()

    def reset(self):
        self.server, self.session, self.discovered = ALL, 0, {}
        self.magic, self.id, self.ended, self.why = os.urandom(4), 0, False, None
        self.asked, self.acked, self.peer_acked = {}, set(), set()
        self.authenticated = self.refused = None
        self.address, self.dns, self.gateway, self.advertisement = b"\0" * 4, [b"\0" * 4] * 2, None, None
        self.identifier, self.peer_magic, self.echoes = os.urandom(8), None, 0
        self.replies = set()

    def ethernet(self, ethertype, payload, destination=None):
        return Frame(destination or self.server, self.mac, self.tags, ethertype, payload).pack()

    def discovery(self, code, tags=b"", session=0, destination=None):
        header = struct.pack("!BBHH", 0x11, code, session, len(tags))
        self.wire.send(self.ethernet(frames.PPPOE_DISCOVERY, header + tags, destination))

    def ppp(self, protocol, payload):
        header = struct.pack("!BBHHH", 0x11, 0, self.session, len(payload) + 2, protocol)
        self.wire.send(self.ethernet(frames.PPPOE_SESSION, header + payload))

    def packet(self, protocol, code, number, data=b""):
        self.ppp(protocol, struct.pack("!BBH", code, number, 4 + len(data)) + data)

    def request(self, protocol):
        """Our Configure-Request, as we want it by now."""
        options = {
            LCP: lambda: option(1, struct.pack("!H", self.mru)) + option(5, self.magic),
            IPCP: lambda: option(3, self.address)
            + b"".join(option(129 + 2 * i, each) for i, each in enumerate(self.dns)),
            IPV6CP: lambda: option(1, self.identifier),
        }[protocol]()
        self.id += 1
        self.asked[protocol] = self.id
        self.packet(protocol, REQUEST, self.id, options)

    # ---- Received packets

    def receive(self, raw):
        if raw[:6] != self.mac:
            return
        frame = Frame.parse(raw)
        if frame.tags != self.tags or len(frame.payload) < 6:
            return
        _, code, session, length = struct.unpack_from("!BBHH", frame.payload)
        payload = frame.payload[6 : 6 + length]
        if frame.ethertype == frames.PPPOE_DISCOVERY:
            if code == PADT and session == self.session:
                self.ended = True
            self.discovered[code] = (frame.source, session, tags_of(payload))
        elif frame.ethertype == frames.PPPOE_SESSION and session == self.session and len(payload) >= 2:
            self.receive_ppp(struct.unpack_from("!H", payload)[0], payload[2:])

    def receive_ppp(self, protocol, payload):
        if protocol == IP4:
            if payload[9] == 1 and payload[20] == 0:
                self.replies.add(struct.unpack_from("!H", payload, 26)[0])
            return
        if protocol == IP6:
            if payload[6] == 58 and payload[40] == 134:
                self.advertisement = payload
            if payload[6] == 58 and payload[40] == 129:
                self.replies.add(struct.unpack_from("!H", payload, 46)[0])
            return
        code, number, length = struct.unpack_from("!BBH", payload)
        data = payload[4:length]
        if protocol == PAP:
            self.authenticated, self.refused = code == 2, data[1:] if code == 3 else None
        elif protocol == CHAP:
            self.receive_chap(code, number, data)
        elif protocol == LCP and code == ECHO:
            self.echoes += 1
            self.packet(LCP, ECHOED, number, self.magic + data[4:])
        elif protocol == LCP and code == ECHOED:
            self.echoed = number, data
        elif protocol == LCP and code == TERMINATE:
            self.ended, self.why = True, data.decode()
            self.packet(LCP, TERMINATED, number)
        elif protocol in (LCP, IPCP, IPV6CP):
            self.negotiate(protocol, code, number, data)

    def receive_chap(self, code, number, data):
        if code == 1:
            digest = hashlib.md5(bytes([number]) + self.password + data[1 : 1 + data[0]]).digest()
            self.packet(CHAP, 2, number, bytes([16]) + digest + self.username)
        else:
            self.authenticated, self.refused = code == 3, data if code == 4 else None

    def negotiate(self, protocol, code, number, data):
        if code == REQUEST:
            wanted = {"pap": b"\xc0\x23", "chap": b"\xc2\x23\x05", "eap": b"\xc2\x27"}[self.method]
            offered = dict(options_of(data))
            if protocol == LCP and 3 in offered and offered[3] != wanted:
                self.packet(LCP, NAK, number, option(3, wanted))
                return
            if protocol == LCP:
                self.peer_magic = offered.get(5)
            if protocol == IPCP:
                self.gateway = offered.get(3)
            self.acked.add(protocol)
            self.packet(protocol, ACK, number, data)
        elif number == self.asked.get(protocol):
            if code == ACK:
                self.peer_acked.add(protocol)
            elif code == NAK:
                for kind, value in options_of(data):
                    if protocol == IPCP and kind == 3:
                        self.address = value
                    elif protocol == IPCP:
                        self.dns[(kind - 129) // 2] = value
                    elif protocol == IPV6CP:
                        self.identifier = value
                self.request(protocol)
            elif code == REJECT and protocol == IPCP:
                # There are no name servers.
                self.dns = []
                self.request(protocol)

    # ---- Actions of a test

    def until(self, condition, what, seconds=20, again=None):
        """Receives until a condition is true. `again` repeats the request (RFC 1661 section 4.6)."""
        end, repeat = time.monotonic() + seconds, time.monotonic() + RESTART
        while not condition():
            assert time.monotonic() < end, f"{what}: not in {seconds} s"
            if again and time.monotonic() > repeat:
                again()
                repeat = time.monotonic() + RESTART
            for raw in self.wire.frames(0.05):
                self.receive(raw)
                if condition():
                    break

    def open(self, protocol):
        return protocol in self.acked and protocol in self.peer_acked

    def discover(self, *more, service=b""):
        """PADI to PADS."""
        end = time.monotonic() + 20
        while PADO not in self.discovered:
            assert time.monotonic() < end, "PADO: not in 20 s"
            # As a host does: the first may come before the server is ready.
            self.discovery(PADI, tag(SERVICE_NAME, service) + b"".join(more), destination=ALL)
            for raw in self.wire.frames(1, quiet=0.5):
                self.receive(raw)
                if PADO in self.discovered:
                    break
        self.server, _, offered = self.discovered[PADO]
        cookie = tag(COOKIE, dict(offered)[COOKIE])
        padr = cookie + tag(SERVICE_NAME, service) + b"".join(more)
        self.discovery(PADR, padr)
        self.until(lambda: PADS in self.discovered, "PADS", again=lambda: self.discovery(PADR, padr))
        self.session = self.discovered[PADS][1]

    def link(self):
        self.request(LCP)
        again = {"again": lambda: self.request(LCP)}
        self.until(lambda: self.open(LCP) or self.ended, "LCP is open", **again)

    def authenticate(self):
        def ask():
            if self.method == "pap":
                lengths = bytes([len(self.username)]), bytes([len(self.password)])
                self.packet(PAP, 1, 1, lengths[0] + self.username + lengths[1] + self.password)

        ask()
        self.until(lambda: self.authenticated is not None or self.ended, "authenticated or not", again=ask)
        return self.authenticated

    def dial(self, *protocols, line=b""):
        """From PADI until the network protocols are open. `line`: a tag of an access node. False: the credentials are
        not right."""
        self.reset()
        self.discover(line)
        self.link()
        if not self.authenticate():
            return False
        protocols = protocols or (IPCP, IPV6CP)

        def ask():
            for protocol in protocols:
                if protocol not in self.peer_acked:
                    self.request(protocol)

        ask()
        self.until(lambda: all(self.open(each) for each in protocols), "network protocols are open", again=ask)
        return True

    def ip4(self):
        return str(ipaddress.ip_address(self.address))

    def ping(self, target, number, seconds=20, source=None):
        """One echo, answered."""
        if ":" in target:
            body = struct.pack("!HH", 7, number) + b"ping"
            packet = frames.icmp6(ipaddress.ip_address(source).packed, ipaddress.ip_address(target).packed, 128, body)
            self.ppp(IP6, packet)
        else:
            echo = struct.pack("!BBHHH", 8, 0, 0, 7, number) + b"ping"
            echo = echo[:2] + struct.pack("!H", frames.checksum(echo)) + echo[4:]
            header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(echo), 0, 0, 64, 1, 0)
            header += self.address + ipaddress.ip_address(target).packed
            self.ppp(IP4, header[:10] + struct.pack("!H", frames.checksum(header)) + header[12:] + echo)
        self.until(lambda: number in self.replies, f"echo {number} is answered", seconds)

    def udp(self, target, port, data=b"data"):
        """A packet to a port."""
        header = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(data), 0, 0, 64, 17, 0)
        header += self.address + ipaddress.ip_address(target).packed
        payload = struct.pack("!HHHH", 40000, port, 8 + len(data), 0) + data
        self.ppp(IP4, header[:10] + struct.pack("!H", frames.checksum(header)) + header[12:] + payload)

    def lcp_echo(self, seconds=20):
        """The gateway's answer to an LCP echo: its magic number."""
        self.echoed = None
        self.id = (self.id + 1) % 256
        self.packet(LCP, ECHO, self.id, self.magic)
        self.until(lambda: self.echoed is not None, "LCP echo is answered", seconds)
        assert self.echoed[0] == self.id
        return self.echoed[1][:4]

    def hang_up(self, tags=b""):
        self.discovery(PADT, tags, self.session)
