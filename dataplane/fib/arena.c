// SPDX-License-Identifier: Apache-2.0
// Units of memory at fixed addresses: the range is reserved once, memory is added two megabytes at a time, and units
// that are given back are reused.
#include "fib/arena.h"

#include <stdlib.h>
#include <sys/mman.h>

static const size_t HUGE_PAGE = (size_t)2 << 20;

enum { FIRST_ROOM = 256 };

char *
arena_reserve(size_t bytes)
{
	char *base = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return NULL;
	return base + (HUGE_PAGE - (uintptr_t)base % HUGE_PAGE) % HUGE_PAGE;
}

static bool
back(char *base, size_t unit, size_t needed, size_t *ready)
{
	while (needed > *ready) {
		size_t bytes = (*ready * unit + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;

		if (mprotect(base + bytes, HUGE_PAGE, PROT_READ | PROT_WRITE) != 0)
			return false;
		// Small pages will do where the kernel has no huge ones.
		(void)madvise(base + bytes, HUGE_PAGE, MADV_HUGEPAGE);
		*ready = (bytes + HUGE_PAGE) / unit;
	}
	return true;
}

bool
arena_ready(struct arena *arena, size_t units)
{
	size_t needed = arena->used + units;

	if (arena->spares >= units)
		return true;
	if (needed > arena->limit)
		return false;
	// Room for all that may come back is made here, so that giving back cannot fail.
	if (needed > arena->room) {
		size_t room = needed * 2 > FIRST_ROOM ? needed * 2 : FIRST_ROOM;
		uint32_t *spare = realloc(arena->spare, room * sizeof(*spare));

		if (spare == NULL)
			return false;
		arena->spare = spare;
		arena->room = room;
	}
	if (arena->shadow_unit != 0 && !back(arena->shadow, arena->shadow_unit, needed, &arena->shadow_ready))
		return false;
	return back(arena->base, arena->unit, needed, &arena->ready);
}

uint32_t
arena_take(struct arena *arena)
{
	return arena->spares > 0 ? arena->spare[--arena->spares] : (uint32_t)arena->used++;
}

void
arena_give(struct arena *arena, uint32_t index)
{
	arena->spare[arena->spares++] = index;
}
