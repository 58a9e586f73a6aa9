// What IP does not take has a name: each packet here goes through the real graph and is counted under the one that it should.
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/drop.h"
#include "core/loop.h"
#include "core/punt.h"
#include "core/start.h"
#include "ip/arp.h"
#include "ip/hop.h"
#include "ip/nd.h"
#include "ip/neighbor_table.h"
#include "ip/reassembly.h"
#include "ip/three_ports.h"
#include "session.pb-c.h"

enum { ICMP4_ECHO = 8, ICMP6_ECHO = 128, MLD_REPORT = 131, FRAGMENTS_HELD = 4096 };

static const uint64_t SECOND = 1000000000;

// The clock of this process, which a test can put forward.
static uint64_t ahead;

int
clock_gettime(clockid_t clock, struct timespec *t)
{
	int error = (int)syscall(SYS_clock_gettime, clock, t);
	uint64_t time = (uint64_t)t->tv_sec * SECOND + (uint64_t)t->tv_nsec + ahead;

	*t = (struct timespec){.tv_sec = (time_t)(time / SECOND), .tv_nsec = (long)(time % SECOND)};
	return error;
}

static void
pass(unsigned seconds)
{
	for (unsigned i = 0; i < 4 * seconds; i++) {
		ahead += SECOND / 4;
		walk();
	}
}

struct arp_frame {
	uint8_t ether[ETHER];
	struct arp_message arp;
	uint8_t padding[18];
} __attribute__((packed));

// From a host that is no neighbour yet, for an address that nobody has; a case changes what it is about.
static struct arp_frame
arp_frame(void)
{
	struct arp_frame a = {.ether = {255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 9, 8, 0x08, 0x06},
		.arp = {.hardware = htons(1),
			.protocol = htons(RTE_ETHER_TYPE_IPV4),
			.hardware_length = 6,
			.protocol_length = 4,
			.operation = htons(ARP_REQUEST),
			.sender_mac = {{2, 0, 0, 0, 9, 8}},
			.sender = {192, 0, 2, 8},
			.target = {192, 0, 2, 77}}};

	return a;
}

static void
an_arp_message_that_is_not_answered_is_counted_under_its_reason(void **state)
{
	static const struct {
		const char *drop;
		unsigned at; // byte of the message
		uint8_t value;
		uint16_t operation;
	} cases[] = {
		{"arp-format", offsetof(struct arp_message, hardware) + 1, 6, ARP_REQUEST},
		{"arp-format", offsetof(struct arp_message, protocol), 0x86, ARP_REQUEST},
		{"arp-format", offsetof(struct arp_message, hardware_length), 8, ARP_REQUEST},
		{"arp-format", offsetof(struct arp_message, protocol_length), 16, ARP_REQUEST},
		{"arp-operation", offsetof(struct arp_message, operation) + 1, 3, 3},
		{"arp-operation", offsetof(struct arp_message, operation) + 1, 0, 0},
		{"arp-sender", offsetof(struct arp_message, sender), 224, ARP_REQUEST},
		{"arp-sender", offsetof(struct arp_message, sender), 127, ARP_REPLY},
		{"arp-sender", offsetof(struct arp_message, sender_mac), 3, ARP_REQUEST},
		{"arp-unsolicited", offsetof(struct arp_message, sender) + 3, 55, ARP_REPLY},
		{"arp-noted", offsetof(struct arp_message, sender) + 3, 9, ARP_REQUEST},
		{"arp-noted", offsetof(struct arp_message, sender) + 3, 9, ARP_REPLY},
		{"duplicate-address", offsetof(struct arp_message, sender) + 3, 1, ARP_REQUEST},
		{"duplicate-address", offsetof(struct arp_message, sender) + 3, 1, ARP_REPLY},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		struct arp_frame a = arp_frame();
		uint64_t before = dropped(cases[i].drop);

		a.arp.operation = htons(cases[i].operation);
		((uint8_t *)&a.arp)[cases[i].at] = cases[i].value;
		receive("in", (uint8_t *)&a, sizeof(a));
		assert_int_equal(dropped(cases[i].drop), before + 1);
	}
}

