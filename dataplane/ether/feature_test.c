// SPDX-License-Identifier: Apache-2.0
// The order of features, beside those of all concepts.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ether/feature.h"
#include "ether/interface.h"

static struct fault f;
static struct object object; // stands in for any object of a spec
static const char *const after_second[] = {"b-second", "not-registered", NULL};
static const char *const after_first[] = {"c-first", NULL};
static unsigned published;

// Of a spec with a VRF: incoming packets take the step; with an MTU, outgoing ones.
static int
need(const Sluice__V1__Interface *spec, struct object *objects[INTERFACE_WAYS], struct fault *fault)
{
	objects[INTERFACE_IN] = spec->vrf[0] ? &object : NULL;
	objects[INTERFACE_OUT] = spec->mtu ? &object : NULL;
	return 0;
}

static void
publish(uint32_t interface, struct object *const objects[INTERFACE_WAYS])
{
	published++;
}

static struct node nodes[3] = {{.id = 101}, {.id = 102}, {.id = 103}};
// By name they would be the other way about.
static struct interface_feature features[] = {
	{.order = {.name = "c-first"}, .node = {&nodes[0], &nodes[0]}, .need = need, .publish = publish},
	{.order = {.name = "b-second", .after = after_first},
		.node = {&nodes[1], &nodes[1]},
		.need = need,
		.publish = publish},
	{.order = {.name = "a-third", .after = after_second},
		.node = {&nodes[2], &nodes[2]},
		.need = need,
		.publish = publish},
};

static void
packets_go_through_features_in_the_order_that_they_are_registered_with(void **state)
{
	Sluice__V1__Interface spec = SLUICE__V1__INTERFACE__INIT;
	const struct node *steps[INTERFACE_FEATURES];
	interface_objects objects;
	uint32_t index;

	assert_int_equal(slab_create(&interfaces, sizeof(struct interface), 16), 0);
	index = slab_take(&interfaces);
	interface_feature_register(&features[2]);
	interface_feature_register(&features[0]);
	interface_feature_register(&features[1]);
	assert_int_equal(interface_features_start(), 0);
	assert_int_equal(interface_features_need(&spec, objects, &f), 0);
	interface_features_publish(index, objects);
	assert_int_equal(published, 3);
	assert_int_equal(interface_steps(index, INTERFACE_IN, steps), 0);
	spec.vrf = "red";
	assert_int_equal(interface_features_need(&spec, objects, &f), 0);
	interface_features_publish(index, objects);
	assert_int_equal(interface_steps(index, INTERFACE_OUT, steps), 0);
	assert_int_equal(interface_steps(index, INTERFACE_IN, steps), 3);
	for (unsigned i = 0; i < 3; i++)
		assert_ptr_equal(steps[i], &nodes[i]);
	slab_destroy(&interfaces);
}

static void
features_that_come_before_each_other_are_refused_at_start(void **state)
{
	static const char *const after[] = {"a-third", NULL};

	features[0].order.after = after;
	assert_int_equal(interface_features_start(), -ELOOP);
	features[0].order.after = NULL;
	assert_int_equal(interface_features_start(), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_go_through_features_in_the_order_that_they_are_registered_with),
		cmocka_unit_test(features_that_come_before_each_other_are_refused_at_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
