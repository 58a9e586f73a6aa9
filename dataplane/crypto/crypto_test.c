// SPDX-License-Identifier: Apache-2.0
// Every engine against a reference that is made of OpenSSL's ciphers and digests, packet by packet.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <rte_cryptodev.h>
#include <rte_eal.h>
#include <rte_mbuf.h>

#include "cpu/cpu.h"
#include "crypto/engine.h"
#include "crypto/reference.h"
#include "crypto/ways/way.h"

enum { OPS = 64, ROOM = 2304, ROUNDS = 12 };

// A packet of ESP: header, IV, data, ICV; and its expected result.
struct packet_case {
	uint8_t plain[ROOM], sealed[ROOM], work[ROOM];
	unsigned start, iv_length, length, icv_length;
	struct crypto_secret secret;
	uint8_t keys[3][128];
	bool esn;
	uint32_t esn_high;
	struct crypto_key *encrypt, *decrypt;
};

static uint64_t seed = 0x5eed;

static uint32_t
chance(uint32_t limit)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % limit;
}

static void
fill(uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i += 4) {
		uint32_t random = chance(UINT32_MAX);

		memcpy(bytes + i, &random, length - i < 4 ? length - i : 4);
	}
}

static const struct algorithm {
	enum crypto_cipher cipher;
	uint8_t key_length;
	enum crypto_integrity integrity;
	uint8_t icv_length;
} algorithms[] = {
	{CRYPTO_AES_GCM, 16, 0, 16},
	{CRYPTO_AES_GCM, 16, 0, 12},
	{CRYPTO_AES_GCM, 16, 0, 8},
	{CRYPTO_AES_GCM, 24, 0, 16},
	{CRYPTO_AES_GCM, 32, 0, 16},
	{CRYPTO_AES_GCM, 32, 0, 8},
	{CRYPTO_AES_GMAC, 16, 0, 16},
	{CRYPTO_AES_GMAC, 24, 0, 16},
	{CRYPTO_AES_GMAC, 32, 0, 16},
	{CRYPTO_CHACHA20_POLY1305, 32, 0, 16},
	{CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA1, 12},
	{CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA256, 16},
	{CRYPTO_AES_CBC, 24, CRYPTO_HMAC_SHA384, 24},
	{CRYPTO_AES_CBC, 32, CRYPTO_HMAC_SHA512, 32},
	{CRYPTO_AES_CBC, 32, CRYPTO_HMAC_SHA256, 32},
	{CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA512, 32},
	{CRYPTO_AES_CTR, 16, CRYPTO_HMAC_SHA1, 12},
	{CRYPTO_AES_CTR, 24, CRYPTO_HMAC_SHA256, 16},
	{CRYPTO_AES_CTR, 32, CRYPTO_HMAC_SHA384, 24},
	{CRYPTO_AES_CTR, 32, CRYPTO_HMAC_SHA512, 32},
	{CRYPTO_NULL, 0, CRYPTO_HMAC_SHA1, 12},
	{CRYPTO_NULL, 0, CRYPTO_HMAC_SHA256, 16},
	{CRYPTO_NULL, 0, CRYPTO_HMAC_SHA384, 24},
	{CRYPTO_NULL, 0, CRYPTO_HMAC_SHA512, 32},
	{CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA512, 16},
	{CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA1, 10},
	{CRYPTO_NULL, 0, CRYPTO_HMAC_SM3, 16},
	{CRYPTO_SM4_CBC, 16, CRYPTO_HMAC_SM3, 16},
	{CRYPTO_SM4_CBC, 16, CRYPTO_HMAC_SM3, 32},
	{CRYPTO_SM4_CBC, 16, CRYPTO_HMAC_SHA256, 16},
	{CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SM3, 16},
	{CRYPTO_SM4_GCM, 16, 0, 16},
	{CRYPTO_SM4_GCM, 16, 0, 8},
	{CRYPTO_SM4_CCM, 16, 0, 16},
	{CRYPTO_SM4_CCM, 16, 0, 12},
	{CRYPTO_SM4_CCM, 16, 0, 8},
};

