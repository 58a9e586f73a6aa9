// SPDX-License-Identifier: Apache-2.0
// Binding circuits to interfaces and sessions. Main thread; each slot changes by one store.
#include "ether/circuit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/rcu.h"
#include "core/slab.h"
#include "ether/circuit_table.h"

// Limits of circuits whose packets have several owners by MAC, and of those with several MACs: a key of the map has 16 bits for a circuit.
enum { SHARED_MAX = 1 << 20, NUMBERS_MAX = 0xfffe };

struct circuits *port_circuits[PORT_MAX];
struct map64 *shared_sessions;
struct slab shared_circuits;
static struct slab numbers;

// The slot of a circuit, made if need be.
static uint32_t *
slot_of(const struct circuit *c)
{
	struct circuits *circuits = port_circuits[c->port];
	uint32_t *pairs;

	if (!circuits) {
		circuits = calloc(1, sizeof(*circuits));
		if (!circuits)
			return NULL;
		__atomic_store_n(&port_circuits[c->port], circuits, __ATOMIC_RELEASE);
	}
	if (c->inner_vlan == 0)
		return c->outer_vlan == 0 ? &circuits->untagged : &circuits->single[c->outer_vlan];
	pairs = circuits->pairs[c->outer_vlan];
	if (!pairs) {
		pairs = calloc(VLANS, sizeof(pairs[0]));
		if (!pairs)
			return NULL;
		__atomic_store_n(&circuits->pairs[c->outer_vlan], pairs, __ATOMIC_RELEASE);
	}
	return &pairs[c->inner_vlan];
}

static void
set(uint32_t *slot, uint32_t value)
{
	__atomic_store_n(slot, value, __ATOMIC_RELEASE);
}

static int
check(const struct circuit *c, struct fault *f)
{
	if (c->port >= PORT_MAX || c->outer_vlan >= VLANS - 1 || c->inner_vlan >= VLANS - 1)
		return fault(f, EINVAL, "outerVlan, innerVlan: 1 to 4094 are accepted");
	if (c->inner_vlan && !c->outer_vlan)
		return fault(f, EINVAL, "innerVlan: it needs an outerVlan around it");
	return 0;
}

static void
count(uint32_t *counter, int more)
{
	set(counter, *counter + (uint32_t)more);
}

// Turn a slot into a shared circuit that keeps an interface it may have.
static int
share_circuit(const struct circuit *c, uint32_t *slot, struct fault *f)
{
	uint32_t index;
	struct shared_circuit *shared;

	if (!shared_circuits.records && slab_create(&shared_circuits, sizeof(*shared), SHARED_MAX))
		return fault(f, ENOMEM, "there is no memory for VLANs that several sessions share");
	if (!shared_sessions && (shared_sessions = map64_create()) == NULL)
		return fault(f, ENOMEM, "there is no memory for VLANs that several sessions share");
	if (!numbers.records && slab_create(&numbers, sizeof(uint64_t), NUMBERS_MAX))
		return fault(f, ENOMEM, "there is no memory for VLANs that several sessions share");
	index = slab_take(&shared_circuits);
	if (index == UINT32_MAX)
		return fault(f, ENOSPC, "access: at most %d VLANs can have sessions with a mac", SHARED_MAX);
	shared = slab_at(&shared_circuits, index);
	*shared = (struct shared_circuit){.rest = *slot, .circuit = *c};
	count(&port_circuits[c->port]->shared, 1);
	set(slot, bound(BOUND_SHARED, index));
	return 0;
}

// A shared circuit without sessions belongs to an interface again, or is free; one whose every frame belongs to a session stays as it is.
static void
unshare_circuit(uint32_t *slot, struct shared_circuit *shared)
{
	uint32_t index = bound_index(*slot);

	if (shared->sessions > 0 || bound_to(shared->rest) == BOUND_FRAMES)
		return;
	set(slot, shared->rest);
	count(&port_circuits[shared->circuit.port]->shared, -1);
	if (shared->number != 0)
		slab_give_later(&numbers, shared->number - 1);
	slab_give_later(&shared_circuits, index);
}

static uint64_t
bits_of(const struct rte_ether_addr *mac)
{
	uint8_t padded[8] = {0};

	memcpy(padded, mac, sizeof(*mac));
	return mac_bits(padded);
}

