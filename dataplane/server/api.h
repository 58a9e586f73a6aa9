// SPDX-License-Identifier: Apache-2.0
// The API server's side that concepts see: they answer the operations that are about their things.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dataplane.pb-c.h"
#include "server/object.h"

struct api_call;
struct api_client;
struct budget;

struct api_operation {
	Sluice__V1__Request__OperationCase which;
	// Answers with api_reply(), once, or keeps the call (api_keep) and answers again later. The request is
	// valid during the call only, unless it is kept (api_keep_request).
	void (*serve)(struct api_call *call, const Sluice__V1__Request *request);
	struct api_operation *next;
};

void api_operation_register(struct api_operation *operation);

#define API_OPERATION(variable, operation_case, function) \
	static struct api_operation variable = {.which = operation_case, .serve = function}; \
	RTE_INIT(register_##variable) \
	{ \
		api_operation_register(&variable); \
	}

// A question about operational state, api.StateQuery.
struct state_query {
	const ProtobufCMessageDescriptor *query;
	// `query` is the unpacked message. Answers with api_answer(), or api_fail(), before it returns.
	void (*serve)(struct api_call *call, const void *query);
	struct state_query *next;
};

void state_query_register(struct state_query *query);

#define STATE_QUERY(variable, descriptor, function) \
	static struct state_query variable = {.query = &descriptor, .serve = function}; \
	RTE_INIT(register_##variable) \
	{ \
		state_query_register(&variable); \
	}

// End a state query with its answer. It is copied.
void api_answer(struct api_call *call, const ProtobufCMessage *answer);
// Memory for the answer of a state query, zeroed, until `serve` returns. NULL: there is none, and the call has failed.
void *api_memory(struct api_call *call, size_t count, size_t size);
// The same for a list of messages: rows of `size` bytes that begin with the message, and in `*list` a pointer to each.
void *api_rows(struct api_call *call, size_t count, size_t size, void *list);

// Send a reply: id, and for the end of the call `last`, are filled in. It is copied.
void api_reply(struct api_call *call, Sluice__V1__Reply *reply, bool last);
// Add a reply that is not the last to what the client gets next, at the latest with api_send().
void api_add(struct api_call *call, Sluice__V1__Reply *reply);
void api_send(struct api_call *call);
// End a call with an error.
void api_fail(struct api_call *call, int code, const char *message);
// The same because of one field of the request, with which the message begins.
void api_fail_field(struct api_call *call, int code, const char *field, const char *message);

// A call that answers more than once. `ended` is called when the client cancels it or goes away, or with api_reply(last);
// the call must not be used after that.
void api_keep(struct api_call *call, void (*ended)(void *argument), void *argument);
// The request, which is served now, is valid until `ended` has returned.
void api_keep_request(struct api_call *call);
// How much memory it takes.
size_t api_request_bytes(const struct api_call *call);
// The memory for parts of the request that are unpacked while it is served.
struct budget *api_budget(struct api_call *call);

// The client. It exists until its last call has ended.
struct api_client *api_client(const struct api_call *call);
// The name that it sent; empty: none. Valid as long as the client.
const char *api_client_name(const struct api_client *client);
// Stop reading from this client, or continue (hold false).
void api_hold(struct api_client *client, bool hold);

// Whether the client reads its replies. If not, events should be left out, and counted as lost.
bool api_ready(const struct api_call *call);

// Page tokens are numbers in text, up to `highest`. An empty token is 0; else the call has failed: false.
bool api_page(struct api_call *call, const char *page, uint64_t highest, uint64_t *cursor);
// A limit between 1 and 10,000; 1,000 where 0 was asked.
uint32_t api_limit(uint32_t limit);

void api_change_start(void);
int api_start(const char *socket_path, const char *listen, const char *certificate, const char *key,
	const char *authority, const char *names);
void api_stop(void);
