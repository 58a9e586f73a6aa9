# SPDX-License-Identifier: Apache-2.0
"""Runs the tests, stage by stage, and says how they ended. The Makefile calls it: `make test`, `make test-all`, and
each stage alone.

    test.py [--only NAME] [--times] STAGE...
    test.py --changed [--base COMMIT]       formatters, linters and units of what changed
    test.py --repeat [--base COMMIT]        each test that a change adds or touches, ten times

Every stage runs, even if one before it failed. A test that failed runs once more at the end, alone, in a new process:
if it passes then it is flaky, and more than three flaky ones fail the run. A death (a signal, a panic, a sanitizer's or
race report, something left behind) fails at once. Outputs are in build/test-logs.
"""

import argparse
import contextlib
import ctypes
import difflib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from changes import Change, c_tests
from outcomes import carries

BUILD = Path("build")
LOGS = BUILD / "test-logs"
PYTHON, GO = ".venv/bin/python", "build/tools/go"
JOBS = int(os.environ.get("JOBS", "2"))
# End-to-end tests wait more than they compute.
PROCESSES = int(os.environ.get("E2E_PROCESSES", str(2 * JOBS)))
FUZZ_SECONDS = os.environ.get("FUZZ_SECONDS", "5")
MAX_FLAKY = 3
# With more failures than these, the change is at fault and not the machine.
MAX_RERUNS = 10
REPEATS = 10
# Seconds and tests of each stage in the last run of any clone: for the time that is left.
STAGE_TIMES = Path(os.environ.get("SLUICE_CACHE") or Path.home() / ".cache/sluice") / "stages.json"
# Tests that `test-all` runs longer than `test`.
SOAK = {
    "TEST_SECONDS": 1200, "CRASH_SECONDS": 300, "SCALE_SESSIONS": 8000, "BULK_OBJECTS": 10000, "MONKEY_SECONDS": 600,
    "IKE_TUNNELS": 10000, "IKE_SECONDS": 300, "AGF_LINES": 1000, "AGF_SECONDS": 300, "N3IWF_UES": 1000,
    "N3IWF_SECONDS": 60, "REST_KINDS": "all",
}  # fmt: skip
SOAKED = ("crash", "monkey", "ike_load", "n3iwf_load", "agf_load", "scale", "conformance", "rest")
DEATH = re.compile(
    r"^panic: (?!test timed out)|^fatal error: |WARNING: DATA RACE|AddressSanitizer|LeakSanitizer|:\d+: runtime error: "
    r"|killed by SIG|^signal: |Test failed with exception|libFuzzer: (?:deadly|out-of)"
    r"|worker '\w+' crashed|a process died: |left behind: ",
    re.M,
)


@dataclass
class Outcome:
    """One test. `again` is the command that runs it alone; without `may_flake` it is not run again."""

    name: str
    result: str  # passed, failed, skipped
    seconds: float = 0
    again: list = field(default_factory=list)
    output: str = ""
    _: KW_ONLY
    # Logs of the programs of the test: for its file.
    logs: str = ""
    # Its set-up failed, before the test.
    in_setup: bool = False
    # The unit whose times are summed: a file, a package, a linter.
    group: str = ""
    may_flake: bool = True
    stage: str = ""

    def died(self):
        return self.result == "failed" and DEATH.search(self.output + self.logs)

    def command(self):
        return shlex.join(map(str, self.again))


CHILDREN = set()
PRCTL = ctypes.CDLL(None).prctl


def with_parent():
    """The kernel sends SIGTERM to the calling process when its parent ends (PR_SET_PDEATHSIG)."""
    PRCTL(1, signal.SIGTERM)


def start(command, env=None, stderr=subprocess.STDOUT, **more):
    """A child in a process group of its own."""
    values = {name: str(value) for name, value in (os.environ | (env or {})).items() if not name.startswith("MAKE")}
    values.pop("MFLAGS", None)
    child = subprocess.Popen(
        [str(word) for word in command], start_new_session=True, stdin=subprocess.DEVNULL, stderr=stderr,
        preexec_fn=with_parent, env=values, **more,
    )  # fmt: skip
    CHILDREN.add(child)
    return child


