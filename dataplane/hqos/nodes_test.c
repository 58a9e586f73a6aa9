// SPDX-License-Identifier: Apache-2.0
// The nodes hqos-enqueue and hqos-dequeue by themselves: the queues of packets, the worker that puts them there, and
// refused packets. Time is the real one: a packet that must wait does so for seconds, unless the test releases it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <rte_cycles.h>

#include "core/fair.h"
#include "core/one_node.h"
#include "core/start.h"
#include "core/worker.h"
#include "hqos/hqos.h"
#include "hqos/nodes.h"
#include "hqos/shaped.h"

enum { PORT = 7, OTHER_PORT = 8, BARE_PORT = 9 };  // with a scheduler of worker 0, with one of worker 1, with none
enum { PACKETS = 1024, BYTES = 1000, RING = 512 }; // a ring has room for one less
enum { SUBSCRIBERS = 16, GROUPS = 4, SESSION = 1, SUBSCRIBER = 5, QUEUE = PORT << QUEUE_PORT_SHIFT | SUBSCRIBER };
enum { PROFILE = 1, VOICE = 0, DATA = 1 }; // classes as the scheduler numbers them

static const uint64_t HZ = 1000000000;

struct buffer {
	struct rte_mbuf m;
	struct packet p;
} __attribute__((aligned(64)));

static struct buffer *buffers;
static struct rte_mbuf *packets[PACKETS];
static uint16_t edges[PACKETS];
static struct shaped shaped, other;
static struct hqos_group_profile open_group = {.quantum = 1 << 16};
static struct hqos_group_profile *group_profiles[GROUPS] = {&open_group, &open_group, &open_group, &open_group};
static struct object scheduler_object = {.name = (char *)"pop"}, port_object = {.name = (char *)"access"},
		     group_object = {.name = (char *)"olt"},
		     profile_object = {.name = (char *)"home", .state = (void *)(uintptr_t)PROFILE};
static struct qos_group group = {.shaped = &shaped, .number = FIRST_GROUP};
static Sluice__V1__QosClass classes[2];
static const struct node *dequeue_node;
static uint16_t to_device; // hqos-tx

static int
make_tables(void **state)
{
	(void)state;
	if (node_start() || qos_profile_kind.start())
		return -1;
	dequeue_node = node_by_name("hqos-dequeue");
	to_device = node_by_name("hqos-tx")->id;
	worker_count = 2;
	for (unsigned w = 0; w <= worker_count; w++)
		workers[w].index = w;
	group_object.state = &group;
	ports[PORT].object = &port_object;
	ports[PORT].id = PORT;
	ports[OTHER_PORT].id = OTHER_PORT;
	return 0;
}

static void
put_profile(void)
{
	static char *names[] = {"data", "voice"};
	Sluice__V1__QosProfile spec = SLUICE__V1__QOS_PROFILE__INIT;
	Sluice__V1__QosClass *pointers[] = {&classes[0], &classes[1]};
	struct qos_profile *profile = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(*profile), 64));
	struct fault f;

	for (unsigned i = 0; i < 2; i++)
		classes[i].name = names[i];
	classes[0].priority = 1;
	spec.classes = pointers;
	spec.n_classes = 2;
	if (qos_profile_parse("home", &spec, HZ, profile, &f))
		fail_msg("%s", f.text);
	free(qos_profiles[PROFILE]);
	qos_profiles[PROFILE] = profile;
}

