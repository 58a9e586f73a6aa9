// SPDX-License-Identifier: Apache-2.0
// Watching packets pass through nodes, which following (Trace) and capturing (Capture) are made of.
#pragma once

#include "core/match.h"
#include "core/node.h"

enum { WATCHES = 8, SIGHT_BYTES = 192 };

enum watch_kind { WATCH_TRACE, WATCH_CAPTURE };

// The packets to follow.
struct watch {
	enum watch_kind kind;
	uint8_t slot;
	struct match filter;
	int32_t node;     // WATCH_CAPTURE: there alone, or -1
	uint32_t session; // only packets of this one; or NO_SESSION
	uint32_t snap_length;
	int64_t remaining; // packets still to be recorded, counted down by workers
	uint64_t lost;     // records that found no room
	uint64_t serial;   // of this watch alone: slots are used again
	uint64_t begun;    // TSC: a packet whose mark is older has it from an earlier watch of the slot
};

// A record of a worker: a packet about to enter a node.
struct sight {
	uint8_t slot;
	bool over; // WATCH_TRACE: the main thread gave the packet away
	uint16_t node;
	uint64_t serial; // of the watch
	uint64_t time;   // TSC
	struct packet packet;
	uint16_t out_port; // the mbuf's port
	uint16_t worker;   // that recorded it
	uint32_t length;   // of all the packet's data
	uint16_t held;     // bytes here
	uint8_t data[SIGHT_BYTES];
	struct rte_mbuf *copy; // WATCH_CAPTURE: the frame
};

// The watch, which is a copy and owns the filter; NULL with an errno and a sentence in `text`: the filter is the caller's.
struct watch *watch_begin(const struct watch *wish, char *text, size_t size);
void watch_end(uint8_t slot);
// The next record, or NULL. Give it back with sight_done.
struct sight *sight_next(void);
void sight_done(struct sight *sight);
int watch_start(void);
