# SPDX-License-Identifier: Apache-2.0
"""Two agents of one data plane: a lease in etcd chooses one of them, and the data plane obeys the highest term."""

import errno
import json
import signal
import subprocess

import pytest
from contract import VERSION, Connection, api
from lab import Gateway, thing
from lab.etcd import PORT, encoded
from lab.gateway import SLUICE
from lab.laboratory import wait_until

KEY = "/lease/test"


@pytest.fixture
def fenced(lab):
    return Gateway(lab, lab.namespace("fenced"), "fenced", agent=False)


def greeted(gateway, term, name):
    connection = Connection(gateway.dataplane_socket, hello=False)
    return connection, connection.ask(hello=api.Hello(version=VERSION, name=name, term=term)).result


def test_the_data_plane_obeys_the_highest_term_alone(fenced):
    old, result = greeted(fenced, 7, "bonn")
    assert result.code == 0
    assert [each.code for each in old.put(thing("Vrf", "red"))] == [0]
    tool, _ = greeted(fenced, 0, "a tool")
    new, result = greeted(fenced, 8, "ulm")
    assert result.code == 0
    for lower, term in ((old, 7), (tool, 0)):
        for refused in (
            lower.ask(put=api.Put(objects=[])),
            lower.ask(delete=api.Delete(names=[api.ObjectName(kind="Vrf", name="red")])),
            lower.ask(packet_out=api.PacketOut()),
        ):
            assert refused.result.code == errno.ESTALE
            assert refused.result.message == f'term: {term} is lower than 8, the term of "ulm"'
        # To look is free.
        assert [each.name for each in lower.ask(list=api.List(kind="Vrf")).objects.objects] == ["red"]
    _, result = greeted(fenced, 7, "bonn")
    assert result.code == errno.ESTALE
    assert [each.code for each in new.put(thing("Vrf", "blue"))] == [0]


class Agents:
    """Agents beside one data plane, where etcd is."""

    def __init__(self, lab, server):
        self.server = server
        self.gateway = Gateway(lab, server.namespace, "lease", agent=False)
        self.processes = {}

    def start(self, name):
        socket = self.gateway.directory / f"{name}.sock"
        config = self.gateway.directory / f"{name}.yaml"
        lease = {"endpoints": [f"http://127.0.0.1:{PORT}"], "key": KEY, "ttl": "2s"}
        said = {"listen": f"unix://{socket}", "store": str(self.gateway.directory / f"{name}.db"), "lease": lease}
        planes = [{"name": "default", "endpoint": f"unix://{self.gateway.dataplane_socket}"}]
        config.write_text(json.dumps(said | {"dataplanes": planes}))
        self.processes[name] = self.gateway.process(name, SLUICE, "agent", "--begin-anew", "--config", config)
        self.gateway.lab.on_close(self.processes[name].stop)
        self.gateway.wait_for_socket(socket, self.processes[name])

    def sluice(self, name, *arguments, text=None):
        address = f"unix://{self.gateway.directory / name}.sock"
        command = [str(SLUICE), "--agent", address, *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)

    def drives(self, name):
        return self.sluice(name, "version").returncode == 0

    def waits(self, name):
        said = self.sluice(name, "version")
        return "holds the lease" in said.stdout + said.stderr

    def holder(self):
        found = self.server.ask("kv/range", key=encoded(KEY)).get("kvs", [])
        return found[0]["create_revision"] if found else None

    def there(self):
        with Connection(self.gateway.dataplane_socket) as connection:
            return {each.name for each in connection.ask(list=api.List(kind="Acl")).objects.objects}


@pytest.fixture(params=["etcd"])
def agents(request, lab):
    return Agents(lab, request.getfixturevalue("etcd_server"))


def test_an_agent_that_lost_its_lease_is_refused_and_reports_it(agents):
    agents.start("one")
    wait_until(lambda: agents.drives("one"))
    first = agents.holder()
    agents.start("two")
    wait_until(lambda: agents.waits("two"))
    assert not agents.drives("two")
    acl = json.dumps(thing("Acl", "of-one"))
    assert agents.sluice("one", "apply", "-f", "-", text=acl).returncode == 0

    # A process that is stopped for longer than its lease does not know that it has lost it.
    agents.processes["one"].child.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: agents.drives("two"))
        assert int(agents.holder()) > int(first)
        acl = json.dumps(thing("Acl", "of-two"))
        assert agents.sluice("two", "apply", "-f", "-", text=acl).returncode == 0
        wait_until(lambda: "of-two" in agents.there())
    finally:
        agents.processes["one"].child.send_signal(signal.SIGCONT)
    wait_until(lambda: agents.waits("one"))
    assert "lost the lease" in agents.processes["one"].log.read_text()
    agents.sluice("one", "apply", "-f", "-", text=json.dumps(thing("Acl", "too-late")))
    assert "too-late" not in agents.there()

    # The next holder has a higher term than both, and is obeyed.
    agents.processes["two"].stop()
    wait_until(lambda: agents.drives("one"))
    wait_until(lambda: "too-late" in agents.there())
