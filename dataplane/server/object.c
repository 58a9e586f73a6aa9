// SPDX-License-Identifier: Apache-2.0
// The store of objects.
#include "server/object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/start.h"
#include "server/budget.h"
#include "server/builder.h"
#include "server/contract.h"
#include "server/object_build.h"
#include "server/object_list.h"

enum {
	OBJECT_NAME_MAX = 253,
	UNPACKED_BESIDE = 64 << 20, // a few bytes can be a whole rule
	SCRATCH = 64 << 10,         // far more than an unpacked session
	SPEC_SMALL = 16 << 10,      // ready in no time, beside others
	OWNER_LENGTH = 63,          // bytes
	OWNER_MAX = 255,
};

static struct kind *registered;
static struct kind *by_id[NAMES_KINDS];
static unsigned kind_count;
static struct names *names;
static uint64_t generation;

static uint8_t scratch_bytes[SCRATCH] __rte_aligned(16);
static struct scratch scratch = {.bytes = scratch_bytes, .size = sizeof(scratch_bytes)}; // of the main thread

// Services that produce objects. They are few, and stay.
static char *owners[OWNER_MAX + 1];
static unsigned owner_count;

int
object_owner_id(const char *owner, struct fault *f)
{
	if (owner[0] == '\0')
		return 0;
	for (unsigned i = 1; i <= owner_count; i++)
		if (strcmp(owners[i], owner) == 0)
			return (int)i;
	if (strnlen(owner, OWNER_LENGTH + 1) > OWNER_LENGTH)
		return fault(f, EINVAL, "owner: at most %d bytes are accepted", OWNER_LENGTH);
	if (owner_count == OWNER_MAX)
		return fault(f, ENOSPC, "owner: at most %d services are accepted", OWNER_MAX);
	owners[owner_count + 1] = strdup(owner);
	if (!owners[owner_count + 1])
		return fault(f, ENOMEM, "owner: there is no memory for another service");
	return (int)++owner_count;
}

const char *
object_owner_name(uint8_t id)
{
	return id > 0 && id <= owner_count ? owners[id] : "";
}

void
object_set_owner(struct object *object, uint8_t owner)
{
	generation += object->owner != owner;
	object->owner = owner;
}

uint64_t
object_generation(void)
{
	return generation;
}

void
kind_register(struct kind *kind)
{
	kind->next = registered;
	registered = kind;
}

int
fault(struct fault *f, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(f->text, sizeof(f->text), format, arguments);
	va_end(arguments);
	return -code;
}

struct kind *
kind_by_name(const char *name)
{
	// Mostly it is the one of the object before.
	static struct kind *last;

	if (last && strcmp(last->name, name) == 0)
		return last;
	for (unsigned i = 0; i < kind_count; i++)
		if (strcmp(by_id[i]->name, name) == 0)
			return last = by_id[i];
	return NULL;
}

struct kind *
kind_by_id(unsigned id)
{
	return id < kind_count ? by_id[id] : NULL;
}

static int
by_kind_name(const void *a, const void *b)
{
	return strcmp((*(struct kind *const *)a)->name, (*(struct kind *const *)b)->name);
}

int
object_registry_start(void)
{
	names = names_create();
	if (!names)
		return -ENOMEM;
	for (struct kind *k = registered; k; k = k->next)
		by_id[kind_count++] = k;
	qsort(by_id, kind_count, sizeof(by_id[0]), by_kind_name);
	for (unsigned i = 0; i < kind_count; i++) {
		by_id[i]->id = (uint8_t)i;
		by_id[i]->contract = contract_of(by_id[i]->spec);
	}
	return 0;
}

static int
object_start(void)
{
	int registry = object_registry_start();

	if (registry)
		return registry;
	for (unsigned i = 0; i < kind_count; i++) {
		int error = by_id[i]->start ? by_id[i]->start() : 0;

		if (error) {
			fprintf(stderr, "kind %s cannot start: %s\n", by_id[i]->name, strerror(-error));
			return error;
		}
	}
	return 0;
}

static struct part objects = {
	.name = "objects", .phase = PART_BEFORE_WORKERS, .start = object_start, .stop = builder_stop};
PART_REGISTER(objects)

struct object *
object_find(const struct kind *kind, const char *name)
{
	return names_get(names, kind->id, name);
}

struct object *
object_next(const struct kind *kind, uint64_t *cursor)
{
	return names_next(names, kind->id, cursor, NULL);
}

int
object_need(const struct kind *kind, const char *name, const char *field, struct object **found, struct fault *f)
{
	*found = NULL;
	if (name[0] == '\0')
		return 0;
	*found = object_find(kind, name);
	if (!*found)
		return fault(f, ENOENT, "%s: there is no %s \"%s\"", field, kind->name, name);
	return 0;
}

static bool
name_ok(const char *name)
{
	size_t length = strlen(name);

	if (length == 0 || length > OBJECT_NAME_MAX)
		return false;
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)name[i] <= ' ' || name[i] == 0x7f)
			return false;
	return true;
}

