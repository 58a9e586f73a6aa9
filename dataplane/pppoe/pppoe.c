// SPDX-License-Identifier: Apache-2.0
// PPPoE session packets (RFC 2516 section 6): their session, and their payload. A padded frame is cut to the length of the PPPoE
// header; a frame without padding (with tags it need not be 60 bytes) is valid, too.
#include <errno.h>
#include <stdio.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/encapsulation.h"
#include "core/punt.h"
#include "ether/own_type.h"
#include "fib/hop.h"
#include "ip/nodes.h"
#include "pppoe/access.h"
#include "pppoe/echo.h"
#include "pppoe/header.h"
#include "pppoe/input.h"
#include "pppoe/keepalive.h"
#include "pppoe/table.h"
#include "punt/circuit.h"
#include "punt/table.h"
#include "session/session.h"
#include "session/spec.h"

enum { CONTROL_A_SECOND = 60000, CONTROL_EACH = 100 };

DROP(drop_malformed, "pppoe-malformed",
	"A PPPoE session packet that is shorter than it says, of version 1 with a code that is not 0, or of a version "
	"that has no node.")
DROP(drop_unknown, "pppoe-unknown-session", "No session has this PPPoE session id on these VLANs.")

DROP(drop_group, "pppoe-to-group", "PPPoE session data in a frame to a broadcast or multicast MAC (RFC 2516).")

PUNT_EACH(punt_control, "ppp-control", CONTROL_A_SECOND, CONTROL_EACH, NULL)
static struct punt_protocol control_protocol = {.name = "ppp-control"};
PUNT_PROTOCOL_REGISTER(control_protocol)

// 0: no session packet of version 1.
static inline uint16_t
session_id(const struct rte_mbuf *m)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(m, const uint8_t *);
	struct pppoe_header header;

	if (unlikely(m->data_len < PPPOE_HEADER + PPP_PROTOCOL))
		return 0;
	if (unlikely(!pppoe_parse(bytes, m->data_len, m->pkt_len, &header)) || header.code != PPPOE_SESSION_DATA ||
		header.length < PPP_PROTOCOL)
		return 0;
	return header.session;
}

static inline uint16_t
enter(struct rte_mbuf *m, struct packet *p)
{
	uint16_t protocol = pppoe_protocol(rte_pktmbuf_mtod(m, const uint8_t *)), next;

	if (likely(protocol == PPP_IP4 || protocol == PPP_IP6))
		return pppoe_take_off(m, p, protocol);
	return protocol == PPP_LCP && pppoe_echo(m, p, &next) ? next : packet_punt(p, &punt_control);
}

// The header is right, and no session has its id. A session is made once LCP and authentication are over: until then the agent negotiates
// where a Punt lets it. VSNP (RFC 3772) carries the control plane of 5G residential gateways, though its number is a network protocol's.
static uint16_t
enter_unknown(struct rte_mbuf *m, struct packet *p)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(m, const uint8_t *);
	uint16_t protocol = pppoe_protocol(bytes);

	if ((protocol < PPP_CONTROL_FIRST && protocol != PPP_VSNP) ||
		!punt_find(p->port, p->outer_vlan, p->inner_vlan, control_protocol.number))
		return packet_drop(p, &drop_unknown);
	return punt_from_circuit(m, p, &control_protocol);
}

static const struct node *versions[UINT8_MAX + 1]; // by the first byte of the header

void
pppoe_version_register(uint8_t version_type, struct node *node)
{
	versions[version_type] = node;
	node_edge(&pppoe_session_node, node);
}

// No session packet of version 1.
static uint16_t
enter_version(struct rte_mbuf *m, struct packet *p)
{
	const struct node *node = m->data_len > 0 ? versions[*rte_pktmbuf_mtod(m, const uint8_t *)] : NULL;

	return node ? node->id : packet_drop(p, &drop_malformed);
}

static inline uint16_t
enter_other(struct rte_mbuf *m, struct packet *p, uint16_t id)
{
	return id == 0 ? enter_version(m, p) : enter_unknown(m, p);
}

static const struct pppoe_version version_1 = {
	.table = &pppoe_sessions, .session_id = session_id, .enter = enter, .enter_other = enter_other};

