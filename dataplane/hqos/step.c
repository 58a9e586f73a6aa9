// SPDX-License-Identifier: Apache-2.0
// Sessions' queues: where their packets wait is decided last, while they are still as the subscriber sends or gets them.
#include <errno.h>
#include <stdio.h>

#include "hqos/hqos.h"
#include "session/step.h"

struct part {
	struct object *profiles[2], *groups[2]; // by enum direction; both or none
	uint32_t queues[2];                     // or NO_QUEUE
};

static int
need_way(const char *profile, const char *group, enum direction direction, struct part *p, struct fault *f)
{
	const char *up = direction == UP ? "Up" : "";
	char field[32];
	int error;

	if (!profile[0] && !group[0])
		return 0;
	if (!profile[0] != !group[0])
		return fault(f, EINVAL, "policy.qos%s%s: it needs policy.qos%s%s beside it",
			profile[0] ? "Profile" : "Group", up, profile[0] ? "Group" : "Profile", up);
	snprintf(field, sizeof(field), "policy.qosProfile%s", up);
	error = object_need(&qos_profile_kind, profile, field, &p->profiles[direction], f);
	snprintf(field, sizeof(field), "policy.qosGroup%s", up);
	return error ? error : object_need(&qos_group_kind, group, field, &p->groups[direction], f);
}

static int
need(const Sluice__V1__Session *spec, void *part, struct fault *f)
{
	const Sluice__V1__Policy *policy = spec->policy;
	int error = policy ? need_way(policy->qos_profile, policy->qos_group, DOWN, part, f) : 0;

	return error || !policy ? error : need_way(policy->qos_profile_up, policy->qos_group_up, UP, part, f);
}

static const char *
field(const void *part, enum direction direction)
{
	const struct part *p = part;

	return !p->groups[direction] ? NULL : direction == UP ? "qosProfileUp" : "qosProfile";
}

static int
prepare(const struct session_step_change *change, const void *had, void *part, struct fault *f)
{
	const struct part *before = had;
	struct part *p = part;

	for (unsigned i = UP; i <= DOWN; i++) {
		const struct object *group = p->groups[i];

		if (!group)
			continue;
		if (hqos_same_scheduler(before->queues[i], group) && (i == UP || change->old_port == change->port)) {
			p->queues[i] = before->queues[i];
			continue;
		}
		p->queues[i] = hqos_take(
			group, i == DOWN ? change->port : NULL, i == UP ? "policy.qosGroupUp" : "policy.qosGroup", f);
		if (p->queues[i] == NO_QUEUE)
			return -EINVAL;
	}
	return 0;
}

static void
give_back(const struct part *whose, const struct part *others, bool drop)
{
	for (unsigned i = UP; i <= DOWN; i++)
		if (whose->queues[i] != NO_QUEUE && whose->queues[i] != others->queues[i])
			hqos_give_back(whose->queues[i], drop);
}

static void
abandon(const void *had, void *part)
{
	give_back(part, had, true);
}

static void
publish(uint32_t session, const void *part)
{
	const struct part *p = part;

	for (unsigned i = UP; i <= DOWN; i++)
		if (p->queues[i] != NO_QUEUE)
			hqos_use(p->queues[i], session, (enum direction)i, p->groups[i], p->profiles[i]);
		else
			hqos_use_none(session, (enum direction)i);
}

static void
release(uint32_t session, const void *had, const void *now, bool deleted)
{
	give_back(had, now, deleted);
	if (deleted)
		publish(session, now);
}

static const char *const after[] = {"acl", "flow", "meter", "mss", NULL};
static struct session_step hqos_step = {
	.order = {.name = "hqos", .after = after},
	.node = {[UP] = &hqos_classify_node, [DOWN] = &hqos_classify_node},
	.frames = true,
	.size = sizeof(struct part),
	.objects = 4,
	.need = need,
	.field = field,
	.prepare = prepare,
	.abandon = abandon,
	.publish = publish,
	.release = release,
};
SESSION_STEP_REGISTER(hqos_step)
