// Sessions (kind Session): one record for each subscriber, a cache line for each direction.
#pragma once

#include <rte_byteorder.h>
#include <rte_ether.h>

#include "core/node.h"
#include "core/object.h"
#include "core/slab.h"
#include "core/worker.h"
#include "ether/circuit.h"

enum {
	SESSION_ANY_SOURCE = 1 << 0,
	SESSION_PPPOE = 1 << 1,
	SESSION_LEARNS_MAC = 1 << 2, // no MAC configured: the last one seen with a valid source
	SESSION_PROXY_ARP = 1 << 3,
	SESSION_FRAMES = 1 << 5, // of type Ethernet
	SESSION_SHARES = 1 << 4, // its access has further sessions, and leads to this one
};

struct session {
	// From the subscriber: the first cache line.
	uint64_t up4; // chain after the source check
	uint64_t up6;
	// The first IPv4 prefix of the subscriber, network order: any source is mask 0, none is 255.255.255.255/32, which nobody
	// sends from. Further ones are in the detail's list. Read and written as one word.
	union {
		struct {
			uint32_t source4, mask4;
		};
		uint64_t prefix4;
	};
	uint8_t source6[16]; // the same for IPv6; none is all ones
	uint64_t seen;       // the subscriber's MAC and TPIDs, as session_seen() packs them; MAC 0: not known
	uint32_t acl_up;
	uint32_t meter_up; // state in meter/meter.h
	uint32_t core;     // the core encapsulation's own record, by the concept that the chain leads to
	uint16_t vrf;
	uint8_t length6; // of source6, in bits
	uint8_t flags;

	// To the subscriber: the second.
	uint64_t down4; // chain of packets for the subscriber
	uint64_t down6;
	uint8_t header[32]; // Ethernet, tags, PPPoE: right-aligned; type and PPPoE length are filled in by packet
	uint32_t acl_down;
	uint32_t meter_down;
	uint16_t port;
	uint16_t mtu;          // 0 as long as the subscriber's MAC is not known: nothing can be sent
	uint16_t mss;          // 0: as it is
	uint8_t header_length; // of `header`, from its right end
	uint8_t pppoe;         // 1: PPPoE, 0: IPoE
} __rte_cache_aligned;

static_assert(
	offsetof(struct session, down4) == RTE_CACHE_LINE_SIZE, "what downlink reads is in the second cache line");
static_assert(sizeof(struct session) == 2 * RTE_CACHE_LINE_SIZE, "a session is two cache lines");

extern struct slab sessions;
extern struct kind session_kind;

// Counted when a packet enters the session; what a later step drops is taken off again on reading.
struct session_counters {
	uint64_t packets[2], bytes[2]; // by enum direction
};
extern struct counters session_counters;

// A burst of packets that entered sessions, for ALL_SESSIONS.
static inline void
session_count_all(struct session_counters *counters, enum direction direction, uint16_t packets, uint64_t bytes)
{
	counters[ALL_SESSIONS].packets[direction] += packets;
	counters[ALL_SESSIONS].bytes[direction] += bytes;
}

static inline struct session *
session_at(uint32_t index)
{
	return (struct session *)sessions.records + index;
}

static inline uint32_t
session_of(const struct object *object)
{
	return (uint32_t)(uintptr_t)object->state;
}

// The object, for names; NULL if there is no such session (any more). Main thread.
struct object *session_object(uint32_t index);
// Its name, for people; "?" if there is none. Main thread.
const char *session_name(uint32_t index);

// What a session let through and what it did not, since it was made. Main thread.
struct session_totals {
	uint64_t packets[2], bytes[2]; // by enum direction
	uint64_t drops;                // in either direction, whatever the reason
	struct rte_ether_addr mac;     // configured or learned
	bool mac_known;
};
void session_totals(uint32_t index, struct session_totals *totals);

// Whether the subscriber may use this address (network order, 4 or 16 bytes): it lies in one of the session's prefixes, or
// any may. Any thread.
bool session_holds(uint32_t index, uint8_t family, const uint8_t *address);

// The subscriber's Ethernet address as ARP or ND tell it: kept if the session learns, and what waits for it is sent. Any thread.
void session_learn(uint32_t index, const uint8_t mac[6]);

// The Ethernet header with tags for a frame to the subscriber's circuit that is not IP, ARP say: at most 22 bytes,
// right-aligned at the end of `room`; its length is returned. `type` is the Ethernet type in host order.
unsigned session_header(uint32_t index, const struct rte_ether_addr *destination, uint16_t type, uint8_t room[32]);

