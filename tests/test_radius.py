# SPDX-License-Identifier: Apache-2.0
"""PPPoE subscribers of a FreeRADIUS server: authenticated, accounted, changed and disconnected."""

import ipaddress
import re
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from lab import Gateway, Wire, thing
from lab.dhcp import Client
from lab.laboratory import wait_until
from lab.pppoe import ALL, IPCP, PADI, PADO, SERVICE_NAME, VENDOR, Host, tag
from lab.radius import SECRET, Between, FreeRadius, radclient, reply
from scapy.all import BOOTP, UDP, ICMPv6NDOptPrefixInfo, ICMPv6NDOptRDNSS, ICMPv6NDOptRouteInfo, IPv6
from scapy.layers.dhcp6 import (
    VENDOR_SPECIFIC_OPTION,
    DHCP6_RelayForward,
    DHCP6_RelayReply,
    DHCP6_Solicit,
    DHCP6OptClientId,
    DHCP6OptIA_NA,
    DHCP6OptIAAddress,
    DHCP6OptIfaceId,
    DHCP6OptRapidCommit,
    DHCP6OptRelayMsg,
    DHCP6OptVendorSpecificInfo,
)

ACCESS_MAC, CORE_MAC = "02:00:00:00:aa:01", "02:00:00:00:aa:02"
CORE, HOST = "192.0.2.1", "192.0.2.2"
NAS, SERVER, RESERVE, FORGER, FOREIGN = "10.9.9.1", "10.9.9.2", "10.9.9.3", "10.9.9.4", "10.9.9.5"
METRICS = "127.0.0.1:9464"
EVERYTHING, RED, RED_HOST = "100.64.7.9", "192.0.3.1", "192.0.3.2"
ADDRESSES = ("Framed-IP-Address", "Framed-IPv6-Prefix", "Framed-IPv6-Address", "Delegated-IPv6-Prefix")
# Tags that an access node adds to PADI and PADR (TR-101): circuit, remote, rates in kbit/s and a delay in ms.
ACCESS_NODE = tag(
    VENDOR,
    struct.pack("!I", 3561)
    + b"\x01\x09olt 1/2:7\x02\x04home"
    + struct.pack("!BBI", 0x81, 4, 20_000)
    + struct.pack("!BBI", 0x82, 4, 100_000)
    + struct.pack("!BBI", 0x8C, 4, 8),
)
HOME, LINE, LINE_MAC = "100.64.7.7", "100.64.7.8", "02:00:00:00:02:01"
LINE6, LINE6_MAC = "2001:db8:7:c::7", "02:00:00:00:02:02"
# In two VRFs, each with a pool of its own.
SHARED, STOLEN = "100.64.9.9", "100.64.66.66"
USERS = f"""
alice Cleartext-Password := "wonderland"
	Framed-IP-Address = {HOME},
	Mikrotik-Rate-Limit = "10M/50M",
	Filter-Id = "home.in",
	Class = 0x616263,
	Session-Timeout = 86400

bob Cleartext-Password := "builder"
	Framed-Pool = "pool"

carol Cleartext-Password := "everything"
	Framed-IP-Address = {EVERYTHING},
	Framed-Route = "198.51.100.0/29 0.0.0.0 1",
	Framed-IPv6-Prefix = 2001:db8:7:9::/64,
	Framed-IPv6-Address = 2001:db8:7:a::7,
	Framed-Interface-Id = 0000:0000:0000:0007,
	Framed-IPv6-Route = "2001:db8:79a::/48 :: 1",
	Route-IPv6-Information = 2001:db8:5::/48,
	Delegated-IPv6-Prefix = 2001:db8:790::/56,
	MS-Primary-DNS-Server = 192.0.2.53,
	MS-Secondary-DNS-Server = 192.0.2.54,
	DNS-Server-IPv6-Address = 2001:db8::53,
	Filter-Id = "quiet.in",
	Framed-MTU = 1400,
	Idle-Timeout = 600,
	Class = 0x01,
	Class += 0x02,
	Cisco-AVPair = "ip:vrf-id=red",
	Cisco-AVPair += "lcp:interface-config=ip tcp adjust-mss 1300"

huawei Cleartext-Password := "secret"
	Framed-Pool = "pool",
	Framed-IPv6-Pool = "links",
	Delegated-IPv6-Prefix-Pool = "networks",
	Huawei-Input-Average-Rate = 10000000,
	Huawei-Output-Average-Rate = 50000000

juniper Cleartext-Password := "secret"
	ERX-Address-Pool-Name = "pool",
	ERX-Ingress-Policy-Name = "slow",
	ERX-Egress-Policy-Name = "fast"

cisco Cleartext-Password := "secret"
	Cisco-AVPair = "ip:addr-pool=pool",
	Cisco-AVPair += "lcp:interface-config=rate-limit input 10000000 125000 250000 conform-action transmit",
	Cisco-AVPair += "lcp:interface-config=rate-limit output 50000000 625000 1250000 conform-action transmit"

mikrotik Cleartext-Password := "secret"
	Framed-Pool = "pool",
	Mikrotik-Rate-Limit = "10M/50M"

table Cleartext-Password := "secret"
	Framed-Pool = "pool",
	Cisco-AVPair = "down-kbit=50000",
	Port-Limit = 10

idle Cleartext-Password := "secret"
	Framed-Pool = "pool",
	Idle-Timeout = 2

brief Cleartext-Password := "secret"
	Framed-Pool = "pool",
	Session-Timeout = 2

plain Cleartext-Password := "secret"
	Framed-Pool = "one"

red Cleartext-Password := "secret"
	Framed-Pool = "one-red",
	Cisco-AVPair = "ip:vrf-id=red"

confused Cleartext-Password := "secret"
	Framed-Pool = "one",
	Cisco-AVPair = "ip:vrf-id=red"

"{LINE6_MAC}" Auth-Type := Accept
	Framed-IPv6-Address = {LINE6}

"{LINE_MAC}" Auth-Type := Accept
	Framed-IP-Address = {LINE},
	Cisco-AVPair = "lcp:interface-config=rate-limit output 20000000 250000 500000"
"""


