// SPDX-License-Identifier: Apache-2.0
// The API's Put and Delete. Those of one client are carried out one after the other, object by object. A slow object
// is built beside the main thread, and delays later requests of the same client that concern it: the same object, or
// one that may refer to it, and all behind that.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/loop.h"
#include "server/api.h"
#include "server/api_stream.h"
#include "server/event.h"
#include "server/object_build.h"
#include "server/object_list.h"

enum {
	SPEC_MAX = FRAME_MAX / 2,  // so that a reply can hold any object
	MAKING_MAX = 32,           // objects of one client that are built, or wait for that
	WAITING_MAX = 64,          // requests of one client: then none of its requests is read
	WAITING_BYTES = FRAME_MAX, // of memory
	// Of all clients: then clients that have waiting requests are not read, and twice this is never stored.
	WAITING_ALL = 4 * WAITING_BYTES,
	FINAL_MAX = 1024, // bytes of the last counters of an object
};

// The interval of "still at it" replies to a client.
static const uint64_t STILL_AT_IT = UINT64_C(5) * 1000 * 1000 * 1000;

// An object of a change that is being built.
struct making {
	struct change *change;
	size_t at;
	uint8_t owner;
	struct object_build *build;
	struct making *next;
};

struct change {
	struct api_call *call;
	struct api_client *client;
	const Sluice__V1__Request *request;
	size_t count, at; // of its objects
	Sluice__V1__Result *results, **list;
	struct making *making;
	struct change *next;
};

static struct change *changes; // unfinished ones, oldest first

static void built(void *argument, int error, const struct fault *f);

static void
abandon_all(struct change *c)
{
	while (c->making) {
		struct making *m = c->making;

		c->making = m->next;
		object_build_abandon(m->build);
		free(m);
	}
}

static void
change_free(struct change *c)
{
	for (size_t i = 0; c->results && i < c->count; i++) {
		if (c->results[i].message != protobuf_c_empty_string)
			free(c->results[i].message);
		free(c->results[i].final.data);
	}
	free(c->results);
	free(c->list);
	free(c);
}

// The client's oldest change that is not wholly begun, or finished: the one to go on with.
static struct change *
next_of(const struct api_client *client)
{
	struct change *c = changes;

	while (c && (c->client != client || (c->at == c->count && c->making)))
		c = c->next;
	return c;
}

static size_t
bytes_of_all(void)
{
	size_t bytes = 0;

	for (const struct change *c = changes; c; c = c->next)
		bytes += api_request_bytes(c->call);
	return bytes;
}

// A client whose requests pile up, or add to a pile, is not read until some of them are done.
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
	api_hold(client,
		waiting >= WAITING_MAX || bytes >= WAITING_BYTES || (waiting > 0 && bytes_of_all() >= WAITING_ALL));
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
note(struct change *c, size_t at, int error, const struct fault *f)
{
	Sluice__V1__Result *result = &c->results[at];

	if (!error)
		return;
	result->code = -error;
	result->message = strdup(f->text[0] ? f->text : strerror(-error));
	if (!result->message)
		result->message = (char *)protobuf_c_empty_string;
}

static bool
is_put(const struct change *c)
{
	return c->request->operation_case == SLUICE__V1__REQUEST__OPERATION_PUT;
}

static int
put_one(struct change *c, struct fault *f)
{
	// Reused for the next object if nothing is built, which is the common case.
	static struct making *m;
	Sluice__V1__Object *o = c->request->put->objects[c->at];
	int owner = object_owner_id(o->owner, f), error;

	if (owner < 0)
		return owner;
	if (o->spec.len > SPEC_MAX)
		return fault(f, E2BIG, "spec: at most %d bytes are accepted, not %zu", SPEC_MAX, o->spec.len);
	if (!m)
		m = malloc(sizeof(*m));
	if (!m)
		return fault(f, ENOMEM, "there is no memory for the object");
	*m = (struct making){.change = c, .at = c->at, .owner = (uint8_t)owner, .next = c->making};
	error = object_put_or_build(o->kind, o->name, &o->spec, built, m, &m->build, f);
	if (m->build) {
		c->making = m;
		m = NULL;
	} else if (!error) {
		object_set_owner(object_find(kind_by_name(o->kind), o->name), (uint8_t)owner);
	}
	return error;
}

static int
delete_one(struct change *c, struct fault *f)
{
	const Sluice__V1__ObjectName *o = c->request->delete_->names[c->at];
	const struct kind *kind = kind_by_name(o->kind);
	const struct object *object = kind && kind->final ? object_find(kind, o->name) : NULL;
	uint8_t room[FINAL_MAX];
	size_t length = object ? kind->final(object, room, sizeof(room)) : 0;
	ProtobufCBinaryData *last = &c->results[c->at].final;
	int error = object_delete(o->kind, o->name, f);

	if (error || length == 0)
		return error;
	last->data = malloc(length);
	if (last->data) {
		last->len = length;
		memcpy(last->data, room, length);
	}
	return 0;
}

