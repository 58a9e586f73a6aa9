// Ports whose frames are spread over workers by an event device, rather than by the device's own queues.
#pragma once

// The event device, as DPDK names it: "event_dsw0", a PCI address. Before the first port; the text is kept.
void dispatch_use_device(const char *device);
// At the end, when there are no ports any more, with the workers still running.
void dispatch_close(void);
