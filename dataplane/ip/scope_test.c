// SPDX-License-Identifier: Apache-2.0
// Packets that are not let in or not forwarded for their addresses or the frame that they came in, one by one, and those that no
// ICMP error is sent about (RFC 1122, RFC 1812, RFC 3927, RFC 4291, RFC 4443, RFC 6890).
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/fair.h"
#include "core/start.h"
#include "ether/interface.h"
#include "fib/three_ports.h"
#include "interface.pb-c.h"
#include "ip/icmp.h"

static const uint8_t broadcast_mac[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
static const uint8_t multicast_mac[6] = {0x01, 0x00, 0x5e, 0, 0, 1};
static const uint8_t multicast_mac6[6] = {0x33, 0x33, 0, 0, 0, 1};

static void
put_default_routes(void)
{
	assert_int_equal(put_route("", "0.0.0.0/0", 0, &(struct via){"198.51.100.2"}, 1), 0);
	assert_int_equal(put_route("", "::/0", 0, &(struct via){"2001:db8:2::2"}, 1), 0);
}

static void
remove_default_routes(void)
{
	remove_route("", "0.0.0.0/0");
	remove_route("", "::/0");
}

// The frame comes in by "in": its packet on the way out.
static void
come(const char *from, const char *to, uint8_t hops, const uint8_t *mac)
{
	sent_count = 0;
	if (strchr(to, ':')) {
		struct packet6 p = udp6(from, to, hops, 20);

		p.payload[7] = 1; // a checksum
		if (mac)
			memcpy(p.ether, mac, 6);
		receive("in", (uint8_t *)&p, ETHER + 60);
	} else {
		struct packet4 p = udp4(from, to, hops, 60);

		if (mac)
			memcpy(p.ether, mac, 6);
		receive("in", (uint8_t *)&p, ETHER + 60);
	}
}

struct refused {
	const char *drop, *from, *to;
};

static void
assert_refused(const struct refused *cases, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		uint64_t before = dropped(cases[i].drop);

		come(cases[i].from, cases[i].to, 64, NULL);
		if (dropped(cases[i].drop) != before + 1 || sent_count != 0)
			fail_msg("%s to %s: %u frames sent, not dropped as %s", cases[i].from, cases[i].to, sent_count,
				cases[i].drop);
	}
}

static void
addresses_that_are_not_to_be_forwarded_are_not(void **state)
{
	static const struct refused cases[] = {
		{"ip4-martian-source", "0.0.0.0", "203.0.113.5"},
		{"ip4-martian-source", "0.1.2.3", "203.0.113.5"},
		{"ip4-martian-source", "127.0.0.1", "203.0.113.5"},
		{"ip4-martian-source", "224.0.0.1", "203.0.113.5"},
		{"ip4-martian-source", "239.255.255.255", "203.0.113.5"},
		{"ip4-martian-source", "240.0.0.1", "203.0.113.5"},
		{"ip4-martian-source", "255.255.255.255", "203.0.113.5"},
		{"ip4-link-local", "169.254.0.0", "203.0.113.5"},
		{"ip4-link-local", "169.254.255.255", "203.0.113.5"},
		{"ip4-own-source", "192.0.2.1", "203.0.113.5"},
		{"ip4-own-source", "192.0.2.0", "203.0.113.5"},
		{"ip4-own-source", "192.0.2.255", "203.0.113.5"},
		{"ip4-own-source", "198.51.100.1", "203.0.113.5"},
		{"ip4-own-source", "192.0.2.1", "192.0.2.1"},
		{"this-network", "192.0.2.9", "0.0.0.0"},
		{"this-network", "192.0.2.9", "0.1.2.3"},
		{"loopback-destination", "192.0.2.9", "127.0.0.1"},
		{"loopback-destination", "192.0.2.9", "127.255.255.255"},
		{"ip4-link-local", "192.0.2.9", "169.254.0.1"},
		{"ip4-link-local", "192.0.2.9", "169.254.255.254"},
		{"multicast", "192.0.2.9", "239.1.2.3"},
		{"multicast-not-for-us", "192.0.2.9", "224.0.0.1"},
		{"class-e", "192.0.2.9", "240.0.0.1"},
		{"class-e", "192.0.2.9", "255.255.255.254"},
		{"multicast-not-for-us", "192.0.2.9", "255.255.255.255"},
		{"network-address", "192.0.2.9", "198.51.100.0"},
		{"directed-broadcast", "192.0.2.9", "198.51.100.255"},
		{"ip6-martian-source", "::", "2001:db8:f::5"},
		{"ip6-martian-source", "::1", "2001:db8:f::5"},
		{"ip6-martian-source", "::ffff:192.0.2.9", "2001:db8:f::5"},
		{"ip6-martian-source", "ff02::1", "2001:db8:f::5"},
		{"ip6-martian-source", "ff0e::1", "2001:db8:f::5"},
		{"ip6-own-source", "2001:db8:1::1", "2001:db8:f::5"},
		{"ip6-own-source", "2001:db8:2::1", "2001:db8:f::5"},
		{"ip6-own-source", "2001:db8:1::1", "2001:db8:1::1"},
		{"ip6-own-source", "2001:db8:1::", "2001:db8:f::5"},
		{"ip6-own-source", "fe80::ff:fe00:1", "2001:db8:f::5"},
		{"this-network", "2001:db8:1::9", "::"},
		{"loopback-destination", "2001:db8:1::9", "::1"},
		{"ip4-mapped-destination", "2001:db8:1::9", "::ffff:192.0.2.9"},
		{"link-local-destination", "2001:db8:1::9", "fe80::5"},
		{"link-local-destination", "2001:db8:1::9", "febf::5"},
		{"multicast", "2001:db8:1::9", "ff0e::5"},
		{"multicast", "2001:db8:1::9", "ff00::5"},
		{"multicast", "2001:db8:1::9", "ff01::5"},
		{"multicast-not-for-us", "2001:db8:1::9", "ff02::5"},
	};

	put_default_routes();
	assert_refused(cases, RTE_DIM(cases));
	remove_default_routes();
}

