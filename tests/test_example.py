"""`make run` with both roles, as a program: its summary, its exit code, and that nothing is left behind."""

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from lab.laboratory import TREE, wait_until

RUN = [sys.executable, str(TREE / "examples/run")]


def left_behind(pid):
    """What a run with this process id would have named after itself."""
    prefix = f"sluice-{pid}-"
    places = ("/run/netns", "/tmp", "/var/run/dpdk", "/dev/hugepages", "/dev/shm")
    found = [str(path) for place in places for path in Path(place).glob(f"*{prefix}*")]
    found += [line for line in Path("/proc/net/unix").read_text().splitlines() if prefix in line]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if prefix.encode() in process.read_bytes():
                found.append(process.read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def start(*arguments):
    return subprocess.Popen([*RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("role", ["bng", "agf"])
def test_every_session_of_the_example_passes_traffic_both_ways(role):
    child = start(role, "--seconds", "3")
    output, _ = child.communicate(timeout=170)
    assert child.returncode == 0, output
    assert re.search(r"^sessions +40$", output, re.M), output
    for way in ("uplink", "downlink"):
        sent, received = map(int, re.search(rf"^{way} +(\d+) packets sent, (\d+) received", output, re.M).groups())
        assert sent == received > 100, output
    assert "tx-link-down" not in output
    assert left_behind(child.pid) == []


def test_without_a_terminal_it_says_where_it_can_be_looked_at_and_how_it_goes():
    child = start("bng", "--seconds", "7")
    lines = [child.stdout.readline() for _ in range(4)]
    place = lines[1].removeprefix("  export SLUICE_AGENT=").strip()
    assert place == f"unix://{Path(place.removeprefix('unix://'))}" and Path(place.removeprefix("unix://")).is_socket()
    assert lines[3] == "It ends by itself after 7 seconds.\n"
    sessions = subprocess.run(
        lines[2].split(), capture_output=True, text=True, env=os.environ | {"SLUICE_AGENT": place}
    )
    assert sessions.returncode == 0, sessions.stderr
    output, _ = child.communicate(timeout=170)
    assert child.returncode == 0, output
    assert re.search(r"^after 5 s: [1-9]\d* packets uplink, [1-9]\d* downlink$", output, re.M), output


@pytest.mark.parametrize(("role", "field"), [("bng", "aclUp"), ("agf", "aclDown")])
def test_a_session_that_passes_nothing_one_way_is_named_and_makes_it_fail(tmp_path, role, field):
    objects = tmp_path / role
    shutil.copytree(TREE / "examples" / role, objects)
    with open(objects / "policy.yaml", "a") as more:
        more.write("---\napiVersion: sluice.dev/v1\nkind: Acl\nmetadata: {name: nothing}\nspec: {otherwise: deny}\n")
    sessions = (objects / "sessions.yaml").read_text()
    policy = re.compile(r"(name: pppoe-07,.*?policy: \{)(aclUp: home, )?", re.S)
    muted, count = policy.subn(rf"\1{field}: nothing, ", sessions, count=1)
    assert count == 1
    (objects / "sessions.yaml").write_text(muted)
    child = start(role, "--objects", str(objects), "--seconds", "1")
    output, _ = child.communicate(timeout=170)
    assert child.returncode == 1, output
    assert re.search(r"^FAILED +no traffic in some direction: pppoe-07$", output, re.M), output
    assert re.search(r"^drops .*acl-denied", output, re.M), output
    assert left_behind(child.pid) == []


@pytest.mark.parametrize(
    ("role", "number"),
    [("bng", signal.SIGINT), ("agf", signal.SIGTERM), ("bng", signal.SIGKILL), ("agf", signal.SIGKILL)],
)
def test_nothing_is_left_behind_when_it_is_ended(role, number):
    child = start(role, "--seconds", "60")
    wait_until(lambda: left_behind(child.pid), 20)
    time.sleep(3)
    os.kill(child.pid, number)
    child.communicate(timeout=60)
    # With its summary if traffic was running by then, as after Ctrl-C.
    assert child.returncode in ((-signal.SIGKILL,) if number == signal.SIGKILL else (0, 130))
    wait_until(lambda: not left_behind(child.pid), 60, "everything is gone")


def test_it_fails_when_the_data_plane_cannot_be_started():
    child = subprocess.run(
        [*RUN, "bng"], capture_output=True, text=True, env=os.environ | {"SLUICE_DATAPLANE": "/bin/false"}
    )
    assert child.returncode != 0


def test_on_a_terminal_a_live_table_is_shown_until_ctrl_c():
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 160, 0, 0))
    child = subprocess.Popen([*RUN, "bng"], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    shown, asked = b"", False
    end = time.monotonic() + 120
    with open(ours, "rb", buffering=0) as terminal:
        while time.monotonic() < end:
            try:
                piece = terminal.read(65536)
            except OSError:
                break  # nobody has the other side open any more
            shown += piece
            if not asked and all(word in shown for word in (b"SESSION", b"ipoe-01", b"PORT", b"CYCLES/PACKET")):
                os.killpg(child.pid, signal.SIGINT)
                asked = True
        child.wait(60)
    assert asked, shown[-2000:].decode(errors="replace")
    assert child.returncode == 0, shown[-2000:].decode(errors="replace")
    assert b"uplink" in shown
    assert left_behind(child.pid) == []
