#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/performance.md and its drawings from results: report.py RESULTS-FOLDER DOCS-FOLDER. The results are
nodes.json of sluice-bench and reconcile-bench, ndr.json, tunnels.json, latency.json, setup.json, and run.json of the
run as a whole."""

import json
import os
import platform
import sys
from pathlib import Path

import control_plane
import esp
import ike_pairs
import n3iwf
import plots
import subscribers
import yaml

HERE = Path(__file__).parent


class Results:
    """Results by scenario."""

    def __init__(self, folder):
        nodes = json.loads((folder / "nodes.json").read_text())
        self.control = [row for row in nodes if row["scenario"].startswith(("reconcile-", "services-"))]
        self.rates = [row for row in nodes if row["scenario"].startswith("rate-")]
        self.shared = [row for row in nodes if row["scenario"].startswith("one-queue-")]
        apart = {id(row) for row in self.rates + self.shared}
        self.ways = [row for row in nodes if row["scenario"].startswith("ways-") and row["workers"] == 1]
        self.ciphers = [row for row in nodes if row["scenario"].startswith("cipher-")]
        apart |= {id(row) for row in self.ways + self.ciphers}
        self.single = [row for row in nodes if row.get("workers") == 1 and id(row) not in apart]
        self.several = [row for row in nodes if row.get("workers", 0) > 1 and id(row) not in apart]
        self.ndr = {row["scenario"]: row for row in json.loads((folder / "ndr.json").read_text())}
        tunnels = folder / "tunnels.json"
        rows = json.loads(tunnels.read_text()) if tunnels.exists() else []
        self.tunnels = {row["scenario"]: row for row in rows}
        self.latency = json.loads((folder / "latency.json").read_text())
        self.setup = [
            row
            for name in ("setup.json", "setup-planes.json")
            if (folder / name).exists()
            for row in json.loads((folder / name).read_text())
        ]
        self.run = json.loads((folder / "run.json").read_text())

    def of(self, scenario, size=None):
        return [r for r in self.single if r["scenario"] == scenario and size in (None, r["packet_bytes"])]

    def figure(self, scenario, size=None, which="min", several=False):
        """The least over frame sizes, or None; `several`: of a worker while all forward."""
        rows = self.of(scenario, size)
        if several:
            rows = [r for r in self.several if r["scenario"] == scenario and size in (None, r["packet_bytes"])]
        return min((r["cycles_per_packet"][which] for r in rows), default=None)


def cpu():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def share_of_packets(frames):
    """Of each direction, from its part of the bytes."""
    packets = {way: frame["share_of_bytes"] / frame["bytes"] for way, frame in frames.items()}
    return {way: each / sum(packets.values()) for way, each in packets.items()}


def their_cycles(paper, table):
    """Cycles a packet and core; None if the paper has no number."""
    if "gbit_per_second" not in table:
        return None
    mean = sum(share * table["frames"][way]["bytes"] for way, share in share_of_packets(table["frames"]).items())
    packets = table["gbit_per_second"] * 1e9 / 8 / mean
    return paper["cores"] * paper["ghz"] * 1e9 / packets


def first_measured(results, scenarios, *what):
    """Of several scenarios the figure of the first that there is one of."""
    for scenario in [scenarios] if isinstance(scenarios, str) else scenarios:
        # A worker that receives the traffic of its own port is the equivalent of the papers' instance.
        figure = results.figure(f"{scenario}-steered", *what) or results.figure(scenario, *what)
        if figure is not None:
            return figure
    return None


def our_cycles(results, table, access, which="median", several=False):
    """The mean of the directions, weighted by their packets; None if one was not measured."""
    shares = share_of_packets(table["frames"])
    found = {
        way: first_measured(results, table["ours"][access][way], frame["bytes"], which, several)
        for way, frame in table["frames"].items()
    }
    return None if None in found.values() else sum(shares[way] * cycles for way, cycles in found.items())


def whole_cycles(results, table, access):
    """Of the first of the whole gateways that was measured."""
    for name in table["whole"].get(access, ()):
        row = results.ndr.get(name)
        if row and row["ndr_pps"]:
            return row["conditions"]["tsc_hz"] / row["ndr_pps"]
    return None


def compared(results, facts):
    """(paper, table, access, theirs, ours, least of ours, whole) for each that was measured."""
    for paper in facts["papers"]:
        for table in paper["tables"]:
            for access in table["ours"]:
                ours = our_cycles(results, table, access)
                if ours:
                    least = our_cycles(results, table, access, "min")
                    whole = whole_cycles(results, table, access)
                    yield paper, table, access, their_cycles(paper, table), ours, least, whole


def cell(value, form="{:.0f}"):
    return "" if value is None else form.format(value)


def ratio(ours, theirs):
    return "" if ours is None or theirs is None else f"{ours / theirs:.2f}"


def paper_tables(results, facts):
    for paper in facts["papers"]:
        yield f"### {paper['name']}\n\n{paper['title']}. Conditions: {paper['conditions']}.\n"
        yield "| table | access | theirs | ours | least | ratio | two workers, each | whole | ratio |"
        yield "|---|---|---|---|---|---|---|---|---|"
        for of, table, access, theirs, ours, least, whole in compared(results, facts):
            if of is paper:
                two = our_cycles(results, table, access, several=True)
                yield (
                    f"| {table['name']}: {table['text']} | {access} | {cell(theirs, '{:,.0f}') or 'no figure'} | "
                    f"{ours:.0f} | {least:.0f} | {ratio(ours, theirs)} | {cell(two)} | {cell(whole)} | {ratio(whole, theirs)} |"
                )
        yield ""


def scheduler_rows(results):
    """Ours beside DPDK's, where both were measured with as many subscribers."""
    for r in results.single:
        if r["scenario"].startswith("hqos-"):
            theirs = results.figure(r["scenario"].replace("hqos", "rte-sched"), which="median")
            c = r["cycles_per_packet"]
            yield (
                f"| `{r['scenario']}` | {r['flows']:,} | {c['min']:.0f} | {c['median']:.0f} | {cell(theirs)} | "
                f"{ratio(c['median'], theirs)} |"
            )


