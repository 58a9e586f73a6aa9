#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The section about the N3IWF in docs/performance.md, and its drawing: user plane by the size of packets.

    bench/n3iwf.py RESULTS.json

prints it alone, and makes the drawing, from the results of the command that it names."""

import sys
from pathlib import Path

import svg
from nodes import Nodes

# Of a UE's packet; the frames around it are longer by these headers.
SIZES = (64, 128, 256, 512, 1024, 1400)
DOWN, UP = 62, 46
# In front of the packet in ESP: IP and GRE. The cipher's frame sizes count Ethernet and FCS.
GRE, ETHERNET = 28, 18
# TS 24.502 leaves no choice but these parts; the target is over the cipher alone, where `ip4-1` takes 35.
TARGET, BASE = 160, 35

TEXT = """## The N3IWF

Packets of 4,000 UEs between ESP (AES-128-GCM) with GRE and GTP-U, with a session, a meter and marks, by the size of
the UE's packet: cycles of one core, least. *over*: without the cipher, which is the engine's call alone in the same
run, on a line between its sizes. Uplink frames cannot be encrypted beforehand: the row is `n3iwf-up-both` less
`n3iwf-up-ue`, its UE's half. The paper (Wipro N3IWF reference, Intel) has 49 Gbit/s a worker with encryption in
QAT. The target is {target} cycles over the cipher where `ip4-1` takes {usual}, and so {scaled:.0f} where it takes
{base:.0f} as in this run.

```
make bench ONLY='^(ip4-1|cipher-gcm128-(enc|dec)|n3iwf-.*)$' JSON=n3iwf.json
bench/n3iwf.py n3iwf.json
```

| bytes | up | over | down | over | up, Gbit/s | down, Gbit/s |
|---|---|---|---|---|---|---|
{rows}

![Gbit/s of a core by the size of packets](performance/n3iwf.svg)

"""


def ciphers(results, direction):
    """Least cycles of the cipher by the frame's size."""
    name = f"cipher-gcm128-{direction}"
    return sorted((r["packet_bytes"], r["cycles_per_packet"]["min"])
                  for r in results.ciphers if r["scenario"] == name and r["packet_bytes"] >= 64)  # fmt: skip


def between(points, x):
    """On the line through the two points around x, or at the end."""
    if len(points) < 2:
        return None
    (x1, y1), (x2, y2) = next(((a, b) for a, b in zip(points, points[1:], strict=False) if x <= b[0]), points[-2:])
    return y1 + (y2 - y1) * (x - x1) / (x2 - x1)


def figures(results):
    """(size, uplink, cipher's part, downlink, cipher's part) for each size that was measured."""
    decrypt, encrypt = ciphers(results, "dec"), ciphers(results, "enc")
    for size in SIZES:
        down = results.figure("n3iwf-down", size + DOWN)
        both, ue = (results.figure(f"n3iwf-up-{part}", size + UP) for part in ("both", "ue"))
        parts = [between(points, size + GRE + ETHERNET) for points in (decrypt, encrypt)]
        if None not in (down, both, ue, *parts):
            yield size, both - ue, parts[0], down, parts[1]


def gbit(size, cycles, hertz):
    return size * 8 * hertz / cycles / 1e9


def section(results, hertz):
    found, base = list(figures(results)), results.figure("ip4-1")
    if not found or not base:
        return ""
    rows = "\n".join(
        f"| {size} | {up:.0f} | {up - decrypt:.0f} | {down:.0f} | {down - encrypt:.0f} | "
        f"{gbit(size, up, hertz):.1f} | {gbit(size, down, hertz):.1f} |"
        for size, up, decrypt, down, encrypt in found
    )
    return TEXT.format(rows=rows, target=TARGET, usual=BASE, scaled=TARGET * base / BASE, base=base)


def drawing(results, hertz):
    """None without figures."""
    found = list(figures(results))
    if not found or not results.figure("ip4-1"):
        return None

    series = [
        [gbit(size, up, hertz) for size, up, _, _, _ in found],
        [gbit(size, down, hertz) for size, _, _, down, _ in found],
        [gbit(size, encrypt, hertz) for size, _, _, _, encrypt in found],
    ]
    names, ticks = ["uplink", "downlink", "cipher alone"], [f"{size} B" for size, *_ in found]
    return svg.curves("Gbit/s of UEs' packets with one core", names, ticks, series, "Gbit/s")


def main(path):
    results = Nodes(path)
    print(section(results, results.hertz), end="")
    (Path(__file__).parents[1] / "docs/performance/n3iwf.svg").write_text(drawing(results, results.hertz))


if __name__ == "__main__":
    main(sys.argv[1])
