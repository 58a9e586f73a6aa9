// SPDX-License-Identifier: Apache-2.0
// ICMP for our own addresses: echo is answered by the worker in the packet it came in (RFC 792, RFC 1122 section 3.2.2.6,
// RFC 4443 section 4); neighbour discovery has a node of its own; the rest is the control plane's.
#include <string.h>

#include "core/drop.h"
#include "core/fair.h"
#include "core/punt.h"
#include "fib/hop.h"
#include "inet/describe.h"
#include "inet/header.h"
#include "ip/icmp.h"
#include "ip/local.h"
#include "ip/subscriber.h"
#include "port/port.h"

enum {
	ECHO4_REPLY = 0,
	ECHO4_REQUEST = 8,
	ECHO6_REQUEST = 128,
	ECHO6_REPLY = 129,
	MLD_QUERY = 130,
	MLD_DONE = 132,
	MLD2_REPORT = 143,
	TTL = 64,

	TOLD = 1, // packet->detail

	// Of all workers, and of a source on each of them; as many at once.
	REPLIES_A_SECOND = 50000,
	REPLIES_EACH = 1000,
};

DROP(drop_truncated, "icmp-truncated", "An ICMP message for us that ends within its header.")
DROP(drop_checksum, "icmp-checksum", "An ICMP message for us with a wrong checksum.")
DROP(drop_family, "icmp-family", "ICMP in IPv6, or ICMPv6 in IPv4.")
DROP(drop_group, "echo-to-group", "An echo request to a broadcast or multicast address.")
DROP(drop_rate, "echo-rate-limited", "More echo requests than the rate limits of all sources and of this one allow.")
CONSUMED(
	path_noted, "path-mtu-noted", "A message about the path MTU of a tunnel's packets, which the tunnel has noted.")
CONSUMED(drop_mld, "mld", "A multicast listener's report or query: we forward no multicast.")

struct icmp {
	uint8_t type;
	uint8_t code;
	uint16_t checksum;
	uint32_t rest;
} __attribute__((packed));

// Whether the checksum over `length` bytes from `offset` on, in any number of segments, and the given `sum`, is right.
static bool
sum_is_right(const struct rte_mbuf *m, unsigned offset, unsigned length, uint64_t sum)
{
	unsigned done = 0;

	for (; m && length > 0; m = m->next) {
		unsigned here = RTE_MIN((unsigned)m->data_len - offset, length);
		uint16_t part =
			checksum_fold(checksum_add(0, rte_pktmbuf_mtod_offset(m, const uint8_t *, offset), here));

		// Behind an odd number of bytes, the words are the other way round (RFC 1071 section 2).
		sum += done & 1 ? rte_bswap16(part) : part;
		done += here;
		length -= here;
		offset = 0;
	}
	return length == 0 && checksum_fold(sum) == 0xffff;
}

// The checksum of a message whose type becomes another (RFC 1624).
static uint16_t
retype(uint16_t checksum, uint8_t old, uint8_t type)
{
	uint16_t before, after;
	const uint8_t words[2][2] = {{old, 0}, {type, 0}};

	memcpy(&before, words[0], 2);
	memcpy(&after, words[1], 2);
	return (uint16_t)~checksum_fold((uint64_t)(uint16_t)~checksum + (uint16_t)~before + after);
}

static bool
may_reply(struct rte_mbuf *m)
{
	static struct fair_rates replies;

	return fair_spend(&replies, REPLIES_A_SECOND, REPLIES_EACH, m);
}

// Send the answer back into its session, or by the routes. It has no priority over other packets: the sender of the request
// chooses its length.
static uint16_t
send_back(struct packet *p, const struct node *look_up)
{
	p->queue = QUEUE_OF_REPLIES;
	p->flags = (uint16_t)((p->flags & ~PACKET_ROUTED) | PACKET_OURS);
	if (p->session == NO_SESSION)
		return look_up->id;
	return packet_to_subscriber(p);
}

static void
twin_and_watcher(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);

	if (!ip_local_has_twin(p)) {
		if (p->detail == TOLD && !punt_watched(p))
			drop_now(m, &path_noted);
		else
			punt_to_watcher(m);
		return;
	}
	if (punt_watched(p)) {
		struct rte_mbuf *copy = packet_new();
		uint8_t *to = copy ? (uint8_t *)rte_pktmbuf_append(copy, (uint16_t)RTE_MIN(m->pkt_len + p->l2_length,
										 (uint32_t)rte_pktmbuf_tailroom(copy)))
				   : NULL;

		// A buffer holds more than any receiver of an error needs.
		if (to) {
			uint32_t length = copy->pkt_len;
			const void *from;

			packet_advance(m, -(int)p->l2_length);
			from = rte_pktmbuf_read(m, 0, length, to);
			if (from != to)
				memcpy(to, from, length);
			packet_advance(m, p->l2_length);
			*packet_of(copy) = *p;
			packet_advance(copy, p->l2_length);
			punt_to_watcher(copy);
		}
	}
	ip_local_to_twin(m);
}

