// SPDX-License-Identifier: Apache-2.0
// In and out of schedulers. hqos-enqueue gets the frames of a port with a scheduler. The worker that owns the scheduler
// puts them into their queues; other workers hand them to that one. hqos-dequeue takes frames out, and hqos-tx gives them to the device.
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_ring.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/fair.h"
#include "core/worker.h"
#include "hqos/nodes.h"
#include "hqos/shaped.h"

DROP(drop_full, "qos-queue-full", "The queue of the packet's class was full.")
DROP(drop_gone, "qos-no-subscriber",
	"The packet's session no longer has a place in the port's scheduler, or has none yet.")
DROP(drop_wred, "qos-wred", "The queue of the packet's class had become long (WRED).")
DROP(drop_codel, "qos-codel", "The packet had waited too long in the queue of its class (CoDel).")
DROP(drop_port_full, "qos-port-full",
	"The queues of the port hold as many packet buffers as they may, and the packet's queue its share of them.")
DROP(drop_buffers_full, "qos-buffers-full",
	"The queues of all ports hold as many packet buffers as they may, and the packet's queue its share of them.")
DROP(drop_handover, "qos-handover-full", "The worker that schedules the port could not keep up with the others.")
static_assert(
	(unsigned)QUEUE_OF_REPLIES == OTHER_SUBSCRIBER, "on port 0, too, it is the queue of what is of no session");
struct drop drop_qos_flushed = {.name = "qos-flushed",
	.description = "The packet waited in a queue of a session that was deleted, or of a port whose scheduler was."};
RTE_INIT(register_flushed)
{
	drop_register(&drop_qos_flushed);
}

static uint16_t
drop_refused(struct packet *p)
{
	static const struct drop *const reasons[HQOS_REASONS] = {
		[HQOS_TAIL_DROP] = &drop_full,
		[HQOS_WRED] = &drop_wred,
		[HQOS_CODEL] = &drop_codel,
		[HQOS_UNKNOWN] = &drop_gone,
		[HQOS_PORT_FULL] = &drop_port_full,
		[HQOS_BUFFERS_FULL] = &drop_buffers_full,
	};

	return packet_drop(p, reasons[p->detail]);
}

// The subscriber of a packet in this scheduler. Packets of our own protocols are ours, except replies that any host
// can cause.
static inline uint32_t
subscriber_of(const struct packet *p, const struct shaped *shaped)
{
	if (likely(p->queue >> QUEUE_PORT_SHIFT == shaped->port->id && p->queue != NO_QUEUE))
		return p->queue & (HQOS_SUBSCRIBERS - 1);
	if ((p->flags & (PACKET_OURS | PACKET_TUNNELLED)) == PACKET_OURS && p->queue != QUEUE_OF_REPLIES)
		return OWN_SUBSCRIBER;
	return OTHER_SUBSCRIBER;
}

static struct node hqos_tx_node;

// Send packets whose turn it is, at most a burst. Returns the number of packets that left the scheduler.
static uint16_t
send_burst(struct rte_graph *graph, struct rte_node *node, struct hqos_scheduler *s, uint64_t now)
{
	struct rte_mbuf **to = (struct rte_mbuf **)rte_node_next_stream_get(graph, node, hqos_tx_node.id, BURST);
	uint16_t sent = (uint16_t)hqos_dequeue(s, to, BURST, now);

	rte_node_next_stream_put(graph, node, hqos_tx_node.id, sent);
	for (unsigned i = 0; i < s->dropped_count; i++)
		rte_node_enqueue_x1(graph, node, packet_drop(packet_of(s->dropped[i]), &drop_codel), s->dropped[i]);
	return sent;
}

