# SPDX-License-Identifier: Apache-2.0
"""Walled gardens: HTTP is redirected to a portal until a CoA lifts it. Clients are curl and the kernel."""

import socket
import subprocess
import sys

import pytest
from lab import Gateway, Home, Line, thing
from lab.laboratory import wait_until
from lab.radius import SECRET, FreeRadius, radclient

ACCESS_MAC, CORE_MAC = "02:00:00:00:aa:01", "02:00:00:00:aa:02"
GATEWAY4, GATEWAY6 = "100.64.0.1", "2001:db8:0:1::1"
CORE4, CORE6, HOST4, HOST6 = "192.0.2.1", "2001:db8:0:2::1", "192.0.2.2", "2001:db8:0:2::2"
# Hosts behind the core: the portal, a name server and the rest of the Internet.
PORTAL4, PORTAL6 = "198.51.100.80", "2001:db8:80::80"
WEB4, WEB6 = "203.0.113.9", "2001:db8:9::9"
NAS, SERVER = "10.9.9.1", "10.9.9.2"
IPOE = Line("ipoe", "02:00:00:00:01:01", "100.64.0.11", "2001:db8:1:1::1", vlans=(100, 1))
PPPOE = Line("pppoe", "02:00:00:00:01:02", "100.64.0.12", "2001:db8:1:2::1", vlans=(100, 2), pppoe=7)
GUEST = Line("guest", "02:00:00:00:01:03", "100.64.0.13", vlans=(200,))
LOST = Line("lost", "02:00:00:00:01:04", "100.64.0.14", vlans=(201,))
USERS = f"""
"{GUEST.mac}" Auth-Type := Accept
	Framed-IP-Address = {GUEST.ip4},
	Cisco-AVPair = "url-redirect=http://{PORTAL4}/late?m={{mac}}"

"{LOST.mac}" Auth-Type := Accept
	Framed-IP-Address = {LOST.ip4},
	Cisco-AVPair = "url-redirect=http://nowhere.example/"
"""
WEB = """
import http.server, socket, sys
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ("hello from " + self.connection.getsockname()[0].removeprefix("::ffff:") + self.path).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
Server(("::", 80), Hello).serve_forever()
"""


def access(line):
    where = {"port": "access", "outerVlan": line.vlans[0], "innerVlan": line.vlans[1], "mac": line.mac}
    return where | ({"pppoeSessionId": line.pppoe} if line.pppoe else {"proxyArp": True})


def session(line, **policy):
    addresses = [f"{line.ip4}/32", line.ip6.rsplit("::", 1)[0] + "::/64"]
    return thing("Session", line.name, access=access(line), addresses=addresses, policy=policy)


class Site:
    def __init__(self, lab):
        self.lab = lab
        self.clients, self.inside, self.core, self.aaa = (
            lab.namespace(each) for each in ("clients", "inside", "core", "aaa")
        )
        for ours, other, theirs in (("acc0", self.clients, "line"), ("core0", self.core, "uplink")):
            self.inside.link(ours, other, theirs)
            self.inside.silent(ours)
        self.clients.silent("line")
        for address in (f"{HOST4}/24", f"{HOST6}/64"):
            self.core.ip("addr", "add", address, "dev", "uplink", *(("nodad",) if ":" in address else ()))
        for address in (f"{PORTAL4}/32", f"{WEB4}/32", f"{PORTAL6}/128", f"{WEB6}/128"):
            self.core.ip("addr", "add", address, "dev", "lo", *(("nodad",) if ":" in address else ()))
        self.core.ip("route", "add", "default", "via", CORE4)
        self.core.ip("-6", "route", "add", "default", "via", CORE6)
        lab.process(self.core, sys.executable, "-c", WEB, log="web.log")
        self.inside.link("aaa0", self.aaa, "nas")
        self.inside.ip("addr", "add", f"{NAS}/24", "dev", "aaa0")
        self.aaa.ip("addr", "add", f"{SERVER}/24", "dev", "nas")
        self.server = FreeRadius(lab, self.aaa, SERVER, USERS)
        self.gateway = Gateway(lab, self.inside)
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC),
            thing("Port", "core", device="net_af_packet1,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32", f"{GATEWAY6}/128"]),
            thing("Interface", "core", port="core", addresses=[f"{CORE4}/24", f"{CORE6}/64"]),
            thing("Route", "default4", prefix="0.0.0.0/0", nextHops=[{"address": HOST4}]),
            thing("Route", "default6", prefix="::/0", nextHops=[{"address": HOST6}]),
            self.portal(),
            session(IPOE, portal="garden"),
            session(PPPOE, portal="garden"),
            thing(
                "RadiusServer", "aaa", address=SERVER, sourceAddress=NAS, secret=SECRET, timeout="2s", transmissions=1
            ),
            thing(
                "RadiusPolicy",
                "guests",
                authentication=[{"server": "aaa"}],
                nasIdentifier="bng-1",
                dynamicAuthorization={"address": NAS, "requireMessageAuthenticator": True},
            ),
            thing("SubscriberProfile", "guests", authentication=["radius"], gateway=GATEWAY4),
            thing(
                "IpoeServer",
                "guests",
                port="access",
                outerVlans=["200-201"],
                profile="guests",
                methods=["ipoe_first_packet"],
            ),
        )
        self.home = Home(lab, self.clients, "line", ACCESS_MAC)
        self.homes = {
            line.name: self.home.subscriber(line, GATEWAY4, GATEWAY6 if line.ip6 else "")
            for line in (IPOE, PPPOE, GUEST, LOST)
        }

    @staticmethod
    def portal(**more):
        url = "http://portal.example/?u={url}&s={session}&a={address}"
        return thing("Portal", "garden", **({"url": url, "allowed": [f"{PORTAL4}/32", f"{PORTAL6}/128"]} | more))

    def curl(self, line, url, *options, check=True):
        command = ("curl", "-s", "-g", "--max-time", "20", "-o", "-", "-w", r"\n%{http_code} %{redirect_url}", *options)
        done = self.homes[line.name].run(*command, url, check=False)
        assert not check or done.returncode == 0, f"curl {url}: {done.returncode} {done.stdout} {self.gateway.drops()}"
        return done.stdout.rsplit("\n", 1)

    def guest(self):
        (found,) = self.gateway.json("subscriber", "list", "--mac", GUEST.mac)
        return found


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


