# SPDX-License-Identifier: Apache-2.0
"""NGAP (TS 38.413): the agent's codec against pycrate's, for generated messages of every type."""

import os

import pytest
from core import generate
from core.program import codec  # noqa: F401
from lab.laboratory import TREE
from pycrate_asn1rt.codecs import ASN1CodecPER

SEEDS = int(os.environ.get("NGAP_MESSAGES", "10"))


def procedures_of_the_agent():
    text = (TREE / "agent/ngap/generate/generate.py").read_text()
    line = next(line for line in text.splitlines() if line.startswith("PROCEDURES = "))
    return [int(number) for number in line.split("[")[1].rstrip("]").split(",")]


def messages():
    rows = generate.procedures()
    return [
        pytest.param(code, outcome, id=rows[code][outcome]._tr._name)
        for code in procedures_of_the_agent()
        for outcome in generate.OUTCOMES
        if outcome in rows[code]
    ]


@pytest.mark.parametrize(("code", "outcome"), messages())
def test_a_message_that_pycrate_encodes_is_decoded_and_encoded_to_the_same_octets(codec, code, outcome):  # noqa: F811
    thing = generate.procedures()[code][outcome]
    encoded = [
        generate.encode(code, outcome, generate.Generator(f"{thing._tr._name} {seed}").value(thing)).hex()
        for seed in range(SEEDS)
    ]
    assert codec([f"ngap {octets}" for octets in encoded]) == encoded
    # pycrate decodes the agent's octets: they are the same ones.
    for octets in encoded:
        generate.decode(bytes.fromhex(octets))


def test_a_reset_of_16384_connections_and_more_is_that_of_pycrate(codec, monkeypatch):  # noqa: F811
    """Length determinants of fragments (X.691 section 11.9.3.8)."""
    per = ASN1CodecPER
    # pycrate misspells its own function.
    monkeypatch.setattr(per, "encode_pas", lambda: per.encode_pad() if per._off[-1] % 8 else [], raising=False)
    for count in (16383, 16384, 20000):
        listed = [{"rAN-UE-NGAP-ID": number % 250} for number in range(count)]
        ies = [
            {"id": 15, "criticality": "ignore", "value": ("Cause", ("misc", "om-intervention"))},
            {"id": 88, "criticality": "reject", "value": ("ResetType", ("partOfNG-Interface", listed))},
        ]
        encoded = generate.encode(20, "InitiatingMessage", {"protocolIEs": ies}).hex()
        assert codec([f"ngap {encoded}"]) == [encoded]


@pytest.mark.parametrize("name", generate.TRANSFERS)
def test_a_transfer_that_pycrate_encodes_is_decoded_and_encoded_to_the_same_octets(codec, name):  # noqa: F811
    thing = generate.transfer(name)
    encoded = []
    for seed in range(SEEDS):
        thing.set_val(generate.Generator(f"{name} {seed}").value(thing))
        encoded.append(thing.to_aper().hex())
    assert codec([f"transfer:{name} {octets}" for octets in encoded]) == encoded


def test_a_procedure_between_radio_nodes_is_unknown(codec):  # noqa: F811
    assert codec([f"ngap {generate.encode(10, 'InitiatingMessage', {'protocolIEs': []}).hex()}"]) == ["unknown 10"]
