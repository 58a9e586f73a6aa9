# SPDX-License-Identifier: Apache-2.0
"""ESP tunnels (RFC 4303) with static keys. The peer is scapy's IPsec layer: nothing of it is ours."""

import contextlib
import itertools
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from contract import Connection, api
from lab import Lab, thing
from lab.gateway import METRICS, yaml
from lab.laboratory import wait_until
from pop import CORE4, CORE6, CORE_MAC, HOST4, HOST6, HOST_MAC, IPOE, PPPOE, Pop, base_of, session, udp_down, udp_up
from scapy.all import (
    ESP,
    ICMP,
    IP,
    TCP,
    UDP,
    Dot1Q,
    Ether,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrFragment,
    Raw,
    defragment,
    fragment,
    fragment6,
)
from scapy.layers.ipsec import SecurityAssociation

SERIALS = itertools.count()


def key(length, first):
    """No other association of this file has it: the gateway remembers the sequence numbers of a key."""
    return (struct.pack("!H", next(SERIALS)) + bytes(range(first, first + length)))[:length]


# Fields that have an effect in one direction only.
ONE_WAY = {"outbound": {"replayWindow", "noReplayCheck"}, "inbound": {"outer", "pathMtu", "precedence"}}


def of_direction(direction, spec):
    """Without the fields that the other direction alone has."""
    spec = {field: value for field, value in spec.items() if field not in ONE_WAY[direction]}
    if direction == "inbound" and "udp" in spec:
        spec["udp"] = {field: value for field, value in spec["udp"].items() if field != "keepalive"}
    return spec


class Form:
    """A tunnel to the peer, and the peer's side of it."""

    def __init__(self, number, name, encryption, peer, length, salt=0, integrity=None, **spec):
        self.name, self.number = name, number
        self.outside = spec.pop("outside", 4)
        self.local, self.remote = (CORE4, HOST4) if self.outside == 4 else (CORE6, HOST6)
        self.network4, self.network6 = f"10.{number}.0.0/16", f"2001:db8:100:{number:x}::/64"
        self.host4, self.host6 = f"10.{number}.0.9", f"2001:db8:100:{number:x}::9"
        self.spec = {"encryption": encryption} | spec
        crypt_algorithm, auth_algorithm = peer
        self.esn = spec.get("esn", False)
        self.keys = {}
        self.peers = {}
        for direction, first in (("outbound", 1), ("inbound", 101)):
            crypt, auth = key(length + salt, first), b""
            self.keys[direction] = {"encryptionKey": crypt.hex()} if crypt else {}
            if integrity:
                auth = key(integrity[1], first + 50)
                self.keys[direction] |= {"integrity": integrity[0], "integrityKey": auth.hex()}
            source, target = (self.local, self.remote) if direction == "outbound" else (self.remote, self.local)
            header = IP(src=source, dst=target) if self.outside == 4 else IPv6(src=source, dst=target)
            self.peers[direction] = SecurityAssociation(
                ESP,
                spi=self.spi(direction),
                crypt_algo=crypt_algorithm,
                crypt_key=crypt or None,
                auth_algo=auth_algorithm,
                auth_key=auth or None,
                tunnel_header=header,
                nat_t_header=UDP(sport=4500, dport=4500) if "udp" in spec else None,
                esn_en=self.esn,
                esn=0,
            )

    def spi(self, direction):
        return (0x1000 if direction == "outbound" else 0x2000) + self.number

    def association(self, direction, name=None, **more):
        ends = {"localAddress": self.local, "remoteAddress": self.remote, "spi": self.spi(direction)}
        peer = f"{self.name}-{'inbound' if direction == 'outbound' else 'outbound'}"
        every = {"direction": direction, "tunnel": self.name, "peer": peer} | ends | self.spec | self.keys[direction]
        return thing("SecurityAssociation", name or f"{self.name}-{direction}", **of_direction(direction, every | more))

    def objects(self):
        return [
            thing("IpsecTunnel", self.name, localAddress=self.local, remoteAddress=self.remote),
            thing("Interface", f"i-{self.name}", ipsecTunnel=self.name),
            thing("Route", f"r4-{self.name}", prefix=self.network4, nextHops=[{"interface": f"i-{self.name}"}]),
            thing("Route", f"r6-{self.name}", prefix=self.network6, nextHops=[{"interface": f"i-{self.name}"}]),
            self.association("outbound"),
            self.association("inbound"),
        ]

    def open(self, packet):
        """The packet that the peer decrypts from the gateway's."""
        return self.peers["outbound"].decrypt(packet)

    def seal(self, packet, **more):
        """A packet of the peer."""
        return self.peers["inbound"].encrypt(packet, **more)


SHA1, SHA256 = ("hmac_sha1", 20), ("hmac_sha256", 32)
SHA384, SHA512 = ("hmac_sha384", 48), ("hmac_sha512", 64)
GCM, NO = "AES-GCM", "NULL"
FORMS = [
    Form(1, "gcm128", "aes_gcm", (GCM, NO), 16, 4),
    Form(2, "gcm256", "aes_gcm", (GCM, NO), 32, 4, replayWindow=1024),
    Form(3, "gcm-esn", "aes_gcm", (GCM, NO), 16, 4, esn=True),
    Form(4, "gcm-over6", "aes_gcm", (GCM, NO), 16, 4, outside=6),
    Form(5, "gcm-udp", "aes_gcm", (GCM, NO), 16, 4, udp={"localPort": 4500}),
    Form(6, "cbc-sha1", "aes_cbc", ("AES-CBC", "HMAC-SHA1-96"), 16, integrity=SHA1),
    Form(7, "cbc-sha256", "aes_cbc", ("AES-CBC", "SHA2-256-128"), 32, integrity=SHA256),
    Form(8, "cbc-sha384", "aes_cbc", ("AES-CBC", "SHA2-384-192"), 24, integrity=SHA384),
    Form(9, "cbc-sha512", "aes_cbc", ("AES-CBC", "SHA2-512-256"), 16, integrity=SHA512, outside=6),
    Form(10, "ctr-sha256", "aes_ctr", ("AES-CTR", "SHA2-256-128"), 16, 4, integrity=SHA256),
    Form(11, "chacha20", "chacha20_poly1305", ("CHACHA20-POLY1305", NO), 32, 4),
    Form(12, "gmac", "aes_gmac", ("AES-NULL-GMAC", NO), 16, 4),
    Form(13, "null-sha256", "null_encryption", (NO, "SHA2-256-128"), 0, integrity=SHA256),
    Form(14, "cbc-esn", "aes_cbc", ("AES-CBC", "SHA2-256-128"), 16, integrity=SHA256, esn=True),
    Form(15, "gcm192", "aes_gcm", (GCM, NO), 24, 4),
]
BY_NAME = {form.name: form for form in FORMS}
PLAIN = BY_NAME["gcm128"]


@pytest.fixture(scope="module")
def pop(lab):
    metrics = {"type": "metrics", "name": "metrics", "listen": METRICS}
    tunnels = (each for form in FORMS for each in form.objects())
    made = Pop(lab, session(IPOE), *tunnels, northbounds=[metrics])
    made.learn(IPOE)
    return made


@pytest.fixture(autouse=True)
def quiet(pop):
    pop.drain()


def up(form, inside, payload=b"payload"):
    header = IP(src=IPOE.ip4, dst=form.host4) if inside == 4 else IPv6(src=IPOE.ip6, dst=form.host6)
    return header / UDP(sport=1024, dport=7) / Raw(payload)


def down(form, inside, payload=b"payload"):
    header = IP(src=form.host4, dst=IPOE.ip4) if inside == 4 else IPv6(src=form.host6, dst=IPOE.ip6)
    return header / UDP(sport=7, dport=1024) / Raw(payload)


