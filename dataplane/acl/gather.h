// SPDX-License-Identifier: Apache-2.0
// Matching the packets of a burst with lists: keys are gathered list by list and looked up together, because the
// classifiers are fast at that. Most bursts have one list.
#pragma once

#include "acl/list.h"
#include "core/node.h"

static_assert((int)ACL_BURST >= (int)BURST, "a burst is looked up at once");

// The verdict of a packet without the fields that its list has to read.
static const uint32_t ACL_UNREADABLE = UINT32_MAX;

// Keys of packets of one list and family, and the packets' places in the burst.
struct acl_gathered4 {
	struct acl_key4 keys[BURST];
	uint16_t places[BURST];
	unsigned count;
};

struct acl_gathered6 {
	struct acl_key6 keys[BURST];
	uint16_t places[BURST];
	unsigned count;
};

// The verdicts, by place, of the `count` IP packets of the burst that stand at these places.
static inline void
acl_find(const struct acl_list *list, void **packets, const uint16_t *places, unsigned count, uint32_t *verdicts)
{
	struct acl_gathered4 v4;
	struct acl_gathered6 v6;
	uint32_t found[BURST];

	v4.count = 0;
	v6.count = 0;
	for (unsigned i = 0; i < count; i++) {
		uint16_t place = places[i];
		struct rte_mbuf *m = packets[place];
		const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
		unsigned length = rte_pktmbuf_data_len(m);
		bool readable;

		if (likely(packet_of(m)->family == 4)) {
			readable = acl_key4(&list->protocols, ip, length, &v4.keys[v4.count]);
			v4.places[v4.count] = place;
			v4.count += readable;
		} else {
			readable = acl_key6(&list->protocols, ip, length, &v6.keys[v6.count]);
			v6.places[v6.count] = place;
			v6.count += readable;
		}
		if (unlikely(!readable))
			verdicts[place] = ACL_UNREADABLE;
	}
	if (v4.count > 0) {
		acl_list_find4(list, v4.keys, v4.count, found);
		for (unsigned i = 0; i < v4.count; i++)
			verdicts[v4.places[i]] = found[i];
	}
	if (v6.count > 0) {
		acl_list_find6(list, v6.keys, v6.count, found);
		for (unsigned i = 0; i < v6.count; i++)
			verdicts[v6.places[i]] = found[i];
	}
}

// Take from `places`, of which `*left` remain, those with the same value of `of`, an array by place, as the first
// one. Returns their number; their places are in `same`.
static inline unsigned
take_same(const uint32_t *of, uint16_t *places, unsigned *left, uint16_t *same)
{
	uint32_t first = of[places[0]];
	unsigned some = 0, others = 0;

	for (unsigned i = 0; i < *left; i++) {
		uint16_t place = places[i];
		bool is_same = of[place] == first;

		same[some] = place;
		places[others] = place;
		some += is_same;
		others += !is_same;
	}
	*left = others;
	return some;
}
