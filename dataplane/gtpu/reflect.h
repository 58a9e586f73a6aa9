// SPDX-License-Identifier: Apache-2.0
// Reflective QoS (TS 23.501 section 5.7.5): a downlink packet with the RQI set makes a rule for its flow, and uplink packets
// of that flow get its QFI for as long as the rule is kept alive.
//
// Rules are in one table of a fixed size that all workers share. A rule is a single word: a digest of whose it is and of its
// flow, the QFI, and the second it was last made. A set of eight is a cache line; a new rule takes the place of the oldest.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The RQ timer where nothing else is signalled, in seconds.
enum { REFLECT_SECONDS = 60, REFLECT_NONE = -1 };
// Calls of reflect_sweep() for all rules.
enum { REFLECT_SWEEPS = 512 };

int reflect_start(void);

// A digest of whose rules these are (struct gtpu_tunnel) and the uplink flow of a packet, of which `length` bytes can
// be read: the derived rule's packet filter (TS 24.501 section 6.2.5.1.4.2). `downlink`: the packet goes the other
// way, and the rule is derived from it. 0: there is no rule for it.
//
// Of an IP packet: addresses, protocol, ports of TCP and UDP, and the SPI of ESP. The rule should have the SPI of the uplink association that
// belongs to the downlink packet's; which that is only their ends know, unless both have the same SPI. So no other one gets it.
uint64_t reflect_flow(uint32_t whose, const uint8_t *ip, size_t length, bool downlink);
// Of a frame of a session of type Ethernet: addresses, EtherType, the outermost C-TAG and S-TAG, and of IPv4 and IPv6 all of the above.
uint64_t reflect_frame(uint32_t whose, const uint8_t *frame, size_t length, bool downlink);

void reflect_learn(uint64_t flow, uint8_t qfi, uint32_t now);
// The QFI, or REFLECT_NONE.
int reflect_find(uint64_t flow, uint32_t now);
// Remove some of the rules that have ended. Main thread, each second.
void reflect_sweep(uint32_t now);
