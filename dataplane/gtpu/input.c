// SPDX-License-Identifier: Apache-2.0
// Packets for UDP port 2152 (TS 29.281): G-PDUs go to their sessions, by our end and TEID; other messages to path management and
// signalling. In: a whole IP packet for us. Out: the inner packet, its header not checked yet, with the chain {session-down}.
//
// A G-PDU or an end marker is accepted from its tunnel's peer, and from the sources that the tunnel's spec lists: a UPF may send from other
// addresses than it receives at (section 4.3.1). An error indication is accepted from the peer of any path. An echo request from any
// host of the core is answered, as section 7.2.1 demands. Router advertisements and DHCPv6 answers in a tunnel go to the agent if it asks for them: it asks
// for the prefixes of a PDU session before there is a session, so the TEID may be unknown. No message is accepted from a subscriber's access: a guessed TEID would be enough.
#include <stdio.h>
#include <string.h>

#include <rte_ip.h>
#include <rte_prefetch.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/punt.h"
#include "core/worker.h"
#include "fib/hop.h"
#include "gtpu/reflect.h"
#include "gtpu/signal.h"
#include "gtpu/tunnel.h"
#include "inet/header.h"
#include "ip/ecn.h"
#include "ip/frame_ecn.h"
#include "ip/nodes.h"

INJECTED(ip6_input_node)

enum {
	SIGNALS_A_SECOND = 1000,
	ADVERTISEMENTS_A_SECOND = 10000, // of any UPF: one may have all subscribers
	UDP_CHECKSUM = 6,
	GTPU_TEID = 4,
	PART = 64,
	ROUTER_ADVERTISEMENT = 134, // RFC 4861 section 4.2
	DHCP6_CLIENT_PORT = 546,    // RFC 8415 section 7.2
};

DROP(drop_short, "gtpu-truncated", "A GTP-U packet that is shorter than its IP, UDP or GTP-U header says.")
DROP(drop_checksum, "gtpu-udp-checksum", "The UDP checksum of a GTP-U packet is wrong.")
DROP(drop_no_checksum, "gtpu-no-checksum",
	"A GTP-U message over IPv6 whose UDP checksum is 0 and that is no packet of a tunnel (RFC 6936 section 5).")
DROP(drop_version, "gtpu-version", "A packet for the GTP-U port that is not GTP version 1, or is GTP'.")
DROP(drop_bad_extension, "gtpu-extension-malformed",
	"A GTP-U packet with an extension header that has no length or no sense.")
DROP(drop_subscriber, "gtpu-from-subscriber",
	"A GTP-U packet for an address of ours that came from a subscriber's access.")
DROP(drop_peer, "gtpu-wrong-peer",
	"A GTP-U packet whose source is neither its tunnel's remote address nor one of its accepted sources.")
DROP(drop_unknown_peer, "gtpu-unknown-peer", "A GTP-U error indication from an address that no tunnel leads to.")
DROP(drop_type, "gtpu-message-type", "A GTP-U message of a type that nothing here takes.")
DROP(drop_inner, "gtpu-inner-not-ip", "The inner packet is neither IPv4 nor IPv6.")
DROP(drop_frame, "gtpu-inner-not-ethernet", "A G-PDU for a session of type Ethernet holds no frame.")
DROP(drop_ecn, "gtpu-ecn-illegal",
	"A router marked a packet in a tunnel as having met congestion, which its ends do not understand (RFC 6040 "
	"section 4.2).")
DROP(drop_destination, "gtpu-wrong-destination",
	"A packet in a tunnel for an address that is not one of the session's.")

PUNT(punt_error_indication, "gtpu-error-indication", SIGNALS_A_SECOND, NULL)
PUNT(punt_end_marker, "gtpu-end-marker", SIGNALS_A_SECOND, NULL)

static void take_configuration(struct rte_mbuf *m);

PUNT_EACH(punt_advertisement, "gtpu-router-advertisement", ADVERTISEMENTS_A_SECOND, ADVERTISEMENTS_A_SECOND,
	take_configuration)
PUNT_EACH(punt_dhcp6, "gtpu-dhcp6", ADVERTISEMENTS_A_SECOND, ADVERTISEMENTS_A_SECOND, take_configuration)

