# SPDX-License-Identifier: Apache-2.0
"""The handshake of IKEv2 with libreswan as the peer. A kernel without ESP refuses the SAs of its children: it has no
tunnel."""

import re

import pytest
from lab import thing
from lab.laboratory import wait_until
from lab.libreswan import Libreswan
from test_ike import THERE, Site
from test_ike_revocation import Authority

CONNECTION = """
conn secret
\talso=office
\tauthby=secret
\tleftid=@there.example
\trightid=@here.example

conn certificate
\talso=office
\tauthby=ecdsa
\tleftcert=there
\tleftid=@there.example
\trightid=@here.example
\trightca=%same

conn office
\tikev2=insist
\tleft=192.0.2.2
\tleftsubnet=10.2.0.0/16
\tright=192.0.2.1
\trightsubnet=10.1.0.0/16
\tike=aes_gcm256-sha2_256-dh19,aes_gcm256-sha2_256-dh31
\tesp=aes_gcm256
\tretransmit-timeout=5s
\tauto=ignore
"""
SECRETS = '@here.example @there.example : PSK "a secret"\n'


class Office(Site):
    def other_end(self, lab):
        self.authority = Authority(lab.directory / "authority")
        peer = Libreswan(lab, self.outside, CONNECTION, SECRETS)
        both = ("-export", "-in", "there.pem", "-inkey", "there.key", "-name", "there", "-out", "there.p12")
        self.authority.openssl("pkcs12", *both, "-passout", "pass:")
        peer.nss("pk12util", "-i", self.authority.path("there.p12"), "-W", "")
        peer.nss("certutil", "-A", "-n", "ca", "-t", "CT,,", "-i", self.authority.path("ca.pem"))
        return peer


@pytest.fixture(scope="module")
def office(lab):
    office = Office(lab)
    path = office.authority.path
    office.gateway.apply(
        thing("IkeCredential", "certificate", certificateFile=path("here.pem"), privateKeyFile=path("here.key")),
        thing("IkeAuthority", "office", certificateFile=path("ca.pem")),
    )
    return office


@pytest.fixture(autouse=True)
def nothing_left(office):
    yield
    for name in ("secret", "certificate"):
        office.peer.whack("--name", name, "--delete")
    office.gateway.delete("IkeConnection", "office")
    wait_until(lambda: not office.associations(), what="the SAs are gone")


def connection(office, start, authentication):
    made = office.connection(start)
    if authentication == "certificate":
        both = {"localAuthentication": "CERTIFICATE", "remoteAuthentication": "CERTIFICATE"}
        made["spec"] |= both | {"credential": "certificate", "authorities": ["office"]}
    return made


def known(office):
    """The gateway has read the connection."""
    unknown = ("ike", "initiate", "office", "--child", "x")
    refusal = "no child"
    wait_until(lambda: refusal in office.gateway.sluice(*unknown, check=False).stderr, what="the connection is known")


HOW = {"secret": "authby=secret", "certificate": "digital signature"}


@pytest.mark.parametrize("authentication", ["secret", "certificate"])
def test_libreswan_opens_an_ike_sa(office, authentication):
    office.gateway.apply(connection(office, "NOTHING", authentication), wait=False)
    known(office)
    office.peer.add(authentication)
    before = len(office.peer.log())
    office.peer.whack("--name", authentication, "--initiate", "--asynchronous")
    wait_until(lambda: "established IKE SA; authenticated peer" in office.peer.log()[before:], what="an IKE SA")
    said, how = office.peer.log()[before:], HOW[authentication]
    assert re.search(f"initiator established IKE SA; authenticated peer .*{how}.*'@here.example'", said), said
    # The first key exchange that libreswan offers is not accepted.
    assert "INVALID_KE_PAYLOAD" in said, said
    (listed,) = office.gateway.json("ike", "list")[:1]
    assert (listed["remoteIdentity"], listed["algorithms"]) == (THERE, "aes256gcm16-prfsha256-x25519")


@pytest.mark.parametrize("authentication", ["secret", "certificate"])
def test_the_gateway_opens_an_ike_sa_with_libreswan(office, authentication):
    office.peer.add(authentication)
    before = len(office.peer.log())
    office.gateway.apply(connection(office, "AT_ONCE", authentication), wait=False)
    wait_until(lambda: "established IKE SA; authenticated peer" in office.peer.log()[before:], what="an IKE SA")
    said, how = office.peer.log()[before:], HOW[authentication]
    assert re.search(f"responder established IKE SA; authenticated peer .*{how}.*'@here.example'", said), said


def test_libreswan_is_refused_for_its_key(office):
    office.gateway.apply(thing("IkeCredential", "office", sharedKey="another"))
    try:
        office.gateway.apply(connection(office, "NOTHING", "secret"), wait=False)
        known(office)
        office.peer.add("secret")
        before = len(office.peer.log())
        office.peer.whack("--name", "secret", "--initiate", "--asynchronous")
        wait_until(lambda: "AUTHENTICATION_FAILED" in office.peer.log()[before:], what="a refusal")
        assert "established IKE SA" not in office.peer.log()[before:]
        assert not office.gateway.json("ike", "list")
    finally:
        office.gateway.apply(thing("IkeCredential", "office", sharedKey="a secret"))
