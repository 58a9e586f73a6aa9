// SPDX-License-Identifier: Apache-2.0
// HMAC-SM3 (RFC 2104 over GB/T 32905) of several messages at once, each in a lane of its own. A lane goes through the message's whole
// blocks, its last one or two with padding, and the block of the outer hash; then it takes the next message.
#include "crypto/sm.h"

enum { TAIL = 2 * SM3_BLOCK };

static const uint32_t START[SM3_WORDS] = {
	0x7380166f, 0x4914b2b9, 0x172442d7, 0xda8a0600, 0xa96f30bc, 0x163138aa, 0xe38dee4d, 0xb0fb0e4e};

enum phase { WHOLE, LAST, OUTER };

struct lanes {
	const struct sm_way *way;
	unsigned count;
	struct sm3_message *messages[SM3_LANES_MAX];
	const uint8_t *text[SM3_LANES_MAX];
	size_t left[SM3_LANES_MAX]; // blocks of this phase
	enum phase phase[SM3_LANES_MAX];
	uint8_t tails[SM3_LANES_MAX][TAIL];
	uint32_t state[SM3_WORDS * SM3_LANES_MAX] __attribute__((aligned(64)));
};

static void
words_to(uint8_t *bytes, const uint32_t words[SM3_WORDS])
{
	for (unsigned i = 0; i < SM3_WORDS; i++) {
		uint32_t word = __builtin_bswap32(words[i]);

		memcpy(bytes + 4 * i, &word, 4);
	}
}

static void
state_set(struct lanes *l, unsigned lane, const uint32_t words[SM3_WORDS])
{
	for (unsigned i = 0; i < SM3_WORDS; i++)
		l->state[i * l->way->sm3_lanes + lane] = words[i];
}

static void
state_get(const struct lanes *l, unsigned lane, uint32_t words[SM3_WORDS])
{
	for (unsigned i = 0; i < SM3_WORDS; i++)
		words[i] = l->state[i * l->way->sm3_lanes + lane];
}

// The bytes behind the whole blocks: the rest, the extended sequence number, a one, zeros, and the number of bits, in which the padded
// key counts.
static void
last_blocks(struct lanes *l, unsigned lane)
{
	const struct sm3_message *m = l->messages[lane];
	size_t whole = m->length / SM3_BLOCK * SM3_BLOCK, n = m->length - whole, blocks;
	uint64_t bits = __builtin_bswap64((SM3_BLOCK + m->length + (m->esn ? 4 : 0)) * 8);
	uint8_t *tail = l->tails[lane];

	memset(tail, 0, TAIL);
	memcpy(tail, m->text + whole, n);
	if (m->esn) {
		memcpy(tail + n, &m->esn_high, 4);
		n += 4;
	}
	tail[n] = 0x80;
	blocks = (n + 1 + 8 + SM3_BLOCK - 1) / SM3_BLOCK;
	memcpy(tail + blocks * SM3_BLOCK - 8, &bits, 8);
	l->text[lane] = tail;
	l->left[lane] = blocks;
	l->phase[lane] = LAST;
}

static void
outer_block(struct lanes *l, unsigned lane)
{
	uint64_t bits = __builtin_bswap64((SM3_BLOCK + 32) * 8);
	uint32_t words[SM3_WORDS];
	uint8_t *block = l->tails[lane];

	state_get(l, lane, words);
	memset(block, 0, SM3_BLOCK);
	words_to(block, words);
	block[32] = 0x80;
	memcpy(block + SM3_BLOCK - 8, &bits, 8);
	state_set(l, lane, l->messages[lane]->key->outer);
	l->text[lane] = block;
	l->left[lane] = 1;
	l->phase[lane] = OUTER;
}

static void
begin(struct lanes *l, unsigned lane, struct sm3_message *m)
{
	l->messages[lane] = m;
	state_set(l, lane, m->key->inner);
	l->text[lane] = m->text;
	l->left[lane] = m->length / SM3_BLOCK;
	l->phase[lane] = WHOLE;
	if (l->left[lane] == 0)
		last_blocks(l, lane);
}

