// SPDX-License-Identifier: Apache-2.0
// The crypto engine by itself: bursts of packets of four security associations in turn, over the bytes that ESP in tunnel mode encrypts
// for frames of the scenario's size.
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_launch.h>

#include "bench.h"
#include "core/worker.h"
#include "crypto/crypto.h"

enum {
	KEYS = 4,
	OPS = 256,
	BUFFER = 2048,
	HEADER = 24,       // ESP's, and an IV
	ETHERNET = 14 + 4, // with FCS
	TRAILER = 2,       // ESP's, before it is padded
};

struct test {
	const struct cipher_case *cipher;
	uint16_t size;
	struct measured *measured;
	unsigned rounds;
	struct crypto_key *keys[KEYS];
	struct crypto_op *ops;
	uint8_t *buffers;
	bool failed;
	sem_t done;
};

static unsigned
length_of(const struct test *t, unsigned i)
{
	unsigned size = bench_size(t->size, i), block = RTE_MAX(crypto_block_length(t->cipher->cipher), 4u);

	return (size - ETHERNET + TRAILER + block - 1) / block * block;
}

static void
fill_in(struct test *t)
{
	// Neighbours in a burst differ in key.
	for (unsigned i = 0; i < OPS; i++) {
		uint8_t *packet = t->buffers + (size_t)i * BUFFER;
		unsigned length = length_of(t, i);

		t->ops[i] = (struct crypto_op){.key = t->keys[i % KEYS],
			.data = packet + HEADER,
			.length = length,
			.icv = packet + HEADER + length,
			.iv = packet + 8,
			.aad = packet,
			.aad_length = t->cipher->integrity ? 8 + crypto_iv_length(t->cipher->cipher) : 8};
		if (t->cipher->integrity)
			t->ops[i].aad = t->ops[i].data - t->ops[i].aad_length;
	}
}

// Cycles of a packet. Each burst begins with the same bytes, so that decryption finds its ICVs.
static double
window(struct test *t, const uint8_t *bytes, size_t size)
{
	uint64_t took = 0;

	for (unsigned r = 0; r < t->rounds; r++) {
		uint64_t before;

		memcpy(t->buffers, bytes, size);
		fill_in(t);
		before = rte_rdtsc_precise();
		crypto_run(0, t->ops, OPS);
		took += rte_rdtsc_precise() - before;
		for (unsigned i = 0; i < OPS; i++)
			t->failed |= t->ops[i].status != CRYPTO_OK;
	}
	return (double)took / t->rounds / OPS;
}

static int
keys_make(struct test *t, enum crypto_direction direction)
{
	uint8_t bytes[64] = {0};
	int error = 0;

	for (unsigned k = 0; k < KEYS && !error; k++) {
		bytes[0] = (uint8_t)k;
		error = crypto_key_new(&(struct crypto_secret){.cipher = t->cipher->cipher,
					       .integrity = t->cipher->integrity,
					       .direction = direction,
					       .key = bytes,
					       .key_length = t->cipher->key_length,
					       .salt = bytes,
					       .salt_length = t->cipher->integrity ? 0 : 4,
					       .integrity_key = bytes,
					       .integrity_key_length = t->cipher->integrity ? 32 : 0,
					       .icv_length = t->cipher->icv_length},
			&t->keys[k]);
	}
	return error;
}

static void
keys_free(struct test *t)
{
	for (unsigned k = 0; k < KEYS; k++) {
		crypto_key_free(t->keys[k]);
		t->keys[k] = NULL;
	}
}

static int
run(void *argument)
{
	struct test *t = argument;
	size_t size = (size_t)OPS * BUFFER;
	uint8_t *bytes = malloc(size);

	t->failed = !bytes;
	if (bytes) {
		memcpy(bytes, t->buffers, size);
		window(t, bytes, size);
		for (unsigned i = 0; i < REPEATS && !t->failed; i++)
			t->measured->cycles[i] = window(t, bytes, size);
	}
	free(bytes);
	sem_post(&t->done);
	return 0;
}

static int
ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int
measure_cipher(const struct scenario *s, unsigned rounds, struct measured *m)
{
	struct test t = {.cipher = s->cipher, .size = s->sizes[0], .measured = m, .rounds = RTE_MAX(rounds / 16, 1u)};

	t.ops = aligned_alloc(64, OPS * sizeof(t.ops[0]));
	t.buffers = aligned_alloc(64, (size_t)OPS * BUFFER);
	if (!t.ops || !t.buffers || keys_make(&t, CRYPTO_ENCRYPT)) {
		free(t.ops);
		free(t.buffers);
		return -1;
	}
	memset(t.buffers, 0, (size_t)OPS * BUFFER);
	sem_init(&t.done, 0, 0);
	if (s->cipher->decrypt) {
		fill_in(&t);
		crypto_run(worker_count, t.ops, OPS);
		keys_free(&t);
		t.failed = keys_make(&t, CRYPTO_DECRYPT) != 0;
	}
	if (!t.failed) {
		rte_eal_remote_launch(run, &t, workers[0].lcore);
		while (sem_wait(&t.done))
			;
		rte_eal_wait_lcore(workers[0].lcore);
		qsort(m->cycles, REPEATS, sizeof(m->cycles[0]), ascending);
	}
	sem_destroy(&t.done);
	keys_free(&t);
	free(t.ops);
	free(t.buffers);
	return t.failed ? -1 : 0;
}
