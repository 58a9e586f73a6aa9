# SPDX-License-Identifier: Apache-2.0
"""PPPoE with real peers: pppd and the PPPoE and 802.1Q of a Linux kernel, in a guest of its own."""

import ipaddress
import re
from types import SimpleNamespace

import pytest
from lab import Gateway, thing
from lab.core import Amf
from lab.guest import PARTS, Guest
from lab.laboratory import wait_until
from lab.radius import SECRET, FreeRadius
from lab.upf import Upf

ACCESS_MAC, CORE_MAC, GUEST_MAC = "02:00:00:00:aa:01", "02:00:00:00:aa:02", "02:00:00:00:06:01"
GATEWAY4, CORE4, CORE6, SERVER4, SERVER6 = "100.64.0.1", "192.0.2.1", "2001:db8:0:2::1", "192.0.2.2", "2001:db8:0:2::2"

# 1,500 bytes, PPPoE, and a tag that the driver counts.
MTU, IPERF = 1512, "/usr/bin/iperf3"


def grown(what, by):
    """A command that waits until so many lines more of pppd's log have the words."""
    count = f"$(grep -c '{what}' /tmp/log)"
    return f"n={count}; until [ {count} -gt $((n + {by})) ]; do sleep 0.2; done"


class Site:
    def __init__(self, lab):
        self.lab = lab
        self.inside, self.servers = lab.namespace("inside"), lab.namespace("servers")
        self.inside.link("core0", self.servers, "uplink")
        self.inside.ip("tuntap", "add", "tap0", "mode", "tap")
        for name in ("core0", "tap0"):
            self.inside.silent(name)
        self.inside.ip("link", "set", "tap0", "up")
        for address in (f"{SERVER4}/24", f"{SERVER6}/64"):
            self.servers.ip("addr", "add", address, "dev", "uplink", *(["nodad"] if ":" in address else []))
        self.servers.ip("route", "add", "default", "via", CORE4)
        self.servers.ip("-6", "route", "add", "default", "via", CORE6)
        self.guest = Guest(lab, self.inside, "tap0", GUEST_MAC, programs=[IPERF])
        self.guest.run(
            f"ip link set eth0 mtu {MTU}; vconfig add eth0 100; vconfig add eth0.100 7; "
            "ip link set eth0.100 up; ip link set eth0.100.7 up"
        )
        self.radius = FreeRadius(lab, self.inside, "127.0.0.1", 'alice Cleartext-Password := "alice-secret"\n')
        self.gateway = Gateway(lab, self.inside)
        self.gateway.apply(
            thing("Port", "access", device="net_af_packet0,iface=tap0,framecnt=4096", mac=ACCESS_MAC, mtu=MTU),
            thing("Port", "core", device="net_af_packet1,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32"]),
            thing("Interface", "core", port="core", addresses=[f"{CORE4}/24", f"{CORE6}/64"]),
            thing("AddressPool", "home", ranges=["100.64.1.0/24"], gateway=GATEWAY4, dns=["192.0.2.53", "192.0.2.54"]),
            thing("AddressPool", "links", ranges=["2001:db8:100::/40"], prefixLength=64, dns=["2001:db8::53"]),
            thing("AddressPool", "networks", ranges=["2001:db8:200::/40"], prefixLength=56),
            thing(
                "SubscriberProfile",
                "home",
                authentication=["local"],
                ipv4Pools=["home"],
                ipv6Pools=["links"],
                delegatedPools=["networks"],
            ),
            thing("RadiusServer", "aaa", address="127.0.0.1", secret=SECRET, timeout="5s"),
            thing("RadiusPolicy", "aaa", authentication=[{"server": "aaa"}]),
            thing("SubscriberProfile", "aaa", authentication=["radius"], ipv4Pools=["home"], ipv6Pools=["links"]),
            thing("LocalUser", "alice", username="alice", password="alice-secret"),
            *(
                thing(
                    "PppoeServer",
                    vlans[0],
                    port="access",
                    outerVlans=["100"],
                    innerVlans=[vlans[1]],
                    profile=vlans[3],
                    authentication=[vlans[2]],
                    echoInterval="1s",
                    mru=1500,
                )
                for vlans in (
                    ("pap", "7", "pap", "home"),
                    ("chap", "8", "chap", "home"),
                    ("mschapv2", "9", "mschapv2", "home"),
                    ("radius", "10", "mschapv2", "aaa"),
                )
            ),
        )
        wait_until(lambda: len(self.gateway.json("get", "punts") or []) == 8)

    def sessions(self):
        return [each["spec"] for each in self.gateway.json("get", "sessions") or []]


