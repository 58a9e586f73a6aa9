// SPDX-License-Identifier: Apache-2.0
// Drop reasons of IPsec: each packet here goes through the real graph and is counted under its reason. The contents of ESP packets that an
// independent peer made: tests/test_esp_peer.py.
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/memory.h"
#include "core/punt.h"
#include "crypto/crypto.h"
#include "fib/hop.h"
#include "fib/three_ports.h"
#include "interface.pb-c.h"
#include "ip/icmp.h"
#include "ipsec.pb-c.h"
#include "ipsec/esp.h"
#include "ipsec/nodes.h"
#include "ipsec/sa.h"
#include "ipsec/sa_events.h"
#include "ipsec/sequence_file.h"
#include "port/port.h"
#include "session.pb-c.h"

INJECTED(ip4_lookup_node)
INJECTED(ip6_lookup_node)

#define KEY "000102030405060708090a0b0c0d0e0f10111213"
#define PEER4 "198.51.100.2"
#define PEER6 "2001:db8:2::2"
#define OURS4 "198.51.100.1"
#define OURS6 "2001:db8:2::1"
#define FAR4 "203.0.113.9" // behind the tunnel
#define FAR6 "2001:db8:7::9"
#define NEAR4 "192.0.2.9" // on "in"
#define NEAR6 "2001:db8:1::9"
#define USER4 "100.64.0.1" // the subscriber
#define USER6 "2001:db8:64::1"

enum {
	SPI = 4097,
	IV = 8,
	ICV = 16,
	VLAN = 101,
	TAGGED = ETHER + 4,
	IP4 = sizeof(struct ip4_header),
	IP6 = sizeof(struct ip6_header),
	ICMP4_ECHO = 8,
};

static const uint64_t SECOND = 1000000000;

// The peer's half of an inbound SA.
static struct crypto_key *peer_key;
static uint32_t peer_sequence;

struct sa {
	const char *name, *tunnel, *policy;
	uint32_t spi, path_mtu;
	bool outbound, six, transport;
};

static int
put_sa(const struct sa *s)
{
	Sluice__V1__SecurityAssociation spec = SLUICE__V1__SECURITY_ASSOCIATION__INIT;

	spec.direction =
		s->outbound ? SLUICE__V1__SECURITY_DIRECTION__OUTBOUND : SLUICE__V1__SECURITY_DIRECTION__INBOUND;
	spec.mode = s->transport ? SLUICE__V1__SECURITY_MODE__TRANSPORT_MODE : SLUICE__V1__SECURITY_MODE__TUNNEL_MODE;
	spec.spi = s->spi ? s->spi : SPI;
	spec.local_address = s->six ? OURS6 : OURS4;
	spec.remote_address = s->six ? PEER6 : PEER4;
	spec.encryption_key = KEY;
	spec.tunnel = (char *)(s->tunnel ? s->tunnel : s->policy ? "" : "t");
	spec.policy = (char *)(s->policy ? s->policy : "");
	spec.path_mtu = s->path_mtu;
	return put("SecurityAssociation", s->name ? s->name : s->outbound ? "out" : "in", &spec);
}

static int
put_tunnel(const char *name)
{
	Sluice__V1__IpsecTunnel t = SLUICE__V1__IPSEC_TUNNEL__INIT;

	return put("IpsecTunnel", name, &t);
}

static int
put_tunnel_interface(void)
{
	Sluice__V1__Interface i = SLUICE__V1__INTERFACE__INIT;

	i.ipsec_tunnel = "t";
	i.addresses = (char *[]){"10.9.0.1/24", "2001:db8:9::1/64"};
	i.n_addresses = 2;
	return put("Interface", "tun", &i);
}

static int
put_policy(const char *name, uint32_t priority, const char *remote)
{
	Sluice__V1__SecurityPolicy spec = SLUICE__V1__SECURITY_POLICY__INIT;
	Sluice__V1__TrafficSelector selector = SLUICE__V1__TRAFFIC_SELECTOR__INIT, *selectors[] = {&selector};

	selector.remote = (char *)remote;
	spec.interface = "out";
	spec.priority = priority;
	spec.action = SLUICE__V1__POLICY_ACTION__PROTECT;
	spec.selectors = selectors;
	spec.n_selectors = 1;
	return put("SecurityPolicy", name, &spec);
}

