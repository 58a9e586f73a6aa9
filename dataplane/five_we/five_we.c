// SPDX-License-Identifier: Apache-2.0
// 5WE (RFC 8822): packets of 5G residential gateways, with the QFI of each. PPPoE of version 1, which carries their control plane, is on the same
// circuit, and has session ids of its own.
#include <errno.h>
#include <stdio.h>

#include <rte_ether.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/encapsulation.h"
#include "five_we/header.h"
#include "ip/nodes.h"
#include "pppoe/access.h"
#include "pppoe/input.h"
#include "session/session.h"
#include "session/spec.h"

DROP(drop_malformed, "5we-malformed", "A 5WE packet that is shorter than its length, or without a protocol.")
DROP(drop_unknown, "5we-unknown-session", "No session has this 5WE session id on these VLANs.")
DROP(drop_protocol, "5we-protocol",
	"A 5WE packet that holds neither IPv4 nor IPv6, or for a session of type Ethernet no frame without FCS.")

static struct pppoe_table sessions_by_id;
static struct node five_we_session_node;

// ---- From the subscriber.

static inline uint16_t
session_id(const struct rte_mbuf *m)
{
	struct five_we_header header;

	return likely(five_we_parse(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, m->pkt_len, &header))
		       ? header.session
		       : 0;
}

// A frame of a session of type Ethernet goes on without all that is before it.
static __rte_noinline uint16_t
enter_frame(struct rte_mbuf *m, struct packet *p)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(m, const uint8_t *);
	uint32_t length = (uint32_t)(bytes[4] << 8 | bytes[5]) + PPPOE_HEADER;

	if (!(session_at(p->session)->flags & SESSION_FRAMES))
		return packet_drop(p, &drop_protocol);
	if (length < FIVE_WE_HEADER + FIVE_WE_FRAME + RTE_ETHER_HDR_LEN ||
		m->data_len < FIVE_WE_HEADER + FIVE_WE_FRAME + RTE_ETHER_HDR_LEN)
		return packet_drop(p, &drop_malformed);
	if ((bytes[FIVE_WE_HEADER] << 8 | bytes[FIVE_WE_HEADER + 1]) != FIVE_WE_FRAME_HEADER)
		return packet_drop(p, &drop_protocol);
	if (m->nb_segs == 1) {
		m->data_len = (uint16_t)length;
		m->pkt_len = length;
	} else if (length < m->pkt_len) {
		// Padding that is longer than the last segment stays.
		rte_pktmbuf_trim(m, (uint16_t)(m->pkt_len - length));
	}
	packet_advance(m, FIVE_WE_HEADER + FIVE_WE_FRAME);
	// It has no tags of the access.
	p->l2_length = RTE_ETHER_HDR_LEN;
	return session_frames_up_node.id;
}

// The subscriber's gateway chose the QFI; 0 is none. The network ignores RQI.
static inline uint16_t
enter(struct rte_mbuf *m, struct packet *p)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(m, const uint8_t *);
	uint16_t protocol = pppoe_protocol(bytes);
	uint8_t qfi = bytes[1] >> FIVE_WE_QFI_SHIFT;

	p->qfi = qfi;
	p->flags |= qfi ? PACKET_QFI : 0;
	if (unlikely(protocol != PPP_IP4 && protocol != PPP_IP6))
		return protocol == PPP_BRIDGED ? enter_frame(m, p) : packet_drop(p, &drop_protocol);
	return pppoe_take_off(m, p, protocol);
}

static inline uint16_t
enter_other(struct rte_mbuf *m, struct packet *p, uint16_t id)
{
	return packet_drop(p, id == 0 ? &drop_malformed : &drop_unknown);
}

static const struct pppoe_version version_2 = {
	.table = &sessions_by_id, .session_id = session_id, .enter = enter, .enter_other = enter_other};

static void
five_we_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	pppoe_input(&version_2, graph, node, packets, count);
}

static uint16_t
five_we_session(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, five_we_burst);
}

static void
five_we_session_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	struct five_we_header header = {0};

	if (five_we_parse(data, length, UINT16_MAX + PPPOE_HEADER, &header))
		snprintf(text, size, "session id %u, QFI %u, PPP protocol 0x%04x", header.session, header.qfi,
			header.protocol);
	else
		snprintf(text, size, "not 5WE");
}

static struct node five_we_session_node = {.name = "5we-session",
	.process = five_we_session,
	.describe = five_we_session_describe,
	.edges = NODE_EDGES(&ip4_input_node, &ip6_input_node, &session_frames_up_node)};
NODE_REGISTER(five_we_session_node)

static bool
read_header(const uint8_t *bytes, size_t available, size_t total, struct encapsulated *found)
{
	struct five_we_header header;

	if (!five_we_parse(bytes, available, total, &header))
		return false;
	*found = (struct encapsulated){.id = header.session};
	if (header.protocol == PPP_IP4 || header.protocol == PPP_IP6) {
		found->length = FIVE_WE_HEADER;
		found->type = header.protocol == PPP_IP4 ? RTE_ETHER_TYPE_IPV4 : RTE_ETHER_TYPE_IPV6;
	} else if (header.protocol == PPP_BRIDGED) {
		found->length = FIVE_WE_HEADER + FIVE_WE_FRAME;
	}
	return true;
}

static struct encapsulation encapsulation = {.ether_type = 0x8864, .read = read_header};
ENCAPSULATION_REGISTER(encapsulation)

// ---- The access.

static bool
takes(const Sluice__V1__Access *spec)
{
	return spec->five_we_session_id != 0;
}

static int
parse(const Sluice__V1__Access *spec, struct session_key *key, struct fault *f)
{
	if (spec->lcp_magic != 0)
		return fault(f, EINVAL, "access.lcpMagic: 5WE has no LCP; leave it or access.fiveWeSessionId out");
	key->own[0] = spec->five_we_session_id;
	return session_parse_circuit(spec, key, f);
}

static void
finish(uint8_t *ip, const struct packet *p)
{
	uint8_t qfi = p->qfi == NO_QFI ? 0 : p->qfi;

	ip[-FIVE_WE_QFI_BEFORE] =
		(uint8_t)(qfi << FIVE_WE_QFI_SHIFT | (p->flags & PACKET_REFLECT_QOS ? FIVE_WE_RQI : 0));
}

static int
start(void)
{
	pppoe_version_register(FIVE_WE_VERSION_TYPE, &five_we_session_node);
	return pppoe_table_start(&sessions_by_id);
}

static struct pppoe_access five_we = {.access = {.name = "5WE",
					      .takes = takes,
					      .parse = parse,
					      .frame = {.frame_type = RTE_BE16(PPP_BRIDGED),
						      .before_frame = RTE_BE16(FIVE_WE_FRAME_HEADER),
						      .finish = finish},
					      .start = start},
	.table = &sessions_by_id,
	.field = "fiveWeSessionId",
	.version_type = FIVE_WE_VERSION_TYPE};
PPPOE_ACCESS_REGISTER(five_we)