enum { G_PDU = UINT16_MAX }; // no edge yet: the TEID decides

// The state of a packet between the first look and the second.
struct arrival {
	uint16_t offset; // of the inner packet from the data
	uint16_t length; // of the inner packet
	uint8_t qfi;
	uint8_t rare;    // rare properties: ARRIVAL_...
	uint32_t source; // as gtpu_peers has it
};

enum { ARRIVAL_REFLECT = 1 << 0, ARRIVAL_ECN = 1 << 1 };

// Whether the outer header's ECN field has to be looked at (ecn_matters()).
static inline uint8_t
rare_ecn(uint8_t tos)
{
	return ecn_matters(tos) ? ARRIVAL_ECN : 0;
}

// An end that was found last: nearly always there is one of ours, and of peers' where IPv6 is outside.
struct last_end {
	uint32_t number;
	uint16_t vrf;
	uint8_t family;
	uint8_t address[16];
};

struct last_ends {
	struct last_end of[2]; // by enum gtpu_side
};

static inline uint32_t
find_end(enum gtpu_side side, const uint8_t *address, uint8_t family, uint16_t vrf, struct last_ends *ends)
{
	struct last_end *last = &ends->of[side];
	size_t length = family == 4 ? 4 : 16;

	if (likely(last->vrf == vrf && last->family == family &&
		    (family == 4 ? memcmp(last->address, address, 4) == 0 : memcmp(last->address, address, 16) == 0)))
		return last->number;
	last->vrf = vrf;
	last->family = family;
	memcpy(last->address, address, length);
	last->number = gtpu_end_find(side, vrf, family, address);
	return last->number;
}

static inline uint32_t
end_of(const uint8_t *ip, uint16_t vrf, struct last_ends *last)
{
	uint8_t family = ip[0] >> 4;
	size_t at = family == 4 ? offsetof(struct ip4_header, destination) : offsetof(struct ip6_header, destination);

	return find_end(LOCAL_ENDS, ip + at, family, vrf, last);
}

// Read sender and ECN of an outer header that is not a plain IPv4 header.
static __rte_noinline void
look_outside(const uint8_t *ip, uint16_t vrf, struct last_ends *last, struct arrival *a)
{
	a->rare = rare_ecn(ip_traffic_class(ip, ip[0] >> 4));
	if (ip[0] >> 4 == 4)
		memcpy(&a->source, ip + offsetof(struct ip4_header, source), sizeof(a->source));
	else
		a->source = find_end(REMOTE_ENDS, ip + offsetof(struct ip6_header, source), 6, vrf, last);
}

// Over IPv6, without a UDP checksum. `udp`: where its header is.
static bool
unchecked(const uint8_t *ip, unsigned udp)
{
	return ip[0] >> 4 == 6 && (ip[udp + UDP_CHECKSUM] | ip[udp + UDP_CHECKSUM + 1]) == 0;
}

static inline bool
from_peer(uint32_t session, uint32_t source, const uint8_t *ip)
{
	return likely(__atomic_load_n(&gtpu_peers[session], __ATOMIC_RELAXED) == source) || gtpu_accepts(session, ip);
}

// Its sender must be the peer of some tunnel.
static uint16_t
error_indication(struct rte_mbuf *m, struct packet *p)
{
	struct gtpu_ends ends;

	gtpu_ends_of(rte_pktmbuf_mtod(m, const uint8_t *), &ends);
	if (!gtpu_path_known(p->vrf, &ends))
		return packet_drop(p, &drop_unknown_peer);
	// The agent gets the outer packet.
	p->l2_length = 0;
	return packet_punt(p, &punt_error_indication);
}

static uint16_t
end_marker(struct rte_mbuf *m, struct packet *p, uint64_t key, uint32_t source)
{
	uint32_t session = map64_get(gtpu_teids, key);

	// Section 7.3.1: only a G-PDU is answered.
	if (session == MAP64_NONE)
		return gtpu_drop_unknown_teid(p);
	if (!from_peer(session, source, rte_pktmbuf_mtod(m, const uint8_t *)))
		return packet_drop(p, &drop_peer);
	p->session = session;
	p->direction = DOWN;
	return packet_punt(p, &punt_end_marker);
}

