// SPDX-License-Identifier: Apache-2.0
// Reassembly, on the main thread: few packets for us come in fragments, and those must not cost the workers anything.
// Bounded in packets, in fragments of each and of all, and in time. Without room, the session or interface that holds
// the most loses a packet: the oldest of one of its hosts that hold the most. So a flood of one host, from any number of addresses, does
// not cost sessions and other interfaces their packets; a flood from one address does not cost the other hosts of its interface theirs.
#include "ip/reassembly.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <time.h>

#include "core/drop.h"
#include "core/fair.h"
#include "core/loop.h"
#include "core/punt.h"
#include "fib/hop.h"
#include "inet/header.h"
#include "ip/check.h"
#include "ip/ecn.h"
#include "ip/extensions.h"
#include "ip/icmp.h"
#include "ip/local.h"
#include "ip/nodes.h"
#include "ip/reassembly_owner.h"

INJECTED(icmp_error_node)
INJECTED(ip_local_node)

enum {
	RATE = 50000, // fragments a second
	DATAGRAMS = 1024,
	HELD_FRAGMENTS_MAX = 4096, // held in all
	BUCKETS = 1024,
	SWEEP = 500 * 1000 * 1000, // nanoseconds
};

static const uint64_t LIFETIME = UINT64_C(30) * 1000000000;

DROP(drop_invalid, "fragment-not-whole",
	"A fragment for us that contradicts the others or overlaps them, of a packet in which one did, or that no "
	"packet can have.")
DROP(drop_ecn, "fragment-ecn",
	"Fragments for us of which one met congestion and another says that its ends do not know ECN (RFC 3168 section "
	"5.3).")
DROP(drop_again, "fragment-again", "A fragment for us that had come already.")
DROP(drop_many, "fragment-too-many", "A packet for us in more fragments than we take.")
DROP(drop_time, "reassembly-timeout", "Fragments for us whose others did not come in time.")
DROP(drop_room, "reassembly-full",
	"Fragments for us that gave way to newer ones, of a host with the most on the session or interface with the "
	"most.")
DROP(drop_nd, "nd-fragment", "A neighbour discovery message in fragments (RFC 6980).")

struct key {
	uint8_t source[16], destination[16];
	uint32_t id;
	uint32_t session; // NO_SESSION: not from a subscriber. Fragments of two senders' sides are never joined.
	uint16_t vrf;
	uint8_t protocol; // IPv4 alone
	uint8_t family;
	uint32_t zero;
};

struct datagram {
	struct key key;
	uint64_t expires;
	uint32_t bucket;
	uint8_t next_header; // IPv6: of the first fragment
	bool refused;        // its fragments are dropped, and so are later ones (RFC 5722)
	struct pieces pieces;
	struct reassembly_sender *sender;
	TAILQ_ENTRY(datagram) by_age;
	TAILQ_ENTRY(datagram) of_sender;
	LIST_ENTRY(datagram) by_key;
};

static struct datagram *datagrams;
static TAILQ_HEAD(, datagram) oldest, unused;
static LIST_HEAD(, datagram) buckets[BUCKETS];
static struct reassembly_owners owners;
static uint64_t secret;

static uint64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

enum pieces_result
pieces_add(struct pieces *p, uint32_t offset, uint32_t length, bool more, void *what)
{
	uint32_t end = offset + length;
	unsigned at = p->count;

	if (length == 0 || end > PAYLOAD_MAX || (more && length % 8 != 0) ||
		(offset == 0 && more && length < FIRST_PIECE_MIN))
		return PIECES_IMPOSSIBLE;
	while (at > 0 && p->list[at - 1].start >= offset)
		at--;
	// A duplicate of a stored fragment is ignored (RFC 8200 section 4.5); any other overlap is an attack (RFC
	// 5722).
	if (at < p->count && p->list[at].start == offset && p->list[at].end == end &&
		(more ? p->total != end : p->total == end))
		return PIECES_AGAIN;
	if ((at > 0 && p->list[at - 1].end > offset) || (at < p->count && p->list[at].start < end))
		return PIECES_IMPOSSIBLE;
	if (more ? p->total != 0 && end >= p->total : p->total != 0 || at < p->count)
		return PIECES_IMPOSSIBLE;
	if (p->count == PIECES_MAX)
		return PIECES_TOO_MANY;
	memmove(&p->list[at + 1], &p->list[at], (p->count - at) * sizeof(p->list[0]));
	p->list[at] = (struct piece){offset, end, what};
	p->count++;
	if (!more)
		p->total = end;
	if (p->total == 0 || p->list[0].start != 0)
		return PIECES_MORE;
	for (unsigned i = 1; i < p->count; i++)
		if (p->list[i].start != p->list[i - 1].end)
			return PIECES_MORE;
	return PIECES_WHOLE;
}

