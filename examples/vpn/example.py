# SPDX-License-Identifier: Apache-2.0
"""Two gateways with twenty tunnels between them, and a remote user of the western one.

   west: a host == lan [data plane + agent] wan ==== wan [data plane + agent] lan == a host: east
                                            cafe ==== the user's strongSwan

IKE makes the tunnels. In the middle the agent of the western gateway is killed and started again. Each host sends UDP packets through every tunnel, IPv4 and IPv6, and counts what arrives. The user sends
to the western host, which sends each packet back.
"""

import contextlib
import errno
import json
import select
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests"))

from contract import Connection, api  # noqa: E402
from lab import Gateway, Lab, strongswan, thing  # noqa: E402
from lab.laboratory import wait_until  # noqa: E402
from lab.namespace import run  # noqa: E402

SIDES = {"west": 1, "east": 2}
TUNNELS = 20
# The keys of the first tunnel are replaced each so many seconds.
REPLACE = 5
# The agent is killed in the middle, or after so many seconds if the example has no end.
KILL = 30
PORT = 7000
NUMBER = struct.Struct("!I")


def address(side, tunnel, version):
    """Of the side's host in the network that a tunnel leads to."""
    return f"10.{SIDES[side]}.{tunnel}.9" if version == 4 else f"2001:db8:{SIDES[side]}:{tunnel:x}::9"


class Site:
    """One side: a gateway, and a host in each of the networks behind it."""

    def __init__(self, lab, side, wan):
        self.side, number = side, SIDES[side]
        self.host = lab.namespace(f"{side}-lan")
        self.host.link("uplink", wan, "lan")
        wan.silent("lan")
        self.host.ip("address", "add", f"10.{number}.0.2/24", "dev", "uplink")
        self.host.ip("address", "add", f"2001:db8:{number}::2/64", "dev", "uplink", "nodad")
        self.host.ip("route", "add", "default", "via", f"10.{number}.0.1")
        self.host.ip("-6", "route", "add", "default", "via", f"2001:db8:{number}::1")
        self.sockets = {}
        for tunnel in range(1, TUNNELS + 1):
            for version, family, length in ((4, socket.AF_INET, 32), (6, socket.AF_INET6, 128)):
                own = address(side, tunnel, version)
                more = ("nodad",) if version == 6 else ()
                self.host.ip("address", "add", f"{own}/{length}", "dev", "lo", *more)
                made = self.host.inside(socket.socket, family, socket.SOCK_DGRAM)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                self.host.inside(made.bind, (own, PORT))
                made.setblocking(False)
                lab.on_close(made.close)
                self.sockets[tunnel, version] = made
        self.gateway = Gateway(lab, wan, name=side, supervised=True, agent_too=True)

    def apply(self, objects):
        return run(*self.gateway.command("apply", "-f", objects / self.side, "--wait", "60s")).stdout

    def states(self):
        """The data plane's security associations."""
        with Connection(self.gateway.dataplane_socket) as connection:
            states = connection.read(api.SecurityAssociationStatesQuery()).states
            return {state.name: state for state in states}


CAFE, USER = "198.51.100.1", "198.51.100.2"

USER_CONFIGURATION = f"""
connections {{
  gateway {{
    version = 2
    local_addrs = {USER}
    remote_addrs = {CAFE}
    vips = 0.0.0.0
    proposals = aes256gcm16-prfsha384-x25519
    local {{
      auth = eap-mschapv2
      eap_id = alice
      id = alice@west.example
    }}
    remote {{
      auth = pubkey
      id = vpn.west.example
    }}
    children {{
      west {{
        remote_ts = 10.1.0.0/16
        esp_proposals = aes256gcm16-x25519
      }}
    }}
  }}
}}
secrets {{
  eap-alice {{
    id = alice
    secret = change-me
  }}
}}
"""


