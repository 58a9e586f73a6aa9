// SPDX-License-Identifier: Apache-2.0
// The API server: requests, the calls that go on, and the operations on the store of objects.
#include "server/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_lcore.h>
#include <rte_random.h>
#include <rte_version.h>

#include "core/worker.h"
#include "cpu/cpu.h"
#include "server/api_stream.h"
#include "server/budget.h"
#include "server/contract.h"
#include "server/event.h"
#include "server/fastest_api.h"
#include "server/object_list.h"

enum {
	VERSION = 2, // of the contract
	CALLS_MAX = 256,
	CLIENT_NAME = 64, // bytes that are stored
	PAGE_MAX = FRAME_MAX / 4,
	UNPACKED_BESIDE = 64 << 10,
	// Bytes that a request is unpacked into: twice its length on the wire, and some beside. A larger request uses malloc().
	SCRATCH_BESIDE = 4 << 10,
	SCRATCH_MAX = 1 << 20,
};

struct api_client {
	struct stream *stream;
	struct api_call *calls; // that go on
	unsigned call_count;
	bool greeted;
	uint64_t term;
	char name[CLIENT_NAME + 1];
};

struct api_call {
	struct api_client *client;
	uint64_t id;
	bool kept, over;
	bool serving; // its request is being looked at: freed after that
	Sluice__V1__Request *request;
	bool keeps_request; // until its end; else it is there while serving
	struct budget budget;
	struct scratch scratch;
	size_t bytes; // of memory, of the request
	void (*ended)(void *argument);
	void *argument;
	struct api_call *next;
};

static struct api_operation *operations;
static uint64_t boot;
// The highest term that a client had, and that client's name.
static uint64_t term;
static char term_holder[CLIENT_NAME + 1];

void
api_operation_register(struct api_operation *operation)
{
	operation->next = operations;
	operations = operation;
}

// Memory for the next request: the cache has it.
static struct scratch spare;

static struct scratch
scratch_take(size_t length)
{
	size_t size = RTE_MIN(2 * length + SCRATCH_BESIDE, (size_t)SCRATCH_MAX);
	struct scratch taken = spare;

	if (taken.size >= size) {
		spare = (struct scratch){0};
		return taken;
	}
	taken = (struct scratch){.bytes = malloc(size), .size = size};
	if (!taken.bytes)
		taken.size = 0;
	return taken;
}

static void
scratch_give(struct scratch *s)
{
	// Keys may have been in it.
	if (s->bytes)
		explicit_bzero(s->bytes, s->used);
	if (s->size > spare.size) {
		free(spare.bytes);
		spare = *s;
		spare.used = 0;
	} else {
		free(s->bytes);
	}
	*s = (struct scratch){0};
}

static void
free_call(struct api_call *call)
{
	if (call->request)
		budget_free(&call->budget, &call->request->base);
	scratch_give(&call->scratch);
	free(call);
}

static void
forget(struct api_call *call)
{
	struct api_call **link = &call->client->calls;

	while (*link && *link != call)
		link = &(*link)->next;
	if (*link) {
		*link = call->next;
		call->client->call_count--;
	}
	if (call->ended)
		call->ended(call->argument);
	call->over = true;
	if (!call->serving)
		free_call(call);
}

// False: the peer will be cut off.
static bool
pack_reply(struct api_client *client, Sluice__V1__Reply *reply)
{
	size_t length = sluice__v1__reply__get_packed_size(reply);
	uint8_t *frame = stream_frame(client->stream, length);

	if (frame)
		sluice__v1__reply__pack(reply, frame);
	return frame != NULL;
}

static void
send_reply(struct api_client *client, Sluice__V1__Reply *reply)
{
	if (pack_reply(client, reply))
		stream_send(client->stream);
}

void
api_add(struct api_call *call, Sluice__V1__Reply *reply)
{
	reply->id = call->id;
	reply->last = false;
	pack_reply(call->client, reply);
}

void
api_send(struct api_call *call)
{
	stream_send(call->client->stream);
}

void
api_reply(struct api_call *call, Sluice__V1__Reply *reply, bool last)
{
	reply->id = call->id;
	reply->last = last;
	send_reply(call->client, reply);
	call->over = last;
	if (last && call->kept)
		forget(call);
}

