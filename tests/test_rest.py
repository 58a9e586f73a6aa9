# SPDX-License-Identifier: Apache-2.0
"""REST as a client sees it over HTTP, with a real data plane behind the agent."""

import json
import os
import signal
import time

import pytest
from lab import Gateway, thing
from lab.gateway import SLUICE
from lab.laboratory import TREE, wait_until
from lab.remote import certificates
from lab.rest import Client, Rest, tokens, trusting
from openapi_spec_validator import validate

METER = {"algorithm": "srtcm", "committedRate": "100M", "committedBurst": "64KB"}


class Site:
    """A gateway whose agent serves REST on two ports, 8080 in the clear and 8443 with TLS, and writes an audit log."""

    def __init__(self, lab):
        self.lab = lab
        self.namespace = lab.namespace("rest")
        self.driver = Rest(lab, self.namespace)
        self.where = certificates(self.driver.directory, "agent", "controller", "somebody", "other/stranger")
        self.tokens, file = tokens(self.driver.directory, reader="read", operator="operate", admin="admin")
        self.gateway = Gateway(lab, self.namespace, agent=False)
        self.audit = lab.directory / "logs" / "audit.jsonl"
        pair = {"certificate": str(self.where / "agent.crt"), "key": str(self.where / "agent.key")}
        secure = {
            "type": "rest", "name": "rest-tls", "listen": "127.0.0.1:8443", "tls": pair, "tokens": str(file),
            "clientCA": str(self.where / "ca.crt"), "roles": {"controller": "operate"},
        }  # fmt: skip
        self.configuration = lab.directory / "agent.yaml"
        self.configuration.write_text(
            json.dumps(
                {
                    "listen": f"unix://{self.gateway.agent_socket}",
                    "store": str(self.gateway.directory / "intent.db"),
                    "log": {"format": "json"},
                    "audit": {"file": str(self.audit), "sync": True},
                    "dataplanes": [{"name": "default", "endpoint": f"unix://{self.gateway.dataplane_socket}"}],
                    "northbounds": [self.driver.northbound(tokens=str(file)), secure],
                }
            )
        )
        self.reader, self.operator, self.admin = (
            Client(self.namespace, 8080, self.tokens[name]) for name in ("reader", "operator", "admin")
        )
        self.start()

    def start(self):
        self.gateway.agent = self.gateway.process("agent", SLUICE, "agent", "--config", self.configuration)
        self.gateway.wait_for_socket(self.gateway.agent_socket, self.gateway.agent)
        wait_until(self.answers, 30, "REST answers")
        wait_until(
            lambda: self.gateway.sluice("version", check=False).returncode == 0, 30, "the data plane is connected"
        )

    def answers(self):
        try:
            return self.reader.ask("GET", "/health").status == 200
        except OSError:
            return False

    def lines(self):
        """Entries of the audit log."""
        return [json.loads(line) for line in self.audit.read_text().splitlines()]


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


def test_an_applied_object_is_in_the_data_plane_and_on_the_command_line(site):
    answer = site.operator.ask("PUT", "/v1/meters/home?why=a%20test", {"spec": METER})
    assert answer.status == 201, answer
    assert answer.json["spec"]["committedRate"] == 100_000_000
    wait_until(lambda: site.reader.ask("GET", "/v1/meters/home").json["status"]["state"] == "applied")
    found = site.gateway.json("get", "meter", "home")
    found = found[0] if isinstance(found, list) else found
    assert found["spec"] == answer.json["spec"]
    assert found["status"]["owner"] == "rest"
    answer = site.operator.ask("PATCH", "/v1/meters/home", {"spec": {"committedRate": "200M"}})
    assert (answer.status, answer.json["spec"]["committedRate"]) == (200, 200_000_000)
    assert site.operator.ask("DELETE", "/v1/meters/home").status == 200
    assert site.reader.ask("GET", "/v1/meters/home").status == 404


def test_a_refusal_of_the_data_plane_is_in_the_objects_status_and_all_or_nothing_undoes_it(site):
    port = {"spec": {"device": "0000:7f:1f.7"}}
    answer = site.operator.ask("PUT", "/v1/ports/nowhere", port)
    assert answer.status == 201, answer
    assert answer.json["status"]["state"] == "failed"
    assert answer.json["status"]["message"]
    # It is there all the same.
    assert site.operator.ask("PATCH", "/v1/ports/nowhere", {"metadata": {"labels": {"town": "bonn"}}}).status == 200
    assert site.operator.ask("PUT", "/v1/ports/nowhere", port).status == 200
    assert site.operator.ask("DELETE", "/v1/ports/nowhere").status == 200
    answer = site.operator.ask("PUT", "/v1/ports/nowhere?mode=all-or-nothing", port)
    assert answer.status == 422, answer
    assert answer.json["type"] == "urn:sluice:problem:refused"
    assert answer.json["errors"][0]["object"] == "Port/nowhere"
    assert site.reader.ask("GET", "/v1/ports/nowhere").status == 404