class User:
    """Alice in a cafe: strongSwan, which authenticates by EAP and gets an address of a pool."""

    def __init__(self, lab, site, namespace):
        self.site, directory = site, lab.directory / "cafe"
        directory.mkdir()
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
            + ["-subj", "/CN=vpn.west.example", "-addext", "subjectAltName=DNS:vpn.west.example"]
            + ["-keyout", directory / "gateway.key", "-out", directory / "gateway.pem"],
            check=True,
            capture_output=True,
        )
        site.gateway.apply(
            thing("Port", "cafe", device="net_af_packet2,iface=cafe,framecnt=4096"),
            thing("Interface", "cafe", port="cafe", addresses=[f"{CAFE}/24"]),
            thing("IpsecTunnel", "users", localAddress=CAFE),
            thing("Interface", "users", ipsecTunnel="users"),
            thing("AddressPool", "users", ranges=["10.9.0.0/24"]),
            thing("Route", "users", prefix="10.9.0.0/24", nextHops=[{"interface": "users"}]),
            thing("LocalUser", "alice", username="alice", password="change-me"),
            thing(
                "IkeCredential",
                "vpn",
                certificateFile=str(directory / "gateway.pem"),
                privateKeyFile=str(directory / "gateway.key"),
            ),
            thing(
                "IkeConnection",
                "users",
                localAddress=CAFE,
                localIdentity="vpn.west.example",
                credential="vpn",
                localAuthentication="CERTIFICATE",
                remoteAuthentication="EAP",
                pools=["users"],
                proposals=["aes256gcm16-prfsha384-x25519"],
                children=[{"name": "user", "tunnel": "users", "local": ["10.1.0.0/16"]}],
            ),
        )
        certificate = {"x509ca/gateway.pem": (directory / "gateway.pem").read_text()}
        self.peer = strongswan.StrongSwan(lab, namespace, USER_CONFIGURATION, certificate)
        self.peer.swanctl("--initiate", "--child", "west")
        wait_until(lambda: self.peer.children(), what="the user is connected")
        (listed,) = site.gateway.json("ike", "list", "users")
        (self.address,) = listed["addresses"]
        self.algorithms = listed["childAlgorithms"]
        self.sent = self.echoed = self.returned = 0
        self.socket = namespace.inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
        self.host = site.host.inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
        for one, call in ((self.socket, namespace.inside), (self.host, site.host.inside)):
            call(one.bind, (self.address if one is self.socket else "10.1.0.2", PORT + 1))
            one.setblocking(False)
            lab.on_close(one.close)

    def go(self):
        """Sends a few packets, and receives the replies to earlier ones."""
        for _ in range(5):
            with contextlib.suppress(BlockingIOError):
                self.sent += self.socket.sendto(bytes(500), ("10.1.0.2", PORT + 1)) == 500
        self.take()

    def take(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                packet, source = self.host.recvfrom(2048)
                self.echoed += self.host.sendto(packet, source) == len(packet)
        with contextlib.suppress(BlockingIOError):
            while self.socket.recv(2048):
                self.returned += 1

    def row(self):
        lost = self.sent - self.returned
        return (f"alice {self.address}", self.algorithms, "-", "IPv4 UDP", str(self.echoed), str(self.returned), str(lost))


class Traffic:
    """Numbered packets through each tunnel, both ways."""

    def __init__(self, sites, rate, user=None):
        self.sites, self.rate, self.user = sites, rate, user
        self.streams = [
            (site.side, tunnel, version)
            for tunnel in range(1, TUNNELS + 1)
            for version in (4, 6)
            for site in sites.values()
        ]
        self.sent = dict.fromkeys(self.streams, 0)
        self.received = dict.fromkeys(self.streams, 0)
        self.poll = select.poll()
        self.by_number = {}
        for site in sites.values():
            for (tunnel, version), one in site.sockets.items():
                self.poll.register(one, select.POLLIN)
                # Packets that arrive here come from the other side.
                sender = "east" if site.side == "west" else "west"
                self.by_number[one.fileno()] = one, (sender, tunnel, version)

    def send(self, stream, payload):
        side, tunnel, version = stream
        other = "east" if side == "west" else "west"
        try:
            self.sites[side].sockets[tunnel, version].sendto(payload, (address(other, tunnel, version), PORT))
            return True
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                raise
            return False

    def take(self, seconds):
        """Counts arriving packets until the time is over."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for number, _ in self.poll.poll(1000 * left):
                one, stream = self.by_number[number]
                with contextlib.suppress(BlockingIOError):
                    while True:
                        if one.recv(2048)[:4] != b"\0\0\0\0":
                            self.received[stream] += 1

    def warm_up(self):
        """Hosts and gateways find each other's Ethernet addresses."""
        waiting = set(self.streams)
        end = time.monotonic() + 20
        while waiting and time.monotonic() < end:
            for stream in waiting:
                self.send(stream, bytes(64))
            for number, _ in self.poll.poll(200):
                one, stream = self.by_number[number]
                with contextlib.suppress(BlockingIOError):
                    while one.recv(2048):
                        waiting.discard(stream)
        self.take(0.2)

    def go(self, seconds):
        """Sends for so long, and receives replies."""
        pause = 0.02
        each = max(1, round(2 * self.rate * pause))
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            for _ in range(each):
                stream = self.streams[number % len(self.streams)]
                number += 1
                self.sent[stream] += self.send(stream, NUMBER.pack(number) + bytes(1000))
            if self.user:
                self.user.go()
            self.take(pause)

    def under_way(self):
        """How many packets have not arrived."""
        user = self.user.sent - self.user.returned if self.user else 0
        return user + sum(self.sent.values()) - sum(self.received.values())

    def settle(self):
        """Until all packets have arrived, or none did for five seconds."""
        quiet = time.monotonic()
        while (before := self.under_way()) and time.monotonic() < quiet + 5:
            self.take(0.05)
            if self.user:
                self.user.take()
            if self.under_way() < before:
                quiet = time.monotonic()

    def of(self, tunnel, side):
        """Packets that a side sent by a tunnel, and how many of them arrived."""
        streams = [(side, tunnel, version) for version in (4, 6)]
        return sum(map(self.sent.get, streams)), sum(map(self.received.get, streams))


class Killing:
    """The agent of a gateway is killed and started again. The next one goes on with the IKE SAs and children of before."""

    def __init__(self, gateway):
        self.gateway, self.before, self.after = gateway, set(), set()
        self.done = self.over = False

    def children(self):
        """Children but the one whose keys the example replaces. None: no agent answers."""
        listed = self.gateway.sluice("ike", "list", "-o", "json", check=False)
        if listed.returncode:
            return None
        return {each["spiIn"] for each in json.loads(listed.stdout) if each["child"] != "site-01"}

    def kill(self):
        self.before, self.done = self.children(), True
        self.gateway.agent.kill()
        print("the agent of west is killed (kill -9) and started again; packets go on", flush=True)

    def under_way(self):
        """Whether the next agent has not taken over yet."""
        if self.done and not self.over:
            self.after = self.children() or set()
            self.over = len(self.after) >= len(self.before)
        return self.done and not self.over

    def report(self):
        """Says what the next agent took over, and returns whether it is all."""
        if not self.done:
            return True
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: not self.under_way(), what="the next agent has the tunnels")
        print(f"the next agent of west took {len(self.after & self.before)} of {len(self.before)} tunnels over")
        return self.after >= self.before


