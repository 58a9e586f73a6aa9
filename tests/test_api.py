# SPDX-License-Identifier: Apache-2.0
"""The data plane's API: errors, paging, watching, and input that is not a request at all."""

import contextlib
import errno
import itertools
import json
import os
import random
import signal
import socket
import ssl
import stat
import struct
import subprocess

import pytest
from contract import VERSION, Connection, api, notes, packed, question
from lab import Wire, thing
from lab.gateway import DATAPLANE, SLUICE
from lab.laboratory import wait_until
from lab.load import DOWN, UP
from lab.namespace import run
from pop import CORE4, CORE6, GATEWAY4, HOST4, HOST6, IPOE, PPPOE, Pop, session, udp_up
from scapy.all import ARP, IP, UDP, Ether, IPv6


@pytest.fixture(scope="module")
def pop(lab):
    made = Pop(lab, session(IPOE), session(PPPOE))
    made.learn(IPOE, PPPOE)
    return made


@pytest.fixture
def api_client(pop):
    with Connection(pop.gateway.dataplane_socket) as connection:
        yield connection


def test_the_socket_is_for_its_owner_alone(pop):
    assert stat.S_IMODE(os.stat(pop.gateway.dataplane_socket).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(pop.gateway.agent_socket).st_mode) == 0o600


def test_the_greeting_tells_versions_and_workers(api_client):
    assert api_client.greeting.version == VERSION
    assert api_client.greeting.workers == 1
    assert "22." in api_client.greeting.dpdk or "24." in api_client.greeting.dpdk
    assert api_client.greeting.boot


@pytest.fixture
def alone(pop, api_client):
    """The agent is stopped, so that it repairs nothing."""
    with pop.gateway.without_agent():
        yield api_client


def test_each_object_of_a_put_has_a_result_of_its_own(alone):
    api_client = alone
    results = api_client.put(
        thing("Vrf", "blue"),
        thing("Route", "nowhere", vrf="green", prefix="203.0.113.0/24", action="BLACKHOLE"),
        thing("Route", "somewhere", vrf="blue", prefix="203.0.113.0/24", action="BLACKHOLE"),
    )
    assert [result.code for result in results] == [0, 2, 0]
    assert "green" in results[1].message
    names = [api.ObjectName(kind="Route", name="somewhere"), api.ObjectName(kind="Vrf", name="blue")]
    assert [result.code for result in api_client.ask(delete=api.Delete(names=names)).results.results] == [0, 0]


def test_an_object_keeps_the_name_of_the_service_that_produces_it(alone):
    blue = thing("Vrf", "produced")
    for owner in ("pppoe", "dhcp", ""):
        stamped = packed(blue)
        stamped.owner = owner
        reply = alone.ask(put=api.Put(objects=[stamped]))
        assert [result.code for result in reply.results.results] == [0]
        listed = alone.ask(list=api.List(kind="Vrf")).objects.objects
        assert [o.owner for o in listed if o.name == "produced"] == [owner]
    stamped.owner = "x" * 64
    assert [result.code for result in alone.ask(put=api.Put(objects=[stamped])).results.results] == [22]
    alone.ask(delete=api.Delete(names=[api.ObjectName(kind="Vrf", name="produced")]))


def test_deleting_a_session_returns_its_last_counters(pop, alone):
    pop.passes(IPOE)
    spec = next(o for o in alone.ask(list=api.List(kind="Session")).objects.objects if o.name == "ipoe")
    before = alone.read(api.SessionCountersQuery(sessions=[spec.name])).sessions[0]
    reply = alone.ask(delete=api.Delete(names=[api.ObjectName(kind="Session", name=spec.name)]))
    final = api.SessionCounters.FromString(reply.results.results[0].final)
    assert final.session == spec.name
    assert final.up_packets >= before.up_packets > 0
    assert final.up_bytes >= before.up_bytes > 0
    assert [result.code for result in alone.ask(put=api.Put(objects=[spec])).results.results] == [0]


