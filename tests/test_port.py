# SPDX-License-Identifier: Apache-2.0
"""Ports: each kind of device, added and removed while running, and a port's Linux twin."""

import contextlib
import json
import os
import re
import signal
import socket
import struct

import pytest
from contract import Connection, api
from lab import Gateway, Line, thing, yaml
from lab.laboratory import wait_until
from lab.namespace import run
from pop import IPOE, Pop, same, session, udp_down, udp_up
from scapy.all import IP, UDP, Ether, Raw, fragment, wrpcap

MAC_A, MAC_B, MAC_C = "02:00:00:00:0a:01", "02:00:00:00:0b:01", "02:00:00:00:0c:01"
HERE, THERE = "203.0.113.1", "203.0.113.2"


@pytest.fixture(scope="module")
def pop(lab):
    made = Pop(lab, session(IPOE))
    made.learn(IPOE)
    return made


def port_with_address(name, device, mac, address, **spec):
    return [
        thing("Port", name, device=device, mac=mac, **spec),
        thing("Interface", name, port=name, addresses=[f"{address}/24"]),
    ]


def counters(connection, port):
    found = connection.read(api.PortCountersQuery()).ports
    return next(each for each in found if each.port == port)


def pings(namespace, target=HERE):
    done = namespace.run("ping", "-c", "3", "-i", "0.1", "-W", "10", target, check=False)
    assert " 0% packet loss" in done.stdout, done.stdout
    return True


@pytest.mark.parametrize("device", ["net_af_packet7,iface=dev0", "net_af_xdp7,iface=dev0"])
def test_a_kernel_host_talks_to_a_port_on_veth(pop, lab, device):
    host = lab.namespace(device.split("7")[0].replace("_", "-"))
    pop.inside.link("dev0", host, "eth0")
    pop.inside.silent("dev0")
    host.ip("address", "add", f"{THERE}/24", "dev", "eth0")
    with pop.having(*port_with_address("dev", device, pop.inside.mac("dev0"), HERE)):
        assert pings(host)
    pop.inside.ip("link", "delete", "dev0")


def test_an_af_xdp_port_can_be_made_again(lab):
    """After one that failed, and after one that was there; and it never takes buffers that the others need."""
    inside, host = lab.namespace("xdp"), lab.namespace("xdp-host")
    inside.link("dev0", host, "eth0")
    inside.silent("dev0")
    host.ip("address", "add", f"{THERE}/24", "dev", "eth0")
    gateway = Gateway(lab, inside, name="xdp", buffers=32768)
    wanted = port_with_address("dev", "net_af_xdp7,iface=dev0", inside.mac("dev0"), HERE)
    broken = thing("Port", "dev", device="net_af_xdp7,iface=dev0", twin={"name": "dev0"})
    wait_until(lambda: "the TAP dev0 cannot be made" in gateway.apply(broken, check=False).stderr)
    for _ in range(2):
        gateway.delete("port", "dev")
        gateway.apply(*wanted)
        assert pings(host)
        gateway.delete("interface", "dev")
    few = Gateway(lab, lab.namespace("xdp-few"), name="xdp-few", buffers=2048, agent=False)
    few.namespace.link("dev0", host, "eth1")
    with Connection(few.dataplane_socket) as connection:
        answer = connection.put(thing("Port", "dev", device="net_af_xdp7,iface=dev0"))[0]
    assert "--buffers" in answer.message
    few.close()
    gateway.close()


def test_a_kernel_host_talks_to_a_tap_port(pop):
    """The kernel of the gateway's namespace is the host behind the TAP."""
    with pop.having(*port_with_address("tap", "net_tap7,iface=tap7", MAC_A, HERE)):
        pop.inside.ip("address", "add", f"{THERE}/24", "dev", "tap7")
        pop.inside.ip("link", "set", "tap7", "address", MAC_B, "up")
        assert pings(pop.inside)


def ping_between(first, second):
    """The first gateway's neighbour table learns the second: a packet was answered over the devices between them."""

    def known():
        return any(each["address"] == THERE and each["state"] == "reachable" for each in first.json("neighbors"))

    return wait_until(known, 30, "the far end answers")


def provoke(pop):
    """A subscriber's packet towards the far end makes the gateway resolve it, and brings an echo reply."""
    from scapy.all import ICMP

    pop.send_up(IPOE, IP(src=IPOE.ip4, dst=THERE) / ICMP(id=3))
    return pop.at_line(IPOE, lambda packet: ICMP in packet and packet[ICMP].type == 0)


def two_gateways(pop, lab, name, ours, theirs, first="theirs"):
    inside = lab.namespace(name)
    other = Gateway(lab, inside, name=name, buffers=4096)
    far = [
        *port_with_address("far", theirs, MAC_B, THERE),
        thing("Route", "back", prefix="0.0.0.0/0", nextHops=[{"address": HERE}]),
    ]
    other.apply(*far)
    with pop.having(*port_with_address("near", ours, MAC_A, HERE)):
        assert provoke(pop)[IP].src == THERE
        assert ping_between(pop.gateway, other)
    other.close()


