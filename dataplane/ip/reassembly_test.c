// SPDX-License-Identifier: Apache-2.0
// Complete and refused sets of fragments (RFC 815, RFC 5722, RFC 1858), and extension headers of IPv6.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "inet/header.h"
#include "ip/extensions.h"
#include "ip/reassembly.h"
#include "ip/reassembly_owner.h"

static void
pieces_make_a_whole_in_every_order(void **state)
{
	// Four pieces of 4,000 bytes, by all 24 orders.
	const uint32_t offsets[4] = {0, 1480, 2960, 3960};
	const uint32_t lengths[4] = {1480, 1480, 1000, 40};

	for (unsigned order = 0; order < 256; order++) {
		unsigned pick[4] = {order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6};
		unsigned seen = 1u << pick[0] | 1u << pick[1] | 1u << pick[2] | 1u << pick[3];
		struct pieces p = {0};

		if (seen != 15)
			continue;
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(pieces_add(&p, offsets[pick[i]], lengths[pick[i]], pick[i] != 3,
						 (void *)&offsets[pick[i]]),
				i < 3 ? PIECES_MORE : PIECES_WHOLE);
		assert_int_equal(p.total, 4000);
		for (unsigned i = 0; i < 4; i++)
			assert_ptr_equal(p.list[i].what, &offsets[i]);
	}
}

static void
a_piece_that_comes_twice_is_taken_once(void **state)
{
	struct pieces p = {0};

	assert_int_equal(pieces_add(&p, 0, 16, true, NULL), PIECES_MORE);
	assert_int_equal(pieces_add(&p, 0, 16, true, NULL), PIECES_AGAIN);
	assert_int_equal(pieces_add(&p, 32, 5, false, NULL), PIECES_MORE);
	assert_int_equal(pieces_add(&p, 32, 5, false, NULL), PIECES_AGAIN);
	assert_int_equal(pieces_add(&p, 16, 16, true, NULL), PIECES_WHOLE);
}

static void
every_overlap_is_refused(void **state)
{
	// A piece at 64 to 128, and every other one that shares a byte with it.
	for (uint32_t start = 0; start < 128; start += 8) {
		for (uint32_t end = start + 8; end <= 192; end += 8) {
			struct pieces p = {0};
			bool overlaps = start < 128 && end > 64, same = start == 64 && end == 128;

			assert_int_equal(pieces_add(&p, 64, 64, true, NULL), PIECES_MORE);
			assert_int_equal(pieces_add(&p, start, end - start, true, NULL), same       ? PIECES_AGAIN
											 : overlaps ? PIECES_IMPOSSIBLE
												    : PIECES_MORE);
		}
	}
}

static void
pieces_behind_the_last_are_refused(void **state)
{
	struct pieces p = {0};

	assert_int_equal(pieces_add(&p, 64, 10, false, NULL), PIECES_MORE);
	assert_int_equal(pieces_add(&p, 80, 8, true, NULL), PIECES_IMPOSSIBLE);
	assert_int_equal(pieces_add(&p, 128, 8, false, NULL), PIECES_IMPOSSIBLE);
	p = (struct pieces){0};
	assert_int_equal(pieces_add(&p, 128, 8, true, NULL), PIECES_MORE);
	assert_int_equal(pieces_add(&p, 64, 10, false, NULL), PIECES_IMPOSSIBLE);
}

static void
the_last_piece_cannot_become_another_one(void **state)
{
	struct pieces p = {0};

	assert_int_equal(pieces_add(&p, 64, 8, false, NULL), PIECES_MORE);
	assert_int_equal(pieces_add(&p, 64, 8, true, NULL), PIECES_IMPOSSIBLE);
}

static void
pieces_of_odd_or_no_length_are_refused(void **state)
{
	struct pieces p = {0};

	assert_int_equal(pieces_add(&p, 0, 0, true, NULL), PIECES_IMPOSSIBLE);
	assert_int_equal(pieces_add(&p, 8, 0, false, NULL), PIECES_IMPOSSIBLE);
	assert_int_equal(pieces_add(&p, 0, 12, true, NULL), PIECES_IMPOSSIBLE);
	assert_int_equal(p.count, 0);
}

