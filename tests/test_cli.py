# SPDX-License-Identifier: Apache-2.0
"""The command line as operators use it, and its messages about wrong files."""

import json
import os
import re

import pytest
from lab import thing
from lab.laboratory import wait_until
from pop import CORE4, CORE6, IPOE, PPPOE, Pop, session, udp_down, udp_up
from scapy.all import UDP, PPPoE, Raw, rdpcap

COMMANDS = [
    "plan",
    "apply",
    "get",
    "describe",
    "delete",
    "top",
    "trace",
    "capture",
    "drops",
    "version",
    "agent",
    "neighbors",
]


@pytest.fixture(scope="module")
def pop(lab):
    used = thing("Acl", "used", otherwise="permit")
    made = Pop(lab, used, session(IPOE, policy={"aclUp": "used"}), session(PPPOE))
    made.learn(IPOE, PPPOE)
    return made


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(pop, command):
    text = pop.gateway.sluice(command, "--help").stdout
    assert "Example" in text
    assert f"sluice {command}" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(pop, shell):
    assert "sluice" in pop.gateway.sluice("completion", shell).stdout


def test_names_of_objects_are_completed(pop):
    assert "ipoe" in pop.gateway.sluice("__complete", "describe", "session", "").stdout


def test_version_tells_of_both_planes(pop):
    text = pop.gateway.sluice("version").stdout
    assert "22.11" in text or "24.11" in text
    assert pop.gateway.json("version")


def test_get_shows_a_table_json_and_yaml(pop):
    table = pop.gateway.sluice("get", "sessions").stdout.splitlines()
    assert table[0].split()[0] == "NAME"
    assert {line.split()[0] for line in table[1:]} == {"ipoe", "pppoe"}
    found = {each["metadata"]["name"]: each for each in pop.gateway.json("get", "sessions")}
    assert found["pppoe"]["spec"]["access"]["pppoeSessionId"] == PPPOE.pppoe
    text = pop.gateway.sluice("get", "session", "ipoe", "-o", "yaml").stdout
    assert "kind: Session" in text
    pop.gateway.sluice("apply", "-f", "-", input=text)
    assert pop.gateway.sluice("plan", "-f", "-", input=text).stdout.strip() == "Nothing to change."


def test_labels_select(pop):
    with pop.having(thing("Vrf", "bonn", {"city": "bonn"}), thing("Vrf", "koeln", {"city": "koeln"})):
        assert [each["metadata"]["name"] for each in pop.gateway.json("get", "vrfs", "-l", "city=bonn")] == ["bonn"]


def test_plan_shows_the_changes_and_changes_nothing(pop):
    path = pop.gateway.directory / "plan.yaml"
    policy = {"aclUp": "used", "mss": 1300}
    core = thing("Interface", "core", port="core", outerVlan=5, addresses=[f"{CORE4}/24", f"{CORE6}/64"])
    changed = [session(IPOE, policy=policy), session(PPPOE, {"innerVlan": 77}), core, thing("Vrf", "new")]
    path.write_text("".join("---\n" + json.dumps(each) + "\n" for each in changed))
    text = pop.gateway.sluice("plan", "-f", path).stdout
    assert "~ Session ipoe" in text
    assert "~ Session pppoe" in text
    assert "-/+ Interface core" in text
    assert "+ Vrf new" in text
    assert "mss: 1300" in text
    assert "1 to create, 2 to update, 5 to replace, 0 to delete" in text
    assert "new" not in pop.gateway.sluice("get", "vrfs").stdout
    assert pop.passes(PPPOE)


def test_a_referenced_object_may_come_later(pop):
    early = thing("Route", "early", vrf="later", prefix="0.0.0.0/0", action="blackhole")
    done = pop.gateway.apply(early, wait=False, check=False)
    assert done.returncode == 1
    assert "later" in done.stdout
    assert "there is no Vrf later" in done.stderr
    assert "later" in pop.gateway.sluice("describe", "route", "early").stdout
    slip = thing("Interface", "slip", port="acess", addresses=["10.77.0.1/24"])
    planned = pop.gateway.sluice("plan", "-f", "-", input=json.dumps(slip))
    assert "will wait for Port/acess" in planned.stdout
    assert "Interface/slip: port: there is no Port acess; did you mean access?" in planned.stderr
    pop.apply(thing("Vrf", "later"))
    wait_until(lambda: pop.gateway.json("get", "route", "early")[0]["status"]["state"] == "applied")
    pop.gateway.sluice("delete", "route/early", "vrf/later")


