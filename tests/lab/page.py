# SPDX-License-Identifier: Apache-2.0
"""A page of the documentation as its reader follows it: its commands run, and their output is compared.

A block marked sh runs as it is. A block marked console has commands behind "$ ", each with its output below. A block
that cannot run has a comment before it: <!-- not run: why -->.
"""

import contextlib
import os
import re
import subprocess
import time
from dataclasses import dataclass

from .gateway import DATAPLANE, SLUICE
from .laboratory import TREE

BLOCK = re.compile(
    r"(?:<!-- not run: (?P<why>[^\n]*?) -->\n)?```(?P<kind>[a-z]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
# Commands that only show state: they are repeated until the output agrees with the page.
LOOKS = re.compile(
    r"sluice .*(get|describe|history|version|graph|diff|drops|ike list)\b|cat /|grep |curl -s(?!.* (-X|-d) )"
    r"|promtool query "
    r"|ip netns exec \S+ curl -s |etcdctl get |redis-cli (HGET|XRANGE|XREVRANGE) |kcat .*-C "
)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
AGE = re.compile(r"\b(\d+(\.\d+)?(ms|s|m|h|d))+\b")
ANYTHING = "…"

# The reader's changes of the machine are above it, and are removed with it, and so are all programs.
SHELL = """
mount -t tmpfs none "$1"
for place in /etc /var /run "$2"; do
	mkdir -p "$1$place/upper" "$1$place/work"
	mount -t overlay none -o "lowerdir=$place,upperdir=$1$place/upper,workdir=$1$place/work" "$place"
done
cd "$2"
set -o pipefail
trap 'wrong=$?' ERR
while IFS= read -r step <&3; do
	wrong=0
	. "$step" </dev/null >"$step.out" 2>&1 3<&- 4>&-
	echo "$((wrong != 0 ? wrong : $?))" >&4
done
"""


@dataclass
class Step:
    """A command, and its expected output; None: any output."""

    typed: str
    shown: str | None = None


class Wrong(Exception):
    """A page and the programs disagree."""


class Page:
    """Its commands in order, and the blocks that are not run."""

    def __init__(self, path):
        self.path, self.steps, self.omitted = path, [], []
        for found in BLOCK.finditer(path.read_text()):
            why, kind, text = found["why"], found["kind"], found["text"]
            if kind not in ("sh", "console"):
                assert not why, f"{path.name}: a block of {kind or 'no kind'} is never run"
                continue
            steps = [Step(text)] if kind == "sh" else list(self.console(text))
            if why:
                self.omitted.append((why, steps))
            else:
                self.steps += steps

    @staticmethod
    def console(text):
        """A command goes on in lines that begin with "> "."""
        step = None
        for line in text.splitlines(keepends=True):
            if line.startswith("$ "):
                if step:
                    yield step
                step = Step(line[2:], "")
            elif line.startswith("> ") and step and not step.shown:
                step.typed += line[2:]
            else:
                step.shown += line
        yield step


def normal(text):
    """Text without times, and without the widths of columns."""
    text = AGE.sub("AGE", TIME.sub("TIME", text))
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line]


def agrees(shown, seen):
    """Whether the output agrees with the page. There "…" stands for any text in its line, and alone for any lines."""
    pattern = ""
    for line in normal(shown):
        pattern += r"(.*\n)*" if line == ANYTHING else re.escape(line).replace(ANYTHING, ".*") + r"\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in normal(seen))) is not None


class Reader:
    """A shell in a namespace, with the programs on its path."""

    def __init__(self, lab, namespace, name):
        self.directory = lab.directory / name
        above = self.directory / "above"
        above.mkdir(parents=True)
        self.count = 0
        path = [os.path.dirname(program) for program in (SLUICE, DATAPLANE)] + [
            str(TREE / ".venv/bin"),
            os.environ["PATH"],
        ]
        unshared = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        shell = ["bash", "-c", "exec 3<&0 4>&1 </dev/null >/dev/null;" + SHELL, "reader", above, TREE]
        self.child = subprocess.Popen(
            ["ip", "netns", "exec", namespace.name, *unshared, *map(str, shell)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={"PATH": ":".join(path), "HOME": str(self.directory), "USER": "root", "LANG": "C.UTF-8"},
        )  # fmt: skip
        lab.on_close(self.close)

    def type(self, text):
        """Output and exit status of a command."""
        path = self.directory / f"step-{self.count:02}"
        path.write_text(text)
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.write(f"{path}\n")
            self.child.stdin.flush()
        status = self.child.stdout.readline()
        if not status:
            raise Wrong(f"the shell ended: {self.child.stderr.read()}")
        return path.with_suffix(".out").read_text(errors="replace"), int(status)

    def follow(self, page, seconds=30):
        """Runs a page's commands, and compares their output."""
        for step in page.steps:
            self.count += 1
            end = time.monotonic() + seconds
            while True:
                seen, status = self.type(step.typed)
                fine = status == 0 if step.shown is None else agrees(step.shown, seen)
                if fine or not LOOKS.match(step.typed) or time.monotonic() > end:
                    break
                time.sleep(0.2)
            if not fine:
                raise Wrong(
                    f"{page.path.name} does not say that:\n$ {step.typed}{seen}(it ended with {status}){self.logs()}"
                )

    def logs(self):
        """Output of programs in the background, each in the file of the step that started it, and the agent's log."""
        agent, _ = self.type("tail -v -c 1500 /var/log/sluice-agent.log 2>/dev/null || :")
        paths = sorted(self.directory.glob("step-*.out"))[:-1]
        return f"\n{agent}" + "".join(
            f"\n--- {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in paths
        )

    def close(self):
        self.child.kill()
        self.child.wait()


def checked(text):
    """Whether a shell could read it."""
    return subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False).stderr
