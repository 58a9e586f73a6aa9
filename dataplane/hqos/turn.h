// SPDX-License-Identifier: Apache-2.0
// One call of hqos_dequeue(): turns of groups and subscribers, in which frames cost their length on the lines. This,
// run.h and short_queue.h are the parts of dequeue.c: a packet's whole path is compiled as one.
#pragma once

#include <rte_common.h>

#include "hqos/queue.h"

// Bytes of so many frames on a line. The line may add to each or, as one does that knows no Ethernet header, take away: but something
// is always left.
static inline uint32_t
on_line(uint32_t bytes, uint32_t frames, int32_t overhead)
{
	return (uint32_t)RTE_MAX((int32_t)bytes + (int32_t)frames * overhead, (int32_t)frames);
}

// Bytes of a frame on a subscriber's line.
static inline uint32_t
line_bytes(const struct hqos_profile *profile, uint32_t frame)
{
	uint32_t bytes = on_line(frame, 1, profile->overhead);

	return profile->cells ? (bytes + 47) / 48 * 53 : bytes;
}

struct turn {
	struct hqos_scheduler *s;
	struct rte_mbuf **packets;
	unsigned room, sent;
	unsigned looks; // that are left
	uint64_t now;
	int32_t *credit; // of the group
};

static inline bool
turn_goes_on(const struct turn *t)
{
	return t->sent < t->room && t->looks != 0 && t->s->dropped_count < HQOS_BURST &&
	       pace_conforms(&t->s->peak, t->s->paid, t->now);
}
