// What comes to our UDP port 2152 (TS 29.281): G-PDUs to their sessions, by our end and TEID; the other messages to whom they
// concern. In: an IP packet for us, whole. Out: the inner packet, its header not checked yet, with the chain {session-down}.
//
// A G-PDU is accepted from any sender, as section 4.3.1 has it: a UPF may send from another address than it receives at.
#include <stdio.h>
#include <string.h>

#include <rte_ip.h>
#include <rte_prefetch.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/punt.h"
#include "core/worker.h"
#include "gtpu/reflect.h"
#include "gtpu/signal.h"
#include "gtpu/tunnel.h"
#include "ip/header.h"
#include "ip/hop.h"

enum { SIGNALS_A_SECOND = 1000, UDP_CHECKSUM = 6, PART = 64 };

DROP(drop_short, "gtpu-truncated", "A GTP-U packet that is shorter than its IP, UDP or GTP-U header says.")
DROP(drop_checksum, "gtpu-udp-checksum", "The UDP checksum of a GTP-U packet is wrong.")
DROP(drop_version, "gtpu-version", "A packet for the GTP-U port that is not GTP version 1, or is GTP'.")
DROP(drop_bad_extension, "gtpu-extension-malformed",
	"A GTP-U packet with an extension header that has no length or no sense.")
DROP(drop_type, "gtpu-message-type", "A GTP-U message of a type that nothing here takes.")
DROP(drop_inner, "gtpu-inner-not-ip", "What was in the tunnel is neither IPv4 nor IPv6.")
DROP(drop_frame, "gtpu-inner-not-ethernet", "What was in the tunnel of a session of type Ethernet is no frame.")
DROP(drop_destination, "gtpu-wrong-destination",
	"A packet in a tunnel for an address that is not one of the session's.")

PUNT(punt_error_indication, "gtpu-error-indication", SIGNALS_A_SECOND, NULL)
PUNT(punt_end_marker, "gtpu-end-marker", SIGNALS_A_SECOND, NULL)

enum { G_PDU = UINT16_MAX }; // no edge yet: the TEID decides

// What is kept of a packet from the first look to the second.
struct arrival {
	uint16_t offset; // of the inner packet from the data
	uint16_t length; // of the inner packet
	uint8_t qfi;
	bool reflect;
};

// Our end that was found last: nearly always there is one.
struct last_end {
	uint32_t number;
	uint16_t vrf;
	uint8_t family;
	uint8_t address[16];
};

static inline uint32_t
end_of(const uint8_t *ip, uint16_t vrf, struct last_end *last)
{
	uint8_t family = ip[0] >> 4;
	const uint8_t *address = family == 4 ? ip + offsetof(struct ip4_header, destination)
					     : ip + offsetof(struct ip6_header, destination);
	size_t length = family == 4 ? 4 : 16;

	if (likely(last->vrf == vrf && last->family == family &&
		    (family == 4 ? memcmp(last->address, address, 4) == 0 : memcmp(last->address, address, 16) == 0)))
		return last->number;
	last->vrf = vrf;
	last->family = family;
	memcpy(last->address, address, length);
	last->number = gtpu_end_find(LOCAL_ENDS, vrf, family, address);
	return last->number;
}

// RFC 768, RFC 8200 section 8.1. No checksum is accepted over IPv6, too, as RFC 6935 allows for tunnels.
static __rte_noinline bool
checksum_good(const struct rte_mbuf *m, unsigned udp, uint16_t udp_length)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
	uint64_t flag = m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK, sum;
	uint16_t payload;

	if (flag == RTE_MBUF_F_RX_L4_CKSUM_GOOD)
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
refuse(struct packet *p, enum gtpu_verdict verdict)
{
	switch (verdict) {
	case GTPU_OTHER_VERSION:
		return packet_drop(p, &drop_version);
	case GTPU_BAD_EXTENSION:
		return packet_drop(p, &drop_bad_extension);
	case GTPU_UNKNOWN_EXTENSION:
		return gtpu_tell_unknown_extension(p);
	default:
		return packet_drop(p, &drop_short);
	}
}

// Whatever is not a usual G-PDU. Apart, as are the other rare ways, so that the usual one has the registers to itself.
static __rte_noinline uint16_t
unusual(struct rte_mbuf *m, struct packet *p, unsigned udp, uint16_t length, struct gtpu_packet *packet, uint32_t end)
{
	const uint8_t *bytes = rte_pktmbuf_mtod_offset(m, const uint8_t *, udp + UDP_HEADER);
	enum gtpu_verdict verdict = gtpu_parse(bytes, m->data_len - udp - UDP_HEADER, length, packet);
	uint32_t session;

	if (verdict != GTPU_FINE)
		return refuse(p, verdict);
	switch (packet->type) {
	case GTPU_G_PDU:
		return G_PDU;
	case GTPU_ECHO_REQUEST:
		return gtpu_echo(m, p, udp, packet->sequence);
	case GTPU_ECHO_RESPONSE:
		return gtpu_path_answer(p);
	case GTPU_ERROR_INDICATION:
		return packet_punt(p, &punt_error_indication);
	case GTPU_END_MARKER:
		session = map64_get(gtpu_teids, gtpu_teid_key(end, packet->teid));
		if (session == MAP64_NONE)
			return gtpu_tell_unknown_teid(p);
		p->session = session;
		p->direction = DOWN;
		return packet_punt(p, &punt_end_marker);
	default:
		return packet_drop(p, &drop_type);
	}
}