// Enter a session that is not there.
static int
add_session(struct shared_circuit *shared, uint64_t mac, uint32_t value, struct fault *f)
{
	uint32_t number;

	if (mac != 0 && shared->first == 0 && (shared->first_mac == 0 || shared->first_mac == mac)) {
		shared->first_mac = mac;
		set(&shared->first, value + 1);
		return 0;
	}
	if (shared->number == 0) {
		number = slab_take(&numbers);
		if (number == UINT32_MAX)
			return fault(
				f, ENOSPC, "access: at most %d VLANs can be shared by several sessions", NUMBERS_MAX);
		set(&shared->number, number + 1);
	}
	if (map64_put(shared_sessions, shared_key(shared->number, mac), value))
		return fault(f, ENOMEM, "there is no memory for the session's mac");
	return 0;
}

// The place for an interface's binding: the circuit's slot, or the default of a shared circuit.
static int
find_interface_slot(const struct circuit *c, uint32_t **slot, struct fault *f)
{
	int error = check(c, f);

	if (error)
		return error;
	*slot = slot_of(c);
	if (!*slot)
		return fault(f, ENOMEM, "there is no memory for the VLAN's table");
	if (bound_to(**slot) == BOUND_SHARED)
		*slot = &((struct shared_circuit *)slab_at(&shared_circuits, bound_index(**slot)))->rest;
	if (**slot != 0)
		return fault(f, EEXIST, "port, outerVlan, innerVlan: another interface or session has these already");
	return 0;
}

int
circuit_check_interface(const struct circuit *c, struct fault *f)
{
	uint32_t *slot;

	return find_interface_slot(c, &slot, f);
}

int
circuit_bind_interface(const struct circuit *c, uint32_t interface, struct fault *f)
{
	uint32_t *slot;
	int error = find_interface_slot(c, &slot, f);

	if (error == 0)
		set(slot, bound(BOUND_INTERFACE, interface));
	return error;
}

static int
whole_taken(struct fault *f)
{
	return fault(f, EEXIST,
		"access: another session or interface has these VLANs already; with a mac or a pduSessionId, sessions "
		"can "
		"share them");
}

// A circuit without a MAC.
static int
bind_whole(const struct circuit *c, uint32_t *slot, bool frames, uint32_t session, bool alone, struct fault *f)
{
	struct shared_circuit *shared;
	int error;

	if (!frames && bound_to(*slot) == BOUND_SHARED && alone) {
		shared = slab_at(&shared_circuits, bound_index(*slot));
		if (shared->rest != 0 || shared->sessions > 1)
			return whole_taken(f);
		set(&shared->rest, bound(BOUND_SESSION, session));
		return 0;
	}
	if (!frames) {
		if (bound_to(*slot) != BOUND_NONE)
			return whole_taken(f);
		set(slot, bound(BOUND_SESSION, session));
		return 0;
	}
	if (bound_to(*slot) == BOUND_NONE && (error = share_circuit(c, slot, f)) != 0)
		return error;
	if (bound_to(*slot) != BOUND_SHARED)
		return whole_taken(f);
	shared = slab_at(&shared_circuits, bound_index(*slot));
	if (shared->rest != 0)
		return whole_taken(f);
	set(&shared->rest, bound(BOUND_FRAMES, session));
	return 0;
}

static int
bind_mac(const struct circuit *c, uint32_t *slot, const struct rte_ether_addr *mac, uint32_t value, bool alone,
	struct fault *f)
{
	struct shared_circuit *shared;
	uint64_t bits = bits_of(mac);
	int error;

	if (bound_to(*slot) == BOUND_SESSION && !alone)
		return fault(f, EEXIST, "access: a session without a mac has these VLANs whole");
	if (bound_to(*slot) != BOUND_SHARED && (error = share_circuit(c, slot, f)) != 0)
		return error;
	shared = slab_at(&shared_circuits, bound_index(*slot));
	if (shared_session(shared, bits) != MAP64_NONE) {
		unshare_circuit(slot, shared);
		return fault(f, EEXIST, "access.mac: another session has it on these VLANs already");
	}
	if ((error = add_session(shared, bits, value, f)) != 0) {
		unshare_circuit(slot, shared);
		return error;
	}
	shared->sessions++;
	return 0;
}

