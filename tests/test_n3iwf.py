# SPDX-License-Identifier: Apache-2.0
"""Untrusted access to a 5G core: UEs with an IKE and NAS of their own, the N3IWF, and an AMF above pycrate."""

import json
import struct
import subprocess
from dataclasses import dataclass
from ipaddress import ip_address

import pytest
from core.amf import decode
from lab import Gateway, Upf, thing
from lab.core import MANGLED, N3iwfAmf, Ues, another_set, apart, rerouted
from lab.laboratory import wait_until
from lab.upf import ERROR_INDICATION, Message
from lab.wireshark import Sniffer

GATEWAY, FIRST_UE = "192.0.2.1", "192.0.2.100"
GATEWAY6, FIRST_UE6 = "2001:db8:2::1", "2001:db8:2::100"
NODE, AMF, OTHER_AMF = "10.9.8.1", "10.9.8.2", "10.9.8.3"
CORE, UPF = "198.51.100.1", "198.51.100.2"
SERVER, SERVER6 = "203.0.113.1", "2001:db8:99::1"
INNER_NAS, USER_PLANE = "10.200.0.1", "10.200.0.2"
INNER_NAS6, USER_PLANE6, INNER_POOL6 = "2001:db8:200::1", "2001:db8:200::2", "2001:db8:201::/64"
EF = 46
VOICE = ("-Q", hex(EF << 2))


def authority(directory):
    """An authority, and the gateway's certificate: ECDSA."""

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=directory)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *key, "-days", "2", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=operator")
    openssl("req", *key, "-keyout", "n3iwf.key", "-out", "n3iwf.csr", "-subj", "/CN=n3iwf.example")
    openssl("x509", "-req", "-in", "n3iwf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-out", "n3iwf.pem")  # fmt: skip
    return directory


@dataclass
class Tunnel:
    """The UPF's data of a PDU session."""

    ip4: str
    teid_up: int
    teid_down: int
    ip6: str = ""


def qfi_of(packet):
    """The QoS flow of a packet, as the UPF and UEs choose it."""
    traffic = packet[1] if packet[0] >> 4 == 4 else (packet[0] & 15) << 4 | packet[1] >> 4
    return 1 if traffic >> 2 == EF else 9


