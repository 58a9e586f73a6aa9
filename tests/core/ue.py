#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""UEs on untrusted access to a 5G core (TS 24.502), to test an N3IWF against: IKEv2 with EAP-5G, NAS over TCP in the
signalling SA, ESP and GRE.

The kernel's TCP speaks NAS through a TUN device, and another one has the addresses of PDU sessions. Nothing of it is
the agent's. It writes each event as a line of JSON, and takes commands as lines of JSON: {"do": "register", "ue": 0}.
"""

import argparse
import asyncio
import contextlib
import fcntl
import ipaddress
import json
import os
import socket
import struct
import subprocess
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cryptography.exceptions import InvalidTag

from core.ike import (
    AUTH,
    CHILD,
    CP,
    DELETE,
    EAP,
    IDI,
    IDR,
    IKE_AUTH,
    INFORMATIONAL,
    MOBIKE,
    SA,
    SHARED_KEY,
    TSI,
    TSR,
    Child,
    Initiator,
    Refused,
    esp_offer,
    first_proposal,
    prf,
    prf_plus,
    proposal,
    selectors,
)
from core.mobile import ETHERNET, FAILURE, SUCCESS, Mobile
from core.usim import UPLINK, NoSecurity

QOS_INFO, NAS_IP4, NAS_IP6, UP_IP4, UP_IP6, NAS_PORT, BACKOFF, SA_INFO = range(55501, 55509)
NO_PROPOSAL = 14
CONGESTION = 15500
INNER_IP4, INNER_IP6 = 1, 8
# Of IPv6 addresses of PDU sessions.
PREFIX = bytes.fromhex("20010db800640000")
TUN_ON, TUN_MODE = 0x400454CA, 0x1001


class Ue(Initiator, Mobile):
    def __init__(self, world, number):
        self.world, self.number = world, number
        self.attempts = 0  # to register
        o = world.options
        self.plmn = o.plmn
        self.supi = o.plmn + f"{number + 1:010d}"
        self.reset()

    def reset(self):
        self.outer = str(ipaddress.ip_address(self.world.options.outer) + self.number)
        self.begin()
        # Outlives the connection: what SERVICE REQUEST needs.
        if getattr(self, "security", None):
            self.kept = self.security, self.sessions
        self.sessions = {}  # addresses of each
        self.frames = set()  # of type Ethernet
        self.security = self.inner = self.writer = None
        self.nas_queue = asyncio.Queue()

    def say(self, event, **more):
        self.world.say(event, ue=self.number, **more)

    def close(self):
        super().close()
        if self.writer:
            self.writer.close()

    def ended(self):
        self.close()
        if self.inner:
            self.world.forget(self)
        self.reset()

    def qos(self, data):
        assert data[0] == len(data) - 1, "5G_QOS_INFO: length"
        session, count = data[1], data[2]
        flags = data[3 + count]
        dscp = data[4 + count] if flags & 1 else None
        return session, list(data[3 : 3 + count]), bool(flags & 2), dscp

    def offered(self, child, kind, data):
        if kind == QOS_INFO:
            child.session, child.qfis, child.default, child.dscp = self.qos(data)
        elif kind in (UP_IP4, UP_IP6):
            child.far = data

    def takes(self):
        return not self.world.options.refusechild

    def hears(self, exchange):
        if exchange == CHILD and self.world.options.mute:
            self.say("mute")
            return False
        return True

    def informed(self, kind, data):
        if kind == SA_INFO:
            self.modified = next(c for c in self.children.values() if c.spi_out == data)
        elif kind == QOS_INFO:
            session, qfis, default, dscp = self.qos(data)
            child = self.modified
            assert (child.session, child.default) == (session, default), "UP_SA_INFO: another child SA"
            if self.world.options.refusemodify:
                self.say("modification-refused", session=session, qfis=qfis)
                return NO_PROPOSAL
            child.qfis, child.dscp = qfis, dscp
            self.say("modified", session=session, qfis=qfis, default=default)
        return None

    @property
    def guami(self):
        return self.world.options.guami

    @property
    def cause(self):
        return self.world.options.cause

    @property
    def sst(self):
        return self.world.options.sst

    def parameters(self):
        return bytes.fromhex(self.world.options.an) + super().parameters()

    def service_request(self):
        """Signalling, with the 5G-S-TMSI."""
        identity = b"\xf4" + self.guti[4:]
        request = bytes([0x7E, 0, 0x4C, 0x10]) + struct.pack("!H", len(identity)) + identity
        return self.security.protect(request, 1)

    def initial_message(self):
        if self.service:
            return self.service_request()
        if self.world.options.emergency:
            # Emergency registration, by the IMEI.
            self.security = NoSecurity()
            identity = bytes([0x0B]) + bytes(7)
            return bytes([0x7E, 0, 0x41, 0x7C]) + struct.pack("!H", len(identity)) + identity
        return self.registration()

    async def eap(self, packet, service=False):
        """EAP-5G until success. Returns the key."""
        self.service, key = service, None
        while packet[0] != SUCCESS:
            if packet[0] == FAILURE:
                raise Refused("EAP-Failure")
            if service and key is None:
                key = self.security.n3iwf_key(self.security.counts[UPLINK])
            packet = (await self.auth([(EAP, self.eap_response(packet, self.world.options.mangle))]))[EAP]
        return key or self.security.n3iwf_key(0)

    async def auth(self, payloads):
        kinds = await super().auth(payloads)
        notes = kinds["notes"]
        if EAP not in kinds and any(n < 16384 for n in notes) or CONGESTION in notes:
            raise Refused(f"notifications {sorted(notes)} back-off {notes.get(BACKOFF, b'').hex()}")
        return kinds

    async def register(self, service=False):
        if getattr(self, "sockets", None):
            self.close()
        self.reset()
        if service:
            self.security, self.sessions = self.kept
        self.open_sockets()
        started = self.world.loop.time()
        await self.init()
        identity = bytes([11, 0, 0, 0]) + os.urandom(8)
        spi = os.urandom(4)
        offer = proposal(1, 3, spi, esp_offer(self.cipher))
        everything = selectors("0.0.0.0/0", "::/0")
        wanted = INNER_IP6 if self.world.options.inner == 6 else INNER_IP4
        asked = bytes.fromhex(self.world.options.asked) or struct.pack("!B3xHH", 1, wanted, 0)
        if self.world.options.bare:
            await self.probe(IKE_AUTH, [])
        kinds = await self.auth(
            [(IDI, identity), (CP, asked), (SA, offer), (TSI, everything), (TSR, everything), MOBIKE]
        )
        self.gateway = kinds[IDR]
        self.verify(kinds, kinds["certificates"])
        key = await self.eap(kinds[EAP], service)
        if self.world.options.halt:
            raise Refused("it halts after EAP-Success")
        signed = self.first + self.nonces[1] + prf(self.sk_pi, identity)
        pad = prf(key, b"Key Pad for IKEv2")
        kinds = await self.auth([(AUTH, bytes([SHARED_KEY, 0, 0, 0]) + prf(pad, signed))])
        signed = self.second + self.nonces[0] + prf(self.sk_pr, self.gateway)
        assert kinds[AUTH][4:] == prf(pad, signed), "the gateway's second AUTH"
        notes = kinds["notes"]
        _, _, far_spi, transforms = first_proposal(kinds[SA])
        size = self.cipher.size(transforms[1][1])
        material = prf_plus(self.sk_d, b"".join(self.nonces), 2 * size)
        child = Child(self.cipher, spi, far_spi, material[size:], material[:size], transforms.get(5, (0, 0))[0] == 1)
        child.own, child.theirs = kinds[TSI], kinds[TSR]
        self.children[spi] = self.signalling = child
        at = kinds[CP][4:]
        while at:
            kind, length = struct.unpack_from("!HH", at)
            if kind == wanted:
                self.inner = at[4 : 4 + (16 if wanted == INNER_IP6 else 4)]
            at = at[4 + length :]
        self.nas_address = str(ipaddress.ip_address(notes[NAS_IP6 if wanted == INNER_IP6 else NAS_IP4]))
        self.nas_port = int.from_bytes(notes[NAS_PORT], "big")
        self.world.know(self)
        self.say("connected", inner=str(ipaddress.ip_address(self.inner)), nas=self.nas_address)
        await self.connect()
        accept = await asyncio.wait_for(self.nas_queue.get(), 15)
        assert accept[2] == (0x4E if service else 0x42), accept.hex()
        if not service:
            self.guti = accept[9:19]
            self.send_nas(bytes([0x7E, 0, 0x43]))
        self.say("served" if service else "registered", seconds=round(self.world.loop.time() - started, 3))

    async def connect(self):
        s = socket.socket(socket.AF_INET if len(self.inner) == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        s.bind((str(ipaddress.ip_address(self.inner)), 0))
        s.setblocking(False)
        await asyncio.wait_for(self.world.loop.sock_connect(s, (self.nas_address, self.nas_port)), 20)
        reader, self.writer = await asyncio.open_connection(sock=s)
        self.reading = self.world.loop.create_task(self.read_nas(reader))

    async def read_nas(self, reader):
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(2), "big")
                message = await reader.readexactly(size)
                self.downlink(self.security.open(message))
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            self.say("nas-closed")
        except Exception:
            self.say("failure", error=traceback.format_exc())

    def downlink(self, message):
        kind = message[2]
        if kind == 0x68:
            inner = self.session_message(message)
            if inner[3] == 0xC2:
                self.accepted(inner)
            elif inner[3] == 0xD3:
                self.sessions.pop(inner[1], None)
                self.world.know(self)
                self.send_nas(self.transport(bytes([0x2E, inner[1], inner[2], 0xD4])))
                self.say("session-released", session=inner[1])
        elif kind == 0x54:
            self.say("nas", size=len(message))
        else:
            self.nas_queue.put_nowait(message)

    def send_nas(self, message):
        octets = self.security.protect(message)
        self.writer.write(struct.pack("!H", len(octets)) + octets)

    def establish(self, session, kind):
        """PDU session type 1: IPv4, 2: IPv6, 3: both, 5: Ethernet."""
        self.send_nas(self.session_request(session, kind))

    def accepted(self, message):
        session, given = message[1], self.session_address(message)
        if message[4] & 7 == ETHERNET:
            assert not given and any(child.session == session for child in self.children.values()), message.hex()
            self.frames.add(session)
            self.say("session", session=session, address="", address6="")
            return
        six = [PREFIX + given[:8]] if len(given) >= 8 else []
        addresses = [given[-4:], *six] if len(given) != 8 else six
        assert any(child.session == session for child in self.children.values()), "NAS came before its child SA"
        self.sessions[session] = addresses
        self.world.know(self)
        texts = [str(ipaddress.ip_address(address)) for address in addresses]
        self.say("session", session=session, address=texts[0], address6=texts[-1])

    # ---- User plane

    def newest(self, wanted):
        found = [child for child in self.children.values() if wanted(child) and not child.predecessor]
        return found[-1] if found else None

    def send_inside(self, child, packet, dscp=0):
        data = child.seal(packet)
        try:
            if self.port == 4500:
                self.sockets[4500].sendto(data, (self.world.options.gateway, 4500))
            else:
                self.sockets["esp"].sendto(data, (self.world.options.gateway, 0))
        except (OSError, KeyError):
            pass

    def send_user(self, session, packet):
        """By the QFI that the UE's rules choose: DSCP EF is flow 1, else flow 9."""
        traffic = packet[1] if packet[0] >> 4 == 4 else (packet[0] & 15) << 4 | packet[1] >> 4
        self.send_gre(session, packet, 1 if traffic >> 2 == 46 else 9, traffic)

    def send_gre(self, session, packet, qfi, traffic=0):
        child = self.newest(lambda c: c.session == session and not c.default and qfi in c.qfis)
        child = child or self.newest(lambda c: c.session == session and c.default)
        if not child:
            return
        gre = bytes([0x20, 0, 0, 0, qfi, 0, 0, 0]) + packet
        if len(child.far) == 16:
            head = struct.pack("!IHBB", 6 << 28 | traffic << 20, len(gre), 47, 64) + self.inner + child.far
            self.send_inside(child, head + gre)
            return
        head = struct.pack("!BBHHHBBH", 0x45, traffic, 20 + len(gre), 0, 0, 64, 47, 0) + self.inner + child.far
        total = sum(struct.unpack("!10H", head))
        total = (total & 0xFFFF) + (total >> 16)
        total = (total & 0xFFFF) + (total >> 16)
        head = head[:10] + struct.pack("!H", 0xFFFF & ~total) + head[12:]
        self.send_inside(child, head + gre)

    def esp(self, data, dscp=None):
        child = self.children.get(data[:4])
        if not child:
            return
        try:
            packet = child.open(data)
        except InvalidTag:
            self.say("bad-esp")
            return
        if child is self.signalling or child.session is None:
            self.world.write(self.world.nas, packet)
            return
        four = packet[0] >> 4 == 4
        head, protocol = ((packet[0] & 15) * 4, packet[9]) if four else (40, packet[6])
        traffic = packet[1] if four else (packet[0] & 15) << 4 | packet[1] >> 4
        if protocol != 47 or packet[head] != 0x20:
            self.say("not-gre", packet=packet.hex())
            return
        key = packet[head + 4 : head + 8]
        # DSCP of the header in front of GRE, and of the one in front of ESP.
        flow = (self.number, child.session, key[0] & 63, key[3] >> 7, traffic >> 2, dscp)
        self.world.flows[flow] = self.world.flows.get(flow, 0) + 1
        if child.session in self.frames:
            self.say(
                "frame", session=child.session, qfi=key[0] & 63, dscp=traffic >> 2, octets=packet[head + 8 :].hex()
            )
            return
        self.world.write(self.world.users, packet[head + 8 :])

    async def deregister(self):
        if not self.writer or not self.security:
            self.say("dead")
            return
        self.send_nas(self.deregistration())


