# SPDX-License-Identifier: Apache-2.0
"""The control plane's part of docs/performance.md, from the rows of `make bench` that are called reconcile or services.

report.py writes it with all the rest; `control_plane.py BENCH-JSON` writes it alone."""

import json
import pathlib
import sys

# Seconds that Ligato's KVScheduler takes for so many independent values, against a mock.
LIGATO = {
    "reconcile-mock-1k": "0.12",
    "reconcile-mock-4k": "1.5",
    "reconcile-mock-16k": "17",
    "reconcile-mock-64k": "4.1 without its text log",
}
# Targets: a field, its maximum, and its description.
TARGETS = {
    "reconcile-mock-64k": ("seconds", 0.5, "64,000 objects against a mock, seconds"),
    "reconcile-mock-1M": ("seconds", 10, "1,000,000 objects against a mock, seconds"),
    "reconcile-bulk-200k": ("seconds", 5, "200,000 sessions through agent and data plane, seconds"),
    "reconcile-group-1M": ("p99_us", 1000, "one change of a next hop group of 1,000,000 routes, 99th percentile, us"),
    "reconcile-one-of-200k-memory": ("p99_us", 1000, "one change among 200,000, kept in memory, 99th percentile, us"),
    "reconcile-one-of-200k-disk": ("p99_us", 1000, "one change among 200,000, kept on disk, 99th percentile, us"),
}
WEIGHT = 1536

TEXT = """## The control plane

Made by `make bench ONLY=reconcile`. The objects are sessions as a broadband gateway has them: QinQ, an IPv4 address and an IPv6 prefix, an access
list, a meter each way and a label. None needs another; all need the same port, list and meter.

Against a mock, which takes everything at once: one Apply of all, checked, kept in memory, handed to the reconciler and settled, in one process. Median
of several runs. *CPU* is of all processors: more than the time, because two of them work and garbage is collected beside. *bytes* are what stays in use.

| scenario | objects | seconds | CPU, seconds | us an object | bytes an object | Ligato, seconds |
|---|---|---|---|---|---|---|
{mocks}

Ligato's KVScheduler was measured with independent values on the same kind of machine; it grows faster than its load.

Through the real programs: the agent with its store on disk, one data plane with one worker, whose port brings no packets
(a worker that always has some keeps a processor to itself), and a client that speaks gRPC to the agent's socket. *bulk* is
one request with all sessions, until everything is Applied and the data plane has the last of them. *agent* and *data plane* in the name of a resync are
what was killed and started again; the time is from its start until everything is Applied again, the start of DPDK ({start} s) included. CPU is of the agent's
threads, and of the data plane's main thread. *resident* is anonymous memory of the agent two seconds later, *peak* the most until then.

| scenario | seconds | agent CPU, s | data plane CPU, s | resident bytes an object | peak |
|---|---|---|---|---|---|
{real}

One change among 200,000, each an Apply of its own through the agent's socket, until the answer, which comes when the data plane has it: {changes} in a row,
after 500 that are not counted and three seconds in which nothing was asked. The client is one thread. A durable commit writes a page and syncs it
(`fdatasync`): *sync* is what that alone takes in a file beside it, measured between the changes. *memory* is the same agent and data plane, with the file in
a file system in memory: what is left is the agent, the data plane and the way between them.

| file in | median, us | 99th percentile, us | sync: median | 99th percentile |
|---|---|---|---|---|
{ones}

[A decision](decisions/bulk.md) describes the design and the rejected alternatives. The targets:

| what | at most | in this run | |
|---|---|---|---|
{targets}
"""

SERVICES = """
### Objects of services

Made by `make bench ONLY=services`: two services in the agent make 1,000,000 routes and 192,000 sessions, which are volatile objects. 30,000 of the
sessions come 3,000 a second: alone, and in new processes beside the routes. The time of a session is from the service's Put to the data plane's answer.
*killed*: the agent is killed and started again, and the services make everything again, as it was.

| what | at most | in this run | |
|---|---|---|---|
{rows}
"""

