// IP packets through the real graph with real tables: what comes in by a port, and what is given to a port to send.
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>

#include "core/drop.h"
#include "core/loop.h"
#include "core/punt.h"
#include "core/start.h"
#include "core/worker.h"
#include "ether/interface.h"
#include "interface.pb-c.h"
#include "ip.pb-c.h"
#include "ip/header.h"
#include "ip/hop.h"
#include "ip/icmp.h"
#include "port.pb-c.h"
#include "port/port.h"

enum { FRAME_MOST = 2048, SENT_MOST = 2048, ETHER = 14 };

struct frame {
	uint16_t port, length;
	uint8_t bytes[FRAME_MOST];
};

static struct frame sent[SENT_MOST];
static unsigned sent_count;
static struct fault f;

// In the place of the node that sends.
static uint16_t
capture(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct frame *to = &sent[sent_count % SENT_MOST];

		to->port = m->port;
		to->length = (uint16_t)RTE_MIN(m->pkt_len, (uint32_t)FRAME_MOST);
		memcpy(to->bytes, rte_pktmbuf_read(m, 0, to->length, to->bytes), to->length);
		sent_count++;
		rte_pktmbuf_free(m);
	}
	return count;
}

static int
put(const char *kind, const char *name, const void *message)
{
	uint8_t packed[4096];

	return object_put(kind, name, packed, protobuf_c_message_pack(message, packed), &f);
}

static int
put_interface(const char *name, const char *port, const char *vrf, const char *address4, const char *address6)
{
	Sluice__V1__Interface i = SLUICE__V1__INTERFACE__INIT;

	i.port = (char *)port;
	i.vrf = (char *)vrf;
	i.addresses = (char *[]){(char *)address4, (char *)address6};
	i.n_addresses = address6[0] ? 2 : 1;
	return put("Interface", name, &i);
}

static int
put_neighbor(const char *interface, const char *address, const char *mac)
{
	Sluice__V1__Neighbor n = SLUICE__V1__NEIGHBOR__INIT;

	n.interface = (char *)interface;
	n.address = (char *)address;
	n.mac = (char *)mac;
	return put("Neighbor", address, &n);
}

struct via {
	const char *address, *interface;
	unsigned weight;
};

static int
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

static void
remove_route(const char *vrf, const char *prefix)
{
	char name[64];

	snprintf(name, sizeof(name), "%s-%s", vrf, prefix);
	assert_int_equal(object_delete("Route", name, &f), 0);
}

static void
walk(void)
{
	struct worker *main_thread = worker_self();

	RTE_PER_LCORE(worker) = &workers[0];
	for (unsigned i = 0; i < 3; i++)
		rte_graph_walk(workers[0].graph);
	RTE_PER_LCORE(worker) = main_thread;
	loop_once(0);
	RTE_PER_LCORE(worker) = &workers[0];
	rte_graph_walk(workers[0].graph);
	RTE_PER_LCORE(worker) = main_thread;
}

// A frame comes in by a port.
static void
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

struct packet4 {
	uint8_t ether[ETHER];
	struct ip4_header ip;
	uint8_t payload[1500];
} __attribute__((packed));

static struct packet4
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

struct packet6 {
	uint8_t ether[ETHER];
	struct ip6_header ip;
	uint8_t payload[1500];
} __attribute__((packed));

static struct packet6
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

static void
receive4(const char *to, uint8_t ttl)
{
	struct packet4 p = udp4("192.0.2.9", to, ttl, 60);

	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + 60);
}

static void
receive6(const char *to, uint8_t hop_limit)
{
	struct packet6 p = udp6("2001:db8:1::9", to, hop_limit, 20);

	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + 60);
}

static uint64_t
dropped(const char *name)
{
	for (uint16_t id = 0; id < drop_count(); id++)
		if (strcmp(drop_by_id(id)->name, name) == 0)
			return drop_total(id);
	fail_msg("no drop is called %s", name);
	return 0;
}

// The one frame sent is an ICMP error to who sent the packet.
static void
assert_icmp4(uint8_t type, uint8_t code)
{
	const struct ip4_header *ip = (const struct ip4_header *)(sent[0].bytes + ETHER);
	const uint8_t *icmp = (const uint8_t *)(ip + 1);

	assert_int_equal(sent_count, 1);
	assert_int_equal(ip->protocol, PROTOCOL_ICMP);
	assert_int_equal(ip->checksum, ip4_checksum(ip));
	assert_int_equal(ip->ttl, 64);
	assert_int_equal(ntohl(ip->source), 0xc0000201);
	assert_int_equal(ntohl(ip->destination), 0xc0000209);
	assert_int_equal(icmp[0], type);
	assert_int_equal(icmp[1], code);
	assert_int_equal(checksum_fold(checksum_add(0, icmp, ntohs(ip->total_length) - sizeof(*ip))), 0xffff);
}

