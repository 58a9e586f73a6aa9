# SPDX-License-Identifier: Apache-2.0
"""Home gateways with bugs that operators meet: each comes up all the same, and its traffic passes."""

import ipaddress
import struct

import pytest
from lab import Gateway, Wire, frames, thing
from lab.dhcp import Client, options_of
from lab.laboratory import wait_until
from lab.pppoe import (
    ACK,
    CHAP,
    COOKIE,
    ECHO,
    ECHOED,
    HOST_UNIQ,
    IPCP,
    IPV6CP,
    LCP,
    MAX_PAYLOAD,
    NAK,
    PADI,
    PADO,
    PADR,
    PADS,
    PADT,
    PAP,
    REJECT,
    REQUEST,
    SERVICE_NAME,
    Host,
    option,
    tag,
)
from scapy.all import BOOTP, DHCP, ICMP, IP, UDP, Ether, Raw
from scapy.layers.dhcp6 import (
    DUID_EN,
    DUID_LLT,
    DUID_UUID,
    DHCP6_Confirm,
    DHCP6_InfoRequest,
    DHCP6_Rebind,
    DHCP6_Renew,
    DHCP6_Reply,
    DHCP6OptIA_NA,
    DHCP6OptIA_PD,
    DHCP6OptIA_TA,
    DHCP6OptIAAddress,
    DHCP6OptIAPrefix,
    DHCP6OptServerId,
    DHCP6OptUnknown,
)

ACCESS_MAC, CORE_MAC = "02:00:00:00:aa:01", "02:00:00:00:aa:02"
GATEWAY4, GATEWAY6 = "100.64.0.1", "2001:db8:64::1"
CORE4, SERVER4 = "192.0.2.1", "192.0.2.2"
END_OF_LIST = b"\0\0\0\0"


class Site:
    def __init__(self, lab):
        self.clients, self.inside, self.servers = (lab.namespace(each) for each in ("clients", "inside", "servers"))
        # 1,508 bytes behind the tags are RFC 4638's.
        for ours, other, theirs in (("acc0", self.clients, "line"), ("core0", self.servers, "uplink")):
            self.inside.link(ours, other, theirs)
            self.inside.silent(ours)
        self.servers.ip("addr", "add", f"{SERVER4}/24", "dev", "uplink")
        self.servers.ip("route", "add", "default", "via", CORE4)
        self.gateway = Gateway(lab, self.inside)
        pppoe = {"port": "access", "innerVlans": ["1-4094"], "profile": "home", "discoveryRatePerMac": 200}
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac=ACCESS_MAC, mtu=1508),
            thing("Port", "core", device="net_af_packet1,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32", f"{GATEWAY6}/128"]),
            thing("Interface", "core", port="core", addresses=[f"{CORE4}/24"]),
            thing("AddressPool", "home", ranges=["100.64.1.0/24"], gateway=GATEWAY4, dns=["192.0.2.53"]),
            thing("AddressPool", "links", ranges=["2001:db8:100::/40"], prefixLength=64),
            thing(
                "SubscriberProfile", "home", authentication=["local", "none"], ipv4Pools=["home"], ipv6Pools=["links"]
            ),
            thing("AddressPool", "hosts", ranges=["2001:db8:64::/64"], excluded=[GATEWAY6]),
            thing("AddressPool", "homes", ranges=["2001:db8:6400::/40"], prefixLength=56),
            thing("SubscriberProfile", "six", authentication=["none"], ipv6Pools=["hosts"], delegatedPools=["homes"]),
            thing("IpoeServer", "lan6", port="access", outerVlans=["201"], innerVlans=["1-4094"], profile="six"),
            thing("LocalUser", "alice", username="alice", password="alice-secret"),
            thing("PppoeServer", "lines", outerVlans=["100-109"], echoInterval="1s", **pppoe),
            thing("PppoeServer", "large", outerVlans=["110"], mru=1500, **pppoe),
            thing("IpoeServer", "lan", port="access", outerVlans=["200"], innerVlans=["1-4094"], profile="home"),
        )
        wait_until(lambda: len(self.gateway.json("get", "punts") or []) == 6)
        self.wire = Wire(self.clients, "line")
        lab.on_close(self.wire.close)
        wait_until(Client(self.wire, "02:00:00:00:0f:01", 200, 4000).offered4, 60, "the agent answers")
        self.number = 0

    def host(self, kind=Host, outer=100, **options):
        self.number += 1
        mac = f"02:00:00:00:07:{self.number:02x}"
        return kind(self.wire, mac, outer, self.number, username="alice", password="alice-secret", **options)

    def client(self, outer=200, **options):
        self.number += 1
        return Client(self.wire, f"02:00:00:00:08:{self.number:02x}", outer, self.number, **options)


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


