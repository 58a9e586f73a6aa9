// SPDX-License-Identifier: Apache-2.0
// For unit tests: subscribers on the ports of port/all_nodes.h, and packets from them and from the core side.
#pragma once

#include <arpa/inet.h>

#include "inet/header.h"
#include "interface.pb-c.h"
#include "ip.pb-c.h"
#include "port/all_nodes.h"
#include "session.pb-c.h"
#include "session/session.h"

enum { QINQ = 22, UDP = 8, PPPOE_AND_PPP = 8, PAYLOAD = 24 };

// A session, on port "access" unless it names another; no TEID: routed.
struct subscriber {
	const char *name, *port, *mac, *address4, *address6;
	uint16_t outer, inner, pppoe, five_we;
	uint32_t teid; // ours; the peer's is one more
	unsigned mtu;
	bool reflective, outer6;
	const char *flows;
	unsigned pdu_session;
	uint32_t lcp_magic;
	bool ethernet;
	bool clear_ecn;
	bool any_source;
	const char *remote; // of the tunnel, if not 192.0.2.2
};

static inline int
put_session(const struct subscriber *s)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;

	access.port = (char *)(s->port ? s->port : "access");
	access.outer_vlan = s->outer;
	access.inner_vlan = s->inner;
	access.pppoe_session_id = s->pppoe;
	access.five_we_session_id = s->five_we;
	access.pdu_session_id = s->pdu_session;
	access.lcp_magic = s->lcp_magic;
	access.mac = (char *)(s->mac ? s->mac : "");
	policy.mtu = s->mtu;
	policy.any_source = s->any_source;
	policy.flow_profile = (char *)(s->flows ? s->flows : "");
	session.access = &access;
	session.policy = &policy;
	session.addresses = (char *[]){(char *)s->address4, (char *)s->address6};
	session.n_addresses = (s->address4 != NULL) + (s->address6 != NULL);
	if (s->teid) {
		gtpu.local_address = s->outer6 ? "2001:db8:c::1" : "192.0.2.1";
		gtpu.remote_address = s->outer6 ? "2001:db8:c::2" : "192.0.2.2";
		if (s->remote)
			gtpu.remote_address = (char *)s->remote;
		gtpu.local_teid = s->teid;
		gtpu.remote_teid = s->teid + 1;
		gtpu.pdu_session_container = true;
		gtpu.qfi = 9;
		gtpu.reflective_qos = s->reflective;
		gtpu.ethernet = s->ethernet;
		gtpu.clear_outer_ecn = s->clear_ecn;
		session.gtpu = &gtpu;
		session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	}
	return put("Session", s->name, &session);
}

static inline int
delete_session(const char *name)
{
	return object_delete("Session", name, &fault_of_put);
}

// The ports "access", "core" and "other"; on the core side we are 192.0.2.1 and 2001:db8:c::1, and everything is behind ...2.
static inline int
all_sessions_start(unsigned workers)
{
	static const char *const names[] = {"access", "core", "other"};
	Sluice__V1__Interface interface = SLUICE__V1__INTERFACE__INIT;
	Sluice__V1__Neighbor neighbor = SLUICE__V1__NEIGHBOR__INIT;
	Sluice__V1__NextHop hop = SLUICE__V1__NEXT_HOP__INIT, *hops[] = {&hop};
	Sluice__V1__Route route = SLUICE__V1__ROUTE__INIT;

	if (all_nodes_start(workers, 4096, names, 3))
		return -1;
	interface.port = "core";
	interface.addresses = (char *[]){"192.0.2.1/24", "2001:db8:c::1/64"};
	interface.n_addresses = 2;
	neighbor.interface = "core";
	neighbor.address = "192.0.2.2";
	neighbor.mac = "02:00:00:00:01:02";
	if (put("Interface", "core", &interface) || put("Neighbor", "peer4", &neighbor))
		return -1;
	neighbor.address = "2001:db8:c::2";
	if (put("Neighbor", "peer6", &neighbor))
		return -1;
	route.next_hops = hops;
	route.n_next_hops = 1;
	route.prefix = "0.0.0.0/0";
	hop.address = "192.0.2.2";
	if (put("Route", "out4", &route))
		return -1;
	route.prefix = "::/0";
	hop.address = "2001:db8:c::2";
	return put("Route", "out6", &route);
}

// ---- Packets: each function writes at `at` and returns the end.

