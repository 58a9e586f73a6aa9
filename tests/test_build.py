# SPDX-License-Identifier: Apache-2.0
"""The steps of a build as a person sees them (tools/step.sh)."""

import re
import subprocess

import pytest
from lab.laboratory import TREE


def step(tmp_path, script, unit="files"):
    return subprocess.run(
        [TREE / "tools/step.sh", "data plane", unit, "bash", "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
    )


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("[1/2] Compiling a.c\\n[2/2] Linking b\\n", "data plane: 2 files"),
        ("0 upgraded, 2 newly installed\\nSetting up a\\nSetting up b\\n", "data plane: 2 files"),
        ("go: downloading a.example/b v1\\na.example/b\\ninternal/abi\\nerrors\\n", "data plane: 3 files"),
        ("Reading package lists...\\n", "data plane: done"),
        ("ninja: no work to do.\\n", "data plane: up to date"),
    ],
)
def test_a_step_ends_with_one_line_of_counts(tmp_path, output, line):
    done = step(tmp_path, f"printf '{output}'")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.count("\n") == 1 and done.stdout.startswith(line)


def test_a_step_that_fails_shows_its_output_and_has_the_exit_code_of_its_command(tmp_path):
    done = step(tmp_path, "echo '[1/2] Compiling a.c'; echo 'a.c:1: error: no' >&2; exit 3")
    assert done.returncode == 3
    assert "a.c:1: error: no\n" in done.stdout and "Compiling" not in done.stdout
    assert (tmp_path / "build/logs/data-plane.log").read_text() == "[1/2] Compiling a.c\na.c:1: error: no\n"
    assert "data plane: failed (all of its output: build/logs/data-plane.log)" in done.stdout


def stub(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("kind", "failing", "count"),
    [
        ("fuzz", "nothing", 5),
        ("fuzz", "fuzz-keys", 5),
        ("fuzz", "FuzzOwners", 5),
        ("replay", "nothing", 4),
        ("replay", "fuzz-mutations", 4),
        ("replay", "fuzz-keys", 4),
    ],
)
def test_the_fuzzers_run_side_by_side_and_fail_if_one_of_them_does(tmp_path, kind, failing, count):
    for each in ("test.sh", "step.sh"):
        stub(tmp_path / "tools" / each, "")
        (tmp_path / "tools" / each).write_text((TREE / "tools" / each).read_text())
    (tmp_path / "agent/intent").mkdir(parents=True)
    (tmp_path / "agent/intent/owners_test.go").write_text(
        "func FuzzOwners(f *testing.F) {}\nfunc FuzzOthers(f *testing.F) {}\n"
    )
    for each in ("fuzz-mutations", "fuzz-frames", "fuzz-keys", "fuzz-requests"):
        stub(tmp_path / "build/fuzz/fuzz" / each, f'echo "ran $0"; [[ $0 != *{failing} ]]')
    (tmp_path / "build/fuzz/build.ninja").touch()
    stub(tmp_path / "bin/ninja", "")
    stub(tmp_path / ".venv/bin/python", "")
    stub(tmp_path / "bin/go", f'echo "ran $*"; [[ "$*" != *{failing}* ]]')
    done = subprocess.run(
        [tmp_path / "tools/test.sh", kind],
        capture_output=True,
        text=True,
        env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"},
    )
    assert done.stdout.count("\nran ") == count, done.stdout
    assert done.returncode == (failing != "nothing")
    assert re.search(rf"^-- {kind} took \d+ s; CPU: \d+ s in programs, \d+ s in the kernel$", done.stderr, re.M)
    assert f"kinds: {int(failing == 'nothing')} passed, {int(failing != 'nothing')} failed" in done.stdout
