// SPDX-License-Identifier: Apache-2.0
// Neighbour discovery (RFC 4861; RFC 4862 section 5.4 for duplicates; RFC 4389 for proxies).
//
// A worker answers solicitations in the frame they came in. A message with a neighbour's Ethernet address goes to the main
// thread, but only if it changes an entry of the table.
#include "neighbor/nd.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/fair.h"
#include "core/punt.h"
#include "ether/interface.h"
#include "inet/header.h"
#include "ip/check.h"
#include "ip/local.h"
#include "ip/subscriber.h"
#include "neighbor/neighbor.h"
#include "port/port.h"

INJECTED(tx_node)

enum {
	ND_RATE = 20000,
	ND_EACH = 500,
	RS_RATE = 2000,
	RS_EACH = 20,
	// Answers of all workers, and to a source on each of them; as many at once.
	ANSWERS_A_SECOND = 50000,
	ANSWERS_EACH = 1000,
	NEW_RATE = 5000,
	NEW_EACH = 50,
	HOPS = 255,
};

DROP(drop_truncated, "nd-truncated", "A neighbour discovery message that ends too early.")
DROP(drop_hop_limit, "nd-hop-limit",
	"A neighbour discovery message that is not from a neighbour: its hop limit is not 255.")
DROP(drop_checksum, "nd-checksum", "A neighbour discovery message with a wrong checksum.")
DROP(drop_invalid, "nd-invalid", "A neighbour discovery message that RFC 4861 says must be discarded.")
DROP(drop_own, "nd-own-mac",
	"A neighbour discovery message that tells the Ethernet address of the port it came in by as another's.")
CONSUMED(drop_other, "nd-not-for-us", "A neighbour solicitation for an address that we do not answer for.")
CONSUMED(drop_noted, "nd-noted", "A neighbour discovery message that asks nothing of us; it has been noted.")
DROP(drop_mac, "nd-mac",
	"A neighbour discovery message of a subscriber that tells another Ethernet address than the session's.")
DROP(drop_target, "nd-target", "A neighbour advertisement of a subscriber for an address that is not its own.")
DROP(drop_unsolicited, "nd-unsolicited", "A neighbour advertisement about an address that we do not send to.")
DROP(drop_rate, "nd-rate-limited",
	"More neighbour solicitations than the rate limits of all sources and of this one allow.")
DROP(drop_duplicate, "duplicate-address6", "Another host says that it has an IPv6 address of ours.")
DROP(drop_ra, "router-advertisement", "Another router's advertisement: we are a router ourselves.")
DROP(drop_no_link, "nd-no-link", "A neighbour discovery message by an interface without neighbours.")
DROP(drop_redirect, "redirect", "A redirect: we are a router ourselves.")

struct nd_header {
	uint8_t type;
	uint8_t code;
	uint16_t checksum;
	uint8_t flags;
	uint8_t reserved[3];
	uint8_t target[16];
	uint8_t option; // of a message of ours: one link-layer address
	uint8_t option_length;
	struct rte_ether_addr mac;
};

enum { WITHOUT_OPTION = 24, WITH_OPTION = 32 };
static_assert(sizeof(struct nd_header) == WITH_OPTION && offsetof(struct nd_header, option) == WITHOUT_OPTION,
	"as on the wire");

static const uint8_t all_nodes[16] = {0xff, 0x02, [15] = 1};

static bool
is_solicited_node(const uint8_t address[16])
{
	static const uint8_t prefix[13] = {0xff, 0x02, [11] = 1, [12] = 0xff};

	return memcmp(address, prefix, sizeof(prefix)) == 0;
}

static enum nd_fault
check_options(const uint8_t *option, size_t length, uint8_t type, const uint8_t **link_layer)
{
	*link_layer = NULL;
	while (length > 0) {
		if (length < 8 || option[1] == 0 || option[1] * 8u > length)
			return ND_OPTION;
		if (option[0] == type) {
			const struct rte_ether_addr *mac = (const struct rte_ether_addr *)(option + 2);

			if (option[1] != 1 || !rte_is_valid_assigned_ether_addr(mac))
				return ND_OPTION;
			*link_layer = option + 2;
		}
		length -= option[1] * 8u;
		option += option[1] * 8u;
	}
	return ND_OK;
}

