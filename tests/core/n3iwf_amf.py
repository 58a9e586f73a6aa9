#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The test core for UEs on untrusted access: the AMF of amf.py with 5G-AKA and NAS security, and an SMF with QoS."""

import ipaddress
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from core.amf import CAPABILITIES, Amf, options, parameters, plmn_octets, run, transfer
from core.usim import DOWNLINK, Keys, NoSecurity, Security

# By PDU session type of TS 24.501 section 9.11.4.11.
KINDS = {1: "ipv4", 2: "ipv6", 3: "ipv4v6", 5: "ethernet"}
# Of IPv6 addresses of PDU sessions: the UE has it without router advertisements.
PREFIX = bytes.fromhex("20010db800640000")


def tlv(kind, value, size=1):
    return bytes([kind]) + len(value).to_bytes(size, "big") + value


def usage_of(value):
    """The usage report of a PDU session, somewhere in an IE."""
    if isinstance(value, dict):
        if "pDUSessionUsageReport" in value:
            return value["pDUSessionUsageReport"]
        value = list(value.values())
    if isinstance(value, list | tuple):
        return next(filter(None, map(usage_of, value)), None)
    return None


class N3iwfAmf(Amf):
    def slices(self):
        return [{"s-NSSAI": {"sST": bytes([self.options.sst])}}]

    def usage(self, name, ies):
        """Usage reports of PDU sessions in a message."""
        for items in ies.values():
            for item in items if isinstance(items, list) else ():
                report = usage_of(item) if "pDUSessionID" in item else None
                if report:
                    timed = report["pDUSessionTimedReportList"][0]
                    self.say(
                        "usage",
                        name=name,
                        amf=ies["AMF-UE-NGAP-ID"],
                        session=item["pDUSessionID"],
                        rat=report["rATType"],
                        up=timed["usageCountUL"],
                        down=timed["usageCountDL"],
                        start=int.from_bytes(timed["startTimeStamp"], "big"),
                        end=int.from_bytes(timed["endTimeStamp"], "big"),
                    )

    def take(self, name, ies, stream):
        self.usage(name, ies)
        if name in ("PDUSessionResourceSetupResponse", "InitialContextSetupResponse"):
            key = "SURes" if name.startswith("PDU") else "CxtRes"
            for item in ies.get(f"PDUSessionResourceSetupList{key}", ()):
                tunnel = item["pDUSessionResourceSetupResponseTransfer"][1]["dLQosFlowPerTNLInformation"]
                flows = [flow["qosFlowIdentifier"] for flow in tunnel["associatedQosFlowList"]]
                tunnel = tunnel["uPTransportLayerInformation"][1]
                number, bits = tunnel["transportLayerAddress"]
                self.say(
                    "tunnel",
                    ran=ies["RAN-UE-NGAP-ID"],
                    amf=ies["AMF-UE-NGAP-ID"],
                    session=item["pDUSessionID"],
                    address=number.to_bytes(bits // 8, "big").hex(),
                    teid=int.from_bytes(tunnel["gTP-TEID"], "big"),
                    flows=flows,
                )
            for item in ies.get(f"PDUSessionResourceFailedToSetupList{key}", ()):
                self.say("no-tunnel", amf=ies["AMF-UE-NGAP-ID"], session=item["pDUSessionID"])
                # The UE does not get the NAS message of the request, and expects its count again.
                self.ues[ies["AMF-UE-NGAP-ID"]]["security"].counts[DOWNLINK] -= 1
            if name.startswith("Initial"):
                self.say("context", amf=ies["AMF-UE-NGAP-ID"])
        elif name == "PDUSessionResourceModifyResponse":
            done = [item["pDUSessionID"] for item in ies.get("PDUSessionResourceModifyListModRes", ())]
            self.say("modified", amf=ies["AMF-UE-NGAP-ID"], sessions=done)
        elif name == "InitialUEMessage":
            self.say(
                "initial",
                cause=ies["RRCEstablishmentCause"],
                location=ies["UserLocationInformation"][0],
                plmn=ies.get("SelectedPLMNIdentity", b""),
            )
            super().take(name, ies, stream)
        elif name == "UEContextReleaseComplete":
            sessions = [item["pDUSessionID"] for item in ies.get("PDUSessionResourceListCxtRelCpl", ())]
            location = ies["UserLocationInformation"][0] if "UserLocationInformation" in ies else ""
            self.say("release-complete", amf=ies["AMF-UE-NGAP-ID"], sessions=sessions, location=location)
        elif name == "UEContextReleaseRequest":
            ue = self.ues[ies["AMF-UE-NGAP-ID"]]
            self.say("release-request", amf=ue["amf"], cause=ies["Cause"])
            if not self.options.slow:
                self.release(ue, ("radioNetwork", "radio-connection-with-ue-lost"))
        else:
            super().take(name, ies, stream)

    def release(self, ue, cause):
        pair = {"aMF-UE-NGAP-ID": ue["amf"], "rAN-UE-NGAP-ID": ue["ran"]}
        self.send("UEContextReleaseCommand", {"UE-NGAP-IDs": ("uE-NGAP-ID-pair", pair), "Cause": cause}, ue["stream"])

    def secure(self, ue, message):
        return ue["security"].protect(message)

    def first(self, ies, stream):
        ue = {"ran": ies["RAN-UE-NGAP-ID"], "amf": self.next_id, "stream": stream, "sessions": {}}
        self.next_id += 1
        self.ues[ue["amf"]] = ue
        self.nas(ue, ies["NAS-PDU"])

    def ran(self, ue):
        return ue["ran"]

    def of(self, ue):
        return {"AMF-UE-NGAP-ID": ue["amf"], "RAN-UE-NGAP-ID": ue["ran"]}

    def down(self, ue, octets):
        self.send("DownlinkNASTransport", {**self.of(ue), "NAS-PDU": octets}, ue["stream"])

    def nas(self, ue, octets, initial=False):
        protected = octets[1] & 15
        # Messages that a UE repeats inside of a security context are protected by it.
        plain = ue["security"].open(octets) if protected and "security" in ue else octets
        # A UE without a connection protects its first message by the context that the AMF knows by the 5G-S-TMSI.
        kind = plain[9] if protected and "security" not in ue else plain[2]
        self.say("nas", kind=kind, protected=protected, amf=ue["amf"])
        if kind == self.options.silent:
            return
        if kind == 0x41:
            if self.options.reject:
                self.down(ue, bytes([0x7E, 0, 0x44, self.options.reject]))
                self.release(ue, ("nas", "normal-release"))
                return
            if plain[3] & 7 == 4:
                # Emergency: without authentication.
                ue |= {"security": NoSecurity(), "supi": ""}
                self.accept(ue)
                return
            length = int.from_bytes(plain[4:6], "big")
            digits = "".join(f"{octet & 15:x}{octet >> 4:x}" for octet in plain[14 : 6 + length]).rstrip("f")
            ue["supi"] = self.options.plmn + digits
            rand, ue["keys"] = Keys.challenge(self.options.plmn, ue["supi"])
            challenge = bytes([0x21]) + rand + tlv(0x20, ue["keys"].autn)
            self.down(ue, bytes([0x7E, 0, 0x56, 0, 2, 0, 0]) + challenge)
        elif kind == 0x4C:
            self.service(ue, octets)
        elif kind == 0x57:
            if plain[5:21] != ue["keys"].res:
                self.down(ue, bytes([0x7E, 0, 0x58]))
                self.release(ue, ("nas", "authentication-failure"))
                return
            ue["security"] = Security(ue["keys"], DOWNLINK)
            command = bytes([0x7E, 0, 0x5D, 0x22, 0, 2, 0xA0, 0x20])
            self.down(ue, ue["security"].protect(command, 3))
        elif kind == 0x5E:
            self.accept(ue)
        elif kind == 0x43:
            self.say("registered", amf=ue["amf"], supi=ue["supi"])
        elif kind == 0x67:
            length = int.from_bytes(plain[4:6], "big")
            # PDU session identity and request type.
            self.say("transport", amf=ue["amf"], more=plain[6 + length :].hex())
            self.session_message(ue, plain[6 : 6 + length])
        elif kind == 0x45:
            self.release(ue, ("nas", "deregister"))
            self.say("deregistered", amf=ue["amf"])

    def accept(self, ue):
        guti = b"\xf2" + plmn_octets(self.options.plmn) + self.identifier() + ue["amf"].to_bytes(4, "big")
        self.set_up_context(ue, 0, bytes([0x7E, 0, 0x42, 1, 2]) + tlv(0x77, guti, 2))

    def set_up_context(self, ue, count, message, **more):
        key = ue["security"].n3iwf_key(count)
        self.send(
            "InitialContextSetupRequest",
            {
                **self.of(ue),
                "GUAMI": self.guami(),
                "AllowedNSSAI": self.slices(),
                "UESecurityCapabilities": {name: (0, 16) for name in CAPABILITIES},
                "SecurityKey": (int.from_bytes(key, "big"), 256),
                "NAS-PDU": self.secure(ue, message),
                **more,
            },
            ue["stream"],
        )

    def service(self, ue, octets):
        """SERVICE REQUEST of a UE that has no connection: its PDU sessions get their user plane again."""
        before = self.ues.get(int.from_bytes(octets[-4:], "big"))
        if not before or "security" not in before:
            self.down(ue, bytes([0x7E, 0, 0x4D, 9]))
            self.release(ue, ("nas", "normal-release"))
            return
        count = before["security"].counts[0]
        before["security"].open(octets)
        ue |= {"security": before["security"], "supi": before["supi"], "sessions": before["sessions"]}
        sessions = ue["sessions"]
        items = [self.resource(ue, session) for session in sessions]
        for session, of in sessions.items():
            self.say("session", amf=ue["amf"], session=session, address=of["address"], address6=of["address6"],
                     teid=of["teid"])  # fmt: skip
        more = {"PDUSessionResourceSetupListCxtReq": items, **self.ue_rates(always=True)} if items else {}
        self.set_up_context(ue, count, bytes([0x7E, 0, 0x4E]), **more)

    def ue_rates(self, always=False):
        most = self.options.ueambr or (1000000000 if always else 0)
        rates = {"uEAggregateMaximumBitRateDL": most, "uEAggregateMaximumBitRateUL": most}
        return {"UEAggregateMaximumBitRate": rates} if most else {}

    def transport(self, ue, message):
        payload = len(message).to_bytes(2, "big") + message
        return self.secure(ue, bytes([0x7E, 0, 0x68, 1]) + payload + bytes([0x12, message[1]]))

    def session_message(self, ue, octets):
        if octets[3] == 0xC1:
            self.establish(ue, octets[1], octets[2], octets[6] & 7)
        elif octets[3] == 0xD4:
            ue["sessions"].pop(octets[1], None)
            self.say("session-released", amf=ue["amf"], session=octets[1])

    def address_of(self, ue, session):
        """100.64.x.y for the first session of the UE, 100.65 for the second."""
        return bytes([100, 63 + session, ue["amf"] >> 8 & 255, ue["amf"] & 255])

    def flow(self, qfi, five_qi):
        return {
            "qosFlowIdentifier": qfi,
            "qosFlowLevelQosParameters": parameters(
                five_qi, self.options.gbr and (self.options.gbr,) * 2 if five_qi == 1 else None
            ),
        }

    def establish(self, ue, session, transaction, kind):
        """PDU session type 1: IPv4, 2: IPv6, 3: both."""
        address = self.address_of(ue, session)
        identifier = bytes([2, 0, 0, session]) + ue["amf"].to_bytes(4, "big")
        rule = bytes([1, 0, 6, 0x31, 0x31, 1, 1, 255, 9])
        # A PDU address of type IPv6 has the interface identifier: the UPF advertises the prefix.
        given = {1: address, 2: identifier, 3: identifier + address, 5: b""}[kind]
        accept = bytes([0x2E, session, transaction, 0xC2, 0x10 | kind]) + len(rule).to_bytes(2, "big") + rule
        accept += bytes([6, 6, 0, 20, 6, 0, 10]) + tlv(0x29, bytes([kind]) + given)
        of = {
            "kind": KINDS[kind],
            "address": ".".join(map(str, address)) if kind in (1, 3) else "",
            "address6": str(ipaddress.ip_address(PREFIX + identifier)) if kind in (2, 3) else "",
            "teid": session << 24 | ue["amf"],
        }
        ue["sessions"][session] = of
        item = {**self.resource(ue, session), "pDUSessionNAS-PDU": self.transport(ue, accept)}
        self.say("session", amf=ue["amf"], session=session, address=of["address"], address6=of["address6"],
                 teid=of["teid"])  # fmt: skip
        ies = {**self.of(ue), "PDUSessionResourceSetupListSUReq": [item], **self.ue_rates()}
        self.send("PDUSessionResourceSetupRequest", ies, ue["stream"])

    def resource(self, ue, session):
        of = ue["sessions"][session]
        upf = int.from_bytes(bytes(map(int, self.options.upf.split("."))), "big")
        rates = {
            "pDUSessionAggregateMaximumBitRateDL": self.options.ambr,
            "pDUSessionAggregateMaximumBitRateUL": self.options.ambr,
        }
        far = ("gTPTunnel", {"transportLayerAddress": (upf, 32), "gTP-TEID": of["teid"].to_bytes(4, "big")})
        ies = (
            (130, "reject", "PDUSessionAggregateMaximumBitRate", rates),
            (139, "reject", "UPTransportLayerInformation", far),
            (134, "reject", "PDUSessionType", of["kind"]),
            (136, "reject", "QosFlowSetupRequestList", [self.flow(9, 9), self.flow(1, 1)]),
        )
        return {
            "pDUSessionID": session,
            "s-NSSAI": {"sST": b"\x01"},
            "pDUSessionResourceSetupRequestTransfer": transfer("PDUSessionResourceSetupRequestTransfer", ies),
        }

    def leg(self, ue, session, up):
        if up:
            name, label, item = "Setup", "PDUSessionResourceSetupListSUReq", self.resource(ue, session)
        else:
            name, label = "Release", "PDUSessionResourceToReleaseListRelCmd"
            why = {"cause": ("radioNetwork", "release-due-to-5gc-generated-reason")}
            content = ("PDUSessionResourceReleaseCommandTransfer", why)
            item = {"pDUSessionID": session, "pDUSessionResourceReleaseCommandTransfer": content}
        ending = "Request" if up else "Command"
        self.send(f"PDUSessionResource{name}{ending}", {**self.of(ue), label: [item]}, ue["stream"])

    def modify(self, ue, session, add, remove):
        ies = []
        if add:
            items = [self.flow(qfi, five_qi) for qfi, five_qi in add]
            ies.append((135, "reject", "QosFlowAddOrModifyRequestList", items))
        if remove:
            items = [{"qosFlowIdentifier": qfi, "cause": ("nas", "normal-release")} for qfi in remove]
            ies.append((137, "reject", "QosFlowListWithCause", items))
        item = {
            "pDUSessionID": session,
            "pDUSessionResourceModifyRequestTransfer": transfer("PDUSessionResourceModifyRequestTransfer", ies),
        }
        self.send(
            "PDUSessionResourceModifyRequest",
            {**self.of(ue), "PDUSessionResourceModifyListModReq": [item]},
            ue["stream"],
        )

    def target(self, c):
        return self.ues.get(c.get("amf"))

    def command_line(self, c):
        do = c["do"]
        ue = self.target(c)
        if do == "modify":
            self.modify(ue, c["session"], c.get("add", ()), c.get("remove", ()))
        elif do == "release-session":
            command = bytes([0x2E, c["session"], 0, 0xD3, 36])
            why = {"cause": ("nas", "normal-release")}
            item = {
                "pDUSessionID": c["session"],
                "pDUSessionResourceReleaseCommandTransfer": ("PDUSessionResourceReleaseCommandTransfer", why),
            }
            ies = {"NAS-PDU": self.transport(ue, command), "PDUSessionResourceToReleaseListRelCmd": [item]}
            self.send("PDUSessionResourceReleaseCommand", {**self.of(ue), **ies}, ue["stream"])
        elif do == "leg":
            # Of a multi-access PDU session: the resource of this access alone, without NAS.
            self.leg(ue, c["session"], c["up"])
        elif do == "set":
            for name, value in c["options"].items():
                setattr(self.options, name, value)
            self.say("set")
        elif do == "release":
            self.release(ue, ("nas", "normal-release"))
        elif do == "nas":
            for number in range(c["count"]):
                # Configuration update command, with a network name of some length.
                name = bytes([0x80 | number & 7]) + b"x" * c.get("size", 10)
                self.down(ue, self.secure(ue, bytes([0x7E, 0, 0x54]) + tlv(0x43, name)))
        else:
            super().command_line(c)


if __name__ == "__main__":
    parser = options()
    # Bit/s of PDU sessions.
    parser.add_argument("--ambr", type=int, default=1000000000)
    # Of UEs; GFBR and MFBR of flows of 5QI 1. 0: none.
    parser.add_argument("--ueambr", type=int, default=0)
    parser.add_argument("--gbr", type=int, default=0)
    # Contexts are not released at the gateway's request.
    parser.add_argument("--slow", type=int, default=0)
    # The NAS message that is not answered; 0: none.
    parser.add_argument("--silent", type=int, default=0)
    # The slice that the AMF serves.
    parser.add_argument("--sst", type=int, default=1)
    run(N3iwfAmf(parser.parse_args()))
