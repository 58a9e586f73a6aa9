// SPDX-License-Identifier: Apache-2.0
// Meters as a session's packets meet them.
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_eal.h>
#include <rte_ip.h>

#include "core/drop.h"
#include "core/one_node.h"
#include "core/worker.h"
#include "meter/meter.h"
#include "meter/profile.h"
#include "session/step.h"

enum { STEP = 5, LENGTH = 100 };

static struct object object = {.kind = &meter_kind, .name = (char *)"gold"};
static struct fault f;

static uint32_t *
of_session(uint32_t session, enum direction direction)
{
	return session_step_words(&meter_step, session, direction);
}

static int
make_tables(void **state)
{
	// For the TSC's rate.
	char prefix[32], *arguments[] = {(char *)"test", (char *)"--no-huge", (char *)"--no-shconf", (char *)"--no-pci",
				 (char *)"--no-telemetry", (char *)"--file-prefix", prefix, (char *)"-m", (char *)"16",
				 (char *)"--log-level", (char *)"*:error"};

	snprintf(prefix, sizeof(prefix), "sluice-test-%d", getpid());
	if (rte_eal_init(RTE_DIM(arguments), arguments) < 0 || meter_kind.start() != 0 ||
		slab_create(&sessions, sizeof(struct session), 16) != 0)
		return -1;
	object.state = (void *)(uintptr_t)slab_take(&meter_profiles);
	return 0;
}

// Apply the spec to the profile, as if the TSC ran at 1 GHz.
static void
set_profile(const Sluice__V1__Meter *spec)
{
	struct meter_profile *profile = aligned_alloc(64, sizeof(*profile));
	struct meter_slot *slot = slab_at(&meter_profiles, 0);

	if (meter_profile_parse("gold", spec, 1000000000, profile, &f) != 0)
		fail_msg("%s", f.text);
	free(atomic_exchange(&slot->profile, profile));
}

static int
delete_profile(void **state)
{
	return meter_kind.delete(&object, NULL, &f) || rte_eal_cleanup() || rmdir(rte_eal_get_runtime_dir());
}

// Room for two packets green and two yellow; afterwards as good as nothing comes in.
static Sluice__V1__Meter
two_and_two(void)
{
	Sluice__V1__Meter spec = SLUICE__V1__METER__INIT;

	spec.committed_rate = 8000;
	spec.committed_burst = 2 * LENGTH;
	spec.excess_burst = 2 * LENGTH;
	return spec;
}

static struct rte_mbuf *
packet(uint8_t family, uint8_t dscp)
{
	uint8_t ip[LENGTH] = {0};
	struct rte_mbuf *m;

	if (family == 4) {
		struct rte_ipv4_hdr *header = (struct rte_ipv4_hdr *)ip;

		*header = (struct rte_ipv4_hdr){.version_ihl = 0x45,
			.type_of_service = (uint8_t)(dscp << 2 | 1),
			.total_length = rte_cpu_to_be_16(LENGTH),
			.packet_id = rte_cpu_to_be_16(dscp * 1031u),
			.time_to_live = 64,
			.src_addr = 0x01020304 * (dscp + 1u),
			.dst_addr = 0x0a0b0c0d};
		header->hdr_checksum = rte_ipv4_cksum(header);
	} else {
		ip[0] = (uint8_t)(0x60 | dscp >> 2);
		ip[1] = (uint8_t)(dscp << 6 | 0x1a);
	}
	m = one_node_packet(ip, LENGTH);
	packet_of(m)->family = family;
	packet_of(m)->session = 3;
	packet_of(m)->chain = STEP;
	return m;
}

static const char *
drop_name(const struct rte_mbuf *m)
{
	return drop_by_id(packet_of((struct rte_mbuf *)(uintptr_t)m)->drop)->name;
}

static void
green_and_yellow_pass_and_red_is_dropped_by_name(void **state)
{
	struct node *const nodes[] = {&meter_up_node, &meter_down_node};

	for (unsigned which = 0; which < 4; which++) {
		Sluice__V1__Meter spec = two_and_two();
		struct rte_mbuf *packets[6];
		uint16_t edges[6];

		set_profile(&spec);
		// Shared between workers or not.
		worker_count = which < 2 ? 1 : 2;
		*of_session(3, UP) = *of_session(3, DOWN) = NO_METER;
		*(which % 2 ? of_session(3, DOWN) : of_session(3, UP)) = meter_new(&object);
		for (unsigned i = 0; i < 6; i++)
			packets[i] = packet(i % 2 ? 4 : 6, 0);
		one_node_run(nodes[which % 2], packets, 6, edges);
		for (unsigned i = 0; i < 4; i++) {
			assert_int_equal(edges[i], STEP);
			assert_int_equal(packet_of(packets[i])->colour, i < 2 ? GREEN : YELLOW);
		}
		for (unsigned i = 4; i < 6; i++) {
			assert_int_equal(edges[i], drop_node.id);
			assert_string_equal(drop_name(packets[i]), "meter-red");
		}
		for (unsigned i = 0; i < 6; i++)
			free(packets[i]);
	}
	worker_count = 1;
}

