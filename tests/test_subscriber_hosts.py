# SPDX-License-Identifier: Apache-2.0
"""One agent and two data planes, each on a host of its own, over TCP with certificates on both sides. Each has
three access and three core ports; subscribers dial in by PPPoE and DHCP through all of them."""

import json
import time

import pytest
from lab import Dialer, Gateway, thing
from lab.gateway import DATAPLANE, SLUICE
from lab.laboratory import wait_until
from lab.remote import certificates

# By name: the third octet of its management network, and the first VLANs.
TOWNS = {"bonn": 1, "ulm": 2}
PORTS = range(3)
# PPPoE subscribers of an access port, and as many IPoE ones.
LINES = 10
API = 7700
GATEWAY4 = "100.64.0.1"


def server(town, port):
    """A server behind a core port."""
    return f"198.51.100.{16 * TOWNS[town] + port}"


def network(town, port):
    """The first three octets of a core port's network, and of its subscribers' addresses."""
    return f"10.{TOWNS[town]}.{port}", f"100.64.{16 * TOWNS[town] + port}"


class Host:
    """A data plane's host, with its subscribers' side and its core."""

    def __init__(self, lab, town, agent, keys):
        self.lab, self.town, self.keys = lab, town, keys
        self.inside, self.clients, self.core = (lab.namespace(f"{town}{part}") for part in ("", "-clients", "-core"))
        self.address = f"192.168.{TOWNS[town]}.2"
        agent.link(f"to-{town}", self.inside, "management")
        agent.ip("address", "add", f"192.168.{TOWNS[town]}.1/24", "dev", f"to-{town}")
        self.inside.ip("address", "add", f"{self.address}/24", "dev", "management")
        for port in PORTS:
            core, homes = network(town, port)
            self.inside.link(f"acc{port}", self.clients, f"line{port}")
            self.inside.link(f"core{port}", self.core, f"uplink{port}")
            for namespace, interface in (
                (self.inside, f"acc{port}"),
                (self.inside, f"core{port}"),
                (self.clients, f"line{port}"),
            ):
                namespace.silent(interface)
            self.core.ip("address", "add", f"{core}.2/24", "dev", f"uplink{port}")
            self.core.ip("address", "add", f"{server(town, port)}/32", "dev", "lo")
            self.core.ip("route", "add", f"{homes}.0/24", "via", f"{core}.1")
        self.start()

    def start(self):
        arguments = ["--socket", self.keys / f"{self.town}.sock", "--listen", f"{self.address}:{API}"]
        arguments += ["--cert", self.keys / f"{self.town}.crt", "--key", self.keys / f"{self.town}.key"]
        arguments += ["--ca", self.keys / "ca.crt", "--client-names", "agent"]
        arguments += ["--workers", 1, "--buffers", 16384, "--no-huge", "--prefix", f"{self.lab.prefix}-{self.town}"]
        (self.keys / f"{self.town}.sock").unlink(missing_ok=True)
        self.process = self.lab.process(self.inside, DATAPLANE, *arguments, log=f"{self.town}.log")
        wait_until(lambda: f":{API} " in self.inside.run("ss", "-Hltn").stdout, 30, f"{self.town} listens")

    def objects(self):
        labels = {"dataplane": self.town}
        for port in PORTS:
            core, homes = network(self.town, port)
            name = f"{self.town}-{port}"
            mac = f"02:00:00:00:{TOWNS[self.town]:02x}:{port:02x}"
            yield from (
                thing(
                    "Port",
                    f"acc-{name}",
                    labels,
                    device=f"net_af_packet{port},iface=acc{port},framecnt=1024",
                    mac=mac,
                ),
                thing("Port", f"core-{name}", labels, device=f"net_af_packet{3 + port},iface=core{port},framecnt=1024"),
                thing("Interface", f"core-{name}", labels, port=f"core-{name}", addresses=[f"{core}.1/24"]),
                thing(
                    "Route",
                    name,
                    labels,
                    prefix=f"{server(self.town, port)}/32",
                    nextHops=[{"address": f"{core}.2"}],
                ),
                thing("AddressPool", name, ranges=[f"{homes}.0/24"], gateway=GATEWAY4),
                thing("SubscriberProfile", name, authentication=["none"], ipv4Pools=[name], rateUp="50M"),
                thing("PppoeServer", name, port=f"acc-{name}", profile=name, outerVlans=["200"], innerVlans=["1-100"]),
                thing("IpoeServer", name, port=f"acc-{name}", profile=name, outerVlans=["100"], innerVlans=["1-100"]),
            )

    def dial(self):
        """A Dialer for each access port, all of whose lines are up."""
        self.dialers = [
            Dialer(
                self.lab,
                self.clients,
                f"line{port}",
                name=f"dial-{self.town}-{port}",
                pppoe=LINES,
                ipoe=LINES,
                without6="true",
                server4=server(self.town, port),
            )
            for port in PORTS
        ]
        for dialer in self.dialers:
            dialer.dial(120)

    def traffic(self, rate=50):
        for dialer in self.dialers:
            dialer.ask("reset")
            dialer.ask("traffic", rate)

    def each_has_an_answer(self):
        for dialer in self.dialers:
            dialer.until(lambda s: s["both"] == s["lines"], 60, f"{self.town}: each subscriber has an answer")


