# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus, fields of the log, and the dashboard and alerts that use them."""

import json
import re
import urllib.parse

import pytest
import yaml
from lab import Line, thing
from lab.gateway import SLUICE
from lab.gateway import yaml as documents
from lab.laboratory import TREE, wait_until
from lab.namespace import run
from lab.remote import certificates
from lab.rest import tokens
from pop import IPOE, PPPOE, Pop, session, udp_up

ADDRESS, SECURE = "127.0.0.1:9464", "127.0.0.1:9465"
PROMETHEUS = "http://127.0.0.1:9090"
HOW_TO = TREE / "docs/how-to-observe.md"
RULES = TREE / "deploy/prometheus/sluice.rules.yml"
DASHBOARD = TREE / "deploy/grafana/sluice.json"
# Of metrics, as they stand in queries.
NAMES = re.compile(r"\b(?:sluice|go|process)_[a-z0-9_]+")
# Grafana's values of its variables.
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*", "$dataplane": ".*"}


@pytest.fixture(scope="module")
def pop(lab):
    intent = lab.directory / "intent"
    intent.mkdir()
    (lab.directory / "tls").mkdir()
    where = certificates(lab.directory / "tls", "agent")
    _, file = tokens(where, prometheus="read")
    secure = {
        "type": "metrics", "name": "secure", "listen": SECURE, "tokens": str(file),
        "tls": {"certificate": str(where / "agent.crt"), "key": str(where / "agent.key")},
    }  # fmt: skip
    northbounds = [{"type": "metrics", "listen": ADDRESS}, {"type": "files", "directory": str(intent)}, secure]
    made = Pop(lab, northbounds=northbounds)
    made.apply(session(IPOE), session(PPPOE), thing("QosScheduler", "access", port="access", rate="1G"))
    made.learn(IPOE, PPPOE)
    return made


def get(pop, path, check=True):
    return pop.inside.run("curl", "-sS", *(["-f"] if check else []), f"http://{ADDRESS}{path}", check=check).stdout


def status(pop, path):
    return pop.inside.run("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://{ADDRESS}{path}").stdout


def told(pop):
    """Series of a scrape and their values."""
    lines = (line.rsplit(" ", 1) for line in get(pop, "/metrics").splitlines() if not line.startswith("#"))
    return {series: float(value) for series, value in lines}


def entered(pop, direction="up"):
    return told(pop)[f'sluice_session_packets_total{{dataplane="default",direction="{direction}"}}']


def test_promtool_finds_nothing_wrong_with_a_scrape(pop):
    pop.inside.run("promtool", "check", "metrics", input=get(pop, "/metrics"))


def test_a_packet_through_a_session_counts_for_the_totals_its_nodes_and_its_ports(pop):
    before = told(pop)
    assert pop.passes(IPOE)
    assert pop.passes(PPPOE)
    after = told(pop)
    labels = 'dataplane="default"'
    for series, more in {
        f'sluice_session_packets_total{{{labels},direction="up"}}': 2,
        f'sluice_session_packets_total{{{labels},direction="down"}}': 2,
        f'sluice_session_bytes_total{{{labels},direction="up"}}': 2 * len(udp_up(IPOE)),
        f'sluice_node_packets_total{{{labels},node="session-up4"}}': 2,
        f'sluice_port_packets_total{{{labels},direction="receive",port="access"}}': 2,
        f'sluice_port_packets_total{{{labels},direction="transmit",port="core"}}': 2,
    }.items():
        assert after[series] - before[series] == more, series


def test_drops_are_counted_by_reason_and_are_not_forwarded_packets(pop):
    dropped = 'sluice_session_dropped_packets_total{dataplane="default",direction="up"}'
    before = told(pop)
    with pop.dropping("session-source"):
        pop.send_up(IPOE, udp_up(IPOE, src="203.0.113.1"))
    after = told(pop)
    reason = 'sluice_dropped_packets_total{dataplane="default",reason="session-source"}'
    assert after[reason] - before.get(reason, 0) == 1
    assert after[dropped] - before[dropped] == 1


