// SPDX-License-Identifier: Apache-2.0
// The API's list of paths.
#include <arpa/inet.h>
#include <stdio.h>

#include "fib/vrf.h"
#include "gtpu.pb-c.h"
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
serve_gtpu_paths(struct api_call *call, const void *asked)
{
	const Sluice__V1__GtpuPathsQuery *query = asked;
	uint32_t limit = api_limit(query->limit), path;
	Sluice__V1__GtpuPaths answer = SLUICE__V1__GTPU_PATHS__INIT;
	struct row *rows;
	uint64_t cursor;
	char next[24];

	if (!api_page(call, query->page, PATHS_LIMIT, &cursor))
		return;
	rows = api_rows(call, limit, sizeof(*rows), &answer.paths);
	if (!rows)
		return;
	for (path = (uint32_t)cursor; answer.n_paths < limit && gtpu_path_next(&path); path++)
		fill(&rows[answer.n_paths++], gtpu_path_at(path));
	snprintf(next, sizeof(next), "%u", path);
	if (answer.n_paths == limit)
		answer.next_page = next;
	api_answer(call, &answer.base);
}

STATE_QUERY(gtpu_paths_query, sluice__v1__gtpu_paths_query__descriptor, serve_gtpu_paths)
