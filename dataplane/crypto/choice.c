// SPDX-License-Identifier: Apache-2.0
// Which engine serves each algorithm. When the data plane starts, each engine that this CPU has encrypts and decrypts
// the same packets, short and long ones; the fastest is used until the end, or that of --crypto. An engine whose
// results differ from the others is not used.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "core/fastest.h"
#include "crypto/engine.h"

enum {
	PACKETS = 32,
	LENGTH_SHORT = 64,
	LENGTH_LONG = 1024,
	HEADER = 24, // ESP's, and an IV
	ROOM = HEADER + LENGTH_LONG + CRYPTO_ICV_MAX,
	TURNS = 12, // of which the least counts
	SOME = 2,   // turns that there are in any case
	WORTH = 97, // percent of an earlier engine's time that a later one may take, so that noise does not choose
	SLOW = 3,   // times the best,
	SLOW_CYCLES = 8000, // or so many for a packet: no more turns
};

#define ALGORITHM(n, c, k, i, l) \
	{ \
		.fastest = {.name = n, .option = "crypto"}, .cipher = (c), .key_length = (k), .integrity = (i), \
		.icv_length = (l) \
	}
#define HMACS(n, c, k) \
	ALGORITHM(n "-sha1", c, k, CRYPTO_HMAC_SHA1, 12), ALGORITHM(n "-sha256", c, k, CRYPTO_HMAC_SHA256, 16), \
		ALGORITHM(n "-sha384", c, k, CRYPTO_HMAC_SHA384, 24), \
		ALGORITHM(n "-sha512", c, k, CRYPTO_HMAC_SHA512, 32)

static struct algorithm {
	struct fastest fastest; // ways are engines, in their order
	enum crypto_cipher cipher;
	uint8_t key_length; // it is tried with
	enum crypto_integrity integrity;
	uint8_t icv_length;
	const struct crypto_engine *engines[FASTEST_WAYS];
} algorithms[] = {
	ALGORITHM("aes-gcm", CRYPTO_AES_GCM, 32, CRYPTO_NO_INTEGRITY, 16),
	ALGORITHM("aes-gmac", CRYPTO_AES_GMAC, 32, CRYPTO_NO_INTEGRITY, 16),
	ALGORITHM("chacha20-poly1305", CRYPTO_CHACHA20_POLY1305, 32, CRYPTO_NO_INTEGRITY, 16),
	ALGORITHM("sm4-gcm", CRYPTO_SM4_GCM, 16, CRYPTO_NO_INTEGRITY, 16),
	ALGORITHM("sm4-ccm", CRYPTO_SM4_CCM, 16, CRYPTO_NO_INTEGRITY, 16),
	ALGORITHM("sm4-cbc-sm3", CRYPTO_SM4_CBC, 16, CRYPTO_HMAC_SM3, 16),
	ALGORITHM("null-sm3", CRYPTO_NULL, 0, CRYPTO_HMAC_SM3, 16),
	HMACS("aes-cbc", CRYPTO_AES_CBC, 16),
	HMACS("aes-ctr", CRYPTO_AES_CTR, 16),
	HMACS("null", CRYPTO_NULL, 0),
};

