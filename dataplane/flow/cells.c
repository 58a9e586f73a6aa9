// SPDX-License-Identifier: Apache-2.0
#include "flow/cells.h"

#include <errno.h>

#include "core/rcu.h"
#include "core/slab.h"
#include "flow/flow.h"

static const uint64_t COUNTS = UINT64_C(1) << 56;

struct counters flow_counters;
uint64_t *flow_cells;

int
flow_cells_start(void)
{
	flow_cells = slab_reserve(sizeof(*flow_cells) * SESSION_LIMIT);
	if (!flow_cells)
		return -ENOMEM;
	return counters_create(&flow_counters, sizeof(struct flow_counters), SESSION_LIMIT * FLOW_CELLS);
}

static unsigned
qfi_of(uint64_t cells, unsigned cell)
{
	return (unsigned)(cells >> 8 * cell & 0xff);
}

void
flow_cells_follow(uint32_t session, uint64_t listed)
{
	uint64_t before = flow_cells[session], cells = COUNTS;

	for (unsigned i = 0; i < SESSION_FLOWS; i++) {
		uint64_t qfi = qfi_of(before, i);

		if (qfi && listed >> (qfi - 1) & 1) {
			cells |= qfi << 8 * i;
			listed &= ~(UINT64_C(1) << (qfi - 1));
		}
	}
	__atomic_store_n(&flow_cells[session], cells, __ATOMIC_RELEASE);
	// A worker may still count the flow that had a cell.
	if (listed && (before & ~cells) != 0)
		rcu_wait();
	for (unsigned i = 0; i < SESSION_FLOWS && listed; i++) {
		uint64_t qfi = (uint64_t)__builtin_ctzll(listed) + 1;

		if (qfi_of(cells, i))
			continue;
		counters_clear(&flow_counters, session * FLOW_CELLS + i);
		cells |= qfi << 8 * i;
		listed &= listed - 1;
	}
	__atomic_store_n(&flow_cells[session], cells, __ATOMIC_RELEASE);
}

void
flow_cells_follow_all(uint32_t profile, uint64_t listed)
{
	for (uint32_t session = 0; session < sessions.used; session++)
		if (flow_cells[session] & COUNTS && session_flows[session] == profile)
			flow_cells_follow(session, listed);
}

void
flow_cells_end(uint32_t session)
{
	__atomic_store_n(&flow_cells[session], 0, __ATOMIC_RELEASE);
}

unsigned
flow_cells_read(uint32_t session, struct session_flow flows[SESSION_FLOWS])
{
	uint64_t cells = flow_cells[session];
	unsigned count = 0;

	for (unsigned i = 0; i < SESSION_FLOWS; i++) {
		struct flow_counters c;

		if (!qfi_of(cells, i))
			continue;
		counters_sum(&flow_counters, session * FLOW_CELLS + i, &c);
		flows[count].qfi = (uint8_t)(qfi_of(cells, i) - 1);
		for (enum direction d = UP; d <= DOWN; d++) {
			flows[count].packets[d] = c.packets[d];
			flows[count].bytes[d] = c.bytes[d];
		}
		count++;
	}
	return count;
}
