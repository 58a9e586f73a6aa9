// SPDX-License-Identifier: Apache-2.0
// Frames that any worker may work on and that leave in the order of their arrival, by DPDK's own event_sw: two workers are walked by
// hand, so that one of them can be as late with its part as a test wants. `work` reports the result of a port's frames; what
// leaves by the port `out` is noted where frames go before its device.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>

#include "core/dropped.h"
#include "core/loop.h"
#include "core/punt.h"
#include "core/start.h"
#include "core/worker.h"
#include "dispatch/dispatch.h"
#include "dispatch/event.h"
#include "ether/circuit.h"
#include "port.pb-c.h"

enum { FLOWS = 16, FRAMES_MAX = 16384, FLOW_AT = 34, NUMBER_AT = 42, COPY_AT = 44 };

static struct fault f;
static struct left {
	uint16_t flow, number;
	uint8_t copy;
	unsigned worker; // that worked on it
} left[FRAMES_MAX];
static unsigned left_count, worked[2];

// The result of a frame.
static enum { SEND, DROP_EVERY_THIRD, SEND_TWICE } becomes;

static uint16_t
port_number(const char *name)
{
	return port_of(object_find(&port_kind, name))->id;
}

static uint16_t
work(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);

		worked[worker_self()->index]++;
		frame[COPY_AT + 1] = (uint8_t)worker_self()->index;
		m->port = port_number("out");
		if (becomes == DROP_EVERY_THIRD && frame[NUMBER_AT] % 3 == 0) {
			rte_pktmbuf_free(m);
			continue;
		}
		if (becomes == SEND_TWICE) {
			struct rte_mbuf *copy = rte_pktmbuf_copy(m, packet_pool, 0, UINT32_MAX);

			assert_non_null(copy);
			*packet_of(copy) = *packet_of(m);
			rte_pktmbuf_mtod(copy, uint8_t *)[COPY_AT] = 1;
			copy->port = m->port;
			rte_node_enqueue_x1(graph, node, tx_node.id, m);
			m = copy;
		}
		rte_node_enqueue_x1(graph, node, tx_node.id, m);
	}
	return count;
}

static uint16_t
note(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		const uint8_t *frame = rte_pktmbuf_mtod((struct rte_mbuf *)packets[i], const uint8_t *);
		struct left *to = &left[left_count++ % FRAMES_MAX];

		memcpy(&to->flow, frame + FLOW_AT, 2);
		memcpy(&to->number, frame + NUMBER_AT, 2);
		to->copy = frame[COPY_AT];
		to->worker = frame[COPY_AT + 1];
		rte_pktmbuf_free(packets[i]);
	}
	return count;
}

static struct node note_node = {.name = "note", .process = note};
NODE_REGISTER(note_node)

static int
put_port(const char *name, const char *device, Sluice__V1__PortSpread by)
{
	Sluice__V1__Port spec = SLUICE__V1__PORT__INIT;
	uint8_t packed[128];

	spec.device = (char *)device;
	spec.spread = by;
	return object_put("Port", name, packed, protobuf_c_message_pack(&spec.base, packed), &f);
}

static void
spread(Sluice__V1__PortSpread by)
{
	if (put_port("in", "net_null0,no-rx=1", by))
		fail_msg("%s", f.text);
	left_count = worked[0] = worked[1] = 0;
}

static int
start(void **state)
{
	char prefix[32];
	struct options o = {.workers = 2, .buffers = 16384, .log_level = "error", .prefix = prefix, .memory = 192};

	snprintf(prefix, sizeof(prefix), "order-test-%d", getpid());
	ether_input_node.process = work;
	node_edge(&ether_input_node, &tx_node);
	if (core_start(&o) || put_port("in", "net_null0,no-rx=1", SLUICE__V1__PORT_SPREAD__RSS) ||
		put_port("out", "net_null1,no-rx=1", SLUICE__V1__PORT_SPREAD__RSS) ||
		put_port("other", "net_null2,no-rx=1", SLUICE__V1__PORT_SPREAD__RSS))
		return -1;
	for (unsigned i = 0; i < 20; i++)
		loop_once(1);
	port_send_before(port_of(object_find(&port_kind, "out")), &note_node);
	return 0;
}

static int
stop(void **state)
{
	dispatch_close();
	return rte_eal_cleanup();
}

static void
walk(unsigned worker)
{
	RTE_PER_LCORE(worker) = &workers[worker];
	rte_graph_walk(workers[worker].graph);
	RTE_PER_LCORE(worker) = &workers[2];
}

