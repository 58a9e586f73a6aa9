// SPDX-License-Identifier: Apache-2.0
// The way up to the main thread and the way back into the graph.
#include "core/punt.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_errno.h>
#include <rte_ring.h>

#include "core/drop.h"
#include "core/fair.h"
#include "core/loop.h"
#include "core/punt_watch.h"
#include "core/registry.h"
#include "core/slab.h"
#include "core/start.h"
#include "core/worker.h"

enum { PUNT_MAX = 64, RING = 8192, AT_ONCE = 256 };

static struct punt *reasons[PUNT_MAX];
static struct punt_limits own_limits[PUNT_MAX];
static unsigned reason_count;
// By worker and reason.
static struct worker_counts {
	struct punt_counts of[PUNT_MAX];
} counts[WORKER_MAX + 1] __rte_cache_aligned;
static struct fair_rate *rates[WORKER_MAX + 1]; // by worker and reason
static struct rte_ring *up;
static struct rte_ring *down[WORKER_MAX];
static void (*watcher)(struct rte_mbuf *m, const struct punt *reason);

struct rte_mempool *packet_pool;

DROP(drop_punt_rate, "punt-rate-limited",
	"More packets of a kind for the control plane than the rate limits of the kind and of their source allow.")
DROP(drop_punt_full, "punt-queue-full", "The control plane did not take its packets fast enough.")

DROP(drop_inject_full, "inject-queue-full", "The worker did not take the control plane's packets fast enough.")
DROP(drop_no_buffer, "no-buffer", "There was no free packet buffer for a packet of our own.")

void
punt_register(struct punt *punt)
{
	if (reason_count == PUNT_MAX)
		registry_full("punt reasons", punt->name, PUNT_MAX, "PUNT_MAX", "core/punt.c");
	punt->id = (uint8_t)reason_count;
	own_limits[reason_count] = punt->limits;
	reasons[reason_count++] = punt;
}

const struct punt *
punt_by_name(const char *name)
{
	for (unsigned i = 0; i < reason_count; i++)
		if (strcmp(reasons[i]->name, name) == 0)
			return reasons[i];
	return NULL;
}

const struct punt *
punt_by_id(unsigned id)
{
	return id < reason_count ? reasons[id] : NULL;
}

void
punt_limit(unsigned id, const struct punt_limits *limits)
{
	struct punt_limits *now = &reasons[id]->limits;
	const struct punt_limits *own = &own_limits[id];

	// Workers may read some of the new values with some of the old ones.
	__atomic_store_n(&now->rate, limits && limits->rate ? limits->rate : own->rate, __ATOMIC_RELAXED);
	__atomic_store_n(&now->each, limits && limits->each ? limits->each : own->each, __ATOMIC_RELAXED);
	__atomic_store_n(&now->session, limits && limits->session ? limits->session : own->session, __ATOMIC_RELAXED);
}

struct punt_counts
punt_counts(unsigned id)
{
	struct punt_counts sum = {0};

	for (unsigned w = 0; w <= worker_count; w++) {
		sum.punted += counts[w].of[id].punted;
		sum.limited += counts[w].of[id].limited;
	}
	return sum;
}

// The limits of a packet's reason for its source.
static inline struct fair_limit
limit_of(const struct punt_limits *limits, const struct packet *p)
{
	uint32_t session = __atomic_load_n(&limits->session, __ATOMIC_RELAXED);
	bool of_session = p->session != NO_SESSION && p->direction == UP;

	return fair_limit(__atomic_load_n(&limits->rate, __ATOMIC_RELAXED),
		of_session && session ? session : __atomic_load_n(&limits->each, __ATOMIC_RELAXED));
}