class World:
    def __init__(self, options):
        self.options = options
        self.ues = [Ue(self, n) for n in range(options.count)]
        self.inner, self.users_of, self.flows = {}, {}, {}

    def say(self, event, **more):
        print(json.dumps({"event": event, **more}), flush=True)

    def device(self, name, mtu):
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, TUN_ON, struct.pack("16sH", name.encode(), TUN_MODE))
        for command in (("link", "set", name, "mtu", str(mtu), "up"),):
            subprocess.run(["ip", *command], check=True)
        return fd

    def ip(self, *command):
        subprocess.run(["ip", *command], check=False, capture_output=True)

    def write(self, fd, packet):
        with contextlib.suppress(OSError):
            os.write(fd, packet)

    def know(self, ue):
        inner = ipaddress.ip_address(ue.inner)
        if self.inner.get(ue.inner) is not ue:
            only = ("nodad",) if inner.version == 6 else ()
            self.ip("addr", "add", f"{inner}/{inner.max_prefixlen}", "dev", "nwu", *only)
            self.ip("route", "replace", ue.nas_address, "dev", "nwu")
        self.inner[ue.inner] = ue
        for session, addresses in ue.sessions.items():
            for address in addresses:
                if self.users_of.get(address) != (ue, session):
                    self.users_of[address] = (ue, session)
                    text, only = ipaddress.ip_address(address), ("nodad",) if len(address) == 16 else ()
                    self.ip("addr", "add", f"{text}/{8 * len(address)}", "dev", "pdu", *only)

    def forget(self, ue):
        self.inner.pop(ue.inner, None)
        for addresses in ue.sessions.values():
            for address in addresses:
                self.users_of.pop(address, None)

    def from_nas(self):
        try:
            packet = os.read(self.nas, 65536)
        except OSError:
            return
        ue = self.inner.get(packet[12:16] if packet[0] >> 4 == 4 else packet[8:24])
        if ue and ue.signalling:
            ue.send_inside(ue.signalling, packet)

    def from_users(self):
        for _ in range(64):
            try:
                packet = os.read(self.users, 65536)
            except OSError:
                return
            found = self.users_of.get(packet[12:16] if packet[0] >> 4 == 4 else packet[8:24])
            if found:
                found[0].send_user(found[1], packet)

    async def command(self, c):
        ues = self.ues if c.get("ue") is None else [self.ues[c["ue"]]]
        do = c["do"]
        if do in ("register", "service"):
            gate = asyncio.Semaphore(c.get("at_once", 8))

            async def one(ue):
                async with gate:
                    ue.attempts += 1
                    attempt = ue.attempts
                    try:
                        await ue.register(do == "service")
                    except Exception as why:
                        # An attempt that is given up, and waits for its last answer, ends without the one of now.
                        if attempt != ue.attempts:
                            return
                        ue.say("refused", why=f"{type(why).__name__}: {why}", trace=traceback.format_exc())
                        ue.close()

            await asyncio.gather(*map(one, ues))
        elif do == "session":
            for ue in ues:
                ue.establish(c.get("session", 1), c.get("kind", 1))
        elif do == "deregister":
            for ue in ues:
                await ue.deregister()
        elif do == "close":
            for ue in ues:
                ue.say("closing")
                # Without an answer, it ends as well.
                with contextlib.suppress(Refused, AttributeError):
                    await ue.exchange(INFORMATIONAL, [(DELETE, struct.pack("!BBH", 1, 0, 0))])
                ue.ended()
                ue.say("closed")
        elif do == "move":
            for ue in ues:
                await ue.move(c["to"])
        elif do == "rekey":
            for ue in ues:
                for child in list(ue.children.values()):
                    await ue.rekey(child)
                await ue.rekey_ike()
        elif do == "close-child":
            for ue in ues:
                await ue.close_child(ue.newest(lambda child: child.session == c["session"] and child.default))
        elif do == "die":
            for ue in ues:
                ue.close()
                ue.say("dead")
        elif do == "flows":
            self.say("flows", flows=[[*key, count] for key, count in self.flows.items()])
        elif do == "set":
            for name, value in c["options"].items():
                setattr(self.options, name, value)
            self.say("set")
        elif do == "frame":
            for ue in ues:
                ue.send_gre(c["session"], bytes.fromhex(c["octets"]), c["qfi"])
        elif do == "probe":
            for ue in ues:
                payloads = [(kind, bytes.fromhex(body)) for kind, body in c.get("payloads", ())]
                inner = bytes.fromhex(c["inner"]) if "inner" in c else None
                more = {key: c[key] for key in ("skip", "unsealed", "flips") if key in c}
                await ue.probe(c["exchange"], payloads, inner=inner, **more)
        elif do == "esp":
            # In the default child SA of a session: packets, as they are or with another padding or another end.
            for ue in ues:
                child = ue.newest(lambda child: child.session == c["session"] and child.default)
                for packet in c["packets"]:
                    padding = bytes.fromhex(c["padding"]) if "padding" in c else None
                    data = bytearray(child.seal(bytes.fromhex(packet), padding))
                    for at in c.get("flips", ()):
                        data[at] ^= 1
                    ue.sockets["esp"].sendto(data[: c.get("size", len(data))], (self.options.gateway, 0))
            self.say("esp")
        elif do == "children":
            for ue in ues:
                spis = {str(child.session): child.spi_in.hex() for child in ue.children.values() if child.default}
                ue.say("children", spis=spis, inner=ue.inner.hex())
        elif do == "raw-nas":
            for ue in ues:
                ue.writer.write(bytes.fromhex(c["octets"]))

    async def run(self):
        self.loop = asyncio.get_running_loop()
        self.nas, self.users = self.device("nwu", 1300), self.device("pdu", 1300)
        self.loop.add_reader(self.nas, self.from_nas)
        self.loop.add_reader(self.users, self.from_users)
        for destination in self.options.route:
            self.ip("route", "replace", destination, "dev", "pdu")
        self.say("listening")
        tasks = set()
        reader = asyncio.StreamReader()
        await self.loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            task = self.loop.create_task(self.guard(json.loads(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def guard(self, command):
        try:
            await self.command(command)
        except Exception:
            self.say("failure", error=traceback.format_exc())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--outer", required=True, help="the first UE's address; the others have the next ones")
    parser.add_argument("--authority", required=True)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--plmn", default="00101")
    parser.add_argument("--guami", default="")
    # Establishment cause (TS 24.502 section 9.2.2): signalling; 0: emergency.
    parser.add_argument("--cause", type=int, default=3)
    # SST of the requested slice.
    parser.add_argument("--sst", type=int, default=1)
    # Emergency registration without authentication; the family of the inner address; refuse child SAs of PDU sessions.
    parser.add_argument("--emergency", type=int, default=0)
    parser.add_argument("--inner", type=int, default=4)
    parser.add_argument("--refusechild", type=int, default=0)
    parser.add_argument("--refusemodify", type=int, default=0)
    # Go no further than EAP-Success.
    parser.add_argument("--halt", type=int, default=0)
    # Of IKE and ESP: gcm or cbc.
    parser.add_argument("--cipher", default="gcm")
    # In place of the configuration request's content; more AN parameters, in front of the others; an IKE_AUTH request
    # without payloads. In hexadecimal, but the last.
    parser.add_argument("--asked", default="")
    parser.add_argument("--an", default="")
    parser.add_argument("--bare", type=int, default=0)
    # Take no requests for child SAs, without an answer.
    parser.add_argument("--mute", type=int, default=0)
    parser.add_argument("--nat", type=int, default=0)
    parser.add_argument("--mangle", default="")
    parser.add_argument("--route", action="append", default=[])
    asyncio.run(World(parser.parse_args()).run())


if __name__ == "__main__":
    main()
