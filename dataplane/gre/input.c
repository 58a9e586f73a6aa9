// SPDX-License-Identifier: Apache-2.0
// From the UE: the GRE header has the QFI, and the user's packet continues in its session (TS 24.502 section 8.3.2).
#include <stdio.h>

#include <rte_prefetch.h>

#include "core/burst.h"
#include "core/drop.h"
#include "gre/gre.h"
#include "inet/header.h"
#include "ip/ecn.h"
#include "ip/frame_ecn.h"
#include "session/point.h"

enum { PREFETCH_DISTANCE = 8 };

DROP(drop_short, "gre-truncated", "A packet from a GRE tunnel that is shorter than its headers say.")
DROP(drop_ends, "gre-wrong-ends",
	"A packet from the IPsec tunnel of a GRE tunnel that is not GRE between its two ends, or has IP options, or is "
	"a "
	"fragment.")
DROP(drop_checksum, "gre-ip-checksum", "The IP header of a GRE packet has a wrong checksum.")
DROP(drop_header, "gre-header",
	"A GRE header without a key, with a checksum or a sequence number, or of another version: TS 24.502 section "
	"9.3.3 "
	"has none of them.")
DROP(drop_inner, "gre-inner-not-ip", "The inner packet of a GRE packet is neither IPv4 nor IPv6.")
DROP(drop_frame, "gre-inner-not-ethernet", "A GRE packet for a session of type Ethernet holds no frame.")
DROP(drop_session, "gre-no-session", "A packet from a GRE tunnel that no session has.")
DROP(drop_ecn, "gre-ecn-illegal",
	"A router marked a packet in a GRE tunnel as having met congestion, which its ends do not understand (RFC 6040 "
	"section 4.2).")

// Where GRE begins, and where the packet ends; 0 with the reason in `why`.
static inline unsigned
check4(const uint8_t *ip, uint32_t available, const struct gre_tunnel *t, uint32_t *end, const struct drop **why)
{
	const struct ip4_header *h = (const struct ip4_header *)ip;
	uint32_t local, remote;

	if (unlikely(available < sizeof(*h) + GRE_HEADER)) {
		*why = &drop_short;
		return 0;
	}
	*end = rte_be_to_cpu_16(h->total_length);
	if (unlikely(*end < sizeof(*h) + GRE_HEADER || *end > available)) {
		*why = &drop_short;
		return 0;
	}
	memcpy(&local, t->local, sizeof(local));
	memcpy(&remote, t->remote, sizeof(remote));
	if (unlikely((h->source ^ remote) | (h->destination ^ local) | (h->version_ihl ^ 0x45) |
		     (h->protocol ^ PROTOCOL_GRE) | (h->fragment & RTE_BE16(IP4_MF | IP4_OFFSET)) | (t->family ^ 4))) {
		*why = &drop_ends;
		return 0;
	}
	if (unlikely(checksum_fold(checksum_add(0, h, sizeof(*h))) != UINT16_MAX)) {
		*why = &drop_checksum;
		return 0;
	}
	return sizeof(*h);
}

static inline unsigned
check6(const uint8_t *ip, uint32_t available, const struct gre_tunnel *t, uint32_t *end, const struct drop **why)
{
	const struct ip6_header *h = (const struct ip6_header *)ip;

	if (unlikely(available < sizeof(*h) + GRE_HEADER)) {
		*why = &drop_short;
		return 0;
	}
	*end = (uint32_t)sizeof(*h) + rte_be_to_cpu_16(h->payload_length);
	if (unlikely(*end < sizeof(*h) + GRE_HEADER || *end > available)) {
		*why = &drop_short;
		return 0;
	}
	if (unlikely(t->family != 6 || h->next_header != PROTOCOL_GRE || memcmp(h->source, t->remote, 16) != 0 ||
		     memcmp(h->destination, t->local, 16) != 0)) {
		*why = &drop_ends;
		return 0;
	}
	return sizeof(*h);
}

static inline bool
header_is_whole(const uint8_t *ip, uint32_t length)
{
	return length >= (ip[0] >> 4 == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header));
}

