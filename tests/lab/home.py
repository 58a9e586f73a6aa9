# SPDX-License-Identifier: Apache-2.0
"""Subscribers' homes. The kernel here may know neither QinQ nor PPPoE, so a home gateway in user space stands between a
TAP or TUN interface, behind which the kernel's own ping, iperf3 and curl work, and the access line."""

import contextlib
import os
import select
import threading
from dataclasses import dataclass, field

from . import frames
from .frames import Frame
from .wire import Wire


@dataclass
class Line:
    """How a subscriber's line looks from the other side of a session's access."""

    name: str
    mac: str
    ip4: str = ""
    ip6: str = ""
    vlans: tuple = ()
    tpids: tuple = (0x8100, 0x8100)
    pppoe: int = 0
    # TEIDs of the session's tunnel, as the UPF sees them: it receives `teid_up` and sends `teid_down`.
    teid_up: int = 0
    teid_down: int = 0
    tags: tuple = field(init=False)

    def __post_init__(self):
        self.tags = tuple(zip(self.tpids, self.vlans, strict=False))
        self.raw_mac = frames.mac_bytes(self.mac)

    @property
    def key(self):
        """The key of this line's frames."""
        return tuple(self.vlans), self.pppoe

    @property
    def access_key(self):
        return (*self.key, self.raw_mac)

    def frame(self, gateway_mac, packet):
        """An IP packet on its way to the gateway."""
        if self.pppoe:
            ethertype, packet = frames.PPPOE_SESSION, frames.pppoe(self.pppoe, packet)
        else:
            ethertype = frames.IP4 if packet[0] >> 4 == 4 else frames.IP6
        return Frame(gateway_mac, self.raw_mac, self.tags, ethertype, packet).pack()


class Home:
    """One access line with the home gateways of any number of subscribers on it, each in a namespace of its own."""

    def __init__(self, lab, namespace, interface, gateway_mac):
        self.lab = lab
        self.wire = Wire(namespace, interface)
        self.gateway_mac = frames.mac_bytes(gateway_mac)
        self.by_fd = {}
        self.subscribers = []
        self.wake, self.waker = os.pipe()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()
        lab.on_close(self.close)

    def subscriber(self, line, gateway_ip4="", gateway_ip6="", mtu=0):
        """A namespace where the kernel is this subscriber: its addresses, and its default routes through the line."""
        namespace = self.lab.namespace(line.name)
        mtu = mtu or (1492 if line.pppoe else 1500)
        fd = namespace.tunnel_device("wan", not line.pppoe, mtu, line.mac if not line.pppoe else None)
        self.by_fd[fd] = line
        self.subscribers.append((line, fd))
        os.write(self.waker, b"!")
        for version, address, gateway in (("-4", line.ip4, gateway_ip4), ("-6", line.ip6, gateway_ip6)):
            if not address:
                continue
            nodad = ("nodad",) if version == "-6" else ()
            namespace.ip(version, "address", "add", address, "dev", "wan", *nodad)
            if line.pppoe:
                # A router advertisement may have made one.
                namespace.ip(version, "route", "replace", "default", "dev", "wan")
            elif gateway:
                namespace.ip(version, "route", "add", gateway, "dev", "wan")
                namespace.ip(version, "route", "add", "default", "via", gateway, "dev", "wan")
        return namespace

    def work(self):
        while True:
            try:
                ready, _, _ = select.select([self.wake, self.wire, *self.by_fd], [], [])
                if self.wake in ready and os.read(self.wake, 64) != b"!":
                    return
                for source in ready:
                    if source is self.wire:
                        self.from_line()
                    elif source != self.wake:
                        self.from_home(source)
            except (OSError, ValueError):
                return

    def from_line(self):
        for _ in range(64):
            raw = self.wire.read()
            if raw is None:
                return
            frame = Frame.parse(raw)
            for line, fd in self.subscribers:
                if frame.tags != line.tags:
                    continue
                if line.pppoe:
                    if frame.ethertype != frames.PPPOE_SESSION or frame.destination != line.raw_mac:
                        continue
                    session, packet = frames.un_pppoe(frame.payload)
                    if session != line.pppoe or packet is None:
                        continue
                else:
                    if frame.destination != line.raw_mac and not frame.destination[0] & 1:
                        continue
                    packet = frame._replace(tags=()).pack()
                with contextlib.suppress(BlockingIOError):
                    os.write(fd, packet)

    def from_home(self, fd):
        line = self.by_fd[fd]
        for _ in range(64):
            try:
                packet = os.read(fd, 65536)
            except BlockingIOError:
                return
            if line.pppoe:
                self.wire.send(line.frame(self.gateway_mac, packet))
            else:
                self.wire.send(Frame.parse(packet)._replace(tags=line.tags).pack())

    def close(self):
        os.write(self.waker, b"x")
        self.thread.join(5)
        for fd in [*self.by_fd, self.wake, self.waker]:
            os.close(fd)
        self.wire.close()
