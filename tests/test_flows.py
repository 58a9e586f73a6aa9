# SPDX-License-Identifier: Apache-2.0
"""Flow profiles: packet filters to QFI (TS 24.501 section 6.2.5), DSCP outside, and 802.1p towards subscribers."""

import pytest
from lab import Line, thing
from lab.upf import GPDU, Message, downlink_container
from lab.upf import PORT as GTPU_PORT
from pop import CORE4, HOST4, SERVER4, Pop, session, tunnel, udp_down, udp_up
from scapy.all import ESP, IP, TCP, UDP, Raw

IPOE = Line("ipoe", "02:00:00:00:03:01", "100.64.3.1", "2001:db8:3:1::1", (400, 1), teid_up=4001, teid_down=3001)
PPPOE = Line(
    "pppoe", "02:00:00:00:03:02", "100.64.3.2", "2001:db8:3:2::1", (400, 2), pppoe=9, teid_up=4002, teid_down=3002
)
LINES = [IPOE, PPPOE]
VOICE, GAMES, SECURE, LABELLED, STREAM, EVERYTHING = 1, 2, 3, 4, 6, 9

PROFILE = thing(
    "FlowProfile",
    "home",
    rules=[
        {
            "precedence": 10,
            "qfi": VOICE,
            "filters": [{"protocol": "udp", "remote": "198.51.100.0/24", "remotePorts": 5060}],
        },
        {"precedence": 20, "qfi": GAMES, "filters": [{"protocol": "tcp", "localPorts": "2000-3000"}, {"dscp": "cs4"}]},
        {"precedence": 30, "qfi": SECURE, "filters": [{"spi": 0x01020304}]},
        {"precedence": 40, "qfi": LABELLED, "filters": [{"flowLabel": 0xABCDE}]},
        {
            "precedence": 50,
            "qfi": STREAM,
            "filters": [
                {
                    "direction": "downlink",
                    "protocol": "udp",
                    "remote": f"{SERVER4}/32",
                    "local": f"{line.ip4}/32",
                    "remotePorts": 7,
                    "localPorts": 1024,
                }
                for line in LINES
            ],
        },
    ],
    flows=[
        {"qfi": VOICE, "dscp": "ef", "class": 1, "priority": 6},
        {"qfi": GAMES, "class": 2, "priority": 4},
        {"qfi": STREAM, "priority": 3},
        {"qfi": EVERYTHING, "dscp": "af11"},
    ],
)


def subscriber(line):
    gtpu = tunnel(line, pduSessionContainer=True, qfi=EVERYTHING)
    return session(line, gtpu=gtpu, policy={"flowProfile": "home"})


@pytest.fixture(scope="module")
def pop(lab):
    return Pop(lab, PROFILE, *(subscriber(line) for line in LINES))


def sent_up(pop, line, packet):
    """QFI and outer DSCP of a line's packet at the core."""
    pop.send_up(line, bytes(packet))
    outer = pop.gpdu_at_core()
    message = Message.parse(bytes(outer[UDP].payload))
    assert (message.teid, message.payload) == (line.teid_up, bytes(packet))
    return message.container[1], outer[IP].tos >> 2


UPLINK = {
    "a protocol, a network and a port": (VOICE, 46, lambda ip, _: ip / UDP(sport=9, dport=5060)),
    "another port": (EVERYTHING, 10, lambda ip, _: ip / UDP(sport=9, dport=5061)),
    "a range of local ports": (GAMES, 0, lambda ip, _: ip / TCP(sport=2500, dport=80)),
    "a port beyond the range": (EVERYTHING, 10, lambda ip, _: ip / TCP(sport=3001, dport=80)),
    "a code point, copied outside": (GAMES, 32, lambda _, line: udp_up(line, tos=32 << 2)),
    "a security parameter index": (SECURE, 0, lambda ip, _: ip / ESP(spi=0x01020304, seq=1, data=b"sluice")),
    "another security parameter index": (EVERYTHING, 10, lambda ip, _: ip / ESP(spi=0x01020305, seq=1, data=b"sluice")),
    "a flow label": (LABELLED, 0, lambda _, line: udp_up(line, 6, fl=0xABCDE)),
    "another flow label": (EVERYTHING, 10, lambda _, line: udp_up(line, 6, fl=0xABCDF)),
    "a downlink filter, the other way": (EVERYTHING, 10, lambda _, line: udp_up(line)),
}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
@pytest.mark.parametrize(("qfi", "dscp", "packet"), UPLINK.values(), ids=UPLINK.keys())
def test_an_uplink_packet_has_the_qfi_of_the_first_rule_and_its_dscp_outside(pop, line, qfi, dscp, packet):
    assert sent_up(pop, line, packet(IP(src=line.ip4, dst=SERVER4), line)) == (qfi, dscp)


