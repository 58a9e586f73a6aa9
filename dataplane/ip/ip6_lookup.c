// Where an IPv6 packet goes: longest prefix match on its destination (RFC 8200, RFC 4291 section 2.5).
#include <string.h>

#include "core/burst.h"
#include "ip/describe.h"
#include "ip/header.h"
#include "ip/hop.h"
#include "ip/look_up.h"
#include "ip/vrf.h"

static void
find(uint16_t vrf, const uint8_t *const *addresses, uint32_t *found, unsigned count)
{
	if (likely(vrfs[vrf].fib6 != NULL))
		fib6_lookup_bulk(vrfs[vrf].fib6, addresses, found, count);
	else
		memset(found, 0, count * sizeof(found[0]));
}

// A burst of several VRFs, one VRF at a time.
static void
find_by_vrf(void **packets, const uint8_t *const *addresses, uint32_t *found, unsigned count)
{
	const uint8_t *some[BURST];
	uint32_t hops[BURST];
	uint16_t at[BURST], left[BURST];
	unsigned rest = count;

	for (unsigned i = 0; i < count; i++)
		left[i] = (uint16_t)i;
	while (rest > 0) {
		uint16_t vrf = packet_of(packets[left[0]])->vrf;
		unsigned taken = 0, kept = 0;

		for (unsigned i = 0; i < rest; i++) {
			if (packet_of(packets[left[i]])->vrf == vrf) {
				at[taken] = left[i];
				some[taken++] = addresses[left[i]];
			} else {
				left[kept++] = left[i];
			}
		}
		find(vrf, some, hops, taken);
		for (unsigned i = 0; i < taken; i++)
			found[at[i]] = hops[i];
		rest = kept;
	}
}

static void
look_up(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	const uint8_t *addresses[BURST];
	uint32_t found[BURST];
	uint16_t vrf = packet_of(packets[0])->vrf, mixed = 0;

	for (unsigned i = 0; i < count; i++) {
		addresses[i] = rte_pktmbuf_mtod((struct rte_mbuf *)packets[i], struct ip6_header *)->destination;
		mixed |= packet_of(packets[i])->vrf ^ vrf;
	}
	if (likely(mixed == 0))
		find(vrf, addresses, found, count);
	else
		find_by_vrf(packets, addresses, found, count);
	look_up_send(graph, node, packets, found, count, 6);
}

static uint16_t
ip6_lookup(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, look_up);
}

struct node ip6_lookup_node = {.name = "ip6-lookup", .process = ip6_lookup, .describe = ip_describe};
NODE_REGISTER(ip6_lookup_node)
