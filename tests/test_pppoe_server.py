# SPDX-License-Identifier: Apache-2.0
"""PPPoE subscribers dial in: discovery, authentication, addresses, traffic, and failures."""

import hashlib
import hmac
import ipaddress
import itertools
import json
import re
import struct
import subprocess
import time

import pytest
from lab import Gateway, Wire, frames, thing
from lab.laboratory import wait_until
from lab.pppoe import (
    COOKIE,
    ECHO,
    HOST_UNIQ,
    IPCP,
    IPV6CP,
    LCP,
    MAX_PAYLOAD,
    PADI,
    PADO,
    PADR,
    PADS,
    RELAY_SESSION_ID,
    REQUEST,
    SERVICE_NAME,
    TERMINATE,
    Host,
    tag,
)
from scapy.all import PPP, UDP, ICMPv6NDOptPrefixInfo, ICMPv6NDOptRDNSS, IPv6, rdpcap
from scapy.layers.dhcp6 import DHCP6_Reply, DHCP6OptIAAddress, DHCP6OptIAPrefix

ACCESS_MAC, CORE_MAC = "02:00:00:00:aa:01", "02:00:00:00:aa:02"
GATEWAY4, GATEWAY6 = "100.64.0.1", "2001:db8:64::1"
CORE4, CORE6, SERVER4, SERVER6 = "192.0.2.1", "2001:db8:0:2::1", "192.0.2.2", "2001:db8:0:2::2"
POOL = ipaddress.ip_network("100.64.1.0/24")


def server(name="lines", **spec):
    usual = {
        "outerVlans": ["100-199"],
        "innerVlans": ["1-4094"],
        "profile": "home",
        "acName": "bng-1",
        "discoveryRatePerMac": 200,
    }
    return thing("PppoeServer", name, port="access", **(usual | spec))


class Site:
    def __init__(self, lab):
        self.lab = lab
        self.clients, self.inside, self.servers = (lab.namespace(each) for each in ("clients", "inside", "servers"))
        for ours, other, theirs in (("acc0", self.clients, "line"), ("core0", self.servers, "uplink")):
            self.inside.link(ours, other, theirs)
            self.inside.silent(ours)
        for address in (f"{SERVER4}/24", f"{SERVER6}/64"):
            self.servers.ip("addr", "add", address, "dev", "uplink", *(["nodad"] if ":" in address else []))
        self.servers.ip("route", "add", "default", "via", CORE4)
        self.servers.ip("-6", "route", "add", "default", "via", CORE6)
        self.gateway = Gateway(lab, self.inside)
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC),
            thing("Port", "core", device="net_af_packet1,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32", f"{GATEWAY6}/128"]),
            thing("Interface", "core", port="core", addresses=[f"{CORE4}/24", f"{CORE6}/64"]),
            thing("AddressPool", "home", ranges=[str(POOL)], gateway=GATEWAY4, dns=["192.0.2.53", "192.0.2.54"]),
            thing("AddressPool", "links", ranges=["2001:db8:100::/40"], prefixLength=64, dns=["2001:db8::53"]),
            thing("AddressPool", "hosts", ranges=["2001:db8:300::/64"]),
            thing("AddressPool", "networks", ranges=["2001:db8:200::/40"], prefixLength=56),
            thing(
                "SubscriberProfile",
                "home",
                authentication=["local"],
                ipv4Pools=["home"],
                ipv6Pools=["links", "hosts"],
                delegatedPools=["networks"],
            ),
            *(thing("LocalUser", name, username=name, password=f"{name}-secret") for name in ("alice", "bob")),
            thing("LocalUser", "dave", username="dave", password="dave-secret", ipv4Address="100.64.7.7"),
            server(),
        )
        self.punts(2)
        self.wire = Wire(self.clients, "line")
        lab.on_close(self.wire.close)

    def host(self, number, *vlans, user="alice", **options):
        mac = f"02:00:00:00:05:{number:02x}"
        return Host(self.wire, mac, *vlans, username=user, password=f"{user}-secret", **options)

    def punts(self, number):
        """Waits until the data plane has so many of the servers' Punts."""

        def states():
            return [each["status"]["state"].lower() for each in self.gateway.json("get", "punts") or []]

        wait_until(lambda: states() == ["applied"] * number)

    def sessions(self):
        """Specs by MAC."""
        found = self.gateway.json("get", "sessions") or []
        # One that is being deleted has no spec.
        specs = [each["spec"] for each in found if each["spec"].get("access", {}).get("mac")]
        return {each["access"]["mac"]: each for each in specs}

    def lacks(self, host):
        wait_until(lambda: frames.mac_text(host.mac) not in self.sessions(), 30, f"{self.sessions()}")


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


