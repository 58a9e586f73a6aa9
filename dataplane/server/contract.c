// SPDX-License-Identifier: Apache-2.0
#include "server/contract.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/object.h"

// The way to a field, from the field back to the outermost one. Names become text for a fault alone.
struct place {
	const struct place *around;
	const ProtobufCFieldDescriptor *field;
	size_t index; // in a list, else NO_INDEX
};

enum { NAME_SIZE = 160 };
static const size_t NO_INDEX = SIZE_MAX;

const struct contract_message *
contract_of(const ProtobufCMessageDescriptor *descriptor)
{
	for (unsigned i = 0; contract_messages[i]; i++)
		if (contract_messages[i]->descriptor == descriptor)
			return contract_messages[i];
	return NULL;
}

// "policy.acl_up" is policy.aclUp to people.
static size_t
write_name(const struct place *place, char name[NAME_SIZE])
{
	size_t at = 0;
	bool upper = false;

	if (place->around) {
		at = write_name(place->around, name);
		if (at < NAME_SIZE - 1)
			name[at++] = '.';
	}
	for (const char *c = place->field->name; *c && at < NAME_SIZE - 1; c++) {
		if (*c != '_')
			name[at++] = (char)(upper ? toupper(*c) : *c);
		upper = *c == '_';
	}
	name[at] = '\0';
	if (place->index != NO_INDEX)
		at += (size_t)snprintf(name + at, NAME_SIZE - at, "[%zu]", place->index);
	return at < NAME_SIZE ? at : NAME_SIZE - 1;
}

static const char *
name_of(const struct place *place, char name[NAME_SIZE])
{
	write_name(place, name);
	return name;
}

static int
missing(const struct place *place, const struct contract_field *note, struct fault *f)
{
	char name[NAME_SIZE];

	return note->accepted
		       ? fault(f, EINVAL, "%s: missing; for example \"%s\"", name_of(place, name), note->accepted)
		       : fault(f, EINVAL, "%s: missing", name_of(place, name));
}

