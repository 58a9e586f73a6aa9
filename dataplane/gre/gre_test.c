// SPDX-License-Identifier: Apache-2.0
// User planes of untrusted access: ESP without encryption, so that the payload is visible, GRE and GTP-U.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "flow.pb-c.h"
#include "gre.pb-c.h"
#include "gre/gre.h"
#include "ip/ecn.h"
#include "ipsec.pb-c.h"
#include "ipsec/esp.h"
#include "session/all_sessions.h"
#include "session/record.h"

#define KEY "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define UE "10.201.0.7"
#define OURS "10.200.0.1"
#define UE6 "2001:db8:20::7"
#define OURS6 "2001:db8:20::1"

enum { SPI = 5000, TEID = 300, ICV = 16, QFI = 5, VOICE = 1, INNER4 = 20, IP4 = 20 };

static uint32_t sequence;

static int
put_child(const char *name, uint32_t spi)
{
	Sluice__V1__IpsecTunnel tunnel = SLUICE__V1__IPSEC_TUNNEL__INIT;
	Sluice__V1__SecurityAssociation sa = SLUICE__V1__SECURITY_ASSOCIATION__INIT;
	char in[32], out[32];
	int error = put("IpsecTunnel", name, &tunnel);

	snprintf(in, sizeof(in), "%s-in", name);
	snprintf(out, sizeof(out), "%s-out", name);
	sa.spi = spi;
	sa.local_address = "192.0.2.1";
	sa.remote_address = "192.0.2.2";
	sa.encryption = SLUICE__V1__ESP_ENCRYPTION__NULL_ENCRYPTION;
	sa.integrity = SLUICE__V1__ESP_INTEGRITY__HMAC_SHA256;
	sa.integrity_key = KEY;
	sa.tunnel = (char *)name;
	if (!error)
		error = put("SecurityAssociation", in, &sa);
	sa.direction = SLUICE__V1__SECURITY_DIRECTION__OUTBOUND;
	return error ? error : put("SecurityAssociation", out, &sa);
}

static int
put_gre(const char *name, bool six, const char *first, const char *voice)
{
	Sluice__V1__GreTunnel gre = SLUICE__V1__GRE_TUNNEL__INIT;
	Sluice__V1__GreChild children[2] = {SLUICE__V1__GRE_CHILD__INIT, SLUICE__V1__GRE_CHILD__INIT};
	uint32_t qfis[] = {VOICE};

	gre.local_address = six ? OURS6 : OURS;
	gre.remote_address = six ? UE6 : UE;
	children[0].tunnel = (char *)first;
	children[1].tunnel = (char *)voice;
	children[1].qfis = qfis;
	children[1].n_qfis = 1;
	gre.children = (Sluice__V1__GreChild *[]){&children[0], &children[1]};
	gre.n_children = voice ? 2 : 1;
	return put("GreTunnel", name, &gre);
}

static int
put_pdu_session(const char *name, const char *gre, uint32_t teid)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;

	access.gre_tunnel = (char *)gre;
	policy.flow_profile = "flows";
	gtpu.local_address = "192.0.2.1";
	gtpu.remote_address = "192.0.2.2";
	gtpu.local_teid = teid;
	gtpu.remote_teid = teid + 1;
	gtpu.pdu_session_container = true;
	gtpu.qfi = 9;
	session.access = &access;
	session.policy = &policy;
	session.gtpu = &gtpu;
	session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	session.addresses = (char *[]){"100.64.0.1/32", "2001:db8:1::/64"};
	session.n_addresses = 2;
	return put("Session", name, &session);
}

static int
all_start(void **state)
{
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosFlow flow = SLUICE__V1__QOS_FLOW__INIT, *flows[] = {&flow};

	flow.qfi = VOICE;
	flow.dscp = "ef";
	profile.flows = flows;
	profile.n_flows = 1;
	return all_sessions_start(1) || put("FlowProfile", "flows", &profile) || put_child("first", SPI) ||
	       put_child("voice", SPI + 1) || put_gre("ue", false, "first", "voice") ||
	       put_pdu_session("s", "ue", TEID);
}

// ---- Packets of the UE: they end at the returned byte.

