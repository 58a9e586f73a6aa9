// SPDX-License-Identifier: Apache-2.0
// Next hops of routes, and the types of them: how packets get to one. Main thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rte_common.h>

#include "core/packet.h"
#include "ip.pb-c.h"
#include "server/object.h"

struct next_hop_type;

struct next_hop {
	uint8_t address[16]; // network order, IPv4 in the first four; all zero: the destination itself, on `interface`
	uint32_t interface;  // NO_INTERFACE: the one whose network holds the address
	uint8_t weight;
	const struct next_hop_type *type; // whose field the spec has, or NULL: a type that takes() it by the interface
	void *part;                       // of that type: type->size bytes, or NULL
};

static inline bool
next_hop_has_address(const struct next_hop *n)
{
	uint8_t any = 0;

	for (unsigned i = 0; i < sizeof(n->address); i++)
		any |= n->address[i];
	return any != 0;
}

// A type of next hop: a concept that can lead packets somewhere registers one (RTE_INIT). Of each next hop one type makes the hop: the
// type whose field of message NextHop is set or, if none is, a type that takes() it.
struct next_hop_type {
	const char *name;

	// Whether the type's own field of NextHop is set. NULL: it has no field.
	bool (*has)(const Sluice__V1__NextHop *spec);
	// A type with a field keeps a part of its own with each next hop, a label stack for example: `size` bytes, which begin with pointers
	// to objects that the next hop refers to, each NULL or counted as used while a path has the next hop. Equal next hops have equal bytes.
	size_t size;
	unsigned objects;
	// Read the spec into a zeroed part. `family` is 4 or 6, or 0: the group has no addresses. 0, or a negative errno with the fault
	// explained. NULL: nothing is read.
	int (*parse)(const Sluice__V1__NextHop *spec, uint16_t vrf, uint8_t family, void *part, struct fault *f);
	// A next hop with the type's field may have neither address nor interface: hop() gets NO_INTERFACE then.
	bool elsewhere;

	// Whether this type leads to the next hop by the interface, which is no loopback. NULL: for a type with a field, by any.
	bool (*takes)(const struct next_hop *n, uint32_t interface);
	// The hop that leads there by the interface. Each call is a user of the hop. UINT32_MAX: no room.
	uint32_t (*hop)(uint32_t interface, uint8_t family, const struct next_hop *n);
	// A user less. NULL: hops are not counted.
	void (*release)(uint32_t hop);
	// The next hop does not answer: another one is chosen where there is one. NULL: it always answers. Code that
	// changes it calls path_refresh().
	bool (*silent)(uint32_t hop);
	struct next_hop_type *next;
};

void next_hop_type_register(struct next_hop_type *type);
#define NEXT_HOP_TYPE_REGISTER(type) \
	RTE_INIT(register_##type) \
	{ \
		next_hop_type_register(&type); \
	}

// The type that takes the next hop by the interface, or NULL.
const struct next_hop_type *next_hop_type_of(const struct next_hop *n, uint32_t interface);

// Whether it leads somewhere without an address and an interface.
static inline bool
next_hop_is_elsewhere(const struct next_hop *n)
{
	return n->type && n->type->elsewhere && n->interface == NO_INTERFACE && !next_hop_has_address(n);
}

// Whether both lead to the same place; their weights may differ.
bool next_hop_equal(const struct next_hop *a, const struct next_hop *b);
// A copy with a part of its own, which is a user of the interface and of the part's objects. -ENOMEM: `to` has no part.
int next_hop_use(struct next_hop *to, const struct next_hop *from);
void next_hop_unuse(struct next_hop *n);
// Free the parts that next_hop_parse() made.
void next_hops_free(struct next_hop *list, unsigned count);

// Read a next hop in a VRF. `*family` is 4 or 6, or 0 as long as any is accepted: then the address's. An error's text begins with
// nextHops; the next hop has no part then.
int next_hop_parse(const Sluice__V1__NextHop *spec, uint16_t vrf, uint8_t *family, struct next_hop *n, struct fault *f);
