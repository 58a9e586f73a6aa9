# SPDX-License-Identifier: Apache-2.0
"""Modules: examples/module as a process that answers subscribers' DNS questions from objects of its own kind."""

import importlib.util
import json
import queue
import sys

import contract
import grpc
import pytest
from lab import thing
from lab.laboratory import TREE, wait_until
from lab.namespace import run
from lab.rest import Client, token, tokens
from pop import GATEWAY4, GATEWAY6, IPOE, PPPOE, Pop, session
from scapy.all import DNS, DNSQR, ICMP, IP, UDP, IPv6

EXAMPLE = TREE / "examples/module"
# Made by contract.
api, agent = importlib.import_module("module_pb2"), importlib.import_module("agent_pb2")
TYPES = {"A": 1, "AAAA": 28}


def host(name, domain, *addresses, **spec):
    return thing("DnsHost", name, domain=domain, addresses=list(addresses), **spec)


class Site:
    """A gateway with two subscribers, and the module beside it."""

    def __init__(self, lab):
        self.lab = lab
        keys = lab.directory / "keys"
        keys.mkdir()
        _, line = token(keys, "dns", "read")
        self.keys, self.generated = keys, lab.directory / "generated"
        run(EXAMPLE / "generate", self.generated)
        bearer, file = tokens(lab.directory, operator="operate")
        self.socket = lab.directory / "modules.sock"
        rights = {"token": line.split()[2], "kinds": ["DnsHost"], "punts": ["local"], "send": ["session"]}
        self.routing, line = token(keys, "routing", "read")
        more = {"token": line.split()[2], "follow": ["Interface"], "produce": ["Route"]}
        self.pop = Pop(
            lab,
            modules={"listen": f"unix://{self.socket}", "rights": {"dns": rights, "routing": more}},
            northbounds=[
                {"type": "rest", "name": "rest", "listen": "127.0.0.1:8080", "tokens": str(file)},
            ],
        )
        self.gateway = self.pop.gateway
        self.rest = Client(self.pop.inside, 8080, bearer["operator"])
        self.pop.apply(session(IPOE), session(PPPOE))
        self.module = None

    def start_module(self):
        log = self.lab.directory / "module.log"
        before = log.read_text().count("serving") if log.exists() else 0
        self.module = self.lab.process(
            self.pop.inside,
            sys.executable,
            EXAMPLE / "responder.py",
            *("--agent", f"unix:{self.socket}", "--token-file", self.keys / "dns.token", "--generated", self.generated),
            log="module.log",
        )

        def serves():
            assert self.module.alive(), log.read_text()[-2000:]
            return log.read_text().count("serving") > before

        wait_until(serves, 60, "the module serves")

    def ready(self, kind, name):
        """Whether an object is ready; None: there is no such object."""
        done = self.gateway.sluice("get", kind.lower(), name, "-o", "json", check=False)
        if done.returncode != 0:
            return None
        conditions = {each["type"]: each for each in json.loads(done.stdout)[0]["status"]["conditions"]}
        return conditions["Ready"]

    def ask(self, line, domain, kind="A", version=4):
        """A question from a subscriber, again until it is answered, and the answer."""
        source, target = (line.ip4, GATEWAY4) if version == 4 else (line.ip6, GATEWAY6)
        head = IP(src=source, dst=target) if version == 4 else IPv6(src=source, dst=target)
        question = head / UDP(sport=40000, dport=53) / DNS(id=77, rd=1, qd=DNSQR(qname=domain, qtype=kind))

        def answered():
            self.pop.send_up(line, question)
            try:
                return self.pop.at_line(line, lambda each: UDP in each and each[UDP].sport == 53, seconds=1)
            except (AssertionError, TimeoutError):
                return None

        packet = wait_until(answered, 30, f"{domain} is answered")
        whole = type(packet)(bytes(packet))
        sent = whole[UDP].chksum
        del whole[UDP].chksum
        assert type(packet)(bytes(whole))[UDP].chksum == sent
        answer = DNS(bytes(packet[UDP].payload))
        assert answer.id == 77 and answer.qr == 1
        return answer

    def unreachable(self, line):
        """Whether a question gets "port unreachable"."""
        question = IP(src=line.ip4, dst=GATEWAY4) / UDP(sport=40000, dport=53) / DNS(qd=DNSQR(qname="portal.example"))
        self.pop.send_up(line, question)
        try:
            return self.pop.at_line(line, lambda each: ICMP in each and each[ICMP].code == 3, seconds=1)
        except (AssertionError, TimeoutError):
            return None

    def addresses(self, line, domain, kind="A", version=4):
        answer = self.ask(line, domain, kind, version)
        records = answer.an or []
        return {each.rdata for each in records if each.type == TYPES[kind]} if answer.rcode == 0 else answer.rcode


@pytest.fixture(scope="module")
def site(lab):
    made = Site(lab)
    made.start_module()
    return made


