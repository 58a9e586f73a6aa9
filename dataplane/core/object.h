// Objects: what the agent put here. Each kind is a concept's, which checks a spec and makes the tables that workers read;
// the store keeps every spec byte for byte, so that the agent can ask what there is. Main thread only.
#pragma once

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>
#include <rte_common.h>

// What went wrong, in words: which object and field, and what would be right.
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
	void *prepared; // what the kind's `prepare` made, during `put`
	uint32_t users; // objects that refer to this one: it cannot be deleted before them
};

struct kind {
	const char *name;
	const ProtobufCMessageDescriptor *spec;
	// Create what the spec says (`old` NULL; set object->state), or change what there is from `old` to `spec`. 0, or a
	// negative errno with the fault explained, and then everything is as it was before. Specs are valid during the call.
	// A kind with `prepare` gets neither: its `state` is NULL when it is created.
	int (*put)(struct object *object, const void *spec, const void *old, struct fault *f);
	// For specs that take long to make ready; may be NULL. Called before `put`, on another thread: it sees the spec
	// and nothing else, and ends early, with any error, when it is `unwanted` (NULL: it never is). 0, or a negative
	// errno with the fault explained. `put` finds what it made in object->prepared, and sets that to NULL if it took
	// it; `discard` frees what was not taken.
	int (*prepare)(
		const char *name, const void *spec, const atomic_bool *unwanted, void **prepared, struct fault *f);
	void (*discard)(void *prepared);
	// 0, or a negative errno with the fault explained and the object still there. `users` is 0 when it is called. A kind
	// with `prepare` gets no spec.
	int (*delete)(struct object *object, const void *spec, struct fault *f);
	// Called once at start, after the graph's ids are known and before any worker runs. May be NULL.
	int (*start)(void);

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
// As object_find, but a missing one is a fault that names who asked, by which field: -ENOENT. An empty name gives `*found` NULL.
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

// 0 or a negative errno and the fault explained.
int object_put(const char *kind, const char *name, const uint8_t *spec, size_t length, struct fault *f);
int object_delete(const char *kind, const char *name, struct fault *f);
