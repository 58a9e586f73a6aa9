// SPDX-License-Identifier: Apache-2.0
// Deferred freeing over rte_rcu_qsbr. The workers report in worker.c.
#include "core/rcu.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_malloc.h>
#include <rte_rcu_qsbr.h>

#include "core/loop.h"
#include "core/start.h"
#include "core/worker.h"
#include "core/worker_rcu.h"

struct retired {
	uint64_t token;
	void (*release)(void *);
	void *memory;
};

struct rte_rcu_qsbr *worker_rcu;
static struct retired *queue; // a ring, oldest at `first`
static size_t first, count, room;

static void
release_ready(void *unused)
{
	while (count > 0 && rte_rcu_qsbr_check(worker_rcu, queue[first].token, false) == 1) {
		struct retired r = queue[first];

		first = (first + 1) % room;
		count--;
		r.release(r.memory);
	}
}

void
rcu_retire(void (*release)(void *), void *memory)
{
	// Without workers there are no readers.
	if (!worker_rcu) {
		release(memory);
		return;
	}
	if (count == room) {
		size_t grown = room ? 2 * room : 1024;
		struct retired *q = malloc(grown * sizeof(*q));

		if (!q) {
			rcu_wait();
			release_ready(NULL);
			release(memory);
			return;
		}
		for (size_t i = 0; i < count; i++)
			q[i] = queue[(first + i) % room];
		free(queue);
		queue = q;
		first = 0;
		room = grown;
	}
	queue[(first + count) % room] = (struct retired){rte_rcu_qsbr_start(worker_rcu), release, memory};
	count++;
}

void
rcu_wait(void)
{
	if (worker_rcu)
		rte_rcu_qsbr_synchronize(worker_rcu, RTE_QSBR_THRID_INVALID);
}

int
rcu_start(void)
{
	worker_rcu = rte_zmalloc("rcu", rte_rcu_qsbr_get_memsize(WORKER_MAX), RTE_CACHE_LINE_SIZE);
	if (!worker_rcu)
		return -ENOMEM;
	rte_rcu_qsbr_init(worker_rcu, WORKER_MAX);
	loop_poll(release_ready, NULL);
	return 0;
}
