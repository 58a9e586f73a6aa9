// SPDX-License-Identifier: Apache-2.0
// The kinds QosScheduler, QosGroup and QosProfile.
#include <errno.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "acl/acl.h"
#include "core/rcu.h"
#include "hqos/hqos.h"
#include "hqos/profile.h"
#include "hqos/shaped.h"

struct qos_profile **qos_profiles;

static struct slab profile_numbers;
static struct qos_profile open_profile;

// ---- QosScheduler

static int
put_scheduler(struct object *object, const void *spec_, const void *old, struct fault *f)
{
	const Sluice__V1__QosScheduler *spec = spec_;
	struct shaped_rate rate;
	struct object *port;
	int error = qos_scheduler_parse(object->name, spec, rte_get_tsc_hz(), &rate.peak, &rate.overhead, f);

	if (error == 0)
		error = object_need(&port_kind, spec->port, "port", &port, f);
	if (error)
		return error;
	if (old && port_of(port) != shaped_of(object)->port)
		return fault(f, EINVAL, "QosScheduler %.63s, port: it cannot change; delete it and create it again",
			object->name);
	if (old)
		return shaped_change(shaped_of(object), &rate)
			       ? fault(f, ENOMEM, "QosScheduler %.63s: there is no memory for its rate", object->name)
			       : 0;
	if (shaped_ports[port_of(port)->id])
		return fault(f, EEXIST, "QosScheduler %.63s, port: %.63s has the scheduler %.63s already", object->name,
			port->name, shaped_ports[port_of(port)->id]->object->name);
	error = shaped_open(object, port_of(port), &rate, f);
	if (error == 0)
		object_use(port);
	return error;
}

static int
delete_scheduler(struct object *object, const void *spec, struct fault *f)
{
	object_unuse(shaped_of(object)->port->object);
	shaped_close(shaped_of(object));
	return 0;
}

// ---- QosGroup

static int
put_group(struct object *object, const void *spec_, const void *old, struct fault *f)
{
	const Sluice__V1__QosGroup *spec = spec_;
	struct hqos_group_profile parsed, *profile;
	struct qos_group *group = object->state;
	struct object *scheduler;
	int error = qos_group_parse(object->name, spec, rte_get_tsc_hz(), &parsed, f);

	if (error == 0)
		error = object_need(&qos_scheduler_kind, spec->scheduler, "scheduler", &scheduler, f);
	if (error)
		return error;
	if (old && shaped_of(scheduler) != group->shaped)
		return fault(f, EINVAL, "QosGroup %.63s, scheduler: it cannot change; delete it and create it again",
			object->name);
	profile = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(*profile), 64));
	if (!old)
		group = malloc(sizeof(*group));
	if (!profile || !group) {
		free(profile);
		if (!old)
			free(group);
		return fault(f, ENOMEM, "QosGroup %.63s: there is no memory for it", object->name);
	}
	*profile = parsed;
	if (!old) {
		*group = (struct qos_group){
			.shaped = shaped_of(scheduler), .number = slab_take(&shaped_of(scheduler)->groups)};
		if (group->number == UINT32_MAX) {
			free(profile);
			free(group);
			return fault(f, ENOSPC, "QosGroup %.63s: its scheduler has %d groups already", object->name,
				QOS_GROUPS - FIRST_GROUP);
		}
		group->before = group->shaped->scheduler->groups[group->number].counters;
		object->state = group;
		object_use(scheduler);
	}
	shaped_set_group(group->shaped, group->number, profile);
	return 0;
}

static int
delete_group(struct object *object, const void *spec, struct fault *f)
{
	struct qos_group *group = object->state;

	shaped_set_group(group->shaped, group->number, NULL);
	slab_give_later(&group->shaped->groups, group->number);
	object_unuse(group->shaped->object);
	free(group);
	return 0;
}

// ---- QosProfile

static void
use_acls(struct qos_profile *profile, bool use)
{
	for (unsigned i = 0; i < HQOS_CLASSES; i++)
		if (use)
			object_use(profile->acls[i]);
		else
			object_unuse(profile->acls[i]);
}

static int
need_acls(const Sluice__V1__QosProfile *spec, struct qos_profile *profile, struct fault *f)
{
	int error = 0;

	for (unsigned i = 0; i < spec->n_classes && error == 0; i++) {
		const Sluice__V1__QosMatch *match = spec->classes[i]->match;

		if (!match || !match->acl[0])
			continue;
		error = object_need(&acl_kind, match->acl, "classes.match.acl", &profile->acls[i], f);
		profile->acl[i] = acl_of(profile->acls[i]);
		profile->by_acl = true;
	}
	return error;
}

static int
put_profile(struct object *object, const void *spec, const void *old, struct fault *f)
{
	struct qos_profile *profile = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(*profile), 64)), *before;
	uint32_t number;
	int error;

	if (!profile)
		return fault(f, ENOMEM, "QosProfile %.63s: there is no memory for it", object->name);
	error = qos_profile_parse(object->name, spec, rte_get_tsc_hz(), profile, f);
	if (error == 0)
		error = need_acls(spec, profile, f);
	if (error) {
		free(profile);
		return error;
	}
	number = old ? qos_profile_of(object) : slab_take(&profile_numbers);
	if (number == UINT32_MAX) {
		free(profile);
		return fault(f, ENOSPC, "QosProfile %.63s: there are %d already", object->name, QOS_PROFILES - 1);
	}
	object->state = (void *)(uintptr_t)number;
	use_acls(profile, true);
	before = __atomic_exchange_n(&qos_profiles[number], profile, __ATOMIC_ACQ_REL);
	if (before && before != &open_profile) {
		use_acls(before, false);
		rcu_retire(free, before);
	}
	return 0;
}

// A user of the old profile gets the open one until its new profile is set.
static int
delete_profile(struct object *object, const void *spec, struct fault *f)
{
	uint32_t number = qos_profile_of(object);
	struct qos_profile *before = __atomic_exchange_n(&qos_profiles[number], &open_profile, __ATOMIC_ACQ_REL);

	use_acls(before, false);
	rcu_retire(free, before);
	slab_give_later(&profile_numbers, number);
	return 0;
}

static int
start(void)
{
	qos_profiles = slab_reserve(QOS_PROFILES * sizeof(qos_profiles[0]));
	if (!qos_profiles || slab_create(&profile_numbers, 1, QOS_PROFILES))
		return -ENOMEM;
	for (unsigned d = UP; d <= DOWN; d++) {
		qos_bindings[d] = slab_reserve(SESSION_LIMIT * sizeof(qos_bindings[d][0]));
		if (!qos_bindings[d])
			return -ENOMEM;
	}
	qos_profile_open(&open_profile);
	qos_profiles[slab_take(&profile_numbers)] = &open_profile;
	return 0;
}

struct kind qos_scheduler_kind = {
	.name = "QosScheduler",
	.spec = &sluice__v1__qos_scheduler__descriptor,
	.put = put_scheduler,
	.delete = delete_scheduler,
};
struct kind qos_group_kind = {
	.name = "QosGroup",
	.spec = &sluice__v1__qos_group__descriptor,
	.put = put_group,
	.delete = delete_group,
};
struct kind qos_profile_kind = {
	.name = "QosProfile",
	.spec = &sluice__v1__qos_profile__descriptor,
	.put = put_profile,
	.delete = delete_profile,
	.start = start,
};
KIND_REGISTER(qos_scheduler_kind)
KIND_REGISTER(qos_group_kind)
KIND_REGISTER(qos_profile_kind)
