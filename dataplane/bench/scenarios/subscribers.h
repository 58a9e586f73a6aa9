// Subscribers' sessions, and what their policies name: meters, lists and queues through which everything passes.
#pragma once

#include <stdint.h>

#include "bench/bench.h"

enum { SUBSCRIBER_TEID = 0x10000, ALLOWED = 4000, ALLOWED_MOST = 65536 };

// What sessions have.
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
	REFLECTIVE = 512, // uplink packets have the QFI that downlink ones of their flow asked for
};

// Of the subscriber of a flow.
uint32_t subscriber_address(uint32_t flow);
uint16_t outer_vlan(uint32_t flow);
uint16_t inner_vlan(uint32_t flow);
uint32_t server_address(uint32_t flow); // whom he talks to
void subscriber_mac(uint32_t flow, uint8_t mac[6]);
// These return 0, or -1 after saying what is wrong.
int make_sessions(uint32_t count, unsigned with);
int make_meter(void);
int make_block_list(void);
int make_allow_list(unsigned count);
int make_schedulers(uint32_t flows, unsigned ports);
