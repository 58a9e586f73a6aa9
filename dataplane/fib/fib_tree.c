// SPDX-License-Identifier: Apache-2.0
// The trie of a fib, as its writer changes it. Entries are changed in place by single stores. A part that must change as a whole
// is built aside and published by the store of its parent's entry; rcu_retire() frees the replaced part.
//
// Every entry that is not a child holds an answer, so a prefix is painted over all entries that no longer prefix covers.
// To know which those are, the writer keeps for each entry the length of the prefix it came from. A ply with nothing of
// its own goes back; for IPv6, one with a single thing in it becomes a skip, so that the trie's shape depends on nothing
// but the prefixes in it.
#include "fib/fib_tree.h"

#include <stdbool.h>
#include <stdlib.h>

#include "core/rcu.h"
#include "fib/arena.h"
#include "fib/fib.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && \
	!defined(__SANITIZE_THREAD__)
#define FIB_AVX512 1
#include <immintrin.h>
#endif

enum {
	PLY = 256,
	ROOT = 65536,
	MAX_STEPS = 16, // from the root to the deepest ply
};

// The writer's state of a ply or a root.
struct shadow {
	uint32_t used;   // prefixes that end in it, and children
	uint8_t depth[]; // for each entry that is no child: length of the prefix it comes from
};

struct fib_tree {
	_Atomic uint32_t *entries;
	struct shadow *shadow;
	unsigned bits;
	bool skipping;
	size_t plies, skips;
};

// The root or a ply, and where in the address it is.
struct level {
	_Atomic uint32_t *entries;
	struct shadow *shadow;
	unsigned from, bits;
};

// Behind fib_plies: skips, then plies. The first skips are never used, so that entry 0 may be read.
static const size_t SKIP_BYTES = (size_t)2 << 30, PLY_BYTES = (size_t)6 << 30;
enum { NOBODYS_SKIPS = 32 };

_Atomic uint32_t *fib_plies;

static struct arena skips = {.unit = sizeof(struct fib_skip)};
static struct arena plies = {.unit = PLY * sizeof(uint32_t), .shadow_unit = sizeof(struct shadow) + PLY};
static struct arena roots = {
	.unit = ROOT * sizeof(uint32_t), .shadow_unit = sizeof(struct shadow) + ROOT, .limit = (size_t)1 << 14};

bool
fib_tree_reserve(void)
{
	char *base;

	if (fib_plies != NULL)
		return true;
	plies.limit = PLY_BYTES / plies.unit;
	skips.limit = SKIP_BYTES / skips.unit;
	if (plies.shadow == NULL && (plies.shadow = arena_reserve(plies.limit * plies.shadow_unit)) == NULL)
		return false;
	if (roots.base == NULL && (roots.base = arena_reserve(roots.limit * roots.unit)) == NULL)
		return false;
	if (roots.shadow == NULL && (roots.shadow = arena_reserve(roots.limit * roots.shadow_unit)) == NULL)
		return false;
	if (skips.base == NULL && (base = arena_reserve(SKIP_BYTES + PLY_BYTES)) != NULL) {
		skips.base = base;
		plies.base = base + SKIP_BYTES;
	}
	if (skips.base == NULL || !arena_ready(&skips, NOBODYS_SKIPS))
		return false;
	for (unsigned i = 0; i < NOBODYS_SKIPS; i++)
		(void)arena_take(&skips);
	fib_plies = (_Atomic uint32_t *)(void *)skips.base;
	return true;
}

static uint32_t
entry_of(const void *child)
{
	return FIB_CHILD | (uint32_t)((size_t)((const char *)child - skips.base) / sizeof(struct fib_skip));
}

static struct fib_skip *
skip_of(uint32_t entry)
{
	return (struct fib_skip *)(void *)(fib_plies + (uint32_t)(entry << 3));
}

static bool
is_skip(uint32_t entry)
{
	return (entry & FIB_CHILD) && (entry & FIB_SKIP);
}

