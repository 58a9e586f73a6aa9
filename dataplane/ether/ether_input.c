// SPDX-License-Identifier: Apache-2.0
// Ethernet, 802.1Q and QinQ (IEEE 802.3, 802.1Q, 802.1ad): the type of a frame, and its interface or session.
// In: whole frames as received. Out: by Ethernet type, with the data behind the type.
#include <stdio.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/registry.h"
#include "ether/circuit_table.h"
#include "ether/interface.h"
#include "ether/own_type.h"
#include "ether/unknown.h"
#include "port/mac.h"

enum { TPID_QINQ_OLD = 0x9100, VLAN_ID = 0x0fff, SMALLEST_TYPE = 0x0600, GROUP_TYPES = 8 };

DROP(drop_short, "frame-too-short", "The frame ended before its Ethernet header and tags did.")
DROP(drop_other_mac, "not-our-mac", "The frame was for another Ethernet address.")
struct drop ether_unknown_circuit = {.name = "unknown-circuit",
	.description = "No interface, and no session of this kind of frame, has this port and these VLANs, and no Punt "
		       "takes the "
		       "packet."};
RTE_INIT(register_unknown_circuit)
{
	drop_register(&ether_unknown_circuit);
}
DROP(drop_unknown_type, "unknown-ether-type", "Nothing here takes frames of this Ethernet type.")
DROP(drop_many_tags, "too-many-tags", "The frame had more than two VLAN tags.")
DROP(drop_source_mac, "source-mac-multicast", "The frame came from a group address.")

enum { FINDS_ITSELF = 1 << 15 }; // beside the node of a type: it finds whose frames are

static uint16_t by_type[1 << 16]; // the node that takes an Ethernet type, 0 (drop): none
static struct group_type {
	uint16_t type;
	uint16_t node;
} group_types[GROUP_TYPES]; // types whose frames to a group MAC have a node of their own
static unsigned group_type_count;
static uint16_t session_up4, session_up6; // the chains of sessions' packets
static uint16_t session_frames;           // the node of whole frames
static uint16_t unknown;                  // the node of frames of unknown circuits, 0: they are dropped

void
ether_type_register(uint16_t type, const struct node *node)
{
	by_type[type] = node->id;
	node_edge(&ether_input_node, node);
}

void
ether_own_type_register(uint16_t type, const struct node *node)
{
	ether_type_register(type, node);
	by_type[type] |= FINDS_ITSELF;
}

void
ether_group_register(uint16_t type, const struct node *node)
{
	if (group_type_count == GROUP_TYPES)
		registry_full(
			"Ethernet types of groups", node->name, GROUP_TYPES, "GROUP_TYPES", "ether/ether_input.c");
	node_edge(&ether_input_node, node);
	group_types[group_type_count++] = (struct group_type){type, node->id};
}

// The node that takes a frame to a broadcast or multicast MAC.
static uint16_t
group_node(uint16_t type)
{
	for (unsigned i = 0; i < group_type_count; i++)
		if (group_types[i].type == type)
			return group_types[i].node;
	return by_type[type];
}

void
circuit_sessions(const struct node *up4, const struct node *up6, const struct node *frames)
{
	session_frames = frames->id;
	node_edge(&ether_input_node, frames);
	session_up4 = (uint16_t)chain_of(&up4, 1);
	session_up6 = (uint16_t)chain_of(&up6, 1);
}

void
ether_unknown_register(const struct node *node)
{
	unknown = node->id;
	node_edge(&ether_input_node, node);
}

static inline bool
is_tpid(uint16_t type)
{
	return type == RTE_ETHER_TYPE_VLAN || type == RTE_ETHER_TYPE_QINQ || type == TPID_QINQ_OLD;
}

static inline uint16_t
read16(const uint8_t *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return rte_be_to_cpu_16(value);
}

// Packets and bytes that came in on interfaces, added up over a run of packets of the same one.
struct tally {
	struct interface_counters *row;
	uint32_t interface;
	uint64_t packets, bytes;
};

static inline void
tally_add(struct tally *t, uint32_t interface, uint32_t bytes)
{
	if (interface != t->interface) {
		if (t->packets > 0) {
			t->row[t->interface].rx_packets += t->packets;
			t->row[t->interface].rx_bytes += t->bytes;
		}
		t->interface = interface;
		t->packets = t->bytes = 0;
	}
	t->packets += interface != NO_INTERFACE;
	t->bytes += bytes;
}

