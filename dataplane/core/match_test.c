// SPDX-License-Identifier: Apache-2.0
// Filters find packets behind tags, PPPoE and GTP-U, at any length of the frame.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "port/all_nodes.h"
#include "server/watch_filter.h"

#define MACS 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2
#define TAGS 0x88, 0xa8, 0, 100, 0x81, 0, 0, 7
#define PPPOE 0x88, 0x64, 0x11, 0, 0, 9, 0, 30, 0, 0x21
// From 100.64.0.7 to 192.0.2.9.
#define IP4(protocol, length) 0x45, 0, 0, 20 + (length), 0, 1, 0, 0, 64, protocol, 0, 0, 100, 64, 0, 7, 192, 0, 2, 9
#define ICMP 8, 0, 0, 0, 0, 1, 0, 1
#define OUTER(protocol, length) 0x45, 0, 0, 20 + (length), 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2
#define GTPU(length) 0x08, 0x68, 0x08, 0x68, 0, 8 + (length), 0, 0, 0x34, 255, 0, (length)-8, 0, 0, 0, 5
// With a PDU session container and one more extension header.
#define EXTENSIONS 0, 0, 0, 0x85, 1, 0x10, 9, 0xc0, 1, 0, 0, 0

static const uint8_t untagged[] = {MACS, 8, 0, IP4(1, 8), ICMP};
static const uint8_t tagged[] = {MACS, TAGS, 8, 0, IP4(1, 8), ICMP};
static const uint8_t pppoe[] = {MACS, TAGS, PPPOE, IP4(1, 8), ICMP};
static const uint8_t discovery[] = {MACS, TAGS, 0x88, 0x63, 0x11, 9, 0, 0, 0, 0};
static const uint8_t arp[] = {
	MACS, TAGS, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 100, 64, 0, 7, 0, 0, 0, 0, 0, 0, 100, 64, 0, 1};
static const uint8_t tunnelled[] = {MACS, 8, 0, OUTER(17, 56), GTPU(48), EXTENSIONS, IP4(1, 8), ICMP};
// A session of type Ethernet.
static const uint8_t tunnelled_frame[] = {MACS, 8, 0, OUTER(17, 70), GTPU(62), EXTENSIONS, MACS, 8, 0, IP4(1, 8), ICMP};

static struct match
compiled(const char *filter)
{
	char text[512] = "";
	struct watch_filter *f = watch_filter_begin(filter, text, sizeof(text));
	struct match match;

	assert_non_null(f);
	while (!watch_filter_ready(f, 100))
		;
	if (watch_filter_take(f, &match, text, sizeof(text)))
		fail_msg("%s: %s", filter, text);
	watch_filter_end(f);
	return match;
}

// The frame in memory that ends where it does, in two segments that are cut at `cut`.
static bool
matches(const struct match *match, const uint8_t *frame, size_t length, size_t cut)
{
	uint8_t *bytes[2] = {malloc(cut), malloc(length - cut)};
	struct rte_mbuf m[2] = {{.next = NULL}, {.next = NULL}};
	bool found;

	memcpy(bytes[0], frame, cut);
	memcpy(bytes[1], frame + cut, length - cut);
	for (unsigned i = 0; i < 2; i++) {
		m[i].buf_addr = bytes[i];
		m[i].data_len = (uint16_t)(i == 0 ? cut : length - cut);
	}
	m[0].pkt_len = (uint32_t)length;
	m[0].nb_segs = 2;
	m[0].next = &m[1];
	found = match_frame(match, m);
	free(bytes[0]);
	free(bytes[1]);
	return found;
}

static void
expect(const char *filter, const uint8_t *frame, size_t length, bool expected)
{
	struct match match = compiled(filter);

	for (size_t cut = 0; cut <= length; cut++)
		if (matches(&match, frame, length, cut) != expected)
			fail_msg("'%s' on %zu bytes cut at %zu: %s", filter, length, cut,
				expected ? "no match" : "a match");
	rte_bpf_destroy(match.program);
}

#define EXPECT(filter, frame, expected) expect(filter, frame, sizeof(frame), expected)

static void
a_filter_sees_the_packet_behind_tags_and_pppoe(void **state)
{
	EXPECT("host 192.0.2.9 and icmp", untagged, true);
	EXPECT("host 192.0.2.9 and icmp", tagged, true);
	EXPECT("host 192.0.2.9 and icmp", pppoe, true);
	EXPECT("host 192.0.2.8 and icmp", pppoe, false);
	EXPECT("not icmp", untagged, false);
	EXPECT("not icmp", tagged, false);
	EXPECT("not icmp", pppoe, false);
	EXPECT("ether host 02:00:00:00:00:02 and icmp", pppoe, true);
	EXPECT("ether[12:2] = 0x88a8", pppoe, true);
	EXPECT("arp and host 100.64.0.1", arp, true);
	EXPECT("greater 64", pppoe, false);
	EXPECT("len = 58", pppoe, true);
}

static void
a_filter_sees_the_packet_in_a_gtpu_tunnel(void **state)
{
	EXPECT("host 192.0.2.9 and icmp", tunnelled, true);
	EXPECT("host 192.0.2.9 and icmp", tunnelled_frame, true);
	EXPECT("host 10.0.0.2 and udp port 2152", tunnelled, true);
	EXPECT("host 10.0.0.2 and icmp", tunnelled, false);
}