def end_children(*_):
    """SIGTERM or Ctrl-C: running commands clean up first."""
    print(f"\ninterrupted; outputs of failed tests are in {LOGS}", flush=True)
    for child in list(CHILDREN):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
    for child in list(CHILDREN):
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    os._exit(130)


def once(command, log=None, env=None, stderr=subprocess.STDOUT):
    """Runs a command to its end: whether it succeeded, its output, and its seconds. With a pipe for stderr, the output
    has stderr only if the command failed.
    """
    begun = time.monotonic()
    child = start(command, env, stderr, stdout=subprocess.PIPE, text=True, errors="replace")
    output, errors = child.communicate()
    CHILDREN.discard(child)
    if errors and child.returncode != 0:
        output += errors
    if child.returncode < 0:
        output += f"\nkilled by {signal.Signals(-child.returncode).name}\n"
    if log:
        (LOGS / log).write_text(output)
    return child.returncode == 0, output, time.monotonic() - begun


def side_by_side(commands, run=once, may_flake=False):
    """Outcomes of commands {name: words}, as many at once as there are jobs."""

    def outcome(name, words):
        good, output, seconds = run(words)
        return Outcome(name, "passed" if good else "failed", seconds, words, output, group=name, may_flake=may_flake)

    with ThreadPoolExecutor(JOBS) as pool:
        for done in as_completed([pool.submit(outcome, name, words) for name, words in commands.items()]):
            yield done.result()


class BuildError(Exception):
    """A command before the tests of a stage failed."""

    def __init__(self, command, output):
        super().__init__(output)
        self.command = command


def make(*command, env=None):
    good, output, _ = once(command, env=env, stderr=subprocess.PIPE)
    if not good:
        raise BuildError(command, output)
    return output


# Stages. Each is a generator: first how many tests there will be, or None if only the end shows it, then each outcome.
# `only` is the concept's name or None.


def lint(only, change=None):
    files = change.lint() if change else {"lint-c": [], "lint-go": [], "lint-python": [], "lint-texts": []}
    yield len(files)
    yield from side_by_side({name: ["make", "--no-print-directory", name, *more] for name, more in files.items()})


# Lines of cmocka about tests that passed, and measurements of a start.
IN_ORDER = re.compile(r"\[ +(?:RUN|OK) +\]|look-up |crypto ")


def unit_c(only, change=None):
    known = [each["name"] for each in json.loads(make("meson", "introspect", "--tests", "build/dataplane"))]
    folders = dict.fromkeys(known, "crypto") | {name: files[0].parts[1] for name, files in c_tests().items()}
    names = [name for name in known if not only or carries(f"{name} {folders[name]}", only)]
    if change:
        names = [name for name in names if change.touches_c(folders[name])]
    yield len(names)
    if not names:
        return
    results = BUILD / "dataplane/meson-logs/testlog.json"
    results.unlink(missing_ok=True)
    # It builds what these tests need.
    command = ["meson", "test", "-C", "build/dataplane", "--num-processes", JOBS, "--quiet", *names]
    good, report, _ = once(command, "unit-c.txt")
    if not results.exists():
        raise BuildError(command, report)
    ended, failed = 0, False
    for line in results.read_text().splitlines():
        done = json.loads(line)
        name = done["name"].rpartition(" / ")[2]
        # Of a failed program, the tests that failed.
        said = "\n".join(line for line in done.get("stdout", "").splitlines() if not IN_ORDER.match(line))
        output = f"{said}\n{done.get('stderr', '')}"
        # meson ends what takes too long by a signal.
        if done["returncode"] < 0 and done["result"] != "TIMEOUT":
            output += f"\nkilled by {signal.Signals(-done['returncode']).name}\n"
        ended, failed = ended + 1, failed or done["result"] not in ("OK", "SKIP")
        result = {"OK": "passed", "SKIP": "skipped"}.get(done["result"], "failed")
        again = ["meson", "test", "-C", "build/dataplane", "--print-errorlogs", name]
        yield Outcome(name, result, done["duration"], again, output, group="dataplane/" + folders[name])
    if ended < len(names) or not (good or failed):
        yield Outcome(
            "meson test", "failed", 0, command, f"{ended} of {len(names)} tests ended\n{report}", may_flake=False
        )


