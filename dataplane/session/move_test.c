// SPDX-License-Identifier: Apache-2.0
// A session gets another access key while its packets are on their way: none is lost, and none is a mixture of both.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "session/all_sessions.h"
#include "session/record.h"

enum { TPID = 0x8100, PPPOE_ETHER = 0x8864, FRAME_BYTES = 256 };

// The key of the subscriber's frames. Without a MAC it uses `used`.
struct key {
	const char *port, *mac, *used;
	uint16_t outer, inner, pppoe;
	unsigned pdu_session;
};

#define HIS "02:01:00:00:00:09"
#define ANOTHER "02:01:00:00:00:0a"

static const struct key keys[] = {
	{"access", NULL, HIS, 100, 1, 0, 0},
	{"access", NULL, HIS, 100, 2, 0, 0},
	{"access", NULL, HIS, 200, 0, 0, 0},
	{"access", NULL, HIS, 0, 0, 0, 0},
	{"access", HIS, HIS, 100, 1, 0, 0},
	{"access", ANOTHER, ANOTHER, 100, 1, 0, 0},
	{"access", HIS, HIS, 100, 2, 0, 0},
	{"access", NULL, HIS, 100, 1, 7, 0},
	{"access", HIS, HIS, 100, 1, 7, 0},
	{"access", ANOTHER, ANOTHER, 100, 1, 7, 0},
	{"access", NULL, HIS, 100, 1, 8, 0},
	{"access", HIS, HIS, 200, 0, 8, 0},
	{"access", NULL, HIS, 100, 1, 0, 1},
	{"access", NULL, HIS, 100, 1, 0, 2},
	{"access", ANOTHER, ANOTHER, 100, 1, 0, 2},
	{"other", NULL, HIS, 100, 1, 0, 0},
	{"other", ANOTHER, ANOTHER, 7, 0, 0, 0},
	{"other", HIS, HIS, 100, 1, 7, 0},
};

static struct subscriber
subscriber_of(const struct key *key, unsigned teid)
{
	return (struct subscriber){.name = "moving",
		.port = key->port,
		.mac = key->mac,
		.address4 = "100.64.0.1/32",
		.outer = key->outer,
		.inner = key->inner,
		.pppoe = key->pppoe,
		.teid = teid,
		.pdu_session = key->pdu_session};
}

static int
put_key(const struct key *key, unsigned teid)
{
	struct subscriber s = subscriber_of(key, teid);

	return put_session(&s);
}

static uint8_t *
write_mac(uint8_t *at, const char *text)
{
	struct rte_ether_addr mac;

	rte_ether_unformat_addr(text, &mac);
	memcpy(at, &mac, sizeof(mac));
	return at + sizeof(mac);
}

static const char *
port_mac(const char *port)
{
	return strcmp(port, "access") == 0 ? "02:00:00:00:00:01" : "02:00:00:00:00:03";
}

// The header of frames between two Ethernet addresses, with the key's tags, for an IPv4 packet of so many bytes.
static uint8_t *
write_header(uint8_t *at, const struct key *key, const char *to, const char *from, unsigned bytes)
{
	at = write_mac(write_mac(at, to), from);
	if (key->outer)
		at = write_word(write_word(at, TPID), key->outer);
	if (key->inner)
		at = write_word(write_word(at, TPID), key->inner);
	if (!key->pppoe)
		return write_word(at, 0x0800);
	at = write_word(write_word(write_word(at, PPPOE_ETHER), 0x1100), key->pppoe);
	return write_word(write_word(at, (uint16_t)(bytes + 2)), 0x0021);
}

// Packets of the subscriber's that reach the core side.
static unsigned
gets_out(const struct key *key)
{
	uint8_t frame[FRAME_BYTES], *end = write_header(frame, key, port_mac(key->port), key->used, 20 + UDP + PAYLOAD);

	end = write_packet4(end, "100.64.0.1", "203.0.113.9", PAYLOAD);
	sent_count = 0;
	receive(key->port, frame, (size_t)(end - frame));
	return sent_to("core");
}

static bool
has_header(const struct sent *frame, const struct key *key)
{
	uint8_t expected[FRAME_BYTES],
		*end = write_header(expected, key, key->used, port_mac(key->port), 20 + UDP + PAYLOAD);
	size_t length = (size_t)(end - expected);

	return frame->port == port_number(key->port) && frame->length == length + 20 + UDP + PAYLOAD &&
	       memcmp(frame->bytes, expected, length) == 0;
}

