// Sessions come, change and go: what leads to a session leads to a whole one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gtpu/tunnel.h"
#include "session/all_sessions.h"
#include "session/record.h"

static const struct subscriber routed = {
	.name = "routed", .mac = "02:01:00:00:00:09", .address4 = "100.64.0.1/32", .outer = 100, .inner = 1};
static const struct subscriber tunnelled = {.name = "tunnelled",
	.mac = "02:01:00:00:00:09",
	.address4 = "100.64.0.2/32",
	.address6 = "2001:db8:1::/64",
	.outer = 100,
	.inner = 2,
	.teid = 20};

// ---- A core in front of GTP-U's that looks at the session whenever it is told something.

static unsigned bound, removed;
static struct session_core observer;

static int
observe_put(uint32_t session, const void *spec, uint32_t *core, const struct node **encap, struct fault *f)
{
	return observer.next->put(session, spec, core, encap, f);
}

// Whoever comes by the session's index now must find all that a packet needs.
static void
assert_whole(uint32_t session)
{
	const struct session *s = session_at(session);
	const uint8_t address4[4] = {100, 64, 0, 2}, address6[16] = {0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, [15] = 9};

	assert_int_equal(s->down4 & 0xff, session_out_node.id);
	assert_int_not_equal(s->up4, 0);
	assert_int_not_equal(s->up6, 0);
	assert_int_not_equal(s->mtu, 0);
	assert_true(session_details[session].has_core);
	assert_true(session_holds(session, 4, address4));
	assert_true(session_holds(session, 6, address6));
}

static int
observe_bind(uint32_t core, uint32_t old, struct fault *f)
{
	if (bound == 0) {
		send_tunnelled(20, "100.64.0.2");
		assert_int_equal(sent_to("access"), 0);
	}
	assert_whole(gtpu_session_of(core));
	bound++;
	return observer.next->bind(core, old, f);
}

static void
observe_remove(uint32_t core)
{
	assert_whole(gtpu_session_of(core));
	removed++;
	observer.next->remove(core);
}

static struct session_core observer = {
	.which = SLUICE__V1__SESSION__CORE_GTPU,
	.put = observe_put,
	.bind = observe_bind,
	.remove = observe_remove,
};

static int
start(void **state)
{
	// The newest of a kind is the one that is asked.
	session_core_register(&observer);
	return all_sessions_start(1);
}

static void
no_tunnel_leads_to_a_session_before_its_record_is_whole_or_after_it_is_not(void **state)
{
	uint64_t ended = dropped("chain-ended");

	bound = removed = 0;
	assert_int_equal(put_session(&tunnelled), 0);
	assert_int_equal(bound, 1);
	send_tunnelled(20, "100.64.0.2");
	assert_int_equal(sent_to("access"), 1);
	assert_int_equal(delete_session("tunnelled"), 0);
	assert_int_equal(removed, 1);
	send_tunnelled(20, "100.64.0.2");
	assert_int_equal(dropped("chain-ended"), ended);
}

static void
a_session_that_changes_its_teid_takes_packets_by_the_new_one_alone(void **state)
{
	struct subscriber other = tunnelled;
	uint64_t unknown;

	bound = removed = 0;
	assert_int_equal(put_session(&tunnelled), 0);
	other.teid = 30;
	assert_int_equal(put_session(&other), 0);
	assert_int_equal(bound, 2);
	assert_int_equal(removed, 1);
	send_tunnelled(30, "100.64.0.2");
	assert_int_equal(sent_to("access"), 1);
	unknown = dropped("gtpu-unknown-teid");
	send_tunnelled(20, "100.64.0.2");
	assert_int_equal(dropped("gtpu-unknown-teid"), unknown + 1);
	// The same again with something else changed: the TEID stays the session's.
	other.mtu = 1400;
	assert_int_equal(put_session(&other), 0);
	send_tunnelled(30, "100.64.0.2");
	assert_int_equal(sent_to("access"), 1);
	assert_int_equal(delete_session("tunnelled"), 0);
}