static void
addresses_beside_those_are_forwarded(void **state)
{
	static const struct {
		const char *from, *to;
	} cases[] = {
		{"1.0.0.0", "203.0.113.5"},
		{"126.255.255.255", "203.0.113.5"},
		{"128.0.0.0", "203.0.113.5"},
		{"169.253.255.255", "203.0.113.5"},
		{"169.255.0.0", "203.0.113.5"},
		{"223.255.255.255", "203.0.113.5"},
		{"10.0.0.1", "203.0.113.5"},
		{"100.64.0.1", "203.0.113.5"},
		{"192.0.2.9", "1.0.0.0"},
		{"192.0.2.9", "126.255.255.255"},
		{"192.0.2.9", "128.0.0.0"},
		{"192.0.2.9", "169.253.255.255"},
		{"192.0.2.9", "169.255.0.0"},
		{"192.0.2.9", "223.255.255.255"},
		{"192.0.2.9", "10.0.0.1"},
		{"192.0.2.9", "192.168.0.1"},
		{"2001:db8:1::9", "64:ff9b::1"},
		{"2001:db8:1::9", "fc00::1"},
		{"2001:db8:1::9", "fec0::1"},
		{"fc00::1", "2001:db8:f::5"},
		{"fec0::1", "2001:db8:f::5"},
		{"64:ff9b::192.0.2.9", "2001:db8:f::5"},
		{"::ff:0:0", "2001:db8:f::5"},
		{"2001:db8:1::9", "::ff:0:0"},
	};

	put_default_routes();
	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		come(cases[i].from, cases[i].to, 64, NULL);
		if (sent_count != 1 || sent[0].length != ETHER + 60)
			fail_msg("%s to %s: %u frames sent", cases[i].from, cases[i].to, sent_count);
	}
	remove_default_routes();
}

// Its sender learns that its address has too small a scope (RFC 4443 section 3.1).
static void
a_link_local_source_never_leaves_its_link(void **state)
{
	uint64_t before = dropped("beyond-scope");
	const uint8_t *icmp = sent[0].bytes + ETHER + sizeof(struct ip6_header);

	put_default_routes();
	assert_int_equal(put_neighbor("in", "fe80::9", "02:00:00:00:09:09"), 0);
	come("fe80::9", "2001:db8:f::5", 64, NULL);
	assert_int_equal(dropped("beyond-scope"), before + 1);
	assert_int_equal(sent_count, 1);
	assert_int_equal(icmp[0], ICMP6_UNREACHABLE);
	assert_int_equal(icmp[1], ICMP6_BEYOND_SCOPE);
	come("fe80::9", "2001:db8:2::2", 64, NULL);
	assert_int_equal(dropped("beyond-scope"), before + 2);
	assert_int_equal(object_delete("Neighbor", "fe80::9", &f), 0);
	remove_default_routes();
}

