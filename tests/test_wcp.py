# SPDX-License-Identifier: Apache-2.0
"""5G residential gateways (TR-456, TS 23.316): EAP-5G and NAS over PPPoE, PDU sessions with 5WE and GTP-U."""

import ipaddress
import itertools
import struct
from dataclasses import dataclass

import pytest
from core.amf import decode
from core.mobile import ETHERNET, IPV4, IPV4V6
from core.rg import EAP, VSNCP, VSNP, Rg
from lab import Gateway, Upf, Wire, frames, thing
from lab.core import MANGLED, RgAmf, another_set, apart, rerouted
from lab.laboratory import wait_until
from lab.pppoe import IP6, IPCP, Host
from lab.upf import ERROR_INDICATION, Message
from lab.wireshark import Sniffer

ACCESS_MAC, CORE_MAC = "02:00:00:00:aa:01", "02:00:00:00:aa:02"
N3, UPF = "192.0.2.1", "192.0.2.2"
N2, AMF, OTHER_AMF = "10.9.8.1", "10.9.8.2", "10.9.8.3"
SERVER = "198.51.100.1"
SERVER6 = "2001:db8:99::1"
GATEWAY = "100.127.0.1"
VLANS = (300, 7)


@dataclass
class Tunnel:
    """The UPF's data of a PDU session."""

    ip4: str
    teid_up: int
    teid_down: int
    ip6: str = ""


class Site:
    """5G residential gateways == AGF == AMF, and UPF with a server behind it."""

    def __init__(self, lab):
        self.lab = lab
        self.homes, self.inside, self.core = (lab.namespace(each) for each in ("homes", "inside", "core"))
        for ours, other, theirs in (("acc0", self.homes, "line"), ("core0", self.core, "n3")):
            self.inside.link(ours, other, theirs)
            self.inside.silent(ours)
        self.inside.link("n2", self.core, "amf")
        self.inside.ip("addr", "add", f"{N2}/24", "dev", "n2")
        for address, interface in (
            (f"{AMF}/24", "amf"),
            (f"{UPF}/24", "n3"),
            (f"{SERVER}/32", "lo"),
            (f"{SERVER6}/128", "lo"),
        ):
            self.core.ip("addr", "add", address, "dev", interface)
        self.sniffer = Sniffer(lab, self.core, "amf", "sctp")
        self.amf = RgAmf(lab, self.core, AMF, upf=UPF)
        self.upf = Upf(lab, self.core, UPF)
        self.wire = Wire(self.homes, "line")
        self.numbers = itertools.count(1)
        self.gateway = Gateway(lab, self.inside)
        area = {"tac": 1, "slices": [{"sst": 1}]}
        node = {"plmn": "00101", "wagfId": 7, "trackingAreas": [area], "localAddresses": [N2]}
        self.agf = {"node": "agf", "coreAddress": N3, "markings": [{"fiveQi": 1, "dscp": "ef", "priority": 5}]}
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC),
            thing("Port", "core", device="net_af_packet1,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Interface", "gateway", addresses=[f"{GATEWAY}/32"]),
            thing("Interface", "core", port="core", addresses=[f"{N3}/24"]),
            thing("AccessNode", "agf", **node),
            thing("Agf", "homes", **self.agf),
            thing("Amf", "core", node="agf", addresses=[AMF]),
            thing("AddressPool", "homes", ranges=["100.127.1.0/24"], gateway=GATEWAY),
            thing("SubscriberProfile", "home", authentication=["local"], ipv4Pools=["homes"]),
            thing("LocalUser", "alice", username="alice", password="secret"),
            # A 5G-RG of this test is silent while the test waits for another one or for the core: echoes are rare.
            thing("PppoeServer", "lines", port="access", outerVlans=["300"], innerVlans=["1-100"], profile="home",
                  authentication=["eap_5g", "pap"], echoInterval="60s"),
            thing("PppoeServer", "impatient", port="access", outerVlans=["302"], profile="home",
                  authentication=["eap_5g"], echoInterval="2s"),
        )  # fmt: skip
        self.amf.wait("setup")
        condition = "the AMF is ready"
        wait_until(lambda: "NoAssociation" not in str(self.gateway.json("get", "amf", "core")), what=condition)

    def rg(self, *vlans, **more):
        number = next(self.numbers)
        return Rg(self.wire, f"02:00:00:00:55:{number:02x}", *(vlans or VLANS), supi=f"00101{number:010d}", **more)

    def establish(self, rg, session=1, kind=IPV4, ip6=""):
        """A PDU session, which the UPF gets. Returns the AMF's number of the 5G-RG, and the resource."""
        before = len(self.amf.events("tunnel"))
        resource = rg.establish(session, kind)
        tunnel = self.amf.wait("tunnel", before + 1)[-1]
        asked = [each for each in self.amf.events("session") if each["amf"] == tunnel["amf"]][-1]
        self.tunnel = Tunnel(asked["address"], asked["teid"], tunnel["teid"], ip6)
        self.upf.add(self.tunnel, N3, 9)
        return tunnel["amf"], resource

    def sessions(self):
        found = self.gateway.json("get", "sessions")
        return [each["spec"] for each in found if each["metadata"]["name"].startswith("rg-")]

    def nothing_left(self):
        def left():
            kinds = ("sessions", "flowprofiles", "meters", "qosprofiles")
            return [each["metadata"]["name"] for kind in kinds for each in self.gateway.json("get", kind)]

        wait_until(lambda: not left(), what="nothing is left")


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


