// SPDX-License-Identifier: Apache-2.0
// Devices of DPDK's cryptodev: a card, or libIPSec_MB or OpenSSL behind the same interface. A device works beside the CPU:
// crypto_enqueue() gives it operations, crypto_dequeue() takes results. crypto_run() does both and waits.
//
// A device that does not answer crypto_run() in time is given up until the data plane starts again: each key has a second schedule, of the
// engine that is fastest without the device, and this one serves from then on. The device may still write into the packets that it has:
// their buffers are held until it returns them.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cryptodev.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_mbuf.h>
#include <rte_version.h>

#include "core/start.h"
#include "crypto/engine.h"

enum {
	DEVICES_MAX = 8,
	DEPTH = 1024, // operations on their way, of a worker
	SESSIONS = 16384,
	NONCE = 16,
	SEND = 32,    // operations in a call
	PATIENCE = 1, // seconds that crypto_run() waits for a device
};

// Behind DPDK's operation. `packet` serves operations whose caller has none: of devices that read the CPU's addresses.
struct own {
	uint8_t nonce[NONCE];
	uint8_t aad[CRYPTO_AAD_MAX + 4 + 12];
	uint8_t icv[CRYPTO_ICV_MAX];
	struct crypto_op *op; // NULL: its caller has given it up,
	struct rte_mbuf
		*held; // and this is its packet, which the device may still write into; NULL: the caller had none
	struct rte_mbuf packet;
};

struct pending {
	struct rte_crypto_op op;
	struct rte_crypto_sym_op sym;
	struct own own;
};

// A session knows the length of the AAD: without and with an extended sequence number. HMAC has the first only.
struct device_key {
	void *sessions[2];
	struct crypto_key *software; // serves in place of the device; NULL: no other engine has the algorithm
};

enum { AAD_PLAIN = 8, AAD_ESN = 12 };

static const char *devices[DEVICES_MAX];
static unsigned device_count;
static int device = -1; // the last one: the one in use
static struct rte_mempool *sessions, *pool;
static bool given_up; // for good: workers read it for each batch

// In `own` of an operation while the device has it.
struct under_way {
	struct pending *pending;
	enum { QUEUED, WAITED_FOR } receiver; // when it comes back
};

_Static_assert(sizeof(struct under_way) <= sizeof(((struct crypto_op *)0)->own), "the part of an operation fits");

static inline struct under_way *
under_way(struct crypto_op *op)
{
	return (struct under_way *)op->own;
}

static inline bool
is_given_up(void)
{
	return __atomic_load_n(&given_up, __ATOMIC_RELAXED);
}

bool
crypto_device_given_up(void)
{
	return is_given_up();
}

int
crypto_use_device(const char *name)
{
	if (device_count == DEVICES_MAX)
		return -ENOSPC;
	devices[device_count++] = name;
	return 0;
}

static struct part_option device_option = {.name = "crypto-device",
	.argument = "DEV",
	.help = "a device of cryptodev that may encrypt: crypto_aesni_mb0 or a card's PCI address; of several\n"
		"the last one is used, the others are for a crypto_scheduler0,worker=...,mode=round-robin",
	.take = crypto_use_device,
	.accepted = "up to eight devices"};
OPTION_REGISTER(device_option)

static bool
serves(const struct crypto_secret *s)
{
	return s->cipher != CRYPTO_AES_GMAC && s->cipher != CRYPTO_SM4_GCM && s->cipher != CRYPTO_SM4_CCM;
}

static int
cipher_of(const struct crypto_secret *s)
{
	return s->cipher == CRYPTO_AES_CBC   ? RTE_CRYPTO_CIPHER_AES_CBC
	       : s->cipher == CRYPTO_AES_CTR ? RTE_CRYPTO_CIPHER_AES_CTR
					     : RTE_CRYPTO_CIPHER_SM4_CBC;
}

