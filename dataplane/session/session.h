// SPDX-License-Identifier: Apache-2.0
// Sessions (kind Session): one record for each subscriber, a cache line for each direction.
#pragma once

#include <rte_byteorder.h>
#include <rte_ether.h>

#include "core/node.h"
#include "core/slab.h"
#include "core/worker.h"
#include "ether/circuit.h"
#include "server/object.h"
#include "session.pb-c.h"

enum {
	SESSION_ANY_SOURCE = 1 << 0,
	SESSION_POINT = 1 << 1,      // its access has no Ethernet addresses to ask for (PPP)
	SESSION_LEARNS_MAC = 1 << 2, // no MAC configured: the last one seen with a valid source
	SESSION_PROXY_ARP = 1 << 3,
	SESSION_FRAMES = 1 << 5, // of type Ethernet
	SESSION_SHARES = 1 << 4, // its access has further sessions, and leads to this one
};

// Of all steps together, in each cache line of a session's record.
enum { SESSION_STEP_WORDS = 4 };

struct session {
	// From the subscriber: the first cache line.
	uint32_t up4; // chain after the source check
	uint32_t up6;
	// The first IPv4 prefix of the subscriber, network order: any source is mask 0, none is 255.255.255.255/32, which is
	// never a source. Further ones are in the detail's list. Read and written as one word.
	union {
		struct {
			uint32_t source4, mask4;
		};
		uint64_t prefix4;
	};
	uint8_t source6[16]; // the same for IPv6; none is all ones
	uint64_t seen;       // the subscriber's MAC and TPIDs, as session_seen() packs them; MAC 0: not known
	uint32_t core;       // the core encapsulation's own record, by the concept that the chain leads to
	uint16_t vrf;
	uint8_t length6; // of source6, in bits
	uint8_t flags;
	uint32_t steps_up[SESSION_STEP_WORDS]; // of the steps that declare them (session/step.h)

	// To the subscriber: the second.
	uint32_t down4; // chain of packets for the subscriber
	uint32_t down6;
	uint32_t steps_down[SESSION_STEP_WORDS];
	uint8_t header[32]; // of its access (session_frame): right-aligned; type and length are filled in by packet
	uint16_t port;
	uint16_t mtu;          // 0 as long as the subscriber's MAC is not known: nothing can be sent
	uint16_t mss;          // 0: as it is
	uint8_t header_length; // of `header`, from its right end
	uint8_t access;        // the number of its access
} __rte_cache_aligned;

static_assert(
	offsetof(struct session, down4) == RTE_CACHE_LINE_SIZE, "what downlink reads is in the second cache line");
static_assert(sizeof(struct session) == 2 * RTE_CACHE_LINE_SIZE, "a session is two cache lines");

extern struct slab sessions;
extern struct kind session_kind;

// Counted when a packet enters the session. Drops of later steps are subtracted on reading.
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

// The object, for names; NULL if there is no such session. Main thread.
struct object *session_object(uint32_t index);
// Its name, for people; "?" if there is none. Main thread.
const char *session_name(uint32_t index);

// Packets that a session passed and dropped since it was made. Main thread.
struct session_totals {
	uint64_t packets[2], bytes[2]; // by enum direction
	uint64_t drops;                // in either direction, for any reason
	struct rte_ether_addr mac;     // configured or learned
	bool mac_known;
};
void session_totals(uint32_t index, struct session_totals *totals);
// struct kind's final: the packed SessionCounters.
size_t session_final(const struct object *object, uint8_t *room, size_t size);

// Whether the subscriber may use this address (network order, 4 or 16 bytes): it lies in one of the session's prefixes, or
// any may. Any thread.
bool session_holds(uint32_t index, uint8_t family, const uint8_t *address);
// Whether the session is the link of a PDU session whose addresses the gateway does not know: subscriber and UPF have it to themselves, with router
// advertisements and DHCP (TS 23.501 section 5.8.2.2). On a link with Ethernet addresses to resolve, the gateway is a host in any case. Any thread.
bool session_is_link_of_core(uint32_t index);

// The subscriber's Ethernet address from ARP or ND: stored if the session learns; packets that wait for it are sent. Any thread.
void session_learn(uint32_t index, const uint8_t mac[6]);

// Write the Ethernet header with tags of a frame to the subscriber's circuit that is not IP, such as ARP: at most 22 bytes,
// right-aligned at the end of `room`. Returns its length. `type` is the Ethernet type in host order.
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
// The same for accesses with an output of their own, which is the step behind it: MTU and TTL.
extern struct node session_point_out_node;
// session_up4_node and session_up6_node for packets without a frame.
extern struct node session_point_up4_node, session_point_up6_node;
// The same for sessions of type Ethernet: whole frames, from the access with its tags, for the access without.
extern struct node session_frames_up_node, session_frames_down_node, session_frames_out_node;
// session_point_out_node for frames.
extern struct node session_frames_point_out_node;
// A step of chains of sessions with an MSS.
extern struct node mss_clamp_node;

// The header of frames to a subscriber: Ethernet, tags, and the header of the access. Its last four bytes are a length and the type of
// the packet behind it, or two constant bytes and the type. `session_frames` is by number of the access.
enum { SESSION_ACCESSES = 16, SESSION_BEHIND_TAGS = 10 };
struct session_frame {
	uint16_t types[2]; // of IPv4 and of IPv6, network order
	uint16_t more;     // bytes that the length counts beside the packet
	bool has_length;
	uint8_t behind; // bytes behind the tags and the first type: of priorities in the header, none are there
	// Of sessions of type Ethernet. 0: a frame has the tags of the access behind its addresses. Else the whole frame is behind the header, which has
	// this type, and behind two more bytes. Both are in network order.
	uint16_t frame_type, before_frame;
	// Write the other fields that depend on the packet; its data begins at `ip`, and the header is before that.
	// NULL: there are none.
	void (*finish)(uint8_t *ip, const struct packet *p);
};
extern struct session_frame session_frames[SESSION_ACCESSES];

