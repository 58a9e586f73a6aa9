// SPDX-License-Identifier: Apache-2.0
// Sessions' flow profiles: the QoS flow of a packet, before the steps that depend on it.
#include "flow/cells.h"
#include "flow/profile.h"
#include "session/step.h"

struct part {
	struct object *profile;
};

static int
need(const Sluice__V1__Session *spec, void *part, struct fault *f)
{
	struct part *p = part;

	return spec->policy ? object_need(&flow_kind, spec->policy->flow_profile, "policy.flowProfile", &p->profile, f)
			    : 0;
}

static const char *
field(const void *part, enum direction direction)
{
	return ((const struct part *)part)->profile ? "flowProfile" : NULL;
}

static void
publish(uint32_t session, const void *part)
{
	const struct part *p = part;

	if (!p->profile)
		return;
	__atomic_store_n(&session_flows[session], flow_of(p->profile), __ATOMIC_RELEASE);
	flow_cells_follow(session, flow_profile_at(flow_of(p->profile))->listed);
}

static void
release(uint32_t session, const void *had, const void *now, bool deleted)
{
	if (deleted || !((const struct part *)now)->profile)
		flow_cells_end(session);
}

static const char *const after[] = {"acl", NULL};
static struct session_step flow_step = {
	.order = {.name = "flow", .after = after},
	.node = {[UP] = &flow_up_node, [DOWN] = &flow_down_node},
	.frames = true,
	.size = sizeof(struct part),
	.objects = 1,
	.need = need,
	.field = field,
	.publish = publish,
	.release = release,
	.flows = flow_cells_read,
};
SESSION_STEP_REGISTER(flow_step)