def test_packets_out_need_no_reply_and_unsendable_ones_are_counted_drops(pop, api_client):
    frame = bytes(Ether(dst="02:00:00:00:00:99", src="02:00:00:00:00:98", type=0x88B5) / b"in order")
    out = [api.PacketOut(port="access", packet=frame + bytes([number])) for number in range(3)]
    out.insert(1, api.PacketOut(port="nowhere", packet=frame))
    before = pop.gateway.drops().get("packet-out-refused", 0)
    api_client.send(packets_out=api.PacketsOut(packets=out))
    seen = [pop.access.expect(lambda frame: frame if frame[12:14] == b"\x88\xb5" else None) for _ in range(3)]
    assert [f[len(frame)] for f in seen] == [0, 1, 2]
    assert pop.gateway.drops().get("packet-out-refused", 0) == before + 1


def test_an_object_in_use_is_not_deleted(api_client):
    reply = api_client.ask(delete=api.Delete(names=[api.ObjectName(kind="Port", name="access")]))
    assert reply.results.results[0].code == 16
    assert reply.results.results[0].message


def test_deleting_a_missing_object_succeeds(api_client):
    reply = api_client.ask(delete=api.Delete(names=[api.ObjectName(kind="Session", name="nobody")]))
    assert reply.results.results[0].code == 0


def test_objects_are_listed_by_pages_byte_for_byte(api_client):
    found, page = {}, ""
    while True:
        objects = api_client.ask(list=api.List(limit=3, page=page)).objects
        assert len(objects.objects) <= 3
        for each in objects.objects:
            assert (each.kind, each.name) not in found
            found[each.kind, each.name] = each.spec
        page = objects.next_page
        if not page:
            break
    from contract import packed

    assert found["Session", "ipoe"] == packed(session(IPOE)).spec
    assert ("Port", "access") in found


def test_a_kind_that_does_not_exist_is_refused_by_name(api_client):
    reply = api_client.ask(put=api.Put(objects=[api.Object(kind="Teapot", name="short")]))
    assert reply.results.results[0].code == 22
    assert "Teapot" in reply.results.results[0].message


def test_a_spec_that_is_no_message_is_refused(api_client):
    reply = api_client.ask(put=api.Put(objects=[api.Object(kind="Session", name="x", spec=b"\xff\xff\xff")]))
    assert reply.results.results[0].code == 22


def test_the_data_plane_answers_the_state_queries_that_are_annotated_for_it(api_client):
    queries = [
        kind
        for kind in vars(api).values()
        if hasattr(kind, "DESCRIPTOR") and isinstance(kind, type) and notes(kind).name
    ]
    assert sum(notes(query).dataplane for query in queries) >= 15
    for query in queries:
        code = api_client.ask(state=question(query())).result.code
        assert (code != errno.EOPNOTSUPP) == notes(query).dataplane, query.DESCRIPTOR.name


def test_a_wrong_version_is_refused(pop):
    with Connection(pop.gateway.dataplane_socket, hello=False) as connection:
        reply = connection.ask(hello=api.Hello(version=99))
        assert reply.result.code != 0
        assert reply.result.message


def test_counters_add_up(api_client, pop):
    before = api_client.read(api.SessionCountersQuery(sessions=["ipoe"])).sessions[0]
    pop.send_up(IPOE, udp_up(IPOE, payload=bytes(72)))
    pop.at_core(lambda packet: UDP in packet)
    after = api_client.read(api.SessionCountersQuery(sessions=["ipoe"])).sessions[0]
    assert (after.up_packets - before.up_packets, after.up_bytes - before.up_bytes) == (1, 100)
    assert after.mac == IPOE.mac
    nodes = api_client.read(api.NodeCountersQuery())
    by_name = {node.node: node for node in nodes.nodes}
    assert by_name["session-up4"].packets > 0 and by_name["session-up4"].idle_calls == 0
    # A call of a port's queues has packets, or is an idle one.
    rx = by_name["rx"]
    assert 0 < rx.calls <= rx.packets + 1 and rx.idle_calls > 0 and rx.idle_cycles > 0
    assert nodes.tsc_hz > 10**8
    ports = {port.port: port for port in api_client.read(api.PortCountersQuery()).ports}
    assert ports["access"].rx_packets > 0
    assert ports["core"].mac == "02:00:00:00:aa:02"


def discovery(port="access", **vlans):
    """PPPoE discovery of the port's circuits goes up, as much of it as comes."""
    return thing(
        "Punt", f"pppoe-{port}", port=port, protocols=["pppoe_discovery"], rate=1000000, ratePerMac=1000000, **vlans
    )


