# SPDX-License-Identifier: Apache-2.0
"""Messages of brokers configure a gateway, and status messages go out: behaviour of brokers beyond that of every
northbound (test_conformance)."""

import time

import pytest
from lab import Gateway, Lab, thing, yaml
from lab.kafka import Kafka, KafkaServer
from lab.laboratory import wait_until
from lab.rabbitmq import Rabbitmq, RabbitmqServer
from lab.redis import RedisServer, RedisStream

KINDS = {
    "kafka": (KafkaServer, Kafka),
    "rabbitmq": (RabbitmqServer, Rabbitmq),
    "redis": (RedisServer, RedisStream),
}


class Site:
    """A gateway, and a driver that configures it through a broker."""

    def __init__(self, lab, server, driver, **options):
        self.driver = driver
        self.gateway = Gateway(
            lab,
            server.namespace,
            driver.name,
            northbounds=[driver.northbound(lab.directory, **options)],
        )

    def put(self, *objects, **headers):
        key = f"{objects[0]['kind']}/{objects[0]['metadata']['name']}"
        self.driver.put(key, yaml(objects), **headers)

    def meter(self, name, **headers):
        return wait_until(lambda: self.found(name), 60, f"meter {name}")

    def found(self, name):
        """The object, or None."""
        found = self.gateway.json("get", "meters")
        return next((each for each in found if each["metadata"]["name"] == name), None)

    def rate(self, name):
        found = self.found(name)
        # An object that is being deleted does not count any more.
        return found and found["spec"].get("committedRate")

    def becomes(self, name, rate, seconds=60):
        wait_until(lambda: self.rate(name) == rate, seconds, lambda: f"{name} at {rate}; it is at {self.rate(name)}")

    def letter(self, mark):
        """The dead letter with this in its body."""

        def found():
            return next((each for each in self.driver.dead_letters() if mark in each.body), None)

        return wait_until(found, 60, f"a dead letter with {mark}")

    def told(self, name):
        """The last status of a meter."""
        events = [each for each in self.driver.events() if (each["kind"], each["name"]) == ("Meter", name)]
        return events[-1] if events else None


def meter(name, rate=1_000_000, **spec):
    return thing("Meter", name, algorithm="srtcm", committedRate=rate, committedBurst=65536, **spec)


@pytest.fixture(scope="module", params=KINDS)
def server(request):
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture(scope="module")
def site(lab, server):
    driver = driver_of(server, "site")
    yield Site(lab, server, driver)
    driver.close()


def kind_of(server):
    return next(driver for kind, driver in KINDS.values() if isinstance(server, kind))


def driver_of(server, name):
    driver = kind_of(server)
    return driver(server, f"{driver.kind}-{name}")


def test_one_message_holds_several_objects(site):
    site.put(meter("several-1"), meter("several-2"))
    site.becomes("several-1", 1_000_000)
    site.becomes("several-2", 1_000_000)


def test_the_headers_of_a_dead_letter_have_the_error_and_its_place(site):
    site.put(meter("bad", -5))
    letter = site.letter('"bad"')
    assert letter.headers["object"] == "Meter/bad"
    assert letter.headers["field"] == "committedRate"
    assert "-5" in letter.headers["error"]
    assert letter.headers["accepted"]
    assert letter.headers["position"]


def test_the_headers_of_a_dead_letter_name_the_holder_of_an_object(site):
    site.gateway.apply(meter("held", 1_000_000))
    site.put(meter("held", 3_000_000))
    letter = site.letter('"held"')
    assert (letter.headers["owner"], letter.headers["holder"]) == (site.driver.kind, "api")
    assert letter.headers["field"] == "committedRate"


@pytest.mark.parametrize("text", ["{{{ no YAML", b"\xff\xfe\x00", ""])
def test_an_invalid_message_becomes_a_dead_letter(site, text):
    known = len(site.driver.dead_letters())
    site.driver.put("Meter/none", text)
    wait_until(lambda: len(site.driver.dead_letters()) > known, 60, "a dead letter")
    assert site.driver.dead_letters()[-1].headers["error"]


def test_an_older_message_does_not_win_over_a_newer_one_and_the_same_again_changes_nothing(site):
    site.put(meter("ordered", 3_000_000), revision=3)
    site.becomes("ordered", 3_000_000)
    site.put(meter("ordered", 2_000_000), revision=2)
    site.put(meter("behind"))
    site.becomes("behind", 1_000_000)
    assert site.rate("ordered") == 3_000_000
    since = site.found("ordered")["status"]["since"]
    site.put(meter("ordered", 3_000_000), revision=3)
    site.put(meter("behind", 3_000_000))
    site.becomes("behind", 3_000_000)
    assert site.found("ordered")["status"]["since"] == since
    site.driver.delete("Meter/ordered", revision=5)
    site.becomes("ordered", None)
    site.put(meter("ordered", 4_000_000), revision=4)
    site.put(meter("behind", 2_000_000))
    site.becomes("behind", 2_000_000)
    assert site.rate("ordered") is None


