// SPDX-License-Identifier: Apache-2.0
// The kind PuntLimit: limits of a punt reason instead of the reason's own.
#include <errno.h>
#include <string.h>

#include "core/punt_watch.h"
#include "punt.pb-c.h"
#include "server/object.h"

// By reason.
static const struct object *limited[UINT8_MAX + 1];

static int
put(struct object *object, const void *spec_, const void *old_, struct fault *f)
{
	const Sluice__V1__PuntLimit *spec = spec_, *old = old_;
	const struct punt *reason = punt_by_name(spec->reason);

	if (!reason)
		return fault(f, EINVAL,
			"PuntLimit %.63s, reason: this data plane has no reason \"%.63s\"; `sluice get puntreasons` "
			"lists its reasons",
			object->name, spec->reason);
	if (old && strcmp(old->reason, spec->reason) != 0)
		return fault(f, EINVAL,
			"PuntLimit %.63s, reason: it cannot be changed; delete the PuntLimit and create it again",
			object->name);
	if (!old && limited[reason->id])
		return fault(f, EEXIST, "PuntLimit %.63s, reason: PuntLimit %.63s limits \"%.63s\" already",
			object->name, limited[reason->id]->name, spec->reason);
	limited[reason->id] = object;
	object->state = (void *)(uintptr_t)reason->id;
	punt_limit(reason->id,
		&(struct punt_limits){
			.rate = spec->rate, .each = spec->rate_per_source, .session = spec->rate_per_session});
	return 0;
}

static int delete (struct object *object, const void *spec, struct fault *f)
{
	unsigned id = (unsigned)(uintptr_t)object->state;

	limited[id] = NULL;
	punt_limit(id, NULL);
	return 0;
}

static struct kind limit_kind = {
	.name = "PuntLimit", .spec = &sluice__v1__punt_limit__descriptor, .put = put, .delete = delete};
KIND_REGISTER(limit_kind)
