// Access control lists (kind Acl).
#pragma once

#include "core/node.h"
#include "core/object.h"

enum { NO_ACL = UINT32_MAX };

extern struct kind acl_kind;

// The list's index, as sessions and interfaces keep it; it stays the same while the list is replaced.
static inline uint32_t
acl_of(const struct object *object)
{
	// What is not there yet has state NULL.
	return object ? (uint32_t)(uintptr_t)object->state - 1 : NO_ACL;
}

// Whether the list lets this packet through, of whose IP header on `length` bytes can be read. What the list cannot read it does not.
bool acl_permits_packet(uint32_t acl, uint8_t family, const uint8_t *ip, unsigned length);

// Steps of chains. In: a checked IP packet, data at its header, packet->family set.
extern struct node acl_up_node;   // the session's acl_up
extern struct node acl_down_node; // the session's acl_down
extern struct node acl_in_node;   // the acl_in of packet->interface
extern struct node acl_out_node;  // the acl_out of the interface of packet->hop
