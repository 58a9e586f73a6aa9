# SPDX-License-Identifier: Apache-2.0
"""Lines of homes (FN-RG) that the gateway registers with a 5G core (TS 23.316 section 7.2.1.3), and their traffic."""

import ipaddress
import itertools
import json
import re
import signal
import struct
from types import SimpleNamespace

import pytest
from core.amf import decode
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from lab import Gateway, Wire, frames, thing
from lab.core import MANGLED, Amf, another_amf, another_set, rerouted
from lab.dhcp import Client, Dhclient, options_of
from lab.gateway import Refused
from lab.laboratory import wait_until
from lab.pppoe import IPCP, IPV6CP, Host
from lab.radius import SECRET, FreeRadius
from lab.upf import END_MARKER, ERROR_INDICATION, Message, Upf
from lab.wireshark import Sniffer
from scapy.all import (
    BOOTP,
    DUID_LL,
    UDP,
    DHCP6_Advertise,
    DHCP6_Reply,
    DHCP6_Request,
    DHCP6_Solicit,
    DHCP6OptClientId,
    DHCP6OptIA_PD,
    DHCP6OptIAPrefix,
    DHCP6OptServerId,
    ICMPv6NDOptPrefixInfo,
    IPv6,
)

ACCESS_MAC, CORE_MAC = "02:00:00:00:aa:01", "02:00:00:00:aa:02"
GATEWAY, HOME = "100.64.0.1", "100.64.9.9"
N3, UPF = "192.0.2.1", "192.0.2.2"
N2, AMF, OTHER_AMF = "10.9.8.1", "10.9.8.2", "10.9.8.3"
METRICS = "127.0.0.1:9464"
SERVER, SERVER6 = "198.51.100.1", "2001:db8:9::1"
LAN = thing("IpoeServer", "lan", port="access", profile="home", leaseTime="60s")
# TS 33.501 section C.4.3 has the home network's keys.
PUBLIC = "5a8d38864820197c3394b92613b20b91633cbd897119273bf8e4a6f4eec0a650"
PRIVATE = "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d"
# The same number as a key of P-256.
POINT = ec.derive_private_key(int(PRIVATE, 16), ec.SECP256R1()).public_key()
POINT = POINT.public_bytes(Encoding.X962, PublicFormat.CompressedPoint).hex()
K, OPC = "00112233445566778899aabbccddeeff", "62e75b8d6fa5bf46ec87a9276f9df54d"
BNG = {"authentication": ["local"], "ipv4Pools": ["bng"]}
PROFILE = {"authentication": ["core"], "accounting": ["core"], "gateway": GATEWAY}
NODE = {
    "plmn": "00101",
    "wagfId": 7,
    "trackingAreas": [{"tac": 1, "slices": [{"sst": 1}]}],
    "localAddresses": [N2],
}
AGF = {"node": "agf", "coreAddress": N3, "dnn": "internet", "slice": {"sst": 1}}
REQUEST = "FGMMRegistrationRequest"
# The MAC of a line whose DHCP client a BNG knows, too.
LEASED = "02:00:00:00:78:01"


