// SPDX-License-Identifier: Apache-2.0
// Packets into tunnels: RFC 4303 section 3.3 (outbound processing), RFC 4301 section 5.1.2 (the outer header), RFC 6040 (its ECN field).
//
// A burst goes in parts, so that packets are still in the cache for the engine and for the step behind it. A part may hold packets of any
// mix of SAs.
#include <stdio.h>

#include <rte_ip.h>
#include <rte_memcpy.h>
#include <rte_prefetch.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/punt.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "inet/field.h"
#include "inet/header.h"
#include "ip/age.h"
#include "ip/ecn.h"
#include "ip/fragment.h"
#include "ip/icmp.h"
#include "ipsec/iv.h"
#include "ipsec/nodes.h"
#include "ipsec/room.h"
#include "ipsec/sa.h"
#include "ipsec/sa_events.h"
#include "ipsec/tunnel.h"
#include "session/mss.h"
#include "session/session.h"

DROP(drop_none, "ipsec-no-association", "A packet for a tunnel that has no outbound security association.")
DROP(drop_selector, "ipsec-selector", "A packet that no selector of its tunnel or security association has.")
DROP(drop_exhausted, "esp-sequence-exhausted", "The sequence numbers of an outbound security association are used up.")
DROP(drop_unsaved, "esp-sequence-unsaved",
	"A packet came before the sequence numbers of its security association were in the file that keeps them over a "
	"restart.")
DROP(drop_lifetime, "esp-lifetime", "A packet of a security association that is behind a hard lifetime.")
DROP(drop_room, "esp-no-room", "There is no room for the ESP header or trailer around a packet.")
DROP(drop_large, "esp-mtu", "A packet is larger than the path to its tunnel's peer takes, and may not be fragmented.")
DROP(drop_ends, "esp-transport-ends",
	"A packet for a security association in transport mode that is not between the ends of the association.")
DROP(drop_header, "esp-transport-header",
	"A fragment, or a packet with IPv6 extension headers, for a security association in transport mode.")
DROP(drop_ttl, "ttl-expired-to-core-tunnel",
	"The TTL or hop limit of a packet from a subscriber whose session has a tunnel as its core was used up.")
DROP(drop_loop, "esp-loop",
	"An outer packet is routed into tunnels again and again: the route to a tunnel's peer leads into the tunnel.")
DROP(drop_engine, "esp-engine", "The crypto engine could not encrypt a packet.")
DROP(drop_device, "esp-device-timeout",
	"The crypto device did not return a packet in time. It is given up, and other engines encrypt and decrypt.")

enum {
	WRAP = UINT16_MAX, // no edge yet
	PREFETCH = 8,
	FRONT_MAX =
		96, // bytes that are written before the packet: IP, UDP, ESP and IV, and the copied start of a header
	IP4_MIN_MTU = 68,
	IP6_MIN_MTU = 1280,
	IP4_LENGTH = 2,
	IP4_FRAGMENT = 6,
	IP4_CHECKSUM = 10,
	IP6_LENGTH = 4,
	UDP_LENGTH = 4,
	UDP_CHECKSUM = 6,
};

const uint8_t esp_padding[ESP_PAD_MAX] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
	23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50,
	51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78,
	79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104,
	105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126,
	127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148,
	149, 150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 161, 162, 163, 164, 165, 166, 167, 168, 169, 170,
	171, 172, 173, 174, 175, 176, 177, 178, 179, 180, 181, 182, 183, 184, 185, 186, 187, 188, 189, 190, 191, 192,
	193, 194, 195, 196, 197, 198, 199, 200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 211, 212, 213, 214,
	215, 216, 217, 218, 219, 220, 221, 222, 223, 224, 225, 226, 227, 228, 229, 230, 231, 232, 233, 234, 235, 236,
	237, 238, 239, 240, 241, 242, 243, 244, 245, 246, 247, 248, 249, 250, 251, 252, 253, 254, 255};

uint64_t esp_iv_secret[2];
struct esp_room esp_rooms[WORKER_MAX + 1];

// Where the tunnel of a packet comes from: a constant in each call of the functions below.
enum way {
	BY_HOP,    // the interface of packet->hop
	BY_ACCESS, // the access of packet->session
	BY_CORE,   // its core
	BY_POLICY, // the policy of packet->hop
};

