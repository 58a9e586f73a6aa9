// What addresses and routes have to know of a packet's session. The concept of sessions, which is built on this one, tells.
#pragma once

#include <stdbool.h>

#include "core/node.h"

struct subscriber {
	uint16_t vrf;
	bool any_source;     // the subscriber may use any address, and owns none
	bool proxied;        // we answer for the hosts behind us
	bool point_to_point; // there are no Ethernet addresses on its link (PPP)
};

struct subscribers {
	void (*about)(uint32_t session, struct subscriber *about);
	// That of the subscriber's sessions on the access of this one which may use the address (network order, 4 or 16 bytes), or
	// NO_SESSION.
	uint32_t (*whose)(uint32_t session, uint8_t family, const uint8_t *address);
	// ARP or ND told the subscriber's Ethernet address.
	void (*learn)(uint32_t session, const uint8_t mac[6]);
	// The chain of its packets behind the source check.
	uint64_t (*chain_up)(uint32_t session, uint8_t family);
	// In: an IP packet for the subscriber.
	const struct node *down;
};

// Never NULL where a packet has a session.
extern const struct subscribers *subscribers;

// The edge to follow for an IP packet to the subscriber that packet->session is.
static inline uint16_t
packet_to_subscriber(struct packet *p)
{
	p->direction = DOWN;
	return subscribers->down->id;
}
