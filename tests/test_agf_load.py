# SPDX-License-Identifier: Apache-2.0
"""Lines of homes come up, hang up, crash, move to another circuit, change their user, and change between BNG and AGF
service at random, while agent, data plane and AMF are killed.

AGF_LINES is their number (20; `make soak`: 1000), AGF_SECONDS how long they do so (a kill of each; `make soak`: 300).
The test prints the seed; AGF_SEED repeats its choices."""

import os
import time
from random import Random
from types import SimpleNamespace

import pytest
from lab import Dialer, Gateway, Upf, Wire, thing
from lab.core import Amf
from lab.gateway import METRICS
from lab.laboratory import wait_until
from lab.pppoe import IPCP, Host

pytestmark = pytest.mark.long(reason="`make soak` does it for longer")
LINES = int(os.environ.get("AGF_LINES", "20"))
SECONDS = float(os.environ.get("AGF_SECONDS", "0"))
SEED = int(os.environ.get("AGF_SEED", "0")) or int.from_bytes(os.urandom(4))
# A step of the whole takes longer with more lines.
PATIENCE = 120 + LINES // 4
# The core's addresses are of 100.64.0.0/10.
GATEWAY = "10.64.0.1"
N3, UPF, SERVER = "192.0.2.1", "192.0.2.2", "198.51.100.1"
N2, AMF = "10.9.8.1", "10.9.8.2"
CORE = {"authentication": ["core"], "accounting": ["core"], "gateway": GATEWAY}
BNG = {"authentication": ["local"], "ipv4Pools": ["bng"]}
VICTIMS = ("agent", "AMF", "data plane")