static void
a_packet_of_more_than_65535_bytes_is_refused(void **state)
{
	struct pieces p = {0};

	assert_int_equal(pieces_add(&p, 65528, 7, false, NULL), PIECES_MORE);
	p = (struct pieces){0};
	assert_int_equal(pieces_add(&p, 65528, 8, false, NULL), PIECES_IMPOSSIBLE);
}

static void
more_pieces_than_there_may_be_are_refused(void **state)
{
	struct pieces p = {0};

	for (uint32_t i = 0; i < PIECES_MAX; i++)
		assert_int_equal(pieces_add(&p, 16 + i * 8, 8, true, NULL), PIECES_MORE);
	assert_int_equal(pieces_add(&p, 0, 16, true, NULL), PIECES_TOO_MANY);
}

enum { IP = 40 };

// An IPv6 header and its payload; ip6_extensions sees `length` bytes of it and no byte more.
static enum ip6_fault
walk(uint8_t first, const uint8_t *rest, size_t rest_length, size_t length, struct ip6_chain *chain)
{
	uint8_t *packet = malloc(length ? length : 1), whole[512] = {0x60, [6] = first};
	enum ip6_fault wrong;

	if (rest_length > 0)
		memcpy(whole + IP, rest, rest_length);
	memcpy(packet, whole, length);
	wrong = ip6_extensions(packet, (unsigned)length, chain);
	free(packet);
	return wrong;
}

static void
a_packet_without_extension_headers_ends_at_its_protocol(void **state)
{
	struct ip6_chain chain;

	assert_int_equal(walk(PROTOCOL_UDP, NULL, 0, IP, &chain), IP6_OK);
	assert_int_equal(chain.offset, IP);
	assert_int_equal(chain.next_header, PROTOCOL_UDP);
}

static void
extension_headers_without_effect_are_skipped(void **state)
{
	// Hop-by-hop with a router alert, routing without segments, destination options of padding, then ICMPv6.
	const uint8_t rest[] = {
		43, 0, 5, 2, 0, 0, 1, 0, 60, 0, 4, 0, 0, 0, 0, 0, 58, 0, 1, 4, 0, 0, 0, 0, 128, 0, 0, 0};
	struct ip6_chain chain;

	assert_int_equal(walk(0, rest, sizeof(rest), IP + sizeof(rest), &chain), IP6_OK);
	assert_int_equal(chain.offset, IP + 24);
	assert_int_equal(chain.next_header, PROTOCOL_ICMP6);
	for (size_t length = 0; length < IP + 24; length++)
		assert_int_equal(walk(0, rest, sizeof(rest), length, &chain), IP6_TRUNCATED);
}

static void
a_fragment_header_ends_the_walk_if_it_is_there_whole(void **state)
{
	const uint8_t rest[] = {17, 0, 0, 1, 0, 0, 0, 9};
	struct ip6_chain chain;

	assert_int_equal(walk(44, rest, sizeof(rest), IP + 8, &chain), IP6_OK);
	assert_int_equal(chain.next_header, PROTOCOL_FRAGMENT);
	assert_int_equal(walk(44, rest, sizeof(rest), IP + 7, &chain), IP6_TRUNCATED);
}

