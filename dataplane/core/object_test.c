// The store of objects with a kind that only remembers.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/object_list.h"
#include "core/start.h"
#include "ip.pb-c.h"

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
a_refused_change_leaves_what_was_there(void **state)
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
what_others_use_cannot_be_deleted(void **state)
{
	struct fault f;
	struct object *object = object_find(&note_kind, "a");

	object_use(object);
	assert_int_equal(object_delete("Note", "a", &f), -EBUSY);
	object_unuse(object);
	assert_int_equal(object_delete("Note", "a", &f), 0);
	assert_null(object_find(&note_kind, "a"));
	// What is not there any more is deleted.
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

static int
set_up(void **state)
{
	kind_register(&note_kind);
	return object_registry_start();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_object_is_kept_byte_for_byte),
		cmocka_unit_test(the_same_spec_again_changes_nothing),
		cmocka_unit_test(a_refused_change_leaves_what_was_there),
		cmocka_unit_test(what_others_use_cannot_be_deleted),
		cmocka_unit_test(bad_names_kinds_and_specs_are_refused),
		cmocka_unit_test(a_spec_without_bytes_is_a_spec),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
