// SPDX-License-Identifier: Apache-2.0
// Threads that walk the graph.
#include "core/worker.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_rcu_qsbr.h>

#include "core/rcu.h"
#include "core/slab.h"
#include "core/start.h"
#include "core/trace.h"
#include "core/worker_rcu.h"

enum { EMPTY_BEFORE_SLEEP = 256, SHORTEST_SLEEP = 20000, LONGEST_SLEEP = 250000 /* ns */, IDLE_SHARE = 100 };
// At teardown: how long the main thread sleeps between two looks (ns), the maximum number of looks, and the number of
// walks that suffices.
enum { LOOK = 200000, LOOKS = 10000, ENOUGH_WALKS = 20 };

unsigned worker_count;
bool worker_has_core;
struct worker workers[WORKER_MAX + 1];
// Until a worker sets its own, and in unit tests: the first.
RTE_DEFINE_PER_LCORE(struct worker *, worker) = &workers[0];

static volatile bool stopped;

int
counters_create(struct counters *c, size_t record_size, uint32_t limit)
{
	*c = (struct counters){.size = record_size};
	for (unsigned w = 0; w <= worker_count; w++) {
		c->rows[w] = slab_reserve(record_size * limit);
		if (!c->rows[w])
			return -ENOMEM;
	}
	return 0;
}

void
counters_sum(const struct counters *c, uint32_t index, void *record)
{
	memset(record, 0, c->size);
	for (unsigned w = 0; w <= worker_count && c->rows[w]; w++) {
		const uint64_t *row = (const uint64_t *)((const char *)c->rows[w] + c->size * index);

		for (size_t i = 0; i < c->size / sizeof(uint64_t); i++)
			((uint64_t *)record)[i] += __atomic_load_n(&row[i], __ATOMIC_RELAXED);
	}
}

void
counters_clear(struct counters *c, uint32_t index)
{
	for (unsigned w = 0; w <= worker_count && c->rows[w]; w++) {
		char *row = (char *)c->rows[w] + c->size * index;

		// Where nothing was counted yet there is no memory, and reading gets it none.
		if (row[0] != 0 || memcmp(row, row + 1, c->size - 1) != 0)
			memset(row, 0, c->size);
	}
}

// One graph for each worker, with every node.
int
worker_start(void)
{
	char name[RTE_GRAPH_NAMESIZE];
	const char *patterns[NODE_MAX];
	struct rte_graph_param param = {.socket_id = SOCKET_ID_ANY, .node_patterns = patterns};
	unsigned lcore, w = 0;

	for (const struct node *n; (n = node_by_id(param.nb_node_patterns)) != NULL;)
		patterns[param.nb_node_patterns++] = n->name;
	RTE_LCORE_FOREACH_WORKER(lcore)
	{
		if (w == worker_count)
			break;
		snprintf(name, sizeof(name), "worker-%u", w);
		if (rte_graph_create(name, &param) == RTE_GRAPH_ID_INVALID)
			return -rte_errno;
		workers[w] = (struct worker){.index = w, .lcore = lcore, .graph = rte_graph_lookup(name)};
		if (!workers[w].graph)
			return -rte_errno;
		w++;
	}
	workers[worker_count].index = worker_count;
	RTE_PER_LCORE(worker) = &workers[worker_count];
	return 0;
}

uint64_t
worker_nap(uint64_t idle)
{
	return RTE_MIN(RTE_MAX(idle / IDLE_SHARE, (uint64_t)SHORTEST_SLEEP), (uint64_t)LONGEST_SLEEP);
}

// Nothing came `empty` times in a row, since `since` (TSC). The kernel may need this core to bring us packets (a veth's softirq),
// so an idle worker lets others run. A worker that shares its core sleeps after a while: on some kernels threads that only yield keep
// others from ever starting. rcu_wait() does not wait for a worker that sleeps.
static void
rest(const struct worker *self, unsigned empty, uint64_t since)
{
	if (worker_has_core || empty < EMPTY_BEFORE_SLEEP) {
		sched_yield();
		return;
	}
	uint64_t idle = (uint64_t)((double)(rte_rdtsc() - since) * 1e9 / (double)rte_get_tsc_hz());

	rte_rcu_qsbr_thread_offline(worker_rcu, self->index);
	nanosleep(&(struct timespec){.tv_nsec = (long)worker_nap(idle)}, NULL);
	rte_rcu_qsbr_thread_online(worker_rcu, self->index);
}

static int
work(void *argument)
{
	struct worker *self = argument;
	uint64_t taken, since = 0;
	unsigned empty = 0;

	// Else a sleep takes 50 us longer.
	prctl(PR_SET_TIMERSLACK, 1);

	RTE_PER_LCORE(worker) = self;
	rte_rcu_qsbr_thread_register(worker_rcu, self->index);
	rte_rcu_qsbr_thread_online(worker_rcu, self->index);
	while (!stopped) {
		trace_switch(self);
		taken = self->taken;
		worker_walk(self);
		rte_rcu_qsbr_quiescent(worker_rcu, self->index);
		if (self->taken != taken) {
			empty = 0;
			continue;
		}
		if (empty == 0)
			since = rte_rdtsc();
		rest(self, empty, since);
		empty += empty < EMPTY_BEFORE_SLEEP;
	}
	rte_rcu_qsbr_thread_offline(worker_rcu, self->index);
	rte_rcu_qsbr_thread_unregister(worker_rcu, self->index);
	return 0;
}

// Whether each has walked often enough since it had walked so often.
static bool
have_walked(const uint64_t *since)
{
	for (unsigned w = 0; w < worker_count; w++) {
		uint64_t walks = __atomic_load_n(&workers[w].walks, __ATOMIC_RELAXED);

		if (walks > 0 && walks - since[w] < ENOUGH_WALKS)
			return false;
	}
	return true;
}

void
worker_finish(bool (*waits)(const void *what), const void *what, uint64_t least)
{
	uint64_t since[WORKER_MAX];

	for (unsigned w = 0; w < worker_count; w++)
		since[w] = __atomic_load_n(&workers[w].walks, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < LOOKS && ((uint64_t)i * LOOK < least || !have_walked(since)); i++) {
		if (!waits(what)) {
			// A packet that a worker has just taken may wait elsewhere.
			rcu_wait();
			if (!waits(what))
				return;
		}
		nanosleep(&(struct timespec){.tv_nsec = LOOK}, NULL);
	}
	rcu_wait();
}

int
worker_run(void)
{
	for (unsigned w = 0; w < worker_count; w++) {
		int error = rte_eal_remote_launch(work, &workers[w], workers[w].lcore);

		if (error)
			return error;
	}
	return 0;
}

void
worker_stop(void)
{
	stopped = true;
	rte_eal_mp_wait_lcore();
}
