// SPDX-License-Identifier: Apache-2.0
// Throughput of the graph: windows in which a worker sends as fast as it can, and its cycles for each packet.
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_launch.h>

#include "bench.h"
#include "bench/compute.h"
#include "core/worker.h"
#include "ether/circuit.h"
#include "port/port.h"
#include "windows.h"

struct run runs[WORKER_MAX + 1];
const struct templates *current;
unsigned active, rounds_requested;
// Workers that have not yet finished the window that all of them measure at once.
static unsigned measuring;
pthread_barrier_t together;
static sem_t finished;

uint64_t
walk(struct worker *self, unsigned rounds)
{
	uint64_t start = rte_rdtsc();

	for (unsigned i = 0; i < rounds; i++)
		worker_walk(self);
	return rte_rdtsc() - start;
}

static void
node_cycles(const struct worker *self, double *cycles)
{
	const struct node *n;

	for (uint16_t id = 0; (n = node_by_id(id)) != NULL; id++) {
		const struct rte_node *node = rte_graph_node_get_by_name(self->graph->name, n->name);

		cycles[id] = node ? (double)node->total_cycles : 0;
	}
}

static uint64_t
seen_by(const struct worker *self, const char *node)
{
	return rte_graph_node_get_by_name(self->graph->name, node)->total_objs;
}

// Packets that wait in a scheduler reach the sink later.
uint64_t
arrived(const struct worker *self)
{
	return seen_by(self, tx_node.name) - seen_by(self, "hqos-enqueue") + seen_by(self, "hqos-tx");
}

// All workers' windows overlap: each worker continues with the same work until the last one is done.
static void
all_start(void)
{
	if (active == 1)
		return;
	if (pthread_barrier_wait(&together) == PTHREAD_BARRIER_SERIAL_THREAD)
		__atomic_store_n(&measuring, active, __ATOMIC_SEQ_CST);
	pthread_barrier_wait(&together);
}

static bool
others_measure(bool *counted)
{
	if (active == 1)
		return false;
	if (!*counted)
		__atomic_sub_fetch(&measuring, 1, __ATOMIC_SEQ_CST);
	*counted = true;
	return __atomic_load_n(&measuring, __ATOMIC_SEQ_CST) > 0;
}

// Packets from source to sink alone: cycles a packet.
double
bare_window(struct worker *self)
{
	struct generator *g = &generators[self->index];
	unsigned rounds = rounds_requested / 2 + 1;

	g->edge = tx_node.id;
	walk(self, rounds_requested / 16 + 1);
	return (double)walk(self, rounds) / ((double)rounds * BURST);
}

double
full_window(struct worker *self)
{
	generators[self->index].edge = ether_input_node.id;
	walk(self, rounds_requested / 16 + 1);
	return (double)walk(self, rounds_requested) / ((double)rounds_requested * BURST);
}

// As `full_window`, with an account of nodes and packets.
static void
accounted_window(struct worker *self, unsigned i)
{
	struct run *r = &runs[self->index];
	struct generator *g = &generators[self->index];
	double before[NODE_MAX], after[NODE_MAX];
	uint64_t sent, reached;

	g->edge = ether_input_node.id;
	walk(self, rounds_requested / 16 + 1);
	node_cycles(self, before);
	sent = g->sent;
	reached = arrived(self);
	r->full[i] = (double)walk(self, rounds_requested) / ((double)rounds_requested * BURST);
	node_cycles(self, after);
	r->sent += g->sent - sent;
	r->arrived += arrived(self) - reached;
	for (unsigned n = 0; n < NODE_MAX && node_by_id((uint16_t)n); n++)
		r->nodes[i][n] = (after[n] - before[n]) / ((double)rounds_requested * BURST);
}

// Each in turn: workers differ by the memory that they happened to get, so one of them is no measure for the others.
static void
alone(struct worker *self, unsigned i)
{
	struct run *r = &runs[self->index];

	for (unsigned w = 0; w < active; w++) {
		if (self->index == w) {
			compute();
			r->compute_alone[i] = compute();
			r->bare_alone[i] = bare_window(self);
			r->full_alone[i] = full_window(self);
		}
		pthread_barrier_wait(&together);
	}
}

