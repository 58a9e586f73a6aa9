# SPDX-License-Identifier: Apache-2.0
"""Associations to AMFs (TS 38.412) and the procedures of NGAP that are of no subscriber."""

import re
import shutil
import subprocess
import sys

import pytest
from core.amf import CAPABILITIES, decode, encode, parameters, plmn_octets, transfer
from lab import Gateway, thing
from lab.core import Amf
from lab.laboratory import TREE, wait_until
from lab.wireshark import Sniffer

NODE, FIRST, SECOND = "10.9.8.1", "10.9.8.2", "10.9.8.3"
METRICS = "127.0.0.1:9464"
UNIT = TREE / "deploy/sluice-agent.service"
AREAS = [{"tac": 1, "slices": [{"sst": 1}]}]


class Site:
    def __init__(self, lab):
        self.inside, self.core = lab.namespace("inside"), lab.namespace("core")
        self.inside.link("n2", self.core, "amf")
        self.inside.ip("addr", "add", f"{NODE}/24", "dev", "n2")
        for address in (FIRST, SECOND):
            self.core.ip("addr", "add", f"{address}/24", "dev", "amf")
        self.sniffer = Sniffer(lab, self.core, "amf", "sctp")
        self.first = Amf(lab, self.core, FIRST, name="first", pointer=1, capacity=10)
        self.second = Amf(lab, self.core, SECOND, name="second", pointer=2, capacity=20)
        self.gateway = Gateway(lab, self.inside, northbounds=[{"type": "metrics", "listen": METRICS}])
        self.gateway.apply(
            thing("AccessNode", "agf", plmn="00101", wagfId=7, trackingAreas=AREAS, localAddresses=[NODE]),
            thing("Amf", "first", node="agf", addresses=[FIRST]),
            thing("Amf", "second", node="agf", addresses=[SECOND]),
        )

    def ready(self, name, reason=None):
        """The Amf is ready, or is not, with the reason."""

        def holds():
            condition = self.condition(name)
            return condition["status"] == "True" if reason is None else condition.get("reason") == reason

        wait_until(holds, 40, f"{name}: {reason or 'ready'}")

    def condition(self, name):
        found = self.gateway.json("get", "amf", name)[0]["status"]["conditions"]
        return next(one for one in found if one["type"] == "Ready")


@pytest.fixture(scope="module")
def site(lab):
    made = Site(lab)
    for name in ("first", "second"):
        made.ready(name)
    return made


def test_an_amf_is_ready_after_ng_setup(site):
    assert site.first.events("setup") and site.second.events("setup")
    message = site.first.events("message", name="NGSetupRequest")[0]
    assert message["protocol"] == 60 and message["stream"] == 0


@pytest.mark.long(reason="SCTP takes half a minute to find the peer dead")
def test_an_amf_that_dies_is_not_ready_until_it_is_back(site):
    site.first.kill()
    site.ready("first", "NoAssociation")
    site.ready("second")
    site.first.start()
    site.ready("first")


def test_an_association_that_is_aborted_is_opened_again(site):
    before = len(site.second.events("setup"))
    site.second.do("abort")
    site.second.wait("setup", before + 1)
    site.ready("second")


def test_an_amf_that_reduces_all_load_takes_no_subscribers_until_overload_stops(site):
    site.first.do("overload")
    site.ready("first", "NoNewSubscribers")
    site.first.do("overload-stop")
    site.ready("first")


def test_an_amf_whose_guamis_become_unavailable_takes_no_subscribers(site):
    site.second.do("leave")
    site.ready("second", "NoNewSubscribers")
    before = len(site.second.events("setup"))
    site.second.do("abort")
    site.second.wait("setup", before + 1)
    site.ready("second")


def test_configuration_updates_and_resets_of_an_amf_are_acknowledged(site):
    site.first.do("update", name="renamed", capacity=30)
    site.first.wait("message", name="AMFConfigurationUpdateAcknowledge")
    site.first.do("reset")
    site.first.wait("message", name="NGResetAcknowledge")


