// SPDX-License-Identifier: Apache-2.0
// The kind Interface.
#include "ether/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/drop.h"
#include "core/rcu.h"
#include "ether/feature.h"
#include "interface.pb-c.h"
#include "port/twin.h"
#include "server/event.h"

struct slab interfaces;
struct counters interface_counters;
static struct interface_detail details[INTERFACE_LIMIT];
static struct interface_watcher *watchers;
static struct interface_type *types;
static const struct interface_routing *routing;

void
interface_routing_register(const struct interface_routing *it)
{
	routing = it;
}

void
interface_type_register(struct interface_type *type)
{
	type->next = types;
	types = type;
}

struct interface_detail *
interface_detail(uint32_t index)
{
	return &details[index];
}

void
interface_watch(struct interface_watcher *watcher)
{
	// In the order in which they asked, so that routes are there before neighbours look for them.
	struct interface_watcher **link = &watchers;

	while (*link)
		link = &(*link)->next;
	watcher->next = NULL;
	*link = watcher;
}

unsigned
interface_header(uint32_t index, const struct rte_ether_addr *destination, uint16_t type, uint8_t room[32])
{
	const struct interface *i = interface_at(index);
	uint8_t header[22];
	unsigned length = 12;
	uint16_t word;

	memcpy(header, destination, 6);
	memcpy(header + 6, &ports[i->circuit.port % PORT_MAX].mac, 6);
	if (i->circuit.outer_vlan) {
		memcpy(header + length, &i->outer_tpid, 2);
		word = htons(i->circuit.outer_vlan);
		memcpy(header + length + 2, &word, 2);
		length += 4;
	}
	if (i->circuit.inner_vlan) {
		memcpy(header + length, &i->inner_tpid, 2);
		word = htons(i->circuit.inner_vlan);
		memcpy(header + length + 2, &word, 2);
		length += 4;
	}
	word = htons(type);
	memcpy(header + length, &word, 2);
	length += 2;
	memset(room, 0, 32 - length);
	memcpy(room + 32 - length, header, length);
	return length;
}

static int
parse_address(const char *text, struct interface_address *a, struct fault *f)
{
	const char *slash = strchr(text, '/');
	char ip[INET6_ADDRSTRLEN];
	char *end;
	unsigned long length;

	if (!slash || (size_t)(slash - text) >= sizeof(ip))
		goto wrong;
	memcpy(ip, text, (size_t)(slash - text));
	ip[slash - text] = '\0';
	*a = (struct interface_address){0};
	a->family = strchr(ip, ':') ? 6 : 4;
	if (inet_pton(a->family == 6 ? AF_INET6 : AF_INET, ip, a->bytes) != 1)
		goto wrong;
	length = strtoul(slash + 1, &end, 10);
	if (end == slash + 1 || *end || length == 0 || length > (a->family == 6 ? 128 : 32))
		goto wrong;
	a->length = (uint8_t)length;
	if (a->family == 4 ? a->bytes[0] == 0 || a->bytes[0] >= 224 : a->bytes[0] == 0xff)
		goto wrong;
	return 0;
wrong:
	return fault(f, EINVAL,
		"addresses: a unicast address and prefix length like 192.0.2.1/24 is accepted, not %.64s", text);
}

static int
parse_addresses(const Sluice__V1__Interface *spec, struct interface_address **addresses, struct fault *f)
{
	int error = 0;

	*addresses = NULL;
	if (spec->n_addresses == 0)
		return 0;
	*addresses = calloc(spec->n_addresses, sizeof(**addresses));
	if (!*addresses)
		return fault(f, ENOMEM, "there is no memory for the addresses");
	for (size_t i = 0; i < spec->n_addresses && !error; i++) {
		error = parse_address(spec->addresses[i], &(*addresses)[i], f);
		for (size_t j = 0; j < i && !error; j++)
			if (memcmp(&(*addresses)[i], &(*addresses)[j], sizeof(**addresses)) == 0)
				error = fault(f, EINVAL, "addresses: duplicate address %.64s", spec->addresses[i]);
	}
	if (error) {
		free(*addresses);
		*addresses = NULL;
	}
	return error;
}

// ---- A VLAN of a port.

static bool
vlan_takes(const Sluice__V1__Interface *spec)
{
	return spec->port[0] != '\0';
}

