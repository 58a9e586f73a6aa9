// SPDX-License-Identifier: Apache-2.0
// Events of SAs on the main thread: lifetimes, peers that moved, keepalives (RFC 3948 section 4). Workers only set bits.
#include "ipsec/sa_events.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "core/loop.h"
#include "core/punt.h"
#include "fib/hop.h"
#include "inet/header.h"
#include "ipsec.pb-c.h"
#include "ipsec/path_mtu.h"
#include "ipsec/sa.h"
#include "ipsec/tunnel.h"
#include "server/event.h"

INJECTED(ip4_lookup_node)
INJECTED(ip6_lookup_node)

enum {
	TICK = 100 * 1000 * 1000, // nanoseconds
	AT_ONCE = 8192,           // SAs that are looked at in a tick
	REPORTED_SOFT = 1 << 0,
	REPORTED_HARD = 1 << 1,
	REPORTED_EXHAUSTED = 1 << 2,
};

// By SA.
struct look {
	uint64_t serial;   // of the SA that the rest is about
	uint64_t sequence; // at the last look
	uint64_t quiet;    // since when that is the last one used
	uint64_t soft_bytes, soft_packets, keepalive;
	uint64_t learned;  // when the path MTU was; 0: it is the spec's
	uint16_t path_mtu; // the spec's
	uint8_t reported;
	bool again; // the spec has changed
};

static struct look *looks;

static const char *
text_of(uint8_t family, const uint8_t *address, char text[INET6_ADDRSTRLEN])
{
	const char *t = inet_ntop(family == 4 ? AF_INET : AF_INET6, address, text, INET6_ADDRSTRLEN);

	return t ? t : "";
}

static void
send_change(uint32_t index, const char *what, const uint8_t *address, uint16_t port)
{
	Sluice__V1__Event event = SLUICE__V1__EVENT__INIT;
	Sluice__V1__SecurityAssociationChange change = SLUICE__V1__SECURITY_ASSOCIATION_CHANGE__INIT;
	char text[INET6_ADDRSTRLEN];

	change.name = (char *)ipsec_sa_name(index);
	change.change = (char *)what;
	if (address) {
		change.remote_address = (char *)text_of(ipsec_sa_at(index)->family, address, text);
		change.remote_port = rte_be_to_cpu_16(port);
	}
	event.event_case = SLUICE__V1__EVENT__EVENT_SECURITY_ASSOCIATION;
	event.security_association = &change;
	event_send(&event);
}

void
ipsec_send_acquire(uint32_t tunnel, const struct ipsec_flow *flow)
{
	Sluice__V1__Event event = SLUICE__V1__EVENT__INIT;
	Sluice__V1__IpsecAcquire acquire = SLUICE__V1__IPSEC_ACQUIRE__INIT;
	const struct object *object = ipsec_tunnel_object(tunnel);
	char source[INET6_ADDRSTRLEN], destination[INET6_ADDRSTRLEN];

	if (!object)
		return;
	if (object->kind == &ipsec_tunnel_kind)
		acquire.tunnel = object->name;
	else
		acquire.policy = object->name;
	acquire.source = (char *)text_of(flow->family, flow->source, source);
	acquire.destination = (char *)text_of(flow->family, flow->destination, destination);
	acquire.protocol = flow->protocol;
	acquire.source_port = flow->source_port;
	acquire.destination_port = flow->destination_port;
	event.event_case = SLUICE__V1__EVENT__EVENT_IPSEC_ACQUIRE;
	event.ipsec_acquire = &acquire;
	event_send(&event);
}

