// SPDX-License-Identifier: Apache-2.0
// The view that a filter of Trace or Capture has of a frame: the frame as it is, or the packet in it behind a plain Ethernet
// header. pcap-filter(7) finds an IP packet only directly behind the headers that the filter names. So the filter does not see VLAN tags and
// encapsulations (core/encapsulation.h), unless it names them.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rte_bpf.h>
#include <rte_mbuf.h>

enum match_depth {
	MATCH_FRAME,    // the filter names VLAN tags: it sees the frame as tcpdump shows it
	MATCH_UNTAGGED, // it names an encapsulation: the frame as it is, and without its VLAN tags
	MATCH_PACKET    // the packet, and the packet in a tunnel above UDP
};

struct match {
	struct rte_bpf *program; // NULL: every frame matches
	uint64_t (*compiled)(void *mbuf);
	enum match_depth depth;
	bool frame_too; // the filter names the Ethernet header or a length: it sees the frame as it is as well
	bool negated;   // the filter excludes frames: it must match every view of a frame, not one
};

// How deep a filter looks, by the words in it.
void match_words(struct match *match, const char *filter);
// Whether a frame that begins at the mbuf's data matches. The frame is not changed.
bool match_frame(const struct match *match, const struct rte_mbuf *m);
