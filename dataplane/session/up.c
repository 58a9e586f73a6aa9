// SPDX-License-Identifier: Apache-2.0
// From the subscriber: check the source of its packets, and count them.
//
// The common case (a source within the record's prefix, the MAC and TPIDs as last time, a unicast destination) takes one
// cache line of the session and one of its counters. A second function handles the rest: further prefixes,
// DHCP and neighbour discovery before there is an address, another Ethernet address.
#include <stdio.h>
#include <string.h>

#include "core/burst.h"
#include "fib/hop.h"
#include "fib/vrf.h"
#include "inet/header.h"
#include "ip/nodes.h"
#include "neighbor/neighbor.h"
#include "session/record.h"

enum {
	IP4_MULTICAST = 224,
	IP6_LINK_LOCAL = 0xfe, // first byte of fe80::/10 and of the addresses above it: nothing else is in use there
	UDP_HEADER = 8,
	DHCP_SERVER = 67,
	UDP_PORT_AT = 22, // of the destination, behind an IPv4 header without options
	ND_FIRST = 133,   // router solicitation
	ND_LAST = 137,    // redirect
	SCOPE_LINK = 2,
	SCOPE_SITE = 5,         // All_DHCP_Servers, RFC 8415 section 7.1
	PREFETCH_DISTANCE = 32, // packets whose session's lines are on their way
};

DROP(drop_session_source, "session-source",
	"A packet from a subscriber whose source address is not one of the session's.")
DROP(drop_session_mac, "session-mac", "A packet of a session from another Ethernet address than the configured one.")
DROP(drop_session_mac_invalid, "session-mac-invalid",
	"A packet of a session from an Ethernet address that no subscriber has: all zeros, a group's, or the port's "
	"own.")

// RFC 2131 section 4.1: from a host without an address, or one that does not know its server's.
static bool
is_dhcp(const struct rte_mbuf *m, const struct ip4_header *ip)
{
	unsigned length = ip4_header_length(ip);
	const uint8_t *udp = (const uint8_t *)ip + length;

	return ip->protocol == PROTOCOL_UDP && m->data_len >= length + UDP_HEADER &&
	       (ip->fragment & RTE_BE16(IP4_OFFSET)) == 0 && udp[2] == 0 && udp[3] == DHCP_SERVER;
}

// Where any address of a subscriber's would do, it was none.
static const struct drop *
mac_reason(const struct session *s)
{
	bool learns = __atomic_load_n(&s->flags, __ATOMIC_ACQUIRE) & SESSION_LEARNS_MAC;

	return learns ? &drop_session_mac_invalid : &drop_session_mac;
}

// RFC 2131 section 4.4.5: a host renews its lease at its server by unicast. The server is here, and not at the far end of a tunnel.
static bool
is_for_our_server(const struct rte_mbuf *m, const struct packet *p, const struct ip4_header *ip)
{
	uint8_t address[16] = {0};

	memcpy(address, &ip->destination, sizeof(ip->destination));
	return session_details[p->session].has_core && is_dhcp(m, ip) && neighbor_is_ours(p, 4, address);
}

bool
session_is_link_of_core(uint32_t session)
{
	const struct session *s = session_at(session);
	const struct session_detail *d = &session_details[session];
	const uint8_t flags = __atomic_load_n(&s->flags, __ATOMIC_ACQUIRE);
	const struct session_prefixes *prefixes = __atomic_load_n(&d->prefixes, __ATOMIC_ACQUIRE);

	return d->has_core && (flags & SESSION_ANY_SOURCE) && (flags & SESSION_POINT) &&
	       (!prefixes || prefixes->count == 0);
}

