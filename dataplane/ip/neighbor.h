// Neighbours: whose Ethernet address packets to an address on a link get (kind Neighbor, ARP, neighbour discovery).
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include <rte_ether.h>

#include "core/packet.h"
#include "core/object.h"
#include "ip/neighbor_state.h"

// Addresses are 16 bytes in network order; IPv4 in the first four, the others zero.

// A hop to a neighbour on an interface, for routes; it is told apart from others by interface and address, and each call
// counts as a user of it. Packets that take it wait until the neighbour is resolved. UINT32_MAX: the interface is a
// loopback, or a table is full.
uint32_t neighbor_hop(uint32_t interface, uint8_t family, const uint8_t address[16]);
// The route that asked for the hop no longer leads there.
void neighbor_release(uint32_t hop);

// It was asked for, and did not answer: not a hop to choose where there is another. It is asked again from time to time.
bool neighbor_silent(uint32_t hop);

// The chain of HOP_GLEAN: packets for a neighbour that is not resolved, or for an address on a connected network
// (hop->address all zero). In: packet->hop, the IP header at the data.
extern struct node neighbor_glean_node;

// What a worker that sees an ARP or ND message finds in the table.
enum neighbor_news {
	NEIGHBOR_NOT_THERE,
	NEIGHBOR_NO_NEWS,
	NEIGHBOR_NEWS, // it waits for its MAC, or has another
};
enum neighbor_news neighbor_compare(
	uint32_t interface, uint8_t family, const uint8_t address[16], const struct rte_ether_addr *mac);

// Main thread: what an ARP or ND message said of an address. An address without an entry gets none.
void neighbor_heard(
	uint32_t interface, uint8_t family, const uint8_t address[16], const struct neighbor_advert *advert);

// Who an ARP request or a solicitation asks for, as the packet's interface or session sees it. Workers and main thread.
enum neighbor_target {
	TARGET_NOBODY, // not for us to answer
	TARGET_OURS,   // an address of ours there
	TARGET_PROXY,  // we forward to it, and shall answer for it
};
enum neighbor_target neighbor_target(const struct packet *p, uint8_t family, const uint8_t address[16]);
// The packet's sender has an address of ours.
bool neighbor_is_ours(const struct packet *p, uint8_t family, const uint8_t address[16]);
// Link-local addresses that an interface has been configured with, beyond the one its MAC makes. Workers and main thread.
bool neighbor_link_local(uint32_t interface, const uint8_t address[16]);

// RFC 4291 appendix A: the link-local address that an Ethernet address makes.
static inline void
link_local_of(const struct rte_ether_addr *mac, uint8_t address[16])
{
	const uint8_t *b = mac->addr_bytes;
	const uint8_t made[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, b[0] ^ 2, b[1], b[2], 0xff, 0xfe, b[3], b[4], b[5]};

	for (unsigned i = 0; i < 16; i++)
		address[i] = made[i];
}

// A page of the table: `each` gets at most `limit` neighbours, from `page` on ("" at first); `next_page` is where the next
// page starts, "" if there is none. The number of neighbours, or -EINVAL for a page that is not one.
int neighbor_page(const char *page, uint32_t limit,
	void (*each)(const char *interface, const char *address, const char *mac, const char *state, void *argument),
	void *argument, char *next_page, size_t next_page_size);

// Where somebody is asked for: on an interface, or on a session's circuit.
struct link {
	// The Ethernet header with tags: right-aligned at the end of `room`; its length.
	unsigned (*header)(uint32_t index, const struct rte_ether_addr *destination, uint16_t type, uint8_t room[32]);
	uint32_t index; // the interface's or session's
	uint16_t port;
};

// Main thread: ask who has an address, with `own` of ours; `mac` NULL: all on the link. (arp.c, nd.c)
void arp_ask(const struct link *link, const uint8_t own[4], const uint8_t address[4], const struct rte_ether_addr *mac);
void nd_ask(const struct link *link, const uint8_t address[16], const struct rte_ether_addr *mac);

// The kind's start calls these. (arp.c, icmp_echo.c, reassembly.c)
int arp_start(void);
int icmp_start(void);
int reassembly_start(void);
