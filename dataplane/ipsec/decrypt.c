// SPDX-License-Identifier: Apache-2.0
// Packets out of tunnels: RFC 4303 section 3.4 (inbound processing), RFC 4301 section 5.2, RFC 6040 section 4.2 (ECN).
#include <stdio.h>

#include <rte_prefetch.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/fair.h"
#include "core/punt.h"
#include "ether/interface.h"
#include "inet/header.h"
#include "ip/age.h"
#include "ip/ecn.h"
#include "ip/icmp.h"
#include "ip/local.h"
#include "ip/point.h"
#include "ipsec/nodes.h"
#include "ipsec/policy.h"
#include "ipsec/room.h"
#include "ipsec/sa.h"
#include "ipsec/tunnel.h"
#include "session/mss.h"
#include "session/point.h"

DROP(drop_short, "esp-truncated", "An ESP packet that ends within its header, IV or ICV, or is in pieces.")
DROP(drop_spi, "esp-unknown-spi", "An ESP packet without a security association for its SPI.")
DROP(drop_peer, "esp-wrong-peer", "An ESP packet that is not between the ends of its security association.")
DROP(drop_replay, "esp-replay", "An ESP packet that was received before, or is older than the replay window.")
DROP(drop_length, "esp-length", "An ESP packet whose length its algorithm cannot have.")
DROP(drop_icv, "esp-icv", "An ESP packet whose integrity check value is wrong: it is forged or damaged.")
DROP(drop_padding, "esp-padding", "An ESP packet whose padding is not what its length says (RFC 4303 section 2.4).")
DROP(drop_next, "esp-next-header", "An ESP packet that carries neither IPv4 nor IPv6 in tunnel mode.")
DROP(drop_lifetime, "esp-lifetime-inbound", "An ESP packet of a security association that is behind a hard lifetime.")
DROP(drop_selector, "ipsec-selector-inbound",
	"A packet out of a tunnel that no selector of its tunnel or security association has.")
DROP(drop_interface, "ipsec-no-interface", "A packet out of a tunnel that neither an interface nor a session has.")
DROP(drop_destination, "ipsec-wrong-destination",
	"A packet out of a tunnel of a session for an address that is not one of the session's.")
DROP(drop_ttl, "ttl-expired-from-tunnel", "The TTL or hop limit of a packet out of a tunnel of a session was used up.")
DROP(drop_ecn, "esp-ecn-illegal",
	"A router marked a packet in a tunnel as having met congestion, which its ends do not understand (RFC 6040 "
	"section 4.2).")
DROP(drop_engine, "esp-engine-inbound", "The crypto engine could not decrypt a packet.")
DROP(drop_device, "esp-device-timeout-inbound",
	"The crypto device did not return a packet that it decrypts in time. It is given up, and other engines encrypt "
	"and "
	"decrypt.")
CONSUMED(consumed_dummy, "esp-dummy", "An ESP packet without a packet inside, which hides when there is traffic.")

enum { PUNTS_A_SECOND = 100, PREFETCH = 8 };

// IKE sends INVALID_SPI to the peer (RFC 7296 section 1.5).
static void
unknown_spi(struct rte_mbuf *m)
{
	drop_lost(&drop_spi);
	if (punt_watched(packet_of(m)))
		punt_to_watcher(m);
	else
		rte_pktmbuf_free(m);
}

PUNT(punt_spi, "esp-unknown-spi", PUNTS_A_SECOND, unknown_spi)

// The state of a packet between the step before the engine and the step behind it.
struct arrival {
	uint64_t sequence;
	uint32_t sa;
	uint16_t offset; // of the ESP header
	uint8_t class;   // outer traffic class
};

// Beyond the limits the packet is dropped with the reason of its fault, not with that of the limit.
static __rte_noinline uint16_t
refuse_spi(struct rte_mbuf *m, struct packet *p)
{
	static struct fair_rates punted;
	uint32_t rate = __atomic_load_n(&punt_spi.limits.rate, __ATOMIC_RELAXED);
	uint32_t each = __atomic_load_n(&punt_spi.limits.each, __ATOMIC_RELAXED);

	return fair_spend(&punted, rate, each, m) ? packet_punt(p, &punt_spi) : packet_drop(p, &drop_spi);
}

