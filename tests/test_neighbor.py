# SPDX-License-Identifier: Apache-2.0
"""ARP (RFC 826) and neighbour discovery (RFC 4861): answering, resolving, ageing, proxying."""

import pytest
from lab import Line, frames, thing
from lab.frames import Frame
from lab.laboratory import wait_until
from pop import ACCESS_MAC, CORE4, CORE6, CORE_MAC, GATEWAY4, GATEWAY6, IPOE, Pop, session, udp_down, udp_up
from scapy.all import (
    IP,
    UDP,
    Ether,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_Redirect,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptPrefixInfo,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
)

ROUTER4, ROUTER6, ROUTER_MAC = "192.0.2.40", "2001:db8:0:2::40", "02:00:00:00:cc:40"
SILENT = Line("silent", "02:00:00:00:01:21", "100.64.0.31", "2001:db8:1:21::1", vlans=(100, 31))


@pytest.fixture(scope="module")
def pop(lab):
    return Pop(lab, session(IPOE), session(SILENT))


def arp(raw):
    frame = Frame.parse(raw)
    return frame if frame.ethertype == frames.ARP else None


def request_for(address):
    def match(raw):
        frame = arp(raw)
        return (
            frame
            if frame and frame.payload[6:8] == b"\0\1" and frame.payload[24:28] == frames.ip_bytes(address)
            else None
        )

    return match


def solicitation_for(address):
    def match(raw):
        frame = Frame.parse(raw)
        if frame.ethertype != frames.IP6 or len(frame.payload) < 64 or frame.payload[40] != 135:
            return None
        return frame if frame.payload[48:64] == frames.ip_bytes(address) else None

    return match


class TestAnswering:
    def test_a_subscriber_finds_its_gateway_by_arp(self, pop):
        pop.access.send(frames.arp_request(IPOE.raw_mac, IPOE.ip4, GATEWAY4, IPOE.tags))
        answer = pop.access.expect(lambda raw: arp(raw) if raw[:6] == IPOE.raw_mac else None)
        assert answer.tags == IPOE.tags
        assert answer.payload[6:8] == b"\0\2"
        assert answer.payload[8:14].hex(":") == ACCESS_MAC
        assert answer.payload[14:18] == frames.ip_bytes(GATEWAY4)

    def test_a_subscriber_finds_its_gateway_by_neighbour_discovery(self, pop):
        pop.access.send(frames.solicitation(IPOE.raw_mac, IPOE.ip6, GATEWAY6, IPOE.tags))
        answer = pop.at_line(IPOE, lambda packet: ICMPv6ND_NA in packet)
        assert answer[ICMPv6ND_NA].tgt == GATEWAY6
        assert answer[ICMPv6ND_NA].S == 1
        assert answer[ICMPv6NDOptDstLLAddr].lladdr == ACCESS_MAC
        assert answer[IPv6].hlim == 255

    @pytest.mark.parametrize("version", [4, 6])
    def test_a_core_host_finds_us_and_its_first_packet_need_not_wait(self, pop, version):
        mac, host = b"\2\0\0\0\xcc\x45", ("192.0.2.45" if version == 4 else "2001:db8:0:2::45")
        if version == 4:
            pop.core.send(frames.arp_request(mac, host, CORE4, ()))
            answer = pop.core.expect(lambda raw: arp(raw) if raw[:6] == mac else None)
            assert answer.payload[8:14].hex(":") == CORE_MAC
        else:
            pop.core.send(frames.solicitation(mac, host, CORE6, ()))
            assert pop.at_core(lambda packet: ICMPv6ND_NA in packet)[ICMPv6ND_NA].tgt == CORE6
        assert wait_until(lambda: host in pop.gateway.sluice("neighbors").stdout)
        pop.send_up(IPOE, udp_up(IPOE, version, dst=host))
        asks = (request_for if version == 4 else solicitation_for)(host)
        got = pop.core.expect(lambda raw: raw if asks(raw) or raw[:6] == mac and pop.from_core(raw) else None)
        assert got[:6] == mac

    def test_requests_for_a_foreign_address_are_not_answered(self, pop):
        with pop.dropping("arp-not-for-us", 1, "--consumed"):
            pop.core.send(frames.arp_request(frames.mac_bytes(ROUTER_MAC), ROUTER4, "192.0.2.77", ()))
        pop.core.expect_none(lambda raw: arp(raw) and raw[:6].hex(":") == ROUTER_MAC)
        assert "arp-not-for-us" not in pop.gateway.drops()

    def test_a_solicitation_from_farther_than_the_link_is_a_named_drop(self, pop):
        packet = IPv6(src=ROUTER6, dst=CORE6, hlim=254) / ICMPv6ND_NS(tgt=CORE6)
        with pop.dropping("nd-hop-limit"):
            pop.core.send(bytes(Ether(src=ROUTER_MAC, dst=CORE_MAC) / packet))

    def test_a_truncated_arp_message_is_a_named_drop(self, pop):
        whole = frames.arp_request(frames.mac_bytes(ROUTER_MAC), ROUTER4, CORE4, ())
        with pop.dropping("arp-truncated"):
            pop.core.send(whole[:30])


