// SPDX-License-Identifier: Apache-2.0
// The work of preparing lists is bounded for any rules: counted, not timed.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <rte_common.h>

#include "acl/crossing.h"
#include "acl/cuts.h"

enum { WORDS = 6, RULES = 60000, TREE_PARTS = 16384 };

static uint64_t seed;

static uint32_t
chance(uint32_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((seed >> 32) % below);
}

static const uint32_t most[WORDS] = {63, 3, UINT32_MAX, UINT32_MAX, UINT16_MAX, UINT16_MAX};
static const unsigned order[WORDS] = {0, 1, 2, 3, 4, 5};

static void
everything(struct cuts_rule *rule, size_t index)
{
	*rule = (struct cuts_rule){.verdict = (uint32_t)(index + 1) << 1};
	memcpy(rule->high, most, sizeof(most));
}

static void
prefix(struct cuts_rule *rule, unsigned d, uint32_t base, unsigned length)
{
	uint32_t open = (uint32_t)(UINT64_C(0xffffffff) >> length);

	rule->low[d] = base & ~open;
	rule->high[d] = base | open;
}

static void
range(struct cuts_rule *rule, unsigned d, uint32_t low, uint32_t wide)
{
	rule->low[d] = RTE_MIN(low, most[d]);
	rule->high[d] = RTE_MIN(low + wide, most[d]);
}

// Ranges that each cross nearly all others, in both ports.
static void
staggered_ports(struct cuts_rule *rule, size_t i)
{
	range(rule, 4, (uint32_t)i * 100 % 35000, 30000);
	range(rule, 5, (uint32_t)i * 77 % 35000, 30000);
	rule->marks = (uint32_t)(i % 64) << 8;
	rule->marks_mask = 0x3f << 8;
}

static void
random_ports(struct cuts_rule *rule, size_t i)
{
	range(rule, 4, chance(65536), chance(65536));
	range(rule, 5, chance(65536), chance(65536));
}

// Each in the one before, as far as there are any, on both sides.
static void
nested_prefixes(struct cuts_rule *rule, size_t i)
{
	prefix(rule, 2, 0x0a000000, chance(33));
	prefix(rule, 3, 0x0a000000, chance(33));
	random_ports(rule, i);
}

static void
random_everything(struct cuts_rule *rule, size_t i)
{
	rule->low[0] = rule->high[0] = chance(4);
	prefix(rule, 2, chance(UINT32_MAX), chance(33));
	prefix(rule, 3, chance(UINT32_MAX), chance(33));
	random_ports(rule, i);
}

// Rules of one side each, which a tree of both has many times.
static void
one_side(struct cuts_rule *rule, size_t i)
{
	unsigned d = 2 + chance(4);

	if (d < 4)
		prefix(rule, d, chance(UINT32_MAX), 8 + chance(25));
	else
		range(rule, d, chance(65536), chance(3000));
}

static void
flags(struct cuts_rule *rule, size_t i)
{
	rule->marks_mask = (chance(256) << 16) | (chance(2) ? 0x3f << 8 : 0);
	rule->marks = chance(UINT32_MAX) & rule->marks_mask;
}

static void (*const shapes[])(struct cuts_rule *rule, size_t i) = {
	staggered_ports, random_ports, nested_prefixes, random_everything, one_side, flags};

static void
make(struct cuts_rule *rules, size_t count, unsigned shape)
{
	seed = shape + 1;
	for (size_t i = 0; i < count; i++) {
		everything(&rules[i], i);
		shapes[shape](&rules[i], i);
	}
}

static void
cutting_is_bounded_for_rules_tangled_in_any_way(void **state)
{
	static const size_t counts[] = {64, 256, 2000, RULES};
	struct cuts_rule *rules = malloc(RULES * sizeof(*rules));

	assert_non_null(rules);
	for (unsigned shape = 0; shape < RTE_DIM(shapes); shape++) {
		for (unsigned c = 0; c < RTE_DIM(counts); c++) {
			struct cuts *cuts = NULL;
			int error;

			make(rules, counts[c], shape);
			error = cuts_create(rules, counts[c], WORDS, NULL, &cuts);
			if (error) {
				// Then the cost of a packet was the limit.
				assert_int_equal(error, -E2BIG);
				assert_true(counts[c] > CUTS_CELL);
				continue;
			}
			// Far below where it would be given up.
			assert_in_range(cuts_work(cuts), 0, CUTS_WORK / 2);
			cuts_destroy(cuts);
		}
	}
	free(rules);
}

