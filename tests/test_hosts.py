# SPDX-License-Identifier: Apache-2.0
"""Real hosts: the kernel's ping, iperf3 and curl on both sides of a gateway: a BNG with sessions that are configured, a
BNG with subscribers that dial in, and an AGF."""

import json

import pytest
from lab import Dialer, Gateway, Home, Line, Upf, thing
from lab.laboratory import wait_until
from pop import ACCESS_MAC, CORE4, CORE6, CORE_MAC, GATEWAY4, GATEWAY6, HOST4, HOST6, SERVER4, SERVER6, session

LINES = {
    "ipoe": Line("ipoe", "02:00:00:00:05:01", "100.64.5.1", "2001:db8:5:1::1", (100, 1), teid_up=21, teid_down=11),
    "pppoe": Line(
        "pppoe", "02:00:00:00:05:02", "100.64.5.2", "2001:db8:5:2::1", (100, 2), pppoe=9, teid_up=22, teid_down=12
    ),
    "untagged": Line("untagged", "02:00:00:00:05:03", "100.64.5.3", "2001:db8:5:3::1", teid_up=23, teid_down=13),
}


class Hosts:
    """Subscribers' namespaces and a core host with a web server, all of them kernels."""

    def __init__(self, lab, role):
        self.role = role
        outside, inside, self.core = lab.namespace("line"), lab.namespace("gw"), lab.namespace("core")
        inside.link("acc0", outside, "line")
        inside.link("core0", self.core, "uplink")
        for namespace, interface in ((outside, "line"), (inside, "acc0"), (inside, "core0")):
            namespace.silent(interface)
        for version, host, server, size in (("-4", HOST4, SERVER4, 24), ("-6", HOST6, SERVER6, 64)):
            nodad = ("nodad",) if version == "-6" else ()
            self.core.ip(version, "address", "add", f"{host}/{size}", "dev", "uplink", *nodad)
            self.core.ip(version, "address", "add", server, "dev", "lo", *nodad)
        self.gateway = Gateway(lab, inside)
        objects = [
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC),
            thing("Port", "core", device="net_af_packet1,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32", f"{GATEWAY6}/128"]),
            thing("Interface", "core", port="core", addresses=[f"{CORE4}/24", f"{CORE6}/64"]),
            thing("Route", "default4", prefix="0.0.0.0/0", nextHops=[{"address": HOST4}]),
            thing("Route", "default6", prefix="::/0", nextHops=[{"address": HOST6}]),
        ]
        if role == "agf":
            upf = Upf(lab, self.core, HOST4)
        else:
            self.core.ip("route", "add", "100.64.0.0/16", "via", CORE4)
            for prefix in ("2001:db8:5::/48", "2001:db8:6::/47"):
                self.core.ip("-6", "route", "add", prefix, "via", CORE6)
        for line in LINES.values() if role != "dialed" else ():
            # TCP's segments leave room for PPPoE and for GTP-U, whose tunnels do not carry 1,500 bytes.
            extra = {"policy": {"mss": 1320}}
            if role == "agf":
                upf.add(line, CORE4, qfi=9)
                ends = {"localAddress": CORE4, "localTeid": line.teid_down}
                ends |= {"remoteAddress": HOST4, "remoteTeid": line.teid_up}
                extra["gtpu"] = ends | {"pduSessionContainer": True, "qfi": 9}
            objects.append(session(line, **extra))
        if role == "dialed":
            objects += self.servers()
        self.gateway.apply(*objects)
        self.lines = self.dial(lab, outside) if role == "dialed" else LINES
        home = Home(lab, outside, "line", ACCESS_MAC)
        self.homes = {name: home.subscriber(line, GATEWAY4, GATEWAY6) for name, line in self.lines.items()}
        page = lab.directory / "www"
        page.mkdir()
        (page / "index.html").write_text("a page of the internet\n" * 500)
        serve = ["python3", "-m", "http.server", "80", "--bind", "::", "--directory", str(page)]
        lab.process(self.core, *serve, log="http.log")
        wait_until(lambda: self.listens(80))

    def servers(self):
        """The gateway that subscribers dial in to."""
        yield thing("AddressPool", "homes", ranges=["100.64.6.0/24"], gateway=GATEWAY4)
        yield thing("AddressPool", "links", ranges=["2001:db8:6::/48"], prefixLength=64)
        yield thing("AddressPool", "networks", ranges=["2001:db8:7::/48"], prefixLength=56)
        pools = {"ipv4Pools": ["homes"], "ipv6Pools": ["links"], "delegatedPools": ["networks"]}
        yield thing("SubscriberProfile", "home", authentication=["none"], policy={"mss": 1320}, rateDown="1G", **pools)
        for kind, vlans in (("PppoeServer", "200"), ("IpoeServer", "100")):
            yield thing(kind, "homes", port="access", profile="home", outerVlans=[vlans], innerVlans=["1-100"])

    def dial(self, lab, outside):
        """A PPPoE and an IPoE subscriber, that stay up: the kernels behind them know nothing of it."""
        dialer = Dialer(lab, outside, "line", pppoe=1, ipoe=1)
        dialer.dial()
        return {line.name.partition("-")[0]: line for line in dialer.lines()}

    def listens(self, port):
        return f":{port} " in self.core.run("ss", "-Hltn").stdout


