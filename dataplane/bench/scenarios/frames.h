// SPDX-License-Identifier: Apache-2.0
// Writes the starts of frames: each returns how many bytes it wrote. `length` is the rest of the frame, or all of it,
// without FCS.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bench/bench.h"

extern const uint8_t in_mac[6], peer_mac[6]; // of the port where frames come in, and of their sender

unsigned ether(uint8_t *at, const uint8_t *to, const uint8_t *from, uint16_t type);
unsigned udp(uint8_t *at, uint16_t from, uint16_t to, uint16_t length);
unsigned ip4_udp(uint8_t *at, uint32_t from, uint32_t to, uint16_t from_port, uint16_t to_port, uint16_t length);
unsigned ip4_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h);
// `pppoe`: the first two bytes of the PPPoE header, 0: there is none.
unsigned up_frame_to(uint32_t to, uint16_t pppoe, uint32_t flow, uint16_t length, uint8_t *h);
unsigned up_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h);
// An LCP Echo-Reply of a PPPoE subscriber.
unsigned echo_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h);
unsigned down_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h);
unsigned gtpu_down_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h);