def test_changed_tracking_areas_are_sent_to_amfs(site):
    areas = [*AREAS, {"tac": 2, "slices": [{"sst": 1}]}]
    node = {"plmn": "00101", "wagfId": 7, "localAddresses": [NODE]}
    # Labels are no matter of theirs.
    labelled = thing("AccessNode", "agf", trackingAreas=AREAS, **node)
    labelled["metadata"]["labels"] = {"site": "bonn"}
    site.gateway.apply(labelled)
    site.gateway.apply(thing("AccessNode", "agf", trackingAreas=areas, **node))
    for amf in (site.first, site.second):
        amf.wait("message", name="RANConfigurationUpdate")
        assert len(amf.events("message", name="RANConfigurationUpdate")) == 1
    site.gateway.apply(thing("AccessNode", "agf", trackingAreas=AREAS, **node))
    for amf in (site.first, site.second):
        amf.wait("message", 2, name="RANConfigurationUpdate")
        assert len(amf.events("message", name="RANConfigurationUpdate")) == 2


def test_handovers_are_refused(site):
    """A line does not move between nodes of a radio access network."""
    far = ("gTPTunnel", {"transportLayerAddress": (0xC0000202, 32), "gTP-TEID": bytes(4)})
    flows = [{"qosFlowIdentifier": 1, "qosFlowLevelQosParameters": parameters(9)}]
    ies = (
        (139, "reject", "UPTransportLayerInformation", far),
        (134, "reject", "PDUSessionType", "ipv4"),
        (136, "reject", "QosFlowSetupRequestList", flows),
    )
    session = {
        "pDUSessionID": 1,
        "s-NSSAI": {"sST": b"\x01"},
        "handoverRequestTransfer": transfer("PDUSessionResourceSetupRequestTransfer", ies),
    }
    plmn = plmn_octets("00101")
    rates = {"uEAggregateMaximumBitRateDL": 10**9, "uEAggregateMaximumBitRateUL": 10**9}
    octets = encode(
        "HandoverRequest",
        {
            "AMF-UE-NGAP-ID": 77,
            "HandoverType": "intra5gs",
            "Cause": ("radioNetwork", "unspecified"),
            "UEAggregateMaximumBitRate": rates,
            "UESecurityCapabilities": {name: (0, 16) for name in CAPABILITIES},
            "SecurityContext": {"nextHopChainingCount": 0, "nextHopNH": (0, 256)},
            "PDUSessionResourceSetupListHOReq": [session],
            "AllowedNSSAI": [{"s-NSSAI": {"sST": b"\x01"}}],
            "SourceToTarget-TransparentContainer": b"\0",
            "GUAMI": {"pLMNIdentity": plmn, "aMFRegionID": (1, 8), "aMFSetID": (1, 10), "aMFPointer": (1, 6)},
        },
    )
    site.first.do("raw", octets=octets.hex())
    failure = site.first.wait("message", name="HandoverFailure")[0]
    ies = decode(bytes.fromhex(failure["octets"]))[1]
    assert ies["AMF-UE-NGAP-ID"] == 77 and ies["Cause"] == ("radioNetwork", "ho-target-not-allowed")


def test_messages_that_cannot_be_carried_out_earn_error_indications(site):
    octets = (
        # An unknown procedure of criticality reject, and a truncated NG SETUP REQUEST.
        "00c8000100",
        "0015400100",
        # For no subscriber.
        encode("DownlinkNASTransport", {"AMF-UE-NGAP-ID": 1, "RAN-UE-NGAP-ID": 2, "NAS-PDU": b"\x00"}).hex(),
    )
    for count, one in enumerate(octets, 1):
        site.second.do("raw", octets=one)
        site.second.wait("message", count, name="ErrorIndication")
    site.ready("second")
    shown = site.gateway.sluice("describe", "amf", "second").stdout
    assert re.search(r"unreadable +2\n", shown), shown


def test_an_amf_that_refuses_ng_setup_is_asked_again(lab, site):
    third = Amf(lab, site.core, "10.9.8.3", name="third", port=38413, refuse=1)
    site.gateway.apply(thing("Amf", "third", node="agf", addresses=["10.9.8.3"], port=38413))
    third.wait("message", 2, name="NGSetupRequest")
    site.ready("third")
    site.gateway.delete("Amf", "third")
    third.wait("ended")