def test_two_data_planes_are_connected_by_memif(pop, lab):
    path = lab.directory / "memif.sock"
    options = f"socket={path},socket-abstract=no,id=1"
    two_gateways(pop, lab, "memif", f"net_memif7,role=client,{options}", f"net_memif0,role=server,{options}")


def test_two_data_planes_are_connected_by_vhost_and_virtio_user(pop, lab):
    path = lab.directory / "vhost.sock"
    two_gateways(pop, lab, "vhost", f"net_virtio_user7,path={path}", f"net_vhost0,iface={path}")


def test_forwarding_goes_on_after_a_memif_peer_left(pop, lab):
    path = lab.directory / "memif-leaving.sock"
    other = Gateway(lab, lab.namespace("leaving"), name="leaving", buffers=4096)
    other.apply(*port_with_address("far", f"net_memif0,role=server,socket={path},socket-abstract=no", MAC_B, THERE))
    near = port_with_address("near", f"net_memif7,role=client,socket={path},socket-abstract=no", MAC_A, HERE)
    with pop.having(*near):
        pid = pop.gateway.dataplane.pid
        other.dataplane.kill()
        assert pop.passes(IPOE)
        assert pop.gateway.dataplane.pid == pid
        assert pop.gateway.dataplane.alive()
    other.close()


@pytest.mark.parametrize(("role", "theirs"), [("server", "client"), ("client", "server")])
def test_memif_peers_that_come_and_go_under_traffic_do_no_harm(lab, role, theirs):
    """The gateway sends as fast as it can while its peer joins and leaves; each time the link comes up again."""
    memif = f"socket={lab.directory / role}.sock,socket-abstract=no"
    near = Gateway(lab, lab.namespace(f"near-{role}"), name=f"near-{role}", agent=False)
    source = near.directory / "endless.pcap"
    packet = IP(src="192.0.2.9", dst=THERE) / UDP(dport=7) / Raw(bytes(64))
    wrpcap(str(source), [Ether(src=MAC_B, dst="02:00:00:00:0a:02") / packet] * 32)
    far = Gateway(lab, lab.namespace(f"far-{role}"), name=f"far-{role}", buffers=4096, agent=False)
    peer = thing("Port", "far", device=f"net_memif0,role={theirs},{memif}")

    with Connection(near.dataplane_socket) as ours, Connection(far.dataplane_socket) as theirs:

        def link_is_up():
            return counters(ours, "near").link_up

        answers = ours.put(
            *port_with_address("near", f"net_memif7,role={role},{memif}", MAC_A, HERE),
            thing("Neighbor", "far", interface="near", address=THERE, mac=MAC_B),
            *port_with_address("source", f"net_pcap0,rx_pcap={source},infinite_rx=1", "02:00:00:00:0a:02", "192.0.2.1"),
        )
        assert [each.code for each in answers] == [0] * 5
        for _ in range(40 if role == "server" else 3):
            assert theirs.put(peer)[0].code == 0
            wait_until(link_is_up, 20, "the link comes up")
            theirs.ask(delete=api.Delete(names=[api.ObjectName(kind="Port", name="far")]))
            wait_until(lambda: not link_is_up(), 20, "the link goes down")
        ours.ask(delete=api.Delete(names=[api.ObjectName(kind="Interface", name="source")]))
        drops = ours.read(api.DropCountersQuery()).drops
    assert "tx-link-down" in [each.reason for each in drops]
    assert near.dataplane.alive()
    near.close()
    far.close()


def test_frames_are_read_from_and_written_to_pcap_files(pop):
    source, sink = pop.gateway.directory / "in.pcap", pop.gateway.directory / "out.pcap"
    frame = Ether(src=MAC_B, dst=MAC_A) / IP(src="203.0.113.9", dst="192.0.2.2") / UDP(dport=7) / Raw(b"from a file")
    wrpcap(str(source), [frame] * 5)
    port = port_with_address("file", f"net_pcap7,rx_pcap={source},tx_pcap={sink}", MAC_A, HERE)
    with pop.having(*port):
        # The interface may come a moment after the port has begun to read.
        found = [raw for raw in pop.core.burst() if b"from a file" in raw]
        drops = pop.gateway.drops()
    assert found or drops.get("unknown-circuit")