class Site:
    def __init__(self, lab):
        self.lab = lab
        self.clients, self.inside, self.core, self.aaa = (
            lab.namespace(each) for each in ("clients", "inside", "core", "aaa")
        )
        for ours, other, theirs in (("acc0", self.clients, "line"), ("core0", self.core, "uplink")):
            self.inside.link(ours, other, theirs)
            self.inside.silent(ours)
        self.core.ip("addr", "add", f"{HOST}/24", "dev", "uplink")
        self.core.ip("route", "add", "default", "via", CORE)
        # The VRF of one of them.
        self.red = lab.namespace("red")
        self.inside.link("core1", self.red, "uplink")
        self.inside.silent("core1")
        self.red.ip("addr", "add", f"{RED_HOST}/24", "dev", "uplink")
        self.red.ip("route", "add", "default", "via", RED)
        # The agent reaches its servers by the kernel of its host.
        self.inside.link("aaa0", self.aaa, "nas")
        self.inside.ip("addr", "add", f"{NAS}/24", "dev", "aaa0")
        # The host's routes lead elsewhere: the servers are behind aaa0 for sockets that are bound to it.
        self.inside.link("elsewhere", self.core, "nowhere")
        self.inside.ip("route", "add", RESERVE, "dev", "elsewhere", "metric", "1")
        for address in (SERVER, RESERVE, FORGER, FOREIGN):
            self.aaa.ip("addr", "add", f"{address}/24", "dev", "nas")
        self.server, self.reserve = (FreeRadius(lab, self.aaa, each, USERS) for each in (SERVER, RESERVE))
        metrics = {"type": "metrics", "name": "metrics", "listen": METRICS}
        self.gateway = Gateway(lab, self.inside, northbounds=[metrics])
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC),
            thing("Port", "core", device="net_af_packet1,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Port", "red", device="net_af_packet2,iface=core1,framecnt=4096"),
            thing("Vrf", "red"),
            thing("Interface", "gateway", addresses=["100.64.0.1/32"]),
            thing("Interface", "red-gateway", addresses=["100.64.0.1/32"], vrf="red"),
            thing("Interface", "red", port="red", addresses=[f"{RED}/24"], vrf="red"),
            thing("Acl", "quiet", rules=[{"action": "deny", "protocol": "udp"}], otherwise="permit"),
            thing("AddressPool", "links", ranges=["2001:db8:100::/40"], prefixLength=64),
            thing("AddressPool", "networks", ranges=["2001:db8:200::/40"], prefixLength=56),
            *(
                thing("Meter", name, committedRate=rate, committedBurst="1MB")
                for name, rate in (("slow", "10M"), ("fast", "50M"))
            ),
            thing("Interface", "core", port="core", addresses=[f"{CORE}/24"]),
            thing("Acl", "home", rules=[], otherwise="permit"),
            thing("AddressPool", "pool", ranges=["100.64.1.0/24"], gateway="100.64.0.1"),
            thing("AddressPool", "one", ranges=[f"{SHARED}/32"], gateway="100.64.0.1"),
            thing("AddressPool", "one-red", ranges=[f"{SHARED}/32"], gateway="100.64.0.1", vrf="red"),
            *(
                thing(
                    "RadiusServer",
                    name,
                    address=address,
                    sourceAddress=NAS,
                    device="aaa0",
                    secret=SECRET,
                    # Long enough that a busy machine makes no record come twice.
                    timeout="2s",
                    transmissions=1,
                    statusInterval="500ms",
                )
                for name, address in (("aaa", SERVER), ("reserve", RESERVE), ("forger", FORGER))
            ),
            thing(
                "RadiusPolicy",
                "home",
                authentication=[{"server": "aaa"}, {"server": "reserve"}],
                accounting=[{"server": "aaa"}],
                nasIdentifier="bng-1",
                nasIpAddress=NAS,
                calledStationId="{circuit-id}/{remote-id}",
                attributes=[
                    {"vendor": 9, "type": 1, "prefix": "down-kbit=", "grant": "rate_down", "scale": 1000},
                    {"type": 62, "grant": "rate_up", "scale": 1000000},
                ],
                dynamicAuthorization={"address": NAS, "device": "aaa0", "requireMessageAuthenticator": True},
            ),
            thing(
                "SubscriberProfile",
                "home",
                authentication=["radius"],
                accounting=["radius"],
                gateway="100.64.0.1",
                interimInterval="10s",
            ),
            *(
                thing("RadiusPolicy", name, profiles=[name], authentication=servers)
                for name, servers in (
                    ("shared", [{"server": "aaa", "weight": 1}, {"server": "reserve", "weight": 1}]),
                    ("forged", [{"server": "forger"}, {"server": "reserve"}]),
                )
            ),
            # Another provider's, with subscribers of his own.
            thing(
                "RadiusPolicy",
                "foreign",
                profiles=["foreign"],
                dynamicAuthorization={
                    "address": NAS,
                    "device": "aaa0",
                    "clients": [{"addresses": f"{FOREIGN}/32", "secret": SECRET}],
                },
            ),
            thing("QosScheduler", "access", port="access", rate="10G"),
            thing("QosGroup", "olt", scheduler="access"),
            thing("QosProfile", "queues", committedRate="20M", peakRate="30M", classes=[{"name": "data"}]),
            thing(
                "SubscriberProfile",
                "shaped",
                authentication=["radius"],
                policy={"qosProfile": "queues", "qosGroup": "olt"},
            ),
            thing("PppoeServer", "shaped", port="access", outerVlans=["320"], profile="shaped", echoInterval="300s"),
            thing("SubscriberProfile", "shared", authentication=["radius"]),
            thing("SubscriberProfile", "forged", authentication=["radius"], gateway="100.64.0.1"),
            thing("IpoeServer", "shared", port="access", outerVlans=["201"], profile="shared"),
            thing("PppoeServer", "forged", port="access", outerVlans=["300"], profile="forged", echoInterval="300s"),
            # Hosts of these tests answer echoes only while they are looked after.
            thing(
                "PppoeServer",
                "home",
                port="access",
                outerVlans=["100-199"],
                profile="home",
                echoInterval="300s",
                relayInformation="trust_information",
            ),
            thing(
                "IpoeServer",
                "lines",
                port="access",
                outerVlans=["200"],
                profile="home",
                relayInformation="trust_information",
            ),
            wait=False,
        )
        wait_until(self.serves, 30, "the Punts of the PppoeServer")
        self.wire = Wire(self.clients, "line")
        lab.on_close(self.wire.close)

    def serves(self):
        punts = self.gateway.json("get", "punts") or []
        return len(punts) == 8 and all(each["status"]["state"] == "applied" for each in punts)

    def host(self, number, username, password, **options):
        mac = f"02:00:00:00:01:{number:02x}"
        return Host(self.wire, mac, 100 + number, username=username, password=password, **options)

    def records(self, mac, **wanted):
        return self.server.records(Calling_Station_Id=mac.hex(":"), **wanted)

    def one(self, host, status):
        wait_until(lambda: self.records(host.mac, Acct_Status_Type=status), 60, f"{status} of {host.mac.hex(':')}")
        (found,) = self.records(host.mac, Acct_Status_Type=status)
        return found

    def interims(self, host):
        """Interim-Updates of the interval, and those of changed addresses: they differ from the record before them."""
        of_interval, of_change = [], []
        before = None
        for each in self.records(host.mac):
            addresses = [each.get(name) for name in ADDRESSES]
            if each["Acct-Status-Type"] == "Interim-Update":
                (of_interval if addresses == before else of_change).append(each)
            before = addresses
        return of_interval, of_change

    def spooled(self, session):
        """Whether the durable log has the session's Stop: attribute 40 is 2."""
        logs = self.gateway.directory.glob("intent.db.records/*.log")
        text = b"".join(each.read_bytes() for each in logs)
        return any(b"\x28\x06\0\0\0\x02" in part for part in text.split(b"a/")[1:] if session.encode() in part)

    def session(self, host):
        found = self.gateway.json("get", "sessions") or []
        return next((each for each in found if each["spec"].get("access", {}).get("mac") == host.mac.hex(":")), None)

    def meters(self, host):
        policy = self.session(host)["spec"].get("policy", {})
        return policy.get("meterUp"), policy.get("meterDown")

    def dead(self, server):
        """Why a RadiusServer is not ready; nothing if it is."""
        (found,) = self.gateway.json("get", "radius-servers", server)
        (ready,) = (each for each in found["status"]["conditions"] if each["type"] == "Ready")
        return ready["message"] if ready["status"] == "False" and ready["reason"] == "ServerDead" else None

    def metrics(self, name, *labels):
        """Values of a metric by the rest of their labels."""
        said = self.inside.run("curl", "-sf", f"http://{METRICS}/metrics").stdout
        lines = [each for each in said.splitlines() if each.startswith(name + "{") and all(x in each for x in labels)]
        return {each.rsplit(" ", 1)[0]: float(each.rsplit(" ", 1)[1]) for each in lines}

    def dropped(self, server):
        """Packets of a RADIUS server that were dropped, by reason."""
        found = self.metrics("sluice_radius_drops_total", f'server="{server}"')
        return {each.split('reason="')[1].split('"')[0]: int(count) for each, count in found.items()}

    def change(self, command, *attributes):
        return radclient(self.aaa, NAS, command, "Message-Authenticator = 0x00", *attributes)


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


