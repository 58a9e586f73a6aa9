# SPDX-License-Identifier: Apache-2.0
"""One end of a link, for raw frames of a test. The kernel removes the outer VLAN tag from a received frame and returns
it beside the frame (packet(7), PACKET_AUXDATA); this module puts it back."""

import contextlib
import errno
import select
import socket
import struct
import time

ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING = 263, 8, 23
AUXDATA = struct.Struct("=IIIHHHH")
VLAN_VALID, TPID_VALID = 0x10, 0x40
SO_RCVBUFFORCE, SO_SNDBUFFORCE = 33, 32


class Wire:
    def __init__(self, namespace, interface, buffer=16 << 20):
        self.socket = namespace.inside(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, buffer)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, buffer)
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        namespace.inside(self.socket.bind, (interface, ETH_P_ALL))
        self.mac = namespace.mac(interface)
        self.socket.setblocking(False)
        self.drain()

    def fileno(self):
        return self.socket.fileno()

    def send(self, frame):
        # A full queue is a moment's matter: the device on the other side takes frames out of it.
        end = time.monotonic() + 1
        while True:
            try:
                return self.socket.send(bytes(frame))
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.ENOBUFS) or time.monotonic() > end:
                    raise
                time.sleep(0.001)

    def read(self):
        """The next frame with all its tags, or None."""
        try:
            frame, notes, _, _ = self.socket.recvmsg(65536, 64)
        except BlockingIOError:
            return None
        for level, kind, note in notes:
            if level == SOL_PACKET and kind == PACKET_AUXDATA:
                status, _, _, _, _, tci, tpid = AUXDATA.unpack(note[: AUXDATA.size])
                if status & VLAN_VALID:
                    tpid = tpid if status & TPID_VALID else 0x8100
                    frame = frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]
        return frame

    def frames(self, seconds, quiet=None):
        """Frames as they come, until the time is over or, if given, until none came for `quiet` seconds."""
        end = time.monotonic() + seconds
        pause = end if quiet is None else time.monotonic() + quiet
        while True:
            frame = self.read()
            if frame is not None:
                yield frame
                pause = end if quiet is None else time.monotonic() + quiet
                if time.monotonic() < end:
                    continue
                return
            left = min(end, pause) - time.monotonic()
            if left <= 0:
                return
            select.select([self.socket], [], [], left)

    def burst(self):
        """Frames from now on, until none came for a second."""
        return self.frames(30, quiet=1)

    def expect(self, wanted, seconds=20):
        """The first true result of `wanted` for a frame."""
        seen = []
        for frame in self.frames(seconds):
            found = wanted(frame)
            if found:
                return found
            seen.append(frame)
        listing = "\n".join(frame[:96].hex() for frame in seen[:10])
        raise AssertionError(f"not seen in {seconds} s; {len(seen)} other frames:\n{listing}")

    def expect_none(self, unwanted, seconds=0.4):
        for frame in self.frames(seconds):
            assert not unwanted(frame), f"came but should not have: {frame[:96].hex()}"

    def drain(self):
        while self.read() is not None:
            pass

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.close()
