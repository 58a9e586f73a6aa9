# SPDX-License-Identifier: Apache-2.0
"""All northbounds behind one interface: put and delete objects, and read their status.

Each object is a document, a message or a file of its own. The drivers have what differs with several objects at once.
"""

import http.client
import json
from pathlib import Path

from .etcd import Etcd
from .files import Files
from .gateway import Refused, yaml
from .kafka import Kafka
from .laboratory import wait_until
from .rabbitmq import Rabbitmq
from .redis import Redis, RedisStream
from .remote import Remote
from .rest import Rest


def names(objects):
    return [f"{each['kind']}/{each['metadata']['name']}" for each in objects]


class Documents:
    """Through a driver of documents under keys, each with a status."""

    # A bad object among good ones is refused alone.
    one_by_one = True
    # Also the statuses of objects of other owners.
    tells_of_all = False

    def __init__(self, driver):
        self.driver, self.kind = driver, driver.kind
        self.kill, self.start = driver.kill, driver.start

    def configuration(self, directory):
        return [self.driver.northbound(directory)]

    def serve(self, gateway):
        """Sets the gateway that it configures."""

    def say(self, *objects):
        self.driver.put_all({self.key(name): yaml([each]) for name, each in zip(names(objects), objects, strict=True)})

    def unsay(self, *objects):
        if len(objects) > 1000:
            self.driver.delete_all()
            return
        for name in names(objects):
            self.driver.delete(self.key(name))

    def say_again(self):
        """Repeats changes that the agent missed while it was away; stores that keep them need no repetition."""

    def key(self, name):
        return name.replace("/", "-")

    def refusal(self, thing):
        """All reasons of a refusal, as text."""

        def found():
            return (self.driver.status(self.key(*names([thing]))) or {}).get("mistakes")

        return json.dumps(wait_until(found, 60, f"the refusal of {thing}"))

    def told(self, thing):
        """The last reported state of an object: "applied", "pending" ... or "gone"."""
        status = self.driver.status(self.key(*names([thing])))
        return status["state"].lower() if status else "gone"

    def told_applied(self):
        """Number of objects reported as applied, at least."""
        return self.driver.statuses()

    def close(self):
        self.driver.close()


class Messages:
    """Through a broker's driver: invalid messages become dead letters, and events report the results."""

    one_by_one = tells_of_all = True

    def __init__(self, driver):
        self.driver, self.kind = driver, driver.kind
        self.kill, self.start = driver.kill, driver.start

    def configuration(self, directory):
        return [self.driver.northbound(directory)]

    def serve(self, gateway):
        """Sets the gateway that it configures."""

    def say(self, *objects):
        self.driver.put_all({name: yaml([each]) for name, each in zip(names(objects), objects, strict=True)})

    def unsay(self, *objects):
        self.driver.delete_all(names(objects))

    def say_again(self):
        """The broker keeps messages that were not received."""

    def refusal(self, thing):
        mark = f'"{thing["metadata"]["name"]}"'

        def found():
            return next((each for each in self.driver.dead_letters() if mark in each.body), None)

        return json.dumps(wait_until(found, 60, f"the dead letter of {thing}").headers)

    def told(self, thing):
        (name,) = names([thing])
        found = [each["state"] for each in self.driver.events() if f"{each['kind']}/{each['name']}" == name]
        return found[-1] if found else None

    def told_applied(self):
        last = {(each["kind"], each["name"]): each["state"] for each in self.driver.events()}
        return sum(state == "applied" for state in last.values())

    def close(self):
        self.driver.close()


class Unanswered(Exception):
    """There is no server, or it went away before the answer."""


