// SPDX-License-Identifier: Apache-2.0
// The event devices (rte_event) that hand packets from the worker that receives them to the one that works on them: a hardware
// load balancer (DLB2) if one is configured, else DPDK's distributed software scheduler. For ordered queues, which that one does not
// have, DPDK's other software scheduler, which is a service that the workers run in turn.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rte_eventdev.h>

#include "server/object.h"

enum { DISPATCH_DEVICES = 2 };

// A queue of a device, and how its events are scheduled.
struct dispatch_queue {
	uint8_t device, queue, schedule, spare;
};

struct dispatch_device {
	uint8_t id;
	// A worker's port is its number. If the device needs ports of their own for directed queues, those are this
	// far on. 0: no.
	uint8_t directed;
	// It has ordered queues. A worker gives events back one by one, in order (order.h): ordered
	// ones to the queue `leaving`.
	bool orders;
	bool keeps_flow; // events come out with the flow that they went in with
	uint8_t ordered, leaving;
	int64_t service; // that schedules, and has to be run; less than 0: it schedules by itself
	uint16_t max_enqueue, max_dequeue;
};

// By number; NULL: not open. Workers read it.
extern const struct dispatch_device *_Atomic dispatch_devices[DISPATCH_DEVICES];

// The first of the queues that lead to one worker each.
enum { QUEUE_DIRECTED = 2 };

// The queue for a way of spreading (SLUICE__V1__PORT_SPREAD__...), of the first device that has such, opened if need be; for directed
// ones, that to worker 0. Main thread. 0 or a negative errno, explained.
int dispatch_open(int spread, struct dispatch_queue *queue, struct fault *f);

// Let the device schedule, if it does not by itself. A worker returns at once while another one does so.
void dispatch_schedule(const struct dispatch_device *device);
