// What a port of net_af_xdp needs beside what every port needs.
#pragma once

#include <rte_ethdev.h>

#include "core/object.h"

// Before its queues are set up: whether there are buffers for them. 0 or a negative errno, explained; other drivers need none.
int xdp_check_buffers(const struct rte_eth_dev_info *info, unsigned queues, struct fault *f);
// The port has been made: AF_XDP sockets (address family XDP) opened since are its.
void xdp_keep_sockets(uint16_t port);
// The port's device has been closed: what it left open goes, too.
void xdp_close_sockets(uint16_t port);
