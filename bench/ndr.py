#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NDR, PDR and MRR, latency and loss of whole gateways (RFC 2544): ndr.py [--only REGEX] [--json FILE]. Needs root and
the built programs.

Gateway and traffic generator are processes of their own, each with one core, joined by two memif links. Packets are
copied four times between them, and the generator takes part in every one, so a rate is that of this pair on this
machine. The gateway's cycles a packet, by its own counters in the same trials, may be compared between runs.
Where other programs run, too, `chrt -f 50` keeps them out of the trials; between these they get their turn, as the
kernel takes a core from who polls without end at a real-time priority for 50 ms of every second.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path
from typing import ClassVar

TREE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TREE / "tests"))

import contract  # noqa: E402
from chains import CHAINS  # noqa: E402
from generator import Generator, GeneratorError  # noqa: E402
from lab import Gateway, Lab  # noqa: E402
from plr import TARGET, Soak, Soaking, soak  # noqa: E402
from throughput import PDR_LOSS_RATIO, Search, middle_search, received_rate, search, searches  # noqa: E402
from tunnels import KEYS, TUNNELS, Tunnels  # noqa: E402

RING_LOG2, PUT_AT_ONCE = 11, 1000
# Nodes that work for the device rather than for the packet.
DEVICE_NODES = ("rx", "tx", "tx-handover")
LOADS = (50, 90)
# An NDR at nine tenths of which more is lost was a lucky one.
HOLDS_LOSS_RATIO = 0.001
# Pairs of trials, of which each gives a ratio.
PAIRS = 15


def memif(directory, number, role):
    ring = f",rsize={RING_LOG2}" if role == "client" else ""
    return f"net_memif{number},role={role},socket={directory}/link-{number}.sock,socket-abstract=no,id={number}{ring}"


def cores():
    """The generator's and the gateway's worker's; the gateway's main thread, which sleeps, shares the former."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


class Priority:
    """While it is entered, threads have a real-time priority; 0 leaves them alone. Then all others have their turn."""

    def __init__(self, threads, level):
        self.threads, self.level = threads if level else [], level

    def __enter__(self):
        self.began = time.monotonic()
        for thread in self.threads:
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(self.level))

    def __exit__(self, *_):
        for thread in self.threads:
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        if self.threads:
            time.sleep(0.1 * (time.monotonic() - self.began))


def workers(pid):
    """A data plane's threads that forward, by the name that DPDK gives them."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(task.name) for task in tasks if "worker" in (task / "comm").read_text()]


class Speed:
    """Whether generator and gateway have the whole of their cores. On a machine that is shared with others they do not
    always: a neighbour on the same core halves everything for seconds, and says nothing of it.

    A trial is kept if arithmetic took hardly longer before and after it than ever in this run, and is done again if
    not; as often as there is patience for, of which a chain has some seconds."""

    WHOLE, TRIES, PATIENCE, REST = 1.2, 4, 10.0, 0.25
    least: ClassVar[dict] = {}

    def __init__(self, measure):
        self.measure, self.patience, self.kept, self.again = measure, self.PATIENCE, [], 0
        for _ in range(20):
            self.now()

    def now(self):
        """How many times longer than at best, on the slower of the two."""
        slower = 1.0
        for which, cycles in enumerate(self.measure()):
            self.least[which] = min(cycles, self.least.get(which, cycles))
            slower = max(slower, cycles / self.least[which])
        return slower

    def undisturbed(self, trial):
        best, slowest = None, float("inf")
        for number in range(self.TRIES):
            began, before = time.monotonic(), self.now()
            outcome = trial()
            slow = max(before, self.now())
            if slow < slowest:
                best, slowest = outcome, slow
            if slowest <= self.WHOLE or self.patience <= 0 or number + 1 == self.TRIES:
                break
            time.sleep(self.REST)
            self.again += 1
            self.patience -= time.monotonic() - began
        self.kept.append(slowest)
        return best


