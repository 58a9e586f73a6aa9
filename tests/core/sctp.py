# SPDX-License-Identifier: Apache-2.0
"""SCTP for the test core: libusrsctp by ctypes. One listening socket, and a thread for each association."""

import ctypes
import socket
import struct
import threading

LIBRARY = "libusrsctp.so.2"
IPPROTO_SCTP = 132
MSG_NOTIFICATION = 0x2000
SCTP_RECVV_RCVINFO, SCTP_SENDV_SNDINFO, SCTP_RECVRCVINFO = 1, 1, 0x1F
SCTP_NODELAY, SCTP_INITMSG = 4, 3
SCTP_BINDX_ADD_ADDR = 0x8001
SCTP_ABORT = 0x0200
SCTP_RTOINFO, SCTP_ASSOCINFO, SCTP_PEER_ADDR_PARAMS, SCTP_EVENT = 1, 2, 10, 0x1E
SCTP_PEER_ADDR_CHANGE, SCTP_ADDR_UNREACHABLE, SPP_HB_ENABLE = 2, 2, 1


class Library:
    """The library, once in a process."""

    def __init__(self):
        self.c = ctypes.CDLL(LIBRARY, use_errno=True)
        self.c.usrsctp_init.argtypes = [ctypes.c_uint16, ctypes.c_void_p, ctypes.c_void_p]
        self.c.usrsctp_socket.restype = ctypes.c_void_p
        self.c.usrsctp_socket.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 2]
        self.c.usrsctp_socket.argtypes += [ctypes.c_uint32, ctypes.c_void_p]
        self.c.usrsctp_accept.restype = ctypes.c_void_p
        self.c.usrsctp_accept.argtypes = [ctypes.c_void_p] * 3
        self.c.usrsctp_bindx.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
        self.c.usrsctp_listen.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self.c.usrsctp_connect.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]
        self.c.usrsctp_shutdown.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self.c.usrsctp_close.argtypes = [ctypes.c_void_p]
        self.c.usrsctp_setsockopt.argtypes = [ctypes.c_void_p, *[ctypes.c_int] * 2, ctypes.c_void_p, ctypes.c_uint32]
        self.c.usrsctp_recvv.restype = ctypes.c_ssize_t
        self.c.usrsctp_recvv.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_void_p] * 6]
        self.c.usrsctp_sendv.restype = ctypes.c_ssize_t
        self.c.usrsctp_sendv.argtypes = [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_void_p,
            ctypes.c_int,
        ]
        self.c.usrsctp_sendv.argtypes += [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint, ctypes.c_int]
        self.c.usrsctp_init(0, None, None)
        # Several cores share a host: none answers packets of another.
        self.c.usrsctp_sysctl_set_sctp_blackhole(ctypes.c_uint32(2))
        self.c.usrsctp_sysctl_set_sctp_no_csum_on_loopback(ctypes.c_uint32(0))


