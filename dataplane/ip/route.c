// Route objects.
//
// Of each, only the number of its path is kept beside its spec: everything else is in the fib and in what its path shares.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/object.h"
#include "core/object_list.h"
#include "core/packet.h"
#include "ether/interface.h"
#include "ip.pb-c.h"
#include "ip/hop.h"
#include "ip/path.h"
#include "ip/vrf.h"

static struct kind route_kind;

struct route {
	uint16_t vrf;
	uint8_t family;
	uint8_t length;
	uint8_t prefix[16];
};

// object->state: 0 for a route without a path.
static bool
has_path(const struct object *object)
{
	return object->state != NULL;
}

static uint32_t
path_of(const struct object *object)
{
	return (uint32_t)((uintptr_t)object->state - 1);
}

static void *
state_of(uint32_t path)
{
	return (void *)((uintptr_t)path + 1);
}

static int
parse_next_hop(const Sluice__V1__NextHop *spec, const struct route *route, struct next_hop *n, struct fault *f)
{
	struct object *interface;
	uint8_t family = route->family;
	int error;

	*n = (struct next_hop){.interface = NO_INTERFACE, .weight = spec->weight ? (uint8_t)spec->weight : 1};
	if (spec->weight > UINT8_MAX)
		return fault(f, EINVAL, "nextHops.weight: %u is too large; 1 to 255 are accepted", spec->weight);
	if (spec->address[0] == '\0' && spec->interface[0] == '\0')
		return fault(f, EINVAL, "nextHops: a next hop needs an address, an interface or both");
	if (spec->address[0] != '\0' && address_parse(spec->address, n->address, &family))
		return fault(f, EINVAL, "nextHops.address: \"%.64s\" is not an IP address", spec->address);
	if (family != route->family)
		return fault(f, EINVAL, "nextHops.address: %s is not of the prefix's family, IPv%u", spec->address,
			route->family);
	error = object_need(&interface_kind, spec->interface, "nextHops.interface", &interface, f);
	if (error)
		return error;
	if (interface) {
		n->interface = interface_of(interface);
		if (interface_at(n->interface)->vrf != route->vrf)
			return fault(f, EINVAL, "nextHops.interface: %s is not in the route's VRF", spec->interface);
	} else if (family == 6 && n->address[0] == 0xfe && (n->address[1] & 0xc0) == 0x80) {
		return fault(
			f, EINVAL, "nextHops.interface: the link-local address %s is reached by which?", spec->address);
	}
	if (spec->address[0] == '\0')
		return 0;
	if (route_find(route->vrf, family, n->address, family == 4 ? 32 : 128, ROUTE_LOCAL) != 0)
		return fault(f, EEXIST, "nextHops.address: %s is an address of ours", spec->address);
	return 0;
}

// Where the route shall lead: *hop, and *state as the object keeps it, a user of its path.
static int
lead(const Sluice__V1__Route *spec, const struct route *route, uint32_t *hop, void **state, struct fault *f)
{
	struct next_hop hops[PATH_MEMBERS];
	uint32_t path;
	int error;

	*state = NULL;
	switch (spec->action) {
	case SLUICE__V1__ROUTE_ACTION__FORWARD:
		break;
	case SLUICE__V1__ROUTE_ACTION__BLACKHOLE:
	case SLUICE__V1__ROUTE_ACTION__PROHIBIT:
		if (spec->n_next_hops > 0)
			return fault(f, EINVAL, "nextHops: a route that drops its packets has none");
		*hop = spec->action == SLUICE__V1__ROUTE_ACTION__BLACKHOLE ? hop_blackhole() : hop_prohibit();
		return 0;
	default:
		return fault(
			f, EINVAL, "action: %d is none; forward, blackhole and prohibit are accepted", spec->action);
	}
	if (spec->n_next_hops == 0)
		return fault(f, EINVAL, "nextHops: a route that forwards needs at least one");
	if (spec->n_next_hops > PATH_MEMBERS)
		return fault(f, EINVAL, "nextHops: at most %d are accepted", PATH_MEMBERS);
	for (size_t i = 0; i < spec->n_next_hops; i++) {
		error = parse_next_hop(spec->next_hops[i], route, &hops[i], f);
		if (error)
			return error;
	}
	error = path_take(route->vrf, route->family, hops, (unsigned)spec->n_next_hops, &path, f);
	if (error)
		return error;
	*hop = path_hop(path);
	*state = state_of(path);
	return 0;
}