static void
move(struct lanes *l, unsigned from, unsigned to)
{
	uint32_t words[SM3_WORDS];

	state_get(l, from, words);
	state_set(l, to, words);
	memcpy(l->tails[to], l->tails[from], TAIL);
	l->text[to] = l->phase[from] == WHOLE ? l->text[from] : l->tails[to] + (l->text[from] - l->tails[from]);
	l->messages[to] = l->messages[from];
	l->left[to] = l->left[from];
	l->phase[to] = l->phase[from];
}

// Its phase is over: whether the message is, too.
static bool
advance(struct lanes *l, unsigned lane)
{
	uint32_t words[SM3_WORDS];

	switch (l->phase[lane]) {
	case WHOLE:
		last_blocks(l, lane);
		return false;
	case LAST:
		outer_block(l, lane);
		return false;
	default:
		state_get(l, lane, words);
		words_to(l->messages[lane]->digest, words);
		return true;
	}
}

void
sm3_hmac(const struct sm_way *way, struct sm3_message *messages, unsigned count)
{
	struct lanes l;
	unsigned next = 0;

	l.way = way;
	l.count = 0;
	memset(l.state, 0, sizeof(l.state));
	while (l.count < way->sm3_lanes && next < count)
		begin(&l, l.count++, &messages[next++]);
	while (l.count > 0) {
		size_t least = l.left[0];

		for (unsigned i = 1; i < l.count; i++)
			least = RTE_MIN(least, l.left[i]);
		// Lanes without a message read another's.
		for (unsigned i = l.count; i < way->sm3_lanes; i++)
			l.text[i] = l.text[0];
		way->sm3(l.state, l.text, least);
		for (unsigned i = 0; i < l.count;) {
			l.text[i] += least * SM3_BLOCK;
			l.left[i] -= least;
			if (l.left[i] > 0 || !advance(&l, i)) {
				i++;
			} else if (next < count) {
				begin(&l, i++, &messages[next++]);
			} else if (i < --l.count) {
				// It has not been looked at yet: the loop comes to it here.
				move(&l, l.count, i);
			}
		}
	}
}

void
sm3_hmac_prepare(struct sm_schedule *schedule, const uint8_t *key, size_t length)
{
	uint8_t padded[SM3_BLOCK] = {0}, block[SM3_BLOCK];
	const uint8_t *text = block;

	if (length > SM3_BLOCK) {
		uint64_t bits = __builtin_bswap64(length * 8);
		size_t whole = length / SM3_BLOCK, rest = length % SM3_BLOCK;
		size_t blocks = (rest + 1 + 8 + SM3_BLOCK - 1) / SM3_BLOCK;
		uint8_t tail[TAIL] = {0};
		uint32_t state[SM3_WORDS];

		memcpy(state, START, sizeof(state));
		memcpy(tail, key + whole * SM3_BLOCK, rest);
		tail[rest] = 0x80;
		memcpy(tail + blocks * SM3_BLOCK - 8, &bits, 8);
		sm_way_c.sm3(state, &key, whole);
		sm_way_c.sm3(state, &(const uint8_t *){tail}, blocks);
		words_to(padded, state);
		explicit_bzero(tail, sizeof(tail));
		explicit_bzero(state, sizeof(state));
	} else {
		memcpy(padded, key, length);
	}
	for (unsigned i = 0; i < SM3_BLOCK; i++)
		block[i] = padded[i] ^ 0x36;
	memcpy(schedule->inner, START, sizeof(START));
	sm_way_c.sm3(schedule->inner, &text, 1);
	for (unsigned i = 0; i < SM3_BLOCK; i++)
		block[i] = padded[i] ^ 0x5c;
	memcpy(schedule->outer, START, sizeof(START));
	sm_way_c.sm3(schedule->outer, &text, 1);
	explicit_bzero(padded, sizeof(padded));
	explicit_bzero(block, sizeof(block));
}
