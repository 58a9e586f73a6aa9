// SPDX-License-Identifier: Apache-2.0
// Path MTU discovery over IPv6 (RFC 8201): the learned MTU of a path, its lifetime, and ignored messages.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gtpu/gtpu.h"
#include "gtpu/mtu.h"
#include "gtpu/path.h"
#include "session/all_sessions.h"

enum {
	ETHER = 14,
	TAGGED = 22,
	IP6 = 40,
	ICMP = 8,
	FRAGMENT = 8,
	LINK = 1500,
	NARROW = 1400,
	QUOTED = 1280 - IP6 - ICMP
};
enum { SPORT_AT = IP6, DPORT_AT = IP6 + 2, TYPE_AT = IP6 + UDP + 1, INNER_AT = IP6 + UDP + 16 };

static const struct subscriber six = {.name = "six",
	.mac = "02:01:00:00:00:09",
	.address4 = "100.64.0.3/32",
	.address6 = "2001:db8:1:3::/64",
	.outer = 100,
	.inner = 3,
	.teid = 40,
	.outer6 = true};
static const struct subscriber four = {
	.name = "four", .mac = "02:01:00:00:00:09", .address4 = "100.64.0.2/32", .outer = 100, .inner = 2, .teid = 20};
static const struct subscriber frames = {
	.name = "frames", .outer = 100, .inner = 4, .teid = 60, .outer6 = true, .ethernet = true};
static const struct subscriber routed = {.name = "routed",
	.mac = "02:01:00:00:00:09",
	.address4 = "100.64.0.5/32",
	.address6 = "2001:db8:1:5::/64",
	.outer = 100,
	.inner = 5};

static int
start(void **state)
{
	return all_sessions_start(1) || put_session(&six) || put_session(&four) || put_session(&frames) ||
			       put_session(&routed)
		       ? -1
		       : 0;
}

static uint32_t
path_over(uint8_t family)
{
	uint32_t path = 0;

	while (gtpu_path_next(&path) && gtpu_path_at(path)->ends.family != family)
		path++;
	return path;
}

static uint16_t
mtu(void)
{
	return gtpu_path_mtu[path_over(6)];
}

// As the loop does, in this second.
static void
look(uint32_t second)
{
	for (unsigned i = 0; i < PATH_LOOKS; i++)
		gtpu_paths_look(second);
}

static void
forget(void)
{
	look(worker_second() + 2 * PATH_MTU_SECONDS);
	assert_int_equal(mtu(), LINK);
}

// An IP packet of so many bytes from a subscriber.
static void
send_large(const struct subscriber *s, unsigned family, unsigned length, bool df)
{
	uint8_t frame[2048], *ip = write_access(frame, s->outer, s->inner, family == 4 ? 0x0800 : 0x86dd), *end;
	struct ip4_header header;

	end = family == 4
		      ? write_packet4(ip, s == &four ? "100.64.0.2" : "100.64.0.3", "203.0.113.9", length - 20 - UDP)
		      : write_packet6(ip, "2001:db8:1:3::5", "2001:db8:9::9", length - IP6 - UDP);
	if (df) {
		memcpy(&header, ip, sizeof(header));
		header.fragment = htons(IP4_DF);
		header.checksum = ip4_checksum(&header);
		memcpy(ip, &header, sizeof(header));
	}
	sent_count = 0;
	receive("access", frame, (size_t)(end - frame));
}

// A frame of so many bytes, which holds no IP.
static void
send_frame(unsigned length)
{
	uint8_t frame[2048], *at = write_access(frame, frames.outer, frames.inner, 0x9000);

	memset(at, 0x5a, length);
	sent_count = 0;
	receive("access", frame, (size_t)(at + length - 14 - frame));
}

// A router's report about a packet of ours: `quoted` bytes of it, and the MTU.
struct report {
	const char *to;
	uint8_t packet[LINK];
	unsigned quoted;
	uint32_t mtu;
	bool wrong_checksum, from_subscriber;
};

// Of the last frame that was sent to the core.
static struct report
report_of(unsigned index, uint32_t mtu)
{
	struct report r = {.to = "2001:db8:c::1", .quoted = RTE_MIN(sent[index].length - ETHER, QUOTED), .mtu = mtu};

	assert_int_equal(sent[index].port, port_number("core"));
	memcpy(r.packet, sent[index].bytes + ETHER, r.quoted);
	return r;
}

