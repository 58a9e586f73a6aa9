// Who takes packets for our own addresses.
#pragma once

#include <stdbool.h>

#include "core/node.h"

// Packets for this protocol, or UDP packets for this port, that are for an address of ours go to `node`, with the data at
// the IP header, whole (reassembled), packet->family set. IPv6 extension headers have been taken out; IPv4 options are still
// there. The first 8 bytes behind the IP header are in the first segment. Called at start.
void ip_local_protocol(uint8_t protocol, const struct node *node);
void ip_local_udp(uint16_t port, const struct node *node);

// The port that the packet came in on has a Linux twin, and the packet is not a subscriber's.
bool ip_local_has_twin(const struct packet *p);
// The edge to follow for a packet that the twin shall have.
uint16_t ip_local_twin(struct packet *p);
// Main thread: give the packet, with its data at the IP header, to the twin.
void ip_local_to_twin(struct rte_mbuf *m);