class Asks(Host):
    """Its first Configure-Requests have these options; it leaves out rejected ones, and takes offered values."""

    first: dict = {}
    obstinate = ()

    def reset(self):
        super().reset()
        self.wishes = {protocol: list(options) for protocol, options in self.first.items()}
        self.rejected = {}

    def request(self, protocol):
        if protocol not in self.wishes:
            super().request(protocol)
            return
        self.id += 1
        self.asked[protocol] = self.id
        self.packet(protocol, REQUEST, self.id, b"".join(option(*each) for each in self.wishes[protocol]))

    def negotiate(self, protocol, code, number, data):
        if protocol not in self.wishes or code not in (NAK, REJECT) or number != self.asked.get(protocol):
            super().negotiate(protocol, code, number, data)
            return
        answered = dict(self.options(data))
        if code == REJECT:
            self.rejected.setdefault(protocol, []).extend(answered)
            self.wishes[protocol] = [each for each in self.wishes[protocol] if each[0] not in answered]
        elif protocol not in self.obstinate:
            known = dict(self.wishes[protocol]) | answered
            self.wishes[protocol] = list(known.items())
            if protocol == IPCP and 3 in known:
                self.address = known[3]
        self.request(protocol)

    @staticmethod
    def options(data):
        at = 0
        while at + 2 <= len(data):
            yield data[at], data[at + 2 : at + data[at + 1]]
            at += data[at + 1]


def mru(size):
    return 1, struct.pack("!H", size)


class MagicZero(Asks):
    """A magic number of 0, which RFC 1661 does not allow."""

    first = {LCP: [mru(1492), (5, bytes(4))]}


class MagicZeroForEver(MagicZero):
    obstinate = (LCP,)


class NoOptions(Asks):
    """LCP without any option."""

    first = {LCP: []}


class Compresses(Asks):
    """Compression of fields, callback and an asynchronous character map, which are no matter of PPPoE."""

    first = {LCP: [mru(1492), (5, b"abcd"), (7, b""), (8, b""), (2, bytes(4)), (13, b"\x06")]}


class VanJacobson(Asks):
    """VJ compression, the addresses option of before 1992, and name servers of NetBIOS."""

    first = {
        IPCP: [
            (2, b"\x00\x2d\x0f\x01"),
            (1, bytes(8)),
            (3, bytes(4)),
            (129, bytes(4)),
            (130, bytes(4)),
            (132, bytes(4)),
        ]
    }


class NameServersZero(Asks):
    """It asks for two name servers by 0.0.0.0, where there is one, and asks for both again."""

    first = {IPCP: [(3, bytes(4)), (129, bytes(4)), (131, bytes(4))]}


class OwnAddress(Asks):
    """It asks for the address that it had at another provider."""

    first = {IPCP: [(3, bytes([10, 0, 0, 1]))]}


class LargeMRU(Asks):
    """1,500 bytes without PPP-Max-Payload."""

    first = {LCP: [mru(1500), (5, b"abcd")]}


class IdentifierZero(Asks):
    """IPv6CP with an interface identifier of 0 is how a host asks for one."""

    first = {IPV6CP: [(1, bytes(8))]}


class Deaf(Host):
    """It drops the first Configure-Request of each protocol: it is not ready when PADS comes."""

    def reset(self):
        super().reset()
        self.ignored = set()

    def negotiate(self, protocol, code, number, data):
        if code == REQUEST and protocol not in self.ignored:
            self.ignored.add(protocol)
            return
        super().negotiate(protocol, code, number, data)


class WrongIdentifier(Host):
    """Its first answer to a CHAP challenge has the identifier of another."""

    def receive_chap(self, code, number, data):
        if code == 1:
            self.packet(CHAP, 2, (number + 1) % 256, bytes([16]) + bytes(16) + self.username)
        super().receive_chap(code, number, data)