static void
assert_icmp6(uint8_t type, uint8_t code, uint32_t word)
{
	const struct ip6_header *ip = (const struct ip6_header *)(sent[0].bytes + ETHER);
	const uint8_t *icmp = (const uint8_t *)(ip + 1);
	uint16_t length = ntohs(ip->payload_length);
	uint32_t second;
	uint64_t sum;

	assert_int_equal(sent_count, 1);
	assert_int_equal(ip->next_header, PROTOCOL_ICMP6);
	assert_int_equal(icmp[0], type);
	assert_int_equal(icmp[1], code);
	memcpy(&second, icmp + 4, sizeof(second));
	assert_int_equal(ntohl(second), word);
	sum = ip6_pseudo_sum(ip->source, ip->destination, length, PROTOCOL_ICMP6);
	assert_int_equal(checksum_fold(checksum_add(sum, icmp, length)), 0xffff);
	assert_true(ip->source[15] == 1 && ip->destination[15] == 9);
}

static int
start(void **state)
{
	static const char *const names[] = {"in", "out", "other"};
	char prefix[32];
	struct options o = {.workers = 1, .buffers = 4096, .log_level = "error", .prefix = prefix, .memory = 128};

	snprintf(prefix, sizeof(prefix), "forward-test-%d", getpid());
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

static int
stop(void **state)
{
	return rte_eal_cleanup();
}

static void
a_packet_leaves_by_its_route_s_next_hop_one_hop_older(void **state)
{
	static const uint8_t header[ETHER] = {2, 0, 0, 0, 2, 2, 2, 0, 0, 0, 0, 2, 0x08, 0x00};
	static const uint8_t header6[ETHER] = {2, 0, 0, 0, 2, 2, 2, 0, 0, 0, 0, 2, 0x86, 0xdd};
	const struct ip4_header *ip = (const struct ip4_header *)(sent[0].bytes + ETHER);
	const struct ip6_header *ip6 = (const struct ip6_header *)(sent[0].bytes + ETHER);
	struct interface_counters counters;

	assert_int_equal(put_route("", "203.0.113.0/24", 0, &(struct via){"198.51.100.2"}, 1), 0);
	assert_int_equal(put_route("", "2001:db8:f::/48", 0, &(struct via){"2001:db8:2::2", "out"}, 1), 0);
	receive4("203.0.113.5", 64);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].length, ETHER + 60);
	assert_memory_equal(sent[0].bytes, header, ETHER);
	assert_int_equal(ip->ttl, 63);
	assert_int_equal(ip->checksum, ip4_checksum(ip));
	receive6("2001:db8:f::5", 64);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].length, ETHER + 60);
	assert_memory_equal(sent[0].bytes, header6, ETHER);
	assert_int_equal(ip6->hop_limit, 63);
	counters_sum(&interface_counters, interface_of(object_find(&interface_kind, "out")), &counters);
	assert_int_equal(counters.tx_packets, 2);
	assert_int_equal(counters.tx_bytes, 2 * (ETHER + 60));
	remove_route("", "203.0.113.0/24");
	remove_route("", "2001:db8:f::/48");
}

static void
a_packet_whose_ttl_runs_out_is_reported_to_its_sender(void **state)
{
	uint64_t before = dropped("ttl-expired");

	assert_int_equal(put_route("", "0.0.0.0/0", 0, &(struct via){"198.51.100.2"}, 1), 0);
	assert_int_equal(put_route("", "::/0", 0, &(struct via){"2001:db8:2::2"}, 1), 0);
	receive4("203.0.113.5", 1);
	assert_icmp4(ICMP4_TIME_EXCEEDED, 0);
	assert_int_equal(dropped("ttl-expired"), before + 1);
	// Its quotation is the packet as it came.
	assert_int_equal(sent[0].bytes[ETHER + 20 + 8 + 8], 1);
	receive6("2001:db8:f::5", 1);
	assert_icmp6(ICMP6_TIME_EXCEEDED, 0, 0);
	receive4("203.0.113.5", 2);
	assert_int_equal(sent[0].bytes[ETHER + 8], 1);
	remove_route("", "0.0.0.0/0");
	remove_route("", "::/0");
}

