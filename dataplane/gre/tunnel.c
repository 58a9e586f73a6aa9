// SPDX-License-Identifier: Apache-2.0
// The kind GreTunnel, and the access of sessions that is one.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contract_limits.h"
#include "core/address.h"
#include "core/rcu.h"
#include "fib/hop.h"
#include "gre.pb-c.h"
#include "gre/gre.h"
#include "inet/header.h"
#include "ipsec/tunnel.h"
#include "session/spec.h"

enum { TIME_TO_LIVE = 64 };

static_assert(CONTRACT_GRE_TUNNEL_CHILDREN_MAX <= GRE_CHILDREN, "a tunnel has room for all children");

// The main thread's part of a tunnel.
struct tunnel_detail {
	struct object *object;
	unsigned count;
	struct {
		struct object *tunnel;
		uint32_t hop;
	} children[GRE_CHILDREN];
};

struct slab gre_tunnels;
uint32_t *gre_of_session;
static struct tunnel_detail *details;

const char *
gre_name(uint32_t index)
{
	return index < gre_tunnels.used && details[index].object ? details[index].object->name : "?";
}

static uint32_t
gre_of(const struct object *object)
{
	return (uint32_t)(uintptr_t)object->state;
}

static int
parse_end(const char *text, const char *field, uint8_t *family, uint8_t address[16], struct fault *f)
{
	memset(address, 0, 16);
	if (address_parse(text, address, family))
		return fault(f, EINVAL, "%s: \"%.64s\" is not an IP address; \"10.200.0.1\" is", field, text);
	if (*family == 4 ? address[0] >= 224 || address[0] == 0
			 : ip6_is_multicast(address) || ip6_is_unspecified(address))
		return fault(f, EINVAL, "%s: \"%.64s\" is not a unicast address", field, text);
	return 0;
}

// From QFI to child.
static int
parse_qfis(const Sluice__V1__GreTunnel *spec, uint8_t of_qfi[GRE_QFIS], struct fault *f)
{
	int rest = GRE_NO_CHILD;

	memset(of_qfi, GRE_NO_CHILD, GRE_QFIS);
	for (size_t i = 0; i < spec->n_children; i++) {
		const Sluice__V1__GreChild *child = spec->children[i];

		if (child->n_qfis == 0) {
			if (rest != GRE_NO_CHILD)
				return fault(f, EINVAL,
					"children[%zu].qfis: children[%d] has no QFIs either; one child can have all "
					"others",
					i, rest);
			rest = (int)i;
		}
		for (size_t j = 0; j < child->n_qfis; j++) {
			if (child->qfis[j] >= GRE_QFIS)
				return fault(f, EINVAL, "children[%zu].qfis[%zu]: %u is not from 0 to %d", i, j,
					child->qfis[j], GRE_QFIS - 1);
			if (of_qfi[child->qfis[j]] != GRE_NO_CHILD)
				return fault(f, EINVAL, "children[%zu].qfis[%zu]: children[%u] has QFI %u already", i,
					j, of_qfi[child->qfis[j]], child->qfis[j]);
			of_qfi[child->qfis[j]] = (uint8_t)i;
		}
	}
	for (unsigned i = 0; i < GRE_QFIS; i++)
		if (of_qfi[i] == GRE_NO_CHILD)
			of_qfi[i] = (uint8_t)rest;
	return 0;
}

// The hop by which packets go into this IPsec tunnel: the one that there is, or a new one.
static uint32_t
hop_to(const struct tunnel_detail *had, struct object *tunnel)
{
	uint32_t hop;

	for (unsigned i = 0; i < had->count; i++)
		if (had->children[i].tunnel == tunnel)
			return had->children[i].hop;
	hop = hop_new(HOP_FORWARD);
	if (hop != UINT32_MAX)
		hop_at(hop)->own[0] = ipsec_tunnel_of(tunnel);
	return hop;
}

static bool
has(const struct tunnel_detail *d, const struct object *tunnel)
{
	for (unsigned i = 0; i < d->count; i++)
		if (d->children[i].tunnel == tunnel)
			return true;
	return false;
}

// Children in `these` and not in `others` return to their previous state.
static void
give_back(const struct tunnel_detail *these, const struct tunnel_detail *others)
{
	for (unsigned i = 0; i < these->count; i++) {
		struct object *tunnel = these->children[i].tunnel;

		if (!has(others, tunnel)) {
			ipsec_tunnel_untake(ipsec_tunnel_of(tunnel));
			hop_retire(these->children[i].hop);
		}
		object_unuse(tunnel);
	}
}

static int
take_children(uint32_t index, const Sluice__V1__GreTunnel *spec, const struct tunnel_detail *had,
	struct tunnel_detail *now, struct fault *f)
{
	int error = 0;

