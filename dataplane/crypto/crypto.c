// SPDX-License-Identifier: Apache-2.0
// Keys, and operations on their way to the engines.
#include "crypto/crypto.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/fastest.h"
#include "core/slab.h"
#include "core/start.h"
#include "core/worker.h"
#include "cpu/cpu.h"
#include "crypto/engine.h"

enum {
	KEY_STEP = 64, // bytes: keys are allocated in multiples
	KEY_CLASSES = 64,
	KEYS_MAX = 1 << 20, // of a class
	DONE = 4096,        // operations that may wait for crypto_dequeue()
};

static const struct crypto_engine *const engines[] = {&crypto_device, &crypto_ipsec_mb, &crypto_ipsec_mb_sse,
	&crypto_sm_gfni, &crypto_sm_vaes, &crypto_sm_avx2, &crypto_sm_aesni, &crypto_sm_c, &crypto_openssl};
static struct crypto_context contexts[WORKER_MAX + 1];
static struct slab keys[KEY_CLASSES];
static char instead[RTE_DIM(engines)]
		   [64]; // what crypto_key_engine() says of an engine that serves in place of a device

struct crypto_context *
crypto_context_of(unsigned worker)
{
	return &contexts[worker];
}

unsigned
crypto_iv_length(enum crypto_cipher cipher)
{
	switch (cipher) {
	case CRYPTO_NULL:
		return 0;
	case CRYPTO_AES_CBC:
	case CRYPTO_SM4_CBC:
		return 16;
	default:
		return 8;
	}
}

unsigned
crypto_block_length(enum crypto_cipher cipher)
{
	return cipher == CRYPTO_AES_CBC || cipher == CRYPTO_SM4_CBC ? 16 : 1;
}

static bool
key_length_fits(const struct crypto_secret *s)
{
	switch (s->cipher) {
	case CRYPTO_NULL:
		return s->key_length == 0;
	case CRYPTO_AES_CBC:
	case CRYPTO_AES_CTR:
	case CRYPTO_AES_GCM:
	case CRYPTO_AES_GMAC:
		return s->key_length == 16 || s->key_length == 24 || s->key_length == 32;
	case CRYPTO_CHACHA20_POLY1305:
		return s->key_length == 32;
	case CRYPTO_SM4_CBC:
	case CRYPTO_SM4_GCM:
	case CRYPTO_SM4_CCM:
		return s->key_length == 16;
	default:
		return false;
	}
}

static bool
salt_length_fits(const struct crypto_secret *s)
{
	switch (s->cipher) {
	case CRYPTO_AES_CTR:
	case CRYPTO_AES_GCM:
	case CRYPTO_AES_GMAC:
	case CRYPTO_CHACHA20_POLY1305:
	case CRYPTO_SM4_GCM:
		return s->salt_length == 4;
	case CRYPTO_SM4_CCM:
		return s->salt_length == 3 || s->salt_length == 4;
	default:
		return s->salt_length == 0;
	}
}

static bool
has_integrity(enum crypto_cipher cipher)
{
	return cipher == CRYPTO_AES_GCM || cipher == CRYPTO_AES_GMAC || cipher == CRYPTO_CHACHA20_POLY1305 ||
	       cipher == CRYPTO_SM4_GCM || cipher == CRYPTO_SM4_CCM;
}

static bool
integrity_fits(const struct crypto_secret *s)
{
	static const uint8_t digest[CRYPTO_INTEGRITIES] = {
		[CRYPTO_HMAC_SHA1] = 20,
		[CRYPTO_HMAC_SHA256] = 32,
		[CRYPTO_HMAC_SHA384] = 48,
		[CRYPTO_HMAC_SHA512] = 64,
		[CRYPTO_HMAC_SM3] = 32,
	};

	if ((unsigned)s->integrity >= CRYPTO_INTEGRITIES ||
		has_integrity(s->cipher) != (s->integrity == CRYPTO_NO_INTEGRITY))
		return false;
	if (s->integrity != CRYPTO_NO_INTEGRITY)
		return s->integrity_key_length >= 1 && s->integrity_key_length <= CRYPTO_INTEGRITY_KEY_MAX &&
		       s->icv_length >= 10 && s->icv_length <= RTE_MIN(digest[s->integrity], CRYPTO_ICV_MAX);
	if (s->cipher == CRYPTO_CHACHA20_POLY1305)
		return s->icv_length == 16;
	return s->icv_length == 8 || s->icv_length == 12 || s->icv_length == 16;
}

