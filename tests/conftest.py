# SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import logging
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import contract  # noqa: F401
import pytest
from lab import Lab
from lab.etcd import EtcdServer
from lab.kafka import KafkaServer
from lab.n3iwf import ues  # noqa: F401
from lab.rabbitmq import RabbitmqServer
from lab.redis import RedisServer
from pop import Pop

logging.getLogger("scapy").setLevel(logging.ERROR)
# They log every attempt to connect.
for client in ("kafka", "pika"):
    logging.getLogger(client).setLevel(logging.CRITICAL)


def pytest_configure(config):
    if os.geteuid() != 0:
        sys.exit("the end-to-end tests make network namespaces, which needs root")
    # So that a terminated run ends through its fixtures, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


# Tests in several processes at once (pytest -n 2). The first of them, which has no tests, has made build/python by
# importing it above. A slow server starts once: all tests that need it are in one process.
SERVERS = ("kafka", "rabbitmq", "etcd", "redis")
# The longest first, so that all processes end at about the same time: as the last run was, or else these.
LONG = (
    "tests/test_example.py", "tests/test_howto.py", "tests/test_sctp.py", "tests/test_n3iwf.py",
    "tests/test_ike_gateways.py", "tests/test_cpe.py", "rabbitmq", "etcd", "tests/test_conformance.py",
    "tests/test_worker.py", "tests/test_port.py", "tests/test_dhcp_relay.py", "tests/test_ike_hostile.py",
    "tests/test_restart.py", "tests/test_access.py", "tests/test_radius.py", "tests/test_pppoe_guest.py",
    "tests/test_change.py", "tests/test_ipoe.py",
)  # fmt: skip


def group(nodeid):
    """The group of tests that run one after the other in one process: that of a server, or else of a file."""
    parameters = nodeid.partition("[")[2]
    return next((server for server in SERVERS if parameters.startswith(server)), nodeid.partition("::")[0])


# For all clones on the machine.
DURATIONS = Path(os.environ.get("SLUICE_CACHE") or Path.home() / ".cache/sluice") / "test-durations.json"
# Of this run, in the process that the others report to.
seconds = Counter()


def longest_first():
    with contextlib.suppress(OSError, ValueError):
        durations = json.loads(DURATIONS.read_text())
        return sorted(durations, key=durations.get, reverse=True)
    return LONG


# One broker and one store are enough for every run.
ELSEWHERE = {"kafka": "RabbitMQ is a broker in every run", "redis": "etcd is a store in every run"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if reason := ELSEWHERE.get(group(item.nodeid)):
            item.add_marker(pytest.mark.long(reason=reason))
        if any(not marker.kwargs.get("reason") for marker in item.iter_markers("long")):
            raise pytest.UsageError(f"{item.nodeid}: the marker long needs a reason")
    groups = longest_first()
    order = {each: number for number, each in enumerate(groups)}
    items.sort(key=lambda item: order.get(group(item.nodeid), len(groups)))


def pytest_runtest_logreport(report):
    seconds[group(report.nodeid)] += report.duration


def pytest_terminal_summary(terminalreporter, config):
    """Where the time went. A run of the whole stage keeps it for the next."""
    if config.args == ["tests"] and config.option.markexpr == "not long" and not os.environ.get("ONLY"):
        with contextlib.suppress(OSError):
            DURATIONS.parent.mkdir(parents=True, exist_ok=True)
            made = DURATIONS.with_suffix(f".{os.getpid()}")
            made.write_text(json.dumps({name: round(of, 1) for name, of in seconds.items()}, indent=1))
            made.replace(DURATIONS)
    if len(seconds) > 5:
        slowest = ", ".join(f"{name.removeprefix('tests/')} {of:.0f} s" for name, of in seconds.most_common(8))
        terminalreporter.write_line(f"the slowest groups of {len(seconds)}: {slowest}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    # Else by the number of tests.
    config.option.loadscopereorder = False

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group(nodeid)

    return ByGroup(config, log)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    """A test ends after TEST_SECONDS plus the SECONDS of its module, even if it waits."""

    def late(*_):
        raise TimeoutError("the test took too long")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(int(os.environ.get("TEST_SECONDS", "180")) + int(getattr(item.module, "SECONDS", 0)))
    yield
    signal.alarm(0)


pytest_runtest_setup = pytest_runtest_teardown = pytest_runtest_call


@pytest.fixture(scope="module")
def lab():
    with Lab() as made:
        yield made


# Servers that are slow to start serve a whole run, in namespaces of their own, from the first test that asks for one.
@pytest.fixture(scope="session")
def kafka_server():
    with Lab() as lab:
        server = KafkaServer(lab, lab.namespace("kafka"))
        server.start()
        yield server


@pytest.fixture(scope="session")
def rabbitmq_server():
    with Lab() as lab:
        server = RabbitmqServer(lab, lab.namespace("rabbitmq"))
        server.start()
        yield server


@pytest.fixture(scope="session")
def etcd_server():
    with Lab() as lab:
        server = EtcdServer(lab, lab.namespace("etcd"))
        server.start()
        yield server


@pytest.fixture(scope="session")
def redis_server():
    with Lab() as lab:
        server = RedisServer(lab, lab.namespace("redis"))
        server.start()
        yield server


@pytest.fixture(scope="module")
def pop(lab):
    return Pop(lab)


@pytest.fixture(autouse=True)
def nothing_left_from_the_test_before(request):
    """Frames of an earlier test are not seen by a later one."""
    if "pop" in request.fixturenames:
        request.getfixturevalue("pop").drain()


# tools/test.py writes them into files.
LOG_LENGTH = 200_000 if "OUTCOMES" in os.environ else 3000


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows the ends of the processes' logs."""
    report = (yield).get_result()
    lab = item.funcargs.get("lab") if hasattr(item, "funcargs") else None
    if report.failed and lab:
        for path in sorted(lab.directory.glob("*.log")):
            report.sections.append((path.name, path.read_text(errors="replace")[-LOG_LENGTH:]))
