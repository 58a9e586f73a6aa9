# SPDX-License-Identifier: Apache-2.0
"""DHCP relay between real clients and Kea: leases are sessions, also across failures of the agent."""

import json
import re
import subprocess

import pytest
from lab import Gateway, Wire, thing
from lab.dhcp import Client, Dhclient, Kea, hidden_options, nested_relays, options_of
from lab.laboratory import wait_until
from lab.radius import SECRET, FreeRadius, radclient
from scapy.all import BOOTP, ICMP, IP, UDP, Ether, IPv6
from scapy.layers.dhcp6 import (
    DHCP6_RelayReply,
    DHCP6_Solicit,
    DHCP6OptIA_NA,
    DHCP6OptIA_PD,
    DHCP6OptIAAddress,
    DHCP6OptIAPrefix,
)

ACCESS_MAC, CORE_MAC = "02:00:00:00:aa:01", "02:00:00:00:aa:02"
GATEWAY4, GATEWAY6 = "100.64.0.1", "2001:db8:64::1"
CORE4, CORE6, SERVER4, SERVER6 = "192.0.2.1", "2001:db8:0:2::1", "192.0.2.2", "2001:db8:0:2::2"
# Nobody has these addresses of the servers' network.
DEAD4, DEAD6 = "192.0.2.9", "2001:db8:0:2::9"
METRICS = "127.0.0.1:9464"
RESERVED4 = "100.64.7.7"
# Circuit ID that an access node adds.
DSLAM = b"dslam 7"
NAS, AAA = "10.9.9.1", "10.9.9.2"
SUBSCRIBER, STRANGER = "02:00:00:00:04:01", "02:00:00:00:04:02"
# By the templates of the RadiusPolicy.
STATION, USER = "olt 7 020000000401", "02-00-00-00-04-01@olt 7"
# The address is not for clients of the relay: Kea assigns theirs.
USERS = f"""
"{USER}" Auth-Type := Accept
	Framed-IP-Address = 100.64.66.66,
	Mikrotik-Rate-Limit = "10M/50M",
	Class = 0x616263
"""

LIGHTWEIGHT_MAC = "02:00:00:00:0a:01"
# Options 18 and 37 of the lightweight relay agent.
LIGHTWEIGHT_IDS = (
    "relay6[0].option[18].hex == 'line of access2' and "
    f"relay6[0].option[37].hex == concat(0x00000DE9, '{LIGHTWEIGHT_MAC}')"
)
# Options of clients of the second port, and removed ones.
ROUTES = bytes([24, 198, 51, 100, 100, 64, 0, 1])

KEA4 = {
    "valid-lifetime": 600,
    "renew-timer": 2,
    "rebind-timer": 400,
    "host-reservation-identifiers": ["circuit-id"],
    "client-classes": [
        {"name": "short", "test": "relay4[1].hex == 'access:103.1'", "valid-lifetime": 3},
        {"name": "changed", "test": "option[60].hex == 'sluice:access2' and not option[12].exists"},
        {"name": "unchanged", "test": "not member('changed')"},
    ],
    "option-data": [
        {"name": "domain-name", "data": "server.example"},
        {"name": "time-servers", "data": "192.0.2.99", "always-send": True},
    ],
    "subnet4": [
        {
            "id": 1,
            "subnet": "100.64.0.0/16",
            "pools": [
                {"pool": "100.64.1.0 - 100.64.1.250", "client-class": "unchanged"},
                {"pool": "100.64.2.0 - 100.64.2.250", "client-class": "changed"},
            ],
            "reservations": [
                {"circuit-id": "'access:100.7'", "ip-address": RESERVED4},
                {"circuit-id": f"'{DSLAM.decode()}'", "ip-address": "100.64.7.8"},
                {"circuit-id": "'access:301.1'", "ip-address": "100.64.7.9"},
            ],
        }
    ],
}
KEA6 = {
    "preferred-lifetime": 500,
    "valid-lifetime": 600,
    "renew-timer": 2,
    "rebind-timer": 400,
    "client-classes": [
        {"name": "line", "test": "relay6[0].option[18].hex == 'access:100.7'"},
        {"name": "lightweight", "test": f"{LIGHTWEIGHT_IDS} and relay6[0].linkaddr == ::"},
        {"name": "others", "test": "not member('line') and not member('lightweight')"},
    ],
    "subnet6": [
        {
            "id": 1,
            "subnet": "2001:db8:64::/48",
            "interface": "uplink",
            "pools": [
                {"pool": "2001:db8:64::9:0 - 2001:db8:64::9:ff", "client-class": "lightweight"},
                {"pool": "2001:db8:64::7:0 - 2001:db8:64::7:ff", "client-class": "line"},
                {"pool": "2001:db8:64::1000 - 2001:db8:64::1fff", "client-class": "others"},
            ],
            "pd-pools": [{"prefix": "2001:db8:6400::", "prefix-len": 40, "delegated-len": 56}],
        }
    ],
}