MODULE = "sluice.dev/sluice/"


def camel_case(only):
    """TestGreKeys carries gre, and TestAgree does not."""
    word = re.sub("[-_ ]", "", only)
    return re.compile(rf"{re.escape(word[0].upper())}(?i:{re.escape(word[1:])})(?![a-z])")


def go_packages(only):
    packages = ["./" + each.removeprefix(MODULE) for each in make(GO, "list", "./...").splitlines()]
    if not only:
        return packages
    tests = {each: "".join(path.read_text() for path in Path(each).glob("*_test.go")) for each in packages}
    spelled = camel_case(only)
    return [
        each
        for each in packages
        if carries(each, only) or any(map(spelled.search, re.findall(r"^func (Test\w+)", tests[each], re.M)))
    ]


def apart():
    """The prefix of a command so that processes, mounts and network namespaces of its tests end with it, even if it
    is killed: `go` does not pass on signals. Without root there are no such tests.
    """
    if os.geteuid() != 0:
        return []
    first = 'trap "exit 130" INT TERM; mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && { "$@" & wait $!; }'
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", first, "sh"]
    # unshare blocks SIGTERM.
    return ["setpriv", "--pdeathsig", "KILL", *unshare]


def go_tests(only, *flags, change=None):
    packages = go_packages(only) if not change or change.touches_go() else []
    yield None
    if not packages:
        return
    # `make lint` vets.
    words = ["env", "CGO_ENABLED=1", GO, "test", "-vet=off", *flags]
    child = start([*apart(), *words, "-json", "-p", JOBS, *packages], stdout=subprocess.PIPE, text=True)
    outputs, failed = {}, set()
    with open(LOGS / f"go{''.join(flags)}.txt", "w") as log:
        for line in child.stdout:
            log.write(line)
            if not line.startswith("{"):
                outputs.setdefault(("", ""), []).append(line)
                continue
            event = json.loads(line)
            package = event.get("Package", event.get("ImportPath", "")).removeprefix(MODULE)
            test = event.get("Test", "")
            top = test.partition("/")[0]
            if event["Action"] in ("output", "build-output"):
                outputs.setdefault((package.partition(" ")[0], top), []).append(event["Output"])
            elif event["Action"] in ("pass", "fail", "skip") and test == top:
                result = {"pass": "passed", "fail": "failed", "skip": "skipped"}[event["Action"]]
                output = "".join(outputs.pop((package, top), []))
                again = [*words, "-count=1", f"./{package}"]
                seconds = event.get("Elapsed", 0)
                if test:
                    if result == "failed":
                        failed.add(package)
                    again += ["-run", f"^{test}$"]
                    yield Outcome(f"{package} {test}", result, seconds, again, output, group=package)
                elif result == "failed" and (package not in failed or DEATH.search(output)):
                    # It did not compile, or ended in the middle of a test.
                    rest = "".join("".join(text) for (of, _), text in outputs.items() if of == package)
                    failed.add(package)
                    yield Outcome(package, "failed", 0, again, rest + output, group=package)
    status = child.wait()
    CHILDREN.discard(child)
    if status != 0 and not failed:
        yield Outcome("go test", "failed", 0, words + packages, "".join(outputs.get(("", ""), [])), may_flake=False)


def namespaces():
    """Those of laboratories whose process is gone."""
    found = {path.name for path in Path("/run/netns").glob("sluice-*")} if Path("/run/netns").is_dir() else set()
    return {name for name in found if not Path("/proc", name.split("-")[1]).exists()}


