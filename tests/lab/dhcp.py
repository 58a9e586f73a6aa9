# SPDX-License-Identifier: Apache-2.0
"""DHCP servers (Kea) and clients (ISC dhclient, busybox udhcpc, scapy) in namespaces."""

import itertools
import json
import random

from scapy.all import BOOTP, DHCP, IP, UDP, Ether, IPv6
from scapy.layers.dhcp6 import (
    DUID_LL,
    DHCP6_Advertise,
    DHCP6_Release,
    DHCP6_Reply,
    DHCP6_Request,
    DHCP6_Solicit,
    DHCP6OptClientId,
    DHCP6OptIA_NA,
    DHCP6OptIA_PD,
    DHCP6OptServerId,
)

from .frames import mac_bytes
from .laboratory import wait_until

ALL = "ff:ff:ff:ff:ff:ff"
NUMBERS = itertools.count(1)


def hidden_options():
    """DHCPv4 messages whose options 82 or lengths are in another field, as (reason of the drop, options, fields)."""
    hidden = bytes([82, 3, 1, 1, ord("x"), 255])
    return {
        "options in sname": ("relay-information", [(52, b"\x02")], {"sname": hidden}),
        "options in file": ("relay-information", [(52, b"\x01")], {"file": hidden}),
        "an option that is cut short": ("malformed", [(52, b"\x01")], {"file": bytes([60, 200]) * 64}),
        "a value that option 52 does not have": ("malformed", [(52, b"\x07")], {}),
        "50 relays": ("relayed-before", [], {"giaddr": "100.64.0.9", "hops": 50}),
    }


def nested_relays():
    """As many DHCPv6 relay messages within one another as a packet has room for. RFC 8415 section 7.6 has 8 at most."""
    message = bytes([1, 0, 0, 7])
    for each in range(37):
        message = bytes([12, min(each, 50)]) + bytes(32) + bytes([0, 9]) + len(message).to_bytes(2, "big") + message
    return message


class Kea:
    """A server of one family, its leases in memory and its log beside those of the gateway."""

    def __init__(self, lab, namespace, version, interface, **configuration):
        self.namespace, name = namespace, f"kea{version}-{next(NUMBERS)}"
        directory = lab.directory / name
        directory.mkdir()
        log = {
            "name": f"kea-dhcp{version}",
            "output_options": [{"output": "stdout"}],
            "severity": "DEBUG",
            "debuglevel": 55,
        }
        settings = {
            "interfaces-config": {"interfaces": interface if isinstance(interface, list) else [interface]},
            "lease-database": {"type": "memfile", "persist": False, "lfc-interval": 0},
            "loggers": [log],
        }
        if version == 4:
            settings["interfaces-config"]["dhcp-socket-type"] = "udp"
        else:
            # Kea opens its multicast socket once, and not while the link-local address is tentative.
            wait_until(lambda: not namespace.ip("-6", "addr", "show", "tentative").stdout, 30, "no tentative address")
            # Else it is kept in /var/lib.
            settings["server-id"] = {"type": "EN", "enterprise-id": 3561, "identifier": "00" * 8, "persist": False}
        path = directory / "kea.json"
        path.write_text(json.dumps({f"Dhcp{version}": settings | configuration}))
        environment = (f"KEA_PIDFILE_DIR={directory}", "KEA_LOCKFILE_DIR=none")
        self.process = lab.process(
            namespace, "env", *environment, f"/usr/sbin/kea-dhcp{version}", "-c", path, log=f"{name}.log"
        )

    def says(self, *words):
        return any(all(word in line for word in words) for line in self.process.log.read_text().splitlines())


SCRIPT4 = """#!/bin/sh
case $reason in
BOUND | RENEW | REBIND | REBOOT)
	ip addr replace "$new_ip_address/32" dev "$interface"
	ip route replace GATEWAY dev "$interface"
	ip route replace default via GATEWAY dev "$interface" src "$new_ip_address"
	;;
RELEASE | EXPIRE | FAIL | STOP) ip addr flush dev "$interface" scope global ;;
esac
echo "$reason $new_ip_address $new_dhcp_server_identifier" >>LOG
"""
SCRIPT6 = """#!/bin/sh
echo "$reason $new_ip6_address $new_ip6_prefix" >>LOG
"""


class Dhclient:
    """ISC's client. `events` has the calls of its script."""

    def __init__(self, lab, namespace, interface, gateway=None, version=4, options=()):
        self.lab, self.namespace, self.interface, self.version = lab, namespace, interface, version
        name = f"dhclient{version}-{next(NUMBERS)}"
        self.directory = lab.directory / name
        self.directory.mkdir()
        self.log = self.directory / "events"
        self.log.touch()
        script = self.directory / "script"
        text = SCRIPT4 if version == 4 else SCRIPT6
        script.write_text(text.replace("LOG", str(self.log)).replace("GATEWAY", str(gateway)))
        script.chmod(0o755)
        (self.directory / "dhclient.conf").write_text("timeout 20; retry 1; initial-interval 1;\n")
        self.arguments = (
            "/sbin/dhclient", "-d", f"-{version}", *options, "-cf", self.directory / "dhclient.conf",
            "-lf", self.directory / "leases", "-pf", self.directory / "pid", "-sf", script,
        )  # fmt: skip
        self.process = lab.process(namespace, *self.arguments, interface, log=f"{name}.log")

    def events(self):
        return [line.split() for line in self.log.read_text().splitlines()]

    def having(self, *reasons):
        return [event for event in self.events() if event[0] in reasons]

    def release(self):
        self.process.stop()
        arguments = [str(each) for each in self.arguments if each != "-d"]
        self.namespace.run(*arguments[:1], "-r", *arguments[1:], self.interface)


