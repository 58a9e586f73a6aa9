// The scheduler of a port: four levels (port, group, subscriber, class), each with a peak rate, and all but the port with a committed
// one. A packet is sent when all above it conform to their peaks. Who is within its committed rate goes before who is not: among a
// port's groups, among a group's subscribers, among a subscriber's classes. Otherwise groups and subscribers share by weight, and
// classes go by strict priority, those of the same priority sharing by weight.
//
// Nothing is searched for: who may send stands in a queue, who may not yet stands in a timing wheel, and who has nothing to send
// stands nowhere. So a packet costs the same with two hundred subscribers as with two hundred thousand, but for the
// caches; and ids are read from queues some places ahead, so that what they stand for is in the cache when its turn comes.
//
// One worker owns a scheduler, and only it calls what is declared here.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "core/packet.h"
#include "hqos/pace.h"
#include "hqos/wheel.h"

enum {
	HQOS_CLASSES = 8,
	// What one may send at a turn, in bytes for each unit of weight. More than a usual frame, so that a turn with the least
	// weight is worth the cost of taking it.
	HQOS_QUANTUM = 2048,
	HQOS_BURST = 256,
};

enum hqos_drop_policy { HQOS_TAIL_DROP, HQOS_WRED, HQOS_CODEL };

// A class, in the machine's units. Classes are numbered by priority: the lower, the earlier.
struct hqos_class_profile {
	struct pace peak;
	struct pace committed;
	uint32_t quantum;          // bytes a turn
	uint32_t limit;            // packets that may wait
	uint8_t equals;            // a bit for each class of the same priority, itself among them
	uint8_t policy;            // enum hqos_drop_policy
	uint8_t wred_shift;        // weight of a new sample in the average length, as a power of two
	uint32_t wred_min[3];      // by colour: packets in the average queue from which on some are dropped
	uint32_t wred_max[3];      // and from which on all are
	uint32_t wred_probability; // with which one is dropped just below that, times 2^32
	uint32_t codel_target;     // in units of CODEL_SHIFT
	uint32_t codel_interval;
};

struct hqos_profile {
	struct pace peak;
	struct pace committed;
	uint32_t quantum; // bytes a turn, of the subscriber in its group
	int16_t overhead; // bytes that the access line adds to each frame (RFC 4679; TR-178)
	bool cells;       // ATM: frames are cut into cells of 48 bytes, which take 53
	bool has_committed;
	uint8_t class_peaks;     // a bit for each class that has a peak rate
	uint8_t class_committed; // and a committed one
	struct hqos_class_profile classes[HQOS_CLASSES];
};

struct hqos_group_profile {
	struct pace peak;
	struct pace committed;
	uint32_t quantum;
	int16_t overhead;
	bool has_committed;
};

enum {
	HQOS_IN_GREEN = 1 << 0, // an entry stands in the queue of those within their committed rate
	HQOS_IN_OTHER = 1 << 1, // and in the one of the others
};

// Packets that wait, by their buffers' numbers (0: none), in the order in which they came.
struct hqos_queue {
	uint32_t head, tail;
	int32_t credit; // bytes that it still may send in its turn
	uint32_t count;
};

struct hqos_class_state {
	uint64_t peak_paid, committed_paid;
};

// What WRED and CoDel remember of a queue.
struct hqos_aqm {
	uint32_t
		first_above; // CoDel: when the delay will have been too long for an interval, or 0. WRED: the average, 16.16
	uint32_t drop_next;
	uint32_t count : 31, dropping : 1;
	uint32_t last_count;
};

// 448 bytes. Sending a packet touches the first line, and of the queues the one of its class; the rates of classes and what CoDel
// and WRED remember only if the profile uses them.
struct hqos_subscriber {
	uint64_t peak_paid, committed_paid;
	struct place place;
	uint32_t group;
	int32_t credit;
	uint16_t profile;
	uint8_t backlog; // a bit for each class that has packets
	uint8_t flags;
	uint8_t turn; // the class that shares with its equals and is being served
	uint8_t used; // it exists
	uint32_t packets;

