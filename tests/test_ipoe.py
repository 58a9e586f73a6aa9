# SPDX-License-Identifier: Apache-2.0
"""IPoE subscribers with real clients: DHCP server, sessions, local users, leases over restarts."""

import ipaddress
import json
import random
import subprocess

import pytest
from lab import Gateway, Wire, thing
from lab.dhcp import Client, Dhclient, hidden_options, nested_relays, options_of
from lab.laboratory import wait_until
from scapy.all import (
    ARP,
    BOOTP,
    ICMP,
    IP,
    UDP,
    Ether,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NS,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
)
from scapy.layers.dhcp6 import (
    DHCP6_RelayForward,
    DHCP6_RelayReply,
    DHCP6_Request,
    DHCP6_Solicit,
    DHCP6OptClientId,
    DHCP6OptIA_NA,
    DHCP6OptIA_PD,
    DHCP6OptIAAddress,
    DHCP6OptIAPrefix,
    DHCP6OptIfaceId,
    DHCP6OptRelayMsg,
    DHCP6OptServerId,
    DHCP6OptStatusCode,
)

ACCESS_MAC, CORE_MAC = "02:00:00:00:aa:01", "02:00:00:00:aa:02"
GATEWAY4, GATEWAY6 = "100.64.0.1", "2001:db8:64::1"
METRICS = "127.0.0.1:9464"
CORE4, INSIDE4 = "192.0.2.1", "192.0.2.2"
STATIC6 = "2001:db8:3::5"
# Circuit ID of a line.
PORT_7 = "olt-1 eth 1/7"
LINE, FIXED4, STATIC4 = "02:00:00:00:07:07", "100.64.7.7", "100.64.7.8"


