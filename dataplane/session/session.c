// The kind Session: from a spec to the record that workers read, and back.
//
// Changing a session never disturbs what stays the same: everything that can fail is had first; then the record is written
// (record.c); then what is no longer used is given back.
#include "session/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"
#include "core/rcu.h"
#include "flow/flow.h"
#include "hqos/hqos.h"
#include "ip/hop.h"
#include "ip/vrf.h"
#include "meter/meter.h"
#include "session/header.h"
#include "session/record.h"

struct slab sessions;
struct counters session_counters;
struct session_detail *session_details;

static struct session_core *cores;
const struct session_access *session_pppoe;

void
session_access_register(const struct session_access *access)
{
	session_pppoe = access;
}

void
session_core_register(struct session_core *core)
{
	core->next = cores;
	cores = core;
}

static const struct session_core *
core_of(int which)
{
	for (const struct session_core *c = cores; c; c = c->next)
		if (c->which == which)
			return c;
	return NULL;
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

// ---- What a spec needs.

// A profile and a group of queues: both or none.
static int
need_qos(const char *profile, const char *group, enum direction direction, struct session_wanted *w, struct fault *f)
{
	const char *up = direction == UP ? "Up" : "";
	char field[32];
	int error;

	if (!profile[0] && !group[0])
		return 0;
	if (!profile[0] != !group[0])
		return fault(f, EINVAL, "policy.qos%s%s: it needs policy.qos%s%s beside it",
			profile[0] ? "Profile" : "Group", up, profile[0] ? "Group" : "Profile", up);
	snprintf(field, sizeof(field), "policy.qosProfile%s", up);
	error = object_need(&qos_profile_kind, profile, field, &w->qos_profile[direction], f);
	snprintf(field, sizeof(field), "policy.qosGroup%s", up);
	return error ? error : object_need(&qos_group_kind, group, field, &w->qos_group[direction], f);
}

static int
need_policy(const Sluice__V1__Policy *policy, struct session_wanted *w, struct fault *f)
{
	int error;

	if (!policy)
		return 0;
	error = object_need(&acl_kind, policy->acl_up, "policy.aclUp", &w->acl[UP], f);
	if (error == 0)
		error = object_need(&acl_kind, policy->acl_down, "policy.aclDown", &w->acl[DOWN], f);
	if (error == 0)
		error = object_need(&meter_kind, policy->meter_up, "policy.meterUp", &w->meter_profile[UP], f);
	if (error == 0)
		error = object_need(&meter_kind, policy->meter_down, "policy.meterDown", &w->meter_profile[DOWN], f);
	if (error == 0)
		error = object_need(&flow_kind, policy->flow_profile, "policy.flowProfile", &w->flows, f);
	if (error == 0)
		error = need_qos(policy->qos_profile, policy->qos_group, DOWN, w, f);
	return error ? error : need_qos(policy->qos_profile_up, policy->qos_group_up, UP, w, f);
}

static int
need(const Sluice__V1__Session *spec, struct session_wanted *w, struct fault *f)
{
	int error = session_spec_parse(spec, &w->spec, f);

	if (error == 0)
		error = object_need(&port_kind, spec->access->port, "access.port", &w->port, f);
	if (error == 0)
		error = need_policy(spec->policy, w, f);
	if (error)
		return error;
	w->spec.key.circuit.port = port_of(w->port)->id;
	error = session_mtu(&w->spec, port_of(w->port)->mtu, f);
	if (error < 0)
		return error;
	w->mtu = (uint16_t)error;
	if (spec->core_case != SLUICE__V1__SESSION__CORE__NOT_SET) {
		w->core_kind = core_of((int)spec->core_case);
		if (!w->core_kind)
			return fault(f, EINVAL, "core: this data plane does not have number %d", (int)spec->core_case);
	}
	return vrf_need(spec->vrf, "vrf", &w->vrf_index, &w->vrf, f);
}

// ---- Things to have and to give back.

static int
make_meters(const struct session_detail *d, const struct session *s, struct session_wanted *w, struct fault *f)
{
	const uint32_t have[2] = {s->meter_up, s->meter_down};

	for (unsigned i = UP; i <= DOWN; i++) {
		w->meter[i] = NO_METER;
		if (!w->meter_profile[i])
			continue;
		if (w->meter_profile[i] == d->meter[i]) {
			w->meter[i] = have[i];
			continue;
		}
		w->meter[i] = meter_new(w->meter_profile[i]);
		if (w->meter[i] == NO_METER)
			return fault(f, ENOSPC, "policy.meter%s: there is no room for more token buckets",
				i == UP ? "Up" : "Down");
		w->made_meter[i] = true;
	}
	return 0;
}

static int
make_queues(const struct session_detail *d, struct session_wanted *w, struct fault *f)
{
	for (unsigned i = UP; i <= DOWN; i++) {
		const struct object *group = w->qos_group[i];

		if (!group)
			continue;
		w->queue[i] = d->queue[i];
		if (hqos_same_scheduler(d->queue[i], group) && (i == UP || d->port == w->port))
			continue;
		w->queue[i] = hqos_take(
			group, i == DOWN ? w->port : NULL, i == UP ? "policy.qosGroupUp" : "policy.qosGroup", f);
		if (w->queue[i] == NO_QUEUE)
			return -EINVAL;
		w->made_queue[i] = true;
	}
	return 0;
}

// Before the chains say that packets wait there.
static void
use_queues(uint32_t index, const struct session_wanted *w)
{
	for (unsigned i = UP; i <= DOWN; i++)
		if (w->queue[i] != NO_QUEUE)
			hqos_use(w->queue[i], index, (enum direction)i, w->qos_group[i], w->qos_profile[i]);
		else
			hqos_use_none(index, (enum direction)i);
}

static int
make_prefixes(struct session_wanted *w, struct fault *f)
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
make_hop(uint32_t index, const struct session_detail *d, struct session_wanted *w, struct fault *f)
{
	struct hop *hop;

	w->hop = d->hop;
	if (w->core_kind || w->spec.prefix_count == 0 || w->hop)
		return 0;
	w->hop = hop_new(HOP_SESSION);
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
unmake(struct session_wanted *w)
{
	for (unsigned i = UP; i <= DOWN; i++) {
		if (w->made_meter[i])
			meter_retire(w->meter[i]);
		if (w->made_queue[i])
			hqos_give_back(w->queue[i], true);
	}
	if (w->made_hop)
		hop_retire(w->hop);
	free(w->prefixes);
	object_unuse(w->vrf);
}

// The objects that the session refers to from now on.
static void
keep(struct session_detail *d, const struct session_wanted *w)
{
	d->port = w->port;
	d->vrf = w->vrf;
	for (unsigned i = UP; i <= DOWN; i++) {
		d->acl[i] = w->acl[i];
		d->meter[i] = w->meter_profile[i];
		object_use(w->acl[i]);
		object_use(w->meter_profile[i]);
		d->qos_profile[i] = w->qos_profile[i];
		d->qos_group[i] = w->qos_group[i];
		d->queue[i] = w->queue[i];
		object_use(w->qos_profile[i]);
		object_use(w->qos_group[i]);
	}
	d->flows = w->flows;
	object_use(w->flows);
	object_use(w->port);
	d->core = w->core_kind;
	d->wanted_mtu = w->spec.mtu;
	d->hop = w->core_kind || w->spec.prefix_count == 0 ? 0 : w->hop;
}

// ---- Creating, changing, deleting.

static int
make_core(uint32_t index, const Sluice__V1__Session *spec, struct session_wanted *w, struct fault *f)
{
	return w->core_kind ? w->core_kind->put(index, spec, &w->core, &w->encap, f) : 0;
}

static int
bind_core(uint32_t old, const struct session_wanted *w, struct fault *f)
{
	return w->core_kind ? w->core_kind->bind(w->core, old, f) : 0;
}

// All by which packets find a new session, whose record is whole. All or nothing.
static int
bind(uint32_t index, const struct session_detail *d, const Sluice__V1__Session *spec, const struct session_wanted *w,
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
make_parts(uint32_t index, const Sluice__V1__Session *spec, struct session_wanted *w, struct fault *f)
{
	struct session *s = session_at(index);
	struct session_detail *d = &session_details[index];
	int error = session_apart(index, spec, &w->spec, f);

	if (error == 0)
		error = make_meters(d, s, w, f);
	if (error == 0)
		error = make_queues(d, w, f);
	if (error == 0)
		error = make_prefixes(w, f);
	if (error == 0)
		error = make_hop(index, d, w, f);
	return error;
}

static int
create(struct object *object, const Sluice__V1__Session *spec, struct session_wanted *w, struct fault *f)
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
	s->acl_up = s->acl_down = NO_ACL;
	s->meter_up = s->meter_down = NO_METER;
	error = make_parts(index, spec, w, f);
	if (error)
		goto out;
	session_write_header(s, &d->key, &port_of(w->port)->mac, session_usual_tpids(&d->key));
	error = make_core(index, spec, w, f);
	if (error)
		goto out;
	use_queues(index, w);
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
	keep(d, w);
	d->object = object;
	object->state = (void *)(uintptr_t)index;
	return 0;
}

// The ways to the session that it had and the spec no longer wants.
static void
unbind(const struct session_detail *old, const struct session *was, const struct session_detail *now,
	const struct session_wanted *w)
{
	session_routes_release(old, was->vrf, now, w);
	if (old->core)
		old->core->remove(was->core);
}

// What else it had, once nothing leads to it any more.
static void
release(const struct session_detail *old, const struct session *was, const struct session_detail *now)
{
	if (old->hop && old->hop != now->hop)
		hop_retire(old->hop);
	if (old->meter[UP] && old->meter[UP] != now->meter[UP])
		meter_retire(was->meter_up);
	if (old->meter[DOWN] && old->meter[DOWN] != now->meter[DOWN])
		meter_retire(was->meter_down);
	for (unsigned i = UP; i <= DOWN; i++) {
		if (old->queue[i] != NO_QUEUE && old->queue[i] != now->queue[i])
			hqos_give_back(old->queue[i], !now->port);
		object_unuse(old->acl[i]);
		object_unuse(old->meter[i]);
		object_unuse(old->qos_profile[i]);
		object_unuse(old->qos_group[i]);
	}
	object_unuse(old->flows);
	object_unuse(old->port);
	object_unuse(old->vrf);
	rcu_retire(free, old->prefixes);
}

// The packets that find the session by what is new are its own as much as the others are: its record is whole as it is. All or nothing.
static int
bind_more(uint32_t index, const struct session_wanted *w, bool elsewhere, struct fault *f)
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
rebind(uint32_t index, const Sluice__V1__Session *spec, struct session_wanted *w, struct session_move **move,
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
change(struct object *object, const Sluice__V1__Session *spec, struct session_wanted *w, struct fault *f)
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
	if (d->frames != w->spec.frames)
		return fault(f, EINVAL, "gtpu.ethernet: cannot change; delete the session and create it again");
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
	use_queues(index, w);
	session_write_record(s, d, w);
	keep(d, w);
	if (d->hop) {
		hop_at(d->hop)->mtu = w->mtu;
		hop_at(d->hop)->port = w->spec.key.circuit.port;
	}
	if (move) {
		session_move_start(move);
		if (move->apart)
			session_unbind(index, &old.key);
	}
	unbind(&old, &was, d, w);
	release(&old, &was, d);
	if (move)
		rcu_retire(session_move_end, move);
	return 0;
}

static int
session_put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	struct session_wanted w = {.core = UINT32_MAX};
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
	struct session_wanted nothing = {.core = UINT32_MAX};

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
	release(&old, &was, d);
	use_queues(index, &nothing);
	drop_forget_session(index);
	slab_give_later(&sessions, index);
	return 0;
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
		uint16_t most;

		if (!d->object || d->port != port->object)
			continue;
		session_settle(index);
		most = (uint16_t)(port->mtu - (d->key.pppoe_session ? PPPOE_OVERHEAD : 0));
		session_header_source(s->header, s->header_length, port->mac.addr_bytes);
		session_write_mtu(s, d, d->wanted_mtu ? RTE_MIN(d->wanted_mtu, most) : most);
		if (d->hop)
			hop_at(d->hop)->mtu = d->mtu;
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
	error = session_resolve_start();
	if (error == 0)
		error = session_pppoe->start();
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
	.start = session_start,
};
KIND_REGISTER(session_kind)
