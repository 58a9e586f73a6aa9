# SPDX-License-Identifier: Apache-2.0
"""Redis, a server of its own; and a driver that configures a gateway through it."""

import json
import shutil
import socket

from .certificate import server_certificate
from .kafka import Letter
from .laboratory import Process, wait_until

PORT, TLS_PORT = 6379, 6380
USER, PASSWORD = "sluice", "a-secret-of-Redis"


class RedisServer:
    """Redis' process, on a port of its namespace's loopback; its data survives the process."""

    def __init__(self, lab, namespace, *settings):
        self.lab, self.namespace, self.settings = lab, namespace, settings
        self.directory = lab.directory / "redis"
        self.directory.mkdir()
        self.process = self.stream = None
        server_certificate(self.directory)
        self.password_file = self.directory / "password"
        self.password_file.write_text(PASSWORD + "\n")
        lab.on_close(self.stop)

    def start(self):
        if self.process and self.process.alive():
            return
        self.hang_up()
        command = [shutil.which("redis-server"), "--port", PORT, "--bind", "127.0.0.1", "--dir", self.directory]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", *self.settings]
        command += ["--tls-port", TLS_PORT, "--tls-cert-file", "server.crt", "--tls-key-file", "server.key"]
        command += ["--tls-ca-cert-file", "ca.crt", "--tls-auth-clients", "no"]
        command += ["--user", USER, "on", f">{PASSWORD}", "~*", "&*", "+@all"]
        self.process = Process(self.namespace, command, self.lab.directory / "redis.log")
        wait_until(self.answers, 60, "Redis answers")

    def answers(self):
        if not self.process.alive():
            raise RuntimeError(f"Redis ended:\n{self.process.log.read_text()[-3000:]}")
        try:
            return self.ask("PING") == "PONG"
        except (OSError, RuntimeError):
            return False

    def ask(self, *command):
        return self.ask_all([command])[0]

    def ask_all(self, commands):
        """Commands in one go, and their answers; the first that is an error is raised."""
        try:
            if not self.stream:
                connection = self.namespace.inside(socket.create_connection, ("127.0.0.1", PORT), 30)
                self.stream = connection.makefile("rwb")
                connection.close()
            for command in commands:
                parts = [part if isinstance(part, bytes) else str(part).encode() for part in command]
                self.stream.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
            self.stream.flush()
            answers = [self.answer() for _ in commands]
        except OSError:
            self.hang_up()
            raise
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def answer(self):
        """One answer in the Redis serialization protocol (RESP2)."""
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        match kind:
            case b"+":
                return rest.decode()
            case b"-":
                return RuntimeError(f"Redis: {rest.decode()}")
            case b":":
                return int(rest)
            case b"$":
                return None if rest == b"-1" else self.stream.read(int(rest) + 2)[:-2].decode(errors="replace")
            case b"*":
                return None if rest == b"-1" else [self.answer() for _ in range(int(rest))]
        raise ConnectionError(f"Redis said {line!r}")

    def hang_up(self):
        if self.stream:
            self.stream.close()
        self.stream = None

    def kill(self):
        self.process.kill()
        self.hang_up()

    def stop(self):
        if self.process:
            self.process.stop()
        self.hang_up()

    def restart(self):
        self.kill()
        self.start()


def access(server, secure):
    """Where the server is, in the agent's configuration."""
    if not secure:
        return {"address": f"127.0.0.1:{PORT}"}
    return {
        "address": f"127.0.0.1:{TLS_PORT}", "tls": {"ca": str(server.directory / "ca.crt")},
        "username": USER, "passwordFile": str(server.password_file),
    }  # fmt: skip


class Redis:
    """Writes documents to keys below this name, and reads their status."""

    kind = "redis"

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.prefix, self.status_prefix = f"{name}:intent:", f"{name}:status:"
        self.start, self.stop, self.kill, self.restart = server.start, server.stop, server.kill, server.restart

    def northbound(self, _directory, secure=False, **more):
        """The agent's configuration."""
        return {
            "type": self.kind, "name": self.kind, "prefix": self.prefix, "statusPrefix": self.status_prefix,
        } | access(self.server, secure) | more  # fmt: skip

    def put(self, key, text):
        self.server.ask("SET", self.prefix + key, text)

    def put_all(self, texts):
        """Texts by key."""
        self.server.ask_all([("SET", self.prefix + key, text) for key, text in texts.items()])

    def delete(self, key):
        self.server.ask("DEL", self.prefix + key)

    def delete_all(self):
        self.server.ask_all([("DEL", key) for key in self.server.ask("KEYS", self.prefix + "*")] or [("PING",)])

    def flush(self):
        """Removes everything in the store without notifications; the connections end."""
        self.server.ask("FLUSHALL")
        self.restart()

    def mark(self):
        self.server.ask("SET", self.status_prefix + ".store", "yes")

    def status(self, key):
        """Status of a document; None: there is none."""
        found = self.server.ask("HGET", self.status_prefix + key, "status")
        return json.loads(found) if found else None

    def statuses(self):
        """How many there are."""
        return len(self.server.ask("KEYS", self.status_prefix + "[^.]*"))

    def close(self):
        pass


class RedisStream:
    """Writes documents to a stream of this name, and reads status messages."""

    kind = "redis-stream"
    secure = ("password",)

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.stream, self.dead, self.told = f"{name}.intent", f"{name}.dead", f"{name}.events"
        self.start, self.stop, self.kill, self.restart = server.start, server.stop, server.kill, server.restart

    def northbound(self, directory, secure=False, **more):
        """The agent's configuration."""
        return {
            "type": self.kind, "name": self.kind, "stream": self.stream, "deadLetter": self.dead,
            "events": self.told, "memory": str(directory / f"{self.name}-redis.db"),
        } | access(self.server, secure) | more  # fmt: skip

    def send(self, messages):
        """Messages are (key, text or None, headers)."""
        commands = []
        for key, text, headers in messages:
            fields = ["key", key, *([] if text is None else ["body", text])]
            for name, value in headers.items():
                fields += [name, value]
            commands.append(("XADD", self.stream, "*", *fields))
        self.server.ask_all(commands)

    def put(self, key, text, **headers):
        self.send([(key, text, headers)])

    def put_all(self, texts):
        """Texts by key, each a message of its own."""
        self.send([(key, text, {}) for key, text in texts.items()])

    def delete(self, key, **headers):
        self.send([(key, None, headers)])

    def delete_all(self, keys):
        self.send([(key, None, {}) for key in keys])

    def read(self, stream):
        """Fields of all entries."""
        found = self.server.ask("XRANGE", stream, "-", "+")
        return [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in found]

    def dead_letters(self):
        return [Letter(each.pop("body", ""), each) for each in self.read(self.dead)]

    def events(self):
        """All status messages, in order by object."""
        return [json.loads(each["body"]) for each in self.read(self.told)]

    def close(self):
        pass
