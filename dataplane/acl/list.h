// SPDX-License-Identifier: Apache-2.0
// A list of rules made ready for workers: exact 5-tuples in a hash table when there are many, all others in a tree of
// DPDK's rte_acl when they are few and cross each other little, or else in a tree of cuts, for each family. Made aside, then only
// read.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_acl.h>

#include "acl/cuts.h"
#include "acl/key.h"
#include "acl/rule.h"
#include "acl/tuples.h"

enum { ACL_BURST = 256 };

// The classifiers that find the first matching rule. Each may be NULL; there is a tree or cuts, not both. They find a rule's verdict: twice its
// number (from 1), and one more if it permits; the lesser of two verdicts is that of the first rule.
struct acl_part {
	struct rte_acl_ctx *tree;
	struct cuts *cuts;
	struct tuples *tuples;
};

struct acl_list {
	struct acl_part v4, v6;
	bool otherwise; // permit packets that match no rule
	struct acl_protocols protocols;
	// Packets by rule number (0: no rule), a row for each worker and one for the main thread; NULL: they are not counted.
	uint64_t *hits;
	uint32_t rule_count, hits_stride;
};

// How all trees are searched, each way as right as any other (choice.c). One that any CPU has, until one is chosen.
extern enum rte_acl_classify_alg acl_algorithm;

// 0, or a negative errno with the fault explained; `name` ("acl home") is for that. It ends early when it is `unwanted` (may be NULL). Needs the
// EAL.
int acl_list_create(const char *name, const struct acl_rule *rules, size_t count, bool otherwise,
	const atomic_bool *unwanted, struct acl_list **made, struct fault *f);
// The same, and it counts hits.
int acl_list_create_counted(const char *name, const struct acl_rule *rules, size_t count, bool otherwise,
	const atomic_bool *unwanted, struct acl_list **made, struct fault *f);
void acl_list_destroy(struct acl_list *list);
// Packets that a rule (from 1; 0: no rule) was the first to match. Main thread.
uint64_t acl_list_hits(const struct acl_list *list, uint32_t rule);

// The verdict of the first rule that matches each of up to ACL_BURST keys: twice its number (from 1), and one more if it permits.
// 0: none does.
void acl_list_find4(const struct acl_list *list, const struct acl_key4 *keys, unsigned count, uint32_t *verdicts);
void acl_list_find6(const struct acl_list *list, const struct acl_key6 *keys, unsigned count, uint32_t *verdicts);

static inline bool
acl_permits(const struct acl_list *list, uint32_t verdict)
{
	return verdict != 0 ? verdict & 1 : list->otherwise;
}
