// SPDX-License-Identifier: Apache-2.0
// The way up to the main thread and back into the graph.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "port/all_nodes.h"

enum { WORKERS = 2, BUFFERS = 4096, RING = BUFFERS / 8, PACKETS = 40 };

static const char *const names[] = {"a", "b"};

static int
start(void **state)
{
	return all_nodes_start(WORKERS, BUFFERS, names, RTE_DIM(names));
}

static void
walk_one(unsigned worker)
{
	struct worker *main_thread = worker_self();

	RTE_PER_LCORE(worker) = &workers[worker];
	for (unsigned i = 0; i < 3; i++)
		rte_graph_walk(workers[worker].graph);
	RTE_PER_LCORE(worker) = main_thread;
}

// A frame from a port, with its source and its number.
static void
give(uint32_t session, uint16_t port, uint8_t number)
{
	struct rte_mbuf *m = packet_new();
	uint8_t *frame = (uint8_t *)rte_pktmbuf_append(m, 60);

	memset(frame, 0, 60);
	frame[20] = (uint8_t)session;
	frame[21] = number;
	m->port = port;
	packet_of(m)->session = session;
	inject(m, &tx_node);
}

static void
packets_of_all_sessions_are_spread_and_each_session_s_stay_in_order(void **state)
{
	unsigned of_worker[WORKERS];
	uint8_t next[8] = {0};

	sent_count = 0;
	for (uint8_t i = 0; i < PACKETS; i++)
		give(i % 4, 0, i / 4);
	for (unsigned w = 0; w < WORKERS; w++) {
		unsigned before = sent_count;

		walk_one(w);
		of_worker[w] = sent_count - before;
	}
	assert_int_equal(of_worker[0], PACKETS / 2);
	assert_int_equal(of_worker[1], PACKETS / 2);
	for (unsigned i = 0; i < PACKETS; i++)
		assert_int_equal(sent[i].bytes[21], next[sent[i].bytes[20]]++);
}

static void
packets_of_no_session_that_leave_by_one_port_stay_in_order(void **state)
{
	uint8_t next[2] = {0};

	sent_count = 0;
	for (uint8_t i = 0; i < PACKETS; i++)
		give(NO_SESSION, i % 2, i / 2);
	walk_workers(3);
	assert_int_equal(sent_count, PACKETS);
	for (unsigned i = 0; i < PACKETS; i++)
		assert_int_equal(sent[i].bytes[21], next[sent[i].port]++);
}

static void
packets_to_a_worker_with_a_full_ring_are_named_drops(void **state)
{
	uint64_t before = dropped("inject-queue-full");

	sent_count = 0;
	for (unsigned i = 0; i < RING + 10; i++)
		give(2, 0, 0);
	assert_int_equal(dropped("inject-queue-full"), before + 11);
	walk();
	assert_int_equal(sent_count, RING - 1);
}

static void
without_a_free_buffer_a_packet_of_our_own_is_a_named_drop(void **state)
{
	static struct rte_mbuf *all[BUFFERS + 1];
	uint64_t before = dropped("no-buffer");
	unsigned count = 0;

	while ((all[count] = packet_new()) != NULL)
		count++;
	assert_in_range(count, BUFFERS / 2, BUFFERS);
	assert_int_equal(dropped("no-buffer"), before + 1);
	for (unsigned i = 0; i < count; i++)
		rte_pktmbuf_free(all[i]);
	give(1, 0, 0);
	sent_count = 0;
	walk();
	assert_int_equal(sent_count, 1);
}

static void
punt_packet(struct rte_mbuf *m, const struct punt *reason)
{
	rte_pktmbuf_append(m, 60);
	packet_punt(packet_of(m), reason);
	node_edge(&inject_node, &punt_node);
	inject(m, &punt_node);
}

// A packet that the graph punts to the main thread.
static void
punt_one_of(const struct punt *reason, uint16_t vlan)
{
	struct rte_mbuf *m = packet_new();

	packet_of(m)->outer_vlan = vlan;
	punt_packet(m, reason);
}

static void
punt_one_of_session(const struct punt *reason, uint32_t session)
{
	struct rte_mbuf *m = packet_new();

	packet_of(m)->session = session;
	packet_of(m)->direction = UP;
	punt_packet(m, reason);
}

static void
punt_one(const struct punt *reason)
{
	static uint16_t vlan;

	punt_one_of(reason, vlan = (uint16_t)((vlan + 1) % 4096));
}

static unsigned handled, other_vlans;

static void
handle(struct rte_mbuf *m)
{
	handled++;
	other_vlans += packet_of(m)->outer_vlan != 1;
	rte_pktmbuf_free(m);
}

PUNT(punt_often, "test-often", 1000000, handle)
PUNT(punt_seldom, "test-seldom", 10, handle)
PUNT_EACH(punt_fair, "test-fair", 1000, 2, handle)
PUNT_SESSION(punt_of_session, "test-session", 1000000, 0, 2, handle)

