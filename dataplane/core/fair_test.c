// SPDX-License-Identifier: Apache-2.0
// Fair rate limits: the share that a flood leaves to other sources.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/fair.h"
#include "core/one_node.h"

enum { HZ = 2000000000, TOTAL = 10000, EACH = 100, QUIET = 100, A_SECOND = 10, FLOOD = 1000000, SECONDS = 5 };

static const uint64_t START = 1000ull * HZ;
static const struct fair_limit limit = {.total = TOTAL, .source = EACH};

static struct fair_rate *rate;
static bool quiet_source;

static int
start(void **state)
{
	rate = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*rate));
	memset(rate, 0, sizeof(*rate));
	return 0;
}

static int
end(void **state)
{
	free(rate);
	return 0;
}

static bool
spend(uint64_t where, uint64_t who, bool shared, uint64_t now)
{
	const struct fair_source source = {where, who, shared};

	return fair_spend_at(rate, limit, &source, now, HZ, &quiet_source);
}

static struct fair_source
session(unsigned number)
{
	return (struct fair_source){.where = number};
}

// A million packets a second of floods in turn, and some of QUIET others, each of which sends A_SECOND times a
// second. Returns the minimum that one of the others got; `*had` is the total of the floods.
static unsigned
flood(struct fair_source (*next)(unsigned i), struct fair_source (*quiet)(unsigned i), unsigned *had)
{
	unsigned answers[QUIET] = {0}, least = UINT32_MAX;

	*had = 0;
	for (unsigned i = 0; i < SECONDS * FLOOD; i++) {
		uint64_t now = START + (uint64_t)i * (HZ / FLOOD);
		struct fair_source source = next(i);

		*had += fair_spend_at(rate, limit, &source, now, HZ, &quiet_source);
		if (i % (FLOOD / A_SECOND / QUIET) == 0) {
			unsigned q = i / (FLOOD / A_SECOND / QUIET) % QUIET;

			source = quiet(q);
			answers[q] += fair_spend_at(rate, limit, &source, now, HZ, &quiet_source);
		}
	}
	for (unsigned q = 0; q < QUIET; q++)
		least = RTE_MIN(least, answers[q]);
	return least;
}

static struct fair_source
one_session(unsigned i)
{
	return session(UINT32_MAX);
}

static void
a_flood_of_one_session_takes_nothing_from_a_hundred_others(void **state)
{
	unsigned had, least = flood(one_session, session, &had);

	assert_int_equal(least, SECONDS * A_SECOND);
	// And it has its own rate, a second's worth at once after each change of hash functions at most.
	assert_in_range(had, SECONDS * EACH, (SECONDS + 1 + SECONDS / FAIR_SEED_SECONDS) * EACH);
}

static struct fair_source
many_sessions(unsigned i)
{
	return session(1000 + i % 200);
}

static void
two_hundred_floods_that_may_have_twice_the_total_leave_the_others_theirs(void **state)
{
	unsigned had, least = flood(many_sessions, session, &had);

	// Some collide for four seconds with floods in both of their buckets.
	assert_true(least >= SECONDS * A_SECOND / 2);
	assert_true(had <= (SECONDS + 1) * TOTAL);
}

static struct fair_source
addresses_of_one_circuit(unsigned i)
{
	return (struct fair_source){.where = 1, .who = fair_mix(i), .shared = true};
}

static struct fair_source
other_circuits(unsigned i)
{
	return (struct fair_source){.where = 100 + i, .who = 5, .shared = true};
}

static void
a_flood_with_ever_new_addresses_has_no_more_than_half_of_the_total(void **state)
{
	unsigned had, least = flood(addresses_of_one_circuit, other_circuits, &had);

	assert_int_equal(least, SECONDS * A_SECOND);
	assert_true(had <= (SECONDS + 1 + SECONDS / FAIR_SEED_SECONDS) * TOTAL / 2);
}

static struct fair_source
one_address(unsigned i)
{
	return (struct fair_source){.where = 1, .who = 77777, .shared = true};
}

static struct fair_source
other_addresses(unsigned i)
{
	return (struct fair_source){.where = 1, .who = i, .shared = true};
}

static void
a_flood_of_one_address_takes_nothing_from_others_of_its_circuit(void **state)
{
	unsigned had, least = flood(one_address, other_addresses, &had);

	assert_int_equal(least, SECONDS * A_SECOND);
	assert_in_range(had, SECONDS * EACH, (SECONDS + 1 + SECONDS / FAIR_SEED_SECONDS) * EACH);
}

// The buckets that a session's packets may take from.
static unsigned
buckets_of(uint64_t where)
{
	uint64_t hash = fair_mix(fair_mix(where ^ rate->seed));

	return (unsigned)(hash % FAIR_SOURCES) << 16 | (unsigned)((hash >> 32) % FAIR_SOURCES);
}

static void
two_sources_do_not_collide_for_longer_than_the_hash_functions_last(void **state)
{
	uint64_t flooder = 1, victim = 2, now = START;
	unsigned had;

	spend(12345, 0, false, now);
	while (buckets_of(victim) != buckets_of(flooder))
		victim++;
	for (unsigned i = 0; i < 1000; i++)
		spend(flooder, 0, false, now);
	assert_false(spend(victim, 0, false, now));
	now += FAIR_SEED_SECONDS * (uint64_t)HZ;
	spend(12345, 0, false, now);
	assert_int_not_equal(buckets_of(victim), buckets_of(flooder));
	for (unsigned i = 0; i < 1000; i++)
		spend(flooder, 0, false, now);
	had = 0;
	for (unsigned i = 0; i < EACH; i++)
		had += spend(victim, 0, false, now);
	assert_true(had >= EACH / 2);
}

