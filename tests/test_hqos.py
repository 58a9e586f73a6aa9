# SPDX-License-Identifier: Apache-2.0
"""Hierarchical QoS as its users see it. Rates are so low that packets still wait when a test looks."""

import contextlib
import errno

import pytest
from contract import Connection, api, question
from lab import Lab, Line, frames, thing
from lab.frames import Frame
from lab.laboratory import wait_until
from lab.upf import GPDU, Message, downlink_container
from pop import (
    ACCESS_MAC,
    CORE4,
    CORE_MAC,
    HOST4,
    HOST_MAC,
    IPOE,
    PPPOE,
    Pop,
    base_of,
    session,
    tunnel,
    udp_down,
    udp_up,
)
from scapy.all import IP, UDP, IPv6

SIZE = 1400
# A frame takes longer than a second, but for the first few.
CRAWL = {"peakRate": "8K"}
FAST = {"peakRate": "100M"}
CLASSES = [
    {"name": "data", "priority": 2},
    {"name": "voice", "priority": 0, "match": {"dscp": ["ef"]}},
    {"name": "video", "priority": 1, "match": {"dscp": ["af41"]}},
]
EF, AF41 = 46 << 2, 34 << 2
STRANGER = bytes.fromhex("020909090909")


def scheduler(port="access", **spec):
    return thing("QosScheduler", port, port=port, **({"rate": "1G", "overhead": 24} | spec))


def group(name="olt", port="access", **spec):
    return thing("QosGroup", name, scheduler=port, **({"overhead": 24} | spec))


def profile(name="home", **spec):
    return thing("QosProfile", name, **spec)


def shaped(line, profile="home", **spec):
    return session(line, policy={"qosProfile": profile, "qosGroup": "olt"}, **spec)


@pytest.fixture(scope="module")
def pop(lab):
    made = Pop(lab, session(IPOE), session(PPPOE))
    made.learn(IPOE, PPPOE)
    return made


@pytest.fixture(autouse=True)
def nothing_of_before(pop):
    pop.drain()


@contextlib.contextmanager
def shaping(pop, *lines, **spec):
    """These lines' sessions have this profile."""
    objects = [scheduler(), group(), profile(**spec)]
    try:
        pop.apply(*objects, *(shaped(line) for line in lines))
        yield
    finally:
        if lines:
            pop.apply(*(session(line) for line in lines))
        for each in reversed(objects):
            pop.gateway.delete(each["kind"], each["metadata"]["name"])


def packets(line, numbers, version=4, **fields):
    size = SIZE - (28 if version == 4 else 48)
    return [udp_down(line, version, bytes([number]) * size, **fields) for number in numbers]


def send(pop, *sent):
    for each in sent:
        pop.send_down(each)


def number(packet):
    return bytes(packet[UDP].payload)[0]


def arriving(pop, line, count):
    """The next so many packets at the line, by number."""
    return [number(pop.at_line(line, lambda packet: UDP in packet)) for _ in range(count)]


def queues(pop, line, way="down"):
    found = pop.gateway.json("describe", "session", line.name)["queues"]
    counts = ("sent", "dropped", "queued")
    return {
        each["class"]: {name: each[f"{name}Packets"] for name in counts}
        for each in found
        if each["up"] == (way == "up")
    }


def total(queue):
    return queue["sent"] + queue["dropped"] + queue["queued"]


def waiting(pop, line, **counts):
    """Once so many packets came to each class."""

    def there():
        found = queues(pop, line)
        return all(total(found[name]) == count for name, count in counts.items()) and found

    return wait_until(there, 20, lambda: f"packets in queues: {counts}")


@pytest.mark.parametrize("line", [IPOE, PPPOE], ids=lambda line: line.name)
@pytest.mark.parametrize("version", [4, 6])
def test_packets_over_the_rate_wait_and_go_in_order_when_the_profile_changes(pop, line, version):
    with shaping(pop, line, **CRAWL):
        send(pop, *packets(line, range(20), version))
        found = waiting(pop, line, all=20)["all"]
        assert found["queued"] > 0 and found["dropped"] == 0
        pop.apply(profile(**FAST))
        assert arriving(pop, line, 20) == list(range(20))


