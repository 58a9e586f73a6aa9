# SPDX-License-Identifier: Apache-2.0
"""Workers, each with a graph of its own, and huge pages."""

import contextlib
import struct
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from contract import Connection, api
from lab import Lab, Line, Wire, frames, thing
from lab.frames import Frame
from lab.gateway import DATAPLANE
from lab.laboratory import wait_until
from lab.namespace import run
from pop import ACCESS_MAC, CORE_MAC, GATEWAY4, HOST_MAC, IPOE, PPPOE, Pop, base_of, session
from scapy.all import IP, UDP

LINES = [
    Line(f"w{i}", f"02:00:00:00:06:{i:02x}", f"100.64.6.{i}", f"2001:db8:6:{i:x}::1", (600, i), pppoe=i if i > 5 else 0)
    for i in range(1, 11)
]


def numbers_seen(pop, wire, server, more=lambda number: b""):
    """The numbers that arrived of 200 packets of each line, by its address. At most 200 are on their way, in any
    queue.
    """
    wire.drain()
    seen = defaultdict(list)

    def came(raw):
        if raw[12:14] == b"\x08\x00" and raw[23] == 17:
            seen[raw[26:30]] += struct.unpack("!I", raw[42:46])

    for last in range(20, 201, 20):
        for number in range(last - 20, last):
            for line in LINES:
                packet = frames.udp(line.ip4, server, 1024, 7, struct.pack("!I", number) + more(number))
                pop.access.send(line.frame(frames.mac_bytes(ACCESS_MAC), packet))
        for raw in wire.frames(20):
            came(raw)
            if sum(map(len, seen.values())) >= last * len(LINES):
                break
        else:
            return seen
    for raw in wire.frames(0.4):
        came(raw)
    return seen


def faults(seen):
    """Of each line without all numbers in order: those that are lost, and each that came behind a larger one."""
    return {
        line.ip4: (sorted(set(range(200)) - set(got)), [after for before, after in pairwise(got) if after < before])
        for line in LINES
        if (got := seen.get(frames.ip_bytes(line.ip4), [])) != list(range(200))
    }


PAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")


class TestTwoWorkers:
    @pytest.fixture(scope="class")
    def pop(self):
        with Lab() as own:
            yield Pop(own, *(session(line) for line in LINES), base=base_of(), workers=2)

    def test_both_forward_and_lose_nothing_while_objects_change(self, pop):
        with pop.losing_nothing(LINES, 1000) as load:
            for mss in (1300, 1400):
                pop.apply(*(session(line, policy={"mss": mss}) for line in LINES[:3]))
                with pop.having(thing("Route", "other", prefix="203.0.113.0/24", action="blackhole")):
                    pass
            assert load.has_sent(1000)

    def test_their_counters_are_sums(self, pop):
        assert "2 workers" in pop.gateway.sluice("version").stdout
        counted = sum(each["upPackets"] for each in pop.gateway.json("top", "--once")["sessions"])
        assert counted >= 1000

    def test_ports_come_and_go_while_both_work(self, pop):
        with pop.losing_nothing(LINES, 500):
            for number in range(3):
                with pop.having(thing("Port", "extra", device=f"net_null{number}")):
                    pass


