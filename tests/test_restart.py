"""Killing and starting again each process, and changing objects, while subscribers' packets flow."""

import time

import pytest
from contract import Connection, api, packed
from lab import Line, thing
from lab.laboratory import wait_until
from lab.load import DOWN, UP
from pop import Pop, session

LINES = [
    Line(
        f"s{i}", f"02:00:00:00:03:{i:02x}", f"100.64.3.{i}", f"2001:db8:3:{i:x}::1", (400, i), pppoe=i if i > 10 else 0
    )
    for i in range(1, 21)
]


@pytest.fixture(scope="module")
def pop(lab):
    return Pop(lab, *(session(line, policy={"aclUp": "none", "meterUp": "wide"}) for line in LINES), base=[
        *Pop.base,
        thing("Acl", "none", otherwise="permit"),
        thing("Meter", "wide", algorithm="srtcm", committedRate="1G", committedBurst="1MB"),
    ], supervised=True)  # fmt: skip


@pytest.fixture
def load(pop):
    made = pop.load(LINES, 1000)
    yield made
    made.close()


def loses_nothing(load):
    assert load.has_sent(100)
    load.pause()
    assert (load.lost(UP), load.lost(DOWN)) == (0, 0)
    assert load.everybody_received()
    return True


def boot(pop):
    """A number that differs each time the data plane starts."""
    with Connection(pop.gateway.dataplane_socket) as connection:
        return connection.greeting.boot


def test_nothing_is_lost_while_the_agent_is_killed_and_started_again(pop, load):
    assert load.warm_up() == []
    booted = boot(pop)
    pop.gateway.agent.kill()
    time.sleep(1)
    pop.gateway.start_agent()
    wait_until(lambda: all(each["status"]["state"] == "applied" for each in pop.gateway.json("get", "all")))
    time.sleep(0.5)
    assert loses_nothing(load)
    assert boot(pop) == booted


def test_the_agent_repairs_only_the_difference(pop, load):
    """Behind the agent's back one session is deleted and one changed: both come back, and no other is touched."""
    assert load.warm_up() == []
    pop.gateway.agent.kill()
    with Connection(pop.gateway.dataplane_socket) as connection:
        before = {(o.kind, o.name): o.spec for o in connection.ask(list=api.List(limit=10000)).objects.objects}
        connection.ask(delete=api.Delete(names=[api.ObjectName(kind="Session", name="s1")]))
        connection.ask(put=api.Put(objects=[packed(session(LINES[1], addresses=["203.0.113.1/32"]))]))
        connection.ask(put=api.Put(objects=[packed(thing("Vrf", "stray"))]))
        pop.gateway.start_agent()

        def repaired():
            now = {(o.kind, o.name): o.spec for o in connection.ask(list=api.List(limit=10000)).objects.objects}
            return now == before

        wait_until(repaired, 30, "the data plane holds what was wanted")
    load.pause()
    untouched = range(2, len(LINES))
    assert load.lost(UP, untouched) == load.lost(DOWN, untouched) == 0
    load.forget()
    load.sending.set()
    assert load.warm_up() == []


def test_after_the_data_plane_is_killed_everything_comes_back(pop, load):
    assert load.warm_up() == []
    old = pop.gateway.dataplane.pid
    pop.gateway.dataplane.kill()
    pop.gateway.until_restarted(old)
    load.forget()
    wait_until(load.everybody_received, 60, "each session passes traffic both ways again")
    load.pause()
    load.forget()
    load.sending.set()
    time.sleep(1)
    assert loses_nothing(load)
    assert all(each["status"]["state"] == "applied" for each in pop.gateway.json("get", "all"))


def test_both_killed_at_once_come_back(pop, load):
    assert load.warm_up() == []
    old = pop.gateway.dataplane.pid
    pop.gateway.agent.kill()
    pop.gateway.dataplane.kill()
    pop.gateway.until_restarted(old)
    pop.gateway.start_agent()
    load.forget()
    wait_until(load.everybody_received, 60, "each session passes traffic both ways again")


CHANGES = {
    "a session": [session(Line("other", "02:00:00:00:04:01", "100.64.4.1", vlans=(500, 1)))],
    "a route": [thing("Route", "other", prefix="203.0.113.0/24", action="blackhole")],
    "an interface": [thing("Interface", "other", port="access", outerVlan=600, addresses=["203.0.113.1/24"])],
    "a VRF with a route": [
        thing("Vrf", "other"),
        thing("Route", "inside", vrf="other", prefix="::/0", action="prohibit"),
    ],
    "an access list": [thing("Acl", "other", otherwise="deny", rules=[{"action": "permit", "protocol": "tcp"}])],
    "a meter": [thing("Meter", "other", algorithm="srtcm", committedRate="1M", committedBurst="64KB")],
    "a neighbour": [thing("Neighbor", "other", interface="core", address="192.0.2.200", mac="02:00:00:00:cc:99")],
    "a port": [thing("Port", "other", device="net_null0")],
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_object_comes_and_goes_without_a_lost_packet_of_another(pop, load, name):
    assert load.warm_up() == []
    for _ in range(3):
        with pop.having(*CHANGES[name]):
            time.sleep(0.1)
    assert loses_nothing(load)


def test_a_change_of_one_session_loses_no_packet_of_another(pop, load):
    assert load.warm_up() == []
    for mss in (1300, 1400, 1200):
        pop.apply(session(LINES[0], policy={"mss": mss, "aclUp": "none"}))
    pop.apply(session(LINES[0], policy={"aclUp": "none", "meterUp": "wide"}))
    assert loses_nothing(load)
