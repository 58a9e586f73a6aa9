"""Documents under keys say what is wanted, and what became of each is told there: the same tests with each place."""

import hashlib
import signal

import pytest
from lab import Gateway, Lab, thing, yaml
from lab.etcd import Etcd, EtcdServer
from lab.files import Files
from lab.gateway import Refused
from lab.laboratory import wait_until
from lab.redis import Redis, RedisServer

KINDS = {"etcd": (EtcdServer, Etcd), "redis": (RedisServer, Redis), "files": (None, Files)}
BULK = 10_000


def meter(name, rate=1_000_000, **spec):
    return thing("Meter", name, algorithm="srtcm", committedRate=rate, committedBurst=10_000, **spec)


def bad(name):
    """Line 5 is wrong."""
    head = f"apiVersion: sluice.dev/v1\nkind: Meter\nmetadata: {{name: {name}}}\n"
    return head + "spec:\n  committedRate: 17\n  committedBurst: 1000\n"


class Site:
    """A gateway, and where what it should be is written down."""

    def __init__(self, lab, namespace, driver, **options):
        self.driver = driver
        self.texts = {}
        self.gateway = Gateway(lab, namespace, driver.name, northbounds=[driver.northbound(lab.directory, **options)])

    def put(self, key, *objects, text=None):
        self.texts[key] = yaml(objects) if text is None else text
        self.driver.put(key, self.texts[key])

    def told(self, key, state="Applied", seconds=60):
        """The status of the document as it was put last, once it is in this state."""

        def found():
            status = self.driver.status(key)
            about = hashlib.sha256(self.texts[key].encode()).hexdigest()
            return status if status and (status["sha256"], status["state"]) == (about, state) else None

        return wait_until(found, seconds, f"{key} is {state}; it is {self.driver.status(key)}")

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
def place(lab, kind):
    """Makes a driver."""
    server, driver = KINDS[kind]
    if not server:
        return lambda name: driver(lab, name)
    started = server(lab, lab.namespace(kind))
    started.start()
    return lambda name: driver(started, name)


@pytest.fixture(scope="module")
def site(lab, place):
    driver = place("pop")
    namespace = driver.server.namespace if hasattr(driver, "server") else lab.namespace("pop")
    return Site(lab, namespace, driver)


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


def test_a_document_is_created_updated_and_deleted(site):
    site.put("a", meter("gold"), meter("silver"))
    status = site.told("a")
    assert (status["objects"], status["applied"]) == (2, 2)
    assert [each["object"] for each in status["details"]] == ["Meter/gold", "Meter/silver"]
    site.becomes({"gold": 1_000_000, "silver": 1_000_000})
    site.put("a", meter("gold", 2_000_000))
    site.told("a")
    site.becomes({"gold": 2_000_000})
    site.driver.delete("a")
    site.becomes({})
    wait_until(lambda: site.driver.status("a") is None, 30, "its status goes away")


def test_a_bad_object_is_told_with_its_line_and_disturbs_no_other(site):
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


def test_a_bad_document_keeps_what_it_had_when_the_agent_is_started_again(site):
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


def test_a_conflict_with_the_command_line_is_told_and_tried_again(site):
    site.gateway.apply(meter("gold", 9_000_000))
    site.put("a", meter("gold"), meter("silver"))
    mistakes = site.told("a", "Invalid")["mistakes"]
    assert "belongs to api" in mistakes[0]["problem"]
    assert (mistakes[0]["object"], mistakes[0]["field"]) == ("Meter/gold", "committedRate")
    site.becomes({"gold": 9_000_000, "silver": 1_000_000})
    site.gateway.delete("meter", "gold")
    site.told("a")
    site.becomes({"gold": 1_000_000, "silver": 1_000_000})


def test_the_command_line_is_refused_what_belongs_to_a_document(site):
    site.put("a", meter("gold"))
    site.told("a")
    with pytest.raises(Refused, match=f"belongs to {site.driver.kind}"):
        site.gateway.apply(meter("gold", 5_000_000))
    site.becomes({"gold": 1_000_000})


def test_an_object_in_two_documents_is_a_mistake_of_the_later_one(site):
    site.put("b", meter("gold"))
    site.told("b")
    site.put("a", meter("gold", 3_000_000))
    assert "is in b" in site.told("a", "Invalid")["mistakes"][0]["problem"]
    site.becomes({"gold": 1_000_000})
    site.driver.delete("b")
    site.told("a")
    site.becomes({"gold": 3_000_000})


