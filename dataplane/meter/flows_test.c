// SPDX-License-Identifier: Apache-2.0
// Token buckets by flow: a flow keeps its own, and places are assigned when there are more flows than places.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "meter/flows.h"
#include "meter/shared.h"

enum { BURST_BYTES = 1000, ROOM = 1024 };
static const uint64_t HZ = 1000000000;

// One byte each microsecond: full after a millisecond.
static struct meter_contract contract;
static struct meter_flows flows;

static int
make(void **state)
{
	contract = (struct meter_contract){.committed_rate = meter_rate(8000000, HZ), .committed_burst = BURST_BYTES};
	return meter_flows_create(&flows, ROOM);
}

static int
destroy(void **state)
{
	meter_flows_destroy(&flows);
	return 0;
}

static uint64_t
hash_of(uint64_t number)
{
	unsigned __int128 product = (unsigned __int128)((number + 1) * 0xd6e8feb86659fd93u) * 0x9e3779b97f4a7c15u;

	return (uint64_t)(product >> 64) ^ (uint64_t)product * 0xa0761d6478bd642fu;
}

static struct meter_state *
at(uint64_t number, uint64_t time)
{
	struct meter_moment now = meter_moment(&contract, time);

	return meter_flow(&flows, hash_of(number), &contract, &now);
}

static enum colour
ask(uint64_t number, uint64_t time, uint32_t bytes)
{
	struct meter_moment now = meter_moment(&contract, time);
	struct meter_state *state = at(number, time);

	return state ? meter_colour(state, &contract, &now, bytes, GREEN) : RED;
}

static void
each_flow_has_buckets_of_its_own_that_are_full_at_first(void **state)
{
	for (unsigned flow = 0; flow < ROOM; flow++) {
		assert_int_equal(ask(flow, HZ, BURST_BYTES), GREEN);
		assert_int_equal(ask(flow, HZ, 1), RED);
	}
	for (unsigned flow = 0; flow < ROOM; flow++) {
		assert_int_equal(ask(flow, HZ + HZ / 2000, BURST_BYTES / 2), GREEN);
		assert_int_equal(ask(flow, HZ + HZ / 2000, 10), RED);
	}
}

static void
flows_without_a_place_get_no_bucket_and_displace_none(void **state)
{
	unsigned placed = 0;

	for (unsigned flow = 0; flow < 4 * ROOM; flow++) {
		struct meter_state *s = at(flow, HZ);

		if (!s)
			continue;
		assert_int_equal(ask(flow, HZ, BURST_BYTES), GREEN);
		placed++;
	}
	assert_in_range(placed, ROOM, ROOM * 3 / 2);
	for (unsigned flow = 0; flow < 4 * ROOM; flow++)
		assert_int_equal(ask(flow, HZ, 1), RED);
}

static void
a_flow_whose_buckets_are_full_again_gives_its_place_to_another(void **state)
{
	for (unsigned round = 0; round < 20; round++)
		for (unsigned flow = 0; flow < ROOM; flow++)
			assert_int_equal(ask(round * ROOM + flow, HZ + round * (HZ / 999), BURST_BYTES), GREEN);
}

enum { THREADS = 2, ROUNDS = 50, NEW = 10 };
static uint64_t passed[THREADS];
static pthread_barrier_t together;

// Both threads bring in the same new flows at the same moment.
static void *
bring_in_flows(void *argument)
{
	uint64_t *let_through = argument;

	*let_through = 0;
	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct meter_moment now = meter_moment(&contract, HZ);

		pthread_barrier_wait(&together);
		for (unsigned i = 0; i < NEW; i++) {
			struct meter_state *s = at(round * NEW + i, HZ);

			for (unsigned packet = 0; packet < 20 && s; packet++)
				if (meter_colour_shared(s, &contract, &now, BURST_BYTES / 10, GREEN) == GREEN)
					*let_through += BURST_BYTES / 10;
		}
	}
	return NULL;
}

static void
a_flow_that_two_workers_bring_in_at_once_gets_a_burst_and_at_most_two(void **state)
{
	pthread_t threads[THREADS];

	pthread_barrier_init(&together, NULL, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, bring_in_flows, &passed[i]), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&together);
	assert_in_range(passed[0] + passed[1], ROUNDS * NEW * BURST_BYTES, 2 * ROUNDS * NEW * BURST_BYTES);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_flow_has_buckets_of_its_own_that_are_full_at_first, make, destroy),
		cmocka_unit_test_setup_teardown(flows_without_a_place_get_no_bucket_and_displace_none, make, destroy),
		cmocka_unit_test_setup_teardown(
			a_flow_whose_buckets_are_full_again_gives_its_place_to_another, make, destroy),
		cmocka_unit_test_setup_teardown(
			a_flow_that_two_workers_bring_in_at_once_gets_a_burst_and_at_most_two, make, destroy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
