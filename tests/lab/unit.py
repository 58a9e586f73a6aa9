# SPDX-License-Identifier: Apache-2.0
"""Runs a command with the capabilities and the address families of a systemd unit: unit.py UNIT COMMAND..."""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from pathlib import Path

CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_IPC_LOCK": 14, "CAP_SYS_ADMIN": 21}
LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")
PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 22, 24, 38
SECCOMP_MODE_FILTER = 2
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER, FIRST_ARGUMENT = 0, 16
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
SOCKET = {"x86_64": 41, "aarch64": 198}


def setting(unit, key):
    """The words of a setting; None: the unit does not have it."""
    found = None
    for line in Path(unit).read_text().splitlines():
        name, separator, value = line.partition("=")
        if separator and name == key:
            found = [] if not value else (found or []) + value.split()
    return found


def prctl(*arguments):
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(*(each if isinstance(each, int) else ctypes.byref(each) for each in arguments), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def restrict(families):
    """socket() of another family fails, as systemd's RestrictAddressFamilies= has it."""
    lines = [(LOAD, 0, 0, NUMBER), (JUMP_EQUAL, 0, len(families) + 2, SOCKET[platform.machine()])]
    lines.append((LOAD, 0, 0, FIRST_ARGUMENT))
    for at, family in enumerate(families):
        lines.append((JUMP_EQUAL, len(families) - at, 0, getattr(socket, family)))
    lines += [(RETURN, 0, 0, ERRNO | errno.EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]
    packed = b"".join(struct.pack("=HBBI", *line) for line in lines)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, Program(len(lines), packed))


def main(unit, *command):
    kept = [CAPABILITIES[name] for name in setting(unit, "CapabilityBoundingSet")]
    for capability in range(int(LAST_CAPABILITY.read_text()) + 1):
        if capability not in kept:
            prctl(PR_CAPBSET_DROP, capability)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    families = setting(unit, "RestrictAddressFamilies")
    if families is not None:
        restrict(families)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
