# SPDX-License-Identifier: Apache-2.0
"""Subscribers of PPPoE, IPoE and a DHCP relay, all dual stack, come up, hang up, crash, move to other VLANs and change
user or device at random, under traffic, with FreeRADIUS and Kea, and get CoA-Requests, while agent and data plane are
killed and started again, and a second accounting server dies and returns. It takes MONKEY_SECONDS (12; `make soak`:
600); MONKEY_SEED repeats the choices of another run.

Afterwards every table is empty, every address is back in its pool, and every session is accounted for exactly once,
with the octets that the data plane counted."""

import contextlib
import ipaddress
import os
import time
from collections import Counter, defaultdict
from random import Random

import pytest
from lab import Dialer, Gateway, thing
from lab.dhcp import Kea
from lab.gateway import METRICS
from lab.laboratory import wait_until
from lab.radius import SECRET, FreeRadius, radclient

pytestmark = pytest.mark.long(reason="`make soak` does it for longer")
SECONDS = float(os.environ.get("MONKEY_SECONDS", "12"))
SEED = int(os.environ.get("MONKEY_SEED", "0")) or int.from_bytes(os.urandom(4))
ACCESS_MAC, CORE_MAC = "02:00:00:00:aa:01", "02:00:00:00:aa:02"
CORE4, CORE6, SERVER4, SERVER6 = "192.0.2.1", "2001:db8:0:2::1", "192.0.2.2", "2001:db8:0:2::2"
RADIUS, RESERVE = "127.0.0.1", "127.0.0.2"
LINES = 30
# Of one request, at most.
TRANSMISSIONS = 3
# Octets that a line sends after its traffic: DHCPv6 messages and router solicitations.
GOODBYE = 4000
# IPoE lines with an inner VLAN above this one are the relay's: Kea gives their addresses.
OWN_LINES = 15
KEA4 = {
    "valid-lifetime": 6,
    "subnet4": [{"id": 1, "subnet": "100.64.0.0/16", "pools": [{"pool": "100.64.200.0 - 100.64.201.255"}]}],
}
KEA6 = {
    "preferred-lifetime": 5,
    "valid-lifetime": 6,
    "subnet6": [
        {
            "id": 1,
            "subnet": "2001:db8:64::/48",
            "interface": "uplink",
            "pools": [{"pool": "2001:db8:64::1000 - 2001:db8:64::1fff"}],
            "pd-pools": [{"prefix": "2001:db8:6400::", "prefix-len": 40, "delegated-len": 56}],
        }
    ],
}
KEA_NETWORKS = [ipaddress.ip_network(each) for each in ("100.64.200.0/23", "2001:db8:64::/48")]
# Each PPPoE line has two users: one whose address is of the pool, and one whose address RADIUS names. An IPoE line is
# known by its MAC.
USERS = 'DEFAULT User-Name =~ "^02:20:", Auth-Type := Accept\n\tMikrotik-Rate-Limit = "20M/50M"\n'
USERS += "".join(
    f'pool-{n:03} Cleartext-Password := "secret"\n\tMikrotik-Rate-Limit = "10M/{10 + n % 3}M"\n'
    f'fixed-{n:03} Cleartext-Password := "secret"\n\tFramed-IP-Address = 100.64.9.{n}\n'
    for n in range(1, LINES + 1)
)
# Metrics that are 0 without subscribers. The relay forgets a client whose set-up was cut short after a minute.
TABLES = (
    "sluice_subscriber_pool_used",
    "sluice_pppoe_sessions",
    "sluice_ipoe_clients",
    "sluice_dhcp_leases",
    "sluice_dhcp_transactions",
    "sluice_dhcp_unbound_clients",
    "sluice_radius_spool_records",
)
# Processes to kill, more often one than both.
VICTIMS = [
    ("agent",),
    ("agent",),
    ("data plane",),
    ("agent", "data plane"),
    ("FreeRADIUS",),
    ("reserve",),
    ("reserve",),
]


