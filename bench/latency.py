#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The latency that a worker's idle sleep adds: latency.py [--json FILE]. Needs root and the built programs.

     near host == router == far host

The kernel's ping goes from near to far and back, seldom enough that an idle worker sleeps each time, through three
routers in turn: the kernel, a data plane whose worker sleeps when idle, and one with --cores, whose worker never does.
"""

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from lab import Gateway, Lab, thing  # noqa: E402

# Address of the host, address and MAC of the router's side.
SIDES = {
    "left": ("192.0.2.2", "192.0.2.1", "02:00:00:00:aa:01"),
    "right": ("198.51.100.2", "198.51.100.1", "02:00:00:00:cc:01"),
}
FIRST_PINGS, INTERVAL = 20, 0.005


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the results into this file")
    parser.add_argument("--pings", type=int, default=500, help="pings of one turn (%(default)s)")
    parser.add_argument("--turns", type=int, default=5, help="turns of each router (%(default)s)")
    return parser.parse_args()


def cores():
    """For the main thread and for the worker: different ones, if there are two."""
    allowed = sorted(os.sched_getaffinity(0))
    return f"{allowed[0]},{allowed[-1]}"


def hosts(lab, router):
    """Both hosts, linked with a router that does not forward yet; the near one is returned."""
    for side, (address, gateway, _) in SIDES.items():
        host = lab.namespace(side)
        router.link(side, host, "wire")
        router.silent(side)
        host.silent("wire")
        host.ip("address", "add", f"{address}/24", "dev", "wire")
        host.ip("route", "add", "default", "via", gateway)
        if side == "left":
            near = host
    return near


def kernel(lab, router):
    router.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    for side, (_, gateway, mac) in SIDES.items():
        router.ip("link", "set", side, "address", mac)
        router.ip("address", "add", f"{gateway}/24", "dev", side)


def dataplane(lab, router, **options):
    gateway = Gateway(lab, router, **options)
    for number, (side, (_, address, mac)) in enumerate(SIDES.items()):
        gateway.apply(
            thing("Port", side, device=f"net_af_packet{number},iface={side}", mac=mac),
            thing("Interface", side, port=side, addresses=[f"{address}/24"]),
        )
    return gateway.dataplane.pid


ROUTERS = {
    "kernel": kernel,
    "worker sleeps when idle": dataplane,
    "worker with --cores": lambda lab, router: dataplane(lab, router, cores=cores()),
}


def processor_time(pid):
    """Seconds that a process has had of all processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def turn(start, pings):
    """Round-trip times in microseconds, and the share of one processor that the router's process had."""
    with Lab() as lab:
        router = lab.namespace("router")
        near = hosts(lab, router)
        pid = start(lab, router)

        def ping(count):
            done = near.run("ping", "-n", "-i", str(INTERVAL), "-c", str(count), SIDES["right"][0], timeout=120)
            return [1000 * float(found) for found in re.findall(r"time=([0-9.]+) ms", done.stdout)]

        ping(FIRST_PINGS)
        began, had = time.monotonic(), processor_time(pid) if pid else 0
        times = ping(pings)
        return times, (processor_time(pid) - had) / (time.monotonic() - began) if pid else None


def share(ordered, part):
    """The value that this part of all is not above."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def main():
    given = arguments()
    turns = {name: [] for name in ROUTERS}
    for _ in range(given.turns):
        for name, start in ROUTERS.items():
            turns[name].append(turn(start, given.pings))
    results = []
    print(f"{'router':<26}{'pings':>7}{'median us':>11}{'99th us':>9}{'of a processor':>16}")
    for name, measured in turns.items():
        times = sorted(each for turn_times, _ in measured for each in turn_times)
        busy = sorted(share_had for _, share_had in measured if share_had is not None)
        result = {"router": name, "pings": len(times), "median_us": share(times, 0.5), "p99_us": share(times, 0.99)}
        result["processor"] = share(busy, 0.5) if busy else None
        results.append(result)
        text = f"{100 * result['processor']:.0f} %" if busy else ""
        print(f"{name:<26}{len(times):>7}{result['median_us']:>11.0f}{result['p99_us']:>9.0f}{text:>16}")
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
