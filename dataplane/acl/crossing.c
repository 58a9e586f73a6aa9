// SPDX-License-Identifier: Apache-2.0
// Counts the parts that rules which cross each other make.
#include "acl/crossing.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include <rte_common.h>

struct crossing {
	const struct cuts_rule *rules;
	const unsigned *order;
	unsigned dimensions;
	size_t parts, most;
	uint16_t live[CUTS_MAX + 1][CROSSING_RULES]; // the rules that reach into a part, by dimension
};

static int
by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

// Behind the last dimension: each code point that some rule names, and each way in which the TCP flags that they name are set.
static void
count_marks(struct crossing *c, const uint16_t *live, unsigned count)
{
	uint64_t points = 0;
	uint32_t flags = 0;

	for (unsigned i = 0; i < count; i++) {
		const struct cuts_rule *rule = &c->rules[live[i]];

		if (rule->marks_mask >> 8 & 0xff)
			points |= UINT64_C(1) << (rule->marks >> 8 & 0x3f);
		flags |= rule->marks_mask >> 16 & 0xff;
	}
	c->parts += ((size_t)__builtin_popcountll(points) + 1) << __builtin_popcount(flags);
}

static void
divide(struct crossing *c, unsigned depth, unsigned count)
{
	const uint16_t *live = c->live[depth];
	uint32_t starts[2 * CROSSING_RULES];
	unsigned found = 0, d;

	if (depth == c->dimensions) {
		count_marks(c, live, count);
		return;
	}
	d = c->order[depth];
	for (unsigned i = 0; i < count; i++) {
		starts[found++] = c->rules[live[i]].low[d];
		if (c->rules[live[i]].high[d] < UINT32_MAX)
			starts[found++] = c->rules[live[i]].high[d] + 1;
	}
	qsort(starts, found, sizeof(starts[0]), by_value);
	for (unsigned s = 0; s < found && c->parts < c->most; s++) {
		unsigned reach = 0;

		if (s > 0 && starts[s] == starts[s - 1])
			continue;
		for (unsigned i = 0; i < count; i++)
			if (c->rules[live[i]].low[d] <= starts[s] && starts[s] <= c->rules[live[i]].high[d])
				c->live[depth + 1][reach++] = live[i];
		if (reach > 0)
			divide(c, depth + 1, reach);
	}
}

size_t
crossing_parts(const struct cuts_rule *rules, size_t count, const unsigned *order, unsigned dimensions, size_t most)
{
	struct crossing c = {.rules = rules, .order = order, .dimensions = dimensions, .most = most};

	assert(count <= CROSSING_RULES && dimensions <= CUTS_MAX);
	for (uint16_t i = 0; i < count; i++)
		c.live[0][i] = i;
	divide(&c, 0, (unsigned)count);
	return c.parts;
}