def test_a_higher_class_goes_before_a_lower_one_that_came_first(pop):
    with shaping(pop, IPOE, **CRAWL, classes=CLASSES):
        send(pop, *packets(IPOE, range(20)))
        waiting(pop, IPOE, data=20)
        send(pop, *packets(IPOE, range(20, 25), tos=AF41), *packets(IPOE, range(25, 30), tos=EF))
        found = waiting(pop, IPOE, data=20, video=5, voice=5)
        first = {"voice": 25, "video": 20, "data": 0}
        ends = {"voice": 30, "video": 25, "data": 20}
        gone = {name: range(start, start + found[name]["sent"]) for name, start in first.items()}
        assert all(found[name]["queued"] > 0 for name in first)
        pop.apply(profile(**FAST, classes=CLASSES))
        got = arriving(pop, IPOE, 30)
        before = sum(map(len, gone.values()))
        assert set(got[:before]) == {number for numbers in gone.values() for number in numbers}
        assert got[before:] == [number for name in first for number in range(gone[name].stop, ends[name])]


def test_a_subscriber_does_not_wait_for_another(pop):
    with shaping(pop, PPPOE, **FAST), pop.having(profile("crawl", **CRAWL)):
        pop.apply(shaped(IPOE, "crawl"))
        try:
            send(pop, *packets(IPOE, range(20)), *packets(PPPOE, range(20)))
            assert arriving(pop, PPPOE, 20) == list(range(20))
            assert queues(pop, IPOE)["all"]["queued"] > 0
        finally:
            pop.apply(session(IPOE))


def test_a_full_queue_drops_and_counts(pop):
    one = [{"name": "all", "queueLength": 4}]
    with shaping(pop, IPOE, **CRAWL, classes=one):
        before = pop.gateway.drops("--session", IPOE.name).get("qos-queue-full", 0)
        send(pop, *packets(IPOE, range(30)))
        found = waiting(pop, IPOE, all=30)["all"]
        assert found["dropped"] > 10 and found["queued"] <= 4
        assert pop.gateway.drops("--session", IPOE.name)["qos-queue-full"] - before == found["dropped"]
        described = pop.gateway.json("describe", "qosscheduler", "access")["counters"]
        assert described["fullPackets"] == found["dropped"]
        described = pop.gateway.json("describe", "qosgroup", "olt")["counters"]
        assert described["droppedPackets"] == found["dropped"]
        assert described["droppedBytes"] >= found["dropped"] * SIZE
        assert described["sentPackets"] >= found["sent"]


def test_a_backlog_takes_its_share_of_the_buffers_and_others_pass(pop):
    """Of 8,192 buffers a port's queues have a quarter, and one queue half of that."""
    sent, share = 1200, 1024
    long = [{"name": "all", "queueLength": 32768}]
    with shaping(pop, PPPOE, **FAST), pop.having(profile("long", **CRAWL, classes=long)):
        pop.apply(shaped(IPOE, "long"))
        try:
            before = pop.gateway.drops("--session", IPOE.name).get("qos-port-full", 0)
            send(pop, *packets(IPOE, [0] * sent))
            found = waiting(pop, IPOE, all=sent)["all"]
            # Up to a burst may be between two looks at the share.
            assert share - 256 <= found["queued"] <= share
            assert pop.gateway.drops("--session", IPOE.name)["qos-port-full"] - before == found["dropped"] > 0
            described = pop.gateway.json("describe", "qosscheduler", "access")["counters"]
            assert described["portFullPackets"] == found["dropped"]
            send(pop, *packets(PPPOE, range(20)))
            assert arriving(pop, PPPOE, 20) == list(range(20))
        finally:
            pop.apply(session(IPOE))


def test_a_group_that_the_data_plane_does_not_have_has_no_counters(pop):
    with Connection(pop.gateway.dataplane_socket) as connection:
        reply = connection.ask(state=question(api.SchedulerCountersQuery(group="nowhere")))
        assert (reply.result.code, reply.result.message) == (errno.ENOENT, "group: there is no QosGroup nowhere")
        connection.read(api.SchedulerCountersQuery())
    # Nor is it a fault that a person would have to read about.
    assert pop.gateway.apply(group("early"), wait=False, check=False).returncode == 1
    try:
        described = pop.gateway.json("describe", "qosgroup", "early")
        assert "counters" not in described and "countersUnknown" not in described
    finally:
        pop.gateway.delete("qosgroup", "early")


def test_waiting_packets_are_named_drops_when_the_session_goes(pop):
    with shaping(pop, IPOE, **CRAWL):
        send(pop, *packets(IPOE, range(20)))
        waiting(pop, IPOE, all=20)
        before = pop.gateway.drops().get("qos-flushed", 0)
        pop.gateway.delete("session", IPOE.name)
        pop.gateway.dropped("qos-flushed", more_than=before + 5)
        pop.apply(shaped(IPOE))
        pop.learn(IPOE)
        send(pop, *packets(IPOE, [77]))
        assert arriving(pop, IPOE, 1) == [77]