@pytest.fixture(scope="module", params=["bng", "dialed", "agf"])
def hosts(request, lab):
    # A lab of its own for each role.
    from lab import Lab

    with Lab() as own:
        yield Hosts(own, request.param)


@pytest.fixture(params=LINES)
def name(request, hosts):
    if request.param not in hosts.lines:
        pytest.skip("subscribers dial in with two VLANs here")
    return request.param


def pings(host, target, *options):
    """Sends five requests one at a time, each answered. After a burst, ping waits two round trips for the last."""
    for _ in range(5):
        done = host.run("ping", "-c", "1", "-W", "10", *map(str, options), target, check=False)
        assert " 0% packet loss" in done.stdout, done.stdout


@pytest.mark.parametrize("target", [SERVER4, SERVER6])
def test_a_subscriber_pings_the_internet(hosts, name, target):
    pings(hosts.homes[name], target)


@pytest.mark.parametrize("size", [1000, 1372])
def test_large_pings_pass(hosts, name, size):
    pings(hosts.homes[name], SERVER4, "-s", size)


@pytest.mark.parametrize("target", [GATEWAY4, GATEWAY6])
def test_a_subscriber_pings_its_gateway(hosts, name, target):
    """In an AGF everything but ARP and neighbour discovery belongs to the PDU session, and to the UPF."""
    if hosts.role != "agf":
        pings(hosts.homes[name], target)
    else:
        done = hosts.homes[name].run("ping", "-c", "1", "-W", "1", target, check=False)
        assert " 0 received" in done.stdout, done.stdout


def test_the_internet_pings_the_subscriber(hosts, name):
    pings(hosts.core, hosts.lines[name].ip4, "-I", SERVER4)


@pytest.mark.parametrize("host", [SERVER4, f"[{SERVER6}]"])
def test_a_subscriber_loads_a_page(hosts, name, host):
    done = hosts.homes[name].run("curl", "-sS", "-g", "--max-time", "60", f"http://{host}/", check=False)
    assert done.stdout == "a page of the internet\n" * 500, done.stderr


@pytest.mark.parametrize("reverse", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("target", [SERVER4, SERVER6])
def test_tcp_runs_in_both_directions(hosts, lab, name, target, reverse):
    # A server for one run: one that has served another may still be closing when the next client comes.
    server = lab.process(hosts.core, "iperf3", "-s", "-1", log="iperf3.log")
    wait_until(lambda: hosts.listens(5201))
    command = ["iperf3", "-J", "-c", target, "-n", "1M", *(["-R"] if reverse else [])]
    done = hosts.homes[name].run(*command, check=False)
    server.child.wait(30)
    result = json.loads(done.stdout)
    assert "error" not in result, result["error"]
    assert result["end"]["sum_received"]["bytes"] > 100_000


def test_a_traceroute_shows_a_router_but_not_a_tunnel(hosts, name):
    done = hosts.homes[name].run("ping", "-c", "1", "-t", "1", "-W", "10", SERVER4, check=False)
    assert ("Time to live exceeded" in done.stdout) == (hosts.role != "agf"), done.stdout
