"""Access control lists: each field, each place where one can be, and replacing one under traffic."""

import pytest
from lab import thing
from lab.load import DOWN, UP
from pop import CORE4, CORE6, IPOE, PPPOE, SERVER4, SERVER6, Pop, session, udp_down, udp_up
from scapy.all import ICMP, IP, TCP, UDP, ICMPv6EchoRequest, IPv6, Raw


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
def test_a_rule_denies_what_matches_this_field_and_nothing_else(pop, name):
    rule, matching, other = FIELDS[name]
    set_rules(pop, [{"action": "deny"} | rule])
    with pop.dropping("acl-denied"):
        pop.send_up(IPOE, matching)
        pop.not_at_core(lambda packet: IP in packet or IPv6 in packet)
    if other is not None:
        pop.send_up(IPOE, other)
        pop.at_core(lambda packet: type(packet) is type(other))


def test_the_first_rule_that_matches_decides(pop):
    set_rules(
        pop,
        [{"action": "permit", "destination": "198.51.100.1/32"}, {"action": "deny", "destination": "198.51.100.0/24"}],
    )
    pop.send_up(IPOE, udp_up(IPOE))
    pop.at_core(lambda packet: UDP in packet)
    with pop.dropping("acl-denied"):
        pop.send_up(IPOE, udp_up(IPOE, dst="198.51.100.2"))


def test_without_a_match_the_list_says_what_happens(pop):
    set_rules(pop, [{"action": "permit", "protocol": "udp"}], otherwise="deny")
    pop.send_up(IPOE, udp_up(IPOE))
    pop.at_core(lambda packet: UDP in packet)
    with pop.dropping("acl-denied"):
        pop.send_up(IPOE, up(4, TCP()))


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
    """What both lists permit passes all the time; what both deny never does."""
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
