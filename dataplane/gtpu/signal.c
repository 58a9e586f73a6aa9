// SPDX-License-Identifier: Apache-2.0
// Answers to GTP-U's own messages and to packets of unknown tunnels (TS 29.281 section 7).
#include "gtpu/signal.h"

#include <string.h>

#include "core/fair.h"
#include "core/punt.h"
#include "fib/hop.h"
#include "gtpu/path.h"
#include "inet/header.h"

INJECTED(ip4_lookup_node)
INJECTED(ip6_lookup_node)

enum {
	ANSWERS_A_SECOND = 400, // of all workers, and as many at once
	ANSWERS_EACH = 100,     // to one peer
	PUNTS_A_SECOND = 6400,  // never the narrower of the two
	// Echo responses of all workers, and to one host on each of them.
	ECHOES_A_SECOND = 50000,
	ECHOES_EACH = 1000,
};

DROP(drop_unknown_teid, "gtpu-unknown-teid", "A GTP-U packet for a TEID that no session has.")
DROP(drop_extension, "gtpu-unknown-extension",
	"A GTP-U packet with an extension header that must be understood and is not (TS 29.281 section 5.2.1).")
DROP(drop_echo, "gtpu-echo-unanswerable", "There was no room in the buffer of a GTP-U echo request for its response.")
DROP(drop_echo_rate, "gtpu-echo-rate-limited",
	"More GTP-U echo requests than the rate limits of all hosts and of this one allow.")

void
gtpu_ends_of(const uint8_t *ip, struct gtpu_ends *ends)
{
	*ends = (struct gtpu_ends){.family = ip[0] >> 4};
	if (ends->family == 4) {
		const struct ip4_header *ip4 = (const struct ip4_header *)ip;

		memcpy(ends->local, &ip4->destination, sizeof(ip4->destination));
		memcpy(ends->remote, &ip4->source, sizeof(ip4->source));
	} else {
		const struct ip6_header *ip6 = (const struct ip6_header *)ip;

		memcpy(ends->local, ip6->destination, sizeof(ends->local));
		memcpy(ends->remote, ip6->source, sizeof(ends->remote));
	}
}

static uint16_t
source_port(const uint8_t *udp)
{
	return (uint16_t)(udp[0] << 8 | udp[1]);
}

// Make the buffer hold `bytes` and nothing else, and have it looked up.
static bool
fill(struct rte_mbuf *m, const uint8_t *bytes, unsigned length, uint8_t family)
{
	struct packet *p = packet_of(m);

	if (m->next) {
		rte_pktmbuf_free(m->next);
		m->next = NULL;
		m->nb_segs = 1;
	}
	if (length > (unsigned)m->buf_len - m->data_off)
		return false;
	m->data_len = (uint16_t)length;
	m->pkt_len = length;
	memcpy(rte_pktmbuf_mtod(m, void *), bytes, length);
	p->flags = PACKET_OURS;
	p->family = family;
	p->l2_length = 0;
	return true;
}

static bool
may_echo(struct rte_mbuf *m)
{
	static struct fair_rates echoes;

	return fair_spend(&echoes, ECHOES_A_SECOND, ECHOES_EACH, m);
}

// Any host may ask, so the response does not go before the packets of others.
uint16_t
gtpu_echo(struct rte_mbuf *m, struct packet *p, unsigned udp, uint16_t sequence)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
	uint8_t room[GTPU_MESSAGE_MAX], elements[2];
	struct gtpu_ends ends;
	unsigned length;

	if (!may_echo(m))
		return packet_drop(p, &drop_echo_rate);
	gtpu_ends_of(ip, &ends);
	length = gtpu_write_message(room, &ends, source_port(ip + udp), GTPU_ECHO_RESPONSE, sequence, elements,
		gtpu_echo_response(elements));
	if (!fill(m, room, length, ends.family))
		return packet_drop(p, &drop_echo);
	p->queue = QUEUE_OF_REPLIES;
	return ends.family == 4 ? ip4_lookup_node.id : ip6_lookup_node.id;
}

bool
gtpu_send(uint16_t vrf, const struct gtpu_ends *ends, uint8_t type, uint16_t sequence, const uint8_t *elements,
	size_t length)
{
	uint8_t room[GTPU_MESSAGE_MAX];
	struct rte_mbuf *m = packet_new();
	unsigned size;

	if (!m)
		return false;
	size = gtpu_write_message(room, ends, GTPU_PORT, type, sequence, elements, length);
	packet_of(m)->vrf = vrf;
	if (!fill(m, room, size, ends->family)) {
		rte_pktmbuf_free(m);
		return false;
	}
	inject(m, ends->family == 4 ? &ip4_lookup_node : &ip6_lookup_node);
	return true;
}

// Main thread: answer the sender of this packet, then drop it by name.
static void
answer(struct rte_mbuf *m, uint8_t type, const struct drop *reason)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
	uint16_t length, vrf = packet_of(m)->vrf;
	struct gtpu_packet packet;
	struct gtpu_ends ends;
	uint8_t elements[32];
	unsigned udp = gtpu_find_udp(ip, m->data_len, m->pkt_len, &length), size;

	if (udp == 0) {
		drop_now(m, reason);
		return;
	}
	gtpu_parse(ip + udp + UDP_HEADER, m->data_len - udp - UDP_HEADER, length, &packet);
	gtpu_ends_of(ip, &ends);
	size = type == GTPU_ERROR_INDICATION ? gtpu_error_indication(elements, packet.teid, &ends)
					     : gtpu_supported_extensions(elements);
	drop_now(m, reason);
	gtpu_send(vrf, &ends, type, 0, elements, size);
}

void
gtpu_answer_unknown_teid(struct rte_mbuf *m)
{
	answer(m, GTPU_ERROR_INDICATION, &drop_unknown_teid);
}

static void
report_extension(struct rte_mbuf *m)
{
	answer(m, GTPU_SUPPORTED_EXTENSIONS, &drop_extension);
}

PUNT(punt_teid, "gtpu-unknown-teid", PUNTS_A_SECOND, gtpu_answer_unknown_teid)
PUNT(punt_extension, "gtpu-unknown-extension", PUNTS_A_SECOND, report_extension)

// Without a token the packet is dropped with the reason of its fault, not with that of the limit.
static bool
may_answer(struct rte_mbuf *m)
{
	static struct fair_rates answers;

	return fair_spend(&answers, ANSWERS_A_SECOND, ANSWERS_EACH, m);
}

uint16_t
gtpu_report_unknown_teid(struct rte_mbuf *m, struct packet *p)
{
	return may_answer(m) ? packet_punt(p, &punt_teid) : packet_drop(p, &drop_unknown_teid);
}

uint16_t
gtpu_drop_unknown_teid(struct packet *p)
{
	return packet_drop(p, &drop_unknown_teid);
}

uint16_t
gtpu_report_unknown_extension(struct rte_mbuf *m, struct packet *p)
{
	struct gtpu_ends ends;

	gtpu_ends_of(rte_pktmbuf_mtod(m, const uint8_t *), &ends);
	return gtpu_path_known(p->vrf, &ends) && may_answer(m) ? packet_punt(p, &punt_extension)
							       : packet_drop(p, &drop_extension);
}