enum nd_fault
nd_check(const uint8_t *data, size_t length, struct nd_message *message)
{
	// Bytes before the options, by type.
	static const uint8_t least[] = {8, 16, 24, 24, 40};
	const struct ip6_header *ip = (const struct ip6_header *)data;
	const struct nd_header *nd = (const struct nd_header *)(data + sizeof(*ip));
	size_t payload;
	enum nd_fault wrong;

	if (length < sizeof(*ip) + 8)
		return ND_TRUNCATED;
	payload = rte_be_to_cpu_16(ip->payload_length);
	if (payload > length - sizeof(*ip) || nd->type < ND_ROUTER_SOLICITATION || nd->type > ND_REDIRECT ||
		payload < least[nd->type - ND_ROUTER_SOLICITATION])
		return ND_TRUNCATED;
	if (ip->hop_limit != HOPS)
		return ND_HOP_LIMIT;
	if (checksum_fold(checksum_add(ip6_pseudo_sum(ip->source, ip->destination, (uint32_t)payload, PROTOCOL_ICMP6),
		    nd, payload)) != 0xffff)
		return ND_CHECKSUM;
	if (nd->code != 0)
		return ND_CODE;
	*message = (struct nd_message){.type = nd->type, .flags = nd->flags};
	wrong = check_options((const uint8_t *)nd + least[nd->type - ND_ROUTER_SOLICITATION],
		payload - least[nd->type - ND_ROUTER_SOLICITATION],
		nd->type == ND_ADVERTISEMENT || nd->type == ND_REDIRECT ? ND_TARGET_LINK_LAYER : ND_SOURCE_LINK_LAYER,
		&message->link_layer);
	if (wrong != ND_OK)
		return wrong;
	switch (nd->type) {
	case ND_ROUTER_SOLICITATION:
		return ip6_is_unspecified(ip->source) && message->link_layer ? ND_SOURCE : ND_OK;
	case ND_SOLICITATION:
		message->target = nd->target;
		if (ip6_is_multicast(nd->target) || ip6_is_unspecified(nd->target))
			return ND_TARGET;
		if (ip6_is_unspecified(ip->source) && (message->link_layer || !is_solicited_node(ip->destination)))
			return ND_SOURCE;
		return ND_OK;
	case ND_ADVERTISEMENT:
		message->target = nd->target;
		if (ip6_is_multicast(nd->target) || ip6_is_unspecified(nd->target))
			return ND_TARGET;
		return ip6_is_multicast(ip->destination) && nd->flags & ND_SOLICITED ? ND_FLAGS : ND_OK;
	default:
		return ip6_is_link_local(ip->source) ? ND_OK : ND_SOURCE;
	}
}

static const struct drop *const reasons[] = {
	[ND_TRUNCATED] = &drop_truncated,
	[ND_HOP_LIMIT] = &drop_hop_limit,
	[ND_CHECKSUM] = &drop_checksum,
	[ND_CODE] = &drop_invalid,
	[ND_TARGET] = &drop_invalid,
	[ND_SOURCE] = &drop_invalid,
	[ND_OPTION] = &drop_invalid,
	[ND_FLAGS] = &drop_invalid,
};

static void
fill_checksum(struct ip6_header *ip, struct nd_header *nd)
{
	uint32_t length = rte_be_to_cpu_16(ip->payload_length);

	nd->checksum = 0;
	nd->checksum = (uint16_t)~checksum_fold(
		checksum_add(ip6_pseudo_sum(ip->source, ip->destination, length, PROTOCOL_ICMP6), nd, length));
}

static bool
on_ppp(const struct packet *p)
{
	struct subscriber about = {0};

	if (p->session != NO_SESSION)
		subscribers->about(p->session, &about);
	return about.point_to_point;
}

