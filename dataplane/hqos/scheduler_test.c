// The scheduler with a clock of the tests' own: rates, priorities, weights, committed rates, order, and random hierarchies against
// a slow model.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hqos/model.h"
#include "hqos/scheduler.h"

enum { BUFFERS = 16384, GROUPS = MODEL_GROUPS, SUBSCRIBERS = MODEL_SUBSCRIBERS };

static const uint64_t HZ = 2000000000;
static const uint64_t STEP = 20000; // cycles: 10 microseconds

struct buffer {
	struct rte_mbuf m;
	struct packet p;
} __attribute__((aligned(64)));

static struct buffer *buffers;
static struct rte_mbuf *spare[BUFFERS];
static unsigned spare_count;

static struct hqos_profile profiles[SUBSCRIBERS];
static struct hqos_group_profile group_profiles[GROUPS];
static struct hqos_profile *profile_slots[SUBSCRIBERS];
static struct hqos_group_profile *group_profile_slots[GROUPS];
static struct hqos_scheduler *s;
static uint64_t now;
static uint64_t seed;
// Each test runs three times: the packets of none, of all or of the first four classes may wait as a few.
static unsigned few;

static uint64_t
chance(uint64_t limit)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 20) % limit;
}

static int
start(void **state)
{
	(void)state;
	seed = 0x5eed;
	now = 12345;
	buffers = aligned_alloc(64, BUFFERS * sizeof(*buffers));
	memset(buffers, 0, BUFFERS * sizeof(*buffers));
	spare_count = 0;
	for (unsigned i = 0; i < BUFFERS; i++)
		spare[spare_count++] = &buffers[i].m;
	for (unsigned i = 0; i < SUBSCRIBERS; i++) {
		profiles[i] = (struct hqos_profile){.committed = PACE_NEVER, .quantum = HQOS_QUANTUM};
		for (unsigned c = 0; c < HQOS_CLASSES; c++)
			profiles[i].classes[c] = (struct hqos_class_profile){.committed = PACE_NEVER,
				.quantum = HQOS_QUANTUM,
				.limit = MODEL_QUEUE,
				.equals = (uint8_t)(1u << c)};
	}
	for (unsigned g = 0; g < GROUPS; g++)
		group_profiles[g] = (struct hqos_group_profile){.committed = PACE_NEVER, .quantum = HQOS_QUANTUM};
	for (unsigned i = 0; i < SUBSCRIBERS; i++)
		profile_slots[i] = &profiles[i];
	for (unsigned g = 0; g < GROUPS; g++)
		group_profile_slots[g] = &group_profiles[g];
	s = hqos_new(SUBSCRIBERS, GROUPS, BUFFERS, profile_slots, group_profile_slots, buffers, buffers + BUFFERS, now);
	return s == NULL;
}

static int
start_with_few(void **state)
{
	few = HQOS_CLASSES;
	return start(state);
}

static int
start_with_wide(void **state)
{
	few = HQOS_WIDE;
	return start(state);
}

static int
start_with_none(void **state)
{
	few = 0;
	return start(state);
}

// Whatever happened, the groups counted together what the scheduler did.
static bool
groups_add_up(void)
{
	struct hqos_group_counters all = {0};
	const struct hqos_counters *c = &s->counters;

	for (unsigned g = 0; g < GROUPS; g++) {
		all.sent_packets += s->groups[g].counters.sent_packets;
		all.sent_bytes += s->groups[g].counters.sent_bytes;
		all.dropped_packets += s->groups[g].counters.dropped_packets;
	}
	return all.sent_packets == c->sent_packets && all.sent_bytes == c->sent_bytes &&
	       all.dropped_packets ==
		       c->dropped[HQOS_TAIL_DROP] + c->dropped[HQOS_WRED] + c->dropped[HQOS_CODEL] + c->flushed;
}

static int
end(void **state)
{
	bool right = groups_add_up();

	(void)state;
	hqos_free(s);
	free(buffers);
	return right ? 0 : -1;
}

static void
finish(uint32_t subscriber)
{
	if (few)
		hqos_profile_finish(&profiles[s->subscribers[subscriber].profile], few);
}

// A packet whose bytes say whose it is.
static bool
put(uint32_t subscriber, uint8_t class, uint32_t bytes)
{
	struct rte_mbuf *m = spare[--spare_count];

	m->pkt_len = bytes;
	packet_of(m)->session = subscriber;
	packet_of(m)->qfi = class;
	packet_of(m)->colour = 0;
	packet_of(m)->detail = (uint32_t)chance(1u << 30);
	finish(subscriber);
	if (hqos_enqueue(s, &m, &subscriber, &class, 1, now) == 0)
		return true;
	spare[spare_count++] = m;
	return false;
}

static unsigned
get(struct rte_mbuf **packets, unsigned room)
{
	unsigned count = hqos_dequeue(s, packets, room, now);

	for (unsigned i = 0; i < count; i++)
		spare[spare_count++] = packets[i];
	for (unsigned i = 0; i < s->dropped_count; i++)
		spare[spare_count++] = s->dropped[i];
	return count;
}

// Keep every class in `classes` of the subscribers backlogged for so many cycles, and count what each sends. The worker comes every
// ten microseconds, give or take five.
static void
run_cycles(unsigned subscribers, uint8_t classes, uint32_t bytes, uint64_t cycles, uint64_t sent[][HQOS_CLASSES])
{
	uint64_t until = now + cycles;

	while (now < until) {
		struct rte_mbuf *packets[64];
		unsigned count;

		for (uint32_t i = 0; i < subscribers; i++)
			for (uint8_t c = 0; c < HQOS_CLASSES; c++)
				while ((classes >> c & 1) && hqos_waiting(&s->subscribers[i], c) < 16 &&
					put(i, c, bytes))
					;
		while ((count = get(packets, 64)) != 0)
			for (unsigned i = 0; i < count; i++)
				sent[packet_of(packets[i])->session][packet_of(packets[i])->qfi] += packets[i]->pkt_len;
		now += STEP / 2 + chance(STEP);
	}
}

