// SPDX-License-Identifier: Apache-2.0
// SM4-GCM (NIST SP 800-38D) and SM4-CCM (RFC 3610), as RFC 8998 names them. The rest of packets after whole vectors of counter
// blocks, and short packets as a whole, share vectors with other packets.
#include "crypto/sm.h"

enum {
	CHUNK = 32,          // operations at once,
	CHUNK_BYTES = 24576, // but not many more bytes than these, so that they are in the cache when they are hashed
	STREAM_LEAST = 384,  // Bytes from which on a packet has vectors of its own, where the way has sm4_stream().
	AAD_BLOCKS_MAX = (CRYPTO_AAD_MAX + 4 + 2 + SM4_BLOCK - 1) / SM4_BLOCK,
};

// Counter blocks of several packets.
struct lanes {
	const struct sm_way *way;
	unsigned count;
	bool same;
	const struct sm4_key *keys[SM4_BLOCKS_MAX];
	uint8_t *to[SM4_BLOCKS_MAX];
	uint8_t length[SM4_BLOCKS_MAX];
	uint8_t blocks[SM4_BLOCKS_MAX][SM4_BLOCK] __attribute__((aligned(64)));
};

static void
lanes_flush(struct lanes *l)
{
	unsigned groups = (l->count + l->way->sm4_group - 1) / l->way->sm4_group;

	if (l->count == 0)
		return;
	if (l->same) {
		l->way->sm4_same(l->keys[0], l->blocks, groups);
	} else {
		struct sm4_table table;

		for (unsigned i = l->count; i < groups * l->way->sm4_group; i++)
			l->keys[i] = l->keys[0];
		for (unsigned g = 0; g < groups; g++)
			l->way->sm4_table(&table, g, l->keys + g * l->way->sm4_group);
		l->way->sm4(&table, l->blocks, groups);
		explicit_bzero(&table, sizeof(table));
	}
	for (unsigned i = 0; i < l->count; i++) {
		if (likely(l->length[i] == SM4_BLOCK)) {
			sm4_xor(l->to[i], l->to[i], l->blocks[i]);
			continue;
		}
		for (unsigned j = 0; j < l->length[i]; j++)
			l->to[i][j] ^= l->blocks[i][j];
	}
	l->count = 0;
	l->same = true;
}

static inline void
lanes_add(struct lanes *l, const struct sm4_key *key, const uint8_t nonce[12], uint32_t counter, uint8_t *to,
	unsigned length)
{
	unsigned i = l->count++;

	counter = __builtin_bswap32(counter);
	memcpy(l->blocks[i], nonce, 12);
	memcpy(l->blocks[i] + 12, &counter, 4);
	l->keys[i] = key;
	l->same &= key == l->keys[0];
	l->to[i] = to;
	l->length[i] = (uint8_t)length;
	if (l->count == l->way->sm4_blocks)
		lanes_flush(l);
}

// XOR the data with the key stream from `counter` on, and `mask` with that of the block before it.
static void
count(struct lanes *l, const struct crypto_op *op, const uint8_t nonce[12], uint32_t counter, uint8_t mask[16])
{
	const struct sm4_key *key = &sm_schedule(op)->sm4;
	unsigned group = l->way->sm4_group, at_once = l->way->sm4_blocks / group,
		 groups = op->length / (group * SM4_BLOCK);
	uint8_t *data = op->data, *end = op->data + op->length;

	if (l->way->sm4_stream && op->length >= STREAM_LEAST) {
		l->way->sm4_stream(key, nonce, counter - 1, data, op->length, mask);
		return;
	}
	memset(mask, 0, SM4_BLOCK);
	lanes_add(l, key, nonce, counter - 1, mask, SM4_BLOCK);
	// A group alone takes nearly as long as two: its blocks go with those of other packets.
	if (at_once > 1 && groups % at_once == 1)
		groups--;
	if (groups > 0)
		l->way->sm4_counter(key, nonce, counter, data, groups);
	data += groups * group * SM4_BLOCK;
	counter += groups * group;
	for (; data < end; data += SM4_BLOCK)
		lanes_add(l, key, nonce, counter++, data, (unsigned)RTE_MIN(end - data, SM4_BLOCK));
}

