// SPDX-License-Identifier: Apache-2.0
// A port's Linux twin: a TAP through which daemons use the port's addresses.
#pragma once

#include "core/punt.h"
#include "port/port.h"

// Make the TAP that the spec names, with the port's MAC and MTU. 0 or a negative errno, explained.
int twin_open(struct port *port, const char *name, const char *namespace, struct fault *f);
void twin_close(struct port *port);
// Periodically: make a TAP again that was deleted, or whose namespace was deleted and made again.
void twin_look(struct port *port);
// Let the TAP have this MTU and MAC, too; a port without a twin needs nothing. 0 or a negative errno, explained.
int twin_follow(const struct port *port, uint16_t mtu, const struct rte_ether_addr *mac, struct fault *f);
// Give the TAP an address of the port's, or take it away.
void twin_address(struct port *port, bool add, uint8_t family, const uint8_t *address, uint8_t length);

// Main thread: sets the function that inspects frames of twins before the port sends them. `take`: with the data at
// the Ethernet header; true: the frame is taken.
void twin_watch_output(bool (*take)(uint16_t port, struct rte_mbuf *m));

// Main thread: give a copy of the frame to the port's twin (mbuf->data at `l2_length` behind the frame's start); the mbuf
// stays the caller's. False if the port has none.
bool twin_copy(const struct port *port, struct rte_mbuf *m);

// From a worker: the edge for a packet that only the twin can answer.
extern struct punt twin_punt;
