// SPDX-License-Identifier: Apache-2.0
// Frames as filters see them. Every length is checked against the packet's before bytes are read; at most two tags, one
// header behind an Ethernet type and one behind UDP are skipped.
#include "core/match.h"

#include <ctype.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>

#include "core/encapsulation.h"

enum {
	MACS = 2 * RTE_ETHER_ADDR_LEN,
	TAGS_MAX = 2,
	UDP = 17,
	UDP_HEADER = 8,
	HEADER_MAX = 256 // bytes of an encapsulation's header, extensions included
};

// A payload in the frame, and its Ethernet type.
struct layer {
	uint32_t offset;
	uint16_t type;
};

// The length of the word, or of the operator, that the text starts with: at least 1.
static size_t
word_length(const char *at)
{
	size_t n = 0;

	while (isalnum((unsigned char)at[n]) || strchr("_-.:", at[n] ? at[n] : ' '))
		n++;
	if (n == 0 && (memcmp(at, "&&", 2) == 0 || memcmp(at, "||", 2) == 0))
		return 2;
	return n ? n : 1;
}

static bool
is_word(const char *at, size_t length, const char *word)
{
	return strlen(word) == length && memcmp(at, word, length) == 0;
}

static bool
has_word(const char *filter, const char *word)
{
	for (size_t n; *filter; filter += n) {
		n = word_length(filter);
		if (is_word(filter, n, word))
			return true;
	}
	return false;
}

// Whether the filter is "not A" or "not A and not B": every term outside of parentheses is negated.
static bool
is_negated(const char *filter)
{
	bool at_term = true;
	unsigned depth = 0;

	for (size_t n; *filter; filter += n) {
		n = word_length(filter);
		if (isspace((unsigned char)*filter))
			continue;
		if (depth == 0 && (is_word(filter, n, "or") || is_word(filter, n, "||")))
			return false;
		if (at_term && !is_word(filter, n, "not") && !is_word(filter, n, "!"))
			return false;
		at_term = depth == 0 && (is_word(filter, n, "and") || is_word(filter, n, "&&"));
		if (*filter == '(')
			depth++;
		else if (*filter == ')' && depth > 0)
			depth--;
	}
	return !at_term;
}

void
match_words(struct match *match, const char *filter)
{
	static const char *const of_frames[] = {"ether", "link", "len", "greater", "less"};

	match->depth = MATCH_PACKET;
	match->negated = is_negated(filter);
	if (encapsulation_named(has_word, filter))
		match->depth = MATCH_UNTAGGED;
	if (has_word(filter, "vlan") || has_word(filter, "mpls"))
		match->depth = MATCH_FRAME;
	for (unsigned i = 0; i < RTE_DIM(of_frames); i++)
		match->frame_too |= has_word(filter, of_frames[i]);
}

// Whether the frame has these bytes, which may lie in several segments.
static bool
bytes_at(const struct rte_mbuf *m, uint32_t offset, void *bytes, uint32_t length)
{
	const void *found = rte_pktmbuf_read(m, offset, length, bytes);

	if (!found)
		return false;
	if (found != bytes)
		memcpy(bytes, found, length);
	return true;
}

static bool
number_at(const struct rte_mbuf *m, uint32_t offset, uint16_t *number)
{
	if (!bytes_at(m, offset, number, sizeof(*number)))
		return false;
	*number = rte_be_to_cpu_16(*number);
	return true;
}

static bool
is_tag(uint16_t type)
{
	return type == RTE_ETHER_TYPE_VLAN || type == RTE_ETHER_TYPE_QINQ || type == RTE_ETHER_TYPE_QINQ1;
}

// False: the frame ends before.
static bool
behind_tags(const struct rte_mbuf *m, struct layer *l)
{
	l->offset = RTE_ETHER_HDR_LEN;
	if (!number_at(m, MACS, &l->type))
		return false;
	for (unsigned i = 0; i < TAGS_MAX && is_tag(l->type); i++, l->offset += sizeof(struct rte_vlan_hdr))
		if (!number_at(m, l->offset + sizeof(uint16_t), &l->type))
			return false;
	return true;
}

// The first bytes from an offset on, at most HEADER_MAX; NULL: the packet ends before.
static const uint8_t *
header_at(const struct rte_mbuf *m, uint32_t offset, uint8_t room[HEADER_MAX], size_t *available)
{
	*available = offset < m->pkt_len ? RTE_MIN(m->pkt_len - offset, (uint32_t)HEADER_MAX) : 0;
	return *available ? rte_pktmbuf_read(m, offset, (uint32_t)*available, room) : NULL;
}

