// SPDX-License-Identifier: Apache-2.0
// The kind SecurityPolicy (RFC 4301 section 4.4.1), and the feature of interfaces that it is.
//
// The matcher of access control lists holds the policies of an interface: one list for each direction. A range of addresses needs one rule for
// each of its prefixes. Each change rebuilds the lists: at once if the interface has few policies, else 20 ms later, once for all changes of that
// time. A policy that needs more rules than a list can have is refused at once. A rebuild that finds no memory is tried again each second, and
// packets meet the previous lists meanwhile.
#include "ipsec/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/address.h"
#include "core/loop.h"
#include "core/rcu.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "ipsec.pb-c.h"
#include "ipsec/nodes.h"
#include "ipsec/selector.h"
#include "port/port.h"
#include "port/twin.h"

enum {
	REBUILD_AT_ONCE = 64,            // policies of an interface: with more, the rebuild waits for REBUILD_INTERVAL
	REBUILD_INTERVAL = 20 * 1000000, // nanoseconds
	RETRY_TURNS = 50,                // a rebuild without memory is tried again after so many intervals
	RULES_MAX = 1 << 16,             // of an interface in one direction
	PREFIXES_MAX = 2 * 128           // of a range of addresses
};

struct policy_detail {
	struct object *object, *interface_object;
	struct ipsec_selectors *selectors; // NULL: every packet
	uint32_t rules;                    // that the selectors need
	uint32_t interface;
	uint32_t next; // of the interface, with a higher priority number: index + 1, or 0
	uint32_t priority;
	Sluice__V1__PolicyAction action;
	Sluice__V1__PolicyDirection direction;
};

const struct ipsec_database **ipsec_databases[INTERFACE_WAYS];
uint32_t ipsec_check_chains[2];

static struct policy_detail *details; // by tunnel record
static uint32_t *firsts;              // by interface: index + 1, or 0
static bool *waiting;                 // by interface: its lists must be rebuilt
static bool any_waiting;
static unsigned retry; // turns until the next rebuild; 0: the last one succeeded
static uint32_t untagged[PORT_MAX] = {
	[0 ... PORT_MAX - 1] = NO_INTERFACE}; // by port: the untagged interface with outbound entries

uint32_t
ipsec_policy_interface(uint16_t port)
{
	return untagged[port % PORT_MAX];
}

// ---- Selectors as rules.

struct prefix {
	uint8_t address[16];
	uint8_t length;
};

// The last address of the prefix that begins at `low`; false: a prefix of this length does not begin there.
static bool
last_of(const uint8_t *low, unsigned length, unsigned bytes, uint8_t *last)
{
	memcpy(last, low, bytes);
	for (unsigned i = 0; i < bytes; i++) {
		uint8_t mask = prefix_mask(length, i);

		if (low[i] & ~mask)
			return false;
		last[i] |= (uint8_t)~mask;
	}
	return true;
}

// Count the address up; false: it was the highest.
static bool
step(uint8_t *address, unsigned bytes)
{
	for (unsigned i = bytes; i-- > 0;)
		if (++address[i] != 0)
			return true;
	return false;
}

static unsigned
prefixes_of(const uint8_t *first, const uint8_t *last, unsigned bytes, struct prefix prefixes[PREFIXES_MAX])
{
	uint8_t low[16] = {0}, high[16];
	unsigned count = 0;

	memcpy(low, first, bytes);
	while (count < PREFIXES_MAX && memcmp(low, last, bytes) <= 0) {
		unsigned length = bytes * 8;

		// The widest prefix that begins at `low` and ends at or before the last address.
		while (length > 0 && last_of(low, length - 1, bytes, high) && memcmp(high, last, bytes) <= 0)
			length--;
		last_of(low, length, bytes, high);
		prefixes[count] = (struct prefix){.length = (uint8_t)length};
		memcpy(prefixes[count].address, low, bytes);
		count++;
		memcpy(low, high, bytes);
		if (!step(low, bytes))
			break;
	}
	return count;
}

