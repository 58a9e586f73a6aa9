// SPDX-License-Identifier: Apache-2.0
// GTP-U's own messages (TS 29.281 section 7), as far as the data plane answers them.
#pragma once

#include "core/drop.h"
#include "gtpu/gtpu.h"

// An echo request becomes its response, in place. The edge to follow. `udp` is the offset of its UDP header.
uint16_t gtpu_echo(struct rte_mbuf *m, struct packet *p, unsigned udp, uint16_t sequence);

// The edge for a packet that is dropped for `reason`. The main thread answers its sender, within a rate limit: with an error
// indication, or with the supported extension headers. The latter is for peers alone. The former is for every
// sender: after a restart, no peer is known.
uint16_t gtpu_report_unknown_teid(struct rte_mbuf *m, struct packet *p);
// Main thread: the answer, and the packet is dropped.
void gtpu_answer_unknown_teid(struct rte_mbuf *m);
// The edge for one that gets no answer.
uint16_t gtpu_drop_unknown_teid(struct packet *p);
uint16_t gtpu_report_unknown_extension(struct rte_mbuf *m, struct packet *p);

// Main thread: a message from us on its way. False: there was no buffer for it.
bool gtpu_send(uint16_t vrf, const struct gtpu_ends *ends, uint8_t type, uint16_t sequence, const uint8_t *elements,
	size_t length);

// The packet's addresses, seen from here.
void gtpu_ends_of(const uint8_t *ip, struct gtpu_ends *ends);
