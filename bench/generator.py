# SPDX-License-Identifier: Apache-2.0
"""The traffic generator's process (dataplane/bench/generator), and results of its trials."""

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
GENERATOR = TREE / "build/dataplane/bench/generator/sluice-generator"


class GeneratorError(RuntimeError):
    """The generator refused a command, or ended."""


@dataclass(frozen=True)
class Stream:
    """Frames of `size` bytes, FCS included, from one port to another; `headers` are those of its flows, all of one
    length. `share` is its part of the packets of all streams."""

    name: str
    from_port: int
    to_port: int
    size: int
    headers: list
    share: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """The result of a trial over all streams; `streams` has the generator's result of each."""

    seconds: float
    stalled: float
    strangers: int
    streams: list

    def total(self, what):
        return sum(stream[what] for stream in self.streams)

    @property
    def lost(self):
        return self.total("offered") - self.total("received")


class Generator:
    """The process; `directory` is for the files of headers. To be closed."""

    def __init__(self, directory, devices, core=0, huge=True):
        self.directory, self.streams = Path(directory), []
        # Names of the streams that trials send; None: all.
        self.only = None
        command = [str(GENERATOR), "--core", str(core), *([] if huge else ["--no-huge"])]
        for device in devices:
            command += ["--port", device]
        self.log = self.directory / "generator.log"
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        try:
            self.tsc_hz = self.answer()["tsc_hz"]
        except GeneratorError:
            self.close()
            raise

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            raise GeneratorError(f"the generator ended: {self.log.read_text(errors='replace')[-2000:]}")
        found = json.loads(line)
        if "error" in found:
            raise GeneratorError(found["error"])
        return found

    def ask(self, line):
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            pass
        return self.answer()

    def wait_for_links(self, seconds=20):
        end = time.monotonic() + seconds
        while not all(links := self.ask("links")["links"]):
            if time.monotonic() > end:
                raise GeneratorError(f"after {seconds} s there are still links down: {links}")
            time.sleep(0.02)

    def add(self, stream):
        path = self.directory / f"stream-{len(self.streams)}.headers"
        path.write_bytes(b"".join(stream.headers))
        header = len(stream.headers[0])
        self.ask(f"stream {path} {stream.from_port} {stream.to_port} {stream.size - 4} {header}")
        path.unlink()
        self.streams.append(stream)

    def trial(self, seconds, rate, drain=0.5):
        """Sends `rate` packets a second in all, spread over the streams by their shares."""
        shares = [stream.share if self.only is None or stream.name in self.only else 0.0 for stream in self.streams]
        rates = " ".join(f"{rate * share / sum(shares):.6f}" for share in shares)
        said = self.ask(f"trial {seconds:.6f} {drain:.3f} {rates}")
        streams = [
            {"name": stream.name, **counted} for stream, counted in zip(self.streams, said["streams"], strict=True)
        ]
        return Outcome(said["seconds"], said["stalled"], said["strangers"], streams)

    def speed(self, processor):
        """Cycles that arithmetic takes on the generator's processor, and at the same time on that one."""
        return self.ask(f"speed {processor}")["speed"]

    def close(self):
        self.child.stdin.close()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
