// SPDX-License-Identifier: Apache-2.0
// Meters (kind Meter) and their token buckets.
#pragma once

#include "core/node.h"
#include "server/object.h"

enum { NO_METER = UINT32_MAX };

extern struct kind meter_kind;

// Buckets for one user of a profile, NO_METER if there is no room: its own, full, or with the scopes global and flow those that
// all its users share. A change of the profile applies to them, and their tokens stay.
uint32_t meter_new(struct object *profile);
void meter_retire(uint32_t meter);
// The buckets that all users of a profile share, NO_METER if its scope is not global.
uint32_t meter_global(const struct object *profile);
// Whether a packet passes the buckets of meter_global(); if not, `next` is where it goes. `now` is the TSC.
bool meter_passes(struct rte_mbuf *m, uint32_t meter, uint64_t now, uint16_t *next);
void meter_prefetch(uint32_t meter);

// The step of sessions. Its word of a session's record is the meter of packets of that direction, or NO_METER.
extern struct session_step meter_step;

// Steps of chains. In: a checked IP packet, data at its header, packet->family set.
extern struct node meter_up_node;   // the session's word of meter_step
extern struct node meter_down_node; // the same
extern struct node meter_in_node;   // meter_in of packet->interface
extern struct node meter_out_node;  // meter_out of the interface of packet->hop