def test_a_subscriber_gets_the_servers_attributes_and_each_packet_is_accounted(site):
    alice = site.host(1, "alice", "wonderland")
    assert alice.dial(IPCP)
    assert alice.ip4() == HOME
    start = site.one(alice, "Start")
    assert start["User-Name"] == "alice" and start["Framed-IP-Address"] == HOME
    assert start["NAS-Identifier"] == "bng-1" and start["NAS-IP-Address"] == NAS
    assert start["NAS-Port-Id"] == "access:101.0" and start["Class"] == "0x616263"
    policy = site.session(alice)["spec"]["policy"]
    assert policy["aclUp"] == "home" and policy["meterUp"] != policy["meterDown"]
    for number in range(3):
        alice.ping(HOST, number)
    alice.hang_up()
    stop = site.one(alice, "Stop")
    assert stop["Acct-Session-Id"] == start["Acct-Session-Id"] and stop["Acct-Terminate-Cause"] == "User-Request"
    assert int(stop["Acct-Input-Packets"]) == 3 and int(stop["Acct-Output-Packets"]) == 3
    assert int(stop["Acct-Input-Octets"]) == 3 * 32 and stop["Class"] == "0x616263"
    wait_until(lambda: site.session(alice) is None)
    assert len(site.server.records(Acct_Status_Type="Accounting-On")) == 1