static uint8_t *
write_gre(uint8_t *at, bool six, uint8_t qfi, unsigned payload)
{
	const uint8_t header[GRE_HEADER] = {GRE_KEY, 0, 0, 0, qfi, 0, 0, 0};

	if (six) {
		write_ip6(at, UE6, OURS6, GRE_HEADER + payload);
		at[6] = PROTOCOL_GRE;
		at += sizeof(struct ip6_header);
	} else {
		struct ip4_header ip;

		write_ip4(at, UE, OURS, GRE_HEADER + payload);
		memcpy(&ip, at, sizeof(ip));
		ip.protocol = PROTOCOL_GRE;
		ip.checksum = ip4_checksum(&ip);
		memcpy(at, &ip, sizeof(ip));
		at += sizeof(ip);
	}
	memcpy(at, header, sizeof(header));
	return at + sizeof(header);
}

// As an authenticated UE encrypts it.
static void
send_esp(uint32_t spi, const uint8_t *inner, size_t length)
{
	static const uint8_t key[32] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
		22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
	unsigned pad = (unsigned)(-(length + 2) & 3), size = 0;
	uint8_t frame[1024], mac[32], *at = write_core(frame, 0x0800), *esp;

	at = write_ip4(at, "192.0.2.2", "192.0.2.1", (unsigned)(ESP_HEADER + length + pad + 2 + ICV));
	at[-11] = PROTOCOL_ESP;
	memset(at - 10, 0, 2);
	{
		struct ip4_header ip;

		memcpy(&ip, at - sizeof(ip), sizeof(ip));
		ip.checksum = ip4_checksum(&ip);
		memcpy(at - sizeof(ip), &ip, sizeof(ip));
	}
	esp = at;
	esp_write_32(esp, spi);
	esp_write_32(esp + 4, ++sequence);
	at += ESP_HEADER;
	memcpy(at, inner, length);
	at += length;
	for (unsigned i = 1; i <= pad; i++)
		*at++ = (uint8_t)i;
	*at++ = (uint8_t)pad;
	*at++ = inner[0] >> 4 == 4 ? 4 : 41;
	HMAC(EVP_sha256(), key, sizeof(key), esp, (size_t)(at - esp), mac, &size);
	memcpy(at, mac, ICV);
	sent_count = 0;
	receive("core", frame, (size_t)(at + ICV - frame));
}

static size_t
user_packet(uint8_t *packet, bool six, uint8_t qfi)
{
	uint8_t *at = write_gre(packet, six, qfi, INNER4 + UDP + PAYLOAD);

	return (size_t)(write_packet4(at, "100.64.0.1", "203.0.113.9", PAYLOAD) - packet);
}

// From the UPF, with a PDU session container.
static void
send_gtpu(uint32_t teid, uint8_t qfi, bool rqi, uint8_t tos)
{
	enum { GTPU = 16, INNER = INNER4 + UDP + PAYLOAD };
	uint8_t frame[256], *at = write_core(frame, 0x0800), *inner;
	const uint8_t header[GTPU] = {0x34, 255, 0, GTPU - 8 + INNER, 0, 0, (uint8_t)(teid >> 8), (uint8_t)teid, 0, 0,
		0, 0x85, 1, 0, (uint8_t)(qfi | (rqi ? 0x40 : 0)), 0};

	at = write_udp(write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + GTPU + INNER), 40000, 2152, GTPU + INNER);
	memcpy(at, header, sizeof(header));
	inner = at += sizeof(header);
	at = write_packet4(at, "203.0.113.9", "100.64.0.1", PAYLOAD);
	{
		struct ip4_header ip;

		memcpy(&ip, inner, sizeof(ip));
		ip.tos = tos;
		ip.checksum = ip4_checksum(&ip);
		memcpy(inner, &ip, sizeof(ip));
	}
	sent_count = 0;
	receive("core", frame, (size_t)(at - frame));
}

static const uint8_t *
outer_ip(void)
{
	return sent[0].bytes + RTE_ETHER_HDR_LEN;
}

static uint32_t
sent_spi(void)
{
	return esp_read_32(outer_ip() + IP4);
}

// The packet inside of the ESP packet that was sent.
static const uint8_t *
inside(void)
{
	assert_int_equal(sent_count, 1);
	assert_int_equal(outer_ip()[9], PROTOCOL_ESP);
	return outer_ip() + IP4 + ESP_HEADER;
}