static int
key_from(const struct crypto_engine *engine, const struct crypto_secret *s, size_t schedule, struct crypto_key **made)
{
	size_t size = (sizeof(struct crypto_key) + schedule + KEY_STEP - 1) / KEY_STEP * KEY_STEP;
	struct slab *slab = &keys[RTE_MIN(size / KEY_STEP - 1, KEY_CLASSES - 1)];
	struct crypto_key *key;
	uint32_t record;
	int error = 0;

	if (size > KEY_STEP * KEY_CLASSES)
		return -ENOTSUP;
	if (!slab->records) {
		error = slab_create(slab, size, KEYS_MAX);
		if (error)
			return error;
		// Keys are in no core dump, if the data plane may make some.
		madvise(slab->records, size * KEYS_MAX, MADV_DONTDUMP);
	}
	record = slab_take(slab);
	if (record == UINT32_MAX)
		return -ENOMEM;
	key = slab_at(slab, record);
	*key = (struct crypto_key){.engine = engine,
		.record = record,
		.size = (uint32_t)size,
		.salt_length = (uint8_t)s->salt_length,
		.icv_length = s->icv_length,
		.block_mask = (uint8_t)(crypto_block_length(s->cipher) - 1),
		.hmac = s->integrity != CRYPTO_NO_INTEGRITY,
		.direction = (uint8_t)s->direction,
		.cipher = (uint8_t)s->cipher,
		.integrity = (uint8_t)s->integrity,
		.key_length = (uint8_t)s->key_length};
	if (s->salt_length)
		memcpy(key->salt, s->salt, s->salt_length);
	error = engine->prepare(key, s);
	if (error) {
		explicit_bzero(key, size);
		slab_give(slab, record);
		return error;
	}
	*made = key;
	return 0;
}

static bool
secret_fits(const struct crypto_secret *s)
{
	return (unsigned)s->cipher < CRYPTO_CIPHERS && (unsigned)s->direction <= CRYPTO_DECRYPT && key_length_fits(s) &&
	       salt_length_fits(s) && integrity_fits(s);
}

const struct crypto_engine *
crypto_engine_at(unsigned index)
{
	return index < RTE_DIM(engines) ? engines[index] : NULL;
}

int
crypto_key_new_by(const struct crypto_engine *engine, const struct crypto_secret *s, struct crypto_key **key)
{
	size_t schedule;

	if (!secret_fits(s))
		return -EINVAL;
	schedule = cpu_lacks(engine->needs) || !engine->serves(s) ? 0 : engine->schedule_size(s);
	return schedule ? key_from(engine, s, schedule, key) : -ENOTSUP;
}

int
crypto_key_new(const struct crypto_secret *s, struct crypto_key **key)
{
	const struct crypto_engine *chosen = secret_fits(s) ? crypto_chosen(s) : NULL;
	int error = chosen ? crypto_key_new_by(chosen, s, key) : -ENOTSUP;

	for (unsigned e = 0; e < RTE_DIM(engines) && error == -ENOTSUP; e++)
		error = crypto_key_new_by(engines[e], s, key);
	return error;
}

