// SPDX-License-Identifier: Apache-2.0
// Uplink into the tunnel: the outer header is copied from the tunnel, the fields of the packet are stored over it,
// and the outer packet is looked up in the tunnel's VRF (TS 29.281 section 4.4).
//
// UDP's source port is chosen by the inner flow (section 4.4.2.0 leaves it to the sender), so that routers between
// here and the UPF can spread flows. The inner DSCP is copied outside unless the packet's QoS flow has another. ECN
// is copied (RFC 6040 section 4.1, normal mode) unless the session disables that.
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#include <rte_ip.h>
#include <rte_memcpy.h>
#include <rte_prefetch.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/worker.h"
#include "fib/hop.h"
#include "fib/vrf.h"
#include "flow/flow.h"
#include "gtpu/reflect.h"
#include "gtpu/tunnel.h"
#include "inet/field.h"
#include "inet/header.h"
#include "ip/ecn.h"
#include "ip/fragment.h"
#include "ip/icmp.h"
#include "ip/identification.h"

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
	IP_MAX_LENGTH = UINT16_MAX, // an IP packet, in bytes
	IP4_MIN_MTU = 68,           // an MTU that is none less (RFC 791, RFC 8200 section 5)
	IP6_MIN_MTU = 1280,
	WRAP = UINT16_MAX,      // no edge
	PREFETCH_DISTANCE = 16, // packets whose tunnel's line is on its way
};

DROP(drop_headroom, "gtpu-no-headroom", "There was no room in the buffer for the tunnel's header.")
DROP(drop_path, "gtpu-path-down", "The user plane function at the tunnel's far end no longer answers echo requests.")
DROP(drop_large, "gtpu-too-large", "With the tunnel's header the packet would be larger than its way takes.")

// Source ports and flow labels are unknown to hosts that do not see our packets (RFC 6437 section 3).
static uint64_t secret;

int
gtpu_encap_start(void)
{
	return getentropy(&secret, sizeof(secret)) ? -errno : 0;
}

