// The drop node and its counters.
#include "core/drop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/slab.h"
#include "core/start.h"
#include "core/trace.h"
#include "core/worker.h"

enum {
	INTERFACES = 1 << 16,
	SESSIONS = 1 << 22,
	PAIRS = 1 << 17, // slots for 65,536 pairs of a session and a reason
	PROBES = 16,
};

struct pair {
	uint64_t key; // session << 16 | reason, plus 1; 0: unused
	uint64_t packets;
};

struct session_drops {
	uint64_t packets[2], bytes[2];
};

static struct drop *reasons[DROP_MAX];
static unsigned reason_count;
static uint64_t (*totals)[DROP_MAX]; // by worker
static struct counters by_interface; // uint64_t[DROP_MAX]
static struct counters by_session;   // struct session_drops
static struct counters pairs;        // struct pair[PAIRS]

DROP(drop_chain_ended, "chain-ended", "The packet's chain had no further step: an inconsistency in the data plane.")

void
drop_register(struct drop *drop)
{
	if (reason_count == DROP_MAX)
		abort();
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

static void
count_pair(struct pair *table, uint32_t session, uint16_t reason)
{
	uint64_t key = ((uint64_t)session << 16 | reason) + 1;
	uint32_t slot = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 40);

	for (unsigned i = 0; i < PROBES; i++) {
		struct pair *p = &table[(slot + i) % PAIRS];

		if (p->key == 0)
			__atomic_store_n(&p->key, key, __ATOMIC_RELAXED);
		if (p->key == key) {
			p->packets++;
			return;
		}
	}
}

static void
count(const struct packet *p)
{
	unsigned self = worker_self()->index;

	totals[self][p->drop]++;
	if (p->interface < INTERFACES)
		((uint64_t *)by_interface.rows[self])[(size_t)p->interface * DROP_MAX + p->drop]++;
	if (p->session < SESSIONS) {
		struct session_drops *s = &((struct session_drops *)by_session.rows[self])[p->session];

		// Only what was counted for the session is taken off it again.
		s->packets[p->direction & 1] += p->counted != 0;
		s->bytes[p->direction & 1] += p->counted;
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
	error = counters_create(&by_interface, DROP_MAX * sizeof(uint64_t), INTERFACES);
	if (error == 0)
		error = counters_create(&by_session, sizeof(struct session_drops), SESSIONS);
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

	for (unsigned w = 0; w <= worker_count && interface < INTERFACES; w++)
		sum += ((uint64_t *)by_interface.rows[w])[(size_t)interface * DROP_MAX + reason];
	return sum;
}

static struct pair *
find_pair(unsigned worker, uint32_t session, uint16_t reason)
{
	uint64_t key = ((uint64_t)session << 16 | reason) + 1;
	uint32_t slot = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 40);

	for (unsigned i = 0; i < PROBES; i++) {
		struct pair *p = (struct pair *)pairs.rows[worker] + (slot + i) % PAIRS;

		if (__atomic_load_n(&p->key, __ATOMIC_RELAXED) == key)
			return p;
	}
	return NULL;
}

uint64_t
drop_of_session(uint32_t session, uint16_t reason)
{
	uint64_t sum = 0;

	for (unsigned w = 0; w <= worker_count; w++) {
		struct pair *p = find_pair(w, session, reason);

		sum += p ? p->packets : 0;
	}
	return sum;
}

void
drop_session_totals(uint32_t session, enum direction direction, uint64_t *packets, uint64_t *bytes)
{
	struct session_drops sum;

	counters_sum(&by_session, session, &sum);
	*packets = sum.packets[direction];
	*bytes = sum.bytes[direction];
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
	counters_clear(&by_session, session);
	for (unsigned w = 0; w <= worker_count; w++)
		for (uint16_t r = 0; r < reason_count; r++) {
			struct pair *p = find_pair(w, session, r);

			if (p)
				p->packets = 0;
		}
}
