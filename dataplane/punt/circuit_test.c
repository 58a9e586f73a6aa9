// SPDX-License-Identifier: Apache-2.0
// The whole graph with packets of circuits without a session.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/punt_watch.h"
#include "pppoe/header.h"
#include "punt.pb-c.h"
#include "punt/table.h"
#include "session/all_sessions.h"

enum { TO_US, TO_ALL, TO_ANOTHER, UNICAST_RATE = 100000, MANY_RATE = 1000000 };

static char reason[32];
static uint8_t seen[2048];
static uint32_t seen_length, seen_count, seen_session;

// Stands in for the watching clients.
static void
catch_punt(struct rte_mbuf *m, const struct punt *why)
{
	struct packet *p = packet_of(m);

	packet_advance(m, -(int)p->l2_length);
	snprintf(reason, sizeof(reason), "%s", why->name);
	seen_length = m->pkt_len;
	seen_session = p->session;
	memcpy(seen, rte_pktmbuf_mtod(m, void *), seen_length);
	seen_count++;
	rte_pktmbuf_free(m);
}

static int
put_punt(const char *name, const char *port, char *outer, char *inner, unsigned protocols, unsigned rate, unsigned each)
{
	Sluice__V1__Punt spec = SLUICE__V1__PUNT__INIT;
	Sluice__V1__PuntProtocol list[7];

	for (unsigned i = 0; i < 7; i++)
		if (protocols >> i & 1)
			list[spec.n_protocols++] = (Sluice__V1__PuntProtocol)i;
	spec.port = (char *)port;
	spec.outer_vlans = &outer;
	spec.n_outer_vlans = outer ? 1 : 0;
	spec.inner_vlans = &inner;
	spec.n_inner_vlans = inner ? 1 : 0;
	spec.protocols = list;
	spec.rate = rate;
	spec.rate_per_mac = each;
	return put("Punt", name, &spec);
}

static int
start(void **state)
{
	if (all_sessions_start(1))
		return -1;
	punt_watch(catch_punt);
	return put_punt("untagged", "access", NULL, NULL, 0x3f, MANY_RATE, UNICAST_RATE) ||
	       put_punt("single", "access", "100-200", NULL, 0x3f, MANY_RATE, UNICAST_RATE) ||
	       put_punt("double", "access", "100-200", "1-100", 0x3f, MANY_RATE, UNICAST_RATE);
}

struct tag {
	uint16_t tpid, vlan;
};

struct example {
	const char *reason;
	uint16_t type;
	unsigned length;
	uint8_t bytes[64];
};

// The bytes behind the Ethernet type, all fixed headers and no more.
static const struct example examples[] = {
	{"dhcp4", 0x0800, 28, {0x45, [9] = 17, [20] = 0, 68, 0, 67}},
	{"dhcp4", 0x0800, 32, {0x46, [9] = 17, [24] = 0, 68, 0, 67}},
	{"dhcp6", 0x86dd, 48, {0x60, [6] = 17, [40] = 2, 34, 2, 35}},
	{"arp", 0x0806, 28, {0, 1, 8, 0, 6, 4, 0, 1}},
	{"nd", 0x86dd, 48, {0x60, [6] = 58, [40] = 133}},
	{"nd", 0x86dd, 48, {0x60, [6] = 58, [40] = 135}},
	{"first-packet", 0x0800, 20, {0x45, [9] = 6}},
	{"first-packet", 0x0800, 28, {0x45, [9] = 17, [20] = 0, 68, 0, 66}},
	{"first-packet", 0x86dd, 40, {0x60, [6] = 6}},
	{"first-packet", 0x86dd, 48, {0x60, [6] = 58, [40] = 134}},
	{"first-packet", 0x86dd, 48, {0x60, [6] = 17, [40] = 2, 34, 2, 34}},
	// A fragment has no ports that identify its protocol.
	{"first-packet", 0x0800, 20, {0x45, [6] = 0x20, [9] = 17}},
	{"pppoe-discovery", 0x8863, 10, {0x11, PPPOE_PADI, 0, 0, 0, 4, 1, 1}},
	{"pppoe-discovery", 0x8863, 10, {0x11, PPPOE_PADT, 0, 9, 0, 4, 1, 1}},
};