@pytest.mark.parametrize("line", [IPOE, PPPOE], ids=lambda line: line.name)
@pytest.mark.parametrize("version", [4, 6])
def test_curl_is_redirected_to_the_portal_and_reaches_it(site, line, version):
    web, portal = (WEB4, PORTAL4) if version == 4 else (f"[{WEB6}]", f"[{PORTAL6}]")
    address = line.ip4 if version == 4 else line.ip6.replace(":", "%3A")
    body, said = site.curl(line, f"http://{web}/a?b=c")
    quoted = web.replace("[", "%5B").replace("]", "%5D").replace(":", "%3A")
    where = f"http://portal.example/?u=http%3A%2F%2F{quoted}%2Fa%3Fb%3Dc&s={line.name}&a={address}"
    assert said == f"302 {where}"
    assert "302 Found" in body
    body, said = site.curl(line, f"http://{portal}/in")
    assert (body, said) == (f"hello from {portal.strip('[]')}/in", "200 ")


def test_a_request_of_many_segments_is_answered(site):
    _, said = site.curl(IPOE, f"http://{WEB4}/x", "-H", "Cookie: " + "c" * 6000, "--data", "d" * 20000)
    assert said.startswith("302 http://portal.example/?u=http%3A%2F%2F203.0.113.9%2Fx")


def test_https_is_dropped_by_name_and_ssh_on_port_80_is_reset(site):
    before = site.gateway.drops().get("portal-denied", 0)
    done = site.homes["ipoe"].run("curl", "-s", "--max-time", "2", f"https://{WEB4}/", check=False)
    assert done.returncode != 0
    site.gateway.dropped("portal-denied", 20, before)
    client = site.homes["ipoe"].inside(socket.create_connection, (WEB4, 80), 20)
    client.sendall(b"SSH-2.0-test\r\n")
    with pytest.raises(ConnectionResetError):
        client.recv(100)
    client.close()


def test_pings_reach_only_the_gateway_and_the_portal(site):
    home = site.homes["pppoe"]
    for address in (GATEWAY4, PORTAL4, GATEWAY6, PORTAL6):
        home.run("ping", "-c", "1", "-W", "20", address)
    assert home.run("ping", "-c", "1", "-W", "1", WEB4, check=False).returncode == 1


