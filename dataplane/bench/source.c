// The source node, and the loop that measures.
#include <pthread.h>
#include <semaphore.h>
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

enum { COMPUTE_STEPS = 1000000 };

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

// What one worker saw in each repeat.
struct run {
	double full[REPEATS], bare[REPEATS];
	double nodes[REPEATS][NODE_MAX];
	double full_alone[REPEATS], bare_alone[REPEATS]; // while the others sleep
	uint64_t compute[REPEATS], compute_alone[REPEATS];
	uint64_t sent, arrived;
};

static struct run runs[WORKER_MAX + 1];
static const struct templates *current;
static unsigned active, rounds_asked;
// Workers that have not yet finished the window that all of them measure at once.
static unsigned measuring;
static pthread_barrier_t together;
static sem_t finished;

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
seen_by(const struct worker *self, const char *node)
{
	return rte_graph_node_get_by_name(self->graph->name, node)->total_objs;
}

// What waits in a scheduler comes to the sink later.
static uint64_t
arrived(const struct worker *self)
{
	return seen_by(self, tx_node.name) - seen_by(self, "hqos-enqueue") + seen_by(self, "hqos-tx");
}

// All workers' windows cover each other: who is done goes on with the same work until the last one is done, too.
static void
all_start(void)
{
	if (active == 1)
		return;
	if (pthread_barrier_wait(&together) == PTHREAD_BARRIER_SERIAL_THREAD)
		__atomic_store_n(&measuring, active, __ATOMIC_SEQ_CST);
	pthread_barrier_wait(&together);
}

static bool
others_measure(bool *counted)
{
	if (active == 1)
		return false;
	if (!*counted)
		__atomic_sub_fetch(&measuring, 1, __ATOMIC_SEQ_CST);
	*counted = true;
	return __atomic_load_n(&measuring, __ATOMIC_SEQ_CST) > 0;
}

// Packets from source to sink alone: cycles a packet.
static double
bare_window(struct worker *self)
{
	struct generator *g = &generators[self->index];
	unsigned rounds = rounds_asked / 2 + 1;

	g->edge = tx_node.id;
	walk(self, rounds_asked / 16 + 1);
	return (double)walk(self, rounds) / ((double)rounds * BURST);
}

static double
full_window(struct worker *self)
{
	generators[self->index].edge = ether_input_node.id;
	walk(self, rounds_asked / 16 + 1);
	return (double)walk(self, rounds_asked) / ((double)rounds_asked * BURST);
}

// As `full_window`, with an account of nodes and packets.
static void
accounted_window(struct worker *self, unsigned i)
{
	struct run *r = &runs[self->index];
	struct generator *g = &generators[self->index];
	double before[NODE_MAX], after[NODE_MAX];
	uint64_t sent, reached;

	g->edge = ether_input_node.id;
	walk(self, rounds_asked / 16 + 1);
	node_cycles(self, before);
	sent = g->sent;
	reached = arrived(self);
	r->full[i] = (double)walk(self, rounds_asked) / ((double)rounds_asked * BURST);
	node_cycles(self, after);
	r->sent += g->sent - sent;
	r->arrived += arrived(self) - reached;
	for (unsigned n = 0; n < NODE_MAX && node_by_id((uint16_t)n); n++)
		r->nodes[i][n] = (after[n] - before[n]) / ((double)rounds_asked * BURST);
}

// Arithmetic in registers that keeps a core's execution units busy: a second thread slows it down only if both share them.
uint64_t
compute(void)
{
	uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, start = rte_rdtsc();

	for (unsigned i = 0; i < COMPUTE_STEPS; i++) {
		a += a >> 3;
		b += b >> 5;
		c += c >> 7;
		d ^= d << 3;
		e ^= e << 5;
		f ^= f << 7;
		// Six chains in six registers, rather than one vector.
		__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
	}
	return rte_rdtsc() - start;
}

// Each in turn: workers differ by the memory that they happened to get, so one of them is no measure for the others.
static void
alone(struct worker *self, unsigned i)
{
	struct run *r = &runs[self->index];

	for (unsigned w = 0; w < active; w++) {
		if (self->index == w) {
			compute();
			r->compute_alone[i] = compute();
			r->bare_alone[i] = bare_window(self);
			r->full_alone[i] = full_window(self);
		}
		pthread_barrier_wait(&together);
	}
}

static int
run(void *argument)
{
	struct worker *self = argument;
	struct run *r = &runs[self->index];
	struct generator *g = &generators[self->index];

	RTE_PER_LCORE(worker) = self;
	*g = (struct generator){.templates = current,
		.edge = ether_input_node.id,
		.next = (uint32_t)((uint64_t)current->flows * self->index / active)};
	walk(self, rounds_asked / 2 + 1);
	for (unsigned i = 0; i < REPEATS; i++) {
		bool counted = false;

		if (active > 1) {
			alone(self, i);
			all_start();
			compute();
			r->compute[i] = compute();
			while (others_measure(&counted))
				compute();
			counted = false;
		}
		all_start();
		r->bare[i] = bare_window(self);
		while (others_measure(&counted))
			walk(self, 1);
		counted = false;
		all_start();
		accounted_window(self, i);
		while (others_measure(&counted))
			walk(self, 1);
	}
	g->templates = NULL;
	sem_post(&finished);
	return 0;
}

// One queue, which the first worker polls: all of its frames through the whole graph on that worker, and in turn shared with the
// others by the port's event device.
static uint64_t shared_deadline;
static bool shared_done;

static uint64_t
all_arrived(void)
{
	uint64_t sum = 0;

	for (unsigned w = 0; w < active; w++)
		sum += __atomic_load_n(&rte_graph_node_get_by_name(workers[w].graph->name, tx_node.name)->total_objs,
			__ATOMIC_RELAXED);
	return sum;
}

