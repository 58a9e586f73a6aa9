// SPDX-License-Identifier: Apache-2.0
// Frames through the event device, with both workers walked by hand; a node in place of the input records which
// worker got which frame.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "dispatch/dispatch.h"
#include "ether/circuit.h"
#include "port/all_nodes.h"

enum { FLOWS = 64, FRAMES_MAX = 8192 };

static const char *const port_names[] = {"in"};

static struct arrived {
	unsigned worker;
	uint16_t flow, number;
} arrived[FRAMES_MAX];
static unsigned arrived_count;

static uint16_t
note(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		const uint8_t *frame = rte_pktmbuf_mtod((struct rte_mbuf *)packets[i], const uint8_t *);
		struct arrived *a = &arrived[arrived_count++ % FRAMES_MAX];

		a->worker = worker_self()->index;
		memcpy(&a->flow, frame + 34, 2);
		memcpy(&a->number, frame + 42, 2);
		rte_pktmbuf_free(packets[i]);
	}
	return count;
}

static int
start(void **state)
{
	ether_input_node.process = note;
	return all_nodes_start(2, 16384, port_names, 1);
}

static void
spread(Sluice__V1__PortSpread by)
{
	Sluice__V1__Port port = SLUICE__V1__PORT__INIT;

	port.device = (char *)"net_null0,no-rx=1";
	port.mac = (char *)"02:00:00:00:00:01";
	port.spread = by;
	assert_int_equal(put("Port", "in", &port), 0);
	arrived_count = 0;
}

// A frame received by worker 0.
static void
frame(uint16_t flow, uint16_t number)
{
	uint8_t bytes[60] = {
		2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46, [22] = 64, [23] = 17, 10, 0, 0, 1};
	struct rte_mbuf *m = packet_new();

	assert_non_null(m);
	memcpy(bytes + 34, &flow, 2);
	memcpy(bytes + 42, &number, 2);
	memcpy(rte_pktmbuf_append(m, sizeof(bytes)), bytes, sizeof(bytes));
	packet_of(m)->port = m->port = port_number("in");
	node_edge(&inject_node, node_by_name("dispatch"));
	inject(m, node_by_name("dispatch"));
}

static void
walk_worker(unsigned worker)
{
	struct worker *main_thread = worker_self();

	RTE_PER_LCORE(worker) = &workers[worker];
	rte_graph_walk(workers[worker].graph);
	RTE_PER_LCORE(worker) = main_thread;
}

static unsigned
seen_by(unsigned worker)
{
	unsigned count = 0;

	for (unsigned i = 0; i < arrived_count; i++)
		count += arrived[i].worker == worker;
	return count;
}

static void
send_flows(unsigned each)
{
	for (uint16_t number = 0; number < each; number++) {
		for (uint16_t flow = 0; flow < FLOWS; flow++)
			frame(flow, number);
		walk_workers(1);
	}
	walk_workers(100);
}

static bool workers_sleep;

// Workers that sleep wake while the main thread does.
int
nanosleep(const struct timespec *time, struct timespec *left)
{
	if (!workers_sleep)
		return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
	walk_workers(1);
	return 0;
}

static int
stop(void **state)
{
	dispatch_close();
	return all_nodes_stop(state);
}

static void
a_device_that_there_is_not_is_told_of_and_the_port_goes_on_as_it_was(void **state)
{
	Sluice__V1__Port port = SLUICE__V1__PORT__INIT;

	port.device = (char *)"net_null0,no-rx=1";
	port.mac = (char *)"02:00:00:00:00:01";
	port.spread = SLUICE__V1__PORT_SPREAD__ATOMIC;
	dispatch_use_device("event_nothing0");
	assert_true(put("Port", "in", &port) != 0);
	assert_non_null(strstr(fault_of_put.text, "event_nothing0"));
	assert_non_null(strstr(fault_of_put.text, "--event-device"));
	assert_int_equal(port_of(object_find(&port_kind, "in"))->entry, 0);
	dispatch_use_device("event_dsw0");
}

