// SPDX-License-Identifier: Apache-2.0
// Path MTU discovery of the ways to peers over IPv6 (RFC 8201). Over IPv4 outer packets have DF 0: routers
// fragment them, and "fragmentation needed" is ignored (RFC 1191 section 3).
#pragma once

#include <stdint.h>

enum { PATH_MTU_SECONDS = 600, PATH_MTU_MIN = 1280 };

// The MTU of a path at this moment (worker_second()): that of the routes, or a learned one for ten minutes. Main thread.
uint16_t gtpu_mtu_limit(uint32_t path, uint16_t mtu, uint32_t second);
// Of a new path nothing is known. Main thread.
void gtpu_mtu_forget(uint32_t path);

void gtpu_mtu_start(void);
