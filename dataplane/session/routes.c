// Routes to sessions: one for each prefix of a session that is routed in its VRF.
#include "session/record.h"

#include <errno.h>
#include <string.h>

#include "ip/hop.h"
#include "ip/vrf.h"

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

static void
remove_routes(
	const struct session_detail *d, uint16_t old_vrf, uint16_t vrf, const struct session_wanted *w, unsigned count)
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
	const struct session_wanted *w, struct fault *f)
{
	if (w->core_kind)
		return 0;
	for (unsigned i = 0; i < w->spec.prefix_count; i++) {
		const struct session_prefix *p = &w->spec.prefixes[i];
		int error;

		if (has_route(d, old_vrf, w->vrf_index, p))
			continue;
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
session_routes_undo(const struct session_detail *d, uint16_t old_vrf, const struct session_wanted *w)
{
	if (!w->core_kind)
		remove_routes(d, old_vrf, w->vrf_index, w, w->spec.prefix_count);
}

void
session_routes_release(const struct session_detail *old, uint16_t old_vrf, const struct session_detail *now,
	const struct session_wanted *w)
{
	if (routed(old))
		for (unsigned i = 0; i < old->prefixes->count; i++) {
			const struct session_prefix *p = &old->prefixes->list[i];

			if (!routed(now) || old_vrf != w->vrf_index || !has_prefix(w->prefixes, p))
				route_remove(old_vrf, p->family, p->address, p->length, ROUTE_SESSION);
		}
}