// The subscriber on port "other", whose core is the tunnel "core".
static int
put_subscriber(void)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__IpsecCore core = SLUICE__V1__IPSEC_CORE__INIT;

	access.port = "other";
	access.outer_vlan = VLAN;
	access.mac = "02:00:00:00:01:01";
	core.tunnel = "core";
	session.access = &access;
	session.ipsec = &core;
	session.core_case = SLUICE__V1__SESSION__CORE_IPSEC;
	session.addresses = (char *[]){USER4 "/32", "2001:db8:64::/64"};
	session.n_addresses = 2;
	return put("Session", "user", &session);
}

static int
start_all(void **state)
{
	uint8_t key[20];
	const struct crypto_secret secret = {.cipher = CRYPTO_AES_GCM,
		.direction = CRYPTO_ENCRYPT,
		.icv_length = ICV,
		.key = key,
		.key_length = 16,
		.salt = key + 16,
		.salt_length = 4};

	for (unsigned i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)i;
	if (three_ports_start(state) || crypto_key_new(&secret, &peer_key) || put_tunnel("t") || put_tunnel("core") ||
		put_tunnel("alone") || put_tunnel_interface() ||
		put_route("", "203.0.113.0/24", SLUICE__V1__ROUTE_ACTION__FORWARD, &(struct via){NULL, "tun", 0}, 1) ||
		put_route("", "2001:db8:7::/64", SLUICE__V1__ROUTE_ACTION__FORWARD, &(struct via){NULL, "tun", 0}, 1))
		return -1;
	return 0;
}

static int
stop_all(void **state)
{
	crypto_key_free(peer_key);
	return three_ports_stop(state);
}

static int
stop(void **state)
{
	static const char *const names[] = {"in", "out", "in6", "out6"};

	object_delete("Session", "user", &f);
	for (unsigned i = 0; i < RTE_DIM(names); i++)
		object_delete("SecurityAssociation", names[i], &f);
	object_delete("SecurityPolicy", "hosts4", &f);
	object_delete("SecurityPolicy", "hosts6", &f);
	peer_sequence = 0;
	return 0;
}

static struct ipsec_sa *
sa_of(const char *name)
{
	return ipsec_sa_at((uint32_t)(uintptr_t)object_find(&security_association_kind, name)->state);
}

static bool
went_to(const char *port)
{
	return sent_count == 1 && sent[0].port == port_of(object_find(&port_kind, port))->id;
}

// A packet from the side of the peer.
static void
arrive4(const char *from, const char *to, uint8_t protocol, const uint8_t *payload, unsigned length)
{
	struct packet4 p = udp4(from, to, 64, IP4 + length);

	p.ether[5] = 2;
	p.ip.protocol = protocol;
	p.ip.checksum = ip4_checksum(&p.ip);
	memcpy(p.payload, payload, length);
	sent_count = 0;
	receive("out", (uint8_t *)&p, ETHER + IP4 + length);
}

static void
arrive6(const char *from, const char *to, uint8_t protocol, const uint8_t *payload, unsigned length)
{
	struct packet6 p = udp6(from, to, 64, length);

	p.ether[5] = 2;
	p.ip.next_header = protocol;
	memcpy(p.payload, payload, length);
	sent_count = 0;
	receive("out", (uint8_t *)&p, ETHER + IP6 + length);
}

