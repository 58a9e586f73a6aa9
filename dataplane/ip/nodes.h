// SPDX-License-Identifier: Apache-2.0
// The nodes that IP packets go through, beside the look-ups in fib/hop.h.
#pragma once

#include "core/node.h"

// In: IPv4 header at the data, from outside. Checks RFC 1812 section 5.2.2, then takes a step of the chain.
extern struct node ip4_input_node;
// The same, RFC 8200.
extern struct node ip6_input_node;
// The same for frames to a broadcast or multicast MAC.
extern struct node ip4_group_node, ip6_group_node;
// In: packet->hop an adjacency. TTL, MTU, header, port; out: tx.
extern struct node ip4_rewrite_node, ip6_rewrite_node;
// In: an IP packet for one of our addresses.
extern struct node ip_local_node;
