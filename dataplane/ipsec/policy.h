// SPDX-License-Identifier: Apache-2.0
// The security policy database (kind SecurityPolicy), as workers read it. A policy has a record of a tunnel
// (ipsec/tunnel.h) with its security associations.
#pragma once

#include "acl/list.h"
#include "ether/feature.h"
#include "ipsec/tunnel.h"

enum ipsec_action { IPSEC_PROTECT, IPSEC_BYPASS, IPSEC_DISCARD };

struct ipsec_entry {
	uint32_t tunnel;
	uint32_t action;
};

// Entries of an interface, one way. Never changed: another one takes its place.
struct ipsec_database {
	struct acl_list *list;
	uint32_t first_ports; // the first rule that reads ports; 0: none does
	uint32_t count;
	struct ipsec_entry entries[]; // by rule of the list, from 1
};

// By interface and way; NULL: it has none.
extern const struct ipsec_database **ipsec_databases[INTERFACE_WAYS];
extern struct kind security_policy_kind;

static inline const struct ipsec_database *
ipsec_database_of(uint32_t interface, enum interface_way way)
{
	return __atomic_load_n(&ipsec_databases[way][interface], __ATOMIC_ACQUIRE);
}

// Steps of interfaces with entries. Packets that leave, and that came in.
extern struct node ipsec_policy_out_node, ipsec_policy_in_node;
extern struct packet_flag ipsec_policy_waits;
// In: a packet with a checked header that came out of a security association of the policy of packet->hop.
extern struct node ipsec_policy_check_node;
// By family: {ipsec-policy-check, look-up}. [0] is IPv4's.
extern uint32_t ipsec_check_chains[2];

// Main thread. The interface on the untagged frames of the port, if it has outbound entries; or NO_INTERFACE.
uint32_t ipsec_policy_interface(uint16_t port);
// Main thread: a frame of the port's twin, with its data at the Ethernet header. True: it was taken.
bool ipsec_policy_twin(uint16_t port, struct rte_mbuf *m);