class Site:
    def __init__(self, lab):
        self.lab = lab
        self.clients, self.inside, self.core = (lab.namespace(each) for each in ("clients", "inside", "core"))
        for ours, other, theirs in (
            ("acc0", self.clients, "line"),
            ("acc1", self.clients, "line1"),
            ("core0", self.core, "n3"),
        ):
            self.inside.link(ours, other, theirs)
            self.inside.silent(ours)
        self.inside.link("n2", self.core, "amf")
        self.inside.ip("addr", "add", f"{N2}/24", "dev", "n2")
        for address, interface in ((f"{AMF}/24", "amf"), (f"{UPF}/24", "n3"), (f"{SERVER}/32", "lo")):
            self.core.ip("addr", "add", address, "dev", interface)
        self.core.ip("route", "add", "100.65.0.0/24", "via", N3)
        self.core.ip("-6", "addr", "add", f"{SERVER6}/128", "dev", "lo", "nodad")
        known = [f"00101000000000{number},{K},{OPC},64" for number in (1, 2, 3)]
        self.sniffers = [
            (Sniffer(lab, self.core, "amf", "sctp"), N2),
            (Sniffer(lab, self.core, "n3", "udp port 2152"), N3),
        ]
        self.amf = Amf(lab, self.core, AMF, upf=UPF, ue=HOME, homekey=PRIVATE, subscriber=known)
        self.upf = Upf(lab, self.core, UPF)
        self.upf.router = self.router
        self.wire = Wire(self.clients, "line")
        self.macs = (f"02:00:00:00:77:{number:02x}" for number in itertools.count(1))
        metrics = {"type": "metrics", "name": "metrics", "listen": METRICS}
        self.gateway = Gateway(lab, self.inside, northbounds=[metrics])
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC),
            thing("Port", "core", device="net_af_packet1,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Port", "second", device="net_af_packet2,iface=acc1,framecnt=4096", mac="02:00:00:00:aa:03"),
            thing("Interface", "gateway", addresses=[f"{GATEWAY}/32"]),
            thing("Interface", "core", port="core", addresses=[f"{N3}/24"]),
            thing("AccessNode", "agf", **NODE),
            thing("Agf", "homes", **AGF),
            thing("Amf", "core", node="agf", addresses=[AMF]),
            thing("SubscriberProfile", "home", **PROFILE),
            LAN,
            thing("PppoeServer", "dialled", port="access", outerVlans=["200"], profile="home"),
            thing("PppoeServer", "second", port="second", outerVlans=["200"], profile="home"),
            # Another back end authorizes the registration.
            thing("SubscriberProfile", "known", **{**PROFILE, "authentication": ["local"], "authorization": ["core"]}),
            thing("LocalUser", "alice", username="alice", password="secret"),
            thing("PppoeServer", "known", port="access", outerVlans=["201"], profile="known"),
            # Lines that a profile moves between BNG and AGF service.
            thing("AddressPool", "bng", ranges=["100.65.0.0/24"], gateway=GATEWAY),
            thing("LocalUser", "mover", username="mover", password="secret"),
            thing("LocalUser", "leased", username=LEASED),
            thing("SubscriberProfile", "mover", **BNG),
            # Lines whose traffic waits in queues.
            thing("QosScheduler", "access", port="access", rate="1G"),
            thing("QosGroup", "slow", scheduler="access", peakRate="64K"),
            thing("SubscriberProfile", "shaped", **PROFILE, policy={"qosGroup": "slow"}),
            thing("PppoeServer", "shaped", port="access", outerVlans=["204"], profile="shaped"),
            thing("PppoeServer", "mover", port="access", outerVlans=["203"], profile="mover"),
            thing("IpoeServer", "mover", port="access", outerVlans=["206"], profile="mover"),
            thing("Route", "internet", prefix="0.0.0.0/0", nextHops=[{"address": UPF}]),
        )
        self.amf.wait("setup")
        wait_until(lambda: self.gateway.json("get", "punts"), 30, "the server")

    def counts(self):
        return len(self.amf.events("address")), len(self.amf.events("tunnel"))

    def given(self, before):
        """The session that the core set up after `before`; its tunnel at the UPF."""
        of = self.amf.wait("address", before[0] + 1)[before[0]]
        tunnel = self.amf.wait("tunnel", before[1] + 1)[before[1]]
        line = SimpleNamespace(teid_up=of["teid"], teid_down=tunnel["teid"], ip4=of["address"], ip6=None, ue=of["ue"])
        self.upf.add(line, N3, qfi=5)
        return line

    def router(self, teid):
        """The UPF's data of an uplink TEID from the SMF: the other end, and the prefix to advertise."""
        of = self.amf.wait("address", teid=teid)[-1]
        tunnel = self.amf.wait("tunnel", ue=of["ue"], session=of["session"])[-1]
        return SimpleNamespace(teid_down=tunnel["teid"]), of["prefix"]

    def kind(self, kind, **more):
        """The type of PDU sessions from now on."""
        self.gateway.apply(thing("Agf", "homes", **AGF, pduSessionType=kind, **more))

    def ask(self, line, name, ies, answer):
        """A message of the AMF for a line; the IEs of its answer."""
        before = len(self.amf.events("message", name=answer))
        self.amf.do("send", ue=line.ue, name=name, ies=repr(ies))
        return decode(bytes.fromhex(self.amf.wait("message", before + 1, name=answer)[-1]["octets"]))[1]

    def down(self, line, qfi, size, number=0):
        """A packet of the UPF for a line."""
        packet = frames.udp(SERVER, line.ip4, 7, 7, bytes([number]) * size)
        self.upf.send(self.upf.gpdu(line, packet, qfi), N3)

    def of_tunnel(self, teid):
        """The session with a tunnel to the UPF's end."""
        found = [one["spec"] for one in self.gateway.json("get", "sessions")]
        return next((one for one in found if one["gtpu"]["remoteTeid"] == teid), None)

    def dial(self, username, vlan=200, password="x"):
        """A PPPoE line."""
        host = Host(self.wire, next(self.macs), vlan, username=username, password=password)
        before = self.counts()
        assert host.dial(IPCP)
        return host, self.given(before)

    def session(self, address):
        found = [
            one for one in self.gateway.json("get", "sessions") if f"{address}/32" in one["spec"].get("addresses", [])
        ]
        return found[0]["spec"] if found else None

    def meters(self, address):
        """The QoS flows of a session that have meters, by QFI."""
        flows = self.flows(address)
        return {qfi: flow for qfi, flow in flows.items() if "metersUp" in flow or "metersDown" in flow}

    def flows(self, address):
        """The QoS flows of a session, by QFI."""
        profile = self.session(address)["policy"].get("flowProfile")
        flows = self.gateway.json("get", "flowprofile", profile)[0]["spec"]["flows"] if profile else []
        return {flow["qfi"]: flow for flow in flows}

    def rate(self, meter):
        """Bit/s of a meter of flows."""
        spec = self.gateway.json("get", "meter", meter)[0]["spec"]
        assert spec["scope"] == "global"
        return spec["committedRate"]

    def signals(self, signal):
        """How many GTP-U signals of a name the agent counted."""
        read = self.inside.run("curl", "-sf", f"http://{METRICS}/metrics").stdout
        found = re.findall(rf'^sluice_gtpu_signals_total{{.*signal="{signal}".*}} (\d+)$', read, re.MULTILINE)
        return sum(int(count) for count in found)

    def ping(self, host, number):
        host.ping(SERVER, number)

    def restart(self):
        """The agent dies and comes back; the AMF is asked to keep contexts."""
        asked = len(self.amf.events("setup", asked=True))
        self.gateway.agent.kill()
        self.gateway.start_agent()
        return self.amf.wait("setup", asked + 1, asked=True)[-1]


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


def test_a_line_registers_and_its_traffic_goes_through_the_tunnel(lab, site):
    client = Dhclient(lab, site.clients, "line", GATEWAY)
    wait_until(lambda: client.having("BOUND"), 60, "bound")
    assert client.having("BOUND")[0][1] == HOME

    # The core's view: null algorithms after the first message, on one stream, authenticated by the line.
    said = [entry["name"] for entry in site.amf.events("nas")]
    expected = ["RegistrationRequest", "SecurityModeComplete", "RegistrationComplete", "ULNASTransport"]
    assert [name.removeprefix("FGMM") for name in said][:4] == expected
    assert [entry["header"] for entry in site.amf.events("nas")][:4] == [0, 4, 2, 2]
    mac = site.clients.mac("line")
    assert (
        f"type3.rid0.schid0.userid{mac}@5gc.mnc001.mcc001.3gppnetwork.org".encode().hex()
        in site.amf.events("nas")[0]["octets"]
    )
    streams = {
        entry["stream"] for entry in site.amf.events("message") if "NAS" in entry["name"] or "Initial" in entry["name"]
    }
    assert len(streams) == 1 and 0 not in streams

    tunnel = site.amf.wait("tunnel")[0]
    assert tunnel["address"] == N3
    session = site.gateway.json("get", "sessions")[0]["spec"]
    assert session["addresses"] == [f"{HOME}/32"]
    assert session["gtpu"] == {
        "localAddress": N3,
        "localTeid": tunnel["teid"],
        "remoteAddress": UPF,
        "remoteTeid": 7001,
        "pduSessionContainer": True,
        "qfi": 5,
    }
    line = SimpleNamespace(teid_up=7001, teid_down=tunnel["teid"], ip4=HOME, ip6=None)
    site.upf.add(line, N3, qfi=5)
    site.clients.run("ping", "-c", "3", "-i", "0.2", "-W", "10", SERVER)

    # The operator's view.
    (shown,) = site.gateway.json("get", "lines")
    assert (shown["name"], shown["agf"], shown["state"], shown["amf"]) == (mac, "homes", "registered", "core")
    (pdu,) = site.gateway.json("describe", "line", mac)["sessions"]
    (subscriber,) = site.gateway.json("subscriber", "list")
    assert (pdu["state"], pdu["subscriber"], pdu["addresses"]) == ("active", subscriber["id"], [HOME])
    assert (pdu["upf"], pdu["teidUp"], pdu["teidDown"]) == (UPF, 7001, tunnel["teid"])
    assert pdu["flows"] == ["5 (5QI 9)"]

    # The end of the session, here because its server is deleted, deregisters the line. The core's answer ends it.
    site.gateway.delete("IpoeServer", "lan")
    site.amf.wait("deregistered")
    wait_until(lambda: not site.gateway.json("get", "sessions"), 30, "no session")
    site.amf.wait("message", name="UEContextReleaseComplete")
    assert not site.amf.events("message", name="ErrorIndication")
    client.process.stop()
    site.gateway.apply(LAN)