class Site:
    def __init__(self, lab):
        self.lab = lab
        self.clients, self.inside, self.core = (lab.namespace(each) for each in ("clients", "inside", "core"))
        for ours, other, theirs in (("acc0", self.clients, "line"), ("core0", self.core, "uplink")):
            self.inside.link(ours, other, theirs)
            self.inside.silent(ours)
        self.core.ip("addr", "add", f"{INSIDE4}/24", "dev", "uplink")
        self.core.ip("route", "add", "default", "via", CORE4)
        metrics = {"type": "metrics", "name": "metrics", "listen": METRICS}
        self.gateway = Gateway(lab, self.inside, northbounds=[metrics])
        server = {"port": "access", "profile": "home", "leaseTime": "4s"}
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC),
            thing("Port", "core", device="net_af_packet1,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32", f"{GATEWAY6}/128"]),
            thing("Interface", "core", port="core", addresses=[f"{CORE4}/24"]),
            thing("AddressPool", "home", ranges=["100.64.0.0/24"], gateway=GATEWAY4, dns=["192.0.2.53"]),
            thing("AddressPool", "hosts", ranges=["2001:db8:64::/64"], excluded=[GATEWAY6], dns=["2001:db8::53"]),
            thing("AddressPool", "homes", ranges=["2001:db8:6400::/40"], prefixLength=56),
            thing(
                "SubscriberProfile",
                "home",
                authentication=["local", "none"],
                ipv4Pools=["home"],
                ipv6Pools=["hosts"],
                delegatedPools=["homes"],
                rateDown="100M",
            ),
            thing("SubscriberProfile", "known", authentication=["local"], username="{outer}.{inner}"),
            thing("LocalUser", "line", username=LINE, ipv4Address=FIXED4),
            thing("LocalUser", "static", username="300.3", ipv4Address=STATIC4),
            thing("LocalUser", "static-6", username="300.5", ipv4Address="100.64.7.10", ipv6Address=STATIC6),
            thing("AddressPool", "few", ranges=["100.65.0.1-100.65.0.4"], gateway=GATEWAY4),
            thing("SubscriberProfile", "few", authentication=["none"], ipv4Pools=["few"]),
            thing(
                "SubscriberProfile",
                "by-line",
                authentication=["local"],
                username="{circuit}",
                ipv6Pools=["hosts"],
                gateway=GATEWAY4,
            ),
            thing("LocalUser", "port-7", username=PORT_7, ipv4Address="100.64.7.9"),
            thing("IpoeServer", "lan", **server),
            thing("IpoeServer", "pooled", port="access", profile="few", outerVlans=["401"]),
            thing(
                "IpoeServer",
                "single",
                port="access",
                profile="home",
                outerVlans=["402"],
                clientsPerCircuit=1,
                leaseTime="1h",
            ),
            thing(
                "IpoeServer",
                "trusted",
                port="access",
                profile="by-line",
                outerVlans=["600"],
                relayInformation="trust_information",
            ),
            thing(
                "IpoeServer",
                "few",
                port="access",
                profile="few",
                outerVlans=["400"],
                innerVlans=["1-99"],
                leaseTime="4s",
            ),
            thing(
                "IpoeServer",
                "long",
                port="access",
                profile="home",
                outerVlans=["500"],
                innerVlans=["1-9"],
                leaseTime="1h",
            ),
            thing("IpoeServer", "lines", outerVlans=["100-199"], innerVlans=["1-4094"], ratePerMac=100, **server),
            thing(
                "IpoeServer",
                "static",
                port="access",
                profile="known",
                outerVlans=["300"],
                innerVlans=["1-9"],
                methods=["ipoe_first_packet"],
            ),
        )
        wait_until(lambda: len(self.gateway.json("get", "punts") or []) == 8)
        self.wire = Wire(self.clients, "line")
        lab.on_close(self.wire.close)
        wait_until(Client(self.wire, "02:00:00:00:0f:01", 199, 1).offered4, 60, "the agent answers")

    def sessions(self):
        """Addresses by MAC. A session that is being deleted has no spec."""
        found = [each.get("spec", {}) for each in self.gateway.json("get", "sessions") or []]
        return {each["access"]["mac"]: each.get("addresses", []) for each in found if "access" in each}

    def metric(self, line):
        """The value of a metric with its labels."""
        said = self.inside.run("curl", "-sf", f"http://{METRICS}/metrics").stdout
        return next((float(each.rsplit(" ", 1)[1]) for each in said.splitlines() if each.startswith(f"{line} ")), 0)

    def has(self, mac, *addresses):
        wait_until(lambda: set(addresses) <= set(self.sessions().get(mac, [])), 30, lambda: f"{mac}: {self.sessions()}")

    def lacks(self, mac):
        wait_until(lambda: mac not in self.sessions(), 30, lambda: f"{mac}: {self.sessions()}")

    def pings(self, mac, address, vlans=(), tpids=None):
        client = Client(self.wire, mac, *vlans, tpids=tpids)
        self.wire.send(client.frame(IP(src=address, dst=INSIDE4) / ICMP(id=77), ACCESS_MAC))

        def answer(raw):
            packet = client.mine(raw)
            return packet is not None and ICMP in packet and packet[ICMP].type == 0 and packet[ICMP].id == 77

        return self.wire.expect(answer)


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


def test_dhclient_gets_a_lease_keeps_it_over_a_restart_of_the_agent_and_gives_it_back(lab, site):
    client = Dhclient(lab, site.clients, "line", GATEWAY4)
    wait_until(lambda: client.having("BOUND"), 60, "bound")
    _, address, server = client.having("BOUND")[0]
    mac = site.clients.mac("line")
    assert server == GATEWAY4
    assert site.sessions()[mac] == [f"{address}/32"]
    site.clients.run("ping", "-c", "2", "-i", "0.2", "-W", "10", INSIDE4)
    wait_until(lambda: client.having("RENEW"), 60, "renewed")

    command = ("ping", "-i", "0.05", "-c", "150", "-W", "10", INSIDE4)
    ping = subprocess.Popen(["ip", "netns", "exec", site.clients.name, *command], stdout=subprocess.PIPE, text=True)
    site.gateway.agent.kill()
    site.gateway.start_agent()
    said, _ = ping.communicate(timeout=120)
    assert "150 packets transmitted, 150 received" in said
    before = len(client.having("RENEW"))
    wait_until(lambda: len(client.having("RENEW")) > before + 1, 60, "renewed with the new agent")
    assert site.sessions()[mac] == [f"{address}/32"]
    assert {event[1] for event in client.having("RENEW")} == {address}

    client.release()
    site.lacks(mac)


