# SPDX-License-Identifier: Apache-2.0
"""strongSwan in a namespace. Its own ESP in user space (kernel-libipsec) carries the traffic, always in UDP."""

import itertools
import os
import re
import subprocess

from .laboratory import wait_until

PROGRAM = "charon-systemd"
NUMBERS = itertools.count(1)

PLUGINS = (
    "random nonce drbg openssl gcrypt aes sha1 sha2 md5 hmac kdf gcm ctr chapoly curve25519 pem pkcs1 pkcs8 x509 "
    "eap-identity eap-mschapv2 eap-tls "
    "constraints pubkey kernel-libipsec kernel-netlink socket-default vici"
)

STRONGSWAN = """
charon-systemd {
  load = PLUGINS
  delete_rekeyed_delay = 0
  plugins {
    vici {
      socket = unix://DIR/vici
    }
  }
  journal {
    default = -1
  }
  filelog {
    log {
      path = DIR/log
      default = 1
      flush_line = yes
    }
  }
}
"""


class StrongSwan:
    """A daemon with files of its own. `configuration` is its swanctl.conf; `files` are those below, by name;
    `more` is for its strongswan.conf."""

    def __init__(self, lab, namespace, configuration, files=None, more=""):
        self.namespace, self.directory = namespace, lab.directory / f"strongswan-{next(NUMBERS)}"
        self.directory.mkdir()
        text = STRONGSWAN.replace("PLUGINS", PLUGINS).replace("DIR", str(self.directory))
        (self.directory / "strongswan.conf").write_text(text + more)
        (self.directory / "swanctl.conf").write_text(configuration)
        for name, content in (files or {}).items():
            path = self.directory / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        self.environment = {
            **os.environ,
            "STRONGSWAN_CONF": str(self.directory / "strongswan.conf"),
            "SWANCTL_DIR": str(self.directory),
        }
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", namespace.name, PROGRAM],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        lab.on_close(self.close)
        wait_until(lambda: self.swanctl("--stats", check=False).returncode == 0, what="strongSwan answers")
        self.load()

    def load(self, name="swanctl.conf"):
        self.swanctl("--load-all", "--file", str(self.directory / name))

    def swanctl(self, *arguments, check=True):
        command = ["swanctl", *arguments, "--uri", f"unix://{self.directory}/vici"]
        return subprocess.run(command, env=self.environment, check=check, capture_output=True, text=True)

    def children(self):
        """Those that are in use; it lists replaced ones for a while."""
        installed = r"state=INSTALLED mode=TUNNEL protocol=ESP encap=yes spi-in=(\w+) spi-out=(\w+)"
        return re.findall(installed, self.swanctl("--list-sas", "--raw").stdout)

    def keys(self):
        """SPIs of IKE SAs, and those of children that are in use."""
        ike = re.findall(r"(?:initiator|responder)-spi=(\w+)", self.swanctl("--list-sas", "--raw").stdout)
        return sorted(ike), self.children()

    def close(self):
        self.process.terminate()
        self.process.wait()
