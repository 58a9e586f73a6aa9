// SPDX-License-Identifier: Apache-2.0
// The base of every scenario: ports, interfaces, neighbours and routes.
#include "bench/scenarios/ground.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "interface.pb-c.h"
#include "ip.pb-c.h"

Sluice__V1__PortSpread ground_spread;
uint32_t ground_mtu;

// Ports, interfaces and neighbours that every scenario has. Frames come in by "in" and leave by "out"; downlink scenarios
// have the sessions on "out".
int
make_ground(void)
{
	static const char *const names[] = {"in", "out"};
	char device[64], mac[32], address4[32], address6[64], name[32];
	int error = 0;

	for (unsigned i = 0; i < 2 && !error; i++) {
		Sluice__V1__Port port = SLUICE__V1__PORT__INIT;

		snprintf(device, sizeof(device), "net_null%u,no-rx=1", i);
		snprintf(mac, sizeof(mac), "02:00:00:00:00:0%u", i + 1);
		port.device = device;
		port.mac = mac;
		port.spread = ground_spread;
		port.mtu = ground_mtu;
		error = bench_put("Port", names[i], &port);
	}
	for (unsigned i = 0; i < 2 && !error; i++) {
		Sluice__V1__Interface interface = SLUICE__V1__INTERFACE__INIT;

		snprintf(address4, sizeof(address4), "192.0.2.%u/25", 1 + 128 * i);
		snprintf(address6, sizeof(address6), "2001:db8:ffff:%u::1/64", i);
		interface.port = (char *)names[i];
		interface.addresses = (char *[]){address4, address6};
		interface.n_addresses = 2;
		error = bench_put("Interface", names[i], &interface);
	}
	for (unsigned i = 0; i < 2 * NEIGHBORS && !error; i++) {
		Sluice__V1__Neighbor neighbor = SLUICE__V1__NEIGHBOR__INIT;
		unsigned n = i / 2;

		snprintf(name, sizeof(name), "neighbor-%u", i);
		if (i % 2)
			snprintf(address6, sizeof(address6), "2001:db8:ffff:1::%x", n + 16);
		else
			snprintf(address6, sizeof(address6), "192.0.2.%u", 129 + 16 + n);
		snprintf(mac, sizeof(mac), "02:00:00:00:02:%02x", n);
		neighbor.interface = "out";
		neighbor.address = address6;
		neighbor.mac = mac;
		error = bench_put("Neighbor", name, &neighbor);
	}
	return error;
}

int
make_route(unsigned n, const char *prefix)
{
	Sluice__V1__Route route = SLUICE__V1__ROUTE__INIT;
	Sluice__V1__NextHop hop = SLUICE__V1__NEXT_HOP__INIT, *hops[] = {&hop};
	char name[32], address[64];

	snprintf(name, sizeof(name), "route-%u", n);
	if (strchr(prefix, ':'))
		snprintf(address, sizeof(address), "2001:db8:ffff:1::%x", n % NEIGHBORS + 16);
	else
		snprintf(address, sizeof(address), "192.0.2.%u", 129 + 16 + n % NEIGHBORS);
	hop.address = address;
	route.prefix = (char *)prefix;
	route.next_hops = hops;
	route.n_next_hops = 1;
	return bench_put("Route", name, &route);
}

// The nth of up to 2^20 IPv4 prefixes, of the internet's lengths, mostly /24: each in a block of its own of 2,048
// addresses, blocks scattered over 1.0.0.0 to 128.255.255.255 by a multiplication, outside of loopback's.
uint32_t
prefix4(uint32_t n, unsigned *length)
{
	static const uint8_t lengths[8] = {24, 24, 22, 24, 23, 24, 26, 21};
	uint32_t block = n * 0x9e3779b1u & 0xfffff;
	uint32_t address = (1u << 24) + (block << 11);

	*length = lengths[n % 8];
	return address >> 24 == 127 ? (address & 0xffffff) | 200u << 24 : address;
}

int
make_routes4(uint32_t count)
{
	char prefix[32], text[INET_ADDRSTRLEN];

	for (uint32_t i = 0; i < count; i++) {
		unsigned length;
		uint32_t address = htonl(prefix4(i, &length));

		inet_ntop(AF_INET, &address, text, sizeof(text));
		snprintf(prefix, sizeof(prefix), "%s/%u", text, length);
		if (make_route(i, prefix))
			return -1;
	}
	return 0;
}

int
make_second_port(void)
{
	Sluice__V1__Port port = SLUICE__V1__PORT__INIT;

	port.device = "net_null2,no-rx=1";
	port.mac = "02:00:00:00:00:03";
	return bench_put("Port", "out2", &port);
}
