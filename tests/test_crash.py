# SPDX-License-Identifier: Apache-2.0
"""Agent, data plane and store are killed at random instants under traffic, for CRASH_SECONDS (20; `make crash`: 300).

CRASH_SEED repeats the choices of another run. The configuration is in etcd. Some subscribers' sessions do not change:
they lose no packet unless the data plane itself dies. Others come, change and go at random meanwhile.
"""

import http.client
import os
import threading
import time
from random import Random

import pytest
from contract import Connection, api, packed
from lab import Line, thing, yaml
from lab.etcd import Etcd, EtcdServer
from lab.laboratory import wait_until
from lab.load import DOWN, UP
from pop import Pop, session, tunnel

pytestmark = pytest.mark.long(reason="`make soak` does it for longer")
SECONDS = int(os.environ.get("CRASH_SECONDS", "20"))
SEED = int(os.environ.get("CRASH_SEED", "0")) or int.from_bytes(os.urandom(4))
# More often than not the data plane goes on.
VICTIMS = 2 * [("agent",), ("store",), ("agent", "store")]
VICTIMS += [("data plane",), ("agent", "data plane"), ("agent", "data plane", "store")]
CHANGING = 40


def steady(i):
    """A half is of a BNG and a half of an AGF; of these some with PPPoE."""
    mac, ip4, ip6 = f"02:00:00:00:05:{i:02x}", f"100.64.5.{i}", f"2001:db8:5:{i:x}::1"
    up, down = (1000 + i, 2000 + i) if i % 2 else (0, 0)
    return Line(f"steady-{i}", mac, ip4, ip6, (400, i), pppoe=i if i > 10 else 0, teid_up=up, teid_down=down)


def subscriber(line):
    core = {"gtpu": tunnel(line, pduSessionContainer=True, qfi=9)} if line.teid_down else {}
    return session(line, policy={"aclUp": "open", "meterUp": "wide"}, **core)


class Changes:
    """The other objects, one document each, changed by a thread that repeats failed writes."""

    def __init__(self, driver, random):
        self.driver, self.random = driver, random
        self.wanted, self.unheard = {}, set()
        self.count = 0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def objects(self, number):
        """A session and its meter; its place, so that it has to be replaced, and its type may change."""
        chosen = self.random
        meter = thing(
            "Meter",
            f"m{number}",
            committedRate=chosen.randrange(1, 1000) * 100_000,
            committedBurst=10_000,
        )
        line = Line(
            f"c{number}", f"02:00:00:00:06:{number:02x}", f"100.64.6.{number}", f"2001:db8:6:{number:x}::1",
            (500 + chosen.randrange(2), number + 1), pppoe=chosen.choice((0, number + 100)),
        )  # fmt: skip
        return [meter, session(line, policy={"meterUp": meter["metadata"]["name"], "mss": chosen.randrange(600, 1400)})]

    def work(self):
        while not self.done.wait(0.01):
            number = self.random.randrange(CHANGING)
            self.wanted[number] = self.objects(number) if self.random.random() < 0.8 else []
            self.unheard.add(number)
            self.count += 1
            self.say()

    def say(self):
        for number in sorted(self.unheard):
            objects = self.wanted[number]
            try:
                if objects:
                    self.driver.put(f"d{number}", yaml(objects))
                else:
                    self.driver.delete(f"d{number}")
            except (OSError, RuntimeError, http.client.HTTPException):
                return
            self.unheard.discard(number)

    def stop(self):
        self.done.set()
        self.thread.join(60)
        wait_until(lambda: self.say() or not self.unheard, 60, "the store hears everything")
        return [each for objects in self.wanted.values() for each in objects]


