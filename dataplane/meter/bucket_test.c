// SPDX-License-Identifier: Apache-2.0
// Markers against slow, obvious references that follow the text of each RFC, with a clock of the tests' own.
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "meter/profile.h"
#include "meter/shared.h"

static const uint64_t HZ = 2600000000;

static uint64_t seed = 0xb0cce7;

static uint64_t
chance(uint64_t limit)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 20) % limit;
}

enum algorithm { RFC2697, RFC2698, RFC4115 };

// A contract as people write it.
struct terms {
	enum algorithm algorithm;
	uint64_t committed, excess; // bit/s; excess: PIR or EIR
	uint32_t committed_burst, excess_burst;
	bool aware;
};

static struct meter_contract
contract_of(const struct terms *terms)
{
	return (struct meter_contract){
		.committed_rate = meter_rate(terms->committed, HZ),
		.excess_rate = terms->algorithm == RFC2697 ? 0 : meter_rate(terms->excess, HZ),
		.committed_burst = terms->committed_burst,
		.excess_burst = terms->excess_burst,
		.overflow = terms->algorithm == RFC2697 ? UINT64_MAX : 0,
		.both = terms->algorithm == RFC2698,
		.color_aware = terms->aware,
	};
}

static enum colour
colour_at(struct meter_state *state, const struct meter_contract *contract, uint64_t now, uint32_t bytes,
	enum colour incoming)
{
	struct meter_moment moment = meter_moment(contract, now);

	return meter_colour(state, contract, &moment, bytes, incoming);
}

// Buckets of the reference: bytes with fractions.
struct reference {
	uint64_t time;
	long double committed, excess;
};

static long double
filled(long double level, uint64_t rate, uint64_t cycles, uint32_t burst)
{
	long double full = level + (long double)rate / 8 * cycles / HZ;

	return full < burst ? full : burst;
}

static void
refill(struct reference *r, const struct terms *terms, uint64_t now)
{
	uint64_t cycles = now - r->time;
	long double spilt;

	r->time = now;
	if (terms->algorithm != RFC2697) {
		r->committed = filled(r->committed, terms->committed, cycles, terms->committed_burst);
		r->excess = filled(r->excess, terms->excess, cycles, terms->excess_burst);
		return;
	}
	spilt = r->committed + (long double)terms->committed / 8 * cycles / HZ - terms->committed_burst;
	r->committed = filled(r->committed, terms->committed, cycles, terms->committed_burst);
	if (spilt > 0)
		r->excess = r->excess + spilt < terms->excess_burst ? r->excess + spilt : terms->excess_burst;
}

// RFC 2697 section 3, RFC 2698 section 3, RFC 4115 section 4, word by word.
static enum colour
reference_colour(struct reference *r, const struct terms *terms, uint32_t bytes, enum colour incoming)
{
	switch (terms->algorithm) {
	case RFC2697:
	case RFC4115:
		if (incoming == GREEN && r->committed - bytes >= 0) {
			r->committed -= bytes;
			return GREEN;
		}
		if ((incoming == GREEN || incoming == YELLOW) && r->excess - bytes >= 0) {
			r->excess -= bytes;
			return YELLOW;
		}
		return RED;
	case RFC2698:
		if (incoming == RED || r->excess - bytes < 0)
			return RED;
		if (incoming == YELLOW || r->committed - bytes < 0) {
			r->excess -= bytes;
			return YELLOW;
		}
		r->committed -= bytes;
		r->excess -= bytes;
		return GREEN;
	}
	return RED;
}

static void
random_terms(struct terms *terms)
{
	static const uint64_t rates[] = {8000, 64000, 1000003, 100000000, 10000000000, 400000000000, 4000000000000};

	*terms = (struct terms){
		.algorithm = (enum algorithm)chance(3),
		.committed = rates[chance(7)],
		.committed_burst = (uint32_t)(1500 + chance(chance(2) ? 100000 : UINT32_MAX - 1500)),
		.excess_burst = (uint32_t)(1500 + chance(chance(2) ? 100000 : UINT32_MAX - 1500)),
		.aware = chance(2),
	};
	terms->excess = terms->committed + chance(terms->committed);
}

