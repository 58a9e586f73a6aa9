# SPDX-License-Identifier: Apache-2.0
"""Configuration as a sequence of revisions: history, plans that hold or change nothing, and rollback."""

import base64
import contextlib
import json
import re
import signal
import subprocess
import threading
import time
from dataclasses import replace
from random import Random
from xml.etree import ElementTree

import pytest
from contract import Connection, api, packed
from lab import Line, thing
from lab.gateway import Refused, yaml
from lab.laboratory import wait_until
from pop import IPOE, PPPOE, Pop, session, udp_up


@pytest.fixture(scope="module")
def pop(lab):
    made = Pop(lab, thing("Acl", "open", otherwise="permit"), session(IPOE, policy={"aclUp": "open"}), session(PPPOE))
    made.learn(IPOE, PPPOE)
    return made


def latest(pop):
    return pop.gateway.json("history", "--limit", 1)[0]["revision"]


def written(pop, name, *objects):
    path = pop.gateway.directory / name
    path.write_text(yaml(objects))
    return path


def mss(pop, name="ipoe"):
    return pop.gateway.json("get", "session", name)[0]["spec"].get("policy", {}).get("mss")


def with_mss(value):
    return session(IPOE, policy={"aclUp": "open", "mss": value})


def test_history_and_diff_show_callers_and_changes(pop):
    before = latest(pop)
    path = written(pop, "mss.yaml", with_mss(1300))
    pop.gateway.sluice("apply", "-f", path, "--why", "smaller segments")
    newest = pop.gateway.json("history")[0]
    assert newest["revision"] == before + 1
    assert newest["owner"] == "api"
    assert newest["who"] == "root"
    assert newest["why"] == "smaller segments"
    assert newest["objects"] == 1
    (found,) = pop.gateway.json("diff")
    assert (found["kind"], found["name"], found["step"]) == ("Session", "ipoe", "update")
    assert found["fields"] == [{"field": "policy.mss", "after": "1300 B"}]
    assert "mss" in pop.gateway.sluice("diff", before).stdout


def test_rolling_back_changes_the_data_plane_too(pop):
    pop.apply(with_mss(1300))
    before = latest(pop)
    pop.apply(session(IPOE, policy={"aclUp": "open", "mss": 1200}), thing("Vrf", "new"))
    pop.gateway.sluice("delete", "session", "pppoe")
    assert "Vrf/new deleted" in pop.gateway.sluice("rollback", before).stdout
    assert mss(pop) == 1300
    with Connection(pop.gateway.dataplane_socket) as connection:
        there = {each.name: each.spec for each in connection.ask(list=api.List(kind="Session")).objects.objects}
    assert there == {"ipoe": packed(with_mss(1300)).spec, "pppoe": packed(session(PPPOE)).spec}
    pop.learn(PPPOE)


def test_a_change_that_cuts_everybody_off_undoes_itself(pop):
    path = written(pop, "closed.yaml", thing("Acl", "open", otherwise="deny"))
    with pop.dropping("acl-denied"):
        text = pop.gateway.sluice("apply", "-f", path, "--confirm", "5s").stdout
        assert "sluice confirm" in text
        pop.send_up(IPOE, udp_up(IPOE, payload=b"cut off"))
    pop.not_at_core()

    def passes():
        pop.drain()
        pop.send_up(IPOE, udp_up(IPOE, payload=b"back"))
        try:
            return pop.at_core(lambda packet: b"back" in bytes(packet), seconds=0.2)
        except AssertionError:
            return None

    wait_until(passes)
    assert "undone" in pop.gateway.json("history")[0]["why"]


def test_a_change_that_was_confirmed_stands(pop):
    path = written(pop, "mss.yaml", with_mss(1250))
    pop.gateway.sluice("apply", "-f", path, "--confirm", "6s")
    pop.gateway.sluice("confirm")
    time.sleep(6.5)
    assert mss(pop) == 1250
    with pytest.raises(Refused, match="no revision waits"):
        pop.gateway.sluice("confirm")


