// SPDX-License-Identifier: Apache-2.0
// SM4-CBC with HMAC-SM3. CBC encryption is serial within a packet, so packets share vectors; decryption is not, so whole vectors come
// from one packet and the rest is shared.
#include "crypto/sm.h"

enum { CHUNK = 128 };

// A chain under way. `written` is all ones, or zero where nothing is written: `to` is then an unused buffer.
struct lane {
	struct sm4_chain *chain;
	const uint8_t *from;
	uint8_t *to;
	size_t written;
	unsigned left, part;
};

struct lanes {
	const struct sm_way *way;
	unsigned count;
	struct lane lanes[SM4_BLOCKS_MAX];
	const struct sm4_key *keys[SM4_BLOCKS_MAX];
	uint64_t stale; // bits of groups whose round keys are not in the table
	uint8_t unread[SM4_BLOCK];
	uint8_t blocks[SM4_BLOCKS_MAX][SM4_BLOCK] __attribute__((aligned(64)));
	struct sm4_table table;
};

static void
take_part(struct lanes *l, struct lane *lane)
{
	lane->from = lane->chain->parts[lane->part].from;
	lane->left = lane->chain->parts[lane->part].blocks;
	lane->to = lane->chain->parts[lane->part].to;
	lane->written = SIZE_MAX;
	if (!lane->to) {
		lane->to = l->unread;
		lane->written = 0;
	}
}

static void
begin(struct lanes *l, unsigned i, struct sm4_chain *chain)
{
	l->lanes[i] = (struct lane){.chain = chain};
	take_part(l, &l->lanes[i]);
	memcpy(l->blocks[i], chain->state, SM4_BLOCK);
	l->keys[i] = chain->key;
	l->stale |= UINT64_C(1) << i / l->way->sm4_group;
}

static void
move(struct lanes *l, unsigned from, unsigned to)
{
	l->lanes[to] = l->lanes[from];
	memcpy(l->blocks[to], l->blocks[from], SM4_BLOCK);
	l->keys[to] = l->keys[from];
	l->stale |= UINT64_C(1) << to / l->way->sm4_group;
}

static void
refresh_table(struct lanes *l, unsigned groups)
{
	unsigned size = l->way->sm4_group;

	for (unsigned i = l->count; i < groups * size; i++)
		l->keys[i] = l->keys[0];
	for (unsigned g = 0; g < groups; g++)
		if (l->stale >> g & 1)
			l->way->sm4_table(&l->table, g, l->keys + g * size);
	l->stale = 0;
}

static void
steps(struct lanes *l, unsigned count)
{
	unsigned groups = (l->count + l->way->sm4_group - 1) / l->way->sm4_group;

	refresh_table(l, groups);
	for (size_t at = 0; at < count * (size_t)SM4_BLOCK; at += SM4_BLOCK) {
		for (unsigned i = 0; i < l->count; i++)
			sm4_xor(l->blocks[i], l->blocks[i], l->lanes[i].from + at);
		l->way->sm4(&l->table, l->blocks, groups);
		for (unsigned i = 0; i < l->count; i++)
			memcpy(l->lanes[i].to + (at & l->lanes[i].written), l->blocks[i], SM4_BLOCK);
	}
	for (unsigned i = 0; i < l->count; i++) {
		l->lanes[i].from += count * (size_t)SM4_BLOCK;
		l->lanes[i].to += count * (size_t)SM4_BLOCK & l->lanes[i].written;
	}
}

void
sm4_chains(const struct sm_way *way, struct sm4_chain *chains, unsigned count)
{
	struct lanes l;
	unsigned next = 0;

	l.way = way;
	l.count = 0;
	l.stale = 0;
	while (l.count < way->sm4_blocks && next < count) {
		begin(&l, l.count++, &chains[next]);
		next++;
	}
	while (l.count > 0) {
		unsigned least = l.lanes[0].left;

		for (unsigned i = 1; i < l.count; i++)
			least = RTE_MIN(least, l.lanes[i].left);
		steps(&l, least);
		for (unsigned i = 0; i < l.count;) {
			struct lane *lane = &l.lanes[i];

			lane->left -= least;
			if (lane->left > 0) {
				i++;
				continue;
			}
			if (++lane->part < RTE_DIM(lane->chain->parts) && lane->chain->parts[lane->part].blocks > 0) {
				take_part(&l, lane);
				i++;
				continue;
			}
			memcpy(lane->chain->state, l.blocks[i], SM4_BLOCK);
			if (next < count)
				begin(&l, i++, &chains[next++]);
			else if (i < --l.count) {
				// It has not been looked at yet: the loop comes to it here.
				move(&l, l.count, i);
			}
		}
	}
	explicit_bzero(&l.table, sizeof(l.table));
}

// Blocks of several packets that are decrypted together.
struct scattered {
	const struct sm_way *way;
	unsigned count;
	const struct sm4_key *keys[SM4_BLOCKS_MAX];
	uint8_t *to[SM4_BLOCKS_MAX];
	uint8_t before[SM4_BLOCKS_MAX][SM4_BLOCK]; // the block of ciphertext, or IV, before each
	uint8_t blocks[SM4_BLOCKS_MAX][SM4_BLOCK] __attribute__((aligned(64)));
};