@contextlib.contextmanager
def without_agent(pop):
    """Its services watch punts, too."""
    pop.gateway.agent.kill()
    try:
        yield
    finally:
        pop.gateway.start_agent()


QINQ = {"outerVlans": ["1-4094"], "innerVlans": ["1-4094"]}


def test_punted_packets_come_with_interface_and_session(pop):
    with pop.having(discovery(**QINQ)), Connection(pop.gateway.dataplane_socket) as watcher:
        watcher.send(watch=api.Watch(punts=["pppoe-discovery", "ppp-control", "dhcp4"]))
        padi = Ether(src=IPOE.mac, dst="ff:ff:ff:ff:ff:ff", type=0x8100)
        # A bare QinQ PADI has 32 bytes: 14 and 8 of Ethernet, 6 of PPPoE, 4 of an empty Service-Name.
        frame = bytes(padi) + bytes.fromhex("006481000001" + "8863" + "11090000" + "0004" + "01010000")
        assert len(frame) == 32
        pop.access.send(frame)
        event = next_punt(watcher)
        assert (event.reason, event.port) == ("pppoe-discovery", "access")
        assert event.frame == frame
        lcp = PPPOE.frame(bytes.fromhex("02000000aa01"), b"\x45" + bytes(19))
        echo = bytearray(lcp)
        echo[echo.index(b"\x00\x21", 26) : echo.index(b"\x00\x21", 26) + 2] = b"\xc0\x21"
        pop.access.send(echo)
        event = next_punt(watcher)
        assert (event.reason, event.session) == ("ppp-control", "pppoe")


def next_punt(watcher):
    while True:
        reply = watcher.receive()
        if reply.event.HasField("packet_in"):
            return reply.event.packet_in


def test_a_watcher_hears_that_a_link_goes_down_and_up(pop):
    def link(watcher):
        while True:
            reply = watcher.receive()
            if reply.event.HasField("port_link"):
                return reply.event.port_link.port, reply.event.port_link.up

    with Connection(pop.gateway.dataplane_socket) as watcher:
        watcher.send(watch=api.Watch())
        # Requests are carried out in order: with this answer the watch has begun.
        watcher.ask(cancel=api.Cancel())
        try:
            pop.outside.run("ip", "link", "set", "uplink", "down")
            assert link(watcher) == ("core", False)
        finally:
            pop.outside.run("ip", "link", "set", "uplink", "up")
        assert link(watcher) == ("core", True)
    # The wire's socket reports once that its end was down.
    with contextlib.suppress(OSError):
        pop.core.drain()
    assert pop.passes(IPOE)


def test_a_watcher_that_does_not_read_hears_how_much_it_lost(pop):
    size, sent = 1400, 0
    # Of a thousand subscribers: the limit of one is low.
    padis = []
    for number in range(1000):
        frame = bytes(
            Ether(src=f"02:00:00:0f:{number >> 8:02x}:{number & 255:02x}", dst="ff:ff:ff:ff:ff:ff", type=0x8100)
        )
        frame += bytes.fromhex(f"00648100{number + 10:04x}" + "8863" + "11090000" + "0004" + "01010000") + bytes(size)
        padis.append(frame)
    turns = itertools.cycle(padis)
    with pop.having(discovery(**QINQ)), without_agent(pop), Connection(pop.gateway.dataplane_socket) as watcher:
        watcher.send(watch=api.Watch(punts=["pppoe-discovery"]))
        before = pop.gateway.drops().get("punt-watcher-slow", 0)
        while pop.gateway.drops().get("punt-watcher-slow", 0) == before:
            for _ in padis:
                pop.access.send(next(turns))
            sent += len(padis)
            assert sent < 200000
        # Others are served meanwhile.
        assert pop.passes(IPOE)
        events = []
        while not any(event.lost for event in events):
            pop.access.send(next(turns))
            events.append(watcher.receive().event)
        assert sum(event.HasField("packet_in") for event in events) > 0
        assert events[-1].lost > 0
        assert next_punt(watcher).frame[: len(frame)] in padis


