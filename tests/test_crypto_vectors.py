# SPDX-License-Identifier: Apache-2.0
"""Project Wycheproof's vectors against every engine of the data plane's ciphers."""

import json
import subprocess

import pytest
from lab.laboratory import TREE

VECTORS = TREE / "build/wycheproof"
PROGRAM = TREE / "build/dataplane/crypto-vectors"
# The data plane's limits: bytes of the ICV, of the AAD, of HMAC's key.
ICV, AAD, HMAC_KEY = 32, 64, range(1, 129)


def cases(file):
    for group in json.loads((VECTORS / file).read_text())["testGroups"]:
        for case in group["tests"]:
            if case["result"] in ("valid", "invalid"):
                yield group, case


def line(algorithm, result, *fields):
    return " ".join([algorithm, result, *(field or "-" for field in fields)])


def aead(algorithm):
    def lines(file):
        for group, case in cases(file):
            if group["ivSize"] == 96 and group["tagSize"] == 128 and len(case["aad"]) <= 2 * AAD:
                iv = case["iv"]
                fields = case["key"], iv[:8], iv[8:], case["aad"], case["msg"], case["ct"], case["tag"]
                yield line(algorithm, case["result"], *fields)

    return lines


def hmac(algorithm):
    def lines(file):
        for group, case in cases(file):
            short = group["tagSize"] > 8 * ICV
            # ESP has no empty message.
            if not case["msg"]:
                continue
            # A tag that differs only in the truncated part would be right.
            if (
                len(case["key"]) // 2 in HMAC_KEY
                and group["tagSize"] >= 80
                and not (short and case["result"] == "invalid")
            ):
                yield line(algorithm, case["result"], case["key"], "", "", "", case["msg"], "", case["tag"][: 2 * ICV])

    return lines


def cbc(file):
    for _, case in cases(file):
        if case["result"] == "valid":
            message = bytes.fromhex(case["msg"])
            padding = 16 - len(message) % 16
            padded = (message + bytes([padding]) * padding).hex()
            yield line("aes-cbc", "valid", case["key"], "", case["iv"], "", padded, case["ct"], "")


@pytest.mark.parametrize(
    ("file", "lines", "least"),
    [
        ("aes_gcm_test.json", aead("aes-gcm"), 100),
        ("chacha20_poly1305_test.json", aead("chacha20-poly1305"), 200),
        ("aes_cbc_pkcs5_test.json", cbc, 50),
        ("hmac_sha1_test.json", hmac("hmac-sha1"), 100),
        ("hmac_sha256_test.json", hmac("hmac-sha256"), 100),
        ("hmac_sha384_test.json", hmac("hmac-sha384"), 30),
        ("hmac_sha512_test.json", hmac("hmac-sha512"), 30),
    ],
)
def test_every_engine_agrees_with_wycheproof(file, lines, least):
    given = list(lines(file))
    assert len(given) >= least
    done = subprocess.run([PROGRAM, "-"], input="\n".join(given) + "\n", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
