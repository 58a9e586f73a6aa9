// SPDX-License-Identifier: Apache-2.0
// The crypto engine alone, for each algorithm and direction, over the bytes that ESP encrypts for frames of these sizes.
#include "bench/scenarios/all.h"
#include "crypto/crypto.h"

#define BOTH(n, ...) \
	{.name = "cipher-" n "-enc", \
		.flows = 4, \
		.sizes = SIZES_CIPHER, \
		.measure = measure_cipher, \
		.cipher = &(const struct cipher_case){__VA_ARGS__}}, \
	{ \
		.name = "cipher-" n "-dec", .flows = 4, .sizes = SIZES_CIPHER, .measure = measure_cipher, \
		.cipher = &(const struct cipher_case) \
		{ \
			__VA_ARGS__, .decrypt = true \
		} \
	}

const struct scenario cipher_scenarios[] = {
	BOTH("gcm128", .cipher = CRYPTO_AES_GCM, .key_length = 16, .icv_length = 16),
	BOTH("gcm256", .cipher = CRYPTO_AES_GCM, .key_length = 32, .icv_length = 16),
	BOTH("cbc128-sha256", .cipher = CRYPTO_AES_CBC, .key_length = 16, .integrity = CRYPTO_HMAC_SHA256,
		.icv_length = 16),
	BOTH("cbc128-sha512", .cipher = CRYPTO_AES_CBC, .key_length = 16, .integrity = CRYPTO_HMAC_SHA512,
		.icv_length = 32),
	BOTH("chacha20", .cipher = CRYPTO_CHACHA20_POLY1305, .key_length = 32, .icv_length = 16),
	BOTH("sm4gcm", .cipher = CRYPTO_SM4_GCM, .key_length = 16, .icv_length = 16),
	BOTH("sm4cbc-sm3", .cipher = CRYPTO_SM4_CBC, .key_length = 16, .integrity = CRYPTO_HMAC_SM3, .icv_length = 16),
	{0},
};
