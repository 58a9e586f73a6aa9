// SPDX-License-Identifier: Apache-2.0
// Drop reasons of IP: each packet here goes through the real graph and is counted under its reason.
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
#include "fib/hop.h"
#include "fib/three_ports.h"
#include "ip/icmp.h"
#include "ip/local.h"
#include "ip/reassembly.h"
#include "neighbor/arp.h"
#include "neighbor/nd.h"
#include "neighbor/neighbor_table.h"
#include "session.pb-c.h"

enum { ICMP4_ECHO = 8, ICMP6_ECHO = 128, MLD_REPORT = 131, FRAGMENTS_HELD = 4096, BUFFERS = 16384 };

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

// From an unknown host, for an address without an owner; each case changes some fields.
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

// Waits for the Ethernet address of a neighbour on "in".
static void
ask_for(const char *address)
{
	if (strchr(address, ':')) {
		struct packet6 p = udp6("2001:db8:2::2", address, 64, 20);

		p.ether[5] = 2;
		receive("out", (uint8_t *)&p, ETHER + sizeof(p.ip) + 20);
	} else {
		struct packet4 p = udp4("198.51.100.2", address, 64, 60);

		p.ether[5] = 2;
		receive("out", (uint8_t *)&p, ETHER + 60);
	}
	sent_count = 0;
}

static void
a_neighbour_that_gives_the_ports_own_ethernet_address_for_its_own_is_not_believed(void **state)
{
	static const uint8_t macs[2][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 5, 1}};
	uint64_t own4 = dropped("arp-own-mac"), own6 = dropped("nd-own-mac");

	ask_for("192.0.2.50");
	ask_for("2001:db8:1::50");
	for (unsigned right = 0; right <= 1; right++) {
		struct arp_frame a = arp_frame();
		struct packet6 p = icmp6("2001:db8:1::50", "2001:db8:1::1", ND_ADVERTISEMENT, 32);

		a.arp.operation = htons(ARP_REPLY);
		a.arp.sender[3] = 50;
		memcpy(&a.arp.sender_mac, macs[right], 6);
		receive("in", (uint8_t *)&a, sizeof(a));
		p.payload[4] = ND_SOLICITED | ND_OVERRIDE;
		inet_pton(AF_INET6, "2001:db8:1::50", p.payload + 8);
		p.payload[24] = ND_TARGET_LINK_LAYER;
		p.payload[25] = 1;
		memcpy(p.payload + 26, macs[right], 6);
		fill_checksum(&p);
		receive_icmp6(&p);
		assert_int_equal(dropped("arp-own-mac"), own4 + 1);
		assert_int_equal(dropped("nd-own-mac"), own6 + 1);
		// The packets that waited.
		assert_int_equal(sent_count, right ? 2 : 0);
	}
	assert_memory_equal(sent[0].bytes, macs[1], 6);
	assert_memory_equal(sent[1].bytes, macs[1], 6);
}

static void
a_packet_for_us_without_a_receiver_is_counted_under_its_reason(void **state)
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
		{"port-unreachable", "192.0.2.1", PROTOCOL_UDP, 8, {1, 0, 1, 0, 0, 8}},
		{"port-unreachable", "2001:db8:1::1", PROTOCOL_UDP, 8, {1, 0, 1, 0, 0, 8, 0, 1}},
		{"port-unreachable", "2001:db8:1::1", PROTOCOL_UDP, 8, {1, 0, 1, 0, 0, 8, 1, 0}},
		{"udp6-no-checksum", "2001:db8:1::1", PROTOCOL_UDP, 8, {1, 0, 1, 0, 0, 8}},
		{"udp6-no-checksum", "2001:db8:1::1", PROTOCOL_UDP, 8, {2, 34, 2, 35, 0, 8}},
		{"udp6-no-checksum", "ff02::1", PROTOCOL_UDP, 8, {2, 34, 2, 35, 0, 8}},
		{"udp6-no-checksum", "2001:db8:1::1", PROTOCOL_DESTINATION_OPTIONS, 16,
			{PROTOCOL_UDP, 0, 1, 4, 0, 0, 0, 0, 1, 0, 1, 0, 0, 8}},
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
		// An option "discard if unknown", and an option "discard and report to the sender".
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

