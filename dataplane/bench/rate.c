// SPDX-License-Identifier: Apache-2.0
// Rate limiting by several workers: five ways to keep token buckets that all of them use, next to each other.
//
//   lock    a spinlock in each bucket
//   atomic  a compare and exchange for each packet
//   lease   tokens taken from the bucket for the rest of a burst, and what is left put back; of the first four buckets that a
//           burst meets, and for the others as before
//   queues  an event device's atomic queues: a bucket is one worker's at a time, and has neither lock nor atomics
//   ordered an event device's ordered queue: as "atomic", by any worker, and then in order through the device once more
//
// Every packet is of a random flow, and every flow has a bucket. With one flow that is one bucket for all; with many, a bucket
// for each subscriber or flow. Which worker gets a packet has nothing to do with its flow, but for the queues.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_prefetch.h>
#include <rte_spinlock.h>

#include "bench.h"
#include "bench/compute.h"
#include "core/worker.h"
#include "dispatch/event.h"
#include "meter/shared.h"
#include "port.pb-c.h"
#include "windows.h"

enum { PACKETS = 1 << 16, PREFETCH_DISTANCE = 16, LEASES = 4, BYTES = 650, SECONDS_MAX = 30 };

enum way { BARE, LOCK, ATOMIC, LEASE, QUEUES, ORDERED };

struct bucket {
	struct meter_state state;
	rte_spinlock_t lock;
	uint32_t spare[3];
} __attribute__((aligned(32)));

static struct bucket *buckets;
static uint32_t *flows_of; // of the packets, in order
static struct meter_contract contract;
static enum way way;
static unsigned rounds;

// Measurements of one worker.
static struct seen {
	double together[REPEATS], alone[REPEATS];
	uint64_t compute[REPEATS], compute_alone[REPEATS];
	uint64_t next, spent;
	volatile uint64_t sum;
} __rte_cache_aligned seen[WORKER_MAX];

static uint64_t deadline; // TSC: no worker waits for another any longer
static uint64_t worked;   // packets that came out of the event device, over all workers

struct leases {
	struct meter_lease of[LEASES];
	uint32_t bucket[LEASES];
	unsigned count;
};

// As the meter's node has it.
static inline struct meter_lease *
lease_of(struct leases *l, uint32_t bucket)
{
	unsigned which;

	for (which = 0; which < l->count; which++)
		if (l->bucket[which] == bucket)
			return &l->of[which];
	if (which == LEASES)
		return NULL;
	l->count++;
	l->of[which] = (struct meter_lease){0};
	l->bucket[which] = bucket;
	return &l->of[which];
}

static inline enum colour
locked(struct bucket *b, const struct meter_moment *now)
{
	enum colour colour;

	rte_spinlock_lock(&b->lock);
	colour = meter_colour(&b->state, &contract, now, BYTES, GREEN);
	rte_spinlock_unlock(&b->lock);
	return colour;
}

// The bare loop takes no line away from another worker.
static __rte_always_inline void
bring(const struct bucket *b, enum way how)
{
	if (how == BARE)
		rte_prefetch0(b);
	else
		rte_prefetch0_write(b);
}

// `how` is a constant where this is inlined.
static __rte_always_inline void
meter_burst(struct seen *s, const uint32_t *flows, unsigned count, enum way how)
{
	struct meter_moment now = meter_moment(&contract, rte_rdtsc());
	struct leases leases;
	uint64_t spent = 0;

	leases.count = 0;
	for (unsigned i = 0; i < RTE_MIN(count, (unsigned)PREFETCH_DISTANCE); i++)
		bring(&buckets[flows[i]], how);
	for (unsigned i = 0; i < count; i++) {
		struct bucket *b = &buckets[flows[i]];
		struct meter_lease *lease = NULL;
		enum colour colour = GREEN;

		if (i + PREFETCH_DISTANCE < count)
			bring(&buckets[flows[i + PREFETCH_DISTANCE]], how);
		if (how == LEASE)
			lease = lease_of(&leases, flows[i]);
		if (how == LOCK)
			colour = locked(b, &now);
		else if (lease)
			colour = meter_colour_leased(lease, &b->state, &contract, &now, BYTES, GREEN, count - i);
		else if (how == ATOMIC || how == LEASE || how == ORDERED)
			colour = meter_colour_shared(&b->state, &contract, &now, BYTES, GREEN);
		else if (how == QUEUES)
			colour = meter_colour(&b->state, &contract, &now, BYTES, GREEN);
		else
			s->sum += b->state.committed;
		spent += colour != RED ? BYTES : 0;
	}
	for (unsigned i = 0; how == LEASE && i < leases.count; i++)
		meter_lease_end(&leases.of[i], &buckets[leases.bucket[i]].state, &contract);
	s->spent += how == BARE ? 0 : spent;
}