// ---- Tests.

static void
the_qfi_of_the_key_is_that_of_the_container_uplink(void **state)
{
	uint8_t packet[256];

	for (unsigned qfi = 0; qfi < GRE_QFIS; qfi += 7) {
		const uint8_t *gtpu;

		send_esp(SPI + (qfi == VOICE), packet, user_packet(packet, false, (uint8_t)qfi));
		assert_int_equal(sent_count, 1);
		gtpu = outer_ip() + IP4 + UDP;
		assert_int_equal(gtpu[1], 255);
		assert_int_equal(gtpu[7], (TEID + 1) & 0xff);
		assert_int_equal(gtpu[11], 0x85);
		assert_int_equal(gtpu[13], 0x10); // uplink
		assert_int_equal(gtpu[14], qfi);
		assert_memory_equal(gtpu + 16, packet + IP4 + GRE_HEADER, INNER4 + UDP + PAYLOAD);
	}
}

static void
an_uplink_packet_is_marked_by_its_flow(void **state)
{
	uint8_t packet[256];

	send_esp(SPI, packet, user_packet(packet, false, VOICE));
	assert_int_equal(sent_count, 1);
	assert_int_equal(outer_ip()[1], 46 << 2);
	send_esp(SPI, packet, user_packet(packet, false, QFI));
	assert_int_equal(outer_ip()[1], 0);
}

static void
the_key_has_qfi_and_rqi_downlink(void **state)
{
	for (unsigned rqi = 0; rqi < 2; rqi++) {
		const uint8_t expected[GRE_HEADER] = {0x20, 0, 0, 0, QFI, 0, 0, rqi ? 0x80 : 0};
		const uint8_t *ip;
		struct ip4_header header;

		send_gtpu(TEID, QFI, rqi, 0);
		ip = inside();
		memcpy(&header, ip, sizeof(header));
		assert_int_equal(header.version_ihl, 0x45);
		assert_int_equal(header.protocol, PROTOCOL_GRE);
		assert_int_equal(ntohs(header.total_length), IP4 + GRE_HEADER + INNER4 + UDP + PAYLOAD);
		assert_int_equal(header.checksum, ip4_checksum(&header));
		assert_int_equal(ntohl(header.source), 0x0ac80001);
		assert_int_equal(ntohl(header.destination), 0x0ac90007);
		assert_memory_equal(ip + IP4, expected, sizeof(expected));
		assert_int_equal(ip[IP4 + GRE_HEADER], 0x45);
		assert_int_equal(sent_spi(), SPI);
	}
}

static void
a_flow_has_a_child_and_a_dscp_of_its_own_downlink(void **state)
{
	send_gtpu(TEID, VOICE, false, 0);
	assert_int_equal(inside()[1], 46 << 2);
	assert_int_equal(outer_ip()[1], 46 << 2);
	assert_int_equal(sent_spi(), SPI + 1);
	// ECN and, where the flow has no DSCP, the DSCP are the packet's.
	send_gtpu(TEID, VOICE, false, 2);
	assert_int_equal(outer_ip()[1], 46 << 2 | 2);
	send_gtpu(TEID, QFI, false, 10 << 2 | 2);
	assert_int_equal(outer_ip()[1], 10 << 2 | 2);
	assert_int_equal(sent_spi(), SPI);
}