class Requests:
    """The agent is the server and answers each request. The client repeats unanswered requests."""

    # A request is applied as a whole or not at all; and only queried states are reported.
    one_by_one = tells_of_all = False

    def __init__(self):
        self.gateway, self.unheard, self.refusals = None, [], {}

    def configuration(self, _directory):
        return []

    def serve(self, gateway):
        self.gateway = gateway

    def kill(self):
        self.gateway.agent.kill()

    def start(self):
        if not self.gateway.agent.alive():
            self.gateway.start_agent()
        wait_until(self.answers, 30, f"{self.kind} answers")

    def answers(self):
        """Whether there is a server to ask."""
        return True

    def attempt(self, command, objects):
        try:
            if self.gateway.agent.alive():
                wait_until(self.answers, 30, f"{self.kind} answers")
            self.ask(command, objects)
        except Unanswered:
            self.unheard.append((command, objects))
        except Refused as refused:
            self.refusals |= dict.fromkeys(names(objects), str(refused))

    def say(self, *objects):
        self.attempt("apply", objects)

    def unsay(self, *objects):
        self.attempt("delete", objects)

    def say_again(self):
        unheard, self.unheard = self.unheard, []
        for command, objects in unheard:
            self.attempt(command, objects)

    def refusal(self, thing):
        return self.refusals[names([thing])[0]]

    def close(self):
        """Nothing is open."""


class CommandLine(Requests):
    """Through the gRPC API on its Unix socket, as people do it."""

    kind = "api"

    def sluice(self, *arguments):
        return self.gateway.sluice(*arguments, check=False)

    def ask(self, command, objects):
        path = Path(self.gateway.directory / "said.yaml")
        path.write_text(yaml(objects))
        # As with every other northbound: objects that others need are deleted, too.
        how = ["--in-use"] if command == "delete" else []
        done = self.sluice(command, "-f", path, *how)
        if done.returncode:
            unanswered = any(text in done.stderr for text in ("no agent answers", "went away before it answered"))
            raise (Unanswered if unanswered else Refused)(done.stderr)

    def told(self, thing):
        found = self.sluice("get", thing["kind"], thing["metadata"]["name"], "-o", "json")
        return json.loads(found.stdout)[0]["status"]["state"] if found.returncode == 0 else "gone"

    def told_applied(self):
        found = json.loads(self.sluice("get", "all", "-o", "json").stdout)
        return sum(each["status"]["state"] == "applied" for each in found)


class RemoteCommandLine(CommandLine):
    """Through the gRPC API over TLS, with a token."""

    def __init__(self, driver):
        super().__init__()
        self.driver, self.kind, self.sluice = driver, driver.kind, driver.sluice

    def configuration(self, _directory):
        return [self.driver.northbound()]

    def answers(self):
        return self.sluice("version").returncode == 0


class Resources(Requests):
    """Through REST, with a token."""

    def __init__(self, driver):
        super().__init__()
        self.driver, self.kind, self.client = driver, driver.kind, driver.client

    def configuration(self, _directory):
        return [self.driver.northbound()]

    def answers(self):
        try:
            return self.client.ask("GET", "/health").status == 200
        except OSError:
            return False

    def ask(self, command, objects):
        if command == "delete":
            changes = {"delete": [{"kind": each["kind"], "name": each["metadata"]["name"]} for each in objects]}
        else:
            changes = {"put": objects}
        try:
            answer = self.client.ask("POST", "/v1/apply", changes)
        except (OSError, http.client.HTTPException) as error:
            raise Unanswered(error) from error
        if answer.status >= 300:
            raise Refused(answer.text)

    def told(self, thing):
        answer = self.client.ask("GET", f"/v1/{thing['kind'].lower()}s/{thing['metadata']['name']}")
        return answer.json["status"]["state"] if answer.status == 200 else "gone"

    def told_applied(self):
        return self.client.ask("GET", "/v1/status").json["objects"]["applied"]


# By the name of its row: the fixture of the server, and the driver.
ROWS = {
    "api": (None, lambda _namespace, _server, _lab: CommandLine()),
    "grpc": (None, lambda namespace, _server, lab: RemoteCommandLine(Remote(lab, namespace))),
    "rest": (None, lambda namespace, _server, lab: Resources(Rest(lab, namespace))),
    "files": (None, lambda _namespace, _server, lab: Documents(Files(lab, "rows"))),
    "etcd": ("etcd_server", lambda _namespace, server, _lab: Documents(Etcd(server, "rows"))),
    "redis": ("redis_server", lambda _namespace, server, _lab: Documents(Redis(server, "rows"))),
    "redis-stream": ("redis_server", lambda _namespace, server, _lab: Messages(RedisStream(server, "rows-stream"))),
    "kafka": ("kafka_server", lambda _namespace, server, _lab: Messages(Kafka(server, "rows"))),
    "rabbitmq": ("rabbitmq_server", lambda _namespace, server, _lab: Messages(Rabbitmq(server, "rows"))),
}
