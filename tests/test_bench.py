# SPDX-License-Identifier: Apache-2.0
"""The bench's own tools count right: the traffic generator beside a real gateway, and the search for a rate."""

import contextlib
import json
import sys
from typing import ClassVar
from xml.etree import ElementTree

import pytest
import yaml
from lab import Lab
from lab.laboratory import TREE, wait_until

sys.path.insert(0, str(TREE / "bench"))

import esp  # noqa: E402
import ike_pairs  # noqa: E402
import report  # noqa: E402
from chains import Chain  # noqa: E402
from contract import api  # noqa: E402
from generator import GeneratorError, Outcome, Stream  # noqa: E402
from ndr import Bench, Speed, in_turn, ratios  # noqa: E402
from plr import Soak, soak  # noqa: E402
from throughput import Search, search, searches  # noqa: E402
from tunnels import KEYS, Tunnels  # noqa: E402

FLOWS, SECONDS, RATE = 64, 0.25, 12800.0
PACKETS = int(SECONDS * RATE)


@pytest.fixture(scope="module")
def bench():
    """An AGF without huge pages or a core of its own; asymmetric, so that the streams differ in all they can."""
    chain = Chain("agf", FLOWS, up=128, down=504, down_bytes=504 / (504 + 128), agf=True, pppoe=True)
    with Lab() as lab, contextlib.closing(Bench(lab, chain, huge=False, own_cores=False)) as made:
        yield made


def trial(bench):
    """A trial in which the generator kept its rate: a busy machine can stop it."""

    def kept():
        outcome = bench.trial(SECONDS, RATE)
        return all(stream["offered"] == stream["intended"] for stream in outcome.streams) and outcome

    return wait_until(kept, 60, "the generator keeps its rate")


def test_everything_sent_at_a_low_rate_comes_through_in_order_and_its_latency_is_measured(bench):
    outcome = trial(bench)
    assert [stream["name"] for stream in outcome.streams] == ["up", "down"]
    for stream in outcome.streams:
        assert stream["intended"] == stream["offered"] == stream["received"] == PACKETS / 2
        assert (stream["refused"], stream["reordered"], stream["duplicates"]) == (0, 0, 0)
        latency = stream["latency_ns"]
        assert (
            0
            < latency["min"]
            <= latency["p50"]
            <= latency["p90"]
            <= latency["p99"]
            <= latency["p99_9"]
            <= latency["max"]
        )
    # Uplink QinQ and PPPoE are replaced by GTP-U and its container, downlink the other way round.
    assert [stream["received_bytes"] for stream in outcome.streams] == [
        PACKETS / 2 * (size - 4) for size in (128 - 16 + 44, 504 - 44 + 16)
    ]


def test_only_packets_that_the_gateway_drops_count_as_lost(bench):
    name = "session-5"
    kept = bench.connection.ask(list=api.List(kind="Session", limit=10000)).objects.objects
    kept = next(each for each in kept if each.name == name)
    bench.connection.ask(delete=api.Delete(names=[api.ObjectName(kind="Session", name=name)]))
    outcome = bench.trial(SECONDS, RATE)
    # Each flow has an equal part of each direction.
    assert [stream["offered"] - stream["received"] for stream in outcome.streams] == [PACKETS / 2 / FLOWS] * 2
    assert outcome.total("refused") == outcome.total("reordered") == 0
    bench.connection.ask(put=api.Put(objects=[kept]))
    assert bench.trial(SECONDS, RATE).lost == 0


