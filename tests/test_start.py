# SPDX-License-Identifier: Apache-2.0
"""Starting the data plane: options, memory, its socket's folder, and the unit of systemd."""

import collections
import contextlib
import os
import pathlib
import re
import shlex
import socket
import stat
import subprocess
import threading
import time

import pytest
from lab.gateway import DATAPLANE, Gateway, thing, yaml
from lab.laboratory import TREE, Process, wait_until
from lab.namespace import run

UNIT = TREE / "deploy/sluice-dataplane.service"
MEMORY_GROUPS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")


def refused(*options, status):
    """Output of the data plane of this test."""
    done = run(DATAPLANE, *options, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert "EAL" not in done.stdout + done.stderr
    assert "sage:" not in done.stdout + done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cores", "0,1023"], "--cores takes cores that the data plane may use here (0"),
        (["--cores", "0,70000"], "--cores takes cores that the data plane may use here (0"),
        (["--cores", "0,-1"], "--cores takes numbers with commas between"),
        (["--cores", ""], "--cores takes numbers with commas between"),
        (["--cores", "0,"], "--cores takes numbers with commas between"),
        (["--cores", "0,0"], "--cores takes each core once"),
        (["--cores", "0"], "--cores takes as many cores as there are workers, and one before them"),
        (["--cores", ",".join(["0"] * 500)], "--cores takes as many cores as there are workers, and one before them"),
        (["--log-level", "loud"], "--log-level takes error, warning, notice, info or debug"),
        (["--log-level", "*:8"], "--log-level takes error, warning, notice, info or debug"),
        (["--prefix", "a/b"], "--prefix takes"),
        (["--prefix", ""], "--prefix takes"),
        (["--prefix", ".."], "--prefix takes"),
        (["--prefix", "x" * 200], "--prefix takes"),
        (["--huge", "--huge-dir", "/tmp"], "--huge-dir takes the path of a mount of hugetlbfs"),
        (["--huge", "--huge-dir", "/nowhere"], "--huge-dir takes the path of a mount of hugetlbfs"),
        (["--workers", "65"], "--workers takes a number from 1 to 64"),
    ],
)
def test_an_option_that_dpdk_would_refuse_is_refused_in_our_words(options, message):
    assert message in refused("--no-huge", *options, status=2)


def test_more_buffers_than_the_machine_has_memory_for_are_refused_with_the_number_that_fits():
    with open("/proc/meminfo") as meminfo:
        available = next(line for line in meminfo if line.startswith("MemAvailable"))
    too_many = int(available.split()[1]) // 4 + 100000
    if too_many > 1 << 26:
        pytest.skip("this machine has memory for all the buffers that there can be")
    message = refused("--no-huge", "--buffers", str(too_many), status=1)
    assert f"--buffers {too_many} needs {(too_many + 255) // 256 + 64} MiB of memory" in message
    (most,) = re.findall(r"at most --buffers (\d+) fits", message)
    assert 2048 <= int(most) < too_many


def test_missing_huge_pages_are_reported():
    message = refused("--huge", "--memory", str(1 << 20), status=1)
    assert "--memory 1048576 needs 1048576 MiB of huge pages" in message
    assert "or start with --no-huge" in message


@contextlib.contextmanager
def memory_group(name, limit):
    """A control group with so many bytes of memory; None where none can be made."""
    made = None
    for mount in MEMORY_GROUPS:
        group = f"{mount}/{name}"
        for file in ("memory.limit_in_bytes", "memory.max"):
            with contextlib.suppress(OSError):
                os.makedirs(group, exist_ok=True)
                with open(f"{group}/{file}", "r+") as out:
                    out.write(str(limit))
                made = made or group
        if made != group:
            with contextlib.suppress(OSError):
                os.rmdir(group)
    try:
        yield made
    finally:
        if made:
            # It is empty a moment after its last process ended.
            wait_until(lambda: not os.path.exists(made) or remove(made), 20, "the control group goes")


def remove(group):
    try:
        os.rmdir(group)
    except OSError:
        return False
    return True


