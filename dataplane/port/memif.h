// SPDX-License-Identifier: Apache-2.0
// The additions that a port of net_memif needs.
#pragma once

#include "port/port.h"

// Whether the device is one, and whether it is the client, which has to connect again when its server comes back.
void memif_recognise(struct port *port, const char *driver, const char *device);
// Main thread, first and now and then while the link of a client is down: try to connect. Its server may be away.
void memif_connect(const struct port *port);
