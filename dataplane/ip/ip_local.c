// SPDX-License-Identifier: Apache-2.0
// Packets for our own addresses: reassembled if necessary, then to the node of their protocol or UDP port; the rest to the
// port's Linux twin, to the agent, or back with an ICMP error (RFC 1122 section 3.2.2.1, RFC 4443 section 3.1).
//
// GTP-U comes through here at line rate: a packet without fragments and options takes one look into a table.
#include "ip/local.h"

#include <string.h>

#include "core/drop.h"
#include "core/punt.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "inet/describe.h"
#include "inet/header.h"
#include "ip/extensions.h"
#include "ip/icmp.h"
#include "ip/nodes.h"
#include "ip/reassembly.h"
#include "port/twin.h"

INJECTED(icmp_error_node)

enum { NO_RECEIVER = 0xffff, UDP_HEADER = 8 };

DROP(drop_truncated, "local-truncated", "A packet for us that ends within its headers.")
DROP(drop_fragment, "fragment-invalid", "A fragment for us that no whole packet can have.")
DROP(drop_header_chain, "fragment-header-chain",
	"A first fragment for us that does not hold all headers up to the protocol's (RFC 7112).")
DROP(drop_nd_fragment, "nd-fragment-header", "A neighbour discovery message with a fragment header (RFC 6980).")
DROP(drop_extension, "ip6-extension", "A packet for us with an extension header or option that we must not ignore.")
DROP(drop_nothing, "ip6-no-next-header", "A packet for us that says that it carries nothing.")
DROP(drop_group, "multicast-not-for-us", "A broadcast or multicast packet of a kind that we take no part in.")
DROP(drop_no_checksum, "udp6-no-checksum",
	"A UDP packet over IPv6 for us without a checksum, which its port's protocol does not permit (RFC 8200 section "
	"8.1).")
DROP(drop_port, "port-unreachable", "A UDP packet for an address of ours and a port without a listener.")
DROP(drop_protocol, "protocol-unreachable",
	"A packet for an address of ours, of a protocol that the gateway does not serve.")

// Node ids, for either family.
static uint16_t protocols[256] = {[0 ... 255] = NO_RECEIVER};
static uint16_t udp_ports[65536] = {[0 ... 65535] = NO_RECEIVER};

void
ip_local_protocol(uint8_t protocol, const struct node *node)
{
	protocols[protocol] = node->id;
	node_edge(&ip_local_node, node);
}

void
ip_local_udp(uint16_t port, const struct node *node)
{
	udp_ports[port] = node->id;
	node_edge(&ip_local_node, node);
}

static struct ip_local_punt *punts;

void
ip_local_punt_register(struct ip_local_punt *punt)
{
	punt->next = punts;
	punts = punt;
}

bool
ip_local_is_from_tunnel(const struct packet *p)
{
	return p->interface < INTERFACE_LIMIT && interface_at(p->interface)->link == INTERFACE_POINT;
}

bool
ip_local_has_twin(const struct packet *p)
{
	// A packet out of a tunnel has no frame for the port's daemons.
	if (ip_local_is_from_tunnel(p))
		return false;
	return p->session == NO_SESSION && p->port < PORT_MAX && ports[p->port].twin;
}

void
ip_local_to_twin(struct rte_mbuf *m)
{
	twin_copy(&ports[packet_of(m)->port % PORT_MAX], m);
	rte_pktmbuf_free(m);
}

uint16_t
ip_local_twin(struct packet *p)
{
	return packet_punt(p, &twin_punt);
}

static void
drop_without_receiver(struct packet *p)
{
	bool udp = p->detail == PROTOCOL_UDP;

	if (p->family == 4)
		packet_icmp_error(
			p, ICMP4_UNREACHABLE, udp ? ICMP4_PORT : ICMP4_PROTOCOL, 0, udp ? &drop_port : &drop_protocol);
	else if (udp)
		packet_icmp_error(p, ICMP6_UNREACHABLE, ICMP6_PORT, 0, &drop_port);
	else // unrecognized next header: the pointer is to that field
		packet_icmp_error(p, ICMP6_PARAMETER, 1, offsetof(struct ip6_header, next_header), &drop_protocol);
}

// Only the main thread knows the watching clients.
void
ip_local_offer(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);

	if (punt_watched(p)) {
		punt_to_watcher(m);
		return;
	}
	drop_without_receiver(p);
	inject(m, &icmp_error_node);
}

PUNT(punt_local, "local", 2000, ip_local_offer)