def answers(path):
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def test_the_suggested_number_of_buffers_fits_into_the_control_group(lab):
    with memory_group(f"{lab.prefix}-start", 400 << 20) as group:
        if not group:
            pytest.skip("no control group can be made here")
        within = ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh", DATAPLANE]
        done = run(*within, "--no-huge", "--buffers", "200000", check=False)
        assert done.returncode == 1
        assert f"nine tenths of what the limit of the control group {group} leaves" in done.stderr
        (most,) = re.findall(r"at most --buffers (\d+) fits", done.stderr)
        path, log = lab.directory / "group.sock", lab.directory / "group.log"
        options = ["--no-huge", "--buffers", most, "--socket", path, "--prefix", f"{lab.prefix}-group"]
        # Not in a network namespace of its own: `ip netns exec` hides control groups.
        with open(log, "wb") as out, subprocess.Popen([*within, *options], stdout=out, stderr=out) as process:
            try:
                wait_until(lambda: process.poll() is not None or answers(path), 60, "it serves")
                assert process.poll() is None, log.read_text()
            finally:
                process.kill()


def test_the_folder_of_the_socket_is_made_if_only_that_is_missing(lab):
    inside = lab.namespace("folder")
    path = lab.directory / "run" / "dataplane.sock"
    options = ["--no-huge", "--buffers", "4096", "--socket", path, "--prefix", f"{lab.prefix}-folder"]
    process = Process(inside, [DATAPLANE, *options], lab.directory / "folder.log")
    lab.on_close(process.stop)
    wait_until(lambda: answers(path), 60, "it serves")
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o022 == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    process.stop()
    options[4] = lab.directory / "no" / "such" / "dataplane.sock"
    done = run(DATAPLANE, *map(str, options), check=False)
    assert done.returncode == 1
    assert f"the folder {lab.directory}/no/such for the socket is not there and cannot be made" in done.stderr


def unit():
    """The unit's settings by name."""
    lines = (line.partition("=") for line in UNIT.read_text().splitlines() if "=" in line and line[0] != "#")
    return {name: value for name, _, value in lines}


def core_dumps_of(gateway):
    """The limit of core dumps in files, and the memory in those that go to a program, of a data plane."""
    proc = pathlib.Path(f"/proc/{gateway.dataplane.pid}")
    (limit,) = re.findall(r"Max core file size +(\S+)", (proc / "limits").read_text())
    return limit, int((proc / "coredump_filter").read_text(), 16)


def test_keys_are_in_no_core_dump(lab):
    inside = lab.namespace("dumps")
    assert core_dumps_of(Gateway(lab, inside, "without", agent=False)) == ("0", 0)
    assert core_dumps_of(Gateway(lab, inside, "with", agent=False, options=["--core-dumps"]))[1] != 0


def test_options_for_the_unit_come_after_its_own_and_need_not_repeat_them(lab):
    inside = lab.namespace("unit")
    path = lab.directory / "unit.sock"
    options = f"--buffers 4096 --prefix {lab.prefix}-unit"
    assert "Environment" not in unit()
    command = shlex.split(unit()["ExecStart"].replace("$SLUICE_DATAPLANE_OPTIONS", options))
    command[0], command[command.index("--socket") + 1] = DATAPLANE, path
    command[command.index("--sequences") + 1] = lab.directory / "unit.sequences"
    process = Process(inside, command, lab.directory / "unit.log")
    lab.on_close(process.stop)
    wait_until(lambda: answers(path), 60, "it serves without huge pages")
    process.stop()
    done = run(*map(str, command), "--huge", "--memory", str(1 << 20), check=False)
    assert "MiB of huge pages" in done.stderr


def test_the_unit_limits_restarts_of_a_process_that_cannot_start():
    done = run(DATAPLANE, "--no-huge", "--cores", "0,1023", check=False)
    assert str(done.returncode) in unit()["RestartPreventExitStatus"].split()
    # As many starts, with such pauses, come together within the interval.
    interval = int(unit()["StartLimitIntervalSec"].removesuffix("s"))
    assert unit()["RestartSec"] == "100ms"
    assert 0 < int(unit()["StartLimitBurst"]) < interval


