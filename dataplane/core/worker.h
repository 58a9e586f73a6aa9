// SPDX-License-Identifier: Apache-2.0
// Workers: each a thread on a core of its own that walks a graph of its own, over and over.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_graph_worker.h>
#include <rte_lcore.h>
#include <rte_per_lcore.h>

#include "core/node.h"

enum { WORKER_MAX = 64 };

struct worker {
	unsigned index; // 0 to worker_count - 1
	unsigned lcore;
	struct rte_graph *graph;
	bool watched;  // a trace or a capture looks at packets at each node: none may be skipped
	bool ordering; // frames that it works on leave in the order of their arrival, once it has worked on all of them
	uint64_t taken;  // packets that source nodes took in; after rounds without any the worker rests
	uint64_t walks;  // of the graph; 0: it does not run yet
	uint64_t dated;  // the walk in which it looked at the clock last,
	uint32_t second; // and the second that it read
} __rte_cache_aligned;

extern unsigned worker_count;
extern bool worker_has_core;                  // the cores were named, so each worker has one to itself
extern struct worker workers[WORKER_MAX + 1]; // the last used is the main thread's

// The worker that this thread is. Main thread: `worker_count` is its index, so that counters by worker have a place
// for it, too.
RTE_DECLARE_PER_LCORE(struct worker *, worker);

static inline struct worker *
worker_self(void)
{
	return RTE_PER_LCORE(worker);
}

static inline void
worker_walk(struct worker *self)
{
	rte_graph_walk(self->graph);
	__atomic_store_n(&self->walks, self->walks + 1, __ATOMIC_RELAXED);
}

// Seconds of the TSC, from 1 on. A worker looks at the clock once in a walk, others each time.
static inline uint32_t
worker_second(void)
{
	struct worker *self = worker_self();

	if (unlikely(self->dated != self->walks || self->walks == 0)) {
		self->second = (uint32_t)(rte_rdtsc() / rte_get_tsc_hz()) + 1;
		self->dated = self->walks;
	}
	return self->second;
}

// How long a worker that shares its core sleeps after `idle` without packets, both in nanoseconds: a hundredth of it, within bounds, so
// that a packet waits little longer than the pause before it.
uint64_t worker_nap(uint64_t idle);

// Main thread, at teardown: waits while `waits(what)`. Workers take the waiting packets, so the wait ends after all
// have walked their graphs some times more and `least` nanoseconds have passed. A worker that sleeps, or whose core
// is taken, does not walk and is waited for, for two seconds at most: rcu_wait() does not wait for one that sleeps.
void worker_finish(bool (*waits)(const void *what), const void *what, uint64_t least);

// Counters by worker and index: each worker adds to its own row, and a reader sums the rows. Rows are reserved, not filled.
struct counters {
	void *rows[WORKER_MAX + 1];
	size_t size; // of a record: a multiple of 8 bytes, all of it uint64_t
};

int counters_create(struct counters *c, size_t record_size, uint32_t limit);
// The sum over workers of record `index`, into `record`.
void counters_sum(const struct counters *c, uint32_t index, void *record);
// Back to zero, when the index goes to a new owner.
void counters_clear(struct counters *c, uint32_t index);

static inline void *
counters_row(const struct counters *c)
{
	return c->rows[worker_self()->index];
}