def relay(name, **spec):
    return thing("DhcpRelay", name, port="access", **({"servers": [SERVER4, SERVER6], "interface": "gateway"} | spec))


class Site:
    def __init__(self, lab):
        self.lab = lab
        names = ("clients", "clients2", "inside", "servers")
        self.clients, self.clients2, self.inside, self.servers = (lab.namespace(each) for each in names)
        for ours, other, theirs in (
            ("acc0", self.clients, "line"),
            ("acc1", self.clients2, "line2"),
            ("core0", self.servers, "uplink"),
        ):
            self.inside.link(ours, other, theirs)
            self.inside.silent(ours)
        for address in (f"{SERVER4}/24", f"{SERVER6}/64"):
            self.servers.ip("addr", "add", address, "dev", "uplink", *(["nodad"] if ":" in address else []))
        self.servers.ip("route", "add", "default", "via", CORE4)
        self.servers.ip("-6", "route", "add", "default", "via", CORE6)
        self.inside.link("aaa0", self.servers, "radius")
        self.inside.ip("addr", "add", f"{NAS}/24", "dev", "aaa0")
        self.servers.ip("addr", "add", f"{AAA}/24", "dev", "radius")
        self.radius = FreeRadius(lab, self.servers, AAA, USERS)
        self.gateway = Gateway(
            lab, self.inside, northbounds=[{"type": "metrics", "name": "metrics", "listen": METRICS}]
        )
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC),
            thing("Port", "core", device="net_af_packet1,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32", f"{GATEWAY6}/128"]),
            thing("Interface", "core", port="core", addresses=[f"{CORE4}/24", f"{CORE6}/64"]),
            relay("lan"),
            relay("lines", outerVlans=["100-199"], innerVlans=["1-4094"], rate=100000, ratePerMac=20),
            relay("trusted", outerVlans=["300"], innerVlans=["1"], relayInformation="trust_information"),
            thing("RadiusServer", "aaa", address=AAA, secret=SECRET),
            thing(
                "RadiusPolicy",
                "homes",
                authentication=[{"server": "aaa"}],
                accounting=[{"server": "aaa"}],
                userName="{mac-hyphens}@{circuit-id}",
                callingStationId="{circuit-id} {mac-plain}",
                nasPortId="{port} {outer}/{inner} {protocol}",
                dynamicAuthorization={"address": NAS, "device": "aaa0"},
            ),
            thing("SubscriberProfile", "homes", authentication=["radius"], accounting=["radius"]),
            relay(
                "homes",
                outerVlans=["400"],
                innerVlans=["1"],
                relayInformation="trust_information",
                profile="homes",
                ratePerMac=1000,
            ),
            relay("own", outerVlans=["301"], innerVlans=["1"], relayInformation="overwrite_information"),
            thing("Port", "access2", device="net_af_packet2,iface=acc1,framecnt=4096", mac="02:00:00:00:aa:03"),
            # IPv6 by a lightweight relay agent; IPv4 with changed options.
            thing(
                "DhcpRelay",
                "second",
                port="access2",
                servers=[SERVER4],
                interface="gateway",
                uplink="core",
                circuitId="line of {port}",
                options=[
                    {"code": 12},
                    {"code": 60, "action": "set_option", "text": "sluice:{port}"},
                    {"code": 61, "action": "replace_option", "text": "{mac}"},
                    {"code": 4, "direction": "to_client"},
                    {"code": 15, "direction": "to_client", "action": "replace_option", "text": "homes.example"},
                    {"code": 121, "direction": "to_client", "action": "set_option", "hex": ROUTES.hex()},
                ],
            ),
        )
        wait_until(lambda: len(self.gateway.json("get", "punts") or []) == 6)
        self.kea4 = Kea(lab, self.servers, 4, "uplink", **KEA4)
        # By its address for relays, by its link for the lightweight relay agent.
        self.kea6 = Kea(lab, self.servers, 6, ["uplink", f"uplink/{SERVER6}"], **KEA6)
        for kea, word in ((self.kea4, "DHCP4_STARTED"), (self.kea6, "DHCP6_STARTED")):
            wait_until(
                lambda kea=kea, word=word: kea.says(word),
                60,
                lambda word=word, kea=kea: f"{word}: {kea.process.log.read_text()[-2000:]}",
            )
        self.wire = Wire(self.clients, "line")
        lab.on_close(self.wire.close)

    def sessions(self):
        """Addresses by MAC. A session that is being deleted has no spec: it is under None."""
        found = [each["spec"] for each in self.gateway.json("get", "sessions") or []]
        return {each.get("access", {}).get("mac"): each.get("addresses", []) for each in found}

    def metric(self, line):
        """The value of a metric with its labels."""
        said = self.inside.run("curl", "-sf", f"http://{METRICS}/metrics").stdout
        return next((float(each.rsplit(" ", 1)[1]) for each in said.splitlines() if each.startswith(f"{line} ")), 0)

    def has(self, mac, *addresses):
        wait_until(lambda: set(addresses) <= set(self.sessions().get(mac, [])), 30, lambda: f"{mac}: {self.sessions()}")

    def lacks(self, mac):
        wait_until(lambda: not {mac, None} & set(self.sessions()), 30, lambda: f"{mac}: {self.sessions()}")

    def pings(self, mac, address, vlans=(), tpids=None):
        client = Client(self.wire, mac, *vlans, tpids=tpids)
        self.wire.send(client.frame(IP(src=address, dst=SERVER4) / ICMP(id=77), ACCESS_MAC))

        def answer(raw):
            packet = client.mine(raw)
            return packet is not None and ICMP in packet and packet[ICMP].type == 0 and packet[ICMP].id == 77

        return self.wire.expect(answer)


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