// -1: DPDK has no identifier.
static int
auth_of(enum crypto_integrity integrity)
{
	switch (integrity) {
	case CRYPTO_HMAC_SHA1:
		return RTE_CRYPTO_AUTH_SHA1_HMAC;
	case CRYPTO_HMAC_SHA256:
		return RTE_CRYPTO_AUTH_SHA256_HMAC;
	case CRYPTO_HMAC_SHA384:
		return RTE_CRYPTO_AUTH_SHA384_HMAC;
	case CRYPTO_HMAC_SHA512:
		return RTE_CRYPTO_AUTH_SHA512_HMAC;
	default:
#if RTE_VERSION >= RTE_VERSION_NUM(24, 11, 0, 0)
		return RTE_CRYPTO_AUTH_SM3_HMAC;
#else
		return -1;
#endif
	}
}

static int
aead_of(enum crypto_cipher cipher)
{
	return cipher == CRYPTO_AES_GCM ? RTE_CRYPTO_AEAD_AES_GCM : RTE_CRYPTO_AEAD_CHACHA20_POLY1305;
}

static bool
device_has(const struct crypto_secret *s)
{
	struct rte_cryptodev_sym_capability_idx index = {.type = RTE_CRYPTO_SYM_XFORM_AEAD};
	const struct rte_cryptodev_symmetric_capability *has;

	if (s->integrity == CRYPTO_NO_INTEGRITY) {
		index.algo.aead = (enum rte_crypto_aead_algorithm)aead_of(s->cipher);
		has = rte_cryptodev_sym_capability_get((uint8_t)device, &index);
		return has &&
		       !rte_cryptodev_sym_capability_check_aead(has, (uint16_t)s->key_length, s->icv_length, 8, 12) &&
		       !rte_cryptodev_sym_capability_check_aead(has, (uint16_t)s->key_length, s->icv_length, 12, 12);
	}
	if (auth_of(s->integrity) < 0)
		return false;
	index.type = RTE_CRYPTO_SYM_XFORM_AUTH;
	index.algo.auth = (enum rte_crypto_auth_algorithm)auth_of(s->integrity);
	has = rte_cryptodev_sym_capability_get((uint8_t)device, &index);
	if (!has || rte_cryptodev_sym_capability_check_auth(has, (uint16_t)s->integrity_key_length, s->icv_length, 0))
		return false;
	if (s->cipher == CRYPTO_NULL)
		return true;
	index.type = RTE_CRYPTO_SYM_XFORM_CIPHER;
	index.algo.cipher = (enum rte_crypto_cipher_algorithm)cipher_of(s);
	has = rte_cryptodev_sym_capability_get((uint8_t)device, &index);
	return has && !rte_cryptodev_sym_capability_check_cipher(has, (uint16_t)s->key_length, NONCE);
}

static size_t
schedule_size(const struct crypto_secret *s)
{
	return device >= 0 && !is_given_up() && device_has(s) ? sizeof(struct device_key) : 0;
}

// NULL: its AAD is none of ESP's, or it has no data, which drivers read as another algorithm.
static void *
session_of(const struct crypto_op *op)
{
	const struct device_key *key = (const struct device_key *)op->key->schedule;

	if (op->length == 0)
		return NULL;
	if (op->key->hmac)
		return key->sessions[0];
	return op->aad_length == AAD_PLAIN ? key->sessions[op->esn] : NULL;
}

