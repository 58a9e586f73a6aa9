// SPDX-License-Identifier: Apache-2.0
// Published vectors against every engine that serves them: crypto-vectors [--device NAME]... FILE..., "-" for standard input; --device:
// a device of cryptodev, too. A line of a file is
//
//	ALGORITHM RESULT KEY SALT IV AAD PLAINTEXT CIPHERTEXT TAG [COMMENT]
//
// in hexadecimal, "-" for nothing. RESULT: valid, or invalid: decryption refuses the packet. A tag of "-": the ciphertext is compared
// alone. For hmac-* the key is HMAC's, and the plaintext is the message.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>

#include "crypto/engine.h"

enum { FIELDS = 9, BYTES_MAX = 4096, LINE_MAX_LENGTH = 8 * BYTES_MAX };
enum { ALGORITHM, RESULT, KEY, SALT, IV, AAD, PLAINTEXT, CIPHERTEXT, TAG };

static const struct algorithm {
	const char *name;
	enum crypto_cipher cipher;
	enum crypto_integrity integrity;
} algorithms[] = {
	{"aes-gcm", CRYPTO_AES_GCM, CRYPTO_NO_INTEGRITY},
	{"chacha20-poly1305", CRYPTO_CHACHA20_POLY1305, CRYPTO_NO_INTEGRITY},
	{"sm4-gcm", CRYPTO_SM4_GCM, CRYPTO_NO_INTEGRITY},
	{"sm4-ccm", CRYPTO_SM4_CCM, CRYPTO_NO_INTEGRITY},
	{"aes-cbc", CRYPTO_AES_CBC, CRYPTO_HMAC_SHA256},
	{"aes-ctr", CRYPTO_AES_CTR, CRYPTO_HMAC_SHA256},
	{"sm4-cbc", CRYPTO_SM4_CBC, CRYPTO_HMAC_SM3},
	{"hmac-sha1", CRYPTO_NULL, CRYPTO_HMAC_SHA1},
	{"hmac-sha256", CRYPTO_NULL, CRYPTO_HMAC_SHA256},
	{"hmac-sha384", CRYPTO_NULL, CRYPTO_HMAC_SHA384},
	{"hmac-sha512", CRYPTO_NULL, CRYPTO_HMAC_SHA512},
	{"hmac-sm3", CRYPTO_NULL, CRYPTO_HMAC_SM3},
};

struct bytes {
	size_t length;
	uint8_t at[BYTES_MAX];
};

struct vector {
	const struct algorithm *algorithm;
	bool valid;
	struct bytes fields[FIELDS];
};

static unsigned done, failed;

static bool
parse_hex(const char *text, struct bytes *b)
{
	b->length = 0;
	if (strcmp(text, "-") == 0)
		return true;
	for (; text[0] && text[1] && b->length < BYTES_MAX; text += 2) {
		unsigned byte;

		if (sscanf(text, "%2x", &byte) != 1)
			return false;
		b->at[b->length++] = (uint8_t)byte;
	}
	return !text[0];
}

static bool
parse(char *line, struct vector *v)
{
	char *rest = NULL, *field = strtok_r(line, " \n", &rest);

	v->algorithm = NULL;
	for (unsigned i = 0; i < RTE_DIM(algorithms) && field; i++)
		if (strcmp(field, algorithms[i].name) == 0)
			v->algorithm = &algorithms[i];
	field = strtok_r(NULL, " \n", &rest);
	if (!v->algorithm || !field)
		return false;
	v->valid = strcmp(field, "valid") == 0;
	for (unsigned i = KEY; i < FIELDS; i++) {
		field = strtok_r(NULL, " \n", &rest);
		if (!field || !parse_hex(field, &v->fields[i]))
			return false;
	}
	return v->fields[PLAINTEXT].length == v->fields[CIPHERTEXT].length || v->algorithm->cipher == CRYPTO_NULL ||
	       !v->valid;
}

