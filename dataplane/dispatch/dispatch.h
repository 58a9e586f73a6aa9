// SPDX-License-Identifier: Apache-2.0
// Ports whose frames are spread over workers by an event device, rather than by the device's own queues.
#pragma once

// Set the event device, as DPDK names it: "event_dsw0", a PCI address. Before the first port. The text must stay valid.
void dispatch_use_device(const char *device);
// At the end, after all ports are closed, with the workers still running.
void dispatch_close(void);
