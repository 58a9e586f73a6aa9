// SPDX-License-Identifier: Apache-2.0
// The store of objects with a kind that only remembers.
#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/loop.h"
#include "ip.pb-c.h"
#include "server/builder.h"
#include "server/object_build.h"
#include "server/object_list.h"

static int refuse; // errno with which the next put or delete is refused
static unsigned creations, changes, deletes;

static int
note_put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	if (refuse)
		return fault(f, refuse, "description: refused");
	creations += old == NULL;
	changes += old != NULL;
	return 0;
}

static int
note_delete(struct object *object, const void *spec, struct fault *f)
{
	if (refuse)
		return fault(f, refuse, "refused");
	deletes++;
	return 0;
}

static struct kind note_kind = {
	.name = "Note", .spec = &sluice__v1__vrf__descriptor, .put = note_put, .delete = note_delete};

static int
put(const char *name, const char *text, struct fault *f)
{
	Sluice__V1__Vrf spec = SLUICE__V1__VRF__INIT;
	uint8_t bytes[128];

	spec.description = (char *)text;
	return object_put("Note", name, bytes, sluice__v1__vrf__pack(&spec, bytes), f);
}

static void
an_object_is_kept_byte_for_byte(void **state)
{
	struct fault f;
	struct object *object;

	assert_int_equal(put("a", "one", &f), 0);
	object = object_find(&note_kind, "a");
	assert_non_null(object);
	assert_int_equal(object->spec_length, 5);
	assert_memory_equal(object->spec, "\012\003one", 5);
	assert_int_equal(creations, 1);
}

static void
the_same_spec_again_changes_nothing(void **state)
{
	struct fault f;
	unsigned before = changes;

	assert_int_equal(put("a", "one", &f), 0);
	assert_int_equal(changes, before);
	assert_int_equal(put("a", "two", &f), 0);
	assert_int_equal(changes, before + 1);
}

static void
a_refused_change_leaves_the_object_as_it_was(void **state)
{
	struct fault f;

	refuse = EINVAL;
	assert_int_equal(put("a", "three", &f), -EINVAL);
	assert_string_equal(f.text, "description: refused");
	assert_memory_equal(object_find(&note_kind, "a")->spec, "\012\003two", 5);
	assert_int_equal(put("new", "x", &f), -EINVAL);
	assert_null(object_find(&note_kind, "new"));
	assert_int_equal(object_delete("Note", "a", &f), -EINVAL);
	refuse = 0;
	assert_non_null(object_find(&note_kind, "a"));
}

static void
an_object_in_use_cannot_be_deleted(void **state)
{
	struct fault f;
	struct object *object = object_find(&note_kind, "a");

	object_use(object);
	assert_int_equal(object_delete("Note", "a", &f), -EBUSY);
	object_unuse(object);
	assert_int_equal(object_delete("Note", "a", &f), 0);
	assert_null(object_find(&note_kind, "a"));
	// A missing object counts as deleted.
	assert_int_equal(object_delete("Note", "a", &f), 0);
}

static void
bad_names_kinds_and_specs_are_refused(void **state)
{
	struct fault f;
	char long_name[300];

	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	assert_int_equal(put("", "x", &f), -EINVAL);
	assert_int_equal(put("with space", "x", &f), -EINVAL);
	assert_int_equal(put(long_name, "x", &f), -EINVAL);
	assert_int_equal(object_put("Nonsense", "a", NULL, 0, &f), -EINVAL);
	assert_int_equal(object_put("Note", "a", (const uint8_t *)"\012\377", 2, &f), -EINVAL);
}

static void
a_spec_without_bytes_is_a_spec(void **state)
{
	struct fault f;

	assert_int_equal(object_put("Note", "empty", NULL, 0, &f), 0);
	assert_int_equal(object_put("Note", "empty", NULL, 0, &f), 0);
	assert_int_equal(object_find(&note_kind, "empty")->spec_length, 0);
	assert_int_equal(object_delete("Note", "empty", &f), 0);
}

// A kind whose specs take as long as the test sets.
static sem_t builders;

static int
house_prepare(const char *name, const void *spec, const atomic_bool *unwanted, void **prepared, struct fault *f)
{
	const Sluice__V1__Vrf *vrf = spec;

	sem_wait(&builders);
	if (vrf->description[0] == '!')
		return fault(f, ENOMEM, "%s cannot be built", name);
	*prepared = strdup(vrf->description);
	return 0;
}

static int
house_put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	free(object->state);
	object->state = object->prepared;
	object->prepared = NULL;
	return 0;
}

static void
house_discard(void *prepared)
{
	free(prepared);
}

static int
house_delete(struct object *object, const void *spec, struct fault *f)
{
	free(object->state);
	return 0;
}

static struct kind house_kind = {.name = "House",
	.spec = &sluice__v1__vrf__descriptor,
	.prepare = house_prepare,
	.discard = house_discard,
	.put = house_put,
	.delete = house_delete};

struct outcome {
	bool known;
	int error;
	struct fault f;
};

static void
house_done(void *argument, int error, const struct fault *f)
{
	*(struct outcome *)argument = (struct outcome){true, error, *f};
}

