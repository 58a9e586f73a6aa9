// SPDX-License-Identifier: Apache-2.0
// The sources that each GTP-U message is accepted from, and the drops of the others.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/fair.h"
#include "gtpu/gtpu.h"
#include "session/all_sessions.h"

enum { INNER = 20 + UDP + PAYLOAD, TEID4 = 20, TEID6 = 40 };

static const char here4[] = "192.0.2.1", here6[] = "2001:db8:c::1";

// The subscriber of VLANs 100 and `inner`; with a TEID, behind a tunnel.
static int
put_user(const char *name, const char *address, uint16_t inner, uint32_t teid, bool six, char **sources, size_t count)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;

	access.port = "access";
	access.outer_vlan = 100;
	access.inner_vlan = inner;
	access.mac = "02:01:00:00:00:09";
	session.access = &access;
	session.policy = &policy;
	session.addresses = (char *[]){(char *)address};
	session.n_addresses = 1;
	policy.any_source = teid == 0;
	if (teid) {
		gtpu.local_address = (char *)(six ? here6 : here4);
		gtpu.remote_address = six ? "2001:db8:c::2" : "192.0.2.2";
		gtpu.local_teid = teid;
		gtpu.remote_teid = teid + 1;
		gtpu.accepted_sources = sources;
		gtpu.n_accepted_sources = count;
		session.gtpu = &gtpu;
		session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	}
	return put("Session", name, &session);
}

static int
put_four(char **sources, size_t count)
{
	return put_user("four", "100.64.0.2/32", 2, TEID4, false, sources, count);
}

static int
put_six(char **sources, size_t count)
{
	return put_user("six", "100.64.0.3/32", 3, TEID6, true, sources, count);
}

static int
start(void **state)
{
	return all_sessions_start(1) || put_four(NULL, 0) || put_six(NULL, 0) ||
			       put_user("routed", "100.64.0.4/32", 4, 0, false, NULL, 0)
		       ? -1
		       : 0;
}

// A GTP-U message and, of a G-PDU, a packet to there.
struct message {
	const char *from;
	uint8_t type;
	uint32_t teid;
	const char *to;
	bool extension; // that must be understood
	bool unchecked; // without a UDP checksum
};

static uint8_t *
write_message(uint8_t *at, const struct message *message)
{
	unsigned extension = message->extension ? 8 : 0;

	*at++ = message->extension ? GTPU_VERSION_1 | GTPU_E : GTPU_VERSION_1;
	*at++ = message->type;
	at = write_word(at, (uint16_t)(extension + (message->to ? INNER : 0)));
	at = write_word(write_word(at, (uint16_t)(message->teid >> 16)), (uint16_t)message->teid);
	if (extension) {
		memcpy(at, (uint8_t[]){0, 0, 0, 0xc1, 1, 0, 0, 0}, 8);
		at += 8;
	}
	return message->to ? write_packet4(at, "203.0.113.9", message->to, PAYLOAD) : at;
}

// UDP over IPv6 with its checksum.
static void
sum6(uint8_t *ip, unsigned length)
{
	uint8_t *udp = ip + sizeof(struct ip6_header);
	uint16_t sum = (uint16_t)~checksum_fold(
		checksum_add(ip6_pseudo_sum(ip + 8, ip + 24, length, PROTOCOL_UDP), udp, length));

	memcpy(udp + 6, &sum, sizeof(sum));
}

// Behind an Ethernet header at `frame`. The end.
static uint8_t *
write_outer(uint8_t *at, const struct message *message)
{
	uint8_t gtpu[256], *ip = at;
	unsigned length = (unsigned)(write_message(gtpu, message) - gtpu);
	bool six = strchr(message->from, ':') != NULL;

	at = six ? write_ip6(at, message->from, here6, UDP + length)
		 : write_ip4(at, message->from, here4, UDP + length);
	at = write_udp(at, 40000, GTPU_PORT, length);
	memcpy(at, gtpu, length);
	if (six && !message->unchecked)
		sum6(ip, UDP + length);
	return at + length;
}

// From the core, and from the subscriber of the VLANs 100 and 4, whose policy allows any source.
static void
send_core(struct message message)
{
	uint8_t frame[512], *at = write_core(frame, strchr(message.from, ':') ? 0x86dd : 0x0800);

	at = write_outer(at, &message);
	sent_count = 0;
	receive("core", frame, (size_t)(at - frame));
}

static void
send_access(struct message message)
{
	uint8_t frame[512], *at = write_access(frame, 100, 4, strchr(message.from, ':') ? 0x86dd : 0x0800);

	at = write_outer(at, &message);
	sent_count = 0;
	receive("access", frame, (size_t)(at - frame));
}