static void
hash(const struct crypto_op *op, uint8_t tag[16])
{
	enum { SHORT = GHASH_POWERS };
	const struct sm_way *way = sm_way(op);
	const struct ghash_key *key = &sm_schedule(op)->ghash;
	uint8_t own[CRYPTO_AAD_MAX + 4], y[16] = {0}, text[(AAD_BLOCKS_MAX + SHORT + 2) * 16];
	unsigned aad_length, whole = op->length / 16, rest = op->length % 16, blocks;
	const uint8_t *aad = crypto_aad(op, own, &aad_length);
	uint64_t bits[2] = {__builtin_bswap64(aad_length * 8ull), __builtin_bswap64(op->length * 8ull)};

	blocks = (aad_length + 15) / 16;
	memset(text, 0, blocks * 16);
	memcpy(text, aad, aad_length);
	// A short packet has one product to reduce.
	if (whole > SHORT - 3) {
		way->ghash(key, y, text, blocks);
		way->ghash(key, y, op->data, whole);
		blocks = 0;
	} else {
		memcpy(text + blocks * 16, op->data, whole * 16);
		blocks += whole;
	}
	if (rest) {
		memset(text + blocks * 16, 0, 16);
		memcpy(text + blocks * 16, op->data + whole * 16, rest);
		blocks++;
	}
	memcpy(text + blocks * 16, bits, 16);
	way->ghash(key, y, text, blocks + 1);
	way->ghash_finish(y, tag);
}

// How many operations to take at once.
static unsigned
chunk_of(struct crypto_op **ops, unsigned count)
{
	unsigned n = 1;

	for (uint32_t bytes = ops[0]->length; n < count && n < CHUNK && bytes + ops[n]->length <= CHUNK_BYTES; n++)
		bytes += ops[n]->length;
	return n;
}

static void
gcm_chunk(const struct sm_way *way, struct crypto_op **ops, unsigned n, bool decrypt)
{
	struct lanes lanes;
	uint8_t tags[CHUNK][16], masks[CHUNK][16], nonce[16];

	lanes.way = way;
	lanes.count = 0;
	lanes.same = true;
	for (unsigned i = 0; decrypt && i < n; i++)
		hash(ops[i], tags[i]);
	for (unsigned i = 0; i < n; i++) {
		crypto_nonce(ops[i], nonce);
		count(&lanes, ops[i], nonce, 2, masks[i]);
	}
	lanes_flush(&lanes);
	for (unsigned i = 0; i < n; i++) {
		if (!decrypt)
			hash(ops[i], tags[i]);
		sm4_xor(tags[i], tags[i], masks[i]);
		if (decrypt) {
			crypto_judge(ops[i], tags[i]);
		} else {
			memcpy(ops[i]->icv, tags[i], ops[i]->key->icv_length);
			ops[i]->status = CRYPTO_OK;
		}
	}
}

// Both directions may be in one batch: a chunk is of one.
static unsigned
one_direction(struct crypto_op **ops, unsigned n)
{
	unsigned same = 1;

	while (same < n && ops[same]->key->direction == ops[0]->key->direction)
		same++;
	return same;
}

static void
prefetch_chunk(struct crypto_op **ops, unsigned count)
{
	for (unsigned i = 0; i < RTE_MIN(count, (unsigned)CHUNK); i++)
		crypto_prefetch(ops[i]->key, sizeof(struct sm_schedule));
}

void
sm4_gcm(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	prefetch_chunk(ops, count);
	for (unsigned at = 0, n; at < count; at += n) {
		n = one_direction(ops + at, chunk_of(ops + at, count - at));
		prefetch_chunk(ops + at + n, count - at - n);
		gcm_chunk(sm_way(ops[at]), ops + at, n, ops[at]->key->direction == CRYPTO_DECRYPT);
	}
}

// RFC 4309 section 4: the nonce is the salt (3 bytes; 4 where it is so agreed) and the IV; the rest of 15 bytes is
// the counter.
struct ccm {
	uint8_t nonce[12]; // the first 12 bytes of a counter block
	uint32_t base;     // the last 4, without the counter
	unsigned ahead_blocks;
	uint8_t ahead[(1 + AAD_BLOCKS_MAX) * SM4_BLOCK], last[SM4_BLOCK], mask[SM4_BLOCK];
};

