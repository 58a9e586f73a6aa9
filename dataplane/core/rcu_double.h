// SPDX-License-Identifier: Apache-2.0
// For unit tests of tables: rcu_retire() without workers. While `rcu_reading` is set, memory waits until that thread
// passed two quiescent states; else it is released at once. Define nothing else by this name.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "core/rcu.h"

static struct {
	void (*release)(void *);
	void *memory;
	unsigned round;
} * rcu_waiting;
static size_t rcu_first, rcu_count, rcu_room;
static atomic_bool rcu_reading;
static atomic_uint rcu_round; // the reader adds one between two bursts

static void
rcu_release(bool all)
{
	unsigned now = atomic_load(&rcu_round);

	while (rcu_first < rcu_count && (all || now - rcu_waiting[rcu_first].round >= 2)) {
		rcu_waiting[rcu_first].release(rcu_waiting[rcu_first].memory);
		rcu_first++;
	}
	if (rcu_first == rcu_count) {
		free(rcu_waiting);
		rcu_waiting = NULL;
		rcu_first = rcu_count = rcu_room = 0;
	}
}

void
rcu_retire(void (*release)(void *), void *memory)
{
	if (!atomic_load(&rcu_reading)) {
		release(memory);
		return;
	}
	if (rcu_count == rcu_room) {
		rcu_room = rcu_room == 0 ? 64 : rcu_room * 2;
		rcu_waiting = realloc(rcu_waiting, rcu_room * sizeof(*rcu_waiting));
		if (rcu_waiting == NULL)
			abort();
	}
	rcu_waiting[rcu_count].release = release;
	rcu_waiting[rcu_count].memory = memory;
	rcu_waiting[rcu_count++].round = atomic_load(&rcu_round);
	rcu_release(false);
}