// A message that is dropped by this name.
static void
drops(const char *drop, void (*send)(struct message), struct message message)
{
	uint64_t before = dropped(drop);

	send(message);
	assert_int_equal(dropped(drop), before + 1);
}

static const struct message to_four = {"192.0.2.2", GTPU_G_PDU, TEID4, "100.64.0.2"};
static const struct message to_six = {"2001:db8:c::2", GTPU_G_PDU, TEID6, "100.64.0.3"};

static struct message
from(const char *source, struct message message)
{
	message.from = source;
	return message;
}

static void
a_packet_of_a_tunnel_is_taken_from_its_peer_alone(void **state)
{
	send_core(to_four);
	assert_int_equal(sent_to("access"), 1);
	send_core(to_six);
	assert_int_equal(sent_to("access"), 1);
	// Neighbours of the peer's address, and of ours.
	drops("gtpu-wrong-peer", send_core, from("192.0.2.3", to_four));
	assert_int_equal(sent_count, 0);
	drops("gtpu-wrong-peer", send_core, from("198.51.100.2", to_four));
	drops("gtpu-wrong-peer", send_core, from("2001:db8:c::3", to_six));
	drops("gtpu-wrong-peer", send_core, from("2001:db8:d::2", to_six));
	assert_int_equal(sent_count, 0);
	// One TEID is known at one address of ours alone.
	drops("gtpu-unknown-teid", send_core, from("2001:db8:c::2", to_four));
	send_core(to_six);
	assert_int_equal(sent_to("access"), 1);
}

static void
a_peer_that_changes_is_the_only_one_from_then_on(void **state)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;

	access.port = "access";
	access.outer_vlan = 100;
	access.inner_vlan = 2;
	access.mac = "02:01:00:00:00:09";
	session.access = &access;
	session.addresses = (char *[]){"100.64.0.2/32"};
	session.n_addresses = 1;
	gtpu.local_address = (char *)here4;
	gtpu.remote_address = "192.0.2.7";
	gtpu.local_teid = TEID4;
	gtpu.remote_teid = TEID4 + 1;
	session.gtpu = &gtpu;
	session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	assert_int_equal(put("Session", "four", &session), 0);
	drops("gtpu-wrong-peer", send_core, to_four);
	send_core(from("192.0.2.7", to_four));
	assert_int_equal(sent_to("access"), 1);
	assert_int_equal(put_four(NULL, 0), 0);
	drops("gtpu-wrong-peer", send_core, from("192.0.2.7", to_four));
	send_core(to_four);
	assert_int_equal(sent_to("access"), 1);
}

static void
accepted_sources_are_taken_besides_the_peer(void **state)
{
	char *sources4[] = {"198.51.100.0/25", "203.0.113.77/32"}, *sources6[] = {"2001:db8:d::/48"};

	assert_int_equal(put_four(sources4, 2), 0);
	assert_int_equal(put_six(sources6, 1), 0);
	send_core(to_four);
	assert_int_equal(sent_to("access"), 1);
	send_core(from("198.51.100.127", to_four));
	assert_int_equal(sent_to("access"), 1);
	send_core(from("203.0.113.77", to_four));
	assert_int_equal(sent_to("access"), 1);
	drops("gtpu-wrong-peer", send_core, from("198.51.100.128", to_four));
	drops("gtpu-wrong-peer", send_core, from("203.0.113.78", to_four));
	send_core(from("2001:db8:d:1::9", to_six));
	assert_int_equal(sent_to("access"), 1);
	drops("gtpu-wrong-peer", send_core, from("2001:db8:e::9", to_six));
	// A session that no longer has them.
	assert_int_equal(put_four(NULL, 0), 0);
	assert_int_equal(put_six(NULL, 0), 0);
	drops("gtpu-wrong-peer", send_core, from("198.51.100.127", to_four));
	drops("gtpu-wrong-peer", send_core, from("2001:db8:d:1::9", to_six));
}

static void
accepted_sources_that_make_no_sense_are_refused_by_field(void **state)
{
	static const struct {
		char *source;
		const char *says;
	} cases[] = {
		{"192.0.2.1", "gtpu.acceptedSources[0]: \"192.0.2.1\" is not a prefix"},
		{"192.0.2.1/24", "gtpu.acceptedSources[0]: \"192.0.2.1/24\" is not a prefix"},
		{"2001:db8::/32", "gtpu.acceptedSources[0]: \"2001:db8::/32\" is not of the same IP version"},
	};
	char *many[17];

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		char *source = cases[i].source;

		assert_int_not_equal(put_four(&source, 1), 0);
		assert_non_null(strstr(fault_of_put.text, cases[i].says));
	}
	for (unsigned i = 0; i < RTE_DIM(many); i++)
		many[i] = "192.0.2.16/28";
	assert_int_not_equal(put_four(many, RTE_DIM(many)), 0);
	assert_non_null(strstr(fault_of_put.text, "gtpu.acceptedSources: 17 elements"));
}