static void
pending_fill(struct pending *p, struct crypto_op *op)
{
	const struct crypto_key *key = op->key;
	bool decrypt = key->direction == CRYPTO_DECRYPT;
	struct rte_crypto_sym_op *sym = &p->sym;
	struct rte_mbuf *m = op->packet;
	const uint8_t *first = key->hmac ? op->aad : op->data;
	uint8_t *digest = p->own.icv;
	rte_iova_t here = p->op.phys_addr;
	uint32_t at, at_data;

	__rte_crypto_op_reset(&p->op, RTE_CRYPTO_OP_TYPE_SYMMETRIC);
	rte_crypto_op_attach_sym_session(&p->op, session_of(op));
	p->own.op = op;
	p->own.held = NULL;
	under_way(op)->pending = p;
	if (!m) {
		m = &p->own.packet;
		*m = (struct rte_mbuf){.buf_addr = (void *)(uintptr_t)first,
			.buf_len = UINT16_MAX,
			.data_len = (uint16_t)(op->data + op->length + key->icv_length - first),
			.nb_segs = 1};
		m->pkt_len = m->data_len;
		rte_mbuf_refcnt_set(m, 1);
	}
	sym->m_src = m;
	sym->m_dst = NULL;
	at = (uint32_t)(first - rte_pktmbuf_mtod(m, const uint8_t *));
	at_data = (uint32_t)(op->data - rte_pktmbuf_mtod(m, uint8_t *));
	if (decrypt)
		memcpy(digest, op->icv, key->icv_length);
	if (key->hmac) {
		if (op->esn)
			memcpy(op->icv, &op->esn_high, 4);
		if (key->cipher == CRYPTO_AES_CTR)
			crypto_nonce(op, p->own.nonce);
		else if (key->cipher != CRYPTO_NULL)
			memcpy(p->own.nonce, op->iv, NONCE);
		sym->cipher.data.offset = at_data;
		sym->cipher.data.length = op->length;
		sym->auth.data.offset = at;
		sym->auth.data.length = op->aad_length + op->length + (op->esn ? 4 : 0);
		sym->auth.digest.data = digest;
		sym->auth.digest.phys_addr = here + offsetof(struct pending, own.icv);
	} else {
		unsigned aad_length;
		const uint8_t *aad = crypto_aad(op, p->own.aad, &aad_length);

		if (aad != p->own.aad)
			memcpy(p->own.aad, aad, aad_length);
		crypto_nonce(op, p->own.nonce);
		sym->aead.data.offset = at_data;
		sym->aead.data.length = op->length;
		sym->aead.aad.data = p->own.aad;
		sym->aead.aad.phys_addr = here + offsetof(struct pending, own.aad);
		sym->aead.digest.data = digest;
		sym->aead.digest.phys_addr = here + offsetof(struct pending, own.icv);
	}
}

// The operation; NULL: its caller has given it up, and its packet is free now.
static struct crypto_op *
pending_finish(struct pending *p)
{
	struct crypto_op *op = p->own.op;

	if (unlikely(!op)) {
		rte_pktmbuf_free(p->own.held);
		return NULL;
	}
	if (p->op.status == RTE_CRYPTO_OP_STATUS_SUCCESS) {
		op->status = CRYPTO_OK;
		if (op->key->direction == CRYPTO_ENCRYPT)
			memcpy(op->icv, p->own.icv, op->key->icv_length);
	} else {
		op->status = p->op.status == RTE_CRYPTO_OP_STATUS_AUTH_FAILED ? CRYPTO_BAD_ICV : CRYPTO_BAD_ENGINE;
	}
	return op;
}

// The main thread reads it.
static inline void
pending_count(struct crypto_context *context, unsigned count)
{
	__atomic_store_n(&context->device_pending, count, __ATOMIC_RELAXED);
}

static unsigned
device_enqueue(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	struct rte_crypto_op *burst[SEND];
	unsigned taken = 0;

	while (taken < count && context->device_pending < DEPTH) {
		unsigned n = RTE_MIN(RTE_MIN(count - taken, (unsigned)SEND), DEPTH - context->device_pending), sent;

		if (rte_crypto_op_bulk_alloc(pool, RTE_CRYPTO_OP_TYPE_SYMMETRIC, burst, (uint16_t)n) != n)
			break;
		for (unsigned i = 0; i < n; i++)
			pending_fill((struct pending *)burst[i], ops[taken + i]);
		sent = rte_cryptodev_enqueue_burst((uint8_t)device, (uint16_t)context->worker, burst, (uint16_t)n);
		pending_count(context, context->device_pending + sent);
		taken += sent;
		if (sent == n)
			continue;
		// The ICV may lie where the extended sequence number is now.
		for (unsigned i = sent; i < n; i++) {
			const struct pending *p = (const struct pending *)burst[i];

			if (p->own.op->key->direction == CRYPTO_DECRYPT)
				memcpy(p->own.op->icv, p->own.icv, p->own.op->key->icv_length);
			rte_crypto_op_free(burst[i]);
		}
		break;
	}
	return taken;
}

