// SPDX-License-Identifier: Apache-2.0
// LCP Echo-Requests to subscribers (RFC 1661 section 5.8): is the peer still there?
#pragma once

#include <stdbool.h>
#include <stdint.h>

// 0 or -ENOMEM. Before workers run.
int keepalive_start(void);
// Worker: the session's peer answered. False: it is not asked from here, and the answer is for the agent.
bool keepalive_answered(uint32_t session);
// Main thread: one tick of the wheel. A test sets keepalive_by_hand, and calls it in the clock's place.
enum { KEEPALIVE_TICK_MS = 100 };
void keepalive_tick(void);
extern bool keepalive_by_hand;