static void
stop_leading(void *state)
{
	if (state)
		path_release((uint32_t)((uintptr_t)state - 1));
}

static int
create(struct object *object, const Sluice__V1__Route *spec, struct route *route, struct fault *f)
{
	struct object *vrf;
	void *state = NULL;
	uint32_t hop;
	int error = vrf_need(spec->vrf, "vrf", &route->vrf, &vrf, f);

	if (error)
		return error;
	error = lead(spec, route, &hop, &state, f);
	if (error == 0)
		error = route_add(route->vrf, route->family, route->prefix, route->length, ROUTE_STATIC, hop, f);
	if (error) {
		stop_leading(state);
		object_unuse(vrf);
		return error;
	}
	object->state = state;
	return 0;
}

static int
change(struct object *object, const Sluice__V1__Route *spec, const Sluice__V1__Route *old, struct route *route,
	struct fault *f)
{
	struct object *vrf;
	void *state, *before = object->state;
	uint32_t hop;
	int error;

	if (strcmp(spec->vrf, old->vrf) != 0)
		return fault(f, EINVAL, "vrf: it cannot be changed; delete the route and create it again");
	if (strcmp(spec->prefix, old->prefix) != 0)
		return fault(f, EINVAL, "prefix: it cannot be changed; delete the route and create it again");
	error = vrf_need(spec->vrf, "vrf", &route->vrf, &vrf, f);
	if (error)
		return error;
	object_unuse(vrf); // counted once, when the route was created
	error = lead(spec, route, &hop, &state, f);
	if (error)
		return error;
	error = route_change(route->vrf, route->family, route->prefix, route->length, ROUTE_STATIC, hop, f);
	if (error) {
		stop_leading(state);
		return error;
	}
	object->state = state;
	stop_leading(before);
	return 0;
}

static int
route_put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	const Sluice__V1__Route *s = spec;
	struct route route;

	if (prefix_parse(s->prefix, route.prefix, &route.family, &route.length))
		return fault(f, EINVAL, "prefix: \"%.64s\" is not a network such as 192.0.2.0/24 or 2001:db8::/32",
			s->prefix);
	return old ? change(object, s, old, &route, f) : create(object, s, &route, f);
}

// The route that an accepted spec means.
static int
parse_known(const Sluice__V1__Route *spec, struct route *route, struct object **vrf, struct fault *f)
{
	int error = vrf_need(spec->vrf, "vrf", &route->vrf, vrf, f);

	if (error)
		return error;
	object_unuse(*vrf);
	return prefix_parse(spec->prefix, route->prefix, &route->family, &route->length);
}

static int
route_delete(struct object *object, const void *spec, struct fault *f)
{
	struct object *vrf;
	struct route route;
	int error = parse_known(spec, &route, &vrf, f);

	if (error)
		return error;
	route_remove(route.vrf, route.family, route.prefix, route.length, ROUTE_STATIC);
	stop_leading(object->state);
	object_unuse(vrf);
	return 0;
}

void
routes_follow(void)
{
	struct object *object;
	uint64_t cursor = 0;

	while ((object = object_next(&route_kind, &cursor)) != NULL) {
		Sluice__V1__Route *spec;
		struct object *vrf;
		struct route route;
		struct fault f;

		if (!has_path(object) || !path_moved(path_of(object)))
			continue;
		spec = sluice__v1__route__unpack(NULL, object->spec_length, object->spec);
		if (spec && parse_known(spec, &route, &vrf, &f) == 0)
			route_change(route.vrf, route.family, route.prefix, route.length, ROUTE_STATIC,
				path_hop(path_of(object)), &f);
		sluice__v1__route__free_unpacked(spec, NULL);
	}
}

static struct kind route_kind = {
	.name = "Route", .spec = &sluice__v1__route__descriptor, .put = route_put, .delete = route_delete};
KIND_REGISTER(route_kind)
