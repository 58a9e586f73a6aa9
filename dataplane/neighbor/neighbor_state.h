// SPDX-License-Identifier: Apache-2.0
// The states of a neighbour's entry (RFC 4861 section 7.3.2), for ARP as well.
// Pure: it neither sends nor reads a clock, but returns actions.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>

enum neighbor_state {
	NEIGHBOR_NONE, // no packet was sent to it yet
	NEIGHBOR_INCOMPLETE,
	NEIGHBOR_REACHABLE,
	NEIGHBOR_STALE,
	NEIGHBOR_DELAY,
	NEIGHBOR_PROBE,
	NEIGHBOR_FAILED,
	NEIGHBOR_STATIC, // configured
	NEIGHBOR_STATES,
};

// RFC 4861 section 10; all times in nanoseconds.
struct neighbor_times {
	uint64_t retransmit;
	uint64_t reachable;
	uint64_t delay_first_probe;
	uint64_t unused; // a stale entry without traffic is forgotten after this
	uint64_t failed; // a failed one, too
	uint8_t multicast_solicits;
	uint8_t unicast_solicits;
};
extern const struct neighbor_times neighbor_times;

struct neighbor_entry {
	uint64_t deadline; // of the next NEIGHBOR_TIMEOUT
	struct rte_ether_addr mac;
	uint8_t state;
	uint8_t solicits; // sent in this state
};

enum neighbor_event {
	NEIGHBOR_USED,      // a packet is to be sent to it
	NEIGHBOR_TIMEOUT,   // its deadline has passed
	NEIGHBOR_HEARD,     // it, or a proxy, sent its MAC
	NEIGHBOR_LINK_DOWN, // the link went: another host may have the address when it is back
};

// An advertisement, or its equivalent: an ARP message, or the source of a solicitation.
struct neighbor_advert {
	struct rte_ether_addr mac;
	bool has_mac;
	bool solicited;
	bool override;
	bool creates; // it asks for us, and so will get our answer (RFC 826, RFC 4861 section 7.2.3): reason enough for an entry
};

// Actions. Whether the entry has a MAC to send to follows from its state.
enum {
	NEIGHBOR_ASK_ALL = 1 << 0, // send an ARP request, or a solicitation to the solicited-node address
	NEIGHBOR_ASK_IT = 1 << 1,  // the same to its MAC alone
	NEIGHBOR_FAIL = 1 << 2,    // no answer came: packets that wait are undeliverable
	NEIGHBOR_FORGET = 1 << 3,  // it is unused
};

// `advert` is for NEIGHBOR_HEARD alone. Returns the actions.
unsigned neighbor_next(
	struct neighbor_entry *entry, enum neighbor_event event, const struct neighbor_advert *advert, uint64_t now);

// There is a MAC to send to.
static inline bool
neighbor_usable(uint8_t state)
{
	return state == NEIGHBOR_REACHABLE || state == NEIGHBOR_STALE || state == NEIGHBOR_DELAY ||
	       state == NEIGHBOR_PROBE || state == NEIGHBOR_STATIC;
}