// The packet behind an encapsulation that follows an Ethernet type, if there is one.
static void
behind_ether(const struct rte_mbuf *m, struct layer *l)
{
	struct encapsulated found;
	uint8_t room[HEADER_MAX];
	size_t available;
	const uint8_t *bytes = header_at(m, l->offset, room, &available);

	if (!bytes || !encapsulation_read_ether(l->type, bytes, available, m->pkt_len - l->offset, &found) ||
		found.length == 0)
		return;
	l->offset += found.length;
	l->type = found.type;
}

// The UDP header of a packet that is not a fragment.
static bool
behind_ip(const struct rte_mbuf *m, struct layer *l)
{
	uint8_t h[40];

	if (l->type == RTE_ETHER_TYPE_IPV4) {
		if (!bytes_at(m, l->offset, h, 20) || h[0] >> 4 != 4 || (h[0] & 15) < 5 || h[9] != UDP ||
			(h[6] & 0x3f) != 0 || h[7] != 0)
			return false;
		l->offset += 4 * (h[0] & 15);
		return true;
	}
	if (l->type != RTE_ETHER_TYPE_IPV6 || !bytes_at(m, l->offset, h, 40) || h[0] >> 4 != 6 || h[6] != UDP)
		return false;
	l->offset += 40;
	return true;
}

// The packet, or the frame (type 0), in a tunnel above UDP.
static bool
behind_udp(const struct rte_mbuf *m, struct layer *l)
{
	struct encapsulated found;
	uint8_t room[HEADER_MAX];
	const uint8_t *bytes;
	size_t available;
	uint16_t port;

	if (!behind_ip(m, l) || !number_at(m, l->offset + sizeof(port), &port))
		return false;
	l->offset += UDP_HEADER;
	bytes = header_at(m, l->offset, room, &available);
	if (!bytes || !encapsulation_read_udp(port, bytes, available, m->pkt_len - l->offset, &found) ||
		found.length == 0)
		return false;
	l->offset += found.length;
	l->type = found.type;
	return true;
}

static bool
run(const struct match *match, const struct rte_mbuf *m)
{
	return (match->compiled ? match->compiled((void *)(uintptr_t)m)
				: rte_bpf_exec(match->program, (void *)(uintptr_t)m)) != 0;
}

// The mbuf's data from an offset on, which is within it. A filter reads these fields of an mbuf.
static void
from(struct rte_mbuf *rest, const struct rte_mbuf *m, uint32_t offset)
{
	uint32_t length = m->pkt_len - offset;

	while (offset >= m->data_len && m->next) {
		offset -= m->data_len;
		m = m->next;
	}
	*rest = *m;
	rest->data_off = (uint16_t)(m->data_off + offset);
	rest->data_len = (uint16_t)(m->data_len - offset);
	rest->pkt_len = length;
}

// Run the filter over the payload with the frame's addresses before it.
static bool
run_behind(const struct match *match, const struct rte_mbuf *m, const struct layer *l)
{
	uint8_t header[RTE_ETHER_HDR_LEN];
	struct rte_mbuf rest, frame = {.next = &rest};

	if (!bytes_at(m, 0, header, MACS) || l->offset > m->pkt_len)
		return false;
	header[MACS] = (uint8_t)(l->type >> 8);
	header[MACS + 1] = (uint8_t)l->type;
	from(&rest, m, l->offset);
	frame.buf_addr = header;
	frame.buf_len = sizeof(header);
	frame.data_len = sizeof(header);
	frame.pkt_len = (uint32_t)sizeof(header) + rest.pkt_len;
	frame.nb_segs = (uint16_t)(1 + rest.nb_segs);
	return run(match, &frame);
}

static bool
run_packet(const struct match *match, const struct rte_mbuf *m, struct layer *l)
{
	bool tagged = behind_tags(m, l) && l->offset > RTE_ETHER_HDR_LEN, found;

	if (match->depth == MATCH_UNTAGGED) {
		found = run(match, m);
		return found == match->negated && tagged ? run_behind(match, m, l) : found;
	}
	if (match->frame_too && run(match, m) != match->negated)
		return !match->negated;
	behind_ether(m, l);
	return l->offset > RTE_ETHER_HDR_LEN ? run_behind(match, m, l) : run(match, m);
}

bool
match_frame(const struct match *match, const struct rte_mbuf *m)
{
	struct rte_mbuf inside;
	struct layer l;
	bool found;

	if (!match->program)
		return true;
	if (match->depth == MATCH_FRAME)
		return run(match, m);
	found = run_packet(match, m, &l);
	if (found != match->negated || match->depth == MATCH_UNTAGGED || !behind_udp(m, &l))
		return found;
	if (l.type != 0)
		return run_behind(match, m, &l);
	from(&inside, m, l.offset);
	return run_packet(match, &inside, &l);
}