def from_tunnel(form):
    """Whether a packet on the core side is one of the tunnel."""

    def match(packet):
        outer = packet[IP] if form.outside == 4 and IP in packet else packet.getlayer(IPv6)
        return (
            outer is not None and outer.dst == form.remote and ESP in packet and packet[ESP].spi == form.spi("outbound")
        )

    return match


def older(packet):
    """The same with one hop less."""
    packet = type(packet)(bytes(packet))
    if IP in packet:
        packet.ttl -= 1
        del packet.chksum
    else:
        packet.hlim -= 1
    return bytes(packet)


@pytest.mark.parametrize("inside", [4, 6])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
class TestForms:
    def test_the_peer_decrypts_the_gateways_packets(self, pop, form, inside):
        for length in (1, 17, 64, 1300):
            sent = up(form, inside, bytes(range(256)) * 6)
            sent[Raw].load = sent[Raw].load[:length]
            pop.send_up(IPOE, sent)
            got = form.open(pop.at_core(from_tunnel(form)))
            assert bytes(got) == older(sent)

    def test_the_gateway_decrypts_the_peers_packets(self, pop, form, inside):
        for length in (1, 17, 64, 1300):
            sent = down(form, inside, (bytes(range(256)) * 6)[:length])
            pop.send_down(form.seal(sent))
            got = pop.at_line(IPOE, lambda packet: UDP in packet and packet[UDP].dport == 1024)
            assert bytes(got) == older(sent)


class TestReceiving:
    def test_a_packet_that_is_received_twice_is_dropped(self, pop):
        sent = down(PLAIN, 4)
        sealed = PLAIN.seal(sent)
        pop.send_down(sealed)
        assert bytes(pop.at_line(IPOE, lambda packet: UDP in packet)) == older(sent)
        with pop.dropping("esp-replay"):
            pop.send_down(sealed)

    def test_packets_out_of_order_are_received_within_the_window(self, pop):
        form = BY_NAME["gcm256"]
        sealed = [form.seal(down(form, 4, b"%03d" % n)) for n in range(64)]
        for each in reversed(sealed):
            pop.send_down(each)
        got = {bytes(pop.at_line(IPOE, lambda packet: UDP in packet)[Raw].load)[:3] for _ in sealed}
        assert got == {b"%03d" % n for n in range(64)}

    def test_a_forged_packet_is_dropped(self, pop):
        sent = down(PLAIN, 4)
        forged = PLAIN.seal(sent)
        raw = bytearray(bytes(forged))
        raw[-1] ^= 1
        with pop.dropping("esp-icv"):
            pop.send_down(IP(bytes(raw)))
        # The window has not moved: the packet itself is received.
        pop.send_down(forged)
        assert bytes(pop.at_line(IPOE, lambda packet: UDP in packet)) == older(sent)

    def test_an_unknown_spi_is_dropped(self, pop):
        with pop.dropping("esp-unknown-spi"):
            pop.send_down(IP(src=HOST4, dst=CORE4) / ESP(spi=0xDEAD, seq=1, data=b"x" * 64))

    def test_a_fragmented_esp_packet_is_put_together(self, pop):
        sent = down(PLAIN, 4, b"y" * 1200)
        for piece in fragment(PLAIN.seal(sent), 600):
            pop.send_down(piece)
        got = pop.at_line(IPOE, lambda packet: UDP in packet)
        assert bytes(got) == older(sent)

    def test_a_keepalive_is_no_drop(self, pop):
        form = BY_NAME["gcm-udp"]
        before = pop.gateway.drops()
        pop.send_down(IP(src=HOST4, dst=CORE4) / UDP(sport=4500, dport=4500) / Raw(b"\xff"))
        sent = down(form, 4)
        pop.send_down(form.seal(sent))
        pop.at_line(IPOE, lambda packet: UDP in packet)
        assert pop.gateway.drops() == before


class TestSize:
    def test_a_packet_that_does_not_fit_is_fragmented_before_encryption(self, pop):
        sent = up(PLAIN, 4, b"z" * 1472)
        pop.send_up(IPOE, sent)
        pieces = [PLAIN.open(pop.at_core(from_tunnel(PLAIN))) for _ in range(2)]
        assert [piece.frag for piece in pieces][0] == 0 and pieces[0].flags.MF
        assert sum(len(piece) - 20 for piece in pieces) == len(sent) - 20

    def test_the_sender_of_a_packet_with_df_gets_the_largest_size(self, pop):
        sent = up(PLAIN, 4, b"z" * 1472)
        sent.flags = "DF"
        pop.send_up(IPOE, sent)
        error = pop.at_line(IPOE, lambda packet: ICMP in packet)
        assert (error[ICMP].type, error[ICMP].code) == (3, 4)
        mtu = error[ICMP].nexthopmtu
        sent = up(PLAIN, 4, b"z" * (mtu - 28))
        sent.flags = "DF"
        pop.send_up(IPOE, sent)
        outer = pop.at_core(from_tunnel(PLAIN))
        assert 1496 < len(outer) <= 1500
        assert bytes(PLAIN.open(outer)) == older(sent)

    def test_a_packet_that_does_not_fit_keeps_its_ports_where_selectors_need_them(self, pop):
        """It is encrypted whole, and the outer packet is fragmented."""
        form = Form(77, "ported", "aes_gcm", (GCM, NO), 16, 4)
        selectors = [{"protocol": "udp", "remotePorts": "7"}]
        objects = [each for each in form.objects() if each["kind"] != "SecurityAssociation"]
        pair = [form.association(each, selectors=selectors) for each in ("outbound", "inbound")]
        with pop.having(*objects, *pair):
            sent = up(form, 4, b"z" * 1472)
            pop.send_up(IPOE, sent)
            outer = [pop.at_core(lambda packet: IP in packet and packet[IP].proto == 50) for _ in range(2)]
            assert [piece.flags.MF for piece in outer] == [True, False]
            assert bytes(form.open(defragment(outer)[0])) == older(sent)
            back = down(form, 4, b"y" * 1472)
            for piece in fragment(form.seal(back), 1400):
                pop.send_down(piece)
            assert bytes(pop.at_line(IPOE, lambda packet: UDP in packet)) == older(back)
            # One that comes in fragments shows ports in the first one alone.
            with pop.dropping("ipsec-no-association"):
                for piece in fragment(up(form, 4, b"z" * 1000), 600):
                    pop.send_up(IPOE, piece)


class TestSecrets:
    def test_no_key_is_shown(self, pop):
        secret = PLAIN.keys["outbound"]["encryptionKey"]
        for arguments in (
            ("get", "sa", "-o", "yaml"),
            ("get", "sa", "gcm128-outbound", "-o", "json"),
            ("describe", "sa", "gcm128-outbound"),
            ("get", "sa"),
            ("history",),
        ):
            done = pop.gateway.sluice(*arguments, check=False)
            assert secret not in done.stdout + done.stderr
        assert secret not in "".join(pop.gateway.logs().values())


