# SPDX-License-Identifier: Apache-2.0
"""Random values of the ASN.1 types of NGAP (TS 38.413), as pycrate takes them."""

import random
import string

import pycrate_asn1dir.NGAP as asn1

OUTCOMES = {
    "InitiatingMessage": "initiatingMessage",
    "SuccessfulOutcome": "successfulOutcome",
    "UnsuccessfulOutcome": "unsuccessfulOutcome",
}
PRINTABLE = string.ascii_letters + string.digits + " '()+,-./:=?"


def procedures():
    """Elementary procedures by code."""
    table = next(o for o in asn1.NGAP_PDU_Descriptions._all_ if o._name.startswith("_tab_NGAP-ELEMENTARY"))
    return {row["procedureCode"]: row for row in table._val.root}


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def size(self, thing, most=20):
        constraint = thing._const_sz
        if constraint is None:
            return self.random.choice([0, 1, 2, 3, self.random.randint(0, most), 130])
        low, high = constraint.lb or 0, constraint.ub
        if high is None:
            high = low + most
        if constraint.ext is not None and self.random.random() < 0.1:
            return high + self.random.randint(1, 5)
        return self.random.choice(
            [low, min(low + 1, high), min(high, low + self.random.randint(0, most)), high if high <= 200 else low]
        )

    def value(self, thing, depth=0):
        """A value of the type; optional components are there in half of the cases, less often the deeper they are."""
        r = self.random
        kind = thing.TYPE
        if kind == "INTEGER":
            constraint = thing._const_val
            if constraint is None:
                return r.randint(-(2**40), 2**40)
            low, high = constraint.lb, constraint.ub
            if low is None:
                low = -(2**33)
            if high is None:
                high = low + 2**33
            if constraint.ext is not None and r.random() < 0.2:
                return high + r.choice([1, 200, 2**33])
            part = r.choice(constraint.root)
            if isinstance(part, int):
                return part
            low, high = part.lb if part.lb is not None else low, part.ub if part.ub is not None else high
            high = min(high, 2**63 - 1)
            return r.choice([low, high, r.randint(low, high), r.randint(low, min(high, low + 300))])
        if kind == "ENUMERATED":
            return r.choice(list(thing._cont))
        if kind == "NULL":
            return 0
        if kind == "OCTET STRING":
            inside = thing._const_cont
            if inside is not None:
                name = inside._tr._name if inside._tr is not None else inside.TYPE
                return (name, self.value(inside, depth + 1))
            return r.randbytes(self.size(thing))
        if kind == "BIT STRING":
            count = self.size(thing)
            return (r.getrandbits(count) if count else 0, count)
        if kind in ("PrintableString", "VisibleString"):
            letters = PRINTABLE if kind == "PrintableString" else PRINTABLE + "@#~{}"
            return "".join(r.choice(letters) for _ in range(self.size(thing)))
        if kind == "UTF8String":
            return "".join(r.choice("abcäöü€😀") for _ in range(self.size(thing)))
        if kind == "SEQUENCE OF":
            reference = thing._tr._name if thing._tr is not None else ""
            if reference in ("ProtocolIE-Container", "ProtocolExtensionContainer"):
                return self.container(thing, depth)
            low = thing._const_sz.lb or 0
            high = thing._const_sz.ub or low + 3
            count = r.choice([low, min(high, low + r.randint(0, 2 if depth > 2 else 4))])
            return [self.value(thing._cont, depth + 1) for _ in range(count)]
        if kind == "CHOICE":
            names = list(thing._cont)
            plain = [
                name for name in names if thing._cont[name].TYPE != "SEQUENCE" or not self.single(thing._cont[name])
            ]
            extensions = [name for name in names if name not in plain]
            if extensions and r.random() < 0.4:
                part = thing._cont[extensions[0]]
                table = part._cont["value"]._const_tab
                if table is not None and table._val and table._val.root:
                    row = r.choice(table._val.root)
                    value = row["Value"]
                    return (extensions[0], self.field(row, value, "value", depth))
            name = r.choice(plain)
            return (name, self.value(thing._cont[name], depth + 1))
        if kind == "SEQUENCE":
            result = {}
            for name, part in thing._cont.items():
                reference = part._tr._name if part._tr is not None else ""
                if reference == "ProtocolExtensionContainer":
                    value = self.container(part, depth) if r.random() < 0.4 else []
                    if value:
                        result[name] = value
                elif not part._opt or r.random() < (0.5 if depth < 6 else 0.1):
                    result[name] = self.value(part, depth + 1)
            return result
        raise ValueError(kind)

    @staticmethod
    def single(thing):
        return thing._tr is not None and thing._tr._name == "ProtocolIE-SingleContainer"

    def field(self, row, value, label, depth):
        return {
            "id": row["id"],
            "criticality": row["criticality"],
            label: (value._tr._name if value._tr is not None else value.TYPE, self.value(value, depth + 1)),
        }

    def container(self, thing, depth):
        extension = "extensionValue" in thing._cont._cont
        label = "extensionValue" if extension else "value"
        table = thing._cont._cont[label]._const_tab
        rows = table._val.root if table is not None and table._val else []
        result = []
        for row in rows:
            mandatory = row["presence"] == "mandatory" and not extension
            if mandatory or self.random.random() < (0.5 if depth < 4 else 0.15):
                value = row["Extension"] if extension else row["Value"]
                result.append(self.field(row, value, label, depth))
        return result


def encode(code, outcome, value):
    """The octets of a message."""
    row = procedures()[code]
    pdu = asn1.NGAP_PDU_Descriptions.NGAP_PDU
    pdu.set_val(
        (
            OUTCOMES[outcome],
            {"procedureCode": code, "criticality": row["criticality"], "value": (row[outcome]._tr._name, value)},
        )
    )
    return pdu.to_aper()


def decode(octets):
    """pycrate's view of a message."""
    pdu = asn1.NGAP_PDU_Descriptions.NGAP_PDU
    pdu.from_aper(octets)
    return pdu.get_val()


# The content of octet strings of the messages.
TRANSFERS = [
    "PDUSessionResourceModifyConfirmTransfer",
    "PDUSessionResourceModifyIndicationTransfer",
    "PDUSessionResourceModifyIndicationUnsuccessfulTransfer",
    "PDUSessionResourceModifyRequestTransfer",
    "PDUSessionResourceModifyResponseTransfer",
    "PDUSessionResourceModifyUnsuccessfulTransfer",
    "PDUSessionResourceNotifyReleasedTransfer",
    "PDUSessionResourceNotifyTransfer",
    "PDUSessionResourceReleaseCommandTransfer",
    "PDUSessionResourceReleaseResponseTransfer",
    "PDUSessionResourceSetupRequestTransfer",
    "PDUSessionResourceSetupResponseTransfer",
    "PDUSessionResourceSetupUnsuccessfulTransfer",
]


def transfer(name):
    """The type of a transfer between a node and an SMF."""
    return getattr(asn1.NGAP_IEs, name)
