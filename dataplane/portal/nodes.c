// SPDX-License-Identifier: Apache-2.0
// Nodes of walled gardens: packets of allowed hosts, DNS and ICMP errors pass, HTTP goes to the agent, which redirects it, and everything else
// is dropped. Only sessions in a garden come here, so a packet may cost a walk over the portal's few prefixes.
#include <stddef.h>
#include <stdio.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/punt.h"
#include "fib/hop.h"
#include "fib/vrf.h"
#include "inet/header.h"
#include "ip/extensions.h"
#include "portal/portal.h"
#include "session/session.h"

enum {
	DNS = 53,
	HTTP = 80,
	PORTS = 4, // bytes of a transport header that hold its ports
	ICMP4_UNREACHABLE_TYPE = 3,
	ICMP4_TIME_EXCEEDED_TYPE = 11,
	ICMP4_PARAMETER_TYPE = 12,
	ICMP6_ERROR_LAST = 4, // RFC 4443 section 2.1: 1 to 4 are the errors that are assigned

	// Of all sessions, and of one on each worker: a browser opens half a dozen connections at once.
	HTTP_A_SECOND = 20000,
	HTTP_EACH = 100,
};

DROP(portal_denied, "portal-denied",
	"A packet of a session in a walled garden (policy.portal) from or to a host that the Portal does not allow.")

PUNT_EACH(punt_portal, "portal", HTTP_A_SECOND, HTTP_EACH, NULL)

// The fields that a portal reads.
struct view {
	const uint8_t *other; // the address that is not the subscriber's, 4 or 16 bytes
	uint8_t protocol;
	bool first;    // the transport header is here: no fragment, or the first
	uint16_t port; // of the other host, 0: none
	uint8_t icmp_type;
};

static struct view
look(const struct rte_mbuf *m, uint8_t family, enum direction direction)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
	struct view v = {0};
	unsigned at;

	if (family == 4) {
		const struct ip4_header *header = (const struct ip4_header *)ip;

		v.other = (const uint8_t *)header + (direction == UP ? offsetof(struct ip4_header, destination)
								     : offsetof(struct ip4_header, source));
		v.protocol = header->protocol;
		v.first = (header->fragment & RTE_BE16(IP4_OFFSET)) == 0;
		at = ip4_header_length(header);
	} else {
		const struct ip6_header *header = (const struct ip6_header *)ip;
		struct ip6_chain chain = {.offset = sizeof(*header), .next_header = header->next_header};

		v.other = direction == UP ? header->destination : header->source;
		v.first = header->next_header == PROTOCOL_TCP || header->next_header == PROTOCOL_UDP ||
			  ip6_extensions(ip, m->data_len, &chain) == IP6_OK;
		v.protocol = chain.next_header;
		at = chain.offset;
	}
	if (!v.first || m->data_len < at + PORTS) {
		v.first = false;
		return v;
	}
	if (v.protocol == PROTOCOL_TCP || v.protocol == PROTOCOL_UDP) {
		const uint8_t *port = ip + at + (direction == UP ? 2 : 0);

		v.port = (uint16_t)(port[0] << 8 | port[1]);
	} else {
		v.icmp_type = ip[at];
	}
	return v;
}

static bool
listed(const struct session_prefix *list, unsigned count, uint8_t family, const uint8_t *address)
{
	for (unsigned i = 0; i < count; i++)
		if (session_prefix_has(&list[i], family, address))
			return true;
	return false;
}

// ICMP errors are about packets that passed, and path MTU discovery needs them.
static bool
is_error(const struct view *v)
{
	return v->first && ((v->protocol == PROTOCOL_ICMP && (v->icmp_type == ICMP4_UNREACHABLE_TYPE ||
								     v->icmp_type == ICMP4_TIME_EXCEEDED_TYPE ||
								     v->icmp_type == ICMP4_PARAMETER_TYPE)) ||
				   (v->protocol == PROTOCOL_ICMP6 && v->icmp_type <= ICMP6_ERROR_LAST));
}

static bool
allows(const struct portal *portal, const struct view *v, uint8_t family)
{
	return listed(portal->list, portal->allowed, family, v->other) ||
	       (v->port == DNS &&
		       (portal->servers == 0 || listed(portal->server_list, portal->servers, family, v->other))) ||
	       is_error(v);
}

static bool
is_ours(uint16_t vrf, uint8_t family, const uint8_t *address)
{
	const struct fib *fib = vrf_fib(vrf, family);
	uint32_t address4;

	if (!fib)
		return false;
	memcpy(&address4, address, sizeof(address4));
	return hop_at(family == 4 ? fib4_lookup(fib, address4) : fib6_lookup(fib, address))->kind == HOP_LOCAL;
}

static const struct portal *
portal_at(uint32_t session)
{
	uint32_t index = __atomic_load_n(&session_portals[session], __ATOMIC_ACQUIRE);

	return index == NO_PORTAL ? NULL : atomic_load(&((struct portal_slot *)slab_at(&portal_slots, index))->portal);
}

static inline uint16_t
up(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	const struct portal *portal = portal_at(p->session);
	struct view v;

	// A portal that went away while the packet was on its way to it.
	if (!portal)
		return packet_step(p);
	v = look(m, p->family, UP);
	if (allows(portal, &v, p->family))
		return packet_step(p);
	if (v.protocol == PROTOCOL_TCP && v.port == HTTP)
		return packet_punt(p, &punt_portal);
	return is_ours(p->vrf, p->family, v.other) ? packet_step(p) : packet_drop(p, &portal_denied);
}

static inline uint16_t
down(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	const struct portal *portal = portal_at(p->session);
	struct view v;

	if (!portal || (p->flags & (PACKET_OURS | PACKET_TUNNELLED)) == PACKET_OURS)
		return packet_step(p);
	v = look(m, p->family, DOWN);
	return allows(portal, &v, p->family) ? packet_step(p) : packet_drop(p, &portal_denied);
}

static uint16_t
portal_up(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_packet(graph, node, packets, count, up);
}

static uint16_t
portal_down(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_packet(graph, node, packets, count, down);
}

static void
describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	snprintf(text, size, "session %s is in a walled garden", session_name(p->session));
}

struct node portal_up_node = {.name = "portal-up",
	.process = portal_up,
	.describe = describe,
	.edges = NODE_EDGES(&punt_node),
	.steps = true};
struct node portal_down_node = {.name = "portal-down", .process = portal_down, .describe = describe, .steps = true};
NODE_REGISTER(portal_up_node)
NODE_REGISTER(portal_down_node)