static struct object_build *
build(const char *name, const char *text, struct outcome *outcome)
{
	Sluice__V1__Vrf spec = SLUICE__V1__VRF__INIT;
	ProtobufCBinaryData packed = {.data = malloc(64)};
	struct object_build *b;
	struct fault f;

	*outcome = (struct outcome){0};
	spec.description = (char *)text;
	packed.len = sluice__v1__vrf__pack(&spec, packed.data);
	assert_int_equal(object_put_or_build("House", name, &packed, house_done, outcome, &b, &f), 0);
	free(packed.data);
	return b;
}

static const char *
house(const char *name)
{
	const struct object *object = object_find(&house_kind, name);

	return object ? object->state : NULL;
}

static void
slow_objects_are_built_aside_one_after_the_other(void **state)
{
	struct outcome first, second;

	assert_non_null(build("one", "wood", &first));
	assert_non_null(build("one", "stone", &second));
	loop_once(0);
	assert_false(first.known);
	assert_null(object_find(&house_kind, "one"));
	sem_post(&builders);
	while (!first.known)
		loop_once(1);
	assert_int_equal(first.error, 0);
	assert_string_equal(house("one"), "wood");
	assert_false(second.known);
	sem_post(&builders);
	while (!second.known)
		loop_once(1);
	assert_string_equal(house("one"), "stone");
}

static void
the_old_object_holds_until_the_new_is_complete_and_if_it_fails(void **state)
{
	struct outcome outcome;

	assert_non_null(build("one", "!", &outcome));
	loop_once(0);
	assert_string_equal(house("one"), "stone");
	sem_post(&builders);
	while (!outcome.known)
		loop_once(1);
	assert_int_equal(outcome.error, -ENOMEM);
	assert_string_equal(outcome.f.text, "one cannot be built");
	assert_string_equal(house("one"), "stone");
}

static void
an_abandoned_build_is_not_put(void **state)
{
	struct outcome outcome, last;

	// It may not have begun, and then takes none of the builders' permits.
	object_build_abandon(build("one", "straw", &outcome));
	sem_post(&builders);
	assert_non_null(build("two", "brick", &last));
	sem_post(&builders);
	while (!last.known)
		loop_once(1);
	assert_false(outcome.known);
	assert_string_equal(house("one"), "stone");
	assert_string_equal(house("two"), "brick");
	while (sem_trywait(&builders) == 0)
		;
}

static void
a_build_abandoned_before_its_start_never_starts(void **state)
{
	struct outcome first, second, third;
	struct object_build *straw;

	assert_non_null(build("one", "oak", &first));
	straw = build("one", "straw", &second);
	assert_non_null(straw);
	object_build_abandon(straw);
	assert_non_null(build("two", "slate", &third));
	// One for each that is left.
	sem_post(&builders);
	sem_post(&builders);
	while (!first.known || !third.known)
		loop_once(1);
	assert_false(second.known);
	assert_string_equal(house("one"), "oak");
	assert_string_equal(house("two"), "slate");
}

static void
a_build_concerns_its_object_and_those_that_may_name_it(void **state)
{
	struct outcome outcome;
	struct object_build *b = build("one", "elm", &outcome);

	assert_non_null(b);
	assert_true(object_build_concerns(b, "House", "one", NULL, 0));
	assert_false(object_build_concerns(b, "House", "two", NULL, 0));
	// The built object itself has no references.
	assert_false(object_build_concerns(b, "House", "two", (const uint8_t *)"\012\003one", 5));
	assert_false(object_build_concerns(b, "Note", "one", NULL, 0));
	assert_false(object_build_concerns(b, "Note", "a", (const uint8_t *)"\012\003two", 5));
	assert_true(object_build_concerns(b, "Note", "a", (const uint8_t *)"\012\003one", 5));
	// A longer name in which it is.
	assert_false(object_build_concerns(b, "Note", "a", (const uint8_t *)"\012\005stone", 7));
	sem_post(&builders);
	while (!outcome.known)
		loop_once(1);
}

static void
an_object_deleted_during_its_build_is_made_anew(void **state)
{
	struct outcome outcome;
	struct fault f;

	assert_non_null(build("two", "glass", &outcome));
	assert_int_equal(object_delete("House", "two", &f), 0);
	sem_post(&builders);
	while (!outcome.known)
		loop_once(1);
	assert_string_equal(house("two"), "glass");
	assert_int_equal(object_delete("House", "one", &f), 0);
	assert_int_equal(object_delete("House", "two", &f), 0);
}

static int
tear_down(void **state)
{
	builder_stop();
	return 0;
}

static int
set_up(void **state)
{
	sem_init(&builders, 0, 0);
	kind_register(&note_kind);
	kind_register(&house_kind);
	return object_registry_start();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_object_is_kept_byte_for_byte),
		cmocka_unit_test(the_same_spec_again_changes_nothing),
		cmocka_unit_test(a_refused_change_leaves_the_object_as_it_was),
		cmocka_unit_test(an_object_in_use_cannot_be_deleted),
		cmocka_unit_test(bad_names_kinds_and_specs_are_refused),
		cmocka_unit_test(a_spec_without_bytes_is_a_spec),
		cmocka_unit_test(slow_objects_are_built_aside_one_after_the_other),
		cmocka_unit_test(the_old_object_holds_until_the_new_is_complete_and_if_it_fails),
		cmocka_unit_test(an_abandoned_build_is_not_put),
		cmocka_unit_test(a_build_abandoned_before_its_start_never_starts),
		cmocka_unit_test(a_build_concerns_its_object_and_those_that_may_name_it),
		cmocka_unit_test(an_object_deleted_during_its_build_is_made_anew),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
