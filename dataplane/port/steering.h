// SPDX-License-Identifier: Apache-2.0
// The frames of a port whose device several data planes share, each a process of its own: rules of rte_flow in the device.
//
// A bifurcated device (mlx5) gives this process only frames that its rules match (rte_flow_isolate). On any other device, a last rule drops
// frames that no rule matches.
#pragma once

#include "port.pb-c.h"
#include "port/port.h"

// Before the device is configured. 0 or a negative errno, explained.
int steering_open(struct port *port, const Sluice__V1__Port *spec, struct fault *f);
// With the device started: replace the rules by those of the spec. New rules are made before old ones go, and if any cannot be
// made, the old ones stay.
int steering_put(struct port *port, const Sluice__V1__Port *spec, struct fault *f);
// Before the device is stopped for good.
void steering_close(struct port *port);