def test_a_change_undoes_itself_also_when_the_agent_was_killed_meanwhile(pop):
    pop.apply(with_mss(1300))
    path = written(pop, "mss.yaml", with_mss(1100))
    pop.gateway.sluice("apply", "-f", path, "--confirm", "2s")
    pop.gateway.agent.kill()
    time.sleep(2)
    pop.gateway.start_agent()
    wait_until(lambda: mss(pop) == 1300)


def test_a_second_change_that_is_to_be_confirmed_is_refused_and_named(pop):
    pop.apply(with_mss(1300))
    path = written(pop, "mss.yaml", with_mss(1200))
    first = pop.gateway.json("apply", "-f", path, "--confirm", "1m")["revision"]
    second = written(pop, "mss.yaml", with_mss(1100))
    for option in (["--confirm", "1m"], ["--all-or-nothing"]):
        with pytest.raises(
            Refused, match=rf"revision {first} waits to be confirmed: confirm it \(sluice confirm {first}\)"
        ):
            pop.gateway.sluice("apply", "-f", second, *option)
    pop.gateway.sluice("rollback", str(first - 1))
    assert mss(pop) == 1300
    pop.gateway.sluice("apply", "-f", second, "--confirm", "1m")
    pop.gateway.sluice("confirm")
    assert mss(pop) == 1100


@contextlib.contextmanager
def hung(pop):
    """Meanwhile, the data plane is connected and does not answer."""
    pop.gateway.dataplane.child.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        pop.gateway.dataplane.child.send_signal(signal.SIGCONT)


def test_the_time_to_confirm_runs_while_a_data_plane_hangs(pop):
    pop.apply(with_mss(1300))
    path = written(pop, "mss.yaml", with_mss(1200))
    with hung(pop), pytest.raises(Refused, match="not confirmed in time"):
        pop.gateway.sluice("apply", "-f", path, "--confirm", "1s")
    assert mss(pop) == 1300


def test_an_agent_starts_after_another_owner_took_what_an_unfinished_change_released(pop):
    pop.apply(thing("Port", "a", device="net_null0"), thing("Vrf", "red", description="one"))
    before = latest(pop)
    change = written(pop, "change.yaml", thing("Port", "a", device="net_null1"), thing("Vrf", "red", description="two"))
    other = written(pop, "other.yaml", thing("Port", "b", device="net_null0"))
    asking = []
    with hung(pop):
        for arguments in (("-f", change, "--all-or-nothing"), ("-f", other)):
            before += 1
            asking.append(subprocess.Popen(pop.gateway.command("apply", *arguments), stdout=subprocess.DEVNULL))
            wait_until(lambda number=before: latest(pop) == number)
        pop.gateway.agent.kill()
    for each in asking:
        each.wait()
    pop.gateway.start_agent()

    def port(name):
        return pop.gateway.json("get", "port", name)[0]

    # Objects are undone where possible; the others report the conflict, until it is gone.
    assert pop.gateway.json("get", "vrf", "red")[0]["spec"]["description"] == "one"
    assert port("a")["spec"]["device"] == "net_null1"
    why = pop.gateway.json("history")[0]["why"]
    assert why.startswith(f"revision {before - 1} undone in part: ")
    assert "Port/a (device: Port/b already has" in why
    accepted = port("a")["status"]["conditions"][0]
    assert (accepted["type"], accepted["reason"]) == ("Accepted", "NotUndone")
    pop.gateway.delete("port", "b")
    wait_until(lambda: port("a")["spec"]["device"] == "net_null0")
    pop.gateway.delete("port", "a")
    pop.gateway.delete("vrf", "red")


