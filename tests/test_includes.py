# SPDX-License-Identifier: Apache-2.0
"""The table of permitted includes in the data plane (dataplane/includes.txt), and the rule that reads it."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parent.parent
TABLE = (ROOT / "dataplane/includes.txt").read_text()


def lint(tmp_path, table, *sources):
    """The rule's exit status and output for this table."""
    path = tmp_path / "includes.txt"
    path.write_text(table)
    done = subprocess.run(
        [ROOT / "tools/lint-includes.sh", *(sources or ["dataplane/main.c"])],
        env={**os.environ, "INCLUDES": str(path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def without(folder):
    return "".join(line + "\n" for line in TABLE.splitlines() if not line.startswith(f"{folder}:"))


def test_the_table_has_every_folder(tmp_path):
    assert lint(tmp_path, TABLE) == (0, "")


def test_a_folder_that_is_missing_in_the_table_fails(tmp_path):
    status, text = lint(tmp_path, without("fuzz"))
    assert status != 0
    assert "dataplane/fuzz has no line" in text


def test_a_line_of_a_folder_that_is_not_there_fails(tmp_path):
    status, text = lint(tmp_path, TABLE + "nowhere: core\n")
    assert status != 0
    assert "there is no folder dataplane/nowhere" in text


def test_two_folders_that_include_each_other_fail(tmp_path):
    status, text = lint(tmp_path, TABLE.replace("ip:        core", "ip:        neighbor core"))
    assert status != 0
    assert "ip may not include neighbor" in text


def test_an_include_that_the_table_does_not_have_fails(tmp_path):
    table = TABLE.replace("fib:       cpu core server port ether inet", "fib:       cpu core server port ether")
    status, text = lint(tmp_path, table, "dataplane/fib/path.c")
    assert status != 0
    assert "dataplane/fib/path.c" in text
    assert "fib may not include inet/header.h" in text