int
crypto_key_new_without(const struct crypto_engine *engine, const struct crypto_secret *s, struct crypto_key **key)
{
	const struct crypto_engine *chosen = secret_fits(s) ? crypto_chosen_without(engine, s) : NULL;
	int error = chosen ? crypto_key_new_by(chosen, s, key) : -ENOTSUP;

	for (unsigned e = 0; e < RTE_DIM(engines) && error == -ENOTSUP; e++)
		if (engines[e] != engine)
			error = crypto_key_new_by(engines[e], s, key);
	return error;
}

void
crypto_key_free(struct crypto_key *key)
{
	struct slab *slab;
	uint32_t record;

	if (!key)
		return;
	slab = &keys[key->size / KEY_STEP - 1];
	record = key->record;
	if (key->engine->release)
		key->engine->release(key);
	explicit_bzero(key, key->size);
	slab_give(slab, record);
}

const char *
crypto_key_engine(const struct crypto_key *key)
{
	const struct crypto_key *serves = key->engine->serving ? key->engine->serving(key) : key;

	for (unsigned e = 0; serves != key && e < RTE_DIM(engines); e++)
		if (engines[e] == serves->engine)
			return instead[e];
	return serves->engine->name;
}

static bool
lengths_fit(const struct crypto_op *op, const struct crypto_key *key)
{
	if (op->length > CRYPTO_LENGTH_MAX || op->length & key->block_mask)
		return false;
	// An empty message would corrupt other messages in libIPSec_MB's job manager.
	if (key->hmac)
		return op->aad_length + op->length > 0 && op->aad + op->aad_length == op->data &&
		       op->icv == op->data + op->length;
	return op->aad_length <= CRYPTO_AAD_MAX && (!op->esn || op->aad_length >= 4);
}

static inline bool
same_kind(const struct crypto_key *a, const struct crypto_key *b)
{
	return a->run == b->run && a->engine == b->engine;
}

// Those of the first one's kind, all at once; then those of the first of the rest, and so on.
void
crypto_run_by_kind(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	struct crypto_op *same[CRYPTO_BATCH], *other[CRYPTO_BATCH];

	while (count > 0) {
		const struct crypto_key *first = ops[0]->key;
		unsigned same_count = 0, other_count = 0;

		for (unsigned i = 0; i < count; i++) {
			bool is = same_kind(ops[i]->key, first);

			same[same_count] = ops[i];
			other[other_count] = ops[i];
			same_count += is;
			other_count += !is;
		}
		first->run(context, same, same_count);
		memcpy(ops, other, other_count * sizeof(ops[0]));
		count = other_count;
	}
}

void
crypto_run(unsigned worker, struct crypto_op *ops, unsigned count)
{
	enum { PREFETCH = 8 };
	struct crypto_context *context = crypto_context_of(worker);
	struct crypto_op *all[CRYPTO_BATCH];

	while (count > 0) {
		unsigned batch = RTE_MIN(count, (unsigned)CRYPTO_BATCH), n = 0;
		const struct crypto_key *first = ops[0].key;
		bool mixed = false;

		for (unsigned i = 0; i < RTE_MIN(batch, (unsigned)PREFETCH); i++)
			rte_prefetch0(ops[i].key);
		for (unsigned i = 0; i < batch; i++) {
			struct crypto_op *op = &ops[i];

			if (i + PREFETCH < batch)
				rte_prefetch0(ops[i + PREFETCH].key);
			if (unlikely(!lengths_fit(op, op->key))) {
				op->status = CRYPTO_BAD_LENGTH;
				continue;
			}
			op->status = CRYPTO_BAD_PENDING;
			mixed |= !same_kind(op->key, first);
			all[n++] = op;
		}
		if (likely(!mixed && n > 0))
			first->run(context, all, n);
		else
			crypto_run_by_kind(context, all, n);
		ops += batch;
		count -= batch;
	}
}

void
crypto_done(struct crypto_context *context, struct crypto_op *op)
{
	context->done[context->done_head++ % DONE] = op;
}

