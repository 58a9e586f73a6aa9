// SPDX-License-Identifier: Apache-2.0
// Rate limits for answers to packets and for work that packets cause: ICMP errors, GTP-U responses, packets for the main thread.
//
// The generic cell rate algorithm (ITU-T I.371 section A): tokens are counted in the time that they take to come. A limit is
// full when its last token was spent a whole burst ago, and empty when its next token is still to come. So its state is one
// moment, and it is never brought up to date but when it is asked.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "core/worker.h"

// The tokens, for a TSC of `hz`: `burst` at once, and `a_second` in the long run. 0 of either passes nothing.
static inline bool
rate_spend_at(uint64_t *spent, uint32_t a_second, uint32_t burst, uint64_t now, uint64_t hz)
{
	uint64_t each, full, from = *spent;

	if (a_second == 0)
		return false;
	each = hz / a_second;
	full = each * burst;
	if (from + full < now)
		from = now - full;
	if (from + each > now)
		return false;
	*spent = from + each;
	return true;
}

// One worker's share of a limit of all workers in a second: equal parts, but at least one each.
static inline uint32_t
rate_share(uint32_t a_second)
{
	return a_second == 0 ? 0 : RTE_MAX(a_second / worker_count, 1u);
}
