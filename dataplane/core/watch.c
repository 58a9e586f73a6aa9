// SPDX-License-Identifier: Apache-2.0
// Workers' side of watching: the process function that replaces every node's own while a trace or a capture runs.
#include "core/watch.h"

#include <errno.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_ether.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "core/drop.h"
#include "core/punt.h"
#include "core/rcu.h"
#include "core/start.h"
#include "core/trace.h"
#include "core/worker.h"

enum {
	SIGHTS = 8192,
	EARLY = 512,       // packets of a worker whose session is not known yet: more than two bursts
	EARLY_STEPS = 16,  // of each; further ones are not shown
	EARLY_TRACE = 0x80 // the slot value of such a packet
};

// The nodes that a packet visits before its session is known, for traces of a session. The lowest bits of
// `arrived`, which the packet carries, are its place in the table of the worker that it came to.
struct early {
	uint64_t arrived;
	uint8_t slots; // a bit for each watch that may follow it
	uint8_t count;
	struct sight steps[EARLY_STEPS];
};

static struct watch *watches[WATCHES]; // slot + 1 is the value in a followed packet
static struct rte_mempool *sights;
static struct rte_ring *seen;
static uint16_t id_of[UINT16_MAX];          // our number of an rte_node by rte_graph's number
static struct early *early[WORKER_MAX + 1]; // by worker; made by the first trace of a session, never freed
static uint64_t early_places[WORKER_MAX + 1];

static uint32_t copied; // buffers that copies for captures hold

uint32_t trace_generation;
uint32_t trace_state[WORKER_MAX + 1];

// A frame for a capture, as long as copies hold no more than an eighth of the buffers. NULL: it is lost.
static struct rte_mbuf *
copy_of(const struct watch *w, struct rte_mbuf *m)
{
	struct rte_mbuf *copy = NULL;

	if (__atomic_load_n(&copied, __ATOMIC_RELAXED) < packet_pool->size / 8)
		copy = rte_pktmbuf_copy(m, packet_pool, 0, w->snap_length ? w->snap_length : UINT32_MAX);
	if (copy)
		__atomic_fetch_add(&copied, copy->nb_segs, __ATOMIC_RELAXED);
	return copy;
}

static void
free_copy(struct rte_mbuf *copy)
{
	if (!copy)
		return;
	__atomic_fetch_sub(&copied, copy->nb_segs, __ATOMIC_RELAXED);
	rte_pktmbuf_free(copy);
}

static void
fill(struct sight *s, struct rte_mbuf *m, uint16_t node, bool over)
{
	s->over = over;
	s->node = node;
	s->time = rte_rdtsc();
	s->packet = *packet_of(m);
	s->out_port = m->port;
	s->worker = (uint16_t)worker_self()->index;
	s->length = m->pkt_len;
	s->held = (uint16_t)RTE_MIN(m->data_len, (uint16_t)SIGHT_BYTES);
	memcpy(s->data, rte_pktmbuf_mtod(m, void *), s->held);
	s->copy = NULL;
}

static struct sight *
sight_new(struct watch *w)
{
	struct sight *s;

	if (rte_mempool_get(sights, (void **)&s)) {
		__atomic_fetch_add(&w->lost, 1, __ATOMIC_RELAXED);
		return NULL;
	}
	return s;
}

static void
send(struct watch *w, struct sight *s)
{
	s->slot = w->slot;
	s->serial = w->serial;
	if (rte_ring_enqueue(seen, s)) {
		__atomic_fetch_add(&w->lost, 1, __ATOMIC_RELAXED);
		free_copy(s->copy);
		rte_mempool_put(sights, s);
	}
}

static void
say(struct watch *w, struct rte_mbuf *m, uint16_t node, bool over, struct rte_mbuf *copy)
{
	struct sight *s = sight_new(w);

	if (!s) {
		free_copy(copy);
		return;
	}
	fill(s, m, node, over);
	s->copy = copy;
	send(w, s);
}

static bool
take_one(struct watch *w)
{
	if (__atomic_load_n(&w->remaining, __ATOMIC_RELAXED) <= 0)
		return false;
	return __atomic_fetch_sub(&w->remaining, 1, __ATOMIC_RELAXED) > 0;
}

// The node gets whole frames.
static bool
at_wire(const struct node *node)
{
	return node->arrival || node->departed;
}

// Make the packet a frame for the time of a look: the Ethernet header it still has in front, or, where a new header is not
// there yet, one without addresses. Returns the bytes to take off again.
static int
as_frame(struct rte_mbuf *m, uint16_t node)
{
	struct rte_ether_hdr *ether;
	uint8_t version;

	if (at_wire(node_by_id(node)))
		return 0;
	if (packet_of(m)->l2_length > 0 && packet_of(m)->l2_length <= m->data_off) {
		packet_advance(m, -(int)packet_of(m)->l2_length);
		return packet_of(m)->l2_length;
	}
	if (m->data_off < sizeof(*ether) || m->data_len == 0)
		return 0;
	version = *rte_pktmbuf_mtod(m, uint8_t *) >> 4;
	packet_advance(m, -(int)sizeof(*ether));
	ether = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
	memset(ether, 0, sizeof(*ether));
	ether->ether_type = rte_cpu_to_be_16(version == 6 ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4);
	return sizeof(*ether);
}

