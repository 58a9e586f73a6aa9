// SPDX-License-Identifier: Apache-2.0
// Record route and timestamp, option by option. Each option lies within the header, as ip4_check() has seen.
#include "ip/options.h"

#include <string.h>

#include <rte_byteorder.h>

#include "inet/header.h"

enum {
	OPTION_END = 0,
	OPTION_NOP = 1,
	OPTION_RECORD_ROUTE = 7,
	OPTION_TIMESTAMP = 68,

	// Bytes in an option.
	LENGTH = 1,
	POINTER = 2, // to the first free byte, which counts from 1
	OVERFLOW_FLAG = 3,

	TIMES_ALONE = 0,
	TIMES_WITH_ADDRESSES = 1,
	TIMES_OF_ADDRESSES = 3, // that the sender has filled in
};

static const uint32_t NOT_SINCE_MIDNIGHT = UINT32_C(1) << 31;

// Room for `size` bytes at the option's pointer: where they go, or 0 if the option is full or wrong, with the place in `*wrong`.
static unsigned
room_for(const uint8_t *option, unsigned size, unsigned first, unsigned *wrong)
{
	unsigned length = option[LENGTH], pointer = option[POINTER];

	if (pointer < first || (pointer <= length && pointer - 1 + size > length)) {
		*wrong = POINTER;
		return 0;
	}
	return pointer > length ? 0 : pointer - 1;
}

static bool
record_route(uint8_t *option, const uint8_t own[4], unsigned *wrong)
{
	unsigned at;

	if (option[LENGTH] < 3) {
		*wrong = LENGTH;
		return false;
	}
	at = room_for(option, 4, 4, wrong);
	if (at == 0)
		return false;
	memcpy(option + at, own, 4);
	option[POINTER] = (uint8_t)(option[POINTER] + 4);
	return true;
}

static bool
timestamp(uint8_t *option, const uint8_t own[4], uint32_t time, bool (*ours)(uint16_t vrf, const uint8_t *address),
	uint16_t vrf, unsigned *wrong)
{
	unsigned flag, size, at;

	if (option[LENGTH] < 4) {
		*wrong = LENGTH;
		return false;
	}
	flag = option[OVERFLOW_FLAG] & 0xf;
	if (flag != TIMES_ALONE && flag != TIMES_WITH_ADDRESSES && flag != TIMES_OF_ADDRESSES)
		return false;
	size = flag == TIMES_ALONE ? 4 : 8;
	at = room_for(option, size, 5, wrong);
	if (at == 0) {
		// A gateway that finds no room increments the overflow field, unless it is full (RFC 791).
		if (*wrong || flag == TIMES_OF_ADDRESSES)
			return false;
		if (option[OVERFLOW_FLAG] >> 4 == 0xf) {
			*wrong = OVERFLOW_FLAG;
			return false;
		}
		option[OVERFLOW_FLAG] = (uint8_t)(option[OVERFLOW_FLAG] + 0x10);
		return true;
	}
	if (flag == TIMES_OF_ADDRESSES && !ours(vrf, option + at))
		return false;
	if (flag == TIMES_WITH_ADDRESSES)
		memcpy(option + at, own, 4);
	time = rte_cpu_to_be_32(time | NOT_SINCE_MIDNIGHT);
	memcpy(option + at + size - 4, &time, 4);
	option[POINTER] = (uint8_t)(option[POINTER] + size);
	return true;
}

bool
ip4_options_record(uint8_t *header, unsigned length, const uint8_t own[4], uint32_t milliseconds,
	bool (*ours)(uint16_t vrf, const uint8_t *address), uint16_t vrf, unsigned *wrong)
{
	bool written = false;
	unsigned at = 0;

	*wrong = 0;
	for (unsigned i = sizeof(struct ip4_header), size; i < length && header[i] != OPTION_END; i += size) {
		size = header[i] == OPTION_NOP ? 1 : header[i + LENGTH];
		if (header[i] == OPTION_RECORD_ROUTE)
			written |= record_route(header + i, own, &at);
		else if (header[i] == OPTION_TIMESTAMP)
			written |= timestamp(header + i, own, milliseconds, ours, vrf, &at);
		if (at != 0) {
			*wrong = i + at;
			return written;
		}
	}
	return written;
}