class Sorts(Host):
    """It sorts the options that it acknowledges."""

    def negotiate(self, protocol, code, number, data):
        if code == REQUEST and protocol == LCP and 3 in dict(Asks.options(data)):
            offered = sorted(Asks.options(data), reverse=True)
            if dict(offered)[3] == b"\xc0\x23":
                self.peer_magic = dict(offered).get(5)
                self.acked.add(LCP)
                self.packet(LCP, ACK, number, b"".join(option(*each) for each in offered))
                return
        super().negotiate(protocol, code, number, data)


class PaddingCounted(Host):
    """PPPoE's length includes the padding of Ethernet; each PPP packet has a length of its own."""

    def ppp(self, protocol, payload):
        payload = payload + bytes(max(0, 46 - 8 - len(payload)))
        super().ppp(protocol, payload)


class Padded(Host):
    """Frames are padded to 60 bytes with garbage."""

    def ethernet(self, ethertype, payload, destination=None):
        raw = super().ethernet(ethertype, payload, destination)
        return raw + b"\x55" * max(0, 60 - len(raw))


class EchoesEarly(Host):
    """LCP echoes before LCP is open, and IPCP before it is authenticated."""

    def request(self, protocol):
        if protocol == LCP:
            self.packet(LCP, ECHO, 99, self.magic)
            self.packet(IPCP, REQUEST, 98, option(3, bytes(4)))
        super().request(protocol)


class Repeats(Host):
    """Each of its packets comes twice."""

    def ppp(self, protocol, payload):
        super().ppp(protocol, payload)
        super().ppp(protocol, payload)


class PasswordsAgain(Host):
    """It sends its password again when IPCP begins: the answer was lost."""

    def request(self, protocol):
        if protocol == IPCP:
            self.packet(PAP, 1, 1, bytes([5]) + b"alice" + bytes([12]) + b"alice-secret")
        super().request(protocol)


class EchoesWithMagicZero(Host):
    """It answers LCP echoes with a magic number of 0, whatever it negotiated."""

    def packet(self, protocol, code, number, data=b""):
        if protocol == LCP and code == ECHOED:
            data = bytes(4) + data[4:]
        super().packet(protocol, code, number, data)