class Site:
    """UEs == N3IWF == AMF and UPF with a server behind it."""

    def __init__(self, lab, ues=8, gateway=None, **amf):
        self.lab = lab
        self.wifi, self.inside, self.core = (lab.namespace(name) for name in ("wifi", "inside", "core"))
        self.inside.link("acc0", self.wifi, "wlan")
        self.inside.link("n3", self.core, "upf")
        self.inside.link("n2", self.core, "amf")
        for ours in ("acc0", "n3"):
            self.inside.silent(ours)
        self.inside.ip("addr", "add", f"{NODE}/24", "dev", "n2")
        self.core.ip("addr", "add", f"{AMF}/24", "dev", "amf")
        self.core.ip("addr", "add", f"{UPF}/24", "dev", "upf")
        self.core.ip("addr", "add", f"{SERVER}/32", "dev", "lo")
        self.core.ip("addr", "add", f"{SERVER6}/128", "dev", "lo")
        for n in range(ues):
            self.wifi.ip("addr", "add", f"{ip_address(FIRST_UE) + n}/16", "dev", "wlan")
        self.wifi.ip("addr", "add", f"{FIRST_UE6}/64", "dev", "wlan", "nodad")
        self.files = authority(lab.directory)
        self.sniffers = [
            (Sniffer(lab, self.core, "amf", "sctp"), NODE),
            (Sniffer(lab, self.core, "upf", "udp port 2152"), CORE),
        ]
        self.amf = N3iwfAmf(lab, self.core, AMF, upf=UPF, **amf)
        self.upf = Upf(lab, self.core, UPF)
        self.gateway = Gateway(lab, self.inside, **(gateway or {}))
        certificate = {"certificateFile": f"{self.files}/n3iwf.pem", "privateKeyFile": f"{self.files}/n3iwf.key"}
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac="02:00:00:00:aa:01"),
            thing("Port", "core", device="net_af_packet1,iface=n3,framecnt=4096", mac="02:00:00:00:aa:02"),
            thing("Interface", "access", port="access", addresses=[f"{GATEWAY}/16", f"{GATEWAY6}/64"]),
            thing("Interface", "core", port="core", addresses=[f"{CORE}/24"]),
            thing("Interface", "nas", addresses=[f"{INNER_NAS}/32", f"{INNER_NAS6}/128"]),
            thing("IkeCredential", "n3iwf", **certificate),
            thing("AccessNode", "n3iwf", plmn="00101", n3iwfId=9, trackingAreas=[{"tac": 1, "slices": [{"sst": 1}]}],
                  localAddresses=[NODE]),
            thing("Amf", "amf", node="n3iwf", addresses=[AMF]),
            self.n3iwf(),
        )  # fmt: skip
        self.amf.wait("setup")

    def n3iwf(self, **more):
        spec = {
            "node": "n3iwf", "localAddress": GATEWAY, "credential": "n3iwf", "innerPools": ["10.201.0.0/16"],
            "nasAddress": INNER_NAS, "userPlaneAddresses": [USER_PLANE], "coreAddress": CORE,
            "markings": [{"fiveQi": 9, "dscp": "af21"}], "childFiveQis": [1],
        }  # fmt: skip
        return thing("N3iwf", "wifi", **(spec | more))

    def ues(self, count=1, first=0, **options):
        return Ues(
            self.lab,
            self.wifi,
            gateway=GATEWAY,
            outer=ip_address(FIRST_UE) + first,
            authority=self.files / "ca.pem",
            count=count,
            route=[f"{SERVER}/32", f"{SERVER6}/128"],
            **options,
        )

    def attach(self, ues, session=1, ue=0, kind=1):
        """Establish a PDU session, and configure the UPF. The AMF's number of the UE, and its address."""
        before = len(self.amf.events("tunnel"))
        ues.do("session", ue=ue, session=session, kind=kind)
        number, address = self.join(before + 1)
        ues.wait("session", ue=ue, session=session)
        return number, address

    def join(self, count):
        """The UPF gets the N3IWF's end of the newest tunnel."""
        tunnel = self.amf.wait("tunnel", count)[-1]
        asked = next(e for e in reversed(self.amf.events("session")) if e["amf"] == tunnel["amf"])
        self.upf.add(Tunnel(asked["address"], asked["teid"], tunnel["teid"], asked["address6"]), CORE, qfi_of)
        return tunnel["amf"], asked["address"] or asked["address6"]

    def reaches(self, address, *more, count=3, deadline=30):
        """Whether so many packets are answered before the deadline. Without one, ping waits two round trips alone."""
        to = SERVER6 if ":" in address else SERVER
        command = ("ping", "-c", str(count), "-i", "0.2", "-w", str(deadline), "-I", address, *more, to)
        return self.wifi.run(*command, check=False).returncode == 0

    def left(self):
        names = ("n3iwf-wifi-", "n3iwf-shared-")
        return [each for each in self.gateway.json("get", "all") if each["metadata"]["name"].startswith(names)]


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


@pytest.fixture(scope="module")
def all_ues(site):
    return site.ues(count=4)


@pytest.fixture
def ues(site, all_ues):
    """Disconnected UEs, whatever the state of the test before. Earlier events do not count."""
    if site.left():
        site.gateway.sluice("ike", "terminate", "n3iwf-wifi")
        nothing_left(site)
    fresh(site, all_ues)
    return all_ues


def fresh(site, ues):
    """No event of before counts, and the options of UEs are the usual ones."""
    usual = {"guami": "", "sst": 1, "nat": 0, "mangle": "", "cause": 3, "emergency": 0, "inner": 4, "refusechild": 0}
    usual |= {"halt": 0, "mute": 0, "cipher": "gcm", "asked": "", "an": "", "bare": 0}
    having(ues, **usual, gateway=GATEWAY, outer=FIRST_UE)
    ues.mark()
    site.amf.mark()


def having(ues, **options):
    """UEs that register from now on have these options."""
    before = len(ues.events("set"))
    ues.do("set", options=options)
    ues.wait("set", before + 1)


def register(ues, ue=0):
    before = len(ues.events("registered", ue=ue))
    ues.do("register", ue=ue)
    ues.wait("registered", before + 1, ue=ue)


def connected(site, ues, ue=0):
    """A UE that registers and has a PDU session: the AMF's number of it, and its address."""
    register(ues, ue)
    return site.attach(ues, ue=ue)


