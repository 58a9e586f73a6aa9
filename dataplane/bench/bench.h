// The bench: a source node makes bursts from templates over many flows, the real graph and tables do their work, and a
// port that throws away what it gets is the sink. Cycles are the TSC's.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/node.h"

enum { HEADER_MOST = 192, REPEATS = 25, SIZES_MOST = 4 };

struct measured;

struct scenario {
	const char *name;
	uint32_t flows;
	uint16_t sizes[SIZES_MOST]; // of frames, FCS included, in bytes; 0: no more
	// Make the objects that the scenario needs. 0 or -1 after saying what is wrong.
	int (*set_up)(const struct scenario *scenario);
	// Write the frame's first bytes for one flow: their number is returned. `length` is the frame's, without FCS.
	unsigned (*frame)(const struct scenario *scenario, uint32_t flow, uint16_t length, uint8_t header[HEADER_MOST]);
	const char *port;    // that frames come in by
	bool rate;           // not the graph, but token buckets alone, in each way to share them (rate.c)
	bool one_queue;      // one worker receives, all work: by the port's event device
	bool scaling;        // one of those that show how several workers get along
	unsigned schedulers; // ports that have one, and flows in turn: several workers hand packets to their owners,
	bool steered;        // unless each of them gets those of its own port
	// Instead of frames through the graph (measure_queues).
	int (*measure)(const struct scenario *scenario, unsigned rounds, struct measured *m);
	unsigned backlog;    // packets that always wait, for each flow
	const char *look_up; // in each way that there is for this look-up (core/fastest.h)
};

// The one of this number, or NULL.
const struct scenario *scenario_at(unsigned index);

// Templates of a scenario's frames: what all flows share, and the bytes in which they differ, in random order.
struct templates {
	uint8_t header[HEADER_MOST];
	unsigned header_length;
	uint16_t length;
	uint16_t port;
	struct range {
		uint16_t at, size;
	} ranges[8];
	unsigned range_count;
	unsigned stride;
	uint32_t flows;
	uint8_t *differences;
};

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
// The same for frames that one worker receives and all work on: `cycles` is the time a packet takes with all of them, source and
// sink not taken off, and `alone` with the first.
void measure_shared(const struct templates *t, unsigned rounds, struct measured *m);
// The same for frames that go through the scenario's schedulers: `alone` is the mean of the workers that own one, each with that
// port's frames. 0, or -1: not every worker owns one.
int measure_delivered(const struct templates *t, const struct scenario *s, unsigned rounds, struct measured *m);

// Token buckets that all workers share, with so many flows: lock, atomic, lease, queues, ordered. 0 or -1 after saying what is wrong.
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
