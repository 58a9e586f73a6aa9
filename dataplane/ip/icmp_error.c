// ICMP and ICMPv6 errors (RFC 792, RFC 1812 section 4.3.2, RFC 4443 section 2.4). In: a packet that cannot go on, with type
// and code in its `detail`. Out: the packet to drop, and where the rules and the rate allow, an error to the look-up.
#include "ip/icmp.h"

#include <string.h>

#include "core/rate.h"
#include "ip/describe.h"
#include "ip/header.h"
#include "ip/hop.h"
#include "ip/neighbor.h"
#include "ip/subscriber.h"
#include "ip/vrf.h"
#include "port/port.h"

enum {
	ERRORS_A_SECOND = 1000, // of all workers, and as many at once
	TTL = 64,
	ICMP_HEADER = 8,
	IP4_MOST = 576, // bytes of an ICMP error (RFC 1812 section 4.3.2.3)
	IP6_MOST = 1280,

	ICMP6_ERRORS_END = 128, // types below are errors
	ICMP6_REDIRECT = 137,
	ICMP6_BAD_OPTION = 2, // code of ICMP6_PARAMETER
	EXTENSIONS_MAX = 8,
};

// The class selector that control traffic gets (RFC 1812 section 4.3.2.5: precedence 6).
static const uint8_t CS6 = 0xc0;

bool
icmp4_error_allowed(const uint8_t *packet, size_t length)
{
	const struct ip4_header *ip = (const struct ip4_header *)packet;
	uint32_t source, destination;
	size_t header;

	if (length < sizeof(*ip))
		return false;
	header = ip4_header_length(ip);
	source = rte_be_to_cpu_32(ip->source);
	destination = rte_be_to_cpu_32(ip->destination);
	if (ip->fragment & RTE_BE16(IP4_OFFSET))
		return false;
	// To a broadcast or multicast address; from one that is no single host's.
	if (destination >> 28 >= 0xe)
		return false;
	if (source >> 24 == 0 || source >> 24 == 127 || source >> 28 >= 0xe)
		return false;
	if (ip->protocol != PROTOCOL_ICMP)
		return true;
	// Of ICMP, only queries: echo, router solicitation, timestamp, information, address mask.
	if (length <= header)
		return false;
	switch (packet[header]) {
	case 0:
	case 8:
	case 9:
	case 10:
	case 13:
	case 14:
	case 15:
	case 16:
	case 17:
	case 18:
		return true;
	default:
		return false;
	}
}

// Whether what the headers lead to is an ICMPv6 error or redirect, or a fragment that does not show what it is.
static bool
is_icmp6_error(const uint8_t *packet, size_t length)
{
	uint8_t protocol = ((const struct ip6_header *)packet)->next_header;
	size_t at = sizeof(struct ip6_header);

	for (unsigned i = 0; i < EXTENSIONS_MAX; i++) {
		switch (protocol) {
		case PROTOCOL_ICMP6:
			return at >= length || packet[at] < ICMP6_ERRORS_END || packet[at] == ICMP6_REDIRECT;
		case PROTOCOL_HOP_BY_HOP:
		case PROTOCOL_ROUTING:
		case PROTOCOL_DESTINATION_OPTIONS:
			if (at + 8 > length)
				return true;
			protocol = packet[at];
			at += 8 * (packet[at + 1] + 1u);
			break;
		case PROTOCOL_FRAGMENT:
			if (at + 8 > length || packet[at + 2] != 0 || packet[at + 3] & 0xf8)
				return true;
			protocol = packet[at];
			at += 8;
			break;
		default:
			return false;
		}
	}
	return true;
}

bool
icmp6_error_allowed(const uint8_t *packet, size_t length, uint8_t type, uint8_t code)
{
	const struct ip6_header *ip = (const struct ip6_header *)packet;

	if (length < sizeof(*ip))
		return false;
	if (ip6_is_multicast(ip->source) || ip6_is_unspecified(ip->source) || ip6_is_loopback(ip->source))
		return false;
	// About multicasts, only what path MTU discovery and unknown options need (RFC 4443 section 2.4 (e.3)).
	if (ip6_is_multicast(ip->destination) && type != ICMP6_TOO_BIG &&
		!(type == ICMP6_PARAMETER && code == ICMP6_BAD_OPTION))
		return false;
	return !is_icmp6_error(packet, length);
}

// What was quoted, and where the message's parts are.
struct error {
	const struct packet *about;
	struct rte_mbuf *m;
	uint8_t *icmp;
	unsigned icmp_length;
	uint8_t type, code;
	uint16_t parameter;
};

// Copy as much of the packet as `most` bytes allow behind `before` bytes of header.
static bool
quote(struct error *e, struct rte_mbuf *about, unsigned before, unsigned most)
{
	unsigned length = RTE_MIN(about->pkt_len, most - before - ICMP_HEADER);
	uint8_t *data = (uint8_t *)rte_pktmbuf_append(e->m, (uint16_t)(before + ICMP_HEADER + length));
	const void *from;

	if (!data)
		return false;
	e->icmp = data + before;
	e->icmp_length = ICMP_HEADER + length;
	memset(data, 0, before + ICMP_HEADER);
	from = rte_pktmbuf_read(about, 0, length, e->icmp + ICMP_HEADER);
	if (!from)
		return false;
	if (from != e->icmp + ICMP_HEADER)
		memcpy(e->icmp + ICMP_HEADER, from, length);
	e->icmp[0] = e->type;
	e->icmp[1] = e->code;
	return true;
}