class Site:
    """`large`: lines stay up, and have neither users of a BNG nor short leases."""

    def __init__(self, lab, lines=LINES, large=False):
        self.access, self.inside, self.core = (lab.namespace(name) for name in ("access", "gateway", "core"))
        for ours, other, theirs in (("acc0", self.access, "line"), ("core0", self.core, "n3")):
            self.inside.link(ours, other, theirs)
            self.inside.silent(ours)
        self.access.silent("line")
        self.inside.link("n2", self.core, "amf")
        self.inside.ip("addr", "add", f"{N2}/24", "dev", "n2")
        for address, interface in ((f"{AMF}/24", "amf"), (f"{UPF}/24", "n3"), (f"{SERVER}/32", "lo")):
            self.core.ip("addr", "add", address, "dev", interface)
        self.amf = Amf(lab, self.core, AMF, upf=UPF, ue="100.64.0.0", fixed=1, quiet=1)
        self.upf = Upf(lab, self.core, UPF)
        metrics = {"type": "metrics", "name": "metrics", "listen": METRICS}
        self.gateway = Gateway(lab, self.inside, supervised=True, agent_too=True, northbounds=[metrics])
        areas = [{"tac": 1, "slices": [{"sst": 1}]}]
        users = [f"{kind}-{number:03}" for kind in ("first", "second") for number in range(1, lines + 1) if not large]
        pppoe, ipoe = (1000, 2000) if large else (200, 100)
        outer = {first: [f"{first}-{first + 1 + lines // 2000}"] for first in (pppoe, ipoe)}
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=acc0,framecnt=4096", mac="02:00:00:00:aa:01"),
            thing("Port", "core", device="net_af_packet1,iface=core0,framecnt=4096", mac="02:00:00:00:aa:02"),
            thing("Interface", "gateway", addresses=[f"{GATEWAY}/32"]),
            thing("Interface", "core", port="core", addresses=[f"{N3}/24"]),
            thing("AccessNode", "agf", plmn="00101", wagfId=7, trackingAreas=areas, localAddresses=[N2]),
            thing("Agf", "homes", node="agf", coreAddress=N3),
            thing("Amf", "core", node="agf", addresses=[AMF]),
            thing("AddressPool", "bng", ranges=["10.65.0.0/16"], gateway=GATEWAY),
            thing("SubscriberProfile", "home", **CORE),
            thing("SubscriberProfile", "other", **CORE),
            *(thing("LocalUser", user, username=user, password="secret") for user in users),
            thing("PppoeServer", "homes", port="access", outerVlans=outer[pppoe], innerVlans=["1-1000"], profile="home",
                  echoInterval="60s" if large else "2s", discoveryRatePerMac=100),
            thing("IpoeServer", "homes", port="access", outerVlans=outer[ipoe], innerVlans=["1-1000"], profile="other",
                  leaseTime="2h" if large else "10s", ratePerMac=100),
            # Of a line that the crowd has nothing to do with.
            thing("PppoeServer", "last", port="access", outerVlans=["210"], profile="other"),
            wait=False,
        )  # fmt: skip
        self.amf.wait("setup")
        half = max(1, lines // 2)
        self.dialer = Dialer(lab, self.access, "line", pppoe=half, ipoe=half, pppoe_vlan=pppoe, ipoe_vlan=ipoe, move=1,
                             password="secret", echo="60s" if large else "4s", username="first-{n},second-{n}",
                             without6="true", window=32, seed=SEED)  # fmt: skip

    def kill(self, victim):
        if victim == "AMF":
            self.amf.mark()
            self.amf.do("die")
            self.amf.child.wait(20)
            self.amf.start()
            return
        name = victim.replace(" ", "")
        process = getattr(self.gateway, name)
        process.kill()
        wait_until(lambda: getattr(self.gateway, name) is not process, 60, f"another {victim}")

    def profile(self, spec):
        """PPPoE lines that dial from now on have this service. The agent may have been killed a moment ago."""
        self.gateway.apply(thing("SubscriberProfile", "home", **spec), wait=False, check=False)

    def contexts(self):
        """Of the AMF."""
        before = len(self.amf.events("count"))
        self.amf.do("count")
        return self.amf.wait("count", before + 1)[-1]["ues"]


def test_after_lines_came_and_went_at_random_nothing_is_left(lab):
    random = Random(SEED)
    print(f"AGF_SEED={SEED}")
    site = Site(lab)
    dialer = site.dialer
    dialer.dial(PATIENCE)
    dialer.ask("churn", 3 if LINES < 100 else 20)
    end, kills = time.monotonic() + SECONDS, 0
    while kills < len(VICTIMS) or time.monotonic() < end:
        for _ in range(2):
            site.profile(random.choice((CORE, BNG)))
            time.sleep(random.uniform(1, 2 if LINES < 100 else 8))
        site.kill(VICTIMS[kills] if kills < len(VICTIMS) else random.choice(VICTIMS))
        kills += 1
    status = dialer.status()
    print(f"{kills} kills, {status}")
    assert status["setups"] > LINES
    # After all disturbances: all lines come up again.
    dialer.ask("churn", 0)
    dialer.until(lambda s: s["up"] == s["lines"], PATIENCE, "all lines are up again")
    dialer.hang_up()
    # A line that vanished is noticed after some LCP echoes, or when its lease ends.
    wait_until(lambda: site.gateway.json("subscriber", "list") == [], PATIENCE, f"AGF_SEED={SEED}: no subscribers")
    for name in ("sluice_agf_lines", "sluice_agf_pdu_sessions", "sluice_n2_ue_contexts", "sluice_subscriber_pool_used"):
        # Contexts of lines that were killed while they registered wait a minute for their owners.
        wait_until(lambda name=name: site.gateway.metric(name) == 0, PATIENCE, f"AGF_SEED={SEED}: {name} is 0")
    for kind in ("Session", "Meter", "FlowProfile", "QosProfile"):
        wait_until(lambda kind=kind: site.gateway.holds(kind) == [], 30, f"AGF_SEED={SEED}: no {kind} is left")
    wait_until(lambda: not site.contexts(), 60, lambda: f"AGF_SEED={SEED}: the AMF has no context: {site.contexts()}")
    # Everything works as at the start.
    site.amf.mark()
    host = Host(Wire(site.access, "line"), "02:00:00:00:77:01", 210, username="last", password="x")
    assert host.dial(IPCP)
    given, tunnel = site.amf.wait("address")[-1], site.amf.wait("tunnel")[-1]
    assert host.ip4() == given["address"]
    line = SimpleNamespace(teid_up=given["teid"], teid_down=tunnel["teid"], ip4=given["address"], ip6=None)
    site.upf.add(line, N3, qfi=5)
    host.ping(SERVER, 1)
    host.hang_up()
    wait_until(lambda: site.gateway.metric("sluice_agf_lines") == 0, 30, "the line is deregistered")
