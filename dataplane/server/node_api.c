// SPDX-License-Identifier: Apache-2.0
// The API's node counters, from rte_graph's own.
#include <rte_cycles.h>

#include "core/node.h"
#include "core/worker.h"
#include "graph.pb-c.h"
#include "server/api.h"

static void
serve_node_counters(struct api_call *call, const void *asked)
{
	const Sluice__V1__NodeCountersQuery *query = asked;
	Sluice__V1__NodeCountersList answer = SLUICE__V1__NODE_COUNTERS_LIST__INIT;
	Sluice__V1__NodeCounters all[NODE_MAX], *list[NODE_MAX];
	const struct node *n, *edges[NODE_MAX];

	for (uint16_t i = 0; (n = node_by_id(i)) != NULL; i++) {
		Sluice__V1__NodeCounters *c = &all[answer.n_nodes];

		sluice__v1__node_counters__init(c);
		c->node = (char *)n->name;
		if (query->graph) {
			c->n_next = node_edges(n, edges, NODE_MAX);
			c->next = api_memory(call, c->n_next + 1, sizeof(c->next[0]));
			if (!c->next)
				return;
			for (size_t k = 0; k < c->n_next; k++)
				c->next[k] = (char *)edges[k]->name;
			c->takes_steps = n->steps;
			c->is_step = node_is_step(n);
		}
		for (unsigned w = 0; w < worker_count; w++) {
			const struct rte_node *node = rte_graph_node_get_by_name(workers[w].graph->name, n->name);

			if (!node)
				continue;
			// Read first: rte_graph's counters include them.
			struct idle_polls idle = node_idle_polls(node);

			c->calls += __atomic_load_n(&node->total_calls, __ATOMIC_ACQUIRE) - idle.calls;
			c->packets += node->total_objs;
			c->cycles += __atomic_load_n(&node->total_cycles, __ATOMIC_ACQUIRE) - idle.cycles;
			c->idle_calls += idle.calls;
			c->idle_cycles += idle.cycles;
		}
		list[answer.n_nodes++] = c;
	}
	answer.nodes = list;
	answer.tsc_hz = rte_get_tsc_hz();
	api_answer(call, &answer.base);
}

STATE_QUERY(node_counters_query, sluice__v1__node_counters_query__descriptor, serve_node_counters)
