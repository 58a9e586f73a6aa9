# SPDX-License-Identifier: Apache-2.0
"""IKEv2 and ESP between two gateways: what strongSwan 5.9 does not have, or does only as the responder.

host == west [data plane + agent] wan ==== wan [data plane + agent] east == host
                                  other == other

Each connection has a number of its own: addresses 192.0.2.NUMBER and 192.0.2.(100 + NUMBER), and the networks
10.1.NUMBER.0/24 and 10.2.NUMBER.0/24 behind a tunnel."""

import subprocess
import threading
from datetime import datetime

import pytest
from lab import Gateway, thing
from lab.laboratory import wait_until
from lab.ping import lost

# The peer is dead after 84 seconds without an answer.
SECONDS = 240
METRICS = "127.0.0.1:9464"
NUMBERS = range(11, 30)
SIDES = {"west": (1, 0, "198.51.100.1"), "east": (2, 100, "198.51.100.2")}
LIFETIME = 60


class End:
    """A gateway with a host behind it."""

    def __init__(self, lab, side, namespace):
        self.lab, self.side, self.namespace = lab, side, namespace
        self.number, self.offset, other = SIDES[side]
        self.host = lab.namespace(f"{side}-host")
        namespace.link("lan", self.host, "eth0")
        for device in ("lan", "wan", "other"):
            namespace.silent(device)
        for number in NUMBERS:
            self.host.ip("addr", "add", f"10.{self.number}.{number}.9/16", "dev", "eth0")
        self.host.ip("route", "add", "default", "via", f"10.{self.number}.0.1")
        self.interfaces = [
            *(
                thing("Port", name, device=f"net_af_packet{number},iface={name}")
                for number, name in enumerate(("wan", "lan", "other"))
            ),
            thing("Interface", "wan", port="wan", addresses=[f"{self.address(number)}/24" for number in NUMBERS]),
            thing("Interface", "lan", port="lan", addresses=[f"10.{self.number}.0.1/16"]),
            thing("Interface", "other", port="other", addresses=[f"{other}/24"]),
        ]
        self.start(side)

    def start(self, name):
        listen = {"type": "metrics", "name": "metrics", "listen": METRICS}
        self.gateway = Gateway(self.lab, self.namespace, name, northbounds=[listen])
        self.gateway.apply(*self.interfaces)

    def address(self, number):
        return f"192.0.2.{self.offset + number}"

    def network(self, number):
        return f"10.{self.number}.{number}.0/24"

    def apply(self, number, other, start="NOTHING", child=None, credential=None, **more):
        """The connection of a number. `child` and `more` change it."""
        name = f"c-{number}"
        ends = {"local": [self.network(number)], "remote": [other.network(number)]}
        child = {"name": "net", "tunnel": name, "start": start} | ends | (child or {})
        spec = {
            "localAddress": self.address(number),
            "remoteAddress": other.address(number),
            "localIdentity": f"{self.side}.example",
            "remoteIdentity": f"{other.side}.example",
            "credential": name,
            "noMobike": True,
            "children": [child],
        }
        self.gateway.apply(
            thing("IpsecTunnel", name),
            thing("Interface", name, ipsecTunnel=name),
            thing("Route", name, prefix=other.network(number), nextHops=[{"interface": name}]),
            thing("IkeCredential", name, **(credential or {"sharedKey": "a secret"})),
            thing("IkeConnection", name, **(spec | more)),
            wait=False,
        )

    def site(self, number, other, **more):
        """As apply, with an IkePeer."""
        name = f"c-{number}"
        spec = {
            "localAddress": self.address(number),
            "remoteAddress": other.address(number),
            "localNetworks": [self.network(number)],
            "remoteNetworks": [other.network(number)],
            "credential": name,
        }
        self.gateway.apply(
            thing("IkeCredential", name, sharedKey="a secret"),
            thing("IpsecPolicy", name, espProposals=["aes128gcm16-x25519-esn"]),
            thing("IkePeer", name, **(spec | {"policy": name} | more)),
            wait=False,
        )

    def of_site(self, number):
        """Objects that the agent has made for an IkePeer, without security associations."""
        every = [(each["kind"], each["metadata"]["name"]) for each in self.gateway.json("get", "all")]
        return sorted(kind for kind, name in every if name.startswith(f"peer-c-{number}"))

    def sas(self, number):
        """IKE SAs and children of a connection."""
        return self.gateway.json("ike", "list", f"c-{number}") or []

    def established(self, number):
        return [each["remote"] for each in self.sas(number) if each["state"] == "established" and each.get("child")]

    def keys(self, number):
        listed = self.gateway.json("get", "securityassociations")
        # One that is being deleted may be listed without its spec.
        tunnels = {each["metadata"]["name"]: each.get("spec", {}).get("tunnel") for each in listed}
        return {name for name, tunnel in tunnels.items() if tunnel in (f"c-{number}", f"peer-c-{number}")}

    def problem(self, number):
        return str(self.gateway.json("describe", "IkeConnection", f"c-{number}"))

    def packets(self, exchange):
        said = self.namespace.run("curl", "-sf", f"http://{METRICS}/metrics").stdout
        line = next((line for line in said.splitlines() if f'packets_total{{type="{exchange}"}}' in line), "0")
        return float(line.split()[-1])

    def rekey(self, number, *child):
        return self.gateway.sluice("ike", "rekey", f"c-{number}", *child)

    def initiate(self, number):
        return self.gateway.sluice("ike", "initiate", f"c-{number}", check=False).returncode == 0

    def terminate(self, number, *child):
        return self.gateway.sluice("ike", "terminate", f"c-{number}", *child)

    def log(self, number):
        """The agent's lines about a connection."""
        path = self.lab.directory / f"{self.gateway.name}-agent.log"
        return [line for line in path.read_text().splitlines() if f"c-{number} " in line or f'"c-{number}"' in line]


