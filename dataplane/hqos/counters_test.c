// What was sent, asked for while the worker that owns the scheduler sends: whoever asks again never gets less, nor more than came.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "hqos/scheduler.h"

enum { BUFFERS = 1024, SUBSCRIBERS = 3, PROFILES = 2, SWEEPS = 500000 };

static struct buffer {
	struct rte_mbuf m;
	struct packet p;
} __attribute__((aligned(64))) buffers[BUFFERS];

static struct rte_mbuf *spare[BUFFERS];
static unsigned spare_count;
static struct hqos_profile profiles[PROFILES]; // of all classes, and of the first four
static struct hqos_group_profile group_profile = {.committed = PACE_NEVER, .quantum = 64 * HQOS_QUANTUM};
static struct hqos_profile *profile_slots[PROFILES] = {&profiles[0], &profiles[1]};
static struct hqos_group_profile *group_profile_slots[1] = {&group_profile};
static struct hqos_scheduler *s;
static uint64_t came[SUBSCRIBERS][HQOS_CLASSES];
static uint64_t seed = 0x5eed;
static bool over;
static unsigned refused;

static uint64_t
chance(uint64_t limit)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 20) % limit;
}

static unsigned
classes_of(uint32_t subscriber)
{
	return s->subscribers[subscriber].profile == 0 ? HQOS_CLASSES : HQOS_WIDE;
}

static void
put(uint32_t subscriber, unsigned count, uint64_t now)
{
	for (unsigned i = 0; i < count && spare_count > 0; i++) {
		struct rte_mbuf *m = spare[--spare_count];
		// Often the same, so that one has many of the few.
		uint8_t class = (uint8_t)(chance(2) ? 1 : chance(classes_of(subscriber)));

		m->pkt_len = 100;
		__atomic_fetch_add(&came[subscriber][class], 1, __ATOMIC_RELEASE);
		refused += hqos_enqueue(s, &m, &subscriber, &class, 1, now);
	}
}

static void
take(unsigned room, uint64_t now)
{
	struct rte_mbuf *packets[HQOS_BURST];
	unsigned count;

	while ((count = hqos_dequeue(s, packets, room, now)) > 0)
		for (unsigned i = 0; i < count; i++)
			spare[spare_count++] = packets[i];
}

static void *
work(void *nothing)
{
	(void)nothing;
	for (uint64_t now = 1; !__atomic_load_n(&over, __ATOMIC_RELAXED); now += 1000) {
		// One alone, all that he has, some of it; or so many that they are in queues.
		put((uint32_t)chance(SUBSCRIBERS), 1 + (unsigned)chance(chance(4) ? 8 : 40), now);
		if (chance(3) == 0)
			put((uint32_t)chance(SUBSCRIBERS), 1, now);
		take(chance(3) ? HQOS_BURST : 1 + (unsigned)chance(5), now);
		if (chance(20) == 0)
			hqos_set_subscriber(s, (uint32_t)chance(SUBSCRIBERS), 0, (uint16_t)chance(PROFILES), now);
	}
	return NULL;
}

static void
who_asks_what_was_sent_never_gets_less_than_before(void **state)
{
	uint64_t last[SUBSCRIBERS][HQOS_CLASSES] = {0};
	pthread_t worker;

	(void)state;
	assert_int_equal(pthread_create(&worker, NULL, work, NULL), 0);
	for (unsigned sweep = 0; sweep < SWEEPS; sweep++)
		for (unsigned i = 0; i < SUBSCRIBERS; i++)
			for (unsigned c = 0; c < HQOS_CLASSES; c++) {
				uint64_t sent = hqos_sent(&s->subscribers[i], c);

				if (sent < last[i][c])
					fail_msg("subscriber %u, class %u: %lu after %lu", i, c, sent, last[i][c]);
				assert_true(sent <= __atomic_load_n(&came[i][c], __ATOMIC_ACQUIRE));
				last[i][c] = sent;
			}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	pthread_join(worker, NULL);
	assert_int_equal(refused, 0);
	for (unsigned i = 0; i < SUBSCRIBERS; i++)
		for (unsigned c = 0; c < HQOS_CLASSES; c++)
			assert_int_equal(hqos_sent(&s->subscribers[i], c), came[i][c]);
	assert_int_equal(spare_count, BUFFERS);
}

static int
start(void **state)
{
	(void)state;
	for (unsigned i = 0; i < BUFFERS; i++)
		spare[spare_count++] = &buffers[i].m;
	for (unsigned i = 0; i < PROFILES; i++) {
		profiles[i] = (struct hqos_profile){.committed = PACE_NEVER, .quantum = 64 * HQOS_QUANTUM};
		for (unsigned c = 0; c < HQOS_CLASSES; c++)
			profiles[i].classes[c] = (struct hqos_class_profile){.committed = PACE_NEVER,
				.quantum = HQOS_QUANTUM,
				.limit = BUFFERS,
				.equals = (uint8_t)(1u << c)};
		hqos_profile_finish(&profiles[i], i == 0 ? HQOS_CLASSES : HQOS_WIDE);
	}
	s = hqos_new(SUBSCRIBERS, 1, BUFFERS, profile_slots, group_profile_slots, buffers, buffers + BUFFERS, 1);
	if (!s)
		return -1;
	hqos_set_group(s, 0, 0, 1);
	for (uint32_t i = 0; i < SUBSCRIBERS; i++)
		hqos_set_subscriber(s, i, 0, (uint16_t)(i % PROFILES), 1);
	return 0;
}

static int
end(void **state)
{
	(void)state;
	hqos_free(s);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest all[] = {cmocka_unit_test(who_asks_what_was_sent_never_gets_less_than_before)};

	return cmocka_run_group_tests(all, start, end);
}
