// SPDX-License-Identifier: Apache-2.0
// Access control lists (kind Acl).
#pragma once

#include "core/node.h"
#include "server/object.h"

enum { NO_ACL = UINT32_MAX };

extern struct kind acl_kind;

// The list's index, as sessions and interfaces keep it; it stays the same while the list is replaced.
static inline uint32_t
acl_of(const struct object *object)
{
	// A new object has state NULL.
	return object ? (uint32_t)(uintptr_t)object->state - 1 : NO_ACL;
}

// Whether the list permits this packet. `length` bytes from its IP header on can be read. A packet that the list cannot read is not permitted.
bool acl_permits_packet(uint32_t acl, uint8_t family, const uint8_t *ip, unsigned length);

// The step of sessions. Its word of a session's record is the list of packets of that direction.
extern struct session_step acl_step;

// Steps of chains. In: a checked IP packet, data at its header, packet->family set.
extern struct node acl_up_node;   // the session's word of acl_step
extern struct node acl_down_node; // the same
extern struct node acl_in_node;   // the acl_in of packet->interface
extern struct node acl_out_node;  // the acl_out of the interface of packet->hop