// The tags of a frame. The length of the whole header, or 0 with the reason.
static inline unsigned
tags(const uint8_t *frame, uint32_t length, struct packet *p, uint16_t *type, const struct drop **reason)
{
	unsigned header = RTE_ETHER_HDR_LEN;

	*reason = &drop_short;
	*type = read16(frame + 12);
	if (likely(!is_tpid(*type)))
		return header;
	if (unlikely(length < 18))
		return 0;
	p->outer_vlan = read16(frame + 14) & VLAN_ID;
	p->outer_priority = frame[14] >> 5;
	memcpy(&p->outer_tpid, frame + 12, 2);
	*type = read16(frame + 16);
	header = 18;
	if (!is_tpid(*type))
		return header;
	if (unlikely(length < 22))
		return 0;
	p->inner_vlan = read16(frame + 18) & VLAN_ID;
	memcpy(&p->inner_tpid, frame + 16, 2);
	*type = read16(frame + 20);
	if (unlikely(is_tpid(*type))) {
		*reason = &drop_many_tags;
		return 0;
	}
	// A priority tag (VLAN 0) outside is not a VLAN: the type behind it counts.
	if (unlikely(p->outer_vlan == 0)) {
		p->outer_vlan = p->inner_vlan;
		p->inner_vlan = 0;
	}
	return 22;
}

// The values that packets of a port have in common, for a burst.
struct ingress {
	uint16_t port;
	uint64_t mac;
	const struct circuits *circuits;
};

static inline void
ingress_of(struct ingress *in, uint16_t port)
{
	in->port = port;
	in->mac = mac_bits(&ports[port].mac);
	in->circuits = __atomic_load_n(&port_circuits[port], __ATOMIC_ACQUIRE);
}

// The owner of a packet by its circuit: its interface or its session, or BOUND_FRAMES and a session that has every frame.
static inline uint32_t
owner(const struct circuits *circuits, uint16_t outer, uint16_t inner, uint64_t source)
{
	uint32_t slot = circuits ? circuit_slot(circuits, outer, inner) : 0;
	const struct shared_circuit *shared;
	uint32_t session;

	if (likely(bound_to(slot) != BOUND_SHARED))
		return slot;
	shared = slab_at(&shared_circuits, bound_index(slot));
	session = shared_session(shared, source);
	if (session == MAP64_NONE)
		return __atomic_load_n(&shared->rest, __ATOMIC_RELAXED);
	return session & SHARED_FRAMES ? bound(BOUND_FRAMES, session & ~(uint32_t)SHARED_FRAMES)
				       : bound(BOUND_SESSION, session);
}

// Give the packet to its owner. `family` 4 or 6 chooses the chain.
static inline bool
give(struct packet *p, uint32_t slot, unsigned family, uint32_t bytes, struct tally *t)
{
	const struct interface *interface;

	if (bound_to(slot) == BOUND_SESSION) {
		p->session = bound_index(slot);
		p->chain = family == 6 ? session_up6 : session_up4;
		return true;
	}
	if (unlikely(bound_to(slot) != BOUND_INTERFACE))
		return false;
	p->interface = bound_index(slot);
	interface = interface_at(p->interface);
	p->vrf = interface->vrf;
	p->chain = family == 6 ? interface->chain6 : interface->chain4;
	tally_add(t, p->interface, bytes);
	return true;
}

// Frames of sessions that have every frame of their circuit. The subscriber's own tags may be behind those of the circuit, so the nearest
// circuit that is bound counts. False: the frame does not belong to such a session.
static bool
is_frame_of_session(const uint8_t *frame, uint32_t length, struct packet *p, const struct circuits *circuits)
{
	uint16_t vlans[2] = {0}, tpids[2] = {0};
	unsigned count = 0;
	uint32_t slot;

	while (count < 2 && length >= RTE_ETHER_HDR_LEN + 4 * (count + 1) && is_tpid(read16(frame + 12 + 4 * count))) {
		memcpy(&tpids[count], frame + 12 + 4 * count, 2);
		vlans[count] = read16(frame + 14 + 4 * count) & VLAN_ID;
		// VLAN 0 is a priority, and no circuit.
		if (vlans[count] == 0)
			break;
		count++;
	}
	for (;; count--) {
		slot = owner(circuits, count > 0 ? vlans[0] : 0, count > 1 ? vlans[1] : 0, mac_bits(frame + 6));
		if (slot != 0 || count == 0)
			break;
	}
	if (bound_to(slot) != BOUND_FRAMES)
		return false;
	p->session = bound_index(slot);
	p->outer_vlan = count > 0 ? vlans[0] : 0;
	p->outer_priority = count > 0 ? frame[14] >> 5 : 0;
	p->inner_vlan = count > 1 ? vlans[1] : 0;
	p->outer_tpid = count > 0 ? tpids[0] : 0;
	p->inner_tpid = count > 1 ? tpids[1] : 0;
	p->l2_length = (uint8_t)(RTE_ETHER_HDR_LEN + 4 * count);
	return true;
}