def test_dhclient_gets_a_lease_renews_it_through_the_relay_and_gives_it_back(lab, site):
    client = Dhclient(lab, site.clients, "line", GATEWAY4)
    wait_until(lambda: client.having("BOUND"), 60, "bound")
    _, address, server = client.having("BOUND")[0]
    mac = site.clients.mac("line")
    # The relay is the server, as far as the client knows: so it sees renewals and the release.
    assert server == GATEWAY4
    site.has(mac, f"{address}/32")
    # Four times through the gateway, which begins with the first packet.
    site.clients.run("ping", "-c", "2", "-i", "0.2", "-W", "10", SERVER4)
    wait_until(lambda: client.having("RENEW"), 60, "renewed")
    assert client.having("RENEW")[0][1] == address
    site.has(mac, f"{address}/32")

    # The agent dies and comes back. Clients do not notice.
    command = ("ping", "-i", "0.05", "-c", "150", "-W", "10", SERVER4)
    ping = subprocess.Popen(["ip", "netns", "exec", site.clients.name, *command], stdout=subprocess.PIPE, text=True)
    site.gateway.agent.kill()
    site.gateway.start_agent()
    said, _ = ping.communicate(timeout=120)
    assert re.search(r"150 packets transmitted, 150 received", said), said
    site.has(mac, f"{address}/32")
    before = len(client.having("RENEW"))
    wait_until(lambda: len(client.having("RENEW")) > before + 1, 60, "renewed with the new agent")
    assert site.gateway.json("get", "sessions")[0]["metadata"]["name"].startswith("dhcp-lan-")

    client.release()
    site.lacks(mac)
    wait_until(lambda: site.kea4.says("DHCP4_RELEASE", address), 30, "Kea heard of the release")


