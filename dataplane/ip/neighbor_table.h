// The table of neighbours, for the files that make it: main thread, except where said.
#pragma once

#include "core/object.h"
#include "core/slab.h"
#include "ip/neighbor.h"
#include "ip/resolver.h"

enum {
	NEIGHBOR_MOST = 1 << 16,         // entries
	NEIGHBOR_UNRESOLVED_MOST = 2048, // of them without a MAC; and as many that failed
	NEIGHBOR_QUEUED_MOST = 4096,     // packets that wait for all together
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
	uint32_t hop;
	uint32_t users;        // routes
	struct object *object; // that configured it
	LIST_ENTRY(neighbor) by_interface;
};

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
// Its configuration says so: a MAC, or NULL for none any more.
void neighbor_configure(struct neighbor *n, struct object *object, const struct rte_ether_addr *mac);

int neighbor_table_start(void);

// Make what workers see agree with the entry: the hop and the host route. (neighbor_hop.c)
void neighbor_publish(struct neighbor *n);
// Take the host route out of the way.
void neighbor_unroute(struct neighbor *n);
// Entry number of a hop, or UINT32_MAX. Workers may ask.
uint32_t neighbor_of_hop(uint32_t hop);
// 0 or -ENOMEM; a hop for a new entry.
int neighbor_hop_make(struct neighbor *n, uint32_t index);
void neighbor_hop_forget(struct neighbor *n);
// Stale entries that packets were sent to since the last call: each of at most `most` is given to `each`.
void neighbor_take_used(unsigned most, void (*each)(uint32_t index));

// What becomes of a packet that waited: the look-up has been done, it goes on as it would have gone; or its sender is told.
// (neighbor_glean.c)
void neighbor_send(struct resolving *r, struct rte_mbuf *m);
void neighbor_unreachable(struct resolving *r, struct rte_mbuf *m);