static const struct node *const nodes[] = {[BY_HOP] = &esp_encrypt_node,
	[BY_ACCESS] = &esp_access_node,
	[BY_CORE] = &esp_core_node,
	[BY_POLICY] = &esp_policy_node};

static __rte_always_inline uint32_t
tunnel_index(const struct packet *p, enum way way)
{
	if (way == BY_ACCESS)
		return ipsec_access_tunnels[p->session];
	if (way == BY_CORE)
		return ipsec_core_tunnels[session_at(p->session)->core];
	return (uint32_t)hop_at(p->hop)->own[0];
}

// A tunnel with selectors, or with SAs that have some. NO_SA with the reason in packet->drop.
static __rte_noinline uint32_t
search(const struct rte_mbuf *m, struct packet *p, const struct ipsec_tunnel *t)
{
	const struct ipsec_choice *choice = __atomic_load_n(&t->choice, __ATOMIC_ACQUIRE);
	uint32_t out = __atomic_load_n(&t->out, __ATOMIC_ACQUIRE);
	struct ipsec_flow flow;

	p->drop = drop_selector.id;
	if (m->data_len < (p->family == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header)))
		return NO_SA;
	ipsec_flow_of(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, p->family, &flow);
	if (!ipsec_selectors_match(__atomic_load_n(&t->selectors, __ATOMIC_ACQUIRE), &flow, true))
		return NO_SA;
	for (uint32_t i = 0; choice && i < choice->count; i++)
		if (ipsec_selectors_match(
			    __atomic_load_n(&ipsec_sa_at(choice->sas[i])->selectors, __ATOMIC_ACQUIRE), &flow, true))
			return choice->sas[i];
	p->drop = drop_none.id;
	return choice ? NO_SA : out;
}

// Punts the packet to the service that negotiates, once a second for each tunnel.
static void
acquire(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	struct ipsec_flow flow;

	if (m->data_len >= (p->family == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header))) {
		ipsec_flow_of(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, p->family, &flow);
		ipsec_send_acquire((uint32_t)p->detail, &flow);
	}
	drop_now(m, &drop_none);
}

PUNT(punt_acquire, "ipsec-acquire", 1000, acquire)

static __rte_noinline uint16_t
ask(struct packet *p, uint32_t tunnel)
{
	struct ipsec_tunnel *t = ipsec_tunnel_at(tunnel);
	uint32_t second = worker_second();

	if (p->drop != drop_none.id || t->asked == second)
		return drop_node.id;
	t->asked = second;
	p->detail = tunnel;
	return packet_punt(p, &punt_acquire);
}

static inline uint32_t
find(const struct rte_mbuf *m, struct packet *p, const struct ipsec_tunnel *t)
{
	uint32_t sa;

	if (unlikely(__atomic_load_n(&t->choice, __ATOMIC_ACQUIRE) || t->selectors))
		return search(m, p, t);
	sa = __atomic_load_n(&t->out, __ATOMIC_ACQUIRE);
	if (unlikely(sa == NO_SA))
		p->drop = drop_none.id;
	return sa;
}

// Whether the packet is encrypted whole, and the outer one is cut: a selector needs ports, which only the first fragment has (RFC 4301 section 7).
static bool
goes_whole(const struct ip4_header *ip, const struct packet *p, const struct ipsec_sa *sa)
{
	return p->family == 4 && !(ip->fragment & RTE_BE16(IP4_MF | IP4_OFFSET)) &&
	       !(sa->flags & (SA_SET_DF | SA_TRANSPORT)) && ipsec_tunnel_needs_ports(sa->tunnel);
}