def test_a_plan_is_applied_as_it_was_written_or_not_at_all(pop):
    pop.apply(with_mss(1300))
    path = written(pop, "moved.yaml", session(IPOE, {"innerVlan": 77}, policy={"aclUp": "open"}))
    plan = pop.gateway.directory / "tonight.plan"
    text = pop.gateway.sluice("plan", "-f", path, "--out", plan).stdout
    assert "interruption" not in text
    assert plan.stat().st_mode & 0o777 == 0o600
    operations = json.loads(plan.read_text())["planned"]["operations"]
    assert [(each.get("action"), each["name"]) for each in operations] == [("UPDATE", "ipoe")]
    # Another owner was faster.
    pop.apply(with_mss(1299))
    with pytest.raises(Refused, match="the plan is outdated"):
        pop.gateway.sluice("apply", "--plan", plan)
    assert mss(pop) == 1299
    pop.gateway.sluice("plan", "-f", path, "--out", plan)
    # The agent's end does not invalidate a plan.
    pop.gateway.agent.kill()
    pop.gateway.start_agent()
    wait_until(lambda: all(each["status"]["state"] == "applied" for each in pop.gateway.json("get", "all")))
    assert "updated" in pop.gateway.sluice("apply", "--plan", plan).stdout
    assert pop.gateway.json("get", "session", "ipoe")[0]["spec"]["access"]["innerVlan"] == 77
    pop.apply(session(IPOE, policy={"aclUp": "open"}))


def test_a_changed_plan_file_is_refused(pop):
    pop.apply(with_mss(1300))
    plan = pop.gateway.directory / "tonight.plan"
    pop.gateway.sluice("plan", "-f", written(pop, "mss.yaml", with_mss(1301)), "--out", plan)
    asked = json.loads(plan.read_text())
    asked["changes"]["put"][0]["spec"] = base64.b64encode(packed(with_mss(1302)).spec).decode()
    plan.write_text(json.dumps(asked))
    with pytest.raises(Refused, match="differs from the plan: Session/ipoe"):
        pop.gateway.sluice("apply", "--plan", plan)
    assert mss(pop) == 1300


def test_of_two_sessions_that_exchange_their_keys_one_is_replaced(pop):
    first, second = (Line(f"x{n}", f"02:00:00:00:09:0{n}", f"100.64.9.{n}", vlans=(109, n)) for n in (1, 2))
    with pop.having(session(first), session(second)):
        assert pop.passes(first) and pop.passes(second)
        first, second = replace(first, vlans=second.vlans), replace(second, vlans=first.vlans)
        both = [session(first), session(second)]
        path = written(pop, "exchanged.yaml", *both)
        text = pop.gateway.sluice("plan", "-f", path).stdout
        assert "~ Session x1" in text
        assert "-/+ Session x2   (Session/x1 and it exchange port access, VLAN 109.1; brief interruption)" in text
        pop.apply(*both)
        assert pop.passes(first) and pop.passes(second)


def test_an_owner_may_not_overwrite_another_unless_it_takes_over(pop):
    pop.apply(with_mss(1300))
    path = written(pop, "mss.yaml", with_mss(1200))
    with pytest.raises(Refused, match="policy.mss belongs to api"):
        pop.gateway.sluice("apply", "-f", path, "--owner", "night")
    pop.gateway.sluice("apply", "-f", path, "--owner", "night", "--force")
    (found,) = pop.gateway.json("get", "session", "ipoe")
    assert found["status"]["owner"] == "night"
    assert [each["owner"] for each in found["status"]["owners"]] == ["night", "api"]
    pop.gateway.sluice("delete", "-f", path, "--owner", "night")
    assert mss(pop) == 1300


def fields_of(pop):
    """Owners of the session's fields: {"policy.mss": {"api": "1300 B"}}; a value without effect has a - in front."""
    owned = {}
    (found,) = pop.gateway.json("get", "session", "ipoe", "--owners")
    for owner in found["status"]["owners"]:
        for each in owner["fields"]:
            mark = "-" if each.get("overridden") else ""
            owned.setdefault(each["field"], {})[owner["owner"]] = mark + each["value"]
    return owned


