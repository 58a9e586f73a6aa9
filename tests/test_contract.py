# SPDX-License-Identifier: Apache-2.0
"""The data plane refuses what the annotations in api/*.proto exclude, and the refusal names the field."""

import contextlib
import errno
import os
import struct
import subprocess

import pytest
import schema_pb2
from contract import POOL, VERSION, Connection, api
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor
from lab.gateway import DATAPLANE, thing
from lab.laboratory import TREE, wait_until

NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
# A text that no format takes.
TEXT = "a/b c"
EXAMPLES = {"sluice.v1.Port.device": "net_null0"}
# Fields that a kind needs besides those that annotations require, before its texts are read.
ALSO = {
    "Meter": {"committedRate": "1000000", "committedBurst": "10000"},
    "Session": {"access": {"port": "example"}},
}
# Objects that others refer to.
THERE = (
    thing("Port", "example", device="net_null1"),
    thing("Interface", "example", port="example", outerVlan=7, addresses=["192.0.2.1/24"]),
)
# Of these the data plane reads texts after all else: algorithms, keys, a tunnel.
NO_TEXTS = {"SecurityAssociation"}
# The data plane does not read the end of a range that has no beginning.
NOT_READ = {"localLast", "remoteLast"}


def note(field):
    return field.GetOptions().Extensions[schema_pb2.field]


def kinds():
    for proto in sorted((TREE / "api").glob("*.proto")):
        for name, message in sorted(POOL.FindFileByName(proto.name).message_types_by_name.items()):
            if message.GetOptions().Extensions[schema_pb2.kind].plane == schema_pb2.DATAPLANE:
                yield name


def example(field):
    """A value that a required field takes."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return filled(field.message_type)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return EXAMPLES.get(field.full_name) or note(field).example or "example"
    return max(note(field).min, 1)


def filled(descriptor):
    """A message with the required fields and no others."""
    message = message_factory.GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if note(field).required or (is_list(field) and note(field).min > 0):
            put(message, field, example(field))
    return message


def is_list(field):
    return field.label == FieldDescriptor.LABEL_REPEATED


def put(message, field, value):
    if is_list(field):
        getattr(message, field.name).append(value)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def bad_values(field):
    """Values outside of the annotation of a field; None: the field is left out."""
    says = note(field)
    if says.required:
        yield None
    if is_list(field):
        if says.max:
            yield [example(field)] * (says.max + 1)
        return
    if field.cpp_type in NUMBERS:
        low, high = NUMBERS[field.cpp_type]
        if says.max and says.max < high:
            yield says.max + 1
        if says.min > max(low, 1) or low < says.min < 0:
            yield says.min - 1
    elif field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        yield 99
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING and says.format != schema_pb2.TEXT and not says.secret:
        yield TEXT


def bad(descriptor):
    """(names of the fields, message, whether it is a format) of each value that an annotation anywhere excludes."""
    for field in descriptor.fields:
        for value in bad_values(field):
            message = filled(descriptor)
            message.ClearField(field.name)
            if isinstance(value, list):
                getattr(message, field.name).extend(value)
            elif value is not None:
                put(message, field, value)
            yield [field.json_name], message, value == TEXT
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            for names, below, text in bad(field.message_type):
                message = filled(descriptor)
                message.ClearField(field.name)
                put(message, field, below)
                yield [field.json_name, *names], message, text


@pytest.fixture(scope="module")
def dataplane(tmp_path_factory):
    """A connection to a data plane that has no agent."""
    folder = tmp_path_factory.mktemp("contract")
    path = folder / "s"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [DATAPLANE, "--no-huge", "--buffers", "4096", "--socket", path, "--prefix", f"contract-{os.getpid()}"],
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(path.exists, what="the data plane did not start")
        with Connection(path) as connection:
            assert [result.code for result in connection.put(*THERE)] == [0, 0]
            yield connection
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.parametrize("kind", kinds())
def test_values_outside_of_an_annotation_are_refused_with_the_field(dataplane, kind):
    cases = list(bad(POOL.FindMessageTypeByName(f"sluice.v1.{kind}")))
    wrong = []
    for path, message, text in cases:
        if text and (kind in NO_TEXTS or path[-1] in NOT_READ):
            continue
        if text:
            json_format.ParseDict(ALSO.get(kind, {}), message)
        put = api.Put(objects=[api.Object(kind=kind, name="bad", spec=message.SerializeToString())])
        result = dataplane.ask(put=put).results.results[0]
        if result.code == 0 or path[-1].lower() not in result.message.lower():
            wrong.append((".".join(path), result.code, result.message))
    assert not wrong


def test_texts_that_are_not_utf8_are_refused_and_named(dataplane):
    request = api.Request(id=1, hello=api.Hello(version=VERSION, name="x")).SerializeToString()
    assert request.count(b"x") == 1
    reply = raw(dataplane, request.replace(b"x", b"\xff"))
    assert (reply.result.code, reply.result.message) == (errno.EINVAL, "hello.name: not valid UTF-8")
    vrf = message_factory.GetMessageClass(POOL.FindMessageTypeByName("sluice.v1.Vrf"))(description="x")
    spec = vrf.SerializeToString().replace(b"x", b"\xc3")
    result = dataplane.ask(put=api.Put(objects=[api.Object(kind="Vrf", name="v", spec=spec)])).results.results[0]
    assert (result.code, result.message) == (errno.EINVAL, "description: not valid UTF-8")
    request = api.Request(id=2, put=api.Put(objects=[api.Object(kind="Vrf", name="x")])).SerializeToString()
    reply = raw(dataplane, request.replace(b"x", b"\xed"))
    assert (reply.result.code, reply.result.message) == (errno.EINVAL, "put.objects[0].name: not valid UTF-8")


def raw(connection, request):
    connection.send_raw(struct.pack("!I", len(request)) + request)
    with contextlib.suppress(EOFError):
        return connection.receive()
