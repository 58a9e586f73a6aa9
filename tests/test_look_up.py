# SPDX-License-Identifier: Apache-2.0
"""Look-ups of sessions by address, circuit and MAC, and of routes as the data plane forwards."""

import pytest
from lab import thing
from lab.laboratory import wait_until
from pop import IPOE, PPPOE, Pop, session, udp_up


@pytest.fixture(scope="module")
def pop(lab):
    return Pop(lab, session(IPOE), session(PPPOE))


def found(pop, *arguments):
    return pop.gateway.sluice("get", "session", *arguments, "-o", "name").stdout.split()


def test_a_session_is_found_by_address_circuit_and_ethernet_address(pop):
    assert found(pop, "--address", IPOE.ip4) == ["session/ipoe"]
    assert found(pop, "--address", PPPOE.ip6) == ["session/pppoe"]
    assert found(pop, "--circuit", "access:100.1") == ["session/ipoe"]
    assert found(pop, "--circuit", "access:100.2") == ["session/pppoe"]
    assert found(pop, "--mac", PPPOE.mac) == ["session/pppoe"]
    # Learned from the first packet.
    pop.send_up(IPOE, udp_up(IPOE, 4))
    assert wait_until(lambda: found_or_none(pop, "--mac", IPOE.mac) == ["session/ipoe"])


def found_or_none(pop, *arguments):
    return pop.gateway.sluice("get", "session", *arguments, "-o", "name", check=False).stdout.split()


def test_missing_sessions_are_reported_as_missing(pop):
    done = pop.gateway.sluice("get", "session", "--address", "203.0.113.7", check=False)
    assert done.returncode == 1
    assert "no session has address 203.0.113.7" in done.stderr
    done = pop.gateway.sluice("get", "session", "--circuit", "nowhere:1", check=False)
    assert done.returncode == 1
    assert 'there is no Port "nowhere"' in done.stderr
    done = pop.gateway.sluice("get", "session", "--address", "203.0.113", check=False)
    assert 'address: "203.0.113" is not an IP address' in done.stderr


def test_a_look_up_of_a_route_shows_its_next_hops(pop):
    def look_up(address, *more):
        return pop.gateway.json("get", "route", "--lookup", address, *more)

    subscriber = look_up(IPOE.ip4)
    assert subscriber["prefix"] == f"{IPOE.ip4}/32"
    assert subscriber["action"] == "session"
    assert subscriber["nextHops"][0]["session"] == "ipoe"
    default = look_up("203.0.113.9")
    assert (default["prefix"], default["action"]) == ("0.0.0.0/0", "forward")
    assert default["nextHops"][0]["interface"] == "core"
    pop.gateway.apply(thing("Route", "hole", prefix="203.0.113.0/24", action="blackhole"))
    assert look_up("203.0.113.9")["drop"] == "blackhole"
    pop.gateway.delete("route", "hole")
    assert look_up("203.0.113.9") == default
    pop.gateway.apply(thing("Vrf", "red"))
    assert look_up("203.0.113.9", "--vrf", "red") == {"vrf": "red", "action": "unreachable", "nextHops": []}


def test_a_list_counts_the_packets_of_each_rule(pop):
    rules = [{"action": "deny", "protocol": "tcp"}, {"action": "permit", "protocol": "udp"}]
    pop.gateway.apply(thing("Acl", "counted", rules=rules, countHits=True), session(IPOE, policy={"aclUp": "counted"}))

    def hits():
        return pop.gateway.json("describe", "acl", "counted")["hits"]

    assert hits() == {"uncounted": False, "rules": [0, 0], "otherwise": 0}
    pop.send_up(IPOE, udp_up(IPOE, 4))
    assert wait_until(lambda: hits() == {"uncounted": False, "rules": [0, 1], "otherwise": 0})
    pop.gateway.apply(session(IPOE))
    pop.gateway.delete("acl", "counted")
