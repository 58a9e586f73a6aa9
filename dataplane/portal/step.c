// SPDX-License-Identifier: Apache-2.0
// Sessions' walled gardens: before access lists, which may be lists for when the subscriber has left the garden.
#include "portal/portal.h"
#include "session/step.h"

struct part {
	struct object *portal;
};

static int
need(const Sluice__V1__Session *spec, void *part, struct fault *f)
{
	struct part *p = part;

	return spec->policy ? object_need(&portal_kind, spec->policy->portal, "policy.portal", &p->portal, f) : 0;
}

static const char *
field(const void *part, enum direction direction)
{
	return ((const struct part *)part)->portal ? "portal" : NULL;
}

static void
publish(uint32_t session, const void *part)
{
	const struct part *p = part;

	if (p->portal)
		__atomic_store_n(&session_portals[session], portal_of(p->portal), __ATOMIC_RELEASE);
}

static const char *const before[] = {"acl", NULL};
static struct session_step portal_step = {
	.order = {.name = "portal", .before = before},
	.node = {[UP] = &portal_up_node, [DOWN] = &portal_down_node},
	.size = sizeof(struct part),
	.objects = 1,
	.need = need,
	.field = field,
	.publish = publish,
};
SESSION_STEP_REGISTER(portal_step)
