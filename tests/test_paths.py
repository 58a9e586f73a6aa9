"""GTP-U path management (TS 29.281 section 7.2): two user plane functions, of which one dies under traffic."""

import pytest
from lab import Line, Load, Upf, thing
from lab.laboratory import wait_until
from lab.load import DOWN, UP, TunnelHost
from lab.upf import ECHO_REQUEST
from pop import ACCESS_MAC, CORE4, HOST4, SERVER4, SERVER6, Pop, session, tunnel, udp_up

OTHER4 = "192.0.2.3"
DIES = Line("dies", "02:00:00:00:04:01", "100.64.4.1", "2001:db8:4:1::1", (500, 1), teid_up=6001, teid_down=5001)
LIVES = Line("lives", "02:00:00:00:04:02", "100.64.4.2", "2001:db8:4:2::1", (500, 2), teid_up=6002, teid_down=5002)
QUICKLY = {"echoInterval": "300ms", "responseTime": "100ms", "requests": 3}


@pytest.fixture(scope="module")
def pop(lab):
    base = [each for each in Pop.base if each["kind"] not in ("Neighbor", "Route")]
    peers = [thing("GtpuPeer", f"upf-{address[-1]}", address=address, **QUICKLY) for address in (HOST4, OTHER4)]
    sessions = [
        session(DIES, gtpu=tunnel(DIES)),
        session(LIVES, gtpu=tunnel(LIVES) | {"remoteAddress": OTHER4}),
    ]
    made = Pop(lab, *peers, *sessions, base=base)
    for address in (HOST4, OTHER4):
        made.outside.ip("address", "add", f"{address}/24", "dev", "uplink")
    return made


@pytest.fixture(scope="module")
def upfs(lab, pop):
    made = {HOST4: Upf(lab, pop.outside, HOST4, "n6a"), OTHER4: Upf(lab, pop.outside, OTHER4, "n6b")}
    made[HOST4].add(DIES, CORE4)
    made[OTHER4].add(LIVES, CORE4)
    return made


def path_to(pop, address):
    (path,) = [each for each in pop.gateway.json("paths") if each["remoteAddress"] == address]
    return path


def until(pop, address, state):
    wait_until(lambda: path_to(pop, address)["state"] == state, 20, f"path to {address} is {state}")


def test_the_paths_to_peers_that_answer_are_up(pop, upfs):
    for address in upfs:
        until(pop, address, "up")
        path = path_to(pop, address)
        assert (path["vrf"], path["localAddress"], path["tunnels"]) == ("default", CORE4, 1)
        assert path["requests"] >= path["responses"] > 0
    table = pop.gateway.sluice("paths").stdout
    assert HOST4 in table
    assert OTHER4 in table
    request = upfs[HOST4].expect(lambda message: message.kind == ECHO_REQUEST)
    assert (request.teid, request.sender[1]) == (0, 2152)


def test_when_one_peer_dies_sessions_on_the_other_lose_nothing(lab, pop, upfs):
    until(pop, HOST4, "up")
    load = Load([LIVES], pop.access, ACCESS_MAC, TunnelHost(upfs[OTHER4], CORE4, SERVER4, SERVER6), 400)
    try:
        assert load.warm_up() == []
        upfs[HOST4].close()
        until(pop, HOST4, "down")
        beside = pop.beside()
        with pop.dropping("gtpu-path-down"):
            beside.send_up(DIES, udp_up(DIES))
        pop.gateway.dropped("gtpu-path-down", 20, 0, "--session", "dies")
        assert "gtpu-path-down" not in pop.gateway.drops("--session", "lives")
        assert load.has_sent(400)
        load.pause()
        assert (load.lost(UP), load.lost(DOWN)) == (0, 0)
        assert path_to(pop, OTHER4)["state"] == "up"
    finally:
        load.close()


def test_a_peer_that_is_back_is_used_again(lab, pop, upfs):
    until(pop, HOST4, "down")
    upfs[HOST4] = Upf(lab, pop.outside, HOST4, "n6c")
    until(pop, HOST4, "up")
    pop.send_up(DIES, udp_up(DIES))
    assert upfs[HOST4].expect(lambda message: message.teid == DIES.teid_up).payload == bytes(udp_up(DIES))
    assert path_to(pop, HOST4)["failures"] > 0


def test_a_peer_that_never_answered_is_used_all_the_same(pop, upfs):
    silent = "192.0.2.4"
    line = Line("silent", "02:00:00:00:04:03", "100.64.4.3", vlans=(500, 3), teid_up=6003, teid_down=5003)
    neighbor = thing("Neighbor", "silent", interface="core", address=silent, mac="02:00:00:00:cc:04")
    peer = thing("GtpuPeer", "silent", address=silent, **QUICKLY)
    with pop.having(neighbor, peer, session(line, gtpu=tunnel(line) | {"remoteAddress": silent})):
        until(pop, silent, "unanswered")
        pop.core.drain()
        pop.send_up(line, udp_up(line))
        pop.at_core(lambda packet: packet.dst == silent and packet["UDP"].len > 30)


REFUSED = {
    "an interval that is too short": ({"address": HOST4, "echoInterval": "1ms"}, "echoInterval"),
    "no address": ({}, "address"),
    "a group": ({"address": "224.0.0.1"}, "address"),
    "an address that another has": ({"address": OTHER4}, "address"),
}


@pytest.mark.parametrize(("spec", "field"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_peer_may_not_say_is_refused_by_object_and_field(pop, spec, field):
    done = pop.gateway.apply(thing("GtpuPeer", "wrong", **spec), check=False)
    assert done.returncode != 0
    assert "GtpuPeer/wrong" in done.stdout + done.stderr
    assert field in done.stdout + done.stderr