static void
a_teid_that_another_session_has_is_refused_and_stays_that_session_s(void **state)
{
	struct subscriber thief = routed;

	bound = removed = 0;
	assert_int_equal(put_session(&tunnelled), 0);
	assert_int_equal(put_session(&routed), 0);
	thief.teid = 20;
	assert_int_equal(put_session(&thief), -EEXIST);
	assert_non_null(strstr(fault_of_put.text, "gtpu.localTeid"));
	assert_non_null(strstr(fault_of_put.text, "\"tunnelled\""));
	send_tunnelled(20, "100.64.0.2");
	assert_int_equal(sent_to("access"), 1);
	send_down("100.64.0.1", PAYLOAD);
	assert_int_equal(sent_to("access"), 1);
	// And of a session that is not there yet, nothing stays.
	assert_int_equal(delete_session("routed"), 0);
	assert_int_equal(put_session(&thief), -EEXIST);
	send_up(100, 1, "100.64.0.1");
	assert_int_equal(sent_to("core"), 0);
	assert_int_equal(put_session(&routed), 0);
	assert_int_equal(delete_session("routed"), 0);
	assert_int_equal(delete_session("tunnelled"), 0);
}

// ---- What does not come through.

static const struct subscriber unresolved = {
	.name = "unresolved", .address4 = "100.64.0.7/32", .outer = 100, .inner = 7, .mtu = 1280};

static void
what_waits_for_a_subscriber_s_ethernet_address_when_its_session_goes_is_a_named_drop(void **state)
{
	uint64_t before = dropped("session-gone");

	assert_int_equal(put_session(&unresolved), 0);
	send_down("100.64.0.7", PAYLOAD);
	// It was asked for by ARP.
	assert_int_equal(sent_to("access"), 1);
	assert_int_equal(sent[0].bytes[QINQ - 2] << 8 | sent[0].bytes[QINQ - 1], 0x0806);
	send_down("100.64.0.7", PAYLOAD);
	assert_int_equal(dropped("session-gone"), before);
	assert_int_equal(delete_session("unresolved"), 0);
	assert_int_equal(dropped("session-gone"), before + 2);
}

static void
a_packet_larger_than_the_session_s_mtu_that_may_not_be_cut_is_a_named_drop_and_its_sender_is_told(void **state)
{
	uint8_t frame[2048], *ip = write_core(frame, 0x0800), *end;
	uint64_t before = dropped("session-mtu");
	struct ip4_header header;

	assert_int_equal(put_session(&unresolved), 0);
	send_up(100, 7, "100.64.0.7");
	end = write_packet4(ip, "203.0.113.9", "100.64.0.7", 1280);
	memcpy(&header, ip, sizeof(header));
	header.fragment = htons(IP4_DF);
	header.checksum = ip4_checksum(&header);
	memcpy(ip, &header, sizeof(header));
	sent_count = 0;
	receive("core", frame, (size_t)(end - frame));
	assert_int_equal(dropped("session-mtu"), before + 1);
	assert_int_equal(sent_to("access"), 0);
	assert_int_equal(sent_to("core"), 1);
	// ICMP unreachable, fragmentation needed.
	assert_int_equal(sent[0].bytes[14 + 20], 3);
	assert_int_equal(sent[0].bytes[14 + 21], 4);
	assert_int_equal(sent[0].bytes[14 + 26] << 8 | sent[0].bytes[14 + 27], 1280);
	// One that may be cut is.
	send_down("100.64.0.7", 1280);
	assert_int_equal(sent_to("access"), 2);
	assert_int_equal(delete_session("unresolved"), 0);
}

static void
a_packet_without_room_for_the_access_header_is_a_named_drop(void **state)
{
	uint64_t before = dropped("session-no-headroom");
	struct rte_mbuf *m = packet_new();

	assert_int_equal(put_session(&routed), 0);
	m->data_off = 31;
	write_packet4((uint8_t *)rte_pktmbuf_append(m, 20 + UDP + PAYLOAD), "203.0.113.9", "100.64.0.1", PAYLOAD);
	packet_of(m)->session = session_of(object_find(&session_kind, "routed"));
	packet_of(m)->family = 4;
	inject(m, &session_out_node);
	sent_count = 0;
	walk();
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("session-no-headroom"), before + 1);
	assert_int_equal(delete_session("routed"), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_tunnel_leads_to_a_session_before_its_record_is_whole_or_after_it_is_not),
		cmocka_unit_test(a_session_that_changes_its_teid_takes_packets_by_the_new_one_alone),
		cmocka_unit_test(a_teid_that_another_session_has_is_refused_and_stays_that_session_s),
		cmocka_unit_test(what_waits_for_a_subscriber_s_ethernet_address_when_its_session_goes_is_a_named_drop),
		cmocka_unit_test(
			a_packet_larger_than_the_session_s_mtu_that_may_not_be_cut_is_a_named_drop_and_its_sender_is_told),
		cmocka_unit_test(a_packet_without_room_for_the_access_header_is_a_named_drop),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