static uint16_t
unusual4(struct rte_mbuf *m, struct packet *p, uint64_t seen)
{
	const struct ip4_header *ip = rte_pktmbuf_mtod(m, const struct ip4_header *);
	bool local = ip->source == 0 && ip->destination == UINT32_MAX && is_dhcp(m, ip);
	const struct session *s = session_at(p->session);
	bool of_core = session_is_link_of_core(p->session);

	if (!local && !of_core && !session_holds(p->session, 4, (const uint8_t *)&ip->source))
		return packet_drop(p, &drop_session_source);
	if (s->seen != seen && !session_observe(p->session, seen))
		return packet_drop(p, mac_reason(s));
	if (of_core)
		return packet_step(p);
	// Multicast stays on this side, unless the core has a receiver. The look-up refuses addresses above it.
	if ((*(const uint8_t *)&ip->destination >> 4) == IP4_MULTICAST >> 4 || ip->destination == UINT32_MAX)
		local = local || !session_details[p->session].has_core || is_dhcp(m, ip);
	else
		local = local || is_for_our_server(m, p, ip);
	return local ? ip_local_node.id : packet_step(p);
}

// Between hosts of a link (RFC 4861, RFC 8415): neither source nor destination identifies the subscriber.
static bool
is_of_link(const struct ip6_header *ip, const uint8_t *icmp_type, bool unspecified)
{
	if (ip->destination[0] == 0xff)
		return (ip->destination[1] & 0xf) <= SCOPE_LINK || (ip->destination[1] & 0xf) == SCOPE_SITE;
	if (unspecified)
		return false;
	if (ip->destination[0] == 0xfe)
		return true;
	// Neighbour unreachability detection: the sender may use its link-local address (RFC 4861 section 7.2.2).
	return icmp_type && ip->hop_limit == 255 && *icmp_type >= ND_FIRST && *icmp_type <= ND_LAST;
}

static uint16_t
unusual6(struct rte_mbuf *m, struct packet *p, uint64_t seen)
{
	const struct ip6_header *ip = rte_pktmbuf_mtod(m, const struct ip6_header *);
	const uint8_t *icmp_type =
		ip->next_header == PROTOCOL_ICMP6 && m->data_len > sizeof(*ip) ? (const uint8_t *)(ip + 1) : NULL;
	bool unspecified = ip6_is_unspecified(ip->source), link_local = ip6_is_link_local(ip->source);
	bool local = (unspecified || link_local) && is_of_link(ip, icmp_type, unspecified);
	const struct session *s = session_at(p->session);
	bool of_core = session_is_link_of_core(p->session);

	// No router passes a link-local source on (RFC 4291 section 2.5.6), even where any source is fine.
	if (!local && !of_core && (unspecified || link_local || !session_holds(p->session, 6, ip->source)))
		return packet_drop(p, &drop_session_source);
	if (s->seen != seen && !session_observe(p->session, seen))
		return packet_drop(p, mac_reason(s));
	if (of_core)
		return packet_step(p);
	if (ip->destination[0] == 0xff)
		local = local || (ip->destination[1] & 0xf) <= SCOPE_LINK || !session_details[p->session].has_core;
	else if (ip6_is_link_local(ip->destination))
		return ip6_lookup_node.id; // knows which of these are ours
	return local ? ip_local_node.id : packet_step(p);
}

// Not 0: the addresses are not those of nearly every packet of the session, or it may be DHCP.
static inline uint64_t
odd4(const struct session *s, const uint8_t *packet, unsigned length)
{
	const struct ip4_header *ip = (const struct ip4_header *)packet;

	return !session_first4(s, ip->source) | (*(const uint8_t *)&ip->destination >= IP4_MULTICAST) |
	       (length >= UDP_PORT_AT + 2 &&
		       *(const unaligned_uint16_t *)(packet + UDP_PORT_AT) == RTE_BE16(DHCP_SERVER));
}

static inline uint64_t
odd6(const struct session *s, const uint8_t *packet)
{
	const struct ip6_header *ip = (const struct ip6_header *)packet;

	return !session_first6(s, ip->source) | (ip->destination[0] >= IP6_LINK_LOCAL) | (ip->source[0] == 0xfe) |
	       (ip->source[0] == 0);
}

// The session of the access that has the source, if one does.
static __rte_noinline void
choose_sibling(struct packet *p, const uint8_t *ip, unsigned family)
{
	const uint8_t *source =
		ip + (family == 4 ? offsetof(struct ip4_header, source) : offsetof(struct ip6_header, source));
	uint32_t session = session_sibling_of(p->session, (uint8_t)family, source);

	if (session != NO_SESSION)
		p->session = session;
}