KINDS = [
    MagicZero,
    MagicZeroForEver,
    NoOptions,
    Compresses,
    VanJacobson,
    NameServersZero,
    OwnAddress,
    LargeMRU,
    Deaf,
    WrongIdentifier,
    Sorts,
    PaddingCounted,
    Padded,
    EchoesEarly,
    Repeats,
    PasswordsAgain,
    EchoesWithMagicZero,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_host_with_a_bug_is_up_and_its_traffic_passes(site, kind):
    host = site.host(kind, method="chap" if kind is WrongIdentifier else "pap")
    assert host.dial(IPCP)
    assert ipaddress.ip_address(host.address) in ipaddress.ip_network("100.64.1.0/24")
    host.ping(SERVER4, 1)
    if kind is Compresses:
        assert sorted(host.rejected[LCP]) == [2, 7, 8, 13]
    if kind is VanJacobson:
        assert sorted(host.rejected[IPCP]) == [1, 2, 130, 132]
    # The data plane probes it, whatever it negotiated.
    host.echoes = 0
    # Three without an answer would end the session.
    enough = 5 if kind is EchoesWithMagicZero else 1
    host.until(lambda: host.echoes >= enough, "an echo is asked for")
    host.ping(SERVER4, 2)
    host.hang_up()


def test_an_interface_identifier_of_zero_asks_for_one(site):
    host = site.host(IdentifierZero)
    assert host.dial(IPCP, IPV6CP)
    assert dict(host.wishes[IPV6CP])[1] != bytes(8)
    host.hang_up()


DISCOVERIES = {
    "service-name-missing": (b"", b""),
    "host-uniq-empty": (tag(SERVICE_NAME) + tag(HOST_UNIQ), tag(SERVICE_NAME) + tag(HOST_UNIQ)),
    "end-of-list-and-padding": (tag(SERVICE_NAME) + END_OF_LIST + b"\x55" * 9, tag(SERVICE_NAME) + END_OF_LIST),
    "tags-of-the-server": (tag(SERVICE_NAME), tag(SERVICE_NAME) + tag(0x0102, b"sluice")),
    "unknown-tag": (tag(0x4242, b"x") + tag(SERVICE_NAME), tag(SERVICE_NAME) + tag(0x4242, b"x")),
}


@pytest.mark.parametrize("case", DISCOVERIES)
def test_discovery_takes_tags_as_hosts_write_them(site, case):
    padi, padr = DISCOVERIES[case]
    host = site.host()
    host.discovery(PADI, padi, destination=frames.mac_bytes("ff:ff:ff:ff:ff:ff"))
    host.until(lambda: PADO in host.discovered, "PADO")
    host.server, _, offered = host.discovered[PADO]
    cookie = tag(COOKIE, dict(offered)[COOKIE])
    # It comes twice, as a host repeats it without a quick answer: there is one session.
    for _ in range(2):
        host.discovered.pop(PADS, None)
        host.discovery(PADR, cookie + padr)
        host.until(lambda: PADS in host.discovered, "PADS")
        assert host.session in (0, host.discovered[PADS][1])
        host.session = host.discovered[PADS][1]
    assert host.session
    host.link()
    assert host.authenticate()
    # PADT without a tag, to the broadcast address.
    host.discovery(PADT, b"", host.session)
    wait_until(lambda: not site.gateway.json("subscriber", "list", "--mac", frames.mac_text(host.mac)))


def test_a_host_that_lost_power_silently_is_back_at_once(site):
    host = site.host()
    assert host.dial(IPCP)
    first = host.session
    assert host.dial(IPCP)
    assert host.session != first
    host.ping(SERVER4, 1)
    (found,) = site.gateway.json("subscriber", "list", "--mac", frames.mac_text(host.mac))
    assert found["pppoeSessionId"] == host.session
    host.hang_up()


@pytest.mark.parametrize("payload", [1500, 0], ids=["asked-for", "not-asked-for"])
def test_an_mru_of_1500_passes_whole_packets_where_the_host_asks_for_it(site, payload):
    host = site.host(outer=110, mru=1500 if payload else 1492)
    host.reset()
    host.discover(*([tag(MAX_PAYLOAD, struct.pack("!H", payload))] if payload else []))
    offered = dict(host.discovered[PADS][2])
    assert (offered.get(MAX_PAYLOAD) == b"\x05\xdc") == bool(payload)
    host.link()
    assert host.authenticate()
    host.request(IPCP)
    host.until(lambda: host.open(IPCP), "IPCP is open")
    size = payload or 1492
    packet = bytes(IP(src=host.ip4(), dst=SERVER4, flags="DF") / ICMP(id=7, seq=5) / bytes(size - 28))
    host.ppp(0x0021, packet)
    host.until(lambda: 5 in host.replies, f"{size} bytes there and back")
    # One byte more is too much for the way back, and the sender gets an error.
    site.servers.run("ip", "route", "flush", "cache")
    done = site.servers.run("ping", "-c", "1", "-W", "2", "-M", "do", "-s", str(size - 28 + 1), host.ip4(), check=False)
    assert done.returncode != 0
    host.hang_up()


# ---- DHCP clients.


def discover(client, *options, raw=None, **fields):
    """A DISCOVER; `raw` changes the bytes of its UDP payload."""
    bootp = BOOTP(chaddr=frames.mac_bytes(client.mac), xid=client.xid, **fields)
    payload = bytes(bootp / DHCP(options=[("message-type", "discover"), *options, "end"]))
    payload = raw(payload) if raw else payload
    packet = IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=67) / payload
    client.wire.send(client.frame(packet))


SERVED = {
    "without-client-id": {},
    "client-id-of-another-form": {"options": [("client_id", b"\xff\0\0\0\x01\0\x01abcdefgh")]},
    "padded": {"raw": lambda b: b + bytes(64)},
    "as-short-as-it-can-be": {"raw": lambda b: b.rstrip(b"\0")},
    "bytes-behind-the-end-option": {"raw": lambda b: b + b"\x35\x01\x07garbage"},
    "secs-all-ones": {"secs": 0xFFFF},
    "address-of-another-network-asked-for": {"options": [("requested_addr", "192.168.1.2")]},
    "maximum-message-size-too-small": {"options": [("max_dhcp_size", 300)]},
    "hostname-empty": {"options": [("hostname", b"")]},
    "pad-options": {"raw": lambda b: b[:240] + bytes(7) + b[240:]},
}