def table(sites, traffic):
    states = sites["west"].states()
    # Of a tunnel whose keys are being replaced, the SA that sends.
    sending = {}
    for each in sites["west"].gateway.json("get", "sa"):
        spec = each["spec"] | {"name": each["metadata"]["name"]}
        before = sending.get(spec["tunnel"])
        if spec.get("direction") == "outbound" and (not before or spec.get("precedence", 0) > before["precedence"]):
            sending[spec["tunnel"]] = {"precedence": 0} | spec
    rows = [("tunnel", "algorithm", "engine", "outside", "west to east", "east to west", "lost")]
    for tunnel in range(1, TUNNELS + 1):
        name = f"site-{tunnel:02}"
        spec = sending.get(name, {})
        out = states.get(spec.get("name"))
        (sent, arrived), (back, returned) = traffic.of(tunnel, "west"), traffic.of(tunnel, "east")
        text = spec.get("encryption", "aes_gcm").replace("_", "-")
        text += (
            " " + spec["integrity"].replace("_", "-") if spec.get("integrity", "no_integrity") != "no_integrity" else ""
        )
        outside = ("IPv6" if ":" in spec.get("remoteAddress", "") else "IPv4") + (" UDP" if "udp" in spec else "")
        lost = sent + back - arrived - returned
        rows.append((name, text, out.engine if out else "-", outside, str(arrived), str(returned), str(lost)))
    if traffic.user:
        rows.append(traffic.user.row())
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def summary(sites, traffic, before):
    """Prints how it went, and returns whether every tunnel passed traffic both ways. `before`: drops before the traffic."""
    traffic.settle()
    print("\n".join(table(sites, traffic)))
    dead = []
    for side, other in (("west", "east"), ("east", "west")):
        sent = sum(traffic.of(tunnel, side)[0] for tunnel in range(1, TUNNELS + 1))
        received = sum(traffic.of(tunnel, side)[1] for tunnel in range(1, TUNNELS + 1))
        print(f"{side} to {other:<8}{sent} packets sent, {received} received, {sent - received} lost")
        dead += [f"site-{tunnel:02} from {side}" for tunnel in range(1, TUNNELS + 1) if not traffic.of(tunnel, side)[1]]
    for side, site in sites.items():
        counted = {name: count - before[side].get(name, 0) for name, count in site.gateway.drops().items()}
        drops = {name: count for name, count in counted.items() if count}
        print(f"drops {side:<8}{', '.join(f'{name} {count}' for name, count in sorted(drops.items())) or 'none'}")
    if traffic.user and not traffic.user.returned:
        dead.append("alice")
    if dead:
        print(f"FAILED      no traffic: {', '.join(dead)}")
    return not dead


