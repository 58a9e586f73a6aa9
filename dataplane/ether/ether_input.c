// Ethernet, 802.1Q and QinQ (IEEE 802.3, 802.1Q, 802.1ad): what a frame is, and whose.
// In: whole frames as received. Out: by Ethernet type, with the data behind the type.
#include <stdio.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>

#include "core/burst.h"
#include "core/drop.h"
#include "ether/circuit_table.h"
#include "ether/interface.h"
#include "ip/hop.h"
#include "session/session.h"

enum { TPID_QINQ_OLD = 0x9100, VLAN_ID = 0x0fff, SMALLEST_TYPE = 0x0600 };

DROP(drop_short, "frame-too-short", "The frame ended before its Ethernet header and tags did.")
DROP(drop_other_mac, "not-our-mac", "The frame was for another Ethernet address.")
DROP(drop_unknown_vlan, "unknown-circuit", "No interface and no session has this port and these VLANs.")
DROP(drop_unknown_type, "unknown-ether-type", "Nothing here takes frames of this Ethernet type.")
DROP(drop_many_tags, "too-many-tags", "The frame had more than two VLAN tags.")
DROP(drop_source_mac, "source-mac-multicast", "The frame came from a group address.")

static uint8_t by_type[1 << 16]; // the node that takes an Ethernet type, 0 (drop): nobody

void
ether_type_register(uint16_t type, const struct node *node)
{
	by_type[type] = (uint8_t)node->id;
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

// Parse the tags. The length of the whole header, or 0 with the reason.
static inline unsigned
tags(const uint8_t *frame, uint32_t length, struct packet *p, uint16_t *type, const struct drop **reason)
{
	unsigned header = RTE_ETHER_HDR_LEN;

	*type = read16(frame + 12);
	if (likely(!is_tpid(*type)))
		return header;
	if (unlikely(length < 18))
		return 0;
	p->outer_vlan = read16(frame + 14) & VLAN_ID;
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
	// A priority tag (VLAN 0) outside is no VLAN: what it holds counts.
	if (unlikely(p->outer_vlan == 0)) {
		p->outer_vlan = p->inner_vlan;
		p->inner_vlan = 0;
	}
	return 22;
}

// Whose packet it is, told by its circuit: its interface or its session.
static inline uint32_t
owner(const struct circuits *circuits, const struct packet *p, const uint8_t *frame)
{
	uint32_t slot = circuit_slot(circuits, p->outer_vlan, p->inner_vlan);
	const struct shared_circuit *shared;
	uint32_t session;

	if (likely(bound_to(slot) != BOUND_SHARED))
		return slot;
	shared = slab_at(&shared_circuits, bound_index(slot));
	session = map64_get(shared_sessions, shared_key(bound_index(slot), mac_bits(frame + 6)));
	return session != MAP64_NONE ? bound(BOUND_SESSION, session) : __atomic_load_n(&shared->rest, __ATOMIC_RELAXED);
}

static inline uint16_t
classify(struct rte_mbuf *m, struct packet *p, struct tally *t)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	const struct drop *reason = &drop_short;
	const struct port *port = &ports[p->port];
	const struct circuits *circuits;
	const struct interface *interface;
	uint32_t slot = 0;
	uint16_t type, next;
	unsigned header;

	if (unlikely(m->data_len < RTE_ETHER_HDR_LEN))
		return packet_drop(p, &drop_short);
	header = tags(frame, m->data_len, p, &type, &reason);
	if (unlikely(header == 0))
		return packet_drop(p, reason);
	if (unlikely(mac_bits(frame) != mac_bits(&port->mac) && !(frame[0] & 1)))
		return packet_drop(p, &drop_other_mac);
	if (unlikely(frame[6] & 1))
		return packet_drop(p, &drop_source_mac);
	p->l2_length = (uint8_t)header;
	circuits = __atomic_load_n(&port_circuits[p->port], __ATOMIC_ACQUIRE);
	if (likely(circuits != NULL))
		slot = owner(circuits, p, frame);
	next = type == RTE_ETHER_TYPE_IPV4   ? ip4_input_node.id
	       : type == RTE_ETHER_TYPE_IPV6 ? ip6_input_node.id
					     : by_type[type];
	switch (bound_to(slot)) {
	case BOUND_SESSION:
		p->session = bound_index(slot);
		p->chain = type == RTE_ETHER_TYPE_IPV6 ? session_up6_node.id : session_up4_node.id;
		break;
	case BOUND_INTERFACE:
		p->interface = bound_index(slot);
		interface = interface_at(p->interface);
		p->vrf = interface->vrf;
		p->chain = type == RTE_ETHER_TYPE_IPV6 ? interface->chain6 : interface->chain4;
		tally_add(t, p->interface, m->pkt_len);
		break;
	default:
		// PPPoE finds its sessions by itself; everything else must be somebody's.
		if (type != RTE_ETHER_TYPE_PPPOE_SESSION && type != RTE_ETHER_TYPE_PPPOE_DISCOVERY)
			return packet_drop(p, &drop_unknown_vlan);
	}
	if (unlikely(next == 0))
		return packet_drop(p, &drop_unknown_type);
	packet_advance(m, (int)header);
	return next;
}

static void
classify_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct rte_mbuf **m = (struct rte_mbuf **)packets;
	struct tally t = {.row = counters_row(&interface_counters), .interface = NO_INTERFACE};
	uint16_t next[BURST];

	for (uint16_t i = 0; i < count; i++) {
		if (i + 8 < count)
			rte_prefetch0(rte_pktmbuf_mtod(m[i + 8], void *));
		next[i] = classify(m[i], packet_of(m[i]), &t);
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
	char to[RTE_ETHER_ADDR_FMT_SIZE], from[RTE_ETHER_ADDR_FMT_SIZE];
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
	rte_ether_format_addr(to, sizeof(to), (const struct rte_ether_addr *)data);
	rte_ether_format_addr(from, sizeof(from), (const struct rte_ether_addr *)(data + 6));
	used = snprintf(text, size, "port %s: %s > %s", ports[p->port % PORT_MAX].object ? ports[p->port].object->name : "?",
		from, to);
	if (header >= 18 && used > 0 && (size_t)used < size)
		used += snprintf(text + used, size - (size_t)used, " vlan %u", seen.outer_vlan);
	if (header == 22 && (size_t)used < size)
		used += snprintf(text + used, size - (size_t)used, " vlan %u", seen.inner_vlan);
	if (header > 0 && (size_t)used < size)
		snprintf(text + used, size - (size_t)used, " type 0x%04x", type);
}

struct node ether_input_node = {
	.name = "ether-input", .process = ether_input_process, .describe = ether_input_describe};
NODE_REGISTER(ether_input_node)
