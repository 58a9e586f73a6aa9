# SPDX-License-Identifier: Apache-2.0
"""Another reader of what the gateway sends: Wireshark's dissectors."""

import itertools

from .laboratory import wait_until
from .namespace import run

NUMBERS = itertools.count(1)


class Sniffer:
    """Captures on an interface until `complaints` is asked."""

    def __init__(self, lab, namespace, interface, expression):
        name = f"sniffer-{next(NUMBERS)}"
        self.path = lab.directory / f"{name}.pcap"
        # It writes each packet at once.
        command = ("tcpdump", "-n", "-U", "-i", interface, "-w", self.path, expression)
        self.process = lab.process(namespace, *command, log=f"{name}.log")
        wait_until(lambda: "listening on" in self.process.log.read_text(), 30, "tcpdump listens")

    def complaints(self, source, relays=False):
        """The packets from an address that are malformed or earn a warning, and how many of its packets there are.
        `relays`: the NAS messages are those of UEs.
        """
        self.process.stop()
        # A T-PDU may be a frame, which tshark could take for an IP packet.
        options = ("-o", "gtp.dissect_tpdu_as:None", *(("--disable-protocol", "nas-5gs") if relays else ()))
        fields = ("frame.number", "_ws.col.Protocol", "_ws.col.Info", "_ws.expert.message")
        shown = ("-T", "fields", *(each for field in fields for each in ("-e", field)))
        read = ("tshark", "-n", "-r", str(self.path), *options)
        mine = f"ip.src == {source}"
        bad = run(*read, *shown, "-Y", f'{mine} && (_ws.malformed || _ws.expert.severity >= "Warning")').stdout
        return bad.splitlines(), len(run(*read, "-Y", mine).stdout.splitlines())