def test_udhcpc_gets_a_lease(lab, site):
    directory = lab.directory / "udhcpc"
    directory.mkdir()
    script, log = directory / "script", directory / "events"
    script.write_text(f'#!/bin/sh\necho "$1 $ip $serverid $mask $dns" >>{log}\n')
    script.chmod(0o755)
    process = lab.process(
        site.clients, "busybox", "udhcpc", "-f", "-R", "-i", "line", "-s", script, log="udhcpc-ipoe.log"
    )
    bound = wait_until(
        lambda: log.exists() and [each for each in log.read_text().splitlines() if each.startswith("bound ")],
        60,
        "bound",
    )
    _, address, server, mask, dns = bound[0].split()
    assert (server, mask, dns) == (GATEWAY4, "24", "192.0.2.53")
    mac = site.clients.mac("line")
    site.has(mac, f"{address}/32")
    # A client that loses power is silent; a lease that is not renewed ends with its session.
    process.kill()
    site.lacks(mac)


def test_dhclient_gets_an_address_and_a_prefix(lab, site):
    wait_until(lambda: "tentative" not in site.clients.ip("-6", "addr", "show", "line").stdout, 30)
    client = Dhclient(lab, site.clients, "line", version=6, options=("-N", "-P"))
    wait_until(lambda: len(client.having("BOUND6")) == 2, 60, "bound")
    address, prefix = sorted((event[1] for event in client.having("BOUND6")), key=lambda each: "/" in each)
    mac = site.clients.mac("line")
    site.has(mac, f"{address}/128", prefix)
    wait_until(lambda: client.having("RENEW6"), 60, "renewed")
    client.release()
    site.lacks(mac)


@pytest.mark.parametrize("tpids", [(0x8100, 0x8100), (0x9100, 0x9100)])
def test_a_line_with_a_user_gets_its_address_and_both_families_are_one_session(site, tpids):
    client = Client(site.wire, LINE, 100, 7, tpids=tpids)
    ack = client.ask4()
    options = options_of(ack)
    assert (options["message-type"], ack[BOOTP].yiaddr, options["server_id"]) == (5, FIXED4, GATEWAY4)
    assert (ack[Ether].src, ack[IP].src) == (ACCESS_MAC, GATEWAY4)
    # The session was there before the answer.
    assert site.pings(LINE, FIXED4, (100, 7), tpids)
    assert site.sessions()[LINE] == [f"{FIXED4}/32"]
    reply = client.ask6(DHCP6OptIA_NA(iaid=1), DHCP6OptIA_PD(iaid=2))
    address = reply[DHCP6OptIAAddress].addr
    prefix = f"{reply[DHCP6OptIAPrefix].prefix}/{reply[DHCP6OptIAPrefix].plen}"
    assert set(site.sessions()[LINE]) == {f"{FIXED4}/32", f"{address}/128", prefix}
    assert client.release6(reply)[DHCP6OptStatusCode].statuscode == 0
    wait_until(lambda: site.sessions()[LINE] == [f"{FIXED4}/32"], 30)
    # The client lost power: it is back at once, with the same address.
    client.xid += 1
    assert client.ask4()[BOOTP].yiaddr == FIXED4
    server = ("server_id", GATEWAY4)
    client.send4("release", server, source=FIXED4, destination=GATEWAY4, to=ACCESS_MAC, ciaddr=FIXED4)
    site.lacks(LINE)