// TPIDs in 16 bits that differ for any two pairs of 0x8100, 0x88a8, 0x9100 and 0 (network order).
static inline uint16_t
session_tpids(uint16_t outer, uint16_t inner)
{
	return (uint16_t)(outer ^ (inner << 1 | inner >> 15));
}

// The MAC at `mac`, of which eight bytes can be read, and the TPIDs in one word.
static inline uint64_t
session_seen(const uint8_t *mac, uint16_t outer_tpid, uint16_t inner_tpid)
{
	uint64_t word;

	memcpy(&word, mac, sizeof(word));
	return (word & 0xffffffffffff) | (uint64_t)session_tpids(outer_tpid, inner_tpid) << 48;
}

enum { SESSION_MAC_BITS = 48 };

static inline bool
session_mac_known(const struct session *s)
{
	return __atomic_load_n(&s->seen, __ATOMIC_RELAXED) << (64 - SESSION_MAC_BITS) != 0;
}

// Whether the record's own IPv4 prefix has the address (network order). False does not mean no: see session_holds().
static inline bool
session_first4(const struct session *s, uint32_t address)
{
	uint64_t prefix = __atomic_load_n(&s->prefix4, __ATOMIC_RELAXED);

	return (address & (uint32_t)(prefix >> 32)) == (uint32_t)prefix;
}

// The same for IPv6.
static inline bool
session_first6(const struct session *s, const uint8_t *address)
{
	uint64_t high, low, mine_high, mine_low;
	unsigned length = s->length6;

	memcpy(&high, address, sizeof(high));
	memcpy(&low, address + 8, sizeof(low));
	memcpy(&mine_high, s->source6, sizeof(mine_high));
	memcpy(&mine_low, s->source6 + 8, sizeof(mine_low));
	high = rte_be_to_cpu_64(high ^ mine_high);
	low = rte_be_to_cpu_64(low ^ mine_low);
	high &= length >= 64 ? ~0ull : ~(~0ull >> length);
	low &= length <= 64 ? 0 : ~0ull << (128 - length);
	return (high | low) == 0;
}

// In: a checked IP header from the access side (packet->session). Source check, counting, then the session's chain.
extern struct node session_up4_node, session_up6_node;
// In: an IP packet for the subscriber (packet->session), IPv4 or IPv6. Counts, then the session's down chain.
extern struct node session_down_node;
// Last step of a down chain: MTU, TTL if routed, header of the access side. Out: tx.
extern struct node session_out_node;
// The same for sessions of type Ethernet: whole frames, from the access with its tags, for the access without.
extern struct node session_frames_up_node, session_frames_down_node, session_frames_out_node;
// A step of chains of sessions with an MSS.
extern struct node mss_clamp_node;

// An access encapsulation that tells the sessions of a circuit apart by an id of its own: PPPoE. Registered by its concept
// (RTE_INIT).
struct session_access {
	// Once, before any worker runs.
	int (*start)(void);
	// Frames with this id on this circuit are the session's from then on. 0, -EEXIST, -ENOMEM.
	int (*bind)(const struct circuit *c, uint16_t id, uint32_t session, struct fault *f);
	void (*unbind)(const struct circuit *c, uint16_t id);
	// The session, or NO_SESSION.
	uint32_t (*find)(const struct circuit *c, uint16_t id);
	// What is bound is another session's from then on.
	void (*rebind)(const struct circuit *c, uint16_t id, uint32_t session);
};
void session_access_register(const struct session_access *access);
// NULL before it is registered.
extern const struct session_access *session_pppoe;

// A core encapsulation: how a session whose spec has this core leaves. Registered by its concept (RTE_INIT).
struct session_core {
	int which; // SLUICE__V1__SESSION__CORE_...
	// Once, before any worker runs.
	int (*start)(void);
	// Make a core record from the spec that no packet finds yet: *core is its index, and *encap the last step of the
	// session's up chains. What another session has is refused here.
	int (*put)(uint32_t session, const void *spec, uint32_t *core, const struct node **encap, struct fault *f);
	// From now on packets find the session by this record's keys: the session's own record is whole. The session's core
	// record so far, `old`, UINT32_MAX if there is none, is removed afterwards and leaves alone what the two share. Only
	// memory can lack.
	int (*bind)(uint32_t core, uint32_t old, struct fault *f);
	// Its keys first, so that nothing finds the session by it any more.
	void (*remove)(uint32_t core);
	struct session_core *next;
};
void session_core_register(struct session_core *core);
