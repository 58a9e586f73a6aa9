# SPDX-License-Identifier: Apache-2.0
"""A small machine with Debian's own kernel, under software emulation: for protocols that the host's kernel does not
have. It has one Ethernet interface, a TAP interface of a namespace, and a shell for commands of a test.
tools/guest.sh fetches its parts."""

import gzip
import itertools
import os
import re
import stat
import subprocess
import threading
import time
from pathlib import Path

from .laboratory import TREE, wait_until

PARTS = TREE / "build/guest"
QEMU = "/usr/bin/qemu-system-x86_64"
MODULES = ("virtio_pci", "virtio_net", "8021q", "pppoe")
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module.ko; done
ip link set lo up
ip link set eth0 up
export PATH=/bin:/sbin
stty -echo
echo guest-"is-ready"
while IFS= read -r line; do eval "$line"; done
poweroff -f
"""


def libraries(*programs):
    """The shared libraries of programs, by where they are looked for. Static programs have none."""
    found = set()
    for program in programs:
        listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        found |= set(re.findall(r"(?:=> |^\s*)(/\S+) \(", listed, re.MULTILINE))
    return found


def in_order(names):
    """Kernel modules with those that they need, which come first."""
    order = []

    def add(name):
        if name in order:
            return
        found = re.search(rb"\0depends=([^\0]*)\0", b"\0" + (PARTS / f"modules/{name}.ko").read_bytes())
        for need in filter(None, found[1].decode().split(",")):
            add(need)
        order.append(name)

    for name in names:
        add(name)
    return order


class Archive:
    """An initial RAM file system (cpio, "newc")."""

    def __init__(self):
        self.parts, self.made, self.numbers = [], set(), itertools.count(1)

    def entry(self, name, mode, data=b""):
        values = [next(self.numbers), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        head = b"070701" + b"".join(b"%08X" % value for value in values) + name.encode() + b"\0"
        self.parts += [head + bytes(-len(head) % 4), data + bytes(-len(data) % 4)]

    def folder(self, name):
        if name and name not in self.made:
            self.folder(os.path.dirname(name))
            self.made.add(name)
            self.entry(name, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o755):
        name = name.lstrip("/")
        if name in self.made:
            return
        self.folder(os.path.dirname(name))
        self.made.add(name)
        self.entry(name, stat.S_IFREG | mode, data)

    def pack(self):
        self.entry("TRAILER!!!", 0)
        return gzip.compress(b"".join(self.parts), 1)


# A home gateway: the first /64 of a prefix of 56 bits is its network behind eth0.100.
DHCP6C = """interface ppp0 { send ia-pd 0; request domain-name-servers; };
id-assoc pd 0 { prefix-interface eth0.100 { sla-id 1; sla-len 8; }; };
"""


def image(modules=(), programs=()):
    archive = Archive()
    order = in_order([*MODULES, *modules])
    for folder in ("proc", "sys", "dev", "etc/ppp", "var/run", "var/lib/dhcpv6", "run", "tmp", "sbin"):
        archive.folder(folder)
    archive.file("init", INIT.encode())
    archive.file("bin/busybox", Path("/usr/bin/busybox").read_bytes())
    archive.file("sbin/pppd", (PARTS / "pppd").read_bytes())
    archive.file("etc/ppp/options", b"", 0o644)
    archive.file("sbin/dhcp6c", (PARTS / "dhcp6c").read_bytes())
    archive.file("usr/lib/x86_64-linux-gnu/libfl.so.2", (PARTS / "libfl.so.2").read_bytes())
    archive.file("etc/wide-dhcpv6/dhcp6c.conf", DHCP6C.encode(), 0o644)
    archive.file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n", 0o644)
    for plugin in (PARTS / "plugins").glob("*/*.so"):
        archive.file(f"usr/lib/pppd/{plugin.parent.name}/{plugin.name}", plugin.read_bytes())
    for program in programs:
        archive.file(f"bin/{Path(program).name}", Path(program).read_bytes())
    for library in libraries("/usr/bin/busybox", PARTS / "pppd", *programs):
        archive.file(library, Path(library).read_bytes())
    for name in order:
        archive.file(f"modules/{name}.ko", (PARTS / f"modules/{name}.ko").read_bytes())
    archive.file("modules/order", " ".join(order).encode(), 0o644)
    return archive.pack()


class Guest:
    """`namespace` has the TAP interface `tap` already; `mac`: of the guest's end of it. `modules`: more of the
    kernel's; `programs`: of the host, for /bin."""

    def __init__(self, lab, namespace, tap, mac, name="guest", modules=(), programs=()):
        initial = lab.directory / f"{name}.cpio.gz"
        initial.write_bytes(image(modules, programs))
        self.log = lab.directory / f"{name}.log"
        self.numbers, self.output, self.changed = itertools.count(1), "", threading.Condition()
        command = [
            *("ip", "netns", "exec", namespace.name, QEMU, "-accel", "tcg", "-m", "256", "-nographic", "-no-reboot"),
            *("-nodefaults", "-serial", "stdio", "-kernel", PARTS / "vmlinuz", "-initrd", initial),
            *("-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off"),
            *("-netdev", f"tap,id=line,ifname={tap},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=line,mac={mac},romfile="),
        ]
        self.child = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        lab.on_close(self.close)
        threading.Thread(target=self.listen, daemon=True).start()
        wait_until(lambda: "guest-is-ready" in self.output, 120, "the guest has booted")

    def listen(self):
        with open(self.log, "wb") as log:
            while data := os.read(self.child.stdout.fileno(), 65536):
                log.write(data)
                log.flush()
                with self.changed:
                    self.output += data.decode(errors="replace").replace("\r", "")
                    self.changed.notify_all()

    def run(self, command, seconds=60, check=True):
        """Output of a command of the shell."""
        number = next(self.numbers)
        begin, done = f"begin-{number}-", re.compile(rf"end-{number}-(\d+)\n")
        # The guest joins the words: the terminal's echo is not taken for an answer.
        line = f"echo begin-'{number}-'; {command}; echo end-'{number}-'$?\n"
        end, sent = time.monotonic() + seconds, False
        while True:
            with self.changed:
                if not sent:
                    self.child.stdin.write(line.encode())
                    self.child.stdin.flush()
                    sent = True
                if found := done.search(self.output):
                    text = self.output[: found.start()].rpartition(begin)[2]
                    break
                assert self.child.poll() is None, f"the guest ended: {self.output[-2000:]}"
                assert time.monotonic() < end, f"{command}: not in {seconds} s: {self.output[-2000:]}"
                self.changed.wait(1)
        assert not check or found[1] == "0", f"{command}: exit {found[1]}: {text}"
        return text

    def until(self, command, words, seconds=60):
        """Runs a command until its output has all the words."""
        return wait_until(
            lambda: (lambda text: text if all(word in text for word in words) else None)(
                self.run(command, check=False)
            ),
            seconds,
            f"{command} says {words}",
        )

    def close(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