@pytest.fixture
def rg(site):
    """A 5G residential gateway that is registered, and gone afterwards."""
    rg = site.rg()
    rg.register()
    yield rg
    if not rg.ended:
        rg.hang_up()
    site.nothing_left()


def test_a_5g_residential_gateway_registers_and_its_traffic_has_its_qfi(site, rg):
    # The core got the line's message.
    first = site.amf.events("message", name="InitialUEMessage")[-1]
    assert b"access.300.7".hex() in first["octets"]
    assert site.amf.wait("registered")[-1]["supi"] == rg.supi
    _, (five_we, kind, qfis) = site.establish(rg)
    assert (kind, qfis) == (1, [9, 1])
    (session,) = site.sessions()
    assert session["access"] == {
        "port": "access", "outerVlan": 300, "innerVlan": 7, "mac": rg.mac.hex(":"), "fiveWeSessionId": five_we,
    }  # fmt: skip
    # Marked and metered with the core's values.
    flows = site.gateway.json("get", "flowprofile", session["policy"]["flowProfile"])[0]["spec"]["flows"]
    assert flows == [{"qfi": 1, "dscp": "ef", "priority": 5}, {"qfi": 9, "dscp": "cs0"}]
    meter = site.gateway.json("get", "meter", session["policy"]["meterUp"])[0]["spec"]
    assert meter["committedRate"] == 1_000_000_000
    # Uplink the QFI is the 5G-RG's choice, downlink the UPF's.
    for qfi in (9, 1):
        site.upf.drain()
        assert rg.ping_by(1, qfi, SERVER, 20 + qfi) == (five_we, 9, 0)
        assert site.upf.expect(lambda m: m.container is not None).container == (1, qfi)
    # LCP of the same link goes on beside it.
    assert rg.lcp_echo() == rg.peer_magic


def test_a_home_that_knows_no_eap_dials_in_on_the_same_circuit(site):
    home = Host(site.wire, "02:00:00:00:66:01", *VLANS, username="alice", password="secret")
    assert home.dial(IPCP)
    home.ping(GATEWAY, 1)
    home.hang_up()
    site.nothing_left()


def test_two_pdu_sessions_have_their_own_5we_sessions_and_one_is_released_by_the_network(site, rg):
    number, first = site.establish(rg)
    _, second = site.establish(rg, 2)
    assert first[0] != second[0]
    assert rg.ping_by(2, 9, SERVER, 30)[0] == second[0]
    site.amf.do("release-session", amf=number, session=2)
    rg.until(lambda: rg.sessions_released == [2] and 2 not in rg.resources, "the network releases the PDU session")
    site.amf.wait("session-released", amf=number, session=2)
    wait_until(lambda: len(site.sessions()) == 1, what="one user plane")
    assert rg.ping_by(1, 9, SERVER, 31)[0] == first[0]


