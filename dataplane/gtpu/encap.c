// Uplink into the tunnel: the outer header is copied from the tunnel as it lies there, what differs from packet to packet is
// stored over it, and the outer packet is looked up in the tunnel's VRF (TS 29.281 section 4.4).
//
// UDP's source port is chosen by the inner flow (section 4.4.2.0 leaves it to the sender), so that routers between here and the
// UPF can spread flows. The inner DSCP is copied outside unless the packet's QoS flow has another; ECN is not (RFC 6040 section 4.3, compatibility mode).
#include <stdio.h>

#include <rte_ip.h>
#include <rte_memcpy.h>
#include <rte_prefetch.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/worker.h"
#include "flow/flow.h"
#include "gtpu/reflect.h"
#include "gtpu/tunnel.h"
#include "ip/fragment.h"
#include "ip/header.h"
#include "ip/hop.h"
#include "ip/icmp.h"
#include "ip/vrf.h"

enum {
	QFI_BEFORE = 2,      // bytes from the QFI to the inner packet
	FIRST_PORT = 0xc000, // of those that are not assigned (RFC 6335 section 6)
	IP4_LENGTH = 2,
	IP4_ID = 4,
	IP4_CHECKSUM = 10,
	IP6_LENGTH = 4,
	UDP_LENGTH = 4,
	UDP_CHECKSUM = 6,
	GTPU_LENGTH = 2,
	DSCP_MASK = 0xfc,
	MOST = UINT16_MAX, // an IP packet, in bytes
	IP4_LEAST = 68,    // an MTU that is none less (RFC 791, RFC 8200 section 5)
	IP6_LEAST = 1280,
	WRAP = UINT16_MAX, // no edge
	AHEAD = 16,        // packets whose tunnel's line is on its way
};

DROP(drop_headroom, "gtpu-no-headroom", "There was no room in the buffer for the tunnel's header.")
DROP(drop_path, "gtpu-path-down", "The user plane function at the tunnel's far end no longer answers echo requests.")
DROP(drop_large, "gtpu-too-large", "With the tunnel's header the packet would be larger than its way takes.")

static inline void
put16(uint8_t *at, uint16_t value)
{
	value = rte_cpu_to_be_16(value);
	memcpy(at, &value, sizeof(value));
}

static inline uint32_t
spread(uint64_t a, uint64_t b)
{
	uint64_t hash = (a * 0x9e3779b97f4a7c15u) ^ ((b + 0x7f4a7c15) * 0xff51afd7ed558ccdu);

	return (uint32_t)((hash ^ hash >> 29) >> 16);
}

// A number that is the same for all packets of an inner flow. Its ports count only where they are in every packet.
static inline uint32_t
flow4(const uint8_t *ip, size_t length)
{
	const struct ip4_header *ip4 = (const struct ip4_header *)ip;
	unsigned header = ip4_header_length(ip4);
	uint64_t addresses;
	uint32_t ports = 0;

	memcpy(&addresses, &ip4->source, sizeof(addresses));
	if ((ip4->protocol == PROTOCOL_TCP || ip4->protocol == PROTOCOL_UDP) &&
		(ip4->fragment & RTE_BE16(IP4_MF | IP4_OFFSET)) == 0 && length >= header + sizeof(ports))
		memcpy(&ports, ip + header, sizeof(ports));
	return spread(addresses, (uint64_t)ip4->protocol << 32 | ports);
}

static inline uint32_t
flow6(const uint8_t *ip, size_t length)
{
	const struct ip6_header *ip6 = (const struct ip6_header *)ip;
	uint64_t words[4];
	uint32_t ports = 0;

	memcpy(words, ip6->source, sizeof(words));
	if ((ip6->next_header == PROTOCOL_TCP || ip6->next_header == PROTOCOL_UDP) &&
		length >= sizeof(*ip6) + sizeof(ports))
		memcpy(&ports, ip + sizeof(*ip6), sizeof(ports));
	return spread(words[0] ^ (words[2] << 17 | words[2] >> 47) ^ (words[1] << 31 | words[1] >> 33) ^ words[3],
		(uint64_t)ip6->next_header << 32 | ports);
}