// Turn the solicitation into its answer. The edge to follow.
static uint16_t
answer(struct rte_mbuf *m, const struct nd_message *said, enum neighbor_target target)
{
	struct packet *p = packet_of(m);
	bool ppp = on_ppp(p);
	uint16_t payload = ppp ? WITHOUT_OPTION : WITH_OPTION, length = (uint16_t)(sizeof(struct ip6_header) + payload);
	struct ip6_header *ip = rte_pktmbuf_mtod(m, struct ip6_header *);
	struct nd_header *nd = (struct nd_header *)(ip + 1);
	struct rte_ether_hdr *ether = (struct rte_ether_hdr *)((uint8_t *)ip - p->l2_length);
	struct rte_ether_addr to = {{0x33, 0x33, 0, 0, 0, 1}};
	bool duplicate_test = ip6_is_unspecified(ip->source);

	if (!duplicate_test && said->link_layer)
		memcpy(&to, said->link_layer, sizeof(to));
	else if (!duplicate_test && !ppp)
		to = ether->src_addr;
	if (m->pkt_len > length)
		ip_trim(m, length);
	else if (m->pkt_len < length && !rte_pktmbuf_append(m, (uint16_t)(length - m->pkt_len)))
		return packet_drop(p, &drop_truncated);

	memcpy(ip->destination, duplicate_test ? all_nodes : ip->source, 16);
	memcpy(ip->source, nd->target, 16);
	ip->version_class_flow = RTE_BE32(0x60000000);
	ip->payload_length = rte_cpu_to_be_16(payload);
	ip->hop_limit = HOPS;
	nd->type = ND_ADVERTISEMENT;
	nd->flags = (uint8_t)(ND_FROM_ROUTER | (duplicate_test ? 0 : ND_SOLICITED) |
			      (target == TARGET_OURS ? ND_OVERRIDE : 0));
	memset(nd->reserved, 0, sizeof(nd->reserved));
	if (!ppp) {
		nd->option = ND_TARGET_LINK_LAYER;
		nd->option_length = 1;
		nd->mac = ports[p->port].mac;
	}
	fill_checksum(ip, nd);
	p->flags |= PACKET_OURS;
	if (ppp)
		return packet_to_subscriber(p);
	ether->dst_addr = to;
	ether->src_addr = ports[p->port].mac;
	packet_advance(m, -(int)p->l2_length);
	m->port = p->port;
	return tx_node.id;
}

// A proxy of RFC 4389 answers for addresses elsewhere, but not during duplicate address detection.
static enum neighbor_target
asked_for(const struct packet *p, const struct ip6_header *ip, const struct nd_message *said)
{
	enum neighbor_target target = neighbor_target(p, 6, said->target);

	return target == TARGET_PROXY && ip6_is_unspecified(ip->source) ? TARGET_NOBODY : target;
}

// Main thread: enter the message into the table, then proceed as a worker.
static void
learn(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	const struct ip6_header *ip = rte_pktmbuf_mtod(m, const struct ip6_header *);
	struct neighbor_advert advert = {0};
	struct nd_message said;
	enum neighbor_target target;

	if (p->interface >= INTERFACE_LIMIT || !interface_at(p->interface)->present ||
		nd_check((const uint8_t *)ip, m->data_len, &said) != ND_OK) {
		drop_now(m, &drop_unsolicited);
		return;
	}
	if (said.link_layer) {
		memcpy(&advert.mac, said.link_layer, sizeof(advert.mac));
		advert.has_mac = true;
	}
	if (said.type == ND_ADVERTISEMENT) {
		advert.solicited = said.flags & ND_SOLICITED;
		advert.override = said.flags & ND_OVERRIDE;
		neighbor_advertised(p->interface, 6, said.target, &advert);
		if (ip_local_has_twin(p))
			ip_local_to_twin(m);
		else
			drop_now(m, &drop_noted);
		return;
	}
	target = asked_for(p, ip, &said);
	advert.override = true;
	advert.creates = target != TARGET_NOBODY || p->detail == NEIGHBOR_ANSWERED;
	neighbor_advertised(p->interface, 6, ip->source, &advert);
	if (p->detail == NEIGHBOR_ANSWERED) {
		rte_pktmbuf_free(m);
		return;
	}
	if (target != TARGET_NOBODY && answer(m, &said, target) == tx_node.id)
		inject(m, &tx_node);
	else
		drop_now(m, &drop_noted);
}

