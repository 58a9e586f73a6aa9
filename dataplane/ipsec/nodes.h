// SPDX-License-Identifier: Apache-2.0
// The nodes of IPsec.
#pragma once

#include "core/node.h"

// In: an IP packet that leaves by the interface of packet->hop, which is a tunnel. Out: ESP packets to the look-ups.
extern struct node esp_encrypt_node;
// The same for a packet that leaves by packet->session, whose access, or whose core, is a tunnel. The core's node counts the TTL down.
extern struct node esp_access_node, esp_core_node;
// The same for a packet that a security policy protects: packet->hop is the policy's. The TTL of a forwarded packet is decremented.
extern struct node esp_policy_node;
// In: a packet with a checked header that came out of the tunnel which is the core of packet->session. Out: the next step, session-down.
extern struct node esp_core_input_node;
// In: an ESP packet for an address of the gateway, or one in UDP, whole. Out: packets that came in by a tunnel's interface.
extern struct node esp_decrypt_node;
// In: a UDP packet for port 500 or 4500 of the gateway.
extern struct node ipsec_udp_node;
