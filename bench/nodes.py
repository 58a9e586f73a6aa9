# SPDX-License-Identifier: Apache-2.0
"""Results of `make bench ONLY=... JSON=...`, for a section of docs/performance.md alone."""

import json
from pathlib import Path


class Nodes:
    def __init__(self, path):
        rows = [r for r in json.loads(Path(path).read_text()) if r.get("workers") == 1 and "cycles_per_packet" in r]
        self.ciphers = [row for row in rows if row["scenario"].startswith("cipher-")]
        self.single = [row for row in rows if not row["scenario"].startswith("cipher-")]
        self.hertz = rows[0]["tsc_hz"]

    def figure(self, scenario, size=None):
        """The least over frame sizes, or None."""
        rows = [r for r in self.single if r["scenario"] == scenario and size in (None, r["packet_bytes"])]
        return min((r["cycles_per_packet"]["min"] for r in rows), default=None)