static uint32_t source;

static unsigned
write_frame(uint8_t *frame, unsigned to, const struct tag *tags, unsigned count, const struct example *e)
{
	uint8_t *at = frame;

	memcpy(at, "\x02\0\0\0\0\x01", 6);
	if (to == TO_ALL)
		memset(at, 0xff, 6);
	if (to == TO_ANOTHER)
		at[5]++;
	// Each of another MAC, for which no limit is used up.
	source++;
	memcpy(at + 6, "\x02\x05", 2);
	memcpy(at + 8, &source, 4);
	at += 12;
	for (unsigned i = 0; i < count; i++)
		at = write_word(write_word(at, tags[i].tpid), tags[i].vlan);
	at = write_word(at, e->type);
	memcpy(at, e->bytes, e->length);
	return (unsigned)(at - frame) + e->length;
}

static void
assert_taken(const char *why, const uint8_t *frame, unsigned length)
{
	seen_count = 0;
	receive("access", frame, length);
	assert_int_equal(seen_count, 1);
	assert_string_equal(reason, why);
	assert_int_equal(seen_length, length);
	assert_memory_equal(seen, frame, length);
	assert_int_equal(seen_session, NO_SESSION);
}

static void
assert_dropped(const char *why, const uint8_t *frame, unsigned length)
{
	uint64_t before = dropped(why);

	seen_count = 0;
	receive("access", frame, length);
	assert_int_equal(seen_count, 0);
	assert_int_equal(dropped(why), before + 1);
}

static void
every_protocol_goes_up_with_its_tags_of_any_tpid(void **state)
{
	static const uint16_t tpids[] = {0x8100, 0x88a8, 0x9100};
	uint8_t frame[128];

	for (unsigned e = 0; e < RTE_DIM(examples); e++) {
		const struct tag priority[] = {{0x8100, 5 << 13}};

		assert_taken(examples[e].reason, frame, write_frame(frame, TO_US, NULL, 0, &examples[e]));
		assert_taken(examples[e].reason, frame, write_frame(frame, TO_US, priority, 1, &examples[e]));
		for (unsigned i = 0; i < 3; i++) {
			const struct tag one[] = {{tpids[i], 150 | 3 << 13}};

			assert_taken(examples[e].reason, frame, write_frame(frame, TO_US, one, 1, &examples[e]));
		}
		for (unsigned i = 0; i < 9; i++) {
			const struct tag two[] = {{tpids[i / 3], 100}, {tpids[i % 3], 100}};

			assert_taken(examples[e].reason, frame, write_frame(frame, TO_US, two, 2, &examples[e]));
		}
	}
}

static void
a_circuit_that_no_punt_covers_stays_unknown(void **state)
{
	static const struct tag outer[] = {{0x8100, 99}}, inner[] = {{0x8100, 100}, {0x8100, 101}},
				above[] = {{0x8100, 201}};
	uint8_t frame[128];

	for (unsigned e = 0; e < RTE_DIM(examples); e++) {
		assert_dropped("unknown-circuit", frame, write_frame(frame, TO_US, outer, 1, &examples[e]));
		assert_dropped("unknown-circuit", frame, write_frame(frame, TO_US, above, 1, &examples[e]));
		assert_dropped("unknown-circuit", frame, write_frame(frame, TO_US, inner, 2, &examples[e]));
	}
}

static void
a_broadcast_goes_up_unless_it_is_only_a_first_packet(void **state)
{
	uint8_t frame[128];

	for (unsigned e = 0; e < RTE_DIM(examples); e++) {
		unsigned length = write_frame(frame, TO_ALL, NULL, 0, &examples[e]);

		if (strcmp(examples[e].reason, "first-packet") == 0)
			assert_dropped("unknown-circuit", frame, length);
		else
			assert_taken(examples[e].reason, frame, length);
		length = write_frame(frame, TO_ANOTHER, NULL, 0, &examples[e]);
		assert_dropped("not-our-mac", frame, length);
	}
}

