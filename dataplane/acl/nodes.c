// Nodes that hold packets against lists. A burst's keys are gathered list by list and decided together, which is what rte_acl is
// fast at; most bursts have one list.
//
// Rules that read ports, TCP flags or ICMP types do not match fragments but the first: those pass or not by the rules that
// name addresses and protocol alone.
#include <arpa/inet.h>
#include <stdio.h>

#include "acl/acl.h"
#include "acl/table.h"
#include "core/drop.h"
#include "ether/interface.h"
#include "ip/hop.h"
#include "session/session.h"

static_assert((int)ACL_BURST >= (int)BURST, "a burst is decided at once");

DROP(acl_denied, "acl-denied", "An access control list denies the packet.")
DROP(acl_unreadable, "acl-unreadable",
	"An access control list has to know the packet's transport header, but it is cut short, lies behind more than "
	"eight "
	"extension headers, or is split over fragments.")

// Keys of packets of one list and family, and the packets' places in the burst.
struct gathered4 {
	struct acl_key4 keys[BURST];
	uint16_t places[BURST];
	unsigned count;
};

struct gathered6 {
	struct acl_key6 keys[BURST];
	uint16_t places[BURST];
	unsigned count;
};

static inline void
settle(struct packet *p, bool permitted, uint16_t *next)
{
	*next = likely(permitted) ? packet_step(p) : packet_drop(p, &acl_denied);
}

// Decide `count` packets of the burst, at these places, by one list.
static inline void
decide(const struct acl_list *list, void **packets, const uint16_t *places, unsigned count, uint16_t *next)
{
	struct gathered4 v4;
	struct gathered6 v6;
	bool permitted[BURST];

	v4.count = 0;
	v6.count = 0;
	for (unsigned i = 0; i < count; i++) {
		uint16_t place = places[i];
		struct rte_mbuf *m = packets[place];
		struct packet *p = packet_of(m);
		const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
		unsigned length = rte_pktmbuf_data_len(m);
		bool readable;

		if (likely(p->family == 4)) {
			readable = acl_key4(&list->protocols, ip, length, &v4.keys[v4.count]);
			v4.places[v4.count] = place;
			v4.count += readable;
		} else {
			readable = acl_key6(&list->protocols, ip, length, &v6.keys[v6.count]);
			v6.places[v6.count] = place;
			v6.count += readable;
		}
		if (unlikely(!readable))
			next[place] = packet_drop(p, &acl_unreadable);
	}
	if (v4.count > 0) {
		acl_list_decide4(list, v4.keys, v4.count, permitted);
		for (unsigned i = 0; i < v4.count; i++)
			settle(packet_of(packets[v4.places[i]]), permitted[i], &next[v4.places[i]]);
	}
	if (v6.count > 0) {
		acl_list_decide6(list, v6.keys, v6.count, permitted);
		for (unsigned i = 0; i < v6.count; i++)
			settle(packet_of(packets[v6.places[i]]), permitted[i], &next[v6.places[i]]);
	}
}

static void
decide_by(uint32_t acl, void **packets, const uint16_t *places, unsigned count, uint16_t *next)
{
	const struct acl_list *list = acl == NO_ACL ? NULL : acl_list_at(acl);

	if (likely(list != NULL)) {
		decide(list, packets, places, count, next);
		return;
	}
	// A list that went away while the packet was on its way to it.
	for (unsigned i = 0; i < count; i++)
		next[places[i]] = packet_step(packet_of(packets[places[i]]));
}

// Which list a packet is held against, by node.
typedef uint32_t (*acl_choice)(const struct packet *p);

static inline uint32_t
choose_up(const struct packet *p)
{
	return session_at(p->session)->acl_up;
}

static inline uint32_t
choose_down(const struct packet *p)
{
	return session_at(p->session)->acl_down;
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
		unsigned some = 0, others = 0;

		for (unsigned i = 0; i < left; i++) {
			uint16_t place = places[i];
			bool is_same = acls[place] == acl;

			same[some] = place;
			places[others] = place;
			some += is_same;
			others += !is_same;
		}
		decide_by(acl, packets, same, some, next);
		left = others;
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

struct node acl_up_node = {.name = "acl-up", .process = acl_up, .describe = describe};
NODE_REGISTER(acl_up_node)
struct node acl_down_node = {.name = "acl-down", .process = acl_down, .describe = describe};
NODE_REGISTER(acl_down_node)
struct node acl_in_node = {.name = "acl-in", .process = acl_in, .describe = describe};
NODE_REGISTER(acl_in_node)
struct node acl_out_node = {.name = "acl-out", .process = acl_out, .describe = describe};
NODE_REGISTER(acl_out_node)
