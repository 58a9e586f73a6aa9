// Work that takes long, done beside the main thread: one thing after the other, on a thread of its own; and what is small on another,
// so that it does not wait for what is large.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

// Embedded in what the work is about. It belongs to the builder from builder_add() until `done` is called.
struct build {
	// On a thread of the builder's. It must not touch objects or tables; memory of the C library and of DPDK may be taken,
	// the latter little at a time: these threads yield to others, also while it holds the lock of DPDK's heap.
	void (*work)(struct build *build);
	// On the main thread, in its loop, after the work.
	void (*done)(struct build *build);
	atomic_bool unwanted; // work that looks at it now and then ends early
	bool small;           // set by who adds it
	struct build *next;
};

// Main thread. 0, or a negative errno: there is no thread to do it.
int builder_add(struct build *build);
// Main thread. true: it had not been begun and is the caller's again. false: it is unwanted, and will be `done` soon.
bool builder_drop(struct build *build);
// The work under way is unwanted, and the rest left out: neither is `done`. Before DPDK is cleaned up.
void builder_stop(void);