def test_a_portal_changes_and_goes_while_sessions_are_in_it(site):
    site.gateway.apply(site.portal(allowed=[f"{PORTAL4}/32", f"{WEB4}/32", f"{PORTAL6}/128"]))
    assert site.curl(IPOE, f"http://{WEB4}/") == [f"hello from {WEB4}/", "200 "]
    site.gateway.apply(site.portal(url="https://other.example/"))
    wait_until(lambda: site.curl(IPOE, f"http://{WEB4}/")[1] == "302 https://other.example/")
    site.gateway.apply(session(IPOE), session(PPPOE))
    assert site.curl(IPOE, f"http://{WEB4}/")[1] == "200 "
    site.gateway.apply(site.portal(), session(IPOE, portal="garden"), session(PPPOE, portal="garden"))
    assert site.curl(IPOE, f"http://{WEB4}/")[1].startswith("302 ")


def test_a_connection_of_before_the_garden_is_reset_when_it_goes_on(site):
    site.gateway.apply(session(IPOE))
    client = site.homes["ipoe"].inside(socket.create_connection, (WEB4, 80), 20)
    site.gateway.apply(session(IPOE, portal="garden"))
    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        client.recv(100)
    client.close()


def test_radius_puts_a_guest_into_a_garden_and_a_coa_lifts_it_without_losing_a_packet(site):
    # Its URL is of no Portal: the subscriber gets no session.
    site.homes["lost"].run("ping", "-c", "1", "-W", "1", GATEWAY4, check=False)
    site.gateway.apply(site.portal(url=f"http://{PORTAL4}/early"))
    # The first packet brings the session up.
    home = site.homes["guest"]
    wait_until(lambda: home.run("ping", "-c", "1", "-W", "1", PORTAL4, check=False).returncode == 0, 60)
    assert site.guest()["portal"] == "garden"
    mac = GUEST.mac.replace(":", "%3A")
    assert site.curl(GUEST, f"http://{WEB4}/")[1] == f"302 http://{PORTAL4}/late?m={mac}"
    assert not site.gateway.json("subscriber", "list", "--mac", LOST.mac)

    command = ("ping", "-i", "0.02", "-c", "250", "-W", "20", PORTAL4)
    ping = subprocess.Popen(["ip", "netns", "exec", home.name, *command], stdout=subprocess.PIPE, text=True)
    identity = f"Framed-IP-Address = {GUEST.ip4}"
    signed = "Message-Authenticator = 0x00"
    for redirect, code in (("-", "200"), ("garden", "302"), ("http://other.example/", None), ("-", "200")):
        answer = radclient(site.aaa, NAS, "coa", signed, identity, f'Cisco-AVPair = "url-redirect={redirect}"')
        assert ("Received CoA-ACK" if code else "Received CoA-NAK") in answer
        if code:
            assert site.curl(GUEST, f"http://{WEB4}/")[1].startswith(f"{code} ")
    said, _ = ping.communicate(timeout=120)
    assert "250 packets transmitted, 250 received" in said
    assert "portal" not in site.guest()
    assert site.curl(GUEST, f"http://{WEB4}/x") == [f"hello from {WEB4}/x", "200 "]


def test_a_garden_outlives_the_agent(site):
    answer = radclient(
        site.aaa,
        NAS,
        "coa",
        "Message-Authenticator = 0x00",
        f"Framed-IP-Address = {GUEST.ip4}",
        'Cisco-AVPair = "url-redirect=garden"',
    )
    assert "Received CoA-ACK" in answer
    site.gateway.agent.kill()
    done = site.homes["guest"].run("ping", "-c", "1", "-W", "1", WEB4, check=False)
    assert done.returncode == 1
    site.homes["guest"].run("ping", "-c", "1", "-W", "20", PORTAL4)
    site.gateway.start_agent()
    wait_until(lambda: site.curl(GUEST, f"http://{WEB4}/", check=False)[-1] == f"302 http://{PORTAL4}/early", 60)
    assert site.guest()["portal"] == "garden"


def test_a_flood_of_one_subscriber_leaves_the_others_their_redirection(site):
    flooder = site.homes["ipoe"]
    code = f"""
import socket
packet = bytes.fromhex("450000280000000040060000") + socket.inet_aton("{IPOE.ip4}") + socket.inet_aton("{WEB4}")
tcp = bytes.fromhex("000000500000000100000000500220000000" + "0000")
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for n in range(60000):
    s.sendto(packet + n.to_bytes(2, "big") + tcp[2:], ("{WEB4}", 0))
"""
    before = site.gateway.drops().get("punt-rate-limited", 0)
    flood = subprocess.Popen(["ip", "netns", "exec", flooder.name, sys.executable, "-c", code])
    try:
        site.gateway.dropped("punt-rate-limited", 60, before)
        assert site.curl(PPPOE, f"http://{WEB4}/")[1].startswith("302 ")
    finally:
        flood.kill()
        flood.wait()
