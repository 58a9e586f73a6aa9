// SPDX-License-Identifier: Apache-2.0
// Neighbours: whose Ethernet address packets to an address on a link get (kind Neighbor, ARP, neighbour discovery).
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include <rte_ether.h>

#include "core/packet.h"
#include "core/punt.h"
#include "neighbor/neighbor_state.h"
#include "server/object.h"

// Addresses are 16 bytes in network order; IPv4 in the first four, the others zero.

// The entry that a worker finds for an ARP or ND message.
enum neighbor_news {
	NEIGHBOR_NOT_THERE,
	NEIGHBOR_NO_NEWS,
	NEIGHBOR_NEWS, // it waits for its MAC, or has another
};
enum neighbor_news neighbor_compare(
	uint32_t interface, uint8_t family, const uint8_t address[16], const struct rte_ether_addr *mac);

// A worker's message from an address that is NEIGHBOR_NOT_THERE, and that asks for us: whether an entry may come of it, because the
// address is on the interface's link.
bool neighbor_may_begin(const struct packet *p, uint8_t family, const uint8_t address[16]);

// Main thread: enter an ARP or ND message. An address without an entry gets one only if `advert->creates`, it is
// on the link and there is room.
void neighbor_advertised(
	uint32_t interface, uint8_t family, const uint8_t address[16], const struct neighbor_advert *advert);

// The target of an ARP request or a solicitation, as the packet's interface or session sees it. Workers and main thread.
enum neighbor_target {
	TARGET_NOBODY, // not for us to answer
	TARGET_OURS,   // an address of ours there
	TARGET_PROXY,  // we forward to it, and shall answer for it
};
enum neighbor_target neighbor_target(const struct packet *p, uint8_t family, const uint8_t address[16]);
// The packet's sender has an address of ours.
bool neighbor_is_ours(const struct packet *p, uint8_t family, const uint8_t address[16]);

// A page of the table: `each` gets at most `limit` neighbours, from place `cursor` on. Returns the start of the next page, 0 if there is
// none.
uint64_t neighbor_page(uint64_t cursor, uint32_t limit,
	void (*each)(const char *interface, const char *address, const char *mac, const char *state, void *argument),
	void *argument);

// The detail of a copy that neighbor_learn_from_copy() made.
enum { NEIGHBOR_ANSWERED = 1 };
// A worker: a copy of the first `length` bytes of a message that the worker itself answers goes up, frame header included, for the main
// thread to note the sender. Without a buffer the sender is not noted.
void neighbor_learn_from_copy(struct rte_graph *graph, struct rte_node *node, const struct rte_mbuf *m, unsigned length,
	const struct punt *reason);

// The link of a request: an interface, or a session's circuit.
struct link {
	// The Ethernet header with tags: right-aligned at the end of `room`; its length.
	unsigned (*header)(uint32_t index, const struct rte_ether_addr *destination, uint16_t type, uint8_t room[32]);
	uint32_t index; // the interface's or session's
	uint16_t port;
};

// Main thread: send a request for an address, from our address `own`; `mac` NULL: to all on the link. (arp.c, nd.c)
void arp_send_request(
	const struct link *link, const uint8_t own[4], const uint8_t address[4], const struct rte_ether_addr *mac);
void nd_send_solicitation(const struct link *link, const uint8_t address[16], const struct rte_ether_addr *mac);

// The kind's start calls these. (arp.c, nd.c)
void arp_start(void);
void nd_start(void);
