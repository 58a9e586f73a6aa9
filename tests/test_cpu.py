"""The data plane built for several kinds of CPU: the best is chosen, each forwards, and what this one lacks is said in
words. Other CPUs than the one at hand are those that QEMU's user mode imitates."""

import json
import re
import subprocess

import pytest
from lab import Lab
from lab.laboratory import TREE
from pop import IPOE, PPPOE, Pop, session

PROGRAM = TREE / "build/levels/sluice-dataplane"
# Those that were built.
LEVELS = [
    level
    for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    if PROGRAM.with_name(f"sluice-dataplane-{level}").exists()
]
# What each level is run with, so that each way to look something up forwards once, where the CPU has it.
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
def test_the_program_of_each_level_forwards_or_says_what_this_cpu_lacks(level):
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


def test_without_being_told_it_becomes_the_best_that_this_cpu_runs():
    best = [level for level in LEVELS if runs_here(level)][-1]
    assert start() == (0, start("--cpu", best)[1], "") and start()[1].endswith(f" for {best}")


@pytest.mark.parametrize(("cpu", "best"), [("Nehalem", "x86-64-v2"), ("Haswell", "x86-64-v3")])
def test_on_another_cpu_it_becomes_what_that_runs(cpu, best):
    assert start(cpu=cpu)[1].endswith(f" for {best}")


def test_a_level_that_the_cpu_lacks_is_refused_in_a_sentence():
    assert start("--cpu", "x86-64-v3", cpu="Nehalem") == (
        1,
        "",
        "sluice-dataplane: --cpu x86-64-v3: this CPU has no AVX; the best that it runs is x86-64-v2",
    )


def test_a_cpu_for_which_there_is_no_program_is_told_what_it_lacks():
    assert start(cpu="core2duo") == (
        1,
        "",
        "sluice-dataplane: this CPU has no popcnt; x86-64-v2, the least that there is, needs it",
    )


def test_a_program_that_is_started_on_a_cpu_that_it_is_not_for_says_so_before_anything_else():
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
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(arguments, answer):
    code, _, said = start(*arguments)
    assert code == 2 and said.startswith(f"sluice-dataplane: {answer}")


def test_what_was_tried_at_the_start_is_told_with_its_cycles_and_the_fastest_is_used():
    with Lab() as lab:
        pop = Pop(lab)
        for each in json.loads(pop.gateway.sluice("version", "-o", "json").stdout)["dataplane"]["lookUps"]:
            assert all(cycles > 0 for cycles in each["cycles"].values())
            # Up to what is too near to tell.
            assert each["cycles"][each["way"]] <= min(each["cycles"].values()) * 1.05
