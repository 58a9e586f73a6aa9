// SPDX-License-Identifier: Apache-2.0
// The API's counters of sessions, and of drops by interface and by session.
#include <errno.h>
#include <stdio.h>

#include "core/drop.h"
#include "ether/interface.h"
#include "graph.pb-c.h"
#include "port/mac.h"
#include "server/api.h"
#include "server/event.h"
#include "server/object_list.h"
#include "server/watch_api.h"
#include "session/session.h"
#include "session/step.h"

struct row {
	Sluice__V1__SessionCounters counters;
	Sluice__V1__SessionFlowCounters flows[SESSION_FLOWS], *all[SESSION_FLOWS];
	char mac[MAC_TEXT_SIZE];
};

static void
fill(struct row *row, const struct object *object)
{
	Sluice__V1__SessionCounters *c = &row->counters;
	struct session_flow flows[SESSION_FLOWS];
	struct session_totals t;

	session_totals(session_of(object), &t);
	sluice__v1__session_counters__init(c);
	c->session = object->name;
	c->up_packets = t.packets[UP];
	c->up_bytes = t.bytes[UP];
	c->down_packets = t.packets[DOWN];
	c->down_bytes = t.bytes[DOWN];
	c->drops = t.drops;
	if (t.mac_known) {
		mac_text(row->mac, &t.mac);
		c->mac = row->mac;
	}
	c->flows = row->all;
	c->n_flows = session_steps_flows(session_of(object), flows);
	for (unsigned i = 0; i < c->n_flows; i++) {
		Sluice__V1__SessionFlowCounters *one = row->all[i] = &row->flows[i];

		sluice__v1__session_flow_counters__init(one);
		one->qfi = flows[i].qfi;
		one->up_packets = flows[i].packets[UP];
		one->up_bytes = flows[i].bytes[UP];
		one->down_packets = flows[i].packets[DOWN];
		one->down_bytes = flows[i].bytes[DOWN];
	}
}

size_t
session_final(const struct object *object, uint8_t *room, size_t size)
{
	struct row row;

	fill(&row, object);
	if (sluice__v1__session_counters__get_packed_size(&row.counters) > size)
		return 0;
	return sluice__v1__session_counters__pack(&row.counters, room);
}

// A page of all, or those asked for by name; names that no session has are left out.
static void
serve_session_counters(struct api_call *call, const void *asked)
{
	const Sluice__V1__SessionCountersQuery *query = asked;
	Sluice__V1__SessionCountersList answer = SLUICE__V1__SESSION_COUNTERS_LIST__INIT;
	size_t most = query->n_sessions ? query->n_sessions : api_limit(query->limit);
	const struct object *object;
	struct row *rows;
	uint64_t cursor;
	char token[24];

	if (!api_page(call, query->page, UINT64_MAX, &cursor))
		return;
	if (most > 100000) {
		api_fail(call, EINVAL, "sessions: at most 100000 names are accepted at once");
		return;
	}
	rows = api_rows(call, most, sizeof(*rows), &answer.sessions);
	if (!rows)
		return;
	for (size_t i = 0; i < most; i++) {
		object = query->n_sessions ? object_find(&session_kind, query->sessions[i])
					   : object_next(&session_kind, &cursor);
		if (!object && !query->n_sessions)
			break;
		if (object)
			fill(&rows[answer.n_sessions++], object);
	}
	if (!query->n_sessions && answer.n_sessions == most) {
		snprintf(token, sizeof(token), "%lu", cursor);
		answer.next_page = token;
	}
	api_answer(call, &answer.base);
}