// The SA of the other direction sends to where the peer is now.
static void
follow_peer(uint32_t index, const Sluice__V1__SecurityAssociation *spec)
{
	struct ipsec_sa *sa = ipsec_sa_at(index);
	const struct object *peer = object_find(&security_association_kind, spec->peer);
	uint8_t address[16];
	uint16_t port;

	memcpy(address, sa->moved, sizeof(address));
	port = (uint16_t)sa->moved_port;
	memcpy(sa->remote, address, sizeof(sa->remote));
	__atomic_store_n(&sa->remote_port, port, __ATOMIC_RELEASE);
	__atomic_and_fetch(&sa->events, ~(uint32_t)(SA_MOVED | SA_MOVING), __ATOMIC_RELEASE);
	if (peer) {
		uint32_t other = (uint32_t)(uintptr_t)peer->state;
		const struct ipsec_sa *out = ipsec_sa_at(other);

		if (out->flags & SA_OUTBOUND && out->flags & SA_UDP && out->family == sa->family)
			ipsec_sa_send_to(other, address, port);
	}
	send_change(index, "peer-moved", address, port);
}

// RFC 3948 section 2.3: one byte, so that the translator keeps its entry.
static void
send_keepalive(const struct ipsec_sa *sa)
{
	struct rte_mbuf *m = packet_new();
	unsigned ip = sa->family == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header),
		 total = ip + ESP_UDP_HEADER + 1;
	struct packet *p;
	uint8_t *at;

	if (!m)
		return;
	at = (uint8_t *)rte_pktmbuf_append(m, (uint16_t)total);
	if (!at) {
		rte_pktmbuf_free(m);
		return;
	}
	memcpy(at, sa->headers[sa->current] + ESP_FRONT - sa->front, ip + ESP_UDP_HEADER);
	at[total - 1] = ESP_KEEPALIVE;
	esp_write_16(at + ip + 4, ESP_UDP_HEADER + 1);
	if (sa->family == 4) {
		struct ip4_header *h = (struct ip4_header *)at;

		h->total_length = rte_cpu_to_be_16((uint16_t)total);
		h->checksum = ip4_checksum(h);
	} else {
		struct ip6_header *h = (struct ip6_header *)at;
		uint64_t sum = ip6_pseudo_sum(h->source, h->destination, ESP_UDP_HEADER + 1, PROTOCOL_UDP);
		uint16_t checksum = (uint16_t)~checksum_fold(checksum_add(sum, at + ip, ESP_UDP_HEADER + 1));

		h->payload_length = rte_cpu_to_be_16(ESP_UDP_HEADER + 1);
		checksum = checksum ? checksum : UINT16_MAX;
		memcpy(at + ip + 6, &checksum, sizeof(checksum));
	}
	p = packet_of(m);
	p->vrf = sa->vrf;
	p->family = sa->family;
	p->flags = PACKET_OURS;
	inject(m, sa->family == 4 ? &ip4_lookup_node : &ip6_lookup_node);
}

// Keys are in the unpacked spec.
static void
forget(Sluice__V1__SecurityAssociation *spec)
{
	explicit_bzero(spec->encryption_key, strlen(spec->encryption_key));
	explicit_bzero(spec->integrity_key, strlen(spec->integrity_key));
	sluice__v1__security_association__free_unpacked(spec, NULL);
}

static void
read_spec(struct look *l, const Sluice__V1__SecurityAssociation *spec)
{
	if (l->soft_bytes != spec->soft_bytes || l->soft_packets != spec->soft_packets)
		l->reported &= (uint8_t)~REPORTED_SOFT;
	l->again = false;
	l->path_mtu = (uint16_t)(spec->path_mtu ? spec->path_mtu : SA_PATH_MTU);
	l->soft_bytes = spec->soft_bytes;
	l->soft_packets = spec->soft_packets;
	l->keepalive = spec->udp ? spec->udp->keepalive : 0;
}