static void
run(unsigned subscribers, uint8_t classes, uint32_t bytes, unsigned milliseconds, uint64_t sent[][HQOS_CLASSES])
{
	run_cycles(subscribers, classes, bytes, milliseconds * (HZ / 1000), sent);
}

static void
one_group(unsigned subscribers)
{
	hqos_set_group(s, 0, 0, now);
	for (uint32_t i = 0; i < subscribers; i++)
		hqos_set_subscriber(s, i, 0, (uint16_t)i, now);
}

static void
assert_near(uint64_t found, double wanted, double tolerance)
{
	if ((double)found < wanted * (1 - tolerance) || (double)found > wanted * (1 + tolerance))
		fail_msg("%llu is not within %g of %.0f", (unsigned long long)found, tolerance, wanted);
}

static uint64_t sent[SUBSCRIBERS][HQOS_CLASSES];

static uint64_t
of(unsigned subscriber)
{
	uint64_t sum = 0;

	for (unsigned c = 0; c < HQOS_CLASSES; c++)
		sum += sent[subscriber][c];
	return sum;
}

// In any 100 ms of half a second, from whichever moment: what a window's ends cut off is in another one.
static void
assert_rate_in_every_window(unsigned subscribers, uint64_t bits_per_second)
{
	enum { MOMENTS = 2500, WINDOW = 500 }; // of 200 microseconds
	static uint64_t total[MOMENTS + 1], at[MOMENTS + 1];

	run(subscribers, 1, 1000, 20, sent); // what the burst allows at first
	for (unsigned moment = 0; moment < MOMENTS; moment++) {
		memset(sent, 0, sizeof(sent));
		at[moment] = now;
		run_cycles(subscribers, 1, 64 + (uint32_t)chance(1437), HZ / 5000, sent);
		at[moment + 1] = now;
		total[moment + 1] = total[moment];
		for (unsigned i = 0; i < subscribers; i++)
			total[moment + 1] += of(i);
	}
	for (unsigned from = 0; from + WINDOW <= MOMENTS; from++)
		assert_near(total[from + WINDOW] - total[from],
			(double)bits_per_second / 8 * (double)(at[from + WINDOW] - at[from]) / (double)HZ, 0.01);
}

static void
a_subscriber_gets_its_peak_rate_within_one_percent(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(50000000, 3000, HZ);
	one_group(1);
	assert_rate_in_every_window(1, 50000000);
}

static void
a_group_gets_its_peak_rate_within_one_percent(void **state)
{
	(void)state;
	group_profiles[0].peak = pace_of(80000000, 3000, HZ);
	one_group(5);
	assert_rate_in_every_window(5, 80000000);
}

static void
a_port_gets_its_peak_rate_within_one_percent(void **state)
{
	(void)state;
	s->peak = pace_of(100000000, 3000, HZ);
	one_group(5);
	assert_rate_in_every_window(5, 100000000);
}

// All levels at once: the port has less than its groups, each group less than its subscribers.
static void
every_level_gets_its_rate_within_one_percent_below_the_others(void **state)
{
	(void)state;
	s->peak = pace_of(200000000, 3000, HZ);
	for (unsigned g = 0; g < 2; g++) {
		group_profiles[g].peak = pace_of(g == 0 ? 60000000 : 150000000, 3000, HZ);
		hqos_set_group(s, g, (uint16_t)g, now);
	}
	for (unsigned i = 0; i < 6; i++) {
		profiles[i].peak = pace_of(i == 5 ? 20000000 : 80000000, 3000, HZ);
		hqos_set_subscriber(s, i, i % 2, (uint16_t)i, now);
	}
	run(6, 1, 1000, 20, sent);
	for (unsigned window = 0; window < 10; window++) {
		memset(sent, 0, sizeof(sent));
		run(6, 1, 200 + 130 * window, 100, sent);
		assert_near(of(0) + of(2) + of(4), 60e6 / 80, 0.01);
		assert_near(of(5), 20e6 / 80, 0.01);
		assert_near(of(0) + of(1) + of(2) + of(3) + of(4) + of(5), 200e6 / 80, 0.01);
		// Shares of equals are of whole turns.
		assert_near(of(1), 60e6 / 80, 0.02);
		assert_near(of(3), 60e6 / 80, 0.02);
	}
}

static void
a_class_gets_its_peak_rate_and_leaves_the_rest_to_others(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(50000000, 3000, HZ);
	profiles[0].class_peaks = 1;
	profiles[0].classes[0].peak = pace_of(10000000, 3000, HZ);
	one_group(1);
	memset(sent, 0, sizeof(sent));
	run(1, 3, 1000, 500, sent);
	assert_near(sent[0][0], 10e6 / 16, 0.02);
	assert_near(sent[0][1], 40e6 / 16, 0.02);
}

static void
the_lines_overhead_and_cells_count(void **state)
{
	(void)state;
	profiles[0].peak = profiles[1].peak = pace_of(20000000, 3000, HZ);
	profiles[0].overhead = 100;
	profiles[1].overhead = 10;
	profiles[1].cells = true;
	one_group(2);
	memset(sent, 0, sizeof(sent));
	run(2, 1, 900, 500, sent);
	assert_near(of(0), 20e6 / 16 * 900 / 1000, 0.01);
	// 910 bytes are 19 cells.
	assert_near(of(1), 20e6 / 16 * 900 / (19 * 53), 0.01);
}

