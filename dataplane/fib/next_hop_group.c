// SPDX-License-Identifier: Apache-2.0
// Next hops that routes share (kind NextHopGroup).
//
// A group has a path for each family that its next hops serve. The path's hop stays while its next hops change, so a change touches
// the hop's table of slots and no route.
#include "contract_limits.h"
#include "fib/next_hop_group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fib/path.h"
#include "fib/vrf.h"
#include "ip.pb-c.h"

enum { NO_PATH = UINT32_MAX, FAMILIES = 2 };

static const uint8_t families[FAMILIES] = {4, 6};

struct group {
	struct object *vrf_object; // NULL: default
	uint16_t vrf;
	uint32_t paths[FAMILIES]; // or NO_PATH
};

struct next_hops {
	uint8_t family; // 0: both, as there are no addresses
	unsigned count;
	struct next_hop list[PATH_MEMBERS];
};

static_assert(CONTRACT_NEXT_HOP_GROUP_NEXT_HOPS_MAX <= PATH_MEMBERS, "a path has room for all next hops");

// Free them with next_hops_free(), also after an error.
static int
parse(const Sluice__V1__NextHopGroup *spec, uint16_t vrf, struct next_hops *n, struct fault *f)
{
	int error = 0;

	n->family = 0;
	n->count = 0;
	while (n->count < spec->n_next_hops && error == 0) {
		error = next_hop_parse(spec->next_hops[n->count], vrf, &n->family, &n->list[n->count], f);
		n->count++;
	}
	return error;
}

static bool
serves(const struct next_hops *n, unsigned i)
{
	return n->family == 0 || n->family == families[i];
}

// Paths for the next hops, from those for `old` (NULL: none). After an error all are as before.
static int
lead(struct group *g, const struct next_hops *n, const struct next_hops *old, struct fault *f)
{
	uint32_t before[FAMILIES] = {g->paths[0], g->paths[1]};
	int error = 0;

	for (unsigned i = 0; i < FAMILIES; i++)
		if (before[i] != NO_PATH && !serves(n, i) && path_users(before[i]) > 1)
			return fault(f, EBUSY,
				"nextHops: routes of IPv%u refer to the group, and no next hop is IPv%u's", families[i],
				families[i]);
	for (unsigned i = 0; i < FAMILIES && error == 0; i++) {
		if (!serves(n, i))
			continue;
		if (before[i] != NO_PATH)
			error = path_change(before[i], n->list, n->count, f);
		else
			error = path_make(g->vrf, families[i], n->list, n->count, &g->paths[i], f);
		if (error == 0 || !old)
			continue;
		// It is the second family's: the first's goes back. Its old hops are still there.
		if (i > 0 && before[0] != NO_PATH) {
			struct fault ignored;

			path_change(before[0], old->list, old->count, &ignored);
		}
	}
	for (unsigned i = 0; i < FAMILIES; i++) {
		if (error && before[i] == NO_PATH && g->paths[i] != NO_PATH)
			path_release(g->paths[i]);
		if (error)
			g->paths[i] = before[i];
		if (error == 0 && before[i] != NO_PATH && !serves(n, i)) {
			path_release(before[i]);
			g->paths[i] = NO_PATH;
		}
	}
	return error;
}

static int
create(struct object *object, const Sluice__V1__NextHopGroup *spec, struct fault *f)
{
	struct group *g = malloc(sizeof(*g));
	struct next_hops n;
	int error;

	if (!g)
		return fault(f, ENOMEM, "there is no memory for the group");
	*g = (struct group){.paths = {NO_PATH, NO_PATH}};
	error = vrf_need(spec->vrf, "vrf", &g->vrf, &g->vrf_object, f);
	if (error) {
		free(g);
		return error;
	}
	error = parse(spec, g->vrf, &n, f);
	if (error == 0)
		error = lead(g, &n, NULL, f);
	next_hops_free(n.list, n.count);
	if (error) {
		object_unuse(g->vrf_object);
		free(g);
		return error;
	}
	object->state = g;
	return 0;
}

static int
put(struct object *object, const void *desired, const void *previous, struct fault *f)
{
	const Sluice__V1__NextHopGroup *spec = desired, *old = previous;
	struct group *g = object->state;
	struct next_hops n, before;
	struct fault ignored;
	int error;

	if (!old)
		return create(object, spec, f);
	if (strcmp(spec->vrf, old->vrf) != 0)
		return fault(f, EINVAL, "vrf: it cannot be changed; delete the group and create it again");
	error = parse(spec, g->vrf, &n, f);
	before.count = 0;
	if (error == 0)
		error = lead(g, &n, parse(old, g->vrf, &before, &ignored) == 0 ? &before : NULL, f);
	next_hops_free(n.list, n.count);
	next_hops_free(before.list, before.count);
	return error;
}

static int delete (struct object *object, const void *spec, struct fault *f)
{
	struct group *g = object->state;

	for (unsigned i = 0; i < FAMILIES; i++)
		if (g->paths[i] != NO_PATH)
			path_release(g->paths[i]);
	object_unuse(g->vrf_object);
	free(g);
	return 0;
}

int
next_hop_group_path(const struct object *object, uint16_t vrf, uint8_t family, uint32_t *path, struct fault *f)
{
	const struct group *g = object->state;

	if (g->vrf != vrf)
		return fault(f, EINVAL, "nextHopGroup: %.64s is in VRF \"%.64s\", the route is in \"%.64s\"",
			object->name, vrf_name(g->vrf), vrf_name(vrf));
	*path = g->paths[family == 4 ? 0 : 1];
	if (*path == NO_PATH)
		return fault(f, EINVAL, "nextHopGroup: the next hops of %.64s are not IPv%u addresses", object->name,
			family);
	return 0;
}

struct kind next_hop_group_kind = {
	.name = "NextHopGroup", .spec = &sluice__v1__next_hop_group__descriptor, .put = put, .delete = delete};
KIND_REGISTER(next_hop_group_kind)