// On a link whose network is 169.254.0.0/16 we have an address and neighbours, and forward nothing from or to it.
static void
an_ipv4_link_local_network_is_reached_by_us_alone(void **state)
{
	uint64_t before = dropped("ip4-link-local");
	struct packet4 p = udp4("169.254.0.9", "169.254.0.1", 64, 28);

	put_default_routes();
	assert_int_equal(put_interface("other", "other", "", "169.254.0.1/16", ""), 0);
	assert_int_equal(put_neighbor("other", "169.254.0.9", "02:00:00:00:09:09"), 0);
	come("192.0.2.9", "169.254.0.9", 64, NULL);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("ip4-link-local"), before + 1);

	p.ether[5] = 3;
	p.ip.protocol = PROTOCOL_ICMP;
	p.ip.checksum = ip4_checksum(&p.ip);
	memcpy(p.payload, (uint8_t[]){8, 0, 0xf7, 0xff, 0, 0, 0, 0}, 8);
	sent_count = 0;
	receive("other", (uint8_t *)&p, ETHER + 28);
	assert_int_equal(sent_count, 1);
	assert_int_equal(dropped("ip4-link-local"), before + 1);
	assert_int_equal(object_delete("Neighbor", "169.254.0.9", &f), 0);
	assert_int_equal(object_delete("Interface", "other", &f), 0);
	remove_default_routes();
}

static void
an_address_that_is_ours_no_more_is_a_source_like_others(void **state)
{
	put_default_routes();
	assert_int_equal(put_interface("other", "other", "", "100.64.1.1/24", "2001:db8:3::1/64"), 0);
	assert_refused((const struct refused[]){{"ip4-own-source", "100.64.1.1", "203.0.113.5"},
			       {"ip4-own-source", "100.64.1.255", "203.0.113.5"},
			       {"ip6-own-source", "2001:db8:3::1", "2001:db8:f::5"}},
		3);
	assert_int_equal(object_delete("Interface", "other", &f), 0);
	come("100.64.1.1", "203.0.113.5", 64, NULL);
	assert_int_equal(sent_count, 1);
	come("100.64.1.255", "203.0.113.5", 64, NULL);
	assert_int_equal(sent_count, 1);
	come("2001:db8:3::1", "2001:db8:f::5", 64, NULL);
	assert_int_equal(sent_count, 1);
	remove_default_routes();
}

static void
a_packet_for_one_host_in_a_frame_to_a_group_is_dropped(void **state)
{
	static const struct {
		const char *from, *to;
		const uint8_t *mac;
	} cases[] = {
		{"192.0.2.9", "203.0.113.5", broadcast_mac},
		{"192.0.2.9", "203.0.113.5", multicast_mac},
		{"192.0.2.9", "192.0.2.1", broadcast_mac},
		{"192.0.2.9", "192.0.2.1", multicast_mac},
		{"2001:db8:1::9", "2001:db8:f::5", broadcast_mac},
		{"2001:db8:1::9", "2001:db8:f::5", multicast_mac6},
		{"2001:db8:1::9", "2001:db8:1::1", multicast_mac6},
	};

	put_default_routes();
	for (unsigned i = 0; i < RTE_DIM(cases); i++)
		// Neither forwarded nor, with a TTL of 1, answered with an error.
		for (uint8_t hops = 1; hops <= 64; hops = (uint8_t)(hops + 63)) {
			uint64_t before = dropped("unicast-in-group-frame");

			come(cases[i].from, cases[i].to, hops, cases[i].mac);
			assert_int_equal(sent_count, 0);
			assert_int_equal(dropped("unicast-in-group-frame"), before + 1);
		}
	remove_default_routes();
}

static void
a_broadcast_or_multicast_in_a_frame_to_a_group_is_taken(void **state)
{
	static const struct {
		const char *from, *to;
		const uint8_t *mac;
	} cases[] = {
		{"192.0.2.9", "255.255.255.255", broadcast_mac},
		{"192.0.2.9", "192.0.2.255", broadcast_mac},
		{"192.0.2.9", "224.0.0.1", multicast_mac},
		{"2001:db8:1::9", "ff02::1", multicast_mac6},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		uint64_t before = dropped("multicast-not-for-us");

		come(cases[i].from, cases[i].to, 64, cases[i].mac);
		assert_int_equal(dropped("multicast-not-for-us"), before + 1);
	}
}

