// SPDX-License-Identifier: Apache-2.0
// The API's list of neighbours and their states.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "neighbor/neighbor.h"
#include "server/api.h"

struct page {
	Sluice__V1__NeighborStates answer;
	Sluice__V1__NeighborState *rows;
	char (*texts)[3][64];
};

static void
add(const char *interface, const char *address, const char *mac, const char *state, void *argument)
{
	struct page *p = argument;
	size_t n = p->answer.n_neighbors++;
	Sluice__V1__NeighborState *row = &p->rows[n];

	sluice__v1__neighbor_state__init(row);
	strncpy(p->texts[n][0], address, 63);
	strncpy(p->texts[n][1], mac, 63);
	strncpy(p->texts[n][2], state, 63);
	row->interface = (char *)interface;
	row->address = p->texts[n][0];
	row->mac = p->texts[n][1];
	row->state = p->texts[n][2];
	p->answer.neighbors[n] = row;
}

static void
serve_neighbor_states(struct api_call *call, const Sluice__V1__Request *request)
{
	uint32_t limit = api_limit(request->neighbor_states->limit);
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	struct page p = {.answer = SLUICE__V1__NEIGHBOR_STATES__INIT};
	char next[64] = "";

	p.rows = calloc(limit, sizeof(p.rows[0]));
	p.texts = calloc(limit, sizeof(p.texts[0]));
	p.answer.neighbors = calloc(limit, sizeof(p.answer.neighbors[0]));
	if (!p.rows || !p.texts || !p.answer.neighbors) {
		api_fail(call, ENOMEM, "there is no memory for the answer");
	} else if (neighbor_page(request->neighbor_states->page, limit, add, &p, next, sizeof(next)) < 0) {
		api_fail(call, EINVAL, "page: only what next_page said is accepted");
	} else {
		p.answer.next_page = next;
		reply.neighbor_states = &p.answer;
		reply.answer_case = SLUICE__V1__REPLY__ANSWER_NEIGHBOR_STATES;
		api_reply(call, &reply, true);
	}
	free(p.rows);
	free(p.texts);
	free(p.answer.neighbors);
}

API_OPERATION(neighbor_states_operation, SLUICE__V1__REQUEST__OPERATION_NEIGHBOR_STATES, serve_neighbor_states)