// RFC 768, RFC 8200 section 8.1.
static __rte_noinline bool
checksum_good(const struct rte_mbuf *m, unsigned udp, uint16_t udp_length)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
	uint64_t sum;
	uint16_t payload;

	if (packet_checksum_found(m, RTE_MBUF_F_RX_L4_CKSUM_MASK, RTE_MBUF_F_RX_L4_CKSUM_GOOD))
		return true;
	if (ip[0] >> 4 == 4) {
		sum = checksum_add(0, ip + offsetof(struct ip4_header, source), 8) + rte_cpu_to_be_16(udp_length) +
		      (uint64_t)RTE_BE16(PROTOCOL_UDP);
	} else {
		sum = ip6_pseudo_sum(ip + offsetof(struct ip6_header, source),
			ip + offsetof(struct ip6_header, destination), udp_length, PROTOCOL_UDP);
	}
	if (m->nb_segs == 1)
		payload = rte_raw_cksum(ip + udp, udp_length);
	else if (rte_raw_cksum_mbuf(m, udp, udp_length, &payload) != 0)
		return false;
	return checksum_fold(sum + payload) == 0xffff;
}

static uint16_t
refuse(struct rte_mbuf *m, struct packet *p, enum gtpu_verdict verdict)
{
	switch (verdict) {
	case GTPU_OTHER_VERSION:
		return packet_drop(p, &drop_version);
	case GTPU_BAD_EXTENSION:
		return packet_drop(p, &drop_bad_extension);
	case GTPU_UNKNOWN_EXTENSION:
		return gtpu_report_unknown_extension(m, p);
	default:
		return packet_drop(p, &drop_short);
	}
}

// All messages but usual G-PDUs. A function of its own, as for the other rare ways, so that the usual way has the registers to itself.
static __rte_noinline uint16_t
unusual(struct rte_mbuf *m, struct packet *p, unsigned udp, uint16_t length, struct gtpu_packet *packet, uint32_t end,
	const struct arrival *a)
{
	const uint8_t *bytes = rte_pktmbuf_mtod_offset(m, const uint8_t *, udp + UDP_HEADER);
	enum gtpu_verdict verdict = gtpu_parse(bytes, m->data_len - udp - UDP_HEADER, length, packet);

	// Without a checksum, addresses and port may be wrong. That is accepted for G-PDUs of a tunnel's peer (RFC 6935 section 5): the
	// TEID and the source must be right, and the inner packet has a checksum of its own. No other message is accepted or answered.
	if (unchecked(rte_pktmbuf_mtod(m, const uint8_t *), udp) &&
		(verdict == GTPU_UNKNOWN_EXTENSION || (verdict == GTPU_FINE && packet->type != GTPU_G_PDU)))
		return packet_drop(p, &drop_no_checksum);
	if (verdict != GTPU_FINE)
		return refuse(m, p, verdict);
	switch (packet->type) {
	case GTPU_G_PDU:
		return G_PDU;
	case GTPU_ECHO_REQUEST:
		return gtpu_echo(m, p, udp, packet->sequence);
	case GTPU_ECHO_RESPONSE:
		return gtpu_path_answer(p);
	case GTPU_ERROR_INDICATION:
		return error_indication(m, p);
	case GTPU_END_MARKER:
		return end_marker(m, p, gtpu_teid_key(end, packet->teid), a->source);
	default:
		return packet_drop(p, &drop_type);
	}
}