// The start of ESP in an IP packet for us. The nodes before have checked its lengths, except behind the IP header.
static inline unsigned
esp_offset(const uint8_t *ip, uint8_t family)
{
	const struct ip4_header *four = (const struct ip4_header *)ip;
	const struct ip6_header *six = (const struct ip6_header *)ip;

	if (family == 4)
		return ip4_header_length(four) + (four->protocol == PROTOCOL_UDP ? ESP_UDP_HEADER : 0);
	return (unsigned)sizeof(*six) + (six->next_header == PROTOCOL_UDP ? ESP_UDP_HEADER : 0);
}

static inline bool
between_ends(const struct ipsec_sa *sa, const uint8_t *ip, uint8_t family)
{
	if (unlikely(family != sa->family))
		return false;
	if (likely(family == 4)) {
		const struct ip4_header *h = (const struct ip4_header *)ip;
		uint32_t local, remote;

		memcpy(&local, sa->local, sizeof(local));
		memcpy(&remote, sa->remote, sizeof(remote));
		return h->destination == local && (h->source == remote || (sa->flags & SA_UDP));
	}
	const struct ip6_header *h = (const struct ip6_header *)ip;

	return memcmp(h->destination, sa->local, 16) == 0 &&
	       (memcmp(h->source, sa->remote, 16) == 0 || (sa->flags & SA_UDP));
}

enum { DECRYPT = UINT16_MAX };

// Fills in the operation for the engine and returns DECRYPT, or returns an edge.
static __rte_always_inline uint16_t
examine(struct rte_mbuf *m, struct packet *p, struct arrival *a, struct crypto_op *op)
{
	struct ipsec_sa *sa = ipsec_sa_at(a->sa);
	struct ipsec_sa_counters *c = ipsec_sa_counters_of(a->sa);
	uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *), *esp = ip + a->offset;
	uint32_t around = a->offset + ESP_HEADER + sa->iv_length + sa->icv_length, length;

	if (unlikely(!between_ends(sa, ip, p->family))) {
		c->other++;
		return packet_drop(p, &drop_peer);
	}
	if (unlikely(m->data_len < around + ESP_TRAILER)) {
		c->malformed++;
		return packet_drop(p, &drop_short);
	}
	length = m->data_len - around;
	if (unlikely(length & (sa->align - 1u))) {
		c->malformed++;
		return packet_drop(p, &drop_length);
	}
	a->sequence = esp_read_32(esp + 4);
	if (sa->flags & SA_ESN)
		a->sequence = replay_extend(
			__atomic_load_n(&sa->sequence, __ATOMIC_RELAXED), (uint32_t)a->sequence, sa->window);
	if (unlikely(!replay_may_be_new(
		    sa->words, sa->mask, sa->window, __atomic_load_n(&sa->sequence, __ATOMIC_RELAXED), a->sequence)) &&
		!(sa->flags & SA_NO_REPLAY_CHECK)) {
		c->replays++;
		return packet_drop(p, &drop_replay);
	}
	op->key = sa->key;
	op->iv = esp + ESP_HEADER;
	op->data = esp + ESP_HEADER + sa->iv_length;
	op->icv = op->data + length;
	op->aad = esp;
	op->packet = m;
	op->length = length;
	op->aad_length = (uint16_t)(sa->flags & SA_HMAC ? ESP_HEADER + sa->iv_length : ESP_HEADER);
	op->esn = sa->flags & SA_ESN;
	op->esn_high = rte_cpu_to_be_32((uint32_t)(a->sequence >> 32));
	return DECRYPT;
}

// A hard limit on bytes or packets. False: the SA ends.
static __rte_noinline bool
within_limits(struct ipsec_sa *sa, uint32_t bytes)
{
	if (__atomic_add_fetch(&sa->bytes, bytes, __ATOMIC_RELAXED) <= sa->hard_bytes &&
		__atomic_add_fetch(&sa->packets, 1, __ATOMIC_RELAXED) <= sa->hard_packets)
		return true;
	__atomic_or_fetch(&sa->events, SA_DEAD, __ATOMIC_RELAXED);
	return false;
}

