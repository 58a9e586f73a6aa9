// SPDX-License-Identifier: Apache-2.0
// IP packets through the real graph with real tables: input by a port, output to a port.
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <rte_ethdev.h>

#include "core/loop.h"
#include "core/punt.h"
#include "core/start.h"
#include "ether/interface.h"
#include "fib/three_ports.h"
#include "interface.pb-c.h"
#include "ip/icmp.h"
#include "neighbor/arp.h"
#include "neighbor/nd.h"
#include "neighbor/neighbor_table.h"
#include "port/port.h"

// The one frame sent is an ICMP error to the sender of the packet.
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

// A solicitation of `target` (or of routers) with the sender's Ethernet address.
static struct packet6
solicitation(const char *from, const char *target, uint8_t type, const uint8_t mac[6])
{
	unsigned option = type == ND_SOLICITATION ? 24 : 8;
	struct packet6 p = udp6(from, target, 255, option + 8);
	uint16_t sum;

	p.ip.next_header = PROTOCOL_ICMP6;
	memset(p.payload, 0, option + 8);
	p.payload[0] = type;
	if (type == ND_SOLICITATION)
		memcpy(p.payload + 8, p.ip.destination, 16);
	p.payload[option] = ND_SOURCE_LINK_LAYER;
	p.payload[option + 1] = 1;
	memcpy(p.payload + option + 2, mac, 6);
	sum = (uint16_t)~checksum_fold(checksum_add(
		ip6_pseudo_sum(p.ip.source, p.ip.destination, option + 8, PROTOCOL_ICMP6), p.payload, option + 8));
	memcpy(p.payload + 2, &sum, 2);
	return p;
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

// Where each flow to 203.0.113.5 goes: the last byte of its next hop's Ethernet address.
static void
follow_flows(uint8_t went[64])
{
	for (unsigned flow = 0; flow < 64; flow++) {
		struct packet4 p = udp4("192.0.2.9", "203.0.113.5", 64, 60);

		p.payload[0] = (uint8_t)flow;
		sent_count = 0;
		receive("in", (uint8_t *)&p, ETHER + 60);
		assert_int_equal(sent_count, 1);
		went[flow] = sent[0].bytes[5];
	}
}

static void
see_links(void)
{
	for (unsigned i = 0; i < 150; i++)
		loop_once(1);
}

static void
flows_of_a_next_hop_whose_link_goes_down_take_another_until_it_is_up(void **state)
{
	uint16_t other = port_of(object_find(&port_kind, "other"))->id;
	uint8_t before[64], now[64];

	assert_int_equal(put_interface("other", "other", "", "100.64.1.1/24", ""), 0);
	assert_int_equal(put_neighbor("other", "100.64.1.2", "02:00:00:00:03:07"), 0);
	assert_int_equal(put_route("", "203.0.113.0/24", 0,
				 (struct via[]){{"198.51.100.2"}, {"198.51.100.3"}, {"100.64.1.2"}}, 3),
		0);
	follow_flows(before);
	assert_non_null(memchr(before, 7, sizeof(before)));

	// DPDK warns once on stderr that workers still poll it.
	assert_int_equal(rte_eth_dev_stop(other), 0);
	see_links();
	follow_flows(now);
	for (unsigned flow = 0; flow < 64; flow++)
		assert_true(before[flow] == 7 ? now[flow] == 2 || now[flow] == 3 : now[flow] == before[flow]);

	assert_int_equal(rte_eth_dev_start(other), 0);
	see_links();
	follow_flows(now);
	assert_memory_equal(now, before, sizeof(now));
	remove_route("", "203.0.113.0/24");
	assert_int_equal(object_delete("Neighbor", "100.64.1.2", &f), 0);
	assert_int_equal(object_delete("Interface", "other", &f), 0);
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
		{"203.0.113.0/24", 0, {"198.51.100.1"}, 1, -EEXIST, "nextHops.address"},
		{"203.0.113.0/24", 0, {"198.51.100.2", "gone"}, 1, -ENOENT, "nextHops.interface"},
		{"203.0.113.0/24", 0, {"198.51.100.2", "out", 256}, 1, -EINVAL, "nextHops[0].weight"},
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
an_interface_whose_network_is_within_another_s_takes_its_part(void **state)
{
	assert_int_equal(put_interface("other", "other", "", "198.51.100.129/25", ""), 0);
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

// RFC 791, RFC 1812 section 4.2.2.1: our address on the way out, or the one that the packet is for.
static void
a_packet_that_records_its_route_gets_our_address(void **state)
{
	static const uint8_t out[7] = {7, 11, 8, 198, 51, 100, 1}, here[7] = {7, 11, 8, 192, 0, 2, 1};
	static const struct {
		const char *to;
		const uint8_t *recorded;
		uint8_t ttl;
	} cases[] = {{"203.0.113.5", out, 64}, {"198.51.100.2", out, 64}, {"192.0.2.1", here, 1}};

	assert_int_equal(put_route("", "203.0.113.0/24", 0,
				 (struct via[]){{.address = "198.51.100.2"}, {.address = "198.51.100.3"}}, 2),
		0);
	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		struct packet4 p = udp4("192.0.2.9", cases[i].to, cases[i].ttl, 20 + 12 + 8);
		const struct ip4_header *ip = (const struct ip4_header *)(sent[0].bytes + ETHER);

		p.ip.version_ihl = 0x48;
		p.ip.protocol = PROTOCOL_ICMP;
		memset(p.payload, 0, 20);
		memcpy(p.payload, (uint8_t[]){7, 11, 4}, 3);
		memcpy(p.payload + 12, (uint8_t[]){8, 0, 0xf7, 0xff}, 4);
		p.ip.checksum = ip4_checksum(&p.ip);
		sent_count = 0;
		receive("in", (uint8_t *)&p, ETHER + 40);
		assert_int_equal(sent_count, 1);
		assert_int_equal(ip->version_ihl, 0x48);
		assert_memory_equal(ip + 1, cases[i].recorded, 7);
		assert_int_equal(ip->checksum, ip4_checksum(ip));
	}
	remove_route("", "203.0.113.0/24");
}

static void
assert_sent_to(const uint8_t mac[6])
{
	assert_int_equal(sent_count, 1);
	assert_memory_equal(sent[0].bytes, mac, 6);
}

// RFC 826, RFC 4861 sections 6.2.6 and 7.2.3: its first packet does not wait.
static void
a_host_that_asks_for_us_is_known(void **state)
{
	static const uint8_t mac[6] = {2, 0, 0, 0, 9, 0x21}, mac6[6] = {2, 0, 0, 0, 9, 0x22},
			     mac_rs[6] = {2, 0, 0, 0, 9, 0x23};
	struct {
		uint8_t ether[ETHER];
		struct arp_message arp;
		uint8_t padding[18];
	} __attribute__((packed)) a = {.ether = {255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 9, 0x21, 8, 6},
		.arp = {.hardware = htons(1),
			.protocol = htons(0x0800),
			.hardware_length = 6,
			.protocol_length = 4,
			.operation = htons(ARP_REQUEST),
			.sender = {192, 0, 2, 21},
			.target = {192, 0, 2, 1}}};
	struct packet6 p;

	memcpy(&a.arp.sender_mac, mac, 6);
	sent_count = 0;
	receive("in", (uint8_t *)&a, sizeof(a));
	assert_sent_to(mac); // the answer
	receive4("192.0.2.21", 64);
	assert_sent_to(mac);

	p = solicitation("2001:db8:1::22", "2001:db8:1::1", ND_SOLICITATION, mac6);
	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + sizeof(p.ip) + 32);
	assert_sent_to(mac6);
	receive6("2001:db8:1::22", 64);
	assert_sent_to(mac6);

	p = solicitation("2001:db8:1::23", "ff02::2", ND_ROUTER_SOLICITATION, mac_rs);
	receive("in", (uint8_t *)&p, ETHER + sizeof(p.ip) + 16);
	receive6("2001:db8:1::23", 64);
	assert_sent_to(mac_rs);
}

static void
an_entry_comes_of_no_message_but_one_that_asks_for_us_on_the_link(void **state)
{
	static const struct {
		uint8_t sender[4], target[4];
		uint16_t operation;
	} cases[] = {
		{{192, 0, 2, 31}, {192, 0, 2, 77}, ARP_REQUEST},   // for another
		{{192, 0, 2, 31}, {192, 0, 2, 31}, ARP_REQUEST},   // an announcement
		{{192, 0, 2, 31}, {192, 0, 2, 1}, ARP_REPLY},      // an unsolicited one
		{{198, 51, 100, 31}, {192, 0, 2, 1}, ARP_REQUEST}, // from another link
		{{203, 0, 113, 31}, {192, 0, 2, 1}, ARP_REQUEST},
	};
	static const uint8_t mac[6] = {2, 0, 0, 0, 9, 0x31};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		struct {
			uint8_t ether[ETHER];
			struct arp_message arp;
			uint8_t padding[18];
		} __attribute__((packed)) a = {.ether = {255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 9, 0x31, 8, 6},
			.arp = {.hardware = htons(1),
				.protocol = htons(0x0800),
				.hardware_length = 6,
				.protocol_length = 4,
				.operation = htons(cases[i].operation)}};
		uint8_t address[16] = {0};

		memcpy(&a.arp.sender_mac, mac, 6);
		memcpy(a.arp.sender, cases[i].sender, 4);
		memcpy(a.arp.target, cases[i].target, 4);
		memcpy(address, cases[i].sender, 4);
		receive("in", (uint8_t *)&a, sizeof(a));
		assert_null(neighbor_find(interface_of(object_find(&interface_kind, "in")), 4, address));
	}
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
		cmocka_unit_test(flows_of_a_next_hop_whose_link_goes_down_take_another_until_it_is_up),
		cmocka_unit_test(a_next_hop_on_no_network_of_ours_is_refused_for_now),
		cmocka_unit_test(routes_of_one_vrf_do_not_count_in_another),
		cmocka_unit_test(wrong_routes_are_refused_with_the_field_named),
		cmocka_unit_test(a_route_changes_its_next_hop_in_place),
		cmocka_unit_test(an_interface_whose_network_is_within_another_s_takes_its_part),
		cmocka_unit_test(no_icmp_error_is_sent_about_an_icmp_error),
		cmocka_unit_test(no_buffer_is_lost),
		cmocka_unit_test(a_packet_that_records_its_route_gets_our_address),
		cmocka_unit_test(a_host_that_asks_for_us_is_known),
		cmocka_unit_test(an_entry_comes_of_no_message_but_one_that_asks_for_us_on_the_link),
	};

	return cmocka_run_group_tests(tests, three_ports_start, three_ports_stop);
}