static void
a_main_thread_that_does_not_take_packets_costs_named_drops(void **state)
{
	uint64_t before = dropped("punt-queue-full");

	handled = 0;
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < RING / 2; i++)
			punt_one(&punt_often);
		walk_workers(3);
	}
	assert_int_equal(dropped("punt-queue-full"), before + RING + 1);
	for (unsigned i = 0; i < 10; i++)
		loop_once(0);
	assert_int_equal(handled, RING - 1);
}

static void
more_packets_of_a_reason_than_its_rate_are_named_drops_and_another_reason_goes_on(void **state)
{
	uint64_t before = dropped("punt-rate-limited");

	handled = 0;
	for (unsigned i = 0; i < 100; i++)
		punt_one(&punt_seldom);
	for (unsigned i = 0; i < 100; i++)
		punt_one(&punt_often);
	walk();
	// All came to one worker, which has its part of the rate.
	assert_int_equal(dropped("punt-rate-limited"), before + 100 - 10 / WORKERS);
	assert_int_equal(handled, 100 + 10 / WORKERS);
}

static void
a_flood_from_one_circuit_leaves_others_the_rate_of_their_reason(void **state)
{
	uint64_t before = dropped("punt-rate-limited");
	unsigned flooder;

	handled = 0;
	for (unsigned i = 0; i < 400; i++)
		punt_one_of(&punt_fair, 1);
	walk();
	// A token comes back in a second: a test that is stopped for some gets some.
	assert_in_range(handled, 2, 100);
	flooder = handled;
	for (uint16_t vlan = 2; vlan < 12; vlan++)
		punt_one_of(&punt_fair, vlan);
	walk();
	assert_int_equal(handled, flooder + 10);
	assert_int_equal(dropped("punt-rate-limited"), before + 400 - flooder);
}

// A session is one subscriber. A relay, which has no session, speaks for many.
static void
a_session_has_less_of_a_reason_than_a_source_that_speaks_for_many(void **state)
{
	uint64_t before = dropped("punt-rate-limited");
	unsigned flooder;

	handled = 0;
	for (unsigned i = 0; i < 200; i++)
		punt_one_of_session(&punt_of_session, 0);
	walk();
	assert_in_range(handled, 2, 100);
	flooder = handled;
	for (uint32_t session = 1; session < 11; session++)
		punt_one_of_session(&punt_of_session, session);
	for (unsigned i = 0; i < 200; i++)
		punt_one_of(&punt_of_session, 1);
	walk();
	assert_int_equal(handled, flooder + 210);
	assert_int_equal(dropped("punt-rate-limited"), before + 200 - flooder);
}

static void
a_flood_from_one_circuit_leaves_others_room_in_the_queue_to_the_main_thread(void **state)
{
	uint64_t before = dropped("punt-queue-full");

	handled = other_vlans = 0;
	for (unsigned i = 0; i < RING - 20; i++)
		punt_one_of(&punt_often, 1);
	for (uint16_t vlan = 2; vlan < 12; vlan++)
		punt_one_of(&punt_often, vlan);
	walk_workers(6);
	assert_in_range(dropped("punt-queue-full"), before + 1, before + RING - 20);
	for (unsigned i = 0; i < 10; i++)
		loop_once(0);
	assert_int_equal(other_vlans, 10);
}

static void
a_packet_whose_chain_has_no_further_step_is_a_named_drop(void **state)
{
	uint64_t before = dropped("chain-ended");
	struct rte_mbuf *m = packet_new();

	rte_pktmbuf_append(m, 60);
	inject(m, node_by_id(0));
	walk();
	assert_int_equal(dropped("chain-ended"), before + 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_of_all_sessions_are_spread_and_each_session_s_stay_in_order),
		cmocka_unit_test(packets_of_no_session_that_leave_by_one_port_stay_in_order),
		cmocka_unit_test(packets_to_a_worker_with_a_full_ring_are_named_drops),
		cmocka_unit_test(without_a_free_buffer_a_packet_of_our_own_is_a_named_drop),
		cmocka_unit_test(a_main_thread_that_does_not_take_packets_costs_named_drops),
		cmocka_unit_test(a_packet_whose_chain_has_no_further_step_is_a_named_drop),
		cmocka_unit_test(more_packets_of_a_reason_than_its_rate_are_named_drops_and_another_reason_goes_on),
		cmocka_unit_test(a_flood_from_one_circuit_leaves_others_the_rate_of_their_reason),
		cmocka_unit_test(a_session_has_less_of_a_reason_than_a_source_that_speaks_for_many),
		cmocka_unit_test(a_flood_from_one_circuit_leaves_others_room_in_the_queue_to_the_main_thread),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
