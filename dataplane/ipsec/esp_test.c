// SPDX-License-Identifier: Apache-2.0
// Tunnels through the whole graph: packets that leave by a tunnel come back as its peer would send them.
// tests/test_ipsec.py compares the bytes with an independent implementation.
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/punt.h"
#include "core/punt_watch.h"
#include "core/rcu.h"
#include "ether/interface.h"
#include "fib/three_ports.h"
#include "ipsec.pb-c.h"
#include "ipsec/sa.h"
#include "ipsec/sa_events.h"
#include "ipsec/sequence_file.h"
#include "ipsec/tunnel.h"
#include "port/port.h"

#define GCM_KEY "000102030405060708090a0b0c0d0e0f10111213"
#define CBC_KEY "000102030405060708090a0b0c0d0e0f"
#define SHA1_KEY "202122232425262728292a2b2c2d2e2f30313233"
#define SHA256_KEY "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"

enum { SPI = 4097 };

// An SA; the fields that tests differ in.
struct sa {
	const char *name, *tunnel;
	bool outbound, six, esn, udp, no_check;
	uint32_t spi, precedence, window, path_mtu, icv;
	const char *peer; // NULL: the one that the tests have
	uint64_t sequence, hard_packets, hard_bytes;
	Sluice__V1__EspEncryption encryption;
	const char *key;
	Sluice__V1__EspIntegrity integrity;
	const char *integrity_key;
	const char *local, *remote; // selector
	Sluice__V1__OuterHeader *outer;
};

static int
put_sa(const struct sa *s)
{
	Sluice__V1__SecurityAssociation spec = SLUICE__V1__SECURITY_ASSOCIATION__INIT;
	Sluice__V1__TrafficSelector selector = SLUICE__V1__TRAFFIC_SELECTOR__INIT, *selectors[] = {&selector};
	Sluice__V1__EspInUdp udp = SLUICE__V1__ESP_IN_UDP__INIT;

	spec.direction =
		s->outbound ? SLUICE__V1__SECURITY_DIRECTION__OUTBOUND : SLUICE__V1__SECURITY_DIRECTION__INBOUND;
	spec.spi = s->spi ? s->spi : SPI;
	spec.local_address = s->six ? "2001:db8:2::1" : "198.51.100.1";
	spec.remote_address = s->peer ? (char *)s->peer : s->six ? "2001:db8:2::2" : "198.51.100.2";
	spec.icv_length = s->icv;
	spec.udp = s->udp ? &udp : NULL;
	spec.encryption = s->encryption;
	spec.encryption_key = (char *)(s->key ? s->key : GCM_KEY);
	spec.integrity = s->integrity;
	spec.integrity_key = (char *)(s->integrity_key ? s->integrity_key : "");
	spec.esn = s->esn;
	spec.no_replay_check = s->no_check;
	spec.replay_window = s->window;
	spec.sequence = s->sequence;
	spec.hard_packets = s->hard_packets;
	spec.hard_bytes = s->hard_bytes;
	spec.tunnel = (char *)(s->tunnel ? s->tunnel : "t");
	spec.precedence = s->precedence;
	spec.path_mtu = s->path_mtu;
	spec.outer = s->outer;
	selector.local = (char *)s->local;
	selector.remote = (char *)s->remote;
	spec.selectors = selectors;
	spec.n_selectors = s->local != NULL;
	return put("SecurityAssociation", s->name ? s->name : s->outbound ? "out" : "in", &spec);
}

// One end of the tunnel is in the VRF default, where packets go in; the other one is "back", in the VRF "behind", where they come out to
// the port "other".
static int
put_tunnel(const char *name, unsigned mss)
{
	Sluice__V1__IpsecTunnel t = SLUICE__V1__IPSEC_TUNNEL__INIT;

	t.mss = mss;
	return put("IpsecTunnel", name, &t);
}

static int
put_tunnel_interface(const char *name, const char *tunnel, const char *vrf, const char *address4, const char *address6)
{
	Sluice__V1__Interface i = SLUICE__V1__INTERFACE__INIT;

	i.ipsec_tunnel = (char *)tunnel;
	i.vrf = (char *)vrf;
	i.addresses = (char *[]){(char *)address4, (char *)address6};
	i.n_addresses = 2;
	return put("Interface", name, &i);
}

static int
start_all(void **state)
{
	Sluice__V1__Vrf vrf = SLUICE__V1__VRF__INIT;

	if (three_ports_start(state) || put("Vrf", "behind", &vrf) || put_tunnel("t", 0) || put_tunnel("back", 0) ||
		put_tunnel_interface("tun", "t", "", "10.9.0.1/24", "2001:db8:9::1/64") ||
		put_tunnel_interface("back", "back", "behind", "10.8.0.1/24", "2001:db8:8::1/64") ||
		put_interface("other", "other", "behind", "203.0.113.1/24", "2001:db8:7::1/64") ||
		put_neighbor("other", "203.0.113.9", "02:00:00:00:07:09") ||
		put_neighbor("other", "2001:db8:7::9", "02:00:00:00:07:09") ||
		put_route("", "203.0.113.0/24", SLUICE__V1__ROUTE_ACTION__FORWARD, &(struct via){NULL, "tun", 0}, 1) ||
		put_route("", "2001:db8:7::/64", SLUICE__V1__ROUTE_ACTION__FORWARD, &(struct via){NULL, "tun", 0}, 1))
		return -1;
	return 0;
}

static int
stop(void **state)
{
	static const char *const names[] = {"in", "out", "new", "narrow"};

	for (unsigned i = 0; i < RTE_DIM(names); i++)
		object_delete("SecurityAssociation", names[i], &f);
	put_tunnel("t", 0);
	return 0;
}

static uint32_t
index_of(const char *name)
{
	return (uint32_t)(uintptr_t)object_find(&security_association_kind, name)->state;
}

// Both directions of an SA with the same key, so that outgoing packets can come in.
static void
put_pair(struct sa s)
{
	s.outbound = true;
	assert_int_equal(put_sa(&s), 0);
	s.outbound = false;
	s.tunnel = "back";
	s.hard_packets = s.hard_bytes = 0;
	s.local = NULL;
	assert_int_equal(put_sa(&s), 0);
}

static bool
went_to(const char *port)
{
	return sent_count == 1 && sent[0].port == port_of(object_find(&port_kind, port))->id;
}