def test_a_thousand_sessions_add_no_series_and_their_counts_stay_when_they_go(pop):
    lines = [Line(f"line-{i}", f"02:00:00:03:{i >> 8:02x}:{i & 255:02x}", "", "", (1000, 1 + i)) for i in range(1000)]
    one = Line("one", "02:00:00:04:00:01", "100.64.1.1", "", (1001, 1))
    before = told(pop)
    pop.apply(*(session(line) for line in lines), session(one))
    pop.learn(one)
    after = told(pop)
    assert after['sluice_objects{dataplane="default",kind="Session",state="applied"}'] == 1003
    assert {each.split("{")[0] for each in after} == {each.split("{")[0] for each in before}
    assert len(after) == len(before)
    passed = entered(pop)
    pop.gateway.delete("session", *(line.name for line in (*lines, one)))
    wait_until(lambda: told(pop)['sluice_objects{dataplane="default",kind="Session",state="applied"}'] == 2)
    assert entered(pop) == passed


def test_metrics_of_a_northbound_have_its_name(pop, lab):
    def of(what):
        return told(pop)[f'sluice_northbound_{what}{{northbound="files"}}']

    assert of("connected") == 1
    before = {what: of(what) for what in ("received_total", "changes_total", "errors_total", "refused_total")}
    document = lab.directory / "intent/red.yaml"
    document.write_text(documents([thing("Vrf", "red")]))
    wait_until(lambda: of("changes_total") == before["changes_total"] + 1)
    assert of("received_total") > before["received_total"]
    assert of("errors_total") == before["errors_total"]
    document.write_text(documents([thing("Vrf", "red", nonsense=1)]))
    wait_until(lambda: of("errors_total") == before["errors_total"] + 1)
    document.unlink()
    wait_until(lambda: of("changes_total") == before["changes_total"] + 2)
    assert of("refused_total") == before["refused_total"]


def test_the_agent_is_ready_with_its_data_plane_and_lives_without_it(pop):
    wait_until(lambda: status(pop, "/readyz") == "200")
    pop.gateway.dataplane.kill()
    wait_until(lambda: status(pop, "/readyz") == "503")
    assert "data plane default: not connected" in get(pop, "/readyz", check=False)
    assert status(pop, "/healthz") == "200"
    assert told(pop)['sluice_dataplane_connected{dataplane="default"}'] == 0
    pop.gateway.start_dataplane()
    wait_until(lambda: status(pop, "/readyz") == "200")
    assert told(pop)['sluice_dataplane_connections_total{dataplane="default"}'] == 2
    wait_until(lambda: told(pop)['sluice_objects{dataplane="default",kind="Session",state="applied"}'] == 2)
    pop.learn(IPOE, PPPOE)


def test_each_alert_fires_when_it_should_and_only_then():
    folder = TREE / "deploy/prometheus"
    checked = [
        ("check", "config", folder / "prometheus.yml"),
        ("check", "rules", RULES),
        ("test", "rules", folder / "sluice.rules_test.yml"),
    ]
    for arguments in checked:
        run("promtool", *map(str, arguments))
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    tests = (folder / "sluice.rules_test.yml").read_text()
    assert set(alerts) == set(re.findall(r"alertname: (\w+)", tests))


def queries():
    """Every query of the dashboard, as Grafana would send it."""

    def of(panel):
        yield from (target["expr"] for target in panel.get("targets", ()))

    board = json.loads(DASHBOARD.read_text())
    found = [query for panel in board["panels"] for query in of(panel)]
    found += [each["expr"] for each in board["annotations"]["list"]]
    for query in found:
        for name, value in VARIABLES.items():
            query = query.replace(name, value)
        yield query


