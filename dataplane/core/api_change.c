// The API's Put and Delete. Those of one client are carried out one after the other, object by object; an object that is
// being built beside the main thread holds up what comes behind it from the same client, and nothing else.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/api.h"
#include "core/api_stream.h"
#include "core/loop.h"
#include "core/object_build.h"

enum {
	SPEC_MOST = FRAME_MOST / 2, // so that a reply can hold any object
	WAITING_MOST = 64,          // of one client: then none of its requests is read
	WAITING_BYTES = FRAME_MOST,
};

// So often a client hears that its request is being carried out.
static const uint64_t STILL_AT_IT = UINT64_C(5) * 1000 * 1000 * 1000;

struct change {
	struct api_call *call;
	struct api_client *client;
	Sluice__V1__Request *request;
	size_t count, at; // of its objects
	Sluice__V1__Result *results, **list;
	struct object_build *build; // of object `at`
	bool kept;
	struct change *next;
};

static struct change *changes; // unfinished ones, oldest first

static void built(void *argument, int error, const struct fault *f);

static void
change_free(struct change *c)
{
	for (size_t i = 0; i < c->count; i++)
		if (c->results && c->results[i].message != protobuf_c_empty_string)
			free(c->results[i].message);
	free(c->results);
	free(c->list);
	if (c->kept)
		sluice__v1__request__free_unpacked(c->request, NULL);
	free(c);
}

static struct change *
first_of(const struct api_client *client)
{
	struct change *c = changes;

	while (c && c->client != client)
		c = c->next;
	return c;
}

// A client whose requests pile up is not read until some of them are done.
static void
hold_or_not(struct api_client *client)
{
	size_t waiting = 0, bytes = 0;

	for (const struct change *c = changes; c; c = c->next) {
		if (c->client == client) {
			waiting++;
			bytes += api_request_bytes(c->call);
		}
	}
	api_hold(client, waiting >= WAITING_MOST || bytes >= WAITING_BYTES);
}

static void
unlink_change(struct change *c)
{
	struct change **link = &changes;

	while (*link && *link != c)
		link = &(*link)->next;
	if (*link)
		*link = c->next;
}

static void
note(struct change *c, int error, const struct fault *f)
{
	Sluice__V1__Result *result = &c->results[c->at++];

	if (!error)
		return;
	result->code = -error;
	result->message = strdup(f->text[0] ? f->text : strerror(-error));
	if (!result->message)
		result->message = (char *)protobuf_c_empty_string;
}

static int
put_one(struct change *c, struct fault *f)
{
	const Sluice__V1__Object *o = c->request->put->objects[c->at];

	if (o->spec.len > SPEC_MOST)
		return fault(f, E2BIG, "spec: at most %d bytes are accepted, not %zu", SPEC_MOST, o->spec.len);
	return object_put_or_build(o->kind, o->name, o->spec.data, o->spec.len, built, c, &c->build, f);
}

static int
delete_one(const struct change *c, struct fault *f)
{
	const Sluice__V1__ObjectName *o = c->request->delete_->names[c->at];

	return object_delete(o->kind, o->name, f);
}

// Go on until something has to be built. true: all is done, and answered.
static bool
carry_out(struct change *c)
{
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	Sluice__V1__Results results = SLUICE__V1__RESULTS__INIT;
	bool puts = c->request->operation_case == SLUICE__V1__REQUEST__OPERATION_PUT;

	while (c->at < c->count) {
		struct fault f = {0};
		int error = puts ? put_one(c, &f) : delete_one(c, &f);

		if (c->build)
			return false;
		note(c, error, &f);
	}
	results.results = c->list;
	results.n_results = c->count;
	reply.results = &results;
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_RESULTS;
	api_reply(c->call, &reply, true);
	return true;
}

// An answer ends a change, and the next one is first.
static void
go_on(struct api_client *client)
{
	struct change *c;

	while ((c = first_of(client)) != NULL && carry_out(c))
		;
	hold_or_not(client);
}

static void
built(void *argument, int error, const struct fault *f)
{
	struct change *c = argument;

	c->build = NULL;
	note(c, error, f);
	go_on(c->client);
}

// The call is over: it is answered, or its client cancelled it or went away. Of a client that went away, calls end newest first,
// so that nothing is left to go on with.
static void
ended(void *argument)
{
	struct change *c = argument;
	struct api_client *client = c->client;
	bool held_up = c->build != NULL;

	if (c->build)
		object_build_abandon(c->build);
	unlink_change(c);
	change_free(c);
	if (held_up)
		go_on(client);
}

static int
make_results(struct change *c)
{
	c->results = calloc(c->count + 1, sizeof(c->results[0]));
	c->list = calloc(c->count + 1, sizeof(c->list[0]));
	if (!c->results || !c->list)
		return -ENOMEM;
	for (size_t i = 0; i < c->count; i++) {
		sluice__v1__result__init(&c->results[i]);
		c->list[i] = &c->results[i];
	}
	return 0;
}

static void
serve_change(struct api_call *call, const Sluice__V1__Request *request)
{
	struct change *c = calloc(1, sizeof(*c)), **end = &changes;

	if (!c) {
		api_fail(call, ENOMEM, "there is no memory to carry it out");
		return;
	}
	c->call = call;
	c->client = api_client(call);
	c->request = (Sluice__V1__Request *)request;
	c->count = request->operation_case == SLUICE__V1__REQUEST__OPERATION_PUT ? request->put->n_objects
										 : request->delete_->n_names;
	if (make_results(c)) {
		change_free(c);
		api_fail(call, ENOMEM, "there is no memory for so many results");
		return;
	}
	if (!first_of(c->client) && carry_out(c)) {
		change_free(c);
		return;
	}
	c->request = api_take(call);
	c->kept = true;
	while (*end)
		end = &(*end)->next;
	*end = c;
	api_keep(call, ended, c);
	hold_or_not(c->client);
}

static void
say_still_at_it(void *unused)
{
	// A reply does not end a change: the list stays as it is.
	for (struct change *c = changes; c; c = c->next) {
		Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;

		if (api_ready(c->call))
			api_reply(c->call, &reply, false);
	}
}

void
api_change_start(void)
{
	loop_every(STILL_AT_IT, say_still_at_it, NULL);
}

API_OPERATION(put, SLUICE__V1__REQUEST__OPERATION_PUT, serve_change)
API_OPERATION(delete, SLUICE__V1__REQUEST__OPERATION_DELETE, serve_change)
