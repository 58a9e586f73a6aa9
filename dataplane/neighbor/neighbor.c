// SPDX-License-Identifier: Apache-2.0
// The table of neighbours (RFC 4861 section 5.1; for IPv4 the same with ARP). Main thread; workers only ask whether an ARP
// or ND message changes an entry.
#include "neighbor/neighbor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/address.h"
#include "core/drop.h"
#include "core/loop.h"
#include "core/map64.h"
#include "core/rcu.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "fib/path.h"
#include "fib/vrf.h"
#include "inet/header.h"
#include "neighbor/neighbor_table.h"
#include "port/port.h"

enum {
	TICK = 20 * 1000 * 1000, // nanoseconds
	AT_ONCE = 256,           // entries that were used, looked after in a tick
	EVICTION_SEARCH = 64,    // entries searched for an unused one
};

LIST_HEAD(interface_list, neighbor);

struct slab neighbors;

static struct map64 *by_address;
static uint64_t secret[2];
static uint32_t count;
static struct interface_list *by_interface;
static bool choices_changed;

DROP(drop_queue_full, "neighbor-queue-full", "Too many packets wait for the Ethernet address of a neighbour.")

enum { KNOWN_WAITING = 1, KNOWN_FIXED = 2 };

static const uint64_t MAC_BITS = (UINT64_C(1) << 48) - 1;

// A keyed hash: an attacker cannot choose two addresses with the same key. The record is compared all the same.
static uint64_t
key_of(uint32_t interface, uint8_t family, const uint8_t address[16])
{
	return address_key(secret, (uint64_t)interface << 8 | family, address);
}

static bool
is(const struct neighbor *n, uint32_t interface, uint8_t family, const uint8_t address[16])
{
	return n->interface == interface && n->family == family && memcmp(n->address, address, 16) == 0;
}

struct neighbor *
neighbor_find(uint32_t interface, uint8_t family, const uint8_t address[16])
{
	uint32_t index = by_address ? map64_get(by_address, key_of(interface, family, address)) : MAP64_NONE;
	struct neighbor *n = index == MAP64_NONE ? NULL : slab_at(&neighbors, index);

	return n && is(n, interface, family, address) ? n : NULL;
}

enum neighbor_news
neighbor_compare(uint32_t interface, uint8_t family, const uint8_t address[16], const struct rte_ether_addr *mac)
{
	struct neighbor *n = neighbor_find(interface, family, address);
	uint64_t known, said = 0;

	if (!n)
		return NEIGHBOR_NOT_THERE;
	known = atomic_load_explicit(&n->known, memory_order_relaxed);
	memcpy(&said, mac, RTE_ETHER_ADDR_LEN);
	if (known >> 48 == KNOWN_FIXED)
		return NEIGHBOR_NO_NEWS;
	return known >> 48 == KNOWN_WAITING || (known & MAC_BITS) != said ? NEIGHBOR_NEWS : NEIGHBOR_NO_NEWS;
}

static void
known_update(struct neighbor *n)
{
	uint64_t known = 0;

	memcpy(&known, &n->resolving.entry.mac, RTE_ETHER_ADDR_LEN);
	if (n->resolving.entry.state == NEIGHBOR_STATIC)
		known |= (uint64_t)KNOWN_FIXED << 48;
	else if (!neighbor_usable(n->resolving.entry.state))
		known |= (uint64_t)KNOWN_WAITING << 48;
	atomic_store_explicit(&n->known, known, memory_order_relaxed);
}

static void
forget(struct neighbor *n)
{
	uint32_t index = (uint32_t)(n - (struct neighbor *)neighbors.records);

	resolver_remove(&neighbor_resolver, &n->resolving);
	neighbor_unroute(n);
	if (!n->orphan) {
		map64_delete(by_address, key_of(n->interface, n->family, n->address));
		LIST_REMOVE(n, by_interface);
	}
	neighbor_hop_forget(n);
	count--;
	slab_give_later(&neighbors, index);
}

static bool
needed(const struct neighbor *n)
{
	return n->users > 0 || n->object;
}

static bool
evict_of(enum neighbor_state state)
{
	struct resolving *r;
	unsigned looked = 0;

	TAILQ_FOREACH(r, &neighbor_resolver.by_state[state], by_state)
	{
		if (!needed(neighbor_resolving(r))) {
			forget(neighbor_resolving(r));
			return true;
		}
		if (++looked == EVICTION_SEARCH)
			break;
	}
	return false;
}

