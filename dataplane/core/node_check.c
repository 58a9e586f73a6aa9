// SPDX-License-Identifier: Apache-2.0
// The check runs around each call of a node: the edges whose streams became longer took packets.
#include "core/node_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/drop.h"

static uint16_t (*processes[NODE_MAX])(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count);
static uint8_t allowed[NODE_MAX][NODE_MAX]; // by the ids of both nodes: seen, and declared
static const struct node *known[NODE_MAX];  // by rte_graph's number

bool
node_check_allows(const struct node *from, const struct node *to)
{
	const struct node *edges[NODE_MAX];
	unsigned count = node_edges(from, edges, NODE_MAX);

	if (to == &drop_node || (from->steps && node_is_step(to)))
		return true;
	for (unsigned i = 0; i < count; i++)
		if (edges[i] == to)
			return true;
	return false;
}

// NULL: not a node of the graph, but one that a test made.
static const struct node *
node_of(const struct rte_node *node)
{
	const struct node **place = &known[node->id % NODE_MAX], *n = __atomic_load_n(place, __ATOMIC_RELAXED);

	if (!n || strcmp(n->name, node->name) != 0) {
		n = node_by_name(node->name);
		__atomic_store_n(place, n, __ATOMIC_RELAXED);
	}
	return n;
}

static void
check(const struct node *from, const struct node *to)
{
	if (__atomic_load_n(&allowed[from->id][to->id], __ATOMIC_RELAXED))
		return;
	if (!node_check_allows(from, to)) {
		fprintf(stderr,
			"node %s sent a packet to %s, which it does not declare: add that node to its .edges by "
			"NODE_EDGES(), or "
			"call node_edge(); .steps = true declares the steps of chains; INJECTED() is for packets of "
			"inject()\n",
			from->name, to->name);
		abort();
	}
	__atomic_store_n(&allowed[from->id][to->id], 1, __ATOMIC_RELAXED);
}

static uint16_t
checked_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	const struct node *from = node_of(node), *to;
	uint16_t before[NODE_MAX], done;

	for (rte_edge_t edge = 0; edge < node->nb_edges; edge++)
		before[edge] = node->nodes[edge]->idx;
	done = processes[from->id](graph, node, packets, count);
	for (rte_edge_t edge = 0; edge < node->nb_edges; edge++)
		if (node->nodes[edge]->idx > before[edge] && (to = node_of(node->nodes[edge])) != NULL)
			check(from, to);
	return done;
}

static void
wrap(struct node *node)
{
	processes[node->id] = node->process;
	node->process = checked_process;
}

RTE_INIT(check_nodes)
{
	node_check = wrap;
}