def example(objects, seconds, rate, terminal):
    with Lab() as lab:
        west, east = lab.namespace("west"), lab.namespace("east")
        west.link("wan", east, "wan")
        west.silent("wan")
        east.silent("wan")
        cafe = lab.namespace("cafe")
        west.link("cafe", cafe, "uplink")
        west.silent("cafe")
        cafe.ip("address", "add", f"{USER}/24", "dev", "uplink")
        sites = {side: Site(lab, side, wan) for side, wan in (("west", west), ("east", east))}
        print("To look at it, in another terminal:")
        print(f"  export SLUICE_AGENT=unix://{sites['west'].gateway.agent_socket}")
        print(f"  {TREE}/build/sluice ike list")
        print(f"It ends by itself after {seconds:g} seconds." if seconds else "Ctrl-C ends it.", flush=True)
        # The western gateway calls, and its configuration is done when the tunnels are up.
        for side in ("east", "west"):
            print(f"{side}: {sites[side].apply(objects).splitlines()[-1]}", flush=True)
        user = None
        if shutil.which(strongswan.PROGRAM):
            user = User(lab, sites["west"], cafe)
            print(f"alice: connected as {user.address}", flush=True)
        else:
            print("no remote user: strongSwan is not installed (tools/setup.sh test installs it)", flush=True)
        traffic = Traffic(sites, rate, user)
        traffic.warm_up()
        # Until neighbours were found, packets were dropped.
        before = {side: site.gateway.drops() for side, site in sites.items()}
        begin = time.monotonic()
        replaced, replace, end = 0, begin + REPLACE, begin + (seconds or float("inf"))
        kill, killing = begin + (seconds / 2 if seconds else KILL), Killing(sites["west"].gateway)
        try:
            while time.monotonic() < end:
                soon = min(end, replace, end if killing.done else kill)
                traffic.go(min(1 if terminal else 5, max(0.1, soon - time.monotonic())))
                if terminal:
                    print("\033[H\033[J" + "\n".join(table(sites, traffic)), flush=True)
                else:
                    print(f"{sum(traffic.received.values())} packets arrived", flush=True)
                if time.monotonic() >= kill and not killing.done:
                    killing.kill()
                elif time.monotonic() >= replace and not killing.under_way():
                    sites["west"].gateway.sluice("ike", "rekey", "inet", "--child", "site-01")
                    replaced, replace = replaced + 1, time.monotonic() + REPLACE
        except KeyboardInterrupt:
            print()
        print(f"the keys of site-01 were replaced {replaced} times")
        taken_over = killing.report()
        return summary(sites, traffic, before) and taken_over
