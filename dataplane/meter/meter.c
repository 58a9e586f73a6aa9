// SPDX-License-Identifier: Apache-2.0
// The kind Meter, and the buckets of its users.
#include <errno.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "core/rcu.h"
#include "meter/meter.h"
#include "meter/profile.h"

struct slab meters;
struct slab meter_profiles;

static uint32_t
profile_of(const struct object *object)
{
	return (uint32_t)(uintptr_t)object->state;
}

// The parts that users of one profile share from the start.
static int
make_shared(const char *name, const Sluice__V1__Meter *spec, struct meter_profile *profile, struct meter_slot *slot,
	uint32_t index, struct fault *f)
{
	uint32_t flows = spec->flows ? spec->flows : FLOWS_DEFAULT, meter;

	slot->shared = 0;
	if (spec->scope == SLUICE__V1__METER_SCOPE__SESSION)
		return 0;
	if (spec->scope == SLUICE__V1__METER_SCOPE__FLOW && meter_flows_create(&profile->flows, flows))
		return fault(f, ENOMEM, "meter %.63s, flows: there is no memory for %u of them", name, flows);
	meter = slab_take(&meters);
	if (meter == UINT32_MAX) {
		meter_flows_destroy(&profile->flows);
		return fault(f, ENOSPC, "meter %.63s: there is no room for more token buckets", name);
	}
	*meter_at(meter) = (struct meter){
		.state = {rte_rdtsc(), profile->contract.committed_burst, profile->contract.excess_burst},
		.profile = index};
	slot->shared = meter | (spec->scope == SLUICE__V1__METER_SCOPE__GLOBAL ? METER_GLOBAL : METER_FLOWS);
	return 0;
}

static int
create(struct object *object, const Sluice__V1__Meter *spec, struct meter_profile *profile, struct fault *f)
{
	uint32_t index = slab_take(&meter_profiles);
	struct meter_slot *slot;
	int rc;

	if (index == UINT32_MAX)
		return fault(f, ENOSPC, "meter %.63s: there are %d meters already", object->name, PROFILE_LIMIT);
	slot = slab_at(&meter_profiles, index);
	rc = make_shared(object->name, spec, profile, slot, index, f);
	if (rc != 0) {
		slab_give(&meter_profiles, index);
		return rc;
	}
	object->state = (void *)(uintptr_t)index;
	atomic_store(&slot->profile, profile);
	return 0;
}

static int
change(struct object *object, const Sluice__V1__Meter *spec, const Sluice__V1__Meter *old,
	struct meter_profile *profile, struct fault *f)
{
	struct meter_slot *slot = slab_at(&meter_profiles, profile_of(object));

	if (spec->scope != old->scope || spec->flows != old->flows)
		return fault(f, EINVAL,
			"meter %.63s, scope, flows: they cannot change while the meter exists; delete it first",
			object->name);
	profile->flows = meter_profile_at(profile_of(object))->flows;
	rcu_retire(free, atomic_exchange(&slot->profile, profile));
	return 0;
}

static int
put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	struct meter_profile *profile = aligned_alloc(64, sizeof(*profile));
	int rc;

	if (!profile)
		return fault(f, ENOMEM, "meter %.63s: there is no memory left for it", object->name);
	rc = meter_profile_parse(object->name, spec, rte_get_tsc_hz(), profile, f);
	if (rc == 0)
		rc = old ? change(object, spec, old, profile, f) : create(object, spec, profile, f);
	if (rc != 0)
		free(profile);
	return rc;
}

// The profile has no users, but a worker may still process a packet of the last one, so the slot holds the profile until
// then.
static void
release_profile(void *slot)
{
	struct meter_profile *profile = atomic_exchange(&((struct meter_slot *)slot)->profile, NULL);

	meter_flows_destroy(&profile->flows);
	free(profile);
}

static int delete (struct object *object, const void *spec, struct fault *f)
{
	struct meter_slot *slot = slab_at(&meter_profiles, profile_of(object));

	if (slot->shared)
		slab_give_later(&meters, slot->shared & METER_INDEX);
	// In this order: the slot gets another user only after it was emptied.
	rcu_retire(release_profile, slot);
	slab_give_later(&meter_profiles, profile_of(object));
	return 0;
}

static int
start(void)
{
	int rc = slab_create(&meter_profiles, sizeof(struct meter_slot), PROFILE_LIMIT);

	return rc != 0 ? rc : slab_create(&meters, sizeof(struct meter), METER_LIMIT);
}

uint32_t
meter_global(const struct object *object)
{
	const struct meter_slot *slot = slab_at(&meter_profiles, profile_of(object));

	return slot->shared & METER_GLOBAL ? slot->shared : NO_METER;
}

uint32_t
meter_new(struct object *object)
{
	const struct meter_slot *slot = slab_at(&meter_profiles, profile_of(object));
	const struct meter_contract *contract = &meter_profile_at(profile_of(object))->contract;
	uint32_t index;

	if (slot->shared)
		return slot->shared;
	index = slab_take(&meters);
	if (index != UINT32_MAX)
		*meter_at(index) =
			(struct meter){.state = {rte_rdtsc(), contract->committed_burst, contract->excess_burst},
				.profile = profile_of(object)};
	return index;
}

void
meter_retire(uint32_t meter)
{
	if ((meter & ~(uint32_t)METER_INDEX) == 0)
		slab_give_later(&meters, meter);
}

struct kind meter_kind = {
	.name = "Meter",
	.spec = &sluice__v1__meter__descriptor,
	.put = put,
	.delete = delete,
	.start = start,
};
KIND_REGISTER(meter_kind)