// Whether this is the one place where captures of the packet's session look at it: from the subscriber at the first node that
// has its session, with the frame as it came in; to the subscriber as it leaves. A route that leads to a session names it
// before the session has turned the packet's direction.
static bool
at_session(const struct packet *p, uint16_t node)
{
	if (p->direction == DOWN)
		return node_by_id(node)->departed != NULL;
	return p->hop == NO_HOP && !(p->flags & PACKET_CAPTURED);
}

static bool
captures_here(const struct watch *w, const struct packet *p, uint16_t node)
{
	if (w->session != NO_SESSION)
		return p->session == w->session && at_session(p, node);
	return w->node < 0 ? at_wire(node_by_id(node)) : node == w->node;
}

// The watch that follows the packet. A watch that ended leaves marks on packets in queues.
static struct watch *
follower(const struct packet *p)
{
	struct watch *w;

	if (p->trace == 0 || p->trace > WATCHES)
		return NULL;
	w = __atomic_load_n(&watches[p->trace - 1], __ATOMIC_ACQUIRE);
	return w && w->kind == WATCH_TRACE && p->arrived >= w->begun ? w : NULL;
}

// The packet's early steps; NULL: other packets have taken their place.
static struct early *
early_of(const struct packet *p)
{
	unsigned self = worker_self()->index;

	// Mostly it is this worker's own; else it came by way of another one.
	for (unsigned i = 0; i <= worker_count; i++) {
		struct early *table = early[(self + i) % (worker_count + 1)];
		struct early *e = table ? &table[p->arrived % EARLY] : NULL;

		if (e && __atomic_load_n(&e->arrived, __ATOMIC_ACQUIRE) == p->arrived)
			return e;
	}
	return NULL;
}

// A packet arrives while a trace follows a session: it may belong to that session.
static void
early_begin(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	unsigned self = worker_self()->index;
	uint8_t slots = 0;
	struct early *e;

	for (unsigned slot = 0; slot < WATCHES; slot++) {
		struct watch *w = __atomic_load_n(&watches[slot], __ATOMIC_ACQUIRE);

		if (w && w->kind == WATCH_TRACE && w->session != NO_SESSION &&
			__atomic_load_n(&w->remaining, __ATOMIC_RELAXED) > 0 && match_frame(&w->filter, m))
			slots |= (uint8_t)(1 << slot);
	}
	if (slots == 0 || !early[self])
		return;
	p->trace = EARLY_TRACE;
	p->arrived = (rte_rdtsc() & ~(uint64_t)(EARLY - 1)) | early_places[self]++ % EARLY;
	e = &early[self][p->arrived % EARLY];
	__atomic_store_n(&e->arrived, p->arrived, __ATOMIC_RELEASE);
	e->slots = slots;
	e->count = 0;
}

static void
early_step(struct rte_mbuf *m, uint16_t node)
{
	struct early *e = early_of(packet_of(m));

	if (e && e->count < EARLY_STEPS)
		fill(&e->steps[e->count++], m, node, false);
}

// The watch of the packet's session, once that is known, follows it from here on, and gets its early steps.
static void
early_end(struct packet *p)
{
	struct early *e = early_of(p);

	for (unsigned slot = 0; e && slot < WATCHES; slot++) {
		struct watch *w = __atomic_load_n(&watches[slot], __ATOMIC_ACQUIRE);

		if (!w || !(e->slots & 1 << slot) || w->kind != WATCH_TRACE || w->session != p->session ||
			p->arrived < w->begun || !take_one(w))
			continue;
		p->trace = (uint8_t)(slot + 1);
		for (unsigned i = 0; i < e->count; i++) {
			struct sight *s = sight_new(w);

			if (!s)
				return;
			*s = e->steps[i];
			send(w, s);
		}
		return;
	}
	if (!e)
		p->trace = 0;
}

