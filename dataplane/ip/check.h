// SPDX-License-Identifier: Apache-2.0
// Checks of headers from outside.
#pragma once

#include <rte_mbuf.h>

#include "core/drop.h"

// Why the packet at the mbuf's data cannot be taken, or NULL. `checksum_good`: the device has seen to that. `*option` is where
// in the header the option is that is wrong.
const struct drop *ip4_check(struct rte_mbuf *m, bool checksum_good, unsigned *option);
const struct drop *ip6_check(struct rte_mbuf *m);

// Cut the bytes behind the packet's `length` bytes, which are there.
static inline void
ip_trim(struct rte_mbuf *m, uint32_t length)
{
	struct rte_mbuf *last = m;
	uint32_t before = 0;

	m->pkt_len = length;
	while (last->next && before + last->data_len < length) {
		before += last->data_len;
		last = last->next;
	}
	last->data_len = (uint16_t)(length - before);
	if (last->next) {
		uint16_t segments = 1;

		for (const struct rte_mbuf *s = m; s != last; s = s->next)
			segments++;
		rte_pktmbuf_free(last->next);
		last->next = NULL;
		m->nb_segs = segments;
	}
}