static unsigned
device_dequeue(struct crypto_context *context, struct crypto_op **ops, unsigned max)
{
	struct rte_crypto_op *burst[SEND];
	unsigned got = 0;

	while (got < max && context->device_pending > 0) {
		unsigned n = rte_cryptodev_dequeue_burst((uint8_t)device, (uint16_t)context->worker, burst,
			(uint16_t)RTE_MIN(max - got, (unsigned)SEND));

		for (unsigned i = 0; i < n; i++) {
			struct crypto_op *op = pending_finish((struct pending *)burst[i]);

			if (likely(op))
				ops[got++] = op;
			rte_crypto_op_free(burst[i]);
		}
		pending_count(context, context->device_pending - n);
		if (n == 0)
			break;
	}
	return got;
}

// By the software keys, once the device is given up.
static void
serve_instead(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	struct crypto_op *all[CRYPTO_BATCH], *served[CRYPTO_BATCH];
	const struct crypto_key *keys[CRYPTO_BATCH];
	unsigned n = 0;

	for (unsigned i = 0; i < count; i++) {
		const struct device_key *key = (const struct device_key *)ops[i]->key->schedule;

		if (unlikely(!key->software)) {
			ops[i]->status = CRYPTO_BAD_ENGINE;
			continue;
		}
		keys[n] = ops[i]->key;
		ops[i]->key = key->software;
		all[n] = served[n] = ops[i];
		n++;
	}
	if (n)
		crypto_run_by_kind(context, all, n);
	for (unsigned i = 0; i < n; i++)
		served[i]->key = keys[i];
}

// Results that come after all: of operations that were enqueued, or of packets that are held.
static void
take_late(struct crypto_context *context)
{
	struct crypto_op *back[SEND];
	unsigned n = context->device_pending ? device_dequeue(context, back, SEND) : 0;

	for (unsigned i = 0; i < n; i++)
		crypto_done(context, back[i]);
}

// The device has not answered in time. It has the first `sent` of these operations, and any of those without a result may still be in its
// hands: no caller waits for them, and the memory of their packets is not reused.
static void
give_up(struct crypto_context *context, struct crypto_op **ops, unsigned sent, unsigned count)
{
	unsigned lost = 0;

	for (unsigned i = 0; i < sent; i++) {
		struct pending *p = under_way(ops[i])->pending;

		if (ops[i]->status != CRYPTO_BAD_PENDING)
			continue;
		if (ops[i]->packet)
			rte_mbuf_refcnt_update(ops[i]->packet, 1);
		p->own.held = ops[i]->packet;
		p->own.op = NULL;
		ops[i]->status = CRYPTO_BAD_TIMEOUT;
		lost++;
	}
	if (!__atomic_exchange_n(&given_up, true, __ATOMIC_ACQ_REL)) {
		fprintf(stderr,
			"crypto: device %s is given up until the next start: it did not answer within %d s. %u "
			"packets are lost, and other engines serve from now on\n",
			devices[device_count - 1], PATIENCE, lost);
		crypto_choose_without(&crypto_device);
	}
	serve_instead(context, ops + sent, count - sent);
}

// Operations of crypto_enqueue() may be under way, too: they wait for crypto_dequeue().
static void
run(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	uint64_t end = rte_rdtsc() + PATIENCE * rte_get_tsc_hz();
	unsigned sent = 0, known = 0, left = context->device_pending;
	struct crypto_op *back[SEND];

	if (unlikely(is_given_up())) {
		take_late(context);
		serve_instead(context, ops, count);
		return;
	}
	for (unsigned i = 0; i < count; i++) {
		under_way(ops[i])->receiver = WAITED_FOR;
		if (session_of(ops[i]))
			ops[known++] = ops[i];
		else
			ops[i]->status = CRYPTO_BAD_LENGTH;
	}
	left += known;
	while (left > 0 && rte_rdtsc() < end) {
		unsigned n;

		sent += device_enqueue(context, ops + sent, known - sent);
		n = device_dequeue(context, back, SEND);
		left -= n;
		for (unsigned i = 0; i < n; i++)
			if (under_way(back[i])->receiver != WAITED_FOR)
				crypto_done(context, back[i]);
	}
	if (unlikely(left > 0))
		give_up(context, ops, sent, known);
}