def test_subscribers_are_listed_shown_and_disconnected(site):
    mac = "02:00:00:00:0b:01"
    client = Client(site.wire, mac, 500, 2)
    address = client.ask4()[BOOTP].yiaddr
    assert site.pings(mac, address, (500, 2))
    for selector in (("--mac", mac), ("--address", address), ("--circuit", "access:500.2"), ("--username", mac)):
        (found,) = site.gateway.json("subscriber", "list", *selector)
        assert (found["mac"], found["ipv4Address"]) == (mac, address)
        assert found["up"]["packets"] > 0
    assert "circuit: access:500.2\n" in site.gateway.sluice("subscriber", "show", "--mac", mac).stdout
    assert mac in site.gateway.sluice("subscriber", "list").stdout
    assert site.gateway.sluice("subscriber", "disconnect", check=False).returncode == 1
    said = site.gateway.sluice("subscriber", "disconnect", "--address", address).stdout
    assert said == "Disconnected 1 subscriber.\n"
    (line,) = (
        each
        for each in site.gateway.agent.log.read_text().splitlines()
        if f'"address={address}"' in each or f"=address={address}" in each
    )
    assert "action=disconnect outcome=done owner=api objects=1 who=root" in line
    site.lacks(mac)
    assert site.gateway.sluice("subscriber", "disconnect", "--address", address, check=False).returncode == 1
    # The command's other name, and selectors of the circuit.
    client.xid += 1
    client.ask4()
    circuit = ("--outer-vlan", "500", "--inner-vlan", "2")
    assert site.gateway.sluice("session", "disconnect", *circuit).stdout == "Disconnected 1 subscriber.\n"
    assert "outer-vlan=500 inner-vlan=2" in site.gateway.agent.log.read_text()
    site.lacks(mac)
    assert site.gateway.sluice("session", "disconnect", *circuit, check=False).returncode == 1


def test_a_subscriber_gets_the_same_addresses_after_a_restart_of_the_agent(site):
    clients = [Client(site.wire, f"02:00:00:00:0e:{number:02x}", 103, number) for number in (1, 2)]

    def dialled(client):
        four = client.ask4()[BOOTP].yiaddr
        reply = client.ask6(DHCP6OptIA_NA(iaid=1), DHCP6OptIA_PD(iaid=2))
        return four, reply[DHCP6OptIAAddress].addr, reply[DHCP6OptIAPrefix].prefix

    had = [dialled(client) for client in clients]
    for client in clients:
        site.gateway.sluice("subscriber", "disconnect", "--mac", client.mac)
        site.lacks(client.mac)
    # Its records are on the disk when the next session's are, and that client gets its answer.
    last = Client(site.wire, "02:00:00:00:0e:09", 103, 9)
    last.ask4()
    site.gateway.agent.kill()
    site.gateway.start_agent()
    wait_until(Client(site.wire, "02:00:00:00:0f:02", 199, 2).offered4, 60, "the agent answers")
    for client, before in reversed(list(zip(clients, had, strict=True))):
        client.xid += 1
        client.xid6 += 1
        assert dialled(client) == before
    site.gateway.sluice("subscriber", "disconnect", "--circuit", "access:103.1")


