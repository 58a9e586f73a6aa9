// SPDX-License-Identifier: Apache-2.0
// The tree of cuts: making it, and finding the cells of a burst of keys side by side.
#include "acl/cuts.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_prefetch.h>

enum {
	LANES = 8, // rules compared at once
	KEYS_MAX = 256,
	SAMPLE = 64, // rules of a cell that are asked where to cut
	DEPTH_MAX = 48,
	CELL = 0xff, // instead of a node's dimension: there is no cut
	ROOTS = 2,
	WIDE = 24, // bits left open in the first word of an address: a cut there leaves the rule on both sides
	// Limit of a list's groups: some for each of its own, and always as many as a few tens of megabytes hold.
	COPIES = 6,
	COPIES_MAX = 64,
	GROUPS_MAX = 100000,
};

typedef uint32_t lanes __attribute__((vector_size(LANES * sizeof(uint32_t))));

// A key goes to `below` if its number is at most `last`, else to the node behind that. Or a cell: `last` groups from `below` on.
struct node {
	uint32_t last, below;
	uint8_t dimension;
};

struct cuts {
	unsigned dimensions;
	struct node *nodes;
	// Groups of LANES rules, in order: marks and their mask, for each dimension but the first two the low end and how far it
	// is from there to the high one, and verdicts. A place without a rule has verdict 0.
	lanes *groups;
	unsigned roots; // the first nodes: their results form one list
	uint32_t node_count, node_room, group_count, group_room;
	uint64_t work;
};

// In `lanes`.
static inline uint32_t
group_size(unsigned dimensions)
{
	return 2 + 2 * (dimensions - 2) + 1;
}

// The tree under construction.
struct cutter {
	struct cuts *cuts;
	const struct cuts_rule *rules;
	uint32_t *lists; // rules of the cells from the root to here, one behind the other
	size_t used, room;
	uint32_t low[CUTS_MAX], high[CUTS_MAX]; // of the cell
	const atomic_bool *unwanted;
	uint64_t work;
	int error;
};

static void *
grown(void *memory, size_t needed, uint32_t *room, size_t size)
{
	size_t more = RTE_MAX(needed, (size_t)*room * 3 / 2 + 64);
	void *bigger;

	if (memory && needed <= *room)
		return memory;
	if (more > UINT32_MAX)
		return NULL;
	bigger = aligned_alloc(64, RTE_ALIGN_CEIL(more * size, 64));
	if (bigger && memory)
		memcpy(bigger, memory, *room * size);
	if (bigger) {
		free(memory);
		*room = (uint32_t)more;
	}
	return bigger;
}

// Every key of the cell matches the rule.
static bool
covers(const struct cutter *c, const struct cuts_rule *rule)
{
	if (rule->marks_mask & ~(uint32_t)CUTS_SAID)
		return false;
	for (unsigned d = 0; d < c->cuts->dimensions; d++)
		if (rule->low[d] > c->low[d] || rule->high[d] < c->high[d])
			return false;
	return true;
}

// Append those of `count` rules from `list` on that reach into the cell. A rule behind one that covers the cell never matches first.
static size_t
select_rules(struct cutter *c, size_t list, size_t count, unsigned dimension)
{
	size_t start = c->used;

	if (c->used + count > c->room) {
		size_t room = 2 * (c->used + count);
		uint32_t *lists = realloc(c->lists, room * sizeof(*lists));

		if (!lists) {
			c->error = -ENOMEM;
			return 0;
		}
		c->lists = lists;
		c->room = room;
	}
	c->work += count;
	for (size_t i = list; i < list + count; i++) {
		const struct cuts_rule *rule = &c->rules[c->lists[i]];

		if (rule->low[dimension] > c->high[dimension] || rule->high[dimension] < c->low[dimension])
			continue;
		c->lists[c->used++] = c->lists[i];
		if (covers(c, rule))
			break;
	}
	return c->used - start;
}

static int
by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

struct cut {
	unsigned dimension;
	uint32_t last;
};

// Find the best place to divide a sample of the cell's rules: by the squares of the numbers on each side. False: there is none.
static bool
choose_cut(struct cutter *c, size_t list, size_t count, struct cut *cut)
{
	size_t step = (count + SAMPLE - 1) / SAMPLE;
	unsigned sample = (unsigned)((count + step - 1) / step);
	const struct cuts_rule *rules[SAMPLE];
	uint64_t best = 2 * (uint64_t)sample * sample;

	for (unsigned i = 0; i < sample; i++)
		rules[i] = &c->rules[c->lists[list + i * step]];
	for (unsigned d = 0; d < c->cuts->dimensions; d++) {
		uint32_t ends[2 * SAMPLE];
		unsigned found = 0;

		for (unsigned i = 0; i < sample; i++) {
			if (rules[i]->low[d] > c->low[d])
				ends[found++] = rules[i]->low[d] - 1;
			if (rules[i]->high[d] < c->high[d])
				ends[found++] = rules[i]->high[d];
		}
		if (found == 0)
			continue;
		qsort(ends, found, sizeof(ends[0]), by_value);
		c->work += 8 * found;
		for (unsigned quarter = 1; quarter <= 3; quarter++) {
			uint32_t last = ends[found * quarter / 4];
			uint64_t below = 0, above = 0, cost;

			for (unsigned i = 0; i < sample; i++) {
				below += rules[i]->low[d] <= last;
				above += rules[i]->high[d] > last;
			}
			cost = below * below + above * above;
			if (cost < best) {
				best = cost;
				*cut = (struct cut){d, last};
			}
		}
	}
	return best < 2 * (uint64_t)sample * sample;
}

