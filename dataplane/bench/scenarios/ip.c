// SPDX-License-Identifier: Apache-2.0
// Forwarding alone: IPv4 and IPv6, one route and up to a million.
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "bench/scenarios/all.h"
#include "bench/scenarios/frames.h"
#include "bench/scenarios/ground.h"

static int
ip4_set_up(const struct scenario *s)
{
	if (make_ground())
		return -1;
	return s->flows == 1024 ? make_route(0, "0.0.0.0/0") : make_routes4(s->flows);
}

// IPv6 prefixes of the internet's lengths: /32, /40, /44, /48, some /64.
static unsigned
prefix6(uint32_t n, uint8_t address[16])
{
	static const uint8_t lengths[8] = {48, 48, 32, 48, 40, 44, 48, 64};
	uint32_t mixed = n * 0x9e3779b1u;

	memset(address, 0, 16);
	address[0] = 0x24 + (uint8_t)(n % 8);
	address[1] = (uint8_t)(mixed >> 24);
	address[2] = (uint8_t)(mixed >> 16);
	address[3] = (uint8_t)(mixed >> 8);
	if (lengths[n % 8] >= 44)
		address[4] = (uint8_t)(mixed & 0xf0);
	if (lengths[n % 8] >= 48)
		address[5] = (uint8_t)(n >> 3);
	return lengths[n % 8];
}

static int
ip6_set_up(const struct scenario *s)
{
	char prefix[64], text[INET6_ADDRSTRLEN];
	uint8_t address[16];
	uint32_t routes = s->flows == 1024 ? 1 : s->flows;

	if (make_ground())
		return -1;
	if (routes == 1)
		return make_route(0, "::/0");
	for (uint32_t i = 0; i < routes; i++) {
		unsigned length = prefix6(i, address);

		inet_ntop(AF_INET6, address, text, sizeof(text));
		snprintf(prefix, sizeof(prefix), "%s/%u", text, length);
		if (make_route(i, prefix))
			return -1;
	}
	return 0;
}

static unsigned
ip6_udp(uint8_t *at, const uint8_t from[16], const uint8_t to[16], uint16_t length)
{
	memset(at, 0, 40);
	at[0] = 0x60;
	at[4] = (uint8_t)((length - 40) >> 8);
	at[5] = (uint8_t)(length - 40);
	at[6] = 17;
	at[7] = 64;
	memcpy(at + 8, from, 16);
	memcpy(at + 24, to, 16);
	return 40 + udp(at + 40, 1000, 2000, (uint16_t)(length - 40));
}

static unsigned
ip6_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	static const uint8_t from[16] = {0x20, 0x01, 0x0d, 0xb8, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
	uint8_t to[16] = {0x20, 0x01, 0x48, 0x60};
	unsigned n = ether(h, in_mac, peer_mac, 0x86dd);

	if (s->flows != 1024)
		prefix6(flow, to);
	to[14] = (uint8_t)(flow >> 8);
	to[15] = (uint8_t)flow;
	return n + ip6_udp(h + n, from, to, (uint16_t)(length - n));
}

const struct scenario ip_scenarios[] = {
	{"ip4-1", 1024, SIZES, ip4_set_up, ip4_frame, "in"},
	{"ip4-10k", 10000, SIZES, ip4_set_up, ip4_frame, "in", .scaling = true},
	{"ip4-100k", 100000, SIZES, ip4_set_up, ip4_frame, "in"},
	{"ip4-1M", 1000000, SIZES, ip4_set_up, ip4_frame, "in"},
	{"ip6-1", 1024, SIZES6, ip6_set_up, ip6_frame, "in"},
	{"ip6-100k", 100000, SIZES6, ip6_set_up, ip6_frame, "in"},
	{"ways-ip4-10k", 10000, {64}, ip4_set_up, ip4_frame, "in", .look_up = "ip4"},
	{"ways-ip4-100k", 100000, {64}, ip4_set_up, ip4_frame, "in", .look_up = "ip4"},
	{"ways-ip4-1M", 1000000, {64}, ip4_set_up, ip4_frame, "in", .look_up = "ip4"},
	{"ways-ip6-10k", 10000, {78}, ip6_set_up, ip6_frame, "in", .look_up = "ip6"},
	{"ways-ip6-100k", 100000, {78}, ip6_set_up, ip6_frame, "in", .look_up = "ip6"},
	{0},
};