def test_ten_thousand_documents_are_applied_and_deleted(site):
    texts = {f"m{i}": yaml([meter(f"m{i}", 1_000_000 + i)]) for i in range(BULK)}
    before = revisions(site)
    site.driver.put_all(texts)
    site.becomes({f"m{i}": 1_000_000 + i for i in range(BULK)}, 120)
    wait_until(lambda: site.driver.statuses() == BULK, 60, f"statuses; there are {site.driver.statuses()}")
    assert revisions(site) - before < BULK / 10
    site.driver.delete_all()
    site.becomes({}, 120)


def revisions(site):
    found = site.gateway.json("history", "--limit", "1")
    found = found if isinstance(found, list) else found.get("revisions", [])
    return int(found[0]["revision"]) if found else 0


def test_what_changes_while_the_agent_is_away_is_done_when_it_is_back(site):
    site.put("a", meter("gold"))
    site.put("b", meter("silver"))
    site.told("a"), site.told("b")
    site.gateway.agent.kill()
    site.put("a", meter("gold", 2_000_000))
    site.driver.delete("b")
    site.put("c", meter("bronze"))
    site.gateway.start_agent()
    site.told("a"), site.told("c")
    site.becomes({"gold": 2_000_000, "bronze": 1_000_000})
    wait_until(lambda: site.driver.status("b") is None, 30, "the status of what is gone goes away")


def test_nothing_is_lost_when_the_place_is_away_in_the_middle(site):
    wanted = {}
    for i in range(200):
        site.put(f"k{i}", meter(f"m{i}", 1_000_000 + i))
        wanted[f"m{i}"] = 1_000_000 + i
        if i in (50, 150):
            site.driver.restart()
    site.becomes(wanted)
    site.driver.kill()
    site.becomes(wanted)
    site.driver.start()
    site.driver.delete("k0")
    del wanted["m0"]
    site.put("k1", meter("m1", 7_000_000))
    wanted["m1"] = 7_000_000
    site.becomes(wanted)
    site.told("k1")


def test_nothing_is_lost_when_the_agent_is_killed_in_the_middle(site):
    texts = {f"m{i}": yaml([meter(f"m{i}")]) for i in range(2000)}
    site.driver.put_all(texts)
    site.gateway.agent.kill()
    site.gateway.start_agent()
    site.becomes(dict.fromkeys(texts, 1_000_000))


def test_the_last_of_many_changes_counts_and_duplicates_change_nothing(site):
    for i in range(100):
        site.put("a", meter("gold", 1_000_000 + i))
    site.told("a")
    site.becomes({"gold": 1_000_099})
    before = revisions(site)
    for _ in range(10):
        site.put("a", meter("gold", 1_000_099))
    site.put("b", meter("silver"))
    site.told("b")
    assert revisions(site) == before + 1


def test_what_is_needed_may_come_later(site):
    """A session waits for its meter, and says so."""
    port = thing("Port", "access", device="net_null0")
    session = thing(
        "Session",
        "alice",
        access={"port": "access", "outerVlan": 5},
        addresses=["100.64.0.1/32"],
        policy={"meterUp": "gold"},
    )
    site.put("a", session)

    def waits():
        detail = site.told("a", "Pending")["details"][0]
        return detail["object"] == "Session/alice" and detail["reason"] == "WaitsForObject" and detail["message"]

    wait_until(waits, 30, "it says what it waits for")
    site.put("b", port, meter("gold"))
    site.told("a"), site.told("b")


class TestEtcdAlone:
    @pytest.fixture(autouse=True)
    def only_etcd(self, kind):
        if kind != "etcd":
            pytest.skip("is about etcd")

    def test_compaction_while_the_agent_cannot_see_etcd_loses_nothing(self, site):
        site.put("a", meter("gold"))
        site.put("b", meter("silver"))
        site.told("a"), site.told("b")
        # The agent does not follow, and what it was not told is forgotten when it asks.
        site.gateway.agent.child.send_signal(signal.SIGSTOP)
        site.driver.restart()
        for i in range(50):
            site.put("a", meter("gold", 2_000_000 + i))
        site.driver.delete("b")
        site.driver.server.compact()
        site.gateway.agent.child.send_signal(signal.SIGCONT)
        site.told("a")
        site.becomes({"gold": 2_000_049})


class TestRedisAlone:
    @pytest.fixture(autouse=True)
    def only_redis(self, kind):
        if kind != "redis":
            pytest.skip("is about Redis")

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


class TestFilesAlone:
    @pytest.fixture(autouse=True)
    def only_files(self, kind):
        if kind != "files":
            pytest.skip("is about files")

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
