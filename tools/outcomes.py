# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that tools/test.py loads. It tells that program, through the pipe that OUTCOMES names, how many
tests there are and how each ended; and with ONLY it leaves out all that does not carry a concept's name."""

import json
import os
import re

import pytest

ORDER = ("passed", "skipped", "failed")


class Outcomes:
    """In the process that all others report to."""

    def __init__(self, pipe):
        self.pipe = os.fdopen(pipe, "w", buffering=1)
        self.told, self.open, self.set_up = False, {}, {}

    def tell(self, **entry):
        self.pipe.write(json.dumps(entry) + "\n")

    def tell_total(self, count):
        if not self.told:
            self.told = True
            self.tell(total=count)

    # With pytest -n, and without.
    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids):
        self.tell_total(len(ids))

    def pytest_collection_finish(self, session):
        if session.items:
            self.tell_total(len(session.items))

    def pytest_collectreport(self, report):
        if report.failed:
            self.tell_total(None)
            self.end(report.nodeid, "failed", 0, report.longreprtext)

    def pytest_runtest_logreport(self, report):
        """A test ends with its teardown; the worst of its phases counts."""
        result, seconds, output, logs = self.open.get(report.nodeid, ("passed", 0, "", ""))
        result = max(result, report.outcome, key=ORDER.index)
        if report.when == "setup":
            self.set_up[report.nodeid] = not report.failed
        if report.skipped and isinstance(report.longrepr, tuple):
            output = report.longrepr[2].removeprefix("Skipped: ")
        if report.failed:
            output += report.longreprtext + "\n"
            logs += "".join(f"-- {name}\n{text}\n" for name, text in report.sections)
        self.open[report.nodeid] = result, seconds + report.duration, output, logs
        # A process of tests that died has no phase.
        if report.when not in ("setup", "call"):
            self.end(report.nodeid, *self.open.pop(report.nodeid))

    def end(self, name, result, seconds, output, logs=""):
        group = name.partition("::")[0]
        in_setup = not self.set_up.pop(name, True)
        self.tell(
            name=name, result=result, seconds=seconds, output=output, logs=logs, group=group, in_setup=in_setup
        )  # fmt: skip

    def pytest_sessionfinish(self):
        self.tell_total(0)


def carries(text, name):
    """Whether a text has a concept's name as a word of its own: tests/test_pppoe_guest.py carries pppoe."""
    spelled = "[-_ ]".join(re.escape(word) for word in re.split("[-_ ]", name.lower()))
    return re.search(rf"(?:^|[^a-z0-9]){spelled}(?:$|[^a-z0-9])", text.lower()) is not None


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(int(os.environ["OUTCOMES"])))


def pytest_collection_modifyitems(config, items):
    name = os.environ.get("ONLY")
    if name:
        config.hook.pytest_deselected(items=[item for item in items if not carries(item.nodeid, name)])
        items[:] = [item for item in items if carries(item.nodeid, name)]