class Hosts:
    def __init__(self, lab):
        keys = lab.directory / "keys"
        keys.mkdir()
        certificates(keys, "agent", *TOWNS, addresses=[f"192.168.{number}.2" for number in TOWNS.values()])
        self.agent_host = lab.namespace("agent")
        self.towns = {town: Host(lab, town, self.agent_host, keys) for town in TOWNS}
        tls = {name: str(keys / file) for name, file in (("certificate", "agent.crt"), ("key", "agent.key"))}
        planes = [
            {
                "name": town,
                "endpoint": f"tcp://{host.address}:{API}",
                "tls": tls | {"ca": str(keys / "ca.crt")},
            }
            for town, host in self.towns.items()
        ]
        self.gateway = Gateway.__new__(Gateway)
        self.gateway.lab, self.gateway.name, self.gateway.namespace = lab, "gateway", self.agent_host
        self.gateway.directory = lab.directory / "gateway"
        self.gateway.directory.mkdir()
        self.gateway.agent_socket = self.gateway.directory / "agent.sock"
        config = self.gateway.directory / "agent.yaml"
        listen = f"unix://{self.gateway.agent_socket}"
        config.write_text(
            json.dumps({"listen": listen, "store": str(self.gateway.directory / "intent.db"), "dataplanes": planes})
        )
        self.gateway.agent = lab.process(self.agent_host, SLUICE, "agent", "--config", config, log="agent.log")
        self.gateway.wait_for_socket(self.gateway.agent_socket, self.gateway.agent)
        self.gateway.apply(
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32"]),
            *(each for host in self.towns.values() for each in host.objects()),
        )
        for host in self.towns.values():
            host.dial()

    def sessions(self, town):
        return len(self.gateway.json("--at", town, "subscriber", "list"))


@pytest.fixture(scope="module")
def hosts(lab):
    return Hosts(lab)


def test_subscribers_dial_in_through_all_ports_of_both_hosts(hosts):
    for town, host in hosts.towns.items():
        host.traffic()
        host.each_has_an_answer()
        assert hosts.sessions(town) == 2 * LINES * len(PORTS)
        found = hosts.gateway.json("--at", town, "top", "--once")["ports"]
        assert {each["name"] for each in found if int(each["rxPackets"]) > 0} == {
            f"{side}-{town}-{port}" for side in ("acc", "core") for port in PORTS
        }


def answered(status):
    """Each request has its reply. A reply to a request from before the counters began counts, too."""
    return all(got >= sent for got, sent in zip(status["received"], status["sent"], strict=True))


def count_anew(dialer):
    """No request is on its way when the counters begin: from then on, each has its reply, or is lost."""
    dialer.ask("traffic", 0)
    before = None
    while before != (before := dialer.status()["received"]):
        time.sleep(0.5)
    dialer.ask("reset")


def test_one_data_plane_dies_and_comes_back_and_the_others_subscribers_notice_nothing(hosts):
    bonn, ulm = hosts.towns.values()
    first, *others = bonn.dialers
    for dialer in bonn.dialers:
        count_anew(dialer)
        dialer.ask("traffic", 50)
    ulm.process.kill()
    # Subscribers of the one that lives dial in meanwhile.
    first.hang_up()
    first.dial()
    first.ask("reset")
    bonn.each_has_an_answer()
    ulm.start()
    ulm.traffic()
    ulm.each_has_an_answer()
    for dialer in bonn.dialers:
        dialer.ask("traffic", 0)
        status = dialer.until(answered, 10, "every echo request of bonn is answered")
        assert status["ended"] == 0
    for dialer in others:
        # They sent before, during and after the death.
        status = dialer.status()
        assert sum(status["sent"]) > 0 and status["received"] == status["sent"]
    # Its subscribers kept their sessions, too: the agent gave them to the new data plane.
    assert [dialer.status()["ended"] for dialer in ulm.dialers] == [0, 0, 0]
    assert [hosts.sessions(town) for town in TOWNS] == [2 * LINES * len(PORTS)] * 2