static void
case_secret(struct packet_case *c, const struct algorithm *a)
{
	size_t integrity_key = a->integrity ? 1 + chance(CRYPTO_INTEGRITY_KEY_MAX) : 0;
	bool cbc = crypto_block_length(a->cipher) > 1;

	for (unsigned i = 0; i < 3; i++)
		fill(c->keys[i], sizeof(c->keys[i]));
	c->secret = (struct crypto_secret){.cipher = a->cipher,
		.integrity = a->integrity,
		.key = c->keys[0],
		.key_length = a->key_length,
		.salt = c->keys[1],
		.salt_length = cbc || a->cipher == CRYPTO_NULL ? 0
			       : a->cipher == CRYPTO_SM4_CCM   ? 3 + chance(2)
							       : 4,
		.integrity_key = c->keys[2],
		.integrity_key_length = integrity_key,
		.icv_length = a->icv_length};
	c->iv_length = crypto_iv_length(a->cipher);
	c->icv_length = a->icv_length;
}

// A packet and its keys: those of `same`, or new ones.
static void
case_new(struct packet_case *c, const struct crypto_engine *engine, const struct algorithm *a, unsigned length,
	const struct packet_case *same)
{
	if (same)
		*c = (struct packet_case){.secret = same->secret,
			.encrypt = same->encrypt,
			.decrypt = same->decrypt,
			.iv_length = same->iv_length,
			.icv_length = same->icv_length};
	else
		case_secret(c, a);
	// Devices take no empty data.
	if (engine == &crypto_device)
		length = RTE_MAX(length, 16u);
	c->length = length / crypto_block_length(a->cipher) * crypto_block_length(a->cipher);
	c->start = chance(64);
	c->esn = chance(2);
	c->esn_high = chance(UINT32_MAX);
	fill(c->plain, ROOM);
	memcpy(c->sealed, c->plain, ROOM);
	reference_seal(&c->secret, c->sealed + c->start, 8, c->iv_length, c->length, c->esn, c->esn_high);
	if (same)
		return;
	c->secret.direction = CRYPTO_ENCRYPT;
	assert_int_equal(crypto_key_new_by(engine, &c->secret, &c->encrypt), 0);
	c->secret.direction = CRYPTO_DECRYPT;
	assert_int_equal(crypto_key_new_by(engine, &c->secret, &c->decrypt), 0);
}

static void
case_free(struct packet_case *c)
{
	crypto_key_free(c->encrypt);
	crypto_key_free(c->decrypt);
}

static void
case_op(struct packet_case *c, struct crypto_op *op, bool decrypt)
{
	uint8_t *packet = c->work + c->start;

	memcpy(c->work, decrypt ? c->sealed : c->plain, ROOM);
	*op = (struct crypto_op){.key = decrypt ? c->decrypt : c->encrypt,
		.data = packet + 8 + c->iv_length,
		.length = c->length,
		.icv = packet + 8 + c->iv_length + c->length,
		.iv = packet + 8,
		.aad = packet,
		.aad_length = (uint16_t)(c->secret.integrity ? 8 + c->iv_length : 8),
		.esn = c->esn,
		.esn_high = c->esn_high};
}

static bool
serves(const struct crypto_engine *engine, const struct algorithm *a)
{
	static struct packet_case c;
	struct crypto_key *key;

	case_secret(&c, a);
	if (crypto_key_new_by(engine, &c.secret, &key))
		return false;
	crypto_key_free(key);
	return true;
}