def test_a_lease_is_renewed_by_unicast_beside_the_tunnel(site):
    """RFC 2131 section 4.4.5: the server is the gateway, and not behind the UPF."""
    client = Client(site.wire, next(site.macs))
    before = site.counts()
    address = client.ask4()[BOOTP].yiaddr
    line = site.given(before)
    assert address == line.ip4
    client.send4("request", source=address, destination=GATEWAY, to=ACCESS_MAC, ciaddr=address)
    assert client.answer4(5)[BOOTP].yiaddr == address
    # A server that is not the gateway is behind the tunnel.
    seen = []
    site.upf.taker = lambda message: seen.append(message.payload)
    try:
        client.send4("request", source=address, destination=SERVER, to=ACCESS_MAC, ciaddr=address)
        wait_until(lambda: seen, 20, "a request in the tunnel")
    finally:
        site.upf.taker = None
    client.send4("release", source=address, destination=GATEWAY, to=ACCESS_MAC, ciaddr=address)
    wait_until(lambda: site.session(address) is None, 30, "no session")


def test_a_line_that_the_core_deregisters_loses_its_session(site):
    host, line = site.dial("gone")
    site.amf.do("deregister", ue=line.ue)
    wait_until(lambda: site.session(line.ip4) is None, 30, "no session")
    assert site.amf.wait("nas", name="FGMMMTDeregistrationAccept")
    host.until(lambda: host.ended, "the end")
    assert host.why == "the core deregisters the line"


def test_a_dhcp_client_whose_line_the_core_rejects_hears_the_reason(site):
    client = Client(site.wire, next(site.macs))
    before = site.counts()
    address = client.ask4()[BOOTP].yiaddr
    line = site.given(before)
    # PLMN not allowed.
    site.amf.do("set", option="reject", value=11)
    site.amf.do("deregister", ue=line.ue)
    wait_until(lambda: site.session(line.ip4) is None, 30, "no session")
    why = "the core rejects the registration: 5GMM cause 11, PLMN not allowed"
    try:
        # It starts again, and asks for its address (RFC 2131 section 3.2). Each request is refused.
        for _ in range(2):
            denied = client.again(
                lambda: client.send4("request", ("requested_addr", address)), lambda: client.answer4(6, seconds=2)
            )
            assert options_of(denied)["error_message"].decode() == why
        (lease,) = site.gateway.json("get", "leases", "--mac", client.mac)
        assert (lease["state"], lease["reason"]) == ("refused", why)
    finally:
        site.amf.do("set", option="reject", value=0)


def test_a_pppoe_line_has_its_address_from_its_pdu_session(site):
    host, line = site.dial("dsl-1")
    assert host.ip4() == line.ip4
    site.ping(host, 1)
    # A second session of the line is a second PDU session of one registration.
    registrations = len(site.amf.events("nas", name=REQUEST))
    other, second = site.dial("dsl-1")
    assert second.ip4 != line.ip4 and second.ue == line.ue
    site.ping(other, 2)
    assert len(site.amf.events("nas", name=REQUEST)) == registrations
    # The subscriber's AMBR is less than those of its sessions: the flows of both pass one meter of it.
    site.amf.do("ambr", ue=line.ue, down=25_000_000, up=15_000_000)
    meters = wait_until(
        lambda: all(found := [site.meters(each.ip4) for each in (line, second)]) and found,
        30,
        "meters of both sessions",
    )
    for way, rates in (("metersDown", [20, 25]), ("metersUp", [10, 15])):
        (one, shared), (two, shared_too) = (each[5][way] for each in meters)
        assert shared == shared_too and one != two
        assert [site.rate(name) for name in (one, shared)] == [rate * 1_000_000 for rate in rates]
        assert site.rate(two) == rates[0] * 1_000_000
    site.ping(host, 4)
    site.ping(other, 5)
    before = len(site.amf.events("session", kind=209))
    other.hang_up()
    site.amf.wait("session", before + 1, kind=209)
    site.ping(host, 3)
    wait_until(lambda: "meterUp" in site.session(line.ip4)["policy"], 30, "a meter of the session")
    assert not site.meters(line.ip4)
    before = len(site.amf.events("deregistered"))
    host.hang_up()
    site.amf.wait("deregistered", before + 1)


def test_the_core_changes_a_session_under_traffic(site):
    host, line = site.dial("dsl-2")
    site.ping(host, 1)
    moved = SimpleNamespace(**{**vars(line), "teid_up": 9999})
    site.upf.add(moved, N3, qfi=5)
    site.amf.do("modify", ue=line.ue, session=1, teid=9999, down=50, up=30, gbr=[500_000, 2_000_000], port=5060)
    wait_until(lambda: site.session(line.ip4)["gtpu"]["remoteTeid"] == 9999, 30, "the new tunnel")
    for number in range(2, 6):
        site.ping(host, number)
    session = site.session(line.ip4)
    flows = site.gateway.json("get", "flowprofile", session["policy"]["flowProfile"])[0]["spec"]
    assert [(one["precedence"], one["qfi"]) for one in flows["rules"]] == [(10, 1), (255, 5)]
    assert {"protocol": "17", "remotePorts": "5060"}.items() <= flows["rules"][0]["filters"][0].items()
    assert {"qfi": 1, "dscp": "ef", "class": 5, "priority": 5}.items() <= flows["flows"][0].items()
    # The guaranteed flow has its MFBR, and the other one the session's AMBR.
    meters = site.meters(line.ip4)
    rates = {
        qfi: [[site.rate(name) for name in meters[qfi][way]] for way in ("metersDown", "metersUp")] for qfi in (1, 5)
    }
    assert rates == {1: [[2_000_000], [2_000_000]], 5: [[50_000_000], [30_000_000]]}
    assert "meterDown" not in session["policy"]
    # A packet of the rule has its QFI.
    sent = []
    site.upf.taker = lambda message: sent.append(message.container)
    try:
        host.udp(SERVER, 5060)
        wait_until(lambda: (1, 1) in sent, 20, lambda: f"QFI 1: {sent}")
    finally:
        site.upf.taker = None
    # The core asks for the session to be set up again: the subscriber stays.
    site.amf.do("release-session", ue=line.ue, session=1, cause=39)
    wait_until(lambda: site.session(line.ip4)["gtpu"]["remoteTeid"] == line.teid_up, 30, "the session is set up again")
    site.ping(host, 6)
    site.amf.do("release-session", ue=line.ue, session=1, cause=36)
    wait_until(lambda: site.session(line.ip4) is None, 30, "no session")