def test_waiting_packets_move_with_their_session_to_another_group(pop):
    with shaping(pop, IPOE, **FAST), pop.having(group("slow", peakRate="64K")):
        pop.apply(session(IPOE, policy={"qosProfile": "home", "qosGroup": "slow"}))
        send(pop, *packets(IPOE, range(60)))
        assert waiting(pop, IPOE, all=60)["all"]["queued"] > 0
        pop.apply(shaped(IPOE))
        assert arriving(pop, IPOE, 60) == list(range(60))


def test_traffic_goes_on_when_a_port_gets_a_scheduler_and_when_it_loses_it(pop):
    with pop.losing_nothing([IPOE, PPPOE], 400):
        for _ in range(3):
            with shaping(pop, IPOE, PPPOE, **FAST, classes=CLASSES):
                pop.apply(profile(peakRate="50M", classes=CLASSES[:1]))


@pytest.mark.parametrize(
    ("match", "fields"),
    [({"dscp": [46]}, {"tos": EF}), ({"acl": "voice"}, {"tos": AF41})],
    ids=["dscp", "acl"],
)
def test_packets_are_classed_by(pop, match, fields):
    acl = thing("Acl", "voice", rules=[{"action": "permit", "dscp": "af41"}])
    classes = [{"name": "rest"}, {"name": "wanted", "match": match}]
    with pop.having(acl), shaping(pop, IPOE, **FAST, classes=classes):
        send(pop, *packets(IPOE, range(3), **fields), *packets(IPOE, range(3, 5)))
        arriving(pop, IPOE, 5)
        found = queues(pop, IPOE)
        assert (found["wanted"]["sent"], found["rest"]["sent"]) == (3, 2)


def test_packets_have_the_mark_of_their_class(pop):
    classes = [{"name": "all", "mark": {"dscp": "af31", "vlanPriority": 5}}]
    with shaping(pop, IPOE, **FAST, classes=classes):
        for version in (4, 6):
            send(pop, *packets(IPOE, [1], version, **({"tos": 3} if version == 4 else {"tc": 3})))
            got = pop.at_line(IPOE, lambda packet: UDP in packet)
            assert (got[IP].tos if version == 4 else got[IPv6].tc) == 26 << 2 | 3
            if version == 4:
                found = got[IP].chksum
                del got[IP].chksum
                assert IP(bytes(got)).chksum == found
        send(pop, *packets(IPOE, [2]))
        frame = pop.access.expect(lambda raw: raw if raw[:6] == IPOE.raw_mac and raw[-1] == 2 else None, 20)
        assert (frame[14] >> 5, frame[18] >> 5) == (5, 5)


def test_a_5g_sessions_packets_are_classed_by_their_qfi(pop):
    line = Line("agf", "02:00:00:00:01:03", "100.64.0.13", vlans=(100, 3), teid_up=33, teid_down=44)
    classes = [{"name": "rest"}, {"name": "wanted", "match": {"qfis": [9]}}]
    with pop.having(session(line, gtpu=tunnel(line))):
        pop.learn(line)
        with shaping(pop, **FAST, classes=classes):
            pop.apply(shaped(line, gtpu=tunnel(line)))
            try:
                load = pop.load([line], 100)
                assert load.warm_up() == []
                load.pause()
                load.close()
                found = queues(pop, line)
                assert found["wanted"]["sent"] > 0 and found["rest"]["sent"] == 0
            finally:
                pop.apply(session(line, gtpu=tunnel(line)))


