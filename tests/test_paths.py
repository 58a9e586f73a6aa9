# SPDX-License-Identifier: Apache-2.0
"""GTP-U path management (TS 29.281 section 7.2): two user plane functions, of which one dies under traffic."""

import json
import socket
import struct

import pytest
from lab import Line, Load, Upf, thing
from lab.laboratory import wait_until
from lab.load import DOWN, UP, TunnelHost
from lab.upf import ECHO_REQUEST, ERROR_INDICATION, Message
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


def ready(pop, name):
    (one,) = pop.gateway.json("get", "session", name)
    (condition,) = [each for each in one["status"]["conditions"] if each["type"] == "Ready"]
    return condition | {"holds": condition["status"] == "True"}


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
        wait_until(lambda: not ready(pop, "dies")["holds"], 20, "the session on it is not ready")
        beside = pop.beside()
        with pop.dropping("gtpu-path-down"):
            beside.send_up(DIES, udp_up(DIES))
        pop.gateway.dropped("gtpu-path-down", 20, 0, "--session", "dies")
        assert "gtpu-path-down" not in pop.gateway.drops("--session", "lives")
        assert load.has_sent(400)
        load.pause()
        assert (load.lost(UP), load.lost(DOWN)) == (0, 0)
        assert path_to(pop, OTHER4)["state"] == "up"
        not_ready = ready(pop, "dies")
        assert not_ready["reason"] == "PathDown"
        assert f"GtpuPeer/upf-{HOST4[-1]} ({HOST4})" in not_ready["message"]
        assert ready(pop, "lives")["holds"]
        described = pop.gateway.sluice("describe", "session", "dies").stdout
        assert "PathDown" in described
        rows = [line for line in pop.gateway.sluice("get", "sessions").stdout.splitlines() if "not ready" in line]
        assert [row.split()[0] for row in rows] == ["dies"]
    finally:
        load.close()


def test_a_peer_that_is_back_is_used_again(lab, pop, upfs):
    until(pop, HOST4, "down")
    upfs[HOST4] = Upf(lab, pop.outside, HOST4, "n6c")
    until(pop, HOST4, "up")
    pop.send_up(DIES, udp_up(DIES))
    assert upfs[HOST4].expect(lambda message: message.teid == DIES.teid_up).payload == bytes(udp_up(DIES))
    assert path_to(pop, HOST4)["failures"] > 0
    wait_until(lambda: ready(pop, "dies")["holds"], 20, "the session on it is ready again")


def test_that_a_path_goes_down_and_comes_back_is_one_event_each_however_many_sessions_are_on_it(lab, pop, upfs):
    until(pop, HOST4, "up")
    others = [
        session(
            Line(
                f"s{n}",
                f"02:00:00:00:05:{n:02x}",
                f"100.64.5.{n}",
                vlans=(501, n),
                teid_up=7000 + n,
                teid_down=8000 + n,
            )
        )
        for n in range(1, 21)
    ]
    for n, one in enumerate(others, 1):
        one["spec"]["gtpu"] = tunnel(DIES) | {"localTeid": 7000 + n, "remoteTeid": 8000 + n}
    with pop.having(*others):
        watch = pop.gateway.process("watch", *pop.gateway.command("get", "sessions", "-w", "-o", "json"))

        def told():
            return [json.loads(line) for line in watch.log.read_text().splitlines()]

        try:
            wait_until(lambda: len(told()) >= 22)
            before = len(told())
            upfs[HOST4].close()
            until(pop, HOST4, "down")
            wait_until(lambda: len(told()) == before + 1)
            assert not any(ready(pop, f"s{n}")["holds"] for n in (1, 20))
            upfs[HOST4] = Upf(lab, pop.outside, HOST4, "n6d")
            until(pop, HOST4, "up")
            wait_until(lambda: len(told()) >= before + 2)
            assert ready(pop, "s1")["holds"]
        finally:
            watch.stop()
    assert [each["change"] for each in told()[before:]] == ["path", "path"]
    down, up = [each["object"] for each in told()[before:]]
    assert (down["state"], up["state"]) == ("down", "up")
    assert (down["remoteAddress"], down["peer"]) == (HOST4, f"upf-{HOST4[-1]}")


def test_a_session_whose_tunnel_the_peer_does_not_know_is_not_ready(pop, upfs):
    assert ready(pop, "lives")["holds"]
    watch = pop.gateway.process("watch-tunnels", *pop.gateway.command("get", "sessions", "-w", "-o", "json"))
    try:
        wait_until(lambda: '"lives"' in watch.log.read_text())
        for teid in (LIVES.teid_up, 1):
            payload = b"\x10" + struct.pack("!I", teid) + b"\x85\0\4" + socket.inet_aton(OTHER4)
            upfs[OTHER4].send(Message(ERROR_INDICATION, 0, sequence=0, payload=payload), CORE4)
        wait_until(lambda: '"tunnels"' in watch.log.read_text(), 20, "the event of the peer")
    finally:
        watch.stop()
    told = [json.loads(line) for line in watch.log.read_text().splitlines()]
    events = [each["object"] for each in told if each["change"] == "tunnels"]
    assert [(one["remoteAddress"], one["vrf"], one["state"]) for one in events] == [(OTHER4, "default", "unknown")]
    assert not ready(pop, "lives")["holds"]
    assert ready(pop, "lives")["reason"] == "TunnelUnknown"
    assert f"{OTHER4} does not know TEID {LIVES.teid_up}" in ready(pop, "lives")["message"]
    assert ready(pop, "dies")["holds"]


REFUSED = {
    "an interval that is too short": ({"address": HOST4, "echoInterval": "1ms"}, "echoInterval"),
    "no address": ({}, "address"),
    "a group": ({"address": "224.0.0.1"}, "address"),
    "an address that another has": ({"address": OTHER4}, "address"),
}


@pytest.mark.parametrize(("spec", "field"), REFUSED.values(), ids=REFUSED.keys())
def test_an_invalid_peer_is_refused_by_object_and_field(pop, spec, field):
    done = pop.gateway.apply(thing("GtpuPeer", "wrong", **spec), check=False)
    assert done.returncode != 0
    assert "GtpuPeer/wrong" in done.stdout + done.stderr
    assert field in done.stdout + done.stderr