def test_every_metric_of_the_dashboard_and_the_alerts_exists(pop):
    with pop.dropping("session-source"):
        pop.send_up(IPOE, udp_up(IPOE, src="203.0.113.1"))
    there = {each.split("{")[0].removesuffix("_bucket") for each in told(pop)}
    text = DASHBOARD.read_text() + RULES.read_text()
    asked = {name.removesuffix("_bucket") for name in NAMES.findall(text)}
    assert len(asked) > 25
    # A path is reported after its first answer, and there is no peer that could answer.
    there.add("sluice_gtpu_path_up")
    # There are no subscribers and no RadiusServer: these metrics come with the first one.
    for service in ("pppoe", "radius", "subscriber"):
        for source in (TREE / "agent" / service).glob("*.go"):
            there |= set(re.findall(rf'"(sluice_{service}_\w+)"', source.read_text()))
    assert asked <= there, asked - there


def test_every_metric_is_in_the_how_to(pop):
    there = {each.split("{")[0] for each in told(pop) if each.startswith("sluice_")}
    there = {re.sub("_(bucket|sum|count)$", "", name) for name in there}
    in_text = set(NAMES.findall(HOW_TO.read_text()))
    assert there <= in_text, there - in_text
    rows = re.findall(r"^\| `(sluice_[a-z0-9_]+)`", HOW_TO.read_text(), re.MULTILINE)
    assert len(rows) == len(set(rows)), sorted(rows)


