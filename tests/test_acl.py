# SPDX-License-Identifier: Apache-2.0
"""Access control lists: each field, each place where one can be, and replacing one under traffic."""

import errno
import functools
import ipaddress
import json
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from contract import Connection, api, packed, question
from lab import Wire, thing
from lab.load import DOWN, UP
from pop import CORE4, CORE6, HOST4, HOST_MAC, IPOE, PPPOE, SERVER4, SERVER6, Pop, session, udp_down, udp_up
from scapy.all import ARP, ICMP, IP, TCP, UDP, Ether, ICMPv6EchoRequest, IPv6, Raw


@pytest.fixture(scope="module")
def pop(lab):
    deny = thing("Acl", "test", otherwise="permit", rules=[{"action": "deny", "protocol": "200"}])
    made = Pop(lab, deny, session(IPOE, policy={"aclUp": "test", "aclDown": "test"}), session(PPPOE))
    made.learn(IPOE, PPPOE)
    return made


def set_rules(pop, rules, otherwise="permit"):
    pop.apply(thing("Acl", "test", otherwise=otherwise, rules=rules))


def up(version, layer, **ip):
    header = IP(src=IPOE.ip4, dst=SERVER4) if version == 4 else IPv6(src=IPOE.ip6, dst=SERVER6)
    for name, value in ip.items():
        setattr(header, name, value)
    return header / layer


