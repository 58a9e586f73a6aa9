# SPDX-License-Identifier: Apache-2.0
"""A site with untrusted access: UEs, the N3IWF, an AMF, and a UPF with a server behind it."""

import subprocess
from dataclasses import dataclass
from ipaddress import ip_address

import pytest

from . import Gateway, Upf, thing
from .certificate import n3iwf_certificate
from .core import N3iwfAmf, Ues
from .laboratory import wait_until
from .wireshark import Sniffer

GATEWAY, FIRST_UE = "192.0.2.1", "192.0.2.100"
GATEWAY6, FIRST_UE6 = "2001:db8:2::1", "2001:db8:2::100"
NODE, AMF, OTHER_AMF = "10.9.8.1", "10.9.8.2", "10.9.8.3"
CORE, UPF = "198.51.100.1", "198.51.100.2"
SERVER, SERVER6 = "203.0.113.1", "2001:db8:99::1"
INNER_NAS, USER_PLANE = "10.200.0.1", "10.200.0.2"
INNER_NAS6, USER_PLANE6, INNER_POOL6 = "2001:db8:200::1", "2001:db8:200::2", "2001:db8:201::/64"
EF = 46
VOICE = ("-Q", hex(EF << 2))


@dataclass
class Tunnel:
    """The UPF's data of a PDU session."""

    ip4: str
    teid_up: int
    teid_down: int
    ip6: str = ""


def qfi_of(packet):
    """The QoS flow of a packet, as the UPF and UEs choose it."""
    traffic = packet[1] if packet[0] >> 4 == 4 else (packet[0] & 15) << 4 | packet[1] >> 4
    return 1 if traffic >> 2 == EF else 9


class Site:
    """UEs == N3IWF == AMF and UPF with a server behind it."""

    def __init__(self, lab, ues=8, gateway=None, **amf):
        self.lab = lab
        self.wifi, self.inside, self.core = (lab.namespace(name) for name in ("wifi", "inside", "core"))
        self.inside.link("acc0", self.wifi, "wlan")
        self.inside.link("n3", self.core, "upf")
        self.inside.link("n2", self.core, "amf")
        for ours in ("acc0", "n3"):
            self.inside.silent(ours)
        self.inside.ip("addr", "add", f"{NODE}/24", "dev", "n2")
        self.core.ip("addr", "add", f"{AMF}/24", "dev", "amf")
        self.core.ip("addr", "add", f"{UPF}/24", "dev", "upf")
        self.core.ip("addr", "add", f"{SERVER}/32", "dev", "lo")
        self.core.ip("addr", "add", f"{SERVER6}/128", "dev", "lo")
        for n in range(ues):
            self.wifi.ip("addr", "add", f"{ip_address(FIRST_UE) + n}/16", "dev", "wlan")
        self.wifi.ip("addr", "add", f"{FIRST_UE6}/64", "dev", "wlan", "nodad")
        self.files = n3iwf_certificate(lab.directory)
        self.sniffers = [
            (Sniffer(lab, self.core, "amf", "sctp"), NODE),
            (Sniffer(lab, self.core, "upf", "udp port 2152"), CORE),
        ]
        self.amf = N3iwfAmf(lab, self.core, AMF, upf=UPF, **amf)
        self.upf = Upf(lab, self.core, UPF)
        self.gateway = Gateway(lab, self.inside, **(gateway or {}))
        certificate = {"certificateFile": f"{self.files}/n3iwf.pem", "privateKeyFile": f"{self.files}/n3iwf.key"}
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac="02:00:00:00:aa:01"),
            thing("Port", "core", device="net_af_packet1,iface=n3,framecnt=4096", mac="02:00:00:00:aa:02"),
            thing("Interface", "access", port="access", addresses=[f"{GATEWAY}/16", f"{GATEWAY6}/64"]),
            thing("Interface", "core", port="core", addresses=[f"{CORE}/24"]),
            thing("Interface", "nas", addresses=[f"{INNER_NAS}/32", f"{INNER_NAS6}/128"]),
            thing("IkeCredential", "n3iwf", **certificate),
            thing("AccessNode", "n3iwf", plmn="00101", n3iwfId=9, trackingAreas=[{"tac": 1, "slices": [{"sst": 1}]}],
                  localAddresses=[NODE]),
            thing("Amf", "amf", node="n3iwf", addresses=[AMF]),
            self.n3iwf(),
        )  # fmt: skip
        self.amf.wait("setup")

    def n3iwf(self, **more):
        spec = {
            "node": "n3iwf", "localAddress": GATEWAY, "credential": "n3iwf", "innerPools": ["10.201.0.0/16"],
            "nasAddress": INNER_NAS, "userPlaneAddresses": [USER_PLANE], "coreAddress": CORE,
            "markings": [{"fiveQi": 9, "dscp": "af21"}], "childFiveQis": [1],
        }  # fmt: skip
        return thing("N3iwf", "wifi", **(spec | more))

    def ues(self, count=1, first=0, **options):
        return Ues(
            self.lab,
            self.wifi,
            gateway=GATEWAY,
            outer=ip_address(FIRST_UE) + first,
            authority=self.files / "ca.pem",
            count=count,
            route=[f"{SERVER}/32", f"{SERVER6}/128"],
            **options,
        )

    def attach(self, ues, session=1, ue=0, kind=1):
        """Establish a PDU session, and configure the UPF. The AMF's number of the UE, and its address."""
        before = len(self.amf.events("tunnel"))
        ues.do("session", ue=ue, session=session, kind=kind)
        number, address = self.join(before + 1)
        ues.wait("session", ue=ue, session=session)
        return number, address

    def join(self, count):
        """The UPF gets the N3IWF's end of the newest tunnel."""
        tunnel = self.amf.wait("tunnel", count)[-1]
        asked = next(e for e in reversed(self.amf.events("session")) if e["amf"] == tunnel["amf"])
        self.upf.add(Tunnel(asked["address"], asked["teid"], tunnel["teid"], asked["address6"]), CORE, qfi_of)
        return tunnel["amf"], asked["address"] or asked["address6"]

    def reaches(self, address, *more, count=3, deadline=30):
        """Whether so many packets are answered before the deadline. Without one, ping waits two round trips alone."""
        to = SERVER6 if ":" in address else SERVER
        command = ("ping", "-c", str(count), "-i", "0.2", "-w", str(deadline), "-I", address, *more, to)
        return self.wifi.run(*command, check=False).returncode == 0

    def connected(self, *more):
        """The UEs that are connected, as operators see them."""
        return self.gateway.json("get", "ues", "--state", "connected", *more) or []

    def left(self):
        names = ("n3iwf-wifi-", "n3iwf-shared-")
        return [each for each in self.gateway.json("get", "all") if each["metadata"]["name"].startswith(names)]