class TestChurn:
    """Tables change while two workers use them; sessions that do not change lose nothing."""

    @pytest.fixture(scope="class")
    def pop(self):
        with Lab() as own:
            deny = thing("Acl", "kept", otherwise="permit", rules=[{"action": "deny", "protocol": "200"}])
            policy = {"aclUp": "kept", "aclDown": "kept"}
            yield Pop(own, deny, *(session(line, policy=policy) for line in LINES), base=base_of(), workers=2)

    @staticmethod
    def things(number):
        """A session with its access list, and routes that share their trie with those of the sessions under test."""
        rules = [{"action": "DENY", "source": f"10.{number % 200}.{i}.0/24"} for i in range(20)]
        line = Line(
            f"c{number % 7}", "", f"100.64.7.{number % 200}", f"2001:db8:7:{number % 200:x}::1", (700, number % 9)
        )
        return [
            thing("Acl", "churn", otherwise="PERMIT", rules=rules),
            session(line, policy={"aclUp": "churn"}),
            thing("Route", "churn4", prefix=f"100.64.{number % 64}.0/24", action="BLACKHOLE"),
            thing("Route", "churn6", prefix=f"2001:db8:8:{number % 99:x}::/64", action="PROHIBIT"),
        ]

    def test_sessions_routes_and_acls_come_and_go_and_others_lose_nothing(self, pop):
        rounds = 0
        alone, connected = pop.gateway.without_agent(), Connection(pop.gateway.dataplane_socket)
        with pop.losing_nothing(LINES, 1000), alone, connected as connection:
            end = time.monotonic() + 5
            while time.monotonic() < end or rounds <= 10:
                made = self.things(rounds)
                codes = [each.code for each in connection.put(*made)]
                assert codes == [0] * len(made)
                names = [api.ObjectName(kind=each["kind"], name=each["metadata"]["name"]) for each in reversed(made)]
                codes = [each.code for each in connection.ask(delete=api.Delete(names=names)).results.results]
                assert codes == [0] * len(made)
                rounds += 1


class TestFewestBuffers:
    """With as few packet buffers as the data plane takes, holding packets never keeps others from passing."""

    @pytest.fixture(scope="class")
    def pop(self):
        with Lab() as own:
            made = Pop(own, session(IPOE), session(PPPOE), buffers=2048)
            made.learn(IPOE, PPPOE)
            yield made

    def flood(self, pop):
        """More packets for neighbours that do not answer, and more halves of packets for us, than there are buffers."""
        halves = bytes(IP(src=IPOE.ip4, dst=GATEWAY4, proto=17, flags="MF") / bytes(64))
        for burst in range(20):
            for host in range(10, 210):
                # From ever other sources: one alone may not make the gateway ask for so many.
                packet = frames.udp(f"203.0.113.{host}", f"192.0.2.{host}", 1024, 9, b"waits")
                pop.core.send(
                    Frame(frames.mac_bytes(CORE_MAC), frames.mac_bytes(HOST_MAC), (), frames.IP4, packet).pack()
                )
                half = halves[:4] + struct.pack("!H", burst * 256 + host) + halves[6:]
                half = half[:10] + b"\0\0" + half[12:]
                half = half[:10] + struct.pack("!H", frames.checksum(half[:20])) + half[12:]
                pop.access.send(IPOE.frame(frames.mac_bytes(ACCESS_MAC), half))

    def test_packets_pass_while_all_that_may_wait_does(self, pop):
        with pop.dropping("neighbor-queue-full", 100):
            self.flood(pop)
        assert pop.passes(IPOE)
        assert pop.passes(PPPOE, 6)
        with pop.losing_nothing([IPOE, PPPOE], 500) as load:
            assert load.has_sent(1000)

    def test_packets_wait_again_once_there_are_buffers(self, pop):
        """Packets to a neighbour that answers late arrive if they were sent before."""
        self.flood(pop)
        wait_until(lambda: all(each["state"] != "incomplete" for each in pop.gateway.json("neighbors")), 60)
        assert pop.gateway.drops()["neighbor-unresolved"] > 0
        target = "192.0.2.222"

        def asked(raw):
            frame = frames.Frame.parse(raw)
            return frame if frame.ethertype == frames.ARP and frame.payload[24:28] == frames.ip_bytes(target) else None

        def arrives():
            pop.drain()
            pop.send_up(IPOE, IP(src=IPOE.ip4, dst=target) / UDP(dport=11))
            pop.core.send(frames.arp_reply(pop.core.expect(asked), b"\2\0\0\0\xcc\xde"))
            return pop.at_core(lambda packet: UDP in packet and packet[UDP].dport == 11)

        assert arrives()[IP].dst == target


def packets_of(pop, node):
    """How many packets a node of the graph has seen."""
    with Connection(pop.gateway.dataplane_socket) as connection:
        counters = connection.read(api.NodeCountersQuery()).nodes
    return next(each.packets for each in counters if each.node == node)