SCHEDULER = """## The scheduler by itself

Enqueue and dequeue together, median, random subscribers; *backlog*: four packets a subscriber always wait. `rte_sched` is DPDK's, in the same run.

| scenario | subscribers | least | median | `rte_sched` | ratio |
|---|---|---|---|---|---|
"""


def scheduler(results):
    rows = "\n".join(scheduler_rows(results))
    return f"{SCHEDULER}{rows}\n\n" if rows else ""


# The bench's number for a mix of sizes (SIZE_IMIX).
IMIX = 1
CIPHER_SIZES = (64, 650, 1418, 1518, IMIX)

CIPHERS = """## Ciphers by themselves

The crypto engine's call alone, over the bytes that ESP in tunnel mode encrypts for frames of these sizes, four security associations in turn, by the engine
that was the fastest when the bench started: cycles a packet, median and, in brackets, least. IMIX: of twelve packets seven of 64, four of 570 and one of 1,518 bytes.

| scenario | 64 | 650 | 1418 | 1518 | IMIX |
|---|---|---|---|---|---|
"""


def cipher_rows(results):
    by_scenario = {}
    for r in results.ciphers:
        by_scenario.setdefault(r["scenario"], {})[r["packet_bytes"]] = r["cycles_per_packet"]
    for scenario, sizes in by_scenario.items():
        cells = (sizes.get(size) for size in CIPHER_SIZES)
        yield (
            f"| `{scenario}` | " + " | ".join(f"{c['median']:.0f} ({c['min']:.0f})" if c else "" for c in cells) + " |"
        )


def ciphers(results):
    rows = "\n".join(cipher_rows(results))
    return f"{CIPHERS}{rows}\n\n" if rows else ""