static bool
gets_in(const struct key *key, unsigned teid)
{
	if (teid)
		send_tunnelled(teid, "100.64.0.1");
	else
		send_down("100.64.0.1", PAYLOAD);
	return sent_count == 1 && has_header(&sent[0], key);
}

static struct session_totals
totals(void)
{
	struct session_totals t;

	session_totals(session_of(object_find(&session_kind, "moving")), &t);
	return t;
}

static int
start(void **state)
{
	return all_sessions_start(1);
}

// Whether frames by one are frames by the other.
static bool
same(const struct key *a, const struct key *b)
{
	if (strcmp(a->port, b->port) != 0 || a->outer != b->outer || a->inner != b->inner || a->pppoe != b->pppoe)
		return false;
	// A session on the whole circuit has every MAC.
	return !b->mac || strcmp(a->used, b->mac) == 0;
}

static void
moves(const struct key *from, const struct key *to, unsigned teid)
{
	struct session_totals before;
	struct key known = *to;
	uint32_t index;

	// A learned address stays until another one is seen.
	known.used = to->mac ? to->mac : from->used;
	assert_int_equal(put_key(from, teid), 0);
	index = session_of(object_find(&session_kind, "moving"));
	assert_int_equal(gets_out(from), 1);
	assert_true(gets_in(from, teid));
	before = totals();
	assert_int_equal(put_key(to, teid), 0);
	// The first is sent while it is still on its way: the main thread has not looked at the workers since.
	assert_true(gets_in(&known, teid));
	assert_null(session_details[index].moving);
	assert_true(gets_in(&known, teid));
	assert_int_equal(gets_out(to), 1);
	assert_int_equal(gets_out(from), same(from, to));
	assert_int_equal(session_of(object_find(&session_kind, "moving")), index);
	assert_int_equal(totals().packets[DOWN], before.packets[DOWN] + 2);
	assert_int_equal(totals().packets[UP], before.packets[UP] + 1 + same(from, to));
	assert_int_equal(delete_session("moving"), 0);
	assert_int_equal(gets_out(to), 0);
}

static void
from_every_key_to_every_other_nothing_is_lost_and_its_counts_go_on(void **state)
{
	for (unsigned i = 0; i < RTE_DIM(keys); i++)
		for (unsigned j = 0; j < RTE_DIM(keys); j++) {
			moves(&keys[i], &keys[j], 0);
			moves(&keys[i], &keys[j], 20);
		}
}

static void
a_packet_that_was_found_by_the_old_key_is_the_session_s_though_its_mac_is_not_any_more(void **state)
{
	const struct key *from = &keys[4], *to = &keys[5];
	uint64_t foreign = dropped("session-mac");
	uint8_t frame[FRAME_BYTES], *ip;
	struct rte_mbuf *m = packet_new();
	size_t length;

	assert_int_equal(put_key(from, 0), 0);
	assert_int_equal(put_key(to, 0), 0);
	ip = write_header(frame, from, port_mac(from->port), from->used, 20 + UDP + PAYLOAD);
	length = (size_t)(write_packet4(ip, "100.64.0.1", "203.0.113.9", PAYLOAD) - frame);
	memcpy(rte_pktmbuf_append(m, (uint16_t)length), frame, length);
	packet_advance(m, (int)(ip - frame));
	*packet_of(m) = (struct packet){.port = port_number(from->port),
		.session = session_of(object_find(&session_kind, "moving")),
		.interface = NO_INTERFACE,
		.l2_length = (uint8_t)(ip - frame),
		.outer_tpid = RTE_BE16(TPID),
		.inner_tpid = RTE_BE16(TPID),
		.family = 4};
	node_edge(&inject_node, &session_up4_node);
	inject(m, &session_up4_node);
	sent_count = 0;
	walk();
	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(dropped("session-mac"), foreign);
	assert_int_equal(delete_session("moving"), 0);
}