// All algorithms of the engine in one batch, in random order.
static void
mix(const struct crypto_engine *engine)
{
	static struct packet_case cases[OPS];
	static struct crypto_op ops[OPS];
	const struct algorithm *served[RTE_DIM(algorithms)];
	unsigned count = 0;

	for (unsigned a = 0; a < RTE_DIM(algorithms); a++)
		if (serves(engine, &algorithms[a]))
			served[count++] = &algorithms[a];
	for (unsigned round = 0; count > 0 && round < ROUNDS; round++) {
		for (unsigned i = 0; i < OPS; i++)
			case_new(&cases[i], engine, served[chance(count)], chance(round % 3 ? 200 : 2000), NULL);
		for (unsigned i = 0; i < OPS; i++)
			case_op(&cases[i], &ops[i], false);
		crypto_run(0, ops, OPS);
		for (unsigned i = 0; i < OPS; i++) {
			assert_int_equal(ops[i].status, CRYPTO_OK);
			assert_memory_equal(cases[i].work, cases[i].sealed, ROOM);
		}
		for (unsigned i = 0; i < OPS; i++)
			case_op(&cases[i], &ops[i], true);
		crypto_run(0, ops, OPS);
		for (unsigned i = 0; i < OPS; i++) {
			struct packet_case *c = &cases[i];
			unsigned data = c->start + 8 + c->iv_length, end = data + c->length;

			assert_int_equal(ops[i].status, CRYPTO_OK);
			assert_memory_equal(c->work, c->plain, end);
			// HMAC: the ICV may have changed. Nothing behind it has.
			assert_memory_equal(c->work + end + c->icv_length, c->plain + end + c->icv_length,
				ROOM - end - c->icv_length);
		}
		for (unsigned i = 0; i < OPS; i++)
			case_free(&cases[i]);
	}
}

static void
every_engine_agrees_with_the_reference_in_mixed_batches(void **state)
{
	for (unsigned e = 0; crypto_engine_at(e); e++)
		mix(crypto_engine_at(e));
}

// Every length up to several blocks, each in a batch of one algorithm.
static void
every_length_agrees_with_the_reference(void **state)
{
	static struct packet_case cases[OPS], keys;
	static struct crypto_op ops[OPS];

	for (unsigned e = 0; crypto_engine_at(e); e++)
		for (unsigned a = 0; a < RTE_DIM(algorithms); a++) {
			if (!serves(crypto_engine_at(e), &algorithms[a]))
				continue;
			case_new(&keys, crypto_engine_at(e), &algorithms[a], 0, NULL);
			for (unsigned base = 0; base < 7 * OPS; base += OPS) {
				for (unsigned i = 0; i < OPS; i++) {
					unsigned n = base + i, all = 5 * OPS;

					// Of longer ones, some with each length of the last block.
					case_new(&cases[i], crypto_engine_at(e), &algorithms[a],
						n < all ? n : all + (n - all) * 13, &keys);
					case_op(&cases[i], &ops[i], false);
				}
				crypto_run(0, ops, OPS);
				for (unsigned i = 0; i < OPS; i++) {
					assert_int_equal(ops[i].status, CRYPTO_OK);
					assert_memory_equal(cases[i].work, cases[i].sealed, ROOM);
				}
			}
			case_free(&keys);
		}
}

// Longer than what an engine does at once.
static void
long_packets_agree_with_the_reference(void **state)
{
	enum { LONG = 9000, AHEAD = 3 };
	static const unsigned lengths[] = {2500, 2976, 4091, 6128, LONG};
	static uint8_t plain[AHEAD + 8 + 16 + LONG + CRYPTO_ICV_MAX + 8], sealed[sizeof(plain)], work[sizeof(plain)];
	static struct packet_case c;

	for (unsigned e = 0; crypto_engine_at(e); e++)
		for (unsigned a = 0; a < RTE_DIM(algorithms); a++) {
			if (crypto_engine_at(e) == &crypto_device || !serves(crypto_engine_at(e), &algorithms[a]))
				continue;
			case_new(&c, crypto_engine_at(e), &algorithms[a], 0, NULL);
			for (unsigned i = 0; i < RTE_DIM(lengths); i++) {
				unsigned block = crypto_block_length(algorithms[a].cipher),
					 length = lengths[i] / block * block;
				uint8_t *packet = work + AHEAD;
				struct crypto_op op = {.key = c.encrypt,
					.data = packet + 8 + c.iv_length,
					.length = length,
					.icv = packet + 8 + c.iv_length + length,
					.iv = packet + 8,
					.aad = packet,
					.aad_length = (uint16_t)(c.secret.integrity ? 8 + c.iv_length : 8)};

				fill(plain, sizeof(plain) / 4 * 4);
				memcpy(sealed, plain, sizeof(plain));
				reference_seal(&c.secret, sealed + AHEAD, 8, c.iv_length, length, false, 0);
				memcpy(work, plain, sizeof(plain));
				crypto_run(0, &op, 1);
				assert_int_equal(op.status, CRYPTO_OK);
				assert_memory_equal(work, sealed, sizeof(work));
				op.key = c.decrypt;
				crypto_run(0, &op, 1);
				assert_int_equal(op.status, CRYPTO_OK);
				assert_memory_equal(work, plain, AHEAD + 8 + c.iv_length + length);
			}
			case_free(&c);
		}
}