static void
open_scheduler(struct shaped *s, unsigned port, unsigned owner)
{
	uint64_t now = rte_rdtsc();

	*s = (struct shaped){.object = &scheduler_object, .port = &ports[port], .owner = owner};
	s->changed = s->unsettled = NO_ID;
	s->rate = calloc(1, sizeof(*s->rate));
	s->scheduler = hqos_new(SUBSCRIBERS, GROUPS, PACKETS, (struct hqos_profile *const *)qos_profiles,
		group_profiles, buffers, buffers + PACKETS, now);
	for (unsigned w = 0; w < worker_count; w++)
		if (w != owner) {
			size_t size = RTE_ALIGN_CEIL((size_t)rte_ring_get_memsize(RING), RTE_CACHE_LINE_SIZE);

			s->rings[w] = aligned_alloc(RTE_CACHE_LINE_SIZE, size);
			assert_int_equal(rte_ring_init(s->rings[w], "test", RING, RING_F_SP_ENQ | RING_F_SC_DEQ), 0);
		}
	assert_int_equal(slab_create(&s->subscribers, 1, SUBSCRIBERS), 0);
	for (unsigned i = 0; i <= SUBSCRIBER; i++)
		assert_int_equal(slab_take(&s->subscribers), i);
	hqos_set_group(s->scheduler, OWN_GROUP, OWN_GROUP, now);
	hqos_set_group(s->scheduler, OTHER_GROUP, OTHER_GROUP, now);
	hqos_set_subscriber(s->scheduler, OWN_SUBSCRIBER, OWN_GROUP, 0, now);
	hqos_set_subscriber(s->scheduler, OTHER_SUBSCRIBER, OTHER_GROUP, 0, now);
	shaped_ports[port] = shaped_owned[owner] = s;
}

static void
close_scheduler(struct shaped *s)
{
	shaped_ports[s->port->id] = NULL;
	shaped_owned[s->owner] = NULL;
	for (unsigned w = 0; w < worker_count; w++)
		free(s->rings[w]);
	hqos_free(s->scheduler);
	slab_destroy(&s->subscribers);
	free(s->rate);
}

static int
fresh(void **state)
{
	(void)state;
	sluice__v1__qos_class__init(&classes[0]);
	sluice__v1__qos_class__init(&classes[1]);
	put_profile();
	buffers = aligned_alloc(64, PACKETS * sizeof(*buffers));
	memset(buffers, 0, PACKETS * sizeof(*buffers));
	for (unsigned i = 0; i < PACKETS; i++) {
		packets[i] = &buffers[i].m;
		packets[i]->pkt_len = packets[i]->data_len = BYTES;
		packets[i]->port = PORT;
		packet_reset(packets[i]);
		packet_of(packets[i])->queue = QUEUE;
		packet_of(packets[i])->class = DATA;
	}
	open_scheduler(&shaped, PORT, 0);
	open_scheduler(&other, OTHER_PORT, 1);
	RTE_PER_LCORE(worker) = &workers[0];
	return 0;
}

static int
end(void **state)
{
	(void)state;
	close_scheduler(&shaped);
	close_scheduler(&other);
	free(qos_profiles[PROFILE]);
	qos_profiles[PROFILE] = NULL;
	free(buffers);
	return 0;
}

// A session's packets get a queue, as the main thread would have it; its owner has not looked at that yet.
static void
use(void)
{
	hqos_use(QUEUE, SESSION, DOWN, &group_object, &profile_object);
}

// Nothing leaves by the port until it is let go; or one packet of those that wait.
static void
hold(void)
{
	shaped.scheduler->peak = pace_of(800, 0, HZ);
	shaped.scheduler->paid = ticks_of(rte_rdtsc()) + pace_cost(&shaped.scheduler->peak, BYTES);
}

static void
let_one_go(void)
{
	shaped.scheduler->paid = ticks_of(rte_rdtsc());
}

static void
let_go(void)
{
	shaped.scheduler->peak = (struct pace){0};
	let_one_go();
}

static void
run_as(unsigned worker, const struct node *node, unsigned from, unsigned count)
{
	RTE_PER_LCORE(worker) = &workers[worker];
	one_node_run(node, packets + from, (uint16_t)count, edges + from);
	RTE_PER_LCORE(worker) = &workers[0];
}

// Packets that a worker takes out; edges[] maps the first so many packets.
static void
dequeue(unsigned count)
{
	run_as(0, dequeue_node, 0, count);
}

static void
assert_all(uint16_t edge, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		assert_int_equal(edges[i], edge);
}

static void
assert_dropped(const char *name, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++) {
		assert_int_equal(edges[i], drop_node.id);
		assert_string_equal(drop_by_id(packet_of(packets[i])->drop)->name, name);
	}
}

static uint64_t
sent_of(const struct shaped *s, uint32_t subscriber, unsigned class)
{
	return hqos_sent(&s->scheduler->subscribers[subscriber], class);
}

