// SPDX-License-Identifier: Apache-2.0
// The interface between crypto.c and the engines: engines, keys, and the context of a worker.
#pragma once

#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_prefetch.h>

#include "core/worker.h"
#include "crypto/crypto.h"

struct crypto_context;

// Every operation is of a key of the same engine, whose `run` this is; crypto.c has checked its lengths. Writes each operation's status.
typedef void (*crypto_run_fn)(struct crypto_context *context, struct crypto_op **ops, unsigned count);

struct crypto_key {
	// The first cache line: fields that are read before the engine's schedule.
	crypto_run_fn run;
	uint8_t salt[CRYPTO_SALT_MAX];
	uint8_t salt_length;
	uint8_t icv_length;
	uint8_t block_mask; // `length` has none of these bits
	bool hmac;          // the ICV is HMAC's: `aad`, `data` and `icv` lie in a row
	uint8_t direction;
	uint8_t cipher;
	uint8_t integrity;
	uint8_t key_length;
	const struct crypto_engine *engine;
	uint32_t record; // in the slab of keys of this size
	uint32_t size;   // bytes, this line included
	const void *own; // the engine's
	uint8_t first_line[16];
	uint8_t schedule[]; // the engine's
} __attribute__((aligned(64)));

_Static_assert(offsetof(struct crypto_key, schedule) == 64, "the schedule starts on a cache line");

struct crypto_engine {
	const char *name;
	uint64_t needs; // of the CPU: bits of enum cpu_feature
	// Whether it has the algorithm of this secret at all.
	bool (*serves)(const struct crypto_secret *secret);
	// Bytes of the schedule for a secret that it serves, or 0: not on this machine.
	size_t (*schedule_size)(const struct crypto_secret *secret);
	// Fill in `schedule` and `run`. The rest of the key is filled in. 0 or a negative errno.
	int (*prepare)(struct crypto_key *key, const struct crypto_secret *secret);
	// Before the schedule is overwritten with zeros; may be NULL.
	void (*release)(struct crypto_key *key);
	// The key that serves in place of this one now, or the key itself; may be NULL.
	const struct crypto_key *(*serving)(const struct crypto_key *key);
	// Allocates the context of a worker, before workers start; may be NULL.
	int (*start)(struct crypto_context *context);
	void (*stop)(struct crypto_context *context);
	// Of an engine that works beside the CPU; else NULL. `enqueue` returns how many it took, from the first on.
	unsigned (*enqueue)(struct crypto_context *context, struct crypto_op **ops, unsigned count);
	unsigned (*dequeue)(struct crypto_context *context, struct crypto_op **ops, unsigned max);
};

struct IMB_MGR;

// A worker's, and the main thread's.
struct crypto_context {
	unsigned worker;
	struct IMB_MGR *mb[2];   // of ipsec_mb.c: with the widest vectors, and with SSE and SHA-NI
	unsigned device_pending; // operations that cryptodev.c gave the device; the main thread reads it
	// Operations that are done and wait for crypto_dequeue().
	struct crypto_op **done;
	uint32_t done_head, done_tail;
} __rte_cache_aligned;

extern const struct crypto_engine crypto_ipsec_mb, crypto_device, crypto_ipsec_mb_sse, crypto_openssl, crypto_sm_c,
	crypto_sm_aesni, crypto_sm_avx2, crypto_sm_vaes, crypto_sm_gfni;

// In the order in which they are preferred; NULL: no more.
const struct crypto_engine *crypto_engine_at(unsigned index);
// As crypto_key_new(), by this engine.
int crypto_key_new_by(const struct crypto_engine *engine, const struct crypto_secret *secret, struct crypto_key **key);

// As crypto_key_new(), by any engine but this one.
int crypto_key_new_without(
	const struct crypto_engine *engine, const struct crypto_secret *secret, struct crypto_key **key);
// Operations of any mix of keys. The array's order changes.
void crypto_run_by_kind(struct crypto_context *context, struct crypto_op **ops, unsigned count);
// The device did not answer crypto_run() in time, and serves no longer. It may still write into memory of operations without a packet.
bool crypto_device_given_up(void);

// Try all engines with all algorithms, and choose. 0 or a negative errno.
int crypto_choose(void);
// The engine that was chosen for the secret's algorithm; NULL: it is none of those that are tried.
const struct crypto_engine *crypto_chosen(const struct crypto_secret *secret);
// The fastest one but `engine`; NULL: none was tried.
const struct crypto_engine *crypto_chosen_without(
	const struct crypto_engine *engine, const struct crypto_secret *secret);
// The engine serves no longer: the fastest of the others is the choice. Any thread.
void crypto_choose_without(const struct crypto_engine *engine);

// The operation is done and waits for crypto_dequeue().
void crypto_done(struct crypto_context *context, struct crypto_op *op);

struct crypto_context *crypto_context_of(unsigned worker);

// 16 bytes: salt, IV and, where a mode counts from 1, the counter (RFC 4106 section 4, RFC 3686 section 4).
static inline void
crypto_nonce(const struct crypto_op *op, uint8_t nonce[16])
{
	static const uint8_t one[4] = {0, 0, 0, 1};

	memcpy(nonce, op->key->salt, 4);
	memcpy(nonce + 4, op->iv, 8);
	memcpy(nonce + 12, one, 4);
}

// The additional authenticated data, with the extended sequence number in it: `own` has room for CRYPTO_AAD_MAX + 4 bytes.
static inline const uint8_t *
crypto_aad(const struct crypto_op *op, uint8_t own[CRYPTO_AAD_MAX + 4], unsigned *length)
{
	*length = op->aad_length;
	if (likely(!op->esn))
		return op->aad;
	memcpy(own, op->aad, 4);
	memcpy(own + 4, &op->esn_high, 4);
	memcpy(own + 8, op->aad + 4, op->aad_length - 4u);
	*length += 4;
	return own;
}

// In constant time.
static inline bool
crypto_equal(const uint8_t *a, const uint8_t *b, unsigned length)
{
	uint8_t differs = 0;

	for (unsigned i = 0; i < length; i++)
		differs |= a[i] ^ b[i];
	return differs == 0;
}

static inline void
crypto_judge(struct crypto_op *op, const uint8_t *computed)
{
	op->status = crypto_equal(op->icv, computed, op->key->icv_length) ? CRYPTO_OK : CRYPTO_BAD_ICV;
}

// Schedules of several SAs lie anywhere in memory.
static inline void
crypto_prefetch(const struct crypto_key *key, unsigned bytes)
{
	for (unsigned at = 0; at < bytes; at += 64)
		rte_prefetch0(key->schedule + at);
}