// `family`, 4 or 6, and `framed`, whether packets came in a frame whose sender and tags count, are constants at each call.
static __rte_always_inline void
session_up(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count, unsigned family, bool framed)
{
	struct session_counters *counters = counters_row(&session_counters);
	uint16_t next[BURST];
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < RTE_MIN(count, PREFETCH_DISTANCE); i++)
		session_prefetch(packets[i], UP, counters);
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
		const struct session *s = session_at(p->session);
		struct session_counters *c = &counters[p->session];
		uint64_t seen =
			framed ? session_seen(ip - p->l2_length + RTE_ETHER_ADDR_LEN, p->outer_tpid, p->inner_tpid)
			       : s->seen;
		uint64_t odd = (seen ^ s->seen) | (family == 4 ? odd4(s, ip, m->data_len) : odd6(s, ip));

		if (unlikely(odd != 0) && (s->flags & SESSION_SHARES)) {
			choose_sibling(p, ip, family);
			s = session_at(p->session);
			c = &counters[p->session];
			seen = framed ? seen : s->seen;
			odd = (seen ^ s->seen) | (family == 4 ? odd4(s, ip, m->data_len) : odd6(s, ip));
		}
		if (i + PREFETCH_DISTANCE < count)
			session_prefetch(packets[i + PREFETCH_DISTANCE], UP, counters);
		p->counted = (uint16_t)m->pkt_len;
		c->packets[UP]++;
		c->bytes[UP] += m->pkt_len;
		bytes += m->pkt_len;
		p->vrf = s->vrf;
		p->direction = UP;
		p->chain = family == 4 ? s->up4 : s->up6;
		next[i] = likely(odd == 0) ? packet_step(p) : family == 4 ? unusual4(m, p, seen) : unusual6(m, p, seen);
	}
	session_count_all(counters, UP, count, bytes);
	node_dispatch(graph, node, packets, next, count);
}

static void
session_up4_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	session_up(graph, node, packets, count, 4, true);
}

static void
session_up6_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	session_up(graph, node, packets, count, 6, true);
}

static void
session_point_up4_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	session_up(graph, node, packets, count, 4, false);
}

static void
session_point_up6_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	session_up(graph, node, packets, count, 6, false);
}

static uint16_t
session_up4(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, session_up4_burst);
}

static uint16_t
session_up6(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, session_up6_burst);
}

static uint16_t
session_point_up4(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, session_point_up4_burst);
}

static uint16_t
session_point_up6(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, session_point_up6_burst);
}

static void
session_up_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	const struct session *s = session_at(p->session);

	snprintf(text, size, "session %s, vrf %s%s", session_name(p->session), vrf_name(s->vrf),
		s->flags & SESSION_ANY_SOURCE ? ", any source" : ", source to be checked");
}

struct node session_up4_node = {.name = "session-up4",
	.process = session_up4,
	.describe = session_up_describe,
	.edges = NODE_EDGES(&ip_local_node),
	.steps = true};
struct node session_up6_node = {.name = "session-up6",
	.process = session_up6,
	.describe = session_up_describe,
	.edges = NODE_EDGES(&ip_local_node, &ip6_lookup_node),
	.steps = true};
struct node session_point_up4_node = {.name = "session-point-up4",
	.process = session_point_up4,
	.describe = session_up_describe,
	.edges = NODE_EDGES(&ip_local_node),
	.steps = true};
struct node session_point_up6_node = {.name = "session-point-up6",
	.process = session_point_up6,
	.describe = session_up_describe,
	.edges = NODE_EDGES(&ip_local_node, &ip6_lookup_node),
	.steps = true};
NODE_REGISTER(session_point_up4_node)
NODE_REGISTER(session_point_up6_node)
NODE_REGISTER(session_up4_node)
NODE_REGISTER(session_up6_node)

// Accesses give a packet one of these as its chain (pppoe/input.h, session/point.h).
RTE_INIT(session_up_edges)
{
	node_edge(&ip4_input_node, &session_up4_node);
	node_edge(&ip6_input_node, &session_up6_node);
	node_edge(&ip4_input_node, &session_point_up4_node);
	node_edge(&ip6_input_node, &session_point_up6_node);
}
