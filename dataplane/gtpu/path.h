// SPDX-License-Identifier: Apache-2.0
// Paths (TS 29.281 section 3.1, TS 23.007 section 20.3): from an address of ours to one of a peer's, in a VRF. Each is there for the
// tunnels that use it, is asked now and then whether the peer is alive, and knows how large packets it takes.
#pragma once

#include "core/packet.h"
#include "gtpu/ends.h"
#include "gtpu/gtpu.h"
#include "server/object.h"

enum { PATHS_LIMIT = 1 << 16 };

enum path_state {
	PATH_UNKNOWN,    // not asked yet
	PATH_UNANSWERED, // never answered
	PATH_UP,
	PATH_DOWN, // answered once and does no longer
	PATH_STATES,
};

// How it is asked. Times in nanoseconds.
struct path_watch {
	uint64_t interval;
	uint64_t wait; // T3-RESPONSE
	uint32_t most; // N3-REQUESTS
	bool silent;
};

struct gtpu_path {
	struct gtpu_ends ends;
	uint16_t vrf;
	uint32_t local, remote; // numbers of ends
	uint32_t tunnels;       // 0: unused
	enum path_state state;
	struct path_watch watch;
	uint64_t began, due;     // when the last request was first sent, and when something is to be done
	uint32_t next, previous; // of the paths of the same turn
	uint16_t place;          // in the ring of turns
	uint64_t changed;        // when the state did, nanoseconds since 1970
	uint16_t sequence;
	uint8_t tries; // 0: nothing is waited for
	uint8_t recovery;
	bool answered; // `recovery` is the peer's
	uint64_t requests, responses, failures, restarts;
};

// By path: the largest outer packet that arrives unfragmented, by the routes and the learned path MTU (mtu.h), and 0 if the path
// is down. Updated every second.
extern uint16_t gtpu_path_mtu[PATHS_LIMIT];
// Look at a part of the paths, in the second of worker_second(): after PATH_LOOKS calls at all of them. The loop
// calls it. Main thread.
enum { PATH_LOOKS = 10 };
void gtpu_paths_look(uint32_t second);

// The path's number, from now on used once more. -ENOSPC, -ENOMEM.
int gtpu_path_use(uint16_t vrf, const struct gtpu_ends *ends, uint32_t *path, struct fault *f);
void gtpu_path_unuse(uint32_t path);

// Of a path in use.
const struct gtpu_path *gtpu_path_at(uint32_t path);
// The next path in use from `*path` on; false: there is none.
bool gtpu_path_next(uint32_t *path);
const char *gtpu_path_state(const struct gtpu_path *p);

// Any thread.
bool gtpu_path_is_down(uint32_t path);

// Serve paths that are due at this moment, nanoseconds of any monotonic clock, at most PATHS_A_TURN: the others are served in
// the next turn. The loop calls it ten times a second.
enum { PATHS_A_TURN = 1000 };
void gtpu_paths_turn(uint64_t now);

// The path between two ends in a VRF, or NO_END. Any thread.
uint32_t gtpu_path_find(uint16_t vrf, const struct gtpu_ends *ends);

static inline bool
gtpu_path_known(uint16_t vrf, const struct gtpu_ends *ends)
{
	return gtpu_path_find(vrf, ends) != NO_END;
}

// The edge for an echo response.
uint16_t gtpu_path_answer(struct packet *p);

int gtpu_paths_start(void);
