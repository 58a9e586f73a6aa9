// SPDX-License-Identifier: Apache-2.0
// The kind SecurityAssociation.
//
// An SA's keys, SPI, algorithms and ends never change. Other fields change by one store each; the header of outbound packets is
// written beside the one in use.
#include "ipsec/sa.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include <rte_jhash.h>

#include "core/address.h"
#include "core/memory.h"
#include "core/rcu.h"
#include "fib/vrf.h"
#include "inet/header.h"
#include "ip/dscp.h"
#include "ipsec.pb-c.h"
#include "ipsec/policy.h"
#include "ipsec/sa_events.h"
#include "ipsec/sequence_file.h"
#include "ipsec/tunnel.h"

// An ESP packet is in one buffer, with the headers of a link.
enum { OUTER_MAX = BUFFER_ROOM - RTE_PKTMBUF_HEADROOM - 64 };
enum { KEY_MAX = 36, INTEGRITY_KEY_MAX = 64, HOP_LIMIT_OUTSIDE = 64, IP6_MTU_MIN = 1280 };

// The file of sequence numbers is so far ahead of an outbound SA that sends: more than workers use from one look at the SA to the next. Each kill of the data plane
// skips as many numbers: AHEAD_FIRST of an SA that has sent nothing since the start.
static const uint64_t AHEAD = 1 << 24, AHEAD_FIRST = 1 << 20;
// Of an SA that is deleted, workers may still use so many.
static const uint64_t UNDER_WAY = 1 << 16;

// Fields for the main thread alone.
struct sa_detail {
	struct object *object, *vrf, *tunnel; // or the policy
	uint32_t next;                        // of the same tunnel, or NO_SA
	uint32_t precedence;
	uint64_t serial;
	uint64_t first; // the sequence number before the first one
	uint32_t row;   // of the file of sequence numbers
};

struct slab ipsec_sas;
struct counters ipsec_sa_counters, ipsec_path_counters;
struct map64 *ipsec_spis, *ipsec_out_spis;

static struct sa_detail *details;
static uint32_t *first_of_tunnel; // by tunnel; 0: none, else the SA's index + 1
static uint64_t serials;

const char *
ipsec_sa_name(uint32_t index)
{
	const struct object *object = index < ipsec_sas.used ? details[index].object : NULL;

	return object ? object->name : "?";
}

struct object *
ipsec_sa_object(uint32_t index)
{
	return index < ipsec_sas.used ? details[index].object : NULL;
}

void
ipsec_sa_count(uint32_t index, struct ipsec_sa_counters *sum)
{
	counters_sum(&ipsec_sa_counters, index, sum);
}

unsigned
ipsec_sa_room(const struct ipsec_sa *sa, unsigned path_mtu)
{
	unsigned around = sa->front + 4u + sa->iv_length + sa->icv_length, room;

	path_mtu = RTE_MIN(path_mtu, (unsigned)OUTER_MAX);
	if (path_mtu < around + sa->align)
		return 0;
	room = (path_mtu - around) / sa->align * sa->align;
	return room > ESP_TRAILER ? room - ESP_TRAILER : 0;
}

void
ipsec_sa_remote(const struct ipsec_sa *sa, uint8_t address[16], uint16_t *port)
{
	const uint8_t *at = sa->headers[sa->current] + ESP_FRONT - sa->front;
	unsigned ip = sa->family == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header);

	memset(address, 0, 16);
	*port = 0;
	if (!(sa->flags & SA_OUTBOUND)) {
		memcpy(address, sa->remote, 16);
		*port = sa->remote_port;
		return;
	}
	if (sa->family == 4)
		memcpy(address, at + offsetof(struct ip4_header, destination), 4);
	else
		memcpy(address, at + offsetof(struct ip6_header, destination), 16);
	if (sa->flags & SA_UDP)
		memcpy(port, at + ip + 2, sizeof(*port));
}

// ---- Outbound SAs by their peer.

static uint32_t out_seeds[2];

uint64_t
ipsec_out_key(uint16_t vrf, uint8_t family, const uint8_t remote[16], uint16_t port, uint32_t spi)
{
	uint32_t words[7] = {[4] = spi, [5] = (uint32_t)vrf << 16 | port, [6] = family}, high = out_seeds[0],
		 low = out_seeds[1];

	memcpy(words, remote, 16);
	rte_jhash_32b_2hashes(words, RTE_DIM(words), &high, &low);
	return (uint64_t)high << 32 | low | 1; // no key of a map is 0
}

// Where an outbound SA sends to.
struct way_out {
	uint64_t key;
	uint8_t remote[16];
	uint16_t port;
};

static struct way_out
way_out_of(uint32_t index)
{
	const struct ipsec_sa *sa = ipsec_sa_at(index);
	struct way_out way;

	ipsec_sa_remote(sa, way.remote, &way.port);
	way.key = ipsec_out_key(sa->vrf, sa->family, way.remote, way.port, sa->spi);
	return way;
}

// Another SA that sends with this SPI to this peer, or NO_SA.
static uint32_t
sends_there(uint32_t spi, uint16_t vrf, uint8_t family, const uint8_t remote[16], uint16_t port)
{
	uint32_t index = map64_get(ipsec_out_spis, ipsec_out_key(vrf, family, remote, port, spi));
	struct way_out way;

	if (index == MAP64_NONE || ipsec_sa_at(index)->spi != spi || ipsec_sa_at(index)->vrf != vrf ||
		ipsec_sa_at(index)->family != family)
		return NO_SA;
	way = way_out_of(index);
	return way.port == port && memcmp(way.remote, remote, sizeof(way.remote)) == 0 ? index : NO_SA;
}

