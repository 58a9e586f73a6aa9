// SPDX-License-Identifier: Apache-2.0
// The description of an IP packet, for traces.
#pragma once

#include "core/packet.h"

// "192.0.2.1 > 198.51.100.7 protocol 17 length 128 ttl 64 hop 12". For a node whose data starts at an IP header.
void ip_describe(char *text, size_t size, const struct packet *packet, const uint8_t *data, size_t length);
