// SPDX-License-Identifier: Apache-2.0
// The header of frames to a subscriber: Ethernet, up to two tags, and the header of the access behind them.
#pragma once

#include <rte_ether.h>

#include "session/session.h"

enum { SESSION_HEADER_ROOM = 32, SESSION_HEADER_MAX = 30 };

struct session_header {
	struct rte_ether_addr destination, source;
	uint16_t outer_tpid, inner_tpid;     // network order
	uint16_t outer_vlan, inner_vlan;     // 0: no such tag
	uint8_t behind[SESSION_BEHIND_TAGS]; // the bytes behind the tags: an Ethernet type at least
	uint8_t behind_length;
};

// Written right-aligned into `room`; the length.
unsigned session_header_write(const struct session_header *header, uint8_t room[SESSION_HEADER_ROOM]);

// Into a header in place, each with a single store, so that a worker that copies it sees the old or the new value.
void session_header_destination(uint8_t *room, unsigned length, const uint8_t mac[6]);
void session_header_source(uint8_t *room, unsigned length, const uint8_t mac[6]);
// The TPIDs that session_tpids() made into `code`, for as many tags as the header has; anything else is left as it is.
void session_header_tpids(uint8_t *room, unsigned tags, unsigned length, uint16_t code);
