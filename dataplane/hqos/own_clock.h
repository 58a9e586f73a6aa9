// SPDX-License-Identifier: Apache-2.0
// A scheduler on a clock of the tests, with packets into it and out of it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "hqos/model.h"
#include "hqos/scheduler.h"

enum { BUFFERS = 16384, GROUPS = MODEL_GROUPS, SUBSCRIBERS = MODEL_SUBSCRIBERS };

static const uint64_t HZ = 2000000000;
static const uint64_t STEP = 20000; // cycles: 10 microseconds

extern struct hqos_scheduler *s;
extern uint64_t now; // cycles
extern struct hqos_profile profiles[SUBSCRIBERS];
extern struct hqos_group_profile group_profiles[GROUPS];
extern struct rte_mbuf *spare[BUFFERS]; // that are free
extern unsigned spare_count;
extern uint64_t sent[SUBSCRIBERS][HQOS_CLASSES]; // bytes; tests clear it

// Each test runs three times: the packets of none, of all or of the first four classes may wait as a few.
#define EACH_WAY(test) \
	cmocka_unit_test_setup_teardown(test, start_with_none, end), \
		cmocka_unit_test_setup_teardown(test, start_with_few, end), \
		cmocka_unit_test_setup_teardown(test, start_with_wide, end)

int start_with_none(void **state);
int start_with_few(void **state);
int start_with_wide(void **state);
// All over again, in the same way. Profiles are of no rates and of weight 1; there are no groups nor subscribers yet.
int start(void **state);
// Fails unless the sum of the groups' counters equals the scheduler's counters.
int end(void **state);
// Below the limit, and the same in each run.
extern uint64_t seed;
uint64_t chance(uint64_t limit);

// So many subscribers with profiles of their own in group 0.
void one_group(unsigned subscribers);
// Prepares a subscriber's profile for the mode of this run. Call it after each change of the profile.
void finish(uint32_t subscriber);
// A packet whose bytes say whose it is. False: it was not taken.
bool put(uint32_t subscriber, uint8_t class, uint32_t bytes);
// Send packets whose turn it is. Their buffers are free again.
unsigned get(struct rte_mbuf **packets, unsigned room);
// Keep every class in `classes` of the subscribers backlogged for so long, and add each one's bytes to `sent`. The
// worker comes every ten microseconds, give or take five.
void run_cycles(unsigned subscribers, uint8_t classes, uint32_t bytes, uint64_t cycles);
void run(unsigned subscribers, uint8_t classes, uint32_t bytes, unsigned milliseconds);
// The packets that a subscriber sent, as in `sent`.
uint64_t of(unsigned subscriber);

void assert_near(uint64_t found, double expected, double tolerance);
