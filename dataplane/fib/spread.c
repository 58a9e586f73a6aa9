// SPDX-License-Identifier: Apache-2.0
// Equal and unequal cost multi-path (RFC 2992).
#include "fib/spread.h"

#include <string.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_prefetch.h>

#include "core/burst.h"
#include "fib/hop.h"
#include "inet/describe.h"
#include "inet/header.h"

enum { PROTOCOL_DCCP = 33, PROTOCOL_SCTP = 132, PROTOCOL_UDP_LITE = 136, EXTENSIONS_MAX = 8, MEMBERS_MAX = 255 };

static uint64_t secrets[2] = {0x9e3779b97f4a7c15u, 0xd6e8feb86659fd93u};

// Two routers in a row must not make the same choice, or the second has no choice left.
RTE_INIT(spread_secrets)
{
	uint64_t time = rte_rdtsc();

	secrets[0] ^= (time * 0xa0761d6478bd642fu) << 1;
	secrets[1] ^= (time * 0xe7037ed1a0b428dbu) << 1;
}

static inline uint64_t
mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline bool
has_ports(uint8_t protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_SCTP ||
	       protocol == PROTOCOL_DCCP || protocol == PROTOCOL_UDP_LITE;
}

static inline uint32_t
ports_at(const uint8_t *packet, size_t offset, size_t length)
{
	uint32_t ports = 0;

	if (offset + sizeof(ports) <= length)
		memcpy(&ports, packet + offset, sizeof(ports));
	return ports;
}

uint64_t
flow_hash4(const uint8_t *packet, size_t length)
{
	const struct ip4_header *ip = (const struct ip4_header *)packet;
	bool whole = (ip->fragment & RTE_BE16(IP4_MF | IP4_OFFSET)) == 0;
	uint32_t ports = whole && has_ports(ip->protocol) ? ports_at(packet, ip4_header_length(ip), length) : 0;
	uint64_t h = mix(((uint64_t)ip->source << 32 | ip->destination) ^ secrets[0],
		((uint64_t)ports << 8 | ip->protocol) ^ secrets[1]);

	return mix(h, secrets[1]);
}

uint64_t
flow_hash6(const uint8_t *packet, size_t length)
{
	const struct ip6_header *ip = (const struct ip6_header *)packet;
	uint8_t protocol = ip->next_header;
	size_t offset = sizeof(*ip);
	uint64_t words[4], h;
	uint32_t ports = 0;

	for (unsigned i = 0; i < EXTENSIONS_MAX && offset + 8 <= length; i++) {
		if (protocol != PROTOCOL_HOP_BY_HOP && protocol != PROTOCOL_ROUTING &&
			protocol != PROTOCOL_DESTINATION_OPTIONS)
			break;
		protocol = packet[offset];
		offset += 8 * (packet[offset + 1] + 1u);
	}
	if (has_ports(protocol))
		ports = ports_at(packet, offset, length);
	// Of a fragmented datagram all fragments go one way: behind a fragment header nothing counts but the addresses.
	if (protocol == PROTOCOL_FRAGMENT)
		protocol = 0;
	memcpy(words, ip->source, sizeof(words));
	h = mix(words[0] ^ secrets[0], words[1] ^ secrets[1]) ^ mix(words[2] ^ secrets[1], words[3] ^ secrets[0]);
	return mix(h ^ ((uint64_t)ports << 8 | protocol), secrets[1]);
}

unsigned
spread_bits(const uint8_t *weights, unsigned count)
{
	unsigned sum = 0, least = UINT8_MAX, bits = SPREAD_BITS_MIN;

	for (unsigned i = 0; i < count; i++) {
		sum += weights[i];
		least = RTE_MIN(least, RTE_MAX(weights[i], 1u));
	}
	while (bits < SPREAD_BITS_MAX && (1u << bits) * least < 8 * sum)
		bits++;
	return bits;
}

// Whole slots by weight, the rest to those with the largest remainders; each member with a weight gets a slot.
static void
shares(unsigned *share, unsigned slots, const uint8_t *weights, unsigned count)
{
	unsigned remainder[MEMBERS_MAX], sum = 0, given = 0;

	for (unsigned i = 0; i < count; i++)
		sum += weights[i];
	for (unsigned i = 0; i < count; i++) {
		share[i] = slots * weights[i] / sum;
		remainder[i] = slots * weights[i] % sum;
		if (share[i] == 0 && weights[i] != 0) {
			share[i] = 1;
			remainder[i] = 0;
		}
		given += share[i];
	}
	for (; given < slots; given++) {
		unsigned most = 0;

		for (unsigned i = 1; i < count; i++)
			if (remainder[i] > remainder[most])
				most = i;
		share[most]++;
		remainder[most] = 0;
	}
	for (; given > slots; given--) {
		unsigned most = 0;

		for (unsigned i = 1; i < count; i++)
			if (share[i] > share[most])
				most = i;
		share[most]--;
	}
}

void
spread_assign(uint8_t *owners, const uint8_t *homes, unsigned slots, const uint8_t *weights, unsigned count)
{
	unsigned share[MEMBERS_MAX], member = 0;

	shares(share, slots, weights, count);
	for (unsigned i = 0; i < slots && homes; i++) {
		if (share[homes[i]] > 0) {
			share[homes[i]]--;
			owners[i] = homes[i];
		} else if (owners[i] == homes[i]) {
			owners[i] = SPREAD_NOBODY;
		}
	}
	for (unsigned i = 0; i < slots; i++) {
		if (homes && owners[i] == homes[i])
			continue;
		if (owners[i] < count && share[owners[i]] > 0)
			share[owners[i]]--;
		else
			owners[i] = SPREAD_NOBODY;
	}
	for (unsigned i = 0; i < slots; i++) {
		if (owners[i] != SPREAD_NOBODY)
			continue;
		// Round about, so that no member's slots depend on another's place in the list.
		while (share[member] == 0)
			member = (member + 1) % count;
		owners[i] = (uint8_t)member;
		share[member]--;
		member = (member + 1) % count;
	}
}

static void
spread(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const struct hop *hop = hop_at(p->hop);
		const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
		uint64_t hash = p->family == 4 ? flow_hash4(ip, m->data_len) : flow_hash6(ip, m->data_len);

		p->hop =
			atomic_load_explicit(&hop->spread[hash & ((1u << hop->spread_bits) - 1)], memory_order_acquire);
		rte_prefetch0(hop_at(p->hop));
	}
	for (unsigned i = 0; i < count; i++) {
		struct packet *p = packet_of(packets[i]);

		p->chain = __atomic_load_n(&hop_at(p->hop)->chain, __ATOMIC_ACQUIRE);
		next[i] = packet_step(p);
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
ip_spread(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, spread);
}

static struct node ip_spread_node = {.name = "ip-spread", .process = ip_spread, .describe = ip_describe, .steps = true};
NODE_REGISTER(ip_spread_node)
HOP_KIND_REGISTER(HOP_SPREAD, ip_spread_node)
