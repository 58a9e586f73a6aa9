// SPDX-License-Identifier: Apache-2.0
// Arrays that grow in place.
#include "core/slab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <stdbool.h>
#include <time.h>

#include "core/huge.h"
#include "core/rcu.h"

void *
slab_reserve(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	// A whole huge page for a handful of records would be a waste: small arrays stay with small pages.
	if (bytes >= 16 * (size_t)HUGE_PAGE)
		madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

void
slab_unreserve(void *memory, size_t bytes)
{
	if (memory)
		munmap(memory, bytes);
}

int
slab_create(struct slab *slab, size_t record_size, uint32_t limit)
{
	*slab = (struct slab){.size = record_size, .limit = limit};
	slab->records = slab_reserve(record_size * limit);
	return slab->records ? 0 : -ENOMEM;
}

void
slab_destroy(struct slab *slab)
{
	slab_unreserve(slab->records, slab->size * slab->limit);
	free(slab->unused);
	free(slab->resting);
	*slab = (struct slab){0};
}

static uint64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

// The index that has rested longest, if that is long enough or `must` is set.
static bool
wake(struct slab *slab, bool must, uint32_t *index)
{
	if (slab->resting_count == 0)
		return false;
	if (!must && now() - slab->resting[slab->resting_first].since < SLAB_REST_NS)
		return false;
	*index = slab->resting[slab->resting_first].index;
	slab->resting_first = (slab->resting_first + 1) % slab->resting_room;
	slab->resting_count--;
	return true;
}

uint32_t
slab_take(struct slab *slab)
{
	uint32_t index;

	if (slab->unused_count > 0)
		index = slab->unused[--slab->unused_count];
	else if (!wake(slab, slab->used == slab->limit, &index))
		return slab->used == slab->limit ? UINT32_MAX : slab->used++;
	memset(slab_at(slab, index), 0, slab->size);
	return index;
}

static void
rest(struct slab *slab, uint32_t index)
{
	if (slab->resting_count == slab->resting_room) {
		uint32_t room = slab->resting_room ? 2 * slab->resting_room : 64;
		struct slab_resting *grown = malloc(room * sizeof(grown[0]));

		if (!grown)
			return; // only the index is lost
		for (uint32_t i = 0; i < slab->resting_count; i++)
			grown[i] = slab->resting[(slab->resting_first + i) % slab->resting_room];
		free(slab->resting);
		slab->resting = grown;
		slab->resting_first = 0;
		slab->resting_room = room;
	}
	slab->resting[(slab->resting_first + slab->resting_count++) % slab->resting_room] =
		(struct slab_resting){index, now()};
}

void
slab_give(struct slab *slab, uint32_t index)
{
	if (slab->unused_count == slab->unused_room) {
		uint32_t room = slab->unused_room ? 2 * slab->unused_room : 64;
		uint32_t *grown = realloc(slab->unused, room * sizeof(grown[0]));

		if (!grown)
			return; // only the index is lost
		slab->unused = grown;
		slab->unused_room = room;
	}
	slab->unused[slab->unused_count++] = index;
}

struct later {
	struct slab *slab;
	uint32_t index;
};

static void
give(void *memory)
{
	struct later *later = memory;

	rest(later->slab, later->index);
	free(later);
}

void
slab_give_later(struct slab *slab, uint32_t index)
{
	struct later *later = malloc(sizeof(*later));

	if (!later)
		return;
	*later = (struct later){slab, index};
	rcu_retire(give, later);
}