PUNT_EACH(punt_learn, "nd-learn", ND_RATE, ND_EACH, learn)
// Of senders that are not known yet, so that many of them do not cost others their answers.
PUNT_EACH(punt_learn_new, "nd-learn-new", NEW_RATE, NEW_EACH, learn)

// RFC 4861 section 6.2.6: a router solicitation has the host's Ethernet address.
static void
learn_from_router_solicitation(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	const struct ip6_header *ip = rte_pktmbuf_mtod(m, const struct ip6_header *);
	struct neighbor_advert advert = {.has_mac = true, .override = true, .creates = true};
	struct nd_message said;

	if (p->session != NO_SESSION || p->interface >= INTERFACE_LIMIT || !interface_at(p->interface)->present ||
		nd_check((const uint8_t *)ip, m->data_len, &said) != ND_OK || !said.link_layer ||
		neighbor_is_ours(p, 6, ip->source))
		return;
	memcpy(&advert.mac, said.link_layer, sizeof(advert.mac));
	neighbor_advertised(p->interface, 6, ip->source, &advert);
}

static void
router_solicitation(struct rte_mbuf *m)
{
	learn_from_router_solicitation(m);
	if (!punt_watched(packet_of(m)) && ip_local_has_twin(packet_of(m)))
		ip_local_to_twin(m);
	else
		punt_to_watcher(m);
}

PUNT_EACH(punt_rs, "router-solicitation", RS_RATE, RS_EACH, router_solicitation)

static bool
may_answer(struct rte_mbuf *m)
{
	static struct fair_rates answers;

	return fair_spend(&answers, ANSWERS_A_SECOND, ANSWERS_EACH, m);
}

static uint16_t
solicitation(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf *m, const struct nd_message *said)
{
	struct packet *p = packet_of(m);
	const struct ip6_header *ip = rte_pktmbuf_mtod(m, const struct ip6_header *);
	enum neighbor_news news = NEIGHBOR_NO_NEWS;
	enum neighbor_target target;

	if (p->session == NO_SESSION && said->link_layer && p->interface != NO_INTERFACE) {
		if (neighbor_is_ours(p, 6, ip->source))
			return packet_drop(p, &drop_duplicate);
		news = neighbor_compare(p->interface, 6, ip->source, (const struct rte_ether_addr *)said->link_layer);
		if (news == NEIGHBOR_NEWS) {
			p->detail = 0;
			return packet_punt(p, &punt_learn);
		}
	}
	target = asked_for(p, ip, said);
	if (target == TARGET_NOBODY)
		return packet_drop(p, &drop_other);
	if (news == NEIGHBOR_NOT_THERE && neighbor_may_begin(p, 6, ip->source))
		neighbor_learn_from_copy(graph, node, m, m->data_len, &punt_learn_new);
	return may_answer(m) ? answer(m, said, target) : packet_drop(p, &drop_rate);
}

// A subscriber speaks for its own addresses alone; its link-local addresses are not known here.
static bool
speaks_for(const struct packet *p, const uint8_t target[16])
{
	struct subscriber about;

	if (ip6_is_link_local(target) || subscribers->whose(p->session, 6, target) != NO_SESSION)
		return true;
	subscribers->about(p->session, &about);
	return about.any_source;
}

static uint16_t
advertisement(struct packet *p, const struct nd_message *said)
{
	static const struct rte_ether_addr nobody;

	if (neighbor_is_ours(p, 6, said->target))
		return packet_drop(p, &drop_duplicate);
	if (p->session != NO_SESSION && !speaks_for(p, said->target))
		return packet_drop(p, &drop_target);
	if (p->session != NO_SESSION || p->interface == NO_INTERFACE)
		return packet_drop(p, &drop_noted);
	// An advertisement confirms, even with nothing new in it. The twin's daemons ask by themselves.
	if (neighbor_compare(p->interface, 6, said->target, &nobody) != NEIGHBOR_NOT_THERE || ip_local_has_twin(p)) {
		p->detail = 0;
		return packet_punt(p, &punt_learn);
	}
	return packet_drop(p, &drop_unsolicited);
}