static uint16_t
punt_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct punt_counts *counted = counts[worker_self()->index].of;
	struct fair_rate *mine = rates[worker_self()->index];
	uint64_t now = rte_rdtsc(), hz = rte_get_tsc_hz();

	for (uint16_t i = 0; i < count; i++) {
		struct packet *p = packet_of(packets[i]);
		uint8_t id = p->punt;
		struct fair_source source;
		bool quiet;

		fair_source_of(packets[i], &source);
		if (!fair_spend_at(&mine[id], limit_of(&reasons[id]->limits, p), &source, now, hz, &quiet)) {
			counted[id].limited++;
			rte_node_enqueue_x1(graph, node, packet_drop(p, &drop_punt_rate), packets[i]);
		}
		// The last part of the ring is for sources that are quiet.
		else if ((!quiet && rte_ring_free_count(up) < rte_ring_get_capacity(up) / 4) ||
			 rte_ring_enqueue(up, packets[i]))
			rte_node_enqueue_x1(graph, node, packet_drop(p, &drop_punt_full), packets[i]);
		else
			counted[id].punted++;
	}
	return count;
}

static void
punt_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	snprintf(text, size, "to the control plane: %s", reasons[p->punt]->name);
}

struct node punt_node = {.name = "punt", .process = punt_process, .describe = punt_describe};
NODE_REGISTER(punt_node)

void
punt_watch(void (*watch)(struct rte_mbuf *m, const struct punt *reason))
{
	watcher = watch;
}

void
punt_to_watcher(struct rte_mbuf *m)
{
	watcher(m, reasons[packet_of(m)->punt]);
}

static void
punt_poll(void *unused)
{
	void *packets[AT_ONCE];
	unsigned count = rte_ring_dequeue_burst(up, packets, AT_ONCE, NULL);

	for (unsigned i = 0; i < count; i++) {
		const struct punt *reason = reasons[packet_of(packets[i])->punt];

		if (reason->handle)
			reason->handle(packets[i]);
		else
			punt_to_watcher(packets[i]);
	}
}

void
inject(struct rte_mbuf *m, const struct node *node)
{
	struct packet *p = packet_of(m);
	// A session's packets always go to the same worker, and those of no session that leave by the same port: so they stay in
	// the order in which they were given.
	unsigned worker = (p->session != NO_SESSION ? p->session : m->port) % worker_count;

	packet_push(p, node);
	// The reserving worker has released its place.
	p->order = 0;
	if (rte_ring_enqueue(down[worker], m))
		drop_now(m, &drop_inject_full);
}

static uint16_t
inject_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct worker *self = worker_self();
	uint16_t next[BURST];

	count = (uint16_t)rte_ring_dequeue_burst(down[self->index], node->objs, BURST, NULL);
	if (count == 0)
		return 0;
	self->taken += count;
	node->idx = count;
	for (uint16_t i = 0; i < count; i++)
		next[i] = packet_pop(packet_of(node->objs[i]));
	node_dispatch(graph, node, node->objs, next, count);
	return count;
}

struct node inject_node = {.name = "inject", .process = inject_process, .source = true, .steps = true};
NODE_REGISTER(inject_node)

struct rte_mbuf *
packet_new(void)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(packet_pool);

	if (!m) {
		drop_lost(&drop_no_buffer);
		return NULL;
	}
	packet_reset(m);
	return m;
}

bool
packet_may_wait(void)
{
	return !packet_pool || 4 * rte_mempool_avail_count(packet_pool) > packet_pool->size;
}

int
punt_start(void)
{
	char name[RTE_RING_NAMESIZE];
	// The ring to the main thread holds a small part of the buffers, and so do all rings from it together.
	unsigned size = RTE_MAX(RTE_MIN(rte_align32prevpow2(packet_pool->size / 8), (unsigned)RING), 256u);
	unsigned down_size = RTE_MAX(RTE_MIN(rte_align32prevpow2(packet_pool->size / (4 * worker_count)), size), 256u);

	up = rte_ring_create("punt", size, SOCKET_ID_ANY, RING_F_SC_DEQ);
	if (!up)
		return -rte_errno;
	// The main thread's is the last.
	for (unsigned w = 0; w <= worker_count; w++) {
		rates[w] = slab_reserve(reason_count * sizeof(*rates[w]));
		if (!rates[w])
			return -ENOMEM;
	}
	for (unsigned w = 0; w < worker_count; w++) {
		snprintf(name, sizeof(name), "inject-%u", w);
		down[w] = rte_ring_create(name, down_size, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (!down[w])
			return -rte_errno;
	}
	loop_poll(punt_poll, NULL);
	return 0;
}