class Ends:
    """Two gateways."""

    def __init__(self, lab):
        here, there = lab.namespace("west"), lab.namespace("east")
        here.link("wan", there, "wan")
        here.link("other", there, "other")
        self.west, self.east = End(lab, "west", here), End(lab, "east", there)

    def connect(self, number, west=None, east=None, **both):
        """The western gateway starts unless `west` has something else."""
        self.east.apply(number, self.west, **both | (east or {}))
        self.west.apply(number, self.east, **both | {"start": "AT_ONCE"} | (west or {}))

    def up(self, number, children=1):
        wait_until(
            lambda: all(len(end.established(number)) == children for end in (self.west, self.east)),
            what=f"connection {number} is up",
        )

    def ping(self, number, count=5, interval="0.05", wait=2, to=None):
        command = ("ping", "-c", str(count), "-i", interval, "-W", str(wait), "-I", f"10.1.{number}.9")
        seconds = count * float(interval) + 30
        return self.west.host.run(*command, to or f"10.2.{number}.9", check=False, timeout=seconds).stdout

    def passes(self, number):
        return " 0% packet loss" in self.ping(number, 1, wait=1)

    def unknown(self):
        """Packets of SAs that a gateway does not have."""
        return [end.gateway.drops().get("esp-unknown-spi", 0) for end in (self.west, self.east)]

    def forget(self, number):
        for end in (self.west, self.east):
            end.gateway.delete("IkeConnection", f"c-{number}")
        wait_until(lambda: not self.west.keys(number) and not self.east.keys(number), what="nothing is left")


class Ping(threading.Thread):
    """Pings beside something else."""

    def __init__(self, ends, number, count, interval="0.02"):
        super().__init__()
        self.ends, self.arguments, self.said = ends, (number, count, interval), ""

    def run(self):
        self.said = self.ends.ping(*self.arguments)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.join()


@pytest.fixture(scope="module")
def ends(lab):
    return Ends(lab)


