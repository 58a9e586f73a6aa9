// SPDX-License-Identifier: Apache-2.0
// A concept's objects in the machine of the harnesses (machine.h): its file fuzz.c, which the concept's meson.build adds to `fuzz_parts`. The
// ports "access" and "core", the interfaces, policies and routes of machine.c are there before; parts do not need each other.
#pragma once

#include <rte_common.h>

struct fuzz_part {
	void (*put)(void);
	struct fuzz_part *next;
};

void fuzz_part_register(struct fuzz_part *part);
#define FUZZ_PART_REGISTER(part) \
	RTE_INIT(register_##part) \
	{ \
		fuzz_part_register(&part); \
	}

// An object for all frames; aborts with the reason when it is refused.
void fuzz_put(const char *kind, const char *name, const void *message);