static int
check_spi(uint32_t self, uint32_t spi, uint16_t vrf, uint8_t family, const uint8_t remote[16], uint16_t port,
	struct fault *f)
{
	uint32_t other = sends_there(spi, vrf, family, remote, port);
	char text[INET6_ADDRSTRLEN] = "";

	if (other == NO_SA || other == self)
		return 0;
	inet_ntop(family == 4 ? AF_INET : AF_INET6, remote, text, sizeof(text));
	return fault(f, EEXIST,
		"spi: SecurityAssociation \"%.64s\" sends with SPI %u to %s in this VRF already; delete it, or have "
		"the peer "
		"choose another SPI",
		ipsec_sa_name(other), rte_be_to_cpu_32(spi), text);
}

// Only an SA with its place in the map learns of the path. None is lost without memory for it, or if a peer moved to where another one with the
// same SPI is.
static void
way_out_put(uint32_t index)
{
	struct way_out way = way_out_of(index);

	if (map64_get(ipsec_out_spis, way.key) == MAP64_NONE)
		map64_put(ipsec_out_spis, way.key, index);
}

static void
way_out_delete(uint32_t index)
{
	struct way_out way = way_out_of(index);

	if (map64_get(ipsec_out_spis, way.key) == index)
		map64_delete(ipsec_out_spis, way.key);
}

// ---- Reading a spec.

// A spec, read.
struct reading {
	uint8_t family;
	uint8_t local[16], remote[16];
	uint16_t local_port, remote_port; // 0: no UDP
	uint8_t key[KEY_MAX], integrity_key[INTEGRITY_KEY_MAX];
	struct crypto_secret secret;
	struct ipsec_selectors *selectors;
	uint16_t flags;
	uint16_t window;
	uint8_t dscp;
};

static int
hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