static void
a_lower_class_waits_for_a_higher_one(void **state)
{
	struct rte_mbuf *packets[64];

	(void)state;
	one_group(1);
	for (unsigned i = 0; i < 10; i++)
		for (uint8_t c = HQOS_CLASSES; c-- > 0;)
			put(0, c, 100);
	assert_int_equal(get(packets, 64), 64);
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(packet_of(packets[i])->qfi, i / 10);
	assert_int_equal(get(packets, 64), 16);
}

static void
classes_of_one_priority_share_by_weight(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(100000000, 3000, HZ);
	for (unsigned c = 1; c < 4; c++) {
		profiles[0].classes[c].equals = 0x0e;
		profiles[0].classes[c].quantum = c * HQOS_QUANTUM;
	}
	one_group(1);
	memset(sent, 0, sizeof(sent));
	run(1, 0x1e, 1000, 1000, sent);
	assert_near(sent[0][1], 100e6 / 8 / 6, 0.02);
	assert_near(sent[0][2], 100e6 / 8 / 3, 0.02);
	assert_near(sent[0][3], 100e6 / 8 / 2, 0.02);
	assert_int_equal(sent[0][4], 0);
}

static void
a_class_that_was_alone_owes_its_equals_nothing(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(100000000, 3000, HZ);
	for (unsigned c = 1; c < 3; c++)
		profiles[0].classes[c].equals = 0x06;
	one_group(1);
	memset(sent, 0, sizeof(sent));
	run(1, 0x02, 1000, 1000, sent);
	assert_near(sent[0][1], 100e6 / 8, 0.02);
	memset(sent, 0, sizeof(sent));
	run(1, 0x06, 1000, 500, sent);
	assert_near(sent[0][1], 100e6 / 8 / 4, 0.02);
	assert_near(sent[0][2], 100e6 / 8 / 4, 0.02);
}

static void
subscribers_and_groups_share_by_weight(void **state)
{
	(void)state;
	s->peak = pace_of(100000000, 3000, HZ);
	group_profiles[1].quantum = 3 * HQOS_QUANTUM;
	hqos_set_group(s, 0, 0, now);
	hqos_set_group(s, 1, 1, now);
	profiles[1].quantum = 4 * HQOS_QUANTUM;
	for (uint32_t i = 0; i < 4; i++)
		hqos_set_subscriber(s, i, i / 2, (uint16_t)(i % 2), now);
	memset(sent, 0, sizeof(sent));
	run(4, 1, 800, 1000, sent);
	assert_near(of(0), 100e6 / 8 / 4 / 5, 0.02);
	assert_near(of(1), 100e6 / 8 / 4 * 4 / 5, 0.02);
	assert_near(of(2), 100e6 / 8 * 3 / 4 / 5, 0.02);
	assert_near(of(3), 100e6 / 8 * 3 / 4 * 4 / 5, 0.02);
}

static void
a_committed_rate_holds_against_any_weight(void **state)
{
	(void)state;
	s->peak = pace_of(100000000, 3000, HZ);
	for (unsigned i = 1; i < 10; i++)
		profiles[i].quantum = 8 * HQOS_QUANTUM;
	profiles[0].committed = pace_of(40000000, 5000, HZ);
	profiles[0].has_committed = true;
	one_group(10);
	memset(sent, 0, sizeof(sent));
	run(10, 1, 1000, 1000, sent);
	// And beyond it, its share of what is left.
	assert_near(of(0), 40e6 / 8 + 60e6 / 8 / 73, 0.02);
	assert_near(of(1), 60e6 / 8 * 8 / 73, 0.03);
}

static void
a_groups_committed_rate_holds(void **state)
{
	(void)state;
	s->peak = pace_of(100000000, 3000, HZ);
	group_profiles[1].committed = pace_of(70000000, 5000, HZ);
	group_profiles[1].has_committed = true;
	group_profiles[0].quantum = 16 * HQOS_QUANTUM;
	hqos_set_group(s, 0, 0, now);
	hqos_set_group(s, 1, 1, now);
	hqos_set_subscriber(s, 0, 0, 0, now);
	hqos_set_subscriber(s, 1, 1, 0, now);
	memset(sent, 0, sizeof(sent));
	run(2, 1, 1000, 1000, sent);
	assert_near(of(1), 70e6 / 8 + 30e6 / 8 / 17, 0.02);
	assert_near(of(0), 30e6 / 8 * 16 / 17, 0.02);
}

static void
a_classs_committed_rate_holds_against_a_higher_class(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(50000000, 3000, HZ);
	profiles[0].class_committed = 0x80;
	profiles[0].classes[7].committed = pace_of(5000000, 3000, HZ);
	one_group(1);
	memset(sent, 0, sizeof(sent));
	run(1, 0x81, 1000, 1000, sent);
	assert_near(sent[0][7], 5e6 / 8, 0.02);
	assert_near(sent[0][0], 45e6 / 8, 0.02);
}

