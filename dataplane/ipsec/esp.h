// SPDX-License-Identifier: Apache-2.0
// ESP on the wire: RFC 4303 section 2 (packet format), RFC 3948 section 2 (in UDP).
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>

enum {
	ESP_HEADER = 8,  // SPI and sequence number
	ESP_TRAILER = 2, // pad length and next header
	ESP_PAD_MAX = 255,
	ESP_ALIGN = 4, // section 2.4: the ICV begins on a 4-byte boundary

	ESP_UDP_HEADER = 8,
	ESP_UDP_PORT = 4500,
	IKE_PORT = 500,
	ESP_KEEPALIVE = 0xff, // RFC 3948 section 2.3

	NEXT_IP4 = 4,
	NEXT_IP6 = 41,
	NEXT_DUMMY = 59, // section 2.6: traffic flow confidentiality
};

// IP, UDP and SPI, right-aligned at the end of a cache line.
enum { ESP_FRONT = 64 };

static inline uint32_t
esp_read_32(const uint8_t *bytes)
{
	uint32_t value;

	memcpy(&value, bytes, sizeof(value));
	return rte_be_to_cpu_32(value);
}

static inline void
esp_write_32(uint8_t *bytes, uint32_t value)
{
	value = rte_cpu_to_be_32(value);
	memcpy(bytes, &value, sizeof(value));
}

static inline void
esp_write_16(uint8_t *bytes, uint16_t value)
{
	value = rte_cpu_to_be_16(value);
	memcpy(bytes, &value, sizeof(value));
}

// Section 2.4: the padding is 1, 2, 3 ... Also the bytes that a check compares with.
extern const uint8_t esp_padding[ESP_PAD_MAX];
