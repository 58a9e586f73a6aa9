// SPDX-License-Identifier: Apache-2.0
// Sessions on tunnels: the access of a remote user, and the core of a subscriber.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ether/interface.h"
#include "ipsec/nodes.h"
#include "ipsec/tunnel.h"
#include "session/session.h"
#include "session/spec.h"

// An interface's largest: no SA limits the packets yet.
enum { MTU_UNKNOWN = 9600 };

uint32_t *ipsec_access_tunnels, *ipsec_core_tunnels;
uint32_t ipsec_core_chain;

static uint32_t
tunnel_in(const struct session_key *key)
{
	return (uint32_t)key->own[0];
}

// ---- The access.

static bool
access_takes(const Sluice__V1__Access *spec)
{
	return spec->ipsec_tunnel[0] != '\0';
}

static int
access_parse(const Sluice__V1__Access *spec, struct session_key *key, struct fault *f)
{
	const char *other = spec->port[0]             ? "port"
			    : spec->outer_vlan        ? "outerVlan"
			    : spec->inner_vlan        ? "innerVlan"
			    : spec->mac[0]            ? "mac"
			    : spec->pppoe_session_id  ? "pppoeSessionId"
			    : spec->proxy_arp         ? "proxyArp"
			    : spec->pdu_session_id    ? "pduSessionId"
			    : spec->lcp_magic         ? "lcpMagic"
			    : spec->lcp_echo_interval ? "lcpEchoInterval"
			    : spec->lcp_echo_failures ? "lcpEchoFailures"
						      : NULL;

	return other ? fault(f, EINVAL, "access.%s: an access by access.ipsecTunnel has none; leave it out", other) : 0;
}

static int
access_need(const Sluice__V1__Access *spec, struct session_key *key, struct object **under, struct fault *f)
{
	int error = object_need(&ipsec_tunnel_kind, spec->ipsec_tunnel, "access.ipsecTunnel", under, f);

	if (!error)
		key->own[0] = ipsec_tunnel_of(*under);
	return error;
}

static uint16_t
access_mtu(const struct session_key *key, const struct object *under)
{
	const struct ipsec_tunnel *t = ipsec_tunnel_at(tunnel_in(key));

	return t->out == NO_SA ? MTU_UNKNOWN : t->mtu;
}

static bool
access_same(const struct session_key *a, const struct session_key *b)
{
	return a->own[0] == b->own[0];
}

static int
access_bind(const struct session_key *key, uint32_t session, bool frames, bool alone, struct fault *f)
{
	struct ipsec_tunnel *t = ipsec_tunnel_at(tunnel_in(key));
	int error = ipsec_tunnel_free(tunnel_in(key), NO_SESSION, "access.ipsecTunnel", f);

	if (!error)
		__atomic_store_n(&t->access_of, session, __ATOMIC_RELEASE);
	return error;
}

static void
access_unbind(const struct session_key *key)
{
	__atomic_store_n(&ipsec_tunnel_at(tunnel_in(key))->access_of, NO_SESSION, __ATOMIC_RELEASE);
}

static uint32_t
access_find(const struct session_key *key)
{
	return ipsec_tunnel_at(tunnel_in(key))->access_of;
}

static void
access_rebind(const struct session_key *key, uint32_t session)
{
	__atomic_store_n(&ipsec_tunnel_at(tunnel_in(key))->access_of, session, __ATOMIC_RELEASE);
}

static void
access_publish(uint32_t session, const struct session_key *key)
{
	__atomic_store_n(&ipsec_access_tunnels[session], tunnel_in(key), __ATOMIC_RELEASE);
}

static void
access_describe(const struct session_key *key, char *text, size_t size)
{
	const struct object *object = ipsec_tunnel_object(tunnel_in(key));

	snprintf(text, size, "IPsec tunnel %s", object ? object->name : "?");
}

static int
access_start(void)
{
	ipsec_access_tunnels = slab_reserve(sizeof(*ipsec_access_tunnels) * SESSION_LIMIT);
	return ipsec_access_tunnels ? 0 : -ENOMEM;
}