class TestResolving:
    @pytest.mark.parametrize("version", [4, 6])
    def test_packets_wait_for_the_neighbours_address_and_then_go(self, pop, version):
        target = ROUTER4 if version == 4 else ROUTER6
        for number in range(3):
            pop.send_up(IPOE, udp_up(IPOE, version, b"%d" % number, dst=target))
        match = request_for(target) if version == 4 else solicitation_for(target)
        asked = pop.core.expect(match)
        mac = frames.mac_bytes(ROUTER_MAC)
        pop.core.send(frames.arp_reply(asked, mac) if version == 4 else frames.advertisement(asked, mac))
        got = [pop.core.expect(lambda raw: raw if raw[:6] == mac and pop.from_core(raw) else None) for _ in range(3)]
        assert sorted(raw.rstrip(b"\0")[-1:] for raw in got) == [b"0", b"1", b"2"]
        assert {raw[:6].hex(":") for raw in got} == {ROUTER_MAC}

    def test_a_next_hop_is_resolved_for_a_route(self, pop):
        with pop.having(thing("Route", "via", prefix="203.0.113.0/24", nextHops=[{"address": "192.0.2.41"}])):
            pop.send_up(IPOE, udp_up(IPOE, dst="203.0.113.9"))
            asked = pop.core.expect(request_for("192.0.2.41"))
            pop.core.send(frames.arp_reply(asked, b"\2\0\0\0\xcc\x41"))
            got = pop.core.expect(lambda raw: pop.from_core(raw) if raw[:6] == b"\2\0\0\0\xcc\x41" else None)
            assert (got[IP].src, got[IP].dst, got[IP].ttl) == (IPOE.ip4, "203.0.113.9", 63)

    def test_a_neighbour_that_never_answers_is_a_named_drop_and_reported(self, pop):
        with pop.dropping("neighbor-unresolved"):
            pop.send_up(IPOE, udp_up(IPOE, dst="192.0.2.99"))
            got = pop.at_line(IPOE, lambda packet: IP in packet and packet[IP].proto == 1)
            assert (got["ICMP"].type, got["ICMP"].code) == (3, 1)

    def test_too_many_waiting_packets_are_a_named_drop(self, pop):
        with pop.dropping("neighbor-queue-full"):
            for _ in range(500):
                pop.send_up(IPOE, udp_up(IPOE, dst="192.0.2.98"))

    def test_the_states_of_neighbours_can_be_seen(self, pop):
        pop.core.send(frames.arp_request(frames.mac_bytes(ROUTER_MAC), ROUTER4, CORE4, ()))
        wait_until(lambda: ROUTER_MAC in pop.gateway.sluice("neighbors").stdout)
        table = pop.gateway.sluice("neighbors").stdout
        assert "static" in table

    def test_a_configured_neighbour_is_not_asked_for(self, pop):
        pop.send_up(IPOE, udp_up(IPOE))
        assert pop.at_core(lambda packet: UDP in packet)[IP].src == IPOE.ip4
        pop.core.expect_none(request_for("192.0.2.2"))

    def test_a_neighbours_new_address_is_used(self, pop):
        mac = b"\2\0\0\0\xcc\x42"
        pop.send_up(IPOE, udp_up(IPOE, dst="192.0.2.42"))
        asked = pop.core.expect(request_for("192.0.2.42"))
        pop.core.send(frames.arp_reply(asked, mac))
        pop.core.expect(lambda raw: raw[:6] == mac and pop.from_core(raw) is not None)
        moved = b"\2\0\0\0\xcc\x43"
        pop.core.send(frames.arp_request(moved, "192.0.2.42", CORE4, ()))
        pop.core.expect(lambda raw: raw[:6] == moved and arp(raw))

        def goes_there():
            pop.send_up(IPOE, udp_up(IPOE, dst="192.0.2.42"))
            return any(raw[:6] == moved and pop.from_core(raw) is not None for raw in pop.core.frames(0.2))

        assert wait_until(goes_there)

    @pytest.mark.parametrize("version", [4, 6])
    def test_a_neighbour_that_was_not_heard_for_a_while_is_asked_alone_and_given_up_if_it_is_silent(self, pop, version):
        alive, silent = (f"{'192.0.2.' if version == 4 else '2001:db8:0:2::'}{last}" for last in (46, 47))
        macs = {alive: b"\2\0\0\0\xcc\x46", silent: b"\2\0\0\0\xcc\x47"}
        match = request_for if version == 4 else solicitation_for
        for address, mac in macs.items():
            pop.send_up(IPOE, udp_up(IPOE, version, dst=address))
            pop.core.expect(match(address))
            # It announces its Ethernet address unasked, which does not show that it receives our packets.
            ask = frames.arp_request if version == 4 else frames.solicitation
            pop.core.send(ask(mac, address, CORE4 if version == 4 else CORE6, ()))
            pop.core.expect(lambda raw, mac=mac: raw[:6] == mac and pop.from_core(raw) is not None)
            pop.send_up(IPOE, udp_up(IPOE, version, dst=address))

        def states():
            rows = [line.split() for line in pop.gateway.sluice("neighbors").stdout.splitlines()]
            return {address: row[-1] for row in rows for address in macs if address in row}

        asked = pop.core.expect(lambda raw: raw[:6] == macs[alive] and match(alive)(raw))
        pop.core.send((frames.arp_reply if version == 4 else frames.advertisement)(asked, macs[alive]))
        assert wait_until(lambda: states() == {alive: "reachable", silent: "failed"}, 20)
        # A packet to it starts the resolution again.
        pop.core.drain()
        pop.send_up(IPOE, udp_up(IPOE, version, dst=silent))
        assert pop.core.expect(match(silent)).destination[0] & 1

    @pytest.mark.parametrize("version", [4, 6])
    def test_a_subscriber_that_never_spoke_is_asked_for(self, pop, version):
        line = Line(
            f"quiet{version}",
            f"02:00:00:00:01:3{version}",
            f"100.64.0.4{version}",
            f"2001:db8:1:4{version}::1",
            (100, 40 + version),
        )
        with pop.having(session(line)):
            pop.send_down(udp_down(line, version))
            match = request_for(line.ip4) if version == 4 else solicitation_for(line.ip6)
            asked = pop.access.expect(match)
            assert asked.tags == line.tags
            pop.access.send((frames.arp_reply if version == 4 else frames.advertisement)(asked, line.raw_mac))
            assert UDP in pop.at_line(line, lambda packet: UDP in packet)


