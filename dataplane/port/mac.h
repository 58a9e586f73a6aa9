// SPDX-License-Identifier: Apache-2.0
// Ethernet addresses as text: in lower case, as people, files and the kernel write them.
#pragma once

#include <stdint.h>
#include <stdio.h>

enum { MAC_TEXT_SIZE = 18 };

static inline void
mac_text(char text[static MAC_TEXT_SIZE], const void *mac)
{
	const uint8_t *m = mac;

	snprintf(text, MAC_TEXT_SIZE, "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]);
}
