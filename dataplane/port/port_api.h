// SPDX-License-Identifier: Apache-2.0
// Counters of a port's device outlive the device.
#pragma once

#include "port/port.h"

// The port's device is about to be closed, and another will come: the counters stay.
void port_counters_keep(const struct port *port);
// The port goes.
void port_counters_forget(const struct port *port);
