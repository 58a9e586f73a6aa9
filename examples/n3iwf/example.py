# SPDX-License-Identifier: Apache-2.0
"""An N3IWF between Wi-Fi and a 5G core: ten phones register, and have a PDU session each, two of them two.

   phones [IKEv2, EAP-5G, NAS, ESP, GRE] == access [data plane + agent] n2 == AMF and SMF
                                                                        n3 == UPF, and a server behind it

Each PDU session sends UDP packets to the server, which sends them back. Every tenth one is voice, which has a child SA of
its own. In the middle the agent is killed: the phones stay registered, and no packet is lost.
"""

import contextlib
import queue
import select
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests"))

from lab import Gateway, Lab, Upf  # noqa: E402
from lab.certificate import n3iwf_certificate  # noqa: E402
from lab.core import N3iwfAmf, Ues  # noqa: E402
from lab.laboratory import wait_until  # noqa: E402
from lab.namespace import run  # noqa: E402

# Phones that have a second PDU session are the first ones.
PHONES, TWICE, PORT = 10, 2, 7000
SESSIONS = PHONES + TWICE
# The agent is killed after this time, or in the middle of a shorter run.
KILL = 10
GATEWAY, CORE, UPF, SERVER = "192.0.2.1", "198.51.100.1", "198.51.100.2", "203.0.113.1"
NODE, AMF = "10.9.8.1", "10.9.8.2"
EXPEDITED = 46 << 2


class Site:
    def __init__(self, lab, objects):
        self.wifi, self.inside, self.core = (lab.namespace(name) for name in ("wifi", "gateway", "core"))
        for ours, other, theirs in (("acc0", self.wifi, "wlan"), ("n3", self.core, "upf"), ("n2", self.core, "amf")):
            self.inside.link(ours, other, theirs)
        for ours in ("acc0", "n3"):
            self.inside.silent(ours)
        self.inside.ip("addr", "add", f"{NODE}/24", "dev", "n2")
        self.core.ip("addr", "add", f"{AMF}/24", "dev", "amf")
        self.core.ip("addr", "add", f"{UPF}/24", "dev", "upf")
        self.core.ip("addr", "add", f"{SERVER}/32", "dev", "lo")
        for number in range(PHONES):
            self.wifi.ip("addr", "add", f"192.0.2.{100 + number}/24", "dev", "wlan")
        n3iwf_certificate(lab.directory)
        self.amf = N3iwfAmf(lab, self.core, AMF, upf=UPF)
        self.upf = Upf(lab, self.core, UPF)
        self.gateway = Gateway(lab, self.inside, supervised=True, agent_too=True)
        # How often the AMF was set up before the agent was killed.
        self.setups = None
        self.objects = lab.directory / "objects"
        self.objects.mkdir()
        for path in sorted(objects.glob("*.yaml")):
            text = path.read_text().replace("DIRECTORY", str(lab.directory))
            (self.objects / path.name).write_text(text)
        self.phones = Ues(
            lab, self.wifi, gateway=GATEWAY, outer="192.0.2.100", authority=lab.directory / "ca.pem",
            count=PHONES, route=[f"{SERVER}/32"],
        )  # fmt: skip

    def apply(self):
        return run(*self.gateway.command("apply", "-f", self.objects, "--wait", "60s")).stdout

    def register(self):
        """All phones register, and have PDU sessions: the address of each, by phone and number, and the seconds."""
        self.amf.wait("setup")
        self.phones.do("register", at_once=4)
        registered = wait_until(
            lambda: len(found := self.phones.events("registered")) == PHONES and found, 150, "all phones register"
        )
        self.phones.do("session")
        for number in range(TWICE):
            self.phones.do("session", ue=number, session=2)
        sessions = wait_until(
            lambda: len(found := self.phones.events("session")) == SESSIONS and found, 150, "all PDU sessions are there"
        )
        asked = {(each["amf"], each["session"]): each for each in self.amf.events("session")}
        # The response to the setup may come after the phone has its address.
        for tunnel in self.amf.wait("tunnel", SESSIONS):
            one = asked[tunnel["amf"], tunnel["session"]]
            known = SimpleNamespace(ip4=one["address"], ip6="", teid_up=one["teid"], teid_down=tunnel["teid"])
            self.upf.add(known, CORE, 9)
        seconds = {each["ue"]: each["seconds"] for each in registered}
        return {(each["ue"], each["session"]): (each["address"], seconds[each["ue"]]) for each in sessions}

    def kill_agent(self):
        """Another agent starts at once, and takes the phones over."""
        old = self.gateway.agent
        self.setups = len(self.amf.events("setup"))
        old.kill()
        print("the agent is killed", flush=True)

    def stayed(self):
        """How many phones are connected as before: none has registered again, and none was disconnected."""
        if self.setups is not None:
            self.amf.wait("setup", self.setups + 1)
        again = len(self.amf.events("initial")) - PHONES
        if again or self.phones.events("released"):
            print(
                f"FAILED      {again} phones registered again, {len(self.phones.events('released'))} were disconnected"
            )
            return 0
        return len(self.gateway.json("get", "ues", "--state", "connected") or [])