// The slow path: the packet has several segments, has no room around it, or is too large for the path. A packet that is too large is fragmented
// before encryption, so that the peer need not reassemble it, or its sender gets an ICMP error.
static __rte_noinline uint16_t
consider(struct rte_mbuf *m, struct packet *p, const struct ipsec_sa *sa, unsigned tail, const struct node *self)
{
	const struct ip4_header *ip = rte_pktmbuf_mtod(m, const struct ip4_header *);
	unsigned room = ipsec_sa_room(sa, __atomic_load_n(&sa->path_mtu, __ATOMIC_RELAXED));

	// RFC 8200 section 5: a link takes IPv6 packets of 1,280 bytes. Where ESP leaves less room, the outer packet of one is cut, and nobody is
	// told of a smaller size.
	if (p->family == 6)
		room = RTE_MAX(room, (unsigned)IP6_MIN_MTU);
	if (m->pkt_len > room) {
		if (room < IP4_MIN_MTU)
			return packet_drop(p, &drop_large);
		if (p->family == 4 && (ip->fragment & RTE_BE16(IP4_DF)))
			return packet_icmp_error(
				p, ICMP4_UNREACHABLE, ICMP4_FRAGMENTATION_NEEDED, (uint16_t)room, &drop_large);
		if (p->family == 6 && !(p->flags & PACKET_OURS))
			return packet_icmp_error(p, ICMP6_TOO_BIG, 0, (uint16_t)room, &drop_large);
		if (!goes_whole(ip, p, sa))
			return packet_fragment(p, (uint16_t)room, self);
	}
	if (m->nb_segs > 1 && rte_pktmbuf_linearize(m))
		return packet_drop(p, &drop_room);
	// A packet that has headers of another tunnel already.
	if (!packet_make_room(m, FRONT_MAX) || rte_pktmbuf_tailroom(m) < tail)
		return packet_drop(p, &drop_room);
	return WRAP;
}

// A hard limit on bytes. False: the SA ends.
static inline bool
within_bytes(struct ipsec_sa *sa, uint32_t bytes)
{
	uint64_t used = __atomic_add_fetch(&sa->bytes, bytes, __ATOMIC_RELAXED);

	if (likely(used <= sa->hard_bytes))
		return true;
	__atomic_store_n(&sa->last, 0, __ATOMIC_RELAXED);
	__atomic_or_fetch(&sa->events, SA_DEAD, __ATOMIC_RELAXED);
	return false;
}

static __rte_noinline uint16_t
stop(struct packet *p, struct ipsec_sa *sa)
{
	if (__atomic_load_n(&sa->events, __ATOMIC_RELAXED) & SA_DEAD)
		return packet_drop(p, &drop_lifetime);
	if (__atomic_load_n(&sa->last, __ATOMIC_RELAXED) < __atomic_load_n(&sa->limit, __ATOMIC_RELAXED))
		return packet_drop(p, &drop_unsaved);
	if (!(__atomic_load_n(&sa->events, __ATOMIC_RELAXED) & SA_EXHAUSTED))
		__atomic_or_fetch(&sa->events, SA_EXHAUSTED, __ATOMIC_RELAXED);
	return packet_drop(p, ipsec_sa_ends_by_packets(sa) ? &drop_lifetime : &drop_exhausted);
}

// The sequence number of a packet with so many bytes inside, or 0: stop().
static __rte_always_inline uint64_t
claim_sequence(struct ipsec_sa *sa, bool shared, uint32_t bytes)
{
	uint64_t sequence = shared ? __atomic_add_fetch(&sa->sequence, 1, __ATOMIC_RELAXED) : ++sa->sequence;

	if (unlikely(sequence > __atomic_load_n(&sa->last, __ATOMIC_RELAXED)))
		return 0;
	return unlikely(sa->flags & SA_LIMITED) && !within_bytes(sa, bytes) ? 0 : sequence;
}

// The trailer, the ESP header behind the SPI, and the operation for the engine. `inner` bytes at `data` are encrypted, with `pad` bytes.
static __rte_always_inline void
seal(const struct ipsec_sa *sa, struct rte_mbuf *m, uint8_t *data, uint32_t inner, uint32_t pad, uint8_t next_header,
	uint64_t sequence, struct crypto_op *op)
{
	uint32_t iv_length = sa->iv_length;
	uint8_t *esp = data - iv_length - ESP_HEADER, *end = data + inner;
	uint64_t iv = sa->iv ^ sequence;

	// A word at a time. Bytes behind the data are written afterwards.
	if (likely(pad <= 4))
		memcpy(end, esp_padding, 4);
	else
		memcpy(end, esp_padding, pad);
	end[pad] = (uint8_t)pad;
	end[pad + 1] = next_header;
	esp_write_32(esp + 4, (uint32_t)sequence);
	if (likely(iv_length == sizeof(iv)))
		memcpy(esp + ESP_HEADER, &iv, sizeof(iv));
	else if (sa->flags & SA_RANDOM_IV)
		iv_unpredictable(esp + ESP_HEADER, sa->iv, sequence);

	op->key = sa->key;
	op->data = data;
	op->icv = end + pad + ESP_TRAILER;
	op->iv = esp + ESP_HEADER;
	op->aad = esp;
	op->packet = m;
	op->length = inner + pad + ESP_TRAILER;
	op->aad_length = (uint16_t)(sa->flags & SA_HMAC ? ESP_HEADER + iv_length : ESP_HEADER);
	op->esn = sa->flags & SA_ESN;
	op->esn_high = rte_cpu_to_be_32((uint32_t)(sequence >> 32));
}

