// SPDX-License-Identifier: Apache-2.0
// Packets of subscribers that came in no frame of the subscriber's own: out of a tunnel, say.
#pragma once

#include "ip/nodes.h"
#include "session/session.h"

// The state of the outer packet is cleared.
static inline void
session_enter(struct rte_mbuf *m, struct packet *p, uint32_t session)
{
	packet_forget_checksums(m);
	p->session = session;
	p->interface = NO_INTERFACE;
	p->hop = NO_HOP;
	p->flags = 0;
	p->counted = 0;
	p->outer_tpid = 0;
	p->inner_tpid = 0;
}

// The edge for a frame of the session, of type Ethernet. The data starts at the frame, whose first segment has the whole Ethernet header.
static inline uint16_t
session_input_frame(struct rte_mbuf *m, struct packet *p, uint32_t session)
{
	session_enter(m, p, session);
	// It has no tags of the access.
	p->l2_length = RTE_ETHER_HDR_LEN;
	return session_frames_up_node.id;
}

// The edge for a packet of the session, whose access has taken the header off. The data starts at the IP header, which has at least one byte
// and is not checked otherwise. The state of the outer packet is cleared.
static inline uint16_t
session_input(struct rte_mbuf *m, struct packet *p, uint32_t session)
{
	bool six = *rte_pktmbuf_mtod(m, const uint8_t *) >> 4 == 6;

	session_enter(m, p, session);
	p->l2_length = 0;
	p->chain = six ? session_point_up6_node.id : session_point_up4_node.id;
	return six ? ip6_input_node.id : ip4_input_node.id;
}
