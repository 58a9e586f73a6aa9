# SPDX-License-Identifier: Apache-2.0
"""The 5G core beside an AGF, and what happens to its lines: one moves from BNG to AGF, the core releases one, and the
agent is killed. The other lines lose no packet, and none of them registers again."""

import contextlib
import json
import threading
import time

from lab import CoreHost, Upf, thing
from lab.core import Amf
from lab.gateway import Refused
from lab.laboratory import wait_until
from lab.load import DOWN, UP, TunnelHost

# N2 between the agent's host and the AMF, N3 of the gateway, and the UPF.
NODE, AMF, N3, UPF = "10.9.8.1", "10.9.8.2", "192.0.2.1", "192.0.2.2"
# The first address that the core gives, and the beginning of those of the BNG's pool.
FIRST, BNG = "100.64.4.0", "100.65."
# The default QoS flow of the test core.
QFI = 5
# The line that bng.yaml is about, and the one that the core releases.
MOVES, RELEASED = "pppoe-001", "pppoe-002"
# The names of lines, as lines.yaml has them.
NAME = "{port}:{outer}.{inner}"
# When something happens, in seconds, where the run has no end.
STEPS = (5, 10, 15)
REQUEST = "FGMMRegistrationRequest"


class Core:
    """A 5G core: AMF and SMF in one program, and a UPF."""

    def __init__(self, lab, inside, core):
        inside.link("n2", core, "amf")
        inside.ip("addr", "add", f"{NODE}/24", "dev", "n2")
        core.ip("addr", "add", f"{AMF}/24", "dev", "amf")
        # Subscribers of the BNG have no tunnel.
        core.ip("route", "add", f"{BNG}0.0/24", "via", N3)
        self.upf = Upf(lab, core, UPF)
        self.amf = Amf(lab, core, AMF, upf=UPF, ue=FIRST, quiet=1)

    def tunnels(self, lines):
        """Each line of the core gets both ends of the tunnel that belongs to its address."""
        ours = [line for line in lines if not line.ip4.startswith(BNG)]
        teids = self.amf.tunnels([line.ip4 for line in ours])
        for line in ours:
            line.teid_up, line.teid_down = teids[line.ip4]
        return lines

    def registrations(self):
        return len(self.amf.events("nas", name=REQUEST))

    def text(self):
        registered = {each["identity"] for each in self.amf.events("address")}
        messages, sessions = len(self.amf.events("nas")), len(self.amf.events("tunnel"))
        return f"{len(registered)} lines at the AMF, {sessions} PDU sessions, {messages} NAS messages from lines"


class Server:
    """The host behind the UPF, which also has the BNG's subscribers as neighbours."""

    def __init__(self, upf, core, ip4, ip6, lines):
        self.tunnels, self.routed = TunnelHost(upf, N3, ip4, ip6, qfi=QFI), CoreHost(core, ip4, ip6)
        self.addresses = self.tunnels.addresses
        for line in lines:
            self.redialed(line)

    def of(self, line):
        return self.tunnels if line.teid_down else self.routed

    def send(self, line, version, payload):
        return self.of(line).send(line, version, payload)

    def redialed(self, line):
        self.of(line).redialed(line)

    def readable(self):
        return self.tunnels.readable() + self.routed.readable()

    def receive(self, source):
        return (self.tunnels if source in self.tunnels.readable() else self.routed).receive(source)

    def close(self):
        self.tunnels.close()
        self.routed.close()


