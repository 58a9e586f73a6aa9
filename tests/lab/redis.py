"""Redis, a server of its own; and a driver that says through it what is wanted."""

import json
import shutil
import socket

from .laboratory import Process, wait_until

PORT = 6379


class RedisServer:
    """Redis' process, on a port of its namespace's loopback; what it keeps outlives it."""

    def __init__(self, lab, namespace, *settings):
        self.lab, self.namespace, self.settings = lab, namespace, settings
        self.directory = lab.directory / "redis"
        self.directory.mkdir()
        self.process = self.stream = self.password = None
        lab.on_close(self.stop)

    def start(self):
        if self.process and self.process.alive():
            return
        self.hang_up()
        command = [shutil.which("redis-server"), "--port", PORT, "--bind", "127.0.0.1", "--dir", self.directory]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", *self.settings]
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
                if self.password:
                    self.ask("AUTH", self.password)
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
                return None if rest == b"-1" else self.stream.read(int(rest) + 2)[:-2].decode()
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


class Redis:
    """Says what is wanted through keys below this name, and reads what became of it."""

    kind = "redis"

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.prefix, self.status_prefix = f"{name}:intent:", f"{name}:status:"
        self.start, self.stop, self.kill, self.restart = server.start, server.stop, server.kill, server.restart

    def northbound(self, _directory, **more):
        """The agent's configuration."""
        return {
            "type": self.kind, "name": self.kind, "address": f"127.0.0.1:{PORT}",
            "prefix": self.prefix, "statusPrefix": self.status_prefix,
        } | more  # fmt: skip

    def put(self, key, text):
        self.server.ask("SET", self.prefix + key, text)

    def put_all(self, texts):
        """Texts by key."""
        self.server.ask_all([("SET", self.prefix + key, text) for key, text in texts.items()])

    def delete(self, key):
        self.server.ask("DEL", self.prefix + key)

    def delete_all(self):
        self.server.ask_all([("DEL", key) for key in self.server.ask("KEYS", self.prefix + "*")] or [("PING",)])

    def status(self, key):
        """What became of a document; None: there is no status."""
        found = self.server.ask("HGET", self.status_prefix + key, "status")
        return json.loads(found) if found else None

    def statuses(self):
        """How many there are."""
        return len(self.server.ask("KEYS", self.status_prefix + "*"))

    def close(self):
        pass
