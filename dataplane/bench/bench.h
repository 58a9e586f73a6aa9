// SPDX-License-Identifier: Apache-2.0
// The bench: a source node makes bursts from templates over many flows, the real graph and tables do their work, and
// a port that frees its packets is the sink. Cycles are the TSC's.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/node.h"

enum { HEADER_MAX = 192, WHOLE_MAX = 1664, REPEATS = 25, SIZES_MAX = 6, SIZE_IMIX = 1 };

struct measured;

// An algorithm of the crypto engine: enum crypto_cipher, enum crypto_integrity.
struct cipher_case {
	unsigned cipher, integrity;
	uint8_t key_length, icv_length;
	bool decrypt;
};

struct scenario {
	const char *name;
	uint32_t flows;
	// Of frames, FCS included, in bytes; 0: no more; SIZE_IMIX: of twelve seven of 64, four of 570 and one of 1518 bytes.
	uint16_t sizes[SIZES_MAX];
	// Make the scenario's objects. 0, or -1 after an error message.
	int (*set_up)(const struct scenario *scenario);
	// Write the frame's first bytes for one flow: their number is returned. `length` is the frame's, without FCS.
	unsigned (*frame)(const struct scenario *scenario, uint32_t flow, uint16_t length, uint8_t header[HEADER_MAX]);
	const char *port;    // that frames come in by
	bool rate;           // not the graph, but token buckets alone, in each way to share them (rate.c)
	bool one_queue;      // one worker receives, all work: by the port's event device
	bool scaling;        // one of those that show how several workers get along
	unsigned schedulers; // ports that have one, and flows in turn: several workers hand packets to their owners,
	bool steered;        // unless each of them gets those of its own port
	// Instead of frames through the graph (measure_queues, measure_cipher), for each size: `sizes` begins with
	// it.
	int (*measure)(const struct scenario *scenario, unsigned rounds, struct measured *m);
	const struct cipher_case *cipher; // of measure_cipher()
	bool consumed;                    // the graph takes the packets: none reaches the sink
	unsigned backlog;                 // packets that always wait, for each flow
	const char *look_up;              // in each way that there is for this look-up (core/fastest.h)
	// Instead of `frame`, for frames that differ behind their first bytes: write all of the frame of this size,
	// or of a larger one around it, at most WHOLE_MAX bytes. Returns the number of bytes, the same for all
	// flows; 0 after an error message.
	unsigned (*whole)(const struct scenario *scenario, uint32_t flow, uint16_t size, uint8_t frame[WHOLE_MAX]);
};

// The one of this number, or NULL.
const struct scenario *scenario_at(unsigned index);

// Templates of a scenario's frames: the bytes that all flows share, and those in which they differ, in random order.
struct templates {
	uint8_t header[HEADER_MAX];
	unsigned header_length;
	uint16_t length;
	uint16_t port;
	uint16_t *lengths; // of SIZE_IMIX: of each frame; NULL: all have `length`
	struct range {
		uint16_t at, size;
	} ranges[8];
	unsigned range_count;
	unsigned stride;
	uint32_t flows;
	uint8_t *differences;
	uint8_t *whole; // frames as they are, the longest one rounded up to a cache line apart, or NULL
	size_t whole_stride;
};

// The size of the nth frame of a scenario with this size: of SIZE_IMIX it varies.
unsigned bench_size(uint16_t size, uint32_t n);

int templates_make(struct templates *t, const struct scenario *s, uint16_t size);
void templates_free(struct templates *t);

struct measured {
	double cycles[REPEATS]; // a packet of one worker, source and sink taken off, all workers at once: their mean
	double bare;            // least of source to sink alone
	double nodes[NODE_MAX]; // by node id, median, of the first worker
	uint64_t arrived;       // packets that reached the sink, of
	uint64_t sent;
	// With several workers:
	double alone[REPEATS]; // as `cycles`, of each worker while the others sleep
	double overspent;      // rate.c: percent of the tokens that came in by which more were spent
	double compute_ratio;  // how many times longer a loop of arithmetic takes on all processors at once than on one
};

// Measure on all workers at once and, if there are several, on each alone, in turn.
void measure(const struct templates *t, unsigned rounds, struct measured *m);

// A scheduler by itself: "hqos-..." ours, else DPDK's. 0 or -1.
int measure_queues(const struct scenario *s, unsigned rounds, struct measured *m);
// The crypto engine by itself. 0 or -1.
int measure_cipher(const struct scenario *s, unsigned rounds, struct measured *m);
// The same for frames that one worker receives and all work on: `cycles` is the time a packet takes with all of them, source and
// sink not taken off, and `alone` with the first.
void measure_shared(const struct templates *t, unsigned rounds, struct measured *m);
// The same for frames that go through the scenario's schedulers: `alone` is the mean of the workers that own one, each with that
// port's frames. 0, or -1: not every worker owns one.
int measure_delivered(const struct templates *t, const struct scenario *s, unsigned rounds, struct measured *m);

// Token buckets that all workers share, with so many flows: lock, atomic, lease, queues, ordered. 0, or -1 after an
// error message.
enum { RATE_WAYS = 5 };
int rate_measure(uint32_t flows, unsigned rounds, struct measured of[RATE_WAYS]);

// Objects, as the API would put them.
int bench_put(const char *kind, const char *name, const void *message);
// Delete all that were put since the start, newest first.
void bench_clear(void);

// A generator of the same numbers in every run.
static inline uint64_t
random_next(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}