// Packets sent to the peer come in as if the peer had sent them: ESP does not protect the outer addresses.
static void
turn_around(struct frame frame)
{
	static const uint8_t mac[6] = {2, 0, 0, 0, 0, 2};
	uint8_t *ip = frame.bytes + ETHER, swap[16];

	memcpy(frame.bytes, mac, 6);
	if (ip[0] >> 4 == 4) {
		memcpy(swap, ip + 12, 4);
		memmove(ip + 12, ip + 16, 4);
		memcpy(ip + 16, swap, 4);
	} else {
		memcpy(swap, ip + 8, 16);
		memmove(ip + 8, ip + 24, 16);
		memcpy(ip + 24, swap, 16);
	}
	sent_count = 0;
	receive("out", frame.bytes, frame.length);
}

static struct packet4
inner4(unsigned length, uint8_t tos, uint16_t fragment)
{
	struct packet4 p = udp4("192.0.2.9", "203.0.113.9", 64, length);

	p.ip.tos = tos;
	p.ip.fragment = htons(fragment);
	p.ip.checksum = ip4_checksum(&p.ip);
	return p;
}

static void
leave4(unsigned length, uint8_t tos, uint16_t fragment)
{
	struct packet4 p = inner4(length, tos, fragment);

	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + length);
}

static void
leave6(unsigned payload)
{
	struct packet6 p = udp6("2001:db8:1::9", "2001:db8:7::9", 64, payload);

	for (unsigned i = 0; i < payload; i++)
		p.payload[i] = (uint8_t)(i * 11);
	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + 40 + payload);
}

static const struct {
	const char *name;
	struct sa sa;
} forms[] = {
	{"GCM", {0}},
	{"GCM with ESN", {.esn = true}},
	{"GCM with ESN behind the first wrap", {.esn = true, .sequence = UINT64_C(0x1fffffff0)}},
	{"GCM over IPv6", {.six = true}},
	{"GCM in UDP", {.udp = true}},
	{"GCM in UDP over IPv6", {.udp = true, .six = true}},
	{"CBC with SHA-1", {.encryption = SLUICE__V1__ESP_ENCRYPTION__AES_CBC,
				   .key = CBC_KEY,
				   .integrity = SLUICE__V1__ESP_INTEGRITY__HMAC_SHA1,
				   .integrity_key = SHA1_KEY}},
	{"CBC with SHA-256 and ESN", {.encryption = SLUICE__V1__ESP_ENCRYPTION__AES_CBC,
					     .key = CBC_KEY,
					     .esn = true,
					     .six = true,
					     .integrity = SLUICE__V1__ESP_INTEGRITY__HMAC_SHA256,
					     .integrity_key = SHA256_KEY}},
	{"CTR with SHA-256", {.encryption = SLUICE__V1__ESP_ENCRYPTION__AES_CTR,
				     .integrity = SLUICE__V1__ESP_INTEGRITY__HMAC_SHA256,
				     .integrity_key = SHA256_KEY}},
	{"GMAC", {.encryption = SLUICE__V1__ESP_ENCRYPTION__AES_GMAC}},
	{"ChaCha20", {.encryption = SLUICE__V1__ESP_ENCRYPTION__CHACHA20_POLY1305, .key = SHA256_KEY "01020304"}},
	{"NULL with SHA-256", {.encryption = SLUICE__V1__ESP_ENCRYPTION__NULL_ENCRYPTION,
				      .key = "",
				      .integrity = SLUICE__V1__ESP_INTEGRITY__HMAC_SHA256,
				      .integrity_key = SHA256_KEY}},
};

static void
a_packet_comes_out_of_a_tunnel_as_it_went_in(void **state)
{
	for (unsigned i = 0; i < RTE_DIM(forms); i++) {
		put_pair(forms[i].sa);
		for (unsigned length = 28; length < 128; length += 3) {
			struct packet4 p = inner4(length, 0, 0);

			leave4(length, 0, 0);
			assert_true(went_to("out"));
			assert_true(sent[0].length > ETHER + 20 + length);
			turn_around(sent[0]);
			if (!went_to("other"))
				fail_msg("%s, %u bytes: %s", forms[i].name, length,
					sent_count ? "went elsewhere" : "did not arrive");
			assert_int_equal(sent[0].length, ETHER + length);
			p.ip.ttl = 62; // two gateways
			p.ip.checksum = ip4_checksum(&p.ip);
			assert_memory_equal(sent[0].bytes + ETHER, &p.ip, length);

			leave6(length);
			assert_true(went_to("out"));
			turn_around(sent[0]);
			assert_true(went_to("other"));
			assert_int_equal(sent[0].length, ETHER + 40 + length);
			assert_int_equal(sent[0].bytes[ETHER + 40 + 17], (uint8_t)(17 * 11));
		}
		stop(NULL);
	}
}

static void
a_packet_that_was_received_or_damaged_is_a_named_drop(void **state)
{
	struct frame frame;

	put_pair((struct sa){0});
	leave4(100, 0, 0);
	frame = sent[0];
	turn_around(frame);
	assert_true(went_to("other"));
	for (uint64_t before = dropped("esp-replay"), i = 1; i <= 3; i++) {
		turn_around(frame);
		assert_int_equal(sent_count, 0);
		assert_int_equal(dropped("esp-replay"), before + i);
	}
	leave4(100, 0, 0);
	frame = sent[0];
	// Every bit behind the SPI: a wrong sequence number is one of the ICV's, as it is new.
	for (unsigned bit = (ETHER + 20 + 4) * 8; bit < frame.length * 8u; bit += 5) {
		uint64_t before = dropped("esp-icv") + dropped("esp-replay");

		frame.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		turn_around(frame);
		frame.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(sent_count, 0);
		assert_int_equal(dropped("esp-icv") + dropped("esp-replay"), before + 1);
	}
	turn_around(frame);
	assert_true(went_to("other"));
}

static void
every_truncation_is_dropped(void **state)
{
	struct frame frame;

	put_pair((struct sa){0});
	leave4(60, 0, 0);
	frame = sent[0];
	for (uint16_t length = ETHER + 20; length < frame.length; length++) {
		struct frame cut = frame;
		struct ip4_header ip;

		memcpy(&ip, frame.bytes + ETHER, sizeof(ip));
		ip.total_length = htons((uint16_t)(length - ETHER));
		ip.checksum = ip4_checksum(&ip);
		memcpy(cut.bytes + ETHER, &ip, sizeof(ip));
		cut.length = length;
		turn_around(cut);
		assert_int_equal(sent_count, 0);
	}
	turn_around(frame);
	assert_true(went_to("other"));
}

