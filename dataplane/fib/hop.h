// SPDX-License-Identifier: Apache-2.0
// Hops: the results of route look-ups. One cache line has the kind of a hop and the header for its packets.
//
// A hop's chain names the next nodes of the packet, so that this concept need not know a session or a tunnel: an adjacency has
// {ip4-rewrite}, one with an output ACL {acl-out, ip4-rewrite}, a subscriber's address the session's own chain.
//
// A hop's index stays the same while its content changes. A worker reads the chain in the look-up and the rest in a
// later node of the same round, so a writer may change one field by one store at any time, but fields that belong
// together only so: an adjacency is filled in first and gets its chain last (release); to take one apart, its chain
// goes first, and what the old chain's nodes read is changed after rcu_wait() only. The addresses in an adjacency's
// header are each changed by one store (neighbor_hop.c): a packet that went round by the main thread meanwhile might
// find no room on its way. A hop's address and an adjacency's header lie beside each other, so that a hop can be
// both, one after the other, without waiting.
#pragma once

#include <stdatomic.h>

#include "core/node.h"
#include "core/slab.h"
#include "server/object.h"

// The fate of a packet. The chain forwards it, and belongs to the concept that made the hop: no code asks for that
// concept.
enum hop_kind {
	HOP_NONE,     // there is no route, or its next hop is gone
	HOP_FORWARD,  // the chain sends it on
	HOP_RESOLVE,  // the same, once the address of the next hop on its link is known
	HOP_LOCAL,    // it is for us
	HOP_DROP,     // dropped for a reason
	HOP_PROHIBIT, // dropped, with an ICMP error
	HOP_SPREAD,   // another hop, by its flow
	HOP_KINDS
};

enum { HOP_LIMIT = 1 << 24 };

// Properties of a hop's destination.
enum {
	HOP_BROADCAST = 1 << 0,  // HOP_LOCAL: a network's broadcast address, only for packets that came from there
	HOP_MULTICAST = 1 << 1,  // HOP_LOCAL: a multicast or limited broadcast address
	HOP_LINK_LOCAL = 1 << 2, // HOP_LOCAL: fe80::/10, ours if it is the address that our MAC makes
};

struct hop {
	uint32_t chain;
	uint32_t interface; // way out, or the interface whose address this is, or NO_INTERFACE
	uint32_t session;   // that it forwards to, or NO_SESSION
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
		uint64_t own[5];          // HOP_FORWARD: of the concept that made the hop
		struct {
			uint64_t address_starts;
			uint8_t rewrite[32]; // an adjacency: Ethernet header with tags, right-aligned, type included
		};
	};
} __rte_cache_aligned;

static_assert(sizeof(struct hop) == RTE_CACHE_LINE_SIZE, "a hop fills one cache line");
static_assert(offsetof(struct hop, rewrite) == 32, "one aligned load has the whole header");
static_assert(offsetof(struct hop, address) + 16 <= offsetof(struct hop, rewrite) + 32 - 22,
	"a header of 22 bytes fits beside");

static inline bool
hop_forwards(const struct hop *hop)
{
	uint8_t kind = __atomic_load_n(&hop->kind, __ATOMIC_RELAXED);

	return kind == HOP_FORWARD || kind == HOP_RESOLVE;
}

extern struct slab hops;

static inline struct hop *
hop_at(uint32_t index)
{
	return (struct hop *)hops.records + index;
}

// The first step of hops of a kind. Registered (RTE_INIT) by the folder that has the node.
void hop_kind_register(enum hop_kind kind, const struct node *node);
#define HOP_KIND_REGISTER(kind, node) \
	RTE_INIT(register_##kind) \
	{ \
		hop_kind_register(kind, &node); \
	}

// A new hop, not yet seen by workers, or UINT32_MAX. Index 0 is never given: it means that there is no route. It has no
// interface and no session. Its chain is the kind's first step, if one is registered; else its maker sets it.
uint32_t hop_new(enum hop_kind kind);
// A new hop of kind HOP_LOCAL that knows this of its destination: HOP_NONE's first step looks at it before HOP_LOCAL's.
uint32_t hop_new_local(uint8_t flags);
// Give it back once no route leads to it.
void hop_retire(uint32_t index);

// Shared hops that never change, made at the start of VRFs: for routes that drop silently, and for routes that send the ICMP error "prohibited".
uint32_t hop_blackhole(void);
uint32_t hop_prohibit(void);
// For a route whose next hop is gone: the sender gets the ICMP error "host unreachable".
uint32_t hop_unreachable(void);

extern struct node ip4_lookup_node; // In: a checked IPv4 header, packet->vrf. Finds a hop, takes its chain.
extern struct node ip6_lookup_node;