def test_the_network_modifies_the_qos_flows_of_a_pdu_session(site, rg):
    number, resource = site.establish(rg)
    site.amf.do("modify", amf=number, session=1, add=[[5, 7]], remove=[1])
    rg.until(lambda: rg.resources[1][2] == [5, 9], "the 5G-RG hears of its flows")
    site.amf.wait("message", name="PDUSessionResourceModifyResponse")
    assert rg.ping_by(1, 5, SERVER, 40)[0] == resource[0]
    # A resource that the 5G-RG refuses stays as it was.
    rg.cause = 1
    site.amf.do("modify", amf=number, session=1, add=[[2, 1]], remove=[])
    failed = len(site.amf.events("message", name="PDUSessionResourceModifyResponse")) + 1
    rg.until(lambda: len(rg.events) >= 3, "the 5G-RG refuses")
    site.amf.wait("message", failed, name="PDUSessionResourceModifyResponse")
    assert rg.ping_by(1, 9, SERVER, 41)[0] == resource[0]


def core_with(site, **options):
    before = len(site.amf.events("set"))
    site.amf.do("set", options=options)
    site.amf.wait("set", before + 1)


def rates(site):
    """Of the meters of each session's flows and of other packets, uplink, by QFI; sessions in the order of their 5WE
    ids.
    """
    # Between two of these commands an object may go: what it held is missing then.
    sessions = sorted(site.sessions(), key=lambda each: each["access"]["fiveWeSessionId"])
    profiles, meters = (
        {each["metadata"]["name"]: each["spec"] for each in site.gateway.json("get", kind)}
        for kind in ("flowprofiles", "meters")
    )

    def of(names):
        return [meters.get(name, {}).get("committedRate") for name in names]

    found = []
    for session in sessions:
        profile = profiles.get(session["policy"].get("flowProfile"), {})
        found.append({each.get("qfi", 0): of(each.get("metersUp", ())) for each in profile.get("flows", ())})
        found[-1]["other"] = of(profile.get("otherMetersUp", ()))
    return found


def test_flows_and_the_subscriber_have_rates_of_their_own(site, rg):
    core_with(site, gbr=2_000_000, ueambr=5_000_000, ambr=4_000_000)
    number, first = site.establish(rg)
    (session,) = rates(site)
    # A QFI that the core did not give is limited as the flow without a guaranteed bit rate.
    assert session == {1: [2_000_000], 9: [4_000_000], "other": [4_000_000]}
    # Together, two PDU sessions may exceed the subscriber's rate.
    site.establish(rg, 2)
    wait_until(
        lambda: [each.get(9) for each in rates(site)] == [[4_000_000, 5_000_000]] * 2, what="the subscriber's rate"
    )
    site.amf.do("release-session", amf=number, session=2)
    wait_until(lambda: [each.get(9) for each in rates(site)] == [[4_000_000]], what="the session's rate alone")
    assert rg.ping_by(1, 9, SERVER, 43)[0] == first[0]
    core_with(site, gbr=16_000, ueambr=0)
    site.amf.do("modify", amf=number, session=1, add=[[1, 1]], remove=[])
    wait_until(lambda: rates(site)[0].get(1) == [16_000], what="the flow's new rate")
    rg.until(lambda: ("modified", {"session": 1}) in rg.events, "the 5G-RG hears of it")
    # 16 kB pass at once, and then 2 kB a second.
    before = site.gateway.drops().get("meter-red", 0)
    rg.user_plane, rg.address = (1, 1), rg.addresses[1]
    for port in range(9000, 9064):
        rg.udp(SERVER, port, bytes(1000))
    wait_until(lambda: site.gateway.drops().get("meter-red", 0) > before, what="packets above the rate are dropped")
    core_with(site, gbr=0, ambr=1_000_000_000)
    # The other flow of the session goes on.
    assert rg.ping_by(1, 9, SERVER, 44)[0] == first[0]


def test_nas_messages_arrive_in_order_beside_the_procedures(site, rg):
    number, _ = site.establish(rg)
    before = len(rg.nas_sizes)
    site.amf.do("nas", amf=number, count=10, size=200)
    site.amf.do("nas", amf=number, count=3, size=250)
    # Rg checks the NAS count of each.
    rg.until(lambda: len(rg.nas_sizes) == before + 13, "all messages")