static void
fill_checksum(struct packet6 *p)
{
	uint32_t length = ntohs(p->ip.payload_length);
	uint16_t sum;

	memset(p->payload + 2, 0, 2);
	sum = (uint16_t)~checksum_fold(checksum_add(
		ip6_pseudo_sum(p->ip.source, p->ip.destination, length, PROTOCOL_ICMP6), p->payload, length));
	memcpy(p->payload + 2, &sum, 2);
}

static struct packet6
icmp6(const char *from, const char *to, uint8_t type, unsigned payload)
{
	struct packet6 p = udp6(from, to, 255, payload);

	p.ip.next_header = PROTOCOL_ICMP6;
	p.payload[0] = type;
	fill_checksum(&p);
	return p;
}

static void
receive_icmp6(struct packet6 *p)
{
	receive("in", (uint8_t *)p, sizeof(p->ether) + sizeof(p->ip) + ntohs(p->ip.payload_length));
}

static void
a_neighbour_discovery_message_that_is_not_answered_is_counted_under_its_reason(void **state)
{
	static const struct {
		const char *drop, *from, *to;
		const char *target; // at byte 8 of the message
		uint8_t type, code, flags;
		uint16_t length;
		bool wrong_sum;
	} cases[] = {
		{"nd-truncated", "2001:db8:1::9", "2001:db8:1::1", NULL, ND_SOLICITATION, 0, 0, 16, false},
		{"nd-truncated", "fe80::9", "ff02::1", NULL, ND_REDIRECT, 0, 0, 32, false},
		{"nd-checksum", "2001:db8:1::9", "2001:db8:1::1", "2001:db8:1::1", ND_SOLICITATION, 0, 0, 24, true},
		{"nd-invalid", "2001:db8:1::9", "2001:db8:1::1", "2001:db8:1::1", ND_SOLICITATION, 1, 0, 24, false},
		{"nd-invalid", "2001:db8:1::9", "2001:db8:1::1", "ff02::1", ND_SOLICITATION, 0, 0, 24, false},
		{"nd-invalid", "2001:db8:1::9", "ff02::1", "2001:db8:1::9", ND_ADVERTISEMENT, 0, ND_SOLICITED, 24,
			false},
		{"nd-not-for-us", "2001:db8:1::9", "ff02::1:ff00:1", "2001:db8:1::77", ND_SOLICITATION, 0, 0, 24,
			false},
		{"nd-noted", "2001:db8:1::9", "2001:db8:1::1", "2001:db8:1::9", ND_ADVERTISEMENT, 0, 0, 24, false},
		{"nd-unsolicited", "2001:db8:1::8", "ff02::1", "2001:db8:1::8", ND_ADVERTISEMENT, 0, 0, 24, false},
		{"duplicate-address6", "2001:db8:1::8", "ff02::1", "2001:db8:1::1", ND_ADVERTISEMENT, 0, 0, 24, false},
		{"router-advertisement", "fe80::9", "ff02::1", NULL, ND_ROUTER_ADVERTISEMENT, 0, 0, 16, false},
		{"redirect", "fe80::9", "2001:db8:1::1", NULL, ND_REDIRECT, 0, 0, 40, false},
		{"mld", "fe80::9", "ff02::2", NULL, MLD_REPORT, 0, 0, 24, false},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		struct packet6 p = icmp6(cases[i].from, cases[i].to, cases[i].type, cases[i].length);
		uint64_t before = dropped(cases[i].drop);

		p.payload[1] = cases[i].code;
		p.payload[4] = cases[i].flags;
		if (cases[i].target)
			inet_pton(AF_INET6, cases[i].target, p.payload + 8);
		fill_checksum(&p);
		p.payload[2] ^= cases[i].wrong_sum;
		receive_icmp6(&p);
		assert_int_equal(dropped(cases[i].drop), before + 1);
	}
}