def differences(facts):
    for paper in facts["papers"]:
        yield (
            f"- {paper['name']}: {paper['hardware']}. Made comparable as {paper['cores']} cores x {paper['ghz']} GHz / "
            "packets a second."
        )
    yield (
        f"- Ours: {cpu()}, a virtual machine that shares its hardware, TSC cycles. In-process figures have no device; "
        "whole ones have memif, which copies where a card would use DMA, and no virtual functions."
    )


def target_rows(results, facts):
    for scenario, wanted in facts["targets"].items():
        sizes = wanted if isinstance(wanted, dict) else {r["packet_bytes"]: wanted for r in results.of(scenario)}
        for size, target in sizes.items():
            median, least = (results.figure(scenario, size, which) for which in ("median", "min"))
            if median is not None:
                met = "yes" if round(median) <= target else "**no**"
                yield f"| `{scenario}` | {size} | {target} | {median:.0f} | {least:.0f} | {met} |"

    for scenario, (other, part) in facts["parts"].items():
        ours, least, theirs = (
            results.figure(name, None, which)
            for name, which in ((scenario, "median"), (scenario, "min"), (other, "median"))
        )
        if ours is not None and theirs is not None:
            met = "yes" if ours <= part * theirs else "**no**"
            yield f"| `{scenario}` | 128 | {part:g} of `{other}`: {part * theirs:.0f} | {ours:.0f} | {least:.0f} | {met} |"


def gain(row):
    """The rate of a row's workers over the rate of one times their number, as a part of the arithmetic gain."""
    return row["alone"]["median"] / row["cycles_per_packet"]["median"] * row["compute_ratio"]


def gain_rows(results, facts):
    by_scenario = {}
    for row in results.several:
        by_scenario.setdefault(row["scenario"], []).append(gain(row))
    for scenario, gains in by_scenario.items():
        met = "yes" if round(min(gains), 2) >= facts["gain"] else "**no**"
        yield f"| `{scenario}` | {facts['gain']:g} | {min(gains):.2f} to {max(gains):.2f} | {met} |"


def table_rows(results, facts):
    for r in results.single:
        c, vpp = r["cycles_per_packet"], facts["vpp"].get(r["scenario"])
        quotient = f"{c['min'] / vpp:.2f}" if vpp else ""
        yield (
            f"| `{r['scenario']}` | {r['packet_bytes']} | {r['flows']:,} | {c['min']:.0f} | {c['median']:.0f} | "
            f"{r['bare_loop']:.0f} | {vpp or ''} | {quotient} |"
        )


def verdict(results, facts):
    """Compares the lowest figures of a scenario with four fifths of VPP's, at its worst and best frame size."""
    met, missed = [], []
    for scenario, vpp in facts["vpp"].items():
        ratios = [r["cycles_per_packet"]["min"] / vpp for r in results.of(scenario)]
        if ratios:
            text = f"`{scenario}` ({min(ratios):.2f} to {max(ratios):.2f})"
            (met if max(ratios) <= 0.8 else missed).append(text)
    lines = ["In this run the least figures are at most 0.8 of VPP's at every frame size for " + ", ".join(met) + "."]
    if missed:
        lines.append("Not so, at one frame size at least, for " + ", ".join(missed) + ".")
    return " ".join(lines)


def added_rows(results, facts):
    for scenario, (base, vpp) in facts["adds"].items():
        with_it, without = results.figure(scenario), results.figure(base)
        if with_it and without:
            yield f"| `{scenario}` over `{base}` | {with_it - without:.0f} | {vpp} |"


def gbit(row, rate):
    """Of frames without preamble and gap."""
    return rate * sum(row["share_of_packets"][way] * size for way, size in row["packet_bytes"].items()) * 8 / 1e9


def rate_cell(row, rate):
    """In Mpps, and from the least to the most of several."""
    several = sorted(each for each in row.get(f"{rate}_searches", row.get(f"{rate}_trials", ())) if each)
    spread = f" ({several[0] / 1e6:.2f} to {several[-1] / 1e6:.2f})" if len(several) > 1 else ""
    return cell(row[rate] and row[rate] / 1e6, "{:.2f}") + spread


