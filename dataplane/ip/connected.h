// Our interfaces' addresses and networks as routes, and as sources of packets of our own.
#pragma once

#include <stdint.h>

// The hop of packets for a destination that is itself on the interface's link; 0 if there is none: a loopback.
uint32_t connected_glean(uint32_t interface, uint8_t family);

// Watch interfaces from now on. Called once at start.
void connected_start(void);