static void
a_destination_without_a_route_is_unreachable(void **state)
{
	receive4("203.0.113.5", 64);
	assert_icmp4(ICMP4_UNREACHABLE, ICMP4_NET);
	receive6("2001:db8:f::5", 64);
	assert_icmp6(ICMP6_UNREACHABLE, ICMP6_NO_ROUTE, 0);
}

static void
a_prohibit_route_tells_the_sender_and_a_blackhole_does_not(void **state)
{
	uint64_t before = dropped("blackhole");

	assert_int_equal(put_route("", "203.0.113.0/25", SLUICE__V1__ROUTE_ACTION__PROHIBIT, NULL, 0), 0);
	assert_int_equal(put_route("", "203.0.113.128/25", SLUICE__V1__ROUTE_ACTION__BLACKHOLE, NULL, 0), 0);
	receive4("203.0.113.5", 64);
	assert_icmp4(ICMP4_UNREACHABLE, ICMP4_PROHIBITED);
	receive4("203.0.113.200", 64);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("blackhole"), before + 1);
	remove_route("", "203.0.113.0/25");
	remove_route("", "203.0.113.128/25");
}

static void
an_address_that_is_never_a_host_s_is_dropped_by_name(void **state)
{
	static const struct {
		const char *to, *drop;
	} cases[] = {
		{"0.1.2.3", "this-network"},
		{"127.0.0.1", "loopback-destination"},
		{"239.1.1.1", "multicast"},
		{"240.0.0.1", "class-e"},
		{"198.51.100.255", "directed-broadcast"},
		{"198.51.100.0", "network-address"},
		{"2001:db8:3::1", "no-route"},
		{"::1", "loopback-destination"},
		{"::", "this-network"},
		{"ff0e::1", "multicast"},
		{"fe80::1234", "link-local-destination"},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		uint64_t before = dropped(cases[i].drop);

		if (strchr(cases[i].to, ':'))
			receive6(cases[i].to, 64);
		else
			receive4(cases[i].to, 64);
		assert_int_equal(dropped(cases[i].drop), before + 1);
	}
}

static void
set_mtu(unsigned mtu)
{
	Sluice__V1__Interface i = SLUICE__V1__INTERFACE__INIT;

	i.port = "out";
	i.mtu = mtu;
	i.addresses = (char *[]){"198.51.100.1/24", "2001:db8:2::1/64"};
	i.n_addresses = 2;
	assert_int_equal(put("Interface", "out", &i), 0);
}

static void
a_packet_too_large_for_its_way_out_is_fragmented_or_reported(void **state)
{
	struct packet4 p = udp4("192.0.2.9", "198.51.100.2", 64, 1500);
	struct packet6 p6 = udp6("2001:db8:1::9", "2001:db8:2::2", 64, 1460);
	const struct ip4_header *ip;
	unsigned at = 0;

	set_mtu(1280);
	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + 1500);
	assert_int_equal(sent_count, 2);
	for (unsigned i = 0; i < 2; i++) {
		unsigned length = sent[i].length - ETHER - 20u;

		ip = (const struct ip4_header *)(sent[i].bytes + ETHER);
		assert_int_equal(ip->checksum, ip4_checksum(ip));
		assert_int_equal(ip->ttl, 63);
		assert_int_equal(ip->id, htons(7));
		assert_int_equal(ntohs(ip->total_length), length + 20);
		assert_int_equal(ntohs(ip->fragment), at / 8 | (i == 0 ? IP4_MF : 0));
		assert_memory_equal(ip + 1, p.payload + at, length);
		at += length;
	}
	assert_int_equal(at, 1480);

	p.ip.fragment = htons(IP4_DF);
	p.ip.checksum = ip4_checksum(&p.ip);
	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + 1500);
	assert_icmp4(ICMP4_UNREACHABLE, ICMP4_FRAGMENTATION_NEEDED);
	assert_int_equal(sent[0].length, ETHER + 576);
	assert_int_equal(sent[0].bytes[ETHER + 26] << 8 | sent[0].bytes[ETHER + 27], 1280);

	sent_count = 0;
	receive("in", (uint8_t *)&p6, ETHER + 1500);
	assert_icmp6(ICMP6_TOO_BIG, 0, 1280);
	assert_int_equal(sent[0].length, ETHER + 1280);
	set_mtu(1500);
}