def test_ml_kem_keys_protect_a_tunnel_and_each_rekey(ends):
    """RFC 9370: IKE_INTERMEDIATE when the tunnel comes up, IKE_FOLLOWUP_KE in each rekey."""
    suites = {
        "proposals": ["aes256gcm16-prfsha384-x25519-ke1_mlkem768"],
        "child": {"proposals": ["aes256gcm16-x25519-ke1_mlkem768-esn"]},
    }
    ends.connect(11, **suites)
    ends.up(11)
    assert ends.east.packets("IKE_INTERMEDIATE") > 0
    (listed,) = ends.east.sas(11)
    assert "mlkem768" in listed["algorithms"]
    assert not lost(ends.ping(11))
    for number, (end, child) in enumerate(
        ((ends.west, ("--child", "net")), (ends.east, ("--child", "net")), (ends.west, ()), (ends.east, ()))
    ):
        # The last two rekey the IKE SA, whose child keeps its keys.
        before = ends.west.keys(11), [end.packets("IKE_FOLLOWUP_KE") for end in (ends.west, ends.east)]
        with Ping(ends, 11, 60) as ping:
            end.rekey(11, *child)
        assert not lost(ping.said), ping.said

        def renewed(before=before, child=child):
            counts = [end.packets("IKE_FOLLOWUP_KE") for end in (ends.west, ends.east)]
            # The key is long: a message may be two packets.
            more = all(now > then for now, then in zip(counts, before[1], strict=True))
            return more and (not child or not ends.west.keys(11) & before[0])

        wait_until(renewed, what=f"rekey {number}")
        ends.up(11)
    assert not lost(ends.ping(11))
    ends.forget(11)


def test_a_post_quantum_shared_key_must_be_the_same(ends):
    """RFC 8784."""

    def credential(ppk):
        return {"credential": {"sharedKey": "a secret", "ppk": ppk, "ppkId": "ppk-1", "ppkRequired": True}}

    ends.connect(12, **credential("quantum"))
    ends.up(12)
    assert not lost(ends.ping(12))
    ends.forget(12)
    ends.connect(12, west=credential("another"), east=credential("quantum"))
    wait_until(lambda: "AUTHENTICATION_FAILED" in ends.west.problem(12), what="the reason")
    assert not ends.west.keys(12) and not ends.east.keys(12)
    ends.forget(12)
    # Without a PPK at one end, the other one refuses.
    ends.connect(12, west=credential("quantum"))
    wait_until(lambda: "does not use a PPK" in ends.west.problem(12), what="the reason")
    assert not ends.west.keys(12)
    ends.forget(12)


def test_a_gateway_sends_its_peer_to_another_address(ends):
    """RFC 5685."""
    ends.east.apply(13, ends.west, redirect=ends.east.address(14))
    ends.east.apply(14, ends.west, remoteAddress=ends.west.address(13), child={"tunnel": "c-13"} | networks(13))
    ends.west.apply(13, ends.east, start="AT_ONCE")
    wait_until(
        lambda: [each.split(":")[0] for each in ends.west.established(13)] == [ends.east.address(14)],
        what="the tunnel is up elsewhere",
    )
    assert not ends.east.sas(13) and len(ends.east.established(14)) == 1
    assert not lost(ends.ping(13))
    assert ends.east.packets("redirected") >= 1
    for number in (13, 14):
        ends.east.gateway.delete("IkeConnection", f"c-{number}")
    ends.west.gateway.delete("IkeConnection", "c-13")


def networks(number):
    return {"local": [f"10.2.{number}.0/24"], "remote": [f"10.1.{number}.0/24"]}


def openssl(directory, *arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=directory)


@pytest.fixture(scope="module")
def sm2(lab):
    """An authority and a certificate for each gateway, all of SM2, by OpenSSL."""
    directory = lab.directory / "sm2"
    directory.mkdir()
    sign = ("-sm3", "-sigopt", "distid:1234567812345678")

    def key(name):
        openssl(
            directory, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:SM2",
            "-pkeyopt", "ec_param_enc:named_curve", "-out", f"{name}.key",
        )  # fmt: skip

    key("ca")
    openssl(directory, "req", "-x509", *sign, "-days", "2", "-subj", "/CN=SM2", "-key", "ca.key", "-out", "ca.pem")
    for side in SIDES:
        key(side)
        openssl(directory, "req", "-new", *sign, "-subj", f"/CN={side}", "-key", f"{side}.key", "-out", f"{side}.csr")
        (directory / "extensions").write_text(f"subjectAltName=DNS:{side}.example\n")
        openssl(
            directory, "x509", "-req", "-in", f"{side}.csr", "-vfyopt", "distid:1234567812345678", *sign,
            "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "extensions",
            "-out", f"{side}.pem",
        )  # fmt: skip
    return directory