// The number of rules that selectors need, without a limit.
static uint32_t
rules_of(const struct ipsec_selectors *selectors)
{
	static struct prefix prefixes[PREFIXES_MAX];
	uint32_t sum = 0;

	if (!selectors)
		return 1;
	for (size_t i = 0; i < selectors->count; i++) {
		const struct ipsec_selector *s = &selectors->list[i];
		unsigned bytes = s->family == 6 ? 16 : 4;

		sum += s->family ? prefixes_of(s->local_first, s->local_last, bytes, prefixes) *
					   prefixes_of(s->remote_first, s->remote_last, bytes, prefixes)
				 : 1;
	}
	return sum;
}

struct rules {
	struct acl_rule *list;
	struct ipsec_entry *entries; // entries[0] belongs to no rule
	size_t count;
	uint32_t first_ports;
};

static int
add_rule(struct rules *r, const struct acl_rule *rule, struct ipsec_entry entry, struct fault *f)
{
	if (r->count % 256 == 0) {
		struct acl_rule *list = realloc(r->list, (r->count + 256) * sizeof(*list));
		struct ipsec_entry *entries;

		if (!list)
			return fault(f, ENOMEM, "selectors: out of memory");
		r->list = list;
		entries = realloc(r->entries, (r->count + 257) * sizeof(*entries));
		if (!entries)
			return fault(f, ENOMEM, "selectors: out of memory");
		r->entries = entries;
	}
	r->list[r->count++] = *rule;
	r->entries[r->count] = entry;
	if (rule->reads && !r->first_ports)
		r->first_ports = (uint32_t)r->count;
	return 0;
}

static int
add_selector(struct rules *r, const struct ipsec_selector *s, bool outbound, struct ipsec_entry entry, struct fault *f)
{
	static struct prefix sources[PREFIXES_MAX], destinations[PREFIXES_MAX];
	unsigned bytes = s->family == 6 ? 16 : 4, source_count = 1, destination_count = 1;
	struct acl_rule rule = {.permit = true,
		.family = s->family,
		.protocol = (int16_t)(s->any_protocol ? -1 : s->protocol),
		.reads = s->ports ? RULE_READS_PORTS : 0,
		.source_low = outbound ? s->local_low : s->remote_low,
		.source_high = outbound ? s->local_high : s->remote_high,
		.destination_low = outbound ? s->remote_low : s->local_low,
		.destination_high = outbound ? s->remote_high : s->local_high};
	int error = 0;

	if (s->family) {
		source_count = prefixes_of(outbound ? s->local_first : s->remote_first,
			outbound ? s->local_last : s->remote_last, bytes, sources);
		destination_count = prefixes_of(outbound ? s->remote_first : s->local_first,
			outbound ? s->remote_last : s->local_last, bytes, destinations);
	}
	for (unsigned i = 0; i < source_count && !error; i++)
		for (unsigned j = 0; j < destination_count && !error; j++) {
			if (s->family) {
				memcpy(rule.source, sources[i].address, sizeof(rule.source));
				memcpy(rule.destination, destinations[j].address, sizeof(rule.destination));
				rule.source_length = sources[i].length;
				rule.destination_length = destinations[j].length;
			}
			error = add_rule(r, &rule, entry, f);
		}
	return error;
}

// ---- Databases.

static bool
goes(const struct policy_detail *d, enum interface_way way)
{
	return d->direction == SLUICE__V1__POLICY_DIRECTION__BOTH_DIRECTIONS ||
	       (d->direction == SLUICE__V1__POLICY_DIRECTION__OUTBOUND_ONLY) == (way == INTERFACE_OUT);
}

static bool
has(uint32_t interface, enum interface_way way)
{
	for (uint32_t link = firsts ? firsts[interface] : 0; link != 0; link = details[link - 1].next)
		if (goes(&details[link - 1], way))
			return true;
	return false;
}

