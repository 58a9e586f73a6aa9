// SPDX-License-Identifier: Apache-2.0
// The scheduler of a port: four levels (port, group, subscriber, class), each with a peak rate, and all but the port with a committed
// one. A packet is sent when all levels above it conform to their peaks. An entry within its committed rate goes before others: among a
// port's groups, among a group's subscribers, among a subscriber's classes. Otherwise groups and subscribers share by weight, and
// classes go by strict priority; classes of the same priority share by weight.
//
// There is no search: a subscriber that may send is in a queue, one that must wait is in a timing wheel, and one without packets
// is in neither. So a packet costs the same with two hundred subscribers as with two hundred thousand, except for the
// caches. Ids are read from queues some places ahead, so that their records are in the cache when their turn comes.
//
// One worker owns a scheduler, and only it calls these functions.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "core/packet.h"
#include "hqos/pace.h"
#include "hqos/wheel.h"

enum {
	HQOS_CLASSES = 8,
	HQOS_WIDE = 4,
	// The quantum of a turn, in bytes for each unit of weight. More than a usual frame, so that a turn with the lowest
	// weight is worth its cost.
	HQOS_QUANTUM = 2048,
	HQOS_BURST = 256,
};

enum hqos_drop_policy { HQOS_TAIL_DROP, HQOS_WRED, HQOS_CODEL };
// Why a packet was not taken, beside the policies: there is no such subscriber, or its queue has its share of the buffers that this
// port's queues, or those of all ports, may hold.
enum { HQOS_UNKNOWN = HQOS_CODEL + 1, HQOS_PORT_FULL, HQOS_BUFFERS_FULL, HQOS_REASONS };

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
	// hqos_profile_finish() fills these in:
	bool narrow;               // more than HQOS_WIDE classes
	uint8_t few;               // a bit for each class whose packets may be among a few,
	uint8_t codel;             // and for each that CoDel watches;
	uint32_t codel_min_target; // the minimum of their targets
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
	HQOS_IN_GREEN = 1 << 0,  // an entry stands in the queue of those within their committed rate
	HQOS_IN_OTHER = 1 << 1,  // and in the one of the others
	HQOS_FEW = 1 << 2,       // its packets are few, and the queues of its classes are empty
	HQOS_NARROW = 1 << 3,    // the few are of up to eight classes, else of up to HQOS_WIDE
	HQOS_RECOUNT = 1 << 4,   // the sent packets are being recounted
	HQOS_RECOUNTED = 1 << 5, // and how often it was, in the bits from this one on
};

// Packets that wait in a class, in the order in which they came, in chunks (queue.h), and its counters: 32 bytes.
struct hqos_queue {
	uint32_t first, last; // chunks; meaningless while it is empty
	int32_t credit;       // bytes that it still may send in its turn
	uint16_t count;
	uint16_t codel_count : 15, codel_drops : 1; // CoDel: drops so far, and whether it is dropping
	uint32_t average; // WRED: packets, 16.16. CoDel: when the delay will have been too long for an interval, or 0
	uint32_t dropped; // packets, for any reason
	uint64_t sent;    // packets, times 2, but those that the subscriber counts; bit 0: see there
};

static_assert(sizeof(struct hqos_queue) == 32, "two queues are one cache line");

struct hqos_class_state {
	uint64_t peak_paid, committed_paid;
};

// CoDel's state of a subscriber's queues, which is read only when it drops, or may soon.
struct hqos_codel {
	uint32_t next[HQOS_CLASSES];   // the moment of the next drop
	uint8_t episode[HQOS_CLASSES]; // drops the last time that it dropped
};

