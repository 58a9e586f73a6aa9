// SPDX-License-Identifier: Apache-2.0
// Properties of a packet's session for addresses and routes. The concept of sessions, which is built on this one, sets the functions.
#pragma once

#include <stdbool.h>

#include "core/node.h"

struct subscriber {
	uint16_t vrf;
	bool any_source;     // the subscriber may use any address, and owns none
	bool proxied;        // we answer for the hosts behind us
	bool point_to_point; // there are no Ethernet addresses on its link (PPP)
	bool tunnelled;      // its packets go to a tunnel and are not routed here
};

struct subscribers {
	void (*about)(uint32_t session, struct subscriber *about);
	// That of the subscriber's sessions on the access of this one which may use the address (network order, 4 or 16 bytes), or
	// NO_SESSION.
	uint32_t (*whose)(uint32_t session, uint8_t family, const uint8_t *address);
	// The subscriber's Ethernet address was learned by ARP or ND.
	void (*learn)(uint32_t session, const uint8_t mac[6]);
	// Whether the subscriber may have this Ethernet address: the configured one, or that of any station if the session learns.
	bool (*may_have)(uint32_t session, const uint8_t mac[6]);
	// The chain of its packets behind the source check.
	uint32_t (*chain_up)(uint32_t session, uint8_t family);
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