// Into the frame itself: an answer may have megabytes.
void
api_answer(struct api_call *call, const ProtobufCMessage *answer)
{
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	size_t length, rest = protobuf_c_message_get_packed_size(answer);
	uint8_t *to;

	reply.id = call->id;
	reply.last = call->over = true;
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_STATE;
	reply.state.len = rest;
	length = sluice__v1__reply__get_packed_size(&reply);
	to = stream_frame(call->client->stream, length);
	if (!to)
		return;
	// The field `state` is the last: a tag, the length in groups of 7 bits, and the answer.
	reply.answer_case = SLUICE__V1__REPLY__ANSWER__NOT_SET;
	to += sluice__v1__reply__pack(&reply, to);
	*to++ = SLUICE__V1__REPLY__ANSWER_STATE << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
	for (; rest >= 0x80; rest >>= 7)
		*to++ = (uint8_t)(rest | 0x80);
	*to++ = (uint8_t)rest;
	protobuf_c_message_pack(answer, to);
	stream_send(call->client->stream);
}

void
api_fail_field(struct api_call *call, int code, const char *field, const char *message)
{
	Sluice__V1__Result result = SLUICE__V1__RESULT__INIT;
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;

	result.code = code < 0 ? -code : code;
	result.field = (char *)field;
	result.message = (char *)message;
	reply.result = &result;
	api_reply(call, &reply, true);
}

void
api_fail(struct api_call *call, int code, const char *message)
{
	api_fail_field(call, code, "", message);
}

void
api_keep(struct api_call *call, void (*ended)(void *argument), void *argument)
{
	call->kept = true;
	call->ended = ended;
	call->argument = argument;
	call->next = call->client->calls;
	call->client->calls = call;
	call->client->call_count++;
}

void
api_keep_request(struct api_call *call)
{
	call->keeps_request = true;
}

size_t
api_request_bytes(const struct api_call *call)
{
	return call->bytes;
}

struct budget *
api_budget(struct api_call *call)
{
	return &call->budget;
}

struct api_client *
api_client(const struct api_call *call)
{
	return call->client;
}

const char *
api_client_name(const struct api_client *client)
{
	return client->name;
}

void
api_hold(struct api_client *client, bool hold)
{
	stream_hold(client->stream, hold);
}

bool
api_ready(const struct api_call *call)
{
	return stream_backlog(call->client->stream) < BACKLOG_EVENTS;
}

bool
api_page(struct api_call *call, const char *page, uint64_t highest, uint64_t *cursor)
{
	char *end;

	*cursor = 0;
	if (page[0] == '\0')
		return true;
	errno = 0;
	*cursor = strtoull(page, &end, 10);
	if (!errno && !*end && page[0] >= '0' && page[0] <= '9' && *cursor <= highest)
		return true;
	api_fail(call, EINVAL, "page: only what next_page said is accepted");
	return false;
}

uint32_t
api_limit(uint32_t limit)
{
	return limit == 0 ? 1000 : RTE_MIN(limit, 10000u);
}

// No character is cut in half: others get the name in a string of UTF-8.
static void
keep_name(struct api_client *client, const char *name)
{
	size_t length = strnlen(name, CLIENT_NAME + 1);

	if (length > CLIENT_NAME)
		for (length = CLIENT_NAME; length > 0 && ((unsigned char)name[length] & 0xc0) == 0x80; length--)
			;
	memcpy(client->name, name, length);
	client->name[length] = '\0';
}

static void
refuse_term(struct api_call *call, uint64_t lower)
{
	char message[256];

	snprintf(message, sizeof(message), "term: %lu is lower than %lu, the term of \"%s\"", lower, term, term_holder);
	api_fail(call, ESTALE, message);
}

// Operations that only the agent of the highest term may do. A refused packet out has no reply.
static bool
fenced(struct api_call *call, const Sluice__V1__Request *request)
{
	if (call->client->term >= term)
		return false;
	switch (request->operation_case) {
	case SLUICE__V1__REQUEST__OPERATION_PUT:
	case SLUICE__V1__REQUEST__OPERATION_DELETE:
	case SLUICE__V1__REQUEST__OPERATION_PACKET_OUT:
		refuse_term(call, call->client->term);
		return true;
	case SLUICE__V1__REQUEST__OPERATION_PACKETS_OUT:
		return true;
	default:
		return false;
	}
}