// A meter of its own for each test of a scope, made as the API would.
static void
put_meter(struct object *meter, enum _Sluice__V1__MeterScope scope, uint32_t flows)
{
	Sluice__V1__Meter spec = two_and_two();

	spec.scope = scope;
	spec.flows = flows;
	*meter = (struct object){.kind = &meter_kind, .name = (char *)"shared"};
	if (meter_kind.put(meter, &spec, NULL, &f))
		fail_msg("%s", f.text);
}

static void
sessions_share_the_buckets_of_a_global_meter_both_ways(void **state)
{
	for (worker_count = 1; worker_count <= 2; worker_count++) {
		struct rte_mbuf *packets[6];
		struct object meter;
		uint16_t edges[6];

		put_meter(&meter, SLUICE__V1__METER_SCOPE__GLOBAL, 0);
		*of_session(3, UP) = *of_session(4, UP) = *of_session(4, DOWN) = meter_new(&meter);
		for (unsigned i = 0; i < 6; i++) {
			packets[i] = packet(i % 2 ? 4 : 6, 0);
			packet_of(packets[i])->session = 3 + i % 2;
		}
		one_node_run(&meter_up_node, packets, 3, edges);
		one_node_run(&meter_down_node, packets + 3, 1, edges + 3);
		one_node_run(&meter_up_node, packets + 4, 2, edges + 4);
		for (unsigned i = 0; i < 4; i++) {
			assert_int_equal(edges[i], STEP);
			assert_int_equal(packet_of(packets[i])->colour, i < 2 ? GREEN : YELLOW);
		}
		assert_int_equal(edges[4], drop_node.id);
		assert_int_equal(edges[5], drop_node.id);
		for (unsigned i = 0; i < 6; i++)
			free(packets[i]);
		// Releasing a shared bucket does nothing.
		meter_retire(*of_session(3, UP));
		assert_int_equal(meter_kind.delete(&meter, NULL, &f), 0);
	}
	worker_count = 1;
}

static void
a_burst_of_more_shared_meters_than_it_has_leases_is_metered_by_each(void **state)
{
	enum { METERS = 9 };
	struct rte_mbuf *packets[5 * METERS];
	struct object meters_of[METERS];
	uint16_t edges[5 * METERS];

	worker_count = 2;
	for (unsigned i = 0; i < METERS; i++) {
		put_meter(&meters_of[i], SLUICE__V1__METER_SCOPE__GLOBAL, 0);
		*of_session(i, UP) = meter_new(&meters_of[i]);
	}
	for (unsigned i = 0; i < 5 * METERS; i++) {
		packets[i] = packet(4, 0);
		packet_of(packets[i])->session = i % METERS;
	}
	one_node_run(&meter_up_node, packets, 5 * METERS, edges);
	for (unsigned i = 0; i < 5 * METERS; i++) {
		assert_int_equal(packet_of(packets[i])->colour, i / METERS < 2 ? GREEN : i / METERS < 4 ? YELLOW : RED);
		free(packets[i]);
	}
	for (unsigned i = 0; i < METERS; i++)
		meter_kind.delete(&meters_of[i], NULL, &f);
	worker_count = 1;
}

static void
each_flow_of_each_session_has_buckets_with_a_meter_of_that_scope(void **state)
{
	for (worker_count = 1; worker_count <= 2; worker_count++) {
		// Five packets of each: the code point is the number of the source address.
		struct rte_mbuf *packets[30];
		struct object meter;
		uint16_t edges[30];

		put_meter(&meter, SLUICE__V1__METER_SCOPE__FLOW, 1024);
		*of_session(3, UP) = *of_session(4, UP) = meter_new(&meter);
		for (unsigned i = 0; i < 30; i++) {
			packets[i] = packet(4, (uint8_t)(i % 3));
			packet_of(packets[i])->session = 3 + i % 2;
		}
		one_node_run(&meter_up_node, packets, 30, edges);
		for (unsigned i = 0; i < 30; i++) {
			enum colour expected = i / 6 < 2 ? GREEN : i / 6 < 4 ? YELLOW : RED;

			assert_int_equal(packet_of(packets[i])->colour, expected);
			assert_int_equal(edges[i], expected == RED ? drop_node.id : STEP);
			free(packets[i]);
		}
		meter_kind.delete(&meter, NULL, &f);
	}
	worker_count = 1;
}