@pytest.fixture(scope="module")
def site(lab):
    assert PARTS.exists(), "tools/setup.sh fetches the guest"
    return Site(lab)


def dial(guest, inner, *more, password="alice-secret"):
    guest.run(f"vconfig add eth0.100 {inner} 2>/dev/null; ip link set eth0.100.{inner} up", check=False)
    options = [
        "noauth",
        "defaultroute",
        "usepeerdns",
        "+ipv6",
        "nodetach",
        "debug",
        "logfile",
        "/tmp/log",
        "user",
        "alice",
        "password",
        password,
    ]
    guest.run(
        f"rm -f /tmp/log; (pppd plugin rp-pppoe.so eth0.100.{inner} {' '.join([*options, *more])} >/tmp/out 2>&1 &)"
    )


SLOW = pytest.mark.long(reason="the guest's emulated kernel takes 10 seconds for each; one is in every run")


@pytest.mark.parametrize(
    ("inner", "success"),
    [
        pytest.param(7, "PAP authentication succeeded", marks=SLOW),
        (8, "CHAP authentication succeeded"),
        pytest.param(9, "CHAP authentication succeeded", marks=SLOW),
        pytest.param(10, "CHAP authentication succeeded", marks=SLOW),
    ],
    # pppd checks the back end's proof of MS-CHAPv2: that it knows the password, too.
    ids=["pap", "chap", "mschapv2", "mschapv2-by-radius"],
)
def test_pppd_dials_in_pings_and_hangs_up(site, inner, success):
    guest = site.guest
    dial(guest, inner)
    log = guest.until("cat /tmp/log /tmp/out", ["remote IP address", "remote LL address"])
    assert success in log
    assert f"remote IP address {GATEWAY4}" in log
    assert "primary   DNS address 192.0.2.53" in log and "secondary DNS address 192.0.2.54" in log
    address = re.search(r"local  IP address (\S+)", log)[1]
    access = site.sessions()[0]["access"]
    assert (access["outerVlan"], access["innerVlan"], access["mac"]) == (100, inner, GUEST_MAC)
    assert f"{address}/32" in site.sessions()[0]["addresses"]
    assert "3 packets received" in guest.run(f"ping -c 3 {SERVER4}")
    # The kernel makes an address of the prefix that is advertised.
    guest.until("ip -6 addr show dev ppp0", ["2001:db8:1"])
    guest.run("ip -6 route add default dev ppp0", check=False)
    assert "3 packets received" in guest.run(f"ping6 -c 3 {SERVER6}")
    guest.run("killall pppd")
    wait_until(lambda: not site.sessions(), 30)


@pytest.mark.long(reason="the guest's emulated kernel takes 20 seconds")
def test_pppd_gets_packets_of_1500_bytes_and_carries_iperf3(site):
    """RFC 4638: the kernel's Ethernet has room for PPPoE."""
    guest = site.guest
    for inner, mtu in ((7, 1492), (8, 1500)):
        dial(guest, inner, "mtu", str(mtu), "mru", str(mtu))
        log = guest.until("cat /tmp/log /tmp/out", ["remote IP address"])
        address = re.search(r"local  IP address (\S+)", log)[1]
        assert f"mtu {mtu}" in guest.run("ip link show dev ppp0")
        assert site.sessions()[0]["policy"]["mtu"] == mtu
        # A packet that fits passes both ways; one byte more gets an ICMP error of the gateway, which names the MTU.
        ping = ("ping", "-c", "3", "-W", "5", "-M", "do", "-s")
        assert "3 received" in site.servers.run(*ping, str(mtu - 28), address).stdout
        if mtu < 1500:
            refused = site.servers.run(*ping, str(mtu - 27), address, check=False).stdout
            assert f"mtu = {mtu}" in refused or f"mtu={mtu}" in refused, refused
            site.servers.ip("route", "flush", "cache")
        else:
            server = site.lab.process(site.servers, IPERF, "-s", "-B", SERVER4, log="iperf3.log")
            for way in ("", "-R"):
                shown = guest.until(f"iperf3 -c {SERVER4} -t 2 -f k {way} 2>&1", ["receiver"])
                assert float(re.search(r"([\d.]+) Kbits/sec\s+receiver", shown)[1]) > 0
            server.stop()
        guest.run("killall pppd")
        wait_until(lambda: not site.sessions(), 30)


