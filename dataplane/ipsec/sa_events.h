// SPDX-License-Identifier: Apache-2.0
// Events of SAs and tunnels for the agent. Main thread.
#pragma once

#include <stdint.h>

#include "ipsec/selector.h"

// A packet of this flow found no outbound SA of the tunnel.
void ipsec_send_acquire(uint32_t tunnel, const struct ipsec_flow *flow);

// Reports the events that workers noted in SAs; each call checks some of the SAs. `now`: nanoseconds of a monotonic clock.
void ipsec_look(uint64_t now);
// All of them at once.
void ipsec_look_all(uint64_t now);
// The SA's spec has changed.
void ipsec_look_again(uint32_t sa);
int ipsec_look_start(void);
