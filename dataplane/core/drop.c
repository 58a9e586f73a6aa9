// SPDX-License-Identifier: Apache-2.0
// The drop node and its counters.
#include "core/drop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/registry.h"
#include "core/slab.h"
#include "core/start.h"
#include "core/trace.h"
#include "core/worker.h"

// How many packets of a session were dropped for a reason: a worker has room for 65,536 pairs of a session and a reason, in
// twice as many places. All pairs of a session are within a window of places that starts where its number leads to.
enum { PAIRS = 1 << 17, WINDOW = 32 };

struct pair {
	uint64_t key; // session << 16 | reason, plus 1; 0: free
	uint64_t packets;
};

struct session_drops {
	uint64_t all;                          // packets, for any reason
	uint64_t counted[2], counted_bytes[2]; // of them, those that the session's counters include
};

// The reason of a packet whose state names none. It must be the first.
static struct drop drop_chain_ended = {.name = "chain-ended",
	.description = "The packet's chain had no further step: an inconsistency in the data plane."};

static struct drop *reasons[DROP_MAX] = {&drop_chain_ended};
static unsigned reason_count = 1;
static uint64_t (*totals)[DROP_MAX]; // by worker
static struct counters by_interface; // uint64_t[DROP_MAX]
static struct counters by_session;   // struct session_drops
static struct counters pairs;        // struct pair[PAIRS]

void
drop_register(struct drop *drop)
{
	if (reason_count == DROP_MAX)
		registry_full("drop reasons", drop->name, DROP_MAX, "DROP_MAX", "core/drop.h");
	drop->id = (uint16_t)reason_count;
	reasons[reason_count++] = drop;
}

unsigned
drop_count(void)
{
	return reason_count;
}

const struct drop *
drop_by_id(uint16_t id)
{
	return id < reason_count ? reasons[id] : NULL;
}

static inline uint64_t
pair_key(uint32_t session, uint16_t reason)
{
	return ((uint64_t)session << 16 | reason) + 1;
}

static inline struct pair *
pair_at(void *table, uint32_t session, unsigned place)
{
	return (struct pair *)table + ((uint32_t)((session * 0x9e3779b97f4a7c15u) >> 40) + place) % PAIRS;
}

// Only the table's own worker takes places; the main thread frees them. Without a free one the packet is in no pair, which
// the session's count of all its drops shows.
static void
count_pair(void *table, uint32_t session, uint16_t reason)
{
	uint64_t key = pair_key(session, reason), found;
	struct pair *unused = NULL;

	for (unsigned i = 0; i < WINDOW; i++) {
		struct pair *p = pair_at(table, session, i);

		found = __atomic_load_n(&p->key, __ATOMIC_RELAXED);
		if (found == key) {
			p->packets++;
			return;
		}
		if (found == 0 && !unused)
			unused = p;
	}
	if (unused) {
		__atomic_store_n(&unused->packets, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&unused->key, key, __ATOMIC_RELEASE);
	}
}

static inline void
count_session(struct session_drops *s, const struct packet *p)
{
	s->all++;
	s->counted[p->direction & 1] += p->counted != 0;
	s->counted_bytes[p->direction & 1] += p->counted;
}

static void
count(const struct packet *p)
{
	unsigned self = worker_self()->index;

	totals[self][p->drop]++;
	if (p->interface < INTERFACE_LIMIT)
		((uint64_t *)by_interface.rows[self])[(size_t)p->interface * DROP_MAX + p->drop]++;
	if (p->session < SESSION_LIMIT && !reasons[p->drop]->consumed) {
		struct session_drops *drops = by_session.rows[self];

		count_session(&drops[p->session], p);
		count_session(&drops[ALL_SESSIONS], p);
		count_pair(pairs.rows[self], p->session, p->drop);
	}
}

static uint16_t
drop_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t burst)
{
	for (uint16_t i = 0; i < burst; i++)
		count(packet_of(packets[i]));
	rte_pktmbuf_free_bulk((struct rte_mbuf **)packets, burst);
	return burst;
}

static void
drop_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	const struct drop *reason = drop_by_id(p->drop);

	snprintf(text, size, "%s: %s", reason ? reason->name : "?", reason ? reason->description : "");
}

struct node drop_node = {.name = "drop", .process = drop_process, .describe = drop_describe};
NODE_REGISTER(drop_node)

void
drop_now(struct rte_mbuf *m, const struct drop *reason)
{
	packet_of(m)->drop = reason->id;
	if (unlikely(packet_of(m)->trace != 0))
		trace_end(m, true);
	count(packet_of(m));
	rte_pktmbuf_free(m);
}

void
drop_lost(const struct drop *reason)
{
	totals[worker_self()->index][reason->id]++;
}

int
drop_start(void)
{
	int error;

	totals = slab_reserve(sizeof(totals[0]) * (worker_count + 1));
	if (!totals)
		return -ENOMEM;
	error = counters_create(&by_interface, DROP_MAX * sizeof(uint64_t), INTERFACE_LIMIT);
	if (error == 0)
		error = counters_create(&by_session, sizeof(struct session_drops), SESSION_LIMIT + 1);
	if (error == 0)
		error = counters_create(&pairs, sizeof(struct pair), PAIRS);
	return error;
}

uint64_t
drop_total(uint16_t reason)
{
	uint64_t sum = 0;

	for (unsigned w = 0; w <= worker_count; w++)
		sum += totals[w][reason];
	return sum;
}

uint64_t
drop_of_interface(uint32_t interface, uint16_t reason)
{
	uint64_t sum = 0;

	for (unsigned w = 0; w <= worker_count && interface < INTERFACE_LIMIT; w++)
		sum += ((uint64_t *)by_interface.rows[w])[(size_t)interface * DROP_MAX + reason];
	return sum;
}

uint64_t
drop_of_session(uint32_t session, uint16_t reason)
{
	uint64_t sum = 0;

	for (unsigned w = 0; w <= worker_count; w++)
		for (unsigned i = 0; i < WINDOW; i++) {
			const struct pair *p = pair_at(pairs.rows[w], session, i);

			if (__atomic_load_n(&p->key, __ATOMIC_ACQUIRE) == pair_key(session, reason))
				sum += __atomic_load_n(&p->packets, __ATOMIC_RELAXED);
		}
	return sum;
}

void
drop_session_totals(uint32_t session, struct drop_totals *t)
{
	struct session_drops sum;

	counters_sum(&by_session, session, &sum);
	t->packets = sum.all;
	memcpy(t->counted, sum.counted, sizeof(t->counted));
	memcpy(t->counted_bytes, sum.counted_bytes, sizeof(t->counted_bytes));
}

void
drop_forget_interface(uint32_t interface)
{
	counters_clear(&by_interface, interface);
}

void
drop_forget_session(uint32_t session)
{
	struct session_drops sum;

	counters_sum(&by_session, session, &sum);
	// Most counters are zero and have no memory yet.
	if (sum.all == 0)
		return;
	counters_clear(&by_session, session);
	for (unsigned w = 0; w <= worker_count; w++)
		for (unsigned i = 0; i < WINDOW; i++) {
			struct pair *p = pair_at(pairs.rows[w], session, i);

			if ((__atomic_load_n(&p->key, __ATOMIC_RELAXED) - 1) >> 16 == session)
				__atomic_store_n(&p->key, 0, __ATOMIC_RELAXED);
		}
}
