# SPDX-License-Identifier: Apache-2.0
"""Documents under keys configure a gateway, and their status is beside them: behaviour of key-value stores beyond that
of every northbound (test_conformance)."""

import hashlib
import signal

import pytest
from lab import Gateway, Lab, thing, yaml
from lab.etcd import Etcd, encoded
from lab.files import Files
from lab.laboratory import wait_until
from lab.redis import Redis

KINDS = {"etcd": ("etcd_server", Etcd), "redis": ("redis_server", Redis), "files": (None, Files)}


def meter(name, rate=1_000_000, **spec):
    return thing("Meter", name, algorithm="srtcm", committedRate=rate, committedBurst=10_000, **spec)


def bad(name):
    """Line 5 is wrong."""
    head = f"apiVersion: sluice.dev/v1\nkind: Meter\nmetadata: {{name: {name}}}\n"
    return head + "spec:\n  committedRate: 17\n  committedBurst: 1000\n"


class Site:
    """A gateway, and the store with its documents."""

    def __init__(self, lab, namespace, driver):
        self.driver = driver
        self.texts = {}
        self.gateway = Gateway(lab, namespace, driver.name, northbounds=[driver.northbound(lab.directory)])

    def put(self, key, *objects, text=None):
        self.texts[key] = yaml(objects) if text is None else text
        self.driver.put(key, self.texts[key])

    def told(self, key, state="Applied", seconds=60):
        """The status of the document as it was put last, once it is in this state."""

        def found():
            status = self.driver.status(key)
            about = hashlib.sha256(self.texts[key].encode()).hexdigest()
            return status if status and (status["sha256"], status["state"]) == (about, state) else None

        return wait_until(found, seconds, lambda: f"{key} is {state}; it is {self.driver.status(key)}")

    def rates(self):
        found = self.gateway.json("get", "meters") or []
        # One that is being deleted has no spec.
        return {each["metadata"]["name"]: int(each.get("spec", {}).get("committedRate", 0)) for each in found}

    def becomes(self, wanted, seconds=60):
        """Waits until these meters, and no others, are applied."""
        wait_until(
            lambda: self.rates() == wanted,
            seconds,
            f"{list(wanted.items())[:3]}; it is {list(self.rates().items())[:3]}",
        )


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def lab(kind):
    """One for each place."""
    with Lab() as made:
        yield made


@pytest.fixture(scope="module")
def site(request, lab, kind):
    server, driver = KINDS[kind]
    if not server:
        return Site(lab, lab.namespace("pop"), driver(lab, "pop"))
    server = request.getfixturevalue(server)
    return Site(lab, server.namespace, driver(server, "pop"))


@pytest.fixture(autouse=True)
def nothing_is_wanted_at_first(site):
    yield
    site.driver.start()
    if not site.gateway.agent.alive():
        site.gateway.start_agent()
    site.driver.delete_all()
    site.texts.clear()
    wait_until(lambda: not site.driver.statuses(), 60, "no statuses")
    for name in site.rates():
        site.gateway.sluice("delete", "meter", name, check=False)
    site.becomes({})


def test_a_document_holds_several_objects_and_its_status_tells_of_each(site):
    site.put("a", meter("gold"), meter("silver"))
    status = site.told("a")
    assert (status["objects"], status["applied"]) == (2, 2)
    assert [each["object"] for each in status["details"]] == ["Meter/gold", "Meter/silver"]
    site.put("a", meter("gold", 2_000_000))
    site.told("a")
    site.becomes({"gold": 2_000_000})
    site.driver.delete("a")
    site.becomes({})
    wait_until(lambda: site.driver.status("a") is None, 30, "its status goes away")


def test_a_status_names_the_object_that_another_waits_for(site):
    access = {"port": "access", "outerVlan": 5}
    site.put("a", thing("Session", "alice", access=access, addresses=["100.64.0.1/32"]))

    def waits():
        detail = site.told("a", "Pending")["details"][0]
        return detail["object"] == "Session/alice" and detail["reason"] == "WaitsForObject" and detail["message"]

    assert "Port/access" in wait_until(waits, 30, "it says what it waits for")


def test_an_invalid_object_is_reported_with_its_line_and_affects_no_other(site):
    site.put("good", meter("gold"))
    site.put("mixed", meter("silver"))
    site.told("good"), site.told("mixed")
    site.put("mixed", text=bad("silver") + "---\n" + yaml([meter("bronze")]))
    mistakes = site.told("mixed", "Invalid")["mistakes"]
    assert [(m["line"], m["object"], m["field"]) for m in mistakes] == [(5, "Meter/silver", "committedRate")]
    assert mistakes[0]["accepted"]
    site.put("good", meter("gold", 2_000_000))
    site.told("good")
    site.becomes({"gold": 2_000_000, "silver": 1_000_000, "bronze": 1_000_000})
    site.put("mixed", text="{ half of a")
    assert site.told("mixed", "Invalid")["mistakes"][0]["line"] == 1
    site.becomes({"gold": 2_000_000, "silver": 1_000_000, "bronze": 1_000_000})