// The bytes, or -1. No message contains a key.
static int
parse_hex(const char *text, uint8_t *bytes, size_t room)
{
	size_t length = strlen(text);

	if (length % 2 != 0 || length / 2 > room)
		return -1;
	for (size_t i = 0; i < length / 2; i++) {
		int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -1;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return (int)(length / 2);
}

struct cipher {
	enum crypto_cipher cipher;
	uint8_t salt;
	bool aead;
};

static const struct cipher *
cipher_of(Sluice__V1__EspEncryption encryption)
{
	static const struct cipher ciphers[] = {
		[SLUICE__V1__ESP_ENCRYPTION__AES_GCM] = {CRYPTO_AES_GCM, 4, true},
		[SLUICE__V1__ESP_ENCRYPTION__AES_CBC] = {CRYPTO_AES_CBC, 0, false},
		[SLUICE__V1__ESP_ENCRYPTION__AES_CTR] = {CRYPTO_AES_CTR, 4, false},
		[SLUICE__V1__ESP_ENCRYPTION__AES_GMAC] = {CRYPTO_AES_GMAC, 4, true},
		[SLUICE__V1__ESP_ENCRYPTION__CHACHA20_POLY1305] = {CRYPTO_CHACHA20_POLY1305, 4, true},
		[SLUICE__V1__ESP_ENCRYPTION__NULL_ENCRYPTION] = {CRYPTO_NULL, 0, false},
		[SLUICE__V1__ESP_ENCRYPTION__SM4_CBC] = {CRYPTO_SM4_CBC, 0, false},
		[SLUICE__V1__ESP_ENCRYPTION__SM4_GCM] = {CRYPTO_SM4_GCM, 4, true},
		[SLUICE__V1__ESP_ENCRYPTION__SM4_CCM] = {CRYPTO_SM4_CCM, 3, true},
	};

	return (unsigned)encryption < RTE_DIM(ciphers) ? &ciphers[encryption] : NULL;
}

struct hash {
	enum crypto_integrity integrity;
	uint8_t key, icv; // bytes; the ICV that its RFC has
};

static const struct hash *
hash_of(Sluice__V1__EspIntegrity integrity)
{
	static const struct hash hashes[] = {
		[SLUICE__V1__ESP_INTEGRITY__NO_INTEGRITY] = {CRYPTO_NO_INTEGRITY, 0, 16},
		[SLUICE__V1__ESP_INTEGRITY__HMAC_SHA1] = {CRYPTO_HMAC_SHA1, 20, 12},
		[SLUICE__V1__ESP_INTEGRITY__HMAC_SHA256] = {CRYPTO_HMAC_SHA256, 32, 16},
		[SLUICE__V1__ESP_INTEGRITY__HMAC_SHA384] = {CRYPTO_HMAC_SHA384, 48, 24},
		[SLUICE__V1__ESP_INTEGRITY__HMAC_SHA512] = {CRYPTO_HMAC_SHA512, 64, 32},
		[SLUICE__V1__ESP_INTEGRITY__HMAC_SM3] = {CRYPTO_HMAC_SM3, 32, 16},
	};

	return (unsigned)integrity < RTE_DIM(hashes) ? &hashes[integrity] : NULL;
}

// RFC 4106 section 6, RFC 4543, RFC 7634; of HMAC whole words, because the ICV is ESP's last field (RFC 4303 section 2.8), and no fewer than
// the 96 bits of RFC 2404.
static bool
icv_fits(const struct cipher *cipher, const struct hash *hash, uint32_t length)
{
	if (!cipher->aead)
		return length >= 12 && length % 4 == 0 &&
		       length <= RTE_MIN((uint32_t)hash->key, (uint32_t)CRYPTO_ICV_MAX);
	if (cipher->cipher == CRYPTO_AES_GMAC || cipher->cipher == CRYPTO_CHACHA20_POLY1305)
		return length == 16;
	return length == 8 || length == 12 || length == 16;
}

static int
check_icv(const struct cipher *cipher, const struct hash *hash, uint32_t length, struct fault *f)
{
	if (length == 0 || icv_fits(cipher, hash, length))
		return 0;
	if (!cipher->aead)
		return fault(f, EINVAL, "icvLength: the hash has ICVs of 12, 16, ... %u bytes, not %u",
			RTE_MIN((uint32_t)hash->key, (uint32_t)CRYPTO_ICV_MAX), length);
	return fault(f, EINVAL, "icvLength: the algorithm has ICVs of %s bytes, not %u",
		icv_fits(cipher, hash, 8) ? "8, 12 or 16" : "16", length);
}

static int
read_keys(const Sluice__V1__SecurityAssociation *spec, struct reading *r, struct fault *f)
{
	const struct cipher *cipher = cipher_of(spec->encryption);
	const struct hash *hash = hash_of(spec->integrity);
	int length = parse_hex(spec->encryption_key, r->key, sizeof(r->key)), integrity_length;

	if (!cipher)
		return fault(f, EINVAL, "encryption: %d is not an algorithm", (int)spec->encryption);
	if (!hash)
		return fault(f, EINVAL, "integrity: %d is not an algorithm", (int)spec->integrity);
	if (length < cipher->salt)
		return fault(
			f, EINVAL, "encryptionKey: not a key in hexadecimal with its salt of %u bytes", cipher->salt);
	if (cipher->aead != (hash->integrity == CRYPTO_NO_INTEGRITY))
		return fault(f, EINVAL, "integrity: %s",
			cipher->aead ? "the encryption algorithm protects integrity by itself; leave it out"
				     : "missing; hmac_sha256 is an algorithm");
	integrity_length = parse_hex(spec->integrity_key, r->integrity_key, sizeof(r->integrity_key));
	if (integrity_length != hash->key)
		return fault(f, EINVAL, "integrityKey: not a key in hexadecimal of %u bytes", hash->key);
	if (check_icv(cipher, hash, spec->icv_length, f))
		return -EINVAL;
	r->secret = (struct crypto_secret){
		.cipher = cipher->cipher,
		.integrity = hash->integrity,
		.direction =
			spec->direction == SLUICE__V1__SECURITY_DIRECTION__OUTBOUND ? CRYPTO_ENCRYPT : CRYPTO_DECRYPT,
		.key = r->key,
		.key_length = (size_t)(length - cipher->salt),
		.salt = r->key + length - cipher->salt,
		.salt_length = cipher->salt,
		.integrity_key = r->integrity_key,
		.integrity_key_length = (size_t)integrity_length,
		.icv_length = (uint8_t)(spec->icv_length ? spec->icv_length : hash->icv),
	};
	if (!cipher->aead)
		r->flags |= SA_HMAC;
	if (crypto_iv_length(cipher->cipher) == CRYPTO_IV_MAX)
		r->flags |= SA_RANDOM_IV;
	return 0;
}

static int
read_ends(const Sluice__V1__SecurityAssociation *spec, const Sluice__V1__IpsecTunnel *t, struct reading *r,
	struct fault *f)
{
	const char *local = spec->local_address[0] || !t ? spec->local_address : t->local_address,
		   *remote = spec->remote_address[0] || !t ? spec->remote_address : t->remote_address;
	uint8_t family;

	if (address_parse(local, r->local, &r->family))
		return fault(f, EINVAL, "localAddress: \"%.64s\" is not an IP address; \"192.0.2.1\" is", local);
	if (address_parse(remote, r->remote, &family))
		return fault(f, EINVAL, "remoteAddress: \"%.64s\" is not an IP address; \"192.0.2.2\" is", remote);
	if (family != r->family)
		return fault(f, EINVAL, "remoteAddress: \"%.48s\" is not of the family of localAddress \"%.48s\"",
			remote, local);
	if (spec->udp) {
		r->local_port = (uint16_t)(spec->udp->local_port ? spec->udp->local_port : ESP_UDP_PORT);
		r->remote_port = (uint16_t)(spec->udp->remote_port ? spec->udp->remote_port : ESP_UDP_PORT);
		if (r->local_port != ESP_UDP_PORT)
			return fault(f, EINVAL, "udp.localPort: the gateway's port is %d", ESP_UDP_PORT);
		r->flags |= SA_UDP;
	}
	return 0;
}

static int
read_outer(const Sluice__V1__OuterHeader *outer, struct reading *r, struct fault *f)
{
	int value;

	if (!outer)
		return 0;
	if (outer->clear_ecn)
		r->flags |= SA_CLEAR_ECN;
	if (outer->df == SLUICE__V1__DF_RULE__DF_SET)
		r->flags |= SA_SET_DF;
	else if (outer->df == SLUICE__V1__DF_RULE__DF_CLEAR)
		r->flags |= SA_CLEAR_DF;
	if (outer->dscp == SLUICE__V1__DSCP_RULE__DSCP_COPY)
		return 0;
	r->flags |= SA_SET_DSCP;
	if (outer->dscp == SLUICE__V1__DSCP_RULE__DSCP_HIDE || outer->dscp_value[0] == '\0')
		return 0;
	value = dscp_parse(outer->dscp_value);
	if (value < 0)
		return fault(f, EINVAL, "outer.dscpValue: \"%.16s\" is not a DSCP; \"af41\" is", outer->dscp_value);
	r->dscp = (uint8_t)(value << 2);
	return 0;
}

static int
read_spec(const Sluice__V1__SecurityAssociation *spec, const Sluice__V1__IpsecTunnel *t, struct reading *r,
	struct fault *f)
{
	unsigned window = spec->replay_window ? spec->replay_window : REPLAY_WINDOW_MIN;
	int error = read_ends(spec, t, r, f);

	if (error)
		return error;
	if (window % REPLAY_WINDOW_MIN != 0 || window > REPLAY_WINDOW_MAX)
		return fault(f, EINVAL, "replayWindow: 64, 128, ... 4096 are accepted, not %u", window);
	if (!spec->esn && spec->sequence > UINT32_MAX)
		return fault(f, EINVAL, "sequence: without esn at most 4294967295 is accepted");
	if ((unsigned)spec->mode > SLUICE__V1__SECURITY_MODE__TRANSPORT_MODE)
		return fault(f, EINVAL, "mode: %d is none", (int)spec->mode);
	if (spec->mode == SLUICE__V1__SECURITY_MODE__TRANSPORT_MODE && spec->tunnel[0] != '\0')
		return fault(f, EINVAL, "mode: a tunnel has SAs in tunnel_mode; transport_mode needs a policy");
	if (r->family == 6 && spec->path_mtu && spec->path_mtu < IP6_MTU_MIN)
		return fault(f, EINVAL, "pathMtu: %u is less than the %d bytes that every path of IPv6 takes",
			spec->path_mtu, IP6_MTU_MIN);
	r->window = (uint16_t)window;
	r->flags |= (uint16_t)((spec->direction == SLUICE__V1__SECURITY_DIRECTION__OUTBOUND ? SA_OUTBOUND : 0) |
			       (spec->mode == SLUICE__V1__SECURITY_MODE__TRANSPORT_MODE ? SA_TRANSPORT : 0) |
			       (spec->esn ? SA_ESN : 0) | (spec->no_replay_check ? SA_NO_REPLAY_CHECK : 0));
	if (spec->hard_bytes || (spec->hard_packets && !(r->flags & SA_OUTBOUND)))
		r->flags |= SA_LIMITED;
	error = read_keys(spec, r, f);
	if (!error)
		error = read_outer(spec->outer, r, f);
	if (!error)
		error = ipsec_selectors_parse(spec->selectors, spec->n_selectors, &r->selectors, f);
	return error;
}

static void
clear(struct reading *r)
{
	explicit_bzero(r->key, sizeof(r->key));
	explicit_bzero(r->integrity_key, sizeof(r->integrity_key));
}

// ---- The header of outbound packets.

// Lengths, class, identification, DF and the IPv4 checksum are 0.
static void
write_header(struct ipsec_sa *sa, unsigned which, const uint8_t *local, const uint8_t *remote, uint16_t local_port,
	uint16_t remote_port)
{
	uint8_t *room = sa->headers[which], *at;
	uint8_t protocol = sa->flags & SA_UDP ? PROTOCOL_UDP : PROTOCOL_ESP;
	unsigned ip = sa->family == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header);

	memset(room, 0, ESP_FRONT);
	sa->front = (uint8_t)(ip + (sa->flags & SA_UDP ? ESP_UDP_HEADER : 0) + sizeof(sa->spi));
	at = room + ESP_FRONT - sa->front;
	if (sa->family == 4) {
		struct ip4_header h = {.version_ihl = 0x45, .ttl = HOP_LIMIT_OUTSIDE, .protocol = protocol};

		memcpy(&h.source, local, 4);
		memcpy(&h.destination, remote, 4);
		memcpy(at, &h, sizeof(h));
		sa->sums[which] = checksum_fold(checksum_add(0, &h, sizeof(h)));
	} else {
		// The flow label spreads SAs, not the flows inside, which stay hidden.
		struct ip6_header h = {
			.version_class_flow = rte_cpu_to_be_32(6u << 28 | (rte_be_to_cpu_32(sa->spi) & 0xfffff)),
			.next_header = protocol,
			.hop_limit = HOP_LIMIT_OUTSIDE};

		memcpy(h.source, local, 16);
		memcpy(h.destination, remote, 16);
		memcpy(at, &h, sizeof(h));
	}
	if (sa->flags & SA_UDP) {
		esp_write_16(at + ip, local_port);
		esp_write_16(at + ip + 2, remote_port);
	}
	memcpy(room + ESP_FRONT - sizeof(sa->spi), &sa->spi, sizeof(sa->spi));
}

