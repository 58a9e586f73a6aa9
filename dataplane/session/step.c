// SPDX-License-Identifier: Apache-2.0
// Steps of sessions: their order, and each session's parts.
#include "session/step.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/slab.h"
#include "session/spec.h"

enum { STEPS_MAX = 32 };

unsigned session_steps_max = CHAIN_MAX;

static struct ordered *registered;
static struct session_step *steps[STEPS_MAX]; // in the order in which packets go through them
static unsigned step_count;
static size_t parts_size;
static uint8_t *all_parts; // by session, parts_size each

void
session_step_register(struct session_step *step)
{
	step->order.next = registered;
	registered = &step->order;
}

int
session_steps_start(void)
{
	struct ordered *list[STEPS_MAX];
	unsigned words;
	int count = order(registered, list, STEPS_MAX);

	if (count < 0) {
		fprintf(stderr, "session steps: %s\n",
			count == -ELOOP ? "some are registered to come before each other"
					: "too many are registered; raise STEPS_MAX in dataplane/session/step.c");
		return count;
	}
	step_count = (unsigned)count;
	parts_size = 0;
	words = 0;
	for (unsigned i = 0; i < step_count; i++) {
		steps[i] = (struct session_step *)list[i];
		steps[i]->offset = parts_size;
		parts_size += RTE_ALIGN_CEIL(steps[i]->size, sizeof(void *));
		steps[i]->place = words;
		words += steps[i]->words;
	}
	if (parts_size > SESSION_PARTS_SIZE) {
		fprintf(stderr,
			"session steps: their parts have %zu bytes, and %d is the most; raise SESSION_PARTS_SIZE in "
			"dataplane/session/step.h\n",
			parts_size, SESSION_PARTS_SIZE);
		return -ENOSPC;
	}
	if (words > SESSION_STEP_WORDS) {
		fprintf(stderr,
			"session steps: they declare %u words of the session's record, and %d is the most; raise "
			"SESSION_STEP_WORDS in dataplane/session/session.h\n",
			words, SESSION_STEP_WORDS);
		return -ENOSPC;
	}
	all_parts = slab_reserve(parts_size * SESSION_LIMIT + 1);
	return all_parts ? 0 : -ENOMEM;
}

// ---- The parts of a spec.

static inline const void *
part_of(const struct session_parts *parts, const struct session_step *step)
{
	return parts->bytes + step->offset;
}

static inline void *
part_in(struct session_parts *parts, const struct session_step *step)
{
	return parts->bytes + step->offset;
}

static int
check_room(const struct session_parts *parts, enum direction direction, unsigned last, struct fault *f)
{
	unsigned count = last, used = 0;
	char fields[160] = "";

	for (unsigned i = 0; i < step_count; i++) {
		const char *field = steps[i]->field(part_of(parts, steps[i]), direction);

		if (!field)
			continue;
		if (used < sizeof(fields))
			used += (unsigned)snprintf(
				fields + used, sizeof(fields) - used, "%s%s", count > last ? ", " : "", field);
		count++;
	}
	if (count <= session_steps_max)
		return 0;
	return fault(f, EINVAL,
		"policy: packets %s the subscriber would take %u steps, and %u is the most; leave out %u of %s",
		direction == UP ? "from" : "for", count, session_steps_max, count - session_steps_max, fields);
}

int
session_steps_need(const Sluice__V1__Session *spec, const struct session_spec *parsed, struct session_parts *parts,
	struct fault *f)
{
	int error = 0;

	memset(parts->bytes, 0, parts_size);
	for (unsigned i = 0; i < step_count && error == 0; i++) {
		const struct session_step *s = steps[i];
		void *part = part_in(parts, s);

		error = s->need(spec, part, f);
		for (enum direction d = UP; d <= DOWN && error == 0 && parsed->frames && !s->frames; d++)
			if (s->field(part, d))
				error = fault(f, EINVAL,
					"policy.%s: a session of type Ethernet (%s) has none; leave one of the two "
					"out",
					s->field(part, d), parsed->frames);
	}
	// Up for each family, and down.
	if (error == 0 && !chain_room(3 * CHAIN_MAX))
		return fault(f, ENOSPC, "policy: there is no room for another order of steps");
	for (enum direction d = UP; d <= DOWN && error == 0; d++)
		error = check_room(parts, d, d == DOWN && parsed->key.access->out ? 2 : 1, f);
	return error;
}

uint32_t
session_steps_chain(
	const struct session_parts *parts, enum direction direction, const struct node *last, const struct node *behind)
{
	const struct node *nodes[STEPS_MAX + 2];
	unsigned count = 0;

	for (unsigned i = 0; i < step_count; i++)
		if (steps[i]->field(part_of(parts, steps[i]), direction))
			nodes[count++] = steps[i]->node[direction];
	nodes[count++] = last;
	if (behind)
		nodes[count++] = behind;
	return chain_of(nodes, count);
}

// ---- The parts of a session.

static inline uint8_t *
kept(uint32_t session)
{
	return all_parts + session * parts_size;
}

void
session_steps_had(uint32_t session, struct session_parts *had)
{
	memcpy(had->bytes, kept(session), parts_size);
}

void
session_steps_clear(uint32_t session)
{
	memset(kept(session), 0, parts_size);
}

int
session_steps_prepare(const struct session_step_change *change, const struct session_parts *had,
	struct session_parts *parts, struct fault *f)
{
	int error = 0;

	for (unsigned i = 0; i < step_count && error == 0; i++)
		if (steps[i]->prepare)
			error = steps[i]->prepare(change, part_of(had, steps[i]), part_in(parts, steps[i]), f);
	return error;
}

void
session_steps_abandon(const struct session_parts *had, struct session_parts *parts)
{
	for (unsigned i = 0; i < step_count; i++)
		if (steps[i]->abandon)
			steps[i]->abandon(part_of(had, steps[i]), part_in(parts, steps[i]));
}

unsigned
session_steps_flows(uint32_t session, struct session_flow flows[SESSION_FLOWS])
{
	unsigned count = 0;

	for (unsigned i = 0; i < step_count && count == 0; i++)
		if (steps[i]->flows)
			count = steps[i]->flows(session, flows);
	return count;
}

void
session_steps_publish(uint32_t session, const struct session_parts *parts)
{
	for (unsigned i = 0; i < step_count; i++)
		steps[i]->publish(session, part_of(parts, steps[i]));
}

static void
count_objects(const struct session_parts *parts, void (*count)(struct object *object))
{
	for (unsigned i = 0; i < step_count; i++) {
		struct object *const *objects = part_of(parts, steps[i]);

		for (unsigned k = 0; k < steps[i]->objects; k++)
			count(objects[k]);
	}
}

void
session_steps_keep(uint32_t session, const struct session_parts *parts)
{
	memcpy(kept(session), parts->bytes, parts_size);
	count_objects(parts, object_use);
}

void
session_steps_release(uint32_t session, const struct session_parts *had, bool deleted)
{
	struct session_parts now;

	session_steps_had(session, &now);
	for (unsigned i = 0; i < step_count; i++)
		if (steps[i]->release)
			steps[i]->release(session, part_of(had, steps[i]), part_of(&now, steps[i]), deleted);
	count_objects(had, object_unuse);
}
