# SPDX-License-Identifier: Apache-2.0
"""A user plane function as far as N3 goes: TS 29.281 (GTP-U), TS 38.415 (PDU session container), the kernel's UDP."""

import contextlib
import os
import queue
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

from . import frames

ECHO_REQUEST, ECHO_RESPONSE, ERROR_INDICATION, SUPPORTED_EXTENSIONS, END_MARKER, GPDU = 1, 2, 26, 31, 254, 255
PDU_SESSION_CONTAINER = 0x85
PORT = 2152
IP_RECVTOS = 13
FLAG_E, FLAG_S, FLAG_PN = 4, 2, 1


@dataclass
class Message:
    kind: int
    teid: int
    sequence: int | None = None
    # (type, content without the length and next-type bytes), in order.
    extensions: list = field(default_factory=list)
    payload: bytes = b""
    sender: tuple = ()
    # Of the outer IPv4 header: DSCP and ECN.
    tos: int = 0

    @classmethod
    def parse(cls, data, sender=()):
        flags, kind, length, teid = struct.unpack_from("!BBHI", data)
        assert flags >> 4 == 3, f"version 1, protocol type GTP: {flags:#x}"
        assert length == len(data) - 8, f"length {length} of {len(data) - 8}"
        message, at = cls(kind, teid, sender=sender), 8
        if flags & (FLAG_E | FLAG_S | FLAG_PN):
            sequence, _, following = struct.unpack_from("!HBB", data, at)
            message.sequence = sequence if flags & FLAG_S else None
            at += 4
            while flags & FLAG_E and following:
                size = data[at] * 4
                assert size, "an extension header has a length"
                message.extensions.append((following, data[at + 1 : at + size - 1]))
                following, at = data[at + size - 1], at + size
        message.payload = data[at:]
        return message

    def pack(self):
        flags, optional = 0x30, b""
        if self.sequence is not None or self.extensions:
            flags |= FLAG_S if self.sequence is not None else 0
            flags |= FLAG_E if self.extensions else 0
            kinds = [kind for kind, _ in self.extensions] + [0]
            optional = struct.pack("!HBB", self.sequence or 0, 0, kinds[0])
            for (_, content), following in zip(self.extensions, kinds[1:], strict=True):
                assert (len(content) + 2) % 4 == 0
                optional += bytes([(len(content) + 2) // 4]) + content + bytes([following])
        body = optional + self.payload
        return struct.pack("!BBHI", flags, self.kind, len(body), self.teid) + body

    @property
    def container(self):
        """(PDU type, QFI) of the PDU session container, or None."""
        for kind, content in self.extensions:
            if kind == PDU_SESSION_CONTAINER:
                return content[0] >> 4, content[1] & 0x3F
        return None


def downlink_container(qfi, reflective=False):
    """TS 38.415 section 5.5.2.1: DL PDU SESSION INFORMATION, with its RQI."""
    return PDU_SESSION_CONTAINER, bytes([0x00, (0x40 if reflective else 0) | qfi])


def solicits(message):
    payload = message.payload
    return (
        message.kind == GPDU and len(payload) > 40 and payload[0] >> 4 == 6 and payload[6] == 58 and payload[40] == 133
    )


class Upf:
    """The far end of tunnels, on an address of a core namespace; a TUN interface leads to the data network there."""

    def __init__(self, lab, namespace, address, tunnel="n6"):
        self.namespace, self.address = namespace, address
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = namespace.inside(socket.socket, family, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)
        self.socket.setsockopt(socket.SOL_SOCKET, 32, 16 << 20)
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_IP, IP_RECVTOS, 1)
        self.socket.bind((address, PORT))
        self.socket.setblocking(False)
        self.tunnel = namespace.tunnel_device(tunnel, False, 1400)
        self.tunnel_name = tunnel
        self.by_teid, self.by_address = {}, {}
        # Unanswered messages, for a test.
        self.messages = queue.SimpleQueue()
        # Called for a router solicitation with the TEID: (subscriber, prefix), or None.
        self.router = None
        # Called for each user packet (teid, packet) instead of giving it to the data network.
        self.taker = None
        self.wake, self.waker = os.pipe()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()
        lab.on_close(self.close)

    def add(self, line, gateway, qfi=None):
        """A subscriber whose tunnel's other end is at `gateway`; its addresses are routed into the tunnel.
        `qfi` is that of its packets, or a function of the packet."""
        self.by_teid[line.teid_up] = line
        for version, address, size in (("-4", line.ip4, "32"), ("-6", line.ip6, "128")):
            if address:
                packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
                self.by_address[packed] = (line, gateway, qfi)
                self.namespace.ip(version, "route", "replace", f"{address}/{size}", "dev", self.tunnel_name)

    def send(self, message, gateway):
        data = message.pack() if isinstance(message, Message) else message
        self.socket.sendto(data, (gateway, PORT))

    def gpdu(self, line, packet, qfi=None, reflective=False, **rest):
        extensions = [] if qfi is None else [downlink_container(qfi, reflective)]
        return Message(GPDU, line.teid_down, extensions=extensions, payload=packet, **rest)

    def expect(self, wanted, seconds=20):
        seen, end = [], time.monotonic() + seconds
        while True:
            try:
                message = self.messages.get(timeout=max(0.001, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"not seen in {seconds} s; others: {seen[:10]}") from None
            if wanted(message):
                return message
            seen.append(message)

    def drain(self):
        with contextlib.suppress(queue.Empty):
            while True:
                self.messages.get_nowait()

    def work(self):
        while True:
            try:
                ready, _, _ = select.select([self.wake, self.socket, self.tunnel], [], [])
                if self.wake in ready:
                    return
                if self.socket in ready:
                    self.from_gateway()
                if self.tunnel in ready:
                    self.from_network()
            except (OSError, ValueError):
                return

    def from_gateway(self):
        for _ in range(128):
            try:
                data, notes, _, sender = self.socket.recvmsg(65536, 64)
            except BlockingIOError:
                return
            except OSError:
                continue
            try:
                message = Message.parse(data, sender)
            except (AssertionError, struct.error, IndexError):
                self.messages.put(Message(-1, 0, payload=data, sender=sender))
                continue
            message.tos = notes[0][2][0] if notes else 0
            if message.kind == ECHO_REQUEST:
                self.send(Message(ECHO_RESPONSE, 0, message.sequence or 0, payload=b"\x0e\0"), sender[0])
            elif self.router and solicits(message):
                self.advertise(message, sender[0])
            elif self.taker and message.kind == GPDU:
                self.taker(message)
                continue
            elif message.kind == GPDU and message.teid in self.by_teid:
                with contextlib.suppress(OSError):
                    os.write(self.tunnel, message.payload)
            self.messages.put(message)

    def advertise(self, message, gateway):
        found = self.router(message.teid)
        if found:
            line, prefix = found
            # Flags L and A; valid and preferred for an hour.
            option = struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 3600, 3600, 0) + socket.inet_pton(socket.AF_INET6, prefix)
            body = struct.pack("!BBHII", 64, 0, 1800, 0, 0) + option
            own = socket.inet_pton(socket.AF_INET6, "fe80::1")
            packet = frames.icmp6(own, message.payload[8:24], 134, body)
            self.send(self.gpdu(line, packet, message.container[1]), gateway)

    def from_network(self):
        for _ in range(128):
            try:
                packet = os.read(self.tunnel, 65536)
            except BlockingIOError:
                return
            destination = packet[16:20] if packet[0] >> 4 == 4 else packet[24:40]
            if destination in self.by_address:
                line, gateway, qfi = self.by_address[destination]
                self.send(self.gpdu(line, packet, qfi(packet) if callable(qfi) else qfi), gateway)

    def close(self):
        """As if it died. Once is enough."""
        if not self.thread.is_alive():
            return
        os.write(self.waker, b"x")
        self.thread.join(5)
        for fd in (self.tunnel, self.wake, self.waker):
            os.close(fd)
        self.socket.close()
