# SPDX-License-Identifier: Apache-2.0
"""A certification authority and a server's certificate, for peers that speak TLS."""

import subprocess


def server_certificate(directory):
    """Makes ca.crt, server.crt and server.key (PKCS #8) for localhost."""

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=directory)

    key = ("-newkey", "rsa:2048", "-nodes")
    openssl("req", "-x509", *key, "-days", "2", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca")
    (directory / "san").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", "san", "-out", "server.crt")  # fmt: skip
    return directory
