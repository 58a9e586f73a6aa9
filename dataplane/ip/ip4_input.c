// Checks an IPv4 header from outside (RFC 1812 sections 5.2.2 and 5.3.7). In: the data at the header. Out: a step of the
// packet's chain, the data cut to the packet's length.
//
// A burst that has passed and is to be looked up next, all of it, is looked up here while its headers are at hand, unless
// somebody watches packets go from node to node.
#include "core/burst.h"
#include "core/drop.h"
#include "core/worker.h"
#include "ip/check.h"
#include "ip/describe.h"
#include "ip/header.h"
#include "ip/hop.h"
#include "ip/icmp.h"
#include "ip/look_up.h"

enum { OPTIONS_END, OPTIONS_NOP, OPTION_LSRR = 131, OPTION_SSRR = 137 };

DROP(drop_short, "ip4-truncated", "The frame ends before the IPv4 packet in it does, or within its header.")
DROP(drop_version, "ip4-version", "The packet's version is not 4 though its frame says IPv4.")
DROP(drop_header_length, "ip4-header-length",
	"The IPv4 header says that it is shorter than 20 bytes or longer than the packet.")
DROP(drop_checksum, "ip4-checksum", "The IPv4 header's checksum is wrong.")
DROP(drop_source, "ip4-martian-source", "The source is in 0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/4 or 240.0.0.0/4.")
DROP(drop_options, "ip4-bad-options", "The IPv4 header's options are malformed.")
DROP(drop_source_route, "ip4-source-route", "The packet has a source route option; they are not followed (RFC 7126).")

// 0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/3: not a single host outside. `source` as it lies.
static inline uint32_t
martian(uint32_t source)
{
	uint32_t first = source & 0xff;

	return (uint32_t)(first - 1 >= 223) | (uint32_t)(first == 127);
}

static const struct drop *
check_options(const uint8_t *header, unsigned length, unsigned *at)
{
	for (unsigned i = sizeof(struct ip4_header), size; i < length; i += size) {
		*at = i;
		if (header[i] == OPTIONS_END)
			return NULL;
		size = 1;
		if (header[i] == OPTIONS_NOP)
			continue;
		if (i + 1 >= length || header[i + 1] < 2 || i + header[i + 1] > length)
			return &drop_options;
		if (header[i] == OPTION_LSRR || header[i] == OPTION_SSRR)
			return &drop_source_route;
		size = header[i + 1];
	}
	return NULL;
}

const struct drop *
ip4_check(struct rte_mbuf *m, bool checksum_good, unsigned *option)
{
	const struct ip4_header *ip = rte_pktmbuf_mtod(m, const struct ip4_header *);
	unsigned header, total;

	*option = 0;
	if (m->data_len < sizeof(*ip))
		return &drop_short;
	if (ip->version_ihl >> 4 != 4)
		return &drop_version;
	header = ip4_header_length(ip);
	total = rte_be_to_cpu_16(ip->total_length);
	if (header < sizeof(*ip) || total < header)
		return &drop_header_length;
	if (header > m->data_len || total > m->pkt_len)
		return &drop_short;
	if (!checksum_good && checksum_fold(checksum_add(0, ip, header)) != 0xffff)
		return &drop_checksum;
	// A host that has no address yet has a right to broadcast (RFC 1812 section 4.2.2.11 (a)).
	if (martian(ip->source) && !(ip->source == 0 && ip->destination == UINT32_MAX))
		return &drop_source;
	return check_options((const uint8_t *)ip, header, option);
}

// All that is not an ordinary header of 20 bytes in one segment, whatever is wrong or right with it.
static uint16_t
examine(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	unsigned option;
	const struct drop *reason =
		ip4_check(m, (m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_GOOD, &option);

	p->family = 4;
	if (reason == &drop_options) {
		ip_trim(m, rte_be_to_cpu_16(rte_pktmbuf_mtod(m, struct ip4_header *)->total_length));
		return packet_icmp_error(p, ICMP4_PARAMETER, 0, (uint16_t)option, reason);
	}
	if (reason)
		return packet_drop(p, reason);
	ip_trim(m, rte_be_to_cpu_16(rte_pktmbuf_mtod(m, struct ip4_header *)->total_length));
	return packet_step(p);
}

// The words of a header without options add up to zero, that is 0xffff in one's complement. Adding a number to itself turned by
// half its width leaves the folded sum, carry included, in its upper half.
static inline bool
sum_is_right(const struct ip4_header *ip)
{
	unsigned long long a, b, sum;
	uint32_t c, half;
	bool carry;

	memcpy(&a, ip, 8);
	memcpy(&b, (const uint8_t *)ip + 8, 8);
	memcpy(&c, (const uint8_t *)ip + 16, 4);
	carry = __builtin_add_overflow(a, b, &sum);
	carry = __builtin_add_overflow(sum, (unsigned long long)c + carry, &sum);
	sum += carry;
	sum += sum << 32 | sum >> 32;
	half = (uint32_t)(sum >> 32);
	half += half << 16 | half >> 16;
	return half >= 0xffff0000;
}

static void
check(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	static const struct ip4_header nothing;
	union look_up_addresses addresses;
	uint16_t next[BURST], lookup = ip4_lookup_node.id, other = worker_self()->watched;

	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		unsigned length = m->data_len;
		// What is not there is not read.
		const struct ip4_header *ip =
			length >= sizeof(*ip) ? rte_pktmbuf_mtod(m, const struct ip4_header *) : &nothing;
		unsigned total = rte_be_to_cpu_16(ip->total_length);

		// A total length below 20 becomes a huge number here. With less than 20 bytes it is the version that is wrong.
		if (unlikely(ip->version_ihl != 0x45 || total - sizeof(*ip) > length - sizeof(*ip) || m->nb_segs != 1 ||
			     martian(ip->source) || !sum_is_right(ip))) {
			next[i] = examine(m);
			other = 1;
			continue;
		}
		// Ethernet pads short packets.
		m->data_len = (uint16_t)total;
		m->pkt_len = total;
		p->family = 4;
		addresses.four[i] = ip->destination;
		next[i] = packet_step(p);
		other |= next[i] ^ lookup;
	}
	if (likely(other == 0))
		ip4_look_up(graph, node, packets, &addresses, count);
	else
		node_dispatch(graph, node, packets, next, count);
}

static uint16_t
ip4_input(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, check);
}

struct node ip4_input_node = {.name = "ip4-input", .process = ip4_input, .describe = ip_describe};
NODE_REGISTER(ip4_input_node)
