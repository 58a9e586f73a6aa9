// SPDX-License-Identifier: Apache-2.0
// A timing wheel: its start, and the search for due ids.
#include "hqos/wheel.h"

#include <string.h>

void
wheel_start(struct wheel *wheel, struct chunks *chunks, uint64_t now)
{
	memset(wheel, 0, sizeof(*wheel));
	wheel->chunks = chunks;
	wheel->now = now >> WHEEL_SLOT_SHIFT;
}

int
wheel_due(struct wheel *wheel, uint64_t now)
{
	uint64_t end = (now >> WHEEL_SLOT_SHIFT) + 1;

	if (wheel->waiting == 0) {
		if ((int64_t)(end - wheel->now) > 0)
			wheel->now = end;
		return -1;
	}
	// After a long silence one time round is enough to find everything.
	if ((int64_t)(end - wheel->now) > WHEEL_SLOTS)
		wheel->now = end - WHEEL_SLOTS;
	while ((int64_t)(end - wheel->now) > 0) {
		unsigned slot = wheel->now % WHEEL_SLOTS;
		uint64_t word = wheel->occupied[slot / 64] >> slot % 64;

		if (word & 1)
			return (int)slot;
		if (word == 0) {
			uint64_t next = (wheel->now | 63) + 1;

			wheel->now = (int64_t)(end - next) > 0 ? next : end;
		} else {
			uint64_t next = wheel->now + (unsigned)__builtin_ctzll(word);

			wheel->now = (int64_t)(end - next) > 0 ? next : end;
		}
	}
	return -1;
}
