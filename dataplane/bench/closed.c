// SPDX-License-Identifier: Apache-2.0
// Several workers and packets that one hands to another: a window has so many packets on their way at a time and ends
// when all have arrived, so that only arrived packets count.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "bench.h"
#include "bench/compute.h"
#include "core/worker.h"
#include "ether/circuit.h"
#include "hqos/shaped.h"
#include "port/port.h"
#include "windows.h"

// One queue, which the first worker polls: all of its frames through the whole graph on that worker, and in turn shared with the
// others by the port's event device.
static uint64_t shared_deadline;
static bool shared_done;

static uint64_t
all_arrived(void)
{
	uint64_t sum = 0;

	for (unsigned w = 0; w < active; w++)
		sum += __atomic_load_n(&rte_graph_node_get_by_name(workers[w].graph->name, tx_node.name)->total_objs,
			__ATOMIC_RELAXED);
	return sum;
}

// Cycles from the first frame to the last for each of them. No more are on their way than the device has room for.
static double
shared_window(struct worker *self)
{
	enum { ON_THEIR_WAY = 2048 };
	struct generator *g = &generators[self->index];
	uint64_t before = all_arrived(), sent = g->sent, expected = (uint64_t)rounds_requested * BURST,
		 start = rte_rdtsc();

	g->edge = ports[current->port].entry;
	while (g->sent - sent < expected && rte_rdtsc() < shared_deadline) {
		g->templates = g->sent - sent - (all_arrived() - before) < ON_THEIR_WAY ? current : NULL;
		worker_walk(self);
	}
	g->templates = NULL;
	while (all_arrived() - before < expected && rte_rdtsc() < shared_deadline)
		worker_walk(self);
	runs[0].sent += expected;
	runs[0].arrived += all_arrived() - before;
	return (double)(rte_rdtsc() - start) / (double)expected;
}

static int
run_shared(void *argument)
{
	struct worker *self = argument;
	struct run *r = &runs[self->index];
	struct generator *g = &generators[self->index];

	RTE_PER_LCORE(worker) = self;
	*g = (struct generator){.edge = ether_input_node.id, .step = 1};
	for (unsigned i = 0; i < REPEATS; i++) {
		pthread_barrier_wait(&together);
		if (self->index == 0) {
			r->compute_alone[i] = compute();
			g->templates = current;
			r->full_alone[i] = full_window(self);
			g->templates = NULL;
			shared_done = false;
		}
		pthread_barrier_wait(&together);
		r->compute[i] = compute();
		pthread_barrier_wait(&together);
		if (self->index == 0) {
			r->full[i] = shared_window(self);
			__atomic_store_n(&shared_done, true, __ATOMIC_RELEASE);
		}
		while (!__atomic_load_n(&shared_done, __ATOMIC_ACQUIRE))
			worker_walk(self);
	}
	end_here();
	return 0;
}

void
measure_shared(const struct templates *t, unsigned rounds, struct measured *m)
{
	enum { SECONDS_MAX = 60 };

	begin(t, rounds);
	shared_deadline = rte_rdtsc() + SECONDS_MAX * rte_get_tsc_hz();
	launch(run_shared);
	memcpy(m->cycles, runs[0].full, sizeof(m->cycles));
	memcpy(m->alone, runs[0].full_alone, sizeof(m->alone));
	qsort(m->cycles, REPEATS, sizeof(m->cycles[0]), ascending);
	qsort(m->alone, REPEATS, sizeof(m->alone[0]), ascending);
	m->compute_ratio = compute_ratio();
	m->sent = runs[0].sent;
	m->arrived = runs[0].arrived;
}

// ---- Ports with schedulers, each of which one worker owns: the others hand it their packets for the port.

static struct rte_node *sinks[WORKER_MAX], *ways_in[WORKER_MAX], *ways_out[WORKER_MAX];
static unsigned owned[WORKER_MAX]; // the port, plus 1, whose scheduler the worker has
static uint64_t sent_before, arrived_before;
static unsigned sending; // workers that may still send
static const struct scenario *scenario;

static uint64_t
sum_arrived(void)
{
	uint64_t sum = 0;

	for (unsigned w = 0; w < active; w++)
		sum += __atomic_load_n(&sinks[w]->total_objs, __ATOMIC_RELAXED) -
		       __atomic_load_n(&ways_in[w]->total_objs, __ATOMIC_RELAXED) +
		       __atomic_load_n(&ways_out[w]->total_objs, __ATOMIC_RELAXED);
	return sum;
}

static uint64_t
sum_sent(void)
{
	uint64_t sum = 0;

	for (unsigned w = 0; w < active; w++)
		sum += __atomic_load_n(&generators[w].sent, __ATOMIC_RELAXED);
	return sum;
}