class TestTunnels:
    def test_an_address_that_no_interface_has_is_a_warning(self, pop):
        tunnel = thing("IpsecTunnel", "lost", localAddress="192.0.2.77", remoteAddress=HOST4)
        inbound = PLAIN.association("inbound", "lost-in", spi=0x7777, tunnel="lost", localAddress="192.0.2.78")
        outbound = PLAIN.association("outbound", "lost-out", spi=0x7778, tunnel="lost", localAddress="192.0.2.79")
        done = pop.gateway.sluice("plan", "-f", "-", input=yaml([tunnel, inbound, outbound]), check=False)
        text = done.stdout + done.stderr
        assert "IpsecTunnel/lost: localAddress: no interface has it in VRF default" in text
        assert "SecurityAssociation/lost-in: localAddress: no interface has it" in text and "192.0.2.79" not in text

    def test_get_and_describe_show_the_counters_of_a_tunnel(self, pop):
        form = Form(65, "counted", "aes_gcm", (GCM, NO), 16, 4)
        with pop.having(*form.objects()):
            for _ in range(3):
                pop.send_up(IPOE, up(form, 4))
                pop.at_core(from_tunnel(form))
            sealed = form.seal(down(form, 4))
            pop.send_down(sealed)
            pop.at_line(IPOE, lambda packet: UDP in packet)
            with pop.dropping("esp-replay"):
                pop.send_down(sealed)
            inside = len(up(form, 4))
            rows = [line.split() for line in pop.gateway.sluice("get", "tunnels").stdout.splitlines()]
            row = next(row for row in rows if row[0] == "counted")
            assert (row[1], row[3]) == ("up", "192.0.2.2")
            tunnel = pop.gateway.json("describe", "tunnel", "counted")
            assert (tunnel["state"], tunnel["securityAssociations"], tunnel["mtu"]) == ("up", 2, 1446)
            out, back = (int(tunnel[f"{way}Packets"]) for way in ("encrypted", "decrypted"))
            assert (out, back, int(tunnel["drops"])) == (3, 1, 1)
            assert (int(tunnel["encryptedBytes"]), int(tunnel["decryptedBytes"])) == (3 * inside, inside)
            described = pop.gateway.sluice("describe", "ipsectunnel/counted").stdout
            assert "1446" in described and str(3 * inside) in described
            # IKE is not there.
            described = pop.gateway.sluice("describe", "tunnel", "counted").stdout
            assert "state: up" in described and "since" not in described and "children" not in described
            heading, *rows = pop.gateway.sluice("get", "tunnels", "-o", "wide").stdout.splitlines()
            assert "ENGINE" in heading and "1446" in next(row for row in rows if row.startswith("counted "))

    def test_associations_have_the_ends_and_the_vrf_of_their_tunnel(self, pop):
        form = Form(78, "ends", "aes_gcm", (GCM, NO), 16, 4)
        objects = form.objects()
        for each in objects:
            if each["kind"] == "SecurityAssociation":
                del each["spec"]["localAddress"], each["spec"]["remoteAddress"]
        with pop.having(*objects):
            sent, back = up(form, 4), down(form, 4)
            pop.send_up(IPOE, sent)
            assert bytes(form.open(pop.at_core(from_tunnel(form)))) == older(sent)
            pop.send_down(form.seal(back))
            assert bytes(pop.at_line(IPOE, lambda packet: UDP in packet)) == older(back)
            with pop.having(thing("Vrf", "elsewhere")):
                other = form.association("inbound", "elsewhere", spi=0x9999, vrf="elsewhere")
                done = pop.gateway.apply(other, check=False)
                assert 'vrf: "elsewhere" is not IpsecTunnel "ends"\'s' in done.stderr
                pop.gateway.delete("SecurityAssociation", "elsewhere")


def states(pop, *names):
    with Connection(pop.gateway.dataplane_socket) as connection:
        states = connection.read(api.SecurityAssociationStatesQuery(names=names)).states
        return {state.name: state for state in states}


@contextlib.contextmanager
def hearing(pop, *punts):
    """A function that gives the next event of a kind."""
    with Connection(pop.gateway.dataplane_socket) as watcher:
        watcher.send(watch=api.Watch(punts=punts))
        # Its answer confirms that it watches from now on.
        watcher.put()

        def hear(kind):
            while True:
                event = watcher.receive().event
                if event.WhichOneof("event") == kind:
                    return getattr(event, kind)

        yield hear


class TestLifetimes:
    def test_soft_and_hard_limits_are_reported_and_counted(self, pop):
        form = Form(60, "limited", "aes_gcm", (GCM, NO), 16, 4)
        limits = {"softPackets": 2, "hardPackets": 4}
        objects = [each for each in form.objects() if each["kind"] != "SecurityAssociation"]
        with pop.having(*objects, form.association("outbound", **limits)), hearing(pop) as hear:
            for _ in range(2):
                pop.send_up(IPOE, up(form, 4))
                pop.at_core(from_tunnel(form))
            change = hear("security_association")
            assert (change.name, change.change) == ("limited-outbound", "soft-lifetime")
            for _ in range(2):
                pop.send_up(IPOE, up(form, 4))
                pop.at_core(from_tunnel(form))
            with pop.dropping("esp-lifetime"):
                pop.send_up(IPOE, up(form, 4))
            assert hear("security_association").change == "hard-lifetime"
            state = states(pop, "limited-outbound")["limited-outbound"]
            assert (state.packets, state.sequence, state.ended, state.remote_address) == (4, 4, True, HOST4)

    @pytest.mark.parametrize("way, drop", [("outbound", "esp-lifetime"), ("inbound", "esp-lifetime-inbound")])
    def test_limits_in_bytes_are_those_of_packets_inside(self, pop, way, drop):
        form = Form(62, "filled", "aes_gcm", (GCM, NO), 16, 4)
        size = len(up(form, 4))
        limits = {"softBytes": 2 * size, "hardBytes": 4 * size}
        objects = [each for each in form.objects() if each["kind"] != "SecurityAssociation"]

        def send(arrives=True):
            if way == "outbound":
                pop.send_up(IPOE, up(form, 4))
                return arrives and pop.at_core(from_tunnel(form))
            pop.send_down(form.seal(down(form, 4)))
            return arrives and pop.at_line(IPOE, lambda packet: UDP in packet)

        with pop.having(*objects, form.association(way, **limits)), hearing(pop) as hear:
            for change in ("soft-lifetime", "hard-lifetime"):
                send()
                send()
                if change == "hard-lifetime":
                    with pop.dropping(drop):
                        send(arrives=False)
                told = hear("security_association")
                assert (told.name, told.change) == (f"filled-{way}", change)
            state = states(pop, f"filled-{way}")[f"filled-{way}"]
            assert (state.packets, state.bytes, state.ended) == (4, 4 * size, True)

    def test_an_association_that_has_ended_is_not_ready_and_its_tunnel_is_down(self, pop):
        form = Form(63, "used", "aes_gcm", (GCM, NO), 16, 4)
        objects = [each for each in form.objects() if each["kind"] != "SecurityAssociation"]
        pair = (form.association("outbound", softPackets=2, hardPackets=4), form.association("inbound"))

        def ready():
            described = pop.gateway.json("describe", "sa", "used-outbound")
            (one,) = [each for each in described["status"]["conditions"] if each["type"] == "Ready"]
            return one["status"] == "True", one["reason"], one.get("message", "")

        def tunnel():
            shown = pop.gateway.json("describe", "tunnel", "used")
            return shown["state"], shown.get("reason", "")

        with pop.having(*objects, *pair):
            assert (ready()[0], tunnel()) == (True, ("up", ""))
            for _ in range(4):
                pop.send_up(IPOE, up(form, 4))
                pop.at_core(from_tunnel(form))
            with pop.dropping("esp-lifetime"):
                pop.send_up(IPOE, up(form, 4))
            wait_until(lambda: not ready()[0], what="the association is not ready")
            assert ready()[1] == "LifetimeOver" and "esp-lifetime" in ready()[2]
            state, reason = tunnel()
            assert state == "down" and reason.startswith("no outbound SecurityAssociation that has not ended: ")
            log = "".join(pop.gateway.logs().values())
            assert "a SecurityAssociation is about to end" in log and "a SecurityAssociation has ended" in log
            # An agent that starts later finds it, too.
            with pop.gateway.without_agent():
                pass
            wait_until(lambda: not ready()[0], what="the association is still not ready")
            assert ready()[1] == "Ended"
            wait_until(lambda: pop.gateway.metric("sluice_ike_ended_associations") == 1, what="the metric")
            counted = 'sluice_ike_tunnels{dataplane="default",state="down"} 1\n'
            listed = lambda: pop.gateway.namespace.run("curl", "-sf", f"http://{METRICS}/metrics").stdout  # noqa: E731
            wait_until(lambda: counted in listed(), what="the tunnel is counted")
            # With a higher limit it goes on.
            pop.apply(form.association("outbound", hardPackets=100))
            wait_until(lambda: ready()[0], what="the association is ready again")
            wait_until(lambda: pop.gateway.metric("sluice_ike_ended_associations") == 0, what="the metric")
            assert tunnel() == ("up", "")

    def test_used_up_sequence_numbers_are_the_reason_of_the_condition(self, pop):
        form = Form(64, "counted-out", "aes_gcm", (GCM, NO), 16, 4)
        objects = [each for each in form.objects() if each["kind"] != "SecurityAssociation"]
        with pop.having(*objects, form.association("outbound", sequence=2**32 - 2), form.association("inbound")):
            pop.send_up(IPOE, up(form, 4))
            pop.at_core(from_tunnel(form))
            with pop.dropping("esp-sequence-exhausted"):
                pop.send_up(IPOE, up(form, 4))
            shows = lambda: pop.gateway.sluice("describe", "sa", "counted-out-outbound").stdout  # noqa: E731
            wait_until(lambda: "SequenceExhausted" in shows(), what="the reason")

    def test_a_tunnel_needs_an_association_of_each_direction(self, pop):
        form = Form(66, "oneway", "aes_gcm", (GCM, NO), 16, 4)
        objects = [each for each in form.objects() if each["kind"] != "SecurityAssociation"]
        second = form.association("outbound", "oneway-second", spi=0x9998)

        def tunnel():
            shown = pop.gateway.json("describe", "tunnel", "oneway")
            return shown["state"], shown.get("reason", "")

        with pop.having(*objects):
            assert tunnel() == ("down", "no inbound and no outbound SecurityAssociation")
            with pop.having(form.association("outbound"), second):
                assert tunnel() == ("down", "no inbound SecurityAssociation")
                with pop.having(form.association("inbound")):
                    assert tunnel() == ("up", "")
            with pop.having(form.association("inbound")):
                assert tunnel() == ("down", "no outbound SecurityAssociation")

    def test_a_packet_without_an_association_is_reported(self, pop):
        form = Form(61, "absent", "aes_gcm", (GCM, NO), 16, 4)
        objects = [each for each in form.objects() if each["kind"] != "SecurityAssociation"]
        with pop.having(*objects), hearing(pop) as hear:
            with pop.dropping("ipsec-no-association"):
                pop.send_up(IPOE, up(form, 4))
            told = hear("ipsec_acquire")
            assert (told.tunnel, told.source, told.destination) == ("absent", IPOE.ip4, form.host4)
            assert (told.protocol, told.source_port, told.destination_port) == (17, 1024, 7)


