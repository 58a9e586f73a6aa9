"""The agent's gRPC over TCP, and a driver that says through it, with the command line, what is wanted."""

import hashlib
import json
import subprocess

from .gateway import SLUICE
from .rest import tokens


def certificates(directory, *names):
    """Makes ca.crt, and NAME.crt and NAME.key for 127.0.0.1 and localhost; "other/NAME" is of another authority."""

    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=directory)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for ca in ("ca", "other"):
        openssl("req", "-x509", *key, "-days", "2", "-keyout", f"{ca}.key", "-out", f"{ca}.crt", "-subj", f"/CN={ca}")
    (directory / "san").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for each in names:
        ca, name = each.split("/") if "/" in each else ("ca", each)
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial",
                "-days", "2", "-extfile", "san", "-out", f"{name}.crt")  # fmt: skip
    return directory


class Remote:
    """Documents are files for `sluice apply`; what a document no longer has is deleted."""

    kind = "grpc"
    port = 7701

    def __init__(self, lab, namespace, name="grpc"):
        self.name, self.namespace, self.directory = name, namespace, lab.directory / f"{name}-grpc"
        self.directory.mkdir()
        certificates(self.directory, "agent")
        self.tokens, self.file = tokens(self.directory, operator="operate")
        self.documents, self.texts, self.refusals = {}, {}, {}

    def northbound(self, _directory, **more):
        """The agent's configuration."""
        pair = {"certificate": str(self.directory / "agent.crt"), "key": str(self.directory / "agent.key")}
        return {
            "type": self.kind, "name": self.kind, "listen": f"127.0.0.1:{self.port}", "tls": pair,
            "tokens": str(self.file),
        } | more  # fmt: skip

    def sluice(self, *arguments, token="operator", client=None, check=False, **options):
        """The command line, over TCP."""
        command = [SLUICE, "--agent", f"tcp://127.0.0.1:{self.port}", "--ca", self.directory / "ca.crt"]
        if token:
            command += ["--token-file", self.directory / f"{token}.token"]
        if client:
            command += ["--cert", self.directory / f"{client}.crt", "--key", self.directory / f"{client}.key"]
        return self.namespace.run(*map(str, command), *map(str, arguments), check=check, **options)

    def put(self, key, text):
        self.put_all({key: text})

    def put_all(self, texts):
        """Texts by key."""
        self.texts |= texts
        path = self.directory / "apply.yaml"
        path.write_text("".join(f"---\n{text}\n" for text in texts.values()))
        done = self.sluice("apply", "-f", path, "-o", "json")
        now = {}
        for key, text in texts.items():
            self.refusals.pop(key, None)
            if done.returncode:
                self.refusals[key] = done.stderr
            else:
                now[key] = self.names(text)
        gone = {name for key in now for name in self.documents.get(key, ())}
        self.documents |= now
        self.forget(gone - {name for names in now.values() for name in names})

    def names(self, text):
        """The objects of a document that was accepted."""
        path = self.directory / "names.yaml"
        path.write_text(text)
        found = json.loads(self.sluice("apply", "-f", path, "-o", "json", check=True).stdout)
        return {(each["kind"], each["name"]) for each in found["objects"]}

    def forget(self, gone):
        for kind, name in sorted(gone):
            self.sluice("delete", kind, name, check=True)

    def delete(self, key):
        del self.texts[key]
        self.refusals.pop(key, None)
        self.forget(self.documents.pop(key, set()))

    def delete_all(self):
        for key in list(self.texts):
            self.delete(key)

    def status(self, key):
        """What became of a document; None: there is no status."""
        if key not in self.texts:
            return None
        told = {"sha256": hashlib.sha256(self.texts[key].encode()).hexdigest()}
        if key in self.refusals:
            return told | {"state": "Invalid", "mistakes": [{"problem": self.refusals[key]}]}
        states = [self.state(kind, name) for kind, name in self.documents[key]]
        for state in ("failed", "pending", "deleting", "gone"):
            if state in states:
                return told | {"state": "Failed" if state == "failed" else "Pending"}
        return told | {"state": "Applied"}

    def state(self, kind, name):
        done = self.sluice("get", kind, name, "-o", "json")
        found = json.loads(done.stdout or "null") if done.returncode == 0 else None
        found = found[0] if isinstance(found, list) and found else found
        return found["status"]["state"] if found else "gone"

    def statuses(self):
        """How many there are."""
        return len(self.texts)

    def close(self):
        pass
