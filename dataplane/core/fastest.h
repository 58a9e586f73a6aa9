// Look-ups that are written in several ways, which give the same answers, one after the other or many at once in a vector: which
// is faster depends on the CPU. When the data plane starts, each way that the CPU has is tried on tables like real ones, for some
// hundred microseconds, and the fastest is used until the end; or the one that --look-up says.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { FASTEST_WAYS = 4 };

struct fastest_way {
	const char *name; // NULL: no more
	uint64_t needs;   // of the CPU: bits of enum cpu_feature
};

struct fastest {
	const char *name;
	struct fastest_way ways[FASTEST_WAYS]; // the first needs nothing
	// A table to try them on: how many look-ups a call of `run` makes, or a negative errno.
	int (*prepare)(void);
	// Look up in it, in the way that is in use.
	void (*run)(void);
	void (*finish)(void);
	void (*use)(unsigned way);
	// What came of it:
	unsigned way;
	double cycles[FASTEST_WAYS]; // a look-up, least; 0: not tried
	bool asked;                  // for by --look-up
	struct fastest *next;
};

// When the program is loaded (RTE_INIT).
void fastest_register(struct fastest *f);

// "NAME=WAY". 0, or -EINVAL after saying what is accepted: before fastest_start(), or while no worker looks up.
int fastest_ask(const char *text);
// Try what nobody asked for. 0 or a negative errno.
int fastest_start(void);

// In the order of their names; NULL: the end.
struct fastest *fastest_first(void);
// Whether this CPU has what the way needs.
bool fastest_has(const struct fastest *f, unsigned way);
// Use it from now on, while no worker looks up.
void fastest_use(struct fastest *f, unsigned way);
