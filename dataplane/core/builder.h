// Work that takes long, done beside the main thread: one thing after the other, on a thread of its own.
#pragma once

// Embedded in what the work is about. It belongs to the builder from builder_add() until `done` is called.
struct build {
	// On the builder's thread. It must not touch objects or tables; memory of the C library and of DPDK may be taken.
	void (*work)(struct build *build);
	// On the main thread, in its loop, after the work.
	void (*done)(struct build *build);
	struct build *next;
};

// Main thread. 0, or a negative errno: there is no thread to do it.
int builder_add(struct build *build);
// Wait for the work under way, and leave out the rest: neither is `done`. Before DPDK is cleaned up.
void builder_stop(void);