def test_punts_are_limited_by_reason(pop):
    """More than a second's come at once: they wait in a port's ring while the data plane stands still."""
    pop.inside.link("flood0", pop.outside, "flood1")
    pop.inside.silent("flood0")
    pop.outside.silent("flood1")
    flood = thing("Port", "flood", device="net_af_packet5,iface=flood0,framecnt=16384", mac="02:00:00:00:aa:05")
    frame = bytes(Ether(src=IPOE.mac, dst="ff:ff:ff:ff:ff:ff", type=0x8863))
    frame += bytes.fromhex("11090000" + "0004" + "01010000") + bytes(38)
    with pop.having(flood, discovery("flood")), Connection(pop.gateway.dataplane_socket) as watcher:
        watcher.send(watch=api.Watch(punts=["pppoe-discovery"]))
        # Requests are carried out in order: with this answer the watch has begun.
        watcher.ask(cancel=api.Cancel())
        wire = Wire(pop.outside, "flood1")
        with pop.dropping("punt-rate-limited"):
            pop.gateway.dataplane.child.send_signal(signal.SIGSTOP)
            try:
                for _ in range(12000):
                    wire.send(frame)
            finally:
                pop.gateway.dataplane.child.send_signal(signal.SIGCONT)
        wire.close()
    pop.inside.ip("link", "delete", "flood0")


def test_a_punt_without_a_watcher_is_a_named_drop(pop):
    frame = bytes(Ether(src=IPOE.mac, dst="ff:ff:ff:ff:ff:ff", type=0x8100))
    with pop.having(discovery(**QINQ)), without_agent(pop), pop.dropping("punt-not-watched"):
        pop.access.send(frame + bytes.fromhex("006481000001" + "8863" + "11090000" + "0004" + "01010000"))


def test_pppoe_discovery_of_a_circuit_without_a_punt_is_an_unknown_circuit(pop):
    frame = bytes(Ether(src=IPOE.mac, dst="ff:ff:ff:ff:ff:ff", type=0x8100))
    with pop.having(discovery(outerVlans=["101-4094"], innerVlans=["1-4094"])), pop.dropping("unknown-circuit"):
        pop.access.send(frame + bytes.fromhex("006481000001" + "8863" + "11090000" + "0004" + "01010000"))


def test_a_punt_that_overlaps_another_is_refused_and_both_are_named(pop):
    with pop.having(discovery(outerVlans=["100-200"])):
        other = discovery(outerVlans=["50-150"])
        other["metadata"]["name"] = "other"
        said = pop.gateway.apply(other, wait=False, check=False)
        assert said.returncode != 0
        assert all(word in said.stdout + said.stderr for word in ("Punt other", "Punt pppoe-access", "VLAN 100"))
        pop.gateway.delete("Punt", "other")


def test_the_agents_packets_leave_by_port_interface_and_session(api_client, pop):
    frame = bytes(Ether(src="02:00:00:00:aa:02", dst="ff:ff:ff:ff:ff:ff") / ARP(pdst="192.0.2.55"))
    api_client.ask(packet_out=api.PacketOut(port="core", packet=frame))
    pop.core.expect(lambda raw: raw[: len(frame)] == frame)
    api_client.ask(packet_out=api.PacketOut(interface="core", packet=frame))
    pop.core.expect(lambda raw: raw[: len(frame)] == frame)
    packet = bytes(udp_up(IPOE))
    api_client.ask(packet_out=api.PacketOut(session="pppoe", packet=packet))
    assert bytes(pop.at_line(PPPOE, lambda got: UDP in got)) == packet


def test_a_packet_out_is_routed_by_a_vrf(api_client, pop):
    for source, destination, layer in ((CORE4, HOST4, IP), (CORE6, HOST6, IPv6)):
        packet = bytes(layer(src=source, dst=destination) / UDP(sport=67, dport=67) / b"routed")
        api_client.ask(packet_out=api.PacketOut(vrf="default", packet=packet))
        seen = pop.at_core(lambda each: b"routed" in bytes(each))
        assert seen[layer].dst == destination
    # Down to a subscriber, too, and no longer than its own header's length.
    packet = bytes(IP(src=GATEWAY4, dst=IPOE.ip4) / UDP(sport=67, dport=68) / b"routed")
    api_client.ask(packet_out=api.PacketOut(vrf="", packet=packet))
    assert b"routed" in bytes(pop.at_line(IPOE, lambda each: b"routed" in bytes(each)))
    options = bytes(IP(src=CORE4, dst=HOST4, options=b"\1\1\1\1") / UDP())
    for wrong in (b"", packet[:19], packet[:-1], packet + b"x", b"\x60" + bytes(38), options, bytes(64)):
        reply = api_client.ask(packet_out=api.PacketOut(vrf="default", packet=wrong))
        assert reply.result.code == errno.EINVAL, wrong
    assert api_client.ask(packet_out=api.PacketOut(vrf="nowhere", packet=packet)).result.code == errno.ENOENT