// Since the start: the group's packets, all of the same length.
static void
assert_counted(uint64_t sent, uint64_t lost)
{
	const struct hqos_group_counters *c = &shaped.scheduler->groups[FIRST_GROUP].counters;

	assert_int_equal(c->sent_packets, sent);
	assert_int_equal(c->sent_bytes, sent * BYTES);
	assert_int_equal(c->dropped_packets, lost);
	assert_int_equal(c->dropped_bytes, lost * BYTES);
}

static void
on_the_owner_packets_go_through_the_queue_of_their_session_s_class_and_may_be_sent_at_once(void **state)
{
	(void)state;
	use();
	dequeue(0);
	for (unsigned i = 0; i < 10; i++)
		packet_of(packets[i])->class = i < 4 ? VOICE : DATA;
	run_as(0, &hqos_enqueue_node, 0, 10);
	assert_all(to_device, 0, 10);
	assert_int_equal(sent_of(&shaped, SUBSCRIBER, VOICE), 4);
	assert_int_equal(sent_of(&shaped, SUBSCRIBER, DATA), 6);
	assert_int_equal(shaped.scheduler->counters.sent_bytes, 10 * BYTES);
	assert_counted(10, 0);
}

static void
packets_over_the_rate_wait_and_are_dequeued_by_class(void **state)
{
	(void)state;
	use();
	dequeue(0);
	hold();
	packet_of(packets[9])->class = VOICE;
	run_as(0, &hqos_enqueue_node, 0, 10);
	assert_all(UINT16_MAX, 0, 10);
	dequeue(10);
	assert_all(UINT16_MAX, 0, 10);
	assert_int_equal(shaped.scheduler->packets, 10);
	let_one_go();
	dequeue(10);
	assert_all(UINT16_MAX, 0, 9);
	assert_int_equal(edges[9], to_device);
	let_go();
	dequeue(9);
	assert_all(to_device, 0, 9);
	assert_int_equal(shaped.scheduler->packets, 0);
	assert_counted(10, 0);
}

static void
our_protocols_packets_have_a_queue_of_their_own_and_packets_without_a_session_another(void **state)
{
	static const struct {
		uint32_t queue, subscriber;
		uint8_t flags;
	} cases[] = {
		{NO_QUEUE, OTHER_SUBSCRIBER, 0},
		{NO_QUEUE, OWN_SUBSCRIBER, PACKET_OURS},
		// A subscriber's in a header of ours.
		{NO_QUEUE, OTHER_SUBSCRIBER, PACKET_OURS | PACKET_TUNNELLED},
		// A reply that any host can cause.
		{QUEUE_OF_REPLIES, OTHER_SUBSCRIBER, PACKET_OURS},
		{OTHER_PORT << QUEUE_PORT_SHIFT | SUBSCRIBER, OTHER_SUBSCRIBER, 0},
		{OTHER_PORT << QUEUE_PORT_SHIFT | SUBSCRIBER, OWN_SUBSCRIBER, PACKET_OURS},
		// A session's queue precedes the packet's origin.
		{QUEUE, SUBSCRIBER, PACKET_OURS},
	};

	(void)state;
	use();
	for (unsigned c = 0; c < RTE_DIM(cases); c++) {
		unsigned class = cases[c].subscriber == SUBSCRIBER ? DATA : 0;
		uint64_t before = sent_of(&shaped, cases[c].subscriber, class);

		packet_of(packets[c])->queue = cases[c].queue;
		packet_of(packets[c])->flags = cases[c].flags;
		run_as(0, &hqos_enqueue_node, c, 1);
		assert_int_equal(edges[c], to_device);
		assert_int_equal(sent_of(&shaped, cases[c].subscriber, class), before + 1);
	}
}

static void
another_worker_hands_packets_to_the_owner_and_overflow_of_its_ring_is_a_named_drop(void **state)
{
	enum { MANY = RING + 36 };
	uint64_t taken = workers[0].taken;

	(void)state;
	classes[0].queue_length = RING;
	put_profile();
	use();
	dequeue(0);
	run_as(1, &hqos_enqueue_node, 0, MANY);
	assert_all(UINT16_MAX, 0, RING - 1);
	assert_dropped("qos-handover-full", RING - 1, MANY);
	assert_int_equal(shaped.scheduler->packets, 0);
	// A burst in each round.
	dequeue(RING - 1);
	assert_all(to_device, 0, BURST);
	dequeue(RING - 1);
	assert_all(to_device, BURST, RING - 1);
	assert_int_equal(sent_of(&shaped, SUBSCRIBER, DATA), RING - 1);
	// The owner did something in this round, so it does not rest after it.
	assert_true(workers[0].taken > taken);
	// And there is room again.
	run_as(1, &hqos_enqueue_node, MANY, 1);
	assert_int_equal(edges[MANY], UINT16_MAX);
}