def test_dhclient_is_bound_although_one_of_two_servers_is_dead(lab, site):
    # Of each family the dead server is the first.
    site.gateway.apply(relay("lan", servers=[DEAD4, SERVER4, DEAD6, SERVER6]))
    mac = site.clients.mac("line")
    wait_until(lambda: "tentative" not in site.clients.ip("-6", "addr", "show", "line").stdout, 30)
    four = Dhclient(lab, site.clients, "line", GATEWAY4)
    wait_until(lambda: four.having("BOUND"), 60, "bound")
    address = four.having("BOUND")[0][1]
    site.has(mac, f"{address}/32")
    wait_until(lambda: four.having("RENEW"), 60, "renewed")
    assert four.having("RENEW")[0][1] == address
    six = Dhclient(lab, site.clients, "line", version=6, options=("-N", "-P"))
    wait_until(lambda: len(six.having("BOUND6")) == 2, 60, "bound")
    own, prefix = sorted((event[1] for event in six.having("BOUND6")), key=lambda each: "/" in each)
    site.has(mac, f"{own}/128", prefix)
    six.release()
    four.release()
    site.lacks(mac)
    site.gateway.apply(relay("lan"))


def test_udhcpc_gets_a_lease(lab, site):
    directory = lab.directory / "udhcpc"
    directory.mkdir()
    script, log = directory / "script", directory / "events"
    script.write_text(f'#!/bin/sh\necho "$1 $ip $serverid" >>{log}\n')
    script.chmod(0o755)
    lab.process(site.clients, "busybox", "udhcpc", "-f", "-R", "-i", "line", "-s", script, log="udhcpc.log")
    bound = wait_until(
        lambda: log.exists() and [each for each in log.read_text().splitlines() if each.startswith("bound ")],
        60,
        "bound",
    )
    _, address, server = bound[0].split()
    assert server == GATEWAY4
    site.has(site.clients.mac("line"), f"{address}/32")


def test_dhclient_gets_an_address_and_a_prefix(lab, site):
    wait_until(lambda: "tentative" not in site.clients.ip("-6", "addr", "show", "line").stdout, 30)
    client = Dhclient(lab, site.clients, "line", version=6, options=("-N", "-P"))
    wait_until(lambda: len(client.having("BOUND6")) == 2, 60, "bound")
    address, prefix = sorted((event[1] for event in client.having("BOUND6")), key=lambda each: "/" in each)
    mac = site.clients.mac("line")
    site.has(mac, f"{address}/128", prefix)
    wait_until(lambda: client.having("RENEW6"), 60, "renewed")
    client.release()
    wait_until(lambda: f"{address}/128" not in site.sessions().get(mac, []), 30)
    assert prefix not in site.sessions().get(mac, [])


def test_dhclient_behind_the_lightweight_relay_agent_is_known_by_its_line(lab, site):
    site.clients2.ip("link", "set", "line2", "down")
    site.clients2.ip("link", "set", "line2", "address", LIGHTWEIGHT_MAC, "up")
    wait_until(
        lambda: "inet6 fe80" in (said := site.clients2.ip("-6", "addr", "show", "line2").stdout)
        and "tentative" not in said
    )
    client = Dhclient(lab, site.clients2, "line2", version=6, options=("-N", "-P"))
    wait_until(lambda: len(client.having("BOUND6")) == 2, 60, "bound")
    address, prefix = sorted((event[1] for event in client.having("BOUND6")), key=lambda each: "/" in each)
    # Kea has this pool for Relay-forward messages without a link-address and with these options 18 and 37.
    assert address.startswith("2001:db8:64::9:")
    site.has(LIGHTWEIGHT_MAC, f"{address}/128", prefix)
    wait_until(lambda: client.having("RENEW6"), 60, "renewed")
    client.release()
    site.lacks(LIGHTWEIGHT_MAC)