static void
a_flipped_bit_anywhere_is_refused(void **state)
{
	static struct packet_case c;
	struct crypto_op op;

	for (unsigned e = 0; crypto_engine_at(e); e++)
		for (unsigned a = 0; a < RTE_DIM(algorithms); a++) {
			if (!serves(crypto_engine_at(e), &algorithms[a]))
				continue;
			case_new(&c, crypto_engine_at(e), &algorithms[a], 80, NULL);
			for (unsigned i = 0; i < 8 + c.iv_length + c.length + c.icv_length; i++) {
				case_op(&c, &op, true);
				c.work[c.start + i] ^= (uint8_t)(1u << chance(8));
				crypto_run(0, &op, 1);
				assert_int_equal(op.status, CRYPTO_BAD_ICV);
			}
			c.esn = true;
			case_op(&c, &op, true);
			op.esn_high ^= 0x100;
			crypto_run(0, &op, 1);
			assert_int_equal(op.status, CRYPTO_BAD_ICV);
			case_free(&c);
		}
}

static void
lengths_that_do_not_fit_are_refused_and_the_rest_is_done(void **state)
{
	static const struct algorithm cbc = {CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA256, 16};
	static struct packet_case cases[3];
	struct crypto_op ops[3];

	for (unsigned i = 0; i < 3; i++) {
		case_new(&cases[i], &crypto_ipsec_mb, &cbc, 64, NULL);
		case_op(&cases[i], &ops[i], false);
	}
	ops[1].length = 63;
	crypto_run(0, ops, 3);
	assert_int_equal(ops[0].status, CRYPTO_OK);
	assert_int_equal(ops[1].status, CRYPTO_BAD_LENGTH);
	assert_int_equal(ops[2].status, CRYPTO_OK);
	assert_memory_equal(cases[1].work, cases[1].plain, ROOM);
	assert_memory_equal(cases[2].work, cases[2].sealed, ROOM);
	for (unsigned i = 0; i < 3; i++)
		case_free(&cases[i]);
}

static void
an_empty_message_is_refused_and_spoils_no_other(void **state)
{
	static const struct algorithm null = {CRYPTO_NULL, 0, CRYPTO_HMAC_SHA256, 16};
	static struct packet_case c;
	struct crypto_op op, empty;

	for (unsigned e = 0; crypto_engine_at(e); e++) {
		if (!serves(crypto_engine_at(e), &null))
			continue;
		case_new(&c, crypto_engine_at(e), &null, 64, NULL);
		case_op(&c, &op, false);
		empty = op;
		empty.aad_length = 0;
		empty.length = 0;
		empty.aad = empty.icv = empty.data;
		crypto_run(0, &empty, 1);
		assert_int_equal(empty.status, CRYPTO_BAD_LENGTH);
		crypto_run(0, &op, 1);
		assert_int_equal(op.status, CRYPTO_OK);
		assert_memory_equal(c.work, c.sealed, ROOM);
		case_free(&c);
	}
}

