// Sends IPv6 packets over an adjacency (RFC 8200 section 3, RFC 4443 sections 3.1 to 3.3): counts the hop limit down, sees
// that they are not too large and may leave their link, puts the Ethernet header on. In: packet->hop. Out: tx.
#include "core/drop.h"
#include "ip/describe.h"
#include "ip/fragment.h"
#include "ip/header.h"
#include "ip/hop.h"
#include "ip/icmp.h"
#include "ip/rewrite.h"

DROP(drop_expired, "hop-limit-expired", "The packet's hop limit ran out here.")
DROP(drop_too_big, "packet-too-big",
	"The packet is larger than the MTU of its way out; only its sender may fragment IPv6.")
DROP(drop_scope, "beyond-scope", "A packet with a link-local source would have left its link (RFC 4291 section 2.5.6).")

// fe80::/10, of the first two bytes as they lie.
static inline bool
starts_link_local(const struct ip6_header *ip)
{
	uint16_t first;

	memcpy(&first, ip->source, sizeof(first));
	return (first & RTE_BE16(0xffc0)) == RTE_BE16(0xfe80);
}

// A packet whose hop limit has run out, that is too large or must not leave its link. Packets of our own are not routed.
static uint16_t
refuse(struct packet *p, const void *at, uint16_t mtu)
{
	const struct ip6_header *ip = at;

	if (p->flags & PACKET_ROUTED && starts_link_local(ip))
		return packet_icmp_error(p, ICMP6_UNREACHABLE, ICMP6_BEYOND_SCOPE, 0, &drop_scope);
	if (p->flags & PACKET_ROUTED && ip->hop_limit <= 1)
		return packet_icmp_error(p, ICMP6_TIME_EXCEEDED, 0, 0, &drop_expired);
	if (p->flags & PACKET_OURS)
		return packet_fragment(p, mtu, &ip6_rewrite_node);
	return packet_icmp_error(p, ICMP6_TOO_BIG, 0, mtu, &drop_too_big);
}

static __rte_always_inline bool
age(void *at, uint32_t routed, bool too_large)
{
	struct ip6_header *ip = at;

	if (unlikely((routed & ((ip->hop_limit <= 1) | starts_link_local(ip))) | too_large))
		return false;
	ip->hop_limit = (uint8_t)(ip->hop_limit - routed);
	return true;
}

static void
rewrite(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	rewrite_burst(graph, node, packets, count, age, refuse);
}

static uint16_t
ip6_rewrite(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, rewrite);
}

struct node ip6_rewrite_node = {.name = "ip6-rewrite", .process = ip6_rewrite, .describe = ip_describe};
NODE_REGISTER(ip6_rewrite_node)
