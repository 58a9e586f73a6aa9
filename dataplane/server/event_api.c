// SPDX-License-Identifier: Apache-2.0
// The API's Watch: events and punted packets for clients that asked for them.
#include "server/event.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "core/drop.h"
#include "core/loop.h"
#include "core/punt_watch.h"
#include "core/trace.h"
#include "server/api.h"

DROP(drop_unwatched, "punt-not-watched",
	"A packet for the control plane of a kind that no agent asks for: the agent that serves this protocol is not "
	"connected, or does not serve it. A trace of the packet shows the kind.")
DROP(drop_watcher_slow, "punt-watcher-slow", "A packet for the control plane that the agent did not take fast enough.")

struct watcher {
	struct api_call *call;
	uint64_t punts; // by reason's id
	bool changes, unsent;
	uint64_t lost;
	struct watcher *next;
};

static struct watcher *watchers; // the newest first
static struct event_names *namers;

void
event_names_register(struct event_names *names)
{
	names->next = namers;
	namers = names;
}

static void
send_lost(struct watcher *w)
{
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;
	Sluice__V1__Event lost = SLUICE__V1__EVENT__INIT;

	if (w->lost == 0)
		return;
	lost.event_case = SLUICE__V1__EVENT__EVENT_LOST;
	lost.lost = w->lost;
	w->lost = 0;
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_EVENT;
	reply.event = &lost;
	api_reply(w->call, &reply, false);
}

// False: the client does not read, and loses it.
static bool
add(struct watcher *w, const Sluice__V1__Event *event)
{
	Sluice__V1__Reply reply = SLUICE__V1__REPLY__INIT;

	if (!api_ready(w->call)) {
		w->lost++;
		return false;
	}
	send_lost(w);
	reply.answer_case = SLUICE__V1__REPLY__ANSWER_EVENT;
	reply.event = (Sluice__V1__Event *)event;
	api_add(w->call, &reply);
	return true;
}

static void
send(struct watcher *w, const Sluice__V1__Event *event)
{
	if (add(w, event))
		api_send(w->call);
}

// Report lost changes as soon as possible: there may be no further change.
static void
look_at_lost(void *unused)
{
	for (struct watcher *w = watchers; w; w = w->next)
		if (w->changes && api_ready(w->call))
			send_lost(w);
}

// Packets of one turn of the main thread: a system call for each costs more than the packet.
static void
send_packets(void *unused)
{
	for (struct watcher *w = watchers; w; w = w->next)
		if (w->unsent) {
			w->unsent = false;
			api_send(w->call);
		}
}

void
event_start(void)
{
	loop_every(1000000000, look_at_lost, NULL);
	loop_poll(send_packets, NULL);
}

static void
send_changed(
	struct watcher *w, const struct api_client *by, Sluice__V1__Object *object, Sluice__V1__ObjectName *deleted)
{
	Sluice__V1__Event event = SLUICE__V1__EVENT__INIT;
	Sluice__V1__Changed changed = SLUICE__V1__CHANGED__INIT;

	changed.generation = object_generation();
	if (by)
		changed.by = (char *)api_client_name(by);
	changed.object = object;
	changed.deleted = deleted;
	event.event_case = SLUICE__V1__EVENT__EVENT_CHANGED;
	event.changed = &changed;
	send(w, &event);
}

bool
event_changes_watched(const struct api_client *by)
{
	const struct watcher *w = watchers;

	while (w && (!w->changes || api_client(w->call) == by))
		w = w->next;
	return w != NULL;
}

void
event_changed(const struct api_client *by, Sluice__V1__Object *object, Sluice__V1__ObjectName *deleted)
{
	for (struct watcher *w = watchers; w; w = w->next)
		if (w->changes && api_client(w->call) != by)
			send_changed(w, by, object, deleted);
}

void
event_send(const Sluice__V1__Event *event)
{
	for (struct watcher *w = watchers; w; w = w->next)
		send(w, event);
}

bool
punt_watched(const struct packet *p)
{
	for (const struct watcher *w = watchers; w; w = w->next)
		if (w->punts & 1ul << p->punt)
			return true;
	return false;
}

// The newest client that asks for the reason and reads its events; if none reads, the newest, which loses the event. NULL: none asks for it.
static struct watcher *
watcher_of(const struct punt *reason)
{
	struct watcher *newest = NULL;

	for (struct watcher *w = watchers; w; w = w->next) {
		if (!(w->punts & 1ul << reason->id))
			continue;
		if (api_ready(w->call))
			return w;
		if (!newest)
			newest = w;
	}
	return newest;
}

static void
packet_in(struct rte_mbuf *m, const struct punt *reason)
{
	static uint8_t linear[UINT16_MAX];
	Sluice__V1__Event event = SLUICE__V1__EVENT__INIT;
	Sluice__V1__PacketIn in = SLUICE__V1__PACKET_IN__INIT;
	struct packet *p = packet_of(m);
	struct watcher *w = watcher_of(reason);

	if (!w) {
		drop_now(m, &drop_unwatched);
		return;
	}
	if (p->l2_length <= m->data_off)
		packet_advance(m, -(int)p->l2_length);
	in.reason = (char *)reason->name;
	for (const struct event_names *n = namers; n; n = n->next)
		n->name(p, &in);
	in.frame.len = RTE_MIN(m->pkt_len, (uint32_t)sizeof(linear));
	in.frame.data = (uint8_t *)rte_pktmbuf_read(m, 0, (uint32_t)in.frame.len, linear);
	event.event_case = SLUICE__V1__EVENT__EVENT_PACKET_IN;
	event.packet_in = &in;
	if (add(w, &event)) {
		w->unsent = true;
		trace_end(m, false);
		rte_pktmbuf_free(m);
	} else {
		drop_now(m, &drop_watcher_slow);
	}
}

static void
ended(void *argument)
{
	struct watcher *w = argument, **link = &watchers;

	while (*link != w)
		link = &(*link)->next;
	*link = w->next;
	free(w);
}

static void
serve_watch(struct api_call *call, const Sluice__V1__Request *request)
{
	struct watcher *w = calloc(1, sizeof(*w));

	if (!w) {
		api_fail(call, ENOMEM, "there is no memory for another watcher");
		return;
	}
	for (size_t i = 0; i < request->watch->n_punts; i++) {
		const struct punt *reason = punt_by_name(request->watch->punts[i]);

		if (!reason) {
			free(w);
			api_fail(call, ENOENT, "punts: this data plane knows no such reason");
			return;
		}
		w->punts |= 1ul << reason->id;
	}
	w->changes = request->watch->changes;
	w->call = call;
	w->next = watchers;
	watchers = w;
	api_keep(call, ended, w);
	if (w->changes)
		send_changed(w, NULL, NULL, NULL);
}

API_OPERATION(watch, SLUICE__V1__REQUEST__OPERATION_WATCH, serve_watch)

RTE_INIT(register_packet_in)
{
	punt_watch(packet_in);
}