class Site:
    def __init__(self, lab):
        self.access, self.inside, self.core = (lab.namespace(name) for name in ("access", "gateway", "core"))
        self.access.link("line", self.inside, "access")
        self.inside.link("core", self.core, "uplink")
        for namespace, interface in ((self.access, "line"), (self.inside, "access"), (self.inside, "core")):
            namespace.silent(interface)
        for address in (f"{SERVER4}/24", f"{SERVER6}/64"):
            self.core.ip("address", "add", address, "dev", "uplink", *(["nodad"] if ":" in address else []))
        self.core.ip("route", "add", "default", "via", CORE4)
        self.core.ip("-6", "route", "add", "default", "via", CORE6)
        # Kills of the processes that send records again.
        self.again = 0
        self.radius, self.reserve = (
            FreeRadius(lab, self.inside, each, USERS, quiet=True) for each in (RADIUS, RESERVE)
        )
        metrics = {"type": "metrics", "name": "metrics", "listen": METRICS}
        self.gateway = Gateway(lab, self.inside, supervised=True, agent_too=True, northbounds=[metrics])
        # Addresses for fewer lines than there are: one that is not given back is missed.
        size = 2 * LINES + 8
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=access,framecnt=4096", mac=ACCESS_MAC),
            thing("Port", "core", device="net_af_packet1,iface=core,framecnt=4096", mac=CORE_MAC),
            thing("Interface", "gateway", addresses=["100.64.0.1/32", "2001:db8:64::1/128"]),
            thing("Interface", "core", port="core", addresses=[f"{CORE4}/24", f"{CORE6}/64"]),
            thing("AddressPool", "homes", ranges=[f"100.64.1.1-100.64.1.{2 * size}"], gateway="100.64.0.1"),
            thing("AddressPool", "links", ranges=["2001:db8:1000::/56"], prefixLength=64),
            thing("AddressPool", "networks", ranges=["2001:db8:2000::/48"], prefixLength=56),
            *(
                thing("RadiusServer", name, address=address, secret=SECRET, timeout="1s", deadTime="1s")
                for name, address in (("aaa", RADIUS), ("reserve", RESERVE))
            ),
            thing(
                "RadiusPolicy",
                "home",
                authentication=[{"server": "aaa"}],
                accounting=[{"server": "aaa", "weight": 1}, {"server": "reserve", "weight": 1}],
                dynamicAuthorization={"address": RADIUS},
            ),
            thing(
                "SubscriberProfile",
                "home",
                authentication=["radius"],
                accounting=["radius"],
                ipv4Pools=["homes"],
                ipv6Pools=["links"],
                delegatedPools=["networks"],
                gateway="100.64.0.1",
            ),
            # Lines that crash are noticed soon.
            thing(
                "PppoeServer",
                "homes",
                port="access",
                outerVlans=["200-201"],
                innerVlans=["1-100"],
                profile="home",
                echoInterval="1s",
                discoveryRatePerMac=100,
            ),
            thing(
                "IpoeServer",
                "homes",
                port="access",
                outerVlans=["100-101"],
                innerVlans=[f"1-{OWN_LINES}"],
                profile="home",
                leaseTime="6s",
                ratePerMac=100,
            ),
            thing("SubscriberProfile", "relayed", authentication=["radius"], accounting=["radius"]),
            thing(
                "DhcpRelay",
                "homes",
                port="access",
                outerVlans=["100-101"],
                innerVlans=[f"{OWN_LINES + 1}-100"],
                servers=[SERVER4, SERVER6],
                interface="gateway",
                profile="relayed",
                ratePerMac=100,
            ),
            wait=False,
        )
        self.kea4 = Kea(lab, self.core, 4, "uplink", **KEA4)
        self.kea6 = Kea(lab, self.core, 6, ["uplink", f"uplink/{SERVER6}"], **KEA6)
        self.dialer = Dialer(
            lab,
            self.access,
            "line",
            pppoe=LINES,
            ipoe=LINES,
            move=1,
            username="pool-{n},fixed-{n}",
            password="secret",
            echo="2s",
            server4=SERVER4,
            server6=SERVER6,
            seed=SEED,
        )

    def kill(self, victim):
        self.again += victim in ("agent", "FreeRADIUS", "reserve")
        match victim:
            case "agent":
                self.gateway.agent.kill()
            case "data plane":
                self.gateway.dataplane.kill()
            case "FreeRADIUS":
                self.radius.process.kill()
                self.radius.start()
            case "reserve":
                # It is away until it is chosen again.
                if self.reserve.process.alive():
                    self.reserve.process.kill()
                else:
                    self.reserve.start()

    def change(self, key, rate, seconds):
        """Whether a CoA-Request changed the rate of the sessions of a key."""
        rate = f'Mikrotik-Rate-Limit = "{rate}M/{2 * rate}M"'
        return "Received CoA-ACK" in radclient(self.inside, RADIUS, "coa", key, rate, seconds=seconds)

    def records(self):
        """How often each Start and Stop came, by session. A repeated record is equal, except for Acct-Delay-Time."""
        found = defaultdict(lambda: defaultdict(Counter))
        for each in self.radius.records() + self.reserve.records():
            kind = each.get("Acct-Status-Type")
            if kind in ("Start", "Stop"):
                said = {name: value for name, value in each.items() if name not in ("Timestamp", "Acct-Delay-Time")}
                found[each["Acct-Session-Id"]][kind][tuple(sorted(said.items()))] += 1
        return found

    def copies(self):
        """All Start and Stop records, with retransmitted ones."""
        total = Counter()
        for kinds in self.records().values():
            for said in kinds.values():
                total.update(said)
        return total

    def repeats(self):
        """Packets that the agent sent because a server did not answer: each may be a record that the server has."""
        return sum(self.gateway.metric(f"sluice_radius_{name}_total") for name in ("retransmissions", "timeouts"))


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


