// SPDX-License-Identifier: Apache-2.0
// Subscribers' sessions, and the objects that their policies name: meters, lists and queues that pass every packet.
#pragma once

#include <stdint.h>

#include "bench/bench.h"

enum { SUBSCRIBER_TEID = 0x10000, ALLOWED = 4000, ALLOWED_MAX = 65536 };

// Parts of a session.
enum {
	PPPOE = 1,
	GTPU = 2,
	METER = 4,
	ACL_UP = 8,
	ACL_DOWN = 16,
	DOWN_STREAM = 32, // sessions are on the port "out"
	FLOWS = 64,       // one of two flow profiles
	SHAPED = 128,     // queues in a scheduler
	TWO_PORTS = 256,  // every other session is on the port "out2"
	BY_MAC = 1024,    // sessions have the MAC of the subscriber in their key
	REFLECTIVE = 512, // uplink packets have the QFI that downlink ones of their flow asked for
	FIVE_WE = 2048,   // sessions of 5G residential gateways
	ECHO = 4096,      // PPPoE sessions whose peers the data plane asks for echoes
};

// Of the subscriber of a flow.
uint32_t subscriber_address(uint32_t flow);
uint16_t outer_vlan(uint32_t flow);
uint16_t inner_vlan(uint32_t flow);
uint32_t server_address(uint32_t flow); // the address of a subscriber's peer
void subscriber_mac(uint32_t flow, uint8_t mac[6]);
// These return 0, or -1 after an error message.
int make_sessions(uint32_t count, unsigned with);
int make_meter(void);
int make_block_list(void);
// The same, and it counts the hits of each rule.
int make_counted_block_list(void);
int make_allow_list(unsigned count);
int make_schedulers(uint32_t flows, unsigned ports);
