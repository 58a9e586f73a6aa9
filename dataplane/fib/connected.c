// SPDX-License-Identifier: Apache-2.0
// Our interfaces' addresses and networks as routes.
//
// An address is ours: a host route to HOP_LOCAL. Its network is directly reached: a route to the interface's HOP_RESOLVE (of one with a single far end a HOP_FORWARD), and in
// it, where the network has such addresses, its broadcast address, which is ours for packets from that link alone
// (RFC 2644), and {network, 0}, which no host has (RFC 1812 section 4.2.3.1; RFC 3021 for /31). The IPv6 network's own
// address is the routers' anycast address, so it is ours (RFC 4291 section 2.6.1; RFC 6164 for /127).
#include "fib/connected.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include "core/drop.h"
#include "core/rcu.h"
#include "ether/feature.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "fib/next_hop.h"
#include "fib/local_address.h"
#include "fib/path.h"
#include "fib/scope.h"
#include "fib/vrf.h"
#include "inet/header.h"

enum role { ROLE_ADDRESS, ROLE_NETWORK, ROLE_BROADCAST, ROLE_ANYCAST, ROLE_NOBODY, ROLES };

// A route that an interface's addresses ask for.
struct connected_route {
	uint8_t address[16];
	uint8_t family;
	uint8_t length;
	uint8_t role;
};

struct connected_routes {
	struct connected_route *routes;
	unsigned count;
};

// The interface's hops, 0 where there is none yet.
struct interface_hops {
	uint32_t local, broadcast, glean4, glean6;
};

static struct interface_hops hops_of[INTERFACE_LIMIT];
static const struct node *point_step;
static uint32_t drop_hop;
// Two interfaces have had a network in common: when one of them goes, the other may have to step in.
static bool overlap;

DROP(drop_network_address, "network-address",
	"The destination is a network's own address, which no host has (RFC 1812 section 4.2.3.1).")

uint32_t
connected_glean(uint32_t interface, uint8_t family)
{
	return family == 4 ? hops_of[interface].glean4 : hops_of[interface].glean6;
}

bool
connected_is_network_address(const struct hop *hop)
{
	return drop_hop != 0 && hop == hop_at(drop_hop);
}

void
connected_point_register(const struct node *node)
{
	point_step = node;
}

static enum route_source
source_of(const struct connected_route *w)
{
	return w->role == ROLE_ADDRESS ? ROUTE_LOCAL : ROUTE_CONNECTED;
}

static uint32_t
hop_for(uint32_t interface, const struct connected_route *w)
{
	switch ((enum role)w->role) {
	case ROLE_NETWORK:
		return connected_glean(interface, w->family);
	case ROLE_BROADCAST:
		return hops_of[interface].broadcast;
	case ROLE_NOBODY:
		return drop_hop;
	default:
		return hops_of[interface].local;
	}
}

static bool
same_route(const struct connected_route *a, const struct connected_route *b)
{
	return a->family == b->family && a->length == b->length && source_of(a) == source_of(b) &&
	       memcmp(a->address, b->address, 16) == 0;
}

static bool
contains(const struct connected_routes *list, const struct connected_route *w)
{
	for (unsigned i = 0; i < list->count; i++)
		if (same_route(&list->routes[i], w))
			return true;
	return false;
}

static void
list_route(struct connected_routes *list, const struct interface_address *a, unsigned length, enum role role,
	bool host_ones)
{
	unsigned bits = a->family == 4 ? 32 : 128;
	struct connected_route w = {.family = a->family, .length = (uint8_t)length, .role = (uint8_t)role};

	memcpy(w.address, a->bytes, bits / 8);
	if (role != ROLE_ADDRESS)
		for (unsigned i = 0; i < bits / 8; i++) {
			w.address[i] &= prefix_mask(a->length, i);
			if (host_ones)
				w.address[i] |= (uint8_t)~prefix_mask(a->length, i);
		}
	if (!contains(list, &w))
		list->routes[list->count++] = w;
}

static bool
is_link_local(const struct interface_address *a)
{
	return a->family == 6 && ip6_is_link_local(a->bytes);
}