static int
vlan_need(const Sluice__V1__Interface *spec, struct object **under, uint32_t *own, struct fault *f)
{
	return object_need(&port_kind, spec->port, "port", under, f);
}

static int
vlan_check(uint32_t index, struct fault *f)
{
	return circuit_check_interface(&interface_at(index)->circuit, f);
}

static int
vlan_bind(uint32_t index, struct fault *f)
{
	return circuit_bind_interface(&interface_at(index)->circuit, index, f);
}

static void
vlan_unbind(uint32_t index)
{
	circuit_unbind_interface(&interface_at(index)->circuit);
}

static uint16_t
vlan_mtu(const struct object *under)
{
	return port_of(under)->mtu;
}

static bool
vlan_up(uint32_t index)
{
	uint16_t port = interface_at(index)->circuit.port;

	return port < PORT_MAX && ports[port].up;
}

static struct interface_type vlan = {
	.name = "VLAN of a port",
	.takes = vlan_takes,
	.need = vlan_need,
	.check = vlan_check,
	.bind = vlan_bind,
	.unbind = vlan_unbind,
	.mtu = vlan_mtu,
	.up = vlan_up,
};
INTERFACE_TYPE_REGISTER(vlan)

// ---- Objects that a spec refers to.

struct references {
	const struct interface_type *type;
	struct object *under, *vrf, *unnumbered;
	interface_objects features;
	uint16_t vrf_index;
	uint32_t own;
};

static int
find_type(const Sluice__V1__Interface *spec, const struct interface_type **type, struct fault *f)
{
	*type = NULL;
	for (const struct interface_type *t = types; t; t = t->next) {
		if (!t->takes(spec))
			continue;
		if (*type)
			return fault(f, EINVAL,
				"the interface is a %s or a %s, not both; leave the field of one of them out", t->name,
				(*type)->name);
		*type = t;
	}
	return 0;
}

static int
resolve(const Sluice__V1__Interface *spec, struct references *r, struct fault *f)
{
	int error = find_type(spec, &r->type, f);

	if (!error && r->type)
		error = r->type->need(spec, &r->under, &r->own, f);
	if (!error)
		error = routing->vrf_need(spec->vrf, "vrf", &r->vrf_index, &r->vrf, f);
	object_unuse(r->vrf); // use() counts it with the others
	if (!error)
		error = interface_features_need(spec, r->features, f);
	if (!error)
		error = object_need(&interface_kind, spec->unnumbered, "unnumbered", &r->unnumbered, f);
	return error;
}

static void
use(const struct references *r, bool begin)
{
	void (*count)(struct object * object) = begin ? object_use : object_unuse;

	count(r->under);
	count(r->vrf);
	count(r->unnumbered);
	for (unsigned i = 0; i < INTERFACE_FEATURES; i++)
		for (unsigned way = 0; way < INTERFACE_WAYS; way++)
			count(r->features[i][way]);
}

static void
set_features(uint32_t index, struct references *r)
{
	const struct node *steps[INTERFACE_FEATURES + 1];
	struct interface *i = interface_at(index);
	unsigned count;

	interface_features_publish(index, r->features);
	count = interface_steps(index, INTERFACE_IN, steps);
	steps[count] = routing->look_up4;
	__atomic_store_n(&i->chain4, chain_of(steps, count + 1), __ATOMIC_RELEASE);
	steps[count] = routing->look_up6;
	__atomic_store_n(&i->chain6, chain_of(steps, count + 1), __ATOMIC_RELEASE);
}

static uint16_t
mtu_of(const Sluice__V1__Interface *spec, const struct interface_type *type, const struct object *under)
{
	return (uint16_t)(spec->mtu ? spec->mtu : type ? type->mtu(under) : UINT16_MAX);
}

static enum interface_link
link_of(const struct interface_type *type)
{
	return !type ? INTERFACE_LOOPBACK : type->output ? INTERFACE_POINT : INTERFACE_ETHERNET;
}

static bool
is_among(const struct interface_detail *d, const struct interface_address *address)
{
	for (unsigned i = 0; i < d->address_count; i++)
		if (memcmp(&d->addresses[i], address, sizeof(*address)) == 0)
			return true;
	return false;
}

