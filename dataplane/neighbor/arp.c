// SPDX-License-Identifier: Apache-2.0
// ARP (RFC 826; RFC 5227 for conflicts; RFC 1027 for proxy ARP).
//
// A worker answers requests in the frame they came in. A message with a neighbour's Ethernet address goes to the main
// thread, but only if it changes an entry of the table.
#include "neighbor/arp.h"

#include <stdio.h>
#include <string.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/fair.h"
#include "core/punt.h"
#include "ether/circuit.h"
#include "ether/interface.h"
#include "ip/local.h"
#include "ip/subscriber.h"
#include "neighbor/neighbor.h"
#include "port/port.h"

INJECTED(tx_node)

enum {
	ARP_RATE = 20000,
	ARP_EACH = 500,
	// Answers of all workers, and to a source on each of them; as many at once.
	ANSWERS_A_SECOND = 50000,
	ANSWERS_EACH = 1000,
	NEW_RATE = 5000,
	NEW_EACH = 50,
	FRAME_MIN = 60,
};

DROP(drop_truncated, "arp-truncated", "The frame ends before the ARP message in it does.")
DROP(drop_format, "arp-format", "An ARP message that is not about IPv4 over Ethernet.")
DROP(drop_operation, "arp-operation", "An ARP message that is neither a request nor a reply.")
DROP(drop_sender, "arp-sender", "An ARP message whose sender has an address that no host can have, or another's.")
DROP(drop_mac, "arp-mac",
	"An ARP message of a subscriber that says that its sender has another Ethernet address than the session's.")
DROP(drop_own, "arp-own-mac",
	"An ARP message that says that its sender has the Ethernet address of the port it came in by.")
CONSUMED(drop_other, "arp-not-for-us", "An ARP request for an address that we do not answer for.")
CONSUMED(drop_noted, "arp-noted", "An ARP message that asks nothing of us; its sender has been noted.")
DROP(drop_unsolicited, "arp-unsolicited", "An ARP reply about an address that we do not send to.")
DROP(drop_rate, "arp-rate-limited", "More ARP requests than the rate limits of all sources and of this one allow.")
DROP(drop_duplicate, "duplicate-address", "Another host says that it has an address of ours.")

enum arp_fault
arp_check(const uint8_t *data, size_t length)
{
	const struct arp_message *arp = (const struct arp_message *)data;

	if (length < sizeof(*arp))
		return ARP_TRUNCATED;
	if (arp->hardware != RTE_BE16(1) || arp->protocol != RTE_BE16(RTE_ETHER_TYPE_IPV4) ||
		arp->hardware_length != RTE_ETHER_ADDR_LEN || arp->protocol_length != sizeof(arp->sender))
		return ARP_FORMAT;
	if (arp->operation != RTE_BE16(ARP_REQUEST) && arp->operation != RTE_BE16(ARP_REPLY))
		return ARP_OPERATION;
	// The sender's address may be zero in a probe alone (RFC 5227 section 1.1).
	if (!rte_is_valid_assigned_ether_addr(&arp->sender_mac) || arp->sender[0] >= 224 || arp->sender[0] == 127)
		return ARP_SENDER;
	if (arp->sender[0] == 0 &&
		(memcmp(arp->sender, (uint8_t[4]){0}, 4) != 0 || arp->operation == RTE_BE16(ARP_REPLY)))
		return ARP_SENDER;
	return ARP_OK;
}

static const struct drop *const reasons[] = {
	[ARP_TRUNCATED] = &drop_truncated,
	[ARP_FORMAT] = &drop_format,
	[ARP_OPERATION] = &drop_operation,
	[ARP_SENDER] = &drop_sender,
};

static bool
is_probe(const struct arp_message *arp)
{
	return memcmp(arp->sender, (uint8_t[4]){0}, 4) == 0;
}

static bool
answers(const struct packet *p, const struct arp_message *arp)
{
	uint8_t target[16] = {0};

	memcpy(target, arp->target, 4);
	// A probe for an address (RFC 5227): the gateway answers for its own addresses alone.
	switch (neighbor_target(p, 4, target)) {
	case TARGET_OURS:
		return true;
	case TARGET_PROXY:
		return !is_probe(arp) && memcmp(arp->sender, arp->target, 4) != 0;
	default:
		return false;
	}
}

