// SPDX-License-Identifier: Apache-2.0
// Fields of headers at any address, in network order. Writers return the end of the field.
#pragma once

#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>

static inline uint8_t *
put16(uint8_t *at, uint16_t value)
{
	value = rte_cpu_to_be_16(value);
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static inline uint8_t *
put32(uint8_t *at, uint32_t value)
{
	value = rte_cpu_to_be_32(value);
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static inline uint16_t
get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}