def ndr_rows(results):
    for row in results.ndr.values():
        ndr, cycles = row["ndr_pps"], row["mrr_gateway_cycles_per_packet"]
        rates = " | ".join(rate_cell(row, each) for each in ("ndr_pps", "pdr_pps", "mrr_pps"))
        if not row["holds"]:
            rates = "does not hold: " + rates
        sizes = " / ".join(str(row["packet_bytes"].get(way, "")) for way in ("up", "down"))
        whole = row["conditions"]["tsc_hz"] / ndr if ndr else None
        yield (
            f"| `{row['scenario']}` | {sizes} | {row['flows']:,} | {rates} | {cell(ndr and gbit(row, ndr), '{:.1f}')} | "
            f"{cycles['graph']:.0f} | {cycles['transmit']:.0f} | {cell(whole)} | "
            f"{row['slowness']['median']:.2f} / {row['slowness']['most']:.2f} |"
        )


def ndr_latency_rows(results):
    for row in results.ndr.values():
        for load in row["at_load"]:
            for way, ns in load["latency_ns"].items():
                figures = " | ".join(f"{ns[each] / 1000:,.1f}" for each in ("min", "p50", "p90", "p99", "p99_9", "max"))
                yield (
                    f"| `{row['scenario']}` | {load['percent_of_ndr']} % | {way} | {figures} | "
                    f"{load['lost']:,} of {load['offered']:,} |"
                )


def scaling_rows(results):
    for r in results.several:
        together, alone = r["cycles_per_packet"], r["alone"]
        yield (
            f"| `{r['scenario']}` | {r['packet_bytes']} | {r['workers']} | {together['min']:.0f} | {alone['min']:.0f} | "
            f"{together['min'] / alone['min']:.2f} | {together['median']:.0f} | {alone['median']:.0f} | "
            f"{together['median'] / alone['median']:.2f} | {r['compute_ratio']:.2f} | {gain(r):.2f} |"
        )


def shared_rows(results):
    for r in results.shared:
        together, alone = r["cycles_per_packet"]["median"], r["alone"]["median"]
        yield (
            f"| `{r['scenario']}` | {r['packet_bytes']} | {r['workers']} | {alone:.0f} | {together:.0f} | "
            f"{alone / together:.2f} | {r['workers'] / r['compute_ratio']:.2f} |"
        )


def rate_rows(results):
    """A row for each number of flows and workers, a column for each way to share buckets."""
    for (flows, workers), of in sorted(rate_cycles(results).items()):
        ways = " | ".join(f"{of[way]:.0f}" for way in ("lock", "atomic", "lease", "queues", "ordered"))
        yield f"| {flows:,} | {workers} | {ways} |"


def rate_cycles(results):
    """By flows and workers, cycles of each way to share buckets."""
    cycles = {}
    for r in results.rates:
        way = r["scenario"].rsplit("-", 1)[1]
        cycles.setdefault((r["flows"], r["workers"]), {})[way] = r["cycles_per_packet"]["median"]
    return cycles


def ucpe_rows(results):
    """The throughput of two workers relative to one, for each way."""
    cycles = rate_cycles(results)
    for flows in sorted({flows for flows, _ in cycles}):
        one, two = cycles.get((flows, 1)), cycles.get((flows, 2))
        if one and two:
            gains = " | ".join(f"{2 * one[way] / two[way]:.2f}" for way in ("lock", "queues", "atomic", "lease"))
            fastest = min(two, key=two.get)
            yield f"| {flows:,} | {gains} | {two['lock']:.0f} | {two['queues']:.0f} | {two[fastest]:.0f}, {WAY_NAMES[fastest]} |"


WAY_NAMES = {
    "lock": "lock",
    "atomic": "compare and exchange",
    "lease": "lease",
    "queues": "atomic queues",
    "ordered": "ordered queues",
}