@pytest.fixture(scope="module")
def carol(site):
    """A subscriber with all attributes of the server: up from the beginning to the last test."""
    host = site.host(20, "carol", "everything")
    assert host.dial(line=ACCESS_NODE)
    return host


def test_disconnects_and_coas_take_effect_on_the_wire(site, carol):
    assert carol.ip4() == EVERYTHING
    assert [str(ipaddress.ip_address(each)) for each in carol.dns] == ["192.0.2.53", "192.0.2.54"]
    assert carol.identifier == bytes.fromhex("0000000000000007")
    spec = site.session(carol)["spec"]
    assert spec["vrf"] == "red"
    assert set(spec["addresses"]) == {
        f"{EVERYTHING}/32",
        "198.51.100.0/29",
        "2001:db8:7:9::/64",
        "2001:db8:7:a::7/128",
        "2001:db8:790::/56",
        "2001:db8:79a::/48",
    }
    assert (spec["policy"]["mtu"], spec["policy"]["mss"], spec["policy"]["aclUp"]) == (1400, 1300, "quiet")
    carol.until(lambda: carol.advertisement, "router advertisement")
    advertisement = IPv6(carol.advertisement)
    assert advertisement[ICMPv6NDOptPrefixInfo].prefix == "2001:db8:7:9::"
    assert advertisement[ICMPv6NDOptRDNSS].dns == ["2001:db8::53"]
    route = advertisement[ICMPv6NDOptRouteInfo]
    assert (route.prefix, route.plen, route.rtlifetime) == ("2001:db8:5::", 48, 1800)
    # In its VRF, also from the network behind it.
    carol.ping(RED_HOST, 1)
    carol.address = ipaddress.ip_address("198.51.100.1").packed
    carol.ping(RED_HOST, 2)
    carol.address = ipaddress.ip_address(EVERYTHING).packed
    before = site.gateway.drops().get("acl-denied", 0)
    carol.udp(RED_HOST, 9)
    site.gateway.dropped("acl-denied", 20, before)

    start = site.one(carol, "Start")
    assert start["Called-Station-Id"] == "olt 1/2:7/home"
    line = {name: value for name, value in start.items() if name.startswith(("ADSL-Agent", "Actual", "Actual-I"))}
    assert line == {
        "ADSL-Agent-Circuit-Id": "0x" + b"olt 1/2:7".hex(),
        "ADSL-Agent-Remote-Id": "0x" + b"home".hex(),
        "Actual-Data-Rate-Upstream": "20000000",
        "Actual-Data-Rate-Downstream": "100000000",
        "Actual-Interleaving-Delay-Upstream": "8",
    }
    assert start["Framed-IPv6-Prefix"] == "2001:db8:7:9::/64" and start["Delegated-IPv6-Prefix"] == "2001:db8:790::/56"


@pytest.mark.parametrize("dialect", ["huawei", "juniper", "cisco", "table"])
def test_rates_come_in_each_dialect(site, dialect):
    host = site.host(30 + len(dialect), dialect, "secret", method="chap")
    assert host.dial(*(() if dialect == "huawei" else (IPCP,)))
    assert host.ip4().startswith("100.64.1.")
    up, down = site.meters(host)
    assert (up, down) == ("slow", "fast") if dialect == "juniper" else up.startswith("rate-10000000-")
    assert (up, down) == ("slow", "fast") if dialect == "juniper" else down.startswith("rate-50000000-")
    if dialect == "huawei":
        pools = [each[:12] for each in site.session(host)["spec"]["addresses"] if ":" in each]
        assert sorted(pools) == ["2001:db8:100", "2001:db8:200"]
    host.hang_up()
    wait_until(lambda: site.session(host) is None)


@pytest.mark.parametrize(
    "dialect, change",
    [
        ("mikrotik", 'Mikrotik-Rate-Limit = "5M/70M"'),
        ("cisco", 'Cisco-AVPair = "lcp:interface-config=rate-limit output 70000000"'),
        ("huawei", "Huawei-Output-Average-Rate = 70000000"),
    ],
)
def test_a_granted_rate_is_the_shapers_and_a_coa_changes_it_without_loss(site, dialect, change):
    def queues():
        """Meters, and the QosProfile's name and rates."""
        policy = site.session(host)["spec"]["policy"]
        name = policy["qosProfile"]
        found = {each["metadata"]["name"]: each for each in site.gateway.json("get", "qosprofiles")}
        assert found[name]["status"]["state"] == "applied"
        spec = found[name]["spec"]
        return policy.get("meterUp", "")[:9], policy.get("meterDown"), name, spec["committedRate"], spec["peakRate"]

    mac = f"02:00:00:00:06:{len(dialect):02x}"
    host = Host(site.wire, mac, 320, username=dialect, password="secret", method="chap")
    assert host.dial(IPCP)
    assert queues() == ("rate-1000", None, "queues-rate-50000000", 20_000_000, 50_000_000)
    with ThreadPoolExecutor(1) as other:
        changing = other.submit(site.change, "coa", f"Framed-IP-Address = {host.ip4()}", change)
        number = 0
        while number < 30 or not changing.done():
            number += 1
            host.ping(HOST, number)
        assert "Received CoA-ACK" in changing.result()
    assert queues()[1:] == (None, "queues-rate-70000000", 20_000_000, 70_000_000)
    # Without the profile, the rate is a policer's again.
    assert "Received CoA-ACK" in site.change("coa", f"Framed-IP-Address = {host.ip4()}", 'ERX-Qos-Profile-Name = "-"')
    policy = site.session(host)["spec"]["policy"]
    assert "qosProfile" not in policy and policy["meterDown"].startswith("rate-70000000-")
    host.ping(HOST, number + 1)
    host.hang_up()
    wait_until(lambda: site.session(host) is None)
    wait_until(lambda: len(site.gateway.json("get", "qosprofiles")) == 1)


