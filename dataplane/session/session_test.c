// SPDX-License-Identifier: Apache-2.0
// Sessions come, change and go: each key that leads to a session leads to a complete one.
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

// ---- A core in front of GTP-U's that checks the session at every call.

static unsigned bound, removed;
static bool
observer_takes(const Sluice__V1__Session *spec)
{
	return spec->core_case == SLUICE__V1__SESSION__CORE_GTPU;
}

static struct session_core observer;

// GTP-U's core: the next of those registered that takes the same sessions.
static const struct session_core *
observed(void)
{
	const Sluice__V1__Session tunnelled_by_gtpu = {.core_case = SLUICE__V1__SESSION__CORE_GTPU};
	const struct session_core *core = observer.next;

	while (!core->takes(&tunnelled_by_gtpu))
		core = core->next;
	return core;
}

static int
observe_put(uint32_t session, const void *spec, uint32_t *core, const struct node **encap, struct fault *f)
{
	return observed()->put(session, spec, core, encap, f);
}

// A packet with the session's index now must find a complete record.
static void
assert_whole(uint32_t session)
{
	const struct session *s = session_at(session);
	const uint8_t address4[4] = {100, 64, 0, 2}, address6[16] = {0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, [15] = 9};

	assert_int_equal(chain_steps[s->down4].node, session_out_node.id);
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
	return observed()->bind(core, old, f);
}

static void
observe_remove(uint32_t core)
{
	assert_whole(gtpu_session_of(core));
	removed++;
	observed()->remove(core);
}

static struct session_core observer = {
	.takes = observer_takes,
	.put = observe_put,
	.bind = observe_bind,
	.remove = observe_remove,
};