class Bench:
    """A gateway that forwards one chain, and the generator at both of its ports. To be closed. `priority`: of both
    while a trial runs."""

    def __init__(self, lab, chain, huge=True, own_cores=True, priority=0):
        generator_core, worker_core = cores()
        self.chain, self.link = chain, lab.directory
        self.generator = Generator(
            lab.directory, [memif(self.link, number, "server") for number in range(2)], generator_core, huge
        )
        lab.on_close(self.generator.close)
        options = {"cores": f"{generator_core},{worker_core}"} if own_cores else {}
        self.gateway = Gateway(
            lab, lab.namespace("gateway"), agent=chain.agent, huge=huge, buffers=32768 if huge else 12288, **options
        )
        self.connection = contract.Connection(self.gateway.dataplane_socket)
        devices = [memif(self.link, number, "client") for number in range(2)]
        if chain.agent:
            # A link of the gateway with itself. DPDK keeps what it knows of a socket by the name, so it has two.
            near = memif(f"{self.link}/.", 2, "client").replace("memif2", "memif3")
            devices += [near, memif(self.link, 2, "server")]
            chain.configure(self.gateway, devices)
        else:
            self.put(chain.objects(devices))
        self.priority = Priority([self.generator.child.pid, *workers(self.gateway.dataplane.pid)], priority)
        for stream in chain.streams():
            self.generator.add(stream)
        self.generator.wait_for_links()
        self.speed = Speed(lambda: self.generator.speed(worker_core)) if own_cores else None
        # The gateway's main thread has seen the links, too, when it lets traffic through.
        end = time.monotonic() + 10
        while self.trial(0.01, 1000).lost and time.monotonic() < end:
            time.sleep(0.05)

    def put(self, things):
        things = iter(things)
        while some := list(itertools.islice(things, PUT_AT_ONCE)):
            answers = self.connection.put(*some)
            wrong = [answer.message for answer in answers if answer.code]
            if wrong:
                raise RuntimeError(f"{self.chain.name}: {wrong[0]}")

    def trial(self, seconds, rate):
        return self.undisturbed(lambda: self.any_trial(seconds, rate))

    def any_trial(self, seconds, rate):
        with self.priority:
            return self.generator.trial(seconds, rate)

    def undisturbed(self, trial):
        return self.speed.undisturbed(trial) if self.speed else trial()

    def node_counters(self):
        answer = self.connection.read(contract.api.NodeCountersQuery())
        return {node.node: (node.packets, node.cycles) for node in answer.nodes}

    def counted_trial(self, seconds, rate):
        """A trial, and the gateway's cycles for each packet that came through, by node; one without any only polled."""
        return self.undisturbed(lambda: self.any_counted_trial(seconds, rate))

    def any_counted_trial(self, seconds, rate):
        before = self.node_counters()
        outcome = self.any_trial(seconds, rate)
        after = self.node_counters()
        received = outcome.total("received")
        nodes = {
            name: (after[name][1] - before[name][1]) / received
            for name in after
            if received and name in before and after[name][0] > before[name][0]
        }
        return outcome, {
            "graph": sum(cycles for name, cycles in nodes.items() if name not in DEVICE_NODES),
            "transmit": nodes.get("tx", 0.0),
            "nodes": {name: cycles for name, cycles in nodes.items() if name != "rx" and cycles >= 0.05},
        }

    def close(self):
        self.connection.close()


