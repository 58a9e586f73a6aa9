# SPDX-License-Identifier: Apache-2.0
"""Many subscribers that dial in: the program bench/dial on an interface, and its status."""

import contextlib
import json
import os
import subprocess
import threading
import time

from .home import Line
from .laboratory import TREE

DIAL = os.environ.get("SLUICE_DIAL", str(TREE / "build/sluice-dial"))


class DialerError(RuntimeError):
    """The program refused a command, or ended."""


class Dialer:
    """`options` are its flags: Dialer(lab, namespace, "line", pppoe=200, server4="192.0.2.2")."""

    def __init__(self, lab, namespace, interface, name="dial", **options):
        flags = [f"-{flag.replace('_', '-')}={value}" for flag, value in options.items()]
        self.log = lab.directory / f"{name}.log"
        # One question at a time, of any thread.
        self.asking = threading.Lock()
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(
                ["ip", "netns", "exec", namespace.name, DIAL, f"-interface={interface}", *flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        lab.on_close(self.close)

    @property
    def pid(self):
        return self.child.pid

    def ask(self, command, *numbers):
        with self.asking:
            with contextlib.suppress(BrokenPipeError):
                self.child.stdin.write(" ".join(map(str, (command, *numbers))) + "\n")
                self.child.stdin.flush()
            line = self.child.stdout.readline()
        if not line:
            raise DialerError(f"the dialer ended: {self.log.read_text(errors='replace')[-2000:]}")
        found = json.loads(line)
        if isinstance(found, dict) and "error" in found:
            raise DialerError(found["error"])
        return found

    def status(self):
        return self.ask("status")

    def until(self, condition, seconds=60, what=""):
        """Waits until the status fulfils a condition, and returns it."""
        end = time.monotonic() + seconds
        while not condition(status := self.status()):
            if time.monotonic() > end:
                raise TimeoutError(f"{what or condition}: not in {seconds} s: {status}")
            time.sleep(0.05)
        return status

    def dial(self, seconds=60):
        """All lines come up."""
        self.ask("dial")
        return self.until(lambda s: s["up"] == s["lines"], seconds, "all lines are up")

    def hang_up(self):
        return self.ask("hangup")

    def lines(self):
        """Those that are up."""
        return [
            Line(each["name"], each["mac"], each["ip4"], each["ip6"], tuple(each["vlans"]), pppoe=each["pppoe"])
            for each in self.ask("lines")
        ]

    def close(self):
        if self.child.poll() is None:
            self.child.stdin.close()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        self.child.stdout.close()