def traffic_class(packet):
    return packet[IP].tos if IP in packet and packet[IP].version == 4 else packet.tc


@pytest.mark.parametrize("outside", [4, 6])
class TestOuterHeader:
    """DSCP by the rule of the association, ECN by RFC 6040."""

    EF_ECT1, AF41 = 0xB9, 0x88

    @pytest.mark.parametrize(
        "number, outer, expected",
        [
            (101, {}, EF_ECT1),
            (102, {"dscp": "dscp_set", "dscpValue": "af41"}, AF41 | 1),
            (103, {"dscp": "dscp_hide"}, 1),
            (104, {"clearEcn": True}, EF_ECT1 & ~3),
        ],
    )
    def test_a_packet_that_leaves(self, pop, outside, number, outer, expected):
        form = Form(number, f"class-{number}", "aes_gcm", (GCM, NO), 16, 4, outside=outside, outer=outer)
        with pop.having(*form.objects()):
            for inside in (4, 6):
                sent = up(form, inside)
                setattr(sent, "tos" if inside == 4 else "tc", self.EF_ECT1)
                pop.send_up(IPOE, sent)
                got = pop.at_core(from_tunnel(form))
                assert traffic_class(got) == expected
                assert bytes(form.open(got)) == older(sent)

    def test_a_packet_that_comes_in(self, pop, outside):
        form = Form(105, "congested", "aes_gcm", (GCM, NO), 16, 4, outside=outside)
        header = form.peers["inbound"].tunnel_header
        with pop.having(*form.objects()):
            # Inner, outer and what arrives: 0 is no ECN, 1 and 2 are ECT, 3 is congestion.
            for inner, outer, expected in ((0, 0, 0), (2, 0, 2), (2, 1, 1), (2, 3, 3), (1, 3, 3), (3, 1, 3), (0, 2, 0)):
                setattr(header, "tos" if outside == 4 else "tc", 0x20 | outer)
                sent = down(form, 4)
                sent.tos = self.EF_ECT1 & ~3 | inner
                pop.send_down(form.seal(sent))
                got = pop.at_line(IPOE, lambda packet: UDP in packet)
                assert got.tos == self.EF_ECT1 & ~3 | expected, (inner, outer)
            setattr(header, "tos" if outside == 4 else "tc", 3)
            with pop.dropping("esp-ecn-illegal"):
                pop.send_down(form.seal(down(form, 4)))


class TestAddressTranslation:
    def test_esp_in_udp_over_ipv6_has_a_checksum_or_none(self, pop):
        """RFC 3948 section 2.1 wants a checksum of zero, and RFC 6935 permits it over IPv6; another must be right."""
        form = Form(106, "udp-over6", "aes_gcm", (GCM, NO), 16, 4, outside=6, udp={"localPort": 4500})
        with pop.having(*form.objects()):
            sent, back = up(form, 4), down(form, 6)
            pop.send_up(IPOE, sent)
            got = pop.at_core(from_tunnel(form))
            checksum = got[UDP].chksum
            del got[UDP].chksum
            assert checksum in (0, IPv6(bytes(got))[UDP].chksum)
            assert bytes(form.open(IPv6(bytes(got)))) == older(sent)
            pop.send_down(form.seal(back))
            assert bytes(pop.at_line(IPOE, lambda packet: UDP in packet)) == older(back)

    def test_the_gateway_follows_a_peer_whose_port_changes(self, pop):
        form = Form(62, "moving", "aes_gcm", (GCM, NO), 16, 4, udp={"localPort": 4500})
        with pop.having(*form.objects()), hearing(pop) as hear:
            sealed = form.seal(down(form, 4))
            sealed[UDP].sport = 40001
            pop.send_down(sealed)
            pop.at_line(IPOE, lambda packet: UDP in packet)
            change = hear("security_association")
            assert (change.name, change.change, change.remote_port) == ("moving-inbound", "peer-moved", 40001)
            pop.send_up(IPOE, up(form, 4))
            got = pop.at_core(from_tunnel(form))
            assert (got[UDP].sport, got[UDP].dport) == (4500, 40001)
            # A forged packet from elsewhere changes nothing.
            forged = form.seal(down(form, 4))
            raw = bytearray(bytes(forged))
            raw[-1] ^= 1
            forged = IP(bytes(raw))
            forged[UDP].sport = 50000
            with pop.dropping("esp-icv"):
                pop.send_down(forged)
            pop.send_up(IPOE, up(form, 4))
            assert pop.at_core(from_tunnel(form))[UDP].dport == 40001

    @pytest.mark.parametrize("outside", [4, 6])
    def test_a_quiet_association_sends_keepalives(self, pop, outside):
        form = Form(63, "quiet", "aes_gcm", (GCM, NO), 16, 4, udp={"keepalive": "1s"}, outside=outside)
        with pop.having(*form.objects()):
            got = pop.at_core(lambda packet: UDP in packet and packet[UDP].dport == 4500)
            assert bytes(got[UDP].payload) == b"\xff" and got[UDP].len == 9

    @pytest.mark.parametrize("version", [4, 6])
    @pytest.mark.parametrize("port", [500, 4500])
    def test_ike_reaches_the_agent(self, pop, port, version):
        marker = b"\0\0\0\0" if port == 4500 else b""
        header = IP(src=HOST4, dst=CORE4) if version == 4 else IPv6(src=HOST6, dst=CORE6)
        message = marker + b"an IKE message of 28 or more"
        with hearing(pop, "ike") as hear:
            pop.send_down(header / UDP(sport=port, dport=port) / Raw(message))
            told = hear("packet_in")
            assert (told.reason, told.interface, told.port) == ("ike", "core", "core")
            assert told.frame.endswith(message)

    def test_a_packet_of_an_unknown_spi_reaches_the_agent(self, pop):
        with hearing(pop, "esp-unknown-spi") as hear, pop.dropping("esp-unknown-spi"):
            pop.send_down(IP(src=HOST4, dst=CORE4) / ESP(spi=0xBEEF, seq=1, data=b"x" * 64))
            assert ESP in IP(hear("packet_in").frame[14:])


