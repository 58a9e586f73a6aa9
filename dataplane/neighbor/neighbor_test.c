// SPDX-License-Identifier: Apache-2.0
// The table of neighbours while its entries come and go.
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/loop.h"
#include "core/punt.h"
#include "ether/interface.h"
#include "fib/three_ports.h"
#include "neighbor/neighbor_table.h"
#include "port/port.h"

// A packet for it, as far as the workers: the main thread does nothing meanwhile.
static void
use(const char *address)
{
	struct packet4 p = udp4("192.0.2.9", address, 64, 60);
	struct rte_mbuf *m = packet_new();
	const struct port *in = port_of(object_find(&port_kind, "in"));

	memcpy(rte_pktmbuf_append(m, ETHER + 60), &p, ETHER + 60);
	packet_of(m)->port = m->port = in->id;
	node_edge(&inject_node, node_by_id(node_arrival));
	inject(m, node_by_id(node_arrival));
	sent_count = 0;
	walk_workers();
	assert_int_equal(sent_count, 1);
}

static struct neighbor *
make_stale(const char *interface, const char *address)
{
	const struct rte_ether_addr mac = {{2, 0, 0, 0, 5, 1}};
	uint8_t bytes[16] = {0};
	struct neighbor *n;

	inet_pton(AF_INET, address, bytes);
	n = neighbor_get(interface_of(object_find(&interface_kind, interface)), 4, bytes);
	assert_non_null(n);
	n->gleaned = true;
	resolver_set(&neighbor_resolver, &n->resolving, NEIGHBOR_STALE, &mac);
	return n;
}

static unsigned
listed(enum neighbor_state state)
{
	struct resolving *r;
	unsigned count = 0;

	TAILQ_FOREACH(r, &neighbor_resolver.by_state[state], by_state)
	count++;
	return count;
}

// A worker marks it as it is taken out of the table, or just after.
static void
a_stale_neighbour_that_was_used_as_it_was_forgotten_is_not_asked(void **state)
{
	struct neighbor *stays, *goes;

	assert_int_equal(put_interface("other", "other", "", "100.64.1.1/24", ""), 0);
	stays = make_stale("out", "198.51.100.50");
	goes = make_stale("other", "100.64.1.50");
	use("198.51.100.50");
	use("100.64.1.50");
	assert_int_equal(object_delete("Interface", "other", &f), 0);
	// Both marks are looked at together.
	assert_true(stays < goes);
	while (stays->resolving.entry.state == NEIGHBOR_STALE)
		loop_once(1);
	assert_int_equal(stays->resolving.entry.state, NEIGHBOR_DELAY);
	assert_int_equal(goes->resolving.entry.state, NEIGHBOR_STALE);
	assert_int_equal(listed(NEIGHBOR_DELAY), 1);
	assert_int_equal(neighbor_resolver.counts[NEIGHBOR_DELAY], 1);
	assert_int_equal(listed(NEIGHBOR_STALE), neighbor_resolver.counts[NEIGHBOR_STALE]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stale_neighbour_that_was_used_as_it_was_forgotten_is_not_asked),
	};

	return cmocka_run_group_tests(tests, three_ports_start, three_ports_stop);
}