// Notify other clients that watch changes. After a build the request has no spec, but the object has.
static void
tell(const struct change *c, size_t at)
{
	Sluice__V1__Object now;
	const struct object *object;

	if (!event_changes_watched(c->client))
		return;
	if (!is_put(c)) {
		event_changed(c->client, NULL, c->request->delete_->names[at]);
		return;
	}
	now = *c->request->put->objects[at];
	object = object_find(kind_by_name(now.kind), now.name);
	if (!object)
		return;
	now.spec.data = object->spec;
	now.spec.len = object->spec_length;
	event_changed(c->client, &now, NULL);
}

// Whether an object must wait for one of these, or because there are many.
static bool
concerned(const struct making *m, const char *kind, const char *name, const ProtobufCBinaryData *spec, unsigned *seen)
{
	for (; m; m = m->next)
		if (++*seen == MAKING_MAX || object_build_concerns(m->build, kind, name, spec->data, spec->len))
			return true;
	return false;
}

// Whether the change's next object must wait for one of its client that is being built.
static bool
must_wait(const struct change *c)
{
	static const ProtobufCBinaryData none;
	const Sluice__V1__Object *o = is_put(c) ? c->request->put->objects[c->at] : NULL;
	const char *kind = o ? o->kind : c->request->delete_->names[c->at]->kind;
	const char *name = o ? o->name : c->request->delete_->names[c->at]->name;
	const ProtobufCBinaryData *spec = o ? &o->spec : &none;
	unsigned seen = 0;

	// It may not be among the changes yet; those behind it have not begun.
	for (const struct change *other = changes; other && other != c; other = other->next)
		if (other->client == c->client && concerned(other->making, kind, name, spec, &seen))
			return true;
	return concerned(c->making, kind, name, spec, &seen);
}

// Go on as far as nothing has to wait. false: it stops there. true: all is begun, and if none of it is being built, answered.
static bool
carry_out(struct change *c)
{
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	Sluice__V1__Results results = SLUICE__V1__RESULTS__INIT;

	for (; c->at < c->count; c->at++) {
		uint64_t before = object_generation();
		struct fault f = {0};

		if (must_wait(c))
			return false;
		note(c, c->at, is_put(c) ? put_one(c, &f) : delete_one(c, &f), &f);
		if (object_generation() != before)
			tell(c, c->at);
	}
	if (c->making)
		return true;
	results.results = c->list;
	results.n_results = c->count;
	results.generation = object_generation();
	reply.results = &results;
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_RESULTS;
	api_reply(c->call, &reply, true);
	return true;
}

// An answer ends a change; the next one is begun when all before are.
static void
go_on(struct api_client *client)
{
	struct change *c;

	while ((c = next_of(client)) != NULL && carry_out(c))
		;
	hold_or_not(client);
}

static void
built(void *argument, int error, const struct fault *f)
{
	struct making *m = argument, **link = &m->change->making;
	struct change *c = m->change;

	while (*link != m)
		link = &(*link)->next;
	*link = m->next;
	note(c, m->at, error, f);
	if (!error) {
		const Sluice__V1__Object *o = c->request->put->objects[m->at];

		object_set_owner(object_find(kind_by_name(o->kind), o->name), m->owner);
		tell(c, m->at);
	}
	free(m);
	go_on(c->client);
}

// The call is over: it is answered, or its client cancelled it or went away. Of a client that went away, calls end newest first,
// so that nothing is left to go on with.
static void
ended(void *argument)
{
	struct change *c = argument;
	struct api_client *client = c->client;
	bool unfinished = c->making || c->at < c->count;

	abandon_all(c);
	unlink_change(c);
	change_free(c);
	if (unfinished)
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
	c->request = request;
	c->count = request->operation_case == SLUICE__V1__REQUEST__OPERATION_PUT ? request->put->n_objects
										 : request->delete_->n_names;
	if (make_results(c)) {
		change_free(c);
		api_fail(call, ENOMEM, "there is no memory for so many results");
		return;
	}
	if (!next_of(c->client) && carry_out(c) && !c->making) {
		change_free(c);
		return;
	}
	if (changes && bytes_of_all() + api_request_bytes(call) > 2 * (size_t)WAITING_ALL) {
		abandon_all(c);
		change_free(c);
		api_fail(call, EAGAIN, "other changes wait already, as many as there is room for; send it again later");
		return;
	}
	api_keep_request(call);
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
