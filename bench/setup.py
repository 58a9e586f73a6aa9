#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Set-ups of PPPoE or IPoE subscribers with RADIUS: setup.py [--access pppoe|ipoe] [--sessions N] [--planes N]
[--json FILE]. Needs root and the built programs.

bench/dial dials in through a port of the gateway (veth, net_af_packet). PPPoE: discovery, LCP, CHAP, IPCP, IPv6CP,
router advertisement, DHCPv6. IPoE: DHCPv4, and DHCPv6 with an address and a prefix. FreeRADIUS authenticates and
accounts. With --planes, one agent serves several data planes, each with its share of the subscribers. All programs
share the processors of this machine; the rows contain the CPU time of each. Before that, a few subscribers dial in
without and beside a flood of PADIs on another circuit. Then the bench kills the agent under traffic and starts it
again, until the data plane has all sessions and the agent knows each. Each session has one Start record at the RADIUS
server, also after the restart."""

import argparse
import contextlib
import json
import os
import platform
import struct
import sys
import threading
import time
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TREE / "tests"))

from lab import Dialer, Gateway, Lab, thing  # noqa: E402
from lab.gateway import DATAPLANE, SLUICE  # noqa: E402
from lab.laboratory import wait_until  # noqa: E402
from lab.radius import SECRET, FreeRadius  # noqa: E402
from lab.wire import Wire  # noqa: E402

SERVER4, SERVER6 = "192.0.2.2", "2001:db8:0:2::2"
RADIUS = "127.0.0.1"
# By access: a host on IPoE has no password.
USERS = {
    "pppoe": 'DEFAULT Cleartext-Password := "secret"\n\tMikrotik-Rate-Limit = "50M/100M"\n',
    "ipoe": 'DEFAULT Auth-Type := Accept\n\tMikrotik-Rate-Limit = "50M/100M"\n',
}
TICKS = os.sysconf("SC_CLK_TCK")
# Set-ups whose rate and CPU are a row.
MEASURED = 30000
# Packets a second while the agent is away.
TRAFFIC = 2000
# Inner VLANs of each outer one.
INNER = 1000
# Subscribers that dial in beside a flood, and how many of them a second.
BESIDE, BESIDE_RATE = 500, 50
BUFFERS = 32768
METRICS = "127.0.0.1:9464"


def processor(pid):
    """Seconds of CPU that a process had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(pid):
    """Memory of a process without pages of files, in bytes; huge pages included."""
    text = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return 1024 * sum(int(text[key].split()[0]) for key in ("RssAnon", "RssShmem", "HugetlbPages"))