class TestInterfaces:
    """Fields of a tunnel's Interface besides its addresses."""

    def objects(self, form, **fields):
        """`fields`: of objects, by their kind."""
        return [each | {"spec": each["spec"] | fields.get(each["kind"], {})} for each in form.objects()]

    def test_access_lists_see_the_packets_inside_both_ways(self, pop):
        form = Form(72, "listed", "aes_gcm", (GCM, NO), 16, 4)
        rules = [{"action": "deny", "protocol": "udp", "destinationPorts": "9"}, {"action": "permit"}]
        lists = {"aclIn": "tunnel-list", "aclOut": "tunnel-list"}
        with pop.having(thing("Acl", "tunnel-list", rules=rules), *self.objects(form, Interface=lists)):
            for inside in (4, 6):
                sent, back = up(form, inside), down(form, inside)
                pop.send_up(IPOE, sent)
                assert bytes(form.open(pop.at_core(from_tunnel(form)))) == older(sent)
                pop.send_down(form.seal(back))
                assert bytes(pop.at_line(IPOE, lambda packet: UDP in packet)) == older(back)
                sent[UDP].dport = back[UDP].dport = 9
                with pop.dropping("acl-denied"):
                    pop.send_up(IPOE, sent)
                with pop.dropping("acl-denied"):
                    pop.send_down(form.seal(back))

    def test_meters_limit_the_packets_inside_both_ways(self, pop):
        form = Form(74, "metered", "aes_gcm", (GCM, NO), 16, 4)
        meter = thing("Meter", "tunnel", scope="global", committedRate=8000, committedBurst=1000)
        meters = {"meterIn": "tunnel", "meterOut": "tunnel"}
        with pop.having(meter, *self.objects(form, Interface=meters)):
            # Of 400 bytes inside, and longer outside: two are within the burst of both ways.
            sent, back = up(form, 4, b"m" * 372), down(form, 6, b"m" * 352)
            pop.send_up(IPOE, sent)
            assert bytes(form.open(pop.at_core(from_tunnel(form)))) == older(sent)
            pop.send_down(form.seal(back))
            assert bytes(pop.at_line(IPOE, lambda packet: UDP in packet)) == older(back)
            # On a busy machine the meter has room for some more meanwhile.
            with pop.dropping("meter-red"):
                for _ in range(10):
                    pop.send_up(IPOE, sent)
            with pop.dropping("meter-red"):
                for _ in range(10):
                    pop.send_down(form.seal(back))

    def test_segments_of_tcp_become_as_small_as_the_tunnel_allows_both_ways(self, pop):
        form = Form(73, "clamped", "aes_gcm", (GCM, NO), 16, 4)

        def syn(packet):
            return type(packet)(
                bytes(packet.__class__(src=packet.src, dst=packet.dst) / TCP(flags="S", options=OPTIONS))
            )

        with pop.having(*self.objects(form, IpsecTunnel={"mss": 1200})):
            for inside, most in ((4, 1200), (6, 1180)):
                pop.send_up(IPOE, syn(up(form, inside)))
                got = form.open(pop.at_core(from_tunnel(form)))
                assert dict(got[TCP].options)["MSS"] == most
                pop.send_down(form.seal(syn(down(form, inside))))
                again = pop.at_line(IPOE, lambda packet: TCP in packet)
                assert dict(again[TCP].options)["MSS"] == most
                for packet in (got, again):
                    right = type(packet)(bytes(packet))
                    del right[TCP].chksum
                    assert bytes(right) == bytes(packet), "the checksum is wrong"

    def test_vrfs_inside_and_outside_are_apart_from_each_other(self, pop):
        """The same addresses and SPIs may be in each VRF: here those of the VRF "default"."""
        carrier, red = 20, 30
        form = Form(1, "apart", "aes_gcm", (GCM, NO), 16, 4)
        inner, host = "10.30.0.1", "10.30.0.9"
        vrfs = {"Route": {"vrf": "red"}, "IpsecTunnel": {"vrf": "carrier"}, "SecurityAssociation": {"vrf": "carrier"}}
        objects = self.objects(form, **vrfs)
        for each in objects:
            each["spec"] |= {"vrf": "red"} if each["kind"] == "Interface" else {}
        places = [
            thing("Vrf", "carrier"),
            thing("Vrf", "red"),
            thing("Interface", "carrier", port="core", outerVlan=carrier, vrf="carrier", addresses=[f"{CORE4}/24"]),
            thing("Neighbor", "carrier", interface="carrier", address=HOST4, mac=HOST_MAC),
            thing("Interface", "red", port="core", outerVlan=red, vrf="red", addresses=[f"{inner}/24"]),
            thing("Neighbor", "red", interface="red", address=host, mac=HOST_MAC),
        ]

        def send(vlan, packet):
            pop.core.send(bytes(Ether(src=HOST_MAC, dst=CORE_MAC) / Dot1Q(vlan=vlan) / packet))

        def at(vlan, kind):
            def match(raw):
                frame = Ether(raw)
                return frame[IP] if Dot1Q in frame and frame[Dot1Q].vlan == vlan and kind in frame else None

            return pop.core.expect(match, 20)

        with pop.having(*places, *objects):
            sent = IP(src=host, dst=form.host4) / UDP(sport=1024, dport=7) / Raw(b"payload")
            send(red, sent)
            outer = at(carrier, ESP)
            assert (outer.src, outer.dst, outer[ESP].spi) == (CORE4, HOST4, form.spi("outbound"))
            assert bytes(form.open(outer)) == older(sent)
            back = IP(src=form.host4, dst=host) / UDP(sport=7, dport=1024) / Raw(b"payload")
            send(carrier, form.seal(back))
            got = at(red, UDP)
            assert bytes(IP(bytes(got)[: got.len])) == older(back)
            # In the VRF "default" the SPI is another association's, whose window has nothing to do with this one.
            plain = down(PLAIN, 4)
            pop.send_down(PLAIN.seal(plain))
            assert bytes(pop.at_line(IPOE, lambda packet: UDP in packet)) == older(plain)
            # The SPI is one of the VRF "default": another VRF does not know it.
            with pop.dropping("esp-unknown-spi"):
                send(carrier, BY_NAME["gcm256"].seal(down(BY_NAME["gcm256"], 4)))


