# SPDX-License-Identifier: Apache-2.0
"""gRPC over TCP: the command line from another host, with certificates and tokens."""

import json

import pytest
from lab import Gateway, thing, yaml
from lab.laboratory import wait_until
from lab.remote import Remote, certificates
from lab.rest import tokens

METER = {"algorithm": "srtcm", "committedRate": "100M", "committedBurst": "64KB"}


@pytest.fixture(scope="module")
def remote(lab):
    namespace = lab.namespace("remote")
    driver = Remote(lab, namespace)
    certificates(driver.directory, "agent", "controller", "somebody", "other/stranger")
    _, driver.file = tokens(driver.directory, reader="read", operator="operate", admin="admin")
    way = driver.northbound(clientCA=str(driver.directory / "ca.crt"), roles={"controller": "operate"})
    driver.gateway = Gateway(lab, namespace, northbounds=[way])
    wait_until(lambda: driver.sluice("version").returncode == 0, 30, "the agent answers over TCP")
    return driver


def apply(remote, *objects, **options):
    path = remote.directory / "objects.yaml"
    path.write_text(yaml(objects))
    return remote.sluice("apply", "-f", path, **options)


def test_objects_applied_over_tcp_belong_to_that_northbound(remote):
    done = apply(remote, thing("Meter", "home", **METER))
    assert done.returncode == 0, done.stderr
    found = remote.gateway.json("get", "meter", "home")
    found = found[0] if isinstance(found, list) else found
    assert found["status"]["owner"] == "grpc"
    assert found["status"]["state"] == "applied"
    history = json.loads(remote.sluice("history", "-o", "json", token="reader").stdout)
    assert history[0]["who"] == "operator"
    assert remote.sluice("delete", "meter", "home").returncode == 0


def test_an_error_over_tcp_is_the_same_as_over_the_socket(remote):
    done = apply(remote, thing("Session", "alice", access={"port": "p", "outerVlan": 5000}))
    assert done.returncode == 1
    assert "access.outerVlan: out of range: found 5000" in done.stderr


def test_each_role_limits_the_commands(remote):
    vrf = thing("Vrf", "red")
    assert remote.sluice("get", "vrfs", token="reader").returncode == 0
    assert remote.sluice("plan", "-f", "-", token="reader", input=yaml([vrf])).returncode == 0
    done = apply(remote, vrf, token="reader")
    assert "reader has the role read, and that needs operate" in done.stderr
    assert apply(remote, vrf).returncode == 0
    assert "needs admin" in remote.sluice("rollback", "1").stderr
    assert "needs admin" in remote.sluice("apply", "-f", "-", "--owner", "api", input=yaml([vrf])).stderr
    assert "needs admin" in remote.sluice("apply", "-f", "-", "--force", input=yaml([vrf])).stderr
    assert remote.sluice("apply", "-f", "-", "--owner", "api", token="admin", input=yaml([vrf])).returncode == 0
    assert remote.sluice("delete", "vrf", "red").returncode == 0
    assert remote.sluice("delete", "vrf", "red", "--owner", "api", token="admin").returncode == 0


def test_a_certificate_lets_in_by_its_name(remote):
    assert apply(remote, thing("Vrf", "red"), token=None, client="controller").returncode == 0
    assert remote.sluice("delete", "vrf", "red", token=None, client="controller").returncode == 0
    assert "somebody has no role" in remote.sluice("get", "vrfs", token=None, client="somebody").stderr
    assert "unknown caller" in remote.sluice("get", "vrfs", token=None, client="stranger").stderr
    assert "unknown caller" in remote.sluice("get", "vrfs", token=None).stderr


def test_an_agent_of_another_authority_is_not_trusted(remote):
    done = remote.sluice("--ca", remote.directory / "other.crt", "get", "vrfs")
    assert done.returncode == 1
    assert "certificate" in done.stderr


def test_a_token_that_is_taken_out_of_the_file_is_locked_out_at_once(remote):
    lines = remote.file.read_text()
    try:
        remote.file.write_text("".join(line for line in lines.splitlines(True) if not line.startswith("reader ")))
        assert "the token is not known" in remote.sluice("get", "vrfs", token="reader").stderr
        assert remote.sluice("get", "vrfs").returncode == 0
    finally:
        remote.file.write_text(lines)
    assert remote.sluice("get", "vrfs", token="reader").returncode == 0


def test_refused_callers_are_audited_without_their_tokens(remote):
    assert apply(remote, thing("Vrf", "red"), token="reader").returncode == 1
    log = remote.gateway.logs()["gateway-agent.log"]
    assert any(
        "outcome=forbidden" in line and "who=reader" in line and "address=127.0.0.1" in line
        for line in log.splitlines()
    )
    for name in ("reader", "operator", "admin"):
        assert (remote.directory / f"{name}.token").read_text().strip() not in log