def pinging(site, address, *more):
    """Sends a fixed number of pings at a fixed interval, with or without replies."""
    more = more or ("-i", "0.05", "-c", "60")
    return subprocess.Popen(
        ["ip", "netns", "exec", site.wifi.name, "ping", "-q", "-W", "5", "-I", address, *more, SERVER],
        stdout=subprocess.PIPE,
        text=True,
    )


def nothing_left(site, seconds=30):
    wait_until(lambda: not site.left(), seconds, what=f"nothing is left: {site.left()}")


def test_a_ue_registers_and_has_a_pdu_session(site, ues):
    register(ues)
    initial = site.amf.events("initial")[-1]
    assert "N3IWF" in initial["location"] and initial["cause"] == "mo-Signalling" and initial["plmn"] == "00f110"
    _, address = site.attach(ues)
    children = [(c["session"], c["qfis"], c["default"], c["dscp"]) for c in ues.events("child")]
    assert children == [(1, [9], True, None), (1, [1], False, 46)]
    assert site.reaches(address)
    # The UE's own rules choose the flow uplink, and the UPF's downlink.
    site.upf.drain()
    site.reaches(address, *VOICE, count=1)
    assert site.upf.expect(lambda m: m.container is not None).container == (1, 1)
    site.reaches(address, count=1)
    assert site.upf.expect(lambda m: m.container is not None).container == (1, 9)
    assert site.reaches(address, "-s", "1100", "-M", "do")
    # GRE checks the ends of packets: selectors would be looked at a second time.
    associations = {each["metadata"]["name"]: each["spec"] for each in site.gateway.json("get", "sa")}
    assert len(associations) == 6
    assert all(("selectors" in spec) == ("signalling" in name) for name, spec in associations.items())


def test_children_and_the_ike_sa_are_rekeyed_without_loss(site, ues):
    _, address = connected(site, ues)
    with pinging(site, address) as ping:
        site.gateway.sluice("ike", "rekey", "n3iwf-wifi", "--child", "*")
        ues.wait("rekeyed", 3, ue=0)
        site.gateway.sluice("ike", "rekey", "n3iwf-wifi")
        ues.wait("ike-rekeyed", 1, ue=0)
        assert " 0% packet loss" in ping.stdout.read()


def test_a_ue_rekeys_its_children_and_the_ike_sa_without_loss(site, ues):
    number, address = connected(site, ues)
    with pinging(site, address) as ping:
        ues.do("rekey", ue=0)
        ues.wait("own-ike-rekey", ue=0)
        assert len(ues.events("own-rekey", ue=0)) == 3
        assert " 0% packet loss" in ping.stdout.read()
    # NAS goes through the new signalling SA, and the gateway knows the new IKE SA.
    site.amf.do("nas", amf=number, count=1)
    ues.wait("nas", ue=0)
    site.amf.do("release-session", amf=number, session=1)
    ues.wait("child-closed", 2, session=1, ue=0)


def test_nas_messages_arrive_in_order_and_whole(site, ues):
    number, _ = connected(site, ues)
    site.amf.do("nas", amf=number, count=20, size=200)
    site.amf.do("nas", amf=number, count=3, size=250)
    ues.wait("nas", 23, ue=0)
    assert not ues.events("failure")


def test_a_modification_moves_flows_between_children(site, ues):
    number, address = connected(site, ues)
    site.amf.do("modify", amf=number, session=1, add=[[5, 7]], remove=[1])
    site.amf.wait("modified", sessions=[1])
    modified = ues.wait("modified", ue=0)[-1]
    assert (modified["qfis"], modified["default"]) == ([5, 9], True)
    ues.wait("child-closed", session=1, ue=0)
    assert site.reaches(address)
    site.amf.do("modify", amf=number, session=1, add=[[2, 1]], remove=[5])
    site.amf.wait("modified", 2, sessions=[1])
    assert ues.wait("child", 3, ue=0)[-1]["qfis"] == [2]
    # One that leaves the Session as it is.
    site.amf.do("modify", amf=number, session=1, add=[[7, 7]])
    site.amf.wait("modified", 3, sessions=[1])
    assert site.reaches(address)


