# SPDX-License-Identifier: Apache-2.0
"""sluice-sctp: the choice of its SCTP stack, and that of a kernel, in a guest of its own. The peer has libusrsctp."""

import os
import signal
import socket
import subprocess

import pytest
from lab.core import Echo
from lab.guest import PARTS, Guest
from lab.laboratory import TREE, wait_until

PROGRAM, CLIENT = TREE / "build/sluice-sctp", TREE / "build/sluice-associate"
OURS, THEIRS = ("10.9.6.1", "10.9.7.1"), ("10.9.6.2", "10.9.7.2")
# The kernel announces private addresses to peers with a private address alone.
OURS6, THEIRS6 = ("2001:db8:6::1", "192.0.2.1"), ("2001:db8:6::2", "192.0.2.2")
OPEN, SEND = 1, 2
EVENT_UP, EVENT_DOWN, EVENT_STACK = 1, 3, 6
NGAP = 60


@pytest.fixture
def started():
    """Starts the program as the agent does, with the socket of packets as file descriptor 3."""
    children = []

    def start(*arguments, prefix=()):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(20)
        with theirs:
            # The shell moves the socket to where the program looks for it.
            command = [*prefix, "bash", "-c", f'exec "$@" 3<&{theirs.fileno()}', "bash", PROGRAM, *arguments]
            child = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
        children.append((child, ours))
        return child, ours

    yield start
    for child, ours in children:
        ours.close()
        child.wait(20)


def kernel_has_sctp():
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError:
        return False
    return True


def test_the_kernels_sctp_serves_where_there_is_one_else_libusrsctp(started):
    _, ours = started()
    assert ours.recv(100) == bytes([EVENT_STACK, 0, 0, 0, 0]) + (b"kernel" if kernel_has_sctp() else b"libusrsctp")


@pytest.mark.parametrize("name", ["kernel", "libusrsctp"])
def test_a_setting_chooses_the_stack(started, name):
    _, ours = started(name)
    assert ours.recv(100)[5:] == name.encode()


@pytest.mark.skipif(kernel_has_sctp(), reason="the kernel has SCTP")
def test_an_association_is_down_if_the_chosen_kernel_has_no_sctp(started):
    _, ours = started("kernel")
    ours.recv(100)
    remote = bytes([4]) + socket.inet_aton("127.0.0.1") + bytes(12)
    counts = (200).to_bytes(4) + bytes(2) + (38412).to_bytes(2) + (4).to_bytes(2) + bytes([0, 1])
    opening = bytes([1, 0, 0, 0, 7]) + counts + remote
    # Truncated ones are ignored.
    for length in range(1, len(opening)):
        ours.send(opening[:length])
    ours.send(opening)
    event = ours.recv(300)
    assert event[:5] == bytes([EVENT_DOWN, 0, 0, 0, 7])
    assert event[5:] == f"socket of the kernel: {os.strerror(93)}".encode()


def test_the_association_with_a_peer_that_starts_anew_ends_in_libusrsctp(lab, started):
    """It would not send there: the agent opens another one. Messages for the old peer are not sent to the new one."""
    inside, core = lab.namespace("anew"), lab.namespace("anew-core")
    inside.link("n2", core, "amf")
    inside.ip("addr", "add", f"{OURS[0]}/24", "dev", "n2")
    core.ip("addr", "add", f"{THEIRS[0]}/24", "dev", "amf")
    first = Echo(lab, core, THEIRS[0])
    second = Echo(lab, core, THEIRS[0], connect=OURS[0], later=1)
    _, ours = started("libusrsctp", prefix=("ip", "netns", "exec", inside.name))

    def command(kind, content):
        ours.send(bytes([kind, 0, 0, 0, 7]) + content)

    def until(kind):
        while (event := ours.recv(1 << 17))[0] != kind:
            pass
        return event

    ends = b"".join(bytes([4]) + socket.inet_aton(each) + bytes(12) for each in (OURS[0], THEIRS[0]))
    command(OPEN, (5000).to_bytes(4) + 2 * (38412).to_bytes(2) + (4).to_bytes(2) + bytes([1, 1]) + ends)
    until(EVENT_UP)
    # More than the stack takes for a peer that takes nothing: the rest waits.
    first.child.send_signal(signal.SIGSTOP)
    for _ in range(300):
        command(SEND, (1).to_bytes(2) + NGAP.to_bytes(4) + bytes(8000))
    first.kill()
    second.do("begin")
    assert until(EVENT_DOWN)[5:] == b"the peer started anew"
    second.wait("ended")
    assert not second.events("message")


