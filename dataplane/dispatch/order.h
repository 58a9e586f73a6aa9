// SPDX-License-Identifier: Apache-2.0
// Frames that any worker may work on and that leave in the order in which they came: a burst from an ordered queue of the event device.
//
// Frames that leave are held until the worker has finished the whole burst. Then the device gets each event back, in the order in
// which they were taken: with the frames to send, which the device puts in order with those of other workers and hands out
// by flow to be sent, or released if no frame leaves (it was dropped, or has another owner now).
#pragma once

#include "core/burst.h"
#include "core/worker.h"
#include "dispatch/event.h"
#include "port/port.h"

// The most that is taken at once: a place must fit a packet's `order`.
enum { ORDER_MAX = 128 };

// By port: how many frames of it were given to event devices and have come out for good, by each worker.
struct dispatched {
	uint64_t given[PORT_MAX], taken[PORT_MAX];
} __rte_cache_aligned;
extern struct dispatched dispatched[WORKER_MAX + 1];

// Take the device's events for this worker: frames that arrive go to the first node, frames that leave are sent. Returns their number.
uint16_t order_take(const struct dispatch_device *device, struct rte_graph *graph, struct rte_node *node);

// Hold frames that have a place in the burst. Returns the number of the others, moved to the front.
uint16_t order_keep(struct rte_mbuf **frames, uint16_t count);