def test_a_null_port_can_be_made(pop):
    with pop.having(*port_with_address("null", "net_null7", MAC_A, HERE)):
        assert "null" in pop.gateway.sluice("get", "ports").stdout


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("net_af_packet9,iface=nosuch0", "there is no interface nosuch0 in the data plane's network namespace"),
        ("0000:1f:1f.7", "DPDK cannot use 0000:1f:1f.7"),
    ],
)
def test_a_device_that_cannot_be_had_is_explained(pop, device, why):
    done = pop.gateway.apply(thing("Port", "broken", device=device), check=False)
    assert "broken" in done.stdout + done.stderr
    assert why in done.stdout + done.stderr
    assert done.returncode != 0
    pop.gateway.delete("port", "broken")
    assert pop.passes(IPOE)


def refused_devices(directory):
    """Device strings that DPDK accepts, and their harm."""
    ran, captured, taken = (directory / name for name in ("ran", "captured", "taken.pcap"))
    taken.mkdir(exist_ok=True)
    return [
        f"net_failsafe30,exec(touch${{IFS}}{ran};echo${{IFS}}net_null31)",  # runs a shell
        f"eth_failsafe30,exec(touch${{IFS}}{ran})",
        "net_failsafe30,dev(net_null31)",
        "net_failsafe30,fd(0)",
        "net_bonding30,mode=1,slave=net_null31",
        "net_ring30,nodeaction=x",
        "net_ring30,internal=0x1234",  # reads memory there
        "crypto_null30",
        "net_af_xdp30,iface=lo,xdp_prog=/tmp/x.o",  # loads code into the kernel
        "net_tap30,remote=lo",
        f"net_pcap30,tx_pcap={captured}",  # writes it
        f"net_pcap30,tx_pcap={directory}/../captured.pcap",
        f"net_pcap30,tx_pcap={taken}",
        "net_pcap30,rx_pcap=/etc/passwd",
        "net_pcap30,iface=any",
        f"net_vhost30,iface={directory / 'kept'}",  # removes it when it cannot be made
        "net_vhost30,iface=/bus=vdev,name=net_failsafe30",  # DPDK's other way to write a device
        "net_null30,x=/bus=vdev",
        "bus=vdev,name=net_failsafe30",
        "vdev:net_null30",
        "net_null30,size",
        "net_null30,",
        "net_null30,size=99999999999",
        "net_null30" + ",size=64" * 500,
        "0000:03:00.0,x=(touch)",
    ]


def test_a_device_that_would_run_read_or_write_anything_else_is_refused(pop):
    directory = pop.gateway.directory
    (directory / "kept").write_text("kept")
    with Connection(pop.gateway.dataplane_socket) as connection:
        for device in refused_devices(directory):
            answer = connection.put(thing("Port", "broken", device=device))[0]
            assert answer.code != 0, device
            assert "device: " in answer.message
    assert (directory / "kept").read_text() == "kept"
    assert not (directory / "ran").exists()
    assert not (directory / "captured").exists()
    assert pop.passes(IPOE)


def test_plan_and_apply_refuse_a_device_that_would_run_a_program(pop):
    device = refused_devices(pop.gateway.directory)[0]
    path = pop.gateway.directory / "broken.yaml"
    path.write_text(yaml([thing("Port", "broken", device=device)]))
    for verb in ("plan", "apply"):
        done = pop.gateway.sluice(verb, "-f", path, check=False)
        assert done.returncode != 0
        assert "device" in done.stderr, done.stderr
        assert "net_af_packet" in done.stderr, done.stderr
    assert "broken" not in pop.gateway.sluice("get", "ports").stdout


def test_a_device_without_flow_rules_is_reported_with_the_mend_and_works(pop):
    pop.inside.link("shared0", pop.outside, "shared1")
    shared = {"device": "net_af_packet25,iface=shared0"}
    steered = thing("Port", "shared", **shared, steering=[{"outerVlans": "100-199"}, {"etherType": 2054}])
    done = pop.gateway.apply(steered, check=False)
    assert "net_af_packet has no flow rules" in done.stdout + done.stderr
    assert "macvlan or queues" in done.stdout + done.stderr
    pop.gateway.delete("port", "shared")
    with pop.having(thing("Port", "shared", **shared)), pop.losing_nothing([IPOE], 300):
        done = pop.gateway.apply(steered, check=False)
        assert "net_af_packet has no flow rules" in done.stdout + done.stderr
    wrong = thing("Port", "shared", **shared, steering=[{"outerVlans": "100-4095"}])
    done = pop.gateway.apply(wrong, check=False)
    assert "steering[0].outerVlans" in done.stdout + done.stderr
    pop.inside.ip("link", "delete", "shared0")


def test_ports_come_and_go_under_traffic(pop, lab):
    with pop.losing_nothing([IPOE], 500):
        for number in range(5):
            pop.inside.link(f"x{number}", pop.outside, f"y{number}")
            with pop.having(*port_with_address("extra", f"net_af_packet{10 + number},iface=x{number}", MAC_A, HERE)):
                pass
            pop.inside.ip("link", "delete", f"x{number}")