// Of a frame: its addresses and type.
static inline uint32_t
flow_frame(const uint8_t *frame, size_t length)
{
	uint64_t words[2] = {0};

	memcpy(words, frame, RTE_MIN(length, (size_t)RTE_ETHER_HDR_LEN));
	return spread(words[0], words[1]);
}

// What the outer header has of the inner packet, or frame (family 0): the number of its flow, and its DSCP.
static inline uint32_t
inner_flow(const uint8_t *inner, size_t length, uint8_t family, uint8_t *dscp)
{
	if (likely(family == 4)) {
		*dscp = inner[1] & DSCP_MASK;
		return flow4(inner, length);
	}
	if (likely(family == 6)) {
		*dscp = (uint8_t)(inner[0] << 4 | inner[1] >> 4) & DSCP_MASK;
		return flow6(inner, length);
	}
	*dscp = 0;
	return flow_frame(inner, length);
}

// The QFI that a downlink packet, or frame (family 0), of this flow asked for, or the one that it has if none did.
static uint8_t
reflect(const uint8_t *inner, size_t length, uint8_t family, const struct gtpu_tunnel *t, uint8_t qfi)
{
	uint32_t now = worker_second();
	uint64_t flow;
	int reflected;

	if (now - __atomic_load_n(&t->reflecting, __ATOMIC_RELAXED) > REFLECT_SECONDS)
		return qfi;
	flow = family == 0 ? reflect_frame(t->rules, inner, length, false)
			   : reflect_flow(t->rules, inner, length, false);
	reflected = flow ? reflect_find(flow, now) : REFLECT_NONE;
	return reflected == REFLECT_NONE ? qfi : (uint8_t)reflected;
}

static inline bool
has_choice(const struct packet *p, const struct gtpu_tunnel *t)
{
	return (t->flags & TUNNEL_REFLECTIVE) | (p->flags & (PACKET_FLOW | PACKET_QFI));
}

// The QFI over the template's own, and the DSCP outside of it: what a signalled rule says, what a derived one does (which has its
// place among them, TS 24.501 section 6.2.5.1.4), or the tunnel's.
static uint8_t
choose(uint8_t *inner, size_t length, struct packet *p, const struct gtpu_tunnel *t, uint8_t dscp)
{
	uint8_t qfi = (p->flags & (PACKET_FLOW | PACKET_QFI)) && p->qfi != NO_QFI ? p->qfi : t->qfi;
	struct flow_mark mark;

	if ((t->flags & TUNNEL_REFLECTIVE) && !(p->flags & (PACKET_FLOW_FIRM | PACKET_QFI)))
		qfi = reflect(inner, length, p->family, t, qfi);
	if (t->flags & TUNNEL_CONTAINER)
		inner[-QFI_BEFORE] = qfi;
	if (!(p->flags & PACKET_FLOW))
		return dscp;
	mark = flow_mark_of(p->session, qfi);
	// Where it waits its class is known already.
	if (p->queue == 0)
		p->class = mark.class;
	return mark.dscp < 0 ? dscp : (uint8_t)(mark.dscp << 2);
}

static inline void
prefetch_tunnel(struct rte_mbuf *m, size_t line)
{
	rte_prefetch0((const uint8_t *)tunnel_at(session_at(packet_of(m)->session)->core) + line);
}

