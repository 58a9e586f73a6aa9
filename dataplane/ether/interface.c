// The kind Interface.
#include "ether/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"
#include "core/drop.h"
#include "core/event.h"
#include "core/rcu.h"
#include "interface.pb-c.h"
#include "port/twin.h"

enum { ADDRESSES_MOST = 256 };

struct slab interfaces;
struct counters interface_counters;
static struct interface_detail details[INTERFACE_LIMIT];
static struct interface_watcher *watchers;
static const struct interface_routing *routing;

void
interface_routing_register(const struct interface_routing *it)
{
	routing = it;
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
	if (spec->n_addresses > ADDRESSES_MOST)
		return fault(f, EINVAL, "addresses: at most %d are accepted", ADDRESSES_MOST);
	if (spec->n_addresses == 0)
		return 0;
	*addresses = calloc(spec->n_addresses, sizeof(**addresses));
	if (!*addresses)
		return fault(f, ENOMEM, "there is no memory for the addresses");
	for (size_t i = 0; i < spec->n_addresses && !error; i++) {
		error = parse_address(spec->addresses[i], &(*addresses)[i], f);
		for (size_t j = 0; j < i && !error; j++)
			if (memcmp(&(*addresses)[i], &(*addresses)[j], sizeof(**addresses)) == 0)
				error = fault(f, EINVAL, "addresses: %.64s is there twice", spec->addresses[i]);
	}
	if (error) {
		free(*addresses);
		*addresses = NULL;
	}
	return error;
}

struct references {
	struct object *port, *vrf, *acl_in, *acl_out, *unnumbered;
	uint16_t vrf_index;
};

static int
resolve(const Sluice__V1__Interface *spec, struct references *r, struct fault *f)
{
	int error = object_need(&port_kind, spec->port, "port", &r->port, f);

	if (!error)
		error = routing->vrf_need(spec->vrf, "vrf", &r->vrf_index, &r->vrf, f);
	object_unuse(r->vrf); // use() counts it with the others
	if (!error)
		error = object_need(&acl_kind, spec->acl_in, "aclIn", &r->acl_in, f);
	if (!error)
		error = object_need(&acl_kind, spec->acl_out, "aclOut", &r->acl_out, f);
	if (!error)
		error = object_need(&interface_kind, spec->unnumbered, "unnumbered", &r->unnumbered, f);
	return error;
}

static void
use(const struct references *r, bool begin)
{
	struct object *const all[] = {r->port, r->vrf, r->acl_in, r->acl_out, r->unnumbered};

	for (unsigned i = 0; i < RTE_DIM(all); i++)
		if (begin)
			object_use(all[i]);
		else
			object_unuse(all[i]);
}

static void
set_chains(struct interface *i)
{
	const struct node *in4[] = {&acl_in_node, routing->look_up4}, *in6[] = {&acl_in_node, routing->look_up6};
	unsigned skip = i->acl_in == NO_ACL;

	__atomic_store_n(&i->chain4, chain_of(in4 + skip, 2 - skip), __ATOMIC_RELEASE);
	__atomic_store_n(&i->chain6, chain_of(in6 + skip, 2 - skip), __ATOMIC_RELEASE);
}

static uint16_t
mtu_of(const Sluice__V1__Interface *spec, const struct port *port)
{
	return (uint16_t)(spec->mtu ? spec->mtu : port ? port->mtu : UINT16_MAX);
}

static bool
is_among(const struct interface_detail *d, const struct interface_address *address)
{
	for (unsigned i = 0; i < d->address_count; i++)
		if (memcmp(&d->addresses[i], address, sizeof(*address)) == 0)
			return true;
	return false;
}

// The twin has the addresses of the port's untagged interface. What stays is not touched: daemons' routes depend on it.
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
create(struct object *object, const Sluice__V1__Interface *spec, const struct references *r,
	struct interface_address *addresses, struct fault *f)
{
	struct port *port = r->port ? port_of(r->port) : NULL;
	uint32_t index = slab_take(&interfaces);
	struct interface *i;
	int error = 0;

