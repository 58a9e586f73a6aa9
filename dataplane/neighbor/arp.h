// SPDX-License-Identifier: Apache-2.0
// ARP for IPv4 over Ethernet (RFC 826).
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_ether.h>

enum { ARP_REQUEST = 1, ARP_REPLY = 2 };

struct arp_message {
	uint16_t hardware;
	uint16_t protocol;
	uint8_t hardware_length;
	uint8_t protocol_length;
	uint16_t operation;
	struct rte_ether_addr sender_mac;
	uint8_t sender[4];
	struct rte_ether_addr target_mac;
	uint8_t target[4];
};

static_assert(sizeof(struct arp_message) == 28, "as on the wire");

enum arp_fault { ARP_OK, ARP_TRUNCATED, ARP_FORMAT, ARP_OPERATION, ARP_SENDER };

// The fault of the message that starts at `data`.
enum arp_fault arp_check(const uint8_t *data, size_t length);
