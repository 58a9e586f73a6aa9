#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The section about ESP in docs/performance.md: tunnels beside the cipher alone, and the targets.

    bench/esp.py RESULTS.json

prints it alone, from the results of the command that it names."""

import sys

from nodes import Nodes

# Where `ip4-1` takes this, the targets in cycles are as they stand.
BASE = 35
TUNNELS = {"": 4, "-1600": 1600, "-10k": 10000}
MANY = 1.25
# The bench's number for a mix of sizes (SIZE_IMIX).
IMIX = 1
SIZES = {64: "64", 650: "650", 1418: "1418", 1518: "1518", IMIX: "IMIX"}
ALGORITHMS = ("gcm128", "gcm256", "cbc128-sha256", "cbc128-sha512", "chacha20", "sm4gcm", "sm4cbc-sm3")

TEXT = """## ESP

ESP in tunnel mode over IPv4, with 4, 1,600 and 10,000 tunnels: cycles a packet, median and, in brackets, least.
*cipher* is the engine's call alone over the same bytes in this run, with four keys. `-dec` gets packets that a peer
has encrypted. IMIX: of twelve packets seven of 64, four of 570 and one of 1,518 bytes. The ports take frames of 1,618
bytes.

Packets of the tunnels come in an order of no pattern. 10,000 tunnels have about 16 MB of keys, state and counters, and
the bench's own packets of `-dec-10k` another 7 to 15 MB, as much as the third-level cache of the machine of these
figures: its other programs change these rows most.

```
make bench ONLY='^(ip4-1|(cipher|esp)-(gcm256|cbc128-sha256|sm4gcm|sm4cbc-sm3)-(enc|dec)(-1600|-10k)?)$' JSON=esp.json
bench/esp.py esp.json
```

| scenario | bytes | cipher | 4 | 1,600 | 10,000 |
|---|---|---|---|---|---|
{rows}

Targets, by the medians. A target in cycles is meant for a machine where `ip4-1` takes {usual}: here it takes
{base:.0f}, so these are multiplied by {factor:.2f}.

| scenario | bytes | target | at most | median | met |
|---|---|---|---|---|---|
{targets}

"""


class Figures:
    """Medians, and least ones, of scenarios by the frame's size."""

    def __init__(self, results):
        self.all = {}
        for row in [*results.single, *results.ciphers]:
            self.all[row["scenario"], row["packet_bytes"]] = row["cycles_per_packet"]

    def median(self, scenario, size):
        cycles = self.all.get((scenario, size))
        return cycles and cycles["median"]

    def cell(self, scenario, size):
        cycles = self.all.get((scenario, size))
        return f"{cycles['median']:.0f} ({cycles['min']:.0f})" if cycles else ""


def rows(figures):
    for algorithm in ALGORITHMS:
        for way in ("enc", "dec"):
            for size, shown in SIZES.items():
                names = [f"esp-{algorithm}-{way}{tunnels}" for tunnels in TUNNELS]
                cells = [figures.cell(name, size) for name in (f"cipher-{algorithm}-{way}", *names)]
                if any(cells[1:]):
                    yield f"| `{names[0]}` | {shown} | " + " | ".join(cells) + " |"


def limits(figures, factor):
    """(scenario, bytes, the target in words, its cycles)."""
    for way, over in (("enc", 75), ("dec", 85)):
        name = f"esp-gcm256-{way}"
        for size in (64, 650, 1418):
            cipher = figures.median(f"cipher-gcm256-{way}", size)
            yield name, size, f"cipher + {over}", cipher and cipher + over * factor
        for size in (64, 650):
            four = figures.median(name, size)
            for tunnels in ("-1600", "-10k"):
                yield name + tunnels, size, f"{MANY:g} of 4 tunnels", four and four * MANY
    # VPP with libIPSec_MB.
    for size, cycles in ((64, 452), (1418, 1639)):
        yield "esp-cbc128-sha256-enc", size, f"0.8 of {cycles}", 0.8 * cycles * factor
    for way in ("enc", "dec"):
        for size, times in ((64, 1.5), (1418, 3)):
            aes = figures.median(f"esp-gcm256-{way}", size)
            yield f"esp-sm4gcm-{way}", size, f"{times:g} of AES-256-GCM", aes and aes * times
    for way, cycles in (("enc", 6000), ("dec", 5000)):
        yield f"esp-sm4cbc-sm3-{way}", 1418, str(cycles), cycles * factor


def target_rows(figures, factor):
    for scenario, size, words, limit in limits(figures, factor):
        median = figures.median(scenario, size)
        if limit and median:
            met = "yes" if round(median) <= round(limit) else f"**no**: {median / limit:.2f} times"
            yield f"| `{scenario}` | {size} | {words} | {limit:.0f} | {median:.0f} | {met} |"


def section(results):
    base, figures = results.figure("ip4-1"), Figures(results)
    found = "\n".join(rows(figures))
    if not found or not base:
        return ""
    factor = base / BASE
    targets = "\n".join(target_rows(figures, factor))
    return TEXT.format(rows=found, usual=BASE, base=base, factor=factor, targets=targets)


if __name__ == "__main__":
    print(section(Nodes(sys.argv[1])), end="")