def test_an_error_names_object_field_found_and_accepted_values(site):
    changes = {"put": [thing("Session", "alice", access={"port": "access", "outerVlan": 5000})]}
    answer = site.operator.ask("POST", "/v1/apply", changes)
    assert answer.status == 422
    assert answer.headers["Content-Type"] == "application/problem+json"
    [error] = answer.json["errors"]
    assert error["object"] == "Session/alice"
    assert error["field"] == "access.outerVlan"
    assert error["found"] == "5000"
    assert error["accepted"].startswith("0 to 4094")


def test_an_object_of_the_command_lines_is_kept_unless_an_admin_takes_it_over(site):
    site.gateway.apply(thing("Vrf", "shared", description="ours"))
    other = {"spec": {"description": "theirs"}}
    answer = site.operator.ask("PUT", "/v1/vrfs/shared", other)
    assert answer.status == 409
    assert answer.json["errors"][0]["holder"] == "api"
    assert site.operator.ask("PUT", "/v1/vrfs/shared?force=true", other).status == 403
    assert site.admin.ask("PUT", "/v1/vrfs/shared?force=true", other).status == 200
    assert site.operator.ask("DELETE", "/v1/vrfs/shared").status == 200
    assert site.reader.ask("GET", "/v1/vrfs/shared").json["spec"] == {"description": "ours"}
    site.gateway.delete("vrf", "shared")


def test_events_go_on_where_a_reader_was_cut_off(site):
    cursor = site.reader.ask("GET", "/v1/vrfs").json["cursor"]
    for name in ("e1", "e2", "e3"):
        assert site.operator.ask("PUT", f"/v1/vrfs/{name}", {}).status == 201

    def applied(count, **headers):
        found = []
        for last, told in site.reader.events("/v1/events?kinds=Vrf", **headers):
            if told["status"]["state"] == "applied":
                found.append((last, told["metadata"]["name"]))
            if len(found) == count:
                break
        return found

    first = applied(2, Last_Event_ID=cursor)
    assert [name for _, name in first] == ["e1", "e2"]
    assert [name for _, name in applied(1, Last_Event_ID=first[-1][0])] == ["e3"]
    for name in ("e1", "e2", "e3"):
        assert site.operator.ask("DELETE", f"/v1/vrfs/{name}").status == 200


def test_a_follower_of_events_gets_all_states_when_a_data_plane_is_back(site):
    for name in ("w1", "w2"):
        assert site.operator.ask("PUT", f"/v1/vrfs/{name}", {}).status == 201
    site.gateway.dataplane.kill()
    wait_until(lambda: site.reader.ask("GET", "/v1/vrfs/w1").json["status"]["state"] == "unknown")
    cursor = site.reader.ask("GET", "/v1/vrfs").json["cursor"]
    site.gateway.start_dataplane()
    known = {}
    for _, told in site.reader.events(f"/v1/events?kinds=Vrf&cursor={cursor}"):
        if told["kind"] == "Vrf":
            known[told["metadata"]["name"]] = told["status"]["state"]
        if known.get("w1") == known.get("w2") == "applied":
            break
    for name in known:
        site.operator.ask("DELETE", f"/v1/vrfs/{name}")


def test_ten_thousand_objects_come_and_go_in_one_request(site):
    meters = [thing("Meter", f"m{number:05}", **METER) for number in range(10_000)]
    answer = site.operator.ask("POST", "/v1/apply?mode=all-or-nothing", {"put": meters})
    assert answer.status == 200, answer
    names, page = [], ""
    while True:
        found = site.reader.ask("GET", f"/v1/meters?limit=3000&fields=status.state{page}").json
        names += [each["metadata"]["name"] for each in found["items"] if each["status"]["state"] == "applied"]
        if "next" not in found:
            break
        page = f"&page={found['next']}"
    assert names == [each["metadata"]["name"] for each in meters]
    gone = [{"kind": "Meter", "name": name} for name in names]
    assert site.operator.ask("POST", "/v1/apply", {"delete": gone}).status == 200
    assert site.reader.ask("GET", "/v1/meters").json["items"] == []


def test_over_tls_a_certificate_or_a_token_lets_in(site):
    plain = Client(site.namespace, 8443, context=trusting(site.where))
    assert plain.ask("GET", "/v1/status").status == 401
    plain.bearer = site.tokens["reader"]
    assert plain.ask("GET", "/v1/status").status == 200
    assert plain.ask("PUT", "/v1/vrfs/x", {}).status == 403
    controller = Client(site.namespace, 8443, context=trusting(site.where, "controller"))
    assert controller.ask("PUT", "/v1/vrfs/x", {}).status == 201
    assert controller.ask("DELETE", "/v1/vrfs/x").status == 200
    somebody = Client(site.namespace, 8443, context=trusting(site.where, "somebody"))
    assert somebody.ask("GET", "/v1/status").status == 403
    with pytest.raises(OSError):
        Client(site.namespace, 8443, context=trusting(site.where, "stranger")).ask("GET", "/v1/status")