@pytest.mark.parametrize("esp", ["sm4gcm16-sm2-esn", "sm4ccm16-sm2-esn", "sm4-sm3-sm2-esn"])
def test_certificates_of_sm2_and_sm_algorithms_protect_a_tunnel(ends, sm2, esp):
    for end in (ends.west, ends.east):
        end.gateway.apply(thing("IkeAuthority", "sm2", certificateFile=str(sm2 / "ca.pem")))
    both = {
        "proposals": ["sm4-sm3-sm2"],
        "child": {"proposals": [esp]},
        "authorities": ["sm2"],
        "localAuthentication": "CERTIFICATE",
        "remoteAuthentication": "CERTIFICATE",
    }
    west, east = (
        {"credential": {"certificateFile": str(sm2 / f"{side}.pem"), "privateKeyFile": str(sm2 / f"{side}.key")}}
        for side in SIDES
    )
    ends.connect(15, west=west, east=east, **both)
    ends.up(15)
    (listed,) = ends.west.sas(15)
    assert listed["childAlgorithms"].startswith(esp.split("-")[0]) and "sm3" in listed["algorithms"]
    assert not lost(ends.ping(15, 20))
    before = ends.west.keys(15)
    with Ping(ends, 15, 60) as ping:
        ends.east.rekey(15, "--child", "net")
    assert not lost(ping.said), ping.said
    wait_until(lambda: not ends.west.keys(15) & before, what="new keys")
    ends.forget(15)
    # The same certificate for another name.
    other = "north.example"
    ends.connect(15, west=west | {"remoteIdentity": other}, east=east | {"localIdentity": other}, **both)
    wait_until(lambda: f"is not for {other}" in ends.west.problem(15), what="the reason")
    assert not ends.west.keys(15)
    ends.forget(15)


def test_selectors_are_narrowed_and_a_connection_has_several_children(ends):
    """The western gateway proposes more than the eastern one accepts."""

    def children(start, **networks):
        return {
            "children": [
                {"name": name, "tunnel": "c-16", "local": [local], "remote": [remote], "start": start}
                for name, (local, remote) in networks.items()
            ]
        }

    ends.connect(
        16,
        west=children("AT_ONCE", a=("10.1.16.0/24", "10.2.16.0/24"), b=("10.1.16.0/24", "10.2.17.0/24")),
        east=children("NOTHING", a=("10.2.16.0/28", "10.1.16.0/24"), b=("10.2.17.0/24", "10.1.16.8/29")),
    )
    ends.west.gateway.apply(thing("Route", "c-16b", prefix="10.2.17.0/24", nextHops=[{"interface": "c-16"}]))
    ends.up(16, 2)
    found = {each["child"]: (each["local"], each["remoteNetworks"]) for each in ends.west.sas(16)}
    assert found == {"a": (["10.1.16.0/24"], ["10.2.16.0/28"]), "b": (["10.1.16.8/29"], ["10.2.17.0/24"])}
    assert not lost(ends.ping(16))
    assert not lost(ends.ping(16, to="10.2.17.9"))
    # An address outside of what is left has no association.
    ends.east.host.ip("addr", "add", "10.2.16.200/16", "dev", "eth0")
    before = ends.west.gateway.drops().get("ipsec-no-association", 0)
    assert "100% packet loss" in ends.ping(16, 2, wait=1, to="10.2.16.200")
    assert ends.west.gateway.drops()["ipsec-no-association"] >= before + 2
    # One child goes without the other.
    ends.west.terminate(16, "--child", "b")
    ends.up(16)
    assert not lost(ends.ping(16))
    ends.forget(16)