static bool
evict(void)
{
	return evict_of(NEIGHBOR_FAILED) || evict_of(NEIGHBOR_STALE);
}

struct neighbor *
neighbor_get(uint32_t interface, uint8_t family, const uint8_t address[16])
{
	struct neighbor *n = neighbor_find(interface, family, address);
	uint32_t index;

	if (n)
		return n;
	if (count >= NEIGHBOR_MAX && !evict())
		return NULL;
	// A slot that was evicted comes back only when no worker can see it: there are some to spare.
	index = slab_take(&neighbors);
	if (index == UINT32_MAX)
		return NULL;
	n = slab_at(&neighbors, index);
	n->interface = interface;
	n->vrf = interface_at(interface)->vrf;
	n->family = family;
	memcpy(n->address, address, 16);
	known_update(n);
	if (neighbor_hop_make(n, index)) {
		slab_give(&neighbors, index);
		return NULL;
	}
	if (map64_get(by_address, key_of(interface, family, address)) != MAP64_NONE ||
		map64_put(by_address, key_of(interface, family, address), index)) {
		neighbor_hop_forget(n);
		slab_give(&neighbors, index);
		return NULL;
	}
	LIST_INSERT_HEAD(&by_interface[interface], n, by_interface);
	resolver_add(&neighbor_resolver, &n->resolving);
	count++;
	return n;
}

static void
ask(const struct resolving *r, const struct rte_ether_addr *mac)
{
	const struct neighbor *n = neighbor_resolving((struct resolving *)r);
	const struct link link = {
		.header = interface_header, .index = n->interface, .port = interface_at(n->interface)->circuit.port};
	uint8_t own[16] = {0};

	if (n->family != 4) {
		nd_send_solicitation(&link, n->address, mac);
		return;
	}
	// Without an address of ours it is a probe (RFC 5227 section 1.1), which is answered, too.
	vrf_local_address_at(n->vrf, 4, n->interface, n->address, own);
	arp_send_request(&link, own, n->address, mac);
}

static bool
resolving_needed(const struct resolving *r)
{
	return needed(neighbor_resolving((struct resolving *)r));
}

static void
resolving_forget(struct resolving *r)
{
	forget(neighbor_resolving(r));
}

static void
changed(struct resolving *r)
{
	struct neighbor *n = neighbor_resolving(r);
	bool silent = n->silent;

	known_update(n);
	neighbor_publish(n);
	n->silent = r->entry.state == NEIGHBOR_FAILED || (silent && r->entry.state == NEIGHBOR_INCOMPLETE);
	// Routes with a choice of next hops choose again, once for all that changed.
	choices_changed |= n->silent != silent && n->users > 0;
}

struct resolver neighbor_resolver = {
	.max_unresolved = NEIGHBOR_UNRESOLVED_MAX,
	.max_queued = NEIGHBOR_QUEUED_MAX,
	.queue_full = &drop_queue_full,
	.needed = resolving_needed,
	.ask = ask,
	.changed = changed,
	.send = neighbor_send,
	.fail = neighbor_unreachable,
	.forget = resolving_forget,
};

void
neighbor_advertised(uint32_t interface, uint8_t family, const uint8_t address[16], const struct neighbor_advert *advert)
{
	struct neighbor *n = neighbor_find(interface, family, address);
	struct neighbor_advert a = *advert;

	// A host that only asks does not evict another entry.
	if (!n && advert->creates && count < NEIGHBOR_MAX && neighbor_on_link(interface, family, address)) {
		n = neighbor_get(interface, family, address);
		if (n)
			n->gleaned = true; // its host route spares the first packet the way over the main thread
	}
	if (!n)
		return;
	// ARP does not say whether a reply was asked for.
	if (family == 4)
		a.solicited &=
			n->resolving.entry.state == NEIGHBOR_INCOMPLETE || n->resolving.entry.state == NEIGHBOR_PROBE;
	resolver_event(&neighbor_resolver, &n->resolving, NEIGHBOR_HEARD, &a);
}

void
neighbor_configure(struct neighbor *n, struct object *object, const struct rte_ether_addr *mac)
{
	n->object = object;
	resolver_set(&neighbor_resolver, &n->resolving, mac ? NEIGHBOR_STATIC : NEIGHBOR_NONE, mac);
	if (mac)
		resolver_send(&neighbor_resolver, &n->resolving);
	else if (!needed(n))
		forget(n);
}

