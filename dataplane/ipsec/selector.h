// SPDX-License-Identifier: Apache-2.0
// Traffic selectors (RFC 4301 section 4.4.1.1): which packets an SA, a tunnel or a policy is for.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipsec.pb-c.h"
#include "server/object.h"

struct ipsec_selector {
	// The first and the last address; network order, IPv4 in the first four.
	uint8_t local_first[16], local_last[16], remote_first[16], remote_last[16];
	uint8_t family; // 0: any
	bool any_protocol;
	uint8_t protocol;
	bool ports; // others than all
	uint16_t local_low, local_high, remote_low, remote_high;
};

// Never changed: another list takes its place.
struct ipsec_selectors {
	size_t count;
	bool ports; // one has others than all
	struct ipsec_selector list[];
};

enum { SELECTORS_MAX = 256 };

// NULL in `*made` for an empty list, which selects every packet. Freed with free(), by rcu_retire() once workers have seen it.
int ipsec_selectors_parse(
	Sluice__V1__TrafficSelector *const *specs, size_t count, struct ipsec_selectors **made, struct fault *f);

// The fields of a packet that selectors match.
struct ipsec_flow {
	uint8_t source[16], destination[16];
	uint16_t source_port, destination_port;
	uint8_t family, protocol;
	bool has_ports; // they could be read: not of a fragment behind the first
	bool later_fragment;
};

// `length` bytes of the packet can be read, its IP header whole.
void ipsec_flow_of(const uint8_t *ip, size_t length, uint8_t family, struct ipsec_flow *flow);
// `outbound`: the source is on the gateway's side. No list matches everything.
bool ipsec_selectors_match(const struct ipsec_selectors *selectors, const struct ipsec_flow *flow, bool outbound);
// The same for a fragment, whose ports are unknown: it matches any ports of a selector.
bool ipsec_selectors_match_fragment(
	const struct ipsec_selectors *selectors, const struct ipsec_flow *flow, bool outbound);