	for (size_t i = 0; i < spec->n_children && error == 0; i++) {
		struct object *tunnel;
		char field[40];
		uint32_t hop;

		snprintf(field, sizeof(field), "children[%zu].tunnel", i);
		error = object_need(&ipsec_tunnel_kind, spec->children[i]->tunnel, field, &tunnel, f);
		if (error)
			break;
		if (has(now, tunnel)) {
			error = fault(f, EINVAL, "%s: duplicate tunnel \"%.64s\"", field, tunnel->name);
			break;
		}
		if (!has(had, tunnel) && ipsec_tunnel_at(ipsec_tunnel_of(tunnel))->taker) {
			error = fault(f, EEXIST, "%s: GreTunnel \"%.64s\" has IpsecTunnel \"%.64s\" already", field,
				gre_name(ipsec_tunnel_at(ipsec_tunnel_of(tunnel))->taken), tunnel->name);
			break;
		}
		hop = hop_to(had, tunnel);
		if (hop == UINT32_MAX) {
			error = fault(f, ENOSPC, "children: there is no room for more next hops");
			break;
		}
		now->children[now->count].tunnel = tunnel;
		now->children[now->count++].hop = hop;
		object_use(tunnel);
		if (!has(had, tunnel))
			ipsec_tunnel_take(ipsec_tunnel_of(tunnel), index);
	}
	if (error)
		give_back(now, had);
	return error;
}

static void
write_ends(struct gre_tunnel *t, const uint8_t local[16], const uint8_t remote[16], uint8_t family)
{
	struct ip4_header h = {.version_ihl = 0x45, .ttl = TIME_TO_LIVE, .protocol = PROTOCOL_GRE};

	*t = (struct gre_tunnel){.session = NO_SESSION, .family = family};
	memcpy(t->local, local, 16);
	memcpy(t->remote, remote, 16);
	memcpy(&h.source, local, 4);
	memcpy(&h.destination, remote, 4);
	t->sum = family == 4 ? checksum_fold(checksum_add(0, &h, sizeof(h))) : 0;
}

static int
parse(const Sluice__V1__GreTunnel *spec, struct gre_tunnel *t, struct gre_ways *ways, struct fault *f)
{
	uint8_t local[16], remote[16], family, other;
	int error = parse_end(spec->local_address, "localAddress", &family, local, f);

	if (!error)
		error = parse_end(spec->remote_address, "remoteAddress", &other, remote, f);
	if (error)
		return error;
	if (family != other)
		return fault(f, EINVAL, "remoteAddress: \"%.48s\" is not of the family of localAddress \"%.48s\"",
			spec->remote_address, spec->local_address);
	write_ends(t, local, remote, family);
	return parse_qfis(spec, ways->of_qfi, f);
}

static int
gre_put(struct object *object, const void *spec_, const void *old, struct fault *f)
{
	const Sluice__V1__GreTunnel *spec = spec_;
	struct gre_ways *ways = calloc(1, sizeof(*ways)), *before;
	struct tunnel_detail now = {.object = object}, had = {0};
	struct gre_tunnel t, *was;
	uint32_t index = UINT32_MAX;
	int error = ways ? parse(spec, &t, ways, f) : fault(f, ENOMEM, "there is no memory for it");

	if (!error) {
		index = old ? gre_of(object) : slab_take(&gre_tunnels);
		if (index == UINT32_MAX)
			error = fault(f, ENOSPC, "there can be %d GRE tunnels at most", GRE_TUNNEL_LIMIT);
	}
	if (!error && old) {
		had = details[index];
		was = gre_tunnel_at(index);
		if (was->family != t.family || memcmp(was->local, t.local, 16) != 0 ||
			memcmp(was->remote, t.remote, 16) != 0)
			error = fault(
				f, EINVAL, "localAddress, remoteAddress: they do not change while the tunnel exists");
	}
	if (!error)
		error = take_children(index, spec, &had, &now, f);
	if (error) {
		if (index != UINT32_MAX && !old)
			slab_give_later(&gre_tunnels, index);
		free(ways);
		return error;
	}
	for (unsigned i = 0; i < now.count; i++)
		ways->hops[i] = now.children[i].hop;
	if (!old) {
		*gre_tunnel_at(index) = t;
		object->state = (void *)(uintptr_t)index;
	}
	details[index] = now;
	before = (void *)(uintptr_t)gre_tunnel_at(index)->ways;
	// While the two differ, `ways` has them.
	__atomic_store_n(&gre_tunnel_at(index)->hop, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&gre_tunnel_at(index)->ways, ways, __ATOMIC_RELEASE);
	if (now.count == 1 && spec->children[0]->n_qfis == 0)
		__atomic_store_n(&gre_tunnel_at(index)->hop, ways->hops[0], __ATOMIC_RELEASE);
	give_back(&had, &now);
	if (before)
		rcu_retire(free, before);
	if (gre_tunnel_at(index)->session != NO_SESSION)
		session_follow(gre_tunnel_at(index)->session);
	return 0;
}

