// Our interfaces' addresses and networks as routes.
//
// An address is ours: a host route to HOP_LOCAL. Its network is directly reached: a route to the interface's HOP_GLEAN, and in
// it, where the network has such addresses, its broadcast address, which is ours for packets from that link alone
// (RFC 2644), and {network, 0}, which is nobody's (RFC 1812 section 4.2.3.1; RFC 3021 for /31). The IPv6 network's own
// address is the routers' anycast address, so it is ours (RFC 4291 section 2.6.1; RFC 6164 for /127).
#include "ip/connected.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include "core/drop.h"
#include "core/rcu.h"
#include "ether/interface.h"
#include "ip/header.h"
#include "ip/hop.h"
#include "ip/neighbor.h"
#include "ip/own.h"
#include "ip/path.h"
#include "ip/vrf.h"

enum role { ROLE_ADDRESS, ROLE_NETWORK, ROLE_BROADCAST, ROLE_ANYCAST, ROLE_NOBODY, ROLES };

// A route that an interface's addresses ask for.
struct wanted {
	uint8_t address[16];
	uint8_t family;
	uint8_t length;
	uint8_t role;
};

struct wanted_list {
	struct wanted *routes;
	unsigned count;
};

// The interface's hops, 0 where there is none yet.
struct interface_hops {
	uint32_t local, broadcast, glean4, glean6;
};

static struct interface_hops hops_of[INTERFACE_LIMIT];
static uint32_t nobody;
// Two interfaces have had a network in common: when one of them goes, the other may have to step in.
static bool overlap;

DROP(drop_nobody, "network-address",
	"The destination is a network's own address, which is nobody's (RFC 1812 section 4.2.3.1).")

uint32_t
connected_glean(uint32_t interface, uint8_t family)
{
	return family == 4 ? hops_of[interface].glean4 : hops_of[interface].glean6;
}

static enum route_source
source_of(const struct wanted *w)
{
	return w->role == ROLE_ADDRESS ? ROUTE_LOCAL : ROUTE_CONNECTED;
}

static uint32_t
hop_for(uint32_t interface, const struct wanted *w)
{
	switch ((enum role)w->role) {
	case ROLE_NETWORK:
		return connected_glean(interface, w->family);
	case ROLE_BROADCAST:
		return hops_of[interface].broadcast;
	case ROLE_NOBODY:
		return nobody;
	default:
		return hops_of[interface].local;
	}
}

static bool
same_route(const struct wanted *a, const struct wanted *b)
{
	return a->family == b->family && a->length == b->length && source_of(a) == source_of(b) &&
	       memcmp(a->address, b->address, 16) == 0;
}

static bool
contains(const struct wanted_list *list, const struct wanted *w)
{
	for (unsigned i = 0; i < list->count; i++)
		if (same_route(&list->routes[i], w))
			return true;
	return false;
}

