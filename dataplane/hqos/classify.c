// SPDX-License-Identifier: Apache-2.0
// A step of sessions' chains: which class a packet is of, and how it is marked as it leaves (RFC 2474; IEEE 802.1Q; TS 38.415). Frames
// of sessions of type Ethernet are classed by the IP packet in them, if there is one, and by their own tag.
#include <stdio.h>

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_prefetch.h>

#include "acl/acl.h"
#include "core/burst.h"
#include "hqos/hqos.h"
#include "hqos/shaped.h"
#include "ip/dscp.h"

enum { PREFETCH_DISTANCE = 16 }; // packets whose session's line is on its way

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

// The input of classification: an IP header, if there is one, and the priority of a tag.
struct seen {
	uint8_t *ip;
	unsigned length;  // from there on
	uint8_t family;   // 0: no IP
	uint8_t priority; // 802.1p
};

// A frame of a session of type Ethernet: the priority of its own tag, and the IP header behind it, or behind a second one.
static struct seen
look_into_frame(const struct packet *p, uint8_t *frame, unsigned length)
{
	enum { TAG_OLD = 0x9100, TAGS = 2 };
	unsigned at = 2 * RTE_ETHER_ADDR_LEN;
	struct seen seen = {.priority = p->outer_priority};

	for (unsigned tags = 0; tags <= TAGS && at + 2 <= length; tags++) {
		unsigned type = (unsigned)frame[at] << 8 | frame[at + 1];

		if (type == RTE_ETHER_TYPE_IPV4 && at + 2 + sizeof(struct rte_ipv4_hdr) <= length &&
			frame[at + 2] >> 4 == 4)
			seen.family = 4;
		else if (type == RTE_ETHER_TYPE_IPV6 && at + 2 + sizeof(struct rte_ipv6_hdr) <= length &&
			 frame[at + 2] >> 4 == 6)
			seen.family = 6;
		if (seen.family != 0) {
			seen.ip = frame + at + 2;
			seen.length = length - at - 2;
			break;
		}
		if ((type != RTE_ETHER_TYPE_VLAN && type != RTE_ETHER_TYPE_QINQ && type != TAG_OLD) || tags == TAGS ||
			at + 4 > length)
			break;
		if (tags == 0)
			seen.priority = frame[at + 2] >> 5;
		at += 4;
	}
	return seen;
}

static inline unsigned
class_of(const struct qos_profile *profile, const struct packet *p, const struct seen *seen)
{
	unsigned class;

	if (unlikely(profile->by_acl) && seen->family != 0)
		for (unsigned i = 0; i < profile->class_count; i++)
			if (profile->acl[i] != NO_ACL &&
				acl_permits_packet(profile->acl[i], seen->family, seen->ip, seen->length))
				return profile->number_of[i];
	if (p->class != 0 && p->class < profile->class_count)
		return profile->number_of[p->class];
	class = p->qfi == NO_QFI ? QOS_ANY_CLASS : profile->of_qfi[p->qfi & 63];
	if (class == QOS_ANY_CLASS && likely(seen->family != 0))
		class = profile->of_dscp[dscp_of(seen->ip, seen->family)];
	if (class == QOS_ANY_CLASS)
		class = profile->of_vlan_priority[seen->priority & 7];
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

	for (uint16_t i = 0; i < RTE_MIN(count, (uint16_t)PREFETCH_DISTANCE); i++)
		fetch(packets[i]);
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		struct qos_binding binding = binding_of(p);
		const struct qos_profile *profile = qos_profile_at(binding.profile);
		uint8_t *data = rte_pktmbuf_mtod(m, uint8_t *);
		unsigned length = rte_pktmbuf_data_len(m), class;
		struct seen seen = likely(p->family != 0) ? (struct seen){data, length, p->family, p->outer_priority}
							  : look_into_frame(p, data, length);

		class = class_of(profile, p, &seen);
		if (i + PREFETCH_DISTANCE < count)
			fetch(packets[i + PREFETCH_DISTANCE]);
		p->queue = binding.queue;
		p->class = (uint8_t) class;
		if (unlikely(profile->vlan_priority[class] != 0))
			p->priority = profile->vlan_priority[class];
		if (unlikely(profile->qfi[class] != 0))
			mark_qfi(p, profile->qfi[class]);
		if (profile->marks_dscp && profile->dscp[class] >= 0 && seen.family != 0)
			dscp_write(seen.ip, seen.family, (uint8_t)profile->dscp[class]);
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
	.name = "hqos-classify", .process = hqos_classify, .describe = hqos_classify_describe, .steps = true};
NODE_REGISTER(hqos_classify_node)
