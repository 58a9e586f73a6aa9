// SPDX-License-Identifier: Apache-2.0
// IP takes frames of its types.
#include "core/start.h"
#include "ether/interface.h"
#include "ip/icmp.h"
#include "ip/nodes.h"
#include "ip/reassembly.h"
#include "ip/subscriber.h"

static int
start(void)
{
	ether_type_register(RTE_ETHER_TYPE_IPV4, &ip4_input_node);
	ether_type_register(RTE_ETHER_TYPE_IPV6, &ip6_input_node);
	ether_group_register(RTE_ETHER_TYPE_IPV4, &ip4_group_node);
	ether_group_register(RTE_ETHER_TYPE_IPV6, &ip6_group_node);
	icmp_start();
	// packet_to_subscriber()
	node_edge(&icmp_error_node, subscribers->down);
	node_edge(node_by_name("icmp"), subscribers->down);
	node_edge(node_by_name("ip-special"), subscribers->down);
	return reassembly_start();
}

static struct part ip = {.name = "IP", .phase = PART_BEFORE_WORKERS, .start = start};
PART_REGISTER(ip)
