# SPDX-License-Identifier: Apache-2.0
"""Subscribers of two data planes with one agent: when one data plane dies, subscribers of the other do not notice."""

import json

import pytest
from lab import Gateway, Wire, thing
from lab.dhcp import Client, options_of
from lab.gateway import DATAPLANE, SLUICE
from lab.laboratory import wait_until
from scapy.all import BOOTP, ICMP, IP

TOWNS = {"bonn": "02:00:00:00:aa:01", "ulm": "02:00:00:00:aa:02"}
GATEWAY4 = "100.64.0.1"


class Towns:
    """A namespace, a data plane and an access port for each town; the agent is beside bonn."""

    def __init__(self, lab):
        self.lab = lab
        self.clients = {town: lab.namespace(f"{town}-clients") for town in TOWNS}
        self.hosts = {town: lab.namespace(town) for town in TOWNS}
        for town in TOWNS:
            self.hosts[town].link("acc0", self.clients[town], "line")
            self.hosts[town].silent("acc0")
        self.gateway = Gateway(lab, self.hosts["bonn"], agent=False)
        self.sockets = {"bonn": self.gateway.dataplane_socket, "ulm": self.gateway.directory / "ulm.sock"}
        self.start_ulm()
        config = self.gateway.directory / "agent.yaml"
        planes = [{"name": town, "endpoint": f"unix://{path}"} for town, path in self.sockets.items()]
        said = {"listen": f"unix://{self.gateway.agent_socket}", "store": str(self.gateway.directory / "intent.db")}
        config.write_text(json.dumps(said | {"dataplanes": planes}))
        self.gateway.agent = self.gateway.process("agent", SLUICE, "agent", "--config", config)
        self.gateway.wait_for_socket(self.gateway.agent_socket, self.gateway.agent)
        self.gateway.apply(
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32"]),
            thing("AddressPool", "home", ranges=["100.64.0.0/24"], gateway=GATEWAY4),
            thing("SubscriberProfile", "home", authentication=["none"], ipv4Pools=["home"], rateUp="10M"),
            *(
                thing(
                    "Port",
                    f"access-{town}",
                    {"dataplane": town},
                    device="net_af_packet0,iface=acc0,framecnt=4096",
                    mac=mac,
                )
                for town, mac in TOWNS.items()
            ),
            *(
                thing("IpoeServer", town, port=f"access-{town}", profile="home", outerVlans=["100"], leaseTime="600s")
                for town in TOWNS
            ),
            wait=False,
            # The Punts of the servers come while this is applied, and each waits for its port in the other town.
            check=False,
        )
        for town in TOWNS:
            wait_until(
                lambda town=town: f"ipoe-{town}" in json.dumps(self.gateway.json("--at", town, "get", "punts")),
                30,
                town,
            )
        self.wires = {town: Wire(self.clients[town], "line") for town in TOWNS}
        for wire in self.wires.values():
            lab.on_close(wire.close)
        for number, town in enumerate(TOWNS, 1):
            wait_until(Client(self.wires[town], f"02:00:00:00:0e:{number:02x}", 100).offered4, 60, f"{town} is served")

    def start_ulm(self):
        self.sockets["ulm"].unlink(missing_ok=True)
        arguments = ["--socket", self.sockets["ulm"], "--workers", 1, "--buffers", 8192, "--no-huge"]
        command = (DATAPLANE, *arguments, "--prefix", f"{self.gateway.prefix}-ulm")
        self.ulm = self.lab.process(self.hosts["ulm"], *command, log="ulm.log")
        self.gateway.wait_for_socket(self.sockets["ulm"], self.ulm)

    def bound(self, town, number):
        client = Client(self.wires[town], f"02:00:00:00:0e:{number:02x}", 100)
        ack = client.ask4()
        assert options_of(ack)["message-type"] == 5
        return client, ack[BOOTP].yiaddr

    def pings(self, town, client, address):
        client.wire.send(client.frame(IP(src=address, dst=GATEWAY4) / ICMP(id=78), TOWNS[town]))

        def answer(raw):
            packet = client.mine(raw)
            return packet is not None and ICMP in packet and packet[ICMP].type == 0 and packet[ICMP].id == 78

        return client.wire.expect(answer)


@pytest.fixture(scope="module")
def towns(lab):
    return Towns(lab)


def test_one_data_plane_dies_and_the_others_subscribers_do_not_notice(towns):
    first, bonns = towns.bound("bonn", 1)
    second, ulms = towns.bound("ulm", 2)
    assert bonns != ulms
    assert towns.pings("bonn", first, bonns) and towns.pings("ulm", second, ulms)
    towns.ulm.kill()
    assert towns.pings("bonn", first, bonns)
    # Also subscribers that come up meanwhile.
    third, another = towns.bound("bonn", 3)
    assert towns.pings("bonn", third, another)
    towns.start_ulm()

    def served():
        found = towns.gateway.json("get", "sessions") or []
        return len(found) == 3 and all(each["status"]["state"] == "applied" for each in found)

    wait_until(served, 30, "all sessions are there again")
    assert towns.pings("ulm", second, ulms)
    (found,) = towns.gateway.json("--at", "ulm", "subscriber", "list")
    assert (found["ipv4Address"], found["dataplane"], found["circuit"]) == (ulms, "ulm", "access-ulm:100")