static void
a_port_whose_scheduler_has_gone_sends_at_once_and_each_of_a_burst_goes_to_its_own_port_s(void **state)
{
	(void)state;
	use();
	dequeue(0);
	for (unsigned i = 0; i < 30; i++)
		packets[i]->port = (uint16_t)(i < 10 ? BARE_PORT : i < 20 ? PORT : OTHER_PORT);
	run_as(0, &hqos_enqueue_node, 0, 30);
	assert_all(tx_node.id, 0, 10);
	assert_all(to_device, 10, 20);
	assert_all(UINT16_MAX, 20, 30);
	assert_int_equal(rte_ring_count(other.rings[0]), 10);
	shaped_ports[PORT] = NULL;
	run_as(0, &hqos_enqueue_node, 10, 10);
	assert_all(tx_node.id, 10, 20);
	shaped_ports[PORT] = &shaped;
}

static void
overflow_of_a_full_queue_is_a_named_drop(void **state)
{
	(void)state;
	classes[0].queue_length = 4;
	put_profile();
	use();
	dequeue(0);
	packet_of(packets[9])->class = VOICE;
	run_as(0, &hqos_enqueue_node, 0, 10);
	assert_all(to_device, 0, 4);
	assert_dropped("qos-queue-full", 4, 9);
	assert_int_equal(edges[9], to_device);
	assert_int_equal(shaped.scheduler->subscribers[SUBSCRIBER].queues[DATA].dropped, 5);
	assert_counted(5, 5);
}

static void
an_early_drop_of_a_long_queue_is_a_named_drop(void **state)
{
	Sluice__V1__Wred wred = SLUICE__V1__WRED__INIT;
	unsigned taken = 0;

	(void)state;
	wred.min = 20;
	wred.max = 21;
	classes[0].queue_length = 1000;
	classes[0].drop_policy = SLUICE__V1__QOS_DROP_POLICY__WRED;
	classes[0].wred = &wred;
	put_profile();
	use();
	dequeue(0);
	run_as(0, &hqos_enqueue_node, 0, BURST);
	while (taken < BURST && edges[taken] == to_device)
		taken++;
	assert_true(taken > 20 && taken < BURST);
	assert_dropped("qos-wred", taken, taken + 1);
	for (unsigned i = taken; i < BURST; i++)
		if (edges[i] != to_device)
			assert_dropped("qos-wred", i, i + 1);
	assert_dropped("qos-wred", BURST - 1, BURST);
}

static void
a_packet_that_waited_too_long_is_a_named_drop_at_dequeue(void **state)
{
	Sluice__V1__Codel codel = SLUICE__V1__CODEL__INIT;
	const struct timespec interval = {.tv_nsec = 3000000};
	unsigned lost = 0, sent = 0;

	(void)state;
	codel.target = 100000;
	codel.interval = 1000000;
	classes[0].drop_policy = SLUICE__V1__QOS_DROP_POLICY__CODEL;
	classes[0].codel = &codel;
	put_profile();
	use();
	dequeue(0);
	hold();
	run_as(0, &hqos_enqueue_node, 0, 10);
	nanosleep(&interval, NULL);
	let_one_go();
	dequeue(10);
	assert_int_equal(edges[0], to_device);
	assert_all(UINT16_MAX, 1, 10);
	nanosleep(&interval, NULL);
	let_one_go();
	dequeue(10);
	for (unsigned i = 1; i < 10; i++) {
		lost += edges[i] == drop_node.id;
		sent += edges[i] == to_device;
	}
	assert_int_equal(lost, 1);
	assert_int_equal(sent, 1);
	assert_dropped("qos-codel", 1, 2);
	assert_counted(2, 1);
}

static void
a_packet_of_an_unknown_queue_is_a_named_drop(void **state)
{
	(void)state;
	run_as(0, &hqos_enqueue_node, 0, 1);
	assert_dropped("qos-no-subscriber", 0, 1);
}