static uint16_t
take(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	struct nd_message said;
	enum nd_fault wrong = nd_check(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, &said);

	if (wrong != ND_OK)
		return packet_drop(p, reasons[wrong]);
	// A packet out of a tunnel has no frame for an answer; the agent answers subscribers that solicit routers.
	if (p->l2_length == 0 && (p->session == NO_SESSION || said.type != ND_ROUTER_SOLICITATION))
		return packet_drop(p, &drop_no_link);
	if (said.link_layer && memcmp(said.link_layer, &ports[p->port].mac, RTE_ETHER_ADDR_LEN) == 0)
		return packet_drop(p, &drop_own);
	if (said.link_layer && p->session != NO_SESSION && !on_ppp(p) &&
		!subscribers->may_have(p->session, said.link_layer))
		return packet_drop(p, &drop_mac);
	switch (said.type) {
	case ND_SOLICITATION:
		return solicitation(graph, node, m, &said);
	case ND_ADVERTISEMENT:
		return advertisement(p, &said);
	case ND_ROUTER_SOLICITATION:
		return packet_punt(p, &punt_rs);
	case ND_ROUTER_ADVERTISEMENT:
		return ip_local_has_twin(p) ? ip_local_twin(p) : packet_drop(p, &drop_ra);
	default:
		return packet_drop(p, &drop_redirect);
	}
}

static uint16_t
nd_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_packet(graph, node, packets, count, take);
}

static void
nd_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	static const char *const names[] = {
		"router solicitation", "router advertisement", "solicitation of", "advertisement of", "redirect"};
	char target[INET6_ADDRSTRLEN] = "";
	struct nd_message said;

	if (nd_check(data, length, &said) != ND_OK) {
		snprintf(text, size, "not a valid neighbour discovery message");
		return;
	}
	if (said.target)
		inet_ntop(AF_INET6, said.target, target, sizeof(target));
	snprintf(text, size, "%s %s", names[said.type - ND_ROUTER_SOLICITATION], target);
}

static struct node nd_node = {
	.name = "nd", .process = nd_process, .describe = nd_describe, .edges = NODE_EDGES(&tx_node, &punt_node)};
NODE_REGISTER(nd_node)

void
nd_start(void)
{
	node_edge(&nd_node, subscribers->down);
	for (uint8_t type = ND_ROUTER_SOLICITATION; type <= ND_REDIRECT; type++)
		icmp6_register(type, &nd_node);
}

void
nd_send_solicitation(const struct link *link, const uint8_t address[16], const struct rte_ether_addr *mac)
{
	const struct rte_ether_addr *own = &ports[link->port].mac;
	struct rte_ether_addr to = {{0x33, 0x33, 0xff, address[13], address[14], address[15]}};
	uint8_t room[32];
	unsigned length = link->header(link->index, mac ? mac : &to, RTE_ETHER_TYPE_IPV6, room);
	struct rte_mbuf *m = packet_new();
	struct ip6_header *ip;
	struct nd_header *nd;
	char *frame = m ? rte_pktmbuf_append(m, (uint16_t)(length + sizeof(*ip) + sizeof(*nd))) : NULL;

	if (!frame) {
		rte_pktmbuf_free(m);
		return;
	}
	memcpy(frame, room + sizeof(room) - length, length);
	ip = (struct ip6_header *)(frame + length);
	*ip = (struct ip6_header){
		.version_class_flow = RTE_BE32(0x60000000),
		.payload_length = RTE_BE16(WITH_OPTION),
		.next_header = PROTOCOL_ICMP6,
		.hop_limit = HOPS,
		.destination = {0xff,
			0x02, [11] = 1, [12] = 0xff, [13] = address[13], [14] = address[14], [15] = address[15]},
	};
	link_local_of(own, ip->source);
	if (mac)
		memcpy(ip->destination, address, 16);
	nd = (struct nd_header *)(ip + 1);
	*nd = (struct nd_header){
		.type = ND_SOLICITATION, .option = ND_SOURCE_LINK_LAYER, .option_length = 1, .mac = *own};
	memcpy(nd->target, address, 16);
	fill_checksum(ip, nd);
	packet_of(m)->flags = PACKET_OURS;
	m->port = link->port;
	inject(m, &tx_node);
}