def test_whom_the_server_rejects_gets_no_session(site):
    mallory = site.host(2, "alice", "guess")
    assert not mallory.dial(IPCP)
    assert mallory.refused is not None and site.session(mallory) is None
    assert not site.records(mallory.mac)


def test_a_server_changes_a_rate_and_ends_a_session(site):
    bob = site.host(3, "bob", "builder")
    assert bob.dial(IPCP) and bob.ip4().startswith("100.64.1.")
    start = site.one(bob, "Start")
    assert site.meters(bob) == (None, None)
    identity = f"Acct-Session-Id = {start['Acct-Session-Id']}"
    assert "Received CoA-ACK" in site.change("coa", identity, 'Mikrotik-Rate-Limit = "5M/20M"')
    before = wait_until(lambda: all(site.meters(bob)) and site.meters(bob))
    # Found by another word.
    assert "Received CoA-ACK" in site.change("coa", 'NAS-Port-Id = "access:103.0"', 'Mikrotik-Rate-Limit = "5M/30M"')
    wait_until(lambda: site.meters(bob)[0] == before[0] and site.meters(bob)[1] != before[1])
    bob.ping(HOST, 1)
    assert "Error-Cause = Session-Context-Not-Found" in site.change("disconnect", 'Acct-Session-Id = "nobody"')
    assert "Error-Cause = Unsupported-Attribute" in site.change("coa", identity, "Framed-Pool = other")
    unsigned = radclient(site.aaa, NAS, "coa", identity, "Idle-Timeout = 60", seconds=1)
    assert "Received" not in unsigned
    for command in ("coa", "disconnect"):
        foreign = ("Idle-Timeout = 60",) if command == "coa" else ()
        answer = site.change(command, identity, f"Packet-Src-IP-Address = {FOREIGN}", *foreign)
        assert "Error-Cause = Session-Context-Not-Found" in answer
    text = 'Reply-Message = "the tariff has changed"'
    assert "Received Disconnect-ACK" in site.change("disconnect", f"Framed-IP-Address = {bob.ip4()}", text)
    bob.until(lambda: bob.ended, "the end")
    assert bob.why == "the tariff has changed"
    assert site.one(bob, "Stop")["Acct-Terminate-Cause"] == "Admin-Reset"
    wait_until(lambda: site.session(bob) is None)


def test_a_line_without_credentials_is_known_by_its_mac(site):
    client = Client(site.wire, LINE_MAC, 200)
    # The access node's line attributes are in sub-option 9 of option 82 (RFC 4243), for each vendor.
    rates = struct.pack("!BBIBBI", 0x81, 4, 20_000, 0x82, 4, 100_000)
    vendor = struct.pack("!IB", 3561, len(rates)) + rates
    information = b"\x01\x09olt 1/2:8" + bytes([9, len(vendor)]) + vendor
    acknowledged = client.ask4((82, information))
    assert acknowledged[BOOTP].yiaddr == LINE
    wait_until(lambda: site.server.records(Framed_IP_Address=LINE, Acct_Status_Type="Start"))
    (start,) = site.server.records(Framed_IP_Address=LINE, Acct_Status_Type="Start")
    assert start["Service-Type"] == "Call-Check" and start["NAS-Port-Type"] == "Ethernet"
    assert start["User-Name"] == LINE_MAC
    assert start["ADSL-Agent-Circuit-Id"] == "0x" + b"olt 1/2:8".hex()
    assert (start["Actual-Data-Rate-Upstream"], start["Actual-Data-Rate-Downstream"]) == ("20000000", "100000000")
    answer = site.change("disconnect", f'Calling-Station-Id = "{LINE_MAC}"')
    assert "Received Disconnect-ACK" in answer
    wait_until(lambda: site.server.records(Framed_IP_Address=LINE, Acct_Terminate_Cause="Admin-Reset"))


def test_a_pppoe_host_does_not_name_its_line_without_a_trusted_access_node(site):
    def drops(reason):
        return sum(site.metrics("sluice_pppoe_drops_total", f'reason="{reason}"').values())

    untrusting = Host(site.wire, "02:00:00:00:04:10", 300, username="alice", password="wonderland")
    trusting = site.host(60, "alice", "wonderland")
    # The second host's own tag, and the access node's beside it.
    for host, tags, reason in (
        (untrusting, ACCESS_NODE, "relay-information"),
        (trusting, ACCESS_NODE + ACCESS_NODE, "relay-information-twice"),
    ):
        host.reset()

        def refused(host=host, tags=tags, reason=reason):
            # The first one may come before the server is ready.
            host.discovery(PADI, tag(SERVICE_NAME) + tags, destination=ALL)
            return drops(reason) > 0

        wait_until(refused, 20, f"a packet is dropped: {reason}")
        assert PADO not in host.discovered
        host.discover()