static unsigned
enqueue(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	unsigned n = 0;

	if (unlikely(is_given_up())) {
		serve_instead(context, ops, count);
		for (unsigned i = 0; i < count; i++)
			crypto_done(context, ops[i]);
		return count;
	}
	while (n < count && session_of(ops[n]))
		under_way(ops[n++])->receiver = QUEUED;
	n = device_enqueue(context, ops, n);
	if (n < count && !session_of(ops[n])) {
		ops[n]->status = CRYPTO_BAD_LENGTH;
		crypto_done(context, ops[n++]);
	}
	return n;
}

static const struct crypto_key *
serving(const struct crypto_key *key)
{
	const struct device_key *k = (const struct device_key *)key->schedule;

	return is_given_up() && k->software ? k->software : key;
}

// A device that was given up may still read the sessions of what it has.
static bool
holds_sessions(void)
{
	bool holds = false;

	for (unsigned w = 0; is_given_up() && w <= worker_count; w++)
		holds |= __atomic_load_n(&crypto_context_of(w)->device_pending, __ATOMIC_RELAXED) > 0;
	return holds;
}

static void
release(struct crypto_key *key)
{
	struct device_key *k = (struct device_key *)key->schedule;

	crypto_key_free(k->software);
	for (unsigned i = 0; i < RTE_DIM(k->sessions) && !holds_sessions(); i++)
		if (k->sessions[i])
			rte_cryptodev_sym_session_free((uint8_t)device, k->sessions[i]);
}

static int
prepare_aead(struct device_key *key, const struct crypto_secret *s)
{
	for (unsigned i = 0; i < 2; i++) {
		struct rte_crypto_sym_xform aead = {.type = RTE_CRYPTO_SYM_XFORM_AEAD};

		aead.aead.op = s->direction == CRYPTO_DECRYPT ? RTE_CRYPTO_AEAD_OP_DECRYPT : RTE_CRYPTO_AEAD_OP_ENCRYPT;
		aead.aead.algo = (enum rte_crypto_aead_algorithm)aead_of(s->cipher);
		aead.aead.key.data = s->key;
		aead.aead.key.length = (uint16_t)s->key_length;
		aead.aead.iv.offset = offsetof(struct pending, own.nonce);
		aead.aead.iv.length = 12;
		aead.aead.digest_length = s->icv_length;
		aead.aead.aad_length = i ? AAD_ESN : AAD_PLAIN;
		key->sessions[i] = rte_cryptodev_sym_session_create((uint8_t)device, &aead, sessions);
		if (!key->sessions[i])
			return -ENOTSUP;
	}
	return 0;
}

static int
prepare_hmac(struct device_key *key, const struct crypto_secret *s)
{
	bool decrypt = s->direction == CRYPTO_DECRYPT;
	struct rte_crypto_sym_xform cipher = {.type = RTE_CRYPTO_SYM_XFORM_CIPHER};
	struct rte_crypto_sym_xform auth = {.type = RTE_CRYPTO_SYM_XFORM_AUTH}, *first = &auth;

	auth.auth.op = decrypt ? RTE_CRYPTO_AUTH_OP_VERIFY : RTE_CRYPTO_AUTH_OP_GENERATE;
	auth.auth.algo = (enum rte_crypto_auth_algorithm)auth_of(s->integrity);
	auth.auth.key.data = s->integrity_key;
	auth.auth.key.length = (uint16_t)s->integrity_key_length;
	auth.auth.digest_length = s->icv_length;
	if (s->cipher != CRYPTO_NULL) {
		cipher.cipher.op = decrypt ? RTE_CRYPTO_CIPHER_OP_DECRYPT : RTE_CRYPTO_CIPHER_OP_ENCRYPT;
		cipher.cipher.algo = (enum rte_crypto_cipher_algorithm)cipher_of(s);
		cipher.cipher.key.data = s->key;
		cipher.cipher.key.length = (uint16_t)s->key_length;
		cipher.cipher.iv.offset = offsetof(struct pending, own.nonce);
		cipher.cipher.iv.length = NONCE;
		// The ICV is over the ciphertext.
		first = decrypt ? &auth : &cipher;
		if (decrypt)
			auth.next = &cipher;
		else
			cipher.next = &auth;
	}
	key->sessions[0] = rte_cryptodev_sym_session_create((uint8_t)device, first, sessions);
	return key->sessions[0] ? 0 : -ENOTSUP;
}

