// SPDX-License-Identifier: Apache-2.0
// Identifications of outer packets that may be cut (RFC 6864): none is used twice between the same ends before all were used.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gtpu/gtpu.h"
#include "gtpu/tunnel.h"
#include "session/all_sessions.h"

// Numbers of three workers differ in the low two bits.
enum { ETHER = 14, WORKERS = 3, STEP = 4, PER_WORKER = 65536 / STEP, SMALL = 64, LARGE = 1480 };

static int
start(void **state)
{
	if (all_sessions_start(WORKERS))
		return -1;
	for (unsigned i = 0; i < 3 * WORKERS; i++) {
		char name[16], address[32];
		struct subscriber s = {.name = name,
			.mac = "02:01:00:00:00:09",
			.address4 = address,
			.outer = 100,
			.inner = (uint16_t)(i + 1),
			.teid = 20 + 2 * i,
			.outer6 = i / WORKERS == 2,
			.remote = i / WORKERS == 1 ? "198.51.100.9" : NULL};

		snprintf(name, sizeof(name), "s%u", i);
		snprintf(address, sizeof(address), "100.64.0.%u/32", i + 1);
		if (put_session(&s))
			return -1;
	}
	return 0;
}

// Which of the sessions of a path (0 and 1: IPv4, 2: IPv6) this worker has.
static uint32_t
session_on(unsigned path, unsigned worker)
{
	for (unsigned i = path * WORKERS; i < (path + 1) * WORKERS; i++) {
		char name[16];
		uint32_t session;

		snprintf(name, sizeof(name), "s%u", i);
		session = session_of(object_find(&session_kind, name));
		if (session % WORKERS == worker)
			return session;
	}
	fail();
	return 0;
}

// A packet of our own for the session's tunnel, by the worker that has it.
static void
encapsulate(uint32_t session, unsigned length, const struct node *node)
{
	struct rte_mbuf *m = packet_new();

	m->data_off = 128;
	write_packet4(
		(uint8_t *)rte_pktmbuf_append(m, (uint16_t)length), "100.64.0.2", "203.0.113.9", length - 20 - UDP);
	packet_of(m)->session = session;
	packet_of(m)->family = 4;
	packet_of(m)->flags = PACKET_OURS;
	node_edge(&inject_node, node);
	inject(m, node);
	sent_count = 0;
	walk_workers(1);
}

static uint16_t
next_id(unsigned path, unsigned worker)
{
	uint16_t id;

	encapsulate(session_on(path, worker), SMALL, &gtpu_encap_node);
	assert_int_equal(sent_to("core"), 1);
	memcpy(&id, sent[0].bytes + ETHER + 4, sizeof(id));
	return id;
}

static void
no_two_workers_use_the_same_number_and_each_uses_all_of_its_own(void **state)
{
	static bool used[65536];

	for (unsigned i = 0; i < PER_WORKER; i++)
		for (unsigned worker = 0; worker < WORKERS; worker++) {
			uint16_t id = next_id(0, worker);

			assert_int_equal(id % STEP, worker);
			assert_false(used[id]);
			used[id] = true;
		}
	// Then from the beginning.
	for (unsigned worker = 0; worker < WORKERS; worker++)
		assert_true(used[next_id(0, worker)]);
}

static void
packets_on_one_path_use_no_numbers_of_another(void **state)
{
	uint16_t first = next_id(1, 0), before = next_id(0, 0);

	for (unsigned i = 0; i < 100; i++)
		next_id(0, 0);
	assert_int_equal((uint16_t)(next_id(1, 0) - first), STEP);
	assert_int_equal((uint16_t)(next_id(0, 0) - before), 101 * STEP);
}

// The number is in the fragment header (RFC 8200 section 4.5).
static void
fragments_over_ipv6_have_numbers_of_their_worker_s(void **state)
{
	uint32_t last[WORKERS] = {0}, id;

	for (unsigned i = 0; i < 8; i++)
		for (unsigned worker = 0; worker < WORKERS; worker++) {
			encapsulate(session_on(2, worker), LARGE, &gtpu_encap6_node);
			assert_int_equal(sent_to("core"), 2);
			assert_int_equal(sent[0].bytes[ETHER + 6], PROTOCOL_FRAGMENT);
			assert_memory_equal(sent[0].bytes + ETHER + 44, sent[1].bytes + ETHER + 44, 4);
			memcpy(&id, sent[0].bytes + ETHER + 44, sizeof(id));
			assert_int_equal(id % STEP, worker);
			if (i > 0)
				assert_int_equal(id, last[worker] + STEP);
			last[worker] = id;
		}
}

// A packet that is never fragmented needs no identification.
static void
a_message_of_our_own_over_ipv4_must_not_be_fragmented(void **state)
{
	uint8_t frame[128], *at = write_core(frame, 0x0800);

	at = write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + GTPU_HEADER);
	at = write_udp(at, GTPU_PORT, GTPU_PORT, GTPU_HEADER);
	memcpy(at, (uint8_t[GTPU_HEADER]){GTPU_VERSION_1, GTPU_ECHO_REQUEST}, GTPU_HEADER);
	sent_count = 0;
	receive("core", frame, (size_t)(at + GTPU_HEADER - frame));
	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(sent[0].bytes[ETHER + 6], IP4_DF >> 8);
	assert_int_equal(sent[0].bytes[ETHER + 7], 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_two_workers_use_the_same_number_and_each_uses_all_of_its_own),
		cmocka_unit_test(packets_on_one_path_use_no_numbers_of_another),
		cmocka_unit_test(fragments_over_ipv6_have_numbers_of_their_worker_s),
		cmocka_unit_test(a_message_of_our_own_over_ipv4_must_not_be_fragmented),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
