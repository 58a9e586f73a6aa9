// SPDX-License-Identifier: Apache-2.0
// TCP's maximum segment size, lowered where it is announced (RFC 9293 section 3.7.1, RFC 6691).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// `packet` starts at a checked IP header of `family` (4 or 6) and `length` bytes of it can be read. If it is a TCP SYN that
// announces more than `mss` (20 less for IPv6), it announces `mss` afterwards, its checksum right as far as it was; true then.
bool mss_clamp(uint8_t *packet, size_t length, uint8_t family, uint16_t mss);