// Options that are malformed are the sender's to learn of, unless the packet was for many.
static void
no_error_is_sent_about_a_packet_to_or_from_more_than_one_host(void **state)
{
	static const struct {
		const char *from, *to;
		const uint8_t *mac;
		unsigned errors;
	} cases[] = {
		{"192.0.2.9", "203.0.113.5", NULL, 1},
		{"192.0.2.9", "192.0.2.1", NULL, 1},
		{"192.0.2.9", "192.0.2.255", NULL, 0},
		{"192.0.2.9", "192.0.2.255", broadcast_mac, 0},
		{"192.0.2.9", "192.0.2.0", NULL, 0},
		{"192.0.2.9", "198.51.100.255", NULL, 0},
		{"192.0.2.9", "224.0.0.1", multicast_mac, 0},
		{"192.0.2.9", "255.255.255.255", broadcast_mac, 0},
		{"192.0.2.255", "203.0.113.5", NULL, 0},
		{"192.0.2.1", "203.0.113.5", NULL, 0},
	};

	put_default_routes();
	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		struct packet4 p = udp4(cases[i].from, cases[i].to, 64, 60);

		p.ip.version_ihl = 0x46;
		memcpy(p.payload, (uint8_t[]){7, 1, 4, 0}, 4);
		p.ip.checksum = ip4_checksum(&p.ip);
		if (cases[i].mac)
			memcpy(p.ether, cases[i].mac, 6);
		sent_count = 0;
		receive("in", (uint8_t *)&p, ETHER + 60);
		if (sent_count != cases[i].errors)
			fail_msg("%s to %s: %u errors", cases[i].from, cases[i].to, sent_count);
	}
	remove_default_routes();
}

static void
an_error_to_a_host_without_a_session_does_not_go_before_the_packets_of_others(void **state)
{
	put_default_routes();
	come("192.0.2.9", "203.0.113.5", 1, NULL);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].queue, QUEUE_OF_REPLIES);
	come("2001:db8:1::9", "2001:db8:f::5", 1, NULL);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].queue, QUEUE_OF_REPLIES);
	remove_default_routes();
}

// Section 2.4 (e.3) of RFC 4443: an unknown option in a multicast may be reported to its sender, an unknown protocol
// not.
static void
only_an_unknown_option_to_a_group_is_reported(void **state)
{
	for (unsigned known = 0; known < 2; known++) {
		struct packet6 p = udp6("2001:db8:1::9", "ff02::1", 255, 16);

		p.ip.next_header = known ? 200 : PROTOCOL_DESTINATION_OPTIONS;
		memcpy(p.payload, (uint8_t[8]){PROTOCOL_UDP, 0, 0x9e, 4}, 8);
		memcpy(p.ether, multicast_mac6, 6);
		sent_count = 0;
		receive("in", (uint8_t *)&p, ETHER + 56);
		assert_int_equal(sent_count, known ? 0 : 1);
	}
}

static void
a_route_to_where_nothing_is_forwarded_is_refused(void **state)
{
	static const char *const refused[] = {"0.0.0.0/8", "0.1.0.0/16", "127.0.0.0/8", "127.0.0.1/32",
		"169.254.0.0/16", "169.254.169.254/32", "224.0.0.0/4", "224.0.0.0/3", "239.1.0.0/16", "240.0.0.0/4",
		"255.255.255.255/32", "::/128", "::1/128", "::ffff:0:0/96", "::ffff:192.0.2.0/120", "fe80::/10",
		"fe80::1/128", "ff00::/8", "ff0e::/16"};
	static const char *const accepted[] = {"0.0.0.0/0", "1.0.0.0/8", "126.0.0.0/8", "169.0.0.0/8", "192.168.0.0/16",
		"192.0.0.0/24", "223.0.0.0/8", "::/0", "64:ff9b::/96", "fc00::/7", "fec0::/10", "2002::/16"};

	for (unsigned i = 0; i < RTE_DIM(refused); i++) {
		const char *hop = strchr(refused[i], ':') ? "2001:db8:2::2" : "198.51.100.2";

		assert_int_equal(put_route("", refused[i], 0, &(struct via){hop}, 1), -EINVAL);
		assert_non_null(strstr(f.text, "prefix: "));
		assert_non_null(strstr(f.text, refused[i]));
		assert_int_equal(put_route("", refused[i], SLUICE__V1__ROUTE_ACTION__BLACKHOLE, NULL, 0), 0);
		remove_route("", refused[i]);
	}
	for (unsigned i = 0; i < RTE_DIM(accepted); i++) {
		const char *hop = strchr(accepted[i], ':') ? "2001:db8:2::2" : "198.51.100.2";

		assert_int_equal(put_route("", accepted[i], 0, &(struct via){hop}, 1), 0);
		remove_route("", accepted[i]);
	}
}