// Turn the request into its answer, in the frame it came in, and the same tags.
static void
answer(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	struct arp_message *arp = rte_pktmbuf_mtod(m, struct arp_message *);
	struct rte_ether_hdr *ether;
	uint8_t asked[4];

	memcpy(asked, arp->target, sizeof(asked));
	arp->operation = RTE_BE16(ARP_REPLY);
	arp->target_mac = arp->sender_mac;
	memcpy(arp->target, arp->sender, sizeof(arp->target));
	arp->sender_mac = ports[p->port].mac;
	memcpy(arp->sender, asked, sizeof(arp->sender));
	ether = (struct rte_ether_hdr *)((uint8_t *)arp - p->l2_length);
	ether->dst_addr = arp->target_mac;
	ether->src_addr = arp->sender_mac;
	packet_advance(m, -(int)p->l2_length);
	p->flags |= PACKET_OURS;
	m->port = p->port;
}

// Main thread: enter the message into the table, then proceed as a worker.
static void
learn(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	const struct arp_message *arp = rte_pktmbuf_mtod(m, const struct arp_message *);
	bool reply = arp->operation == RTE_BE16(ARP_REPLY);
	struct neighbor_advert advert = {.mac = arp->sender_mac, .has_mac = true, .override = true};
	uint8_t sender[16] = {0}, target[16] = {0};

	if (p->interface >= INTERFACE_LIMIT || !interface_at(p->interface)->present) {
		drop_now(m, &drop_unsolicited);
		return;
	}
	memcpy(sender, arp->sender, 4);
	memcpy(target, arp->target, 4);
	if (p->detail == NEIGHBOR_ANSWERED) {
		advert.creates = true;
		neighbor_advertised(p->interface, 4, sender, &advert);
		rte_pktmbuf_free(m);
		return;
	}
	advert.creates = !reply && answers(p, arp);
	advert.solicited = reply && rte_is_same_ether_addr(&arp->target_mac, &ports[p->port].mac) &&
			   memcmp(arp->sender, arp->target, 4) != 0;
	neighbor_advertised(p->interface, 4, sender, &advert);
	if (!reply && answers(p, arp)) {
		answer(m);
		inject(m, &tx_node);
	} else if (reply && ip_local_has_twin(p)) {
		ip_local_to_twin(m);
	} else {
		drop_now(m, &drop_noted);
	}
}

PUNT_EACH(punt_learn, "arp-learn", ARP_RATE, ARP_EACH, learn)
// Of senders that are not known yet, so that many of them do not cost others their answers.
PUNT_EACH(punt_learn_new, "arp-learn-new", NEW_RATE, NEW_EACH, learn)

static uint16_t
answer_within_rate(struct rte_mbuf *m, struct packet *p)
{
	static struct fair_rates answers;

	if (!fair_spend(&answers, ANSWERS_A_SECOND, ANSWERS_EACH, m))
		return packet_drop(p, &drop_rate);
	answer(m);
	return tx_node.id;
}

static uint16_t
on_session(struct rte_mbuf *m, struct packet *p, const struct arp_message *arp)
{
	bool probe = is_probe(arp);

	if (!subscribers->may_have(p->session, arp->sender_mac.addr_bytes))
		return packet_drop(p, &drop_mac);
	if (!probe) {
		uint32_t session = subscribers->whose(p->session, 4, arp->sender);

		if (session == NO_SESSION)
			return packet_drop(p, &drop_sender);
		p->session = session;
		subscribers->learn(p->session, arp->sender_mac.addr_bytes);
	}
	if (arp->operation != RTE_BE16(ARP_REQUEST))
		return packet_drop(p, &drop_noted);
	if (!answers(p, arp))
		return packet_drop(p, &drop_other);
	return answer_within_rate(m, p);
}