// RFC 3629 section 4. Bytes of the sequence at `s`, or 0.
static unsigned
utf8_sequence(const uint8_t *s)
{
	uint32_t point;
	unsigned length = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;

	if (length <= 1)
		return length;
	point = s[0] & (0x7fu >> length);
	for (unsigned i = 1; i < length; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		point = point << 6 | (s[i] & 0x3f);
	}
	if (point < (length == 2          ? 0x80u
			    : length == 3 ? 0x800u
					  : 0x10000u) ||
		point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
		return 0;
	return length;
}

static bool
is_utf8(const char *text)
{
	for (const uint8_t *s = (const uint8_t *)text; *s;) {
		unsigned length = utf8_sequence(s);

		if (length == 0)
			return false;
		s += length;
	}
	return true;
}

static int
check_string(const char *text, const struct place *place, const struct contract_field *note, struct fault *f)
{
	char name[NAME_SIZE];

	if (!is_utf8(text))
		return fault(f, EINVAL, "%s: not valid UTF-8", name_of(place, name));
	return note && note->required && text[0] == '\0' ? missing(place, note, f) : 0;
}

static int
check_enum(int value, const struct place *place, struct fault *f)
{
	const ProtobufCEnumDescriptor *descriptor = place->field->descriptor;
	char name[NAME_SIZE], accepted[NAME_SIZE] = "";
	size_t used = 0;

	if (protobuf_c_enum_descriptor_get_value(descriptor, value))
		return 0;
	for (unsigned i = 0; i < descriptor->n_values && used < sizeof(accepted); i++)
		used += (size_t)snprintf(
			accepted + used, sizeof(accepted) - used, "%s%s", i ? ", " : "", descriptor->values[i].name);
	return fault(f, EINVAL, "%s: %d is unknown; %s are accepted", name_of(place, name), value, accepted);
}

static int
check_number(
	bool negative, uint64_t size, const struct place *place, const struct contract_field *note, struct fault *f)
{
	char name[NAME_SIZE];
	bool fits;

	if (size == 0 && (note->zero || note->required))
		return note->zero ? 0
				  : fault(f, EINVAL, "%s: missing; %s accepted", name_of(place, name), note->accepted);
	if (negative)
		fits = note->min < 0 && size <= -(uint64_t)note->min;
	else
		fits = (note->max == 0 || size <= (uint64_t)note->max) &&
		       (note->min <= 0 || size >= (uint64_t)note->min);
	if (fits || !note->accepted)
		return 0;
	return fault(f, EINVAL, "%s: %s%" PRIu64 " is out of range; %s accepted", name_of(place, name),
		negative ? "-" : "", size, note->accepted);
}

static int
check_signed(int64_t value, const struct place *place, const struct contract_field *note, struct fault *f)
{
	return check_number(value < 0, value < 0 ? -(uint64_t)value : (uint64_t)value, place, note, f);
}

static int check_message(const struct contract_message *contract, const ProtobufCMessage *message, bool spec,
	const struct place *around, struct fault *f);

// `spec`: more than text is checked. `note` is NULL where there is no annotation.
static int
check_value(const void *value, const struct contract_field *note, bool spec, const struct place *place, struct fault *f)
{
	const ProtobufCMessage *message;

	switch (place->field->type) {
	case PROTOBUF_C_TYPE_STRING:
		return check_string(*(char *const *)value ?: "", place, note, f);
	case PROTOBUF_C_TYPE_MESSAGE:
		message = *(ProtobufCMessage *const *)value;
		if (!message)
			return note && note->required ? missing(place, note, f) : 0;
		return check_message(note ? note->message : NULL, message, spec, place, f);
	case PROTOBUF_C_TYPE_ENUM:
		return spec ? check_enum(*(const int *)value, place, f) : 0;
	case PROTOBUF_C_TYPE_UINT32:
		return note ? check_number(false, *(const uint32_t *)value, place, note, f) : 0;
	case PROTOBUF_C_TYPE_UINT64:
		return note ? check_number(false, *(const uint64_t *)value, place, note, f) : 0;
	case PROTOBUF_C_TYPE_INT32:
		return note ? check_signed(*(const int32_t *)value, place, note, f) : 0;
	default:
		return 0;
	}
}

// The bounds of a list are those of its length.
static int
check_list(size_t count, const void *list, const struct contract_field *note, bool spec, struct place *place,
	struct fault *f)
{
	const struct contract_field element = {.message = note ? note->message : NULL};
	size_t size = place->field->type == PROTOBUF_C_TYPE_STRING || place->field->type == PROTOBUF_C_TYPE_MESSAGE
			      ? sizeof(void *)
			      : sizeof(uint32_t);
	char name[NAME_SIZE];
	int error = 0;

	if (note && ((note->required && count == 0) || (note->min > 0 && count < (size_t)note->min) ||
			    (note->max > 0 && count > (size_t)note->max)))
		return fault(f, EINVAL, "%s: %zu elements; %s accepted", name_of(place, name), count, note->accepted);
	if (place->field->type != PROTOBUF_C_TYPE_STRING && place->field->type != PROTOBUF_C_TYPE_MESSAGE &&
		place->field->type != PROTOBUF_C_TYPE_ENUM)
		return 0;
	for (place->index = 0; place->index < count && error == 0; place->index++) {
		const void *value = (const uint8_t *)list + place->index * size;

		error = check_value(value, note ? &element : NULL, spec, place, f);
		if (error == 0 && spec && place->field->type == PROTOBUF_C_TYPE_STRING && !(*(char *const *)value)[0])
			error = fault(f, EINVAL, "%s: empty", name_of(place, name));
	}
	return error;
}

static int
check_message(const struct contract_message *contract, const ProtobufCMessage *message, bool spec,
	const struct place *around, struct fault *f)
{
	const ProtobufCMessageDescriptor *descriptor = message->descriptor;
	int error = 0;

	for (unsigned i = 0; i < descriptor->n_fields && error == 0; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
		const struct contract_field *note = contract ? &contract->fields[i] : NULL;
		const void *value = (const uint8_t *)message + field->offset;
		const void *quantifier = (const uint8_t *)message + field->quantifier_offset;
		struct place place = {around, field, NO_INDEX};

		if (field->label == PROTOBUF_C_LABEL_REPEATED)
			error = check_list(*(const size_t *)quantifier, *(void *const *)value, note, spec, &place, f);
		else if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) || *(const uint32_t *)quantifier == field->id)
			error = check_value(value, note, spec, &place, f);
	}
	return error;
}

int
contract_check(const struct contract_message *contract, const ProtobufCMessage *message, struct fault *f)
{
	return check_message(contract, message, true, NULL, f);
}

int
contract_check_text(const ProtobufCMessage *message, struct fault *f)
{
	return check_message(NULL, message, false, NULL, f);
}