static bool
build4(struct error *e, struct rte_mbuf *about)
{
	const struct ip4_header *old = rte_pktmbuf_mtod(about, const struct ip4_header *);
	struct ip4_header *ip;
	uint8_t near[16] = {0}, own[16];
	uint16_t word = rte_cpu_to_be_16(e->parameter);

	memcpy(near, &old->source, sizeof(old->source));
	if (vrf_own_address_at(e->about->vrf, 4, e->about->interface, near, own) ||
		!quote(e, about, sizeof(*ip), IP4_MOST))
		return false;
	// A pointer is the second word's first byte, an MTU its second half.
	if (e->type == ICMP4_PARAMETER)
		e->icmp[4] = (uint8_t)e->parameter;
	else
		memcpy(e->icmp + 6, &word, sizeof(word));
	word = (uint16_t)~checksum_fold(checksum_add(0, e->icmp, e->icmp_length));
	memcpy(e->icmp + 2, &word, sizeof(word));

	ip = rte_pktmbuf_mtod(e->m, struct ip4_header *);
	*ip = (struct ip4_header){.version_ihl = 0x45,
		.tos = CS6,
		.total_length = rte_cpu_to_be_16((uint16_t)e->m->pkt_len),
		.ttl = TTL,
		.protocol = PROTOCOL_ICMP,
		.destination = old->source};
	memcpy(&ip->source, own, sizeof(ip->source));
	ip->checksum = ip4_checksum(ip);
	return true;
}

static bool
build6(struct error *e, struct rte_mbuf *about)
{
	const struct ip6_header *old = rte_pktmbuf_mtod(about, const struct ip6_header *);
	struct ip6_header *ip;
	uint8_t own[16];
	uint32_t word = rte_cpu_to_be_32(e->parameter);
	uint16_t sum;

	if (ip6_is_link_local(old->source) && e->about->port < PORT_MAX)
		link_local_of(&ports[e->about->port].mac, own);
	else if (vrf_own_address_at(e->about->vrf, 6, e->about->interface, old->source, own))
		return false;
	if (!quote(e, about, sizeof(*ip), IP6_MOST))
		return false;
	memcpy(e->icmp + 4, &word, sizeof(word));
	sum = (uint16_t)~checksum_fold(checksum_add(
		ip6_pseudo_sum(own, old->source, e->icmp_length, PROTOCOL_ICMP6), e->icmp, e->icmp_length));
	memcpy(e->icmp + 2, &sum, sizeof(sum));

	ip = rte_pktmbuf_mtod(e->m, struct ip6_header *);
	ip->version_class_flow = rte_cpu_to_be_32(UINT32_C(6) << 28 | (uint32_t)CS6 << 20);
	ip->payload_length = rte_cpu_to_be_16((uint16_t)e->icmp_length);
	ip->next_header = PROTOCOL_ICMP6;
	ip->hop_limit = TTL;
	memcpy(ip->source, own, sizeof(own));
	memcpy(ip->destination, old->source, sizeof(ip->destination));
	return true;
}

// The way back. To a subscriber's own packet: down its session, whatever a table says of its source. To a packet that a tunnel
// brought for a session: up the session again. To all others: where the VRF leads.
static uint16_t
way_back(const struct packet *about, struct packet *p)
{
	bool of_session = about->session != NO_SESSION;

	if (of_session && about->direction == UP) {
		p->session = about->session;
		return packet_to_subscriber(p);
	}
	if (of_session && !(about->flags & PACKET_ROUTED)) {
		p->session = about->session;
		p->direction = UP;
		p->chain = subscribers->chain_up(p->session, p->family);
		return packet_step(p);
	}
	return p->family == 4 ? ip4_lookup_node.id : ip6_lookup_node.id;
}

// An error about the packet, or NULL.
static struct rte_mbuf *
answer(struct rte_mbuf *about, uint16_t *next)
{
	const struct packet *old = packet_of(about);
	const uint8_t *data = rte_pktmbuf_mtod(about, const uint8_t *);
	struct error e = {.about = old,
		.type = (uint8_t)(old->detail >> 24),
		.code = (uint8_t)(old->detail >> 16),
		.parameter = (uint16_t)old->detail};
	static struct rate errors;
	struct packet *p;

	if (old->flags & PACKET_OURS)
		return NULL;
	if (old->family == 4 ? !icmp4_error_allowed(data, about->data_len)
			     : !icmp6_error_allowed(data, about->data_len, e.type, e.code))
		return NULL;
	if (!rate_spend(&errors, ERRORS_A_SECOND))
		return NULL;
	e.m = rte_pktmbuf_alloc(about->pool);
	if (!e.m)
		return NULL;
	if (old->family == 4 ? !build4(&e, about) : !build6(&e, about)) {
		rte_pktmbuf_free(e.m);
		return NULL;
	}
	packet_reset(e.m);
	p = packet_of(e.m);
	p->vrf = old->vrf;
	p->interface = old->interface;
	p->port = old->port;
	p->family = old->family;
	p->flags = PACKET_OURS;
	e.m->port = about->port;
	*next = way_back(old, p);
	return e.m;
}

static uint16_t
icmp_error(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next;

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = answer(packets[i], &next);

		if (m)
			rte_node_enqueue_x1(graph, node, next, m);
	}
	rte_node_enqueue(graph, node, drop_node.id, packets, count);
	return count;
}

static void
icmp_error_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	const struct drop *reason = drop_by_id(p->drop);

	snprintf(text, size, "%s: tells the sender by ICMP type %u code %u", reason ? reason->name : "?",
		p->detail >> 24, p->detail >> 16 & 0xff);
}

struct node icmp_error_node = {.name = "icmp-error", .process = icmp_error, .describe = icmp_error_describe};
NODE_REGISTER(icmp_error_node)