@pytest.mark.parametrize("method", ["pap", "chap"])
def test_a_host_dials_in_gets_addresses_pings_and_hangs_up(site, method):
    host = site.host(1, 100, 7, method=method)
    assert host.dial()
    assert ipaddress.ip_address(host.address) in POOL
    assert host.gateway == ipaddress.ip_address(GATEWAY4).packed
    assert [str(ipaddress.ip_address(each)) for each in host.dns] == ["192.0.2.53", "192.0.2.54"]
    access = site.sessions()[frames.mac_text(host.mac)]["access"]
    assert (access["outerVlan"], access["innerVlan"], access["pppoeSessionId"]) == (100, 7, host.session)
    host.ping(SERVER4, 1)
    host.hang_up()
    site.lacks(host)


def test_ipv6_comes_by_router_advertisement_and_dhcpv6(site):
    host = site.host(2, 100, 8)
    assert host.dial()
    host.until(lambda: host.advertisement, "router advertisement")
    advertisement = IPv6(host.advertisement)
    prefix = advertisement[ICMPv6NDOptPrefixInfo]
    assert prefix.prefixlen == 64
    assert advertisement[ICMPv6NDOptRDNSS].dns == ["2001:db8::53"]
    source = prefix.prefix.rstrip(":") + "::7"
    host.ping(SERVER6, 5, source=source)
    # A solicitation is answered, too.
    host.advertisement = None
    link_local = b"\xfe\x80" + bytes(6) + host.identifier
    all_routers = ipaddress.ip_address("ff02::2").packed
    host.ppp(0x0057, frames.icmp6(link_local, all_routers, 133, bytes(4)))
    host.until(lambda: host.advertisement, "solicited router advertisement")
    # DHCPv6 for an address, and for a prefix of its own.
    associations = "0003000c000000010000000000000000 0019000c000000010000000000000000"
    solicit = bytes.fromhex(f"01 010203 0001000a00030001020000000502 {associations} 000e0000")
    datagram = frames.udp(str(ipaddress.ip_address(link_local)), "ff02::1:2", 546, 547, solicit)
    host.ppp(0x0057, datagram)
    found = []

    def replied(protocol, payload, before=host.receive_ppp):
        if protocol == 0x0057 and payload[6] == 17:
            found.append(IPv6(payload))
        before(protocol, payload)

    host.receive_ppp = replied
    host.until(lambda: found, "DHCPv6 is answered")
    assert DHCP6_Reply in found[0]
    assert found[0][UDP].dport == 546
    delegated, given = found[0][DHCP6OptIAPrefix], found[0][DHCP6OptIAAddress]
    addresses = site.sessions()[frames.mac_text(host.mac)]["addresses"]
    assert {f"{delegated.prefix}/{delegated.plen}", f"{given.addr}/128"} <= set(addresses)
    host.ping(SERVER6, 6, source=given.addr)
    host.ping(SERVER6, 7, source=str(ipaddress.ip_address(delegated.prefix) + 1))
    host.packet(LCP, TERMINATE, 9)
    host.until(lambda: host.ended, "PADT")
    site.lacks(host)


def test_a_wrong_password_is_refused_and_leaves_nothing(site):
    for method in ("pap", "chap"):
        host = site.host(3, 100, 9, method=method)
        host.password = b"wrong"
        assert not host.dial()
        host.until(lambda host=host: host.ended, "PADT")
        site.lacks(host)
    rejected = [line for log in site.gateway.logs().values() for line in log.splitlines() if "is rejected" in line]
    assert any("wrong password" in line and "circuit=access:100.9" in line for line in rejected), rejected


def test_the_address_of_a_user_is_the_one_that_is_configured(site):
    host = site.host(4, 100, 10, user="dave")
    assert host.dial(IPCP)
    assert host.ip4() == "100.64.7.7"
    host.hang_up()
    site.lacks(host)


