// SPDX-License-Identifier: Apache-2.0
// To the UE: GRE with the packet's QFI and RQI in its key (TS 24.502 section 8.3.2), into the IPsec tunnel of the child SA that has the QFI.
//
// A frame begins right behind the GRE header. The DSCP of the IP header in front of GRE is that of the QoS flow if its flow profile has one, else the packet's
// own; ESP copies it.
#include <stdio.h>

#include <rte_prefetch.h>

#include "core/burst.h"
#include "core/drop.h"
#include "fib/hop.h"
#include "flow/flow.h"
#include "gre/gre.h"
#include "inet/field.h"
#include "inet/header.h"
#include "ip/ecn.h"
#include "ip/identification.h"
#include "ipsec/nodes.h"

enum { PREFETCH_DISTANCE = 8, HOP_LIMIT_OURS = 64, IP4_LENGTH = 2, IP4_ID = 4, IP4_CHECKSUM = 10 };

DROP(drop_child, "gre-no-child", "A packet to a UE whose QFI no child SA of the PDU session has.")
DROP(drop_loop, "gre-loop", "An outer packet is routed into tunnels again and again.")
DROP(drop_room, "gre-no-headroom", "There was no room in the buffer for the GRE header.")

// How many packets each worker sent: so many of its identifications are used.
static struct {
	uint32_t count;
} __rte_cache_aligned used[WORKER_MAX + 1];

// TS 24.502 figure 9.3.3-2; the protocol type is 0.
static inline void
write_gre(uint8_t *gre, uint8_t qfi, bool reflect)
{
	const uint8_t header[GRE_HEADER] = {GRE_KEY, 0, 0, 0, qfi, 0, 0, reflect ? GRE_RQI : 0};

	memcpy(gre, header, sizeof(header));
}

static inline void
write4(uint8_t *ip, const struct gre_tunnel *t, uint8_t class, uint16_t total, uint16_t identity)
{
	uint32_t sum = t->sum + ((uint32_t) class << 8) + rte_cpu_to_be_16(total) + identity;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	memcpy(ip, &(uint32_t){0x45}, sizeof(uint32_t));
	ip[1] = class;
	put16(ip + IP4_LENGTH, total);
	memcpy(ip + IP4_ID, &identity, sizeof(identity));
	memcpy(ip + IP4_ID + 2, &(uint32_t){(uint32_t)HOP_LIMIT_OURS << 16 | (uint32_t)PROTOCOL_GRE << 24}, 4);
	memcpy(ip + IP4_CHECKSUM, &(uint16_t){(uint16_t)~sum}, sizeof(uint16_t));
	memcpy(ip + offsetof(struct ip4_header, source), t->local, 4);
	memcpy(ip + offsetof(struct ip4_header, destination), t->remote, 4);
}

static inline void
write6(uint8_t *ip, const struct gre_tunnel *t, uint8_t class, uint16_t payload)
{
	struct ip6_header h = {.version_class_flow = rte_cpu_to_be_32(6u << 28 | (uint32_t) class << 20),
		.payload_length = rte_cpu_to_be_16(payload),
		.next_header = PROTOCOL_GRE,
		.hop_limit = HOP_LIMIT_OURS};

	memcpy(h.source, t->local, 16);
	memcpy(h.destination, t->remote, 16);
	memcpy(ip, &h, sizeof(h));
}

// The hop of the child SA that has the QFI; 0: there is none.
static __rte_noinline uint32_t
choose(const struct gre_tunnel *t, uint8_t qfi)
{
	const struct gre_ways *ways = __atomic_load_n(&t->ways, __ATOMIC_ACQUIRE);
	uint8_t child = ways ? ways->of_qfi[qfi] : GRE_NO_CHILD;

	return child < GRE_CHILDREN ? ways->hops[child] : 0;
}

static inline uint16_t
wrap(struct rte_mbuf *m, struct packet *p, uint32_t *identities)
{
	const struct gre_tunnel *t = gre_tunnel_at(gre_of_session[p->session]);
	uint8_t *ip, qfi = p->qfi & GRE_QFI, class;
	uint32_t hop = __atomic_load_n(&t->hop, __ATOMIC_ACQUIRE);
	unsigned header = t->family == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header);
	struct flow_mark mark;

	if (unlikely(!packet_may_wrap(p)))
		return packet_drop(p, &drop_loop);
	if (unlikely(hop == 0))
		hop = choose(t, qfi);
	if (unlikely(hop == 0))
		return packet_drop(p, &drop_child);
	rte_prefetch0(hop_at(hop));
	if (unlikely(!packet_make_room(m, header + GRE_HEADER)))
		return packet_drop(p, &drop_room);
	ip = rte_pktmbuf_mtod(m, uint8_t *);
	// A frame has none of its own.
	class = likely(p->family != 0) ? ip_traffic_class(ip, p->family) : 0;
	if (p->flags & packet_flow.mask) {
		mark = flow_mark_of(p->session, qfi);
		if (mark.dscp >= 0)
			class = (uint8_t)(mark.dscp << 2 | (class & ECN_MASK));
	}
	write_gre(ip - GRE_HEADER, qfi, p->flags & PACKET_REFLECT_QOS);
	packet_advance(m, -(int)(header + GRE_HEADER));
	ip -= header + GRE_HEADER;
	if (likely(t->family == 4))
		write4(ip, t, class, (uint16_t)m->pkt_len, (uint16_t)identification((*identities)++));
	else
		write6(ip, t, class, (uint16_t)(m->pkt_len - header));
	p->hop = hop;
	p->family = t->family;
	packet_wrap(p);
	return esp_encrypt_node.id;
}

static void
gre_output_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint32_t *identities = &used[worker_self()->index].count;
	uint16_t next[BURST];

	for (uint16_t i = 0; i < RTE_MIN(count, PREFETCH_DISTANCE); i++)
		rte_prefetch0(gre_tunnel_at(gre_of_session[packet_of(packets[i])->session]));
	for (uint16_t i = 0; i < count; i++) {
		if (i + PREFETCH_DISTANCE < count)
			rte_prefetch0(
				gre_tunnel_at(gre_of_session[packet_of(packets[i + PREFETCH_DISTANCE])->session]));
		next[i] = wrap(packets[i], packet_of(packets[i]), identities);
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
gre_output(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, gre_output_burst);
}

static void
gre_output_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	snprintf(text, size, "GRE tunnel %s, QFI %u%s", gre_name(gre_of_session[p->session]), p->qfi & GRE_QFI,
		p->flags & PACKET_REFLECT_QOS ? ", reflective" : "");
}

struct node gre_output_node = {.name = "gre-output",
	.process = gre_output,
	.describe = gre_output_describe,
	.edges = NODE_EDGES(&esp_encrypt_node)};
NODE_REGISTER(gre_output_node)
