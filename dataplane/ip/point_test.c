// SPDX-License-Identifier: Apache-2.0
// An interface of a type that a concept registers, through the whole graph between three ports: a tunnel that is on port "other".
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/punt.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "fib/three_ports.h"
#include "ip/point.h"

enum { OWN = 4711, PACKETS = 16 };

static uint16_t mtu = 1400;
static bool down, taken;
static uint32_t bound = NO_INTERFACE;

static struct {
	uint32_t interface;
	uint64_t own;
	uint16_t length;
	uint8_t bytes[2000];
} left[PACKETS];
static unsigned left_count;

static uint16_t
output(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		const struct hop *hop = hop_at(packet_of(m)->hop);
		unsigned at = left_count++ % PACKETS;

		left[at].interface = hop->interface;
		left[at].own = hop->own[0];
		left[at].length = (uint16_t)m->pkt_len;
		memcpy(left[at].bytes, rte_pktmbuf_mtod(m, void *), RTE_MIN(m->data_len, sizeof(left[at].bytes)));
		rte_pktmbuf_free(m);
	}
	return count;
}

static struct node output_node = {.name = "test-output", .process = output};
NODE_REGISTER(output_node)

// The packet that comes out of the tunnel.
static uint16_t
input(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++)
		rte_node_enqueue_x1(graph, node, interface_input(packets[i], packet_of(packets[i]), bound), packets[i]);
	return count;
}

static struct node input_node = {
	.name = "test-input", .process = input, .edges = NODE_EDGES(&ip4_input_node, &ip6_input_node)};
NODE_REGISTER(input_node)

// Proxy ARP means nothing without a port: it marks this test's type.
static bool
takes(const Sluice__V1__Interface *spec)
{
	return spec->proxy_arp;
}

static int
need(const Sluice__V1__Interface *spec, struct object **under, uint32_t *own, struct fault *why)
{
	*own = OWN;
	return object_need(&port_kind, "other", "port", under, why);
}

static int
bind(uint32_t interface, struct fault *why)
{
	if (taken)
		return fault(why, EEXIST, "another interface has the tunnel");
	bound = interface;
	return 0;
}

static void
unbind(uint32_t interface)
{
	bound = NO_INTERFACE;
}

static uint16_t
mtu_of(const struct object *under)
{
	return mtu;
}

static bool
is_up(uint32_t interface)
{
	return !down;
}

static struct interface_type tunnel = {.name = "test tunnel",
	.takes = takes,
	.need = need,
	.bind = bind,
	.unbind = unbind,
	.mtu = mtu_of,
	.up = is_up,
	.output = &output_node};
INTERFACE_TYPE_REGISTER(tunnel)

static int
put_tunnel(const char *name, const char *port, const char *address4, unsigned spec_mtu)
{
	Sluice__V1__Interface i = SLUICE__V1__INTERFACE__INIT;

	i.port = (char *)port;
	i.proxy_arp = true;
	i.addresses = (char *[]){(char *)address4, (char *)"2001:db8:9::1/64"};
	i.n_addresses = address4[0] ? 2 : 0;
	i.mtu = spec_mtu;
	return put("Interface", name, &i);
}

static int
start(void **state)
{
	left_count = 0;
	mtu = 1400;
	down = taken = false;
	return put_tunnel("tun", "", "10.9.0.1/24", 0);
}

static int
stop(void **state)
{
	return object_delete("Interface", "tun", &f);
}

static void
send4(const char *to, uint8_t ttl, unsigned length, bool df)
{
	struct packet4 p = udp4("192.0.2.9", to, ttl, length);

	if (df) {
		p.ip.fragment = RTE_BE16(IP4_DF);
		p.ip.checksum = 0;
		p.ip.checksum = (uint16_t)~checksum_fold(checksum_add(0, &p.ip, sizeof(p.ip)));
	}
	sent_count = left_count = 0;
	receive("in", (const uint8_t *)&p, ETHER + rte_be_to_cpu_16(p.ip.total_length));
}

static void
packets_to_its_network_and_by_its_routes_leave_by_the_output_of_its_type(void **state)
{
	static const struct via by_interface = {NULL, "tun"}, by_address = {"10.9.0.7", NULL};
	struct interface_counters sum;

	counters_clear(&interface_counters, bound);
	receive4("10.9.0.200", 64);
	assert_int_equal(left_count, 1);
	assert_int_equal(left[0].interface, bound);
	assert_int_equal(left[0].own, OWN);
	assert_int_equal(((struct ip4_header *)left[0].bytes)->ttl, 63);
	assert_int_equal(put_route("", "203.0.113.0/24", SLUICE__V1__ROUTE_ACTION__FORWARD, &by_interface, 1), 0);
	receive4("203.0.113.9", 64);
	assert_int_equal(left_count, 2);
	assert_int_equal(put_route("", "203.0.113.0/24", SLUICE__V1__ROUTE_ACTION__FORWARD, &by_address, 1), 0);
	receive4("203.0.113.9", 64);
	assert_int_equal(left_count, 3);
	remove_route("", "203.0.113.0/24");
	receive6("2001:db8:9::77", 64);
	assert_int_equal(left_count, 4);
	assert_int_equal(((struct ip6_header *)left[3].bytes)->hop_limit, 63);
	counters_sum(&interface_counters, bound, &sum);
	assert_int_equal(sum.tx_packets, 4);
	assert_int_equal(sent_count, 0);
}