def test_the_status_of_objects_is_published(site):
    site.put(meter("told"))
    wait_until(lambda: (site.told("told") or {}).get("state") == "applied", 60, "applied is told")
    event = site.told("told")
    assert event["owner"] == site.driver.kind
    assert event["apiVersion"] == "sluice.dev/v1"
    assert {each["type"]: each["status"] for each in event["conditions"]} == dict.fromkeys(
        ("Accepted", "Applied", "Ready"), True
    )
    assert event["generation"] == event["observed"] == 1
    site.driver.delete("Meter/told")
    wait_until(lambda: site.told("told")["state"] == "gone", 60, "gone is told")


def test_objects_deleted_while_the_northbound_was_off_are_reported_as_gone(site):
    site.gateway.apply(meter("vanishing"))
    wait_until(lambda: (site.told("vanishing") or {}).get("state") == "applied", 60, "it is told")
    northbounds, site.gateway.northbounds = site.gateway.northbounds, []
    site.gateway.agent.kill()
    site.gateway.start_agent()
    site.gateway.delete("Meter", "vanishing")
    site.gateway.northbounds = northbounds
    site.gateway.agent.kill()
    site.gateway.start_agent()
    wait_until(lambda: site.told("vanishing")["state"] == "gone", 60, "gone is told")


@pytest.mark.parametrize("server", ["kafka"], indirect=True, scope="module")
def test_a_message_too_long_for_the_dead_letters_leaves_reason_and_position(server):
    with Lab() as lab:
        driver = driver_of(server, "long")
        site = Site(lab, server, driver)
        driver.put("Meter/long", "#" + "x" * 1_048_400)
        site.put(meter("short"))
        site.becomes("short", 1_000_000)
        wait_until(driver.dead_letters, 60, "the dead letter")
        (letter,) = driver.dead_letters()
        assert letter.body == ""
        assert letter.headers["position"].startswith(f"{driver.topic}/")
        driver.close()


@pytest.mark.parametrize("server", ["kafka"], indirect=True, scope="module")
def test_nothing_is_lost_when_agents_share_a_group_and_one_of_them_dies(server):
    with Lab() as lab:
        driver = driver_of(server, "shared")
        site = Site(lab, server, driver)
        names = [f"shared-{n}" for n in range(100)]
        rate = 0

        def say():
            nonlocal rate
            rate += 1_000_000
            driver.put_all({f"Meter/{name}": yaml([meter(name, rate)]) for name in names})

        def heard(gateway):
            found = gateway.json("get", "meters") or []
            return {each["metadata"]["name"] for each in found if each["spec"]["committedRate"] == rate}

        say()
        wait_until(lambda: heard(site.gateway) == set(names), 60, "one agent hears everything")
        way = driver.northbound(lab.directory, name="other", memory=str(lab.directory / "other.db"))
        other = Gateway(lab, server.namespace, "other", northbounds=[way])

        def both():
            say()
            time.sleep(1)
            return heard(site.gateway) and heard(other)

        wait_until(both, 60, "both hear something")
        wait_until(lambda: heard(site.gateway) | heard(other) == set(names), 60, "both together hear everything")
        other.agent.kill()
        say()
        wait_until(lambda: heard(site.gateway) == set(names), 60, "the other's part comes back")
        driver.close()


def test_it_works_over_tls_with_a_password_however_that_is_shown(server):
    for way in kind_of(server).secure:
        with Lab() as lab:
            driver = driver_of(server, f"secure-{way}")
            site = Site(lab, server, driver, secure=way)
            site.put(meter("secret", 7_000_000))
            site.becomes("secret", 7_000_000)
            assert "a secret of" not in "".join(site.gateway.logs().values())
            driver.close()


def test_a_wrong_password_is_logged_and_waiting_messages_arrive_once_it_is_right(server):
    with Lab() as lab:
        driver = driver_of(server, "mistaken")
        wrong = lab.directory / "password"
        wrong.write_text("wrong\n")
        driver.put("Meter/m", yaml([meter("m")]))
        way = driver.northbound(lab.directory, secure=True)
        where = way.get("sasl", way)
        where["passwordFile"], right = str(wrong), where["passwordFile"]
        gateway = Gateway(lab, server.namespace, driver.name, northbounds=[way])
        wait_until(lambda: "the broker" in gateway.agent.log.read_text(), 60, "the log tells of it")
        assert gateway.agent.alive()
        with open(right) as text:
            wrong.write_text(text.read())
        wait_until(lambda: gateway.json("get", "meters"), 60, "the meter")
        driver.close()
