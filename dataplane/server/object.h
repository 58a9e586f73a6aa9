// SPDX-License-Identifier: Apache-2.0
// Objects that the agent put here. Each kind belongs to a concept, which checks specs and makes the tables that workers read.
// The store has every spec byte for byte, so that the agent can list them. Main thread only.
#pragma once

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>
#include <rte_common.h>

// An error in words: the object, the field and the mend.
struct fault {
	char text[256];
};

// Write the fault's text; returns -code, so that a function can end with it.
int fault(struct fault *f, int code, const char *format, ...) __rte_format_printf(3, 4);

struct object {
	const struct kind *kind;
	char *name;
	uint8_t *spec; // packed
	size_t spec_length;
	void *state;    // the kind's own
	void *prepared; // the result of the kind's `prepare`, during `put`
	uint32_t users; // objects that refer to this one: it cannot be deleted before them
	uint8_t owner;  // the service that produces it (object_owner_id()); 0: configuration
};

struct kind {
	const char *name;
	const ProtobufCMessageDescriptor *spec;
	// Create the object from the spec (`old` NULL; set object->state), or change it from `old` to `spec`. Specs have passed the checks of
	// their annotations, and are valid during the call. 0, or a negative errno with the fault explained, and then nothing has changed.
	// A kind with `prepare` gets neither: its `state` is NULL when it is created.
	int (*put)(struct object *object, const void *spec, const void *old, struct fault *f);
	// For specs that take long to prepare; may be NULL. Called before `put`, on another thread: it sees the spec
	// and nothing else, and ends early, with any error, when `unwanted` is set (NULL: it never is). 0, or a negative
	// errno with the fault explained. `put` finds the result in object->prepared, and sets that to NULL if it takes
	// it; otherwise `discard` frees it.
	int (*prepare)(
		const char *name, const void *spec, const atomic_bool *unwanted, void **prepared, struct fault *f);
	void (*discard)(void *prepared);
	// 0, or a negative errno with the fault explained and the object still there. `users` is 0 when it is called. A kind
	// with `prepare` gets no spec.
	int (*delete)(struct object *object, const void *spec, struct fault *f);
	// Pack the object's counters into `room`, as the contract's message for them. Returns the length, at most `size`, or 0. Called
	// before `delete`. May be NULL.
	size_t (*final)(const struct object *object, uint8_t *room, size_t size);
	// Called once at start, after the graph's ids are known and before any worker runs. May be NULL.
	int (*start)(void);

	const struct contract_message *contract; // the annotations of its spec (server/contract.h)
	uint8_t id;
	struct kind *next;
};

void kind_register(struct kind *kind);

#define KIND_REGISTER(kind) \
	RTE_INIT(register_##kind) \
	{ \
		kind_register(&kind); \
	}

// The object, or NULL.
struct object *object_find(const struct kind *kind, const char *name);
// As object_find, but a missing object is -ENOENT with a fault that names the field. An empty name gives `*found` NULL.
int object_need(const struct kind *kind, const char *name, const char *field, struct object **found, struct fault *f);

static inline void
object_use(struct object *object)
{
	if (object)
		object->users++;
}

static inline void
object_unuse(struct object *object)
{
	if (object)
		object->users--;
}

// How many changes of objects there were (api/dataplane.proto: Changed).
uint64_t object_generation(void);

// The number of a service that produces objects, from 1; 0 for the empty name; or -EINVAL, -ENOSPC with the fault explained.
int object_owner_id(const char *owner, struct fault *f);
const char *object_owner_name(uint8_t id);
// The object is produced by this service from now on.
void object_set_owner(struct object *object, uint8_t owner);

// 0 or a negative errno and the fault explained.
int object_put(const char *kind, const char *name, const uint8_t *spec, size_t length, struct fault *f);
int object_delete(const char *kind, const char *name, struct fault *f);
