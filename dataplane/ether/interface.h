// SPDX-License-Identifier: Apache-2.0
// Interfaces with addresses in a VRF (kind Interface): a port or one of its VLANs, or a type that a concept
// registers.
#pragma once

#include <rte_ether.h>

#include "core/slab.h"
#include "core/node.h"
#include "core/worker.h"
#include "ether/circuit.h"
#include "interface.pb-c.h"
#include "server/object.h"

struct interface_address {
	uint8_t bytes[16]; // network order; IPv4 in the first four
	uint8_t family;    // 4 or 6
	uint8_t length;    // of the prefix, in bits
};

// The link of an interface, for packets that leave by it.
enum interface_link {
	INTERFACE_LOOPBACK, // nothing: packets end here
	INTERFACE_ETHERNET, // neighbours, whose Ethernet addresses are found out
	INTERFACE_POINT,    // one far end, to which every packet goes: the output of the interface's type
};

// The workers' part: one cache line.
struct interface {
	uint32_t chain4; // steps of an IPv4 packet that came in here, once its header is checked
	uint32_t chain6;
	uint16_t vrf;
	uint16_t mtu;
	struct circuit circuit; // port NO_PORT: INTERFACE_ETHERNET alone has one
	uint16_t outer_tpid;    // network order, as last seen, to answer with
	uint16_t inner_tpid;
	bool proxy_arp;
	bool present;
	uint8_t link;                 // enum interface_link
	uint8_t features[2];          // by way: a bit for each (ether/feature.h). Main thread
	uint32_t acl_in, acl_out;     // of the feature in acl/
	uint32_t meter_in, meter_out; // of the feature in meter/
	uint32_t addresses_of;        // the interface whose addresses count here: itself, unless unnumbered
	uint32_t own;                 // of its type: the index of a tunnel, say
} __rte_cache_aligned;

static_assert(sizeof(struct interface) == RTE_CACHE_LINE_SIZE, "what workers read of an interface is one cache line");

// The main thread's part.
struct interface_detail {
	struct object *object;
	const struct interface_type *type;   // NULL: a loopback
	struct object *under;                // the object below it: a port, a tunnel
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

// Write the Ethernet header with tags of a frame of the interface: at most 22 bytes, right-aligned at the end of `room` (32 bytes).
// Returns its length. `type` is the Ethernet type in host order.
unsigned interface_header(
	uint32_t interface, const struct rte_ether_addr *destination, uint16_t type, uint8_t room[32]);

// A type of interface: the object that it is on, and the node by which packets leave. A concept registers it; a VLAN of a port is one as well
// (interface.c). Main thread, except the output's node.
struct interface_type {
	const char *name; // for people: "VLAN of a port"
	// Whether the spec asks for this type: a field of the concept's own is set. An interface is of one type; one of none is a loopback.
	bool (*takes)(const Sluice__V1__Interface *spec);
	// Find the object that it is on by object_need(): it cannot change and stays as long as the interface. `*own` is a number that the output's
	// node reads from struct interface. 0, or a negative errno with the fault explained.
	int (*need)(const Sluice__V1__Interface *spec, struct object **under, uint32_t *own, struct fault *f);
	// Whether bind() would do. NULL: yes.
	int (*check)(uint32_t interface, struct fault *f);
	// Packets find the interface from now on, or no longer. bind() fails if another interface is on the same: -EEXIST, say.
	int (*bind)(uint32_t interface, struct fault *f);
	void (*unbind)(uint32_t interface);
	// The largest IP packet that the object takes, and whether it takes any. After a change: interface_follow(). `up` NULL: always.
	uint16_t (*mtu)(const struct object *under);
	bool (*up)(uint32_t interface);
	// INTERFACE_POINT: the last step of packets that leave. In: an IP packet whose TTL is counted down, no larger than the MTU;
	// packet->hop, whose interface it is, and whose own[0] is the interface's own. NULL: INTERFACE_ETHERNET.
	const struct node *output;
	// Whether the output takes IPv4 packets without DF that are larger than the MTU, of the interface with this own. NULL: no.
	bool (*takes_large)(uint32_t own);
	struct interface_type *next;
};

void interface_type_register(struct interface_type *type);
#define INTERFACE_TYPE_REGISTER(type) \
	RTE_INIT(register_##type) \
	{ \
		interface_type_register(&type); \
	}

// The MTU of the object under the interface has changed, or whether it is up.
void interface_follow(uint32_t index);
// The result of a feature's has() for the interface has changed.
void interface_features_changed(uint32_t index);

static inline bool
interface_is_up(uint32_t index)
{
	const struct interface_type *type = interface_detail(index)->type;

	return type && (!type->up || type->up(index));
}

// The nodes for packets of interfaces. The concept that has the routes sets them.
struct interface_routing {
	// The VRF of this name, in use from now on ("": the default one, and no object).
	int (*vrf_need)(const char *name, const char *field, uint16_t *vrf, struct object **object, struct fault *f);
	const struct node *look_up4, *look_up6; // last steps of packets that came in
};
void interface_routing_register(const struct interface_routing *routing);

// Notification of interfaces: after one is made or changed, and before one goes. A refusal (negative errno, fault
// explained) of a new or changed interface undoes it. Main thread.
struct interface_watcher {
	int (*added)(uint32_t index, struct fault *f); // may be NULL
	int (*changed)(uint32_t index, const struct interface_address *old, unsigned old_count, struct fault *f);
	void (*removed)(uint32_t index);
	struct interface_watcher *next;
};
void interface_watch(struct interface_watcher *watcher);