def test_packets_pass_in_turn_through_tunnels_with_configured_keys_and_through_those_of_ike():
    chain = Tunnels("tunnels", FLOWS, up=650, agent=True, count=4)
    with Lab() as lab, contextlib.closing(Bench(lab, chain, huge=False, own_cores=False)) as made:
        found = in_turn(made, 2, lambda: made.counted_trial(SECONDS, RATE))
        assert made.generator.only is None
        for number, name in enumerate(KEYS):
            for outcome, cycles in found[name]:
                assert (outcome.lost, outcome.total("received"), outcome.total("duplicates")) == (0, PACKETS, 0)
                assert [stream["offered"] for stream in outcome.streams] == [PACKETS * (n == number) for n in (0, 1)]
                assert {"esp-encrypt", "esp-decrypt"} <= set(cycles["nodes"])
        associations = made.gateway.json("get", "securityassociations")
        assert len(associations) == 8 + 16
        assert {each["spec"]["encryption"] for each in associations} <= {"aes_gcm"}


def test_a_ratio_is_of_neighbouring_trials():
    found = {"static": [1.0, 2.0, 4.0], "ike": [1.1, 2.0, 3.6]}
    assert ratios(found, lambda rate: rate) == pytest.approx([0.9, 1.0, 1.1])


def test_the_gateways_cycles_are_those_of_the_nodes_that_had_packets(bench):
    outcome, cycles = bench.counted_trial(SECONDS, RATE)
    assert outcome.lost == 0
    assert {"gtpu-encap", "gtpu-input", "acl-up", "acl-down", "pppoe-session", "tx"} <= set(cycles["nodes"])
    assert "drop" not in cycles["nodes"] and "rx" not in cycles["nodes"]
    assert cycles["graph"] == pytest.approx(
        sum(each for node, each in cycles["nodes"].items() if node not in ("tx", "tx-handover")), abs=1
    )


@pytest.mark.parametrize(
    ("size", "header", "wrong"), [(64, 60, "no room"), (3000, 60, "takes FILE"), (100, 0, "whole number of headers")]
)
def test_a_stream_that_cannot_be_sent_is_refused(bench, size, header, wrong):
    before = list(bench.generator.streams)
    with pytest.raises(GeneratorError, match=wrong):
        bench.generator.add(Stream("bad", 0, 1, size, [bytes(header)]))
    assert bench.generator.streams == before


def gateway_of(capacity, spoiled=()):
    """Forwards so many packets a second and not one more; trials of these numbers lose a tenth, whatever the load."""
    number = 0

    def trial(seconds, load):
        nonlocal number
        number += 1
        sent = int(seconds * load)
        passed = min(sent, int(seconds * capacity(load)))
        passed = int(passed * 0.9) if number in spoiled else passed
        return Outcome(seconds, 0.0, 0, [{"intended": sent, "offered": sent, "received": passed}])

    return trial


def test_the_search_finds_the_rate_at_which_loss_begins():
    found = search(gateway_of(lambda load: 1.234e6), Search())
    assert found["ndr_pps"] == pytest.approx(1.234e6, rel=0.025)
    assert found["pdr_pps"] == pytest.approx(1.234e6, rel=0.025)
    assert not found["late"]


def test_loss_of_less_than_half_a_percent_is_below_pdr_and_above_ndr():
    found = search(gateway_of(lambda load: load if load < 1e6 else load * 0.996 if load < 2e6 else 1.9e6), Search())
    assert found["ndr_pps"] == pytest.approx(1e6, rel=0.025)
    assert found["pdr_pps"] == pytest.approx(2e6, rel=0.025)


def test_a_disturbed_trial_in_four_does_not_change_the_result():
    found = search(gateway_of(lambda load: 1.234e6, spoiled=range(3, 1000, 4)), Search())
    assert found["ndr_pps"] == pytest.approx(1.234e6, rel=0.05)


def test_of_several_searches_the_middle_one_counts_and_all_are_reported():
    found = searches(gateway_of(lambda load: 1.234e6), Search(searches=3))
    assert found["ndr_pps"] == found["ndr_pps_searches"][1] == pytest.approx(1.234e6, rel=0.025)
    assert len(found["pdr_pps_searches"]) == 3


def soaked(trial):
    return soak(trial, Soak(seconds=8, first_trial_seconds=0.2, trial_growth=0.005), 1.3e6)