// Packets of two keys in turn, by this engine and by one that works at once.
static void
enqueue_and_dequeue(const struct crypto_engine *engine)
{
	static const struct algorithm gcm = {CRYPTO_AES_GCM, 16, 0, 16};
	static struct packet_case cases[OPS];
	static struct crypto_op ops[OPS];
	struct crypto_op *in[OPS], *out[OPS];
	unsigned taken = 0, back = 0, next[2] = {0, 1};

	for (unsigned i = 0; i < OPS; i++) {
		case_new(&cases[i], i % 2 ? &crypto_ipsec_mb : engine, &gcm, 100 + i, i < 2 ? NULL : &cases[i % 2]);
		case_op(&cases[i], &ops[i], false);
		in[i] = &ops[i];
	}
	while (back < OPS) {
		taken += crypto_enqueue(0, in + taken, OPS - taken);
		back += crypto_dequeue(0, out + back, RTE_MIN(OPS - back, 5u));
	}
	assert_int_equal(crypto_dequeue(0, out, OPS), 0);
	for (unsigned i = 0; i < OPS; i++) {
		unsigned which = (unsigned)(out[i] - ops);

		// In the order of their key.
		assert_int_equal(which, next[which % 2]);
		next[which % 2] += 2;
		assert_int_equal(ops[i].status, CRYPTO_OK);
		assert_memory_equal(cases[i].work, cases[i].sealed, ROOM);
	}
	case_free(&cases[0]);
	case_free(&cases[1]);
}

static void
operations_that_were_enqueued_come_back_in_the_order_of_their_key(void **state)
{
	enqueue_and_dequeue(&crypto_ipsec_mb);
	enqueue_and_dequeue(&crypto_device);
}

static void
waiting_for_some_operations_keeps_those_that_were_enqueued(void **state)
{
	static const struct algorithm cbc = {CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA256, 16};
	static struct packet_case cases[2];
	struct crypto_op ops[2], *in = &ops[0], *out = NULL;

	for (unsigned i = 0; i < 2; i++) {
		case_new(&cases[i], &crypto_device, &cbc, 256, NULL);
		case_op(&cases[i], &ops[i], false);
	}
	assert_int_equal(crypto_enqueue(0, &in, 1), 1);
	crypto_run(0, &ops[1], 1);
	assert_int_equal(ops[1].status, CRYPTO_OK);
	while (crypto_dequeue(0, &out, 1) == 0)
		;
	assert_ptr_equal(out, &ops[0]);
	for (unsigned i = 0; i < 2; i++) {
		assert_memory_equal(cases[i].work, cases[i].sealed, ROOM);
		case_free(&cases[i]);
	}
}

static void
secrets_whose_lengths_do_not_fit_the_algorithm_are_refused(void **state)
{
	static const uint8_t bytes[256];
	struct crypto_secret gcm = {.cipher = CRYPTO_AES_GCM,
		.key = bytes,
		.key_length = 16,
		.salt = bytes,
		.salt_length = 4,
		.icv_length = 16};
	struct crypto_secret cbc = {.cipher = CRYPTO_AES_CBC,
		.integrity = CRYPTO_HMAC_SHA256,
		.key = bytes,
		.key_length = 16,
		.integrity_key = bytes,
		.integrity_key_length = 32,
		.icv_length = 16};
	struct crypto_secret bad[9];
	struct crypto_key *key;

	for (unsigned i = 0; i < RTE_DIM(bad); i++)
		bad[i] = i < 5 ? gcm : cbc;
	bad[0].key_length = 17;
	bad[1].salt_length = 3;
	bad[2].icv_length = 4;
	bad[3].integrity = CRYPTO_HMAC_SHA256;
	bad[4].cipher = CRYPTO_CIPHERS;
	bad[5].integrity = CRYPTO_NO_INTEGRITY;
	bad[6].integrity_key_length = 0;
	bad[7].icv_length = 33;
	bad[8].integrity_key_length = CRYPTO_INTEGRITY_KEY_MAX + 1;
	for (unsigned i = 0; i < RTE_DIM(bad); i++)
		assert_int_equal(crypto_key_new(&bad[i], &key), -EINVAL);
	assert_int_equal(crypto_key_new(&gcm, &key), 0);
	crypto_key_free(key);
	assert_int_equal(crypto_key_new(&cbc, &key), 0);
	crypto_key_free(key);
}