static void
a_packet_for_us_that_nobody_takes_is_counted_under_its_reason(void **state)
{
	static const struct {
		const char *drop, *to;
		uint8_t protocol;
		uint16_t length; // behind the IP header
		uint8_t payload[24];
	} cases[] = {
		{"local-truncated", "192.0.2.1", PROTOCOL_UDP, 7, {0}},
		{"local-truncated", "2001:db8:1::1", PROTOCOL_UDP, 7, {0}},
		{"local-truncated", "2001:db8:1::1", PROTOCOL_DESTINATION_OPTIONS, 8, {PROTOCOL_UDP, 1}},
		{"protocol-unreachable", "192.0.2.1", 200, 20, {0}},
		{"protocol-unreachable", "2001:db8:1::1", 200, 20, {0}},
		{"icmp-checksum", "192.0.2.1", PROTOCOL_ICMP, 8, {ICMP4_ECHO, 0, 1, 1}},
		{"icmp-checksum", "2001:db8:1::1", PROTOCOL_ICMP6, 8, {ICMP6_ECHO, 0, 1, 1}},
		{"icmp-family", "192.0.2.1", PROTOCOL_ICMP6, 8, {ICMP6_ECHO}},
		{"icmp-family", "2001:db8:1::1", PROTOCOL_ICMP, 8, {ICMP4_ECHO}},
		{"echo-to-group", "192.0.2.255", PROTOCOL_ICMP, 8, {ICMP4_ECHO, 0, 0xf7, 0xff}},
		{"echo-to-group", "224.0.0.1", PROTOCOL_ICMP, 8, {ICMP4_ECHO, 0, 0xf7, 0xff}},
		{"echo-to-group", "ff02::1", PROTOCOL_ICMP6, 8, {ICMP6_ECHO}},
		{"ip6-no-next-header", "2001:db8:1::1", PROTOCOL_NONE, 8, {0}},
		// An option that says: discard me if you do not know me; and one that says: tell the sender.
		{"ip6-extension", "2001:db8:1::1", PROTOCOL_DESTINATION_OPTIONS, 16, {PROTOCOL_UDP, 0, 0x5e, 4}},
		{"ip6-extension", "2001:db8:1::1", PROTOCOL_DESTINATION_OPTIONS, 16, {PROTOCOL_UDP, 0, 0x9e, 4}},
		// A fragment header in a fragment that is a whole packet already.
		{"fragment-invalid", "2001:db8:1::1", PROTOCOL_FRAGMENT, 24,
			{PROTOCOL_FRAGMENT, 0, 0, 0, 0, 0, 0, 1, PROTOCOL_UDP, 0, 0, 0, 0, 0, 0, 2}},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		uint64_t before = dropped(cases[i].drop);

		if (strchr(cases[i].to, ':')) {
			struct packet6 p = udp6("2001:db8:1::9", cases[i].to, 64, cases[i].length);

			p.ip.next_header = cases[i].protocol;
			memcpy(p.payload, cases[i].payload, sizeof(cases[i].payload));
			receive("in", (uint8_t *)&p, ETHER + sizeof(p.ip) + cases[i].length);
		} else {
			struct packet4 p = udp4("192.0.2.9", cases[i].to, 64, (unsigned)sizeof(p.ip) + cases[i].length);

			p.ip.protocol = cases[i].protocol;
			p.ip.checksum = ip4_checksum(&p.ip);
			memcpy(p.payload, cases[i].payload, sizeof(cases[i].payload));
			receive("in", (uint8_t *)&p, ETHER + sizeof(p.ip) + cases[i].length);
		}
		assert_int_equal(dropped(cases[i].drop), before + 1);
	}
}

// ip-local never passes one on; the node looks all the same.
static void
an_icmp_message_that_ends_within_its_header_is_not_read(void **state)
{
	struct packet4 p = udp4("192.0.2.9", "192.0.2.1", 64, sizeof(p.ip) + 7);
	uint64_t before = dropped("icmp-truncated");
	struct rte_mbuf *m = packet_new();

	p.ip.protocol = PROTOCOL_ICMP;
	memcpy(rte_pktmbuf_append(m, sizeof(p.ip) + 7), &p.ip, sizeof(p.ip) + 7);
	packet_of(m)->family = 4;
	inject(m, node_by_name("icmp"));
	walk();
	assert_int_equal(dropped("icmp-truncated"), before + 1);
}

static void
a_packet_that_may_not_be_forwarded_is_counted_under_its_reason(void **state)
{
	struct packet6 p = udp6("fe80::9", "2001:db8:f::5", 64, 20);
	struct packet4 own = udp4("192.0.2.1", "224.0.0.5", 1, 60);
	uint64_t expired = dropped("hop-limit-expired"), scope = dropped("beyond-scope");
	uint64_t multicast = dropped("own-multicast");
	struct rte_mbuf *m = packet_new();

	assert_int_equal(put_route("", "2001:db8:f::/48", 0, &(struct via){"2001:db8:2::2"}, 1), 0);
	receive6("2001:db8:f::5", 1);
	assert_int_equal(dropped("hop-limit-expired"), expired + 1);
	receive("in", (uint8_t *)&p, ETHER + 60);
	assert_int_equal(dropped("beyond-scope"), scope + 1);
	remove_route("", "2001:db8:f::/48");

	memcpy(rte_pktmbuf_append(m, 60), &own.ip, 60);
	packet_of(m)->flags = PACKET_OURS;
	inject(m, &ip4_lookup_node);
	walk();
	assert_int_equal(dropped("own-multicast"), multicast + 1);
}

