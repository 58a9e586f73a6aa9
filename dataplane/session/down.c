// SPDX-License-Identifier: Apache-2.0
// To the subscriber: count its packets, send them through the steps of the session, and put on the header of the access side.
#include <stdio.h>

#include <rte_prefetch.h>
#include <rte_memcpy.h>

#include "core/burst.h"
#include "core/punt.h"
#include "fib/hop.h"
#include "inet/header.h"
#include "ip/fragment.h"
#include "ip/icmp.h"
#include "port/mac.h"
#include "session/header.h"
#include "session/record.h"

enum {
	PREFETCH_DISTANCE = 32, // packets whose session's lines are on their way from memory
	SOON = 8,               // from a nearer cache
};

DROP(drop_session_ttl, "ttl-expired-to-session", "The TTL or hop limit of a packet for a subscriber was used up.")
DROP(drop_session_mtu, "session-mtu",
	"A packet for a subscriber is larger than the session's MTU and may not be fragmented.")
DROP(drop_session_headroom, "session-no-headroom", "There was no room in the buffer for the header of the access side.")

static void
session_down_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct session_counters *counters = counters_row(&session_counters);
	uint16_t next[BURST];
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < RTE_MIN(count, PREFETCH_DISTANCE); i++)
		session_prefetch(packets[i], DOWN, counters);
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const struct session *s = session_at(p->session);
		struct session_counters *c = &counters[p->session];

		if (i + PREFETCH_DISTANCE < count)
			session_prefetch(packets[i + PREFETCH_DISTANCE], DOWN, counters);
		p->counted = (uint16_t)m->pkt_len;
		c->packets[DOWN]++;
		c->bytes[DOWN] += m->pkt_len;
		bytes += m->pkt_len;
		p->direction = DOWN;
		p->chain = p->family == 4 ? s->down4 : s->down6;
		next[i] = packet_step(p);
	}
	session_count_all(counters, DOWN, count, bytes);
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
session_down(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, session_down_burst);
}

static void
session_down_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	snprintf(text, size, "for session %s", session_name(p->session));
}

// A packet that is larger than the session's MTU; `self` gets its fragments.
static uint16_t
too_large(struct rte_mbuf *m, struct packet *p, uint16_t mtu, const struct node *self)
{
	const struct session *s = session_at(p->session);
	const struct ip4_header *ip = rte_pktmbuf_mtod(m, const struct ip4_header *);

	if ((p->family == 4 && !(ip->fragment & RTE_BE16(IP4_DF))) || (p->flags & PACKET_OURS))
		return packet_fragment(p, mtu, self);
	// The sender of a packet from a tunnel gets its ICMP error through the session's own uplink, from an address of its VRF.
	if (!(p->flags & PACKET_ROUTED))
		p->vrf = s->vrf;
	return p->family == 4
		       ? packet_icmp_error(p, ICMP4_UNREACHABLE, ICMP4_FRAGMENTATION_NEEDED, mtu, &drop_session_mtu)
		       : packet_icmp_error(p, ICMP6_TOO_BIG, 0, mtu, &drop_session_mtu);
}

// A packet that cannot be sent: it is larger than the MTU, or the subscriber's Ethernet address is not known yet.
static uint16_t
unsendable(struct rte_mbuf *m, struct packet *p)
{
	uint16_t mtu = session_details[p->session].mtu;

	if (m->data_off < SESSION_HEADER_ROOM)
		return packet_drop(p, &drop_session_headroom);
	// Packets that wait for the MAC are sent, too, if it has become known since.
	if (!session_mac_known(session_at(p->session)) || m->pkt_len <= mtu)
		return session_resolve(p);
	return too_large(m, p, mtu, &session_out_node);
}

// Decrement TTL or hop limit (RFC 1812 section 5.3.1, RFC 8200 section 3). False: it was used up.
static inline bool
age(uint8_t *ip, uint8_t family)
{
	struct ip4_header *ip4 = (struct ip4_header *)ip;
	struct ip6_header *ip6 = (struct ip6_header *)ip;
	uint32_t word;

	if (family != 4) {
		if (ip6->hop_limit <= 1)
			return false;
		ip6->hop_limit--;
		return true;
	}
	if (ip4->ttl <= 1)
		return false;
	memcpy(&word, &ip4->ttl, sizeof(word));
	word = ip4_age(word, 1);
	memcpy(&ip4->ttl, &word, sizeof(word));
	return true;
}

// The last four bytes of a header are a length and the payload's type, or two bytes of its own and the type.
static inline void
put_header(uint8_t *ip, const struct session *s, const struct packet *p, uint32_t length)
{
	const struct session_frame *frame = &session_frames[s->access % SESSION_ACCESSES];
	uint16_t own, type = frame->types[p->family != 4];
	uint32_t tail;

	rte_mov32(ip - SESSION_HEADER_ROOM, s->header);
	memcpy(&own, s->header + SESSION_HEADER_ROOM - 4, sizeof(own));
	tail = frame->has_length ? rte_cpu_to_be_16((uint16_t)(length + frame->more)) : own;
	tail |= (uint32_t)type << 16;
	memcpy(ip - 4, &tail, sizeof(tail));
	if (frame->finish)
		frame->finish(ip, p);
}