def pytest_run(log, arguments, env=None, only=None):
    """Outcomes of a run of pytest, which outcomes.py writes into a pipe."""
    before = namespaces()
    read, write = os.pipe()
    given = {"OUTCOMES": write, "PYTHONPATH": Path(__file__).parent} | ({"ONLY": only} if only else {})
    command = [PYTHON, "-m", "pytest", *arguments]
    with open(LOGS / log, "w") as output:
        child = start([*command, "-p", "outcomes"], (env or {}) | given, stdout=output, pass_fds=[write])
    os.close(write)
    total, ended, failed = None, 0, False
    with open(read) as lines:
        # The first line has the number of tests.
        total = json.loads(next(lines, '{"total": null}'))["total"]
        yield total
        for line in lines:
            entry = json.loads(line)
            ended, failed = ended + 1, failed or entry["result"] == "failed"
            prefix = ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
            entry["again"] = [*prefix, PYTHON, "-m", "pytest", entry["name"]]
            yield Outcome(**entry)
    status = child.wait()
    CHILDREN.discard(child)
    # 0: all passed; 1: some failed; 5: there are none.
    # 2: files cannot be imported, which are failures.
    if status not in (0, 1, 2, 5) or (not failed and (status in (1, 2) or total is None or ended < total)):
        of = "" if total is None else f" of {total}"
        said = f"{ended}{of} tests ended\n{(LOGS / log).read_text()[-20000:]}"
        again = ["make", Path(log).stem, *([f"ONLY={only}"] if only else [])]
        yield Outcome("pytest", "failed", 0, again, said, may_flake=False)
    # Those that clean up have half a minute.
    for _ in range(60):
        left = namespaces() - before
        if not left:
            return
        time.sleep(0.5)
    yield Outcome("pytest", "failed", 0, command, f"left behind: {' '.join(sorted(left))}", may_flake=False)


def end_to_end(only):
    yield from pytest_run("e2e.txt", ["tests", "-m", "not long", "-n", PROCESSES], only=only)


def long(only):
    # The program of a CPU level that this CPU lacks cannot run here: it is not compiled.
    levels = "x86-64-v2,x86-64-v3"
    if "avx512vl" in Path("/proc/cpuinfo").read_text():
        levels += ",x86-64-v4"
    make("make", "--no-print-directory", "levels", f"LEVELS={levels}")
    yield from pytest_run("long.txt", ["tests", "-m", "long", "-n", PROCESSES], only=only)


def soak(only):
    """Long forms of tests, in turn: crashes under traffic, subscribers at random, more sessions and objects."""
    env = {name: os.environ.get(name, value) for name, value in SOAK.items()}
    yield from pytest_run("soak.txt", [f"tests/test_{name}.py" for name in SOAKED], env, only)


def harnesses():
    """Builds the harnesses in C, over the real nodes, under AddressSanitizer and UBSan, and their corpus of packets."""
    make("make", "--no-print-directory", "harnesses")
    found = sorted(path for path in Path("build/fuzz/fuzz").glob("fuzz-*") if path.is_file())
    return [path for path in found if os.access(path, os.X_OK) and path.name != "fuzz-mutations"]


CORPUS = "build/fuzz/corpus"
HARNESS = ["-timeout=10", "-print_final_stats=1", "-verbosity=0", "-artifact_prefix=build/fuzz/"]
UBSAN = ["env", "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1"]


def replay(only):
    """Each corpus once, and all mutations of the frames. Those of Go are replayed by its unit tests."""
    each = {path.name: [*UBSAN, path, "-runs=0", *HARNESS, f"{CORPUS}/{path.name[5:]}"] for path in harnesses()}
    each["fuzz-mutations"] = [*UBSAN, "build/fuzz/fuzz/fuzz-mutations", f"{CORPUS}/frames"]
    each = {name: words for name, words in each.items() if not only or carries(name, only)}
    yield len(each)
    yield from side_by_side(each)


def fuzz(only):
    """Each harness for a short time, and Go's fuzz targets."""
    each = {}
    for path in harnesses():
        grown = f"build/fuzz/grown/{path.name}"
        os.makedirs(grown, exist_ok=True)
        limit = f"-max_total_time={FUZZ_SECONDS}"
        each[path.name] = [*UBSAN, path, limit, *HARNESS, grown, f"{CORPUS}/{path.name[5:]}"]
    for path in sorted(Path("agent").rglob("*_test.go")):
        for target in re.findall(r"^func (Fuzz\w*)", path.read_text(), re.M):
            # Inputs are made smaller for a second at most: without that the time goes there.
            each[f"{path.parent} {target}"] = [
                GO, "test", "-vet=off", "-run=^$", f"-fuzz=^{target}$", f"-fuzztime={FUZZ_SECONDS}s",
                "-fuzzminimizetime=1s", "-parallel=1", f"./{path.parent}",
            ]  # fmt: skip
    each = {name: words for name, words in each.items() if not only or carries(name, only)}
    yield len(each)
    yield from side_by_side(each, until_the_time_is_over)