// The outer header, but for UDP's checksum over IPv6.
static inline void
write_outer(uint8_t *outer, const struct ipsec_sa *sa, const uint8_t *inner, uint8_t family, uint32_t total,
	uint64_t sequence, unsigned which)
{
	uint8_t class = ip_traffic_class(inner, family);
	uint32_t word, sum;
	uint16_t fragment, identity;
	unsigned ip;

	if (unlikely(sa->flags & SA_SET_DSCP))
		class = (uint8_t)((class & ECN_MASK) | sa->dscp);
	if (unlikely(sa->flags & SA_CLEAR_ECN))
		class = (uint8_t)(class & ~ECN_MASK);
	if (likely(sa->family == 4)) {
		// RFC 6864: unique for the ends and the protocol as long as a packet lives, as far as 16 bits go.
		identity = rte_cpu_to_be_16((uint16_t)(sequence + rte_be_to_cpu_32(sa->spi) * 0x9e37));
		if (family == 4)
			memcpy(&fragment, inner + IP4_FRAGMENT, sizeof(fragment));
		else
			fragment = RTE_BE16(IP4_DF);
		if (unlikely(sa->flags & (SA_SET_DF | SA_CLEAR_DF)))
			fragment = sa->flags & SA_SET_DF ? RTE_BE16(IP4_DF) : 0;
		fragment &= RTE_BE16(IP4_DF);
		sum = sa->sums[which] + ((uint32_t) class << 8) + rte_cpu_to_be_16((uint16_t)total) + identity +
		      fragment;
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		outer[1] = class;
		put16(outer + IP4_LENGTH, (uint16_t)total);
		memcpy(outer + 4, &identity, sizeof(identity));
		memcpy(outer + IP4_FRAGMENT, &fragment, sizeof(fragment));
		memcpy(outer + IP4_CHECKSUM, &(uint16_t){(uint16_t)~sum}, sizeof(uint16_t));
		ip = sizeof(struct ip4_header);
	} else {
		memcpy(&word, outer, sizeof(word));
		word |= rte_cpu_to_be_32((uint32_t) class << 20);
		memcpy(outer, &word, sizeof(word));
		put16(outer + IP6_LENGTH, (uint16_t)(total - sizeof(struct ip6_header)));
		ip = sizeof(struct ip6_header);
	}
	if (sa->flags & SA_UDP)
		put16(outer + ip + UDP_LENGTH, (uint16_t)(total - ip));
}

// Writes the new headers and fills in the operation for the engine; or returns an edge.
static __rte_always_inline uint16_t
wrap(struct rte_mbuf *m, struct packet *p, struct ipsec_sa *sa, bool shared, enum way way, struct crypto_op *op)
{
	uint32_t inner = m->pkt_len, pad = -(inner + ESP_TRAILER) & (sa->align - 1u),
		 tail = pad + ESP_TRAILER + sa->icv_length, iv_length = sa->iv_length,
		 front = sa->front + 4u + iv_length, total = front + inner + tail;
	uint8_t *ip, family = p->family;
	unsigned which = __atomic_load_n(&sa->current, __ATOMIC_ACQUIRE);
	uint64_t sequence;
	uint16_t edge;

	if (unlikely(!packet_may_wrap(p)))
		return packet_drop(p, &drop_loop);
	if (unlikely(m->nb_segs > 1 || m->data_off < FRONT_MAX || rte_pktmbuf_tailroom(m) < tail ||
		     total > __atomic_load_n(&sa->path_mtu, __ATOMIC_RELAXED))) {
		edge = consider(m, p, sa, tail, nodes[way]);
		if (edge != WRAP)
			return edge;
	}
	ip = rte_pktmbuf_mtod(m, uint8_t *);
	// Fragments come back here as the packet came, and are counted down then.
	if ((way == BY_CORE || (way == BY_POLICY && p->flags & PACKET_ROUTED)) && unlikely(!ip_age(ip, family)))
		return packet_icmp_error(p, family == 4 ? ICMP4_TIME_EXCEEDED : ICMP6_TIME_EXCEEDED, 0, 0, &drop_ttl);
	sequence = claim_sequence(sa, shared, inner);
	if (unlikely(sequence == 0))
		return stop(p, sa);
	rte_mov64(ip - iv_length - ESP_HEADER + sizeof(sa->spi) - ESP_FRONT, sa->headers[which]);
	write_outer(ip - front, sa, ip, family, total, sequence, which);
	seal(sa, m, ip, inner, pad, family == 4 ? NEXT_IP4 : NEXT_IP6, sequence, op);

	m->data_off = (uint16_t)(m->data_off - front);
	m->data_len = (uint16_t)total;
	m->pkt_len = total;
	p->vrf = sa->vrf;
	p->family = sa->family;
	packet_wrap(p);
	return WRAP;
}