def test_objects_of_one_file_come_and_go_in_the_order_that_they_need(pop):
    """The route is written first; it names neither the neighbour nor the interface in whose network its next hop is."""
    objects = [
        thing("Route", "first", vrf="order", prefix="0.0.0.0/0", nextHops=[{"address": "203.0.113.9"}]),
        thing("Neighbor", "second", interface="third", address="203.0.113.9", mac="02:00:00:00:cc:99"),
        thing("Interface", "third", port="core", outerVlan=77, vrf="order", addresses=["203.0.113.1/24"]),
        thing("Vrf", "order"),
    ]
    path = pop.gateway.directory / "order.yaml"
    path.write_text("".join("---\n" + json.dumps(each) + "\n" for each in objects))
    assert "4 created" in pop.gateway.sluice("apply", "-f", path).stdout
    assert "4 unchanged" in pop.gateway.sluice("apply", "-f", path).stdout
    assert "4 deleted" in pop.gateway.sluice("delete", "-f", path).stdout
    assert "order" not in pop.gateway.sluice("get", "vrfs").stdout


def test_objects_wait_for_a_reference_that_is_missing_again(pop):
    """A deletion names the objects that refer to the object; they become pending, and return with it."""
    for how in ([], ["--in-use", "--all-or-nothing"]):
        refused = pop.gateway.sluice("delete", "acl", "used", *how, check=False)
        assert refused.returncode == 1 and "Session/ipoe" in refused.stderr, refused.stderr
    assert pop.passes(IPOE)
    done = pop.gateway.sluice("delete", "acl", "used", "--in-use")
    assert "Session/ipoe" in done.stdout
    assert pop.gateway.json("get", "session", "ipoe")[0]["status"]["state"] == "pending"
    assert pop.passes(PPPOE)
    pop.apply(thing("Acl", "used", otherwise="permit"))
    assert pop.passes(IPOE)


def test_all_or_nothing_leaves_everything_as_it_was(pop):
    path = pop.gateway.directory / "all.yaml"
    objects = [thing("Vrf", "half"), thing("Port", "broken", device="net_af_packet9,iface=nosuch0")]
    path.write_text("".join("---\n" + json.dumps(each) + "\n" for each in objects))
    done = pop.gateway.sluice("apply", "-f", path, "--all-or-nothing", check=False)
    assert done.returncode != 0
    assert "broken" in done.stderr
    assert "half" not in pop.gateway.sluice("get", "vrfs").stdout


def test_describe_shows_status_needs_and_counters(pop):
    text = pop.gateway.sluice("describe", "session", "pppoe").stdout
    for part in ("applied", "Port/access", PPPOE.mac, "up", "down"):
        assert part in text
    assert "Session/pppoe" in pop.gateway.sluice("describe", "port", "access").stdout


def test_top_shows_sessions_ports_and_cycles(pop):
    load = pop.load([IPOE, PPPOE], 300)
    try:
        assert load.warm_up() == []
        view = pop.gateway.json("top", "--once")
        text = pop.gateway.sluice("top", "--once").stdout
    finally:
        load.close()
    assert view["totals"]["activeSessions"] == 2
    assert view["totals"]["upPacketRate"] > 10
    assert {port["name"] for port in view["ports"]} == {"access", "core"}
    assert view["nodes"] and all(node["cyclesPerPacket"] > 0 for node in view["nodes"])
    for part in ("SESSION", "PORT", "NODE", "CYCLES/PACKET", "ipoe"):
        assert part in text


def test_drops_show_reason_and_meaning_by_session(pop):
    with pop.dropping("session-source"):
        pop.send_up(IPOE, udp_up(PPPOE))
    text = pop.gateway.sluice("drops", "--session", "ipoe").stdout
    assert "session-source" in text
    assert "session-source" not in pop.gateway.sluice("drops", "--session", "pppoe", check=False).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["drops", "--session", "nobody"],
        ["drops", "--interface", "nobody"],
        ["capture", "--session", "nobody", "-w", "/dev/null"],
        ["capture", "--node", "nobody", "-w", "/dev/null"],
        ["trace", "--session", "nobody"],
        ["neighbors", "--interface", "nobody"],
        ["describe", "session", "nobody"],
        ["get", "session", "nobody"],
    ],
)
def test_missing_objects_are_named(pop, arguments):
    done = pop.gateway.sluice(*arguments, check=False)
    assert done.returncode != 0
    assert "nobody" in done.stderr


