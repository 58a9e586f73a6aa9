// Checks an IPv6 header from outside (RFC 8200 section 3, RFC 4291 section 2). In: the data at the header. Out: a step of the
// packet's chain, the data cut to the packet's length.
#include "core/burst.h"
#include "core/drop.h"
#include "ip/check.h"
#include "ip/describe.h"
#include "ip/header.h"
#include "ip/hop.h"

DROP(drop_short, "ip6-truncated", "The frame ends before the IPv6 packet in it does, or within its header.")
DROP(drop_version, "ip6-version", "The packet's version is not 6 though its frame says IPv6.")
DROP(drop_jumbogram, "ip6-jumbogram",
	"The packet says that it has no payload but goes on: a jumbogram (RFC 2675), or damaged.")
DROP(drop_source, "ip6-martian-source",
	"The source is multicast, the loopback address or, to a single host, unspecified.")

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
	if (ip6_is_multicast(ip->source) || ip6_is_loopback(ip->source))
		return &drop_source;
	// A host that has no address yet asks its neighbours (RFC 4861 section 4.3, RFC 3590).
	if (ip6_is_unspecified(ip->source) && !ip6_is_multicast(ip->destination))
		return &drop_source;
	return NULL;
}

static uint16_t
examine(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	const struct drop *reason = ip6_check(m);

	p->family = 6;
	if (reason)
		return packet_drop(p, reason);
	ip_trim(m,
		sizeof(struct ip6_header) + rte_be_to_cpu_16(rte_pktmbuf_mtod(m, struct ip6_header *)->payload_length));
	return packet_step(p);
}

// Sources that start with two bytes of zero (unspecified, loopback, mapped) or with 0xff (multicast) deserve a closer look.
static inline uint32_t
special_source(const struct ip6_header *ip)
{
	uint16_t first;

	memcpy(&first, ip->source, sizeof(first));
	return (uint32_t)(first == 0) | (uint32_t)((first & 0xff) == 0xff);
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
		// What is not there is not read.
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

struct node ip6_input_node = {.name = "ip6-input", .process = ip6_input, .describe = ip_describe};
NODE_REGISTER(ip6_input_node)