// 448 bytes, and 40 of struct hqos_codel elsewhere. A subscriber with few packets has them in chunks of a cache line,
// for all classes (queue.h): enqueue and dequeue then touch the first line here and a chunk. With more packets,
// they touch the queues of the classes; the rates of classes and the state of CoDel only if the profile uses them.
struct hqos_subscriber {
	uint64_t peak_paid, committed_paid;
	struct place place;
	uint8_t life; // changes when the subscriber moves or goes, so that its entries elsewhere are known to be stale
	int32_t credit;
	uint32_t chunk; // of the few, the last; else where the last packet went to, as the next may do so, too
	union {
		// Of the few: their places, eight bits for each class if they are narrow, else sixteen.
		uint64_t places;
		// Of the queues: places in the first and, times 16, in the last chunk.
		uint8_t ends[HQOS_CLASSES];
	};
	// Packets that the queues do not count yet, half as many bits for each class: all but the highest count, and when they begin
	// again the highest changes. Before that the queue counts them, and its bit 0 changes: who reads in between sees that the two
	// bits are not the same, and does not count them twice.
	uint32_t sent;
	uint16_t group;
	uint16_t profile;
	uint8_t backlog; // a bit for each class that has packets
	uint8_t flags;
	uint8_t used : 1;   // it exists
	uint8_t turn : 3;   // the class that shares with its equals and is being served
	uint8_t filled : 4; // of the few: places that were filled, in the order in which they came; 0: all 16
	// Not used by the scheduler: changes that other files request (shaped.c).
	uint8_t owner_life;
	uint8_t listed;
	uint8_t before[3];
	uint64_t desired;

	_Alignas(64) struct hqos_queue queues[HQOS_CLASSES];
	struct hqos_class_state classes[HQOS_CLASSES];
} __attribute__((aligned(64)));

static_assert(sizeof(struct hqos_subscriber) == 448, "a subscriber's memory is what the documentation says");
static_assert(offsetof(struct hqos_subscriber, queues) == 64, "what a packet always touches is one cache line");

// Of the few: bits for each class, as a power of two.
static inline unsigned
hqos_width(const struct hqos_subscriber *sub)
{
	return sub->flags & HQOS_NARROW ? 3 : 4;
}

// Waiting packets of a class. Any thread may call it.
static inline unsigned
hqos_waiting(const struct hqos_subscriber *sub, unsigned class)
{
	unsigned width = hqos_width(sub), at = class << width;

	if (!(sub->flags & HQOS_FEW))
		return sub->queues[class].count;
	return at < 64 ? (unsigned)__builtin_popcountll(sub->places >> at & ((1u << (1u << width)) - 1)) : 0;
}

// Packets of a class that were sent. Any thread. The number never decreases.
uint64_t hqos_sent(const struct hqos_subscriber *sub, unsigned class);

// Whose turn has begun below: of those within their committed rate, which go first and end others' turns for a while, and of the
// others. Packets of the first do not count as their share of the rest.
struct hqos_turns {
	uint32_t green, other; // or NO_ID
	int32_t green_credit;  // bytes
};

// Packets of a group's subscribers that were sent and dropped, for any reason. The owner counts, any thread may read.
struct hqos_group_counters {
	uint64_t sent_packets, sent_bytes; // bytes of frames, without FCS
	uint64_t dropped_packets, dropped_bytes;
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
	struct hqos_group_counters counters;
} __attribute__((aligned(64)));

static_assert(sizeof(struct hqos_group) == 128, "what is counted lies in lines that sending touches anyway");

// Counters since the start, and packets that wait. The owner counts, any thread may read.
struct hqos_counters {
	uint64_t sent_packets, sent_bytes;
	uint64_t dropped[HQOS_REASONS]; // by enum hqos_drop_policy: queue full, WRED, CoDel; and HQOS_UNKNOWN ...
	uint64_t flushed;
};

struct hqos_scheduler {
	struct pace peak;
	uint64_t paid;
	int16_t overhead;
	uint32_t random;
	struct hqos_turns turns;   // of groups
	struct fifo green, others; // of groups

	struct hqos_subscriber *subscribers;
	struct hqos_codel *codels; // by subscriber
	struct hqos_group *groups;
	struct hqos_profile *const *profiles;
	struct hqos_group_profile *const *group_profiles;
	uint32_t subscriber_limit, group_limit;
	uint32_t stale; // stale entries of queues
	size_t chunk_limit;
	uintptr_t buffers; // the base of buffers' numbers
	struct chunks chunks;
	uint32_t packets; // that wait
	uint32_t chained; // buffers that they hold beside the first of each
	// The caller says before it puts packets in how many more buffers the queues may hold: HQOS_AMPLE is no
	// limit, and costs nothing. Otherwise a queue takes a packet only while it is shorter than the rest: the
	// longest queues stop first, and one queue alone gets half.
	uint32_t room;
	uint8_t room_reason; // the drop reason without room: HQOS_PORT_FULL or HQOS_BUFFERS_FULL
	uint32_t reserved;   // subscribers below this number may always have HQOS_RESERVED packets each
	struct hqos_counters counters;