def test_a_pdu_session_has_ipv6_or_both(site, ues):
    register(ues)
    _, six = site.attach(ues, kind=2)
    assert site.reaches(six)
    site.upf.drain()
    site.reaches(six, *VOICE, count=1)
    assert site.upf.expect(lambda m: m.container is not None).container == (1, 1)
    _, four = site.attach(ues, session=2, kind=3)
    assert site.reaches(four)
    assert site.reaches(ues.events("session", session=2)[-1]["address6"])


def test_frames_of_a_pdu_session_of_type_ethernet_go_both_ways(site, ues):
    _, address = connected(site, ues)
    before = len(site.amf.events("tunnel"))
    ues.do("session", ue=0, session=2, kind=5)
    ours = site.amf.wait("tunnel", before + 1)[-1]
    ues.wait("session", ue=0, session=2)
    asked = site.amf.events("session", amf=ours["amf"], session=2)[-1]
    tunnel = Tunnel("", asked["teid"], ours["teid"])
    # Of two stations behind the ends, with a tag of their own; the other one looks like an IPv4 packet.
    for number, (first, qfi) in enumerate((("0209", 9), ("4500", 1)), 1):
        frame = bytes.fromhex(first + "090909090208080808088100000708004500") + bytes(40)
        site.upf.drain()
        ues.do("frame", ue=0, session=2, qfi=qfi, octets=frame.hex())
        message = site.upf.expect(lambda m, frame=frame: m.payload == frame)
        assert (message.teid, message.container) == (asked["teid"], (1, qfi))
        site.upf.send(site.upf.gpdu(tunnel, frame, qfi), CORE)
        came = ues.wait("frame", number, ue=0, session=2)[-1]
        assert (came["octets"], came["qfi"]) == (frame.hex(), qfi)
    # The other PDU session is as before.
    assert site.reaches(address)
    ues.do("deregister", ue=0)
    nothing_left(site)


def test_a_second_pdu_session_is_released_by_the_network(site, ues):
    number, first = connected(site, ues)
    _, second = site.attach(ues, session=2)
    assert site.reaches(second)
    site.amf.do("release-session", amf=number, session=2)
    ues.wait("session-released", session=2, ue=0)
    site.amf.wait("session-released", session=2)
    ues.wait("child-closed", 2, session=2, ue=0)
    assert not site.reaches(second, count=1, deadline=1)
    assert site.reaches(first)


def test_a_ue_that_deregisters_leaves_nothing(site, ues):
    connected(site, ues)
    ues.do("deregister", ue=0)
    site.amf.wait("deregistered")
    ues.wait("released", ue=0)
    nothing_left(site)


def test_the_network_releases_a_ue(site, ues):
    having(ues, guami="010041")
    number, _ = connected(site, ues, 1)
    site.amf.do("release", amf=number)
    ues.wait("released", ue=1)
    nothing_left(site)


def test_a_ue_that_does_not_answer_is_released_at_the_core(site, ues):
    site.gateway.apply(site.n3iwf(dpdDelay="1s", tries=1))
    number, _ = connected(site, ues, 1)
    _, address = connected(site, ues)
    ues.do("die", ue=1)
    ues.wait("dead", ue=1)
    site.amf.wait("release-request", amf=number, cause=["radioNetwork", "radio-connection-with-ue-lost"])
    complete = site.amf.wait("release-complete", amf=number)[-1]
    assert complete["sessions"] == [1] and "N3IWF" in complete["location"]
    # The other one answers, and stays.
    wait_until(lambda: [each["kind"] for each in site.left()].count("Session") == 1, what="one session is left")
    assert site.reaches(address)
    site.gateway.apply(site.n3iwf())


def test_a_change_of_the_n3iwf_ends_ues_that_cannot_stay_and_no_other(site, ues):
    number, address = connected(site, ues)
    site.gateway.apply(site.n3iwf(backOff="3s", userPlaneAddresses=[USER_PLANE, USER_PLANE6]))
    assert site.reaches(address)
    changed = site.n3iwf(userPlaneAddresses=["10.200.0.3"])
    planned = site.gateway.sluice("plan", "-f", "-", input=json.dumps(changed))
    assert "N3iwf/wifi: ends 1 session" in planned.stderr
    site.gateway.apply(changed)
    ues.wait("released", ue=0)
    site.amf.wait("release-complete", amf=number)
    nothing_left(site)
    _, address = connected(site, ues)
    assert site.reaches(address)
    site.gateway.apply(site.n3iwf())
    ues.wait("released", 2, ue=0)
    nothing_left(site)