static int
prepare(struct crypto_key *key, const struct crypto_secret *s)
{
	struct device_key *k = (struct device_key *)key->schedule;
	int error = key->hmac ? prepare_hmac(k, s) : prepare_aead(k, s);

	if (!error && crypto_key_new_without(&crypto_device, s, &k->software) == -ENOMEM)
		error = -ENOMEM;
	key->run = run;
	if (error)
		release(key);
	return error;
}

static int
refuse(const char *name, const char *why, int error)
{
	fprintf(stderr, "crypto: device %s: %s: %s\n", name, why, strerror(-error));
	return error;
}

// "crypto_scheduler0,worker=crypto_aesni_mb0,worker=crypto_aesni_mb1": made if it is not there; a card is there.
static int
open_device(const char *text)
{
	char name[RTE_CRYPTODEV_NAME_MAX_LEN];
	size_t length = strcspn(text, ",");
	int error;

	if (length >= sizeof(name))
		return refuse(text, "its name is too long", -ENAMETOOLONG);
	memcpy(name, text, length);
	name[length] = '\0';
	device = rte_cryptodev_get_dev_id(name);
	if (device >= 0)
		return 0;
	error = rte_eal_hotplug_add("vdev", name, text[length] ? text + length + 1 : "");
	if (error)
		return refuse(name, "it cannot be made", error);
	device = rte_cryptodev_get_dev_id(name);
	return device < 0 ? refuse(name, "it is no device of cryptodev", -ENODEV) : 0;
}

static int
start_device(const char *name)
{
	struct rte_cryptodev_config config = {
		.nb_queue_pairs = (uint16_t)(worker_count + 1), .socket_id = SOCKET_ID_ANY};
	struct rte_cryptodev_qp_conf queue = {.nb_descriptors = 2 * DEPTH};
	int error = rte_cryptodev_configure((uint8_t)device, &config);

	if (error)
		return refuse(name, "it has no queue for each worker", error);
	sessions = rte_cryptodev_sym_session_pool_create("crypto-sessions", SESSIONS,
		rte_cryptodev_sym_get_private_session_size((uint8_t)device), 0, 0, SOCKET_ID_ANY);
	pool = rte_crypto_op_pool_create("crypto-operations", RTE_CRYPTO_OP_TYPE_SYMMETRIC,
		DEPTH * (worker_count + 1) * 2, 64,
		sizeof(struct pending) - sizeof(struct rte_crypto_op) - sizeof(struct rte_crypto_sym_op),
		SOCKET_ID_ANY);
	if (!sessions || !pool)
		return refuse(name, "no memory for its sessions and operations (--memory)", -ENOMEM);
	queue.mp_session = sessions;
	for (unsigned q = 0; q <= worker_count && !error; q++)
		error = rte_cryptodev_queue_pair_setup((uint8_t)device, (uint16_t)q, &queue, SOCKET_ID_ANY);
	if (!error)
		error = rte_cryptodev_start((uint8_t)device);
	return error ? refuse(name, "it does not start", error) : 0;
}

// All contexts have one device.
static int
start(struct crypto_context *context)
{
	int error = 0;

	if (context->worker != 0 || device_count == 0)
		return 0;
	for (unsigned i = 0; i < device_count && !error; i++)
		error = open_device(devices[i]);
	return error ? error : start_device(devices[device_count - 1]);
}

static void
stop(struct crypto_context *context)
{
	if (context->worker != worker_count || device < 0)
		return;
	rte_cryptodev_stop((uint8_t)device);
	rte_cryptodev_close((uint8_t)device);
	if (!is_given_up()) {
		rte_mempool_free(sessions);
		rte_mempool_free(pool);
	}
	sessions = pool = NULL;
	device = -1;
}

const struct crypto_engine crypto_device = {
	.name = "cryptodev",
	.serves = serves,
	.schedule_size = schedule_size,
	.prepare = prepare,
	.release = release,
	.serving = serving,
	.start = start,
	.stop = stop,
	.enqueue = enqueue,
	.dequeue = device_dequeue,
};
