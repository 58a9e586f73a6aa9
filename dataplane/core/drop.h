// Every drop has a name. A node that drops a packet sets the reason and sends it to the drop node, which counts it, by
// reason, by interface and by session, and frees it.
#pragma once

#include "core/node.h"

struct drop {
	const char *name;        // "ttl-expired"
	const char *description; // a sentence
	uint16_t id;
};

enum { DROP_MAX = 256 };

void drop_register(struct drop *drop);

#define DROP(variable, drop_name, sentence) \
	static struct drop variable = {.name = drop_name, .description = sentence}; \
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
// By session as far as the workers had room for the pair: 65,536 pairs each. What of a session's total is in none of them was
// dropped for reasons that there was no room for.
uint64_t drop_of_session(uint32_t session, uint16_t reason);

struct drop_totals {
	uint64_t packets;                      // dropped, whatever the reason
	uint64_t counted[2], counted_bytes[2]; // by direction: what had been counted for the session before
};
// `session` may be ALL_SESSIONS.
void drop_session_totals(uint32_t session, struct drop_totals *totals);
// Forget what was counted for an interface or a session that is no more, or whose number goes to another.
void drop_forget_interface(uint32_t interface);
void drop_forget_session(uint32_t session);

// Drop outside of the graph, on the main thread: count and free.
void drop_now(struct rte_mbuf *m, const struct drop *reason);
// Count a packet that could not even be made.
void drop_lost(const struct drop *reason);
