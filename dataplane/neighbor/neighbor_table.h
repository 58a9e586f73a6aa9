// SPDX-License-Identifier: Apache-2.0
// The table of neighbours, for the files of this folder: main thread, with marked exceptions.
#pragma once

#include "core/slab.h"
#include "neighbor/neighbor.h"
#include "neighbor/resolver.h"
#include "server/object.h"

enum {
	NEIGHBOR_MAX = 1 << 16,         // entries
	NEIGHBOR_UNRESOLVED_MAX = 2048, // of them without a MAC; and as many that failed
	NEIGHBOR_QUEUED_MAX = 4096,     // packets that wait for all together
};

struct neighbor {
	// Workers read these, the first one while it changes.
	_Atomic uint64_t known; // the MAC and flags
	uint8_t address[16];
	uint32_t interface;
	uint16_t vrf;
	uint8_t family;

	bool orphan;    // its interface is gone
	bool gleaned;   // packets come by the connected network: a host route spares them the way over the main thread
	bool routed;    // it has that host route
	bool published; // workers may have seen the hop with its header
	bool silent;    // it did not answer when it was last asked
	struct resolving resolving;
	uint32_t hop;          // NO_HOP: the entry is forgotten
	uint32_t users;        // routes
	struct object *object; // that configured it
	LIST_ENTRY(neighbor) by_interface;
};

// First step of hops of HOP_RESOLVE. In: packet->hop, the IP header at the data.
extern struct node neighbor_glean_node;

extern struct slab neighbors; // struct neighbor
extern struct resolver neighbor_resolver;

static inline struct neighbor *
neighbor_resolving(struct resolving *r)
{
	return (struct neighbor *)((char *)r - offsetof(struct neighbor, resolving));
}

// The entry, or NULL.
struct neighbor *neighbor_find(uint32_t interface, uint8_t family, const uint8_t address[16]);
// The entry, made if it is not there; NULL if there is no room for it.
struct neighbor *neighbor_get(uint32_t interface, uint8_t family, const uint8_t address[16]);
// Set its configured MAC, or NULL to remove it.
void neighbor_configure(struct neighbor *n, struct object *object, const struct rte_ether_addr *mac);

int neighbor_table_start(void);

// Update the workers' part from the entry: the hop and the host route. (neighbor_hop.c)
void neighbor_publish(struct neighbor *n);
// The address is in a network of the interface, or an IPv6 link-local one.
bool neighbor_on_link(uint32_t interface, uint8_t family, const uint8_t address[16]);
// Take the host route out of the way.
void neighbor_unroute(struct neighbor *n);
// Entry number of a hop, or UINT32_MAX. Workers may ask.
uint32_t neighbor_of_hop(uint32_t hop);
// 0 or -ENOMEM; a hop for a new entry.
int neighbor_hop_make(struct neighbor *n, uint32_t index);
void neighbor_hop_forget(struct neighbor *n);
// Stale entries with traffic since the last call: `each` gets at most `most` of them. A worker may still mark an
// entry that was forgotten meanwhile: its `hop` is NO_HOP.
void neighbor_take_used(unsigned most, void (*each)(uint32_t index));

// The end of a packet's wait: it goes on after its look-up, or its sender gets an ICMP error.
// (neighbor_glean.c)
void neighbor_send(struct resolving *r, struct rte_mbuf *m);
void neighbor_unreachable(struct resolving *r, struct rte_mbuf *m);