static int
add_policy(struct rules *r, uint32_t index, enum interface_way way, struct fault *f)
{
	static const struct ipsec_selector every = {
		.any_protocol = true, .local_high = UINT16_MAX, .remote_high = UINT16_MAX};
	const struct policy_detail *d = &details[index];
	struct ipsec_entry entry = {index, d->action == SLUICE__V1__POLICY_ACTION__PROTECT  ? IPSEC_PROTECT
					   : d->action == SLUICE__V1__POLICY_ACTION__BYPASS ? IPSEC_BYPASS
											    : IPSEC_DISCARD};
	int error = 0;

	if (!d->selectors)
		return add_selector(r, &every, true, entry, f);
	for (size_t i = 0; i < d->selectors->count && !error; i++)
		error = add_selector(r, &d->selectors->list[i], way == INTERFACE_OUT, entry, f);
	return error;
}

static void
database_free(void *memory)
{
	struct ipsec_database *database = memory;

	acl_list_destroy(database->list);
	free(database);
}

static int
build(uint32_t interface, enum interface_way way, struct ipsec_database **made, struct fault *f)
{
	struct rules r = {0};
	char name[128];
	int error = 0;

	*made = NULL;
	for (uint32_t link = firsts[interface]; link != 0 && !error; link = details[link - 1].next)
		if (goes(&details[link - 1], way))
			error = add_policy(&r, link - 1, way, f);
	if (!error && r.count > 0) {
		*made = malloc(sizeof(**made) + (r.count + 1) * sizeof(r.entries[0]));
		if (!*made)
			error = fault(f, ENOMEM, "selectors: out of memory");
	}
	if (*made) {
		r.entries[0] = (struct ipsec_entry){NO_TUNNEL, IPSEC_BYPASS};
		(*made)->first_ports = r.first_ports;
		(*made)->count = (uint32_t)r.count;
		memcpy((*made)->entries, r.entries, (r.count + 1) * sizeof(r.entries[0]));
		snprintf(name, sizeof(name), "policies of %.64s", interface_detail(interface)->object->name);
		error = acl_list_create(name, r.list, r.count, false, NULL, &(*made)->list, f);
		if (error) {
			free(*made);
			*made = NULL;
		}
	}
	free(r.list);
	free(r.entries);
	return error;
}

static int
rebuild(uint32_t interface, struct fault *f)
{
	const struct circuit *circuit = &interface_at(interface)->circuit;
	struct ipsec_database *made[INTERFACE_WAYS] = {NULL};
	int error = build(interface, INTERFACE_IN, &made[INTERFACE_IN], f);

	if (!error)
		error = build(interface, INTERFACE_OUT, &made[INTERFACE_OUT], f);
	if (error) {
		if (made[INTERFACE_IN])
			database_free(made[INTERFACE_IN]);
		return error;
	}
	for (unsigned way = 0; way < INTERFACE_WAYS; way++) {
		void *old = (void *)(uintptr_t)ipsec_databases[way][interface];

		__atomic_store_n(&ipsec_databases[way][interface], made[way], __ATOMIC_RELEASE);
		if (old)
			rcu_retire(database_free, old);
	}
	waiting[interface] = false;
	if (circuit->port != NO_PORT && circuit->outer_vlan == 0)
		untagged[circuit->port % PORT_MAX] = made[INTERFACE_OUT] ? interface : NO_INTERFACE;
	interface_features_changed(interface);
	return 0;
}

static unsigned
count_of(uint32_t interface)
{
	unsigned count = 0;

	for (uint32_t link = firsts[interface]; link != 0; link = details[link - 1].next)
		count++;
	return count;
}

// Refuse policies of an interface that need more rules than a list can have.
static int
check_rules(uint32_t interface, struct fault *f)
{
	for (enum interface_way way = 0; way < INTERFACE_WAYS; way++) {
		uint64_t sum = 0;

		for (uint32_t link = firsts[interface]; link != 0; link = details[link - 1].next)
			sum += goes(&details[link - 1], way) ? details[link - 1].rules : 0;
		if (sum > RULES_MAX)
			return fault(f, ENOSPC,
				"selectors: the policies of the interface need %llu pairs of prefixes, and %d is the "
				"limit; "
				"use fewer or wider address ranges",
				(unsigned long long)sum, RULES_MAX);
	}
	return 0;
}