def test_the_leg_of_a_multi_access_pdu_session_comes_and_goes(site, rg):
    """ATSSS (TS 23.316 section 4.12): the resource of this access. The MA PDU request in NAS is the core's."""
    before = len(site.amf.events("tunnel"))
    first = rg.establish(1, request=6)
    tunnel = site.amf.wait("tunnel", before + 1)[-1]
    number = tunnel["amf"]
    assert site.amf.events("transport", amf=number)[-1]["more"] == "120186"
    site.amf.do("leg", amf=number, session=1, up=False)
    rg.until(lambda: 1 not in rg.resources, "the leg is gone")
    wait_until(lambda: not site.sessions(), what="no user plane")
    assert not rg.sessions_released and rg.lcp_echo() == rg.peer_magic
    before = len(site.amf.events("tunnel"))
    site.amf.do("leg", amf=number, session=1, up=True)
    rg.until(lambda: 1 in rg.resources, "the leg is back")
    tunnel = site.amf.wait("tunnel", before + 1)[-1]
    asked = [each for each in site.amf.events("session") if each["amf"] == number][-1]
    site.upf.add(Tunnel(asked["address"], asked["teid"], tunnel["teid"]), N3, 9)
    assert rg.resources[1][0] != first[0]
    assert rg.ping_by(1, 9, SERVER, 45)[0] == rg.resources[1][0]


def answer(site, number, name, ies, of):
    """A message of the AMF for a 5G-RG; the IEs of its answer."""
    before = len(site.amf.events("message", name=of))
    site.amf.do("send", amf=number, name=name, ies=repr(ies))
    return decode(bytes.fromhex(site.amf.wait("message", before + 1, name=of)[-1]["octets"]))[1]


def test_the_core_asks_where_a_5g_residential_gateway_is(site, rg):
    number, _ = site.establish(rg)
    control, kind = "LocationReportingControl", {"eventType": "direct", "reportArea": "cell"}
    report = answer(site, number, control, {"LocationReportingRequestType": kind}, "LocationReport")
    assert "access.300.7" in str(report["UserLocationInformation"])
    kind["eventType"] = "ue-presence-in-area-of-interest"
    answer(site, number, control, {"LocationReportingRequestType": kind}, "LocationReportingFailureIndication")
    trace = {"nGRANTraceID": bytes(8), "interfacesToTrace": (0, 8), "traceDepth": "minimum",
             "traceCollectionEntityIPAddress": (0x0A000001, 32)}  # fmt: skip
    answer(site, number, "TraceStart", {"TraceActivation": trace}, "TraceFailureIndication")


def test_malformed_messages_for_a_5g_residential_gateway_disturb_no_other(site):
    """Each truncation of messages, and each flip of a bit."""
    rgs, ids = {}, {}
    for _ in range(4):
        each = site.rg()
        each.register()
        number, _ = site.establish(each)
        tunnel = site.amf.events("tunnel", amf=number)[-1]
        rgs[number], ids[number] = each, (number, tunnel["ran"])
    victim, number = next((a, b) for a in ids for b in ids if apart(ids[a], ids[b]))
    other = rgs[number]
    setups = len(site.amf.events("setup"))
    core_with(site, quiet=1)
    for echo, (name, ies) in enumerate(MANGLED, 60):
        site.amf.do("mangle", amf=victim, name=name, ies=repr(ies))
        site.amf.wait("mangled", name=name)
        other.ping_by(1, 9, SERVER, echo)
    core_with(site, quiet=0)
    assert len(site.amf.events("setup")) == setups
    for each in rgs.values():
        if not each.ended:
            each.hang_up()
    site.nothing_left()


def test_the_amf_hears_of_nas_messages_that_do_not_arrive(site, rg):
    number, _ = site.establish(rg)
    core_with(site, slow=1)
    rg.hang_up()
    site.amf.wait("release-request", amf=number)
    before = len(site.amf.events("message", name="NASNonDeliveryIndication"))
    site.amf.do("nas", amf=number, count=1)
    message = site.amf.wait("message", before + 1, name="NASNonDeliveryIndication")[-1]
    ies = decode(bytes.fromhex(message["octets"]))[1]
    assert ies["AMF-UE-NGAP-ID"] == number and ies["Cause"] == ("radioNetwork", "radio-connection-with-ue-lost")
    assert ies["NAS-PDU"]
    core_with(site, slow=0)
    completes = len(site.amf.events("message", name="UEContextReleaseComplete"))
    site.amf.do("release", amf=number)
    site.amf.wait("message", completes + 1, name="UEContextReleaseComplete")
    rg.ended = True


