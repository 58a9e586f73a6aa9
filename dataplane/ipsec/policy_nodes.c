// SPDX-License-Identifier: Apache-2.0
// Packets and the security policy database: RFC 4301 section 5.1 (outbound), 5.2 (inbound), 7 (fragments).
#include <stdio.h>

#include "acl/gather.h"
#include "core/burst.h"
#include "core/drop.h"
#include "core/punt.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "fib/local_address_source.h"
#include "inet/header.h"
#include "ip/nodes.h"
#include "ipsec/esp.h"
#include "ipsec/nodes.h"
#include "ipsec/policy.h"
#include "port/port.h"

INJECTED(esp_policy_node)
INJECTED(ipsec_policy_in_node)

// No policy was asked about this fragment.
struct packet_flag ipsec_policy_waits = {.name = "ipsec-policy-waits"};
PACKET_FLAG_REGISTER(ipsec_policy_waits)

DROP(drop_discard, "ipsec-policy-discard", "A security policy discards the packet.")
DROP(drop_unprotected, "ipsec-unprotected",
	"A packet came in in clear text that a security policy protects (RFC 4301 section 5.2).")
DROP(drop_mismatch, "ipsec-policy-mismatch",
	"A packet came out of a security association of another policy than its own (RFC 4301 section 5.2).")
DROP(drop_fragment, "ipsec-policy-fragment",
	"A fragment does not show the ports by which security policies decide (RFC 4301 section 7).")
DROP(drop_unreadable, "ipsec-policy-unreadable",
	"Security policies have to know the packet's transport header, but it is cut short or lies behind too many "
	"extension headers.")

enum { ND_FIRST = 133, ND_LAST = 137, ND_HOP_LIMIT = 255 };

// Where the transport header is in a packet with a checked header, and its protocol; of IPv6 without a look at extension headers.
static inline unsigned
transport_of(const uint8_t *ip, uint8_t family, uint8_t *protocol)
{
	const struct ip4_header *four = (const struct ip4_header *)ip;

	if (family == 4) {
		*protocol = four->protocol;
		return ip4_header_length(four);
	}
	*protocol = ((const struct ip6_header *)ip)->next_header;
	return sizeof(struct ip6_header);
}

static inline bool
is_ipsec_port(const uint8_t *at)
{
	uint16_t port = (uint16_t)(at[0] << 8 | at[1]);

	return port == IKE_PORT || port == ESP_UDP_PORT;
}

// Packets that no policy applies to: ESP and IKE of the gateway itself, and neighbour discovery.
static inline bool
is_exempt(const struct rte_mbuf *m, const struct packet *p, enum interface_way way)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
	uint8_t protocol;
	unsigned at = transport_of(ip, p->family, &protocol);

	if (likely(protocol != PROTOCOL_ESP && protocol != PROTOCOL_UDP && protocol != PROTOCOL_ICMP6))
		return false;
	if (protocol == PROTOCOL_ICMP6)
		return p->family == 6 && ((const struct ip6_header *)ip)->hop_limit == ND_HOP_LIMIT &&
		       m->data_len > at && ip[at] >= ND_FIRST && ip[at] <= ND_LAST;
	if (protocol == PROTOCOL_UDP &&
		(m->data_len < at + ESP_UDP_HEADER || !is_ipsec_port(ip + at + (way == INTERFACE_IN ? 2 : 0))))
		return false;
	if (way == INTERFACE_OUT)
		return p->flags & PACKET_OURS;
	return local_address_source_is(p->vrf, p->family,
		ip + (p->family == 4 ? offsetof(struct ip4_header, destination)
				     : offsetof(struct ip6_header, destination)));
}

// A fragment for the gateway itself. Only the whole packet shows whether it is one of its ESP and IKE packets, in UDP or behind a fragment
// header; so policies are asked about that.
static inline bool
waits_for_whole(const struct rte_mbuf *m, struct packet *p)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
	bool fragment = p->family == 4 ? ((const struct ip4_header *)ip)->fragment & RTE_BE16(IP4_MF | IP4_OFFSET)
				       : ((const struct ip6_header *)ip)->next_header == PROTOCOL_FRAGMENT;

	if (likely(!fragment) || !local_address_source_is(p->vrf, p->family,
					 ip + (p->family == 4 ? offsetof(struct ip4_header, destination)
							      : offsetof(struct ip6_header, destination))))
		return false;
	p->flags |= ipsec_policy_waits.mask;
	return true;
}

