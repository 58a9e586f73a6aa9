// SPDX-License-Identifier: Apache-2.0
// The kind IpsecTunnel, and the type of interface that is one.
#include "ipsec/tunnel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/address.h"
#include "core/rcu.h"
#include "ether/interface.h"
#include "fib/vrf.h"
#include "interface.pb-c.h"
#include "ipsec.pb-c.h"
#include "ipsec/nodes.h"
#include "session/session.h"

// The MTU of a tunnel without an SA: that of an IPv6 path of 1,500 bytes with UDP and any algorithm.
enum { MTU_WITHOUT_SA = 1400, IP6_MTU_MIN = 1280 };

struct tunnel_detail {
	struct object *object, *vrf;
};

struct slab ipsec_tunnels;
static struct tunnel_detail *details;
static const struct ipsec_taker *the_taker;

struct object *
ipsec_tunnel_object(uint32_t index)
{
	return index < ipsec_tunnels.used ? details[index].object : NULL;
}

uint32_t
ipsec_tunnel_new(struct object *object)
{
	uint32_t index = slab_take(&ipsec_tunnels);

	if (index == UINT32_MAX)
		return index;
	*ipsec_tunnel_at(index) = (struct ipsec_tunnel){.out = NO_SA,
		.interface = NO_INTERFACE,
		.access_of = NO_SESSION,
		.core_of = NO_SESSION,
		.policy_of = NO_INTERFACE,
		.mtu = MTU_WITHOUT_SA};
	details[index] = (struct tunnel_detail){.object = object};
	return index;
}

void
ipsec_tunnel_give(uint32_t index)
{
	struct ipsec_tunnel *t = ipsec_tunnel_at(index);
	void *selectors = (void *)(uintptr_t)t->selectors, *choice = (void *)(uintptr_t)t->choice;

	details[index] = (struct tunnel_detail){0};
	if (selectors)
		rcu_retire(free, selectors);
	if (choice)
		rcu_retire(free, choice);
	slab_give_later(&ipsec_tunnels, index);
}

static int
check_end(const char *text, const char *field, uint8_t *family, struct fault *f)
{
	uint8_t address[16];

	if (text[0] != '\0' && address_parse(text, address, family))
		return fault(f, EINVAL, "%s: \"%.64s\" is not an IP address; \"192.0.2.1\" is", field, text);
	return 0;
}

static int
tunnel_put(struct object *object, const void *spec_, const void *old_, struct fault *f)
{
	const Sluice__V1__IpsecTunnel *spec = spec_, *old = old_;
	struct ipsec_selectors *selectors;
	uint8_t local = 0, remote = 0;
	struct ipsec_tunnel *t;
	uint32_t index;
	void *before;
	int error = check_end(spec->local_address, "localAddress", &local, f);

	if (!error)
		error = check_end(spec->remote_address, "remoteAddress", &remote, f);
	if (error)
		return error;
	if (local && remote && local != remote)
		return fault(f, EINVAL, "remoteAddress: \"%.48s\" is not of the family of localAddress \"%.48s\"",
			spec->remote_address, spec->local_address);
	if (old && !same_vrf(old->vrf, spec->vrf))
		return fault(f, EINVAL, "vrf: it does not change while the tunnel exists; delete the tunnel first");
	if (old &&
		(strcmp(old->local_address, spec->local_address) || strcmp(old->remote_address, spec->remote_address)))
		return fault(f, EINVAL,
			"localAddress, remoteAddress: they do not change while the tunnel exists; delete the tunnel "
			"first");
	error = ipsec_selectors_parse(spec->selectors, spec->n_selectors, &selectors, f);
	if (error)
		return error;
	if (old) {
		index = ipsec_tunnel_of(object);
	} else {
		struct object *vrf;
		uint16_t unused;

		error = vrf_need(spec->vrf, "vrf", &unused, &vrf, f);
		index = error ? UINT32_MAX : ipsec_tunnel_new(object);
		if (!error && index == UINT32_MAX) {
			object_unuse(vrf);
			error = fault(f, ENOSPC, "there can be %d tunnels at most", IPSEC_TUNNEL_LIMIT);
		}
		if (error) {
			free(selectors);
			return error;
		}
		details[index].vrf = vrf;
		object->state = (void *)(uintptr_t)index;
	}
	t = ipsec_tunnel_at(index);
	before = (void *)(uintptr_t)t->selectors;
	__atomic_store_n(&t->mss, (uint16_t)spec->mss, __ATOMIC_RELAXED);
	__atomic_store_n(&t->selectors, selectors, __ATOMIC_RELEASE);
	if (before)
		rcu_retire(free, before);
	return 0;
}

