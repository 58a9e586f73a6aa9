# SPDX-License-Identifier: Apache-2.0
"""An N3IWF whose agent is killed: its UEs stay registered, and their packets go on."""

from ipaddress import ip_address

import pytest
from lab.laboratory import wait_until
from lab.n3iwf import VOICE, Site, connected, having, nothing_left, pinging, register


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


@pytest.fixture(scope="module")
def all_ues(site):
    return site.ues(count=3)


def restart(site):
    """The agent dies and comes back; whether the AMF has kept the contexts."""
    before = len(site.amf.events("setup"))
    site.gateway.agent.kill()
    site.gateway.start_agent()
    return site.amf.wait("setup", before + 1)[-1]["retained"]


def kinds(site):
    return sorted(each["kind"] for each in site.left())


def test_ues_stay_registered_and_lose_no_packet_over_a_kill_of_the_agent(site, ues):
    number, first = connected(site, ues)
    _, second = site.attach(ues, session=2)
    kept, names = kinds(site), site.gateway.holds("Session")
    (before,) = site.connected()
    often = ("-i", "0.02", "-c", "400")
    with pinging(site, first, *often) as one, pinging(site, second, *often) as two:
        both = {site.upf.by_address[ip_address(each).packed][0].teid_up for each in (first, second)}
        wait_until(lambda: both.discard(site.upf.expect(lambda m: m.payload).teid) or not both, what="pings of both")
        assert restart(site)
        # NAS goes on, in both directions and in the TCP connection of before.
        site.amf.do("nas", amf=number, count=3, size=250)
        ues.wait("nas", 3, ue=0)
        ues.do("session", ue=0, session=3, kind=1)
        third = site.join(3)[1]
        ues.wait("session", ue=0, session=3)
        assert " 0% packet loss" in one.stdout.read()
        assert " 0% packet loss" in two.stdout.read()
    assert site.reaches(third) and site.reaches(first, *VOICE)
    assert len(site.amf.events("initial")) == 1 and not ues.events("nas-closed") and not ues.events("failure")
    (after,) = site.connected()
    assert [after[key] for key in ("name", "remote", "since", "amfUeNgapId", "ranUeNgapId")] == [
        before[key] for key in ("name", "remote", "since", "amfUeNgapId", "ranUeNgapId")
    ]
    # The objects of the two sessions exist once, and no others.
    assert set(names) <= set(site.gateway.holds("Session")) and len(site.gateway.holds("Session")) == 3
    site.amf.do("release-session", amf=number, session=3)
    ues.wait("child-closed", 2, session=3, ue=0)
    wait_until(lambda: kinds(site) == kept, what=f"the objects of before: {kept}, not {kinds(site)}")
    # A modification finds the flows of before.
    site.amf.do("modify", amf=number, session=1, add=[[5, 7]], remove=[1])
    site.amf.wait("modified", sessions=[1])
    ues.wait("child-closed", session=1, ue=0)
    assert site.reaches(first)
    site.amf.do("release", amf=number)
    ues.wait("released", ue=0)
    assert site.amf.wait("release-complete", amf=number)[-1]["sessions"] == [1, 2]
    nothing_left(site)


def test_children_and_the_ike_sa_are_rekeyed_after_a_kill_and_another_kill_follows(site, ues):
    number, address = connected(site, ues)
    with pinging(site, address, "-i", "0.02", "-c", "400") as ping:
        assert restart(site)
        site.gateway.sluice("ike", "rekey", "n3iwf-wifi", "--child", "*")
        ues.wait("rekeyed", 3, ue=0)
        site.gateway.sluice("ike", "rekey", "n3iwf-wifi")
        ues.wait("ike-rekeyed", 1, ue=0)
        # The key is being replaced while the agent is away.
        key, aside = site.files / "n3iwf.key", site.files / "aside.key"
        key.rename(aside)
        assert restart(site)
        shown = site.gateway.sluice("get", "n3iwfs").stdout
        assert f"privateKeyFile: stat {key}" in shown and "UEs that are connected stay" in shown
        site.amf.do("nas", amf=number, count=2)
        ues.wait("nas", 2, ue=0)
        assert " 0% packet loss" in ping.stdout.read()
    aside.rename(key)
    site.gateway.apply(site.n3iwf(tries=7))
    ues.do("deregister", ue=0)
    site.amf.wait("deregistered")
    nothing_left(site)
    # A UE that comes then has a name and an address that no other has had since.
    names = {site.connected()[0]["name"] for ue in (0, 1) if register(ues, ue) is None}
    assert len(names) >= 1 and len({each["name"] for each in site.connected()}) == 2


def test_ues_whose_contexts_the_amf_did_not_keep_are_disconnected_and_come_back(site, ues):
    connected(site, ues, 1)
    site.amf.do("set", options={"retain": 0})
    site.amf.wait("set")
    assert not restart(site)
    ues.wait("released", ue=1)
    nothing_left(site)
    site.amf.do("set", options={"retain": 1})
    site.amf.wait("set", 2)
    # A UE that comes before NG setup is done waits for it.
    _, address = connected(site, ues, 1)
    assert site.reaches(address)


def test_a_ue_that_goes_while_the_agent_is_away_is_released_at_the_core(site, ues):
    number, _ = connected(site, ues, 1)
    _, other = connected(site, ues)
    site.gateway.agent.kill()
    ues.do("close", ue=1)
    ues.wait("closing", ue=1)
    site.gateway.start_agent()
    site.amf.wait("release-request", amf=number, cause=["radioNetwork", "radio-connection-with-ue-lost"])
    assert site.amf.wait("release-complete", amf=number)[-1]["sessions"] == [1]
    wait_until(lambda: len(site.gateway.holds("Session")) == 1, what="one session is left")
    assert site.reaches(other)


def test_a_ue_that_registers_while_the_agent_is_killed_leaves_nothing_and_registers_again(site, ues):
    site.amf.do("set", options={"silent": 0x57})
    site.amf.wait("set")
    ues.do("register", ue=2)
    site.amf.wait("nas", kind=0x57)
    restart(site)
    site.amf.do("set", options={"silent": 0})
    site.amf.wait("set", 2)
    ues.do("die", ue=2)
    ues.wait("dead", ue=2)
    _, address = connected(site, ues, 2)
    assert site.reaches(address)
    ues.do("deregister", ue=2)
    nothing_left(site)


def test_a_pdu_session_whose_setup_a_kill_ends_is_refused(site, ues):
    having(ues, mute=1)
    register(ues)
    ues.do("session", ue=0, session=1)
    ues.wait("mute", ue=0)
    site.gateway.agent.kill()
    having(ues, mute=0)
    site.gateway.start_agent()
    site.amf.wait("no-tunnel", session=1)
    _, address = site.attach(ues, session=2)
    assert site.reaches(address)
    ues.do("deregister", ue=0)
    nothing_left(site)