// The processor of a thread that has one of its own. A thread's number in DPDK is not the processor's.
static uint32_t
processor_of(unsigned lcore)
{
	rte_cpuset_t set = rte_lcore_cpuset(lcore);
	uint32_t processor = 0;

	while (processor < CPU_SETSIZE && !CPU_ISSET(processor, &set))
		processor++;
	return processor;
}

static void
serve_hello(struct api_call *call, const Sluice__V1__Request *request)
{
	Sluice__V1__Greeting greeting = SLUICE__V1__GREETING__INIT;
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	uint32_t cores[WORKER_MAX];
	unsigned lcore;

	if (request->hello->version != VERSION) {
		api_fail(call, EPROTONOSUPPORT, "version: this data plane speaks version 2 of the contract");
		return;
	}
	if (request->hello->term != 0 && request->hello->term < term) {
		refuse_term(call, request->hello->term);
		return;
	}
	call->client->greeted = true;
	call->client->term = request->hello->term;
	keep_name(call->client, request->hello->name);
	if (call->client->term > term) {
		term = call->client->term;
		memcpy(term_holder, call->client->name, sizeof(term_holder));
	}
	greeting.version = VERSION;
	greeting.release = SLUICE_RELEASE;
	greeting.dpdk = (char *)rte_version();
	greeting.boot = boot;
	greeting.workers = worker_count;
	greeting.cpu = (char *)cpu_built_for;
	greeting.worker_cores = cores;
	RTE_LCORE_FOREACH_WORKER(lcore)
	{
		if (worker_has_core)
			cores[greeting.n_worker_cores++] = processor_of(lcore);
	}
	fastest_report(&greeting);
	reply.greeting = &greeting;
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_GREETING;
	api_reply(call, &reply, true);
}

// A page's token is the kind's number and the cursor within the kind.
static void
serve_list(struct api_call *call, const Sluice__V1__Request *request)
{
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	Sluice__V1__Objects answer = SLUICE__V1__OBJECTS__INIT;
	const Sluice__V1__List *list = request->list;
	uint32_t limit = api_limit(list->limit);
	unsigned kind_id = 0;
	uint64_t cursor = 0;
	struct kind *kind = NULL;
	Sluice__V1__Object *all;
	char token[48] = "";
	size_t bytes = 0;

	if (list->page[0] && sscanf(list->page, "%u.%lu", &kind_id, &cursor) != 2) {
		api_fail(call, EINVAL, "page: only what next_page said is accepted");
		return;
	}
	if (list->kind[0]) {
		kind = kind_by_name(list->kind);
		if (!kind) {
			api_fail(call, EINVAL, "kind: this data plane does not know it");
			return;
		}
		kind_id = kind->id;
	}
	all = calloc(limit, sizeof(*all));
	answer.objects = calloc(limit, sizeof(answer.objects[0]));
	if (!all || !answer.objects) {
		free(all);
		free(answer.objects);
		api_fail(call, ENOMEM, "limit: there is no memory for so many objects");
		return;
	}
	while ((kind = kind_by_id(kind_id)) != NULL) {
		const struct object *object;

		for (uint64_t before = cursor;
			answer.n_objects < limit && bytes < PAGE_MAX && (object = object_next(kind, &cursor)) != NULL;
			before = cursor) {
			Sluice__V1__Object *o = &all[answer.n_objects];
			size_t more = object->spec_length + strlen(object->name) + strlen(kind->name) + 16;

			// One that would make the page too large begins the next.
			if (answer.n_objects > 0 && bytes + more > PAGE_MAX) {
				bytes = PAGE_MAX;
				cursor = before;
				break;
			}
			sluice__v1__object__init(o);
			o->kind = (char *)kind->name;
			o->name = object->name;
			o->spec.data = object->spec;
			o->spec.len = object->spec_length;
			o->owner = (char *)object_owner_name(object->owner);
			answer.objects[answer.n_objects++] = o;
			bytes += more;
		}
		if (answer.n_objects == limit || bytes >= PAGE_MAX) {
			snprintf(token, sizeof(token), "%u.%lu", kind_id, cursor);
			answer.next_page = token;
			break;
		}
		if (list->kind[0])
			break;
		kind_id++;
		cursor = 0;
	}
	reply.objects = &answer;
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_OBJECTS;
	api_reply(call, &reply, true);
	free(all);
	free(answer.objects);
}

