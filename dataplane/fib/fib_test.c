// SPDX-License-Identifier: Apache-2.0
// Longest prefix match against a list of prefixes that is searched from end to end, and against a reader that never waits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/rcu_double.h"
#include "cpu/cpu.h"
#include "fib/fib_bulk.h"

struct prefix {
	uint8_t address[16];
	uint8_t length;
	uint32_t hop;
};

enum { MODEL = 1000 };

static struct prefix model[MODEL];
static unsigned model_count;

static uint64_t
next_random(void)
{
	static uint64_t state = 88172645463325252;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x9e3779b97f4a7c15 >> 16;
}

static unsigned
bits_of(enum fib_family family)
{
	return family == FIB_IP4 ? 32 : 128;
}

static bool
covers(const struct prefix *prefix, const uint8_t *address)
{
	for (unsigned bit = 0; bit < prefix->length; bit++)
		if ((prefix->address[bit / 8] ^ address[bit / 8]) & 0x80 >> bit % 8)
			return false;
	return true;
}

static uint32_t
model_lookup(const uint8_t *address)
{
	const struct prefix *best = NULL;

	for (unsigned i = 0; i < model_count; i++)
		if ((best == NULL || model[i].length > best->length) && covers(&model[i], address))
			best = &model[i];
	return best == NULL ? 0 : best->hop;
}

// Bytes from a few values, so that prefixes cover, touch and part from one another at every length.
static void
random_address(uint8_t address[16])
{
	static const uint8_t bytes[] = {0x00, 0x01, 0x20, 0x80, 0xff, 0xfe};

	for (unsigned i = 0; i < 16; i++) {
		uint64_t r = next_random();

		address[i] = r % 4 == 0 ? bytes[r / 4 % sizeof(bytes)] : 0x20;
		if (r >> 8 & 1 && i < 2)
			address[i] = (uint8_t)(r >> 16);
	}
}

static uint32_t
lookup(const struct fib *fib, const uint8_t *address)
{
	uint32_t address_be;

	if (fib->family == FIB_IP6)
		return fib6_lookup(fib, address);
	memcpy(&address_be, address, sizeof(address_be));
	return fib4_lookup(fib, address_be);
}

// In the nth way; false where this CPU does not have it.
static bool
lookup_bulk(unsigned way, const struct fib *fib, const uint8_t (*addresses)[16], uint32_t *hops, unsigned n)
{
	const char *name = fib->family == FIB_IP4 ? fib4_ways[way].name : fib6_ways[way].name;
	uint64_t needs = fib->family == FIB_IP4 ? fib4_ways[way].needs : fib6_ways[way].needs;
	uint32_t addresses_be[FIB_BURST];
	const uint8_t *pointers[FIB_BURST];

	if (!name || cpu_lacks(needs))
		return false;
	for (unsigned i = 0; i < n; i++) {
		memcpy(&addresses_be[i], addresses[i], sizeof(addresses_be[i]));
		pointers[i] = addresses[i];
	}
	if (fib->family == FIB_IP4)
		fib4_ways[way].find(fib, addresses_be, hops, n);
	else
		fib6_ways[way].find(fib, pointers, hops, n);
	return true;
}

