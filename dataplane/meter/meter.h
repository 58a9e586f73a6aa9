// Meters (kind Meter) and their token buckets.
#pragma once

#include "core/node.h"
#include "core/object.h"

enum { NO_METER = UINT32_MAX };

extern struct kind meter_kind;

// Buckets for one user of a profile, NO_METER if there is no room: its own, full, or with the scopes global and flow those that
// all its users share. They follow the profile when it changes, and keep what they hold.
uint32_t meter_new(struct object *profile);
void meter_retire(uint32_t meter);

// Steps of chains. In: a checked IP packet, data at its header, packet->family set.
extern struct node meter_up_node;   // the session's meter_up
extern struct node meter_down_node; // the session's meter_down
