// SPDX-License-Identifier: Apache-2.0
// Sessions of type Ethernet (TS 23.501 section 5.6.10.2): whole frames, less the tags of the access on their way up and with them on
// their way down. A tag of the subscriber's own stays where it is.
#include <stdio.h>
#include <string.h>

#include "core/burst.h"
#include "session/header.h"
#include "session/record.h"

enum { ADDRESSES = 12, TAG = 4, TPID_QINQ_OLD = 0x9100 };

DROP(drop_frames_mtu, "session-frame-too-large", "A frame for a subscriber holds more than the session's MTU.")
DROP(drop_frames_headroom, "session-frame-no-headroom", "There was no room in the buffer for the tags of the access.")
DROP(drop_frames_short, "session-frame-too-short", "A frame for a subscriber ended before its Ethernet header did.")
DROP(drop_frames_packet, "session-takes-frames",
	"An IP packet for a session of type Ethernet, which takes frames alone.")

static void
frames_up_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct session_counters *counters = counters_row(&session_counters);
	uint16_t next[BURST];
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < count; i++)
		session_prefetch(packets[i], UP, counters);
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const struct session *s = session_at(p->session);
		struct session_counters *c = &counters[p->session];
		unsigned tags = (unsigned)p->l2_length - RTE_ETHER_HDR_LEN;
		uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
		uint16_t tpids = session_tpids(p->outer_tpid, p->inner_tpid);

		// Frames to the subscriber get the TPIDs that it uses.
		if (unlikely((uint16_t)(s->seen >> SESSION_MAC_BITS) != tpids))
			session_observe(p->session,
				(s->seen & ((1ull << SESSION_MAC_BITS) - 1)) | (uint64_t)tpids << SESSION_MAC_BITS);
		memmove(frame + tags, frame, ADDRESSES);
		packet_advance(m, (int)tags);
		p->l2_length = 0;
		p->counted = (uint16_t)m->pkt_len;
		c->packets[UP]++;
		c->bytes[UP] += m->pkt_len;
		bytes += m->pkt_len;
		p->vrf = s->vrf;
		p->direction = UP;
		p->family = 0;
		p->chain = s->up4;
		next[i] = packet_step(p);
	}
	session_count_all(counters, UP, count, bytes);
	node_dispatch(graph, node, packets, next, count);
}

static void
frames_down_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct session_counters *counters = counters_row(&session_counters);
	uint16_t next[BURST];
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < count; i++)
		session_prefetch(packets[i], DOWN, counters);
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		struct session_counters *c = &counters[p->session];

		p->counted = (uint16_t)m->pkt_len;
		c->packets[DOWN]++;
		c->bytes[DOWN] += m->pkt_len;
		bytes += m->pkt_len;
		p->direction = DOWN;
		p->family = 0;
		p->chain = session_at(p->session)->down4;
		next[i] = packet_step(p);
	}
	session_count_all(counters, DOWN, count, bytes);
	node_dispatch(graph, node, packets, next, count);
}

static bool
is_tagged(const uint8_t *frame)
{
	unsigned type = (unsigned)frame[ADDRESSES] << 8 | frame[ADDRESSES + 1];

	return type == RTE_ETHER_TYPE_VLAN || type == RTE_ETHER_TYPE_QINQ || type == TPID_QINQ_OLD;
}

// Of a session that is on its way to another access, or has arrived there since its header was looked at.
static __rte_noinline const struct session *
record_of(uint32_t session)
{
	const struct session_move *move = session_leaving(&session_details[session]);

	return move ? &move->record : session_at(session);
}

// IEEE 802.1Q section 9.6: the priority code point is the upper three bits of each tag of the access.
static void
put_priority(uint8_t *tag, unsigned bytes, uint8_t priority)
{
	for (unsigned at = 0; at < bytes; at += TAG)
		tag[at] = (uint8_t)((tag[at] & 0x1f) | priority << 5);
}

