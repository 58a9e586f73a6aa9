// SPDX-License-Identifier: Apache-2.0
// How much DHCP reaches the service.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/punt_watch.h"
#include "port/all_nodes.h"

enum { BUFFERS = 4096, AT_ONCE = BUFFERS / 16, SUBSCRIBERS = 5000, MESSAGES = 2, FLOOD = 1000 };

static const char *const names[] = {"a"};
static unsigned watched;

static int
start(void **state)
{
	return all_nodes_start(1, BUFFERS, names, RTE_DIM(names));
}

static void
watch(struct rte_mbuf *m, const struct punt *reason)
{
	watched++;
	rte_pktmbuf_free(m);
}

// One message of each of so many sessions.
static void
receive_messages(const struct punt *reason, uint32_t first, unsigned count, unsigned step)
{
	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packet_new();

		rte_pktmbuf_append(m, 60);
		packet_of(m)->session = first + i * step;
		packet_of(m)->direction = UP;
		packet_punt(packet_of(m), reason);
		inject(m, &punt_node);
		if (i % AT_ONCE == AT_ONCE - 1)
			walk();
	}
	walk();
}

static void
check_limits(const char *name)
{
	const struct punt *reason = punt_by_name(name);
	uint64_t limited = dropped("punt-rate-limited");

	assert_non_null(reason);
	watched = 0;
	for (unsigned i = 0; i < MESSAGES; i++)
		receive_messages(reason, 0, SUBSCRIBERS, 1);
	assert_int_equal(dropped("punt-rate-limited"), limited);
	assert_int_equal(watched, MESSAGES * SUBSCRIBERS);

	watched = 0;
	receive_messages(reason, SUBSCRIBERS, FLOOD, 0);
	assert_in_range(watched, 1, FLOOD / 10);
	assert_int_equal(dropped("punt-rate-limited"), limited + FLOOD - watched);
}

static void
the_dhcp_of_thousands_of_subscribers_that_dial_in_reaches_the_service_and_a_flood_of_one_does_not(void **state)
{
	node_edge(&inject_node, &punt_node);
	punt_watch(watch);
	check_limits("dhcp4");
	check_limits("dhcp6");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			the_dhcp_of_thousands_of_subscribers_that_dial_in_reaches_the_service_and_a_flood_of_one_does_not),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
