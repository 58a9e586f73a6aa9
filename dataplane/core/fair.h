// SPDX-License-Identifier: Apache-2.0
// Fair rate limits for answers to packets and for work that packets cause: ICMP errors, echo replies, ARP and ND, packets for the main thread.
// A flood from one source does not silence other sources.
//
// A packet needs a token at each level: of its source, of what the source shares with others (a circuit, an interface), and of
// the total. A source that used up more than half of its tokens leaves a quarter of each level above to the others. So sources
// that are quiet are served even while many flood.
//
// Each worker has its own buckets. Sources are hashed into a table of buckets of fixed size, twice, with two hash functions,
// and a packet takes its token from the fuller bucket of the two. Every few seconds the hash functions change: two sources that
// collide in both do so for a few seconds only. Old buckets are not cleared, a bucket is full again within a second.
#pragma once

#include <rte_mbuf.h>

#include "core/packet.h"
#include "core/rate.h"

enum {
	FAIR_ROWS = 2,
	FAIR_SOURCES = 2048,
	FAIR_PLACES = 256,
	FAIR_SEED_SECONDS = 4, // then the hash functions change
	FAIR_BURST = 256,      // packets at once from a bucket of a source, if a second has more
};

// struct packet's `queue` of a reply that any source can cause: on a port with a scheduler it shares with packets of no
// session, while other packets of ours go first.
enum { QUEUE_OF_REPLIES = 1 };

// The source of a packet.
struct fair_source {
	uint64_t where; // session, interface or circuit
	uint64_t who;   // there: an Ethernet or IP address
	bool shared;    // others may be there, too
};

// Of one worker. All zero is a full limit.
struct fair_rate {
	uint64_t total;
	uint64_t seed, seeded; // TSC of the last change
	// By hash: as rate_spend_at() has it.
	uint64_t sources[FAIR_ROWS][FAIR_SOURCES], places[FAIR_ROWS][FAIR_PLACES];
} __rte_cache_aligned;

// Of all workers.
struct fair_rates {
	struct fair_rate of[WORKER_MAX + 1];
};

// Limits of all sources together and of one source in a second, on one worker, and the same number at once (a
// source at most twice FAIR_BURST). One source never gets more than a quarter of the total, and at least one packet. All sources
// of one place get `place`; 0: half of the total.
struct fair_limit {
	uint32_t total, source, place;
};

static inline uint64_t
fair_mix(uint64_t x)
{
	// The finalizer of splitmix64 (Steele, Lea, Flood 2014).
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

// Takes a token, of `a_second` and `burst` at once; if `keeps`, only while more than a quarter is left. `*quiet`: at least half
// of the tokens were there.
static inline bool
fair_take(uint64_t *spent, uint32_t a_second, uint32_t burst, bool keeps, uint64_t now, uint64_t hz, bool *quiet)
{
	uint64_t each = hz / a_second, full = each * burst, keep = keeps ? full / 4 : 0, from = *spent;

	if (from + full < now)
		from = now - full;
	*quiet = from + full / 2 <= now;
	if (from + each + keep > now)
		return false;
	*spent = from + each;
	return true;
}

static inline uint64_t *
fair_fuller(uint64_t *first, uint64_t *second)
{
	return *first <= *second ? first : second;
}

// Whether there are tokens for one more packet, which are taken then. `*quiet`: its source goes before others.
static inline bool
fair_spend_at(struct fair_rate *rate, struct fair_limit limit, const struct fair_source *source, uint64_t now,
	uint64_t hz, bool *quiet)
{
	// A source and a place have two buckets, so half of the rate is for either.
	const uint32_t of_one_place = limit.place ? limit.place : limit.total / 2;
	const uint32_t each = RTE_MAX(limit.source / FAIR_ROWS, 1u), there = RTE_MAX(of_one_place / FAIR_ROWS, 1u);
	uint64_t place, hash, *of_place = NULL;
	bool place_quiet, unused;

	if (limit.total == 0)
		return false;
	if (now - rate->seeded >= FAIR_SEED_SECONDS * hz) {
		rate->seeded = now;
		rate->seed = fair_mix(rate->seed ^ now);
	}
	place = fair_mix(source->where ^ rate->seed);
	if (source->shared) {
		of_place = fair_fuller(
			&rate->places[0][place % FAIR_PLACES], &rate->places[1][(place >> 32) % FAIR_PLACES]);
		// Ever new addresses of one place do not use up the buckets of other places' sources.
		if (*of_place + hz / there > now)
			return false;
	}
	hash = fair_mix(place ^ source->who);
	if (!fair_take(
		    fair_fuller(&rate->sources[0][hash % FAIR_SOURCES], &rate->sources[1][(hash >> 32) % FAIR_SOURCES]),
		    each, RTE_MIN(each, (uint32_t)FAIR_BURST), false, now, hz, quiet))
		return false;
	if (of_place) {
		if (!fair_take(of_place, there, there, !*quiet, now, hz, &place_quiet))
			return false;
		*quiet &= place_quiet;
	}
	return fair_take(&rate->total, limit.total, limit.total, !*quiet, now, hz, &unused);
}

// A worker's part of a limit that holds for all of them together, `source` for each; 0: a quarter.
static inline struct fair_limit
fair_limit(uint32_t total, uint32_t source)
{
	uint32_t share = rate_share(total), quarter = RTE_MAX(share / 4, 1u);

	return (struct fair_limit){.total = share, .source = source == 0 ? quarter : RTE_MIN(source, quarter)};
}

// The source of a packet whose data is at its IP header (family 4 or 6), or behind its Ethernet header:
// - of a session's packets, the session; of those for a session, the sender, and senders share the session;
// - of other IP packets, the source address, and sources share the interface;
// - of all others, the Ethernet address, and addresses share the circuit: port and VLANs.
void fair_source_of(struct rte_mbuf *m, struct fair_source *source);

// Whether this worker may do it because of this packet.
static inline bool
fair_spend(struct fair_rates *rates, uint32_t total, uint32_t each, struct rte_mbuf *m)
{
	struct fair_source source;
	bool quiet;

	fair_source_of(m, &source);
	return fair_spend_at(&rates->of[worker_self()->index], fair_limit(total, each), &source, rte_rdtsc(),
		rte_get_tsc_hz(), &quiet);
}
