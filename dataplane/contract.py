#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes C of the annotations on fields: contract.py LIMITS.h PROTO... < SET > CHECKS.c, where SET is a
google.protobuf.FileDescriptorSet as `protoc --decode` prints it. server/contract.h describes the tables in CHECKS.c.
LIMITS.h has the upper bounds, for the sizes of arrays."""

import re
import sys

TOKEN = re.compile(r'\s*([\w.]+|\[[\w.]+\])\s*(\{|:\s*("(?:[^"\\]|\\.)*"|\S+))|\s*(\})')
BITS = {"TYPE_INT32": (-(1 << 31), (1 << 31) - 1), "TYPE_UINT32": (0, (1 << 32) - 1), "TYPE_UINT64": (0, (1 << 64) - 1)}
UNITS = {"BITS_PER_SECOND": " bit/s", "BYTES": " bytes", "NANOSECONDS": " nanoseconds"}


def parse(text):
    """The text format as dictionaries of lists."""
    stack = [{}]
    for name, opening, value, closing in TOKEN.findall(text):
        if closing:
            stack.pop()
        elif opening == "{":
            inside = {}
            stack[-1].setdefault(name, []).append(inside)
            stack.append(inside)
        else:
            stack[-1].setdefault(name, []).append(value.strip('"'))
    return stack[0]


def first(message, name, otherwise=None):
    return message.get(name, [otherwise])[0]


def accepted(field, note):
    """The values of a number, the lengths of a list, or an example of a string, in words."""
    low, high = int(first(note, "min", 0)), int(first(note, "max", 0))
    zero = first(note, "zero")
    if first(field, "label") == "LABEL_REPEATED":
        low = max(low, int("required" in note))
        return f"{low} to {high} elements are" if low else f"at most {high} elements are"
    kind = first(field, "type")
    if kind not in BITS:
        return first(note, "example", "")
    low = max(low, BITS[kind][0])
    if zero is not None or "required" in note:
        low = max(low, 1)
    text = f"{low} to {high or BITS[kind][1]}{UNITS.get(first(note, 'unit'), '')}"
    return text + (f" or 0 ({zero}) are" if zero is not None else " are")


def entry(field, named):
    """One field's row; None: there is nothing to check."""
    note = first(first(field, "options", {}), "[sluice.v1.field]", {})
    row = []
    below = first(field, "type_name", "")[1:]
    if first(field, "type") == "TYPE_MESSAGE" and below in named:
        row.append(f".message = &{symbol(below)}")
    bounded = first(field, "label") == "LABEL_REPEATED" or first(field, "type") in BITS
    if bounded and first(note, "min"):
        row.append(f".min = {first(note, 'min')}")
    if bounded and first(note, "max"):
        row.append(f".max = {first(note, 'max')}")
    if "required" in note:
        row.append(".required = true")
    if "zero" in note:
        row.append(".zero = true")
    if row and (words := accepted(field, note)):
        row.append(f'.accepted = "{words}"')
    return ", ".join(row)


def symbol(name):
    return "contract_" + name.replace(".", "_")


def lower(name):
    """As protoc-c writes the names of descriptors."""
    return "__".join(re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", part).lower() for part in name.split("."))


def messages(prefix, list_of):
    for message in list_of:
        name = f"{prefix}.{first(message, 'name')}"
        yield name, message
        yield from messages(name, message.get("nested_type", []))


def limits(found):
    """CONTRACT_MESSAGE_FIELD_MAX of every bound that is an int."""
    for name, message in found.items():
        for field in message.get("field", []):
            bound = int(first(first(first(field, "options", {}), "[sluice.v1.field]", {}), "max", 0))
            if 0 < bound < 1 << 31:
                words = lower(name.removeprefix("sluice.v1.")).replace("__", "_")
                yield (
                    f"#define CONTRACT_{words}_{first(field, 'name')}_max".upper().replace("DEFINE", "define", 1)
                    + f" {bound}"
                )


def main():
    found = {}
    for file in parse(sys.stdin.read())["file"]:
        if first(file, "package") == "sluice.v1":
            found.update(messages("sluice.v1", file.get("message_type", [])))
    print('// Generated from api/*.proto by contract.py.\n#include "server/contract.h"\n')
    for name in sorted(sys.argv[2:]):
        print(f'#include "{name}.pb-c.h"')
    print()
    for name in found:
        print(f"static const struct contract_message {symbol(name)};")
    for name, message in found.items():
        print(f"\nstatic const struct contract_field {symbol(name)}_fields[] = {{")
        # protobuf-c has fields in the order of their numbers.
        for field in sorted(message.get("field", []), key=lambda f: int(first(f, "number"))):
            print(f"\t{{{entry(field, found) or '0'}}}, // {first(field, 'name')}")
        print("\t{0}};")
        row = f"&{lower(name)}__descriptor, {symbol(name)}_fields"
        print(f"static const struct contract_message {symbol(name)} = {{{row}}};")
    with open(sys.argv[1], "w") as header:
        constants = "\n".join(limits(found))
        header.write(f"// Generated from api/*.proto by contract.py.\n#pragma once\n\n{constants}\n")
    print("\nconst struct contract_message *const contract_messages[] = {")
    for name in found:
        print(f"\t&{symbol(name)},")
    print("\tNULL};")


main()