def test_builtin_objects_are_shown(pop):
    assert "default" in pop.gateway.sluice("get", "vrfs").stdout
    assert "builtin" in pop.gateway.sluice("describe", "vrf", "default").stdout


def test_nodes_are_completed_before_a_packet_comes_to_them(pop):
    assert "gtpu-encap" in pop.gateway.sluice("__complete", "capture", "--node", "gtpu").stdout.split()


def test_describe_shows_numbers_with_their_units(pop):
    with pop.having(thing("Meter", "units", committedRate="100M", committedBurstTime="10ms")):
        text = pop.gateway.sluice("describe", "meter", "units").stdout
    assert "100 Mbit/s" in text
    assert "10 ms" in text


class TestTrace:
    def follow(self, pop, filter, packets, *arguments):
        """Output of trace for packets that are sent after it has started."""
        process = pop.lab.process(pop.inside, *pop.gateway.command("trace", *arguments, filter), log="trace.log")
        process.log.write_text("")
        wait_until(lambda: "Waiting" in process.log.read_text())
        for send, what in packets:
            send(what)
        process.child.wait(30)
        return process.log.read_text().split("ends.\n", 1)[1]

    def test_a_packet_is_followed_to_the_port_it_leaves_by(self, pop):
        up = [(lambda packet: pop.send_up(IPOE, packet), udp_up(IPOE))]
        text = self.follow(pop, f"vlan 100 and vlan 1 and host {IPOE.ip4}", up, "--count", "1")
        for node in ("ether-input", "ip4-input", "session-up4", "ip4-lookup", "ip4-rewrite", "tx"):
            assert node in text
        assert IPOE.ip4 in text
        assert "core" in text.strip().splitlines()[-1]

    def test_packets_follow_the_edges_that_the_graph_of_the_data_plane_shows(self, pop):
        lines = pop.gateway.sluice("graph", "dataplane", "-o", "dot").stdout.splitlines()
        edges = {tuple(re.findall(r'"([^"]*)"', line)) for line in lines if "->" in line}
        chain = "steps of the chain"
        for filter, send, packet in (
            (f"src host {IPOE.ip4}", lambda packet: pop.send_up(IPOE, packet), udp_up(IPOE)),
            (f"src host {PPPOE.ip4}", lambda packet: pop.send_up(PPPOE, packet), udp_up(PPPOE)),
            (f"dst host {IPOE.ip4}", pop.send_down, udp_down(IPOE)),
            (f"dst host {PPPOE.ip4}", pop.send_down, udp_down(PPPOE)),
        ):
            followed = json.loads(self.follow(pop, filter, [(send, packet)], "--count", "1", "-o", "json"))
            nodes = [step["node"] for step in followed["steps"]]
            assert len(nodes) > 3
            for pair in zip(nodes, nodes[1:], strict=False):
                assert pair in edges or {(pair[0], chain), (chain, pair[1])} <= edges, pair

    def test_a_packet_is_followed_to_the_drop_by_its_name(self, pop):
        up = [(lambda packet: pop.send_up(IPOE, packet), udp_up(PPPOE))]
        found = json.loads(self.follow(pop, "vlan 100 and vlan 1", up, "--count", "1", "-o", "json"))
        assert "session-source" in found["end"]
        assert [step["at"] for step in found["steps"]] == sorted(step["at"] for step in found["steps"])

    def test_nodes_tell_of_sessions_ports_and_vrfs_by_name(self, pop):
        up = [(lambda packet: pop.send_up(PPPOE, packet), udp_up(PPPOE))]
        assert "session pppoe, vrf default" in self.follow(pop, "vlan and vlan and pppoes", up, "--count", "1")
        text = self.follow(pop, f"host {PPPOE.ip4}", [(pop.send_down, udp_down(PPPOE))], "--count", "1")
        assert "for session pppoe" in text
        assert "session pppoe: port access" in text

    def test_only_packets_that_match_the_filter_are_followed(self, pop):
        packets = [(lambda packet: pop.send_up(PPPOE, packet), udp_up(PPPOE))] * 5
        packets += [(pop.send_down, udp_down(IPOE))]
        text = self.follow(pop, f"host {IPOE.ip4}", packets, "--count", "1")
        assert "session-down" in text
        assert "pppoe" not in text

    def test_a_filter_looks_behind_tags_and_pppoe(self, pop):
        for line in (IPOE, PPPOE):
            packets = [(lambda packet: pop.send_up(PPPOE, packet), udp_up(PPPOE, payload=b"other"))] * (line is IPOE)
            packets += [(lambda packet, line=line: pop.send_up(line, packet), udp_up(line))]
            text = self.follow(pop, f"src host {line.ip4} and udp", packets, "--count", "1")
            assert f"session {line.name}" in text, text

    def test_a_session_is_followed_in_both_directions_from_where_its_packets_come_in(self, pop):
        packets = [
            (lambda packet: pop.send_up(IPOE, packet), udp_up(IPOE)),
            (lambda packet: pop.send_up(PPPOE, packet), udp_up(PPPOE)),
            (pop.send_down, udp_down(IPOE)),
            (pop.send_down, udp_down(PPPOE)),
        ]
        text = self.follow(pop, "udp", packets, "--session", "pppoe", "--count", "2")
        assert text.count("ether-input") == 2
        assert "session-up4" in text and "session-down" in text
        assert IPOE.ip4 not in text

    def test_a_wrong_filter_is_explained(self, pop):
        done = pop.gateway.sluice("trace", "port port", check=False)
        assert done.returncode != 0
        assert done.stderr.strip()