static void
foreign_packets_in_the_tunnel_are_named_drops(void **state)
{
	static const struct {
		unsigned at;
		uint8_t to;
		const char *drop;
		bool sum;
	} changes[] = {
		{9, 17, "gre-wrong-ends", true},
		{15, 8, "gre-wrong-ends", true},
		{19, 8, "gre-wrong-ends", true},
		{6, 0x20, "gre-wrong-ends", true},
		{0, 0x46, "gre-wrong-ends", true},
		{8, 63, "gre-ip-checksum", false},
		{3, 200, "gre-truncated", true},
		{3, 27, "gre-truncated", true},
		{IP4, 0xa0, "gre-header", false},
		{IP4, 0x30, "gre-header", false},
		{IP4, 0x00, "gre-header", false},
		{IP4, 0x60, "gre-header", false},
		{IP4 + 1, 1, "gre-header", false},
		{IP4 + GRE_HEADER, 0x55, "gre-inner-not-ip", false},
	};
	uint8_t packet[256];
	size_t length = user_packet(packet, false, QFI);

	for (unsigned i = 0; i < RTE_DIM(changes); i++) {
		uint64_t before = dropped(changes[i].drop);
		uint8_t changed[256];

		memcpy(changed, packet, length);
		changed[changes[i].at] = changes[i].to;
		if (changes[i].sum) {
			struct ip4_header ip;

			memcpy(&ip, changed, sizeof(ip));
			ip.version_ihl = 0x45;
			ip.checksum = ip4_checksum(&ip);
			ip.version_ihl = changed[0];
			memcpy(changed, &ip, sizeof(ip));
		}
		send_esp(SPI, changed, length);
		assert_int_equal(sent_count, 0);
		if (dropped(changes[i].drop) != before + 1)
			fail_msg("change %u is not dropped as %s", i, changes[i].drop);
	}
	// Reserved bits and the protocol type are ignored.
	packet[IP4] = 0x23;
	packet[IP4 + 1] = 0xf8;
	packet[IP4 + 2] = 0x08;
	send_esp(SPI, packet, length);
	assert_int_equal(sent_count, 1);
}

static void
every_truncation_is_dropped(void **state)
{
	uint8_t packet[256];

	for (unsigned six = 0; six < 2; six++) {
		size_t length = user_packet(packet, six, QFI);

		for (size_t cut = 1; cut < length; cut++) {
			send_esp(SPI, packet, cut);
			assert_int_equal(sent_count, 0);
		}
	}
}

static void
a_source_that_the_session_does_not_have_is_dropped(void **state)
{
	uint64_t before = dropped("session-source");
	uint8_t packet[256], *at = write_gre(packet, false, QFI, INNER4 + UDP + PAYLOAD);

	send_esp(SPI, packet, (size_t)(write_packet4(at, "100.64.0.2", "203.0.113.9", PAYLOAD) - packet));
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("session-source"), before + 1);
}

static void
ipv6_is_outside_of_gre(void **state)
{
	const uint8_t *ip;
	uint8_t packet[256];
	struct ip6_header header;

	assert_int_equal(put_child("six", SPI + 2), 0);
	assert_int_equal(put_gre("ue6", true, "six", NULL), 0);
	assert_int_equal(put_pdu_session("t", "ue6", TEID + 10), 0);
	send_esp(SPI + 2, packet, user_packet(packet, true, QFI));
	assert_int_equal(sent_count, 1);
	assert_int_equal(outer_ip()[IP4 + UDP + 14], QFI);
	send_gtpu(TEID + 10, VOICE, false, 0);
	ip = inside();
	memcpy(&header, ip, sizeof(header));
	assert_int_equal(ip_traffic_class(ip, 6), 46 << 2);
	assert_int_equal(header.next_header, PROTOCOL_GRE);
	assert_int_equal(ntohs(header.payload_length), GRE_HEADER + INNER4 + UDP + PAYLOAD);
	assert_int_equal(header.destination[15], 7);
	assert_int_equal(ip[40 + 4], VOICE);
	assert_int_equal(delete_session("t"), 0);
	assert_int_equal(object_delete("GreTunnel", "ue6", &fault_of_put), 0);
}

static void
children_change_under_the_session(void **state)
{
	uint8_t packet[256];

	assert_int_equal(put_child("third", SPI + 3), 0);
	assert_int_equal(put_gre("ue", false, "third", "voice"), 0);
	send_gtpu(TEID, QFI, false, 0);
	assert_int_equal(sent_spi(), SPI + 3);
	// A tunnel that is no longer a child has no parent, and can be deleted.
	send_esp(SPI, packet, user_packet(packet, false, QFI));
	assert_int_equal(sent_count, 0);
	assert_int_equal(put_gre("ue", false, "voice", NULL), 0);
	send_gtpu(TEID, QFI, false, 0);
	assert_int_equal(sent_spi(), SPI + 1);
	assert_int_equal(put_gre("ue", false, "first", "voice"), 0);
	send_gtpu(TEID, QFI, false, 0);
	assert_int_equal(sent_spi(), SPI);
	send_esp(SPI, packet, user_packet(packet, false, QFI));
	assert_int_equal(sent_count, 1);
	assert_int_equal(object_delete("IpsecTunnel", "first", &fault_of_put), -EBUSY);
}

