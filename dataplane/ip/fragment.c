// SPDX-License-Identifier: Apache-2.0
// Fragmentation of IPv4 packets (RFC 791 section 3.2, RFC 1812 section 4.2.2.7), and of IPv6 packets of our own (RFC 8200
// section 4.5): fragments are made in buffers of the pool that the packet came from.
#include "ip/fragment.h"

#include <string.h>

#include <rte_cycles.h>

#include "core/drop.h"
#include "core/worker.h"
#include "fib/hop.h"
#include "inet/describe.h"
#include "inet/header.h"
#include "ip/identification.h"

enum {
	OPTION_END = 0,
	OPTION_NOP = 1,
	OPTION_COPIED = 0x80,
	IP6_FRAGMENT_HEADER = 8,
	HEADROOM_MIN = RTE_PKTMBUF_HEADROOM,
	IP_MAX_LENGTH = 65535,
};

DROP(drop_many, "fragments", "The packet cannot be cut to the MTU of its way out in a sensible number of fragments.")
DROP(drop_beyond, "fragment-beyond-65535",
	"A fragment whose end is past the 65,535 bytes that a whole packet can have.")
DROP(drop_no_buffer, "fragments-no-buffer", "There were not as many free buffers as the packet has fragments.")

unsigned
fragment_plan(
	unsigned payload, unsigned mtu, unsigned first_header, unsigned header, struct fragment *plan, unsigned room)
{
	unsigned count = 0, offset = 0;

	while (offset < payload) {
		unsigned before = count == 0 ? first_header : header, left = payload - offset, most;

		if (count == room || mtu < before + 8)
			return 0;
		most = mtu - before;
		if (left > most)
			left = most & ~7u;
		plan[count++] = (struct fragment){.offset = (uint16_t)offset, .length = (uint16_t)left};
		offset += left;
	}
	return count;
}

unsigned
fragment_header(const uint8_t *header, unsigned length, uint8_t copy[IP4_HEADER_MAX])
{
	unsigned kept = sizeof(struct ip4_header);

	memcpy(copy, header, kept);
	for (unsigned i = sizeof(struct ip4_header), size; i < length && header[i] != OPTION_END; i += size) {
		size = header[i] == OPTION_NOP || i + 1 >= length ? 1 : header[i + 1];
		if (size == 0 || i + size > length)
			break;
		if (!(header[i] & OPTION_COPIED))
			continue;
		memcpy(copy + kept, header + i, size);
		kept += size;
	}
	for (; kept % 4 != 0; kept++)
		copy[kept] = OPTION_END;
	copy[0] = (uint8_t)(0x40 | kept / 4);
	return kept;
}

// Packets of the gateway without an identification get one here, different for each worker and packet.
static uint32_t
own_id(void)
{
	static struct {
		uint32_t next;
	} __rte_cache_aligned ids[WORKER_MAX + 1];
	uint32_t *next = &ids[worker_self()->index].next;

	if (*next == 0)
		*next = (uint32_t)rte_rdtsc();
	return identification((*next)++);
}

// Common fields of all fragments of a packet.
struct cut {
	struct rte_mbuf *whole;
	uint8_t first[IP4_HEADER_MAX], later[IP4_HEADER_MAX]; // headers
	unsigned first_length, later_length;
	unsigned header; // of the whole packet, in bytes
	unsigned offset; // of the payload, if the packet is a fragment itself, in bytes
	bool more;       // and not the last
};

static void
finish4(const struct cut *c, struct rte_mbuf *m, const struct fragment *f, bool last)
{
	struct ip4_header *ip = rte_pktmbuf_mtod(m, struct ip4_header *);

	ip->total_length = rte_cpu_to_be_16((uint16_t)m->pkt_len);
	ip->fragment = rte_cpu_to_be_16((uint16_t)((c->offset + f->offset) / 8 | (last && !c->more ? 0 : IP4_MF)));
	ip->checksum = 0;
	ip->checksum = ip4_checksum(ip);
}

static void
finish6(const struct cut *c, struct rte_mbuf *m, const struct fragment *f, bool last)
{
	struct ip6_header *ip = rte_pktmbuf_mtod(m, struct ip6_header *);
	uint16_t place = rte_cpu_to_be_16((uint16_t)(f->offset | !last));

	ip->payload_length = rte_cpu_to_be_16((uint16_t)(m->pkt_len - sizeof(*ip)));
	memcpy((uint8_t *)(ip + 1) + 2, &place, sizeof(place));
}

