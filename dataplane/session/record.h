// SPDX-License-Identifier: Apache-2.0
// The part of a session that workers seldom or never read. The files of this folder share it.
#pragma once

#include <rte_prefetch.h>

#include "core/drop.h"
#include "session/session.h"
#include "session/spec.h"
#include "session/step.h"

// All prefixes of a session. A changed session gets a new list; the old one is retired.
struct session_prefixes {
	unsigned count;
	struct session_prefix list[];
};

struct session_detail {
	// For the main thread; `mtu`, `key`, `moving`, `prefixes` and `has_core` also for workers, off the common path.
	struct object *object; // NULL: the index is free
	struct object *under;  // the object below its access, such as a port
	struct object *vrf;    // NULL: default
	struct session_prefixes *prefixes;
	const struct session_core *core;
	uint32_t hop;        // 0: none
	const char *frames;  // the field because of which it is of type Ethernet, or NULL
	uint32_t sibling;    // the next session of the same access, or NO_SESSION
	uint16_t mtu;        // in force
	uint16_t wanted_mtu; // as configured, 0: by the port
	struct session_key key;
	struct session_move *moving; // NULL: the record and `key` are whole
	bool has_core;
	bool used; // the index had an owner before: there are counts to forget
};

extern struct session_detail *session_details; // by index

// How a session's packets look, for people.
void session_describe_access(const struct session_key *key, char *text, size_t size);
// The access that a spec asks for. 0, or -EINVAL with the fault explained.
int session_find_access(const Sluice__V1__Access *spec, const struct session_access **access, struct fault *f);
// The core that a spec asks for, or NULL.
const struct session_core *session_core_of(const Sluice__V1__Session *spec);

// A packet's line of its session's record, and its counters, on their way from memory.
static inline void
session_prefetch(void *packet, enum direction direction, const struct session_counters *counters)
{
	uint32_t session = packet_of(packet)->session;
	const struct session *s = session_at(session);

	rte_prefetch0(direction == UP ? (const void *)s : &s->down4);
	rte_prefetch0(&counters[session]);
}

static inline unsigned
session_tags(const struct session_key *key)
{
	return (key->circuit.outer_vlan != 0) + (key->circuit.inner_vlan != 0);
}

// A session on its way to another access key (move.c).
struct session_move {
	struct session record; // to the subscriber: its port and header are those of the new key
	struct session_key key;
	uint64_t macs[2]; // which the subscriber may have until it is over
	uint32_t session;
	bool live;  // packets to the subscriber leave by the new key
	bool apart; // it has left the others of its access
};

// The move by which packets for the session leave now, or NULL: by its own record.
static inline const struct session_move *
session_leaving(const struct session_detail *detail)
{
	const struct session_move *move = __atomic_load_n(&detail->moving, __ATOMIC_ACQUIRE);

	return move && __atomic_load_n(&move->live, __ATOMIC_ACQUIRE) ? move : NULL;
}

// Resources of a put. If the put fails, the new ones are given back.
struct session_plan {
	struct session_spec spec;
	struct object *under, *vrf;
	struct session_parts had, parts; // of its steps, so far and from now on
	uint16_t vrf_index;
	uint16_t mtu;
	const struct session_core *core_kind;
	uint32_t core;
	const struct node *encap; // last step upwards of a session with a core
	struct session_prefixes *prefixes;
	uint32_t hop;
	bool made_hop;
};

// Write the record that workers read, in an order in which they can read it at any time.
void session_write_record(struct session *s, struct session_detail *detail, const struct session_plan *w);
// Write its header and the subscriber's Ethernet address if it is known, before any worker sees it.
void session_write_header(struct session *s, const struct session_key *key, uint16_t tpids);
// The TPIDs of a subscriber without received frames, as session_tpids() packs them.
uint16_t session_usual_tpids(const struct session_key *key);
// Its MTU, once there is an Ethernet address to send to.
void session_write_mtu(struct session *s, struct session_detail *detail, uint16_t mtu);

// Add the routes that the session, as it is in `old_vrf`, does not have yet: all, or none with the fault explained.
int session_routes_add(const struct session_detail *detail, uint16_t old_vrf, const Sluice__V1__Session *spec,
	const struct session_plan *w, struct fault *f);
// Take those back.
void session_routes_undo(const struct session_detail *detail, uint16_t old_vrf, const struct session_plan *w);
// Remove those that the session had and no longer has.
void session_routes_release(const struct session_detail *old, uint16_t old_vrf, const struct session_detail *now,
	const struct session_plan *w);

// To another access key under traffic (move.c). Main thread. NULL: no memory. Workers see the move at once.
struct session_move *session_move_new(uint32_t index, const struct session_plan *w);
// Nothing came of it.
void session_move_abandon(struct session_move *move);
// Both keys lead to the session, and the rest of its record is new. The move ends by itself when workers have begun a new round.
void session_move_start(struct session_move *move);
void session_move_end(void *move);
// Wait until it is over, if the session is on its way.
void session_settle(uint32_t index);
// Update the session's header from `seen`. Any thread.
void session_header_follow(uint32_t index);
// The way out of frames to the subscriber. Main thread.
uint16_t session_port(uint32_t index);

// Sessions of one access (siblings.c). Main thread: lead frames of the key to a session, whose record is whole, too; or no longer. `old`:
// a key that leads to it already, or NULL.
bool session_same_access(const struct session_key *a, const struct session_key *b);
int session_bind(uint32_t index, const struct session_key *key, const struct session_key *old, struct fault *f);
void session_unbind(uint32_t index, const struct session_key *key);
// No worker comes by the session to the others of the access that it was on.
void session_apart_ended(uint32_t index);
// Whether none of them has an address in common with these prefixes; `index` is left out.
int session_apart(uint32_t index, const Sluice__V1__Session *spec, const struct session_spec *parsed, struct fault *f);
// Any thread: that of the sessions of `head`'s access which may use the address, or NO_SESSION.
uint32_t session_sibling_of(uint32_t head, uint8_t family, const uint8_t *address);

// Learn from a packet with a valid source: MAC (if the session learns) and TPIDs, packed by session_seen(). False if
// another MAC is configured for the session. Any thread.
bool session_observe(uint32_t index, uint64_t seen);

// The resolver of subscribers' Ethernet addresses. Main thread.
int session_resolve_start(void);
// Packets that wait for the session are sent, or dropped because the session goes.
void session_resolved(uint32_t index);
void session_unresolvable(uint32_t index);
// The edge for a packet to a subscriber whose MAC is not known yet.
uint16_t session_resolve(struct packet *p);