class TestASubscriberSpeaksForItselfAlone:
    """On a VLAN that subscribers share, distinguished by their MACs."""

    @pytest.fixture(scope="class")
    def line(self, pop):
        line = Line("shared", "02:00:00:00:01:51", "100.64.0.51", "2001:db8:1:51::1", vlans=(100, 51))
        other = Line("victim", "02:00:00:00:01:52", "100.64.0.52", "2001:db8:1:52::1", vlans=(100, 51))
        with pop.having(*(session(each, {"mac": each.mac, "proxyArp": True}) for each in (line, other))):
            pop.learn(line, other)
            yield line

    def forged(self, line, raw):
        """The frame comes from the line all the same: its session is the line's."""
        return raw[:6] + line.raw_mac + raw[12:]

    @pytest.mark.parametrize("kind", ["request", "reply", "probe"])
    def test_arp_for_an_address_or_a_mac_of_another_is_a_named_drop(self, pop, line, kind):
        victim, mac = "100.64.0.52", frames.mac_bytes("02:00:00:00:01:52")

        def said(sender, address):
            if kind == "reply":
                asked = Frame(line.raw_mac, b"\2\0\0\0\xaa\1", line.tags, frames.ARP, bytes(14))
                body = bytes.fromhex("0001080006040001") + asked.source + bytes([100, 64, 0, 1]) + bytes(6)
                asked = asked._replace(payload=body + frames.ip_bytes(address))
                return self.forged(line, frames.arp_reply(asked, sender))
            source = "0.0.0.0" if kind == "probe" else address
            return self.forged(line, frames.arp_request(sender, source, GATEWAY4, line.tags))

        with pop.dropping("arp-mac"):
            pop.access.send(said(mac, line.ip4))
            pop.access.expect_none(lambda raw: arp(raw) and raw[:6] == mac)
        if kind != "probe":
            with pop.dropping("arp-sender"):
                pop.access.send(said(line.raw_mac, victim))
        # Its own announcements are accepted.
        before = pop.gateway.drops()
        pop.access.send(said(line.raw_mac, line.ip4))
        assert pop.passes(line)
        assert pop.gateway.drops().get("arp-mac") == before.get("arp-mac")

    def test_neighbour_discovery_for_an_address_or_a_mac_of_another_is_a_named_drop(self, pop, line):
        mac = "02:00:00:00:01:52"

        def advertises(target, told):
            packet = IPv6(src=line.ip6, dst="ff02::1", hlim=255) / ICMPv6ND_NA(tgt=target, R=0, S=0, O=1)
            pop.send_up(line, packet / ICMPv6NDOptDstLLAddr(lladdr=told), destination="33:33:00:00:00:01")

        with pop.dropping("nd-target"):
            advertises("2001:db8:1:52::1", line.mac)
        with pop.dropping("nd-mac"):
            advertises(line.ip6, mac)
        with pop.dropping("nd-mac"):
            asked = frames.solicitation(frames.mac_bytes(mac), line.ip6, GATEWAY6, line.tags)
            pop.access.send(self.forged(line, asked))
            pop.access.expect_none(lambda raw: raw[:6] == frames.mac_bytes(mac))
        before = pop.gateway.drops()
        advertises(line.ip6, line.mac)
        pop.access.send(frames.solicitation(line.raw_mac, line.ip6, GATEWAY6, line.tags))
        assert pop.at_line(line, lambda packet: ICMPv6ND_NA in packet)[ICMPv6ND_NA].tgt == GATEWAY6
        after = pop.gateway.drops()
        assert all(after.get(name) == before.get(name) for name in ("nd-mac", "nd-target"))

    def test_messages_of_routers_are_named_drops_and_reach_no_neighbour(self, pop, line):
        router, victim = "fe80::51", frames.mac_bytes("02:00:00:00:01:52")
        advertisement = ICMPv6ND_RA(routerlifetime=1800) / ICMPv6NDOptSrcLLAddr(lladdr=line.mac)
        advertisement /= ICMPv6NDOptPrefixInfo(prefix="2001:db8:bad::", prefixlen=64)
        redirect = ICMPv6ND_Redirect(tgt=router, dst=CORE6) / ICMPv6NDOptDstLLAddr(lladdr=line.mac)
        for drop, message in (("router-advertisement", advertisement), ("redirect", redirect)):
            # To all, as a home gateway with its ports exchanged sends it, and to the gateway.
            for target, mac in (("ff02::1", "33:33:00:00:00:01"), (GATEWAY6, ACCESS_MAC)):
                with pop.dropping(drop):
                    pop.send_up(line, IPv6(src=router, dst=target, hlim=255) / message, destination=mac)
            # By the neighbour's own address.
            pop.send_up(line, IPv6(src=router, dst="2001:db8:1:52::1", hlim=255) / message)
            pop.access.expect_none(lambda raw: raw[:6] in (victim, b"\x33\x33\0\0\0\1"))
        assert pop.passes(line, 6)