// Its share of the rest is of what it sends beyond, however often it becomes due in its turn of the rest.
static void
what_is_within_a_committed_rate_is_not_of_the_share_of_the_rest(void **state)
{
	static const unsigned weights[3] = {4, 3, 4}, committed[3] = {0, 10, 18}; // Mbit/s

	(void)state;
	for (unsigned of_groups = 0; of_groups < 2; of_groups++) {
		end(NULL);
		start(NULL);
		s->peak = pace_of(100000000, 6000, HZ);
		for (uint32_t i = 0; i < 3; i++) {
			struct pace rate = committed[i] > 0 ? pace_of(committed[i] * 1000000ull, 6000, HZ) : PACE_NEVER;

			if (of_groups) {
				group_profiles[i].committed = rate;
				group_profiles[i].has_committed = committed[i] > 0;
				group_profiles[i].quantum = weights[i] * HQOS_QUANTUM;
			} else {
				profiles[i].committed = rate;
				profiles[i].has_committed = committed[i] > 0;
				profiles[i].quantum = weights[i] * HQOS_QUANTUM;
			}
			hqos_set_group(s, i, (uint16_t)i, now);
			hqos_set_subscriber(s, i, of_groups ? i : 0, (uint16_t)i, now);
		}
		memset(sent, 0, sizeof(sent));
		run(3, 1, 800, 1000, sent);
		for (unsigned i = 0; i < 3; i++)
			assert_near(of(i), (committed[i] + 72.0 * weights[i] / 11) * 1e6 / 8, 0.01);
	}
}

static void
equal_classes_share_by_weight_within_their_committed_rates(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(10000000, 3000, HZ);
	profiles[0].class_committed = 0x06;
	for (unsigned c = 1; c < 3; c++) {
		profiles[0].classes[c].equals = 0x06;
		profiles[0].classes[c].committed = pace_of(20000000, 3000, HZ);
	}
	profiles[0].classes[2].quantum = 3 * HQOS_QUANTUM;
	one_group(1);
	memset(sent, 0, sizeof(sent));
	run(1, 0x06, 1000, 1000, sent);
	assert_near(sent[0][1], 10e6 / 8 / 4, 0.02);
	assert_near(sent[0][2], 10e6 / 8 * 3 / 4, 0.02);
}

static void
nobody_starves_among_many(void **state)
{
	(void)state;
	s->peak = pace_of(50000000, 3000, HZ);
	one_group(SUBSCRIBERS);
	memset(sent, 0, sizeof(sent));
	run(SUBSCRIBERS, 1, 500, 1000, sent);
	for (unsigned i = 0; i < SUBSCRIBERS; i++)
		assert_near(of(i), 50e6 / 8 / SUBSCRIBERS, 0.05);
}

static void
packets_of_a_class_keep_their_order(void **state)
{
	static uint32_t last[SUBSCRIBERS][HQOS_CLASSES], next[SUBSCRIBERS][HQOS_CLASSES];
	unsigned taken = 0;

	(void)state;
	s->peak = pace_of(400000000, 3000, HZ);
	for (unsigned i = 0; i < SUBSCRIBERS; i++)
		profiles[i].peak = pace_of(1000000 * (1 + i), 3000, HZ);
	one_group(SUBSCRIBERS);
	memset(last, 0, sizeof(last));
	memset(next, 0, sizeof(next));
	for (unsigned round = 0; round < 20000; round++) {
		struct rte_mbuf *packets[32];
		unsigned count;

		for (unsigned i = chance(8); i-- > 0 && spare_count > 64;) {
			uint32_t subscriber = (uint32_t)chance(SUBSCRIBERS);
			uint8_t class = (uint8_t)chance(HQOS_CLASSES);
			struct rte_mbuf *m = spare[--spare_count];

			m->pkt_len = 64 + (uint32_t)chance(1400);
			packet_of(m)->session = subscriber;
			packet_of(m)->qfi = class;
			packet_of(m)->detail = ++next[subscriber][class];
			finish(subscriber);
			if (hqos_enqueue(s, &m, &subscriber, &class, 1, now) != 0) {
				next[subscriber][class]--;
				spare[spare_count++] = m;
			}
		}
		count = get(packets, 32);
		taken += count;
		for (unsigned i = 0; i < count; i++) {
			const struct packet *p = packet_of(packets[i]);

			assert_int_equal(p->detail, last[p->session][p->qfi] + 1);
			last[p->session][p->qfi] = p->detail;
		}
		now += chance(100000);
	}
	assert_true(taken > 20000);
}

// Of a subscriber: more than it may earn during a round of all others' turns, else it loses what the model, which knows no turns,
// does not.
enum { BURST = 60000 };

// Two classes that are equals and share by weight or are not, with rates of their own or without.
static void
random_classes(struct model_subscriber *sub, struct hqos_profile *profile)
{
	profile->class_peaks = profile->class_committed = 0;
	if (chance(2)) {
		sub->classes[3].priority = sub->classes[2].priority;
		profile->classes[2].equals = profile->classes[3].equals = 0x0c;
	}
	for (unsigned c = 2; c < 4; c++) {
		struct model_rates *rates = &sub->classes[c].node.rates;
		struct hqos_class_profile *class = &profile->classes[c];

		rates->weight = 1 + (unsigned)chance(4);
		class->quantum = rates->weight * HQOS_QUANTUM;
		if (chance(3) == 0) {
			rates->peak = (double)(1 + chance(8)) * 1e6;
			profile->class_peaks |= (uint8_t)(1u << c);
			class->peak = pace_of((uint64_t)rates->peak, BURST, HZ);
		}
		if (chance(3) == 0) {
			rates->committed = (double)(1 + chance(2)) * 5e5;
			profile->class_committed |= (uint8_t)(1u << c);
			class->committed = pace_of((uint64_t)rates->committed, BURST, HZ);
		}
	}
}

// The model chooses for each packet, the scheduler for each turn. So at the end of a second a subscriber may be three turns ahead or
// behind, and one per cent for the turns of his group and of those beside him.
static void
assert_as_model(const char *who, uint64_t found, double model, double of_subscriber, uint32_t quantum)
{
	double difference = (double)found - model;

	if (difference < 0)
		difference = -difference;
	if (difference > 0.01 * of_subscriber + 3.0 * quantum)
		fail_msg("%s: %llu bytes, the model %.0f", who, (unsigned long long)found, model);
}

