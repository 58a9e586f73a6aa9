// SPDX-License-Identifier: Apache-2.0
// An array of equal records, addressed by a 32-bit index, that grows in place: its address space is reserved at once and
// backed with memory as it is touched. Main thread writes, workers read.
#pragma once

#include <stdint.h>
#include <stddef.h>

struct slab {
	void *records;
	size_t size;    // of a record, in bytes
	uint32_t limit; // most records
	uint32_t used;  // indexes ever given out
	uint32_t *unused;
	uint32_t unused_count, unused_room;
	// Given back and not yet trusted to be forgotten: a ring, the oldest first.
	struct slab_resting {
		uint32_t index;
		uint64_t since; // nanoseconds
	} * resting;
	uint32_t resting_first, resting_count, resting_room;
};

// Packets that wait on the main thread (for a neighbour, for a fragment, in a ring) hold a record's index meanwhile.
// So an index rests longer than any packet waits before it names another record, unless no other is left.
#define SLAB_REST_NS 40000000000ull

// Reserved, zeroed memory that is backed when touched, with huge pages where the kernel has them. NULL: no address space.
void *slab_reserve(size_t bytes);
// Of so many bytes; NULL is well.
void slab_unreserve(void *memory, size_t bytes);

// 0 or -ENOMEM. A record of a cache line's size or a multiple of it starts on a cache line.
int slab_create(struct slab *slab, size_t record_size, uint32_t limit);
void slab_destroy(struct slab *slab);
// A zeroed record's index, or UINT32_MAX when there is none left.
uint32_t slab_take(struct slab *slab);
// Give an index back once no worker and no packet can hold it any more.
void slab_give_later(struct slab *slab, uint32_t index);
// Give an index back that no worker has seen.
void slab_give(struct slab *slab, uint32_t index);

static inline void *
slab_at(const struct slab *slab, uint32_t index)
{
	return (char *)slab->records + slab->size * index;
}