static void
a_packet_without_an_association_is_a_named_drop_both_ways(void **state)
{
	uint64_t none = dropped("ipsec-no-association"), unknown = dropped("esp-unknown-spi");
	struct frame frame;

	leave4(100, 0, 0);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("ipsec-no-association"), none + 1);
	put_pair((struct sa){0});
	leave4(100, 0, 0);
	frame = sent[0];
	assert_int_equal(object_delete("SecurityAssociation", "in", &f), 0);
	turn_around(frame);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("esp-unknown-spi"), unknown + 1);
}

static void
a_punt_limit_applies_to_packets_of_unknown_associations(void **state)
{
	const struct punt *reason = punt_by_name("esp-unknown-spi");
	enum { PACKETS = 200 };
	uint64_t before;

	put_pair((struct sa){0});
	leave4(100, 0, 0);
	struct frame frame = sent[0];
	assert_int_equal(object_delete("SecurityAssociation", "in", &f), 0);
	punt_limit(reason->id, &(struct punt_limits){.rate = 100000});
	before = punt_counts(reason->id).punted;
	for (unsigned i = 0; i < PACKETS; i++)
		turn_around(frame);
	assert_int_equal(punt_counts(reason->id).punted - before, PACKETS);
	// A flood of one source leaves room for another.
	punt_limit(reason->id, NULL);
	for (unsigned i = 0; i < PACKETS; i++)
		turn_around(frame);
	before = punt_counts(reason->id).punted;
	frame.bytes[ETHER + 19]++;
	struct ip4_header ip;
	memcpy(&ip, frame.bytes + ETHER, sizeof(ip));
	ip.checksum = 0;
	ip.checksum = ip4_checksum(&ip);
	memcpy(frame.bytes + ETHER, &ip, sizeof(ip));
	turn_around(frame);
	assert_int_equal(punt_counts(reason->id).punted - before, 1);
}

static void
an_association_ends_behind_its_last_sequence_number_and_at_its_limits(void **state)
{
	struct sa exhausted = {.sequence = UINT32_MAX - 2}, packets = {.hard_packets = 3}, bytes = {.hard_bytes = 250};
	uint64_t before;

	put_pair(exhausted);
	before = dropped("esp-sequence-exhausted");
	for (unsigned i = 0; i < 4; i++) {
		leave4(100, 0, 0);
		assert_int_equal(sent_count, i < 2);
	}
	assert_int_equal(dropped("esp-sequence-exhausted"), before + 2);
	stop(NULL);
	put_pair(packets);
	before = dropped("esp-lifetime");
	for (unsigned i = 0; i < 5; i++) {
		leave4(100, 0, 0);
		assert_int_equal(sent_count, i < 3);
	}
	assert_int_equal(dropped("esp-lifetime"), before + 2);
	stop(NULL);
	put_pair(bytes);
	before = dropped("esp-lifetime");
	for (unsigned i = 0; i < 4; i++) {
		leave4(100, 0, 0);
		assert_int_equal(sent_count, i < 2);
	}
	assert_int_equal(dropped("esp-lifetime"), before + 2);
}

static uint32_t
spi_of(const struct frame *frame)
{
	return esp_read_32(frame->bytes + ETHER + 20);
}

static void
the_association_of_the_highest_precedence_sends_and_all_receive(void **state)
{
	struct sa new = {.name = "new", .outbound = true, .spi = 5000, .precedence = 1};
	struct frame old;

	put_pair((struct sa){0});
	leave4(100, 0, 0);
	assert_int_equal(spi_of(&sent[0]), SPI);
	old = sent[0];
	assert_int_equal(put_sa(&new), 0);
	leave4(100, 0, 0);
	assert_int_equal(spi_of(&sent[0]), 5000);
	// Packets under way arrive.
	turn_around(old);
	assert_true(went_to("other"));
	new.precedence = 0;
	new.spi = 5000;
	assert_int_equal(put_sa(&new), 0);
	// Of two with the same the newer one sends.
	leave4(100, 0, 0);
	assert_int_equal(spi_of(&sent[0]), 5000);
	assert_int_equal(object_delete("SecurityAssociation", "new", &f), 0);
	leave4(100, 0, 0);
	assert_int_equal(spi_of(&sent[0]), SPI);
}

static void
selectors_choose_the_association_and_refuse_other_packets(void **state)
{
	struct sa narrow = {.name = "narrow",
		.outbound = true,
		.spi = 6000,
		.precedence = 9,
		.local = "192.0.2.0/24",
		.remote = "203.0.113.9/32"};
	uint64_t before = dropped("ipsec-no-association");

	assert_int_equal(put_sa(&narrow), 0);
	leave4(100, 0, 0);
	assert_int_equal(spi_of(&sent[0]), 6000);
	leave6(100);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("ipsec-no-association"), before + 1);
	put_pair((struct sa){0});
	leave6(100);
	assert_int_equal(spi_of(&sent[0]), SPI);
	leave4(100, 0, 0);
	assert_int_equal(spi_of(&sent[0]), 6000);
}

static void
an_inbound_packet_that_its_association_does_not_select_is_dropped(void **state)
{
	struct sa in = {.tunnel = "back", .local = "203.0.113.0/28", .remote = "192.0.2.0/24"};
	uint64_t before = dropped("ipsec-selector-inbound");

	assert_int_equal(put_sa(&(struct sa){.outbound = true}), 0);
	assert_int_equal(put_sa(&in), 0);
	leave4(100, 0, 0);
	turn_around(sent[0]);
	assert_true(went_to("other"));
	leave6(100);
	turn_around(sent[0]);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("ipsec-selector-inbound"), before + 1);
}