def until_the_time_is_over(words):
    """Go's fuzzer sometimes takes the end of its own time for an error: it checks its workers a moment before they get
    the signal to stop. A failing input is always named."""
    good, output, seconds = once(words)
    named = re.search(r"failing input|minimizing|seed corpus|panic|^ +--- FAIL", output, re.M | re.I)
    late = "\n    context deadline exceeded\n" in output and not named and output.count("--- FAIL") == 1
    return good or late, output, seconds


STAGES = {
    "lint": lint,
    "unit-c": unit_c,
    "unit-go": go_tests,
    "replay": replay,
    "e2e": end_to_end,
    "race": lambda only: go_tests(only, "-race"),
    "long": long,
    "soak": soak,
    "fuzz": fuzz,
}


class Screen:
    """Shows the stage, how many tests are done, and the time left: a line that changes on a terminal, else a line every
    ten seconds."""

    def __init__(self, stages, only=""):
        self.stages, self.before = list(stages), {}
        with contextlib.suppress(OSError, ValueError, TypeError):
            self.before = {
                stage: (seconds, tests) for stage, (seconds, tests) in json.loads(STAGE_TIMES.read_text()).items()
            }
        # A selection has other figures.
        if only:
            self.before = {}
        self.terminal = sys.stdout.isatty()
        self.shown, self.lock = 0, threading.RLock()

    def begin(self, stage):
        self.stage, self.total, self.done, self.failed = stage, None, 0, 0
        self.begun = self.shown = time.monotonic()
        print(f"{stage}: ...", end="" if self.terminal else "\n", flush=True)

    def left(self):
        """Seconds, if each stage that is left was timed before."""
        rest = self.stages[self.stages.index(self.stage) :]
        if not all(stage in self.before for stage in rest):
            return None
        return max(1, sum(self.before[stage][0] for stage in rest) - (time.monotonic() - self.begun))

    def follow(self):
        """Shows the state every second, until the event that it returns is set."""
        ended = threading.Event()

        def repeat():
            while not ended.wait(1):
                self.show()

        threading.Thread(target=repeat, daemon=True).start()
        return ended

    def show(self):
        with self.lock:
            self._show()

    def _show(self):
        now = time.monotonic()
        if not self.terminal and now < self.shown + 10:
            return
        self.shown = now
        # Go does not say how many there will be.
        about = f"about {self.before[self.stage][1]}" if self.stage in self.before else ""
        total = self.total or about
        text = f"{self.stage}: {self.done}{f' of {total}' if total else ''} tests"
        if self.failed:
            text += f", {self.failed} failed"
        if left := self.left():
            text += f", {left / 60:.0f} min left" if left > 90 else f", {left:.0f} s left"
        print(f"\r\033[K{text}" if self.terminal else text, end="" if self.terminal else "\n", flush=True)

    def line(self, text=""):
        with self.lock:
            print(f"\r\033[K{text}" if self.terminal else text, flush=True)

    def end(self, seconds):
        self.line(f"{self.stage}: {self.done} tests, {self.failed} failed, {seconds:.0f} s")

    def remember(self, times, outcomes):
        now = {stage: (round(seconds), len(outcomes[stage])) for stage, seconds in times.items()}
        with contextlib.suppress(OSError):
            STAGE_TIMES.parent.mkdir(parents=True, exist_ok=True)
            made = STAGE_TIMES.with_suffix(f".{os.getpid()}")
            made.write_text(json.dumps(self.before | now))
            made.replace(STAGE_TIMES)