class TestOneTransmitQueue:
    """Two workers receive, and one of them owns the only transmit queue: the other hands its packets over."""

    SERVER = "198.51.100.9"

    @pytest.fixture(scope="class")
    def pop(self):
        with Lab() as own:
            made = Pop(own, *(session(line) for line in LINES), base=base_of(core=1), workers=2)
            made.apply(
                thing("Port", "tap", device="net_tap0,iface=tap0", mac="02:00:00:00:aa:03", rxQueues=1),
                thing("Interface", "tap", port="tap", addresses=["203.0.113.1/24"]),
                thing("Neighbor", "tap", interface="tap", address="203.0.113.2", mac=HOST_MAC),
                thing("Route", "tap", prefix=f"{self.SERVER}/32", nextHops=[{"address": "203.0.113.2"}]),
            )
            made.inside.silent("tap0")
            made.inside.ip("link", "set", "tap0", "up")
            yield made

    def test_nothing_is_lost_either_way(self, pop):
        with pop.losing_nothing(LINES, 1000) as load:
            before = packets_of(pop, "tx-handover")
            assert load.has_sent(1000)
        assert packets_of(pop, "tx-handover") > before

    @pytest.mark.parametrize("device", ["net_af_packet", "net_tap"])
    def test_each_flow_stays_in_order(self, pop, device):
        wire, server = pop.core, "198.51.100.1"
        if device == "net_tap":
            wire, server = Wire(pop.inside, "tap0"), self.SERVER
        before = packets_of(pop, "tx-handover")
        assert faults(numbers_seen(pop, wire, server)) == {}
        assert packets_of(pop, "tx-handover") > before

    def test_a_trace_names_the_worker_that_sends_a_packet(self, pop):
        with Connection(pop.gateway.dataplane_socket) as connection:
            number = connection.send(trace=api.Trace(count=10000))
            for _ in range(20):
                for line in LINES:
                    packet = frames.udp(line.ip4, "198.51.100.1", 1024, 7, b"followed")
                    pop.access.send(line.frame(frames.mac_bytes(ACCESS_MAC), packet))
            ends = set()
            while len([end for end in ends if "port core" in end]) < 2:
                ends.add(connection.receive().traced.end)
            connection.send(cancel=api.Cancel(id=number))
        assert ends >= {"port core", "port core, handed to worker 0 to send"}

    def test_a_port_with_one_transmit_queue_comes_and_goes_while_both_work(self, pop):
        with pop.losing_nothing(LINES, 500):
            for number in range(3):
                with pop.having(thing("Port", "extra", device=f"net_tap{number + 1},iface=extra{number}", rxQueues=1)):
                    pass


