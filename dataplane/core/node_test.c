// SPDX-License-Identifier: Apache-2.0
// The cost of sources while nothing arrives.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>

#include "core/node_check.h"
#include "core/trace.h"
#include "port/all_nodes.h"

enum { EVERY = 10, CALLS = 100 * EVERY };

static unsigned calls;
DROP(seen, "test-seen", "A packet of the test's source.")

// A packet with every tenth call.
static uint16_t
seldom_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct rte_mbuf *m;

	if (++calls % EVERY)
		return 0;
	m = packet_new();
	rte_node_enqueue_x1(graph, node, packet_drop(packet_of(m), &seen), m);
	return 1;
}

static struct node seldom_node = {.name = "test-seldom", .process = seldom_process, .source = true};
NODE_REGISTER(seldom_node)

// Sends packets to another node than it declares, once it is ready.
static bool wrong;

static uint16_t
wrong_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct rte_mbuf *m;

	if (!wrong)
		return 0;
	m = packet_new();
	rte_node_enqueue_x1(graph, node, tx_node.id, m);
	return 1;
}

static struct node wrong_node = {
	.name = "test-wrong", .process = wrong_process, .source = true, .edges = NODE_EDGES(&punt_node)};
NODE_REGISTER(wrong_node)

static int
start(void **state)
{
	return all_nodes_start(1, 1024, NULL, 0);
}

static struct rte_node *
graph_node(const char *name)
{
	return rte_graph_node_get_by_name(workers[0].graph->name, name);
}

static void
calls_of_a_source_that_bring_no_packet_are_counted_apart(void **state)
{
	const struct rte_node *node = graph_node("test-seldom");
	struct idle_polls before, after;
	uint64_t cycles;

	// The next call after one that has a packet counts it.
	walk_workers(EVERY - calls % EVERY + 1);
	before = node_idle_polls(node);
	cycles = node->total_cycles;
	walk_workers(CALLS);
	after = node_idle_polls(node);
	assert_int_equal(after.calls - before.calls, CALLS - CALLS / EVERY);
	assert_in_range(after.cycles - before.cycles, 1, node->total_cycles - cycles - 1);
}

static void
a_node_that_does_not_poll_has_no_idle_calls(void **state)
{
	assert_int_equal(node_idle_polls(graph_node("drop")).calls, 0);
}

static void
a_worker_that_looks_for_watches_goes_on_counting(void **state)
{
	const struct rte_node *node = graph_node("test-seldom");
	uint64_t before;

	trace_change(&workers[0]);
	walk_workers(EVERY - calls % EVERY + 1);
	before = node_idle_polls(node).calls;
	walk_workers(CALLS);
	assert_int_equal(node_idle_polls(node).calls - before, CALLS - CALLS / EVERY);
}

static void
a_node_that_sends_packets_where_it_does_not_declare_ends_a_test(void **state)
{
	char text[512] = "";
	int ends[2], status;
	pid_t child;

	assert_true(node_check_allows(&wrong_node, &punt_node));
	assert_true(node_check_allows(&wrong_node, &drop_node));
	assert_false(node_check_allows(&wrong_node, &tx_node));
	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		signal(SIGABRT, SIG_DFL);
		wrong = true;
		walk_workers(1);
		_exit(0);
	}
	close(ends[1]);
	assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_non_null(strstr(text, "node test-wrong sent a packet to tx, which it does not declare"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_of_a_source_that_bring_no_packet_are_counted_apart),
		cmocka_unit_test(a_node_that_does_not_poll_has_no_idle_calls),
		cmocka_unit_test(a_worker_that_looks_for_watches_goes_on_counting),
		cmocka_unit_test(a_node_that_sends_packets_where_it_does_not_declare_ends_a_test),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
