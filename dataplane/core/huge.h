// SPDX-License-Identifier: Apache-2.0
// Memory for tables that are touched all over.
#pragma once

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

// Zeroed, on a cache line's start, and with huge pages where it is large enough for one; for free(). NULL: no memory.
//
// It is written to here, all of it: a page that is read before it is written to costs two faults, and the second one interrupts
// the workers, whose view of it has to change.
static inline void *
huge_zeroed(size_t bytes)
{
	size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
	void *memory = aligned_alloc(alignment, (bytes + 63) / 64 * 64);

	if (!memory)
		return NULL;
	if (bytes >= HUGE_PAGE)
		madvise(memory, bytes, MADV_HUGEPAGE);
	return memset(memory, 0, bytes);
}
