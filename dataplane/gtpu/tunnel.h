// SPDX-License-Identifier: Apache-2.0
// Tunnels: the records of sessions' GTP-U cores for workers, and the table from TEID to session.
#pragma once

#include <rte_cycles.h>

#include "core/map64.h"
#include "core/slab.h"
#include "gtpu/gtpu.h"
#include "gtpu/path.h"
#include "ip/ecn.h"
#include "session/session.h"

enum { TUNNEL_LIMIT = SESSION_LIMIT };

enum {
	TUNNEL_CLEAR_ECN = ECN_MASK, // the bits that the outer header does not get of the inner one
	TUNNEL_CONTAINER = 1 << 2,
	TUNNEL_REFLECTIVE = 1 << 3,
};

// With IPv4 outside all of it is in one cache line, which is copied before the packet as it is: the header is its end.
struct gtpu_tunnel {
	uint32_t checksum; // of the header so far, a sum of its words: IPv4's own, IPv6: of UDP
	uint32_t rules; // whose the derived rules are (reflect.h): a number that no other session has, before or after
	uint32_t reflecting; // worker_second() of the last rule that a downlink packet made, 0: never
	uint16_t vrf;
	uint8_t length; // of the header
	uint8_t family; // 4 or 6
	uint8_t flags;
	uint8_t qfi;                  // of packets without another one
	uint16_t path;                // of gtpu_path_mtu
	uint8_t header4[GTPU_ENCAP4]; // right-aligned

	uint8_t header6[GTPU_ENCAP6];
} __rte_cache_aligned;

static_assert(offsetof(struct gtpu_tunnel, header6) == RTE_CACHE_LINE_SIZE, "an IPv4 header ends with its cache line");
static_assert(sizeof(struct gtpu_tunnel) == 2 * RTE_CACHE_LINE_SIZE, "a tunnel is two cache lines");

extern struct slab gtpu_tunnels;

static inline struct gtpu_tunnel *
tunnel_at(uint32_t index)
{
	return (struct gtpu_tunnel *)gtpu_tunnels.records + index;
}

// Main thread.
uint32_t gtpu_session_of(uint32_t tunnel);

// From gtpu_teid_key() to the session.
extern struct map64 *gtpu_teids;

// By session: the only source that its tunnel accepts without a list. An IPv4 address as it lies, or the number of an
// IPv6 address of a peer (REMOTE_ENDS): the TEID was found by an end of ours, which has the family.
extern uint32_t *gtpu_peers;
// Whether the session's tunnel accepts packets from another source than its peer: the source of this outer header. Any thread.
bool gtpu_accepts(uint32_t session, const uint8_t *ip);

// The key of our end and a TEID. TEID 0 has no tunnel.
static inline uint64_t
gtpu_teid_key(uint32_t end, uint32_t teid)
{
	return end == NO_END || teid == 0 ? 0 : (uint64_t)end << 32 | teid;
}

// Whether the start of an IPv6 packet, its header whole, can be that of one of our tunnels: all fields except the ends and the TEID
// are compared. Any thread.
bool gtpu_could_send6(const uint8_t *packet, size_t length);
// 0 or -errno.
int gtpu_encap_start(void);

extern struct node gtpu_encap_node, gtpu_encap6_node, gtpu_input_node;
