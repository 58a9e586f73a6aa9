// The tables that find what a frame belongs to. Written by circuit.c, read by ether_input.c.
#pragma once

#include "core/map64.h"
#include "ether/circuit.h"

enum { VLANS = 4096 };

// What a circuit leads to: the upper two bits say which table the lower thirty are an index of. Where sharers were looked up, the last
// says that the session has every frame; so does the bit SHARED_FRAMES of a value in the map of those who share.
enum binding { BOUND_NONE = 0, BOUND_INTERFACE = 1, BOUND_SESSION = 2, BOUND_SHARED = 3, BOUND_FRAMES = 3 };
enum { SHARED_FRAMES = 1 << 29 };

static inline uint32_t
bound(enum binding to, uint32_t index)
{
	return (uint32_t)to << 30 | index;
}

static inline enum binding
bound_to(uint32_t slot)
{
	return (enum binding)(slot >> 30);
}

static inline uint32_t
bound_index(uint32_t slot)
{
	return slot & 0x3fffffff;
}

// Of one port. A single tag is found by its VLAN, a pair by the outer one's table of inner ones.
struct circuits {
	uint32_t untagged;
	uint32_t single[VLANS];
	uint32_t *pairs[VLANS];
	uint32_t frames; // sessions that have every frame
};

// A circuit whose packets are told apart by their source MAC, or that has an interface beside its sessions.
struct shared_circuit {
	// Of those whose MAC no session has: an interface's binding, a session's of every frame, or 0. And a session's while it gets a
	// MAC or loses it.
	uint32_t rest;
	uint32_t sessions;
	struct circuit circuit;
};

extern struct circuits *port_circuits[PORT_MAX]; // NULL: nothing is bound on the port
extern struct map64 *shared_sessions;            // by shared_key()
extern struct slab shared_circuits;

// The lower 48 bits of an Ethernet address as it lies in memory.
static inline uint64_t
mac_bits(const void *address)
{
	uint64_t bits;

	memcpy(&bits, address, sizeof(bits));
	return bits & 0xffffffffffff;
}

static inline uint64_t
shared_key(uint32_t shared, uint64_t mac)
{
	return (uint64_t)(shared + 1) << 48 | mac;
}

static inline uint32_t
circuit_slot(const struct circuits *c, uint16_t outer, uint16_t inner)
{
	const uint32_t *pairs;

	if (inner == 0)
		return outer == 0 ? c->untagged : c->single[outer];
	pairs = __atomic_load_n(&c->pairs[outer], __ATOMIC_ACQUIRE);
	return pairs ? pairs[inner] : 0;
}