static void
all_frames_of_a_flow_arrive_in_order_and_both_workers_have_some(void **state)
{
	uint16_t next[FLOWS] = {0};

	spread(SLUICE__V1__PORT_SPREAD__ATOMIC);
	send_flows(50);
	assert_int_equal(arrived_count, FLOWS * 50);
	for (unsigned i = 0; i < arrived_count; i++)
		assert_int_equal(arrived[i].number, next[arrived[i].flow]++);
	assert_true(seen_by(0) > 0);
	assert_true(seen_by(1) > 0);
}

static void
frames_of_one_flow_go_to_both_workers_where_order_is_no_matter(void **state)
{
	spread(SLUICE__V1__PORT_SPREAD__UNORDERED);
	for (uint16_t number = 0; number < 200; number++)
		frame(7, number);
	walk_workers(100);
	assert_int_equal(arrived_count, 200);
	assert_true(seen_by(0) > 0);
	assert_true(seen_by(1) > 0);
}

static void
directed_frames_go_to_the_next_worker(void **state)
{
	spread(SLUICE__V1__PORT_SPREAD__DIRECTED);
	send_flows(10);
	assert_int_equal(arrived_count, FLOWS * 10);
	assert_int_equal(seen_by(1), FLOWS * 10);
}

static void
frames_beyond_the_device_s_room_are_named_drops_and_the_rest_arrives(void **state)
{
	uint64_t before = dropped("dispatch-full");
	unsigned sent_frames = 0;

	spread(SLUICE__V1__PORT_SPREAD__DIRECTED);
	for (unsigned round = 0; round < 100; round++) {
		for (uint16_t flow = 0; flow < FLOWS; flow++, sent_frames++)
			frame(flow, (uint16_t)round);
		walk_worker(0);
	}
	assert_int_equal(arrived_count, 0);
	assert_true(dropped("dispatch-full") > before);
	walk_workers(200);
	assert_int_equal(arrived_count + dropped("dispatch-full") - before, sent_frames);
	// And it goes on.
	arrived_count = 0;
	send_flows(1);
	assert_int_equal(arrived_count, FLOWS);
}

static void
a_port_that_is_spread_by_queues_again_gives_nothing_to_the_device(void **state)
{
	spread(SLUICE__V1__PORT_SPREAD__ATOMIC);
	assert_int_equal(port_of(object_find(&port_kind, "in"))->entry, node_by_name("dispatch")->id);
	spread(SLUICE__V1__PORT_SPREAD__RSS);
	assert_int_equal(port_of(object_find(&port_kind, "in"))->entry, 0);
}

static void
frames_that_sleeping_workers_have_not_taken_arrive_before_their_port_goes(void **state)
{
	struct fault f = {0};

	spread(SLUICE__V1__PORT_SPREAD__DIRECTED);
	for (uint16_t flow = 0; flow < FLOWS; flow++)
		frame(flow, 0);
	walk_worker(0);
	assert_int_equal(arrived_count, 0);
	workers_sleep = true;
	assert_int_equal(object_delete("Port", "in", &f), 0);
	workers_sleep = false;
	assert_int_equal(arrived_count, FLOWS);
}

static void
a_way_of_spreading_that_there_is_not_is_refused(void **state)
{
	Sluice__V1__Port port = SLUICE__V1__PORT__INIT;

	port.device = (char *)"net_null0,no-rx=1";
	port.mac = (char *)"02:00:00:00:00:01";
	port.spread = (Sluice__V1__PortSpread)17;
	assert_true(put("Port", "in", &port) != 0);
	assert_non_null(strstr(fault_of_put.text, "spread: 17 is unknown; RSS, ATOMIC"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_device_that_there_is_not_is_told_of_and_the_port_goes_on_as_it_was),
		cmocka_unit_test(all_frames_of_a_flow_arrive_in_order_and_both_workers_have_some),
		cmocka_unit_test(frames_of_one_flow_go_to_both_workers_where_order_is_no_matter),
		cmocka_unit_test(directed_frames_go_to_the_next_worker),
		cmocka_unit_test(frames_beyond_the_device_s_room_are_named_drops_and_the_rest_arrives),
		cmocka_unit_test(a_port_that_is_spread_by_queues_again_gives_nothing_to_the_device),
		cmocka_unit_test(a_way_of_spreading_that_there_is_not_is_refused),
		cmocka_unit_test(frames_that_sleeping_workers_have_not_taken_arrive_before_their_port_goes),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
