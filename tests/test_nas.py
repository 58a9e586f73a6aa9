# SPDX-License-Identifier: Apache-2.0
"""NAS for 5GS (TS 24.501): the agent's codec against pycrate's, for messages of every type with random IEs."""

import os
import random

import pycrate_mobile.TS24501_FGMM as fgmm
import pycrate_mobile.TS24501_FGSM as fgsm
import pytest
from core.program import codec  # noqa: F401

SEEDS = int(os.environ.get("NAS_MESSAGES", "20"))
SKIP = ("Relay", "ControlPlane", "RemoteUE", "ServiceLevelAuth")


# Where pycrate has another identifier than the tables of the specification (agent/nas/generate/generate.py).
IDENTIFIERS = {("FGMMRegistrationAccept", "5GSAddReqResult"): 0x35, "ReattemptInd": 0x1D}


def identifier(message, part):
    return IDENTIFIERS.get((message, part._name)) or IDENTIFIERS.get(part._name) or part["T"].get_val()


def messages():
    for module, prefix, head in ((fgmm, "FGMM", "5GMMHeader"), (fgsm, "FGSM", "5GSMHeader")):
        for name, thing in sorted(vars(module).items()):
            if name.startswith(prefix) and hasattr(thing, "_GEN") and not any(skip in name for skip in SKIP):
                made = thing()
                if made._content and made._content[0]._name == head and len(made._content[0]._content) == 4:
                    yield pytest.param(thing, id=name)


def fill(thing, seed):
    """A message with random contents of its IEs: their meaning is not part of the codec."""
    r = random.Random(f"{thing.__name__} {seed}")
    made = thing()
    if made._content[0]._name == "5GSMHeader":
        made["5GSMHeader"]["PDUSessID"].set_val(r.randint(0, 15))
        made["5GSMHeader"]["PTI"].set_val(r.randint(0, 255))
    octets = made._content[0].to_bytes()
    halves = []
    for part in made._content[1:]:
        kind = type(part).__name__
        if part._name == "spare" or kind == "Type1V":
            halves.append(0 if part._name == "spare" else r.randint(0, 15))
            if len(halves) == 2:
                octets += bytes([halves[0] << 4 | halves[1]])
                halves = []
            continue
        optional = kind in ("Type1TV", "Type2", "Type3TV", "Type4TLV", "Type6TLVE")
        if optional and r.random() < 0.4:
            continue
        tag = bytes([identifier(thing.__name__, part)]) if optional else b""
        if kind in ("Type1TV", "Type2"):
            octets += bytes([tag[0] << 4 | r.randint(0, 15)])
        elif kind in ("Type3V", "Type3TV"):
            octets += tag + r.randbytes(part["V"].get_bl() // 8)
        else:
            long = kind in ("Type6LVE", "Type6TLVE")
            value = r.randbytes(r.choice([1, 2, 5, 11, 255] + ([256, 1000] if long else [])))
            octets += tag + len(value).to_bytes(2 if long else 1, "big") + value
    return octets


@pytest.mark.parametrize("thing", messages())
def test_a_message_is_decoded_and_encoded_to_the_same_octets(codec, thing):  # noqa: F811
    filled = [fill(thing, seed).hex() for seed in range(SEEDS)]
    assert codec([f"nas {octets}" for octets in filled]) == filled


@pytest.mark.parametrize("thing", messages())
def test_messages_of_pycrate_are_decoded_and_encoded_to_the_same_octets(codec, thing):  # noqa: F811
    made = thing()
    # Every optional IE with pycrate's example.
    for part in made._content:
        if hasattr(part, "_trans") and type(part).__name__ in ("Type1TV", "Type3TV", "Type4TLV", "Type6TLVE"):
            part.set_trans(False)
            part["T"].set_val(identifier(thing.__name__, part))
    octets = made.to_bytes().hex()
    assert codec([f"nas {octets}"]) == [octets]
