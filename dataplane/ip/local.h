// SPDX-License-Identifier: Apache-2.0
// The nodes of packets for our own addresses.
#pragma once

#include <stdbool.h>

#include "core/node.h"
#include "core/punt.h"

// Packets for this protocol, or UDP packets for this port, that are for an address of ours go to `node`, with the data at
// the IP header, whole (reassembled), packet->family set. IPv6 extension headers have been taken out; IPv4 options are still
// there. The first 8 bytes behind the IP header are in the first segment. A UDP port's node must discard packets over IPv6 without a
// checksum, or permit them as RFC 6935 does for tunnels; for all other ports they are discarded here. Called at start.
void ip_local_protocol(uint8_t protocol, const struct node *node);
void ip_local_udp(uint16_t port, const struct node *node);

// Packets for an address of ours of which a fragment has the flag pass `node` before these, when they are whole. Its next step is ip-local. The
// concept's file declares INJECTED(node). Called at start, once.
void ip_local_check_whole(const struct packet_flag *flag, const struct node *node);

// Packets for an address of ours that go up to the main thread for a reason of the concept's own. Protocols and ports with a node of
// their own (above) go first.
struct ip_local_punt {
	uint8_t family;   // 4 or 6; 0: both
	uint8_t protocol; // of IP
	uint16_t port;    // UDP: the destination port; 0: of any
	bool groups;      // also packets to a broadcast or multicast address
	// Whether it takes the packet. NULL: it takes all of these.
	bool (*takes)(const struct packet *p);
	const struct punt *punt;
	struct ip_local_punt *next;
};
void ip_local_punt_register(struct ip_local_punt *punt);
#define IP_LOCAL_PUNT_REGISTER(punt) \
	RTE_INIT(register_##punt) \
	{ \
		ip_local_punt_register(&punt); \
	}

// Handlers of such reasons, on the main thread. To the service that watches the reason; without one to the port's twin, or back with an
// ICMP error.
void ip_local_watcher_or_twin(struct rte_mbuf *m);
void ip_local_offer(struct rte_mbuf *m);
// The packet came in by an interface with one far end.
bool ip_local_is_from_tunnel(const struct packet *p);

// The port that the packet came in on has a Linux twin, and the packet is not a subscriber's.
bool ip_local_has_twin(const struct packet *p);
// The edge to follow for a packet that the twin shall have.
uint16_t ip_local_twin(struct packet *p);
// Main thread: give the packet, with its data at the IP header, to the twin.
void ip_local_to_twin(struct rte_mbuf *m);