def test_options_of_dhcp4_are_dropped_replaced_and_set_on_the_way(lab, site):
    wire = Wire(site.clients2, "line2")
    lab.on_close(wire.close)
    own = b"\x01mine"
    requested = ("param_req_list", [4, 15, 121])
    client = Client(wire, "02:00:00:00:0a:02")
    ack = client.ask4(("hostname", "my-host"), ("vendor_class_id", b"a vendor"), ("client_id", own), requested)
    options = options_of(ack)
    # Kea has this pool for messages without option 12 and with the relay's option 60.
    assert ack[BOOTP].yiaddr.startswith("100.64.2.")
    assert options["client_id"] == own
    assert options["domain"].rstrip(b"\0") == b"homes.example"
    assert "time_server" not in options
    assert ROUTES in bytes(ack)
    assert site.kea4.says("cid=[" + ":".join(f"{each:02x}" for each in b"02:00:00:00:0a:02"))


def test_a_client_gets_no_ack_while_its_session_waits_for_an_object(site):
    site.gateway.apply(relay("waiting", outerVlans=["500"], policy={"meterUp": "later"}), wait=False)
    client = Client(site.wire, "02:00:00:00:07:50", 500)
    reason = "the data plane does not forward for the session: it waits for Meter/later"
    taken = wait_until(client.offered4, 30, "an offer")
    ask = ("server_id", options_of(taken)["server_id"]), ("requested_addr", taken[BOOTP].yiaddr)

    def refused():
        client.send4("request", *ask)
        return any(reason in log for log in site.gateway.logs().values())

    wait_until(refused, 30, "a line in the agent's log")
    site.wire.expect_none(lambda raw: BOOTP in (client.mine(raw) or ()) and client.mine(raw)[BOOTP].op == 2)
    site.lacks(client.mac)
    site.gateway.apply(thing("Meter", "later", committedRate="100M", committedBurst=1_000_000))
    ack = client.ask4()
    assert site.pings(client.mac, ack[BOOTP].yiaddr, (500,))

    # While a change of a session waits, its client keeps the address and gets no ACK; it gets one afterwards.
    site.gateway.apply(relay("waiting", outerVlans=["500"], policy={"meterUp": "much-later"}), wait=False)
    wait_until(lambda: "Meter/much-later" in site.gateway.sluice("get", "sessions").stdout, 30)
    assert site.sessions()[client.mac] == [f"{ack[BOOTP].yiaddr}/32"]
    site.gateway.apply(thing("Meter", "much-later", committedRate="100M", committedBurst=1_000_000))
    assert client.ask4()[BOOTP].yiaddr == ack[BOOTP].yiaddr
    site.gateway.delete("DhcpRelay", "waiting")
    site.lacks(client.mac)


