// SPDX-License-Identifier: Apache-2.0
// VRFs, and the special addresses of the RFCs in each.
#include "fib/vrf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include "core/drop.h"
#include "core/packet.h"
#include "core/rcu.h"
#include "ether/interface.h"
#include "fib/connected.h"
#include "fib/hop.h"
#include "fib/link_local.h"
#include "fib/scope.h"
#include "inet/header.h"
#include "ip.pb-c.h"
#include "server/object_list.h"

struct vrf vrfs[VRF_LIMIT];

static struct kind vrf_kind;

DROP(drop_this_network, "this-network",
	"The destination is in 0.0.0.0/8 or ::, which no host has (RFC 1122, RFC 4291).")
DROP(drop_loopback, "loopback-destination", "The destination is in 127.0.0.0/8 or ::1, which must not be on a link.")
DROP(drop_mapped, "ip4-mapped-destination",
	"The destination is in ::ffff:0:0/96, which must not be on a link (RFC 4291, RFC 6890).")
DROP(drop_class_e, "class-e", "The destination is in 240.0.0.0/4, which is reserved (RFC 1112).")
DROP(drop_multicast, "multicast", "A multicast destination beyond the link; there is no multicast routing.")

static const struct special {
	const char *prefix;
	const struct drop *drop; // NULL: ours, if the flags' condition is met
	uint8_t flags;
} specials[] = {
	{"0.0.0.0/8", &drop_this_network, 0},
	{"127.0.0.0/8", &drop_loopback, 0},
	{"169.254.0.0/16", &scope_link_local4, 0},
	{"224.0.0.0/4", &drop_multicast, 0},
	{"224.0.0.0/24", NULL, HOP_MULTICAST},
	{"240.0.0.0/4", &drop_class_e, 0},
	{"255.255.255.255/32", NULL, HOP_MULTICAST},
	{"::/128", &drop_this_network, 0},
	{"::1/128", &drop_loopback, 0},
	{"::ffff:0:0/96", &drop_mapped, 0},
	{"fe80::/10", NULL, HOP_LINK_LOCAL},
	{"ff00::/8", &drop_multicast, 0},
	// Of link-local scope: well-known, transient, and based on a prefix (RFC 4291 section 2.7, RFC 3306).
	{"ff02::/16", NULL, HOP_MULTICAST},
	{"ff12::/16", NULL, HOP_MULTICAST},
	{"ff32::/16", NULL, HOP_MULTICAST},
};

// The specials' hops, shared by all VRFs.
static uint32_t special_hops[RTE_DIM(specials)];

static int
special_hops_make(void)
{
	for (unsigned i = 0; i < RTE_DIM(specials); i++) {
		const struct special *s = &specials[i];

		special_hops[i] = s->drop ? hop_new(HOP_DROP) : hop_new_local(s->flags);
		if (special_hops[i] == UINT32_MAX)
			return -ENOMEM;
		if (s->drop)
			hop_at(special_hops[i])->drop = s->drop->id;
	}
	// Make these at the start, too, so that later code need not handle a failure.
	if (hop_blackhole() == UINT32_MAX || hop_prohibit() == UINT32_MAX || hop_unreachable() == UINT32_MAX)
		return -ENOMEM;
	return 0;
}

static void
vrf_empty(uint16_t vrf)
{
	struct vrf was = vrfs[vrf];

	for (unsigned i = 0; i < RTE_DIM(specials) && was.fib4 && was.fib6; i++) {
		uint8_t address[16], family, length;

		if (prefix_parse(specials[i].prefix, address, &family, &length) == 0)
			route_remove(vrf, family, address, length, ROUTE_SPECIAL);
	}
	// A worker may be between two nodes with a packet of an interface that has just been deleted.
	vrfs[vrf] = (struct vrf){0};
	rcu_wait();
	if (was.fib4)
		fib_destroy(was.fib4);
	if (was.fib6)
		fib_destroy(was.fib6);
}

static int
vrf_fill(uint16_t vrf, struct fault *f)
{
	int error = 0;

	vrfs[vrf] = (struct vrf){.fib4 = fib_create(FIB_IP4), .fib6 = fib_create(FIB_IP6)};
	if (!vrfs[vrf].fib4 || !vrfs[vrf].fib6)
		error = fault(f, ENOMEM, "there is no memory for the VRF's tables");
	for (unsigned i = 0; i < RTE_DIM(specials) && error == 0; i++) {
		uint8_t address[16], family, length;

		error = prefix_parse(specials[i].prefix, address, &family, &length);
		if (error == 0)
			error = route_add(vrf, family, address, length, ROUTE_SPECIAL, special_hops[i], f);
	}
	if (error)
		vrf_empty(vrf);
	return error;
}

static int
vrf_start(void)
{
	struct fault f;
	int error = special_hops_make();

	if (error == 0)
		error = vrf_fill(0, &f);
	if (error)
		return error;
	connected_start();
	return link_local_start();
}

static uint16_t
vrf_of(const struct object *object)
{
	return (uint16_t)(uintptr_t)object->state;
}

int
vrf_need(const char *name, const char *field, uint16_t *vrf, struct object **object, struct fault *f)
{
	int error;

	*object = NULL;
	*vrf = 0;
	// The default VRF exists without an object, and stays when its object is deleted.
	if (name[0] == '\0' || strcmp(name, "default") == 0)
		return 0;
	error = object_need(&vrf_kind, name, field, object, f);
	if (error)
		return error;
	*vrf = vrf_of(*object);
	object_use(*object);
	return 0;
}

const char *
vrf_name(uint16_t vrf)
{
	const struct object *object;
	uint64_t cursor = 0;

	if (vrf == 0)
		return "default";
	while ((object = object_next(&vrf_kind, &cursor)) != NULL)
		if (vrf_of(object) == vrf)
			return object->name;
	return "?";
}

static const struct interface_routing routing = {
	.vrf_need = vrf_need, .look_up4 = &ip4_lookup_node, .look_up6 = &ip6_lookup_node};
RTE_INIT(register_routing)
{
	interface_routing_register(&routing);
}

static int
vrf_put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	int error;

	if (old)
		return 0;
	if (strcmp(object->name, "default") == 0) {
		object->state = (void *)0;
		return 0;
	}
	for (uint16_t i = 1; i < VRF_LIMIT; i++) {
		if (vrfs[i].fib4)
			continue;
		error = vrf_fill(i, f);
		if (error == 0)
			object->state = (void *)(uintptr_t)i;
		return error;
	}
	return fault(f, ENOSPC, "there are %d VRFs already", VRF_LIMIT);
}

static int
vrf_delete(struct object *object, const void *spec, struct fault *f)
{
	if (vrf_of(object) != 0)
		vrf_empty(vrf_of(object));
	return 0;
}

static struct kind vrf_kind = {
	.name = "Vrf", .spec = &sluice__v1__vrf__descriptor, .put = vrf_put, .delete = vrf_delete, .start = vrf_start};
KIND_REGISTER(vrf_kind)