def test_the_agent_dies_and_comes_back_and_no_host_notices(site):
    host = site.host(5, 101, 1)
    assert host.dial()
    magic = host.lcp_echo()
    assert magic == host.peer_magic
    address, session = host.address, host.session
    host.ping(SERVER4, 1)
    site.gateway.agent.kill()
    # Without the agent, the data plane answers.
    assert host.lcp_echo() == magic
    for number in range(2, 40):
        host.ping(SERVER4, number)
    site.gateway.start_agent()
    for number in range(40, 80):
        host.ping(SERVER4, number)
    wait_until(lambda: site.sessions().get(frames.mac_text(host.mac)), 30)

    # The link is the same one, and the new agent negotiates with it.
    assert host.lcp_echo() == magic
    host.peer_acked.discard(IPCP)

    def negotiated():
        host.request(IPCP)
        for raw in site.wire.frames(0.5):
            host.receive(raw)
            if host.open(IPCP):
                return True
        return False

    wait_until(negotiated, 30)
    assert (host.address, host.session, host.ended) == (address, session, False)
    # The new agent's termination reaches the host.
    host.hang_up()
    site.lacks(host)
    assert host.dial(IPCP)
    host.hang_up()
    site.lacks(host)


def test_hosts_are_probed_without_the_agent_and_lost_ones_end_with_their_cause(site):
    site.gateway.apply(server("asks", outerVlans=["200"], echoInterval="1s", echoFailures=2))
    site.punts(4)
    gone, there = site.host(20, 200, 1), site.host(21, 200, 2)
    assert gone.dial(IPCP)
    assert there.dial(IPCP)
    gone_mac, there_mac = (frames.mac_text(each.mac) for each in (gone, there))
    access = site.sessions()[gone_mac]["access"]
    assert (access["lcpEchoInterval"], access["lcpEchoFailures"]) == (1000000000, 2)
    there.until(lambda: there.echoes >= 2, "the data plane asks")
    site.gateway.agent.kill()
    there.echoes = 0
    # The other one is unanswered, and there is no agent that could notice.
    there.until(lambda: there.echoes >= 5, "the data plane asks without the agent")
    site.gateway.start_agent()
    there.until(lambda: gone_mac not in site.sessions(), "the session ends", 60)
    wait_until(lambda: "cause=lost-carrier" in site.gateway.agent.log.read_text())
    assert there_mac in site.sessions() and not there.ended
    there.ping(SERVER4, 1)
    # A host that sends packets is not probed.
    there.echoes = 0
    for number in range(2, 27):
        there.ping(SERVER4, number)
        for raw in site.wire.frames(0.1):
            there.receive(raw)
    assert there.echoes <= 1
    there.hang_up()
    site.lacks(there)
    site.gateway.delete("PppoeServer", "asks")


def test_the_data_plane_starts_anew_and_the_host_goes_on(site):
    host = site.host(14, 101, 4)
    assert host.dial(IPCP)
    magic = host.lcp_echo()
    site.gateway.dataplane.kill()
    site.gateway.start_dataplane()

    numbers = itertools.count(1)

    def answered():
        try:
            host.ping(SERVER4, next(numbers), 0.5)
        except AssertionError:
            return False
        return True

    wait_until(answered, 60)
    assert host.lcp_echo() == magic
    assert not host.ended
    host.hang_up()
    site.lacks(host)


def test_a_session_of_before_is_ended_by_padt(site):
    host = site.host(6, 101, 2)
    host.session = 4711
    host.server = frames.mac_bytes(ACCESS_MAC)
    host.packet(LCP, ECHO, 1, host.magic)
    host.until(lambda: host.ended, "PADT")


def test_a_host_that_lost_power_is_back_at_once(site):
    host = site.host(7, 101, 3)
    assert host.dial(IPCP)
    first = host.session
    assert host.dial(IPCP)
    assert host.session != first
    wait_until(
        lambda: site.sessions()[frames.mac_text(host.mac)]["access"]["pppoeSessionId"] == host.session,
        30,
    )
    host.ping(SERVER4, 1)
    host.hang_up()
    site.lacks(host)


def test_several_hosts_share_a_vlan(site):
    hosts = [site.host(0x10 + number, 102, 1, user=user) for number, user in enumerate(("alice", "bob", "dave"))]
    for host in hosts:
        assert host.dial(IPCP)
    assert len({host.address for host in hosts}) == len({host.session for host in hosts}) == 3
    for number, host in enumerate(hosts):
        host.ping(SERVER4, number)
    for host in hosts:
        host.hang_up()
    for host in hosts:
        site.lacks(host)