// RFC 8200 section 8.1.
static void
nothing_answers_udp_over_ipv6_without_a_checksum(void **state)
{
	struct packet6 p = udp6("2001:db8:1::9", "2001:db8:1::1", 64, 8);

	memcpy(p.payload, (uint8_t[8]){1, 0, 1, 0, 0, 8}, 8);
	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + sizeof(p.ip) + 8);
	assert_int_equal(sent_count, 0);
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
	node_edge(&inject_node, node_by_name("icmp"));
	inject(m, node_by_name("icmp"));
	walk();
	assert_int_equal(dropped("icmp-truncated"), before + 1);
}

// A concept's reasons for packets to the gateway.
static unsigned taken_udp, taken_protocol;

static void
take_udp(struct rte_mbuf *m)
{
	taken_udp++;
	rte_pktmbuf_free(m);
}

static void
take_protocol(struct rte_mbuf *m)
{
	taken_protocol++;
	rte_pktmbuf_free(m);
}

static bool
is_on_no_session(const struct packet *p)
{
	return p->session == NO_SESSION;
}

enum { TEST_PORT = 4321, TEST_PROTOCOL = 253 };

PUNT(punt_test_udp, "test-udp", 1000, take_udp)
PUNT(punt_test_protocol, "test-protocol", 1000, take_protocol)
static struct ip_local_punt test_udp = {
	.family = 4, .protocol = PROTOCOL_UDP, .port = TEST_PORT, .groups = true, .punt = &punt_test_udp};
static struct ip_local_punt test_protocol = {
	.protocol = TEST_PROTOCOL, .takes = is_on_no_session, .punt = &punt_test_protocol};
IP_LOCAL_PUNT_REGISTER(test_udp)
IP_LOCAL_PUNT_REGISTER(test_protocol)