static void
a_new_subscriber_is_admitted_with_the_first_packet(void **state)
{
	(void)state;
	use();
	assert_false(shaped.scheduler->subscribers[SUBSCRIBER].used);
	run_as(0, &hqos_enqueue_node, 0, 10);
	assert_all(to_device, 0, 10);
	assert_int_equal(sent_of(&shaped, SUBSCRIBER, DATA), 10);
	// Also if it came over another worker.
	hqos_give_back(QUEUE, true);
	dequeue(0);
	assert_false(shaped.scheduler->subscribers[SUBSCRIBER].used);
	run_as(1, &hqos_enqueue_node, 10, 10);
	use();
	one_node_run(dequeue_node, packets + 10, 10, edges + 10);
	assert_all(to_device, 10, 20);
}

static void
waiting_packets_of_a_deleted_session_are_named_drops_and_others_wait_on(void **state)
{
	(void)state;
	use();
	dequeue(0);
	hold();
	packet_of(packets[3])->queue = NO_QUEUE;
	run_as(0, &hqos_enqueue_node, 0, 10);
	hqos_give_back(QUEUE, true);
	dequeue(10);
	assert_dropped("qos-flushed", 0, 3);
	assert_int_equal(edges[3], UINT16_MAX);
	assert_dropped("qos-flushed", 4, 10);
	// A later packet is refused by another name.
	run_as(0, &hqos_enqueue_node, 10, 1);
	assert_dropped("qos-no-subscriber", 10, 11);
	let_go();
	dequeue(4);
	assert_int_equal(edges[3], to_device);
	// Packets without a session or without a group are not counted for one.
	assert_counted(0, 9);
}

static void
more_than_a_burst_that_waits_for_a_session_that_goes_is_flushed_burst_by_burst(void **state)
{
	(void)state;
	classes[0].queue_length = 1000;
	put_profile();
	use();
	dequeue(0);
	hold();
	run_as(0, &hqos_enqueue_node, 0, BURST + 44);
	hqos_give_back(QUEUE, true);
	dequeue(BURST + 44);
	assert_dropped("qos-flushed", 0, BURST);
	assert_all(UINT16_MAX, BURST, BURST + 44);
	dequeue(BURST + 44);
	assert_all(UINT16_MAX, 0, BURST);
	assert_dropped("qos-flushed", BURST, BURST + 44);
	assert_false(shaped.scheduler->subscribers[SUBSCRIBER].used);
}

static void
waiting_packets_of_a_session_that_moves_are_sent_in_turn(void **state)
{
	(void)state;
	use();
	dequeue(0);
	hold();
	run_as(0, &hqos_enqueue_node, 0, 10);
	hqos_give_back(QUEUE, false);
	dequeue(10);
	assert_all(UINT16_MAX, 0, 10);
	let_go();
	dequeue(10);
	assert_all(to_device, 0, 10);
	dequeue(0);
	assert_false(shaped.scheduler->subscribers[SUBSCRIBER].used);
}

static void
packets_from_another_worker_before_a_session_moved_are_sent(void **state)
{
	enum { MORE = BURST + 44 };

	(void)state;
	use();
	dequeue(0);
	// Behind a burst without a subscriber.
	for (unsigned i = 0; i < BURST; i++)
		packet_of(packets[i])->queue = NO_QUEUE;
	run_as(1, &hqos_enqueue_node, 0, MORE);
	hqos_give_back(QUEUE, false);
	dequeue(MORE);
	assert_true(shaped.scheduler->subscribers[SUBSCRIBER].used);
	dequeue(MORE);
	assert_all(to_device, BURST, MORE);
	dequeue(0);
	assert_false(shaped.scheduler->subscribers[SUBSCRIBER].used);
}

static void
waiting_packets_of_a_session_do_not_go_to_the_next_with_its_number(void **state)
{
	(void)state;
	use();
	dequeue(0);
	hold();
	run_as(0, &hqos_enqueue_node, 0, 10);
	assert_true(shaped_has_settled(&shaped, SUBSCRIBER));
	hqos_give_back(QUEUE, true);
	use();
	// Packets counted there are not the subscriber's own until then.
	assert_false(shaped_has_settled(&shaped, SUBSCRIBER));
	dequeue(10);
	assert_true(shaped_has_settled(&shaped, SUBSCRIBER));
	assert_dropped("qos-flushed", 0, 10);
	assert_int_equal(shaped.scheduler->subscribers[SUBSCRIBER].queues[DATA].dropped, 0);
	let_go();
	run_as(0, &hqos_enqueue_node, 10, 1);
	assert_int_equal(edges[10], to_device);
	assert_int_equal(sent_of(&shaped, SUBSCRIBER, DATA), 1);
}