def test_packets_are_marked_by_their_5qi(site):
    """TS 23.501 table 5.7.4-1, or what the operator says: DSCP of the outer header, 802.1p towards the home."""
    site.kind("IPV4", markings=[{"fiveQi": 9, "dscp": "af13", "class": 1, "priority": 2}])
    host, line = site.dial("marked")
    site.amf.do("modify", ue=line.ue, session=1, gbr=[500_000, 2_000_000], port=5060)
    wait_until(lambda: 1 in site.meters(line.ip4), 30, "the flow of 5QI 1")
    for port, qfi, dscp in ((5060, 1, 46), (5061, 5, 14)):
        site.upf.drain()
        host.udp(SERVER, port)
        message = site.upf.expect(lambda message, qfi=qfi: message.container == (1, qfi))
        assert message.tos >> 2 == dscp
    # Downlink, the QFI is the UPF's choice, whatever rules the line has.
    tags, receive = [], host.receive
    host.receive = lambda raw: (tags.append((raw[14] >> 5, len(raw))), receive(raw))
    for qfi, priority, size in ((1, 5, 300), (5, 2, 310), (1, 5, 320)):
        site.down(line, qfi, size)
        expected = (priority, 14 + 4 + 8 + 28 + size)
        host.until(lambda expected=expected: expected in tags, f"QFI {qfi}: {expected} in {tags}")
    site.kind("IPV4")
    host.hang_up()
    wait_until(lambda: site.session(line.ip4) is None, 30, "no session")


def test_a_guaranteed_bit_rate_goes_before_what_has_a_higher_priority(site):
    """GFBR (TS 23.501 section 5.7.2.5) by the scheduler: here of the class with the lowest priority."""
    marks = [{"fiveQi": 1, "class": 0}, {"fiveQi": 9, "class": 1}]
    site.kind("IPV4", markings=marks)
    host, line = site.dial("shaped", 204)
    site.amf.do("modify", ue=line.ue, session=1, gbr=[32_000, 64_000], port=5060)
    wait_until(lambda: "qosProfile" in site.session(line.ip4)["policy"], 30, "queues")
    policy = site.session(line.ip4)["policy"]
    classes = site.gateway.json("get", "qosprofile", policy["qosProfile"])[0]["spec"]["classes"]
    assert [one.get("committedRate") for one in classes] == [32_000, None] and policy["qosGroup"] == "slow"
    numbers, receive = [], host.receive_ppp
    host.receive_ppp = lambda protocol, payload: (numbers.append(payload[-1]), receive(protocol, payload))
    # Five seconds of other packets wait.
    for _ in range(30):
        site.down(line, 5, 1300, 1)
    for _ in range(3):
        site.down(line, 1, 50, 2)
    host.until(lambda: numbers.count(2) == 3, f"the flow's packets: {numbers}")
    assert numbers.count(1) < 30
    host.hang_up()
    site.kind("IPV4")
    wait_until(lambda: site.session(line.ip4) is None, 30, "no session")


def test_a_line_of_a_cable_network_has_a_global_cable_identifier(site):
    site.kind("IPV4", hfcNode="cmts-7")
    host, line = site.dial("cable-7")
    identity = b"type2.rid0.schid0.useridcable-7@5gc.mnc001.mcc001.3gppnetwork.org".hex()
    assert identity in site.amf.events("nas", name=REQUEST)[-1]["octets"]
    # The HFC node with its TAI, in place of the line.
    location = decode(bytes.fromhex(site.amf.events("message", name="InitialUEMessage")[-1]["octets"]))[1]
    assert b"cmts-7" in repr(location["UserLocationInformation"]).encode()
    site.ping(host, 1)
    host.hang_up()
    wait_until(lambda: site.session(line.ip4) is None, 30, "no session")
    site.kind("IPV4")


def test_a_line_moves_to_another_tunnel_with_an_end_marker(site):
    host, line = site.dial("path-switch")
    site.ping(host, 1)
    moved = SimpleNamespace(**{**vars(line), "teid_up": 9998})
    site.upf.add(moved, N3, qfi=5)
    site.amf.do("modify", ue=line.ue, session=1, teid=9998)
    # The UPF that had the line sends its last packet, and the end marker; another one goes on.
    host.until(lambda: site.session(line.ip4)["gtpu"]["remoteTeid"] == 9998, "the new tunnel")
    before, markers = site.gateway.drops(), site.signals("gtpu-end-marker")
    site.upf.send(Message(END_MARKER, line.teid_down), N3)
    wait_until(lambda: site.signals("gtpu-end-marker") == markers + 1, 30, "the agent counts the end marker")
    site.ping(host, 2)
    gtpu = [
        {name: count for name, count in drops.items() if "gtpu" in name} for drops in (before, site.gateway.drops())
    ]
    assert gtpu[0] == gtpu[1]
    host.hang_up()
    wait_until(lambda: site.session(line.ip4) is None, 30, "no session")


def test_a_upf_that_does_not_know_a_tunnel_gets_another_one(site):
    """TS 23.527 section 5.3.3: the AMF gets PDU SESSION RESOURCE NOTIFY, and then a service request."""
    host, line = site.dial("forgotten")
    site.ping(host, 1)

    def refuse(teid, peer=UPF):
        elements = struct.pack("!BIBH", 16, teid, 133, 4) + ipaddress.ip_address(peer).packed
        site.upf.send(Message(ERROR_INDICATION, 0, sequence=1, payload=elements), N3)

    # Of no tunnel, and of another UPF's.
    refuse(4711)
    refuse(line.teid_up, "192.0.2.9")
    refuse(line.teid_up)
    assert "gTP-U-error-indication-received" in site.amf.wait("given-up", session=1)[-1]["why"]
    assert len(site.amf.events("given-up")) == 1
    wait_until(lambda: site.session(line.ip4)["gtpu"]["remoteTeid"] == line.teid_up + 500, 30, "another tunnel")
    site.upf.add(SimpleNamespace(**{**vars(line), "teid_up": line.teid_up + 500}), N3, qfi=5)
    site.ping(host, 2)
    host.hang_up()
    wait_until(lambda: site.session(line.ip4) is None, 30, "no session")


def test_the_core_asks_about_a_line_that_has_no_radio(site):
    host, line = site.dial("asked")
    kind = {"eventType": "direct", "reportArea": "cell"}
    report = site.ask(line, "LocationReportingControl", {"LocationReportingRequestType": kind}, "LocationReport")
    assert report["LocationReportingRequestType"]["eventType"] == "direct"
    assert "asked" in str(report["UserLocationInformation"])
    area = {"eventType": "ue-presence-in-area-of-interest", "reportArea": "cell"}
    failure = "LocationReportingFailureIndication"
    site.ask(line, "LocationReportingControl", {"LocationReportingRequestType": area}, failure)
    trace = {"nGRANTraceID": bytes(8), "interfacesToTrace": (0, 8), "traceDepth": "minimum",
             "traceCollectionEntityIPAddress": (0x0A000001, 32)}  # fmt: skip
    refusal = site.ask(line, "TraceStart", {"TraceActivation": trace}, "TraceFailureIndication")
    assert refusal["NGRANTraceID"] == bytes(8)
    # Of radio capabilities there is nothing to say.
    errors = len(site.amf.events("message", name="ErrorIndication"))
    site.amf.do("send", ue=line.ue, name="UERadioCapabilityCheckRequest")
    site.ask(line, "LocationReportingControl", {"LocationReportingRequestType": kind}, "LocationReport")
    assert len(site.amf.events("message", name="ErrorIndication")) == errors
    site.ping(host, 1)
    host.hang_up()
    wait_until(lambda: site.session(line.ip4) is None, 30, "no session")