static int
tunnel_delete(struct object *object, const void *spec, struct fault *f)
{
	uint32_t index = ipsec_tunnel_of(object);

	object_unuse(details[index].vrf);
	ipsec_tunnel_give(index);
	return 0;
}

// Packets find one SA without a search as long as no SA has selectors: the first one has them all then.
void
ipsec_tunnel_choose(uint32_t index, const uint32_t *sas, unsigned count)
{
	struct ipsec_tunnel *t = ipsec_tunnel_at(index);
	void *before = (void *)(uintptr_t)t->choice;
	struct ipsec_choice *choice = NULL;
	unsigned mtu = count ? UINT16_MAX : MTU_WITHOUT_SA;
	bool direct = count == 0 || !ipsec_sa_at(sas[0])->selectors;

	if (!direct) {
		choice = malloc(sizeof(*choice) + count * sizeof(choice->sas[0]));
		if (choice) {
			choice->count = count;
			memcpy(choice->sas, sas, count * sizeof(choice->sas[0]));
		}
	}
	for (unsigned i = 0; i < (direct ? RTE_MIN(count, 1u) : count); i++) {
		const struct ipsec_sa *sa = ipsec_sa_at(sas[i]);

		mtu = RTE_MIN(mtu, ipsec_sa_room(sa, sa->path_mtu));
	}
	// An IPv6 packet of 1,280 bytes goes in any case (RFC 8200 section 5); larger ones of IPv4 are cut where they are encrypted.
	mtu = RTE_MAX(mtu, (unsigned)IP6_MTU_MIN);
	// No worker sends by the first SA what that does not select. Without memory for the choice none sends.
	if (choice)
		__atomic_store_n(&t->choice, choice, __ATOMIC_RELEASE);
	__atomic_store_n(&t->out, (direct || choice) && count ? sas[0] : NO_SA, __ATOMIC_RELEASE);
	if (!choice)
		__atomic_store_n(&t->choice, NULL, __ATOMIC_RELEASE);
	if (before)
		rcu_retire(free, before);
	if (t->mtu != mtu) {
		t->mtu = (uint16_t)mtu;
		if (t->interface != NO_INTERFACE)
			interface_follow(t->interface);
		if (t->taker)
			the_taker->changed(t->taken);
	}
	if (t->access_of != NO_SESSION)
		session_follow(t->access_of);
}

void
ipsec_taker_start(const struct ipsec_taker *taker)
{
	the_taker = taker;
	node_edge(&esp_decrypt_node, taker->node);
}

int
ipsec_tunnel_take(uint32_t index, uint32_t number)
{
	struct ipsec_tunnel *t = ipsec_tunnel_at(index);

	if (t->taker || t->interface != NO_INTERFACE || t->access_of != NO_SESSION || t->core_of != NO_SESSION ||
		t->policy_of != NO_INTERFACE)
		return -EEXIST;
	__atomic_store_n(&t->taken, number, __ATOMIC_RELAXED);
	__atomic_store_n(&t->taker, the_taker->node->id, __ATOMIC_RELEASE);
	return 0;
}

void
ipsec_tunnel_untake(uint32_t index)
{
	__atomic_store_n(&ipsec_tunnel_at(index)->taker, 0, __ATOMIC_RELEASE);
}