static void
the_outer_header_follows_its_rules(void **state)
{
	Sluice__V1__OuterHeader outer = SLUICE__V1__OUTER_HEADER__INIT;
	struct ip4_header ip;

	put_pair((struct sa){0});
	leave4(100, 0xb9, IP4_DF); // EF, ECT(1)
	memcpy(&ip, sent[0].bytes + ETHER, sizeof(ip));
	assert_int_equal(ip.tos, 0xb9);
	assert_int_equal(ip.ttl, 64);
	assert_int_equal(ip.fragment, htons(IP4_DF));
	assert_int_equal(ip.checksum, ip4_checksum(&ip));
	assert_int_equal(ntohs(ip.total_length), sent[0].length - ETHER);
	leave4(100, 0, 0);
	memcpy(&ip, sent[0].bytes + ETHER, sizeof(ip));
	assert_int_equal(ip.fragment, 0);
	stop(NULL);
	outer.dscp = SLUICE__V1__DSCP_RULE__DSCP_SET;
	outer.dscp_value = "af41";
	outer.df = SLUICE__V1__DF_RULE__DF_SET;
	put_pair((struct sa){.outer = &outer});
	leave4(100, 0xb9, 0);
	memcpy(&ip, sent[0].bytes + ETHER, sizeof(ip));
	assert_int_equal(ip.tos, 34 << 2 | 1);
	assert_int_equal(ip.fragment, htons(IP4_DF));
	assert_int_equal(ip.checksum, ip4_checksum(&ip));
	stop(NULL);
	outer.dscp = SLUICE__V1__DSCP_RULE__DSCP_HIDE;
	outer.dscp_value = "";
	outer.clear_ecn = true;
	outer.df = SLUICE__V1__DF_RULE__DF_CLEAR;
	put_pair((struct sa){.outer = &outer});
	leave4(100, 0xb9, IP4_DF);
	memcpy(&ip, sent[0].bytes + ETHER, sizeof(ip));
	assert_int_equal(ip.tos, 0);
	assert_int_equal(ip.fragment, 0);
}

static void
a_congestion_mark_outside_is_carried_inside(void **state)
{
	struct frame frame;

	put_pair((struct sa){0});
	leave4(100, 2, 0); // ECT(0)
	frame = sent[0];
	frame.bytes[ETHER + 1] |= 3;
	{
		struct ip4_header ip;

		memcpy(&ip, frame.bytes + ETHER, sizeof(ip));
		ip.checksum = ip4_checksum(&ip);
		memcpy(frame.bytes + ETHER, &ip, sizeof(ip));
	}
	turn_around(frame);
	assert_true(went_to("other"));
	assert_int_equal(sent[0].bytes[ETHER + 1], 3);
}

static void
a_packet_larger_than_the_path_is_cut_before_encryption_or_its_sender_is_told(void **state)
{
	uint64_t before = dropped("esp-mtu");
	unsigned pieces = 0;
	struct frame all[4];

	put_pair((struct sa){.path_mtu = 1000});
	leave4(1200, 0, 0);
	assert_int_equal(sent_count, 2);
	memcpy(all, sent, sizeof(all));
	for (unsigned i = 0; i < 2; i++) {
		assert_true(all[i].length <= ETHER + 1000);
		turn_around(all[i]);
		assert_true(went_to("other"));
		pieces += (sent[0].bytes[ETHER + 2] << 8 | sent[0].bytes[ETHER + 3]) - 20u;
	}
	assert_int_equal(pieces, 1180);
	leave4(1200, 0, IP4_DF);
	assert_true(went_to("in"));
	assert_int_equal(sent[0].bytes[ETHER + 20], 3); // unreachable
	assert_int_equal(sent[0].bytes[ETHER + 21], 4); // fragmentation needed
	assert_int_equal(dropped("esp-mtu"), before + 1);
	stop(NULL);
	// The next hop MTU of the message fits exactly.
	put_pair((struct sa){.path_mtu = 1400});
	leave6(1360);
	assert_true(went_to("in"));
	assert_int_equal(sent[0].bytes[ETHER + 40], 2); // packet too big
	{
		unsigned mtu = (unsigned)(sent[0].bytes[ETHER + 46] << 8 | sent[0].bytes[ETHER + 47]);

		leave6(mtu - 40);
		assert_true(went_to("out"));
		assert_true(sent[0].length <= ETHER + 1400 && sent[0].length > ETHER + 1400 - 4);
	}
}

static void
an_ipv6_packet_of_1280_bytes_arrives_however_small_the_path(void **state)
{
	static const struct {
		struct sa sa;
		unsigned pieces;
	} paths[] = {{{.path_mtu = 1000}, 2}, {{.path_mtu = 576}, 3}, {{.path_mtu = 1280, .six = true}, 2},
		{{.path_mtu = 1340, .six = true, .udp = true}, 2}};
	struct frame pieces[4];

	for (unsigned i = 0; i < RTE_DIM(paths); i++) {
		put_pair(paths[i].sa);
		leave6(1240);
		assert_int_equal(sent_count, paths[i].pieces);
		memcpy(pieces, sent, sizeof(pieces));
		for (unsigned k = 0; k < paths[i].pieces; k++) {
			assert_true(pieces[k].length <= ETHER + paths[i].sa.path_mtu);
			// The source cuts: the fragments have DF clear, or are those of IPv6.
			if (paths[i].sa.six)
				assert_int_equal(pieces[k].bytes[ETHER + 6], PROTOCOL_FRAGMENT);
			else
				assert_int_equal(pieces[k].bytes[ETHER + 6] & 0x40, 0);
			turn_around(pieces[k]);
		}
		assert_true(went_to("other"));
		assert_int_equal(sent[0].length, ETHER + 1280);
		// A packet of 1,281 bytes is too big. The error names 1,280: an error never names a smaller MTU.
		leave6(1241);
		assert_true(went_to("in"));
		assert_int_equal(sent[0].bytes[ETHER + 40], 2); // packet too big
		assert_int_equal(esp_read_32(sent[0].bytes + ETHER + 44), 1280);
		stop(NULL);
	}
	assert_int_equal(put_sa(&(struct sa){.outbound = true, .six = true, .path_mtu = 1279}), -EINVAL);
	assert_string_equal(f.text, "pathMtu: 1279 is less than the 1280 bytes that every path of IPv6 takes");
}

// A router reports that a packet of ours, which it quotes, is too large.
static void
tell_too_big4(const struct frame *quoted, uint16_t mtu)
{
	struct packet4 p = udp4("198.51.100.2", "198.51.100.1", 64, 20 + 8 + 28);
	uint8_t *icmp = p.payload;

	p.ether[5] = 2;
	p.ip.protocol = PROTOCOL_ICMP;
	p.ip.checksum = ip4_checksum(&p.ip);
	memset(icmp, 0, 8);
	icmp[0] = 3;
	icmp[1] = 4;
	icmp[6] = (uint8_t)(mtu >> 8);
	icmp[7] = (uint8_t)mtu;
	memcpy(icmp + 8, quoted->bytes + ETHER, 28);
	memcpy(icmp + 2, &(uint16_t){(uint16_t)~checksum_fold(checksum_add(0, icmp, 36))}, 2);
	receive("out", (uint8_t *)&p, ETHER + 56);
}