def test_a_linux_interface_has_one_port(pop):
    """And gets its MTU back when the port goes."""
    pop.inside.link("only0", pop.outside, "only1", mtu=1400)
    mtu = pop.inside.ip("link", "show", "dev", "only0")
    assert "mtu 1400" in mtu.stdout
    with pop.having(thing("Port", "first", device="net_af_packet20,iface=only0", mtu=1600)):
        assert "mtu 1608" in pop.inside.ip("link", "show", "dev", "only0").stdout
        done = pop.gateway.apply(thing("Port", "second", device="net_af_packet21,iface=only0"), check=False)
        assert "port first has the Linux interface only0 already" in done.stdout + done.stderr
        pop.gateway.delete("port", "second")
        assert "mtu 1608" in pop.inside.ip("link", "show", "dev", "only0").stdout
    assert "mtu 1400" in pop.inside.ip("link", "show", "dev", "only0").stdout
    pop.inside.ip("link", "delete", "only0")


def state(namespace, interface):
    """Settings of a Linux interface that a port may change."""
    text = namespace.ip("-d", "link", "show", "dev", interface).stdout
    return [re.search(rf"{name} (\S+)", text)[1] for name in ("mtu", "link/ether", "promiscuity")] + ["xdp" in text]


@pytest.mark.parametrize("device", ["net_af_packet0,iface=own0", "net_af_xdp0,iface=own0"])
def test_an_interface_is_as_it_was_when_its_port_goes_or_when_the_data_plane_comes_back_after_a_kill(lab, device):
    name = device.split("0")[0].replace("_", "-") + "-own"
    inside = lab.namespace(name)
    inside.link("own0", lab.namespace(f"{name}-host"), "eth0", mtu=1400)
    before = state(inside, "own0")
    gateway = Gateway(lab, inside, name=name, agent=False, buffers=16384)
    port = thing("Port", "own", device=device, mac=MAC_A, promiscuous=True)
    for end in ("delete", "kill", "stop"):
        with Connection(gateway.dataplane_socket) as connection:
            # The kernel lets go of an AF_XDP socket a moment after it was closed.
            wait_until(lambda using=connection: using.put(port)[0].code == 0)
            given = state(inside, "own0")
            assert given[0] == "1508"
            assert given[2] == "1"
            if end == "delete":
                connection.ask(delete=api.Delete(names=[api.ObjectName(kind="Port", name="own")]))
        if end == "kill":
            gateway.dataplane.kill()
            assert state(inside, "own0") == given
            gateway.start_dataplane()
        elif end == "stop":
            gateway.dataplane.stop()
        wait_until(lambda: state(inside, "own0") == before, 20, "the interface is as it was")
    assert not list(gateway.directory.glob("*.interfaces"))
    gateway.close()


def test_foreign_changes_of_an_interface_stay_when_its_port_goes(pop):
    pop.inside.link("own0", pop.outside, "own1", mtu=1400)
    with pop.having(thing("Port", "own", device="net_af_packet20,iface=own0", mac=MAC_A)):
        pop.inside.ip("link", "set", "own0", "mtu", "1450", "address", MAC_C)
    assert state(pop.inside, "own0")[:2] == ["1450", MAC_C]
    pop.inside.ip("link", "delete", "own0")


def test_a_port_s_link_is_up_as_soon_as_its_carrier_is(pop):
    """Linux reports a link up to a second late; packets are sent at once."""
    for _ in range(5):
        pop.inside.link("quick0", pop.outside, "quick1")
        with pop.gateway.without_agent(), Connection(pop.gateway.dataplane_socket) as connection:
            port = thing("Port", "quick", device="net_af_packet20,iface=quick0")
            assert connection.put(port)[0].code == 0
            assert counters(connection, "quick").link_up
            connection.ask(delete=api.Delete(names=[api.ObjectName(kind="Port", name="quick")]))
        pop.inside.ip("link", "delete", "quick0")


def test_af_packet_shows_tpid_88a8_as_8100_and_answers_so(pop):
    """The subscriber is found by its VLANs all the same; a link that needs the TPID back uses another device."""
    line = Line(IPOE.name, IPOE.mac, IPOE.ip4, IPOE.ip6, IPOE.vlans, (0x88A8, 0x8100))
    pop.send_up(line, udp_up(line))
    assert pop.at_core(lambda packet: UDP in packet)
    pop.send_down(udp_down(line))
    assert pop.at_line(IPOE, lambda packet: UDP in packet)


def test_a_port_s_mtu_and_mac_change_under_traffic_of_others(pop, lab):
    host = lab.namespace("changing")
    pop.inside.link("chg0", host, "eth0")
    pop.inside.silent("chg0")
    host.ip("address", "add", f"{THERE}/24", "dev", "eth0")
    port = port_with_address("changing", "net_af_packet22,iface=chg0", MAC_A, HERE)
    with pop.losing_nothing([IPOE], 500), pop.having(*port):
        for mtu, mac in ((1400, MAC_A), (1400, MAC_C), (1800, MAC_B), (1280, MAC_A)):
            pop.apply(thing("Port", "changing", device="net_af_packet22,iface=chg0", mtu=mtu, mac=mac))
            host.ip("neigh", "flush", "dev", "eth0")
            assert pings(host)
            assert host.ip("neigh", "show", HERE).stdout.split()[4] == mac


