// SPDX-License-Identifier: Apache-2.0
// Path MTU discovery of the ways to peers (RFC 8201).
//
// A message counts if it quotes the beginning of a packet that we could have sent: between the ends of a path, with the source port and the
// flow label that its inner packet gets here. These come from a secret (encap.c), so that a host off the path cannot forge a
// message. Workers check each message as it comes: a flood of forged ones hides no good one.
#include "gtpu/mtu.h"

#include <string.h>

#include "core/worker.h"
#include "gtpu/path.h"
#include "gtpu/tunnel.h"
#include "inet/header.h"
#include "ip/icmp.h"

// By path: the MTU above the second in which it ends; 0: nothing was learned. Workers make it smaller, the main thread ends it.
static uint64_t learned[PATHS_LIMIT];

static uint16_t
mtu_of(uint64_t word)
{
	return (uint16_t)(word >> 32);
}

uint16_t
gtpu_mtu_limit(uint32_t path, uint16_t mtu, uint32_t second)
{
	uint64_t word = __atomic_load_n(&learned[path], __ATOMIC_ACQUIRE);

	if (word == 0)
		return mtu;
	// A value that a worker learns at this moment is used by the next look.
	if ((uint32_t)word <= second &&
		__atomic_compare_exchange_n(&learned[path], &word, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return mtu;
	return mtu < mtu_of(word) ? mtu : mtu_of(word);
}

void
gtpu_mtu_forget(uint32_t path)
{
	__atomic_store_n(&learned[path], 0, __ATOMIC_RELEASE);
}

// Section 4: never above the known MTU, which is 0 for a path that is down.
static void
learn(uint32_t path, uint16_t mtu)
{
	uint64_t word = (uint64_t)mtu << 32 | (worker_second() + PATH_MTU_SECONDS), before;

	if (mtu >= __atomic_load_n(&gtpu_path_mtu[path], __ATOMIC_RELAXED))
		return;
	before = __atomic_load_n(&learned[path], __ATOMIC_ACQUIRE);
	do {
		if (before != 0 && mtu_of(before) <= mtu)
			return;
	} while (
		!__atomic_compare_exchange_n(&learned[path], &before, word, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	// Until the main thread looks at the path again.
	__atomic_store_n(&gtpu_path_mtu[path], mtu, __ATOMIC_RELAXED);
}

static bool
too_big(uint16_t vrf, const uint8_t *packet, size_t length, uint32_t mtu)
{
	const struct ip6_header *ip = (const struct ip6_header *)packet;
	struct gtpu_ends ends = {.family = 6};
	uint32_t path;

	if (packet[0] >> 4 != 6 || mtu < PATH_MTU_MIN || mtu >= sizeof(*ip) + rte_be_to_cpu_16(ip->payload_length))
		return false;
	memcpy(ends.local, ip->source, sizeof(ends.local));
	memcpy(ends.remote, ip->destination, sizeof(ends.remote));
	path = gtpu_path_find(vrf, &ends);
	if (path == NO_END || !gtpu_could_send6(packet, length))
		return false;
	learn(path, (uint16_t)mtu);
	return true;
}

void
gtpu_mtu_start(void)
{
	static struct icmp_too_big watcher = {.tell = too_big};

	icmp_too_big_watch(&watcher);
}