def test_a_line_is_identified_by_the_tags_of_a_trusted_access_node(site):
    """Option 82 of DHCPv4; a lightweight relay agent's option 18 of DHCPv6 (RFC 6221). Both are one session."""
    mac = "02:00:00:00:07:09"
    client = Client(site.wire, mac, 600)
    information = bytes([1, len(PORT_7)]) + PORT_7.encode() + b"\x02\x04home"
    ack = client.ask4((82, information))
    assert ack[BOOTP].yiaddr == "100.64.7.9"
    # The answer goes through the access node, which looks for its own.
    assert bytes([82, len(information)]) + information in bytes(ack)
    assert site.pings(mac, "100.64.7.9", (600,))

    def through_relay(message, *options):
        message.trid = client.xid6 = (client.xid6 + 1) % (1 << 24)
        for each in (DHCP6OptClientId(duid=client.duid), *options):
            message = message / each
        relay = DHCP6_RelayForward(hopcount=0, linkaddr="::", peeraddr=client.link_local)
        relay = relay / DHCP6OptIfaceId(ifaceid=PORT_7.encode()) / DHCP6OptRelayMsg(message=message)
        udp = IPv6(src=client.link_local, dst="ff02::1:2") / UDP(sport=547, dport=547)
        client.wire.send(client.frame(udp / relay, "33:33:00:01:00:02"))
        answer = client.wire.expect(lambda raw: (p := client.mine(raw)) is not None and DHCP6_RelayReply in p and p)
        assert answer[UDP].dport == 547 and answer[DHCP6OptIfaceId].ifaceid == PORT_7.encode()
        return answer

    advertised = through_relay(DHCP6_Solicit(), DHCP6OptIA_NA(iaid=1))
    server = DHCP6OptServerId(duid=advertised[DHCP6OptServerId].duid)
    reply = through_relay(DHCP6_Request(), server, DHCP6OptIA_NA(iaid=1))
    site.has(mac, "100.64.7.9/32", f"{reply[DHCP6OptIAAddress].addr}/128")
    # It is found by what the access node says, and by the port.
    for selector in (("--circuit-id", PORT_7), ("--remote-id", "home"), ("--circuit-id", PORT_7, "--outer-vlan", 600)):
        (found,) = site.gateway.json("subscriber", "list", *selector)
        assert (found["mac"], found["circuitId"], found["remoteId"]) == (mac, PORT_7, "home")
    assert site.gateway.json("subscriber", "list", "--circuit-id", PORT_7, "--outer-vlan", 601) == []
    states = ("get", "sessions", "--state=subscriber", "--field-selector", f"circuitId={PORT_7}")
    assert [each["mac"] for each in site.gateway.json(*states)] == [mac]
    # Another line of the same VLAN has no session, and a server that trusts no access node ignores the information.
    other = Client(site.wire, "02:00:00:00:07:0a", 600)
    other.send4("discover", (82, b"\x01\x05other"))
    forged = Client(site.wire, "02:00:00:00:07:0b", 104, 1)
    forged.send4("discover", (82, information))
    site.wire.expect_none(lambda raw: any((p := c.mine(raw)) is not None and BOOTP in p for c in (other, forged)), 1)
    assert not {other.mac, forged.mac} & set(site.sessions())
    site.gateway.sluice("subscriber", "disconnect", "--mac", mac)


def test_pools_are_exhausted_chained_and_resized_while_subscribers_are_up(site):
    def few(**more):
        return thing("AddressPool", "few", **({"ranges": ["100.65.0.1-100.65.0.4"], "gateway": GATEWAY4} | more))

    number = 0

    def client():
        nonlocal number
        number += 1
        return Client(site.wire, f"02:00:00:00:10:{number:02x}", 401)

    def address(one):
        return one.ask4()[BOOTP].yiaddr

    clients = [client() for _ in range(4)]
    given = [address(each) for each in clients]
    assert set(given) == {f"100.65.0.{n}" for n in range(1, 5)}
    # Exhausted: no offer, and metrics name the reason.
    exhausted = 'sluice_subscriber_pool_exhausted_total{pool="few",vrf="default"}'
    failures = 'sluice_subscriber_failures_total{reason="pool-exhausted"}'
    before = site.metric(exhausted), site.metric(failures)
    refused = client()
    refused.send4("discover")
    site.wire.expect_none(lambda raw: (p := refused.mine(raw)) is not None and BOOTP in p, 1)
    assert refused.mac not in site.sessions()
    assert (site.metric(exhausted), site.metric(failures)) == (before[0] + 1, before[1] + 1)
    assert site.metric('sluice_subscriber_pool_used{pool="few",vrf="default"}') == 4
    assert any(
        "an IPoE client gets no session" in line and refused.mac in line and "few" in line
        for log in site.gateway.logs().values()
        for line in log.splitlines()
    )
    # A range more, and the next pool behind it.
    site.gateway.apply(few(ranges=["100.65.0.1-100.65.0.5"]))
    assert address(client()) == "100.65.0.5"
    site.gateway.apply(few(ranges=["100.65.0.1-100.65.0.5"], next="home"))
    assert address(client()).startswith("100.64.0.")
    # A smaller pool: a client that is up keeps the address, and renews it.
    site.gateway.apply(few(ranges=["100.65.0.1-100.65.0.2"]))
    for one, had in zip(clients, given, strict=True):
        one.send4("request", ciaddr=had, source=had, destination=GATEWAY4, to=ACCESS_MAC)
        assert one.answer4(5, 6)[BOOTP].yiaddr == had
    site.gateway.sluice("subscriber", "disconnect", "--profile", "few")
    wait_until(lambda: not site.gateway.json("subscriber", "list", "--profile", "few"), 30, "nobody is left")
    assert {address(client()) for _ in range(2)} == {"100.65.0.1", "100.65.0.2"}
    site.gateway.sluice("subscriber", "disconnect", "--profile", "few")
    wait_until(lambda: not site.gateway.json("subscriber", "list", "--profile", "few"), 30, "nobody is left")
    site.gateway.apply(few())