PUNT(punt_icmp, "icmp", 2000, twin_and_watcher)

// `told`: a tunnel has learned what the message says.
static uint16_t
to_agent(struct packet *p, bool told)
{
	p->detail = told ? TOLD : 0;
	return packet_punt(p, &punt_icmp);
}

static struct icmp_too_big *too_big_watchers;

void
icmp_too_big_watch(struct icmp_too_big *watcher)
{
	watcher->next = too_big_watchers;
	too_big_watchers = watcher;
}

static bool
tell_watchers(uint16_t vrf, const uint8_t *packet, size_t length, uint32_t mtu)
{
	bool told = false;

	for (const struct icmp_too_big *w = too_big_watchers; w; w = w->next)
		told |= w->tell(vrf, packet, length, mtu);
	return told;
}

void
icmp_too_big_here(const struct packet *p, uint32_t mtu)
{
	const struct rte_mbuf *m = (const struct rte_mbuf *)p - 1;

	if (p->flags & PACKET_TUNNELLED && m->data_len >= sizeof(struct ip6_header) + 8)
		tell_watchers(p->vrf, rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, mtu);
}

// A Packet Too Big of `length` bytes. Whether a watcher knows the packet.
static bool
tell_too_big(const struct rte_mbuf *m, const struct packet *p, unsigned length)
{
	const struct ip6_header *ip = rte_pktmbuf_mtod(m, const struct ip6_header *);
	const uint8_t *icmp = (const uint8_t *)(ip + 1), *quoted = icmp + sizeof(struct icmp);
	size_t readable = RTE_MIN((size_t)m->data_len, sizeof(*ip) + length) - sizeof(*ip) - sizeof(struct icmp);
	uint32_t mtu;

	if (p->session != NO_SESSION || readable < sizeof(*ip) || quoted[0] >> 4 != 6 ||
		memcmp(((const struct ip6_header *)quoted)->source, ip->destination, sizeof(ip->destination)) != 0 ||
		!sum_is_right(
			m, sizeof(*ip), length, ip6_pseudo_sum(ip->source, ip->destination, length, PROTOCOL_ICMP6)))
		return false;
	memcpy(&mtu, icmp + offsetof(struct icmp, rest), sizeof(mtu));
	return tell_watchers(p->vrf, quoted, readable, rte_be_to_cpu_32(mtu));
}

// "Fragmentation needed" of `length` bytes. Whether a watcher knows the packet.
static bool
tell_fragmentation_needed(const struct rte_mbuf *m, const struct packet *p, unsigned header, unsigned length)
{
	const struct ip4_header *ip = rte_pktmbuf_mtod(m, const struct ip4_header *);
	const uint8_t *icmp = (const uint8_t *)ip + header, *quoted = icmp + sizeof(struct icmp);
	size_t readable = RTE_MIN((size_t)m->data_len, (size_t)header + length);
	uint16_t mtu;

	if (p->session != NO_SESSION || readable < header + sizeof(struct icmp) + sizeof(*ip) + 8)
		return false;
	readable -= header + sizeof(struct icmp);
	if (quoted[0] >> 4 != 4 || (quoted[0] & 0xf) < 5 || readable < (quoted[0] & 0xfu) * 4 + 8 ||
		memcmp(&((const struct ip4_header *)quoted)->source, &ip->destination, sizeof(ip->destination)) != 0 ||
		!sum_is_right(m, header, length, 0))
		return false;
	memcpy(&mtu, icmp + offsetof(struct icmp, rest) + 2, sizeof(mtu));
	return tell_watchers(p->vrf, quoted, readable, rte_be_to_cpu_16(mtu));
}