static void
a_packet_whose_next_hop_went_is_counted_under_its_reason(void **state)
{
	uint64_t hop = dropped("next-hop-gone"), neighbor = dropped("neighbor-gone");
	struct packet4 p = udp4("192.0.2.9", "100.64.1.7", 64, 60);
	struct rte_mbuf *m = packet_new();

	assert_int_equal(put_interface("other", "other", "", "100.64.1.1/24", ""), 0);
	assert_int_equal(put_route("", "203.0.113.0/24", 0, &(struct via){"100.64.1.2"}, 1), 0);

	// It is on its way to the main thread while the interface goes.
	memcpy(rte_pktmbuf_append(m, 60), &p.ip, 60);
	packet_of(m)->family = 4;
	inject(m, &ip4_lookup_node);
	walk_workers();
	assert_int_equal(object_delete("Interface", "other", &f), 0);
	walk();
	assert_int_equal(dropped("neighbor-gone"), neighbor + 1);

	receive4("203.0.113.5", 64);
	assert_int_equal(dropped("next-hop-gone"), hop + 1);
	remove_route("", "203.0.113.0/24");
}

// A fragment for us with `payload` bytes at `offset`.
static void
receive_fragment(uint16_t id, unsigned offset, unsigned payload, bool more)
{
	struct packet4 p = udp4("192.0.2.9", "192.0.2.1", 64, (unsigned)sizeof(p.ip) + payload);

	p.ip.id = htons(id);
	p.ip.fragment = htons((uint16_t)(offset / 8 | (more ? IP4_MF : 0)));
	p.ip.checksum = ip4_checksum(&p.ip);
	receive("in", (uint8_t *)&p, ETHER + sizeof(p.ip) + payload);
}

static void
fragments_that_do_not_become_a_packet_are_counted_under_their_reason(void **state)
{
	uint64_t again = dropped("fragment-again"), many = dropped("fragment-too-many");
	uint64_t late = dropped("reassembly-timeout"), full = dropped("reassembly-full");

	receive_fragment(1, 0, 64, true);
	receive_fragment(1, 0, 64, true);
	assert_int_equal(dropped("fragment-again"), again + 1);
	pass(32);
	assert_int_equal(dropped("reassembly-timeout"), late + 1);

	for (unsigned i = 0; i <= PIECES_MOST; i++)
		receive_fragment(2, 16 * i, 8, true);
	assert_int_equal(dropped("fragment-too-many"), many + PIECES_MOST + 1);

	// What is oldest gives way, whether there are too many packets or too many fragments.
	for (unsigned i = 0; i < 1025; i++)
		receive_fragment((uint16_t)(100 + i), 0, 64, true);
	assert_int_equal(dropped("reassembly-full"), full + 1);
	for (unsigned id = 0; dropped("reassembly-full") == full + 1 && id < FRAGMENTS_HELD; id++)
		for (unsigned i = 0; i < PIECES_MOST - 1; i++)
			receive_fragment((uint16_t)(2000 + id), 16 * i, 8, true);
	assert_true(dropped("reassembly-full") > full + 1);
	pass(32);

	// And it still works.
	sent_count = 0;
	receive_fragment(9, 0, 64, true);
	receive_fragment(9, 64, 8, false);
	pass(1);
	assert_int_equal(sent_count, 1);
}