static uint32_t
bucket_of(const struct key *key)
{
	uint64_t hash = secret, word;

	for (size_t i = 0; i + sizeof(word) <= sizeof(*key); i += sizeof(word)) {
		memcpy(&word, (const uint8_t *)key + i, sizeof(word));
		hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
		hash ^= hash >> 32;
	}
	return (uint32_t)(hash % BUCKETS);
}
static_assert(sizeof(struct key) % sizeof(uint64_t) == 0, "a key is whole words");

static struct datagram *
find(const struct key *key, uint32_t bucket)
{
	struct datagram *d;

	LIST_FOREACH(d, &buckets[bucket], by_key)
	if (memcmp(&d->key, key, sizeof(*key)) == 0)
		return d;
	return NULL;
}

// The packet has no pieces now: they were sent on or dropped.
static void
without_pieces(struct datagram *d)
{
	reassembly_hold(&owners, d->sender, REASSEMBLY_FRAGMENTS, -(int)d->pieces.count);
	d->pieces.count = 0;
}

// Forget the packet; its pieces have another owner by now.
static void
release(struct datagram *d)
{
	without_pieces(d);
	TAILQ_REMOVE(&d->sender->datagrams, d, of_sender);
	reassembly_hold(&owners, d->sender, REASSEMBLY_DATAGRAMS, -1);
	LIST_REMOVE(d, by_key);
	TAILQ_REMOVE(&oldest, d, by_age);
	TAILQ_INSERT_HEAD(&unused, d, by_age);
}

static void
give_up(struct datagram *d, const struct drop *reason)
{
	for (unsigned i = 0; i < d->pieces.count; i++)
		drop_now(d->pieces.list[i].what, reason);
	release(d);
}

// RFC 5722: drop all fragments of the packet, and those that are still to come.
static void
refuse(struct datagram *d, const struct drop *reason)
{
	for (unsigned i = 0; i < d->pieces.count; i++)
		drop_now(d->pieces.list[i].what, reason);
	without_pieces(d);
	d->refused = true;
}

// RFC 1122 section 3.3.2, RFC 8200 section 4.5: the sender of the first fragment gets the ICMP error "reassembly time exceeded".
static void
expire(struct datagram *d)
{
	struct rte_mbuf *first = d->pieces.list[0].what;
	struct packet *p;

	if (d->pieces.count == 0) {
		release(d);
		return;
	}
	p = packet_of(first);
	for (unsigned i = 1; i < d->pieces.count; i++)
		drop_now(d->pieces.list[i].what, &drop_time);
	if (d->pieces.list[0].start == 0) {
		packet_icmp_error(p, p->family == 4 ? ICMP4_TIME_EXCEEDED : ICMP6_TIME_EXCEEDED, 1, 0, &drop_time);
		inject(first, &icmp_error_node);
	} else {
		drop_now(first, &drop_time);
	}
	release(d);
}

// The sender's oldest packet that makes room, but not `but`.
static struct datagram *
oldest_of(const struct reassembly_sender *sender, enum reassembly_held what, const struct datagram *but)
{
	struct datagram *d = TAILQ_FIRST(&sender->datagrams);

	// A packet of no fragments makes no room for a fragment.
	while (d && (d == but || (what == REASSEMBLY_FRAGMENTS && d->pieces.count == 0)))
		d = TAILQ_NEXT(d, of_sender);
	return d;
}

// Make room for one more: a sender of the largest owner drops its oldest packet, except `but`. False: there is none.
static bool
make_room(enum reassembly_held what, const struct datagram *but)
{
	struct reassembly_sender *most = reassembly_largest(&owners, what, NULL);
	struct datagram *d = most ? oldest_of(most, what, but) : NULL;

	if (most && !d) {
		most = reassembly_largest(&owners, what, most);
		d = most ? oldest_of(most, what, but) : NULL;
	}
	if (!d)
		return false;
	give_up(d, &drop_room);
	return true;
}

static struct datagram *
begin(const struct key *key, uint32_t bucket, const struct fair_source *source)
{
	struct datagram *d;

	if (TAILQ_EMPTY(&unused) && !make_room(REASSEMBLY_DATAGRAMS, NULL))
		return NULL;
	d = TAILQ_FIRST(&unused);
	d->sender = reassembly_sender(&owners, source->where, fair_mix(fair_mix(source->where ^ secret) ^ source->who));
	if (!d->sender)
		return NULL;
	TAILQ_INSERT_TAIL(&d->sender->datagrams, d, of_sender);
	reassembly_hold(&owners, d->sender, REASSEMBLY_DATAGRAMS, 1);
	TAILQ_REMOVE(&unused, d, by_age);
	TAILQ_INSERT_TAIL(&oldest, d, by_age);
	LIST_INSERT_HEAD(&buckets[bucket], d, by_key);
	d->key = *key;
	d->expires = now() + LIFETIME;
	d->next_header = PROTOCOL_NONE;
	d->refused = false;
	d->pieces.count = 0;
	d->pieces.total = 0;
	return d;
}

