// SPDX-License-Identifier: Apache-2.0
// Security associations (kind SecurityAssociation): the workers' part, and look-up by SPI.
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/map64.h"
#include "core/slab.h"
#include "core/worker.h"
#include "crypto/crypto.h"
#include "ipsec/esp.h"
#include "ipsec/replay.h"
#include "ipsec/selector.h"
#include "server/object.h"

enum { SA_LIMIT = 1 << 17, SA_PATH_MTU = 1500 };
static const uint32_t NO_SA = UINT32_MAX, NO_TUNNEL = UINT32_MAX;

enum {
	SA_OUTBOUND = 1 << 0,
	SA_TRANSPORT = 1 << 1,
	SA_ESN = 1 << 2,
	SA_NO_REPLAY_CHECK = 1 << 3,
	SA_HMAC = 1 << 4,      // integrity is HMAC's: it covers the IV, too
	SA_RANDOM_IV = 1 << 5, // CBC
	SA_LIMITED = 1 << 6,   // there is a limit on bytes, or inbound on packets
	SA_CLEAR_ECN = 1 << 7,
	SA_SET_DSCP = 1 << 8, // dscp is the outer header's; without it that is copied
	SA_SET_DF = 1 << 9,
	SA_CLEAR_DF = 1 << 10,
	SA_UDP = 1 << 11,
};

// Events of an SA: a worker sets a bit once, and the main thread reads it.
enum {
	SA_EXHAUSTED = 1 << 0, // the last sequence number was used
	SA_DEAD = 1 << 1,      // behind a hard limit
	SA_MOVED = 1 << 2,     // the peer sends from another address or port
	SA_PATH = 1 << 3,      // the path takes smaller packets than was known
	SA_MOVING = 1 << 4,    // a worker writes where the peer moved to
};

struct ipsec_sa {
	// Of the spec.
	struct crypto_key *key;
	uint64_t iv;   // random: the IV of a counter mode is this and the sequence number, exclusive or
	uint64_t last; // outbound: the highest sequence number that may be used; 0: the SA has ended
	const struct ipsec_selectors *selectors;
	uint32_t spi;    // network order
	uint32_t tunnel; // the record of the tunnel or of the policy
	uint16_t flags;
	uint16_t vrf;
	uint16_t window;   // inbound
	uint16_t path_mtu; // outbound
	uint8_t family;    // outer
	uint8_t front;     // outbound: bytes of IP, UDP and SPI
	uint8_t iv_length;
	uint8_t icv_length;
	uint8_t align;
	uint8_t dscp;     // as in a traffic class
	uint8_t current;  // of headers
	uint16_t sums[2]; // of headers: IPv4, without length, identification, DF and class

	// Packets change these.
	uint64_t sequence __rte_cache_aligned; // outbound: the last one used; inbound: the highest received
	uint64_t bytes, packets;               // of SAs with limits
	uint64_t hard_bytes, hard_packets;     // UINT64_MAX: none
	union {
		uint64_t *words; // inbound: the window
		uint64_t limit;  // outbound: what `last` will be when the file of sequence numbers has it
	};
	uint32_t mask;
	uint32_t events;     // SA_EXHAUSTED ...
	uint32_t moved_port; // with SA_MOVED, network order
	uint32_t serial;     // no other SA has it, before or after

	union {
		struct {
			uint8_t local[16], remote[16]; // inbound
			uint64_t inline_words[4];
			uint16_t remote_port; // network order
			uint8_t moved[16];    // the address that a peer moved to
		} __rte_cache_aligned;
		// Outbound: IP, UDP and SPI, right-aligned. One is in use, the other is written.
		uint8_t headers[2][ESP_FRONT] __rte_cache_aligned;
	};
} __rte_cache_aligned;

static_assert(offsetof(struct ipsec_sa, sequence) == RTE_CACHE_LINE_SIZE, "fields of the spec are one cache line");
static_assert(
	offsetof(struct ipsec_sa, headers) == 2 * RTE_CACHE_LINE_SIZE, "fields that packets change are one cache line");
