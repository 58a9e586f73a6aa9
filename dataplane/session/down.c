// To the subscriber: its packets are counted, go through what the session uses, and get the header of its access side.
#include <stdio.h>

#include <rte_prefetch.h>
#include <rte_memcpy.h>

#include "core/burst.h"
#include "ip/fragment.h"
#include "ip/header.h"
#include "ip/hop.h"
#include "ip/icmp.h"
#include "port/mac.h"
#include "session/header.h"
#include "session/record.h"

enum {
	PPP_IP4 = 0x0021,
	PPP_IP6 = 0x0057,
	PPP_PROTOCOL_BYTES = 2,
	AHEAD = 32, // packets whose session's lines are on their way from memory
	SOON = 8,   // from a nearer cache
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

	for (uint16_t i = 0; i < RTE_MIN(count, AHEAD); i++)
		session_prefetch(packets[i], DOWN, counters);
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const struct session *s = session_at(p->session);
		struct session_counters *c = &counters[p->session];

		if (i + AHEAD < count)
			session_prefetch(packets[i + AHEAD], DOWN, counters);
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

// What cannot be sent: larger than the MTU, or nobody knows yet to which Ethernet address.
static uint16_t
unsendable(struct rte_mbuf *m, struct packet *p)
{
	const struct session *s = session_at(p->session);
	const struct ip4_header *ip = rte_pktmbuf_mtod(m, const struct ip4_header *);
	uint16_t mtu = session_details[p->session].mtu;

	if (m->data_off < SESSION_HEADER_ROOM)
		return packet_drop(p, &drop_session_headroom);
	// Whoever waits for a MAC is sent, too, if it has become known since.
	if (!session_mac_known(s) || m->pkt_len <= mtu)
		return session_resolve(p);
	if ((p->family == 4 && !(ip->fragment & RTE_BE16(IP4_DF))) || (p->flags & PACKET_OURS))
		return packet_fragment(p, mtu, &session_out_node);
	// Who sent what came out of a tunnel is told by the session's own way up, from an address of its VRF.
	if (!(p->flags & PACKET_ROUTED))
		p->vrf = s->vrf;
	return p->family == 4
		       ? packet_icmp_error(p, ICMP4_UNREACHABLE, ICMP4_FRAGMENTATION_NEEDED, mtu, &drop_session_mtu)
		       : packet_icmp_error(p, ICMP6_TOO_BIG, 0, mtu, &drop_session_mtu);
}

// RFC 1812 section 5.3.1, RFC 8200 section 3: who passes a packet on counts it down. False: it may not go on.
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

// The last four bytes of a header are PPPoE's length and PPP's protocol, or two of its own and the Ethernet type.
static inline void
put_header(uint8_t *ip, const struct session *s, uint8_t family, uint32_t length)
{
	static const uint16_t types[2][2] = {
		{RTE_BE16(RTE_ETHER_TYPE_IPV4), RTE_BE16(RTE_ETHER_TYPE_IPV6)},
		{RTE_BE16(PPP_IP4), RTE_BE16(PPP_IP6)},
	};
	uint16_t own, type = types[s->pppoe & 1][family != 4];
	uint32_t tail;

	rte_mov32(ip - SESSION_HEADER_ROOM, s->header);
	memcpy(&own, s->header + SESSION_HEADER_ROOM - 4, sizeof(own));
	tail = s->pppoe ? rte_cpu_to_be_16((uint16_t)(length + PPP_PROTOCOL_BYTES)) : own;
	tail |= (uint32_t)type << 16;
	memcpy(ip - 4, &tail, sizeof(tail));
}

// IEEE 802.1Q section 9.6: the priority code point is the upper three bits of each tag.
static void
put_priority(uint8_t *frame, const struct session *s, uint8_t priority)
{
	enum { FIRST_TAG = 14, TAG = 4 };
	unsigned behind = s->pppoe ? PPPOE_OVERHEAD : 0;

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

static inline uint16_t
leave(struct rte_mbuf *m, struct packet *p, const struct session *s)
{
	uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *);

	if ((p->flags & PACKET_ROUTED) && unlikely(!age(ip, p->family)))
		return packet_icmp_error(
			p, p->family == 4 ? ICMP4_TIME_EXCEEDED : ICMP6_TIME_EXCEEDED, 0, 0, &drop_session_ttl);
	put_header(ip, s, p->family, m->pkt_len);
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
		// What is read of the record behind its MTU is whole if that is not 0.
		if (unlikely(m->pkt_len > __atomic_load_n(&s->mtu, __ATOMIC_ACQUIRE) ||
			     m->data_off < SESSION_HEADER_ROOM))
			next[i] = leave_otherwise(m, p);
		else
			next[i] = leave(m, p, s);
	}
	node_dispatch(graph, node, packets, next, count);
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
	char mac[MAC_TEXT_SIZE] = "not known yet";
	int n;

	if (session_mac_known(s))
		mac_text(mac, &s->seen);
	n = snprintf(text, size, "session %s: port %s, VLAN %u.%u, ", session_name(p->session), port_name(s->port),
		detail->key.circuit.outer_vlan, detail->key.circuit.inner_vlan);
	if (n < 0 || (size_t)n >= size)
		return;
	if (s->pppoe)
		snprintf(text + n, size - (size_t)n, "PPPoE session %u, to %s", detail->key.pppoe_session, mac);
	else
		snprintf(text + n, size - (size_t)n, "IPoE, to %s", mac);
}

struct node session_down_node = {.name = "session-down", .process = session_down, .describe = session_down_describe};
struct node session_out_node = {.name = "session-out", .process = session_out, .describe = session_out_describe};
NODE_REGISTER(session_down_node)
NODE_REGISTER(session_out_node)
