// The kind FlowProfile: made ready beside the main thread, and then put in the place of the one before with one store.
#include <errno.h>

#include "core/rcu.h"
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

static int
put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	struct flow_profile *profile = object->prepared, *before;
	uint32_t index = flow_of(object);
	struct flow_slot *slot;

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
	atomic_store(&slot->profile, profile);
	object->prepared = NULL;
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
	return slab_create(&flow_slots, sizeof(struct flow_slot), FLOW_PROFILES);
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
