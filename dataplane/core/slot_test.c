// SPDX-License-Identifier: Apache-2.0
// Slots of packets that concepts own.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/one_node.h"

static struct packet_slot small = {.name = "small", .size = 1}, wide = {.name = "wide", .size = 16},
			  word = {.name = "word", .size = 8};

static void
slots_do_not_overlap_and_are_aligned(void **state)
{
	struct rte_mbuf *m = one_node_packet("x", 1);

	packet_slot_register(&small);
	packet_slot_register(&wide);
	packet_slot_register(&word);
	assert_int_equal(packet_slots_start(), 0);
	memset(packet_slot(m, &wide), 1, wide.size);
	memset(packet_slot(m, &word), 2, word.size);
	memset(packet_slot(m, &small), 3, small.size);
	for (unsigned i = 0; i < wide.size; i++)
		assert_int_equal(((uint8_t *)packet_slot(m, &wide))[i], 1);
	for (unsigned i = 0; i < word.size; i++)
		assert_int_equal(((uint8_t *)packet_slot(m, &word))[i], 2);
	assert_int_equal(*(uint8_t *)packet_slot(m, &small), 3);
	assert_int_equal((uintptr_t)packet_slot(m, &word) % word.size, 0);
	assert_true((uint8_t *)packet_slot(m, &small) >= (uint8_t *)(packet_of(m) + 1));
	assert_true((uint8_t *)packet_slot(m, &small) < rte_pktmbuf_mtod(m, uint8_t *));
	free(m);
}

static void
more_bytes_than_a_line_has_are_refused_at_start(void **state)
{
	static struct packet_slot more[4];

	for (unsigned i = 0; i < RTE_DIM(more); i++) {
		more[i] = (struct packet_slot){.name = "more", .size = 16};
		packet_slot_register(&more[i]);
	}
	assert_int_equal(packet_slots_start(), -ENOSPC);
}

static void
a_slot_of_an_odd_size_is_refused_at_start(void **state)
{
	static struct packet_slot odd = {.name = "odd", .size = 3};

	packet_slot_register(&odd);
	assert_int_equal(packet_slots_start(), -EINVAL);
}

static void
flags_of_concepts_are_bits_of_their_own_and_clear_in_a_new_packet(void **state)
{
	// Together with those of flows and IPsec: all that there are bits for.
	static struct packet_flag flags[7];
	struct rte_mbuf *m = one_node_packet("x", 1);
	unsigned all = PACKET_FLAGS_OWN - 1;

	for (unsigned i = 0; i < RTE_DIM(flags); i++) {
		flags[i].name = "test-flag";
		packet_flag_register(&flags[i]);
	}
	assert_int_equal(packet_slots_start(), 0);
	for (unsigned i = 0; i < RTE_DIM(flags); i++) {
		assert_int_equal(packet_of(m)->flags & flags[i].mask, 0);
		assert_int_equal(__builtin_popcount(flags[i].mask), 1);
		assert_int_equal(all & flags[i].mask, 0);
		all |= flags[i].mask;
		packet_of(m)->flags |= flags[i].mask;
	}
	assert_int_equal(packet_of(m)->flags | (PACKET_FLAGS_OWN - 1), all);
	packet_reset(m);
	assert_int_equal(packet_of(m)->flags, 0);
	free(m);
}

static void
more_flags_than_there_are_bits_are_refused_at_start(void **state)
{
	static struct packet_flag more = {.name = "more"};

	packet_flag_register(&more);
	assert_int_equal(packet_slots_start(), -ENOSPC);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slots_do_not_overlap_and_are_aligned),
		cmocka_unit_test(flags_of_concepts_are_bits_of_their_own_and_clear_in_a_new_packet),
		cmocka_unit_test(more_flags_than_there_are_bits_are_refused_at_start),
		cmocka_unit_test(more_bytes_than_a_line_has_are_refused_at_start),
		cmocka_unit_test(a_slot_of_an_odd_size_is_refused_at_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