// The routes of the addresses; up to four each.
static int
list_routes(struct connected_routes *list, const struct interface_address *addresses, unsigned count, bool loopback)
{
	*list = (struct connected_routes){.routes = calloc(4 * count + 1, sizeof(struct connected_route))};
	if (!list->routes)
		return -ENOMEM;
	// All addresses first: one that is ours is not also a network's broadcast or anycast address.
	for (unsigned i = 0; i < count; i++)
		if (!is_link_local(&addresses[i]))
			list_route(list, &addresses[i], addresses[i].family == 4 ? 32 : 128, ROLE_ADDRESS, false);
	for (unsigned i = 0; i < count && !loopback; i++) {
		const struct interface_address *a = &addresses[i];
		unsigned bits = a->family == 4 ? 32 : 128;

		if (is_link_local(a) || a->length == bits)
			continue;
		list_route(list, a, a->length, ROLE_NETWORK, false);
		if (a->length > bits - 2)
			continue;
		list_route(list, a, bits, a->family == 4 ? ROLE_NOBODY : ROLE_ANYCAST, false);
		if (a->family == 4)
			list_route(list, a, bits, ROLE_BROADCAST, true);
	}
	return 0;
}

static uint32_t
make_hop(uint32_t interface, enum hop_kind kind, uint8_t flags)
{
	const struct interface *i = interface_at(interface);
	uint32_t index = flags ? hop_new_local(flags) : hop_new(kind);
	struct hop *hop;

	if (index == UINT32_MAX)
		return 0;
	hop = hop_at(index);
	hop->interface = interface;
	hop->port = i->circuit.port;
	hop->mtu = i->mtu;
	return index;
}

// A packet for any address of an interface with one far end goes there.
static void
write_point(uint32_t interface, uint32_t index)
{
	const struct interface *i = interface_at(interface);
	const struct interface_detail *detail = interface_detail(interface);
	const struct node *steps[INTERFACE_FEATURES + 2];
	unsigned count = interface_steps(interface, INTERFACE_OUT, steps);
	struct hop *hop = hop_at(index);

	steps[count++] = point_step;
	steps[count++] = detail->type->output;
	hop->own[0] = i->own;
	__atomic_store_n(&hop->mtu, RTE_MIN(i->mtu, detail->type->mtu(detail->under)), __ATOMIC_RELAXED);
	__atomic_store_n(&hop->chain, chain_of(steps, count), __ATOMIC_RELEASE);
}

// The hop of packets for a destination that the interface reaches itself.
static uint32_t
make_link(uint32_t interface)
{
	bool point = interface_at(interface)->link == INTERFACE_POINT;
	uint32_t index = make_hop(interface, point ? HOP_FORWARD : HOP_RESOLVE, 0);

	if (point && index != 0)
		write_point(interface, index);
	return index;
}

static void
follow_link(uint32_t interface, uint32_t index)
{
	if (index != 0 && interface_at(interface)->link == INTERFACE_POINT)
		write_point(interface, index);
	else if (index != 0)
		hop_at(index)->mtu = interface_at(interface)->mtu;
}

static void
drop_hops(uint32_t interface)
{
	struct interface_hops *h = &hops_of[interface];
	uint32_t all[] = {h->local, h->broadcast, h->glean4, h->glean6};

	*h = (struct interface_hops){0};
	for (unsigned i = 0; i < RTE_DIM(all); i++)
		if (all[i] != 0)
			hop_retire(all[i]);
}

static int
make_hops(uint32_t interface, struct fault *f)
{
	struct interface_hops *h = &hops_of[interface];
	bool link = interface_at(interface)->link != INTERFACE_LOOPBACK;

	if (drop_hop == 0) {
		drop_hop = hop_new(HOP_DROP);
		if (drop_hop == UINT32_MAX) {
			drop_hop = 0;
			return fault(f, ENOSPC, "addresses: there is no room for the interface's hops");
		}
		hop_at(drop_hop)->drop = drop_network_address.id;
	}
	*h = (struct interface_hops){
		.local = make_hop(interface, HOP_LOCAL, 0), .broadcast = make_hop(interface, HOP_LOCAL, HOP_BROADCAST)};
	if (link) {
		h->glean4 = make_link(interface);
		h->glean6 = make_link(interface);
	}
	if (!h->local || !h->broadcast || (link && (!h->glean4 || !h->glean6))) {
		drop_hops(interface);
		return fault(f, ENOSPC, "addresses: there is no room for the interface's hops");
	}
	return 0;
}

static const char *
name_of(uint32_t interface)
{
	const struct object *object = interface < INTERFACE_LIMIT ? interface_detail(interface)->object : NULL;

	return object ? object->name : "?";
}