static void
refusals_name_the_field(void **state)
{
	Sluice__V1__GreTunnel gre = SLUICE__V1__GRE_TUNNEL__INIT;

	assert_int_equal(put_gre("other", false, "first", NULL), -EEXIST);
	assert_non_null(strstr(fault_of_put.text, "children[0].tunnel: GreTunnel \"ue\" has IpsecTunnel \"first\""));
	assert_int_equal(put_gre("ue", false, "first", "first"), -EINVAL);
	assert_non_null(strstr(fault_of_put.text, "children[1].tunnel: duplicate tunnel \"first\""));
	assert_int_equal(put_gre("ue", true, "first", "voice"), -EINVAL);
	assert_int_equal(put_pdu_session("t", "ue", TEID + 20), -EEXIST);
	assert_non_null(strstr(fault_of_put.text, "access.greTunnel: Session \"s\""));
	gre.local_address = OURS;
	gre.remote_address = UE6;
	assert_int_equal(put("GreTunnel", "other", &gre), -EINVAL);
	gre.remote_address = UE;
	assert_int_equal(put("GreTunnel", "other", &gre), -EINVAL);
	assert_non_null(strstr(fault_of_put.text, "children: 0 elements; 1 to 16"));
}

static void
a_qfi_without_a_child_is_dropped(void **state)
{
	Sluice__V1__GreTunnel gre = SLUICE__V1__GRE_TUNNEL__INIT;
	Sluice__V1__GreChild child = SLUICE__V1__GRE_CHILD__INIT;
	uint64_t before = dropped("gre-no-child");
	uint32_t qfis[] = {VOICE};

	gre.local_address = OURS;
	gre.remote_address = UE;
	child.tunnel = "voice";
	child.qfis = qfis;
	child.n_qfis = 1;
	gre.children = (Sluice__V1__GreChild *[]){&child};
	gre.n_children = 1;
	assert_int_equal(put("GreTunnel", "ue", &gre), 0);
	send_gtpu(TEID, QFI, false, 0);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("gre-no-child"), before + 1);
	assert_int_equal(put_gre("ue", false, "first", "voice"), 0);
}

// A frame of somebody behind the UE. Its first byte is not that of an IP packet, or could be.
static size_t
write_frame(uint8_t *at, uint8_t first, uint16_t type)
{
	enum { BODY = 50 };

	memset(at, 0x45, RTE_ETHER_HDR_LEN + BODY);
	memcpy(at, (const uint8_t[]){first, 9, 9, 9, 9, 9, 2, 1, 0, 0, 0, 7, (uint8_t)(type >> 8), (uint8_t)type},
		RTE_ETHER_HDR_LEN);
	return RTE_ETHER_HDR_LEN + BODY;
}

