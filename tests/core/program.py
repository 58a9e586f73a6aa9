# SPDX-License-Identifier: Apache-2.0
"""The agent's codecs as a program."""

import os
import subprocess

import pytest
from lab.laboratory import TREE


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    """Decodes each message that it is given, and encodes it again."""
    program = tmp_path_factory.mktemp("codec") / "codec"
    go = {**os.environ, "GOTOOLCHAIN": "local"}
    subprocess.run(["go", "build", "-o", program, "./tests/core/codec"], cwd=TREE, check=True, env=go)

    def again(lines):
        run = subprocess.run(
            [program], input="".join(line + "\n" for line in lines), text=True, capture_output=True, check=True
        )
        return run.stdout.splitlines()

    return again
