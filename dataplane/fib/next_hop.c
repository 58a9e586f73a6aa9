// SPDX-License-Identifier: Apache-2.0
// Next hops: the registry of their types, and the parser of their specs.
#include "fib/next_hop.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/address.h"
#include "ether/interface.h"
#include "fib/vrf.h"
#include "inet/header.h"

static struct next_hop_type *types;

void
next_hop_type_register(struct next_hop_type *type)
{
	type->next = types;
	types = type;
}

const struct next_hop_type *
next_hop_type_of(const struct next_hop *n, uint32_t interface)
{
	const struct next_hop_type *type = types;

	while (type && (type->has || !type->takes(n, interface)))
		type = type->next;
	return type;
}

// The objects that the part begins with.
static struct object **
objects_of(const struct next_hop *n)
{
	return n->part;
}

bool
next_hop_equal(const struct next_hop *a, const struct next_hop *b)
{
	if (a->type != b->type || a->interface != b->interface ||
		memcmp(a->address, b->address, sizeof(a->address)) != 0)
		return false;
	return !a->part || !b->part ? a->part == b->part : memcmp(a->part, b->part, a->type->size) == 0;
}

int
next_hop_use(struct next_hop *to, const struct next_hop *from)
{
	*to = *from;
	to->part = NULL;
	if (from->part) {
		to->part = malloc(from->type->size);
		if (to->part)
			memcpy(to->part, from->part, from->type->size);
	}
	for (unsigned i = 0; to->part && i < to->type->objects; i++)
		if (objects_of(to)[i])
			object_use(objects_of(to)[i]);
	if (to->interface != NO_INTERFACE)
		object_use(interface_detail(to->interface)->object);
	return from->part && !to->part ? -ENOMEM : 0;
}

void
next_hop_unuse(struct next_hop *n)
{
	for (unsigned i = 0; n->part && i < n->type->objects; i++)
		if (objects_of(n)[i])
			object_unuse(objects_of(n)[i]);
	if (n->interface != NO_INTERFACE)
		object_unuse(interface_detail(n->interface)->object);
	next_hops_free(n, 1);
}

void
next_hops_free(struct next_hop *list, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		free(list[i].part);
		list[i].part = NULL;
	}
}

// The part of the type whose field the spec has.
static int
parse_part(const Sluice__V1__NextHop *spec, uint16_t vrf, uint8_t family, struct next_hop *n, struct fault *f)
{
	int error;

	if (!n->type || n->type->size == 0)
		return 0;
	n->part = calloc(1, n->type->size);
	if (!n->part)
		return fault(f, ENOMEM, "nextHops: there is no memory for a %s", n->type->name);
	error = n->type->parse ? n->type->parse(spec, vrf, family, n->part, f) : 0;
	if (error)
		next_hops_free(n, 1);
	return error;
}

int
next_hop_parse(const Sluice__V1__NextHop *spec, uint16_t vrf, uint8_t *family, struct next_hop *n, struct fault *f)
{
	struct object *interface;
	uint8_t of = *family;
	int error;

	*n = (struct next_hop){.interface = NO_INTERFACE, .weight = spec->weight ? (uint8_t)spec->weight : 1};
	for (const struct next_hop_type *type = types; type; type = type->next)
		if (type->has && type->has(spec)) {
			if (n->type)
				return fault(f, EINVAL, "nextHops: a next hop is a %s or a %s; give one of the two",
					n->type->name, type->name);
			n->type = type;
		}
	if (spec->address[0] == '\0' && spec->interface[0] == '\0' && !(n->type && n->type->elsewhere))
		return fault(f, EINVAL, "nextHops: a next hop needs an address, an interface or both");
	if (spec->address[0] != '\0' && address_parse(spec->address, n->address, &of))
		return fault(f, EINVAL, "nextHops.address: \"%.64s\" is not an IP address", spec->address);
	if (*family != 0 && of != *family)
		return fault(f, EINVAL, "nextHops.address: %s is not an IPv%u address", spec->address, *family);
	*family = of;
	error = object_need(&interface_kind, spec->interface, "nextHops.interface", &interface, f);
	if (error)
		return error;
	if (interface) {
		n->interface = interface_of(interface);
		if (interface_at(n->interface)->vrf != vrf)
			return fault(f, EINVAL, "nextHops.interface: %s is not in VRF \"%.64s\"", spec->interface,
				vrf_name(vrf));
	} else if (of == 6 && ip6_is_link_local(n->address)) {
		return fault(f, EINVAL,
			"nextHops.interface: missing; name the interface that reaches the link-local "
			"address %s",
			spec->address);
	}
	if (spec->address[0] != '\0' && route_find(vrf, of, n->address, of == 4 ? 32 : 128, ROUTE_LOCAL) != 0)
		return fault(f, EEXIST, "nextHops.address: %s is an address of ours", spec->address);
	return parse_part(spec, vrf, of, n, f);
}