def test_a_line_goes_to_the_amf_set_that_the_first_amf_names(site):
    with another_set(site, "agf", OTHER_AMF) as core:
        core.do("set", option="reroute", value=1)
        host, line = site.dial("rerouted")
        rerouted(core, site.amf)
        site.ping(host, 1)
        host.hang_up()
        wait_until(lambda: site.session(line.ip4) is None, 30, "no session")
        site.amf.wait("deregistered")


def test_a_line_that_two_amf_sets_send_to_each_other_is_refused(site):
    with another_set(site, "agf", OTHER_AMF) as core:
        initial = len(core.events("message", name="InitialUEMessage"))
        core.do("set", option="reroute", value=1)
        site.amf.do("set", option="reroute", value=1)
        host = Host(site.wire, next(site.macs), 200, username="nowhere", password="x")
        assert not host.dial(IPCP)
        site.amf.wait("message", name="InitialUEMessage")
        assert len(site.amf.events("message", name="InitialUEMessage")) == 1
        assert len(core.events("message", name="InitialUEMessage")) == initial + 1


def test_a_line_without_a_context_registers_anew_when_the_core_has_forgotten_it(site):
    """The non-3GPP de-registration timer (TS 24.501 section 5.3.7), which the core sets: here two seconds."""
    site.amf.do("set", option="notice", value=1)
    host, line = site.dial("timed")
    site.amf.do("set", option="notice", value=0)
    requests = len(site.amf.events("nas", name=REQUEST))
    before = site.counts()
    # Service requests are not answered.
    site.amf.do("mute", name="FGMMServiceRequest", count=1)
    site.amf.do("release-context", ue=line.ue)
    update = site.amf.wait("nas", requests + 1, name=REQUEST)[-1]
    site.amf.do("mute", name="FGMMServiceRequest", count=0)
    assert bytes.fromhex(update["octets"])[3] & 7 == 1
    after = site.given(before)
    assert after.ip4 == line.ip4
    wait_until(lambda: site.session(line.ip4)["gtpu"]["remoteTeid"] == after.teid_up, 30, "the new tunnel")
    site.ping(host, 1)
    host.hang_up()
    wait_until(lambda: site.session(line.ip4) is None, 30, "no session")


def test_malformed_messages_for_a_line_disturb_no_other(lab, site):
    """Each truncation of messages, and each flip of a bit."""
    host, line = site.dial("victim")
    other, neighbour = site.dial("neighbour")
    site.amf.do("set", option="quiet", value=1)
    setups = len(site.amf.events("setup"))
    registrations = len(site.amf.events("nas", name=REQUEST, ue=neighbour.ue))
    for name, ies in MANGLED:
        site.amf.do("mangle", ue=line.ue, name=name, ies=repr(ies))
        site.amf.wait("mangled", name=name)
        site.ping(other, 1)
        assert site.session(neighbour.ip4)
    site.amf.do("set", option="quiet", value=0)
    # NGAP with the neighbour goes on, and there was no other association.
    site.amf.do("modify", ue=neighbour.ue, session=1, down=40, up=20)
    wait_until(lambda: 1 in site.flows(neighbour.ip4), 30, "the neighbour's modification")
    assert len(site.amf.events("setup")) == setups
    assert len(site.amf.events("nas", name=REQUEST, ue=neighbour.ue)) == registrations
    for one in (host, other):
        one.hang_up()
    wait_until(lambda: not site.gateway.json("get", "sessions"), 30, "no session")


def test_an_idle_line_comes_back_by_a_service_request(site):
    host, line = site.dial("dsl-3")
    registrations = len(site.amf.events("nas", name=REQUEST))
    before = site.counts()
    site.amf.do("release-context", ue=line.ue)
    site.amf.wait("tunnel", before[1] + 1)
    assert site.amf.events("nas", name="FGMMServiceRequest")
    site.ping(host, 1)
    # A core that has forgotten the line: it registers, with its address.
    before = site.counts()
    site.amf.do("forget", ue=line.ue)
    site.amf.do("release-context", ue=line.ue)
    site.amf.wait("nas", registrations + 1, name=REQUEST)
    after = site.given(before)
    assert after.ip4 == line.ip4
    wait_until(lambda: site.session(line.ip4)["gtpu"]["remoteTeid"] == after.teid_up, 30, "the new tunnel")
    site.ping(host, 2)
    host.hang_up()


def test_lines_stay_registered_over_a_restart_of_the_agent(site):
    host, line = site.dial("dsl-4")
    registrations = len(site.amf.events("nas", name=REQUEST))
    requests = len(site.amf.events("nas", name="FGMMServiceRequest"))
    assert site.restart()["retained"]
    site.ping(host, 1)
    # The context at the AMF goes on, with its identifiers and counts.
    answers = len(site.amf.events("nas", name="FGMMULNASTransport"))
    site.amf.do("modify", ue=line.ue, session=1, down=40, up=20)
    site.amf.wait("nas", answers + 1, name="FGMMULNASTransport")
    assert len(site.amf.events("nas", name="FGMMServiceRequest")) == requests
    # An AMF that keeps nothing: a service request.
    site.amf.do("set", option="retain", value=0)
    assert not site.restart()["retained"]
    site.amf.wait("nas", requests + 1, name="FGMMServiceRequest")
    site.amf.do("set", option="retain", value=1)
    site.ping(host, 2)
    assert len(site.amf.events("nas", name=REQUEST)) == registrations
    assert not site.amf.events("integrity")
    before = len(site.amf.events("deregistered"))
    host.hang_up()
    site.amf.wait("deregistered", before + 1)