def test_a_soak_finds_the_load_at_which_loss_begins():
    found = soaked(gateway_of(lambda load: 1.234e6))
    assert found["plr_pps"] == pytest.approx(1.234e6, rel=0.03)
    assert found["plr_stdev_pps"] < 0.03 * 1.234e6
    assert found["plr_trials"] > 10 and found["plr_seconds"] >= 8


def test_a_soak_finds_less_where_a_little_is_lost_below_the_greatest_rate():
    sharp = soaked(gateway_of(lambda load: 1.2e6))
    gradual = soaked(gateway_of(lambda load: load * (1 - 1e-3 * max(0, load / 1.2e6 - 0.6) ** 2)))
    assert gradual["plr_pps"] < 0.9 * sharp["plr_pps"]


@pytest.fixture
def speed(monkeypatch):
    """Of two cores that take 100 cycles at best, and 200 or more while there are numbers left in `slow`."""
    slow = []
    monkeypatch.setattr(Speed, "least", {})
    monkeypatch.setattr(Speed, "REST", 0)
    made = Speed(lambda: [100, slow.pop(0) if slow else 100])
    made.slow = slow
    return made


def test_a_trial_whose_cores_had_their_whole_speed_is_done_once(speed):
    assert speed.undisturbed(iter("abc").__next__) == "a"
    assert (speed.kept, speed.again) == ([1.0], 0)


def test_a_trial_whose_cores_were_slow_before_or_after_is_done_again(speed):
    speed.slow += [200, 100, 100, 200]
    assert speed.undisturbed(iter("abcd").__next__) == "c"
    assert (speed.kept, speed.again) == ([1.0], 2)


def test_where_all_trials_are_disturbed_the_least_disturbed_counts(speed):
    speed.slow += [300, 300, 250, 250, 200, 200, 400, 400]
    assert speed.undisturbed(iter("abcde").__next__) == "c"
    assert (speed.kept, speed.again) == ([2.0], 3)


def test_a_gateway_that_forwards_nothing_has_no_rate():
    found = search(gateway_of(lambda load: 0), Search())
    assert (found["ndr_pps"], found["pdr_pps"]) == (None, None)


@pytest.fixture
def facts():
    return yaml.safe_load((TREE / "bench/papers.yaml").read_text())


def test_the_papers_throughputs_become_cycles_of_a_core(facts):
    cycles = [
        round(report.their_cycles(paper, table))
        for paper in facts["papers"]
        for table in paper["tables"]
        if "gbit_per_second" in table
    ]
    # 80 cores at 1.7 GHz: 931 Gbit/s of 650 B, and 682 Gbit/s of 381 B in the mean; 86 at 2.1 GHz: 1 Tbit/s of 1,024 B.
    assert cycles == [760, 608, 1479]


def measured(facts, median):
    """A row of every scenario that the page speaks of, as the bench writes them, each with as many cycles."""
    sizes = {}
    for table in (table for paper in facts["papers"] for table in paper["tables"]):
        for ways in table["ours"].values():
            for way, names in ways.items():
                for name in [names] if isinstance(names, str) else names:
                    sizes.setdefault(name, set()).add(table["frames"][way]["bytes"])
    for name in ("ip4-1", "acl-150", "qinq-up-4k", "meter-4k", "hqos-4k", "rte-sched-4k"):
        sizes[name] = {128}
    figures = {"min": median - 5, "median": median, "max": median + 50}
    for name, of in sizes.items():
        for size in of:
            row = {"scenario": name, "packet_bytes": size, "flows": 4000, "cycles_per_packet": figures, "bare_loop": 40}
            yield row | {"workers": 1, "nodes": {"ip4-input": 20.0, "tx": 9.0, "acl-up": median - 20.0}}
            more = {"alone": figures, "compute_ratio": 1.0}
            yield row | more | {"workers": 2, "nodes": {"ip4-input": 20.0}}
    for name, frames, cycles in (("down", 62, 500), ("up-both", 46, 900), ("up-ue", 46, 300)):
        for size in (64, 1400):
            figures = {"min": cycles + size / 2, "median": cycles, "max": cycles}
            row = {"scenario": f"n3iwf-{name}", "packet_bytes": size + frames, "flows": 4000, "bare_loop": 40}
            yield row | {"workers": 1, "cycles_per_packet": figures, "nodes": {"esp-encrypt": 300.0}}
    for direction in ("enc", "dec"):
        for size, cycles in ((1, 50), (64, 100), (1518, 827)):
            figures = {"min": cycles, "median": cycles, "max": cycles}
            yield {"scenario": f"cipher-gcm128-{direction}", "packet_bytes": size, "cycles_per_packet": figures}


