// SPDX-License-Identifier: Apache-2.0
// Checks an IPv4 header from outside (RFC 1812 sections 5.2.2 and 5.3.7). In: the data at the header. Out: a step of the
// packet's chain, the data cut to the packet's length.
//
// If the whole burst passes and goes to the look-up, it is looked up here while its headers are in the cache, unless
// a trace or a capture runs.
#include <rte_cycles.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/worker.h"
#include "fib/hop.h"
#include "fib/look_up.h"
#include "fib/local_address_source.h"
#include "fib/scope.h"
#include "fib/spread.h"
#include "inet/describe.h"
#include "inet/header.h"
#include "ip/check.h"
#include "ip/icmp.h"
#include "ip/nodes.h"
#include "ip/options.h"
#include "ip/subscriber.h"

enum { OPTIONS_END, OPTIONS_NOP, OPTION_LSRR = 131, OPTION_SSRR = 137 };

DROP(drop_short, "ip4-truncated", "The frame ends before the IPv4 packet in it does, or within its header.")
DROP(drop_version, "ip4-version", "The packet's version is not 4 though its frame says IPv4.")
DROP(drop_header_length, "ip4-header-length",
	"The IPv4 header says that it is shorter than 20 bytes or longer than the packet.")
DROP(drop_checksum, "ip4-checksum", "The IPv4 header's checksum is wrong.")
DROP(drop_source, "ip4-martian-source", "The source is in 0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/4 or 240.0.0.0/4.")
DROP(drop_own_source, "ip4-own-source",
	"The source is an address of ours, or a network's own or broadcast address (RFC 1812 section 5.3.7).")
DROP(drop_options, "ip4-bad-options", "The IPv4 header's options are malformed.")
DROP(drop_source_route, "ip4-source-route", "The packet has a source route option; they are not followed (RFC 7126).")

// 0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/3: not a single host outside. `source` as it lies.
static inline uint32_t
martian(uint32_t source)
{
	uint32_t first = source & 0xff;

	return (uint32_t)(first - 1 >= 223) | (uint32_t)(first == 127);
}

static const struct drop *
check_options(const uint8_t *header, unsigned length, unsigned *at)
{
	for (unsigned i = sizeof(struct ip4_header), size; i < length; i += size) {
		*at = i;
		if (header[i] == OPTIONS_END)
			return NULL;
		size = 1;
		if (header[i] == OPTIONS_NOP)
			continue;
		if (i + 1 >= length || header[i + 1] < 2 || i + header[i + 1] > length)
			return &drop_options;
		if (header[i] == OPTION_LSRR || header[i] == OPTION_SSRR)
			return &drop_source_route;
		size = header[i + 1];
	}
	return NULL;
}

const struct drop *
ip4_check(struct rte_mbuf *m, bool checksum_good, unsigned *option)
{
	const struct ip4_header *ip = rte_pktmbuf_mtod(m, const struct ip4_header *);
	unsigned header, total;

	*option = 0;
	if (m->data_len < sizeof(*ip))
		return &drop_short;
	if (ip->version_ihl >> 4 != 4)
		return &drop_version;
	header = ip4_header_length(ip);
	total = rte_be_to_cpu_16(ip->total_length);
	if (header < sizeof(*ip) || total < header)
		return &drop_header_length;
	if (header > m->data_len || total > m->pkt_len)
		return &drop_short;
	if (!checksum_good && checksum_fold(checksum_add(0, ip, header)) != 0xffff)
		return &drop_checksum;
	// A host that has no address yet has a right to broadcast (RFC 1812 section 4.2.2.11 (a)).
	if (martian(ip->source) && !(ip->source == 0 && ip->destination == UINT32_MAX))
		return &drop_source;
	return check_options((const uint8_t *)ip, header, option);
}

// The packet must not come in, or only to us. Addresses as they lie.
static inline bool
scoped(uint32_t source, uint32_t destination)
{
	return ip4_is_link_local(source) || ip4_is_link_local(destination) ||
	       local_address_source_maybe(local_address_source_hash4(source));
}

