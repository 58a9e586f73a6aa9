#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The test core for 5G residential gateways: the AMF of n3iwf_amf.py, which keeps registrations whose context is gone,
and takes SERVICE REQUEST."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from core.amf import CAPABILITIES, options, run
from core.n3iwf_amf import N3iwfAmf, tlv

SERVICE_REQUEST = 0x4C


class RgAmf(N3iwfAmf):
    def send(self, name, ies, stream=0):
        # The resources of a subscriber, for the next context.
        for item in ies.get("PDUSessionResourceSetupListSUReq", ()):
            ue = self.ues[ies["AMF-UE-NGAP-ID"]]
            ue.setdefault("items", {})[item["pDUSessionID"]] = item
        super().send(name, ies, stream)

    def first(self, ies, stream):
        octets = ies["NAS-PDU"]
        if octets[1] & 15 != 1 or octets[9] != SERVICE_REQUEST:
            super().first(ies, stream)
            return
        # 5G-S-TMSI: the AMF UE NGAP ID of the registration.
        ue = dict(self.ues[int.from_bytes(octets[16:20], "big")])
        ue.update(ran=ies["RAN-UE-NGAP-ID"], amf=self.next_id, stream=stream)
        self.next_id += 1
        self.ues[ue["amf"]] = ue
        plain = ue["security"].open(octets)
        self.say("service-request", amf=ue["amf"], octets=plain.hex())
        items = [
            {key: value for key, value in item.items() if key != "pDUSessionNAS-PDU"} for item in ue["items"].values()
        ]
        self.send(
            "InitialContextSetupRequest",
            {
                **self.of(ue),
                "GUAMI": self.guami(),
                "PDUSessionResourceSetupListCxtReq": items,
                "AllowedNSSAI": self.slices(),
                "UESecurityCapabilities": {name: (0, 16) for name in CAPABILITIES},
                "SecurityKey": (0, 256),
                "NAS-PDU": self.secure(ue, bytes([0x7E, 0, 0x4E]) + tlv(0x50, b"\x02\x00")),
            },
            stream,
        )


if __name__ == "__main__":
    parser = options()
    # Options of N3iwfAmf: bit/s of PDU sessions, subscribers and flows of 5QI 1; whether it keeps contexts; its slice.
    for name, rate in (("ambr", 1_000_000_000), ("ueambr", 0), ("gbr", 0), ("slow", 0), ("silent", 0), ("sst", 1)):
        parser.add_argument(f"--{name}", type=int, default=rate)
    run(RgAmf(parser.parse_args()))