def test_a_5g_residential_gateway_goes_to_the_amf_set_that_the_first_amf_names(site):
    core_with(site, reroute=1)
    with another_set(site, "agf", OTHER_AMF) as core:
        rg = site.rg()
        rg.register()
        rerouted(core, site.amf)
        rg.hang_up()
        site.nothing_left()


def test_a_upf_that_does_not_know_a_tunnel_ends_the_resource(site, rg):
    """TS 23.527 section 5.3.3. The 5G-RG asks for another one when it needs it."""
    number, _ = site.establish(rg)
    elements = struct.pack("!BIBH", 16, site.tunnel.teid_up, 133, 4) + ipaddress.ip_address(UPF).packed
    site.upf.send(Message(ERROR_INDICATION, 0, sequence=1, payload=elements), N3)
    given_up = site.amf.wait("given-up", amf=number)[-1]
    assert given_up["session"] == 1 and "gTP-U-error-indication-received" in given_up["why"]
    rg.until(lambda: 1 not in rg.resources, "the 5G-RG hears of it")
    wait_until(lambda: not site.sessions(), what="no user plane")


def test_a_5g_residential_gateway_that_deregisters_leaves_nothing(site, rg):
    site.establish(rg)
    rg.deregister()
    site.amf.wait("deregistered")


def test_the_network_releases_a_5g_residential_gateway_and_it_comes_back(site, rg):
    number, _ = site.establish(rg)
    site.amf.do("release", amf=number)
    rg.until(lambda: rg.ended, "the link ends")
    rg.guami = "010041"
    rg.register()
    site.establish(rg)
    rg.ping_by(1, 9, SERVER, 50)


def test_an_idle_5g_residential_gateway_requests_service_and_its_pdu_session_is_there_again(site, rg):
    number, before = site.establish(rg)
    site.amf.do("release", amf=number)
    rg.until(lambda: rg.ended, "the link ends")
    wait_until(lambda: not site.sessions(), what="no user plane")
    requests, tunnels = (len(site.amf.events(name)) for name in ("service-request", "tunnel"))
    rg.request_service()
    assert site.amf.wait("service-request", requests + 1)[-1]["octets"].startswith("7e004c10")
    five_we, kind, qfis = rg.resources[1]
    assert (kind, qfis) == (1, [9, 1]) and five_we != before[0]
    # The 5G-RG may have its service before the AMF has written down the tunnel.
    tunnel = site.amf.wait("tunnel", tunnels + 1)[-1]
    site.upf.add(Tunnel(site.tunnel.ip4, site.tunnel.teid_up, tunnel["teid"]), N3, 9)
    assert rg.ping_by(1, 1, SERVER, 55) == (five_we, 9, 0)


def test_a_pdu_session_has_both_families(site, rg):
    own = "2001:db8:64:1::7"
    _, (five_we, kind, _) = site.establish(rg, 1, IPV4V6, own)
    assert kind == IPV4V6 and len(rg.addresses[1]) == 12
    rg.addresses[1] = rg.addresses[1][8:]
    assert rg.ping_by(1, 9, SERVER, 56)[0] == five_we
    # Router solicitations are for the UPF, and its advertisements for the 5G-RG.
    site.upf.drain()
    link_local = ipaddress.ip_address("fe80::200:0:0:101").packed
    solicitation = frames.icmp6(link_local, ipaddress.ip_address("ff02::2").packed, 133, bytes(4))
    rg.ppp(IP6, solicitation)
    assert site.upf.expect(lambda m: m.payload[:1] == b"\x60").payload == solicitation
    advertisement = frames.icmp6(
        ipaddress.ip_address("fe80::1").packed, ipaddress.ip_address("ff02::1").packed, 134, bytes(12)
    )
    site.upf.send(site.upf.gpdu(site.tunnel, advertisement, 9), N3)
    rg.until(lambda: rg.advertisement == advertisement, "the router advertisement")
    rg.ping(SERVER6, 57, source=own)