def test_a_new_cpe_takes_the_place_of_one_that_is_silent_and_not_of_one_that_sends(site):
    old, new = (Client(site.wire, f"02:00:00:00:12:{number:02x}", 402) for number in (1, 2))
    address = old.ask4()[BOOTP].yiaddr
    # A client keeps its place for half a minute after a message, which the next agent does not know.
    site.gateway.agent.kill()
    site.gateway.start_agent()
    wait_until(Client(site.wire, "02:00:00:00:0f:03", 199, 3).offered4, 60, "the agent answers")
    refused = 'sluice_ipoe_drops_total{protocol="dhcp4",reason="too-many-clients"}'
    before = site.metric(refused)

    def kept():
        assert site.pings(old.mac, address, (402,))
        new.send4("discover")
        return site.metric(refused) > before

    wait_until(kept, 30, "the new CPE is refused")
    assert new.mac not in site.sessions()
    (lease,) = site.gateway.json("get", "leases", "--circuit", "access:402")
    assert (lease["mac"], lease["ipv4Address"], lease["state"]) == (old.mac, address, "leased")
    assert lease["session"] and lease["ipv4Left"]
    # Now the old one is unplugged.
    given = new.ask4()[BOOTP].yiaddr
    site.lacks(old.mac)
    assert site.pings(new.mac, given, (402,))
    site.gateway.sluice("subscriber", "disconnect", "--mac", new.mac)


def test_a_request_for_the_wrong_address_is_refused(site):
    client = Client(site.wire, "02:00:00:00:08:01", 101, 1)
    client.send4("request", ("requested_addr", "100.64.99.99"))
    assert options_of(client.answer4(5, 6))["message-type"] == 6
    ack = client.ask4()
    assert options_of(ack)["message-type"] == 5
    client.send4("decline", ("server_id", GATEWAY4), ("requested_addr", ack[BOOTP].yiaddr))
    site.lacks(client.mac)
    client.xid += 1
    assert client.ask4()[BOOTP].yiaddr != ack[BOOTP].yiaddr


def test_the_first_leases_of_a_server_are_described(site):
    clients = [Client(site.wire, f"02:00:00:00:14:{number:02x}", 500, 9) for number in range(21)]
    for client in clients:
        client.ask4()
    shown = site.gateway.sluice("describe", "ipoeserver", "long").stdout
    assert shown.count("02:00:00:00:14:") == 20
    assert "All: sluice get leases long" in shown
    assert site.gateway.sluice("get", "leases", "long").stdout.count("02:00:00:00:14:") == 21
    site.gateway.sluice("subscriber", "disconnect", "--circuit", "access:500.9")


def test_options_in_sname_and_file_are_those_of_the_message(site):
    client = Client(site.wire, "02:00:00:00:08:10", 101, 2)
    offer = wait_until(client.offered4, 30, "an offer")
    address = offer[BOOTP].yiaddr
    asked = bytes([50, 4]) + ipaddress.ip_address(address).packed
    server = bytes([54, 4]) + ipaddress.ip_address(GATEWAY4).packed
    client.send4("request", (52, b"\x03"), file=asked + b"\xff", sname=server + b"\xff")
    ack = client.answer4(5, 6)
    assert (options_of(ack)["message-type"], ack[BOOTP].yiaddr) == (5, address)