static void
a_key_of_another_session_is_refused_by_its_name_and_the_old_key_goes_on(void **state)
{
	struct subscriber other = {.name = "other", .address4 = "100.64.0.2/32"};

	for (unsigned i = 0; i < RTE_DIM(keys); i++)
		for (unsigned j = 0; j < RTE_DIM(keys); j++) {
			const struct key *from = &keys[i], *taken = &keys[j];

			other.port = taken->port;
			other.mac = taken->mac;
			other.outer = taken->outer;
			other.inner = taken->inner;
			other.pppoe = taken->pppoe;
			assert_int_equal(put_key(from, 0), 0);
			if (put_session(&other) == 0) {
				if (put_key(taken, 0) != -EEXIST)
					fail_msg("%u to %u: %s", i, j, fault_of_put.text);
				if (!strstr(fault_of_put.text, "Session \"other\""))
					fail_msg("%s", fault_of_put.text);
				assert_int_equal(gets_out(from), 1);
				assert_true(gets_in(from, 0));
				assert_int_equal(delete_session("other"), 0);
			}
			assert_int_equal(put_key(taken, 0), 0);
			assert_int_equal(delete_session("moving"), 0);
		}
}

static void
one_put_after_the_other_ends_with_the_last(void **state)
{
	uint64_t before;

	assert_int_equal(put_key(&keys[0], 0), 0);
	assert_int_equal(gets_out(&keys[0]), 1);
	before = totals().packets[UP];
	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < RTE_DIM(keys); i++)
			assert_int_equal(put_key(&keys[i], 0), 0);
	assert_true(gets_in(&keys[RTE_DIM(keys) - 1], 0));
	assert_int_equal(gets_out(&keys[RTE_DIM(keys) - 1]), 1);
	assert_int_equal(totals().packets[UP], before + 1);
	// And a deletion right behind one.
	assert_int_equal(put_key(&keys[0], 0), 0);
	assert_int_equal(delete_session("moving"), 0);
	assert_int_equal(gets_out(&keys[0]), 0);
	assert_int_equal(gets_out(&keys[RTE_DIM(keys) - 1]), 0);
	assert_int_equal(put_key(&keys[0], 0), 0);
	assert_int_equal(gets_out(&keys[0]), 1);
	assert_int_equal(delete_session("moving"), 0);
}

// ---- The PDU sessions of one subscriber.

static const struct key siblings_before = {"access", NULL, HIS, 100, 1, 0, 0},
			siblings_after = {"access", NULL, HIS, 300, 1, 0, 0};

static int
put_sibling(const struct key *on, unsigned n, unsigned number)
{
	static const char *const names[] = {"one", "two", "three"};
	char address[32];
	struct subscriber s = {.name = names[n],
		.address4 = address,
		.outer = on->outer,
		.inner = on->inner,
		.teid = 20 + 10 * n,
		.pdu_session = number};

	snprintf(address, sizeof(address), "100.64.0.%u/32", n + 1);
	return put_session(&s);
}

// Whether the nth's packets by a key go into its own tunnel, and packets out of that leave by the key.
static bool
reaches(const struct key *on, unsigned n)
{
	enum { TEID_AT = 14 + 20 + UDP + 4 + 3 };
	uint8_t frame[FRAME_BYTES], *end = write_header(frame, on, port_mac(on->port), on->used, 20 + UDP + PAYLOAD);
	char address[32];

	snprintf(address, sizeof(address), "100.64.0.%u", n + 1);
	end = write_packet4(end, address, "203.0.113.9", PAYLOAD);
	sent_count = 0;
	receive(on->port, frame, (size_t)(end - frame));
	if (sent_to("core") != 1 || sent[0].bytes[TEID_AT] != 21 + 10 * n)
		return false;
	send_tunnelled(20 + 10 * n, address);
	return sent_count == 1 && has_header(&sent[0], on);
}

static void
siblings_move_one_after_the_other_in_any_order_and_disturb_no_session(void **state)
{
	static const unsigned orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

	for (unsigned o = 0; o < 2 * RTE_DIM(orders); o++) {
		const unsigned *order = orders[o / 2];
		bool at_once = o % 2;

		for (unsigned n = 0; n < 3; n++)
			assert_int_equal(put_sibling(&siblings_before, n, n + 1), 0);
		for (unsigned moved = 0; moved < 3; moved++) {
			assert_int_equal(put_sibling(&siblings_after, order[moved], order[moved] + 1), 0);
			for (unsigned i = 0; i < 3 && !at_once; i++)
				assert_true(reaches(i <= moved ? &siblings_after : &siblings_before, order[i]));
		}
		for (unsigned n = 0; n < 3; n++)
			assert_true(reaches(&siblings_after, n));
		for (unsigned n = 0; n < 3; n++) {
			assert_false(reaches(&siblings_before, n));
			assert_int_equal(delete_session(((const char *const[]){"one", "two", "three"})[n]), 0);
		}
	}
}

