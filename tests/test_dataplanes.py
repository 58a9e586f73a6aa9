# SPDX-License-Identifier: Apache-2.0
"""One agent with two data planes: labels place objects, and a data plane that is gone does not delay the other."""

import json

import pytest
from contract import Connection, api
from lab import Gateway, thing
from lab.gateway import DATAPLANE, SLUICE, Refused
from lab.laboratory import wait_until


class Towns:
    """The gateway's own data plane is called bonn; beside it there is one called ulm."""

    def __init__(self, lab):
        self.lab = lab
        self.gateway = Gateway(lab, lab.namespace("towns"), agent=False)
        self.sockets = {"bonn": self.gateway.dataplane_socket, "ulm": self.gateway.directory / "ulm.sock"}
        self.start_ulm()
        config = self.gateway.directory / "agent.yaml"
        planes = [
            {"name": name, "endpoint": f"unix://{path}", "labels": {"town": name}}
            for name, path in self.sockets.items()
        ]
        said = {"listen": f"unix://{self.gateway.agent_socket}", "store": str(self.gateway.directory / "intent.db")}
        config.write_text(json.dumps(said | {"dataplanes": planes}))
        self.gateway.agent = self.gateway.process("agent", SLUICE, "agent", "--config", config)
        self.gateway.wait_for_socket(self.gateway.agent_socket, self.gateway.agent)

    def start_ulm(self):
        self.sockets["ulm"].unlink(missing_ok=True)
        arguments = ["--socket", self.sockets["ulm"], "--workers", 1, "--buffers", 8192, "--no-huge"]
        self.ulm = self.gateway.process("ulm", DATAPLANE, *arguments, "--prefix", f"{self.gateway.prefix}-ulm")
        self.lab.on_close(self.ulm.stop)
        self.gateway.wait_for_socket(self.sockets["ulm"], self.ulm)

    def there(self, town):
        with Connection(self.sockets[town]) as connection:
            return {each.name for each in connection.ask(list=api.List(kind="Acl")).objects.objects}


@pytest.fixture(scope="module")
def towns(lab):
    return Towns(lab)


def test_both_are_connected_and_reading_one_needs_its_name(towns):
    def connected():
        return towns.gateway.sluice("version", check=False).returncode == 0

    wait_until(connected)
    with pytest.raises(Refused, match="which data plane"):
        towns.gateway.sluice("drops")
    towns.gateway.sluice("--at", "ulm", "drops")
    with pytest.raises(Refused, match="there is no data plane"):
        towns.gateway.sluice("--at", "paris", "drops")
    # Also where it makes no difference, and in a command that follows.
    for command in (["get", "all"], ["history"], ["describe", "vrf", "default"], ["get", "ports", "-w"]):
        with pytest.raises(Refused, match='there is no data plane "paris"'):
            towns.gateway.sluice("--at", "paris", *command)


def test_labels_decide_the_data_plane_of_objects(towns):
    towns.gateway.apply(
        thing("Acl", "both"), thing("Acl", "north", {"town": "bonn"}), thing("Acl", "south", {"dataplane": "ulm"})
    )
    assert towns.there("bonn") == {"both", "north"}
    assert towns.there("ulm") == {"both", "south"}
    towns.gateway.apply(thing("Acl", "north", {"town": "ulm"}))
    assert towns.there("bonn") == {"both"}
    assert towns.there("ulm") == {"both", "north", "south"}
    with pytest.raises(Refused, match="there is no such data plane"):
        towns.gateway.apply(thing("Acl", "lost", {"dataplane": "paris"}))