def test_a_packet_out_of_something_that_is_not_there_is_refused(api_client):
    reply = api_client.ask(packet_out=api.PacketOut(port="nowhere", packet=bytes(64)))
    assert reply.result.code == 2
    assert "nowhere" in reply.result.message


@pytest.mark.parametrize("filter", ["port port port", "ether proto"])
def test_a_filter_that_is_none_is_refused_with_a_reason(api_client, filter):
    reply = api_client.ask(trace=api.Trace(filter=filter))
    assert reply.result.code == 22
    assert reply.result.message


NOT_REQUESTS = {
    "a length of 4 GiB": struct.pack("!I", 0xFFFFFFFF) + b"x" * 100,
    "random bytes": struct.pack("!I", 200) + random.Random(1).randbytes(200),
    "an empty frame": struct.pack("!I", 0),
    "a request without an operation": struct.pack("!I", 2) + b"\x08\x07",
    "text": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("data", NOT_REQUESTS.values(), ids=NOT_REQUESTS.keys())
def test_an_invalid_request_gets_an_error_and_affects_no_other(pop, data):
    with Connection(pop.gateway.dataplane_socket) as connection:
        connection.send_raw(data)
        with contextlib.suppress(EOFError, ConnectionError):
            assert connection.receive().result.code != 0
        assert pop.passes(IPOE)


def test_half_sent_requests_do_not_disturb_forwarding(pop):
    load = pop.load([IPOE, PPPOE], 300)
    try:
        assert load.warm_up() == []
        half = [Connection(pop.gateway.dataplane_socket) for _ in range(20)]
        for number, connection in enumerate(half):
            connection.send_raw((struct.pack("!I", 1000) + b"\x0a" * 500)[: 2 + number * 20])
        with Connection(pop.gateway.dataplane_socket) as well:
            assert well.ask(list=api.List(kind="Session")).objects.objects
        for connection in half:
            connection.close()
        load.pause()
        assert load.lost(UP) == load.lost(DOWN) == 0
    finally:
        load.close()


def test_a_request_that_stops_in_the_middle_ends_its_connection_and_one_that_goes_on_does_not(pop):
    """Also one that sends a byte now and then. A long request that arrives steadily is served."""
    whole = api.Request(id=7, list=api.List(kind="Session")).SerializeToString()
    frame = struct.pack("!I", len(whole)) + whole
    with contextlib.ExitStack() as stack:
        half, slow, idle, well = (stack.enter_context(Connection(pop.gateway.dataplane_socket)) for _ in range(4))
        half.send_raw(struct.pack("!I", 1 << 20) + bytes(1000))
        slow.send_raw(struct.pack("!I", 1 << 20))
        well.send_raw(frame[:3])
        slow.socket.settimeout(0.2)
        while True:
            try:
                slow.send_raw(b"x")
                if not slow.socket.recv(1):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
            # A complete request restarts the timeout.
            well.send_raw(frame[3:] + frame[:3])
            assert well.receive().objects.objects
        half.socket.settimeout(30)
        with contextlib.suppress(ConnectionError):
            assert half.socket.recv(1) == b""
        assert idle.ask(list=api.List(kind="Session")).objects.objects


def test_of_a_client_with_as_many_calls_as_there_may_be_one_is_cancelled_and_another_begun(pop):
    with Connection(pop.gateway.dataplane_socket) as connection:
        calls = [connection.send(watch=api.Watch(punts=["dhcp4"])) for _ in range(256)]

        def answer(number):
            while (reply := connection.receive()).id != number or not reply.last:
                pass
            return reply

        assert answer(connection.send(watch=api.Watch(punts=["dhcp4"]))).result.code == errno.ENOSPC
        assert answer(connection.send(cancel=api.Cancel(id=calls[17]))).result.code == 0
        again = connection.send(watch=api.Watch(punts=["dhcp4"]))
        assert answer(connection.send(cancel=api.Cancel(id=again))).result.code == 0


class TestTls:
    @pytest.fixture(scope="class")
    def keys(self, lab):
        where = lab.directory / "tls"
        where.mkdir()

        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=where)

        for ca in ("ca", "other"):
            openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-keyout", f"{ca}.key", "-out", f"{ca}.crt", "-subj", f"/CN={ca}")  # fmt: skip
        (where / "san").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        for name, ca in (("server", "ca"), ("client", "ca"), ("meter", "ca"), ("stranger", "other")):
            openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")  # fmt: skip
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial",
                    "-days", "2", "-extfile", "san", "-out", f"{name}.crt")  # fmt: skip
        return where

    @pytest.fixture(scope="class")
    def server(self, lab, keys):
        namespace = lab.namespace("tls")
        options = ["--socket", keys / "dp.sock", "--listen", "127.0.0.1:7700", "--cert", keys / "server.crt"]
        options += ["--key", keys / "server.key", "--ca", keys / "ca.crt", "--no-huge", "--buffers", "4096"]
        options += ["--client-names", "agent-*,CLIENT"]
        lab.process(namespace, DATAPLANE, *options, "--prefix", f"{lab.prefix}-tls", log="tls.log")
        wait_until(lambda: "7700" in namespace.run("ss", "-Hltn").stdout)
        return namespace

    def connect(self, server, keys, name):
        context = ssl.create_default_context(cafile=keys / "ca.crt")
        if name:
            context.load_cert_chain(keys / f"{name}.crt", keys / f"{name}.key")
        context.check_hostname = False
        return server.inside(Connection, address=("127.0.0.1", 7700), context=context)

    def test_a_client_with_a_certificate_of_the_ca_is_served(self, server, keys):
        with self.connect(server, keys, "client") as connection:
            assert connection.greeting.version == VERSION
            assert connection.put(thing("Vrf", "red"))[0].code == 0
            connection.ask(delete=api.Delete(names=[api.ObjectName(kind="Vrf", name="red")]))

    def test_an_agent_programs_a_data_plane_over_tcp(self, lab, server, keys):
        listen = f"unix://{keys}/agent.sock"
        options = ["--dataplane", "tcp://127.0.0.1:7700", "--listen", listen, "--store", keys / "intent.db"]
        options += ["--cert", keys / "client.crt", "--key", keys / "client.key", "--ca", keys / "ca.crt"]
        lab.process(server, SLUICE, "agent", *options, log="tls-agent.log")
        wait_until((keys / "agent.sock").exists)
        text = json.dumps(thing("Vrf", "far"))
        done = run(SLUICE, "--agent", listen, "apply", "-f", "-", "--wait", "30s", input=text)
        assert "Vrf/far created" in done.stdout
        with self.connect(server, keys, "client") as connection:
            found = connection.ask(list=api.List(kind="Vrf")).objects.objects
            assert "far" in {each.name for each in found}

    @pytest.mark.parametrize("name", ["stranger", "meter", None])
    def test_any_other_client_is_not(self, server, keys, name):
        with pytest.raises((ssl.SSLError, EOFError, ConnectionError)):
            self.connect(server, keys, name)

    def test_a_client_of_another_name_is_refused_and_both_sides_log_the_reason(self, lab, server, keys):
        with pytest.raises((ssl.SSLError, EOFError, ConnectionError)):
            self.connect(server, keys, "meter")
        why = "no name of its certificate (meter, localhost) is one of --client-names agent-*,CLIENT"
        wait_until(lambda: why in (lab.directory / "tls.log").read_text())
        listen = f"unix://{keys}/refused.sock"
        options = ["--dataplane", "tcp://127.0.0.1:7700", "--listen", listen, "--store", keys / "refused.db"]
        options += ["--cert", keys / "meter.crt", "--key", keys / "meter.key", "--ca", keys / "ca.crt"]
        lab.process(server, SLUICE, "agent", *options, log="refused.log")
        why = "the data plane refuses the agent's certificate"
        wait_until(lambda: why in (lab.directory / "refused.log").read_text())

    def test_silent_connections_do_not_keep_others_out(self, server, keys):
        def silent():
            return [socket.create_connection(("127.0.0.1", 7700)) for _ in range(400)]

        held = server.inside(silent)
        try:
            with self.connect(server, keys, "client") as connection:
                assert connection.greeting.version == VERSION
        finally:
            for each in held:
                each.close()