// The first look: the type of the message, and for a G-PDU its key.
static inline uint16_t
look(struct rte_mbuf *m, struct packet *p, struct arrival *a, uint64_t *key, struct last_ends *last)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *), *udp;
	struct gtpu_packet packet;
	uint32_t end;
	uint16_t length, sum;
	unsigned at;

	*key = 0;
	if (likely((ip[0] == 0x45) & (p->session == NO_SESSION))) {
		at = sizeof(struct ip4_header);
		udp = ip + at;
		length = (uint16_t)(udp[4] << 8 | udp[5]);
		if (length < UDP_HEADER || at + length > m->pkt_len)
			return packet_drop(p, &drop_short);
		length = (uint16_t)(length - UDP_HEADER);
		a->rare = rare_ecn(ip[1]);
		memcpy(&a->source, ip + offsetof(struct ip4_header, source), sizeof(a->source));
	} else {
		if (p->session != NO_SESSION)
			return packet_drop(p, &drop_subscriber);
		at = gtpu_find_udp(ip, m->data_len, m->pkt_len, &length);
		if (at == 0)
			return packet_drop(p, &drop_short);
		udp = ip + at;
		look_outside(ip, p->vrf, last, a);
	}
	memcpy(&sum, udp + UDP_CHECKSUM, sizeof(sum));
	if (sum != 0 && unlikely(!checksum_good(m, at, (uint16_t)(length + UDP_HEADER))))
		return packet_drop(p, &drop_checksum);
	if (unlikely(length < GTPU_HEADER || m->data_len < at + UDP_HEADER + GTPU_HEADER))
		return packet_drop(p, &drop_short);
	end = end_of(ip, p->vrf, last);
	if (unlikely(!gtpu_parse_usual(udp + UDP_HEADER, m->data_len - at - UDP_HEADER, length, &packet))) {
		// A variable of its own: the compiler puts variables with an address into memory.
		struct gtpu_packet other;
		uint16_t next = unusual(m, p, at, length, &other, end, a);

		if (next != G_PDU)
			return next;
		packet = other;
	}
	*key = gtpu_teid_key(end, packet.teid);
	a->offset = (uint16_t)(at + UDP_HEADER + packet.offset);
	a->length = packet.length;
	a->qfi = packet.qfi;
	a->rare |= packet.reflect ? ARRIVAL_REFLECT : 0;
	return G_PDU;
}

// An address of the session, or one that several hosts share and that is meant for the subscriber if it comes to it.
static inline bool
for_session(uint32_t session, const struct session *s, const uint8_t *ip, uint8_t family)
{
	uint32_t address4;

	if (family == 4) {
		const uint8_t *to = ip + offsetof(struct ip4_header, destination);

		memcpy(&address4, to, sizeof(address4));
		return likely(session_first4(s, address4)) || session_holds(session, 4, to) || to[0] >= 224;
	}
	const uint8_t *to = ip + offsetof(struct ip6_header, destination);

	return likely(session_first6(s, to)) || session_holds(session, 6, to) || ip6_is_multicast(to) ||
	       ip6_is_link_local(to);
}

static void
learn(const struct session *s, const uint8_t *inner, size_t length, uint8_t qfi)
{
	struct gtpu_tunnel *t = tunnel_at(__atomic_load_n(&s->core, __ATOMIC_ACQUIRE));
	uint64_t flow;
	uint32_t now;

	if (!(t->flags & TUNNEL_REFLECTIVE))
		return;
	flow = s->flags & SESSION_FRAMES ? reflect_frame(t->rules, inner, length, true)
					 : reflect_flow(t->rules, inner, length, true);
	if (flow == 0)
		return;
	now = worker_second();
	reflect_learn(flow, qfi, now);
	if (__atomic_load_n(&t->reflecting, __ATOMIC_RELAXED) != now)
		__atomic_store_n(&t->reflecting, now, __ATOMIC_RELAXED);
}

// Cut the bytes behind the inner packet.
static inline void
trim(struct rte_mbuf *m, uint32_t length)
{
	if (likely(m->nb_segs == 1)) {
		m->data_len = (uint16_t)length;
		m->pkt_len = length;
		return;
	}
	// ip4-input and ip6-input cut later segments by the inner header's length.
	if (length < m->pkt_len)
		rte_pktmbuf_trim(m, (uint16_t)(m->pkt_len - length));
}

// Apply ECN and RQI of the outer headers to the inner packet, or frame (family 0). False: it is dropped.
static __rte_noinline bool
deliver_rare(struct rte_mbuf *m, const struct session *s, const struct arrival *a, uint8_t family)
{
	uint8_t *inner = rte_pktmbuf_mtod(m, uint8_t *);
	const uint8_t *outer = inner - a->offset;

	if (a->rare & ARRIVAL_ECN) {
		uint8_t tos = ip_traffic_class(outer, outer[0] >> 4);

		if (family == 0 ? !ecn_carry_into_frame(inner, m->data_len, tos)
				: !ecn_carry_inwards(inner, family, tos))
			return false;
	}
	if (a->rare & ARRIVAL_REFLECT) {
		packet_of(m)->flags |= PACKET_REFLECT_QOS;
		learn(s, inner, m->data_len, a->qfi);
	}
	return true;
}