def test_an_unknown_stack_is_refused(started):
    child, _ = started("streams")
    assert child.wait(20) == 2
    assert child.stderr.read() == "sluice-sctp: streams: accepted: auto, kernel, libusrsctp\n"


class Site:
    """The guest is the host of the agent's side; the namespace of its TAP interface has the peer."""

    def __init__(self, lab):
        self.core = lab.namespace("core")
        self.core.ip("tuntap", "add", "tap0", "mode", "tap")
        self.core.ip("link", "set", "tap0", "up")
        for address in (*THEIRS, THEIRS6[1]):
            self.core.ip("addr", "add", f"{address}/24", "dev", "tap0")
        self.core.ip("addr", "add", f"{THEIRS6[0]}/64", "dev", "tap0", "nodad")
        programs = (PROGRAM, CLIENT)
        self.guest = Guest(
            lab, self.core, "tap0", "02:00:00:00:06:01", modules=("crc32c_generic", "sctp"), programs=programs
        )
        for address in (*OURS, OURS6[1]):
            self.guest.run(f"ip addr add {address}/24 dev eth0")
        self.guest.run(f"echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad; ip addr add {OURS6[0]}/64 dev eth0")
        self.peer, self.opened = Echo(lab, self.core, *THEIRS, heartbeat=200), False
        # The program's commands come from a FIFO that stays open.
        self.guest.run("mkfifo /tmp/commands; exec 4<>/tmp/commands; (sluice-associate <&4 >>/tmp/events 2>&1 &)")
        self.until("stack=kernel")

    def do(self, command):
        self.guest.run(f"echo '{command}' >/tmp/commands")

    def events(self):
        return self.guest.run("cat /tmp/events").splitlines()

    def until(self, words, seconds=60):
        return wait_until(
            lambda: next((line for line in self.events() if words in line), None), seconds, f"{words}: {self.guest.log}"
        )

    def renew(self, addresses=THEIRS):
        """A peer that listens, and no association: a test that failed leaves its own."""
        self.peer.kill()
        for address in (*OURS, *OURS6):
            self.core.ip("-6" if ":" in address else "-4", "route", "flush", "type", "blackhole", "exact", address)
        if self.opened:
            self.do("abort")
        self.peer.addresses = addresses
        self.peer.options.pop("connect", None)
        self.peer.start()

    def open(self, ours=OURS, theirs=THEIRS):
        def attempt():
            self.guest.run(": >/tmp/events")
            self.peer.mark()
            self.do(f"open {','.join(ours)} {','.join(theirs)}")
            self.opened = True
            return wait_until(
                lambda: next((line for line in self.events() if line.startswith(("up ", "down bind"))), None),
                60,
                f"up, or the port is in use: {self.guest.log}",
            )

        # The port is in use until the association before has ended at the peer, too.
        wait_until(lambda: not attempt().startswith("down bind"), 60, f"the port is free: {self.guest.log}")
        self.peer.wait("association")

    def exchange(self, streams, count, size, meanwhile="true"):
        """Messages of the streams go to the peer and come back. Each stream has its order. `meanwhile`: a command."""
        self.guest.run("grep -v '^message' /tmp/events >/tmp/others; cat /tmp/others >/tmp/events")
        self.peer.mark()
        for stream in streams:
            self.do(f"send {stream} {count} {size}")
        self.guest.run(meanwhile)
        wanted = {stream: [f"message {stream} {NGAP} {n} {size}" for n in range(count)] for stream in streams}
        total = count * len(wanted)

        def back():
            messages = [line for line in self.events() if line.startswith("message ")]
            return len(messages) >= total and messages

        messages = wait_until(back, 60, f"{total} messages are back")
        got = {stream: [line for line in messages if line.startswith(f"message {stream} ")] for stream in streams}
        assert got == wanted
        assert len(self.peer.events("message", protocol=NGAP, size=size)) == total


