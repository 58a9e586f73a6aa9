// SPDX-License-Identifier: Apache-2.0
// How much rules cross each other. It predicts whether rte_acl, which bounds neither time nor memory of a build, builds a list
// quickly.
#pragma once

#include <stddef.h>

#include "acl/cuts.h"

enum { CROSSING_RULES = 256 }; // at most

// How many parts the ends of up to CROSSING_RULES rules divide the keys into, when each part of one dimension is divided by the
// next one, as in a trie; `order` is that of the dimensions. Not counted further than to about `most`.
size_t crossing_parts(
	const struct cuts_rule *rules, size_t count, const unsigned *order, unsigned dimensions, size_t most);