static void
serve_cancel(struct api_call *call, const Sluice__V1__Request *request)
{
	struct api_call *other = call->client->calls;
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;

	while (other && other->id != request->cancel->id)
		other = other->next;
	if (other) {
		Sluice__V1__Reply end = SLUICE__V1__REPLY__INIT;

		api_reply(other, &end, true);
	}
	api_reply(call, &reply, true);
}

API_OPERATION(hello, SLUICE__V1__REQUEST__OPERATION_HELLO, serve_hello)
API_OPERATION(list, SLUICE__V1__REQUEST__OPERATION_LIST, serve_list)
API_OPERATION(cancel, SLUICE__V1__REQUEST__OPERATION_CANCEL, serve_cancel)

// The id of a request that could not be unpacked, where it stands first as writers put it; else 0.
static uint64_t
id_of(const uint8_t *bytes, size_t length)
{
	uint64_t id = 0;

	for (size_t i = 1; length > 0 && bytes[0] == 0x08 && i < length && i < 10; i++) {
		id |= (uint64_t)(bytes[i] & 0x7f) << 7 * (i - 1);
		if (!(bytes[i] & 0x80))
			return id;
	}
	return 0;
}

static void
refuse_large(struct api_client *client, uint64_t id)
{
	Sluice__V1__Result result = SLUICE__V1__RESULT__INIT;
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;

	result.code = E2BIG;
	result.message = "the request says too much at once; send it in parts";
	reply.id = id;
	reply.last = true;
	reply.result = &result;
	send_reply(client, &reply);
}

static void *
opened(struct stream *stream)
{
	struct api_client *client = calloc(1, sizeof(*client));

	if (client)
		client->stream = stream;
	return client;
}

static bool
frame(struct stream *stream, void *state, const uint8_t *bytes, size_t length)
{
	struct api_client *client = state;
	const struct api_operation *o = operations;
	struct api_call *call = calloc(1, sizeof(*call));
	size_t all = budget_for(length, UNPACKED_BESIDE);
	Sluice__V1__Request *request;
	ProtobufCAllocator memory;
	struct fault f;

	if (!call)
		return false;
	call->client = client;
	call->scratch = scratch_take(length);
	call->budget = (struct budget){.left = all, .scratch = &call->scratch};
	memory = budget_allocator(&call->budget);
	request = call->request = sluice__v1__request__unpack(&memory, length, bytes);
	if (!request) {
		bool large = call->budget.spent;

		free_call(call);
		if (large)
			refuse_large(client, id_of(bytes, length));
		// Else it is a frame of something that is not this protocol: there is no id to answer to.
		return large;
	}
	call->id = request->id;
	call->serving = true;
	call->bytes = all - call->budget.left;
	while (o && o->which != request->operation_case)
		o = o->next;
	if (!o)
		api_fail(call, EOPNOTSUPP, "operation: this data plane does not know it");
	else if (!client->greeted && o->which != SLUICE__V1__REQUEST__OPERATION_HELLO)
		api_fail(call, EPROTO, "operation: hello must come first");
	// Operations that free calls are carried out all the same.
	else if (client->call_count >= CALLS_MAX && o->which != SLUICE__V1__REQUEST__OPERATION_CANCEL)
		api_fail(call, ENOSPC, "operation: too many calls go on for this client; cancel some");
	else if (contract_check_text(&request->base, &f))
		api_fail(call, EINVAL, f.text);
	else if (!fenced(call, request))
		o->serve(call, request);
	call->serving = false;
	if (!call->kept || call->over) {
		free_call(call);
	} else if (!call->keeps_request) {
		budget_free(&call->budget, &request->base);
		call->request = NULL;
		scratch_give(&call->scratch);
	}
	return true;
}

static void
closed(struct stream *stream, void *state)
{
	struct api_client *client = state;

	while (client->calls)
		forget(client->calls);
	free(client);
}

static const struct stream_user user = {opened, frame, closed};

int
api_start(const char *socket_path, const char *listen, const char *certificate, const char *key, const char *authority,
	const char *names)
{
	int error = 0;

	boot = rte_rand() | 1;
	api_change_start();
	event_start();
	if (socket_path)
		error = stream_listen_unix(socket_path, &user);
	if (!error && listen)
		error = stream_listen_tls(listen, certificate, key, authority, names, &user);
	return error;
}

void
api_stop(void)
{
	stream_stop();
}
