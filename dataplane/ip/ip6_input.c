// SPDX-License-Identifier: Apache-2.0
// Checks an IPv6 header from outside (RFC 8200 section 3, RFC 4291 section 2). In: the data at the header. Out: a step of the
// packet's chain, the data cut to the packet's length.
#include "core/burst.h"
#include "core/drop.h"
#include "fib/hop.h"
#include "fib/link_local.h"
#include "fib/local_address_source.h"
#include "fib/scope.h"
#include "fib/vrf.h"
#include "inet/describe.h"
#include "inet/header.h"
#include "ip/check.h"
#include "ip/icmp.h"
#include "ip/nodes.h"
#include "ip/subscriber.h"
#include "port/port.h"

DROP(drop_short, "ip6-truncated", "The frame ends before the IPv6 packet in it does, or within its header.")
DROP(drop_version, "ip6-version", "The packet's version is not 6 though its frame says IPv6.")
DROP(drop_jumbogram, "ip6-jumbogram",
	"The packet says that it has no payload but goes on: a jumbogram (RFC 2675), or damaged.")
DROP(drop_source, "ip6-martian-source",
	"The source is multicast, IPv4-mapped, the loopback address or, to a single host, unspecified.")
DROP(drop_own_source, "ip6-own-source",
	"The source is an address of ours or a network's anycast address (RFC 1812 section 5.3.7, RFC 4291 section "
	"2.6).")
DROP(drop_scope, "beyond-scope", "A packet with a link-local source would have left its link (RFC 4291 section 2.5.6).")

const struct drop *
ip6_check(struct rte_mbuf *m)
{
	const struct ip6_header *ip = rte_pktmbuf_mtod(m, const struct ip6_header *);

	if (m->data_len < sizeof(*ip))
		return &drop_short;
	if (*(const uint8_t *)ip >> 4 != 6)
		return &drop_version;
	if (sizeof(*ip) + rte_be_to_cpu_16(ip->payload_length) > m->pkt_len)
		return &drop_short;
	if (ip->payload_length == 0 && ip->next_header == PROTOCOL_HOP_BY_HOP)
		return &drop_jumbogram;
	if (ip6_is_multicast(ip->source) || ip6_is_loopback(ip->source) || ip6_is_mapped(ip->source))
		return &drop_source;
	// A host that has no address yet asks its neighbours (RFC 4861 section 4.3, RFC 3590).
	if (ip6_is_unspecified(ip->source) && !ip6_is_multicast(ip->destination))
		return &drop_source;
	return NULL;
}

// A packet from a link-local address stays on its link: it is for us or a group there (RFC 4291 section 2.5.6).
static uint16_t
from_link_local(struct packet *p, const struct ip6_header *ip)
{
	const struct fib *fib = vrf_fib(p->vrf, 6);
	const struct hop *hop;
	uint8_t own[16];

	if (p->port < PORT_MAX) {
		link_local_of(&ports[p->port].mac, own);
		if (memcmp(ip->source, own, sizeof(own)) == 0 || link_local_is_configured(p->interface, ip->source))
			return packet_drop(p, &drop_own_source);
	}
	hop = hop_at(fib ? fib6_lookup(fib, ip->destination) : NO_HOP);
	if (hop_forwards(hop) || hop->kind == HOP_SPREAD)
		return packet_icmp_error(p, ICMP6_UNREACHABLE, ICMP6_BEYOND_SCOPE, 0, &drop_scope);
	return packet_step(p);
}

static __rte_noinline uint16_t
examine(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	const struct ip6_header *ip = rte_pktmbuf_mtod(m, const struct ip6_header *);
	struct subscriber about = {.vrf = p->vrf};
	const struct drop *reason = ip6_check(m);

	p->family = 6;
	if (reason)
		return packet_drop(p, reason);
	ip_trim(m, (uint32_t)sizeof(*ip) + rte_be_to_cpu_16(ip->payload_length));
	if (p->session != NO_SESSION)
		subscribers->about(p->session, &about);
	else if (ip6_is_link_local(ip->source))
		return from_link_local(p, ip);
	// Packets of tunnels are not routed here.
	if (local_address_source_maybe(local_address_source_hash6(ip->source)) && !about.tunnelled &&
		p->direction != DOWN && local_address_source_is(about.vrf, 6, ip->source))
		return packet_drop(p, &drop_own_source);
	return packet_step(p);
}

// Sources that start with two bytes of zero (unspecified, loopback, mapped), those from fe80:: on (link-local, multicast), and those
// that may be ours.
static inline bool
special_source(const struct ip6_header *ip)
{
	uint16_t first;

	memcpy(&first, ip->source, sizeof(first));
	first = rte_be_to_cpu_16(first);
	return (uint16_t)(first - 1) >= 0xfe80 - 1 ||
	       local_address_source_near(local_address_source_hash6(ip->source)) != 0;
}

static void
check(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	static const struct ip6_header nothing;
	uint16_t next[BURST];

	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		unsigned length = m->data_len;
		// A short packet is not read.
		const struct ip6_header *ip =
			length >= sizeof(*ip) ? rte_pktmbuf_mtod(m, const struct ip6_header *) : &nothing;
		unsigned payload = rte_be_to_cpu_16(ip->payload_length);
		unsigned total = (unsigned)sizeof(*ip) + payload;

		if (unlikely((*(const uint8_t *)ip & 0xf0) != 0x60 || payload == 0 || total > length ||
			     m->nb_segs != 1 || special_source(ip))) {
			next[i] = examine(m);
			continue;
		}
		// Ethernet pads short packets.
		m->data_len = (uint16_t)total;
		m->pkt_len = total;
		p->family = 6;
		next[i] = packet_step(p);
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
ip6_input(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, check);
}

struct node ip6_input_node = {.name = "ip6-input",
	.process = ip6_input,
	.describe = ip_describe,
	.edges = NODE_EDGES(&icmp_error_node),
	.steps = true};
NODE_REGISTER(ip6_input_node)