static void
all_sources_together_have_no_more_than_the_total(void **state)
{
	unsigned had = 0;

	for (unsigned i = 0; i < 10 * TOTAL; i++)
		had += spend(i, 0, false, START);
	assert_int_equal(had, TOTAL);
}

static void
a_limit_of_one_packet_a_second_lets_one_through(void **state)
{
	const struct fair_source source = {.where = 1, .who = 1, .shared = true};
	const struct fair_limit one = {1, 1}, none = {0, 1};

	assert_true(fair_spend_at(rate, one, &source, START, HZ, &quiet_source));
	assert_false(fair_spend_at(rate, one, &source, START, HZ, &quiet_source));
	assert_false(fair_spend_at(rate, one, &source, START + HZ - 2, HZ, &quiet_source));
	assert_true(fair_spend_at(rate, one, &source, START + HZ, HZ, &quiet_source));
	assert_false(fair_spend_at(rate, none, &source, START + 3ull * HZ, HZ, &quiet_source));
}

static bool
same(const struct fair_source *a, const struct fair_source *b)
{
	return a->where == b->where && a->who == b->who;
}

// The source of a frame with these addresses and an IP header of this length at its data.
static struct fair_source
source_of(uint8_t family, uint8_t mac, uint8_t ip, uint16_t length, const struct packet *more)
{
	uint8_t bytes[14 + 40] = {[11] = mac};
	struct fair_source source;
	struct rte_mbuf *m;

	bytes[29] = ip;
	m = one_node_packet(bytes, (uint16_t)(14 + length));
	*packet_of(m) = *more;
	packet_of(m)->family = family;
	packet_of(m)->l2_length = 14;
	packet_advance(m, 14);
	fair_source_of(m, &source);
	free(m);
	return source;
}

static void
a_packet_is_of_its_session_else_of_its_address_else_of_its_circuit(void **state)
{
	struct packet of_session = {.session = 7, .interface = 1}, down = of_session,
		      of_interface = {.session = NO_SESSION, .interface = 1},
		      of_circuit = {.session = NO_SESSION, .interface = NO_INTERFACE, .port = 1, .outer_vlan = 2};
	struct packet neighbour = of_circuit;
	struct fair_source a, b;

	// One for each session, whatever the addresses.
	a = source_of(4, 1, 1, 20, &of_session);
	b = source_of(4, 2, 2, 20, &of_session);
	assert_true(same(&a, &b) && !a.shared);
	// To a session: by sender.
	down.direction = DOWN;
	a = source_of(4, 1, 1, 20, &down);
	b = source_of(4, 1, 2, 20, &down);
	assert_true(a.where == b.where && a.who != b.who && a.shared);
	// By IP address, for any Ethernet address.
	for (unsigned family = 4; family <= 6; family += 2) {
		a = source_of((uint8_t)family, 1, 1, 40, &of_interface);
		b = source_of((uint8_t)family, 2, 1, 40, &of_interface);
		assert_true(same(&a, &b) && a.shared);
		b = source_of((uint8_t)family, 1, 2, 40, &of_interface);
		assert_true(a.where == b.where && a.who != b.who);
	}
	// Of no IP, or of none that is there: by Ethernet address and VLANs.
	neighbour.inner_vlan = 3;
	for (unsigned family = 0; family <= 6; family += family ? 2 : 4) {
		a = source_of((uint8_t)family, 1, 9, 4, &of_circuit);
		b = source_of((uint8_t)family, 2, 9, 4, &of_circuit);
		assert_true(a.where == b.where && a.who != b.who && a.shared);
		b = source_of((uint8_t)family, 1, 9, 4, &neighbour);
		assert_true(a.where != b.where);
	}
	// An unknown address.
	a = source_of(4, 1, 0, 20, &of_circuit);
	b = source_of(4, 2, 0, 20, &of_circuit);
	assert_false(same(&a, &b));
}

static void
the_addresses_of_an_ip6_network_are_one_source_and_link_local_ones_are_not(void **state)
{
	uint8_t bytes[40] = {[8] = 0x20, [15] = 1, [23] = 1};
	struct fair_source a, b;
	struct rte_mbuf *m = one_node_packet(bytes, sizeof(bytes));

	packet_of(m)->family = 6;
	fair_source_of(m, &a);
	rte_pktmbuf_mtod(m, uint8_t *)[23] = 2;
	fair_source_of(m, &b);
	assert_true(same(&a, &b));
	rte_pktmbuf_mtod(m, uint8_t *)[8] = 0xfe;
	rte_pktmbuf_mtod(m, uint8_t *)[9] = 0x80;
	fair_source_of(m, &a);
	rte_pktmbuf_mtod(m, uint8_t *)[23] = 1;
	fair_source_of(m, &b);
	assert_false(same(&a, &b));
	free(m);
}

#define EACH_TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		EACH_TEST(a_flood_of_one_session_takes_nothing_from_a_hundred_others),
		EACH_TEST(two_hundred_floods_that_may_have_twice_the_total_leave_the_others_theirs),
		EACH_TEST(a_flood_with_ever_new_addresses_has_no_more_than_half_of_the_total),
		EACH_TEST(a_flood_of_one_address_takes_nothing_from_others_of_its_circuit),
		EACH_TEST(two_sources_do_not_collide_for_longer_than_the_hash_functions_last),
		EACH_TEST(all_sources_together_have_no_more_than_the_total),
		EACH_TEST(a_limit_of_one_packet_a_second_lets_one_through),
		cmocka_unit_test(a_packet_is_of_its_session_else_of_its_address_else_of_its_circuit),
		cmocka_unit_test(the_addresses_of_an_ip6_network_are_one_source_and_link_local_ones_are_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
