// Arrays that grow in place.
#include "core/slab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/rcu.h"

enum { HUGE_PAGE = 2 << 20 };

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
	if (slab->records)
		munmap(slab->records, slab->size * slab->limit);
	free(slab->unused);
	*slab = (struct slab){0};
}

uint32_t
slab_take(struct slab *slab)
{
	uint32_t index;

	if (slab->unused_count > 0) {
		index = slab->unused[--slab->unused_count];
		memset(slab_at(slab, index), 0, slab->size);
		return index;
	}
	if (slab->used == slab->limit)
		return UINT32_MAX;
	return slab->used++;
}

void
slab_give(struct slab *slab, uint32_t index)
{
	if (slab->unused_count == slab->unused_room) {
		uint32_t room = slab->unused_room ? 2 * slab->unused_room : 64;
		uint32_t *grown = realloc(slab->unused, room * sizeof(grown[0]));

		if (!grown)
			return; // the index is lost, nothing else
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

	slab_give(later->slab, later->index);
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
