// SPDX-License-Identifier: Apache-2.0
// The sending node and the hand-over between workers, with the real graph of each of two workers and real devices; the workers
// take their turns in one thread, so that a moment between two of their rounds can be looked at.
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
#include <rte_ethdev.h>

#include "core/dropped.h"
#include "core/loop.h"
#include "core/punt.h"
#include "core/start.h"
#include "core/worker.h"
#include "port.pb-c.h"
#include "port/device.h"
#include "port/handover.h"
#include "port/port.h"

enum { WORKERS = 2 };

static struct fault f;
static char folder[] = "/tmp/tx-test-XXXXXX", capture[64];
static struct port *one, *null; // with one transmit queue, and with one for each worker

static struct port *
put_port(const char *name, const char *device)
{
	Sluice__V1__Port spec = SLUICE__V1__PORT__INIT;
	uint8_t packed[128];
	size_t length;

	spec.device = (char *)device;
	spec.rx_queues = 1;
	length = protobuf_c_message_pack(&spec.base, packed);
	if (object_put("Port", name, packed, length, &f)) {
		fprintf(stderr, "%s: %s\n", name, f.text);
		return NULL;
	}
	return port_of(object_find(&port_kind, name));
}

static uint64_t
sent_by(const struct port *port)
{
	struct rte_eth_stats stats;

	assert_int_equal(rte_eth_stats_get(port->device, &stats), 0);
	return stats.opackets;
}

// A worker's node `tx` with so many frames for a port.
static void
send_as(unsigned worker, const struct port *port, unsigned count)
{
	struct rte_graph *graph = workers[worker].graph;
	struct rte_node *node = rte_graph_node_get_by_name(graph->name, tx_node.name);

	RTE_PER_LCORE(worker) = &workers[worker];
	for (unsigned done = 0, n; done < count; done += n) {
		struct rte_mbuf *packets[64];

		n = RTE_MIN(count - done, (unsigned)RTE_DIM(packets));
		for (unsigned i = 0; i < n; i++) {
			packets[i] = packet_new();
			assert_non_null(packets[i]);
			memset(rte_pktmbuf_append(packets[i], 60), 0x02, 60);
			packets[i]->port = port->id;
		}
		tx_node.process(graph, node, (void **)packets, (uint16_t)n);
		// The drop node has its turn; so have the worker's own sources.
		rte_graph_walk(graph);
	}
	RTE_PER_LCORE(worker) = &workers[WORKERS];
}

static void
walk(unsigned worker)
{
	RTE_PER_LCORE(worker) = &workers[worker];
	rte_graph_walk(workers[worker].graph);
	RTE_PER_LCORE(worker) = &workers[WORKERS];
}

static int
start(void **state)
{
	char prefix[32], device[96];
	struct options o = {.workers = WORKERS, .buffers = 8192, .log_level = "error", .prefix = prefix, .memory = 128};

	snprintf(prefix, sizeof(prefix), "tx-test-%d", getpid());
	if (core_start(&o))
		return -1;
	if (!mkdtemp(folder))
		return -1;
	device_use_folder(folder);
	snprintf(capture, sizeof(capture), "%s/sent.pcap", folder);
	snprintf(device, sizeof(device), "net_pcap0,tx_pcap=%s", capture);
	one = put_port("one", device);
	null = put_port("null", "net_null0,no-rx=1");
	return one && null ? 0 : -1;
}

static int
stop(void **state)
{
	port_stop_all();
	unlink(capture);
	rmdir(folder);
	return rte_eal_cleanup();
}

static void
a_worker_with_a_transmit_queue_sends_at_once(void **state)
{
	assert_int_equal(one->tx_queues, 1);
	assert_int_equal(null->tx_queues, WORKERS);
	send_as(0, one, 5);
	assert_int_equal(sent_by(one), 5);
	send_as(1, null, 5);
	assert_int_equal(sent_by(null), 5);
}

static void
a_worker_without_one_leaves_it_to_the_owner(void **state)
{
	uint64_t before = sent_by(one);

	send_as(1, one, 5);
	assert_int_equal(sent_by(one), before);
	walk(1);
	assert_int_equal(sent_by(one), before);
	walk(0);
	assert_int_equal(sent_by(one), before + 5);
}

static void
a_full_ring_between_workers_is_a_drop_with_a_name(void **state)
{
	uint64_t before = dropped("tx-queue-full"), sent = sent_by(one), lost;

	send_as(1, one, 3000);
	lost = dropped("tx-queue-full") - before;
	assert_in_range(lost, 1, 2999);
	for (unsigned i = 0; i < 64; i++)
		walk(0);
	assert_int_equal(sent_by(one) - sent + dropped("tx-queue-full") - before, 3000);
}

static void
a_packet_for_a_port_without_link_is_a_drop_with_a_name(void **state)
{
	uint64_t before = dropped("tx-link-down");

	null->up = false;
	send_as(0, null, 3);
	null->up = true;
	one->up = false;
	send_as(1, one, 4);
	one->up = true;
	assert_int_equal(dropped("tx-link-down") - before, 7);
}

static void
packets_that_wait_when_their_port_goes_are_drops_with_a_name(void **state)
{
	unsigned available = rte_mempool_avail_count(packet_pool);
	uint64_t before = dropped("tx-port-gone");
	struct port gone;

	send_as(1, one, 6);
	gone = *one;
	assert_int_equal(object_delete("Port", "one", &f), 0);
	assert_int_equal(dropped("tx-port-gone") - before, 6);
	// And packets that a worker still holds for it.
	send_as(0, &gone, 2);
	send_as(1, &gone, 3);
	assert_int_equal(dropped("tx-port-gone") - before, 11);
	assert_true(rte_mempool_avail_count(packet_pool) >= available);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_worker_with_a_transmit_queue_sends_at_once),
		cmocka_unit_test(a_worker_without_one_leaves_it_to_the_owner),
		cmocka_unit_test(a_full_ring_between_workers_is_a_drop_with_a_name),
		cmocka_unit_test(a_packet_for_a_port_without_link_is_a_drop_with_a_name),
		cmocka_unit_test(packets_that_wait_when_their_port_goes_are_drops_with_a_name),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