static struct level
ply_level(uint32_t entry, unsigned from)
{
	_Atomic uint32_t *entries = fib_plies + (uint32_t)(entry << 3);

	return (struct level){entries, arena_shadow(&plies, arena_index(&plies, entries)), from, 8};
}

static struct level
root_level(const struct fib_tree *tree)
{
	return (struct level){tree->entries, tree->shadow, 0, tree->bits};
}

static unsigned
slot_of(const struct level *level, const uint8_t *address)
{
	return level->bits == 16 ? (unsigned)address[0] << 8 | address[1] : address[level->from / 8];
}

static uint32_t
load(const _Atomic uint32_t *entry)
{
	return atomic_load_explicit(entry, memory_order_relaxed);
}

static void
store(_Atomic uint32_t *entry, uint32_t value)
{
	atomic_store_explicit(entry, value, memory_order_release);
}

// Workers do not see children made here until an entry leads to them. Memory for them was reserved before.
static struct level
ply_new(struct fib_tree *tree, unsigned from, uint32_t hop, uint8_t depth)
{
	_Atomic uint32_t *entries = arena_at(&plies, arena_take(&plies));
	struct level ply = ply_level(entry_of(entries), from);

	for (unsigned i = 0; i < PLY; i++)
		atomic_store_explicit(&entries[i], hop, memory_order_relaxed);
	memset(ply.shadow->depth, depth, PLY);
	ply.shadow->used = 0;
	tree->plies++;
	return ply;
}

static uint32_t
skip_new(struct fib_tree *tree, const uint8_t *address, unsigned length, uint32_t match, uint32_t miss, uint8_t depth)
{
	struct fib_skip *skip = arena_at(&skips, arena_take(&skips));

	skip->high = fib_word(address);
	skip->low = fib_word(address + 8);
	skip->length = (uint8_t)length;
	skip->miss_depth = depth;
	atomic_store_explicit(&skip->match, match, memory_order_relaxed);
	atomic_store_explicit(&skip->miss, miss, memory_order_relaxed);
	tree->skips++;
	return entry_of(skip) | FIB_SKIP;
}

static void
skip_address(const struct fib_skip *skip, uint8_t address[16])
{
	uint64_t words[] = {__builtin_bswap64(skip->high), __builtin_bswap64(skip->low)};

	memcpy(address, words, sizeof(words));
}

static void
ply_release(void *memory)
{
	arena_give(&plies, arena_index(&plies, memory));
}

static void
skip_release(void *memory)
{
	arena_give(&skips, arena_index(&skips, memory));
}

static void
child_retire(struct fib_tree *tree, uint32_t entry)
{
	bool skip = is_skip(entry);

	if (skip)
		tree->skips--;
	else
		tree->plies--;
	rcu_retire(skip ? skip_release : ply_release, skip_of(entry));
}

struct fib_tree *
fib_tree_create(unsigned bits, bool skipping)
{
	struct arena *arena = bits == 16 ? &roots : &plies;
	struct fib_tree *tree;
	uint32_t root;

	if (!arena_ready(arena, 1) || (tree = calloc(1, sizeof(*tree))) == NULL)
		return NULL;
	root = arena_take(arena);
	tree->entries = arena_at(arena, root);
	tree->shadow = arena_shadow(arena, root);
	tree->bits = bits;
	tree->skipping = skipping;
	for (unsigned i = 0; i < 1u << bits; i++)
		atomic_store_explicit(&tree->entries[i], 0, memory_order_relaxed);
	memset(tree->shadow->depth, 0, (size_t)1 << bits);
	tree->shadow->used = 0;
	return tree;
}

static void
children_release(const _Atomic uint32_t *entries, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		uint32_t entry = load(&entries[i]);

		if (is_skip(entry)) {
			struct fib_skip *skip = skip_of(entry);

			entry = load(&skip->match);
			skip_release(skip);
		}
		if (entry & FIB_CHILD) {
			_Atomic uint32_t *ply = fib_plies + (uint32_t)(entry << 3);

			children_release(ply, PLY);
			ply_release(ply);
		}
	}
}