// The peer's next ESP packet with this packet inside. The length.
static unsigned
seal(uint8_t *esp, const void *inside, unsigned length, uint8_t next)
{
	unsigned pad = -(length + ESP_TRAILER) & (ESP_ALIGN - 1u);
	struct crypto_op op = {.key = peer_key,
		.iv = esp + ESP_HEADER,
		.data = esp + ESP_HEADER + IV,
		.length = length + pad + ESP_TRAILER,
		.aad = esp,
		.aad_length = ESP_HEADER};

	op.icv = op.data + op.length;
	esp_write_32(esp, SPI);
	esp_write_32(esp + 4, ++peer_sequence);
	memset(esp + ESP_HEADER, 0, IV);
	esp_write_32(esp + ESP_HEADER + 4, peer_sequence);
	memcpy(op.data, inside, length);
	memcpy(op.data + length, esp_padding, pad);
	op.data[length + pad] = (uint8_t)pad;
	op.data[length + pad + 1] = next;
	crypto_run(worker_self()->index, &op, 1);
	assert_int_equal(op.status, CRYPTO_OK);
	return ESP_HEADER + IV + op.length + ICV;
}

static unsigned
seal4(uint8_t *esp, const char *to, uint8_t ttl)
{
	struct packet4 p = udp4(FAR4, to, ttl, 100);

	return seal(esp, &p.ip, 100, NEXT_IP4);
}

static unsigned
seal6(uint8_t *esp, const char *to, uint8_t hop_limit)
{
	struct packet6 p = udp6(FAR6, to, hop_limit, 60);

	return seal(esp, &p.ip, IP6 + 60, NEXT_IP6);
}

// The packet of a frame comes in from the subscriber.
static void
receive_user(const void *ip, unsigned length, uint16_t type)
{
	uint8_t frame[FRAME_MAX] = {
		2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 1, 1, 0x81, 0x00, 0, VLAN, (uint8_t)(type >> 8), (uint8_t)type};

	memcpy(frame + TAGGED, ip, length);
	sent_count = 0;
	receive("other", frame, TAGGED + length);
}

static void
receive_user4(unsigned length, uint8_t ttl, uint16_t fragment)
{
	struct packet4 p = udp4(USER4, FAR4, ttl, length);

	p.ip.fragment = htons(fragment);
	p.ip.checksum = ip4_checksum(&p.ip);
	receive_user(&p.ip, length, 0x0800);
}

static void
receive_user6(unsigned length, uint8_t hop_limit)
{
	struct packet6 p = udp6(USER6, FAR6, hop_limit, length - IP6);

	receive_user(&p.ip, length, 0x86dd);
}

static void
an_esp_packet_that_is_not_between_the_ends_of_its_association_is_dropped_and_its_number_is_not_used(void **state)
{
	uint64_t before = dropped("esp-wrong-peer");
	struct ipsec_sa_counters c;
	uint8_t esp[256];
	unsigned length;

	assert_int_equal(put_sa(&(struct sa){0}), 0);
	length = seal4(esp, NEAR4, 64);
	arrive4("198.51.100.3", OURS4, PROTOCOL_ESP, esp, length);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("esp-wrong-peer"), before + 1);
	// Another address of the gateway.
	arrive4(PEER4, "192.0.2.1", PROTOCOL_ESP, esp, length);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("esp-wrong-peer"), before + 2);
	arrive6(PEER6, OURS6, PROTOCOL_ESP, esp, length);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("esp-wrong-peer"), before + 3);
	ipsec_sa_count((uint32_t)(uintptr_t)object_find(&security_association_kind, "in")->state, &c);
	assert_int_equal(c.other, 3);
	arrive4(PEER4, OURS4, PROTOCOL_ESP, esp, length);
	assert_true(went_to("in"));
	assert_int_equal(dropped("esp-wrong-peer"), before + 3);
	stop(NULL);
	assert_int_equal(put_sa(&(struct sa){.six = true}), 0);
	length = seal6(esp, NEAR6, 64);
	arrive6("2001:db8:2::3", OURS6, PROTOCOL_ESP, esp, length);
	arrive6(PEER6, "2001:db8:1::1", PROTOCOL_ESP, esp, length);
	arrive4(PEER4, OURS4, PROTOCOL_ESP, esp, length);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("esp-wrong-peer"), before + 6);
	arrive6(PEER6, OURS6, PROTOCOL_ESP, esp, length);
	assert_true(went_to("in"));
}

