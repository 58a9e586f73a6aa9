// SPDX-License-Identifier: Apache-2.0
// LCP Echo-Requests of sessions (RFC 1661 section 5.8), answered by the worker in the frame that they came in, and Echo-Replies to ours.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/packet.h"

// Places of a PPPoE access key's own.
enum { PPPOE_OWN_ID, PPPOE_OWN_MAGIC };

int pppoe_echo_start(void);
// The gateway's Magic-Number in a session's LCP; 0: the agent answers. Main thread.
void pppoe_echo_magic(uint32_t session, uint32_t magic);

// The data is LCP's PPPoE header and the packet is its session's. True: it is an Echo-Request that is answered, or dropped because of its
// rate, or an Echo-Reply that is noted; *next is the edge to follow. False: it is for the agent.
bool pppoe_echo(struct rte_mbuf *m, struct packet *p, uint16_t *next);
