// The kind Meter, and the buckets of those who use one.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_atomic.h>
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

static int
put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	struct meter_profile *profile = aligned_alloc(64, sizeof(*profile)), *before;
	struct meter_slot *slot;
	uint32_t index;
	int rc;

	if (!profile)
		return fault(f, ENOMEM, "meter %.63s: there is no memory left for it", object->name);
	rc = meter_profile_parse(object->name, spec, rte_get_tsc_hz(), profile, f);
	if (rc != 0) {
		free(profile);
		return rc;
	}
	index = old ? profile_of(object) : slab_take(&meter_profiles);
	if (index == UINT32_MAX) {
		free(profile);
		return fault(f, ENOSPC, "meter %.63s: there are %d meters already", object->name, PROFILE_LIMIT);
	}
	object->state = (void *)(uintptr_t)index;
	slot = slab_at(&meter_profiles, index);
	before = atomic_exchange(&slot->profile, profile);
	if (before)
		rcu_retire(free, before);
	return 0;
}

// Nobody uses the profile any more, but a worker may still be busy with a packet of its last user, so the slot keeps it until
// then.
static void
release_profile(void *slot)
{
	free(atomic_exchange(&((struct meter_slot *)slot)->profile, NULL));
}

static int delete (struct object *object, const void *spec, struct fault *f)
{
	// In this order: the slot goes to somebody else only after it was emptied.
	rcu_retire(release_profile, slab_at(&meter_profiles, profile_of(object)));
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
meter_new(struct object *profile)
{
	const struct meter_contract *contract = &meter_profile_at(profile_of(profile))->contract;
	uint32_t index = slab_take(&meters);

	if (index != UINT32_MAX)
		*meter_at(index) =
			(struct meter){.state = {rte_rdtsc(), contract->committed_burst, contract->excess_burst},
				.profile = profile_of(profile)};
	return index;
}

void
meter_retire(uint32_t meter)
{
	slab_give_later(&meters, meter);
}

enum colour
meter_colour_shared(struct meter_state *state, const struct meter_contract *contract, const struct meter_moment *now,
	uint32_t bytes, enum colour incoming)
{
	// Of several workers that ask at once one always succeeds, so that this many failures in a row do not happen to one
	// with few enough workers; if they did, the packet would not be let out of the contract.
	enum { TRIES = 256 };
	rte_int128_t before, after;

	// The halves may be of different moments; then the swap fails and reads both.
	before.val[0] = __atomic_load_n(&state->time, __ATOMIC_RELAXED);
	before.val[1] = __atomic_load_n((uint64_t *)(void *)&state->committed, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < TRIES; i++) {
		struct meter_state mine;
		enum colour colour;

		memcpy(&mine, &before, sizeof(mine));
		colour = meter_colour(&mine, contract, now, bytes, incoming);
		memcpy(&after, &mine, sizeof(after));
		if (rte_atomic128_cmp_exchange(
			    (rte_int128_t *)(void *)state, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return colour;
	}
	return RED;
}

struct kind meter_kind = {
	.name = "Meter",
	.spec = &sluice__v1__meter__descriptor,
	.put = put,
	.delete = delete,
	.start = start,
};
KIND_REGISTER(meter_kind)