def test_operators_see_ues_and_release_one(site, ues):
    connected(site, ues)
    number, address = connected(site, ues, 1)
    outer = str(ip_address(FIRST_UE) + 1)
    (ue,) = site.gateway.json("get", "ues", "--address", outer)
    assert site.reaches(address)
    described = site.gateway.json("describe", "ue", ue["name"])
    (session,) = described["sessions"]
    assert (described["remote"], session["id"], session["upf"]) == (f"{outer}:500", 1, UPF)
    assert session["upPackets"] >= 3 and any(each.endswith("(5QI 9)") for each in session["flows"])
    assert len(session["tunnels"]) == len(set(session["tunnels"]) & set(site.gateway.holds("IpsecTunnel"))) > 0
    site.gateway.sluice("ue", "release", ue["name"], "--why", "a test")
    site.amf.wait("release-request", amf=number, cause=["misc", "om-intervention"])
    ues.wait("released", ue=1)
    left = site.gateway.sluice("get", "ues").stdout
    assert outer not in left and FIRST_UE in left
    for arguments, why in (
        (("ue", "release", "nobody"), "no UE that is connected has this name"),
        (("ue", "release"), "names of UEs, or --n3iwf"),
        (("describe", "ue", "nobody"), "there is no ue nobody"),
        (("describe", "ue"), "the name is missing"),
    ):
        refused = site.gateway.sluice(*arguments, check=False)
        assert refused.returncode and why in refused.stderr, refused.stderr
    site.gateway.sluice("ue", "release", "--n3iwf", "wifi")
    nothing_left(site)


def test_a_deleted_n3iwf_releases_its_ues(site, ues):
    number, _ = connected(site, ues)
    site.gateway.sluice("delete", "n3iwf", "wifi")
    ues.wait("released", ue=0)
    site.amf.wait("release-complete", amf=number)
    nothing_left(site)
    site.gateway.apply(site.n3iwf())
    _, address = connected(site, ues)
    assert site.reaches(address)


def test_a_ue_has_aes_cbc_with_hmac_sha2_256(site, ues):
    having(ues, cipher="cbc")
    number, address = connected(site, ues)
    _, second = site.attach(ues, session=2, kind=3)
    assert site.reaches(address) and site.reaches(address, *VOICE) and site.reaches(second)
    assert site.reaches(address, "-s", "1100", "-M", "do")
    algorithms = {
        (spec["encryption"], spec.get("integrity"))
        for spec in (each["spec"] for each in site.gateway.json("get", "sa"))
    }
    assert algorithms == {("aes_cbc", "hmac_sha256")}
    assert "aes256-prfsha256-sha256-x25519" in json.dumps(site.gateway.json("ike", "list"))
    # Each end rekeys the child SAs and the IKE SA.
    with pinging(site, address) as ping:
        site.gateway.sluice("ike", "rekey", "n3iwf-wifi", "--child", "*")
        ues.wait("rekeyed", 5, ue=0)
        site.gateway.sluice("ike", "rekey", "n3iwf-wifi")
        ues.wait("ike-rekeyed", 1, ue=0)
        ues.do("rekey", ue=0)
        ues.wait("own-ike-rekey", ue=0)
        assert " 0% packet loss" in ping.stdout.read()
    site.amf.do("nas", amf=number, count=3, size=250)
    ues.wait("nas", 3, ue=0)
    ues.do("deregister", ue=0)
    nothing_left(site)


def test_an_n3iwf_whose_node_has_no_n3iwf_id_is_not_ready(site, ues):
    node = {"plmn": "00101", "trackingAreas": [{"tac": 1, "slices": [{"sst": 1}]}], "localAddresses": ["10.9.8.9"]}

    def ready():
        (found,) = site.gateway.json("get", "n3iwf", "other")
        return next(one for one in found["status"]["conditions"] if one["type"] == "Ready")

    site.gateway.apply(thing("AccessNode", "lines", **node))
    other = site.n3iwf(node="lines", localAddress=GATEWAY6)
    other["metadata"]["name"] = "other"
    site.gateway.apply(other, wait=False)
    why = wait_until(lambda: (one := ready())["status"] == "False" and one, what="it is not ready")
    assert why["reason"] == "NotConfigured" and "AccessNode/lines has no n3iwfId: set it" in why["message"]
    site.gateway.apply(thing("AccessNode", "lines", n3iwfId=10, **node))
    wait_until(lambda: ready()["status"] == "True", what="it is ready")
    site.gateway.delete("n3iwf", "other")
    site.gateway.delete("AccessNode", "lines")