static inline bool
between_ends(const struct ipsec_sa *sa, const uint8_t *ip, uint8_t family, unsigned which)
{
	const uint8_t *outer = sa->headers[which] + ESP_FRONT - sa->front;

	if (family != sa->family)
		return false;
	return family == 4 ? memcmp(ip + offsetof(struct ip4_header, source),
				     outer + offsetof(struct ip4_header, source), 8) == 0
			   : memcmp(ip + offsetof(struct ip6_header, source),
				     outer + offsetof(struct ip6_header, source), 32) == 0;
}

// The length of the IP header of a packet that transport mode can take, or 0: a fragment, or IPv6 extension headers, some of which are for
// routers (RFC 4303 section 3.1.1).
static inline unsigned
plain_header(const uint8_t *ip, uint8_t family)
{
	const struct ip4_header *four = (const struct ip4_header *)ip;
	uint8_t next = ((const struct ip6_header *)ip)->next_header;

	if (family == 4)
		return four->fragment & RTE_BE16(IP4_MF | IP4_OFFSET) ? 0 : ip4_header_length(four);
	return next == PROTOCOL_HOP_BY_HOP || next == PROTOCOL_ROUTING || next == PROTOCOL_FRAGMENT ||
			       next == PROTOCOL_DESTINATION_OPTIONS
		       ? 0
		       : sizeof(struct ip6_header);
}

// As wrap(), in transport mode: the IP header moves to the front, and its payload is encrypted.
static __rte_noinline uint16_t
wrap_transport(struct rte_mbuf *m, struct packet *p, struct ipsec_sa *sa, bool shared, struct crypto_op *op)
{
	uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *), family = p->family, protocol;
	unsigned which = __atomic_load_n(&sa->current, __ATOMIC_ACQUIRE), header = plain_header(ip, family),
		 between = sa->flags & SA_UDP ? ESP_UDP_HEADER : 0;
	uint32_t shift = between + ESP_HEADER + sa->iv_length, inner, pad, tail, total;
	uint64_t sequence;

	if (!packet_may_wrap(p))
		return packet_drop(p, &drop_loop);
	if (!between_ends(sa, ip, family, which))
		return packet_drop(p, &drop_ends);
	if (header == 0)
		return packet_drop(p, &drop_header);
	inner = m->pkt_len - header;
	pad = -(inner + ESP_TRAILER) & (sa->align - 1u);
	tail = pad + ESP_TRAILER + sa->icv_length;
	total = header + shift + inner + tail;
	if (m->nb_segs > 1 && rte_pktmbuf_linearize(m))
		return packet_drop(p, &drop_room);
	if (total > UINT16_MAX || m->data_off < shift || rte_pktmbuf_tailroom(m) < tail)
		return packet_drop(p, &drop_room);
	sequence = claim_sequence(sa, shared, inner);
	if (unlikely(sequence == 0))
		return stop(p, sa);
	ip = rte_pktmbuf_mtod(m, uint8_t *);
	protocol = family == 4 ? ((struct ip4_header *)ip)->protocol : ((struct ip6_header *)ip)->next_header;
	memmove(ip - shift, ip, header);
	memcpy(ip + header - shift, sa->headers[which] + ESP_FRONT - sizeof(sa->spi) - between,
		between + sizeof(sa->spi));
	seal(sa, m, ip + header, inner, pad, protocol, sequence, op);

	ip -= shift;
	m->data_off = (uint16_t)(m->data_off - shift);
	m->data_len = (uint16_t)total;
	m->pkt_len = total;
	protocol = between ? PROTOCOL_UDP : PROTOCOL_ESP;
	if (between)
		put16(ip + header + UDP_LENGTH, (uint16_t)(total - header));
	if (family == 4) {
		struct ip4_header *h = (struct ip4_header *)ip;

		h->protocol = protocol;
		h->total_length = rte_cpu_to_be_16((uint16_t)total);
		h->checksum = 0;
		h->checksum = (uint16_t)~checksum_fold(checksum_add(0, ip, header));
	} else {
		((struct ip6_header *)ip)->next_header = protocol;
		((struct ip6_header *)ip)->payload_length = rte_cpu_to_be_16((uint16_t)(total - header));
	}
	p->vrf = sa->vrf;
	packet_wrap(p);
	return WRAP;
}