static void
serve_session_totals(struct api_call *call, const void *query)
{
	Sluice__V1__SessionTotals answer = SLUICE__V1__SESSION_TOTALS__INIT;
	struct session_counters entered;
	struct drop_totals lost;

	drop_session_totals(ALL_SESSIONS, &lost);
	counters_sum(&session_counters, ALL_SESSIONS, &entered);
	answer.up_packets = entered.packets[UP];
	answer.up_bytes = entered.bytes[UP];
	answer.up_dropped_packets = lost.counted[UP];
	answer.up_dropped_bytes = lost.counted_bytes[UP];
	answer.down_packets = entered.packets[DOWN];
	answer.down_bytes = entered.bytes[DOWN];
	answer.down_dropped_packets = lost.counted[DOWN];
	answer.down_dropped_bytes = lost.counted_bytes[DOWN];
	api_answer(call, &answer.base);
}

static void
refuse_missing(struct api_call *call, const char *field, const struct kind *kind, const char *name)
{
	struct fault f;

	api_fail(call, fault(&f, ENOENT, "%s: there is no %s %s", field, kind->name, name), f.text);
}

static void
serve_drop_counters(struct api_call *call, const void *asked)
{
	const Sluice__V1__DropCountersQuery *query = asked;
	Sluice__V1__DropCountersList answer = SLUICE__V1__DROP_COUNTERS_LIST__INIT;
	Sluice__V1__DropCounters all[DROP_MAX + 1], *list[DROP_MAX + 1], *consumed[DROP_MAX];
	const struct object *interface = NULL, *session = NULL;
	struct drop_totals totals = {0};

	if (query->interface[0] && (interface = object_find(&interface_kind, query->interface)) == NULL) {
		refuse_missing(call, "interface", &interface_kind, query->interface);
		return;
	}
	if (query->session[0] && (session = object_find(&session_kind, query->session)) == NULL) {
		refuse_missing(call, "session", &session_kind, query->session);
		return;
	}
	// Before its parts, which workers count on.
	if (session)
		drop_session_totals(session_of(session), &totals);
	for (uint16_t id = 0; id < drop_count(); id++) {
		Sluice__V1__DropCounters *c = &all[answer.n_drops + answer.n_consumed];
		uint64_t packets = session     ? drop_of_session(session_of(session), id)
				   : interface ? drop_of_interface(interface_of(interface), id)
					       : drop_total(id);

		if (packets == 0)
			continue;
		sluice__v1__drop_counters__init(c);
		c->reason = (char *)drop_by_id(id)->name;
		c->description = (char *)drop_by_id(id)->description;
		c->packets = packets;
		if (drop_by_id(id)->consumed) {
			consumed[answer.n_consumed++] = c;
			continue;
		}
		list[answer.n_drops++] = c;
		totals.packets -= RTE_MIN(packets, totals.packets);
	}
	if (totals.packets > 0) {
		Sluice__V1__DropCounters *c = &all[answer.n_drops + answer.n_consumed];

		sluice__v1__drop_counters__init(c);
		c->reason = (char *)"other-reasons";
		c->description = (char *)"Dropped for reasons that there was no room to count for this session.";
		c->packets = totals.packets;
		list[answer.n_drops++] = c;
	}
	answer.drops = list;
	answer.consumed = consumed;
	api_answer(call, &answer.base);
}

STATE_QUERY(session_counters_query, sluice__v1__session_counters_query__descriptor, serve_session_counters)
STATE_QUERY(session_totals_query, sluice__v1__session_totals_query__descriptor, serve_session_totals)
STATE_QUERY(drop_counters_query, sluice__v1__drop_counters_query__descriptor, serve_drop_counters)

static void
name_session(const struct packet *p, Sluice__V1__PacketIn *in)
{
	const struct object *object = p->session == NO_SESSION ? NULL : session_object(p->session);

	if (object)
		in->session = object->name;
}

static uint32_t
find_session(const char *name)
{
	const struct object *object = object_find(&session_kind, name);

	return object ? session_of(object) : NO_SESSION;
}

static struct event_names names = {.name = name_session};
RTE_INIT(register_session_names)
{
	event_names_register(&names);
	watch_sessions(find_session);
}
