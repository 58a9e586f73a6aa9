// SPDX-License-Identifier: Apache-2.0
// The API's list of paths.
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "fib/vrf.h"
#include "gtpu/path.h"
#include "server/api.h"

struct row {
	Sluice__V1__GtpuPath path;
	char local[INET6_ADDRSTRLEN], remote[INET6_ADDRSTRLEN];
};

static void
fill(struct row *row, const struct gtpu_path *p)
{
	int family = p->ends.family == 4 ? AF_INET : AF_INET6;

	sluice__v1__gtpu_path__init(&row->path);
	row->path.vrf = (char *)vrf_name(p->vrf);
	row->path.local_address = (char *)inet_ntop(family, p->ends.local, row->local, sizeof(row->local));
	row->path.remote_address = (char *)inet_ntop(family, p->ends.remote, row->remote, sizeof(row->remote));
	row->path.state = (char *)gtpu_path_state(p);
	row->path.changed = p->changed;
	row->path.tunnels = p->tunnels;
	row->path.requests = p->requests;
	row->path.responses = p->responses;
	row->path.failures = p->failures;
	row->path.restarts = p->restarts;
}

// A page's token is the number of the path that it begins with.
static void
serve_gtpu_paths(struct api_call *call, const Sluice__V1__Request *request)
{
	uint32_t limit = api_limit(request->gtpu_paths->limit), path;
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	Sluice__V1__GtpuPaths answer = SLUICE__V1__GTPU_PATHS__INIT;
	struct row *rows = calloc(limit, sizeof(*rows));
	uint64_t cursor;
	char next[24];

	answer.paths = calloc(limit, sizeof(answer.paths[0]));
	if (!rows || !answer.paths) {
		api_fail(call, ENOMEM, "there is no memory for the answer");
	} else if (api_page(request->gtpu_paths->page, &cursor) || cursor > PATHS_LIMIT) {
		api_fail(call, EINVAL, "page: only what next_page said is accepted");
	} else {
		for (path = (uint32_t)cursor; answer.n_paths < limit && gtpu_path_next(&path); path++) {
			fill(&rows[answer.n_paths], gtpu_path_at(path));
			answer.paths[answer.n_paths] = &rows[answer.n_paths].path;
			answer.n_paths++;
		}
		snprintf(next, sizeof(next), "%u", path);
		if (answer.n_paths == limit)
			answer.next_page = next;
		reply.gtpu_paths = &answer;
		reply.answer_case = SLUICE__V1__REPLY__ANSWER_GTPU_PATHS;
		api_reply(call, &reply, true);
	}
	free(rows);
	free(answer.paths);
}

API_OPERATION(gtpu_paths_operation, SLUICE__V1__REQUEST__OPERATION_GTPU_PATHS, serve_gtpu_paths)