// RFC 6936: ESP in UDP over IPv6 has a checksum, as the receiver may not know that the packet is a tunnel's.
static __rte_noinline void
put_checksum6(const struct rte_mbuf *m)
{
	uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *), *udp = ip + sizeof(struct ip6_header);
	uint16_t checksum = rte_ipv6_udptcp_cksum((const struct rte_ipv6_hdr *)ip, udp);

	checksum = checksum ? checksum : UINT16_MAX;
	memcpy(udp + UDP_CHECKSUM, &checksum, sizeof(checksum));
}

// The gateway cuts the outer packet, as routers of the path must not or cannot.
static __rte_noinline uint16_t
cut_outer(struct rte_mbuf *m, struct packet *p, uint16_t path_mtu)
{
	struct ip4_header *ip = rte_pktmbuf_mtod(m, struct ip4_header *);

	if (p->family == 6)
		return packet_fragment(p, path_mtu, &ip6_lookup_node);
	ip->fragment = 0;
	ip->checksum = ip4_checksum(ip);
	return packet_fragment(p, path_mtu, &ip4_lookup_node);
}

static __rte_always_inline void
encrypt_part(void **packets, uint16_t *next, uint16_t count, bool shared, enum way way)
{
	struct esp_room *room = &esp_rooms[worker_self()->index];
	uint32_t sas[ESP_PART], tunnels[ESP_PART];
	uint32_t bytes[ESP_PART]; // of the packet inside
	uint16_t wide[ESP_PART];  // not 0: the path MTU of an outer packet that is larger
	uint8_t at[ESP_PART];
	unsigned works = 0;

	for (uint16_t i = 0; i < count; i++) {
		tunnels[i] = tunnel_index(packet_of(packets[i]), way);
		rte_prefetch0(ipsec_tunnel_at(tunnels[i]));
	}
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		const struct ipsec_tunnel *t = ipsec_tunnel_at(tunnels[i]);
		uint16_t mss = t->mss;

		sas[i] = find(m, packet_of(m), t);
		if (unlikely(mss))
			mss_clamp(rte_pktmbuf_mtod(m, uint8_t *), m->data_len, packet_of(m)->family, mss);
		if (sas[i] != NO_SA) {
			const struct ipsec_sa *sa = ipsec_sa_at(sas[i]);

			rte_prefetch0(sa);
			rte_prefetch0(&sa->sequence);
			rte_prefetch0(sa->headers[0]);
			rte_prefetch0(rte_pktmbuf_mtod_offset(m, uint8_t *, m->data_len));
		}
	}
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		struct ipsec_sa *sa;

		if (unlikely(sas[i] == NO_SA)) {
			next[i] = ask(p, tunnels[i]);
			continue;
		}
		sa = ipsec_sa_at(sas[i]);
		bytes[works] = m->pkt_len;
		next[i] = way == BY_POLICY && sa->flags & SA_TRANSPORT
				  ? wrap_transport(m, p, sa, shared, &room->ops[works])
				  : wrap(m, p, sa, shared, way, &room->ops[works]);
		if (likely(next[i] == WRAP)) {
			rte_prefetch0(sa->key);
			wide[works] = m->pkt_len > sa->path_mtu ? sa->path_mtu : 0;
			at[works++] = (uint8_t)i;
		} else if (next[i] == drop_node.id) {
			struct ipsec_sa_counters *c = ipsec_sa_counters_of(sas[i]);

			if (p->drop == drop_lifetime.id || p->drop == drop_exhausted.id)
				c->over_limit++;
			else
				c->other++;
		}
	}
	if (works)
		crypto_run(worker_self()->index, room->ops, works);
	for (unsigned w = 0; w < RTE_MIN(works, (unsigned)PREFETCH); w++)
		rte_prefetch0(ipsec_sa_counters_of(sas[at[w]]));
	for (unsigned w = 0; w < works; w++) {
		uint16_t i = at[w];
		struct packet *p = packet_of(packets[i]);
		struct ipsec_sa_counters *c = ipsec_sa_counters_of(sas[i]);

		if (w + PREFETCH < works)
			rte_prefetch0(ipsec_sa_counters_of(sas[at[w + PREFETCH]]));
		if (unlikely(room->ops[w].status != CRYPTO_OK)) {
			c->other++;
			next[i] =
				packet_drop(p, room->ops[w].status == CRYPTO_BAD_TIMEOUT ? &drop_device : &drop_engine);
			continue;
		}
		c->packets++;
		c->bytes += bytes[w];
		next[i] = p->family == 4 ? ip4_lookup_node.id : ip6_lookup_node.id;
		if (unlikely(p->family == 6 && ipsec_sa_at(sas[i])->flags & SA_UDP))
			put_checksum6(packets[i]);
		if (unlikely(wide[w]))
			next[i] = cut_outer(packets[i], p, wide[w]);
	}
}

