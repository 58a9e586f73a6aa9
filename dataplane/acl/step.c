// SPDX-License-Identifier: Apache-2.0
// Sessions' access lists.
#include "acl/acl.h"
#include "session/step.h"

struct part {
	struct object *lists[2]; // by enum direction
};

static int
need(const Sluice__V1__Session *spec, void *part, struct fault *f)
{
	struct part *p = part;
	int error;

	if (!spec->policy)
		return 0;
	error = object_need(&acl_kind, spec->policy->acl_up, "policy.aclUp", &p->lists[UP], f);
	return error ? error : object_need(&acl_kind, spec->policy->acl_down, "policy.aclDown", &p->lists[DOWN], f);
}

static const char *
field(const void *part, enum direction direction)
{
	const struct part *p = part;

	return !p->lists[direction] ? NULL : direction == UP ? "aclUp" : "aclDown";
}

static void
publish(uint32_t session, const void *part)
{
	const struct part *p = part;

	for (enum direction d = UP; d <= DOWN; d++)
		if (p->lists[d])
			__atomic_store_n(
				session_step_words(&acl_step, session, d), acl_of(p->lists[d]), __ATOMIC_RELEASE);
}

struct session_step acl_step = {
	.order = {.name = "acl"},
	.node = {[UP] = &acl_up_node, [DOWN] = &acl_down_node},
	.size = sizeof(struct part),
	.objects = 2,
	.words = 1,
	.need = need,
	.field = field,
	.publish = publish,
};
SESSION_STEP_REGISTER(acl_step)