static void
the_same_find_the_rule_that_a_walk_finds(void **state)
{
	static struct cuts_rule rules[256];

	for (unsigned shape = 0; shape < RTE_DIM(shapes); shape++) {
		uint32_t keys[256][CUTS_WORDS] = {0}, found[256];
		struct cuts *cuts;

		make(rules, RTE_DIM(rules), shape);
		assert_int_equal(cuts_create(rules, RTE_DIM(rules), WORDS, NULL, &cuts), 0);
		for (unsigned k = 0; k < RTE_DIM(keys); k++) {
			for (unsigned d = 0; d < WORDS; d++)
				keys[k][d] = most[d] == UINT32_MAX ? (chance(2) ? 0x0a000000 : chance(UINT32_MAX))
								   : chance(most[d] + 1);
			keys[k][0] = chance(4);
			keys[k][WORDS] = keys[k][0] | keys[k][1] << 6 | chance(UINT32_MAX) << 8;
		}
		cuts_find(cuts, keys, RTE_DIM(keys), found);
		for (unsigned k = 0; k < RTE_DIM(keys); k++) {
			uint32_t expected = 0;

			for (unsigned i = 0; i < RTE_DIM(rules) && !expected; i++) {
				bool match = (keys[k][WORDS] & rules[i].marks_mask) == rules[i].marks;

				for (unsigned d = 0; d < WORDS; d++)
					match &= rules[i].low[d] <= keys[k][d] && keys[k][d] <= rules[i].high[d];
				expected = match ? rules[i].verdict : 0;
			}
			assert_int_equal(found[k], expected);
		}
		cuts_destroy(cuts);
	}
}

static void
an_unwanted_list_is_not_finished(void **state)
{
	static struct cuts_rule rules[256];
	atomic_bool unwanted = true;
	struct cuts *cuts = NULL;

	make(rules, RTE_DIM(rules), 0);
	assert_int_equal(cuts_create(rules, RTE_DIM(rules), WORDS, &unwanted, &cuts), -ECANCELED);
	assert_null(cuts);
}

static void
parts_are_those_that_the_ends_of_rules_make(void **state)
{
	struct cuts_rule rules[2];

	for (unsigned i = 0; i < 2; i++)
		everything(&rules[i], i);
	assert_int_equal(crossing_parts(rules, 2, order, WORDS, TREE_PARTS), 1);
	// Two that cross make three parts of one dimension, of which the middle one has both.
	range(&rules[0], 4, 0, 100);
	range(&rules[1], 4, 50, 100);
	assert_int_equal(crossing_parts(rules, 2, order, WORDS, TREE_PARTS), 3);
	range(&rules[0], 5, 0, 100);
	range(&rules[1], 5, 50, 100);
	assert_int_equal(crossing_parts(rules, 2, order, WORDS, TREE_PARTS), 1 + 3 + 1);
	// Two code points and all others; each flag set or not.
	rules[0].marks_mask = rules[1].marks_mask = 0x3f << 8;
	rules[1].marks = 7 << 8;
	assert_int_equal(crossing_parts(rules, 2, order, WORDS, TREE_PARTS), 2 + 2 + 3 + 2 + 2);
	rules[0].marks_mask |= 3 << 16;
	assert_int_equal(crossing_parts(rules, 2, order, WORDS, TREE_PARTS), 8 + 8 + 12 + 2 + 2);
}

static void
rules_that_cross_make_many_parts_and_those_of_a_block_list_few(void **state)
{
	static struct cuts_rule rules[CROSSING_RULES];

	for (unsigned shape = 0; shape < 3; shape++) {
		make(rules, RTE_DIM(rules), shape);
		assert_true(crossing_parts(rules, RTE_DIM(rules), order, WORDS, TREE_PARTS) >= TREE_PARTS);
	}
	make(rules, 64, 0);
	assert_true(crossing_parts(rules, 64, order, WORDS, TREE_PARTS) >= TREE_PARTS);
	for (size_t i = 0; i < 150; i++) {
		everything(&rules[i], i);
		prefix(&rules[i], 2, chance(UINT32_MAX), 32);
		prefix(&rules[i], 3, chance(UINT32_MAX), 32);
		range(&rules[i], 4, chance(60000), chance(5000));
	}
	assert_in_range(crossing_parts(rules, 150, order, WORDS, TREE_PARTS), 150, 450);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cutting_is_bounded_for_rules_tangled_in_any_way),
		cmocka_unit_test(the_same_find_the_rule_that_a_walk_finds),
		cmocka_unit_test(an_unwanted_list_is_not_finished),
		cmocka_unit_test(parts_are_those_that_the_ends_of_rules_make),
		cmocka_unit_test(rules_that_cross_make_many_parts_and_those_of_a_block_list_few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