def test_a_guaranteed_bit_rate_goes_before_what_has_a_higher_priority(site):
    for name, rate in (("access", "64K"), ("core", "1M")):
        site.gateway.apply(
            thing("QosScheduler", name, port=name, rate="1G"), thing("QosGroup", name, scheduler=name, peakRate=rate)
        )
    # The flow has the class of the lowest priority.
    marks = [{"fiveQi": 1, "class": 0}, {"fiveQi": 9, "class": 1}]
    queues = {"qosGroup": "access", "qosGroupUp": "core"}
    site.gateway.apply(thing("Agf", "homes", **{**site.agf, "markings": marks}, **queues))
    core_with(site, gbr=32_000)
    rg = site.rg()
    rg.register()
    site.establish(rg)
    (policy,) = (session["policy"] for session in site.sessions())
    assert (policy["qosGroup"], policy["qosGroupUp"]) == ("access", "core")
    for name in (policy["qosProfile"], policy["qosProfileUp"]):
        classes = site.gateway.json("get", "qosprofile", name)[0]["spec"]["classes"]
        assert [one.get("committedRate") for one in classes] == [32_000, None]
    rg.ping_by(1, 1, SERVER, 60)
    # Five seconds of other packets wait.
    rg.marks = []
    for qfi, count, size in ((9, 30, 1300), (1, 3, 50)):
        packet = frames.udp(SERVER, site.tunnel.ip4, 7, 7, bytes(size))
        for _ in range(count):
            site.upf.send(site.upf.gpdu(site.tunnel, packet, qfi), N3)
    rg.until(lambda: [mark[1] for mark in rg.marks].count(1) == 3, "the flow's packets")
    assert [mark[1] for mark in rg.marks].count(9) < 30
    rg.hang_up()
    site.nothing_left()
    core_with(site, gbr=0)
    site.gateway.apply(thing("Agf", "homes", **site.agf))
    for kind in ("qosgroup", "qosscheduler"):
        for name in ("access", "core"):
            site.gateway.sluice("delete", kind, name)


def test_frames_of_a_pdu_session_of_type_ethernet_go_both_ways(site, rg):
    before = len(site.amf.events("tunnel"))
    rg.send_nas(rg.session_request(1, ETHERNET))
    rg.until(lambda: 1 in rg.addresses, "the PDU session")
    five_we, kind, _ = rg.resources[1]
    assert (kind, rg.addresses[1]) == (ETHERNET, b"")
    ours = site.amf.wait("tunnel", before + 1)[-1]
    asked = [each for each in site.amf.events("session") if each["amf"] == ours["amf"]][-1]
    tunnel = Tunnel("", asked["teid"], ours["teid"])
    # Of two stations behind the ends, with a tag of their own.
    frame = bytes.fromhex("0209090909090208080808088100000708004500") + bytes(40)
    for qfi in (9, 1):
        rg.user_plane = (1, qfi)
        site.upf.drain()
        rg.send_frame(frame)
        message = site.upf.expect(lambda m: m.payload == frame)
        assert (message.teid, message.container) == (tunnel.teid_up, (1, qfi))
    site.upf.send(site.upf.gpdu(tunnel, frame, 9), N3)
    rg.until(lambda: rg.bridged, "a frame from the tunnel")
    assert (rg.bridged, rg.marks[-1]) == ([frame], (five_we, 9, 0))


@pytest.mark.parametrize("how", ["PADT", "LCP", "echo"])
def test_a_link_that_is_gone_is_released_at_the_core(site, how):
    rg = site.rg(302) if how == "echo" else site.rg()
    rg.register()
    number, _ = site.establish(rg)
    if how == "PADT":
        rg.hang_up()
    elif how == "LCP":
        rg.end_link()
    # A 5G-RG that is silent leaves LCP Echo-Requests unanswered.
    site.amf.wait("release-request", amf=number)
    site.nothing_left()


def test_a_context_of_a_5g_residential_gateway_that_goes_before_it_is_set_up_fails_at_the_core(site):
    rg = site.rg()
    before = len(site.amf.events("message", name="InitialContextSetupFailure"))
    # It has EAP-Success, and does not acknowledge VSNCP.
    assert rg.attach()
    rg.hang_up()
    message = site.amf.wait("message", before + 1, name="InitialContextSetupFailure")[-1]
    ies = decode(bytes.fromhex(message["octets"]))[1]
    assert ies["Cause"] == ("radioNetwork", "radio-connection-with-ue-lost")
    site.amf.wait("release-request", amf=ies["AMF-UE-NGAP-ID"])
    site.nothing_left()