static void
a_released_key_leaves_only_zeros(void **state)
{
	static const uint8_t zeros[256];
	static const struct algorithm cbc = {CRYPTO_AES_CBC, 32, CRYPTO_HMAC_SHA512, 32};
	static struct packet_case c;
	uint32_t size;

	case_new(&c, &crypto_ipsec_mb, &cbc, 64, NULL);
	size = c.encrypt->size;
	case_free(&c);
	for (uint32_t at = 0; at + sizeof(zeros) <= size; at += sizeof(zeros))
		assert_memory_equal((const uint8_t *)c.encrypt + at, zeros, sizeof(zeros));
}

static void
a_key_is_in_no_core_dump(void **state)
{
	static const struct algorithm gcm = {CRYPTO_AES_GCM, 32, 0, 16};
	static struct packet_case c;
	FILE *maps = fopen("/proc/self/smaps", "r");
	bool inside = false, excluded = false;
	char line[512];

	case_new(&c, &crypto_ipsec_mb, &gcm, 64, NULL);
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long start, end;

		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = (uintptr_t)c.encrypt >= start && (uintptr_t)c.encrypt < end;
		else if (inside && strncmp(line, "VmFlags:", 8) == 0)
			excluded = strstr(line, " dd");
	}
	fclose(maps);
	assert_true(excluded);
	case_free(&c);
}

// Every way that is built, as far as the CPU has its instructions. Plain C runs on all.
static const struct {
	const struct crypto_engine *engine;
	const struct sm_way *way;
} ways[] = {{&crypto_sm_c, &sm_way_c}, {&crypto_sm_aesni, &sm_way_aesni}, {&crypto_sm_avx2, &sm_way_avx2},
	{&crypto_sm_vaes, &sm_way_vaes}, {&crypto_sm_gfni, &sm_way_gfni}};

// GB/T 32905 section 5: one message in all lanes.
static void
expect_sm3(const struct sm_way *way, const char *message, const uint32_t expected[SM3_WORDS])
{
	static const uint32_t start[SM3_WORDS] = {
		0x7380166f, 0x4914b2b9, 0x172442d7, 0xda8a0600, 0xa96f30bc, 0x163138aa, 0xe38dee4d, 0xb0fb0e4e};
	uint8_t text[2 * SM3_BLOCK] = {0};
	size_t length = strlen(message), blocks = (length + 9 + SM3_BLOCK - 1) / SM3_BLOCK;
	uint32_t state[SM3_WORDS * SM3_LANES_MAX] __attribute__((aligned(64)));
	const uint8_t *texts[SM3_LANES_MAX];

	memcpy(text, message, length);
	text[length] = 0x80;
	text[blocks * SM3_BLOCK - 2] = (uint8_t)(length * 8 >> 8);
	text[blocks * SM3_BLOCK - 1] = (uint8_t)(length * 8);
	for (unsigned lane = 0; lane < way->sm3_lanes; lane++)
		texts[lane] = text;
	for (unsigned i = 0; i < SM3_WORDS * way->sm3_lanes; i++)
		state[i] = start[i / way->sm3_lanes];
	way->sm3(state, texts, blocks);
	for (unsigned i = 0; i < SM3_WORDS * way->sm3_lanes; i++)
		assert_int_equal(state[i], expected[i / way->sm3_lanes]);
}

static void
every_way_of_sm3_gives_the_examples_of_the_standard(void **state)
{
	// GB/T 32905 appendix A.
	static const uint32_t abc[SM3_WORDS] = {0x66c7f0f4, 0x62eeedd9, 0xd1f2d46b, 0xdc10e4e2, 0x4167c487, 0x5cf2f7a2,
		0x297da02b, 0x8f4ba8e0},
			      abcd[SM3_WORDS] = {0xdebe9ff9, 0x2275b8a1, 0x38604889, 0xc18e5a4d, 0x6fdb70e5, 0x387e5765,
				      0x293dcba3, 0x9c0c5732};

	for (unsigned w = 0; w < RTE_DIM(ways); w++) {
		if (cpu_lacks(ways[w].engine->needs))
			continue;
		expect_sm3(ways[w].way, "abc", abc);
		expect_sm3(ways[w].way, "abcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcd", abcd);
	}
}