static void
tell(const struct report *r)
{
	uint8_t frame[2048], *ip, *icmp;
	unsigned length = ICMP + r->quoted;
	uint16_t sum;

	ip = r->from_subscriber ? write_access(frame, routed.outer, routed.inner, 0x86dd) : write_core(frame, 0x86dd);
	icmp = write_ip6(ip, r->from_subscriber ? "2001:db8:1:5::5" : "2001:db8:77::1", r->to, length);
	ip[6] = PROTOCOL_ICMP6;
	memset(icmp, 0, ICMP);
	icmp[0] = 2;
	write_word(write_word(icmp + 4, (uint16_t)(r->mtu >> 16)), (uint16_t)r->mtu);
	memcpy(icmp + ICMP, r->packet, r->quoted);
	sum = (uint16_t)~checksum_fold(
		checksum_add(ip6_pseudo_sum(ip + 8, ip + 24, length, PROTOCOL_ICMP6), icmp, length));
	sum = (uint16_t)(sum + r->wrong_checksum);
	memcpy(icmp + 2, &sum, sizeof(sum));
	sent_count = 0;
	receive(r->from_subscriber ? "access" : "core", frame, (size_t)(icmp + length - frame));
}

// A packet that fits the link, and a router that has less room for it.
static struct report
narrow(unsigned family)
{
	send_large(&six, family, NARROW, false);
	assert_int_equal(sent_to("core"), 1);
	return report_of(0, NARROW);
}

static void
a_router_s_mtu_applies_to_later_packets(void **state)
{
	enum { ROOM = NARROW - GTPU_ENCAP6 };

	for (unsigned family = 4; family <= 6; family += 2) {
		struct report r = narrow(family);
		uint64_t before = dropped("gtpu-too-large");

		tell(&r);
		assert_int_equal(mtu(), NARROW);
		// RFC 4459 section 3.1: the sender gets an error.
		send_large(&six, 6, ROOM + 1, false);
		assert_int_equal(sent_to("core"), 0);
		assert_int_equal(sent_to("access"), 1);
		assert_int_equal(sent[0].bytes[TAGGED + IP6], 2);
		assert_int_equal(sent[0].bytes[TAGGED + IP6 + 6] << 8 | sent[0].bytes[TAGGED + IP6 + 7], ROOM);
		send_large(&six, 4, ROOM + 1, true);
		assert_int_equal(sent_to("core"), 0);
		assert_int_equal(sent[0].bytes[TAGGED + 20], 3);
		assert_int_equal(sent[0].bytes[TAGGED + 21], 4);
		assert_int_equal(sent[0].bytes[TAGGED + 26] << 8 | sent[0].bytes[TAGGED + 27], ROOM);
		assert_int_equal(dropped("gtpu-too-large"), before + 2);
		// Or it is cut before the tunnel.
		send_large(&six, 4, ROOM + 1, false);
		assert_int_equal(sent_to("core"), 2);
		assert_int_equal(sent[0].bytes[ETHER + 6], PROTOCOL_UDP);
		assert_true(sent[0].length - ETHER <= NARROW);
		send_large(&six, 6, ROOM, false);
		assert_int_equal(sent_to("core"), 1);
		forget();
	}
}

// RFC 2473 section 7.1 (b): an IPv6 packet of 1280 bytes must pass.
static void
inner_packets_that_cannot_shrink_are_fragmented_outside(void **state)
{
	enum { LESS = 1300 };
	struct report r = narrow(6);

	r.mtu = LESS;
	tell(&r);
	assert_int_equal(mtu(), LESS);
	send_large(&six, 6, PATH_MTU_MIN, false);
	assert_int_equal(sent_to("core"), 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(sent[i].bytes[ETHER + 6], PROTOCOL_FRAGMENT);
		assert_true(sent[i].length - ETHER <= LESS);
	}
	assert_int_equal(sent[0].length + sent[1].length, PATH_MTU_MIN + GTPU_ENCAP6 + 2 * ETHER + IP6 + 2 * FRAGMENT);
	// A router that has still less room for a fragment shows no more of the packet.
	r = report_of(0, PATH_MTU_MIN);
	tell(&r);
	assert_int_equal(mtu(), PATH_MTU_MIN);
	send_frame(NARROW);
	assert_int_equal(sent_to("core"), 2);
	forget();
	// A frame is an inner packet like any other.
	send_frame(NARROW);
	assert_int_equal(sent_to("core"), 1);
	r = report_of(0, NARROW);
	tell(&r);
	assert_int_equal(mtu(), NARROW);
	forget();
}

