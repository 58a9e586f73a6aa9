// SPDX-License-Identifier: Apache-2.0
#include "core/order.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static bool
is_placed(const struct ordered *one, struct ordered *const list[], unsigned placed)
{
	for (unsigned i = 0; i < placed; i++)
		if (list[i] == one)
			return true;
	return false;
}

static bool
names(const char *const *all, const char *name)
{
	for (; all && *all; all++)
		if (strcmp(*all, name) == 0)
			return true;
	return false;
}

// Nothing that comes before it is still without a place.
static bool
is_ready(const struct ordered *one, const struct ordered *registered, struct ordered *const list[], unsigned placed)
{
	for (const struct ordered *o = registered; o; o = o->next)
		if ((names(one->after, o->name) || names(o->before, one->name)) && !is_placed(o, list, placed))
			return false;
	return true;
}

int
order(struct ordered *registered, struct ordered *list[], unsigned room)
{
	unsigned count = 0;

	for (const struct ordered *o = registered; o; o = o->next)
		count++;
	if (count > room)
		return -ENOSPC;
	for (unsigned placed = 0; placed < count; placed++) {
		struct ordered *found = NULL;

		for (struct ordered *o = registered; o; o = o->next)
			if (!is_placed(o, list, placed) && is_ready(o, registered, list, placed) &&
				(!found || strcmp(o->name, found->name) < 0))
				found = o;
		if (!found)
			return -ELOOP;
		list[placed] = found;
	}
	return (int)count;
}
