// SPDX-License-Identifier: Apache-2.0
// The registry of nodes, and their registration with rte_graph.
#include "core/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_malloc.h>

#include "core/drop.h"
#include "core/start.h"

struct chain_step chain_steps[CHAIN_STEPS];

static uint32_t chain_count = NODE_MAX; // entries in use
// By a hash of its content: the entry, 0: none. Twice as many places as there are entries.
static uint16_t chain_places[2 * CHAIN_STEPS];

static bool step_of_any[NODE_MAX]; // the node is a step of some chain

static struct node *registered;
static const struct node *by_id[NODE_MAX];
static unsigned node_count;
uint16_t node_arrival;
void (*node_check)(struct node *node);

void
node_register(struct node *node)
{
	node->next = registered;
	registered = node;
}

const struct node *
node_by_id(uint16_t id)
{
	return id < node_count ? by_id[id] : NULL;
}

const struct node *
node_by_name(const char *name)
{
	for (unsigned i = 0; i < node_count; i++)
		if (strcmp(by_id[i]->name, name) == 0)
			return by_id[i];
	return NULL;
}

RTE_INIT(single_steps)
{
	for (unsigned i = 0; i < NODE_MAX; i++)
		chain_steps[i].node = (uint16_t)i;
}

// The chain of a node and the chain behind it, or 0: there is no room.
static uint32_t
chain_before(uint16_t node, uint32_t rest)
{
	uint32_t word = (uint32_t)node << 16 | rest, place = word * 0x9e3779b1u >> 15;

	if (rest == 0)
		return node;
	for (;; place = (place + 1) % RTE_DIM(chain_places)) {
		uint32_t chain = chain_places[place];

		if (chain == 0)
			break;
		if (chain_steps[chain].node == node && chain_steps[chain].rest == rest)
			return chain;
	}
	if (chain_count == CHAIN_STEPS)
		return 0;
	chain_steps[chain_count] = (struct chain_step){node, (uint16_t)rest};
	chain_places[place] = (uint16_t)chain_count;
	// A reader of its number sees the whole entry: numbers are published by release.
	return chain_count++;
}

uint32_t
chain_of(const struct node *const *steps, unsigned count)
{
	uint32_t chain = 0;

	if (count == 0 || count > CHAIN_MAX)
		return 0;
	for (unsigned i = 0; i < count; i++)
		step_of_any[steps[i]->id % NODE_MAX] = true;
	for (unsigned i = count; i-- > 0;) {
		chain = chain_before(steps[i]->id, chain);
		if (chain == 0)
			return 0;
	}
	return chain;
}

bool
chain_room(unsigned steps)
{
	return chain_count + steps <= CHAIN_STEPS;
}

unsigned
chain_length(uint32_t chain)
{
	unsigned length = 0;

	for (; chain != 0; chain = chain_steps[chain].rest)
		length++;
	return length;
}

// ---- The graph for people.

enum { ADDED_MAX = 1024 };

const struct node arrival_node = {.name = "arrival"};

static struct {
	const struct node *from, *to;
} added[ADDED_MAX];
static unsigned added_count;

void
node_edge(const struct node *from, const struct node *to)
{
	for (unsigned i = 0; i < added_count; i++)
		if (added[i].from == from && added[i].to == to)
			return;
	if (added_count == ADDED_MAX) {
		fprintf(stderr, "nodes: no room for the edge from %s to %s; raise ADDED_MAX in core/node.c\n",
			from->name, to->name);
		return;
	}
	added[added_count].from = from;
	added[added_count++].to = to;
}

static unsigned
add_edge(const struct node **list, unsigned count, unsigned room, const struct node *to)
{
	to = to == &arrival_node ? by_id[node_arrival] : to;
	for (unsigned i = 0; i < count; i++)
		if (list[i] == to)
			return count;
	if (count < room)
		list[count++] = to;
	return count;
}

static bool
leads_to(const struct node *from, const struct node *to)
{
	for (const struct node *const *e = from->edges; e && *e; e++)
		if (*e == to)
			return true;
	return false;
}

unsigned
node_edges(const struct node *from, const struct node **list, unsigned room)
{
	unsigned count = 0;

	for (const struct node *const *e = from->edges; e && *e; e++)
		count = add_edge(list, count, room, *e);
	for (unsigned i = 0; i < added_count; i++)
		if (added[i].from == from)
			count = add_edge(list, count, room, added[i].to);
	for (unsigned i = 0; from->returns && i < node_count; i++)
		if (leads_to(by_id[i], from))
			count = add_edge(list, count, room, by_id[i]);
	return count;
}

