// SPDX-License-Identifier: Apache-2.0
// Headers of frames to subscribers (IEEE 802.1Q).
#include "session/header.h"

#include <string.h>

#include "inet/field.h"

enum { ADDRESSES = 12, TAG = 4 };

static const uint16_t tpids[] = {RTE_BE16(0x8100), RTE_BE16(0x88a8), RTE_BE16(0x9100)};

static uint8_t *
put_tag(uint8_t *at, uint16_t tpid, uint16_t vlan)
{
	memcpy(at, &tpid, sizeof(tpid));
	return put16(at + sizeof(tpid), vlan);
}

unsigned
session_header_write(const struct session_header *header, uint8_t room[SESSION_HEADER_ROOM])
{
	uint8_t bytes[SESSION_HEADER_ROOM], *at = bytes;
	unsigned length;

	memcpy(at, &header->destination, RTE_ETHER_ADDR_LEN);
	memcpy(at + RTE_ETHER_ADDR_LEN, &header->source, RTE_ETHER_ADDR_LEN);
	at += ADDRESSES;
	if (header->outer_vlan)
		at = put_tag(at, header->outer_tpid, header->outer_vlan);
	if (header->inner_vlan)
		at = put_tag(at, header->inner_tpid, header->inner_vlan);
	memcpy(at, header->behind, header->behind_length);
	at += header->behind_length;
	length = (unsigned)(at - bytes);
	memset(room, 0, SESSION_HEADER_ROOM - length);
	memcpy(room + SESSION_HEADER_ROOM - length, bytes, length);
	return length;
}

// At least two bytes are before the header, so that the eight bytes up to the end of the destination are within the room.
static_assert(SESSION_HEADER_ROOM - SESSION_HEADER_MAX >= 2, "room for a store of eight bytes");

void
session_header_destination(uint8_t *room, unsigned length, const uint8_t mac[6])
{
	uint8_t *at = room + SESSION_HEADER_ROOM - length - 2;
	uint64_t word;

	memcpy(&word, at, 2);
	memcpy((uint8_t *)&word + 2, mac, RTE_ETHER_ADDR_LEN);
	memcpy(at, &word, sizeof(word));
}

void
session_header_source(uint8_t *room, unsigned length, const uint8_t mac[6])
{
	uint8_t *at = room + SESSION_HEADER_ROOM - length + RTE_ETHER_ADDR_LEN;
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	memcpy(&word, mac, RTE_ETHER_ADDR_LEN);
	memcpy(at, &word, sizeof(word));
}

void
session_header_tpids(uint8_t *room, unsigned tags, unsigned length, uint16_t code)
{
	uint8_t *at = room + SESSION_HEADER_ROOM - length + ADDRESSES;

	for (unsigned o = 0; o < RTE_DIM(tpids); o++)
		for (unsigned i = 0; i < (tags == 2 ? RTE_DIM(tpids) : 1u); i++) {
			if (tags == 0 || session_tpids(tpids[o], tags == 2 ? tpids[i] : 0) != code)
				continue;
			memcpy(at, &tpids[o], sizeof(tpids[o]));
			if (tags == 2)
				memcpy(at + TAG, &tpids[i], sizeof(tpids[i]));
			return;
		}
}
