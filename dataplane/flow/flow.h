// SPDX-License-Identifier: Apache-2.0
// Flow profiles (kind FlowProfile): packet filters that assign a session's packets to QoS flows, and the marks of each flow
// (TS 23.501 section 5.7.1, TS 24.501 section 6.2.5).
#pragma once

#include "core/node.h"
#include "server/object.h"

enum { NO_FLOWS = UINT32_MAX };

extern struct kind flow_kind;

// How packets of a QoS flow are marked.
struct flow_mark {
	int8_t dscp; // of the outer header; less than 0: copied from the inner one
	uint8_t class;
	uint8_t priority;
};

// By session: its profile, as flow_of() returns it. Valid only for a session with a flow step in its chains.
extern uint32_t *session_flows;

static inline uint32_t
flow_of(const struct object *object)
{
	// A new object has state NULL.
	return object ? (uint32_t)(uintptr_t)object->state - 1 : NO_FLOWS;
}

// The marks of a QFI by a session's profile. Any thread.
struct flow_mark flow_mark_of(uint32_t session, uint8_t qfi);

// Flags of packets whose session has a flow profile: `qfi` is that of the rule that matches, or NO_QFI;
extern struct packet_flag packet_flow;
// and no derived rule of reflective QoS precedes the rule that set it.
extern struct packet_flag packet_flow_firm;

// Steps of chains. In: a checked IP packet, data at its header. Out: packet->qfi, class and priority set.
extern struct node flow_up_node, flow_down_node;