static int
run(void *argument)
{
	struct worker *self = argument;
	struct run *r = &runs[self->index];
	struct generator *g = &generators[self->index];

	RTE_PER_LCORE(worker) = self;
	*g = (struct generator){.templates = current,
		.edge = ether_input_node.id,
		.step = 1,
		.next = (uint32_t)((uint64_t)current->flows * self->index / active)};
	walk(self, rounds_requested / 2 + 1);
	for (unsigned i = 0; i < REPEATS; i++) {
		bool counted = false;

		if (active > 1) {
			alone(self, i);
			all_start();
			compute();
			r->compute[i] = compute();
			while (others_measure(&counted))
				compute();
			counted = false;
		}
		all_start();
		r->bare[i] = bare_window(self);
		while (others_measure(&counted))
			walk(self, 1);
		counted = false;
		all_start();
		accounted_window(self, i);
		while (others_measure(&counted))
			walk(self, 1);
	}
	g->templates = NULL;
	end_here();
	return 0;
}

void
end_here(void)
{
	sem_post(&finished);
}

int
ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

// Cycles of each repeat less the least bare loop, in ascending order: the mean of these workers. The bare loop is returned.
double
spread(unsigned workers, bool alone, double cycles[REPEATS])
{
	double bare = 0;

	for (unsigned w = 0; w < workers; w++) {
		const double *of = alone ? runs[w].bare_alone : runs[w].bare;
		double least = of[0];

		for (unsigned i = 1; i < REPEATS; i++)
			least = RTE_MIN(least, of[i]);
		bare += least / workers;
	}
	for (unsigned i = 0; i < REPEATS; i++) {
		cycles[i] = -bare;
		for (unsigned w = 0; w < workers; w++)
			cycles[i] += (alone ? runs[w].full_alone : runs[w].full)[i] / workers;
	}
	qsort(cycles, REPEATS, sizeof(cycles[0]), ascending);
	return bare;
}

// How many times longer arithmetic takes while all workers do it: medians.
double
compute_ratio(void)
{
	double with[REPEATS], without[REPEATS];

	for (unsigned i = 0; i < REPEATS; i++) {
		with[i] = (double)runs[0].compute[i];
		without[i] = (double)runs[0].compute_alone[i];
	}
	qsort(with, REPEATS, sizeof(with[0]), ascending);
	qsort(without, REPEATS, sizeof(without[0]), ascending);
	return with[REPEATS / 2] / without[REPEATS / 2];
}

void
launch(lcore_function_t *what)
{
	sem_init(&finished, 0, 0);
	pthread_barrier_init(&together, NULL, active);
	for (unsigned w = 0; w < active; w++)
		rte_eal_remote_launch(what, &workers[w], workers[w].lcore);
	// rte_eal_wait_lcore spins, on a processor that a worker may need.
	for (unsigned w = 0; w < active; w++)
		while (sem_wait(&finished))
			;
	for (unsigned w = 0; w < active; w++)
		rte_eal_wait_lcore(workers[w].lcore);
	pthread_barrier_destroy(&together);
	sem_destroy(&finished);
}

void
begin(const struct templates *t, unsigned rounds)
{
	current = t;
	active = worker_count;
	rounds_requested = rounds;
	memset(runs, 0, sizeof(runs));
}

void
measure(const struct templates *t, unsigned rounds, struct measured *m)
{
	begin(t, rounds);
	launch(run);
	m->bare = spread(active, false, m->cycles);
	if (active > 1) {
		spread(active, true, m->alone);
		m->compute_ratio = compute_ratio();
	}
	for (unsigned n = 0; n < NODE_MAX; n++) {
		double all[REPEATS];

		for (unsigned i = 0; i < REPEATS; i++)
			all[i] = runs[0].nodes[i][n];
		qsort(all, REPEATS, sizeof(all[0]), ascending);
		m->nodes[n] = all[REPEATS / 2];
	}
	for (unsigned w = 0; w < active; w++) {
		m->sent += runs[w].sent;
		m->arrived += runs[w].arrived;
	}
}