@pytest.mark.parametrize("tpids", [(0x8100, 0x8100), (0x9100, 0x9100)])
def test_a_tagged_client_is_known_to_the_server_by_its_circuit(site, tpids):
    mac = "02:00:00:00:07:07"
    client = Client(site.wire, mac, 100, 7, tpids=tpids)
    ack = client.ask4()
    assert (options_of(ack)["message-type"], ack[BOOTP].yiaddr) == (5, RESERVED4)
    options = options_of(ack)
    assert options["server_id"] == GATEWAY4
    assert "relay_agent_information" not in options
    assert (ack[Ether].src, ack[IP].src) == (ACCESS_MAC, GATEWAY4)
    # The session was there before the answer.
    assert site.pings(mac, RESERVED4, (100, 7), tpids)
    assert site.sessions()[mac] == [f"{RESERVED4}/32"]
    reply = client.ask6(DHCP6OptIA_NA(iaid=1), DHCP6OptIA_PD(iaid=2))
    address = reply[DHCP6OptIAAddress].addr
    prefix = f"{reply[DHCP6OptIAPrefix].prefix}/{reply[DHCP6OptIAPrefix].plen}"
    assert address.startswith("2001:db8:64::7:")
    site.has(mac, f"{RESERVED4}/32", f"{address}/128", prefix)
    client.release6(reply)
    wait_until(lambda: site.sessions()[mac] == [f"{RESERVED4}/32"], 30)
    server = ("server_id", GATEWAY4)
    client.send4("release", server, source=RESERVED4, destination=GATEWAY4, to=ACCESS_MAC, ciaddr=RESERVED4)
    site.lacks(mac)


@pytest.mark.parametrize(("vlan", "address", "kept"), [(300, "100.64.7.8", True), (301, "100.64.7.9", False)])
def test_relay_information_of_an_access_node_is_kept_or_replaced(site, vlan, address, kept):
    mac = f"02:00:00:00:03:{vlan - 290:02x}"
    information = bytes([1, len(DSLAM)]) + DSLAM
    client = Client(site.wire, mac, vlan, 1)
    # Kea reserves the address for the access node's circuit, or for the relay's.
    ack = client.ask4((82, information))
    assert (options_of(ack)["message-type"], ack[BOOTP].yiaddr) == (5, address)
    assert (bytes([82, len(information)]) + information in bytes(ack)) == kept
    assert site.pings(mac, address, (vlan, 1))
    server = ("server_id", GATEWAY4)
    client.send4(
        "release", server, (82, information), source=address, destination=GATEWAY4, to=ACCESS_MAC, ciaddr=address
    )
    site.lacks(mac)