// A packet with a correct header whose addresses are scoped: why it is dropped, or NULL.
static const struct drop *
check_scope(const struct packet *p, const struct ip4_header *ip, const struct subscriber *about)
{
	const struct fib *fib = vrf_fib(about->vrf, 4);

	// Packets of tunnels are not routed here.
	if (about->tunnelled || p->direction == DOWN || !fib)
		return NULL;
	if (local_address_source_is(about->vrf, 4, (const uint8_t *)&ip->source))
		return &drop_own_source;
	if ((ip4_is_link_local(ip->source) | ip4_is_link_local(ip->destination)) &&
		hop_at(fib4_lookup(fib, ip->destination))->kind != HOP_LOCAL)
		return &scope_link_local4;
	return NULL;
}

static bool
is_ours(uint16_t vrf, const uint8_t *address)
{
	return local_address_source_is(vrf, 4, address);
}

// Record route and timestamp options of a packet that goes on, or is for us, get our address on its way out, or the one that it is
// for. Returned: where the header is wrong, or 0.
static unsigned
record(struct ip4_header *ip, size_t length, uint16_t vrf)
{
	const struct fib *fib = vrf_fib(vrf, 4);
	const struct hop *hop = hop_at(fib ? fib4_lookup(fib, ip->destination) : NO_HOP);
	uint8_t near[16] = {0}, own[16];
	uint32_t milliseconds = (uint32_t)(rte_rdtsc() / (rte_get_tsc_hz() / 1000));
	unsigned wrong;

	memcpy(near, &ip->destination, 4);
	if (hop->kind == HOP_SPREAD)
		hop = hop_at(atomic_load_explicit(
			&hop->spread[flow_hash4((const uint8_t *)ip, length) & ((1u << hop->spread_bits) - 1)],
			memory_order_acquire));
	if (hop->kind == HOP_LOCAL && hop->flags == 0)
		memcpy(own, near, sizeof(own));
	else if (!hop_forwards(hop) || ip->ttl <= 1 || vrf_local_address_at(vrf, 4, hop->interface, near, own))
		return 0;
	if (ip4_options_record((uint8_t *)ip, ip4_header_length(ip), own, milliseconds, is_ours, vrf, &wrong))
		ip->checksum = ip4_checksum(ip);
	return wrong;
}

// Headers other than an ordinary one of 20 bytes in one segment, valid or not. False: the packet follows the edge `*next`
// instead of its chain.
static bool
examine_well(struct rte_mbuf *m, uint16_t *next)
{
	struct packet *p = packet_of(m);
	struct ip4_header *ip = rte_pktmbuf_mtod(m, struct ip4_header *);
	struct subscriber about = {.vrf = p->vrf};
	unsigned option;
	bool good = packet_checksum_found(m, RTE_MBUF_F_RX_IP_CKSUM_MASK, RTE_MBUF_F_RX_IP_CKSUM_GOOD);
	const struct drop *reason = ip4_check(m, good, &option);

	p->family = 4;
	if (reason && reason != &drop_options) {
		*next = packet_drop(p, reason);
		return false;
	}
	ip_trim(m, rte_be_to_cpu_16(ip->total_length));
	if (p->session != NO_SESSION)
		subscribers->about(p->session, &about);
	if (reason) {
		p->vrf = about.vrf;
		*next = packet_icmp_error(p, ICMP4_PARAMETER, 0, (uint16_t)option, reason);
		return false;
	}
	if (scoped(ip->source, ip->destination))
		reason = check_scope(p, ip, &about);
	if (reason) {
		*next = packet_drop(p, reason);
		return false;
	}
	// Packets of tunnels are not routed here.
	if (ip4_header_length(ip) > sizeof(*ip) && !about.tunnelled && p->direction != DOWN) {
		option = record(ip, m->data_len, about.vrf);
		if (option != 0) {
			p->vrf = about.vrf;
			*next = packet_icmp_error(p, ICMP4_PARAMETER, 0, (uint16_t)option, &drop_options);
			return false;
		}
	}
	return true;
}