def test_owners_share_an_object_field_by_field(pop):
    """The data plane has the fields of all owners."""

    def says(owner, *arguments, command="apply", **policy):
        path = written(pop, f"{owner}.yaml", thing("Session", "ipoe", **({"policy": policy} if policy else {})))
        return pop.gateway.sluice(command, "-f", path, "--owner", owner, *arguments)

    def passes(payload):
        """A packet from an address that is not the subscriber's."""
        pop.drain()
        pop.send_up(IPOE, udp_up(IPOE, payload=payload, src="203.0.113.77"))
        pop.send_up(IPOE, udp_up(IPOE, payload=payload + b"!"))
        found = pop.at_core(lambda packet: payload in bytes(packet))
        return found["IP"].src == "203.0.113.77"

    pop.apply(with_mss(1300))
    assert not passes(b"one owner")
    says("lab", anySource=True)
    assert passes(b"two owners")
    pop.apply(with_mss(1250))
    assert passes(b"the other's stays")
    both = latest(pop)
    owned = fields_of(pop)
    assert owned["policy.mss"] == {"api": "1250 B"}
    assert owned["policy.anySource"] == {"lab": "true"}
    with pytest.raises(
        Refused, match="(?s)ipoe: policy.mss belongs to api .1250 B., and lab sets another value .1200 B.*--force"
    ):
        says("lab", mss=1200, anySource=True)
    says("lab", "--force", mss=1200)
    assert not passes(b"given up")
    assert fields_of(pop)["policy.mss"] == {"lab": "1200 B", "api": "-1250 B"}
    described = pop.gateway.sluice("describe", "session", "ipoe").stdout
    assert re.search(r"policy.mss +1200 B +lab +0 +\d+ +yes\n", described)
    assert re.search(r"policy.mss +1250 B +api +0 +\d+ +no\n", described)
    pop.gateway.sluice("rollback", both)
    assert fields_of(pop) == owned
    assert passes(b"rolled back")
    pop.gateway.agent.kill()
    pop.gateway.start_agent()
    assert fields_of(pop) == owned
    with pytest.raises(Refused, match="access: missing .the object would only have fields of lab: policy.anySource"):
        pop.gateway.sluice("delete", "session", "ipoe")
    says("lab", command="delete")
    assert not passes(b"one owner again")
    with pytest.raises(
        Refused, match=r"belongs to api, and lab has no fields of it[^.]*.\s+Choose the owner with --owner"
    ):
        says("lab", command="delete")
    with pytest.raises(Refused, match="lab.yaml:2: Session/nobody: access: missing"):
        path = written(pop, "lab.yaml", thing("Session", "nobody", policy={"mss": 1200}))
        pop.gateway.sluice("apply", "-f", path, "--owner", "lab")


def test_an_object_shows_its_observed_generation_and_why_it_is_not_ready(pop):
    pop.apply(with_mss(1300))
    (found,) = pop.gateway.json("get", "session", "ipoe")
    status = found["status"]
    assert status["generation"] == status["observedGeneration"]
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "Accepted": "True",
        "Applied": "True",
        "Ready": "True",
    }
    pop.gateway.apply(thing("Session", "waiting", access={"port": "nowhere"}), check=False)
    (found,) = pop.gateway.json("get", "session", "waiting")
    applied = next(each for each in found["status"]["conditions"] if each["type"] == "Applied")
    assert (applied["status"], applied["reason"]) == ("False", "WaitsForObject")
    assert "Port/nowhere" in applied["message"]
    assert "Port nowhere   NOT THERE" in pop.gateway.sluice("graph", "session/waiting").stdout
    picture = ElementTree.fromstring(pop.gateway.sluice("graph", "-o", "svg").stdout)
    titles = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert "Port access: applied" in titles
    assert any(each.startswith("Session waiting: pending") for each in titles)
    pop.gateway.delete("session", "waiting")