def gateway_row(name):
    ns = {"min": 900, "p50": 2000, "p90": 3000, "p99": 9000, "p99_9": 30000, "max": 2000000}
    conditions = {"tsc_hz": 2e9, "ring": 2048, "trial_seconds": [0.1, 0.2], "duration_sum": 1.0}
    return {
        "scenario": name,
        "flows": 4000,
        "packet_bytes": {"up": 650, "down": 650},
        "share_of_packets": {"up": 0.5, "down": 0.5},
        "ndr_pps": 4e6,
        "pdr_pps": 4.2e6,
        "mrr_pps": 4.4e6,
        "mrr_pps_trials": [4.3e6, 4.4e6, 4.5e6],
        "ndr_pps_searches": [3.9e6, 4e6, 4.1e6],
        "pdr_pps_searches": [4.2e6, 4.2e6, 4.2e6],
        "slowness": {"median": 1.01, "most": 1.1, "again": 2},
        "mrr_gateway_cycles_per_packet": {"graph": 150.0, "transmit": 100.0, "nodes": {}},
        "at_load": [{"percent_of_ndr": 50, "lost": 1, "offered": 10, "latency_ns": {"up": ns, "down": ns}}],
        "holds": False,
        "conditions": conditions | {"exceed_ratio": 0.5, "relative_width": 0.02, "searches": 3},
    }


def test_the_page_has_the_papers_tables_beside_ours_and_drawings_that_stand_alone(facts, tmp_path, monkeypatch):
    results, docs = tmp_path / "results", tmp_path / "docs"
    results.mkdir()
    docs.mkdir()
    router = {"router": "kernel", "pings": 10, "median_us": 4, "p99_us": 40, "processor": None}
    for name, rows in {
        "nodes": list(measured(facts, 152)),
        "ndr": [gateway_row("ndr-agf-symmetric")],
        "latency": [router],
        "run": {"date": "2026-01-01", "seconds": 1, "huge_pages": 1},
    }.items():
        (results / f"{name}.json").write_text(json.dumps(rows))
    monkeypatch.setattr(sys, "argv", ["report.py", str(results), str(docs)])
    report.main()
    page = (docs / "performance.md").read_text()
    # 152 of 760; and the whole gateway's 2 GHz / 4 Mpps = 500.
    assert "| symmetric: 650 B both ways | QinQ | 760 | 152 | 147 | 0.20 | 152 | 500 | 0.66 |" in page
    assert "| `hqos-4k` | 4,000 | 147 | 152 | 152 | 1.00 |" in page
    # The cipher is half a cycle a byte behind 64 of the frame, with 46 around the packet. 160 cycles at 35.
    assert "| 64 | 600 | 477 | 532 | 409 | 1.7 | 1.9 |\n| 1400 | 600 | -191 | 1200 | 409 | 37.3 | 18.7 |" in page
    assert "so 672 where it takes\n147 as" in page
    assert "| `ndr-agf-symmetric` | 650 / 650 | 4,000 | does not hold: 4.00 (3.90 to 4.10) |" in page
    drawings = sorted((docs / "performance").glob("*.svg"))
    assert {f"performance/{each.name}" for each in drawings} == {
        part.split(")")[0] for part in page.split("](") if part.startswith("performance/")
    }
    for each in drawings:
        root = ElementTree.parse(each).getroot()
        assert root.tag.endswith("svg") and "prefers-color-scheme:dark" in each.read_text()


