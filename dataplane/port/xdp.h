// SPDX-License-Identifier: Apache-2.0
// The additions that a port of net_af_xdp needs.
#pragma once

#include <rte_ethdev.h>

#include "server/object.h"

// Before its queues are set up: whether there are buffers for them. 0 or a negative errno, explained; other drivers need none.
int xdp_check_buffers(const struct rte_eth_dev_info *info, unsigned queues, struct fault *f);
// The port has been made: AF_XDP sockets (address family XDP) opened since are its.
void xdp_keep_sockets(uint16_t port);
// The port's device has been closed: close the descriptors that it left open.
void xdp_close_sockets(uint16_t port);
