# SPDX-License-Identifier: Apache-2.0
"""The data plane's own API (api/dataplane.proto), spoken directly: frames of a 32-bit length and a protobuf message."""

import importlib
import itertools
import socket
import ssl
import struct
import subprocess
import sys

from lab.laboratory import TREE

GENERATED = TREE / "build/python"


def generate():
    protos = sorted((TREE / "api").glob("*.proto"))
    made = GENERATED / "dataplane_pb2.py"
    if not made.exists() or made.stat().st_mtime < max(proto.stat().st_mtime for proto in protos):
        GENERATED.mkdir(parents=True, exist_ok=True)
        subprocess.run(["protoc", f"-I{TREE / 'api'}", f"--python_out={GENERATED}", *map(str, protos)], check=True)


generate()
sys.path.insert(0, str(GENERATED))

import acl_pb2  # noqa: E402, F401
import dataplane_pb2 as api  # noqa: E402
import google.protobuf.json_format as json_format  # noqa: E402

# Every kind's message is known once its module is there.
for proto in (TREE / "api").glob("*.proto"):
    importlib.import_module(f"{proto.stem}_pb2")

POOL = api.DESCRIPTOR.pool


def packed(thing):
    """An object of the lab as the data plane takes it."""
    from google.protobuf import message_factory

    kind = message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"sluice.v1.{thing['kind']}"))
    spec = json_format.ParseDict(thing["spec"], kind()).SerializeToString(deterministic=True)
    return api.Object(kind=thing["kind"], name=thing["metadata"]["name"], spec=spec)


class Connection:
    def __init__(self, path=None, address=None, context=None, hello=True):
        if path:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(str(path))
        else:
            self.socket = socket.create_connection(address, timeout=5)
            if context:
                self.socket = context.wrap_socket(self.socket)
        self.socket.settimeout(60)
        self.numbers = itertools.count(1)
        if hello:
            self.greeting = self.ask(hello=api.Hello(version=1)).greeting

    def send_raw(self, data):
        self.socket.sendall(data)

    def send(self, **operation):
        request = api.Request(id=next(self.numbers), **operation)
        data = request.SerializeToString()
        self.send_raw(struct.pack("!I", len(data)) + data)
        return request.id

    def read_exactly(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError("the data plane closed the connection")
            data += piece
        return data

    def receive(self):
        (length,) = struct.unpack("!I", self.read_exactly(4))
        return api.Reply.FromString(self.read_exactly(length))

    def ask(self, **operation):
        """One request and its one reply."""
        return self.answer(self.send(**operation))

    def answer(self, number):
        """The last reply to the oldest request; others say that the data plane is still at it, or at one behind it."""
        while True:
            reply = self.receive()
            if reply.last:
                assert reply.id == number
                return reply

    def put(self, *things):
        return self.ask(put=api.Put(objects=[packed(each) for each in things])).results.results

    def ended(self):
        """Whether the other side closes."""
        self.socket.settimeout(5)
        try:
            while self.socket.recv(65536):
                pass
        except (ConnectionError, ssl.SSLError):
            return True
        except TimeoutError:
            return False
        return True

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
