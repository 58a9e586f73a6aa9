// SPDX-License-Identifier: Apache-2.0
// PPPoE discovery (RFC 2516 section 5): looked at as far as is needed to know that it is a packet for the agent.
#include <stdio.h>

#include "core/drop.h"
#include "core/punt.h"
#include "pppoe/header.h"
#include "pppoe/table.h"
#include "punt/circuit.h"

enum { DISCOVERY_A_SECOND = 10000, DISCOVERY_EACH = 50, TAG = 4, TAG_END = 0x0000 };

DROP(drop_discovery, "pppoe-discovery-malformed",
	"A PPPoE discovery packet that is shorter than it says, or with a tag that is.")
DROP(drop_code, "pppoe-discovery-code", "A PPPoE discovery packet of a kind that only access concentrators send.")

PUNT_EACH(punt_discovery, "pppoe-discovery", DISCOVERY_A_SECOND, DISCOVERY_EACH, NULL)
static struct punt_protocol discovery_protocol = {.name = "pppoe-discovery"};
PUNT_PROTOCOL_REGISTER(discovery_protocol)

bool
pppoe_discovery_valid(const uint8_t *bytes, size_t available, size_t total, struct pppoe_header *header)
{
	size_t end, at = PPPOE_HEADER;

	if (!pppoe_parse(bytes, available, total, header))
		return false;
	end = PPPOE_HEADER + (size_t)header->length;
	if (end > available)
		return false;
	while (at < end) {
		size_t length;

		if (end - at < TAG)
			return false;
		length = (size_t)(bytes[at + 2] << 8 | bytes[at + 3]);
		if (length > end - at - TAG)
			return false;
		if (bytes[at] == 0 && bytes[at + 1] == TAG_END)
			return true;
		at += TAG + length;
	}
	return true;
}

static uint16_t
take(struct rte_mbuf *m, struct packet *p)
{
	const struct circuit circuit = {p->port, p->outer_vlan, p->inner_vlan};
	struct pppoe_header header;

	if (!pppoe_discovery_valid(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, m->pkt_len, &header))
		return packet_drop(p, &drop_discovery);
	if (header.code != PPPOE_PADI && header.code != PPPOE_PADR && header.code != PPPOE_PADT)
		return packet_drop(p, &drop_code);
	// A PADT is punted with its session. All other packets need a Punt on the circuit.
	p->session = header.code == PPPOE_PADT ? pppoe_find(&pppoe_sessions, &circuit, header.session) : NO_SESSION;
	if (p->session != NO_SESSION)
		return packet_punt(p, &punt_discovery);
	return punt_from_circuit(m, p, &discovery_protocol);
}

static uint16_t
pppoe_discovery(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t start = 0; start < count; start += BURST) {
		uint16_t part = (uint16_t)RTE_MIN(count - start, BURST), next[BURST];

		for (uint16_t i = 0; i < part; i++)
			next[i] = take(packets[start + i], packet_of(packets[start + i]));
		node_dispatch(graph, node, packets + start, next, part);
	}
	return count;
}

static void
pppoe_discovery_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	struct pppoe_header header = {0};

	if (pppoe_parse(data, length, UINT16_MAX, &header))
		snprintf(text, size, "discovery code 0x%02x, session id %u, %u bytes of tags", header.code,
			header.session, header.length);
	else
		snprintf(text, size, "not PPPoE");
}

struct node pppoe_discovery_node = {.name = "pppoe-discovery",
	.process = pppoe_discovery,
	.describe = pppoe_discovery_describe,
	.edges = NODE_EDGES(&punt_node)};
NODE_REGISTER(pppoe_discovery_node)
