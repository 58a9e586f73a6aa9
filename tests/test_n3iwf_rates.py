# SPDX-License-Identifier: Apache-2.0
"""QoS of UEs on untrusted access: marks, rates, guaranteed rates, and the volumes that the core and operators get."""

import contextlib
import threading
from types import SimpleNamespace

import pytest
from lab import frames, thing
from lab.laboratory import wait_until
from lab.n3iwf import CORE, EF, SERVER, VOICE, Site, connected, nothing_left, pinging


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


@pytest.fixture(scope="module")
def all_ues(site):
    return site.ues(count=2)


@contextlib.contextmanager
def core_with(site, **options):
    """The core gives PDU sessions these parameters."""

    def change(options):
        before = len(site.amf.events("set"))
        site.amf.do("set", options=options)
        site.amf.wait("set", before + 1)

    change(options)
    try:
        yield
    finally:
        change(dict.fromkeys(options, 0))


def test_packets_are_marked_by_their_flow(site, ues):
    _, address = connected(site, ues)
    assert site.reaches(address, count=2)
    assert site.reaches(address, *VOICE, count=2)
    ues.do("flows")
    # QFI, RQI, and the DSCP in front of GRE and in front of ESP.
    seen = {tuple(flow[2:6]) for flow in ues.wait("flows")[-1]["flows"]}
    assert seen == {(9, 0, 18, 18), (1, 0, EF, EF)}
    # Two requests and two answers of each, with their ends of the addresses.
    (shown,) = site.connected()
    flows = {flow["qfi"]: flow for flow in shown["sessions"][0]["flows"]}
    numbers = ("fiveQi", "upPackets", "upBytes", "downPackets", "downBytes")
    assert {qfi: [int(flow[each]) for each in numbers] for qfi, flow in flows.items()} == {
        9: [9, 2, 168, 2, 168],
        1: [1, 2, 168, 2, 168],
    }
    assert "fiveQi: 9" in site.gateway.sluice("describe", "ue", shown["name"]).stdout


# 45,000 bytes at once, where a rate of 1,000 bytes a second has a burst of 16,000.
MANY = ("-s", "1100", "-i", "0.01")


def test_a_flow_with_a_guaranteed_rate_has_its_own_limit(site, ues):
    with core_with(site, gbr=8000):
        number, address = connected(site, ues)
    assert site.reaches(address, *MANY, count=40)
    assert not site.reaches(address, *MANY, *VOICE, count=40, deadline=2)
    session = next(each["metadata"]["name"] for each in site.left() if each["kind"] == "Session")
    assert "meter-red" in site.gateway.sluice("drops", "--session", session).stdout

    # A modification takes the flow away, and its meters with it.
    def meters_of_flows():
        return [each for each in site.left() if each["kind"] == "Meter" and each["spec"]["scope"] == "global"]

    assert meters_of_flows()
    site.amf.do("modify", amf=number, session=1, remove=[1])
    site.amf.wait("modified", sessions=[1])
    wait_until(lambda: not meters_of_flows(), what="no meter of a flow is left")
    assert site.reaches(address, *MANY, *VOICE, count=40)


def test_sessions_share_the_aggregate_rate_of_their_ue(site, ues):
    number, first = connected(site, ues)
    assert site.reaches(first, *MANY, count=40)
    with core_with(site, ueambr=8000):
        _, second = site.attach(ues, session=2)
    assert not site.reaches(second, *MANY, count=40, deadline=2)
    # The first one used nothing: the rate is used up.
    assert not site.reaches(first, *MANY, count=15, deadline=2)
    ues.do("deregister", ue=0)
    nothing_left(site)


@contextlib.contextmanager
def packets_to(site, teid, address):
    """The UPF sends packets without a guaranteed rate: 1.6 Mbit/s."""
    message = site.upf.gpdu(SimpleNamespace(teid_down=teid), frames.udp(SERVER, address, 7, 7, bytes(1000)), 9)
    end = threading.Event()

    def send():
        while not end.wait(0.005):
            site.upf.send(message, CORE)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        end.set()
        sender.join()


