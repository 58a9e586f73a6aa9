// SPDX-License-Identifier: Apache-2.0
// The scheduler, slow and obvious.
#include "hqos/model.h"

#include <stddef.h>

static void
start(struct model_node *node)
{
	node->peak_tokens = node->committed_tokens = node->rates.burst;
}

void
model_start(struct model *m)
{
	start(&m->port);
	for (unsigned g = 0; g < m->group_count; g++)
		start(&m->groups[g]);
	for (unsigned i = 0; i < m->subscriber_count; i++) {
		start(&m->subscribers[i].node);
		for (unsigned c = 0; c < MODEL_CLASSES; c++)
			start(&m->subscribers[i].classes[c].node);
	}
}

static void
fill(struct model_node *node, double seconds)
{
	node->peak_tokens += node->rates.peak / 8 * seconds;
	node->committed_tokens += node->rates.committed / 8 * seconds;
	if (node->peak_tokens > node->rates.burst)
		node->peak_tokens = node->rates.burst;
	if (node->committed_tokens > node->rates.burst)
		node->committed_tokens = node->rates.burst;
}

void
model_advance(struct model *m, double seconds)
{
	m->now += seconds;
	fill(&m->port, seconds);
	for (unsigned g = 0; g < m->group_count; g++)
		fill(&m->groups[g], seconds);
	for (unsigned i = 0; i < m->subscriber_count; i++) {
		fill(&m->subscribers[i].node, seconds);
		for (unsigned c = 0; c < MODEL_CLASSES; c++)
			fill(&m->subscribers[i].classes[c].node, seconds);
	}
}

bool
model_enqueue(struct model *m, unsigned subscriber, unsigned class, unsigned bytes)
{
	struct model_class *queue = &m->subscribers[subscriber].classes[class];

	if (queue->count == MODEL_QUEUE)
		return false;
	queue->bytes[(queue->head + queue->count++) % MODEL_QUEUE] = bytes;
	return true;
}

static bool
may(const struct model_node *node)
{
	return node->rates.peak == 0 || node->peak_tokens >= 0;
}

static bool
green(const struct model_node *node)
{
	return node->rates.committed > 0 && node->committed_tokens >= 0;
}

static void
pay(struct model_node *node, unsigned bytes)
{
	node->peak_tokens -= bytes;
	if (green(node)) {
		node->committed_tokens -= bytes;
		node->green_service += (double)bytes / node->rates.weight;
	} else {
		node->service += (double)bytes / node->rates.weight;
	}
}

static bool
before(const struct model_node *a, const struct model_node *b)
{
	if (green(a) != green(b))
		return green(a);
	return green(a) ? a->green_service < b->green_service : a->service < b->service;
}

// The class that a subscriber would send from, or NULL.
static struct model_class *
class_of(struct model_subscriber *sub)
{
	struct model_class *best = NULL;

	if (!may(&sub->node))
		return NULL;
	for (unsigned c = 0; c < MODEL_CLASSES; c++) {
		struct model_class *class = &sub->classes[c];

		if (class->count == 0 || !may(&class->node))
			continue;
		if (!best || green(&class->node) > green(&best->node) ||
			(green(&class->node) == green(&best->node) &&
				(class->priority < best->priority ||
					(class->priority == best->priority && before(&class->node, &best->node)))))
			best = class;
	}
	return best;
}

unsigned
model_dequeue(struct model *m, unsigned *subscriber, unsigned *class)
{
	struct model_subscriber *best = NULL;
	struct model_class *from;
	unsigned bytes;

	if (!may(&m->port))
		return 0;
	for (unsigned i = 0; i < m->subscriber_count; i++) {
		struct model_subscriber *sub = &m->subscribers[i];
		struct model_node *group = &m->groups[sub->group];

		if (!may(group) || !class_of(sub))
			continue;
		if (!best || (sub->group != best->group ? before(group, &m->groups[best->group])
							: before(&sub->node, &best->node)))
			best = sub;
	}
	if (!best)
		return 0;
	from = class_of(best);
	bytes = from->bytes[from->head];
	from->head = (from->head + 1) % MODEL_QUEUE;
	from->count--;
	pay(&from->node, bytes);
	pay(&best->node, bytes);
	pay(&m->groups[best->group], bytes);
	pay(&m->port, bytes);
	best->sent += bytes;
	from->sent += bytes;
	*subscriber = (unsigned)(best - m->subscribers);
	*class = (unsigned)(from - best->classes);
	return bytes;
}
