// SPDX-License-Identifier: Apache-2.0
// Free packet buffers while queues are full: the whole graph with few buffers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <rte_ethdev.h>
#include <rte_mempool.h>

#include "core/start.h"
#include "core/trace.h"
#include "core/worker.h"
#include "fib/three_ports.h"
#include "hqos.pb-c.h"
#include "hqos/shaped.h"
#include "neighbor/arp.h"
#include "session.pb-c.h"
#include "session/session.h"

enum { SUBSCRIBERS = 16 }; // on each of two ports

static int
put_scheduler(const char *port)
{
	Sluice__V1__QosScheduler scheduler = SLUICE__V1__QOS_SCHEDULER__INIT;
	Sluice__V1__QosGroup group = SLUICE__V1__QOS_GROUP__INIT;

	scheduler.port = (char *)port;
	group.scheduler = (char *)port;
	return put("QosScheduler", port, &scheduler) || put("QosGroup", port, &group);
}

static const char *
name_of(unsigned subscriber)
{
	static char name[32];

	snprintf(name, sizeof(name), "s%u", subscriber);
	return name;
}

static int
put_subscriber(const char *port, unsigned number)
{
	Sluice__V1__Session s = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
	char address[32];

	snprintf(address, sizeof(address), "100.64.0.%u/32", number);
	access.port = (char *)port;
	access.outer_vlan = 100 + number;
	access.mac = (char *)"02:00:00:00:01:01";
	policy.qos_profile = (char *)"crawl";
	policy.qos_group = (char *)port;
	s.access = &access;
	s.policy = &policy;
	s.addresses = (char *[]){address};
	s.n_addresses = 1;
	return put("Session", name_of(number), &s);
}

// Subscribers whose queues may have more packets than there are buffers, and let one go in a second.
static int
start(void **state)
{
	Sluice__V1__QosProfile profile = SLUICE__V1__QOS_PROFILE__INIT;
	Sluice__V1__QosClass class = SLUICE__V1__QOS_CLASS__INIT, *classes[] = {&class};
	typeof(tx_node.process) send = tx_node.process;
	int wrong = three_ports_start(state);

	// Packets take their real path, through the schedulers.
	tx_node.process = send;
	trace_change(&workers[0]);
	profile.peak_rate = 8000;
	class.name = (char *)"all";
	class.queue_length = 32768;
	profile.classes = classes;
	profile.n_classes = 1;
	wrong = wrong || put_scheduler("other") || put_scheduler("in") || put("QosProfile", "crawl", &profile);
	for (unsigned i = 1; i <= 2 * SUBSCRIBERS && !wrong; i++)
		wrong = put_subscriber(i <= SUBSCRIBERS ? "other" : "in", i);
	if (wrong)
		fprintf(stderr, "%s\n", f.text);
	else
		walk();
	return wrong;
}

static void
send_to(unsigned subscriber, unsigned packets)
{
	char to[32];
	struct packet4 p;

	snprintf(to, sizeof(to), "100.64.0.%u", subscriber);
	p = udp4("198.51.100.2", to, 64, 1000);
	p.ether[5] = 2;
	for (unsigned i = 0; i < packets; i++)
		receive("out", (uint8_t *)&p, ETHER + 1000);
}

static uint32_t
held_by(const char *port)
{
	return hqos_buffers(shaped_of(object_find(&qos_scheduler_kind, port))->scheduler);
}

static void
the_backlog_of_one_subscriber_leaves_others_room_for_theirs(void **state)
{
	uint64_t before = dropped("qos-port-full");

	send_to(1, 2000);
	assert_in_range(held_by("other"), 1, shaped_port_max(packet_pool->size) / 2);
	assert_true(dropped("qos-port-full") > before);
	before = dropped("qos-port-full");
	for (unsigned i = 2; i <= SUBSCRIBERS; i++)
		send_to(i, 20);
	assert_int_equal(dropped("qos-port-full"), before);
}

static void
fill_all_queues(void)
{
	for (unsigned round = 0; round < 200; round++)
		for (unsigned i = 1; i <= 2 * SUBSCRIBERS; i++)
			send_to(i, 1);
}

static uint64_t
left_by_out(void)
{
	struct rte_eth_stats stats = {0};

	assert_int_equal(rte_eth_stats_get(port_of(object_find(&port_kind, "out"))->id, &stats), 0);
	return stats.opackets;
}