def way_rows(results):
    """A row for each table that is looked up in several ways."""
    by_scenario = {}
    for r in results.ways:
        name, way = r["scenario"].rsplit("-", 1)
        by_scenario.setdefault(name.removeprefix("ways-"), {})[way] = r["cycles_per_packet"]
    for name, ways in by_scenario.items():
        fastest = min(ways, key=lambda way: ways[way]["median"])
        figures = ", ".join(
            f"{'**' if way == fastest else ''}{way} {c['median']:.0f}{'**' if way == fastest else ''} ({c['min']:.0f})"
            for way, c in ways.items()
        )
        yield f"| `{name}` | {figures} |"


def latency_rows(results):
    for r in results.latency:
        busy = "" if r["processor"] is None else f"{100 * r['processor']:.0f} %"
        yield f"| {r['router']} | {r['median_us']:.0f} | {r['p99_us']:.0f} | {busy} |"


def node_rows(results):
    seen = set()
    for r in results.single:
        if r["scenario"] in seen:
            continue
        seen.add(r["scenario"])
        nodes = {n: c for n, c in r["nodes"].items() if n not in plots.NOT_OURS}
        yield (
            f"| `{r['scenario']}` | "
            + ", ".join(f"{n} {c:.0f}" for n, c in sorted(nodes.items(), key=lambda x: -x[1]))
            + " |"
        )


def page(results, facts):
    conditions = next(iter(results.ndr.values()))["conditions"]
    texts = {
        "date": results.run["date"],
        "took": results.run["seconds"],
        "pages": results.run["huge_pages"],
        "ghz": conditions["tsc_hz"] / 1e9,
        "cpu": cpu(),
        "processors": len(os.sched_getaffinity(0)),
        "hqos": facts["scheduler"]["with" if results.of("agf-down-4k-hqos") else "without"],
        "scheduler": scheduler(results),
        "ciphers": ciphers(results),
        "esp": esp.section(results),
        "tunnels": ike_pairs.section(results.tunnels),
        "n3iwf": n3iwf.section(results, conditions["tsc_hz"]),
        "ucpe_title": facts["ucpe"]["title"],
        "ucpe_hardware": facts["ucpe"]["hardware"],
        "verdict": verdict(results, facts),
        "ring": f"{conditions['ring']:,}",
        "trial": f"{conditions['trial_seconds'][0]:g} to {conditions['trial_seconds'][1]:g}",
        "sum": conditions["duration_sum"],
        "width": 100 * conditions["relative_width"],
        "exceed": 100 * conditions["exceed_ratio"],
        "searches": conditions["searches"],
        "mrr_trials": len(next(iter(results.ndr.values()))["mrr_pps_trials"]),
        "workers": "two" if all(r["workers"] == 2 for r in results.several) else "several",
        "control": control_plane.text(results.control),
        "subscribers": subscribers.text(results.setup),
        "pings": min(r["pings"] for r in results.latency),
    }
    tables = {
        "papers": paper_tables(results, facts),
        "differences": differences(facts),
        "targets": target_rows(results, facts),
        "gains": gain_rows(results, facts),
        "ucpe": ucpe_rows(results),
        "ways": way_rows(results),
        "rows": table_rows(results, facts),
        "adds": added_rows(results, facts),
        "ndr": ndr_rows(results),
        "ndr_latency": ndr_latency_rows(results),
        "scaling": scaling_rows(results),
        "shared": shared_rows(results),
        "rates": rate_rows(results),
        "latency": latency_rows(results),
        "nodes": node_rows(results),
    }
    tables = {name: "\n".join(lines).rstrip() for name, lines in tables.items()}
    return (HERE / "performance.md.in").read_text().format(**texts, **tables)


def main():
    results, docs = Results(Path(sys.argv[1])), Path(sys.argv[2])
    facts = yaml.safe_load((HERE / "papers.yaml").read_text())
    (docs / "performance.md").write_text(page(results, facts))
    folder = docs / "performance"
    folder.mkdir(exist_ok=True)
    for name, drawing in plots.drawings(results, facts, list(compared(results, facts))):
        (folder / f"{name}.svg").write_text(drawing)


if __name__ == "__main__":
    main()