class Plane:
    """A data plane's host: its namespaces, its objects and its subscribers."""

    def __init__(self, lab, number, planes, kind="pppoe"):
        self.number, self.name, self.kind = number, f"plane-{number}", kind
        suffix = "" if planes == 1 else f"-{number}"
        self.labels = {"dataplane": self.name} if planes > 1 else None
        self.access, self.inside, core = (lab.namespace(name + suffix) for name in ("access", "gateway", "core"))
        self.access.link("line", self.inside, "access")
        self.inside.link("core", core, "uplink")
        for namespace, interface in ((self.access, "line"), (self.inside, "access"), (self.inside, "core")):
            namespace.silent(interface)
        # A network of its own: 192.0.2.0/24 and the next ones.
        self.core4, self.server4 = (f"192.0.{2 + number}.{host}" for host in (1, 2))
        self.core6, self.server6 = (f"2001:db8:0:{2 + number:x}::{host}" for host in (1, 2))
        core.ip("address", "add", f"{self.server4}/24", "dev", "uplink")
        core.ip("address", "add", f"{self.server6}/64", "dev", "uplink", "nodad")
        core.ip("route", "add", "default", "via", self.core4)
        core.ip("-6", "route", "add", "default", "via", self.core6)
        self.dialer = self.process = None

    def start(self, lab, gateway):
        """The data plane, on a socket beside the first one's."""
        self.socket = gateway.directory / f"{self.name}.sock"
        arguments = ["--socket", self.socket, "--workers", 1, "--buffers", BUFFERS, "--no-huge"]
        self.process = lab.process(
            self.inside, DATAPLANE, *arguments, "--prefix", f"{gateway.prefix}-{self.name}", log=f"{self.name}.log"
        )
        gateway.wait_for_socket(self.socket, self.process)

    def objects(self):
        access, core = (name if self.labels is None else f"{name}-{self.number}" for name in ("access", "core"))
        number = 2 * self.number
        device = f"net_af_packet{number},iface=access,framecnt=16384,blocksz=4194304"
        mac = f"02:00:00:00:aa:{number + 1:02x}"
        yield thing("Port", access, self.labels, device=device, mac=mac)
        device, mac = f"net_af_packet{number + 1},iface=core,framecnt=4096", f"02:00:00:00:aa:{number + 2:02x}"
        yield thing("Port", core, self.labels, device=device, mac=mac)
        addresses = [f"{self.core4}/24", f"{self.core6}/64"]
        yield thing("Interface", core, self.labels, port=core, addresses=addresses)
        server = {"port": access, "outerVlans": ["1000-1999"], "innerVlans": ["1-4094"], "profile": "home"}
        name = access if self.labels else "homes"
        if self.kind == "ipoe":
            yield thing("IpoeServer", name, **server, leaseTime="3600s", rate=100000, ratePerMac=100)
            return
        limits = {"halfOpen": 65536, "discoveryRate": 100000, "discoveryRatePerMac": 100}
        yield thing("PppoeServer", name, **server, **limits, echoInterval="300s")

    def lines(self, count, vlan, **more):
        """Options of a Dialer."""
        return {self.kind: count, f"{self.kind}_vlan": vlan, "password": "secret"} | more

    def dial_first(self, lab):
        """The agent serves a moment after it has the objects."""
        name = f"first-{self.number}"
        first = Dialer(lab, self.access, "line", name=name, **self.lines(1, 1999))
        first.dial()
        first.hang_up()
        first.close()

    def prepare(self, lab, sessions, window, rate):
        self.dialer = Dialer(
            lab,
            self.access,
            "line",
            name=f"dial-{self.number}",
            **self.lines(sessions, 1000),
            inner=INNER,
            echo="300s",
            window=window,
            rate=rate,
            server4=self.server4,
            server6=self.server6,
        )


class Flood(threading.Thread):
    """PADIs of many hosts on the circuit 1999.4000 of a data plane: so many a second."""

    def __init__(self, plane, rate):
        super().__init__(daemon=True)
        self.wire, self.rate, self.sent, self.over = Wire(plane.access, "line"), rate, 0, threading.Event()

    def run(self):
        tags = struct.pack("!HHHH", 0x88A8, 1999, 0x8100, 4000)
        padi = struct.pack("!HBBHHHH", 0x8863, 0x11, 9, 0, 4, 0x0101, 0)
        began = time.monotonic()
        while not self.over.is_set():
            while self.sent < self.rate * (time.monotonic() - began):
                mac = b"\x02\x0f" + struct.pack("!I", self.sent)
                self.wire.send((b"\xff" * 6 + mac + tags + padi).ljust(68, b"\0"))
                self.sent += 1
            time.sleep(0.001)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
        self.wire.close()