static void
receive_arp_reply(const uint8_t sender[4])
{
	uint8_t frame[60] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 7, 7, 8, 6};
	struct arp_message arp = {.hardware = RTE_BE16(1),
		.protocol = RTE_BE16(RTE_ETHER_TYPE_IPV4),
		.hardware_length = RTE_ETHER_ADDR_LEN,
		.protocol_length = sizeof(arp.sender),
		.operation = RTE_BE16(ARP_REPLY),
		.sender_mac = {{2, 0, 0, 0, 7, 7}},
		.target_mac = {{2, 0, 0, 0, 0, 2}},
		.target = {198, 51, 100, 1}};

	memcpy(arp.sender, sender, sizeof(arp.sender));
	memcpy(frame + ETHER, &arp, sizeof(arp));
	receive("out", frame, sizeof(frame));
}

// `host` is a new one each time.
static void
assert_the_rest_works(uint8_t host)
{
	uint64_t whole = dropped("port-unreachable"), lost = dropped("no-buffer"), before;
	struct packet4 p;
	char late[32];

	// Another port forwards,
	for (unsigned i = 0; i < 100; i++) {
		before = left_by_out();
		receive4("198.51.100.2", 64);
		assert_int_equal(left_by_out(), before + 1);
	}
	// a packet waits for a neighbour, which is asked for and answers,
	snprintf(late, sizeof(late), "198.51.100.%u", host);
	receive4(late, 64);
	walk();
	before = left_by_out();
	receive_arp_reply((uint8_t[4]){198, 51, 100, host});
	walk();
	assert_int_equal(left_by_out(), before + 1);
	// and fragments become a packet.
	for (unsigned i = 0; i < 2; i++) {
		p = udp4("192.0.2.9", "192.0.2.1", 64, (unsigned)sizeof(p.ip) + 64);
		p.ip.id = host;
		p.ip.fragment = rte_cpu_to_be_16((uint16_t)(i == 0 ? IP4_MF : 64 / 8));
		p.ip.checksum = 0;
		p.ip.checksum = ip4_checksum(&p.ip);
		receive("in", (uint8_t *)&p, ETHER + sizeof(p.ip) + 64);
	}
	walk();
	assert_int_equal(dropped("port-unreachable"), whole + 1);
	assert_int_equal(dropped("no-buffer"), lost);
}

static void
while_all_queues_of_two_ports_are_full_another_port_forwards_a_neighbour_is_resolved_and_fragments_reassemble(
	void **state)
{
	uint64_t before = dropped("qos-port-full");
	struct rte_mbuf *ring[512];

	fill_all_queues();
	assert_true(dropped("qos-port-full") > before);
	assert_in_range(held_by("other"), shaped_port_max(packet_pool->size) / 2, shaped_port_max(packet_pool->size));
	assert_in_range(held_by("in"), shaped_port_max(packet_pool->size) / 2, shaped_port_max(packet_pool->size));
	// Devices hold some, too.
	assert_int_equal(rte_pktmbuf_alloc_bulk(packet_pool, ring, RTE_DIM(ring)), 0);
	assert_the_rest_works(77);
	rte_pktmbuf_free_bulk(ring, RTE_DIM(ring));
}

static void
buffers_are_reserved_for_one_more_port(void **state)
{
	uint64_t before = dropped("qos-buffers-full");

	assert_int_equal(put_scheduler("out"), 0);
	fill_all_queues();
	assert_true(dropped("qos-buffers-full") > before);
	assert_the_rest_works(78);
	assert_int_equal(held_by("out"), 0);
	for (unsigned i = 1; i <= 2 * SUBSCRIBERS; i++)
		assert_int_equal(object_delete("Session", name_of(i), &f), 0);
	walk();
	assert_int_equal(held_by("other") + held_by("in"), 0);
	assert_int_equal(rte_mempool_in_use_count(packet_pool), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_backlog_of_one_subscriber_leaves_others_room_for_theirs),
		cmocka_unit_test(
			while_all_queues_of_two_ports_are_full_another_port_forwards_a_neighbour_is_resolved_and_fragments_reassemble),
		cmocka_unit_test(buffers_are_reserved_for_one_more_port),
	};

	return cmocka_run_group_tests(tests, start, three_ports_stop);
}
