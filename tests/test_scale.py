# SPDX-License-Identifier: Apache-2.0
"""Four thousand sessions, applied and changed while packets flow: of a BNG, and of an AGF with two workers.

SCALE_SESSIONS is another number; `make soak` takes 8,000.
"""

import os

import pytest
from lab import Lab, Line
from lab.load import DOWN, UP
from pop import Pop, base_of, session, tunnel, udp_up

pytestmark = pytest.mark.long(reason="`make soak` does it for longer")
COUNT = int(os.environ.get("SCALE_SESSIONS", "4000"))


def line(role, number):
    ip4 = f"100.65.{number // 250}.{number % 250 + 1}"
    ip6 = f"2001:db8:{0x4000 + number:x}::1"
    mac = f"02:00:00:01:{number >> 8:02x}:{number & 255:02x}"
    up, down = (10001 + number, 20001 + number) if role == "agf" else (0, 0)
    vlans = 1000 + number // 1000, 1 + number % 1000
    return Line(f"line-{number:04}", mac, ip4, ip6, vlans, pppoe=number % 2 * number, teid_up=up, teid_down=down)


def subscriber(line, **spec):
    return session(line, **(({"gtpu": tunnel(line, pduSessionContainer=True, qfi=9)} if line.teid_down else {}) | spec))


def changed(line):
    core = {"gtpu": tunnel(line, pduSessionContainer=True, qfi=5, reflectiveQos=True)} if line.teid_down else {}
    return session(line, policy={"mss": 1400}, **core)


FEW = [Line(f"steady-{i}", f"02:00:00:02:00:0{i}", f"100.66.0.{i}", f"2001:db8:9{i}::1", (900, i)) for i in range(1, 3)]
FEW += [
    Line(f"steady-{i}", f"02:00:00:02:00:0{i}", f"100.66.0.{i}", f"2001:db8:9{i}::1", (900, i), teid_up=i, teid_down=i)
    for i in range(3, 5)
]


@pytest.fixture(scope="module", params=["bng", "agf"])
def role(request):
    return request.param


@pytest.fixture(scope="module")
def lines(role):
    return [line(role, number) for number in range(COUNT)]


@pytest.fixture(scope="module")
def lab(role):
    """One for each role."""
    with Lab() as made:
        yield made


@pytest.fixture(scope="module")
def pop(lab, role):
    more = {"workers": 2, "base": base_of()} if role == "agf" else {}
    return Pop(lab, *(subscriber(each) for each in FEW), buffers=16384, **more)


def test_sessions_are_applied_and_changed_without_a_lost_packet_of_others(pop, lines):
    load = pop.load(FEW, 1000)
    try:
        assert load.warm_up() == []
        pop.apply(*(subscriber(each) for each in lines))
        pop.apply(*(changed(each) for each in lines))
        load.pause()
        assert load.lost(UP) == load.lost(DOWN) == 0
    finally:
        load.close()
    states = {each["status"]["state"] for each in pop.gateway.json("get", "sessions")}
    assert states == {"applied"}


def test_every_one_of_them_passes_traffic_both_ways(pop, lines):
    load = pop.load(lines, 4000)
    try:
        assert load.warm_up() == []
    finally:
        load.close()


def test_they_are_listed_and_described(pop, lines):
    assert len(pop.gateway.json("get", "sessions")) == COUNT + len(FEW)
    assert lines[-1].mac in pop.gateway.sluice("describe", "session", lines[-1].name).stdout
    assert pop.gateway.json("top", "--once")["totals"]["sessions"] == COUNT + len(FEW)


def test_applying_them_again_changes_nothing(pop, lines):
    done = pop.apply(*(changed(each) for each in lines))
    assert f"{COUNT} unchanged" in done.stdout


def test_they_come_back_after_the_data_plane_was_killed(pop, lines):
    old = pop.gateway.dataplane
    old.kill()
    pop.gateway.start_dataplane()
    load = pop.load(lines, 4000)
    try:
        assert load.warm_up() == []
    finally:
        load.close()


def test_half_of_them_are_deleted_and_the_others_go_on(pop, lines):
    names = [each.name for each in lines[: COUNT // 2]]
    pop.gateway.delete("session", *names)
    assert len(pop.gateway.json("get", "sessions")) == COUNT - len(names) + len(FEW)
    with pop.dropping("unknown-circuit"):
        pop.send_up(lines[0], udp_up(lines[0]))
    load = pop.load(lines[COUNT // 2 :], 4000)
    try:
        assert load.warm_up() == []
    finally:
        load.close()