class TestSpreadByEvents:
    """Ports with one queue each, whose frames two workers share by an event device."""

    @pytest.fixture(scope="class")
    def pop(self):
        with Lab() as own:
            made = Pop(own, *(session(line) for line in LINES), base=self.spread("atomic"), workers=2)
            made.learn(*LINES)
            yield made

    @staticmethod
    def spread(by, *names):
        """All that the pop stands on, or those of it that are asked for, with the ports spread like this."""
        things = [
            thing(
                each["kind"],
                each["metadata"]["name"],
                **each["spec"] | ({"spread": by} if each["kind"] == "Port" else {}),
            )
            for each in base_of(1, 1)
        ]
        return [each for each in things if not names or each["metadata"]["name"] in names]

    def test_nothing_is_lost_and_both_workers_have_a_part(self, pop):
        # Each port has one transmit queue: handed-over packets were the second worker's.
        with pop.losing_nothing(LINES, 1000) as load:
            before = packets_of(pop, "tx-handover")
            assert load.has_sent(1000)
        assert packets_of(pop, "tx-handover") > before
        assert packets_of(pop, "dispatch") >= 2000

    @pytest.mark.parametrize("by", ["atomic", "ordered"])
    def test_each_flow_stays_in_order_even_with_uneven_work(self, pop, by):
        pop.apply(*self.spread(by, "access", "core"))
        seen = numbers_seen(pop, pop.core, "198.51.100.1", lambda number: bytes(number % 7 * 200))
        assert faults(seen) == {}

    def test_a_global_meter_limits_the_sum_of_both_workers(self, pop):
        size, burst, rate = 1000, 100000, 8000
        meter = thing("Meter", "total", scope="global", committedRate=rate, committedBurst=burst)
        pop.apply(meter, *(session(line, policy={"meterUp": "total"}) for line in LINES))
        pop.core.drain()
        begin = time.monotonic()
        for number in range(30):
            for line in LINES:
                packet = frames.udp(line.ip4, "198.51.100.1", 1024, 7, bytes([number]) * (size - 28))
                pop.access.send(line.frame(frames.mac_bytes(ACCESS_MAC), packet))
        passed = sum(size for raw in pop.core.burst() if raw[12:14] == b"\x08\x00" and raw[23] == 17)
        assert burst <= passed <= burst + rate / 8 * (time.monotonic() - begin)
        red = pop.gateway.drops()["meter-red"]
        assert red * size + passed == 30 * len(LINES) * size
        pop.apply(*(session(line) for line in LINES))

    @pytest.mark.parametrize("by", ["unordered", "ordered", "directed", "rss", "ordered", "atomic"])
    def test_the_way_of_spreading_changes_and_nothing_is_lost(self, pop, by):
        with pop.losing_nothing(LINES, 1000) as load:
            pop.apply(*self.spread(by, "access", "core"))
            assert load.has_sent(300)

    def test_ports_that_are_spread_come_and_go_with_frames_on_their_way(self, pop):
        for number in range(5):
            # It receives without end: more than the event device has room for.
            device = f"net_null{number + 5},size=64"
            with pop.having(thing("Port", "extra", device=device, spread="atomic", rxQueues=1)):
                pop.gateway.dropped("dispatch-full", more_than=0)
        with pop.losing_nothing(LINES, 500) as load:
            assert load.has_sent(200)

    def test_ports_are_spread_in_different_ways_at_once(self, pop):
        for access, core in (("ordered", "atomic"), ("rss", "ordered")):
            with pop.losing_nothing(LINES, 500) as load:
                pop.apply(*self.spread(access, "access"), *self.spread(core, "core"))
                assert load.has_sent(300)

    def test_a_way_of_spreading_that_there_is_not_is_refused_with_those_there_are(self, pop):
        done = pop.gateway.apply(*self.spread("sideways", "core"), check=False)
        assert done.returncode != 0
        assert "atomic" in done.stdout + done.stderr


def test_one_worker_alone_preserves_the_order():
    with Lab() as own:
        pop = Pop(own, *(session(line) for line in LINES), base=TestSpreadByEvents.spread("ordered"), workers=1)
        with pop.losing_nothing(LINES, 1000) as load:
            assert load.has_sent(500)


@pytest.mark.parametrize("workers", [1, 2])
def test_all_four_queues_of_a_port_are_served(workers):
    with Lab() as own:
        pop = Pop(own, *(session(line) for line in LINES), base=base_of(4, 4), workers=workers)
        with pop.losing_nothing(LINES, 1000) as load:
            assert load.has_sent(1000)
        fewer = thing("Port", "fewer", device="net_af_packet3,iface=lo,qpairs=4", rxQueues=2)
        done = pop.gateway.apply(fewer, check=False)
        assert "all 4 queues" in done.stdout + done.stderr


def test_a_data_plane_that_cannot_have_its_memory_leaves_nothing(lab):
    prefix = f"{lab.prefix}-greedy"
    command = [DATAPLANE, "--prefix", prefix, "--memory", str(1 << 20), "--socket", lab.directory / "greedy.sock"]
    done = run(*command, check=False)
    assert done.returncode == 1
    assert "start with --no-huge" in done.stderr
    assert not Path(f"/var/run/dpdk/{prefix}").exists()


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