@pytest.fixture(scope="module")
def site(lab):
    assert PARTS.exists(), "tools/setup.sh fetches the guest"
    return Site(lab)


@pytest.fixture
def up(site):
    site.renew()
    site.open()
    return site


def test_messages_of_several_streams_go_both_ways_in_order(up):
    assert up.until("up ") == "up 16 16"
    up.exchange((0, 1, 2, 7, 15), 100, 200)
    # Larger than packets, and more than buffers hold.
    up.exchange((3, 4), 5, 60000)
    up.exchange((5, 6), 400, 8000)
    up.do("close")
    assert up.until("down ") == "down the association was shut down"
    up.peer.wait("ended")


def test_messages_wait_while_the_agent_takes_none(up):
    stop = "sleep 0.1; killall -STOP sluice-associate; sleep 2; killall -CONT sluice-associate"
    up.exchange((5, 6), 400, 8000, stop)
    up.do("close")
    assert up.until("down ") == "down the association was shut down"


def test_an_association_outlives_the_loss_of_its_first_path(up):
    up.core.ip("route", "add", "blackhole", OURS[0])
    up.exchange((1, 2), 10, 200)
    up.until(f"path {THEIRS[0]} false")
    up.guest.run("grep -v '^path' /tmp/events >/tmp/others; cat /tmp/others >/tmp/events")
    up.core.ip("route", "del", "blackhole", OURS[0])
    up.until(f"path {THEIRS[0]} true")
    up.exchange((1, 2), 10, 200)
    assert not any(line.startswith("down") for line in up.events())
    up.do("abort")
    up.until("down aborted")
    up.peer.wait("ended")


@pytest.mark.parametrize(("how", "reason"), [("abort", "was lost"), ("shutdown", "was shut down")])
def test_the_end_by_the_peer_is_reported(up, how, reason):
    up.peer.do(how)
    assert up.until("down ") == f"down the association {reason}"
    up.peer.wait("ended")
    # The next one has the same port.
    up.open()
    up.exchange((1,), 10, 200)
    up.do("abort")
    up.until("down aborted")
    up.peer.wait("ended")


def test_a_peer_that_starts_anew_is_reported_and_the_association_goes_on(up):
    up.exchange((1, 2), 10, 200)
    # More than the stack takes for a peer that takes nothing: the rest waits, and is not for the new peer.
    up.peer.child.send_signal(signal.SIGSTOP)
    up.do("send 3 300 8000")
    up.until("sent 3 300")
    up.peer.kill()
    up.peer.mark()
    up.peer.options["connect"] = OURS[0]
    up.peer.start()
    assert up.until("restarted ") == "restarted 16 16"
    up.exchange((1, 2), 10, 200)
    assert {one["size"] for one in up.peer.events("message")} == {200}
    up.do("close")
    up.until("down the association was shut down")


def test_an_association_has_addresses_of_both_families(site):
    site.renew(THEIRS6)
    site.open(OURS6, THEIRS6)
    site.exchange((1, 2), 10, 200)
    for lost, path in zip(OURS6, THEIRS6, strict=True):
        family = "-6" if ":" in lost else "-4"
        site.core.ip(family, "route", "add", "blackhole", lost)
        site.until(f"path {path} false")
        site.exchange((1, 2), 10, 200)
        site.core.ip(family, "route", "del", "blackhole", lost)
        site.until(f"path {path} true")
    site.do("abort")
    site.until("down aborted")


def test_a_peer_that_dies_is_reported_and_so_is_one_that_does_not_answer(up):
    up.peer.kill()
    assert up.until("down ", 120) == "down the association was lost"
    up.guest.run(": >/tmp/events")
    up.do(f"open {','.join(OURS)} {','.join(THEIRS)}")
    assert up.until("down ", 120) == "down the peer does not answer, or refuses the association"
    up.renew()
    up.open()