def test_the_amf_hears_of_nas_messages_that_do_not_arrive(site, ues):
    site.gateway.apply(site.n3iwf(dpdDelay="1s", tries=1))
    number, _ = connected(site, ues, 1)
    ues.do("die", ue=1)
    ues.wait("dead", ue=1)
    site.amf.do("nas", amf=number, count=2)
    lost = site.amf.wait("message", 2, name="NASNonDeliveryIndication")
    for message in lost:
        ies = decode(bytes.fromhex(message["octets"]))[1]
        assert ies["AMF-UE-NGAP-ID"] == number and ies["NAS-PDU"]
        assert ies["Cause"] == ("radioNetwork", "radio-connection-with-ue-lost")
    site.amf.wait("release-complete", amf=number)
    nothing_left(site)
    site.gateway.apply(site.n3iwf())


def test_a_pdu_session_whose_child_sa_a_ue_refuses_is_refused(site, ues):
    having(ues, refusechild=1)
    register(ues)
    ues.do("session", ue=0, session=1)
    site.amf.wait("no-tunnel", session=1)
    wait_until(lambda: not any(each["kind"] in ("Session", "GreTunnel") for each in site.left()), what="no user plane")
    having(ues, refusechild=0)
    _, address = site.attach(ues, session=2)
    assert site.reaches(address)


def test_an_emergency_needs_no_authentication(site, ues):
    having(ues, emergency=1, cause=0)
    number, address = connected(site, ues)
    assert site.amf.events("initial")[-1]["cause"] == "emergency"
    # From REGISTRATION REQUEST on, neither AUTHENTICATION RESPONSE nor SECURITY MODE COMPLETE.
    assert [each["kind"] for each in site.amf.events("nas", amf=number)] == [0x41, 0x43, 0x67]
    assert site.reaches(address)
    ues.do("deregister", ue=0)
    nothing_left(site)


def test_a_ue_has_an_ipv6_address_inside(site, ues):
    site.gateway.apply(site.n3iwf(nasAddress=INNER_NAS6, innerPools=[INNER_POOL6], userPlaneAddresses=[USER_PLANE6]))
    having(ues, inner=6)
    number, address = connected(site, ues)
    assert ues.events("connected")[-1]["inner"].startswith("2001:db8:201::")
    assert site.reaches(address)
    assert site.reaches(address, *VOICE)
    site.amf.do("nas", amf=number, count=3, size=250)
    ues.wait("nas", 3, ue=0)
    ues.do("deregister", ue=0)
    nothing_left(site)
    site.gateway.apply(site.n3iwf())


def test_a_ue_that_goes_is_released_at_the_core(site, ues):
    number, _ = connected(site, ues, 1)
    ues.do("close", ue=1)
    site.amf.wait("release-request", amf=number)
    assert site.amf.wait("release-complete", amf=number)[-1]["sessions"] == [1]
    assert not site.amf.events("message", name="PDUSessionResourceNotify")
    nothing_left(site)


def test_an_inactive_ue_is_released_and_comes_back_by_service_request(site, ues):
    number, first = connected(site, ues)
    site.gateway.apply(site.n3iwf(inactivityTime="1s"))
    # The context goes, and the UE keeps its registration.
    site.amf.wait("release-request", amf=number, cause=["radioNetwork", "user-inactivity"])
    ues.wait("released", ue=0)
    site.gateway.apply(site.n3iwf())
    nothing_left(site)
    ues.do("service", ue=0)
    ues.wait("served", ue=0)
    _, address = site.join(2)
    assert address == first
    assert site.reaches(address)


def test_a_ue_behind_an_address_translator_is_served(site, ues):
    having(ues, nat=1)
    _, address = connected(site, ues, 3)
    assert site.reaches(address)
    ues.do("close", ue=3)
    nothing_left(site)