static void
an_address_that_no_host_can_have_is_not_ours(void **state)
{
	static const struct {
		const char *address4, *address6, *why;
	} refused[] = {
		{"100.64.1.0/24", "", "network's own address"},
		{"100.64.1.4/30", "", "network's own address"},
		{"100.64.1.255/24", "", "broadcast address"},
		{"100.64.1.7/30", "", "broadcast address"},
		{"127.0.0.1/8", "", "loopback"},
		{"100.64.1.1/24", "2001:db8:3::/64", "network's own address"},
		{"100.64.1.1/24", "2001:db8:3::4/126", "network's own address"},
		{"100.64.1.1/24", "::1/128", "loopback"},
		{"100.64.1.1/24", "::ffff:192.0.2.1/128", "IPv4-mapped"},
	};
	static const char *const accepted[][2] = {{"100.64.1.0/31", ""}, {"100.64.1.1/31", ""}, {"100.64.1.0/32", ""},
		{"100.64.1.1/24", "2001:db8:3::/127"}, {"100.64.1.1/24", "2001:db8:3::ffff:ffff:ffff:ffff/64"},
		{"169.254.0.1/16", "fe80::1/64"}};

	for (unsigned i = 0; i < RTE_DIM(refused); i++) {
		assert_int_equal(
			put_interface("other", "other", "", refused[i].address4, refused[i].address6), -EINVAL);
		assert_non_null(strstr(f.text, "addresses: "));
		assert_non_null(strstr(f.text, refused[i].why));
		assert_null(object_find(&interface_kind, "other"));
	}
	for (unsigned i = 0; i < RTE_DIM(accepted); i++) {
		assert_int_equal(put_interface("other", "other", "", accepted[i][0], accepted[i][1]), 0);
		assert_int_equal(put_interface("other", "other", "", "100.64.1.0/24", ""), -EINVAL);
		assert_int_equal(object_delete("Interface", "other", &f), 0);
	}
}

static void
a_network_is_one_interface_s_in_a_vrf(void **state)
{
	Sluice__V1__Vrf red = SLUICE__V1__VRF__INIT;

	assert_int_equal(put_interface("other", "other", "", "192.0.2.77/24", ""), -EEXIST);
	assert_non_null(
		strstr(f.text, "addresses: 192.0.2.0/24 is the network of Interface \"in\" in VRF \"default\""));
	assert_int_equal(put_interface("other", "other", "", "100.64.1.1/24", "2001:db8:1::77/64"), -EEXIST);
	assert_non_null(strstr(f.text, "2001:db8:1::/64 is the network of Interface \"in\""));
	assert_int_equal(put_interface("other", "other", "", "192.0.2.1/32", ""), -EEXIST);
	assert_non_null(strstr(f.text, "192.0.2.1 is an address of Interface \"in\""));
	assert_null(object_find(&interface_kind, "other"));

	// A part of it, a second address of the same interface, and the same in another VRF are accepted.
	assert_int_equal(put_interface("other", "other", "", "192.0.2.129/25", ""), 0);
	assert_int_equal(put_interface("other", "other", "", "192.0.2.1/24", ""), -EEXIST);
	assert_int_equal(put_interface("other", "other", "", "100.64.1.1/24", ""), 0);
	assert_int_equal(put_interface("other", "other", "", "100.64.1.1/24", "100.64.1.2/24"), 0);
	assert_int_equal(object_delete("Interface", "other", &f), 0);
	assert_int_equal(put("Vrf", "red", &red), 0);
	assert_int_equal(put_interface("other", "other", "red", "192.0.2.1/24", ""), 0);
	assert_int_equal(object_delete("Interface", "other", &f), 0);
	assert_int_equal(object_delete("Vrf", "red", &f), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_that_are_not_to_be_forwarded_are_not),
		cmocka_unit_test(addresses_beside_those_are_forwarded),
		cmocka_unit_test(a_link_local_source_never_leaves_its_link),
		cmocka_unit_test(an_ipv4_link_local_network_is_reached_by_us_alone),
		cmocka_unit_test(an_address_that_is_ours_no_more_is_a_source_like_others),
		cmocka_unit_test(a_packet_for_one_host_in_a_frame_to_a_group_is_dropped),
		cmocka_unit_test(a_broadcast_or_multicast_in_a_frame_to_a_group_is_taken),
		cmocka_unit_test(no_error_is_sent_about_a_packet_to_or_from_more_than_one_host),
		cmocka_unit_test(an_error_to_a_host_without_a_session_does_not_go_before_the_packets_of_others),
		cmocka_unit_test(only_an_unknown_option_to_a_group_is_reported),
		cmocka_unit_test(a_route_to_where_nothing_is_forwarded_is_refused),
		cmocka_unit_test(an_address_that_no_host_can_have_is_not_ours),
		cmocka_unit_test(a_network_is_one_interface_s_in_a_vrf),
	};

	return cmocka_run_group_tests(tests, three_ports_start, three_ports_stop);
}
