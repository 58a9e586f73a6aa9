// SPDX-License-Identifier: Apache-2.0
// A scheduler on a clock of the tests' own.
#include "hqos/own_clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct buffer {
	struct rte_mbuf m;
	struct packet p;
} __attribute__((aligned(64)));

static struct buffer *buffers;
struct rte_mbuf *spare[BUFFERS];
unsigned spare_count;
struct hqos_profile profiles[SUBSCRIBERS];
struct hqos_group_profile group_profiles[GROUPS];
static struct hqos_profile *profile_slots[SUBSCRIBERS];
static struct hqos_group_profile *group_profile_slots[GROUPS];
struct hqos_scheduler *s;
uint64_t now;
uint64_t seed;
static unsigned few;
uint64_t sent[SUBSCRIBERS][HQOS_CLASSES];

uint64_t
chance(uint64_t limit)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 20) % limit;
}

int
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

int
start_with_few(void **state)
{
	few = HQOS_CLASSES;
	return start(state);
}

int
start_with_wide(void **state)
{
	few = HQOS_WIDE;
	return start(state);
}

int
start_with_none(void **state)
{
	few = 0;
	return start(state);
}

// The sum of the groups' counters equals the scheduler's counters.
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
	       all.dropped_packets == c->dropped[HQOS_TAIL_DROP] + c->dropped[HQOS_WRED] + c->dropped[HQOS_CODEL] +
					      c->dropped[HQOS_PORT_FULL] + c->dropped[HQOS_BUFFERS_FULL] + c->flushed;
}

int
end(void **state)
{
	bool right = groups_add_up();

	(void)state;
	hqos_free(s);
	free(buffers);
	return right ? 0 : -1;
}

void
finish(uint32_t subscriber)
{
	if (few)
		hqos_profile_finish(&profiles[s->subscribers[subscriber].profile], few);
}

bool
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

unsigned
get(struct rte_mbuf **packets, unsigned room)
{
	unsigned count = hqos_dequeue(s, packets, room, now);

	for (unsigned i = 0; i < count; i++)
		spare[spare_count++] = packets[i];
	for (unsigned i = 0; i < s->dropped_count; i++)
		spare[spare_count++] = s->dropped[i];
	return count;
}

void
run_cycles(unsigned subscribers, uint8_t classes, uint32_t bytes, uint64_t cycles)
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

void
run(unsigned subscribers, uint8_t classes, uint32_t bytes, unsigned milliseconds)
{
	run_cycles(subscribers, classes, bytes, milliseconds * (HZ / 1000));
}

void
one_group(unsigned subscribers)
{
	hqos_set_group(s, 0, 0, now);
	for (uint32_t i = 0; i < subscribers; i++)
		hqos_set_subscriber(s, i, 0, (uint16_t)i, now);
}

void
assert_near(uint64_t found, double expected, double tolerance)
{
	if ((double)found < expected * (1 - tolerance) || (double)found > expected * (1 + tolerance))
		fail_msg("%llu is not within %g of %.0f", (unsigned long long)found, tolerance, expected);
}

uint64_t
of(unsigned subscriber)
{
	uint64_t sum = 0;

	for (unsigned c = 0; c < HQOS_CLASSES; c++)
		sum += sent[subscriber][c];
	return sum;
}
