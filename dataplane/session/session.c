// SPDX-License-Identifier: Apache-2.0
// The kind Session: from a spec to the record that workers read, and back.
//
// A change does not disturb the parts that stay the same. First it gets everything that can fail; then it writes the record
// (record.c); then it gives back unused resources.
#include "session/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rcu.h"
#include "core/registry.h"
#include "fib/hop.h"
#include "fib/vrf.h"
#include "session/header.h"
#include "session/record.h"

struct slab sessions;
struct counters session_counters;
struct session_detail *session_details;

struct session_frame session_frames[SESSION_ACCESSES];

static struct session_core *cores;
static struct session_access *accesses[SESSION_ACCESSES];
static unsigned access_count;

void
session_access_register(struct session_access *access)
{
	if (access_count == SESSION_ACCESSES)
		registry_full("accesses of sessions", access->name, SESSION_ACCESSES, "SESSION_ACCESSES",
			"session/session.h");
	access->number = (uint8_t)access_count;
	session_frames[access_count] = access->frame;
	accesses[access_count++] = access;
}

int
session_find_access(const Sluice__V1__Access *spec, const struct session_access **access, struct fault *f)
{
	const struct session_access *otherwise = NULL;

	*access = NULL;
	for (unsigned i = 0; i < access_count; i++) {
		if (!accesses[i]->takes)
			otherwise = accesses[i];
		if (!accesses[i]->takes || !accesses[i]->takes(spec))
			continue;
		if (*access)
			return fault(f, EINVAL, "access: %s or %s, not both; leave the fields of one of them out",
				(*access)->name, accesses[i]->name);
		*access = accesses[i];
	}
	if (!*access)
		*access = otherwise;
	return 0;
}

void
session_describe_access(const struct session_key *key, char *text, size_t size)
{
	if (key->access && key->access->describe)
		key->access->describe(key, text, size);
	else
		snprintf(text, size, "%s", key->access ? key->access->name : "?");
}

const struct session_access *
session_access_named(const char *name)
{
	for (unsigned i = 0; i < access_count; i++)
		if (strcmp(accesses[i]->name, name) == 0)
			return accesses[i];
	return NULL;
}

void
session_core_register(struct session_core *core)
{
	core->next = cores;
	cores = core;
}

const struct session_core *
session_core_of(const Sluice__V1__Session *spec)
{
	const struct session_core *c = cores;

	while (c && !c->takes(spec))
		c = c->next;
	return c;
}

struct object *
session_object(uint32_t index)
{
	return index < sessions.used ? session_details[index].object : NULL;
}

const char *
session_name(uint32_t index)
{
	const struct object *object = session_object(index);

	return object ? object->name : "?";
}

bool
session_holds(uint32_t index, uint8_t family, const uint8_t *address)
{
	const struct session *s = session_at(index);
	const struct session_prefixes *prefixes = __atomic_load_n(&session_details[index].prefixes, __ATOMIC_ACQUIRE);
	uint32_t address4;

	memcpy(&address4, address, sizeof(address4));
	if (family == 4 ? session_first4(s, address4) : session_first6(s, address))
		return true;
	for (unsigned i = 0; prefixes && i < prefixes->count; i++)
		if (session_prefix_has(&prefixes->list[i], family, address))
			return true;
	return false;
}

void
session_totals(uint32_t index, struct session_totals *totals)
{
	struct session_counters entered;
	struct drop_totals lost;
	uint64_t seen = session_at(index)->seen;

	*totals = (struct session_totals){0};
	counters_sum(&session_counters, index, &entered);
	drop_session_totals(index, &lost);
	for (unsigned d = UP; d <= DOWN; d++) {
		// Workers count on while we read: never less than nothing.
		totals->packets[d] = entered.packets[d] - RTE_MIN(lost.counted[d], entered.packets[d]);
		totals->bytes[d] = entered.bytes[d] - RTE_MIN(lost.counted_bytes[d], entered.bytes[d]);
	}
	totals->drops = lost.packets;
	totals->mac_known = session_mac_known(session_at(index));
	memcpy(&totals->mac, &seen, sizeof(totals->mac));
}

int
session_mtu(const struct session_spec *spec, uint16_t link_mtu, struct fault *f)
{
	// The port's MTU counts headers of the access (RFC 4638).
	const struct session_access *access = spec->key.access;
	uint16_t most = (uint16_t)(link_mtu - access->overhead);

	if (spec->mtu > most)
		return fault(f, EINVAL, "policy.mtu: %u does not fit into the %s's %u%s%s; at most %u would", spec->mtu,
			access->need ? access->name : "port", link_mtu, access->overhead ? " with " : "",
			access->overhead ? access->name : "", most);
	return spec->mtu ? spec->mtu : most;
}

// ---- Objects and resources that a spec needs.

