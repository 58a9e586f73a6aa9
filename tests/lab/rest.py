# SPDX-License-Identifier: Apache-2.0
"""The agent's REST, with its access rights."""

import http.client
import json
import socket
import ssl

from .gateway import SLUICE
from .namespace import run


def token(directory, name, role):
    """A new token in NAME.token, and the line that lets its bearer in."""
    found = run(SLUICE, "token", name, "--role", role).stdout.splitlines()
    text, line = (each.split(":", 1)[1].strip() for each in found)
    (directory / f"{name}.token").write_text(text + "\n")
    return text, line


def tokens(directory, **roles):
    """Tokens by name, and the file that lets their bearers in: tokens(where, alice="operate")."""
    made = {name: token(directory, name, role) for name, role in roles.items()}
    path = directory / "tokens"
    path.write_text("".join(f"{line}\n" for _, line in made.values()))
    return {name: text for name, (text, _) in made.items()}, path


class Answer:
    """An answer: status, headers, and the body as text and JSON."""

    def __init__(self, status, headers, text):
        self.status, self.headers, self.text = status, headers, text

    @property
    def json(self):
        return json.loads(self.text)

    def __repr__(self):
        return f"{self.status} {self.text[:2000]}"


class Client:
    """Asks from inside a namespace."""

    def __init__(self, namespace, port, bearer=None, context=None):
        self.namespace, self.port, self.bearer, self.context = namespace, port, bearer, context

    def connect(self, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        stream = self.namespace.inside(socket.create_connection, ("127.0.0.1", self.port), timeout)
        connection.sock = self.context.wrap_socket(stream, server_hostname="127.0.0.1") if self.context else stream
        return connection

    def send(self, connection, method, path, body=None, **headers):
        if self.bearer:
            headers.setdefault("Authorization", f"Bearer {self.bearer}")
        if body is not None:
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            headers.setdefault("Content-Type", kind)
            body = body if isinstance(body, str) else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        connection.request(method, path, body, named)
        return connection.getresponse()

    def ask(self, method, path, body=None, **headers):
        """One request: ask("PUT", "/v1/vrfs/red", {...}, If_Match='"7"')."""
        connection = self.connect()
        try:
            reply = self.send(connection, method, path, body, **headers)
            return Answer(reply.status, reply.headers, reply.read().decode())
        finally:
            connection.close()

    def events(self, path="/v1/events", timeout=30, **headers):
        """Events as (id, object), as they come."""
        connection = self.connect(timeout)
        try:
            reply = self.send(connection, "GET", path, **headers)
            assert reply.status == 200, reply.read()
            last = None
            for line in reply:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    last = value
                elif name == "data":
                    yield last, json.loads(value)
        finally:
            connection.close()


class Rest:
    """Its configuration, and a client of an operator."""

    kind = "rest"
    port = 8080

    def __init__(self, lab, namespace):
        self.directory = lab.directory / self.kind
        self.directory.mkdir()
        self.tokens, self.file = tokens(self.directory, operator="operate")
        self.client = Client(namespace, self.port, self.tokens["operator"])

    def northbound(self, **more):
        """The agent's configuration."""
        return {
            "type": self.kind, "name": self.kind, "listen": f"127.0.0.1:{self.port}", "tokens": str(self.file),
        } | more  # fmt: skip


def trusting(directory, client=None):
    """A TLS context for a client that trusts ca.crt, and shows NAME.crt."""
    context = ssl.create_default_context(cafile=directory / "ca.crt")
    if client:
        context.load_cert_chain(directory / f"{client}.crt", directory / f"{client}.key")
    return context