static void
packets_from_a_subscriber_are_refused_for_any_accepted_sources(void **state)
{
	static const uint8_t types[] = {GTPU_G_PDU, GTPU_END_MARKER, GTPU_ECHO_REQUEST, GTPU_ECHO_RESPONSE,
		GTPU_ERROR_INDICATION, GTPU_SUPPORTED_EXTENSIONS};
	char *all4[] = {"0.0.0.0/0"}, *all6[] = {"::/0"};

	assert_int_equal(put_four(all4, 1), 0);
	assert_int_equal(put_six(all6, 1), 0);
	// Every host of the VRF, but not a subscriber: neither from an address of the subscriber's nor from that of the peer.
	send_core(from("203.0.113.5", to_four));
	assert_int_equal(sent_to("access"), 1);
	for (unsigned i = 0; i < RTE_DIM(types); i++) {
		struct message four = to_four, six = to_six;

		four.type = six.type = types[i];
		drops("gtpu-from-subscriber", send_access, from("100.64.0.4", four));
		drops("gtpu-from-subscriber", send_access, four);
		drops("gtpu-from-subscriber", send_access, six);
		assert_int_equal(sent_count, 0);
	}
	assert_int_equal(put_four(NULL, 0), 0);
	assert_int_equal(put_six(NULL, 0), 0);
}

static void
a_subscriber_adds_no_part_to_a_packet_of_the_peer(void **state)
{
	enum { FIRST = 48 };
	uint8_t whole[512], frame[512], *end = write_outer(whole, &to_four), *at;
	struct ip4_header ip;
	unsigned length = (unsigned)(end - whole) - 20;

	for (unsigned part = 0; part < 2; part++) {
		unsigned from = part * FIRST, size = part ? length - FIRST : FIRST;

		memcpy(&ip, whole, sizeof(ip));
		ip.id = htons(77);
		ip.fragment = htons((uint16_t)(from / 8 | (part ? 0 : IP4_MF)));
		ip.total_length = htons((uint16_t)(20 + size));
		ip.checksum = ip4_checksum(&ip);
		at = part ? write_access(frame, 100, 4, 0x0800) : write_core(frame, 0x0800);
		memcpy(at, &ip, sizeof(ip));
		memcpy(at + sizeof(ip), whole + 20 + from, size);
		sent_count = 0;
		receive(part ? "access" : "core", frame, (size_t)(at + 20 + size - frame));
	}
	walk();
	assert_int_equal(sent_count, 0);
}

static void
an_end_marker_is_taken_from_its_tunnel_s_peer_alone(void **state)
{
	struct message marker = to_four;

	marker.type = GTPU_END_MARKER;
	marker.to = NULL;
	drops("gtpu-wrong-peer", send_core, from("192.0.2.3", marker));
	drops("punt-not-watched", send_core, marker);
	assert_int_equal(sent_count, 0);
}

static void
an_error_indication_is_taken_from_peers_alone(void **state)
{
	struct message indication = {"192.0.2.3", GTPU_ERROR_INDICATION, 0, NULL};

	drops("gtpu-unknown-peer", send_core, indication);
	drops("gtpu-unknown-peer", send_core, from("2001:db8:c::3", indication));
	drops("punt-not-watched", send_core, from("192.0.2.2", indication));
	drops("punt-not-watched", send_core, from("2001:db8:c::2", indication));
	assert_int_equal(sent_count, 0);
}

static void
supported_extension_headers_are_notified_to_peers_alone(void **state)
{
	struct message unknown = to_four;

	unknown.extension = true;
	drops("gtpu-unknown-extension", send_core, unknown);
	assert_int_equal(sent_to("core"), 1);
	drops("gtpu-unknown-extension", send_core, from("192.0.2.3", unknown));
	assert_int_equal(sent_count, 0);
}

static void
an_echo_request_from_any_host_of_the_core_is_answered(void **state)
{
	struct message request = {"192.0.2.2", GTPU_ECHO_REQUEST, 0, NULL};

	send_core(request);
	assert_int_equal(sent_to("core"), 1);
	send_core(from("203.0.113.8", request));
	assert_int_equal(sent_to("core"), 1);
}