@pytest.mark.parametrize(
    ("imsi", "auth", "algorithms", "scheme"),
    [
        ("001010000000001", "5g-aka", 0x22, "NULL_SCHEME"),
        ("001010000000002", "eap-aka-prime", 0x11, "PROFILE_A"),
        ("001010000000003", "5g-aka", 0x12, "PROFILE_A"),
        ("001010000000002", "5g-aka", 0x21, "PROFILE_B"),
    ],
)
def test_a_line_with_credentials_is_authenticated_by_the_core(site, imsi, auth, algorithms, scheme):
    site.amf.do("set", option="auth", value=auth)
    site.amf.do("set", option="algorithms", value=algorithms)
    key = {"PROFILE_A": PUBLIC, "PROFILE_B": POINT}.get(scheme)
    home = {"homeNetworkKey": key, "homeNetworkKeyId": 1} if key else {}
    site.gateway.apply(
        thing("CoreSubscriber", f"line-{imsi}", line=imsi, imsi=imsi, key=K, opc=OPC, scheme=scheme, **home)
    )
    host, line = site.dial(imsi)
    assert site.amf.wait("authenticated", supi=imsi)[-1]["proved"]
    site.ping(host, 1)
    site.amf.do("release-context", ue=line.ue)
    requests = site.amf.wait("nas", name="FGMMServiceRequest", ue=line.ue)
    assert requests[-1]["header"] == 1 and not site.amf.events("integrity")
    site.ping(host, 2)
    host.hang_up()


def test_the_core_and_a_line_agree_on_a_sequence_number_again(site):
    """TS 33.102 section 6.3.5: a core that lost its numbers sends one that the line has seen."""
    imsi = "001010000000001"
    site.amf.do("set", option="auth", value="5g-aka")
    site.gateway.apply(thing("CoreSubscriber", f"line-{imsi}", line=imsi, imsi=imsi, key=K, opc=OPC))
    before = len(site.amf.events("deregistered"))
    host, _ = site.dial(imsi)
    host.hang_up()
    site.amf.wait("deregistered", before + 1)
    # The registration is over, and the number is remembered.
    site.amf.do("sequence", imsi=imsi, number=0)
    assert not site.amf.events("authentication-failure")
    host, line = site.dial(imsi)
    assert [one["cause"] for one in site.amf.events("authentication-failure")] == [21]
    site.ping(host, 1)
    host.hang_up()
    wait_until(lambda: site.session(line.ip4) is None, 30, "no session")


def test_a_line_that_is_rejected_gets_no_address_and_waits(site):
    site.amf.do("set", option="reject", value=11)
    host = Host(site.wire, next(site.macs), 200, username="refused", password="x")
    assert not host.dial(IPCP)
    site.amf.do("set", option="reject", value=0)
    why = b"the core rejects the registration: 5GMM cause 11, PLMN not allowed"
    assert host.refused == why
    before = len(site.amf.events("nas", name=REQUEST))
    assert not host.dial(IPCP)
    assert len(site.amf.events("nas", name=REQUEST)) == before and host.refused == why
    described = site.gateway.json("describe", "line", "refused")
    assert (described["state"], described["reason"]) == ("refused", why.decode()) and "again" in described
    assert "refused" in [each["name"] for each in site.gateway.json("get", "lines", "--state", "refused")]
    with pytest.raises(Refused, match="there is no line nobody; see `sluice get lines`"):
        site.gateway.sluice("describe", "line", "nobody")
    site.amf.do("set", option="nosession", value=27)
    host = Host(site.wire, next(site.macs), 200, username="no-session", password="x")
    assert not host.dial(IPCP)
    why = b"the core rejects the PDU session: 5GSM cause 27, missing or unknown DNN"
    assert host.refused == why
    site.amf.do("set", option="nosession", value=0)
    # It waits, too.
    before = len(site.amf.events("nas", name=REQUEST))
    assert not host.dial(IPCP)
    assert len(site.amf.events("nas", name=REQUEST)) == before and host.refused == why
    described = site.gateway.json("describe", "line", "no-session")
    assert (described["state"], described["reason"]) == ("refused", why.decode())
    assert not site.amf.events("failure")


def test_a_line_registers_once_another_back_end_has_accepted_it(site):
    before = len(site.amf.events("nas", name=REQUEST))
    host = Host(site.wire, next(site.macs), 201, username="alice", password="wrong")
    assert not host.dial(IPCP)
    assert len(site.amf.events("nas", name=REQUEST)) == before
    host, line = site.dial("alice", 201, "secret")
    assert host.ip4() == line.ip4
    site.ping(host, 1)
    host.hang_up()


def test_a_profile_names_the_agf_of_its_lines(site):
    """With a data network of its own. Without an agf, the first one by name serves."""
    wifi = {**NODE, "n3iwfId": 9, "wagfId": 0}
    site.gateway.apply(
        thing("Agf", "offices", **{**AGF, "dnn": "offices"}),
        thing("SubscriberProfile", "office", **PROFILE, agf="offices"),
        thing("PppoeServer", "office", port="access", outerVlans=["207"], profile="office"),
        thing("AccessNode", "wifi", **wifi),
    )
    # It is applied, and not ready.
    site.gateway.apply(thing("Agf", "wrong", node="wifi", coreAddress=N3), wait=False)
    host, _ = site.dial("office-1", 207)
    assert b"\x25\x08\x07offices".hex() in site.amf.events("nas", name="FGMMULNASTransport")[-1]["octets"]
    site.ping(host, 1)
    assert [each["name"] for each in site.gateway.json("get", "lines", "--agf", "offices")] == ["office-1"]
    described = site.gateway.sluice("describe", "agf", "offices").stdout
    assert re.search(r"^  name +office-1$", described, re.M), described
    # An AccessNode of an N3iwf is another one.
    (wrong,) = site.gateway.json("get", "agf", "wrong")
    (ready,) = (each for each in wrong["status"]["conditions"] if each["type"] == "Ready")
    assert ready["reason"] == "NotConfigured" and "AccessNode/wifi has an n3iwfId" in ready["message"], ready
    before = len(site.amf.events("deregistered"))
    host.hang_up()
    site.amf.wait("deregistered", before + 1)
    for kind, name in (
        ("Agf", "wrong"),
        ("AccessNode", "wifi"),
        ("PppoeServer", "office"),
        ("SubscriberProfile", "office"),
        ("Agf", "offices"),
    ):
        site.gateway.delete(kind, name)