static void
replace_header(
	struct ipsec_sa *sa, const uint8_t *local, const uint8_t *remote, uint16_t local_port, uint16_t remote_port)
{
	unsigned other = !sa->current;
	uint32_t index = (uint32_t)(sa - ipsec_sa_at(0));

	rcu_wait(); // of the last replacement: some worker may still copy from there
	way_out_delete(index);
	write_header(sa, other, local, remote, local_port, remote_port);
	__atomic_store_n(&sa->current, (uint8_t)other, __ATOMIC_RELEASE);
	way_out_put(index);
}

void
ipsec_sa_send_to(uint32_t index, const uint8_t *address, uint16_t port)
{
	struct ipsec_sa *sa = ipsec_sa_at(index);
	const uint8_t *at = sa->headers[sa->current] + ESP_FRONT - sa->front;
	uint8_t local[16] = {0};

	if (sa->family == 4)
		memcpy(local, at + offsetof(struct ip4_header, source), 4);
	else
		memcpy(local, at + offsetof(struct ip6_header, source), 16);
	replace_header(sa, local, address, ESP_UDP_PORT, rte_be_to_cpu_16(port));
}

// ---- Which SA a tunnel sends by.

static bool
precedes(const struct sa_detail *a, const struct sa_detail *b)
{
	return a->precedence != b->precedence ? a->precedence > b->precedence : a->serial > b->serial;
}

