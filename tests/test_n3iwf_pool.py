# SPDX-License-Identifier: Apache-2.0
"""An N3IWF with two AMFs: which one UEs get, and what happens when one dies."""

import pytest
from lab import thing
from lab.core import N3iwfAmf
from lab.laboratory import wait_until
from lab.n3iwf import NODE, UPF, Site, connected, having, nothing_left, pinging, register

SECOND = "10.9.8.3"
SLICES = [{"sst": 1}, {"sst": 2}]


@pytest.fixture(scope="module")
def site(lab):
    """The first AMF serves slice 1, the second one, of another AMF set, slice 2."""
    site = Site(lab, pointer=1)
    site.core.ip("addr", "add", f"{SECOND}/24", "dev", "amf")
    site.second = N3iwfAmf(lab, site.core, SECOND, upf=UPF, name="second.test", set=2, sst=2)
    site.gateway.apply(
        thing("AccessNode", "n3iwf", plmn="00101", n3iwfId=9, trackingAreas=[{"tac": 1, "slices": SLICES}],
              localAddresses=[NODE]),
        thing("Amf", "second", node="n3iwf", addresses=[SECOND]),
    )  # fmt: skip
    ready(site)
    return site


def ready(site):
    def condition(name):
        conditions = site.gateway.json("get", "amf", name)[0]["status"]["conditions"]
        return next(one["status"] for one in conditions if one["type"] == "Ready")

    wait_until(lambda: condition("amf") == condition("second") == "True", 40, "both AMFs are ready")


@pytest.fixture(scope="module")
def all_ues(site):
    return site.ues(count=3)


@pytest.fixture
def ues(site, ues):
    site.second.mark()
    return ues


def attach(site, amf, ues, **more):
    """A PDU session from one of the AMFs."""
    before, site.amf = site.amf, amf
    try:
        return site.attach(ues, **more)
    finally:
        site.amf = before


def test_the_requested_slice_chooses_the_amf(site, ues):
    having(ues, sst=2)
    register(ues)
    assert site.second.events("initial") and not site.amf.events("initial")
    having(ues, sst=1)
    register(ues, 1)
    assert site.amf.events("initial") and len(site.second.events("initial")) == 1


def test_the_guami_goes_before_the_slice(site, ues):
    having(ues, sst=2, guami="010041")
    register(ues)
    assert site.amf.events("initial") and not site.second.events("initial")
    # One that no AMF has: the slice chooses.
    having(ues, guami="0100ff")
    register(ues, 1)
    assert site.second.events("initial")


def test_an_amf_that_stays_dead_takes_its_ues_along_and_no_other(site, ues):
    _, first = connected(site, ues, 1)
    having(ues, sst=2)
    register(ues)
    _, second = attach(site, site.second, ues, session=2)
    assert site.reaches(second)
    with pinging(site, first, "-i", "0.1", "-c", "400") as traffic:
        site.second.do("abort")
        site.second.wait("ended")
        site.second.kill()
        # It has 30 seconds to come back with the contexts: until then UEs are served.
        assert site.reaches(second)
        wait_until(lambda: ues.events("released", ue=0), 45, what="the UE is disconnected")
        # The UE comes back at the AMF that is left, though it does not serve the slice.
        before = len(site.amf.events("initial"))
        register(ues)
        assert len(site.amf.events("initial")) == before + 1
        assert " 0% packet loss" in traffic.stdout.read()
    site.second.mark()
    site.second.start()
    ready(site)
    register(ues)
    assert site.second.events("initial")


def test_an_amf_that_comes_back_with_its_contexts_keeps_its_ues(site, ues):
    having(ues, sst=2)
    register(ues)
    number, address = attach(site, site.second, ues, session=2)
    setups = len(site.second.events("setup"))
    with pinging(site, address, "-i", "0.05", "-c", "100") as traffic:
        site.second.do("abort")
        # A message of the UE waits for the association.
        ues.do("session", ue=0, session=3, kind=1)
        assert site.second.wait("setup", setups + 1)[-1]["retained"]
        ues.wait("session", ue=0, session=3)
        site.second.do("nas", amf=number, count=2)
        ues.wait("nas", 2, ue=0)
        assert " 0% packet loss" in traffic.stdout.read()
    assert len(site.second.events("initial")) == 1
    site.second.do("release", amf=number)
    ues.wait("released", ue=0)
    nothing_left(site)


def test_more_ues_than_the_n3iwf_takes_stay_away_for_a_while(site, ues):
    site.gateway.apply(site.n3iwf(maxUes=1, backOff="90s"))
    register(ues)
    ues.do("register", ue=1)
    why = ues.wait("refused", ue=1)[-1]["why"]
    # Three times 30 seconds.
    assert "15500" in why and "back-off 0183" in why
    ues.do("close", ue=0)
    nothing_left(site)
    # UEs that the core does not authenticate are in nobody's way.
    site.amf.do("set", options={"silent": 0x57})
    site.amf.wait("set")
    for ue in (0, 2):
        ues.do("register", ue=ue)
    site.amf.wait("nas", 2, kind=0x57)
    site.amf.do("set", options={"silent": 0})
    site.amf.wait("set", 2)
    register(ues, 1)
    for ue in (0, 2):
        ues.do("die", ue=ue)
    site.gateway.apply(site.n3iwf())