def test_an_invalid_document_keeps_its_objects_over_a_restart_of_the_agent(site):
    site.put("a", meter("gold"))
    site.told("a")
    site.put("a", text="{ half of a")
    site.told("a", "Invalid")
    site.gateway.agent.kill()
    site.gateway.start_agent()
    site.put("b", meter("silver"))
    site.told("b")
    site.becomes({"gold": 1_000_000, "silver": 1_000_000})
    site.put("a", meter("bronze"))
    site.told("a")
    site.becomes({"bronze": 1_000_000, "silver": 1_000_000})


def test_a_conflict_with_the_command_line_is_reported_and_tried_again(site):
    site.gateway.apply(meter("gold", 9_000_000))
    site.put("a", meter("gold"), meter("silver"))
    mistakes = site.told("a", "Invalid")["mistakes"]
    assert "belongs to api" in mistakes[0]["problem"]
    assert (mistakes[0]["object"], mistakes[0]["field"]) == ("Meter/gold", "committedRate")
    site.becomes({"gold": 9_000_000, "silver": 1_000_000})
    site.gateway.delete("meter", "gold")
    site.told("a")
    site.becomes({"gold": 1_000_000, "silver": 1_000_000})


def test_an_object_in_two_documents_is_a_mistake_of_the_later_one(site):
    site.put("b", meter("gold"))
    site.told("b")
    site.put("a", meter("gold", 3_000_000))
    assert "is in b" in site.told("a", "Invalid")["mistakes"][0]["problem"]
    site.becomes({"gold": 1_000_000})
    site.driver.delete("b")
    site.told("a")
    site.becomes({"gold": 3_000_000})


@pytest.mark.parametrize("kind", ["etcd", "redis", "files"], indirect=True, scope="module")
class TestStoresThatAreEmptied:
    def held(self, site, objects):
        status = site.driver.status(".held")
        return (status and (status["state"], status["objects"])) == (objects and ("Held", objects))

    def test_objects_of_an_emptied_store_are_held_until_they_are_back(self, site):
        site.put("a", meter("gold"))
        site.put("b", meter("silver"))
        site.told("a"), site.told("b")
        site.driver.flush()
        wait_until(lambda: self.held(site, 2), 30, "it is told that two are kept")
        assert site.rates() == {"gold": 1_000_000, "silver": 1_000_000}
        site.gateway.agent.kill()
        site.gateway.start_agent()
        site.put("a", meter("gold", 2_000_000))
        wait_until(lambda: self.held(site, 1), 30, "it is told that one is kept")
        site.becomes({"gold": 2_000_000, "silver": 1_000_000})
        site.put("b", meter("silver", 2_000_000))
        wait_until(lambda: self.held(site, None), 30, "it is told that none is kept")
        site.becomes({"gold": 2_000_000, "silver": 2_000_000})
        site.driver.delete("a")
        site.becomes({"silver": 2_000_000})

    def test_objects_of_an_emptied_store_are_deleted_when_its_mark_is_back(self, site):
        site.put("a", meter("gold"))
        site.told("a")
        site.driver.flush()
        wait_until(lambda: self.held(site, 1), 30, "it is told that one is kept")
        site.driver.mark()
        site.becomes({})
        wait_until(lambda: self.held(site, None), 30, "it is told that none is kept")