static __rte_noinline bool
selected(const struct rte_mbuf *m, const struct ipsec_sa *sa, const struct ipsec_tunnel *t, uint8_t family)
{
	struct ipsec_flow flow;

	// The next node drops a packet that ends within its header.
	if (m->data_len < (family == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header)))
		return true;
	ipsec_flow_of(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, family, &flow);
	return ipsec_selectors_match(__atomic_load_n(&sa->selectors, __ATOMIC_ACQUIRE), &flow, false) &&
	       ipsec_selectors_match(__atomic_load_n(&t->selectors, __ATOMIC_ACQUIRE), &flow, false);
}

static inline bool
header_is_whole(const uint8_t *ip, uint32_t length, uint8_t family)
{
	if (family == 6)
		return length >= sizeof(struct ip6_header);
	return length >= sizeof(struct ip4_header) && (ip[0] & 0xf) >= 5 && length >= (ip[0] & 0xfu) * 4;
}

// The peer is behind a translator that gave it another address or port: the newest authenticated packet has the
// present ones.
static __rte_noinline void
note_move(struct ipsec_sa *sa, const uint8_t *ip, const struct arrival *a)
{
	uint8_t source[16] = {0};
	uint16_t port;

	if (a->sequence != __atomic_load_n(&sa->sequence, __ATOMIC_RELAXED) ||
		__atomic_load_n(&sa->events, __ATOMIC_ACQUIRE) & SA_MOVING ||
		__atomic_fetch_or(&sa->events, SA_MOVING, __ATOMIC_ACQUIRE) & SA_MOVING)
		return; // or another worker writes
	if (sa->family == 4)
		memcpy(source, ip + offsetof(struct ip4_header, source), 4);
	else
		memcpy(source, ip + offsetof(struct ip6_header, source), 16);
	memcpy(&port, ip + a->offset - ESP_UDP_HEADER, sizeof(port));
	memcpy(sa->moved, source, sizeof(source));
	sa->moved_port = port;
	__atomic_or_fetch(&sa->events, SA_MOVED, __ATOMIC_RELEASE);
}

static inline bool
has_moved(const struct ipsec_sa *sa, const uint8_t *ip, unsigned offset)
{
	uint8_t protocol =
		ip[sa->family == 4 ? offsetof(struct ip4_header, protocol) : offsetof(struct ip6_header, next_header)];
	uint16_t port;

	if (protocol != PROTOCOL_UDP)
		return false;
	memcpy(&port, ip + offset - ESP_UDP_HEADER, sizeof(port));
	if (port != sa->remote_port)
		return true;
	return sa->family == 4 ? memcmp(ip + offsetof(struct ip4_header, source), sa->remote, 4) != 0
			       : memcmp(ip + offsetof(struct ip6_header, source), sa->remote, 16) != 0;
}

// Out of an SA of a policy: the packet came in by the policy's interface. In transport mode its frame is still in front of it, for the port's
// twin.
static uint16_t
deliver_to_policy(struct rte_mbuf *m, struct packet *p, const struct ipsec_tunnel *t, uint8_t family)
{
	packet_forget_checksums(m);
	p->session = NO_SESSION;
	p->interface = t->policy_of;
	p->hop = t->policy_hop;
	p->vrf = interface_at(t->policy_of)->vrf;
	p->direction = UP;
	p->flags = 0;
	p->counted = 0;
	p->chain = ipsec_check_chains[family == 6];
	return family == 4 ? ip4_input_node.id : ip6_input_node.id;
}

