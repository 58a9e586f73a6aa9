# SPDX-License-Identifier: Apache-2.0
"""Four gateways share an access port and a core port, each a process of its own. Either each has a function of the port
to itself, as with the virtual functions of a network card (here macvlan divides frames by Ethernet address), or each
has one of the port's queues, and the card steers its packets there (here a program in the kernel does). One agent
drives all of them, and the label of a session chooses its gateway."""

import json
import shutil
import subprocess
import tempfile

import pytest
from contract import Connection, api
from lab import Gateway, Home, Lab, Line, Upf, thing
from lab.gateway import DATAPLANE, SLUICE
from lab.laboratory import TREE, wait_until
from lab.namespace import run
from pop import GATEWAY4, GATEWAY6, HOST4, SERVER4, session

COUNT = 4


def mac(side, number):
    return f"02:00:00:00:{side:02x}:{number:02x}"


class Functions:
    """Each instance has an Ethernet device with an address of its own on top of the port."""

    @staticmethod
    def mac(side, number):
        return mac(side, number)

    @staticmethod
    def device(side, number):
        return f"net_af_packet{side},iface={'ac'[side]}{number}"

    @staticmethod
    def share(inside, side, port):
        for number in range(1, COUNT + 1):
            name = f"{'ac'[side]}{number}"
            address = ("address", mac(side, number), "mtu", "2000")
            inside.ip("link", "add", "link", port, "name", name, *address, "type", "macvlan", "mode", "private")
            inside.silent(name)
            inside.ip("link", "set", name, "up")

    @staticmethod
    def steer(outside, interface):
        pass


class Queues:
    """Each instance has a queue of the port, whose Ethernet address is that of all of them."""

    @staticmethod
    def mac(side, _number):
        return mac(side, 0)

    @staticmethod
    def device(side, number):
        port = ("acc0", "core0")[side]
        return f"net_af_xdp{side},iface={port},start_queue={number % COUNT},queue_count=1"

    @staticmethod
    def share(inside, side, port):
        inside.ip("link", "set", port, "address", mac(side, 0))

    @staticmethod
    def steer(outside, interface):
        with tempfile.TemporaryDirectory() as folder:
            program = f"{folder}/steer.o"
            run("clang", "-O2", "-target", "bpf", "-c", str(TREE / "tests/lab/steer.c"), "-o", program)
            run("tc", "-n", outside.name, "qdisc", "add", "dev", interface, "clsact")
            what = ("bpf", "direct-action", "obj", program, "sec", "classifier")
            run("tc", "-n", outside.name, "filter", "add", "dev", interface, "egress", *what)


class Instance:
    """One data plane, its part of both ports and its subscribers, one with and one without PPPoE."""

    def __init__(self, sharing, number):
        self.sharing, self.number, self.name = sharing, number, f"agf-{number}"
        self.address = f"192.0.2.{100 + number}"
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
        for side, name in enumerate((access, core)):
            yield thing("Port", name, here, device=self.sharing.device(side, self.number))
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
    def __init__(self, lab, sharing):
        self.lab = lab
        outside, self.inside, self.core = (lab.namespace(name) for name in ("line", "gw", "core"))
        self.inside.link("acc0", outside, "line", queues=COUNT)
        self.inside.link("core0", self.core, "uplink", queues=COUNT)
        for namespace, interface in ((outside, "line"), (self.inside, "acc0"), (self.inside, "core0")):
            namespace.silent(interface)
        self.core.ip("address", "add", f"{HOST4}/24", "dev", "uplink")
        self.core.ip("address", "add", SERVER4, "dev", "lo")
        sharing.share(self.inside, 0, "acc0")
        sharing.share(self.inside, 1, "core0")
        sharing.steer(outside, "line")
        sharing.steer(self.core, "uplink")
        self.instances = [Instance(sharing, number) for number in range(1, COUNT + 1)]
        self.gateway = Gateway(lab, self.inside, agent=False, buffers=16384)
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
        # Objects without a label are the same in all of them.
        self.gateway.apply(
            thing("Interface", "gateway", addresses=[f"{GATEWAY4}/32", f"{GATEWAY6}/128"]),
            *[made for each in self.instances for made in each.objects()],
        )
        self.upf = Upf(lab, self.core, HOST4)
        self.homes = {}
        for each in self.instances:
            home = Home(lab, outside, "line", sharing.mac(0, each.number))
            for line in each.lines:
                self.upf.add(line, each.address, qfi=9)
                self.homes[line.name] = home.subscriber(line, GATEWAY4)

    def start(self, instance):
        instance.socket.unlink(missing_ok=True)
        prefix = f"{self.gateway.prefix}-{instance.name}"
        shutil.rmtree(f"/var/run/dpdk/{prefix}", ignore_errors=True)
        arguments = ["--socket", instance.socket, "--workers", 1, "--buffers", 16384, "--no-huge", "--prefix", prefix]
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
            found = connection.read(api.SessionCountersQuery()).sessions
        return {each.session for each in found if each.up_packets and each.down_packets}


@pytest.fixture(scope="module", params=[Functions, Queues], ids=["functions", "queues"])
def site(request):
    # A lab of its own for each.
    with Lab() as own:
        yield Site(own, request.param)


def test_each_instance_carries_the_subscribers_that_are_placed_there(site):
    for each in site.instances:
        for line in each.lines:
            wait_until(lambda line=line: site.ping(line, 5) == 5)
    for each in site.instances:
        assert site.carried(each) == {line.name for line in each.lines}


def test_one_that_dies_affects_no_other_and_comes_back_by_itself(site):
    dying, *others = reversed(site.instances)
    pings = [site.pinging(line, 60) for each in others for line in each.lines]
    dying.process.kill()
    site.start(dying)
    # Hosts that have no processor for a while lose a packet by themselves; the dead one is away for most of these.
    assert min(site.received(each) for each in pings) > 50
    for line in dying.lines:
        wait_until(lambda line=line: site.ping(line, 1) == 1)


# Where queues are shared, the card needs rules, too.
@pytest.mark.parametrize("site", [Functions], indirect=True)
def test_a_subscriber_moves_to_another_instance_with_its_label(site):
    old, new = site.instances[:2]
    line = old.lines[0]
    moved = new.placed(line)
    site.upf.add(line, new.address, qfi=9)
    site.gateway.apply(moved)
    # The gateway has another Ethernet address there; the subscriber asks for it, as it does when the old one is silent.
    site.homes[line.name].ip("neighbor", "flush", "dev", "wan")
    wait_until(lambda: site.ping(line, 5) == 5)
    assert site.carried(new) == {each.name for each in (*new.lines, line)}
    assert line.name not in site.carried(old)


@pytest.mark.parametrize("site", [Queues], indirect=True)
def test_an_unavailable_or_removed_queue_takes_no_packets(site):
    one, *others = site.instances
    lines = [line for each in others for line in each.lines]
    with Connection(one.socket) as connection:
        for device in ("iface=acc0,start_queue=2", "iface=core0,start_queue=77"):
            (refused,) = connection.put(thing("Port", "more", device=f"net_af_xdp7,{device},queue_count=1"))
            assert refused.code != 0, device
    for line in (*one.lines, *lines):
        wait_until(lambda line=line: site.ping(line, 5) == 5)
    site.gateway.delete("session", *(line.name for line in one.lines))
    site.gateway.delete("port", f"access-{one.number}")
    assert min(site.ping(line, 5) for line in lines) == 5
    site.gateway.apply(*one.objects())
    for line in (*one.lines, *lines):
        wait_until(lambda line=line: site.ping(line, 5) == 5)