// Section 7.3.1.
static void
of_messages_for_an_unknown_teid_only_a_packet_is_answered(void **state)
{
	struct message unknown = {"192.0.2.2", GTPU_G_PDU, 77, "100.64.0.2"};

	drops("gtpu-unknown-teid", send_core, unknown);
	assert_int_equal(sent_to("core"), 1);
	unknown.teid = 0;
	drops("gtpu-unknown-teid", send_core, unknown);
	assert_int_equal(sent_count, 0);
	unknown = (struct message){"192.0.2.2", GTPU_END_MARKER, 77, NULL};
	drops("gtpu-unknown-teid", send_core, unknown);
	assert_int_equal(sent_count, 0);
	drops("gtpu-unknown-teid", send_core, from("2001:db8:c::2", unknown));
	assert_int_equal(sent_count, 0);
}

static void
over_ipv6_only_a_packet_of_a_tunnel_may_lack_a_checksum(void **state)
{
	static const uint8_t types[] = {GTPU_ECHO_REQUEST, GTPU_ECHO_RESPONSE, GTPU_ERROR_INDICATION, GTPU_END_MARKER,
		GTPU_SUPPORTED_EXTENSIONS};
	struct message message = to_six;

	message.unchecked = true;
	send_core(message);
	assert_int_equal(sent_to("access"), 1);
	drops("gtpu-wrong-peer", send_core, from("2001:db8:c::3", message));
	message.extension = true;
	drops("gtpu-no-checksum", send_core, message);
	assert_int_equal(sent_count, 0);
	message.extension = false;
	message.teid = 77;
	drops("gtpu-no-checksum", send_core, message);
	assert_int_equal(sent_count, 0);
	for (unsigned i = 0; i < RTE_DIM(types); i++) {
		message = (struct message){"2001:db8:c::2", types[i], TEID6, NULL, .unchecked = true};
		drops("gtpu-no-checksum", send_core, message);
		assert_int_equal(sent_count, 0);
	}
	// Over IPv4 none is needed (RFC 768).
	send_core((struct message){"192.0.2.2", GTPU_ECHO_REQUEST, 0, NULL});
	assert_int_equal(sent_to("core"), 1);
}

// A peer whose error indications are limited leaves some to others.
static void
a_flood_of_unknown_teids_of_one_peer_leaves_answers_to_another(void **state)
{
	unsigned answered = 0;

	for (unsigned i = 0; i < 4000; i++) {
		send_core((struct message){"203.0.113.77", GTPU_G_PDU, 1000 + i, "100.64.0.2"});
		answered += sent_to("core");
	}
	assert_in_range(answered, 1, 2000);
	drops("gtpu-unknown-teid", send_core, (struct message){"192.0.2.2", GTPU_G_PDU, 77, "100.64.0.2"});
	assert_int_equal(sent_to("core"), 1);
}

static void
a_flood_of_echo_requests_of_one_host_leaves_responses_to_another(void **state)
{
	uint64_t before = dropped("gtpu-echo-rate-limited");
	unsigned answered = 0;

	for (unsigned i = 0; i < 4000; i++) {
		send_core((struct message){"203.0.113.78", GTPU_ECHO_REQUEST, 0, NULL});
		answered += sent_to("core");
	}
	assert_in_range(answered, 1, 3999);
	assert_int_equal(dropped("gtpu-echo-rate-limited"), before + 4000 - answered);
	send_core((struct message){"192.0.2.2", GTPU_ECHO_REQUEST, 0, NULL});
	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(sent[0].queue, QUEUE_OF_REPLIES);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_packet_of_a_tunnel_is_taken_from_its_peer_alone),
		cmocka_unit_test(a_peer_that_changes_is_the_only_one_from_then_on),
		cmocka_unit_test(accepted_sources_are_taken_besides_the_peer),
		cmocka_unit_test(accepted_sources_that_make_no_sense_are_refused_by_field),
		cmocka_unit_test(packets_from_a_subscriber_are_refused_for_any_accepted_sources),
		cmocka_unit_test(a_subscriber_adds_no_part_to_a_packet_of_the_peer),
		cmocka_unit_test(an_end_marker_is_taken_from_its_tunnel_s_peer_alone),
		cmocka_unit_test(an_error_indication_is_taken_from_peers_alone),
		cmocka_unit_test(supported_extension_headers_are_notified_to_peers_alone),
		cmocka_unit_test(an_echo_request_from_any_host_of_the_core_is_answered),
		cmocka_unit_test(of_messages_for_an_unknown_teid_only_a_packet_is_answered),
		cmocka_unit_test(a_flood_of_unknown_teids_of_one_peer_leaves_answers_to_another),
		cmocka_unit_test(a_flood_of_echo_requests_of_one_host_leaves_responses_to_another),
		cmocka_unit_test(over_ipv6_only_a_packet_of_a_tunnel_may_lack_a_checksum),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
