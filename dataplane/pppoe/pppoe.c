// PPPoE session packets (RFC 2516 section 6): whose they are, and what is in them. A padded frame is cut to the length that
// PPPoE says; a bare one (there are tags, so it need not be 60 bytes) is as good.
#include <errno.h>
#include <stdio.h>

#include <rte_prefetch.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/punt.h"
#include "ip/hop.h"
#include "pppoe/header.h"
#include "pppoe/table.h"
#include "session/session.h"

enum { CONTROL_A_SECOND = 20000, PART = 64 };

DROP(drop_malformed, "pppoe-malformed",
	"A PPPoE session packet that is shorter than it says, or not of version 1 and code 0.")
DROP(drop_unknown, "pppoe-unknown-session", "No session has this PPPoE session id on these VLANs.")

PUNT(punt_control, "ppp-control", CONTROL_A_SECOND, NULL)

static int
pppoe_bind(const struct circuit *c, uint16_t pppoe_session, uint32_t session, struct fault *f)
{
	int error = pppoe_table_put(c, pppoe_session, session);

	if (error == -EEXIST)
		return fault(f, EEXIST,
			"access.pppoeSessionId: %u is Session \"%.64s\"'s on these VLANs; choose another",
			pppoe_session, session_name(pppoe_find(c, pppoe_session)));
	return error ? fault(f, -error, "access.pppoeSessionId: there is no memory for it") : 0;
}

static void
pppoe_unbind(const struct circuit *c, uint16_t pppoe_session)
{
	pppoe_table_delete(c, pppoe_session);
}

// The first look at a packet: its circuit's slot on its way, and its PPPoE session id, or 0 if it is no session packet.
static inline uint16_t
look(const struct rte_mbuf *m, const struct packet *p, const _Atomic uint64_t **slot)
{
	static const _Atomic uint64_t nothing;
	const uint8_t *bytes = rte_pktmbuf_mtod(m, const uint8_t *);
	struct pppoe_header header;

	*slot = &nothing;
	if (unlikely(m->data_len < PPPOE_HEADER + PPP_PROTOCOL))
		return 0;
	if (unlikely(!pppoe_parse(bytes, m->data_len, m->pkt_len, &header)) || header.code != PPPOE_SESSION_DATA ||
		header.length < PPP_PROTOCOL)
		return 0;
	*slot = pppoe_slot(p->port, p->outer_vlan, p->inner_vlan);
	if (unlikely(*slot == NULL))
		*slot = &nothing;
	rte_prefetch0((const void *)*slot);
	return header.session;
}

// Sessions of circuits that have many.
static void
find_in_map(void **packets, const uint16_t *ids, const bool *many, uint32_t *found, uint16_t count)
{
	uint64_t keys[PART];
	uint32_t sessions[PART];

	for (uint16_t i = 0; i < count; i++) {
		const struct packet *p = packet_of(packets[i]);

		keys[i] = many[i] ? pppoe_key(p->port, p->outer_vlan, p->inner_vlan, ids[i]) : 0;
	}
	map64_get_bulk(pppoe_sessions, keys, sessions, count);
	for (uint16_t i = 0; i < count; i++)
		found[i] = many[i] ? sessions[i] : found[i];
}

// The second: the session is known, and so is that the header is right.
static inline uint16_t
enter(struct rte_mbuf *m, struct packet *p, uint32_t session)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(m, const uint8_t *);
	uint16_t protocol = (uint16_t)(bytes[PPPOE_HEADER] << 8 | bytes[PPPOE_HEADER + 1]);
	uint32_t length = (uint32_t)(bytes[4] << 8 | bytes[5]) + PPPOE_HEADER;

	p->session = session;
	p->interface = NO_INTERFACE;
	if (unlikely(protocol != PPP_IP4 && protocol != PPP_IP6))
		return packet_punt(p, &punt_control);
	if (likely(m->nb_segs == 1)) {
		m->data_len = (uint16_t)length;
		m->pkt_len = length;
	} else if (length < m->pkt_len) {
		// Padding is within the last segment; if it is not, the IP header's length cuts it.
		rte_pktmbuf_trim(m, (uint16_t)(m->pkt_len - length));
	}
	packet_advance(m, PPPOE_HEADER + PPP_PROTOCOL);
	p->l2_length = (uint8_t)(p->l2_length + PPPOE_HEADER + PPP_PROTOCOL);
	p->chain = protocol == PPP_IP4 ? session_up4_node.id : session_up6_node.id;
	return protocol == PPP_IP4 ? ip4_input_node.id : ip6_input_node.id;
}

// Few enough that what the first look has read is still near for the second.
static inline void
pppoe_session_part(void **packets, uint16_t *next, uint16_t count)
{
	const _Atomic uint64_t *slots[PART];
	uint16_t ids[PART];
	uint32_t found[PART];
	bool many[PART], any = false;

	for (uint16_t i = 0; i < count; i++)
		ids[i] = look(packets[i], packet_of(packets[i]), &slots[i]);
	for (uint16_t i = 0; i < count; i++) {
		found[i] = pppoe_of_word(atomic_load_explicit(slots[i], memory_order_acquire), ids[i], &many[i]);
		any |= many[i];
	}
	if (any)
		find_in_map(packets, ids, many, found, count);
	for (uint16_t i = 0; i < count; i++) {
		struct packet *p = packet_of(packets[i]);

		if (likely(found[i] != NO_SESSION)) {
			rte_prefetch0(session_at(found[i]));
			next[i] = enter(packets[i], p, found[i]);
		} else {
			// An IPoE session on the same VLANs has no part in this.
			p->session = NO_SESSION;
			next[i] = packet_drop(p, ids[i] == 0 ? &drop_malformed : &drop_unknown);
		}
	}
}

static void
pppoe_session_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (uint16_t start = 0; start < count; start += PART)
		pppoe_session_part(packets + start, next + start, (uint16_t)RTE_MIN(count - start, PART));
	node_dispatch(graph, node, packets, next, count);
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

struct node pppoe_session_node = {
	.name = "pppoe-session", .process = pppoe_session, .describe = pppoe_session_describe};
NODE_REGISTER(pppoe_session_node)

static int
pppoe_start(void)
{
	pppoe_sessions = map64_create();
	if (!pppoe_sessions)
		return -ENOMEM;
	ether_type_register(RTE_ETHER_TYPE_PPPOE_SESSION, &pppoe_session_node);
	ether_type_register(RTE_ETHER_TYPE_PPPOE_DISCOVERY, &pppoe_discovery_node);
	return 0;
}

static const struct session_access access = {.start = pppoe_start,
	.bind = pppoe_bind,
	.unbind = pppoe_unbind,
	.find = pppoe_find,
	.rebind = pppoe_table_replace};
RTE_INIT(register_pppoe)
{
	session_access_register(&access);
}