OPTIONS = [("MSS", 1460), ("NOP", None), ("WScale", 7)]


class TestSessions:
    """Security associations as the access of a remote user's session, and as the core of a subscriber's."""

    def without_interface(self, form):
        return [each for each in form.objects() if each["kind"] in ("IpsecTunnel", "SecurityAssociation")]

    @pytest.mark.parametrize("outside", [4, 6])
    def test_a_remote_user_is_a_session_with_a_policy_and_counters(self, pop, outside):
        form = Form(70, "user", "aes_gcm", (GCM, NO), 16, 4, outside=outside)
        user = thing(
            "Session",
            "user",
            access={"ipsecTunnel": "user"},
            addresses=[f"{form.host4}/32", form.network6],
            policy={"aclUp": "no-discard", "meterDown": "small"},
        )
        rules = [{"action": "deny", "protocol": "udp", "destinationPorts": "9"}, {"action": "permit"}]
        policy = [
            thing("Acl", "no-discard", rules=rules),
            thing("Meter", "small", committedRate="8K", committedBurst="1500"),
        ]
        with pop.having(*self.without_interface(form), *policy, user):
            for inside in (4, 6):
                sent = down(form, inside)
                pop.send_down(form.seal(sent))
                got = pop.at_line(IPOE, lambda packet: UDP in packet and packet[UDP].dport == 1024)
                assert bytes(got) == older(sent)
                sent = up(form, inside)
                pop.send_up(IPOE, sent)
                assert bytes(form.open(pop.at_core(from_tunnel(form)))) == older(sent)
            stolen = down(form, 4)
            stolen.src = "10.70.0.10"
            with pop.dropping("session-source", 1, "--session", "user"):
                pop.send_down(form.seal(stolen))
            discard = down(form, 4)
            discard[UDP].dport = 9
            with pop.dropping("acl-denied", 1, "--session", "user"):
                pop.send_down(form.seal(discard))
            with pop.dropping("meter-red", 1, "--session", "user"):
                for _ in range(3):
                    pop.send_up(IPOE, up(form, 4, b"x" * 1200))
            with Connection(pop.gateway.dataplane_socket) as connection:
                counters = connection.read(api.SessionCountersQuery(sessions=["user"])).sessions[0]
            assert (counters.up_packets, counters.drops >= 3) == (2, True)

    @pytest.mark.parametrize("outside", [4, 6])
    @pytest.mark.parametrize("line", [IPOE, PPPOE], ids=lambda line: line.name)
    def test_a_subscriber_s_packets_go_into_a_tunnel_and_come_back_from_it(self, pop, line, outside):
        form = Form(71, "site", "aes_gcm", (GCM, NO), 16, 4, outside=outside)
        with contextlib.ExitStack() as stack:
            if line == IPOE:
                pop.gateway.delete("Session", line.name)
                stack.callback(lambda: (pop.apply(session(IPOE)), pop.learn(IPOE)))
            stack.enter_context(pop.having(*self.without_interface(form), session(line, ipsec={"tunnel": "site"})))
            for inside in (4, 6):
                sent = udp_up(line, inside)
                pop.send_up(line, sent)
                assert bytes(form.open(pop.at_core(from_tunnel(form)))) == older(sent)
                sent = udp_down(line, inside)
                pop.send_down(form.seal(sent))
                got = pop.at_line(line, lambda packet: UDP in packet and packet[UDP].dport == 1024)
                assert bytes(got) == older(sent)
            other = udp_down(line)
            other.dst = "100.64.9.9"
            with pop.dropping("ipsec-wrong-destination", 1, "--session", line.name):
                pop.send_down(form.seal(other))
            # The sender of a packet with DF gets the size that fits into the tunnel.
            large = udp_up(line, payload=b"z" * 1440, flags="DF")
            pop.send_up(line, large)
            error = pop.at_line(line, lambda packet: ICMP in packet)
            assert (error[ICMP].type, error[ICMP].code) == (3, 4)


class Policy:
    """An entry of the database of interface "core" with a pair of associations, and the peer's side of them."""

    def __init__(self, number, mode="tunnel_mode", outside=4, spec=None, **selector):
        spec = {"outside": outside, "mode": mode} | (spec or {})
        self.form = Form(number, f"policy-{number}", "aes_gcm", (GCM, NO), 16, 4, **spec)
        self.name, self.number, self.selector = self.form.name, number, selector
        if mode == "transport_mode":
            for each in self.form.peers.values():
                each.tunnel_header = None
        self.open, self.seal = self.form.open, self.form.seal

    def objects(self):
        entry = {"interface": "core", "priority": self.number, "selectors": [self.selector]}
        pair = [self.form.association(each) for each in ("outbound", "inbound")]
        for each in pair:
            each["spec"] |= {"policy": each["spec"].pop("tunnel")}
        return [thing("SecurityPolicy", self.name, **entry), *pair]


