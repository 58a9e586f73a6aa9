# SPDX-License-Identifier: Apache-2.0
"""Meters: RFC 2697, RFC 2698 and RFC 4115 by the forwarded packets. Rates are so low that no bucket fills while a test
runs."""

import pytest
from lab import frames, thing
from lab.laboratory import wait_until
from pop import ACCESS_MAC, CORE4, CORE6, CORE_MAC, HOST_MAC, IPOE, PPPOE, Pop, session, udp_down, udp_up
from scapy.all import IP, UDP, Ether, IPv6

# Of an IP packet, in bytes. A burst takes two; 8 kbit/s, the lowest rate, fill 1 byte in a millisecond.
SIZE = 1400
AF11, AF12, AF13 = 10, 12, 14


@pytest.fixture(scope="module")
def pop(lab):
    made = Pop(lab, session(IPOE), session(PPPOE))
    made.learn(IPOE, PPPOE)
    return made


def at_once(pop, line, packets):
    """Sends them with nothing in between that takes time, in which buckets would fill."""
    mac = frames.mac_bytes(ACCESS_MAC)
    for frame in [line.frame(mac, bytes(packet)) for packet in packets]:
        pop.access.send(frame)


def metered_away(pop):
    return sum(count for reason, count in pop.gateway.drops().items() if reason.startswith("meter-"))


def passed(pop, wire, parse, packets, send):
    """Which of these packets come out at a wire, by number, with their DSCPs. Meters dropped the others."""
    wire.drain()
    before, got = metered_away(pop), {}
    send()

    def are_told():
        while (raw := wire.read()) is not None:
            packet = parse(raw)
            if packet is not None and UDP in packet:
                dscp = packet[IP].tos >> 2 if IP in packet else packet[IPv6].tc >> 2
                got[bytes(packet[UDP].payload)[0]] = dscp
        return len(got) == len(packets) or len(got) + metered_away(pop) - before == len(packets)

    wait_until(are_told, what=lambda: f"{len(packets)} packets; of these came {got}")
    return got


def passed_up(pop, line, packets):
    return passed(pop, pop.core, pop.from_core, packets, lambda: at_once(pop, line, packets))


def burst(line, count, version=4, **fields):
    size = SIZE - (28 if version == 4 else 48)
    return [udp_up(line, version, bytes([number]) * size, **fields) for number in range(count)]


def burst_down(count):
    return [udp_down(IPOE, payload=bytes([number]) * (SIZE - 28)) for number in range(count)]


def down_at_once(pop, packets):
    for frame in [bytes(Ether(src=HOST_MAC, dst=CORE_MAC) / packet) for packet in packets]:
        pop.core.send(frame)


class metered:
    """A session with a fresh meter, whose buckets are full."""

    def __init__(self, pop, way="meterUp", **meter):
        self.pop, self.way, self.meter = pop, way, meter

    def __enter__(self):
        self.pop.apply(thing("Meter", "test", **self.meter), session(IPOE, policy={self.way: "test"}))

    def __exit__(self, *_):
        self.pop.apply(session(IPOE))
        self.pop.gateway.delete("meter", "test")


@pytest.mark.parametrize("version", [4, 6])
def test_a_single_rate_meter_passes_green_and_yellow_and_drops_red(pop, version):
    meter = {"algorithm": "srtcm", "committedRate": 8000, "committedBurst": 2 * SIZE, "excessBurst": 2 * SIZE}
    with metered(pop, **meter), pop.dropping("meter-red"):
        assert set(passed_up(pop, IPOE, burst(IPOE, 8, version))) == {0, 1, 2, 3}


def test_yellow_packets_are_remarked_if_configured(pop):
    meter = {"algorithm": "srtcm", "committedRate": 8000, "committedBurst": 2 * SIZE, "excessBurst": 2 * SIZE}
    with metered(pop, **meter, yellow={"verdict": "remark", "dscp": "af12"}):
        got = passed_up(pop, IPOE, burst(IPOE, 8, tos=AF11 << 2))
        assert got == {0: AF11, 1: AF11, 2: AF12, 3: AF12}


