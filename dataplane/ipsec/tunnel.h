// SPDX-License-Identifier: Apache-2.0
// Tunnels (kind IpsecTunnel): interfaces and sessions whose packets are protected, and which SA sends them. A tunnel is one interface, the
// access of one session, or the core of one session.
#pragma once

#include "core/slab.h"
#include "ipsec/sa.h"
#include "ipsec/selector.h"

enum { IPSEC_TUNNEL_LIMIT = 1 << 16 };

// Outbound SAs of a tunnel by their selectors. Never changed: another list takes its place.
struct ipsec_choice {
	uint32_t count;
	uint32_t sas[]; // the highest precedence first
};

// The receiver of packets out of a tunnel that is no interface. It gets the inner IP packet, of which only the
// version in the first byte is checked. packet->detail is the number that ipsec_tunnel_take() was called with.
struct ipsec_taker {
	const struct node *node;
	// The largest packet inside is another one. Main thread.
	void (*changed)(uint32_t number);
};

struct ipsec_tunnel {
	const struct ipsec_choice *choice; // NULL: `out` sends every packet
	const struct ipsec_selectors *selectors;
	uint32_t out;        // or NO_SA
	uint32_t interface;  // or NO_INTERFACE
	uint32_t access_of;  // the session of the remote user behind it, or NO_SESSION
	uint32_t core_of;    // the session whose packets leave by it, or NO_SESSION
	uint32_t policy_of;  // the interface whose packets a SecurityPolicy protects with it, or NO_INTERFACE
	uint32_t policy_hop; // the policy's, whose own[0] is the index of this record
	const struct ipsec_selectors *policy_selectors;
	uint16_t mss;   // 0: unchanged
	uint16_t mtu;   // main thread: the largest packet inside
	uint32_t asked; // worker_second() of the last IpsecAcquire event
	uint32_t taken; // the taker's number
	uint16_t taker; // the edge from esp-decrypt to the taker's node, 0: packets come in by the interface
} __rte_cache_aligned;

static_assert(sizeof(struct ipsec_tunnel) == RTE_CACHE_LINE_SIZE, "a tunnel is one cache line");

extern struct slab ipsec_tunnels;
extern struct kind ipsec_tunnel_kind;

static inline struct ipsec_tunnel *
ipsec_tunnel_at(uint32_t index)
{
	return (struct ipsec_tunnel *)ipsec_tunnels.records + index;
}

static inline uint32_t
ipsec_tunnel_of(const struct object *object)
{
	return (uint32_t)(uintptr_t)object->state;
}

// Whether a selector of the tunnel, its policy or an outbound SA is for some ports. Any thread.
bool ipsec_tunnel_needs_ports(uint32_t index);

// By session: the tunnel that its packets leave by towards the remote user.
extern uint32_t *ipsec_access_tunnels;
// Out of the core of a session.
extern uint32_t ipsec_core_chain;
// By the session's core record: the tunnel.
extern uint32_t *ipsec_core_tunnels;

// Main thread. Whether the tunnel is free for an interface, or for this session as its access or core. 0, or -EEXIST with the fault explained.
int ipsec_tunnel_free(uint32_t index, uint32_t session, const char *field, struct fault *f);

// Main thread. A record that is no interface and no session, or UINT32_MAX; and give it back.
uint32_t ipsec_tunnel_new(struct object *object);
void ipsec_tunnel_give(uint32_t index);

// Main thread. NULL: it is gone.
struct object *ipsec_tunnel_object(uint32_t index);

// Once, before any worker runs: there is one taker.
void ipsec_taker_start(const struct ipsec_taker *taker);
// Main thread: the taker gets the packets out of the tunnel, or gets them no longer. -EEXIST: it gets them already.
int ipsec_tunnel_take(uint32_t tunnel, uint32_t number);
void ipsec_tunnel_untake(uint32_t tunnel);

// Main thread: the outbound SAs of the tunnel, the highest precedence first. Rebuilds the choice that workers read.
void ipsec_tunnel_choose(uint32_t tunnel, const uint32_t *sas, unsigned count);
