// SPDX-License-Identifier: Apache-2.0
// Routes to sessions: one for each prefix of a session that is routed in its VRF.
#include "session/record.h"

#include <errno.h>
#include <string.h>

#include "ether/interface.h"
#include "fib/connected.h"
#include "fib/hop.h"
#include "fib/vrf.h"

static bool
routed(const struct session_detail *d)
{
	return d->object && !d->has_core;
}

static bool
has_prefix(const struct session_prefixes *prefixes, const struct session_prefix *prefix)
{
	for (unsigned i = 0; i < prefixes->count; i++)
		if (memcmp(&prefixes->list[i], prefix, sizeof(*prefix)) == 0)
			return true;
	return false;
}

// Whether the session as it is has a route to this prefix in this VRF already.
static bool
has_route(const struct session_detail *d, uint16_t old_vrf, uint16_t vrf, const struct session_prefix *prefix)
{
	return routed(d) && old_vrf == vrf && has_prefix(d->prefixes, prefix);
}

static int
route_taken(uint16_t vrf, const struct session_prefix *prefix, unsigned number, const char *address, struct fault *f)
{
	uint32_t hop = route_find(vrf, prefix->family, prefix->address, prefix->length, ROUTE_SESSION);

	return fault(f, EEXIST,
		"addresses[%u]: \"%.48s\" is Session \"%.64s\"'s in this VRF; each prefix can be one session's", number,
		address, session_name(hop ? hop_at(hop)->session : NO_SESSION));
}

// The use that an interface has for this prefix; its routes go before those of sessions. NULL: no interface has it.
static const char *
interface_has(uint16_t vrf, const struct session_prefix *prefix, uint32_t *interface)
{
	uint32_t local = route_find(vrf, prefix->family, prefix->address, prefix->length, ROUTE_LOCAL);
	uint32_t connected = route_find(vrf, prefix->family, prefix->address, prefix->length, ROUTE_CONNECTED);
	const struct hop *hop = hop_at(local ? local : connected);

	if (local == 0 && connected == 0)
		return NULL;
	*interface = hop->interface;
	if (local != 0)
		return "an address";
	if (hop_forwards(hop))
		return "the network";
	if (hop->flags & HOP_BROADCAST)
		return "the broadcast address";
	if (!connected_is_network_address(hop))
		return "the anycast address of routers";
	// All interfaces share this hop.
	*interface = vrf_connected(vrf, prefix->family, prefix->address);
	return "the network address";
}

static int
check_interfaces(
	uint16_t vrf, const struct session_prefix *prefix, unsigned number, const char *address, struct fault *f)
{
	uint32_t interface = NO_INTERFACE;
	const char *what = interface_has(vrf, prefix, &interface);
	const struct object *object = interface < INTERFACE_LIMIT ? interface_detail(interface)->object : NULL;

	if (!what)
		return 0;
	return fault(f, EEXIST,
		"addresses[%u]: \"%.48s\" is %s of Interface \"%.64s\" in VRF \"%.64s\", so nothing is forwarded to "
		"the session; choose another address or VRF",
		number, address, what, object ? object->name : "?", vrf_name(vrf));
}

static void
remove_routes(
	const struct session_detail *d, uint16_t old_vrf, uint16_t vrf, const struct session_plan *w, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		const struct session_prefix *p = &w->spec.prefixes[i];

		if (!has_route(d, old_vrf, vrf, p))
			route_remove(vrf, p->family, p->address, p->length, ROUTE_SESSION);
	}
}

// The routes that the spec asks for and the session does not have yet. All or none.
int
session_routes_add(const struct session_detail *d, uint16_t old_vrf, const Sluice__V1__Session *spec,
	const struct session_plan *w, struct fault *f)
{
	if (w->core_kind)
		return 0;
	for (unsigned i = 0; i < w->spec.prefix_count; i++) {
		const struct session_prefix *p = &w->spec.prefixes[i];
		int error;

		if (has_route(d, old_vrf, w->vrf_index, p))
			continue;
		error = check_interfaces(w->vrf_index, p, i, spec->addresses[i], f);
		if (error) {
			remove_routes(d, old_vrf, w->vrf_index, w, i);
			return error;
		}
		error = route_add(w->vrf_index, p->family, p->address, p->length, ROUTE_SESSION, w->hop, f);
		if (error == -EEXIST)
			error = route_taken(w->vrf_index, p, i, spec->addresses[i], f);
		if (error) {
			remove_routes(d, old_vrf, w->vrf_index, w, i);
			return error;
		}
	}
	return 0;
}

void
session_routes_undo(const struct session_detail *d, uint16_t old_vrf, const struct session_plan *w)
{
	if (!w->core_kind)
		remove_routes(d, old_vrf, w->vrf_index, w, w->spec.prefix_count);
}

void
session_routes_release(const struct session_detail *old, uint16_t old_vrf, const struct session_detail *now,
	const struct session_plan *w)
{
	if (routed(old))
		for (unsigned i = 0; i < old->prefixes->count; i++) {
			const struct session_prefix *p = &old->prefixes->list[i];

			if (!routed(now) || old_vrf != w->vrf_index || !has_prefix(w->prefixes, p))
				route_remove(old_vrf, p->family, p->address, p->length, ROUTE_SESSION);
		}
}