def middle_trial(bench, rate, how):
    """The median of several trials, by loss and then by the 99th percentile of latency."""
    trials = [bench.counted_trial(how.trial_seconds, rate) for _ in range(how.mrr_trials)]

    def order(trial):
        return trial[0].lost, max(stream["latency_ns"]["p99"] for stream in trial[0].streams)

    return sorted(trials, key=order)[len(trials) // 2]


def at_load(bench, rate, percent, how):
    outcome, cycles = middle_trial(bench, rate * percent / 100, how)
    return {
        "percent_of_ndr": percent,
        "pps": rate * percent / 100,
        "offered": outcome.total("offered"),
        "lost": outcome.lost,
        "reordered": outcome.total("reordered"),
        "latency_ns": {stream["name"]: stream["latency_ns"] for stream in outcome.streams},
        "gateway_cycles_per_packet": cycles,
    }


def greatest_rate(bench, how):
    """MRR, the median of several trials: the rate that comes through under overload."""
    return middle_rate([overload(bench, how) for _ in range(how.mrr_trials)])


def overload(bench, how):
    """A trial under overload: the rate that comes through, the one that was offered, cycles, and the outcome."""
    outcome, cycles = bench.counted_trial(how.trial_seconds, how.greatest_load)
    seconds = outcome.seconds + outcome.stalled
    return received_rate(outcome), outcome.total("offered") / seconds, cycles, outcome


def middle_rate(trials):
    trials = sorted(trials, key=lambda trial: trial[0])
    rate, offered, _, outcome = trials[len(trials) // 2]
    return {
        "mrr_pps": rate,
        "mrr_pps_trials": [trial[0] for trial in trials],
        "mrr_offered_pps": offered,
        "mrr_received": {stream["name"]: stream["received"] for stream in outcome.streams},
        "mrr_gateway_cycles_per_packet": min((trial[2] for trial in trials), key=lambda cycles: cycles["graph"]),
    }


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown"


def conditions(bench, how, priority, began):
    """How a row was measured."""
    return {
        "slowness": {
            "median": statistics.median(bench.speed.kept),
            "most": max(bench.speed.kept),
            "again": bench.speed.again,
        },
        "conditions": {
            "trial_seconds": [how.first_trial_seconds, how.trial_seconds],
            "duration_sum": how.duration_sum,
            "searches": how.searches,
            "exceed_ratio": how.exceed_ratio,
            "relative_width": how.relative_width,
            "pdr_loss_ratio": PDR_LOSS_RATIO,
            "plr_loss_ratio": TARGET,
            "ring": 1 << RING_LOG2,
            "real_time_priority": priority,
            "generator_core": cores()[0],
            "gateway_core": cores()[1],
            "processor": processor(),
            "tsc_hz": bench.generator.tsc_hz,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "seconds": time.monotonic() - began,
        },
    }


def in_turn(bench, turns, call):
    """Calls for each stream alone, as often as there are turns, the one of them first and then the other. Results by
    the stream's name."""
    found = {name: [] for name in KEYS}
    try:
        for turn in range(turns):
            for name in KEYS if turn % 2 == 0 else reversed(KEYS):
                bench.generator.only = {name}
                found[name].append(call())
    finally:
        bench.generator.only = None
    return found


def ratios(found, figure):
    """Of each pair of results, IKE's divided by the other, in their order."""
    static, ike = (found[name] for name in KEYS)
    return sorted(figure(two) / figure(one) for one, two in zip(static, ike, strict=True))


def soak_in_turn(bench, soaking, greatest):
    """PLRsearch of both streams, by a trial of each in turn."""
    soaks = {name: Soaking(bench.trial, soaking, greatest[name]) for name in KEYS}
    going = True
    try:
        while going:
            going = False
            for name, one in soaks.items():
                bench.generator.only = {name}
                going |= one.step()
    finally:
        bench.generator.only = None
    return {name: one.found() for name, one in soaks.items()}


def measure_pair(chain, how, priority, soaking):
    """A row for each sort of tunnel. Columns of both were measured in turn, trial by trial."""
    with Lab() as lab, contextlib.closing(Bench(lab, chain, priority=priority)) as bench:
        began = time.monotonic()
        trials = in_turn(bench, PAIRS, lambda: overload(bench, how))
        pairs = {
            "mrr_pps": ratios(trials, lambda trial: trial[0]),
            "graph": ratios(trials, lambda trial: trial[2]["graph"]),
        }
        rows = {name: middle_rate(trials[name]) for name in KEYS}
        greatest = max(row["mrr_pps"] for row in rows.values())
        limited = dataclasses.replace(how, greatest_load=2 * greatest)
        searched = in_turn(bench, how.searches, lambda: search(bench.trial, limited))
        soaked = soak_in_turn(bench, soaking, {name: rows[name]["mrr_pps"] for name in KEYS}) if soaking.seconds else {}
        for name, row in rows.items():
            row |= middle_search(searched[name]) | soaked.get(name, {})
            bench.generator.only = {name}
            row["at_load"] = [at_load(bench, row["ndr_pps"], each, how) for each in LOADS if row["ndr_pps"]]
            row["holds"] = all(each["lost"] <= HOLDS_LOSS_RATIO * each["offered"] for each in row["at_load"])
        bench.generator.only = None
        both = {"flows": chain.flows, "packet_bytes": {"up": chain.up}, "ratios": pairs, "about": chain.about}
        both |= conditions(bench, how, priority, began)
        names = {name: {"scenario": f"ndr-ipsec-{name}-{chain.count}"} for name in KEYS}
        return [names[name] | both | rows[name] for name in KEYS]


def measure(chain, how, priority, soaking):
    if isinstance(chain, Tunnels):
        return measure_pair(chain, how, priority, soaking)
    with Lab() as lab, contextlib.closing(Bench(lab, chain, priority=priority)) as bench:
        began = time.monotonic()
        row = {
            "scenario": f"ndr-{chain.name}",
            "about": chain.about,
            "flows": chain.flows,
            "packet_bytes": {stream.name: stream.size for stream in bench.generator.streams},
            "share_of_packets": {stream.name: stream.share for stream in bench.generator.streams},
        }
        row |= greatest_rate(bench, how)
        for _ in range(2):
            row |= searches(bench.trial, dataclasses.replace(how, greatest_load=2 * row["mrr_pps"]))
            row["at_load"] = [at_load(bench, row["ndr_pps"], each, how) for each in LOADS if row["ndr_pps"]]
            row["holds"] = all(each["lost"] <= HOLDS_LOSS_RATIO * each["offered"] for each in row["at_load"])
            if row["holds"]:
                break
        if soaking.seconds:
            row |= soak(bench.trial, soaking, row["mrr_pps"])
        return [row | conditions(bench, how, priority, began)]


def rate_text(rate):
    return "none" if rate is None else f"{rate / 1e6:.3f}"


def print_row(row):
    cycles = row["mrr_gateway_cycles_per_packet"]["graph"]
    half = row["at_load"][0]["latency_ns"] if row["at_load"] else {}
    latency = " ".join(f"{name} {each['p50'] / 1000:.1f}/{each['p99'] / 1000:.1f}" for name, each in half.items())
    print(
        f"{row['scenario']:<31}{row['flows']:>7}{rate_text(row['ndr_pps']):>9}{rate_text(row['pdr_pps']):>9}"
        f"{rate_text(row['mrr_pps']):>9}{cycles:>9.0f}{row['slowness']['most']:>7.2f}  {latency}"
        f"{'  (late)' if row['late'] else ''}{'' if row['holds'] else '  (loses below it)'}"
        f"{'  PLR ' + rate_text(row['plr_pps']) if 'plr_pps' in row else ''}",
        flush=True,
    )


def print_ratios(found):
    """Of pairs of trials, IKE's divided by the other."""
    for figure, each in found.items():
        spread = f"{each[0]:.3f} to {each[-1]:.3f} in {len(each)} pairs"
        print(f"    ratio of {figure}: {statistics.median(each):.3f}, {spread}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="scenarios whose names have this regular expression in them")
    parser.add_argument("--json", help="write the results into this file")
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    parser.add_argument(
        "--soak", type=float, default=0, help="seconds of PLRsearch, which finds the rate of one loss in ten million"
    )
    for each in dataclasses.fields(Search):
        name = "--" + each.name.replace("_", "-")
        parser.add_argument(name, type=each.type, default=each.default, help="(%(default)s)")
    return parser.parse_args()


def main():
    given = arguments()
    how = Search(**{each.name: getattr(given, each.name) for each in dataclasses.fields(Search)})
    chains = [chain for chain in [*CHAINS, *TUNNELS] if re.search(given.only, f"ndr-{chain.name}")]
    if given.list:
        print("\n".join(f"ndr-{chain.name}" for chain in chains))
        return 0
    if len(set(cores())) < 2:
        print("ndr: one processor, and generator and gateway need one each", file=sys.stderr)
        return 1
    rows, failed, priority = [], 0, 0
    if os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR):
        priority = os.sched_getparam(0).sched_priority
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    print(
        f"{'scenario':<31}{'flows':>7}{'NDR':>9}{'PDR':>9}{'MRR':>9}{'cycles':>9}{'slow':>7}  us at half: median/99th"
    )
    for chain in chains:
        try:
            measured = measure(chain, how, priority, Soak(seconds=given.soak))
        except (GeneratorError, RuntimeError, OSError) as error:
            print(f"ndr-{chain.name}: {error}", file=sys.stderr)
            failed = 1
        else:
            rows += measured
            for row in measured:
                print_row(row)
            if "ratios" in measured[0]:
                print_ratios(measured[0]["ratios"])
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