# Rule, a packet that matches, one that does not.
FIELDS = {
    "source": ({"source": "100.64.0.11/32"}, up(4, UDP()), up(6, UDP())),
    "source 6": ({"source": "2001:db8:1:1::/64"}, up(6, UDP()), up(4, UDP())),
    "destination": ({"destination": "198.51.100.0/24"}, up(4, UDP()), up(4, UDP(), dst="198.51.101.1")),
    "destination 6": ({"destination": "2001:db8:0:9::1/128"}, up(6, UDP()), up(6, UDP(), dst="2001:db8:0:9::2")),
    "protocol": ({"protocol": "udp"}, up(4, UDP()), up(4, TCP())),
    "protocol 6": ({"protocol": "udp"}, up(6, UDP()), up(6, TCP())),
    "protocol number": ({"protocol": "132"}, up(4, Raw(b"x" * 16), proto=132), up(4, UDP())),
    "source ports": ({"protocol": "udp", "sourcePorts": "1000-2000"}, up(4, UDP(sport=2000)), up(4, UDP(sport=2001))),
    "destination ports": ({"protocol": "tcp", "destinationPorts": "25"}, up(4, TCP(dport=25)), up(4, TCP(dport=26))),
    "ports 6": ({"protocol": "tcp", "destinationPorts": "25"}, up(6, TCP(dport=25)), up(6, TCP(dport=24))),
    "dscp": ({"dscp": "ef"}, up(4, UDP(), tos=46 << 2), up(4, UDP())),
    "dscp 6": ({"dscp": "46"}, up(6, UDP(), tc=46 << 2), up(6, UDP(), tc=45 << 2)),
    "flags": ({"protocol": "tcp", "tcpFlags": "syn,!ack"}, up(4, TCP(flags="S")), up(4, TCP(flags="SA"))),
    "flags 6": ({"protocol": "tcp", "tcpFlags": "rst"}, up(6, TCP(flags="RA")), up(6, TCP(flags="A"))),
    "icmp type": ({"protocol": "icmp", "icmpType": "8"}, up(4, ICMP(type=8)), up(4, ICMP(type=13))),
    "icmp code": ({"protocol": "icmp", "icmpType": "8/1"}, up(4, ICMP(type=8, code=1)), up(4, ICMP(type=8))),
    "icmp6 type": ({"protocol": "icmp6", "icmpType": "128"}, up(6, ICMPv6EchoRequest()), up(6, UDP())),
    "everything": ({}, up(4, UDP()), None),
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_rule_denies_packets_that_match_this_field_and_no_others(pop, name):
    rule, matching, other = FIELDS[name]
    set_rules(pop, [{"action": "deny"} | rule])
    with pop.dropping("acl-denied"):
        pop.send_up(IPOE, matching)
        pop.not_at_core(lambda packet: IP in packet or IPv6 in packet)
    if other is not None:
        pop.send_up(IPOE, other)
        got = pop.at_core(lambda packet: type(packet) is type(other))
        assert (got.src, got.dst, got.payload) == (other.src, other.dst, type(got)(bytes(other)).payload)


def test_the_first_rule_that_matches_decides(pop):
    set_rules(
        pop,
        [{"action": "permit", "destination": "198.51.100.1/32"}, {"action": "deny", "destination": "198.51.100.0/24"}],
    )
    pop.send_up(IPOE, udp_up(IPOE))
    assert pop.at_core(lambda packet: UDP in packet)[IP].dst == "198.51.100.1"
    with pop.dropping("acl-denied"):
        pop.send_up(IPOE, udp_up(IPOE, dst="198.51.100.2"))


def test_without_a_match_the_lists_default_applies(pop):
    set_rules(pop, [{"action": "permit", "protocol": "udp"}], otherwise="deny")
    pop.send_up(IPOE, udp_up(IPOE))
    assert bytes(pop.at_core(lambda packet: UDP in packet)[Raw]) == b"payload"
    with pop.dropping("acl-denied"):
        pop.send_up(IPOE, up(4, TCP()))
        pop.not_at_core(lambda packet: TCP in packet)


def test_the_way_down_is_filtered_too(pop):
    set_rules(pop, [{"action": "deny", "source": "198.51.100.0/24"}])
    with pop.dropping("acl-denied"):
        pop.send_down(udp_down(IPOE))
    pop.send_down(udp_down(IPOE, src="203.0.113.1"))
    assert pop.at_line(IPOE, lambda packet: UDP in packet)[IP].src == "203.0.113.1"


def test_an_interface_filters_each_direction(pop):
    addresses = [f"{CORE4}/24", f"{CORE6}/64"]
    filters = [
        thing("Acl", "in", otherwise="permit", rules=[{"action": "deny", "source": "198.51.100.66/32"}]),
        thing("Acl", "out", otherwise="permit", rules=[{"action": "deny", "destination": "198.51.100.77/32"}]),
    ]
    pop.apply(*filters, thing("Interface", "core", port="core", addresses=addresses, aclIn="in", aclOut="out"))
    try:
        with pop.dropping("acl-denied", 2):
            pop.send_down(udp_down(PPPOE, src="198.51.100.66"))
            pop.send_up(PPPOE, udp_up(PPPOE, dst="198.51.100.77"))
        assert pop.passes(PPPOE)
        assert pop.passes(PPPOE, 6)
    finally:
        pop.apply(thing("Interface", "core", port="core", addresses=addresses))
        pop.gateway.delete("acl", "in", "out")


def test_a_fragment_without_ports_does_not_match_a_rule_about_ports(pop):
    set_rules(pop, [{"action": "deny", "protocol": "udp", "destinationPorts": "7"}])
    pop.send_up(IPOE, IP(src=IPOE.ip4, dst=SERVER4, proto=17, frag=100) / Raw(b"\0\1\0\7" * 8))
    assert pop.at_core(lambda packet: IP in packet and packet[IP].frag == 100)


def test_a_list_is_replaced_under_traffic_without_a_gap(pop):
    """Packets that both lists permit always pass; packets that both deny never do."""
    pop.apply(session(PPPOE, policy={"aclUp": "test", "aclDown": "test"}))
    denied = {"action": "deny", "protocol": "udp", "destinationPorts": "9999"}
    set_rules(pop, [denied])
    load = pop.load([PPPOE], 500)
    try:
        load.start()
        for count in (1, 3000, 20, 150, 2):
            blocks = [{"action": "deny", "source": f"203.0.{i // 256}.{i % 256}/32"} for i in range(count)]
            set_rules(pop, [*blocks, denied])
        assert load.has_sent(100)
        load.pause()
        assert load.lost(UP) == 0
        assert load.lost(DOWN) == 0
    finally:
        load.close()
        pop.apply(session(PPPOE))


MOST_RULES = 60000


def tangled(count, seed=1):
    """Prefixes within prefixes and port ranges across each other, of documentation addresses, which no line has.

    Another seed gives the rules in another order: to make new ones takes longer than most tests.
    """
    first = seed * 1009 % MOST_RULES
    return [*tangled_rules(), *tangled_rules()][first : first + count]


@functools.cache
def tangled_rules():
    chance = random.Random(1)

    def prefix(base):
        length = chance.randint(16, 32)
        address = int(ipaddress.ip_address(base)) + chance.randrange(1 << 16)
        return str(ipaddress.ip_network((address >> (32 - length) << (32 - length), length)))

    def ports():
        low, high = sorted((chance.randrange(1 << 16), chance.randrange(1 << 16)))
        return f"{low}-{high}"

    return [
        {"action": chance.choice(["PERMIT", "DENY"]), "protocol": chance.choice(["tcp", "udp"])}
        | {"source": prefix("203.0.0.0"), "destination": prefix("203.1.0.0")}
        | {"sourcePorts": ports(), "destinationPorts": ports()}
        for _ in range(MOST_RULES)
    ]


DENIED = {"action": "DENY", "protocol": "udp", "destinationPorts": "9999"}


def large(name="test", count=MOST_RULES, seed=1):
    return thing("Acl", name, otherwise="PERMIT", rules=[*tangled(count, seed), DENIED])


@pytest.fixture
def api_client(pop):
    """Changes the data plane without the agent, which would repair it."""
    with pop.gateway.without_agent(), Connection(pop.gateway.dataplane_socket) as connection:
        yield connection


def stored(connection, name):
    """The rules of a list as the data plane has it now, or None."""
    page = ""
    while True:
        objects = connection.ask(list=api.List(kind="Acl", limit=1, page=page)).objects
        for each in objects.objects:
            if each.name == name:
                return api.Acl.FromString(each.spec).rules
        page = objects.next_page
        if not page:
            return None


def small(connection):
    """The list of the sessions, as short as it can be."""
    assert connection.put(thing("Acl", "test", otherwise="PERMIT", rules=[DENIED]))[0].code == 0


def delete(connection, kind, *names):
    reply = connection.ask(delete=api.Delete(names=[api.ObjectName(kind=kind, name=name) for name in names]))
    assert {each.code for each in reply.results.results} == {0}


def vrfs(connection):
    return {each.name for each in connection.ask(list=api.List(kind="Vrf")).objects.objects}


def test_twenty_thousand_rules_that_overlap_are_one_list(pop):
    pop.apply(large(count=20000))
    assert pop.passes(IPOE)
    with pop.dropping("acl-denied"):
        pop.send_up(IPOE, up(4, UDP(dport=9999)))
    # Else the agent applies all of it again after each test that does without the agent.
    set_rules(pop, [DENIED])


def test_objects_that_do_not_need_a_large_list_are_ready_before_it(pop):
    """Applied together: a route, another list, and the users of that list."""
    lists = [thing("Acl", "slow", otherwise="PERMIT", rules=[*tangled(20000, 11), DENIED]), thing("Acl", "quick")]
    sessions = [session(IPOE, policy={"aclUp": "slow"}), session(PPPOE, policy={"aclUp": "quick"})]
    hole = thing("Route", "beside", prefix="203.0.113.0/24", action="blackhole")
    watched = pop.gateway.command("get", "acl,session,route", "-w", "-o", "json")
    watch = subprocess.Popen(watched, stdout=subprocess.PIPE, text=True)
    order = []
    try:
        for _ in range(5):
            assert json.loads(watch.stdout.readline())["change"] == "exists"
        pop.apply(*lists, *sessions, hole)
        while "ipoe" not in order:
            told = json.loads(watch.stdout.readline())["object"]
            if told["status"]["state"] == "applied" and told["metadata"]["name"] in (
                "slow",
                "quick",
                "ipoe",
                "pppoe",
                "beside",
            ):
                order.append(told["metadata"]["name"])
    finally:
        watch.terminate()
        watch.wait()
    assert set(order[:3]) == {"quick", "pppoe", "beside"}
    assert order[3:] == ["slow", "ipoe"]
    with pop.dropping("acl-denied"):
        pop.send_up(IPOE, up(4, UDP(dport=9999)))
    pop.apply(session(IPOE, policy={"aclUp": "test", "aclDown": "test"}), session(PPPOE))
    pop.gateway.delete("route", "beside")
    pop.gateway.delete("acl", "slow", "quick")


def test_all_else_goes_on_while_a_large_list_is_made(pop, api_client):
    """Forwarding loses nothing, ARP is answered, other calls of this client and another have their answers first."""
    small(api_client)
    load = pop.load([IPOE, PPPOE], 300)
    # The other wire is read by the load.
    host = Wire(pop.outside, "uplink")
    request = api.Put(objects=[packed(large(seed=2)), packed(thing("Vrf", "behind"))])
    try:
        assert load.warm_up() == []
        with (
            Connection(pop.gateway.dataplane_socket) as builder,
            Connection(pop.gateway.dataplane_socket) as other,
        ):
            number = builder.send(put=request)
            asked = builder.send(state=question(api.DropCountersQuery()))
            assert builder.receive().id == asked
            assert len(stored(other, "test")) == 1
            assert other.put(thing("Vrf", "beside"))[0].code == 0
            # The one behind the list does not need it.
            assert vrfs(other) == {"behind", "beside"}
            host.send(bytes(Ether(src=HOST_MAC, dst="ff:ff:ff:ff:ff:ff") / ARP(psrc=HOST4, pdst=CORE4)))
            host.expect(lambda raw: raw[12:14] == b"\x08\x06" and ARP(raw[14:]).op == 2)
            assert len(stored(other, "test")) == 1
            assert [each.code for each in builder.answer(number).results.results] == [0, 0]
            assert len(stored(other, "test")) == 60001
        load.pause()
        assert load.lost(UP) == load.lost(DOWN) == 0
    finally:
        load.close()
        host.close()
        delete(api_client, "Vrf", "behind", "beside")


def test_the_old_list_holds_until_the_new_one_is_complete(pop, api_client):
    """Both lists deny one port: it is denied during the change, too."""
    small(api_client)
    pop.drain()
    number = api_client.send(put=api.Put(objects=[packed(large(seed=3))]))
    with pop.dropping("acl-denied", 50):
        for _ in range(50):
            pop.send_up(IPOE, up(4, UDP(dport=9999)))
    assert api_client.answer(number).results.results[0].code == 0
    pop.send_up(IPOE, udp_up(IPOE))
    assert pop.at_core(lambda packet: UDP in packet)[UDP].dport == 7


def test_a_list_deleted_while_it_is_made_is_gone_and_can_be_made_again(pop, api_client):
    one = large("passing", seed=4)
    numbers = [
        api_client.send(put=api.Put(objects=[packed(one)])),
        api_client.send(delete=api.Delete(names=[api.ObjectName(kind="Acl", name="passing")])),
    ]
    for number in numbers:
        assert api_client.answer(number).results.results[0].code == 0
    assert stored(api_client, "passing") is None
    assert api_client.put(one)[0].code == 0
    assert len(stored(api_client, "passing")) == 60001
    delete(api_client, "Acl", "passing")


def test_several_lists_are_made_in_order_and_the_last_of_a_name_stays(pop, api_client):
    lists = [large("queued", 20000 + number, seed=number) for number in range(4)]
    numbers = [api_client.send(put=api.Put(objects=[packed(each)])) for each in lists]
    for number in numbers:
        assert api_client.answer(number).results.results[0].code == 0
    assert len(stored(api_client, "queued")) == 20004
    delete(api_client, "Acl", "queued")


def test_requests_that_do_not_need_a_list_overtake_it(pop, api_client):
    number = api_client.send(put=api.Put(objects=[packed(large("slow", seed=7))]))
    beside = api_client.send(put=api.Put(objects=[packed(thing("Vrf", "past"))]))
    gone = api_client.send(delete=api.Delete(names=[api.ObjectName(kind="Vrf", name="past")]))
    same = api_client.send(delete=api.Delete(names=[api.ObjectName(kind="Acl", name="slow")]))
    behind = api_client.send(put=api.Put(objects=[packed(thing("Vrf", "last"))]))
    order = []
    while len(order) < 5:
        reply = api_client.receive()
        if reply.last:
            assert [each.code for each in reply.results.results] == [0]
            order.append(reply.id)
    assert order == [beside, gone, number, same, behind]
    assert stored(api_client, "slow") is None
    delete(api_client, "Vrf", "last")


def test_cancelled_lists_take_no_time(pop, api_client):
    """Each put is some megabytes; cancelled lists are not built, and the last one is."""
    small(api_client)
    number = api_client.send(put=api.Put(objects=[packed(large(seed=8))]))
    request = api.Put(objects=[packed(large("dropped", seed=9))])
    done, cancelled = False, 0
    with Connection(pop.gateway.dataplane_socket) as other:
        for _ in range(100):
            dropped = other.send(put=request)
            other.send(cancel=api.Cancel(id=dropped))
            ended = 0
            while ended < 2:
                reply = other.receive()
                ended += reply.last
                # Where the first list was ready before, there was nothing left to cancel.
                if reply.id == dropped and reply.last:
                    done = any(each.code == 0 for each in reply.results.results)
                    cancelled += not done
            if done:
                break
        assert other.put(thing("Acl", "kept", rules=[DENIED]))[0].code == 0
    assert api_client.answer(number).results.results[0].code == 0
    assert cancelled > 0
    assert (stored(api_client, "dropped") is not None) == done
    if done:
        delete(api_client, "Acl", "dropped")
    assert len(stored(api_client, "kept")) == 1
    delete(api_client, "Acl", "kept")


def test_clients_that_send_more_than_there_is_room_for_are_all_answered(pop, api_client):
    """Each in turn, or refused with "try again"; no client is disconnected, and queued requests are carried out."""
    small(api_client)
    number = api_client.send(put=api.Put(objects=[packed(large(seed=10))]))
    request = api.Put(objects=[api.Object(kind="Acl", name="noise", spec=b"\xff" * (8 << 20))])

    def one(_):
        with Connection(pop.gateway.dataplane_socket) as client:
            replies = [client.answer(client.send(put=request)) for _ in range(2)]
        return [each.result.code or each.results.results[0].code for each in replies]

    with ThreadPoolExecutor(24) as clients:
        for codes in clients.map(one, range(24)):
            assert set(codes) <= {errno.EINVAL, errno.EAGAIN}
    assert api_client.answer(number).results.results[0].code == 0
    assert len(stored(api_client, "test")) == 60001


def test_an_object_that_refers_to_a_list_sent_before_it_finds_it(pop, api_client):
    line = session(PPPOE, policy={"aclUp": "late"})
    number = api_client.send(put=api.Put(objects=[packed(large("late", seed=5))]))
    then = api_client.send(put=api.Put(objects=[packed(line)]))
    for each in (number, then):
        assert api_client.answer(each).results.results[0].code == 0
    with pop.dropping("acl-denied"):
        pop.send_up(PPPOE, up(4, UDP(dport=9999), src=PPPOE.ip4))
    assert api_client.put(session(PPPOE))[0].code == 0
    delete(api_client, "Acl", "late")


def test_a_client_that_leaves_while_its_list_is_made_leaves_the_old_one(pop, api_client):
    small(api_client)
    with Connection(pop.gateway.dataplane_socket) as leaving:
        leaving.send(put=api.Put(objects=[packed(large(seed=6)), packed(large("never", 1000))]))
        leaving.answer(leaving.send(state=question(api.DropCountersQuery())))
    # Built after the cancelled one.
    assert api_client.put(thing("Acl", "after", rules=[DENIED]))[0].code == 0
    assert len(stored(api_client, "test")) == 1
    assert stored(api_client, "never") is None
    delete(api_client, "Acl", "after")


def test_rules_that_nothing_tells_apart_are_refused_by_name_and_the_old_list_stays(pop, api_client):
    small(api_client)
    alike = [{"action": "DENY", "protocol": "tcp", "tcpFlags": "syn", "dscp": str(i % 64)} for i in range(3000)]
    result = api_client.put(thing("Acl", "test", otherwise="PERMIT", rules=alike))[0]
    assert result.code == errno.E2BIG
    assert "acl test, rules: the 3000 rules overlap in too many ways" in result.message
    assert len(stored(api_client, "test")) == 1
    assert pop.passes(IPOE)
    assert api_client.put(thing("Acl", "test", otherwise="PERMIT", rules=[*alike[:2000], DENIED]))[0].code == 0
    assert pop.passes(IPOE)
