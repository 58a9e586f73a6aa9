// SPDX-License-Identifier: Apache-2.0
// Ethernet addresses that packets wait for: requests, repeated requests, failure, and probes after a silence (RFC
// 4861 section 7.3; for IPv4 the same with ARP). Main thread.
//
// Neighbours of interfaces and subscribers of sessions are resolved alike; whose address it is, how one asks and where the
// packets go afterwards is the owner's to say.
#pragma once

#include <stdbool.h>
#include <sys/queue.h>

#include <rte_mbuf.h>

#include "core/drop.h"
#include "neighbor/neighbor_state.h"

// Packets that wait for one address: a tunnel's far end may be the next hop of the first packets of many sessions.
enum { RESOLVER_QUEUE = 64 };

// Part of the owner's record of a neighbour to be resolved.
struct resolving {
	struct neighbor_entry entry;
	struct rte_mbuf *first, *last; // packets that wait, linked by a slot of theirs; `first` NULL: none
	uint8_t queued;
	TAILQ_ENTRY(resolving) by_state;
};

TAILQ_HEAD(resolving_list, resolving);

struct resolver {
	unsigned max_unresolved;       // records without an Ethernet address; and as many that failed
	unsigned max_queued;           // packets that wait for all together
	const struct drop *queue_full; // why the others are dropped

	bool (*needed)(const struct resolving *r); // it stays although it does not answer and has no traffic
	void (*ask)(const struct resolving *r, const struct rte_ether_addr *mac); // `mac` NULL: all on the link
	void (*changed)(struct resolving *r);                                     // its state, or its Ethernet address
	void (*send)(struct resolving *r, struct rte_mbuf *m);                    // there is an address now
	void (*fail)(struct resolving *r, struct rte_mbuf *m);                    // there is none
	void (*forget)(struct resolving *r); // the record is unused: the owner calls resolver_remove() and frees it

	// The resolver's own. Entries that wait for their first answer by age, the others by deadline.
	struct resolving_list by_state[NEIGHBOR_STATES];
	unsigned counts[NEIGHBOR_STATES];
	unsigned queued;
};

void resolver_start(struct resolver *resolver);
// A zeroed record comes in, in state NEIGHBOR_NONE.
void resolver_add(struct resolver *resolver, struct resolving *r);
// It is deleted; waiting packets fail.
void resolver_remove(struct resolver *resolver, struct resolving *r);
// Something happened to it. It may be forgotten afterwards.
void resolver_event(struct resolver *resolver, struct resolving *r, enum neighbor_event event,
	const struct neighbor_advert *advert);
// Set its state: NEIGHBOR_STATIC with its Ethernet address, or NEIGHBOR_NONE. Packets that wait go on waiting.
void resolver_set(
	struct resolver *resolver, struct resolving *r, enum neighbor_state state, const struct rte_ether_addr *mac);
// A packet waits for it, which is asked for if need be.
void resolver_wait(struct resolver *resolver, struct resolving *r, struct rte_mbuf *m);
// Waiting packets are sent, or fail.
void resolver_send(struct resolver *resolver, struct resolving *r);
void resolver_fail(struct resolver *resolver, struct resolving *r);
