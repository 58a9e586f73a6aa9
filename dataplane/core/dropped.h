// SPDX-License-Identifier: Apache-2.0
// For tests: drops by name.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/drop.h"

// Packets dropped for the reason of this name since the start.
static inline uint64_t
dropped(const char *name)
{
	for (uint16_t id = 0; id < drop_count(); id++)
		if (strcmp(drop_by_id(id)->name, name) == 0)
			return drop_total(id);
	fail_msg("no drop is called %s", name);
	return 0;
}
