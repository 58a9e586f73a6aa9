// SPDX-License-Identifier: Apache-2.0
// The fields of an Ethernet frame for filters (IEEE 802.1Q, TS 24.501 section 9.11.4.13): addresses, EtherType and two tags.
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <rte_ether.h>

enum { ETHER_TYPE_MIN = 0x600 }; // below it is a length (IEEE 802.3 section 3.2.6)

// Which tags there are, and which of them are drop eligible.
enum { FRAME_C_TAG = 1 << 0, FRAME_S_TAG = 1 << 1, FRAME_C_DEI = 1 << 2, FRAME_S_DEI = 1 << 3 };

// Numbers are in the host's order.
struct frame_shown {
	uint8_t destination[6];
	uint16_t type; // behind the tags
	uint8_t source[6];
	uint8_t tags, zero;
	uint16_t c_vlan, s_vlan;
	uint8_t c_priority, s_priority, zeros[2];
};

static_assert(sizeof(struct frame_shown) == 3 * sizeof(uint64_t), "what a frame shows is compared by words");

static inline uint16_t
frame_word(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

// `length` bytes, an Ethernet header at least. Returns the offset of the payload behind the tags. Of two tags of the same kind the outer one
// counts, and the type is that of the inner one.
static inline size_t
frame_show(const uint8_t *frame, size_t length, struct frame_shown *to)
{
	enum { TAGS_MAX = 2, TPID_QINQ_OLD = 0x9100 };
	size_t at = RTE_ETHER_HDR_LEN;
	uint16_t type = frame_word(frame + 12);

	*to = (struct frame_shown){0};
	memcpy(to->destination, frame, 6);
	memcpy(to->source, frame + 6, 6);
	for (unsigned i = 0; i < TAGS_MAX && length >= at + 4; i++) {
		uint16_t tci = frame_word(frame + at);

		if (type == RTE_ETHER_TYPE_VLAN && !(to->tags & FRAME_C_TAG)) {
			to->tags |= (uint8_t)(FRAME_C_TAG | (tci & 0x1000 ? FRAME_C_DEI : 0));
			to->c_vlan = tci & 0xfff;
			to->c_priority = (uint8_t)(tci >> 13);
		} else if ((type == RTE_ETHER_TYPE_QINQ || type == TPID_QINQ_OLD) && to->tags == 0) {
			to->tags |= (uint8_t)(FRAME_S_TAG | (tci & 0x1000 ? FRAME_S_DEI : 0));
			to->s_vlan = tci & 0xfff;
			to->s_priority = (uint8_t)(tci >> 13);
		} else {
			break;
		}
		type = frame_word(frame + at + 2);
		at += 4;
	}
	to->type = type;
	return at;
}
