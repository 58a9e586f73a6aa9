# SPDX-License-Identifier: Apache-2.0
"""Set-ups of IKE SAs: our agent with a data plane, and strongSwan's charon, with the same initiators in the same run.

Each peer authenticates by a shared key, with X25519 and AES-256-GCM, and has one child SA, which is rekeyed with a new
key exchange. Other programs of the machine do not count: the figures are per second of the responder's own CPU time, as
if it had one core for itself.

"bytes_each" is the memory that a tunnel takes while it is up: of the responder's process, and beside it of the data
plane, which has the two security associations.

Debian has no load-tester plugin of strongSwan: bench/ike is the initiator for both."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TREE / "tests"))

from lab import Gateway, Lab, strongswan, thing  # noqa: E402

LOAD = TREE / "build/ike-load"
HERE, FIRST, ADDRESSES = "192.0.2.1", 16, 32
TICKS = os.sysconf("SC_CLK_TCK")

CHARON = f"""
connections {{
  load {{
    version = 2
    local_addrs = {HERE}
    mobike = no
    rekey_time = 0
    proposals = aes256gcm16-prfsha256-x25519
    local {{
      auth = psk
      id = gateway.load.example
    }}
    remote {{
      auth = psk
      id = *.load.example
    }}
    children {{
      net {{
        local_ts = 10.1.0.0/16
        remote_ts = 10.128.0.0/9
        rekey_time = 0
        esp_proposals = aes256gcm16-x25519
      }}
    }}
  }}
}}
secrets {{
  ike-load {{
    secret = secret
  }}
}}
"""

OPTIONS = """
charon-systemd {
  cookie_threshold = 0
  block_threshold = 0
  filelog {
    log {
      default = 0
    }
  }
  ikesa_table_size = 4096
  ikesa_table_segments = 16
}
"""


def cpu(*processes):
    """Seconds of user and system time."""
    total = 0
    for process in processes:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def resident(*processes):
    """Memory in bytes that is no file's."""
    total = 0
    for process in processes:
        for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) * 1024
    return total


class Load:
    """The initiators, in a namespace."""

    def __init__(self, lab, namespace, count, window):
        command = ["ip", "netns", "exec", namespace.name, str(LOAD), "-count", str(count), "-window", str(window)]
        command += ["-remote", HERE, "-local", f"192.0.2.{FIRST}", "-addresses", str(ADDRESSES)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        lab.on_close(self.close)
        assert self.process.stdout.readline() == "{}\n"

    def phase(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the initiators ended in the phase {name}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait()


def wires(lab):
    inside, outside = lab.namespace("inside"), lab.namespace("outside")
    inside.link("core", outside, "uplink")
    for number in range(FIRST, FIRST + ADDRESSES):
        outside.ip("address", "add", f"192.0.2.{number}/24", "dev", "uplink")
    return inside, outside


def settle(process):
    """Waits until a process is idle: work after an exchange counts, too."""
    before = -1
    while (now := cpu(process)) > before + 0.02:
        before = now
        time.sleep(0.5)


def run(responder, load, process, others):
    """One row for each phase."""
    rows = []
    empty, empty_beside = resident(process), resident(*others)
    for phase in ("up", "rekey", "down"):
        before, beside = cpu(process), cpu(*others)
        found = load.phase(phase)
        settle(process)
        used = cpu(process) - before
        row = {
            "responder": responder,
            "phase": phase,
            "count": found["count"],
            "failed": found["failed"],
            "seconds": round(found["seconds"], 2),
            "cpu_seconds": round(used, 2),
            "per_cpu_second": round(found["count"] / used) if used else None,
            "beside_cpu_seconds": round(cpu(*others) - beside, 2),
        }
        if phase == "up":
            row["bytes_each"] = round((resident(process) - empty) / found["count"])
            row["beside_bytes_each"] = round((resident(*others) - empty_beside) / found["count"])
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def ours(count, window):
    with Lab() as lab:
        inside, outside = wires(lab)
        inside.silent("core")
        gateway = Gateway(lab, inside)
        gateway.apply(
            thing("Port", "core", device="net_af_packet0,iface=core,framecnt=4096"),
            thing("Interface", "core", port="core", addresses=[f"{HERE}/24"]),
            thing("IpsecTunnel", "load", localAddress=HERE),
            thing("Interface", "load", ipsecTunnel="load"),
            thing("IkeCredential", "load", sharedKey="secret"),
            thing(
                "IkeConnection",
                "load",
                localAddress=HERE,
                localIdentity="gateway.load.example",
                remoteIdentity="*.load.example",
                credential="load",
                noMobike=True,
                dpdDelay="24h",
                proposals=["aes256gcm16-prfsha256-x25519"],
                children=[
                    {
                        "name": "net",
                        "tunnel": "load",
                        "proposals": ["aes256gcm16-x25519"],
                        "local": ["10.1.0.0/16"],
                        "remote": ["10.128.0.0/9"],
                    }
                ],
            ),
        )
        load = Load(lab, outside, count, window)
        agent, dataplane = gateway.agent.child.pid, gateway.dataplane.child.pid

        return run("sluice", load, agent, [dataplane])


def charon(count, window):
    with Lab() as lab:
        inside, outside = wires(lab)
        inside.ip("address", "add", f"{HERE}/24", "dev", "core")
        inside.ip("address", "add", "10.1.0.1/16", "dev", "lo")
        peer = strongswan.StrongSwan(lab, inside, CHARON, more=OPTIONS)
        load = Load(lab, outside, count, window)
        return run("charon", load, peer.process.pid, [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="IKE SAs with one child each (2000)")
    parser.add_argument("--window", type=int, default=32, help="exchanges under way at once (32)")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows to this file")
    parser.add_argument("--only", choices=["sluice", "charon"], help="one responder alone")
    given = parser.parse_args()
    rows = []
    for name, measure in (("charon", charon), ("sluice", ours)):
        if given.only in (None, name):
            rows += measure(given.count, given.window)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    failed = sum(row["failed"] for row in rows)
    sys.exit(f"{failed} exchanges failed" if failed else 0)


if __name__ == "__main__":
    main()