static uint16_t
on_interface(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf *m, const struct arp_message *arp)
{
	struct packet *p = packet_of(m);
	bool request = arp->operation == RTE_BE16(ARP_REQUEST), twin = ip_local_has_twin(p);
	uint8_t sender[16] = {0};
	enum neighbor_news news;

	memcpy(sender, arp->sender, 4);
	if (!is_probe(arp) && neighbor_is_ours(p, 4, sender))
		return packet_drop(p, &drop_duplicate);
	news = neighbor_compare(p->interface, 4, sender, &arp->sender_mac);
	// A reply confirms, even with nothing new in it. The twin's daemons ask by themselves.
	if (news == NEIGHBOR_NEWS || (!request && (news != NEIGHBOR_NOT_THERE || twin))) {
		p->detail = 0;
		return packet_punt(p, &punt_learn);
	}
	if (!request)
		return packet_drop(p, &drop_unsolicited);
	if (!answers(p, arp))
		return packet_drop(p, news == NEIGHBOR_NOT_THERE ? &drop_other : &drop_noted);
	if (news == NEIGHBOR_NOT_THERE && !is_probe(arp) && neighbor_may_begin(p, 4, sender))
		neighbor_learn_from_copy(graph, node, m, sizeof(struct arp_message), &punt_learn_new);
	return answer_within_rate(m, p);
}

static uint16_t
take(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	const struct arp_message *arp = rte_pktmbuf_mtod(m, const struct arp_message *);
	enum arp_fault wrong = arp_check((const uint8_t *)arp, m->data_len);

	if (wrong != ARP_OK)
		return packet_drop(p, reasons[wrong]);
	if (rte_is_same_ether_addr(&arp->sender_mac, &ports[p->port].mac))
		return packet_drop(p, &drop_own);
	if (p->session != NO_SESSION)
		return on_session(m, p, arp);
	if (p->interface != NO_INTERFACE)
		return on_interface(graph, node, m, arp);
	return packet_drop(p, &drop_other);
}

static uint16_t
arp_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_packet(graph, node, packets, count, take);
}

static void
arp_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	const struct arp_message *arp = (const struct arp_message *)data;
	const uint8_t *s = arp->sender, *t = arp->target;

	if (arp_check(data, length) == ARP_OK)
		snprintf(text, size, "%u.%u.%u.%u %s %u.%u.%u.%u", s[0], s[1], s[2], s[3],
			arp->operation == RTE_BE16(ARP_REQUEST) ? "asks for" : "answers", t[0], t[1], t[2], t[3]);
	else
		snprintf(text, size, "not an ARP message that we understand");
}

static struct node arp_node = {
	.name = "arp", .process = arp_process, .describe = arp_describe, .edges = NODE_EDGES(&tx_node, &punt_node)};
NODE_REGISTER(arp_node)

void
arp_send_request(
	const struct link *link, const uint8_t own[4], const uint8_t address[4], const struct rte_ether_addr *mac)
{
	static const struct rte_ether_addr everybody = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
	uint8_t room[32];
	unsigned length = link->header(link->index, mac ? mac : &everybody, RTE_ETHER_TYPE_ARP, room);
	unsigned total = RTE_MAX(length + (unsigned)sizeof(struct arp_message), (unsigned)FRAME_MIN);
	struct rte_mbuf *m = packet_new();
	struct arp_message *arp;
	char *frame = m ? rte_pktmbuf_append(m, (uint16_t)total) : NULL;

	if (!frame) {
		rte_pktmbuf_free(m);
		return;
	}
	memset(frame, 0, total);
	memcpy(frame, room + sizeof(room) - length, length);
	arp = (struct arp_message *)(frame + length);
	*arp = (struct arp_message){
		.hardware = RTE_BE16(1),
		.protocol = RTE_BE16(RTE_ETHER_TYPE_IPV4),
		.hardware_length = RTE_ETHER_ADDR_LEN,
		.protocol_length = sizeof(arp->sender),
		.operation = RTE_BE16(ARP_REQUEST),
		.sender_mac = ports[link->port].mac,
	};
	memcpy(arp->sender, own, sizeof(arp->sender));
	memcpy(arp->target, address, sizeof(arp->target));
	packet_of(m)->flags = PACKET_OURS;
	m->port = link->port;
	inject(m, &tx_node);
}

void
arp_start(void)
{
	ether_type_register(RTE_ETHER_TYPE_ARP, &arp_node);
}