def test_red_packets_are_remarked_if_configured_and_their_checksums_hold(pop):
    meter = {"algorithm": "srtcm", "committedRate": 8000, "committedBurst": 2 * SIZE}
    with metered(pop, **meter, red={"verdict": "remark", "dscp": "cs1"}):
        got = passed_up(pop, IPOE, burst(IPOE, 4, tos=AF11 << 2))
        assert got == {0: AF11, 1: AF11, 2: 8, 3: 8}
        pop.send_up(IPOE, burst(IPOE, 1)[0])
        packet = pop.at_core(lambda packet: UDP in packet)
        found = packet[IP].chksum
        del packet[IP].chksum
        assert IP(bytes(packet)).chksum == found


def test_yellow_packets_are_dropped_if_configured(pop):
    meter = {"algorithm": "srtcm", "committedRate": 8000, "committedBurst": 2 * SIZE, "excessBurst": 2 * SIZE}
    with metered(pop, **meter, yellow={"verdict": "drop"}), pop.dropping("meter-yellow", 2):
        assert set(passed_up(pop, IPOE, burst(IPOE, 8))) == {0, 1}


def test_a_two_rate_meter_passes_up_to_its_peak_burst(pop):
    meter = {
        "algorithm": "trtcm",
        "committedRate": 8000,
        "peakRate": 16000,
        "committedBurst": 2 * SIZE,
        "excessBurst": 4 * SIZE,
    }
    with metered(pop, **meter, yellow={"verdict": "remark", "dscp": "af12"}):
        got = passed_up(pop, IPOE, burst(IPOE, 8, tos=AF11 << 2))
        assert got == {0: AF11, 1: AF11, 2: AF12, 3: AF12}


def test_an_rfc_4115_meter_passes_committed_and_excess_burst(pop):
    meter = {
        "algorithm": "rfc4115",
        "committedRate": 8000,
        "excessRate": 8000,
        "committedBurst": 2 * SIZE,
        "excessBurst": 3 * SIZE,
    }
    with metered(pop, **meter, yellow={"verdict": "remark", "dscp": "af12"}):
        got = passed_up(pop, IPOE, burst(IPOE, 8, tos=AF11 << 2))
        assert got == {0: AF11, 1: AF11, 2: AF12, 3: AF12, 4: AF12}


def test_a_colour_aware_meter_never_makes_a_packet_greener(pop):
    meter = {
        "algorithm": "trtcm",
        "committedRate": 8000,
        "peakRate": 16000,
        "committedBurst": 2 * SIZE,
        "excessBurst": 4 * SIZE,
    }
    with metered(pop, **meter, colorAware=True), pop.dropping("meter-red"):
        packets = burst(IPOE, 4, tos=AF12 << 2)
        packets[0].tos = AF13 << 2
        assert set(passed_up(pop, IPOE, packets)) == {1, 2, 3}


def test_a_burst_given_as_a_time_is_the_rate_times_that_time(pop):
    # 8 kbit/s for 2.8 seconds: 2,800 bytes, or two packets.
    with metered(pop, algorithm="srtcm", committedRate="8K", committedBurstTime="2800ms"):
        assert set(passed_up(pop, IPOE, burst(IPOE, 6))) == {0, 1}


def test_the_way_down_is_metered_by_itself(pop):
    with metered(pop, "meterDown", algorithm="srtcm", committedRate=8000, committedBurst=2 * SIZE):
        packets = burst_down(6)
        got = passed(pop, pop.access, lambda raw: pop.from_line(IPOE, raw), packets, lambda: down_at_once(pop, packets))
        assert len(got) == 2
        assert len(passed_up(pop, IPOE, burst(IPOE, 6))) == 6


def test_each_session_has_buckets_of_its_own(pop):
    meter = thing("Meter", "shared", algorithm="srtcm", committedRate=8000, committedBurst=2 * SIZE)
    pop.apply(meter, *(session(line, policy={"meterUp": "shared"}) for line in (IPOE, PPPOE)))
    try:
        assert len(passed_up(pop, IPOE, burst(IPOE, 5))) == 2
        assert len(passed_up(pop, PPPOE, burst(PPPOE, 5))) == 2
    finally:
        pop.apply(session(IPOE), session(PPPOE))
        pop.gateway.delete("meter", "shared")


