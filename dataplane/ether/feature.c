// SPDX-License-Identifier: Apache-2.0
// Features of interfaces: their order, and which an interface has.
#include "ether/feature.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ether/interface.h"

// In a chain: the look-up behind those that came in; a neighbour's note and the rewrite behind those that leave.
enum { STEPS_MAX = CHAIN_MAX - 2 };

static struct ordered *registered;
static struct interface_feature *features[INTERFACE_FEATURES];
static unsigned feature_count;

void
interface_feature_register(struct interface_feature *feature)
{
	feature->order.next = registered;
	registered = &feature->order;
}

int
interface_features_start(void)
{
	struct ordered *list[INTERFACE_FEATURES];
	int count = order(registered, list, INTERFACE_FEATURES);

	if (count < 0) {
		fprintf(stderr, "interface features: %s\n",
			count == -ELOOP
				? "some are registered to come before each other"
				: "too many are registered; raise INTERFACE_FEATURES in dataplane/ether/feature.h");
		return count;
	}
	feature_count = (unsigned)count;
	for (unsigned i = 0; i < feature_count; i++)
		features[i] = (struct interface_feature *)list[i];
	return 0;
}

int
interface_features_need(const Sluice__V1__Interface *spec, interface_objects objects, struct fault *f)
{
	unsigned counts[INTERFACE_WAYS] = {0};

	memset(objects, 0, sizeof(interface_objects));
	for (unsigned i = 0; i < feature_count; i++) {
		int error = features[i]->need ? features[i]->need(spec, objects[i], f) : 0;

		if (error)
			return error;
		for (unsigned way = 0; way < INTERFACE_WAYS; way++)
			counts[way] += objects[i][way] != NULL || !features[i]->need;
	}
	if (!chain_room(INTERFACE_WAYS * 2 * CHAIN_MAX))
		return fault(f, ENOSPC, "there is no room for another order of the interface's features");
	for (unsigned way = 0; way < INTERFACE_WAYS; way++)
		if (counts[way] > STEPS_MAX)
			return fault(f, EINVAL, "packets that %s the interface would take %u steps, and %d is the most",
				way == INTERFACE_IN ? "come in by" : "leave by", counts[way], STEPS_MAX);
	return 0;
}

static bool
takes(const struct interface_feature *feature, uint32_t interface, const struct object *object, enum interface_way way)
{
	return feature->need ? object != NULL : feature->has(interface, way);
}

void
interface_features_publish(uint32_t interface, interface_objects objects)
{
	uint8_t has[INTERFACE_WAYS] = {0};

	for (unsigned i = 0; i < feature_count; i++) {
		if (features[i]->publish)
			features[i]->publish(interface, objects[i]);
		for (unsigned way = 0; way < INTERFACE_WAYS; way++)
			has[way] |= (uint8_t)(takes(features[i], interface, objects[i][way], way) << i);
	}
	memcpy(interface_at(interface)->features, has, sizeof(has));
}

unsigned
interface_steps(uint32_t interface, enum interface_way way, const struct node *steps[INTERFACE_FEATURES])
{
	unsigned has = interface_at(interface)->features[way], count = 0;

	for (unsigned i = 0; i < feature_count; i++)
		if (has & 1u << i)
			steps[count++] = features[i]->node[way];
	return count;
}
