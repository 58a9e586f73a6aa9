// SPDX-License-Identifier: Apache-2.0
// Every drop has a name. A node that drops a packet sets the reason and sends it to the drop node, which counts it, by
// reason, by interface and by session, and frees it. A protocol's packet that has done its work here, such as an ARP reply
// that was noted, ends in the same way under a name of its own, and is no drop: it is consumed.
#pragma once

#include "core/node.h"

struct drop {
	const char *name;        // "ttl-expired"
	const char *description; // a sentence
	uint16_t id;
	bool consumed; // no drop; and not counted by session
};

enum { DROP_MAX = 1024 };

void drop_register(struct drop *drop);

#define DROP(variable, drop_name, sentence) \
	static struct drop variable = {.name = drop_name, .description = sentence}; \
	RTE_INIT(register_##variable) \
	{ \
		drop_register(&variable); \
	}

// The same for packets that are consumed.
#define CONSUMED(variable, consumed_name, sentence) \
	static struct drop variable = {.name = consumed_name, .description = sentence, .consumed = true}; \
	RTE_INIT(register_##variable) \
	{ \
		drop_register(&variable); \
	}

extern struct node drop_node;

// The edge to follow for a packet that ends here.
static inline uint16_t
packet_drop(struct packet *p, const struct drop *reason)
{
	p->drop = reason->id;
	return drop_node.id;
}

unsigned drop_count(void);
const struct drop *drop_by_id(uint16_t id);

// Packets dropped for a reason since the start, over all workers.
uint64_t drop_total(uint16_t reason);
uint64_t drop_of_interface(uint32_t interface, uint16_t reason);
// By session, as far as the workers had room for the pair: 65,536 pairs each. The difference to a session's total was
// dropped for reasons without room.
uint64_t drop_of_session(uint32_t session, uint16_t reason);

struct drop_totals {
	uint64_t packets;                      // dropped, for any reason
	uint64_t counted[2], counted_bytes[2]; // by direction: the session's counters before
};
// `session` may be ALL_SESSIONS.
void drop_session_totals(uint32_t session, struct drop_totals *totals);
// Clear the counters of an interface or a session that is gone, or whose number another gets.
void drop_forget_interface(uint32_t interface);
void drop_forget_session(uint32_t session);

// Drop outside of the graph, on the main thread: count and free.
void drop_now(struct rte_mbuf *m, const struct drop *reason);
// Count a packet that could not even be made.
void drop_lost(const struct drop *reason);
