// IP packets through the real graph with real tables: what comes in by a port, and what is given to a port to send.
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
#include "interface.pb-c.h"
#include "ip/icmp.h"
#include "ip/three_ports.h"
#include "port/port.h"

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

	// DPDK says once on stderr that workers still look at it.
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
		cmocka_unit_test(flows_of_a_next_hop_whose_link_goes_down_take_another_until_it_is_up),
		cmocka_unit_test(a_next_hop_on_no_network_of_ours_is_refused_for_now),
		cmocka_unit_test(routes_of_one_vrf_do_not_count_in_another),
		cmocka_unit_test(wrong_routes_are_refused_with_the_field_named),
		cmocka_unit_test(a_route_changes_its_next_hop_in_place),
		cmocka_unit_test(two_interfaces_may_share_a_network_but_not_an_address),
		cmocka_unit_test(no_icmp_error_is_sent_about_an_icmp_error),
		cmocka_unit_test(no_buffer_is_lost),
	};

	return cmocka_run_group_tests(tests, three_ports_start, three_ports_stop);
}