// The twin has the addresses of the port's untagged interface. Addresses that stay are not touched: daemons' routes
// depend on them.
static void
twin_addresses(uint32_t index, const struct interface_detail *old, const struct interface_detail *new)
{
	const struct interface *i = interface_at(index);

	if (i->circuit.port == NO_PORT || i->circuit.outer_vlan)
		return;
	for (unsigned n = 0; n < old->address_count; n++) {
		const struct interface_address *a = &old->addresses[n];

		if (!is_among(new, a))
			twin_address(&ports[i->circuit.port], false, a->family, a->bytes, a->length);
	}
	for (unsigned n = 0; n < new->address_count; n++) {
		const struct interface_address *a = &new->addresses[n];

		if (!is_among(old, a))
			twin_address(&ports[i->circuit.port], true, a->family, a->bytes, a->length);
	}
}

static void
tell_removed(uint32_t index, const struct interface_watcher *until)
{
	for (struct interface_watcher *w = watchers; w && w != until; w = w->next)
		w->removed(index);
}

static int
create(struct object *object, const Sluice__V1__Interface *spec, struct references *r,
	struct interface_address *addresses, struct fault *f)
{
	uint32_t index = slab_take(&interfaces);
	struct interface *i;
	int error = 0;

	if (index == UINT32_MAX)
		return fault(f, ENOSPC, "there can be %d interfaces at most", INTERFACE_LIMIT);
	i = interface_at(index);
	*i = (struct interface){
		.vrf = r->vrf_index,
		.mtu = mtu_of(spec, r->type, r->under),
		.circuit = {r->type == &vlan ? port_of(r->under)->id : NO_PORT, (uint16_t)spec->outer_vlan,
			(uint16_t)spec->inner_vlan},
		.outer_tpid = htons(RTE_ETHER_TYPE_VLAN),
		.inner_tpid = htons(RTE_ETHER_TYPE_VLAN),
		.proxy_arp = spec->proxy_arp,
		.present = true,
		.link = link_of(r->type),
		.addresses_of = r->unnumbered ? interface_of(r->unnumbered) : index,
		.own = r->own,
	};
	set_features(index, r);
	counters_clear(&interface_counters, index);
	drop_forget_interface(index);
	details[index] = (struct interface_detail){.object = object,
		.type = r->type,
		.under = r->under,
		.addresses = addresses,
		.address_count = (unsigned)spec->n_addresses};
	object->state = (void *)(uintptr_t)index;
	if (r->type && r->type->check)
		error = r->type->check(index, f);
	for (struct interface_watcher *w = watchers; w && !error; w = w->next) {
		error = w->added ? w->added(index, f) : 0;
		if (error)
			tell_removed(index, w);
	}
	// The interface can answer before the first packet finds it.
	if (r->type && !error) {
		error = r->type->bind(index, f);
		if (error)
			tell_removed(index, NULL);
	}
	if (error) {
		i->present = false;
		details[index] = (struct interface_detail){0};
		slab_give_later(&interfaces, index);
		return error;
	}
	twin_addresses(index, &(struct interface_detail){0}, &details[index]);
	return 0;
}

static int
change(uint32_t index, const Sluice__V1__Interface *spec, struct references *r, struct references *was,
	struct interface_address *addresses, struct fault *f)
{
	struct interface *i = interface_at(index), before = *i;
	struct interface_detail *d = &details[index], old = *d;
	int error = 0;

	i->mtu = mtu_of(spec, r->type, r->under);
	i->proxy_arp = spec->proxy_arp;
	set_features(index, r);
	d->addresses = addresses;
	d->address_count = (unsigned)spec->n_addresses;
	for (struct interface_watcher *w = watchers; w && !error; w = w->next)
		error = w->changed(index, old.addresses, old.address_count, f);
	if (error) {
		// All watchers return to the old interface, which they accepted once.
		struct fault ignored;

		i->mtu = before.mtu;
		i->proxy_arp = before.proxy_arp;
		set_features(index, was);
		*d = old;
		for (struct interface_watcher *w = watchers; w; w = w->next)
			w->changed(index, addresses, (unsigned)spec->n_addresses, &ignored);
	} else {
		twin_addresses(index, &old, d);
		free(old.addresses);
	}
	return error;
}