def test_a_peer_that_does_not_read_makes_a_drop_with_a_name(pop, lab):
    """And one that is not there: the link is down. Once it reads again, packets arrive."""
    path = lab.directory / "memif-slow.sock"
    near = port_with_address("near", f"net_memif9,role=server,socket={path},socket-abstract=no", MAC_A, HERE)
    with pop.having(*near, thing("Neighbor", "far", interface="near", address=THERE, mac=MAC_B)):
        with pop.dropping("tx-link-down"):
            pop.send_up(IPOE, IP(src=IPOE.ip4, dst=THERE) / UDP(dport=7))
        other = Gateway(lab, lab.namespace("slow"), name="slow", buffers=4096, agent=False)
        with Connection(other.dataplane_socket) as connection:
            far = thing("Port", "far", device=f"net_memif0,role=client,socket={path},socket-abstract=no")
            assert connection.put(far)[0].code == 0
            wait_until(lambda: counters(connection, "far").link_up)
            wait_until(lambda: counters(Connection(pop.gateway.dataplane_socket), "near").link_up)
            os.kill(other.dataplane.pid, signal.SIGSTOP)
            with pop.dropping("tx-queue-full"):
                for _ in range(3000):
                    pop.send_up(IPOE, IP(src=IPOE.ip4, dst=THERE) / UDP(dport=7))
            os.kill(other.dataplane.pid, signal.SIGCONT)
            before = wait_until(lambda: counters(connection, "far").rx_packets)
            pop.send_up(IPOE, IP(src=IPOE.ip4, dst=THERE) / UDP(dport=7))
            wait_until(lambda: counters(connection, "far").rx_packets > before)
        assert pop.passes(IPOE)
        other.close()