@pytest.mark.parametrize(
    "frame,found,priority",
    [
        (lambda line: Frame(STRANGER, line.raw_mac, (), 0x0800, bytes(udp_down(IPOE, 4, b"x", tos=EF))), "voice", 5),
        (
            lambda line: Frame(STRANGER, line.raw_mac, ((0x8100, 77),), 0x86DD, bytes(IPv6(tc=AF41) / UDP())),
            "video",
            0,
        ),
        (lambda line: Frame(STRANGER, line.raw_mac, ((0x8100, 6 << 13 | 77),), 0x9000, bytes(50)), "control", 0),
        (lambda line: Frame(STRANGER, line.raw_mac, (), 0x0806, bytes(46)), "data", 0),
        (lambda line: Frame(STRANGER, line.raw_mac, (), 0x0800, b"\x45\xb8"), "data", 0),
    ],
    ids=["IPv4 by DSCP", "IPv6 behind a tag of its own by DSCP", "no IP by its own tag", "no IP, no tag", "cut short"],
)
def test_frames_of_an_ethernet_pdu_session_are_shaped_and_classed(pop, frame, found, priority):
    line = Line("frames", "02:00:00:00:01:05", "", vlans=(100, 5), teid_up=77, teid_down=88)
    classes = [
        *CLASSES[:1],
        CLASSES[1] | {"mark": {"vlanPriority": 5}},
        CLASSES[2],
        {"name": "control", "priority": 3, "match": {"vlanPriorities": [6]}},
    ]
    plain = session(line, gtpu=tunnel(line, ethernet=True))
    plain["spec"]["addresses"] = []
    policy = {"qosProfile": "home", "qosGroup": "olt"}
    with pop.having(plain), shaping(pop, **FAST, classes=classes):
        wanted = plain | {"spec": plain["spec"] | {"policy": policy}}
        pop.apply(wanted)
        try:
            sent = frame(line)
            message = Message(GPDU, line.teid_down, extensions=[downlink_container(9)], payload=sent.pack())
            outer = frames.udp(HOST4, CORE4, 2152, 2152, message.pack())
            pop.core.send(Frame(frames.mac_bytes(CORE_MAC), frames.mac_bytes(HOST_MAC), (), frames.IP4, outer).pack())
            back = pop.access.expect(lambda raw: raw if raw[:6] == STRANGER else None, 20)
            tags = tuple((tpid, priority << 13 | vlan) for tpid, vlan in line.tags)
            assert back == sent._replace(tags=tags + sent.tags).pack()
            assert {name for name, queue in queues(pop, line).items() if queue["sent"]} == {found}
        finally:
            pop.apply(plain)


def test_an_uplink_packet_has_the_qfi_of_its_class_outside(pop):
    line = Line("marked", "02:00:00:00:01:04", "100.64.0.14", vlans=(100, 4), teid_up=55, teid_down=66)
    gtpu = tunnel(line, pduSessionContainer=True, qfi=9)
    classes = [{"name": "rest"}, {"name": "voice", "match": {"dscp": ["ef"]}, "mark": {"qfi": 5}}]
    with pop.having(scheduler("core"), group("uplink", "core"), profile(**FAST, classes=classes)):
        policy = {"qosProfileUp": "home", "qosGroupUp": "uplink"}
        with pop.having(session(line, gtpu=gtpu, policy=policy)):
            for tos, qfi in ((0, 9), (EF, 5)):
                pop.core.drain()
                pop.send_up(line, udp_up(line, tos=tos))
                outer = pop.at_core(lambda packet: UDP in packet and packet[UDP].dport == 2152)
                message = Message.parse(bytes(outer[UDP].payload))
                assert message.teid == 55 and message.container[1] == qfi


def test_the_way_up_waits_at_the_cores_port(pop):
    with pop.having(scheduler("core"), group("uplink", "core"), profile("crawl", **CRAWL)):
        pop.apply(session(IPOE, policy={"qosProfileUp": "crawl", "qosGroupUp": "uplink"}))
        try:
            for each in range(20):
                pop.send_up(IPOE, udp_up(IPOE, payload=bytes([each]) * (SIZE - 28)))
            wait_until(lambda: total(queues(pop, IPOE, "up")["all"]) == 20, 20, "20 packets in the queue")
            assert queues(pop, IPOE, "up")["all"]["queued"] > 0
            pop.apply(profile("crawl", **FAST))
            got = [number(pop.at_core(lambda packet: UDP in packet)) for _ in range(20)]
            assert got == list(range(20))
        finally:
            pop.apply(session(IPOE))


