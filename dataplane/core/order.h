// SPDX-License-Identifier: Apache-2.0
// The order of registered parts. Each part names others that come before it, and others that come behind it.
#pragma once

struct ordered {
	const char *name;
	// Names of the parts that come before this one, NULL behind the last. They need not be registered. NULL: none.
	const char *const *after;
	// The same of the parts that come behind this one.
	const char *const *before;
	struct ordered *next; // as registered
};

// Into `list` in an order in which all that come before one are before it; where it is free, by name. How many there are; -ELOOP if some
// come before each other, -ENOSPC if there are more than `room`.
int order(struct ordered *registered, struct ordered *list[], unsigned room);
