// SPDX-License-Identifier: Apache-2.0
// Dropping before a queue is full: random early detection by colour (WRED; Floyd and Jacobson 1993), and CoDel (RFC 8289).
#pragma once

#include "hqos/scheduler.h"

// A fast generator is enough to spread drops (xorshift, Marsaglia 2003).
static inline uint32_t
hqos_random(uint32_t *state)
{
	uint32_t x = *state;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return *state = x;
}

// Whether a packet of this colour (0 green, 1 yellow, 2 red) is to be dropped before it joins the others.
static inline bool
hqos_wred_drops(struct hqos_queue *queue, const struct hqos_class_profile *profile, unsigned colour, uint32_t *random)
{
	int64_t average = queue->average, sample = (int64_t)queue->count << 16;
	uint32_t min = profile->wred_min[colour], max = profile->wred_max[colour];

	average += (sample - average) >> profile->wred_shift;
	// An empty queue has no past: else the first packets after a silence would pay for those before it.
	if (queue->count == 0)
		average = 0;
	queue->average = (uint32_t)average;
	if (average < (int64_t)min << 16)
		return false;
	if (average >= (int64_t)max << 16)
		return true;
	// From 0 at the minimum to wred_probability at the maximum.
	return hqos_random(random) < (uint64_t)profile->wred_probability * (uint64_t)(average - ((int64_t)min << 16)) /
					     ((uint64_t)(max - min) << 16);
}

// The square root by which CoDel's control law divides its interval, of a count of drops.
static inline uint32_t
hqos_codel_next(uint32_t from, uint32_t interval, uint32_t count)
{
	return from + (uint32_t)((float)interval / __builtin_sqrtf((float)(count ? count : 1)));
}

// Whether the packet at the head of a queue, which has waited since `arrived`, is dropped (RFC 8289 section 5). Instead of the RFC's
// count at the start of the last episode, the state has the number of drops in it.
static inline bool
hqos_codel_drops(struct hqos_queue *queue, struct hqos_codel *codel, unsigned class,
	const struct hqos_class_profile *profile, uint32_t arrived, uint32_t now)
{
	enum { COUNT_MAX = 0x7fff };
	uint32_t *next = &codel->next[class], above = queue->average;
	uint8_t *episode = &codel->episode[class];
	bool too_long = false;

	if ((int32_t)(now - arrived) < (int32_t)profile->codel_target || queue->count == 0)
		above = 0;
	else if (above == 0)
		above = (now + profile->codel_interval) | 1; // 0 means none
	else
		too_long = (int32_t)(now - above) >= 0;
	queue->average = above;
	if (queue->codel_drops) {
		if (!too_long) {
			queue->codel_drops = false;
			return false;
		}
		if ((int32_t)(now - *next) < 0)
			return false;
		if (queue->codel_count < COUNT_MAX)
			queue->codel_count++;
		*episode = (uint8_t)RTE_MIN(*episode + 1, UINT8_MAX);
		*next = hqos_codel_next(*next, profile->codel_interval, queue->codel_count);
		return true;
	}
	if (!too_long)
		return false;
	queue->codel_drops = true;
	// Soon after the last time, the rate of drops that was right then is a good start.
	queue->codel_count =
		*episode > 1 && (int32_t)(now - *next) < (int32_t)(16 * profile->codel_interval) ? *episode : 1;
	*episode = 0;
	*next = hqos_codel_next(now, profile->codel_interval, queue->codel_count);
	return true;
}
