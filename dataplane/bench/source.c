// The source node, and the templates of what it sends.
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include "bench.h"
#include "core/start.h"
#include "core/worker.h"
#include "port/port.h"
#include "windows.h"

struct generator generators[WORKER_MAX + 1];

static uint16_t
source_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct generator *g = &generators[worker_self()->index];
	const struct templates *t = g->templates;
	const struct packet fresh = {.session = NO_SESSION, .interface = NO_INTERFACE, .port = t ? t->port : 0};
	struct rte_mbuf **m = (struct rte_mbuf **)node->objs;

	if (!t || rte_pktmbuf_alloc_bulk(packet_pool, m, BURST))
		return 0;
	for (unsigned i = 0; i < BURST; i++) {
		uint8_t *data = rte_pktmbuf_mtod(m[i], uint8_t *);
		const uint8_t *difference = t->differences + (size_t)g->next * t->stride;

		*packet_of(m[i]) = fresh;
		m[i]->port = t->port;
		m[i]->data_len = t->length;
		m[i]->pkt_len = t->length;
		memcpy(data, t->header, HEADER_MOST);
		for (unsigned r = 0; r < t->range_count; r++) {
			for (unsigned b = 0; b < t->ranges[r].size; b++)
				data[t->ranges[r].at + b] = difference[b];
			difference += t->ranges[r].size;
		}
		g->next += g->step;
		if (g->next >= t->flows)
			g->next -= t->flows;
	}
	g->sent += BURST;
	node->idx = BURST;
	rte_node_next_stream_move(graph, node, g->edge);
	return BURST;
}

static struct node source_node = {.name = "bench-source", .process = source_process, .source = true};
NODE_REGISTER(source_node)

int
templates_make(struct templates *t, const struct scenario *s, uint16_t size)
{
	uint8_t header[HEADER_MOST];
	bool differs[HEADER_MOST] = {0};
	uint64_t state = 88172645463325252u;
	uint32_t *order = malloc(s->flows * sizeof(order[0]));
	struct object *port = object_find(&port_kind, s->port);
	uint32_t ports = s->schedulers > 1 ? s->schedulers : 1;

	*t = (struct templates){.length = (uint16_t)(size - 4), .flows = s->flows};
	if (!port || !order) {
		free(order);
		return -1;
	}
	t->port = port_of(port)->id;
	t->header_length = s->frame(s, 0, t->length, t->header);
	for (uint32_t flow = 1; flow < s->flows; flow++) {
		memset(header, 0, sizeof(header));
		s->frame(s, flow, t->length, header);
		for (unsigned i = 0; i < t->header_length; i++)
			differs[i] |= header[i] != t->header[i];
	}
	for (unsigned i = 0; i < t->header_length; i++) {
		if (!differs[i])
			continue;
		if (i == 0 || !differs[i - 1])
			t->ranges[t->range_count++] = (struct range){(uint16_t)i, 0};
		t->ranges[t->range_count - 1].size++;
		t->stride++;
		if (t->range_count == RTE_DIM(t->ranges) && i + 1 < t->header_length && !differs[i + 1])
			break;
	}
	t->differences = malloc((size_t)s->flows * t->stride + 1);
	for (uint32_t flow = 0; flow < s->flows; flow++)
		order[flow] = flow;
	// Flows of each port stay in their places modulo the ports, so that a worker can take those of one port alone.
	for (uint32_t flow = s->flows - 1; flow >= ports; flow--) {
		uint32_t other = (uint32_t)(random_next(&state) % (flow / ports + 1)) * ports + flow % ports,
			 keep = order[flow];

		order[flow] = order[other];
		order[other] = keep;
	}
	for (uint32_t i = 0; i < s->flows && t->differences; i++) {
		uint8_t *at = t->differences + (size_t)i * t->stride;

		s->frame(s, order[i], t->length, header);
		for (unsigned r = 0; r < t->range_count; r++) {
			memcpy(at, header + t->ranges[r].at, t->ranges[r].size);
			at += t->ranges[r].size;
		}
	}
	free(order);
	return t->differences ? 0 : -1;
}

void
templates_free(struct templates *t)
{
	free(t->differences);
}