static void
a_concept_registers_packets_for_the_gateway_that_go_to_the_main_thread(void **state)
{
	struct packet4 p = udp4("192.0.2.9", "192.0.2.1", 64, 60), group = udp4("192.0.2.9", "255.255.255.255", 64, 60);

	memcpy(p.payload, (uint8_t[8]){0, 1, TEST_PORT >> 8, TEST_PORT & 0xff, 0, 40}, 8);
	memcpy(group.payload, p.payload, 8);
	receive("in", (uint8_t *)&p, ETHER + 60);
	assert_int_equal(taken_udp, 1);
	receive("in", (uint8_t *)&group, ETHER + 60);
	assert_int_equal(taken_udp, 2);
	p.payload[3]++;
	receive("in", (uint8_t *)&p, ETHER + 60);
	assert_int_equal(taken_udp, 2);
	p = udp4("192.0.2.9", "192.0.2.1", 64, 60);
	p.ip.protocol = TEST_PROTOCOL;
	p.ip.checksum = 0;
	p.ip.checksum = ip4_checksum(&p.ip);
	receive("in", (uint8_t *)&p, ETHER + 60);
	assert_int_equal(taken_protocol, 1);
	// Groups are not in its entry.
	group.ip.protocol = TEST_PROTOCOL;
	group.ip.checksum = 0;
	group.ip.checksum = ip4_checksum(&group.ip);
	receive("in", (uint8_t *)&group, ETHER + 60);
	assert_int_equal(taken_protocol, 1);
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

static void
a_scan_of_a_network_does_not_end_the_wait_of_another_source_s_packet(void **state)
{
	uint64_t unresolved = dropped("neighbor-unresolved"), limited = dropped("punt-rate-limited");
	struct packet4 p = udp4("192.0.2.8", "10.1.0.1", 64, 40);

	assert_int_equal(put_interface("other", "other", "", "10.0.0.1/8", ""), 0);
	receive("in", (uint8_t *)&p, ETHER + 40);
	walk();
	for (unsigned i = 0; i < 3000; i++) {
		char to[32];

		snprintf(to, sizeof(to), "10.2.%u.%u", i >> 8, i & 0xff);
		receive4(to, 64);
	}
	assert_int_equal(dropped("neighbor-unresolved"), unresolved);
	assert_true(dropped("punt-rate-limited") > limited);
	assert_int_equal(object_delete("Interface", "other", &f), 0);
	walk();
}

static void
receive_fragment_from(const char *from, uint16_t id, unsigned offset, unsigned payload, bool more)
{
	struct packet4 p = udp4(from, "192.0.2.1", 64, (unsigned)sizeof(p.ip) + payload);

	if (strncmp(from, "198", 3) == 0)
		p.ether[5] = 2;
	p.ip.id = htons(id);
	p.ip.fragment = htons((uint16_t)(offset / 8 | (more ? IP4_MF : 0)));
	p.ip.checksum = ip4_checksum(&p.ip);
	receive(p.ether[5] == 2 ? "out" : "in", (uint8_t *)&p, ETHER + sizeof(p.ip) + payload);
}

// A fragment for us with `payload` bytes at `offset`. Those of a flood (ids from 100) come from many hosts: the rate of one is limited.
static void
receive_fragment(uint16_t id, unsigned offset, unsigned payload, bool more)
{
	char from[INET_ADDRSTRLEN];

	snprintf(from, sizeof(from), "192.0.2.%u", id < 100 ? 9 : 10 + id % 200);
	receive_fragment_from(from, id, offset, payload, more);
}

static void
fragments_that_do_not_become_a_packet_are_counted_under_their_reason(void **state)
{
	uint64_t again = dropped("fragment-again"), many = dropped("fragment-too-many");
	uint64_t late = dropped("reassembly-timeout"), full = dropped("reassembly-full"), whole;

	receive_fragment(1, 0, 64, true);
	receive_fragment(1, 0, 64, true);
	assert_int_equal(dropped("fragment-again"), again + 1);
	pass(32);
	assert_int_equal(dropped("reassembly-timeout"), late + 1);

	for (unsigned i = 0; i <= PIECES_MAX; i++)
		receive_fragment(2, 16 * i, 8, true);
	assert_int_equal(dropped("fragment-too-many"), many + PIECES_MAX + 1);

	// The oldest packets of hosts with the most give way, whether there are too many packets or too many fragments. The refused packet of
	// above takes a place, too, but its host holds no other.
	for (unsigned i = 0; i < 1025; i++)
		receive_fragment((uint16_t)(100 + i), 0, 64, true);
	assert_int_equal(dropped("reassembly-full"), full + 2);
	for (unsigned id = 0; dropped("reassembly-full") == full + 2 && id < FRAGMENTS_HELD; id++)
		for (unsigned i = 0; i < PIECES_MAX - 1; i++)
			receive_fragment((uint16_t)(2000 + id), 16 * i, 8, true);
	assert_true(dropped("reassembly-full") > full + 2);
	pass(32);

	// And it still works. The limit of ICMP errors is reached: none is sent.
	whole = dropped("port-unreachable");
	receive_fragment(9, 0, 64, true);
	receive_fragment(9, 64, 8, false);
	pass(1);
	assert_int_equal(dropped("port-unreachable"), whole + 1);
}

// For any flood: of many packets, or of many fragments of few packets.
static void
a_flood_of_fragments_on_one_interface_costs_another_nothing(void **state)
{
	for (unsigned pieces = 1; pieces < PIECES_MAX; pieces += PIECES_MAX - 2) {
		uint64_t full = dropped("reassembly-full"), whole = dropped("port-unreachable");

		receive_fragment_from("198.51.100.2", 7, 0, 64, true);
		for (unsigned id = 0; id < 2 * FRAGMENTS_HELD / pieces; id++)
			for (unsigned i = 0; i < pieces; i++)
				receive_fragment((uint16_t)(100 + id), 16 * i, 8, true);
		assert_true(dropped("reassembly-full") > full + 1000);
		assert_int_equal(dropped("port-unreachable"), whole);
		receive_fragment_from("198.51.100.2", 7, 64, 8, false);
		pass(1);
		// It was whole: its port is unreachable.
		assert_int_equal(dropped("port-unreachable"), whole + 1);
		pass(32);
	}
}

// All user plane functions are on the core interface: a flood of any kind from one of them leaves the others their
// share.
static void
a_flood_of_fragments_of_one_host_costs_another_on_its_interface_nothing(void **state)
{
	for (unsigned pieces = 1; pieces < PIECES_MAX; pieces += PIECES_MAX - 2) {
		uint64_t full = dropped("reassembly-full"), whole = dropped("port-unreachable");

		receive_fragment_from("192.0.2.9", 7, 0, 64, true);
		// The rate of one host is limited: until its fragments have met that of all of them.
		for (unsigned id = 0; dropped("reassembly-full") < full + 500; id++)
			for (unsigned i = 0; i < pieces; i++)
				receive_fragment_from("192.0.2.77", (uint16_t)(100 + id), 16 * i, 8, true);
		receive_fragment_from("192.0.2.9", 7, 64, 8, false);
		pass(1);
		assert_int_equal(dropped("port-unreachable"), whole + 1);
		pass(32);
	}
}

// The last place goes to a fragment of the oldest packet, which is not the one that gives way.
static void
there_are_never_more_fragments_than_there_may_be(void **state)
{
	unsigned others = rte_mempool_in_use_count(packet_pool);

	receive_fragment(99, 0, 8, true);
	for (unsigned held = 1; held < FRAGMENTS_HELD; held++)
		receive_fragment((uint16_t)(100 + held / 60), 16 * (held % 60), 8, true);
	assert_int_equal(rte_mempool_in_use_count(packet_pool), others + FRAGMENTS_HELD);
	for (unsigned i = 1; i < 40; i++)
		receive_fragment(99, 16 * i, 8, true);
	for (unsigned i = 0; i < 500; i++)
		receive_fragment((uint16_t)(6000 + i), 0, 8, true);
	assert_true(rte_mempool_in_use_count(packet_pool) <= others + FRAGMENTS_HELD);
	pass(32);
}

// RFC 5722: not even with those that come later.
static void
of_a_packet_with_overlapping_fragments_none_is_taken(void **state)
{
	uint64_t before = dropped("fragment-not-whole"), whole = dropped("port-unreachable");

	receive_fragment(3, 0, 64, true);
	receive_fragment(3, 32, 64, true);
	assert_int_equal(dropped("fragment-not-whole"), before + 2);
	receive_fragment(3, 0, 64, true);
	receive_fragment(3, 64, 8, false);
	pass(1);
	assert_int_equal(dropped("fragment-not-whole"), before + 4);
	assert_int_equal(dropped("port-unreachable"), whole);
	pass(32);
	receive_fragment(3, 0, 64, true);
	receive_fragment(3, 64, 8, false);
	pass(1);
	assert_int_equal(dropped("port-unreachable"), whole + 1);
}

// A fragment with a wrong length or place does not affect the others.
static void
an_impossible_fragment_is_dropped_alone(void **state)
{
	uint64_t before = dropped("fragment-not-whole"), whole = dropped("port-unreachable");

	receive_fragment(4, 0, 64, true);
	receive_fragment(4, 64, 12, true);
	receive_fragment(4, 65528, 64, false);
	assert_int_equal(dropped("fragment-not-whole"), before + 2);
	receive_fragment(4, 64, 8, false);
	pass(1);
	assert_int_equal(dropped("port-unreachable"), whole + 1);
}

// `before` bytes of destination options, then a fragment header and `payload` bytes that start with the fragment's.
static struct packet6
fragment6(unsigned before, uint16_t place, uint8_t protocol, const uint8_t *start, unsigned payload)
{
	struct packet6 p = udp6("2001:db8:1::9", "2001:db8:1::1", 255, before + 8 + payload);

	p.ip.next_header = before ? PROTOCOL_DESTINATION_OPTIONS : PROTOCOL_FRAGMENT;
	if (before)
		memcpy(p.payload, (uint8_t[8]){PROTOCOL_FRAGMENT, 0, 1, 4}, 8);
	memcpy(p.payload + before, (uint8_t[8]){protocol, 0, (uint8_t)(place >> 8), (uint8_t)place, 0, 0, 0, 9}, 8);
	memcpy(p.payload + before + 8, start, 8);
	return p;
}

static void
an_ipv6_fragment_that_no_packet_can_have_earns_a_parameter_problem(void **state)
{
	enum { MORE = 1 };
	static const struct {
		const char *drop;
		unsigned before;
		uint16_t place;
		uint8_t protocol;
		uint8_t start[8];
		unsigned payload;
		uint8_t code;
		uint32_t pointer;
	} cases[] = {
		{"fragment-invalid", 0, MORE, PROTOCOL_UDP, {0}, 20, 0, 4},
		{"fragment-invalid", 8, MORE, PROTOCOL_UDP, {0}, 20, 0, 4},
		{"fragment-invalid", 0, 65528, PROTOCOL_UDP, {0}, 8, 0, 42},
		{"fragment-invalid", 0, 65528 | MORE, PROTOCOL_UDP, {0}, 8, 0, 42},
		{"fragment-invalid", 8, 65520, PROTOCOL_UDP, {0}, 8, 0, 50},
		{"fragment-header-chain", 0, MORE, PROTOCOL_TCP, {0}, 16, 3, 0},
		{"fragment-header-chain", 8, MORE, PROTOCOL_DESTINATION_OPTIONS, {PROTOCOL_UDP, 1}, 8, 3, 0},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		struct packet6 p =
			fragment6(cases[i].before, cases[i].place, cases[i].protocol, cases[i].start, cases[i].payload);
		const uint8_t *icmp = sent[0].bytes + ETHER + sizeof(struct ip6_header);
		uint64_t before = dropped(cases[i].drop);
		uint32_t pointer;

		sent_count = 0;
		receive("in", (uint8_t *)&p, ETHER + sizeof(p.ip) + ntohs(p.ip.payload_length));
		assert_int_equal(dropped(cases[i].drop), before + 1);
		assert_int_equal(sent_count, 1);
		assert_int_equal(icmp[0], ICMP6_PARAMETER);
		assert_int_equal(icmp[1], cases[i].code);
		memcpy(&pointer, icmp + 4, 4);
		assert_int_equal(ntohl(pointer), cases[i].pointer);
		// The packet that it is about, with all its headers.
		assert_memory_equal(icmp + 8, &p.ip, sizeof(p.ip) + cases[i].before + 8);
	}
}

static void
neighbour_discovery_in_fragments_is_dropped(void **state)
{
	struct packet6 whole = icmp6("2001:db8:1::9", "2001:db8:1::1", ND_SOLICITATION, 24), p;
	uint64_t header = dropped("nd-fragment-header"), parts = dropped("nd-fragment");

	inet_pton(AF_INET6, "2001:db8:1::1", whole.payload + 8);
	fill_checksum(&whole);
	sent_count = 0;
	// All of it behind a fragment header, then in two fragments.
	p = fragment6(0, 0, PROTOCOL_ICMP6, whole.payload, 24);
	memcpy(p.payload + 8, whole.payload, 24);
	receive("in", (uint8_t *)&p, ETHER + sizeof(p.ip) + 32);
	assert_int_equal(dropped("nd-fragment-header"), header + 1);
	p = fragment6(0, 1, PROTOCOL_ICMP6, whole.payload, 8);
	receive("in", (uint8_t *)&p, ETHER + sizeof(p.ip) + 16);
	p = fragment6(0, 8, PROTOCOL_ICMP6, whole.payload + 8, 16);
	memcpy(p.payload + 8, whole.payload + 8, 16);
	receive("in", (uint8_t *)&p, ETHER + sizeof(p.ip) + 24);
	pass(1);
	assert_int_equal(dropped("nd-fragment"), parts + 1);
	assert_int_equal(sent_count, 0);
}

static void
a_fragment_past_65535_bytes_is_not_fragmented(void **state)
{
	uint64_t before = dropped("fragment-beyond-65535");
	struct packet4 p = udp4("192.0.2.9", "203.0.113.5", 64, 1500);

	assert_int_equal(put_route("", "203.0.113.0/24", 0, &(struct via){"198.51.100.2"}, 1), 0);
	set_mtu(1280);
	p.ip.fragment = htons(65528 / 8);
	p.ip.checksum = ip4_checksum(&p.ip);
	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + 1500);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("fragment-beyond-65535"), before + 1);
	p.ip.fragment = htons((65535 - 1500) / 8);
	p.ip.checksum = ip4_checksum(&p.ip);
	receive("in", (uint8_t *)&p, ETHER + 1500);
	assert_int_equal(sent_count, 2);
	set_mtu(1500);
	remove_route("", "203.0.113.0/24");
}

