// The API's Trace and Capture: what workers saw becomes words and frames here, on the main thread.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>

#include "core/api.h"
#include "core/drop.h"
#include "core/loop.h"
#include "core/object_list.h"
#include "core/punt.h"
#include "core/watch.h"
#include "core/watch_api.h"

enum { STEPS_MOST = 64, FOLLOWED_MOST = 4096, WORDS = 400 };

// A packet on its way.
struct followed {
	uint64_t arrived;
	uint8_t slot;
	unsigned count;
	char *words[STEPS_MOST];
	uint16_t nodes[STEPS_MOST];
	uint64_t times[STEPS_MOST];
	struct followed *next;
};

struct watching {
	struct api_call *call;
	uint8_t slot;
	int64_t remaining; // to be answered
};

static struct watching *watchers[WATCHES];
static struct followed *on_their_way;
static unsigned followed_count;

static void
followed_free(struct followed *f)
{
	for (unsigned i = 0; i < f->count; i++)
		free(f->words[i]);
	free(f);
	followed_count--;
}

static void
ended(void *argument)
{
	struct watching *w = argument;

	for (struct followed **link = &on_their_way, *f; (f = *link) != NULL;)
		if (f->slot == w->slot) {
			*link = f->next;
			followed_free(f);
		} else {
			link = &f->next;
		}
	watchers[w->slot] = NULL;
	watch_end(w->slot);
	free(w);
}

static void
answer_trace(struct watching *w, struct followed *f, const char *end)
{
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	Sluice__V1__TracedPacket traced = SLUICE__V1__TRACED_PACKET__INIT;
	Sluice__V1__TraceStep steps[STEPS_MOST], *list[STEPS_MOST];

	for (unsigned i = 0; i < f->count; i++) {
		sluice__v1__trace_step__init(&steps[i]);
		steps[i].node = (char *)node_by_id(f->nodes[i])->name;
		steps[i].saw = f->words[i];
		steps[i].at = (uint64_t)((double)(f->times[i] - f->arrived) * 1e9 / (double)rte_get_tsc_hz());
		list[i] = &steps[i];
	}
	traced.n_steps = f->count;
	traced.steps = list;
	traced.end = (char *)end;
	reply.traced = &traced;
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_TRACED;
	api_reply(w->call, &reply, --w->remaining <= 0);
}

// Nodes after which the graph has no more to do with a packet.
static const char *
end_of(const struct sight *s, char *text, size_t size)
{
	const struct node *node = node_by_id(s->node);

	if (node == &drop_node)
		snprintf(text, size, "dropped: %s", drop_by_id(s->packet.drop)->name);
	else if (node == &punt_node)
		node->describe(text, size, &s->packet, s->data, s->held);
	else if (strcmp(node->name, "tx") == 0)
		watch_port_name(s->out_port, text, size);
	else
		return NULL;
	return text;
}

static void
take_step(struct watching *w, const struct sight *s)
{
	const struct node *node = node_by_id(s->node);
	struct followed **link = &on_their_way, *f;
	char words[WORDS] = "", end[WORDS];

	while ((f = *link) != NULL && (f->arrived != s->packet.arrived || f->slot != s->slot))
		link = &f->next;
	if (!f) {
		if (followed_count == FOLLOWED_MOST || (f = calloc(1, sizeof(*f))) == NULL)
			return;
		followed_count++;
		f->arrived = s->packet.arrived;
		f->slot = s->slot;
		*link = f;
	}
	if (f->count < STEPS_MOST) {
		if (node->describe)
			node->describe(words, sizeof(words), &s->packet, s->data, s->held);
		else
			snprintf(words, sizeof(words), "%u bytes", s->length);
		f->nodes[f->count] = s->node;
		f->times[f->count] = s->time;
		f->words[f->count] = strdup(words);
		if (f->words[f->count])
			f->count++;
	}
	if (end_of(s, end, sizeof(end))) {
		*link = f->next;
		// The answer may end the call, and with it all of its other packets: this one is out of the list by then.
		answer_trace(w, f, end);
		followed_free(f);
	}
}

static void
answer_capture(struct watching *w, struct sight *s)
{
	static uint8_t frame[UINT16_MAX];
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	Sluice__V1__CapturedPacket captured = SLUICE__V1__CAPTURED_PACKET__INIT;
	uint32_t length = RTE_MIN(s->copy->pkt_len, (uint32_t)sizeof(frame));
	struct timespec now;

	if (!api_ready(w->call))
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	captured.time = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec -
			(uint64_t)((double)(rte_rdtsc() - s->time) * 1e9 / (double)rte_get_tsc_hz());
	captured.length = s->length;
	captured.bytes.data = (uint8_t *)rte_pktmbuf_read(s->copy, 0, length, frame);
	captured.bytes.len = length;
	captured.node = (char *)node_by_id(s->node)->name;
	reply.captured = &captured;
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_CAPTURED;
	api_reply(w->call, &reply, w->remaining > 0 && --w->remaining == 0);
}

static void
poll(void *unused)
{
	struct sight *s;

	for (unsigned i = 0; i < 512 && (s = sight_next()) != NULL; i++) {
		struct watching *w = watchers[s->slot];

		if (w && s->copy)
			answer_capture(w, s);
		else if (w)
			take_step(w, s);
		sight_done(s);
	}
}

static void
begin(struct api_call *call, const struct watch *wish, const char *filter, int64_t count)
{
	struct watching *w = calloc(1, sizeof(*w));
	char text[256] = "there is no memory to watch packets";
	int error = -ENOMEM;

	if (w)
		error = watch_begin(wish, filter, &w->slot, text, sizeof(text));
	if (error) {
		free(w);
		api_fail(call, error, text);
		return;
	}
	w->call = call;
	w->remaining = count;
	watchers[w->slot] = w;
	api_keep(call, ended, w);
}

static void
serve_trace(struct api_call *call, const Sluice__V1__Request *request)
{
	uint32_t count = request->trace->count ? request->trace->count : 10;
	struct watch wish = {.kind = WATCH_TRACE, .node = -1, .session = NO_SESSION, .remaining = count};

	if (count > 10000) {
		api_fail(call, EINVAL, "count: at most 10000 packets can be followed");
		return;
	}
	begin(call, &wish, request->trace->filter, count);
}

static void
serve_capture(struct api_call *call, const Sluice__V1__Request *request)
{
	const Sluice__V1__Capture *c = request->capture;
	int64_t count = c->count ? (int64_t)RTE_MIN(c->count, (uint64_t)INT64_MAX) : INT64_MAX;
	struct watch wish = {.kind = WATCH_CAPTURE,
		.node = -1,
		.session = NO_SESSION,
		.remaining = count,
		.snap_length = c->snap_length};

	if (c->node[0]) {
		const struct node *node = node_by_name(c->node);

		if (!node || node->source) {
			api_fail(call, ENOENT,
				"node: there is none of this name that packets pass; `sluice top` lists them");
			return;
		}
		wish.node = node->id;
	}
	if (c->session[0]) {
		struct kind *kind = kind_by_name("Session");
		struct object *object = kind ? object_find(kind, c->session) : NULL;

		if (!object) {
			api_fail(call, ENOENT, "session: there is none of this name");
			return;
		}
		wish.session = (uint32_t)(uintptr_t)object->state;
	}
	begin(call, &wish, c->filter, count);
}

API_OPERATION(trace, SLUICE__V1__REQUEST__OPERATION_TRACE, serve_trace)
API_OPERATION(capture, SLUICE__V1__REQUEST__OPERATION_CAPTURE, serve_capture)

void
watch_api_start(void)
{
	loop_poll(poll, NULL);
}