static_assert(sizeof(struct ipsec_sa) == 4 * RTE_CACHE_LINE_SIZE, "an SA is four cache lines");

// Of an SA. One cache line, by worker.
struct ipsec_sa_counters {
	uint64_t packets, bytes; // encrypted, or accepted; of IP packets inside
	uint64_t replays, bad_icv, malformed, wrong_selector, over_limit, other;
};

// Messages about the path of an SA. By worker.
struct ipsec_path_counters {
	uint64_t learned; // the path takes smaller packets than was known
	// Not believed, as a message may be forged: the SA sent no such packet lately, or no path has this size.
	uint64_t refused;
};

extern struct slab ipsec_sas;
extern struct counters ipsec_sa_counters, ipsec_path_counters;
// From ipsec_spi_key() to an inbound SA.
extern struct map64 *ipsec_spis;
// From ipsec_out_key() to an outbound SA.
extern struct map64 *ipsec_out_spis;
extern struct kind security_association_kind;

static inline struct ipsec_sa *
ipsec_sa_at(uint32_t index)
{
	return (struct ipsec_sa *)ipsec_sas.records + index;
}

// `spi` as it lies.
static inline uint64_t
ipsec_spi_key(uint16_t vrf, uint32_t spi)
{
	return ((uint64_t)vrf + 1) << 32 | spi;
}

// The peer chooses the SPI of an outbound SA (RFC 4301 section 4.1), so that several peers may choose the same one. `remote`: 16 bytes, IPv4 in the
// first four. `port`: of UDP, because several peers may be behind one address translator; 0: no UDP. Both and `spi` as they lie. Two SAs
// may have the same key by chance: compare ends. Any thread.
uint64_t ipsec_out_key(uint16_t vrf, uint8_t family, const uint8_t remote[16], uint16_t port, uint32_t spi);

static inline struct ipsec_sa_counters *
ipsec_sa_counters_of(uint32_t index)
{
	return (struct ipsec_sa_counters *)counters_row(&ipsec_sa_counters) + index;
}

// Outbound: whether a hard lifetime in packets ends the SA, and not the last sequence number. Any thread.
static inline bool
ipsec_sa_ends_by_packets(const struct ipsec_sa *sa)
{
	return __atomic_load_n(&sa->limit, __ATOMIC_RELAXED) < (sa->flags & SA_ESN ? UINT64_MAX - 1 : UINT32_MAX);
}

// The largest packet inside that fits into an outer one of `path_mtu` bytes, and into one buffer; 0: none does. Any thread.
unsigned ipsec_sa_room(const struct ipsec_sa *sa, unsigned path_mtu);

static inline struct ipsec_path_counters *
ipsec_path_counters_of(uint32_t index)
{
	return (struct ipsec_path_counters *)counters_row(&ipsec_path_counters) + index;
}

// Main thread.
const char *ipsec_sa_name(uint32_t index);
// Where the peer of an SA is: 16 bytes, IPv4 in the first four, and the UDP port in network order (0: no UDP).
void ipsec_sa_remote(const struct ipsec_sa *sa, uint8_t address[16], uint16_t *port);
struct object *ipsec_sa_object(uint32_t index);
// The SA's path_mtu has changed.
void ipsec_sa_path_changed(uint32_t index);
// Since the SA was made, over all workers.
void ipsec_sa_count(uint32_t index, struct ipsec_sa_counters *sum);
// The SA's sequence numbers go to the file, and an outbound one may use more.
void ipsec_sa_keep(uint32_t index);
// The workers have ended: the file gets the last number of each SA.
void ipsec_sas_settle(void);
// The outbound SA sends to another address (family of the SA, network order) and UDP port (network order) from now on.
void ipsec_sa_send_to(uint32_t index, const uint8_t *address, uint16_t port);