def test_the_core_may_reject_a_5g_residential_gateway(site):
    core_with(site, reject=11)
    rg = site.rg()
    assert not rg.attach()
    assert rg.events == [("nas-rejected", {"kind": 0x44, "cause": 11})]
    rg.until(lambda: rg.ended, "the link ends")
    core_with(site, reject=0)


def test_a_resource_that_the_5g_residential_gateway_refuses_fails_at_the_core(site, rg):
    rg.cause = 3
    rg.send_nas(rg.session_request(1))
    before = len(site.amf.events("no-tunnel"))
    rg.until(lambda: 1 in rg.resources, "the resource")
    site.amf.wait("no-tunnel", before + 1)
    assert not site.sessions()
    assert rg.lcp_echo() == rg.peer_magic


def test_hostile_packets_end_at_most_their_own_link(site, rg):
    _, resource = site.establish(rg)
    for response in ("00", "02", "0200ffff", "020000010100027e00", "0200000003010101", "ff00", "0300"):
        # Each from another MAC: a host that was rejected several times has to wait longer and longer.
        rogue = site.rg()
        rogue.mangle = response
        assert not rogue.attach(), response
        rogue.until(lambda rogue=rogue: rogue.ended, "the link ends")
    # Before authentication.
    rogue = site.rg()
    rogue.discover()
    rogue.link()
    for protocol, packet in ((VSNP, "0100027e43"), (VSNCP, "010100070025" + "6d"), (EAP, "ff"), (EAP, "0201ffff")):
        rogue.ppp(protocol, bytes.fromhex(packet))
    rogue.until(lambda: rogue.ended or rogue.authenticated is False, "the link ends")
    # Afterwards.
    rogue = site.rg()
    rogue.register()
    for packet in ("", "01", "010000", "01ffff00", "0201", "02010101" + "0001ff", "05ff0100", "09" * 40, "0501"):
        rogue.ppp(VSNP, bytes.fromhex(packet))
    for packet in ("", "0101", "0101ffff00256d", "01010007cf0002", "01010005002" + "56d", "0909000700256d"):
        rogue.ppp(VSNCP, bytes.fromhex(packet))
    rogue.ppp(EAP, b"\x02\x01\x00\x04")
    rogue.ppp(VSNP, bytes([1, 0, 3, 0x7E, 0, 0]))
    assert rogue.lcp_echo() == rogue.peer_magic
    # Data of a 5WE session that is the other's, by another MAC: the data plane looks at the session alone.
    site.establish(rogue)
    rogue.ping_by(1, 9, SERVER, 60)
    rogue.hang_up()
    assert rg.ping_by(1, 9, SERVER, 61)[0] == resource[0]


def test_the_traffic_goes_on_after_a_restart_of_the_data_plane(site):
    rg = site.rg()
    rg.register()
    _, resource = site.establish(rg)
    assert rg.ping_by(1, 9, SERVER, 65)[0] == resource[0]
    site.gateway.dataplane.kill()
    site.gateway.start_dataplane()
    numbers = itertools.count(100)

    def answered():
        """An echo is lost until the new data plane has everything, the UPF's neighbour among it."""
        try:
            return rg.ping_by(1, 9, SERVER, next(numbers), 1)[0] == resource[0]
        except AssertionError:
            return False

    wait_until(answered, what="traffic")
    assert rg.lcp_echo() == rg.peer_magic
    # NAS goes on, too.
    rg.deregister()
    site.nothing_left()


def test_5g_residential_gateways_dial_in_again_after_the_agent_was_killed(site, rg):
    site.establish(rg)
    setups = len(site.amf.events("setup"))
    site.gateway.agent.kill()
    site.gateway.start_agent()
    site.amf.wait("setup", setups + 1)
    condition = "the AMF is ready"
    wait_until(lambda: "NoAssociation" not in str(site.gateway.json("get", "amf", "core")), what=condition)
    # Its link is unknown: PADT answers the first packet.
    rg.id += 1

    def ask():
        rg.packet(0xC021, 9, rg.id, rg.magic)
        return rg.ended

    rg.until(ask, "the link ends")
    rg.register()
    site.establish(rg)
    rg.ping_by(1, 9, SERVER, 70)


def test_wireshark_decodes_what_was_sent_to_the_core(site):
    complaints, packets = site.sniffer.complaints(N2, relays=True)
    assert not complaints and packets
