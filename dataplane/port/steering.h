// Which frames come to a port whose device several data planes share, each a process of its own: rules of rte_flow in the device.
//
// A bifurcated device (mlx5) is given to this process only for what its rules match (rte_flow_isolate); what a device that cannot do that
// receives and no rule matches, a last rule drops.
#pragma once

#include "port.pb-c.h"
#include "port/port.h"

// Before the device is configured. 0 or a negative errno, explained.
int steering_open(struct port *port, const Sluice__V1__Port *spec, struct fault *f);
// With the device started: what the spec says, in the place of what was. New rules are made before old ones go, and if any cannot be
// made, what was stays.
int steering_put(struct port *port, const Sluice__V1__Port *spec, struct fault *f);
// Before the device is stopped for good.
void steering_close(struct port *port);