static void
only_the_protocols_of_the_punt_go_up(void **state)
{
	const struct tag tags[] = {{0x8100, 300}};
	uint8_t frame[128];

	for (unsigned only = 0; only < 6; only++) {
		assert_int_equal(put_punt("only", "access", "300", NULL, 1u << only, MANY_RATE, UNICAST_RATE), 0);
		for (unsigned e = 0; e < RTE_DIM(examples); e++) {
			static const char *const names[] = {
				"pppoe-discovery", "dhcp4", "dhcp6", "arp", "nd", "first-packet"};
			unsigned length = write_frame(frame, TO_US, tags, 1, &examples[e]);

			if (strcmp(names[only], examples[e].reason) == 0)
				assert_taken(examples[e].reason, frame, length);
			else
				assert_dropped("unknown-circuit", frame, length);
		}
	}
	assert_int_equal(object_delete("Punt", "only", &fault_of_put), 0);
}

static void
every_truncation_is_a_named_drop(void **state)
{
	const struct tag tags[] = {{0x88a8, 100}, {0x8100, 7}};
	uint8_t frame[128];

	for (unsigned e = 0; e < RTE_DIM(examples); e++) {
		unsigned length = write_frame(frame, TO_US, tags, 2, &examples[e]);

		for (unsigned cut = 14; cut < length; cut++)
			assert_dropped(cut < 22                     ? "frame-too-short"
				       : examples[e].type == 0x8863 ? "pppoe-discovery-malformed"
								    : "unknown-circuit",
				frame, cut);
	}
}

static void
a_header_that_is_longer_than_its_packet_is_no_packet(void **state)
{
	static const struct example wrong[] = {
		{"", 0x0800, 28, {0x44, [9] = 17, [20] = 0, 68, 0, 67}},
		{"", 0x0800, 28, {0x4f, [9] = 17, [20] = 0, 68, 0, 67}},
		{"", 0x0800, 28, {0x65, [9] = 17, [20] = 0, 68, 0, 67}},
		{"", 0x86dd, 48, {0x45, [6] = 17, [40] = 2, 34, 2, 35}},
		{"", 0x1234, 48, {0}},
		// Any header but UDP's in front of the ports: the agent does not look for them either.
		{"", 0x0806, 27, {0, 1, 8, 0, 6, 4, 0, 1}},
	};
	uint8_t frame[128];

	for (unsigned i = 0; i < RTE_DIM(wrong); i++)
		assert_dropped("unknown-circuit", frame, write_frame(frame, TO_US, NULL, 0, &wrong[i]));
}

static void
a_circuit_with_a_session_or_an_interface_is_not_for_punts(void **state)
{
	const struct subscriber s = {
		.name = "ipoe", .mac = "02:05:ff:ff:ff:ff", .address4 = "100.64.0.1/32", .outer = 150};
	const struct tag tags[] = {{0x8100, 150}};
	uint8_t frame[128];
	unsigned length;

	assert_int_equal(put_session(&s), 0);
	length = write_frame(frame, TO_US, tags, 1, &examples[6]);
	// A MAC without a session on the same VLAN is unknown.
	assert_taken("first-packet", frame, length);
	memset(frame + 8, 0xff, 4);
	assert_dropped("ip4-header-length", frame, length);
	assert_int_equal(delete_session("ipoe"), 0);
	assert_taken("first-packet", frame, length);
}

static void
a_padt_of_a_session_needs_no_punt(void **state)
{
	const struct subscriber s = {.name = "pppoe",
		.mac = "02:05:ff:ff:ff:ff",
		.address4 = "100.64.0.1/32",
		.outer = 500,
		.inner = 1,
		.pppoe = 9};
	const struct tag tags[] = {{0x8100, 500}, {0x8100, 1}};
	uint8_t frame[128];
	unsigned length = write_frame(frame, TO_US, tags, 2, &examples[13]);

	assert_dropped("unknown-circuit", frame, length);
	assert_int_equal(put_session(&s), 0);
	seen_count = 0;
	receive("access", frame, length);
	assert_int_equal(seen_count, 1);
	assert_string_equal(reason, "pppoe-discovery");
	assert_int_not_equal(seen_session, NO_SESSION);
	// Of another id, and a PADI.
	frame[25]++;
	assert_dropped("unknown-circuit", frame, length);
	length = write_frame(frame, TO_US, tags, 2, &examples[12]);
	assert_dropped("unknown-circuit", frame, length);
	assert_int_equal(delete_session("pppoe"), 0);
}