	_Alignas(64) struct hqos_queue queues[HQOS_CLASSES];
	struct hqos_class_state classes[HQOS_CLASSES];
	struct hqos_aqm aqm[HQOS_CLASSES];
} __attribute__((aligned(64)));

static_assert(sizeof(struct hqos_subscriber) == 448, "a subscriber's memory is what the documentation says");

// Whose turn has begun below: of those within their committed rate, which go first and end others' turns for a while, and of the
// others. What the first send does not count as their share of the rest.
struct hqos_turns {
	uint32_t green, other; // or NO_ID
	int32_t green_credit;  // bytes
};

struct hqos_group {
	uint64_t peak_paid, committed_paid;
	struct place place;
	int32_t credit;
	uint16_t profile;
	uint8_t flags;
	uint8_t used;
	struct hqos_turns turns;   // of subscribers
	struct fifo green, others; // of subscribers
} __attribute__((aligned(64)));

struct hqos_scheduler {
	struct pace peak;
	uint64_t paid;
	int16_t overhead;
	uint32_t random;
	struct hqos_turns turns;   // of groups
	struct fifo green, others; // of groups

	struct hqos_subscriber *subscribers;
	struct hqos_group *groups;
	struct hqos_profile *profiles;
	struct hqos_group_profile *group_profiles;
	uint32_t subscriber_limit, group_limit;
	size_t chunk_limit;
	uintptr_t buffers; // what buffers' numbers count from
	struct chunks chunks;
	uint32_t packets; // that wait

	// Packets that were taken out because they waited too long, until the caller takes them.
	struct rte_mbuf *dropped[HQOS_BURST];
	unsigned dropped_count;

	struct wheel wheel;
};

// What is known of a packet that waits, in place of its chain, which it does not need any more.
struct hqos_link {
	uint32_t next;    // buffer number, 0: the last
	uint32_t arrived; // in units of CODEL_SHIFT
};

enum { CODEL_SHIFT = 10 + TICK_SHIFT }; // 1,024 cycles

// Space for so many subscribers and groups; the caller keeps the profiles. All packets' buffers are between the two addresses,
// which are at most 256 GB apart. NULL: no memory. `now` in TSC cycles, here and below.
struct hqos_scheduler *hqos_new(uint32_t subscribers, uint32_t groups, struct hqos_profile *profiles,
	struct hqos_group_profile *group_profiles, const void *lowest, const void *highest, uint64_t now);
// All packets must have been taken out before.
void hqos_free(struct hqos_scheduler *s);

// The owner's worker only. A group or a subscriber that is there already gets another profile.
void hqos_set_group(struct hqos_scheduler *s, uint32_t group, uint16_t profile, uint64_t now);
void hqos_set_subscriber(struct hqos_scheduler *s, uint32_t subscriber, uint32_t group, uint16_t profile, uint64_t now);
// Takes out at most `room` of its packets; gone when it returns less than that.
unsigned hqos_flush_subscriber(struct hqos_scheduler *s, uint32_t subscriber, struct rte_mbuf **packets, unsigned room);

// One packet each of `subscribers` and `classes`. Returns how many were not taken; these are moved to the front of `packets`.
unsigned hqos_enqueue(struct hqos_scheduler *s, struct rte_mbuf **packets, const uint32_t *subscribers,
	const uint8_t *classes, unsigned count, uint64_t now);
// At most `room` packets that are to be sent now. Those that were dropped are in `dropped` then, for the caller to take.
unsigned hqos_dequeue(struct hqos_scheduler *s, struct rte_mbuf **packets, unsigned room, uint64_t now);
// The moment, in TSC cycles, before which hqos_dequeue will find nothing; UINT64_MAX if nothing waits. For tests and for sleeping.
uint64_t hqos_next(const struct hqos_scheduler *s, uint64_t now);
