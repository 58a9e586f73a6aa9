// SPDX-License-Identifier: Apache-2.0
// For tests: a machine with three ports.
#include "fib/three_ports.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>

#include "core/loop.h"
#include "core/punt.h"
#include "core/start.h"
#include "core/worker.h"
#include "ether/interface.h"
#include "interface.pb-c.h"
#include "port.pb-c.h"
#include "port/port.h"

INJECTED(ether_input_node)

struct frame sent[SENT_MAX];
unsigned sent_count;
unsigned buffers = 4096;
struct fault f;

// In the place of the node that sends.
static uint16_t
capture(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct frame *to = &sent[sent_count % SENT_MAX];

		to->port = m->port;
		to->queue = packet_of(m)->queue;
		to->length = (uint16_t)RTE_MIN(m->pkt_len, (uint32_t)FRAME_MAX);
		memcpy(to->bytes, rte_pktmbuf_read(m, 0, to->length, to->bytes), to->length);
		sent_count++;
		rte_pktmbuf_free(m);
	}
	return count;
}

int
put(const char *kind, const char *name, const void *message)
{
	uint8_t packed[4096];

	return object_put(kind, name, packed, protobuf_c_message_pack(message, packed), &f);
}

int
put_interface(const char *name, const char *port, const char *vrf, const char *address4, const char *address6)
{
	Sluice__V1__Interface i = SLUICE__V1__INTERFACE__INIT;

	i.port = (char *)port;
	i.vrf = (char *)vrf;
	i.addresses = (char *[]){(char *)address4, (char *)address6};
	i.n_addresses = address6[0] ? 2 : 1;
	return put("Interface", name, &i);
}

int
put_neighbor(const char *interface, const char *address, const char *mac)
{
	Sluice__V1__Neighbor n = SLUICE__V1__NEIGHBOR__INIT;

	n.interface = (char *)interface;
	n.address = (char *)address;
	n.mac = (char *)mac;
	return put("Neighbor", address, &n);
}

int
put_route(const char *vrf, const char *prefix, Sluice__V1__RouteAction action, const struct via *via, unsigned count)
{
	Sluice__V1__Route r = SLUICE__V1__ROUTE__INIT;
	Sluice__V1__NextHop hops[8], *list[8];
	char name[64];

	for (unsigned i = 0; i < count; i++) {
		sluice__v1__next_hop__init(&hops[i]);
		hops[i].address = (char *)(via[i].address ? via[i].address : "");
		hops[i].interface = (char *)(via[i].interface ? via[i].interface : "");
		hops[i].weight = via[i].weight;
		list[i] = &hops[i];
	}
	r.vrf = (char *)vrf;
	r.prefix = (char *)prefix;
	r.action = action;
	r.next_hops = list;
	r.n_next_hops = count;
	snprintf(name, sizeof(name), "%s-%s", vrf, prefix);
	return put("Route", name, &r);
}

void
remove_route(const char *vrf, const char *prefix)
{
	char name[64];

	snprintf(name, sizeof(name), "%s-%s", vrf, prefix);
	assert_int_equal(object_delete("Route", name, &f), 0);
}

void
walk_workers(void)
{
	struct worker *main_thread = worker_self();

	RTE_PER_LCORE(worker) = &workers[0];
	for (unsigned i = 0; i < 3; i++)
		rte_graph_walk(workers[0].graph);
	RTE_PER_LCORE(worker) = main_thread;
}

void
walk(void)
{
	walk_workers();
	loop_once(0);
	walk_workers();
}

void
receive(const char *port, const uint8_t *bytes, size_t length)
{
	const struct port *p = port_of(object_find(&port_kind, port));
	struct rte_mbuf *m = packet_new();

	assert_non_null(m);
	memcpy(rte_pktmbuf_append(m, (uint16_t)length), bytes, length);
	packet_of(m)->port = p->id;
	m->port = p->id;
	inject(m, &ether_input_node);
	walk();
}

struct packet4
udp4(const char *from, const char *to, uint8_t ttl, unsigned length)
{
	struct packet4 p = {.ether = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 9, 9, 0x08, 0x00},
		.ip = {.version_ihl = 0x45,
			.total_length = htons((uint16_t)length),
			.id = htons(7),
			.ttl = ttl,
			.protocol = PROTOCOL_UDP}};
	uint8_t address[4];

	inet_pton(AF_INET, from, address);
	memcpy(&p.ip.source, address, 4);
	inet_pton(AF_INET, to, address);
	memcpy(&p.ip.destination, address, 4);
	for (unsigned i = 0; i < sizeof(p.payload); i++)
		p.payload[i] = (uint8_t)(i * 7 + i / 256);
	p.ip.checksum = ip4_checksum(&p.ip);
	return p;
}

struct packet6
udp6(const char *from, const char *to, uint8_t hop_limit, unsigned payload)
{
	struct packet6 p = {.ether = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 9, 9, 0x86, 0xdd},
		.ip = {.version_class_flow = htonl(6u << 28),
			.payload_length = htons((uint16_t)payload),
			.next_header = PROTOCOL_UDP,
			.hop_limit = hop_limit}};

	inet_pton(AF_INET6, from, p.ip.source);
	inet_pton(AF_INET6, to, p.ip.destination);
	return p;
}

void
receive4(const char *to, uint8_t ttl)
{
	struct packet4 p = udp4("192.0.2.9", to, ttl, 60);

	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + 60);
}

void
receive6(const char *to, uint8_t hop_limit)
{
	struct packet6 p = udp6("2001:db8:1::9", to, hop_limit, 20);

	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + 60);
}

void
set_mtu(unsigned mtu)
{
	Sluice__V1__Interface i = SLUICE__V1__INTERFACE__INIT;

	i.port = "out";
	i.mtu = mtu;
	i.addresses = (char *[]){"198.51.100.1/24", "2001:db8:2::1/64"};
	i.n_addresses = 2;
	assert_int_equal(put("Interface", "out", &i), 0);
}

int
three_ports_start(void **state)
{
	static const char *const names[] = {"in", "out", "other"};
	char prefix[32];
	struct options o = {.workers = 1, .buffers = buffers, .log_level = "error", .prefix = prefix, .memory = 128};

	snprintf(prefix, sizeof(prefix), "three-ports-%d", getpid());
	tx_node.process = capture;
	if (core_start(&o))
		return -1;
	for (unsigned i = 0; i < 3; i++) {
		Sluice__V1__Port port = SLUICE__V1__PORT__INIT;
		char device[64], mac[32];

		snprintf(device, sizeof(device), "net_null%u,no-rx=1", i);
		snprintf(mac, sizeof(mac), "02:00:00:00:00:0%u", i + 1);
		port.device = device;
		port.mac = mac;
		if (put("Port", names[i], &port))
			return -1;
	}
	for (unsigned i = 0; i < 20; i++)
		loop_once(1);
	if (put_interface("in", "in", "", "192.0.2.1/24", "2001:db8:1::1/64") ||
		put_interface("out", "out", "", "198.51.100.1/24", "2001:db8:2::1/64") ||
		put_neighbor("in", "192.0.2.9", "02:00:00:00:09:09") ||
		put_neighbor("in", "2001:db8:1::9", "02:00:00:00:09:09") ||
		put_neighbor("out", "198.51.100.2", "02:00:00:00:02:02") ||
		put_neighbor("out", "198.51.100.3", "02:00:00:00:02:03") ||
		put_neighbor("out", "2001:db8:2::2", "02:00:00:00:02:02"))
		return -1;
	return 0;
}

int
three_ports_stop(void **state)
{
	return rte_eal_cleanup();
}
