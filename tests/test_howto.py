"""Each how-to is followed as it is written, where nothing is set up yet but the servers that it asks for."""

import pytest
from lab import Lab
from lab.laboratory import TREE
from lab.page import Page, Reader, checked

# Those that say what is typed from beginning to end, and the server that each asks for, by the name of its fixture.
PAGES = {
    "start": None,
    "configure": None,
    "change": None,
    "files": None,
    "etcd": "etcd_server",
    "redis": "redis_server",
    "kafka": "kafka_server",
    "rabbitmq": "rabbitmq_server",
    "grpc": None,
    "rest": None,
    "observe": None,
    "rate": None,
    "bng": None,
    "agf": None,
    "hqos": None,
    "instances": None,
}
READ = {name: Page(TREE / f"docs/how-to-{name}.md") for name in PAGES}
OMITTED = {f"{name}: {why}": steps for name, page in READ.items() for why, steps in page.omitted}


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_says_is_so(request, name):
    server = PAGES[name] and request.getfixturevalue(PAGES[name])
    with Lab() as lab:
        namespace = server.namespace if server else lab.namespace("reader")
        assert READ[name].steps
        Reader(lab, namespace, name).follow(READ[name])


@pytest.mark.parametrize("why", OMITTED)
def test_what_cannot_run_here_is_at_least_what_a_shell_can_read(why):
    for step in OMITTED[why]:
        assert not checked(step.typed)
