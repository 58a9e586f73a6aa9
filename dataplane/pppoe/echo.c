// SPDX-License-Identifier: Apache-2.0
#include "pppoe/echo.h"

#include <errno.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>

#include "core/drop.h"
#include "core/fair.h"
#include "core/slab.h"
#include "port/port.h"
#include "pppoe/header.h"
#include "pppoe/keepalive.h"
#include "session/session.h"

enum {
	ECHO_REQUEST = 9,
	ECHO_REPLY = 10,
	LCP_HEADER = 4,
	MAGIC = 4,
	LCP = PPPOE_HEADER + PPP_PROTOCOL,

	// Of all workers, and of a session on each of them; as many at once.
	ANSWERS_A_SECOND = 200000,
	ANSWERS_EACH = 20,
};

DROP(drop_rate, "lcp-echo-rate-limited",
	"More LCP Echo-Requests than the rate limits of all sessions and of this one allow.")

CONSUMED(echo_noted, "lcp-echo-noted", "LCP Echo-Replies that were noted: the subscriber is there.")

// The bytes of the frame's PPPoE packet, or 0: it is no echo that can be treated here.
static unsigned
echo_length(const struct rte_mbuf *m)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(m, const uint8_t *);
	unsigned length = PPPOE_HEADER + ((unsigned)bytes[4] << 8 | bytes[5]), said;

	if (m->nb_segs != 1 || length < LCP + LCP_HEADER + MAGIC || length > m->data_len ||
		(bytes[LCP] != ECHO_REQUEST && bytes[LCP] != ECHO_REPLY))
		return 0;
	said = (unsigned)bytes[LCP + 2] << 8 | bytes[LCP + 3];
	return said < LCP_HEADER + MAGIC || said > length - LCP ? 0 : length;
}

static uint32_t *magics; // by session

int
pppoe_echo_start(void)
{
	magics = slab_reserve(sizeof(magics[0]) * SESSION_LIMIT);
	return magics ? 0 : -ENOMEM;
}

void
pppoe_echo_magic(uint32_t session, uint32_t magic)
{
	if (magics[session] != magic)
		__atomic_store_n(&magics[session], magic, __ATOMIC_RELAXED);
}

bool
pppoe_echo(struct rte_mbuf *m, struct packet *p, uint16_t *next)
{
	static struct fair_rates answers;
	uint32_t magic = __atomic_load_n(&magics[p->session], __ATOMIC_RELAXED);
	uint64_t mac = __atomic_load_n(&session_at(p->session)->seen, __ATOMIC_RELAXED);
	unsigned length = magic ? echo_length(m) : 0;
	struct rte_ether_hdr *ether;
	struct rte_ether_addr ours;
	uint32_t theirs;
	uint8_t *bytes;

	if (length == 0)
		return false;
	bytes = rte_pktmbuf_mtod(m, uint8_t *);
	ether = (struct rte_ether_hdr *)(bytes - p->l2_length);
	memcpy(&theirs, bytes + LCP + LCP_HEADER, sizeof(theirs));
	// A loop and another host are the agent's matter.
	if (rte_be_to_cpu_32(theirs) == magic || memcmp(&ether->src_addr, &mac, RTE_ETHER_ADDR_LEN) != 0)
		return false;
	if (bytes[LCP] == ECHO_REPLY) {
		*next = packet_drop(p, &echo_noted);
		return keepalive_answered(p->session);
	}
	if (!fair_spend(&answers, ANSWERS_A_SECOND, ANSWERS_EACH, m)) {
		*next = packet_drop(p, &drop_rate);
		return true;
	}
	bytes[LCP] = ECHO_REPLY;
	theirs = rte_cpu_to_be_32(magic);
	memcpy(bytes + LCP + LCP_HEADER, &theirs, sizeof(theirs));
	ours = ether->dst_addr;
	ether->dst_addr = ether->src_addr;
	ether->src_addr = ours;
	m->data_len = (uint16_t)length;
	m->pkt_len = length;
	packet_advance(m, -(int)p->l2_length);
	p->flags |= PACKET_OURS;
	p->queue = QUEUE_OF_REPLIES;
	m->port = p->port;
	*next = tx_node.id;
	return true;
}
