# SPDX-License-Identifier: Apache-2.0
"""A PPPoE host for a kernel that has no PPPoE: python3 -m lab.dial INTERFACE USER PASSWORD [ADDRESS TO PING]

It dials in, prints its addresses, pings, and exits: the session stays until its keepalive ends it."""

import argparse
import ipaddress
import json
import subprocess

from .pppoe import IPCP, Host
from .wire import Wire


class Here:
    """In place of a namespace: the one that this program runs in."""

    @staticmethod
    def inside(call, *arguments, **options):
        return call(*arguments, **options)

    @staticmethod
    def mac(interface):
        shown = subprocess.run(("ip", "-j", "link", "show", interface), capture_output=True, text=True, check=True)
        return json.loads(shown.stdout)[0]["address"]


def main():
    parser = argparse.ArgumentParser(prog="lab.dial")
    for name in ("interface", "user", "password"):
        parser.add_argument(name)
    parser.add_argument("--vlans", type=int, nargs="*", default=())
    parser.add_argument("--ping")
    asked = parser.parse_args()
    wire = Wire(Here, asked.interface)
    host = Host(wire, wire.mac, *asked.vlans, username=asked.user, password=asked.password, method="chap")
    try:
        accepted = host.dial(IPCP)
    except AssertionError as error:
        raise SystemExit(f"no answer on {asked.interface}: {error}") from None
    if not accepted:
        raise SystemExit(f"refused: {host.refused.decode(errors='replace')}")
    servers = ", ".join(str(ipaddress.ip_address(each)) for each in dict.fromkeys(host.dns)) or "none"
    gateway = ipaddress.ip_address(host.gateway)
    print(f"session {host.session}: address {host.ip4()}, gateway {gateway}, name servers {servers}")
    if asked.ping:
        try:
            host.ping(asked.ping, 1)
        except AssertionError as error:
            raise SystemExit(f"{asked.ping} does not answer: {error}") from None
        print(f"{asked.ping} answers")


if __name__ == "__main__":
    main()