static const uint8_t secret_bytes[64] = {0x5a, 0xa5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static struct crypto_secret
secret_of(const struct algorithm *a, enum crypto_direction direction)
{
	bool salted = a->cipher != CRYPTO_NULL && crypto_block_length(a->cipher) == 1;

	return (struct crypto_secret){.cipher = a->cipher,
		.integrity = a->integrity,
		.direction = direction,
		.key = secret_bytes,
		.key_length = a->key_length,
		.salt = secret_bytes,
		.salt_length = salted ? CRYPTO_SALT_MAX : 0,
		.integrity_key = secret_bytes,
		.integrity_key_length = a->integrity ? 32 : 0,
		.icv_length = a->icv_length};
}

struct trial {
	struct crypto_op ops[PACKETS];
	uint8_t packets[PACKETS][ROOM], expected[PACKETS][ROOM];
	bool is_expected; // by an engine before
};

static void
fill_in(struct trial *t, const struct algorithm *a, const struct crypto_key *key)
{
	for (unsigned i = 0; i < PACKETS; i++) {
		unsigned length = i % 2 ? LENGTH_LONG : LENGTH_SHORT;

		t->ops[i] = (struct crypto_op){.key = key,
			.data = t->packets[i] + HEADER,
			.length = length,
			.icv = t->packets[i] + HEADER + length,
			.iv = t->packets[i] + 8,
			.aad = t->packets[i],
			.aad_length = a->integrity ? HEADER : 8};
	}
}

// Cycles of all packets; 0: an operation failed.
static uint64_t
run(struct trial *t, const struct algorithm *a, const struct crypto_key *key)
{
	uint64_t took;

	fill_in(t, a, key);
	took = rte_rdtsc_precise();
	crypto_run(worker_count, t->ops, PACKETS);
	took = rte_rdtsc_precise() - took;
	for (unsigned i = 0; i < PACKETS; i++)
		if (t->ops[i].status != CRYPTO_OK)
			return 0;
	return took;
}

// One engine: cycles of a packet, both directions; 0: it does not serve the algorithm here, or its results differ.
static double
try_engine(struct trial *t, const struct algorithm *a, const struct crypto_engine *engine, double best)
{
	struct crypto_secret encrypt = secret_of(a, CRYPTO_ENCRYPT), decrypt = secret_of(a, CRYPTO_DECRYPT);
	struct crypto_key *keys[2] = {NULL, NULL};
	double least = 0;

	if (crypto_key_new_by(engine, &encrypt, &keys[0]) || crypto_key_new_by(engine, &decrypt, &keys[1])) {
		crypto_key_free(keys[0]);
		return 0;
	}
	for (unsigned turn = 0; turn < TURNS; turn++) {
		uint64_t there, back;
		double took;

		memset(t->packets, 0, sizeof(t->packets));
		there = run(t, a, keys[0]);
		if (t->is_expected && memcmp(t->packets, t->expected, sizeof(t->packets)) != 0)
			there = 0;
		if (!t->is_expected)
			memcpy(t->expected, t->packets, sizeof(t->packets));
		t->is_expected = true;
		back = run(t, a, keys[1]);
		if (there == 0 || back == 0) {
			if (engine != &crypto_device || !crypto_device_given_up())
				fprintf(stderr,
					"crypto: the engine %s gives wrong results for %s on this CPU: it is not "
					"used\n",
					engine->name, a->fastest.name);
			least = 0;
			break;
		}
		took = (double)(there + back) / (2 * PACKETS);
		if (turn == 0 || took < least)
			least = took;
		if (turn >= SOME && (least > SLOW_CYCLES || (best > 0 && least > SLOW * best)))
			break;
	}
	crypto_key_free(keys[0]);
	crypto_key_free(keys[1]);
	return least;
}

static void
choose(struct trial *t, struct algorithm *a)
{
	struct fastest *f = &a->fastest;
	double best = 0;
	unsigned way = FASTEST_WAYS;

	t->is_expected = false;
	// The last engine runs on every CPU: the results of others are compared with its results.
	for (unsigned w = FASTEST_WAYS; w-- > 0;) {
		if (!a->engines[w])
			continue;
		f->cycles[w] = fastest_has(f, w) ? try_engine(t, a, a->engines[w], best) : 0;
		if (f->cycles[w] > 0 && (best == 0 || f->cycles[w] * 100 < best * WORTH)) {
			best = f->cycles[w];
			way = w;
		}
	}
	if (f->asked && f->cycles[f->way] > 0)
		return;
	if (f->asked)
		fprintf(stderr, "crypto: %s cannot serve %s here\n", f->ways[f->way].name, f->name);
	f->asked = false;
	f->way = way == FASTEST_WAYS ? 0 : way;
}

static void
log_choice(const struct fastest *f)
{
	char text[256];
	size_t used = 0;

	for (unsigned w = 0; w < FASTEST_WAYS && used < sizeof(text); w++)
		if (f->cycles[w] > 0)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %.0f", used ? ", " : "",
				f->ways[w].name, f->cycles[w]);
	fprintf(stderr, "crypto %s: %s%s (cycles a packet: %s)\n", f->name, f->ways[f->way].name,
		f->asked ? ", as asked" : "", text);
}