static int
gre_delete(struct object *object, const void *spec, struct fault *f)
{
	uint32_t index = gre_of(object);
	struct tunnel_detail had = details[index], none = {0};
	void *ways = (void *)(uintptr_t)gre_tunnel_at(index)->ways;

	__atomic_store_n(&gre_tunnel_at(index)->hop, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&gre_tunnel_at(index)->ways, NULL, __ATOMIC_RELEASE);
	give_back(&had, &none);
	details[index] = none;
	rcu_retire(free, ways);
	slab_give_later(&gre_tunnels, index);
	return 0;
}

// ---- The access.

static bool
takes(const Sluice__V1__Access *spec)
{
	return spec->gre_tunnel[0] != '\0';
}

static int
parse_access(const Sluice__V1__Access *spec, struct session_key *key, struct fault *f)
{
	if (spec->outer_vlan || spec->inner_vlan || spec->mac[0] != '\0' || spec->proxy_arp || spec->lcp_magic ||
		spec->lcp_echo_interval || spec->lcp_echo_failures || spec->pdu_session_id)
		return fault(f, EINVAL, "access.greTunnel: no other field of the access goes with it");
	return 0;
}

static int
need(const Sluice__V1__Access *spec, struct session_key *key, struct object **under, struct fault *f)
{
	int error = object_need(&gre_kind, spec->gre_tunnel, "access.greTunnel", under, f);

	if (!error)
		key->own[0] = gre_of(*under);
	return error;
}

static uint16_t
mtu_of(const struct session_key *key, const struct object *under)
{
	uint32_t index = gre_of(under);
	const struct tunnel_detail *d = &details[index];
	unsigned mtu = UINT16_MAX;

	for (unsigned i = 0; i < d->count; i++)
		mtu = RTE_MIN(mtu, (unsigned)ipsec_tunnel_at(ipsec_tunnel_of(d->children[i].tunnel))->mtu);
	return (uint16_t)(mtu - GRE_HEADER -
			  (gre_tunnel_at(index)->family == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header)));
}

static bool
same(const struct session_key *a, const struct session_key *b)
{
	return a->own[0] == b->own[0];
}

static int
bind(const struct session_key *key, uint32_t session, bool frames, bool alone, struct fault *f)
{
	struct gre_tunnel *t = gre_tunnel_at((uint32_t)key->own[0]);

	if (t->session != NO_SESSION)
		return fault(f, EEXIST,
			"access.greTunnel: Session \"%.64s\" has GreTunnel \"%.64s\" already; choose another",
			session_name(t->session), gre_name((uint32_t)key->own[0]));
	t->frames = frames;
	__atomic_store_n(&t->session, session, __ATOMIC_RELEASE);
	return 0;
}

static void
rebind(const struct session_key *key, uint32_t session)
{
	__atomic_store_n(&gre_tunnel_at((uint32_t)key->own[0])->session, session, __ATOMIC_RELEASE);
}

static void
unbind(const struct session_key *key)
{
	rebind(key, NO_SESSION);
}

static uint32_t
find(const struct session_key *key)
{
	return gre_tunnel_at((uint32_t)key->own[0])->session;
}

static void
publish(uint32_t session, const struct session_key *key)
{
	__atomic_store_n(&gre_of_session[session], (uint32_t)key->own[0], __ATOMIC_RELEASE);
}

static void
describe(const struct session_key *key, char *text, size_t size)
{
	snprintf(text, size, "GRE tunnel %s", gre_name((uint32_t)key->own[0]));
}

static struct session_access gre_access = {
	.name = "GRE tunnel",
	.takes = takes,
	.parse = parse_access,
	.need = need,
	.mtu = mtu_of,
	.out = &gre_output_node,
	.publish = publish,
	.describe = describe,
	.same = same,
	.bind = bind,
	.unbind = unbind,
	.find = find,
	.rebind = rebind,
};
SESSION_ACCESS_REGISTER(gre_access)

static void
changed(uint32_t index)
{
	if (gre_tunnel_at(index)->session != NO_SESSION)
		session_follow(gre_tunnel_at(index)->session);
}

static const struct ipsec_taker taker = {.node = &gre_input_node, .changed = changed};

static int
start(void)
{
	if (slab_create(&gre_tunnels, sizeof(struct gre_tunnel), GRE_TUNNEL_LIMIT))
		return -ENOMEM;
	details = slab_reserve(sizeof(*details) * GRE_TUNNEL_LIMIT);
	gre_of_session = slab_reserve(sizeof(*gre_of_session) * SESSION_LIMIT);
	if (!details || !gre_of_session)
		return -ENOMEM;
	ipsec_taker_start(&taker);
	return 0;
}

struct kind gre_kind = {
	.name = "GreTunnel",
	.spec = &sluice__v1__gre_tunnel__descriptor,
	.put = gre_put,
	.delete = gre_delete,
	.start = start,
};
KIND_REGISTER(gre_kind)
