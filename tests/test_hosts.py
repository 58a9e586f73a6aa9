"""Real hosts: the kernel's ping, iperf3 and curl on both sides of a gateway, as BNG and as AGF."""

import json

import pytest
from lab import Gateway, Home, Line, Upf, thing
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
            self.core.ip("-6", "route", "add", "2001:db8:5::/48", "via", CORE6)
        for line in LINES.values():
            # TCP's segments leave room for PPPoE and for GTP-U, whose tunnels do not carry 1,500 bytes.
            extra = {"policy": {"mss": 1320}}
            if role == "agf":
                upf.add(line, CORE4, qfi=9)
                ends = {"localAddress": CORE4, "localTeid": line.teid_down}
                ends |= {"remoteAddress": HOST4, "remoteTeid": line.teid_up}
                extra["gtpu"] = ends | {"pduSessionContainer": True, "qfi": 9}
            objects.append(session(line, **extra))
        self.gateway.apply(*objects)
        home = Home(lab, outside, "line", ACCESS_MAC)
        self.homes = {name: home.subscriber(line, GATEWAY4, GATEWAY6) for name, line in LINES.items()}
        page = lab.directory / "www"
        page.mkdir()
        (page / "index.html").write_text("a page of the internet\n" * 500)
        serve = ["python3", "-m", "http.server", "80", "--bind", "::", "--directory", str(page)]
        lab.process(self.core, *serve, log="http.log")
        wait_until(lambda: self.listens(80))

    def listens(self, port):
        return f":{port} " in self.core.run("ss", "-Hltn").stdout


@pytest.fixture(scope="module", params=["bng", "agf"])
def hosts(request, lab):
    # A lab of its own for each role.
    from lab import Lab

    with Lab() as own:
        yield Hosts(own, request.param)


pytestmark = pytest.mark.parametrize("name", LINES)


@pytest.mark.parametrize("target", [SERVER4, SERVER6])
def test_a_subscriber_pings_the_internet(hosts, name, target):
    done = hosts.homes[name].run("ping", "-c", "5", "-i", "0.1", "-W", "10", target, check=False)
    assert " 0% packet loss" in done.stdout, done.stdout


@pytest.mark.parametrize("size", [1000, 1372])
def test_large_pings_pass(hosts, name, size):
    done = hosts.homes[name].run("ping", "-c", "3", "-i", "0.1", "-s", str(size), SERVER4, check=False)
    assert " 0% packet loss" in done.stdout, done.stdout


@pytest.mark.parametrize("target", [GATEWAY4, GATEWAY6])
def test_a_subscriber_pings_its_gateway(hosts, name, target):
    """In an AGF everything but ARP and neighbour discovery belongs to the PDU session, and to the UPF."""
    count, wait = ("3", "10") if hosts.role == "bng" else ("1", "1")
    done = hosts.homes[name].run("ping", "-c", count, "-i", "0.1", "-W", wait, target, check=False)
    assert (" 0% packet loss" in done.stdout) == (hosts.role == "bng"), done.stdout


def test_the_internet_pings_the_subscriber(hosts, name):
    source = ["-I", SERVER4]
    done = hosts.core.run("ping", "-c", "3", "-i", "0.1", "-W", "10", *source, LINES[name].ip4, check=False)
    assert " 0% packet loss" in done.stdout, done.stdout


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
    assert ("Time to live exceeded" in done.stdout) == (hosts.role == "bng"), done.stdout
