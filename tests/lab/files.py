# SPDX-License-Identifier: Apache-2.0
"""A directory, and a driver that configures a gateway through it."""

import json
import os
import shutil


class Files:
    """Files of a directory of this name. Its keys are the files' names without ".yaml"."""

    kind = "files"

    def __init__(self, lab, name):
        self.name, self.directory = name, lab.directory / f"{name}-files"
        self.status_directory, self.aside = self.directory / "status", lab.directory / f"{name}-aside"
        self.directory.mkdir()

    def northbound(self, _directory, **more):
        """The agent's configuration."""
        return {
            "type": self.kind, "name": self.kind, "directory": str(self.directory),
            "statusDirectory": str(self.status_directory),
        } | more  # fmt: skip

    def start(self):
        """The directory is there again."""
        if self.aside.exists():
            shutil.rmtree(self.directory, ignore_errors=True)
            os.rename(self.aside, self.directory)

    def stop(self):
        """The directory is away, as a file system that is not mounted."""
        if self.directory.exists():
            os.rename(self.directory, self.aside)

    kill = stop

    def restart(self):
        self.stop()
        self.start()

    def path(self, key):
        return (self.directory if self.directory.exists() else self.aside) / f"{key}.yaml"

    def put(self, key, text):
        hidden = self.path(key).with_name(f".{key}.new")
        hidden.write_text(text)
        hidden.rename(self.path(key))

    def put_all(self, texts):
        """Texts by key."""
        for key, text in texts.items():
            self.put(key, text)

    def delete(self, key):
        self.path(key).unlink()

    def delete_all(self):
        for path in self.directory.glob("*.yaml"):
            path.unlink()

    def flush(self):
        """An empty directory is in its place, as where a file system is not mounted."""
        shutil.rmtree(self.aside, ignore_errors=True)
        os.rename(self.directory, self.aside)
        self.directory.mkdir()
        shutil.rmtree(self.aside)

    def mark(self):
        (self.directory / ".store").touch()

    def status(self, key):
        """Status of a document; None: there is none."""
        name = key if key.startswith(".") else f"{key}.yaml"
        try:
            return json.loads((self.status_directory / f"{name}.status").read_text())
        except FileNotFoundError:
            return None

    def statuses(self):
        """How many there are."""
        return len(list(self.status_directory.glob("*.status")))

    def close(self):
        pass
