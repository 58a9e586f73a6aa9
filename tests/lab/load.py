# SPDX-License-Identifier: Apache-2.0
"""Traffic of many subscribers at once, in both directions, counted by subscriber and direction.

Each packet is UDP with its line in the payload. On the access side, frames are built and parsed here;
on the core side the kernel's UDP sockets send and receive, or a Upf does.
"""

import contextlib
import select
import socket
import struct
import threading
import time
from collections import Counter

from . import frames
from .frames import Frame

MAGIC = b"sluice"
MARK = struct.Struct("!6sBII")
UP, DOWN = 0, 1
PORT = 7007


def mark(direction, number, count, size):
    """A payload of the line of this number, sent in this count."""
    return MARK.pack(MAGIC, direction, number, count).ljust(size, b".")


def marked(payload, direction):
    """The number of the line that a payload belongs to, and the count that it was sent in; or None."""
    if len(payload) < MARK.size:
        return None
    magic, way, number, count = MARK.unpack_from(payload)
    return (number, count) if magic == MAGIC and way == direction else None


def udp_payload(packet):
    return packet[28:] if packet[0] >> 4 == 4 else packet[48:]


class CoreHost:
    """The core's end without tunnels: a server on the kernel's UDP, one socket for each family."""

    def __init__(self, namespace, ip4, ip6):
        self.addresses = {4: ip4, 6: ip6}
        self.sockets = {}
        for version, address in self.addresses.items():
            family = socket.AF_INET if version == 4 else socket.AF_INET6
            self.sockets[version] = namespace.inside(socket.socket, family, socket.SOCK_DGRAM)
            self.sockets[version].setsockopt(socket.SOL_SOCKET, 33, 16 << 20)
            self.sockets[version].setsockopt(socket.SOL_SOCKET, 32, 16 << 20)
            self.sockets[version].bind((address, PORT))
            self.sockets[version].setblocking(False)

    def send(self, line, version, payload):
        target = line.ip4 if version == 4 else line.ip6
        # The socket reports an ICMP error here; sending goes on.
        with contextlib.suppress(OSError):
            self.sockets[version].sendto(payload, (target, PORT))
            return True
        return False

    def redialed(self, line):
        """The line has a new session."""

    def readable(self):
        return list(self.sockets.values())

    def receive(self, source):
        """None without a packet; else the mark of the payload, or None, and the IP version."""
        with contextlib.suppress(OSError):
            return marked(source.recv(65536), UP), 4 if source is self.sockets[4] else 6
        return None

    def close(self):
        for each in self.sockets.values():
            each.close()


class TunnelHost:
    """The core's end behind GTP-U: packets go through a Upf, which keeps the rest of its duties."""

    def __init__(self, upf, gateway, ip4, ip6, qfi=None):
        self.upf, self.gateway, self.qfi = upf, gateway, qfi
        self.addresses = {4: ip4, 6: ip6}
        self.pending = []
        upf.taker = self.take
        self.ready, self.signal = socket.socketpair()
        self.ready.setblocking(False)

    def take(self, message):
        self.pending.append(message)
        with contextlib.suppress(BlockingIOError):
            self.signal.send(b"!")

    def send(self, line, version, payload):
        target = line.ip4 if version == 4 else line.ip6
        packet = frames.udp(self.addresses[version], target, PORT, PORT, payload)
        with contextlib.suppress(BlockingIOError):
            self.upf.send(self.upf.gpdu(line, packet, self.qfi), self.gateway)
            return True
        return False

    def redialed(self, line):
        self.upf.add(line, self.gateway, self.qfi)

    def readable(self):
        return [self.ready]

    def receive(self, source):
        if not self.pending:
            with contextlib.suppress(BlockingIOError):
                source.recv(4096)
            return None
        message = self.pending.pop(0)
        found = marked(udp_payload(message.payload), UP) if message.payload else None
        if found is None or message.teid not in self.upf.by_teid:
            return None, 4
        return found, message.payload[0] >> 4

    def close(self):
        self.upf.taker = None
        self.ready.close()
        self.signal.close()