def test_a_watch_reports_loss_and_return_of_a_data_plane_once(towns):
    objects = [thing("Acl", f"watched{i}", {"dataplane": "ulm"}) for i in range(20)]
    towns.gateway.apply(*objects)
    watching = {
        "json": towns.gateway.process("watch-json", *towns.gateway.command("get", "acl", "-w", "-o", "json")),
        "table": towns.gateway.process("watch-table", *towns.gateway.command("get", "acl", "-w")),
    }
    told = {name: process.log for name, process in watching.items()}
    try:
        for log in told.values():
            wait_until(lambda log=log: "watched9" in log.read_text())
        before = len(told["json"].read_text().splitlines())
        towns.ulm.kill()
        for log in told.values():
            wait_until(lambda log=log: "away" in log.read_text())
        (first,) = [json.loads(line) for line in told["json"].read_text().splitlines()[before:]]
        assert first["change"] == "dataplane"
        assert (first["object"]["name"], first["object"]["state"]) == ("ulm", "away")
        (late,) = towns.gateway.json("get", "acl", "watched3")
        assert late["status"]["state"] == "unknown"
        towns.start_ulm()
        for log in told.values():
            wait_until(
                lambda log=log: "The data plane ulm is back" in log.read_text() or '"connected"' in log.read_text()
            )
        # It was empty, and each new object is reported by itself.
        wait_until(lambda: towns.there("ulm") >= {f"watched{i}" for i in range(20)})
        changes = [json.loads(line) for line in told["json"].read_text().splitlines()[before:]]
        planes = [c["object"] for c in changes if c["change"] == "dataplane"]
        assert [(p["name"], p["state"]) for p in planes] == [("ulm", "away"), ("ulm", "connected")]
        assert "The data plane ulm is away since " in told["table"].read_text()
    finally:
        for process in watching.values():
            process.stop()
    towns.gateway.sluice("delete", "acl", *[f"watched{i}" for i in range(20)])


def session(name, vlan, **labels):
    port = {"port": "west" if labels["dataplane"] == "bonn" else "east", "outerVlan": vlan}
    return thing("Session", name, labels, access=port, addresses=[f"100.64.7.{vlan}/32"])


def test_state_of_an_object_in_one_data_plane_needs_no_name_of_it(towns):
    ports = [
        thing("Port", name, {"dataplane": town}, device=f"net_null{n}")
        for n, (name, town) in enumerate([("west", "bonn"), ("east", "ulm")])
    ]
    towns.gateway.apply(*ports, session("carol", 7, dataplane="ulm"))
    described = towns.gateway.sluice("describe", "session", "carol").stdout
    assert "not known" not in described
    assert "Counters" in described
    assert "link" in towns.gateway.sluice("describe", "port", "east").stdout
    assert towns.gateway.sluice("drops", "--session", "carol").returncode == 0
    with pytest.raises(Refused, match="choose one with --at"):
        towns.gateway.sluice("drops")


def test_waiting_for_an_object_of_another_data_plane_is_reported(towns):
    wrong = session("dave", 8, dataplane="bonn")
    wrong["spec"]["access"]["port"] = "east"
    planned = towns.gateway.sluice("plan", "-f", "-", input=json.dumps(wrong)).stdout
    assert "Port/east (access.port), which is only in ulm" in planned
    done = towns.gateway.apply(wrong, wait=False, check=False)
    assert done.returncode == 3
    (dave,) = towns.gateway.json("get", "session", "dave")
    assert dave["status"]["message"].startswith("bonn: waits for Port/east (access.port), which is only in ulm")
    towns.gateway.delete("session", "dave")


def test_a_move_from_one_to_another_is_a_brief_interruption_where_it_leaves_and_nothing_where_it_comes(towns):
    moved = session("carol", 7, dataplane="bonn")
    planned = towns.gateway.sluice("plan", "-f", "-", input=json.dumps(moved)).stdout
    came, left = [line for line in planned.splitlines() if "Session carol" in line]
    assert "in ulm" in left
    assert "brief interruption" in left
    assert "in bonn" in came
    assert "outage" not in planned
    assert "interruption" not in came
    towns.gateway.apply(moved)
    towns.gateway.delete("session", "carol")
    towns.gateway.delete("port", "east", "west")


def test_one_that_is_gone_delays_no_other_and_catches_up(towns):
    towns.ulm.kill()
    assert towns.gateway.apply(thing("Acl", "late"), wait=False, check=False).returncode == 3
    wait_until(lambda: "late" in towns.there("bonn"))
    (late,) = towns.gateway.json("get", "acl", "late")
    assert late["status"]["state"] == "pending"
    assert late["status"]["message"].startswith("ulm: ")
    towns.start_ulm()
    wait_until(lambda: towns.there("ulm") == {"both", "late", "north", "south"})
    wait_until(lambda: towns.gateway.json("get", "acl", "late")[0]["status"]["state"] == "applied")
