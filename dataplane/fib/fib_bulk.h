// SPDX-License-Identifier: Apache-2.0
// The ways in which a burst of addresses is looked up in a fib. All give the same answers.
#pragma once

#include "fib/fib.h"

enum { FIB_WAYS = 3 };

struct fib4_way {
	const char *name; // NULL: no more
	uint64_t needs;   // of the CPU: bits of enum cpu_feature
	fib4_bulk *find;
};

struct fib6_way {
	const char *name;
	uint64_t needs;
	fib6_bulk *find;
};

extern const struct fib4_way fib4_ways[FIB_WAYS];
extern const struct fib6_way fib6_ways[FIB_WAYS];