// RFC 3168 section 5.3: a mark on one fragment is the packet's. False: another one is marked not ECN-capable.
static bool
join_ecn(struct datagram *d)
{
	struct rte_mbuf *whole = d->pieces.list[0].what;
	uint8_t *ip = rte_pktmbuf_mtod(whole, uint8_t *), family = packet_of(whole)->family;
	unsigned seen = 0;

	for (unsigned i = 0; i < d->pieces.count; i++) {
		const struct rte_mbuf *piece = d->pieces.list[i].what;

		seen |= 1u << (ip_traffic_class(rte_pktmbuf_mtod(piece, const uint8_t *), family) & ECN_MASK);
	}
	if (!(seen & 1u << ECN_CE))
		return true;
	if (seen & 1u << ECN_NOT_ECT)
		return false;
	ecn_write(ip, family, ECN_CE);
	return true;
}

// Put the pieces behind one another, with one IP header in front.
static const struct packet_flag *check_flag;
static const struct node *check_node;

void
ip_local_check_whole(const struct packet_flag *flag, const struct node *node)
{
	check_flag = flag;
	check_node = node;
}

static void
deliver(struct rte_mbuf *whole, uint16_t flags)
{
	struct packet *p = packet_of(whole);

	if (!check_node || !(flags & check_flag->mask)) {
		inject(whole, &ip_local_node);
		return;
	}
	p->flags &= (uint16_t)~check_flag->mask;
	p->chain = ip_local_node.id;
	inject(whole, check_node);
}

static void
finish(struct datagram *d)
{
	struct rte_mbuf *whole = d->pieces.list[0].what;
	struct packet *p = packet_of(whole);
	uint32_t total = d->pieces.total;
	uint16_t flags = p->flags;
	unsigned joined = 1;

	if (!join_ecn(d)) {
		give_up(d, &drop_ecn);
		return;
	}
	while (joined < d->pieces.count) {
		struct rte_mbuf *piece = d->pieces.list[joined].what;
		struct packet *q = packet_of(piece);

		flags |= q->flags;
		// `detail` has the length of the headers in front of each piece.
		if (q->detail > piece->data_len || rte_pktmbuf_adj(piece, (uint16_t)q->detail) == NULL ||
			rte_pktmbuf_chain(whole, piece) != 0)
			break;
		joined++;
	}
	if (joined < d->pieces.count) {
		for (; joined < d->pieces.count; joined++)
			drop_now(d->pieces.list[joined].what, &drop_many);
		drop_now(whole, &drop_many);
		release(d);
		return;
	}
	if (p->family == 4) {
		struct ip4_header *ip = rte_pktmbuf_mtod(whole, struct ip4_header *);

		ip->fragment = 0;
		ip->total_length = rte_cpu_to_be_16((uint16_t)(total + ip4_header_length(ip)));
		ip->checksum = ip4_checksum(ip);
	} else {
		// Remove the fragment header: move the bytes before it.
		struct ip6_header *ip = rte_pktmbuf_mtod(whole, struct ip6_header *);
		uint8_t *frame = (uint8_t *)ip - p->l2_length;

		ip->next_header = d->next_header;
		ip->payload_length = rte_cpu_to_be_16((uint16_t)total);
		memmove(frame + sizeof(struct ip6_fragment), frame, p->l2_length + sizeof(*ip));
		packet_advance(whole, sizeof(struct ip6_fragment));
	}
	p->detail = 0;
	packet_forget_checksums(whole);
	release(d);
	if (p->family == 6 && ip6_is_neighbor_discovery(rte_pktmbuf_mtod(whole, const uint8_t *), whole->data_len))
		drop_now(whole, &drop_nd);
	else
		deliver(whole, flags);
}

struct fragment_place {
	uint32_t offset, length;
	unsigned headers;
	bool more;
	uint8_t next_header;
};

static bool
place4(struct rte_mbuf *m, struct key *key, struct fragment_place *f)
{
	const struct ip4_header *ip = rte_pktmbuf_mtod(m, const struct ip4_header *);
	unsigned fragment = rte_be_to_cpu_16(ip->fragment), total = rte_be_to_cpu_16(ip->total_length);

	f->headers = ip4_header_length(ip);
	if (m->data_len < f->headers || total <= f->headers || total > m->pkt_len)
		return false;
	f->offset = (fragment & IP4_OFFSET) * 8;
	f->length = total - f->headers;
	f->more = fragment & IP4_MF;
	if (f->more && f->length % 8 != 0)
		return false;
	// A piece that begins within the TCP header hides its flags (RFC 1858 section 4).
	if (f->offset == 8 && ip->protocol == PROTOCOL_TCP)
		return false;
	// The whole must fit with its header.
	if (f->offset + f->length + f->headers > PAYLOAD_MAX)
		return false;
	memcpy(key->source, &ip->source, 4);
	memcpy(key->destination, &ip->destination, 4);
	key->id = ip->id;
	key->protocol = ip->protocol;
	ip_trim(m, total);
	return true;
}

