// SPDX-License-Identifier: Apache-2.0
// ESP in tunnel mode: routes into tunnels, each with a security association of its own. "enc" encrypts and sends. "both" has tunnels to the
// gateway itself, so that the same packets come out of them again. "dec" gets packets that a peer has encrypted, each again and again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/scenarios/all.h"
#include "bench/scenarios/frames.h"
#include "bench/scenarios/ground.h"
#include "core/worker.h"
#include "crypto/crypto.h"
#include "interface.pb-c.h"
#include "ip.pb-c.h"
#include "ipsec.pb-c.h"

enum { FLOWS = 4096, SPI_FIRST = 4096, PATH_MTU = 1600 };

#define HEX16 "000102030405060708090a0b0c0d0e0f"
#define HEX32 HEX16 HEX16

static const struct algorithm {
	const char *name;
	Sluice__V1__EspEncryption encryption;
	const char *key;
	Sluice__V1__EspIntegrity integrity;
	const char *integrity_key;
	struct crypto_secret secret; // its lengths; the keys are those above
} algorithms[] = {
	{"gcm128", SLUICE__V1__ESP_ENCRYPTION__AES_GCM, HEX16 "01020304", SLUICE__V1__ESP_INTEGRITY__NO_INTEGRITY, "",
		{.cipher = CRYPTO_AES_GCM, .key_length = 16}},
	{"gcm256", SLUICE__V1__ESP_ENCRYPTION__AES_GCM, HEX32 "01020304", SLUICE__V1__ESP_INTEGRITY__NO_INTEGRITY, "",
		{.cipher = CRYPTO_AES_GCM, .key_length = 32}},
	{"cbc128-sha256", SLUICE__V1__ESP_ENCRYPTION__AES_CBC, HEX16, SLUICE__V1__ESP_INTEGRITY__HMAC_SHA256, HEX32,
		{.cipher = CRYPTO_AES_CBC,
			.key_length = 16,
			.integrity = CRYPTO_HMAC_SHA256,
			.integrity_key_length = 32}},
	{"cbc128-sha512", SLUICE__V1__ESP_ENCRYPTION__AES_CBC, HEX16, SLUICE__V1__ESP_INTEGRITY__HMAC_SHA512,
		HEX32 HEX32,
		{.cipher = CRYPTO_AES_CBC,
			.key_length = 16,
			.integrity = CRYPTO_HMAC_SHA512,
			.integrity_key_length = 64}},
	{"chacha20", SLUICE__V1__ESP_ENCRYPTION__CHACHA20_POLY1305, HEX32 "01020304",
		SLUICE__V1__ESP_INTEGRITY__NO_INTEGRITY, "", {.cipher = CRYPTO_CHACHA20_POLY1305, .key_length = 32}},
	{"sm4gcm", SLUICE__V1__ESP_ENCRYPTION__SM4_GCM, HEX16 "01020304", SLUICE__V1__ESP_INTEGRITY__NO_INTEGRITY, "",
		{.cipher = CRYPTO_SM4_GCM, .key_length = 16}},
	{"sm4cbc-sm3", SLUICE__V1__ESP_ENCRYPTION__SM4_CBC, HEX16, SLUICE__V1__ESP_INTEGRITY__HMAC_SM3, HEX32,
		{.cipher = CRYPTO_SM4_CBC, .key_length = 16, .integrity = CRYPTO_HMAC_SM3, .integrity_key_length = 32}},
};

// From "esp-gcm128-enc-1k".
static const struct algorithm *
algorithm_of(const struct scenario *s)
{
	for (unsigned i = 0; i < RTE_DIM(algorithms); i++) {
		size_t length = strlen(algorithms[i].name);

		if (strncmp(s->name + 4, algorithms[i].name, length) == 0 && s->name[4 + length] == '-')
			return &algorithms[i];
	}
	return NULL;
}

