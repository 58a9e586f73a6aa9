// SPDX-License-Identifier: Apache-2.0
// The API's counters of queues, groups and schedulers.
#include <errno.h>

#include "hqos/shaped.h"
#include "server/api.h"
#include "session/session.h"

// The queues of a session one way, by the order of its profile.
static void
fill(const struct object *session, enum direction direction, Sluice__V1__QueueCounters *rows,
	Sluice__V1__QueueCountersList *answer)
{
	const struct qos_binding binding = qos_bindings[direction][session_of(session)];
	const struct qos_profile *profile = qos_profile_at(binding.profile);
	const struct shaped *shaped = shaped_ports[binding.queue >> QUEUE_PORT_SHIFT];
	const uint32_t number = binding.queue & (HQOS_SUBSCRIBERS - 1);
	const struct hqos_subscriber *sub;
	bool settled;

	if (binding.queue == NO_QUEUE || !shaped)
		return;
	sub = &shaped->scheduler->subscribers[number];
	settled = shaped_has_settled(shaped, number);
	for (unsigned i = 0; i < profile->class_count; i++) {
		const unsigned class = profile->number_of[i];
		Sluice__V1__QueueCounters *c = &rows[answer->n_queues];

		sluice__v1__queue_counters__init(c);
		c->up = direction == UP;
		c->class_ = (char *)profile->names[i];
		if (settled) {
			c->sent_packets = hqos_sent(sub, class);
			c->dropped_packets = __atomic_load_n(&sub->queues[class].dropped, __ATOMIC_RELAXED);
			c->queued_packets = hqos_waiting(sub, class);
		}
		answer->queues[answer->n_queues++] = c;
	}
}

static void
serve_queue_counters(struct api_call *call, const void *asked)
{
	const Sluice__V1__QueueCountersQuery *query = asked;
	const struct object *session = object_find(&session_kind, query->session);
	Sluice__V1__QueueCountersList answer = SLUICE__V1__QUEUE_COUNTERS_LIST__INIT;
	Sluice__V1__QueueCounters rows[2 * HQOS_CLASSES], *list[2 * HQOS_CLASSES];
	struct fault f;

	if (!session) {
		api_fail(call, fault(&f, ENOENT, "session: there is no Session %s", query->session), f.text);
		return;
	}
	answer.queues = list;
	fill(session, DOWN, rows, &answer);
	fill(session, UP, rows, &answer);
	api_answer(call, &answer.base);
}

static void
fill_group(const struct qos_group *group, Sluice__V1__GroupCounters *c)
{
	const struct hqos_group_counters *now = &group->shaped->scheduler->groups[group->number].counters;

	c->sent_packets = now->sent_packets - group->before.sent_packets;
	c->sent_bytes = now->sent_bytes - group->before.sent_bytes;
	c->dropped_packets = now->dropped_packets - group->before.dropped_packets;
	c->dropped_bytes = now->dropped_bytes - group->before.dropped_bytes;
}

static void
serve_scheduler_counters(struct api_call *call, const void *asked)
{
	const Sluice__V1__SchedulerCountersQuery *query = asked;
	Sluice__V1__SchedulerCountersList answer = SLUICE__V1__SCHEDULER_COUNTERS_LIST__INIT;
	Sluice__V1__SchedulerCounters rows[PORT_MAX], *list[PORT_MAX];
	Sluice__V1__GroupCounters of_group = SLUICE__V1__GROUP_COUNTERS__INIT;
	const struct object *group = object_find(&qos_group_kind, query->group);
	struct fault f;

	if (!group && query->group[0] != '\0') {
		api_fail(call, fault(&f, ENOENT, "group: there is no QosGroup %s", query->group), f.text);
		return;
	}
	for (unsigned i = 0; i < PORT_MAX; i++) {
		Sluice__V1__SchedulerCounters *c = &rows[answer.n_schedulers];
		const struct hqos_scheduler *s;

		if (!shaped_ports[i])
			continue;
		s = shaped_ports[i]->scheduler;
		sluice__v1__scheduler_counters__init(c);
		c->scheduler = shaped_ports[i]->object->name;
		c->sent_packets = s->counters.sent_packets;
		c->sent_bytes = s->counters.sent_bytes;
		c->full_packets = s->counters.dropped[HQOS_TAIL_DROP];
		c->wred_packets = s->counters.dropped[HQOS_WRED];
		c->codel_packets = s->counters.dropped[HQOS_CODEL];
		c->flushed_packets = s->counters.flushed;
		c->port_full_packets = s->counters.dropped[HQOS_PORT_FULL];
		c->buffers_full_packets = s->counters.dropped[HQOS_BUFFERS_FULL];
		c->queued_packets = s->packets;
		list[answer.n_schedulers++] = c;
	}
	answer.schedulers = list;
	if (group) {
		fill_group(qos_group_of(group), &of_group);
		answer.group = &of_group;
	}
	api_answer(call, &answer.base);
}

STATE_QUERY(queue_counters_query, sluice__v1__queue_counters_query__descriptor, serve_queue_counters)
STATE_QUERY(scheduler_counters_query, sluice__v1__scheduler_counters_query__descriptor, serve_scheduler_counters)