static void
a_packet_out_of_a_tunnel_without_interface_and_session_is_dropped(void **state)
{
	uint64_t before = dropped("ipsec-no-interface");
	uint8_t esp[256];
	unsigned length;

	assert_int_equal(put_sa(&(struct sa){.tunnel = "alone"}), 0);
	length = seal4(esp, NEAR4, 64);
	arrive4(PEER4, OURS4, PROTOCOL_ESP, esp, length);
	length = seal6(esp, NEAR6, 64);
	arrive4(PEER4, OURS4, PROTOCOL_ESP, esp, length);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("ipsec-no-interface"), before + 2);
}

// A packet of the gateway's own.
static void
send_own(const void *ip, unsigned length, uint8_t family)
{
	struct rte_mbuf *m = packet_new();

	assert_non_null(m);
	memcpy(rte_pktmbuf_append(m, (uint16_t)length), ip, length);
	packet_of(m)->flags = PACKET_OURS;
	packet_of(m)->family = family;
	sent_count = 0;
	inject(m, family == 4 ? &ip4_lookup_node : &ip6_lookup_node);
	walk();
}

static void
transport_mode_takes_packets_between_its_ends_alone(void **state)
{
	uint64_t before = dropped("esp-transport-ends");
	struct packet4 four = udp4(OURS4, PEER4, 64, 100);
	struct packet6 six = udp6(OURS6, PEER6, 64, 60);

	assert_int_equal(put_policy("hosts4", 10, "198.51.100.0/24"), 0);
	assert_int_equal(put_policy("hosts6", 11, "2001:db8:2::/64"), 0);
	assert_int_equal(put_sa(&(struct sa){.policy = "hosts4", .outbound = true, .transport = true}), 0);
	assert_int_equal(put_sa(&(struct sa){.name = "out6",
				 .policy = "hosts6",
				 .outbound = true,
				 .transport = true,
				 .six = true,
				 .spi = 5000}),
		0);
	// Of another source, and to another host.
	receive4(PEER4, 64);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("esp-transport-ends"), before + 1);
	receive6(PEER6, 64);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("esp-transport-ends"), before + 2);
	send_own(&four.ip, 100, 4);
	assert_true(went_to("out"));
	assert_int_equal(sent[0].bytes[ETHER + 9], PROTOCOL_ESP);
	assert_memory_equal(sent[0].bytes + ETHER + 12, &four.ip.source, 8);
	assert_int_equal(esp_read_32(sent[0].bytes + ETHER + IP4), SPI);
	send_own(&six.ip, IP6 + 60, 6);
	assert_true(went_to("out"));
	assert_int_equal(sent[0].bytes[ETHER + 6], PROTOCOL_ESP);
	assert_memory_equal(sent[0].bytes + ETHER + 8, six.ip.source, 32);
	inet_pton(AF_INET, "198.51.100.3", &four.ip.destination);
	four.ip.checksum = ip4_checksum(&four.ip);
	send_own(&four.ip, 100, 4);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("esp-transport-ends"), before + 3);
}

static void
transport_mode_takes_no_fragments_and_no_extension_headers(void **state)
{
	static const uint16_t fragments[] = {IP4_MF, IP4_MF | 10, 10};
	static const uint8_t headers[] = {
		PROTOCOL_HOP_BY_HOP, PROTOCOL_ROUTING, PROTOCOL_FRAGMENT, PROTOCOL_DESTINATION_OPTIONS};
	uint64_t before = dropped("esp-transport-header");

	assert_int_equal(put_policy("hosts4", 10, PEER4 "/32"), 0);
	assert_int_equal(put_policy("hosts6", 11, PEER6 "/128"), 0);
	assert_int_equal(put_sa(&(struct sa){.policy = "hosts4", .outbound = true, .transport = true}), 0);
	assert_int_equal(put_sa(&(struct sa){.name = "out6",
				 .policy = "hosts6",
				 .outbound = true,
				 .transport = true,
				 .six = true,
				 .spi = 5000}),
		0);
	for (unsigned i = 0; i < RTE_DIM(fragments); i++) {
		struct packet4 p = udp4(OURS4, PEER4, 64, 100);

		p.ip.fragment = htons(fragments[i]);
		p.ip.checksum = ip4_checksum(&p.ip);
		send_own(&p.ip, 100, 4);
		assert_int_equal(sent_count, 0);
		assert_int_equal(dropped("esp-transport-header"), ++before);
	}
	for (unsigned i = 0; i < RTE_DIM(headers); i++) {
		struct packet6 p = udp6(OURS6, PEER6, 64, 60);

		p.ip.next_header = headers[i];
		memset(p.payload, 0, 8);
		p.payload[0] = PROTOCOL_UDP;
		send_own(&p.ip, IP6 + 60, 6);
		assert_int_equal(sent_count, 0);
		assert_int_equal(dropped("esp-transport-header"), ++before);
	}
}