def test_a_watch_goes_on_when_the_agent_was_killed(pop):
    command = pop.gateway.command("get", "sessions", "-w", "-o", "json")
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        told = [json.loads(watch.stdout.readline()) for _ in range(2)]
        assert [each["change"] for each in told] == ["exists", "exists"]
        pop.gateway.agent.kill()
        pop.gateway.start_agent()
        pop.apply(with_mss(1111))
        while True:
            one = json.loads(watch.stdout.readline())
            if one["change"] == "dataplane":
                # The watch was there before the agent had its data plane again.
                continue
            assert one["change"] == "changed"
            if one["object"]["spec"].get("policy", {}).get("mss") == 1111:
                break
    finally:
        watch.terminate()
        watch.wait()


def test_an_agent_that_is_killed_at_any_moment_has_lost_nothing_and_left_nothing_half_done(pop):
    """Each change gives five objects one number, all or nothing: afterwards no two may have different ones."""
    names = [f"kill{i}" for i in range(5)]
    random = Random(7)
    acknowledged, attempted = 0, 0
    path = pop.gateway.directory / "kill.yaml"

    def numbers():
        found = pop.gateway.json("get", "vrf")
        return {each["spec"]["description"] for each in found if each["metadata"]["name"] in names}

    for _ in range(12):
        killer = threading.Timer(random.uniform(0.02, 0.4), pop.gateway.agent.kill)
        try:
            while True:
                attempted += 1
                path.write_text(yaml(thing("Vrf", name, description=str(attempted)) for name in names))
                if pop.gateway.sluice("apply", "-f", path, "--all-or-nothing", check=False).returncode != 0:
                    break
                acknowledged = attempted
                if killer.ident is None:
                    killer.start()
        finally:
            killer.join()
        pop.gateway.start_agent()
        wait_until(lambda: all(each["status"]["state"] == "applied" for each in pop.gateway.json("get", "all")))
        there = numbers()
        if acknowledged == 0 and not there:
            continue
        assert len(there) == 1, "half done"
        assert acknowledged <= int(there.copy().pop()) <= attempted
        with Connection(pop.gateway.dataplane_socket) as connection:
            kept = connection.ask(list=api.List(kind="Vrf")).objects.objects
        assert {each.spec for each in kept if each.name in names} == {
            packed(thing("Vrf", "any", description=there.pop())).spec
        }
    assert acknowledged > 0
    revisions = [each["revision"] for each in pop.gateway.json("history", "--limit", 1000)]
    assert revisions == sorted(set(revisions), reverse=True)
    pop.gateway.delete("vrf", *names)


def test_drift_is_repaired_at_once_and_reported(pop):
    def there():
        with Connection(pop.gateway.dataplane_socket) as connection:
            kept = connection.ask(list=api.List(kind="Acl")).objects.objects
        return {each.name: each.spec for each in kept}

    wanted = there()
    command = pop.gateway.command("get", "acl", "-w", "-o", "json")
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for _ in wanted:
            assert json.loads(watch.stdout.readline())["change"] == "exists"
        with Connection(pop.gateway.dataplane_socket) as connection:
            results = connection.put(thing("Acl", "open", otherwise="DENY"), thing("Acl", "stray"))
            assert [each.code for each in results] == [0, 0]
        told = []
        while not told or told[-1] != "InStep":
            one = json.loads(watch.stdout.readline())["object"]
            if one["metadata"]["name"] == "open":
                conditions = {each["type"]: each["reason"] for each in one["status"]["conditions"]}
                told.append(conditions["Applied"])
        assert told[0] == "Drifted"
    finally:
        watch.terminate()
        watch.wait()
    wait_until(lambda: there() == wanted)
    pop.learn(IPOE)
    log = (pop.lab.directory / "gateway-agent.log").read_text()
    assert "another client changed an object in the data plane" in log