// A spec may have keys.
static void
spec_free(uint8_t *spec, size_t length)
{
	if (spec)
		explicit_bzero(spec, length);
	free(spec);
}

static void
object_free(struct object *object)
{
	spec_free(object->spec, object->spec_length);
	free(object);
}

static struct object *
object_make(const struct kind *kind, const char *name)
{
	size_t of_name = strlen(name) + 1;
	struct object *object = malloc(sizeof(*object) + of_name);

	if (!object)
		return NULL;
	*object = (struct object){.kind = kind, .name = (char *)(object + 1)};
	memcpy(object->name, name, of_name);
	return object;
}

// Store the spec that the kind took: the bytes, and the name if it is new.
static int
keep(struct object *object, bool is_new, uint8_t *copy, size_t length, struct fault *f)
{
	if (is_new && names_put(names, object->kind->id, object->name, object))
		return fault(f, ENOMEM, "there is no memory for another object");
	spec_free(object->spec, object->spec_length);
	object->spec = copy;
	object->spec_length = length;
	return 0;
}

static bool
says_the_same(const struct object *object, const uint8_t *spec, size_t length)
{
	return object && object->spec_length == length && (length == 0 || memcmp(object->spec, spec, length) == 0);
}

// Whether the kind and name are valid, the kind, and the object; that is NULL if there is none.
static int
look_at(const char *kind_name, const char *name, const struct kind **kind, struct object **object, struct fault *f)
{
	*kind = kind_by_name(kind_name);
	if (!*kind)
		return fault(f, EINVAL, "this data plane knows no kind \"%.64s\"", kind_name);
	if (!name_ok(name))
		return fault(f, EINVAL, "name: one to %d characters without spaces are accepted", OBJECT_NAME_MAX);
	*object = object_find(*kind, name);
	return 0;
}

// Keys may have been in it.
static void
scratch_back(size_t before)
{
	explicit_bzero(scratch.bytes + before, scratch.used - before);
	scratch.used = before;
}

// On any thread. To be freed with the budget.
static int
unpack(const struct kind *kind, const uint8_t *spec, size_t length, struct budget *budget, ProtobufCMessage **message,
	struct fault *f)
{
	ProtobufCAllocator memory = budget_allocator(budget);

	budget->left = budget_for(length, UNPACKED_BESIDE);
	*message = protobuf_c_message_unpack(kind->spec, &memory, length, spec);
	if (*message)
		return 0;
	if (budget->spent)
		return fault(f, E2BIG, "the spec says too much in too few bytes");
	return fault(f, EINVAL, "the spec is not a packed %s", kind->name);
}

// For a kind without `prepare`, `message` is the unpacked spec; NULL for a kind with it. The kind takes `prepared`, or it is
// discarded. `object` is NULL if it is new.
static int
put(const struct kind *kind, struct object *object, const char *name, const uint8_t *spec, size_t length,
	const ProtobufCMessage *message, void *prepared, struct fault *f)
{
	struct budget budget = {.scratch = &scratch};
	bool is_new = !object;
	ProtobufCMessage *old = NULL;
	uint8_t *copy = malloc(length + 1);
	int error = 0;

	if (is_new)
		object = object_make(kind, name);
	else if (!kind->prepare && unpack(kind, object->spec, object->spec_length, &budget, &old, f))
		error = -ENOMEM;
	if (!object || !copy || error) {
		error = fault(f, ENOMEM, "there is no memory for the object");
		goto out;
	}
	// No bytes at all are a spec without any field.
	if (length > 0)
		memcpy(copy, spec, length);
	object->prepared = prepared;
	error = kind->put(object, message, old, f);
	prepared = object->prepared;
	object->prepared = NULL;
	if (error)
		goto out;
	error = keep(object, is_new, copy, length, f);
	if (error) {
		kind->delete (object, message, f);
	} else {
		copy = NULL;
		generation++;
	}
out:
	spec_free(copy, length);
	if (prepared)
		kind->discard(prepared);
	if (error && is_new && object)
		object_free(object);
	budget_free(&budget, old);
	return error;
}

static int
prepare(const struct kind *kind, const char *name, const uint8_t *spec, size_t length, const atomic_bool *unwanted,
	void **prepared, struct fault *f)
{
	struct budget budget = {0};
	ProtobufCMessage *message;
	int error = unpack(kind, spec, length, &budget, &message, f);

	if (!error)
		error = contract_check(kind->contract, message, f);
	if (!error)
		error = kind->prepare(name, message, unwanted, prepared, f);
	budget_free(&budget, message);
	return error;
}

int
object_put(const char *kind_name, const char *name, const uint8_t *spec, size_t length, struct fault *f)
{
	struct budget budget = {.scratch = &scratch};
	size_t before = scratch.used;
	const struct kind *kind;
	struct object *object;
	ProtobufCMessage *message = NULL;
	void *prepared = NULL;
	int error = look_at(kind_name, name, &kind, &object, f);

	if (error || says_the_same(object, spec, length))
		return error;
	if (kind->prepare)
		error = prepare(kind, name, spec, length, NULL, &prepared, f);
	else
		error = unpack(kind, spec, length, &budget, &message, f);
	if (!error && message)
		error = contract_check(kind->contract, message, f);
	if (!error)
		error = put(kind, object, name, spec, length, message, prepared, f);
	budget_free(&budget, message);
	scratch_back(before);
	return error;
}