static __rte_noinline uint16_t
examine(struct rte_mbuf *m)
{
	uint16_t next;

	return examine_well(m, &next) ? packet_step(packet_of(m)) : next;
}

// The words of a header without options add up to zero, that is 0xffff in one's complement. Adding a number to itself turned by
// half its width leaves the folded sum, carry included, in its upper half.
static inline bool
sum_is_right(const struct ip4_header *ip)
{
	unsigned long long a, b, sum;
	uint32_t c, half;
	bool carry;

	memcpy(&a, ip, 8);
	memcpy(&b, (const uint8_t *)ip + 8, 8);
	memcpy(&c, (const uint8_t *)ip + 16, 4);
	carry = __builtin_add_overflow(a, b, &sum);
	carry = __builtin_add_overflow(sum, (unsigned long long)c + carry, &sum);
	sum += carry;
	sum += sum << 32 | sum >> 32;
	half = (uint32_t)(sum >> 32);
	half += half << 16 | half >> 16;
	return half >= 0xffff0000;
}

// Whether any source is special: martian, link-local or perhaps ours. Apart from the headers, so that it takes few instructions.
static inline uint32_t
any_special(const uint32_t *sources, unsigned count)
{
	uint32_t special = 0;

	for (unsigned i = 0; i < count; i++)
		special |= martian(sources[i]) | ip4_is_link_local(sources[i]);
#pragma GCC unroll 8
	for (unsigned i = 0; i < count; i++)
		special |= local_address_source_near(local_address_source_hash4(sources[i]));
	return special;
}

enum { EXAMINED = 1 << 15 }; // beside an edge

static __rte_noinline void
examine_special(void **packets, const uint32_t *sources, const uint32_t *destinations, uint16_t *next, uint16_t count)
{
	for (unsigned i = 0; i < count; i++) {
		if (next[i] & EXAMINED)
			next[i] &= (uint16_t)~EXAMINED;
		else if (martian(sources[i]) || scoped(sources[i], destinations[i]))
			examine_well(packets[i], &next[i]);
	}
}

static void
check(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	static const struct ip4_header nothing;
	union look_up_addresses addresses;
	uint32_t sources[BURST], special;
	uint16_t next[BURST], lookup = ip4_lookup_node.id, other = worker_self()->watched;

	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		unsigned length = m->data_len;
		// A short packet is not read.
		const struct ip4_header *ip =
			length >= sizeof(*ip) ? rte_pktmbuf_mtod(m, const struct ip4_header *) : &nothing;
		unsigned total = rte_be_to_cpu_16(ip->total_length);

		sources[i] = ip->source;
		addresses.four[i] = ip->destination;
		// A total length below 20 becomes a huge number here. With less than 20 bytes it is the version that is wrong.
		if (unlikely(ip->version_ihl != 0x45 || total - sizeof(*ip) > length - sizeof(*ip) || m->nb_segs != 1 ||
			     !sum_is_right(ip))) {
			next[i] = examine(m) | EXAMINED;
			sources[i] = 0;
			continue;
		}
		// Ethernet pads short packets.
		m->data_len = (uint16_t)total;
		m->pkt_len = total;
		p->family = 4;
		next[i] = packet_step(p);
		other |= next[i] ^ lookup;
	}
	// Only where we have a link-local network can the look-up find a way to such a destination.
	special = any_special(sources, count) | __atomic_load_n(&local_address_link_local4, __ATOMIC_RELAXED);
	if (unlikely(special)) {
		examine_special(packets, sources, addresses.four, next, count);
		other = 1;
	}
	if (likely(other == 0))
		ip4_look_up(graph, node, packets, &addresses, count);
	else
		node_dispatch(graph, node, packets, next, count);
}

static uint16_t
ip4_input(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, check);
}

struct node ip4_input_node = {.name = "ip4-input",
	.process = ip4_input,
	.describe = ip_describe,
	.edges = NODE_EDGES(&icmp_error_node),
	.steps = true};
NODE_REGISTER(ip4_input_node)