class Scene:
    def __init__(self, lab, random):
        self.random = random
        self.store = EtcdServer(lab, None)
        self.driver = Etcd(self.store, "pop")
        self.lines = [steady(i) for i in range(1, 21)]
        self.base = [
            *Pop.base,
            thing("Acl", "open", otherwise="permit"),
            thing("Meter", "wide", committedRate="1G", committedBurst="1MB"),
        ]
        self.pop = Pop(
            lab, base=self.base, supervised=True, agent_too=True, northbounds=[self.driver.northbound(lab.directory)]
        )
        self.store.namespace = self.pop.inside
        self.store.start()
        for line in self.lines:
            self.driver.put(line.name, yaml([subscriber(line)]))
        count = len(self.base) + len(self.lines)
        wait_until(lambda: len(self.holds()) == count, 30, "the data plane has what stays")
        self.at_first = self.holds()
        self.load = self.pop.load(self.lines, 500)
        self.changes = Changes(self.driver, Random(random.random()))

    def holds(self):
        """Objects of the data plane, by kind and name."""
        with Connection(self.pop.gateway.dataplane_socket) as connection:
            found = connection.ask(list=api.List(limit=10000)).objects.objects
        return {(each.kind, each.name): each.spec for each in found}

    def kill(self, victim):
        gateway = self.pop.gateway
        match victim:
            case "agent":
                gateway.agent.kill()
            case "data plane":
                gateway.dataplane.kill()
            case "store":
                self.store.kill()

    def round(self):
        """Kills some, each at an instant of its own. Gives what was lost of the steady sessions' packets, and how many
        were sent; None if the data plane died."""
        victims = self.random.choice(VICTIMS)
        moments = sorted((self.random.uniform(0, 1), victim) for victim in victims)
        before = self.pop.gateway.dataplane
        begun = time.monotonic()
        print(f"{', '.join(f'{victim} at {moment:.3f}' for moment, victim in moments)}", flush=True)
        for moment, victim in moments:
            time.sleep(max(0, begun + moment - time.monotonic()))
            self.kill(victim)
        time.sleep(self.random.uniform(0, 1.5))
        self.store.start()
        if "data plane" not in victims:
            # Another process than the one that was killed.
            wait_until(lambda: self.pop.gateway.agent.alive(), 30, "the agent is started again")
            assert self.pop.gateway.dataplane is before
            self.load.pause()
            lost = self.load.lost(UP), self.load.lost(DOWN)
            sent = self.load.total(self.load.sent, UP)
            self.load.forget()
            self.load.sending.set()
            return lost, sent
        wait_until(lambda: self.pop.gateway.dataplane is not before, 30, "the data plane is started again")
        self.load.forget()
        wait_until(self.load.everybody_received, 60, "each steady session passes traffic both ways again")
        self.load.pause()
        self.load.forget()
        self.load.sending.set()
        return None


@pytest.fixture
def scene(lab):
    print(f"CRASH_SEED={SEED}")
    made = Scene(lab, Random(SEED))
    yield made
    made.changes.done.set()
    made.load.close()


def test_crashes_lose_no_packet_of_others_and_end_where_no_crash_would(scene):
    end = time.monotonic() + SECONDS
    assert scene.load.warm_up() == []
    rounds = packets = 0
    while time.monotonic() < end:
        found = scene.round()
        rounds += 1
        if found:
            lost, sent = found
            assert lost == (0, 0), f"CRASH_SEED={SEED}: lost {lost} of {sent}"
            packets += sent
    wanted = scene.changes.stop()
    print(f"{rounds} rounds, {scene.changes.count} changes, {packets} packets that had to arrive each way")
    expected = scene.at_first | {(each["kind"], each["metadata"]["name"]): packed(each).spec for each in wanted}
    wait_until(lambda: scene.holds() == expected, 60, f"CRASH_SEED={SEED}: the data plane has the desired objects")
    states = {each["status"]["state"] for each in scene.pop.gateway.json("get", "all")}
    assert states == {"applied"}
    assert len(scene.pop.gateway.json("get", "all")) == len(expected)
    keys = [f"d{number}" for number, objects in scene.changes.wanted.items() if objects]

    def untold():
        told = {key: scene.driver.status(key) for key in keys}
        return [key for key, status in told.items() if not status or status["state"] != "Applied"]

    wait_until(lambda: not untold(), 60, f"CRASH_SEED={SEED}: all is told to be applied")
    assert scene.driver.statuses() == len(keys) + len(scene.lines)
    scene.load.pause()
    assert (scene.load.lost(UP), scene.load.lost(DOWN)) == (0, 0)