// What a model says and what the scheduler does, of the same packets, over a second.
static void
random_hierarchies_do_what_the_model_does(void **state)
{
	(void)state;
	for (unsigned hierarchy = 0; hierarchy < 48; hierarchy++) {
		static struct model m;
		uint64_t until;

		end(NULL);
		{
			uint64_t kept = seed;

			start(NULL);
			seed = kept + hierarchy;
		}
		memset(&m, 0, sizeof(m));
		m.group_count = 1 + (unsigned)chance(4);
		m.subscriber_count = 4 + (unsigned)chance(12);
		m.port.rates = (struct model_rates){.peak = 100e6, .burst = 6000, .weight = 1};
		s->peak = pace_of(100000000, 6000, HZ);
		for (unsigned g = 0; g < m.group_count; g++) {
			struct model_rates *rates = &m.groups[g].rates;

			*rates = (struct model_rates){.burst = 6000, .weight = 1 + (unsigned)chance(4)};
			if (chance(2))
				rates->peak = (double)(20 + chance(60)) * 1e6;
			if (chance(2))
				rates->committed = (double)(5 + chance(15)) * 1e6;
			group_profiles[g] = (struct hqos_group_profile){
				.peak = pace_of((uint64_t)rates->peak, 6000, HZ),
				.committed = rates->committed > 0 ? pace_of((uint64_t)rates->committed, 6000, HZ)
								  : PACE_NEVER,
				.has_committed = rates->committed > 0,
				.quantum = rates->weight * HQOS_QUANTUM};
			hqos_set_group(s, g, (uint16_t)g, now);
		}
		for (unsigned i = 0; i < m.subscriber_count; i++) {
			struct model_subscriber *sub = &m.subscribers[i];
			struct model_rates *rates = &sub->node.rates;
			struct hqos_profile *profile = &profiles[i];

			*rates = (struct model_rates){.burst = BURST, .weight = 1 + (unsigned)chance(6)};
			sub->group = (unsigned)chance(m.group_count);
			if (chance(3))
				rates->peak = (double)(3 + chance(30)) * 1e6;
			if (chance(3) == 0)
				rates->committed = (double)(1 + chance(3)) * 1e6;
			profile->peak = pace_of((uint64_t)rates->peak, BURST, HZ);
			profile->has_committed = rates->committed > 0;
			if (profile->has_committed)
				profile->committed = pace_of((uint64_t)rates->committed, BURST, HZ);
			profile->quantum = rates->weight * HQOS_QUANTUM;
			for (unsigned c = 0; c < HQOS_CLASSES; c++) {
				sub->classes[c].node.rates = (struct model_rates){.burst = BURST, .weight = 1};
				sub->classes[c].priority = c;
			}
			random_classes(sub, profile);
			hqos_set_subscriber(s, i, sub->group, (uint16_t)i, now);
		}
		model_start(&m);
		memset(sent, 0, sizeof(sent));
		for (until = now + HZ; now < until; now += STEP) {
			struct rte_mbuf *packets[64];
			unsigned count, subscriber, class;

			for (unsigned i = 0; i < m.subscriber_count; i++)
				for (unsigned c = 2; c < 4; c++) {
					while (hqos_waiting(&s->subscribers[i], c) < 8)
						put(i, (uint8_t)c, 400 + (uint32_t)chance(800));
					while (m.subscribers[i].classes[c].count < 8)
						model_enqueue(&m, i, c, 400 + (unsigned)chance(800));
				}
			while ((count = get(packets, 64)) != 0)
				for (unsigned i = 0; i < count; i++)
					sent[packet_of(packets[i])->session][packet_of(packets[i])->qfi] +=
						packets[i]->pkt_len;
			while (model_dequeue(&m, &subscriber, &class) != 0)
				;
			model_advance(&m, (double)STEP / (double)HZ);
		}
		for (unsigned i = 0; i < m.subscriber_count; i++) {
			char who[64];

			snprintf(who, sizeof(who), "hierarchy %u, subscriber %u", hierarchy, i);
			assert_as_model(who, of(i), m.subscribers[i].sent, m.subscribers[i].sent, profiles[i].quantum);
			assert_int_equal(sent[i][4], 0);
			for (unsigned c = 2; c < 4; c++) {
				snprintf(who, sizeof(who), "hierarchy %u, subscriber %u, class %u", hierarchy, i, c);
				assert_as_model(who, sent[i][c], m.subscribers[i].classes[c].sent,
					m.subscribers[i].sent, profiles[i].quantum);
			}
		}
	}
}

static void
what_may_be_sent_is_sent(void **state)
{
	struct rte_mbuf *packets[64];

	(void)state;
	profiles[0].peak = pace_of(8000000, 1000, HZ); // a byte in a microsecond
	one_group(2);
	for (unsigned i = 0; i < 20; i++)
		assert_true(put(0, 0, 1000));
	// Its burst and the packet that uses it up; then one in each millisecond.
	assert_int_equal(get(packets, 64), 2);
	for (unsigned i = 0; i < 18; i++) {
		uint64_t next = hqos_next(s, now);

		assert_true(next > now && next - now <= HZ / 1000 + 2 * (1u << (WHEEL_SLOT_SHIFT - TICK_SHIFT)));
		// Another's packet is not held up meanwhile.
		put(1, 7, 60);
		assert_int_equal(get(packets, 64), 1);
		assert_int_equal(packet_of(packets[0])->session, 1);
		now = next;
		assert_int_equal(get(packets, 64), 1);
	}
	assert_int_equal(s->packets, 0);
	assert_int_equal(hqos_next(s, now), UINT64_MAX);
}