def test_ciphers_have_a_row_each_with_their_sizes_in_order():
    def row(size, cycles):
        return {
            "scenario": "cipher-x-enc",
            "packet_bytes": size,
            "cycles_per_packet": {"min": cycles - 1, "median": cycles},
        }

    class Given:
        ciphers = [row(report.IMIX, 300), row(1518, 900), row(64, 100)]

    assert list(report.cipher_rows(Given)) == ["| `cipher-x-enc` | 100 (99) |  |  | 900 (899) | 300 (299) |"]


def test_esp_stands_beside_its_cipher_and_its_targets():
    def row(scenario, size, median):
        return {"scenario": scenario, "packet_bytes": size, "cycles_per_packet": {"min": median - 10, "median": median}}

    class Given:
        single: ClassVar[list] = [
            row("esp-gcm256-enc", 64, 249),
            row("esp-gcm256-enc-10k", 64, 400),
            row("esp-gcm256-enc-1600", report.IMIX, 300),
            row("esp-gcm256-enc", 1518, 600),
            row("esp-sm4gcm-enc", 64, 373),
            row("esp-sm4cbc-sm3-enc", 1418, 13000),
        ]
        ciphers: ClassVar[list] = [row("cipher-gcm256-enc", 64, 100)]

        def figure(self, scenario):
            return 70 if scenario == "ip4-1" else None

    page = esp.section(Given())
    # `ip4-1` takes 70, so targets in cycles count twice: 100 + 2 x 75.
    assert "| `esp-gcm256-enc` | 64 | 100 (90) | 249 (239) |  | 400 (390) |" in page
    assert "| `esp-gcm256-enc` | 1518 |  | 600 (590) |  |  |" in page
    assert "| `esp-gcm256-enc` | IMIX |  |  | 300 (290) |  |" in page
    assert "| `esp-gcm256-enc` | 64 | cipher + 75 | 250 | 249 | yes |" in page
    assert "| `esp-gcm256-enc-10k` | 64 | 1.25 of 4 tunnels | 311 | 400 | **no**: 1.29 times |" in page
    assert "| `esp-sm4gcm-enc` | 64 | 1.5 of AES-256-GCM | 374 | 373 | yes |" in page
    assert "| `esp-sm4cbc-sm3-enc` | 1418 | 6000 | 12000 | 13000 | **no**: 1.08 times |" in page
    Given.single = []
    assert esp.section(Given()) == ""


def test_tunnels_of_ike_stand_beside_configured_ones():
    def row(ndr, graph):
        rates = {"ndr_pps": ndr, "pdr_pps": None, "mrr_pps": 2 * ndr, "plr_pps": ndr, "plr_stdev_pps": 1e4}
        cycles = {"graph": graph, "transmit": 1.0, "nodes": {}}
        return rates | {"mrr_gateway_cycles_per_packet": cycles, "packet_bytes": {"up": 650}, "plr_seconds": 120.4}

    pairs = {"ndr-ipsec-static-1000": row(1e6, 800.0), "ndr-ipsec-ike-1000": row(0.99e6, 808.0)}
    pairs["ndr-ipsec-ike-1000"]["ratios"] = {"mrr_pps": [0.98, 0.995, 1.01], "graph": [1.0, 1.002, 1.003]}

    assert list(ike_pairs.rows(pairs)) == [
        "| 1,000 | NDR | 1.000 | 0.990 | 0.990 |",
        "| 1,000 | MRR | 2.000 | 1.980 | 0.995 (0.980 to 1.010) |",
        "| 1,000 | PLR | 1.000 ± 0.010 | 0.990 ± 0.010 | 0.990 |",
        "| 1,000 | graph | 800 | 808 | 1.002 (1.000 to 1.003) |",
    ]
    assert "650 bytes" in ike_pairs.section(pairs) and "in 120 s of trials" in ike_pairs.section(pairs)
    assert ike_pairs.section({}) == ""