static int
interface_put(struct object *object, const void *spec_, const void *old_, struct fault *f)
{
	const Sluice__V1__Interface *spec = spec_, *old = old_;
	struct references r = {0}, before = {0};
	struct interface_address *addresses;
	int error;

	if (!spec->port[0] && spec->outer_vlan)
		return fault(f, EINVAL, "outerVlan: an interface without a port has no VLAN; name a port");
	if (spec->unnumbered[0] && spec->n_addresses)
		return fault(f, EINVAL, "unnumbered: an interface with addresses of its own is not unnumbered");
	if (old && (strcmp(spec->port, old->port) || strcmp(spec->vrf, old->vrf) ||
			   strcmp(spec->unnumbered, old->unnumbered) || spec->outer_vlan != old->outer_vlan ||
			   spec->inner_vlan != old->inner_vlan))
		return fault(f, EINVAL,
			"port, outerVlan, innerVlan, vrf, unnumbered: they cannot change while the interface exists; "
			"delete it first");
	error = resolve(spec, &r, f);
	if (!error)
		error = parse_addresses(spec, &addresses, f);
	if (error)
		return error;
	if (old)
		resolve(old, &before, &(struct fault){0});
	if (old && (before.type != r.type || before.under != r.under)) {
		error = fault(f, EINVAL,
			"the interface is a %s, and cannot be on another one while it exists; delete it first",
			before.type ? before.type->name : "loopback");
	} else if (old) {
		error = change(interface_of(object), spec, &r, &before, addresses, f);
	} else {
		error = create(object, spec, &r, addresses, f);
	}
	if (error) {
		free(addresses);
		return error;
	}
	use(&r, true);
	if (old)
		use(&before, false);
	return 0;
}

static int
interface_delete(struct object *object, const void *spec, struct fault *f)
{
	uint32_t index = interface_of(object);
	struct interface *i = interface_at(index);
	struct references r = {0};

	resolve(spec, &r, f);
	if (r.type)
		r.type->unbind(index);
	twin_addresses(index, &details[index], &(struct interface_detail){0});
	tell_removed(index, NULL);
	i->present = false;
	free(details[index].addresses);
	details[index] = (struct interface_detail){0};
	use(&r, false);
	slab_give_later(&interfaces, index);
	return 0;
}

// The spec of an interface that exists, or NULL.
static Sluice__V1__Interface *
spec_of(uint32_t index)
{
	const struct object *object = details[index].object;

	return object && object->spec ? sluice__v1__interface__unpack(NULL, object->spec_length, object->spec) : NULL;
}

static void
has_changed(uint32_t index, Sluice__V1__Interface *spec)
{
	struct fault ignored;

	sluice__v1__interface__free_unpacked(spec, NULL);
	for (struct interface_watcher *w = watchers; w; w = w->next)
		w->changed(index, details[index].addresses, details[index].address_count, &ignored);
}

void
interface_follow(uint32_t index)
{
	const struct interface_detail *d = &details[index];
	Sluice__V1__Interface *spec = spec_of(index);

	if (!spec)
		return;
	interface_at(index)->mtu = mtu_of(spec, d->type, d->under);
	has_changed(index, spec);
}

void
interface_features_changed(uint32_t index)
{
	Sluice__V1__Interface *spec = spec_of(index);
	struct references r = {0};
	struct fault ignored;

	if (!spec)
		return;
	if (!resolve(spec, &r, &ignored))
		set_features(index, &r);
	has_changed(index, spec);
}

// An interface whose MTU is its port's follows it.
static void
port_changed(struct port *port)
{
	for (uint32_t index = 0; port->object && index < interfaces.used; index++)
		if (interface_at(index)->circuit.port == port->id)
			interface_follow(index);
}

static void
name_interface(const struct packet *p, Sluice__V1__PacketIn *in)
{
	if (p->interface < INTERFACE_LIMIT && details[p->interface].object)
		in->interface = details[p->interface].object->name;
}

static struct event_names names = {.name = name_interface};
static struct port_watcher port_watcher = {.changed = port_changed};

static int
interface_start(void)
{
	int error = interface_features_start();

	if (!error)
		error = slab_create(&interfaces, sizeof(struct interface), INTERFACE_LIMIT);
	if (!error)
		error = counters_create(&interface_counters, sizeof(struct interface_counters), INTERFACE_LIMIT);
	event_names_register(&names);
	port_watch(&port_watcher);
	return error;
}

struct kind interface_kind = {
	.name = "Interface",
	.spec = &sluice__v1__interface__descriptor,
	.put = interface_put,
	.delete = interface_delete,
	.start = interface_start,
};
KIND_REGISTER(interface_kind)