// One direction by one engine: whether the result is the vector's. -1: the engine does not serve it.
static int
check(const struct crypto_engine *engine, const struct vector *v, enum crypto_direction direction)
{
	static const uint8_t own_key[32];
	static uint8_t packet[2 * BYTES_MAX];
	const struct bytes *f = v->fields;
	bool null = v->algorithm->cipher == CRYPTO_NULL, hmac = v->algorithm->integrity != CRYPTO_NO_INTEGRITY;
	bool decrypt = direction == CRYPTO_DECRYPT;
	const struct bytes *in = null || !decrypt ? &f[PLAINTEXT] : &f[CIPHERTEXT];
	const struct bytes *out = null || decrypt ? &f[PLAINTEXT] : &f[CIPHERTEXT];
	struct crypto_key *key = NULL;
	struct crypto_op op;
	uint8_t *data;

	if (crypto_key_new_by(engine,
		    &(struct crypto_secret){.cipher = v->algorithm->cipher,
			    .integrity = v->algorithm->integrity,
			    .direction = direction,
			    .key = f[KEY].at,
			    .key_length = null ? 0 : f[KEY].length,
			    .salt = f[SALT].at,
			    .salt_length = f[SALT].length,
			    .integrity_key = null ? f[KEY].at : own_key,
			    .integrity_key_length = null   ? f[KEY].length
						    : hmac ? sizeof(own_key)
							   : 0,
			    .icv_length = (uint8_t)(f[TAG].length ? f[TAG].length : 16)},
		    &key))
		return -1;
	// As in ESP: additional authenticated data, IV, data, ICV.
	memcpy(packet, f[AAD].at, f[AAD].length);
	memcpy(packet + f[AAD].length, f[IV].at, f[IV].length);
	data = packet + f[AAD].length + f[IV].length;
	memcpy(data, in->at, in->length);
	memcpy(data + in->length, f[TAG].at, f[TAG].length);
	op = (struct crypto_op){.key = key,
		.data = data,
		.length = (uint32_t)in->length,
		.icv = data + in->length,
		.iv = packet + f[AAD].length,
		.aad = packet,
		.aad_length = (uint16_t)(f[AAD].length + (hmac ? f[IV].length : 0))};
	crypto_run(worker_count, &op, 1);
	crypto_key_free(key);
	if (op.status == CRYPTO_BAD_LENGTH)
		return -1;
	if (!v->valid)
		return decrypt ? op.status == CRYPTO_BAD_ICV : true;
	if (decrypt && f[TAG].length == 0)
		return true;
	return op.status == CRYPTO_OK && memcmp(data, out->at, out->length) == 0 &&
	       (decrypt || memcmp(op.icv, f[TAG].at, f[TAG].length) == 0);
}

static void
try_line(const char *name, unsigned number, char *line)
{
	static struct vector v;
	bool served = false;

	if (line[0] == '#' || line[0] == '\n')
		return;
	if (!parse(line, &v)) {
		printf("%s:%u: not a vector\n", name, number);
		failed++;
		return;
	}
	for (unsigned e = 0; crypto_engine_at(e); e++)
		for (unsigned direction = CRYPTO_ENCRYPT; direction <= CRYPTO_DECRYPT; direction++) {
			int right = check(crypto_engine_at(e), &v, direction);

			served |= right >= 0;
			done += right == 1;
			if (right != 0)
				continue;
			printf("%s:%u: %s by %s is wrong, %s\n", name, number, v.algorithm->name,
				crypto_engine_at(e)->name, direction == CRYPTO_DECRYPT ? "decrypting" : "encrypting");
			failed++;
		}
	if (!served) {
		printf("%s:%u: %s: no engine serves these lengths\n", name, number, v.algorithm->name);
		failed++;
	}
}

static bool
start_dpdk(char *program)
{
	char *arguments[] = {program, "--no-huge", "--no-pci", "-m", "256", "--no-telemetry", "--no-shconf", "-l", "0"};

	return rte_eal_init(RTE_DIM(arguments), arguments) >= 0;
}

int
main(int count, char **arguments)
{
	static char line[LINE_MAX_LENGTH];
	int first = 1;

	for (; first + 1 < count && strcmp(arguments[first], "--device") == 0; first += 2)
		crypto_use_device(arguments[first + 1]);
	if (first > 1 && !start_dpdk(arguments[0]))
		return 1;
	if (crypto_start())
		return 1;
	for (int i = first; i < count; i++) {
		FILE *file = strcmp(arguments[i], "-") == 0 ? stdin : fopen(arguments[i], "r");
		unsigned number = 0;

		if (!file) {
			perror(arguments[i]);
			return 1;
		}
		while (fgets(line, sizeof(line), file))
			try_line(arguments[i], ++number, line);
		fclose(file);
	}
	crypto_stop();
	printf("%u right, %u wrong\n", done, failed);
	return failed > 0 || done == 0;
}