class Client:
    """A client in scapy on a raw wire, with any tags."""

    def __init__(self, wire, mac, *vlans, tpids=None):
        self.wire, self.mac, self.vlans = wire, mac, vlans
        self.tpids = tpids or [0x8100] * len(vlans)
        self.xid = random.randrange(1 << 32)
        self.xid6 = random.randrange(1 << 24)
        self.duid = DUID_LL(lladdr=mac)
        self.own_tags = None
        # Of DHCPv6 messages.
        self.hop_limit, self.port6 = 1, 546
        self.link_local = "fe80::" + f"{int(mac[-5:-3], 16):x}:{int(mac[-2:], 16) + 1:x}"

    def frame(self, packet, destination=ALL):
        ether, inner = Ether(src=self.mac, dst=destination), packet
        raw = bytes(ether / inner)
        tags = b"".join(
            tpid.to_bytes(2, "big") + vlan.to_bytes(2, "big") for tpid, vlan in zip(self.tpids, self.vlans, strict=True)
        )
        return raw[:12] + tags + raw[12:]

    def mine(self, raw):
        """The packet of a frame that has this client's tags, as they were sent."""
        # Beside a flood most frames are another host's: a look at each is cheap.
        if raw[:6] not in (mac_bytes(self.mac), b"\xff" * 6):
            return None
        length = 12 + 4 * len(self.vlans)
        if self.own_tags is None:
            self.own_tags = self.frame(IP())[12:length]
        if raw[12:length] != self.own_tags or raw[length : length + 2] == b"\x81\x00":
            return None
        return Ether(raw[:12] + raw[length:])

    def send4(self, kind, *options, source="0.0.0.0", destination="255.255.255.255", to=ALL, **fields):
        bootp = BOOTP(chaddr=mac_bytes(self.mac), xid=self.xid, **fields)
        dhcp = DHCP(options=[("message-type", kind), *options, "end"])
        self.wire.send(self.frame(IP(src=source, dst=destination) / UDP(sport=68, dport=67) / bootp / dhcp, to))

    def answer4(self, *kinds, seconds=20):
        def match(raw):
            packet = self.mine(raw)
            if packet is None or BOOTP not in packet or packet[BOOTP].op != 2 or packet[BOOTP].xid != self.xid:
                return None
            return packet if options_of(packet)["message-type"] in kinds else None

        return self.wire.expect(match, seconds)

    def offered4(self, *options):
        """An offer within two seconds, or None: a server that has just started may miss earlier packets."""
        self.xid = (self.xid + 1) % (1 << 32)
        return self.tried(lambda: self.send4("discover", *options), lambda: self.answer4(2, seconds=2))

    def ask4(self, *options):
        """A whole exchange: the ACK, or the NAK. A message without an answer is sent again (RFC 2131 section 4.1): the
        server of a port that was configured just now gets packets a moment later, and a flood makes the kernel drop
        some."""
        offer = wait_until(lambda: self.offered4(*options), 30, "an offer")
        taken = ("server_id", options_of(offer)["server_id"]), ("requested_addr", offer[BOOTP].yiaddr)
        return self.again(lambda: self.send4("request", *taken, *options), lambda: self.answer4(5, 6, seconds=2))

    def renew4(self, address, gateway, to):
        """The answer to a renewal by unicast."""
        self.xid = (self.xid + 1) % (1 << 32)
        how = {"source": address, "destination": gateway, "to": to, "ciaddr": address}
        return self.again(lambda: self.send4("request", **how), lambda: self.answer4(5, 6, seconds=2))

    @staticmethod
    def tried(send, answer):
        """The answer to what `send` sends, or None."""
        send()
        try:
            return answer()
        except AssertionError:
            return None

    def again(self, send, answer):
        """The answer to a message that is sent until there is one."""
        return wait_until(lambda: self.tried(send, answer), 30, "an answer")

    def send6(self, message, *options):
        message.trid = self.xid6
        for each in (DHCP6OptClientId(duid=self.duid), *options):
            message = message / each
        header = IPv6(src=self.link_local, dst="ff02::1:2", hlim=self.hop_limit)
        udp = header / UDP(sport=self.port6, dport=547)
        self.wire.send(self.frame(udp / message, "33:33:00:01:00:02"))

    def answer6(self, kind, seconds=20):
        def match(raw):
            packet = self.mine(raw)
            return packet if packet is not None and kind in packet and packet[kind].trid == self.xid6 else None

        return self.wire.expect(match, seconds)

    def ask6(self, *wanted):
        """A whole exchange for these identity associations: the Reply."""
        solicit, answers = DHCP6_Solicit(), lambda kind: lambda: self.answer6(kind, seconds=2)
        advertised = self.again(lambda: self.send6(solicit.copy(), *wanted), answers(DHCP6_Advertise))
        self.xid6 = (self.xid6 + 1) % (1 << 24)
        request = DHCP6OptServerId(duid=advertised[DHCP6OptServerId].duid), *wanted
        return self.again(lambda: self.send6(DHCP6_Request(), *request), answers(DHCP6_Reply))

    def release6(self, reply):
        self.xid6 = (self.xid6 + 1) % (1 << 24)
        given = [reply[each] for each in (DHCP6OptIA_NA, DHCP6OptIA_PD) if each in reply]
        copies = [each.copy() for each in given]
        for each in copies:
            each.remove_payload()
        self.send6(DHCP6_Release(), DHCP6OptServerId(duid=reply[DHCP6OptServerId].duid), *copies)
        return self.answer6(DHCP6_Reply)


def options_of(packet):
    return {each[0]: each[1] for each in packet[DHCP].options if isinstance(each, tuple)}


__all__ = ["Client", "Dhclient", "Kea", "options_of"]
