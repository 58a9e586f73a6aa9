// SPDX-License-Identifier: Apache-2.0
// The main thread's index of everything that has a name: (kind, name) to an object, and all of a kind in the order in
// which they were first put, in pages that stay right while objects come and go between one page and the next.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { NAMES_KINDS = 256 }; // kinds are numbered below this

struct names;

// NULL when there is no memory.
struct names *names_create(void);

// Frees the index, not the values.
void names_destroy(struct names *names);

// Put or replace; a replaced name keeps its place in the order. The name is copied, the value is not and must not be
// NULL. -EINVAL for a kind out of range or no value, -ENOMEM (the index is unchanged).
int names_put(struct names *names, unsigned kind, const char *name, void *value);

// The value, or NULL.
void *names_get(const struct names *names, unsigned kind, const char *name);

// Takes the name out; the value it had, or NULL.
void *names_delete(struct names *names, unsigned kind, const char *name);

// The next value of a kind after a cursor, or NULL at the end. A cursor of 0 is before the first; it is moved to the
// value returned and stays valid for any time, even if that value is deleted or others are put meanwhile. `name` may be
// NULL; the string that it is set to lives until the name is deleted.
void *names_next(const struct names *names, unsigned kind, uint64_t *cursor, const char **name);

// How many names a kind has.
size_t names_count(const struct names *names, unsigned kind);

// Bytes held.
size_t names_memory(const struct names *names);
