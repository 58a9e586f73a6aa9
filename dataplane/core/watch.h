// Watching packets pass through nodes, which following (Trace) and capturing (Capture) are made of.
#pragma once

#include <rte_bpf.h>

#include "core/node.h"

enum { WATCHES = 8, SIGHT_BYTES = 192 };

enum watch_kind { WATCH_TRACE, WATCH_CAPTURE };

// What to look for.
struct watch {
	enum watch_kind kind;
	uint8_t slot;
	struct rte_bpf *filter; // NULL: every packet
	uint64_t (*compiled)(void *mbuf);
	int32_t node;     // WATCH_CAPTURE: there alone, or -1
	uint32_t session; // or NO_SESSION
	uint32_t snap_length;
	int64_t remaining; // packets still wanted, counted down by workers
	uint64_t lost;     // there was no room to say what was seen
	uint64_t serial;   // of this watch alone: slots are used again
	uint64_t begun;    // TSC: a packet whose mark is older has it from an earlier watch of the slot
};

// What a worker saw: a packet about to enter a node.
struct sight {
	uint8_t slot;
	bool over; // WATCH_TRACE: the main thread gave the packet away
	uint16_t node;
	uint64_t serial; // of the watch
	uint64_t time;   // TSC
	struct packet packet;
	uint16_t out_port; // the mbuf's port
	uint16_t worker;   // who saw it
	uint32_t length;   // of all the packet's data
	uint16_t held;     // bytes here
	uint8_t data[SIGHT_BYTES];
	struct rte_mbuf *copy; // WATCH_CAPTURE: the frame
};

// The watch, which is a copy and owns the filter; NULL with an errno and a sentence in `text`: the filter is the caller's.
struct watch *watch_begin(const struct watch *wanted, char *text, size_t size);
void watch_end(uint8_t slot);
// What was seen next, or NULL. Give it back with sight_done.
struct sight *sight_next(void);
void sight_done(struct sight *sight);
int watch_start(void);