// The port that the access is on, or NULL.
static struct object *
port_under(const struct session_key *key, struct object *under)
{
	return key->access->need ? NULL : under;
}

static uint16_t
link_mtu(const struct session_key *key, const struct object *under)
{
	return key->access->mtu ? key->access->mtu(key, under) : port_of(under)->mtu;
}

static int
need_access(const Sluice__V1__Session *spec, struct session_plan *w, struct fault *f)
{
	struct session_key *key = &w->spec.key;
	int error;

	if (key->access->need)
		return key->access->need(spec->access, key, &w->under, f);
	error = object_need(&port_kind, spec->access->port, "access.port", &w->under, f);
	if (error)
		return error;
	if (!w->under)
		return fault(f, EINVAL, "access.port: must name a Port, unless the access is of another type");
	key->circuit.port = port_of(w->under)->id;
	return 0;
}

static int
need(const Sluice__V1__Session *spec, struct session_plan *w, struct fault *f)
{
	int error = session_spec_parse(spec, &w->spec, f);

	if (error == 0)
		error = need_access(spec, w, f);
	if (error == 0)
		error = session_steps_need(spec, &w->spec, &w->parts, f);
	if (error)
		return error;
	error = session_mtu(&w->spec, link_mtu(&w->spec.key, w->under), f);
	if (error < 0)
		return error;
	w->mtu = (uint16_t)error;
	w->core_kind = session_core_of(spec);
	if (!w->core_kind && spec->core_case != SLUICE__V1__SESSION__CORE__NOT_SET)
		return fault(f, EINVAL, "core: this data plane does not have number %d", (int)spec->core_case);
	return vrf_need(spec->vrf, "vrf", &w->vrf_index, &w->vrf, f);
}

// ---- Things to have and to give back.

static int
make_prefixes(struct session_plan *w, struct fault *f)
{
	size_t bytes = w->spec.prefix_count * sizeof(w->spec.prefixes[0]);

	w->prefixes = malloc(sizeof(*w->prefixes) + bytes);
	if (!w->prefixes)
		return fault(f, ENOMEM, "addresses: there is no memory for them");
	w->prefixes->count = w->spec.prefix_count;
	memcpy(w->prefixes->list, w->spec.prefixes, bytes);
	return 0;
}

static int
make_hop(uint32_t index, const struct session_detail *d, struct session_plan *w, struct fault *f)
{
	struct hop *hop;

	w->hop = d->hop;
	if (w->core_kind || w->spec.prefix_count == 0 || w->hop)
		return 0;
	w->hop = hop_new(HOP_FORWARD);
	if (w->hop == UINT32_MAX) {
		w->hop = 0;
		return fault(f, ENOSPC, "addresses: there is no room for more next hops");
	}
	hop = hop_at(w->hop);
	hop->session = index;
	hop->port = w->spec.key.circuit.port;
	hop->mtu = w->mtu;
	hop->chain = chain_of((const struct node *const[]){&session_down_node}, 1);
	w->made_hop = true;
	return 0;
}

static void
unmake(struct session_plan *w)
{
	session_steps_abandon(&w->had, &w->parts);
	if (w->made_hop)
		hop_retire(w->hop);
	free(w->prefixes);
	object_unuse(w->vrf);
}

// The objects that the session refers to from now on.
static void
keep(uint32_t index, const struct session_plan *w)
{
	struct session_detail *d = &session_details[index];

	d->under = w->under;
	d->vrf = w->vrf;
	session_steps_keep(index, &w->parts);
	object_use(w->under);
	d->core = w->core_kind;
	d->wanted_mtu = w->spec.mtu;
	d->hop = w->core_kind || w->spec.prefix_count == 0 ? 0 : w->hop;
}

// ---- Creating, changing, deleting.

static int
make_core(uint32_t index, const Sluice__V1__Session *spec, struct session_plan *w, struct fault *f)
{
	return w->core_kind ? w->core_kind->put(index, spec, &w->core, &w->encap, f) : 0;
}

static int
bind_core(uint32_t old, const struct session_plan *w, struct fault *f)
{
	return w->core_kind ? w->core_kind->bind(w->core, old, f) : 0;
}

// Bind all keys of a new session, whose record is complete. All or nothing.
static int
bind(uint32_t index, const struct session_detail *d, const Sluice__V1__Session *spec, const struct session_plan *w,
	struct fault *f)
{
	int error = session_routes_add(d, w->vrf_index, spec, w, f);

	if (error)
		return error;
	error = session_bind(index, &d->key, NULL, f);
	if (error == 0) {
		error = bind_core(UINT32_MAX, w, f);
		if (error)
			session_unbind(index, &d->key);
	}
	if (error)
		session_routes_undo(d, w->vrf_index, w);
	return error;
}

