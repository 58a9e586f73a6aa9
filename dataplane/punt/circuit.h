// SPDX-License-Identifier: Apache-2.0
// Packets of circuits without an interface or a session, for the agent: the kind Punt (api/punt.proto).
#pragma once

#include "core/fair.h"
#include "core/node.h"
#include "ether/circuit.h"
#include "punt/protocol.h"

// The packet's data is behind its Ethernet header and tags (l2_length). The edge to follow: up, if a Punt takes this protocol from the
// packet's circuit and has tokens left; else a drop.
uint16_t punt_from_circuit(struct rte_mbuf *m, struct packet *p, const struct punt_protocol *protocol);

// In: whole frames of unknown circuits, l2_length up to the end of the Ethernet type. Out: up, or dropped as unknown-circuit.
extern struct node circuit_punt_node;
