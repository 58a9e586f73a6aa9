// SPDX-License-Identifier: Apache-2.0
// The order of steps, beside those of all concepts.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "session/spec.h"
#include "session/step.h"

enum { EARLY = 101, MIDDLE, LATE, LAST };

static bool downlink; // packets for the subscriber take the steps, too
static struct fault f;

static int
need(const Sluice__V1__Session *spec, void *part, struct fault *fault)
{
	return 0;
}

static const char *
field(const void *part, enum direction direction)
{
	return direction == UP || downlink ? "test" : NULL;
}

static void
publish(uint32_t session, const void *part)
{
}

static struct node early_node = {.id = EARLY}, middle_node = {.id = MIDDLE}, late_node = {.id = LATE},
		   last_node = {.id = LAST};
static const char *const after_early[] = {"z-early", "not-registered", NULL}, *const after_middle[] = {
										      "m-middle", "hqos", NULL};
// By name they would be the other way about.
static struct session_step early = {.order = {.name = "z-early"},
				   .node = {&early_node, &early_node},
				   .need = need,
				   .field = field,
				   .publish = publish},
			   middle = {.order = {.name = "m-middle", .after = after_early},
				   .node = {&middle_node, &middle_node},
				   .need = need,
				   .field = field,
				   .publish = publish},
			   late = {.order = {.name = "a-late", .after = after_middle},
				   .node = {&late_node, &late_node},
				   .need = need,
				   .field = field,
				   .publish = publish};

static const struct session_access access_;
static const struct session_spec packets = {.key = {.access = &access_}},
				 frames = {.key = {.access = &access_}, .frames = "test.ethernet"};

static void
assert_steps(uint32_t chain)
{
	static const uint16_t steps[] = {EARLY, MIDDLE, LATE, LAST};

	for (unsigned i = 0; i < RTE_DIM(steps); i++, chain = chain_steps[chain].rest)
		assert_int_equal(chain_steps[chain].node, steps[i]);
	assert_int_equal(chain, 0);
}

static void
steps_are_in_the_order_that_they_are_registered_with(void **state)
{
	Sluice__V1__Session spec = SLUICE__V1__SESSION__INIT;
	struct session_parts parts;

	session_step_register(&late);
	session_step_register(&early);
	session_step_register(&middle);
	assert_int_equal(session_steps_start(), 0);
	assert_int_equal(session_steps_need(&spec, &packets, &parts, &f), 0);
	assert_steps(session_steps_chain(&parts, UP, &last_node, NULL));
	assert_int_equal(session_steps_chain(&parts, DOWN, &last_node, NULL), LAST);
	downlink = true;
	assert_steps(session_steps_chain(&parts, DOWN, &last_node, NULL));
}

static void
a_step_that_does_not_take_frames_is_refused_for_them(void **state)
{
	Sluice__V1__Session spec = SLUICE__V1__SESSION__INIT;
	struct session_parts parts;

	assert_int_equal(session_steps_need(&spec, &frames, &parts, &f), -EINVAL);
	assert_non_null(strstr(f.text, "policy.test: a session of type Ethernet (test.ethernet)"));
	early.frames = middle.frames = late.frames = true;
	assert_int_equal(session_steps_need(&spec, &frames, &parts, &f), 0);
}

static void
steps_that_come_before_each_other_are_refused_at_start(void **state)
{
	static const char *const after[] = {"a-late", NULL}, *const before[] = {"z-early", NULL};

	early.order.after = after;
	assert_int_equal(session_steps_start(), -ELOOP);
	early.order.after = NULL;
	late.order.before = before;
	assert_int_equal(session_steps_start(), -ELOOP);
	late.order.before = NULL;
	assert_int_equal(session_steps_start(), 0);
}

static void
a_step_may_name_those_behind_it(void **state)
{
	static const char *const before[] = {"m-middle", "none", NULL};
	Sluice__V1__Session spec = SLUICE__V1__SESSION__INIT;
	struct session_parts parts;

	middle.order.after = NULL;
	early.order.before = before;
	assert_int_equal(session_steps_start(), 0);
	assert_int_equal(session_steps_need(&spec, &packets, &parts, &f), 0);
	assert_steps(session_steps_chain(&parts, UP, &last_node, NULL));
	early.order.before = NULL;
	middle.order.after = after_early;
	assert_int_equal(session_steps_start(), 0);
}

static void
parts_that_do_not_fit_are_refused_at_start(void **state)
{
	late.size = SESSION_PARTS_SIZE;
	assert_int_equal(session_steps_start(), -ENOSPC);
	late.size = 0;
	assert_int_equal(session_steps_start(), 0);
}

static void
words_of_steps_do_not_overlap_and_those_that_do_not_fit_are_refused_at_start(void **state)
{
	early.words = 1;
	late.words = SESSION_STEP_WORDS;
	assert_int_equal(session_steps_start(), -ENOSPC);
	late.words = 1;
	assert_int_equal(session_steps_start(), 0);
	assert_int_not_equal(early.place, late.place);
	assert_true(early.place < SESSION_STEP_WORDS && late.place < SESSION_STEP_WORDS);
	early.words = late.words = 0;
	assert_int_equal(session_steps_start(), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_are_in_the_order_that_they_are_registered_with),
		cmocka_unit_test(a_step_that_does_not_take_frames_is_refused_for_them),
		cmocka_unit_test(steps_that_come_before_each_other_are_refused_at_start),
		cmocka_unit_test(a_step_may_name_those_behind_it),
		cmocka_unit_test(parts_that_do_not_fit_are_refused_at_start),
		cmocka_unit_test(words_of_steps_do_not_overlap_and_those_that_do_not_fit_are_refused_at_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