// One fragment into an empty buffer.
static bool
fill(const struct cut *c, struct rte_mbuf *m, const struct fragment *f, bool first, bool last)
{
	const uint8_t *header = first ? c->first : c->later;
	unsigned header_length = first ? c->first_length : c->later_length;
	struct packet *p = packet_of(m);
	uint8_t *data;
	const void *from;

	*p = *packet_of(c->whole);
	if (!first) {
		// The first fragment has the session's byte count and the mark of a trace.
		p->counted = 0;
		p->trace = 0;
	}
	p->l2_length = 0;
	m->port = c->whole->port;
	data = (uint8_t *)rte_pktmbuf_append(m, (uint16_t)(header_length + f->length));
	if (!data)
		return false;
	memcpy(data, header, header_length);
	from = rte_pktmbuf_read(c->whole, c->header + f->offset, f->length, data + header_length);
	if (!from)
		return false;
	if (from != data + header_length)
		memcpy(data + header_length, from, f->length);
	if (p->family == 4)
		finish4(c, m, f, last);
	else
		finish6(c, m, f, last);
	return true;
}

static void
prepare4(struct cut *c, const struct packet *p)
{
	struct ip4_header *ip = rte_pktmbuf_mtod(c->whole, struct ip4_header *);
	unsigned fragment = rte_be_to_cpu_16(ip->fragment);

	// A packet of a tunnel has the identification that its tunnel gave it, which may be 0.
	if ((p->flags & (PACKET_OURS | PACKET_TUNNELLED)) == PACKET_OURS && ip->id == 0 &&
		!(fragment & (IP4_MF | IP4_OFFSET)))
		ip->id = (uint16_t)own_id();
	c->header = ip4_header_length(ip);
	c->offset = (fragment & IP4_OFFSET) * 8;
	c->more = fragment & IP4_MF;
	memcpy(c->first, ip, c->header);
	c->first_length = c->header;
	c->later_length = fragment_header(c->first, c->header, c->later);
}

static void
prepare6(struct cut *c)
{
	const struct ip6_header *ip = rte_pktmbuf_mtod(c->whole, const struct ip6_header *);
	uint32_t id = own_id();

	c->header = sizeof(*ip);
	memcpy(c->first, ip, sizeof(*ip));
	((struct ip6_header *)c->first)->next_header = PROTOCOL_FRAGMENT;
	c->first[sizeof(*ip)] = ip->next_header;
	memset(c->first + sizeof(*ip) + 1, 0, 3);
	memcpy(c->first + sizeof(*ip) + 4, &id, sizeof(id));
	c->first_length = c->later_length = sizeof(*ip) + IP6_FRAGMENT_HEADER;
	memcpy(c->later, c->first, c->first_length);
}

// Cut one packet into `fragments`: how many, or 0 and the reason why not.
static unsigned
cut(struct rte_mbuf *m, struct rte_mbuf *fragments[FRAGMENTS_MAX], const struct drop **reason)
{
	const struct packet *p = packet_of(m);
	struct fragment plan[FRAGMENTS_MAX];
	struct cut c = {.whole = m};
	unsigned count, room = rte_pktmbuf_data_room_size(m->pool);

	if (p->family == 4)
		prepare4(&c, p);
	else
		prepare6(&c);
	*reason = &drop_beyond;
	if (p->family == 4 && c.header + c.offset + (m->pkt_len - c.header) > IP_MAX_LENGTH)
		return 0;
	*reason = &drop_many;
	if (room <= HEADROOM_MIN || m->pkt_len <= c.header || m->data_len < c.header)
		return 0;
	// A fragment is one segment, however large the MTU is.
	count = fragment_plan(m->pkt_len - c.header, RTE_MIN(p->detail, room - HEADROOM_MIN), c.first_length,
		c.later_length, plan, FRAGMENTS_MAX);
	if (count == 0)
		return 0;
	*reason = &drop_no_buffer;
	if (rte_pktmbuf_alloc_bulk(m->pool, fragments, count))
		return 0;
	for (unsigned i = 0; i < count; i++) {
		if (!fill(&c, fragments[i], &plan[i], i == 0, i == count - 1)) {
			rte_pktmbuf_free_bulk(fragments, count);
			return 0;
		}
	}
	return count;
}

static uint16_t
ip_fragment(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i], *fragments[FRAGMENTS_MAX];
		const struct drop *reason;
		unsigned made = cut(m, fragments, &reason);
		uint16_t next = 0;

		if (made == 0) {
			rte_node_enqueue_x1(graph, node, packet_drop(packet_of(m), reason), m);
			continue;
		}
		for (unsigned k = 0; k < made; k++)
			next = packet_pop(packet_of(fragments[k]));
		rte_node_enqueue(graph, node, next, (void **)fragments, (uint16_t)made);
		rte_pktmbuf_free(m);
	}
	return count;
}

struct node ip_fragment_node = {.name = "ip-fragment",
	.process = ip_fragment,
	.describe = ip_describe,
	.edges = NODE_EDGES(&ip4_lookup_node, &ip6_lookup_node),
	.returns = true};
NODE_REGISTER(ip_fragment_node)
