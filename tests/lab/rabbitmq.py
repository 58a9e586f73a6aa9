# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ, an instance of its own; and a driver that configures a gateway through it."""

import base64
import hashlib
import json
import os
import signal

from .certificate import server_certificate
from .kafka import Letter
from .laboratory import Process, wait_until
from .namespace import run

SCRIPT = "/usr/lib/rabbitmq/bin/rabbitmq-server"
PORT, TLS_PORT = 5672, 5671
USER, PASSWORD = "sluice", "a secret of RabbitMQ's"


def user(name, password):
    """As in a file of definitions. Its password is hashed behind four bytes of salt."""
    salt = bytes(4)
    hashed = base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
    return {
        "name": name, "password_hash": hashed, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": [],
    }  # fmt: skip


# "guest" is the default user of each installation.
DEFINITIONS = {
    "vhosts": [{"name": "/"}],
    "users": [user(USER, PASSWORD), user("guest", "guest")],
    "permissions": [
        {"user": name, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"} for name in (USER, "guest")
    ],
}


class RabbitmqServer:
    """The broker's process, on ports of its namespace's loopback; its data survives the process."""

    def __init__(self, lab, namespace):
        self.lab, self.namespace = lab, namespace
        self.directory = lab.directory / "rabbitmq"
        self.directory.mkdir()
        self.process = None
        server_certificate(self.directory)
        self.password_file = self.directory / "password"
        self.password_file.write_text(PASSWORD + "\n")
        (self.directory / "rabbitmq.conf").write_text(
            f"""
listeners.tcp.1 = 127.0.0.1:{PORT}
listeners.ssl.1 = 127.0.0.1:{TLS_PORT}
ssl_options.cacertfile = {self.directory}/ca.crt
ssl_options.certfile = {self.directory}/server.crt
ssl_options.keyfile = {self.directory}/server.key
load_definitions = {self.directory}/definitions.json
disk_free_limit.absolute = 50MB
log.console.level = warning
"""
        )
        (self.directory / "definitions.json").write_text(json.dumps(DEFINITIONS))
        (self.directory / "plugins").write_text("[].\n")
        lab.on_close(self.stop)

    def start(self):
        if self.process and self.process.alive():
            return
        environment = {
            "HOME": self.directory,
            "RABBITMQ_NODENAME": "sluice@localhost",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": self.directory / "rabbitmq",
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.directory / "plugins",
            "RABBITMQ_MNESIA_BASE": self.directory / "mnesia",
            "RABBITMQ_LOG_BASE": self.directory / "log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": self.directory / "pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
        }
        settings = [f"{name}={value}" for name, value in environment.items()]
        command = ["nice", "-n", "5", "env", *settings, "RABBITMQ_ALLOW_INPUT=1", SCRIPT, "-noinput"]
        self.process = Process(self.namespace, command, self.lab.directory / "rabbitmq.log")
        wait_until(self.answers, 120, "RabbitMQ answers")

    def answers(self):
        import pika

        if not self.process.alive():
            raise RuntimeError(f"RabbitMQ ended:\n{self.process.log.read_text()[-3000:]}")
        try:
            self.connect().close()
        except (pika.exceptions.AMQPError, OSError):
            return False
        return True

    def connect(self):
        import pika

        who = pika.PlainCredentials(USER, PASSWORD)
        return self.namespace.inside(
            pika.BlockingConnection, pika.ConnectionParameters("127.0.0.1", PORT, credentials=who, heartbeat=0)
        )

    def kill(self):
        self.process.kill()

    def stop(self):
        if self.process:
            self.process.stop()
        # Erlang's port mapper stays behind its nodes.
        for pid in run("ip", "netns", "pids", self.namespace.name).stdout.split():
            if run("ps", "-o", "comm=", "-p", pid, check=False).stdout.strip() == "epmd":
                os.kill(int(pid), signal.SIGTERM)

    def restart(self):
        self.kill()
        self.start()


class Rabbitmq:
    """Writes documents to a queue of this name, and reads status messages."""

    kind = "rabbitmq"
    secure = ("password",)

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.queue, self.dead, self.told = f"{name}.intent", f"{name}.dead", f"{name}.events"
        self.letters, self.heard = [], []
        self.start, self.stop, self.kill, self.restart = server.start, server.stop, server.kill, server.restart
        connection = server.connect()
        channel = connection.channel()
        channel.queue_declare(self.queue, durable=True)
        channel.queue_declare(self.dead, durable=True)
        channel.exchange_declare(self.told, "topic", durable=True)
        channel.queue_declare(self.told, durable=True)
        channel.queue_bind(self.told, self.told, "#")
        connection.close()

    def northbound(self, directory, secure=False, **more):
        """The agent's configuration."""
        scheme, port = ("amqps", TLS_PORT) if secure else ("amqp", PORT)
        way = {
            "type": self.kind, "name": self.kind, "url": f"{scheme}://{USER}@127.0.0.1:{port}/",
            "passwordFile": str(self.server.password_file), "queue": self.queue, "deadLetter": self.dead,
            "events": self.told, "memory": str(directory / f"{self.name}-rabbitmq.db"),
        }  # fmt: skip
        if secure:
            way["tls"] = {"ca": str(self.server.directory / "ca.crt")}
        return way | more

    def send(self, messages):
        """Messages are (key, text, headers)."""
        import pika

        connection = self.server.connect()
        channel = connection.channel()
        # One that was confirmed outlives the broker. Of many it would take long, one after the other.
        if len(messages) < 1000:
            channel.confirm_delivery()
        for key, text, headers in messages:
            texts = {name: str(value) for name, value in headers.items()}
            properties = pika.BasicProperties(delivery_mode=2, message_id=key, headers=texts)
            channel.basic_publish("", self.queue, text, properties)
        # Which it answers once it has taken them.
        connection.close()

    def put(self, key, text, **headers):
        self.send([(key, text, headers)])

    def put_all(self, texts):
        """Texts by key, each a message of its own."""
        self.send([(key, text, {}) for key, text in texts.items()])

    def delete(self, key, **headers):
        self.send([self.deletion(key, headers)])

    def delete_all(self, keys):
        self.send([self.deletion(key, {}) for key in keys])

    def deletion(self, key, headers):
        kind, _, name = key.partition("/")
        body = json.dumps({"kind": kind, "metadata": {"name": name}})
        return key, body, {"operation": "delete"} | headers

    def take(self, queue):
        connection = self.server.connect()
        channel = connection.channel()
        count = channel.queue_declare(queue, passive=True).method.message_count
        if count:
            for number, (method, properties, body) in enumerate(channel.consume(queue), 1):
                yield properties, body
                if number == count:
                    channel.basic_ack(method.delivery_tag, multiple=True)
                    break
            channel.cancel()
        connection.close()

    def dead_letters(self):
        for properties, body in self.take(self.dead):
            self.letters.append(Letter(body.decode(errors="replace"), properties.headers))
        return self.letters

    def events(self):
        """All status messages, in order."""
        for _, body in self.take(self.told):
            self.heard.append(json.loads(body))
        return self.heard

    def close(self):
        pass
