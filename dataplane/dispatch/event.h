// The event device (rte_event) that hands packets from the worker that receives them to the one that works on them: a hardware
// load balancer (DLB2) where the data plane was told of one, else DPDK's distributed software scheduler.
#pragma once

#include <stdint.h>

#include <rte_eventdev.h>

#include "core/object.h"

// A queue of the device, and how its events are scheduled.
struct dispatch_queue {
	uint8_t queue, schedule;
};

struct dispatch_device {
	uint8_t id;
	// A worker's port is its number; if the device wants ports of their own for directed queues, those are this far on. 0: no.
	uint8_t directed;
	uint16_t enqueue_most, dequeue_most;
};

// Open: NULL as long as no port is spread by events. Workers read it.
extern const struct dispatch_device *_Atomic dispatch_device;

// The first of the queues that lead to one worker each.
enum { QUEUE_DIRECTED = 2 };

// The queue for a way of spreading (SLUICE__V1__PORT_SPREAD__...), with the device opened if that is the first; for directed
// ones, that to worker 0. Main thread. 0 or a negative errno, explained.
int dispatch_open(int spread, struct dispatch_queue *queue, struct fault *f);