def file_name(outcome, run):
    stage = f"{outcome.stage}-" if outcome.stage else ""
    return LOGS / (stage + re.sub(r"[^\w.-]+", "-", outcome.name)[-150:] + f"-{run}.txt")


def tail(text, lines=60):
    return "\n".join(text.rstrip().splitlines()[-lines:])


def run_stage(stage, call, screen):
    """All outcomes of a stage."""
    outcomes, shown = [], None
    screen.begin(stage)
    ended = screen.follow()

    def fail(command, why):
        outcomes.append(Outcome(stage, "failed", 0, command, why, may_flake=False))
        screen.failed += 1
        screen.line(tail(why, 100))

    try:
        tests = call()
        screen.total = next(tests)
        for outcome in tests:
            outcome.stage = stage
            outcomes.append(outcome)
            screen.done += 1
            if outcome.result == "failed":
                screen.failed += 1
                file_name(outcome, 1).write_text(outcome.output + outcome.logs)
                screen.line(f"failed: {outcome.name}")
                if outcome.output != shown:
                    screen.line(tail(outcome.output))
                shown = outcome.output
    except BuildError as error:
        fail(error.command, str(error))
    except Exception:
        fail([PYTHON, "tools/test.py", stage], traceback.format_exc())
    finally:
        ended.set()
    return outcomes


def causes(failed):
    """Failed tests by what failed: a module's set-up fails all of its tests with the same words."""
    found = {}
    for each in failed:
        alike = each.output if each.in_setup else each.name
        found.setdefault((each.group, alike), []).append(each)
    return list(found.values())


def again(failed, screen):
    """Runs the failed tests alone, those of one cause together: the causes that did not recur, which are flaky."""
    flaky = []
    candidates = causes([each for each in failed if each.may_flake and not each.died()])
    if len(candidates) > MAX_RERUNS:
        screen.line(f"failures of {len(candidates)} causes; the limit for another run is {MAX_RERUNS}")
        return flaky
    for tests in candidates:
        screen.line(f"once more, alone: {', '.join(each.name for each in tests)}")
        good, output, _ = once([*tests[0].again, *(each.name for each in tests[1:])])
        file_name(tests[0], 2).write_text(output)
        if good and not DEATH.search(output):
            flaky.append(tests)
    return flaky


def reason(output, lines=20):
    """What pytest says of an error, or else the last lines."""
    said = "\n".join(line for line in output.splitlines() if line.startswith("E  "))
    return "\n".join(said.splitlines()[:lines]) or tail(output, lines)


def table(outcomes, times):
    """Where the time goes, in Markdown: stages, and their slowest groups."""
    print("| stage | seconds on the clock | tests | its slowest groups, in seconds of their own |")
    print("| --- | ---: | ---: | --- |")
    for stage, seconds in times.items():
        groups = Counter()
        for each in outcomes[stage]:
            groups[each.group] += each.seconds
        slow = ", ".join(f"{Path(name).name} {of:.0f}" for name, of in groups.most_common(10) if of >= 2)
        print(f"| `{stage}` | {seconds:.0f} | {len(outcomes[stage])} | {slow} |")


def run(stages, screen, times_wanted=False):
    """Runs stages {name: call}: the exit status."""
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    outcomes, times = {}, {}
    for stage, call in stages.items():
        begun = time.monotonic()
        outcomes[stage] = run_stage(stage, call, screen)
        times[stage] = time.monotonic() - begun
        screen.end(times[stage])
    every = [each for stage in outcomes.values() for each in stage]
    failed = [each for each in every if each.result == "failed"]
    flaky = again(failed, screen)
    count = Counter(each.result for each in every)
    passed_later = [each for tests in flaky for each in tests]
    lost = [each for each in failed if each not in passed_later]
    print()
    if times_wanted:
        table(outcomes, times)
    print("stages: " + ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in times.items()))
    for tests in flaky:
        for each in tests:
            print(f"flaky: {each.name} ({file_name(each, 1)}, {file_name(tests[0], 2)})")
    for each in every:
        if each.result == "skipped":
            print(f"skipped: {each.name}{f': {each.output}' if each.output.count(chr(10)) == 0 else ''}")
    for tests in causes(lost):
        print(reason(tests[0].output))
    for each in lost:
        print(f"failed: {each.name}{' (a death)' if each.died() else ''}\n    again: {each.command()}")
    if len(flaky) > MAX_FLAKY:
        print(f"failed: {len(flaky)} flaky tests; the limit is {MAX_FLAKY}")
    print(f"{count['passed'] + len(passed_later)} passed, {len(lost)} failed", flush=True)
    return times, outcomes, bool(lost) or len(flaky) > MAX_FLAKY


