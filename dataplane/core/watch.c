// Workers' side of watching: the process function that stands in for every node's own while somebody watches.
#include "core/watch.h"

#include <errno.h>
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

enum { SIGHTS = 8192 };

static struct watch *watches[WATCHES]; // slot + 1 is what a followed packet carries
static struct rte_mempool *sights;
static struct rte_ring *seen;
static uint16_t id_of[UINT16_MAX]; // our number of an rte_node by rte_graph's number

uint32_t trace_wanted;
uint32_t trace_state[WORKER_MAX + 1];

static void
say(struct watch *w, struct rte_mbuf *m, uint16_t node, bool over, struct rte_mbuf *copy)
{
	struct sight *s;

	if (rte_mempool_get(sights, (void **)&s)) {
		__atomic_fetch_add(&w->lost, 1, __ATOMIC_RELAXED);
		rte_pktmbuf_free(copy);
		return;
	}
	s->slot = w->slot;
	s->over = over;
	s->node = node;
	s->serial = w->serial;
	s->time = rte_rdtsc();
	s->packet = *packet_of(m);
	s->out_port = m->port;
	s->worker = (uint16_t)worker_self()->index;
	s->length = m->pkt_len;
	s->held = (uint16_t)RTE_MIN(m->data_len, (uint16_t)SIGHT_BYTES);
	memcpy(s->data, rte_pktmbuf_mtod(m, void *), s->held);
	s->copy = copy;
	if (rte_ring_enqueue(seen, s)) {
		__atomic_fetch_add(&w->lost, 1, __ATOMIC_RELAXED);
		rte_pktmbuf_free(copy);
		rte_mempool_put(sights, s);
	}
}

static bool
matches(const struct watch *w, struct rte_mbuf *m)
{
	if (!w->filter)
		return true;
	return (w->compiled ? w->compiled(m) : rte_bpf_exec(w->filter, m)) != 0;
}

static bool
wanted(struct watch *w)
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

// The watch that follows the packet; one that is no more leaves marks on packets that wait somewhere.
static struct watch *
follower(const struct packet *p)
{
	struct watch *w;

	if (p->trace == 0 || p->trace > WATCHES)
		return NULL;
	w = __atomic_load_n(&watches[p->trace - 1], __ATOMIC_ACQUIRE);
	return w && w->kind == WATCH_TRACE && p->arrived >= w->begun ? w : NULL;
}

static void
look(struct rte_mbuf *m, uint16_t node)
{
	struct packet *p = packet_of(m);

	if (p->trace != 0 && !follower(p))
		p->trace = 0;
	for (unsigned slot = 0; slot < WATCHES; slot++) {
		struct watch *w = __atomic_load_n(&watches[slot], __ATOMIC_ACQUIRE);
		struct rte_mbuf *copy;
		int put_on;

		if (!w)
			continue;
		if (w->kind == WATCH_TRACE) {
			if (node_by_id(node)->arrival && p->trace == 0 && matches(w, m) && wanted(w)) {
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
		if (matches(w, m) && wanted(w)) {
			copy = rte_pktmbuf_copy(m, packet_pool, 0, w->snap_length ? w->snap_length : UINT32_MAX);
			if (copy)
				say(w, m, node, false, copy);
			else
				__atomic_fetch_add(&w->lost, 1, __ATOMIC_RELAXED);
		}
		packet_advance(m, put_on);
	}
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
	uint32_t state = __atomic_load_n(&trace_wanted, __ATOMIC_ACQUIRE);
	bool watching = false;
	rte_graph_off_t offset;
	rte_node_t n;
	struct rte_node *node;

	for (unsigned slot = 0; slot < WATCHES; slot++)
		watching |= __atomic_load_n(&watches[slot], __ATOMIC_ACQUIRE) != NULL;
	rte_graph_foreach_node(n, offset, worker->graph, node)
	{
		const struct node *ours = node_by_id(id_of[node->id]);

		node->process = watching && !ours->source ? watched_process : ours->process;
	}
	worker->watched = watching;
	trace_state[worker->index] = state;
}

struct watch *
watch_begin(const struct watch *wish, char *text, size_t size)
{
	static uint64_t serial;
	struct rte_bpf_jit jit;
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
	if (!w) {
		snprintf(text, size, "there is no memory to watch packets");
		errno = ENOMEM;
		return NULL;
	}
	*w = *wish;
	w->slot = slot;
	w->serial = ++serial;
	w->begun = rte_rdtsc();
	if (w->filter && rte_bpf_get_jit(w->filter, &jit) == 0 && jit.func)
		w->compiled = jit.func;
	__atomic_store_n(&watches[slot], w, __ATOMIC_RELEASE);
	__atomic_add_fetch(&trace_wanted, 1, __ATOMIC_RELEASE);
	return w;
}

void
watch_end(uint8_t slot)
{
	struct watch *w = watches[slot];

	__atomic_store_n(&watches[slot], NULL, __ATOMIC_RELEASE);
	__atomic_add_fetch(&trace_wanted, 1, __ATOMIC_RELEASE);
	rcu_wait();
	rte_bpf_destroy(w->filter);
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
	rte_pktmbuf_free(s->copy);
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
