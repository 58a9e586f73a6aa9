# SPDX-License-Identifier: Apache-2.0
"""The drawings of docs/performance.md."""

import n3iwf
import svg

# Nodes that the bench brings along, or that stand for a device.
NOT_OURS = ("bench-source", "tx", "rx", "inject")
# Which concept a node belongs to, by how its name begins; the first that fits.
CONCEPTS = [
    ("Ethernet, VLANs", ("ether",)),
    ("IPv4, IPv6", ("ip",)),
    ("sessions", ("session",)),
    ("PPPoE", ("pppoe",)),
    ("GTP-U", ("gtpu",)),
    ("ACL", ("acl",)),
    ("meter", ("meter",)),
    ("scheduler and others", ("",)),
]
PERCENTILES = [
    ("least", "min"),
    ("50 %", "p50"),
    ("90 %", "p90"),
    ("99 %", "p99"),
    ("99.9 %", "p99_9"),
    ("most", "max"),
]


def papers(compared):
    names = ["theirs", "ours, without a device", "ours, whole, with memif"]
    rows = [
        (f"{paper['name']}, {table['text'].split(', ')[0]}, {access}", [theirs, ours, whole])
        for paper, table, access, theirs, ours, _, whole in compared
        if theirs
    ]
    return svg.bars("Cycles a packet and core beside the papers'", names, rows, "cycles")


def vpp(results, facts):
    rows = []
    for scenario, theirs in facts["vpp"].items():
        ours = results.figure(scenario)
        # The chain with an ACL would make all others too small to see.
        if ours and theirs < 1000:
            rows.append((scenario, [theirs, ours]))
    return svg.bars("Cycles a packet beside VPP's, least", ["VPP", "Sluice"], rows, "cycles")


def nodes(results, facts):
    rows = []
    for scenario in facts["drawn"]:
        for row in results.of(scenario)[:1]:
            parts = [0.0] * len(CONCEPTS)
            for node, cycles in row["nodes"].items():
                if node not in NOT_OURS:
                    parts[next(n for n, (_, starts) in enumerate(CONCEPTS) if node.startswith(starts))] += cycles
            rows.append((f"{scenario}, {row['packet_bytes']} B", parts))
    return svg.stacks("Where the cycles go, median", [name for name, _ in CONCEPTS], rows, "cycles")


def rates(results):
    rows = [
        (
            row["scenario"].removeprefix("ndr-"),
            [row[each] and row[each] / 1e6 for each in ("ndr_pps", "pdr_pps", "mrr_pps")],
        )
        for row in results.ndr.values()
    ]
    return svg.bars("Whole gateways, one core, both directions together", ["NDR", "PDR", "MRR"], rows, "Mpps")


def latency(results):
    names, series = [], []
    for row in results.ndr.values():
        for load in row["at_load"][:1]:
            # The direction that waits longer.
            worst = max(load["latency_ns"].values(), key=lambda ns: ns["p99"])
            names.append(row["scenario"].removeprefix("ndr-"))
            series.append([worst[each] / 1000 for _, each in PERCENTILES])
    most = len(svg.COLOURS)
    ticks = [name for name, _ in PERCENTILES]
    return svg.curves("Latency at half of NDR", names[:most], ticks, series[:most], "us")


def scaling(results):
    rows, seen = [], set()
    for r in results.several:
        # One frame size represents the others.
        if r["scenario"] not in seen:
            seen.add(r["scenario"])
            figures = [r["alone"]["median"], r["cycles_per_packet"]["median"]]
            rows.append((f"{r['scenario']}, {r['packet_bytes']} B", figures))
    return svg.bars("A worker's cycles a packet, median", ["alone", "while both workers forward"], rows, "cycles")


def drawings(results, facts, compared):
    """Name and file of each."""
    yield "papers", papers(compared)
    yield "vpp", vpp(results, facts)
    yield "nodes", nodes(results, facts)
    yield "rates", rates(results)
    yield "latency", latency(results)
    yield "scaling", scaling(results)
    hertz = next(iter(results.ndr.values()))["conditions"]["tsc_hz"]
    if drawn := n3iwf.drawing(results, hertz):
        yield "n3iwf", drawn