def test_sessions_share_one_bucket_where_the_meter_is_global(pop):
    meter = thing("Meter", "total", scope="global", algorithm="srtcm", committedRate=8000, committedBurst=4 * SIZE)
    policy = {"meterUp": "total", "meterDown": "total"}
    pop.apply(meter, *(session(line, policy=policy) for line in (IPOE, PPPOE)))
    try:
        up, down = [(line, burst(line, count)) for line, count in ((IPOE, 2), (PPPOE, 5))], burst_down(5)
        with pop.dropping("meter-red", 8):
            for line, packets in up:
                at_once(pop, line, packets)
            down_at_once(pop, down)
    finally:
        pop.apply(session(IPOE), session(PPPOE))
        pop.gateway.delete("meter", "total")


def test_an_interfaces_meters_limit_packets_that_come_in_and_that_leave(pop):
    meters = [
        thing("Meter", name, scope="global", committedRate=8000, committedBurst=3 * SIZE) for name in ("in", "out")
    ]
    spec = {"port": "core", "addresses": [f"{CORE4}/24", f"{CORE6}/64"]}
    pop.apply(*meters, thing("Interface", "core", **spec, meterIn="in", meterOut="out"))
    try:
        # Both families and all sessions share the buckets.
        assert set(passed_up(pop, IPOE, burst(IPOE, 2))) == {0, 1}
        assert set(passed_up(pop, PPPOE, burst(PPPOE, 4, 6))) == {0}
        with pop.dropping("meter-red", 2):
            down_at_once(pop, burst_down(5))
    finally:
        pop.apply(thing("Interface", "core", **spec))
        pop.gateway.delete("meter", "in", "out")
    pop.drain()
    assert pop.passes(IPOE)


def test_an_interface_refuses_a_meter_that_is_not_global(pop):
    meter = thing("Meter", "own", committedRate=8000, committedBurst=3 * SIZE)
    wanted = thing("Interface", "other", addresses=["203.0.113.99/32"], meterIn="own")
    done = pop.gateway.apply(meter, wanted, check=False)
    assert 'meterIn: an interface needs a meter with scope global, and "own" has another' in done.stderr
    pop.gateway.delete("interface", "other")
    pop.gateway.delete("meter", "own")


def test_each_flow_has_buckets_of_its_own_if_the_meter_is_by_flow(pop):
    with metered(pop, scope="flow", flows=1024, algorithm="srtcm", committedRate=8000, committedBurst=2 * SIZE):
        packets = burst(IPOE, 12)
        for number, packet in enumerate(packets):
            packet[UDP].sport = 2000 + number % 3
        assert set(passed_up(pop, IPOE, packets)) == set(range(6))


def test_a_meters_scope_changes_by_making_it_again(pop):
    small = {"algorithm": "srtcm", "committedRate": 8000, "committedBurst": 2 * SIZE}
    with metered(pop, **small):
        pop.apply(thing("Meter", "test", **small, scope="global"))
        assert len(passed_up(pop, IPOE, burst(IPOE, 5))) == 2


def test_flows_without_their_scope_are_refused(pop):
    spec = {"algorithm": "srtcm", "committedRate": 8000, "committedBurst": 2 * SIZE, "flows": 4096}
    done = pop.gateway.apply(thing("Meter", "wrong", **spec), check=False)
    assert done.returncode != 0
    assert "no value, or scope flow" in done.stdout + done.stderr


def test_a_meters_rate_changes_while_sessions_use_it(pop):
    with metered(pop, algorithm="srtcm", committedRate=8000, committedBurst=2 * SIZE):
        assert len(passed_up(pop, IPOE, burst(IPOE, 5))) == 2
        pop.apply(thing("Meter", "test", algorithm="srtcm", committedRate="1G", committedBurst="64KB"))
        assert len(passed_up(pop, IPOE, burst(IPOE, 20))) == 20