static void
walk_both(unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++) {
		walk(0);
		walk(1);
	}
}

// A frame by this port on its way to the worker that receives, which is that of an even flow the first and of an odd the second.
static void
frame_by(const char *port, uint16_t flow, uint16_t number)
{
	uint8_t bytes[60] = {
		2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46, [22] = 64, [23] = 17, 10, 0, 0, 1};
	struct rte_mbuf *m = packet_new();

	assert_non_null(m);
	memcpy(bytes + FLOW_AT, &flow, 2);
	memcpy(bytes + NUMBER_AT, &number, 2);
	memcpy(rte_pktmbuf_append(m, sizeof(bytes)), bytes, sizeof(bytes));
	packet_of(m)->port = m->port = port_number(port);
	node_edge(&inject_node, node_by_id(ports[m->port].entry ? ports[m->port].entry : node_arrival));
	inject(m, node_by_id(ports[m->port].entry ? ports[m->port].entry : node_arrival));
}

static void
frame(uint16_t flow, uint16_t number)
{
	frame_by("in", flow, number);
}

// All frames of these flows left, in order, except for dropped ones.
static void
assert_in_order(unsigned flows, unsigned each)
{
	uint16_t next[FLOWS] = {0};

	for (unsigned i = 0; i < left_count; i++) {
		struct left *one = &left[i];

		if (becomes == DROP_EVERY_THIRD && next[one->flow] % 256 % 3 == 0)
			next[one->flow]++;
		if (becomes == SEND_TWICE && one->copy) {
			assert_int_equal(one->number + 1, next[one->flow]);
			continue;
		}
		assert_int_equal(one->number, next[one->flow]++);
	}
	for (unsigned flow = 0; flow < flows; flow++)
		assert_in_range(next[flow], each - 1, each);
}

static void
a_flow_that_both_workers_work_on_leaves_in_order_however_late_one_of_them_is(void **state)
{
	becomes = SEND;
	spread(SLUICE__V1__PORT_SPREAD__ORDERED);
	for (uint16_t number = 0; number < 200; number++)
		frame(0, number);
	// The second takes a part of them, has long to work on it, and does not come back.
	for (unsigned i = 0; i < 20 && worked[1] == 0; i++) {
		walk(0);
		walk(1);
	}
	assert_true(worked[1] > 0);
	for (unsigned i = 0; i < 200; i++)
		walk(0);
	assert_true(worked[0] > 0);
	assert_true(left_count < 200);
	for (unsigned i = 1; i < left_count; i++)
		assert_int_equal(left[i].number, left[i - 1].number + 1);
	walk_both(50);
	assert_int_equal(left_count, 200);
	assert_in_order(1, 200);
	assert_true(worked[0] > 10 && worked[1] > 10);
}

static void
many_flows_leave_in_order_with_one_worker_ten_times_as_slow(void **state)
{
	becomes = SEND;
	spread(SLUICE__V1__PORT_SPREAD__ORDERED);
	for (uint16_t number = 0; number < 100; number++) {
		for (uint16_t flow = 0; flow < FLOWS; flow++)
			frame(flow, number);
		for (unsigned i = 0; i < 10; i++)
			walk(0);
		walk(1);
	}
	walk_both(100);
	assert_int_equal(left_count, FLOWS * 100);
	assert_in_order(FLOWS, 100);
	assert_true(worked[0] > 0 && worked[1] > 0);
}

static void
a_dropped_frame_does_not_delay_others(void **state)
{
	becomes = DROP_EVERY_THIRD;
	spread(SLUICE__V1__PORT_SPREAD__ORDERED);
	for (uint16_t number = 0; number < 100; number++)
		for (uint16_t flow = 0; flow < FLOWS; flow++)
			frame(flow, number);
	walk_both(200);
	assert_int_equal(left_count, FLOWS * 66);
	assert_in_order(FLOWS, 100);
}

static void
two_frames_of_one_leave_behind_each_other(void **state)
{
	becomes = SEND_TWICE;
	spread(SLUICE__V1__PORT_SPREAD__ORDERED);
	for (uint16_t number = 0; number < 50; number++) {
		for (uint16_t flow = 0; flow < FLOWS; flow++)
			frame(flow, number);
		walk(number % 2);
	}
	walk_both(200);
	assert_int_equal(left_count, FLOWS * 50 * 2);
	for (unsigned i = 0; i < left_count; i++)
		if (left[i].copy)
			assert_true(i > 0);
	assert_in_order(FLOWS, 50);
}

