# SPDX-License-Identifier: Apache-2.0
"""`make run` with both roles, as a program: its summary, its exit code, and that nothing is left behind."""

import fcntl
import json
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
from lab.core import Amf
from lab.gateway import SLUICE
from lab.laboratory import TREE, wait_until

RUN = [sys.executable, str(TREE / "examples/run")]
ALIKE = pytest.mark.long(reason="another role does the same in every run")


def left_behind(pid):
    """Names of namespaces and files of a run with this process id."""
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


EXAMPLES = {
    "bng": (("bng",), 400, "qinq-up-4k"),
    "bng with FreeRADIUS": (("bng", "--radius"), 400, "qinq-up-4k"),
    "agf": (("agf", "--lines", "40"), 40, "agf-up-4k"),
    "gtpu": (("gtpu",), 40, "agf-up-4k"),
}


def lines_of_a_core(output):
    """One of 40 lines moved, the core released one, and another agent took over all of them."""
    # A line that hung up after a time-out has had two.
    registered = r"^registered +40 lines at the AMF, [4-9]\d PDU sessions, [1-9]\d* NAS messages from lines$"
    assert re.search(registered, output, re.M), output
    assert re.search(r"^pppoe-001, 100\.65\.0\.\d+, moves from BNG to AGF:$", output, re.M), output
    assert re.search(r"^  ~ SubscriberProfile bng   \(brief interruption\)$", output, re.M), output
    assert re.search(r"^  standard input:1: SubscriberProfile/bng: ends 1 session$", output, re.M), output
    assert re.search(r"^pppoe-001 has registered, and its core gave it 100\.64\.", output, re.M), output
    assert re.search(r"^the core deregisters pppoe-002, .* it dials in anew", output, re.M), output
    assert len(re.findall(r"^access:[12]00\.\d+ +registered +amf +1 +100\.64\.\S+ +-$", output, re.M)) == 20, output
    kept = r"^restart +40 lines are registered; 0 registered again when the agent was killed$"
    assert re.search(kept, output, re.M), output


@pytest.mark.parametrize("example", ["bng", pytest.param("bng with FreeRADIUS", marks=ALIKE), "agf", "gtpu"])
def test_every_session_of_the_example_passes_traffic_both_ways(example):
    arguments, sessions, burst = EXAMPLES[example]
    child = start(*arguments, "--seconds", "3")
    output, _ = child.communicate(timeout=170)
    assert child.returncode == 0, output
    assert re.search(rf"^sessions +{sessions}$", output, re.M), output
    assert example == "gtpu" or re.search(rf"^{sessions} subscribers dialed in within .* s, ", output, re.M), output
    families = r"^200 of them by IPoE: 100 with IPv6 alone, 200 with a delegated prefix$"
    assert sessions != 400 or re.search(families, output, re.M), output
    if example == "agf":
        lines_of_a_core(output)
    assert "--radius" not in arguments or re.search(r"^accounting +400 Start records in FreeRADIUS$", output, re.M), (
        output
    )
    if "--radius" in arguments:
        assert re.search(r"CoA-Request for pppoe-\d+: CoA-ACK, rate-\S+ becomes rate-70000000-", output), output
        assert re.search(r"Disconnect-Request for pppoe-\d+: Disconnect-ACK", output), output
        equal = r"^accounted +401 sessions of 400 .* are equal: [1-9]\d+, and \d+ when they dialed in$"
        assert re.search(equal, output, re.M), output
    for way in ("uplink", "downlink"):
        sent, received = map(int, re.search(rf"^{way} +(\d+) packets sent, (\d+) received", output, re.M).groups())
        assert sent == received > 100, output
    assert ("the agent is killed" in output) == (example != "gtpu")
    assert "tx-link-down" not in output
    assert re.search(r"^cycles +[1-9]\d* of the TSC a packet, [1-9]\d*\.\d packets at a time", output, re.M), output
    assert re.search(rf"^in bursts +\d+ \({burst}\), \d+ \(.*\): cycles a packet, 256 at a time", output, re.M), output
    assert left_behind(child.pid) == []


def test_the_example_waits_for_a_tunnel_that_comes_after_the_address_of_its_line(tmp_path):
    class LateAmf(Amf):
        def __init__(self):
            self.log, self.since, self.reads = tmp_path / "amf.log", 0, 0
            self.log.write_text('{"event": "address", "address": "100.64.4.1", "teid": 7, "ue": 39, "session": 1}\n')

        def events(self, *arguments, **wanted):
            self.reads += 1
            if self.reads == 5:
                with open(self.log, "a") as log:
                    log.write('{"event": "tunnel", "teid": 8, "ue": 39, "session": 1}\n')
            return super().events(*arguments, **wanted)

    amf = LateAmf()
    assert amf.tunnels(["100.64.4.1"]) == {"100.64.4.1": (7, 8)}
    assert amf.reads > 5