static void
without_buffers_for_its_fragments_a_packet_is_counted_under_its_reason(void **state)
{
	static struct rte_mbuf *taken[4096];
	struct packet4 p = udp4("192.0.2.9", "203.0.113.5", 64, 1500);
	uint64_t before = dropped("fragments-no-buffer");
	unsigned count = 0;

	assert_int_equal(put_route("", "203.0.113.0/24", 0, &(struct via){"198.51.100.2"}, 1), 0);
	set_mtu(1280);
	while (count < RTE_DIM(taken) && (taken[count] = rte_pktmbuf_alloc(packet_pool)))
		count++;
	rte_pktmbuf_free(taken[--count]);
	receive("in", (uint8_t *)&p, ETHER + 1500);
	assert_int_equal(dropped("fragments-no-buffer"), before + 1);
	rte_pktmbuf_free_bulk(taken, count);
	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + 1500);
	assert_int_equal(sent_count, 2);
	set_mtu(1500);
	remove_route("", "203.0.113.0/24");
}

static int
put_session(unsigned number, const char *mac)
{
	Sluice__V1__Session s = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	char name[32], address[32];

	snprintf(name, sizeof(name), "s%u", number);
	snprintf(address, sizeof(address), "100.64.0.%u/32", number);
	access.port = (char *)"other";
	access.outer_vlan = 100 + number;
	access.mac = (char *)mac;
	s.access = &access;
	s.addresses = (char *[]){address};
	s.n_addresses = 1;
	return put("Session", name, &s);
}

static void
a_packet_that_cannot_be_sent_to_a_subscriber_is_counted_under_its_reason(void **state)
{
	uint64_t expired = dropped("ttl-expired-to-session"), full = dropped("session-resolver-full");
	uint64_t unresolved = dropped("session-unresolved"), gone = dropped("session-gone");

	assert_int_equal(put_session(1, "02:00:00:00:01:01"), 0);
	assert_int_equal(put_session(2, ""), 0);
	receive4("100.64.0.1", 1);
	assert_int_equal(dropped("ttl-expired-to-session"), expired + 1);

	// The subscriber is asked three times, then its packets are given up; of too many, the oldest go at once.
	for (unsigned i = 0; i < RESOLVER_QUEUE + 1; i++)
		receive4("100.64.0.2", 64);
	assert_int_equal(dropped("session-resolver-full"), full + 1);
	sent_count = 0;
	pass(4);
	assert_int_equal(sent_count, 2);
	assert_int_equal(sent[0].bytes[12], 0x81);
	assert_int_equal(dropped("session-unresolved"), unresolved + RESOLVER_QUEUE);

	// It is asked for anew, and when it says who it is, gets what waits.
	receive4("100.64.0.2", 64);
	assert_int_equal(sent_count, 1);
	sent_count = 0;
	receive("other",
		(const uint8_t[64]){255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 1, 2, 0x81, 0, 0, 102, 8, 6, 0, 1, 8, 0,
			6, 4, 0, 2, 2, 0, 0, 0, 1, 2, 100, 64, 0, 2, 2, 0, 0, 0, 0, 3},
		64);
	for (unsigned i = 0; i < 100 && sent_count == 0; i++)
		pass(1);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].bytes[5], 2);

	assert_int_equal(object_delete("Session", "s2", &f), 0);
	assert_int_equal(put_session(2, ""), 0);
	receive4("100.64.0.2", 64);
	assert_int_equal(object_delete("Session", "s2", &f), 0);
	assert_int_equal(dropped("session-gone"), gone + 1);
	assert_int_equal(object_delete("Session", "s1", &f), 0);
}

static void
no_buffer_is_lost(void **state)
{
	pass(40);
	assert_int_equal(rte_mempool_in_use_count(packet_pool), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_arp_message_that_is_not_answered_is_counted_under_its_reason),
		cmocka_unit_test(a_neighbour_discovery_message_that_is_not_answered_is_counted_under_its_reason),
		cmocka_unit_test(a_packet_for_us_that_nobody_takes_is_counted_under_its_reason),
		cmocka_unit_test(an_icmp_message_that_ends_within_its_header_is_not_read),
		cmocka_unit_test(a_packet_that_may_not_be_forwarded_is_counted_under_its_reason),
		cmocka_unit_test(a_packet_whose_next_hop_went_is_counted_under_its_reason),
		cmocka_unit_test(fragments_that_do_not_become_a_packet_are_counted_under_their_reason),
		cmocka_unit_test(without_buffers_for_its_fragments_a_packet_is_counted_under_its_reason),
		cmocka_unit_test(a_packet_that_cannot_be_sent_to_a_subscriber_is_counted_under_its_reason),
		cmocka_unit_test(no_buffer_is_lost),
	};

	return cmocka_run_group_tests(tests, three_ports_start, three_ports_stop);
}