void
fib_tree_release(void *memory)
{
	struct fib_tree *tree = memory;
	struct arena *arena = tree->bits == 16 ? &roots : &plies;

	children_release(tree->entries, 1u << tree->bits);
	arena_give(arena, arena_index(arena, tree->entries));
	free(tree);
}

#ifdef FIB_AVX512
// Paint sixteen entries at once if none is a child: a default route may have to be painted over millions. Readers see each
// entry whole, as x86 stores a vector's aligned words whole.
static bool
paint_sixteen(struct level level, unsigned first, unsigned shortest, unsigned longest, uint32_t hop, uint8_t depth)
{
	_Atomic uint32_t *entries = level.entries + first;
	uint8_t *depths = level.shadow->depth + first;
	__m128i own = _mm_loadu_si128((const void *)depths);
	__mmask16 mine;

	if (_mm512_movepi32_mask(_mm512_loadu_si512((const void *)entries)) != 0)
		return false;
	mine = _mm_cmpge_epu8_mask(own, _mm_set1_epi8((char)shortest)) &
	       _mm_cmple_epu8_mask(own, _mm_set1_epi8((char)longest));
	_mm512_mask_storeu_epi32((void *)entries, mine, _mm512_set1_epi32((int)hop));
	_mm_mask_storeu_epi8(depths, mine, _mm_set1_epi8((char)depth));
	return true;
}
#endif

// Give `hop` and `depth` to entries, and to all below them, whose prefix is between `shortest` and `longest` bits.
static void
paint(struct level level, unsigned first, unsigned count, unsigned shortest, unsigned longest, uint32_t hop,
	uint8_t depth)
{
	for (unsigned i = first; i < first + count; i++) {
#ifdef FIB_AVX512
		while (first + count - i >= 16 && paint_sixteen(level, i, shortest, longest, hop, depth))
			i += 16;
		if (i == first + count)
			return;
#endif
		uint32_t entry = load(&level.entries[i]);
		uint8_t *own = &level.shadow->depth[i];
		_Atomic uint32_t *answer = &level.entries[i];

		if (is_skip(entry)) {
			struct fib_skip *skip = skip_of(entry);

			answer = &skip->miss;
			own = &skip->miss_depth;
			entry = load(&skip->match);
			if (entry & FIB_CHILD)
				paint(ply_level(entry, 0), 0, PLY, shortest, longest, hop, depth);
		} else if (entry & FIB_CHILD) {
			paint(ply_level(entry, 0), 0, PLY, shortest, longest, hop, depth);
			continue;
		}
		if (*own >= shortest && *own <= longest) {
			store(answer, hop);
			*own = depth;
		}
	}
}

// How many bits, at most `most`, two addresses share.
static unsigned
common_bits(const uint8_t *a, const uint8_t *b, unsigned most)
{
	unsigned byte = 0, bits;

	while (byte < 16 && a[byte] == b[byte])
		byte++;
	if (byte == 16)
		return most;
	bits = byte * 8 + (unsigned)__builtin_clz((unsigned)(a[byte] ^ b[byte])) - 24;
	return bits < most ? bits : most;
}

static void insert(struct fib_tree *tree, struct level level, const uint8_t *prefix, unsigned length, uint32_t hop);