// Any frame.
static __rte_noinline uint16_t
classify(struct rte_mbuf *m, struct packet *p, const struct ingress *in, struct tally *t)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	const struct drop *reason;
	uint16_t type, next;
	unsigned header;

	if (m->data_len < RTE_ETHER_HDR_LEN)
		return packet_drop(p, &drop_short);
	if (unlikely(in->circuits && in->circuits->frames > 0) && !(frame[6] & 1) &&
		is_frame_of_session(frame, m->data_len, p, in->circuits))
		return session_frames;
	header = tags(frame, m->data_len, p, &type, &reason);
	if (header == 0)
		return packet_drop(p, reason);
	if (mac_bits(frame) != in->mac && !(frame[0] & 1))
		return packet_drop(p, &drop_other_mac);
	if (frame[6] & 1)
		return packet_drop(p, &drop_source_mac);
	p->l2_length = (uint8_t)header;
	if (!(by_type[type] & FINDS_ITSELF) &&
		!give(p, owner(in->circuits, p->outer_vlan, p->inner_vlan, mac_bits(frame + 6)),
			type == RTE_ETHER_TYPE_IPV6 ? 6 : 4, m->pkt_len, t))
		return unknown ? unknown : packet_drop(p, &ether_unknown_circuit);
	next = (uint16_t)((unlikely(frame[0] & 1) ? group_node(type) : by_type[type]) & ~FINDS_ITSELF);
	if (next == 0)
		return packet_drop(p, &drop_unknown_type);
	packet_advance(m, (int)header);
	return next;
}

// The common frames by few and wide loads: untagged IP, and IP behind two tags with the session look-up, for us, in
// one piece. Everything else goes to classify().
static inline uint16_t
classify_quick(struct rte_mbuf *m, struct packet *p, const struct ingress *in, struct tally *t)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	uint64_t source_type, tag_words;
	uint16_t type, outer, inner, node;

	if (unlikely(m->data_len < 22))
		return classify(m, p, in, t);
	memcpy(&source_type, frame + 6, 8); // the source, and the type above it
	if (unlikely((mac_bits(frame) != in->mac) | (source_type & 1)))
		return classify(m, p, in, t);
	type = (uint16_t)(source_type >> 48);
	if (type == RTE_BE16(RTE_ETHER_TYPE_IPV4) || type == RTE_BE16(RTE_ETHER_TYPE_IPV6)) {
		unsigned family = type == RTE_BE16(RTE_ETHER_TYPE_IPV4) ? 4 : 6;

		if (unlikely(!in->circuits || bound_to(in->circuits->untagged) == BOUND_SHARED ||
			     !give(p, in->circuits->untagged, family, m->pkt_len, t)))
			return classify(m, p, in, t);
		p->l2_length = RTE_ETHER_HDR_LEN;
		packet_advance(m, RTE_ETHER_HDR_LEN);
		return by_type[family == 4 ? RTE_ETHER_TYPE_IPV4 : RTE_ETHER_TYPE_IPV6];
	}
	memcpy(&tag_words, frame + 14, 8); // outer VLAN, TPID, inner VLAN, type
	outer = rte_be_to_cpu_16((uint16_t)tag_words) & VLAN_ID;
	inner = rte_be_to_cpu_16((uint16_t)(tag_words >> 32)) & VLAN_ID;
	if (unlikely(!is_tpid(rte_be_to_cpu_16(type)) || !is_tpid(rte_be_to_cpu_16((uint16_t)(tag_words >> 16))) ||
		     !outer || !inner))
		return classify(m, p, in, t);
	p->outer_vlan = outer;
	p->outer_priority = (uint8_t)tag_words >> 5;
	p->inner_vlan = inner;
	p->outer_tpid = type;
	p->inner_tpid = (uint16_t)(tag_words >> 16);
	p->l2_length = 22;
	type = (uint16_t)(tag_words >> 48);
	node = by_type[rte_be_to_cpu_16(type)];
	if (node & FINDS_ITSELF) {
		packet_advance(m, 22);
		return (uint16_t)(node & ~FINDS_ITSELF);
	}
	if ((type != RTE_BE16(RTE_ETHER_TYPE_IPV4) && type != RTE_BE16(RTE_ETHER_TYPE_IPV6)) ||
		!give(p, owner(in->circuits, outer, inner, source_type & 0xffffffffffff),
			type == RTE_BE16(RTE_ETHER_TYPE_IPV6) ? 6 : 4, m->pkt_len, t))
		return classify(m, p, in, t);
	packet_advance(m, 22);
	return by_type[type == RTE_BE16(RTE_ETHER_TYPE_IPV4) ? RTE_ETHER_TYPE_IPV4 : RTE_ETHER_TYPE_IPV6];
}