static void
meter_by(struct seen *s, const uint32_t *flows, unsigned count)
{
	switch (way) {
	case BARE:
		meter_burst(s, flows, count, BARE);
		break;
	case LOCK:
		meter_burst(s, flows, count, LOCK);
		break;
	case ATOMIC:
		meter_burst(s, flows, count, ATOMIC);
		break;
	case LEASE:
		meter_burst(s, flows, count, LEASE);
		break;
	case QUEUES:
		meter_burst(s, flows, count, QUEUES);
		break;
	case ORDERED:
		meter_burst(s, flows, count, ORDERED);
		break;
	}
}

static const uint32_t *
next_burst(struct seen *s)
{
	const uint32_t *flows = flows_of + s->next;

	s->next = (s->next + BURST) % PACKETS;
	return flows;
}

// The queue that events are given to, of the device.
static struct dispatch_queue queue;
static const struct dispatch_device *d;

// As in order.c: packets from the ordered queue are processed and given back, in order; those that come out have
// arrived.
static unsigned
take_ordered(struct seen *s, uint8_t port)
{
	struct rte_event events[BURST];
	uint32_t flows[BURST];
	unsigned count, given = 0, worked_on = 0;

	dispatch_schedule(d);
	count = rte_event_dequeue_burst(d->id, port, events, d->max_dequeue, 0);
	for (unsigned i = 0; i < count; i++) {
		bool leaves = events[i].queue_id == d->leaving;

		if (!leaves)
			flows[worked_on++] = (uint32_t)events[i].u64;
		events[i].op = leaves ? RTE_EVENT_OP_RELEASE : RTE_EVENT_OP_FORWARD;
		events[i].queue_id = d->leaving;
		events[i].sched_type = RTE_SCHED_TYPE_ATOMIC;
	}
	if (worked_on > 0)
		meter_by(s, flows, worked_on);
	while (given < count && rte_rdtsc() < deadline)
		given += rte_event_enqueue_burst(d->id, port, events + given, (uint16_t)(count - given));
	if (count > worked_on)
		__atomic_add_fetch(&worked, count - worked_on, __ATOMIC_RELAXED);
	return count;
}

static unsigned
take_events(struct seen *s, uint8_t port)
{
	struct rte_event events[BURST];
	uint32_t flows[BURST];
	unsigned count;

	if (way == ORDERED)
		return take_ordered(s, port);
	count = rte_event_dequeue_burst(d->id, port, events, d->max_dequeue, 0);
	for (unsigned i = 0; i < count; i++)
		flows[i] = (uint32_t)events[i].u64;
	if (count > 0) {
		meter_by(s, flows, count);
		__atomic_add_fetch(&worked, count, __ATOMIC_RELAXED);
	}
	return count;
}

static void
give_events(struct seen *s, uint8_t port, const uint32_t *flows)
{
	struct rte_event events[BURST];
	unsigned given = 0;

	for (unsigned i = 0; i < BURST; i++)
		events[i] = (struct rte_event){.flow_id = (flows[i] * 0x9e3779b1u) >> 12,
			.op = RTE_EVENT_OP_NEW,
			.sched_type = queue.schedule & 3,
			.queue_id = queue.queue,
			.u64 = flows[i]};
	while (given < BURST && rte_rdtsc() < deadline) {
		unsigned some = RTE_MIN(BURST - given, (unsigned)d->max_enqueue);
		unsigned got = rte_event_enqueue_new_burst(d->id, port, events + given, (uint16_t)some);

		given += got;
		if (got == 0)
			take_events(s, port);
	}
}

// Cycles per packet of this worker; `workers` take part, and all of them take packets from the event device.
static double
window(struct seen *s, uint8_t port, unsigned workers)
{
	uint64_t begin = rte_rdtsc(), due = (uint64_t)workers * rounds * BURST;

	for (unsigned i = 0; i < rounds; i++) {
		const uint32_t *flows = next_burst(s);

		if (way < QUEUES) {
			meter_by(s, flows, BURST);
			continue;
		}
		give_events(s, port, flows);
		take_events(s, port);
	}
	while (way >= QUEUES && rte_rdtsc() < deadline)
		if (take_events(s, port) == 0 && __atomic_load_n(&worked, __ATOMIC_RELAXED) >= due)
			break;
	return (double)(rte_rdtsc() - begin) / ((double)rounds * BURST);
}

// One worker alone cannot use the event device: each of its ports must be polled, or flows stay without a worker. So
// all take part, and only one gives.
static void
serve(struct seen *s, uint8_t port)
{
	uint64_t due = (uint64_t)rounds * BURST;

	while (__atomic_load_n(&worked, __ATOMIC_RELAXED) < due && rte_rdtsc() < deadline)
		take_events(s, port);
}