static inline uint8_t *
write_word(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
	return at + 2;
}

// From the subscriber whose frames these are, with both tags.
static inline uint8_t *
write_access(uint8_t *at, uint16_t outer, uint16_t inner, uint16_t type)
{
	static const uint8_t addresses[12] = {2, 0, 0, 0, 0, 1, 2, 1, 0, 0, 0, 9};

	memcpy(at, addresses, sizeof(addresses));
	at = write_word(write_word(at + sizeof(addresses), 0x8100), outer);
	at = write_word(write_word(at, 0x8100), inner);
	return write_word(at, type);
}

// From the peer on the core side.
static inline uint8_t *
write_core(uint8_t *at, uint16_t type)
{
	static const uint8_t addresses[12] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 1, 2};

	memcpy(at, addresses, sizeof(addresses));
	return write_word(at + sizeof(addresses), type);
}

static inline uint8_t *
write_ip4(uint8_t *at, const char *from, const char *to, unsigned payload)
{
	struct ip4_header ip = {.version_ihl = 0x45,
		.total_length = htons((uint16_t)(sizeof(ip) + payload)),
		.ttl = 64,
		.protocol = PROTOCOL_UDP};
	uint8_t address[4];

	inet_pton(AF_INET, from, address);
	memcpy(&ip.source, address, sizeof(address));
	inet_pton(AF_INET, to, address);
	memcpy(&ip.destination, address, sizeof(address));
	ip.checksum = ip4_checksum(&ip);
	memcpy(at, &ip, sizeof(ip));
	return at + sizeof(ip);
}

static inline uint8_t *
write_ip6(uint8_t *at, const char *from, const char *to, unsigned payload)
{
	struct ip6_header ip = {.version_class_flow = htonl(6u << 28),
		.payload_length = htons((uint16_t)payload),
		.next_header = PROTOCOL_UDP,
		.hop_limit = 64};

	inet_pton(AF_INET6, from, ip.source);
	inet_pton(AF_INET6, to, ip.destination);
	memcpy(at, &ip, sizeof(ip));
	return at + sizeof(ip);
}

// Without a checksum.
static inline uint8_t *
write_udp(uint8_t *at, uint16_t from, uint16_t to, unsigned payload)
{
	at = write_word(write_word(at, from), to);
	return write_word(write_word(at, (uint16_t)(UDP + payload)), 0);
}

// IPv4, UDP and `payload` bytes from one host to another.
static inline uint8_t *
write_packet4(uint8_t *at, const char *from, const char *to, unsigned payload)
{
	at = write_udp(write_ip4(at, from, to, UDP + payload), 4000, 5000, payload);
	memset(at, 0x5a, payload);
	return at + payload;
}

static inline uint8_t *
write_packet6(uint8_t *at, const char *from, const char *to, unsigned payload)
{
	at = write_udp(write_ip6(at, from, to, UDP + payload), 4000, 5000, payload);
	memset(at, 0x5a, payload);
	return at + payload;
}

// IPv4 from the subscriber of these VLANs to a host on the internet.
static inline void
send_up(uint16_t outer, uint16_t inner, const char *from)
{
	uint8_t frame[256], *end;

	end = write_packet4(write_access(frame, outer, inner, 0x0800), from, "203.0.113.9", PAYLOAD);
	sent_count = 0;
	receive("access", frame, (size_t)(end - frame));
}

// And to a subscriber, not tunnelled.
static inline void
send_down(const char *to, unsigned payload)
{
	uint8_t frame[2048], *end;

	end = write_packet4(write_core(frame, 0x0800), "203.0.113.9", to, payload);
	sent_count = 0;
	receive("core", frame, (size_t)(end - frame));
}

// To a subscriber through a tunnel, as its UPF does.
static inline void
send_tunnelled(uint32_t teid, const char *to)
{
	enum { GTPU = 8, INNER = 20 + UDP + PAYLOAD };
	uint8_t frame[256], *at = write_core(frame, 0x0800);

	at = write_udp(write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + GTPU + INNER), 40000, 2152, GTPU + INNER);
	at = write_word(write_word(at, 0x30ff), INNER);
	at = write_word(write_word(at, (uint16_t)(teid >> 16)), (uint16_t)teid);
	at = write_packet4(at, "203.0.113.9", to, PAYLOAD);
	sent_count = 0;
	receive("core", frame, (size_t)(at - frame));
}
