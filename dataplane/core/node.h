// SPDX-License-Identifier: Apache-2.0
// Nodes of the graph, and how a packet gets from one to the next.
//
// A node has one number, its id, and that number is its name everywhere: every node has an edge with this number to
// it, so the same number says "go there" in a node's code, in a hop, in a session and in a chain. A chain is the
// number of an entry of `chain_steps`, which has the node of the next step and the chain behind it: a node that is a
// step of a chain does its work and calls packet_step(). A feature that a session or interface does not use is not in
// its chain and costs nothing. Chains are made once and never changed. Equal chains, and equal ends of chains, are
// the same entries: all sessions share a few that the cache holds.
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
	// Describe a packet that enters the node, for a trace: `length` bytes of the packet's data. May be NULL.
	void (*describe)(char *text, size_t size, const struct packet *packet, const uint8_t *data, size_t length);
	// Nodes that packets go to beside the drop node, for `sluice graph`: NODE_EDGES(&tx_node, ...). Tables that nodes are registered in
	// add edges by node_edge().
	const struct node *const *edges;
	bool steps;   // also to the next step of their chain
	bool returns; // to the node that they came from
	bool source;
	// Frames come in here, whole: following and capturing begin with this node.
	bool arrival;
	// Describes the end of a packet that this worker gave to this port, for nodes where frames leave as a whole.
	// NULL for every other node.
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

#define NODE_EDGES(...) ((const struct node *const[]){__VA_ARGS__, NULL})

// In a list of edges: the node where frames come in.
extern const struct node arrival_node;

// Packets go from one node to another because of something registered. At start.
void node_edge(const struct node *from, const struct node *to);
// For tests (core/node_check.h): called for each node at start. NULL: nothing checks nodes.
extern void (*node_check)(struct node *node);
// Into `list`: where the node's packets go, without the drop node and steps. How many.
unsigned node_edges(const struct node *from, const struct node **list, unsigned room);
// Whether the node is a step of any chain. Main thread.
bool node_is_step(const struct node *node);

enum { NODE_MAX = 512, BURST = RTE_GRAPH_BURST_SIZE };

// The node with this id or name, or NULL.
const struct node *node_by_id(uint16_t id);
const struct node *node_by_name(const char *name);

// The id of the node where frames come in.
extern uint16_t node_arrival;

// Calls of a source that brought no packet, and their cycles, as rte_graph counts them. Zero for every other node.
struct idle_polls {
	uint64_t calls;
	uint64_t cycles; // TSC
};
struct idle_polls node_idle_polls(const struct rte_node *node);

// The most steps of a chain, and of all chains together.
enum { CHAIN_MAX = 64, CHAIN_STEPS = 1 << 16 };

struct chain_step {
	uint16_t node;
	uint16_t rest; // the chain behind it; 0 has ended
};
// The first NODE_MAX are chains of one node each, so a node's id is also the chain to it alone. 0 leads to the drop node.
extern struct chain_step chain_steps[CHAIN_STEPS];

// A chain of one to CHAIN_MAX steps. 0, the chain that has ended: these are more, or there is no room for another chain. Main thread.
uint32_t chain_of(const struct node *const *steps, unsigned count);
// Whether there is room for this many more steps. Main thread.
bool chain_room(unsigned steps);
// How many steps a chain has.
unsigned chain_length(uint32_t chain);

// Take the next step of the packet's chain: the edge to follow.
static inline uint16_t
packet_step(struct packet *p)
{
	struct chain_step step = chain_steps[p->chain];

	p->chain = step.rest;
	return step.node;
}

// Say which node the packet goes to from the next one, before the steps that it has left. That one takes it out again, by packet_pop(),
// before another one is put in front.
static inline void
packet_push(struct packet *p, const struct node *node)
{
	p->front = node->id;
}

static inline uint16_t
packet_pop(struct packet *p)
{
	return p->front;
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