// The policies of an interface have changed.
static int
changed(uint32_t interface, struct fault *f)
{
	int error = check_rules(interface, f);

	if (error)
		return error;
	if (count_of(interface) <= REBUILD_AT_ONCE)
		return rebuild(interface, f);
	waiting[interface] = any_waiting = true;
	return 0;
}

static void
turn(void *unused)
{
	bool failed = false, before = retry > 0;

	if (!any_waiting || (retry > 1 && --retry))
		return;
	for (uint32_t i = 0; i < interfaces.used; i++) {
		struct fault f;

		if (!waiting[i] || !rebuild(i, &f))
			continue;
		failed = true;
		if (!before)
			fprintf(stderr,
				"ipsec: SecurityPolicies of Interface \"%.64s\": %s; packets meet the policies as they "
				"were "
				"before the last changes; trying again each second\n",
				interface_detail(i)->object->name, f.text);
	}
	if (before && !failed)
		fprintf(stderr, "ipsec: all changes of SecurityPolicies are in force again\n");
	any_waiting = failed;
	retry = failed ? RETRY_TURNS : 0;
}

// ---- The kind.

static void
link_to_interface(uint32_t index)
{
	uint32_t *link = &firsts[details[index].interface];

	while (*link != 0 && details[*link - 1].priority < details[index].priority)
		link = &details[*link - 1].next;
	details[index].next = *link;
	*link = index + 1;
}

static void
unlink_from_interface(uint32_t index)
{
	uint32_t *link = &firsts[details[index].interface];

	while (*link != 0 && *link != index + 1)
		link = &details[*link - 1].next;
	if (*link != 0)
		*link = details[index].next;
}

static int
create(struct object *object, const Sluice__V1__SecurityPolicy *spec, struct ipsec_selectors *selectors,
	struct fault *f)
{
	struct policy_detail d = {.object = object,
		.selectors = selectors,
		.rules = rules_of(selectors),
		.priority = spec->priority,
		.action = spec->action,
		.direction = spec->direction};
	uint32_t index, hop;
	int error = spec->interface[0] == '\0'
			    ? fault(f, EINVAL, "interface: must name an Interface")
			    : object_need(&interface_kind, spec->interface, "interface", &d.interface_object, f);

	if (error)
		return error;
	d.interface = interface_of(d.interface_object);
	for (uint32_t link = firsts[d.interface]; link != 0; link = details[link - 1].next)
		if (details[link - 1].priority == spec->priority)
			return fault(f, EEXIST,
				"priority: SecurityPolicy \"%.64s\" of this interface has %u already; choose another",
				details[link - 1].object->name, spec->priority);
	hop = hop_new(HOP_FORWARD);
	index = hop == UINT32_MAX ? UINT32_MAX : ipsec_tunnel_new(object);
	if (index == UINT32_MAX) {
		if (hop != UINT32_MAX)
			hop_retire(hop);
		return fault(f, ENOSPC, "%d tunnels and policies exist, which is the limit; delete one first",
			IPSEC_TUNNEL_LIMIT);
	}
	hop_at(hop)->own[0] = index;
	hop_at(hop)->interface = d.interface;
	hop_at(hop)->chain = chain_of((const struct node *const[]){&esp_policy_node}, 1);
	ipsec_tunnel_at(index)->policy_hop = hop;
	ipsec_tunnel_at(index)->policy_of = d.interface;
	ipsec_tunnel_at(index)->policy_selectors = selectors;
	details[index] = d;
	link_to_interface(index);
	error = changed(d.interface, f);
	if (error) {
		unlink_from_interface(index);
		details[index] = (struct policy_detail){0};
		hop_retire(hop);
		ipsec_tunnel_give(index);
		return error;
	}
	object_use(d.interface_object);
	object->state = (void *)(uintptr_t)index;
	return 0;
}