class TestPolicies:
    SITE = Policy(80, remote="10.80.0.0/16")
    RANGE = Policy(90, remote="198.51.100.10/32", remoteLast="198.51.100.12")
    PORTS = Policy(95, remote="10.95.0.0/16", protocol="udp", remotePorts="7777")
    HOSTS4 = Policy(85, "transport_mode", local=f"{CORE4}/32", remote=f"{HOST4}/32")
    HOSTS6 = Policy(86, "transport_mode", 6, local=f"{CORE6}/128", remote=f"{HOST6}/128")
    DISCARD = thing(
        "SecurityPolicy",
        "no-discard",
        interface="core",
        priority=10,
        action="discard",
        selectors=[{"protocol": "udp", "remotePorts": "9"}],
    )

    @pytest.fixture(scope="class")
    def spd(self, pop):
        protected = [self.SITE, self.RANGE, self.PORTS, self.HOSTS4, self.HOSTS6]
        with pop.having(self.DISCARD, *(each for policy in protected for each in policy.objects())):
            yield pop

    def to(self, address, port=7):
        return IP(src=IPOE.ip4, dst=address) / UDP(sport=1024, dport=port) / Raw(b"payload")

    def back(self, packet):
        return IP(src=packet.dst, dst=packet.src) / UDP(sport=packet.dport, dport=1024) / Raw(b"payload")

    def of(self, policy):
        return from_tunnel(policy.form)

    @pytest.mark.parametrize(
        "policy, address", [(SITE, "10.80.0.9"), (RANGE, "198.51.100.12"), (RANGE, "198.51.100.10")]
    )
    def test_protected_packets_go_through_the_policys_associations(self, spd, policy, address):
        sent = self.to(address)
        spd.send_up(IPOE, sent)
        assert bytes(policy.open(spd.at_core(self.of(policy)))) == older(sent)
        answer = self.back(sent)
        spd.send_down(policy.seal(answer))
        assert bytes(spd.at_line(IPOE, lambda packet: UDP in packet)) == older(answer)
        with spd.dropping("ipsec-unprotected"):
            spd.send_down(answer)

    def test_packets_without_a_policy_are_in_clear_text(self, spd):
        sent = self.to("198.51.100.13")
        spd.send_up(IPOE, sent)
        assert bytes(spd.at_core(lambda packet: UDP in packet)) == older(sent)
        answer = self.back(sent)
        spd.send_down(answer)
        assert bytes(spd.at_line(IPOE, lambda packet: UDP in packet)) == older(answer)

    def test_a_policy_discards_both_ways(self, spd):
        with spd.dropping("ipsec-policy-discard"):
            spd.send_up(IPOE, self.to("10.80.0.9", port=9))
        with spd.dropping("ipsec-policy-discard"):
            spd.send_down(self.back(self.to("198.51.100.13", port=9)))

    def test_an_association_carries_only_packets_of_its_policy(self, spd):
        with spd.dropping("ipsec-policy-mismatch"):
            spd.send_down(self.RANGE.seal(self.back(self.to("10.80.0.9"))))
        with spd.dropping("ipsec-policy-mismatch"):
            spd.send_down(self.SITE.seal(self.back(self.to("198.51.100.13"))))

    def test_a_fragment_does_not_pass_in_clear_text_by_a_policy_with_ports(self, spd):
        first, later = fragment(self.to("10.95.0.9", port=7777) / Raw(b"x" * 1000), 600)
        spd.send_up(IPOE, first)
        assert self.PORTS.open(spd.at_core(self.of(self.PORTS))).flags.MF
        with spd.dropping("ipsec-policy-fragment"):
            spd.send_up(IPOE, later)

    def test_fragments_for_the_gateway_are_judged_when_the_packet_is_whole(self, spd):
        """An entry for all packets discards those in clear text, and not ESP in fragments, in UDP or IPv6."""
        rest = thing("SecurityPolicy", "rest", interface="core", priority=1000, action="discard")
        in_udp = Policy(87, spec={"udp": {"localPort": 4500}}, remote="10.87.0.0/16")
        in_ip6 = Policy(88, outside=6, remote="10.88.0.0/16")
        with spd.having(rest, *in_udp.objects(), *in_ip6.objects()):
            for policy, address in ((self.SITE, "10.80.0.9"), (in_udp, "10.87.0.9"), (in_ip6, "10.88.0.9")):
                answer = self.back(self.to(address))
                answer[Raw].load = b"a" * 1200
                sealed = policy.seal(answer)
                if policy is in_ip6:
                    sealed = IPv6(src=HOST6, dst=CORE6) / IPv6ExtHdrFragment(id=7) / sealed[ESP]
                for piece in fragment(sealed, 600) if IP in sealed else fragment6(sealed, 600):
                    spd.send_down(piece)
                assert bytes(spd.at_line(IPOE, lambda packet: UDP in packet)) == older(answer)
            clear4 = IP(src=HOST4, dst=CORE4) / ICMP(id=7, seq=1) / Raw(b"p" * 1000)
            clear6 = IPv6(src=HOST6, dst=CORE6) / IPv6ExtHdrFragment(id=8) / ICMPv6EchoRequest(id=7, data=b"p" * 1000)
            for pieces in (fragment(clear4, 600), fragment6(clear6, 600)):
                with spd.dropping("ipsec-unprotected"):
                    for piece in pieces:
                        spd.send_down(piece)
            # Others' fragments are judged one by one.
            with spd.dropping("ipsec-policy-discard"), spd.dropping("ipsec-policy-fragment"):
                for piece in fragment(IP(src=HOST4, dst=IPOE.ip4) / UDP(dport=1024) / Raw(b"x" * 1000), 600):
                    spd.send_down(piece)

    def test_a_packet_that_does_not_fit_is_fragmented_before_encryption(self, spd):
        sent = IP(src=IPOE.ip4, dst="10.80.0.9") / UDP(sport=1024, dport=7) / Raw(b"z" * 1472)
        spd.send_up(IPOE, sent)
        pieces = [self.SITE.open(spd.at_core(self.of(self.SITE))) for _ in range(2)]
        assert sum(len(piece) - 20 for piece in pieces) == len(sent) - 20

    @pytest.mark.parametrize("version", [4, 6])
    def test_the_gateway_itself_speaks_in_transport_mode(self, spd, version):
        policy = self.HOSTS4 if version == 4 else self.HOSTS6
        for length in (1, 64, 1400):
            if version == 4:
                ping = IP(src=HOST4, dst=CORE4) / ICMP(id=7, seq=1) / Raw(b"p" * length)
            else:
                ping = IPv6(src=HOST6, dst=CORE6) / ICMPv6EchoRequest(id=7, seq=1, data=b"p" * length)
            spd.send_down(policy.seal(ping))
            pong = policy.open(spd.at_core(self.of(policy)))
            if version == 4:
                assert (pong.src, pong.dst, pong[ICMP].type, len(pong)) == (CORE4, HOST4, 0, len(ping))
            else:
                assert ICMPv6EchoReply in pong and (pong.src, pong.dst, len(pong)) == (CORE6, HOST6, len(ping))
        with spd.dropping("ipsec-unprotected"):
            spd.send_down(ping)

    def test_a_packet_without_an_association_is_reported_with_its_policy(self, spd):
        bare = thing("SecurityPolicy", "bare", interface="core", priority=70, selectors=[{"remote": "10.70.0.0/16"}])
        with spd.having(bare), hearing(spd) as hear, spd.dropping("ipsec-no-association"):
            spd.send_up(IPOE, self.to("10.70.0.9"))
            told = hear("ipsec_acquire")
            assert (told.tunnel, told.policy, told.destination) == ("", "bare", "10.70.0.9")

    def test_policies_may_be_many(self, spd):
        """More than take effect at once."""
        many = [
            thing(
                "SecurityPolicy",
                f"many-{n}",
                interface="core",
                priority=1000 + n,
                action="discard",
                selectors=[{"remote": f"10.99.{n}.0/24", "protocol": "udp", "remotePorts": "7"}],
            )
            for n in range(100)
        ]
        with spd.having(*many):
            with spd.dropping("ipsec-policy-discard"):
                wait_until(
                    lambda: spd.send_up(IPOE, self.to("10.99.99.1")) or spd.gateway.drops().get("ipsec-policy-discard"),
                    what="discarded",
                )
            spd.drain()
            spd.send_up(IPOE, self.to("10.80.0.9"))
            spd.at_core(self.of(self.SITE))


class TestReplacement:
    def test_an_association_is_replaced_under_traffic_and_no_packet_is_lost_or_reordered(self, pop):
        """Make before break, both ways: the new pair first, then the old one goes."""
        form = BY_NAME["gcm192"]
        new = Form(115, "gcm192-new", "aes_gcm", (GCM, NO), 24, 4)
        pair = {
            direction: thing(
                "SecurityAssociation",
                f"gcm192-new-{direction}",
                **of_direction(direction, new.association(direction)["spec"] | {"tunnel": form.name, "precedence": 1}),
            )
            for direction in ("inbound", "outbound")
        }
        got, senders, enough = [], [], threading.Event()

        def opened(packet):
            if ESP not in packet:
                return False
            for each in (form, new):
                if packet[ESP].spi == each.spi("outbound"):
                    got.append(bytes(each.open(packet)[Raw].load)[:5])
                    senders.append(each)
                    return True
            return False

        def traffic():
            """Eight packets on their way at any time."""
            sent = 0
            while not enough.is_set():
                for _ in range(8):
                    pop.send_up(IPOE, up(form, 4, b"%05d" % sent))
                    sent += 1
                for _ in range(8):
                    pop.at_core(opened)
            return sent

        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(traffic)
            try:
                wait_until(lambda: len(got) >= 16, what="traffic by the old association")
                pop.apply(pair["inbound"])
                pop.apply(pair["outbound"])
                wait_until(lambda: senders[-1] is new, what="traffic by the new association")
                pop.gateway.delete("SecurityAssociation", "gcm192-outbound")
                before = len(got)
                wait_until(lambda: len(got) >= before + 16, what="traffic without the old association")
            finally:
                enough.set()
            assert got == [b"%05d" % number for number in range(sent.result())]
        # Each flow changes to the new association once.
        assert senders == [form] * senders.count(form) + [new] * senders.count(new)
        # The peer still sends with the old one, then with the new one.
        for each in (form, new, form, new):
            pop.send_down(each.seal(down(form, 4)))
            pop.at_line(IPOE, lambda packet: UDP in packet)
        pop.gateway.delete("SecurityAssociation", "gcm192-inbound")
        pop.send_up(IPOE, up(form, 4))
        pop.at_core(from_tunnel(new))
        pop.send_down(new.seal(down(form, 4)))
        pop.at_line(IPOE, lambda packet: UDP in packet)