def fresh(site, ues):
    """No event of before counts, and the options of UEs are the usual ones."""
    usual = {"guami": "", "sst": 1, "nat": 0, "mangle": "", "cause": 3, "emergency": 0, "inner": 4, "refusechild": 0}
    usual |= {"refusemodify": 0, "halt": 0, "mute": 0, "cipher": "gcm", "asked": "", "an": "", "bare": 0}
    having(ues, **usual, gateway=GATEWAY, outer=FIRST_UE)
    ues.mark()
    site.amf.mark()


def having(ues, **options):
    """UEs that register from now on have these options."""
    before = len(ues.events("set"))
    ues.do("set", options=options)
    ues.wait("set", before + 1)


def register(ues, ue=0):
    before = len(ues.events("registered", ue=ue))
    ues.do("register", ue=ue)
    ues.wait("registered", before + 1, ue=ue)


def connected(site, ues, ue=0):
    """A UE that registers and has a PDU session: the AMF's number of it, and its address."""
    register(ues, ue)
    return site.attach(ues, ue=ue)


def pinging(site, address, *more):
    """Sends a fixed number of pings at a fixed interval, with or without replies."""
    more = more or ("-i", "0.05", "-c", "60")
    return subprocess.Popen(
        ["ip", "netns", "exec", site.wifi.name, "ping", "-q", "-W", "5", "-I", address, *more, SERVER],
        stdout=subprocess.PIPE,
        text=True,
    )


def nothing_left(site, seconds=30):
    wait_until(lambda: not site.left(), seconds, what=f"nothing is left: {site.left()}")


@pytest.fixture
def ues(site, all_ues):
    """A module's UEs, disconnected, whatever the state of the test before. Earlier events do not count."""
    if site.left():
        site.gateway.sluice("ike", "terminate", "n3iwf-wifi")
        nothing_left(site)
    fresh(site, all_ues)
    return all_ues
