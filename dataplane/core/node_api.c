// The API's node counters, from rte_graph's own.
#include <stdlib.h>

#include <rte_cycles.h>

#include "core/api.h"
#include "core/node.h"
#include "core/worker.h"

static void
serve_node_counters(struct api_call *call, const Sluice__V1__Request *request)
{
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	Sluice__V1__NodeCountersList answer = SLUICE__V1__NODE_COUNTERS_LIST__INIT;
	Sluice__V1__NodeCounters all[NODE_MAX], *list[NODE_MAX];
	const struct node *n;

	for (uint16_t i = 0; (n = node_by_id(i)) != NULL; i++) {
		Sluice__V1__NodeCounters *c = &all[answer.n_nodes];

		sluice__v1__node_counters__init(c);
		c->node = (char *)n->name;
		for (unsigned w = 0; w < worker_count; w++) {
			const struct rte_node *node = rte_graph_node_get_by_name(workers[w].graph->name, n->name);

			if (!node)
				continue;
			c->calls += node->total_calls;
			c->packets += node->total_objs;
			c->cycles += node->total_cycles;
		}
		list[answer.n_nodes++] = c;
	}
	answer.nodes = list;
	answer.tsc_hz = rte_get_tsc_hz();
	reply.node_counters = &answer;
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_NODE_COUNTERS;
	api_reply(call, &reply, true);
}

API_OPERATION(node_counters, SLUICE__V1__REQUEST__OPERATION_NODE_COUNTERS, serve_node_counters)
