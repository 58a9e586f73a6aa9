# SPDX-License-Identifier: Apache-2.0
"""The user plane of untrusted access to a 5G core (TS 24.502 section 9.3.3): GRE with QFI and RQI in ESP, and GTP-U.
The UE and the UPF are scapy's: nothing of them is ours."""

import pytest
from lab import thing
from pop import CORE4, HOST4, Pop
from scapy.all import ESP, IP, UDP, IPv6, Raw
from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.layers.ipsec import SecurityAssociation

KEY = bytes(range(20))
TEID = 7001


class Child:
    """A child SA of the UE: both directions."""

    def __init__(self, name, spi, udp=False):
        self.name, self.spi, self.udp = name, spi, udp
        self.seals, self.opens = (
            SecurityAssociation(
                ESP,
                spi=spi + offset,
                crypt_algo="AES-GCM",
                crypt_key=KEY,
                tunnel_header=IP(src=source, dst=target),
                nat_t_header=UDP(sport=4500, dport=4500) if udp else None,
            )
            for offset, source, target in ((0, HOST4, CORE4), (1, CORE4, HOST4))
        )

    def objects(self):
        ends = {"localAddress": CORE4, "remoteAddress": HOST4, "encryptionKey": KEY.hex(), "tunnel": self.name}
        udp = {"udp": {}} if self.udp else {}
        return [
            thing("IpsecTunnel", self.name),
            thing("SecurityAssociation", f"{self.name}-in", spi=self.spi, **ends, **udp),
            thing("SecurityAssociation", f"{self.name}-out", spi=self.spi + 1, direction="outbound", **ends, **udp),
        ]


class Ue:
    def __init__(self, name, number, ours, inner, child, voice=None):
        self.name, self.ours, self.inner, self.child, self.voice = name, ours, inner, child, voice
        self.teid, self.ip4 = TEID + number, f"100.64.9.{number}"

    def objects(self):
        children = [{"tunnel": self.child.name}] + ([{"tunnel": self.voice.name, "qfis": [1]}] if self.voice else [])
        gtpu = {"localAddress": CORE4, "localTeid": self.teid, "remoteAddress": HOST4, "remoteTeid": self.teid}
        return [
            *self.child.objects(),
            *(self.voice.objects() if self.voice else []),
            thing("GreTunnel", self.name, localAddress=self.ours, remoteAddress=self.inner, children=children),
            thing(
                "Session",
                self.name,
                access={"greTunnel": self.name},
                addresses=[f"{self.ip4}/32"],
                policy={"flowProfile": "flows"},
                gtpu=gtpu | {"pduSessionContainer": True},
            ),
        ]

    def header(self):
        return (
            IP(src=self.inner, dst=self.ours, proto=47)
            if "." in self.inner
            else IPv6(src=self.inner, dst=self.ours, nh=47)
        )

    def seal(self, packet, qfi, child=None):
        gre = bytes([0x20, 0, 0, 0, qfi, 0, 0, 0])
        return (child or self.child).seals.encrypt(self.header() / Raw(gre + bytes(packet)))


PHONE = Ue("phone", 1, "10.200.0.1", "10.201.0.1", Child("phone-default", 0x5000), Child("phone-voice", 0x5010))
NATTED = Ue("natted", 2, "10.200.0.1", "10.201.0.2", Child("natted", 0x5020, udp=True))
SIX = Ue("six", 3, "2001:db8:200::1", "2001:db8:201::3", Child("six", 0x5030))
UES = [PHONE, NATTED, SIX]


@pytest.fixture(scope="module")
def pop(lab):
    flows = thing("FlowProfile", "flows", flows=[{"qfi": 1, "dscp": "ef"}])
    return Pop(lab, flows, *(each for ue in UES for each in ue.objects()))


@pytest.fixture(autouse=True)
def quiet(pop):
    pop.drain()


def user_packet(ue, up=True):
    source, target = (ue.ip4, "198.51.100.9") if up else ("198.51.100.9", ue.ip4)
    return IP(src=source, dst=target) / UDP(sport=1024, dport=7) / Raw(b"payload")


def gpdu(ue, qfi, rqi=0):
    tunnel = GTP_U_Header(teid=ue.teid, E=1, next_ex=0x85) / GTPPDUSessionContainer(type=0, QFI=qfi, RQI=rqi)
    return IP(src=HOST4, dst=CORE4) / UDP(sport=2152, dport=2152) / tunnel / user_packet(ue, up=False)


@pytest.mark.parametrize("ue", UES, ids=lambda ue: ue.name)
class TestUserPlane:
    def test_an_uplink_packet_reaches_the_upf_with_the_qfi_of_the_ue(self, pop, ue):
        for qfi in (0, 1, 9, 63):
            sent = user_packet(ue)
            pop.send_down(ue.seal(sent, qfi))
            got = pop.at_core(lambda packet: UDP in packet and packet[UDP].dport == 2152)
            raw = bytes(got[UDP].payload)
            assert raw[:2] == b"\x34\xff" and int.from_bytes(raw[4:8]) == ue.teid
            assert raw[11:16] == bytes([0x85, 1, 0x10, qfi, 0])
            assert raw[16:] == bytes(sent)
            assert got[IP].tos >> 2 == (46 if qfi == 1 else 0)

    def test_a_downlink_packet_reaches_the_ue_with_qfi_and_rqi_in_the_key(self, pop, ue):
        for qfi, rqi in ((0, 0), (1, 0), (9, 1), (63, 0)):
            pop.send_down(gpdu(ue, qfi, rqi))
            outer = pop.at_core(lambda packet: ESP in packet or UDP in packet and packet[UDP].sport == 4500)
            child = ue.voice if ue.voice and qfi == 1 else ue.child
            assert outer[IP].tos >> 2 == (46 if qfi == 1 else 0)
            inner = child.opens.decrypt(outer)
            raw = bytes(inner)[20 if IP in inner else 40 :]
            assert (inner.src, inner.dst) == (ue.ours, ue.inner)
            assert raw[:8] == bytes([0x20, 0, 0, 0, qfi, 0, 0, 0x80 if rqi else 0])
            assert raw[8:] == bytes(user_packet(ue, up=False))


def test_a_child_is_rekeyed_without_the_session(pop):
    new = Child("phone-default", 0x5040)
    tunnel, inbound, outbound = new.objects()
    for each in (inbound, outbound):
        each["metadata"]["name"] += "-new"
    outbound["spec"]["precedence"] = 1
    with pop.having(inbound, outbound):
        for child in (PHONE.child, new):
            pop.send_down(PHONE.seal(user_packet(PHONE), 9, child))
            pop.at_core(lambda packet: UDP in packet and packet[UDP].dport == 2152)
        pop.send_down(gpdu(PHONE, 9))
        assert new.opens.decrypt(pop.at_core(lambda packet: ESP in packet))


def test_a_ue_cannot_send_as_another(pop):
    with pop.dropping("gre-wrong-ends"):
        header = IP(src=NATTED.inner, dst=PHONE.ours, proto=47) / Raw(bytes([0x20, 0, 0, 0, 9, 0, 0, 0]))
        pop.send_down(PHONE.child.seals.encrypt(header / Raw(bytes(user_packet(NATTED)))))
    with pop.dropping("session-source"):
        pop.send_down(PHONE.seal(user_packet(NATTED), 9))