def test_discovery_repeats_the_hosts_tags(site):
    host = site.host(8, 103, 1)
    uniq = tag(HOST_UNIQ, b"a Host-Uniq that is longer than most")
    host.discover(uniq, tag(MAX_PAYLOAD, b"\x05\xdc"), service=b"any")
    for code in (PADO, PADS):
        source, _, tags = host.discovered[code]
        assert frames.mac_text(source) == ACCESS_MAC
        assert (HOST_UNIQ, b"a Host-Uniq that is longer than most") in tags
        assert (SERVICE_NAME, b"any") in tags
        assert MAX_PAYLOAD not in dict(tags)
    assert host.session != 0
    # Tags of a relay on the way come back, too (RFC 2516 appendix A).
    relayed = site.host(24, 103, 4)
    relayed.discover(tag(RELAY_SESSION_ID, b"relay 7"))
    for code in (PADO, PADS):
        assert (RELAY_SESSION_ID, b"relay 7") in relayed.discovered[code][2]


def offered(host, service=b"", seconds=20):
    """Whether an offer comes."""
    host.reset()
    host.discovery(PADI, tag(SERVICE_NAME, service), destination=b"\xff" * 6)
    for raw in host.wire.frames(seconds):
        host.receive(raw)
        if PADO in host.discovered:
            return True
    return False


def test_offers_depend_on_the_service_the_load_and_the_limits(site):
    def limits(**more):
        usual = {"outerVlans": ["220"], "serviceNames": ["internet", "voice"], "sessionsPerCircuit": 1}
        site.gateway.apply(server("limits", **usual, **more))

    limits(padoDelays=[{"sessions": 1, "delay": "300ms"}, {"sessions": 3, "refuse": True}])
    site.punts(4)

    hosts = [site.host(0x30 + number, 220, number) for number in (1, 2, 3, 4)]
    first, second, third, fourth = hosts
    # Any of the list, and the list itself for a host that names none (RFC 2516 section 5.1).
    assert offered(first, b"voice") and (SERVICE_NAME, b"voice") in first.discovered[PADO][2]
    assert offered(first)
    assert [value for kind, value in first.discovered[PADO][2] if kind == SERVICE_NAME] == [b"", b"internet", b"voice"]
    assert not offered(first, b"video", seconds=0.5)

    def dial(host):
        host.reset()
        host.discover(service=b"internet")
        host.link()
        assert host.authenticate()

    dial(first)
    # One session is all that its circuit may have.
    assert not offered(site.host(0x35, 220, 1), b"internet", seconds=0.5)
    dial(second)
    dial(third)
    assert not offered(fourth, b"internet", seconds=0.5)
    third.hang_up()
    site.lacks(third)
    assert offered(fourth, b"internet")
    # Of the server, and of the port, which has sessions of other tests, too.
    for limit in ("sessions", "sessionsPerPort"):
        limits(**{limit: 2})
        assert not offered(fourth, b"internet", seconds=0.5)
        limits()
        assert offered(fourth, b"internet")
    for host in (first, second):
        host.hang_up()
    site.gateway.delete("PppoeServer", "limits")


def test_hosts_that_stop_halfway_leave_room_to_other_circuits(lab, site):
    site.gateway.apply(server("half", outerVlans=["230"], halfOpen=4))
    site.punts(4)
    circuits = (1, 1, 1, 2, 3, 4)
    first, second, late, other, third, fourth = (site.host(0x40 + n, 230, inner) for n, inner in enumerate(circuits))
    for host in (first, second, other, third, fourth):
        # Each host reads its own wire.
        host.wire = Wire(site.clients, "line")
        lab.on_close(host.wire.close)
        host.reset()
    first.discover()
    second.discover()
    # One circuit gets half of them.
    assert not offered(late, seconds=0.5)
    other.discover()
    third.discover()
    # All are taken: the circuit with the most gives up its oldest one.
    fourth.discover()
    first.request(LCP)
    first.until(lambda: first.ended, "PADT")
    for host in (second, other, third, fourth):
        host.link()
        assert host.authenticate()
        host.hang_up()
    # A session that is authenticated makes room.
    assert offered(late)
    site.gateway.delete("PppoeServer", "half")


