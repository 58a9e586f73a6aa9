// SPDX-License-Identifier: Apache-2.0
// MSS clamping: the option in SYN segments, and the node that finds them.
#include "core/burst.h"
#include "session/mss.h"

#include <stdio.h>

#include "core/packet.h"
#include "inet/field.h"
#include "inet/header.h"
#include "session/session.h"
#include "session/step.h"

enum {
	TCP_HEADER = 20,
	TCP_OFFSET = 12, // where data offset, flags and checksum are
	TCP_FLAGS = 13,
	TCP_CHECKSUM = 16,
	TCP_SYN = 0x02,
	OPTION_END = 0,
	OPTION_NOP = 1,
	OPTION_MSS = 2,
	OPTION_MSS_LENGTH = 4,
	IP6_LARGER_BY = 20,
	EXTENSIONS = 4, // that are walked to find TCP behind IPv6
};

// Replace 16 bits that the checksum covers, `odd` bytes into one of its words (RFC 1624 equation 3).
static void
replace(uint8_t *at, uint16_t value, uint8_t *checksum, bool odd)
{
	uint16_t before = get16(at), after = value;
	uint32_t sum;

	put16(at, value);
	if (odd) {
		before = rte_bswap16(before);
		after = rte_bswap16(after);
	}
	sum = (uint32_t)(uint16_t)~get16(checksum) + (uint16_t)~before + after;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	put16(checksum, (uint16_t)~sum);
}

static bool
clamp_segment(uint8_t *tcp, size_t length, uint16_t mss)
{
	size_t end;

	if (length < TCP_HEADER || !(tcp[TCP_FLAGS] & TCP_SYN))
		return false;
	end = (size_t)(tcp[TCP_OFFSET] >> 4) * 4;
	if (end > length)
		end = length;
	for (size_t at = TCP_HEADER; at < end && tcp[at] != OPTION_END;) {
		if (tcp[at] == OPTION_NOP) {
			at++;
			continue;
		}
		if (end - at < 2 || tcp[at + 1] < 2 || tcp[at + 1] > end - at)
			return false;
		if (tcp[at] == OPTION_MSS && tcp[at + 1] == OPTION_MSS_LENGTH) {
			if (get16(tcp + at + 2) <= mss)
				return false;
			replace(tcp + at + 2, mss, tcp + TCP_CHECKSUM, at % 2 != 0);
			return true;
		}
		at += tcp[at + 1];
	}
	return false;
}

// Where TCP starts, or 0.
static size_t
find_tcp6(const uint8_t *packet, size_t length)
{
	uint8_t next = ((const struct ip6_header *)packet)->next_header;
	size_t at = sizeof(struct ip6_header);

	for (unsigned i = 0; next != PROTOCOL_TCP; i++) {
		bool fragment = next == PROTOCOL_FRAGMENT;

		if (i == EXTENSIONS || length < at + 8 ||
			(next != PROTOCOL_HOP_BY_HOP && next != PROTOCOL_ROUTING && !fragment &&
				next != PROTOCOL_DESTINATION_OPTIONS))
			return 0;
		if (fragment && (get16(packet + at + 2) & 0xfff8) != 0)
			return 0;
		next = packet[at];
		at += fragment ? 8 : ((size_t)packet[at + 1] + 1) * 8;
	}
	return at;
}

bool
mss_clamp(uint8_t *packet, size_t length, uint8_t family, uint16_t mss)
{
	const struct ip4_header *ip = (const struct ip4_header *)packet;
	size_t tcp;

	if (family == 4) {
		if (length < sizeof(*ip) || ip->protocol != PROTOCOL_TCP || (ip->fragment & RTE_BE16(IP4_OFFSET)) != 0)
			return false;
		tcp = ip4_header_length(ip);
	} else {
		if (length < sizeof(struct ip6_header))
			return false;
		tcp = find_tcp6(packet, length);
		if (tcp == 0)
			return false;
		mss = (uint16_t)(mss - IP6_LARGER_BY);
	}
	return tcp < length && clamp_segment(packet + tcp, length - tcp, mss);
}

static void
mss_clamp_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *);
		// Packets that cannot be TCP without extension headers are skipped early.
		uint8_t protocol = ip[p->family == 4 ? offsetof(struct ip4_header, protocol)
						     : offsetof(struct ip6_header, next_header)];

		if (protocol == PROTOCOL_TCP || (p->family == 6 && protocol != PROTOCOL_UDP))
			mss_clamp(ip, m->data_len, p->family, session_at(p->session)->mss);
		next[i] = packet_step(p);
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
mss_clamp_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, mss_clamp_burst);
}

static void
mss_clamp_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	snprintf(text, size, "session %s, segments of at most %u", session_name(p->session),
		session_at(p->session)->mss);
}

struct node mss_clamp_node = {
	.name = "mss-clamp", .process = mss_clamp_process, .describe = mss_clamp_describe, .steps = true};
NODE_REGISTER(mss_clamp_node)

// ---- The step of sessions with an MSS.

struct part {
	uint16_t mss; // 0: as it is
};

static int
need(const Sluice__V1__Session *spec, void *part, struct fault *f)
{
	((struct part *)part)->mss = spec->policy ? (uint16_t)spec->policy->mss : 0;
	return 0;
}

static const char *
field(const void *part, enum direction direction)
{
	return ((const struct part *)part)->mss ? "mss" : NULL;
}

static void
publish(uint32_t session, const void *part)
{
	const struct part *p = part;

	if (p->mss)
		__atomic_store_n(&session_at(session)->mss, p->mss, __ATOMIC_RELEASE);
}

static const char *const after[] = {"acl", "flow", "meter", NULL};
static struct session_step mss_step = {
	.order = {.name = "mss", .after = after},
	.node = {[UP] = &mss_clamp_node, [DOWN] = &mss_clamp_node},
	.size = sizeof(struct part),
	.need = need,
	.field = field,
	.publish = publish,
};
SESSION_STEP_REGISTER(mss_step)