static struct session_access ipsec_access = {
	.name = "IPsec tunnel",
	.takes = access_takes,
	.parse = access_parse,
	.need = access_need,
	.mtu = access_mtu,
	.out = &esp_access_node,
	.no_frames = "access.ipsecTunnel",
	.start = access_start,
	.publish = access_publish,
	.describe = access_describe,
	.same = access_same,
	.bind = access_bind,
	.unbind = access_unbind,
	.find = access_find,
	.rebind = access_rebind,
};
SESSION_ACCESS_REGISTER(ipsec_access)

// ---- The core.

// The main thread's part of a core record.
struct core_detail {
	struct object *tunnel;
	uint32_t session;
	bool bound; // packets out of the tunnel are the session's because of this record
};

static struct slab records; // of uint32_t: ipsec_core_tunnels
static struct core_detail *details;

static bool
core_takes(const Sluice__V1__Session *spec)
{
	return spec->core_case == SLUICE__V1__SESSION__CORE_IPSEC;
}

static int
core_put(uint32_t session, const void *message, uint32_t *core, const struct node **encap, struct fault *f)
{
	const Sluice__V1__IpsecCore *spec = ((const Sluice__V1__Session *)message)->ipsec;
	const Sluice__V1__Access *access = ((const Sluice__V1__Session *)message)->access;
	struct object *tunnel;
	int error = object_need(&ipsec_tunnel_kind, spec->tunnel, "ipsec.tunnel", &tunnel, f);

	if (!error && access && strcmp(access->ipsec_tunnel, spec->tunnel) == 0)
		error = fault(f, EINVAL, "ipsec.tunnel: \"%.64s\" is access.ipsecTunnel; choose another", spec->tunnel);
	if (!error)
		error = ipsec_tunnel_free(ipsec_tunnel_of(tunnel), session, "ipsec.tunnel", f);
	if (error)
		return error;
	*core = slab_take(&records);
	if (*core == UINT32_MAX)
		return fault(f, ENOSPC, "ipsec.tunnel: there can be %d tunnels at most", IPSEC_TUNNEL_LIMIT);
	ipsec_core_tunnels[*core] = ipsec_tunnel_of(tunnel);
	details[*core] = (struct core_detail){.tunnel = tunnel, .session = session};
	object_use(tunnel);
	*encap = &esp_core_node;
	return 0;
}

static int
core_bind(uint32_t core, uint32_t old, struct fault *f)
{
	__atomic_store_n(&ipsec_tunnel_at(ipsec_core_tunnels[core])->core_of, details[core].session, __ATOMIC_RELEASE);
	details[core].bound = true;
	// The session's tunnel so far may be the same one.
	if (old != UINT32_MAX && details[old].tunnel == details[core].tunnel)
		details[old].bound = false;
	return 0;
}

static void
core_remove(uint32_t core)
{
	struct core_detail *d = &details[core];

	if (d->bound)
		__atomic_store_n(&ipsec_tunnel_at(ipsec_core_tunnels[core])->core_of, NO_SESSION, __ATOMIC_RELEASE);
	object_unuse(d->tunnel);
	*d = (struct core_detail){0};
	slab_give_later(&records, core);
}

static int
core_start(void)
{
	if (slab_create(&records, sizeof(uint32_t), 2 * IPSEC_TUNNEL_LIMIT))
		return -ENOMEM;
	ipsec_core_tunnels = records.records;
	details = slab_reserve(sizeof(*details) * 2 * IPSEC_TUNNEL_LIMIT);
	ipsec_core_chain = chain_of((const struct node *const[]){&esp_core_input_node, &session_down_node}, 2);
	return details && ipsec_core_chain ? 0 : -ENOMEM;
}

static struct session_core ipsec_core = {
	.takes = core_takes,
	.start = core_start,
	.put = core_put,
	.bind = core_bind,
	.remove = core_remove,
};

RTE_INIT(register_ipsec_core)
{
	session_core_register(&ipsec_core);
}