class Story(threading.Thread):
    """The steps while packets pass."""

    def __init__(self, gateway, core, dialer, load, seconds, say):
        """`say` prints at once; None: what is said is for the summary."""
        super().__init__(daemon=True)
        self.gateway, self.core, self.dialer, self.load = gateway, core, dialer, load
        self.said = []
        self.say = say or self.said.append
        self.times = [seconds * share for share in (0.1, 0.4, 0.7)] if seconds else STEPS
        self.failure = self.before = None
        self.over = threading.Event()
        self.start()

    def run(self):
        begun = time.monotonic()
        try:
            for at, step in zip(self.times, (self.move, self.release, self.kill), strict=True):
                if self.over.wait(max(0, begun + at - time.monotonic())):
                    return
                step()
        except Exception as failure:  # The summary has it.
            self.failure = failure

    def stay(self):
        """The numbers of lines whose sessions do not end."""
        return {number for number, line in enumerate(self.load.lines) if line.name not in (MOVES, RELEASED)}

    def line(self, name):
        return next((line for line in self.dialer.lines() if line.name == name), None)

    def again(self, name, before):
        """A line is up again, with another session."""
        return wait_until(
            lambda: (line := self.line(name)) and line.pppoe != before.pppoe and line, 60, f"{name} is up again"
        )

    def move(self):
        """A profile becomes that of a core's lines."""
        before = self.line(MOVES)
        changed = thing("SubscriberProfile", "bng", authentication=["core"], accounting=["core"], username=NAME,
                        gateway="100.64.0.1")  # fmt: skip
        planned = self.gateway.sluice("plan", "-f", "-", input=json.dumps(changed))
        self.say(f"{MOVES}, {before.ip4}, moves from BNG to AGF:\n{planned.stdout}{planned.stderr}".rstrip())
        self.gateway.apply(changed)
        after = self.again(MOVES, before)
        self.say(f"{MOVES} has registered, and its core gave it {after.ip4}")

    def release(self):
        before = self.line(RELEASED)
        ue = self.core.amf.events("address", address=before.ip4)[-1]["ue"]
        self.core.amf.do("deregister", ue=ue)
        after = self.again(RELEASED, before)
        self.say(f"the core deregisters {RELEASED}, {before.ip4}; it dials in anew and has {after.ip4}")

    def kill(self):
        agent = self.gateway.agent
        setups = len(self.core.amf.events("setup"))
        self.before = self.core.registrations()
        agent.kill()
        self.say("the agent is killed (kill -9) and started again; packets go on")
        wait_until(lambda: self.gateway.agent is not agent, 60, "another agent")
        self.core.amf.wait("setup", setups + 1)
        wait_until(self.lines, 60, "the lines of the new agent")

    def lines(self):
        """Lines that are registered, as the agent says; none while it starts."""
        with contextlib.suppress(Refused):
            found = self.gateway.json("get", "lines", "--limit", "100000") or []
            return [each for each in found if each["state"] == "registered"]
        return []

    def stop(self):
        """After the step that is under way."""
        self.over.set()
        self.join(180)

    def summary(self):
        """Prints what became of the lines, and returns whether it went well."""
        for text in self.said:
            print(text)
        stay = self.stay()
        lost = {way: self.load.lost(way, stay) for way in (UP, DOWN)}
        for way, title in ((UP, "uplink"), (DOWN, "downlink")):
            sent = sum(self.load.sent[way][stream] for stream in self.load.streams if stream[0] in stay)
            print(f"{title:<12}{sent} packets sent, {sent - lost[way]} received, {lost[way]} lost, of lines that stay")
        for number in sorted(set(range(len(self.load.lines))) - stay):
            gone = sum(self.load.lost(way, {number}) for way in (UP, DOWN))
            print(f"{self.load.lines[number].name:<12}{gone} packets lost between its sessions")
        print(self.gateway.sluice("get", "lines", "--limit", "20").stdout.rstrip())
        good = not any(lost.values())
        if self.failure:
            print(f"{'FAILED':<12}{self.failure}")
        elif self.before is None:
            print("the run was too short for the agent to be killed")
        else:
            again, registered = self.core.registrations() - self.before, len(self.lines())
            print(f"{'restart':<12}{registered} lines are registered; {again} registered again when the agent was killed")
            good = good and not again and registered == len(self.load.lines)
        return good and not self.failure