static int
by_precedence(const void *a, const void *b)
{
	return precedes(&details[*(const uint32_t *)a], &details[*(const uint32_t *)b]) ? -1 : 1;
}

// The tunnel's outbound SAs have changed. Without memory for their list, the first one alone sends.
static void
choose(uint32_t tunnel)
{
	unsigned all = 0, count = 0;
	uint32_t first = NO_SA, *sas;

	for (uint32_t link = first_of_tunnel[tunnel]; link != 0; link = details[link - 1].next) {
		if (!(ipsec_sa_at(link - 1)->flags & SA_OUTBOUND))
			continue;
		all++;
		if (first == NO_SA || precedes(&details[link - 1], &details[first]))
			first = link - 1;
	}
	sas = all > 1 ? malloc(all * sizeof(*sas)) : NULL;
	if (!sas) {
		ipsec_tunnel_choose(tunnel, &first, all > 0);
		return;
	}
	for (uint32_t link = first_of_tunnel[tunnel]; link != 0; link = details[link - 1].next)
		if (ipsec_sa_at(link - 1)->flags & SA_OUTBOUND)
			sas[count++] = link - 1;
	qsort(sas, count, sizeof(*sas), by_precedence);
	ipsec_tunnel_choose(tunnel, sas, count);
	free(sas);
}

void
ipsec_sa_path_changed(uint32_t index)
{
	choose(ipsec_sa_at(index)->tunnel);
}

static void
link_to_tunnel(uint32_t index)
{
	uint32_t tunnel = ipsec_sa_at(index)->tunnel;

	details[index].next = first_of_tunnel[tunnel];
	first_of_tunnel[tunnel] = index + 1;
}

static void
unlink_from_tunnel(uint32_t index)
{
	uint32_t *link = &first_of_tunnel[ipsec_sa_at(index)->tunnel];

	while (*link != 0 && *link != index + 1)
		link = &details[*link - 1].next;
	if (*link != 0)
		*link = details[index].next;
}

// ---- The kind.

static void
set_limits(struct ipsec_sa *sa, uint64_t first, const Sluice__V1__SecurityAssociation *spec)
{
	uint64_t limit = spec->esn ? UINT64_MAX - 1 : UINT32_MAX;

	sa->hard_bytes = spec->hard_bytes ? spec->hard_bytes : UINT64_MAX;
	sa->hard_packets = spec->hard_packets ? spec->hard_packets : UINT64_MAX;
	if (!(sa->flags & SA_OUTBOUND))
		return;
	if (spec->hard_packets && first < limit && spec->hard_packets < limit - first)
		limit = first + spec->hard_packets;
	__atomic_store_n(&sa->limit, limit, __ATOMIC_RELAXED);
}

// The next numbers of an outbound SA may be used, once the file says that they are.
static void
reserve(struct ipsec_sa *sa, uint32_t row, uint64_t ahead)
{
	uint64_t sequence = __atomic_load_n(&sa->sequence, __ATOMIC_RELAXED), last = sa->limit;

	if (row != SEQUENCE_FILE_NONE && last > sequence && last - sequence > ahead)
		last = sequence + ahead;
	sequence_file_set(row, last);
	__atomic_store_n(&sa->last, last, __ATOMIC_RELEASE);
}

static bool
same_limits(const Sluice__V1__SecurityAssociation *a, const Sluice__V1__SecurityAssociation *b)
{
	return a->hard_bytes == b->hard_bytes && a->hard_packets == b->hard_packets;
}

// Limits are on packets that were encrypted or accepted since the SA was made: those that were refused behind the old limit do not count, though
// each took a sequence number. An SA that ended by a limit which is no more goes on.
static void
change_limits(uint32_t index, const Sluice__V1__SecurityAssociation *spec, uint16_t flags)
{
	struct ipsec_sa *sa = ipsec_sa_at(index);
	struct sa_detail *d = &details[index];
	uint64_t sequence = __atomic_load_n(&sa->sequence, __ATOMIC_RELAXED),
		 last = __atomic_load_n(&sa->last, __ATOMIC_RELAXED);
	struct ipsec_sa_counters c;

	ipsec_sa_count(index, &c);
	__atomic_store_n(&sa->bytes, c.bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&sa->packets, c.packets, __ATOMIC_RELAXED);
	if (sa->flags & SA_OUTBOUND && sequence > last && sequence - d->first > c.packets)
		d->first = sequence - c.packets;
	set_limits(sa, d->first, spec);
	__atomic_store_n(&sa->flags, flags, __ATOMIC_RELAXED);
	rcu_wait(); // no worker compares with the old limits
	if (c.bytes < sa->hard_bytes && (sa->flags & SA_OUTBOUND || c.packets < sa->hard_packets))
		__atomic_and_fetch(&sa->events, ~(uint32_t)SA_DEAD, __ATOMIC_RELEASE);
	if (!(sa->flags & SA_OUTBOUND))
		return;
	if (__atomic_load_n(&sa->sequence, __ATOMIC_RELAXED) < sa->limit)
		__atomic_and_fetch(&sa->events, ~(uint32_t)SA_EXHAUSTED, __ATOMIC_RELEASE);
	if (!(__atomic_load_n(&sa->events, __ATOMIC_RELAXED) & SA_DEAD))
		reserve(sa, d->row, AHEAD);
}