static uint32_t
tunnels_of(const struct scenario *s)
{
	const char *end = strrchr(s->name, '-');

	return strcmp(end, "-one") == 0    ? 1
	       : strcmp(end, "-40") == 0   ? 40
	       : strcmp(end, "-1k") == 0   ? 1000
	       : strcmp(end, "-1600") == 0 ? 1600
	       : strcmp(end, "-10k") == 0  ? 10000
					   : 4;
}

static bool
is_decrypting(const struct scenario *s)
{
	return strstr(s->name, "-dec") != NULL;
}

static bool
comes_back(const struct scenario *s)
{
	return strstr(s->name, "-both") != NULL;
}

static int
put_tunnel(const char *name, const char *vrf)
{
	Sluice__V1__IpsecTunnel tunnel = SLUICE__V1__IPSEC_TUNNEL__INIT;
	Sluice__V1__Interface interface = SLUICE__V1__INTERFACE__INIT;

	interface.ipsec_tunnel = (char *)name;
	interface.vrf = (char *)vrf;
	return bench_put("IpsecTunnel", name, &tunnel) || bench_put("Interface", name, &interface);
}

// `again`: the same packets come in again and again.
static int
put_sa(const struct algorithm *a, const char *name, const char *tunnel, bool outbound, uint32_t spi, const char *local,
	const char *remote, bool again)
{
	Sluice__V1__SecurityAssociation sa = SLUICE__V1__SECURITY_ASSOCIATION__INIT;

	sa.direction = outbound ? SLUICE__V1__SECURITY_DIRECTION__OUTBOUND : SLUICE__V1__SECURITY_DIRECTION__INBOUND;
	sa.spi = spi;
	sa.local_address = (char *)local;
	sa.remote_address = (char *)remote;
	sa.encryption = a->encryption;
	sa.encryption_key = (char *)a->key;
	sa.integrity = a->integrity;
	sa.integrity_key = (char *)a->integrity_key;
	sa.tunnel = (char *)tunnel;
	sa.path_mtu = PATH_MTU;
	sa.esn = !again;
	sa.no_replay_check = again;
	return bench_put("SecurityAssociation", name, &sa);
}

// Of the VRF default by the tunnel, or of the VRF behind by a neighbour.
static int
put_route(const char *name, const char *vrf, const char *prefix, const char *interface, const char *address)
{
	Sluice__V1__Route route = SLUICE__V1__ROUTE__INIT;
	Sluice__V1__NextHop hop = SLUICE__V1__NEXT_HOP__INIT, *hops[] = {&hop};

	hop.interface = (char *)interface;
	hop.address = (char *)address;
	route.vrf = (char *)vrf;
	route.prefix = (char *)prefix;
	route.next_hops = hops;
	route.n_next_hops = 1;
	return bench_put("Route", name, &route);
}

// Where packets that come out of tunnels go: another VLAN of the port.
static int
make_behind(void)
{
	Sluice__V1__Vrf vrf = SLUICE__V1__VRF__INIT;
	Sluice__V1__Interface interface = SLUICE__V1__INTERFACE__INIT;
	Sluice__V1__Neighbor neighbor = SLUICE__V1__NEIGHBOR__INIT;

	interface.port = "out";
	interface.outer_vlan = 9;
	interface.vrf = "behind";
	interface.addresses = (char *[]){"192.0.3.1/24"};
	interface.n_addresses = 1;
	neighbor.interface = "behind";
	neighbor.address = "192.0.3.2";
	neighbor.mac = "02:00:00:00:03:02";
	return bench_put("Vrf", "behind", &vrf) || bench_put("Interface", "behind", &interface) ||
	       bench_put("Neighbor", "behind", &neighbor) ||
	       put_route("behind", "behind", "0.0.0.0/0", "behind", "192.0.3.2");
}

