// SPDX-License-Identifier: Apache-2.0
// Packets on their way from workers without a transmit queue to the worker that has one.
#pragma once

#include "port/port.h"

// Rings to the workers with a transmit queue of the port, from each worker without one; none where each has its own.
// -ENOMEM.
int handover_open(struct port *port);
// No worker hands over to this port, or will once this returns: drop packets that still wait.
void handover_close(struct port *port);

// A ring with one worker at each end, for handing over packets; NULL: no memory. Freed with free().
struct rte_ring *handover_ring(void);

// The worker that sends for this one, whose index is not below port->tx_queues.
unsigned handover_owner(const struct port *port, unsigned worker);
// From a worker whose index is not below port->tx_queues: how many of the packets the owner of its queue will send.
uint16_t handover_give(const struct port *port, struct rte_mbuf **packets, uint16_t count);

// Main thread: drop packets that can no longer be sent.
void tx_port_gone(struct rte_mbuf *m);
