// SPDX-License-Identifier: Apache-2.0
// Which queues each worker polls.
#pragma once

#include "port/port.h"

// Spread a port's receive queues over the workers; stop polling them. Returns when workers do as asked. -ENOMEM.
int rx_attach(const struct port *port);
void rx_detach(const struct port *port);