// Those in a row that are of the first one's kind, checked.
static unsigned
take_kind(struct crypto_op **ops, unsigned count)
{
	unsigned n = 0;

	while (n < count && same_kind(ops[n]->key, ops[0]->key) && lengths_fit(ops[n], ops[n]->key))
		ops[n++]->status = CRYPTO_BAD_PENDING;
	return n;
}

unsigned
crypto_enqueue(unsigned worker, struct crypto_op **ops, unsigned count)
{
	struct crypto_context *context = crypto_context_of(worker);
	// Operations that a device still has need room as well.
	uint32_t used = context->done_head - context->done_tail + context->device_pending;
	unsigned room = used < DONE ? DONE - used : 0, taken = 0;

	count = RTE_MIN(count, room);
	while (taken < count) {
		unsigned n = take_kind(ops + taken, RTE_MIN(count - taken, (unsigned)CRYPTO_BATCH)), sent = n;
		const struct crypto_key *key = ops[taken]->key;

		if (n == 0) {
			ops[taken]->status = CRYPTO_BAD_LENGTH;
			crypto_done(context, ops[taken++]);
			continue;
		}
		if (key->engine->enqueue) {
			sent = key->engine->enqueue(context, ops + taken, n);
		} else {
			struct crypto_op *all[CRYPTO_BATCH];

			// An engine may use the array for something else.
			memcpy(all, ops + taken, n * sizeof(all[0]));
			key->run(context, all, n);
			for (unsigned i = 0; i < n; i++)
				crypto_done(context, ops[taken + i]);
		}
		taken += sent;
		if (sent < n)
			break;
	}
	return taken;
}

unsigned
crypto_dequeue(unsigned worker, struct crypto_op **ops, unsigned max)
{
	struct crypto_context *context = crypto_context_of(worker);
	unsigned n = RTE_MIN(max, context->done_head - context->done_tail);

	for (unsigned i = 0; i < n; i++)
		ops[i] = context->done[context->done_tail++ % DONE];
	for (unsigned e = 0; e < RTE_DIM(engines) && n < max && context->device_pending > 0; e++)
		if (engines[e]->dequeue)
			n += engines[e]->dequeue(context, ops + n, max - n);
	return n;
}

void
crypto_stop(void)
{
	for (unsigned w = 0; w <= worker_count; w++) {
		for (unsigned e = 0; e < RTE_DIM(engines); e++)
			if (engines[e]->stop)
				engines[e]->stop(&contexts[w]);
		free(contexts[w].done);
		contexts[w] = (struct crypto_context){0};
	}
}

int
crypto_start(void)
{
	for (unsigned e = 0; e < RTE_DIM(engines); e++)
		snprintf(instead[e], sizeof(instead[e]), "%s (%s given up)", engines[e]->name, crypto_device.name);
	for (unsigned w = 0; w <= worker_count; w++) {
		struct crypto_context *context = &contexts[w];

		context->worker = w;
		context->done = calloc(DONE, sizeof(context->done[0]));
		if (!context->done)
			return -ENOMEM;
		for (unsigned e = 0; e < RTE_DIM(engines); e++) {
			int error = 0;

			if (engines[e]->start && !cpu_lacks(engines[e]->needs))
				error = engines[e]->start(context);
			if (error) {
				fprintf(stderr, "crypto: the engine %s does not start: %s\n", engines[e]->name,
					strerror(-error));
				return error;
			}
		}
	}
	return 0;
}

static int
start(void)
{
	int error = crypto_start();

	return error ? error : crypto_choose();
}

static struct part part = {.name = "crypto engines", .phase = PART_BEFORE_WORKERS, .start = start, .stop = crypto_stop};
PART_REGISTER(part)

static int
select_engine(const char *text)
{
	return fastest_select("crypto", text);
}

static struct part_option engine_option = {.name = "crypto",
	.argument = "NAME=ENGINE",
	.help = "encrypt with this engine instead of the one that is fastest when it is tried at the\n"
		"start: aes-gcm=openssl; any number of times",
	.take = select_engine};
OPTION_REGISTER(engine_option)
