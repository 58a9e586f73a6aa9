# SPDX-License-Identifier: Apache-2.0
"""All northbounds behave alike: each case runs through every northbound, with its real server, agent and data plane.

A case uses objects with names of its own. Behaviour of one northbound alone is in test_keyed and test_broker.
"""

import contextlib
import os
import signal
import threading
import time

import pytest
from lab import Gateway, thing, yaml
from lab.gateway import Refused
from lab.laboratory import wait_until
from lab.northbound import ROWS

# `make soak` takes 10,000.
BULK = int(os.environ.get("BULK_OBJECTS", "2000"))


def meter(name, rate=1_000_000):
    return thing("Meter", name, algorithm="srtcm", committedRate=rate, committedBurst=10_000)


class Row:
    """A gateway, and a northbound that configures it."""

    def __init__(self, lab, namespace, way):
        self.way = way
        name = f"row-{way.kind}"
        self.gateway = Gateway(lab, namespace, name, northbounds=way.configuration(lab.directory))
        way.serve(self.gateway)

    def rates(self, prefix):
        """Of the meters whose names begin so. One that is being deleted has no spec."""
        found = self.gateway.json("get", "meters") or []
        rates = {each["metadata"]["name"]: int(each.get("spec", {}).get("committedRate", 0)) for each in found}
        return {name: rate for name, rate in rates.items() if name.startswith(prefix)}

    def becomes(self, prefix, wanted, seconds=60):
        """Waits until there are these meters, and no others whose names begin so."""

        def seen():
            refusals = getattr(self.way, "refusals", {})
            found = self.rates(prefix)
            other = {name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)}
            return f"{prefix}: {len(other)} differ: {sorted(other)[:3]}; refused: {list(refusals.items())[-3:]}"

        wait_until(lambda: self.rates(prefix) == wanted, seconds, seen)

    def is_told(self, thing, state):
        wait_until(
            lambda: self.way.told(thing) == state, 60, lambda: f"{state}; told of {thing} is {self.way.told(thing)}"
        )

    def status(self, kind, name):
        return self.gateway.json("get", kind, name)[0]["status"]

    @contextlib.contextmanager
    def standing_still(self):
        """The agent stops reading, so that a slow sender's messages wait for it together. A request cannot wait."""
        if not self.way.one_by_one:
            yield
            return
        self.gateway.agent.child.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.gateway.agent.child.send_signal(signal.SIGCONT)

    def revisions(self):
        found = self.gateway.json("history", "--limit", "1")
        return int(found[0]["revision"]) if found else 0

    def other(self, thing, command="apply"):
        """Another owner sets a field."""
        path = self.gateway.directory / "other.yaml"
        path.write_text(yaml([thing]))
        return self.gateway.sluice(command, "-f", path, "--owner", "somebody")

    def restart_agent(self):
        self.gateway.agent.kill()
        self.gateway.start_agent()


# The command line, REST, a store and a broker are in every run.
ALIKE = pytest.mark.long(reason="northbounds behave alike, and four of them are in every run")


@pytest.fixture(
    scope="module", params=[pytest.param(way, marks=ALIKE) if way in ("grpc", "files") else way for way in ROWS]
)
def row(request, lab):
    fixture, way = ROWS[request.param]
    server = request.getfixturevalue(fixture) if fixture else None
    namespace = server.namespace if server else lab.namespace(request.param)
    made = Row(lab, namespace, way(namespace, server, lab))
    yield made
    made.gateway.close()
    made.way.close()


@pytest.fixture(autouse=True)
def all_runs_again(row):
    """Also after a test that failed."""
    yield
    row.way.start()
    if not row.gateway.agent.alive():
        row.gateway.start_agent()