def test_a_guaranteed_rate_is_kept_while_the_ports_are_full(site, ues):
    for name in ("access", "core"):
        site.gateway.apply(
            thing("QosScheduler", name, port=name, rate="200K"),
            thing("QosGroup", name, scheduler=name, committedRate="120K"),
        )
    site.gateway.apply(site.n3iwf(qosGroup="access", qosGroupUp="core"))
    with core_with(site, gbr=40_000):
        _, caller = connected(site, ues)
        _, other = connected(site, ues, 1)
    teid = site.amf.events("tunnel")[-1]["teid"]
    profiles = {each["metadata"]["name"]: each["spec"] for each in site.gateway.json("get", "qosprofiles")}
    assert {one["classes"][5]["committedRate"] for one in profiles.values()} == {40_000}
    # Much more than the rate of the port.
    with pinging(site, other, "-s", "1000", "-i", "0.005", "-c", "20000") as flood:
        wait_until(lambda: site.gateway.drops().get("qos-queue-full", 0) > 0, what="the uplink is full")
        with pinging(site, caller, *VOICE, "-s", "100", "-i", "0.1", "-c", "15") as voice:
            assert " 0% packet loss" in voice.stdout.read()
        flood.kill()
    before = site.gateway.drops()["qos-queue-full"]
    with packets_to(site, teid, other):
        wait_until(lambda: site.gateway.drops()["qos-queue-full"] > before + 10, what="the downlink is full")
        with pinging(site, caller, *VOICE, "-s", "100", "-i", "0.1", "-c", "15") as voice:
            assert " 0% packet loss" in voice.stdout.read()
    # 120 kbit/s are guaranteed to three sessions: none is left for the flow of a fourth.
    with core_with(site, gbr=40_000):
        site.attach(ues, session=2)
        assert site.amf.events("tunnel")[-1]["flows"] == [1, 9]
        site.attach(ues, ue=1, session=2)
        assert site.amf.events("tunnel")[-1]["flows"] == [9]
    ues.do("deregister")
    nothing_left(site)
    site.gateway.apply(site.n3iwf())
    for kind in ("qosgroup", "qosscheduler"):
        for name in ("access", "core"):
            site.gateway.sluice("delete", kind, name, "--in-use")


def listed(site):
    return {one["name"]: one for one in site.connected()}


def test_the_core_and_operators_get_the_volumes_of_sessions(site, ues):
    site.gateway.apply(site.n3iwf(usageRat="nr_unlicensed"))
    number, first = connected(site, ues)
    assert site.reaches(first, "-s", "972", count=4)
    # With the IP header and that of ICMP.
    (name, one), *_ = listed(site).items()
    assert int(one["upBytes"]) >= 4000 and int(one["downBytes"]) >= 4000 and one["pduSessions"] == [1]
    assert one["n3iwf"] == "wifi" and one["amf"] == "amf" and one["remote"].startswith("192.0.2.100:")
    assert int(one["amfUeNgapId"]) == number and one["addresses"][0].startswith("10.201.")

    def usage(message, session):
        found = site.amf.wait("usage", name=message, session=session)[-1]
        assert found["rat"] == "nR-unlicensed" or found["rat"] == "nr-unlicensed"
        return found

    site.amf.do("modify", amf=number, session=1, add=[[7, 7]])
    modified = usage("PDUSessionResourceModifyResponse", 1)
    assert modified["up"] >= 4000 and modified["down"] >= 4000
    # Since the report before.
    assert site.reaches(first, "-s", "972", count=2)
    _, second = site.attach(ues, session=2)
    assert site.reaches(second, "-s", "972", count=3)
    site.amf.do("release-session", amf=number, session=1)
    released = usage("PDUSessionResourceReleaseResponse", 1)
    assert 2000 <= released["up"] < 4000 and released["start"] == modified["end"]
    # The volume of a released session still counts for the UE.
    assert int(listed(site)[name]["upBytes"]) >= 9000 and listed(site)[name]["pduSessions"] == [2]
    # The UE closes the child SA of one by itself.
    _, third = site.attach(ues, session=3)
    assert site.reaches(third, "-s", "972", count=2)
    ues.do("close-child", ue=0, session=3)
    assert usage("PDUSessionResourceNotify", 3)["up"] >= 2000
    site.amf.do("release", amf=number)
    assert usage("UEContextReleaseComplete", 2)["down"] >= 3000
    complete = site.amf.wait("release-complete", amf=number)[-1]
    assert complete["sessions"] == [2] and "N3IWF" in complete["location"]
    nothing_left(site)
    assert not listed(site)
    site.gateway.apply(site.n3iwf())