static void
look(struct rte_mbuf *m, uint16_t node)
{
	struct packet *p = packet_of(m);

	if (p->trace == EARLY_TRACE) {
		if (p->session != NO_SESSION)
			early_end(p);
	} else if (p->trace != 0 && !follower(p)) {
		p->trace = 0;
	}
	for (unsigned slot = 0; slot < WATCHES; slot++) {
		struct watch *w = __atomic_load_n(&watches[slot], __ATOMIC_ACQUIRE);
		struct rte_mbuf *copy;
		int put_on;

		if (!w)
			continue;
		if (w->kind == WATCH_TRACE) {
			if (node_by_id(node)->arrival && p->trace == 0 && w->session == NO_SESSION &&
				match_frame(&w->filter, m) && take_one(w)) {
				p->trace = (uint8_t)(slot + 1);
				p->arrived = rte_rdtsc();
			}
			if (p->trace == slot + 1)
				say(w, m, node, false, NULL);
			continue;
		}
		if (!captures_here(w, p, node))
			continue;
		put_on = as_frame(m, node);
		if (match_frame(&w->filter, m) && take_one(w)) {
			copy = copy_of(w, m);
			if (copy)
				say(w, m, node, false, copy);
			else
				__atomic_fetch_add(&w->lost, 1, __ATOMIC_RELAXED);
		}
		packet_advance(m, put_on);
	}
	if (node_by_id(node)->arrival && p->trace == 0)
		early_begin(m);
	if (p->trace == EARLY_TRACE)
		early_step(m, node);
	if (p->session != NO_SESSION)
		p->flags |= PACKET_CAPTURED;
}

static uint16_t
watched_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t id = id_of[node->id];

	for (uint16_t i = 0; i < count; i++)
		look(packets[i], id);
	return node_by_id(id)->process(graph, node, packets, count);
}

void
trace_end(struct rte_mbuf *m, bool dropped)
{
	struct watch *w = follower(packet_of(m));

	if (w)
		say(w, m, dropped ? drop_node.id : punt_node.id, true, NULL);
}

void
trace_change(struct worker *worker)
{
	uint32_t state = __atomic_load_n(&trace_generation, __ATOMIC_ACQUIRE);
	bool watching = false;
	rte_graph_off_t offset;
	rte_node_t n;
	struct rte_node *node;

	for (unsigned slot = 0; slot < WATCHES; slot++)
		watching |= __atomic_load_n(&watches[slot], __ATOMIC_ACQUIRE) != NULL;
	rte_graph_foreach_node(n, offset, worker->graph, node)
	{
		const struct node *ours = node_by_id(id_of[node->id]);

		if (!ours->source)
			node->process = watching ? watched_process : ours->process;
	}
	worker->watched = watching;
	trace_state[worker->index] = state;
}

// Room for packets' early steps. It is read as soon as a watch is there that needs it.
static bool
early_make(const struct watch *wish)
{
	if (wish->kind != WATCH_TRACE || wish->session == NO_SESSION)
		return true;
	for (unsigned i = 0; i <= worker_count; i++) {
		if (early[i])
			continue;
		// calloc() aligns to 16 bytes, and the copy of a packet's state may use instructions that need its 64.
		struct early *table = aligned_alloc(alignof(struct early), EARLY * sizeof(*table));
		if (!table)
			return false;
		memset(table, 0, EARLY * sizeof(*table));
		early[i] = table;
	}
	return true;
}

struct watch *
watch_begin(const struct watch *wish, char *text, size_t size)
{
	static uint64_t serial;
	struct watch *w;
	uint8_t slot = 0;

	while (slot < WATCHES && watches[slot])
		slot++;
	if (slot == WATCHES) {
		snprintf(text, size, "%d others watch packets already", WATCHES);
		errno = ENOSPC;
		return NULL;
	}
	w = malloc(sizeof(*w));
	if (!w || !early_make(wish)) {
		free(w);
		snprintf(text, size, "there is no memory to watch packets");
		errno = ENOMEM;
		return NULL;
	}
	*w = *wish;
	w->slot = slot;
	w->serial = ++serial;
	w->begun = rte_rdtsc();
	__atomic_store_n(&watches[slot], w, __ATOMIC_RELEASE);
	__atomic_add_fetch(&trace_generation, 1, __ATOMIC_RELEASE);
	return w;
}

void
watch_end(uint8_t slot)
{
	struct watch *w = watches[slot];

	__atomic_store_n(&watches[slot], NULL, __ATOMIC_RELEASE);
	__atomic_add_fetch(&trace_generation, 1, __ATOMIC_RELEASE);
	rcu_wait();
	rte_bpf_destroy(w->filter.program);
	free(w);
}

struct sight *
sight_next(void)
{
	struct sight *s;

	return rte_ring_dequeue(seen, (void **)&s) ? NULL : s;
}

void
sight_done(struct sight *s)
{
	free_copy(s->copy);
	rte_mempool_put(sights, s);
}

int
watch_start(void)
{
	const struct node *n;

	sights = rte_mempool_create(
		"sights", SIGHTS, sizeof(struct sight), 64, 0, NULL, NULL, NULL, NULL, SOCKET_ID_ANY, 0);
	seen = rte_ring_create("sights", 2 * SIGHTS, SOCKET_ID_ANY, RING_F_SC_DEQ);
	if (!sights || !seen)
		return -ENOMEM;
	for (uint16_t i = 0; (n = node_by_id(i)) != NULL; i++)
		id_of[rte_node_from_name(n->name)] = i;
	return 0;
}
