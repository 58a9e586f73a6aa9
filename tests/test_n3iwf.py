# SPDX-License-Identifier: Apache-2.0
"""Untrusted access to a 5G core: UEs with an IKE and NAS of their own, the N3IWF, and an AMF above pycrate."""

import json
import re
import struct
from ipaddress import ip_address

import pytest
from core.amf import decode
from lab import thing
from lab.core import MANGLED, another_set, apart, rerouted
from lab.laboratory import wait_until
from lab.n3iwf import (
    CORE,
    FIRST_UE,
    FIRST_UE6,
    GATEWAY6,
    INNER_NAS6,
    INNER_POOL6,
    OTHER_AMF,
    SERVER,
    SERVER6,
    UPF,
    USER_PLANE,
    USER_PLANE6,
    VOICE,
    Site,
    Tunnel,
    connected,
    having,
    nothing_left,
    pinging,
    register,
)
from lab.upf import ERROR_INDICATION, Message


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


@pytest.fixture(scope="module")
def all_ues(site):
    return site.ues(count=4)


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


def flows_of(site):
    (ue,) = site.connected()
    return sorted(flow["qfi"] for flow in ue["sessions"][0]["flows"])


def test_a_modification_that_the_ue_refuses_leaves_the_pdu_session_as_it_was(site, ues):
    number, address = connected(site, ues)
    having(ues, refusemodify=1)
    site.amf.do("modify", amf=number, session=1, add=[[5, 7]])
    site.amf.wait("modified", sessions=[])
    assert ues.wait("modification-refused", ue=0)[0]["qfis"] == [5, 9]
    assert flows_of(site) == [1, 9]
    having(ues, refusemodify=0)
    assert site.reaches(address)
    site.amf.do("modify", amf=number, session=1, add=[[5, 7]])
    site.amf.wait("modified", sessions=[1])
    assert flows_of(site) == [1, 5, 9]


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


def test_the_sender_of_a_packet_that_is_too_large_for_the_access_hears_the_path_mtu(site, ues):
    register(ues)
    site.attach(ues, kind=3)
    given = ues.events("session")[-1]
    site.core.ip("link", "set", "n6", "mtu", "1500")
    for source, address, headers in ((SERVER, given["address"], 28), (SERVER6, given["address6"], 48)):

        def ping(size, count, source=source, address=address, headers=headers):
            command = ("ping", "-c", str(count), "-w", "20", "-i", "0.2", "-M", "do", "-s", str(size - headers))
            return site.core.run(*command, "-I", source, address, check=False)

        found = re.search(r"mtu ?= ?([0-9]+)", ping(1500, 2).stdout)
        assert found, "no error arrives"
        # The largest packet that fits is the one of the path MTU.
        assert 1280 <= int(found[1]) < 1500
        assert ping(int(found[1]), 1).returncode == 0
    site.core.ip("link", "set", "n6", "mtu", "1400")


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
    assert "N3iwf/wifi: ends 1 session\n" in planned.stderr and "N3iwf/wifi: disconnects 1 UE\n" in planned.stderr
    # The interface of NAS goes: what `apply` and `plan` say of deletions is the same.
    moved = json.dumps(thing("Interface", "nas", addresses=["10.200.0.9/32"]))
    planned = site.gateway.sluice("plan", "-f", "-", input=moved)
    assert "Interface/nas: cuts off 1 UE of N3iwf/wifi, which has nasAddress 10.200.0.1" in planned.stderr
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
    (ue,) = site.connected("--address", outer)
    assert site.reaches(address)
    described = site.gateway.json("describe", "ue", ue["name"])
    (session,) = described["sessions"]
    assert (described["remote"], session["id"], session["upf"]) == (f"{outer}:500", 1, UPF)
    counted = {each["fiveQi"]: each["upPackets"] for each in session["flows"]}
    assert session["upPackets"] >= 3 and counted[9] == session["upPackets"]
    assert len(session["tunnels"]) == len(set(session["tunnels"]) & set(site.gateway.holds("IpsecTunnel"))) > 0
    site.gateway.sluice("ue", "release", ue["name"], "--why", "a test")
    site.amf.wait("release-request", amf=number, cause=["misc", "om-intervention"])
    ues.wait("released", ue=1)
    left = site.gateway.sluice("get", "ues", "--state", "connected").stdout
    assert outer not in left and FIRST_UE in left
    for arguments, why in (
        (("ue", "release", "nobody"), "no UE that is connected has the name nobody"),
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
    other = site.n3iwf(node="lines", localAddress=GATEWAY6, innerPools=["10.203.0.0/16"])
    other["metadata"]["name"] = "other"
    site.gateway.apply(other, wait=False)
    why = wait_until(lambda: (one := ready())["status"] == "False" and one, what="it is not ready")
    assert why["reason"] == "NotConfigured" and "AccessNode/lines has no n3iwfId: set it" in why["message"]
    site.gateway.apply(thing("AccessNode", "lines", n3iwfId=10, **node))
    why = wait_until(lambda: (one := ready())["reason"] == "NoAmf" and one, what="it serves, without an AMF")
    assert "AccessNode/lines: no Amf names it" in why["message"]
    (served,) = site.gateway.json("get", "n3iwf", "wifi")
    assert served["status"]["conditions"][-1]["status"] == "True"
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
    ids = {each["amfUeNgapId"]: (each["amfUeNgapId"], each["ranUeNgapId"]) for each in site.connected()}
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