static void
a_flow_that_finds_no_place_is_dropped_by_a_name_of_its_own(void **state)
{
	enum { FLOWS = 4 * BURST, RUNS = 4 };
	static struct rte_mbuf *packets[FLOWS];
	static uint16_t edges[FLOWS];
	struct object meter;
	unsigned passed = 0;

	put_meter(&meter, SLUICE__V1__METER_SCOPE__FLOW, 1024);
	*of_session(3, UP) = meter_new(&meter);
	for (uint32_t run = 0; run < RUNS; run++) {
		for (uint32_t i = 0; i < FLOWS; i++) {
			packets[i] = packet(4, 0);
			rte_pktmbuf_mtod(packets[i], struct rte_ipv4_hdr *)->src_addr = run * FLOWS + i;
		}
		one_node_run(&meter_up_node, packets, FLOWS, edges);
		for (uint32_t i = 0; i < FLOWS; i++) {
			passed += edges[i] == STEP;
			if (edges[i] != STEP)
				assert_string_equal(drop_name(packets[i]), "meter-flows-full");
			free(packets[i]);
		}
	}
	assert_in_range(passed, 1024, 1536);
	meter_kind.delete(&meter, NULL, &f);
}

static void
a_meters_scope_does_not_change(void **state)
{
	Sluice__V1__Meter old = two_and_two(), spec = two_and_two();
	struct object meter;

	put_meter(&meter, SLUICE__V1__METER_SCOPE__SESSION, 0);
	spec.scope = SLUICE__V1__METER_SCOPE__GLOBAL;
	assert_int_equal(meter_kind.put(&meter, &spec, &old, &f), -EINVAL);
	assert_non_null(strstr(f.text, "scope, flows"));
	meter_kind.delete(&meter, NULL, &f);
}

static void
yellow_can_be_dropped_by_a_name_of_its_own(void **state)
{
	Sluice__V1__Meter spec = two_and_two();
	Sluice__V1__MeterAction drop = SLUICE__V1__METER_ACTION__INIT;
	struct rte_mbuf *packets[3];
	uint16_t edges[3];

	drop.verdict = SLUICE__V1__METER_VERDICT__DROP;
	spec.yellow = &drop;
	set_profile(&spec);
	*of_session(3, UP) = meter_new(&object);
	for (unsigned i = 0; i < 3; i++)
		packets[i] = packet(4, 0);
	one_node_run(&meter_up_node, packets, 3, edges);
	assert_int_equal(edges[1], STEP);
	assert_int_equal(edges[2], drop_node.id);
	assert_string_equal(drop_name(packets[2]), "meter-yellow");
	for (unsigned i = 0; i < 3; i++)
		free(packets[i]);
}

static void
a_remarked_packet_has_its_new_code_point_its_ecn_bits_and_a_right_checksum(void **state)
{
	for (uint8_t dscp = 0; dscp < 64; dscp++) {
		Sluice__V1__Meter spec = two_and_two();
		Sluice__V1__MeterAction mark = SLUICE__V1__METER_ACTION__INIT;
		struct rte_mbuf *packets[2] = {packet(4, dscp), packet(6, dscp)};
		struct rte_ipv4_hdr *ip4 = rte_pktmbuf_mtod(packets[0], struct rte_ipv4_hdr *);
		uint8_t *ip6 = rte_pktmbuf_mtod(packets[1], uint8_t *);
		uint16_t edges[2];

		mark.verdict = SLUICE__V1__METER_VERDICT__REMARK;
		mark.dscp = (char *)"af12";
		spec.red = &mark;
		spec.committed_burst = spec.excess_burst = 1;
		set_profile(&spec);
		*of_session(3, UP) = meter_new(&object);
		one_node_run(&meter_up_node, packets, 2, edges);
		assert_int_equal(edges[0], STEP);
		assert_int_equal(edges[1], STEP);
		assert_int_equal(ip4->type_of_service, 12 << 2 | 1);
		assert_int_equal(rte_ipv4_cksum(ip4), ip4->hdr_checksum ? 0 : 0xffff);
		assert_int_equal(ip6[0], 0x60 | 12 >> 2);
		assert_int_equal(ip6[1], (12 << 6 & 0xff) | 0x1a);
		free(packets[0]);
		free(packets[1]);
	}
}