def test_hidden_options_and_too_many_relays_are_counted_and_not_answered(site):
    drop = 'sluice_ipoe_drops_total{protocol="dhcp%d",reason="%s"}'
    client = Client(site.wire, "02:00:00:00:08:11", 101, 3)
    for name, (reason, options, fields) in hidden_options().items():
        metric = drop % (4, reason)
        before = site.metric(metric)
        client.send4("discover", *options, **fields)
        wait_until(lambda metric=metric, before=before: site.metric(metric) == before + 1, 30, name)
    metric = drop % (6, "malformed")
    before = site.metric(metric)
    forward = IPv6(src=client.link_local, dst="ff02::1:2", hlim=1) / UDP(sport=547, dport=547) / nested_relays()
    client.wire.send(client.frame(forward, "33:33:00:01:00:02"))
    wait_until(lambda: site.metric(metric) == before + 1, 30, "relay messages within one another")
    assert client.mac not in site.sessions()
    assert options_of(client.ask4())["message-type"] == 5
    assert site.gateway.agent.alive()
    assert site.gateway.dataplane.alive()


def test_a_flood_on_one_circuit_costs_clients_of_others_no_message(site):
    flood = []
    for number in range(1000):
        mac = f"02:00:00:01:{number >> 8:02x}:{number & 255:02x}"
        bootp = BOOTP(chaddr=bytes.fromhex(mac.replace(":", "")), xid=number)
        discover = IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=67) / bootp
        flood.append(Client(site.wire, mac, 150, 1).frame(discover / bytes.fromhex("63825363350101ff")))
    refused = 'sluice_ipoe_drops_total{protocol="dhcp4",reason="too-many-offers"}'
    before, lost = site.metric(refused), []
    for number in range(20):
        quiet = Client(site.wire, f"02:00:00:00:13:{number:02x}", 151, 1 + number)
        taken = ()
        # Each message is sent once. Bursts are shorter than queues of the kernel: it drops none.
        for kind, answers in (("discover", (2,)), ("request", (5, 6))):
            for frame in flood[50 * number :][:50]:
                site.wire.send(frame)
            answer = quiet.tried(
                lambda quiet=quiet, kind=kind, taken=taken: quiet.send4(kind, *taken),
                lambda quiet=quiet, answers=answers: quiet.answer4(*answers),
            )
            if answer is None or options_of(answer)["message-type"] == 6:
                lost.append((quiet.mac, kind))
                break
            options = options_of(answer)
            taken = ("server_id", options["server_id"]), ("requested_addr", answer[BOOTP].yiaddr)
    assert not lost
    # The flood reached the agent.
    assert site.metric(refused) > before


def test_a_static_address_comes_up_with_its_first_packet(site):
    client = Client(site.wire, "02:00:00:00:09:01", 300, 3)
    wrong = Client(site.wire, "02:00:00:00:09:02", 300, 4)

    def ask(who, address):
        arp = ARP(op=1, hwsrc=who.mac, psrc=address, pdst=GATEWAY4)
        who.wire.send(who.frame(arp))

    ask(wrong, STATIC4)
    ask(client, STATIC4)
    site.has(client.mac, f"{STATIC4}/32")
    assert site.pings(client.mac, STATIC4, (300, 3))
    assert wrong.mac not in site.sessions()

    # IPv6: a neighbour solicitation for the gateway. Its line has an address of each family.
    client, wrong = Client(site.wire, "02:00:00:00:09:03", 300, 5), Client(site.wire, "02:00:00:00:09:04", 300, 6)
    for who in (wrong, client):
        solicitation = IPv6(src=STATIC6, dst="ff02::1:ff00:aa01") / ICMPv6ND_NS(tgt="fe80::ff:fe00:aa01")
        who.wire.send(who.frame(solicitation / ICMPv6NDOptSrcLLAddr(lladdr=who.mac), "33:33:ff:00:aa:01"))
    site.has(client.mac, f"{STATIC6}/128", "100.64.7.10/32")
    client.wire.send(client.frame(IPv6(src=STATIC6, dst=GATEWAY6) / ICMPv6EchoRequest(id=5), ACCESS_MAC))
    client.wire.expect(lambda raw: (packet := client.mine(raw)) is not None and ICMPv6EchoReply in packet)
    assert wrong.mac not in site.sessions()