// All that is a session's own beside its record and its keys.
static int
make_parts(uint32_t index, const Sluice__V1__Session *spec, struct session_plan *w, struct fault *f)
{
	struct session_detail *d = &session_details[index];
	const struct session_step_change step = {.session = index,
		.port = port_under(&w->spec.key, w->under),
		.old_port = d->under ? port_under(&d->key, d->under) : NULL};
	int error = session_apart(index, spec, &w->spec, f);

	session_steps_had(index, &w->had);
	if (error == 0)
		error = session_steps_prepare(&step, &w->had, &w->parts, f);
	if (error == 0)
		error = make_prefixes(w, f);
	if (error == 0)
		error = make_hop(index, d, w, f);
	return error;
}

static int
create(struct object *object, const Sluice__V1__Session *spec, struct session_plan *w, struct fault *f)
{
	uint32_t index = slab_take(&sessions);
	struct session_detail *d;
	struct session *s;
	int error;

	if (index == UINT32_MAX)
		return fault(f, ENOSPC, "%d sessions are the most there can be", SESSION_LIMIT);
	s = session_at(index);
	d = &session_details[index];
	if (d->used) {
		counters_clear(&session_counters, index);
		drop_forget_session(index);
	}
	*d = (struct session_detail){.used = true, .frames = w->spec.frames, .sibling = NO_SESSION, .key = w->spec.key};
	s->flags = 0;
	session_steps_clear(index);
	error = make_parts(index, spec, w, f);
	if (error)
		goto out;
	session_write_header(s, &d->key, session_usual_tpids(&d->key));
	error = make_core(index, spec, w, f);
	if (error)
		goto out;
	session_write_record(s, d, w);
	error = bind(index, d, spec, w, f);
	if (error) {
		if (w->core_kind)
			w->core_kind->remove(w->core);
		d->prefixes = NULL;
		rcu_retire(free, w->prefixes);
		w->prefixes = NULL;
	}
out:
	if (error) {
		slab_give_later(&sessions, index);
		return error;
	}
	keep(index, w);
	d->object = object;
	object->state = (void *)(uintptr_t)index;
	return 0;
}

// Remove keys and routes of the session that the new spec does not have.
static void
unbind(const struct session_detail *old, const struct session *was, const struct session_detail *now,
	const struct session_plan *w)
{
	session_routes_release(old, was->vrf, now, w);
	if (old->core)
		old->core->remove(was->core);
}

// Give back the rest of its resources, once nothing leads to them.
static void
release(uint32_t index, const struct session_detail *old, const struct session_parts *had,
	const struct session_detail *now)
{
	if (old->hop && old->hop != now->hop)
		hop_retire(old->hop);
	session_steps_release(index, had, !now->under);
	object_unuse(old->under);
	object_unuse(old->vrf);
	rcu_retire(free, old->prefixes);
}

// Lead packets of the new keys to the session: its record is consistent in either form. All or nothing.
static int
bind_more(uint32_t index, const struct session_plan *w, bool elsewhere, struct fault *f)
{
	const struct session_detail *d = &session_details[index];
	int error = elsewhere ? session_bind(index, &w->spec.key, &d->key, f) : 0;

	if (error)
		return error;
	error = bind_core(d->core == w->core_kind && d->core ? session_at(index)->core : UINT32_MAX, w, f);
	if (error && elsewhere)
		session_unbind(index, &w->spec.key);
	return error;
}

// To another access key, if it is another, and another core.
static int
rebind(uint32_t index, const Sluice__V1__Session *spec, struct session_plan *w, struct session_move **move,
	struct fault *f)
{
	const struct session_key *old = &session_details[index].key;
	bool elsewhere = !session_same_access(old, &w->spec.key);
	int error = make_core(index, spec, w, f);

	if (error)
		return error;
	if (elsewhere || old->pdu_session != w->spec.key.pdu_session || old->has_mac != w->spec.key.has_mac ||
		!rte_is_same_ether_addr(&old->mac, &w->spec.key.mac)) {
		*move = session_move_new(index, w);
		if (!*move)
			error = fault(f, ENOMEM, "access: there is no memory to change it");
		else
			(*move)->apart = elsewhere;
	}
	if (error == 0)
		error = bind_more(index, w, elsewhere, f);
	if (error && *move)
		session_move_abandon(*move);
	if (error && w->core_kind)
		w->core_kind->remove(w->core);
	return error;
}