// Pauses that bring between nothing and some buckets full.
static uint64_t
random_pause(const struct terms *terms)
{
	uint64_t fill = (uint64_t)((long double)terms->committed_burst * 8 / terms->committed * HZ);

	switch (chance(8)) {
	case 0:
		return 0;
	case 1:
		return chance(fill + 1);
	case 2:
		return chance(fill * 4 + 1);
	case 3:
		return chance(100);
	default:
		return chance((uint64_t)((long double)1500 * 8 / terms->committed * HZ) * 2 + 1);
	}
}

// Colours may differ only where a level is within rounding of the packet; then the reference goes on from the meter's state.
static void
random_sequences_are_coloured_as_in_the_rfc(void **state)
{
	uint64_t disputed = 0, asked = 0;

	for (unsigned round = 0; round < 2000; round++) {
		struct terms terms;
		struct meter_contract contract;
		struct meter_state meter;
		struct reference reference;
		uint64_t now = chance(UINT64_C(1) << 55);

		random_terms(&terms);
		contract = contract_of(&terms);
		meter = (struct meter_state){now, terms.committed_burst, terms.excess_burst};
		reference = (struct reference){now, terms.committed_burst, terms.excess_burst};
		for (unsigned packet = 0; packet < 500; packet++) {
			uint32_t bytes = (uint32_t)(20 + chance(1481));
			enum colour incoming = terms.aware ? (enum colour)chance(3) : GREEN, expected, given;
			struct reference before;

			now += random_pause(&terms);
			refill(&reference, &terms, now);
			before = reference;
			expected = reference_colour(&reference, &terms, bytes, incoming);
			given = colour_at(&meter, &contract, now, bytes, incoming);
			asked++;
			if (expected != given) {
				long double committed = before.committed - bytes, excess = before.excess - bytes;

				assert_true((committed > -3 && committed < 3) || (excess > -3 && excess < 3));
				disputed++;
				reference.committed = meter.committed;
				reference.excess = meter.excess;
				continue;
			}
			// Rounded down each time that a bucket was empty or full, by less than a byte.
			assert_true(
				reference.committed - meter.committed < 3 && meter.committed - reference.committed < 3);
			assert_true(reference.excess - meter.excess < 3 && meter.excess - reference.excess < 3);
			if (packet % 50 == 49) {
				reference.committed = meter.committed;
				reference.excess = meter.excess;
			}
		}
	}
	assert_true(disputed * 100 < asked);
}

// Offer twice the rate in small packets, far apart or close together, and count the green bytes.
static uint64_t
green_of(uint64_t bits_per_second, uint32_t burst, uint64_t pause, uint64_t packets, uint32_t bytes)
{
	struct terms terms = {RFC2697, bits_per_second, 0, burst, 0, false};
	struct meter_contract contract = contract_of(&terms);
	struct meter_state meter = {0};
	uint64_t green = 0;

	for (uint64_t i = 1; i <= packets; i++) {
		if (colour_at(&meter, &contract, i * pause, bytes, GREEN) == GREEN)
			green += bytes;
	}
	return green;
}

static void
a_meter_asked_often_gives_all_of_its_rate_and_no_more(void **state)
{
	// 1,000 bytes a second asked for every 100 cycles, and so on: by far less than a byte comes in from one to the next.
	static const struct {
		uint64_t rate, pause;
	} cases[] = {{8000, 100}, {8000, 1}, {1000003, 7}, {100000000, 13}, {10000000000, 1}, {3999999999999, 1}};
	const uint64_t packets = 20000000;

	for (unsigned i = 0; i < 6; i++) {
		uint64_t cycles = packets * cases[i].pause;
		long double due = (long double)cases[i].rate / 8 * cycles / HZ;
		uint32_t bytes = due / packets > 1 ? (uint32_t)(due / packets * 2) : 1;
		uint64_t green = green_of(cases[i].rate, 100000, cases[i].pause, packets, bytes);

		assert_true(green <= due + 1);
		assert_true(green + bytes + 1 >= due);
	}
}