static void
tell_too_big6(const struct frame *quoted, uint16_t mtu)
{
	enum { QUOTED = 64, LENGTH = 8 + QUOTED };
	struct packet6 p = udp6("2001:db8:2::2", "2001:db8:2::1", 64, LENGTH);
	uint8_t *icmp = p.payload;
	uint64_t sum;

	p.ether[5] = 2;
	p.ip.next_header = PROTOCOL_ICMP6;
	memset(icmp, 0, 8);
	icmp[0] = 2;
	icmp[6] = (uint8_t)(mtu >> 8);
	icmp[7] = (uint8_t)mtu;
	memcpy(icmp + 8, quoted->bytes + ETHER, QUOTED);
	sum = ip6_pseudo_sum(p.ip.source, p.ip.destination, LENGTH, PROTOCOL_ICMP6);
	memcpy(icmp + 2, &(uint16_t){(uint16_t)~checksum_fold(checksum_add(sum, icmp, LENGTH))}, 2);
	receive("out", (uint8_t *)&p, ETHER + 40 + LENGTH);
}

static void
the_path_mtu_is_learned_from_messages_about_packets_of_the_association_and_ends(void **state)
{
	static const uint64_t second = 1000000000;
	struct ipsec_path_counters c;
	struct frame quoted, forged;
	struct ipsec_sa *sa;

	for (unsigned six = 0; six <= 1; six++) {
		put_pair((struct sa){.six = six});
		sa = ipsec_sa_at((uint32_t)(uintptr_t)object_find(&security_association_kind, "out")->state);
		ipsec_look_all(second);
		leave4(1400, 0, IP4_DF);
		assert_true(went_to("out"));
		quoted = forged = sent[0];
		forged.bytes[ETHER + (six ? 40 : 20) + 3] ^= 1; // another SPI
		if (six)
			tell_too_big6(&forged, 1300);
		else
			tell_too_big4(&forged, 1300);
		assert_int_equal(sa->path_mtu, 1500);
		if (six)
			tell_too_big6(&quoted, 1300);
		else
			tell_too_big4(&quoted, 1300);
		assert_int_equal(sa->path_mtu, 1300);
		ipsec_look_all(2 * second);
		leave4(1400, 0, IP4_DF);
		assert_true(went_to("in"));
		assert_int_equal(sent[0].bytes[ETHER + 20], 3);
		// It never grows by a message, and does after ten minutes.
		if (six)
			tell_too_big6(&quoted, 1400);
		else
			tell_too_big4(&quoted, 1400);
		assert_int_equal(sa->path_mtu, 1300);
		ipsec_look_all(700 * second);
		assert_int_equal(sa->path_mtu, 1500);
		leave4(1400, 0, IP4_DF);
		assert_true(went_to("out"));
		// No path is so small, and this packet was never sent.
		forged = quoted;
		forged.bytes[ETHER + (six ? 40 : 20) + 4] ^= 1;
		if (six) {
			tell_too_big6(&quoted, 1279);
			tell_too_big6(&forged, 1300);
		} else {
			tell_too_big4(&quoted, 575);
			tell_too_big4(&forged, 1300);
		}
		assert_int_equal(sa->path_mtu, 1500);
		counters_sum(&ipsec_path_counters, index_of("out"), &c);
		assert_int_equal(c.learned, 1);
		assert_int_equal(c.refused, 2);
		stop(NULL);
	}
}

static void
a_new_association_knows_what_the_one_before_it_learned_of_the_path(void **state)
{
	struct ipsec_sa *sa;

	put_pair((struct sa){0});
	sa = ipsec_sa_at((uint32_t)(uintptr_t)object_find(&security_association_kind, "out")->state);
	sa->path_mtu = 1300;
	assert_int_equal(put_sa(&(struct sa){.name = "new", .outbound = true, .spi = SPI + 1, .precedence = 1}), 0);
	leave4(1400, 0, IP4_DF);
	assert_true(went_to("in"));
	assert_int_equal(sent[0].bytes[ETHER + 20], 3);
	sa = ipsec_sa_at((uint32_t)(uintptr_t)object_find(&security_association_kind, "new")->state);
	assert_int_equal(sa->path_mtu, 1300);
	ipsec_look_all(UINT64_C(1000000000));
	ipsec_look_all(UINT64_C(700000000000));
	assert_int_equal(sa->path_mtu, 1500);
}

static void
the_path_is_not_larger_than_the_port_that_it_begins_at(void **state)
{
	for (unsigned six = 0; six <= 1; six++) {
		put_pair((struct sa){.six = six});
		set_mtu(1400);
		leave4(1350, 0, IP4_DF);
		// The first packet is lost, or cut by IPv6's sender; the sender of the next one is told.
		assert_true(six ? sent_count == 2 : sent_count == 0);
		leave4(1350, 0, IP4_DF);
		assert_true(went_to("in"));
		assert_int_equal(sent[0].bytes[ETHER + 20], 3); // unreachable
		assert_int_equal(sent[0].bytes[ETHER + 21], 4); // fragmentation needed
		leave4(1300, 0, IP4_DF);
		assert_true(went_to("out"));
		set_mtu(1500);
		stop(NULL);
	}
}

static void
a_tunnel_that_leads_to_its_own_peer_drops_packets(void **state)
{
	static const char *const peers[] = {"198.51.100.2", "2001:db8:2::2"};
	char prefix[32], name[40];

	for (unsigned six = 0; six <= 1; six++) {
		uint64_t before = dropped("esp-loop");

		put_pair((struct sa){.six = six});
		snprintf(prefix, sizeof(prefix), "%s/%u", peers[six], six ? 128 : 32);
		snprintf(name, sizeof(name), "-%s", prefix);
		assert_int_equal(object_delete("Neighbor", peers[six], &f), 0);
		assert_int_equal(
			put_route("", prefix, SLUICE__V1__ROUTE_ACTION__FORWARD, &(struct via){NULL, "tun", 0}, 1), 0);
		// The second one is cut again and again on its way round.
		for (unsigned length = 600; length <= 1400; length += 800) {
			leave4(length, 0, 0);
			assert_int_equal(sent_count, 0);
			assert_true(dropped("esp-loop") > before);
		}
		assert_int_equal(object_delete("Route", name, &f), 0);
		assert_int_equal(put_neighbor("out", peers[six], "02:00:00:00:02:02"), 0);
		leave4(600, 0, 0);
		assert_true(went_to("out"));
		stop(NULL);
	}
}