// Why a packet is not simply wrapped. A session whose tunnel changes its IP version while packets are on the way has both nodes
// in its chains for a moment. One that is too large for the way is cut before, so that the UPF need not put it together, or
// its sender is told (RFC 4459 section 3.1): WRAP if it goes on as it is, and the outer packet is cut.
static uint16_t
consider(const struct rte_mbuf *m, struct packet *p, const struct gtpu_tunnel *t, const struct node *self)
{
	const struct ip4_header *ip = rte_pktmbuf_mtod(m, const struct ip4_header *);
	unsigned room = gtpu_path_mtu[t->path];

	if ((t->family == 4 ? &gtpu_encap_node : &gtpu_encap6_node) != self)
		return t->family == 4 ? gtpu_encap_node.id : gtpu_encap6_node.id;
	if (room == 0 && gtpu_path_is_down(t->path))
		return packet_drop(p, &drop_path);
	if (m->data_off < GTPU_ENCAP6)
		return packet_drop(p, &drop_headroom);
	if (m->pkt_len + t->length > MOST)
		return packet_drop(p, &drop_large);
	room = room > t->length ? room - t->length : 0;
	if (p->family == 0 || m->pkt_len <= room || room < (p->family == 4 ? IP4_LEAST : IP6_LEAST) ||
		(p->flags & PACKET_OURS))
		return WRAP;
	if (p->family != 4)
		return packet_icmp_error(p, ICMP6_TOO_BIG, 0, (uint16_t)room, &drop_large);
	if (ip->fragment & RTE_BE16(IP4_DF))
		return packet_icmp_error(p, ICMP4_UNREACHABLE, ICMP4_FRAGMENTATION_NEEDED, (uint16_t)room, &drop_large);
	return packet_fragment(p, (uint16_t)room, self);
}

static inline void
send_outer(struct rte_mbuf *m, struct packet *p, const struct gtpu_tunnel *t)
{
	packet_advance(m, -t->length);
	p->vrf = t->vrf;
	p->flags |= PACKET_OURS | PACKET_TUNNELLED;
	p->family = t->family;
	p->l2_length = 0;
}

static RTE_DEFINE_PER_LCORE(uint16_t, identification);

static void
gtpu_encap_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST], to = ip4_lookup_node.id, id = RTE_PER_LCORE(identification);

	RTE_PER_LCORE(identification) = (uint16_t)(id + count);
	for (uint16_t i = 0; i < RTE_MIN(count, AHEAD); i++)
		prefetch_tunnel(packets[i], 0);
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const struct gtpu_tunnel *t = tunnel_at(session_at(p->session)->core);
		uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *), *outer = ip - t->length,
			*udp = outer + sizeof(struct ip4_header);
		uint32_t total = m->pkt_len + t->length, flow, sum;
		uint8_t dscp;
		uint16_t identity = (uint16_t)(id + i);

		if (i + AHEAD < count)
			prefetch_tunnel(packets[i + AHEAD], 0);
		if (unlikely(t->family != 4 || m->data_off < GTPU_ENCAP6 || total > gtpu_path_mtu[t->path])) {
			next[i] = consider(m, p, t, &gtpu_encap_node);
			if (next[i] != WRAP)
				continue;
		}
		flow = inner_flow(ip, m->data_len, p->family, &dscp);
		rte_mov64(ip - RTE_CACHE_LINE_SIZE, (const uint8_t *)t);
		if (unlikely(has_choice(p, t)))
			dscp = choose(ip, m->data_len, p, t, dscp);

		sum = t->checksum + ((uint32_t)dscp << 8) + rte_cpu_to_be_16((uint16_t)total) + identity;
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		outer[1] = dscp;
		put16(outer + IP4_LENGTH, (uint16_t)total);
		memcpy(outer + IP4_ID, &identity, sizeof(identity));
		memcpy(outer + IP4_CHECKSUM, &(uint16_t){(uint16_t)~sum}, sizeof(uint16_t));
		put16(udp, (uint16_t)(FIRST_PORT | (flow & 0x3fff)));
		put16(udp + UDP_LENGTH, (uint16_t)(total - sizeof(struct ip4_header)));
		put16(udp + UDP_HEADER + GTPU_LENGTH,
			(uint16_t)(total - sizeof(struct ip4_header) - UDP_HEADER - GTPU_HEADER));
		send_outer(m, p, t);
		p->family = 4;
		next[i] = to;
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
gtpu_encap(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, gtpu_encap_burst);
}

