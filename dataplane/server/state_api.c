// SPDX-License-Identifier: Apache-2.0
// State queries: the concepts that answer them, and memory for their answers.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/budget.h"
#include "server/contract.h"

struct piece {
	struct piece *next;
	_Alignas(16) uint8_t bytes[];
};

static struct state_query *queries;
// Of the query that is served.
static struct piece *pieces;

void
state_query_register(struct state_query *query)
{
	query->next = queries;
	queries = query;
}

void *
api_memory(struct api_call *call, size_t count, size_t size)
{
	struct piece *piece = calloc(1, sizeof(*piece) + count * size);

	if (!piece) {
		api_fail(call, ENOMEM, "there is no memory for the answer");
		return NULL;
	}
	piece->next = pieces;
	pieces = piece;
	return piece->bytes;
}

void *
api_rows(struct api_call *call, size_t count, size_t size, void *list)
{
	uint8_t *rows = api_memory(call, count, size + sizeof(void *));
	void **pointers = rows ? (void **)(rows + count * size) : NULL;

	for (size_t i = 0; pointers && i < count; i++)
		pointers[i] = rows + i * size;
	*(void **)list = pointers;
	return rows;
}

static void
serve_state(struct api_call *call, const Sluice__V1__Request *request)
{
	const Sluice__V1__StateQuery *asked = request->state;
	ProtobufCAllocator memory = budget_allocator(api_budget(call));
	const struct state_query *q = queries;
	ProtobufCMessage *query;
	struct piece *piece;
	struct fault f;

	while (q && strcmp(q->query->short_name, asked->type) != 0)
		q = q->next;
	if (!q) {
		api_fail(call, fault(&f, EOPNOTSUPP, "type: this data plane does not know \"%.64s\"", asked->type),
			f.text);
		return;
	}
	query = protobuf_c_message_unpack(q->query, &memory, asked->query.len, asked->query.data);
	if (!query && api_budget(call)->spent)
		api_fail(call, E2BIG, "query: it says too much at once; send it in parts");
	else if (!query)
		api_fail(call, fault(&f, EINVAL, "query: not a valid %s", q->query->short_name), f.text);
	else if (contract_check_text(query, &f))
		api_fail(call, EINVAL, f.text);
	else
		q->serve(call, query);
	while ((piece = pieces) != NULL) {
		pieces = piece->next;
		free(piece);
	}
	budget_free(api_budget(call), query);
}

API_OPERATION(state, SLUICE__V1__REQUEST__OPERATION_STATE, serve_state)
