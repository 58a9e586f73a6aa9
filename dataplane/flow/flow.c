// SPDX-License-Identifier: Apache-2.0
// The kind FlowProfile: made ready beside the main thread, and then put in the place of the one before with one store.
#include <errno.h>
#include <string.h>

#include "core/rcu.h"
#include "flow/cells.h"
#include "flow/profile.h"

struct slab flow_slots;
uint32_t *session_flows;

// Filters of all profiles, by enum direction.
static size_t filters[2];

static int
prepare(const char *name, const void *spec, const atomic_bool *unwanted, void **prepared, struct fault *f)
{
	struct flow_profile *profile = NULL;
	int error = flow_profile_create(name, spec, unwanted, &profile, f);

	*prepared = profile;
	return error;
}

static void
discard(void *prepared)
{
	flow_profile_destroy(prepared);
}

static size_t
filters_of(const struct flow_profile *profile, enum direction direction)
{
	return profile ? profile->filters[direction] : 0;
}

// Each QFI that the profile does not list has the meters of packets without a QFI.
static void
fill_unlisted(struct flow_meters *meters)
{
	for (enum direction d = UP; d <= DOWN; d++)
		for (unsigned qfi = 0; qfi < QFIS; qfi++)
			if (!(meters->listed & 1ull << qfi))
				memcpy(meters->of[d][qfi], meters->of[d][QFIS], sizeof(meters->of[d][qfi]));
}

static int
need_meters(struct flow_meters *meters, struct fault *f)
{
	for (unsigned i = 0; meters && i < meters->count; i++) {
		struct flow_meter *one = &meters->sources[i];
		const char *const fields[2][2] = {
			{"flows.metersUp", "flows.metersDown"}, {"otherMetersUp", "otherMetersDown"}};
		const char *field = fields[one->qfi == QFIS][one->direction];
		int error = object_need(&meter_kind, one->name, field, &one->object, f);

		if (error)
			return error;
		meters->of[one->direction][one->qfi][one->place] = meter_global(one->object);
		if (meters->of[one->direction][one->qfi][one->place] == NO_METER && one->qfi < QFIS)
			return fault(f, EINVAL, "%s: meter %.63s of QFI %u: set its scope to global", field, one->name,
				one->qfi);
		if (meters->of[one->direction][one->qfi][one->place] == NO_METER)
			return fault(f, EINVAL, "%s: meter %.63s: set its scope to global", field, one->name);
	}
	if (meters)
		fill_unlisted(meters);
	return 0;
}

static void
use_meters(const struct flow_profile *profile, bool use)
{
	for (unsigned i = 0; profile && profile->meters && i < profile->meters->count; i++)
		if (use)
			object_use(profile->meters->sources[i].object);
		else
			object_unuse(profile->meters->sources[i].object);
}

static int
put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	struct flow_profile *profile = object->prepared, *before;
	uint32_t index = flow_of(object);
	struct flow_slot *slot;
	int error = need_meters(profile->meters, f);

	if (error)
		return error;
	before = object->state ? atomic_load(&((struct flow_slot *)slab_at(&flow_slots, index))->profile) : NULL;
	for (enum direction d = UP; d <= DOWN; d++)
		if (filters[d] - filters_of(before, d) + profile->filters[d] > FLOW_FILTERS)
			return fault(f, ENOSPC,
				"flow profile %.63s, rules: with its %zu %s filters there would be more than the %d "
				"that all "
				"profiles can have together; take some out",
				object->name, profile->filters[d], d == UP ? "uplink" : "downlink", FLOW_FILTERS);
	index = object->state ? index : slab_take(&flow_slots);
	if (index == UINT32_MAX)
		return fault(f, ENOSPC, "flow profile %.63s: there are %d already", object->name, FLOW_PROFILES);
	object->state = (void *)((uintptr_t)index + 1);
	slot = slab_at(&flow_slots, index);
	for (enum direction d = UP; d <= DOWN; d++)
		filters[d] = filters[d] - filters_of(before, d) + profile->filters[d];
	use_meters(profile, true);
	use_meters(before, false);
	atomic_store(&slot->profile, profile);
	object->prepared = NULL;
	if (before && before->listed != profile->listed)
		flow_cells_follow_all(index, profile->listed);
	if (before)
		rcu_retire(discard, before);
	return 0;
}

static int delete (struct object *object, const void *spec, struct fault *f)
{
	struct flow_slot *slot = slab_at(&flow_slots, flow_of(object));
	struct flow_profile *profile = atomic_exchange(&slot->profile, NULL);

	for (enum direction d = UP; d <= DOWN; d++)
		filters[d] -= filters_of(profile, d);
	use_meters(profile, false);
	rcu_retire(discard, profile);
	slab_give_later(&flow_slots, flow_of(object));
	return 0;
}

static int
start(void)
{
	session_flows = slab_reserve(sizeof(*session_flows) * SESSION_LIMIT);
	if (!session_flows)
		return -ENOMEM;
	if (slab_create(&flow_slots, sizeof(struct flow_slot), FLOW_PROFILES))
		return -ENOMEM;
	return flow_cells_start();
}

struct kind flow_kind = {
	.name = "FlowProfile",
	.spec = &sluice__v1__flow_profile__descriptor,
	.prepare = prepare,
	.discard = discard,
	.put = put,
	.delete = delete,
	.start = start,
};
KIND_REGISTER(flow_kind)
