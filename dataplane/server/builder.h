// SPDX-License-Identifier: Apache-2.0
// Work that takes long, beside the main thread. Large work is done one after the other on a thread of its own. Small work is done on another
// thread, so that it does not wait for large work.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

// Embedded in the object of the work. It belongs to the builder from builder_add() until `done` is called.
struct build {
	// On a thread of the builder's. It must not touch objects or tables; memory of the C library and of DPDK may be taken,
	// the latter little at a time: these threads yield to others, also while it holds the lock of DPDK's heap.
	void (*work)(struct build *build);
	// On the main thread, in its loop, after the work.
	void (*done)(struct build *build);
	atomic_bool unwanted; // work that looks at it now and then ends early
	bool small;           // set by the caller of builder_add()
	struct build *next;
};

// Main thread. 0, or a negative errno: there is no thread to do it.
int builder_add(struct build *build);
// Main thread. true: it had not been begun and is the caller's again. false: it is unwanted, and will be `done` soon.
bool builder_drop(struct build *build);
// The work under way is unwanted, and the rest left out: neither is `done`. Before DPDK is cleaned up.
void builder_stop(void);