def test_radius_accepts_a_line_first_and_accounts_for_it_beside_the_core(lab, site):
    server = FreeRadius(lab, site.inside, "127.0.0.1", 'payer Cleartext-Password := "secret"\n')
    back_ends = {"authentication": ["radius"], "authorization": ["core"], "accounting": ["radius", "core"]}
    site.gateway.apply(
        thing("RadiusServer", "aaa", address="127.0.0.1", secret=SECRET),
        thing("RadiusPolicy", "aaa", authentication=[{"server": "aaa"}], accounting=[{"server": "aaa"}]),
        thing("SubscriberProfile", "accounted", **{**PROFILE, **back_ends}),
        thing("PppoeServer", "accounted", port="access", outerVlans=["205"], profile="accounted"),
    )
    registrations = len(site.amf.events("nas", name=REQUEST))
    stranger = Host(site.wire, next(site.macs), 205, username="payer", password="wrong")
    assert not stranger.dial(IPCP)
    assert len(site.amf.events("nas", name=REQUEST)) == registrations
    host, line = site.dial("payer", 205, "secret")
    assert host.ip4() == line.ip4
    site.ping(host, 1)
    before = len(site.amf.events("deregistered"))
    host.hang_up()
    site.amf.wait("deregistered", before + 1)
    wait_until(lambda: server.records(Acct_Status_Type="Stop"), 30, "the Stop record")
    for status in ("Start", "Stop"):
        (record,) = server.records(Acct_Status_Type=status)
        assert (record["User-Name"], record["Framed-IP-Address"]) == ("payer", line.ip4)
    assert int(record["Acct-Output-Packets"]) >= 1
    for kind, name in (("PppoeServer", "accounted"), ("SubscriberProfile", "accounted"), ("RadiusPolicy", "aaa")):
        site.gateway.delete(kind, name)
    site.gateway.delete("RadiusServer", "aaa")
    server.stop()


@pytest.mark.parametrize("kind", ["IPV6", "IPV4V6"])
def test_a_pppoe_line_has_the_prefix_that_the_upf_advertises(site, kind):
    site.kind(kind)
    host = Host(site.wire, next(site.macs), 200, username=f"six-{kind}", password="x")
    before = site.counts()
    assert host.dial(*([IPCP] if kind == "IPV4V6" else []), IPV6CP)
    host.until(lambda: host.advertisement, "router advertisement")
    prefix = IPv6(host.advertisement)[ICMPv6NDOptPrefixInfo]
    of = site.amf.events("address")[before[0]]
    assert (prefix.prefix, prefix.prefixlen) == (of["prefix"], 64)
    line = site.given(before)
    line.ip6 = str(ipaddress.ip_address(ipaddress.ip_address(of["prefix"]).packed[:8] + host.identifier))
    site.upf.add(line, N3, qfi=5)
    host.ping(SERVER6, 61, source=line.ip6)
    if kind == "IPV4V6":
        site.ping(host, 62)
    # After a restart the tunnel's packets still find the line. A UPF that advertises another prefix ends the session.
    if kind == "IPV6":
        assert site.restart()["retained"]
        host.ping(SERVER6, 63, source=line.ip6)
        site.upf.router = lambda teid: (line, "2001:db8:65::")
        site.amf.do("release-session", ue=line.ue, session=1, cause=39)
        host.until(lambda: host.ended, "PADT")
        site.upf.router = site.router
    else:
        host.hang_up()
    wait_until(lambda: site.of_tunnel(line.teid_up) is None, 30, "no session")
    site.kind("IPV4")


def test_an_ipoe_line_has_an_address_of_its_prefix_by_dhcpv6(lab, site):
    site.kind("IPV6")
    before = site.counts()
    client = Dhclient(lab, site.clients, "line", version=6)
    wait_until(lambda: client.having("BOUND6"), 60, "bound")
    address = client.having("BOUND6")[0][1]
    of = site.amf.events("address")[before[0]]
    assert ipaddress.ip_address(address) in ipaddress.ip_network(f"{of['prefix']}/64")
    line = site.given(before)
    line.ip6 = address
    site.upf.add(line, N3, qfi=5)
    site.clients.ip("-6", "addr", "add", f"{address}/128", "dev", "line", "nodad")
    site.clients.ip("-6", "route", "replace", SERVER6, "via", "fe80::ff:fe00:aa01", "dev", "line")
    site.clients.run("ping", "-6", "-c", "3", "-i", "0.2", "-W", "10", SERVER6)
    client.release()
    wait_until(lambda: site.of_tunnel(line.teid_up) is None, 30, "no session")
    site.kind("IPV4")


def test_the_core_delegates_a_prefix_for_the_home(lab, site):
    """DHCPv6 in the tunnel (TS 23.501 section 5.8.2.2.4): here scapy is the core's server, and dhclient the home."""
    site.kind("IPV6", delegatedPrefixLength=56)
    delegated, asked = "2001:db8:7700::", []
    server = DUID_LL(lladdr="02:00:00:00:00:99")

    def serve(message):
        packet = IPv6(message.payload)
        found = next((kind for kind in (DHCP6_Solicit, DHCP6_Request) if kind in packet), None)
        if found is None:
            return
        line, _ = site.router(message.teid)
        asked.append((found, packet[DHCP6OptIAPrefix].plen))
        kind = DHCP6_Advertise if found is DHCP6_Solicit else DHCP6_Reply
        lease = DHCP6OptIAPrefix(prefix=delegated, plen=56, preflft=3600, validlft=3600)
        answer = kind(trid=packet[found].trid) / DHCP6OptServerId(duid=server) / packet[DHCP6OptClientId].copy()
        answer[DHCP6OptClientId].remove_payload()
        answer /= DHCP6OptIA_PD(iaid=packet[DHCP6OptIA_PD].iaid, T1=1800, T2=2700, iapdopt=[lease])
        reply = IPv6(src="fe80::1", dst=packet.src) / UDP(sport=547, dport=546) / answer
        site.upf.send(site.upf.gpdu(line, bytes(reply), 5), N3)

    site.upf.taker = serve
    before = site.counts()
    client = Dhclient(lab, site.clients, "line", version=6, options=["-P"])
    try:
        wait_until(lambda: any(delegated in str(event) for event in client.events()), 60, "a prefix")
    finally:
        site.upf.taker = None
    assert asked == [(DHCP6_Solicit, 56), (DHCP6_Request, 56)]
    line = site.given(before)
    session = site.of_tunnel(line.teid_up)
    assert f"{delegated}/56" in session["addresses"]
    # A host of the home.
    line.ip6 = "2001:db8:7700:5::1"
    site.upf.add(line, N3, qfi=5)
    site.clients.ip("-6", "addr", "add", f"{line.ip6}/128", "dev", "line", "nodad")
    site.clients.ip("-6", "route", "replace", SERVER6, "via", "fe80::ff:fe00:aa01", "dev", "line", "src", line.ip6)
    site.clients.run("ping", "-6", "-c", "3", "-i", "0.2", "-W", "10", "-I", line.ip6, SERVER6)
    client.release()
    wait_until(lambda: site.of_tunnel(line.teid_up) is None, 30, "no session")
    site.clients.ip("-6", "addr", "del", f"{line.ip6}/128", "dev", "line")
    site.clients.ip("-6", "route", "del", SERVER6)
    site.kind("IPV4")