def test_another_server_authenticates_until_the_first_one_is_back(site):
    def asked(server):
        return server.process.log.read_text().count("Received Access-Request")

    site.server.stop()
    first, before = asked(site.server), asked(site.reserve)
    for number in (6, 7):
        alice = site.host(number, "alice", "wonderland")
        assert alice.dial(IPCP)
        alice.hang_up()
        wait_until(lambda alice=alice: site.session(alice) is None)
    assert asked(site.reserve) == before + 2
    wait_until(lambda: site.dead("aaa"))
    assert f"no answer from {SERVER}:181" in site.dead("aaa") and not site.dead("reserve")
    site.server.start()
    for number in (6, 7):
        # Both were accounted for while the first server was away; and so it is known to be back.
        site.one(site.host(number, "", ""), "Stop")
    assert asked(site.server) == first
    number = 8

    def answers():
        nonlocal number
        alice = site.host(number, "alice", "wonderland")
        assert alice.dial(IPCP)
        alice.hang_up()
        wait_until(lambda: site.session(alice) is None)
        number += 1
        return asked(site.server) > first

    wait_until(answers)
    wait_until(lambda: not site.dead("aaa"))


def test_servers_with_weights_share_requests_and_one_without_comes_after_them(site):
    def asked(server):
        return server.process.log.read_text().count("Received Access-Request")

    def ask(first):
        """So many lines that no server knows."""
        before = asked(site.server), asked(site.reserve)
        for number in range(first, first + 24):
            Client(site.wire, f"02:00:00:00:03:{number:02x}", 201).send4("discover")
        wait_until(lambda: asked(site.server) + asked(site.reserve) >= sum(before) + 24, 30, "24 requests")
        return asked(site.server) - before[0], asked(site.reserve) - before[1]

    # By chance, each of them; one of 2^23 runs chooses one server alone.
    assert all(count > 0 for count in ask(0))
    weights = [{"server": "aaa"}, {"server": "reserve", "weight": 1}]
    site.gateway.apply(thing("RadiusPolicy", "shared", profiles=["shared"], authentication=weights))
    assert ask(100) == (0, 24)


# Codes, and Framed-IP-Address.
ACCEPT, REJECT, ACCOUNTED = 2, 3, 5
THEFT = b"\x08\x06" + ipaddress.ip_address(STOLEN).packed


def test_answers_that_are_forged_replayed_or_late_are_counted_and_ignored(lab, site):
    accepted = []

    def answers(request, answer):
        forgeries = [
            # By one that does not know the secret: an Accept, a Reject, with and without a Message-Authenticator.
            *(reply(code, request, THEFT, "guess", signed=way) for code in (ACCEPT, REJECT) for way in (True, False)),
            # CVE-2024-3596: right but for the Message-Authenticator, which is missing or wrong.
            reply(ACCEPT, request, THEFT, signed=False),
            reply(ACCEPT, request, b"\x50\x12" + bytes(16) + THEFT, signed=False),
            # The answer to another request, and to none.
            *(each[:1] + request[1:2] + each[2:] for each in accepted),
            reply(ACCEPT, request, THEFT, identifier=(request[1] + 128) % 256),
            # Of another kind, cut, and with an attribute without a length.
            reply(ACCOUNTED, request),
            answer[:-1],
            reply(ACCEPT, request, b"\x08\x01"),
        ]
        accepted.append(answer)
        # The right one, and once more.
        return [*forgeries, answer, answer]

    between = Between(lab, site.aaa, FORGER, SERVER, answers)

    def dial(number):
        mac = f"02:00:00:00:04:{number:02x}"
        host = Host(site.wire, mac, 300, username="alice", password="wonderland", method="chap")
        assert host.dial(IPCP)
        assert host.ip4() == HOME
        host.hang_up()
        wait_until(lambda: site.session(host) is None)

    dial(1)
    once = {
        "authenticator": 4,
        "message-authenticator-missing": 1,
        "message-authenticator": 1,
        "code": 1,
        "malformed": 2,
        "unexpected": 2,
    }
    wait_until(lambda: site.dropped("forger") == once, 20, f"{once}, not {site.dropped('forger')}")
    # The answer to the first request is replayed to the second one.
    dial(2)
    twice = {name: 2 * count for name, count in once.items()} | {"authenticator": 9}
    wait_until(lambda: site.dropped("forger") == twice, 20, f"{twice}, not {site.dropped('forger')}")
    # One that comes after another server answered.
    between.holds = True
    alice = Host(site.wire, "02:00:00:00:04:03", 300, username="alice", password="wonderland", method="chap")
    assert alice.dial(IPCP)
    wait_until(lambda: between.held)
    between.release()
    wait_until(lambda: site.dropped("forger")["unexpected"] == 5)
    assert alice.ip4() == HOME and site.session(alice) is not None
    alice.hang_up()
    wait_until(lambda: site.session(alice) is None)