static void
a_packet_that_leaves_no_room_in_its_buffer_is_dropped(void **state)
{
	enum { SMALL = 1400, LARGE = BUFFER_ROOM - RTE_PKTMBUF_HEADROOM - 16 };
	uint64_t before = dropped("esp-no-room");
	uint8_t packet[LARGE] = {0};

	assert_int_equal(put_policy("hosts4", 10, PEER4 "/32"), 0);
	assert_int_equal(put_sa(&(struct sa){.policy = "hosts4", .outbound = true, .transport = true}), 0);
	for (unsigned i = 0; i <= 1; i++) {
		unsigned length = i == 0 ? SMALL : LARGE;
		struct packet4 p = udp4(OURS4, PEER4, 64, length);

		memcpy(packet, &p.ip, IP4);
		send_own(packet, length, 4);
		assert_int_equal(sent_count, i == 0);
		assert_int_equal(dropped("esp-no-room"), before + i);
	}
}

static void
the_largest_path_is_one_whose_packets_fit_into_a_buffer(void **state)
{
	uint64_t before = dropped("esp-no-room");
	uint8_t frame[FRAME_MAX + 256] = {0};
	unsigned mtu;

	assert_int_equal(put_sa(&(struct sa){.outbound = true, .path_mtu = 9600}), 0);
	for (unsigned length = 2280;; length = mtu) {
		struct packet4 p = udp4(NEAR4, FAR4, 64, length);

		p.ip.fragment = htons(IP4_DF);
		p.ip.checksum = ip4_checksum(&p.ip);
		memcpy(frame, &p, ETHER + IP4);
		sent_count = 0;
		receive("in", frame, ETHER + length);
		if (length < 2280)
			break;
		// The sender gets the size that fits.
		assert_true(went_to("in"));
		assert_int_equal(sent[0].bytes[ETHER + IP4], ICMP4_UNREACHABLE);
		assert_int_equal(sent[0].bytes[ETHER + IP4 + 1], ICMP4_FRAGMENTATION_NEEDED);
		mtu = esp_read_32(sent[0].bytes + ETHER + IP4 + 4);
		assert_in_range(mtu, 2000, 2240);
	}
	assert_int_equal(dropped("esp-no-room"), before);
}

static void
a_number_that_is_not_in_the_file_yet_is_not_used(void **state)
{
	static char path[] = "/tmp/sequences-XXXXXX";
	uint64_t before = dropped("esp-sequence-unsaved");
	int fd = mkstemp(path);
	uint32_t number;

	assert_true(fd >= 0 && close(fd) == 0);
	assert_int_equal(sequence_file_open(path), 0);
	assert_int_equal(put_sa(&(struct sa){.outbound = true}), 0);
	receive4(FAR4, 64);
	assert_true(went_to("out"));
	// All numbers that the file has are used.
	sa_of("out")->sequence = sa_of("out")->last - 1;
	receive4(FAR4, 64);
	assert_true(went_to("out"));
	number = esp_read_32(sent[0].bytes + ETHER + IP4 + 4);
	for (unsigned i = 1; i <= 3; i++) {
		receive4(FAR4, 64);
		assert_int_equal(sent_count, 0);
		assert_int_equal(dropped("esp-sequence-unsaved"), before + i);
	}
	ipsec_look_all(SECOND);
	receive4(FAR4, 64);
	assert_true(went_to("out"));
	assert_true(esp_read_32(sent[0].bytes + ETHER + IP4 + 4) > number);
	assert_int_equal(dropped("esp-sequence-unsaved"), before + 3);
	stop(NULL);
	sequence_file_close();
	assert_int_equal(unlink(path), 0);
}