class TestTwin:
    """A daemon in the twin's namespace uses the port's addresses as if it were there."""

    @pytest.fixture(scope="class")
    def twin(self, pop, lab):
        host, routing = lab.namespace("twin-host"), lab.namespace("routing")
        pop.inside.link("tw0", host, "eth0")
        pop.inside.silent("tw0")
        host.ip("address", "add", f"{THERE}/24", "dev", "eth0")
        port = {"mac": MAC_A, "twin": {"name": "wan0", "namespace": routing.name}}
        pop.apply(*port_with_address("twinned", "net_af_packet8,iface=tw0", address=HERE, **port))
        wait_until(lambda: HERE in routing.ip("-br", "address", "show", "dev", "wan0").stdout)
        return host, routing

    def test_the_twin_has_the_ports_mac(self, twin):
        assert twin[1].mac("wan0") == MAC_A

    def test_a_daemon_in_the_twins_namespace_is_reached_at_the_ports_address(self, twin, lab):
        host, routing = twin
        lab.process(routing, "python3", "-m", "http.server", "8080", "--bind", HERE, log="twin-http.log")
        wait_until(lambda: "8080" in routing.run("ss", "-Hltn").stdout)
        done = host.run("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", f"http://{HERE}:8080/", check=False)
        assert done.stdout == "200", done.stderr

    def test_a_program_in_the_twins_namespace_reaches_a_host_on_the_link(self, twin, lab):
        host, routing = twin
        lab.process(host, "python3", "-m", "http.server", "8081", "--bind", THERE, log="host-http.log")
        wait_until(lambda: "8081" in host.run("ss", "-Hltn").stdout)
        done = routing.run("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", f"http://{THERE}:8081/", check=False)
        assert done.stdout == "200", done.stderr

    def test_pings_of_the_port_are_still_answered(self, twin):
        assert pings(twin[0])

    def test_a_change_of_the_interface_leaves_the_twins_routes(self, pop, twin):
        routing = twin[1]
        routing.ip("route", "add", "198.18.0.0/15", "via", THERE)
        pop.apply(thing("Interface", "twinned", port="twinned", addresses=[f"{HERE}/24"], proxyArp=True))
        assert f"198.18.0.0/15 via {THERE}" in routing.ip("route").stdout

    def test_the_twin_follows_the_ports_mtu(self, pop, twin):
        port = {"mac": MAC_A, "mtu": 1400, "twin": {"name": "wan0", "namespace": twin[1].name}}
        pop.apply(port_with_address("twinned", "net_af_packet8,iface=tw0", address=HERE, **port)[0])
        assert "mtu 1400" in twin[1].ip("link", "show", "dev", "wan0").stdout

    def test_frames_that_cannot_pass_to_or_from_the_twin_are_named_drops(self, pop, twin):
        host, routing = twin
        routing.ip("link", "set", "wan0", "mtu", "5000")
        with pop.dropping("twin-frame-too-long"):
            routing.run("ping", "-c", "1", "-W", "1", "-s", "4000", THERE, check=False)
        routing.ip("link", "set", "wan0", "mtu", "1400")
        routing.ip("link", "set", "wan0", "down")
        with pop.dropping("twin-gone"):
            host.run("curl", "-sS", "-m", "1", f"http://{HERE}:8088/", check=False)
        routing.ip("link", "set", "wan0", "up")
        assert pings(host)

    def test_a_twin_that_moved_to_another_namespace_is_made_again(self, pop, twin, lab):
        routing, elsewhere = twin[1], lab.namespace("elsewhere")
        routing.ip("link", "set", "wan0", "netns", elsewhere.name)
        # At once: a change of the port does not fail meanwhile.
        port = {"mac": MAC_C, "mtu": 1500, "twin": {"name": "wan0", "namespace": routing.name}}
        pop.apply(port_with_address("twinned", "net_af_packet8,iface=tw0", address=HERE, **port)[0])
        wait_until(lambda: HERE in routing.run("ip", "-br", "address", "show", "dev", "wan0", check=False).stdout)
        assert routing.mac("wan0") == MAC_C
        assert "wan0" not in elsewhere.ip("-br", "link").stdout
        port |= {"mac": MAC_A, "mtu": 1400}
        pop.apply(port_with_address("twinned", "net_af_packet8,iface=tw0", address=HERE, **port)[0])
        assert routing.mac("wan0") == MAC_A

    def test_an_address_that_the_twins_namespace_refuses_is_reported(self, pop, twin, lab):
        strict = lab.namespace("strict")
        for each in ("all", "default"):
            strict.run("sysctl", "-qw", f"net.ipv6.conf.{each}.disable_ipv6=1")
        strict_port = thing("Port", "strict", device="net_null40", twin={"name": "wan1", "namespace": strict.name})
        interface = thing("Interface", "strict", port="strict", addresses=["2001:db8:44::1/64"])
        with pop.having(strict_port, interface):
            log = pop.gateway.logs()["gateway-dataplane.log"]
            assert "the TAP wan1 does not take the address 2001:db8:44::1/64: Permission denied" in log

    def test_a_deleted_twin_is_reported_and_made_again_as_it_was(self, pop, twin):
        host, routing = twin
        with Connection(pop.gateway.dataplane_socket) as connection:
            connection.send(watch=api.Watch())
            routing.ip("link", "delete", "wan0")
            seen = []
            while len(seen) < 2:
                event = connection.receive().event
                if event.HasField("port_twin"):
                    seen.append((event.port_twin.port, event.port_twin.there))
        assert seen == [("twinned", False), ("twinned", True)]
        wait_until(lambda: HERE in routing.ip("-br", "address", "show", "dev", "wan0").stdout)
        assert routing.mac("wan0") == MAC_A
        assert "mtu 1400" in routing.ip("link", "show", "dev", "wan0").stdout
        answered = routing.run("ping", "-c", "3", "-i", "0.2", "-W", "10", THERE, check=False).stdout
        assert ", 0 received" not in answered, answered

    def test_a_twin_whose_namespace_is_made_anew_appears_there(self, pop, twin):
        routing = twin[1]
        run("ip", "netns", "delete", routing.name)
        run("ip", "netns", "add", routing.name)
        wait_until(lambda: "wan0" in routing.ip("-br", "link").stdout and HERE in routing.ip("-br", "address").stdout)
        assert routing.mac("wan0") == MAC_A

    def test_the_twin_goes_with_its_port(self, pop, twin):
        pop.gateway.sluice("delete", "interface/twinned", "port/twinned")
        assert "wan0" not in twin[1].ip("-br", "link").stdout


def test_a_frame_for_another_mac_is_named(pop):
    with pop.dropping("not-our-mac"):
        pop.core.send(bytes(Ether(src=MAC_B, dst="02:00:00:00:77:77") / IP() / UDP()))