def test_a_pool_of_each_vrf_gives_the_same_address(site):
    plain, red, confused = (site.host(50 + n, user, "secret") for n, user in enumerate(("plain", "red", "confused")))
    for host in (plain, red):
        assert host.dial(IPCP)
        assert host.ip4() == SHARED
    assert [site.session(each)["spec"].get("vrf") for each in (plain, red)] == [None, "red"]
    plain.ping(HOST, 1)
    red.ping(RED_HOST, 1)
    # A pool of another VRF gives nothing.
    assert not confused.dial(IPCP)
    assert site.session(confused) is None
    used = site.metrics("sluice_subscriber_pool_used", 'pool="one')
    assert {each.split('vrf="')[1][:-2]: count for each, count in used.items()} == {"default": 1, "red": 1}
    # An address alone does not say whose it is; with the VRF it does.
    address, vrf = f"Framed-IP-Address = {SHARED}", 'Cisco-AVPair = "ip:vrf-id=red"'
    for command, more in (("coa", ["Session-Timeout = 3600"]), ("disconnect", [])):
        answer = site.change(command, address, *more)
        assert "NAK" in answer and "Error-Cause = Multiple-Session-Selection-Unsupported" in answer
    assert "Received CoA-ACK" in site.change("coa", address, vrf, 'Filter-Id = "home.in"')
    assert [site.session(each)["spec"].get("policy", {}).get("aclUp") for each in (plain, red)] == [None, "home"]
    assert "Received Disconnect-ACK" in site.change("disconnect", address, vrf)
    red.until(lambda: red.ended, "PADT")
    wait_until(lambda: site.session(red) is None)
    plain.hang_up()
    wait_until(lambda: site.session(plain) is None)


def test_a_subscriber_that_is_idle_for_as_long_as_the_server_says_is_ended(site):
    idle = site.host(53, "idle", "secret")
    assert idle.dial(IPCP)
    idle.until(lambda: idle.ended, "PADT")
    assert site.one(idle, "Stop")["Acct-Terminate-Cause"] == "Idle-Timeout"


def test_each_end_of_a_session_has_its_cause(site):
    watched = {"port": "access", "outerVlans": ["301-309"], "profile": "home", "echoInterval": "1s", "echoFailures": 2}
    site.gateway.apply(thing("PppoeServer", "watched", **watched))

    def up(number, username, password, vlan=None):
        mac = f"02:00:00:00:03:{number:02x}"
        host = Host(site.wire, mac, vlan or 160 + number, username=username, password=password)
        assert host.dial(IPCP)
        return host, site.one(host, "Start")["Acct-Session-Id"]

    def cause(host):
        return site.one(host, "Stop")["Acct-Terminate-Cause"]

    # Nobody answers this one's LCP echoes.
    silent, _ = up(1, "bob", "builder", 301)
    assert cause(silent) == "Lost-Carrier"
    brief, _ = up(2, "brief", "secret")
    brief.until(lambda: brief.ended, "PADT")
    assert cause(brief) == "Session-Timeout"
    quiet, session = up(3, "bob", "builder")
    assert "Received CoA-ACK" in site.change("coa", f"Acct-Session-Id = {session}", "Idle-Timeout = 1")
    quiet.until(lambda: quiet.ended, "PADT")
    assert cause(quiet) == "Idle-Timeout"
    # As the server says.
    preempted, session = up(4, "bob", "builder")
    answer = site.change("disconnect", f"Acct-Session-Id = {session}", "Acct-Terminate-Cause = Port-Preempted")
    assert "Received Disconnect-ACK" in answer
    assert cause(preempted) == "Port-Preempted"
    # An operator ends sessions, or takes their server away.
    ended, session = up(5, "bob", "builder")
    site.gateway.sluice("subscriber", "disconnect", "--id", session)
    assert cause(ended) == "Admin-Reset"
    last, _ = up(6, "bob", "builder", 302)
    site.gateway.delete("PppoeServer", "watched")
    assert cause(last) == "Admin-Reset"


def test_a_line_is_known_by_what_a_lightweight_relay_agent_says_of_it(site):
    client = Client(site.wire, LINE6_MAC, 200)
    solicit = DHCP6_Solicit(trid=7) / DHCP6OptClientId(duid=client.duid) / DHCP6OptIA_NA(iaid=1) / DHCP6OptRapidCommit()
    # Option 17 has what sub-option 9 of option 82 has.
    rates = [
        VENDOR_SPECIFIC_OPTION(optcode=code, optdata=struct.pack("!I", kbit))
        for code, kbit in ((0x81, 20_000), (0x82, 100_000))
    ]
    forward = (
        DHCP6_RelayForward(linkaddr="::", peeraddr=client.link_local)
        / DHCP6OptIfaceId(ifaceid=b"olt 1/2:9")
        / DHCP6OptVendorSpecificInfo(enterprisenum=3561, vso=rates)
        / DHCP6OptRelayMsg(message=solicit)
    )
    udp = IPv6(src=client.link_local, dst="ff02::1:2") / UDP(sport=547, dport=547)

    def answered():
        client.wire.send(client.frame(udp / forward, "33:33:00:01:00:02"))
        for raw in client.wire.frames(2):
            packet = client.mine(raw)
            if packet is not None and DHCP6_RelayReply in packet:
                return packet
        return None

    assert wait_until(answered, 30, "an answer through the relay agent")[DHCP6OptIAAddress].addr == LINE6
    wait_until(lambda: site.server.records(Framed_IPv6_Address=LINE6, Acct_Status_Type="Start"))
    (start,) = site.server.records(Framed_IPv6_Address=LINE6, Acct_Status_Type="Start")
    assert start["ADSL-Agent-Circuit-Id"] == "0x" + b"olt 1/2:9".hex()
    assert (start["Actual-Data-Rate-Upstream"], start["Actual-Data-Rate-Downstream"]) == ("20000000", "100000000")
    assert "Received Disconnect-ACK" in site.change("disconnect", f'Calling-Station-Id = "{LINE6_MAC}"')


