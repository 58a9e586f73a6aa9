# SPDX-License-Identifier: Apache-2.0
"""libreswan in a namespace, for the handshake alone: it makes the SAs of children with the kernel's XFRM, and a kernel
without ESP refuses them. tools/libreswan.sh fetches it."""

import itertools

from .laboratory import TREE, wait_until
from .namespace import run

PARTS = TREE / "build/libreswan"
NUMBERS = itertools.count(1)
SETUP = """
config setup
\tnssdir=DIR/nss
\tipsecdir=DIR
\tdumpdir=DIR
\tsecretsfile=DIR/ipsec.secrets
\tlogfile=DIR/log
\tdnssec-enable=no
\tnhelpers=0

"""
# pluto runs programs in a folder of its own.
START = """
mount -t tmpfs none /usr/libexec
mkdir /usr/libexec/ipsec
mount --bind PARTS/ipsec /usr/libexec/ipsec
exec /usr/libexec/ipsec/pluto --nofork --rundir DIR --config DIR/ipsec.conf
"""


class Libreswan:
    """A daemon with files of its own: `connections` are those of its ipsec.conf, `secrets` its ipsec.secrets."""

    def __init__(self, lab, namespace, connections, secrets):
        self.directory = lab.directory / f"libreswan-{next(NUMBERS)}"
        (self.directory / "nss").mkdir(parents=True)
        (self.directory / "ipsec.conf").write_text(SETUP.replace("DIR", str(self.directory)) + connections)
        (self.directory / "ipsec.secrets").write_text(secrets)
        self.nss("certutil", "-N", "--empty-password")
        start = START.replace("DIR", str(self.directory)).replace("PARTS", str(PARTS))
        self.process = lab.process(
            namespace, "env", f"LD_LIBRARY_PATH={PARTS}/lib", "sh", "-e", "-c", start, log=f"{self.directory.name}.log"
        )
        wait_until(lambda: "listening for IKE messages" in self.log(), 30, "libreswan listens")

    def nss(self, program, *arguments):
        command = (str(PARTS / "bin" / program), "-d", f"sql:{self.directory}/nss", *arguments)
        run("env", f"LD_LIBRARY_PATH={PARTS}/lib", *command)

    def log(self):
        path = self.directory / "log"
        return path.read_text() if path.exists() else ""

    def whack(self, *arguments):
        """It returns at once."""
        command = (str(PARTS / "ipsec/whack"), "--ctlsocket", str(self.directory / "pluto.ctl"), *arguments)
        return run("env", f"LD_LIBRARY_PATH={PARTS}/lib", *command, check=False).stdout

    def add(self, name):
        program = (str(PARTS / "ipsec/addconn"), "--ctlsocket", str(self.directory / "pluto.ctl"))
        run("env", f"LD_LIBRARY_PATH={PARTS}/lib", *program, "--config", str(self.directory / "ipsec.conf"), name)