def test_a_kernel_that_takes_its_address_from_the_advertised_prefix_has_a_session(lab, site):
    home = lab.namespace("slaac")
    site.inside.link("acc1", home, "line")
    site.inside.silent("acc1")
    site.gateway.apply(
        thing("Port", "access-2", device="net_af_packet2,iface=acc1", mac="02:00:00:00:aa:03"),
        thing("AddressPool", "links", ranges=["2001:db8:7000::/48"], prefixLength=64, dns=["2001:db8::53"]),
        thing("SubscriberProfile", "link", authentication=["none"], ipv6Pools=["links"]),
        thing("IpoeServer", "slaac", port="access-2", profile="link", methods=["ipoe_slaac"]),
    )

    def address():
        links = json.loads(home.ip("-6", "-j", "addr", "show", "dev", "line", "scope", "global").stdout)
        found = [
            each
            for link in links
            for each in link.get("addr_info", [])
            if "local" in each and not each.get("tentative")
        ]
        return found[0]["local"] if found else None

    own = wait_until(address, 60, "the kernel has an address")
    assert own.startswith("2001:db8:7000:")
    ping = ("ping", "-6", "-c", "1", "-W", "2", GATEWAY6)
    wait_until(lambda: home.run(*ping, check=False).returncode == 0, 30, "a ping is answered")
    (lease,) = site.gateway.json("get", "leases", "--circuit", "access-2")
    assert ipaddress.ip_address(own) in ipaddress.ip_network(lease["ipv6Prefix"]) and not lease.get("ipv4Address")
    site.gateway.sluice("subscriber", "disconnect", "--circuit", "access-2")


@pytest.mark.long(reason="it takes 34 seconds; others kill one of the processes each")
def test_no_address_is_lost_whichever_process_dies(site):
    """Clients come, go, lose power and change their circuit while the agent and the data plane are killed."""
    dice = random.Random(7)
    macs = [f"02:00:00:00:0c:{number:02x}" for number in range(8)]

    def client(mac):
        return Client(site.wire, mac, 400, dice.randrange(1, 4))

    for step in range(120):
        mac = dice.choice(macs)
        match dice.randrange(10):
            case 0 | 1 | 2 | 3:
                client(mac).send4("discover")
            case 4 | 5 | 6:
                client(mac).send4("request", ("requested_addr", f"100.65.0.{dice.randrange(1, 5)}"))
            case 7 | 8:
                address = f"100.65.0.{dice.randrange(1, 5)}"
                client(mac).send4("release", ("server_id", GATEWAY4), ciaddr=address)
            case _ if step % 2:
                site.gateway.agent.kill()
                site.gateway.start_agent()
            case _:
                site.gateway.dataplane.kill()
                site.gateway.start_dataplane()
    # Leases that are not renewed end; offers that are not taken end within a minute.
    wait_until(lambda: not set(macs) & set(site.sessions()), 90, lambda: f"{site.sessions()}")
    wait_until(lambda: not site.gateway.json("subscriber", "list", "--profile", "few"), 90, "nobody is left")
    # Each address has a subscriber, and a fifth gets none.
    given = {Client(site.wire, f"02:00:00:00:0d:{number:02x}", 400, 9).ask4()[BOOTP].yiaddr for number in range(4)}
    assert given == {f"100.65.0.{number}" for number in range(1, 5)}
    site.gateway.sluice("subscriber", "disconnect", "--profile", "few")
    wait_until(lambda: not site.gateway.json("subscriber", "list", "--profile", "few"), 30, "nobody is left")


def test_a_data_plane_that_starts_again_gets_its_subscribers_back(site):
    client = Client(site.wire, "02:00:00:00:0a:01", 300, 3)
    site.wire.send(client.frame(IP(src=STATIC4, dst=INSIDE4) / ICMP(id=1), ACCESS_MAC))

    def owner():
        return next((mac for mac, addresses in site.sessions().items() if f"{STATIC4}/32" in addresses), None)

    mac = wait_until(owner, 30, "the packet brings up a session")
    site.gateway.dataplane.kill()
    site.gateway.start_dataplane()
    wait_until(
        lambda: all(each["status"]["state"] == "applied" for each in site.gateway.json("get", "sessions")),
        30,
        "applied",
    )
    assert site.pings(mac, STATIC4, (300, 3))