// Cycles until as many have arrived as each of the workers is asked for.
static uint64_t
delivered_window(struct worker *self, unsigned workers_at_it)
{
	enum {
		ON_THEIR_WAY = 2 * BURST,
		LAST = 10
	}; // packets, so that no ring between workers overflows; the part of a second in which the last ones come
	struct generator *g = &generators[self->index];
	uint64_t expected = (uint64_t)rounds_requested * BURST * workers_at_it, done, took, start = rte_rdtsc();

	while ((done = sum_arrived() - arrived_before) < expected && rte_rdtsc() < shared_deadline) {
		g->templates = sum_sent() - sent_before - done < ON_THEIR_WAY ? current : NULL;
		worker_walk(self);
	}
	took = rte_rdtsc() - start;
	g->templates = NULL;
	__atomic_sub_fetch(&sending, 1, __ATOMIC_SEQ_CST);
	start = rte_rdtsc();
	while ((__atomic_load_n(&sending, __ATOMIC_SEQ_CST) > 0 ||
		       sum_arrived() - arrived_before != sum_sent() - sent_before) &&
		rte_rdtsc() - start < rte_get_tsc_hz() / LAST)
		worker_walk(self);
	return took;
}

// Before all that are to begin.
static void
count_from_here(unsigned workers_at_it)
{
	sending = workers_at_it;
	sent_before = sum_sent();
	arrived_before = sum_arrived();
}

static int
run_delivered(void *argument)
{
	struct worker *self = argument;
	struct run *r = &runs[self->index];
	struct generator *g = &generators[self->index];
	double packets = (double)rounds_requested * BURST;

	RTE_PER_LCORE(worker) = self;
	for (unsigned i = 0; i < REPEATS; i++) {
		for (unsigned w = 0; w < active; w++) {
			pthread_barrier_wait(&together);
			if (self->index != w)
				continue;
			r->compute_alone[i] = compute();
			*g = (struct generator){.templates = current, .step = 1, .sent = g->sent};
			r->bare_alone[i] = r->bare[i] = bare_window(self);
			g->templates = NULL;
			if (!owned[w])
				continue;
			g->edge = ether_input_node.id;
			g->step = scenario->schedulers;
			g->next = owned[w] - 1;
			count_from_here(1);
			r->full_alone[i] = (double)delivered_window(self, 1) / packets;
		}
		pthread_barrier_wait(&together);
		r->compute[i] = compute();
		*g = (struct generator){.edge = ether_input_node.id,
			.step = 1,
			.next = (uint32_t)((uint64_t)current->flows * self->index / active),
			.sent = g->sent};
		if (scenario->steered) {
			g->step = scenario->schedulers;
			g->next = owned[self->index] - 1;
		}
		if (self->index == 0)
			count_from_here(active);
		pthread_barrier_wait(&together);
		r->full[i] = (double)delivered_window(self, active) / packets;
		pthread_barrier_wait(&together);
		if (self->index == 0) {
			r->sent += sum_sent() - sent_before;
			r->arrived += sum_arrived() - arrived_before;
		}
	}
	end_here();
	return 0;
}

int
measure_delivered(const struct templates *t, const struct scenario *s, unsigned rounds, struct measured *m)
{
	static const char *const names[] = {"out", "out2"};
	enum { SECONDS_MAX = 60 };
	double bare = 0;
	unsigned owners = 0;

	begin(t, rounds);
	scenario = s;
	for (unsigned w = 0; w < active; w++) {
		sinks[w] = rte_graph_node_get_by_name(workers[w].graph->name, tx_node.name);
		ways_in[w] = rte_graph_node_get_by_name(workers[w].graph->name, "hqos-enqueue");
		ways_out[w] = rte_graph_node_get_by_name(workers[w].graph->name, "hqos-tx");
		owned[w] = 0;
		for (unsigned p = 0; p < s->schedulers && shaped_owned[w]; p++)
			if (port_of(object_find(&port_kind, names[p])) == shaped_owned[w]->port)
				owned[w] = p + 1;
		owners += owned[w] != 0;
	}
	if (s->steered && owners < active)
		return -1;
	shared_deadline = rte_rdtsc() + SECONDS_MAX * rte_get_tsc_hz();
	launch(run_delivered);
	for (unsigned w = 0; w < active; w++) {
		double least = runs[w].bare[0];

		for (unsigned i = 1; i < REPEATS; i++)
			least = RTE_MIN(least, runs[w].bare[i]);
		bare += least / active;
	}
	m->bare = bare;
	for (unsigned i = 0; i < REPEATS; i++) {
		// All workers' windows are one.
		m->cycles[i] = runs[0].full[i] - bare;
		m->alone[i] = -bare;
		for (unsigned w = 0; w < active; w++)
			m->alone[i] += owned[w] ? runs[w].full_alone[i] / owners : 0;
	}
	qsort(m->cycles, REPEATS, sizeof(m->cycles[0]), ascending);
	qsort(m->alone, REPEATS, sizeof(m->alone[0]), ascending);
	m->compute_ratio = compute_ratio();
	m->sent = runs[0].sent;
	m->arrived = runs[0].arrived;
	return 0;
}
