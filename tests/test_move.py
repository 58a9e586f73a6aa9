# SPDX-License-Identifier: Apache-2.0
"""A session changes its access key under traffic in both directions: no packet is lost, and its counters stay."""

import threading
import time
from collections import Counter
from dataclasses import replace

import pytest
from contract import Connection, api
from lab import Line, frames, thing
from lab.frames import Frame
from lab.gateway import yaml
from lab.laboratory import wait_until
from pop import ACCESS_MAC, SERVER4, Pop, WireHost, session, tunnel

PORT, BEGIN = 9, b"moving "
ROUTED = Line("routed", "02:00:00:00:08:01", "100.64.8.1", vlans=(108, 1))
TUNNELLED = Line("tunnelled", "02:00:00:00:08:02", "100.64.8.2", vlans=(108, 2), teid_up=82, teid_down=81)
ANOTHER_MAC = "02:00:00:00:08:0a"
POLICY = {"aclUp": "open", "aclDown": "open", "meterUp": "wide", "meterDown": "wide", "mss": 1300}
POLICIES = [
    thing("Acl", "open", otherwise="permit"),
    thing("Meter", "wide", algorithm="srtcm", committedRate="1G", committedBurst="1MB"),
]
# From each to the next; the object has the MAC where it is a part of the key.
CHANGES = {
    "the inner VLAN": {"vlans": (108, 9)},
    "both VLANs": {"vlans": (109, 10)},
    "a tag less": {"vlans": (110,)},
    "no tag": {"vlans": ()},
    "a MAC of its own on the same VLANs": {"vlans": (108, 9), "told": True},
    "another MAC": {"mac": ANOTHER_MAC},
    "PPPoE": {"pppoe": 7},
    "the PPPoE session id": {"pppoe": 8},
    "the PPPoE session id and VLANs": {"pppoe": 9, "vlans": (111, 1)},
    "the PPPoE session's MAC": {"mac": ROUTED.mac},
    "IPoE": {"pppoe": 0, "told": False},
}


def object_of(line, told):
    more = {"gtpu": tunnel(line, pduSessionContainer=True, qfi=9)} if line.teid_down else {}
    access = {"pduSessionId": 1} if line.teid_down else {}
    return session(line, access | ({"mac": line.mac} if told else {}), policy=POLICY, **more)


class Traffic:
    """A numbered packet each way every millisecond: from the subscriber by each of `lines`, and to it."""

    def __init__(self, pop, line):
        self.access, self.core = pop.access, pop.core
        self.host = WireHost(pop.core, [line])
        self.lines, self.known = [line], [line]
        self.sent, self.up, self.down = 0, Counter(), Counter()
        self.strange = []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        due = time.monotonic()
        while not self.done.is_set():
            if time.monotonic() >= due:
                due += 0.001
                self.send(b"%s%8d" % (BEGIN, self.sent))
            self.receive()
            time.sleep(0.0003)
        end = time.monotonic() + 20
        while time.monotonic() < end and (len(self.up) < self.sent or len(self.down) < self.sent):
            self.receive()

    def send(self, payload):
        for line in list(self.lines):
            packet = frames.udp(line.ip4, SERVER4, PORT, PORT, payload)
            self.access.send(line.frame(frames.mac_bytes(ACCESS_MAC), packet))
        self.core.send(self.host.frame(self.lines[-1], 4, payload))
        self.sent += 1

    def reaches(self, count):
        """Waits until so many were sent and have come, both ways."""
        keys = [b"%s%8d" % (BEGIN, each) for each in range(count)]
        wait_until(
            lambda: self.sent >= count and all(each in self.up and each in self.down for each in keys),
            what=f"{count} packets have come, both ways",
        )

    def receive(self):
        while (raw := self.core.read()) is not None:
            if BEGIN in raw:
                self.up[raw[raw.index(BEGIN) :][: len(BEGIN) + 8]] += 1
        while (raw := self.access.read()) is not None:
            if BEGIN not in raw:
                continue
            self.down[raw[raw.index(BEGIN) :][: len(BEGIN) + 8]] += 1
            frame = Frame.parse(raw)
            if not any(self.is_of(line, frame) for line in list(self.known)):
                self.strange.append(raw[:64].hex())

    @staticmethod
    def is_of(line, frame):
        if frame.tags != line.tags or frame.destination != line.raw_mac:
            return False
        if not line.pppoe:
            return frame.ethertype == frames.IP4
        return frame.ethertype == frames.PPPOE_SESSION and frames.un_pppoe(frame.payload)[0] == line.pppoe

    def end(self):
        self.done.set()
        self.thread.join(20)


@pytest.fixture(scope="module")
def pop(lab):
    return Pop(lab, *POLICIES)


def counters(pop, line):
    with Connection(pop.gateway.dataplane_socket) as connection:
        (found,) = connection.read(api.SessionCountersQuery(sessions=[line.name])).sessions
    return found


@pytest.mark.parametrize("line", [ROUTED, TUNNELLED], ids=["routed", "through GTP-U"])
def test_no_packet_is_lost_either_way_for_any_new_key_of_a_session(pop, line):
    pop.apply(object_of(line, False))
    pop.learn(line)
    told, before = False, counters(pop, line)
    traffic = Traffic(pop, line)
    try:
        for name, change in CHANGES.items():
            change = dict(change)
            told = change.pop("told", told)
            now = replace(line, **change)
            # By both from before the change to behind it: at any instant one of them is right.
            traffic.known = [line, now]
            traffic.lines = [line, now]
            traffic.reaches(traffic.sent + 30)
            planned = pop.gateway.sluice("plan", "-f", "-", input=yaml([object_of(now, told)])).stdout
            assert "1 to update" in planned and "interruption" not in planned and "outage" not in planned, name
            assert "updated" in pop.apply(object_of(now, told)).stdout, name
            traffic.lines = [now]
            line = now
            # Packets under way, and some more.
            traffic.reaches(traffic.sent + 50)
            traffic.known = [line]
            after = counters(pop, line)
            assert after.up_packets > before.up_packets, name
            assert after.down_packets > before.down_packets, name
            before = after
    finally:
        traffic.end()
    assert traffic.strange == []
    assert [each for each in range(traffic.sent) if not traffic.up[b"%s%8d" % (BEGIN, each)]] == []
    assert [each for each in range(traffic.sent) if traffic.down[b"%s%8d" % (BEGIN, each)] != 1] == []
    assert counters(pop, line).down_packets >= traffic.sent
    pop.gateway.delete("Session", line.name)