// Into the scheduler, on its owner.
static void
put_in(struct rte_graph *graph, struct rte_node *node, struct shaped *shaped, struct rte_mbuf **packets, uint16_t count,
	uint64_t now)
{
	uint32_t subscribers[BURST];
	uint8_t classes[BURST];
	unsigned refused;

	for (uint16_t i = 0; i < count; i++) {
		const struct packet *p = packet_of(packets[i]);

		subscribers[i] = subscriber_of(p, shaped);
		classes[i] = subscribers[i] < FIRST_SUBSCRIBER ? 0 : p->class & (HQOS_CLASSES - 1);
	}
	shaped_set_room(shaped, count);
	refused = hqos_enqueue(shaped->scheduler, packets, subscribers, classes, count, now);
	for (unsigned i = 0; i < refused; i++) {
		struct packet *p = packet_of(packets[i]);
		uint32_t subscriber = subscriber_of(p, shaped);
		uint8_t class = p->class & (HQOS_CLASSES - 1);

		// It came before the word that its subscriber is there.
		if (unlikely(p->detail == HQOS_UNKNOWN) && shaped_admit(shaped, subscriber, now)) {
			shaped_set_room(shaped, 1);
			if (hqos_enqueue(shaped->scheduler, &packets[i], &subscriber, &class, 1, now) == 0)
				continue;
		}
		rte_node_enqueue_x1(graph, node, drop_refused(p), packets[i]);
	}
}

static void
hand_over(struct rte_graph *graph, struct rte_node *node, struct shaped *shaped, struct rte_mbuf **packets,
	uint16_t count)
{
	struct rte_ring *ring = shaped->rings[worker_self()->index];
	unsigned given = rte_ring_sp_enqueue_burst(ring, (void **)packets, count, NULL);

	for (unsigned i = given; i < count; i++)
		rte_node_enqueue_x1(graph, node, packet_drop(packet_of(packets[i]), &drop_handover), packets[i]);
}

static void
hqos_enqueue_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct rte_mbuf **m = (struct rte_mbuf **)packets;
	unsigned self = worker_self()->index;
	uint64_t now = rte_rdtsc();

	for (uint16_t start = 0, end; start < count; start = end) {
		struct shaped *shaped = __atomic_load_n(&shaped_ports[m[start]->port % PORT_MAX], __ATOMIC_ACQUIRE);

		for (end = (uint16_t)(start + 1); end < count && m[end]->port == m[start]->port; end++)
			;
		// The scheduler has just gone: then the port sends at once.
		if (unlikely(!shaped))
			rte_node_enqueue(graph, node, tx_node.id, &packets[start], (uint16_t)(end - start));
		else if (likely(self == shaped->owner))
			put_in(graph, node, shaped, m + start, (uint16_t)(end - start), now);
		else
			hand_over(graph, node, shaped, m + start, (uint16_t)(end - start));
	}
}

static uint16_t
hqos_enqueue_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint64_t now;

	by_burst(graph, node, packets, count, hqos_enqueue_burst);
	// At once, while they are in the cache; and their buffers are free for the next burst.
	now = rte_rdtsc();
	for (struct shaped *shaped = __atomic_load_n(&shaped_owned[worker_self()->index], __ATOMIC_ACQUIRE); shaped;
		shaped = __atomic_load_n(&shaped->next, __ATOMIC_ACQUIRE))
		if (shaped->scheduler->packets > 0)
			send_burst(graph, node, shaped->scheduler, now);
	return count;
}

static void
hqos_enqueue_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	const struct shaped *shaped;
	const struct qos_profile *profile = NULL;
	uint32_t subscriber = p->queue & (HQOS_SUBSCRIBERS - 1);
	const char *class = "of a profile that is not there yet";

	if (p->queue == NO_QUEUE) {
		snprintf(text, size, "of no session's queue");
		return;
	}
	shaped = __atomic_load_n(&shaped_ports[p->queue >> QUEUE_PORT_SHIFT], __ATOMIC_ACQUIRE);
	if (shaped && subscriber < shaped->scheduler->subscriber_limit &&
		shaped->scheduler->subscribers[subscriber].used)
		profile = __atomic_load_n(
			&qos_profiles[shaped->scheduler->subscribers[subscriber].profile], __ATOMIC_ACQUIRE);
	for (unsigned i = 0; profile && i < profile->class_count; i++)
		if (profile->number_of[i] == p->class)
			class = profile->names[i];
	snprintf(text, size, "port %s, class %s", port_name((uint16_t)(p->queue >> QUEUE_PORT_SHIFT)), class);
}