static void
frames_of_a_session_of_type_ethernet_go_both_ways(void **state)
{
	enum { LAN = TEID + 40, GTPU = 16, AT = RTE_ETHER_HDR_LEN + IP4 + UDP + GTPU };
	static const uint8_t firsts[] = {2, 0x45, 0x66, 0xff};
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;
	uint64_t before = dropped("gre-inner-not-ethernet"), larger = dropped("session-frame-too-large");
	uint8_t packet[256], frame[1600];
	size_t length;

	assert_int_equal(put_child("lan", SPI + 4), 0);
	assert_int_equal(put_gre("lan", false, "lan", NULL), 0);
	access.gre_tunnel = "lan";
	policy.flow_profile = "flows";
	gtpu.local_address = "192.0.2.1";
	gtpu.remote_address = "192.0.2.2";
	gtpu.local_teid = LAN;
	gtpu.remote_teid = LAN + 1;
	gtpu.pdu_session_container = true;
	gtpu.ethernet = true;
	session.access = &access;
	session.policy = &policy;
	session.gtpu = &gtpu;
	session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	assert_int_equal(put("Session", "lan", &session), 0);
	for (unsigned i = 0; i < RTE_DIM(firsts); i++) {
		// Up: the QFI is the UE's choice.
		uint8_t *at = write_gre(packet, false, QFI, RTE_ETHER_HDR_LEN + 50);

		length = write_frame(at, firsts[i], i & 1 ? 0x0806 : 0x0800);
		send_esp(SPI + 4, packet, (size_t)(at - packet) + length);
		assert_int_equal(sent_count, 1);
		assert_int_equal(sent[0].length, AT + length);
		assert_int_equal(sent[0].bytes[AT - 2], QFI);
		assert_memory_equal(sent[0].bytes + AT, at, length);
		// Down.
		at = write_core(frame, 0x0800);
		at = write_udp(write_ip4(at, "192.0.2.2", "192.0.2.1", (unsigned)(UDP + GTPU + length)), 40000, 2152,
			(unsigned)(GTPU + length));
		memcpy(at,
			(const uint8_t[]){0x34, 255, 0, (uint8_t)(GTPU - 8 + length), 0, 0, LAN >> 8, LAN & 0xff, 0, 0,
				0, 0x85, 1, 0, VOICE, 0},
			GTPU);
		memcpy(at + GTPU, packet + IP4 + GRE_HEADER, length);
		sent_count = 0;
		receive("core", frame, (size_t)(at + GTPU + length - frame));
		assert_int_equal(sent_spi(), SPI + 4);
		assert_int_equal(inside()[1], 46 << 2);
		assert_int_equal(inside()[IP4 + 4], VOICE);
		assert_memory_equal(inside() + IP4 + GRE_HEADER, packet + IP4 + GRE_HEADER, length);
	}
	// Shorter than an Ethernet header, up; larger than the tunnel takes, down.
	send_esp(SPI + 4, packet, (size_t)(write_gre(packet, false, QFI, 13) - packet) + 13);
	assert_int_equal(dropped("gre-inner-not-ethernet"), before + 1);
	{
		enum { LARGE = 1460 };
		uint8_t *at = write_core(frame, 0x0800);

		at = write_udp(write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + 8 + LARGE), 40000, 2152, 8 + LARGE);
		memcpy(at, (const uint8_t[]){0x30, 255, LARGE >> 8, LARGE & 0xff, 0, 0, LAN >> 8, LAN & 0xff}, 8);
		write_frame(at + 8, 2, 0x0806);
		sent_count = 0;
		receive("core", frame, (size_t)(at + 8 + LARGE - frame));
		assert_int_equal(sent_count, 0);
		assert_int_equal(dropped("session-frame-too-large"), larger + 1);
	}
	assert_int_equal(delete_session("lan"), 0);
	assert_int_equal(object_delete("GreTunnel", "lan", &fault_of_put), 0);
}

// The outer path takes 1,500 bytes by default: IP 20, ESP 8, pad length and next header 2, ICV 16; IP and GRE 28.
static void
the_mtu_leaves_room_for_all_headers(void **state)
{
	enum { ESP_MTU = (1500 - IP4 - ESP_HEADER - ICV) / 4 * 4 - 2 };

	assert_int_equal(session_details[session_of(object_find(&session_kind, "s"))].mtu, ESP_MTU - IP4 - GRE_HEADER);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_mtu_leaves_room_for_all_headers),
		cmocka_unit_test(the_qfi_of_the_key_is_that_of_the_container_uplink),
		cmocka_unit_test(an_uplink_packet_is_marked_by_its_flow),
		cmocka_unit_test(the_key_has_qfi_and_rqi_downlink),
		cmocka_unit_test(a_flow_has_a_child_and_a_dscp_of_its_own_downlink),
		cmocka_unit_test(foreign_packets_in_the_tunnel_are_named_drops),
		cmocka_unit_test(every_truncation_is_dropped),
		cmocka_unit_test(a_source_that_the_session_does_not_have_is_dropped),
		cmocka_unit_test(ipv6_is_outside_of_gre),
		cmocka_unit_test(children_change_under_the_session),
		cmocka_unit_test(refusals_name_the_field),
		cmocka_unit_test(a_qfi_without_a_child_is_dropped),
		cmocka_unit_test(frames_of_a_session_of_type_ethernet_go_both_ways),
	};

	return cmocka_run_group_tests(tests, all_start, NULL);
}