static bool
takes(const Sluice__V1__Interface *spec)
{
	return spec->ipsec_tunnel[0] != '\0';
}

static int
need(const Sluice__V1__Interface *spec, struct object **under, uint32_t *own, struct fault *f)
{
	int error = object_need(&ipsec_tunnel_kind, spec->ipsec_tunnel, "ipsecTunnel", under, f);

	if (!error)
		*own = ipsec_tunnel_of(*under);
	return error;
}

int
ipsec_tunnel_free(uint32_t index, uint32_t session, const char *field, struct fault *f)
{
	const struct ipsec_tunnel *t = ipsec_tunnel_at(index);
	uint32_t holder = t->access_of != NO_SESSION ? t->access_of : t->core_of;

	if (t->interface != NO_INTERFACE)
		return fault(f, EEXIST, "%s: Interface \"%.64s\" is this tunnel already; choose another", field,
			interface_detail(t->interface)->object->name);
	if (holder != NO_SESSION && holder != session)
		return fault(f, EEXIST, "%s: Session \"%.64s\" has this tunnel already; choose another", field,
			session_name(holder));
	if (t->taker)
		return fault(f, EEXIST, "%s: another object has this tunnel already; choose another", field);
	return 0;
}

static int
check(uint32_t interface, struct fault *f)
{
	return ipsec_tunnel_free(interface_at(interface)->own, NO_SESSION, "ipsecTunnel", f);
}

static int
bind(uint32_t interface, struct fault *f)
{
	int error = check(interface, f);

	if (!error)
		__atomic_store_n(
			&ipsec_tunnel_at(interface_at(interface)->own)->interface, interface, __ATOMIC_RELEASE);
	return error;
}

static void
unbind(uint32_t interface)
{
	__atomic_store_n(&ipsec_tunnel_at(interface_at(interface)->own)->interface, NO_INTERFACE, __ATOMIC_RELEASE);
}

static uint16_t
mtu_of(const struct object *under)
{
	return ipsec_tunnel_at(ipsec_tunnel_of(under))->mtu;
}

static bool
has_ports(const struct ipsec_selectors *const *selectors)
{
	const struct ipsec_selectors *list = __atomic_load_n(selectors, __ATOMIC_ACQUIRE);

	return list && list->ports;
}

bool
ipsec_tunnel_needs_ports(uint32_t index)
{
	const struct ipsec_tunnel *t = ipsec_tunnel_at(index);
	const struct ipsec_choice *choice = __atomic_load_n(&t->choice, __ATOMIC_ACQUIRE);
	bool needs = has_ports(&t->selectors) || has_ports(&t->policy_selectors);

	for (uint32_t i = 0; choice && i < choice->count && !needs; i++)
		needs = has_ports(&ipsec_sa_at(choice->sas[i])->selectors);
	return needs;
}

static int
tunnel_start(void)
{
	if (slab_create(&ipsec_tunnels, sizeof(struct ipsec_tunnel), IPSEC_TUNNEL_LIMIT))
		return -ENOMEM;
	details = slab_reserve(sizeof(*details) * IPSEC_TUNNEL_LIMIT);
	return details ? 0 : -ENOMEM;
}

static struct interface_type ipsec_type = {
	.name = "IPsec tunnel",
	.takes = takes,
	.need = need,
	.check = check,
	.bind = bind,
	.unbind = unbind,
	.mtu = mtu_of,
	.output = &esp_encrypt_node,
	.takes_large = ipsec_tunnel_needs_ports,
};
INTERFACE_TYPE_REGISTER(ipsec_type)

struct kind ipsec_tunnel_kind = {
	.name = "IpsecTunnel",
	.spec = &sluice__v1__ipsec_tunnel__descriptor,
	.put = tunnel_put,
	.delete = tunnel_delete,
	.start = tunnel_start,
};
KIND_REGISTER(ipsec_tunnel_kind)
