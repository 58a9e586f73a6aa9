# SPDX-License-Identifier: Apache-2.0
"""The section about subscribers in docs/performance.md, from the rows of `make bench-setup` (setup.py).

report.py writes it with the other sections; `subscribers.py SETUP-JSON` writes it alone."""

import json
import pathlib
import sys

PROCESSES = {"agent": "agent", "dataplane": "data plane", "freeradius": "FreeRADIUS", "client": "client"}
GIB = 1 << 30

TEXT = """## Subscribers that dial in

`make bench-setup` made this, on {cpu} with {processors} processors. {sessions:,} PPPoE subscribers dial in through a port of the gateway (veth and
`net_af_packet`): discovery, LCP, CHAP, IPCP, IPv6CP, router advertisement and DHCPv6 (IA_NA, IA_PD). FreeRADIUS authenticates each subscriber and
receives its accounting record; its rate attribute becomes a meter. Gateway, FreeRADIUS and the client (`bench/dial`) share the processors.

| set-ups | seconds | a second | median of one, ms | 99th percentile, ms | retransmissions |
|---|---|---|---|---|---|
| the first {first_sessions:,} | {first_seconds:.1f} | {first_rate:,.0f} | {median:.0f} | {p99:.0f} | {retries:,} |
| all {sessions:,} | {all_seconds:.1f} | {all_rate:,.0f} | | | |

CPU of each process, with its part of the kernel. The data plane's worker polls, so part of its time is idle polling.

| process | us a session | of one processor | us a session, of all | memory, MiB |
|---|---|---|---|---|
{cpus}

With {sessions:,} sessions, the bench kills the agent and starts it again, under {traffic} echo requests a second from subscribers to a server behind the core:

| figure | |
|---|---|
| echo requests without an answer | {lost:,} of {sent:,} |
| longest time without an answer, ms | {gap:.0f} |
| sessions that ended | {ended} |
| Start records at FreeRADIUS, of as many sessions | {starts} |
| time until the agent has all subscribers and has compared each session with the data plane, s | {restart:.1f} |
| CPU of the agent for that, s | {restart_cpu:.1f} |

Targets:

| figure | target | in this run | |
|---|---|---|---|
{targets}
"""

PLANES = """
### Several data planes

`bench/setup.py --planes NUMBER` shares the subscribers among data planes of one agent, each with its own client. The agent's CPU and
memory depend on the number of subscribers, and hardly on the number of data planes:

| data planes | subscribers | set-ups a second | agent, us a session | all data planes, us a session | agent, MiB | data planes, MiB | agent restarts in, s | CPU for that, s |
|---|---|---|---|---|---|---|---|---|
{rows}
"""


def named(rows, name):
    return next(row for row in rows if row["scenario"] == name)


def cpu_rows(first, whole, memory):
    for name, title in PROCESSES.items():
        yield (
            f"| {title} | {first[f'{name}_cpu_us']:.0f} | {100 * first[f'{name}_share']:.0f} % | "
            f"{whole[f'{name}_cpu_us']:.0f} | {memory[f'{name}_bytes'] / (1 << 20):,.0f} |"
        )


def target_rows(whole, memory, restart):
    both = (memory["agent_bytes"] + memory["dataplane_bytes"]) / GIB
    for what, target, found, reached in (
        ("set-ups a second, of all", "at least 3,000", f"{whole['per_second']:,.0f}", whole["per_second"] >= 3000),
        (
            "CPU of the agent, us a session, of all",
            "at most 150",
            f"{whole['agent_cpu_us']:.0f}",
            whole["agent_cpu_us"] <= 150,
        ),
        (f"memory of both planes with {memory['sessions']:,} sessions, GiB", "at most 12", f"{both:.1f}", both <= 12),
        ("agent reconciled, s", "at most 10", f"{restart['seconds']:.1f}", restart["seconds"] <= 10),
    ):
        yield f"| {what} | {target} | {found} | {'reached' if reached else 'not reached'} |"


def plane_row(rows, planes):
    """The row of a run; None: it was not made."""
    end = "" if planes == 1 else f"-{planes}-planes"
    found = {row["scenario"]: row for row in rows}
    if f"setup-pppoe-radius-all{end}" not in found:
        return None
    whole, memory = found[f"setup-pppoe-radius-all{end}"], found[f"setup-memory{end}"]
    restart = found[f"setup-agent-restart{end}"]
    return (
        f"| {planes} | {whole['sessions']:,} | {whole['per_second']:,.0f} | {whole['agent_cpu_us']:.0f} | {whole['dataplane_cpu_us']:.0f} | "
        f"{memory['agent_bytes'] / (1 << 20):,.0f} | {memory['dataplane_bytes'] / (1 << 20):,.0f} | "
        f"{restart['seconds']:.1f} | {restart['agent_cpu_seconds']:.1f} |"
    )


def planes_text(rows):
    """The part about several data planes; empty if all rows are of one."""
    several = [row for row in (plane_row(rows, planes) for planes in range(2, 17)) if row]
    one = plane_row(rows, 1)
    return PLANES.format(rows="\n".join([*([one] if one else []), *several])) if several else ""


def text(rows):
    """The section; empty without rows."""
    if not rows:
        return ""
    first, whole = named(rows, "setup-pppoe-radius"), named(rows, "setup-pppoe-radius-all")
    memory, restart = named(rows, "setup-memory"), named(rows, "setup-agent-restart")
    return TEXT.format(
        cpu=first["conditions"]["cpu"],
        processors=first["conditions"]["processors"],
        sessions=whole["sessions"],
        first_sessions=first["sessions"],
        first_seconds=first["seconds"],
        first_rate=first["per_second"],
        median=first["median_ms"],
        p99=first["p99_ms"],
        retries=first["retries"],
        all_seconds=whole["seconds"],
        all_rate=whole["per_second"],
        cpus="\n".join(cpu_rows(first, whole, memory)),
        traffic=restart["traffic"],
        lost=max(0, restart["lost"]),
        sent=restart["sent"],
        gap=restart["longest_gap_ms"],
        ended=restart["ended"],
        starts=f"{restart['start_records']:,}" if "start_records" in restart else "not counted",
        restart=restart["seconds"],
        restart_cpu=restart["agent_cpu_seconds"],
        targets="\n".join(target_rows(whole, memory, restart)),
    ) + planes_text(rows)


if __name__ == "__main__":
    print(text(json.loads(pathlib.Path(sys.argv[1]).read_text())), end="")
