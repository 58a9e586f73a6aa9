# SPDX-License-Identifier: Apache-2.0
"""The data plane built for several levels of CPU: the best one is chosen, each forwards, and a message names missing
features. QEMU's user mode emulates other CPUs."""

import json
import re
import subprocess

import pytest
from lab import Lab
from lab.laboratory import TREE
from pop import IPOE, PPPOE, Pop, session

pytestmark = pytest.mark.long(reason="the data plane is compiled once more for each level")

PROGRAM = TREE / "build/levels/sluice-dataplane"
# The tests build those that this CPU runs, and the second.
LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
# The options of each level, so that each look-up way forwards once, where the CPU has it.
WAYS = {
    "x86-64-v2": {"acl": "sse", "ip4": "scalar", "ip6": "scalar"},
    "x86-64-v3": {"acl": "avx2", "ip4": "avx2", "ip6": "scalar"},
    "x86-64-v4": {"acl": "avx512x32", "ip4": "avx512", "ip6": "avx512"},
}


def start(*arguments, cpu=None, program=PROGRAM):
    """With --version, which ends at once; `cpu`: one that QEMU imitates."""
    assert program.exists(), "make levels builds the programs"
    imitated = ["qemu-x86_64", "-cpu", cpu] if cpu else []
    done = subprocess.run([*imitated, program, *arguments, "--version"], capture_output=True, text=True, timeout=60)
    said = [line for line in done.stderr.splitlines() if not line.startswith("qemu-x86_64: warning")]
    return done.returncode, done.stdout.strip(), "\n".join(said)


def runs_here(level):
    return start("--cpu", level)[0] == 0


@pytest.mark.parametrize("level", LEVELS)
def test_the_program_of_each_level_forwards_or_names_missing_features(level):
    if not runs_here(level):
        said = start("--cpu", level)[2]
        assert re.fullmatch(f"sluice-dataplane: --cpu {level}: this CPU has no .+; the best that it runs is .+", said)
        return
    ways = [option for way in WAYS[level].items() for option in ("--look-up", "=".join(way))]
    lines = [IPOE, PPPOE]
    with Lab() as lab:
        pop = Pop(lab, *map(session, lines), program=PROGRAM, options=["--cpu", level, *ways])
        with pop.losing_nothing(lines, 100):
            pass
        told = pop.gateway.json("version")["dataplane"]
        assert told["cpu"] == level
        assert {each["name"]: each["way"] for each in told["lookUps"]} == WAYS[level]
        assert f"built for {level}" in (text := pop.gateway.sluice("version").stdout)
        assert f"ip4 by {WAYS[level]['ip4']} (as asked)" in text


def test_by_default_it_runs_the_best_program_of_this_cpu():
    best = [level for level in LEVELS if runs_here(level)][-1]
    assert start() == (0, start("--cpu", best)[1], "") and start()[1].endswith(f" for {best}")


@pytest.mark.parametrize(("cpu", "best"), [("Nehalem", "x86-64-v2"), ("Haswell", "x86-64-v3")])
def test_on_another_cpu_it_runs_the_program_of_that_cpu(cpu, best):
    assert start(cpu=cpu)[1].endswith(f" for {best}")


def test_a_level_that_the_cpu_lacks_is_refused_in_a_sentence():
    assert start("--cpu", "x86-64-v3", cpu="Nehalem") == (
        1,
        "",
        "sluice-dataplane: --cpu x86-64-v3: this CPU has no AVX; the best that it runs is x86-64-v2",
    )


def test_a_cpu_without_a_program_gets_an_error_with_the_missing_features():
    assert start(cpu="core2duo") == (
        1,
        "",
        "sluice-dataplane: this CPU has no popcnt; x86-64-v2, the least that there is, needs it",
    )


def test_a_program_for_another_cpu_reports_it_before_anything_else():
    program = PROGRAM.with_name("sluice-dataplane-x86-64-v3")
    assert start(cpu="Nehalem", program=program) == (
        1,
        "",
        f"{program}: it is built for x86-64-v3, and this CPU has no AVX",
    )


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["--cpu", "pentium"], '--cpu takes x86-64-v2, x86-64-v3 or x86-64-v4, not "pentium"'),
        (["--look-up", "ip4"], '--look-up takes NAME=WAY, of these names: acl, ip4, ip6; not "ip4"'),
        (["--look-up", "ip5=scalar"], '--look-up takes NAME=WAY, of these names: acl, ip4, ip6; not "ip5=scalar"'),
        (["--look-up", "ip6=sse"], "--look-up ip6 takes scalar"),
        (["--crypto", "ip4=scalar"], "--crypto takes NAME=WAY, of these names: aes-cbc-sha1, "),
        (["--crypto", "aes-gcm=fast"], "--crypto aes-gcm takes cryptodev, ipsec-mb, "),
    ],
)
def test_invalid_options_are_refused_with_the_accepted_ones(arguments, answer):
    code, _, said = start(*arguments)
    assert code == 2 and said.startswith(f"sluice-dataplane: {answer}")


def test_measured_ways_are_shown_with_their_cycles_and_the_fastest_is_used():
    with Lab() as lab:
        pop = Pop(lab)
        told = json.loads(pop.gateway.sluice("version", "-o", "json").stdout)["dataplane"]
        assert "sm4-gcm" in [each["name"] for each in told["ciphers"]]
        assert "aes-gcm" in pop.gateway.sluice("version").stdout
        for each in told["lookUps"] + told["ciphers"]:
            assert each["cycles"] and all(cycles > 0 for cycles in each["cycles"].values())
            # Within the noise.
            assert each["cycles"][each["way"]] <= min(each["cycles"].values()) * 1.05