class TestProxy:
    @pytest.mark.parametrize("version", [4, 6])
    def test_a_session_with_proxy_arp_gets_an_answer_for_any_other_address(self, pop, version):
        pop.apply(session(IPOE, {"proxyArp": True}))
        other = "100.64.0.77" if version == 4 else "2001:db8:1:77::1"
        own = IPOE.ip4 if version == 4 else IPOE.ip6
        ask = frames.arp_request if version == 4 else frames.solicitation
        pop.access.send(ask(IPOE.raw_mac, own, other, IPOE.tags))
        if version == 4:
            answer = pop.access.expect(lambda raw: arp(raw) if raw[:6] == IPOE.raw_mac else None)
            assert answer.payload[8:14].hex(":") == ACCESS_MAC
        else:
            assert pop.at_line(IPOE, lambda packet: ICMPv6ND_NA in packet)[ICMPv6ND_NA].tgt == other
        pop.apply(session(IPOE))

    def test_its_own_address_is_never_answered_for(self, pop):
        pop.apply(session(IPOE, {"proxyArp": True}))
        pop.access.send(frames.arp_request(IPOE.raw_mac, "0.0.0.0", IPOE.ip4, IPOE.tags))
        pop.access.expect_none(lambda raw: arp(raw) and raw[:6] == IPOE.raw_mac)
        pop.apply(session(IPOE))

    def test_an_interface_with_proxy_arp_answers_for_addresses_behind_other_interfaces(self, pop):
        core = thing("Interface", "core", port="core", addresses=[f"{CORE4}/24", f"{CORE6}/64"], proxyArp=True)
        pop.apply(core)
        mac = frames.mac_bytes(ROUTER_MAC)
        pop.core.send(frames.arp_request(mac, ROUTER4, IPOE.ip4, ()))
        assert pop.core.expect(lambda raw: arp(raw) if raw[:6] == mac else None).payload[8:14].hex(":") == CORE_MAC
        pop.core.send(frames.arp_request(mac, ROUTER4, "192.0.2.78", ()))
        pop.core.expect_none(lambda raw: arp(raw) and raw[:6] == mac)
        pop.apply(thing("Interface", "core", port="core", addresses=[f"{CORE4}/24", f"{CORE6}/64"]))


def test_an_unnumbered_interface_uses_anothers_addresses(pop):
    with pop.having(thing("Interface", "lent", port="access", outerVlan=400, unnumbered="gateway")):
        mac = b"\2\0\0\0\xdd\1"
        pop.access.send(frames.arp_request(mac, "100.64.0.200", GATEWAY4, ((0x8100, 400),)))
        answer = pop.access.expect(lambda raw: arp(raw) if raw[:6] == mac else None)
        assert answer.tags == ((0x8100, 400),)
        assert answer.payload[14:18] == frames.ip_bytes(GATEWAY4)