// Cycles from the first frame to the last for each of them. No more are on their way than the device has room for.
static double
shared_window(struct worker *self)
{
	enum { ON_THEIR_WAY = 2048 };
	struct generator *g = &generators[self->index];
	uint64_t before = all_arrived(), sent = g->sent, wanted = (uint64_t)rounds_asked * BURST, start = rte_rdtsc();

	g->edge = ports[current->port].entry;
	while (g->sent - sent < wanted && rte_rdtsc() < shared_deadline) {
		g->templates = g->sent - sent - (all_arrived() - before) < ON_THEIR_WAY ? current : NULL;
		rte_graph_walk(self->graph);
	}
	g->templates = NULL;
	while (all_arrived() - before < wanted && rte_rdtsc() < shared_deadline)
		rte_graph_walk(self->graph);
	runs[0].sent += wanted;
	runs[0].arrived += all_arrived() - before;
	return (double)(rte_rdtsc() - start) / (double)wanted;
}

static int
run_shared(void *argument)
{
	struct worker *self = argument;
	struct run *r = &runs[self->index];
	struct generator *g = &generators[self->index];

	RTE_PER_LCORE(worker) = self;
	*g = (struct generator){.edge = ether_input_node.id};
	for (unsigned i = 0; i < REPEATS; i++) {
		pthread_barrier_wait(&together);
		if (self->index == 0) {
			r->compute_alone[i] = compute();
			g->templates = current;
			r->full_alone[i] = full_window(self);
			g->templates = NULL;
			shared_done = false;
		}
		pthread_barrier_wait(&together);
		r->compute[i] = compute();
		pthread_barrier_wait(&together);
		if (self->index == 0) {
			r->full[i] = shared_window(self);
			__atomic_store_n(&shared_done, true, __ATOMIC_RELEASE);
		}
		while (!__atomic_load_n(&shared_done, __ATOMIC_ACQUIRE))
			rte_graph_walk(self->graph);
	}
	sem_post(&finished);
	return 0;
}

static int
ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

// Cycles of each repeat less the least bare loop, in ascending order: the mean of these workers. The bare loop is returned.
static double
spread(unsigned workers, bool alone, double cycles[REPEATS])
{
	double bare = 0;

	for (unsigned w = 0; w < workers; w++) {
		const double *of = alone ? runs[w].bare_alone : runs[w].bare;
		double least = of[0];

		for (unsigned i = 1; i < REPEATS; i++)
			least = RTE_MIN(least, of[i]);
		bare += least / workers;
	}
	for (unsigned i = 0; i < REPEATS; i++) {
		cycles[i] = -bare;
		for (unsigned w = 0; w < workers; w++)
			cycles[i] += (alone ? runs[w].full_alone : runs[w].full)[i] / workers;
	}
	qsort(cycles, REPEATS, sizeof(cycles[0]), ascending);
	return bare;
}

// How many times longer arithmetic takes while all workers do it: medians.
static double
compute_ratio(void)
{
	double with[REPEATS], without[REPEATS];

	for (unsigned i = 0; i < REPEATS; i++) {
		with[i] = (double)runs[0].compute[i];
		without[i] = (double)runs[0].compute_alone[i];
	}
	qsort(with, REPEATS, sizeof(with[0]), ascending);
	qsort(without, REPEATS, sizeof(without[0]), ascending);
	return with[REPEATS / 2] / without[REPEATS / 2];
}

static void
launch(lcore_function_t *what)
{
	sem_init(&finished, 0, 0);
	pthread_barrier_init(&together, NULL, active);
	for (unsigned w = 0; w < active; w++)
		rte_eal_remote_launch(what, &workers[w], workers[w].lcore);
	// rte_eal_wait_lcore spins, on a processor that a worker may need.
	for (unsigned w = 0; w < active; w++)
		while (sem_wait(&finished))
			;
	for (unsigned w = 0; w < active; w++)
		rte_eal_wait_lcore(workers[w].lcore);
	pthread_barrier_destroy(&together);
	sem_destroy(&finished);
}

static void
begin(const struct templates *t, unsigned rounds)
{
	current = t;
	active = worker_count;
	rounds_asked = rounds;
	memset(runs, 0, sizeof(runs));
}

void
measure_shared(const struct templates *t, unsigned rounds, struct measured *m)
{
	enum { SECONDS_MOST = 60 };

	begin(t, rounds);
	shared_deadline = rte_rdtsc() + SECONDS_MOST * rte_get_tsc_hz();
	launch(run_shared);
	memcpy(m->cycles, runs[0].full, sizeof(m->cycles));
	memcpy(m->alone, runs[0].full_alone, sizeof(m->alone));
	qsort(m->cycles, REPEATS, sizeof(m->cycles[0]), ascending);
	qsort(m->alone, REPEATS, sizeof(m->alone[0]), ascending);
	m->compute_ratio = compute_ratio();
	m->sent = runs[0].sent;
	m->arrived = runs[0].arrived;
}

void
measure(const struct templates *t, unsigned rounds, struct measured *m)
{
	begin(t, rounds);
	launch(run);
	m->bare = spread(active, false, m->cycles);
	if (active > 1) {
		spread(active, true, m->alone);
		m->compute_ratio = compute_ratio();
	}
	for (unsigned n = 0; n < NODE_MAX; n++) {
		double all[REPEATS];

		for (unsigned i = 0; i < REPEATS; i++)
			all[i] = runs[0].nodes[i][n];
		qsort(all, REPEATS, sizeof(all[0]), ascending);
		m->nodes[n] = all[REPEATS / 2];
	}
	for (unsigned w = 0; w < active; w++) {
		m->sent += runs[w].sent;
		m->arrived += runs[w].arrived;
	}
}
