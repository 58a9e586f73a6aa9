// SPDX-License-Identifier: Apache-2.0
// The workers' part of a neighbour: its hop and its host route. hop.h has the order of changes to a hop.
#include <errno.h>
#include <string.h>

#include "core/rcu.h"
#include "ether/feature.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "fib/vrf.h"
#include "inet/header.h"
#include "ip/nodes.h"
#include "neighbor/neighbor_table.h"
#include "port/port.h"

// Entry number plus one, by hop.
static uint32_t *entries;
// A bit for each entry that was stale when a packet was sent to it.
static _Atomic uint64_t used_bits[(NEIGHBOR_MAX + 4096) / 64];

uint32_t
neighbor_of_hop(uint32_t hop)
{
	return entries && hop < HOP_LIMIT ? entries[hop] - 1 : UINT32_MAX;
}

// Notes that packets are sent to a stale neighbour, so that it is probed (RFC 4861 section
// 7.3.3). In the chain of stale neighbours only. In: packet->hop. Out: a step of the chain.
static uint16_t
neighbor_used(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t start = 0; start < count; start = (uint16_t)(start + BURST)) {
		uint16_t part = RTE_MIN((uint16_t)(count - start), (uint16_t)BURST);
		uint16_t next[BURST];

		for (uint16_t i = 0; i < part; i++) {
			struct packet *p = packet_of(packets[start + i]);
			uint32_t index = neighbor_of_hop(p->hop);

			if (index < NEIGHBOR_MAX + 4096) {
				_Atomic uint64_t *word = &used_bits[index / 64];
				uint64_t bit = UINT64_C(1) << index % 64;

				if (!(atomic_load_explicit(word, memory_order_relaxed) & bit))
					atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
			}
			next[i] = packet_step(p);
		}
		node_dispatch(graph, node, packets + start, next, part);
	}
	return count;
}

static struct node neighbor_used_node = {.name = "neighbor-used", .process = neighbor_used, .steps = true};
NODE_REGISTER(neighbor_used_node)

void
neighbor_take_used(unsigned most, void (*each)(uint32_t index))
{
	for (uint32_t w = 0; w < RTE_DIM(used_bits) && most > 0; w++) {
		uint64_t bits;

		if (atomic_load_explicit(&used_bits[w], memory_order_relaxed) == 0)
			continue;
		bits = atomic_exchange_explicit(&used_bits[w], 0, memory_order_relaxed);
		for (; bits != 0; bits &= bits - 1) {
			each(w * 64 + (uint32_t)__builtin_ctzll(bits));
			most -= most > 0;
		}
	}
}

int
neighbor_hop_make(struct neighbor *n, uint32_t index)
{
	struct hop *hop;

	if (!entries) {
		entries = slab_reserve(HOP_LIMIT * sizeof(entries[0]));
		if (!entries)
			return -ENOMEM;
	}
	n->hop = hop_new(HOP_RESOLVE);
	if (n->hop == UINT32_MAX)
		return -ENOMEM;
	hop = hop_at(n->hop);
	hop->chain = neighbor_glean_node.id;
	hop->interface = n->interface;
	hop->port = interface_at(n->interface)->circuit.port;
	hop->mtu = interface_at(n->interface)->mtu;
	memcpy(hop->address, n->address, 16);
	entries[n->hop] = index + 1;
	return 0;
}

void
neighbor_hop_forget(struct neighbor *n)
{
	entries[n->hop] = 0;
	hop_retire(n->hop);
	n->hop = NO_HOP;
}

static void
set_chain(struct hop *hop, uint32_t chain)
{
	__atomic_store_n(&hop->chain, chain, __ATOMIC_RELEASE);
}

static uint32_t
usable_chain(const struct neighbor *n)
{
	const struct node *steps[INTERFACE_FEATURES + 2];
	unsigned count = interface_steps(n->interface, INTERFACE_OUT, steps);

	if (n->resolving.entry.state == NEIGHBOR_STALE)
		steps[count++] = &neighbor_used_node;
	steps[count++] = n->family == 4 ? &ip4_rewrite_node : &ip6_rewrite_node;
	return chain_of(steps, count);
}