def test_an_af_packet_port_is_made_though_another_process_has_its_fanout_group(pop, lab):
    """DPDK numbers the group by process and interface, and two of each may give the same number."""
    pop.inside.link("fan0", pop.outside, "fan")
    index = json.loads(pop.inside.ip("-j", "link", "show", "fan0").stdout)[0]["ifindex"]
    other = pop.inside.inside(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    pop.inside.inside(other.bind, ("acc0", 3))
    sol_packet, packet_fanout, fanout_hash, defragment = 263, 18, 0, 0x8000
    group = (pop.gateway.dataplane.pid ^ index) & 0xFFFF
    other.setsockopt(sol_packet, packet_fanout, struct.pack("=HH", group, fanout_hash | defragment))
    with contextlib.closing(other), pop.having(thing("Port", "fan", device="net_af_packet9,iface=fan0,qpairs=2")):
        pass


UNTAGGED = Line("untagged", "02:00:00:00:01:77", "100.64.0.77")


@pytest.mark.parametrize("size", [1972, 60000])
@pytest.mark.parametrize("flags", ["", "DF"])
def test_untagged_ipv4_fragments_pass_af_packet_ports_one_by_one(pop, size, flags):
    """Both ways and without tags, where the kernel could reassemble them: each leaves as it came."""
    payload = bytes(range(250)) * (size // 250) + bytes(size % 250)
    with pop.having(session(UNTAGGED)):
        pop.learn(UNTAGGED)
        down = fragment(udp_down(UNTAGGED, payload=payload, id=77), 1480)
        up = fragment(udp_up(UNTAGGED, payload=payload, id=78), 1480)
        for piece in down + up:
            piece.flags = f"{piece.flags}{'+' if piece.flags and flags else ''}{flags}"
        assert len(down) == len(up) == size // 1480 + 1
        for piece in down:
            pop.send_down(piece)
        for piece in down:
            same(piece, pop.at_line(UNTAGGED, lambda packet: IP in packet and packet[IP].id == 77))
        for piece in up:
            pop.send_up(UNTAGGED, piece)
        for piece in up:
            same(piece, pop.at_core(lambda packet: IP in packet and packet[IP].id == 78))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_fragment_passes_af_packet_ports_without_the_others_of_its_datagram(pop, number):
    with pop.having(session(UNTAGGED)):
        pop.learn(UNTAGGED)
        down = fragment(udp_down(UNTAGGED, payload=bytes(2500), id=79), 1000)[number]
        pop.send_down(down)
        same(down, pop.at_line(UNTAGGED, lambda packet: IP in packet and packet[IP].id == 79))
        up = fragment(udp_up(UNTAGGED, payload=bytes(2500), id=80), 1000)[number]
        pop.send_up(UNTAGGED, up)
        same(up, pop.at_core(lambda packet: IP in packet and packet[IP].id == 80))


def follow_link(watcher, name, wanted):
    """The next event of the port's link for which `wanted` is true."""
    while True:
        event = watcher.receive().event
        if event.HasField("port_link") and event.port_link.port == name and wanted(event.port_link):
            return event.port_link


@pytest.mark.parametrize("driver", ["net_af_packet", "net_af_xdp"])
def test_a_port_attaches_again_to_an_interface_that_is_deleted_and_made_again(lab, driver):
    """Meanwhile its link state, an event and the log show it."""
    name = driver.replace("_", "-") + "-again"
    inside, host = lab.namespace(name), lab.namespace(f"{name}-host")
    gateway = Gateway(lab, inside, name=name, buffers=32768)

    def make():
        inside.link("dev0", host, "eth0", mtu=1400)
        inside.silent("dev0")
        host.ip("address", "add", f"{THERE}/24", "dev", "eth0")

    make()
    gateway.apply(*port_with_address("dev", f"{driver}7,iface=dev0", MAC_A, HERE, mtu=1600))
    assert pings(host)
    with Connection(gateway.dataplane_socket) as connection, Connection(gateway.dataplane_socket) as watcher:
        watcher.send(watch=api.Watch())
        watcher.ask(cancel=api.Cancel())
        for _ in range(2):
            received = counters(connection, "dev").rx_packets
            inside.ip("link", "delete", "dev0")
            gone = follow_link(watcher, "dev", lambda link: "attaches" in link.why)
            assert not gone.up
            assert "the Linux interface dev0 is gone" in gone.why
            now = counters(connection, "dev")
            assert (now.link_up, now.link_why) == (False, gone.why)
            assert now.rx_packets >= received
            # Changes while there is no interface apply to the next one.
            gateway.apply(thing("Port", "dev", device=f"{driver}7,iface=dev0", mac=MAC_A, mtu=1700))
            make()
            assert follow_link(watcher, "dev", lambda link: link.up).why == ""
            assert pings(host)
            assert "mtu 1708" in inside.ip("link", "show", "dev", "dev0").stdout
            assert counters(connection, "dev").rx_packets > received
    log = gateway.logs()[f"{name}-dataplane.log"]
    assert log.count("port dev: link down: the Linux interface dev0 is gone; the port attaches") == 2
    assert log.count("port dev: link up") >= 3
    gateway.delete("interface", "dev")
    gateway.delete("port", "dev")
    assert "mtu 1400" in inside.ip("link", "show", "dev", "dev0").stdout
    gateway.close()


def test_a_tap_port_makes_its_interface_again(pop):
    with pop.having(*port_with_address("tap", "net_tap8,iface=tap8", MAC_A, HERE)):
        with Connection(pop.gateway.dataplane_socket) as watcher:
            watcher.send(watch=api.Watch())
            watcher.ask(cancel=api.Cancel())
            pop.inside.ip("link", "delete", "tap8")
            follow_link(watcher, "tap", lambda link: "the Linux interface tap8 is gone" in link.why)
            assert follow_link(watcher, "tap", lambda link: link.up)
        pop.inside.ip("address", "add", f"{THERE}/24", "dev", "tap8")
        pop.inside.ip("link", "set", "tap8", "address", MAC_B, "up")
        assert pings(pop.inside)


def test_ports_keep_their_places_when_one_of_them_attaches_again(pop, lab):
    """Its device may get another number than before; packets of others, and its own, still go where they should."""
    hosts = [lab.namespace(f"place{number}") for number in range(3)]
    with Connection(pop.gateway.dataplane_socket) as watcher:
        ports = []
        for number, host in enumerate(hosts):
            pop.inside.link(f"pl{number}", host, "eth0")
            pop.inside.silent(f"pl{number}")
            host.ip("address", "add", f"203.0.{113 + number}.2/24", "dev", "eth0")
            device = f"net_af_packet{30 + number},iface=pl{number}"
            ports += port_with_address(f"pl{number}", device, f"02:00:00:00:0d:0{number}", f"203.0.{113 + number}.1")
        with pop.having(*ports):
            watcher.send(watch=api.Watch())
            watcher.ask(cancel=api.Cancel())
            # The first goes for good, so that the last one's new device gets the first one's number.
            pop.gateway.delete("interface", "pl0")
            pop.gateway.delete("port", "pl0")
            pop.inside.ip("link", "delete", "pl2")
            follow_link(watcher, "pl2", lambda link: not link.up)
            with pop.dropping("tx-link-down"):
                pop.send_up(IPOE, IP(src=IPOE.ip4, dst="203.0.115.2") / UDP(dport=7))
            pop.inside.link("pl2", hosts[2], "eth0")
            pop.inside.silent("pl2")
            hosts[2].ip("address", "add", "203.0.115.2/24", "dev", "eth0")
            follow_link(watcher, "pl2", lambda link: link.up)
            assert pings(hosts[1], "203.0.114.1")
            assert pings(hosts[2], "203.0.115.1")
            assert pop.passes(IPOE)
            # A new port gets a place and a number that are free.
            pop.apply(*ports[:2])
            assert pings(hosts[0], "203.0.113.1")
            assert pings(hosts[2], "203.0.115.1")
    for number in range(3):
        pop.inside.ip("link", "delete", f"pl{number}")


def test_a_port_whose_link_goes_down_is_applied_and_not_ready_and_get_ports_shows_it(pop, lab):
    watch = lab.process(pop.inside, *pop.gateway.command("get", "ports", "-w"), log="watched-ports.log")
    pop.inside.link("lnk0", pop.outside, "lnk1")

    def row():
        lines = pop.gateway.sluice("get", "ports").stdout.splitlines()
        cells = next(each for each in lines if each.startswith("lnk ")).split(maxsplit=5)
        return dict(zip(lines[0].split(), cells, strict=False))

    def shown(link):
        """The table does, and the watch."""
        wait_until(lambda: row()["LINK"] == link)
        wait_until(
            lambda: re.findall(r"^lnk .* (up|down) +applied", watch.log.read_text(), re.MULTILINE)[-1:] == [link]
        )
        return row()

    def ready():
        (status,) = [each["status"] for each in pop.gateway.json("get", "ports", "lnk")]
        (one,) = [each for each in status["conditions"] if each["type"] == "Ready"]
        return status["state"], one["status"], one["reason"]

    with pop.having(thing("Port", "lnk", device="net_af_packet27,iface=lnk0")):
        shown("up")
        pop.outside.ip("link", "set", "lnk1", "down")
        down = shown("down")
        assert down["STATE"] == "applied"
        assert "the Linux interface lnk0 has no carrier" in down["WHY"]
        assert ready() == ("applied", "False", "LinkDown")
        assert "the Linux interface lnk0 has no carrier" in pop.gateway.sluice("describe", "port", "lnk").stdout
        pop.outside.ip("link", "set", "lnk1", "up")
        shown("up")
        assert ready()[:2] == ("applied", "True")
        pop.inside.ip("link", "delete", "lnk0")
        wait_until(lambda: "the Linux interface lnk0 is gone; the port attaches" in row().get("WHY", ""))
        shown("down")
        pop.inside.link("lnk0", pop.outside, "lnk1")
        shown("up")
    log = pop.gateway.logs()["gateway-agent.log"]
    assert re.search('"the link of a port is down".* port=lnk why="the Linux interface lnk0 has no carrier"', log)
    assert re.search('"the link of a port is up again".* port=lnk', log)
    watch.stop()
    pop.inside.ip("link", "delete", "lnk0")
