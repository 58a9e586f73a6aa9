// SPDX-License-Identifier: Apache-2.0
// The API's hits of each rule of a list.
#include <errno.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "acl/table.h"
#include "server/api.h"

static void
serve_acl_hits(struct api_call *call, const Sluice__V1__Request *request)
{
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	Sluice__V1__AclHits answer = SLUICE__V1__ACL_HITS__INIT;
	const struct acl_list *list;
	struct object *object;
	struct fault f;

	if (request->acl_hits->acl[0] == '\0') {
		api_fail(call, EINVAL, "acl: say which");
		return;
	}
	if (object_need(&acl_kind, request->acl_hits->acl, "acl", &object, &f)) {
		api_fail(call, ENOENT, f.text);
		return;
	}
	list = acl_list_at(acl_of(object));
	answer.uncounted = !list || !list->hits;
	if (!answer.uncounted) {
		answer.rules = calloc(list->rule_count + 1, sizeof(answer.rules[0]));
		if (!answer.rules) {
			api_fail(call, ENOMEM, "there is no memory for the answer");
			return;
		}
		answer.n_rules = list->rule_count;
		for (uint32_t i = 0; i < list->rule_count; i++)
			answer.rules[i] = acl_list_hits(list, i + 1);
		answer.otherwise = acl_list_hits(list, 0);
	}
	reply.acl_hits = &answer;
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_ACL_HITS;
	api_reply(call, &reply, true);
	free(answer.rules);
}

API_OPERATION(acl_hits_operation, SLUICE__V1__REQUEST__OPERATION_ACL_HITS, serve_acl_hits)