# A scenario, what of it, at most, and how it is said.
SERVICE_TARGETS = (
    (
        "services-routes-1M",
        lambda r: 1e6 * r["agent_cpu_seconds"] / r["objects"],
        4,
        "CPU of the agent for a route, us",
    ),
    (
        "services-sessions",
        lambda r: 1e6 * r["agent_cpu_seconds"] / r["objects"],
        40,
        "CPU of the agent for a session, us",
    ),
    ("services-sessions", lambda r: r["p99_us"] / 1e3, 20, "a session in the data plane, 99th percentile, ms"),
    (
        "services-sessions-beside-routes",
        lambda r: r["p99_us"] / 1e3,
        20,
        "the same beside the routes, 99th percentile, ms",
    ),
    (
        "services-memory",
        lambda r: r["resident_bytes_per_object"] * r["objects"] / (1 << 30),
        1.2,
        "memory of the agent with all of them, GiB",
    ),
    ("services-agent-killed", lambda r: r["seconds"], 10, "killed: until everything is as it was, s"),
    ("services-agent-killed", lambda r: r["agent_cpu_seconds"], None, "CPU of the agent for that, s"),
)


def named(results, name):
    return next((r for r in results if r["scenario"] == name), None)


def mock_rows(results):
    for r in results:
        if "-mock-" in r["scenario"]:
            each = 1e6 * r["seconds"] / r["objects"]
            yield (
                f"| `{r['scenario']}` | {r['objects']:,} | {r['seconds']:.3f} | {r['agent_cpu_seconds']:.3f} | {each:.1f} | "
                f"{r['bytes_per_object']:.0f} | {LIGATO.get(r['scenario'], '')} |"
            )


def real_rows(results):
    for r in results:
        if "-bulk-" in r["scenario"] or "-resync-" in r["scenario"]:
            resident, peak = (
                f"{r[k]:.0f}" if k in r else "" for k in ("resident_bytes_per_object", "peak_bytes_per_object")
            )
            yield (
                f"| `{r['scenario']}` | {r['seconds']:.2f} | {r['agent_cpu_seconds']:.2f} | {r['dataplane_cpu_seconds']:.2f} | "
                f"{resident} | {peak} |"
            )


def one_rows(results):
    for r in results:
        if "-one-of-" in r["scenario"]:
            yield f"| {r['store']} | {r['p50_us']:.0f} | {r['p99_us']:.0f} | {r['sync_p50_us']:.0f} | {r['sync_p99_us']:.0f} |"


def target_rows(results):
    def row(what, most, found):
        return f"| {what} | {most:,} | {found:,.{2 if found < 100 else 0}f} | {'reached' if found <= most else 'not reached'} |"

    for scenario, (field, most, what) in TARGETS.items():
        if r := named(results, scenario):
            yield row(what, most, r[field])
    if r := named(results, "reconcile-mock-1M"):
        yield row("bytes an object, in use", WEIGHT, r["bytes_per_object"])
    if r := named(results, "reconcile-bulk-200k"):
        yield row("bytes an object, resident", WEIGHT, r["resident_bytes_per_object"])


def service_rows(results):
    for scenario, value, most, what in SERVICE_TARGETS:
        if r := named(results, scenario):
            found = value(r)
            verdict = "" if most is None else "reached" if found <= most else "not reached"
            yield f"| {what} | {'' if most is None else most} | {found:,.{2 if found < 10 else 1}f} | {verdict} |"


def services(results):
    """Objects of services; empty without any."""
    rows = "\n".join(service_rows(results))
    return SERVICES.format(rows=rows) if rows else ""


def text(results):
    """The section, from all rows of the bench's JSON that are the control plane's; empty without any."""
    if not results:
        return ""
    return control_plane(results) + services(results)


def control_plane(results):
    restarted = named(results, "reconcile-resync-200k-dataplane")
    return TEXT.format(
        mocks="\n".join(mock_rows(results)),
        real="\n".join(real_rows(results)),
        ones="\n".join(one_rows(results)),
        targets="\n".join(target_rows(results)),
        start=f"{restarted['start_seconds']:.2f}" if restarted else "?",
        changes=f"{max((r.get('changes', 0) for r in results), default=0):,}",
    )


if __name__ == "__main__":
    rows = json.loads(pathlib.Path(sys.argv[1]).read_text())
    print(text([r for r in rows if r["scenario"].startswith(("reconcile-", "services-"))]), end="")
