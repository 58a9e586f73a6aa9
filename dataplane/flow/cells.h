// SPDX-License-Identifier: Apache-2.0
// Counters by session and QoS flow. A session has a few cells, each of which is of a QFI.
#pragma once

#include "core/worker.h"
#include "session/step.h"

enum { FLOW_CELLS = 8 }; // by session; the last one is none

struct flow_counters {
	uint64_t packets[2], bytes[2]; // by enum direction
};

// By session and cell.
extern struct counters flow_counters;
// By session: of each cell a byte, the first in the lowest bits, the QFI and 1; 0: of no flow. The last byte: whether the session counts.
extern uint64_t *flow_cells;

// The cell of a QFI below 64, or FLOW_CELLS. Any thread.
static inline unsigned
flow_cell(uint64_t cells, uint8_t qfi)
{
	static const uint64_t ones = UINT64_C(0x0101010101010101);
	uint64_t same = (cells << 8 >> 8) ^ ones * (qfi + 1u), zero = (same - ones) & ~same & ones << 7;

	// The lowest zero byte is the first that is found.
	return zero ? (unsigned)__builtin_ctzll(zero) / 8 : FLOW_CELLS;
}

static inline struct flow_counters *
flow_counters_at(struct flow_counters *row, uint32_t session, unsigned cell)
{
	return row + (size_t)session * FLOW_CELLS + cell;
}

// Main thread.
int flow_cells_start(void);
// The session counts the flows that its profile has now: a flow that stays keeps its numbers.
void flow_cells_follow(uint32_t session, uint64_t listed);
// So do all sessions of a profile that has changed.
void flow_cells_follow_all(uint32_t profile, uint64_t listed);
// The session has no profile any more.
void flow_cells_end(uint32_t session);
unsigned flow_cells_read(uint32_t session, struct session_flow flows[SESSION_FLOWS]);