static void
a_packet_of_a_free_class_does_not_wait_for_a_limited_one(void **state)
{
	struct rte_mbuf *packets[64];

	(void)state;
	profiles[0].class_peaks = 1;
	profiles[0].classes[0].peak = pace_of(1000000, 100, HZ);
	one_group(1);
	for (unsigned i = 0; i < 5; i++)
		put(0, 0, 1400);
	assert_int_equal(get(packets, 64), 1);
	assert_int_equal(get(packets, 64), 0);
	put(0, 5, 1400);
	assert_int_equal(get(packets, 64), 1);
	assert_int_equal(packet_of(packets[0])->qfi, 5);
	for (unsigned i = 0; i < 100; i++)
		put(0, 5, 1400);
	now += 10;
	assert_int_equal(get(packets, 64), 64);
}

static void
a_full_queue_refuses_and_recovers(void **state)
{
	struct rte_mbuf *packets[64];

	(void)state;
	one_group(1);
	for (unsigned i = 0; i < MODEL_QUEUE; i++)
		assert_true(put(0, 3, 100));
	assert_false(put(0, 3, 100));
	assert_true(put(0, 4, 100));
	assert_int_equal(get(packets, 64), 64);
	assert_true(put(0, 3, 100));
}

static void
a_profile_changes_under_traffic(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(10000000, 3000, HZ);
	profiles[1].peak = pace_of(90000000, 3000, HZ);
	one_group(1);
	memset(sent, 0, sizeof(sent));
	run(1, 1, 1000, 200, sent);
	hqos_set_subscriber(s, 0, 0, 1, now);
	memset(sent, 0, sizeof(sent));
	run(1, 1, 1000, 500, sent);
	assert_near(of(0), 90e6 / 16, 0.02);
	hqos_set_subscriber(s, 0, 0, 0, now);
	run(1, 1, 1000, 10, sent);
	memset(sent, 0, sizeof(sent));
	run(1, 1, 1000, 500, sent);
	assert_near(of(0), 10e6 / 16, 0.02);
}

// What was sent at a bit a microsecond, say, would have to be paid for seconds.
static void
a_rate_that_is_raised_from_almost_nothing_counts_at_once_at_every_level(void **state)
{
	const struct pace slow = pace_of(8000, 100, HZ), fast = pace_of(80000000, 3000, HZ);

	(void)state;
	for (unsigned level = 0; level < 4; level++) {
		end(NULL);
		start(NULL);
		profiles[1].class_peaks = profiles[0].class_peaks = level == 0;
		profiles[0].classes[2].peak = level == 0 ? slow : (struct pace){0};
		profiles[1].classes[2].peak = level == 0 ? fast : (struct pace){0};
		profiles[0].peak = level == 1 ? slow : (struct pace){0};
		profiles[1].peak = level == 1 ? fast : (struct pace){0};
		group_profiles[0].peak = level == 2 ? slow : (struct pace){0};
		group_profiles[1].peak = level == 2 ? fast : (struct pace){0};
		s->peak = level == 3 ? slow : (struct pace){0};
		one_group(1);
		run(1, 4, 1500, 20, sent);
		hqos_set_subscriber(s, 0, 0, 1, now);
		hqos_set_group(s, 0, 1, now);
		if (level == 3) {
			s->peak = fast;
			pace_forgive(&s->peak, &s->paid, ticks_of(now), 2 * HQOS_FRAME_MOST);
		}
		run(1, 4, 1500, 10, sent);
		memset(sent, 0, sizeof(sent));
		run(1, 4, 1500, 100, sent);
		assert_true((double)of(0) > 80e6 / 80 * 0.98);
	}
}

// The committed rate of one against the weight of all others.
static void
a_committed_rate_that_is_raised_from_almost_nothing_counts_at_once_at_every_level(void **state)
{
	const struct pace slow = pace_of(8000, 100, HZ), fast = pace_of(40000000, 3000, HZ);

	(void)state;
	for (unsigned level = 0; level < 3; level++) {
		end(NULL);
		start(NULL);
		s->peak = pace_of(80000000, 3000, HZ);
		profiles[2].quantum = 16 * HQOS_QUANTUM;
		group_profiles[2].quantum = level == 2 ? 16 * HQOS_QUANTUM : HQOS_QUANTUM;
		if (level == 0)
			profiles[0].class_committed = profiles[1].class_committed = 4;
		profiles[0].classes[2].committed = level == 0 ? slow : PACE_NEVER;
		profiles[1].classes[2].committed = level == 0 ? fast : PACE_NEVER;
		profiles[0].has_committed = profiles[1].has_committed = level == 1;
		profiles[0].committed = level == 1 ? slow : PACE_NEVER;
		profiles[1].committed = level == 1 ? fast : PACE_NEVER;
		group_profiles[0].has_committed = group_profiles[1].has_committed = level == 2;
		group_profiles[0].committed = level == 2 ? slow : PACE_NEVER;
		group_profiles[1].committed = level == 2 ? fast : PACE_NEVER;
		hqos_set_group(s, 0, 0, now);
		hqos_set_group(s, 1, 2, now);
		hqos_set_subscriber(s, 0, 0, 0, now);
		hqos_set_subscriber(s, 1, level == 2 ? 1 : 0, 2, now);
		// Class 1 takes all that class 2 of the same subscriber is not committed.
		run(2, level == 0 ? 6 : 4, 1500, 20, sent);
		hqos_set_subscriber(s, 0, 0, 1, now);
		hqos_set_group(s, 0, 1, now);
		run(2, level == 0 ? 6 : 4, 1500, 20, sent);
		memset(sent, 0, sizeof(sent));
		run(2, level == 0 ? 6 : 4, 1500, 100, sent);
		if (level == 0)
			assert_true((double)sent[0][2] > (double)of(0) * 0.95 && sent[0][2] > 0);
		else
			assert_true((double)of(0) > 40e6 / 80 * 0.98);
	}
}