static int
change(struct object *object, const Sluice__V1__Session *spec, struct session_plan *w, struct fault *f)
{
	uint32_t index = session_of(object);
	struct session *s = session_at(index);
	struct session_detail *d = &session_details[index], old;
	struct session_move *move = NULL;
	struct session was;
	int error = 0;

	session_settle(index);
	old = *d;
	was = *s;
	if (!d->frames != !w->spec.frames)
		return fault(f, EINVAL, "%s: cannot change; delete the session and create it again",
			d->frames ? d->frames : w->spec.frames);
	if (d->key.access->out != w->spec.key.access->out)
		return fault(f, EINVAL, "access: %s cannot become %s; delete the session and create it again",
			d->key.access->name, w->spec.key.access->name);
	error = make_parts(index, spec, w, f);
	if (error == 0)
		error = session_routes_add(d, s->vrf, spec, w, f);
	if (error)
		return error;
	error = rebind(index, spec, w, &move, f);
	if (error) {
		session_routes_undo(d, s->vrf, w);
		return error;
	}
	session_write_record(s, d, w);
	keep(index, w);
	if (d->hop) {
		hop_at(d->hop)->mtu = w->mtu;
		hop_at(d->hop)->port = w->spec.key.circuit.port;
	}
	if (!move)
		memcpy(d->key.own, w->spec.key.own, sizeof(d->key.own));
	if (move) {
		session_move_start(move);
		if (move->apart)
			session_unbind(index, &old.key);
	}
	unbind(&old, &was, d, w);
	release(index, &old, &w->had, d);
	if (move)
		rcu_retire(session_move_end, move);
	return 0;
}

static int
session_put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	struct session_plan w = {.core = UINT32_MAX};
	int error = need(spec, &w, f);

	if (error)
		return error;
	error = old ? change(object, spec, &w, f) : create(object, spec, &w, f);
	if (error)
		unmake(&w);
	return error;
}

static int
session_delete(struct object *object, const void *spec, struct fault *f)
{
	uint32_t index = session_of(object);
	struct session_detail *d = &session_details[index], old, gone;
	struct session was;
	struct session_plan nothing = {.core = UINT32_MAX};

	session_settle(index);
	old = *d;
	was = *session_at(index);
	gone = (struct session_detail){.used = true,
		.key = old.key,
		.sibling = old.sibling, // for packets that are on their way along the list
		.mtu = old.mtu,
		.has_core = old.has_core};
	session_unbind(index, &old.key);
	unbind(&old, &was, &gone, &nothing);
	session_unresolvable(index);
	*d = gone;
	session_steps_had(index, &nothing.had);
	session_steps_clear(index);
	release(index, &old, &nothing.had, d);
	drop_forget_session(index);
	slab_give_later(&sessions, index);
	return 0;
}

void
session_follow(uint32_t index)
{
	struct session_detail *d = &session_details[index];
	uint16_t most = (uint16_t)(link_mtu(&d->key, d->under) - d->key.access->overhead);

	session_write_mtu(session_at(index), d, d->wanted_mtu ? RTE_MIN(d->wanted_mtu, most) : most);
	if (d->hop)
		hop_at(d->hop)->mtu = d->mtu;
}

// A port's MAC is in the headers of its sessions, and its MTU is theirs unless they say otherwise.
static void
port_changed(struct port *port)
{
	static struct {
		struct rte_ether_addr mac;
		uint16_t mtu;
	} known[PORT_MAX];

	if (!port->object || port->id >= PORT_MAX)
		return;
	if (rte_is_same_ether_addr(&known[port->id].mac, &port->mac) && known[port->id].mtu == port->mtu)
		return;
	known[port->id].mac = port->mac;
	known[port->id].mtu = port->mtu;
	for (uint32_t index = 0; index < sessions.used; index++) {
		struct session_detail *d = &session_details[index];
		struct session *s = session_at(index);

		if (!d->object || d->under != port->object)
			continue;
		session_settle(index);
		session_header_source(s->header, s->header_length, port->mac.addr_bytes);
		session_follow(index);
	}
}

static struct port_watcher watcher = {.changed = port_changed};

static int
session_start(void)
{
	int error = slab_create(&sessions, sizeof(struct session), SESSION_LIMIT);

	if (error == 0)
		error = counters_create(&session_counters, sizeof(struct session_counters), SESSION_LIMIT + 1);
	if (error)
		return error;
	session_details = slab_reserve(sizeof(*session_details) * SESSION_LIMIT);
	if (!session_details)
		return -ENOMEM;
	error = session_steps_start();
	if (error == 0)
		error = session_resolve_start();
	for (unsigned i = 0; i < access_count && error == 0; i++)
		error = accesses[i]->start ? accesses[i]->start() : 0;
	for (const struct session_core *c = cores; c && error == 0; c = c->next)
		error = c->start ? c->start() : 0;
	if (error)
		return error;
	circuit_sessions(&session_up4_node, &session_up6_node, &session_frames_up_node);
	port_watch(&watcher);
	return 0;
}

struct kind session_kind = {
	.name = "Session",
	.spec = &sluice__v1__session__descriptor,
	.put = session_put,
	.delete = session_delete,
	.final = session_final,
	.start = session_start,
};
KIND_REGISTER(session_kind)
