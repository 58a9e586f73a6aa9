// SPDX-License-Identifier: Apache-2.0
// Sessions' meters: a packet counts if the access list let it through.
#include <errno.h>

#include "meter/meter.h"
#include "session/step.h"

struct part {
	struct object *profiles[2]; // by enum direction
	uint32_t meters[2];         // where there is a profile
};

static int
need(const Sluice__V1__Session *spec, void *part, struct fault *f)
{
	struct part *p = part;
	int error;

	p->meters[UP] = p->meters[DOWN] = NO_METER;
	if (!spec->policy)
		return 0;
	error = object_need(&meter_kind, spec->policy->meter_up, "policy.meterUp", &p->profiles[UP], f);
	return error ? error
		     : object_need(&meter_kind, spec->policy->meter_down, "policy.meterDown", &p->profiles[DOWN], f);
}

static const char *
field(const void *part, enum direction direction)
{
	const struct part *p = part;

	return !p->profiles[direction] ? NULL : direction == UP ? "meterUp" : "meterDown";
}

static int
prepare(const struct session_step_change *change, const void *had, void *part, struct fault *f)
{
	const struct part *before = had;
	struct part *p = part;

	for (unsigned i = UP; i <= DOWN; i++) {
		if (!p->profiles[i])
			continue;
		p->meters[i] = p->profiles[i] == before->profiles[i] ? before->meters[i] : meter_new(p->profiles[i]);
		if (p->meters[i] == NO_METER)
			return fault(f, ENOSPC, "policy.meter%s: there is no room for more token buckets",
				i == UP ? "Up" : "Down");
	}
	return 0;
}

// The meters that `whose` has and `others` does not.
static void
retire(const struct part *whose, const struct part *others)
{
	for (unsigned i = UP; i <= DOWN; i++)
		if (whose->profiles[i] && whose->profiles[i] != others->profiles[i] && whose->meters[i] != NO_METER)
			meter_retire(whose->meters[i]);
}

static void
abandon(const void *had, void *part)
{
	retire(part, had);
}

static void
publish(uint32_t session, const void *part)
{
	const struct part *p = part;

	for (enum direction d = UP; d <= DOWN; d++)
		if (p->profiles[d])
			__atomic_store_n(session_step_words(&meter_step, session, d), p->meters[d], __ATOMIC_RELEASE);
}

static void
release(uint32_t session, const void *had, const void *now, bool deleted)
{
	retire(had, now);
}

static const char *const after[] = {"acl", "flow", NULL};
struct session_step meter_step = {
	.order = {.name = "meter", .after = after},
	.node = {[UP] = &meter_up_node, [DOWN] = &meter_down_node},
	.frames = true,
	.size = sizeof(struct part),
	.objects = 2,
	.words = 1,
	.need = need,
	.field = field,
	.prepare = prepare,
	.abandon = abandon,
	.publish = publish,
	.release = release,
};
SESSION_STEP_REGISTER(meter_step)
