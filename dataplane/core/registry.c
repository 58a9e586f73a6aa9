// SPDX-License-Identifier: Apache-2.0
#include "core/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void
registry_full(const char *table, const char *entry, unsigned room, const char *constant, const char *file)
{
	fprintf(stderr, "%s: no room for %s: there are %u already; raise %s in dataplane/%s\n", table, entry, room,
		constant, file);
	// No handlers: nothing has started yet.
	_exit(EXIT_FAILURE);
}
