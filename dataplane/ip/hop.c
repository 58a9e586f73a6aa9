// The hops' array, and the hops that are always there.
#include "ip/hop.h"

#include <errno.h>

#include "core/drop.h"
#include "core/packet.h"
#include "core/rcu.h"

struct slab hops;

static uint32_t blackhole, prohibit, unreachable;

DROP(drop_blackhole, "blackhole", "A blackhole route leads to the packet's destination.")

static bool
start(void)
{
	if (hops.records)
		return true;
	if (slab_create(&hops, sizeof(struct hop), HOP_LIMIT))
		return false;
	// Index 0: there is no route.
	*hop_at(slab_take(&hops)) = (struct hop){
		.chain = ip_special_node.id, .kind = HOP_NONE, .interface = NO_INTERFACE, .session = NO_SESSION};
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
	*hop = (struct hop){.kind = (uint8_t)kind, .interface = NO_INTERFACE, .session = NO_SESSION};
	if (kind == HOP_LOCAL)
		hop->chain = ip_local_node.id;
	else if (kind == HOP_DROP || kind == HOP_PROHIBIT || kind == HOP_NONE)
		hop->chain = ip_special_node.id;
	else if (kind == HOP_SPREAD)
		hop->chain = ip_spread_node.id;
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