static void
wait_for_all(bool reset)
{
	if (pthread_barrier_wait(&together) == PTHREAD_BARRIER_SERIAL_THREAD && reset)
		worked = 0;
	pthread_barrier_wait(&together);
}

static int
run(void *argument)
{
	struct worker *self = argument;
	uint8_t index = (uint8_t)self->index;
	struct seen *s = &seen[index];

	s->next = (uint64_t)PACKETS / active * index / BURST * BURST;
	for (unsigned i = 0; i < REPEATS; i++) {
		wait_for_all(true);
		if (active > 1 && index == 0) {
			s->compute_alone[i] = compute();
			s->alone[i] = window(s, index, 1);
		} else if (active > 1 && way >= QUEUES) {
			serve(s, index);
		}
		wait_for_all(true);
		s->compute[i] = compute();
		wait_for_all(true);
		s->together[i] = window(s, index, active);
	}
	end_here();
	return 0;
}

static double
median(const uint64_t *values)
{
	double sorted[REPEATS];

	for (unsigned i = 0; i < REPEATS; i++)
		sorted[i] = (double)values[i];
	qsort(sorted, REPEATS, sizeof(sorted[0]), ascending);
	return sorted[REPEATS / 2];
}

static void
run_way(enum way how, uint32_t flows, struct measured *m)
{
	uint64_t begin = rte_rdtsc(), end, spent = 0, left = 0;
	struct meter_moment last;
	double came;

	way = how;
	d = way < QUEUES ? NULL : dispatch_devices[queue.device];
	deadline = begin + SECONDS_MAX * rte_get_tsc_hz();
	memset(seen, 0, sizeof(seen));
	for (uint32_t f = 0; f < flows; f++)
		buckets[f] = (struct bucket){.state = {.time = begin}};
	launch(run);
	end = rte_rdtsc();
	// In rounds; packets in the event device after the deadline have not arrived.
	m->sent = rounds;
	m->arrived = end < deadline ? rounds : 0;
	last = meter_moment(&contract, end);
	for (uint32_t f = 0; f < flows; f++) {
		meter_fill(&buckets[f].state, &contract, &last);
		left += buckets[f].state.committed;
	}
	came = (double)(last.committed_yield - meter_yield(contract.committed_rate, begin)) * flows;
	for (unsigned w = 0; w < active; w++)
		spent += seen[w].spent;
	// While workers wait for each other, tokens beyond a full bucket are lost: a lower value is no error.
	m->overspent = RTE_MAX(100 * ((double)spent + (double)left - came) / came, 0.0);
	for (unsigned i = 0; i < REPEATS; i++) {
		m->cycles[i] = 0;
		for (unsigned w = 0; w < active; w++)
			m->cycles[i] += seen[w].together[i] / active;
		m->alone[i] = seen[0].alone[i];
	}
	qsort(m->cycles, REPEATS, sizeof(m->cycles[0]), ascending);
	qsort(m->alone, REPEATS, sizeof(m->alone[0]), ascending);
	if (active > 1)
		m->compute_ratio = median(seen[0].compute) / median(seen[0].compute_alone);
}

int
rate_measure(uint32_t flows, unsigned asked, struct measured of[RATE_WAYS])
{
	struct measured bare = {0};
	struct fault f = {0};
	uint64_t state = 42;

	active = worker_count;
	rounds = asked;
	buckets = aligned_alloc(64, RTE_ALIGN_CEIL((size_t)flows * sizeof(buckets[0]), 64));
	flows_of = malloc(PACKETS * sizeof(flows_of[0]));
	if (!buckets || !flows_of)
		return -1;
	for (uint32_t i = 0; i < PACKETS; i++)
		flows_of[i] = (uint32_t)(random_next(&state) % flows);
	// Of all together, a packet every 60 cycles, of those that all workers bring together some pass and some do not. Buckets hold as
	// much as they can.
	contract = (struct meter_contract){
		.committed_rate = ((UINT64_C(1) << RATE_SHIFT) / flows) * BYTES / 60, .committed_burst = UINT32_MAX};
	run_way(BARE, flows, &bare);
	for (unsigned w = 0; w < RATE_WAYS; w++) {
		if (dispatch_open(
			    LOCK + w == ORDERED ? SLUICE__V1__PORT_SPREAD__ORDERED : SLUICE__V1__PORT_SPREAD__ATOMIC,
			    &queue, &f)) {
			fprintf(stderr, "rate: %s\n", f.text);
			return -1;
		}
		run_way(LOCK + w, flows, &of[w]);
		of[w].bare = bare.cycles[0];
		for (unsigned i = 0; i < REPEATS; i++) {
			of[w].cycles[i] -= bare.cycles[0];
			of[w].alone[i] -= bare.alone[0];
		}
	}
	free(buckets);
	free(flows_of);
	return 0;
}