static void
make_cell(struct cutter *c, uint32_t node, size_t list, size_t count)
{
	struct cuts *cuts = c->cuts;
	uint32_t groups = (uint32_t)((count + LANES - 1) / LANES);
	uint32_t size = group_size(cuts->dimensions);
	lanes *room;

	if (count > CUTS_CELL) {
		c->error = -E2BIG;
		return;
	}
	room = grown(cuts->groups, (size_t)cuts->group_count + groups, &cuts->group_room, size * sizeof(lanes));
	if (!room) {
		c->error = -ENOMEM;
		return;
	}
	cuts->groups = room;
	cuts->nodes[node] = (struct node){groups, cuts->group_count, CELL};
	for (size_t i = 0; i < (size_t)groups * LANES; i++) {
		static const struct cuts_rule none;
		const struct cuts_rule *rule = i < count ? &c->rules[c->lists[list + i]] : &none;
		lanes *group = &room[(cuts->group_count + i / LANES) * size];
		unsigned lane = i % LANES;

		(*group++)[lane] = rule->marks;
		(*group++)[lane] = rule->marks_mask;
		for (unsigned d = 2; d < cuts->dimensions; d++) {
			(*group++)[lane] = rule->low[d];
			(*group++)[lane] = rule->high[d] - rule->low[d];
		}
		(*group)[lane] = rule->verdict;
	}
	cuts->group_count += groups;
}

static size_t
groups_of(size_t rules)
{
	return (rules + LANES - 1) / LANES;
}

// Make the cell's node, and the nodes below it, with at most `budget` groups.
static void
divide(struct cutter *c, uint32_t node, size_t list, size_t count, size_t budget, unsigned depth)
{
	struct cuts *cuts = c->cuts;
	size_t used = c->used, below, above, needed, share;
	uint32_t first = cuts->node_count, end;
	struct node *nodes;
	struct cut cut;

	if (!c->error && c->work > CUTS_WORK)
		c->error = -E2BIG;
	if (!c->error && c->unwanted && atomic_load_explicit(c->unwanted, memory_order_relaxed))
		c->error = -ECANCELED;
	if (c->error)
		return;
	if (count <= LANES || depth == DEPTH_MAX || !choose_cut(c, list, count, &cut)) {
		make_cell(c, node, list, count);
		return;
	}
	end = c->high[cut.dimension];
	c->high[cut.dimension] = cut.last;
	below = select_rules(c, list, count, cut.dimension);
	c->high[cut.dimension] = end;
	end = c->low[cut.dimension];
	c->low[cut.dimension] = cut.last + 1;
	above = select_rules(c, list, count, cut.dimension);
	c->low[cut.dimension] = end;
	needed = groups_of(below) + groups_of(above);
	if (c->error || needed > budget) {
		c->used = used;
		make_cell(c, node, list, count);
		return;
	}
	nodes = grown(cuts->nodes, (size_t)first + 2, &cuts->node_room, sizeof(*nodes));
	if (!nodes) {
		c->error = -ENOMEM;
		return;
	}
	cuts->nodes = nodes;
	cuts->node_count += 2;
	nodes[node] = (struct node){cut.last, first, (uint8_t)cut.dimension};
	// Each rule of the cell reaches into one of the two: `needed` is not 0.
	share = budget * groups_of(below) / needed;
	end = c->high[cut.dimension];
	c->high[cut.dimension] = cut.last;
	divide(c, first, used, below, share, depth + 1);
	c->high[cut.dimension] = end;
	end = c->low[cut.dimension];
	c->low[cut.dimension] = cut.last + 1;
	divide(c, first + 1, used + below, above, budget - share, depth + 1);
	c->low[cut.dimension] = end;
	c->used = used;
}

// Rules that say something of one address only are of two sorts: a tree with both has each of one sort in every cell of the
// other (Vamanan and others, "EffiCuts", SIGCOMM 2010). These have a tree of their own.
static bool
is_apart(const struct cuts_rule *rule, unsigned dimensions)
{
	unsigned source = 2, destination = dimensions / 2;

	return (rule->high[source] - rule->low[source]) >> WIDE &&
	       !((rule->high[destination] - rule->low[destination]) >> WIDE);
}

static void
plant(struct cutter *c, size_t count, bool all, bool apart, uint32_t root)
{
	size_t own = 0, budget;

	for (uint32_t i = 0; i < count; i++)
		if (all || is_apart(&c->rules[i], c->cuts->dimensions) == apart)
			c->lists[own++] = i;
	c->used = own;
	budget = RTE_MAX(COPIES * groups_of(own), RTE_MIN(COPIES_MAX * groups_of(own), (size_t)GROUPS_MAX));
	divide(c, root, 0, own, budget, 0);
}