@pytest.mark.parametrize("case", SERVED)
def test_a_client_with_a_bug_gets_a_lease(site, case):
    client = site.client()
    how = dict(SERVED[case])
    discover(client, *how.pop("options", []), **how)
    offer = client.answer4(2)
    options = options_of(offer)
    # It names the address alone, without the server's.
    client.send4("request", ("requested_addr", offer[BOOTP].yiaddr), ("server_id", options["server_id"]))
    ack = client.answer4(5, 6)
    assert options_of(ack)["message-type"] == 5 and ack[BOOTP].yiaddr == offer[BOOTP].yiaddr
    assert len(bytes(ack[BOOTP])) >= 300


@pytest.mark.parametrize("broadcast", [True, False])
def test_the_broadcast_flag_decides_the_address_of_the_answer(site, broadcast):
    client = site.client()
    discover(client, flags=0x8000 if broadcast else 0)
    offer = client.answer4(2)
    assert (offer[Ether].dst == "ff:ff:ff:ff:ff:ff") == broadcast
    assert (offer[IP].dst == "255.255.255.255") == broadcast


def test_a_client_that_forgot_its_server_is_served_when_it_begins_again(site):
    client = site.client()
    address = client.ask4()[BOOTP].yiaddr
    # INIT-REBOOT: no server identifier, no ciaddr.
    client.send4("request", ("requested_addr", address))
    assert options_of(client.answer4(5, 6))["message-type"] == 5
    # Renewing by broadcast, with both addresses.
    client.send4("request", ("requested_addr", address), ciaddr=address, source=address)
    assert options_of(client.answer4(5, 6))["message-type"] == 5
    # The same transaction identifier for everything, and a DISCOVER while it has a lease.
    client.send4("discover")
    assert client.answer4(2)[BOOTP].yiaddr == address


HINT = DHCP6OptIAAddress(addr="2001:db8:bad::7", preflft=0xFFFFFFFF, validlft=0xFFFFFFFF)
# Options of SOLICIT and REQUEST besides the client identifier, and fields of the client.
SERVED6 = {
    "without-elapsed-time": {},
    "iaid-of-zero-and-of-all-ones": {"options": [DHCP6OptIA_NA(iaid=0), DHCP6OptIA_PD(iaid=0xFFFFFFFF)]},
    "times-of-its-own": {"options": [DHCP6OptIA_NA(iaid=1, T1=0xFFFFFFFF, T2=1), DHCP6OptIA_PD(iaid=1, T1=7, T2=3)]},
    "address-of-another-network": {"options": [DHCP6OptIA_NA(iaid=1, ianaopts=[HINT]), DHCP6OptIA_PD(iaid=2)]},
    "address-unspecified": {
        "options": [DHCP6OptIA_NA(iaid=1, ianaopts=[DHCP6OptIAAddress(addr="::")]), DHCP6OptIA_PD(iaid=2)]
    },
    "prefix-length-alone": {
        "options": [
            DHCP6OptIA_NA(iaid=1),
            DHCP6OptIA_PD(iaid=2, iapdopt=[DHCP6OptIAPrefix(prefix="::", plen=64)]),
        ]
    },
    "prefix-length-of-zero": {
        "options": [
            DHCP6OptIA_NA(iaid=1),
            DHCP6OptIA_PD(iaid=2, iapdopt=[DHCP6OptIAPrefix(prefix="::", plen=0)]),
        ]
    },
    "prefix-before-address": {"options": [DHCP6OptIA_PD(iaid=1), DHCP6OptIA_NA(iaid=1)]},
    "temporary-addresses-too": {"options": [DHCP6OptIA_NA(iaid=1), DHCP6OptIA_TA(iaid=1), DHCP6OptIA_PD(iaid=1)]},
    "two-of-each": {
        "options": [
            *(DHCP6OptIA_NA(iaid=number) for number in (1, 2)),
            *(DHCP6OptIA_PD(iaid=number) for number in (1, 2)),
        ]
    },
    "options-that-nobody-knows": {"more": [DHCP6OptUnknown(optcode=code, data=b"x" * 9) for code in (999, 65535)]},
    "empty-options": {"more": [DHCP6OptUnknown(optcode=code) for code in (6, 15, 16, 17, 39)]},
    "an-option-request-twice": {"more": [DHCP6OptUnknown(optcode=6, data=b"\0\x17\0\x18")] * 2},
    "duid-with-time": {"duid": DUID_LLT(timeval=1, lladdr="02:00:00:00:00:07")},
    "duid-of-a-vendor": {"duid": DUID_EN(enterprisenum=3561, id=b"serial 7")},
    "duid-of-a-uuid": {"duid": DUID_UUID(uuid="01234567-89ab-cdef-0123-456789abcdef")},
    "duid-of-no-kind": {"duid": Raw(b"\xff\xfe\x07")},
    "duid-of-the-longest": {"duid": Raw(b"\0\2" + bytes(126))},
    "hop-limit-of-64": {"hop_limit": 64},
    "port-of-a-server": {"port6": 547},
    "another-port": {"port6": 1024},
}


