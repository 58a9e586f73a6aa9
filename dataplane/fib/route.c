// SPDX-License-Identifier: Apache-2.0
// Route objects.
//
// A route stores only the number of its path beside its spec: the rest is in the fib and in the path, which routes share.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "contract_limits.h"
#include "core/packet.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "fib/next_hop.h"
#include "fib/next_hop_group.h"
#include "fib/path.h"
#include "fib/scope.h"
#include "fib/vrf.h"
#include "ip.pb-c.h"
#include "server/object.h"
#include "server/object_list.h"

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

static_assert(CONTRACT_ROUTE_NEXT_HOPS_MAX <= PATH_MEMBERS, "a path has room for all next hops");

// The path through the route's own next hops, a user of it more.
static int
own_path(const Sluice__V1__Route *spec, const struct route *route, uint32_t *path, struct fault *f)
{
	struct next_hop hops[PATH_MEMBERS];
	uint8_t family = route->family;
	unsigned count = 0;
	int error = 0;

	if (spec->n_next_hops == 0)
		return fault(f, EINVAL, "nextHops: a route that forwards needs at least one, or a nextHopGroup");
	while (count < spec->n_next_hops && error == 0) {
		error = next_hop_parse(spec->next_hops[count], route->vrf, &family, &hops[count], f);
		count++;
	}
	if (error == 0)
		error = path_take(route->vrf, route->family, hops, count, path, f);
	next_hops_free(hops, count);
	return error;
}

// The group's path, a user of both more.
static int
group_path(const Sluice__V1__Route *spec, const struct route *route, uint32_t *path, struct fault *f)
{
	struct object *group;
	int error = spec->n_next_hops > 0
			    ? fault(f, EINVAL,
				      "nextHopGroup: the route has nextHops of its own; "
				      "give one of the two")
			    : object_need(&next_hop_group_kind, spec->next_hop_group, "nextHopGroup", &group, f);

	if (error == 0)
		error = next_hop_group_path(group, route->vrf, route->family, path, f);
	if (error)
		return error;
	path_use(*path);
	object_use(group);
	return 0;
}

// Where the route leads: *hop, and *state as the object keeps it, a user of its path.
static int
lead(const Sluice__V1__Route *spec, const struct route *route, uint32_t *hop, void **state, struct fault *f)
{
	const char *what;
	uint32_t path;
	int error;

	*state = NULL;
	switch (spec->action) {
	case SLUICE__V1__ROUTE_ACTION__FORWARD:
		what = scope_not_forwarded(route->family, route->prefix, route->length);
		if (what)
			return fault(f, EINVAL,
				"prefix: %.64s is %s, to which nothing is forwarded; choose another, or action "
				"blackhole or prohibit",
				spec->prefix, what);
		break;
	case SLUICE__V1__ROUTE_ACTION__BLACKHOLE:
	case SLUICE__V1__ROUTE_ACTION__PROHIBIT:
		if (spec->n_next_hops > 0 || spec->next_hop_group[0] != '\0')
			return fault(
				f, EINVAL, "nextHops: a route that drops its packets has none, and no nextHopGroup");
		*hop = spec->action == SLUICE__V1__ROUTE_ACTION__BLACKHOLE ? hop_blackhole() : hop_prohibit();
		return 0;
	default:
		break;
	}
	error = spec->next_hop_group[0] != '\0' ? group_path(spec, route, &path, f) : own_path(spec, route, &path, f);
	if (error)
		return error;
	*hop = path_hop(path);
	*state = state_of(path);
	return 0;
}

// `group` is the spec's, or empty.
static void
stop_leading(void *state, const char *group)
{
	if (!state)
		return;
	path_release((uint32_t)((uintptr_t)state - 1));
	if (group[0] != '\0')
		object_unuse(object_find(&next_hop_group_kind, group));
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
		stop_leading(state, spec->next_hop_group);
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
		stop_leading(state, spec->next_hop_group);
		return error;
	}
	object->state = state;
	stop_leading(before, old->next_hop_group);
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
	const Sluice__V1__Route *s = spec;
	struct object *vrf;
	struct route route;
	int error = parse_known(s, &route, &vrf, f);

	if (error)
		return error;
	route_remove(route.vrf, route.family, route.prefix, route.length, ROUTE_STATIC);
	stop_leading(object->state, s->next_hop_group);
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