def test_an_object_is_created_updated_and_deleted_and_each_is_reported(row):
    gold = meter("crud-gold")
    row.way.say(gold, meter("crud-silver"))
    row.becomes("crud-", {"crud-gold": 1_000_000, "crud-silver": 1_000_000})
    assert row.status("meter", "crud-gold")["owner"] == row.way.kind
    row.is_told(gold, "applied")
    row.way.say(meter("crud-gold", 2_000_000))
    row.becomes("crud-", {"crud-gold": 2_000_000, "crud-silver": 1_000_000})
    row.way.unsay(gold)
    row.becomes("crud-", {"crud-silver": 1_000_000})
    row.is_told(gold, "gone")


def test_an_invalid_object_is_reported_with_the_mend_and_affects_no_other(row):
    row.way.say(meter("bad-before"))
    row.way.say(meter("bad-one", 17))
    row.way.say(meter("bad-after"))
    row.becomes("bad-", {"bad-before": 1_000_000, "bad-after": 1_000_000})
    told = row.way.refusal(meter("bad-one", 17))
    for part in ("Meter/bad-one", "committedRate", "17", "accepted"):
        assert part in told
    row.way.say(meter("bad-one", 3_000_000), meter("bad-before", 2_000_000))
    row.becomes("bad-", {"bad-before": 2_000_000, "bad-one": 3_000_000, "bad-after": 1_000_000})


def test_a_conflict_names_both_owners_to_each_and_ends_when_the_other_gives_up(row):
    theirs, ours = meter("held-theirs", 9_000_000), meter("held-ours")
    row.other(theirs)
    row.way.say(meter("held-theirs"))
    row.way.say(ours)
    told = row.way.refusal(theirs)
    for part in ("committedRate", "somebody", row.way.kind):
        assert part in told
    row.becomes("held-", {"held-theirs": 9_000_000, "held-ours": 1_000_000})
    told = rf"belongs to {row.way.kind} \(1 Mbit/s\), and somebody sets another value \(9 Mbit/s\)"
    with pytest.raises(Refused, match=told):
        row.other(meter("held-ours", 9_000_000))
    row.other(theirs, "delete")
    row.way.say(meter("held-theirs"))
    row.becomes("held-", {"held-theirs": 1_000_000, "held-ours": 1_000_000})


def test_another_owner_sets_only_the_field_that_it_owns(row):
    row.way.say(meter("shared-gold"))
    row.becomes("shared-", {"shared-gold": 1_000_000})
    theirs = thing("Meter", "shared-gold", colorAware=True)
    row.other(theirs)
    row.way.say(meter("shared-gold", 2_000_000))
    row.becomes("shared-", {"shared-gold": 2_000_000})
    row.is_told(meter("shared-gold"), "applied")
    (found,) = row.gateway.json("get", "meter", "shared-gold", "--owners")
    assert found["spec"]["colorAware"] is True
    owned = {o["owner"]: {each["field"] for each in o["fields"]} for o in found["status"]["owners"]}
    assert owned["somebody"] == {"colorAware"}
    assert owned[row.way.kind] >= {"committedRate", "committedBurst"}
    row.other(theirs, "delete")
    assert "colorAware" not in row.gateway.json("get", "meter", "shared-gold")[0]["spec"]
    row.way.unsay(meter("shared-gold"))
    row.becomes("shared-", {})


def test_a_referenced_object_may_come_later(row):
    """A session waits for its meter, and its status has the reason."""
    port = thing("Port", "later-port", device="net_null0")
    access = {"port": "later-port", "outerVlan": 5}
    session = thing(
        "Session", "later-alice", access=access, addresses=["100.64.0.1/32"], policy={"meterUp": "later-gold"}
    )
    row.way.say(session)
    row.is_told(session, "pending")
    conditions = {each["type"]: each for each in row.status("session", "later-alice")["conditions"]}
    assert conditions["Applied"]["reason"] == "WaitsForObject"
    assert "later-" in conditions["Applied"]["message"]
    row.way.say(meter("later-gold"))
    row.way.say(port)
    row.is_told(session, "applied")
    row.way.unsay(port)
    row.is_told(session, "pending")
    row.way.unsay(session, meter("later-gold"))
    row.becomes("later-", {})


