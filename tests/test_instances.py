"""Four gateways share an access port and a core port: each is a process of its own with a function of either port to itself,
as with the virtual functions of a network card; here macvlan tells them apart by Ethernet address. One agent drives all of
them, and a session's label says which of them carries it."""

import json
import shutil
import subprocess

import pytest
from contract import Connection, api
from lab import Gateway, Home, Line, Upf, thing
from lab.gateway import DATAPLANE, SLUICE
from lab.laboratory import wait_until
from pop import GATEWAY4, GATEWAY6, HOST4, SERVER4, session

COUNT = 4


def mac(side, number):
    return f"02:00:00:00:{side:02x}:{number:02x}"


class Instance:
    """One data plane, its functions of both ports and its subscribers, one with and one without PPPoE."""

    def __init__(self, number):
        self.number, self.name = number, f"agf-{number}"
        self.address = f"192.0.2.{10 + number}"
        vlans, teid = (100 + number, 1), 100 * number
        self.lines = [
            Line(
                f"{name}-{number}",
                mac(0x50 + pppoe, number),
                f"100.64.{5 + pppoe}.{number}",
                vlans=vlans,
                pppoe=pppoe,
                teid_up=teid + 10 + pppoe,
                teid_down=teid + pppoe,
            )
            for name, pppoe in (("ipoe", 0), ("pppoe", 1))
        ]

    def objects(self):
        here = {"dataplane": self.name}
        access, core = f"access-{self.number}", f"core-{self.number}"
        yield thing("Port", access, here, device=f"net_af_packet0,iface=a{self.number}", mac=mac(0xA, self.number))
        yield thing("Port", core, here, device=f"net_af_packet1,iface=c{self.number}", mac=mac(0xC, self.number))
        yield thing("Interface", core, here, port=core, addresses=[f"{self.address}/24"])
        for line in self.lines:
            yield self.placed(line)

    def placed(self, line):
        """A subscriber's session in this data plane."""
        ends = {"localAddress": self.address, "localTeid": line.teid_down}
        ends |= {"remoteAddress": HOST4, "remoteTeid": line.teid_up, "pduSessionContainer": True, "qfi": 9}
        made = session(line, gtpu=ends)
        made["metadata"]["labels"] = {"dataplane": self.name}
        made["spec"]["access"]["port"] = f"access-{self.number}"
        return made


class Site:
    def __init__(self, lab):
        self.lab = lab
        outside, self.inside, self.core = (lab.namespace(name) for name in ("line", "gw", "core"))
        self.inside.link("acc0", outside, "line")
        self.inside.link("core0", self.core, "uplink")
        self.core.ip("address", "add", f"{HOST4}/24", "dev", "uplink")
        self.core.ip("address", "add", SERVER4, "dev", "lo")
        self.instances = [Instance(number) for number in range(1, COUNT + 1)]
        for each in self.instances:
            for function, port, side in (("a", "acc0", 0xA), ("c", "core0", 0xC)):
                name = f"{function}{each.number}"
                address = ("address", mac(side, each.number), "mtu", "2000")
                self.inside.ip("link", "add", "link", port, "name", name, *address, "type", "macvlan", "mode", "private")
                self.inside.silent(name)
                self.inside.ip("link", "set", name, "up")
        for namespace, interface in ((outside, "line"), (self.inside, "acc0"), (self.inside, "core0")):
            namespace.silent(interface)
        self.gateway = Gateway(lab, self.inside, agent=False)
        # The gateway's own data plane is the first of them.
        self.instances[0].process = self.gateway.dataplane
        self.instances[0].socket = self.gateway.dataplane_socket
        for each in self.instances[1:]:
            each.socket = self.gateway.directory / f"{each.name}.sock"
            self.start(each)
            lab.on_close(lambda each=each: each.process.stop())
        planes = [{"name": each.name, "endpoint": f"unix://{each.socket}"} for each in self.instances]
        said = {"listen": f"unix://{self.gateway.agent_socket}", "store": str(self.gateway.directory / "intent.db")}
        config = self.gateway.directory / "agent.yaml"
        config.write_text(json.dumps(said | {"dataplanes": planes}))
        self.gateway.agent = self.gateway.process("agent", SLUICE, "agent", "--config", config)
        self.gateway.wait_for_socket(self.gateway.agent_socket, self.gateway.agent)
        # What has no label is the same in all of them.
        self.gateway.apply(
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32", f"{GATEWAY6}/128"]),
            *[made for each in self.instances for made in each.objects()],
        )
        self.upf = Upf(lab, self.core, HOST4)
        self.homes = {}
        for each in self.instances:
            home = Home(lab, outside, "line", mac(0xA, each.number))
            for line in each.lines:
                self.upf.add(line, each.address, qfi=9)
                self.homes[line.name] = home.subscriber(line, GATEWAY4)

    def start(self, instance):
        instance.socket.unlink(missing_ok=True)
        prefix = f"{self.gateway.prefix}-{instance.name}"
        shutil.rmtree(f"/var/run/dpdk/{prefix}", ignore_errors=True)
        arguments = ["--socket", instance.socket, "--workers", 1, "--buffers", 8192, "--no-huge", "--prefix", prefix]
        instance.process = self.gateway.process(instance.name, DATAPLANE, *arguments)
        self.gateway.wait_for_socket(instance.socket, instance.process)

    def pinging(self, line, count):
        command = ["ping", "-c", str(count), "-i", "0.05", "-W", "10", SERVER4]
        inside = ["ip", "netns", "exec", self.homes[line.name].name]
        return subprocess.Popen([*inside, *command], stdout=subprocess.PIPE, text=True)

    def received(self, pinging):
        """How many answers came."""
        output, _ = pinging.communicate(timeout=60)
        return int(output.split(" received")[0].split()[-1])

    def ping(self, line, count):
        return self.received(self.pinging(line, count))

    def carried(self, instance):
        """The sessions whose packets this data plane let through, both ways."""
        with Connection(instance.socket) as connection:
            found = connection.ask(session_counters=api.SessionCountersQuery()).session_counters.sessions
        return {each.session for each in found if each.up_packets and each.down_packets}


@pytest.fixture(scope="module")
def site(lab):
    return Site(lab)


def test_each_instance_carries_the_subscribers_that_are_placed_there(site):
    for each in site.instances:
        for line in each.lines:
            assert site.ping(line, 5) == 5
    for each in site.instances:
        assert site.carried(each) == {line.name for line in each.lines}


def test_one_that_dies_takes_nobody_with_it_and_comes_back_by_itself(site):
    dying, *others = reversed(site.instances)
    pings = [site.pinging(line, 40) for each in others for line in each.lines]
    dying.process.kill()
    site.start(dying)
    assert [site.received(each) for each in pings] == [40] * len(pings)
    for line in dying.lines:
        wait_until(lambda line=line: site.ping(line, 1) == 1)


def test_a_subscriber_moves_to_another_instance_with_its_label(site):
    old, new = site.instances[:2]
    line = old.lines[0]
    moved = new.placed(line)
    site.upf.add(line, new.address, qfi=9)
    site.gateway.apply(moved)
    # The gateway has another Ethernet address there; the subscriber asks for it, as it does when the old one is silent.
    site.homes[line.name].ip("neighbor", "flush", "dev", "wan")
    assert site.ping(line, 5) == 5
    assert site.carried(new) == {each.name for each in (*new.lines, line)}
    assert line.name not in site.carried(old)
