// SPDX-License-Identifier: Apache-2.0
// Nodes that hold packets against lists.
//
// Rules that read ports, TCP flags or ICMP types do not match fragments but the first: those pass or not by the rules that
// name addresses and protocol alone.
#include <arpa/inet.h>
#include <stdio.h>

#include "acl/acl.h"
#include "acl/gather.h"
#include "acl/table.h"
#include "core/drop.h"
#include "core/worker.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "session/step.h"

DROP(acl_denied, "acl-denied", "An access control list denies the packet.")
DROP(acl_unreadable, "acl-unreadable",
	"An access control list has to know the packet's transport header, but it is cut short, lies behind more than "
	"eight "
	"extension headers, or is split over fragments.")

static inline uint16_t
settle(const struct acl_list *list, struct packet *p, uint32_t verdict)
{
	if (unlikely(verdict == ACL_UNREADABLE))
		return packet_drop(p, &acl_unreadable);
	return likely(acl_permits(list, verdict)) ? packet_step(p) : packet_drop(p, &acl_denied);
}

// Each worker has a row of its own.
static void
count_hits(const struct acl_list *list, const uint16_t *places, unsigned count, const uint32_t *verdicts)
{
	uint64_t *row = list->hits + (size_t)worker_self()->index * list->hits_stride;

	for (unsigned i = 0; i < count; i++) {
		uint32_t verdict = verdicts[places[i]];

		if (likely(verdict != ACL_UNREADABLE))
			row[verdict >> 1]++;
	}
}

static void
decide_by(uint32_t acl, void **packets, const uint16_t *places, unsigned count, uint16_t *next)
{
	const struct acl_list *list = acl == NO_ACL ? NULL : acl_list_at(acl);

	uint32_t verdicts[BURST];

	if (likely(list != NULL)) {
		acl_find(list, packets, places, count, verdicts);
		if (unlikely(list->hits != NULL))
			count_hits(list, places, count, verdicts);
		for (unsigned i = 0; i < count; i++)
			next[places[i]] = settle(list, packet_of(packets[places[i]]), verdicts[places[i]]);
		return;
	}
	// A list that went away while the packet was on its way to it.
	for (unsigned i = 0; i < count; i++)
		next[places[i]] = packet_step(packet_of(packets[places[i]]));
}

bool
acl_permits_packet(uint32_t acl, uint8_t family, const uint8_t *ip, unsigned length)
{
	const struct acl_list *list = acl == NO_ACL ? NULL : acl_list_at(acl);
	uint32_t verdict;
	struct acl_key4 key4;
	struct acl_key6 key6;

	if (list && family == 4 && acl_key4(&list->protocols, ip, length, &key4))
		acl_list_find4(list, &key4, 1, &verdict);
	else if (list && family == 6 && acl_key6(&list->protocols, ip, length, &key6))
		acl_list_find6(list, &key6, 1, &verdict);
	else
		return false;
	return acl_permits(list, verdict);
}

// Which list a packet is held against, by node.
typedef uint32_t (*acl_choice)(const struct packet *p);

static inline uint32_t
choose_up(const struct packet *p)
{
	return *session_step_words(&acl_step, p->session, UP);
}

static inline uint32_t
choose_down(const struct packet *p)
{
	return *session_step_words(&acl_step, p->session, DOWN);
}

static inline uint32_t
choose_in(const struct packet *p)
{
	return interface_at(p->interface)->acl_in;
}

static inline uint32_t
choose_out(const struct packet *p)
{
	return interface_at(hop_at(p->hop)->interface)->acl_out;
}

// `choose` is a constant where this is inlined.
static __rte_always_inline void
filter_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count, acl_choice choose)
{
	uint16_t next[BURST], places[BURST];
	uint32_t acls[BURST];
	unsigned left = count;

	for (uint16_t i = 0; i < count; i++) {
		const struct packet *p = packet_of(packets[i]);

		acls[i] = unlikely((p->flags & (PACKET_OURS | PACKET_TUNNELLED)) == PACKET_OURS) ? NO_ACL : choose(p);
		places[i] = i;
	}
	// Take out the packets of the first one's list until none is left.
	while (left > 0) {
		uint32_t acl = acls[places[0]];
		uint16_t same[BURST];
		unsigned some = take_same(acls, places, &left, same);

		decide_by(acl, packets, same, some, next);
	}
	node_dispatch(graph, node, packets, next, count);
}

static __rte_always_inline uint16_t
filter(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count, acl_choice choose)
{
	for (uint16_t start = 0; start < count; start += BURST)
		filter_burst(graph, node, packets + start, (uint16_t)RTE_MIN(count - start, BURST), choose);
	return count;
}

static uint16_t
acl_up(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return filter(graph, node, packets, count, choose_up);
}

static uint16_t
acl_down(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return filter(graph, node, packets, count, choose_down);
}

static uint16_t
acl_in(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return filter(graph, node, packets, count, choose_in);
}

static uint16_t
acl_out(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return filter(graph, node, packets, count, choose_out);
}

// The fields that a list compares, of a packet whose transport header lies where it mostly does.
static void
describe(char *text, size_t size, const struct packet *packet, const uint8_t *data, size_t length)
{
	char source[INET6_ADDRSTRLEN], destination[INET6_ADDRSTRLEN];
	bool v4 = packet->family == 4;
	size_t header = v4 ? 20 : 40;

	if (length < header) {
		snprintf(text, size, "a header that is cut short");
		return;
	}
	inet_ntop(v4 ? AF_INET : AF_INET6, data + (v4 ? 12 : 8), source, sizeof(source));
	inet_ntop(v4 ? AF_INET : AF_INET6, data + (v4 ? 16 : 24), destination, sizeof(destination));
	snprintf(text, size, "%s > %s, protocol %u", source, destination, data[v4 ? 9 : 6]);
}

struct node acl_up_node = {.name = "acl-up", .process = acl_up, .describe = describe, .steps = true};
NODE_REGISTER(acl_up_node)
struct node acl_down_node = {.name = "acl-down", .process = acl_down, .describe = describe, .steps = true};
NODE_REGISTER(acl_down_node)
struct node acl_in_node = {.name = "acl-in", .process = acl_in, .describe = describe, .steps = true};
NODE_REGISTER(acl_in_node)
struct node acl_out_node = {.name = "acl-out", .process = acl_out, .describe = describe, .steps = true};
NODE_REGISTER(acl_out_node)
