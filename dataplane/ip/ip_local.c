// Packets for our own addresses: reassembled if need be, then to whoever takes their protocol or UDP port; the rest to the
// port's Linux twin, to the agent, or back with an ICMP error (RFC 1122 section 3.2.2.1, RFC 4443 section 3.1).
//
// GTP-U comes through here at line rate: what is neither fragment nor option is decided by one look into a table.
#include "ip/local.h"

#include <string.h>

#include "core/drop.h"
#include "core/punt.h"
#include "ip/describe.h"
#include "ip/extensions.h"
#include "ip/header.h"
#include "ip/hop.h"
#include "ip/icmp.h"
#include "ip/neighbor.h"
#include "ip/reassembly.h"
#include "port/twin.h"

enum { NOBODY = 0xff, DHCP4_SERVER = 67, DHCP6_SERVER = 547, UDP_HEADER = 8 };

DROP(drop_truncated, "local-truncated", "A packet for us that ends within its headers.")
DROP(drop_fragment, "fragment-invalid", "A fragment for us that no whole packet can have.")
DROP(drop_extension, "ip6-extension", "A packet for us with an extension header or option that we must not ignore.")
DROP(drop_nothing, "ip6-no-next-header", "A packet for us that says that it carries nothing.")
DROP(drop_group, "multicast-not-for-us", "A broadcast or multicast packet of a kind that we take no part in.")
DROP(drop_port, "port-unreachable", "A UDP packet for an address of ours and a port that nobody listens to.")
DROP(drop_protocol, "protocol-unreachable", "A packet for an address of ours, of a protocol that nobody here speaks.")

// Node ids, for either family.
static uint8_t protocols[256] = {[0 ... 255] = NOBODY};
static uint8_t udp_ports[65536] = {[0 ... 65535] = NOBODY};

void
ip_local_protocol(uint8_t protocol, const struct node *node)
{
	protocols[protocol] = (uint8_t)node->id;
}

void
ip_local_udp(uint16_t port, const struct node *node)
{
	udp_ports[port] = (uint8_t)node->id;
}

bool
ip_local_has_twin(const struct packet *p)
{
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
nobody_takes(struct packet *p)
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

// Only the main thread knows who watches.
static void
offer(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);

	if (punt_watched(p)) {
		punt_to_watcher(m);
		return;
	}
	nobody_takes(p);
	inject(m, &icmp_error_node);
}

PUNT(punt_local, "local", 2000, offer)

// A DHCP server or relay may also run behind the twin.
static void
dhcp(struct rte_mbuf *m)
{
	if (!punt_watched(packet_of(m)) && ip_local_has_twin(packet_of(m)))
		ip_local_to_twin(m);
	else
		punt_to_watcher(m);
}

PUNT(punt_dhcp4, "dhcp4", 5000, dhcp)
PUNT(punt_dhcp6, "dhcp6", 5000, dhcp)

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

// The packet's protocol has its header `offset` bytes from the data.
static uint16_t
deliver(struct rte_mbuf *m, struct packet *p, uint8_t protocol, unsigned offset)
{
	const uint8_t *header = rte_pktmbuf_mtod_offset(m, const uint8_t *, offset);

	if (protocol == PROTOCOL_UDP) {
		unsigned port;

		if (m->data_len < offset + UDP_HEADER)
			return packet_drop(p, &drop_truncated);
		port = (unsigned)header[2] << 8 | header[3];
		if (udp_ports[port] != NOBODY)
			return udp_ports[port];
		if (p->family == 4 && port == DHCP4_SERVER)
			return packet_punt(p, &punt_dhcp4);
		if (p->family == 6 && port == DHCP6_SERVER)
			return packet_punt(p, &punt_dhcp6);
	} else if (protocols[protocol] != NOBODY) {
		return m->data_len < offset + UDP_HEADER ? packet_drop(p, &drop_truncated) : protocols[protocol];
	}
	if (ip_local_has_twin(p))
		return ip_local_twin(p);
	if (to_group(m, p))
		return packet_drop(p, &drop_group);
	p->detail = protocol;
	return packet_punt(p, &punt_local);
}

static uint16_t
closer4(struct rte_mbuf *m, struct packet *p)
{
	const struct ip4_header *ip = rte_pktmbuf_mtod(m, const struct ip4_header *);

	if (ip->fragment & RTE_BE16(IP4_MF | IP4_OFFSET))
		return reassembly_punt(p);
	return deliver(m, p, ip->protocol, ip4_header_length(ip));
}

// Take `length` bytes of extension headers out from behind the IPv6 header, by moving what is before them.
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

static uint16_t
closer6(struct rte_mbuf *m, struct packet *p, bool was_fragment)
{
	struct ip6_chain chain;
	enum ip6_fault wrong = ip6_extensions(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, &chain);
	bool group = to_group(m, p);

	switch (wrong) {
	case IP6_TRUNCATED:
		return packet_drop(p, &drop_truncated);
	case IP6_DISCARD:
		return packet_drop(p, &drop_extension);
	case IP6_PARAMETER:
		// To groups, only what says that it is meant for them, too (RFC 8200 section 4.2).
		if (group && !chain.tell_groups)
			return packet_drop(p, &drop_extension);
		return packet_icmp_error(p, ICMP6_PARAMETER, chain.code, (uint16_t)chain.offset, &drop_extension);
	case IP6_OK:
		break;
	}
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
		return closer6(m, p, true);
	}
	if (chain.next_header == PROTOCOL_NONE)
		return packet_drop(p, &drop_nothing);
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
		uint8_t to = NOBODY;

		if (likely(plain))
			to = protocol == PROTOCOL_UDP ? udp_ports[(unsigned)ip[offset + 2] << 8 | ip[offset + 3]]
						      : protocols[protocol];
		if (likely(to != NOBODY))
			next[i] = to;
		else
			next[i] = four ? closer4(m, p) : closer6(m, p, false);
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

struct node ip_local_node = {.name = "ip-local", .process = ip_local, .describe = ip_describe};
NODE_REGISTER(ip_local_node)