static int
esp_set_up(const struct scenario *s)
{
	const struct algorithm *a = algorithm_of(s);
	bool decrypts = is_decrypting(s), back = comes_back(s) || decrypts;
	int error;

	// An ESP packet around a packet of 1,500 bytes is larger.
	ground_mtu = PATH_MTU;
	error = make_ground();
	ground_mtu = 0;
	if (!a || error || make_route(0, "10.0.0.0/8") || (back && make_behind()))
		return -1;
	for (uint32_t i = 0; i < tunnels_of(s); i++) {
		char out[32], in[32], prefix[32], remote[32];

		snprintf(out, sizeof(out), "out-%u", i);
		snprintf(in, sizeof(in), "in-%u", i);
		snprintf(prefix, sizeof(prefix), "64.%u.%u.0/24", i / 256, i % 256);
		snprintf(remote, sizeof(remote), back ? "192.0.2.129" : "10.0.%u.%u", i / 250, i % 250 + 1);
		if (!decrypts &&
			(put_tunnel(out, "") || put_sa(a, out, out, true, SPI_FIRST + i, "192.0.2.1", remote, false) ||
				put_route(out, "", prefix, out, "")))
			return -1;
		if (back && (put_tunnel(in, "behind") || put_sa(a, in, in, false, SPI_FIRST + i, "192.0.2.129",
								 decrypts ? "198.51.100.7" : "192.0.2.1", decrypts)))
			return -1;
	}
	return 0;
}

static unsigned
esp_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	uint32_t tunnels = tunnels_of(s), tunnel = flow % tunnels, host = flow / tunnels % 250 + 2;
	unsigned n = ether(h, in_mac, peer_mac, 0x0800);

	return n + ip4_udp(h + n, 198u << 24 | 51 << 16 | 100 << 8 | 7,
			   64u << 24 | tunnel / 256 << 16 | (tunnel % 256) << 8 | host, 1000, (uint16_t)(2000 + host),
			   (uint16_t)(length - n));
}

// The bytes of HEX16 and HEX32.
static const uint8_t key_bytes[64] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8,
	9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
	10, 11, 12, 13, 14, 15};

static struct crypto_key *
sealing_key(const struct algorithm *a)
{
	static const uint8_t salt[4] = {1, 2, 3, 4};
	static const struct algorithm *last;
	static struct crypto_key *key;
	struct crypto_secret secret = a->secret;

	if (a == last)
		return key;
	crypto_key_free(key);
	key = NULL;
	last = a;
	secret.direction = CRYPTO_ENCRYPT;
	secret.key = key_bytes;
	secret.integrity_key = key_bytes;
	secret.salt = salt;
	secret.salt_length = secret.integrity ? 0 : sizeof(salt);
	secret.icv_length = secret.integrity == CRYPTO_HMAC_SHA512 ? 32 : 16;
	return crypto_key_new(&secret, &key) ? NULL : key;
}

static void
write_32(uint8_t *at, uint32_t value)
{
	value = rte_cpu_to_be_32(value);
	memcpy(at, &value, sizeof(value));
}