static void
without_buffers_for_its_fragments_a_packet_is_counted_under_its_reason(void **state)
{
	static struct rte_mbuf *taken[BUFFERS];
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

	// The neighbour is resolved anew; after its reply it gets the waiting packets.
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
		cmocka_unit_test(a_neighbour_that_gives_the_ports_own_ethernet_address_for_its_own_is_not_believed),
		cmocka_unit_test(a_packet_for_us_without_a_receiver_is_counted_under_its_reason),
		cmocka_unit_test(nothing_answers_udp_over_ipv6_without_a_checksum),
		cmocka_unit_test(an_icmp_message_that_ends_within_its_header_is_not_read),
		cmocka_unit_test(a_packet_that_may_not_be_forwarded_is_counted_under_its_reason),
		cmocka_unit_test(a_packet_whose_next_hop_went_is_counted_under_its_reason),
		// Before floods that use up the rate of ICMP errors.
		cmocka_unit_test(an_ipv6_fragment_that_no_packet_can_have_earns_a_parameter_problem),
		cmocka_unit_test(a_scan_of_a_network_does_not_end_the_wait_of_another_source_s_packet),
		cmocka_unit_test(there_are_never_more_fragments_than_there_may_be),
		cmocka_unit_test(fragments_that_do_not_become_a_packet_are_counted_under_their_reason),
		cmocka_unit_test(a_flood_of_fragments_on_one_interface_costs_another_nothing),
		cmocka_unit_test(a_flood_of_fragments_of_one_host_costs_another_on_its_interface_nothing),
		cmocka_unit_test(of_a_packet_with_overlapping_fragments_none_is_taken),
		cmocka_unit_test(an_impossible_fragment_is_dropped_alone),
		cmocka_unit_test(neighbour_discovery_in_fragments_is_dropped),
		cmocka_unit_test(a_fragment_past_65535_bytes_is_not_fragmented),
		cmocka_unit_test(without_buffers_for_its_fragments_a_packet_is_counted_under_its_reason),
		cmocka_unit_test(a_packet_that_cannot_be_sent_to_a_subscriber_is_counted_under_its_reason),
		cmocka_unit_test(no_buffer_is_lost),
		cmocka_unit_test(a_concept_registers_packets_for_the_gateway_that_go_to_the_main_thread),
	};

	buffers = BUFFERS;
	return cmocka_run_group_tests(tests, three_ports_start, three_ports_stop);
}