static void
a_tunnel_may_have_many_associations_with_selectors_of_their_own(void **state)
{
	enum { MANY = 100 };
	char name[16], remote[32];

	for (unsigned i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "user-%u", i);
		snprintf(remote, sizeof(remote), "203.0.113.%u/32", i + 1);
		assert_int_equal(put_sa(&(struct sa){.name = name,
					 .outbound = true,
					 .spi = SPI + i,
					 .precedence = i,
					 .local = "192.0.2.0/24",
					 .remote = remote}),
			0);
	}
	// That of 203.0.113.9 has not the highest precedence.
	leave4(100, 0, 0);
	assert_true(went_to("out"));
	assert_int_equal(ntohl(*(const uint32_t *)(sent[0].bytes + ETHER + 20)), SPI + 8);
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "user-%u", i);
		assert_int_equal(object_delete("SecurityAssociation", name, &f), 0);
	}
}

static uint32_t
destination_of(const struct frame *frame)
{
	return esp_read_32(frame->bytes + ETHER + 16);
}

static void
two_peers_may_choose_the_same_spi_and_one_peer_may_not(void **state)
{
	struct sa other = {.name = "new", .outbound = true, .precedence = 1, .peer = "198.51.100.3"},
		  same = {.name = "narrow", .outbound = true};
	struct frame first, second;

	assert_int_equal(put_neighbor("out", "198.51.100.3", "02:00:00:00:02:03"), 0);
	assert_int_equal(put_sa(&(struct sa){.outbound = true}), 0);
	leave4(1400, 0, IP4_DF);
	first = sent[0];
	assert_int_equal(put_sa(&other), 0);
	leave4(1400, 0, IP4_DF);
	second = sent[0];
	assert_int_equal(spi_of(&first), spi_of(&second));
	assert_int_equal(destination_of(&second) - destination_of(&first), 1);
	assert_int_equal(put_sa(&same), -EEXIST);
	assert_string_equal(f.text, "spi: SecurityAssociation \"out\" sends with SPI 4097 to 198.51.100.2 in this VRF "
				    "already; delete it, or "
				    "have the peer choose another SPI");
	// In UDP it is another peer: a translator has several behind one address.
	same.udp = true;
	assert_int_equal(put_sa(&same), 0);
	// Each learns of its own path.
	tell_too_big4(&first, 1300);
	assert_int_equal(ipsec_sa_at(index_of("out"))->path_mtu, 1300);
	assert_int_equal(ipsec_sa_at(index_of("new"))->path_mtu, 1500);
	tell_too_big4(&second, 1400);
	assert_int_equal(ipsec_sa_at(index_of("out"))->path_mtu, 1300);
	assert_int_equal(ipsec_sa_at(index_of("new"))->path_mtu, 1400);
	// An association does not move to where the other one is, and does once that is gone.
	other.peer = NULL;
	assert_int_equal(put_sa(&other), -EEXIST);
	leave4(100, 0, 0);
	assert_int_equal(destination_of(&sent[0]), destination_of(&second));
	assert_int_equal(object_delete("SecurityAssociation", "out", &f), 0);
	assert_int_equal(put_sa(&other), 0);
	assert_int_equal(ipsec_sa_at(index_of("new"))->path_mtu, 1500);
	leave4(1400, 0, IP4_DF);
	assert_int_equal(destination_of(&sent[0]), destination_of(&first));
	tell_too_big4(&sent[0], 1350);
	assert_int_equal(ipsec_sa_at(index_of("new"))->path_mtu, 1350);
}

static void
a_change_of_another_field_keeps_where_the_peer_is_and_what_was_learned_of_the_path(void **state)
{
	static const uint8_t moved[16] = {198, 51, 100, 3};
	struct sa out = {.outbound = true, .udp = true};
	struct frame quoted;

	assert_int_equal(put_neighbor("out", "198.51.100.3", "02:00:00:00:02:03"), 0);
	assert_int_equal(put_sa(&out), 0);
	ipsec_look_all(UINT64_C(1000000000));
	ipsec_sa_send_to(index_of("out"), moved, htons(1024));
	leave4(1300, 0, IP4_DF);
	quoted = sent[0];
	tell_too_big4(&quoted, 1400);
	// In UDP, 8 bytes behind the IP header are not ESP's: nothing is learned from a router that quotes no more.
	assert_int_equal(ipsec_sa_at(index_of("out"))->path_mtu, 1500);
	ipsec_sa_at(index_of("out"))->path_mtu = 1400;
	ipsec_sa_at(index_of("out"))->events |= SA_PATH;
	ipsec_look_all(UINT64_C(2000000000));
	out.precedence = 7;
	assert_int_equal(put_sa(&out), 0);
	ipsec_look_all(UINT64_C(3000000000));
	leave4(100, 0, 0);
	assert_int_equal(destination_of(&sent[0]) & 0xff, 3);
	assert_int_equal(esp_read_32(sent[0].bytes + ETHER + 20) & 0xffff, 1024);
	assert_int_equal(ipsec_sa_at(index_of("out"))->path_mtu, 1400);
	ipsec_look_all(UINT64_C(700000000000));
	assert_int_equal(ipsec_sa_at(index_of("out"))->path_mtu, 1500);
	// The agent says where the peer is.
	out.peer = "198.51.100.2";
	assert_int_equal(put_sa(&out), 0);
	leave4(100, 0, 0);
	assert_int_equal(destination_of(&sent[0]) & 0xff, 3); // as it was said before: nothing has changed
	out.peer = "198.51.100.3";
	assert_int_equal(put_sa(&out), 0);
	out.peer = "198.51.100.2";
	assert_int_equal(put_sa(&out), 0);
	leave4(100, 0, 0);
	assert_int_equal(destination_of(&sent[0]) & 0xff, 2);
	assert_int_equal(esp_read_32(sent[0].bytes + ETHER + 20) & 0xffff, 4500);
}

// How many of `count` packets of 100 bytes leave; each with a higher number than all before.
static unsigned
leave_some(unsigned count, uint32_t *number)
{
	unsigned left = 0;

	for (unsigned i = 0; i < count; i++) {
		leave4(100, 0, 0);
		if (sent_count == 0)
			continue;
		assert_true(esp_read_32(sent[0].bytes + ETHER + 24) > *number);
		*number = esp_read_32(sent[0].bytes + ETHER + 24);
		left++;
	}
	return left;
}

