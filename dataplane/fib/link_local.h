// SPDX-License-Identifier: Apache-2.0
// Link-local IPv6 addresses that interfaces are configured with, beyond those that their MACs make (RFC 4291 section 2.5.6).
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Workers and main thread.
bool link_local_is_configured(uint32_t interface, const uint8_t address[16]);

// Main thread: watch interfaces from now on. Once at start; 0 or -ENOMEM.
int link_local_start(void);
