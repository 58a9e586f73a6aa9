// SPDX-License-Identifier: Apache-2.0
// Portals (kind Portal): the addresses that sessions in a walled garden reach.
#pragma once

#include <stdatomic.h>

#include "core/node.h"
#include "core/slab.h"
#include "server/object.h"
#include "session/spec.h"

enum { PORTAL_LIMIT = 1024, PORTAL_ALLOWED = 64, PORTAL_NAME_SERVERS = 16, NO_PORTAL = UINT32_MAX };

struct portal {
	unsigned allowed, servers; // servers 0: any
	struct session_prefix list[PORTAL_ALLOWED], server_list[PORTAL_NAME_SERVERS];
};

struct portal_slot {
	_Atomic(struct portal *) portal; // NULL: unused
};

extern struct slab portal_slots;
extern struct kind portal_kind;

// By session: its portal, as portal_of() returns it. Valid only for a session with a portal step in its chains.
extern uint32_t *session_portals;

static inline uint32_t
portal_of(const struct object *object)
{
	// A new object has state NULL.
	return object ? (uint32_t)(uintptr_t)object->state - 1 : NO_PORTAL;
}

// Steps of chains. In: a checked IP packet of a session in a walled garden, data at its header, packet->vrf set.
extern struct node portal_up_node, portal_down_node;
