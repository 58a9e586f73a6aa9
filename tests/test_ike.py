# SPDX-License-Identifier: Apache-2.0
"""IKEv2 with strongSwan as the peer: it negotiates, and its own ESP in user space carries the traffic."""

import json
import subprocess

import pytest
from lab import Gateway, thing
from lab.laboratory import wait_until
from lab.ping import lost
from lab.radius import SECRET, FreeRadius
from lab.strongswan import StrongSwan
from pop import CORE4, CORE_MAC, HOST4

LAN, HOST, FAR = "10.1.0.1", "10.1.0.9", "10.2.0.1"
HERE, THERE = "here.example", "there.example"

CONNECTION = """
connections {
  peer {
    version = 2
    local_addrs = 192.0.2.2
    remote_addrs = 192.0.2.1
    proposals = aes256gcm16-prfsha256-x25519
    local {
      auth = psk
      id = there.example
    }
    remote {
      auth = psk
      id = here.example
    }
    children {
      net {
        local_ts = 10.2.0.0/16
        remote_ts = 10.1.0.0/16
        esp_proposals = aes256gcm16-x25519,aes128-sha256
      }
    }
  }
}
secrets {
  ike-peer {
    id-a = here.example
    id-b = there.example
    secret = "a secret"
  }
}
"""


USER = """
connections {
  user {
    version = 2
    local_addrs = 192.0.2.2
    remote_addrs = 192.0.2.1
    vips = 0.0.0.0
    proposals = aes256gcm16-prfsha256-x25519
    local {
      auth = eap-mschapv2
      eap_id = alice
      id = alice@example.org
    }
    remote {
      auth = pubkey
      id = gateway.example
    }
    children {
      user {
        remote_ts = 10.1.0.0/16
        esp_proposals = aes256gcm16-x25519
      }
    }
  }
}
secrets {
  eap-alice {
    id = alice
    secret = "her secret"
  }
}
"""


class Site:
    """lan host == gateway == strongSwan with a network behind it."""

    def __init__(self, lab, **gateway):
        self.inside, self.outside, self.lan = (lab.namespace(name) for name in ("inside", "outside", "lan"))
        self.inside.link("core0", self.outside, "uplink")
        self.inside.link("lan0", self.lan, "eth0")
        for ours in ("core0", "lan0"):
            self.inside.silent(ours)
        self.outside.ip("addr", "add", f"{HOST4}/24", "dev", "uplink")
        self.outside.ip("addr", "add", f"{FAR}/16", "dev", "lo")
        self.lan.ip("addr", "add", f"{HOST}/16", "dev", "eth0")
        self.lan.ip("route", "add", "default", "via", LAN)
        self.gateway = Gateway(lab, self.inside, **gateway)
        self.gateway.apply(
            thing("Port", "core", device="net_af_packet0,iface=core0,framecnt=4096", mac=CORE_MAC),
            thing("Port", "lan", device="net_af_packet1,iface=lan0,framecnt=4096"),
            thing("Interface", "core", port="core", addresses=[f"{CORE4}/24"]),
            thing("Interface", "lan", port="lan", addresses=[f"{LAN}/16"]),
            thing("IpsecTunnel", "office", localAddress=CORE4, remoteAddress=HOST4),
            thing("Interface", "office", ipsecTunnel="office"),
            thing("Route", "office", prefix="10.2.0.0/16", nextHops=[{"interface": "office"}]),
            thing("IkeCredential", "office", sharedKey="a secret"),
        )
        self.peer = self.other_end(lab)

    def other_end(self, lab):
        return StrongSwan(lab, self.outside, CONNECTION, more="charon-systemd {\n  make_before_break = yes\n}\n")

    def connection(self, start, **more):
        child = {"name": "net", "tunnel": "office", "local": ["10.1.0.0/16"], "remote": ["10.2.0.0/16"], "start": start}
        return thing(
            "IkeConnection",
            "office",
            localAddress=CORE4,
            remoteAddress=HOST4,
            localIdentity=HERE,
            remoteIdentity=THERE,
            credential="office",
            children=[child | more.pop("child", {})],
            **more,
        )

    def ping(self, count=3, interval="0.2", check=True, wait=5):
        return self.lan.run("ping", "-c", str(count), "-i", interval, "-W", str(wait), FAR, check=check).stdout

    def associations(self):
        listed = self.gateway.json("get", "securityassociations")
        return {each["metadata"]["name"]: each["spec"] for each in listed}

    def up(self):
        return len(self.associations()) == 2 and len(self.peer.children()) == 1


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