struct object_build {
	struct build build;
	const struct kind *kind;
	char *name;
	ProtobufCBinaryData spec;
	void *prepared;
	int error;
	struct fault fault;
	void (*done)(void *argument, int error, const struct fault *f);
	void *argument;
};

static void
build_free(struct object_build *b)
{
	if (b->prepared)
		b->kind->discard(b->prepared);
	spec_free(b->spec.data, b->spec.len);
	free(b->name);
	free(b);
}

static void
build_work(struct build *build)
{
	struct object_build *b = RTE_PTR_SUB(build, offsetof(struct object_build, build));

	b->error = prepare(b->kind, b->name, b->spec.data, b->spec.len, &build->unwanted, &b->prepared, &b->fault);
}

static void
build_done(struct build *build)
{
	struct object_build *b = RTE_PTR_SUB(build, offsetof(struct object_build, build));

	if (!atomic_load(&build->unwanted)) {
		if (!b->error) {
			b->error = put(b->kind, object_find(b->kind, b->name), b->name, b->spec.data, b->spec.len, NULL,
				b->prepared, &b->fault);
			b->prepared = NULL;
		}
		b->done(b->argument, b->error, &b->fault);
	}
	build_free(b);
}

int
object_put_or_build(const char *kind_name, const char *name, ProtobufCBinaryData *spec,
	void (*done)(void *argument, int error, const struct fault *f), void *argument, struct object_build **build,
	struct fault *f)
{
	const struct kind *kind = kind_by_name(kind_name);
	struct object *object;
	struct object_build *b;
	int error;

	*build = NULL;
	if (!kind || !kind->prepare)
		return object_put(kind_name, name, spec->data, spec->len, f);
	error = look_at(kind_name, name, &kind, &object, f);
	if (error || says_the_same(object, spec->data, spec->len))
		return error;
	b = calloc(1, sizeof(*b));
	if (!b)
		return fault(f, ENOMEM, "there is no memory for the object");
	b->kind = kind;
	b->build.work = build_work;
	b->build.done = build_done;
	b->build.small = spec->len < SPEC_SMALL;
	b->spec.len = spec->len;
	b->done = done;
	b->argument = argument;
	b->name = strdup(name);
	b->spec.data = budget_keep(spec);
	error = b->name && b->spec.data ? builder_add(&b->build) : -ENOMEM;
	if (error) {
		build_free(b);
		return fault(f, -error, "%s %.63s cannot be built beside the main thread: %s", kind->name, name,
			strerror(-error));
	}
	*build = b;
	return 0;
}

void
object_build_abandon(struct object_build *b)
{
	if (builder_drop(&b->build))
		build_free(b);
}

// Whether a field of a packed spec is this string: the length comes before it. Other bytes may look so, too.
static bool
may_say(const uint8_t *spec, size_t length, const char *name)
{
	size_t of_name = strlen(name);
	uint8_t field[2 + OBJECT_NAME_MAX];
	size_t before = 0;

	if (of_name >= 0x80)
		field[before++] = (uint8_t)(of_name | 0x80);
	field[before++] = (uint8_t)(of_name >= 0x80 ? of_name >> 7 : of_name);
	memcpy(field + before, name, of_name);
	return length > 0 && memmem(spec, length, field, before + of_name) != NULL;
}

bool
object_build_concerns(
	const struct object_build *b, const char *kind_name, const char *name, const uint8_t *spec, size_t length)
{
	const struct kind *kind = kind_by_name(kind_name);

	if (kind == b->kind && strcmp(name, b->name) == 0)
		return true;
	return kind && !kind->prepare && may_say(spec, length, b->name);
}

int
object_delete(const char *kind_name, const char *name, struct fault *f)
{
	const struct kind *kind = kind_by_name(kind_name);
	struct object *object;
	struct budget budget = {.scratch = &scratch};
	size_t before = scratch.used;
	ProtobufCMessage *message = NULL;
	int error = 0;

	if (!kind)
		return fault(f, EINVAL, "this data plane knows no kind \"%.64s\"", kind_name);
	object = object_find(kind, name);
	if (!object)
		return 0;
	if (object->users > 0)
		return fault(f, EBUSY, "%u other objects still use it; delete or change them first", object->users);
	if (!kind->prepare && unpack(kind, object->spec, object->spec_length, &budget, &message, f))
		error = fault(f, ENOMEM, "there is no memory to unpack the object");
	else
		error = kind->delete (object, message, f);
	budget_free(&budget, message);
	scratch_back(before);
	if (error)
		return error;
	names_delete(names, kind->id, name);
	object_free(object);
	generation++;
	return 0;
}