static void
a_sibling_changes_its_number_unless_another_has_it(void **state)
{
	assert_int_equal(put_sibling(&siblings_before, 0, 1), 0);
	assert_int_equal(put_sibling(&siblings_before, 1, 2), 0);
	assert_int_equal(put_sibling(&siblings_before, 0, 2), -EEXIST);
	assert_non_null(strstr(fault_of_put.text, "access.pduSessionId: 2 is Session \"two\"'s"));
	assert_int_equal(put_sibling(&siblings_before, 0, 0), -EEXIST);
	assert_non_null(strstr(fault_of_put.text, "access.pduSessionId: Session \"two\""));
	assert_int_equal(put_sibling(&siblings_before, 1, 0), -EEXIST);
	assert_non_null(strstr(fault_of_put.text, "access.pduSessionId: Session \"one\""));
	assert_int_equal(put_sibling(&siblings_before, 0, 3), 0);
	assert_int_equal(put_sibling(&siblings_before, 1, 1), 0);
	assert_true(reaches(&siblings_before, 0));
	assert_true(reaches(&siblings_before, 1));
	assert_int_equal(delete_session("one"), 0);
	// Alone it need not have one.
	assert_int_equal(put_sibling(&siblings_before, 1, 0), 0);
	assert_true(reaches(&siblings_before, 1));
	assert_int_equal(put_sibling(&siblings_before, 1, 9), 0);
	assert_true(reaches(&siblings_before, 1));
	assert_int_equal(delete_session("two"), 0);
}

// ---- Frames.

static int
put_frames(uint16_t outer, uint16_t inner, const char *mac)
{
	struct subscriber s = {
		.name = "frames", .outer = outer, .inner = inner, .mac = mac, .teid = 90, .ethernet = true};

	return put_session(&s);
}

static void
a_session_of_frames_changes_the_tags_of_its_access(void **state)
{
	static const struct {
		uint16_t outer, inner;
		const char *mac;
	} on[] = {{100, 1, NULL}, {0, 0, NULL}, {7, 0, HIS}, {100, 1, HIS}, {100, 1, ANOTHER}, {100, 2, NULL}};

	for (unsigned i = 0; i < RTE_DIM(on); i++)
		for (unsigned j = 0; j < RTE_DIM(on); j++) {
			const struct key to = {
				"access", on[j].mac, on[j].mac ? on[j].mac : HIS, on[j].outer, on[j].inner, 0, 0};
			uint8_t frame[FRAME_BYTES], *end, inside[FRAME_BYTES], *inside_end;
			const struct key untagged = {"access", NULL, to.used, 0, 0, 0, 0};

			assert_int_equal(put_frames(on[i].outer, on[i].inner, on[i].mac), 0);
			assert_int_equal(put_frames(on[j].outer, on[j].inner, on[j].mac), 0);
			end = write_header(frame, &to, ANOTHER, to.used, 0);
			end = write_packet4(end, "10.0.0.1", "10.0.0.2", PAYLOAD);
			for (unsigned twice = 0; twice < 2; twice++) {
				sent_count = 0;
				receive("access", frame, (size_t)(end - frame));
				assert_int_equal(sent_to("core"), 1);
			}
			// Down: a GTP-U packet with an untagged frame in it.
			inside_end = write_packet4(
				write_header(inside, &untagged, to.used, ANOTHER, 0), "10.0.0.2", "10.0.0.1", PAYLOAD);
			for (unsigned twice = 0; twice < 2; twice++) {
				unsigned bytes = (unsigned)(inside_end - inside);
				uint8_t *at = write_core(frame, 0x0800);

				at = write_udp(write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + 8 + bytes), 40000, 2152,
					8 + bytes);
				at = write_word(write_word(at, 0x30ff), (uint16_t)bytes);
				at = write_word(write_word(at, 0), 90);
				memcpy(at, inside, bytes);
				sent_count = 0;
				receive("core", frame, (size_t)(at - frame) + bytes);
				assert_int_equal(sent_count, 1);
				end = write_packet4(write_header(inside, &to, to.used, ANOTHER, 0), "10.0.0.2",
					"10.0.0.1", PAYLOAD);
				assert_int_equal(sent[0].length, end - inside);
				assert_memory_equal(sent[0].bytes, inside, (size_t)(end - inside));
				inside_end = write_packet4(write_header(inside, &untagged, to.used, ANOTHER, 0),
					"10.0.0.2", "10.0.0.1", PAYLOAD);
			}
			assert_int_equal(delete_session("frames"), 0);
		}
}