Thread = collections.namedtuple("Thread", "id name allowed processor turns")


def threads_of(process):
    """The threads of a process and of the processes that it started: id, name, allowed processors, the processor on
    which it ran last, and how often it was taken off a processor."""
    for each in os.listdir(f"/proc/{process}/task"):
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            task = pathlib.Path(f"/proc/{process}/task/{each}")
            allowed = frozenset(os.sched_getaffinity(int(each)))
            turns = sum(map(int, re.findall(r"ctxt_switches:\s*(\d+)", task.joinpath("status").read_text())))
            name, _, rest = task.joinpath("stat").read_text().partition(" (")[2].rpartition(") ")
            yield Thread(int(each), name, allowed, int(rest.split()[36]), turns)
            for child in task.joinpath("children").read_text().split():
                yield from threads_of(int(child))


def ticks(process):
    """CPU time of a process."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


def test_the_agent_and_what_it_starts_keep_off_the_processors_of_workers_under_load(lab):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor only")
    first, second, *rest = sorted(os.sched_getaffinity(0))
    gateway = Gateway(lab, lab.namespace("cores"), "cores", cores=f"{first},{second}")
    off = frozenset({first, *rest})

    def threads():
        return list(threads_of(gateway.agent.pid))

    def strays():
        return [each for each in threads() if each.allowed != off]

    wait_until(lambda: not strays(), 30, "the agent is off the worker's processor")
    assert "the agent keeps off the processors of workers" in gateway.logs()["cores-agent.log"]
    # A worker that always has packets, and a process that the agent starts: sluice-sctp.
    gateway.apply(
        thing("Port", "busy", device="net_null0"),
        thing("AccessNode", "agf", plmn="00101", wagfId=7, trackingAreas=[{"tac": 1, "slices": [{"sst": 1}]}]),
        thing("Amf", "away", node="agf", addresses=["192.0.2.1"]),
    )
    wait_until(lambda: any(each.name == "sluice-sctp" for each in threads()), 20, "sluice-sctp")

    def received():
        (port,) = gateway.json("get", "ports", "--state")
        return int(port["rxPackets"])

    wait_until(lambda: received() > 100_000, 20, "packets come in")

    # Clients change and read many objects, until the worker has had the other processor for some rounds.
    over, rounds = threading.Event(), [0] * 4

    def client(number):
        path = gateway.directory / f"load-{number}.yaml"
        while not over.is_set():
            rate = 1_000_000 + rounds[number]
            path.write_text(yaml([thing("Meter", f"m{number}-{n}", rate=rate) for n in range(500)]))
            gateway.sluice("apply", "-f", path, check=False)
            gateway.sluice("get", "all", "-o", "json", check=False)
            rounds[number] += 1

    clients = [threading.Thread(target=client, args=(number,)) for number in range(len(rounds))]
    before = ticks(gateway.agent.pid)
    for each in clients:
        each.start()
    try:
        samples, seen = 0, set()

        def watch(more):
            nonlocal samples
            # A thread that has not run since has its processor from before.
            before = {each.id: each.turns for each in threads()}
            until = [done + more for done in rounds]
            while any(done < enough for done, enough in zip(rounds, until, strict=True)):
                for each in threads():
                    assert each.allowed == off, each
                    if each.turns > before.get(each.id, -1):
                        assert each.processor in off, each
                        samples += 1
                        seen.add(each.id)
                assert gateway.agent.alive()
                time.sleep(0.01)

        watch(3)
        # Another data plane gives the worker the processor that the agent had.
        gateway.dataplane.stop()
        gateway.cores, off = f"{second},{first}", frozenset({second, *rest})
        gateway.start_dataplane()
        wait_until(lambda: not strays(), 30, "the agent is off the new worker's processor")
        watch(3)
    finally:
        over.set()
        for each in clients:
            each.join()
    spent = ticks(gateway.agent.pid) - before
    print(f"{samples} samples of {len(seen)} threads, {sum(rounds)} rounds, the agent used {spent} ticks")
    assert samples > 100 and spent > 0
    gateway.close()
