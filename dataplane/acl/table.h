// SPDX-License-Identifier: Apache-2.0
// The lists that there are, by index, as workers find them.
#pragma once

#include <stdatomic.h>

#include "acl/list.h"
#include "core/slab.h"

enum { ACL_LIMIT = 1 << 20 };

// The one thing that changes when a list is replaced.
struct acl_slot {
	struct acl_list *_Atomic list; // NULL: unused
};

extern struct slab acl_slots; // struct acl_slot

static inline const struct acl_list *
acl_list_at(uint32_t index)
{
	struct acl_slot *slot = slab_at(&acl_slots, index);

	return atomic_load_explicit(&slot->list, memory_order_acquire);
}
