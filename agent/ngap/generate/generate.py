#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write agent/ngap/types.go and agent/ngap/procedures.go: the Go types of NGAP (TS 38.413 section 9.4) with their constraints as tags.

It reads the ASN.1 of the specification as pycrate has it compiled. Run it at development time: .venv/bin/python agent/ngap/generate/generate.py
"""

import pathlib
import subprocess

import pycrate_asn1dir.NGAP as asn1

# Elementary procedures that an AMF uses with a non-3GPP access or wireline node (TS 29.413 section 5), and those that such a node refuses.
PROCEDURES = [0, 1, 3, 4, 9, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 26, 27, 28, 29, 30, 35, 36, 38, 39, 40, 41, 42, 43, 44, 45, 46]
OUTCOMES = ["InitiatingMessage", "SuccessfulOutcome", "UnsuccessfulOutcome"]
FOLDER = pathlib.Path(__file__).resolve().parent.parent
INTERPROCEDURE = (asn1.NGAP_IEs, asn1.NGAP_PDU_Contents, asn1.NGAP_CommonDataTypes, asn1.NGAP_Constants)


def ids():
    """The name of each protocol IE, by its number: id-AMF-UE-NGAP-ID is AMF-UE-NGAP-ID."""
    names = {}
    for constant in asn1.NGAP_Constants._all_:
        if constant._name.startswith("id-") and constant._tr and constant._tr._name == "ProtocolIE-ID":
            names[constant._val] = constant._name[3:]
    return names


IDS = ids()


def go_name(name):
    return "".join(part[:1].upper() + part[1:] for part in name.replace("_", "-").split("-"))


def is_struct(thing):
    return thing.TYPE in ("SEQUENCE", "CHOICE")


def rows(table):
    """IEs of an information object set."""
    return table._val.root if table is not None and table._val else []


class Writer:
    def __init__(self):
        self.done = {}
        self.contained = set()

    def size(self, thing):
        constraint = thing._const_sz
        if constraint is None:
            return "", False
        extensible = constraint.ext is not None
        upper = constraint.ub
        return f" {constraint.lb or 0} {'-' if upper is None else upper}" + (" ext" if extensible else ""), extensible

    def usage(self, thing, parent, name):
        """Go type and PER tag of a component."""
        kind = thing.TYPE
        # The first name on the way to the definition that is a type of the specification.
        named = thing._tr._name if thing._tr is not None else None
        if named is None and thing._mode == "TYPE" and not thing._name.startswith("_"):
            named = thing._name
        if kind == "INTEGER":
            constraint = thing._const_val
            bounds = ""
            if constraint is not None:
                # Counts of 64 bits are read up to 2^63 - 1; the encoding is the same.
                upper = "-" if constraint.ub is None else min(constraint.ub, 2**63 - 1)
                bounds = f" {'-' if constraint.lb is None else constraint.lb} {upper}"
                bounds += " ext" if constraint.ext is not None else ""
            return self.define(named, "int64") if named else "int64", "int" + bounds
        if kind == "ENUMERATED":
            title = named or f"{parent}-{name}"
            known = len(thing._cont)
            extension = len(thing._ext) if thing._ext is not None else 0
            self.enumerate(title, [label for label, _ in sorted(thing._cont.items(), key=lambda pair: pair[1])])
            return go_name(title), f"enum {known - extension} {known}" + (" ext" if thing._ext is not None else "")
        if kind == "OCTET STRING":
            if thing._const_cont is not None:
                self.contained_type(thing._const_cont)
            return "[]byte", "octets" + self.size(thing)[0]
        if kind == "NULL":
            return "per.Null", "null"
        if kind == "BIT STRING":
            return "per.BitString", "bits" + self.size(thing)[0]
        if kind in ("PrintableString", "VisibleString", "UTF8String"):
            word = {"PrintableString": "printable", "VisibleString": "visible", "UTF8String": "utf8"}[kind]
            return "string", word + self.size(thing)[0]
        if kind == "SEQUENCE OF":
            item = thing._cont
            element, tag = self.usage(item, named or f"{parent}-{name}", "Item")
            if is_struct(item):
                element = element.lstrip("*")
            return "[]" + element, "list" + self.size(thing)[0] + ": " + tag
        if kind in ("SEQUENCE", "CHOICE"):
            title = named or f"{parent}-{name}"
            self.struct(title, thing)
            return "*" + go_name(title), ("seq" if kind == "SEQUENCE" else "choice") + (" ext" if thing._ext is not None else "")
        raise ValueError(f"{parent}.{name}: {kind}")

    def define(self, name, base):
        title = go_name(name)
        self.done.setdefault(title, f"type {title} {base}\n")
        return title

    def enumerate(self, name, labels):
        title = go_name(name)
        if title in self.done:
            return
        text = f"type {title} int64\n\nconst (\n"
        for number, label in enumerate(labels):
            text += f"\t{title}{go_name(label)} {title} = {number}\n"
        text += f')\n\nfunc (v {title}) String() string {{ return label(int64(v), "{" ".join(labels)}") }}\n'
        self.done[title] = text

    def contained_type(self, thing):
        while thing._tr is not None and thing._tr.TYPE == thing.TYPE and thing._name.startswith("_cont"):
            thing = thing._tr
        title, _ = self.usage(thing, "", thing._name)
        if title.startswith("*"):
            self.contained.add((title[1:], "ext" if thing._ext is not None else ""))

    def member(self, label, thing, parent, optional, extra=""):
        go, tag = self.usage(thing, parent, label)
        # Optional fields are pointers or slices.
        if optional and not go.startswith(("[]", "*")):
            go = "*" + go
        elif not optional and go.startswith("*"):
            go = go[1:]
        return f'\t{go_name(label)} {go} `per:"{tag}"{extra}`\n'

    def struct(self, name, thing):
        title = go_name(name)
        if title in self.done:
            return
        self.done[title] = ""
        text = ""
        if thing.TYPE == "SEQUENCE" and list(thing._cont) == ["protocolIEs"]:
            text += "\t_ per.Container\n" + self.fields(rows(thing._cont["protocolIEs"]._cont._cont["value"]._const_tab), name, "ie")
        else:
            for label, part in thing._cont.items():
                if part._tr is not None and part._tr._name == "ProtocolExtensionContainer":
                    table = rows(part._cont._cont["extensionValue"]._const_tab)
                    assert part._opt and label == list(thing._cont)[-1]
                    text += "\t_ per.Extensions\n" + self.fields(table, name, "x")
                elif part._tr is not None and part._tr._name == "ProtocolIE-SingleContainer":
                    assert label == list(thing._cont)[-1]
                    text += "\t_ per.Extensions\n" + self.fields(rows(part._cont["value"]._const_tab), name, "x", always_pointer=True)
                else:
                    optional = part._opt or part._def is not None or thing.TYPE == "CHOICE"
                    text += self.member(label, part, name, optional, ' opt:""' if part._opt else "")
        self.done[title] = f"type {title} struct {{\n{text}}}\n"

    def fields(self, table, parent, tag, always_pointer=False):
        text = ""
        for row in table:
            label = IDS[row["id"]]
            value = row["Value"] if "Value" in row else row["Extension"]
            presence = "mandatory" if row["presence"] == "mandatory" and tag == "ie" else row["presence"]
            note = f' {tag}:"{row["id"]} {row["criticality"]} {presence}"'
            text += self.member(label, value, parent, always_pointer or presence != "mandatory", note)
        return text


def main():
    writer = Writer()
    procedures = next(o for o in asn1.NGAP_PDU_Descriptions._all_ if o._name.startswith("_tab_NGAP-ELEMENTARY"))._val.root
    table, constants = "", ""
    for row in sorted(procedures, key=lambda row: row["procedureCode"]):
        if row["procedureCode"] not in PROCEDURES:
            continue
        code = row["procedureCode"]
        messages = []
        for outcome in OUTCOMES:
            if outcome not in row:
                messages.append("nil")
                continue
            name = row[outcome]._tr._name
            writer.struct(name, row[outcome])
            messages.append(f"reflect.TypeFor[{go_name(name)}]()")
        title = go_name(row["InitiatingMessage"]._tr._name).removesuffix("Command")
        # UEContextReleaseRequest is another procedure than the one of UEContextReleaseCommand.
        if "SuccessfulOutcome" in row:
            title = title.removesuffix("Request")
        constants += f"\tProcedure{title} = {code}\n"
        table += f"\tProcedure{title}: {{{go_name(row['criticality'])}, [3]reflect.Type{{{', '.join(messages)}}}}},\n"
    identifiers = "".join(f"\tID{go_name(name)} = {number}\n" for number, name in sorted(IDS.items()))
    head = "// SPDX-License-Identifier: Apache-2.0\n\n// Code generated by generate/generate.py from the ASN.1 of TS 38.413. DO NOT EDIT.\n\npackage ngap\n\n"
    types = head + 'import "sluice.dev/sluice/agent/per"\n\n' + "\n".join(writer.done[name] for name in sorted(writer.done))
    (FOLDER / "types.go").write_text(types)
    text = head + 'import "reflect"\n\n// Procedure codes (TS 38.413 section 9.4.7).\nconst (\n' + constants + ")\n\n"
    text += "// Elementary procedures: their criticality and their messages.\nvar procedures = map[uint8]procedure{\n" + table + "}\n\n"
    text += "// Protocol IEs (TS 38.413 section 9.4.7).\nconst (\n" + identifiers + ")\n\n"
    contained = "".join(f"\treflect.TypeFor[{name}](),\n" for name, _ in sorted(writer.contained))
    text += "// Types inside octet strings: the transfers between a node and an SMF, and containers.\nvar contained = []reflect.Type{\n" + contained + "}\n"
    (FOLDER / "procedures.go").write_text(text)
    subprocess.run(["gofmt", "-w", FOLDER / "types.go", FOLDER / "procedures.go"], check=True)


if __name__ == "__main__":
    main()