static void
what_waits_moves_with_its_subscriber(void **state)
{
	struct rte_mbuf *packets[64];
	uint32_t order = 0, stale;

	(void)state;
	group_profiles[0].peak = pace_of(100000, 1000, HZ);
	hqos_set_group(s, 0, 0, now);
	hqos_set_group(s, 1, 1, now);
	hqos_set_subscriber(s, 0, 0, 0, now);
	hqos_set_subscriber(s, 1, 0, 1, now);
	for (unsigned i = 0; i < 40; i++)
		assert_true(put(i % 2, 0, 1000));
	assert_true(get(packets, 64) < 10);
	for (unsigned i = 0; i < 40; i++) {
		// There and back again, and there.
		assert_true(hqos_set_subscriber(s, 0, 1, 0, now));
		assert_true(hqos_set_subscriber(s, 0, 0, 0, now));
	}
	assert_true(hqos_set_subscriber(s, 0, 1, 0, now));
	stale = s->stale;
	assert_true(stale > 0);
	for (unsigned count; s->subscribers[0].backlog != 0; now += STEP) {
		count = get(packets, 64);
		for (unsigned i = 0; i < count; i++)
			order += packet_of(packets[i])->session == 0;
	}
	assert_in_range(order, 15, 20);
	assert_true(s->subscribers[1].backlog != 0);
	// What stood for him in the old group's queue is found out in time.
	while (s->packets + s->stale + s->wheel.waiting != 0) {
		get(packets, 64);
		now += 50 * STEP;
	}
	assert_int_equal(s->stale, 0);
	assert_int_equal(s->wheel.waiting, 0);
}

static void
rates_hold_although_the_worker_is_late(void **state)
{
	enum { TICKS = 4000, TENTH = 1000 }; // of 100 microseconds
	static uint64_t total[3][TICKS + 1];
	const double rates[3] = {
		50e6 / 8, 120e6 / 8, 200e6 / 8}; // a subscriber's, a group's, the port's: bytes a second

	(void)state;
	s->peak = pace_of(200000000, 6250, HZ);
	for (unsigned g = 0; g < 2; g++) {
		group_profiles[g].peak = pace_of(120000000, 6250, HZ);
		hqos_set_group(s, g, (uint16_t)g, now);
	}
	for (unsigned i = 0; i < 6; i++) {
		profiles[i].peak = pace_of(50000000, 3125, HZ);
		hqos_set_subscriber(s, i, i % 2, (uint16_t)i, now);
	}
	for (unsigned t = 0; t < TICKS; t++) {
		memset(sent, 0, sizeof(sent));
		// The worker does not come on time.
		for (unsigned steps = 0; steps < 10; steps++) {
			struct rte_mbuf *packets[64];
			unsigned count;

			for (uint32_t i = 0; i < 6; i++)
				while (hqos_waiting(&s->subscribers[i], 0) < 32)
					put(i, 0, 500);
			now += STEP / 2 + chance(STEP);
			while ((count = get(packets, 64)) != 0)
				for (unsigned i = 0; i < count; i++)
					sent[packet_of(packets[i])->session][0] += packets[i]->pkt_len;
		}
		total[0][t + 1] = total[0][t] + of(0);
		total[1][t + 1] = total[1][t] + of(0) + of(2) + of(4);
		total[2][t + 1] = total[2][t];
		for (unsigned i = 0; i < 6; i++)
			total[2][t + 1] += of(i);
	}
	// Nobody more, from any moment on; a subscriber's share is what his group leaves him.
	for (unsigned t = TENTH; t + TENTH <= TICKS; t++)
		for (unsigned level = 0; level < 3; level++)
			assert_true((double)(total[level][t + TENTH] - total[level][t]) < rates[level] / 10 * 1.01);
	for (unsigned t = TENTH; t + TENTH <= TICKS; t++)
		assert_near(total[2][t + TENTH] - total[2][t], rates[2] / 10, 0.01);
}

static void
subscribers_come_and_go_under_traffic(void **state)
{
	(void)state;
	s->peak = pace_of(60000000, 3000, HZ);
	hqos_set_group(s, 0, 0, now);
	hqos_set_group(s, 1, 0, now);
	for (uint32_t i = 0; i < 8; i++)
		hqos_set_subscriber(s, i, 0, 0, now);
	for (unsigned round = 0; round < 200; round++) {
		uint32_t subscriber = (uint32_t)chance(7);
		struct rte_mbuf *packets[16];
		unsigned count;

		memset(sent, 0, sizeof(sent));
		run(8, 3, 500, 2, sent);
		do {
			count = hqos_flush_subscriber(s, subscriber, packets, 16);
			for (unsigned i = 0; i < count; i++)
				spare[spare_count++] = packets[i];
		} while (count == 16);
		assert_int_equal(s->subscribers[subscriber].backlog, 0);
		assert_false(put(subscriber, 0, 100));
		// The same number in another group.
		hqos_set_subscriber(s, subscriber, round & 1, 0, now);
	}
	memset(sent, 0, sizeof(sent));
	run(8, 1, 500, 500, sent);
	for (unsigned i = 0; i < 8; i++)
		assert_true(of(i) > 0);
	while (s->packets != 0) {
		struct rte_mbuf *packets[64];

		get(packets, 64);
		now += STEP;
	}
	assert_int_equal(spare_count, BUFFERS);
	assert_int_equal(s->wheel.waiting, 0);
}

