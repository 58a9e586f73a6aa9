// SPDX-License-Identifier: Apache-2.0
// Circuits: a port and up to two VLAN tags. Every frame belongs to a circuit first. A circuit belongs to an interface or to a session, or
// several sessions that differ in their MAC share it. Two direct tables, by outer and by inner VLAN, find it: no hash, no
// collision.
#pragma once

#include <stdint.h>

#include "port/port.h"
#include "server/object.h"

// A VLAN id of 0 means that the tag is not there.
struct circuit {
	uint16_t port;
	uint16_t outer_vlan;
	uint16_t inner_vlan;
};

static inline bool
circuit_same(const struct circuit *a, const struct circuit *b)
{
	return a->port == b->port && a->outer_vlan == b->outer_vlan && a->inner_vlan == b->inner_vlan;
}

// Bind the receiver of IP and ARP on a circuit: one interface, or one session, or any number of sessions with a MAC
// each (and then the interface, if there is one, has the rest). mac NULL: the whole circuit. 0; -EEXIST if it is
// taken; -ENOMEM.
int circuit_bind_interface(const struct circuit *c, uint32_t interface, struct fault *f);
// Whether that would do: 0, and then it does.
int circuit_check_interface(const struct circuit *c, struct fault *f);
// `frames`: every frame belongs to the session, of any type and with any further tags. `alone`: the session has the circuit
// already, by another MAC or as a whole, and is the only one there; then it has both bindings until one of them is unbound.
int circuit_bind_session(const struct circuit *c, const struct rte_ether_addr *mac, bool frames, uint32_t session,
	bool alone, struct fault *f);
void circuit_unbind_interface(const struct circuit *c);
void circuit_unbind_session(const struct circuit *c, const struct rte_ether_addr *mac);
// The session that this is bound to, or NO_SESSION; and bind it to another, by one store.
uint32_t circuit_session(const struct circuit *c, const struct rte_ether_addr *mac);
// The session that keeps others from binding this, or NO_SESSION: that is an interface, or sessions with a MAC each.
uint32_t circuit_taker(const struct circuit *c, const struct rte_ether_addr *mac);
void circuit_rebind_session(const struct circuit *c, const struct rte_ether_addr *mac, uint32_t session);

// The node of an Ethernet type (host order). It gets frames with the data at the byte behind the type. Called at
// start.
void ether_type_register(uint16_t type, const struct node *node);
// The node that takes such frames instead if they are for a broadcast or multicast MAC. Called at start.
void ether_group_register(uint16_t type, const struct node *node);

// The steps of IPv4 and IPv6 packets of circuits' sessions, once their header is checked, and the node that takes the whole frames of
// those whose every frame it is. In: the frame, packet->l2_length of its header with the tags of the circuit. Called at start.
void circuit_sessions(const struct node *up4, const struct node *up6, const struct node *frames);

// Parses frames. In: whole frames as a port received them. Out: by Ethernet type, the data behind it, and in the packet:
// port, VLANs, TPIDs, l2_length, interface or session, vrf, chain.
extern struct node ether_input_node;