// Behind the first fragment, which alone shows ports.
static inline bool
is_later_fragment(const struct rte_mbuf *m, uint8_t family)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
	struct ipsec_flow flow;

	if (family == 4)
		return ((const struct ip4_header *)ip)->fragment & RTE_BE16(IP4_OFFSET);
	if (likely(!ip6_extension[((const struct ip6_header *)ip)->next_header]))
		return false;
	ipsec_flow_of(ip, m->data_len, 6, &flow);
	return flow.later_fragment;
}

// The entry, or NULL: the packet is dropped for the reason in packet->drop.
static inline const struct ipsec_entry *
entry_of(const struct ipsec_database *database, const struct rte_mbuf *m, struct packet *p, uint32_t verdict)
{
	uint32_t rule = verdict >> 1;

	if (unlikely(verdict == ACL_UNREADABLE)) {
		p->drop = drop_unreadable.id;
		return NULL;
	}
	if (unlikely(database->first_ports && (rule == 0 || rule > database->first_ports)) &&
		is_later_fragment(m, p->family)) {
		p->drop = drop_fragment.id;
		return NULL;
	}
	return &database->entries[rule];
}

static inline uint16_t
settle_out(struct rte_mbuf *m, struct packet *p, const struct ipsec_entry *entry)
{
	if (likely(entry->action == IPSEC_PROTECT)) {
		p->hop = ipsec_tunnel_at(entry->tunnel)->policy_hop;
		return esp_policy_node.id;
	}
	return entry->action == IPSEC_BYPASS ? packet_step(p) : packet_drop(p, &drop_discard);
}

static inline uint16_t
settle_in(struct rte_mbuf *m, struct packet *p, const struct ipsec_entry *entry)
{
	if (likely(entry->action == IPSEC_BYPASS))
		return packet_step(p);
	return packet_drop(p, entry->action == IPSEC_PROTECT ? &drop_unprotected : &drop_discard);
}

// Out of an SA of the policy that packet->hop is about.
static inline uint16_t
settle_check(struct rte_mbuf *m, struct packet *p, const struct ipsec_entry *entry)
{
	uint32_t tunnel = (uint32_t)hop_at(p->hop)->own[0];

	p->hop = NO_HOP;
	return entry->action == IPSEC_PROTECT && entry->tunnel == tunnel ? packet_step(p)
									 : packet_drop(p, &drop_mismatch);
}

// A fragment out of an SA, of which the ports were in the first one.
static __rte_noinline uint16_t
check_fragment(const struct rte_mbuf *m, struct packet *p)
{
	const struct ipsec_tunnel *t = ipsec_tunnel_at((uint32_t)hop_at(p->hop)->own[0]);
	struct ipsec_flow flow;

	p->hop = NO_HOP;
	ipsec_flow_of(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, p->family, &flow);
	if (flow.later_fragment &&
		ipsec_selectors_match_fragment(__atomic_load_n(&t->policy_selectors, __ATOMIC_ACQUIRE), &flow, false))
		return packet_step(p);
	return packet_drop(p, &drop_mismatch);
}

enum look { LOOK_OUT, LOOK_IN, LOOK_CHECK };

static __rte_always_inline void
look_up(const struct ipsec_database *database, void **packets, const uint16_t *places, unsigned count, uint16_t *next,
	enum look look)
{
	uint32_t verdicts[BURST];

	acl_find(database->list, packets, places, count, verdicts);
	for (unsigned i = 0; i < count; i++) {
		uint16_t place = places[i];
		struct rte_mbuf *m = packets[place];
		struct packet *p = packet_of(m);
		const struct ipsec_entry *entry = entry_of(database, m, p, verdicts[place]);

		if (unlikely(!entry))
			next[place] =
				look == LOOK_CHECK && p->drop == drop_fragment.id ? check_fragment(m, p) : drop_node.id;
		else
			next[place] = look == LOOK_OUT  ? settle_out(m, p, entry)
				      : look == LOOK_IN ? settle_in(m, p, entry)
							: settle_check(m, p, entry);
	}
}

