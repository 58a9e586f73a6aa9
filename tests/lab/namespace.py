# SPDX-License-Identifier: Apache-2.0
"""Network namespaces, and things opened inside them by a process that stays outside."""

import ctypes
import fcntl
import json
import os
import struct
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_TAP, IFF_NO_PI = 0x0001, 0x0002, 0x1000


def setns(fd):
    if LIBC.setns(fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Namespace:
    """A named network namespace with its loopback up. The janitor removes it."""

    def __init__(self, name):
        self.name = name
        run("ip", "netns", "add", name)
        self.ip("link", "set", "lo", "up")

    def ip(self, *arguments):
        return run("ip", "-n", self.name, *arguments)

    def run(self, *command, timeout=60, check=True, **options):
        """Runs a command inside; its output and exit code come back."""
        return run("ip", "netns", "exec", self.name, *command, timeout=timeout, check=check, **options)

    def inside(self, call, *arguments, **options):
        """Calls something in this thread as if it were inside: a socket it opens belongs to the namespace for good."""
        outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        within = os.open(f"/run/netns/{self.name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            setns(within)
            try:
                return call(*arguments, **options)
            finally:
                setns(outside)
        finally:
            os.close(outside)
            os.close(within)

    def tunnel_device(self, name, ethernet, mtu, mac=None):
        """A TAP (ethernet) or TUN interface here that is up; the file descriptor of its packets."""
        fd = self.inside(os.open, "/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        flags = (IFF_TAP if ethernet else IFF_TUN) | IFF_NO_PI
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        if mac:
            self.ip("link", "set", name, "address", mac)
        self.ip("link", "set", name, "mtu", str(mtu), "up")
        return fd

    def mac(self, interface):
        return json.loads(self.ip("-j", "link", "show", interface).stdout)[0]["address"]

    def silent(self, interface):
        """The kernel sends nothing on this interface: no IPv6 address, no neighbour discovery, no multicast report."""
        self.run("sysctl", "-qw", f"net.ipv6.conf.{interface}.disable_ipv6=1")

    def link(self, interface, other, other_interface, mtu=2000, queues=1):
        """A veth pair. Checksums and segments are made in software: DPDK sees frames as they are in the queue."""
        count = ("numtxqueues", str(queues), "numrxqueues", str(queues))
        peer = ("peer", "name", other_interface, "netns", other.name, *count)
        self.ip("link", "add", interface, "mtu", str(mtu), *count, "type", "veth", *peer)
        other.ip("link", "set", other_interface, "mtu", str(mtu))
        for namespace, name in ((self, interface), (other, other_interface)):
            off = ("tx", "off", "sg", "off", "tso", "off", "gso", "off", "gro", "off", "txvlan", "off", "rxvlan", "off")
            namespace.run("ethtool", "-K", name, *off)
            namespace.ip("link", "set", name, "up")


def run(*command, timeout=60, check=True, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done