static uint16_t
take4(struct rte_mbuf *m, struct packet *p)
{
	struct ip4_header *ip = rte_pktmbuf_mtod(m, struct ip4_header *);
	unsigned header = ip4_header_length(ip), total = rte_be_to_cpu_16(ip->total_length);
	struct icmp *icmp = (struct icmp *)((uint8_t *)ip + header);
	uint32_t address;
	bool told = false;

	if (total < header + sizeof(*icmp) || m->data_len < header + sizeof(*icmp) || total > m->pkt_len)
		return packet_drop(p, &drop_truncated);
	if (icmp->type == ICMP4_UNREACHABLE && icmp->code == ICMP4_FRAGMENTATION_NEEDED)
		told = tell_fragmentation_needed(m, p, header, total - header);
	if (icmp->type != ECHO4_REQUEST)
		return to_agent(p, told);
	if ((hop_at(p->hop)->flags & (HOP_BROADCAST | HOP_MULTICAST)) || *(const uint8_t *)&ip->destination >= 0xe0)
		return packet_drop(p, &drop_group);
	if (!may_reply(m))
		return packet_drop(p, &drop_rate);
	if (!sum_is_right(m, header, total - header, 0))
		return packet_drop(p, &drop_checksum);
	icmp->type = ECHO4_REPLY;
	icmp->checksum = retype(icmp->checksum, ECHO4_REQUEST, ECHO4_REPLY);
	address = ip->source;
	ip->source = ip->destination;
	ip->destination = address;
	ip->ttl = TTL;
	ip->fragment = 0;
	ip->checksum = ip4_checksum(ip);
	return send_back(p, &ip4_lookup_node);
}

static const struct node *handlers6[UINT8_MAX + 1];

void
icmp6_register(uint8_t type, const struct node *node)
{
	handlers6[type] = node;
	node_edge(node_by_name("icmp"), node);
}

static uint16_t
take6(struct rte_mbuf *m, struct packet *p)
{
	struct ip6_header *ip = rte_pktmbuf_mtod(m, struct ip6_header *);
	struct icmp *icmp = (struct icmp *)(ip + 1);
	uint32_t length = rte_be_to_cpu_16(ip->payload_length);
	uint8_t address[16];
	bool told = false;

	if (length < sizeof(*icmp) || m->data_len < sizeof(*ip) + sizeof(*icmp) || sizeof(*ip) + length > m->pkt_len)
		return packet_drop(p, &drop_truncated);
	if (handlers6[icmp->type])
		return handlers6[icmp->type]->id;
	if ((icmp->type >= MLD_QUERY && icmp->type <= MLD_DONE) || icmp->type == MLD2_REPORT)
		return ip_local_has_twin(p) ? ip_local_twin(p) : packet_drop(p, &drop_mld);
	if (icmp->type == ICMP6_TOO_BIG)
		told = tell_too_big(m, p, length);
	if (icmp->type != ECHO6_REQUEST)
		return to_agent(p, told);
	if (ip6_is_multicast(ip->destination))
		return packet_drop(p, &drop_group);
	if (!may_reply(m))
		return packet_drop(p, &drop_rate);
	if (!sum_is_right(m, sizeof(*ip), length, ip6_pseudo_sum(ip->source, ip->destination, length, PROTOCOL_ICMP6)))
		return packet_drop(p, &drop_checksum);
	icmp->type = ECHO6_REPLY;
	icmp->checksum = retype(icmp->checksum, ECHO6_REQUEST, ECHO6_REPLY);
	memcpy(address, ip->source, sizeof(address));
	memcpy(ip->source, ip->destination, sizeof(address));
	memcpy(ip->destination, address, sizeof(address));
	ip->hop_limit = TTL;
	return send_back(p, &ip6_lookup_node);
}

static uint16_t
icmp_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t start = 0; start < count; start = (uint16_t)(start + BURST)) {
		uint16_t part = (uint16_t)RTE_MIN(count - start, BURST);
		uint16_t next[BURST];

		for (uint16_t i = 0; i < part; i++) {
			struct rte_mbuf *m = packets[start + i];
			struct packet *p = packet_of(m);
			uint8_t protocol = p->family == 4 ? rte_pktmbuf_mtod(m, struct ip4_header *)->protocol
							  : rte_pktmbuf_mtod(m, struct ip6_header *)->next_header;

			if (protocol != (p->family == 4 ? PROTOCOL_ICMP : PROTOCOL_ICMP6))
				next[i] = packet_drop(p, &drop_family);
			else
				next[i] = p->family == 4 ? take4(m, p) : take6(m, p);
		}
		node_dispatch(graph, node, packets + start, next, part);
	}
	return count;
}

static struct node icmp_node = {.name = "icmp",
	.process = icmp_process,
	.describe = ip_describe,
	.edges = NODE_EDGES(&ip4_lookup_node, &ip6_lookup_node, &punt_node)};
NODE_REGISTER(icmp_node)

void
icmp_start(void)
{
	ip_local_protocol(PROTOCOL_ICMP, &icmp_node);
	ip_local_protocol(PROTOCOL_ICMP6, &icmp_node);
}
