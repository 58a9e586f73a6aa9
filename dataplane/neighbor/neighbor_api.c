// SPDX-License-Identifier: Apache-2.0
// The API's list of neighbours and their states.
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "ip.pb-c.h"
#include "neighbor/neighbor.h"
#include "port/mac.h"
#include "server/api.h"

struct row {
	Sluice__V1__NeighborState state;
	char address[INET6_ADDRSTRLEN], mac[MAC_TEXT_SIZE];
};

struct page {
	Sluice__V1__NeighborStates answer;
	struct row *rows;
};

static void
add(const char *interface, const char *address, const char *mac, const char *state, void *argument)
{
	struct page *p = argument;
	struct row *row = &p->rows[p->answer.n_neighbors++];

	sluice__v1__neighbor_state__init(&row->state);
	strncpy(row->address, address, sizeof(row->address) - 1);
	strncpy(row->mac, mac, sizeof(row->mac) - 1);
	row->state.interface = (char *)interface;
	row->state.address = row->address;
	row->state.mac = row->mac;
	row->state.state = (char *)state;
}

static void
serve_neighbor_states(struct api_call *call, const void *asked)
{
	const Sluice__V1__NeighborStatesQuery *query = asked;
	uint32_t limit = api_limit(query->limit);
	struct page p = {.answer = SLUICE__V1__NEIGHBOR_STATES__INIT};
	uint64_t cursor;
	char next[24];

	if (!api_page(call, query->page, UINT64_MAX, &cursor))
		return;
	p.rows = api_rows(call, limit, sizeof(p.rows[0]), &p.answer.neighbors);
	if (!p.rows)
		return;
	cursor = neighbor_page(cursor, limit, add, &p);
	snprintf(next, sizeof(next), "%lu", cursor);
	if (cursor > 0)
		p.answer.next_page = next;
	api_answer(call, &p.answer.base);
}

STATE_QUERY(neighbor_states_query, sluice__v1__neighbor_states_query__descriptor, serve_neighbor_states)