class Site:
    """An agent with its RADIUS server, and its data planes with their subscribers."""

    def __init__(self, lab, sessions, window, rate, planes=1, kind="pppoe"):
        self.lab, self.kind = lab, kind
        self.planes = [Plane(lab, number, planes, kind) for number in range(planes)]
        inside = self.planes[0].inside
        self.radius = FreeRadius(lab, inside, RADIUS, USERS[kind], quiet=True)
        self.northbounds = [{"type": "metrics", "name": "metrics", "listen": METRICS}]
        if planes == 1:
            self.gateway = Gateway(lab, inside, buffers=BUFFERS, northbounds=self.northbounds)
        else:
            self.gateway = Gateway(lab, inside, buffers=BUFFERS, agent=False)
            self.planes[0].socket = self.gateway.dataplane_socket
            for plane in self.planes[1:]:
                plane.start(lab, self.gateway)
            self.start_agent()
        self.gateway.apply(
            thing("Interface", "gateway", addresses=["100.64.0.1/32"]),
            thing("AddressPool", "homes", ranges=["100.64.0.0/13"], gateway="100.64.0.1", dns=[SERVER4]),
            thing("AddressPool", "links", ranges=["2001:db8:1000::/36"], prefixLength=64, dns=[SERVER6]),
            thing("AddressPool", "hosts", ranges=["2001:db8:2000::/64"]),
            thing("AddressPool", "networks", ranges=["2001:db8:8000::/33"], prefixLength=56),
            thing("RadiusServer", "aaa", address=RADIUS, secret=SECRET),
            thing("RadiusPolicy", "home", authentication=[{"server": "aaa"}], accounting=[{"server": "aaa"}]),
            thing(
                "SubscriberProfile",
                "home",
                authentication=["radius"],
                accounting=["radius"],
                ipv4Pools=["homes"],
                ipv6Pools=["links" if kind == "pppoe" else "hosts"],
                delegatedPools=["networks"],
                policy={"mss": 1452},
            ),
            *(each for plane in self.planes for each in plane.objects()),
            wait=False,
            # A Punt waits for its port in the data planes that do not have the port.
            check=planes == 1,
        )
        punts = (2 if kind == "pppoe" else 1) * planes
        wait_until(lambda: len(self.gateway.json("get", "punts") or []) == punts, 30, "each server serves")
        for plane in self.planes:
            plane.dial_first(lab)
        for plane in self.planes:
            plane.prepare(lab, sessions // planes, window // planes, rate / planes)

    def start_agent(self):
        if len(self.planes) == 1:
            self.gateway.start_agent()
            return
        config = self.gateway.directory / "agent.yaml"
        endpoints = [{"name": plane.name, "endpoint": f"unix://{plane.socket}"} for plane in self.planes]
        spoken = {"listen": f"unix://{self.gateway.agent_socket}", "store": str(self.gateway.directory / "intent.db")}
        config.write_text(json.dumps(spoken | {"dataplanes": endpoints, "northbounds": self.northbounds}))
        self.gateway.agent_socket.unlink(missing_ok=True)
        self.gateway.agent = self.gateway.process("agent", SLUICE, "agent", "--config", config)
        self.gateway.wait_for_socket(self.gateway.agent_socket, self.gateway.agent)

    def ask(self, command, *numbers):
        """The same command to all subscribers' programs; numbers are shared among them."""
        return merged([p.dialer.ask(command, *(n // len(self.planes) for n in numbers)) for p in self.planes])

    def status(self):
        return merged([plane.dialer.status() for plane in self.planes])

    def until(self, condition, seconds, what):
        end = time.monotonic() + seconds
        while not condition(status := self.status()):
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not in {seconds} s: {status}")
            time.sleep(0.05)

    def get(self, page):
        """A page of the agent's metrics; none: the agent does not answer, or is not ready."""
        got = self.planes[0].inside.run("curl", "-sf", "-m", "30", f"http://{METRICS}/{page}", check=False)
        return got.stdout if got.returncode == 0 else None

    def in_sync(self, sessions):
        """Whether the data planes' observed state is read and equal to the desired state, with all sessions in it."""
        if self.get("readyz") is None:
            return False
        applied = waiting = known = 0
        for line in (self.get("metrics") or "").splitlines():
            if line.startswith("sluice_objects{"):
                count = int(float(line.rsplit(" ", 1)[1]))
                applied += count if 'kind="Session",state="applied"' in line else 0
                waiting += count if 'state="applied"' not in line else 0
            elif line.startswith(('sluice_pppoe_sessions{state="connected"}', "sluice_ipoe_clients ")):
                known += int(float(line.rsplit(" ", 1)[1]))
        return (applied, waiting, known) == (sessions, 0, sessions)

    def processes(self):
        """Process identifiers by program."""
        return {
            "agent": [self.gateway.agent.pid],
            "dataplane": [self.gateway.dataplane.pid, *(plane.process.pid for plane in self.planes[1:])],
            "freeradius": [self.radius.process.pid],
            "client": [plane.dialer.pid for plane in self.planes],
        }


def merged(all):
    """Status of several Dialers as of one: counts are added, times are the longest."""
    whole = {}
    for each in all:
        for key, value in each.items():
            if isinstance(value, list):
                whole[key] = [a + b for a, b in zip(whole.get(key, [0] * len(value)), value, strict=True)]
            elif key.endswith("_ms") or key == "seconds":
                whole[key] = max(whole.get(key, 0), value)
            else:
                whole[key] = whole.get(key, 0) + value
    return whole


class Interval:
    """Time and CPU of all processes from its beginning on."""

    def __init__(self, site):
        self.site, self.began = site, time.monotonic()
        self.before = self.used()

    def used(self):
        return {name: sum(map(processor, pids)) for name, pids in self.site.processes().items()}

    def end(self):
        seconds = time.monotonic() - self.began
        return seconds, {name: used - self.before[name] for name, used in self.used().items()}


def progress(text):
    print(text, file=sys.stderr, flush=True)


def beside(lab, site, rate):
    """Rows of subscribers that dial in without and beside a flood."""
    plane, rows = site.planes[0], []
    for name, vlan, packets in (("quiet", 1800, 0), ("flooded", 1801, rate)):
        with Flood(plane, packets) if packets else contextlib.nullcontext() as flood:
            dialer = Dialer(
                lab,
                plane.access,
                "line",
                name=name,
                pppoe=BESIDE,
                pppoe_vlan=vlan,
                inner=INNER,
                password="secret",
                echo="300s",
                window=64,
                rate=BESIDE_RATE,
            )
            status = dialer.dial(120)
        row = {"scenario": f"setup-pppoe-{name}", "sessions": BESIDE, "flood_packets": flood.sent if flood else 0}
        rows.append(row | {each: status[each] for each in ("seconds", "median_ms", "p99_ms", "retries", "failed")})
        dialer.hang_up()
        dialer.close()
    return rows


def dial(site, sessions, patience):
    """Dials until so many sessions are up; the row of the first MEASURED."""
    interval = Interval(site)
    site.ask("dial")
    row, shown, end = None, 0, time.monotonic() + patience
    while True:
        status = site.status()
        if row is None and status["up"] >= min(MEASURED, sessions):
            seconds, cpu = interval.end()
            row = {"sessions": status["setups"], "seconds": seconds, "per_second": status["setups"] / seconds} | {
                f"{name}_cpu_us": 1e6 * each / status["setups"] for name, each in cpu.items()
            }
            row |= {f"{name}_share": each / seconds for name, each in cpu.items()}
            row |= {name: status[name] for name in ("retries", "failed", "median_ms", "p99_ms")}
        if status["up"] >= sessions:
            break
        if time.monotonic() > end:
            raise TimeoutError(f"{status['up']} of {sessions} sessions are up after {patience} s: {status}")
        if time.monotonic() - interval.began >= shown:
            shown += 5
            seen = ", ".join(f"{status[what]} {what}" for what in ("up", "retries", "failed"))
            progress(f"{time.monotonic() - interval.began:.0f} s: {seen}")
        time.sleep(0.2)
    seconds, cpu = interval.end()
    whole = {"sessions": sessions, "seconds": seconds, "per_second": sessions / seconds}
    return row, whole | {f"{name}_cpu_us": 1e6 * each / sessions for name, each in cpu.items()}


def restart(site, sessions):
    """Kills the agent under traffic and starts it again: how long no reply came, and when everything is as it was."""
    gateway = site.gateway
    site.ask("traffic", TRAFFIC)
    site.until(lambda s: sum(s["received"]) > TRAFFIC, 30, "traffic")
    site.ask("reset")
    time.sleep(5)
    usual = site.status()["longest_gap_ms"]
    before = site.ask("reset")
    gateway.agent.kill()
    time.sleep(2)
    began = time.monotonic()
    site.start_agent()
    while not site.in_sync(sessions):
        # Each look costs processors that the agent needs.
        time.sleep(0.25)
        if time.monotonic() - began > 300:
            raise TimeoutError(f"the agent does not reconcile: {(site.get('metrics') or 'no metrics')[-4000:]}")
    seconds, cpu = time.monotonic() - began, processor(gateway.agent.pid)
    time.sleep(3)
    site.ask("traffic", 0)
    time.sleep(1)
    after = site.status()
    sent, received = (sum(after[way]) for way in ("sent", "received"))
    return {
        "sessions": sessions,
        "seconds": seconds,
        "agent_cpu_seconds": cpu,
        "longest_gap_ms": after["longest_gap_ms"],
        "usual_gap_ms": usual,
        "traffic": TRAFFIC,
        "sent": sent,
        "lost": sent - received,
        "ended": after["ended"] - before["ended"],
        "up": after["up"],
    }


def start_records(site):
    """Start records at the RADIUS server, once no record waits in the agent, and how many sessions they are of. The
    first subscriber of each data plane and those of `beside`, which hung up, have one, too."""

    def delivered():
        lines = (site.get("metrics") or "").splitlines()
        return "sluice_radius_spool_records 0" in lines

    wait_until(delivered, 300, "each record is at the server")
    all, session, starts = [], None, False
    with open(site.radius.directory / "detail", errors="replace") as detail:
        for line in detail:
            if "Acct-Session-Id =" in line:
                session = line.split('"')[1]
            elif "Acct-Status-Type = Start" in line:
                starts = True
            elif not line.strip():
                if starts:
                    all.append(session)
                session, starts = None, False
    first = len(site.planes) + site.beside
    return {"start_records": len(all) - first, "sessions_with_start": len(set(all)) - first}


def measure(lab, given):
    site = Site(lab, given.sessions, given.window, given.rate, given.planes, given.access)
    sessions = given.sessions // given.planes * given.planes
    conditions = {"cpu": platform.processor() or platform.machine(), "processors": os.cpu_count()}
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        conditions["cpu"] = next(line for line in lines if line.startswith("model name")).split(":")[1].strip()
    flooded = beside(lab, site, given.flood) if given.flood and given.access == "pppoe" else []
    site.beside = BESIDE * len(flooded)
    first, whole = dial(site, sessions, given.patience)
    name = f"setup-{given.access}-radius"
    rows = [*flooded, {"scenario": name} | first, {"scenario": f"{name}-all"} | whole]
    time.sleep(2)
    memory = {name: sum(map(resident, pids)) for name, pids in site.processes().items()}
    rows.append({"scenario": "setup-memory", "sessions": sessions} | {f"{n}_bytes": b for n, b in memory.items()})
    rows.append({"scenario": "setup-agent-restart"} | restart(site, sessions) | start_records(site))
    if given.planes > 1:
        rows = [row | {"scenario": f"{row['scenario']}-{given.planes}-planes"} for row in rows]
    return [row | {"conditions": conditions} for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--access", default="pppoe", choices=["pppoe", "ipoe"])
    parser.add_argument("--sessions", type=int, default=192000, help="sessions in all (%(default)s)")
    parser.add_argument("--planes", type=int, default=1, help="data planes that share the sessions (%(default)s)")
    parser.add_argument("--window", type=int, default=512, help="subscribers that dial at the same time (%(default)s)")
    parser.add_argument("--rate", type=float, default=0, help="dials a second; 0: as many as the window allows")
    parser.add_argument("--patience", type=float, default=1800, help="seconds for all of them (%(default)s)")
    parser.add_argument("--flood", type=int, default=20000, help="PADIs a second of a flood; 0: none (%(default)s)")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("setup: namespaces need root")
    with Lab() as lab:
        rows = measure(lab, given)
    for row in rows:
        print(
            json.dumps(
                {
                    key: round(value, 3) if isinstance(value, float) else value
                    for key, value in row.items()
                    if key != "conditions"
                }
            )
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    for row in rows:
        if "start_records" in row and {row["start_records"], row["sessions_with_start"]} != {row["sessions"]}:
            sys.exit(f"setup: each session needs one Start record at the RADIUS server: {row}")


if __name__ == "__main__":
    main()