class Load:
    """Sends at a steady rate for all lines in turn, IPv4 and IPv6 by turns, and counts what arrives.

    Counters are keyed (line number, IP version). A line's frames count as received only in that line's encapsulation,
    and only if they were sent since counting began anew: each packet says in which count it was sent.
    """

    def __init__(self, lines, wire, gateway_mac, core, rate, size=64):
        self.lines, self.wire, self.core, self.rate, self.size = lines, wire, core, rate, size
        self.gateway_mac = frames.mac_bytes(gateway_mac)
        self.sent = {UP: Counter(), DOWN: Counter()}
        self.received = {UP: Counter(), DOWN: Counter()}
        # Sent in earlier counts.
        self.earlier = {UP: Counter(), DOWN: Counter()}
        self.strangers = Counter()
        self.by_key = {(line.tags, line.pppoe, line.raw_mac): number for number, line in enumerate(lines)}
        self.own = {line.tags: line for line in lines if not line.pppoe}
        self.streams = [
            (number, version)
            for version in (4, 6)
            for number, line in enumerate(lines)
            if (line.ip4 if version == 4 else line.ip6)
        ]
        self.count = 0
        # Of lines that are down: nothing is sent for them.
        self.resting = set()
        self.prepare()
        # Sending a packet and counting it are one step, and so are looking at one and counting it.
        self.counting = threading.Lock()
        self.sending = threading.Event()
        self.done = threading.Event()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.send, self.receive)]

    def prepare(self):
        """Packets sent since the present count began."""
        self.uplink = {stream: self.uplink_frame(*stream) for stream in self.streams}
        self.downlink = [mark(DOWN, number, self.count, self.size) for number in range(len(self.lines))]

    def uplink_frame(self, number, version):
        line = self.lines[number]
        source = line.ip4 if version == 4 else line.ip6
        packet = frames.udp(source, self.core.addresses[version], PORT, PORT, mark(UP, number, self.count, self.size))
        return line.frame(self.gateway_mac, packet)

    def follow(self, lines):
        """These lines are up, in these sessions. The others send and are sent nothing until they are up again."""
        present = {line.name: line for line in lines}
        with self.counting:
            for number, old in enumerate(self.lines):
                line, streams = (
                    present.get(old.name),
                    [stream for stream in ((number, 4), (number, 6)) if stream in self.uplink],
                )
                if line is None or not all(line.ip4 if version == 4 else line.ip6 for _, version in streams):
                    self.resting.update(streams)
                    continue
                self.resting.difference_update(streams)
                if line != old:
                    self.replace(number, line, streams)

    def replace(self, number, line, streams):
        """The line of this number has another session. self.counting is held."""
        old, self.lines[number] = self.lines[number], line
        del self.by_key[old.tags, old.pppoe, old.raw_mac]
        self.by_key[line.tags, line.pppoe, line.raw_mac] = number
        if not line.pppoe:
            self.own[line.tags] = line
        self.core.redialed(line)
        for stream in streams:
            self.uplink[stream] = self.uplink_frame(*stream)

    def start(self):
        """Sends, from now on or again after a pause."""
        for thread in self.threads:
            if not thread.is_alive():
                thread.start()
        self.sending.set()

    def send(self):
        while not self.done.is_set():
            self.sending.wait()
            begun, count = time.monotonic(), 0
            while self.sending.is_set() and not self.done.is_set():
                due = int((time.monotonic() - begun) * self.rate)
                # After a pause (another process had the core) the rest is not made up for in one burst.
                if due - count > 64:
                    begun += (due - count - 64) / self.rate
                    due = count + 64
                for _ in range(due - count):
                    self.send_one(count)
                    count += 1
                time.sleep(0.002)

    def send_one(self, count):
        with self.counting:
            if self.sending.is_set() and (stream := self.streams[count % len(self.streams)]) not in self.resting:
                self.send_stream(stream)

    def send_stream(self, stream):
        number, version = stream
        try:
            self.wire.send(self.uplink[stream])
        except OSError:
            return
        self.sent[UP][stream] += 1
        if self.core.send(self.lines[number], version, self.downlink[number]):
            self.sent[DOWN][stream] += 1

    def receive(self):
        while not self.done.is_set():
            ready, _, _ = select.select([self.wire, *self.core.readable()], [], [], 0.1)
            for source in ready:
                for _ in range(256):
                    if source is self.wire:
                        raw = self.wire.read()
                        if raw is None:
                            break
                        self.from_access(raw)
                    else:
                        found = self.core.receive(source)
                        if found is None:
                            break
                        self.counted(UP, *found)

    def counted(self, way, found, version):
        with self.counting:
            if found is None:
                self.strangers[way] += 1
            elif found[1] == self.count:
                self.received[way][found[0], version] += 1

    def from_access(self, raw):
        frame = Frame.parse(raw)
        if frame.ethertype == frames.ARP:
            line = self.own.get(frame.tags)
            if line and frame.payload[6:8] == b"\0\1" and frame.payload[24:28] == frames.ip_bytes(line.ip4):
                self.wire.send(frames.arp_reply(frame, line.raw_mac))
            return
        session, packet = 0, frame.payload
        if frame.ethertype == frames.PPPOE_SESSION:
            session, packet = frames.un_pppoe(frame.payload)
        elif frame.ethertype == frames.IP6 and packet[6] == 58:
            line = self.own.get(frame.tags)
            answer = frames.advertisement(frame, line.raw_mac) if line else None
            if answer:
                self.wire.send(answer)
            return
        found = marked(udp_payload(packet), DOWN) if packet else None
        if found and self.by_key.get((frame.tags, session, frame.destination)) != found[0]:
            found = None
        self.counted(DOWN, found, packet[0] >> 4 if packet else 0)

    def pause(self, lines=None):
        """Stops sending and waits until everything (of these lines) has come, or nothing comes any more."""
        with self.counting:
            self.sending.clear()
        before, since = None, time.monotonic()
        while self.lost(UP, lines) > 0 or self.lost(DOWN, lines) > 0:
            now = self.total(self.received, UP) + self.total(self.received, DOWN)
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > 2:
                return
            time.sleep(0.02)

    def has_sent(self, packets):
        """Waits until at least so many packets were sent each way."""
        end = time.monotonic() + 30
        while min(self.total(self.sent, way) for way in (UP, DOWN)) < packets and time.monotonic() < end:
            time.sleep(0.01)
        return min(self.total(self.sent, way) for way in (UP, DOWN)) >= packets

    def forget(self):
        """Starts a new count: earlier packets that arrive later do not count."""
        with self.counting:
            self.count += 1
            self.prepare()
            for way, sent in self.sent.items():
                self.earlier[way] += sent
            for counters in (self.sent, self.received):
                for each in counters.values():
                    each.clear()
            self.strangers.clear()

    def octets(self, way, number):
        """Octets of all IP packets that were sent for a line, in all counts."""
        headers = {4: 28, 6: 48}
        count = self.sent[way] + self.earlier[way]
        return sum(count[number, version] * (headers[version] + self.size) for version in headers)

    def everybody_received(self):
        """Whether each stream has passed traffic in both directions."""
        return not self.silent()

    def silent(self):
        """The streams that have not passed in both directions."""
        return [stream for stream in self.streams if not all(self.received[way][stream] for way in (UP, DOWN))]

    def warm_up(self, seconds=60, patience=60, go_on=True):
        """Sends until every stream has passed in both directions, then counts anew; the streams that did not. It ends
        earlier when for `patience` seconds no further stream has passed. Then sends again, if it is to go on."""
        self.start()
        now = time.monotonic()
        end, hope, before = now + seconds, now + patience, len(self.streams)
        while (count := len(self.silent())) and now < min(end, hope):
            if count < before:
                before, hope = count, now + patience
            time.sleep(0.05)
            now = time.monotonic()
        silent = self.silent()
        self.pause()
        self.forget()
        if go_on:
            self.sending.set()
        return silent

    def lost(self, way, lines=None):
        wanted = [s for s in self.streams if lines is None or s[0] in lines]
        return sum(self.sent[way][s] - self.received[way][s] for s in wanted)

    def total(self, counters, way):
        return sum(counters[way].values())

    def close(self):
        self.done.set()
        self.sending.set()
        for thread in self.threads:
            if thread.is_alive():
                thread.join(5)
        self.core.close()
