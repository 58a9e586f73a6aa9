# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka, one broker in KRaft mode, from build/kafka; and a driver that configures a gateway through it."""

import json
import shutil
import uuid
from dataclasses import dataclass

from .certificate import server_certificate
from .laboratory import TREE, Process, wait_until

HOME = TREE / "build/kafka"
PORT, TLS_PORT = 9092, 9093
USER, PASSWORD = "sluice", "a secret of Kafka's"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass
class Letter:
    """A dead letter."""

    body: str
    headers: dict


class KafkaServer:
    """The broker's process, on ports of its namespace's loopback; its data survives the process."""

    def __init__(self, lab, namespace):
        self.lab, self.namespace = lab, namespace
        self.directory = lab.directory / "kafka"
        self.directory.mkdir()
        self.process = None
        server_certificate(self.directory)
        pem = "".join((self.directory / name).read_text() for name in ("server.key", "server.crt"))
        (self.directory / "server.pem").write_text(pem)
        self.password_file = self.directory / "password"
        self.password_file.write_text(PASSWORD + "\n")
        self.settings = self.directory / "server.properties"
        self.settings.write_text(
            f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9094
listeners=PLAINTEXT://127.0.0.1:{PORT},SASL_SSL://127.0.0.1:{TLS_PORT},CONTROLLER://127.0.0.1:9094
advertised.listeners=PLAINTEXT://127.0.0.1:{PORT},SASL_SSL://127.0.0.1:{TLS_PORT}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={self.directory}/server.pem
sasl.enabled.mechanisms=PLAIN,{",".join(SCRAM)}
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_{USER}="{PASSWORD}";
{self.scram_settings()}
log.dirs={self.directory}/log
num.partitions=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
num.network.threads=1
num.io.threads=2
log.cleaner.dedupe.buffer.size=2097152
"""
        )
        lab.on_close(self.stop)

    @staticmethod
    def scram_settings():
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return "\n".join(f"listener.name.sasl_ssl.{each.lower()}.sasl.jaas.config={module}" for each in SCRAM)

    def java(self, *arguments):
        return [
            shutil.which("java"), "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{HOME}/lib/*", *arguments,
        ]  # fmt: skip

    def start(self):
        if self.process and self.process.alive():
            return
        if not (self.directory / "log").exists():
            cluster = uuid.uuid4().hex[:22]
            options = ["format", "--cluster-id", cluster, "--config", self.settings]
            for each in SCRAM:
                options += ["--add-scram", f'{each}=[name={USER},password="{PASSWORD}"]']
            self.namespace.run(*map(str, self.java("kafka.tools.StorageTool", *options)), timeout=120)
        command = ["nice", "-n", "5", *self.java("kafka.Kafka", self.settings)]
        self.process = Process(self.namespace, command, self.lab.directory / "kafka.log")
        wait_until(self.answers, 120, "Kafka answers")

    def answers(self):
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        if not self.process.alive():
            raise RuntimeError(f"Kafka ended:\n{self.process.log.read_text()[-3000:]}")

        def ask():
            client = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{PORT}", request_timeout_ms=5000)
            client.list_topics()
            client.close()
            return True

        try:
            return self.namespace.inside(ask)
        except (KafkaError, ValueError, OSError):
            return False

    def kill(self):
        self.process.kill()

    def stop(self):
        if self.process:
            self.process.stop()

    def restart(self):
        self.kill()
        self.start()


class Kafka:
    """Writes documents to topics of this name, and reads status messages."""

    kind = "kafka"
    # Values of northbound(secure=...).
    secure = ("plain", "scram-sha-256", "scram-sha-512")

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.topic, self.dead, self.told = f"{name}.intent", f"{name}.dead", f"{name}.events"
        self.producer, self.seen = None, {}
        self.start, self.stop, self.kill, self.restart = server.start, server.stop, server.kill, server.restart

    def northbound(self, directory, secure=False, **more):
        """The agent's configuration."""
        way = {
            "type": self.kind, "name": self.kind, "brokers": [f"127.0.0.1:{TLS_PORT if secure else PORT}"],
            "topic": self.topic, "deadLetter": self.dead, "events": self.told, "group": f"{self.name}-gateway",
            "memory": str(directory / f"{self.name}-kafka.db"),
        }  # fmt: skip
        if secure:
            way["tls"] = {"ca": str(self.server.directory / "ca.crt")}
            mechanism = secure if secure in self.secure else self.secure[-1]
            way["sasl"] = {"mechanism": mechanism, "user": USER, "passwordFile": str(self.server.password_file)}
        return way | more

    def send(self, messages):
        """Messages are (key, text or None, headers)."""
        from kafka import KafkaProducer

        def do():
            if not self.producer:
                self.producer = KafkaProducer(bootstrap_servers=f"127.0.0.1:{PORT}", acks="all", linger_ms=5)
            sent = []
            for key, text, headers in messages:
                body = None if text is None else text if isinstance(text, bytes) else text.encode()
                pairs = [(name, str(value).encode()) for name, value in headers.items()]
                sent.append(self.producer.send(self.topic, key=key.encode(), value=body, headers=pairs))
            self.producer.flush(60)
            for each in sent:
                each.get(60)

        self.server.namespace.inside(do)

    def put(self, key, text, **headers):
        self.send([(key, text, headers)])

    def put_all(self, texts):
        """Texts by key, each a message of its own."""
        self.send([(key, text, {}) for key, text in texts.items()])

    def delete(self, key, **headers):
        self.send([(key, None, headers)])

    def delete_all(self, keys):
        self.send([(key, None, {}) for key in keys])

    def read(self, topic):
        """All records of a topic; only those that are new are fetched."""
        from kafka import KafkaConsumer, TopicPartition

        records, offsets = self.seen.setdefault(topic, ([], {}))

        def do():
            consumer = KafkaConsumer(bootstrap_servers=f"127.0.0.1:{PORT}", enable_auto_commit=False)
            try:
                partitions = [TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic) or ()]
                consumer.assign(partitions)
                ends = consumer.end_offsets(partitions) if partitions else {}
                for each in partitions:
                    consumer.seek(each, offsets.get(each, 0))
                while any(consumer.position(each) < end for each, end in ends.items()):
                    for found in consumer.poll(timeout_ms=1000).values():
                        records.extend(found)
                for each in partitions:
                    offsets[each] = consumer.position(each)
            finally:
                consumer.close()

        self.server.namespace.inside(do)
        return records

    def dead_letters(self):
        return [
            Letter((each.value or b"").decode(errors="replace"), {name: value.decode() for name, value in each.headers})
            for each in self.read(self.dead)
        ]

    def events(self):
        """All status messages, in order by object."""
        return [json.loads(each.value) for each in self.read(self.told) if each.value]

    def close(self):
        if self.producer:
            self.producer.close(timeout=5)