// No two interfaces have the same network or the same address. If one network contains another, the first has the route to a
// broadcast or network address of both. Adding an existing route changes nothing.
static int
enter(uint32_t interface, const struct connected_route *w, struct fault *f)
{
	uint16_t vrf = interface_at(interface)->vrf;
	enum route_source source = source_of(w);
	uint32_t there = route_find(vrf, w->family, w->address, w->length, source), hop = hop_for(interface, w);
	char text[INET6_ADDRSTRLEN];

	if (there == 0)
		return route_add(vrf, w->family, w->address, w->length, source, hop, f);
	if (w->role == ROLE_NETWORK && there != hop && hop_forwards(hop_at(there)))
		return fault(f, EEXIST,
			"addresses: %s/%u is the network of Interface \"%.64s\" in VRF \"%.64s\" already; choose "
			"another "
			"network or VRF, or give the address to that interface",
			inet_ntop(w->family == 4 ? AF_INET : AF_INET6, w->address, text, sizeof(text)), w->length,
			name_of(hop_at(there)->interface), vrf_name(vrf));
	if (source == ROUTE_CONNECTED) {
		overlap |= there != hop || hop == drop_hop;
		return 0;
	}
	if (there == hop)
		return 0;
	return fault(f, EEXIST,
		"addresses: %s is an address of Interface \"%.64s\" in VRF \"%.64s\" already; choose another",
		inet_ntop(w->family == 4 ? AF_INET : AF_INET6, w->address, text, sizeof(text)),
		name_of(hop_at(there)->interface), vrf_name(vrf));
}

// Another interface that has the same network steps in for one that goes.
static void
step_in(uint32_t gone, uint16_t vrf, const struct connected_route *w)
{
	struct fault f;

	for (uint32_t i = 0; i < interfaces.used; i++) {
		const struct interface_detail *detail = interface_detail(i);
		struct connected_routes theirs;

		if (i == gone || !interface_at(i)->present || interface_at(i)->vrf != vrf || hops_of[i].local == 0)
			continue;
		if (list_routes(&theirs, detail->addresses, detail->address_count,
			    interface_at(i)->link == INTERFACE_LOOPBACK))
			return;
		for (unsigned k = 0; k < theirs.count; k++) {
			if (!same_route(&theirs.routes[k], w))
				continue;
			route_add(vrf, w->family, w->address, w->length, ROUTE_CONNECTED, hop_for(i, &theirs.routes[k]),
				&f);
			free(theirs.routes);
			return;
		}
		free(theirs.routes);
	}
}

static void
leave(uint32_t interface, const struct connected_route *w)
{
	uint16_t vrf = interface_at(interface)->vrf;
	enum route_source source = source_of(w);

	if (route_find(vrf, w->family, w->address, w->length, source) != hop_for(interface, w))
		return;
	route_remove(vrf, w->family, w->address, w->length, source);
	if (source == ROUTE_CONNECTED && overlap)
		step_in(interface, vrf, w);
}

// Change from one set of addresses to another. Addresses in both are not touched.
static int
apply(uint32_t interface, const struct interface_address *old, unsigned old_count, const struct interface_address *now,
	unsigned now_count, struct fault *f)
{
	bool loopback = interface_at(interface)->link == INTERFACE_LOOPBACK;
	struct connected_routes before, after = {0};
	unsigned entered = 0;
	int error = list_routes(&before, old, old_count, loopback);

	if (error == 0)
		error = list_routes(&after, now, now_count, loopback);
	if (error)
		error = fault(f, ENOMEM, "addresses: there is no memory for the interface's routes");
	while (error == 0 && entered < after.count) {
		if (!contains(&before, &after.routes[entered]))
			error = enter(interface, &after.routes[entered], f);
		entered += error == 0;
	}
	for (unsigned i = 0; error && i < entered; i++)
		if (!contains(&before, &after.routes[i]))
			leave(interface, &after.routes[i]);
	for (unsigned i = 0; error == 0 && i < before.count; i++)
		if (!contains(&after, &before.routes[i]))
			leave(interface, &before.routes[i]);
	free(before.routes);
	free(after.routes);
	return error;
}

static int
own_all(uint32_t interface, const struct interface_address *addresses, unsigned count, struct fault *f)
{
	const struct interface *i = interface_at(interface);

	for (unsigned k = 0; k < count; k++) {
		const struct interface_address *a = &addresses[k];
		uint8_t length = i->link != INTERFACE_LOOPBACK ? a->length : a->family == 4 ? 32 : 128;

		if (!is_link_local(a) && local_address_add(i->vrf, a->family, a->bytes, length, interface))
			return fault(f, ENOMEM, "addresses: there is no memory for them");
	}
	return 0;
}

static void
disown_all(uint32_t interface, const struct interface_address *addresses, unsigned count)
{
	for (unsigned k = 0; k < count; k++)
		local_address_remove(interface_at(interface)->vrf, addresses[k].family, addresses[k].bytes, interface);
}