// A frame of `size` bytes, FCS included, that a peer has encrypted.
static unsigned
sealed_frame(const struct scenario *s, uint32_t flow, uint16_t size, uint8_t frame[WHOLE_MAX])
{
	enum { ETHERNET = 14, FCS = 4, OUTER = 20, ESP = 8, TRAILER = 2, PROTOCOL_ESP = 50 };
	const struct algorithm *a = algorithm_of(s);
	struct crypto_key *key = sealing_key(a);
	uint32_t tunnels = tunnels_of(s), tunnel = flow % tunnels, host = flow / tunnels % 250 + 2;
	unsigned block = RTE_MAX(4u, crypto_block_length(a->secret.cipher)), iv = crypto_iv_length(a->secret.cipher),
		 icv = a->secret.integrity == CRYPTO_HMAC_SHA512 ? 32 : 16, inner = size - ETHERNET - FCS,
		 pad = -(inner + TRAILER) & (block - 1), total = OUTER + ESP + iv + inner + pad + TRAILER + icv;
	uint8_t *ip = frame + ETHERNET, *esp = ip + OUTER, *data = esp + ESP + iv;
	struct crypto_op op;
	uint64_t sum = 0;

	if (!key || ETHERNET + total > WHOLE_MAX) {
		fprintf(stderr, "%s: no packets of %u bytes can be encrypted\n", s->name, size);
		return 0;
	}
	memset(frame, 0, ETHERNET + total);
	ether(frame, in_mac, peer_mac, 0x0800);
	ip[0] = 0x45;
	ip[2] = (uint8_t)(total >> 8);
	ip[3] = (uint8_t)total;
	ip[8] = 64;
	ip[9] = PROTOCOL_ESP;
	write_32(ip + 12, 198u << 24 | 51 << 16 | 100 << 8 | 7);
	write_32(ip + 16, 192u << 24 | 2 << 8 | 129);
	for (unsigned i = 0; i < OUTER; i += 2)
		sum += (uint64_t)ip[i] << 8 | ip[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip[10] = (uint8_t)(~sum >> 8);
	ip[11] = (uint8_t)~sum;
	write_32(esp, SPI_FIRST + tunnel);
	write_32(esp + 4, flow + 1);
	write_32(esp + ESP, flow);
	ip4_udp(data, 198u << 24 | 51 << 16 | 100 << 8 | 7, 64u << 24 | tunnel / 256 << 16 | (tunnel % 256) << 8 | host,
		1000, (uint16_t)(2000 + host), (uint16_t)inner);
	for (unsigned i = 0; i < pad; i++)
		data[inner + i] = (uint8_t)(i + 1);
	data[inner + pad] = (uint8_t)pad;
	data[inner + pad + 1] = 4;
	op = (struct crypto_op){.key = key,
		.data = data,
		.length = inner + pad + TRAILER,
		.icv = data + inner + pad + TRAILER,
		.iv = esp + ESP,
		.aad = esp,
		.aad_length = (uint16_t)(a->secret.integrity ? ESP + iv : ESP)};
	crypto_run(worker_count, &op, 1);
	return op.status == CRYPTO_OK ? ETHERNET + total : 0;
}

#define ESP_ONE(algorithm, direction, tunnels, flows) \
	{ \
		"esp-" algorithm direction tunnels, flows, SIZES_CIPHER, esp_set_up, esp_frame, .port = "in" \
	}
#define ESP_DEC(algorithm, tunnels, flows) \
	{ \
		"esp-" algorithm "-dec" tunnels, flows, SIZES_CIPHER, esp_set_up, .whole = sealed_frame, .port = "in" \
	}
#define ESP_OF(algorithm, tunnels, flows) \
	ESP_ONE(algorithm, "-enc", tunnels, flows), ESP_DEC(algorithm, tunnels, flows), \
		ESP_ONE(algorithm, "-both", tunnels, flows)
#define ESP(algorithm) \
	ESP_OF(algorithm, "", FLOWS), ESP_OF(algorithm, "-40", FLOWS), ESP_OF(algorithm, "-1k", FLOWS), \
		ESP_OF(algorithm, "-1600", FLOWS), ESP_OF(algorithm, "-10k", 10000)

const struct scenario ipsec_scenarios[] = {
	ESP("gcm128"),
	ESP("gcm256"),
	ESP("cbc128-sha256"),
	ESP("cbc128-sha512"),
	ESP("chacha20"),
	ESP("sm4gcm"),
	ESP("sm4cbc-sm3"),
	// One heavy tunnel on all workers: they share its sequence numbers and its replay window.
	{"esp-gcm256-enc-one", FLOWS, SIZES_CIPHER, esp_set_up, esp_frame, "in", .scaling = true},
	{"esp-gcm256-dec-one", FLOWS, SIZES_CIPHER, esp_set_up, .whole = sealed_frame, .port = "in", .scaling = true},
	{0},
};
