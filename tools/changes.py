# SPDX-License-Identifier: Apache-2.0
"""The scope of a change: the files that differ from a commit, and the linters and tests that they select."""

import ast
import re
import subprocess
import sys
from pathlib import Path

# They decide what is built, or how: all linters and tests of the data plane.
SHARED = re.compile(
    r"^(?:Makefile|api/.*|dataplane/[^/]*|dataplane/(?:core|precompiled|cpu)/.*|tools/.*|\.clang-format)$"
)
C_FILE = re.compile(r"(?:dataplane|agent/sctp/process)/.*\.[ch]")


def git(*arguments):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"test: git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def c_tests():
    """The unit tests of the data plane: {name: files}. Each concept's meson.build names them."""
    found = {}
    for path in Path("dataplane").glob("**/meson.build"):
        for block in re.findall(r"^(?:tests|alone) \+= \{(.*?)\}", path.read_text(), re.M | re.S):
            for name, files in re.findall(r"'([\w-]+)': files\((.*?)\)", block, re.S):
                found[name] = [path.parent / each for each in re.findall(r"'([^']+)'", files)]
    return found


def python_tests(nodes, within=""):
    """Tests of a file or of a class: {name: (first line, last line)}."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            found |= python_tests(node.body, f"{within}{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found[within + node.name] = first, node.end_lineno
    return found


class Change:
    """All that differs from `base`: what is not committed, or, if all is, the last commit."""

    def __init__(self, base=""):
        dirty = git("status", "--porcelain").strip()
        self.base = base or ("HEAD" if dirty else "HEAD~1")
        self.new = git("ls-files", "--others", "--exclude-standard").splitlines()
        changed = git("diff", "--name-only", "--no-renames", self.base).splitlines()
        self.files = sorted(name for name in {*changed, *self.new} if Path(name).exists())
        # A removed file selects what its folder selects.
        self.touched = {*changed, *self.new}
        self.shared = any(SHARED.match(name) for name in self.touched)
        self.folders = self._folders()

    def _folders(self):
        """Folders of the data plane that changed, all that may include one of them (dataplane/includes.txt), and those
        whose tests do.
        """
        found = {name.split("/")[1] for name in self.touched if name.startswith("dataplane/") and name.count("/") > 1}
        for line in Path("dataplane/includes.txt").read_text().splitlines():
            name, colon, included = line.partition(":")
            if colon and not name.startswith("#") and found & set(included.split()):
                found.add(name)
        tests = [path for path in Path("dataplane").rglob("*_test.c") if path.parts[1] not in found]
        for path in tests:
            if found & set(re.findall(r'^#include "(\w+)/', path.read_text(), re.M)):
                found.add(path.parts[1])
        return found

    def touches_c(self, folder):
        """Whether unit tests in a folder of the data plane are to run."""
        return self.shared or folder in self.folders

    def touches_go(self):
        """Whether Go's tests are to run. Go itself knows which packages changed: the others' results are kept."""
        return self.shared or any(re.match(r"(?:agent|bench)/|go\.(?:mod|sum)$", name) for name in self.touched)

    def lint(self):
        """Linters, and what make is told: {target: variables}. Those of Go and Python remember or are quick."""
        found = {"lint-python": [], "lint-texts": []}
        if self.touches_go():
            found["lint-go"] = []
        files = [name for name in self.files if C_FILE.fullmatch(name)]
        if self.shared or files:
            # It formats those of agent/sctp/process in any case.
            ours = [name for name in files if name.startswith("dataplane/")]
            found["lint-c"] = [] if self.shared else [f"C_FILES={' '.join(ours)}"]
        return found

    def lines(self, name):
        """The numbers of the lines of a file that are new or changed; None for a new file."""
        if name in self.new:
            return None
        found = set()
        for first, count in re.findall(
            r"^@@ [^+]*\+(\d+)(?:,(\d+))? @@", git("diff", "-U0", self.base, "--", name), re.M
        ):
            found |= set(range(int(first), int(first) + max(1, int(count or 1))))
        return found

    def within(self, name, spans):
        """Those of {test: (first line, last line)} that changed. A change outside of them is one of them all."""
        lines = self.lines(name)
        if lines is None:
            return list(spans)
        found = [test for test, (first, last) in spans.items() if lines & set(range(first, last + 1))]
        inside = {line for first, last in spans.values() for line in range(first, last + 1)}
        return list(spans) if lines - inside else found

    def tests(self, python, go):
        """Commands that run the tests that the change adds or touches: {name: words}."""
        found = {}
        for name in self.files:
            path = Path(name)
            if re.fullmatch(r"tests/test_\w+\.py", name):
                spans = python_tests(ast.parse(path.read_text()).body)
                if tests := self.within(name, spans):
                    found[name] = [python, "-m", "pytest", *(f"{name}::{test}" for test in tests)]
            elif name.endswith("_test.go"):
                spans, lines = {}, path.read_text().splitlines()
                for number, line in enumerate(lines, 1):
                    if test := re.match(r"func (Test\w+)\(", line):
                        spans[test[1]] = (
                            number,
                            next(at for at in range(number, len(lines) + 1) if lines[at - 1] == "}"),
                        )
                if tests := self.within(name, spans):
                    command = [go, "test", "-vet=off", "-count=1", "-run", f"^({'|'.join(tests)})$"]
                    found[name] = [*command, f"./{path.parent}"]
            elif name.endswith("_test.c"):
                if tests := [test for test, files in c_tests().items() if path in files]:
                    found[name] = ["meson", "test", "-C", "build/dataplane", "--print-errorlogs", *tests]
        return found
