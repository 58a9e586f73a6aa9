# SPDX-License-Identifier: Apache-2.0
"""A flood from one source leaves capacity to its neighbours: ICMP errors, echo replies, ARP, packets for the agent."""

import signal

import pytest
from contract import Connection, api
from lab import Wire, frames, thing
from lab.frames import Frame
from pop import (
    ACCESS_MAC,
    CORE4,
    GATEWAY4,
    GATEWAY6,
    IPOE,
    PPPOE,
    SERVER4,
    SERVER6,
    Pop,
    session,
)
from scapy.all import ARP, ICMP, IP, UDP, Dot1Q, Ether, ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6TimeExceeded, IPv6

ROUNDS, FLOOD = 10, 1000


@pytest.fixture(scope="module")
def pop(lab):
    made = Pop(lab, session(IPOE), session(PPPOE))
    made.learn(IPOE, PPPOE)
    return made


@pytest.fixture(autouse=True)
def nothing_of_before(pop):
    pop.drain()


def flooded(pop, line, packet):
    """A flood of this packet before each of so many rounds. Frames stay in order: what comes behind a flood finds the
    limits as the flood left them."""
    flood = line.frame(frames.mac_bytes(ACCESS_MAC), bytes(packet))
    for number in range(ROUNDS):
        for _ in range(FLOOD):
            pop.access.send(flood)
        yield number


def probe(line, version, port):
    if version == 4:
        return IP(src=line.ip4, dst=SERVER4, ttl=1) / UDP(sport=1024, dport=port)
    return IPv6(src=line.ip6, dst=SERVER6, hlim=1) / UDP(sport=1024, dport=port)


@pytest.mark.parametrize("version", [4, 6])
def test_a_traceroute_is_answered_beside_a_neighbours_flood_of_expiring_packets(pop, version):
    def answers(packet, port):
        if version == 4:
            return ICMP in packet and packet[ICMP].type == 11 and bytes(packet)[-6:-4] == port.to_bytes(2)
        return ICMPv6TimeExceeded in packet and port.to_bytes(2) in bytes(packet)[-8:]

    for number in flooded(pop, IPOE, probe(IPOE, version, 9)):
        port = 33434 + number
        pop.send_up(PPPOE, probe(PPPOE, version, port))
        pop.at_line(PPPOE, lambda packet, port=port: answers(packet, port))


@pytest.mark.parametrize("version", [4, 6])
def test_a_flood_of_pings_is_limited_and_a_neighbours_pings_are_answered(pop, version):
    def ping(line, number):
        if version == 4:
            return IP(src=line.ip4, dst=GATEWAY4) / ICMP(id=7, seq=number)
        return IPv6(src=line.ip6, dst=GATEWAY6) / ICMPv6EchoRequest(id=7, seq=number)

    def answers(packet, number):
        if version == 4:
            return ICMP in packet and packet[ICMP].type == 0 and packet[ICMP].seq == number
        return ICMPv6EchoReply in packet and packet[ICMPv6EchoReply].seq == number

    with pop.dropping("echo-rate-limited"):
        for number in flooded(pop, IPOE, ping(IPOE, 0)):
            pop.send_up(PPPOE, ping(PPPOE, number))
            pop.at_line(PPPOE, lambda packet, number=number: answers(packet, number))


def test_a_flood_of_arp_requests_is_limited_and_a_neighbours_requests_are_answered(pop):
    def ask(number):
        mac = f"02:00:00:00:dd:{number:02x}"
        question = ARP(hwsrc=mac, psrc=f"192.0.2.{number}", pdst=CORE4)
        return bytes(Ether(src=mac, dst="ff:ff:ff:ff:ff:ff") / question)

    def answered(raw, number):
        frame = Frame.parse(raw)
        return frame.ethertype == frames.ARP and frame.destination == frames.mac_bytes(f"02:00:00:00:dd:{number:02x}")

    flood = ask(200)
    with pop.dropping("arp-rate-limited"):
        for number in range(100, 100 + ROUNDS):
            for _ in range(FLOOD):
                pop.core.send(flood)
            pop.core.send(ask(number))
            pop.core.expect(lambda raw, number=number: answered(raw, number))


def padi(mac):
    frame = bytes(Ether(src=mac, dst="ff:ff:ff:ff:ff:ff", type=0x8863))
    return frame + bytes.fromhex("11090000" + "0004" + "01010000") + bytes(38)


def test_the_agent_gets_a_padi_that_comes_behind_a_flood_of_another_mac(pop):
    """More than a second's of the reason come at once: they wait in a port's ring while the data plane stands still."""
    flooder, neighbour = "02:00:00:00:ee:01", "02:00:00:00:ee:02"
    pop.inside.link("flood0", pop.outside, "flood1")
    pop.inside.silent("flood0")
    pop.outside.silent("flood1")
    port = thing("Port", "flood", device="net_af_packet5,iface=flood0,framecnt=16384", mac="02:00:00:00:aa:05")
    punt = thing("Punt", "flood", port="flood", protocols=["pppoe_discovery"], rate=1000000, ratePerMac=1000000)
    try:
        with pop.having(port, punt), Connection(pop.gateway.dataplane_socket) as watcher:
            watcher.send(watch=api.Watch(punts=["pppoe-discovery"]))
            # Requests are carried out in order: with this answer the watch has begun.
            watcher.ask(cancel=api.Cancel())
            wire = Wire(pop.outside, "flood1")
            with pop.dropping("punt-rate-limited"):
                pop.gateway.dataplane.child.send_signal(signal.SIGSTOP)
                try:
                    flood, last = padi(flooder), padi(neighbour)
                    for _ in range(12000):
                        wire.send(flood)
                    wire.send(last)
                finally:
                    pop.gateway.dataplane.child.send_signal(signal.SIGCONT)
                macs = []
                while frames.mac_bytes(neighbour) not in macs:
                    macs.append(watcher.receive().event.packet_in.frame[6:12])
            assert macs.count(frames.mac_bytes(flooder)) < 6000
            wire.close()
    finally:
        pop.inside.ip("link", "delete", "flood0")


def test_a_punt_limit_replaces_the_limits_of_its_reason(pop):
    """Without it, ARP requests of so many clients of a VLAN would all be within the limit of the reason."""

    def reason():
        (one,) = [each for each in pop.gateway.json("get", "puntreasons") if each["reason"] == "arp"]
        return one

    punt = thing("Punt", "arps", port="access", outerVlans=["900"], protocols=["arp"], rate=100000, ratePerMac=100000)
    before = reason()
    assert before["rate"] == 10000
    with pop.having(punt):
        with pop.having(thing("PuntLimit", "arp", reason="arp", rate=4)):
            assert (reason()["rate"], reason()["ratePerSource"]) == (4, 1)
            with pop.dropping("punt-rate-limited"):
                for number in range(100):
                    question = ARP(hwsrc=f"02:00:00:00:cc:{number:02x}", psrc="192.0.2.9", pdst="192.0.2.1")
                    pop.access.send(bytes(Ether(dst="ff:ff:ff:ff:ff:ff") / Dot1Q(vlan=900) / question))
            after = reason()
            assert after["limited"] > before["limited"]
        assert reason()["rate"] == 10000
    done = pop.gateway.apply(thing("PuntLimit", "wrong", reason="no-such"), check=False)
    assert done.returncode != 0
    assert 'reason "no-such"' in done.stdout + done.stderr
    pop.gateway.delete("PuntLimit", "wrong")
