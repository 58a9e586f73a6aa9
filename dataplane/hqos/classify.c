// A step of sessions' chains: which class a packet is of, and how it is marked as it leaves (RFC 2474; IEEE 802.1Q; TS 38.415).
#include <stdio.h>

#include <rte_prefetch.h>

#include "acl/acl.h"
#include "core/burst.h"
#include "hqos/hqos.h"
#include "hqos/shaped.h"
#include "ip/dscp.h"

enum { AHEAD = 16 }; // packets whose session's line is on its way

static inline struct qos_binding
binding_of(const struct packet *p)
{
	struct qos_binding binding;
	uint64_t word =
		__atomic_load_n((uint64_t *)(void *)&qos_bindings[p->direction & 1][p->session], __ATOMIC_ACQUIRE);

	memcpy(&binding, &word, sizeof(binding));
	return binding;
}

static inline void
fetch(void *packet)
{
	const struct packet *p = packet_of(packet);

	rte_prefetch0(&qos_bindings[p->direction & 1][p->session]);
}

static inline unsigned
class_of(const struct qos_profile *profile, const struct packet *p, const uint8_t *ip, unsigned length)
{
	unsigned class;

	if (unlikely(profile->by_acl))
		for (unsigned i = 0; i < profile->class_count; i++)
			if (profile->acl[i] != NO_ACL && acl_permits_packet(profile->acl[i], p->family, ip, length))
				return profile->number_of[i];
	if (p->class != 0 && p->class < profile->class_count)
		return profile->number_of[p->class];
	class = p->qfi == NO_QFI ? QOS_ANY_CLASS : profile->of_qfi[p->qfi & 63];
	if (class == QOS_ANY_CLASS)
		class = profile->of_dscp[dscp_of(ip, p->family)];
	if (class == QOS_ANY_CLASS)
		class = profile->of_vlan_priority[p->outer_priority & 7];
	return class == QOS_ANY_CLASS ? profile->rest : class;
}

static inline void
mark_qfi(struct packet *p, uint8_t qfi)
{
	p->qfi = qfi;
	p->flags |= PACKET_QFI;
}

static void
hqos_classify_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (uint16_t i = 0; i < RTE_MIN(count, (uint16_t)AHEAD); i++)
		fetch(packets[i]);
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		struct qos_binding binding = binding_of(p);
		const struct qos_profile *profile = qos_profile_at(binding.profile);
		uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *);
		unsigned class = class_of(profile, p, ip, rte_pktmbuf_data_len(m));

		if (i + AHEAD < count)
			fetch(packets[i + AHEAD]);
		p->queue = binding.queue;
		p->class = (uint8_t) class;
		if (unlikely(profile->vlan_priority[class] != 0))
			p->priority = profile->vlan_priority[class];
		if (unlikely(profile->qfi[class] != 0))
			mark_qfi(p, profile->qfi[class]);
		if (profile->marks_dscp && profile->dscp[class] >= 0)
			dscp_write(ip, p->family, (uint8_t)profile->dscp[class]);
		next[i] = packet_step(p);
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
hqos_classify(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, hqos_classify_burst);
}

static void
hqos_classify_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	snprintf(text, size, "QFI %u, priority of its tag %u", p->qfi, p->outer_priority);
}

struct node hqos_classify_node = {
	.name = "hqos-classify", .process = hqos_classify, .describe = hqos_classify_describe};
NODE_REGISTER(hqos_classify_node)