// Prefetch distances of the binding of a pair of VLANs, and of a shared circuit.
enum { PAIRS_PREFETCH = 24, SHARED_PREFETCH = 12 };

// The binding of the pair of VLANs that a frame seems to have, if it is IP; NULL: none. Only to fetch it.
static inline const uint32_t *
pair_of(const struct rte_mbuf *m, const struct circuits *circuits)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	const uint32_t *pairs;

	if (unlikely(m->data_len < 22) || read16(frame + 20) == RTE_ETHER_TYPE_PPPOE_SESSION)
		return NULL;
	pairs = __atomic_load_n(&circuits->pairs[read16(frame + 14) & VLAN_ID], __ATOMIC_ACQUIRE);
	return pairs ? &pairs[read16(frame + 18) & VLAN_ID] : NULL;
}

static inline void
fetch_pair(const struct rte_mbuf *m, const struct circuits *circuits)
{
	const uint32_t *pair = pair_of(m, circuits);

	if (pair)
		rte_prefetch0(pair);
}

static inline void
fetch_shared(const struct rte_mbuf *m, const struct circuits *circuits)
{
	const uint32_t *pair = pair_of(m, circuits);

	if (pair && bound_to(*pair) == BOUND_SHARED)
		rte_prefetch0(slab_at(&shared_circuits, bound_index(*pair)));
}

// Prefetch for packets i + PAIRS_PREFETCH and i + SHARED_PREFETCH; i may be less than 0.
static inline void
fetch_ahead(struct rte_mbuf **m, int i, int count, const struct circuits *circuits)
{
	if (i + PAIRS_PREFETCH >= 0 && i + PAIRS_PREFETCH < count)
		fetch_pair(m[i + PAIRS_PREFETCH], circuits);
	if (i + SHARED_PREFETCH >= 0 && i + SHARED_PREFETCH < count)
		fetch_shared(m[i + SHARED_PREFETCH], circuits);
}

static void
classify_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct rte_mbuf **m = (struct rte_mbuf **)packets;
	struct tally t = {.row = counters_row(&interface_counters), .interface = NO_INTERFACE};
	struct ingress in;
	uint16_t next[BURST];

	ingress_of(&in, packet_of(m[0])->port);
	if (in.circuits && in.circuits->shared > 0)
		for (int i = -PAIRS_PREFETCH; i < 0; i++)
			fetch_ahead(m, i, count, in.circuits);
	for (uint16_t i = 0; i < count; i++) {
		struct packet *p = packet_of(m[i]);

		if (i + 4 < count)
			rte_prefetch0(packet_of(m[i + 4]));
		if (in.circuits && in.circuits->shared > 0)
			fetch_ahead(m, i, count, in.circuits);
		if (unlikely(p->port != in.port))
			ingress_of(&in, p->port);
		next[i] = classify_quick(m[i], p, &in, &t);
	}
	tally_add(&t, NO_INTERFACE, 0);
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
ether_input_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, classify_burst);
}

static void
ether_input_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	char to[MAC_TEXT_SIZE], from[MAC_TEXT_SIZE];
	const struct drop *reason;
	struct packet seen = {0};
	uint16_t type;
	unsigned header;
	int used;

	if (length < RTE_ETHER_HDR_LEN) {
		snprintf(text, size, "a frame of %zu bytes", length);
		return;
	}
	header = tags(data, (uint32_t)length, &seen, &type, &reason);
	mac_text(to, data);
	mac_text(from, data + 6);
	used = snprintf(text, size, "port %s: %s > %s", port_name(p->port), from, to);
	if (header >= 18 && used > 0 && (size_t)used < size)
		used += snprintf(text + used, size - (size_t)used, " vlan %u", seen.outer_vlan);
	if (header == 22 && (size_t)used < size)
		used += snprintf(text + used, size - (size_t)used, " vlan %u", seen.inner_vlan);
	if (header > 0 && (size_t)used < size)
		snprintf(text + used, size - (size_t)used, " type 0x%04x", type);
}

struct node ether_input_node = {
	.name = "ether-input", .process = ether_input_process, .describe = ether_input_describe, .arrival = true};
NODE_REGISTER(ether_input_node)