@pytest.mark.parametrize("kind", ["etcd"], indirect=True, scope="module")
class TestEtcdAlone:
    def test_it_works_over_tls_with_a_password_and_the_rights_of_the_how_to(self, site):
        with Lab() as lab:
            password = lab.directory / "password"
            password.write_text("wrong\n")
            driver = Etcd(site.driver.server, "secret")
            ask = driver.server.ask
            grants = ((driver.prefix, "READ"), (driver.status_prefix, "READWRITE"))
            for name in ("root", "gateway"):
                ask("auth/user/add", name=name, password=f"a secret of {name}")
                ask("auth/role/add", name=name)
                ask("auth/user/grant", user=name, role=name)
            for prefix, may in grants:
                to = {"key": encoded(prefix), "range_end": encoded(prefix[:-1] + "0"), "permType": may}
                ask("auth/role/grant", name="gateway", perm=to)
            ask("auth/enable")
            try:
                driver.server.token = ask("auth/authenticate", name="root", password="a secret of root")["token"]
                driver.put("a", yaml([meter("secret", 7_000_000)]))
                who = {"username": "gateway", "passwordFile": str(password)}
                way = driver.northbound(lab.directory, secure=True, **who)
                gateway = Gateway(lab, site.gateway.namespace, "secret", northbounds=[way])
                wait_until(lambda: "it does not answer" in gateway.agent.log.read_text(), 60, "the log tells of it")
                password.write_text("a secret of gateway\n")
                wait_until(lambda: (driver.status("a") or {}).get("state") == "Applied", 60, "it is applied")
                assert gateway.json("get", "meter", "secret")[0]["status"]["owner"] == "etcd"
                assert "a secret of" not in "".join(gateway.logs().values())
            finally:
                ask("auth/disable")
                driver.server.token = None

    def test_compaction_while_the_agent_cannot_see_etcd_loses_nothing(self, site):
        site.put("a", meter("gold"))
        site.put("b", meter("silver"))
        site.told("a"), site.told("b")
        # The agent does not follow, and the events are compacted away when it asks.
        site.gateway.agent.child.send_signal(signal.SIGSTOP)
        site.driver.restart()
        for i in range(50):
            site.put("a", meter("gold", 2_000_000 + i))
        site.driver.delete("b")
        site.driver.server.compact()
        site.gateway.agent.child.send_signal(signal.SIGCONT)
        site.told("a")
        site.becomes({"gold": 2_000_049})


@pytest.mark.parametrize("kind", ["redis"], indirect=True, scope="module")
class TestRedisAlone:
    def test_it_works_over_tls_for_a_user_who_may_not_enable_events(self, site):
        with Lab() as lab:
            driver = Redis(site.driver.server, "secret")
            may = ("~secret:*", "&*", "+@all", "-config")
            driver.server.ask("ACL", "SETUSER", "gateway", "on", ">a secret of gateway", *may)
            driver.server.ask("CONFIG", "SET", "notify-keyspace-events", "")
            password = lab.directory / "password"
            password.write_text("wrong\n")
            who = {"username": "gateway", "passwordFile": str(password), "interval": "1s"}
            way = driver.northbound(lab.directory, secure=True, **who)
            gateway = Gateway(lab, site.gateway.namespace, "secret", northbounds=[way])
            try:
                wait_until(lambda: "it does not answer" in gateway.agent.log.read_text(), 60, "the log tells of it")
                password.write_text("a secret of gateway\n")
                wait_until(lambda: "Redis sends no events" in gateway.agent.log.read_text(), 60, "it says so")

                def rates():
                    return [each["spec"]["committedRate"] for each in gateway.json("get", "meters")]

                for rate in (7_000_000, 8_000_000):
                    driver.put("a", yaml([meter("secret", rate)]))
                    wait_until(lambda rate=rate: rates() == [rate], 30, f"it is {rate}")
                assert "a secret of" not in "".join(gateway.logs().values())
            finally:
                # A follower gets events again when it connects again.
                driver.server.ask("CONFIG", "SET", "notify-keyspace-events", "KA")

    def test_a_key_of_another_type_is_a_mistake(self, site):
        site.put("a", meter("gold"))
        site.told("a")
        site.driver.server.ask("DEL", site.driver.prefix + "a")
        site.driver.server.ask("LPUSH", site.driver.prefix + "a", "x")

        def told():
            status = site.driver.status("a")
            return status and status["state"] == "Invalid" and status["mistakes"][0]["problem"]

        assert "no string" in wait_until(told, 30, "it is told")

    def test_a_key_that_expires_is_gone(self, site):
        site.driver.server.ask("SET", site.driver.prefix + "a", yaml([meter("gold")]), "PX", "1500")
        site.becomes({"gold": 1_000_000})
        site.becomes({})

    def test_renaming_a_key_changes_nothing(self, site):
        site.put("a", meter("gold"))
        site.told("a")
        site.texts["b"] = site.texts["a"]
        site.driver.server.ask("RENAME", site.driver.prefix + "a", site.driver.prefix + "b")
        site.told("b")
        site.becomes({"gold": 1_000_000})


@pytest.mark.parametrize("kind", ["files"], indirect=True, scope="module")
class TestFilesAlone:
    def test_a_half_written_file_does_no_harm(self, site):
        site.put("a", meter("gold"), meter("silver"))
        site.told("a")
        text = yaml([meter("gold", 2_000_000), meter("silver", 2_000_000)])
        with site.driver.path("a").open("w") as file:
            for part in range(0, len(text), 40):
                file.write(text[part : part + 40])
                file.flush()
                assert set(site.rates()) == {"gold", "silver"}
        site.texts["a"] = text
        site.told("a")
        site.becomes({"gold": 2_000_000, "silver": 2_000_000})