static void
the_ttl_of_a_subscriber_s_packet_runs_out_at_the_tunnel_both_ways(void **state)
{
	uint64_t to = dropped("ttl-expired-to-core-tunnel"), from = dropped("ttl-expired-from-tunnel");
	uint8_t esp[256];

	assert_int_equal(put_sa(&(struct sa){.tunnel = "core"}), 0);
	assert_int_equal(put_sa(&(struct sa){.tunnel = "core", .outbound = true}), 0);
	assert_int_equal(put_subscriber(), 0);
	receive_user4(100, 2, 0);
	assert_true(went_to("out"));
	receive_user4(100, 1, 0);
	assert_true(went_to("other"));
	assert_int_equal(sent[0].bytes[TAGGED + IP4], 11); // time exceeded
	assert_int_equal(dropped("ttl-expired-to-core-tunnel"), to + 1);
	receive_user6(100, 2);
	assert_true(went_to("out"));
	receive_user6(100, 1);
	assert_true(went_to("other"));
	assert_int_equal(sent[0].bytes[TAGGED + IP6], 3); // time exceeded
	assert_int_equal(dropped("ttl-expired-to-core-tunnel"), to + 2);
	// The error about a packet out of the tunnel goes back through it.
	for (uint8_t ttl = 1; ttl <= 2; ttl++) {
		arrive4(PEER4, OURS4, PROTOCOL_ESP, esp, seal4(esp, USER4, ttl));
		assert_true(went_to(ttl == 1 ? "out" : "other"));
		assert_int_equal(
			sent[0].bytes[ttl == 1 ? ETHER + 9 : TAGGED + 9], ttl == 1 ? PROTOCOL_ESP : PROTOCOL_UDP);
		assert_int_equal(dropped("ttl-expired-from-tunnel"), from + 1);
	}
	for (uint8_t ttl = 1; ttl <= 2; ttl++) {
		arrive4(PEER4, OURS4, PROTOCOL_ESP, esp, seal6(esp, USER6, ttl));
		assert_true(went_to(ttl == 1 ? "out" : "other"));
		assert_int_equal(dropped("ttl-expired-from-tunnel"), from + 2);
	}
	assert_int_equal(dropped("ttl-expired-to-core-tunnel"), to + 2);
}

// A router reports that the packet which it quotes is too large.
static void
tell_too_big6(const struct frame *quoted, uint32_t mtu)
{
	enum { QUOTED = 100, LENGTH = 8 + QUOTED };
	struct packet6 p = udp6(PEER6, OURS6, 64, LENGTH);
	uint8_t *icmp = p.payload;
	uint64_t sum;

	p.ether[5] = 2;
	p.ip.next_header = PROTOCOL_ICMP6;
	memset(icmp, 0, 8);
	icmp[0] = ICMP6_TOO_BIG;
	esp_write_32(icmp + 4, mtu);
	memcpy(icmp + 8, quoted->bytes + ETHER, QUOTED);
	sum = ip6_pseudo_sum(p.ip.source, p.ip.destination, LENGTH, PROTOCOL_ICMP6);
	memcpy(icmp + 2, &(uint16_t){(uint16_t)~checksum_fold(checksum_add(sum, icmp, LENGTH))}, 2);
	receive("out", (uint8_t *)&p, ETHER + IP6 + LENGTH);
}