@pytest.fixture(autouse=True)
def nothing_left(site):
    yield
    site.gateway.delete("IkeConnection", "office")
    wait_until(lambda: not site.associations() and not site.peer.children(), what="the tunnel is down")


def test_traffic_passes_when_the_gateway_starts_a_tunnel(site):
    site.gateway.apply(site.connection("AT_ONCE"))
    wait_until(site.up, what="the tunnel is up")
    assert " 0% packet loss" in site.ping()
    for spec in site.associations().values():
        assert spec["udp"]


def test_traffic_passes_when_the_peer_starts_a_tunnel(site):
    site.gateway.apply(site.connection("NOTHING"), wait=False)
    wait_until(lambda: site.peer.swanctl("--initiate", "--child", "net", check=False).returncode == 0, what="a tunnel")
    wait_until(site.up, what="the tunnel is up")
    assert " 0% packet loss" in site.ping()


def test_traffic_starts_a_tunnel(site):
    site.gateway.apply(site.connection("ON_TRAFFIC"), wait=False)
    wait_until(lambda: " 0% packet loss" in site.ping(1, check=False, wait=1), what="a packet passes")
    assert site.up()


def test_no_packet_is_lost_while_either_end_rekeys(site):
    site.gateway.apply(site.connection("AT_ONCE", child={"rekeyPackets": 40}))
    wait_until(site.up, what="the tunnel is up")
    before = set(site.associations())
    said = site.ping(200, "0.02")
    assert not lost(said), said
    assert set(site.associations()) != before
    before = set(site.associations())
    site.peer.swanctl("--rekey", "--child", "net")
    site.peer.swanctl("--rekey", "--ike", "peer")
    said = site.ping(50, "0.02")
    assert not lost(said), said
    wait_until(lambda: set(site.associations()) != before and site.up(), what="another child")


def test_no_packet_is_lost_while_the_peer_authenticates_again(site):
    """RFC 7296 section 2.8.3. The peer opens another IKE SA, and deletes the first one when that is up."""
    site.gateway.apply(site.connection("NOTHING"), wait=False)
    wait_until(lambda: site.peer.swanctl("--initiate", "--child", "net", check=False).returncode == 0, what="a tunnel")
    wait_until(site.up, what="the tunnel is up")
    unknown = site.gateway.drops().get("esp-unknown-spi", 0)
    before, theirs = set(site.associations()), site.peer.keys()[0]
    ping = ("ping", "-c", "150", "-i", "0.01", "-W", "2", FAR)
    with subprocess.Popen(("ip", "netns", "exec", site.lan.name, *ping), stdout=subprocess.PIPE, text=True) as pings:
        site.peer.swanctl("--rekey", "--ike", "peer", "--reauth")
        said = pings.communicate()[0]
    assert not lost(said), said
    wait_until(lambda: site.up() and not set(site.associations()) & before, what="another child")
    assert not set(site.peer.keys()[0]) & set(theirs)
    assert site.gateway.drops().get("esp-unknown-spi", 0) == unknown


def test_a_new_agent_takes_a_tunnel_over_without_a_rekey(site):
    site.gateway.apply(site.connection("AT_ONCE"))
    wait_until(site.up, what="the tunnel is up")
    before, theirs = site.associations(), site.peer.children()
    site.gateway.agent.kill()
    assert " 0% packet loss" in site.ping()
    site.gateway.start_agent()
    assert " 0% packet loss" in site.ping(5)
    assert set(site.associations()) == set(before)
    assert site.peer.children() == theirs
    # It speaks with the next message ID in both directions.
    site.peer.swanctl("--rekey", "--child", "net")
    wait_until(lambda: site.up() and site.peer.children() != theirs, what="another child")
    assert " 0% packet loss" in site.ping()