// Transport mode: the frame and the IP header move up to the payload of ESP. `length` bytes of it, without padding.
static __rte_noinline uint16_t
deliver_transport(struct rte_mbuf *m, struct packet *p, const struct arrival *a, const struct ipsec_sa *sa,
	uint8_t *inner, uint32_t length, uint8_t next)
{
	struct ipsec_sa_counters *c = ipsec_sa_counters_of(a->sa);
	const struct ipsec_tunnel *t = ipsec_tunnel_at(sa->tunnel);
	uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *), family = p->family;
	unsigned header = family == 4 ? ip4_header_length((const struct ip4_header *)ip) : sizeof(struct ip6_header);
	uint32_t total = header + length;

	memmove(inner - header - p->l2_length, ip - p->l2_length, p->l2_length + header);
	ip = inner - header;
	m->data_off = (uint16_t)(ip - (uint8_t *)m->buf_addr);
	m->data_len = (uint16_t)total;
	m->pkt_len = total;
	if (family == 4) {
		struct ip4_header *h = (struct ip4_header *)ip;

		h->protocol = next;
		h->total_length = rte_cpu_to_be_16((uint16_t)total);
		h->checksum = 0;
		h->checksum = (uint16_t)~checksum_fold(checksum_add(0, ip, header));
	} else {
		((struct ip6_header *)ip)->next_header = next;
		((struct ip6_header *)ip)->payload_length = rte_cpu_to_be_16((uint16_t)(total - header));
	}
	if (sa->selectors && !selected(m, sa, t, family)) {
		c->wrong_selector++;
		return packet_drop(p, &drop_selector);
	}
	c->packets++;
	c->bytes += length;
	return deliver_to_policy(m, p, t, family);
}

// Out of a tunnel that is not an interface.
static __rte_noinline uint16_t
deliver_to_session(struct rte_mbuf *m, struct packet *p, const struct ipsec_tunnel *t, uint8_t family)
{
	uint32_t user = __atomic_load_n(&t->access_of, __ATOMIC_ACQUIRE),
		 subscriber = __atomic_load_n(&t->core_of, __ATOMIC_ACQUIRE);

	if (t->policy_of != NO_INTERFACE)
		return deliver_to_policy(m, p, t, family);
	if (user != NO_SESSION)
		return session_input(m, p, user);
	if (subscriber == NO_SESSION)
		return packet_drop(p, &drop_interface);
	packet_forget_checksums(m);
	p->session = subscriber;
	p->direction = DOWN;
	p->interface = NO_INTERFACE;
	p->hop = NO_HOP;
	p->flags = 0;
	p->counted = 0;
	p->vrf = session_at(subscriber)->vrf;
	p->chain = ipsec_core_chain;
	return family == 4 ? ip4_input_node.id : ip6_input_node.id;
}

// The last look: the ICV was right.
static __rte_always_inline uint16_t
deliver(struct rte_mbuf *m, struct packet *p, const struct arrival *a, const struct crypto_op *op, bool shared)
{
	struct ipsec_sa *sa = ipsec_sa_at(a->sa);
	struct ipsec_sa_counters *c = ipsec_sa_counters_of(a->sa);
	const struct ipsec_tunnel *t = ipsec_tunnel_at(sa->tunnel);
	uint8_t *inner = op->data;
	uint32_t length = op->length - ESP_TRAILER, pad = inner[length], interface;
	uint8_t next = inner[length + 1], family = next == NEXT_IP4 ? 4 : 6;
	uint16_t taker;
	bool is_new = replay_take(sa->words, sa->mask, sa->window, &sa->sequence, a->sequence, shared);

	if (unlikely(!is_new) && !(sa->flags & SA_NO_REPLAY_CHECK)) {
		c->replays++;
		return packet_drop(p, &drop_replay);
	}
	if (unlikely(pad > length || memcmp(inner + length - pad, esp_padding, pad) != 0)) {
		c->malformed++;
		return packet_drop(p, &drop_padding);
	}
	length -= pad;
	if (unlikely(sa->flags & SA_UDP) && is_new &&
		unlikely(has_moved(sa, rte_pktmbuf_mtod(m, const uint8_t *), a->offset)))
		note_move(sa, rte_pktmbuf_mtod(m, const uint8_t *), a);
	if (unlikely(sa->flags & SA_TRANSPORT) && next != NEXT_DUMMY) {
		if (sa->flags & SA_LIMITED && !within_limits(sa, length)) {
			c->over_limit++;
			return packet_drop(p, &drop_lifetime);
		}
		return deliver_transport(m, p, a, sa, inner, length, next);
	}
	if (unlikely((next != NEXT_IP4 && next != NEXT_IP6) || length == 0 || inner[0] >> 4 != family)) {
		if (next == NEXT_DUMMY)
			return packet_drop(p, &consumed_dummy);
		c->malformed++;
		return packet_drop(p, &drop_next);
	}
	m->data_off = (uint16_t)(inner - (uint8_t *)m->buf_addr);
	m->data_len = (uint16_t)length;
	m->pkt_len = length;
	p->l2_length = 0;
	if (unlikely(sa->flags & SA_LIMITED) && !within_limits(sa, length)) {
		c->over_limit++;
		return packet_drop(p, &drop_lifetime);
	}
	if (unlikely(sa->selectors || t->selectors) && !selected(m, sa, t, family)) {
		c->wrong_selector++;
		return packet_drop(p, &drop_selector);
	}
	if (unlikely(ecn_matters(a->class)) && header_is_whole(inner, length, family) &&
		!ecn_carry_inwards(inner, family, a->class)) {
		c->other++;
		return packet_drop(p, &drop_ecn);
	}
	taker = __atomic_load_n(&t->taker, __ATOMIC_ACQUIRE);
	if (taker) {
		c->packets++;
		c->bytes += length;
		p->detail = t->taken;
		return taker;
	}
	c->packets++;
	c->bytes += length;
	if (unlikely(t->mss) && header_is_whole(inner, length, family))
		mss_clamp(inner, length, family, t->mss);
	interface = __atomic_load_n(&t->interface, __ATOMIC_ACQUIRE);
	if (unlikely(interface == NO_INTERFACE))
		return deliver_to_session(m, p, t, family);
	return interface_input(m, p, interface);
}