static __rte_noinline uint16_t
deliver_frame(struct rte_mbuf *m, struct packet *p, const struct session *s, const struct arrival *a)
{
	p->flags &= (uint8_t)~PACKET_ROUTED;
	p->qfi = a->qfi;
	if (m->data_len < RTE_ETHER_HDR_LEN)
		return packet_drop(p, &drop_frame);
	if (a->rare && !deliver_rare(m, s, a, 0))
		return packet_drop(p, &drop_ecn);
	return session_frames_down_node.id;
}

// A packet that configures a host of the link: a router advertisement, or an answer of a DHCPv6 server, to a link-local or multicast address.
static struct punt *
configuration(const uint8_t *ip, size_t length)
{
	const uint8_t *behind = ip + sizeof(struct ip6_header), *to = ip + offsetof(struct ip6_header, destination);

	if (length <= sizeof(struct ip6_header) || ip[0] >> 4 != 6 || !(ip6_is_multicast(to) || ip6_is_link_local(to)))
		return NULL;
	switch (ip[offsetof(struct ip6_header, next_header)]) {
	case PROTOCOL_ICMP6:
		return behind[0] == ROUTER_ADVERTISEMENT ? &punt_advertisement : NULL;
	case PROTOCOL_UDP:
		return length >= sizeof(struct ip6_header) + UDP_HEADER && behind[2] == DHCP6_CLIENT_PORT >> 8 &&
				       behind[3] == (DHCP6_CLIENT_PORT & 0xff)
			       ? &punt_dhcp6
			       : NULL;
	default:
		return NULL;
	}
}

// The same in a G-PDU, whose outer IP packet begins the buffer. `inner` is the offset of the inner packet.
static struct punt *
held_configuration(const struct rte_mbuf *m, unsigned *inner)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
	struct gtpu_packet packet;
	uint16_t length;
	unsigned udp = gtpu_find_udp(ip, m->data_len, m->pkt_len, &length);

	if (udp == 0 || gtpu_parse(ip + udp + UDP_HEADER, m->data_len - udp - UDP_HEADER, length, &packet) != GTPU_FINE)
		return NULL;
	*inner = udp + UDP_HEADER + packet.offset;
	return packet.type == GTPU_G_PDU && *inner < m->data_len ? configuration(ip + *inner, m->data_len - *inner)
								 : NULL;
}

// Main thread. Without an agent that asks for it, what is of a session is the subscriber's.
static void
take_configuration(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	unsigned inner;

	if (punt_watched(p)) {
		punt_to_watcher(m);
	} else if (p->session == NO_SESSION || !held_configuration(m, &inner)) {
		gtpu_answer_unknown_teid(m);
	} else {
		packet_advance(m, (int)inner);
		inject(m, &ip6_input_node);
	}
}

// The agent gets the outer packet, for the TEID.
static __rte_noinline uint16_t
configured(struct rte_mbuf *m, struct packet *p, const struct arrival *a, struct punt *punt)
{
	packet_advance(m, -(int)a->offset);
	return packet_punt(p, punt);
}

// Section 7.3.1: a G-PDU with an unknown TEID is answered by an error indication, unless the TEID is 0.
static __rte_noinline uint16_t
no_session(struct rte_mbuf *m, struct packet *p)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
	uint16_t length;
	unsigned udp = gtpu_find_udp(ip, m->data_len, m->pkt_len, &length), inner;
	struct punt *punt;

	if (udp == 0)
		return packet_drop(p, &drop_short);
	if (unchecked(ip, udp))
		return packet_drop(p, &drop_no_checksum);
	punt = held_configuration(m, &inner);
	if (punt) {
		p->l2_length = 0;
		return packet_punt(p, punt);
	}
	return gtpu_read_32(ip + udp + UDP_HEADER + GTPU_TEID) == 0 ? gtpu_drop_unknown_teid(p)
								    : gtpu_report_unknown_teid(m, p);
}