class TestCapture:
    def capture(self, pop, arguments, sends):
        path = pop.gateway.directory / "capture.pcap"
        path.unlink(missing_ok=True)
        process = pop.lab.process(
            pop.inside, *pop.gateway.command("capture", "-w", path, *arguments), log="capture.log"
        )
        process.log.write_text("")
        wait_until(lambda: "Capturing" in process.log.read_text())
        for send in sends:
            send()
        process.child.wait(30)
        return rdpcap(str(path))

    def test_a_node_is_captured(self, pop):
        packets = self.capture(
            pop, ["--node", "ip4-lookup", "--count", "2"], [lambda: pop.send_up(IPOE, udp_up(IPOE))] * 3
        )
        assert len(packets) == 2

    def test_a_session_is_captured_in_both_directions(self, pop):
        sends = [
            lambda: pop.send_up(IPOE, udp_up(IPOE)),
            lambda: pop.send_up(PPPOE, udp_up(PPPOE)),
            lambda: pop.send_down(udp_down(PPPOE)),
        ]
        packets = self.capture(pop, ["--session", "pppoe", "--count", "2"], sends)
        assert len(packets) == 2
        assert all(b"payload" in bytes(packet) for packet in packets)

    def test_each_packet_of_a_session_is_captured_once(self, pop):
        sends = [
            lambda: pop.send_down(udp_down(PPPOE, payload=b"first")),
            lambda: pop.send_up(PPPOE, udp_up(PPPOE, payload=b"second")),
            lambda: pop.send_down(udp_down(PPPOE, payload=b"third")),
        ]
        packets = self.capture(pop, ["--session", "pppoe", "--count", "3"], sends)
        assert sorted(each[Raw].load for each in packets) == [b"first", b"second", b"third"]
        # As the subscriber sees them.
        assert all(PPPoE in each for each in packets)

    def test_a_filter_chooses(self, pop):
        sends = [lambda: pop.send_up(IPOE, udp_up(IPOE)), lambda: pop.send_up(PPPOE, udp_up(PPPOE))]
        for filter in ("vlan 100 and vlan 2", f"src host {PPPOE.ip4} and udp"):
            packets = self.capture(pop, ["--count", "1", filter], sends)
            assert PPPOE.mac in packets[0].src

    def test_packets_are_whole_frames(self, pop):
        packets = self.capture(pop, ["--count", "1", "ip host 198.51.100.1"], [lambda: pop.send_down(udp_down(IPOE))])
        assert UDP in packets[0]


