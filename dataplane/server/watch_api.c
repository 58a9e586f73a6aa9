// SPDX-License-Identifier: Apache-2.0
// The API's Trace and Capture: the main thread turns the workers' records into words and frames.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_log.h>

#include "core/drop.h"
#include "core/loop.h"
#include "core/punt_watch.h"
#include "core/start.h"
#include "core/watch.h"
#include "server/api.h"
#include "server/watch_api.h"
#include "server/watch_filter.h"

enum {
	TRACE_STEPS_MAX = 64,
	FOLLOWED_MAX = 4096,
	WORDS = 400,
	COMPILE_AT_ONCE =
		10, // milliseconds to wait for a filter: nearly all are ready then, before the next request is served
	COMPILE_SECONDS = 2,   // for the others
	WAIT_SECONDS = 5,      // for a packet's next step. A silent neighbour fails after three.
	SETTLE_PER_SECOND = 50 // a packet's end is reported this part of a second later: tx may still drop it
};

// A packet on its way.
struct followed {
	uint64_t arrived;
	uint8_t slot;
	unsigned count;
	char *words[TRACE_STEPS_MAX];
	uint16_t nodes[TRACE_STEPS_MAX];
	uint64_t times[TRACE_STEPS_MAX];
	uint64_t last;   // TSC of the last step
	char end[WORDS]; // its end, or the reason why it waits
	bool over;
	struct followed *next;
};

struct watching {
	struct api_call *call;
	struct watch wish;
	struct watch_filter *filter; // still being compiled
	struct watch *watch;         // once it has begun
	int64_t remaining;           // to be answered
	uint64_t last;               // TSC: when it was asked for, or something was seen
	struct watching *next;       // while `filter`
};

static struct watching *watchers[WATCHES]; // that have begun
static struct watching *compiling;
static struct followed *on_their_way;
static unsigned followed_count;
static uint32_t (*find_session)(const char *name);

void
watch_sessions(uint32_t (*find)(const char *name))
{
	find_session = find;
}

static void
followed_free(struct followed *f)
{
	for (unsigned i = 0; i < f->count; i++)
		free(f->words[i]);
	free(f);
	followed_count--;
}

static void
compiled(struct watching *w)
{
	struct watching **link = &compiling;

	while (*link && *link != w)
		link = &(*link)->next;
	if (*link)
		*link = w->next;
	watch_filter_end(w->filter);
	w->filter = NULL;
}

static void
ended(void *argument)
{
	struct watching *w = argument;

	if (w->filter)
		compiled(w);
	if (w->watch) {
		uint64_t lost = __atomic_load_n(&w->watch->lost, __ATOMIC_RELAXED);
		uint8_t slot = w->watch->slot;

		if (lost > 0)
			RTE_LOG(WARNING, USER1, "%s: %lu packets or steps were not shown: they came too fast\n",
				w->wish.kind == WATCH_TRACE ? "trace" : "capture", lost);
		for (struct followed **link = &on_their_way, *f; (f = *link) != NULL;)
			if (f->slot == slot) {
				*link = f->next;
				followed_free(f);
			} else {
				link = &f->next;
			}
		watchers[slot] = NULL;
		watch_end(slot);
	}
	free(w);
}

static void
answer_trace(struct watching *w, struct followed *f)
{
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	Sluice__V1__TracedPacket traced = SLUICE__V1__TRACED_PACKET__INIT;
	Sluice__V1__TraceStep steps[TRACE_STEPS_MAX], *list[TRACE_STEPS_MAX];

	for (unsigned i = 0; i < f->count; i++) {
		sluice__v1__trace_step__init(&steps[i]);
		steps[i].node = (char *)node_by_id(f->nodes[i])->name;
		steps[i].saw = f->words[i];
		steps[i].at = (uint64_t)((double)(f->times[i] - f->times[0]) * 1e9 / (double)rte_get_tsc_hz());
		list[i] = &steps[i];
	}
	traced.n_steps = f->count;
	traced.steps = list;
	traced.end = f->end;
	reply.traced = &traced;
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_TRACED;
	api_reply(w->call, &reply, --w->remaining <= 0);
}