// ---- With a worker that runs.

static unsigned
key_of(const struct sent *frame)
{
	for (unsigned i = 0; i < RTE_DIM(keys); i++)
		if (has_header(frame, &keys[i]))
			return i;
	return RTE_DIM(keys);
}

static void
no_frame_is_a_mixture_of_two_keys_while_a_worker_sends(void **state)
{
	enum { ROUNDS = 3000, PACKETS = 32 };
	static const unsigned turn[] = {0, 7, 4, 16, 6, 2, 9, 8, 5, 11, 3, 17, 1};
	uint8_t frame[FRAME_BYTES],
		*end = write_packet4(write_core(frame, 0x0800), "203.0.113.9", "100.64.0.1", PAYLOAD);
	unsigned mixed = 0, stale = 0, lost = 0;

	assert_int_equal(put_key(&keys[turn[0]], 0), 0);
	assert_int_equal(gets_out(&keys[turn[0]]), 1);
	assert_int_equal(worker_run(), 0);
	for (unsigned round = 1; round <= ROUNDS && lost == 0; round++) {
		unsigned from = turn[(round - 1) % RTE_DIM(turn)], to = turn[round % RTE_DIM(turn)];

		__atomic_store_n(&sent_count, 0, __ATOMIC_SEQ_CST);
		for (unsigned i = 0; i < PACKETS; i++) {
			arrive("core", frame, (size_t)(end - frame));
			if (i == round % PACKETS)
				assert_int_equal(put_key(&keys[to], 0), 0);
			if (i % 8 == 0)
				loop_once(0);
		}
		// Seconds, where other programs keep the worker from its core.
		for (unsigned i = 0; i < 200000 && __atomic_load_n(&sent_count, __ATOMIC_SEQ_CST) < PACKETS; i++) {
			loop_once(0);
			usleep(10);
		}
		lost += PACKETS - sent_count;
		for (unsigned i = 0; i < sent_count; i++) {
			unsigned key = key_of(&sent[i]);

			mixed += key == RTE_DIM(keys);
			stale += key != RTE_DIM(keys) && !has_header(&sent[i], &keys[from]) &&
				 !has_header(&sent[i], &keys[to]);
		}
	}
	worker_stop();
	assert_int_equal(mixed, 0);
	assert_int_equal(stale, 0);
	assert_int_equal(lost, 0);
	assert_int_equal(delete_session("moving"), 0);
}

// A worker that saw another TPID just before the session was shut comes late with it.
static void
a_late_observation_of_frames_writes_nothing(void **state)
{
	static const struct subscriber next = {.name = "next", .outer = 400, .teid = 95, .ethernet = true};
	struct session before[2];
	uint32_t index;

	(void)state;
	assert_int_equal(put_frames(100, 1, NULL), 0);
	assert_int_equal(put_session(&next), 0);
	index = session_of(object_find(&session_kind, "frames"));
	assert_int_equal(session_of(object_find(&session_kind, "next")), index + 1);
	assert_int_equal(put_frames(100, 2, NULL), 0);
	assert_non_null(session_details[index].moving);
	memcpy(before, session_at(index), sizeof(before));
	session_header_follow(index);
	assert_memory_equal(before, session_at(index), sizeof(before));
	assert_int_equal(delete_session("frames"), 0);
	assert_int_equal(delete_session("next"), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(from_every_key_to_every_other_nothing_is_lost_and_its_counts_go_on),
		cmocka_unit_test(
			a_packet_that_was_found_by_the_old_key_is_the_session_s_though_its_mac_is_not_any_more),
		cmocka_unit_test(a_key_of_another_session_is_refused_by_its_name_and_the_old_key_goes_on),
		cmocka_unit_test(one_put_after_the_other_ends_with_the_last),
		cmocka_unit_test(siblings_move_one_after_the_other_in_any_order_and_disturb_no_session),
		cmocka_unit_test(a_sibling_changes_its_number_unless_another_has_it),
		cmocka_unit_test(a_session_of_frames_changes_the_tags_of_its_access),
		cmocka_unit_test(a_late_observation_of_frames_writes_nothing),
		// The last: its worker ends with it.
		cmocka_unit_test(no_frame_is_a_mixture_of_two_keys_while_a_worker_sends),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
