// SPDX-License-Identifier: Apache-2.0
// The table of reflective QoS rules.
#include "gtpu/reflect.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "core/loop.h"
#include "core/slab.h"
#include "core/worker.h"
#include "ether/frame.h"
#include "inet/header.h"

enum { SETS = 1 << 15, WAYS = 8, QFI_BITS = 6, TIME_BITS = 18, SWEEP_EVERY_NS = 1000 * 1000 * 1000 };

static const uint64_t TIME_MASK = (1u << TIME_BITS) - 1;
static const uint64_t TAG_MASK = ~0ull << (QFI_BITS + TIME_BITS);

// Each rule is looked at often enough that none gets half as old as a stamp can say.
static_assert(REFLECT_SWEEPS < 1 << (TIME_BITS - 2) && SETS % REFLECT_SWEEPS == 0, "all sets are swept in time");

static uint64_t (*sets)[WAYS];
static uint64_t secret[3];

static uint64_t
mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)(a ^ secret[0]) * (b ^ secret[1]);

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

// The flow of a packet; `within` separates equal packets of different tunnels.
static uint64_t
flow_of(uint64_t within, const uint8_t *ip, size_t length, bool downlink)
{
	uint64_t from[2] = {0}, to[2] = {0}, flow;
	uint32_t ports = 0; // or the SPI
	uint8_t protocol;
	size_t header;
	bool first = true;

	if (length < sizeof(struct ip4_header))
		return 0;
	if (ip[0] >> 4 == 4) {
		const struct ip4_header *ip4 = (const struct ip4_header *)ip;

		memcpy(from, &ip4->source, 4);
		memcpy(to, &ip4->destination, 4);
		protocol = ip4->protocol;
		header = ip4_header_length(ip4);
		first = (ip4->fragment & RTE_BE16(IP4_MF | IP4_OFFSET)) == 0;
	} else {
		const struct ip6_header *ip6 = (const struct ip6_header *)ip;

		if (ip[0] >> 4 != 6 || length < sizeof(*ip6))
			return 0;
		memcpy(from, ip6->source, 16);
		memcpy(to, ip6->destination, 16);
		protocol = ip6->next_header;
		header = sizeof(*ip6);
	}
	if (first && (protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_ESP) &&
		length >= header + sizeof(ports)) {
		memcpy(&ports, ip + header, sizeof(ports));
		if (downlink && protocol != PROTOCOL_ESP)
			ports = ports << 16 | ports >> 16;
	} else if (protocol == PROTOCOL_ESP) {
		// Without the SPI it would be a rule for all associations of two hosts.
		return 0;
	}
	flow = mix(downlink ? to[0] : from[0], downlink ? to[1] : from[1]);
	flow = mix(flow ^ (downlink ? from[0] : to[0]), secret[2] ^ (downlink ? from[1] : to[1]));
	flow = mix(flow ^ within, (uint64_t)protocol << 32 | ports);
	return flow | 1ull << 63;
}

uint64_t
reflect_flow(uint32_t whose, const uint8_t *ip, size_t length, bool downlink)
{
	return flow_of(whose, ip, length, downlink);
}

uint64_t
reflect_frame(uint32_t whose, const uint8_t *frame, size_t length, bool downlink)
{
	struct frame_shown shown;
	uint64_t words[3], flow;
	uint8_t source[6];
	unsigned family;
	size_t at;

	if (length < RTE_ETHER_HDR_LEN)
		return 0;
	// The rule would be for frames from a group, of which there are none.
	if (downlink && (frame[0] & 1))
		return 0;
	at = frame_show(frame, length, &shown);
	family = shown.type == RTE_ETHER_TYPE_IPV4 ? 4 : shown.type == RTE_ETHER_TYPE_IPV6 ? 6 : 0;
	if (family != 0 && (at == length || frame[at] >> 4 != family))
		return 0;
	if (shown.type < ETHER_TYPE_MIN)
		shown.type = 0;
	if (downlink) {
		memcpy(source, shown.source, sizeof(source));
		memcpy(shown.source, shown.destination, sizeof(source));
		memcpy(shown.destination, source, sizeof(source));
	}
	memcpy(words, &shown, sizeof(words));
	flow = mix(words[0] ^ whose, words[1]);
	flow = mix(flow, words[2]);
	return family != 0 ? flow_of(flow, frame + at, length - at, downlink) : flow | 1ull << 63;
}

static uint64_t *
set_of(uint64_t flow)
{
	return sets[flow & (SETS - 1)];
}

// The digest's low bits chose the set; the rest is the tag.
static uint64_t
age_of(uint64_t rule, uint32_t now)
{
	return (now - (rule & TIME_MASK)) & TIME_MASK;
}

void
reflect_learn(uint64_t flow, uint8_t qfi, uint32_t now)
{
	uint64_t *set = set_of(flow), oldest = 0, rule;
	unsigned place = 0;

	for (unsigned i = 0; i < WAYS; i++) {
		rule = __atomic_load_n(&set[i], __ATOMIC_RELAXED);
		if (((rule ^ flow) & TAG_MASK) == 0) {
			place = i;
			break;
		}
		if (rule == 0 || age_of(rule, now) >= oldest) {
			oldest = rule == 0 ? UINT64_MAX : age_of(rule, now);
			place = i;
		}
	}
	rule = (flow & TAG_MASK) | (uint64_t)(qfi & ((1u << QFI_BITS) - 1)) << TIME_BITS | (now & TIME_MASK);
	if (__atomic_load_n(&set[place], __ATOMIC_RELAXED) != rule)
		__atomic_store_n(&set[place], rule, __ATOMIC_RELAXED);
}

int
reflect_find(uint64_t flow, uint32_t now)
{
	const uint64_t *set = set_of(flow);

	for (unsigned i = 0; i < WAYS; i++) {
		uint64_t rule = __atomic_load_n(&set[i], __ATOMIC_RELAXED);

		if (((rule ^ flow) & TAG_MASK) == 0 && age_of(rule, now) <= REFLECT_SECONDS)
			return (int)(rule >> TIME_BITS & ((1u << QFI_BITS) - 1));
	}
	return REFLECT_NONE;
}

// An age beyond that of any rule, before stamps wrap. A stamp that is half the range away is of a worker whose second began sooner.
static void
sweep(uint64_t *set, uint32_t now)
{
	for (unsigned i = 0; i < WAYS; i++) {
		uint64_t rule = __atomic_load_n(&set[i], __ATOMIC_RELAXED), age = age_of(rule, now);

		// A worker may make it again at the same moment: then it stays.
		if (rule != 0 && age > REFLECT_SECONDS && age <= TIME_MASK / 2)
			__atomic_compare_exchange_n(&set[i], &rule, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	}
}

void
reflect_sweep(uint32_t now)
{
	static unsigned next;

	for (unsigned i = 0; i < SETS / REFLECT_SWEEPS; i++, next = (next + 1) % SETS)
		sweep(sets[next], now);
}

static void
sweep_some(void *nothing)
{
	(void)nothing;
	reflect_sweep(worker_second());
}

int
reflect_start(void)
{
	sets = slab_reserve(SETS * sizeof(sets[0]));
	if (!sets)
		return -ENOMEM;
	if (getentropy(secret, sizeof(secret)))
		return -errno;
	loop_every(SWEEP_EVERY_NS, sweep_some, NULL);
	return 0;
}
