// Where PPPoE sessions are: port, VLANs and PPPoE session id in one word of 56 bits.
#pragma once

#include "core/map64.h"
#include "core/packet.h"

extern struct map64 *pppoe_sessions;
extern struct node pppoe_discovery_node;

static_assert(NO_SESSION == UINT32_MAX, "what is not in the map is no session");

// Never 0, except for session id 0, which is nobody's.
static inline uint64_t
pppoe_key(uint16_t port, uint16_t outer_vlan, uint16_t inner_vlan, uint16_t session)
{
	return (uint64_t)port << 40 | (uint64_t)outer_vlan << 28 | (uint64_t)inner_vlan << 16 | session;
}

static inline uint32_t
pppoe_find(uint64_t key)
{
	return map64_get(pppoe_sessions, key);
}
