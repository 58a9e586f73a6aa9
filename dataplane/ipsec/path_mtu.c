// SPDX-License-Identifier: Apache-2.0
// Path MTU discovery outside of tunnels (RFC 4301 section 8.2, RFC 8201, RFC 1191).
//
// A message counts if it quotes an ESP packet of an outbound SA: its ends, its SPI, and a sequence number that was used lately. A host off the path
// knows neither. A learned path MTU is valid for ten minutes. One below the minimum is refused (RFC 8201 section 4): packets may be lost that a router
// cannot cut.
#include "ipsec/path_mtu.h"

#include <string.h>

#include "inet/header.h"
#include "ip/icmp.h"
#include "ipsec/sa.h"

enum { IP4_MTU_MIN = 576, IP6_MTU_MIN = 1280, LATELY = 1 << 20 };

static void
learn(uint32_t index, uint16_t mtu)
{
	struct ipsec_sa *sa = ipsec_sa_at(index);
	uint16_t known = __atomic_load_n(&sa->path_mtu, __ATOMIC_RELAXED);

	do {
		if (mtu >= known)
			return;
	} while (!__atomic_compare_exchange_n(&sa->path_mtu, &known, mtu, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	__atomic_or_fetch(&sa->events, SA_PATH, __ATOMIC_RELEASE);
	ipsec_path_counters_of(index)->learned++;
}

static bool
too_big(uint16_t vrf, const uint8_t *packet, size_t length, uint32_t mtu)
{
	uint8_t family = packet[0] >> 4, protocol;
	size_t offset = family == 4 ? ip4_header_length((const struct ip4_header *)packet) : sizeof(struct ip6_header);
	uint8_t peer[16] = {0};
	const uint8_t *remote;
	struct ipsec_sa *sa;
	uint32_t spi, index;
	uint16_t port = 0;

	protocol = family == 4 ? ((const struct ip4_header *)packet)->protocol
			       : ((const struct ip6_header *)packet)->next_header;
	if (protocol != PROTOCOL_UDP && protocol != PROTOCOL_ESP)
		return false;
	// An IPv4 router may quote 8 bytes behind the header (RFC 792): in UDP these are not ESP's.
	if (length < offset + ESP_HEADER + (protocol == PROTOCOL_UDP ? ESP_UDP_HEADER : 0))
		return false;
	if (protocol == PROTOCOL_UDP) {
		memcpy(&port, packet + offset + 2, sizeof(port));
		offset += ESP_UDP_HEADER;
	}
	if (family == 4)
		memcpy(peer, packet + offsetof(struct ip4_header, destination), 4);
	else
		memcpy(peer, packet + offsetof(struct ip6_header, destination), 16);
	memcpy(&spi, packet + offset, sizeof(spi));
	index = map64_get(ipsec_out_spis, ipsec_out_key(vrf, family, peer, port, spi));
	if (index == MAP64_NONE)
		return false;
	sa = ipsec_sa_at(index);
	remote = sa->headers[__atomic_load_n(&sa->current, __ATOMIC_ACQUIRE)] + ESP_FRONT - sa->front;
	if (sa->spi != spi || family != sa->family || (protocol == PROTOCOL_UDP) != !!(sa->flags & SA_UDP) ||
		(family == 4 ? memcmp(packet + 12, remote + 12, 8) : memcmp(packet + 8, remote + 8, 32)) != 0)
		return false;
	if ((uint32_t)__atomic_load_n(&sa->sequence, __ATOMIC_RELAXED) - esp_read_32(packet + offset + 4) >= LATELY ||
		mtu < (family == 4 ? IP4_MTU_MIN : IP6_MTU_MIN))
		ipsec_path_counters_of(index)->refused++;
	else
		learn(index, (uint16_t)RTE_MIN(mtu, (uint32_t)UINT16_MAX));
	return true;
}

void
ipsec_path_mtu_start(void)
{
	static struct icmp_too_big watcher = {.tell = too_big};

	icmp_too_big_watch(&watcher);
}