static void
frames_that_a_stuck_worker_keeps_from_leaving_fill_the_device_and_the_rest_is_dropped_by_name(void **state)
{
	uint64_t before = dropped("dispatch-full");
	unsigned sent_frames = 0;
	bool stuck = false;

	becomes = SEND;
	spread(SLUICE__V1__PORT_SPREAD__ORDERED);
	for (unsigned round = 0; round < 400; round++) {
		// An even flow alone, which the first worker receives.
		for (unsigned i = 0; i < 32; i++)
			frame(0, (uint16_t)sent_frames++);
		walk(0);
		if (!stuck) {
			walk(1);
			stuck = worked[1] > 0;
		}
	}
	assert_true(dropped("dispatch-full") > before);
	walk_both(400);
	assert_int_equal(left_count + dropped("dispatch-full") - before, sent_frames);
	for (unsigned i = 1; i < left_count; i++)
		assert_true(left[i].number > left[i - 1].number);
	// And it goes on.
	left_count = 0;
	for (uint16_t number = 0; number < 10; number++)
		frame(0, number);
	walk_both(50);
	assert_in_order(1, 10);
}

static void
ports_are_spread_in_different_ways_at_once(void **state)
{
	becomes = SEND;
	spread(SLUICE__V1__PORT_SPREAD__ORDERED);
	assert_int_equal(put_port("other", "net_null2,no-rx=1", SLUICE__V1__PORT_SPREAD__ATOMIC), 0);
	for (uint16_t number = 0; number < 100; number++) {
		for (uint16_t flow = 0; flow < FLOWS; flow++)
			frame_by(flow < FLOWS / 2 ? "in" : "other", flow, number);
		walk(number % 3 == 0);
	}
	walk_both(200);
	assert_int_equal(left_count, FLOWS * 100);
	assert_in_order(FLOWS, 100);
	// By two devices: the one that cannot order is used for flows.
	assert_false(dispatch_devices[0]->orders);
	assert_true(dispatch_devices[1]->orders);
	assert_int_equal(put_port("other", "net_null2,no-rx=1", SLUICE__V1__PORT_SPREAD__RSS), 0);
}

static void
the_way_of_spreading_changes_under_traffic_and_every_frame_leaves(void **state)
{
	static const Sluice__V1__PortSpread ways[] = {SLUICE__V1__PORT_SPREAD__ORDERED,
		SLUICE__V1__PORT_SPREAD__UNORDERED, SLUICE__V1__PORT_SPREAD__RSS, SLUICE__V1__PORT_SPREAD__ORDERED,
		SLUICE__V1__PORT_SPREAD__DIRECTED, SLUICE__V1__PORT_SPREAD__ATOMIC};
	unsigned total = 0;

	becomes = SEND;
	for (unsigned way = 0; way < RTE_DIM(ways); way++) {
		unsigned so_far = left_count;

		spread(ways[way]);
		left_count = way == 0 ? 0 : so_far;
		for (uint16_t number = 0; number < 20; number++, total += FLOWS) {
			for (uint16_t flow = 0; flow < FLOWS; flow++)
				frame(flow, number);
			walk(number % 2);
		}
	}
	walk_both(300);
	assert_int_equal(left_count, total);
}

static void
a_port_that_goes_leaves_nothing_behind_in_the_device(void **state)
{
	becomes = SEND;
	spread(SLUICE__V1__PORT_SPREAD__ORDERED);
	for (uint16_t number = 0; number < 100; number++)
		frame(2, number);
	walk_both(100);
	assert_int_equal(object_delete("Port", "in", &f), 0);
	assert_int_equal(put_port("in", "net_null0,no-rx=1", SLUICE__V1__PORT_SPREAD__ORDERED), 0);
	left_count = 0;
	for (uint16_t number = 0; number < 10; number++)
		frame(2, number);
	walk_both(50);
	assert_int_equal(left_count, 10);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flow_that_both_workers_work_on_leaves_in_order_however_late_one_of_them_is),
		cmocka_unit_test(many_flows_leave_in_order_with_one_worker_ten_times_as_slow),
		cmocka_unit_test(a_dropped_frame_does_not_delay_others),
		cmocka_unit_test(two_frames_of_one_leave_behind_each_other),
		cmocka_unit_test(
			frames_that_a_stuck_worker_keeps_from_leaving_fill_the_device_and_the_rest_is_dropped_by_name),
		cmocka_unit_test(ports_are_spread_in_different_ways_at_once),
		cmocka_unit_test(the_way_of_spreading_changes_under_traffic_and_every_frame_leaves),
		cmocka_unit_test(a_port_that_goes_leaves_nothing_behind_in_the_device),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