def test_subscribers_behind_the_relay_are_authenticated_and_accounted(site):
    def records(status):
        return site.radius.records(Calling_Station_Id=STATION, Acct_Status_Type=status)

    def subscribers():
        return site.gateway.json("subscriber", "list", "--mac", SUBSCRIBER) or []

    information = (82, bytes([1, len(b"olt 7")]) + b"olt 7")
    client = Client(site.wire, SUBSCRIBER, 400, 1)
    ack = client.ask4(information)
    address = ack[BOOTP].yiaddr
    assert options_of(ack)["message-type"] == 5 and address.startswith("100.64.1.")
    reply = client.ask6(DHCP6OptIA_NA(iaid=1), DHCP6OptIA_PD(iaid=2))
    addresses = {
        f"{address}/32",
        f"{reply[DHCP6OptIAAddress].addr}/128",
        f"{reply[DHCP6OptIAPrefix].prefix}/{reply[DHCP6OptIAPrefix].plen}",
    }
    # The session has the server's addresses, and RADIUS's rate.
    (session,) = (x for x in site.gateway.json("get", "sessions") if x["spec"]["access"].get("mac") == SUBSCRIBER)
    assert set(session["spec"]["addresses"]) == addresses
    assert session["spec"]["policy"]["meterDown"].startswith("rate-50000000-")
    for _ in range(3):
        assert site.pings(SUBSCRIBER, address, (400, 1))
    wait_until(lambda: records("Start"), 30, "a Start record")
    (start,) = records("Start")
    assert (start["User-Name"], start["Framed-IP-Address"], start["Class"]) == (USER, address, "0x616263")
    assert start["NAS-Port-Id"] == "access 400/1 dhcp-relay"
    assert start["ADSL-Agent-Circuit-Id"] == "0x" + b"olt 7".hex()
    # The lease of DHCPv6 came after the Start: one record has all of it.
    (interim,) = wait_until(lambda: records("Interim-Update"), 30, "an Interim-Update with the lease of DHCPv6")
    assert interim["Acct-Session-Id"] == start["Acct-Session-Id"] and addresses == {
        f"{interim['Framed-IP-Address']}/32",
        f"{interim['Framed-IPv6-Address']}/128",
        interim["Delegated-IPv6-Prefix"],
    }

    # The agent dies and comes back: the session stays, with the same identifier.
    site.gateway.agent.kill()
    site.gateway.start_agent()
    wait_until(subscribers, 30, "the subscriber is known")
    assert site.pings(SUBSCRIBER, address, (400, 1))
    assert client.ask4(information)[BOOTP].yiaddr == address
    assert set(site.sessions()[SUBSCRIBER]) == addresses
    client.release6(reply)
    wait_until(lambda: site.sessions()[SUBSCRIBER] == [f"{address}/32"], 30)
    # The first one may have come again: the agent was killed when the server had just acknowledged it.
    wait_until(
        lambda: "Framed-IPv6-Address" not in records("Interim-Update")[-1], 30, "a record without the lease of DHCPv6"
    )
    server = ("server_id", GATEWAY4)
    client.send4("release", server, information, source=address, destination=GATEWAY4, to=ACCESS_MAC, ciaddr=address)
    wait_until(lambda: records("Stop"), 30, "a Stop record")
    (stop,) = records("Stop")
    assert (stop["Acct-Session-Id"], stop["Acct-Terminate-Cause"]) == (start["Acct-Session-Id"], "User-Request")
    # Its pings, and its DHCP messages.
    assert int(stop["Acct-Input-Packets"]) > 4 and len(records("Start")) == 1
    site.lacks(SUBSCRIBER)

    # A Disconnect-Request ends the session. The client comes up again when it asks.
    for stops in (2, 3):
        assert options_of(client.ask4(information))["message-type"] == 5
        key = f'Calling-Station-Id = "{STATION}"'
        assert "Received Disconnect-ACK" in radclient(site.servers, NAS, "disconnect", key)
        site.lacks(SUBSCRIBER)
        wait_until(lambda stops=stops: len(records("Stop")) == stops, 30, "another Stop record")
        assert records("Stop")[-1]["Acct-Terminate-Cause"] == "Admin-Reset"

    # No server hears of a client that RADIUS rejects.
    assert Client(site.wire, STRANGER, 400, 1).offered4(information) is None
    assert not site.kea4.says(STRANGER)


def test_a_lease_that_is_not_renewed_ends_with_its_session(site):
    mac = "02:00:00:00:03:01"
    ack = Client(site.wire, mac, 103, 1).ask4()
    assert options_of(ack)["message-type"] == 5
    site.lacks(mac)
    assert "DhcpRelay" in site.gateway.sluice("get", "DhcpRelay", "-o", "yaml").stdout


def test_a_mac_that_floods_does_not_keep_another_from_its_lease(site):
    flood = Client(site.wire, "02:00:00:00:05:01", 105, 5)
    frames = []
    for number in range(2000):
        flood.xid = number
        bootp = BOOTP(chaddr=bytes.fromhex("020000000501"), xid=number)
        packet = IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=67) / bootp
        frames.append(flood.frame(packet / bytes.fromhex("63825363350101ff")))
    before = site.gateway.drops().get("punt-circuit-rate-limited", 0)
    for frame in frames:
        site.wire.send(frame)
    quiet = Client(site.wire, "02:00:00:00:05:02", 105, 5)
    assert options_of(quiet.ask4())["message-type"] == 5
    assert site.gateway.drops()["punt-circuit-rate-limited"] > before