// The second look: the session is known.
static inline uint16_t
deliver(struct rte_mbuf *m, struct packet *p, uint32_t session, const struct arrival *a, uint32_t chain)
{
	const struct session *s = session_at(session);
	const uint8_t *ip;
	uint8_t family;

	if (unlikely(!from_peer(session, a->source, rte_pktmbuf_mtod(m, const uint8_t *))))
		return packet_drop(p, &drop_peer);
	p->session = session;
	p->direction = DOWN;
	packet_advance(m, a->offset);
	trim(m, a->length);
	p->l2_length = 0;
	if (unlikely(s->flags & SESSION_FRAMES))
		return deliver_frame(m, p, s, a);
	ip = rte_pktmbuf_mtod(m, const uint8_t *);
	family = m->data_len > 0 ? ip[0] >> 4 : 0;
	p->flags &= (uint8_t)~PACKET_ROUTED;
	p->qfi = a->qfi;
	p->chain = chain;
	if (unlikely(family != 4 && family != 6))
		return packet_drop(p, &drop_inner);
	// A packet that is shorter than its header is the next node's to drop.
	if (likely(m->data_len >= (family == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header)))) {
		if (unlikely(!for_session(session, s, ip, family)))
			return packet_drop(p, &drop_destination);
		if (family == 6 && unlikely(ip[offsetof(struct ip6_header, destination)] >= 0xfe)) {
			struct punt *punt = configuration(ip, m->data_len);

			if (punt && !session_is_link_of_core(session))
				return configured(m, p, a, punt);
		}
		if (unlikely(a->rare) && !deliver_rare(m, s, a, family))
			return packet_drop(p, &drop_ecn);
	}
	return family == 4 ? ip4_input_node.id : ip6_input_node.id;
}

// Few packets, so that the second look finds the data of the first in the cache.
static inline void
gtpu_input_part(void **packets, uint16_t *next, uint16_t count, struct last_ends *last, uint32_t chain)
{
	struct arrival arrivals[PART];
	uint64_t keys[PART];
	uint32_t found[PART];

	for (uint16_t i = 0; i < count; i++)
		next[i] = look(packets[i], packet_of(packets[i]), &arrivals[i], &keys[i], last);
	map64_get_bulk(gtpu_teids, keys, found, count);
	for (uint16_t i = 0; i < count; i++)
		if (found[i] != MAP64_NONE) {
			rte_prefetch0(session_at(found[i]));
			rte_prefetch0(&session_at(found[i])->down4);
			rte_prefetch0(&gtpu_peers[found[i]]);
		}
	for (uint16_t i = 0; i < count; i++) {
		struct packet *p = packet_of(packets[i]);

		if (unlikely(next[i] != G_PDU))
			continue;
		next[i] = likely(found[i] != MAP64_NONE) ? deliver(packets[i], p, found[i], &arrivals[i], chain)
							 : no_session(packets[i], p);
	}
}

static void
gtpu_input_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	const uint32_t chain = session_down_node.id;
	struct last_ends last = {.of[LOCAL_ENDS].family = 0};
	uint16_t next[BURST];

	for (uint16_t start = 0; start < count; start += PART)
		gtpu_input_part(packets + start, next + start, (uint16_t)RTE_MIN(count - start, PART), &last, chain);
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
gtpu_input(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, gtpu_input_burst);
}

static void
gtpu_input_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	struct gtpu_packet packet = {0};
	uint16_t payload;
	unsigned udp = gtpu_find_udp(data, length, UINT16_MAX, &payload);

	if (udp == 0) {
		snprintf(text, size, "not whole");
		return;
	}
	gtpu_parse(data + udp + UDP_HEADER, length - udp - UDP_HEADER, payload, &packet);
	snprintf(text, size, "message type %u, TEID %u, QFI %u%s, %u bytes inside", packet.type, packet.teid,
		packet.qfi, packet.reflect ? " reflective" : "", packet.length);
}

struct node gtpu_input_node = {.name = "gtpu-input",
	.process = gtpu_input,
	.describe = gtpu_input_describe,
	.edges = NODE_EDGES(&ip4_input_node, &ip6_input_node, &session_frames_down_node, &ip4_lookup_node,
		&ip6_lookup_node, &punt_node)};
NODE_REGISTER(gtpu_input_node)