def test_an_operator_lists_initiates_rekeys_and_terminates(site):
    site.gateway.apply(site.connection("NOTHING"), wait=False)
    unknown = ("ike", "initiate", "office", "--child", "x")
    wait_until(lambda: "no child" in site.gateway.sluice(*unknown, check=False).stderr, what="the connection is known")
    assert site.gateway.sluice("ike", "initiate", "office").stdout == "Initiating 1 child SA.\n"
    wait_until(site.up, what="the tunnel is up")
    again = site.gateway.sluice("ike", "initiate", "office", "--child", "net", check=False)
    assert again.returncode and "has all of its children already" in again.stderr
    (listed,) = site.gateway.json("ike", "list")
    assert (listed["connection"], listed["state"], listed["remoteIdentity"]) == ("office", "established", THERE)
    before = site.peer.children()
    assert site.gateway.sluice("ike", "rekey", "office", "--child", "net").stdout == "Rekeying 1 child SA.\n"
    wait_until(lambda: site.peer.children() != before and site.up(), what="another child")
    assert site.gateway.sluice("ike", "terminate", "office").stdout == "Terminating 1 IKE SA.\n"
    wait_until(lambda: not site.associations() and not site.peer.children(), what="the tunnel is down")
    secret = site.gateway.sluice("get", "IkeCredential", "office", "-o", "yaml").stdout
    assert "a secret" not in secret


def test_one_command_shows_a_tunnel(site):
    """Its peer, its IKE SA, its children and what it carried."""

    def row(*more):
        return next(each for each in site.gateway.json("get", "tunnels", *more) if each["tunnel"] == "office")

    assert row()["state"] == "down"
    assert row()["securityAssociations"] == 0
    site.gateway.apply(site.connection("AT_ONCE"))
    wait_until(site.up, what="the tunnel is up")
    assert " 0% packet loss" in site.ping(5)
    listed = row()
    assert (listed["state"], listed["connection"], listed["remoteIdentity"]) == ("up", "office", THERE)
    assert (listed["remote"], listed["childAlgorithms"]) == (f"{HOST4}:4500", "aes256gcm16-noesn")
    assert listed["encryptedPackets"] >= 5
    assert listed["decryptedPackets"] >= 5
    (child,) = listed["children"]
    assert (child["child"], child["local"], child["remoteNetworks"]) == ("net", ["10.1.0.0/16"], ["10.2.0.0/16"])
    assert int(child["spiOut"], 16) == int(site.peer.children()[0][0], 16)
    heading, *rows = site.gateway.sluice("get", "tunnels").stdout.splitlines()
    assert {"TUNNEL", "STATE", "PEER", "REMOTE", "CONNECTION"} < set(heading.split())
    assert any(each.split()[:5] == ["office", "up", THERE, f"{HOST4}:4500", "office"] for each in rows)
    described = site.gateway.sluice("describe", "tunnel", "office").stdout
    assert "remoteIdentity: there.example" in described
    # The object shows them beside its fields.
    described = site.gateway.json("describe", "ipsectunnel", "office")
    assert described["counters"]["encryptedPackets"] >= 5
    assert (described["sas"]["remoteIdentity"], described["sas"]["child"]) == (THERE, "net")
    unknown = site.gateway.sluice("describe", "tunnel", "x", check=False)
    assert unknown.returncode
    assert "there is no tunnel x" in unknown.stderr
    site.gateway.sluice("ike", "terminate", "office")


def test_a_peer_that_is_not_connected_says_why_wherever_it_is_named(site):
    """Each command names the object, what is wrong and the mend; commands for a tunnel take the name of its IkePeer."""
    gateway, spec = site.gateway, {"localAddress": CORE4, "remoteAddress": HOST4, "remoteIdentity": THERE}

    def fails(*words):
        done = gateway.sluice(*words, check=False)
        assert done.returncode, done
        return done.stderr

    peer = thing("IkePeer", "branch", credential="later", remoteNetworks=["10.7.0.0/16"], passive=True, **spec)
    gateway.apply(peer, wait=False)
    try:
        why = "credential: IkeCredential/later does not exist"
        wait_until(lambda: why in fails("ike", "initiate", "branch"), what="the reason")
        assert f"IkePeer/branch is not connected: {why}" in fails("ike", "rekey", "branch")
        listed = gateway.sluice("ike", "list", "branch", check=False)
        assert listed.stderr.startswith("IkePeer branch has no IKE SAs: ")
        assert "IkeCredential/later" in listed.stderr
        assert "nobody" in fails("ike", "list", "nobody")
        gateway.apply(thing("IkeCredential", "later", sharedKey="another"))
        described = gateway.sluice("describe", "ikecredential", "later").stdout
        assert "another" not in described
        assert ["shared", "key", "set"] in [line.split() for line in described.splitlines()]
        # The tunnel is an object of the agent.
        wait_until(
            lambda: "tunnel: peer-branch" in gateway.sluice("describe", "tunnel", "branch", check=False).stdout,
            what="its tunnel",
        )
        words = "of service ike for IkePeer/branch; accepted: a change or deletion of IkePeer/branch"
        assert words in fails("delete", "ipsectunnel", "peer-branch")
        # Another one with the same network.
        twin = thing("IkePeer", "twin", credential="later", remoteNetworks=["10.7.0.0/16"], passive=True, **spec)
        gateway.apply(twin, wait=False)
        words = "remoteNetworks: IkePeer/branch has 10.7.0.0/16 in VRF default"
        wait_until(lambda: words in json.dumps(gateway.json("describe", "IkePeer", "twin")), what="the network")
    finally:
        gateway.sluice("delete", "IkePeer/twin", "IkePeer/branch", "IkeCredential/later", check=False)
        gateway.apply(site.connection("NOTHING"), wait=False)