def test_every_tunnel_of_the_vpn_example_and_its_remote_user_pass_traffic_both_ways():
    # The agent of the western gateway is killed in the middle.
    child = start("vpn", "--seconds", "11", "--rate", "500")
    output, _ = child.communicate(timeout=170)
    assert child.returncode == 0, output
    for way in ("west to east", "east to west"):
        sent, received = map(int, re.search(rf"^{way} +(\d+) packets sent, (\d+) received", output, re.M).groups())
        assert sent == received > 100, output
    assert len(re.findall(r"^site-\d\d ", output, re.M)) == 20, output
    assert re.search(r"^the keys of site-01 were replaced [1-9]", output, re.M), output
    (taken, before) = re.search(r"^the next agent of west took (\d+) of (\d+) tunnels over$", output, re.M).groups()
    assert taken == before, output
    assert int(before) >= 20, output
    assert re.search(r"^alice 10\.9\.0\.\d+ .* [1-9]\d* +[1-9]\d* +0$", output, re.M), output
    assert left_behind(child.pid) == []


def test_no_packet_of_the_n3iwf_example_is_lost_while_its_agent_is_killed():
    child = start("n3iwf", "--seconds", "8")
    output, _ = child.communicate(timeout=170)
    assert child.returncode == 0, output
    assert re.search(r"^10 phones have 12 PDU sessions after .* s$", output, re.M), output
    assert re.search(r"^the agent is killed$", output, re.M), output
    assert re.search(r"^restart +10 of 10 phones stayed registered", output, re.M), output
    for way in ("uplink", "downlink"):
        sent, received = map(int, re.search(rf"^{way} +(\d+) packets sent, (\d+) received", output, re.M).groups())
        assert sent == received > 100, output
    assert re.search(r"^voice +[1-9]\d* packets reached the UPF as QoS flow 1$", output, re.M), output
    assert left_behind(child.pid) == []


def test_without_a_terminal_it_prints_its_address_and_its_progress():
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


@pytest.mark.long(reason="it takes 37 seconds for each role; test_agf and test_pppoe_server redial in less")
@pytest.mark.parametrize("role", ["bng", "agf"])
def test_traffic_follows_a_subscriber_that_dials_in_again(role):
    child = start(role, "--lines", "4", "--seconds", "30", "--rate", "200")
    lines = [child.stdout.readline() for _ in range(4)]
    environment = os.environ | {"SLUICE_AGENT": lines[1].removeprefix("  export SLUICE_AGENT=").strip()}

    def sluice(*arguments):
        return subprocess.run([SLUICE, *arguments], capture_output=True, text=True, env=environment).stdout

    def busy():
        """Sessions of the subscriber that carry its packets in both directions."""
        found = json.loads(sluice("top", "--once", "-o", "json") or "{}").get("sessions", [])
        ours = (each for each in found if each.get("username") == "pppoe-001")
        return {each["name"] for each in ours if min(each["upPackets"], each["downPackets"]) > 20}

    before = wait_until(busy, 60, "packets of the subscriber")
    assert "1 " in sluice("subscriber", "disconnect", "--username", "pppoe-001")
    wait_until(lambda: busy() - before, 30, "packets in the new session")
    output, _ = child.communicate(timeout=170)
    assert child.returncode == 0, output
    assert left_behind(child.pid) == []


def mute(objects, role):
    """pppoe-007 may not send, or pppoe-07 not receive."""
    if role == "bng":
        file, user = objects / "users.yaml", re.compile(r"(username: pppoe-007, password: secret-007)")
        muted, count = user.subn(r"\1, policy: {aclUp: nothing}", file.read_text(), count=1)
    else:
        file, policy = objects / "sessions.yaml", re.compile(r"(name: pppoe-07,.*?policy: \{)", re.S)
        muted, count = policy.subn(r"\1aclDown: nothing, ", file.read_text(), count=1)
    assert count == 1
    file.write_text(muted)


@pytest.mark.parametrize(("role", "name"), [pytest.param("bng", "pppoe-007", marks=ALIKE), ("gtpu", "pppoe-07")])
def test_a_session_that_passes_nothing_one_way_is_named_and_makes_it_fail(tmp_path, role, name):
    objects = tmp_path / role
    shutil.copytree(TREE / "examples" / role, objects)
    with open(objects / "policy.yaml", "a") as more:
        more.write("---\napiVersion: sluice.dev/v1\nkind: Acl\nmetadata: {name: nothing}\nspec: {otherwise: deny}\n")
    mute(objects, role)
    child = start(role, "--objects", str(objects), "--seconds", "1")
    output, _ = child.communicate(timeout=170)
    assert child.returncode == 1, output
    assert re.search(rf"^FAILED +no traffic in some direction: {name}$", output, re.M), output
    assert re.search(r"^drops .*acl-denied", output, re.M), output
    assert left_behind(child.pid) == []


@pytest.mark.parametrize(
    ("role", "number"),
    [
        pytest.param("bng", signal.SIGINT, marks=ALIKE),
        ("agf", signal.SIGTERM),
        ("bng", signal.SIGKILL),
        pytest.param("agf", signal.SIGKILL, marks=ALIKE),
    ],
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
                break  # the other side is closed
            shown += piece
            if not asked and all(word in shown for word in (b"SESSION", b"pppoe-", b"PORT", b"CYCLES/PACKET")):
                os.killpg(child.pid, signal.SIGINT)
                asked = True
        child.wait(60)
    assert asked, shown[-2000:].decode(errors="replace")
    assert child.returncode == 0, shown[-2000:].decode(errors="replace")
    assert b"uplink" in shown
    assert left_behind(child.pid) == []