def test_a_server_with_a_delay_answers_after_one_without(site):
    """Of two servers on one VLAN, hosts choose the one that answers first."""
    slow = server("slow", outerVlans=["231"], padoDelays=[{"delay": "1s"}])
    site.gateway.apply(slow, server("fast", outerVlans=["232"]))
    site.punts(6)
    hosts = [site.host(0x48 + n, 231 + n, 1) for n in (0, 1)]
    for host in hosts:
        host.discovery(PADI, tag(SERVICE_NAME), destination=b"\xff" * 6)
    order = []
    for raw in site.wire.frames(20):
        for host in hosts:
            host.receive(raw)
            if PADO in host.discovered and host not in order:
                order.append(host)
        if len(order) == len(hosts):
            break
    assert order == hosts[::-1]
    for name in ("slow", "fast"):
        site.gateway.delete("PppoeServer", name)


def test_a_cookie_is_good_for_a_minute_at_most(site):
    host = site.host(0x50, 103, 5)

    def cookie(secret, slot):
        """As the agent makes it in a slot of 30 seconds."""
        where = host.mac + struct.pack("!HH", 103, 5) + b"default\0access"
        return hmac.new(secret, struct.pack("!Q", slot) + where, hashlib.sha256).digest()[:16]

    assert offered(host)
    (given,) = (value for kind, value in host.discovered[PADO][2] if kind == COOKIE)
    now = int(time.time()) // 30
    # The agent's secret is in its durable log.
    log = b"".join(each.read_bytes() for each in site.gateway.directory.glob("intent.db.records/*"))
    found = (log[at : at + 32] for at in range(len(log) - 31) if log.find(b"cookie", max(at - 32, 0), at) >= 0)
    secret = next(each for each in found if given in (cookie(each, now), cookie(each, now - 1)))
    host.server = host.discovered[PADO][0]
    for slot in (now - 2, now):
        host.discovery(PADR, tag(SERVICE_NAME) + tag(COOKIE, cookie(secret, slot)))
    # The answer to the last packet shows that the server has read those before.
    host.until(lambda: PADS in host.discovered, "PADS")
    host.session = host.discovered[PADS][1]
    assert host.session != 0
    site.wire.expect_none(lambda raw: raw[:6] == host.mac and raw[23] == PADS, 0.3)
    host.hang_up()


def test_a_host_without_a_cookie_gets_nothing(site):
    host = site.host(9, 103, 2)
    host.server = frames.mac_bytes(ACCESS_MAC)
    host.discovery(PADR, tag(SERVICE_NAME))
    host.discovery(PADR, tag(SERVICE_NAME) + tag(0x0104, bytes(16)))
    # The last packet shows that all before were processed.
    host.discover()
    assert len([each for each in host.discovered if each == PADS]) == 1
    assert host.session != 0


def test_network_protocols_before_authentication_wait(site):
    host = site.host(10, 103, 3)
    host.reset()
    host.discover()
    host.link()
    host.request(IPCP)
    host.request(IPV6CP)
    assert host.authenticate()
    host.request(IPCP)
    host.until(lambda: host.open(IPCP), "IPCP is open")
    # The same LCP request again changes nothing.
    host.packet(LCP, REQUEST, host.asked[LCP], b"\x01\x04\x05\xd4\x05\x06" + host.magic)
    host.ping(SERVER4, 3)
    host.hang_up()
    site.lacks(host)


def test_a_host_that_negotiates_lcp_again_authenticates_again_and_keeps_its_session(site):
    host = site.host(25, 107, 1)
    assert host.dial(IPCP)
    address, session = host.address, host.session
    # RFC 1661 section 4.4: a Configure-Request in the state Opened begins the link anew.
    host.acked.clear()
    host.peer_acked.clear()
    host.authenticated = None
    host.link()
    assert host.authenticate()
    host.request(IPCP)
    host.until(lambda: host.open(IPCP), "IPCP is open again")
    assert (host.address, host.session, host.ended) == (address, session, False)
    host.ping(SERVER4, 1)
    # With the credentials of another, it is another session.
    host.username, host.password, host.authenticated = b"bob", b"bob-secret", None
    host.acked.clear()
    host.peer_acked.clear()
    host.request(LCP)
    host.until(lambda: host.open(LCP) or host.ended, "LCP is open")
    if not host.ended:
        host.authenticate()
    host.until(lambda: host.ended, "PADT")
    site.lacks(host)