static void
pppoe_session_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	pppoe_input(&version_1, graph, node, packets, count);
}

static uint16_t
pppoe_session(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, pppoe_session_burst);
}

static void
pppoe_session_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	struct pppoe_header header = {0};

	if (length >= PPPOE_HEADER + PPP_PROTOCOL && pppoe_parse(data, length, UINT16_MAX, &header))
		snprintf(text, size, "session id %u, PPP protocol 0x%02x%02x, %u bytes", header.session,
			data[PPPOE_HEADER], data[PPPOE_HEADER + 1], header.length);
	else
		snprintf(text, size, "not PPPoE");
}

struct node pppoe_session_node = {.name = "pppoe-session",
	.process = pppoe_session,
	.describe = pppoe_session_describe,
	.edges = NODE_EDGES(&ip4_input_node, &ip6_input_node, &punt_node, &tx_node)};
NODE_REGISTER(pppoe_session_node)

// RFC 2516 section 5: frames of the session stage are unicast.
static uint16_t
pppoe_group(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++)
		packet_drop(packet_of(packets[i]), &drop_group);
	rte_node_enqueue(graph, node, drop_node.id, packets, count);
	return count;
}

static struct node pppoe_group_node = {.name = "pppoe-group", .process = pppoe_group};
NODE_REGISTER(pppoe_group_node)

static int
pppoe_start(void)
{
	if (pppoe_table_start(&pppoe_sessions) || pppoe_echo_start() || keepalive_start())
		return -ENOMEM;
	ether_own_type_register(RTE_ETHER_TYPE_PPPOE_SESSION, &pppoe_session_node);
	ether_own_type_register(RTE_ETHER_TYPE_PPPOE_DISCOVERY, &pppoe_discovery_node);
	ether_group_register(RTE_ETHER_TYPE_PPPOE_SESSION, &pppoe_group_node);
	return 0;
}

static bool
read_header(const uint8_t *bytes, size_t available, size_t total, struct encapsulated *found)
{
	struct pppoe_header header;
	unsigned protocol;

	if (available < PPPOE_HEADER + PPP_PROTOCOL || !pppoe_parse(bytes, available, total, &header) ||
		header.code != PPPOE_SESSION_DATA)
		return false;
	*found = (struct encapsulated){.id = header.session};
	protocol = pppoe_protocol(bytes);
	if (protocol == PPP_IP4 || protocol == PPP_IP6) {
		found->length = PPPOE_HEADER + PPP_PROTOCOL;
		found->type = protocol == PPP_IP4 ? RTE_ETHER_TYPE_IPV4 : RTE_ETHER_TYPE_IPV6;
	}
	return true;
}

static const char *const filter_words[] = {"pppoes", "pppoed", NULL};
static struct encapsulation encapsulation = {
	.ether_type = RTE_ETHER_TYPE_PPPOE_SESSION, .read = read_header, .words = filter_words};
ENCAPSULATION_REGISTER(encapsulation)

// ---- The access: frames lead to their session by circuit and PPPoE session id, not by MAC.

static bool
takes(const Sluice__V1__Access *spec)
{
	return spec->pppoe_session_id != 0;
}

static int
parse(const Sluice__V1__Access *spec, struct session_key *key, struct fault *f)
{
	key->own[PPPOE_OWN_ID] = spec->pppoe_session_id;
	key->own[PPPOE_OWN_MAGIC] = spec->lcp_magic;
	return session_parse_circuit(spec, key, f);
}

static void
publish(uint32_t session, const struct session_key *key)
{
	pppoe_echo_magic(session, (uint32_t)key->own[PPPOE_OWN_MAGIC]);
}

static struct pppoe_access pppoe = {.access = {.name = "PPPoE",
					    .takes = takes,
					    .parse = parse,
					    .no_frames = "access.pppoeSessionId",
					    .publish = publish,
					    .start = pppoe_start},
	.table = &pppoe_sessions,
	.field = "pppoeSessionId",
	.version_type = PPPOE_VERSION_TYPE};
PPPOE_ACCESS_REGISTER(pppoe)