static void
a_subscriber_is_told_of_the_path_mtu_of_the_session_s_tunnel_over_ipv6(void **state)
{
	enum { PATH = 1400 };
	uint64_t before = dropped("esp-mtu");
	unsigned mtu, room;
	struct frame large;

	assert_int_equal(put_sa(&(struct sa){.tunnel = "core", .outbound = true, .six = true}), 0);
	assert_int_equal(put_subscriber(), 0);
	room = ipsec_sa_room(sa_of("out"), PATH);
	receive_user4(1420, 64, IP4_DF);
	assert_true(went_to("out"));
	assert_int_equal(sent[0].bytes[ETHER + 6], PROTOCOL_ESP);
	large = sent[0];
	sent_count = 0;
	tell_too_big6(&large, PATH);
	assert_int_equal(sent_count, 0);
	receive_user4(1420, 64, IP4_DF);
	assert_true(went_to("other"));
	assert_int_equal(sent[0].bytes[TAGGED + IP4], ICMP4_UNREACHABLE);
	assert_int_equal(sent[0].bytes[TAGGED + IP4 + 1], ICMP4_FRAGMENTATION_NEEDED);
	mtu = esp_read_32(sent[0].bytes + TAGGED + IP4 + 4);
	assert_int_equal(mtu, room);
	// That fits, and not a byte more.
	receive_user4(mtu, 64, IP4_DF);
	assert_true(went_to("out"));
	assert_in_range(sent[0].length, ETHER + PATH - 3, ETHER + PATH);
	receive_user4(mtu + 1, 64, IP4_DF);
	assert_true(went_to("other"));
	// The same in IPv6.
	receive_user6(1420, 64);
	assert_true(went_to("other"));
	assert_int_equal(sent[0].bytes[TAGGED + IP6], ICMP6_TOO_BIG);
	assert_int_equal(esp_read_32(sent[0].bytes + TAGGED + IP6 + 4), room);
	receive_user6(room, 64);
	assert_true(went_to("out"));
	assert_in_range(sent[0].length, ETHER + PATH - 3, ETHER + PATH);
	receive_user6(room + 1, 64);
	assert_true(went_to("other"));
	assert_int_equal(dropped("esp-mtu"), before + 4);
	// Without DF it is fragmented before encryption.
	receive_user4(1420, 64, 0);
	assert_int_equal(sent_count, 2);
	assert_true(sent[0].length <= ETHER + PATH && sent[1].length <= ETHER + PATH);
	// Where 1,280 bytes do not fit, the outer packet is fragmented, and the sender hears of no smaller MTU.
	tell_too_big6(&large, 1280);
	receive_user6(1281, 64);
	assert_true(went_to("other"));
	assert_int_equal(esp_read_32(sent[0].bytes + TAGGED + IP6 + 4), 1280);
	receive_user6(1280, 64);
	assert_int_equal(sent_count, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(sent[i].bytes[ETHER + 6], PROTOCOL_FRAGMENT);
		assert_true(sent[i].length <= ETHER + 1280);
	}
}

// A UDP datagram; over IPv6 with a checksum or with zero.
static void
arrive_udp(unsigned family, uint16_t port, const uint8_t *payload, unsigned length, bool checksum)
{
	uint8_t udp[64] = {0x13, 0x88};
	unsigned whole = ESP_UDP_HEADER + length;
	struct packet6 ends = udp6(PEER6, OURS6, 64, 0);

	esp_write_16(udp + 2, port);
	esp_write_16(udp + 4, (uint16_t)whole);
	memcpy(udp + ESP_UDP_HEADER, payload, length);
	if (checksum) {
		uint64_t sum = ip6_pseudo_sum(ends.ip.source, ends.ip.destination, whole, PROTOCOL_UDP);

		memcpy(udp + 6, &(uint16_t){(uint16_t)~checksum_fold(checksum_add(sum, udp, whole))}, 2);
	}
	if (family == 4)
		arrive4(PEER4, OURS4, PROTOCOL_UDP, udp, whole);
	else
		arrive6(PEER6, OURS6, PROTOCOL_UDP, udp, whole);
}