static void
every_way_of_sm4_gives_the_examples_of_the_standard(void **state)
{
	// GB/T 32907 appendix A.1: once; A.2: a million times.
	static const uint8_t plain[SM4_BLOCK] = {
		0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
	static const uint8_t once[SM4_BLOCK] = {
		0x68, 0x1e, 0xdf, 0x34, 0xd2, 0x06, 0x96, 0x5e, 0x86, 0xb3, 0xe9, 0x4f, 0x53, 0x6e, 0x42, 0x46};
	static const uint8_t million[SM4_BLOCK] = {
		0x59, 0x52, 0x98, 0xc7, 0xc6, 0xfd, 0x27, 0x1f, 0x04, 0x02, 0xf8, 0x04, 0xc3, 0x3d, 0x3f, 0x66};

	for (unsigned w = 0; w < RTE_DIM(ways); w++) {
		uint8_t blocks[SM4_BLOCKS_MAX][SM4_BLOCK] __attribute__((aligned(64)));
		const struct sm_way *way = ways[w].way;
		struct sm4_key key;

		if (cpu_lacks(ways[w].engine->needs))
			continue;
		sm4_expand(plain, key.rounds);
		way->sm4_prepare(&key);
		for (unsigned i = 0; i < way->sm4_group; i++)
			memcpy(blocks[i], plain, SM4_BLOCK);
		way->sm4_same(&key, blocks, 1);
		for (unsigned i = 0; i < way->sm4_group; i++)
			assert_memory_equal(blocks[i], once, SM4_BLOCK);
		for (unsigned n = 1; n < 1000000; n++)
			way->sm4_same(&key, blocks, 1);
		for (unsigned i = 0; i < way->sm4_group; i++)
			assert_memory_equal(blocks[i], million, SM4_BLOCK);
	}
}

// A packet with its operation inside of a buffer of the pool.
static struct rte_mbuf *
case_in_buffer(struct rte_mempool *pool, struct packet_case *c, struct crypto_op *op)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
	uint8_t *at;

	assert_non_null(m);
	at = (uint8_t *)rte_pktmbuf_append(m, ROOM);
	case_op(c, op, false);
	memcpy(at, c->work, ROOM);
	op->data = at + (op->data - c->work);
	op->icv = at + (op->icv - c->work);
	op->iv = at + (op->iv - c->work);
	op->aad = at + (op->aad - c->work);
	op->packet = m;
	return m;
}

static uint16_t
no_answer(void *queue, struct rte_crypto_op **ops, uint16_t count)
{
	return 0;
}

