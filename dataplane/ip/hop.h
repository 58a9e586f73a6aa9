// Hops: what a route look-up finds. One cache line says what becomes of a packet and holds the header it gets.
//
// A hop's chain says who goes on with the packet, so that this concept need not know a session or a tunnel: an adjacency has
// {ip4-rewrite}, one with an output ACL {acl-out, ip4-rewrite}, a subscriber's address the session's own chain.
//
// A hop's index stays the same while what it says changes. A worker reads the chain in the look-up and the rest in a later
// node of the same round, so a writer may change one field by one store at any time, but fields that belong together only so:
// an adjacency is filled in first and gets its chain last (release); to take one apart, its chain goes first, and what the old
// chain's nodes read is changed after rcu_wait() only. The addresses in an adjacency's header are each changed by one store
// (neighbor_hop.c): a packet that went round by the main thread meanwhile might find no room on its way. A hop's address and an adjacency's header lie beside each other, so
// that a hop can be both, one after the other, without waiting.
#pragma once

#include <stdatomic.h>

#include "core/node.h"
#include "core/object.h"
#include "core/slab.h"

enum hop_kind { HOP_NONE, HOP_ADJACENCY, HOP_GLEAN, HOP_LOCAL, HOP_DROP, HOP_PROHIBIT, HOP_SPREAD, HOP_SESSION };

enum { HOP_LIMIT = 1 << 24 };

// What a hop may know of a destination beyond its kind.
enum {
	HOP_BROADCAST = 1 << 0,  // HOP_LOCAL: a network's broadcast address, only for packets that came from there
	HOP_MULTICAST = 1 << 1,  // HOP_LOCAL: a multicast or limited broadcast address
	HOP_LINK_LOCAL = 1 << 2, // HOP_LOCAL: fe80::/10, ours if it is the address that our MAC makes
};

struct hop {
	uint64_t chain;
	uint32_t interface; // way out, or the interface whose address this is, or NO_INTERFACE
	uint32_t session;   // HOP_SESSION; else NO_SESSION
	uint16_t port;
	uint16_t mtu; // the largest IP packet
	uint8_t kind;
	uint8_t rewrite_length;
	uint8_t spread_bits; // HOP_SPREAD: log2 of its slots
	uint8_t flags;
	union {
		uint8_t address
			[16]; // of the next hop to resolve, IPv4 in the first four; all zero: the packet's own destination
		_Atomic uint32_t *spread; // HOP_SPREAD: a hop for each slot
		uint16_t drop;            // HOP_DROP: the reason
		struct {
			uint64_t address_starts;
			uint8_t rewrite[32]; // HOP_ADJACENCY: Ethernet header with tags, right-aligned, type included
		};
	};
} __rte_cache_aligned;

static_assert(sizeof(struct hop) == RTE_CACHE_LINE_SIZE, "a hop fills one cache line");
static_assert(offsetof(struct hop, rewrite) == 32, "one aligned load has the whole header");
static_assert(offsetof(struct hop, address) + 16 <= offsetof(struct hop, rewrite) + 32 - 22,
	"a header of 22 bytes fits beside");

extern struct slab hops;

static inline struct hop *
hop_at(uint32_t index)
{
	return (struct hop *)hops.records + index;
}

// A new hop, not yet seen by workers, or UINT32_MAX. Index 0 is never given: it means that there is no route. It has no
// interface and no session; HOP_NONE, HOP_LOCAL, HOP_DROP and HOP_PROHIBIT have their chain, the others get theirs from
// whoever makes them.
uint32_t hop_new(enum hop_kind kind);
// Give it back once no route leads to it.
void hop_retire(uint32_t index);

// Hops that never change and are shared, there from the VRFs' start on: for routes that drop in silence, and that tell the sender that it is prohibited.
uint32_t hop_blackhole(void);
uint32_t hop_prohibit(void);
// For a route whose next hop is gone: the sender is told that the host is unreachable.
uint32_t hop_unreachable(void);

extern struct node
	ip4_input_node; // In: IPv4 header at the data, from outside. Checks RFC 1812 5.2.2, then takes a step of the chain.
extern struct node ip6_input_node;  // the same, RFC 8200
extern struct node ip4_lookup_node; // In: a checked IPv4 header, packet->vrf. Finds a hop, takes its chain.
extern struct node ip6_lookup_node;
extern struct node ip4_rewrite_node; // In: packet->hop an adjacency. TTL, MTU, header, port; out: tx.
extern struct node ip6_rewrite_node;
extern struct node ip_local_node; // In: an IP packet for one of our addresses.
extern struct node
	ip_special_node; // In: packet->hop a HOP_LOCAL with flags, or one that packets do not pass. Decides by address.
extern struct node ip_spread_node; // In: packet->hop a HOP_SPREAD. Chooses one of its hops by the packet's flow.