void
ipsec_sa_keep(uint32_t index)
{
	struct ipsec_sa *sa = ipsec_sa_at(index);
	uint64_t sequence = __atomic_load_n(&sa->sequence, __ATOMIC_RELAXED),
		 last = __atomic_load_n(&sa->last, __ATOMIC_RELAXED);

	if (sa->flags & SA_OUTBOUND) {
		if (last && last < sa->limit && sequence > details[index].first && last < sequence + AHEAD / 2)
			reserve(sa, details[index].row, AHEAD);
	} else if (!(sa->flags & SA_NO_REPLAY_CHECK)) {
		sequence_file_set(details[index].row, sequence);
	}
}

// The file gets the last number of an SA that may use so many more.
static void
settle(uint32_t index, uint64_t more)
{
	const struct ipsec_sa *sa = ipsec_sa_at(index);
	uint64_t sequence = __atomic_load_n(&sa->sequence, __ATOMIC_RELAXED),
		 last = __atomic_load_n(&sa->last, __ATOMIC_RELAXED);

	if (!(sa->flags & SA_OUTBOUND))
		ipsec_sa_keep(index);
	else if (last > sequence &&
		 last - sequence > more) // else packets may have been refused, whose numbers do not count
		sequence_file_settle(details[index].row, sequence + more);
}

void
ipsec_sas_settle(void)
{
	for (uint32_t index = 0; index < ipsec_sas.used; index++)
		if (details[index].object)
			settle(index, 0);
}

static int
make_window(struct ipsec_sa *sa, uint64_t top)
{
	unsigned words = replay_words(sa->window);

	sa->words = sa->inline_words;
	if (words > RTE_DIM(sa->inline_words)) {
		sa->words = calloc(words, sizeof(sa->words[0]));
		if (!sa->words)
			return -ENOMEM;
	}
	sa->mask = words - 1;
	if (top > 0)
		replay_start(sa->words, sa->mask, top);
	return 0;
}

// A new SA in place of another one: what was learned of the path between the same ends holds for it, too.
static void
inherit_path(uint32_t index)
{
	struct ipsec_sa *sa = ipsec_sa_at(index);
	uint8_t remote[16], other[16];
	uint16_t port;

	ipsec_sa_remote(sa, remote, &port);
	for (uint32_t link = first_of_tunnel[sa->tunnel]; link != 0; link = details[link - 1].next) {
		const struct ipsec_sa *before = ipsec_sa_at(link - 1);
		uint16_t mtu = __atomic_load_n(&before->path_mtu, __ATOMIC_RELAXED);

		ipsec_sa_remote(before, other, &port);
		if (link - 1 == index || !(before->flags & SA_OUTBOUND) || before->family != sa->family ||
			before->vrf != sa->vrf || memcmp(remote, other, sizeof(remote)) != 0 || mtu >= sa->path_mtu)
			continue;
		sa->path_mtu = mtu;
		__atomic_or_fetch(&sa->events, SA_PATH, __ATOMIC_RELAXED);
	}
}

static int
create(struct object *object, const Sluice__V1__SecurityAssociation *spec, struct reading *r, struct sa_detail *d,
	uint16_t vrf, struct fault *f)
{
	uint32_t index = slab_take(&ipsec_sas);
	struct ipsec_sa *sa;
	struct sequence_owner owner = {
		.spi = spec->spi,
		.outbound = r->flags & SA_OUTBOUND,
		.key = r->key,
		.key_length = r->secret.key_length + r->secret.salt_length,
		.integrity_key = r->integrity_key,
		.integrity_key_length = r->secret.integrity_key_length,
		.vrf = vrf_name(vrf),
	};
	uint64_t key, kept;
	int error;

	if (index == UINT32_MAX)
		return fault(f, ENOSPC, "there can be %d SAs at most", SA_LIMIT);
	sa = ipsec_sa_at(index);
	d->row = sequence_file_take(&owner, &kept);
	d->first = RTE_MAX(kept, spec->sequence);
	memset(sa, 0, sizeof(*sa));
	*sa = (struct ipsec_sa){
		.selectors = r->selectors,
		.spi = rte_cpu_to_be_32(spec->spi),
		.tunnel = ipsec_tunnel_of(d->tunnel),
		.flags = r->flags,
		.vrf = vrf,
		.window = r->window,
		.path_mtu = (uint16_t)(spec->path_mtu ? spec->path_mtu : SA_PATH_MTU),
		.family = r->family,
		.iv_length = (uint8_t)crypto_iv_length(r->secret.cipher),
		.icv_length = r->secret.icv_length,
		.align = (uint8_t)RTE_MAX((unsigned)ESP_ALIGN, crypto_block_length(r->secret.cipher)),
		.dscp = r->dscp,
		.sequence = d->first,
	};
	set_limits(sa, d->first, spec);
	key = ipsec_spi_key(vrf, sa->spi);
	if (!(sa->flags & SA_OUTBOUND) && map64_get(ipsec_spis, key) != MAP64_NONE) {
		error = fault(f, EEXIST, "spi: %u is SecurityAssociation \"%.64s\"'s in this VRF; choose another",
			spec->spi, ipsec_sa_name(map64_get(ipsec_spis, key)));
		goto give;
	}
	if (sa->flags & SA_OUTBOUND) {
		error = check_spi(NO_SA, sa->spi, vrf, r->family, r->remote, rte_cpu_to_be_16(r->remote_port), f);
		if (error)
			goto give;
	}
	if (getentropy(&sa->iv, sizeof(sa->iv))) {
		error = fault(f, errno, "the kernel gives no random numbers");
		goto give;
	}
	error = crypto_key_new(&r->secret, &sa->key);
	if (error) {
		fault(f, -error, "encryptionKey, integrityKey: %s",
			error == -ENOTSUP  ? "no engine of this data plane has the algorithm"
			: error == -ENOMEM ? "there is no memory for the keys"
					   : "a length does not fit the algorithm");
		goto give;
	}
	if (sa->flags & SA_OUTBOUND) {
		write_header(sa, 0, r->local, r->remote, r->local_port, r->remote_port);
		way_out_put(index);
	} else {
		memcpy(sa->local, r->local, sizeof(sa->local));
		memcpy(sa->remote, r->remote, sizeof(sa->remote));
		sa->remote_port = rte_cpu_to_be_16(r->remote_port);
		if (make_window(sa, d->first) || map64_put(ipsec_spis, key, index)) {
			if (sa->words != sa->inline_words)
				free(sa->words);
			crypto_key_free(sa->key);
			error = fault(f, ENOMEM, "there is no memory for the SA");
			goto give;
		}
	}
	counters_clear(&ipsec_sa_counters, index);
	counters_clear(&ipsec_path_counters, index);
	details[index] = *d;
	details[index].serial = ++serials;
	sa->serial = (uint32_t)serials;
	object->state = (void *)(uintptr_t)index;
	link_to_tunnel(index);
	if (sa->flags & SA_OUTBOUND) {
		reserve(sa, d->row, AHEAD_FIRST);
		inherit_path(index);
		choose(sa->tunnel);
	}
	return 0;
give:
	sequence_file_give(d->row, false);
	slab_give(&ipsec_sas, index);
	return error;
}