// The last test: nothing takes the device back into use. Its driver writes into packets when it is asked for results.
static void
a_device_without_an_answer_is_given_up_and_holds_its_packets(void **state)
{
	enum { BUFFERS = 8, LOST = 3 };
	static const struct algorithm gcm = {CRYPTO_AES_GCM, 16, 0, 16},
				      cbc = {CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA256, 16};
	static struct packet_case cases[LOST], other;
	struct crypto_op ops[LOST], kept[LOST], next;
	struct rte_mempool *buffers = rte_pktmbuf_pool_create("buffers", BUFFERS, 0, 0, ROOM + 128, SOCKET_ID_ANY);
	int id = rte_cryptodev_get_dev_id("crypto_aesni_mb0");
	struct rte_crypto_fp_ops *calls = &rte_crypto_fp_ops[id];
	dequeue_pkt_burst_t dequeue = calls->dequeue_burst;
	struct rte_mbuf *packets[LOST], *packet;
	struct crypto_key *key;

	assert_non_null(buffers);
	for (unsigned i = 0; i < LOST; i++) {
		case_new(&cases[i], &crypto_device, i ? &cbc : &gcm, 160 * (i + 1), NULL);
		packets[i] = case_in_buffer(buffers, &cases[i], &ops[i]);
	}
	assert_string_equal(crypto_key_engine(cases[0].encrypt), "cryptodev");
	calls->dequeue_burst = no_answer;
	crypto_run(0, ops, LOST);
	for (unsigned i = 0; i < LOST; i++)
		assert_int_equal(ops[i].status, CRYPTO_BAD_TIMEOUT);
	assert_true(crypto_device_given_up());
	assert_string_equal(crypto_key_engine(cases[0].encrypt), "ipsec-mb (cryptodev given up)");
	// The caller goes on with its operations, and frees its packets. No operation has their buffers.
	memset(ops, 0xee, sizeof(ops));
	memcpy(kept, ops, sizeof(kept));
	rte_pktmbuf_free_bulk(packets, LOST);
	assert_int_equal(rte_mempool_avail_count(buffers), BUFFERS - LOST);

	// Software serves the same keys, and new ones.
	for (unsigned i = 0; i < LOST; i++) {
		packet = case_in_buffer(buffers, &cases[i], &next);
		crypto_run(0, &next, 1);
		assert_int_equal(next.status, CRYPTO_OK);
		assert_ptr_equal(next.key, cases[i].encrypt);
		assert_memory_equal(rte_pktmbuf_mtod(packet, uint8_t *), cases[i].sealed, ROOM);
		rte_pktmbuf_free(packet);
	}
	case_new(&other, &crypto_ipsec_mb, &gcm, 100, NULL);
	other.secret.direction = CRYPTO_ENCRYPT;
	assert_int_equal(crypto_key_new_by(&crypto_device, &other.secret, &key), -ENOTSUP);
	assert_int_equal(crypto_key_new(&other.secret, &key), 0);
	assert_string_equal(crypto_key_engine(key), "ipsec-mb");
	crypto_key_free(key);

	// A late result of the device goes to no operation, and gives the buffers back.
	calls->dequeue_burst = dequeue;
	for (unsigned i = 0; i < 100 && rte_mempool_avail_count(buffers) < BUFFERS; i++) {
		case_op(&other, &next, false);
		next.key = cases[0].encrypt;
		crypto_run(0, &next, 1);
		assert_int_equal(next.status, CRYPTO_OK);
	}
	assert_int_equal(rte_mempool_avail_count(buffers), BUFFERS);
	assert_memory_equal(ops, kept, sizeof(ops));
	case_free(&other);
	for (unsigned i = 0; i < LOST; i++)
		case_free(&cases[i]);
	rte_mempool_free(buffers);
}

static int
set_up(void **state)
{
	char *arguments[] = {"crypto-test", "--no-huge", "--no-pci", "-m", "256", "--no-telemetry", "--no-shconf", "-l",
		"0", "--log-level=3"};

	if (rte_eal_init(RTE_DIM(arguments), arguments) < 0)
		return -1;
	crypto_use_device("crypto_aesni_mb0");
	return crypto_start();
}

static int
tear_down(void **state)
{
	crypto_stop();
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_engine_agrees_with_the_reference_in_mixed_batches),
		cmocka_unit_test(every_length_agrees_with_the_reference),
		cmocka_unit_test(long_packets_agree_with_the_reference),
		cmocka_unit_test(a_flipped_bit_anywhere_is_refused),
		cmocka_unit_test(lengths_that_do_not_fit_are_refused_and_the_rest_is_done),
		cmocka_unit_test(an_empty_message_is_refused_and_spoils_no_other),
		cmocka_unit_test(operations_that_were_enqueued_come_back_in_the_order_of_their_key),
		cmocka_unit_test(waiting_for_some_operations_keeps_those_that_were_enqueued),
		cmocka_unit_test(secrets_whose_lengths_do_not_fit_the_algorithm_are_refused),
		cmocka_unit_test(a_key_is_in_no_core_dump),
		cmocka_unit_test(every_way_of_sm3_gives_the_examples_of_the_standard),
		cmocka_unit_test(every_way_of_sm4_gives_the_examples_of_the_standard),
		cmocka_unit_test(a_released_key_leaves_only_zeros),
		cmocka_unit_test(a_device_without_an_answer_is_given_up_and_holds_its_packets),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