// ---- Out again.

// Packets from other workers, and changes of the main thread.
static uint64_t
take_in(struct rte_graph *graph, struct rte_node *node, struct shaped *shaped, uint64_t now)
{
	struct rte_mbuf *packets[BURST];
	uint64_t taken = 0;
	unsigned count;

	for (unsigned w = 0; w < worker_count; w++) {
		if (!shaped->rings[w])
			continue;
		count = rte_ring_sc_dequeue_burst(shaped->rings[w], (void **)packets, BURST, NULL);
		if (count > 0)
			put_in(graph, node, shaped, packets, (uint16_t)count, now);
		taken += count;
	}
	count = shaped_catch_up(shaped, packets, BURST, now);
	for (unsigned i = 0; i < count; i++)
		rte_node_enqueue_x1(graph, node, packet_drop(packet_of(packets[i]), &drop_qos_flushed), packets[i]);
	return taken + count;
}

// A worker that rests is away for longer than it should be if something is to be sent soon.
static inline bool
soon(const struct hqos_scheduler *s, uint64_t now)
{
	enum { SOON = 30000 }; // a second's part: 33 microseconds

	return s->packets > 0 && hqos_next(s, now) - now < rte_get_tsc_hz() / SOON;
}

static uint16_t
hqos_dequeue_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct worker *self = worker_self();
	uint16_t total = 0;

	for (struct shaped *shaped = __atomic_load_n(&shaped_owned[self->index], __ATOMIC_ACQUIRE); shaped;
		shaped = __atomic_load_n(&shaped->next, __ATOMIC_ACQUIRE)) {
		struct hqos_scheduler *s = shaped->scheduler;
		uint64_t now = rte_rdtsc();
		uint16_t sent = 0, all = 0;

		self->taken += take_in(graph, node, shaped, now);
		// As many bursts as there may have come.
		for (unsigned i = 0; i <= worker_count && s->packets > 0; i++) {
			sent = send_burst(graph, node, s, now);
			all = (uint16_t)(all + sent);
			if (sent < BURST)
				break;
		}
		total = (uint16_t)(total + all);
		self->taken += all + (all == 0 && soon(s, now));
	}
	return total;
}

static uint16_t
hqos_tx_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct rte_mbuf **m = (struct rte_mbuf **)packets;

	for (uint16_t start = 0, end; start < count; start = end) {
		for (end = (uint16_t)(start + 1); end < count && m[end]->port == m[start]->port; end++)
			;
		tx_send(graph, node, &ports[m[start]->port % PORT_MAX], m + start, (uint16_t)(end - start));
	}
	return count;
}

static void
hqos_tx_departed(char *text, size_t size, uint16_t port, unsigned worker)
{
	snprintf(text, size, "port %s", port_name(port));
}

struct node hqos_enqueue_node = {.name = "hqos-enqueue",
	.process = hqos_enqueue_process,
	.describe = hqos_enqueue_describe,
	.edges = NODE_EDGES(&hqos_tx_node, &tx_node)};
static struct node hqos_dequeue_node = {
	.name = "hqos-dequeue", .process = hqos_dequeue_process, .source = true, .edges = NODE_EDGES(&hqos_tx_node)};
static struct node hqos_tx_node = {
	.name = "hqos-tx", .process = hqos_tx_process, .describe = hqos_enqueue_describe, .departed = hqos_tx_departed};
NODE_REGISTER(hqos_enqueue_node)
NODE_REGISTER(hqos_dequeue_node)
NODE_REGISTER(hqos_tx_node)
