# SPDX-License-Identifier: Apache-2.0
"""Killing and starting again each process while subscribers' packets flow, of a BNG and of an AGF."""

import json
import shutil
import time

import pytest
from contract import Connection, api, packed
from lab import Lab, Line, thing
from lab.laboratory import wait_until
from lab.load import DOWN, UP
from pop import Pop, session, tunnel


def line(role, i):
    mac, ip4, ip6 = f"02:00:00:00:03:{i:02x}", f"100.64.3.{i}", f"2001:db8:3:{i:x}::1"
    up, down = (1000 + i, 2000 + i) if role == "agf" else (0, 0)
    return Line(f"s{i}", mac, ip4, ip6, (400, i), pppoe=i if i > 10 else 0, teid_up=up, teid_down=down)


def subscriber(line, **spec):
    core = {"gtpu": tunnel(line, pduSessionContainer=True, qfi=9)} if line.teid_down else {}
    return session(line, **({"policy": {"aclUp": "none", "meterUp": "wide"}} | core | spec))


@pytest.fixture(scope="module", params=["bng", "agf"])
def lines(request):
    return [line(request.param, i) for i in range(1, 21)]


@pytest.fixture(scope="module")
def lab(lines):
    """One for each role."""
    with Lab() as made:
        yield made


@pytest.fixture(scope="module")
def pop(lab, lines):
    return Pop(lab, *(subscriber(line) for line in lines), base=[
        *Pop.base,
        thing("Acl", "none", otherwise="permit"),
        thing("Meter", "wide", algorithm="srtcm", committedRate="1G", committedBurst="1MB"),
    ], supervised=True)  # fmt: skip


@pytest.fixture
def load(pop, lines):
    made = pop.load(lines, 1000)
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


def kept(connection, kind=None):
    """Names of the data plane's objects."""
    found = connection.ask(list=api.List(limit=10000)).objects.objects
    return [each.name for each in found if kind in (None, each.kind)]


def lose_the_store(pop):
    for each in pop.gateway.directory.glob("intent.db*"):
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink()


def link(pop):
    """Of the agent to the data plane. While there is none, the command fails."""
    return json.loads(pop.gateway.sluice("version", "-o", "json", check=False).stdout)["dataplane"]


def test_an_agent_that_lost_its_store_changes_nothing_until_all_objects_are_configured_again(pop, load):
    assert load.warm_up() == []
    everything = pop.gateway.directory / "everything.yaml"
    everything.write_text(pop.gateway.sluice("get", "all", "-o", "yaml").stdout)
    pop.gateway.agent.kill()
    lose_the_store(pop)
    pop.gateway.start_agent()
    said = wait_until(lambda: "--begin-anew" in link(pop).get("error", "") and link(pop)["error"], 30, "a refusal")
    assert "data plane default has" in said and "not in the configuration" in said
    assert not link(pop)["connected"]
    # A part of the objects is configured: the rest still has no owner.
    part = pop.gateway.apply(*pop.base, wait=False, check=False)
    assert part.returncode == 3, part.stderr
    time.sleep(3)
    assert not link(pop)["connected"]
    pop.gateway.sluice("apply", "-f", everything, check=False)
    wait_until(lambda: link(pop)["connected"], 30, "the data plane is known")
    wait_until(lambda: all(each["status"]["state"] == "applied" for each in pop.gateway.json("get", "all")))
    assert loses_nothing(load)
    # It knows it from now on.
    pop.gateway.agent.kill()
    with Connection(pop.gateway.dataplane_socket) as connection:
        connection.ask(put=api.Put(objects=[packed(thing("Vrf", "stray"))]))
        pop.gateway.start_agent()
        wait_until(lambda: "stray" not in kept(connection))


def test_an_agent_that_begins_anew_deletes_objects_without_an_owner(pop, lines):
    everything = pop.gateway.directory / "everything.yaml"
    everything.write_text(pop.gateway.sluice("get", "all", "-o", "yaml").stdout)
    pop.gateway.agent.kill()
    lose_the_store(pop)
    pop.gateway.start_agent("--begin-anew")
    with Connection(pop.gateway.dataplane_socket) as connection:
        wait_until(lambda: not kept(connection, "Session"), 30, "the data plane has no session")
        pop.gateway.sluice("apply", "-f", everything, "--wait", "30s")
        assert sorted(kept(connection, "Session")) == sorted(line.name for line in lines)
    pop.learn(*lines)


def test_the_agent_repairs_only_the_difference(pop, load, lines):
    """Behind the agent's back one session is deleted and one changed: both come back, and no other is touched."""
    assert load.warm_up() == []
    pop.gateway.agent.kill()
    with Connection(pop.gateway.dataplane_socket) as connection:
        before = {(o.kind, o.name): o.spec for o in connection.ask(list=api.List(limit=10000)).objects.objects}
        connection.ask(delete=api.Delete(names=[api.ObjectName(kind="Session", name="s1")]))
        connection.ask(put=api.Put(objects=[packed(subscriber(lines[1], addresses=["203.0.113.1/32"]))]))
        connection.ask(put=api.Put(objects=[packed(thing("Vrf", "stray"))]))
        pop.gateway.start_agent()

        def repaired():
            now = {(o.kind, o.name): o.spec for o in connection.ask(list=api.List(limit=10000)).objects.objects}
            return now == before

        wait_until(repaired, 30, "the data plane holds the desired objects")
    load.pause()
    untouched = range(2, len(lines))
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
