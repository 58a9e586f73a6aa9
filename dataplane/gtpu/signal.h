// GTP-U's own messages (TS 29.281 section 7), as far as the data plane answers them.
#pragma once

#include "core/drop.h"
#include "gtpu/gtpu.h"

// An echo request becomes its response, in place. The edge to follow. `udp` is the offset of its UDP header.
uint16_t gtpu_echo(struct rte_mbuf *m, struct packet *p, unsigned udp, uint16_t sequence);

// The edge for a packet that is dropped for `reason`, and of which its sender is told by the main thread if that was not done
// too often lately: an error indication, or which extension headers we know.
uint16_t gtpu_tell_unknown_teid(struct packet *p);
uint16_t gtpu_tell_unknown_extension(struct packet *p);

// Main thread: a message from us on its way. False: there was no buffer for it.
bool gtpu_send(uint16_t vrf, const struct gtpu_ends *ends, uint8_t type, uint16_t sequence, const uint8_t *elements,
	size_t length);

// The packet's addresses, seen from here.
void gtpu_ends_of(const uint8_t *ip, struct gtpu_ends *ends);
