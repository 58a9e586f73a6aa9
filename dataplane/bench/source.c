// SPDX-License-Identifier: Apache-2.0
// The source node, and the templates of its packets.
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include "bench.h"
#include "core/start.h"
#include "core/worker.h"
#include "port/port.h"
#include "windows.h"

enum { FCS = 4 };

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
		uint16_t length = t->lengths ? t->lengths[g->next] : t->length;
		const uint8_t *difference = t->differences + (size_t)g->next * t->stride;

		*packet_of(m[i]) = fresh;
		m[i]->port = t->port;
		m[i]->data_len = length;
		m[i]->pkt_len = length;
		if (t->whole)
			memcpy(data, t->whole + g->next * t->whole_stride, length);
		else
			memcpy(data, t->header, HEADER_MAX);
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

// Neighbours differ.
unsigned
bench_size(uint16_t size, uint32_t n)
{
	enum { SHORT = 64, MIDDLE = 570, LONG = 1518, OF = 12, SHORTS = 7, MIDDLES = 4 };
	uint32_t at = n * 5 % OF;

	return size != SIZE_IMIX ? size : at < SHORTS ? SHORT : at < SHORTS + MIDDLES ? MIDDLE : LONG;
}

static int
whole_make(struct templates *t, const struct scenario *s, uint16_t size, const uint32_t *order)
{
	uint8_t frame[WHOLE_MAX];

	t->whole_stride = RTE_ALIGN_CEIL(WHOLE_MAX, RTE_CACHE_LINE_SIZE);
	if (!t->lengths) {
		t->length = (uint16_t)s->whole(s, 0, size, frame);
		t->whole_stride = RTE_ALIGN_CEIL(t->length, RTE_CACHE_LINE_SIZE);
	}
	t->whole = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_MAX(t->flows * t->whole_stride, 1u));
	t->differences = malloc(1);
	if (!t->whole || !t->differences)
		return -1;
	for (uint32_t i = 0; i < t->flows; i++) {
		unsigned length = s->whole(s, order[i], (uint16_t)bench_size(size, i), frame);

		if (length == 0 || (!t->lengths && length != t->length))
			return -1;
		if (t->lengths)
			t->lengths[i] = (uint16_t)length;
		memcpy(t->whole + i * t->whole_stride, frame, length);
	}
	return 0;
}

int
templates_make(struct templates *t, const struct scenario *s, uint16_t size)
{
	uint8_t header[HEADER_MAX];
	bool differs[HEADER_MAX] = {0};
	uint64_t state = 88172645463325252u;
	uint32_t *order = malloc(s->flows * sizeof(order[0]));
	struct object *port = object_find(&port_kind, s->port);
	uint32_t ports = s->schedulers > 1 ? s->schedulers : 1;

	*t = (struct templates){.length = (uint16_t)(size - FCS), .flows = s->flows};
	if (size == SIZE_IMIX)
		t->lengths = malloc(s->flows * sizeof(t->lengths[0]));
	if (!port || !order || (size == SIZE_IMIX && !t->lengths)) {
		free(order);
		return -1;
	}
	t->port = port_of(port)->id;
	// In an order of no pattern. Flows of each port stay in their places modulo the ports, so that a worker can take those of one port alone.
	for (uint32_t flow = 0; flow < s->flows; flow++)
		order[flow] = flow;
	for (uint32_t flow = s->flows - 1; flow >= ports; flow--) {
		uint32_t other = (uint32_t)(random_next(&state) % (flow / ports + 1)) * ports + flow % ports,
			 keep = order[flow];

		order[flow] = order[other];
		order[other] = keep;
	}
	if (s->whole) {
		int error = whole_make(t, s, size, order);

		free(order);
		return error;
	}
	t->header_length = s->frame(s, 0, (uint16_t)(bench_size(size, 0) - FCS), t->header);
	for (uint32_t flow = 1; flow < s->flows; flow++) {
		memset(header, 0, sizeof(header));
		s->frame(s, flow, (uint16_t)(bench_size(size, flow) - FCS), header);
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
	for (uint32_t i = 0; i < s->flows && t->differences; i++) {
		uint8_t *at = t->differences + (size_t)i * t->stride;
		uint16_t length = (uint16_t)(bench_size(size, i) - FCS);

		if (t->lengths)
			t->lengths[i] = length;
		s->frame(s, order[i], length, header);
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
	free(t->whole);
	free(t->lengths);
}
