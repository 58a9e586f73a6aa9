// SPDX-License-Identifier: Apache-2.0
// Packets that leave by an interface with one far end: decrement the TTL (RFC 1812 section 5.3.1, RFC 8200 section 3), and fragment or
// refuse packets that are too large. The output of the interface's type puts on the header.
#include "ip/point.h"

#include <stddef.h>
#include <string.h>

#include "core/drop.h"
#include "ether/interface.h"
#include "fib/connected.h"
#include "fib/hop.h"
#include "inet/describe.h"
#include "inet/header.h"
#include "ip/fragment.h"
#include "ip/icmp.h"
#include "ip/rewrite.h"

DROP(drop_expired, "ttl-expired-to-tunnel",
	"The TTL or hop limit of a packet that would leave by a tunnel was used up.")
DROP(drop_large, "tunnel-mtu",
	"A packet is larger than the MTU of the tunnel that it would leave by, and may not be fragmented.")

static uint16_t
too_large(struct packet *p, const void *at, uint16_t mtu)
{
	const struct ip4_header *ip = at;

	if (p->family == 6 || ip->fragment & RTE_BE16(IP4_DF))
		icmp_too_big_here(p, mtu);
	if (p->family == 4 && (ip->fragment & RTE_BE16(IP4_DF)))
		return packet_icmp_error(p, ICMP4_UNREACHABLE, ICMP4_FRAGMENTATION_NEEDED, mtu, &drop_large);
	if (p->family == 6 && !(p->flags & PACKET_OURS))
		return packet_icmp_error(p, ICMP6_TOO_BIG, 0, mtu, &drop_large);
	return packet_fragment(p, mtu, &ip_point_node);
}

// A packet that is larger than the MTU, and for which the output has a way.
static __rte_noinline bool
goes_whole(const struct packet *p, const struct hop *hop, const struct ip4_header *ip)
{
	const struct interface_type *type = interface_detail(hop->interface)->type;

	return p->family == 4 && !(ip->fragment & RTE_BE16(IP4_DF)) && type && type->takes_large &&
	       type->takes_large(interface_at(hop->interface)->own);
}

static inline uint8_t *
ttl_of(void *ip, uint8_t family)
{
	return (uint8_t *)ip +
	       (family == 4 ? offsetof(struct ip4_header, ttl) : offsetof(struct ip6_header, hop_limit));
}

static inline void
age(uint8_t *ttl, uint8_t family)
{
	uint32_t word;

	if (family != 4) {
		--*ttl;
		return;
	}
	memcpy(&word, ttl, sizeof(word));
	word = ip4_age(word, 1);
	memcpy(ttl, &word, sizeof(word));
}

static inline uint16_t
leave(struct rte_mbuf *m, struct packet *p, struct tx_run *run)
{
	const struct hop *hop = hop_at(p->hop);
	uint16_t mtu = __atomic_load_n(&hop->mtu, __ATOMIC_RELAXED);
	void *ip = rte_pktmbuf_mtod(m, void *);
	uint8_t *ttl = ttl_of(ip, p->family);

	if (unlikely((p->flags & PACKET_ROUTED) && *ttl <= 1))
		return packet_icmp_error(
			p, p->family == 4 ? ICMP4_TIME_EXCEEDED : ICMP6_TIME_EXCEEDED, 0, 0, &drop_expired);
	// Fragments come back here as the packet came, and are counted down then.
	if (unlikely(m->pkt_len > mtu) && !goes_whole(p, hop, ip))
		return too_large(p, ip, mtu);
	if (p->flags & PACKET_ROUTED)
		age(ttl, p->family);
	tx_run_add(run, hop->interface, m->pkt_len);
	return packet_step(p);
}

static void
point(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct tx_run run = tx_run_start();
	uint16_t next[BURST];

	for (uint16_t i = 0; i < count; i++)
		next[i] = leave(packets[i], packet_of(packets[i]), &run);
	tx_run_end(&run);
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
ip_point(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, point);
}

struct node ip_point_node = {.name = "ip-point",
	.process = ip_point,
	.describe = ip_describe,
	.edges = NODE_EDGES(&ip_fragment_node, &icmp_error_node),
	.steps = true};
NODE_REGISTER(ip_point_node)

RTE_INIT(register_point)
{
	connected_point_register(&ip_point_node);
}
