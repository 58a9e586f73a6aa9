# SPDX-License-Identifier: Apache-2.0
"""The gateway under test: data plane and agent as processes in a namespace, and the command line that people use."""

import contextlib
import json
import os
import shutil
import socket
import threading
import time

from .laboratory import TREE, Process, wait_until
from .namespace import run

DATAPLANE = os.environ.get("SLUICE_DATAPLANE", str(TREE / "build/dataplane/sluice-dataplane"))
# Where tests serve the metrics of an agent.
METRICS = "127.0.0.1:9464"
SLUICE = os.environ.get("SLUICE", str(TREE / "build/sluice"))


def thing(kind, name, labels=None, **spec):
    """An object as in YAML: thing("Port", "access", device="net_null0")."""
    metadata = {"name": name} | ({"labels": labels} if labels else {})
    return {"apiVersion": "sluice.dev/v1", "kind": kind, "metadata": metadata, "spec": spec}


def yaml(objects):
    """Every JSON text is YAML, too."""
    return "".join("---\n" + json.dumps(each) + "\n" for each in objects)


class Refused(Exception):
    """The command line failed; the message is its output."""


class Gateway:
    """`supervised`: the data plane is started again when it dies, as systemd does it; `agent_too`: and the agent.
    `northbounds`, `modules`: those of the agent's configuration. `program`: the data plane; `options`: further
    options of it. `disk`: the agent's store is on this Disk."""

    def __init__(
        self,
        lab,
        namespace,
        name="gateway",
        workers=1,
        agent=True,
        supervised=False,
        buffers=8192,
        huge=False,
        agent_too=False,
        cores=None,
        northbounds=(),
        modules=None,
        program=DATAPLANE,
        options=(),
        disk=None,
    ):
        self.disk = disk
        self.program, self.options = program, list(options)
        self.northbounds, self.modules = list(northbounds), modules
        self.agent_too = agent_too
        self.lab, self.namespace, self.name, self.supervised = lab, namespace, name, supervised
        self.workers, self.buffers, self.huge, self.cores = workers, buffers, huge, cores
        self.directory = lab.directory / name
        self.directory.mkdir()
        self.dataplane_socket = self.directory / "dataplane.sock"
        self.agent_socket = self.directory / "agent.sock"
        self.prefix = f"{lab.prefix}-{name}"
        self.dataplane = self.agent = self.guard = None
        self.stopping = threading.Event()
        lab.on_close(self.close)
        self.start_dataplane()
        if agent:
            self.start_agent()

    def process(self, plane, *command):
        """A process that `close` ends, after its supervisor."""
        return Process(self.namespace, command, self.lab.directory / f"{self.name}-{plane}.log")

    def start_dataplane(self):
        self.dataplane_socket.unlink(missing_ok=True)
        shutil.rmtree(f"/var/run/dpdk/{self.prefix}", ignore_errors=True)
        arguments = ["--socket", self.dataplane_socket, "--workers", self.workers, "--buffers", self.buffers]
        arguments += ["--prefix", self.prefix, *([] if self.huge else ["--no-huge"])]
        arguments += ["--cores", self.cores] if self.cores else []
        self.dataplane = self.process("dataplane", self.program, *arguments, *self.options)
        self.wait_for_socket(self.dataplane_socket, self.dataplane)
        if self.supervised and not self.guard:
            self.guard = threading.Thread(target=self.supervise, daemon=True)
            self.guard.start()

    def supervise(self):
        while not self.stopping.wait(0.1):
            if not self.dataplane.alive() and not self.stopping.is_set():
                # One that dies at once, because a test kills it again, is started again.
                with contextlib.suppress(RuntimeError):
                    self.start_dataplane()
            if self.agent_too and self.agent and not self.agent.alive() and not self.stopping.is_set():
                with contextlib.suppress(RuntimeError):
                    self.start_agent()

    def start_agent(self, *more):
        arguments = [*more, "--dataplane", f"unix://{self.dataplane_socket}", "--listen", f"unix://{self.agent_socket}"]
        arguments += ["--store", (self.disk or self).directory / "intent.db"]
        if self.northbounds or self.modules:
            configuration = self.directory / "agent.yaml"
            parts = {"northbounds": self.northbounds} | ({"modules": self.modules} if self.modules else {})
            configuration.write_text(json.dumps(parts))
            arguments += ["--config", configuration]
        self.agent_socket.unlink(missing_ok=True)
        within = self.disk.within if self.disk else ()
        self.agent = self.process("agent", *within, SLUICE, "agent", *arguments)
        self.wait_for_socket(self.agent_socket, self.agent)

    @contextlib.contextmanager
    def without_agent(self):
        """The agent is stopped inside: it repairs changes of the data plane's objects afterwards."""
        self.agent.stop()
        try:
            yield
        finally:
            self.start_agent()
            wait_until(lambda: all(each["status"]["state"] == "applied" for each in self.json("get", "all")))

    def wait_for_socket(self, path, process):
        def answers():
            if not process.alive():
                raise RuntimeError(f"ended with {process.child.returncode}:\n{process.log.read_text()[-2000:]}")
            with socket.socket(socket.AF_UNIX) as client:
                try:
                    client.connect(str(path))
                except OSError:
                    return False
                return True

        wait_until(answers, 30, f"{path} answers")

    def command(self, *arguments):
        return [SLUICE, "--agent", f"unix://{self.agent_socket}", *map(str, arguments)]

    def sluice(self, *arguments, check=True, timeout=60, **options):
        """Runs the command line and returns the result; Refused if it failed and `check` is set."""
        done = run(*self.command(*arguments), check=False, timeout=timeout, **options)
        if check and done.returncode != 0:
            raise Refused(f"sluice {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def json(self, *arguments):
        return json.loads(self.sluice(*arguments, "-o", "json").stdout or "null")

    def apply(self, *objects, wait=True, check=True):
        """Applies objects from a file, as an operator does, and waits until all of them are applied."""
        path = self.directory / f"apply-{threading.get_ident()}.yaml"
        path.write_text(yaml(objects))
        waiting = ("--wait", "30s") if wait and check else ()
        return self.sluice("apply", "-f", path, *waiting, check=check, timeout=80)

    def delete(self, kind, *names):
        return self.sluice("delete", kind, *names, "--in-use")

    def metric(self, name, listen=METRICS):
        """The sum of a metric of the agent over its labels; None: the agent does not answer."""
        done = self.namespace.run("curl", "-sf", f"http://{listen}/metrics", check=False)
        if done.returncode:
            return None
        lines = [line.rsplit(" ", 1) for line in done.stdout.splitlines() if not line.startswith("#")]
        return sum(float(value) for left, value in lines if left.partition("{")[0] == name)

    def holds(self, kind):
        """Names of the data plane's objects of a kind."""
        from contract import Connection, api

        with Connection(self.dataplane_socket) as connection:
            found = connection.ask(list=api.List(kind=kind, limit=10000)).objects.objects
        return [each.name for each in found]

    def drops(self, *arguments):
        """Drops by name."""
        if not self.agent.alive():
            from contract import Connection, api

            with Connection(self.dataplane_socket) as connection:
                found = connection.read(api.DropCountersQuery()).drops
            return {each.reason: each.packets for each in found}
        found = self.json("drops", *arguments) or []
        return {each["reason"]: int(each.get("packets", 0)) for each in found}

    def dropped(self, reason, seconds=20, more_than=0, *arguments):
        """Waits until a drop of this name was counted."""
        return wait_until(
            lambda: self.drops(*arguments).get(reason, 0) > more_than,
            seconds,
            lambda: f"drop {reason}; there are {self.drops(*arguments)}",
        )

    def logs(self):
        return {path.name: path.read_text(errors="replace") for path in sorted(self.lab.directory.glob("*.log"))}

    def close(self):
        self.stopping.set()
        if self.guard:
            self.guard.join(30)
        for process in (self.agent, self.dataplane):
            if process:
                process.stop()

    def until_restarted(self, old_pid, seconds=30):
        wait_until(
            lambda: self.dataplane.pid != old_pid and self.dataplane.alive(), seconds, "data plane started again"
        )
        time.sleep(0.1)