static void
flows_are_spread_over_next_hops_by_weight_and_keep_to_theirs(void **state)
{
	const struct via via[] = {{"198.51.100.2", NULL, 3}, {"198.51.100.3", NULL, 1}};
	unsigned first = 0;

	assert_int_equal(put_route("", "203.0.113.0/24", 0, via, 2), 0);
	for (unsigned flow = 0; flow < 1024; flow++) {
		struct packet4 p = udp4("192.0.2.9", "203.0.113.5", 64, 60);
		uint8_t to[2];

		p.payload[0] = (uint8_t)flow;
		p.payload[1] = (uint8_t)(flow >> 8);
		for (unsigned again = 0; again < 2; again++) {
			sent_count = 0;
			receive("in", (uint8_t *)&p, ETHER + 60);
			assert_int_equal(sent_count, 1);
			to[again] = sent[0].bytes[5];
		}
		assert_int_equal(to[0], to[1]);
		first += to[0] == 2;
	}
	assert_in_range(first, 680, 860);
	remove_route("", "203.0.113.0/24");
}

static void
a_next_hop_on_no_network_of_ours_is_refused_for_now(void **state)
{
	const struct via later = {"100.64.1.2"};

	assert_int_equal(put_route("", "203.0.113.0/24", 0, &later, 1), -ENOENT);
	assert_non_null(strstr(f.text, "100.64.1.2"));
	assert_int_equal(put_interface("other", "other", "", "100.64.1.1/24", ""), 0);
	assert_int_equal(put_route("", "203.0.113.0/24", 0, &later, 1), 0);
	assert_int_equal(put_neighbor("other", "100.64.1.2", "02:00:00:00:03:03"), 0);
	receive4("203.0.113.5", 64);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].bytes[5], 3);

	// The interface goes although the route that found it by itself is still there.
	assert_int_equal(object_delete("Neighbor", "100.64.1.2", &f), 0);
	assert_int_equal(object_delete("Interface", "other", &f), 0);
	receive4("203.0.113.5", 64);
	assert_icmp4(ICMP4_UNREACHABLE, ICMP4_HOST);

	// And comes back.
	assert_int_equal(put_interface("other", "other", "", "100.64.1.1/24", ""), 0);
	assert_int_equal(put_neighbor("other", "100.64.1.2", "02:00:00:00:03:04"), 0);
	receive4("203.0.113.5", 64);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].bytes[5], 4);
	remove_route("", "203.0.113.0/24");
	assert_int_equal(object_delete("Neighbor", "100.64.1.2", &f), 0);
	assert_int_equal(object_delete("Interface", "other", &f), 0);
}

static void
routes_of_one_vrf_do_not_count_in_another(void **state)
{
	Sluice__V1__Vrf vrf = SLUICE__V1__VRF__INIT;

	assert_int_equal(put("Vrf", "blue", &vrf), 0);
	// The same network and address as in the default VRF, on another port.
	assert_int_equal(put_interface("blue", "other", "blue", "198.51.100.1/24", ""), 0);
	assert_int_equal(put_route("blue", "203.0.113.0/24", 0, &(struct via){"198.51.100.2", "blue"}, 1), 0);
	assert_int_equal(put_route("blue", "203.0.114.0/24", 0, &(struct via){"198.51.100.2", "out"}, 1), -EINVAL);
	receive4("203.0.113.5", 64);
	assert_icmp4(ICMP4_UNREACHABLE, ICMP4_NET);
	assert_int_equal(object_delete("Vrf", "blue", &f), -EBUSY);
	remove_route("blue", "203.0.113.0/24");
	assert_int_equal(object_delete("Interface", "blue", &f), 0);
	assert_int_equal(object_delete("Vrf", "blue", &f), 0);
}