def repeat(change, screen):
    """Each test that the change adds or touches, ten times; in two of them both cores are busy."""
    tests = change.tests(PYTHON, GO)
    if not tests:
        print(f"no test has changed since {change.base}")
        return 0
    spinners, failed = [], []
    LOGS.mkdir(parents=True, exist_ok=True)
    for number in range(1, REPEATS + 1):
        if number > REPEATS - 2:
            spinners = [start(["sh", "-c", "while :; do :; done"], stdout=subprocess.DEVNULL) for _ in range(JOBS)]
        try:
            for name, words in tests.items():
                good, output, seconds = once(words)
                ended = f"{'passed' if good else 'failed'}, {seconds:.0f} s"
                print(f"{number} of {REPEATS}{', busy' if spinners else ''}: {name}: {ended}", flush=True)
                if not good:
                    failed.append(name)
                    (LOGS / f"repeat-{len(failed)}.txt").write_text(output)
                    print(f"{tail(output)}\n    again: {shlex.join(words)}")
        finally:
            for each in spinners:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()
                CHILDREN.discard(each)
    print(f"{len(tests) * REPEATS - len(failed)} passed, {len(failed)} failed")
    return int(bool(failed))


def unknown(only):
    """Why no test can match a name; None: one may."""
    concepts = {path.stem for folder in ("api", "agent", "dataplane") for path in Path(folder).glob("*")}
    words = set(concepts)
    for path in [*Path("tests").glob("test_*.py"), *Path("agent").rglob("*_test.go")]:
        words |= {path.stem, *re.findall(r"^ *(?:def|func) ([Tt]est\w*)", path.read_text(), re.M)}
    if any(carries(each, only) or camel_case(only).search(each) for each in words):
        return None
    near = difflib.get_close_matches(only, sorted(concepts), 3, 0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; names are folders of api/, agent/ and dataplane/"
    return f"test: {only}: no test matches this name{hint}"


def mark_used():
    """Marks what the cache has for this clone: set-up removes what no clone has used for a month."""
    for link in (Path(".venv"), *BUILD.iterdir(), *(BUILD / "tools").iterdir()):
        if link.is_symlink():
            for folder in (link.resolve(), *link.resolve().parents):
                with contextlib.suppress(OSError):
                    os.utime(folder / ".complete")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", choices=[*STAGES, []], help=", ".join(STAGES))
    parser.add_argument("--only", default="", help="what carries this concept's name")
    parser.add_argument("--times", action="store_true", help="print where the time went")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--repeat", action="store_true")
    parser.add_argument("--base", default="", help="what changed since this commit; else since the last")
    given = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end_children)
    # make may be killed.
    with_parent()
    mark_used()
    change = Change(given.base) if given.changed or given.repeat else None
    if given.repeat:
        return repeat(change, Screen([]))
    if change:
        stages = {
            "lint": lambda: lint(None, change),
            "unit-c": lambda: unit_c(None, change),
            "unit-go": lambda: go_tests(None, change=change),
        }
    else:
        names = [name for name in given.stages if not (given.only and name == "lint")]
        stages = {name: (lambda call=STAGES[name]: call(given.only or None)) for name in names}
    if given.only and (wrong := unknown(given.only)):
        print(wrong)
        return 2
    screen = Screen(stages, given.only)
    times, outcomes, failed = run(stages, screen, given.times)
    if given.only and not any(outcomes.values()):
        print(f"test: {given.only}: no test matches this name; names are folders of api/, agent/ and dataplane/")
        return 2
    if not change and not given.only:
        screen.remember(times, outcomes)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