def test_a_peer_that_moves_keeps_its_tunnel(site):
    site.gateway.apply(site.connection("NOTHING", peerNetworks=["192.0.2.0/24"]), wait=False)
    wait_until(lambda: site.peer.swanctl("--initiate", "--child", "net", check=False).returncode == 0, what="a tunnel")
    wait_until(site.up, what="the tunnel is up")
    address = "192.0.2.3"
    try:
        site.outside.ip("addr", "add", f"{address}/24", "dev", "uplink")
        site.outside.ip("addr", "del", f"{HOST4}/24", "dev", "uplink")
        site.outside.ip("addr", "replace", f"{address}/24", "dev", "uplink")
        wait_until(
            lambda: [each["remote"] for each in site.gateway.json("ike", "list")] == [f"{address}:4500"],
            what="the peer is elsewhere",
        )
        assert " 0% packet loss" in site.ping()
    finally:
        site.outside.ip("addr", "replace", f"{HOST4}/24", "dev", "uplink")
        site.outside.ip("addr", "del", f"{address}/24", "dev", "uplink")
        site.outside.ip("addr", "replace", f"{HOST4}/24", "dev", "uplink")


def test_a_wrong_key_is_reported(site):
    site.gateway.apply(thing("IkeCredential", "office", sharedKey="another"))
    try:
        site.gateway.apply(site.connection("AT_ONCE"), wait=False)
        wait_until(
            lambda: "AUTHENTICATION_FAILED" in json.dumps(site.gateway.json("describe", "IkeConnection", "office")),
            what="the reason",
        )
        described = json.dumps(site.gateway.json("describe", "IkeConnection", "office"))
        assert f"the gateway is {HERE} by the shared key and expects {THERE} by the shared key; compare" in described
        rows = [line.split() for line in site.gateway.sluice("ike", "counters").stdout.splitlines()]
        assert ["failures", "AUTHENTICATION_FAILED"] in [row[:2] for row in rows]
        assert not site.associations()
    finally:
        site.gateway.apply(thing("IkeCredential", "office", sharedKey="a secret"))


def test_algorithms_and_networks_of_both_ends_are_named_when_they_do_not_agree(site):
    """Of the IKE SA, whose peer offers algorithms that the gateway does not have, and of a child at either end."""

    def described():
        return json.dumps(site.gateway.json("describe", "IkeConnection", "office"))

    def offer(**changes):
        text = CONNECTION
        for before, after in changes.values():
            assert before in text
            text = text.replace(before, after)
        (site.peer.directory / "other.conf").write_text(text)
        site.peer.load("other.conf")

    old = ("proposals = aes256gcm16-prfsha256-x25519", "proposals = 3des-md5-modp1024")
    child = ("esp_proposals = aes256gcm16-x25519,aes128-sha256", "esp_proposals = aes256-sha512")
    networks = ("local_ts = 10.2.0.0/16", "local_ts = 10.3.0.0/16")
    try:
        offer(ike=old)
        site.gateway.apply(site.connection("NOTHING"), wait=False)
        assert site.peer.swanctl("--initiate", "--child", "net", check=False).returncode != 0
        why = "peer offers 3des-md5-prfmd5-modp1024; accepted: aes256gcm16-prfsha256-x25519"
        wait_until(lambda: why in described(), what="the algorithms of both ends")
        site.gateway.delete("IkeConnection", "office")
        offer(esp=child)
        site.gateway.apply(site.connection("NOTHING"), wait=False)
        assert site.peer.swanctl("--initiate", "--child", "net", check=False).returncode != 0
        why = "net: no proposal of the peer is accepted: peer offers aes256-sha512-noesn; accepted: aes256gcm16-"
        wait_until(lambda: why in described(), what="the algorithms of both ends")
        site.gateway.delete("IkeConnection", "office")
        # The gateway tries again until the peer's operator has corrected it.
        offer(ts=networks)
        site.gateway.apply(site.connection("AT_ONCE"), wait=False)
        why = "net: the peer answers TS_UNACCEPTABLE: it accepts nothing of 10.1.0.0/16 to 10.2.0.0/16"
        wait_until(lambda: why in described(), what="the networks")
        site.peer.load()
        wait_until(site.up, what="the tunnel is up")
        assert " 0% packet loss" in site.ping()
        assert "TS_UNACCEPTABLE" not in described()
    finally:
        site.peer.load()


