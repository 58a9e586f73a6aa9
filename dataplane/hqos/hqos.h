// SPDX-License-Identifier: Apache-2.0
// Hierarchical QoS (kinds QosScheduler, QosGroup, QosProfile): packets for a port wait in queues of their session's classes until it is
// their turn.
//
// A packet's `queue` is its place: the port, and behind it a number of the port's scheduler. It is set by a step of
// the session's chain, together with the class, while the packet is still the subscriber's own. When it is a whole
// frame and about to be sent by that port, it goes to the scheduler instead, which one worker owns; the others hand
// their packets to that one.
#pragma once

#include <stdatomic.h>

#include "core/node.h"
#include "server/object.h"

extern struct kind qos_scheduler_kind, qos_group_kind, qos_profile_kind;

enum { NO_QUEUE = 0, QUEUE_PORT_SHIFT = 24 };

// Queues of one more subscriber in the group, whose packets leave by this port (NO_PORT: by the group's port). NO_QUEUE: there is no
// room, or the group is of another port, with the fault explained.
uint32_t hqos_take(const struct object *group, const struct object *port, const char *field, struct fault *f);
// From now on packets of the session that go this way wait in `queue`, whose group and profile these are. Any change under traffic.
void hqos_use(uint32_t queue, uint32_t session, enum direction direction, const struct object *group,
	const struct object *profile);
// Packets of the session that go this way have no queue.
void hqos_use_none(uint32_t session, enum direction direction);
// No further packets get there. Packets that wait are dropped by name, or sent in their turn.
void hqos_give_back(uint32_t queue, bool drop);
// The scheduler that the queue is of: whether the group is of the same.
bool hqos_same_scheduler(uint32_t queue, const struct object *group);

// A step of chains, both ways. In: a checked IP packet, data at its header, packet->family set; or, family 0, a frame.
extern struct node hqos_classify_node;
