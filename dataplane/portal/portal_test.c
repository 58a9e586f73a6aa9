// SPDX-License-Identifier: Apache-2.0
// Walled gardens in the whole graph: forwarded, punted and dropped packets.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "portal.pb-c.h"
#include "session/all_sessions.h"

enum { PORTS_AND_MORE = 20 };

#define MINE4 "100.64.0.1"
#define MINE6 "2001:db8:64::1"
#define PORTAL4 "198.51.100.80"
#define PORTAL6 "2001:db8:80::1"

static int
put_subscriber(const char *portal)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;

	access.port = "access";
	access.outer_vlan = 100;
	access.inner_vlan = 1;
	access.mac = "02:01:00:00:00:09";
	policy.portal = (char *)portal;
	session.access = &access;
	session.policy = &policy;
	session.addresses = (char *[]){MINE4 "/32", MINE6 "/128"};
	session.n_addresses = 2;
	return put("Session", "guest", &session);
}

static int
put_portal(const char *server, const char *third)
{
	Sluice__V1__Portal portal = SLUICE__V1__PORTAL__INIT;

	portal.url = "http://portal.example.net/";
	portal.allowed = (char *[]){PORTAL4 "/32", PORTAL6 "/128", (char *)third};
	portal.n_allowed = third ? 3 : 2;
	portal.name_servers = (char *[]){(char *)server};
	portal.n_name_servers = server != NULL;
	return put("Portal", "garden", &portal);
}

static int
start(void **state)
{
	return all_sessions_start(1) || put_portal(NULL, NULL) || put_subscriber("garden");
}

struct packet_of_host {
	const char *other;
	uint8_t protocol, type; // ICMP type
	uint16_t port;          // of the other host
};

static uint8_t *
write_packet(uint8_t *at, const struct packet_of_host *p, enum direction direction)
{
	bool six = strchr(p->other, ':') != NULL;
	const char *mine = six ? MINE6 : MINE4, *from = direction == UP ? mine : p->other,
		   *to = direction == UP ? p->other : mine;
	uint8_t *ip = at;

	if (six) {
		at = write_ip6(at, from, to, PORTS_AND_MORE);
		((struct ip6_header *)ip)->next_header = p->protocol;
	} else {
		struct ip4_header *header = (struct ip4_header *)ip;

		at = write_ip4(at, from, to, PORTS_AND_MORE);
		header->protocol = p->protocol;
		header->checksum = 0;
		header->checksum = ip4_checksum(header);
	}
	memset(at, 0, PORTS_AND_MORE);
	if (p->protocol == PROTOCOL_TCP || p->protocol == PROTOCOL_UDP)
		write_word(direction == UP ? at + 2 : at, p->port);
	else
		at[0] = p->type;
	return at + PORTS_AND_MORE;
}

static void
send_packet(const struct packet_of_host *p, enum direction direction)
{
	bool six = strchr(p->other, ':') != NULL;
	uint16_t type = six ? 0x86dd : 0x0800;
	uint8_t frame[256], *at = direction == UP ? write_access(frame, 100, 1, type) : write_core(frame, type);

	at = write_packet(at, p, direction);
	sent_count = 0;
	receive(direction == UP ? "access" : "core", frame, (size_t)(at - frame));
}

enum outcome { PASSES, REDIRECTED, DENIED, OURS };

static void
assert_outcome(const struct packet_of_host *p, enum direction direction, enum outcome outcome)
{
	uint64_t denied = dropped("portal-denied"), punted = dropped("punt-not-watched");

	send_packet(p, direction);
	assert_int_equal(sent_to(direction == UP ? "core" : "access"), outcome == PASSES);
	assert_int_equal(dropped("portal-denied") - denied, outcome == DENIED);
	assert_int_equal(dropped("punt-not-watched") - punted, outcome == REDIRECTED);
}

static void
a_subscriber_reaches_the_portal_and_name_servers_and_http_goes_to_the_agent(void **state)
{
	static const struct {
		struct packet_of_host packet;
		enum outcome outcome;
	} cases[] = {
		{{PORTAL4, PROTOCOL_TCP, 0, 443}, PASSES},
		{{PORTAL6, PROTOCOL_TCP, 0, 80}, PASSES},
		{{PORTAL4, PROTOCOL_ICMP, 8, 0}, PASSES},
		{{"203.0.113.9", PROTOCOL_UDP, 0, 53}, PASSES},
		{{"2001:db8:53::1", PROTOCOL_TCP, 0, 53}, PASSES},
		{{"203.0.113.9", PROTOCOL_TCP, 0, 80}, REDIRECTED},
		{{"2001:db8:9::9", PROTOCOL_TCP, 0, 80}, REDIRECTED},
		{{"203.0.113.9", PROTOCOL_UDP, 0, 80}, DENIED},
		{{"203.0.113.9", PROTOCOL_TCP, 0, 443}, DENIED},
		{{"2001:db8:9::9", PROTOCOL_TCP, 0, 443}, DENIED},
		{{"203.0.113.9", PROTOCOL_ICMP, 8, 0}, DENIED},
		{{"203.0.113.9", PROTOCOL_ICMP, 3, 0}, PASSES},
		{{"2001:db8:9::9", PROTOCOL_ICMP6, 128, 0}, DENIED},
		{{"2001:db8:9::9", PROTOCOL_ICMP6, 2, 0}, PASSES},
		{{"203.0.113.9", PROTOCOL_ESP, 0, 0}, DENIED},
		{{"192.0.2.1", PROTOCOL_ICMP, 8, 0}, OURS},
		{{"2001:db8:c::1", PROTOCOL_ICMP6, 128, 0}, OURS},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++)
		assert_outcome(&cases[i].packet, UP, cases[i].outcome);
}