@pytest.mark.parametrize("action", ["NOTHING", "ON_TRAFFIC", "AT_ONCE"])
def test_a_child_that_the_peer_deletes_does_what_its_close_action_says(ends, action):
    ends.connect(18, west={"start": "NOTHING", "child": {"onClose": action}}, east={"start": "AT_ONCE"})
    ends.up(18)
    before = ends.west.keys(18)
    ends.east.terminate(18, "--child", "net")
    wait_until(lambda: not ends.west.keys(18) & before, what="the child is gone")
    if action == "NOTHING":
        assert not ends.passes(18) and not ends.passes(18)
        assert not ends.west.keys(18)
    elif action == "ON_TRAFFIC":
        assert not ends.west.keys(18)
        wait_until(lambda: ends.passes(18), what="traffic opens the child")
        ends.up(18)
    else:
        ends.up(18)
        assert not lost(ends.ping(18))
    ends.forget(18)


@pytest.mark.long(reason="it takes 20 seconds; a gateway and strongSwan do so in every run")
def test_no_packet_is_lost_while_both_gateways_rekey_at_once(ends):
    ends.connect(19)
    ends.up(19)
    for ours, theirs in (
        (("--child", "net"), ("--child", "net")),
        ((), ()),
        (("--child", "net"), ()),
        ((), ("--child", "net")),
    ):
        for _ in range(3):
            before = ends.west.gateway.drops(), ends.east.gateway.drops()
            with Ping(ends, 19, 100, "0.01") as ping:
                other = threading.Thread(target=ends.east.rekey, args=(19, *theirs))
                other.start()
                ends.west.rekey(19, *ours)
                other.join()
            assert not lost(ping.said), (ping.said, before)
            ends.up(19)
    ends.forget(19)


def test_one_object_connects_a_site(ends):
    """IkePeer, at both ends. Both begin."""
    west, east = ends.west, ends.east
    for end, other in ((east, west), (west, east)):
        end.site(21, other)
    wait_until(lambda: not lost(ends.ping(21)) and len(west.established(21)) == 1, what="one tunnel")
    assert {each["childAlgorithms"] for each in west.sas(21)} == {"aes128gcm16-esn"}
    made = ["Interface", "IpsecTunnel", "Route"]
    assert west.of_site(21) == made
    (tunnel,) = west.gateway.json("get", "tunnels", "--name", "peer-c-21")
    assert (tunnel["state"], tunnel["connection"]) == ("up", "c-21")
    assert "aes128gcm16-esn" in west.gateway.sluice("describe", "IkePeer", "c-21").stdout
    # A new agent has them as before, and no packet is lost, also while one of two IKE SAs ends.
    keys = west.keys(21)
    unknown = ends.unknown()
    with Ping(ends, 21, 150) as ping:
        west.gateway.agent.kill()
        west.gateway.start_agent()
    assert not lost(ping.said) and ends.unknown() == unknown, ping.said
    assert west.keys(21) & keys and west.of_site(21) == made
    west.rekey(21, "--child", "net")
    wait_until(lambda: not west.keys(21) & keys, what="new keys")
    # A change of networks changes the routes. The peer's host has 10.2.29.9 as well.
    networks = [east.network(21), east.network(29)]
    west.site(21, east, remoteNetworks=networks)
    east.site(21, west, localNetworks=networks)
    wait_until(lambda: west.of_site(21) == [*made, "Route"], what="another route")
    west.terminate(21)
    wait_until(lambda: not lost(ends.ping(21, to="10.2.29.9")), what="the other network is reached")
    # An IkeConnection of the same name does not take its place, and says so.
    ends_of = {"localAddress": west.address(21), "remoteAddress": east.address(21)}
    keys = west.keys(21)
    west.gateway.apply(
        thing("IpsecTunnel", "c-21"),
        thing("IkeConnection", "c-21", credential="c-21", children=[{"name": "net", "tunnel": "c-21"}], **ends_of),
        wait=False,
    )
    wait_until(lambda: "another name" in str(west.gateway.json("describe", "IkeConnection", "c-21")), what="the reason")
    assert west.keys(21) == keys and not lost(ends.ping(21))
    for kind in ("IkeConnection", "IpsecTunnel"):
        west.gateway.delete(kind, "c-21")
    assert west.keys(21) == keys and not lost(ends.ping(21))
    for end in (west, east):
        end.gateway.delete("IkePeer", "c-21")
        wait_until(lambda end=end: not end.of_site(21) and not end.keys(21), what="nothing is left")