def test_changes_are_audited_without_secrets(site):
    before = len(site.lines())
    assert site.operator.ask("PUT", "/v1/vrfs/audited?why=because", {"spec": {"description": "unseen"}}).status == 201
    assert site.reader.ask("DELETE", "/v1/vrfs/audited").status == 403
    assert site.operator.ask("PUT", "/v1/vrfs/audited", {"spec": {"colour": "red"}}).status == 422
    assert Client(site.namespace, 8080).ask("DELETE", "/v1/vrfs/audited").status == 401
    site.gateway.sluice("delete", "vrf", "audited", check=False)
    assert site.operator.ask("DELETE", "/v1/vrfs/audited").status == 200
    told = [(line["action"], line["owner"], line.get("who"), line["outcome"]) for line in site.lines()[before:]]
    assert told[:4] == [
        ("apply", "rest", "operator", "done"),
        ("delete", "rest", "reader", "forbidden"),
        ("apply", "rest", "operator", "refused"),
        ("delete", "rest", None, "forbidden"),
    ]
    assert told[4][:3] == ("delete", "api", "root")
    assert told[-1] == ("delete", "rest", "operator", "done")
    first = site.lines()[before]
    assert first["from"].startswith("127.0.0.1:")
    assert first["why"] == "because"
    assert [(each["kind"], each["name"], each["step"]) for each in first["objects"]] == [("Vrf", "audited", "create")]
    everything = site.audit.read_text() + "".join(site.gateway.logs().values())
    assert "unseen" not in site.audit.read_text()
    for token in site.tokens.values():
        assert token not in everything
    assert [line for line in everything.splitlines() if '"msg":"change"' in line]


def test_an_audit_log_that_is_moved_away_or_after_sighup_begins_anew(site):
    site.operator.ask("PUT", "/v1/vrfs/one", {})
    os.rename(site.audit, f"{site.audit}.1")
    os.kill(site.gateway.agent.pid, signal.SIGHUP)
    wait_until(site.audit.exists, 20, "a new audit log")
    os.rename(site.audit, f"{site.audit}.2")
    site.operator.ask("DELETE", "/v1/vrfs/one")
    assert [line["objects"][0]["step"] for line in site.lines()] == ["delete"]
    assert site.gateway.agent.alive()


def test_a_killed_agent_serves_its_stored_configuration(site):
    assert site.operator.ask("PUT", "/v1/vrfs/kept", {"spec": {"description": "kept"}}).status == 201
    cursor = site.reader.ask("GET", "/v1/vrfs").json["cursor"]
    site.gateway.agent.kill()
    site.start()
    wait_until(lambda: site.reader.ask("GET", "/v1/vrfs/kept").json["status"]["state"] == "applied")
    # Its events are a new log: followers of the old one have to list again.
    assert site.reader.ask("GET", f"/v1/events?cursor={cursor}").status == 410
    assert site.operator.ask("DELETE", "/v1/vrfs/kept").status == 200


def test_the_document_is_valid_openapi(site):
    document = site.reader.ask("GET", "/openapi.json").json
    validate(document)
    page = site.reader.ask("GET", "/")
    assert page.status == 200
    assert "page.js" in page.text


# Each part takes the program's start and the reading of the document, and has more time than other tests.
PARTS = 4
LONG = pytest.mark.long(reason="requests of every kind take minutes; those of a quarter of the kinds are in every run")


@pytest.mark.parametrize("part", [*(pytest.param(part, marks=LONG) for part in range(PARTS - 1)), PARTS - 1])
def test_schemathesis_finds_nothing_that_the_document_does_not_say(site, part):
    signal.alarm(600)
    rules = (TREE / "tests/schemathesis.toml").read_text()
    if os.environ.get("REST_KINDS") == "all":
        rules = rules.replace("^put(?!(", "^put(?!(.*|")
    configuration = site.lab.directory / "schemathesis.toml"
    configuration.write_text(rules)
    document = site.reader.ask("GET", "/openapi.json")
    path = site.lab.directory / "openapi.json"
    path.write_text(document.text)
    operations = [each for one in document.json["paths"].values() for each in one.values() if "operationId" in each]
    # Each operation has one tag: those of a kind have its name.
    assert all(len(each["tags"]) == 1 for each in operations)
    tags = sorted({each["tags"][0] for each in operations})[part::PARTS]
    command = [
        TREE / ".venv/bin/schemathesis", "--config-file", configuration, "run", path,
        "--url", "http://127.0.0.1:8080", "--header", f"Authorization: Bearer {site.tokens['admin']}",
        *(word for tag in tags for word in ("--include-tag", tag)),
    ]  # fmt: skip
    began = time.monotonic()
    done = site.namespace.run(*map(str, command), timeout=1500, check=False, cwd=site.lab.directory)
    print(done.stdout[-20_000:], done.stderr[-2000:], tags, f"{time.monotonic() - began:.0f} s")
    assert done.returncode == 0
    assert site.gateway.agent.alive()
    assert site.reader.ask("GET", "/health").status == 200
