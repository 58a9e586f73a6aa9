# SPDX-License-Identifier: Apache-2.0
"""etcd, with one member; and a driver that configures a gateway through it."""

import base64
import http.client
import json
import shutil
import socket
import threading

from .certificate import server_certificate
from .laboratory import Process, wait_until

PORT, TLS_PORT = 2379, 2378


def encoded(text):
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


class Connection(http.client.HTTPConnection):
    """Whose socket is in a namespace."""

    def __init__(self, namespace):
        super().__init__("127.0.0.1", PORT, timeout=30)
        self.namespace = namespace

    def connect(self):
        self.sock = self.namespace.inside(socket.create_connection, ("127.0.0.1", PORT), 30)


class EtcdServer:
    """etcd's process, on ports of its namespace's loopback; its data survives the process."""

    def __init__(self, lab, namespace):
        self.lab, self.namespace = lab, namespace
        self.directory = lab.directory / "etcd"
        self.process = self.connection = self.token = None
        self.certificates = lab.directory / "etcd-tls"
        self.certificates.mkdir()
        server_certificate(self.certificates)
        self.turn = threading.Lock()
        lab.on_close(self.stop)

    def start(self):
        if self.process and self.process.alive():
            return
        client, peer = f"http://127.0.0.1:{PORT}", "http://127.0.0.1:2380"
        both = f"{client},https://127.0.0.1:{TLS_PORT}"
        command = [
            shutil.which("etcd"), "--name", "one", "--data-dir", self.directory, "--log-level", "warn",
            "--listen-client-urls", both, "--advertise-client-urls", client,
            "--cert-file", self.certificates / "server.crt", "--key-file", self.certificates / "server.key",
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}",
        ]  # fmt: skip
        self.process = Process(self.namespace, command, self.lab.directory / "etcd.log")
        wait_until(self.answers, 60, "etcd answers")

    def answers(self):
        if not self.process.alive():
            raise RuntimeError(f"etcd ended:\n{self.process.log.read_text()[-3000:]}")
        try:
            self.ask("kv/range", key=encoded("none"))
        except (OSError, http.client.HTTPException, RuntimeError):
            return False
        return True

    def ask(self, what, **body):
        """A request to the API v3 as JSON; threads take turns."""
        with self.turn:
            self.connection = self.connection or Connection(self.namespace)
            try:
                headers = {"Authorization": self.token} if self.token else {}
                self.connection.request("POST", f"/v3/{what}", json.dumps(body), headers)
                answer = self.connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException):
                self.connection.close()
                self.connection = None
                raise
        if answer.status != 200:
            raise RuntimeError(f"etcd: {what}: {answer.status} {text[:500]}")
        return json.loads(text)

    def compact(self):
        """Forgets all history."""
        revision = self.ask("kv/range", key=encoded("none"))["header"]["revision"]
        self.ask("kv/compaction", revision=revision, physical=True)

    def kill(self):
        self.process.kill()
        self.hang_up()

    def stop(self):
        if self.process:
            self.process.stop()
        self.hang_up()

    def hang_up(self):
        with self.turn:
            if self.connection:
                self.connection.close()
            self.connection = None

    def restart(self):
        self.kill()
        self.start()


class Etcd:
    """Writes documents to keys below this name, and reads their status."""

    kind = "etcd"

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.prefix, self.status_prefix = f"/{name}/intent/", f"/{name}/status/"
        self.start, self.stop, self.kill, self.restart = server.start, server.stop, server.kill, server.restart

    def northbound(self, _directory, secure=False, **more):
        """The agent's configuration."""
        way = {
            "type": self.kind, "name": self.kind, "endpoints": [f"http://127.0.0.1:{PORT}"],
            "prefix": self.prefix, "statusPrefix": self.status_prefix,
        }  # fmt: skip
        if secure:
            way["endpoints"] = [f"https://127.0.0.1:{TLS_PORT}"]
            way["tls"] = {"ca": str(self.server.certificates / "ca.crt")}
        return way | more

    def put(self, key, text):
        self.server.ask("kv/put", key=encoded(self.prefix + key), value=encoded(text))

    def put_all(self, texts):
        """Texts by key."""
        texts = list(texts.items())
        for start in range(0, len(texts), 100):
            puts = [
                {"requestPut": {"key": encoded(self.prefix + key), "value": encoded(text)}}
                for key, text in texts[start : start + 100]
            ]
            self.server.ask("kv/txn", success=puts)

    def delete(self, key):
        self.server.ask("kv/deleterange", key=encoded(self.prefix + key))

    def delete_all(self):
        self.server.ask("kv/deleterange", key=encoded(self.prefix), range_end=encoded(self.prefix[:-1] + "0"))

    def flush(self):
        """Everything goes that is in the store."""
        self.server.ask("kv/deleterange", key=encoded(b"\0"), range_end=encoded(b"\0"))

    def mark(self):
        self.server.ask("kv/put", key=encoded(self.status_prefix + ".store"), value=encoded("yes"))

    def status(self, key):
        """Status of a document; None: there is none."""
        found = self.server.ask("kv/range", key=encoded(self.status_prefix + key)).get("kvs")
        return json.loads(base64.b64decode(found[0]["value"])) if found else None

    def statuses(self):
        """How many there are."""
        # Keys of other uses, which begin with a dot, come before.
        begin, end = self.status_prefix + "/", self.status_prefix[:-1] + "0"
        found = self.server.ask("kv/range", key=encoded(begin), range_end=encoded(end), count_only=True)
        return int(found.get("count", 0))

    def close(self):
        pass
