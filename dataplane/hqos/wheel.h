// SPDX-License-Identifier: Apache-2.0
// A timing wheel (Varghese and Lauck 1987, scheme 6) of ids that wait for a moment. A slot is a stack of ids in chunks. The record of an
// id has its place, so that it can be moved to another moment without a search.
//
// An id that waits for a moment beyond the wheel's reach is put into the slot that comes last, and put in again from there.
#pragma once

#include "hqos/chunk.h"
#include "hqos/pace.h"

enum {
	WHEEL_SLOTS = 8192,
	// Ticks of a slot, as a power of two: 2^15 cycles, 16 microseconds at 2 GHz. The reach is 134 milliseconds then.
	WHEEL_SLOT_SHIFT = 15 + TICK_SHIFT,
	NOT_WAITING = UINT32_MAX,
};

struct wheel {
	struct chunks *chunks;
	uint64_t now; // the slot that is next to be emptied, not reduced to the number of slots
	uint32_t waiting;
	uint64_t occupied[WHEEL_SLOTS / 64];
	struct wheel_slot {
		uint32_t top; // chunk
		uint32_t count;
	} slots[WHEEL_SLOTS];
};

// The place of an id: its slot and its position in it, counted from the bottom. Stored in the record of the id, packed.
struct place {
	uint32_t chunk; // or NOT_WAITING
	uint16_t slot;
	uint8_t at;
} __attribute__((packed));

static inline unsigned
wheel_slot_of(const struct wheel *wheel, uint64_t when)
{
	uint64_t slot = (when + (1ull << WHEEL_SLOT_SHIFT) - 1) >> WHEEL_SLOT_SHIFT;
	int64_t ahead = (int64_t)(slot - wheel->now);

	if (ahead < 0)
		slot = wheel->now;
	else if (ahead >= WHEEL_SLOTS)
		slot = wheel->now + WHEEL_SLOTS - 1;
	return slot % WHEEL_SLOTS;
}

// `place` is the address of the id's own place.
static inline void
wheel_insert(struct wheel *wheel, uint32_t id, struct place *place, unsigned number)
{
	struct wheel_slot *slot = &wheel->slots[number];
	unsigned at = slot->count % CHUNK_IDS;

	if (at == 0) {
		uint32_t chunk = chunk_take(wheel->chunks);

		wheel->chunks->all[chunk].previous = slot->count == 0 ? NO_CHUNK : slot->top;
		slot->top = chunk;
		wheel->occupied[number / 64] |= 1ull << number % 64;
	}
	slot->count++;
	wheel->waiting++;
	wheel->chunks->all[slot->top].ids[at] = id;
	*place = (struct place){slot->top, (uint16_t)number, (uint8_t)at};
}

// Take the id off the top of a slot that is not empty.
static inline uint32_t
wheel_pop(struct wheel *wheel, unsigned number)
{
	struct wheel_slot *slot = &wheel->slots[number];
	unsigned at = --slot->count % CHUNK_IDS;
	uint32_t chunk = slot->top, id = wheel->chunks->all[chunk].ids[at];

	wheel->waiting--;
	if (at == 0) {
		slot->top = wheel->chunks->all[chunk].previous;
		chunk_give(wheel->chunks, chunk);
		if (slot->count == 0)
			wheel->occupied[number / 64] &= ~(1ull << number % 64);
	}
	return id;
}

// The next slot that has something in it and whose moment has come, or -1. It moves the wheel on.
int wheel_due(struct wheel *wheel, uint64_t now);
void wheel_start(struct wheel *wheel, struct chunks *chunks, uint64_t now);