	if (index == UINT32_MAX)
		return fault(f, ENOSPC, "there can be %d interfaces at most", INTERFACE_LIMIT);
	i = interface_at(index);
	*i = (struct interface){
		.vrf = r->vrf_index,
		.mtu = mtu_of(spec, port),
		.circuit = {port ? port->id : NO_PORT, (uint16_t)spec->outer_vlan, (uint16_t)spec->inner_vlan},
		.outer_tpid = htons(RTE_ETHER_TYPE_VLAN),
		.inner_tpid = htons(RTE_ETHER_TYPE_VLAN),
		.proxy_arp = spec->proxy_arp,
		.present = true,
		.acl_in = acl_of(r->acl_in),
		.acl_out = acl_of(r->acl_out),
		.addresses_of = r->unnumbered ? interface_of(r->unnumbered) : index,
	};
	set_chains(i);
	counters_clear(&interface_counters, index);
	drop_forget_interface(index);
	details[index] = (struct interface_detail){object, addresses, (unsigned)spec->n_addresses};
	object->state = (void *)(uintptr_t)index;
	if (port)
		error = circuit_check_interface(&i->circuit, f);
	for (struct interface_watcher *w = watchers; w && !error; w = w->next) {
		error = w->added(index, f);
		if (error)
			tell_removed(index, w);
	}
	// The interface can answer before the first packet finds it.
	if (port && !error)
		error = circuit_bind_interface(&i->circuit, index, f);
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
change(uint32_t index, const Sluice__V1__Interface *spec, const struct references *r,
	struct interface_address *addresses, struct fault *f)
{
	struct interface *i = interface_at(index), before = *i;
	struct interface_detail *d = &details[index], old = *d;
	int error = 0;

	i->mtu = mtu_of(spec, r->port ? port_of(r->port) : NULL);
	i->proxy_arp = spec->proxy_arp;
	i->acl_in = acl_of(r->acl_in);
	i->acl_out = acl_of(r->acl_out);
	set_chains(i);
	d->addresses = addresses;
	d->address_count = (unsigned)spec->n_addresses;
	for (struct interface_watcher *w = watchers; w && !error; w = w->next)
		error = w->changed(index, old.addresses, old.address_count, f);
	if (error) {
		// Everybody goes back to what was; that was acceptable once.
		struct fault ignored;

		i->mtu = before.mtu;
		i->proxy_arp = before.proxy_arp;
		i->acl_in = before.acl_in;
		i->acl_out = before.acl_out;
		set_chains(i);
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

	if (spec->outer_vlan > 4094 || spec->inner_vlan > 4094)
		return fault(f, EINVAL, "outerVlan, innerVlan: 1 to 4094 are accepted");
	if (spec->mtu && (spec->mtu < 1280 || spec->mtu > 9600))
		return fault(f, EINVAL, "mtu: 1280 to 9600 bytes are accepted, not %u", spec->mtu);
	if (!spec->port[0] && spec->outer_vlan)
		return fault(f, EINVAL, "outerVlan: a loopback has no VLAN; name a port");
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
	if (old) {
		resolve(old, &before, &(struct fault){0});
		error = change(interface_of(object), spec, &r, addresses, f);
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
	if (i->circuit.port != NO_PORT)
		circuit_unbind_interface(&i->circuit);
	twin_addresses(index, &details[index], &(struct interface_detail){0});
	tell_removed(index, NULL);
	i->present = false;
	free(details[index].addresses);
	details[index] = (struct interface_detail){0};
	use(&r, false);
	slab_give_later(&interfaces, index);
	return 0;
}

// An interface whose MTU is its port's follows it.
static void
port_changed(struct port *port)
{
	for (uint32_t index = 0; port->object && index < interfaces.used; index++) {
		struct interface *i = interface_at(index);
		struct interface_detail *d = &details[index];
		Sluice__V1__Interface *spec;
		struct fault ignored;

		if (!d->object || !d->object->spec || i->circuit.port != port->id)
			continue;
		spec = sluice__v1__interface__unpack(NULL, d->object->spec_length, d->object->spec);
		if (!spec)
			continue;
		i->mtu = mtu_of(spec, port);
		sluice__v1__interface__free_unpacked(spec, NULL);
		for (struct interface_watcher *w = watchers; w; w = w->next)
			w->changed(index, d->addresses, d->address_count, &ignored);
	}
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
	int error = slab_create(&interfaces, sizeof(struct interface), INTERFACE_LIMIT);

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