// LCP of session 9: a Configure-Request without options.
static const struct example control = {"ppp-control", 0x8864, 14, {0x11, 0, 0, 9, 0, 6, 0xc0, 0x21, 1, 1, 0, 4}};

static void
ppp_of_a_session_that_does_not_exist_goes_up_where_a_punt_takes_it(void **state)
{
	const struct tag tags[] = {{0x8100, 600}, {0x8100, 1}};
	static const uint16_t protocols[] = {0xc021, 0xc023, 0xc223, 0xc227, 0x8021, 0x8057, 0x80fd, 0x805b, 0x005b};
	uint8_t frame[128];
	unsigned length = write_frame(frame, TO_US, tags, 2, &control);

	assert_dropped("pppoe-unknown-session", frame, length);
	assert_int_equal(put_punt("discovery", "access", "600", "1", 1, MANY_RATE, UNICAST_RATE), 0);
	assert_dropped("pppoe-unknown-session", frame, length);
	assert_int_equal(put_punt("control", "access", "600", "1", 1 << 6, MANY_RATE, UNICAST_RATE), 0);
	for (unsigned i = 0; i < RTE_DIM(protocols); i++) {
		length = write_frame(frame, TO_US, tags, 2, &control);
		write_word(frame + 22 + 6, protocols[i]);
		assert_taken("ppp-control", frame, length);
	}
	// Their payload is dropped as before, and so is session 0.
	write_word(frame + 22 + 6, 0x0021);
	assert_dropped("pppoe-unknown-session", frame, length);
	write_word(frame + 22 + 6, 0xc021);
	write_word(frame + 22 + 2, 0);
	assert_dropped("pppoe-malformed", frame, length);
	for (unsigned cut = 22; cut < length - 2; cut++) {
		write_frame(frame, TO_US, tags, 2, &control);
		assert_dropped("pppoe-malformed", frame, cut);
	}
	assert_int_equal(object_delete("Punt", "control", &fault_of_put), 0);
	assert_int_equal(object_delete("Punt", "discovery", &fault_of_put), 0);
}

static void
ppp_of_a_session_is_named_with_it(void **state)
{
	const struct subscriber s = {.name = "ppp",
		.mac = "02:05:ff:ff:ff:ff",
		.address4 = "100.64.0.1/32",
		.outer = 600,
		.inner = 1,
		.pppoe = 9};
	const struct tag tags[] = {{0x8100, 600}, {0x8100, 1}};
	uint8_t frame[128];
	unsigned length = write_frame(frame, TO_US, tags, 2, &control);

	assert_int_equal(put_session(&s), 0);
	seen_count = 0;
	receive("access", frame, length);
	assert_int_equal(seen_count, 1);
	assert_string_equal(reason, "ppp-control");
	assert_int_not_equal(seen_session, NO_SESSION);
	assert_int_equal(delete_session("ppp"), 0);
}

static void
a_mac_that_floods_with_ppp_leaves_room_for_another(void **state)
{
	const struct tag tags[] = {{0x8100, 601}};
	uint8_t flood[128], frame[128];
	unsigned length;

	assert_int_equal(put_punt("few", "access", "601", NULL, 1 << 6, 40, 4), 0);
	length = write_frame(flood, TO_US, tags, 1, &control);
	seen_count = 0;
	for (unsigned i = 0; i < 1000; i++)
		receive("access", flood, length);
	assert_in_range(seen_count, 1, 200);
	assert_taken("ppp-control", frame, write_frame(frame, TO_US, tags, 1, &control));
	assert_int_equal(object_delete("Punt", "few", &fault_of_put), 0);
}

static void
a_mac_that_floods_leaves_room_for_another(void **state)
{
	const struct tag tags[] = {{0x8100, 400}};
	uint8_t flood[128], frame[128];
	unsigned length, floods = 0;
	uint64_t before = dropped("punt-circuit-rate-limited");

	assert_int_equal(put_punt("few", "access", "400", NULL, 0x3f, 40, 4), 0);
	length = write_frame(flood, TO_US, tags, 1, &examples[0]);
	seen_count = 0;
	for (unsigned i = 0; i < 1000; i++)
		receive("access", flood, length);
	floods = seen_count;
	assert_in_range(floods, 1, 200);
	assert_int_equal(dropped("punt-circuit-rate-limited"), before + 1000 - floods);
	assert_taken("dhcp4", frame, write_frame(frame, TO_US, tags, 1, &examples[0]));
	assert_int_equal(object_delete("Punt", "few", &fault_of_put), 0);
	assert_dropped("unknown-circuit", flood, length);
}

