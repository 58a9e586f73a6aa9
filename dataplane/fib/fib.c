// SPDX-License-Identifier: Apache-2.0
// Longest prefix match as others see it: prefixes come and go, exactly in the rib and as answers in the trie, and the
// trie's root has the size that suits their number.
#include "fib/fib.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/rcu.h"
#include "fib/fib_tree.h"

enum {
	MANY_ROUTES = 64, // above which a root takes 16 bits and 320 KiB,
	FEW_ROUTES = 16,  // and below which it uses 8 bits again; most VRFs never have more
};

static void
publish(struct fib *fib, struct fib_tree *tree)
{
	fib->tree = tree;
	atomic_store_explicit(&fib->root, fib_tree_root(tree), memory_order_release);
}

static unsigned
root_bits(const struct fib *fib)
{
	unsigned bits;

	(void)fib_root(fib, &bits);
	return bits;
}

// Change the root's size. Without memory for it the old one stays, which is right, only slower or larger.
static bool
rebuild(struct fib *fib, unsigned bits)
{
	struct fib_tree *old = fib->tree, *tree = fib_tree_create(bits, fib->family == FIB_IP6);
	uint8_t address[RIB_ADDRESS];
	uint64_t position = 0;
	unsigned length;
	uint32_t hop;

	if (tree == NULL)
		return false;
	while ((hop = rib_next(&fib->rib, &position, address, &length)) != 0) {
		if (!fib_tree_ready()) {
			fib_tree_release(tree);
			return false;
		}
		fib_tree_insert(tree, address, length, hop);
	}
	publish(fib, tree);
	rcu_retire(fib_tree_release, old);
	return true;
}

// A prefix as the rest of this file has it: 16 bytes, no bit past the length. False when it is none of the family.
static bool
prefix_of(const struct fib *fib, const uint8_t *address, unsigned length, uint8_t prefix[RIB_ADDRESS])
{
	unsigned bytes = fib->family == FIB_IP4 ? 4 : 16;

	if (length > bytes * 8)
		return false;
	memset(prefix, 0, RIB_ADDRESS);
	memcpy(prefix, address, (length + 7) / 8);
	if (length % 8 != 0)
		prefix[length / 8] &= (uint8_t)(0xff00 >> length % 8);
	return true;
}

struct fib *
fib_create(enum fib_family family)
{
	struct fib *fib;
	struct fib_tree *tree;

	if (!fib_tree_reserve() || (fib = calloc(1, sizeof(*fib))) == NULL)
		return NULL;
	fib->family = family;
	if (rib_init(&fib->rib) != 0 || (tree = fib_tree_create(8, family == FIB_IP6)) == NULL) {
		free(fib);
		return NULL;
	}
	publish(fib, tree);
	return fib;
}

void
fib_destroy(struct fib *fib)
{
	if (fib == NULL)
		return;
	rib_clear(&fib->rib);
	rcu_retire(fib_tree_release, fib->tree);
	rcu_retire(free, fib);
}

int
fib_put(struct fib *fib, const uint8_t *address, uint8_t length, uint32_t hop)
{
	uint8_t prefix[RIB_ADDRESS];
	uint32_t old;
	int error;

	if (!prefix_of(fib, address, length, prefix) || hop == 0 || hop > FIB_HOP_MAX)
		return -EINVAL;
	error = rib_put(&fib->rib, prefix, length, hop, &old);
	if (error != 0)
		return error;
	if (old != 0) {
		fib_tree_replace(fib->tree, prefix, length, hop);
		return 0;
	}
	if (!fib_tree_ready()) {
		rib_delete(&fib->rib, prefix, length);
		return -ENOMEM;
	}
	if (root_bits(fib) == 16 || fib->rib.count <= MANY_ROUTES || !rebuild(fib, 16))
		fib_tree_insert(fib->tree, prefix, length, hop);
	return 0;
}

int
fib_delete(struct fib *fib, const uint8_t *address, uint8_t length)
{
	uint8_t prefix[RIB_ADDRESS];
	unsigned cover_length;
	uint32_t cover;

	if (!prefix_of(fib, address, length, prefix) || rib_delete(&fib->rib, prefix, length) == 0)
		return -ENOENT;
	if (root_bits(fib) == 16 && fib->rib.count < FEW_ROUTES && rebuild(fib, 8))
		return 0;
	cover = rib_cover(&fib->rib, prefix, length, &cover_length);
	fib_tree_remove(fib->tree, prefix, length, cover, cover_length);
	return 0;
}

uint32_t
fib_find(const struct fib *fib, const uint8_t *address, uint8_t length)
{
	uint8_t prefix[RIB_ADDRESS];

	return prefix_of(fib, address, length, prefix) ? rib_find(&fib->rib, prefix, length) : 0;
}

size_t
fib_memory(const struct fib *fib)
{
	return sizeof(*fib) + fib_tree_memory(fib->tree) + rib_memory(&fib->rib);
}
