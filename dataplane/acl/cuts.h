// SPDX-License-Identifier: Apache-2.0
// First match among many rules that overlap in any way, for which rte_acl would need too much time or memory. A
// binary tree cuts the space of keys into cells, each with the few rules that reach into it, which are then compared
// eight at a time (Qi and others, "Packet Classification Algorithms: From Theory to Practice", INFOCOM 2009:
// HyperSplit).
//
// Memory and time are bounded by the number of rules alone: a cell is cut further only while the copies of rules that this
// makes stay within a budget, so that rules tangled in the worst way make long cells instead, up to where a packet would be
// looked at for too long. Made once, then only read.
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CUTS_MAX = 12,    // dimensions, numbers of 32 bits at most
	CUTS_WORDS = 16,  // of a key: its dimensions, and then its marks
	CUTS_SAID = 0xff, // bits of the marks that say the same as the first two dimensions
	CUTS_CELL = 2048, // rules of a cell at most
};

#define CUTS_WORK (UINT64_C(256) << 20) // at most

// A rule's range in each dimension, both ends inclusive, and its marks.
struct cuts_rule {
	uint32_t low[CUTS_MAX], high[CUTS_MAX];
	uint32_t marks, marks_mask;
	uint32_t verdict; // not 0; more than that of the rule before
};

struct cuts;

// `dimensions` is 6 or CUTS_MAX. 0, -ENOMEM, -ECANCELED if it was `unwanted` (may be NULL), or -E2BIG: more than
// CUTS_CELL rules remain in a cell, or the work exceeds the bound.
int cuts_create(const struct cuts_rule *rules, size_t count, unsigned dimensions, const atomic_bool *unwanted,
	struct cuts **made);
// How much work it was to make: about so many rules were held against a cut.
uint64_t cuts_work(const struct cuts *cuts);
void cuts_destroy(struct cuts *cuts);

// The verdicts of the first rules that match up to 256 keys; 0 where none does.
void cuts_find(const struct cuts *cuts, uint32_t (*keys)[CUTS_WORDS], unsigned count, uint32_t *verdicts);