int
cuts_create(const struct cuts_rule *rules, size_t count, unsigned dimensions, const atomic_bool *unwanted,
	struct cuts **made)
{
	struct cuts *cuts = calloc(1, sizeof(*cuts));
	struct cutter c = {.cuts = cuts, .rules = rules, .room = 2 * count + 1, .unwanted = unwanted};
	size_t apart = 0;

	if (!cuts)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		apart += is_apart(&rules[i], dimensions);
	cuts->dimensions = dimensions;
	// A second tree is worth its while if each has some rules.
	cuts->roots = RTE_MIN(apart, count - apart) > 8 * LANES ? 2 : 1;
	cuts->nodes = grown(NULL, ROOTS, &cuts->node_room, sizeof(struct node));
	c.lists = malloc(c.room * sizeof(*c.lists));
	c.error = cuts->nodes && c.lists ? 0 : -ENOMEM;
	cuts->node_count = cuts->roots;
	memset(c.high, 0xff, sizeof(c.high));
	for (uint32_t root = 0; root < cuts->roots && !c.error; root++)
		plant(&c, count, cuts->roots == 1, root == 1, root);
	free(c.lists);
	cuts->work = c.work;
	if (c.error)
		cuts_destroy(cuts);
	else
		*made = cuts;
	return c.error;
}

uint64_t
cuts_work(const struct cuts *cuts)
{
	return cuts->work;
}

void
cuts_destroy(struct cuts *cuts)
{
	if (!cuts)
		return;
	free(cuts->nodes);
	free(cuts->groups);
	free(cuts);
}

// Of the verdicts that are not 0.
static inline uint32_t
least(lanes verdicts)
{
	uint32_t found = UINT32_MAX;

	// One less turns "none" into the last.
	for (unsigned i = 0; i < LANES; i++)
		found = RTE_MIN(found, verdicts[i] - 1);
	return found + 1;
}

// The first rule of the cell that matches.
static inline uint32_t
look_through(const struct cuts *cuts, const struct node *cell, const uint32_t *key, unsigned dimensions)
{
	const lanes *group = &cuts->groups[(size_t)cell->below * group_size(dimensions)];

	for (uint32_t g = 0; g < cell->last; g++, group += group_size(dimensions)) {
		const lanes *at = group;
		lanes match = (lanes)((key[dimensions] & at[1]) == at[0]);
		uint32_t verdict;

		at += 2;
		for (unsigned d = 2; d < dimensions; d++, at += 2)
			match &= (lanes)(key[d] - at[0] <= at[1]);
		verdict = least(match & *at);
		if (verdict != 0)
			return verdict;
	}
	return 0;
}

static inline void
find_from(const struct cuts *cuts, uint32_t root, uint32_t (*keys)[CUTS_WORDS], unsigned count, uint32_t *verdicts,
	unsigned dimensions)
{
	const struct node *at[KEYS_MAX];
	uint16_t walking[KEYS_MAX];
	unsigned left = count;

	for (unsigned i = 0; i < count; i++) {
		at[i] = &cuts->nodes[root];
		walking[i] = (uint16_t)i;
	}
	while (left > 0) {
		unsigned still = 0;

		for (unsigned w = 0; w < left; w++) {
			uint16_t i = walking[w];
			const struct node *node = at[i];

			if (node->dimension == CELL) {
				const char *group =
					(const char *)&cuts->groups[(size_t)node->below * group_size(dimensions)];

				for (unsigned line = 0; line < group_size(dimensions) * sizeof(lanes); line += 64)
					rte_prefetch0(group + line);
				continue;
			}
			at[i] = &cuts->nodes[node->below + (keys[i][node->dimension] > node->last)];
			rte_prefetch0(at[i]);
			walking[still++] = i;
		}
		left = still;
	}
	for (unsigned i = 0; i < count; i++)
		verdicts[i] = look_through(cuts, at[i], keys[i], dimensions);
}

static inline void
find_all(const struct cuts *cuts, uint32_t (*keys)[CUTS_WORDS], unsigned count, uint32_t *verdicts, unsigned dimensions)
{
	find_from(cuts, 0, keys, count, verdicts, dimensions);
	for (uint32_t root = 1; root < cuts->roots; root++) {
		uint32_t more[KEYS_MAX];

		find_from(cuts, root, keys, count, more, dimensions);
		for (unsigned i = 0; i < count; i++)
			verdicts[i] = RTE_MIN(verdicts[i] - 1, more[i] - 1) + 1;
	}
}

void
cuts_find(const struct cuts *cuts, uint32_t (*keys)[CUTS_WORDS], unsigned count, uint32_t *verdicts)
{
	if (cuts->dimensions == 6)
		find_all(cuts, keys, count, verdicts, 6);
	else
		find_all(cuts, keys, count, verdicts, CUTS_MAX);
}