// The fate of the packet; false if it continues.
static bool
end_of(const struct sight *s, char *text, size_t size)
{
	const struct node *node = node_by_id(s->node);

	if (node == &drop_node) {
		const struct drop *reason = drop_by_id(s->packet.drop);

		snprintf(text, size, "%s: %s", reason->consumed ? "consumed" : "dropped", reason->name);
		return true;
	}
	if (node == &punt_node) {
		if (s->over)
			node->describe(text, size, &s->packet, s->data, s->held);
		else
			snprintf(text, size, "still waiting: %s", punt_by_id(s->packet.punt)->name);
		return s->over;
	}
	if (node->departed) {
		node->departed(text, size, s->out_port, s->worker);
		return true;
	}
	snprintf(text, size, "lost sight of it after %s", node->name);
	return false;
}

static void
take_step(struct watching *w, const struct sight *s)
{
	const struct node *node = node_by_id(s->node);
	struct followed **link = &on_their_way, *f;
	char words[WORDS] = "";

	while ((f = *link) != NULL && (f->arrived != s->packet.arrived || f->slot != s->slot))
		link = &f->next;
	if (!f) {
		// Without its first step it was answered already, or that step was lost.
		if (!node->arrival)
			return;
		if (followed_count == FOLLOWED_MAX || (f = calloc(1, sizeof(*f))) == NULL) {
			__atomic_fetch_add(&w->watch->lost, 1, __ATOMIC_RELAXED);
			return;
		}
		followed_count++;
		f->arrived = s->packet.arrived;
		f->slot = s->slot;
		*link = f;
	}
	f->last = s->time;
	f->over = end_of(s, f->end, sizeof(f->end));
	// The punt node was a step already when it was reached.
	if (f->count < TRACE_STEPS_MAX && !(s->over && node == &punt_node)) {
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
}

// Answer for a packet that has ended, or that has been silent for long. False: there is none.
static bool
answer_next(uint64_t now)
{
	uint64_t hz = rte_get_tsc_hz();

	for (struct followed **link = &on_their_way, *f; (f = *link) != NULL; link = &f->next) {
		// A worker's clock may be ahead of ours by a little.
		int64_t quiet = (int64_t)(now - f->last);

		if (quiet < (int64_t)(f->over ? hz / SETTLE_PER_SECOND : WAIT_SECONDS * hz))
			continue;
		*link = f->next;
		// The answer may end the call, and with it all of its other packets: this one is out of the list by then.
		answer_trace(watchers[f->slot], f);
		followed_free(f);
		return true;
	}
	return false;
}

// Workers have taken as many packets as requested, but not all of them came here: no others will.
static void
give_up(struct watching *w, uint64_t now)
{
	char text[128];

	if (__atomic_load_n(&w->watch->remaining, __ATOMIC_RELAXED) > 0 ||
		(int64_t)(now - w->last) < (int64_t)(WAIT_SECONDS * rte_get_tsc_hz()))
		return;
	for (const struct followed *f = on_their_way; f; f = f->next)
		if (f->slot == w->watch->slot)
			return;
	snprintf(text, sizeof(text),
		"count: %ld packets that matched are missing: they came faster than they could be taken", w->remaining);
	api_fail(w->call, ENOBUFS, text);
}

static void
answer_capture(struct watching *w, struct sight *s)
{
	static uint8_t frame[UINT16_MAX];
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	Sluice__V1__CapturedPacket captured = SLUICE__V1__CAPTURED_PACKET__INIT;
	uint32_t length = RTE_MIN(s->copy->pkt_len, (uint32_t)sizeof(frame));
	struct timespec now;

	if (!api_ready(w->call)) {
		__atomic_fetch_add(&w->watch->lost, 1, __ATOMIC_RELAXED);
		return;
	}
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
start(struct watching *w)
{
	char text[256];

	w->watch = watch_begin(&w->wish, text, sizeof(text));
	if (!w->watch) {
		int error = errno;

		rte_bpf_destroy(w->wish.filter.program);
		api_fail(w->call, error, text);
		return;
	}
	w->last = rte_rdtsc();
	watchers[w->watch->slot] = w;
}

// False: its filter is not compiled yet.
static bool
look_after(struct watching *w, unsigned milliseconds)
{
	char text[512];
	int error;

	if (!watch_filter_ready(w->filter, milliseconds)) {
		if (rte_rdtsc() - w->last < COMPILE_SECONDS * rte_get_tsc_hz())
			return false;
		api_fail_field(w->call, ETIMEDOUT, "filter",
			"filter: it takes too long to compile; write addresses instead of names, and fewer terms");
		return true;
	}
	error = watch_filter_take(w->filter, &w->wish.filter, text, sizeof(text));
	compiled(w);
	if (error)
		api_fail_field(w->call, error, "filter", text);
	else
		start(w);
	return true;
}

static void
poll(void *unused)
{
	struct sight *s;
	uint64_t now;

	for (unsigned i = 0; i < 512 && (s = sight_next()) != NULL; i++) {
		struct watching *w = watchers[s->slot];

		// Discard records of an earlier watch of the slot.
		if (w && w->watch->serial == s->serial) {
			w->last = s->time;
			if (w->wish.kind == WATCH_CAPTURE)
				answer_capture(w, s);
			else
				take_step(w, s);
		}
		sight_done(s);
	}
	now = rte_rdtsc();
	for (unsigned i = 0; on_their_way && i < 512 && answer_next(now); i++)
		;
	for (unsigned slot = 0; slot < WATCHES; slot++)
		if (watchers[slot])
			give_up(watchers[slot], now);
	// An answer may end any of them: the next round has the rest.
	for (struct watching *w = compiling; w; w = w->next)
		if (look_after(w, 0))
			break;
}

static void
begin(struct api_call *call, const struct watch *wish, const char *filter, int64_t count)
{
	struct watching *w = calloc(1, sizeof(*w));
	char text[256] = "there is no memory to watch packets";

	if (w && filter[0]) {
		w->filter = watch_filter_begin(filter, text, sizeof(text));
		if (!w->filter) {
			int error = errno;

			free(w);
			api_fail_field(call, error, "filter", text);
			return;
		}
	}
	if (!w) {
		api_fail(call, ENOMEM, text);
		return;
	}
	w->call = call;
	w->wish = *wish;
	w->remaining = count;
	w->last = rte_rdtsc();
	api_keep(call, ended, w);
	if (!w->filter) {
		start(w);
	} else if (!look_after(w, COMPILE_AT_ONCE)) {
		w->next = compiling;
		compiling = w;
	}
}

// False: the call has failed, because there is no session with this name.
static bool
found_session(struct api_call *call, const char *name, struct watch *wish)
{
	char text[512];

	if (!name[0])
		return true;
	wish->session = find_session ? find_session(name) : NO_SESSION;
	if (wish->session != NO_SESSION)
		return true;
	snprintf(text, sizeof(text), "session: there is no Session %s", name);
	api_fail(call, ENOENT, text);
	return false;
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
	if (!found_session(call, request->trace->session, &wish))
		return;
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
	char text[512];

	if (c->node[0]) {
		const struct node *node = node_by_name(c->node);

		if (!node || node->source) {
			snprintf(text, sizeof(text),
				"node: there is no node %s that packets pass; `sluice top` lists them", c->node);
			api_fail(call, ENOENT, text);
			return;
		}
		wish.node = node->id;
	}
	if (!found_session(call, c->session, &wish))
		return;
	begin(call, &wish, c->filter, count);
}

API_OPERATION(trace, SLUICE__V1__REQUEST__OPERATION_TRACE, serve_trace)
API_OPERATION(capture, SLUICE__V1__REQUEST__OPERATION_CAPTURE, serve_capture)

static int
poll_start(void)
{
	loop_poll(poll, NULL);
	return 0;
}

static struct part traces = {.name = "traces", .phase = PART_AFTER_WORKERS, .start = poll_start};
PART_REGISTER(traces)