def test_a_subscriber_is_captured_and_followed_by_name(site):
    host = site.host(22, 106, 1, user="bob")
    assert host.dial(IPCP)
    path = site.lab.directory / "bob.pcap"
    command = site.gateway.command("capture", "--subscriber", "bob", "--count", "3", "-w", path)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as capture:
        assert capture.stderr.readline() == "Capturing; Ctrl-C ends.\n"
        other = site.host(23, 106, 2)
        assert other.dial(IPCP)
        other.ping(SERVER4, 1)
        host.ping(SERVER4, 1)
        host.lcp_echo()
        assert capture.wait(30) == 0
    packets = rdpcap(str(path))
    assert {each.src for each in packets} == {frames.mac_text(host.mac), ACCESS_MAC}
    assert [each[PPP].proto for each in packets] == [0x21, 0x21, LCP]
    address = str(ipaddress.ip_address(host.address))
    command = site.gateway.command("trace", "--subscriber", address, "--count", "1", "icmp")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as trace:
        assert "Waiting for 1 packet" in trace.stderr.readline()
        host.ping(SERVER4, 2)
        said, _ = trace.communicate(timeout=30)
    assert "session-up4" in said and said.count("packet 1") == 1
    for wrong, why in (
        (("--subscriber", "nobody"), "no subscriber"),
        (("--subscriber", "bob", "--session", "x"), "--session"),
    ):
        done = site.gateway.sluice("capture", *wrong, "-w", path, check=False)
        assert done.returncode == 1 and why in done.stderr
    host.hang_up()
    other.hang_up()
    site.lacks(host)


def test_a_server_whose_punt_is_refused_is_not_ready(site):
    def ready():
        (found,) = site.gateway.json("get", "pppoe-servers", "twice")
        (condition,) = (each for each in found["status"]["conditions"] if each["type"] == "Ready")
        return condition

    # Another Punt takes discovery of these circuits.
    taken = thing(
        "Punt", "mine", port="access", outerVlans=["300"], innerVlans=["1-4094"], protocols=["pppoe_discovery"]
    )
    site.gateway.apply(taken, server("twice", outerVlans=["300"]), wait=False)
    wait_until(lambda: ready()["status"] == "False")
    assert ready()["reason"] == "PuntRefused" and "Punt/pppoe-twice" in ready()["message"]
    assert "PuntRefused" in site.gateway.sluice("describe", "pppoeserver", "twice").stdout
    site.gateway.delete("Punt", "mine")
    wait_until(lambda: ready()["status"] == "True")
    site.gateway.delete("PppoeServer", "twice")


def test_floods_do_not_keep_others_out(site):
    flood = site.host(11, 104, 1)
    header = bytes.fromhex("1109 0000 0004 01010000")
    before = site.gateway.drops().get("punt-circuit-rate-limited", 0)
    for _ in range(3000):
        site.wire.send(flood.ethernet(frames.PPPOE_DISCOVERY, header, b"\xff" * 6))
    quiet = site.host(12, 104, 1)
    assert quiet.dial(IPCP)
    assert site.gateway.drops()["punt-circuit-rate-limited"] > before
    quiet.hang_up()
    site.lacks(quiet)


def test_a_server_that_goes_takes_its_sessions_along(site):
    host = site.host(13, 105, 1)
    assert host.dial(IPCP)
    (lines,) = site.gateway.json("get", "pppoe-server", "lines")
    narrower = {**lines["spec"], "outerVlans": ["4000"]}
    planned = site.gateway.sluice("plan", "-f", "-", input=json.dumps(thing("PppoeServer", "lines", **narrower)))
    # Those of hosts of other tests may not have ended yet.
    assert re.search(r"PppoeServer/lines: ends \d+ sessions?$", planned.stderr, re.M), planned.stderr
    deleted = site.gateway.sluice("delete", "pppoe-server", "lines")
    assert re.search(r"PppoeServer/lines: ends \d+ sessions?$", deleted.stderr, re.M), deleted.stderr
    host.until(lambda: host.ended, "PADT")
    site.lacks(host)
    wait_until(lambda: not site.gateway.json("get", "punts"), 30)