static void
a_datagram_for_the_ports_of_ike_is_counted_under_its_reason(void **state)
{
	static const struct {
		const char *reason; // NULL: the agent gets it
		unsigned family, port, length;
		uint8_t first, others;
		bool checksum;
	} cases[] = {
		{"ike-truncated", 4, IKE_PORT, 0, 0, 0, false},
		{"ike-truncated", 6, IKE_PORT, 0, 0, 0, true},
		{"ike-truncated", 4, ESP_UDP_PORT, 0, 0, 0, false},
		{"ike-truncated", 4, ESP_UDP_PORT, 1, 0, 0, false},
		{"ike-truncated", 4, ESP_UDP_PORT, 2, ESP_KEEPALIVE, ESP_KEEPALIVE, false},
		{"ike-truncated", 6, ESP_UDP_PORT, 3, ESP_KEEPALIVE, 0, true},
		{"nat-keepalive", 4, ESP_UDP_PORT, 1, ESP_KEEPALIVE, 0, false},
		{"nat-keepalive", 6, ESP_UDP_PORT, 1, ESP_KEEPALIVE, 0, true},
		{"ike-no-checksum", 6, IKE_PORT, 28, 1, 1, false},
		{"ike-no-checksum", 6, ESP_UDP_PORT, 32, 0, 0, false},
		// RFC 6935: ESP in UDP needs none.
		{"esp-unknown-spi", 6, ESP_UDP_PORT, 40, 1, 1, false},
		{"esp-truncated", 4, ESP_UDP_PORT, 7, 1, 1, false},
		{NULL, 4, IKE_PORT, 28, 1, 1, false},
		{NULL, 6, IKE_PORT, 28, 1, 1, true},
		{NULL, 4, ESP_UDP_PORT, 32, 0, 0, false},
		{NULL, 6, ESP_UDP_PORT, 32, 0, 0, true},
	};
	static const char *const reasons[] = {
		"ike-truncated", "nat-keepalive", "ike-no-checksum", "esp-unknown-spi", "esp-truncated"};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		uint64_t before[RTE_DIM(reasons)];
		uint8_t payload[48];

		for (unsigned k = 0; k < RTE_DIM(reasons); k++)
			before[k] = dropped(reasons[k]);
		memset(payload, cases[i].others, sizeof(payload));
		payload[0] = cases[i].first;
		arrive_udp(cases[i].family, (uint16_t)cases[i].port, payload, cases[i].length, cases[i].checksum);
		for (unsigned k = 0; k < RTE_DIM(reasons); k++) {
			bool here = cases[i].reason && strcmp(cases[i].reason, reasons[k]) == 0;

			if (dropped(reasons[k]) != before[k] + here)
				fail_msg("case %u: %s", i, reasons[k]);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(
			an_esp_packet_that_is_not_between_the_ends_of_its_association_is_dropped_and_its_number_is_not_used,
			stop),
		cmocka_unit_test_teardown(a_packet_out_of_a_tunnel_without_interface_and_session_is_dropped, stop),
		cmocka_unit_test_teardown(transport_mode_takes_packets_between_its_ends_alone, stop),
		cmocka_unit_test_teardown(transport_mode_takes_no_fragments_and_no_extension_headers, stop),
		cmocka_unit_test_teardown(a_packet_that_leaves_no_room_in_its_buffer_is_dropped, stop),
		cmocka_unit_test_teardown(the_largest_path_is_one_whose_packets_fit_into_a_buffer, stop),
		cmocka_unit_test_teardown(a_number_that_is_not_in_the_file_yet_is_not_used, stop),
		cmocka_unit_test_teardown(the_ttl_of_a_subscriber_s_packet_runs_out_at_the_tunnel_both_ways, stop),
		cmocka_unit_test_teardown(a_subscriber_is_told_of_the_path_mtu_of_the_session_s_tunnel_over_ipv6, stop),
		cmocka_unit_test_teardown(a_datagram_for_the_ports_of_ike_is_counted_under_its_reason, stop),
	};

	return cmocka_run_group_tests(tests, start_all, stop_all);
}