static void
only_the_portal_name_servers_and_errors_reach_a_subscriber(void **state)
{
	static const struct {
		struct packet_of_host packet;
		enum outcome outcome;
	} cases[] = {
		{{PORTAL4, PROTOCOL_TCP, 0, 443}, PASSES},
		{{PORTAL6, PROTOCOL_TCP, 0, 80}, PASSES},
		{{"203.0.113.9", PROTOCOL_UDP, 0, 53}, PASSES},
		{{"203.0.113.9", PROTOCOL_TCP, 0, 80}, DENIED},
		{{"2001:db8:9::9", PROTOCOL_UDP, 0, 443}, DENIED},
		{{"203.0.113.9", PROTOCOL_ICMP, 11, 0}, PASSES},
		{{"2001:db8:9::9", PROTOCOL_ICMP6, 3, 0}, PASSES},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++)
		assert_outcome(&cases[i].packet, DOWN, cases[i].outcome);
}

static void
a_portal_changes_under_traffic(void **state)
{
	static const struct packet_of_host other = {"203.0.113.9", PROTOCOL_UDP, 0, 53},
					   server = {"198.51.101.53", PROTOCOL_UDP, 0, 53},
					   third = {"198.51.100.7", PROTOCOL_TCP, 0, 443};

	assert_outcome(&third, UP, DENIED);
	assert_int_equal(put_portal("198.51.101.53/32", "198.51.100.0/24"), 0);
	assert_outcome(&other, UP, DENIED);
	assert_outcome(&server, UP, PASSES);
	assert_outcome(&third, UP, PASSES);
	assert_int_equal(put_portal("198.51.101.53/24", NULL), -EINVAL);
	assert_non_null(strstr(fault_of_put.text, "nameServers[0]"));
	assert_int_equal(put_portal(NULL, NULL), 0);
}

static void
who_leaves_the_garden_reaches_everything(void **state)
{
	static const struct packet_of_host web = {"203.0.113.9", PROTOCOL_TCP, 0, 80},
					   other = {"2001:db8:9::9", PROTOCOL_UDP, 0, 443};

	assert_int_equal(object_delete("Portal", "garden", &fault_of_put), -EBUSY);
	assert_int_equal(put_subscriber(""), 0);
	assert_outcome(&web, UP, PASSES);
	assert_outcome(&other, DOWN, PASSES);
	assert_int_equal(put_subscriber("garden"), 0);
	assert_outcome(&web, UP, REDIRECTED);
	assert_outcome(&other, DOWN, DENIED);
}

static void
fragments_and_packets_that_are_cut_short_pass_by_their_address_alone(void **state)
{
	static const struct packet_of_host web = {"203.0.113.9", PROTOCOL_TCP, 0, 80},
					   portal = {PORTAL4, PROTOCOL_TCP, 0, 80};
	const struct packet_of_host *const hosts[] = {&web, &portal};

	for (unsigned i = 0; i < RTE_DIM(hosts); i++) {
		for (unsigned payload = 0; payload <= PORTS_AND_MORE; payload++) {
			for (unsigned later = 0; later < 2; later++) {
				uint8_t frame[256], *ip = write_access(frame, 100, 1, 0x0800);
				struct ip4_header *header = (struct ip4_header *)ip;
				uint64_t denied = dropped("portal-denied");
				bool passes = hosts[i] == &portal;

				write_packet(ip, hosts[i], UP);
				header->total_length = rte_cpu_to_be_16((uint16_t)(sizeof(*header) + payload));
				header->fragment = later ? RTE_BE16(100) : 0;
				header->checksum = 0;
				header->checksum = ip4_checksum(header);
				sent_count = 0;
				receive("access", frame, (size_t)(ip - frame) + sizeof(*header) + payload);
				assert_int_equal(sent_to("core"), passes);
				assert_int_equal(dropped("portal-denied") - denied, !passes && (later || payload < 4));
			}
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_subscriber_reaches_the_portal_and_name_servers_and_http_goes_to_the_agent),
		cmocka_unit_test(only_the_portal_name_servers_and_errors_reach_a_subscriber),
		cmocka_unit_test(a_portal_changes_under_traffic),
		cmocka_unit_test(who_leaves_the_garden_reaches_everything),
		cmocka_unit_test(fragments_and_packets_that_are_cut_short_pass_by_their_address_alone),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