	// Packets that were taken out because they waited too long, until the caller takes them.
	struct rte_mbuf *dropped[HQOS_BURST];
	unsigned dropped_count;

	struct wheel wheel;
};

enum { CODEL_SHIFT = 10 + TICK_SHIFT }; // 1,024 cycles
enum { HQOS_RESERVED = 64 };
static const uint32_t HQOS_AMPLE = UINT32_MAX;
enum { HQOS_SUBSCRIBERS = 1 << 24, HQOS_GROUPS = 1 << 16, HQOS_QUEUE_MAX = 32768, HQOS_FRAME_MAX = 16384 };

// Computes the derived fields of a profile, which uses so many classes.
void hqos_profile_finish(struct hqos_profile *profile, unsigned classes);

// Space for so many subscribers (at most HQOS_SUBSCRIBERS), groups (at most HQOS_GROUPS) and waiting packets; the caller keeps the
// profiles, and may replace one by another at any time if the old one stays readable until the owner's worker has begun a new round:
// what was waiting by the old one's rates is looked at again within the wheel's reach. All packets' buffers are between the two
// addresses, which are at most 256 GB apart. NULL: no memory. `now` in TSC cycles, here and below.
struct hqos_scheduler *hqos_new(uint32_t subscribers, uint32_t groups, size_t packets,
	struct hqos_profile *const *profiles, struct hqos_group_profile *const *group_profiles, const void *lowest,
	const void *highest, uint64_t now);
// All packets must have been taken out before.
void hqos_free(struct hqos_scheduler *s);

// The owner's worker only. A group or a subscriber that is there already gets another profile, and a subscriber moves to the
// group. False: it has moved so often that it has to stay for now; try again later.
void hqos_set_group(struct hqos_scheduler *s, uint32_t group, uint16_t profile, uint64_t now);
bool hqos_set_subscriber(struct hqos_scheduler *s, uint32_t subscriber, uint32_t group, uint16_t profile, uint64_t now);
// Takes out at most `room` of its packets; gone when it returns less than that, and `used` is false.
unsigned hqos_flush_subscriber(struct hqos_scheduler *s, uint32_t subscriber, struct rte_mbuf **packets, unsigned room);

// One packet each of `subscribers` and `classes`. Returns how many were not taken; these are moved to the front of
// `packets`, and the state's `detail` of each has the reason: HQOS_TAIL_DROP, HQOS_WRED, HQOS_UNKNOWN, HQOS_PORT_FULL
// or HQOS_BUFFERS_FULL.
unsigned hqos_enqueue(struct hqos_scheduler *s, struct rte_mbuf **packets, const uint32_t *subscribers,
	const uint8_t *classes, unsigned count, uint64_t now);
// At most `room` packets that are to be sent now. Those that CoDel dropped are in `dropped` then, for the caller to take.
unsigned hqos_dequeue(struct hqos_scheduler *s, struct rte_mbuf **packets, unsigned room, uint64_t now);
// The moment, in TSC cycles, before which hqos_dequeue will find nothing; UINT64_MAX if nothing waits.
uint64_t hqos_next(const struct hqos_scheduler *s, uint64_t now);

// Buffers that the queues hold. Any thread may call it.
static inline uint32_t
hqos_buffers(const struct hqos_scheduler *s)
{
	return __atomic_load_n(&s->packets, __ATOMIC_RELAXED) + __atomic_load_n(&s->chained, __ATOMIC_RELAXED);
}

static inline const struct hqos_profile *
hqos_profile_of(const struct hqos_scheduler *s, const struct hqos_subscriber *sub)
{
	return __atomic_load_n(&s->profiles[sub->profile], __ATOMIC_ACQUIRE);
}

static inline const struct hqos_group_profile *
hqos_group_profile_of(const struct hqos_scheduler *s, const struct hqos_group *g)
{
	return __atomic_load_n(&s->group_profiles[g->profile], __ATOMIC_ACQUIRE);
}