// An access encapsulation: how packets of a subscriber lead to its session, and how packets to the subscriber leave. Registered by its concept.
// Most are on a circuit, a port and its VLANs: `need`, `mtu` and `out` are NULL. Any other (a tunnel of IPsec or L2TP, a port of a bridge) sets
// all three; its packets enter by session_input() (session/point.h).
struct session_key;  // session/spec.h
struct session_spec; // session/spec.h
struct session_access {
	const char *name; // for people
	// Whether the spec asks for this access: a field of the concept's own is set. Each spec is of one. NULL: the access takes specs that ask
	// for no other.
	bool (*takes)(const Sluice__V1__Access *spec);
	// Read the spec into the key that finds its packets: `own` is the access's, and session_parse_circuit() reads circuits. 0, or -EINVAL
	// with the fault explained.
	int (*parse)(const Sluice__V1__Access *spec, struct session_key *key, struct fault *f);
	// The object that it is on, found by object_need(); it stays as long as the session is on it. NULL: the circuit's port.
	int (*need)(const Sluice__V1__Access *spec, struct session_key *key, struct object **under, struct fault *f);
	// The largest IP packet to the subscriber that the object takes. After a change: session_follow(). NULL: the port's.
	uint16_t (*mtu)(const struct session_key *key, const struct object *under);
	// The last step of packets to the subscriber, for a header that is longer than 32 bytes, or of a length that varies. In: an IP packet
	// whose TTL is counted down, or a frame (family 0), no larger than the MTU; packet->session. NULL: the session's record has the header.
	const struct node *out;
	// With `out` NULL: write the bytes behind the tags, SESSION_BEHIND_TAGS at most. Returns their number. NULL: the Ethernet type alone.
	unsigned (*header)(const struct session_key *key, uint8_t *behind);
	struct session_frame frame;
	// Bytes behind the Ethernet type that are no IP packet and that the port's MTU counts.
	uint16_t overhead;
	// Subscribers' Ethernet addresses are found out by ARP and neighbour discovery. If not, and there is none yet, nothing can be sent.
	bool resolves;
	// The field of the spec that a session of type Ethernet cannot have; NULL: it can have this access.
	const char *no_frames;
	// Once, before any worker runs. May be NULL.
	int (*start)(void);
	// The access's further fields of a session, which `out` reads: written before packets lead there, and after
	// each change. NULL: none.
	void (*publish)(uint32_t session, const struct session_key *key);
	// For traces: "PPPoE session 7". NULL: the name.
	void (*describe)(const struct session_key *key, char *text, size_t size);
	// Whether the same frames lead to two keys of this access. Frames do not show the PDU session id.
	bool (*same)(const struct session_key *a, const struct session_key *b);
	// Frames of the key are the session's from then on. `frames`: it is of type Ethernet. `alone`: the session has the circuit already and
	// is the only one there (circuit_bind_session()). 0, -EEXIST, -ENOMEM, with the fault explained.
	int (*bind)(const struct session_key *key, uint32_t session, bool frames, bool alone, struct fault *f);
	void (*unbind)(const struct session_key *key);
	// The session, or NO_SESSION.
	uint32_t (*find)(const struct session_key *key);
	// After -EEXIST: the session that has the key, or NO_SESSION. NULL: the fault names it.
	uint32_t (*taker)(const struct session_key *key);
	// The key belongs to another session from then on.
	void (*rebind)(const struct session_key *key, uint32_t session);
	uint8_t number;
};
void session_access_register(struct session_access *access);
#define SESSION_ACCESS_REGISTER(access) \
	RTE_INIT(register_##access) \
	{ \
		session_access_register(&access); \
	}
// The access of this name, or NULL.
const struct session_access *session_access_named(const char *name);
// The MTU of a session's access has changed. Main thread.
void session_follow(uint32_t index);

// A core encapsulation: how a session whose spec has this core leaves. Registered by its concept (RTE_INIT).
struct session_core {
	// Whether the spec asks for this core: the concept's member of the oneof is set.
	bool (*takes)(const Sluice__V1__Session *spec);
	// The field because of which the session is of type Ethernet: whole frames go into this core. NULL: it is not, or no session of this
	// core is.
	const char *(*frames)(const Sluice__V1__Session *spec);
	// Once, before any worker runs.
	int (*start)(void);
	// Make a core record from the spec that no packet finds yet: *core is its index, and *encap the last step of
	// the session's up chains, which puts on a header of any length (packet_make_room()). Keys of other sessions
	// are refused here.
	int (*put)(uint32_t session, const void *spec, uint32_t *core, const struct node **encap, struct fault *f);
	// From now on packets find the session by this record's keys: the session's own record is complete. The session's old core
	// record, `old`, UINT32_MAX if there is none, is removed afterwards; keys that both have stay. Fails only without
	// memory.
	int (*bind)(uint32_t core, uint32_t old, struct fault *f);
	// Remove its keys first, so that no packet finds the session by it.
	void (*remove)(uint32_t core);
	struct session_core *next;
};
void session_core_register(struct session_core *core);
