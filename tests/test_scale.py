"""Four thousand sessions, applied and changed while packets flow."""

import pytest
from lab import Line
from lab.load import DOWN, UP
from pop import Pop, session, udp_down, udp_up
from scapy.all import UDP

COUNT = 4000


def line(number):
    ip4 = f"100.65.{number // 250}.{number % 250 + 1}"
    ip6 = f"2001:db8:{0x4000 + number:x}::1"
    mac = f"02:00:00:01:{number >> 8:02x}:{number & 255:02x}"
    pppoe = number if number % 2 else 0
    return Line(f"line-{number:04}", mac, ip4, ip6, (1000 + number // 1000, 1 + number % 1000), pppoe=pppoe)


LINES = [line(number) for number in range(COUNT)]
FEW = [Line(f"steady-{i}", f"02:00:00:02:00:0{i}", f"100.66.0.{i}", f"2001:db8:9{i}::1", (900, i)) for i in range(1, 5)]


@pytest.fixture(scope="module")
def pop(lab):
    return Pop(lab, *(session(each) for each in FEW), buffers=16384)


def test_sessions_are_applied_and_changed_without_a_lost_packet_of_others(pop):
    load = pop.load(FEW, 1000)
    try:
        assert load.warm_up() == []
        pop.apply(*(session(each) for each in LINES))
        pop.apply(*(session(each, policy={"mss": 1400}) for each in LINES))
        load.pause()
        assert load.lost(UP) == load.lost(DOWN) == 0
    finally:
        load.close()
    states = {each["status"]["state"] for each in pop.gateway.json("get", "sessions")}
    assert states == {"applied"}


def test_every_one_of_them_passes_traffic_both_ways(pop):
    load = pop.load(LINES, 4000)
    try:
        assert load.warm_up() == []
    finally:
        load.close()


def test_they_are_listed_and_described(pop):
    assert len(pop.gateway.json("get", "sessions")) == COUNT + len(FEW)
    assert LINES[3999].mac in pop.gateway.sluice("describe", "session", "line-3999").stdout
    assert pop.gateway.json("top", "--once")["totals"]["sessions"] == COUNT + len(FEW)


def test_applying_them_again_changes_nothing(pop):
    done = pop.apply(*(session(each, policy={"mss": 1400}) for each in LINES))
    assert f"{COUNT} unchanged" in done.stdout


def test_they_come_back_after_the_data_plane_was_killed(pop):
    old = pop.gateway.dataplane
    old.kill()
    pop.gateway.start_dataplane()
    load = pop.load(LINES, 4000)
    try:
        assert load.warm_up() == []
    finally:
        load.close()


def test_half_of_them_are_deleted_and_the_others_go_on(pop):
    names = [each.name for each in LINES[: COUNT // 2]]
    pop.gateway.delete("session", *names)
    assert len(pop.gateway.json("get", "sessions")) == COUNT - len(names) + len(FEW)
    with pop.dropping("unknown-circuit"):
        pop.send_up(LINES[0], udp_up(LINES[0]))
    pop.drain()
    kept = LINES[-1]
    pop.send_up(kept, udp_up(kept))
    assert UDP in pop.at_core(lambda packet: UDP in packet)
    pop.send_down(udp_down(kept))
    assert UDP in pop.at_line(kept, lambda packet: UDP in packet)