// RFC 3610 sections 2.2 and 2.3: the blocks that are hashed ahead of the data, and the common part of counter blocks.
static void
ccm_begin(const struct crypto_op *op, struct ccm *c)
{
	uint8_t own[CRYPTO_AAD_MAX + 4], *b0 = c->ahead;
	unsigned aad_length, nonce_length = op->key->salt_length + 8u, counter_length = 15 - nonce_length;
	const uint8_t *aad = crypto_aad(op, own, &aad_length);
	uint32_t length = __builtin_bswap32(op->length);

	memset(c->ahead, 0, sizeof(c->ahead));
	b0[0] = (uint8_t)((aad_length ? 64 : 0) + (op->key->icv_length - 2) / 2 * 8 + counter_length - 1);
	memcpy(b0 + 1, op->key->salt, op->key->salt_length);
	memcpy(b0 + 1 + op->key->salt_length, op->iv, 8);
	memcpy(c->nonce, b0, 12);
	c->nonce[0] = (uint8_t)(counter_length - 1);
	c->base = nonce_length == 12 ? (uint32_t)b0[12] << 24 : 0;
	memcpy(b0 + 16 - counter_length, (const uint8_t *)&length + 4 - counter_length, counter_length);
	c->ahead_blocks = 1;
	if (aad_length) {
		c->ahead[17] = (uint8_t)aad_length;
		memcpy(c->ahead + 18, aad, aad_length);
		c->ahead_blocks += (aad_length + 2 + 15) / 16;
	}
}

// All of the plaintext, which is there.
static void
ccm_chain(const struct crypto_op *op, struct ccm *c, struct sm4_chain *chain)
{
	unsigned whole = op->length / SM4_BLOCK, rest = op->length % SM4_BLOCK, parts = 0;

	*chain = (struct sm4_chain){.key = &sm_schedule(op)->sm4};
	chain->parts[parts].from = c->ahead;
	chain->parts[parts++].blocks = c->ahead_blocks;
	if (whole) {
		chain->parts[parts].from = op->data;
		chain->parts[parts++].blocks = whole;
	}
	if (rest) {
		memset(c->last, 0, sizeof(c->last));
		memcpy(c->last, op->data + whole * SM4_BLOCK, rest);
		chain->parts[parts].from = c->last;
		chain->parts[parts].blocks = 1;
	}
}

static void
ccm_hash(const struct sm_way *way, struct crypto_op **ops, struct ccm *ccm, struct sm4_chain *chains, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ccm_chain(ops[i], &ccm[i], &chains[i]);
	sm4_chains(way, chains, n);
}

static void
ccm_chunk(const struct sm_way *way, struct crypto_op **ops, unsigned n, bool decrypt)
{
	struct lanes lanes;
	struct sm4_chain chains[CHUNK];
	struct ccm ccm[CHUNK];

	lanes.way = way;
	lanes.count = 0;
	lanes.same = true;
	for (unsigned i = 0; i < n; i++)
		ccm_begin(ops[i], &ccm[i]);
	if (!decrypt)
		ccm_hash(way, ops, ccm, chains, n);
	for (unsigned i = 0; i < n; i++)
		count(&lanes, ops[i], ccm[i].nonce, ccm[i].base + 1, ccm[i].mask);
	lanes_flush(&lanes);
	if (decrypt)
		ccm_hash(way, ops, ccm, chains, n);
	for (unsigned i = 0; i < n; i++) {
		uint8_t tag[16];

		sm4_xor(tag, chains[i].state, ccm[i].mask);
		if (decrypt) {
			crypto_judge(ops[i], tag);
		} else {
			memcpy(ops[i]->icv, tag, ops[i]->key->icv_length);
			ops[i]->status = CRYPTO_OK;
		}
	}
}

void
sm4_ccm(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	for (unsigned at = 0, n; at < count; at += n) {
		n = one_direction(ops + at, chunk_of(ops + at, count - at));
		ccm_chunk(sm_way(ops[at]), ops + at, n, ops[at]->key->direction == CRYPTO_DECRYPT);
	}
}