def test_the_panels_of_the_dashboard_do_not_overlap_and_each_has_its_own_number():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.fixture(scope="module")
def prometheus(pop, lab):
    """The how-to's server. It also scrapes over TLS with a token, as in the how-to."""
    command = re.search(r"^prometheus .*(?= &$)", HOW_TO.read_text(), re.MULTILINE)[0]
    said = re.search(r"```yaml\n(scrape_configs:\n.*?)```", HOW_TO.read_text(), re.DOTALL)[1]
    (job,) = yaml.safe_load(said.replace("/etc/prometheus/sluice-ca.crt", str(lab.directory / "tls/ca.crt")))[
        "scrape_configs"
    ]
    job["authorization"]["credentials_file"] = str(lab.directory / "tls/prometheus.token")
    job["static_configs"] = [{"targets": [SECURE]}]
    configuration = yaml.safe_load((TREE / "deploy/prometheus/prometheus.yml").read_text())
    configuration["global"]["scrape_interval"] = "1s"
    configuration["rule_files"] = [str(RULES)]
    configuration["scrape_configs"].append(job | {"job_name": "secure"})
    (lab.directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    command = command.replace("deploy/prometheus/prometheus.yml", f"{lab.directory}/prometheus.yml")
    command = re.sub(r"path=\S+", f"path={lab.directory}/prometheus", command)
    lab.process(pop.inside, *command.split(), log="prometheus.log")
    wait_until(lambda: ask(pop, 'up{job="sluice"} == 1'), 60, "Prometheus has scraped the agent")


def test_over_tls_reading_needs_a_token(pop, lab):
    """Before Prometheus scrapes: an alert fires on refused requests."""

    def code(*options):
        ca = ("--cacert", lab.directory / "tls/ca.crt", "-o", "/dev/null", "-w", "%{http_code}")
        return pop.inside.run("curl", "-s", *map(str, ca), *options, check=False).stdout

    token = (lab.directory / "tls/prometheus.token").read_text().strip()
    assert code(f"https://{SECURE}/metrics") == "401"
    assert code(f"https://{SECURE}/healthz") == "200"
    assert code("-H", f"Authorization: Bearer {token}", f"https://{SECURE}/metrics") == "200"


def test_prometheus_reads_over_tls_with_a_token(pop, prometheus):
    wait_until(lambda: ask(pop, 'up{job="secure"} == 1'), 60, "Prometheus has scraped the agent over TLS")


def ask(pop, query):
    """The answer of Prometheus; None if there is none yet."""
    url = f"{PROMETHEUS}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    done = pop.inside.run("curl", "-sf", url, check=False)
    if done.returncode != 0:
        return None
    answer = json.loads(done.stdout)
    assert answer["status"] == "success", f"{query}: {answer}"
    return answer["data"]["result"]


def test_prometheus_scrapes_the_agent_and_answers(pop, prometheus):
    (one,) = ask(pop, 'sum(sluice_objects{job="sluice",state="applied"})')
    assert one["value"][1] == "11"


def test_prometheus_understands_every_query_of_the_dashboard(pop, prometheus):
    asked = list(queries())
    assert len(asked) > 30
    for query in asked:
        assert "$" not in query
        assert ask(pop, query) is not None


def test_prometheus_has_the_alerts_and_none_of_them_fires(pop, prometheus):
    answer = json.loads(pop.inside.run("curl", "-sf", f"{PROMETHEUS}/api/v1/rules").stdout)
    (group,) = answer["data"]["groups"]
    assert len(group["rules"]) == RULES.read_text().count("- alert:")
    assert [rule["name"] for rule in group["rules"] if rule["state"] == "firing"] == []


@pytest.fixture(scope="module")
def log(pop, lab):
    """The JSON log of an agent while objects are refused and its data plane comes and goes."""
    gateway = pop.gateway
    gateway.agent.stop()
    arguments = ["--dataplane", f"unix://{gateway.dataplane_socket}", "--listen", f"unix://{gateway.agent_socket}"]
    arguments += ["--store", gateway.directory / "intent.db", "--config", gateway.directory / "agent.yaml"]
    gateway.agent = gateway.process("agent-json", SLUICE, "agent", *arguments, "--log-format", "json")
    gateway.wait_for_socket(gateway.agent_socket, gateway.agent)
    gateway.apply(thing("Port", "refused", device="net_af_packet9,iface=nowhere"), check=False, wait=False)
    gateway.dataplane.kill()
    wait_until(lambda: status(pop, "/readyz") == "503")
    gateway.start_dataplane()
    wait_until(lambda: status(pop, "/readyz") == "200")
    wait_until(lambda: gateway.agent.log.read_text().count('"code"') > 1, what="it is refused again")
    gateway.delete("port", "refused")
    gateway.agent.stop()
    return [json.loads(line) for line in gateway.agent.log.read_text().splitlines()]


def fields():
    _, table = HOW_TO.read_text().split("| field | meaning |")
    return set(re.findall(r"^\| `([a-z]+)` \|", table.split("\n\n")[0], re.MULTILINE))


def test_every_line_of_the_log_is_json_with_fields_of_the_table(log):
    assert len(log) > 8
    for line in log:
        assert {"time", "level", "msg"} <= set(line) <= fields()


def test_log_lines_name_their_objects_in_fields(log):
    refused = next(line for line in log if "code" in line)
    assert refused["level"] == "WARN"
    assert (refused["kind"], refused["name"], refused["action"]) == ("Port", "refused", "create")
    assert refused["dataplane"] == "default"
    assert "nowhere" in refused["error"]
    assert {line.get("northbound") for line in log} >= {None, "metrics"}
    lost = next(line for line in log if line["msg"] == "no connection to the data plane")
    assert lost["dataplane"] == "default"
    assert lost["error"]


def test_the_example_for_fluent_bit_renames_fields_that_there_are():
    """Its syntax in classic mode: sections, and below each, indented, keys with values."""
    sections, folder = [], TREE / "deploy/fluent-bit"
    for name in ("fluent-bit.conf", "parsers.conf"):
        for line in (folder / name).read_text().splitlines():
            if re.fullmatch(r"\[[A-Z]+\]", line):
                sections.append((line[1:-1], []))
            elif line.strip() and not line.lstrip().startswith("#"):
                key, value = re.fullmatch(r"    (\S+)\s+(\S.*)", line).groups()
                sections[-1][1].append((key, value))
    assert [name for name, _ in sections] == ["SERVICE", "INPUT", "FILTER", "OUTPUT", "PARSER"]
    service, tail, modify, es, parser = (dict(pairs) for _, pairs in sections)
    assert (folder / service["Parsers_File"]).exists()
    assert tail["Parser"] == parser["Name"]
    assert parser["Time_Key"] == "time"
    renamed = [value.split() for key, value in sections[2][1] if key == "Rename"]
    assert {old for old, _ in renamed} == {"msg", "level", "error"} <= fields()
    assert modify["Match"] == es["Match"] == "sluice.*"
