// The source node, and the loop that measures.
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_mbuf.h>

#include "bench.h"
#include "core/loop.h"
#include "core/start.h"
#include "core/worker.h"
#include "ether/circuit.h"
#include "port/port.h"

struct generator {
	const struct templates *templates; // NULL: no packets
	uint32_t next;                     // flow
	uint16_t edge;                     // where bursts go
	uint64_t sent;
} __rte_cache_aligned;

static struct generator generators[WORKER_MAX + 1];

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
		if (++g->next == t->flows)
			g->next = 0;
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
	for (uint32_t flow = s->flows - 1; flow > 0; flow--) {
		uint32_t other = (uint32_t)(random_next(&state) % (flow + 1)), keep = order[flow];

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

struct run {
	unsigned rounds;
	double full[REPEATS], bare[REPEATS];
	double nodes[REPEATS][NODE_MAX];
	uint64_t sent, arrived;
};

static struct run runs[WORKER_MAX + 1];
static const struct templates *current;

static uint64_t
walk(struct worker *self, unsigned rounds)
{
	uint64_t start = rte_rdtsc();

	for (unsigned i = 0; i < rounds; i++)
		rte_graph_walk(self->graph);
	return rte_rdtsc() - start;
}

static void
node_cycles(const struct worker *self, double *cycles)
{
	const struct node *n;

	for (uint16_t id = 0; (n = node_by_id(id)) != NULL; id++) {
		const struct rte_node *node = rte_graph_node_get_by_name(self->graph->name, n->name);

		cycles[id] = node ? (double)node->total_cycles : 0;
	}
}

static uint64_t
arrived(const struct worker *self)
{
	return rte_graph_node_get_by_name(self->graph->name, tx_node.name)->total_objs;
}

static int
run(void *argument)
{
	struct worker *self = argument;
	struct run *r = &runs[self->index];
	struct generator *g = &generators[self->index];
	double before[NODE_MAX], after[NODE_MAX];
	uint64_t sent, reached;

	RTE_PER_LCORE(worker) = self;
	*g = (struct generator){.templates = current,
		.edge = ether_input_node.id,
		.next = (uint32_t)((uint64_t)current->flows * self->index / (worker_count + 1))};
	walk(self, r->rounds / 2 + 1);
	for (unsigned i = 0; i < REPEATS; i++) {
		g->edge = tx_node.id;
		walk(self, r->rounds / 16 + 1);
		r->bare[i] = (double)walk(self, r->rounds / 2 + 1) / ((double)(r->rounds / 2 + 1) * BURST);
		g->edge = ether_input_node.id;
		walk(self, r->rounds / 16 + 1);
		node_cycles(self, before);
		sent = g->sent;
		reached = arrived(self);
		r->full[i] = (double)walk(self, r->rounds) / ((double)r->rounds * BURST);
		node_cycles(self, after);
		r->sent += g->sent - sent;
		r->arrived += arrived(self) - reached;
		for (unsigned n = 0; n < NODE_MAX && node_by_id((uint16_t)n); n++)
			r->nodes[i][n] = (after[n] - before[n]) / ((double)r->rounds * BURST);
	}
	g->templates = NULL;
	return 0;
}

static int
ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void
measure(const struct templates *t, unsigned active, unsigned rounds, struct measured *m)
{
	const struct run *first = &runs[0];

	current = t;
	for (unsigned w = 0; w < active; w++) {
		runs[w] = (struct run){.rounds = rounds};
		rte_eal_remote_launch(run, &workers[w], workers[w].lcore);
	}
	for (unsigned w = 0; w < active; w++)
		rte_eal_wait_lcore(workers[w].lcore);
	m->bare = first->bare[0];
	for (unsigned i = 0; i < REPEATS; i++)
		m->bare = RTE_MIN(m->bare, first->bare[i]);
	for (unsigned i = 0; i < REPEATS; i++)
		m->cycles[i] = first->full[i] - m->bare;
	qsort(m->cycles, REPEATS, sizeof(m->cycles[0]), ascending);
	for (unsigned n = 0; n < NODE_MAX; n++) {
		double all[REPEATS];

		for (unsigned i = 0; i < REPEATS; i++)
			all[i] = first->nodes[i][n];
		qsort(all, REPEATS, sizeof(all[0]), ascending);
		m->nodes[n] = all[REPEATS / 2];
	}
	m->sent = first->sent;
	m->arrived = first->arrived;
}