def test_an_association_with_two_addresses_at_each_end_outlives_either_path(lab, site):
    """RFC 9260 section 6.4: two networks, on each an address of both ends. Ours sends to each address from
    that on the same network: hosts with strict reverse path filters (RFC 3704) drop other packets.
    """
    ours, theirs = ["10.9.6.1", "10.9.7.1"], ["10.9.6.2", "10.9.7.2"]
    for number in (0, 1):
        site.inside.link(f"n2-{number}", site.core, f"amf-{number}")
        site.inside.ip("addr", "add", f"{ours[number]}/24", "dev", f"n2-{number}")
        site.core.ip("addr", "add", f"{theirs[number]}/24", "dev", f"amf-{number}")
        site.core.run("sysctl", "-qw", f"net.ipv4.conf.amf-{number}.rp_filter=1")
    amf = Amf(lab, site.core, *theirs, name="twin", heartbeat=200)
    node = {"plmn": "00101", "wagfId": 8, "localAddresses": ours, "heartbeat": "200ms"}
    site.gateway.apply(
        thing("AccessNode", "twin", trackingAreas=AREAS, **node), thing("Amf", "twin", node="twin", addresses=theirs)
    )
    site.ready("twin")

    def both_ways(count):
        """A procedure of each side is done."""
        areas = [*AREAS, {"tac": 1 + count, "slices": [{"sst": 1}]}]
        site.gateway.apply(thing("AccessNode", "twin", trackingAreas=areas, **node))
        amf.wait("message", count, name="RANConfigurationUpdate")
        amf.do("update", name=f"twin-{count}", capacity=count)
        amf.wait("message", count, name="AMFConfigurationUpdateAcknowledge")

    def lost(count):
        found = site.inside.run("curl", "-s", f"http://{METRICS}/metrics").stdout
        wanted = f'sluice_n2_unreachable_addresses{{amf="twin"}} {count}'
        return wanted in found.splitlines()

    both_ways(1)
    for count, number in ((2, 0), (3, 1)):
        site.core.ip("link", "set", f"amf-{number}", "down")
        both_ways(count)
        wait_until(lambda: lost(1), 30, "one path is lost")
        amf.wait("path", address=ours[number], reachable=False)
        site.core.ip("link", "set", f"amf-{number}", "up")
        wait_until(lambda: lost(0), 30, "it is back")
        wait_until(lambda at=ours[number]: amf.events("path", address=at)[-1]["reachable"], 30, "it is back there")
    both_ways(4)
    # It is one and the same association.
    assert len(amf.events("association")) == len(amf.events("setup")) == 1 and not amf.events("ended")
    site.ready("twin")
    names, values = (
        line.split()
        for line in site.core.run("cat", "/proc/net/netstat").stdout.splitlines()
        if line.startswith("TcpExt:")
    )
    assert dict(zip(names, values, strict=True))["IPReversePathFilter"] == "0"


class Unit(Gateway):
    """Its agent runs as the systemd unit has it."""

    def process(self, plane, *command):
        if plane == "agent":
            command = (sys.executable, TREE / "tests/lab/unit.py", UNIT, *command)
        return super().process(plane, *command)


def test_wireshark_decodes_what_was_sent_to_amfs(site):
    complaints, packets = site.sniffer.complaints(NODE)
    assert not complaints and packets


def test_the_systemd_unit_permits_libusrsctp(lab):
    inside, core = lab.namespace("unit"), lab.namespace("unit-core")
    inside.link("n2", core, "amf")
    inside.ip("addr", "add", f"{NODE}/24", "dev", "n2")
    core.ip("addr", "add", f"{FIRST}/24", "dev", "amf")
    amf = Amf(lab, core, FIRST)
    gateway = Unit(lab, inside, "unit")
    gateway.apply(
        thing("AccessNode", "agf", plmn="00101", wagfId=7, trackingAreas=AREAS, localAddresses=[NODE]),
        thing("Amf", "core", node="agf", addresses=[FIRST]),
    )
    amf.wait("setup")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
@pytest.mark.parametrize("unit", sorted(UNIT.parent.glob("*.service")), ids=lambda unit: unit.stem)
def test_systemd_accepts_the_units(unit, tmp_path):
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []
