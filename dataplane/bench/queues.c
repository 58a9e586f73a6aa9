// SPDX-License-Identifier: Apache-2.0
// Schedulers by themselves: a burst for random subscribers goes in, a burst comes out, over and over; the cycles of
// both are a packet's cost. DPDK's rte_sched is measured with the same packets, for comparison.
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_sched.h>

#include "bench.h"
#include "core/worker.h"
#include "hqos/scheduler.h"

enum { SUBSCRIBERS_OF_GROUP = 1024, CLASSES = 4, BACKLOG = 4, FRAME = 124, SPARE = 8192 };

// A packet's buffer as far as schedulers read it.
struct buffer {
	struct rte_mbuf m;
	struct packet p;
	uint8_t room[64];
} __attribute__((aligned(64)));

struct test {
	const struct scenario *scenario;
	struct measured *measured;
	unsigned rounds;
	bool failed;

	// One of the two.
	struct hqos_scheduler *hqos;
	struct rte_sched_port *sched;

	struct buffer *buffers;
	size_t count;           // of buffers
	struct rte_mbuf **idle; // a ring of those that are in no queue, in random order
	size_t first, idle_count;
	uint64_t random;
	sem_t done;
};

static struct hqos_profile profile;
static struct hqos_group_profile group_profile;

// ---- The measurements.

static bool
make_hqos(struct test *t)
{
	static struct hqos_profile *profiles[] = {&profile};
	static struct hqos_group_profile *group_profiles[] = {&group_profile};
	uint32_t subscribers = t->scenario->flows,
		 groups = (subscribers + SUBSCRIBERS_OF_GROUP - 1) / SUBSCRIBERS_OF_GROUP;
	uint64_t hz = rte_get_tsc_hz(), now = rte_rdtsc();

	// Every level has rates above the offered load.
	profile = (struct hqos_profile){.peak = pace_of(1000000000, 65536, hz),
		.committed = PACE_NEVER,
		.quantum = HQOS_QUANTUM,
		.overhead = 24};
	for (unsigned c = 0; c < HQOS_CLASSES; c++)
		profile.classes[c] = (struct hqos_class_profile){
			.committed = PACE_NEVER, .quantum = HQOS_QUANTUM, .limit = 64, .equals = (uint8_t)(1u << c)};
	hqos_profile_finish(&profile, CLASSES);
	group_profile = (struct hqos_group_profile){.peak = pace_of(400000000000, 1 << 20, hz),
		.committed = PACE_NEVER,
		.quantum = 8 * HQOS_QUANTUM,
		.overhead = 24};
	t->hqos = hqos_new(
		subscribers, groups, t->count, profiles, group_profiles, t->buffers, t->buffers + t->count, now);
	if (!t->hqos)
		return false;
	t->hqos->peak = pace_of(400000000000, 1 << 20, hz);
	t->hqos->overhead = 24;
	for (uint32_t g = 0; g < groups; g++)
		hqos_set_group(t->hqos, g, 0, now);
	for (uint32_t i = 0; i < subscribers; i++)
		hqos_set_subscriber(t->hqos, i, i / SUBSCRIBERS_OF_GROUP, 0, now);
	return true;
}

// One subport; a pipe is a subscriber, a traffic class each for the first classes.
static bool
make_sched(struct test *t)
{
	const uint64_t rate = 50000000000; // bytes a second
	struct rte_sched_pipe_params pipe = {
		.tb_rate = rate, .tb_size = 1000000, .tc_period = 10, .tc_ov_weight = 1, .wrr_weights = {1, 1, 1, 1}};
	struct rte_sched_subport_profile_params subport_profile = {
		.tb_rate = rate, .tb_size = 1000000, .tc_period = 10};
	struct rte_sched_subport_params subport = {.n_pipes_per_subport_enabled = t->scenario->flows,
		.pipe_profiles = &pipe,
		.n_pipe_profiles = 1,
		.n_max_pipe_profiles = 1};
	struct rte_sched_port_params port = {.name = "bench",
		.socket = 0,
		.rate = rate,
		.mtu = 1522,
		.frame_overhead = 24,
		.n_subports_per_port = 1,
		.subport_profiles = &subport_profile,
		.n_subport_profiles = 1,
		.n_max_subport_profiles = 1,
		.n_pipes_per_subport = t->scenario->flows};

	for (unsigned i = 0; i < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; i++) {
		pipe.tc_rate[i] = rate;
		subport_profile.tc_rate[i] = rate;
		subport.qsize[i] = 64;
	}
	t->sched = rte_sched_port_config(&port);
	if (!t->sched || rte_sched_subport_config(t->sched, 0, &subport, 0))
		return false;
	for (uint32_t i = 0; i < t->scenario->flows; i++)
		if (rte_sched_pipe_config(t->sched, 0, i, 0))
			return false;
	return true;
}

static unsigned
put_in(struct test *t, struct rte_mbuf **packets, const uint32_t *subscribers, const uint8_t *classes, unsigned count)
{
	if (t->hqos)
		return count - hqos_enqueue(t->hqos, packets, subscribers, classes, count, rte_rdtsc());
	for (unsigned i = 0; i < count; i++)
		rte_sched_port_pkt_write(t->sched, packets[i], 0, subscribers[i], classes[i], 0, RTE_COLOR_GREEN);
	return (unsigned)rte_sched_port_enqueue(t->sched, packets, count);
}

static unsigned
take_out(struct test *t, struct rte_mbuf **packets, unsigned room)
{
	if (t->hqos)
		return hqos_dequeue(t->hqos, packets, room, rte_rdtsc());
	return (unsigned)rte_sched_port_dequeue(t->sched, packets, room);
}

// ---- Packets.

static void
idle_again(struct test *t, struct rte_mbuf *const *packets, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		t->idle[(t->first + t->idle_count++) % t->count] = packets[i];
}

static bool
make_packets(struct test *t)
{
	t->buffers = mmap(
		NULL, t->count * sizeof(t->buffers[0]), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	t->idle = malloc(t->count * sizeof(t->idle[0]));
	if (t->buffers == MAP_FAILED || !t->idle)
		return false;
	madvise(t->buffers, t->count * sizeof(t->buffers[0]), MADV_HUGEPAGE);
	for (size_t i = 0; i < t->count; i++) {
		t->buffers[i].m.pkt_len = t->buffers[i].m.data_len = FRAME;
		t->idle[i] = &t->buffers[i].m;
	}
	for (size_t i = t->count - 1; i > 0; i--) {
		size_t other = random_next(&t->random) % (i + 1);
		struct rte_mbuf *keep = t->idle[i];

		t->idle[i] = t->idle[other];
		t->idle[other] = keep;
	}
	t->idle_count = t->count;
	return true;
}

// A burst as from the node before: its writes are in the cache.
static void
next_burst(struct test *t, struct rte_mbuf **packets, uint32_t *subscribers, uint8_t *classes)
{
	for (unsigned i = 0; i < BURST; i++) {
		packets[i] = t->idle[t->first];
		t->first = t->first + 1 == t->count ? 0 : t->first + 1;
		rte_prefetch0(packets[i]);
		rte_prefetch0(packet_of(packets[i]));
		subscribers[i] = (uint32_t)((random_next(&t->random) >> 32) * t->scenario->flows >> 32);
		classes[i] = random_next(&t->random) % CLASSES;
	}
	t->idle_count -= BURST;
	for (unsigned i = 0; i < BURST; i++) {
		packets[i]->pkt_len = FRAME;
		packet_of(packets[i])->colour = 0;
	}
}

// Cycles per packet of enqueue and dequeue together.
static double
window(struct test *t, unsigned rounds)
{
	uint64_t in = 0, out = 0, ins = 0, outs = 0;
	struct rte_mbuf *packets[BURST];
	uint32_t subscribers[BURST];
	uint8_t classes[BURST];

	for (unsigned r = 0; r < rounds; r++) {
		uint64_t start;
		unsigned taken;

		next_burst(t, packets, subscribers, classes);
		start = rte_rdtsc();
		taken = put_in(t, packets, subscribers, classes, BURST);
		in += rte_rdtsc() - start;
		ins += BURST;
		// hqos leaves those that it refuses; rte_sched frees them, which these buffers do not survive.
		t->failed |= taken != BURST;
		start = rte_rdtsc();
		taken = take_out(t, packets, BURST);
		out += rte_rdtsc() - start;
		outs += taken;
		idle_again(t, packets, taken);
		if (t->failed || t->idle_count < BURST) {
			t->failed = true;
			return 0;
		}
	}
	t->measured->sent += ins;
	t->measured->arrived += ins;
	return (double)in / (double)ins + (double)out / (double)RTE_MAX(outs, 1u);
}

// So many packets wait all the time.
static void
fill(struct test *t, unsigned each)
{
	struct rte_mbuf *packets[BURST];
	uint32_t subscribers[BURST];
	uint8_t classes[BURST];

	for (unsigned n = 0; n < each; n++)
		for (uint32_t s = 0; s < t->scenario->flows && t->idle_count >= BURST; s += BURST) {
			next_burst(t, packets, subscribers, classes);
			for (unsigned i = 0; i < BURST; i++)
				subscribers[i] = (s + i) % t->scenario->flows;
			t->failed |= put_in(t, packets, subscribers, classes, BURST) != BURST;
		}
}

static int
run(void *argument)
{
	struct test *t = argument;

	RTE_PER_LCORE(worker) = &workers[0];
	fill(t, t->scenario->backlog);
	window(t, t->rounds);
	for (unsigned i = 0; i < REPEATS && !t->failed; i++)
		t->measured->cycles[i] = window(t, t->rounds);
	sem_post(&t->done);
	return 0;
}

static int
ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int
measure_queues(const struct scenario *s, unsigned rounds, struct measured *m)
{
	struct test t = {.scenario = s, .measured = m, .rounds = rounds, .random = 88172645463325252u};
	bool ours = strncmp(s->name, "hqos", 4) == 0;

	t.count = (size_t)s->flows * s->backlog + SPARE;
	sem_init(&t.done, 0, 0);
	t.failed = !make_packets(&t) || !(ours ? make_hqos(&t) : make_sched(&t));
	if (!t.failed) {
		rte_eal_remote_launch(run, &t, workers[0].lcore);
		while (sem_wait(&t.done))
			;
		rte_eal_wait_lcore(workers[0].lcore);
		qsort(m->cycles, REPEATS, sizeof(m->cycles[0]), ascending);
	}
	sem_destroy(&t.done);
	hqos_free(t.hqos);
	// rte_sched would free waiting packets, which come from no pool here.
	if (t.sched) {
		struct rte_mbuf *packets[BURST];

		while (rte_sched_port_dequeue(t.sched, packets, BURST) > 0)
			;
		rte_sched_port_free(t.sched);
	}
	if (t.buffers != MAP_FAILED)
		munmap(t.buffers, t.count * sizeof(t.buffers[0]));
	free(t.idle);
	return t.failed ? -1 : 0;
}
