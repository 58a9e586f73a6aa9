// Packets that the graph hands to the main thread: for a handler in this process (a neighbour's reply) or, without one, for
// the agent. Each reason has a rate limit of its own, so that a flood of one does not starve another.
#pragma once

#include <stdbool.h>

#include "core/node.h"

struct punt {
	const char *name; // "pppoe-discovery", as in PacketIn
	uint32_t rate;    // packets a second, and as many at once
	// Runs on the main thread and owns the packet from then on. NULL: the packet goes to whoever watches this reason, and is
	// dropped by name if nobody does.
	void (*handle)(struct rte_mbuf *m);
	uint8_t id;
};

void punt_register(struct punt *punt);

#define PUNT(variable, punt_name, packets_a_second, handler) \
	static struct punt variable = {.name = punt_name, .rate = packets_a_second, .handle = handler}; \
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

// For a handler that does not want the packet itself: give it to whoever watches its reason.
void punt_to_watcher(struct rte_mbuf *m);
// Main thread: somebody watches the reason for which the packet was punted.
bool punt_watched(const struct packet *p);

// Main thread: a packet enters the graph at `node` (its chain, interface, session ... set as that node wants them).
void inject(struct rte_mbuf *m, const struct node *node);

// Main thread: whether one more packet may be kept for later. Those that wait for something never take more than half of the
// buffers, so that traffic that need not wait goes on.
bool packet_may_wait(void);

// A buffer of the pool the ports use, its packet state clean; NULL if there is none, which is counted as a drop.
struct rte_mbuf *packet_new(void);
