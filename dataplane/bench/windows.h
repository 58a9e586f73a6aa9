// SPDX-License-Identifier: Apache-2.0
// Shared by the measurements: the source of each worker, and its results.
#pragma once

#include <pthread.h>

#include "bench.h"
#include "core/worker.h"

struct generator {
	const struct templates *templates; // NULL: no packets
	uint32_t next;                     // flow
	uint32_t step;                     // 1: each flow; else one of so many
	uint16_t edge;                     // where bursts go
	uint64_t sent;
} __rte_cache_aligned;

extern struct generator generators[WORKER_MAX + 1];

// A worker's results of each repeat.
struct run {
	double full[REPEATS], bare[REPEATS];
	double nodes[REPEATS][NODE_MAX];
	double full_alone[REPEATS], bare_alone[REPEATS]; // while the others sleep
	uint64_t compute[REPEATS], compute_alone[REPEATS];
	uint64_t sent, arrived;
};

extern struct run runs[WORKER_MAX + 1];

// The templates of the present measurement.
extern const struct templates *current;
extern unsigned active, rounds_requested;
// Where workers wait for each other.
extern pthread_barrier_t together;

uint64_t walk(struct worker *self, unsigned rounds);
// Packets that reached the sink by this worker. Packets that wait in a scheduler come later.
uint64_t arrived(const struct worker *self);
// Packets from source to sink alone, and through everything: cycles a packet.
double bare_window(struct worker *self);
double full_window(struct worker *self);

void begin(const struct templates *t, unsigned rounds);
// On all workers; and that this one is done.
void launch(lcore_function_t *what);
void end_here(void);

// Cycles of each repeat less the least bare loop, in ascending order: the mean of these workers. The bare loop is returned.
double spread(unsigned workers, bool alone, double cycles[REPEATS]);
// How many times longer arithmetic takes while all workers do it: medians.
double compute_ratio(void);
int ascending(const void *a, const void *b);
