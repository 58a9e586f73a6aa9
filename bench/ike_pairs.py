#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The section of docs/performance.md about tunnels that are configured, and those that IKE makes.

    bench/ike_pairs.py RESULTS.json

prints it alone, from the results of the command that it names."""

import json
import statistics
import sys
from pathlib import Path

TEXT = """## Tunnels of IKE beside configured ones

AES-256-GCM in tunnel mode, {size} bytes: the gateway encrypts each packet, and decrypts it at the other end of the
tunnel. *configured*: the keys are in SecurityAssociation objects. *IKE*: the agent negotiates them; each tunnel has an
IKE SA of its own. NDR, PDR and MRR as [below](#whole-gateways). PLR is the rate of one lost packet in ten million, by
PLRsearch (draft-vpolak-bmwg-plrsearch) in {soak:.0f} s of trials, with its standard deviation. Mpps; *graph* is in
cycles a packet. Both sorts of tunnels are in one gateway, and trials through the one and the other alternate; the
ratios of MRR and graph are the median, and in brackets the range, of the ratios of neighbouring trials.

```
make bench-ndr ONLY=ndr-ipsec- SOAK=120 JSON=tunnels.json
bench/ike_pairs.py tunnels.json
```

| tunnels | figure | configured | IKE | ratio |
|---|---|---|---|---|
"""


def pair_ratio(pair, found):
    """The median of the ratios of pairs of trials and their range, if there are any; else of the two figures."""
    if not found:
        return f"{pair[1] / pair[0]:.3f}"
    return f"{statistics.median(found):.3f} ({min(found):.3f} to {max(found):.3f})"


def rows(pairs):
    """Each figure of a pair of scenarios."""
    for name, static in pairs.items():
        ike = pairs.get(name.replace("-static-", "-ike-"))
        if "-static-" not in name or ike is None:
            continue
        count = f"{int(name.rsplit('-', 1)[1]):,}"
        ratios = ike.get("ratios", {})
        for figure in ("ndr_pps", "pdr_pps", "mrr_pps", "plr_pps"):
            pair = [row.get(figure) for row in (static, ike)]
            if not all(pair):
                continue
            more = [f" ± {row['plr_stdev_pps'] / 1e6:.3f}" if figure == "plr_pps" else "" for row in (static, ike)]
            cells = " | ".join(f"{each / 1e6:.3f}{spread}" for each, spread in zip(pair, more, strict=True))
            yield f"| {count} | {figure[:3].upper()} | {cells} | {pair_ratio(pair, ratios.get(figure))} |"
        pair = [row["mrr_gateway_cycles_per_packet"]["graph"] for row in (static, ike)]
        yield f"| {count} | graph | {pair[0]:.0f} | {pair[1]:.0f} | {pair_ratio(pair, ratios.get('graph'))} |"


def section(pairs):
    found = "\n".join(rows(pairs))
    if not found:
        return ""
    first = next(iter(pairs.values()))
    return TEXT.format(size=first["packet_bytes"]["up"], soak=first.get("plr_seconds", 0)) + found + "\n\n"


if __name__ == "__main__":
    print(section({row["scenario"]: row for row in json.loads(Path(sys.argv[1]).read_text())}), end="")