static inline uint32_t
spread(uint64_t a, uint64_t b)
{
	uint64_t hash = ((a ^ secret) * 0x9e3779b97f4a7c15u) ^ ((b + 0x7f4a7c15) * 0xff51afd7ed558ccdu);

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

// The fields of the outer header that depend on the inner packet, or frame (family 0): the number of its flow, and its traffic class.
static inline uint32_t
inner_flow(const uint8_t *inner, size_t length, uint8_t family, uint8_t *class)
{
	if (likely(family == 4)) {
		*class = ip_traffic_class(inner, 4);
		return flow4(inner, length);
	}
	if (likely(family == 6)) {
		*class = ip_traffic_class(inner, 6);
		return flow6(inner, length);
	}
	*class = 0;
	return flow_frame(inner, length);
}

// Where outer headers say the flow: in UDP's source port and, over IPv6, in the flow label (RFC 6438). They have two bits in common.
static inline uint16_t
flow_port(uint32_t flow)
{
	return (uint16_t)(FIRST_PORT | (flow & 0x3fff));
}

static inline uint32_t
flow_label(uint32_t flow)
{
	return flow >> 12;
}

// The offset of the GTP-U header in an IPv6 packet whose UDP header can be read; 0: it is not a packet of our tunnels. Of
// fragments, only the first one has the header.
static size_t
find_gtpu6(const uint8_t *packet, size_t length, uint16_t *port)
{
	size_t at = sizeof(struct ip6_header);
	uint8_t next = ((const struct ip6_header *)packet)->next_header;

	if (next == PROTOCOL_FRAGMENT) {
		if (length < at + 8 || packet[at + 2] != 0 || (packet[at + 3] & 0xf8) != 0)
			return 0;
		next = packet[at];
		at += 8;
	}
	if (next != PROTOCOL_UDP || length < at + UDP_HEADER + GTPU_HEADER + GTPU_OPTIONAL + GTPU_CONTAINER)
		return 0;
	if ((packet[at + 2] << 8 | packet[at + 3]) != GTPU_PORT)
		return 0;
	*port = (uint16_t)(packet[at] << 8 | packet[at + 1]);
	return at + UDP_HEADER;
}

bool
gtpu_could_send6(const uint8_t *packet, size_t length)
{
	uint32_t label = gtpu_read_32(packet) & 0xfffff, flow;
	uint16_t port;
	size_t at = find_gtpu6(packet, length, &port);
	uint8_t family, tos;

	if (at == 0 || packet[at + 1] != GTPU_G_PDU)
		return false;
	if (packet[at] == GTPU_VERSION_1)
		at += GTPU_HEADER;
	else if (packet[at] == (GTPU_VERSION_1 | GTPU_E))
		at += GTPU_HEADER + GTPU_OPTIONAL + GTPU_CONTAINER;
	else
		return false;
	family = length > at ? packet[at] >> 4 : 0;
	if ((family == 4 && length >= at + sizeof(struct ip4_header)) ||
		(family == 6 && length >= at + sizeof(struct ip6_header))) {
		flow = inner_flow(packet + at, length - at, family, &tos);
		if (port == flow_port(flow) && label == flow_label(flow))
			return true;
	}
	// A frame may begin as a packet does.
	flow = inner_flow(packet + at, length - at, 0, &tos);
	return port == flow_port(flow) && label == flow_label(flow);
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
	return (t->flags & TUNNEL_REFLECTIVE) | (p->flags & (packet_flow.mask | PACKET_QFI));
}

// Write the packet's QFI over the template's: that of a signalled rule, of a derived rule (whose precedence is among theirs,
// TS 24.501 section 6.2.5.1.4), or of the tunnel. `class` is the outer traffic class. Returns it with the DSCP of the flow.
static uint8_t
choose(uint8_t *inner, size_t length, struct packet *p, const struct gtpu_tunnel *t, uint8_t class)
{
	uint8_t qfi = (p->flags & (packet_flow.mask | PACKET_QFI)) && p->qfi != NO_QFI ? p->qfi : t->qfi;
	struct flow_mark mark;

	if ((t->flags & TUNNEL_REFLECTIVE) && !(p->flags & (packet_flow_firm.mask | PACKET_QFI)))
		qfi = reflect(inner, length, p->family, t, qfi);
	if (t->flags & TUNNEL_CONTAINER)
		inner[-QFI_BEFORE] = qfi;
	if (!(p->flags & packet_flow.mask))
		return class;
	mark = flow_mark_of(p->session, qfi);
	// Where it waits its class is known already.
	if (p->queue == 0)
		p->class = mark.class;
	return mark.dscp < 0 ? class : (uint8_t)(mark.dscp << 2 | (class & ECN_MASK));
}

static inline void
prefetch_tunnel(struct rte_mbuf *m, size_t line)
{
	rte_prefetch0((const uint8_t *)tunnel_at(session_at(packet_of(m)->session)->core) + line);
}

// Packets that need more than a header. A session whose tunnel changes its IP version while packets are on the way has both nodes
// in its chains for a moment. A packet that is too large for the path is fragmented before, so that the UPF need not reassemble it, or
// its sender gets an ICMP error (RFC 4459 section 3.1). WRAP: the packet goes on, and the outer packet is fragmented.
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
	if (m->pkt_len + t->length > IP_MAX_LENGTH)
		return packet_drop(p, &drop_large);
	room = room > t->length ? room - t->length : 0;
	if (p->family == 0 || m->pkt_len <= room || room < (p->family == 4 ? IP4_MIN_MTU : IP6_MIN_MTU) ||
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

// How many packets each worker sent on each path: so many of its identifications are used there.
static uint16_t identified[WORKER_MAX + 1][PATHS_LIMIT];

static void
gtpu_encap_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST], to = ip4_lookup_node.id, *used = identified[worker_self()->index];
	const unsigned bits = identification_bits(), self = worker_self()->index;

	for (uint16_t i = 0; i < RTE_MIN(count, PREFETCH_DISTANCE); i++)
		prefetch_tunnel(packets[i], 0);
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const struct gtpu_tunnel *t = tunnel_at(session_at(p->session)->core);
		uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *), *outer = ip - t->length,
			*udp = outer + sizeof(struct ip4_header);
		uint32_t total = m->pkt_len + t->length, flow, sum;
		uint8_t class;
		uint16_t identity;

		if (i + PREFETCH_DISTANCE < count)
			prefetch_tunnel(packets[i + PREFETCH_DISTANCE], 0);
		if (unlikely(t->family != 4 || m->data_off < GTPU_ENCAP6 || total > gtpu_path_mtu[t->path])) {
			next[i] = consider(m, p, t, &gtpu_encap_node);
			if (next[i] != WRAP)
				continue;
		}
		flow = inner_flow(ip, m->data_len, p->family, &class);
		class = (uint8_t)(class & ~(t->flags & TUNNEL_CLEAR_ECN));
		rte_mov64(ip - RTE_CACHE_LINE_SIZE, (const uint8_t *)t);
		if (unlikely(has_choice(p, t)))
			class = choose(ip, m->data_len, p, t, class);

		identity = (uint16_t)(used[t->path]++ << bits | self);
		sum = t->checksum + ((uint32_t) class << 8) + rte_cpu_to_be_16((uint16_t)total) + identity;
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		outer[1] = class;
		put16(outer + IP4_LENGTH, (uint16_t)total);
		memcpy(outer + IP4_ID, &identity, sizeof(identity));
		memcpy(outer + IP4_CHECKSUM, &(uint16_t){(uint16_t)~sum}, sizeof(uint16_t));
		put16(udp, flow_port(flow));
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
		uint16_t sum, path_mtu = __atomic_load_n(&gtpu_path_mtu[t->path], __ATOMIC_RELAXED);
		uint8_t class, qfi;

		if (unlikely(t->family != 6 || m->data_off < GTPU_ENCAP6 || m->pkt_len + t->length > path_mtu)) {
			next[i] = consider(m, p, t, &gtpu_encap6_node);
			if (next[i] != WRAP)
				continue;
		}
		if (unlikely(!inner_sum(m, &sum))) {
			next[i] = packet_drop(p, &drop_large);
			continue;
		}
		flow = inner_flow(ip, m->data_len, p->family, &class);
		class = (uint8_t)(class & ~(t->flags & TUNNEL_CLEAR_ECN));
		rte_mov64(ip - GTPU_ENCAP6, t->header6);
		if (unlikely(has_choice(p, t))) {
			qfi = ip[-QFI_BEFORE];
			class = choose(ip, m->data_len, p, t, class);
			// The QFI is the first byte of its word, whose second is 0.
			sum = checksum_fold((uint64_t)sum + ip[-QFI_BEFORE] + (uint16_t) ~(uint16_t)qfi);
		}
		// RFC 6438: the flow label spreads, too.
		word = rte_cpu_to_be_32(6u << 28 | (uint32_t) class << 20 | flow_label(flow));
		memcpy(outer, &word, sizeof(word));
		put16(outer + IP6_LENGTH, (uint16_t)payload);
		put16(udp, flow_port(flow));
		put16(udp + UDP_LENGTH, (uint16_t)payload);
		put16(udp + UDP_HEADER + GTPU_LENGTH, (uint16_t)(payload - UDP_HEADER - GTPU_HEADER));
		put_checksum6(udp, t, (uint16_t)payload, sum);
		send_outer(m, p, t);
		p->family = 6;
		next[i] = to;
		// Oversized packets are fragmented here, because no router on the path may (RFC 8200 section 4.5).
		if (unlikely(m->pkt_len > path_mtu && path_mtu >= IP6_MIN_MTU))
			next[i] = packet_fragment(p, path_mtu, &ip6_lookup_node);
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

struct node gtpu_encap_node = {.name = "gtpu-encap",
	.process = gtpu_encap,
	.describe = gtpu_encap_describe,
	.edges = NODE_EDGES(&ip4_lookup_node, &gtpu_encap6_node, &ip_fragment_node, &icmp_error_node)};
struct node gtpu_encap6_node = {.name = "gtpu-encap6",
	.process = gtpu_encap6,
	.describe = gtpu_encap_describe,
	.edges = NODE_EDGES(&ip6_lookup_node, &gtpu_encap_node, &ip_fragment_node, &icmp_error_node)};
NODE_REGISTER(gtpu_encap_node)
NODE_REGISTER(gtpu_encap6_node)