def test_hostile_packets_do_not_get_past_the_relay(site):
    mac = "02:00:00:00:06:06"
    client = Client(site.wire, mac, 106, 6)

    def sent(kind="discover", options=(), chaddr=None, **fields):
        client.xid += 1
        client.send4(kind, *options, **fields)

    heard = site.kea4.process.log.read_text().count(mac)
    # Relay agent information of its own, a relay's address, more hops than there may be, and answers.
    sent(options=[("relay_agent_Information", b"\x01\x01x"), (82, b"\x01\x01x")])
    sent(giaddr="100.64.0.9")
    sent(hops=200)
    sent(op=2, yiaddr="100.64.9.9")
    sent("release", [("server_id", GATEWAY4)], ciaddr=RESERVED4)
    # For another's MAC.
    other = BOOTP(chaddr=bytes.fromhex("020000000707"), xid=1)
    packet = IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=67) / other
    frame = client.frame(packet / bytes.fromhex("63825363350101ff"))
    site.wire.send(frame)
    # Every truncation, as its headers say it.
    whole = bytes(packet / bytes.fromhex("63825363350101ff"))
    for length in range(0, len(whole), 7):
        site.wire.send(
            client.frame(IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=67) / whole[28 : 28 + length])
        )
    # A relay's answer from where clients are.
    forged = IPv6(src="fe80::6", dst="ff02::1:2") / UDP(sport=547, dport=547) / DHCP6_RelayReply(peeraddr="fe80::7")
    site.wire.send(client.frame(forged, "33:33:00:01:00:02"))
    # The last packet shows that all before were processed, once a MAC may send again.
    quiet = Client(site.wire, "02:00:00:00:06:07", 106, 6)
    assert options_of(quiet.ask4())["message-type"] == 5
    assert mac not in site.sessions()
    assert site.kea4.process.log.read_text().count(mac) == heard
    assert site.gateway.agent.alive()
    assert site.gateway.dataplane.alive()


def test_hidden_options_and_too_many_relays_do_not_get_past_the_relay(site):
    drop = 'sluice_dhcp_drops_total{family="ipv%d",reason="%s"}'
    sends = hidden_options() | {"50 hops": ("too-many-hops", [], {"hops": 50})}
    for number, (name, (reason, options, fields)) in enumerate(sends.items()):
        metric = drop % (4, reason)
        before = site.metric(metric)
        client = Client(site.wire, f"02:00:00:00:06:{0x20 + number:02x}", 106, 7)
        client.send4("discover", *options, **fields)
        wait_until(lambda metric=metric, before=before: site.metric(metric) == before + 1, 30, name)
        assert not site.kea4.says(client.mac), name
    metric = drop % (6, "malformed")
    before = site.metric(metric)
    client = Client(site.wire, "02:00:00:00:06:30", 106, 7)
    forward = IPv6(src=client.link_local, dst="ff02::1:2", hlim=1) / UDP(sport=547, dport=547) / nested_relays()
    client.wire.send(client.frame(forward, "33:33:00:01:00:02"))
    wait_until(lambda: site.metric(metric) == before + 1, 30, "relay messages within one another")
    quiet = Client(site.wire, "02:00:00:00:06:31", 106, 7)
    assert options_of(quiet.ask4())["message-type"] == 5
    assert site.gateway.agent.alive()
    assert site.gateway.dataplane.alive()


def test_a_circuit_outside_of_the_relays_is_unknown(site):
    before = site.gateway.drops().get("unknown-circuit", 0)
    Client(site.wire, "02:00:00:00:08:01", 200, 1).send4("discover")
    Client(site.wire, "02:00:00:00:08:01", 200, 1).send6(DHCP6_Solicit())
    site.gateway.dropped("unknown-circuit", 20, before + 1)


def test_a_relay_that_goes_takes_its_sessions_along(site):
    mac = "02:00:00:00:09:01"
    client = Client(site.wire, mac, 109, 9)
    ack = client.ask4()
    site.has(mac, f"{ack[BOOTP].yiaddr}/32")
    site.gateway.delete("DhcpRelay", "lines")
    site.lacks(mac)
    wait_until(lambda: len(site.gateway.json("get", "punts")) == 5, 30)
    assert "dhcp-lines" not in json.dumps(site.gateway.json("get", "punts"))