// A new prefix leaves a skip's path: a ply where they part, with the entry of the skip and the prefix in it, replaces the skip.
static void
split(struct fib_tree *tree, struct level level, unsigned slot, const uint8_t *prefix, unsigned length, uint32_t hop)
{
	uint32_t old = load(&level.entries[slot]), match, miss, fresh;
	const struct fib_skip *skip = skip_of(old);
	unsigned shorter = length < skip->length ? length : skip->length;
	unsigned part, below;
	struct level ply;
	uint8_t address[16];

	skip_address(skip, address);
	part = common_bits(prefix, address, shorter - 1) & ~7u;
	match = load(&skip->match);
	miss = load(&skip->miss);
	ply = ply_new(tree, part, miss, skip->miss_depth);
	below = slot_of(&ply, address);
	ply.shadow->used = 1;
	// The entry of the skip may end in the ply. Else it goes on under a copy, because the prefix may cover it and change it.
	if (!(match & FIB_CHILD) && skip->length <= part + 8)
		paint(ply, below, 1u << (part + 8 - skip->length), 0, skip->length, match, skip->length);
	else if (skip->length == part + 8)
		store(&ply.entries[below], match);
	else
		store(&ply.entries[below], skip_new(tree, address, skip->length, match, miss, skip->miss_depth));
	insert(tree, ply, prefix, length, hop);
	fresh = entry_of(ply.entries);
	if (part > level.from + level.bits)
		fresh = skip_new(tree, prefix, part, fresh, miss, skip->miss_depth);
	store(&level.entries[slot], fresh);
	child_retire(tree, old);
}

// Put a prefix that is not in the trie.
static void
insert(struct fib_tree *tree, struct level level, const uint8_t *prefix, unsigned length, uint32_t hop)
{
	for (;;) {
		unsigned end = level.from + level.bits, slot = slot_of(&level, prefix);
		uint32_t entry = load(&level.entries[slot]);
		const struct fib_skip *skip;
		uint8_t address[16];

		if (length <= end) {
			paint(level, slot, 1u << (end - length), 0, length, hop, (uint8_t)length);
			level.shadow->used++;
			return;
		}
		if (!(entry & FIB_CHILD)) {
			uint8_t depth = level.shadow->depth[slot];

			level.shadow->used++;
			if (tree->skipping) {
				store(&level.entries[slot], skip_new(tree, prefix, length, hop, entry, depth));
				return;
			}
			entry = entry_of(ply_new(tree, end, entry, depth).entries);
			store(&level.entries[slot], entry);
		}
		if (!is_skip(entry)) {
			level = ply_level(entry, end);
			continue;
		}
		skip = skip_of(entry);
		skip_address(skip, address);
		if (!(load(&skip->match) & FIB_CHILD) || length <= skip->length ||
			common_bits(prefix, address, skip->length) < skip->length) {
			split(tree, level, slot, prefix, length, hop);
			return;
		}
		level = ply_level(load(&skip->match), skip->length);
	}
}

// The way down to where a prefix is: the levels, and the slot taken in each. The last is where it ends, or where a skip
// to nothing but this prefix is.
struct way {
	unsigned steps;
	struct level levels[MAX_STEPS];
	unsigned slots[MAX_STEPS];
};

static void
find_way(const struct fib_tree *tree, const uint8_t *prefix, unsigned length, struct way *way)
{
	struct level level = root_level(tree);

	for (way->steps = 0;;) {
		unsigned end = level.from + level.bits, slot = slot_of(&level, prefix);
		uint32_t entry = load(&level.entries[slot]);

		way->levels[way->steps] = level;
		way->slots[way->steps++] = slot;
		if (length <= end)
			return;
		if (is_skip(entry)) {
			end = skip_of(entry)->length;
			entry = load(&skip_of(entry)->match);
			if (!(entry & FIB_CHILD))
				return;
		}
		level = ply_level(entry, end);
	}
}

void
fib_tree_replace(struct fib_tree *tree, const uint8_t *prefix, unsigned length, uint32_t hop)
{
	struct way way;
	struct level level;
	unsigned slot;

	find_way(tree, prefix, length, &way);
	level = way.levels[way.steps - 1];
	slot = way.slots[way.steps - 1];
	if (length > level.from + level.bits)
		store(&skip_of(load(&level.entries[slot]))->match, hop);
	else
		paint(level, slot, 1u << (level.from + level.bits - length), length, length, hop, (uint8_t)length);
}