@pytest.mark.parametrize(
    ("vlans", "pppoe", "ethernet"),
    [((), 0, False), ((160,), 0, False), ((100, 60), 0, False), ((100, 61), 9, False), ((100, 62), 0, True)],
    ids=["untagged", "802.1Q", "QinQ", "PPPoE", "Ethernet"],
)
def test_the_way_up_is_classed_by_the_priority_of_the_outer_tag(pop, vlans, pppoe, ethernet):
    line = Line("tagged", "02:00:00:00:01:06", "100.64.0.16", vlans=vlans, pppoe=pppoe, teid_up=99, teid_down=111)
    classes = [{"name": "rest"}, {"name": "control", "match": {"vlanPriorities": [6]}}]
    made = session(line, policy={"qosProfileUp": "home", "qosGroupUp": "uplink"})
    if ethernet:
        made["spec"] |= {"gtpu": tunnel(line, ethernet=True), "addresses": []}
    with pop.having(scheduler("core"), group("uplink", "core"), profile(**FAST, classes=classes), made):
        for priority, name in ((6, "control"), (0, "rest"), (5, "rest"), (6, "control")):
            before = queues(pop, line, "up")[name]["sent"]
            frame = Frame.parse(line.frame(frames.mac_bytes(ACCESS_MAC), bytes(udp_up(line))))
            # Without a VLAN of its own the priority is in a tag of VLAN 0.
            outer, *inner = frame.tags or (((0x8100, 0),) if priority else (None,))
            tags = ((outer[0], outer[1] | priority << 13), *inner) if outer else ()
            pop.access.send(frame._replace(tags=tags).pack())
            pop.at_core(lambda packet: UDP in packet)
            wait_until(lambda: queues(pop, line, "up")[name]["sent"] == before + 1, 20, f"priority {priority}: {name}")  # noqa: B023


@pytest.fixture(scope="module")
def two():
    with Lab() as lab:
        made = Pop(lab, session(IPOE), session(PPPOE), base=base_of(2, 2), workers=2)
        made.learn(IPOE, PPPOE)
        yield made


def test_two_workers_fill_the_queues_of_one(two):
    with two.losing_nothing([IPOE, PPPOE], 400), shaping(two, IPOE, PPPOE, **FAST, classes=CLASSES):
        # Flows of their own, spread over both receive queues.
        beside = two.beside()
        for flow in range(16):
            packet = udp_down(IPOE, payload=bytes([flow]) * 100)
            packet[UDP].sport = 5000 + flow
            beside.send_down(packet)
        wait_until(lambda: queues(two, IPOE)["data"]["sent"] >= 16, 20, "what both workers gave")


def test_waiting_packets_behind_two_workers_are_dropped_when_session_and_scheduler_go(two):
    before = two.gateway.drops().get("qos-flushed", 0)
    with shaping(two, IPOE, PPPOE, **CRAWL):
        for line in (IPOE, PPPOE):
            send(two, *packets(line, range(20)))
            waiting(two, line, all=20)
        two.gateway.delete("session", IPOE.name, PPPOE.name)
        two.gateway.dropped("qos-flushed", more_than=before + 20)
    two.learn(IPOE, PPPOE)
    assert two.passes(IPOE) and two.passes(PPPOE)


@pytest.mark.parametrize(
    ("objects", "field", "said"),
    [
        ([profile(classes=[{"name": "a"}, {"name": "a"}])], "classes[1].name", "name of its own"),
        ([profile(peakRate="1M", committedRate="2M")], "peakRate", "at least 2M"),
        ([profile(classes=[{"name": "a", "codel": {"target": "5ms"}}])], "classes[0].codel", "dropPolicy codel"),
        ([profile(classes=[{"name": "a", "match": {"qfis": [64]}}])], "classes[0].match.qfis[0]", "63"),
        ([profile(classes=[{"name": str(i)} for i in range(9)])], "classes", "at most 8"),
        ([profile(weight=256)], "weight", "255"),
        ([session(IPOE, policy={"qosProfile": "home"})], "policy.qosGroup", "with policy.qosProfile"),
        ([scheduler(), scheduler() | {"metadata": {"name": "again"}}], "port", "access"),
        ([scheduler("core"), group("olt", "core"), profile(), shaped(IPOE)], "policy.qosGroup", "port core"),
    ],
)
def test_bad_input_is_refused_with_object_field_and_mend(pop, objects, field, said):
    try:
        refused = pop.gateway.apply(*objects, check=False)
        if refused.returncode == 0:
            state = wait_until(
                lambda: [
                    each
                    for each in pop.gateway.json("get", objects[-1]["kind"])
                    if each["status"]["state"].lower() in ("failed", "invalid", "refused")
                ],
                10,
                "an object that the data plane refuses",
            )
            text = str(state)
        else:
            text = refused.stdout + refused.stderr
        assert objects[-1]["metadata"]["name"] in text and field in text and said in text, text
    finally:
        pop.apply(session(IPOE), session(PPPOE))
        for each in reversed(objects):
            if each["kind"] != "Session":
                pop.gateway.sluice("delete", each["kind"], each["metadata"]["name"], check=False)