static void
look_at_lifetimes(uint32_t index, struct look *l, const struct ipsec_sa *sa, uint64_t sequence)
{
	uint32_t events = __atomic_load_n(&sa->events, __ATOMIC_ACQUIRE);
	uint64_t most = sa->flags & SA_ESN ? UINT64_MAX : UINT32_MAX;
	struct ipsec_sa_counters c;

	// A limit that ended the SA was raised.
	if (!(events & SA_DEAD))
		l->reported &= (uint8_t)~REPORTED_HARD;
	if (!(events & SA_EXHAUSTED))
		l->reported &= (uint8_t)~REPORTED_EXHAUSTED;
	if (events & SA_DEAD && !(l->reported & REPORTED_HARD)) {
		l->reported |= REPORTED_HARD;
		send_change(index, "hard-lifetime", NULL, 0);
	}
	if (events & SA_EXHAUSTED && !(l->reported & REPORTED_EXHAUSTED)) {
		l->reported |= REPORTED_EXHAUSTED;
		send_change(index, ipsec_sa_ends_by_packets(sa) ? "hard-lifetime" : "sequence-exhausted", NULL, 0);
	}
	if (l->reported & REPORTED_SOFT)
		return;
	if (sequence < most - most / 16) {
		if (!l->soft_bytes && !l->soft_packets)
			return;
		ipsec_sa_count(index, &c);
		if ((!l->soft_bytes || c.bytes < l->soft_bytes) && (!l->soft_packets || c.packets < l->soft_packets))
			return;
	}
	l->reported |= REPORTED_SOFT;
	send_change(index, "soft-lifetime", NULL, 0);
}

static void
look_at_path(uint32_t index, struct look *l, struct ipsec_sa *sa, uint64_t now)
{
	if (__atomic_load_n(&sa->events, __ATOMIC_ACQUIRE) & SA_PATH) {
		__atomic_and_fetch(&sa->events, ~(uint32_t)SA_PATH, __ATOMIC_RELEASE);
		l->learned = now;
	} else if (l->learned && now - l->learned > (uint64_t)PATH_MTU_SECONDS * 1000000000) {
		l->learned = 0;
		__atomic_store_n(&sa->path_mtu, l->path_mtu, __ATOMIC_RELAXED);
	} else {
		return;
	}
	ipsec_sa_path_changed(index);
}

static void
look_at(uint32_t index, uint64_t now)
{
	const struct object *object = ipsec_sa_object(index);
	struct ipsec_sa *sa = ipsec_sa_at(index);
	struct look *l = &looks[index];
	Sluice__V1__SecurityAssociation *spec = NULL;
	uint64_t sequence;
	bool moved;

	if (!object || !object->spec)
		return;
	moved = __atomic_load_n(&sa->events, __ATOMIC_ACQUIRE) & SA_MOVED;
	if (l->serial != sa->serial || l->again || moved) {
		spec = sluice__v1__security_association__unpack(NULL, object->spec_length, object->spec);
		if (!spec)
			return;
	}
	sequence = __atomic_load_n(&sa->sequence, __ATOMIC_RELAXED);
	if (l->serial != sa->serial)
		*l = (struct look){.serial = sa->serial, .sequence = sequence, .quiet = now, .again = true};
	if (l->again)
		read_spec(l, spec);
	if (moved)
		follow_peer(index, spec);
	if (spec)
		forget(spec);
	ipsec_sa_keep(index);
	look_at_path(index, l, sa, now);
	look_at_lifetimes(index, l, sa, sequence);
	if (sequence != l->sequence) {
		l->sequence = sequence;
		l->quiet = now;
	} else if (l->keepalive && sa->flags & SA_OUTBOUND && now - l->quiet >= l->keepalive) {
		l->quiet = now;
		send_keepalive(sa);
	}
}

// The SA's spec has changed: the event of a limit that has changed may be sent once more.
void
ipsec_look_again(uint32_t sa)
{
	looks[sa].again = true;
}

void
ipsec_look_all(uint64_t now)
{
	for (uint32_t index = 0; index < ipsec_sas.used; index++)
		look_at(index, now);
}

void
ipsec_look(uint64_t now)
{
	static uint32_t next;

	for (unsigned done = 0; done < AT_ONCE && done < ipsec_sas.used; done++) {
		next = next < ipsec_sas.used ? next : 0;
		look_at(next++, now);
	}
}

static void
turn(void *unused)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	ipsec_look((uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec);
}

int
ipsec_look_start(void)
{
	looks = slab_reserve(sizeof(*looks) * SA_LIMIT);
	if (!looks)
		return -ENOMEM;
	loop_every(TICK, turn, NULL);
	return 0;
}
