# SPDX-License-Identifier: Apache-2.0
"""Builds and tests as a person sees them: tools/step.sh, tools/test.py."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from lab import Lab
from lab.laboratory import TREE, ProcessDiedError, wait_until


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


# Runs stages that are written in a test, as tools/test.py runs its own.
RUN = """
import importlib.util, json, sys
sys.path.insert(0, "{tools}")
spec = importlib.util.spec_from_file_location("runner", "{tools}/test.py")
runner = sys.modules["runner"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runner)
Outcome = runner.Outcome
{stages}
screen = runner.Screen(stages)
times, outcomes, failed = runner.run(stages, screen)
sys.exit(failed)
"""


def run_stages(tmp_path, stages):
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST") and name != "ONLY"}
    return subprocess.run(
        [sys.executable, "-c", RUN.format(tools=TREE / "tools", stages=textwrap.dedent(stages))],
        capture_output=True, text=True, cwd=tmp_path, env=env | {"SLUICE_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip


def test_the_end_counts_tests_and_says_how_to_run_a_failed_one_again(tmp_path):
    done = run_stages(tmp_path, """
        def first():
            yield 3
            yield Outcome("good", "passed")
            yield Outcome("left out", "skipped", output="it is too early")
            yield Outcome("bad", "failed", 0, ["sh", "-c", "echo still; exit 1"], "it said why")
        stages = {"first": first, "second": lambda: iter([1, Outcome("other", "passed")])}
    """)  # fmt: skip
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stdout + done.stderr
    assert lines[-1] == "2 passed, 1 failed"
    assert "skipped: left out: it is too early" in lines and "it said why" in lines
    assert lines[lines.index("failed: bad", len(lines) // 2) + 1] == "    again: sh -c 'echo still; exit 1'"
    assert any(line.startswith("stages: first ") and ", second " in line for line in lines)
    assert (tmp_path / "build/test-logs/first-bad-1.txt").read_text() == "it said why"
    assert (tmp_path / "build/test-logs/first-bad-2.txt").read_text() == "still\n"


def test_what_passes_when_run_again_alone_is_flaky_and_more_than_three_fail_the_run(tmp_path):
    flaky = """
        tests = [Outcome(f"t{{n}}", "failed", 0, ["true"], "late") for n in range({count})]
        stages = {{"only": lambda: iter([None, *tests])}}
    """
    done = run_stages(tmp_path, flaky.format(count=3))
    assert done.returncode == 0 and done.stdout.endswith("\n3 passed, 0 failed\n"), done.stdout + done.stderr
    assert done.stdout.count("\nflaky: t") == 3
    done = run_stages(tmp_path, flaky.format(count=4))
    assert done.returncode == 1 and "failed: 4 flaky tests; the limit is 3\n" in done.stdout, done.stdout + done.stderr


def test_a_set_up_that_fails_all_tests_of_a_file_is_one_flaky_cause(tmp_path):
    done = run_stages(tmp_path, """
        tests = [Outcome(f"t{n}", "failed", 0, ["true"], "no server", in_setup=True, group="f") for n in range(20)]
        stages = {"only": lambda: iter([20, *tests])}
    """)  # fmt: skip
    assert done.returncode == 0 and done.stdout.endswith("\n20 passed, 0 failed\n"), done.stdout + done.stderr
    assert done.stdout.count("once more, alone") == 1 and done.stdout.count("\nflaky: t") == 20


@pytest.mark.parametrize(
    "death",
    [
        "panic: runtime error: index out of range",
        "WARNING: DATA RACE",
        "==1==ERROR: AddressSanitizer: heap-buffer-overflow",
        "killed by SIGSEGV",
        "signal: killed",
        "gre.c:12:3: runtime error: index 4 out of bounds for type 'int[4]'",
        "Test failed with exception: Segmentation fault(11)",
        "worker 'gw0' crashed while running 'test_gre.py::test_a'",
        "a process died: gateway-dataplane.log",
        "left behind: sluice-1-2-x",
    ],
)
def test_a_death_is_never_flaky(tmp_path, death):
    done = run_stages(tmp_path, f"""
        stages = {{"only": lambda: iter([1, Outcome("bad", "failed", 0, ["touch", "again"], "some\\n{death}\\n")])}}
    """)  # fmt: skip
    assert done.returncode == 1 and "failed: bad (a death)\n" in done.stdout, done.stdout + done.stderr
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("kill -SEGV $$", "SIGSEGV"),
        ("kill -KILL $$", "SIGKILL"),
        ("echo 'panic: index out of range'; exit 2", "panic: index out of range"),
        ("exit 1", None),
        ("echo 'panic: of a peer'", None),
    ],
)
def test_a_laboratory_ends_with_an_error_if_one_of_its_processes_died(program, why):
    lab = Lab()
    process = lab.process(lab.namespace("one"), "sh", "-c", program, log="one.log")
    process.child.wait(15)
    if why:
        with pytest.raises(ProcessDiedError, match=f"^a process died: one.log: {why}$"):
            lab.close()
    else:
        lab.close()


def test_what_a_test_kills_has_not_died():
    with Lab() as lab:
        lab.process(lab.namespace("one"), "sleep", "60").kill()


@pytest.mark.parametrize("number", ["INT", "TERM", "KILL"])
def test_go_tests_leave_nothing_when_the_runner_is_killed(tmp_path, number):
    script = tmp_path / "go"
    script.write_text(
        "#!/bin/sh\n"
        "trap '' TERM INT\n"
        "ip netns add left-behind; mount -t tmpfs tmpfs /mnt; sh -c 'exec sleep 98.76543' &\n"
        "touch here; wait\n"
    )
    script.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST") and name != "ONLY"}
    stages = textwrap.dedent("""
        runner.GO = "./go"
        runner.go_packages = lambda only: ["./it"]
        for number in (runner.signal.SIGTERM, runner.signal.SIGINT):
            runner.signal.signal(number, runner.end_children)
        stages = {"go": lambda: runner.go_tests(None)}
    """)
    runner = subprocess.Popen(
        [sys.executable, "-c", RUN.format(tools=TREE / "tools", stages=stages)], cwd=tmp_path, env=env,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until((tmp_path / "here").exists, 30, "the tests run")
        runner.send_signal(getattr(signal, f"SIG{number}"))
        runner.wait(40)
    finally:
        runner.kill()

    def running():
        found = subprocess.run(["pgrep", "-fx", "sleep 98.76543"], capture_output=True, text=True)
        return found.stdout.split()

    wait_until(lambda: not running(), 30, "its processes end")
    assert not Path("/run/netns/left-behind").exists()
    assert " /mnt " not in Path("/proc/mounts").read_text()


def test_a_defect_of_a_stage_is_a_failure_and_the_other_stages_run(tmp_path):
    done = run_stages(tmp_path, """
        def first():
            yield 1
            raise OSError("no space left")
        stages = {"first": first, "second": lambda: iter([1, Outcome("other", "passed")])}
    """)  # fmt: skip
    assert done.returncode == 1 and done.stdout.endswith("\n1 passed, 1 failed\n"), done.stdout + done.stderr
    assert "OSError: no space left\n" in done.stdout


def test_what_cannot_be_built_fails_and_the_other_stages_run(tmp_path):
    done = run_stages(tmp_path, """
        def first():
            runner.make("sh", "-c", "echo no such file; exit 1")
            yield 1
        stages = {"first": first, "second": lambda: iter([1, Outcome("other", "passed")])}
    """)  # fmt: skip
    assert done.returncode == 1 and done.stdout.endswith("\n1 passed, 1 failed\n"), done.stdout + done.stderr
    assert "no such file\n" in done.stdout and "again: sh -c 'echo no such file; exit 1'\n" in done.stdout


# Ended in its setup, its call and its teardown; and by a signal.
TESTS = """
    import os, pytest
    @pytest.fixture
    def early(): raise OSError("early")
    @pytest.fixture
    def late():
        yield
        raise OSError("late")
    def test_good(): pass
    def test_bad(): assert 1 == 2
    def test_early(early): pass
    def test_late(late): pass
    def test_skipped(): pytest.skip("no")
    @pytest.mark.parametrize("of", ["kafka", "redis"])
    def test_one(of): pass
    def test_dies(): os.kill(os.getpid(), 11) if "PYTEST_XDIST_WORKER" in os.environ else None
