// SPDX-License-Identifier: Apache-2.0
// A stream: frames of many flows in turn from one port to another, each with a mark in its last bytes that identifies
// it after encapsulation and decapsulation.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "histogram.h"

enum { STREAMS_MAX = 16, MARK_MAGIC = 0xb7, FRAME_LENGTH_MAX = 2000 };

// The end of a frame's payload.
struct mark {
	uint32_t sequence; // the flow is this modulo the number of flows
	uint16_t trial;
	uint8_t stream;
	uint8_t magic;
	uint64_t sent; // TSC
} __attribute__((packed));

struct stream {
	uint16_t from, to; // ports
	uint16_t length;   // of a frame, without FCS
	uint16_t header;   // bytes in which flows differ, and those before
	uint16_t stride;
	uint32_t flows;
	uint8_t *headers; // of each flow, in the order of sending
	uint32_t *next;   // by flow: greater than each sequence number that has come

	// Of the running trial:
	uint64_t intended, offered, refused; // refused: the port had no room, so it is lost
	uint32_t flow;
	double rate;    // packets a TSC cycle
	uint16_t burst; // at most at once
	uint64_t received, received_bytes, reordered, duplicates;
	struct histogram latency;
};

// Reads the flows' headers from a file that holds nothing else. NULL, or an error message.
const char *stream_open(struct stream *s, const char *file);
void stream_close(struct stream *s);

// Forget the trial before.
void stream_clear(struct stream *s);
// Fill `count` buffers with the next frames.
void stream_fill(struct stream *s, uint8_t number, uint16_t trial, uint64_t now, struct rte_mbuf **m, unsigned count);
// The mark of a frame of this trial, or NULL.
const struct mark *stream_mark(const struct rte_mbuf *m, uint16_t trial);
// Count a frame that has come by the stream's port.
void stream_count(struct stream *s, const struct rte_mbuf *m, const struct mark *mark, uint64_t now);
