// SPDX-License-Identifier: Apache-2.0
// libFuzzer behind the integrity check: an input is the plaintext of an authenticated peer, with any padding, pad
// length and next header, behind a byte that selects the SA. The other harness has frames with a wrong integrity
// check value.
#include <stdlib.h>
#include <string.h>

#include <rte_ether.h>

#include "core/worker.h"
#include "crypto/crypto.h"
#include "inet/header.h"
#include "ipsec/esp.h"
#include "machine.h"

enum { INPUT_MAX = 1400, IN_UDP = 4, SAS = 4 };

static const uint8_t bytes_of_keys[64];

static const struct form {
	enum crypto_cipher cipher;
	enum crypto_integrity integrity;
	size_t key, salt, integrity_key;
	uint8_t icv, align, family;
	uint32_t spi;
} forms[SAS] = {
	{CRYPTO_AES_GCM, CRYPTO_NO_INTEGRITY, 16, 4, 0, 16, 4, 4, 5000},
	{CRYPTO_AES_CBC, CRYPTO_HMAC_SHA256, 16, 0, 32, 16, 16, 6, 5001},
	{CRYPTO_NULL, CRYPTO_HMAC_SHA256, 0, 0, 32, 16, 4, 4, 5002},
	{CRYPTO_NULL, CRYPTO_HMAC_SHA256, 0, 0, 32, 16, 4, 4, 5004}, // of a GRE tunnel
};

static struct crypto_key *keys[SAS];
static uint32_t sequence[SAS];

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int
LLVMFuzzerInitialize(int *count, char ***arguments)
{
	machine_start();
	for (unsigned i = 0; i < SAS; i++) {
		const struct crypto_secret secret = {.cipher = forms[i].cipher,
			.integrity = forms[i].integrity,
			.direction = CRYPTO_ENCRYPT,
			.key = bytes_of_keys,
			.key_length = forms[i].key,
			.salt = bytes_of_keys,
			.salt_length = forms[i].salt,
			.integrity_key = bytes_of_keys,
			.integrity_key_length = forms[i].integrity_key,
			.icv_length = forms[i].icv};

		if (crypto_key_new(&secret, &keys[i]))
			abort();
	}
	return 0;
}

static uint8_t *
write_outer(uint8_t *at, unsigned family, bool udp, size_t payload)
{
	static const uint8_t ether[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 1, 2};
	static const uint8_t end4[2][4] = {{192, 0, 2, 2}, {192, 0, 2, 1}};
	static const uint8_t end6[2][16] = {
		{0x20, 0x01, 0x0d, 0xb8, 0, 0x0c, [15] = 2}, {0x20, 0x01, 0x0d, 0xb8, 0, 0x0c, [15] = 1}};
	uint8_t protocol = udp ? PROTOCOL_UDP : PROTOCOL_ESP;

	payload += udp ? ESP_UDP_HEADER : 0;
	memcpy(at, ether, sizeof(ether));
	at += sizeof(ether);
	*at++ = family == 4 ? 0x08 : 0x86;
	*at++ = family == 4 ? 0x00 : 0xdd;
	if (family == 4) {
		struct ip4_header ip = {.version_ihl = 0x45,
			.total_length = rte_cpu_to_be_16((uint16_t)(sizeof(ip) + payload)),
			.ttl = 64,
			.protocol = protocol};

		memcpy(&ip.source, end4[0], 4);
		memcpy(&ip.destination, end4[1], 4);
		ip.checksum = ip4_checksum(&ip);
		memcpy(at, &ip, sizeof(ip));
		at += sizeof(ip);
	} else {
		struct ip6_header ip = {.version_class_flow = rte_cpu_to_be_32(6u << 28),
			.payload_length = rte_cpu_to_be_16((uint16_t)payload),
			.next_header = protocol,
			.hop_limit = 64};

		memcpy(ip.source, end6[0], 16);
		memcpy(ip.destination, end6[1], 16);
		memcpy(at, &ip, sizeof(ip));
		at += sizeof(ip);
	}
	if (udp) {
		esp_write_16(at, ESP_UDP_PORT);
		esp_write_16(at + 2, ESP_UDP_PORT);
		esp_write_16(at + 4, (uint16_t)payload);
		esp_write_16(at + 6, 0);
		at += ESP_UDP_HEADER;
	}
	return at;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static uint8_t frame[INPUT_MAX + 256];
	struct crypto_op op;
	const struct form *form;
	unsigned which, iv;
	size_t padded;
	uint8_t *esp;

	if (length < 2 || length > INPUT_MAX)
		return 0;
	which = (bytes[0] & 3) % SAS;
	form = &forms[which];
	iv = crypto_iv_length(form->cipher);
	padded = (length - 1 + form->align - 1) / form->align * form->align;
	esp = write_outer(frame, form->family, bytes[0] & IN_UDP, ESP_HEADER + iv + padded + form->icv);
	esp_write_32(esp, form->spi);
	esp_write_32(esp + 4, ++sequence[which]);
	memset(esp + ESP_HEADER, 7, iv);
	// At the end, where pad length and next header are.
	memset(esp + ESP_HEADER + iv, 0, padded);
	memcpy(esp + ESP_HEADER + iv + padded - (length - 1), bytes + 1, length - 1);
	op = (struct crypto_op){.key = keys[which],
		.data = esp + ESP_HEADER + iv,
		.icv = esp + ESP_HEADER + iv + padded,
		.iv = esp + ESP_HEADER,
		.aad = esp,
		.length = (uint32_t)padded,
		.aad_length = (uint16_t)(ESP_HEADER + (form->integrity == CRYPTO_NO_INTEGRITY ? 0 : iv))};
	crypto_run(worker_self()->index, &op, 1);
	if (op.status != CRYPTO_OK)
		abort();
	machine_frame(CORE, frame, (size_t)(op.icv + form->icv - frame), bytes[0] >> 3);
	machine_check();
	return 0;
}
