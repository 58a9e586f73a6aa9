// SPDX-License-Identifier: Apache-2.0
// For tests: the whole graph on one worker between three ports without input, "in", "out" and "other", whose sent frames are
// captured. A test gives a frame to the graph, and one walk takes it to its end.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/dropped.h"
#include "inet/header.h"
#include "ip.pb-c.h"
#include "server/object.h"

enum { FRAME_MAX = 2048, SENT_MAX = 2048, ETHER = 14 };

struct frame {
	uint16_t port, length;
	uint32_t queue;
	uint8_t bytes[FRAME_MAX];
};

struct packet4 {
	uint8_t ether[ETHER];
	struct ip4_header ip;
	uint8_t payload[1500];
} __attribute__((packed));

struct packet6 {
	uint8_t ether[ETHER];
	struct ip6_header ip;
	uint8_t payload[1500];
} __attribute__((packed));

struct via {
	const char *address, *interface;
	unsigned weight;
};

// Sent frames. A test sets the count to 0 before.
extern struct frame sent[SENT_MAX];
extern unsigned sent_count;
// Set before the start, if not 4,096.
extern unsigned buffers;
extern struct fault f;

// Of a group of tests. "in" has 192.0.2.1/24 and 2001:db8:1::1/64, "out" 198.51.100.1/24 and 2001:db8:2::1/64; there are
// neighbours 9 on "in", and 2 (and in IPv4 3) on "out".
int three_ports_start(void **state);
int three_ports_stop(void **state);

int put(const char *kind, const char *name, const void *message);
int put_interface(const char *name, const char *port, const char *vrf, const char *address4, const char *address6);
// Of interface "out".
void set_mtu(unsigned mtu);
int put_neighbor(const char *interface, const char *address, const char *mac);
int put_route(
	const char *vrf, const char *prefix, Sluice__V1__RouteAction action, const struct via *via, unsigned count);
void remove_route(const char *vrf, const char *prefix);

// The workers' part of a round, and all of it.
void walk_workers(void);
void walk(void);
// A frame comes in by a port.
void receive(const char *port, const uint8_t *bytes, size_t length);
struct packet4 udp4(const char *from, const char *to, uint8_t ttl, unsigned length);
struct packet6 udp6(const char *from, const char *to, uint8_t hop_limit, unsigned payload);
// From neighbour 9 on "in"; nothing counts as sent before it.
void receive4(const char *to, uint8_t ttl);
void receive6(const char *to, uint8_t hop_limit);