static void
a_learned_mtu_ends_after_ten_minutes(void **state)
{
	struct report r = narrow(6);
	uint32_t now = worker_second();

	tell(&r);
	look(now + PATH_MTU_SECONDS - 1);
	assert_int_equal(mtu(), NARROW);
	// The clock may have gone on by a second since.
	look(worker_second() + PATH_MTU_SECONDS);
	assert_int_equal(mtu(), LINK);
	// A smaller one counts at once, a larger one not at all.
	tell(&r);
	r.mtu = NARROW - 50;
	tell(&r);
	assert_int_equal(mtu(), NARROW - 50);
	r.mtu = NARROW;
	tell(&r);
	assert_int_equal(mtu(), NARROW - 50);
	look(worker_second());
	assert_int_equal(mtu(), NARROW - 50);
	forget();
}

static void
ignored(const struct report *r)
{
	tell(r);
	assert_int_equal(mtu(), LINK);
	look(worker_second());
	assert_int_equal(mtu(), LINK);
}

static void
a_message_that_quotes_no_packet_of_ours_is_ignored(void **state)
{
	static const unsigned at[] = {1, 2, 3, 6, 8, 23, 24, 39, SPORT_AT, SPORT_AT + 1, DPORT_AT, DPORT_AT + 1,
		IP6 + UDP, TYPE_AT, INNER_AT + 6, INNER_AT + 8, INNER_AT + 23, INNER_AT + 24, INNER_AT + 39,
		INNER_AT + IP6 + 1};
	const struct report good = narrow(6);
	struct report r;

	for (unsigned i = 0; i < RTE_DIM(at); i++) {
		r = good;
		r.packet[at[i]] ^= 1;
		ignored(&r);
	}
	r = good;
	r.wrong_checksum = true;
	ignored(&r);
	r = good;
	r.from_subscriber = true;
	ignored(&r);
	for (unsigned length = 0; length < INNER_AT + IP6 + 4; length++) {
		r = good;
		r.quoted = length;
		ignored(&r);
	}
	// Below the least that there is, and no less than the packet has.
	for (unsigned i = 0; i < 5; i++) {
		r = good;
		r.mtu = (uint32_t[]){0, 1279, NARROW + GTPU_ENCAP6, UINT32_MAX, 0x10000 + NARROW}[i];
		ignored(&r);
	}
	tell(&good);
	assert_int_equal(mtu(), NARROW);
	forget();
}

// Ours may be fragmented on the way: DF is 0.
static void
fragmentation_needed_is_ignored_over_ipv4(void **state)
{
	enum { QUOTE = 548 };
	uint8_t frame[1024], *ip, *icmp;
	struct ip4_header header;
	uint32_t path = path_over(4);
	uint16_t sum;

	send_large(&four, 4, NARROW, false);
	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(sent[0].bytes[ETHER + 6], 0);
	ip = write_core(frame, 0x0800);
	icmp = write_ip4(ip, "192.0.2.9", "192.0.2.1", ICMP + QUOTE);
	memcpy(&header, ip, sizeof(header));
	header.protocol = PROTOCOL_ICMP;
	header.checksum = ip4_checksum(&header);
	memcpy(ip, &header, sizeof(header));
	memset(icmp, 0, ICMP);
	icmp[0] = 3;
	icmp[1] = 4;
	write_word(icmp + 6, NARROW);
	memcpy(icmp + ICMP, sent[0].bytes + ETHER, QUOTE);
	sum = (uint16_t)~checksum_fold(checksum_add(0, icmp, ICMP + QUOTE));
	memcpy(icmp + 2, &sum, sizeof(sum));
	receive("core", frame, (size_t)(icmp + ICMP + QUOTE - frame));
	assert_int_equal(gtpu_path_mtu[path], LINK);
	look(worker_second());
	assert_int_equal(gtpu_path_mtu[path], LINK);
}

static void
a_path_that_is_made_again_knows_nothing(void **state)
{
	struct report r = narrow(6);

	tell(&r);
	assert_int_equal(mtu(), NARROW);
	assert_int_equal(delete_session("six"), 0);
	assert_int_equal(delete_session("frames"), 0);
	assert_int_equal(put_session(&six), 0);
	assert_int_equal(mtu(), LINK);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_router_s_mtu_applies_to_later_packets),
		cmocka_unit_test(inner_packets_that_cannot_shrink_are_fragmented_outside),
		cmocka_unit_test(a_learned_mtu_ends_after_ten_minutes),
		cmocka_unit_test(a_message_that_quotes_no_packet_of_ours_is_ignored),
		cmocka_unit_test(fragmentation_needed_is_ignored_over_ipv4),
		cmocka_unit_test(a_path_that_is_made_again_knows_nothing),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