// Change the neighbour's or the port's Ethernet address while workers send by the hop: each is one store of eight
// bytes within the hop's cache line, and rewrite_header reads each by one load. The bytes behind them stay as they are.
static void
change_addresses(struct hop *hop, const uint8_t *header)
{
	uint8_t *at = hop->rewrite + sizeof(hop->rewrite) - hop->rewrite_length;

	memcpy(at, header, 8);
	memcpy(at + RTE_ETHER_ADDR_LEN, header + RTE_ETHER_ADDR_LEN, 8);
}

static void
adjacency(struct neighbor *n, struct hop *hop)
{
	const struct interface *in = interface_at(n->interface);
	uint8_t room[32] = {0};
	unsigned length = interface_header(n->interface, &n->resolving.entry.mac,
		n->family == 4 ? RTE_ETHER_TYPE_IPV4 : RTE_ETHER_TYPE_IPV6, room);

	if (n->published && hop->rewrite_length == length && hop->port == in->circuit.port) {
		change_addresses(hop, room + 32 - length);
	} else {
		if (n->published) {
			set_chain(hop, neighbor_glean_node.id);
			rcu_wait();
		}
		hop->port = in->circuit.port;
		hop->rewrite_length = (uint8_t)length;
		memcpy(hop->rewrite + 32 - length, room + 32 - length, length);
	}
	__atomic_store_n(&hop->mtu, RTE_MIN(in->mtu, ports[in->circuit.port].mtu), __ATOMIC_RELAXED);
	__atomic_store_n(&hop->kind, HOP_FORWARD, __ATOMIC_RELAXED);
	n->published = true;
	set_chain(hop, usable_chain(n));
}

bool
neighbor_on_link(uint32_t interface, uint8_t family, const uint8_t address[16])
{
	const struct interface_detail *d = interface_detail(interface);

	if (family == 6 && ip6_is_link_local(address))
		return true;
	for (unsigned i = 0; i < d->address_count; i++) {
		const struct interface_address *a = &d->addresses[i];
		unsigned bytes = a->length / 8, bits = a->length % 8;

		if (a->family != family || memcmp(a->bytes, address, bytes) != 0)
			continue;
		if (bits == 0 || ((a->bytes[bytes] ^ address[bytes]) & (0xff << (8 - bits) & 0xff)) == 0)
			return true;
	}
	return false;
}

void
neighbor_unroute(struct neighbor *n)
{
	if (n->routed)
		route_remove(n->vrf, n->family, n->address, n->family == 4 ? 32 : 128, ROUTE_NEIGHBOR);
	n->routed = false;
}

static void
route(struct neighbor *n, bool usable)
{
	bool global = n->family == 4 || !ip6_is_link_local(n->address);
	struct fault f;

	if (!usable || !global || !(n->gleaned || n->object) ||
		!neighbor_on_link(n->interface, n->family, n->address)) {
		neighbor_unroute(n);
		return;
	}
	// Without the route its packets take the way by the main thread, which knows where they go.
	if (!n->routed)
		n->routed = route_add(n->vrf, n->family, n->address, n->family == 4 ? 32 : 128, ROUTE_NEIGHBOR, n->hop,
				    &f) == 0;
}

void
neighbor_publish(struct neighbor *n)
{
	struct hop *hop = hop_at(n->hop);
	bool usable = neighbor_usable(n->resolving.entry.state) && !n->orphan;

	if (usable) {
		adjacency(n, hop);
	} else {
		set_chain(hop, neighbor_glean_node.id);
		__atomic_store_n(&hop->kind, HOP_RESOLVE, __ATOMIC_RELAXED);
	}
	if (n->orphan)
		neighbor_unroute(n);
	else
		route(n, usable);
}
