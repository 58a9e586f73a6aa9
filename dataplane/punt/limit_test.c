// SPDX-License-Identifier: Apache-2.0
// PuntLimits over the whole graph.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/punt_watch.h"
#include "port/all_nodes.h"
#include "punt.pb-c.h"
#include "server/object.h"

enum { MANY = 400 };

static const char *const names[] = {"a"};
static unsigned handled;

static void
handle(struct rte_mbuf *m)
{
	handled++;
	rte_pktmbuf_free(m);
}

PUNT(punt_some, "test-some", 40, handle)
PUNT_SESSION(punt_other, "test-other", 40, 0, 2, handle)

static int
start(void **state)
{
	return all_nodes_start(1, 4096, names, RTE_DIM(names));
}

// So many packets come, each from a source of its own or all from one session; returns how many of them reach the main thread.
static unsigned
punted(const struct punt *reason, uint32_t session, unsigned count)
{
	static uint16_t vlan;

	handled = 0;
	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packet_new();
		struct packet *p = packet_of(m);

		p->outer_vlan = vlan = (uint16_t)((vlan + 1) % 4096);
		p->session = session;
		p->direction = UP;
		rte_pktmbuf_append(m, 60);
		packet_punt(p, reason);
		node_edge(&inject_node, &punt_node);
		inject(m, &punt_node);
	}
	// A walk takes a burst, and a turn of the loop as many.
	for (unsigned i = 0; i < count / BURST + 1; i++)
		walk();
	return handled;
}

static int
limit(const char *name, const char *reason, uint32_t rate, uint32_t session)
{
	Sluice__V1__PuntLimit spec = SLUICE__V1__PUNT_LIMIT__INIT;

	spec.reason = (char *)reason;
	spec.rate = rate;
	spec.rate_per_session = session;
	return put("PuntLimit", name, &spec);
}

// A second of the rate comes back in a second, so that a slow test may see some more than the limit.
static void
a_reason_has_the_limits_of_its_object_and_its_own_after_that(void **state)
{
	assert_int_equal(limit("some", "test-some", 1000000, 0), 0);
	assert_int_equal(punted(&punt_some, NO_SESSION, MANY), MANY);
	assert_int_equal(limit("some", "test-some", 8, 0), 0);
	assert_in_range(punted(&punt_some, NO_SESSION, MANY), 0, MANY / 2);
	assert_int_equal(object_delete("PuntLimit", "some", &fault_of_put), 0);
	assert_int_equal(punt_some.limits.rate, 40);
	assert_int_equal(limit("some", "test-some", 0, 0), 0);
	assert_int_equal(punt_some.limits.rate, 40);
	assert_int_equal(object_delete("PuntLimit", "some", &fault_of_put), 0);
}

static void
a_session_has_the_limit_of_sessions(void **state)
{
	assert_int_equal(limit("other", "test-other", 1000000, 100000), 0);
	assert_int_equal(punted(&punt_other, 7, 200), 200);
	assert_int_equal(limit("other", "test-other", 1000000, 0), 0);
	assert_int_equal(punt_other.limits.session, 2);
	assert_in_range(punted(&punt_other, 8, 200), 2, 100);
	assert_int_equal(object_delete("PuntLimit", "other", &fault_of_put), 0);
}

static void
packets_are_counted_by_reason(void **state)
{
	struct punt_counts before = punt_counts(punt_some.id), other = punt_counts(punt_other.id);
	unsigned passed = punted(&punt_some, NO_SESSION, MANY);

	assert_int_equal(punt_counts(punt_some.id).punted, before.punted + passed);
	assert_int_equal(punt_counts(punt_some.id).limited, before.limited + MANY - passed);
	assert_int_equal(punt_counts(punt_other.id).punted, other.punted);
	assert_int_equal(punt_counts(punt_other.id).limited, other.limited);
}

static void
mistakes_are_explained(void **state)
{
	assert_int_equal(limit("wrong", "no-such", 10, 0), -EINVAL);
	assert_non_null(
		strstr(fault_of_put.text, "PuntLimit wrong, reason: this data plane has no reason \"no-such\""));
	assert_int_equal(limit("one", "test-some", 10, 0), 0);
	assert_int_equal(limit("two", "test-some", 10, 0), -EEXIST);
	assert_non_null(strstr(fault_of_put.text, "PuntLimit one limits \"test-some\" already"));
	assert_int_equal(limit("one", "test-other", 10, 0), -EINVAL);
	assert_non_null(strstr(fault_of_put.text, "cannot be changed"));
	assert_int_equal(punt_some.limits.rate, 10);
	assert_int_equal(object_delete("PuntLimit", "one", &fault_of_put), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reason_has_the_limits_of_its_object_and_its_own_after_that),
		cmocka_unit_test(a_session_has_the_limit_of_sessions),
		cmocka_unit_test(packets_are_counted_by_reason),
		cmocka_unit_test(mistakes_are_explained),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