void
ip_local_watcher_or_twin(struct rte_mbuf *m)
{
	if (!punt_watched(packet_of(m)) && ip_local_has_twin(packet_of(m)))
		ip_local_to_twin(m);
	else
		punt_to_watcher(m);
}

static bool
to_group(const struct rte_mbuf *m, const struct packet *p)
{
	if (hop_at(p->hop)->flags & (HOP_BROADCAST | HOP_MULTICAST))
		return true;
	if (p->family == 4)
		return rte_pktmbuf_mtod(m, const struct ip4_header *)->destination == UINT32_MAX ||
		       (*(const uint8_t *)&rte_pktmbuf_mtod(m, const struct ip4_header *)->destination & 0xf0) == 0xe0;
	return ip6_is_multicast(rte_pktmbuf_mtod(m, const struct ip6_header *)->destination);
}

// The reason that a concept registered for the packet, or NULL. `port` is UDP's.
static const struct punt *
punt_for(const struct packet *p, uint8_t protocol, unsigned port, bool group)
{
	for (const struct ip_local_punt *l = punts; l; l = l->next)
		if (l->protocol == protocol && (l->port == 0 || l->port == port) &&
			(l->family == 0 || l->family == p->family) && (l->groups || !group) &&
			(!l->takes || l->takes(p)))
			return l->punt;
	return NULL;
}

// The packet's protocol has its header `offset` bytes from the data.
static uint16_t
deliver(struct rte_mbuf *m, struct packet *p, uint8_t protocol, unsigned offset)
{
	const uint8_t *header = rte_pktmbuf_mtod_offset(m, const uint8_t *, offset);
	const struct punt *punt;
	unsigned port = 0;
	bool group;

	if (protocol == PROTOCOL_UDP) {
		if (m->data_len < offset + UDP_HEADER)
			return packet_drop(p, &drop_truncated);
		port = (unsigned)header[2] << 8 | header[3];
		if (udp_ports[port] != NO_RECEIVER)
			return udp_ports[port];
		if (p->family == 6 && (header[6] | header[7]) == 0)
			return packet_drop(p, &drop_no_checksum);
	} else if (protocols[protocol] != NO_RECEIVER) {
		return m->data_len < offset + UDP_HEADER ? packet_drop(p, &drop_truncated) : protocols[protocol];
	}
	group = to_group(m, p);
	punt = punt_for(p, protocol, port, group);
	if (!punt && ip_local_has_twin(p))
		return ip_local_twin(p);
	if (!punt && group)
		return packet_drop(p, &drop_group);
	p->detail = protocol;
	return packet_punt(p, punt ? punt : &punt_local);
}

static uint16_t
ip4_deliver_slow(struct rte_mbuf *m, struct packet *p)
{
	const struct ip4_header *ip = rte_pktmbuf_mtod(m, const struct ip4_header *);

	if (ip->fragment & RTE_BE16(IP4_MF | IP4_OFFSET))
		return reassembly_punt(p);
	return deliver(m, p, ip->protocol, ip4_header_length(ip));
}

// Remove `length` bytes of extension headers behind the IPv6 header, by moving the bytes before them.
static void
take_out(struct rte_mbuf *m, unsigned length, uint8_t next_header)
{
	struct packet *p = packet_of(m);
	struct ip6_header *ip = rte_pktmbuf_mtod(m, struct ip6_header *);
	uint8_t *frame = (uint8_t *)ip - p->l2_length;

	ip->next_header = next_header;
	ip->payload_length = rte_cpu_to_be_16((uint16_t)(rte_be_to_cpu_16(ip->payload_length) - length));
	memmove(frame + length, frame, p->l2_length + sizeof(*ip));
	packet_advance(m, (int)length);
}

