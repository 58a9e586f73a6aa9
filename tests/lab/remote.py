# SPDX-License-Identifier: Apache-2.0
"""The agent's gRPC over TCP, with its access rights."""

import subprocess

from .gateway import SLUICE
from .rest import tokens


def certificates(directory, *names, addresses=()):
    """Makes ca.crt, and NAME.crt and NAME.key for 127.0.0.1, localhost and `addresses`; "other/NAME" is of another
    authority."""

    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=directory)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for ca in ("ca", "other"):
        openssl("req", "-x509", *key, "-days", "2", "-keyout", f"{ca}.key", "-out", f"{ca}.crt", "-subj", f"/CN={ca}")
    own = "".join(f",IP:{address}" for address in addresses)
    (directory / "san").write_text(f"subjectAltName=IP:127.0.0.1,DNS:localhost{own}\n")
    for each in names:
        ca, name = each.split("/") if "/" in each else ("ca", each)
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial",
                "-days", "2", "-extfile", "san", "-out", f"{name}.crt")  # fmt: skip
    return directory


class Remote:
    """Its configuration, and the command line with each right."""

    kind = "grpc"
    port = 7701

    def __init__(self, lab, namespace):
        self.namespace, self.directory = namespace, lab.directory / self.kind
        self.directory.mkdir()
        certificates(self.directory, "agent")
        self.tokens, self.file = tokens(self.directory, operator="operate")

    def northbound(self, **more):
        """The agent's configuration."""
        pair = {"certificate": str(self.directory / "agent.crt"), "key": str(self.directory / "agent.key")}
        return {
            "type": self.kind, "name": self.kind, "listen": f"127.0.0.1:{self.port}", "tls": pair,
            "tokens": str(self.file),
        } | more  # fmt: skip

    def sluice(self, *arguments, token="operator", client=None, check=False, **options):
        """The command line, over TCP."""
        command = [SLUICE, "--agent", f"tcp://127.0.0.1:{self.port}", "--ca", self.directory / "ca.crt"]
        if token:
            command += ["--token-file", self.directory / f"{token}.token"]
        if client:
            command += ["--cert", self.directory / f"{client}.crt", "--key", self.directory / f"{client}.key"]
        return self.namespace.run(*map(str, command), *map(str, arguments), check=check, **options)