static bool
place6(struct rte_mbuf *m, struct key *key, struct fragment_place *f)
{
	const struct ip6_header *ip = rte_pktmbuf_mtod(m, const struct ip6_header *);
	const struct ip6_fragment *header = (const struct ip6_fragment *)(ip + 1);
	uint32_t payload = rte_be_to_cpu_16(ip->payload_length);

	f->headers = sizeof(*ip) + sizeof(*header);
	if (m->data_len < f->headers || payload <= sizeof(*header) || sizeof(*ip) + payload > m->pkt_len)
		return false;
	f->offset = rte_be_to_cpu_16(header->offset) & 0xfff8;
	f->more = rte_be_to_cpu_16(header->offset) & IP6_MORE;
	f->length = payload - (uint32_t)sizeof(*header);
	f->next_header = header->next_header;
	memcpy(key->source, ip->source, 16);
	memcpy(key->destination, ip->destination, 16);
	key->id = header->id;
	ip_trim(m, sizeof(*ip) + payload);
	return true;
}

static void
take(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	struct key key;
	struct fragment_place f = {0};
	struct fair_source source;
	struct datagram *d;
	uint32_t bucket;

	memset(&key, 0, sizeof(key));
	key.session = p->session;
	key.vrf = p->vrf;
	key.family = p->family;
	if (!(p->family == 4 ? place4(m, &key, &f) : place6(m, &key, &f))) {
		drop_now(m, &drop_invalid);
		return;
	}
	bucket = bucket_of(&key);
	d = find(&key, bucket);
	if (d && d->refused) {
		drop_now(m, &drop_invalid);
		return;
	}
	if ((owners.held[REASSEMBLY_FRAGMENTS] >= HELD_FRAGMENTS_MAX || !packet_may_wait()) &&
		!make_room(REASSEMBLY_FRAGMENTS, d)) {
		drop_now(m, &drop_room);
		return;
	}
	if (!d) {
		fair_source_of(m, &source);
		d = begin(&key, bucket, &source);
	}
	if (!d) {
		drop_now(m, &drop_room);
		return;
	}
	p->detail = f.headers;
	switch (pieces_add(&d->pieces, f.offset, f.length, f.more, m)) {
	case PIECES_MORE:
		reassembly_hold(&owners, d->sender, REASSEMBLY_FRAGMENTS, 1);
		if (f.offset == 0)
			d->next_header = f.next_header;
		break;
	case PIECES_WHOLE:
		reassembly_hold(&owners, d->sender, REASSEMBLY_FRAGMENTS, 1);
		if (f.offset == 0)
			d->next_header = f.next_header;
		finish(d);
		break;
	case PIECES_AGAIN:
		drop_now(m, &drop_again);
		break;
	case PIECES_IMPOSSIBLE:
		drop_now(m, &drop_invalid);
		refuse(d, &drop_invalid);
		break;
	case PIECES_TOO_MANY:
		drop_now(m, &drop_many);
		refuse(d, &drop_many);
		break;
	}
}

PUNT(punt_fragment, "reassembly", RATE, take)

uint16_t
reassembly_punt(struct packet *p)
{
	return packet_punt(p, &punt_fragment);
}

static void
sweep(void *argument)
{
	uint64_t time = now();
	struct datagram *d;

	while ((d = TAILQ_FIRST(&oldest)) && d->expires <= time)
		expire(d);
}

int
reassembly_start(void)
{
	static const uint32_t most[REASSEMBLY_KINDS] = {
		[REASSEMBLY_DATAGRAMS] = DATAGRAMS, [REASSEMBLY_FRAGMENTS] = HELD_FRAGMENTS_MAX};

	TAILQ_INIT(&oldest);
	TAILQ_INIT(&unused);
	datagrams = calloc(DATAGRAMS, sizeof(*datagrams));
	if (!datagrams || reassembly_owners_start(&owners, DATAGRAMS, most) || getentropy(&secret, sizeof(secret)))
		return -ENOMEM;
	for (unsigned i = 0; i < DATAGRAMS; i++)
		TAILQ_INSERT_TAIL(&unused, &datagrams[i], by_age);
	loop_every(SWEEP, sweep, NULL);
	return 0;
}