static void
a_meter_that_was_idle_for_days_is_full(void **state)
{
	static const uint64_t rates[] = {8000, 100000000, 4000000000000};

	for (unsigned r = 0; r < 3; r++) {
		for (unsigned algorithm = 0; algorithm < 3; algorithm++) {
			struct terms terms = {algorithm, rates[r], rates[r], 50000000, 50000000, false};
			struct meter_contract contract = contract_of(&terms);

			for (uint64_t days = 1; days <= 300; days++) {
				struct meter_state meter = {HZ, 0, 0};

				colour_at(&meter, &contract, HZ + days * 2 * 86400 * HZ, 0, GREEN);
				assert_int_equal(meter.committed, 50000000);
				assert_int_equal(meter.excess, 50000000);
			}
		}
	}
}

static void
the_largest_bursts_do_not_overflow(void **state)
{
	for (unsigned algorithm = 0; algorithm < 3; algorithm++) {
		struct terms terms = {algorithm, 4000000000000, 4000000000000, UINT32_MAX, UINT32_MAX, false};
		struct meter_contract contract = contract_of(&terms);
		struct meter_state meter = {0, UINT32_MAX, UINT32_MAX};

		assert_int_equal(colour_at(&meter, &contract, HZ, 1500, GREEN), GREEN);
		assert_int_equal(meter.committed, UINT32_MAX - 1500);
		colour_at(&meter, &contract, 2 * HZ, 0, GREEN);
		assert_int_equal(meter.committed, UINT32_MAX);
		assert_int_equal(meter.excess, UINT32_MAX);
	}
}

static void
a_clock_that_is_behind_adds_nothing(void **state)
{
	struct terms terms = {RFC2698, 8000000000, 8000000000, 3000, 3000, false};
	struct meter_contract contract = contract_of(&terms);
	struct meter_state meter = {1000000, 0, 0};

	assert_int_equal(colour_at(&meter, &contract, 999000, 1, GREEN), RED);
	assert_int_equal(meter.time, 1000000);
	assert_int_equal(meter.committed, 0);
}

static void
a_smaller_burst_removes_excess_tokens(void **state)
{
	struct terms terms = {RFC4115, 8000, 8000, 2000, 1000, false};
	struct meter_contract contract = contract_of(&terms);
	struct meter_state meter = {5, 9000, 9000};

	assert_int_equal(colour_at(&meter, &contract, 5, 1500, GREEN), GREEN);
	assert_int_equal(meter.committed, 500);
	assert_int_equal(meter.excess, 1000);
}

static void
a_second_bucket_without_a_rate_of_its_own_stays_as_it_is_with_rfc_4115(void **state)
{
	struct terms terms = {RFC4115, 8000000, 0, 1500, 0, false};
	struct meter_contract contract = contract_of(&terms);
	struct meter_state meter = {0, 0, 0};

	colour_at(&meter, &contract, 100 * HZ, 0, GREEN);
	assert_int_equal(meter.committed, 1500);
	assert_int_equal(meter.excess, 0);
}

// A clock that two threads share, one cycle a packet.
static struct meter_state shared_state;
static uint64_t shared_clock;
static struct meter_contract shared_contract;
static bool leased;
enum { SHARED_PACKETS = 1000000, SHARED_BYTES = 64, SHARED_BURST = 50 };

// The least time that a burst may have seen counts, so no thread is ahead of the clock.
static void *
ask_shared_meter(void *passed)
{
	uint64_t let_through = 0;

	for (unsigned i = 0; i < SHARED_PACKETS; i += SHARED_BURST) {
		uint64_t now = __atomic_add_fetch(&shared_clock, SHARED_BURST, __ATOMIC_RELAXED);
		struct meter_moment moment = meter_moment(&shared_contract, now);
		struct meter_lease lease = {0};

		for (unsigned n = 0; n < SHARED_BURST; n++) {
			enum colour colour = leased ? meter_colour_leased(&lease, &shared_state, &shared_contract,
							      &moment, SHARED_BYTES, GREEN, SHARED_BURST - n)
						    : meter_colour_shared(&shared_state, &shared_contract, &moment,
							      SHARED_BYTES, GREEN);

			let_through += colour != RED ? SHARED_BYTES : 0;
		}
		if (leased)
			meter_lease_end(&lease, &shared_state, &shared_contract);
	}
	*(uint64_t *)passed = let_through;
	return NULL;
}