// The memory of the packet's SA and tunnel that deliver() reads; examine() has touched both.
static inline void
deliver_prefetch(uint32_t index)
{
	uint32_t interface = __atomic_load_n(&ipsec_tunnel_at(ipsec_sa_at(index)->tunnel)->interface, __ATOMIC_RELAXED);

	rte_prefetch0(ipsec_sa_counters_of(index));
	if (likely(interface != NO_INTERFACE))
		interface_input_prefetch(interface);
}

static __rte_always_inline void
decrypt_part(void **packets, uint16_t *next, uint16_t count, bool shared)
{
	struct esp_room *room = &esp_rooms[worker_self()->index];
	struct arrival arrivals[ESP_PART];
	uint64_t keys[ESP_PART];
	uint32_t found[ESP_PART];
	uint8_t at[ESP_PART];
	unsigned works = 0;

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
		unsigned offset = esp_offset(ip, p->family);
		uint32_t spi = 0;

		if (unlikely(m->nb_segs > 1) && rte_pktmbuf_linearize(m) == 0)
			ip = rte_pktmbuf_mtod(m, const uint8_t *);
		if (likely(m->nb_segs == 1 && m->data_len >= offset + ESP_HEADER))
			memcpy(&spi, ip + offset, sizeof(spi));
		arrivals[i].offset = (uint16_t)offset;
		arrivals[i].class = ip_traffic_class(ip, p->family);
		keys[i] = spi ? ipsec_spi_key(p->vrf, spi) : 0;
	}
	map64_get_bulk(ipsec_spis, keys, found, count);
	for (uint16_t i = 0; i < count; i++) {
		arrivals[i].sa = found[i];
		if (likely(found[i] != MAP64_NONE)) {
			const struct ipsec_sa *sa = ipsec_sa_at(found[i]);

			rte_prefetch0(sa);
			rte_prefetch0(&sa->sequence);
			rte_prefetch0(sa->local);
		}
	}
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);

		if (unlikely(found[i] == MAP64_NONE)) {
			next[i] = keys[i] ? refuse_spi(m, p) : packet_drop(p, &drop_short);
			continue;
		}
		next[i] = examine(m, p, &arrivals[i], &room->ops[works]);
		if (likely(next[i] == DECRYPT)) {
			const struct ipsec_sa *sa = ipsec_sa_at(found[i]);

			rte_prefetch0(sa->key);
			rte_prefetch0(&sa->words[arrivals[i].sequence / REPLAY_BLOCK & sa->mask]);
			rte_prefetch0(ipsec_tunnel_at(sa->tunnel));
			at[works++] = (uint8_t)i;
		}
	}
	if (works)
		crypto_run(worker_self()->index, room->ops, works);
	for (unsigned w = 0; w < RTE_MIN(works, (unsigned)PREFETCH); w++)
		deliver_prefetch(found[at[w]]);
	for (unsigned w = 0; w < works; w++) {
		const struct crypto_op *op = &room->ops[w];
		uint16_t i = at[w];
		struct packet *p = packet_of(packets[i]);

		if (w + PREFETCH < works)
			deliver_prefetch(found[at[w + PREFETCH]]);
		if (likely(op->status == CRYPTO_OK)) {
			next[i] = deliver(packets[i], p, &arrivals[i], op, shared);
		} else if (op->status == CRYPTO_BAD_ICV) {
			ipsec_sa_counters_of(found[i])->bad_icv++;
			next[i] = packet_drop(p, &drop_icv);
		} else {
			ipsec_sa_counters_of(found[i])->other++;
			next[i] = packet_drop(p, op->status == CRYPTO_BAD_LENGTH    ? &drop_length
						 : op->status == CRYPTO_BAD_TIMEOUT ? &drop_device
										    : &drop_engine);
		}
	}
}