static void
want(struct wanted_list *list, const struct interface_address *a, unsigned length, enum role role, bool host_ones)
{
	unsigned bits = a->family == 4 ? 32 : 128;
	struct wanted w = {.family = a->family, .length = (uint8_t)length, .role = (uint8_t)role};

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

// What the addresses ask for; up to four routes each.
static int
want_all(struct wanted_list *list, const struct interface_address *addresses, unsigned count, bool loopback)
{
	*list = (struct wanted_list){.routes = calloc(4 * count + 1, sizeof(struct wanted))};
	if (!list->routes)
		return -ENOMEM;
	// All addresses first: one that is ours is not also a network's broadcast or anycast address.
	for (unsigned i = 0; i < count; i++)
		if (!is_link_local(&addresses[i]))
			want(list, &addresses[i], addresses[i].family == 4 ? 32 : 128, ROLE_ADDRESS, false);
	for (unsigned i = 0; i < count && !loopback; i++) {
		const struct interface_address *a = &addresses[i];
		unsigned bits = a->family == 4 ? 32 : 128;

		if (is_link_local(a) || a->length == bits)
			continue;
		want(list, a, a->length, ROLE_NETWORK, false);
		if (a->length > bits - 2)
			continue;
		want(list, a, bits, a->family == 4 ? ROLE_NOBODY : ROLE_ANYCAST, false);
		if (a->family == 4)
			want(list, a, bits, ROLE_BROADCAST, true);
	}
	return 0;
}

static uint32_t
make_hop(uint32_t interface, enum hop_kind kind)
{
	const struct interface *i = interface_at(interface);
	uint32_t index = hop_new(kind);
	struct hop *hop;

	if (index == UINT32_MAX)
		return 0;
	hop = hop_at(index);
	hop->interface = interface;
	hop->port = i->circuit.port;
	hop->mtu = i->mtu;
	if (kind == HOP_GLEAN)
		hop->chain = neighbor_glean_node.id;
	return index;
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
	bool link = interface_at(interface)->circuit.port != NO_PORT;

	if (nobody == 0) {
		nobody = hop_new(HOP_DROP);
		if (nobody == UINT32_MAX) {
			nobody = 0;
			return fault(f, ENOSPC, "addresses: there is no room for the interface's hops");
		}
		hop_at(nobody)->drop = drop_nobody.id;
	}
	*h = (struct interface_hops){
		.local = make_hop(interface, HOP_LOCAL), .broadcast = make_hop(interface, HOP_LOCAL)};
	if (link) {
		h->glean4 = make_hop(interface, HOP_GLEAN);
		h->glean6 = make_hop(interface, HOP_GLEAN);
	}
	if (!h->local || !h->broadcast || (link && (!h->glean4 || !h->glean6))) {
		drop_hops(interface);
		return fault(f, ENOSPC, "addresses: there is no room for the interface's hops");
	}
	hop_at(h->broadcast)->flags = HOP_BROADCAST;
	hop_at(h->broadcast)->chain = ip_special_node.id | (uint64_t)ip_local_node.id << 8;
	return 0;
}

// Of two interfaces with the same network, the first has the route; both may not have the same address. Entering what is
// there already changes nothing.
static int
enter(uint32_t interface, const struct wanted *w, struct fault *f)
{
	uint16_t vrf = interface_at(interface)->vrf;
	enum route_source source = source_of(w);
	uint32_t there = route_find(vrf, w->family, w->address, w->length, source), hop = hop_for(interface, w);
	char text[INET6_ADDRSTRLEN];

	if (there == 0)
		return route_add(vrf, w->family, w->address, w->length, source, hop, f);
	if (source == ROUTE_CONNECTED) {
		overlap |= there != hop || hop == nobody;
		return 0;
	}
	if (there == hop)
		return 0;
	return fault(f, EEXIST, "addresses: %s is the address of another interface in this VRF",
		inet_ntop(w->family == 4 ? AF_INET : AF_INET6, w->address, text, sizeof(text)));
}

// Another interface that has the same network steps in for one that goes.
static void
step_in(uint32_t gone, uint16_t vrf, const struct wanted *w)
{
	struct fault f;

	for (uint32_t i = 0; i < interfaces.used; i++) {
		const struct interface_detail *detail = interface_detail(i);
		struct wanted_list theirs;

		if (i == gone || !interface_at(i)->present || interface_at(i)->vrf != vrf || hops_of[i].local == 0)
			continue;
		if (want_all(&theirs, detail->addresses, detail->address_count,
			    interface_at(i)->circuit.port == NO_PORT))
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
leave(uint32_t interface, const struct wanted *w)
{
	uint16_t vrf = interface_at(interface)->vrf;
	enum route_source source = source_of(w);

	if (route_find(vrf, w->family, w->address, w->length, source) != hop_for(interface, w))
		return;
	route_remove(vrf, w->family, w->address, w->length, source);
	if (source == ROUTE_CONNECTED && overlap)
		step_in(interface, vrf, w);
}

// From one set of addresses to another. What is in both is not touched.
static int
apply(uint32_t interface, const struct interface_address *old, unsigned old_count, const struct interface_address *now,
	unsigned now_count, struct fault *f)
{
	bool loopback = interface_at(interface)->circuit.port == NO_PORT;
	struct wanted_list before, after = {0};
	unsigned entered = 0;
	int error = want_all(&before, old, old_count, loopback);

	if (error == 0)
		error = want_all(&after, now, now_count, loopback);
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
		uint8_t length = i->circuit.port != NO_PORT ? a->length : a->family == 4 ? 32 : 128;

		if (!is_link_local(a) && own_add(i->vrf, a->family, a->bytes, length, interface))
			return fault(f, ENOMEM, "addresses: there is no memory for them");
	}
	return 0;
}

static void
disown_all(uint32_t interface, const struct interface_address *addresses, unsigned count)
{
	for (unsigned k = 0; k < count; k++)
		own_remove(interface_at(interface)->vrf, addresses[k].family, addresses[k].bytes, interface);
}

static int
added(uint32_t interface, struct fault *f)
{
	const struct interface_detail *detail = interface_detail(interface);
	int error = make_hops(interface, f);

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
	int error = apply(interface, old, old_count, detail->addresses, detail->address_count, f);

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
	if (h->glean4 != 0) {
		hop_at(h->glean4)->mtu = mtu;
		hop_at(h->glean6)->mtu = mtu;
	}
	path_refresh(old, old_count);
	path_refresh(detail->addresses, detail->address_count);
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