static void
a_negated_filter_matches_where_neither_packet_of_a_tunnel_has_it(void **state)
{
	static const char *const outer_has[] = {"not host 10.0.0.2", "not udp port 2152", "not (icmp6 or udp)", "! udp",
		"!(udp)", "not host 192.0.2.8 and not udp"};
	static const char *const inner_has[] = {"not host 192.0.2.9", "not icmp", "!icmp", "not (icmp or icmp6)",
		"not host 192.0.2.8 && not icmp", "not ( host 192.0.2.9 and ( icmp or tcp ) )"};
	static const char *const neither_has[] = {
		"not host 192.0.2.8", "not tcp", "not tcp and not host 192.0.2.8", "not (tcp or icmp6)"};

	for (unsigned i = 0; i < RTE_DIM(outer_has); i++) {
		EXPECT(outer_has[i], tunnelled, false);
		EXPECT(outer_has[i], tunnelled_frame, false);
		EXPECT(outer_has[i], tagged, true);
	}
	for (unsigned i = 0; i < RTE_DIM(inner_has); i++) {
		EXPECT(inner_has[i], tunnelled, false);
		EXPECT(inner_has[i], tunnelled_frame, false);
		EXPECT(inner_has[i], tagged, false);
	}
	for (unsigned i = 0; i < RTE_DIM(neither_has); i++) {
		EXPECT(neither_has[i], tunnelled, true);
		EXPECT(neither_has[i], tunnelled_frame, true);
		EXPECT(neither_has[i], tagged, true);
	}
	EXPECT("not pppoes 9", pppoe, false);
	EXPECT("not pppoes 8", pppoe, true);
	// A filter with a required field matches within one packet.
	EXPECT("icmp and not host 10.0.0.2", tunnelled, true);
	EXPECT("icmp and not host 192.0.2.9", tunnelled, false);
	EXPECT("not tcp or host 192.0.2.8", tunnelled, true);
	EXPECT("not udp or host 192.0.2.8", tunnelled, true);
}

static void
a_filter_that_names_headers_sees_them(void **state)
{
	EXPECT("vlan 100 and vlan 7 and host 192.0.2.9", tagged, true);
	EXPECT("vlan 7 and host 192.0.2.9", tagged, false);
	EXPECT("vlan and icmp", untagged, false);
	EXPECT("vlan and vlan and pppoes 9 and icmp", pppoe, true);
	EXPECT("pppoes 9 and icmp", pppoe, true);
	EXPECT("pppoes 8", pppoe, false);
	EXPECT("pppoed", discovery, true);
	EXPECT("pppoed", tagged, false);
}

static void
a_frame_that_is_cut_short_anywhere_is_read_to_its_end_alone(void **state)
{
	static const struct {
		const uint8_t *bytes;
		size_t length;
	} frames[] = {{pppoe, sizeof(pppoe)}, {arp, sizeof(arp)}, {tunnelled, sizeof(tunnelled)},
		{tunnelled_frame, sizeof(tunnelled_frame)}};
	// The last byte of each frame's last address decides; before it is there, nothing matches.
	struct match match = compiled("icmp[7] = 1");

	for (unsigned i = 0; i < RTE_DIM(frames); i++)
		for (size_t length = 0; length < frames[i].length; length++)
			for (size_t cut = 0; cut <= length; cut += 1 + length / 7)
				assert_false(matches(&match, frames[i].bytes, length, cut));
	rte_bpf_destroy(match.program);
}

static void
a_frame_of_any_bytes_is_read_to_its_end_alone(void **state)
{
	struct match match = compiled("icmp[7] = 1 or tcp[13] = 2 or ip6 proto 17");
	uint8_t frame[sizeof(tunnelled_frame)];
	uint32_t random = 1;

	for (unsigned round = 0; round < 200000; round++) {
		size_t length;

		memcpy(frame, round & 1 ? tunnelled_frame : tunnelled, sizeof(tunnelled));
		memcpy(frame + sizeof(tunnelled), tunnelled_frame + sizeof(tunnelled),
			sizeof(frame) - sizeof(tunnelled));
		for (unsigned i = 0; i < 1 + round % 4; i++) {
			random = random * 1664525 + 1013904223;
			frame[(random >> 8) % sizeof(frame)] = (uint8_t)(random >> 24);
		}
		length = (random >> 4) % (sizeof(frame) + 1);
		matches(&match, frame, length, length ? (random >> 12) % length : 0);
	}
	rte_bpf_destroy(match.program);
}

static int
start(void **state)
{
	return all_nodes_start(1, 1024, NULL, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_filter_sees_the_packet_behind_tags_and_pppoe),
		cmocka_unit_test(a_filter_sees_the_packet_in_a_gtpu_tunnel),
		cmocka_unit_test(a_negated_filter_matches_where_neither_packet_of_a_tunnel_has_it),
		cmocka_unit_test(a_filter_that_names_headers_sees_them),
		cmocka_unit_test(a_frame_that_is_cut_short_anywhere_is_read_to_its_end_alone),
		cmocka_unit_test(a_frame_of_any_bytes_is_read_to_its_end_alone),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
