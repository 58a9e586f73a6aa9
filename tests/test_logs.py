# SPDX-License-Identifier: Apache-2.0
"""The agent's log, shipped to Elasticsearch by Fluent Bit with the configuration under deploy/."""

import json
from datetime import datetime
from operator import itemgetter

import pytest
from lab import Gateway, thing
from lab.elasticsearch import PASSWORD, USER, Elasticsearch
from lab.gateway import SLUICE
from lab.laboratory import TREE, Process, wait_until

CONFIGURATION = TREE / "deploy/fluent-bit/fluent-bit.conf"
FLUENT_BIT = TREE / "build/fluent-bit/fluent-bit"
pytestmark = pytest.mark.skipif(not FLUENT_BIT.exists(), reason="set-up could not build Fluent Bit")
# Fields that the configuration renames.
RENAMED = {"msg": "message", "level": "log.level", "error": "error.message"}


class Site:
    """A gateway that logs to a file, and Fluent Bit behind it, which has a /var of its own."""

    def __init__(self, lab):
        self.lab, self.namespace = lab, lab.namespace("logs")
        self.store = Elasticsearch(lab, self.namespace)
        self.gateway = Gateway(lab, self.namespace, agent=False)
        self.var = lab.directory / "var"
        for path in ("log/sluice", "lib/fluent-bit"):
            (self.var / path).mkdir(parents=True)
        self.log = self.var / "log/sluice/agent.log"
        self.shipper = None
        self.start_agent()

    def start_agent(self):
        arguments = ["--dataplane", f"unix://{self.gateway.dataplane_socket}", "--log-format", "json"]
        arguments += [
            "--listen",
            f"unix://{self.gateway.agent_socket}",
            "--store",
            self.gateway.directory / "intent.db",
        ]
        command = ["sh", "-c", 'exec "$@" 2>>"$0"', self.log, SLUICE, "agent", *arguments]
        self.gateway.agent = self.gateway.process("agent", *command)
        self.gateway.wait_for_socket(self.gateway.agent_socket, self.gateway.agent)

    def ship(self, password=PASSWORD):
        within = 'mount --bind "$0/log" /var/log && mount --bind "$0/lib" /var/lib && exec "$@"'
        settings = {
            "ELASTICSEARCH_HOST": "localhost", "ELASTICSEARCH_USER": USER, "ELASTICSEARCH_PASSWORD": password,
            "ELASTICSEARCH_CA": self.store.directory / "ca.crt",
        }  # fmt: skip
        command = ["env", *(f"{name}={value}" for name, value in settings.items())]
        command += ["unshare", "--mount", "sh", "-c", within, self.var, FLUENT_BIT, "-c", CONFIGURATION]
        self.shipper = Process(self.namespace, command, self.lab.directory / "fluent-bit.log")
        self.lab.on_close(self.shipper.stop)

    def lines(self):
        """Complete lines of the agent's log."""
        return [line for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def has(self, count):
        return len(self.store.found()) == count


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


def nanoseconds(text):
    """Of a time in RFC 3339, since 1970."""
    whole, _, part = text.rstrip("Z").partition(".")
    return 1_000_000_000 * int(datetime.fromisoformat(whole + "+00:00").timestamp()) + int(f"{part:0<9}")


def test_each_line_is_a_document_with_the_names_that_dashboards_expect_and_its_own_time(site):
    site.gateway.apply(thing("Port", "nowhere", device="net_af_packet9,iface=nowhere"), check=False)
    site.ship()

    def all_of_now():
        # The agent may write more meanwhile. Fluent Bit calculates in floating point: some times lose a nanosecond.
        lines = [(nanoseconds(each["time"]), each) for each in map(json.loads, site.lines())]
        found = [(nanoseconds(each["@timestamp"]), index, each) for (index, _), each in site.store.found().items()]
        lines.sort(key=itemgetter(0))
        found.sort(key=itemgetter(0))
        times = [time for time, *_ in found]
        alike = len(times) == len(lines) and all(line[0] - at in (0, 1) for line, at in zip(lines, times, strict=True))
        return (lines, found) if alike else None

    lines, found = wait_until(all_of_now, 30, "every line is a document")
    shipped = []
    for (_, line), (_, index, document) in zip(lines, found, strict=True):
        document = dict(document)
        assert document.pop("service.name") == "sluice"
        assert index == "sluice-" + document.pop("@timestamp")[:10].replace("-", ".")
        del line["time"]
        assert document == {RENAMED.get(name, name): value for name, value in line.items()}
        shipped.append(document)
    refused = [each for each in shipped if each["message"] == "the data plane refused an object"]
    assert refused
    assert refused[0]["log.level"] == "WARN"
    assert (refused[0]["kind"], refused[0]["name"], refused[0]["dataplane"]) == ("Port", "nowhere", "default")
    assert refused[0]["error.message"]


def test_a_shipper_that_was_killed_goes_on_where_it_was(site):
    wait_until(lambda: site.has(len(site.lines())), 30)
    site.shipper.kill()
    # An event that was sent but not stored as sent comes again, and is the same document.
    for _ in range(3):
        site.gateway.apply(thing("Port", "nowhere", device="net_af_packet8,iface=nowhere"), check=False)
        site.gateway.delete("port", "nowhere")
    before = len(site.store.found())
    assert len(site.lines()) > before
    site.ship()
    wait_until(lambda: site.has(len(site.lines())), 30, "every line is a document, once")


def test_lines_wait_for_a_store_that_is_away(site):
    site.store.away = True
    asked = site.store.requests
    site.gateway.agent.stop()
    wait_until(lambda: site.store.requests > asked, 30, "they are sent")
    assert not site.has(len(site.lines()))
    site.store.away = False
    wait_until(lambda: site.has(len(site.lines())), 60, "every line is a document, once")
    assert site.store.refused == 0
