# SPDX-License-Identifier: Apache-2.0
"""The test core's AMF, and UEs on untrusted access, as processes in namespaces."""

import contextlib
import itertools
import json
import os
import subprocess
import sys

from .gateway import thing
from .laboratory import TREE, wait_until

NUMBERS = itertools.count(1)
# The core has libusrsctp. The agent uses it, too: an SCTP module of the kernel would abort the core's associations.
os.environ.setdefault("SLUICE_SCTP", "libusrsctp")


# Messages for a UE whose truncations and flipped bits must disturb no other.
MANGLED = (
    ("DownlinkNASTransport", {"NAS-PDU": bytes.fromhex("7e0200000000207e0054")}),
    (
        "UEContextModificationRequest",
        {"UEAggregateMaximumBitRate": {"uEAggregateMaximumBitRateDL": 10**9, "uEAggregateMaximumBitRateUL": 10**9}},
    ),
    ("LocationReportingControl", {"LocationReportingRequestType": {"eventType": "direct", "reportArea": "cell"}}),
    ("RerouteNASRequest", {"NGAP-Message": b"\0\x0f\x40\0", "AMFSetID": (2, 10)}),
)


def apart(first, second):
    """Whether no flip of one bit makes one pair of NGAP identifiers share one with another pair: a message with
    identifiers of two UEs ends both contexts (TS 38.413 section 10.6).
    """
    return all((a ^ b).bit_count() > 1 for a, b in zip(first, second, strict=True))


class Program:
    """A program of tests/core that writes and reads lines of JSON."""

    name = "amf"

    def __init__(self, lab, namespace, *addresses, **options):
        self.log = lab.directory / f"{self.name}-{next(NUMBERS)}.log"
        self.namespace, self.addresses, self.options = namespace, addresses, options
        self.child = None
        self.since = 0
        lab.on_close(self.kill)
        self.start()

    def start(self):
        command = [sys.executable, TREE / f"tests/core/{self.name}.py"]
        for address in self.addresses:
            command += ["--address", address]
        for name, value in self.options.items():
            for each in value if isinstance(value, list) else [value]:
                command += [f"--{name}", str(each)]
        # One that was killed may have left a part of a line.
        if self.log.exists():
            octets = self.log.read_bytes()
            os.truncate(self.log, octets.rfind(b"\n") + 1)
            self.since = min(self.since, self.log.stat().st_size)
        before = len(self.events("listening"))
        with open(self.log, "ab") as output:
            self.child = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace.name, *map(str, command)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        def listens():
            if self.child.poll() is not None:
                raise RuntimeError(f"it ended: {self.log.read_text()[-2000:]}")
            return len(self.events("listening")) > before

        wait_until(listens, 60, f"{self.name}: {self.log}")

    def kill(self):
        if self.child and self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    def do(self, what, **more):
        self.child.stdin.write(json.dumps({"do": what, **more}).encode() + b"\n")
        self.child.stdin.flush()

    def events(self, event=None, **wanted):
        """Its output since mark(), the oldest line first."""
        found = []
        octets = self.log.read_bytes()[self.since :] if self.log.exists() else b""
        # The last line may be a part of one.
        for line in octets[: octets.rfind(b"\n") + 1].splitlines():
            if line.startswith(b"{"):
                entry = json.loads(line)
                if event in (None, entry["event"]) and all(entry.get(key) == value for key, value in wanted.items()):
                    found.append(entry)
        return found

    def mark(self):
        """Events of before do not count any more."""
        self.since = self.log.stat().st_size

    def wait(self, event, count=1, **wanted):
        return wait_until(
            lambda: len(found := self.events(event, **wanted)) >= count and found, 30, f"{event} {wanted}: {self.log}"
        )


class Amf(Program):
    def tunnels(self, addresses):
        """By address of a PDU session the TEIDs of the UPF and of the gateway. The response to the setup may come after
        the line has its address.
        """

        def complete():
            ours = {(each["ue"], each["session"]): each["teid"] for each in self.events("tunnel")}
            given = {each["address"]: each for each in self.events("address")}
            found = {
                address: (of["teid"], ours[of["ue"], of["session"]])
                for address in addresses
                if (of := given.get(address)) and (of["ue"], of["session"]) in ours
            }
            return len(found) == len(addresses) and found

        return wait_until(complete, 60, f"the tunnels of {len(addresses)} addresses: {self.log}")


class N3iwfAmf(Program):
    """With 5G-AKA and NAS security, and PDU sessions of several QoS flows."""

    name = "n3iwf_amf"


class RgAmf(Program):
    """The same, for 5G residential gateways: it takes service requests."""

    name = "rg_amf"


@contextlib.contextmanager
def another_set(site, node, address):
    """While it lasts the site's `amf` is one of set 2, with a capacity of 0: only what is rerouted goes there. Gives
    the other one.
    """
    with another_amf(site, node, address, set=2) as first:
        yield first


@contextlib.contextmanager
def another_amf(site, node, address, **options):
    """The same for an AMF with other options."""
    site.core.ip("addr", "add", f"{address}/24", "dev", "amf")
    first = site.amf
    site.amf = type(first)(site.lab, site.core, address, **{**first.options, "name": "other", "capacity": 0, **options})
    try:
        site.gateway.apply(thing("Amf", "other", node=node, addresses=[address]))
        site.amf.wait("setup")

        def associated():
            (found,) = site.gateway.json("get", "amf", "other")
            return all(one.get("reason") != "NoAssociation" for one in found["status"]["conditions"])

        # The agent has the answer of the setup, too.
        wait_until(associated, 40, "the agent knows the AMF")
        yield first
    finally:
        site.gateway.delete("Amf", "other")
        site.amf.kill()
        site.amf = first
        site.core.ip("addr", "del", f"{address}/24", "dev", "amf")


class Ues(Program):
    name = "ue"


def rerouted(core, other):
    """The other AMF has the initial message that the first one gave away (TS 38.413 section 8.6.5)."""
    from core.amf import decode

    first, second = (amf.events("message", name="InitialUEMessage")[-1] for amf in (core, other))
    first, second = (decode(bytes.fromhex(one["octets"]))[1] for one in (first, second))
    assert second["NAS-PDU"] == first["NAS-PDU"] and second["AMFSetID"] == (2, 10) and second["AllowedNSSAI"]
    assert second["RAN-UE-NGAP-ID"] != first["RAN-UE-NGAP-ID"]


class Echo(Program):
    """A peer of SCTP associations that returns messages."""

    name = "echo"