def test_a_ue_moves_to_another_address(site, ues):
    number, address = connected(site, ues)
    ues.do("move", ue=0, to="192.0.2.107")
    ues.wait("moved", ue=0)
    assert site.reaches(address)
    # NAS goes the new way, and the core gets the new location.
    site.amf.do("nas", amf=number, count=1)
    ues.wait("nas", ue=0)
    ues.do("deregister", ue=0)
    sent = site.amf.wait("deregistered") and site.amf.events("message", name="UplinkNASTransport")[-1]
    assert "c000026b" in sent["octets"]
    nothing_left(site)


def test_the_core_asks_where_a_ue_is_and_hears_when_it_moves(site, ues):
    number, _ = connected(site, ues)

    def ask(event, count, name="LocationReport"):
        ies = {"LocationReportingRequestType": {"eventType": event, "reportArea": "cell"}}
        site.amf.do("send", amf=number, name="LocationReportingControl", ies=repr(ies))
        return decode(bytes.fromhex(site.amf.wait("message", count, name=name)[-1]["octets"]))[1]

    assert ask("direct", 1)["AMF-UE-NGAP-ID"] == number
    ask("ue-presence-in-area-of-interest", 1, "LocationReportingFailureIndication")
    ask("change-of-serve-cell", 2)
    ues.do("move", ue=0, to="192.0.2.106")
    report = decode(bytes.fromhex(site.amf.wait("message", 3, name="LocationReport")[-1]["octets"]))[1]
    assert str(0xC000026A) in str(report["UserLocationInformation"])
    ues.do("deregister", ue=0)
    nothing_left(site)


def test_a_ue_goes_to_the_amf_set_that_the_first_amf_names(site, ues):
    with another_set(site, "n3iwf", OTHER_AMF) as core:
        core.do("set", options={"reroute": 1})
        core.wait("set")
        register(ues)
        rerouted(core, site.amf)
        ues.do("deregister", ue=0)
        nothing_left(site)


def test_a_ue_on_an_ipv6_network_is_served(site, ues):
    site.gateway.apply(site.n3iwf(localAddress=GATEWAY6))
    having(ues, gateway=GATEWAY6, outer=FIRST_UE6)
    _, address = connected(site, ues)
    assert site.reaches(address)
    assert site.reaches(address, "-s", "1100", "-M", "do")
    ues.do("deregister", ue=0)
    nothing_left(site)
    site.gateway.apply(site.n3iwf())


def test_the_core_may_reject_a_ue(site, ues):
    site.amf.do("set", options={"reject": 11})
    site.amf.wait("set")
    ues.do("register", ue=2)
    assert ues.wait("nas-rejected", ue=2)[-1]["cause"] == 11
    ues.wait("refused", ue=2)
    site.amf.do("set", options={"reject": 0})
    site.amf.wait("set", 2)
    register(ues, 2)
    ues.do("deregister", ue=2)
    nothing_left(site)


def test_a_ue_is_refused_when_the_core_does_not_answer(site, ues):
    """After registration request, authentication response and security mode complete: the N3IWF waits 15 seconds."""
    for number, kind in enumerate((0x41, 0x57, 0x5E)):
        site.amf.do("set", options={"silent": kind})
        site.amf.wait("set", number + 1)
        ues.do("register", ue=number)
        site.amf.wait("nas", number + 1 if kind == 0x41 else 1, kind=kind)
    for number in range(3):
        why = ues.wait("refused", ue=number)[-1]["why"]
        assert "EAP" in why, why
    # An AMF that has answered once is asked to release the context.
    assert len(site.amf.wait("release-request", 2)) == 2
    site.amf.do("set", options={"silent": 0})
    site.amf.wait("set", 4)
    nothing_left(site)
    register(ues)


def test_a_ue_that_halts_after_eap_success_is_released_at_the_core(site, ues):
    """The N3IWF waits 15 seconds for its AUTH payload."""
    having(ues, halt=1)
    ues.do("register", ue=1)
    ues.wait("refused", ue=1)
    failure = site.amf.wait("message", name="InitialContextSetupFailure")[-1]
    ies = decode(bytes.fromhex(failure["octets"]))[1]
    assert ies["Cause"] == ("radioNetwork", "radio-connection-with-ue-lost")
    site.amf.wait("release-request", amf=ies["AMF-UE-NGAP-ID"])
    nothing_left(site)
    having(ues, halt=0)
    register(ues, 1)