static void
a_changed_limit_counts_the_packets_that_were_protected_since_the_start(void **state)
{
	struct sa out = {.outbound = true, .hard_packets = 3};
	struct ipsec_sa_counters c;
	uint32_t number = 0;

	assert_int_equal(put_sa(&out), 0);
	assert_int_equal(leave_some(8, &number), 3);
	ipsec_sa_count(index_of("out"), &c);
	assert_int_equal(c.over_limit, 5);
	assert_int_equal(c.other, 0);
	assert_true(ipsec_sa_at(index_of("out"))->events & SA_EXHAUSTED);
	out.hard_packets = 6;
	assert_int_equal(put_sa(&out), 0);
	assert_false(ipsec_sa_at(index_of("out"))->events & SA_EXHAUSTED);
	assert_int_equal(leave_some(8, &number), 3);
	// Lower than what was used, and back.
	out.hard_packets = 4;
	assert_int_equal(put_sa(&out), 0);
	assert_int_equal(leave_some(2, &number), 0);
	out.hard_packets = 0;
	assert_int_equal(put_sa(&out), 0);
	assert_int_equal(leave_some(3, &number), 3);
	// 900 bytes have left.
	out.hard_bytes = 1050;
	assert_int_equal(put_sa(&out), 0);
	assert_int_equal(leave_some(4, &number), 1);
	assert_true(ipsec_sa_at(index_of("out"))->events & SA_DEAD);
	out.precedence = 1;
	assert_int_equal(put_sa(&out), 0);
	assert_int_equal(leave_some(1, &number), 0);
	out.hard_bytes = 1200;
	assert_int_equal(put_sa(&out), 0);
	assert_int_equal(leave_some(4, &number), 2);
	ipsec_sa_count(index_of("out"), &c);
	assert_int_equal(c.packets, 12);
	assert_int_equal(c.over_limit, 5 + 5 + 2 + 3 + 1 + 2);
}

static void
an_icv_length_that_the_algorithm_does_not_have_is_refused(void **state)
{
	static const struct {
		struct sa sa;
		const char *text;
	} wrong[] = {
		{{.icv = 10}, "icvLength: the algorithm has ICVs of 8, 12 or 16 bytes, not 10"},
		{{.icv = 8, .encryption = SLUICE__V1__ESP_ENCRYPTION__AES_GMAC},
			"icvLength: the algorithm has ICVs of 16 bytes, not 8"},
		{{.icv = 12, .encryption = SLUICE__V1__ESP_ENCRYPTION__CHACHA20_POLY1305, .key = SHA256_KEY "01020304"},
			"icvLength: the algorithm has ICVs of 16 bytes, not 12"},
		{{.icv = 24,
			 .encryption = SLUICE__V1__ESP_ENCRYPTION__AES_CBC,
			 .key = CBC_KEY,
			 .integrity = SLUICE__V1__ESP_INTEGRITY__HMAC_SHA1,
			 .integrity_key = SHA1_KEY},
			"icvLength: the hash has ICVs of 12, 16, ... 20 bytes, not 24"},
		{{.icv = 13,
			 .encryption = SLUICE__V1__ESP_ENCRYPTION__AES_CBC,
			 .key = CBC_KEY,
			 .integrity = SLUICE__V1__ESP_INTEGRITY__HMAC_SHA256,
			 .integrity_key = SHA256_KEY},
			"icvLength: the hash has ICVs of 12, 16, ... 32 bytes, not 13"},
	};

	for (unsigned i = 0; i < RTE_DIM(wrong); i++) {
		assert_int_equal(put_sa(&wrong[i].sa), -EINVAL);
		assert_string_equal(f.text, wrong[i].text);
	}
	// Linux before 2.6.33 has HMAC-SHA-256 with 96 bits.
	put_pair((struct sa){.icv = 12,
		.encryption = SLUICE__V1__ESP_ENCRYPTION__AES_CBC,
		.key = CBC_KEY,
		.integrity = SLUICE__V1__ESP_INTEGRITY__HMAC_SHA256,
		.integrity_key = SHA256_KEY});
	leave4(100, 0, 0);
	turn_around(sent[0]);
	assert_true(went_to("other"));
}

static void
keys_that_do_not_fit_are_refused_without_being_shown(void **state)
{
	struct sa wrong[] = {{.key = "00"}, {.key = "zz112233445566778899aabbccddeeff00112233"},
		{.integrity_key = SHA1_KEY}, {.encryption = SLUICE__V1__ESP_ENCRYPTION__AES_CBC, .key = CBC_KEY},
		{.key = "112233445566778899"}};

	for (unsigned i = 0; i < RTE_DIM(wrong); i++) {
		assert_true(put_sa(&wrong[i]) < 0);
		assert_null(strstr(f.text, "1122"));
		assert_null(strstr(f.text, "2122"));
	}
	put_pair((struct sa){0});
	assert_true(put_sa(&(struct sa){.name = "new"}) == -EEXIST);
}

// How often the text is in the process's memory, but for stacks and large reservations.
static unsigned
copies_of(const char *text)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	size_t length = strlen(text);
	unsigned found = 0;
	char line[512];

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long start, end;
		char rights[8];

		if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) != 3 || strcmp(rights, "rw-p") != 0 ||
			strstr(line, "[stack]") || end - start > 16 << 20)
			continue;
		for (const char *at = (const char *)start; (at = memmem(at, end - (uintptr_t)at, text, length)); at++)
			found++;
	}
	fclose(maps);
	return found;
}

static void
a_deleted_association_leaves_no_key_in_memory(void **state)
{
	struct sa out = {.outbound = true};
	char key[41] = "";

	// Nowhere but on the stack.
	for (unsigned i = 0; i < 20; i++)
		snprintf(key + 2 * i, 3, "%02x", (unsigned)(0xd7 + 31 * i) & 0xff);
	out.key = key;
	assert_int_equal(put_sa(&out), 0);
	assert_int_equal(copies_of(key), 1); // the object's spec
	ipsec_look_all(UINT64_C(1000000000));
	out.precedence = 1;
	assert_int_equal(put_sa(&out), 0);
	ipsec_look_all(UINT64_C(2000000000));
	assert_int_equal(copies_of(key), 1);
	out.icv = 8;
	assert_int_equal(put_sa(&out), -EINVAL);
	assert_int_equal(copies_of(key), 1);
	assert_int_equal(object_delete("SecurityAssociation", "out", &f), 0);
	assert_int_equal(copies_of(key), 0);
}

static uint32_t
sequence_of(const struct frame *frame)
{
	return esp_read_32(frame->bytes + ETHER + 20 + 4);
}

// With a file of sequence numbers.
static int
start_file(void **state)
{
	static char path[] = "/tmp/esp-sequences-XXXXXX";
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	fd = mkstemp(path);
	if (fd < 0 || close(fd) || sequence_file_open(path))
		return -1;
	return unlink(path);
}