// A fragment that its sender shall learn of: one that no packet can have (RFC 8200 section 4.5), or a first one that does not
// hold all headers (RFC 7112). The headers in front of the fragment header are still there.
static bool
refuse_fragment(struct rte_mbuf *m, struct packet *p, const struct ip6_chain *chain, uint16_t *next)
{
	const struct ip6_header *ip = rte_pktmbuf_mtod(m, const struct ip6_header *);
	const struct ip6_fragment *f = rte_pktmbuf_mtod_offset(m, const struct ip6_fragment *, chain->offset);
	unsigned end = (unsigned)sizeof(*ip) + rte_be_to_cpu_16(ip->payload_length);
	unsigned before = chain->offset - (unsigned)sizeof(*ip), place = rte_be_to_cpu_16(f->offset) & 0xfff8;
	unsigned length = end - chain->offset - (unsigned)sizeof(*f);
	bool more = f->offset & RTE_BE16(IP6_MORE);

	if (end < chain->offset + sizeof(*f))
		*next = packet_drop(p, &drop_truncated);
	else if (more && length % 8 != 0)
		*next = packet_icmp_error(
			p, ICMP6_PARAMETER, 0, offsetof(struct ip6_header, payload_length), &drop_fragment);
	else if (before + place + length > PAYLOAD_MAX)
		*next = packet_icmp_error(p, ICMP6_PARAMETER, 0,
			(uint16_t)(chain->offset + offsetof(struct ip6_fragment, offset)), &drop_fragment);
	else if (more && place == 0 && !ip6_first_fragment_is_whole((const uint8_t *)f, m->data_len - chain->offset))
		*next = packet_icmp_error(p, ICMP6_PARAMETER, ICMP6_FIRST_FRAGMENT, 0, &drop_header_chain);
	else
		return false;
	return true;
}

static uint16_t
ip6_deliver_slow(struct rte_mbuf *m, struct packet *p, bool was_fragment)
{
	struct ip6_chain chain;
	enum ip6_fault wrong = ip6_extensions(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, &chain);
	bool group = to_group(m, p);
	uint16_t next;

	switch (wrong) {
	case IP6_TRUNCATED:
		return packet_drop(p, &drop_truncated);
	case IP6_DISCARD:
		return packet_drop(p, &drop_extension);
	case IP6_PARAMETER:
		// To groups, only errors for options that require it for multicasts, too (RFC 8200 section 4.2).
		if (group && !chain.report_to_groups)
			return packet_drop(p, &drop_extension);
		return packet_icmp_error(p, ICMP6_PARAMETER, chain.code, (uint16_t)chain.offset, &drop_extension);
	case IP6_OK:
		break;
	}
	if (chain.next_header == PROTOCOL_FRAGMENT && refuse_fragment(m, p, &chain, &next))
		return next;
	if (chain.offset > sizeof(struct ip6_header))
		take_out(m, chain.offset - (unsigned)sizeof(struct ip6_header), chain.next_header);
	if (chain.next_header == PROTOCOL_FRAGMENT) {
		const struct ip6_fragment *f =
			rte_pktmbuf_mtod_offset(m, const struct ip6_fragment *, sizeof(struct ip6_header));

		if (f->offset & RTE_BE16(0xfff8 | IP6_MORE))
			return reassembly_punt(p);
		// RFC 6946: a fragment that is the whole packet has nothing to do with any other.
		if (was_fragment)
			return packet_drop(p, &drop_fragment);
		take_out(m, sizeof(*f), f->next_header);
		return ip6_deliver_slow(m, p, true);
	}
	if (chain.next_header == PROTOCOL_NONE)
		return packet_drop(p, &drop_nothing);
	if (was_fragment && ip6_is_neighbor_discovery(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len))
		return packet_drop(p, &drop_nd_fragment);
	return deliver(m, p, chain.next_header, sizeof(struct ip6_header));
}

static void
dispatch(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
		unsigned four = p->family == 4;
		unsigned offset = four ? sizeof(struct ip4_header) : sizeof(struct ip6_header);
		// IPv4: neither options nor a fragment.
		bool plain = m->data_len >= offset + UDP_HEADER &&
			     (!four || (ip[0] == 0x45 && (((const struct ip4_header *)ip)->fragment &
								 RTE_BE16(IP4_MF | IP4_OFFSET)) == 0));
		uint8_t protocol =
			four ? ip[offsetof(struct ip4_header, protocol)] : ip[offsetof(struct ip6_header, next_header)];
		uint16_t to = NO_RECEIVER;

		if (likely(plain))
			to = protocol == PROTOCOL_UDP ? udp_ports[(unsigned)ip[offset + 2] << 8 | ip[offset + 3]]
						      : protocols[protocol];
		if (likely(to != NO_RECEIVER))
			next[i] = to;
		else
			next[i] = four ? ip4_deliver_slow(m, p) : ip6_deliver_slow(m, p, false);
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
ip_local(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t start = 0; start < count; start = (uint16_t)(start + BURST))
		dispatch(graph, node, packets + start, (uint16_t)RTE_MIN(count - start, BURST));
	return count;
}

struct node ip_local_node = {.name = "ip-local",
	.process = ip_local,
	.describe = ip_describe,
	.edges = NODE_EDGES(&icmp_error_node, &punt_node)};
NODE_REGISTER(ip_local_node)
HOP_KIND_REGISTER(HOP_LOCAL, ip_local_node)