static void
a_packet_whose_ttl_is_used_up_or_that_is_too_large_does_not_leave(void **state)
{
	send4("10.9.0.200", 1, 100, false);
	assert_int_equal(left_count, 0);
	assert_int_equal(dropped("ttl-expired-to-tunnel"), 1);
	assert_int_equal(sent_count, 1);
	send4("10.9.0.200", 64, 1401, true);
	assert_int_equal(left_count, 0);
	assert_int_equal(dropped("tunnel-mtu"), 1);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].bytes[ETHER + 20], 3);
	assert_int_equal(sent[0].bytes[ETHER + 26] << 8 | sent[0].bytes[ETHER + 27], 1400);
}

static void
a_packet_without_df_is_cut_to_its_mtu(void **state)
{
	send4("10.9.0.200", 64, 1450, false);
	assert_int_equal(left_count, 2);
	assert_true(left[0].length <= 1400 && left[1].length <= 1400);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(((struct ip4_header *)left[i].bytes)->ttl, 63);
}

static void
its_mtu_is_its_type_s_until_it_has_one_of_its_own(void **state)
{
	assert_int_equal(interface_at(bound)->mtu, 1400);
	mtu = 1300;
	interface_follow(bound);
	assert_int_equal(interface_at(bound)->mtu, 1300);
	send4("10.9.0.200", 64, 1350, false);
	assert_int_equal(left_count, 2);
	assert_int_equal(put_tunnel("tun", "", "10.9.0.1/24", 1290), 0);
	assert_int_equal(interface_at(bound)->mtu, 1290);
}

static void
packets_that_come_in_by_it_are_forwarded_and_counted(void **state)
{
	struct packet4 p = udp4("10.9.0.7", "198.51.100.2", 64, 100);
	struct rte_mbuf *m = packet_new();
	struct interface_counters sum;
	unsigned length = rte_be_to_cpu_16(p.ip.total_length);

	counters_clear(&interface_counters, bound);
	memcpy(rte_pktmbuf_append(m, (uint16_t)length), &p.ip, length);
	sent_count = 0;
	node_edge(&inject_node, &input_node);
	inject(m, &input_node);
	walk();
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].port, 1);
	counters_sum(&interface_counters, bound, &sum);
	assert_int_equal(sum.rx_packets, 1);
	assert_int_equal(sum.rx_bytes, length);
}

static void
flows_leave_by_another_next_hop_while_it_is_down(void **state)
{
	static const struct via two[] = {{NULL, "tun"}, {"198.51.100.2", NULL}};
	unsigned to_tunnel = 0;

	assert_int_equal(put_route("", "203.0.113.0/24", SLUICE__V1__ROUTE_ACTION__FORWARD, two, 2), 0);
	for (unsigned i = 0; i < 50; i++) {
		char to[32];

		snprintf(to, sizeof(to), "203.0.113.%u", i);
		left_count = 0;
		receive4(to, 64);
		to_tunnel += left_count;
	}
	assert_in_range(to_tunnel, 5, 45);
	down = true;
	interface_follow(bound);
	for (unsigned i = 0; i < 50; i++) {
		char to[32];

		snprintf(to, sizeof(to), "203.0.113.%u", i);
		left_count = 0;
		receive4(to, 64);
		assert_int_equal(left_count, 0);
	}
	remove_route("", "203.0.113.0/24");
}

static void
it_is_refused_by_words(void **state)
{
	assert_int_equal(put_tunnel("two", "in", "10.8.0.1/24", 0), -EINVAL);
	assert_non_null(strstr(f.text, "not both"));
	taken = true;
	assert_int_equal(put_tunnel("two", "", "", 0), -EEXIST);
	assert_string_equal(f.text, "another interface has the tunnel");
	taken = false;
	assert_int_equal(put_interface("tun", "", "", "10.9.0.1/24", "2001:db8:9::1/64"), -EINVAL);
	assert_non_null(strstr(f.text, "test tunnel"));
	assert_int_equal(object_delete("Port", "other", &f), -EBUSY);
	assert_int_equal(put_neighbor("tun", "10.9.0.7", "02:00:00:00:00:07"), -EINVAL);
	assert_non_null(strstr(f.text, "no neighbours"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			packets_to_its_network_and_by_its_routes_leave_by_the_output_of_its_type, start, stop),
		cmocka_unit_test_setup_teardown(
			a_packet_whose_ttl_is_used_up_or_that_is_too_large_does_not_leave, start, stop),
		cmocka_unit_test_setup_teardown(a_packet_without_df_is_cut_to_its_mtu, start, stop),
		cmocka_unit_test_setup_teardown(its_mtu_is_its_type_s_until_it_has_one_of_its_own, start, stop),
		cmocka_unit_test_setup_teardown(packets_that_come_in_by_it_are_forwarded_and_counted, start, stop),
		cmocka_unit_test_setup_teardown(flows_leave_by_another_next_hop_while_it_is_down, start, stop),
		cmocka_unit_test_setup_teardown(it_is_refused_by_words, start, stop),
	};

	return cmocka_run_group_tests(tests, three_ports_start, three_ports_stop);
}
