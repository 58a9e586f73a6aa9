# SPDX-License-Identifier: Apache-2.0
"""Cleans up after a laboratory: janitor.py PREFIX DIRECTORY, started first of all.

Its standard input closes when the laboratory's process is done or dead, however it died; then the janitor kills what
still runs in the laboratory's namespaces and removes those, the DPDK runtime directories and the run directory.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


def pids_in(namespace):
    found = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def sweep(prefix, directory):
    names = [entry.name for entry in Path("/run/netns").glob(prefix + "-*")] if os.path.isdir("/run/netns") else []
    for _ in range(50):
        alive = [pid for name in names for pid in pids_in(name)]
        if not alive:
            break
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    for runtime in Path("/var/run/dpdk").glob(prefix + "-*"):
        shutil.rmtree(runtime, ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    sweep(sys.argv[1], sys.argv[2])