static __rte_always_inline void
classify(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count, enum look look)
{
	const enum interface_way way = look == LOOK_OUT ? INTERFACE_OUT : INTERFACE_IN;
	uint16_t next[BURST], places[BURST], same[BURST];
	uint32_t of[BURST];
	unsigned left = count;

	for (uint16_t i = 0; i < count; i++) {
		const struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(packets[i]);

		places[i] = i;
		if (look != LOOK_CHECK && (is_exempt(m, p, way) || (look == LOOK_IN && waits_for_whole(m, p))))
			of[i] = NO_INTERFACE;
		else
			of[i] = look == LOOK_OUT ? hop_at(p->hop)->interface : p->interface;
	}
	while (left > 0) {
		uint32_t interface = of[places[0]];
		unsigned some = take_same(of, places, &left, same);
		const struct ipsec_database *database =
			interface == NO_INTERFACE ? NULL : ipsec_database_of(interface, way);

		if (likely(database != NULL)) {
			look_up(database, packets, same, some, next, look);
			continue;
		}
		for (unsigned i = 0; i < some; i++) {
			struct packet *p = packet_of(packets[same[i]]);

			// A packet out of an SA needs a policy that still exists.
			next[same[i]] = look == LOOK_CHECK ? packet_drop(p, &drop_mismatch) : packet_step(p);
		}
	}
	node_dispatch(graph, node, packets, next, count);
}

static void
out_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	classify(graph, node, packets, count, LOOK_OUT);
}

static void
in_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	classify(graph, node, packets, count, LOOK_IN);
}

static void
check_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	classify(graph, node, packets, count, LOOK_CHECK);
}

static uint16_t
policy_out(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, out_burst);
}

static uint16_t
policy_in(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, in_burst);
}

static uint16_t
policy_check(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, check_burst);
}

static void
describe(char *text, size_t size, uint32_t interface, const char *what)
{
	const struct object *object = interface < INTERFACE_LIMIT ? interface_detail(interface)->object : NULL;

	snprintf(text, size, "policies of interface %s, %s", object ? object->name : "?", what);
}

static void
out_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	describe(text, size, hop_at(p->hop)->interface, "outbound");
}

static void
in_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	describe(text, size, p->interface, "inbound");
}

static void
check_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	describe(text, size, p->interface, "out of a security association");
}

struct node ipsec_policy_out_node = {.name = "ipsec-policy-out",
	.process = policy_out,
	.describe = out_describe,
	.edges = NODE_EDGES(&esp_policy_node),
	.steps = true};
NODE_REGISTER(ipsec_policy_out_node)
struct node ipsec_policy_in_node = {
	.name = "ipsec-policy-in", .process = policy_in, .describe = in_describe, .steps = true};
NODE_REGISTER(ipsec_policy_in_node)
struct node ipsec_policy_check_node = {
	.name = "ipsec-policy-check", .process = policy_check, .describe = check_describe, .steps = true};
NODE_REGISTER(ipsec_policy_check_node)

// ---- Frames of daemons behind a port's twin.

bool
ipsec_policy_twin(uint16_t port, struct rte_mbuf *m)
{
	uint32_t interface = ipsec_policy_interface(port), verdict = 0;
	const struct ipsec_database *database =
		interface == NO_INTERFACE ? NULL : ipsec_database_of(interface, INTERFACE_OUT);
	struct packet *p = packet_of(m);
	const struct ipsec_entry *entry;
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	uint16_t places[1] = {0};
	void *packets[1] = {m};
	uint16_t type;

	if (likely(!database) || m->data_len < RTE_ETHER_HDR_LEN + sizeof(struct ip4_header))
		return false;
	type = (uint16_t)(frame[12] << 8 | frame[13]);
	if (type != RTE_ETHER_TYPE_IPV4 && type != RTE_ETHER_TYPE_IPV6)
		return false;
	p->family = type == RTE_ETHER_TYPE_IPV4 ? 4 : 6;
	packet_advance(m, RTE_ETHER_HDR_LEN);
	if (m->data_len < (p->family == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header)) ||
		rte_pktmbuf_mtod(m, const uint8_t *)[0] >> 4 != p->family || is_exempt(m, p, INTERFACE_OUT)) {
		packet_advance(m, -RTE_ETHER_HDR_LEN);
		return false;
	}
	acl_find(database->list, packets, places, 1, &verdict);
	entry = entry_of(database, m, p, verdict);
	if (entry && entry->action == IPSEC_BYPASS) {
		packet_advance(m, -RTE_ETHER_HDR_LEN);
		return false;
	}
	if (!entry || entry->action == IPSEC_DISCARD) {
		drop_now(m, entry ? &drop_discard : drop_by_id(p->drop));
		return true;
	}
	p->session = NO_SESSION;
	p->interface = NO_INTERFACE;
	p->vrf = interface_at(interface)->vrf;
	p->hop = ipsec_tunnel_at(entry->tunnel)->policy_hop;
	inject(m, &esp_policy_node);
	return true;
}
