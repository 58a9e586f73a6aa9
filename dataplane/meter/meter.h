// Meters (kind Meter) and their token buckets.
#pragma once

#include "core/node.h"
#include "core/object.h"

enum { NO_METER = UINT32_MAX };

extern struct kind meter_kind;

// Buckets of their own for one user of a profile, full; UINT32_MAX if there is no room. They follow the profile when it
// changes, and keep what they hold.
uint32_t meter_new(struct object *profile);
void meter_retire(uint32_t meter);

// Steps of chains. In: a checked IP packet, data at its header, packet->family set.
extern struct node meter_up_node;   // the session's meter_up
extern struct node meter_down_node; // the session's meter_down
