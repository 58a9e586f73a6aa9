// What the files of this folder share about a session beside its record: the part that workers seldom or never read.
#pragma once

#include <rte_prefetch.h>

#include "core/drop.h"
#include "session/session.h"
#include "session/spec.h"

// All prefixes of a session. A changed session gets a new list; the old one is retired.
struct session_prefixes {
	unsigned count;
	struct session_prefix list[];
};

struct session_detail {
	// For the main thread; `mtu`, `key`, `moving`, `prefixes` and `has_core` also for workers, off the common path.
	struct object *object; // NULL: the index is free
	struct object *port;
	struct object *vrf;               // NULL: default
	struct object *acl[2], *meter[2]; // by enum direction
	struct object *flows;
	struct object *qos_profile[2], *qos_group[2];
	uint32_t queue[2]; // or NO_QUEUE
	struct session_prefixes *prefixes;
	const struct session_core *core;
	uint32_t hop;        // 0: none
	bool frames;         // it is of type Ethernet
	uint32_t sibling;    // the next session of the same access, or NO_SESSION
	uint16_t mtu;        // in force
	uint16_t wanted_mtu; // as configured, 0: by the port
	struct session_key key;
	struct session_move *moving; // NULL: the record and `key` are whole
	bool has_core;
	bool used; // the index had an owner before: there are counts to forget
};

extern struct session_detail *session_details; // by index

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

// What a put has got hold of. `made` says which of it is new and is given back if the put fails.
struct session_wanted {
	struct session_spec spec;
	struct object *port, *vrf, *acl[2], *meter_profile[2], *flows, *qos_profile[2], *qos_group[2];
	uint16_t vrf_index;
	uint16_t mtu;
	uint32_t meter[2];
	bool made_meter[2];
	uint32_t queue[2];
	bool made_queue[2];
	const struct session_core *core_kind;
	uint32_t core;
	const struct node *encap; // last step upwards of a session with a core
	struct session_prefixes *prefixes;
	uint32_t hop;
	bool made_hop;
};

// The record that workers read, made to say what is wanted, in an order in which they can read it at any time.
void session_write_record(struct session *s, struct session_detail *detail, const struct session_wanted *w);
// Its header and what is known of the subscriber's Ethernet address, before any worker sees it.
void session_write_header(
	struct session *s, const struct session_key *key, const struct rte_ether_addr *source, uint16_t tpids);
// The TPIDs of a subscriber of whom nothing was seen yet, as session_tpids() packs them.
uint16_t session_usual_tpids(const struct session_key *key);
// Its MTU, once there is an Ethernet address to send to.
void session_write_mtu(struct session *s, struct session_detail *detail, uint16_t mtu);

// The routes that are wanted and that the session, as it is in `old_vrf`, does not have yet: all, or none and why not.
int session_routes_add(const struct session_detail *detail, uint16_t old_vrf, const Sluice__V1__Session *spec,
	const struct session_wanted *w, struct fault *f);
// Take those back.
void session_routes_undo(const struct session_detail *detail, uint16_t old_vrf, const struct session_wanted *w);
// Remove those that the session had and that are no longer wanted.
void session_routes_release(const struct session_detail *old, uint16_t old_vrf, const struct session_detail *now,
	const struct session_wanted *w);

// To another access key under traffic (move.c). Main thread. NULL: no memory. What is made is known to workers at once.
struct session_move *session_move_new(uint32_t index, const struct session_wanted *w);
// Nothing came of it.
void session_move_abandon(struct session_move *move);
// Both keys lead to the session, and its record says all else that is wanted. It is over by itself when workers have begun a new round.
void session_move_start(struct session_move *move);
void session_move_end(void *move);
// Wait until it is over, if the session is on its way.
void session_settle(uint32_t index);
// The session's header is made to agree with what was seen of the subscriber. Any thread.
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
uint32_t session_whose(uint32_t head, uint8_t family, const uint8_t *address);

// Keep what a packet with a valid source showed: MAC (if the session learns) and TPIDs, packed by session_seen(). False if
// the session has another MAC configured. Any thread.
bool session_observe(uint32_t index, uint64_t seen);

// The resolver of subscribers' Ethernet addresses. Main thread.
int session_resolve_start(void);
// What waits for the session is sent, or dropped because the session goes.
void session_resolved(uint32_t index);
void session_unresolvable(uint32_t index);
// The edge for a packet to a subscriber whose MAC is not known yet.
uint16_t session_resolve(struct packet *p);