@pytest.fixture(scope="module")
def certificates(site):
    """Files of an authority that the peer trusts, of the gateway's certificate and of Alice's, which the peer has."""
    directory = site.peer.directory

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=directory)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=Authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name, other in (("gateway", "DNS:gateway.example"), ("alice", "email:alice@example.org")):
        openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (directory / "extensions").write_text(f"subjectAltName={other}\n")
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "extensions"]
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    for folder, name in (("x509ca", "ca.pem"), ("x509", "alice.pem"), ("private", "alice.key")):
        (directory / folder).mkdir()
        (directory / folder / name).write_text((directory / name).read_text())
    return {name: str(directory / name) for name in ("ca.pem", "gateway.pem", "gateway.key")}


@pytest.fixture(scope="module")
def users(site, certificates):
    """The objects of remote users, and FreeRADIUS on the agent's host."""
    site.radius = FreeRadius(
        site.gateway.lab,
        site.inside,
        "127.0.0.1",
        'alice Cleartext-Password := "her secret"\n\tFramed-IP-Address = 10.9.0.77\n',
    )
    site.gateway.apply(
        thing("IpsecTunnel", "users", localAddress=CORE4),
        thing("Interface", "users", ipsecTunnel="users"),
        thing("Route", "users", prefix="10.9.0.0/24", nextHops=[{"interface": "users"}]),
        thing("AddressPool", "vpn", ranges=["10.9.0.0/24"]),
        thing("LocalUser", "alice", username="alice", password="her secret"),
        thing("RadiusServer", "aaa", address="127.0.0.1", secret=SECRET),
        thing("RadiusPolicy", "aaa", authentication=[{"server": "aaa"}], accounting=[{"server": "aaa"}]),
        thing(
            "IkeCredential",
            "gateway",
            certificateFile=certificates["gateway.pem"],
            privateKeyFile=certificates["gateway.key"],
        ),
        thing("IkeAuthority", "users", certificateFile=certificates["ca.pem"]),
    )


@pytest.mark.parametrize(
    ("method", "username", "address"),
    [
        ("EAP_MSCHAPV2", "alice", "10.9.0.1"),
        ("EAP_RADIUS", "alice", "10.9.0.77"),
        ("EAP_TLS", "alice@example.org", None),
    ],
)
def test_a_remote_user_gets_an_address_and_traffic(site, users, method, username, address):
    authorities = {"authorities": ["users"]} if method == "EAP_TLS" else {}
    site.gateway.apply(
        thing(
            "IkeConnection",
            "office",
            localAddress=CORE4,
            localIdentity="gateway.example",
            credential="gateway",
            localAuthentication="CERTIFICATE",
            remoteAuthentication="EAP",
            eapMethod=method,
            pools=["vpn"],
            children=[{"name": "net", "tunnel": "users", "local": ["10.1.0.0/16"]}],
            **authorities,
        )
    )
    user = USER if method != "EAP_TLS" else USER.replace("eap-mschapv2", "eap-tls\n      certs = alice.pem")
    (site.peer.directory / "user.conf").write_text(user.replace("eap_id = alice\n", f"eap_id = {username}\n"))
    site.peer.load("user.conf")
    try:
        site.peer.swanctl("--initiate", "--child", "user")
        wait_until(site.up, what="the user is connected")
        (listed,) = site.gateway.json("ike", "list")
        assert listed["username"] == username
        (given,) = listed["addresses"]
        assert address in (None, given)
        assert " 0% packet loss" in site.outside.run("ping", "-c", "3", "-i", "0.2", "-I", given, HOST).stdout
    finally:
        site.peer.load()