GOOD_ACCESS = "{port: access, outerVlan: 100, innerVlan: 50}"
WRONG = {
    "an unknown field": ("  colour: blue", ["colour"]),
    "a wrong type": ("  access: {port: access, outerVlan: many}", ["access.outerVlan", "many"]),
    "a number out of range": ("  access: {port: access, outerVlan: 4095}", ["access.outerVlan", "4095", "4094"]),
    "a prefix that is not one": (
        f"  access: {GOOD_ACCESS}\n  addresses: [100.64.0.7/33]",
        ["addresses", "100.64.0.7/33"],
    ),
    "bits after the prefix": (f"  access: {GOOD_ACCESS}\n  addresses: [100.64.0.7/24]", ["addresses", "100.64.0.7/24"]),
    "a missing field": ("  addresses: [100.64.0.50/32]", ["access"]),
    "a MAC that is not one": ("  access: {port: access, mac: 02:00:00:00:01}", ["access.mac", "02:00:00:00:01"]),
    "a group's MAC": ("  access: {port: access, mac: 03:00:00:00:00:01}", ["access.mac"]),
    "the access key of another": ("  access: {port: access, outerVlan: 100, innerVlan: 1}", ["ipoe"]),
    "a reserved session id": (
        "  access: {port: access, outerVlan: 1, pppoeSessionId: 65535}",
        ["pppoeSessionId", "65535"],
    ),
    "an address of the wrong kind": (
        f"  access: {GOOD_ACCESS}\n  gtpu: {{localAddress: here}}",
        ["gtpu.localAddress", "here"],
    ),
    "a TEID of zero": (
        f"  access: {GOOD_ACCESS}\n"
        "  gtpu: {localAddress: 192.0.2.1, localTeid: 0, remoteAddress: 192.0.2.2, remoteTeid: 1}",
        ["gtpu.localTeid"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_file_line_object_field_and_found_value(pop, name):
    spec, words = WRONG[name]
    text = f"# A comment.\napiVersion: sluice.dev/v1\nkind: Session\nmetadata: {{name: wrong}}\nspec:\n{spec}\n"
    path = pop.gateway.directory / "wrong.yaml"
    path.write_text(text)
    done = pop.gateway.sluice("apply", "-f", path, check=False)
    assert done.returncode != 0
    assert "wrong.yaml:" in done.stderr
    assert "wrong" in done.stderr
    for word in words:
        assert word in done.stderr
    assert "wrong" not in pop.gateway.sluice("get", "sessions").stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Teapot\napiVersion: sluice.dev/v1\nmetadata: {name: a}\n", ["Teapot", "Session"]),
        ("kind: Vrf\napiVersion: sluice.dev/v9\nmetadata: {name: a}\n", ["sluice.dev/v9", "sluice.dev/v1"]),
        ("kind: Vrf\napiVersion: sluice.dev/v1\n", ["metadata"]),
        ("kind: [\n", ["file.yaml:"]),
        ("just text\n", ["file.yaml:1"]),
        ("", ["no objects"]),
    ],
)
def test_a_file_that_holds_no_object_is_explained(pop, text, words):
    path = pop.gateway.directory / "file.yaml"
    path.write_text(text)
    done = pop.gateway.sluice("apply", "-f", path, check=False)
    assert done.returncode != 0
    for word in words:
        assert word in done.stderr


def test_all_errors_of_a_file_are_reported_together(pop):
    path = pop.gateway.directory / "two.yaml"
    path.write_text(
        "apiVersion: sluice.dev/v1\nkind: Vrf\nmetadata: {name: a}\nspec: {descriptoin: x}\n---\n"
        "apiVersion: sluice.dev/v1\nkind: Route\nmetadata: {name: b}\nspec: {prefix: nonsense}\n"
    )
    message = pop.gateway.sluice("apply", "-f", path, check=False).stderr
    assert "two.yaml:4" in message
    assert "two.yaml:9" in message


def test_an_object_is_edited_found_by_a_field_and_printed_by_a_template(pop):
    sluice = pop.gateway.sluice
    pop.gateway.apply(thing("Vrf", "blue", description="before"), thing("Vrf", "green", description="other"))
    editor = pop.gateway.directory / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/before/after/ "$1"\n')
    editor.chmod(0o755)
    assert "Vrf/blue" in sluice("edit", "vrf", "blue", env=os.environ | {"VISUAL": str(editor)}).stdout
    assert sluice("get", "vrfs", "--field-selector", "description=after", "-o", "name").stdout == "vrf/blue\n"
    assert sluice("get", "vrf", "blue", "-o", "jsonpath={.spec.description}").stdout == "after\n"
    assert "A routing table of its own" in sluice("explain", "vrf").stdout
    pop.gateway.delete("vrf", "blue", "green")


def test_without_an_agent_the_command_names_the_mend(pop):
    done = pop.gateway.sluice("get", "sessions", "--agent", "unix:///nonexistent.sock", check=False)
    assert done.returncode != 0