static int
stop_file(void **state)
{
	stop(NULL);
	sequence_file_close();
	return 0;
}

static void
an_association_that_is_made_again_accepts_no_packet_again(void **state)
{
	struct sa in = {.tunnel = "back", .window = 1024}, out = {.outbound = true};
	struct frame frame;

	for (unsigned careless = 0; careless <= 1; careless++) {
		in.no_check = careless;
		assert_int_equal(put_sa(&in), 0);
		assert_int_equal(put_sa(&out), 0);
		leave4(100, 0, 0);
		frame = sent[0];
		turn_around(frame);
		assert_true(went_to("other"));
		assert_int_equal(object_delete("SecurityAssociation", "in", &f), 0);
		in.window = 64;
		assert_int_equal(put_sa(&in), 0);
		turn_around(frame);
		assert_int_equal(sent_count, careless);
		stop(NULL);
	}
}

static void
a_number_is_used_once_however_the_key_is_written(void **state)
{
	struct sa out = {.outbound = true, .key = "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3"};
	uint32_t last;

	assert_int_equal(put_sa(&out), 0);
	leave4(100, 0, 0);
	last = sequence_of(&sent[0]);
	// The same SA: nothing changes.
	out.key = "A0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3";
	assert_int_equal(put_sa(&out), 0);
	leave4(100, 0, 0);
	assert_int_equal(sequence_of(&sent[0]), ++last);
	assert_int_equal(object_delete("SecurityAssociation", "out", &f), 0);
	assert_int_equal(put_sa(&out), 0);
	leave4(100, 0, 0);
	// Packets that were under way when it was deleted may have used some.
	assert_true(sequence_of(&sent[0]) > last && sequence_of(&sent[0]) <= last + (1 << 16) + 1);
}

static void
a_data_plane_that_ends_leaves_no_gap_and_one_that_is_killed_a_small_one(void **state)
{
	struct sa out = {.outbound = true};

	assert_int_equal(put_sa(&out), 0);
	leave4(100, 0, 0);
	assert_int_equal(sequence_of(&sent[0]), 1);
	ipsec_look_all(1);
	ipsec_sas_settle();
	// As the next process finds it.
	uint64_t kept;
	uint8_t key[20];
	struct sequence_owner owner = {.spi = SPI, .outbound = true, .key = key, .key_length = 20, .vrf = "default"};

	for (unsigned i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)i;
	sequence_file_take(&owner, &kept);
	assert_int_equal(kept, 1);
}

static void
a_packet_that_fits_the_path_and_no_buffer_is_cut_or_its_sender_is_told(void **state)
{
	put_pair((struct sa){.path_mtu = 9000});
	assert_true(ipsec_sa_room(ipsec_sa_at(index_of("out")), 9000) < 2304);
	assert_true(ipsec_sa_room(ipsec_sa_at(index_of("out")), 9000) > 2100);
	assert_int_equal(ipsec_tunnel_at(ipsec_tunnel_of(object_find(&ipsec_tunnel_kind, "t")))->mtu,
		ipsec_sa_room(ipsec_sa_at(index_of("out")), 9000));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_packet_comes_out_of_a_tunnel_as_it_went_in, stop),
		cmocka_unit_test_teardown(a_packet_that_was_received_or_damaged_is_a_named_drop, stop),
		cmocka_unit_test_teardown(every_truncation_is_dropped, stop),
		cmocka_unit_test_teardown(a_packet_without_an_association_is_a_named_drop_both_ways, stop),
		cmocka_unit_test_teardown(a_punt_limit_applies_to_packets_of_unknown_associations, stop),
		cmocka_unit_test_teardown(an_association_ends_behind_its_last_sequence_number_and_at_its_limits, stop),
		cmocka_unit_test_teardown(the_association_of_the_highest_precedence_sends_and_all_receive, stop),
		cmocka_unit_test_teardown(selectors_choose_the_association_and_refuse_other_packets, stop),
		cmocka_unit_test_teardown(an_inbound_packet_that_its_association_does_not_select_is_dropped, stop),
		cmocka_unit_test_teardown(the_outer_header_follows_its_rules, stop),
		cmocka_unit_test_teardown(a_congestion_mark_outside_is_carried_inside, stop),
		cmocka_unit_test_teardown(
			a_packet_larger_than_the_path_is_cut_before_encryption_or_its_sender_is_told, stop),
		cmocka_unit_test_teardown(an_ipv6_packet_of_1280_bytes_arrives_however_small_the_path, stop),
		cmocka_unit_test_teardown(a_new_association_knows_what_the_one_before_it_learned_of_the_path, stop),
		cmocka_unit_test_teardown(the_path_is_not_larger_than_the_port_that_it_begins_at, stop),
		cmocka_unit_test_teardown(a_tunnel_that_leads_to_its_own_peer_drops_packets, stop),
		cmocka_unit_test_teardown(a_tunnel_may_have_many_associations_with_selectors_of_their_own, stop),
		cmocka_unit_test_teardown(
			the_path_mtu_is_learned_from_messages_about_packets_of_the_association_and_ends, stop),
		cmocka_unit_test_teardown(two_peers_may_choose_the_same_spi_and_one_peer_may_not, stop),
		cmocka_unit_test_teardown(
			a_change_of_another_field_keeps_where_the_peer_is_and_what_was_learned_of_the_path, stop),
		cmocka_unit_test_teardown(a_changed_limit_counts_the_packets_that_were_protected_since_the_start, stop),
		cmocka_unit_test_teardown(an_icv_length_that_the_algorithm_does_not_have_is_refused, stop),
		cmocka_unit_test_teardown(a_deleted_association_leaves_no_key_in_memory, stop),
		cmocka_unit_test_teardown(keys_that_do_not_fit_are_refused_without_being_shown, stop),
		cmocka_unit_test_teardown(a_packet_that_fits_the_path_and_no_buffer_is_cut_or_its_sender_is_told, stop),
		cmocka_unit_test_setup_teardown(
			an_association_that_is_made_again_accepts_no_packet_again, start_file, stop_file),
		cmocka_unit_test_setup_teardown(
			a_number_is_used_once_however_the_key_is_written, start_file, stop_file),
		cmocka_unit_test_setup_teardown(
			a_data_plane_that_ends_leaves_no_gap_and_one_that_is_killed_a_small_one, start_file, stop_file),
	};

	return cmocka_run_group_tests(tests, start_all, three_ports_stop);
}
