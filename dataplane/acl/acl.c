// The kind Acl: parses a list, makes it ready aside, and puts it in the place of the one before with one store.
#include <errno.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "acl/table.h"
#include "core/rcu.h"

struct slab acl_slots;

static void
release_list(void *list)
{
	acl_list_destroy(list);
}

static int
make_list(const struct object *object, const Sluice__V1__Acl *spec, struct acl_list **list, struct fault *f)
{
	struct acl_rule *rules;
	int rc = 0;

	if (spec->otherwise != SLUICE__V1__ACL_ACTION__PERMIT && spec->otherwise != SLUICE__V1__ACL_ACTION__DENY)
		return fault(f, EINVAL, "acl %.63s, otherwise: %d is neither permit nor deny", object->name,
			(int)spec->otherwise);
	rules = calloc(spec->n_rules + 1, sizeof(*rules));
	if (!rules)
		return fault(f, ENOMEM, "acl %.63s, rules: there is no memory left for %zu rules", object->name,
			spec->n_rules);
	for (size_t i = 0; rc == 0 && i < spec->n_rules; i++)
		rc = acl_rule_parse(object->name, i + 1, spec->rules[i], &rules[i], f);
	if (rc == 0)
		rc = acl_list_create(
			object->name, rules, spec->n_rules, spec->otherwise == SLUICE__V1__ACL_ACTION__PERMIT, list, f);
	free(rules);
	return rc;
}

static int
put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	struct acl_list *list = NULL, *before;
	struct acl_slot *slot;
	uint32_t index;
	int rc = make_list(object, spec, &list, f);

	if (rc != 0)
		return rc;
	index = old ? acl_of(object) : slab_take(&acl_slots);
	if (index == UINT32_MAX) {
		acl_list_destroy(list);
		return fault(
			f, ENOSPC, "acl %.63s: there are %d access control lists already", object->name, ACL_LIMIT);
	}
	object->state = (void *)(uintptr_t)index;
	slot = slab_at(&acl_slots, index);
	before = atomic_exchange(&slot->list, list);
	if (before)
		rcu_retire(release_list, before);
	return 0;
}

static int delete (struct object *object, const void *spec, struct fault *f)
{
	struct acl_slot *slot = slab_at(&acl_slots, acl_of(object));
	struct acl_list *list = atomic_exchange(&slot->list, NULL);

	rcu_retire(release_list, list);
	slab_give_later(&acl_slots, acl_of(object));
	return 0;
}

static int
start(void)
{
	return slab_create(&acl_slots, sizeof(struct acl_slot), ACL_LIMIT);
}

struct kind acl_kind = {
	.name = "Acl",
	.spec = &sluice__v1__acl__descriptor,
	.put = put,
	.delete = delete,
	.start = start,
};
KIND_REGISTER(acl_kind)