static void
codel_keeps_the_delay_of_a_greedy_queue_short(void **state)
{
	uint64_t until;
	unsigned drops = 0;

	(void)state;
	profiles[0].peak = pace_of(10000000, 3000, HZ);
	profiles[0].classes[0].policy = HQOS_CODEL;
	profiles[0].classes[0].codel_target = (uint32_t)(ticks_of(HZ / 200) >> CODEL_SHIFT);
	profiles[0].classes[0].codel_interval = (uint32_t)(ticks_of(HZ / 10) >> CODEL_SHIFT);
	one_group(1);
	// A source a tenth faster than the line.
	for (until = now + 4 * HZ; now < until; now += HZ * 8 / 11000) {
		struct rte_mbuf *packets[64];

		put(0, 0, 1000);
		get(packets, 64);
		drops += s->dropped_count;
	}
	assert_true(drops > 50);
	assert_true(hqos_waiting(&s->subscribers[0], 0) < MODEL_QUEUE - 10);
}

static void
wred_drops_red_before_green(void **state)
{
	unsigned refused[3] = {0};

	(void)state;
	profiles[0].peak = pace_of(10000000, 3000, HZ);
	profiles[0].classes[0].policy = HQOS_WRED;
	profiles[0].classes[0].wred_shift = 4;
	profiles[0].classes[0].wred_probability = UINT32_MAX / 2;
	for (unsigned colour = 0; colour < 3; colour++) {
		profiles[0].classes[0].wred_min[colour] = 40 - 15 * colour;
		profiles[0].classes[0].wred_max[colour] = 60 - 15 * colour;
	}
	one_group(1);
	for (unsigned i = 0; i < 30000; i++) {
		struct rte_mbuf *m = spare[--spare_count], *packets[64];
		uint32_t subscriber = 0;
		uint8_t class = 0, colour = (uint8_t)(i % 3);

		m->pkt_len = 1000;
		packet_of(m)->colour = colour;
		if (hqos_enqueue(s, &m, &subscriber, &class, 1, now) != 0) {
			refused[colour]++;
			spare[spare_count++] = m;
		}
		get(packets, 64);
		now += HZ * 8 / 11000;
	}
	assert_true(refused[2] > 1000);
	assert_true(refused[1] < refused[2]);
	assert_true(refused[0] < 100);
}

// What is left of the shortest frame is at least a byte, at each level, however the frames come out: alone, in a row, or some of one
// subscriber together.
static void
a_frame_shorter_than_what_the_line_takes_away_holds_up_nobody(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		profiles[i].overhead = -64;
		profiles[i].peak = pace_of(1000000000, 3000, HZ);
	}
	group_profiles[0].overhead = -64;
	group_profiles[0].peak = pace_of(1000000000, 3000, HZ);
	s->overhead = -64;
	s->peak = pace_of(1000000000, 3000, HZ);
	one_group(4);
	for (unsigned round = 0; round < 200; round++) {
		struct rte_mbuf *packets[64];
		unsigned wanted = 0, count = 0, more;

		for (uint32_t i = 0; i < 4; i++)
			for (uint64_t each = 1 + chance(6); each != 0; each--)
				wanted += put(i, (uint8_t)chance(HQOS_CLASSES), chance(2) ? 42 : 500);
		// Twelve thousand bytes take a tenth of this.
		for (unsigned wait = 0; wait < 100; wait++) {
			while ((more = get(packets, 64)) != 0)
				count += more;
			now += STEP;
		}
		assert_int_equal(count, wanted);
	}
}

int
main(void)
{
	const struct CMUnitTest all[] = {
#define T(test) \
	cmocka_unit_test_setup_teardown(test, start_with_none, end), \
		cmocka_unit_test_setup_teardown(test, start_with_few, end), \
		cmocka_unit_test_setup_teardown(test, start_with_wide, end)
		T(a_subscriber_gets_its_peak_rate_within_one_percent),
		T(a_group_gets_its_peak_rate_within_one_percent),
		T(a_port_gets_its_peak_rate_within_one_percent),
		T(every_level_gets_its_rate_within_one_percent_below_the_others),
		T(a_class_gets_its_peak_rate_and_leaves_the_rest_to_others),
		T(the_lines_overhead_and_cells_count),
		T(a_frame_shorter_than_what_the_line_takes_away_holds_up_nobody),
		T(a_lower_class_waits_for_a_higher_one),
		T(classes_of_one_priority_share_by_weight),
		T(a_class_that_was_alone_owes_its_equals_nothing),
		T(subscribers_and_groups_share_by_weight),
		T(a_committed_rate_holds_against_any_weight),
		T(a_groups_committed_rate_holds),
		T(a_classs_committed_rate_holds_against_a_higher_class),
		T(what_is_within_a_committed_rate_is_not_of_the_share_of_the_rest),
		T(equal_classes_share_by_weight_within_their_committed_rates),
		T(nobody_starves_among_many),
		T(packets_of_a_class_keep_their_order),
		T(random_hierarchies_do_what_the_model_does),
		T(what_may_be_sent_is_sent),
		T(a_packet_of_a_free_class_does_not_wait_for_a_limited_one),
		T(a_full_queue_refuses_and_recovers),
		T(a_profile_changes_under_traffic),
		T(a_rate_that_is_raised_from_almost_nothing_counts_at_once_at_every_level),
		T(a_committed_rate_that_is_raised_from_almost_nothing_counts_at_once_at_every_level),
		T(what_waits_moves_with_its_subscriber),
		T(rates_hold_although_the_worker_is_late),
		T(subscribers_come_and_go_under_traffic),
		T(codel_keeps_the_delay_of_a_greedy_queue_short),
		T(wred_drops_red_before_green),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}
