# SPDX-License-Identifier: Apache-2.0
"""Each how-to is followed as it is written, where nothing is set up yet but the servers that it asks for."""

import pytest
from lab import Lab
from lab.laboratory import TREE
from lab.page import Page, Reader, checked

# Pages whose commands run from beginning to end, and the server that each needs, by the name of its fixture.
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
    "n2": None,
    "hqos": None,
    "qos-profiles": None,
    "instances": None,
    "radius": None,
    "walled-garden": None,
    "ipoe": None,
    "subscribers": None,
    "pppoe": None,
    "ipsec": None,
    "ipsec-ike": None,
    "n3iwf": None,
}
READ = {name: Page(TREE / f"docs/how-to-{name}.md") for name in PAGES}
OMITTED = {f"{name}: {why}": steps for name, page in READ.items() for why, steps in page.omitted}


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_have_the_shown_output(request, name):
    server = PAGES[name] and request.getfixturevalue(PAGES[name])
    with Lab() as lab:
        namespace = server.namespace if server else lab.namespace("reader")
        assert READ[name].steps
        Reader(lab, namespace, name).follow(READ[name])


@pytest.mark.parametrize("why", OMITTED)
def test_commands_that_cannot_run_here_are_valid_shell(why):
    for step in OMITTED[why]:
        assert not checked(step.typed)