// Which field of those that never change differs, or NULL.
static const char *
fixed_field(const Sluice__V1__SecurityAssociation *a, const Sluice__V1__SecurityAssociation *b)
{
	return a->direction != b->direction                 ? "direction"
	       : a->spi != b->spi                           ? "spi"
	       : a->mode != b->mode                         ? "mode"
	       : !same_vrf(a->vrf, b->vrf)                  ? "vrf"
	       : strcmp(a->local_address, b->local_address) ? "localAddress"
	       : a->encryption != b->encryption || strcasecmp(a->encryption_key, b->encryption_key)
		       ? "encryption, encryptionKey"
	       : a->integrity != b->integrity || strcasecmp(a->integrity_key, b->integrity_key)
		       ? "integrity, integrityKey"
	       : a->icv_length != b->icv_length                               ? "icvLength"
	       : a->esn != b->esn                                             ? "esn"
	       : a->replay_window != b->replay_window                         ? "replayWindow"
	       : a->no_replay_check != b->no_replay_check                     ? "noReplayCheck"
	       : strcmp(a->tunnel, b->tunnel) || strcmp(a->policy, b->policy) ? "tunnel, policy"
									      : NULL;
}

static bool
same_ends(const Sluice__V1__SecurityAssociation *a, const Sluice__V1__SecurityAssociation *b)
{
	return strcmp(a->remote_address, b->remote_address) == 0 &&
	       (a->udp ? a->udp->remote_port : 0) == (b->udp ? b->udp->remote_port : 0);
}

static int
change(uint32_t index, const Sluice__V1__SecurityAssociation *spec, const Sluice__V1__SecurityAssociation *old,
	struct reading *r, struct fault *f)
{
	struct ipsec_sa *sa = ipsec_sa_at(index);
	struct sa_detail *d = &details[index];
	void *selectors = (void *)(uintptr_t)sa->selectors;
	// A peer that moved stays where it is, and the learned path MTU stays, when another field changes.
	bool moves = !same_ends(spec, old), measures = moves || spec->path_mtu != old->path_mtu;
	int error = 0;

	if (r->family != sa->family)
		return fault(f, EINVAL, "remoteAddress: the family of an SA's ends does not change; create another SA");
	if ((sa->flags ^ r->flags) & SA_UDP)
		return fault(f, EINVAL, "udp: it does not come or go while the SA exists; create another SA");
	if (moves && sa->flags & SA_OUTBOUND)
		error = check_spi(index, sa->spi, sa->vrf, r->family, r->remote, rte_cpu_to_be_16(r->remote_port), f);
	if (error)
		return error;
	__atomic_store_n(&sa->selectors, r->selectors, __ATOMIC_RELEASE);
	if (selectors)
		rcu_retire(free, selectors);
	if (measures)
		__atomic_store_n(
			&sa->path_mtu, (uint16_t)(spec->path_mtu ? spec->path_mtu : SA_PATH_MTU), __ATOMIC_RELAXED);
	__atomic_store_n(&sa->dscp, r->dscp, __ATOMIC_RELAXED);
	if (same_limits(spec, old))
		__atomic_store_n(&sa->flags, r->flags, __ATOMIC_RELAXED);
	else
		change_limits(index, spec, r->flags);
	if (moves && sa->flags & SA_OUTBOUND) {
		replace_header(sa, r->local, r->remote, r->local_port, r->remote_port);
	} else if (moves) {
		memcpy(sa->remote, r->remote, sizeof(sa->remote));
		__atomic_store_n(&sa->remote_port, rte_cpu_to_be_16(r->remote_port), __ATOMIC_RELEASE);
		// A worker may have seen the peer where it was before.
		rcu_wait();
		__atomic_and_fetch(&sa->events, ~(uint32_t)(SA_MOVED | SA_MOVING), __ATOMIC_RELEASE);
	}
	ipsec_look_again(index);
	d->precedence = spec->precedence;
	if (sa->flags & SA_OUTBOUND)
		choose(sa->tunnel);
	return 0;
}

