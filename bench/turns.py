#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two versions of the data plane, scenario by scenario in turns: turns.py [--only REGEX] [--turns N] [--json FILE]
BEFORE AFTER. BEFORE and AFTER are trees whose build/dataplane/bench/sluice-bench is built. The figure of a scenario and
frame size is the least of all turns, in TSC cycles a packet; scenarios that only one version has are left out. Needs
root and huge pages (HUGE_PAGES, as make bench)."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = "build/dataplane/bench/sluice-bench"
# Two figures that differ by less are equal: the resolution of a window of the bench.
RESOLUTION = 1.0


def scenarios(tree):
    listed = subprocess.run([tree / PROGRAM, "--list"], check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


def measure(tree, scenario):
    """Least cycles of a scenario, by frame size; those for arguments of their own are not measured."""
    with tempfile.NamedTemporaryFile() as file:
        command = [tree / PROGRAM, "--only", f"^{re.escape(scenario)}$", "--json", file.name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
        rows = json.loads(Path(file.name).read_text())
    return {row["packet_bytes"]: row["cycles_per_packet"]["min"] for row in rows if row["scenario"] == scenario}


def turns(before, after, scenario, number):
    """[(bytes, least before, least after)]. The one that begins changes with each turn."""
    least = {}
    for turn in range(number):
        for which in ("before", "after") if turn % 2 == 0 else ("after", "before"):
            for size, cycles in measure(before if which == "before" else after, scenario).items():
                least[size, which] = min(cycles, least.get((size, which), cycles))
    both = sorted({size for size, _ in least if (size, "before") in least and (size, "after") in least})
    return [(size, least[size, "before"], least[size, "after"]) for size in both]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--only", default="", help="a regular expression: only these scenarios")
    parser.add_argument("--turns", type=int, default=3, help="of each version")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    before, after = options.before.resolve(), options.after.resolve()
    common = [name for name in scenarios(after) if name in set(scenarios(before)) and re.search(options.only, name)]
    if not common:
        sys.exit("turns: the two versions have no such scenario in common")
    rows = []
    print("| scenario | bytes | before | after | ratio |\n|---|---|---|---|---|")
    for scenario in common:
        for size, old, new in turns(before, after, scenario, options.turns):
            ratio = 1.0 if abs(new - old) < RESOLUTION else new / old
            rows.append({"scenario": scenario, "packet_bytes": size, "before": old, "after": new, "ratio": ratio})
            print(f"| `{scenario}` | {size} | {old:.1f} | {new:.1f} | {ratio:.3f} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