def test_the_last_of_many_changes_counts_and_saying_it_again_changes_nothing(row):
    for i in range(30):
        row.way.say(meter("twice-gold", 1_000_000 + i))
    row.becomes("twice-", {"twice-gold": 1_000_029})
    row.is_told(meter("twice-gold"), "applied")
    before, since = row.revisions(), row.status("meter", "twice-gold")["since"]
    for _ in range(10):
        row.way.say(meter("twice-gold", 1_000_029))
    row.way.say(meter("twice-silver"))
    row.becomes("twice-", {"twice-gold": 1_000_029, "twice-silver": 1_000_000})
    assert row.revisions() == before + 1
    assert row.status("meter", "twice-gold")["since"] == since


def test_changes_while_the_agent_is_away_are_applied_when_it_is_back(row):
    row.way.say(meter("away-gold"), meter("away-silver"))
    row.becomes("away-", {"away-gold": 1_000_000, "away-silver": 1_000_000})
    row.gateway.agent.kill()
    row.way.say(meter("away-gold", 2_000_000), meter("away-bronze"))
    row.way.unsay(meter("away-silver"))
    row.gateway.start_agent()
    row.way.say_again()
    row.becomes("away-", {"away-gold": 2_000_000, "away-bronze": 1_000_000})
    row.is_told(meter("away-silver"), "gone")


def test_nothing_is_lost_when_the_agent_is_killed_in_the_middle(row):
    for round in range(1, 4):
        saying = threading.Thread(target=row.way.say, args=[meter(f"kill-{i}", round * 1_000_000) for i in range(500)])
        saying.start()
        time.sleep(0.05 * round)
        row.restart_agent()
        saying.join()
        row.way.say_again()
    row.becomes("kill-", {f"kill-{i}": 3_000_000 for i in range(500)})
    row.way.say(meter("kill-0"))
    row.is_told(meter("kill-0"), "applied")


def test_nothing_is_lost_when_the_server_is_killed_in_the_middle(row):
    before = {f"server-before-{i}": 1_000_000 + i for i in range(3)}
    middle = {f"server-middle-{i}": 1_000_000 + i for i in range(50)}
    row.way.say(*(meter(name, rate) for name, rate in before.items()))
    row.becomes("server-", before)
    row.way.say(*(meter(name, rate) for name, rate in middle.items()))
    row.way.kill()
    meanwhile = meter("meanwhile")
    if row.gateway.agent.alive():
        row.other(meanwhile)
        assert row.rates("server-before-") == before
    row.way.start()
    row.becomes("server-", before | middle)
    if row.way.tells_of_all:
        row.is_told(meanwhile, "applied")
    row.way.unsay(meter("server-middle-0"))
    row.way.say(meter("server-middle-1", 7_000_000), meter("server-after"))
    del middle["server-middle-0"]
    row.becomes("server-", before | middle | {"server-middle-1": 7_000_000, "server-after": 1_000_000})
    row.is_told(meter("server-middle-1"), "applied")


def test_thousands_of_objects_are_taken_in_few_revisions_and_given_back(row):
    wanted = {f"many-{i}": 1_000_000 + i for i in range(BULK)}
    objects = [meter(name, rate) for name, rate in wanted.items()]
    worst = [meter("many-worst", 17)] if row.way.one_by_one else []
    before = row.revisions()
    with row.standing_still():
        row.way.say(*objects[: BULK // 2], *worst, *objects[BULK // 2 :])
    row.becomes("many-", wanted, 120)
    wait_until(lambda: row.way.told_applied() >= BULK, 60, lambda: f"told of {row.way.told_applied()}")
    if worst:
        assert "Meter/many-worst" in row.way.refusal(*worst)
    with row.standing_still():
        row.way.unsay(*objects)
    row.becomes("many-", {}, 120)
    assert row.revisions() - before < BULK / 10