static void
assert_agrees_with_the_model(const struct fib *fib)
{
	uint8_t addresses[FIB_BURST][16];
	uint32_t hops[FIB_BURST + 1], right[FIB_BURST];
	unsigned n = (unsigned)(next_random() % (FIB_BURST + 1));

	for (unsigned i = 0; i < n; i++) {
		random_address(addresses[i]);
		// Half of them in or just beside a prefix.
		if (model_count > 0 && next_random() % 2 == 0) {
			const struct prefix *p = &model[next_random() % model_count];
			unsigned bit = (unsigned)(next_random() % 128);

			memcpy(addresses[i], p->address, (p->length + 7) / 8);
			if (next_random() % 2 == 0)
				addresses[i][bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
		}
	}
	for (unsigned i = 0; i < n; i++) {
		right[i] = model_lookup(addresses[i]);
		assert_int_equal(lookup(fib, addresses[i]), right[i]);
	}
	for (unsigned way = 0; way < FIB_WAYS; way++) {
		hops[n] = 0xdeadbeef;
		if (!lookup_bulk(way, fib, (const uint8_t(*)[16])addresses, hops, n))
			continue;
		assert_int_equal(hops[n], 0xdeadbeef);
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(hops[i], right[i]);
	}
}

// Put or delete something at random, in the fib and in the model.
static void
random_change(struct fib *fib, bool grow)
{
	unsigned bits = bits_of(fib->family), at = model_count;
	struct prefix p = {.hop = (uint32_t)(next_random() % FIB_HOP_MAX) + 1};

	if (model_count > 0 && next_random() % 3 != 0 && !grow) {
		at = (unsigned)(next_random() % model_count);
		p = model[at];
		assert_int_equal(fib_find(fib, p.address, p.length), p.hop);
		assert_int_equal(fib_delete(fib, p.address, p.length), 0);
		assert_int_equal(fib_delete(fib, p.address, p.length), -ENOENT);
		assert_int_equal(fib_find(fib, p.address, p.length), 0);
		model[at] = model[--model_count];
		return;
	}
	random_address(p.address);
	p.length = (uint8_t)(next_random() % (bits + 1));
	if (next_random() % 4 == 0)
		p.length = (uint8_t)(p.length / 8 * 8);
	if (next_random() % 16 == 0)
		p.length = (uint8_t)(next_random() % 2 * bits);
	for (unsigned i = 0; i < model_count; i++)
		if (model[i].length == p.length && covers(&model[i], p.address))
			at = i;
	if (at == MODEL)
		return;
	// The fib ignores the bits past the length.
	assert_int_equal(fib_put(fib, p.address, p.length, p.hop), 0);
	for (unsigned bit = p.length; bit < 128; bit++)
		p.address[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
	model_count += at == model_count;
	model[at] = p;
	assert_int_equal(fib->rib.count, model_count);
}

static void
churn(enum fib_family family, unsigned rounds, unsigned changes)
{
	struct fib *fib = fib_create(family);
	size_t empty = fib_memory(fib);
	uint8_t nowhere[16] = {0x20};

	model_count = 0;
	for (unsigned round = 0; round < rounds; round++) {
		for (unsigned i = 0; i < changes; i++) {
			random_change(fib, round % 2 == 0);
			if (i % 8 == 0)
				assert_agrees_with_the_model(fib);
		}
	}
	while (model_count > 0) {
		model_count--;
		assert_int_equal(fib_delete(fib, model[model_count].address, model[model_count].length), 0);
		if (model_count % 16 == 0)
			assert_agrees_with_the_model(fib);
	}
	assert_int_equal(fib_memory(fib), empty);
	assert_int_equal(fib->rib.count, 0);
	assert_int_equal(lookup(fib, nowhere), 0);
	fib_destroy(fib);
}

static void
few_ip4_routes_answer_as_a_list_would_and_leave_no_memory_behind(void **state)
{
	for (unsigned i = 0; i < 40; i++)
		churn(FIB_IP4, 4, 20);
}

static void
few_ip6_routes_answer_as_a_list_would_and_leave_no_memory_behind(void **state)
{
	for (unsigned i = 0; i < 40; i++)
		churn(FIB_IP6, 4, 20);
}

static void
many_ip4_routes_answer_as_a_list_would_and_leave_no_memory_behind(void **state)
{
	churn(FIB_IP4, 6, 700);
}

static void
many_ip6_routes_answer_as_a_list_would_and_leave_no_memory_behind(void **state)
{
	churn(FIB_IP6, 6, 700);
}

static void
an_empty_fib_has_no_route_and_costs_less_than_ten_kilobytes(void **state)
{
	for (enum fib_family family = FIB_IP4; family <= FIB_IP6; family++) {
		struct fib *fib = fib_create(family);
		uint8_t address[16] = {192, 0, 2, 1};

		assert_int_equal(lookup(fib, address), 0);
		assert_in_range(fib_memory(fib), 1, 10000);
		fib_destroy(fib);
	}
}

static void
a_length_past_the_family_s_and_a_hop_out_of_range_are_refused(void **state)
{
	struct fib *ip4 = fib_create(FIB_IP4), *ip6 = fib_create(FIB_IP6);
	uint8_t address[16] = {0};

	assert_int_equal(fib_put(ip4, address, 33, 1), -EINVAL);
	assert_int_equal(fib_put(ip6, address, 129, 1), -EINVAL);
	assert_int_equal(fib_put(ip4, address, 32, 0), -EINVAL);
	assert_int_equal(fib_put(ip4, address, 32, FIB_HOP_MAX + 1), -EINVAL);
	assert_int_equal(fib_put(ip4, address, 32, FIB_HOP_MAX), 0);
	assert_int_equal(fib4_lookup(ip4, 0), FIB_HOP_MAX);
	assert_int_equal(fib_delete(ip4, address, 33), -ENOENT);
	assert_int_equal(fib_find(ip6, address, 255), 0);
	fib_destroy(ip4);
	fib_destroy(ip6);
}

static void
a_deleted_route_gives_its_addresses_back_to_the_one_that_covers_it(void **state)
{
	struct fib *fib = fib_create(FIB_IP4);
	static const uint8_t lengths[] = {0, 7, 8, 15, 16, 17, 23, 24, 25, 31, 32};
	uint8_t address[16] = {10, 1, 2, 3};
	unsigned count = sizeof(lengths);

	for (unsigned i = 0; i < count; i++)
		assert_int_equal(fib_put(fib, address, lengths[i], lengths[i] + 100), 0);
	for (unsigned i = count; i-- > 0;) {
		assert_int_equal(lookup(fib, address), lengths[i] + 100);
		assert_int_equal(fib_delete(fib, address, lengths[i]), 0);
	}
	assert_int_equal(lookup(fib, address), 0);
	fib_destroy(fib);
}

static void
the_writer_meets_each_prefix_once_by_length(void **state)
{
	struct fib *fib = fib_create(FIB_IP6);
	uint8_t address[16] = {0x20, 0x01, 0x0d, 0xb8}, found[16];
	uint64_t position = 0;
	unsigned length, last = 0, count = 0;
	uint32_t hop;

	for (unsigned i = 0; i < 100; i++) {
		address[7] = (uint8_t)i;
		assert_int_equal(fib_put(fib, address, 64, i + 1), 0);
	}
	assert_int_equal(fib_put(fib, address, 32, 500), 0);
	while ((hop = rib_next(&fib->rib, &position, found, &length)) != 0) {
		assert_true(length >= last);
		last = length;
		assert_int_equal(fib_find(fib, found, (uint8_t)length), hop);
		count++;
	}
	assert_int_equal(count, 101);
	fib_destroy(fib);
}

static void
a_hundred_thousand_prefixes_of_a_length_are_met_once_and_leave_no_memory_behind(void **state)
{
	enum { COUNT = 100000 };
	static bool met[COUNT + 1];
	uint8_t address[16] = {0}, found[16];
	uint64_t position = 0;
	uint32_t value, old;
	unsigned length;
	struct rib rib;

	assert_int_equal(rib_init(&rib), 0);
	for (uint32_t i = 1; i <= COUNT; i++) {
		memcpy(address, &(uint32_t){htonl(i << 8)}, sizeof(uint32_t));
		assert_int_equal(rib_put(&rib, address, 24, i, &old), 0);
		assert_int_equal(old, 0);
	}
	assert_int_equal(rib.count, COUNT);
	while ((value = rib_next(&rib, &position, found, &length)) != 0) {
		assert_int_equal(length, 24);
		assert_in_range(value, 1, COUNT);
		assert_false(met[value]);
		met[value] = true;
		assert_int_equal(rib_find(&rib, found, 24), value);
	}
	for (uint32_t i = 1; i <= COUNT; i++) {
		assert_true(met[i]);
		memcpy(address, &(uint32_t){htonl(i << 8)}, sizeof(uint32_t));
		assert_int_equal(rib_put(&rib, address, 24, i + 1, &old), 0);
		assert_int_equal(old, i);
		assert_int_equal(rib_delete(&rib, address, 24), i + 1);
		assert_int_equal(rib_find(&rib, address, 24), 0);
	}
	assert_int_equal(rib_memory(&rib), 0);
}

static void
a_lone_ip6_host_route_costs_no_ply_for_each_of_its_bytes(void **state)
{
	struct fib *fib = fib_create(FIB_IP6);
	size_t empty = fib_memory(fib);
	uint8_t address[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 1};

	assert_int_equal(fib_put(fib, address, 128, 9), 0);
	assert_in_range(fib_memory(fib), empty, empty + 200);
	assert_int_equal(fib6_lookup(fib, address), 9);
	address[15] = 2;
	assert_int_equal(fib6_lookup(fib, address), 0);
	fib_destroy(fib);
}

// A hop is 1000 times the index of its prefix here and something; the first two prefixes are always there.
static struct prefix shared[MODEL];
static unsigned shared_count;

static void *
read_until_told(void *argument)
{
	const struct fib *fib = argument;
	uint8_t addresses[FIB_BURST][16];
	uint32_t hops[FIB_BURST];
	uint64_t random = 1, wrong = 0;

	while (atomic_load(&rcu_reading)) {
		for (unsigned i = 0; i < FIB_BURST; i++) {
			random = random * 6364136223846793005 + 1442695040888963407;
			memcpy(addresses[i], shared[(random >> 33) % shared_count].address, 16);
			addresses[i][(random >> 20) % (bits_of(fib->family) / 8)] ^= (uint8_t)(random >> 50 & 1);
		}
		// In each way in turn, and the first instead of those that there are not.
		if (!lookup_bulk(
			    (unsigned)(random >> 40) % FIB_WAYS, fib, (const uint8_t(*)[16])addresses, hops, FIB_BURST))
			lookup_bulk(0, fib, (const uint8_t(*)[16])addresses, hops, FIB_BURST);
		for (unsigned i = 0; i < FIB_BURST; i++) {
			const struct prefix *p = &shared[hops[i] / 1000 % MODEL];

			if (hops[i] == 0 || hops[i] / 1000 >= shared_count || !covers(p, addresses[i]) ||
				(covers(&shared[1], addresses[i]) && p->length < shared[1].length))
				wrong++;
		}
		atomic_fetch_add(&rcu_round, 1);
	}
	return (void *)(uintptr_t)wrong; // NOLINT(performance-no-int-to-ptr)
}

static void
read_while_writing(enum fib_family family)
{
	struct fib *fib = fib_create(family);
	unsigned bits = bits_of(family), start, count = 0;
	static bool there[MODEL];
	pthread_t reader;
	void *wrong;

	memset(shared, 0, sizeof(shared));
	memset(there, 0, sizeof(there));
	shared[1].length = 12;
	shared[1].address[0] = 0x20;
	shared[1].address[1] = 0x20;
	for (shared_count = 2; shared_count < 300; shared_count++) {
		struct prefix *p = &shared[shared_count];

		random_address(p->address);
		p->address[0] = 0x20;
		p->length = (uint8_t)(1 + next_random() % bits);
		for (unsigned bit = p->length; bit < 128; bit++)
			p->address[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
		for (unsigned i = 0; i < shared_count; i++)
			if (shared[i].length == p->length && covers(&shared[i], p->address))
				p->length = 0; // one of them twice
		if (p->length == 0)
			shared_count--;
	}
	assert_int_equal(fib_put(fib, shared[0].address, 0, 1), 0);
	assert_int_equal(fib_put(fib, shared[1].address, shared[1].length, 1001), 0);
	atomic_store(&rcu_reading, true);
	start = atomic_load(&rcu_round);
	assert_int_equal(pthread_create(&reader, NULL, read_until_told, fib), 0);
	for (unsigned i = 0; i < 60000 || atomic_load(&rcu_round) - start < 200; i++) {
		unsigned k = (unsigned)(next_random() % shared_count);
		bool grow = i / 1000 % 2 == 0; // so that the root changes its size, too

		if (k < 2 || next_random() % 8 == 0 || (!there[k] && grow)) {
			assert_int_equal(fib_put(fib, shared[k].address, shared[k].length,
						 k * 1000 + (uint32_t)(next_random() % 999) + 1),
				0);
			count += k >= 2 && !there[k];
			there[k] = true;
		} else if (there[k] && !grow) {
			assert_int_equal(fib_delete(fib, shared[k].address, shared[k].length), 0);
			there[k] = false;
			count--;
		}
		assert_int_equal(fib->rib.count, count + 2);
	}
	atomic_store(&rcu_reading, false);
	assert_int_equal(pthread_join(reader, &wrong), 0);
	assert_null(wrong);
	rcu_release(true);
	fib_destroy(fib);
}

static void
a_reader_sees_only_hops_of_ip4_prefixes_that_cover_the_address(void **state)
{
	read_while_writing(FIB_IP4);
}

static void
a_reader_sees_only_hops_of_ip6_prefixes_that_cover_the_address(void **state)
{
	read_while_writing(FIB_IP6);
}

// Random enough, and found again by its number.
static void
address_number(uint32_t number, uint8_t address[16])
{
	uint64_t word = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);

	for (unsigned i = 0; i < 8; i++)
		address[i] = (uint8_t)(word >> 8 * i);
	memset(address + 8, 0, 8);
}

// So much more may this process write to than it can already.
static void
allow_more_memory(size_t bytes)
{
	FILE *status = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;
	struct rlimit limit;

	assert_non_null(status);
	assert_int_equal(fscanf(status, "%*s %*s %*s %*s %*s %lu", &pages), 1);
	fclose(status);
	assert_int_equal(getrlimit(RLIMIT_DATA, &limit), 0);
	limit.rlim_cur = bytes == SIZE_MAX ? limit.rlim_max : pages * (rlim_t)sysconf(_SC_PAGESIZE) + bytes;
	assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
}

static void
without_memory_a_new_prefix_is_refused_and_existing_ones_stay(void **state)
{
	struct fib *fib = fib_create(FIB_IP6);
	uint8_t address[16];
	uint32_t count = 0;
	int error = 0;

#ifdef __SANITIZE_ADDRESS__
	skip(); // its malloc() takes no refusal
#endif
	allow_more_memory(16 << 20);
	for (; count < 1 << 24; count++) {
		address_number(count, address);
		error = fib_put(fib, address, 64, count % FIB_HOP_MAX + 1);
		if (error != 0)
			break;
	}
	assert_int_equal(error, -ENOMEM);
	assert_int_equal(fib->rib.count, count);
	assert_int_equal(fib6_lookup(fib, address), 0);
	for (uint32_t i = 0; i < count; i++) {
		address_number(i, address);
		assert_int_equal(fib6_lookup(fib, address), i % FIB_HOP_MAX + 1);
	}
	for (uint32_t i = 0; i < count; i += 100) {
		address_number(i, address);
		assert_int_equal(fib_put(fib, address, 64, 7), 0);
		assert_int_equal(fib6_lookup(fib, address), 7);
	}
	for (uint32_t i = 0; i < count / 2; i++) {
		address_number(i, address);
		assert_int_equal(fib_delete(fib, address, 64), 0);
	}
	address_number(count, address);
	assert_int_equal(fib_put(fib, address, 64, 9), 0);
	assert_int_equal(fib6_lookup(fib, address), 9);
	allow_more_memory(SIZE_MAX);
	fib_destroy(fib);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_fib_has_no_route_and_costs_less_than_ten_kilobytes),
		cmocka_unit_test(a_length_past_the_family_s_and_a_hop_out_of_range_are_refused),
		cmocka_unit_test(a_deleted_route_gives_its_addresses_back_to_the_one_that_covers_it),
		cmocka_unit_test(the_writer_meets_each_prefix_once_by_length),
		cmocka_unit_test(a_hundred_thousand_prefixes_of_a_length_are_met_once_and_leave_no_memory_behind),
		cmocka_unit_test(a_lone_ip6_host_route_costs_no_ply_for_each_of_its_bytes),
		cmocka_unit_test(few_ip4_routes_answer_as_a_list_would_and_leave_no_memory_behind),
		cmocka_unit_test(few_ip6_routes_answer_as_a_list_would_and_leave_no_memory_behind),
		cmocka_unit_test(many_ip4_routes_answer_as_a_list_would_and_leave_no_memory_behind),
		cmocka_unit_test(many_ip6_routes_answer_as_a_list_would_and_leave_no_memory_behind),
		cmocka_unit_test(a_reader_sees_only_hops_of_ip4_prefixes_that_cover_the_address),
		cmocka_unit_test(a_reader_sees_only_hops_of_ip6_prefixes_that_cover_the_address),
		cmocka_unit_test(without_memory_a_new_prefix_is_refused_and_existing_ones_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
