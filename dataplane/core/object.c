// The store of objects.
#include "core/object.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/builder.h"
#include "core/object_build.h"
#include "core/object_list.h"
#include "core/start.h"

enum { NAME_MOST = 253 };

static struct kind *registered;
static struct kind *by_id[NAMES_KINDS];
static unsigned kind_count;
static struct names *names;

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
	for (unsigned i = 0; i < kind_count; i++)
		if (strcmp(by_id[i]->name, name) == 0)
			return by_id[i];
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
	for (unsigned i = 0; i < kind_count; i++)
		by_id[i]->id = (uint8_t)i;
	return 0;
}

int
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

	if (length == 0 || length > NAME_MOST)
		return false;
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)name[i] <= ' ' || name[i] == 0x7f)
			return false;
	return true;
}

static void
object_free(struct object *object)
{
	free(object->name);
	free(object->spec);
	free(object);
}

static struct object *
object_make(const struct kind *kind, const char *name)
{
	struct object *object = calloc(1, sizeof(*object));

	if (!object)
		return NULL;
	object->kind = kind;
	object->name = strdup(name);
	if (!object->name) {
		free(object);
		return NULL;
	}
	return object;
}

// What the kind made of a spec, kept: the bytes, and the name if it is new.
static int
keep(struct object *object, bool is_new, uint8_t *copy, size_t length, struct fault *f)
{
	if (is_new && names_put(names, object->kind->id, object->name, object))
		return fault(f, ENOMEM, "there is no memory for another object");
	free(object->spec);
	object->spec = copy;
	object->spec_length = length;
	return 0;
}

static bool
says_the_same(const struct object *object, const uint8_t *spec, size_t length)
{
	return object && object->spec_length == length && (length == 0 || memcmp(object->spec, spec, length) == 0);
}

// `message` is the spec unpacked. What was prepared for it is taken or discarded.
static int
put(const struct kind *kind, const char *name, const uint8_t *spec, size_t length, const ProtobufCMessage *message,
	void *prepared, struct fault *f)
{
	struct object *object = object_find(kind, name);
	bool is_new = !object;
	ProtobufCMessage *old = NULL;
	uint8_t *copy;
	int error;

	if (object)
		old = protobuf_c_message_unpack(kind->spec, NULL, object->spec_length, object->spec);
	else
		object = object_make(kind, name);
	copy = malloc(length + 1);
	if (!object || !copy || (!is_new && !old)) {
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
	if (error)
		kind->delete (object, message, f);
	else
		copy = NULL;
out:
	free(copy);
	if (prepared)
		kind->discard(prepared);
	if (error && is_new && object)
		object_free(object);
	if (old)
		protobuf_c_message_free_unpacked(old, NULL);
	return error;
}

// The kind and the unpacked spec of what is to be put; no spec if the object says the same already.
static int
look_at(const char *kind_name, const char *name, const uint8_t *spec, size_t length, const struct kind **kind,
	ProtobufCMessage **message, struct fault *f)
{
	*message = NULL;
	*kind = kind_by_name(kind_name);
	if (!*kind)
		return fault(f, EINVAL, "this data plane knows no kind \"%.64s\"", kind_name);
	if (!name_ok(name))
		return fault(f, EINVAL, "name: one to %d characters without spaces are accepted", NAME_MOST);
	if (says_the_same(object_find(*kind, name), spec, length))
		return 0;
	*message = protobuf_c_message_unpack((*kind)->spec, NULL, length, spec);
	return *message ? 0 : fault(f, EINVAL, "the spec is not a packed %s", (*kind)->name);
}

int
object_put(const char *kind_name, const char *name, const uint8_t *spec, size_t length, struct fault *f)
{
	const struct kind *kind;
	ProtobufCMessage *message;
	void *prepared = NULL;
	int error = look_at(kind_name, name, spec, length, &kind, &message, f);

	if (error || !message)
		return error;
	if (kind->prepare)
		error = kind->prepare(name, message, &prepared, f);
	if (!error)
		error = put(kind, name, spec, length, message, prepared, f);
	protobuf_c_message_free_unpacked(message, NULL);
	return error;
}

struct object_build {
	struct build build;
	const struct kind *kind;
	const char *name;
	const uint8_t *spec;
	size_t length;
	ProtobufCMessage *message;
	char *name_copy; // for the builder, which may go on after its client went away
	void *prepared;
	int error;
	struct fault fault;
	_Atomic bool abandoned;
	void (*done)(void *argument, int error, const struct fault *f);
	void *argument;
};

static void
build_free(struct object_build *b)
{
	protobuf_c_message_free_unpacked(b->message, NULL);
	free(b->name_copy);
	free(b);
}

static void
build_work(struct build *build)
{
	struct object_build *b = RTE_PTR_SUB(build, offsetof(struct object_build, build));

	if (!atomic_load(&b->abandoned))
		b->error = b->kind->prepare(b->name_copy, b->message, &b->prepared, &b->fault);
}

static void
build_done(struct build *build)
{
	struct object_build *b = RTE_PTR_SUB(build, offsetof(struct object_build, build));

	if (atomic_load(&b->abandoned)) {
		if (b->prepared)
			b->kind->discard(b->prepared);
		build_free(b);
		return;
	}
	if (!b->error)
		b->error = put(b->kind, b->name, b->spec, b->length, b->message, b->prepared, &b->fault);
	b->done(b->argument, b->error, &b->fault);
	build_free(b);
}

int
object_put_or_build(const char *kind_name, const char *name, const uint8_t *spec, size_t length,
	void (*done)(void *argument, int error, const struct fault *f), void *argument, struct object_build **build,
	struct fault *f)
{
	const struct kind *kind = kind_by_name(kind_name);
	struct object_build *b;
	int error;

	*build = NULL;
	if (!kind || !kind->prepare)
		return object_put(kind_name, name, spec, length, f);
	b = calloc(1, sizeof(*b));
	if (!b)
		return fault(f, ENOMEM, "there is no memory for the object");
	b->build.work = build_work;
	b->build.done = build_done;
	b->name = name;
	b->spec = spec;
	b->length = length;
	b->done = done;
	b->argument = argument;
	error = look_at(kind_name, name, spec, length, &b->kind, &b->message, f);
	if (error || !b->message)
		goto out;
	b->name_copy = strdup(name);
	error = b->name_copy ? builder_add(&b->build) : -ENOMEM;
	if (error) {
		fault(f, -error, "%s %.63s cannot be built beside the main thread: %s", kind->name, name,
			strerror(-error));
		goto out;
	}
	*build = b;
	return 0;
out:
	build_free(b);
	return error;
}

void
object_build_abandon(struct object_build *b)
{
	atomic_store(&b->abandoned, true);
}

int
object_delete(const char *kind_name, const char *name, struct fault *f)
{
	const struct kind *kind = kind_by_name(kind_name);
	struct object *object;
	ProtobufCMessage *message;
	int error;

	if (!kind)
		return fault(f, EINVAL, "this data plane knows no kind \"%.64s\"", kind_name);
	object = object_find(kind, name);
	if (!object)
		return 0;
	if (object->users > 0)
		return fault(f, EBUSY, "%u other objects still use it; delete or change them first", object->users);
	message = protobuf_c_message_unpack(kind->spec, NULL, object->spec_length, object->spec);
	if (!message)
		return fault(f, ENOMEM, "there is no memory to unpack the object");
	error = kind->delete (object, message, f);
	protobuf_c_message_free_unpacked(message, NULL);
	if (error)
		return error;
	names_delete(names, kind->id, name);
	object_free(object);
	return 0;
}