// A frame begins right behind the GRE header.
static __rte_noinline uint16_t
take_frame(struct rte_mbuf *m, struct packet *p, uint32_t session, unsigned offset, uint32_t length, uint8_t class)
{
	uint8_t *gre = rte_pktmbuf_mtod_offset(m, uint8_t *, offset - GRE_HEADER), qfi = gre[4] & GRE_QFI;
	uint16_t edge;

	if (length < RTE_ETHER_HDR_LEN)
		return packet_drop(p, &drop_frame);
	if (unlikely(ecn_matters(class)) && !ecn_carry_into_frame(gre + GRE_HEADER, length, class))
		return packet_drop(p, &drop_ecn);
	m->data_off = (uint16_t)(m->data_off + offset);
	m->data_len = (uint16_t)length;
	m->pkt_len = length;
	edge = session_input_frame(m, p, session);
	p->qfi = qfi;
	p->flags = PACKET_QFI;
	return edge;
}

static inline uint16_t
take(struct rte_mbuf *m, struct packet *p)
{
	const struct gre_tunnel *t = gre_tunnel_at(p->detail);
	uint32_t session = __atomic_load_n(&t->session, __ATOMIC_ACQUIRE), end = 0;
	uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *), *gre, *inner, class, qfi;
	const struct drop *why = NULL;
	unsigned at;
	uint16_t edge;

	if (likely(ip[0] >> 4 == 4)) {
		at = check4(ip, m->data_len, t, &end, &why);
		class = m->data_len > 1 ? ip[1] : 0;
	} else {
		at = check6(ip, m->data_len, t, &end, &why);
		class = m->data_len > 1 ? ip_traffic_class(ip, 6) : 0;
	}
	if (unlikely(at == 0))
		return packet_drop(p, why);
	gre = ip + at;
	inner = gre + GRE_HEADER;
	// The protocol type is ignored (TS 24.502 table 9.3.3-2).
	if (unlikely((gre[0] & GRE_MUST_MATCH) != GRE_KEY || (gre[1] & GRE_VERSION) != 0))
		return packet_drop(p, &drop_header);
	end -= at + GRE_HEADER;
	if (unlikely(t->frames) && session != NO_SESSION)
		return take_frame(m, p, session, at + GRE_HEADER, end, class);
	if (unlikely(end == 0 || (inner[0] >> 4 != 4 && inner[0] >> 4 != 6)))
		return packet_drop(p, &drop_inner);
	if (unlikely(session == NO_SESSION))
		return packet_drop(p, &drop_session);
	if (unlikely(ecn_matters(class)) && header_is_whole(inner, end) &&
		!ecn_carry_inwards(inner, inner[0] >> 4, class))
		return packet_drop(p, &drop_ecn);
	qfi = gre[4] & GRE_QFI;
	m->data_off = (uint16_t)(m->data_off + at + GRE_HEADER);
	m->data_len = (uint16_t)end;
	m->pkt_len = end;
	edge = session_input(m, p, session);
	p->qfi = qfi;
	p->flags = PACKET_QFI;
	return edge;
}

static void
gre_input_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (uint16_t i = 0; i < RTE_MIN(count, PREFETCH_DISTANCE); i++)
		rte_prefetch0(gre_tunnel_at(packet_of(packets[i])->detail));
	for (uint16_t i = 0; i < count; i++) {
		if (i + PREFETCH_DISTANCE < count)
			rte_prefetch0(gre_tunnel_at(packet_of(packets[i + PREFETCH_DISTANCE])->detail));
		next[i] = take(packets[i], packet_of(packets[i]));
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
gre_input(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, gre_input_burst);
}

static void
gre_input_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	size_t at = length > 0 && data[0] >> 4 == 6 ? sizeof(struct ip6_header) : sizeof(struct ip4_header);

	if (length < at + GRE_HEADER)
		snprintf(text, size, "GRE tunnel %s: truncated", gre_name(p->detail));
	else
		snprintf(text, size, "GRE tunnel %s, QFI %u", gre_name(p->detail), data[at + 4] & GRE_QFI);
}

struct node gre_input_node = {.name = "gre-input",
	.process = gre_input,
	.describe = gre_input_describe,
	.edges = NODE_EDGES(&ip4_input_node, &ip6_input_node, &session_frames_up_node)};
NODE_REGISTER(gre_input_node)