// Remove an empty ply, and set the parent's entry to the common value of its entries.
static void
collapse(struct fib_tree *tree, struct level parent, unsigned slot, struct level ply)
{
	uint32_t old = load(&parent.entries[slot]);

	parent.shadow->depth[slot] = ply.shadow->depth[0];
	parent.shadow->used--;
	store(&parent.entries[slot], load(&ply.entries[0]));
	if (is_skip(old))
		child_retire(tree, old);
	child_retire(tree, entry_of(ply.entries));
}

// Put a skip in the place of a ply in which there is a single thing. `address` leads to the ply.
static void
compress(struct fib_tree *tree, struct level parent, unsigned slot, struct level ply, const uint8_t *address)
{
	uint32_t old = load(&parent.entries[slot]), only = 0, miss = 0;
	uint8_t path[16] = {0}, depth = 0;
	unsigned at = PLY, length = 0;

	for (unsigned i = 0; i < PLY; i++) {
		uint32_t entry = load(&ply.entries[i]);
		bool own = (entry & FIB_CHILD) || ply.shadow->depth[i] > ply.from;

		if (own && at == PLY) {
			at = i;
			only = entry;
			length = entry & FIB_CHILD ? ply.from + 8 : ply.shadow->depth[i];
		} else if (!own) {
			miss = entry;
			depth = ply.shadow->depth[i];
		}
	}
	// A skip below already has the same content.
	if (!is_skip(only)) {
		memcpy(path, address, ply.from / 8);
		path[ply.from / 8] = (uint8_t)at;
		only = skip_new(tree, path, length, only, miss, depth);
	}
	store(&parent.entries[slot], only);
	if (is_skip(old))
		child_retire(tree, old);
	child_retire(tree, entry_of(ply.entries));
}

void
fib_tree_remove(struct fib_tree *tree, const uint8_t *prefix, unsigned length, uint32_t cover, unsigned cover_length)
{
	struct way way;
	struct level level;
	unsigned slot, end;

	find_way(tree, prefix, length, &way);
	level = way.levels[way.steps - 1];
	slot = way.slots[way.steps - 1];
	end = level.from + level.bits;
	if (length > end) {
		uint32_t old = load(&level.entries[slot]);

		level.shadow->depth[slot] = skip_of(old)->miss_depth;
		store(&level.entries[slot], load(&skip_of(old)->miss));
		child_retire(tree, old);
	} else {
		paint(level, slot, 1u << (end - length), length, length, cover, (uint8_t)cover_length);
	}
	level.shadow->used--;
	for (unsigned step = way.steps - 1; step > 0; step--) {
		struct level ply = way.levels[step], parent = way.levels[step - 1];

		if (ply.shadow->used == 0)
			collapse(tree, parent, way.slots[step - 1], ply);
		else if (tree->skipping && ply.shadow->used == 1 && arena_ready(&skips, 1))
			compress(tree, parent, way.slots[step - 1], ply, prefix);
	}
}

// The maximum for one new prefix: for IPv4 a ply for each byte below a root of 8 bits, for IPv6 a ply and three
// skips.
bool
fib_tree_ready(void)
{
	return arena_ready(&plies, 3) && arena_ready(&skips, 3);
}

void
fib_tree_insert(struct fib_tree *tree, const uint8_t *prefix, unsigned length, uint32_t hop)
{
	insert(tree, root_level(tree), prefix, length, hop);
}

uintptr_t
fib_tree_root(const struct fib_tree *tree)
{
	return (uintptr_t)tree->entries + tree->bits;
}

size_t
fib_tree_memory(const struct fib_tree *tree)
{
	size_t root = tree->bits == 16 ? roots.unit + roots.shadow_unit : plies.unit + plies.shadow_unit;

	return sizeof(*tree) + root + tree->plies * (plies.unit + plies.shadow_unit) + tree->skips * skips.unit;
}
