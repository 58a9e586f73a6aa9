# SPDX-License-Identifier: Apache-2.0
"""Certificates of a peer that are revoked, with strongSwan as the peer, and OpenSSL as the authority and OCSP responder
(RFC 5280, 6960)."""

import subprocess

import pytest
from lab import thing
from lab.laboratory import wait_until
from lab.strongswan import StrongSwan
from pop import CORE4, HOST4
from test_ike import CONNECTION, HERE, THERE, Site

GOOD, REVOKED, NOBODY = 2560, 2561, 2562
LATER, EARLIER = "391231235959Z", "250101000000Z"

AUTHORITY = """
[ca]
default_ca = here
[here]
database = DIR/index
crlnumber = DIR/number
default_md = sha256
default_crl_days = 2
"""


class Authority:
    """OpenSSL's, with a certificate for each gateway. `there` is number 16."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        own = ("-days", "2", "-subj", "/CN=Authority", "-keyout", "ca.key", "-out", "ca.pem")
        self.openssl("req", "-x509", *key, *own)
        for number, name, extensions in (
            (16, "there", f"subjectAltName=DNS:{THERE}"),
            (17, "here", f"subjectAltName=DNS:{HERE}"),
            (18, "ocsp", "extendedKeyUsage=OCSPSigning"),
        ):
            self.openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
            (directory / "extensions").write_text(extensions + "\n")
            signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", str(number), "-days", "2")
            self.openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-extfile", "extensions", "-out", f"{name}.pem")
        (directory / "openssl.cnf").write_text(AUTHORITY.replace("DIR", str(directory)))
        (directory / "number").write_text("01\n")

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.directory)

    def path(self, name):
        return str(self.directory / name)

    def index(self, name, revoked):
        entry = ("R", LATER, EARLIER) if revoked else ("V", LATER, "")
        (self.directory / name).write_text("\t".join((*entry, "10", "unknown", "/CN=there")) + "\n")

    def list(self, revoked):
        """Another list of revoked certificates."""
        self.index("index", revoked)
        signed = ("-keyfile", "ca.key", "-cert", "ca.pem", "-out", "new.crl")
        self.openssl("ca", "-config", "openssl.cnf", "-gencrl", *signed)
        (self.directory / "new.crl").rename(self.directory / "ca.crl")

    def respond(self, lab, namespace, port, revoked):
        """An OCSP responder."""
        self.index(f"index-{port}", revoked)
        files = [self.path(name) for name in (f"index-{port}", "ca.pem", "ocsp.pem", "ocsp.key")]
        options = [each for pair in zip(("-index", "-CA", "-rsigner", "-rkey"), files, strict=True) for each in pair]
        lab.process(namespace, "openssl", "ocsp", "-port", str(port), "-nmin", "5", *options, log=f"ocsp-{port}.log")


@pytest.fixture(scope="module")
def site(lab):
    made = Site(lab)
    made.authority = Authority(lab.directory / "authority")
    made.authority.list(False)
    for port, revoked in ((GOOD, False), (REVOKED, True)):
        made.authority.respond(lab, made.inside, port, revoked)
    made.peer.close()
    text = CONNECTION.replace("id = there", "certs = there.pem\n      id = there", 1)
    read = {name: (made.authority.directory / name).read_text() for name in ("there.pem", "there.key", "ca.pem")}
    made.peer = StrongSwan(
        lab,
        made.outside,
        text.replace("auth = psk", "auth = pubkey"),
        {"x509/there.pem": read["there.pem"], "private/there.key": read["there.key"], "x509ca/ca.pem": read["ca.pem"]},
    )
    files = {"certificateFile": made.authority.path("here.pem"), "privateKeyFile": made.authority.path("here.key")}
    made.gateway.apply(thing("IkeCredential", "here", **files))
    return made


def trust(site, **more):
    """The authority of peers: with the list of the file, or with an OCSP responder."""
    spec = {"certificateFile": site.authority.path("ca.pem"), "revocation": "REQUIRED"}
    site.gateway.apply(thing("IkeAuthority", "peers", **spec | more))


def connection(start):
    return thing(
        "IkeConnection",
        "office",
        localAddress=CORE4,
        remoteAddress=HOST4,
        localIdentity=HERE,
        remoteIdentity=THERE,
        credential="here",
        authorities=["peers"],
        localAuthentication="CERTIFICATE",
        remoteAuthentication="CERTIFICATE",
        children=[
            {"name": "net", "tunnel": "office", "local": ["10.1.0.0/16"], "remote": ["10.2.0.0/16"], "start": start}
        ],
    )


def forget(site):
    site.gateway.delete("IkeConnection", "office")
    wait_until(lambda: not site.associations() and not site.peer.children(), what="the tunnel is down")


def accepted(site):
    """Both ends may begin, and traffic passes."""
    site.gateway.apply(connection("AT_ONCE"))
    wait_until(site.up, what="the tunnel is up")
    assert " 0% packet loss" in site.ping()
    forget(site)
    site.gateway.apply(connection("NOTHING"), wait=False)
    wait_until(lambda: site.peer.swanctl("--initiate", "--child", "net", check=False).returncode == 0, what="a tunnel")
    wait_until(site.up, what="the tunnel is up")
    forget(site)


def refused(site, why):
    """Neither end may begin, and the operator sees why."""
    site.gateway.apply(connection("AT_ONCE"), wait=False)
    wait_until(lambda: why in str(site.gateway.json("describe", "IkeConnection", "office")), what=why)
    assert not site.associations()
    forget(site)
    site.gateway.apply(connection("NOTHING"), wait=False)
    assert site.peer.swanctl("--initiate", "--child", "net", check=False).returncode != 0
    assert not site.associations()
    forget(site)


def test_a_certificate_on_a_list_is_refused(site):
    trust(site, revocationListFiles=[site.authority.path("ca.crl")])
    accepted(site)
    site.authority.list(True)
    # The agent reads the file again within five seconds.
    site.gateway.apply(connection("AT_ONCE"), wait=False)

    def renewed():
        site.gateway.sluice("ike", "terminate", "office", check=False)
        site.ping(1, check=False, wait=1)  # opens it again
        return "was revoked" in str(site.gateway.json("describe", "IkeConnection", "office"))

    wait_until(renewed, what="the new list counts")
    forget(site)
    refused(site, "was revoked")


def test_a_tunnel_outlives_a_list_that_cannot_be_read(site):
    """Something writes the list in place, and the agent reads the first half."""
    site.authority.list(False)
    trust(site, revocationListFiles=[site.authority.path("ca.crl")])
    site.gateway.apply(connection("AT_ONCE"))
    wait_until(site.up, what="the tunnel is up")
    before = site.peer.keys()
    path = site.authority.directory / "ca.crl"
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])

    def described():
        return str(site.gateway.json("describe", "IkeConnection", "office"))

    wait_until(lambda: "stays in force" in described(), what="the agent names the file")
    assert " 0% packet loss" in site.ping()
    assert site.up() and site.peer.keys() == before
    path.write_text(whole)
    wait_until(lambda: "stays in force" not in described(), what="the agent reads all of it")
    assert site.peer.keys() == before
    forget(site)


def test_an_ocsp_responder_decides_before_the_list(site):
    site.authority.list(True)
    listed = {"revocationListFiles": [site.authority.path("ca.crl")]}
    trust(site, ocsp=True, ocspUrl=f"http://127.0.0.1:{GOOD}", **listed)
    accepted(site)
    trust(site, ocsp=True, ocspUrl=f"http://127.0.0.1:{REVOKED}")
    refused(site, "was revoked")
    # Without an answer the list decides, and without a list nothing says that the certificate is good.
    trust(site, ocsp=True, ocspUrl=f"http://127.0.0.1:{NOBODY}", **listed)
    refused(site, "was revoked")
    trust(site, ocsp=True, ocspUrl=f"http://127.0.0.1:{NOBODY}")
    refused(site, "127.0.0.1")