def test_after_a_monkey_nothing_is_left_and_each_session_is_accounted_for_once(site):
    random, dialer = Random(SEED), site.dialer
    print(f"MONKEY_SEED={SEED}")
    dialer.dial()
    dialer.ask("churn", 3)
    dialer.ask("traffic", 400)
    end, kills, changes = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end:
        time.sleep(random.uniform(1, 4))
        for victim in random.choice(VICTIMS):
            site.kill(victim)
            kills += 1
        # Of a line that may be down, by an agent that may be.
        changes += site.change(f'User-Name = "pool-{random.randint(1, LINES):03}"', random.randint(1, 50), 1)
    status = dialer.status()
    print(f"{kills} kills, {changes} CoA-ACKs, {status}")
    if not site.reserve.process.alive():
        site.reserve.start()
    assert status["setups"] > 2 * LINES and min(status["received"]) > 0 and not status["strangers"]
    # After all disturbances: all lines come up again.
    dialer.ask("churn", 0)
    dialer.until(lambda s: s["up"] == s["lines"], 120, "all lines are up again")
    dialer.ask("traffic", 0)
    lines = [each for each in dialer.lines() if each.vlans[0] < 200]
    for line in lines:
        given = [
            ipaddress.ip_address(each) in net for each, net in zip((line.ip4, line.ip6), KEA_NETWORKS, strict=True)
        ]
        assert given == [line.vlans[1] > OWN_LINES] * 2, f"MONKEY_SEED={SEED}: {line}"
    assert len(lines) == LINES
    wait_until(lambda: site.gateway.metric("sluice_radius_spool_records") == 0, 60, "all records are delivered")
    for each in random.sample(site.gateway.json("subscriber", "list"), 5):
        assert site.change(f"Acct-Session-Id = {each['id']}", 60, 10), f"MONKEY_SEED={SEED}: {each}"
    counted = {
        each["id"]: [int(each[way].get("bytes", 0)) for way in ("up", "down")]
        for each in site.gateway.json("subscriber", "list")
    }
    repeats, copies = site.repeats(), site.copies()
    dialer.hang_up()

    with contextlib.suppress(TimeoutError):
        wait_until(lambda: site.gateway.json("subscriber", "list") == [], 120)
    assert site.gateway.json("subscriber", "list") == [], f"MONKEY_SEED={SEED}: subscribers are left"
    for kind in ("Session", "Meter"):
        wait_until(lambda kind=kind: site.gateway.holds(kind) == [], 30, f"the data plane has no {kind}")
    for name in TABLES:
        wait_until(lambda name=name: site.gateway.metric(name) == 0, 90, f"MONKEY_SEED={SEED}: {name} is 0")

    # Since the last kill: once, unless the server did not answer.
    last = site.copies() - copies
    assert last, f"MONKEY_SEED={SEED}: no records of the last sessions"
    assert last.total() - len(last) <= site.repeats() - repeats, f"MONKEY_SEED={SEED}: {last.most_common(3)}"
    # Before it, each process that is killed may cost a delivery of each record in flight.
    most = TRANSMISSIONS * (1 + site.again)
    assert max(site.copies().values()) <= most, f"MONKEY_SEED={SEED}: {site.copies().most_common(3)}"

    records = site.records()
    assert len(records) >= 2 * LINES
    wrong = {
        session: {kind: [dict(one) for one in said] for kind, said in kinds.items()}
        for session, kinds in records.items()
        if (len(kinds["Start"]), len(kinds["Stop"])) != (1, 1)
    }
    assert not wrong, f"MONKEY_SEED={SEED}: {len(wrong)} of {len(records)} sessions: {wrong}"
    # Of those that were up to the end, once all traffic had ended: the rest is their own good-byes, and leases.
    for session, (up, down) in counted.items():
        (said,) = records[session]["Stop"]
        told = [
            int(value) + (int(high) << 32)
            for value, high in (
                (dict(said)[f"Acct-{way}-Octets"], dict(said)[f"Acct-{way}-Gigawords"]) for way in ("Input", "Output")
            )
        ]
        assert up <= told[0] <= up + GOODBYE and told[1] == down, f"MONKEY_SEED={SEED}: {session}: {told}, {up}, {down}"