static void
an_aware_meter_takes_the_colour_of_assured_forwarding(void **state)
{
	static const struct {
		uint8_t dscp;
		enum colour colour;
	} cases[] = {{10, GREEN}, {12, YELLOW}, {14, RED}, {18, GREEN}, {20, YELLOW}, {22, RED}, {26, GREEN},
		{28, YELLOW}, {30, RED}, {34, GREEN}, {36, YELLOW}, {38, RED}, {0, GREEN}, {46, GREEN}, {44, GREEN},
		{4, GREEN}, {6, GREEN}, {11, GREEN}, {13, GREEN}, {15, GREEN}, {8, GREEN}, {54, GREEN}};
	Sluice__V1__Meter spec = two_and_two();

	spec.committed_burst = spec.excess_burst = 100000;
	spec.color_aware = 1;
	set_profile(&spec);
	*of_session(3, UP) = meter_new(&object);
	for (unsigned c = 0; c < RTE_DIM(cases); c++) {
		struct rte_mbuf *packets[2] = {packet(4, cases[c].dscp), packet(6, cases[c].dscp)};
		uint16_t edges[2];

		one_node_run(&meter_up_node, packets, 2, edges);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(packet_of(packets[i])->colour, cases[c].colour);
			free(packets[i]);
		}
	}
}

static void
a_profile_that_changes_holds_for_its_users_at_once_and_they_keep_their_tokens(void **state)
{
	Sluice__V1__Meter spec = two_and_two();
	struct rte_mbuf *m = packet(4, 0);
	uint32_t meter;
	uint16_t edge;

	set_profile(&spec);
	meter = *of_session(3, UP) = meter_new(&object);
	spec.committed_burst = 10000;
	set_profile(&spec);
	one_node_run(&meter_up_node, &m, 1, &edge);
	assert_int_equal(edge, STEP);
	assert_in_range(meter_at(meter)->state.committed, LENGTH, LENGTH + 50);
	free(m);
}

static void
our_own_packets_are_not_metered(void **state)
{
	Sluice__V1__Meter spec = two_and_two();
	struct rte_mbuf *m = packet(4, 0);
	uint16_t edge;

	spec.committed_burst = 0;
	spec.excess_burst = 1;
	set_profile(&spec);
	*of_session(3, UP) = meter_new(&object);
	packet_of(m)->flags = PACKET_OURS;
	one_node_run(&meter_up_node, &m, 1, &edge);
	assert_int_equal(edge, STEP);
	free(m);
}

static void
more_packets_than_a_burst_are_all_metered(void **state)
{
	enum { MANY = 3 * BURST + 7 };
	Sluice__V1__Meter spec = two_and_two();
	static struct rte_mbuf *packets[MANY];
	static uint16_t edges[MANY];
	unsigned passed = 0;

	set_profile(&spec);
	*of_session(3, UP) = meter_new(&object);
	for (unsigned i = 0; i < MANY; i++)
		packets[i] = packet(4, 0);
	one_node_run(&meter_up_node, packets, MANY, edges);
	for (unsigned i = 0; i < MANY; i++) {
		assert_true(edges[i] == STEP || edges[i] == drop_node.id);
		passed += edges[i] == STEP;
		free(packets[i]);
	}
	assert_in_range(passed, 4, 5);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(green_and_yellow_pass_and_red_is_dropped_by_name),
		cmocka_unit_test(sessions_share_the_buckets_of_a_global_meter_both_ways),
		cmocka_unit_test(a_burst_of_more_shared_meters_than_it_has_leases_is_metered_by_each),
		cmocka_unit_test(each_flow_of_each_session_has_buckets_with_a_meter_of_that_scope),
		cmocka_unit_test(a_flow_that_finds_no_place_is_dropped_by_a_name_of_its_own),
		cmocka_unit_test(a_meters_scope_does_not_change),
		cmocka_unit_test(yellow_can_be_dropped_by_a_name_of_its_own),
		cmocka_unit_test(a_remarked_packet_has_its_new_code_point_its_ecn_bits_and_a_right_checksum),
		cmocka_unit_test(an_aware_meter_takes_the_colour_of_assured_forwarding),
		cmocka_unit_test(a_profile_that_changes_holds_for_its_users_at_once_and_they_keep_their_tokens),
		cmocka_unit_test(our_own_packets_are_not_metered),
		cmocka_unit_test(more_packets_than_a_burst_are_all_metered),
	};

	return cmocka_run_group_tests(tests, make_tables, delete_profile);
}