static void
an_unknown_option_is_handled_by_its_highest_bits(void **state)
{
	uint8_t rest[] = {58, 0, 0x1e, 4, 0, 0, 0, 0};
	struct ip6_chain chain;

	assert_int_equal(walk(60, rest, sizeof(rest), IP + sizeof(rest), &chain), IP6_OK);
	rest[2] = 0x5e;
	assert_int_equal(walk(60, rest, sizeof(rest), IP + sizeof(rest), &chain), IP6_DISCARD);
	rest[2] = 0x9e;
	assert_int_equal(walk(60, rest, sizeof(rest), IP + sizeof(rest), &chain), IP6_PARAMETER);
	assert_int_equal(chain.code, 2);
	assert_int_equal(chain.offset, IP + 2);
	assert_true(chain.report_to_groups);
	rest[2] = 0xde;
	assert_int_equal(walk(60, rest, sizeof(rest), IP + sizeof(rest), &chain), IP6_PARAMETER);
	assert_false(chain.report_to_groups);
}

static void
an_option_past_its_header_is_refused(void **state)
{
	const uint8_t rest[] = {58, 0, 1, 5, 0, 0, 0, 0};
	struct ip6_chain chain;

	assert_int_equal(walk(60, rest, sizeof(rest), IP + sizeof(rest), &chain), IP6_PARAMETER);
	assert_int_equal(chain.code, 0);
}

static void
we_are_no_waypoint(void **state)
{
	const uint8_t rest[] = {58, 0, 4, 1, 0, 0, 0, 0};
	struct ip6_chain chain;

	assert_int_equal(walk(43, rest, sizeof(rest), IP + sizeof(rest), &chain), IP6_PARAMETER);
	assert_int_equal(chain.offset, IP + 2);
}

static void
hop_by_hop_options_are_nowhere_but_first(void **state)
{
	const uint8_t rest[] = {0, 0, 1, 4, 0, 0, 0, 0, 58, 0, 1, 4, 0, 0, 0, 0};
	struct ip6_chain chain;

	assert_int_equal(walk(60, rest, sizeof(rest), IP + sizeof(rest), &chain), IP6_PARAMETER);
	assert_int_equal(chain.code, 1);
}

static void
a_chain_without_end_is_given_up(void **state)
{
	uint8_t rest[160] = {0};
	struct ip6_chain chain;

	for (size_t i = 0; i < sizeof(rest); i += 8)
		memcpy(rest + i, (uint8_t[]){60, 0, 1, 4, 0, 0, 0, 0}, 8);
	assert_int_equal(walk(60, rest, sizeof(rest), IP + sizeof(rest), &chain), IP6_DISCARD);
}

