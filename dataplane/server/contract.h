// SPDX-License-Identifier: Apache-2.0
// The checks that follow from the annotations in api/*.proto. contract.py writes the tables when the data plane is built.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

struct contract_field {
	const struct contract_message *message; // of a message with annotations
	int64_t min, max;                       // of a number, or of the length of a list; max 0: no upper bound
	const char *accepted; // numbers or lengths in words, or an example of a string; NULL: the annotation has none
	bool required;
	bool zero; // 0 is accepted outside the bounds
};

struct contract_message {
	const ProtobufCMessageDescriptor *descriptor;
	const struct contract_field *fields; // as descriptor->fields
};

extern const struct contract_message *const contract_messages[]; // up to NULL

// The annotations of a message, NULL if the contract does not have it.
const struct contract_message *contract_of(const ProtobufCMessageDescriptor *descriptor);

struct fault;
// Check an unpacked spec: required fields, bounds, lengths of lists, values of enums, UTF-8 of strings. Formats of strings are checked where they
// are parsed. 0, or -EINVAL and a fault that names the field. `contract` may be NULL. Any thread.
int contract_check(const struct contract_message *contract, const ProtobufCMessage *message, struct fault *f);
// The same for a request: UTF-8 alone (RFC 3629).
int contract_check_text(const ProtobufCMessage *message, struct fault *f);