def test_an_object_of_a_modules_kind_is_applied_by_the_command_line_and_asked_for_by_a_subscriber(site):
    site.gateway.apply(host("portal", "portal.example", "192.0.2.80", "2001:db8:80::1", timeToLive=60))
    assert "portal.example" in site.gateway.sluice("get", "dns-hosts").stdout
    assert "192.0.2.80" in site.gateway.sluice("describe", "dnshost", "portal").stdout
    assert site.ready("DnsHost", "portal")["status"] == "True"
    assert site.addresses(IPOE, "portal.example") == {"192.0.2.80"}
    assert site.addresses(IPOE, "Portal.Example", "AAAA", version=6) == {"2001:db8:80::1"}
    assert site.addresses(PPPOE, "portal.example") == {"192.0.2.80"}
    assert site.ask(IPOE, "portal.example").an[0].ttl == 60
    assert site.addresses(IPOE, "elsewhere.example") == 5


def test_an_error_in_an_object_of_a_modules_kind_has_file_and_line(site):
    path = site.gateway.directory / "wrong.yaml"
    path.write_text(
        "apiVersion: sluice.dev/v1\nkind: DnsHost\nmetadata: {name: wrong}\n"
        "spec:\n  domain: wrong.example\n  addresses: [here]\n"
    )
    done = site.gateway.sluice("apply", "-f", path, check=False)
    assert done.returncode == 1 and "wrong.yaml:6: DnsHost/wrong: addresses[0]" in done.stderr
    path.write_text(path.read_text().replace("addresses: [here]", "adresses: []"))
    assert "did you mean addresses?" in site.gateway.sluice("apply", "-f", path, check=False).stderr
    # One domain belongs to one object.
    twin = site.gateway.apply(host("twin", "portal.example"), host("other", "portal.example"), check=False)
    assert twin.returncode == 1 and "domain" in twin.stderr


def test_a_modules_kind_is_explained_by_the_comments_of_its_file(site):
    text = site.gateway.sluice("explain", "dns-hosts").stdout
    assert "A name that the gateway's DNS responder knows." in " ".join(text.split())
    assert "How many seconds a resolver may keep" in " ".join(
        site.gateway.sluice("explain", "dnshost.timeToLive").stdout.split()
    )
    assert "DnsHost" in site.gateway.sluice("explain").stdout


def test_rest_has_the_kinds_of_modules(site):
    body = {"spec": {"domain": "rest.example", "addresses": ["192.0.2.81"]}}
    assert site.rest.ask("PUT", "/v1/dns-hosts/rest", body).status == 201
    assert site.rest.ask("GET", "/v1/dns-hosts/rest").json["spec"]["domain"] == "rest.example"
    assert site.rest.ask("PUT", "/v1/dns-hosts/bad", {"spec": {"addresses": []}}).status == 422
    document = site.rest.ask("GET", "/openapi.json").json
    assert "/v1/dns-hosts/{name}" in document["paths"] and "DnsHostSpec" in document["components"]["schemas"]
    assert site.addresses(IPOE, "rest.example") == {"192.0.2.81"}
    assert site.rest.ask("DELETE", "/v1/dns-hosts/rest").status == 200
    wait_until(lambda: site.addresses(IPOE, "rest.example") == 5, 30, "the domain is gone")


def test_a_module_reports_why_an_object_is_not_ready(site):
    site.gateway.apply(host("odd", "two..dots.example", "192.0.2.82"), wait=False)
    wait_until(lambda: site.ready("DnsHost", "odd")["status"] == "False", 30, "the module's condition")
    assert site.ready("DnsHost", "odd")["reason"] == "InvalidDomain"
    site.gateway.delete("DnsHost", "odd")


def test_clients_read_the_operational_state_that_a_module_has(site):
    def answers(name):
        asked = site.rest.ask("GET", f"/v1/modules/dns/answers?host={name}")
        assert asked.status == 200, asked
        (one,) = asked.json["hosts"]
        return one["answers"]

    site.gateway.apply(host("counted", "counted.example", "192.0.2.85"), host("unasked", "unasked.example"))
    assert answers("counted") == answers("unasked") == 0
    assert site.addresses(IPOE, "counted.example") == {"192.0.2.85"}
    assert answers("counted") > 0 == answers("unasked")
    table = site.gateway.sluice("get", "dnshosts", "--state=answers").stdout
    rows = {line.split()[0]: line.split()[-1] for line in table.splitlines()}
    assert (rows["counted"], rows["unasked"]) == (str(answers("counted")), "0")
    assert "answers" in site.gateway.sluice("describe", "dnshost", "counted").stdout
    document = site.rest.ask("GET", "/openapi.json").json
    assert "/v1/modules/dns/answers" in document["paths"] and "dns.v1.DnsAnswers" in document["components"]["schemas"]
    for name in ("counted", "unasked"):
        site.gateway.delete("DnsHost", name)


