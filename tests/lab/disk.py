# SPDX-License-Identifier: Apache-2.0
"""A small disk that can be filled up. It is there for programs that are started `within` it, and goes away with a
process of the laboratory."""

from pathlib import Path

from .laboratory import wait_until


class Disk:
    """`size`: octets. `directory`: where programs find it; `path`: where others do."""

    def __init__(self, lab, namespace, size, name="disk"):
        self.directory = lab.directory / name
        self.directory.mkdir()
        mount = f'mount -t tmpfs -o size={size} none "$0" && touch "$0/mounted" && exec sleep infinity'
        holder = lab.process(namespace, "sh", "-c", mount, self.directory, log=f"{name}.log")
        self.within = ("nsenter", "--target", holder.pid, "--mount")
        self.path = Path(f"/proc/{holder.pid}/root{self.directory}")
        wait_until((self.path / "mounted").exists, what=f"{self.directory} is mounted")

    def fill(self):
        """Takes all that is free."""
        with open(self.path / "filler", "ab", buffering=0) as filler:
            for size in (65536, 4096, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError:
                    continue

    def free(self):
        (self.path / "filler").unlink()