int
circuit_bind_session(const struct circuit *c, const struct rte_ether_addr *mac, bool frames, uint32_t session,
	bool alone, struct fault *f)
{
	uint32_t *slot;
	int error = check(c, f);

	if (error)
		return error;
	slot = slot_of(c);
	if (!slot)
		return fault(f, ENOMEM, "there is no memory for the VLAN's table");
	if (mac)
		error = bind_mac(c, slot, mac, session | (frames ? SHARED_FRAMES : 0), alone, f);
	else
		error = bind_whole(c, slot, frames, session, alone, f);
	if (error == 0 && frames)
		count(&port_circuits[c->port]->frames, 1);
	return error;
}

void
circuit_unbind_interface(const struct circuit *c)
{
	uint32_t *slot = slot_of(c);

	if (!slot)
		return;
	if (bound_to(*slot) == BOUND_INTERFACE)
		set(slot, 0);
	else if (bound_to(*slot) == BOUND_SHARED)
		set(&((struct shared_circuit *)slab_at(&shared_circuits, bound_index(*slot)))->rest, 0);
}

void
circuit_unbind_session(const struct circuit *c, const struct rte_ether_addr *mac)
{
	uint32_t *slot = slot_of(c), value;
	struct shared_circuit *shared;

	if (!slot)
		return;
	if (!mac && bound_to(*slot) == BOUND_SESSION)
		set(slot, 0);
	if (bound_to(*slot) != BOUND_SHARED)
		return;
	shared = slab_at(&shared_circuits, bound_index(*slot));
	if (!mac) {
		if (bound_to(shared->rest) != BOUND_FRAMES && bound_to(shared->rest) != BOUND_SESSION)
			return;
		if (bound_to(shared->rest) == BOUND_FRAMES)
			count(&port_circuits[c->port]->frames, -1);
		set(&shared->rest, 0);
	} else {
		value = shared_session(shared, bits_of(mac));
		if (value == MAP64_NONE)
			return;
		if (shared->first != 0 && shared->first_mac == bits_of(mac))
			set(&shared->first, 0);
		else
			map64_delete(shared_sessions, shared_key(shared->number, bits_of(mac)));
		shared->sessions--;
		if (value & SHARED_FRAMES)
			count(&port_circuits[c->port]->frames, -1);
	}
	unshare_circuit(slot, shared);
}

// The session that has the circuit but for those with a MAC, or NO_SESSION.
static uint32_t
whole_session(uint32_t slot)
{
	if (bound_to(slot) == BOUND_SHARED)
		slot = ((const struct shared_circuit *)slab_at(&shared_circuits, bound_index(slot)))->rest;
	return bound_to(slot) == BOUND_SESSION || bound_to(slot) == BOUND_FRAMES ? bound_index(slot) : NO_SESSION;
}

uint32_t
circuit_session(const struct circuit *c, const struct rte_ether_addr *mac)
{
	const uint32_t *slot = slot_of(c);
	uint32_t session;

	if (!slot)
		return NO_SESSION;
	if (!mac)
		return whole_session(*slot);
	if (bound_to(*slot) != BOUND_SHARED)
		return NO_SESSION;
	session = shared_session(slab_at(&shared_circuits, bound_index(*slot)), bits_of(mac));
	return session == MAP64_NONE ? NO_SESSION : session & ~(uint32_t)SHARED_FRAMES;
}

uint32_t
circuit_taker(const struct circuit *c, const struct rte_ether_addr *mac)
{
	const uint32_t *slot = slot_of(c);
	uint32_t session = mac ? circuit_session(c, mac) : NO_SESSION;

	return session != NO_SESSION || !slot ? session : whole_session(*slot);
}

void
circuit_rebind_session(const struct circuit *c, const struct rte_ether_addr *mac, uint32_t session)
{
	uint32_t *slot = slot_of(c);
	struct shared_circuit *shared;

	if (!mac) {
		set(slot, bound(BOUND_SESSION, session));
		return;
	}
	shared = slab_at(&shared_circuits, bound_index(*slot));
	if (shared->first != 0 && shared->first_mac == bits_of(mac))
		set(&shared->first, session + 1);
	else // the key is there: this takes no memory
		map64_put(shared_sessions, shared_key(shared->number, bits_of(mac)), session);
}