def test_objects_stay_while_their_module_is_dead_and_the_agent_starts_again(site):
    site.gateway.apply(host("lasting", "lasting.example", "192.0.2.83"))
    assert site.addresses(IPOE, "lasting.example") == {"192.0.2.83"}
    site.module.kill()
    wait_until(
        lambda: site.ready("DnsHost", "lasting")["reason"] == "ModuleAway", 30, "the agent knows that it is gone"
    )
    # As without a module: UDP to the gateway has no receiver.
    wait_until(lambda: site.unreachable(IPOE), 30, "the port is unreachable")
    # The agent reads objects of the kind before the module is back.
    with site.gateway.without_agent():
        pass
    assert site.gateway.json("get", "dnshost", "lasting")[0]["spec"]["domain"] == "lasting.example"
    assert site.ready("DnsHost", "lasting")["reason"] == "ModuleAway"
    site.start_module()
    wait_until(lambda: site.ready("DnsHost", "lasting")["status"] == "True", 60, "the module is back")
    assert site.addresses(IPOE, "lasting.example") == {"192.0.2.83"}


def test_a_module_outlives_the_agent(site):
    site.gateway.apply(host("again", "again.example", "192.0.2.84"))
    site.gateway.agent.kill()
    site.gateway.start_agent()
    wait_until(lambda: (site.ready("DnsHost", "again") or {}).get("status") == "True", 60, "the module attached again")
    assert site.module.alive()
    assert site.addresses(IPOE, "again.example") == {"192.0.2.84"}


class Routing:
    """A module in this process that produces routes."""

    def __init__(self, site):
        self.outgoing = queue.SimpleQueue()
        self.channel = grpc.insecure_channel(f"unix:{site.socket}")
        attach = self.channel.stream_stream(
            "/sluice.v1.Modules/Attach",
            request_serializer=api.FromModule.SerializeToString,
            response_deserializer=api.ToModule.FromString,
        )
        self.send(hello=api.ModuleHello(name="routing", version="1", follow=["Interface"]))
        bearer = [("authorization", f"Bearer {site.routing}")]
        self.call = attach(iter(self.outgoing.get, None), metadata=bearer, wait_for_ready=True)

    def send(self, **message):
        self.outgoing.put(api.FromModule(**message))

    def until(self, which):
        for message in self.call:
            if message.WhichOneof("message") == which:
                return getattr(message, which)
        raise EOFError("the agent ended the call")

    def produce(self, prefix):
        """A route that answers with communication prohibited."""
        spec = contract.packed(thing("Route", "produced", prefix=prefix, action="PROHIBIT")).spec
        put = [agent.Intent(kind="Route", name="produced", spec=spec)]
        self.send(production=api.Production(id=1, put=put))
        return self.until("results").results[0]

    def complete(self):
        self.send(complete=api.Complete())
        self.until("completed")

    def leave(self):
        self.outgoing.put(None)
        self.call.cancel()
        self.channel.close()


def test_objects_of_a_module_forward_until_it_deletes_them(site):
    packet = IP(src=IPOE.ip4, dst="203.0.113.9") / UDP(sport=1024, dport=7)

    def prohibited():
        site.pop.send_up(IPOE, packet)
        return site.pop.at_line(IPOE, lambda each: ICMP in each and each[ICMP].code == 13)

    module = Routing(site)
    assert {each.intent.name for each in module.until("followed").objects} == {"gateway", "core"}
    assert module.produce("203.0.113.1/24").problem.field == "prefix"
    result = module.produce("203.0.113.0/24")
    assert result.done and not result.HasField("problem")
    assert prohibited()
    assert "routing" in site.gateway.sluice("get", "route", "produced", "--owners", "-o", "yaml").stdout
    # The module dies, then the agent: the route stays.
    module.leave()
    assert prohibited()
    site.gateway.agent.kill()
    assert prohibited()
    site.gateway.start_agent()
    module = Routing(site)
    module.until("welcome")
    assert prohibited()
    module.complete()

    def passes():
        site.pop.send_up(IPOE, packet)
        try:
            return site.pop.at_core(lambda each: each.dst == "203.0.113.9", seconds=1)
        except (AssertionError, TimeoutError):
            return None

    wait_until(passes, 30, "the route is gone")
    module.leave()


def load(name):
    spec = importlib.util.spec_from_file_location(f"module_{name}", EXAMPLE / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_every_truncation_of_a_question_is_survived():
    dns, packet = load("dns"), load("packet")
    question = bytes(DNS(id=1, rd=1, qd=DNSQR(qname="portal.example")))
    found = {"portal.example": (["192.0.2.80"] * 3, 60)}.get
    for length in range(len(question)):
        answer = dns.answer(question[:length], found)
        assert (answer is None) == (length < 12)
        assert answer is None or DNS(answer).rcode == dns.FORMAT_ERROR
    assert DNS(dns.answer(question, found)).ancount == 3
    assert dns.answer(dns.answer(question, found), found) is None
    many = {"portal.example": (["192.0.2.80"] * 60, 60)}.get
    assert DNS(dns.answer(question, many)).tc == 1
    for head in (IP(src="100.64.0.11", dst=GATEWAY4), IPv6(src="2001:db8::1", dst=GATEWAY6)):
        frame = bytes(12) + (b"\x08\x00" if head.version == 4 else b"\x86\xdd") + bytes(head / UDP(dport=53) / question)
        assert packet.read(frame).payload == question
        for length in range(len(frame)):
            assert packet.read(frame[:length]) is None
