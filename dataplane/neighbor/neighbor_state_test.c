// SPDX-License-Identifier: Apache-2.0
// The states of a neighbour (RFC 4861 sections 7.2.5 and 7.3.3), by a clock that the test turns.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "neighbor/neighbor_state.h"

#define T neighbor_times

static const uint64_t NOW = 1000000;

static const struct rte_ether_addr old_mac = {{2, 0, 0, 0, 0, 1}}, new_mac = {{2, 0, 0, 0, 0, 2}};

enum { SAME, OTHER, NO_MAC };

struct step {
	const char *what;
	uint8_t from;
	uint8_t event; // enum neighbor_event
	uint8_t mac;   // of an advertisement
	bool solicited, override;
	uint8_t to;
	uint8_t has; // the MAC it has then, by the above
	unsigned actions;
	uint64_t wait; // until the next deadline; 0: as it was
};

static void
each_event_in_each_state_follows_the_rfc(void **state)
{
	enum { W = NEIGHBOR_USED, TIMEOUT = NEIGHBOR_TIMEOUT, H = NEIGHBOR_HEARD, DOWN = NEIGHBOR_LINK_DOWN };
	enum {
		NONE = NEIGHBOR_NONE,
		INCOMPLETE = NEIGHBOR_INCOMPLETE,
		REACHABLE = NEIGHBOR_REACHABLE,
		STALE = NEIGHBOR_STALE,
		DELAY = NEIGHBOR_DELAY,
		PROBE = NEIGHBOR_PROBE,
		FAILED = NEIGHBOR_FAILED,
		STATIC = NEIGHBOR_STATIC,
	};
	const struct step steps[] = {
		{"a first packet asks all", NONE, W, SAME, 0, 0, INCOMPLETE, SAME, NEIGHBOR_ASK_ALL, T.retransmit},
		{"a failed one is tried again", FAILED, W, SAME, 0, 0, INCOMPLETE, SAME, NEIGHBOR_ASK_ALL,
			T.retransmit},
		{"further packets wait", INCOMPLETE, W, SAME, 0, 0, INCOMPLETE, SAME, 0, 0},
		{"use of a stale one starts the delay", STALE, W, SAME, 0, 0, DELAY, SAME, 0, T.delay_first_probe},
		{"use of a good one is nothing", REACHABLE, W, SAME, 0, 0, REACHABLE, SAME, 0, 0},
		{"nor of a delayed one", DELAY, W, SAME, 0, 0, DELAY, SAME, 0, 0},
		{"nor of a configured one", STATIC, W, SAME, 0, 0, STATIC, SAME, 0, 0},

		{"a good one grows stale", REACHABLE, TIMEOUT, SAME, 0, 0, STALE, SAME, 0, T.unused},
		{"a delay ends in a probe", DELAY, TIMEOUT, SAME, 0, 0, PROBE, SAME, NEIGHBOR_ASK_IT, T.retransmit},
		{"a stale one is forgotten", STALE, TIMEOUT, SAME, 0, 0, STALE, SAME, NEIGHBOR_FORGET, T.unused},
		{"a failed one, too", FAILED, TIMEOUT, SAME, 0, 0, NONE, SAME, NEIGHBOR_FORGET, UINT64_MAX},
		{"a configured one never", STATIC, TIMEOUT, SAME, 0, 0, STATIC, SAME, 0, 0},

		{"an answer resolves", INCOMPLETE, H, OTHER, 1, 1, REACHABLE, OTHER, 0, T.reachable},
		{"what was not asked for resolves, too", INCOMPLETE, H, OTHER, 0, 0, STALE, OTHER, 0, T.unused},
		{"not without a MAC", INCOMPLETE, H, NO_MAC, 1, 1, INCOMPLETE, SAME, 0, 0},
		{"a failed one that is heard of is back", FAILED, H, OTHER, 0, 1, STALE, OTHER, 0, T.unused},
		{"an unknown neighbour is not noted", NONE, H, OTHER, 1, 1, NONE, SAME, 0, 0},
		{"nor a configured one's", STATIC, H, OTHER, 1, 1, STATIC, SAME, 0, 0},

		{"a confirmation", STALE, H, SAME, 1, 0, REACHABLE, SAME, 0, T.reachable},
		{"a confirmation without MAC", PROBE, H, NO_MAC, 1, 0, REACHABLE, SAME, 0, T.reachable},
		{"a confirmation of the delayed", DELAY, H, SAME, 1, 1, REACHABLE, SAME, 0, T.reachable},
		{"nothing new", REACHABLE, H, SAME, 0, 1, REACHABLE, SAME, 0, 0},
		{"another MAC without override is doubted", REACHABLE, H, OTHER, 1, 0, STALE, SAME, 0, T.unused},
		{"and ignored in doubt", STALE, H, OTHER, 1, 0, STALE, SAME, 0, 0},
		{"also while probing", PROBE, H, OTHER, 1, 0, PROBE, SAME, 0, 0},
		{"another MAC with override, asked for", PROBE, H, OTHER, 1, 1, REACHABLE, OTHER, 0, T.reachable},
		{"another MAC with override, not asked for", REACHABLE, H, OTHER, 0, 1, STALE, OTHER, 0, T.unused},

		{"a link that went takes what was learned with it", REACHABLE, DOWN, SAME, 0, 0, NONE, SAME,
			NEIGHBOR_FORGET, UINT64_MAX},
		{"the doubtful, too", STALE, DOWN, SAME, 0, 0, NONE, SAME, NEIGHBOR_FORGET, UINT64_MAX},
		{"and what is asked after", PROBE, DOWN, SAME, 0, 0, NONE, SAME, NEIGHBOR_FORGET, UINT64_MAX},
		{"but leaves the configured", STATIC, DOWN, SAME, 0, 0, STATIC, SAME, 0, 0},
		{"and the unresolved", INCOMPLETE, DOWN, SAME, 0, 0, INCOMPLETE, SAME, 0, 0},
	};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		const struct step *s = &steps[i];
		struct neighbor_entry e = {.deadline = 5, .mac = old_mac, .state = s->from, .solicits = 1};
		const struct neighbor_advert a = {.mac = s->mac == OTHER ? new_mac : old_mac,
			.has_mac = s->mac != NO_MAC,
			.solicited = s->solicited,
			.override = s->override};
		unsigned actions = neighbor_next(&e, s->event, &a, NOW);
		uint64_t deadline = s->wait == 0 ? 5 : s->wait == UINT64_MAX ? UINT64_MAX : NOW + s->wait;

		if (e.state != s->to || actions != s->actions || e.deadline != deadline ||
			!rte_is_same_ether_addr(&e.mac, s->has == OTHER ? &new_mac : &old_mac))
			fail_msg("%s: state %u, actions %u, deadline %lu", s->what, e.state, actions, e.deadline);
	}
}

