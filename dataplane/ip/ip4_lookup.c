// Where an IPv4 packet goes: longest prefix match on its destination (RFC 1812 section 5.2.4).
#include <string.h>

#include "core/burst.h"
#include "ip/describe.h"
#include "ip/header.h"
#include "ip/hop.h"
#include "ip/look_up.h"
#include "ip/vrf.h"

static void
find(uint16_t vrf, const uint32_t *addresses, uint32_t *found, unsigned count)
{
	if (likely(vrfs[vrf].fib4 != NULL))
		fib4_lookup_bulk(vrfs[vrf].fib4, addresses, found, count);
	else
		memset(found, 0, count * sizeof(found[0]));
}

// A burst of several VRFs, one VRF at a time.
static void
find_by_vrf(void **packets, const uint32_t *addresses, uint32_t *found, unsigned count)
{
	uint32_t some[BURST], hops[BURST];
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

void
ip4_look_up(struct rte_graph *graph, struct rte_node *node, void **packets, const uint32_t *addresses, uint16_t count)
{
	uint32_t found[BURST];
	uint16_t vrf = packet_of(packets[0])->vrf, mixed = 0;

	for (unsigned i = 0; i < count; i++)
		mixed |= packet_of(packets[i])->vrf ^ vrf;
	if (likely(mixed == 0))
		find(vrf, addresses, found, count);
	else
		find_by_vrf(packets, addresses, found, count);
	look_up_send(graph, node, packets, found, count, 4);
}

static void
look_up(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint32_t addresses[BURST];

	for (unsigned i = 0; i < count; i++)
		addresses[i] = rte_pktmbuf_mtod((struct rte_mbuf *)packets[i], struct ip4_header *)->destination;
	ip4_look_up(graph, node, packets, addresses, count);
}

static uint16_t
ip4_lookup(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, look_up);
}

struct node ip4_lookup_node = {.name = "ip4-lookup", .process = ip4_lookup, .describe = ip_describe};
NODE_REGISTER(ip4_lookup_node)