static __rte_always_inline void
encrypt_all(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count, enum way way)
{
	uint16_t next[BURST];

	for (unsigned start = 0; start < count; start += ESP_PART) {
		uint16_t some = (uint16_t)RTE_MIN(count - start, (unsigned)ESP_PART);

		if (worker_count > 1)
			encrypt_part(packets + start, next + start, some, true, way);
		else
			encrypt_part(packets + start, next + start, some, false, way);
	}
	node_dispatch(graph, node, packets, next, count);
}

static void
encrypt_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	encrypt_all(graph, node, packets, count, BY_HOP);
}

static void
access_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	encrypt_all(graph, node, packets, count, BY_ACCESS);
}

static void
core_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	encrypt_all(graph, node, packets, count, BY_CORE);
}

static void
policy_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	encrypt_all(graph, node, packets, count, BY_POLICY);
}

static uint16_t
esp_encrypt(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, encrypt_burst);
}

static void
esp_encrypt_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	const struct hop *hop = hop_at(p->hop);
	uint32_t out = ipsec_tunnel_at((uint32_t)hop->own[0])->out;

	const struct object *tunnel = ipsec_tunnel_object((uint32_t)hop->own[0]);

	snprintf(text, size, "tunnel %s: outbound SA %s", tunnel ? tunnel->name : "?",
		out == NO_SA ? "none" : ipsec_sa_name(out));
}

static uint16_t
esp_access(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, access_burst);
}

static uint16_t
esp_core(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, core_burst);
}

static uint16_t
esp_policy(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, policy_burst);
}

static void
describe_session(char *text, size_t size, const struct packet *p, uint32_t tunnel)
{
	uint32_t out = ipsec_tunnel_at(tunnel)->out;

	snprintf(text, size, "session %s: outbound SA %s", session_name(p->session),
		out == NO_SA ? "none" : ipsec_sa_name(out));
}

static void
esp_access_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	describe_session(text, size, p, tunnel_index(p, BY_ACCESS));
}

static void
esp_core_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	describe_session(text, size, p, tunnel_index(p, BY_CORE));
}

static void
esp_policy_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	uint32_t index = tunnel_index(p, BY_POLICY), out = ipsec_tunnel_at(index)->out;
	const struct object *object = ipsec_tunnel_object(index);

	snprintf(text, size, "policy %s: outbound SA %s", object ? object->name : "?",
		out == NO_SA ? "none" : ipsec_sa_name(out));
}

static const struct node *const next_nodes[] = {
	&ip4_lookup_node, &ip6_lookup_node, &ip_fragment_node, &icmp_error_node, &punt_node, NULL};

struct node esp_policy_node = {
	.name = "esp-policy", .process = esp_policy, .describe = esp_policy_describe, .edges = next_nodes};
NODE_REGISTER(esp_policy_node)
struct node esp_access_node = {
	.name = "esp-access", .process = esp_access, .describe = esp_access_describe, .edges = next_nodes};
NODE_REGISTER(esp_access_node)
struct node esp_core_node = {
	.name = "esp-core", .process = esp_core, .describe = esp_core_describe, .edges = next_nodes};
NODE_REGISTER(esp_core_node)
struct node esp_encrypt_node = {
	.name = "esp-encrypt", .process = esp_encrypt, .describe = esp_encrypt_describe, .edges = next_nodes};
NODE_REGISTER(esp_encrypt_node)
