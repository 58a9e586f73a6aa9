// SPDX-License-Identifier: Apache-2.0
// Packets that the graph hands to the main thread: for a handler in this process (a neighbour's reply) or, without one, for
// the agent. Each reason has a rate limit of its own, so that a flood of one does not starve another;
// and so has each source within a reason (fair.h), so that a flood from one source does not starve another. A reason may limit a session more
// than other sources: a session is one subscriber, while an IP address may be a relay's or a server's, which speaks for many.
#pragma once

#include <stdbool.h>

#include "core/node.h"

// Limits in force. The main thread changes them (punt_limit()).
struct punt_limits {
	uint32_t rate;    // packets a second, and as many at once
	uint32_t each;    // of these, from one source on one worker; 0: a quarter
	uint32_t session; // of these, from one subscriber's session on one worker; 0: as from any source
};

struct punt {
	const char *name; // "pppoe-discovery", as in PacketIn
	struct punt_limits limits;
	// Runs on the main thread and owns the packet from then on. NULL: the packet goes to the client that watches this reason, and is
	// dropped by name if there is none.
	void (*handle)(struct rte_mbuf *m);
	uint8_t id;
};

void punt_register(struct punt *punt);

#define PUNT(variable, punt_name, packets_a_second, handler) \
	PUNT_EACH(variable, punt_name, packets_a_second, 0, handler)

#define PUNT_EACH(variable, punt_name, packets_a_second, of_one_source, handler) \
	PUNT_SESSION(variable, punt_name, packets_a_second, of_one_source, 0, handler)

#define PUNT_SESSION(variable, punt_name, packets_a_second, of_one_source, of_one_session, handler) \
	static struct punt variable = {.name = punt_name, \
		.limits = {.rate = packets_a_second, .each = of_one_source, .session = of_one_session}, \
		.handle = handler}; \
	RTE_INIT(register_##variable) \
	{ \
		punt_register(&variable); \
	}

extern struct node punt_node;

// The edge to follow for a packet that the main thread shall have.
static inline uint16_t
packet_punt(struct packet *p, const struct punt *reason)
{
	p->punt = reason->id;
	return punt_node.id;
}

// For a handler that does not keep the packet: give it to the client that watches its reason.
void punt_to_watcher(struct rte_mbuf *m);
// Main thread: whether a client watches the reason for which the packet was punted.
bool punt_watched(const struct packet *p);

// Main thread: a packet enters the graph at `node`. Its chain, interface, session ... are set for that node.
void inject(struct rte_mbuf *m, const struct node *node);

// The node that such packets come from.
extern struct node inject_node;

// In a file that calls inject(): declares the node, once a file. Packets that go on with their chain need no declaration.
#define INJECTED(node) \
	RTE_INIT(injected_##node) \
	{ \
		node_edge(&inject_node, &node); \
	}

// Main thread: whether one more packet may be held for later. Held packets leave a quarter of the buffers free, so that other traffic
// goes on. The queues of ports with schedulers never hold more than half of the buffers, so that there is always room for held packets.
bool packet_may_wait(void);

// A buffer of the pool the ports use, its packet state clean; NULL if there is none, which is counted as a drop.
struct rte_mbuf *packet_new(void);
