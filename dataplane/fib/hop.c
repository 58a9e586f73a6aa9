// SPDX-License-Identifier: Apache-2.0
// The hops' array, and the hops that are always there.
#include "fib/hop.h"

#include <errno.h>

#include "core/drop.h"
#include "core/packet.h"
#include "core/rcu.h"

struct slab hops;

static const struct node *first_steps[HOP_KINDS];
static uint32_t blackhole, prohibit, unreachable;

DROP(drop_blackhole, "blackhole", "A blackhole route leads to the packet's destination.")

void
hop_kind_register(enum hop_kind kind, const struct node *node)
{
	first_steps[kind] = node;
}

static uint32_t
first_step(enum hop_kind kind)
{
	return first_steps[kind] ? chain_of(&first_steps[kind], 1) : 0;
}

static bool
start(void)
{
	if (hops.records)
		return true;
	if (slab_create(&hops, sizeof(struct hop), HOP_LIMIT))
		return false;
	// Index 0: there is no route.
	*hop_at(slab_take(&hops)) = (struct hop){
		.chain = first_step(HOP_NONE), .kind = HOP_NONE, .interface = NO_INTERFACE, .session = NO_SESSION};
	return true;
}

uint32_t
hop_new(enum hop_kind kind)
{
	uint32_t index = start() ? slab_take(&hops) : UINT32_MAX;
	struct hop *hop;

	if (index == UINT32_MAX)
		return index;
	hop = hop_at(index);
	*hop = (struct hop){
		.chain = first_step(kind), .kind = (uint8_t)kind, .interface = NO_INTERFACE, .session = NO_SESSION};
	return index;
}

uint32_t
hop_new_local(uint8_t flags)
{
	const struct node *const steps[] = {first_steps[HOP_NONE], first_steps[HOP_LOCAL]};
	uint32_t index = hop_new(HOP_LOCAL);

	if (index == UINT32_MAX)
		return index;
	hop_at(index)->flags = flags;
	hop_at(index)->chain = chain_of(steps, RTE_DIM(steps));
	return index;
}

void
hop_retire(uint32_t index)
{
	slab_give_later(&hops, index);
}

static uint32_t
shared(uint32_t *index, enum hop_kind kind)
{
	if (*index == 0) {
		uint32_t made = hop_new(kind);

		if (made == UINT32_MAX)
			return made;
		if (kind == HOP_DROP)
			hop_at(made)->drop = drop_blackhole.id;
		*index = made;
	}
	return *index;
}

uint32_t
hop_blackhole(void)
{
	return shared(&blackhole, HOP_DROP);
}

uint32_t
hop_prohibit(void)
{
	return shared(&prohibit, HOP_PROHIBIT);
}

uint32_t
hop_unreachable(void)
{
	return shared(&unreachable, HOP_NONE);
}
