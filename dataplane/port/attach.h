// SPDX-License-Identifier: Apache-2.0
// From the device string of a Port to a running device of DPDK's, and back. Main thread.
#pragma once

#include "port.pb-c.h"
#include "port/port.h"
#include "server/object.h"

// Probe, configure and start the device: port->device, its queues, and port->mac. 0 or a negative errno, explained, and then there is
// no device. No worker polls the device yet.
int attach(struct port *port, const Sluice__V1__Port *spec, struct fault *f);
// Close the device, if there is one. No worker uses it. Restore the settings of the Linux interface under it.
void attach_end(struct port *port);

// Changes of a running device. A port without a device gets them when it is attached.
// Let the device send and receive IP packets of this size with two tags around them. 0 or a negative errno.
int attach_set_mtu(struct port *port, uint16_t mtu);
// Set the port's own address. A device that keeps its own (memif, af_xdp) receives everything instead: ether-input checks
// the destination anyway. `address` becomes the port's once nothing can fail.
int attach_set_mac(struct port *port, const char *mac, struct rte_ether_addr *address, struct fault *f);
void attach_set_promiscuous(struct port *port, bool promiscuous);