// The SA's tunnel, read: its VRF is the SA's, and its ends are where the SA has none of its own. NULL in `*made`: it serves a policy.
static int
read_tunnel(const Sluice__V1__SecurityAssociation *spec, const struct object *object, Sluice__V1__IpsecTunnel **made,
	struct fault *f)
{
	*made = NULL;
	if (object->kind != &ipsec_tunnel_kind)
		return 0;
	*made = sluice__v1__ipsec_tunnel__unpack(NULL, object->spec_length, object->spec);
	if (!*made)
		return fault(f, ENOMEM, "tunnel: there is no memory to read it");
	if (!same_vrf((*made)->vrf, spec->vrf))
		return fault(f, EINVAL, "vrf: \"%.32s\" is not IpsecTunnel \"%.64s\"'s, which is \"%.32s\"", spec->vrf,
			object->name, (*made)->vrf);
	return 0;
}

static int
sa_put(struct object *object, const void *spec_, const void *old_, struct fault *f)
{
	const Sluice__V1__SecurityAssociation *spec = spec_, *old = old_;
	struct reading r = {0};
	struct sa_detail d = {.object = object, .precedence = spec->precedence, .next = 0};
	const char *fixed = old ? fixed_field(spec, old) : NULL;
	uint32_t index = (uint32_t)(uintptr_t)object->state;
	Sluice__V1__IpsecTunnel *t = NULL;
	uint16_t vrf;
	int error = 0;

	if (fixed)
		return fault(f, EINVAL, "%s: it does not change while the SA exists; delete the SA first", fixed);
	if ((spec->tunnel[0] == '\0') == (spec->policy[0] == '\0'))
		return fault(f, EINVAL, "tunnel, policy: an SA serves a tunnel or a policy; name one of the two");
	if (old)
		d.tunnel = details[index].tunnel;
	else
		error = spec->tunnel[0] != '\0'
				? object_need(&ipsec_tunnel_kind, spec->tunnel, "tunnel", &d.tunnel, f)
				: object_need(&security_policy_kind, spec->policy, "policy", &d.tunnel, f);
	if (!error)
		error = read_tunnel(spec, d.tunnel, &t, f);
	if (!error)
		error = read_spec(spec, t, &r, f);
	if (t)
		sluice__v1__ipsec_tunnel__free_unpacked(t, NULL);
	if (!error && old) {
		error = change(index, spec, old, &r, f);
	} else if (!error) {
		error = vrf_need(spec->vrf, "vrf", &vrf, &d.vrf, f);
		if (!error)
			error = create(object, spec, &r, &d, vrf, f);
		if (error)
			object_unuse(d.vrf);
		else
			object_use(d.tunnel);
	}
	clear(&r);
	if (error)
		free(r.selectors);
	return error;
}

// The parts of an SA that are freed when no worker can see it.
struct remains {
	struct crypto_key *key;
	void *words, *selectors;
};

static void
bury(void *memory)
{
	struct remains *r = memory;

	crypto_key_free(r->key);
	free(r->words);
	free(r->selectors);
	free(r);
}

static int
sa_delete(struct object *object, const void *spec, struct fault *f)
{
	uint32_t index = (uint32_t)(uintptr_t)object->state;
	struct ipsec_sa *sa = ipsec_sa_at(index);
	struct sa_detail *d = &details[index];
	struct remains *r = malloc(sizeof(*r));

	if (!r)
		return fault(f, ENOMEM, "there is no memory to delete the SA with");
	*r = (struct remains){.key = sa->key,
		.words = !(sa->flags & SA_OUTBOUND) && sa->words != sa->inline_words ? sa->words : NULL,
		.selectors = (void *)(uintptr_t)sa->selectors};
	unlink_from_tunnel(index);
	if (sa->flags & SA_OUTBOUND) {
		way_out_delete(index);
		choose(sa->tunnel);
	} else {
		map64_delete(ipsec_spis, ipsec_spi_key(sa->vrf, sa->spi));
	}
	// An SA that is made again with the same key neither uses a number again nor accepts one again.
	settle(index, UNDER_WAY);
	sequence_file_give(d->row, sa->flags & SA_NO_REPLAY_CHECK && !(sa->flags & SA_OUTBOUND));
	object_unuse(d->tunnel);
	object_unuse(d->vrf);
	*d = (struct sa_detail){0};
	rcu_retire(bury, r);
	slab_give_later(&ipsec_sas, index);
	return 0;
}

static int
sa_start(void)
{
	if (slab_create(&ipsec_sas, sizeof(struct ipsec_sa), SA_LIMIT) ||
		counters_create(&ipsec_sa_counters, sizeof(struct ipsec_sa_counters), SA_LIMIT) ||
		counters_create(&ipsec_path_counters, sizeof(struct ipsec_path_counters), SA_LIMIT))
		return -ENOMEM;
	details = slab_reserve(sizeof(*details) * SA_LIMIT);
	first_of_tunnel = slab_reserve(sizeof(*first_of_tunnel) * IPSEC_TUNNEL_LIMIT);
	ipsec_spis = map64_create();
	ipsec_out_spis = map64_create();
	if (getentropy(out_seeds, sizeof(out_seeds)))
		return -errno;
	return details && first_of_tunnel && ipsec_spis && ipsec_out_spis ? 0 : -ENOMEM;
}

struct kind security_association_kind = {
	.name = "SecurityAssociation",
	.spec = &sluice__v1__security_association__descriptor,
	.put = sa_put,
	.delete = sa_delete,
	.start = sa_start,
};
KIND_REGISTER(security_association_kind)
