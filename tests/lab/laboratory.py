# SPDX-License-Identifier: Apache-2.0
"""A laboratory: everything that one test module or one run of an example makes, and the certainty that it goes away."""

import contextlib
import inspect
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .namespace import Namespace

TREE = Path(__file__).resolve().parents[2]
NUMBERS = itertools.count(1)
# Signals that only a fault sends, and what Go and sanitizers write when they end a program.
FAULTS = [-getattr(signal, name) for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")]
REPORT = re.compile(r"^(?:panic: |fatal error: |.*(?:Sanitizer: |DATA RACE)).*", re.MULTILINE)


class ProcessDiedError(Exception):
    """A program ended by a fault of its own. tools/test.py never takes that for flaky."""


class Process:
    """A program that runs inside a namespace, its output in a file."""

    started = []

    def __init__(self, namespace, command, log):
        self.log, self.killed = Path(log), False
        Process.started.append(self)
        with open(log, "ab") as output:
            self.child = subprocess.Popen(
                ["ip", "netns", "exec", namespace.name, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self):
        return self.child.pid

    def alive(self):
        return self.child.poll() is None

    def kill(self):
        """As `kill -9`."""
        self.killed = True
        self.child.kill()
        self.child.wait()

    def death(self):
        """The reason of its end, if neither the program itself nor a test ended it on purpose."""
        status = self.child.poll()
        if status in FAULTS or (status == -signal.SIGKILL and not self.killed):
            return f"{self.log.name}: {signal.Signals(-status).name}"
        report = status and self.log.exists() and REPORT.search(self.log.read_text(errors="replace"))
        return f"{self.log.name}: {report[0]}" if report else None

    def stop(self):
        if self.alive():
            self.child.terminate()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


class Lab:
    """Namespaces with names of their own, processes in them, and a run directory."""

    def __init__(self):
        self.prefix = f"sluice-{os.getpid()}-{next(NUMBERS)}"
        self.directory = Path(tempfile.mkdtemp(prefix=self.prefix + "-"))
        janitor = [sys.executable, Path(__file__).with_name("janitor.py"), self.prefix, self.directory]
        self.janitor = subprocess.Popen(janitor, stdin=subprocess.PIPE, start_new_session=True)
        self.closers = []

    def namespace(self, name):
        return Namespace(f"{self.prefix}-{name}")

    def process(self, namespace, *command, log=None):
        process = Process(namespace, command, self.directory / (log or f"{Path(str(command[0])).name}.log"))
        self.on_close(process.stop)
        return process

    def on_close(self, call):
        self.closers.append(call)

    def close(self):
        try:
            while self.closers:
                self.closers.pop()()
            mine = [each for each in Process.started if self.directory in each.log.parents]
            Process.started[:] = [each for each in Process.started if each not in mine]
            if deaths := [death for each in mine if (death := each.death())]:
                raise ProcessDiedError(f"a process died: {', '.join(deaths)}")
        finally:
            self.janitor.stdin.close()
            self.janitor.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def wait_until(condition, seconds=30, what=""):
    """Waits until a condition is true, and returns its value. Else the error says what was awaited, and seen last.
    `what`: a text, or a function that makes it at the end of the wait.
    """
    end = time.monotonic() + seconds
    while True:
        looked = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > end:
            with contextlib.suppress(OSError, TypeError):
                what = what or inspect.getsource(condition).strip()
            what = what() if callable(what) else what or condition
            raise TimeoutError(f"after {seconds} s: {what}; seen last: {value!r:.1000}")
        # A slow check leaves the machine to others for as long as it takes.
        time.sleep(max(0.02, now - looked))
