# SPDX-License-Identifier: Apache-2.0
"""The data plane's own API (api/dataplane.proto), spoken directly: frames of a 32-bit length and a protobuf message."""

import importlib
import itertools
import socket
import ssl
import struct
import subprocess
import sys
import types

from lab.laboratory import TREE

GENERATED = TREE / "build/python"
VERSION = 2


def generate():
    protos = sorted((TREE / "api").glob("*.proto"))
    made = GENERATED / "dataplane_pb2.py"
    if not made.exists() or made.stat().st_mtime < max(proto.stat().st_mtime for proto in protos):
        GENERATED.mkdir(parents=True, exist_ok=True)
        subprocess.run(["protoc", f"-I{TREE / 'api'}", f"--python_out={GENERATED}", *map(str, protos)], check=True)


generate()
sys.path.insert(0, str(GENERATED))

import google.protobuf.json_format as json_format  # noqa: E402

# The messages of all files.
api = types.SimpleNamespace()
for proto in (TREE / "api").glob("*.proto"):
    vars(api).update(vars(importlib.import_module(f"{proto.stem}_pb2")))

POOL = api.DESCRIPTOR.pool


def packed(thing):
    """An object of the lab as the data plane takes it."""
    spec = json_format.ParseDict(thing["spec"], getattr(api, thing["kind"])()).SerializeToString(deterministic=True)
    return api.Object(kind=thing["kind"], name=thing["metadata"]["name"], spec=spec)


def question(query):
    """A query of operational state as the data plane takes it."""
    return api.StateQuery(type=query.DESCRIPTOR.name, query=query.SerializeToString())


def notes(message):
    """What the option `state` of a message says."""
    return message.DESCRIPTOR.GetOptions().Extensions[api.state]


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
            self.greeting = self.ask(hello=api.Hello(version=VERSION)).greeting

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

    def read(self, query):
        """The answer of a query of operational state."""
        reply = self.ask(state=question(query))
        assert reply.result.code == 0, reply.result.message
        return getattr(api, notes(query).reply).FromString(reply.state)

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