static int
policy_put(struct object *object, const void *spec_, const void *old_, struct fault *f)
{
	const Sluice__V1__SecurityPolicy *spec = spec_, *old = old_;
	struct policy_detail *d, before;
	struct ipsec_selectors *selectors;
	int error;

	if ((unsigned)spec->action > SLUICE__V1__POLICY_ACTION__DISCARD)
		return fault(f, EINVAL, "action: %d is unknown", (int)spec->action);
	if ((unsigned)spec->direction > SLUICE__V1__POLICY_DIRECTION__INBOUND_ONLY)
		return fault(f, EINVAL, "direction: %d is unknown", (int)spec->direction);
	if (old && (strcmp(old->interface, spec->interface) || old->priority != spec->priority))
		return fault(f, EINVAL, "interface, priority: immutable; delete the policy first");
	error = ipsec_selectors_parse(spec->selectors, spec->n_selectors, &selectors, f);
	if (error)
		return error;
	if (!old) {
		error = create(object, spec, selectors, f);
		if (error)
			free(selectors);
		return error;
	}
	d = &details[ipsec_tunnel_of(object)];
	before = *d;
	d->selectors = selectors;
	d->rules = rules_of(selectors);
	d->action = spec->action;
	d->direction = spec->direction;
	error = changed(d->interface, f);
	if (error) {
		*d = before;
		free(selectors);
		return error;
	}
	__atomic_store_n(&ipsec_tunnel_at(ipsec_tunnel_of(object))->policy_selectors, selectors, __ATOMIC_RELEASE);
	if (before.selectors)
		rcu_retire(free, before.selectors);
	return 0;
}

static int
policy_delete(struct object *object, const void *spec, struct fault *f)
{
	uint32_t index = ipsec_tunnel_of(object), interface = details[index].interface;
	struct policy_detail d = details[index];
	struct fault ignored;

	unlink_from_interface(index);
	details[index] = (struct policy_detail){0};
	// Without memory the previous lists stay until the next try. Packets that only this policy protected are dropped for lack of an SA.
	if (changed(interface, &ignored))
		waiting[interface] = any_waiting = true;
	object_unuse(d.interface_object);
	hop_retire(ipsec_tunnel_at(index)->policy_hop);
	// A list that is rebuilt later refers to the record until then.
	__atomic_store_n(&ipsec_tunnel_at(index)->policy_selectors, NULL, __ATOMIC_RELEASE);
	if (d.selectors)
		rcu_retire(free, d.selectors);
	ipsec_tunnel_give(index);
	return 0;
}

static int
policy_start(void)
{
	for (unsigned way = 0; way < INTERFACE_WAYS; way++)
		ipsec_databases[way] = slab_reserve(sizeof(*ipsec_databases[way]) * INTERFACE_LIMIT);
	details = slab_reserve(sizeof(*details) * IPSEC_TUNNEL_LIMIT);
	firsts = slab_reserve(sizeof(*firsts) * INTERFACE_LIMIT);
	waiting = slab_reserve(sizeof(*waiting) * INTERFACE_LIMIT);
	ipsec_check_chains[0] = chain_of((const struct node *const[]){&ipsec_policy_check_node, &ip4_lookup_node}, 2);
	ipsec_check_chains[1] = chain_of((const struct node *const[]){&ipsec_policy_check_node, &ip6_lookup_node}, 2);
	twin_watch_output(ipsec_policy_twin);
	loop_every(REBUILD_INTERVAL, turn, NULL);
	return ipsec_databases[INTERFACE_IN] && ipsec_databases[INTERFACE_OUT] && details && firsts && waiting
		       ? 0
		       : -ENOMEM;
}

struct kind security_policy_kind = {
	.name = "SecurityPolicy",
	.spec = &sluice__v1__security_policy__descriptor,
	.put = policy_put,
	.delete = policy_delete,
	.start = policy_start,
};
KIND_REGISTER(security_policy_kind)

static const char *const after[] = {"acl", NULL};
static struct interface_feature policy_feature = {
	.order = {.name = "ipsec", .after = after},
	.node = {[INTERFACE_IN] = &ipsec_policy_in_node, [INTERFACE_OUT] = &ipsec_policy_out_node},
	.has = has,
};
INTERFACE_FEATURE_REGISTER(policy_feature)
