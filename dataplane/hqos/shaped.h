// SPDX-License-Identifier: Apache-2.0
// Ports with a scheduler, and the worker that owns each. The main thread requests a change of a subscriber by one word in its record, and
// puts its number on a list. The owner reads the list between two bursts.
#pragma once

#include <rte_ring.h>

#include "core/slab.h"
#include "core/worker.h"
#include "hqos/hqos.h"
#include "hqos/profile.h"
#include "port/port.h"

enum {
	QOS_GROUPS = 1 << 16,
	QOS_SUBSCRIBERS = 1 << 22,
	// Every scheduler has these: the gateway's own packets, which go before all others, and packets without a session.
	OWN_SUBSCRIBER = 0,
	OTHER_SUBSCRIBER,
	FIRST_SUBSCRIBER,
	OWN_GROUP = 0,
	OTHER_GROUP,
	FIRST_GROUP,
};

// The rate of the port itself.
struct shaped_rate {
	struct pace peak;
	int16_t overhead;
	uint64_t number; // each has another
};

struct shaped {
	struct shaped *next;   // of the same owner
	struct object *object; // QosScheduler
	struct port *port;
	unsigned owner; // worker
	struct hqos_scheduler *scheduler;
	struct rte_ring *rings[WORKER_MAX]; // from each other worker to the owner

	uint32_t changed;         // the last subscriber that changed, or NO_ID; each knows the one before
	uint32_t unsettled;       // the owner's: the last of those without the desired state yet, or NO_ID
	uint32_t before_them;     // packets that may have come before them and are still in the rings, in the fullest
	struct shaped_rate *rate; // the requested one
	uint64_t has;             // the number of the one that the scheduler has

	// The main thread's.
	struct slab subscribers, groups; // numbers in use
	struct hqos_group_profile **group_profiles;
};

extern struct shaped *shaped_ports[PORT_MAX];
extern struct qos_profile **qos_profiles; // by number; 0 is the open one

static inline struct shaped *
shaped_of(const struct object *scheduler)
{
	return scheduler->state;
}

// A QosGroup: its scheduler and its number there.
struct qos_group {
	struct shaped *shaped;
	uint32_t number;
	struct hqos_group_counters before; // the counters of an earlier group of this number
};

static inline const struct qos_group *
qos_group_of(const struct object *group)
{
	return group->state;
}

static inline uint32_t
qos_profile_of(const struct object *profile)
{
	return (uint32_t)(uintptr_t)profile->state;
}

static inline const struct qos_profile *
qos_profile_at(uint32_t number)
{
	return __atomic_load_n(&qos_profiles[number], __ATOMIC_ACQUIRE);
}

// By session and direction: the queue of its packets, and the profile that selects the class.
struct qos_binding {
	uint32_t queue;
	uint16_t profile;
	uint16_t spare;
};
extern struct qos_binding *qos_bindings[2]; // by enum direction

// Groups of a scheduler: the profile of one, which is replaced as a whole; NULL: the group is gone.
void shaped_set_group(struct shaped *shaped, uint32_t group, struct hqos_group_profile *profile);

// A QosScheduler begins and ends. 0 or a negative errno with the fault explained.
int shaped_open(struct object *object, struct port *port, const struct shaped_rate *rate, struct fault *f);
void shaped_close(struct shaped *shaped);
// Its rate changes. -ENOMEM.
int shaped_change(struct shaped *shaped, const struct shaped_rate *rate);

// Main thread: whether the owner has seen the new subscriber of this number. Before that, the counters are those of the old one.
bool shaped_has_settled(const struct shaped *shaped, uint32_t subscriber);

// The owner's worker, between two bursts: apply requested changes. Packets of deleted subscribers are put into `packets`; returns their number.
unsigned shaped_catch_up(struct shaped *shaped, struct rte_mbuf **packets, unsigned room, uint64_t now);
// The same for one subscriber: true if he is there now.
bool shaped_admit(struct shaped *shaped, uint32_t subscriber, uint64_t now);

// The shares of the packet buffers that the queues of all ports, and those of one port, may hold: the rest is for packets in flight, and
// for packets that wait elsewhere (packet_may_wait()).
static inline uint32_t
shaped_all_max(uint32_t buffers)
{
	return buffers / 2;
}
static inline uint32_t
shaped_port_max(uint32_t buffers)
{
	return buffers / 4;
}

// Buffers that a port's queues may always hold: half of an equal part. Up to there, nothing is counted.
extern uint32_t shaped_ample;
// The owner's worker: how many more its queues may hold.
void shaped_look_at_room(struct shaped *shaped);

static inline void
shaped_set_room(struct shaped *shaped, unsigned coming)
{
	struct hqos_scheduler *s = shaped->scheduler;

	s->room = HQOS_AMPLE;
	if (unlikely(hqos_buffers(s) + coming > __atomic_load_n(&shaped_ample, __ATOMIC_RELAXED)))
		shaped_look_at_room(shaped);
}

// The first of those that the worker owns.
extern struct shaped *shaped_owned[WORKER_MAX];