def test_a_line_that_moves_to_another_port_keeps_its_registration(site):
    mac, before = next(site.macs), site.counts()
    host = Host(site.wire, mac, 200, username="dsl-5", password="x")
    assert host.dial(IPCP)
    line = site.given(before)
    site.ping(host, 1)
    registrations = site.amf.events("nas", name=REQUEST)
    sessions = len(site.amf.events("address"))
    # The home's gateway is plugged in elsewhere: it sends nothing to the first port, and dials in at the second.
    again = Host(Wire(site.clients, "line1"), mac, 200, username="dsl-5", password="x")
    assert again.dial(IPCP)
    assert again.ip4() == line.ip4 and site.session(line.ip4)["access"]["port"] == "second"
    site.ping(again, 2)
    # The AMF gets a mobility registration update (type 2), and there is no other PDU session.
    update = site.amf.wait("nas", len(registrations) + 1, name=REQUEST)[-1]
    assert update["ue"] == line.ue and bytes.fromhex(update["octets"])[3] & 7 == 2
    assert len(site.amf.events("address")) == sessions
    before = len(site.amf.events("deregistered"))
    again.hang_up()
    site.amf.wait("deregistered", before + 1)


def test_a_profile_moves_lines_between_bng_and_agf_service_under_traffic_of_others(lab, site):
    client = Dhclient(lab, site.clients, "line", GATEWAY)
    before = site.counts()
    wait_until(lambda: client.having("BOUND"), 60, "bound")
    other = site.given(before)
    ping = lab.process(site.clients, "ping", "-i", "0.05", SERVER, log="others.log")
    host = Host(site.wire, next(site.macs), 203, username="mover", password="secret")
    leased = Client(site.wire, LEASED, 206)
    registrations = len(site.amf.events("nas", name=REQUEST))

    def dials(registered):
        """Whether a PPPoE line has its address from the core, as it should."""
        before = site.counts()
        assert host.dial(IPCP)
        assert len(site.amf.events("nas", name=REQUEST)) == registrations + registered
        assert host.ip4().startswith("100.65.0.") != registered
        assert ("gtpu" in site.session(host.ip4())) == registered
        if registered:
            assert host.ip4() == site.given(before).ip4

    dials(False)
    address = leased.ask4()[BOOTP].yiaddr
    assert address.startswith("100.65.0.")
    for number, (profile, registered) in enumerate(((PROFILE, True), (BNG, False)), 1):
        site.ping(host, number)
        first = host.ip4()
        changed = thing("SubscriberProfile", "mover", **profile)
        planned = site.gateway.sluice("plan", "-f", "-", input=json.dumps(changed))
        assert "~ SubscriberProfile mover   (brief interruption)" in planned.stdout, planned.stdout
        assert "SubscriberProfile/mover: ends 2 sessions" in planned.stderr, planned.stderr
        site.gateway.apply(changed)
        host.until(lambda: host.ended, "Terminate-Request")
        assert host.why == "the line moves to another service"
        wait_until(lambda first=first: site.session(first) is None, 30, "no session")
        dials(registered)
        registrations += registered
        site.ping(host, 10 + number)
        # A DHCP client has its session until it renews its lease: DHCPNAK, and it asks for another one.
        assert site.session(address)
        renewal = {"source": address, "destination": GATEWAY, "to": ACCESS_MAC, "ciaddr": address}
        leased.again(lambda renewal=renewal: leased.send4("request", **renewal), lambda: leased.answer4(6, seconds=2))
        assert site.session(address) is None
        address = leased.ask4()[BOOTP].yiaddr
        registrations += registered
        assert ("gtpu" in site.session(address)) == registered
        assert len(site.amf.events("nas", name=REQUEST)) == registrations
    # The server names another profile.
    server = thing("PppoeServer", "mover", port="access", outerVlans=["203"], profile="home")
    planned = site.gateway.sluice("plan", "-f", "-", input=json.dumps(server))
    assert "PppoeServer/mover: ends 1 session\n" in planned.stderr, planned.stderr
    site.gateway.apply(server)
    host.until(lambda: host.ended, "Terminate-Request")
    assert host.why == "the line moves to another service"
    dials(True)
    site.ping(host, 21)
    server["spec"]["profile"] = "mover"
    site.gateway.apply(server)
    host.until(lambda: host.ended, "Terminate-Request")
    # Counters of the sessions that moved are in the log.
    log = site.gateway.agent.log.read_text()
    ends = re.findall(r"session ends.*username=mover.*cause=admin-reset.* up=(\d+) down=(\d+)", log)
    assert len(ends) >= 3 and all(int(count) > 0 for end in ends for count in end), ends
    leased.send4("release", source=address, destination=GATEWAY, to=ACCESS_MAC, ciaddr=address)
    wait_until(lambda: not site.session(address) and not site.session(host.ip4()), 30, "no session")
    ping.child.send_signal(signal.SIGINT)
    ping.child.wait(20)
    # The last packet may be under way when ping ends.
    log = ping.log.read_text()
    answers = [int(number) for number in re.findall(r"icmp_seq=(\d+) ttl", log)]
    sent = int(re.search(r"(\d+) packets transmitted", log)[1])
    assert answers == list(range(1, len(answers) + 1)) and sent - len(answers) <= 1, log
    client.release()
    wait_until(lambda: site.session(other.ip4) is None, 30, "no session")


def test_the_messages_of_a_line_whose_amf_dies_go_to_another_amf_of_the_set(site):
    host, line = site.dial("failover")
    with another_amf(site, "agf", OTHER_AMF, pointer=2) as first:
        first.do("share", ue=line.ue)
        site.amf.do("adopt", context=first.wait("shared")[-1]["context"])
        first.do("die")
        first.child.wait(20)
        site.ping(host, 1)
        # Protected by the security context that the first one made.
        host.hang_up()
        site.amf.wait("deregistered")
        assert not site.amf.events("message", name="InitialUEMessage")
        assert [one["header"] for one in site.amf.events("nas")] == [2]
        setups = len(first.events("setup"))
        first.start()
        first.wait("setup", setups + 1)


def test_a_line_goes_on_while_its_amf_is_dead_and_registers_with_the_next_one(site):
    host, line = site.dial("orphan")
    site.ping(host, 1)
    # The next AMF gives this line its address, and others other ones: this test is the last.
    before, setups = site.counts(), len(site.amf.events("setup"))
    site.amf.options |= {"ue": line.ip4, "retain": 0}
    site.amf.do("die")
    site.amf.child.wait(20)
    for number in range(2, 6):
        site.ping(host, number)
    site.amf.start()
    site.amf.wait("setup", setups + 1)
    after = site.given(before)
    assert after.ip4 == line.ip4
    wait_until(
        lambda: (site.session(line.ip4) or {}).get("gtpu", {}).get("remoteTeid") == after.teid_up, 30, "the new tunnel"
    )
    site.ping(host, 6)
    assert not host.ended
    host.hang_up()
    wait_until(lambda: site.session(line.ip4) is None, 30, "no session")


def test_wireshark_decodes_what_was_sent_to_the_core(site):
    for sniffer, source in site.sniffers:
        complaints, packets = sniffer.complaints(source)
        assert not complaints and packets