// IEEE 802.1Q section 9.6: the priority code point is the upper three bits of each tag.
static void
put_priority(uint8_t *frame, const struct session *s, uint8_t priority)
{
	enum { FIRST_TAG = 14, TAG = 4 };
	unsigned behind = session_frames[s->access % SESSION_ACCESSES].behind;

	for (unsigned at = FIRST_TAG; at + behind < s->header_length; at += TAG)
		frame[at] = (uint8_t)((frame[at] & 0x1f) | priority << 5);
}

// The record by which a packet leaves that does not by the session's own as that was: of a session that is on its way to another access,
// or that has arrived there since. NULL: there is none.
static const struct session *
record_of(const struct rte_mbuf *m, const struct packet *p)
{
	const struct session *s = session_at(p->session);
	const struct session_detail *detail = &session_details[p->session];
	const struct session_move *move = session_leaving(detail);

	if (m->data_off < SESSION_HEADER_ROOM || !session_mac_known(s) || m->pkt_len > detail->mtu)
		return NULL;
	if (move)
		return session_mac_known(&move->record) ? &move->record : NULL;
	return m->pkt_len <= __atomic_load_n(&s->mtu, __ATOMIC_ACQUIRE) ? s : NULL;
}

static uint16_t
expired(struct packet *p)
{
	return packet_icmp_error(
		p, p->family == 4 ? ICMP4_TIME_EXCEEDED : ICMP6_TIME_EXCEEDED, 0, 0, &drop_session_ttl);
}

static inline uint16_t
leave(struct rte_mbuf *m, struct packet *p, const struct session *s)
{
	uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *);

	if ((p->flags & PACKET_ROUTED) && unlikely(!age(ip, p->family)))
		return expired(p);
	put_header(ip, s, p, m->pkt_len);
	packet_advance(m, -s->header_length);
	if (unlikely(p->priority != 0))
		put_priority(rte_pktmbuf_mtod(m, uint8_t *), s, p->priority);
	m->port = s->port;
	return tx_node.id;
}

static __rte_noinline uint16_t
leave_otherwise(struct rte_mbuf *m, struct packet *p)
{
	const struct session *s = record_of(m, p);

	return s ? leave(m, p, s) : unsendable(m, p);
}

static void
session_out_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const struct session *s = session_at(p->session);

		if (i + SOON < count) {
			struct rte_mbuf *later = packets[i + SOON];

			rte_prefetch0(&session_at(packet_of(later)->session)->down4);
			rte_prefetch0(rte_pktmbuf_mtod(later, uint8_t *) - SESSION_HEADER_ROOM);
		}
		// If the MTU is not 0, the fields of the record behind it are consistent.
		if (unlikely(m->pkt_len > __atomic_load_n(&s->mtu, __ATOMIC_ACQUIRE) ||
			     m->data_off < SESSION_HEADER_ROOM))
			next[i] = leave_otherwise(m, p);
		else
			next[i] = leave(m, p, s);
	}
	node_dispatch(graph, node, packets, next, count);
}

static void
session_point_out_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		uint16_t mtu = __atomic_load_n(&session_details[p->session].mtu, __ATOMIC_RELAXED);

		if (unlikely(m->pkt_len > mtu))
			next[i] = too_large(m, p, mtu, &session_point_out_node);
		else if ((p->flags & PACKET_ROUTED) && unlikely(!age(rte_pktmbuf_mtod(m, uint8_t *), p->family)))
			next[i] = expired(p);
		else
			next[i] = packet_step(p);
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
session_point_out(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, session_point_out_burst);
}

static void
session_point_out_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	char access[64];

	session_describe_access(&session_details[p->session].key, access, sizeof(access));
	snprintf(text, size, "session %s: %s", session_name(p->session), access);
}

static uint16_t
session_out(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, session_out_burst);
}

static void
session_out_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	const struct session *s = session_at(p->session);
	const struct session_detail *detail = &session_details[p->session];
	char mac[MAC_TEXT_SIZE] = "not known yet", access[64];
	int n;

	if (session_mac_known(s))
		mac_text(mac, &s->seen);
	n = snprintf(text, size, "session %s: port %s, VLAN %u.%u, ", session_name(p->session), port_name(s->port),
		detail->key.circuit.outer_vlan, detail->key.circuit.inner_vlan);
	if (n < 0 || (size_t)n >= size)
		return;
	session_describe_access(&detail->key, access, sizeof(access));
	snprintf(text + n, size - (size_t)n, "%s, to %s", access, mac);
}

struct node session_down_node = {
	.name = "session-down", .process = session_down, .describe = session_down_describe, .steps = true};
struct node session_out_node = {.name = "session-out",
	.process = session_out,
	.describe = session_out_describe,
	.edges = NODE_EDGES(&tx_node, &punt_node, &ip_fragment_node, &icmp_error_node)};
NODE_REGISTER(session_down_node)
struct node session_point_out_node = {.name = "session-point-out",
	.process = session_point_out,
	.describe = session_point_out_describe,
	.edges = NODE_EDGES(&ip_fragment_node, &icmp_error_node),
	.steps = true};
NODE_REGISTER(session_out_node)
NODE_REGISTER(session_point_out_node)