"""


def outcomes(tmp_path, only="None", options=(), broken=()):
    (tmp_path / "test_it.py").write_text(textwrap.dedent(TESTS))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name in broken:
        (tmp_path / name).write_text("import nothing_has_this_name\n")
    done = run_stages(tmp_path, f"""
        runner.PYTHON, stages = sys.executable, {{}}
        runner.LOGS.mkdir(parents=True, exist_ok=True)
        total, *ended = runner.pytest_run("log", [".", *{list(options)}], only={only})
        print(json.dumps([total, {{each.name: [each.result, each.output] for each in ended}}]))
        sys.exit()
    """)  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else done.stderr


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_each_end_to_end_test_ends_once_with_the_worst_of_its_phases(tmp_path, options):
    total, ended = outcomes(tmp_path, options=options)
    assert total == 8
    results = {name.removeprefix("test_it.py::"): result for name, (result, _) in ended.items()}
    assert results == {
        "test_good": "passed", "test_bad": "failed", "test_early": "failed", "test_late": "failed",
        "test_skipped": "skipped", "test_one[kafka]": "passed", "test_one[redis]": "passed",
        "test_dies": "failed" if options else "passed",
    }  # fmt: skip
    assert "assert 1 == 2" in ended["test_it.py::test_bad"][1]


@pytest.mark.parametrize("options", [(), ("-n", "1")])
@pytest.mark.parametrize("broken", [("test_one.py",), ("test_one.py", "test_two.py"), ("conftest.py",)])
def test_a_file_of_end_to_end_tests_that_cannot_be_imported_fails(tmp_path, broken, options):
    _, ended = outcomes(tmp_path, options=options, broken=broken)
    failed = {name: output for name, (result, output) in ended.items() if result == "failed"}
    assert any("nothing_has_this_name" in output for output in failed.values())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pppoe", None),
        ("gre", None),
        ("two-addresses", None),
        ("radus", "test: radus: no test matches this name; did you mean radius"),
        ("qqq", "test: qqq: no test matches this name; names are folders"),
    ],
)
def test_a_name_that_no_test_has_is_refused_at_once(tmp_path, name, why):
    done = run_stages(tmp_path, f"""
        import os
        os.chdir("{TREE}")
        print(runner.unknown("{name}"))
        sys.exit()
    """)  # fmt: skip
    assert done.stdout.startswith(str(why)), done.stdout + done.stderr


def test_a_concepts_name_selects_files_tests_and_parameters(tmp_path):
    total, ended = outcomes(tmp_path, only="'kafka'")
    assert (total, list(ended)) == (1, ["test_it.py::test_one[kafka]"])
    assert outcomes(tmp_path, only="'kaf'") == [0, {}]


def test_a_change_selects_the_tests_that_it_touches(tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=tmp_path, check=True)

    concept = tmp_path / "dataplane/gre"
    for folder in (concept, tmp_path / "dataplane/ip", tmp_path / "agent/gre", tmp_path / "tests"):
        folder.mkdir(parents=True)
    (tmp_path / "dataplane/includes.txt").write_text("ip:\ngre: ip\nacl:\n")
    (concept / "meson.build").write_text("tests += {\n  'gre-keys': files('keys_test.c'),\n}\n")
    (concept / "keys_test.c").write_text("one\n")
    (tmp_path / "dataplane/ip/ip.c").write_text("one\n")
    (tmp_path / "agent/gre/gre_test.go").write_text("func TestA(t *T) {\n\tone\n}\n\nfunc TestB(t *T) {\n\tone\n}\n")
    (tmp_path / "tests/test_gre.py").write_text("def test_a():\n    one\n\n\ndef test_b():\n    one\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    (concept / "keys_test.c").write_text("two\n")
    (tmp_path / "agent/gre/gre_test.go").write_text("func TestA(t *T) {\n\tone\n}\n\nfunc TestB(t *T) {\n\ttwo\n}\n")
    (tmp_path / "tests/test_gre.py").write_text("def test_a():\n    two\n\n\ndef test_b():\n    one\n")
    (tmp_path / "tests/test_new.py").write_text("class TestIt:\n    def test_c(self):\n        one\n")
    script = """
        import json
        from changes import Change
        change = Change()
        print(json.dumps([change.tests("py", "go"), change.lint(), change.touches_c("gre"), change.touches_c("ip")]))
    """

    def change():
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(TREE / "tools")},
        )  # fmt: skip
        return json.loads(done.stdout)

    tests, lint, *folders = change()
    assert {name: words[3:] for name, words in tests.items()} == {
        "agent/gre/gre_test.go": ["-count=1", "-run", "^(TestB)$", "./agent/gre"],
        "dataplane/gre/keys_test.c": ["build/dataplane", "--print-errorlogs", "gre-keys"],
        "tests/test_gre.py": ["tests/test_gre.py::test_a"],
        "tests/test_new.py": ["tests/test_new.py::TestIt::test_c"],
    }
    assert lint["lint-c"] == ["C_FILES=dataplane/gre/keys_test.c"] and folders == [True, False]
    git("add", "-A")
    git("commit", "-qm", "two")
    (tmp_path / "dataplane/ip/ip.c").write_text("two\n")
    # Folders that may include it, too.
    assert change()[2:] == [True, True]