class Association:
    def __init__(self, library, handle):
        self.library, self.handle = library, handle
        # Called with an address of the peer, and whether it is reachable.
        self.on_path = None

    def notified(self, notification):
        kind, _, length = struct.unpack_from("HHI", notification)
        if kind == SCTP_PEER_ADDR_CHANGE and self.on_path and length >= 140:
            family = struct.unpack_from("H", notification, 8)[0]
            raw = notification[12:16] if family == socket.AF_INET else notification[16:32]
            state = struct.unpack_from("I", notification, 136)[0]
            self.on_path(socket.inet_ntop(family, raw), state != SCTP_ADDR_UNREACHABLE)

    def watch_paths(self, heartbeat):
        """Heartbeats so many milliseconds apart, time-outs that are as short, and events of paths. The association
        outlives a peer that a busy machine stops for a minute: time-outs of a path count for the association, too.
        """
        self.option(SCTP_RTOINFO, struct.pack("IIII", 0, 500, 1000, 200))
        self.option(SCTP_ASSOCINFO, struct.pack("IIIIHH", 0, 0, 0, 0, 200, 0))
        self.option(SCTP_PEER_ADDR_PARAMS, struct.pack("128xIIIIIHBx", 0, heartbeat, 0, SPP_HB_ENABLE, 0, 2, 0))
        self.option(SCTP_EVENT, struct.pack("IHBx", 2, SCTP_PEER_ADDR_CHANGE, 1))

    def option(self, name, value):
        if self.library.c.usrsctp_setsockopt(self.handle, IPPROTO_SCTP, name, value, len(value)) != 0:
            raise OSError(ctypes.get_errno(), f"option {name}")

    def receive(self):
        """(stream, payload protocol identifier, message); None: the association ended."""
        buffer, info = ctypes.create_string_buffer(1 << 17), ctypes.create_string_buffer(64)
        whole = b""
        while True:
            length, kind, flags = ctypes.c_uint32(64), ctypes.c_uint(0), ctypes.c_int(0)
            address, address_length = ctypes.create_string_buffer(128), ctypes.c_uint32(128)
            count = self.library.c.usrsctp_recvv(
                self.handle,
                buffer,
                len(buffer),
                address,
                ctypes.byref(address_length),
                info,
                ctypes.byref(length),
                ctypes.byref(kind),
                ctypes.byref(flags),
            )
            if count <= 0:
                self.library.c.usrsctp_close(self.handle)
                return None
            if flags.value & MSG_NOTIFICATION:
                self.notified(buffer.raw[:count])
                continue
            whole += buffer.raw[:count]
            # MSG_EOR
            if flags.value & 0x80:
                stream, _, _, _, protocol = struct.unpack_from("HHHHI", info.raw)
                return stream, socket.ntohl(protocol), whole

    def send(self, stream, protocol, message):
        info = struct.pack("HHIII", stream, 0, socket.htonl(protocol), 0, 0)
        sent = self.library.c.usrsctp_sendv(
            self.handle, message, len(message), None, 0, info, len(info), SCTP_SENDV_SNDINFO, 0
        )
        if sent < 0:
            raise OSError(ctypes.get_errno(), "sendv")

    def abort(self):
        """Ends the association with an ABORT. The thread that receives finds its end."""
        info = struct.pack("HHIII", 0, SCTP_ABORT, 0, 0, 0)
        self.library.c.usrsctp_sendv(self.handle, b"x", 1, None, 0, info, len(info), SCTP_SENDV_SNDINFO, 0)

    def shutdown(self):
        """Ends the association with SHUTDOWN."""
        self.library.c.usrsctp_shutdown(self.handle, socket.SHUT_WR)


def pack(addresses, port):
    packed = b""
    for address in addresses:
        if ":" in address:
            raw = socket.inet_pton(socket.AF_INET6, address)
            packed += struct.pack("=HHI16sI", socket.AF_INET6, socket.htons(port), 0, raw, 0)
        else:
            raw = socket.inet_aton(address)
            packed += struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), raw)
    return packed


class Listener:
    """Calls `serve(association)` in a thread for each association. `peer`: does not listen, but opens an association
    from its port to that of the address."""

    def __init__(self, addresses, port, serve, heartbeat=0, peer=None):
        self.library, self.serve = Library(), serve
        family = socket.AF_INET6 if any(":" in address for address in addresses) else socket.AF_INET
        self.handle = self.library.c.usrsctp_socket(family, socket.SOCK_STREAM, IPPROTO_SCTP, None, None, 0, None)
        self.socket = Association(self.library, self.handle)
        self.socket.option(SCTP_INITMSG, struct.pack("HHHH", 64, 64, 4, 0))
        if heartbeat:
            self.socket.watch_paths(heartbeat)
        packed = pack(addresses, port)
        if self.library.c.usrsctp_bindx(self.handle, packed, len(addresses), SCTP_BINDX_ADD_ADDR) != 0:
            raise OSError(ctypes.get_errno(), f"bind {addresses}")
        if peer:
            packed = pack([peer], port)
            if self.library.c.usrsctp_connect(self.handle, packed, len(packed)) != 0:
                raise OSError(ctypes.get_errno(), f"connect {peer}")
            self.begin(self.handle)
            return
        if self.library.c.usrsctp_listen(self.handle, 16) != 0:
            raise OSError(ctypes.get_errno(), "listen")
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            handle = self.library.c.usrsctp_accept(self.handle, None, None)
            if not handle:
                return
            self.begin(handle)

    def begin(self, handle):
        association = Association(self.library, handle)
        association.option(SCTP_NODELAY, struct.pack("i", 1))
        association.option(SCTP_RECVRCVINFO, struct.pack("i", 1))
        threading.Thread(target=self.serve, args=(association,), daemon=True).start()