class Traffic:
    """Packets of each phone to the server and back."""

    def __init__(self, lab, site, phones, rate):
        self.rate, self.upf, self.voice = rate, site.upf, 0
        self.sent, self.arrived, self.returned = ({n: 0 for n in phones} for _ in range(3))
        self.sockets, self.numbers = {}, {}
        self.server = self.open(lab, site.core, SERVER)
        self.poll = select.poll()
        self.poll.register(self.server, select.POLLIN)
        for number, (address, _) in phones.items():
            self.sockets[number] = self.open(lab, site.wifi, address)
            self.numbers[self.sockets[number].fileno()] = number
            self.numbers[address] = number
            self.poll.register(self.sockets[number], select.POLLIN)

    def count_voice(self):
        """The QFIs that the UPF received, in the containers of uplink packets."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.voice += self.upf.messages.get_nowait().container == (1, 1)

    def open(self, lab, namespace, address):
        made = namespace.inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
        namespace.inside(made.bind, (address, PORT))
        made.setblocking(False)
        lab.on_close(made.close)
        return made

    def take(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for fd, _ in self.poll.poll(1000 * left):
                try:
                    if fd == self.server.fileno():
                        data, sender = self.server.recvfrom(2048)
                        self.arrived[self.numbers[sender[0]]] += 1
                        self.server.sendto(data, sender)
                    else:
                        self.sockets[self.numbers[fd]].recv(2048)
                        self.returned[self.numbers[fd]] += 1
                except OSError:
                    continue

    def settle(self):
        """Until all packets are back, or none came for five seconds."""
        quiet = time.monotonic()
        while sum(self.sent.values()) > (before := sum(self.returned.values())) and time.monotonic() < quiet + 5:
            self.take(0.1)
            if sum(self.returned.values()) > before:
                quiet = time.monotonic()

    def send(self, count):
        """Packets of all phones and PDU sessions in turn."""
        numbers, before = list(self.sockets), sum(self.sent.values())
        for at in range(before, before + count):
            number = numbers[at % len(numbers)]
            voice = at // len(numbers) % 10 == 0
            self.sockets[number].setsockopt(socket.IPPROTO_IP, socket.IP_TOS, EXPEDITED if voice else 0)
            with contextlib.suppress(OSError):
                self.sockets[number].sendto(bytes(200 if voice else 1000), (SERVER, PORT))
                self.sent[number] += 1

    def begin(self):
        """A packet of each, which wait for the Ethernet address of the UPF together. The queue is bounded."""
        self.send(len(self.sockets))
        self.settle()

    def go(self, seconds):
        pause = 0.02
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.send(max(1, round(self.rate * pause)))
            self.take(pause)
            self.count_voice()


def table(phones, traffic):
    rows = [("phone", "PDU session", "address", "registered in", "to the server", "and back", "lost")]
    for number, (address, seconds) in sorted(phones.items()):
        phone, session = map(str, number)
        sent, arrived, returned = (of[number] for of in (traffic.sent, traffic.arrived, traffic.returned))
        rows.append(
            (phone, session, address, f"{1000 * seconds:.0f} ms", str(arrived), str(returned), str(sent - returned))
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def summary(site, phones, traffic):
    """Prints how it went, and returns whether every phone's packets came back."""
    traffic.settle()
    traffic.count_voice()
    print("\n".join(table(phones, traffic)))
    sent, arrived, returned = (sum(of.values()) for of in (traffic.sent, traffic.arrived, traffic.returned))
    print(f"uplink      {sent} packets sent, {arrived} received, {sent - arrived} lost")
    print(f"downlink    {arrived} packets sent, {returned} received, {arrived - returned} lost")
    print(f"voice       {traffic.voice} packets reached the UPF as QoS flow 1")
    drops = {name: count for name, count in site.gateway.drops().items() if count}
    print(f"drops       {', '.join(f'{name} {count}' for name, count in sorted(drops.items())) or 'none'}")
    stayed = site.stayed()
    print(f"restart     {stayed} of {PHONES} phones stayed registered when the agent was killed")
    mute = [str(number) for number, count in traffic.returned.items() if not count]
    if mute:
        print(f"FAILED      no traffic: phones and PDU sessions {', '.join(mute)}")
    return not mute and stayed == PHONES


def example(objects, seconds, rate, terminal):
    with Lab() as lab:
        site = Site(lab, objects)
        print("To look at it, in another terminal:")
        print(f"  export SLUICE_AGENT=unix://{site.gateway.agent_socket}")
        print(f"  {TREE}/build/sluice get sessions")
        print(f"It ends by itself after {seconds:g} seconds." if seconds else "Ctrl-C ends it.", flush=True)
        print(site.apply().splitlines()[-1], flush=True)
        started = time.monotonic()
        phones = site.register()
        spent = time.monotonic() - started
        print(f"{PHONES} phones have {len(phones)} PDU sessions after {spent:.1f} s", flush=True)
        traffic = Traffic(lab, site, phones, rate)
        try:
            traffic.begin()
            began = time.monotonic()
            end = began + (seconds or float("inf"))
            kill = began + min(KILL, seconds / 2 if seconds else KILL)
            while (now := time.monotonic()) < end:
                if kill and now >= kill:
                    site.kill_agent()
                    kill = None
                until = min(now + (1 if terminal else 5), end, kill or end)
                traffic.go(max(0.1, until - now))
                if terminal:
                    print("\033[H\033[J" + "\n".join(table(phones, traffic)), flush=True)
                else:
                    print(f"{sum(traffic.returned.values())} packets came back", flush=True)
        except KeyboardInterrupt:
            print()
        return summary(site, phones, traffic)
