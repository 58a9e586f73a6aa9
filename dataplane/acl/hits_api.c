// SPDX-License-Identifier: Apache-2.0
// The API's hits of each rule of a list.
#include <errno.h>

#include "acl/acl.h"
#include "acl/table.h"
#include "server/api.h"

static void
serve_acl_hits(struct api_call *call, const void *asked)
{
	const Sluice__V1__AclHitsQuery *query = asked;
	Sluice__V1__AclHits answer = SLUICE__V1__ACL_HITS__INIT;
	const struct acl_list *list;
	struct object *object;
	struct fault f;

	if (query->acl[0] == '\0') {
		api_fail(call, EINVAL, "acl: say which");
		return;
	}
	if (object_need(&acl_kind, query->acl, "acl", &object, &f)) {
		api_fail(call, ENOENT, f.text);
		return;
	}
	list = acl_list_at(acl_of(object));
	answer.uncounted = !list || !list->hits;
	if (!answer.uncounted) {
		answer.rules = api_memory(call, list->rule_count + 1, sizeof(answer.rules[0]));
		if (!answer.rules)
			return;
		answer.n_rules = list->rule_count;
		for (uint32_t i = 0; i < list->rule_count; i++)
			answer.rules[i] = acl_list_hits(list, i + 1);
		answer.otherwise = acl_list_hits(list, 0);
	}
	api_answer(call, &answer.base);
}

STATE_QUERY(acl_hits_query, sluice__v1__acl_hits_query__descriptor, serve_acl_hits)