// The first look: what it is, and for a G-PDU its key.
static inline uint16_t
look(struct rte_mbuf *m, struct packet *p, struct arrival *a, uint64_t *key, struct last_end *last)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *), *udp;
	struct gtpu_packet packet;
	uint32_t end;
	uint16_t length, sum;
	unsigned at;

	*key = 0;
	if (likely(ip[0] == 0x45)) {
		at = sizeof(struct ip4_header);
		udp = ip + at;
		length = (uint16_t)(udp[4] << 8 | udp[5]);
		if (length < UDP_HEADER || at + length > m->pkt_len)
			return packet_drop(p, &drop_short);
		length = (uint16_t)(length - UDP_HEADER);
	} else {
		at = gtpu_find_udp(ip, m->data_len, m->pkt_len, &length);
		if (at == 0)
			return packet_drop(p, &drop_short);
		udp = ip + at;
	}
	memcpy(&sum, udp + UDP_CHECKSUM, sizeof(sum));
	if (sum != 0 && unlikely(!checksum_good(m, at, (uint16_t)(length + UDP_HEADER))))
		return packet_drop(p, &drop_checksum);
	if (unlikely(length < GTPU_HEADER || m->data_len < at + UDP_HEADER + GTPU_HEADER))
		return packet_drop(p, &drop_short);
	end = end_of(ip, p->vrf, last);
	if (unlikely(!gtpu_parse_usual(udp + UDP_HEADER, m->data_len - at - UDP_HEADER, length, &packet))) {
		// One of its own: what has an address lies in memory.
		struct gtpu_packet other;
		uint16_t next = unusual(m, p, at, length, &other, end);

		if (next != G_PDU)
			return next;
		packet = other;
	}
	*key = gtpu_teid_key(end, packet.teid);
	a->offset = (uint16_t)(at + UDP_HEADER + packet.offset);
	a->length = packet.length;
	a->qfi = packet.qfi;
	a->reflect = packet.reflect;
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

static __rte_noinline void
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

// Cut what lies behind the inner packet.
static inline void
trim(struct rte_mbuf *m, uint32_t length)
{
	if (likely(m->nb_segs == 1)) {
		m->data_len = (uint16_t)length;
		m->pkt_len = length;
		return;
	}
	// What is left over in later segments ip4-input and ip6-input cut by the inner header's length.
	if (length < m->pkt_len)
		rte_pktmbuf_trim(m, (uint16_t)(m->pkt_len - length));
}

static __rte_noinline uint16_t
deliver_frame(struct rte_mbuf *m, struct packet *p, const struct session *s, const struct arrival *a)
{
	p->flags &= (uint8_t)~PACKET_ROUTED;
	p->qfi = a->qfi;
	if (m->data_len < RTE_ETHER_HDR_LEN)
		return packet_drop(p, &drop_frame);
	if (a->reflect)
		learn(s, rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, a->qfi);
	return session_frames_down_node.id;
}

// The second look: the session is known.
static inline uint16_t
deliver(struct rte_mbuf *m, struct packet *p, uint32_t session, const struct arrival *a, uint64_t chain)
{
	const struct session *s = session_at(session);
	const uint8_t *ip;
	uint8_t family;

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
		if (unlikely(a->reflect))
			learn(s, ip, m->data_len, a->qfi);
	}
	return family == 4 ? ip4_input_node.id : ip6_input_node.id;
}

// Few enough that what the first look has read is still near for the second.
static inline void
gtpu_input_part(void **packets, uint16_t *next, uint16_t count, struct last_end *last, uint64_t chain)
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
		}
	for (uint16_t i = 0; i < count; i++) {
		struct packet *p = packet_of(packets[i]);

		if (unlikely(next[i] != G_PDU))
			continue;
		next[i] = likely(found[i] != MAP64_NONE) ? deliver(packets[i], p, found[i], &arrivals[i], chain)
							 : gtpu_tell_unknown_teid(p);
	}
}

static void
gtpu_input_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	const uint64_t chain = chain_of((const struct node *const[]){&session_down_node}, 1);
	struct last_end last = {.family = 0};
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

struct node gtpu_input_node = {.name = "gtpu-input", .process = gtpu_input, .describe = gtpu_input_describe};
NODE_REGISTER(gtpu_input_node)
