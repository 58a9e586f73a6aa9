# SPDX-License-Identifier: Apache-2.0
"""A certification authority, and a certificate of it."""

import subprocess


def openssl_in(directory):
    """Runs openssl there."""
    return lambda *arguments: subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=directory)


def server_certificate(directory):
    """Makes ca.crt, server.crt and server.key (PKCS #8) for localhost, for peers that speak TLS."""
    openssl = openssl_in(directory)
    key = ("-newkey", "rsa:2048", "-nodes")
    openssl("req", "-x509", *key, "-days", "2", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca")
    (directory / "san").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", "san", "-out", "server.crt")  # fmt: skip
    return directory


def n3iwf_certificate(directory):
    """Makes ca.pem, of an authority that UEs trust, and n3iwf.pem and n3iwf.key of the gateway: ECDSA."""
    openssl = openssl_in(directory)
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *key, "-days", "2", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=operator")
    openssl("req", *key, "-keyout", "n3iwf.key", "-out", "n3iwf.csr", "-subj", "/CN=n3iwf.example")
    openssl("x509", "-req", "-in", "n3iwf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-out", "n3iwf.pem")  # fmt: skip
    return directory
