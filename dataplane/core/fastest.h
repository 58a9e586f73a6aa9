// SPDX-License-Identifier: Apache-2.0
// Look-ups with several implementations that give the same answers, one after the other or many at once in a vector.
// The fastest depends on the CPU. When the data plane starts, each way that the CPU has is tried on tables like real
// ones, for some hundred microseconds, and the fastest is used until the end, or that of --look-up.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { FASTEST_WAYS = 8 };

struct fastest_way {
	const char *name; // NULL: no more
	uint64_t needs;   // of the CPU: bits of enum cpu_feature
};

// Other work than look-ups may have several ways, too (crypto/choice.c). A concept that registers it with an option of its own chooses the way
// itself: such an entry has no functions.
struct fastest {
	const char *name;
	const char *option;                    // of the command line, without "--"; NULL: "look-up"
	struct fastest_way ways[FASTEST_WAYS]; // the first needs nothing
	// A table to try them on: how many look-ups a call of `run` makes, or a negative errno.
	int (*prepare)(void);
	// Look up in it, in the selected way.
	void (*run)(void);
	void (*finish)(void);
	void (*use)(unsigned way);
	// The result:
	unsigned way;
	double cycles[FASTEST_WAYS]; // a look-up, minimum; 0: not tried
	bool asked;                  // for by --look-up
	struct fastest *next;
};

// When the program is loaded (RTE_INIT).
void fastest_register(struct fastest *f);

// "NAME=WAY" of this option. 0, or -EINVAL after printing the accepted values. Before fastest_start(), or while no worker looks up.
int fastest_select(const char *option, const char *text);
// Whether it belongs to this option.
bool fastest_of(const struct fastest *f, const char *option);
// Try the ways of each look-up that no option sets. 0 or a negative errno.
int fastest_start(void);

// In the order of their names; NULL: the end.
struct fastest *fastest_first(void);
// Whether this CPU has the instructions of the way.
bool fastest_has(const struct fastest *f, unsigned way);
// Use it from now on, while no worker looks up.
void fastest_use(struct fastest *f, unsigned way);
