// SPDX-License-Identifier: Apache-2.0
// The base of every scenario. Frames come in by the port "in" and leave by "out"; downlink scenarios have the
// sessions on "out". Each of these returns 0, or -1 after an error message.
#pragma once

#include <stdint.h>

#include "bench/bench.h"
#include "port.pb-c.h"

enum { NEIGHBORS = 16 };

// How frames come from the ports' queues to workers.
extern Sluice__V1__PortSpread ground_spread;
// The ports' MTU; 0: that of an object without one.
extern uint32_t ground_mtu;

int make_ground(void);
int make_route(unsigned n, const char *prefix);
uint32_t prefix4(uint32_t n, unsigned *length);
int make_routes4(uint32_t count);
// Beside "out", for the sessions: "out2".
int make_second_port(void);