static void
who_asks_for_us_is_known_before_there_is_something_to_send(void **state)
{
	struct neighbor_entry e = {.state = NEIGHBOR_NONE, .deadline = UINT64_MAX};
	struct neighbor_advert a = {.mac = new_mac, .has_mac = true, .override = true, .creates = true};

	assert_int_equal(neighbor_next(&e, NEIGHBOR_HEARD, &a, NOW), 0);
	assert_int_equal(e.state, NEIGHBOR_STALE);
	assert_int_equal(e.deadline, NOW + T.unused);
	assert_true(rte_is_same_ether_addr(&e.mac, &new_mac));
	e = (struct neighbor_entry){.state = NEIGHBOR_NONE};
	a.has_mac = false;
	assert_int_equal(neighbor_next(&e, NEIGHBOR_HEARD, &a, NOW), 0);
	assert_int_equal(e.state, NEIGHBOR_NONE);
}

// Deadlines pass until the state changes: how many times each was asked.
static unsigned
asked(struct neighbor_entry *e, unsigned ask, uint64_t *now)
{
	uint8_t state = e->state;
	unsigned times = 0, actions;

	do {
		*now = e->deadline;
		actions = neighbor_next(e, NEIGHBOR_TIMEOUT, NULL, *now);
		times += (actions & ask) != 0;
	} while (e->state == state);
	assert_true(actions & NEIGHBOR_FAIL || state != e->state);
	return times;
}

static void
a_neighbor_that_never_answers_fails_after_three_solicitations(void **state)
{
	struct neighbor_entry e = {.state = NEIGHBOR_NONE};
	uint64_t now = NOW;

	assert_int_equal(neighbor_next(&e, NEIGHBOR_USED, NULL, now), NEIGHBOR_ASK_ALL);
	assert_int_equal(asked(&e, NEIGHBOR_ASK_ALL, &now), 2);
	assert_int_equal(e.state, NEIGHBOR_FAILED);
	assert_int_equal(now, NOW + 3 * T.retransmit);
}

static void
a_neighbor_that_went_fails_after_three_probes_to_it_alone(void **state)
{
	struct neighbor_entry e = {.state = NEIGHBOR_DELAY, .deadline = NOW};
	uint64_t now = NOW;

	assert_int_equal(neighbor_next(&e, NEIGHBOR_TIMEOUT, NULL, now), NEIGHBOR_ASK_IT);
	assert_int_equal(asked(&e, NEIGHBOR_ASK_IT, &now), 2);
	assert_int_equal(e.state, NEIGHBOR_FAILED);
	assert_false(neighbor_usable(e.state));
	assert_int_equal(now, NOW + 3 * T.retransmit);
}

static void
packets_are_sent_while_a_neighbor_is_doubted(void **state)
{
	assert_true(neighbor_usable(NEIGHBOR_REACHABLE));
	assert_true(neighbor_usable(NEIGHBOR_STALE));
	assert_true(neighbor_usable(NEIGHBOR_DELAY));
	assert_true(neighbor_usable(NEIGHBOR_PROBE));
	assert_true(neighbor_usable(NEIGHBOR_STATIC));
	assert_false(neighbor_usable(NEIGHBOR_NONE));
	assert_false(neighbor_usable(NEIGHBOR_INCOMPLETE));
	assert_false(neighbor_usable(NEIGHBOR_FAILED));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_event_in_each_state_follows_the_rfc),
		cmocka_unit_test(who_asks_for_us_is_known_before_there_is_something_to_send),
		cmocka_unit_test(a_neighbor_that_never_answers_fails_after_three_solicitations),
		cmocka_unit_test(a_neighbor_that_went_fails_after_three_probes_to_it_alone),
		cmocka_unit_test(packets_are_sent_while_a_neighbor_is_doubted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
