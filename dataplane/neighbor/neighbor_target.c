// SPDX-License-Identifier: Apache-2.0
// Whether the gateway answers for the target of an ARP request (RFC 826, RFC 1027) or a neighbour solicitation
// (RFC 4861 section 7.2.4, RFC 4389). The route to the target decides. Workers and main thread.
#include <string.h>

#include "core/packet.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "fib/link_local.h"
#include "fib/vrf.h"
#include "inet/header.h"
#include "ip/subscriber.h"
#include "neighbor/neighbor.h"
#include "port/port.h"

static const struct hop *
route_to(uint16_t vrf, uint8_t family, const uint8_t address[16])
{
	const struct fib *fib = vrf_fib(vrf, family);
	uint32_t ip4, hop;

	if (!fib)
		return hop_at(NO_HOP);
	memcpy(&ip4, address, sizeof(ip4));
	hop = family == 4 ? fib4_lookup(fib, ip4) : fib6_lookup(fib, address);
	if (hop_at(hop)->kind == HOP_SPREAD)
		hop = hop_at(hop)->spread[0];
	return hop_at(hop);
}

static enum neighbor_target
target_of_session(const struct packet *p, uint8_t family, const uint8_t address[16])
{
	struct subscriber about;
	const struct hop *hop;

	subscribers->about(p->session, &about);
	hop = route_to(about.vrf, family, address);
	if (hop->kind == HOP_LOCAL && hop->flags == 0)
		return TARGET_OURS;
	if (!about.proxied || (hop_forwards(hop) && hop->session == p->session))
		return TARGET_NOBODY;
	// Its own address is the subscriber's to defend. One that may use any address owns none.
	if (!about.any_source && subscribers->whose(p->session, family, address) != NO_SESSION)
		return TARGET_NOBODY;
	return TARGET_PROXY;
}

static enum neighbor_target
target_of_interface(const struct packet *p, const struct hop *hop)
{
	const struct interface *in = interface_at(p->interface);

	if (hop->kind == HOP_LOCAL && hop->flags == 0 && hop->interface == in->addresses_of)
		return TARGET_OURS;
	if (!in->proxy_arp)
		return TARGET_NOBODY;
	if (hop->kind == HOP_LOCAL)
		return hop->flags == 0 ? TARGET_PROXY : TARGET_NOBODY;
	return hop_forwards(hop) && hop->interface != p->interface ? TARGET_PROXY : TARGET_NOBODY;
}

enum neighbor_target
neighbor_target(const struct packet *p, uint8_t family, const uint8_t address[16])
{
	uint8_t made[16];

	if (p->session == NO_SESSION && p->interface == NO_INTERFACE)
		return TARGET_NOBODY;
	if (family == 6 && ip6_is_link_local(address)) {
		link_local_of(&ports[p->port].mac, made);
		if (memcmp(made, address, 16) == 0)
			return TARGET_OURS;
		return p->interface != NO_INTERFACE && link_local_is_configured(p->interface, address) ? TARGET_OURS
												       : TARGET_NOBODY;
	}
	if (p->session != NO_SESSION)
		return target_of_session(p, family, address);
	return target_of_interface(p, route_to(p->vrf, family, address));
}

bool
neighbor_may_begin(const struct packet *p, uint8_t family, const uint8_t address[16])
{
	const struct hop *hop;

	if (p->session != NO_SESSION || p->interface == NO_INTERFACE)
		return false;
	if (family == 6 && ip6_is_link_local(address))
		return true;
	hop = route_to(p->vrf, family, address);
	return hop->kind == HOP_RESOLVE && hop->interface == p->interface;
}

bool
neighbor_is_ours(const struct packet *p, uint8_t family, const uint8_t address[16])
{
	return neighbor_target(p, family, address) == TARGET_OURS;
}