static struct trial *
trial_new(void)
{
	return aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(struct trial), 64));
}

int
crypto_choose(void)
{
	bool given_up = crypto_device_given_up();
	struct trial *t = trial_new();

	for (unsigned a = 0; t && a < RTE_DIM(algorithms); a++) {
		choose(t, &algorithms[a]);
		log_choice(&algorithms[a].fastest);
		// A device that was given up may still write into this memory: nothing uses it again.
		if (given_up != crypto_device_given_up()) {
			given_up = true;
			t = trial_new();
		}
	}
	if (!t)
		return -ENOMEM;
	free(t);
	return 0;
}

static struct algorithm *
algorithm_of(const struct crypto_secret *secret)
{
	for (unsigned i = 0; i < RTE_DIM(algorithms); i++)
		if (algorithms[i].cipher == secret->cipher && algorithms[i].integrity == secret->integrity)
			return &algorithms[i];
	return NULL;
}

const struct crypto_engine *
crypto_chosen(const struct crypto_secret *secret)
{
	const struct algorithm *a = algorithm_of(secret);

	return a ? a->engines[__atomic_load_n(&a->fastest.way, __ATOMIC_RELAXED)] : NULL;
}

// FASTEST_WAYS: no other one was tried.
static unsigned
fastest_without(const struct algorithm *a, const struct crypto_engine *engine)
{
	const double *cycles = a->fastest.cycles;
	unsigned best = FASTEST_WAYS;

	for (unsigned w = 0; w < FASTEST_WAYS; w++)
		if (a->engines[w] && a->engines[w] != engine && cycles[w] > 0 &&
			(best == FASTEST_WAYS || cycles[w] < cycles[best]))
			best = w;
	return best;
}

const struct crypto_engine *
crypto_chosen_without(const struct crypto_engine *engine, const struct crypto_secret *secret)
{
	const struct algorithm *a = algorithm_of(secret);
	unsigned way = a ? fastest_without(a, engine) : FASTEST_WAYS;

	return way < FASTEST_WAYS ? a->engines[way] : NULL;
}

void
crypto_choose_without(const struct crypto_engine *engine)
{
	for (unsigned i = 0; i < RTE_DIM(algorithms); i++) {
		struct algorithm *a = &algorithms[i];
		unsigned way = fastest_without(a, engine);

		if (a->engines[a->fastest.way] != engine || way == FASTEST_WAYS)
			continue;
		__atomic_store_n(&a->fastest.way, way, __ATOMIC_RELAXED);
		__atomic_store_n(&a->fastest.asked, false, __ATOMIC_RELAXED);
	}
}

RTE_INIT(register_algorithms)
{
	for (unsigned i = 0; i < RTE_DIM(algorithms); i++) {
		struct algorithm *a = &algorithms[i];
		struct crypto_secret secret = secret_of(a, CRYPTO_ENCRYPT);
		unsigned way = 0;

		for (unsigned e = 0; crypto_engine_at(e) && way < FASTEST_WAYS; e++) {
			const struct crypto_engine *engine = crypto_engine_at(e);

			if (!engine->serves(&secret))
				continue;
			a->fastest.ways[way] = (struct fastest_way){engine->name, engine->needs};
			a->engines[way++] = engine;
		}
		fastest_register(&a->fastest);
	}
}