def test_a_pdu_session_whose_tunnel_the_upf_does_not_know_ends(site, ues):
    """TS 23.527 section 5.3.3: the AMF gets PDU SESSION RESOURCE NOTIFY."""
    number, _ = connected(site, ues)
    _, second = site.attach(ues, session=2)

    def refuse(teid, peer=UPF):
        elements = struct.pack("!BIBH", 16, teid, 133, 4) + ip_address(peer).packed
        site.upf.send(Message(ERROR_INDICATION, 0, sequence=1, payload=elements), CORE)

    teid = site.amf.events("session", amf=number, session=1)[-1]["teid"]
    # Of no tunnel, and of another UPF's.
    refuse(4711)
    refuse(teid, "198.51.100.9")
    refuse(teid)
    given_up = site.amf.wait("given-up", amf=number)
    assert len(given_up) == 1 and given_up[0]["session"] == 1
    assert "gTP-U-error-indication-received" in given_up[0]["why"]
    ues.wait("child-closed", 2, session=1, ue=0)
    wait_until(lambda: [each["kind"] for each in site.left()].count("Session") == 1, what="one session is left")
    assert site.reaches(second)


def test_a_ue_is_rejected_while_the_core_is_overloaded(site, ues):
    site.amf.do("overload")
    condition = "the AMF takes no UEs"
    wait_until(lambda: "NoNewSubscribers" in str(site.gateway.json("get", "amf", "amf")), what=condition)
    ues.do("register", ue=3)
    why = ues.wait("refused", ue=3)[-1]["why"]
    assert "15500" in why and "back-off 017e" in why
    # Not in an emergency.
    having(ues, cause=0)
    register(ues, 2)
    assert site.amf.events("initial")[-1]["cause"] == "emergency"
    site.amf.do("overload-stop")
    wait_until(lambda: "NoNewSubscribers" not in str(site.gateway.json("get", "amf", "amf")), what="the AMF takes UEs")
    ues.do("deregister", ue=2)
    nothing_left(site)


def test_malformed_messages_for_a_ue_disturb_no_other(site, ues):
    """Each truncation of messages, and each flip of a bit."""
    addresses = dict(connected(site, ues, ue) for ue in range(4))
    numbers = list(addresses)
    ids = {each["amfUeNgapId"]: (each["amfUeNgapId"], each["ranUeNgapId"]) for each in site.gateway.json("get", "ues")}
    victim, number = next((a, b) for a in numbers for b in numbers if apart(ids[a], ids[b]))
    address, ue = addresses[number], numbers.index(number)
    setups = len(site.amf.events("setup"))
    before = len(ues.events("released", ue=ue))
    site.amf.do("set", options={"quiet": 1})
    for name, ies in MANGLED:
        site.amf.do("mangle", amf=victim, name=name, ies=repr(ies))
        site.amf.wait("mangled", name=name)
        assert site.reaches(address)
    site.amf.do("set", options={"quiet": 0})
    # NAS with the other one goes on, and there was no other association.
    site.amf.do("nas", amf=number, count=2)
    ues.wait("nas", 2, ue=ue)
    assert len(site.amf.events("setup")) == setups
    assert len(ues.events("released", ue=ue)) == before


def test_a_malformed_eap_5g_response_refuses_its_ue(site, ues):
    for response in ("00", "02", "0200ffff", "020000010100027e00", "0200000003010101", "ff00", "0300"):
        having(ues, mangle=response)
        before = len(ues.events("refused", ue=2))
        ues.do("register", ue=2)
        ues.wait("refused", before + 1, ue=2)
    having(ues, mangle="")
    nothing_left(site)
    register(ues, 2)


def test_a_malformed_envelope_closes_the_tcp_connection_alone(site, ues):
    _, address = connected(site, ues, 1)
    ues.do("raw-nas", ue=1, octets="0000")
    ues.wait("nas-closed", ue=1)
    assert site.reaches(address)
    ues.do("close", ue=1)
    nothing_left(site)


def test_wireshark_decodes_what_was_sent_to_the_core(site):
    for sniffer, source in site.sniffers:
        complaints, packets = sniffer.complaints(source, relays=True)
        assert not complaints and packets