def test_a_record_waits_for_the_server_though_the_agent_is_killed_and_comes_once(site):
    bob = site.host(4, "bob", "builder")
    assert bob.dial(IPCP)
    start = site.one(bob, "Start")
    bob.ping(HOST, 1)
    site.server.stop()
    ended = time.monotonic()
    bob.hang_up()
    wait_until(lambda: site.spooled(start["Acct-Session-Id"]))
    site.gateway.agent.kill()
    site.gateway.start_agent()
    wait_until(lambda: time.monotonic() > ended + 1)
    site.server.start()
    stop = site.one(bob, "Stop")
    assert stop["Acct-Session-Id"] == start["Acct-Session-Id"] and int(stop["Acct-Input-Packets"]) == 1
    assert 1 <= int(stop["Acct-Delay-Time"]) <= time.monotonic() - ended
    # A later session shows that nothing of the first one follows.
    alice = site.host(5, "alice", "wonderland")
    assert alice.dial(IPCP)
    site.one(alice, "Start")
    alice.hang_up()
    site.one(alice, "Stop")
    assert len(site.records(bob.mac, Acct_Status_Type="Stop")) == 1
    assert len(site.server.records(Acct_Status_Type="Accounting-On")) == 1


def test_a_session_has_one_start_though_the_agent_is_killed_before_a_server_has_it(site):
    # The reserve server authenticates, and no server accounts.
    site.server.stop()
    bob = site.host(70, "bob", "builder")
    assert bob.dial(IPCP)
    up = int(time.time())
    session = wait_until(lambda: site.session(bob))["metadata"]["name"]
    for _ in range(2):
        site.gateway.agent.kill()
        site.gateway.start_agent()
    log = site.server.process.log
    before = log.stat().st_size
    # It answers Status-Server: no other request ends the wait for it sooner.
    site.server.start()
    start = site.one(bob, "Start")
    heard = re.findall(r"(?:Received|Sent) (\S+) Id", log.read_bytes()[before:].decode())
    assert heard[:2] in (["Status-Server", "Access-Accept"], ["Status-Server", "Accounting-Response"]), heard
    bob.ping(HOST, 1)
    assert site.session(bob)["metadata"]["name"] == session
    assert start["Framed-IP-Address"] == bob.ip4()
    # It is of the time at which the session came up, not of that at which the agent was started.
    assert int(start["Timestamp"]) - int(start["Acct-Delay-Time"]) <= up + 1
    bob.hang_up()
    stop = site.one(bob, "Stop")
    assert stop["Acct-Session-Id"] == start["Acct-Session-Id"]
    assert len(site.records(bob.mac, Acct_Status_Type="Start")) == 1
    wait_until(lambda: site.session(bob) is None)


def test_a_server_changes_the_filter_and_the_timeout_of_a_session_that_has_been_up_for_a_while(site, carol):
    # By each key of a session.
    for number, key in enumerate(
        (
            'User-Name = "carol"',
            f"Framed-IP-Address = {EVERYTHING}",
            "Framed-IPv6-Prefix = 2001:db8:7:9::/64",
            "Delegated-IPv6-Prefix = 2001:db8:790::/56",
            "Framed-IPv6-Address = 2001:db8:7:a::7",
            f'Calling-Station-Id = "{carol.mac.hex(":")}"',
            'Called-Station-Id = "olt 1/2:7/home"',
            'NAS-Port-Id = "access:120.0"',
            f"NAS-Port = {carol.session}",
            "Framed-Interface-Id = 0000:0000:0000:0007",
            'ADSL-Agent-Circuit-Id = "olt 1/2:7"',
            'ADSL-Agent-Remote-Id = "home"',
        )
    ):
        acl = ("home", "quiet")[number % 2]
        assert "Received CoA-ACK" in site.change("coa", key, f'Filter-Id = "{acl}.in"'), key
        wait_until(lambda acl=acl: site.session(carol)["spec"]["policy"]["aclUp"] == acl)
    assert "Received CoA-ACK" in site.change("coa", 'User-Name = "carol"', 'Filter-Id = "home.in"')
    wait_until(lambda: site.session(carol)["spec"]["policy"]["aclUp"] == "home")
    # Denied packets pass.
    before = site.gateway.drops().get("acl-denied", 0)
    carol.udp(RED_HOST, 9)
    carol.ping(RED_HOST, 9)
    assert site.gateway.drops().get("acl-denied", 0) == before
    # Interim records come by the interval of the profile, besides those of changed addresses.
    wait_until(lambda: site.interims(carol)[0], 30, "an interim record of the interval")
    interim = site.interims(carol)[0][0]
    assert int(interim["Acct-Session-Time"]) >= 9 and interim["Framed-IP-Address"] == EVERYTHING
    assert interim["Actual-Data-Rate-Upstream"] == "20000000"
    assert "Received CoA-ACK" in site.change("coa", 'User-Name = "carol"', "Session-Timeout = 1")
    carol.until(lambda: carol.ended, "PADT")
    assert site.one(carol, "Stop")["Acct-Terminate-Cause"] == "Session-Timeout"
    wait_until(lambda: site.session(carol) is None)


def test_a_gateway_that_stops_accounting_sends_accounting_off(site):
    site.gateway.delete("RadiusPolicy", "home")
    (off,) = wait_until(lambda: site.server.records(Acct_Status_Type="Accounting-Off"), 30, "Accounting-Off")
    assert off["NAS-Identifier"] == "bng-1" and off["NAS-IP-Address"] == NAS
