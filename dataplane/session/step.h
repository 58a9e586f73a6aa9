// SPDX-License-Identifier: Apache-2.0
// Steps: the nodes of a session's packets between its access and its core. A concept registers a step (RTE_INIT) with
// its order; a session takes the steps that its spec asks for. Main thread, but for the nodes.
#pragma once

#include "core/node.h"
#include "core/order.h"
#include "session.pb-c.h"
#include "session/session.h"

// Counters of a QoS flow, by enum direction.
struct session_flow {
	uint8_t qfi;
	uint64_t packets[2], bytes[2];
};
enum { SESSION_FLOWS = 7 };

struct session_step_change {
	uint32_t session;
	// Of the access, from now on and so far; `old_port` NULL: the session is new, or was on none. `port` NULL: it is on none.
	const struct object *port, *old_port;
};

struct session_step {
	struct ordered order;       // by name, with the steps that come before this one in both directions
	const struct node *node[2]; // by enum direction
	bool frames;                // the node takes whole frames, too: of sessions of type Ethernet

	// The step's part of a session. session/ keeps it, all zero for a session that is new or gone. It begins with pointers to objects
	// that the session refers to for this step, each NULL or counted as used by session/.
	size_t size;
	unsigned objects;
	// Words of the session's record, in the cache line of each direction, that the nodes read: session_step_words().
	unsigned words;

	// Read the spec into a zeroed part. 0, or a negative errno with the fault explained.
	int (*need)(const Sluice__V1__Session *spec, void *part, struct fault *f);
	// The field of the session's policy because of which its packets of this direction take the step; NULL: they do not.
	const char *(*field)(const void *part, enum direction direction);
	// Get the resources that the session needs beside objects; `had` is its part so far, and resources that stay are taken from there. NULL:
	// none are needed. 0, or a negative errno with the fault explained; then abandon() is called.
	int (*prepare)(const struct session_step_change *change, const void *had, void *part, struct fault *f);
	// The session stays as it was: free the parts that are in `part` and not in `had`. prepare() may not have
	// been called. NULL: nothing.
	void (*abandon)(const void *had, void *part);
	// Write the data that the node reads, before a chain has the node. If the session no longer takes the step, the old data stays for
	// packets on their way.
	void (*publish)(uint32_t session, const void *part);
	// No chain has the node because of `had`: give back resources that it has and `now` does not. NULL: none.
	void (*release)(uint32_t session, const void *had, const void *now, bool deleted);

	// Writes the counters of a session's QoS flows to `flows`, and returns their number. NULL: the step knows of none.
	unsigned (*flows)(uint32_t session, struct session_flow flows[SESSION_FLOWS]);

	size_t offset;  // of its part
	unsigned place; // of its words
};

// The step's words of a session's record. Any thread.
static inline uint32_t *
session_step_words(const struct session_step *step, uint32_t session, enum direction direction)
{
	struct session *s = session_at(session);

	return (direction == UP ? s->steps_up : s->steps_down) + step->place;
}

void session_step_register(struct session_step *step);
#define SESSION_STEP_REGISTER(step) \
	RTE_INIT(register_##step) \
	{ \
		session_step_register(&step); \
	}

// The parts of all steps of a session.
enum { SESSION_PARTS_SIZE = 512 };
struct session_parts {
	_Alignas(8) uint8_t bytes[SESSION_PARTS_SIZE];
};

// At start: the order of steps, and memory for all sessions' parts. 0, -ELOOP, -ENOSPC, -ENOMEM, explained on stderr.
int session_steps_start(void);

// The maximum number of steps of a chain, the last node included; a test lowers it.
extern unsigned session_steps_max;

// Read the parts from a spec; whether the chains have room for them, too.
int session_steps_need(const Sluice__V1__Session *spec, const struct session_spec *parsed, struct session_parts *parts,
	struct fault *f);
// The chain of packets of this direction, up to and with `last`, and `behind` if it is not NULL; 0: there is no room for it.
uint32_t session_steps_chain(const struct session_parts *parts, enum direction direction, const struct node *last,
	const struct node *behind);

// The parts that a session has so far.
void session_steps_had(uint32_t session, struct session_parts *had);
// The session is new: it has nothing.
void session_steps_clear(uint32_t session);
int session_steps_prepare(const struct session_step_change *change, const struct session_parts *had,
	struct session_parts *parts, struct fault *f);
void session_steps_abandon(const struct session_parts *had, struct session_parts *parts);
void session_steps_publish(uint32_t session, const struct session_parts *parts);
// These are the session's from now on, and their objects are in use.
void session_steps_keep(uint32_t session, const struct session_parts *parts);
// As flows() of a step.
unsigned session_steps_flows(uint32_t session, struct session_flow flows[SESSION_FLOWS]);
// Give back the old parts, and the use of their objects.
void session_steps_release(uint32_t session, const struct session_parts *had, bool deleted);