static int
start(void **state)
{
	// The newest of a kind is called.
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

// ---- Packets that do not pass.

static const struct subscriber unresolved = {
	.name = "unresolved", .address4 = "100.64.0.7/32", .outer = 100, .inner = 7, .mtu = 1280};

static void
packets_waiting_for_an_ethernet_address_are_named_drops_when_the_session_goes(void **state)
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

// By a packet, and by ARP.
static void
a_session_does_not_learn_an_ethernet_address_that_no_subscriber_can_have(void **state)
{
	static const struct {
		const char *drop;
		uint8_t mac[6];
	} cases[] = {{"session-mac-invalid", {0}}, {"session-mac-invalid", {2, 0, 0, 0, 0, 1}}, // the port's own
		{"source-mac-multicast", {3, 1, 0, 0, 0, 9}}, {"source-mac-multicast", {255, 255, 255, 255, 255, 255}}};
	const struct subscriber learning = {.name = "learning", .address4 = "100.64.0.5/32", .outer = 100, .inner = 5};
	uint8_t packet[256], arp[64], *end_of_packet, *end_of_arp;
	const struct session *s;
	uint64_t seen, before;
	uint32_t session;

	assert_int_equal(put_session(&learning), 0);
	session = session_of(object_find(&session_kind, "learning"));
	s = session_at(session);
	end_of_packet = write_packet4(write_access(packet, 100, 5, 0x0800), "100.64.0.5", "203.0.113.9", PAYLOAD);
	end_of_arp = write_word(write_word(write_access(arp, 100, 5, RTE_ETHER_TYPE_ARP), 1), 0x0800);
	end_of_arp = write_word(write_word(end_of_arp, 0x0604), 1);
	memcpy(end_of_arp, cases[1].mac, 6);
	memcpy(end_of_arp + 6, (const uint8_t[]){100, 64, 0, 5, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1}, 14);
	end_of_arp += 20;
	for (unsigned known = 0; known <= 1; known++) {
		seen = s->seen;
		assert_int_equal(session_mac_known(s), known);
		for (unsigned i = 0; i < RTE_DIM(cases); i++) {
			session_learn(session, cases[i].mac);
			assert_int_equal(s->seen, seen);
			memcpy(packet + 6, cases[i].mac, 6);
			before = dropped(cases[i].drop);
			receive("access", packet, (size_t)(end_of_packet - packet));
			assert_int_equal(s->seen, seen);
			// As long as no address is known, zeros are none that could be learned.
			assert_int_equal(dropped(cases[i].drop), before + (known || i > 0));
		}
		// From where it should be, and with another's in it.
		before = dropped("arp-own-mac");
		sent_count = 0;
		receive("access", arp, (size_t)(end_of_arp - arp));
		assert_int_equal(dropped("arp-own-mac"), before + 1);
		assert_int_equal(sent_count, 0);
		assert_int_equal(s->seen, seen);
		send_up(100, 5, "100.64.0.5");
		assert_int_equal(sent_to("core"), 1);
	}
	assert_int_equal(delete_session("learning"), 0);
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

// The narrower prefix of the scope decides, not the session's.
static void
a_session_with_a_wide_prefix_gets_no_packets_for_addresses_that_are_never_forwarded(void **state)
{
	static const struct {
		const char *to, *drop;
	} cases[] = {
		{"0.1.2.3", "this-network"},
		{"127.0.0.1", "loopback-destination"},
		{"169.254.1.1", "ip4-link-local"},
		{"239.1.2.3", "multicast"},
		{"240.0.0.1", "class-e"},
	};
	static const struct subscriber wide[] = {
		{.name = "wide", .mac = "02:01:00:00:00:09", .address4 = "0.0.0.0/1", .outer = 100, .inner = 8},
		{.name = "wide", .mac = "02:01:00:00:00:09", .address4 = "128.0.0.0/1", .outer = 100, .inner = 8},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		uint64_t before = dropped(cases[i].drop);

		assert_int_equal(put_session(&wide[i >= 2]), 0);
		send_down(i >= 2 ? "203.0.113.7" : "100.64.0.7", PAYLOAD);
		assert_int_equal(sent_to("access"), 1);
		send_down(cases[i].to, PAYLOAD);
		assert_int_equal(sent_to("access"), 0);
		assert_int_equal(dropped(cases[i].drop), before + 1);
	}
	assert_int_equal(delete_session("wide"), 0);
}

// Interface "core" has 192.0.2.1/24 and 2001:db8:c::1/64.
static void
a_session_with_an_address_that_an_interface_s_network_has_is_refused(void **state)
{
	static const struct {
		const char *address, *says;
	} cases[] = {
		{"192.0.2.255/32",
			"addresses[0]: \"192.0.2.255/32\" is the broadcast address of Interface \"core\" in VRF "
			"\"default\", so nothing is forwarded to the session; choose another address or VRF"},
		{"192.0.2.0/32", "\"192.0.2.0/32\" is the network address of Interface \"core\""},
		{"192.0.2.1/32", "\"192.0.2.1/32\" is an address of Interface \"core\""},
		{"192.0.2.0/24", "\"192.0.2.0/24\" is the network of Interface \"core\""},
		{"2001:db8:c::/128", "\"2001:db8:c::/128\" is the anycast address of routers of Interface \"core\""},
		{"2001:db8:c::1/128", "\"2001:db8:c::1/128\" is an address of Interface \"core\""},
	};
	static const char *const accepted[] = {"192.0.2.254/32", "192.0.2.0/25", "192.0.0.0/16", "2001:db8:c::9/128"};
	struct subscriber s = {.name = "beside", .mac = "02:01:00:00:00:09", .outer = 100, .inner = 8};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		s.address4 = cases[i].address;
		assert_int_equal(put_session(&s), -EEXIST);
		if (!strstr(fault_of_put.text, cases[i].says))
			fail_msg("\"%s\" does not contain %s", fault_of_put.text, cases[i].says);
		// Routes that were added before are removed again.
		s.address4 = "100.64.0.8/32";
		s.address6 = cases[i].address;
		assert_int_equal(put_session(&s), -EEXIST);
		s.address6 = NULL;
		assert_null(object_find(&session_kind, "beside"));
	}
	for (unsigned i = 0; i < RTE_DIM(accepted); i++) {
		s.address4 = accepted[i];
		assert_int_equal(put_session(&s), 0);
	}
	assert_int_equal(delete_session("beside"), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_tunnel_leads_to_a_session_before_its_record_is_whole_or_after_it_is_not),
		cmocka_unit_test(a_session_that_changes_its_teid_takes_packets_by_the_new_one_alone),
		cmocka_unit_test(a_teid_that_another_session_has_is_refused_and_stays_that_session_s),
		cmocka_unit_test(packets_waiting_for_an_ethernet_address_are_named_drops_when_the_session_goes),
		cmocka_unit_test(a_session_does_not_learn_an_ethernet_address_that_no_subscriber_can_have),
		cmocka_unit_test(
			a_packet_larger_than_the_session_s_mtu_that_may_not_be_cut_is_a_named_drop_and_its_sender_is_told),
		cmocka_unit_test(a_session_with_an_address_that_an_interface_s_network_has_is_refused),
		cmocka_unit_test(a_session_with_a_wide_prefix_gets_no_packets_for_addresses_that_are_never_forwarded),
		cmocka_unit_test(a_packet_without_room_for_the_access_header_is_a_named_drop),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