static void
a_circuit_that_floods_from_ever_new_macs_has_a_rate_of_its_own(void **state)
{
	const struct tag flooding[] = {{0x8100, 402}}, other[] = {{0x8100, 403}};
	char outer[] = "402-403", *ranges[] = {outer};
	Sluice__V1__PuntProtocol protocol = SLUICE__V1__PUNT_PROTOCOL__DHCP4;
	Sluice__V1__Punt spec = SLUICE__V1__PUNT__INIT;
	uint8_t frame[128];
	unsigned length = 0;

	spec.port = (char *)"access";
	spec.outer_vlans = ranges;
	spec.n_outer_vlans = 1;
	spec.protocols = &protocol;
	spec.n_protocols = 1;
	spec.rate = MANY_RATE;
	spec.rate_per_mac = UNICAST_RATE;
	spec.rate_per_circuit = 40;
	assert_int_equal(put("Punt", "circuits", &spec), 0);
	seen_count = 0;
	for (unsigned i = 0; i < 1000; i++) {
		length = write_frame(frame, TO_US, flooding, 1, &examples[0]);
		receive("access", frame, length);
	}
	assert_in_range(seen_count, 1, 200);
	assert_taken("dhcp4", frame, write_frame(frame, TO_US, other, 1, &examples[0]));
	assert_int_equal(object_delete("Punt", "circuits", &fault_of_put), 0);
}

// A protocol of another concept than punt/: LLDP, by its first TLV.
static bool
is_lldp(const uint8_t *bytes)
{
	return bytes[0] == 2;
}

static struct punt_protocol test_lldp = {.name = "test-lldp", .ether_type = 0x88cc, .length = 4, .takes = is_lldp};
PUNT_PROTOCOL_REGISTER(test_lldp)

static void
a_concept_registers_a_protocol_of_its_own(void **state)
{
	uint8_t frame[64] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xcc, 2};

	assert_ptr_equal(punt_protocol_of(frame, 18, 14), &test_lldp);
	assert_null(punt_protocol_of(frame, 17, 14));
	frame[14] = 3;
	assert_null(punt_protocol_of(frame, 18, 14));
	// PuntProtocol has no such value, so no Punt takes it.
	assert_int_equal(test_lldp.number, PUNT_PROTOCOLS_MAX);
	assert_null(punt_find(port_number("access"), 0, 0, test_lldp.number));
	frame[14] = 2;
	assert_dropped("unknown-circuit", frame, 60);
	assert_string_equal(punt_protocol_name(SLUICE__V1__PUNT_PROTOCOL__FIRST_PACKET), "first-packet");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_protocol_goes_up_with_its_tags_of_any_tpid),
		cmocka_unit_test(a_circuit_that_no_punt_covers_stays_unknown),
		cmocka_unit_test(a_broadcast_goes_up_unless_it_is_only_a_first_packet),
		cmocka_unit_test(only_the_protocols_of_the_punt_go_up),
		cmocka_unit_test(every_truncation_is_a_named_drop),
		cmocka_unit_test(a_header_that_is_longer_than_its_packet_is_no_packet),
		cmocka_unit_test(a_circuit_with_a_session_or_an_interface_is_not_for_punts),
		cmocka_unit_test(a_padt_of_a_session_needs_no_punt),
		cmocka_unit_test(ppp_of_a_session_that_does_not_exist_goes_up_where_a_punt_takes_it),
		cmocka_unit_test(ppp_of_a_session_is_named_with_it),
		cmocka_unit_test(a_mac_that_floods_with_ppp_leaves_room_for_another),
		cmocka_unit_test(a_mac_that_floods_leaves_room_for_another),
		cmocka_unit_test(a_circuit_that_floods_from_ever_new_macs_has_a_rate_of_its_own),
		cmocka_unit_test(a_concept_registers_a_protocol_of_its_own),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