static void
scattered_flush(struct scattered *s)
{
	unsigned groups = (s->count + s->way->sm4_group - 1) / s->way->sm4_group;
	struct sm4_table table;

	if (s->count == 0)
		return;
	for (unsigned i = s->count; i < groups * s->way->sm4_group; i++)
		s->keys[i] = s->keys[0];
	for (unsigned g = 0; g < groups; g++)
		s->way->sm4_table(&table, g, s->keys + g * s->way->sm4_group);
	s->way->sm4(&table, s->blocks, groups);
	for (unsigned i = 0; i < s->count; i++)
		sm4_xor(s->to[i], s->blocks[i], s->before[i]);
	s->count = 0;
	explicit_bzero(&table, sizeof(table));
}

static void
decrypt_packet(struct scattered *s, const struct crypto_op *op)
{
	const struct sm4_key *key = &sm_schedule(op)->sm4;
	unsigned at_once = s->way->sm4_blocks, left = op->length / SM4_BLOCK;
	uint8_t *data = op->data, before[SM4_BLOCK], last[SM4_BLOCK];

	memcpy(before, op->iv, SM4_BLOCK);
	for (; left >= at_once; left -= at_once, data += at_once * SM4_BLOCK) {
		uint8_t blocks[SM4_BLOCKS_MAX][SM4_BLOCK];

		memcpy(blocks, data, at_once * SM4_BLOCK);
		memcpy(last, data + (at_once - 1) * SM4_BLOCK, SM4_BLOCK);
		s->way->sm4_same(key, blocks, at_once / s->way->sm4_group);
		for (unsigned i = at_once - 1; i > 0; i--)
			sm4_xor(data + i * SM4_BLOCK, blocks[i], data + (i - 1) * SM4_BLOCK);
		sm4_xor(data, blocks[0], before);
		memcpy(before, last, SM4_BLOCK);
	}
	for (; left > 0; left--, data += SM4_BLOCK) {
		unsigned i = s->count++;

		memcpy(s->before[i], before, SM4_BLOCK);
		memcpy(before, data, SM4_BLOCK);
		memcpy(s->blocks[i], data, SM4_BLOCK);
		s->to[i] = data;
		s->keys[i] = key;
		if (s->count == at_once)
			scattered_flush(s);
	}
}

static void
authenticate(const struct sm_way *way, struct crypto_op **ops, struct sm3_message *messages, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		messages[i] = (struct sm3_message){.text = ops[i]->aad,
			.length = ops[i]->aad_length + ops[i]->length,
			.esn = ops[i]->esn,
			.esn_high = ops[i]->esn_high,
			.key = sm_schedule(ops[i])};
	sm3_hmac(way, messages, n);
}

void
sm4_cbc_encrypt(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	const struct sm_way *way = sm_way(ops[0]);

	for (unsigned at = 0, n; at < count; at += n) {
		struct sm3_message messages[CHUNK];
		struct sm4_chain chains[CHUNK];
		unsigned chained = 0;

		n = RTE_MIN(count - at, (unsigned)CHUNK);
		for (unsigned i = 0; i < n; i++) {
			struct crypto_op *op = ops[at + i];
			struct sm4_chain *chain = &chains[chained];

			if (op->length == 0)
				continue;
			*chain = (struct sm4_chain){.key = &sm_schedule(op)->sm4};
			memcpy(chain->state, op->iv, SM4_BLOCK);
			chain->parts[0].from = chain->parts[0].to = op->data;
			chain->parts[0].blocks = op->length / SM4_BLOCK;
			chained++;
		}
		sm4_chains(way, chains, chained);
		authenticate(way, ops + at, messages, n);
		for (unsigned i = 0; i < n; i++) {
			memcpy(ops[at + i]->icv, messages[i].digest, ops[at + i]->key->icv_length);
			ops[at + i]->status = CRYPTO_OK;
		}
	}
}

void
sm4_cbc_decrypt(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	struct scattered s;

	s.way = sm_way(ops[0]);
	s.count = 0;
	for (unsigned at = 0, n; at < count; at += n) {
		struct sm3_message messages[CHUNK];

		n = RTE_MIN(count - at, (unsigned)CHUNK);
		authenticate(s.way, ops + at, messages, n);
		for (unsigned i = 0; i < n; i++) {
			crypto_judge(ops[at + i], messages[i].digest);
			if (ops[at + i]->status == CRYPTO_OK)
				decrypt_packet(&s, ops[at + i]);
		}
	}
	scattered_flush(&s);
}

void
sm3_null(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	const struct sm_way *way = sm_way(ops[0]);

	for (unsigned at = 0, n; at < count; at += n) {
		struct sm3_message messages[CHUNK];

		n = RTE_MIN(count - at, (unsigned)CHUNK);
		authenticate(way, ops + at, messages, n);
		for (unsigned i = 0; i < n; i++) {
			struct crypto_op *op = ops[at + i];

			if (op->key->direction == CRYPTO_DECRYPT) {
				crypto_judge(op, messages[i].digest);
				continue;
			}
			memcpy(op->icv, messages[i].digest, op->key->icv_length);
			op->status = CRYPTO_OK;
		}
	}
}
