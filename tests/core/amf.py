#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An AMF with a minimal SMF, to test a gateway against. NGAP and NAS are pycrate's, SCTP is libusrsctp's.

It writes each event as a line of JSON, and takes commands as lines of JSON: {"do": "overload", "reduction": 50}.
"""

import argparse
import ast
import json
import os
import pickle
import sys
import threading
import traceback
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pycrate_asn1dir.NGAP as asn1
import pycrate_mobile.TS24501_FGMM as fgmm
import pycrate_mobile.TS24501_FGSM as fgsm

from core import security
from core.sctp import Listener

NGAP = 60
OUTCOMES = ("initiatingMessage", "successfulOutcome", "unsuccessfulOutcome")
PDU = asn1.NGAP_PDU_Descriptions.NGAP_PDU
CODES = threading.Lock()
ROWS = {}
for row in next(o for o in asn1.NGAP_PDU_Descriptions._all_ if o._name.startswith("_tab_NGAP-ELEMENTARY"))._val.root:
    for outcome in ("InitiatingMessage", "SuccessfulOutcome", "UnsuccessfulOutcome"):
        if outcome in row:
            ROWS[row[outcome]._tr._name] = (row, outcome[0].lower() + outcome[1:], row[outcome])
IDS = {
    o._name[3:]: o._val
    for o in asn1.NGAP_Constants._all_
    if o._name.startswith("id-") and o._tr is not None and o._tr._name == "ProtocolIE-ID"
}


CAPABILITIES = (
    "nRencryptionAlgorithms",
    "nRintegrityProtectionAlgorithms",
    "eUTRAencryptionAlgorithms",
    "eUTRAintegrityProtectionAlgorithms",
)
UPLINK = (
    fgmm.FGMMRegistrationRequest,
    fgmm.FGMMAuthenticationResponse,
    fgmm.FGMMAuthenticationFailure,
    fgmm.FGMMIdentityResponse,
    fgmm.FGMMSecurityModeComplete,
    fgmm.FGMMSecurityModeReject,
    fgmm.FGMMRegistrationComplete,
    fgmm.FGMMServiceRequest,
    fgmm.FGMMConfigurationUpdateComplete,
    fgmm.FGMMULNASTransport,
    fgmm.FGMMMODeregistrationRequest,
    fgmm.FGMMMTDeregistrationAccept,
    fgmm.FGMMStatus,
)
CLASSES = {made()[0]["Type"].get_val(): made for made in UPLINK}
GTP = "UPTransportLayerInformation"


def encode(name, ies):
    """A message of IEs by name, in the order of the specification."""
    row, outcome, message = ROWS[name]
    table = message._cont["protocolIEs"]._cont._cont["value"]._const_tab._val.root
    left, fields = dict(ies), []
    for item in table:
        label = next(key for key, value in IDS.items() if value == item["id"])
        if label in left:
            kind = item["Value"]
            value = (kind._tr._name if kind._tr else kind.TYPE, left.pop(label))
            fields.append({"id": item["id"], "criticality": item["criticality"], "value": value})
    assert not left, f"{name} has no {list(left)}"
    value = (name, {"protocolIEs": fields})
    with CODES:
        PDU.set_val(
            (outcome, {"procedureCode": row["procedureCode"], "criticality": row["criticality"], "value": value})
        )
        return PDU.to_aper()


def decode(octets):
    """The name of a message, and its IEs by name."""
    with CODES:
        PDU.from_aper(octets)
        name, value = PDU.get_val()[1]["value"]
    names = {number: label for label, number in IDS.items()}
    return name, {names[field["id"]]: field["value"][1] for field in value["protocolIEs"]}


def plmn_octets(text):
    d = text if len(text) == 6 else text + "f"
    return bytes.fromhex(d[1] + d[0] + d[5] + d[2] + d[4] + d[3])


class Ue:
    """A subscriber of the AMF: registered or registering."""

    def __init__(self, number):
        self.number = number
        self.amf = self.ran = self.stream = None
        self.identity, self.supi = b"", ""
        self.context, self.vector, self.prime, self.ksi = None, None, None, 0
        self.sessions = {}
        self.service = None
        # Its context is set up.
        self.done = False

    @property
    def tmsi(self):
        return self.number.to_bytes(4, "big")


def transfer(name, ies):
    return (name, {"protocolIEs": [{"id": i, "criticality": c, "value": (label, v)} for i, c, label, v in ies]})


def parameters(five_qi, gbr=None):
    of = {
        "qosCharacteristics": ("nonDynamic5QI", {"fiveQI": five_qi}),
        "allocationAndRetentionPriority": {
            "priorityLevelARP": 8,
            "pre-emptionCapability": "shall-not-trigger-pre-emption",
            "pre-emptionVulnerability": "not-pre-emptable",
        },
    }
    if gbr:
        of["gBR-QosInformation"] = {
            "maximumFlowBitRateDL": gbr[1],
            "maximumFlowBitRateUL": gbr[1],
            "guaranteedFlowBitRateDL": gbr[0],
            "guaranteedFlowBitRateUL": gbr[0],
        }
    return of


def optional(message, name, value):
    message[name].set_trans(False)
    message[name]["V"].set_val(value)


def value(message, name):
    """The value of an IE of a decoded message."""
    return message[name]._content[-1].to_bytes()


class Amf:
    def __init__(self, options):
        self.options = options
        self.plmn = plmn_octets(options.plmn)
        self.association = None
        # NG setup was done before: only then can there be contexts to retain.
        self.was_set_up = False
        self.lock = threading.Lock()
        self.next_id, self.next_number = 1, 1
        # By AMF UE NGAP ID, and by 5G-TMSI.
        self.ues, self.known = {}, {}
        # The place of a subscriber among the addresses, by its identity.
        self.places = {}
        self.refusals = options.refuse
        # Names of NAS messages that are not answered, and how often.
        self.mute = {}
        self.subscribers = {}
        for one in options.subscriber:
            imsi, k, opc, sqn = one.split(",")
            self.subscribers[imsi] = [bytes.fromhex(k), bytes.fromhex(opc), int(sqn)]
        Listener(options.address, options.port, self.serve, options.heartbeat)

    def say(self, event, **more):
        with self.lock:
            print(json.dumps({"event": event, **more}, default=lambda value: value.hex()), flush=True)

    def guami(self):
        return {
            "pLMNIdentity": self.plmn,
            "aMFRegionID": (1, 8),
            "aMFSetID": (self.options.set, 10),
            "aMFPointer": (self.options.pointer, 6),
        }

    def identifier(self):
        """AMF identifier (TS 23.003 section 2.10.1), 3 bytes."""
        return b"\x01" + (self.options.set << 6 | self.options.pointer).to_bytes(2, "big")

    def slices(self):
        return [{"s-NSSAI": {"sST": bytes([1])}}]

    def send(self, name, ies, stream=0):
        self.association.send(stream, NGAP, encode(name, ies))

    def serve(self, association):
        self.association = association
        association.on_path = lambda address, reachable: self.say("path", address=address, reachable=reachable)
        self.say("association")
        while True:
            got = association.receive()
            if got is None:
                break
            stream, protocol, octets = got
            self.latest = octets
            try:
                name, ies = decode(octets)
                if not self.options.quiet:
                    self.say("message", name=name, stream=stream, protocol=protocol, octets=octets.hex())
                self.take(name, ies, stream)
            except Exception:
                self.say("failure", octets=octets.hex(), error=traceback.format_exc())
        self.say("ended")

    # ---- NGAP

    def set_up(self, ies):
        if self.refusals > 0:
            self.refusals -= 1
            self.send("NGSetupFailure", {"Cause": ("misc", "unknown-PLMN-or-SNPN"), "TimeToWait": "v1s"})
            return
        retained = "UERetentionInformation" in ies and bool(self.options.retain) and self.was_set_up
        self.was_set_up = True
        self.say(
            "setup",
            node=ies["GlobalRANNodeID"][1].get("value", ("N3IWF",))[0]
            if isinstance(ies["GlobalRANNodeID"][1], dict)
            else "",
            asked="UERetentionInformation" in ies,
            retained=retained,
        )
        if not retained:
            self.ues = {}
        self.send(
            "NGSetupResponse",
            {
                "AMFName": self.options.name,
                "ServedGUAMIList": [{"gUAMI": self.guami()}],
                "RelativeAMFCapacity": self.options.capacity,
                "PLMNSupportList": [{"pLMNIdentity": self.plmn, "sliceSupportList": self.slices()}],
                **({"UERetentionInformation": "ues-retained"} if retained else {}),
            },
        )

    def ran(self, ue):
        return ue.ran

    def reset(self, ies):
        """The gateway has none of these contexts. Unknown ones are acknowledged, too."""
        kind, what = ies["ResetType"]
        listed = what if kind == "partOfNG-Interface" else []
        gone = {item["rAN-UE-NGAP-ID"] for item in listed}
        reset = [amf for amf, ue in self.ues.items() if kind == "nG-Interface" or self.ran(ue) in gone]
        for amf in reset:
            del self.ues[amf]
        self.say("reset", contexts=reset, connections=len(listed))
        self.send("NGResetAcknowledge", {"UE-associatedLogicalNG-connectionList": listed} if listed else {})

    def take(self, name, ies, stream):
        if name == "NGSetupRequest":
            self.set_up(ies)
        elif name == "RANConfigurationUpdate":
            self.send("RANConfigurationUpdateAcknowledge", {})
        elif name == "NGReset":
            self.reset(ies)
        elif name == "InitialUEMessage" and self.options.reroute:
            self.options.reroute -= 1
            ids = {"RAN-UE-NGAP-ID": ies["RAN-UE-NGAP-ID"]}
            more = {"NGAP-Message": self.latest, "AMFSetID": (2, 10), "AllowedNSSAI": self.slices()}
            self.send("RerouteNASRequest", {**ids, **more}, stream)
        elif name == "InitialUEMessage":
            self.first(ies, stream)
        elif name == "UplinkNASTransport":
            ue = self.context_of(ies, stream)
            if ue:
                self.nas(ue, ies["NAS-PDU"])
        elif name == "PDUSessionResourceSetupResponse":
            for item in ies.get("PDUSessionResourceSetupListSURes", ()):
                self.tunnel(ies, item)
        elif name == "InitialContextSetupResponse":
            if ies["AMF-UE-NGAP-ID"] in self.ues:
                ue = self.ues[ies["AMF-UE-NGAP-ID"]]
                if isinstance(ue, Ue):
                    ue.done = True
            for item in ies.get("PDUSessionResourceSetupListCxtRes", ()):
                self.tunnel(ies, item)
        elif name == "PDUSessionResourceNotify":
            self.unknown_tunnels(ies)
        elif name == "UEContextReleaseRequest":
            ue = self.context_of(ies, stream)
            if ue:
                self.release_context(ue, ies["Cause"])

    def context_of(self, ies, stream):
        """The subscriber of a message. None: its identifiers are erroneous, which the gateway gets to know (TS 38.413
        section 10.6)."""
        ids = {name: ies[name] for name in ("AMF-UE-NGAP-ID", "RAN-UE-NGAP-ID")}
        ue = self.ues.get(ids["AMF-UE-NGAP-ID"])
        if ue and self.of(ue) == ids:
            return ue
        cause = "inconsistent-remote-UE-NGAP-ID" if ue else "unknown-local-UE-NGAP-ID"
        self.say("erroneous", cause=cause, **ids)
        self.send("ErrorIndication", {**ids, "Cause": ("radioNetwork", cause)}, stream)
        return None

    def unknown_tunnels(self, ies):
        """PDU SESSION RESOURCE NOTIFY: the gateway gave resources up, because the UPF does not know their tunnels."""
        for item in ies.get("PDUSessionResourceReleasedListNot", ()):
            why = item["pDUSessionResourceNotifyReleasedTransfer"][1]
            ue = self.ues[ies["AMF-UE-NGAP-ID"]]
            self.say("given-up", session=item["pDUSessionID"], why=repr(why), amf=ies["AMF-UE-NGAP-ID"])
            if isinstance(ue, Ue):
                ue.sessions[item["pDUSessionID"]]["teid"] += 500

    def tunnel(self, ies, item):
        answer, ue = item["pDUSessionResourceSetupResponseTransfer"], self.ues.get(ies["AMF-UE-NGAP-ID"])
        far = answer[1]["dLQosFlowPerTNLInformation"]["uPTransportLayerInformation"][1]
        address = ".".join(str(octet) for octet in far["transportLayerAddress"][0].to_bytes(4, "big"))
        teid = int.from_bytes(far["gTP-TEID"], "big")
        self.say("tunnel", address=address, teid=teid, session=item["pDUSessionID"], ue=ue.number if ue else None)

    def first(self, ies, stream):
        """An initial message: of the subscriber of a 5G-S-TMSI, or of a new one."""
        ue = None
        if "FiveG-S-TMSI" in ies:
            ue = self.known.get(int.from_bytes(ies["FiveG-S-TMSI"]["fiveG-TMSI"], "big"))
        if ue is None:
            ue = Ue(self.next_number)
            self.next_number += 1
        self.ues.pop(ue.amf, None)
        ue.done = False
        ue.amf, ue.ran, ue.stream, self.next_id = self.next_id, ies["RAN-UE-NGAP-ID"], stream, self.next_id + 1
        self.ues[ue.amf] = ue
        self.nas(ue, ies["NAS-PDU"], True)

    def of(self, ue):
        return {"AMF-UE-NGAP-ID": ue.amf, "RAN-UE-NGAP-ID": ue.ran}

    def release_context(self, ue, cause):
        pair = {"aMF-UE-NGAP-ID": ue.amf, "rAN-UE-NGAP-ID": ue.ran}
        self.ues.pop(ue.amf, None)
        self.send("UEContextReleaseCommand", {"UE-NGAP-IDs": ("uE-NGAP-ID-pair", pair), "Cause": cause}, ue.stream)

    def context(self, ue, octets, items=()):
        """INITIAL CONTEXT SETUP REQUEST."""
        ies = {
            **self.of(ue),
            "UEAggregateMaximumBitRate": {
                "uEAggregateMaximumBitRateDL": 1_000_000_000,
                "uEAggregateMaximumBitRateUL": 1_000_000_000,
            },
            "GUAMI": self.guami(),
            "AllowedNSSAI": self.slices(),
            "UESecurityCapabilities": {name: (0, 16) for name in CAPABILITIES},
            "SecurityKey": (0, 256),
            "NAS-PDU": octets,
        }
        if items:
            ies["PDUSessionResourceSetupListCxtReq"] = list(items)
        self.send("InitialContextSetupRequest", ies, ue.stream)

    # ---- NAS

    def protect(self, ue, header, message):
        return ue.context.protect(header, message.to_bytes())

    def down(self, ue, octets):
        self.send("DownlinkNASTransport", {**self.of(ue), "NAS-PDU": octets}, ue.stream)

    def protected(self, ue, message):
        self.down(ue, self.protect(ue, 2, message))

    def nas(self, ue, octets, initial=False):
        header, plain = octets[1] & 15, octets
        if header:
            if ue.context is None:
                plain = octets[7:]
                if not initial:
                    self.say("unprotected", octets=octets.hex())
                    return
            else:
                plain = ue.context.open(octets)
                if plain is None:
                    self.say("integrity", octets=octets.hex())
                    return
        message = self.parse(plain)
        # The whole message is in a container.
        inner = message["NASContainer"] if "NASContainer" in message._by_name else None
        if header == 1 and ue.context is not None and inner is not None and not inner.get_trans():
            plain = ue.context.container(value(message, "NASContainer"))
            message = self.parse(plain)
        name = type(message).__name__
        self.say("nas", name=name, header=header, octets=plain.hex(), ue=ue.number)
        left = self.mute.get(name, 0)
        if left:
            self.mute[name] = left - 1
            return
        handler = getattr(self, "on_" + name[4:], None)
        if handler:
            handler(ue, message, plain)

    def parse(self, plain):
        message = CLASSES[plain[2]]()
        message.from_bytes(plain)
        return message

    def on_RegistrationRequest(self, ue, message, plain):
        ue.identity = value(message, "5GSID")
        self.say("identity", octets=ue.identity.hex())
        if self.options.reject:
            reject = fgmm.FGMMRegistrationReject()
            reject["5GMMCause"]["V"].set_val(bytes([self.options.reject]))
            self.down(ue, reject.to_bytes())
            return
        if plain[3] & 7 == 2 and ue.context is not None:
            # Mobility update: the context stays, and so do PDU sessions.
            self.protected(ue, self.accept(ue))
            return
        ue.sessions, ue.context = {}, None
        # IMSI with one of the schemes: the core authenticates. Otherwise the gateway vouches for the line.
        if ue.identity[0] & 0x77 == 1:
            ue.supi = security.supi_of(ue.identity, bytes.fromhex(self.options.homekey))
            self.say("supi", supi=ue.supi)
            self.challenge(ue)
        else:
            ue.supi = ue.identity.hex()
            ue.context = security.Context(bytes(32), 0, 0)
            self.command(ue)

    def challenge(self, ue):
        subscriber = self.subscribers[ue.supi]
        subscriber[2] += 32
        ue.vector = security.Vector(*subscriber)
        ue.ksi = (ue.ksi + 1) % 7
        request = fgmm.FGMMAuthenticationRequest()
        request["NAS_KSI"]["V"].set_val(ue.ksi)
        request["ABBA"]["V"].set_val(b"\0\0")
        if self.options.auth == "eap-aka-prime":
            ue.prime = security.Prime(ue.vector, ue.supi)
            optional(request, "EAPMsg", ue.prime.challenge())
        else:
            optional(request, "RAND", ue.vector.rand)
            optional(request, "AUTN", ue.vector.autn)
        self.down(ue, request.to_bytes())

    def on_AuthenticationResponse(self, ue, message, plain):
        if ue.prime:
            proved = ue.prime.answered(value(message, "EAPMsg"))
            kausf = ue.prime.kausf
        else:
            proved = value(message, "RES") == ue.vector.res_star
            kausf = ue.vector.kausf
        self.say("authenticated", supi=ue.supi, proved=proved)
        if not proved:
            self.down(ue, fgmm.FGMMAuthenticationReject().to_bytes())
            return
        ue.context = security.Context(security.kamf_of(kausf, ue.supi), self.options.algorithms, ue.ksi)
        self.command(ue)

    def on_AuthenticationFailure(self, ue, message, plain):
        cause = plain[3]
        self.say("authentication-failure", cause=cause)
        if cause == 21:
            number = ue.vector.resynchronized(value(message, "AUTS"))
            self.subscribers[ue.supi][2] = number
            self.challenge(ue)

    def command(self, ue):
        command = fgmm.FGMMSecurityModeCommand()
        command["NASSecAlgo"]["V"].set_val(bytes([ue.context.octet]))
        command["NAS_KSI"]["V"].set_val(ue.context.ksi)
        null = ue.identity[0] & 0x77 != 1
        command["UESecCap"]["V"].set_val(b"\x80\x80" if null else b"\xf0\xf0")
        if ue.prime:
            optional(command, "EAPMsg", bytes([3, 1, 0, 4]))
            optional(command, "ABBA", b"\0\0")
            ue.prime = None
        self.down(ue, self.protect(ue, 3, command))

    def accept(self, ue):
        accept = fgmm.FGMMRegistrationAccept()
        accept["5GSRegResult"]["V"].set_val(b"\x02")
        optional(accept, "GUTI", b"\xf2" + self.plmn + self.identifier() + ue.tmsi)
        if self.options.notice:
            # The non-3GPP de-registration timer: in units of two seconds.
            optional(accept, "Non3GPPDeregTimer", bytes([self.options.notice]))
        status = sum(1 << session for session in ue.sessions)
        optional(accept, "PDUSessStat", status.to_bytes(2, "little"))
        self.known[ue.number] = ue
        return accept

    def on_SecurityModeComplete(self, ue, message, plain):
        self.context(ue, self.protect(ue, 2, self.accept(ue)))

    def on_ServiceRequest(self, ue, message, plain):
        if ue.context is None:
            reject = fgmm.FGMMServiceReject()
            reject["5GMMCause"]["V"].set_val(b"\x09")
            self.down(ue, reject.to_bytes())
            return
        accept = fgmm.FGMMServiceAccept()
        optional(accept, "PDUSessStat", sum(1 << session for session in ue.sessions).to_bytes(2, "little"))
        items = [
            {
                "pDUSessionID": session,
                "s-NSSAI": {"sST": b"\x01"},
                "pDUSessionResourceSetupRequestTransfer": self.resource(ue, session),
            }
            for session in ue.sessions
        ]
        self.context(ue, self.protect(ue, 2, accept), items)

    def on_MODeregistrationRequest(self, ue, message, plain):
        # Without "switch off" the subscriber waits for an answer.
        if not plain[3] & 8:
            self.protected(ue, fgmm.FGMMMODeregistrationAccept())
        self.known.pop(ue.number, None)
        self.release_context(ue, ("nas", "deregister"))
        self.say("deregistered", amf=ue.amf, ue=ue.number)

    def on_MTDeregistrationAccept(self, ue, message, plain):
        if ue.service != "again":
            self.known.pop(ue.number, None)
            self.release_context(ue, ("nas", "deregister"))
        ue.service = None

    # ---- Sessions

    def place(self, ue, session):
        if self.options.fixed:
            return zlib.crc32(f"{ue.supi} {session}".encode()) & 0x3FFFFF
        return self.places.setdefault((ue.supi, session), len(self.places))

    def address(self, ue, session):
        place = self.place(ue, session)
        first = int.from_bytes(bytes(map(int, self.options.ue.split("."))), "big")
        return (first + place).to_bytes(4, "big")

    def resource(self, ue, session):
        upf = int.from_bytes(bytes(map(int, self.options.upf.split("."))), "big")
        of = ue.sessions[session]
        flows = [
            {"qosFlowIdentifier": qfi, "qosFlowLevelQosParameters": parameters(*what)}
            for qfi, what in of["flows"].items()
        ]
        far = ("gTPTunnel", {"transportLayerAddress": (upf, 32), "gTP-TEID": of["teid"].to_bytes(4, "big")})
        return transfer(
            "PDUSessionResourceSetupRequestTransfer",
            (
                (139, "reject", GTP, far),
                (134, "reject", "PDUSessionType", {1: "ipv4", 2: "ipv6", 3: "ipv4v6"}[of["kind"]]),
                (136, "reject", "QosFlowSetupRequestList", flows),
            ),
        )

    def carry(self, session, message):
        transport = fgmm.FGMMDLNASTransport()
        transport["PayloadContainerType"]["V"].set_val(1)
        transport["PayloadContainer"]["V"].set_val(message.to_bytes())
        optional(transport, "PDUSessID", bytes([session]))
        return transport

    def on_ULNASTransport(self, ue, message, plain):
        octets = value(message, "PayloadContainer")
        session, transaction, kind = octets[1], octets[2], octets[3]
        self.say("session", octets=octets.hex(), kind=kind)
        if kind == 193:
            self.establish(ue, session, transaction, octets)
        elif kind == 209:
            command = fgsm.FGSMPDUSessionReleaseCommand()
            command["5GSMHeader"]["PDUSessID"].set_val(session)
            command["5GSMHeader"]["PTI"].set_val(transaction)
            command["5GSMCause"]["V"].set_val(b"\x24")
            ue.sessions.pop(session, None)
            self.release_resource(ue, session, command)

    def release_resource(self, ue, session, command):
        item = {
            "pDUSessionID": session,
            "pDUSessionResourceReleaseCommandTransfer": (
                "PDUSessionResourceReleaseCommandTransfer",
                {"cause": ("nas", "normal-release")},
            ),
        }
        ies = {
            **self.of(ue),
            "NAS-PDU": self.protect(ue, 2, self.carry(session, command)),
            "PDUSessionResourceToReleaseListRelCmd": [item],
        }
        self.send("PDUSessionResourceReleaseCommand", ies, ue.stream)

    def establish(self, ue, session, transaction, octets):
        request = fgsm.FGSMPDUSessionEstabRequest()
        request.from_bytes(octets)
        if self.options.nosession:
            reject = fgsm.FGSMPDUSessionEstabReject()
            reject["5GSMHeader"]["PDUSessID"].set_val(session)
            reject["5GSMHeader"]["PTI"].set_val(transaction)
            reject["5GSMCause"]["V"].set_val(bytes([self.options.nosession]))
            self.protected(ue, self.carry(session, reject))
            return
        # The type that the line asks for.
        kind = octets[6] & 7 if octets[6] >> 4 == 9 else 1
        ue.sessions[session] = {"kind": kind, "teid": 7000 + ue.number + 10_000 * (session - 1), "flows": {5: (9,)}}
        accept = fgsm.FGSMPDUSessionEstabAccept()
        accept["5GSMHeader"]["PDUSessID"].set_val(session)
        accept["5GSMHeader"]["PTI"].set_val(transaction)
        accept["SSCMode"]["V"].set_val(1)
        accept["PDUSessType"]["V"].set_val(kind)
        # The default rule: everything, QFI 5.
        accept["QoSRules"]["V"].set_val(bytes.fromhex("01000631310101ff05"))
        # 20 Mbit/s down, 10 Mbit/s up.
        accept["SessAMBR"]["V"].set_val(bytes([6, 0, 20, 6, 0, 10]))
        address = self.address(ue, session) if kind & 1 else b""
        # The UPF has the same place in mind when it advertises a prefix.
        place = self.place(ue, session)
        identifier = bytes([2, 0, 0, 0, 0, 0]) + place.to_bytes(2, "big") if kind & 2 else b""
        optional(accept, "PDUAddress", bytes([kind]) + identifier + address)
        self.say(
            "address",
            ue=ue.number,
            session=session,
            address=".".join(map(str, address)) or None,
            prefix=f"2001:db8:64:{place:x}::" if kind & 2 else None,
            teid=ue.sessions[session]["teid"],
            identity=ue.identity.hex(),
        )
        item = {
            "pDUSessionID": session,
            "pDUSessionNAS-PDU": self.protect(ue, 2, self.carry(session, accept)),
            "s-NSSAI": {"sST": b"\x01"},
            "pDUSessionResourceSetupRequestTransfer": self.resource(ue, session),
        }
        self.send(
            "PDUSessionResourceSetupRequest", {**self.of(ue), "PDUSessionResourceSetupListSUReq": [item]}, ue.stream
        )

    def modify(self, ue, session, c):
        """Flow 1 with a guaranteed rate for a remote UDP port, another AMBR, another tunnel."""
        of = ue.sessions[session]
        of["flows"][1] = (c.get("fiveqi", 1), c.get("gbr"))
        of["teid"] = c.get("teid", of["teid"])
        upf = int.from_bytes(bytes(map(int, self.options.upf.split("."))), "big")
        own = {"transportLayerAddress": (0, 32), "gTP-TEID": bytes(4)}
        far = {"transportLayerAddress": (upf, 32), "gTP-TEID": of["teid"].to_bytes(4, "big")}
        change = transfer(
            "PDUSessionResourceModifyRequestTransfer",
            (
                (
                    140,
                    "reject",
                    "UL-NGU-UP-TNLModifyList",
                    [{"uL-NGU-UP-TNLInformation": ("gTPTunnel", far), "dL-NGU-UP-TNLInformation": ("gTPTunnel", own)}],
                ),
                (
                    135,
                    "reject",
                    "QosFlowAddOrModifyRequestList",
                    [{"qosFlowIdentifier": 1, "qosFlowLevelQosParameters": parameters(*of["flows"][1])}],
                ),
            ),
        )
        command = fgsm.FGSMPDUSessionModifCommand()
        command["5GSMHeader"]["PDUSessID"].set_val(session)
        optional(command, "SessAMBR", bytes([6, 0, c.get("down", 20), 6, 0, c.get("up", 10)]))
        port = c.get("port", 5060)
        rule = bytes([0x21, 0x31, 5, 0x30, 17, 0x50, port >> 8, port & 255, 10, 1])
        optional(command, "QoSRules", bytes([2, 0, len(rule)]) + rule)
        item = {
            "pDUSessionID": session,
            "nAS-PDU": self.protect(ue, 2, self.carry(session, command)),
            "pDUSessionResourceModifyRequestTransfer": change,
        }
        ies = {**self.of(ue), "PDUSessionResourceModifyListModReq": [item]}
        self.send("PDUSessionResourceModifyRequest", ies, ue.stream)

    # ---- Commands of a test

    def target(self, c):
        return self.known.get(c["ue"]) if "ue" in c else None

    def command_line(self, c):
        do = c["do"]
        ue = self.target(c)
        if do == "overload":
            self.send(
                "OverloadStart",
                {
                    "AMFOverloadResponse": ("overloadAction", "reject-rrc-cr-signalling"),
                    "AMFTrafficLoadReductionIndication": c["reduction"],
                }
                if "reduction" in c
                else {"AMFOverloadResponse": ("overloadAction", "reject-rrc-cr-signalling")},
            )
        elif do == "overload-stop":
            self.send("OverloadStop", {})
        elif do == "leave":
            self.send("AMFStatusIndication", {"UnavailableGUAMIList": [{"gUAMI": self.guami()}]})
        elif do == "update":
            self.send("AMFConfigurationUpdate", {"AMFName": c["name"], "RelativeAMFCapacity": c["capacity"]})
        elif do == "reset":
            self.send("NGReset", {"Cause": ("misc", "om-intervention"), "ResetType": ("nG-Interface", "reset-all")})
        elif do == "deregister":
            request = fgmm.FGMMMTDeregistrationRequest()
            if c.get("again"):
                ue.service = "again"
                request["DeregistrationType"]["V"].set_val(6)
            self.protected(ue, request)
        elif do == "release-context":
            self.release_context(ue, ("radioNetwork", "user-inactivity"))
        elif do == "release-session":
            command = fgsm.FGSMPDUSessionReleaseCommand()
            command["5GSMHeader"]["PDUSessID"].set_val(c["session"])
            command["5GSMCause"]["V"].set_val(bytes([c["cause"]]))
            ue.sessions.pop(c["session"], None)
            self.release_resource(ue, c["session"], command)
        elif do == "modify":
            self.modify(ue, c["session"], c)
        elif do == "ambr":
            rates = {"uEAggregateMaximumBitRateDL": c["down"], "uEAggregateMaximumBitRateUL": c["up"]}
            ies = {**self.of(ue), "UEAggregateMaximumBitRate": rates}
            self.send("UEContextModificationRequest", ies, ue.stream)
        elif do == "sequence":
            self.subscribers[c["imsi"]][2] = c["number"]
        elif do == "share":
            # The UE contexts that AMFs of a set share (TS 23.501 section 5.21.2).
            self.say("shared", ue=ue.number, context=pickle.dumps(ue).hex())
        elif do == "adopt":
            ue = pickle.loads(bytes.fromhex(c["context"]))
            self.ues[ue.amf] = self.known[ue.number] = ue
        elif do == "forget":
            ue.context = None
        elif do == "count":
            # Of those whose procedures are done: the AMF's own timers end others.
            self.say("count", ues=[one.number for one in self.ues.values() if one.done])
        elif do == "mute":
            self.mute[c["name"]] = c["count"]
        elif do == "set":
            setattr(self.options, c["option"], c["value"])
        elif do == "raw":
            self.association.send(c.get("stream", 0), NGAP, bytes.fromhex(c["octets"]))
        elif do == "send":
            self.send(c["name"], {**(self.of(ue) if ue else {}), **ast.literal_eval(c.get("ies", "{}"))})
        elif do == "mangle":
            # Each truncation of a message, and each flip of a bit.
            octets = encode(c["name"], {**self.of(ue), **ast.literal_eval(c.get("ies", "{}"))})
            for length in range(1, len(octets)):
                self.association.send(1, NGAP, octets[:length])
            for bit in range(8 * len(octets)):
                changed = bytearray(octets)
                changed[bit // 8] ^= 1 << bit % 8
                self.association.send(1, NGAP, bytes(changed))
            self.say("mangled", name=c["name"])
        elif do == "abort":
            self.association.abort()
        elif do == "die":
            # A peer of a process that was killed takes half a minute to notice.
            self.association.abort()
            os._exit(0)


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", action="append", required=True)
    parser.add_argument("--port", type=int, default=38412)
    # Milliseconds between heartbeats of SCTP; 0: those of the library.
    parser.add_argument("--heartbeat", type=int, default=0)
    parser.add_argument("--name", default="amf.test")
    parser.add_argument("--plmn", default="00101")
    parser.add_argument("--capacity", type=int, default=100)
    parser.add_argument("--set", type=int, default=1)
    parser.add_argument("--pointer", type=int, default=1)
    parser.add_argument("--refuse", type=int, default=0)
    # 5GMM cause of each registration, 5GSM cause of each PDU session.
    parser.add_argument("--reject", type=int, default=0)
    parser.add_argument("--nosession", type=int, default=0)
    # The non-3GPP de-registration timer in units of two seconds; 0: none is said.
    parser.add_argument("--notice", type=int, default=0)
    # So many initial messages go to an AMF of another set.
    parser.add_argument("--reroute", type=int, default=0)
    # Address of subscribers' UPF; the first address of subscribers.
    parser.add_argument("--upf", default="192.0.2.2")
    parser.add_argument("--ue", default="100.64.9.9")
    # A subscriber has the same one of 4 million addresses from each AMF.
    parser.add_argument("--fixed", type=int, default=0)
    # Contexts of subscribers outlive the association.
    parser.add_argument("--retain", type=int, default=1)
    # IMSI, K, OPc and sequence number of a subscriber whom the core authenticates; the home network's private key.
    parser.add_argument("--subscriber", action="append", default=[])
    parser.add_argument("--homekey", default="")
    parser.add_argument("--auth", default="5g-aka", choices=["5g-aka", "eap-aka-prime"])
    # Of SECURITY MODE COMMAND: ciphering in the upper half, integrity in the lower.
    parser.add_argument("--algorithms", type=int, default=0x22)
    # Do not write down NGAP messages.
    parser.add_argument("--quiet", type=int, default=0)
    return parser


def run(amf):
    amf.say("listening")
    for line in sys.stdin:
        try:
            amf.command_line(json.loads(line))
        except Exception:
            amf.say("failure", error=traceback.format_exc())


if __name__ == "__main__":
    run(Amf(options().parse_args()))