// A next hop with an address is a neighbour on the interface's link. Packets that take its hop wait until it is resolved.
static uint32_t
hop_of(uint32_t interface, uint8_t family, const struct next_hop *next_hop)
{
	struct neighbor *n = neighbor_get(interface, family, next_hop->address);

	if (!n)
		return UINT32_MAX;
	n->users++;
	return n->hop;
}

// It was asked for, and did not answer. It is asked again from time to time.
static bool
silent(uint32_t hop)
{
	uint32_t index = neighbor_of_hop(hop);

	return index != UINT32_MAX && ((const struct neighbor *)slab_at(&neighbors, index))->silent;
}

static void
release(uint32_t hop)
{
	uint32_t index = neighbor_of_hop(hop);
	struct neighbor *n = index == UINT32_MAX ? NULL : slab_at(&neighbors, index);

	if (!n || n->users == 0)
		return;
	n->users--;
	// A learned entry stays while it is used; other entries can be made again.
	if (!needed(n) && (n->orphan || !neighbor_usable(n->resolving.entry.state)))
		forget(n);
}

static bool
takes(const struct next_hop *n, uint32_t interface)
{
	return next_hop_has_address(n) && interface_at(interface)->link == INTERFACE_ETHERNET;
}

static struct next_hop_type neighbor_type = {
	.name = "neighbour", .takes = takes, .hop = hop_of, .release = release, .silent = silent};
NEXT_HOP_TYPE_REGISTER(neighbor_type)

static void
used(uint32_t index)
{
	struct neighbor *n = slab_at(&neighbors, index);

	// A forgotten entry is in state stale, but in no list.
	if (n->hop != NO_HOP && n->resolving.entry.state == NEIGHBOR_STALE)
		resolver_event(&neighbor_resolver, &n->resolving, NEIGHBOR_USED, NULL);
}

static void
tick(void *unused)
{
	neighbor_take_used(AT_ONCE, used);
	if (choices_changed)
		path_refresh(NULL, 0);
	choices_changed = false;
}

static int
interface_changed(uint32_t interface, const struct interface_address *old, unsigned old_count, struct fault *f)
{
	struct neighbor *n;

	LIST_FOREACH(n, &by_interface[interface], by_interface)
	neighbor_publish(n);
	return 0;
}

static void
interface_removed(uint32_t interface)
{
	struct neighbor *n;

	while ((n = LIST_FIRST(&by_interface[interface]))) {
		if (!needed(n)) {
			forget(n);
			continue;
		}
		// A route still leads here; it releases the hop after the interface is gone.
		map64_delete(by_address, key_of(n->interface, n->family, n->address));
		LIST_REMOVE(n, by_interface);
		n->orphan = true;
		n->object = NULL;
		resolver_set(&neighbor_resolver, &n->resolving, NEIGHBOR_NONE, NULL);
		resolver_fail(&neighbor_resolver, &n->resolving);
	}
}

static struct interface_watcher interface_watcher = {
	.changed = interface_changed,
	.removed = interface_removed,
};

static void
port_changed(struct port *port)
{
	struct neighbor *n, *next;

	if (!port->object)
		return;
	for (uint32_t i = 0; i < interfaces.used; i++) {
		const struct interface *in = interface_at(i);

		if (!in->present || in->circuit.port != port->id)
			continue;
		for (n = LIST_FIRST(&by_interface[i]); n; n = next) {
			next = LIST_NEXT(n, by_interface);
			neighbor_publish(n);
			if (!port->up)
				resolver_event(&neighbor_resolver, &n->resolving, NEIGHBOR_LINK_DOWN, NULL);
		}
	}
}

static struct port_watcher port_watcher = {.changed = port_changed};

int
neighbor_table_start(void)
{
	if (slab_create(&neighbors, sizeof(struct neighbor), NEIGHBOR_MAX + 4096))
		return -ENOMEM;
	by_interface = slab_reserve(INTERFACE_LIMIT * sizeof(*by_interface));
	if (!by_interface || getentropy(secret, sizeof(secret)))
		return -ENOMEM;
	by_address = map64_create();
	if (!by_address)
		return -ENOMEM;
	interface_watch(&interface_watcher);
	port_watch(&port_watcher);
	loop_every(TICK, tick, NULL);
	resolver_start(&neighbor_resolver);
	return 0;
}
