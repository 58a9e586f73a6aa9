# SPDX-License-Identifier: Apache-2.0
"""IPsec tunnels whose keys are configured, and tunnels that the agent negotiates by IKE: the same packets through both.

    generator port 0 == access | tunnel "out-N" | near == far | tunnel "in" | core == generator port 1

Tunnels of both sorts are in one gateway, each with a stream of its own: trials through the one and through the other
alternate, and nothing else is different between them.

The gateway is both ends of each tunnel, so that the generator receives what it sent: each packet is encrypted and
decrypted. The ends are in two VRFs, and a memif link between two ports of the gateway connects them."""

import time
from dataclasses import dataclass
from functools import partial

from chains import (
    ACCESS,
    CORE,
    GATEWAY_MAC,
    PEER_MAC,
    Chain,
    ether,
    ip4_udp,
    ip_text,
    ports,
)
from generator import Stream
from lab import thing

COUNTS = (4, 40, 1000, 10000)
# Streams: how the keys of their tunnels are made.
KEYS = ("static", "ike")
FLOWS, SIZE = 4096, 650
FIRST_SPI, SOURCE, BEHIND = 4096, 0xC0000202, 0xC0000301
ENDS = (("near", "default", 0xC0000401), ("far", "far", 0xC0000402))
NEAR, FAR = ENDS[0][2], ENDS[1][2]
NETWORK = 0x40000000
APPLY_AT_ONCE = 2000
ASSOCIATIONS_OF_A_TUNNEL = 4
PATIENCE = 600


def network(tunnel):
    return f"{ip_text(NETWORK + (tunnel << 8))}/24"


def mac(end):
    return f"02:00:00:00:04:{end:02x}"


def everything(devices):
    """The link between the ends, and the way out of the far end."""
    yield thing("Vrf", "far")
    for number, (name, vrf, address) in enumerate(ENDS):
        at = {} if vrf == "default" else {"vrf": vrf}
        yield thing("Port", name, device=devices[number], mac=mac(number))
        yield thing("Interface", name, port=name, addresses=[f"{ip_text(address)}/30"], **at)
        other = ip_text(ENDS[1 - number][2])
        yield thing("Neighbor", f"of-{name}", interface=name, address=other, mac=mac(1 - number))
    yield thing("Vrf", "behind")
    yield thing("Interface", "behind", port="core", outerVlan=9, vrf="behind", addresses=[f"{ip_text(BEHIND)}/24"])
    yield thing("Neighbor", "behind", interface="behind", address=ip_text(BEHIND + 1), mac=PEER_MAC.hex(":"))
    way = [{"interface": "behind", "address": ip_text(BEHIND + 1)}]
    yield thing("Route", "behind", vrf="behind", prefix="0.0.0.0/0", nextHops=way)
    yield thing("IpsecTunnel", "in", vrf="far", localAddress=ip_text(FAR))
    yield thing("Interface", "in", ipsecTunnel="in", vrf="behind")


def tunnel(number):
    name = f"out-{number}"
    yield thing("IpsecTunnel", name, localAddress=ip_text(NEAR), remoteAddress=ip_text(FAR))
    yield thing("Interface", name, ipsecTunnel=name)
    yield thing("Route", name, prefix=network(number), nextHops=[{"interface": name}])


def static(number):
    """The pair of associations of one direction, as IKE would make it."""
    key = (number * 0x9E3779B97F4A7C15 % (1 << 64)).to_bytes(8) * 4 + number.to_bytes(4)
    every = {"spi": FIRST_SPI + number, "encryptionKey": key.hex(), "esn": True}
    near = {"localAddress": ip_text(NEAR), "remoteAddress": ip_text(FAR), "tunnel": f"out-{number}"}
    far = {"localAddress": ip_text(FAR), "remoteAddress": ip_text(NEAR), "tunnel": "in", "vrf": "far"}
    to, back = {"remote": network(number)}, {"local": network(number)}
    yield thing("SecurityAssociation", f"far-{number}", direction="INBOUND", selectors=[back], **every, **far)
    yield thing("SecurityAssociation", f"near-{number}", direction="OUTBOUND", selectors=[to], **every, **near)


def negotiated(numbers):
    """One connection that responds, and one for each peer that calls it."""
    common = {"credential": "bench", "noMobike": True, "dpdDelay": "24h", "proposals": ["aes256gcm16-prfsha256-x25519"]}
    yield thing("IkeCredential", "bench", sharedKey="a secret of the bench")
    child = {"name": "net", "proposals": ["aes256gcm16-esn"], "rekeyTime": "24h"}
    yield thing(
        "IkeConnection",
        "responder",
        vrf="far",
        localAddress=ip_text(FAR),
        localIdentity="gateway.bench.example",
        remoteIdentity="*.peers.example",
        children=[child | {"tunnel": "in", "local": [f"{ip_text(NETWORK)}/8"], "remote": ["0.0.0.0/0"]}],
        **common,
    )
    for number in numbers:
        ends = {"tunnel": f"out-{number}", "local": ["0.0.0.0/0"], "remote": [network(number)], "start": "AT_ONCE"}
        yield thing(
            "IkeConnection",
            f"peer-{number}",
            localAddress=ip_text(NEAR),
            remoteAddress=ip_text(FAR),
            localIdentity=f"p{number}.peers.example",
            remoteIdentity="gateway.bench.example",
            children=[child | ends],
            **common,
        )


@dataclass(frozen=True)
class Tunnels(Chain):
    """`flows`: of each stream; it goes through `count` tunnels in turn. Tunnels of IKE have the numbers behind those
    of configured keys."""

    count: int = 4

    def objects(self, devices):
        yield from ports(devices[:2])
        yield from everything(devices[2:])
        for number in range(2 * self.count):
            yield from tunnel(number)
        for number in range(self.count):
            yield from static(number)

    def configure(self, gateway, devices):
        things = list(self.objects(devices))
        for first in range(0, len(things), APPLY_AT_ONCE):
            gateway.apply(*things[first : first + APPLY_AT_ONCE])
        things = list(negotiated(range(self.count, 2 * self.count)))
        for first in range(0, len(things), APPLY_AT_ONCE):
            gateway.apply(*things[first : first + APPLY_AT_ONCE], wait=False)
        end = time.monotonic() + PATIENCE
        wanted = (ASSOCIATIONS_OF_A_TUNNEL + 2) * self.count
        while (up := len(gateway.json("get", "securityassociations"))) < wanted:
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name}: {up} associations after {PATIENCE} seconds")
            time.sleep(1)

    def frame(self, first, flow):
        destination = NETWORK + (first + flow % self.count << 8) + flow // self.count % 250 + 2
        header = ether(GATEWAY_MAC[ACCESS], PEER_MAC, 0x0800)
        return header + ip4_udp(SOURCE, destination, 1000, 2000 + flow % 1000, self.up - 4 - len(header))

    def streams(self):
        for name, first in zip(KEYS, (0, self.count), strict=True):
            yield Stream(name, ACCESS, CORE, self.up, self.in_turn(partial(self.frame, first)), 1.0)


TUNNELS = [
    Tunnels(
        f"ipsec-{count}",
        max(FLOWS, count),
        up=SIZE,
        agent=True,
        count=count,
        about=f"AES-256-GCM, {count:,} tunnels with configured keys and as many of IKE, encrypted and decrypted",
    )
    for count in COUNTS
]