def test_a_home_gateway_gets_a_prefix_for_the_network_behind_it(site):
    guest = site.guest
    dial(guest, 8)
    guest.until("cat /tmp/log", ["remote LL address"])
    guest.run("(dhcp6c -f -D ppp0 >/tmp/dhcp6c 2>&1 &)")
    shown = guest.until("ip -6 addr show dev eth0.100; cat /tmp/dhcp6c", ["inet6 2001:db8:2"])
    address = ipaddress.ip_address(re.search(r"inet6 (2001:db8:2\S+)/64", shown)[1])
    networks = [ipaddress.ip_network(each) for each in site.sessions()[0]["addresses"] if ":" in each]
    (delegated,) = (each for each in networks if each.prefixlen == 56)
    assert address in delegated
    guest.run("ip -6 route add default dev ppp0", check=False)
    # The guest may not use the address before duplicate address detection has ended.
    guest.until(f"ping6 -c 3 -I {address} {SERVER6}", ["3 packets received"])
    guest.run("killall dhcp6c pppd")
    wait_until(lambda: not site.sessions(), 30)


def test_pppd_gets_an_error_for_a_wrong_password(site):
    dial(site.guest, 7, password="wrong")
    site.guest.until("cat /tmp/log", ["authentication failed"])
    assert not site.sessions()


@pytest.mark.long(reason="the guest's emulated kernel takes 20 seconds")
def test_pppd_stays_up_while_the_agent_is_killed_and_started(site):
    guest = site.guest
    # It gives up after three echoes, one a second. Twice "debug" has it log them.
    dial(guest, 7, "debug", "lcp-echo-interval", "1", "lcp-echo-failure", "3")
    guest.until("cat /tmp/log", ["remote IP address"])
    guest.run(f"(ping -c 120 -i 0.1 -W 5 {SERVER4} >/tmp/ping &)")
    site.gateway.agent.kill()
    # pppd asks meanwhile, and is answered.
    guest.run(grown("rcvd.*LCP EchoRep", 3))
    site.gateway.start_agent()
    text = guest.until("cat /tmp/ping", ["packets received"], 120)
    assert "120 packets transmitted, 120 packets received" in text
    # The new agent asks, and pppd answers it.
    guest.run(grown("rcvd.*LCP EchoReq", 1), 90)
    assert len(site.sessions()) == 1
    log = guest.run("cat /tmp/log")
    assert "terminat" not in log.lower()
    site.gateway.delete("PppoeServer", "pap")
    guest.until("cat /tmp/log", ["Connection terminated"])
    wait_until(lambda: not site.sessions(), 30)


@SLOW
def test_pppd_is_a_line_of_a_5g_core_and_hears_why_the_core_ends_it(lab, site):
    guest, home, server = site.guest, "100.64.9.9", "198.51.100.1"
    site.inside.link("n2", site.servers, "amf")
    for namespace, address, interface in (
        (site.inside, "10.9.8.1/24", "n2"),
        (site.servers, "10.9.8.2/24", "amf"),
        (site.servers, f"{server}/32", "lo"),
    ):
        namespace.ip("addr", "add", address, "dev", interface)
    amf, upf = Amf(lab, site.servers, "10.9.8.2", upf=SERVER4, ue=home), Upf(lab, site.servers, SERVER4)
    area = {"tac": 1, "slices": [{"sst": 1}]}
    site.gateway.apply(
        thing("AccessNode", "agf", plmn="00101", wagfId=7, trackingAreas=[area], localAddresses=["10.9.8.1"]),
        thing("Amf", "core", node="agf", addresses=["10.9.8.2"]),
        thing("Agf", "homes", node="agf", coreAddress=CORE4, dnn="internet"),
        thing("SubscriberProfile", "core", authentication=["core"], accounting=["core"], gateway=GATEWAY4),
        thing("PppoeServer", "core", port="access", outerVlans=["100"], innerVlans=["11"], profile="core"),
    )
    amf.wait("setup")
    dial(guest, 11)
    log = guest.until("cat /tmp/log /tmp/out", ["remote IP address"])
    assert f"local  IP address {home}" in log and f"remote IP address {GATEWAY4}" in log
    assert amf.events("nas")[0]["name"] == "FGMMRegistrationRequest"
    of, tunnel = amf.wait("address")[0], amf.wait("tunnel")[0]
    assert of["address"] == home
    upf.add(SimpleNamespace(teid_up=of["teid"], teid_down=tunnel["teid"], ip4=home, ip6=None), CORE4, qfi=5)
    assert "3 packets received" in guest.run(f"ping -c 3 {server}")
    (line,) = site.gateway.json("get", "lines")
    assert (line["name"], line["agf"], line["state"]) == ("alice", "homes", "registered")
    amf.do("deregister", ue=of["ue"])
    guest.until("cat /tmp/log /tmp/out", ["LCP terminated by peer (the core deregisters the line)"])
    assert amf.wait("nas", name="FGMMMTDeregistrationAccept")
    wait_until(lambda: not site.sessions(), 30)