def kept(pop):
    """The sequence numbers in the file beside the data plane's socket: rows of 16, 8 and 8 bytes behind a head."""
    rows = struct.iter_unpack("16sQQ", Path(f"{pop.gateway.dataplane_socket}.sequences").read_bytes()[32:])
    return {sequence for _, sequence, used in rows if used}


def again(pop):
    pop.gateway.start_dataplane()
    kinds = ("ports", "interfaces", "sa", "sessions")
    wait_until(
        lambda: all(each["status"]["state"] == "applied" for kind in kinds for each in pop.gateway.json("get", kind)),
        what="applied",
    )
    pop.learn(IPOE)


def test_associations_return_with_a_new_dataplane(pop):
    """No sequence number is used or accepted again."""
    # The lowest one that no other association of this file has.
    received = PLAIN.seal(down(PLAIN, 4), seq_num=54321)
    pop.send_down(received)
    pop.at_line(IPOE, lambda packet: UDP in packet)
    pop.send_up(IPOE, up(PLAIN, 4))
    before = pop.at_core(from_tunnel(PLAIN))[ESP].seq
    # One that ends in order loses nothing.
    pop.gateway.dataplane.stop()
    again(pop)
    pop.send_up(IPOE, up(PLAIN, 4))
    assert pop.at_core(from_tunnel(PLAIN))[ESP].seq == before + 1
    with pop.dropping("esp-replay"):
        pop.send_down(received)
    received = PLAIN.seal(down(PLAIN, 4), seq_num=54322)
    pop.send_down(received)
    pop.at_line(IPOE, lambda packet: UDP in packet)
    wait_until(lambda: 54322 in kept(pop), what="the received number is in the file")
    pop.gateway.dataplane.kill()
    again(pop)
    sent = up(PLAIN, 4)
    pop.send_up(IPOE, sent)
    outer = pop.at_core(from_tunnel(PLAIN))
    assert before + 1 < outer[ESP].seq < before + (1 << 25)
    assert bytes(PLAIN.open(outer)) == older(sent)
    with pop.dropping("esp-replay"):
        pop.send_down(received)
    sent = down(PLAIN, 4)
    pop.send_down(PLAIN.seal(sent, seq_num=54323))
    assert bytes(pop.at_line(IPOE, lambda packet: UDP in packet)) == older(sent)


class TestWorkers:
    """One association on two workers: the flows inside are spread over them."""

    PACKETS = 400

    @pytest.fixture(scope="class")
    def two(self):
        with Lab() as lab:
            form = Form(70, "heavy", "aes_gcm", (GCM, NO), 16, 4, replayWindow=1024)
            routing = lab.namespace("routing")
            base = base_of()
            core = next(each for each in base if each["kind"] == "Port" and each["metadata"]["name"] == "core")
            core["spec"]["twin"] = {"name": "core-twin", "namespace": routing.name}
            made = Pop(lab, session(IPOE), *form.objects(), base=base, workers=2)
            made.routing = routing
            made.learn(IPOE)
            yield made, form

    def test_no_sequence_number_is_used_twice_and_no_packet_is_lost(self, two):
        pop, form = two
        for number in range(self.PACKETS):
            packet = up(form, 4, b"%03d" % number)
            packet[UDP].sport = 2000 + number
            pop.send_up(IPOE, packet)
        sequences, payloads = set(), set()
        for _ in range(self.PACKETS):
            outer = pop.at_core(from_tunnel(form))
            sequences.add(outer[ESP].seq)
            payloads.add(bytes(form.open(outer)[Raw].load)[:3])
        assert len(sequences) == len(payloads) == self.PACKETS

    def test_every_packet_is_received_once(self, two):
        pop, form = two
        pop.drain()
        sealed = [form.seal(down(form, 4, b"%03d" % number)) for number in range(self.PACKETS)]
        before = pop.gateway.drops().get("esp-replay", 0)
        for each in sealed:
            pop.send_down(each)
            pop.send_down(each)
        got = [bytes(pop.at_line(IPOE, lambda packet: UDP in packet)[Raw].load)[:3] for _ in sealed]
        assert sorted(got) == [b"%03d" % number for number in range(self.PACKETS)]
        pop.gateway.dropped("esp-replay", 20, before + self.PACKETS - 1)
        assert states(pop, "heavy-inbound")["heavy-inbound"].replays == self.PACKETS

    def test_a_daemon_behind_a_port_s_twin_speaks_through_a_policy(self, two):
        """The gateway's own BGP or RADIUS, for example."""
        pop, _ = two
        policy = Policy(85, "transport_mode", local=f"{CORE4}/32", remote=f"{HOST4}/32")
        routing = pop.routing
        wait_until(lambda: CORE4 in routing.ip("-br", "address", "show", "dev", "core-twin").stdout)
        routing.ip("neighbor", "replace", HOST4, "lladdr", HOST_MAC, "dev", "core-twin")
        with pop.having(*policy.objects()), routing.inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as daemon:
            daemon.settimeout(20)
            daemon.bind((CORE4, 1812))
            for size in (1, 1400, 1472):
                daemon.sendto(b"q" * size, (HOST4, 1813))
                outer = pop.at_core(from_tunnel(policy.form))
                if outer.flags.MF:
                    outer = defragment([outer, pop.at_core(lambda packet: packet[IP].frag)])[0]
                question = policy.open(IP(bytes(outer)))
                assert (question[UDP].dport, bytes(question[UDP].payload)) == (1813, b"q" * size)
                answer = IP(src=HOST4, dst=CORE4) / UDP(sport=1813, dport=1812) / Raw(b"a" * size)
                pop.send_down(policy.seal(answer))
                assert daemon.recv(2000) == b"a" * size


class TestMemory:
    """A tunnel in the data plane: IpsecTunnel, Interface, Route and two associations with a window of 1,024."""

    # Memory comes in pages of 2 MiB, so that a few tunnels seem to take more than many: with 4,000 it is 5 KB.
    TUNNELS, MOST = 1500, 8 * 1024

    def objects(self, number):
        name, ends = f"t-{number}", {"localAddress": CORE4, "remoteAddress": HOST4}
        prefix = f"10.{number // 256}.{number % 256}.0/24"
        sa = ends | {"tunnel": name, "encryptionKey": f"{number:072x}"}
        return [
            thing("IpsecTunnel", name, **ends),
            thing("Interface", name, ipsecTunnel=name),
            thing("Route", name, prefix=prefix, nextHops=[{"interface": name}]),
            thing(
                "SecurityAssociation", f"{name}-in", direction="INBOUND", spi=100_000 + number, replayWindow=1024, **sa
            ),
            thing("SecurityAssociation", f"{name}-out", direction="OUTBOUND", spi=200_000 + number, **sa),
        ]

    def resident(self, process):
        with open(f"/proc/{process.pid}/smaps_rollup") as rollup:
            return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Rss"))

    def test_a_tunnel_takes_little_memory(self):
        with Lab() as lab:
            pop = Pop(lab)
            pop.gateway.agent.kill()
            with Connection(pop.gateway.dataplane_socket) as connection:
                before = self.resident(pop.gateway.dataplane)
                for first in range(0, self.TUNNELS, 100):
                    batch = [each for number in range(first, first + 100) for each in self.objects(number)]
                    assert all(result.code == 0 for result in connection.put(*batch))
                after = self.resident(pop.gateway.dataplane)
            assert (after - before) / self.TUNNELS < self.MOST, f"{(after - before) / self.TUNNELS} bytes"
