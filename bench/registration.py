#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Registrations with a 5G core, through the real programs: registration.py [--lines N] [--ues N] [--json FILE]. Needs
root, the built programs and .venv.

Lines of homes (FN-RG) dial in by PPPoE and IPoE; UEs register by EAP-5G and 5G-AKA, with IKEv2 and NAS over TCP. Each
has a PDU session. The core is that of the tests (tests/core), in Python, and limits the rate: so the rows have the CPU
of the agent alone, from discovery or IKE_SA_INIT until the data plane has the session. Then the agent is killed and
started again with all lines: none may register again."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TREE / "tests"))

import test_agf_load  # noqa: E402
from lab import Lab  # noqa: E402
from lab.laboratory import wait_until  # noqa: E402
from lab.n3iwf import Site as N3iwfSite  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
REQUEST = "FGMMRegistrationRequest"


def processor(process):
    """Seconds of CPU that a process had."""
    fields = Path(f"/proc/{process.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(process):
    """MiB of memory without pages of files."""
    text = dict(line.split(":", 1) for line in Path(f"/proc/{process.child.pid}/status").read_text().splitlines())
    return int(text["RssAnon"].split()[0]) / 1024


def lines(count):
    with Lab() as lab:
        site = test_agf_load.Site(lab, count, large=count > 2000)
        gateway = site.gateway
        before, empty, began = processor(gateway.agent), resident(gateway.agent), time.monotonic()
        site.dialer.dial(60 + count)
        wait_until(lambda: gateway.metric("sluice_agf_pdu_sessions") == count, 60, "all PDU sessions")
        spent, seconds = processor(gateway.agent) - before, time.monotonic() - began
        memory, messages = resident(gateway.agent) - empty, gateway.metric("sluice_n2_messages_total")
        registrations = len(site.amf.events("nas", name=REQUEST))
        setups = len(site.amf.events("setup"))
        old, began = gateway.agent, time.monotonic()
        old.kill()
        wait_until(lambda: gateway.agent is not old, 60, "another agent")
        site.amf.wait("setup", setups + 1)
        wait_until(lambda: gateway.metric("sluice_agf_pdu_sessions") == count, 60 + count // 10, "lines are taken over")
        back, restart = time.monotonic() - began, processor(gateway.agent)
        # A UE that lost its context comes back within some seconds.
        time.sleep(5)
        again = len(site.amf.events("nas", name=REQUEST)) - registrations
        requests = len(site.amf.events("nas", name="FGMMServiceRequest"))
        return {
            "scenario": "fn-rg", "count": count, "agent_us": round(1e6 * spent / count), "seconds": round(seconds, 1),
            "n2_messages": round(messages), "n2_messages_a_cpu_second": round(messages / spent),
            "mib": round(memory, 1), "restart_seconds": round(back, 1), "restart_cpu_seconds": round(restart, 2),
            "registered_again": again, "service_requests": requests,
        }  # fmt: skip


def ues(count):
    with Lab() as lab:
        site = N3iwfSite(lab, ues=count, quiet=1)
        agent = site.gateway.agent
        crowd = site.ues(count=count)
        wait_until(lambda: "NoAssociation" not in str(site.gateway.json("get", "amf", "amf")), 30, "the AMF is ready")
        before, empty, began = processor(agent), resident(agent), time.monotonic()
        crowd.do("register")
        patience = max(120, 2 * count)
        wait_until(lambda: len(crowd.events("registered")) == count, patience, f"all UEs register: {crowd.log}")
        registered = processor(agent)
        crowd.do("session")
        wait_until(lambda: len(crowd.events("session")) == count, patience, "all PDU sessions")
        spent, seconds = processor(agent) - before, time.monotonic() - began
        return {
            "scenario": "ue-eap-5g", "count": count, "agent_us": round(1e6 * spent / count),
            "of_session_us": round(1e6 * (spent - registered + before) / count), "seconds": round(seconds, 1),
            "mib": round(resident(agent) - empty, 1),
        }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=400)
    parser.add_argument("--ues", type=int, default=100)
    parser.add_argument("--json", type=Path, help="append the rows to this file")
    given = parser.parse_args()
    for of, count in ((lines, given.lines), (ues, given.ues)):
        if not count:
            continue
        row = of(count)
        print(json.dumps(row), flush=True)
        if given.json:
            with open(given.json, "a") as output:
                output.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