// RFC 8200 section 8.1: over IPv6 UDP has a checksum. The tunnel has the sum of the template's part of it.
static void
put_checksum6(uint8_t *udp, const struct gtpu_tunnel *t, uint16_t udp_length, uint16_t inner)
{
	uint64_t sum = t->checksum + (uint64_t)rte_cpu_to_be_16(udp_length) * 2 + inner;
	uint16_t word;

	memcpy(&word, udp, sizeof(word)); // source port
	sum += word;
	memcpy(&word, udp + UDP_HEADER + GTPU_LENGTH, sizeof(word));
	sum += word;
	word = (uint16_t)~checksum_fold(sum);
	word = word ? word : UINT16_MAX;
	memcpy(udp + UDP_CHECKSUM, &word, sizeof(word));
}

static inline bool
inner_sum(const struct rte_mbuf *m, uint16_t *sum)
{
	if (likely(m->nb_segs == 1)) {
		*sum = rte_raw_cksum(rte_pktmbuf_mtod(m, const void *), m->data_len);
		return true;
	}
	return rte_raw_cksum_mbuf(m, 0, m->pkt_len, sum) == 0;
}

static void
gtpu_encap6_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST], to = ip6_lookup_node.id;

	for (uint16_t i = 0; i < count; i++) {
		prefetch_tunnel(packets[i], 0);
		prefetch_tunnel(packets[i], offsetof(struct gtpu_tunnel, header6));
	}
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const struct gtpu_tunnel *t = tunnel_at(session_at(p->session)->core);
		uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *), *outer = ip - t->length,
			*udp = outer + sizeof(struct ip6_header);
		uint32_t payload = m->pkt_len + t->length - sizeof(struct ip6_header), flow, word;
		uint16_t sum;
		uint8_t dscp, qfi;

		if (unlikely(t->family != 6 || m->data_off < GTPU_ENCAP6 ||
			     m->pkt_len + t->length > gtpu_path_mtu[t->path])) {
			next[i] = consider(m, p, t, &gtpu_encap6_node);
			if (next[i] != WRAP)
				continue;
		}
		if (unlikely(!inner_sum(m, &sum))) {
			next[i] = packet_drop(p, &drop_large);
			continue;
		}
		flow = inner_flow(ip, m->data_len, p->family, &dscp);
		rte_mov64(ip - GTPU_ENCAP6, t->header6);
		if (unlikely(has_choice(p, t))) {
			qfi = ip[-QFI_BEFORE];
			dscp = choose(ip, m->data_len, p, t, dscp);
			// The QFI is the first byte of its word, whose second is 0.
			sum = checksum_fold((uint64_t)sum + ip[-QFI_BEFORE] + (uint16_t) ~(uint16_t)qfi);
		}
		// RFC 6438: the flow label spreads, too.
		word = rte_cpu_to_be_32(6u << 28 | (uint32_t)dscp << 20 | (flow & 0xfffff));
		memcpy(outer, &word, sizeof(word));
		put16(outer + IP6_LENGTH, (uint16_t)payload);
		put16(udp, (uint16_t)(FIRST_PORT | (flow & 0x3fff)));
		put16(udp + UDP_LENGTH, (uint16_t)payload);
		put16(udp + UDP_HEADER + GTPU_LENGTH, (uint16_t)(payload - UDP_HEADER - GTPU_HEADER));
		put_checksum6(udp, t, (uint16_t)payload, sum);
		send_outer(m, p, t);
		p->family = 6;
		next[i] = to;
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
gtpu_encap6(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, gtpu_encap6_burst);
}

static void
gtpu_encap_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	const struct gtpu_tunnel *t = tunnel_at(session_at(p->session)->core);

	snprintf(text, size, "session %s: tunnel over IPv%u in vrf %s, %u bytes of header%s", session_name(p->session),
		t->family, vrf_name(t->vrf), t->length,
		t->flags & TUNNEL_CONTAINER ? " with a PDU session container" : "");
}

struct node gtpu_encap_node = {.name = "gtpu-encap", .process = gtpu_encap, .describe = gtpu_encap_describe};
struct node gtpu_encap6_node = {.name = "gtpu-encap6", .process = gtpu_encap6, .describe = gtpu_encap_describe};
NODE_REGISTER(gtpu_encap_node)
NODE_REGISTER(gtpu_encap6_node)