static void
decrypt_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (unsigned start = 0; start < count; start += ESP_PART) {
		uint16_t some = (uint16_t)RTE_MIN(count - start, (unsigned)ESP_PART);

		if (worker_count > 1)
			decrypt_part(packets + start, next + start, some, true);
		else
			decrypt_part(packets + start, next + start, some, false);
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
esp_decrypt(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, decrypt_burst);
}

static void
esp_decrypt_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	unsigned offset = length >= sizeof(struct ip6_header) || p->family == 4 ? esp_offset(data, p->family) : 0;
	uint32_t spi, sa;

	if (offset == 0 || length < offset + ESP_HEADER) {
		snprintf(text, size, "ESP, truncated");
		return;
	}
	memcpy(&spi, data + offset, sizeof(spi));
	sa = map64_get(ipsec_spis, ipsec_spi_key(p->vrf, spi));
	snprintf(text, size, "ESP, SPI %u, sequence number %u: %s", esp_read_32(data + offset),
		esp_read_32(data + offset + 4), sa == MAP64_NONE ? "no SA" : ipsec_sa_name(sa));
}

// ---- Out of a session's core.

// An address of the session, or one that several hosts share.
static inline bool
for_session(uint32_t session, const uint8_t *ip, uint8_t family)
{
	const uint8_t *to = ip + (family == 4 ? offsetof(struct ip4_header, destination)
					      : offsetof(struct ip6_header, destination));

	if (likely(session_holds(session, family, to)))
		return true;
	return family == 4 ? to[0] >= 224 : ip6_is_multicast(to) || ip6_is_link_local(to);
}

static void
core_input_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *);

		if (unlikely(!for_session(p->session, ip, p->family)))
			next[i] = packet_drop(p, &drop_destination);
		else if (unlikely(!ip_age(ip, p->family)))
			next[i] = packet_icmp_error(
				p, p->family == 4 ? ICMP4_TIME_EXCEEDED : ICMP6_TIME_EXCEEDED, 0, 0, &drop_ttl);
		else
			next[i] = packet_step(p);
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
esp_core_input(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, core_input_burst);
}

static void
esp_core_input_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	snprintf(text, size, "from the tunnel of session %s", session_name(p->session));
}

struct node esp_core_input_node = {.name = "esp-core-input",
	.process = esp_core_input,
	.describe = esp_core_input_describe,
	.edges = NODE_EDGES(&icmp_error_node),
	.steps = true};
NODE_REGISTER(esp_core_input_node)

struct node esp_decrypt_node = {.name = "esp-decrypt",
	.process = esp_decrypt,
	.describe = esp_decrypt_describe,
	.edges = NODE_EDGES(&ip4_input_node, &ip6_input_node, &punt_node)};
NODE_REGISTER(esp_decrypt_node)
