# SPDX-License-Identifier: Apache-2.0
"""DNS messages (RFC 1035): read a question, write its answer."""

import ipaddress
import struct

PORT = 53
LONGEST = 512  # of a message over UDP, section 4.2.1
A, AAAA, ANY, INTERNET = 1, 28, 255, 1
OK, FORMAT_ERROR, NOT_IMPLEMENTED, REFUSED = 0, 1, 4, 5
RESPONSE, AUTHORITATIVE, TRUNCATED, RECURSION_DESIRED = 0x8000, 0x0400, 0x0200, 0x0100


class Malformed(Exception):
    """The input is not a DNS message."""


def read_name(message, at):
    """A name and where it ends. In a question nothing comes before it that it could point to."""
    labels, length = [], 0
    while True:
        if at >= len(message):
            raise Malformed("the name does not end")
        size = message[at]
        at += 1
        if size == 0:
            return ".".join(labels).lower(), at
        length += size + 1
        if size > 63 or length > 254 or at + size > len(message):
            raise Malformed("a label is too long")
        labels.append(message[at : at + size].decode("latin-1"))
        at += size


def valid_domain(domain):
    """Whether a domain can be asked for."""
    labels = domain.split(".")
    return len(domain) <= 253 and domain.isascii() and all(0 < len(label) <= 63 for label in labels)


def answer(message, find):
    """The answer to a message; None: it gets none. `find` gives the addresses of a domain and how many seconds they may
    be kept, or None."""
    if len(message) < 12:
        return None
    number, flags, questions = struct.unpack_from("!HHH", message)
    if flags & RESPONSE:
        return None  # two responders would never stop
    echoed = RESPONSE | flags & (0x7800 | RECURSION_DESIRED)

    def reply(code, question=b"", records=(), more=0):
        head = struct.pack("!HHHHHH", number, echoed | more | code, 1 if question else 0, len(records), 0, 0)
        return head + question + b"".join(records)

    if flags & 0x7800:
        return reply(NOT_IMPLEMENTED)
    if questions != 1:
        return reply(FORMAT_ERROR)
    try:
        domain, end = read_name(message, 12)
        if end + 4 > len(message):
            raise Malformed("the question does not end")
    except Malformed:
        return reply(FORMAT_ERROR)
    kind, group = struct.unpack_from("!HH", message, end)
    question = message[12 : end + 4]
    found = find(domain) if group == INTERNET else None
    if found is None:
        return reply(REFUSED, question)
    addresses, seconds = found
    records = []
    for address in map(ipaddress.ip_address, addresses):
        if kind in (A if address.version == 4 else AAAA, ANY):
            # 0xc00c points to the name in the question.
            record = struct.pack(
                "!HHHIH", 0xC00C, A if address.version == 4 else AAAA, INTERNET, seconds, len(address.packed)
            )
            records.append(record + address.packed)
    whole = reply(OK, question, records, AUTHORITATIVE)
    return whole if len(whole) <= LONGEST else reply(OK, question, (), AUTHORITATIVE | TRUNCATED)