bool
node_is_step(const struct node *node)
{
	return step_of_any[node->id];
}

// A source in one worker's graph. rte_graph counts a call after it has returned, so each call attributes the one before it; that saves
// a second look at the TSC.
struct poll {
	uint16_t (*process)(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count);
	uint64_t calls, packets, cycles; // rte_graph's counters at the last call
	struct idle_polls idle;
};

static inline struct poll *
poll_of(const struct rte_node *node)
{
	struct poll *poll;

	memcpy(&poll, node->ctx, sizeof(poll));
	return poll;
}

static uint16_t
poll_source(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct poll *p = poll_of(node);

	if (node->total_objs == p->packets) {
		__atomic_store_n(&p->idle.calls, p->idle.calls + node->total_calls - p->calls, __ATOMIC_RELAXED);
		__atomic_store_n(&p->idle.cycles, p->idle.cycles + node->total_cycles - p->cycles, __ATOMIC_RELAXED);
	}
	p->calls = node->total_calls;
	p->packets = node->total_objs;
	p->cycles = node->total_cycles;
	return p->process(graph, node, packets, count);
}

static int
poll_start(const struct rte_graph *graph, struct rte_node *node)
{
	struct poll *poll = rte_zmalloc(node->name, sizeof(*poll), RTE_CACHE_LINE_SIZE);

	if (!poll)
		return -ENOMEM;
	poll->process = node_by_name(node->name)->process;
	memcpy(node->ctx, &poll, sizeof(poll));
	return 0;
}

static void
poll_end(const struct rte_graph *graph, struct rte_node *node)
{
	rte_free(poll_of(node));
}

struct idle_polls
node_idle_polls(const struct rte_node *node)
{
	const struct poll *poll = node->process == poll_source ? poll_of(node) : NULL;

	if (!poll)
		return (struct idle_polls){0};
	return (struct idle_polls){__atomic_load_n(&poll->idle.calls, __ATOMIC_RELAXED),
		__atomic_load_n(&poll->idle.cycles, __ATOMIC_RELAXED)};
}

static int
compare(const void *a, const void *b)
{
	const struct node *x = *(const struct node *const *)a, *y = *(const struct node *const *)b;

	// The drop node is number 0, so that a chain that has come to its end leads there.
	if ((x == &drop_node) != (y == &drop_node))
		return x == &drop_node ? -1 : 1;
	return strcmp(x->name, y->name);
}

// Give each node its number, and an edge with that number from every node. rte_graph refuses an edge to a source or to the
// node itself: those lead to the drop node.
int
node_start(void)
{
	struct rte_node_register *r;

	for (struct node *n = registered; n; n = n->next) {
		if (node_count == NODE_MAX) {
			fprintf(stderr, "node %s: more than %d nodes are registered; raise NODE_MAX in core/node.h\n",
				n->name, NODE_MAX);
			return -ENOSPC;
		}
		by_id[node_count++] = n;
	}
	qsort(by_id, node_count, sizeof(by_id[0]), compare);
	for (unsigned i = 0; i < node_count; i++) {
		((struct node *)by_id[i])->id = (uint16_t)i;
		if (by_id[i]->arrival)
			node_arrival = (uint16_t)i;
		if (node_check)
			node_check((struct node *)by_id[i]);
	}

	for (unsigned i = 0; i < node_count; i++) {
		const struct node *node = by_id[i];

		r = calloc(1, sizeof(*r) + node_count * sizeof(r->next_nodes[0]));
		if (!r)
			return -ENOMEM;
		strncpy(r->name, node->name, sizeof(r->name) - 1);
		r->flags = node->source ? RTE_NODE_SOURCE_F : 0;
		r->process = node->process;
		if (node->source) {
			r->process = poll_source;
			r->init = poll_start;
			r->fini = poll_end;
		}
		r->id = RTE_NODE_ID_INVALID;
		r->parent_id = RTE_NODE_ID_INVALID;
		if (node != &drop_node) {
			r->nb_edges = (rte_edge_t)node_count;
			for (unsigned j = 0; j < node_count; j++)
				r->next_nodes[j] = by_id[j]->source || j == i ? drop_node.name : by_id[j]->name;
		}
		if (__rte_node_register(r) == RTE_NODE_ID_INVALID) {
			free(r);
			return -rte_errno;
		}
		free(r);
	}
	return 0;
}
