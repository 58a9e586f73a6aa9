// SPDX-License-Identifier: Apache-2.0
// Kind Neighbor: a neighbour whose Ethernet address is configured; and the list of all neighbours.
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ether/interface.h"
#include "fib/vrf.h"
#include "ip.pb-c.h"
#include "fib/hop.h"
#include "fib/look_up_api.h"
#include "neighbor/neighbor_table.h"
#include "port/mac.h"

static int
parse(const Sluice__V1__Neighbor *spec, struct object **interface, uint8_t address[16], uint8_t *family,
	struct rte_ether_addr *mac, struct fault *f)
{
	int error;

	if (spec->interface[0] == '\0')
		return fault(f, EINVAL, "interface: a neighbour needs one");
	error = object_need(&interface_kind, spec->interface, "interface", interface, f);
	if (error)
		return error;
	if (address_parse(spec->address, address, family))
		return fault(f, EINVAL, "address: \"%.64s\" is not an IPv4 or IPv6 address", spec->address);
	if (strlen(spec->mac) != 17 || rte_ether_unformat_addr(spec->mac, mac))
		return fault(f, EINVAL, "mac: \"%.64s\" is not an Ethernet address like 02:00:00:00:00:01", spec->mac);
	if (!rte_is_valid_assigned_ether_addr(mac))
		return fault(f, EINVAL, "mac: %s is a group's address or all zero; a neighbour has its own", spec->mac);
	if (interface_at(interface_of(*interface))->link != INTERFACE_ETHERNET)
		return fault(f, EINVAL, "interface: %s has no port, so it has no neighbours", spec->interface);
	return 0;
}

static int
put(struct object *object, const void *desired, const void *previous, struct fault *f)
{
	const Sluice__V1__Neighbor *spec = desired, *old = previous;
	struct object *interface;
	struct neighbor *n;
	struct rte_ether_addr mac;
	uint8_t address[16], family;
	int error = parse(spec, &interface, address, &family, &mac, f);

	if (error)
		return error;
	if (old && (strcmp(old->interface, spec->interface) != 0 || strcmp(old->address, spec->address) != 0))
		return fault(f, EINVAL,
			"interface and address of a neighbour cannot be changed: delete it and make another");
	n = neighbor_get(interface_of(interface), family, address);
	if (!n)
		return fault(f, ENOSPC, "address: there is no room for another neighbour; at most %d are held",
			NEIGHBOR_MAX);
	if (n->object && n->object != object)
		return fault(f, EEXIST, "address: %s on %s is neighbor \"%s\" already", spec->address, spec->interface,
			n->object->name);
	if (!old) {
		object->state = interface;
		object_use(interface);
	}
	neighbor_configure(n, object, &mac);
	return 0;
}

static int delete (struct object *object, const void *desired, struct fault *f)
{
	const Sluice__V1__Neighbor *spec = desired;
	struct object *interface = object->state;
	uint8_t address[16], family;
	struct neighbor *n;

	if (address_parse(spec->address, address, &family) == 0) {
		n = neighbor_find(interface_of(interface), family, address);
		if (n && n->object == object)
			neighbor_configure(n, NULL, NULL);
	}
	object_unuse(interface);
	return 0;
}

static int
start(void)
{
	arp_start();
	nd_start();
	return neighbor_table_start();
}

static struct kind neighbor_kind = {
	.name = "Neighbor",
	.spec = &sluice__v1__neighbor__descriptor,
	.put = put,
	.delete = delete,
	.start = start,
};
KIND_REGISTER(neighbor_kind)

// The state as the API has it; NULL: no packet was sent to it yet.
static const char *
state_text(const struct neighbor *n)
{
	// A delayed first probe (RFC 4861) takes seconds: it is not a state of its own here.
	static const char *const states[NEIGHBOR_STATES] = {
		[NEIGHBOR_INCOMPLETE] = "incomplete",
		[NEIGHBOR_REACHABLE] = "reachable",
		[NEIGHBOR_STALE] = "stale",
		[NEIGHBOR_DELAY] = "stale",
		[NEIGHBOR_PROBE] = "probe",
		[NEIGHBOR_FAILED] = "failed",
		[NEIGHBOR_STATIC] = "static",
	};

	return states[n->resolving.entry.state];
}

uint64_t
neighbor_page(uint64_t cursor, uint32_t limit,
	void (*each)(const char *interface, const char *address, const char *mac, const char *state, void *argument),
	void *argument)
{
	uint32_t given = 0;

	for (; cursor < neighbors.used; cursor++) {
		const struct neighbor *n = slab_at(&neighbors, (uint32_t)cursor);
		char address[INET6_ADDRSTRLEN], mac[MAC_TEXT_SIZE] = "";

		// An entry without a state was never used; one without a hop is not in use.
		if (n->hop == 0 || n->orphan || !state_text(n))
			continue;
		if (given == limit)
			return cursor;
		inet_ntop(n->family == 4 ? AF_INET : AF_INET6, n->address, address, sizeof(address));
		if (neighbor_usable(n->resolving.entry.state))
			mac_text(mac, &n->resolving.entry.mac);
		each(interface_detail(n->interface)->object->name, address, mac, state_text(n), argument);
		given++;
	}
	return 0;
}

// The neighbour that a hop leads to, for operators; a connected network's hop leads to the host that has the destination.
static void
tell(uint32_t hop, Sluice__V1__LookedUpHop *row, struct hop_texts *texts)
{
	uint32_t index = neighbor_of_hop(hop);
	const struct neighbor *n = index == UINT32_MAX ? NULL : slab_at(&neighbors, index);

	if (!n && hop_at(hop)->kind != HOP_RESOLVE)
		return;
	row->state = (char *)"unresolved";
	if (!n)
		return;
	inet_ntop(n->family == 4 ? AF_INET : AF_INET6, n->address, texts->address, sizeof(texts->address));
	row->address = texts->address;
	if (state_text(n))
		row->state = (char *)state_text(n);
	if (neighbor_usable(n->resolving.entry.state)) {
		mac_text(texts->mac, &n->resolving.entry.mac);
		row->mac = texts->mac;
	}
}

static struct hop_describer teller = {.tell = tell};
HOP_DESCRIBER_REGISTER(teller)