// An address of ours is one that a host can have in its network (RFC 1122 section 3.2.1.3; RFC 3021 and RFC 6164 for the longest
// prefixes).
static int
check_address(const struct interface_address *a, struct fault *f)
{
	unsigned bits = a->family == 4 ? 32 : 128;
	const char *what = scope_not_a_host(a->family, a->bytes);
	char text[INET6_ADDRSTRLEN];
	bool zeros = true, ones = true;

	inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->bytes, text, sizeof(text));
	if (what)
		return fault(f, EINVAL, "addresses: %s/%u is %s; choose an address that a host can have", text,
			a->length, what);
	if (a->length > bits - 2)
		return 0;
	for (unsigned i = 0; i < bits / 8; i++) {
		uint8_t host = (uint8_t)~prefix_mask(a->length, i);

		zeros &= (a->bytes[i] & host) == 0;
		ones &= (a->bytes[i] & host) == host;
	}
	if (zeros)
		return fault(f, EINVAL, "addresses: %s/%u is its network's own address; choose another in it", text,
			a->length);
	if (ones && a->family == 4)
		return fault(f, EINVAL, "addresses: %s/%u is its network's broadcast address; choose another in it",
			text, a->length);
	return 0;
}

static int
check_addresses(const struct interface_detail *detail, struct fault *f)
{
	int error = 0;

	for (unsigned i = 0; i < detail->address_count && error == 0; i++)
		error = check_address(&detail->addresses[i], f);
	return error;
}

static int
added(uint32_t interface, struct fault *f)
{
	const struct interface_detail *detail = interface_detail(interface);
	int error = check_addresses(detail, f);

	if (error == 0)
		error = make_hops(interface, f);
	if (error)
		return error;
	error = own_all(interface, detail->addresses, detail->address_count, f);
	if (error == 0)
		error = apply(interface, NULL, 0, detail->addresses, detail->address_count, f);
	if (error) {
		disown_all(interface, detail->addresses, detail->address_count);
		drop_hops(interface);
		return error;
	}
	path_refresh(detail->addresses, detail->address_count);
	return 0;
}

static int
changed(uint32_t interface, const struct interface_address *old, unsigned old_count, struct fault *f)
{
	const struct interface_detail *detail = interface_detail(interface);
	const struct interface_hops *h = &hops_of[interface];
	uint16_t mtu = interface_at(interface)->mtu;
	int error = check_addresses(detail, f);

	if (error == 0)
		error = apply(interface, old, old_count, detail->addresses, detail->address_count, f);
	if (error)
		return error;
	disown_all(interface, old, old_count);
	disown_all(interface, detail->addresses, detail->address_count);
	error = own_all(interface, detail->addresses, detail->address_count, f);
	if (error) {
		struct fault ignored;

		disown_all(interface, detail->addresses, detail->address_count);
		own_all(interface, old, old_count, &ignored);
		apply(interface, detail->addresses, detail->address_count, old, old_count, &ignored);
		return error;
	}
	hop_at(h->local)->mtu = mtu;
	hop_at(h->broadcast)->mtu = mtu;
	follow_link(interface, h->glean4);
	follow_link(interface, h->glean6);
	path_refresh(old, old_count);
	path_refresh(detail->addresses, detail->address_count);
	if (interface_at(interface)->link == INTERFACE_POINT)
		path_refresh(NULL, 0); // it may have gone up or down
	return 0;
}

static void
removed(uint32_t interface)
{
	const struct interface_detail *detail = interface_detail(interface);
	struct fault ignored;

	disown_all(interface, detail->addresses, detail->address_count);
	path_refresh(detail->addresses, detail->address_count);
	apply(interface, detail->addresses, detail->address_count, NULL, 0, &ignored);
	drop_hops(interface);
}

static void
link_changed(struct port *port)
{
	path_refresh(NULL, 0);
}

void
connected_start(void)
{
	static struct interface_watcher watcher = {.added = added, .changed = changed, .removed = removed};

	static struct port_watcher links = {.changed = link_changed};

	interface_watch(&watcher);
	port_watch(&links);
}

// A next hop without an address: packets go to their own destination, on the interface's link. With one far end, each goes there.
static bool
takes(const struct next_hop *n, uint32_t interface)
{
	return !next_hop_has_address(n) || interface_at(interface)->link == INTERFACE_POINT;
}

static uint32_t
hop_of(uint32_t interface, uint8_t family, const struct next_hop *n)
{
	return connected_glean(interface, family);
}

static struct next_hop_type link_type = {.name = "link", .takes = takes, .hop = hop_of};
NEXT_HOP_TYPE_REGISTER(link_type)
