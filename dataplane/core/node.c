// The registry of nodes, and their registration with rte_graph.
#include "core/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>

#include "core/drop.h"
#include "core/start.h"

static struct node *registered;
static const struct node *by_id[NODE_MAX];
static unsigned node_count;
uint16_t node_arrival;

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
		if (node_count == NODE_MAX)
			return -ENOSPC;
		by_id[node_count++] = n;
	}
	qsort(by_id, node_count, sizeof(by_id[0]), compare);
	for (unsigned i = 0; i < node_count; i++) {
		((struct node *)by_id[i])->id = (uint16_t)i;
		if (by_id[i]->arrival)
			node_arrival = (uint16_t)i;
	}

	for (unsigned i = 0; i < node_count; i++) {
		const struct node *node = by_id[i];

		r = calloc(1, sizeof(*r) + node_count * sizeof(r->next_nodes[0]));
		if (!r)
			return -ENOMEM;
		strncpy(r->name, node->name, sizeof(r->name) - 1);
		r->flags = node->source ? RTE_NODE_SOURCE_F : 0;
		r->process = node->process;
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