@pytest.mark.parametrize("case", SERVED6)
def test_a_dhcpv6_client_with_a_bug_gets_its_address_and_prefix(site, case):
    client = site.client(outer=201)
    how = dict(SERVED6[case])
    wanted = [*how.pop("options", [DHCP6OptIA_NA(iaid=1), DHCP6OptIA_PD(iaid=2)]), *how.pop("more", [])]
    for name, value in how.items():
        setattr(client, name, value)
    reply = client.ask6(*wanted)
    given = [each for each in found6(reply, DHCP6OptIAAddress) if each.validlft]
    prefixes = [each for each in found6(reply, DHCP6OptIAPrefix) if each.validlft]
    assert [ipaddress.ip_address(each.addr) in ipaddress.ip_network("2001:db8:64::/64") for each in given] == [True]
    assert [(each.prefix[:11], each.plen) for each in prefixes] == [("2001:db8:64", 56)]
    session = next(
        each["spec"]
        for each in site.gateway.json("get", "sessions")
        if each["spec"].get("access", {}).get("mac") == client.mac
    )
    assert set(session["addresses"]) == {f"{given[0].addr}/128", f"{prefixes[0].prefix}/56"}
    # It renews, and rebinds.
    for message, server in ((DHCP6_Renew, True), (DHCP6_Rebind, False)):
        client.xid6 += 1
        options = [DHCP6OptServerId(duid=reply[DHCP6OptServerId].duid)] if server else []
        client.send6(message(), *options, DHCP6OptIA_NA(iaid=1, ianaopts=[DHCP6OptIAAddress(addr=given[0].addr)]))
        again = client.answer6(DHCP6_Reply)
        assert given[0].addr in [each.addr for each in found6(again, DHCP6OptIAAddress) if each.validlft]


def found6(packet, kind):
    """All options of a kind, also those in others."""
    found, layer = [], packet
    while layer:
        if isinstance(layer, kind):
            found.append(layer)
        inner = [*layer.fields.get("ianaopts", []), *layer.fields.get("iapdopt", [])]
        found += [each for each in inner if isinstance(each, kind)]
        layer = layer.payload
    return found


def test_a_dhcpv6_client_that_kept_its_address_or_wants_none_is_answered(site):
    client = site.client(outer=201)
    address = found6(client.ask6(DHCP6OptIA_NA(iaid=1)), DHCP6OptIAAddress)[0].addr
    for kept, status in ((address, 0), ("2001:db8:bad::7", 4)):
        client.xid6 += 1
        client.send6(DHCP6_Confirm(), DHCP6OptIA_NA(iaid=1, ianaopts=[DHCP6OptIAAddress(addr=kept)]))
        reply = client.answer6(DHCP6_Reply)
        assert bytes(reply).endswith(bytes([0, 13, 0, 2, 0, status]))
    # It has an address, and asks for name servers alone.
    client.xid6 += 1
    client.send6(DHCP6_InfoRequest())
    assert DHCP6OptServerId in client.answer6(DHCP6_Reply)