static void
wrong_routes_are_refused_with_the_field_named(void **state)
{
	static const struct {
		const char *prefix;
		Sluice__V1__RouteAction action;
		struct via via;
		unsigned count;
		int error;
		const char *field;
	} cases[] = {
		{"203.0.113.1/24", 0, {"198.51.100.2"}, 1, -EINVAL, "prefix"},
		{"203.0.113.0/24", 0, {0}, 0, -EINVAL, "nextHops"},
		{"203.0.113.0/24", 0, {0}, 1, -EINVAL, "nextHops"},
		{"203.0.113.0/24", 0, {"198.51.100"}, 1, -EINVAL, "nextHops.address"},
		{"203.0.113.0/24", 0, {"2001:db8:2::2"}, 1, -EINVAL, "nextHops.address"},
		{"203.0.113.0/24", 0, {"198.51.100.1"}, 1, -EINVAL, "nextHops.address"},
		{"203.0.113.0/24", 0, {"198.51.100.2", "gone"}, 1, -ENOENT, "nextHops.interface"},
		{"203.0.113.0/24", 0, {"198.51.100.2", "out", 256}, 1, -EINVAL, "nextHops.weight"},
		{"2001:db8:f::/48", 0, {"fe80::1"}, 1, -EINVAL, "nextHops.interface"},
		{"203.0.113.0/24", SLUICE__V1__ROUTE_ACTION__BLACKHOLE, {"198.51.100.2"}, 1, -EINVAL, "nextHops"},
		{"203.0.113.0/24", 7, {0}, 0, -EINVAL, "action"},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		assert_int_equal(
			put_route("", cases[i].prefix, cases[i].action, &cases[i].via, cases[i].count), cases[i].error);
		assert_memory_equal(f.text, cases[i].field, strlen(cases[i].field));
	}
	assert_int_equal(put_route("gone", "203.0.113.0/24", 0, &(struct via){"198.51.100.2"}, 1), -ENOENT);
}

static void
a_route_changes_its_next_hop_in_place(void **state)
{
	assert_int_equal(put_route("", "203.0.113.0/24", 0, &(struct via){"198.51.100.2"}, 1), 0);
	assert_int_equal(put_route("", "203.0.113.0/24", 0, &(struct via){"198.51.100.3"}, 1), 0);
	receive4("203.0.113.5", 64);
	assert_int_equal(sent[0].bytes[5], 3);
	assert_int_equal(put_route("", "203.0.113.0/24", SLUICE__V1__ROUTE_ACTION__PROHIBIT, NULL, 0), 0);
	receive4("203.0.113.5", 64);
	assert_icmp4(ICMP4_UNREACHABLE, ICMP4_PROHIBITED);
	remove_route("", "203.0.113.0/24");
}

static void
two_interfaces_may_share_a_network_but_not_an_address(void **state)
{
	assert_int_equal(put_interface("other", "other", "", "198.51.100.1/24", ""), -EEXIST);
	assert_int_equal(put_interface("other", "other", "", "198.51.100.77/24", ""), 0);
	receive4("198.51.100.2", 64);
	assert_int_equal(sent[0].bytes[5], 2);
	assert_int_equal(object_delete("Interface", "other", &f), 0);
	receive4("198.51.100.3", 64);
	assert_int_equal(sent[0].bytes[5], 3);
}

static void
no_icmp_error_is_sent_about_an_icmp_error(void **state)
{
	struct packet4 p = udp4("192.0.2.9", "203.0.113.5", 64, 60);

	p.ip.protocol = PROTOCOL_ICMP;
	p.payload[0] = ICMP4_UNREACHABLE;
	p.ip.checksum = ip4_checksum(&p.ip);
	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + 60);
	assert_int_equal(sent_count, 0);
}

static void
no_buffer_is_lost(void **state)
{
	for (unsigned i = 0; i < 20; i++)
		loop_once(1);
	assert_int_equal(rte_mempool_in_use_count(packet_pool), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_packet_leaves_by_its_route_s_next_hop_one_hop_older),
		cmocka_unit_test(a_packet_whose_ttl_runs_out_is_reported_to_its_sender),
		cmocka_unit_test(a_destination_without_a_route_is_unreachable),
		cmocka_unit_test(a_prohibit_route_tells_the_sender_and_a_blackhole_does_not),
		cmocka_unit_test(an_address_that_is_never_a_host_s_is_dropped_by_name),
		cmocka_unit_test(a_packet_too_large_for_its_way_out_is_fragmented_or_reported),
		cmocka_unit_test(flows_are_spread_over_next_hops_by_weight_and_keep_to_theirs),
		cmocka_unit_test(a_next_hop_on_no_network_of_ours_is_refused_for_now),
		cmocka_unit_test(routes_of_one_vrf_do_not_count_in_another),
		cmocka_unit_test(wrong_routes_are_refused_with_the_field_named),
		cmocka_unit_test(a_route_changes_its_next_hop_in_place),
		cmocka_unit_test(two_interfaces_may_share_a_network_but_not_an_address),
		cmocka_unit_test(no_icmp_error_is_sent_about_an_icmp_error),
		cmocka_unit_test(no_buffer_is_lost),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
