// Interfaces: a port or one of its VLANs with addresses in a VRF (kind Interface).
#pragma once

#include <rte_ether.h>

#include "core/object.h"
#include "core/slab.h"
#include "core/worker.h"
#include "ether/circuit.h"

struct interface_address {
	uint8_t bytes[16]; // network order; IPv4 in the first four
	uint8_t family;    // 4 or 6
	uint8_t length;    // of the prefix, in bits
};

// What workers read: one cache line.
struct interface {
	uint64_t chain4; // steps of an IPv4 packet that came in here, once its header is checked
	uint64_t chain6;
	uint16_t vrf;
	uint16_t mtu;
	struct circuit circuit; // port NO_PORT: a loopback
	uint16_t outer_tpid;    // network order, as last seen, to answer with
	uint16_t inner_tpid;
	bool proxy_arp;
	bool present;
	uint32_t acl_in, acl_out; // acl/acl.h, or NO_ACL
	uint32_t addresses_of;    // the interface whose addresses count here: itself, unless unnumbered
} __rte_cache_aligned;

// What only the main thread reads.
struct interface_detail {
	struct object *object;
	struct interface_address *addresses; // as configured; of an unnumbered interface, none
	unsigned address_count;
};

struct interface_counters {
	uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
};

extern struct slab interfaces; // struct interface
extern struct counters interface_counters;
extern struct kind interface_kind;

static inline struct interface *
interface_at(uint32_t index)
{
	return (struct interface *)interfaces.records + index;
}

struct interface_detail *interface_detail(uint32_t index);

static inline uint32_t
interface_of(const struct object *object)
{
	return (uint32_t)(uintptr_t)object->state;
}

// The Ethernet header with tags that starts a frame here: at most 22 bytes, right-aligned at the end of `room` (32 bytes);
// its length is returned. `type` is the Ethernet type in host order.
unsigned interface_header(
	uint32_t interface, const struct rte_ether_addr *destination, uint16_t type, uint8_t room[32]);

// Where the packets of interfaces go, told by the concept that has the routes.
struct interface_routing {
	// The VRF of this name, in use from now on ("": the default one, and no object).
	int (*vrf_need)(const char *name, const char *field, uint16_t *vrf, struct object **object, struct fault *f);
	const struct node *look_up4, *look_up6; // last steps of packets that came in
};
void interface_routing_register(const struct interface_routing *routing);

// Who wants to know of interfaces: after one is made or changed, and before one goes. A refusal (negative errno, fault
// explained) of a new or changed interface undoes it. Main thread.
struct interface_watcher {
	int (*added)(uint32_t index, struct fault *f);
	int (*changed)(uint32_t index, const struct interface_address *old, unsigned old_count, struct fault *f);
	void (*removed)(uint32_t index);
	struct interface_watcher *next;
};
void interface_watch(struct interface_watcher *watcher);
