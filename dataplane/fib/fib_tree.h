// SPDX-License-Identifier: Apache-2.0
// The trie behind a fib, for its writer. Prefixes are 16 bytes in network order with no bit past their length. Replaced
// parts are retired (core/rcu.h). Main thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fib_tree;

// Make sure that there are addresses for tries at all, and `fib_plies`. False when there are none.
bool fib_tree_reserve(void);

// An empty trie whose root takes 8 or 16 bits; `skipping` if addresses are long enough for skips. NULL without memory.
struct fib_tree *fib_tree_create(unsigned bits, bool skipping);

// Free a trie that no worker reads.
void fib_tree_release(void *tree);

// The readers' start: `root` of struct fib.
uintptr_t fib_tree_root(const struct fib_tree *tree);

// Make sure that there is memory for one more prefix.
bool fib_tree_ready(void);

// Put a prefix that is not in the trie, after fib_tree_ready().
void fib_tree_insert(struct fib_tree *tree, const uint8_t *prefix, unsigned length, uint32_t hop);

// Give a prefix that is in the trie another hop.
void fib_tree_replace(struct fib_tree *tree, const uint8_t *prefix, unsigned length, uint32_t hop);

// Take a prefix out; `cover` is the hop of the longest prefix that covers it and `cover_length` its length, or 0 and 0.
void fib_tree_remove(
	struct fib_tree *tree, const uint8_t *prefix, unsigned length, uint32_t cover, unsigned cover_length);

size_t fib_tree_memory(const struct fib_tree *tree);
