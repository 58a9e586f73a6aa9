// SPDX-License-Identifier: Apache-2.0
// The tables that find the interface or session of a frame. Written by circuit.c, read by ether_input.c.
#pragma once

#include "core/map64.h"
#include "ether/circuit.h"

enum { VLANS = 4096 };

// The binding of a circuit: the upper two bits select the table that the lower thirty are an index of. After a look-up in a shared circuit,
// the last value means that the session has every frame, as the bit SHARED_FRAMES of a value in the map of shared circuits does.
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
	uint32_t shared; // circuits with a struct shared_circuit
};

// A circuit whose packets belong to sessions by their source MAC, or that has an interface beside its sessions.
struct shared_circuit {
	// Of those whose MAC no session has: an interface's binding, a session's of every frame, or 0. And a session's while it gets a
	// MAC or loses it.
	uint32_t rest;
	uint32_t sessions;
	struct circuit circuit;
	// If the circuit has a single session, its index plus 1, and its MAC: it needs no place in the map. 0: it ended. The MAC stays for
	// the life of the record, because a worker reads both.
	uint32_t first;
	// The circuit's number in the map of further sessions, plus 1; 0: it has none.
	uint32_t number;
	uint64_t first_mac;
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
shared_key(uint32_t number, uint64_t mac)
{
	return (uint64_t)number << 48 | mac;
}

// The session of a MAC, with SHARED_FRAMES, or MAP64_NONE.
static inline uint32_t
shared_session(const struct shared_circuit *shared, uint64_t mac)
{
	uint32_t first = __atomic_load_n(&shared->first, __ATOMIC_ACQUIRE), number;

	if (likely(first != 0 && shared->first_mac == mac))
		return first - 1;
	number = __atomic_load_n(&shared->number, __ATOMIC_ACQUIRE);
	return number == 0 ? MAP64_NONE : map64_get(shared_sessions, shared_key(number, mac));
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