static void
assert_described(const char *expected, uint32_t queue, uint8_t class)
{
	const struct packet p = {.queue = queue, .class = class};
	const struct node *nodes[] = {&hqos_enqueue_node, node_by_name("hqos-tx")};
	char text[80];

	for (unsigned i = 0; i < RTE_DIM(nodes); i++) {
		nodes[i]->describe(text, sizeof(text), &p, NULL, 0);
		assert_string_equal(text, expected);
	}
}

static void
who_follows_a_packet_reads_its_port_and_its_class_by_name(void **state)
{
	char text[80];

	(void)state;
	assert_described("of no session's queue", NO_QUEUE, DATA);
	assert_described("port access, class of a profile that is not there yet", QUEUE, DATA);
	use();
	dequeue(0);
	assert_described("port access, class data", QUEUE, DATA);
	assert_described("port access, class voice", QUEUE, VOICE);
	assert_described("port access, class of a profile that is not there yet", QUEUE, 2);
	assert_described("port access, class of a profile that is not there yet",
		PORT << QUEUE_PORT_SHIFT | (HQOS_SUBSCRIBERS - 1), DATA);
	assert_described(
		"port ?, class of a profile that is not there yet", BARE_PORT << QUEUE_PORT_SHIFT | SUBSCRIBER, DATA);
	node_by_name("hqos-tx")->departed(text, sizeof(text), PORT, 0);
	assert_string_equal(text, "port access");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			on_the_owner_packets_go_through_the_queue_of_their_session_s_class_and_may_be_sent_at_once,
			fresh, end),
		cmocka_unit_test_setup_teardown(packets_over_the_rate_wait_and_are_dequeued_by_class, fresh, end),
		cmocka_unit_test_setup_teardown(
			our_protocols_packets_have_a_queue_of_their_own_and_packets_without_a_session_another, fresh,
			end),
		cmocka_unit_test_setup_teardown(
			another_worker_hands_packets_to_the_owner_and_overflow_of_its_ring_is_a_named_drop, fresh, end),
		cmocka_unit_test_setup_teardown(
			a_port_whose_scheduler_has_gone_sends_at_once_and_each_of_a_burst_goes_to_its_own_port_s, fresh,
			end),
		cmocka_unit_test_setup_teardown(overflow_of_a_full_queue_is_a_named_drop, fresh, end),
		cmocka_unit_test_setup_teardown(an_early_drop_of_a_long_queue_is_a_named_drop, fresh, end),
		cmocka_unit_test_setup_teardown(a_packet_that_waited_too_long_is_a_named_drop_at_dequeue, fresh, end),
		cmocka_unit_test_setup_teardown(a_packet_of_an_unknown_queue_is_a_named_drop, fresh, end),
		cmocka_unit_test_setup_teardown(a_new_subscriber_is_admitted_with_the_first_packet, fresh, end),
		cmocka_unit_test_setup_teardown(
			waiting_packets_of_a_deleted_session_are_named_drops_and_others_wait_on, fresh, end),
		cmocka_unit_test_setup_teardown(
			more_than_a_burst_that_waits_for_a_session_that_goes_is_flushed_burst_by_burst, fresh, end),
		cmocka_unit_test_setup_teardown(waiting_packets_of_a_session_that_moves_are_sent_in_turn, fresh, end),
		cmocka_unit_test_setup_teardown(
			packets_from_another_worker_before_a_session_moved_are_sent, fresh, end),
		cmocka_unit_test_setup_teardown(
			waiting_packets_of_a_session_do_not_go_to_the_next_with_its_number, fresh, end),
		cmocka_unit_test_setup_teardown(who_follows_a_packet_reads_its_port_and_its_class_by_name, fresh, end),
	};

	return cmocka_run_group_tests(tests, make_tables, NULL);
}