// The whole frame goes behind the header of the access, whose last four bytes are a length and a type. The MTU counts what is behind the header.
static __rte_noinline uint16_t
wrap(struct rte_mbuf *m, struct packet *p, const struct session *s, unsigned length)
{
	const struct session_frame *header = &session_frames[s->access % SESSION_ACCESSES];
	uint16_t tail[2] = {0, header->frame_type};
	uint8_t *at = rte_pktmbuf_mtod(m, uint8_t *);

	if (unlikely(m->pkt_len + sizeof(header->before_frame) > session_details[p->session].mtu))
		return packet_drop(p, &drop_frames_mtu);
	if (unlikely(m->data_off < SESSION_HEADER_ROOM + sizeof(header->before_frame)))
		return packet_drop(p, &drop_frames_headroom);
	at -= sizeof(header->before_frame);
	memcpy(at, &header->before_frame, sizeof(header->before_frame));
	memcpy(at - SESSION_HEADER_ROOM, s->header, SESSION_HEADER_ROOM);
	tail[0] = rte_cpu_to_be_16((uint16_t)(m->pkt_len + sizeof(header->before_frame) + header->more));
	memcpy(at - sizeof(tail), tail, sizeof(tail));
	if (header->finish)
		header->finish(at, p);
	packet_advance(m, -(int)(length + sizeof(header->before_frame)));
	if (p->priority != 0)
		put_priority(rte_pktmbuf_mtod(m, uint8_t *) + RTE_ETHER_HDR_LEN,
			length - RTE_ETHER_HDR_LEN - header->behind, p->priority);
	m->port = s->port;
	return tx_node.id;
}

// The tags of the access go between the addresses and the rest.
static uint16_t
frame_out(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	const struct session *s = session_at(p->session);
	unsigned length = __atomic_load_n(&s->header_length, __ATOMIC_ACQUIRE);
	unsigned tags, room = session_details[p->session].mtu;
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);

	if (unlikely(length == 0)) {
		s = record_of(p->session);
		length = s->header_length;
	}
	tags = length - RTE_ETHER_HDR_LEN;
	if (unlikely(p->family != 0))
		return packet_drop(p, &drop_frames_packet);
	if (unlikely(m->data_len < RTE_ETHER_HDR_LEN))
		return packet_drop(p, &drop_frames_short);
	if (unlikely(session_frames[s->access % SESSION_ACCESSES].frame_type))
		return wrap(m, p, s, length);
	if (unlikely(m->pkt_len > RTE_ETHER_HDR_LEN + room + (is_tagged(frame) ? TAG : 0)))
		return packet_drop(p, &drop_frames_mtu);
	if (unlikely(m->data_off < tags))
		return packet_drop(p, &drop_frames_headroom);
	memmove(frame - tags, frame, ADDRESSES);
	memcpy(frame - tags + ADDRESSES, s->header + SESSION_HEADER_ROOM - length + ADDRESSES, tags);
	packet_advance(m, -(int)tags);
	if (unlikely(p->priority != 0))
		put_priority(frame - tags + RTE_ETHER_HDR_LEN, tags, p->priority);
	m->port = s->port;
	return tx_node.id;
}

// Frames to an access with an output of its own. The MTU counts the whole frame, as in PPP.
static uint16_t
frame_point_out(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	if (unlikely(p->family != 0))
		return packet_drop(p, &drop_frames_packet);
	if (unlikely(m->data_len < RTE_ETHER_HDR_LEN))
		return packet_drop(p, &drop_frames_short);
	if (unlikely(m->pkt_len > __atomic_load_n(&session_details[p->session].mtu, __ATOMIC_RELAXED)))
		return packet_drop(p, &drop_frames_mtu);
	return packet_step(p);
}

static uint16_t
frames_point_out(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_packet(graph, node, packets, count, frame_point_out);
}

static uint16_t
frames_up(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, frames_up_burst);
}

static uint16_t
frames_down(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, frames_down_burst);
}

static uint16_t
frames_out(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_packet(graph, node, packets, count, frame_out);
}

static void
describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	snprintf(text, size, "session %s: a frame of at least %zu bytes", session_name(p->session), length);
}

struct node session_frames_up_node = {.name = "frames-up", .process = frames_up, .describe = describe, .steps = true};
struct node session_frames_down_node = {
	.name = "frames-down", .process = frames_down, .describe = describe, .steps = true};
struct node session_frames_out_node = {
	.name = "frames-out", .process = frames_out, .describe = describe, .edges = NODE_EDGES(&tx_node)};
struct node session_frames_point_out_node = {
	.name = "frames-point-out", .process = frames_point_out, .describe = describe, .steps = true};
NODE_REGISTER(session_frames_point_out_node)
NODE_REGISTER(session_frames_up_node)
NODE_REGISTER(session_frames_down_node)
NODE_REGISTER(session_frames_out_node)