class Subscribers:
    """Remote users with a SubscriberProfile, as operators and the RADIUS server see them."""

    def __init__(self, site):
        self.site = site

    def sessions(self):
        listed = self.site.gateway.json("get", "sessions")
        return {each["metadata"]["name"]: each["spec"] for each in listed}

    def tunnels(self):
        listed = self.site.gateway.json("get", "ipsectunnels")
        return [each["metadata"]["name"] for each in listed if each["metadata"]["name"].startswith("ike-")]

    def connect(self):
        self.site.peer.swanctl("--initiate", "--child", "user")
        wait_until(self.site.up, what="the user is connected")
        ((name, session),) = self.sessions().items()
        return name, session, session["addresses"][0].removesuffix("/32")

    def ping(self, address, count=3, *more):
        command = ("ping", "-c", str(count), "-i", "0.02", "-W", "1", "-I", address, *more, HOST)
        return self.site.outside.run(*command, check=False).stdout

    def gone(self):
        return not (self.sessions() or self.tunnels() or self.site.associations() or self.site.peer.children())

    def record(self, kind, session):
        def found():
            return self.site.radius.records(Acct_Status_Type=kind, Acct_Session_Id=session.removeprefix("ike-"))

        wait_until(found, what=f"the {kind} record of {session}")
        return found()[0]


@pytest.mark.parametrize("method", ["EAP_MSCHAPV2", "EAP_RADIUS"])
def test_a_remote_user_is_a_subscriber_with_a_meter_and_accounting(site, users, method):
    subscribers, gateway = Subscribers(site), site.gateway
    child = {"name": "net", "local": ["10.1.0.0/16"]}
    profile = {"ipv4Pools": ["vpn"], "accounting": ["radius"], "rateUp": 64000, "sessionsPerUser": 1}
    gateway.apply(
        thing("SubscriberProfile", "vpn", **profile),
        thing(
            "IkeConnection",
            "office",
            localAddress=CORE4,
            localIdentity="gateway.example",
            credential="gateway",
            localAuthentication="CERTIFICATE",
            remoteAuthentication="EAP",
            eapMethod=method,
            subscriberProfile="vpn",
            children=[child],
        ),
    )
    (site.peer.directory / "user.conf").write_text(USER)
    site.peer.load("user.conf")
    try:
        name, session, address = subscribers.connect()
        assert address == "10.9.0.77" if method == "EAP_RADIUS" else address.startswith("10.9.0.")
        assert session["access"] == {"ipsecTunnel": subscribers.tunnels()[0]}
        assert session["policy"]["meterUp"].startswith("rate-64000")
        (listed,) = gateway.json("subscriber", "list")
        assert (listed["username"], listed["protocol"], listed["session"]) == ("alice", "ike", name)
        start = subscribers.record("Start", name)
        assert (start["Framed-IP-Address"], start["Calling-Station-Id"]) == (address, HOST4)
        assert (start["NAS-Port-Type"], start["NAS-Port-Id"]) == ("Virtual", "office:0.0")
        # 80 packets of 1,000 bytes are far above the burst of 15,000 bytes.
        with_drops = gateway.drops().get("meter-red", 0)
        assert " 0% packet loss" in subscribers.ping(address)
        subscribers.ping(address, 80, "-s", "972")
        assert gateway.drops()["meter-red"] > with_drops + 20
        # A new agent has the same session, and its tunnel carries traffic all the time.
        gateway.agent.kill()
        gateway.start_agent()
        wait_until(lambda: site.up() and list(subscribers.sessions()) == [name], what="the session goes on")
        wait_until(lambda: "1 received" in subscribers.ping(address, 1), what="the user has traffic")
        wait_until(lambda: len(gateway.json("subscriber", "list")) == 1, what="the subscriber is listed")
        # A rekey of both SAs keeps the session.
        site.peer.swanctl("--rekey", "--ike", "user")
        site.peer.swanctl("--rekey", "--child", "user")
        wait_until(lambda: "1 received" in subscribers.ping(address, 1), what="the user has traffic")
        assert list(subscribers.sessions()) == [name]
        # An operator disconnects the user: it gets a Delete.
        gateway.sluice("subscriber", "disconnect", "--username", "alice")
        wait_until(subscribers.gone, what="the user is gone")
        stop = subscribers.record("Stop", name)
        assert stop["Acct-Terminate-Cause"] == "Admin-Reset"
        assert int(stop["Acct-Input-Packets"]) > 5 and int(stop["Acct-Input-Octets"]) > 5000
        # The user comes again with the same address, and goes.
        name, _, again = subscribers.connect()
        assert again == address
        site.peer.swanctl("--terminate", "--ike", "user")
        wait_until(subscribers.gone, what="the user is gone")
        assert subscribers.record("Stop", name)["Acct-Terminate-Cause"] == "User-Request"
    finally:
        site.peer.load()
