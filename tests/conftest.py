import logging
import os
import signal
import sys

import contract  # noqa: F401
import pytest
from lab import Lab
from lab.etcd import EtcdServer
from lab.kafka import KafkaServer
from lab.rabbitmq import RabbitmqServer
from lab.redis import RedisServer
from pop import Pop

logging.getLogger("scapy").setLevel(logging.ERROR)
# They tell of every try to connect.
for client in ("kafka", "pika"):
    logging.getLogger(client).setLevel(logging.CRITICAL)


def pytest_configure(config):
    if os.geteuid() != 0:
        sys.exit("the end-to-end tests make network namespaces, which needs root")
    # So that a terminated run ends through its fixtures, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


# Tests in several processes at once (pytest -n 2). The first of them, which has no tests, has made build/python by
# importing it above. What is slow to start starts once: all who ask for it are in one process.
SERVERS = ("kafka", "rabbitmq", "etcd", "redis")
# The longest first, so that all processes end at about the same time.
LONG = (
    "kafka", "rabbitmq", "tests/test_conformance.py", "tests/test_rest.py", "redis", "tests/test_port.py",
    "tests/test_worker.py", "etcd", "tests/test_change.py", "tests/test_acl.py", "tests/test_metrics.py",
    "tests/test_example.py", "tests/test_crash.py", "tests/test_hqos.py", "tests/test_intent.py",
    "tests/test_scale.py", "tests/test_restart.py", "tests/test_howto.py", "tests/test_neighbor.py",
)  # fmt: skip


def group(nodeid):
    """What these tests run beside, one after the other in one process: a server, or else their file."""
    parameters = nodeid.partition("[")[2]
    return next((server for server in SERVERS if parameters.startswith(server)), nodeid.partition("::")[0])


def pytest_collection_modifyitems(items):
    order = {each: number for number, each in enumerate(LONG)}
    items.sort(key=lambda item: order.get(group(item.nodeid), len(LONG)))


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
def pytest_runtest_call():
    """No test takes longer than this, whatever it waits for. What it failed with is written down without haste."""

    def late(*_):
        raise TimeoutError("the test took too long")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(180)
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


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows the ends of the processes' logs."""
    report = (yield).get_result()
    lab = item.funcargs.get("lab") if hasattr(item, "funcargs") else None
    if report.failed and lab:
        for path in sorted(lab.directory.glob("*.log")):
            report.sections.append((path.name, path.read_text(errors="replace")[-3000:]))
