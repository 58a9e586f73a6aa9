// SPDX-License-Identifier: Apache-2.0
// The kind Acl: parses a list and makes it ready beside the main thread, and then puts it in the place of the one before with one
// store.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "acl/table.h"
#include "core/rcu.h"

struct slab acl_slots;

static int
prepare(const char *name, const void *spec, const atomic_bool *unwanted, void **prepared, struct fault *f)
{
	const Sluice__V1__Acl *acl = spec;
	struct acl_list *list = NULL;
	struct acl_rule *rules;
	char whose[80];
	int rc = 0;

	rules = calloc(acl->n_rules + 1, sizeof(*rules));
	if (!rules)
		return fault(f, ENOMEM, "acl %.63s, rules: there is no memory left for %zu rules", name, acl->n_rules);
	for (size_t i = 0; rc == 0 && i < acl->n_rules && !(unwanted && atomic_load(unwanted)); i++)
		rc = acl_rule_parse(name, i + 1, acl->rules[i], &rules[i], f);
	if (rc == 0 && unwanted && atomic_load(unwanted))
		rc = fault(f, ECANCELED, "acl %.63s, rules: the change was cancelled", name);
	snprintf(whose, sizeof(whose), "acl %.63s", name);
	if (rc == 0)
		rc = (acl->count_hits ? acl_list_create_counted : acl_list_create)(whose, rules, acl->n_rules,
			acl->otherwise == SLUICE__V1__ACL_ACTION__PERMIT, unwanted, &list, f);
	free(rules);
	*prepared = list;
	return rc;
}

static void
discard(void *prepared)
{
	acl_list_destroy(prepared);
}

static int
put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	struct acl_list *before;
	struct acl_slot *slot;
	uint32_t index = object->state ? acl_of(object) : slab_take(&acl_slots);

	if (index == NO_ACL)
		return fault(
			f, ENOSPC, "acl %.63s: there are %d access control lists already", object->name, ACL_LIMIT);
	object->state = (void *)((uintptr_t)index + 1);
	slot = slab_at(&acl_slots, index);
	before = atomic_exchange(&slot->list, (struct acl_list *)object->prepared);
	object->prepared = NULL;
	if (before)
		rcu_retire(discard, before);
	return 0;
}

static int delete (struct object *object, const void *spec, struct fault *f)
{
	struct acl_slot *slot = slab_at(&acl_slots, acl_of(object));
	struct acl_list *list = atomic_exchange(&slot->list, NULL);

	rcu_retire(discard, list);
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
	.prepare = prepare,
	.discard = discard,
	.put = put,
	.delete = delete,
	.start = start,
};
KIND_REGISTER(acl_kind)
