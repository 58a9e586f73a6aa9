// SPDX-License-Identifier: Apache-2.0
// Objects for the bench, put as the API puts them, and remembered so that they can go again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <protobuf-c/protobuf-c.h>

#include "bench.h"
#include "core/loop.h"
#include "server/object.h"

struct made {
	char *kind, *name;
};

static struct made *all;
static size_t count, room;

int
bench_put(const char *kind, const char *name, const void *message)
{
	size_t length = protobuf_c_message_get_packed_size(message);
	uint8_t *packed = malloc(length + 1);
	struct fault f = {0};
	int error = -1;

	if (count == room) {
		size_t desired = room ? 2 * (size_t)room : 1024;
		void *more = realloc(all, desired * sizeof(all[0]));

		if (more) {
			all = more;
			room = desired;
		}
	}
	if (packed && count < room) {
		protobuf_c_message_pack(message, packed);
		error = object_put(kind, name, packed, length, &f);
	}
	free(packed);
	if (error) {
		fprintf(stderr, "bench: %s %s: %s\n", kind, name, f.text);
		return -1;
	}
	all[count++] = (struct made){strdup(kind), strdup(name)};
	return 0;
}

void
bench_clear(void)
{
	while (count > 0) {
		struct fault f = {0};

		count--;
		if (object_delete(all[count].kind, all[count].name, &f))
			fprintf(stderr, "bench: %s %s cannot be deleted: %s\n", all[count].kind, all[count].name,
				f.text);
		free(all[count].kind);
		free(all[count].name);
		if (count % 1024 == 0)
			loop_once(0);
	}
}