// Tokens may be lost at a full bucket while a thread does not take them. They do not count as missing: buckets are
// far larger than all tokens of the test.
static void
get_what_the_contract_gives(void)
{
	for (unsigned algorithm = 0; algorithm < 3; algorithm++) {
		// Half of the offered rate.
		uint64_t rate = HZ * 8 * SHARED_BYTES / 2;
		struct terms terms = {
			algorithm, rate / 4, algorithm == RFC2698 ? rate / 2 : rate / 4, 1u << 30, 1u << 30};
		long double due = (long double)rate / 4 / 8 / HZ * 2 * SHARED_PACKETS;
		pthread_t threads[2];
		uint64_t passed[2], sum;

		if (algorithm != RFC2697)
			due *= 2;
		shared_contract = contract_of(&terms);
		shared_clock = 0;
		shared_state = (struct meter_state){0};
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, ask_shared_meter, &passed[i]), 0);
		for (unsigned i = 0; i < 2; i++)
			pthread_join(threads[i], NULL);
		sum = passed[0] + passed[1];
		assert_true(sum <= due + 2);
		// The rest is in the buckets, not in an unreturned lease.
		assert_true(sum + shared_state.committed + shared_state.excess * (algorithm != RFC2698) + 2 >= due);
		assert_true(sum >= due * 0.99L);
	}
}

static void
two_threads_together_get_exactly_the_contract(void **state)
{
	leased = false;
	get_what_the_contract_gives();
}

static void
two_threads_with_leases_together_get_exactly_the_contract(void **state)
{
	leased = true;
	get_what_the_contract_gives();
}

// Against the buckets themselves, asked for each packet: one burst at one moment.
static void
packets_coloured_from_a_lease_have_the_colours_that_the_buckets_would_have_given(void **state)
{
	for (unsigned round = 0; round < 20000; round++) {
		uint64_t rate = 1000000000 + chance(16000000000);
		struct terms terms = {round % 3, rate, round % 3 == RFC2698 ? 2 * rate : rate,
			(uint32_t)chance(20000) + 1, (uint32_t)chance(20000) + 1, chance(2) == 1};
		struct meter_contract contract = contract_of(&terms);
		struct meter_state ours = {1000, (uint32_t)chance(20000), (uint32_t)chance(20000)};
		struct meter_state plain = ours;
		struct meter_moment now = meter_moment(&contract, 1000 + chance(40000));
		struct meter_lease lease = {0};
		unsigned count = (unsigned)chance(40) + 1, different = 0;

		for (unsigned i = 0; i < count; i++) {
			// Packets of one length: the burst is estimated from the packet that asks.
			uint32_t bytes = 700;
			enum colour incoming = terms.aware ? (enum colour)chance(3) : GREEN;
			enum colour is =
				meter_colour_leased(&lease, &ours, &contract, &now, bytes, incoming, count - i);

			different += is != meter_colour(&plain, &contract, &now, bytes, incoming);
		}
		meter_lease_end(&lease, &ours, &contract);
		meter_fill(&ours, &contract, &now);
		assert_int_equal(different, 0);
		assert_int_equal(ours.committed, plain.committed);
		assert_int_equal(ours.excess, plain.excess);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_sequences_are_coloured_as_in_the_rfc),
		cmocka_unit_test(a_meter_asked_often_gives_all_of_its_rate_and_no_more),
		cmocka_unit_test(a_meter_that_was_idle_for_days_is_full),
		cmocka_unit_test(the_largest_bursts_do_not_overflow),
		cmocka_unit_test(a_clock_that_is_behind_adds_nothing),
		cmocka_unit_test(a_smaller_burst_removes_excess_tokens),
		cmocka_unit_test(a_second_bucket_without_a_rate_of_its_own_stays_as_it_is_with_rfc_4115),
		cmocka_unit_test(two_threads_together_get_exactly_the_contract),
		cmocka_unit_test(two_threads_with_leases_together_get_exactly_the_contract),
		cmocka_unit_test(packets_coloured_from_a_lease_have_the_colours_that_the_buckets_would_have_given),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