def sent_down(pop, line, packet, qfi=None):
    """The priorities of the tags that a packet from the UPF has at its line."""
    extensions = [] if qfi is None else [downlink_container(qfi)]
    message = Message(GPDU, line.teid_down, extensions=extensions, payload=bytes(packet)).pack()
    pop.send_down(IP(src=HOST4, dst=CORE4) / UDP(sport=GTPU_PORT, dport=GTPU_PORT, chksum=0) / Raw(message))

    def match(raw):
        found = pop.from_line(line, raw)
        return raw if found is not None and bytes(found) == bytes(packet) else None

    raw = pop.access.expect(match, 20)
    return raw[14] >> 5, raw[18] >> 5


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
class TestDownlink:
    @pytest.fixture(autouse=True)
    def known(self, pop, line):
        pop.learn(line)

    def test_tags_have_the_priority_of_the_qfi_that_a_packet_comes_with(self, pop, line):
        assert sent_down(pop, line, udp_down(line, 6), VOICE) == (6, 6)
        assert sent_down(pop, line, udp_down(line, 6), GAMES) == (4, 4)
        assert sent_down(pop, line, udp_down(line, 6), EVERYTHING) == (0, 0)
        assert sent_down(pop, line, udp_down(line, 6)) == (0, 0)

    def test_the_exact_flow_goes_before_the_qfi(self, pop, line):
        assert sent_down(pop, line, udp_down(line), VOICE) == (3, 3)
        assert sent_down(pop, line, udp_down(line)) == (3, 3)

    def test_a_filter_for_both_directions_has_the_subscribers_ports_the_other_way(self, pop, line):
        packet = IP(src=SERVER4, dst=line.ip4) / TCP(sport=80, dport=2500)
        assert sent_down(pop, line, packet) == (4, 4)
        packet = IP(src=SERVER4, dst=line.ip4) / TCP(sport=2500, dport=80)
        assert sent_down(pop, line, packet) == (0, 0)


def test_fragments_without_ports_are_of_the_rules_without_ports(pop):
    packet = IP(src=IPOE.ip4, dst=SERVER4, frag=100, proto=17) / Raw(b"\x00\x09\x13\xc4" + bytes(28))
    assert sent_up(pop, IPOE, packet) == (EVERYTHING, 10)


def test_a_profile_changes_under_traffic_and_nothing_is_lost(pop):
    with pop.losing_nothing(LINES, 400) as load:
        for qfi in (11, 12, 13):
            changed = {**PROFILE["spec"], "rules": [{"precedence": 255, "qfi": qfi}, *PROFILE["spec"]["rules"]]}
            pop.apply(thing("FlowProfile", "home", **changed))
            assert load.has_sent(50)
    assert sent_up(pop, IPOE, udp_up(IPOE)) == (13, 0)
    pop.apply(PROFILE)


def test_a_session_can_do_without_its_profile_and_waits_for_one_that_is_gone(pop):
    deleted = pop.gateway.sluice("delete", "flowprofile", "home", "--in-use")
    assert "waits for FlowProfile/home (policy.flowProfile)" in deleted.stdout
    pop.apply(PROFILE)
    assert sent_up(pop, IPOE, udp_up(IPOE, tos=32 << 2)) == (GAMES, 32)
    pop.apply(session(IPOE, gtpu=tunnel(IPOE, pduSessionContainer=True, qfi=5)))
    assert sent_up(pop, IPOE, udp_up(IPOE, tos=46 << 2)) == (5, 46)
    pop.apply(subscriber(IPOE))


REFUSED = {
    "a precedence of derived rules": ({"rules": [{"precedence": 80}]}, "rules[0].precedence"),
    "two rules of one precedence": ({"rules": [{"qfi": 1}, {"qfi": 2}]}, "rules[1].precedence"),
    "a QFI that there is not": ({"flows": [{"qfi": 64}]}, "flows[0].qfi"),
    "a class that there is not": ({"flows": [{"qfi": 1, "class": 8}]}, "flows[0].class"),
    "ports of no protocol": ({"rules": [{"filters": [{"localPorts": 5}]}]}, "rules[0].filters[0].localPorts"),
    "a label of IPv4": (
        {"rules": [{"filters": [{"local": "192.0.2.0/24", "flowLabel": 5}]}]},
        "rules[0].filters[0].flowLabel",
    ),
}


@pytest.mark.parametrize(("spec", "field"), REFUSED.values(), ids=REFUSED.keys())
def test_an_invalid_profile_is_refused_by_object_and_field(pop, spec, field):
    done = pop.gateway.apply(thing("FlowProfile", "wrong", **spec), check=False)
    assert done.returncode != 0
    assert "FlowProfile/wrong" in done.stdout + done.stderr
    assert field in done.stdout + done.stderr
