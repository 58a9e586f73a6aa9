// SPDX-License-Identifier: Apache-2.0
// IPoE: IP on a circuit leads to its session by the VLANs, and by the MAC where sessions share them (TR-146 section 5.2).
#include <errno.h>

#include "ether/circuit.h"
#include "session/session.h"
#include "session/spec.h"

static const struct rte_ether_addr *
mac_of(const struct session_key *key)
{
	return key->has_mac ? &key->mac : NULL;
}

static int
parse(const Sluice__V1__Access *spec, struct session_key *key, struct fault *f)
{
	if (spec->lcp_magic != 0)
		return fault(f, EINVAL, "access.lcpMagic: it needs access.pppoeSessionId; only PPP has LCP");
	return session_parse_circuit(spec, key, f);
}

static bool
same(const struct session_key *a, const struct session_key *b)
{
	return circuit_same(&a->circuit, &b->circuit) && a->has_mac == b->has_mac &&
	       (!a->has_mac || rte_is_same_ether_addr(&a->mac, &b->mac));
}

static int
bind(const struct session_key *key, uint32_t session, bool frames, bool alone, struct fault *f)
{
	return circuit_bind_session(&key->circuit, mac_of(key), frames, session, alone, f);
}

static void
unbind(const struct session_key *key)
{
	circuit_unbind_session(&key->circuit, mac_of(key));
}

static uint32_t
find(const struct session_key *key)
{
	return circuit_session(&key->circuit, mac_of(key));
}

static uint32_t
taker(const struct session_key *key)
{
	return circuit_taker(&key->circuit, mac_of(key));
}

static void
rebind(const struct session_key *key, uint32_t session)
{
	circuit_rebind_session(&key->circuit, mac_of(key), session);
}

static struct session_access ipoe = {
	.name = "IPoE",
	.parse = parse,
	.frame = {.types = {RTE_BE16(RTE_ETHER_TYPE_IPV4), RTE_BE16(RTE_ETHER_TYPE_IPV6)}},
	.resolves = true,
	.same = same,
	.bind = bind,
	.unbind = unbind,
	.find = find,
	.taker = taker,
	.rebind = rebind,
};
SESSION_ACCESS_REGISTER(ipoe)