def test_a_gateway_that_lost_its_state_replaces_its_tunnel(ends):
    """INITIAL_CONTACT: the eastern gateway forgets the IKE SA that the western one does not know any more."""
    ends.connect(20)
    ends.up(20)
    before = ends.east.keys(20)
    ends.west.gateway.close()
    ends.west.start("west-new")
    ends.west.apply(20, ends.east, start="AT_ONCE")
    wait_until(lambda: len(ends.east.sas(20)) == 1 and not ends.east.keys(20) & before, what="one IKE SA, a new one")
    ends.up(20)
    assert not lost(ends.ping(20))
    ends.forget(20)


def by_other_wire(ours, theirs):
    """Identities of its own: the address is another connection's as well."""
    return {
        "localAddress": SIDES[ours][2],
        "remoteAddress": SIDES[theirs][2],
        "localIdentity": f"other.{ours}.example",
        "remoteIdentity": f"other.{theirs}.example",
    }


@pytest.mark.long(reason="it waits 90 seconds until the peer counts as lost")
def test_each_connection_does_what_it_is_told_when_its_peer_was_lost(ends):
    """The wire is cut until the peers are dead, and then mended: resumption (RFC 5723), dead-peer actions, MOBIKE of an
    initiator (RFC 4555), and reauthentication on the other wire."""
    dead = {"dpdDelay": "1s"}
    resume, hold, nothing, move, again = 22, 23, 24, 25, 26
    ends.connect(resume, west={"child": {"onDeadPeer": "AT_ONCE"}}, resumption=True, **dead)
    for number, action in ((hold, "ON_TRAFFIC"), (nothing, "NOTHING")):
        west = {"start": "NOTHING", "child": {"onDeadPeer": action}}
        ends.connect(number, west=west, **dead)
        wait_until(lambda n=number: ends.east.initiate(n), what="the eastern gateway begins")
    others = [{"otherLocalAddresses": [other]} for _, _, other in SIDES.values()]
    ends.connect(move, west=others[0], east=others[1] | {"peerNetworks": ["198.51.100.0/24"]}, noMobike=False, **dead)
    wires = [other for _, _, other in SIDES.values()]
    ends.connect(
        again,
        west=by_other_wire("west", "east") | {"reauthTime": f"{LIFETIME}s"},
        east=by_other_wire("east", "west"),
    )
    for number in (resume, hold, nothing, move, again):
        ends.up(number)
        assert not lost(ends.ping(number)), number
    (first,) = ends.west.sas(again)
    old = {number: ends.west.keys(number) for number in (resume, hold, nothing, move, again)}
    wire = ends.west.namespace
    wire.ip("link", "set", "wan", "down")
    with Ping(ends, again, 2 * LIFETIME * 5, "0.1") as reauthenticated:
        wait_until(lambda: ends.passes(move), what="the tunnel is on the other wire")
        assert [each.split(":")[0] for each in ends.west.established(move)] == [wires[1]]
        assert not lost(ends.ping(move))
        wait_until(
            lambda: not any(end.keys(number) for end in (ends.west, ends.east) for number in (resume, hold, nothing)),
            150,
            "both ends find the peer dead",
        )
        wire.ip("link", "set", "wan", "up")
        # An initiator that lost its peer opens the IKE SA again with a ticket.
        wait_until(lambda: ends.passes(resume), 90, "the tunnel is up again")
        for end in (ends.west, ends.east):
            assert any("by ticket" in line for line in end.log(resume)), end.log(resume)
        ends.up(resume)
        assert not ends.west.keys(hold) and not ends.west.keys(nothing)
        wait_until(lambda: ends.passes(hold), what="traffic opens the child")
        assert not ends.passes(nothing) and not ends.west.keys(nothing)
    assert not lost(reauthenticated.said), reauthenticated.said
    (second,) = ends.west.sas(again)
    since = [datetime.fromisoformat(each["since"]) for each in (first, second)]
    assert (since[1] - since[0]).total_seconds() >= LIFETIME * 0.8
    assert not ends.west.keys(again) & old[again]
    for number in (resume, hold, nothing, move, again):
        ends.forget(number)
