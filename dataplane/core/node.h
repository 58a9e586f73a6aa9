// Nodes of the graph, and how a packet gets from one to the next.
//
// A node has one number, its id, and that number is its name everywhere: every node has an edge with this number to it, so
// the same byte says "go there" in a node's code, in a hop, in a session and in a chain. A chain is a 64-bit word of up to
// eight ids, the next step in the lowest byte: a node that is a step of a chain does its work and calls packet_step().
// What a session or interface does not use is not in its chain and costs nothing.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <rte_graph.h>
#include <rte_graph_worker.h>

#include "core/packet.h"

struct node {
	const char *name;
	// Takes `count` mbufs and passes each on. Sources get none and make some.
	uint16_t (*process)(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count);
	// What the node is about to see, for a person who follows packets: `length` bytes of the packet's data. May be NULL.
	void (*describe)(char *text, size_t size, const struct packet *packet, const uint8_t *data, size_t length);
	bool source;
	// Frames come in here, whole: following and capturing begin with this node.
	bool arrival;
	// Frames leave here, whole: what became of a packet that this worker gave to this port. NULL for every other node.
	void (*departed)(char *text, size_t size, uint16_t port, unsigned worker);

	// Set when the graph is made.
	uint16_t id;
	struct node *next;
};

void node_register(struct node *node);

// Behind the definition of a node; makes it part of every worker's graph.
#define NODE_REGISTER(node) \
	RTE_INIT(register_##node) \
	{ \
		node_register(&node); \
	}

enum { NODE_MAX = 128, BURST = RTE_GRAPH_BURST_SIZE };

// The node with this id or name, or NULL.
const struct node *node_by_id(uint16_t id);
const struct node *node_by_name(const char *name);

// The id of the node where frames come in.
extern uint16_t node_arrival;

// A chain of one to eight steps.
static inline uint64_t
chain_of(const struct node *const *steps, unsigned count)
{
	uint64_t chain = 0;

	for (unsigned i = 0; i < count; i++)
		chain |= (uint64_t)steps[i]->id << 8 * i;
	return chain;
}

// Take the next step of the packet's chain: the edge to follow.
static inline uint16_t
packet_step(struct packet *p)
{
	uint16_t next = p->chain & 0xff;

	p->chain >>= 8;
	return next;
}

// Send each of a node's packets on by its own edge. `packets` is the node's own array and `count` all of it: a burst of
// one mind moves as a whole, without a copy.
static inline void
node_dispatch(struct rte_graph *graph, struct rte_node *node, void **packets, const uint16_t *next, uint16_t count)
{
	uint16_t differs = 0;

	if (unlikely(count == 0))
		return;
	for (uint16_t i = 0; i < count; i++)
		differs |= next[i] ^ next[0];
	if (likely(differs == 0 && packets == node->objs && count == node->idx)) {
		rte_node_next_stream_move(graph, node, next[0]);
		return;
	}
	for (uint16_t start = 0, end; start < count; start = end) {
		for (end = (uint16_t)(start + 1); end < count && next[end] == next[start]; end++)
			;
		rte_node_enqueue(graph, node, next[start], &packets[start], (uint16_t)(end - start));
	}
}