// RFC 7112 section 5.
static void
a_first_fragment_is_whole_with_all_headers_up_to_the_protocol_s(void **state)
{
	static const struct {
		uint8_t bytes[48];
		unsigned least; // shorter ones are not
	} cases[] = {
		{{PROTOCOL_UDP}, 16},
		{{PROTOCOL_TCP}, 28},
		{{PROTOCOL_ICMP6}, 12},
		{{PROTOCOL_NONE}, 8},
		{{PROTOCOL_ESP}, 16},
		{{PROTOCOL_DESTINATION_OPTIONS, [8] = PROTOCOL_UDP}, 24},
		{{PROTOCOL_ROUTING, [8] = PROTOCOL_DESTINATION_OPTIONS, 1, [24] = PROTOCOL_UDP}, 40},
		{{PROTOCOL_FRAGMENT, [8] = PROTOCOL_UDP}, 49},
		{{PROTOCOL_ROUTING, [8] = PROTOCOL_UDP, 200}, 49},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (unsigned length = 0; length <= sizeof(cases[i].bytes); length++) {
			uint8_t *bytes = malloc(length ? length : 1);

			memcpy(bytes, cases[i].bytes, length);
			assert_int_equal(ip6_first_fragment_is_whole(bytes, length), length >= cases[i].least);
			free(bytes);
		}
}

static void
neighbour_discovery_is_recognised_behind_extension_headers(void **state)
{
	uint8_t bytes[60] = {0x60, [6] = PROTOCOL_ICMP6};
	uint8_t behind[60] = {0x60, [6] = PROTOCOL_DESTINATION_OPTIONS, [40] = PROTOCOL_ICMP6, 0, 1, 4};

	for (unsigned type = 0; type < 256; type++) {
		bool nd = (type >= 133 && type <= 137) || type == 148 || type == 149;

		bytes[40] = behind[48] = (uint8_t)type;
		assert_int_equal(ip6_is_neighbor_discovery(bytes, sizeof(bytes)), nd);
		assert_int_equal(ip6_is_neighbor_discovery(behind, sizeof(behind)), nd);
		assert_false(ip6_is_neighbor_discovery(bytes, 40));
		assert_false(ip6_is_neighbor_discovery(behind, 48));
	}
	bytes[6] = PROTOCOL_UDP;
	bytes[40] = 135;
	assert_false(ip6_is_neighbor_discovery(bytes, sizeof(bytes)));
}

static void
the_owner_that_holds_the_most_is_known_at_any_time(void **state)
{
	enum { OWNERS = 6, LIMIT = 40, STEPS = 20000 };
	static const uint32_t most[REASSEMBLY_KINDS] = {LIMIT, LIMIT};
	struct reassembly_owners owners;
	uint32_t model[OWNERS][REASSEMBLY_KINDS] = {0}, random = 7;

	assert_int_equal(reassembly_owners_start(&owners, OWNERS - 1, most), 0);
	for (unsigned step = 0; step < STEPS; step++) {
		unsigned who, all[REASSEMBLY_KINDS] = {0}, top[REASSEMBLY_KINDS] = {0}, used = 0;
		enum reassembly_held what;
		struct reassembly_sender *o;

		random = random * 1664525 + 1013904223;
		who = random >> 24 & 7;
		what = random >> 20 & 1 ? REASSEMBLY_FRAGMENTS : REASSEMBLY_DATAGRAMS;
		for (unsigned i = 0; i < OWNERS; i++) {
			used += model[i][REASSEMBLY_DATAGRAMS] > 0;
			for (unsigned k = 0; k < REASSEMBLY_KINDS; k++)
				all[k] += model[i][k];
		}
		if (who >= OWNERS)
			continue;
		o = model[who][REASSEMBLY_DATAGRAMS] > 0 || used < OWNERS - 1
			    ? reassembly_sender(&owners, 1000 + who, 7)
			    : NULL;
		if (!o) {
			assert_null(reassembly_sender(&owners, 1000 + who, 7));
			continue;
		}
		// Fragments only of sources with a datagram, the last datagram only of sources without fragments.
		if (model[who][REASSEMBLY_DATAGRAMS] == 0)
			what = REASSEMBLY_DATAGRAMS;
		if (random >> 16 & 1 && all[what] < LIMIT) {
			reassembly_hold(&owners, o, what, 1);
			model[who][what]++;
		} else if (model[who][what] > 0 && (what == REASSEMBLY_FRAGMENTS || model[who][what] > 1 ||
							   model[who][REASSEMBLY_FRAGMENTS] == 0)) {
			reassembly_hold(&owners, o, what, -1);
			model[who][what]--;
		} else if (model[who][REASSEMBLY_DATAGRAMS] == 0) {
			reassembly_hold(&owners, o, REASSEMBLY_DATAGRAMS, 1);
			reassembly_hold(&owners, o, REASSEMBLY_DATAGRAMS, -1);
		}
		for (unsigned i = 0; i < OWNERS; i++)
			for (unsigned k = 0; k < REASSEMBLY_KINDS; k++)
				top[k] = model[i][k] > top[k] ? model[i][k] : top[k];
		for (unsigned k = 0; k < REASSEMBLY_KINDS; k++) {
			struct reassembly_sender *first = reassembly_largest(&owners, (enum reassembly_held)k, NULL);

			assert_int_equal(first ? first->owner->held[k] : 0, top[k]);
			if (first)
				assert_int_equal(model[first->owner->number - 1000][k], top[k]);
		}
	}
}

// Among senders that hold about the same, the first to do so.
static void
of_the_owner_with_the_most_the_sender_with_the_most_is_known(void **state)
{
	enum { SENDERS = 200, BUSY = 77 };
	static const uint32_t most[REASSEMBLY_KINDS] = {1000, 1000};
	struct reassembly_owners owners;
	struct reassembly_sender *first, *busy, *other;

	assert_int_equal(reassembly_owners_start(&owners, 1000, most), 0);
	// Another owner's sender holds more than any, but its owner less.
	other = reassembly_sender(&owners, 1, 5000);
	reassembly_hold(&owners, other, REASSEMBLY_DATAGRAMS, 100);
	for (unsigned i = 0; i < SENDERS; i++)
		reassembly_hold(&owners, reassembly_sender(&owners, 2, 1000 + i), REASSEMBLY_DATAGRAMS, 1);
	first = reassembly_largest(&owners, REASSEMBLY_DATAGRAMS, NULL);
	assert_int_equal(first->number, 1000);
	assert_int_equal(reassembly_largest(&owners, REASSEMBLY_DATAGRAMS, first)->number, 1001);
	assert_null(reassembly_largest(&owners, REASSEMBLY_FRAGMENTS, NULL));

	busy = reassembly_sender(&owners, 2, 1000 + BUSY);
	reassembly_hold(&owners, busy, REASSEMBLY_DATAGRAMS, 1);
	assert_ptr_equal(reassembly_largest(&owners, REASSEMBLY_DATAGRAMS, NULL), busy);
	assert_ptr_equal(reassembly_largest(&owners, REASSEMBLY_DATAGRAMS, busy), first);
	reassembly_hold(&owners, busy, REASSEMBLY_DATAGRAMS, -1);
	assert_ptr_equal(reassembly_largest(&owners, REASSEMBLY_DATAGRAMS, NULL), first);

	// Its place is free as soon as it holds none.
	reassembly_hold(&owners, first, REASSEMBLY_DATAGRAMS, -1);
	assert_int_equal(reassembly_largest(&owners, REASSEMBLY_DATAGRAMS, NULL)->number, 1001);
	for (unsigned i = 1; i < SENDERS; i++)
		reassembly_hold(&owners, reassembly_sender(&owners, 2, 1000 + i), REASSEMBLY_DATAGRAMS, -1);
	assert_ptr_equal(reassembly_largest(&owners, REASSEMBLY_DATAGRAMS, NULL), other);
	assert_null(reassembly_largest(&owners, REASSEMBLY_DATAGRAMS, other));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_make_a_whole_in_every_order),
		cmocka_unit_test(a_piece_that_comes_twice_is_taken_once),
		cmocka_unit_test(every_overlap_is_refused),
		cmocka_unit_test(pieces_behind_the_last_are_refused),
		cmocka_unit_test(the_last_piece_cannot_become_another_one),
		cmocka_unit_test(pieces_of_odd_or_no_length_are_refused),
		cmocka_unit_test(a_packet_of_more_than_65535_bytes_is_refused),
		cmocka_unit_test(more_pieces_than_there_may_be_are_refused),
		cmocka_unit_test(a_packet_without_extension_headers_ends_at_its_protocol),
		cmocka_unit_test(extension_headers_without_effect_are_skipped),
		cmocka_unit_test(a_fragment_header_ends_the_walk_if_it_is_there_whole),
		cmocka_unit_test(an_unknown_option_is_handled_by_its_highest_bits),
		cmocka_unit_test(an_option_past_its_header_is_refused),
		cmocka_unit_test(we_are_no_waypoint),
		cmocka_unit_test(hop_by_hop_options_are_nowhere_but_first),
		cmocka_unit_test(a_chain_without_end_is_given_up),
		cmocka_unit_test(a_first_fragment_is_whole_with_all_headers_up_to_the_protocol_s),
		cmocka_unit_test(neighbour_discovery_is_recognised_behind_extension_headers),
		cmocka_unit_test(the_owner_that_holds_the_most_is_known_at_any_time),
		cmocka_unit_test(of_the_owner_with_the_most_the_sender_with_the_most_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
