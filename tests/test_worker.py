"""Workers, each with a graph of its own, and huge pages."""

import contextlib
from pathlib import Path

import pytest
from lab import Lab, Line, thing
from lab.load import DOWN, UP
from pop import IPOE, PPPOE, TWO_QUEUES, Pop, session

LINES = [
    Line(f"w{i}", f"02:00:00:00:06:{i:02x}", f"100.64.6.{i}", f"2001:db8:6:{i:x}::1", (600, i), pppoe=i if i > 5 else 0)
    for i in range(1, 11)
]
PAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")


class TestTwoWorkers:
    @pytest.fixture(scope="class")
    def pop(self, lab):
        return Pop(lab, *(session(line) for line in LINES), base=TWO_QUEUES, workers=2)

    def test_both_forward_and_lose_nothing_while_objects_change(self, pop):
        load = pop.load(LINES, 1000)
        try:
            assert load.warm_up() == []
            for mss in (1300, 1400):
                pop.apply(*(session(line, policy={"mss": mss}) for line in LINES[:3]))
                with pop.having(thing("Route", "other", prefix="203.0.113.0/24", action="blackhole")):
                    pass
            assert load.has_sent(1000)
            load.pause()
            assert (load.lost(UP), load.lost(DOWN)) == (0, 0)
        finally:
            load.close()

    def test_their_counters_are_told_as_sums(self, pop):
        assert "2 workers" in pop.gateway.sluice("version").stdout
        counted = sum(each["upPackets"] for each in pop.gateway.json("top", "--once")["sessions"])
        assert counted >= 1000

    def test_ports_come_and_go_while_both_work(self, pop):
        load = pop.load(LINES, 500)
        try:
            assert load.warm_up() == []
            for number in range(3):
                with pop.having(thing("Port", "extra", device=f"net_null{number}")):
                    pass
            assert load.has_sent(100)
            load.pause()
            assert (load.lost(UP), load.lost(DOWN)) == (0, 0)
        finally:
            load.close()


@contextlib.contextmanager
def huge_pages(wanted):
    """At least so many free pages of 2 MiB, for as long as a test needs them."""
    before = int((PAGES / "nr_hugepages").read_text())
    free = int((PAGES / "free_hugepages").read_text())
    more = max(0, wanted - free)
    if more:
        (PAGES / "nr_hugepages").write_text(str(before + more))
    try:
        yield int((PAGES / "free_hugepages").read_text()) >= wanted
    finally:
        if more:
            now = int((PAGES / "nr_hugepages").read_text())
            (PAGES / "nr_hugepages").write_text(str(now - more))


def test_it_starts_with_huge_pages_and_gives_them_back():
    with huge_pages(400) as there:
        if not there:
            pytest.skip("this machine has no memory for 400 huge pages")
        before = (PAGES / "free_hugepages").read_text()
        with Lab() as own:
            pop = Pop(own, session(IPOE), session(PPPOE), huge=True)
            assert pop.passes(IPOE)
            assert pop.passes(PPPOE, 6)
            assert (PAGES / "free_hugepages").read_text() != before
        assert (PAGES / "free_hugepages").read_text() == before
