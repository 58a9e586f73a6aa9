// What flow a frame belongs to, told before anything else is known of it.
#pragma once

#include <stddef.h>
#include <stdint.h>

// A hash that all frames of a flow share: VLANs, PPPoE session, and of IP addresses, protocol and ports; of GTP-U (TS 29.281) in
// IPv4 or IPv6 the TEID, too. Of any other frame its source address and type. `length` bytes are there from the Ethernet header
// on, as few as they may be.
uint64_t flow_of_frame(const uint8_t *frame, size_t length);
